//! Versions from the log.

use std::{
    cell::RefCell,
    ops::Range,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use freshet_base::{Fid, Lsn, Rid, Watermark, lock};
use freshet_log::{LogReader, RecordHeader, block::RECORD_HEADER};
use freshet_replay::Records;
use freshet_storage::{LoadError, Loaded, RecordSource};

/// How much a thread reads ahead when its records lie one behind the other, as in the first scan of
/// a table that was loaded.
const AHEAD: usize = 64 << 10;
/// Records lie one behind the other when no more than this is between them.
const NEAR: u64 = 256;
/// A thread reads ahead after this many records in a row.
const RUN: u32 = 8;

/// What a thread has read ahead, of one log.
#[derive(Default)]
struct ReadAhead {
    /// Whose log it is; zero for none.
    source: u64,
    from: Lsn,
    bytes: Vec<u8>,
    /// The end of the record that the thread has loaded last.
    end: Lsn,
    /// How many it has loaded one behind the other.
    run: u32,
}

thread_local! {
    static READ_AHEAD: RefCell<ReadAhead> = const {
        RefCell::new(ReadAhead { source: 0, from: Lsn::ZERO, bytes: Vec::new(), end: Lsn::ZERO, run: 0 })
    };
}

impl ReadAhead {
    /// What was read of the log from `address` on.
    fn at(&self, address: Lsn) -> &[u8] {
        let skipped = address.0.checked_sub(self.from.0).map_or(usize::MAX, |skipped| skipped as usize);
        self.bytes.get(skipped..).unwrap_or_default()
    }

    /// The record at `address` as far as it was read.
    fn record(&self, address: Lsn) -> Option<&[u8]> {
        let bytes = self.at(address);
        let length = RecordHeader::decode(bytes.get(..RECORD_HEADER)?).ok()?.length as usize;
        bytes.get(..RECORD_HEADER + length)
    }

    /// A record is being loaded, of `source`.
    fn note(&mut self, source: u64, address: Lsn) {
        if self.source != source {
            *self = Self { source, ..Self::default() };
        }
        let near = address >= self.end && address.since(self.end) <= NEAR;
        self.run = if near { self.run.saturating_add(1) } else { 0 };
    }
}

/// The log as a source of versions.
#[derive(Debug)]
pub(crate) struct VersionSource {
    /// No other in this process has it.
    number: u64,
    /// Set when the log is open; nothing is in the log only before.
    records: OnceLock<Records>,
    /// On a standby: its read view. Above it, a failover could cut what was replayed.
    visible: OnceLock<Arc<Watermark>>,
    /// Set when this node becomes primary: then nothing is cut any more while it lives.
    leads: OnceLock<()>,
    /// Parts of the log that are known to be damaged, and whether there are any: no row is taken
    /// from there.
    damaged: Mutex<Vec<Range<Lsn>>>,
    is_damaged: AtomicBool,
}

impl Default for VersionSource {
    fn default() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only that no two are the same matters.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Self {
            number,
            records: OnceLock::new(),
            visible: OnceLock::new(),
            leads: OnceLock::new(),
            damaged: Mutex::default(),
            is_damaged: AtomicBool::new(false),
        }
    }
}

impl VersionSource {
    /// The log is open.
    pub(crate) fn open(&self, reader: LogReader) {
        assert!(self.records.set(Records(reader)).is_ok(), "a node opens its log once");
    }

    /// The log, if it is open.
    pub(crate) fn log(&self) -> Option<&LogReader> {
        self.records.get().map(|records| &records.0)
    }

    /// This node is a standby with this read view.
    pub(crate) fn limit_to(&self, visible: Arc<Watermark>) {
        assert!(self.visible.set(visible).is_ok(), "a node has one read view");
    }

    /// The standby's read view; nothing before there is one.
    pub(crate) fn visible(&self) -> Lsn {
        self.visible.get().map_or(Lsn::ZERO, |visible| visible.get())
    }

    /// This node is the primary.
    pub(crate) fn unlimited(&self) {
        let _ = self.leads.set(());
    }

    /// What lies there in the log is damaged, and nothing else there is: no row is taken from it.
    pub(crate) fn damaged(&self, parts: Vec<Range<Lsn>>) {
        let is_damaged = !parts.is_empty();
        *lock(&self.damaged) = parts;
        // Release: pairs with the acquire in `is_damaged`.
        self.is_damaged.store(is_damaged, Ordering::Release);
    }

    /// Whether the record at `address` lies in a part of the log that is known to be damaged.
    pub(crate) fn is_damaged(&self, address: Lsn) -> bool {
        // Acquire: pairs with the release in `damaged`.
        self.is_damaged.load(Ordering::Acquire) && lock(&self.damaged).iter().any(|part| part.contains(&address))
    }

    /// Loads a record from what the thread has read ahead; reads on where its records lie one
    /// behind the other. Only what no cut can take back is kept: what lies below the limit.
    fn load_ahead(&self, address: Lsn, fid: Fid, rid: Rid, row: &mut Vec<u8>) -> Option<Loaded> {
        READ_AHEAD.with_borrow_mut(|ahead| {
            ahead.note(self.number, address);
            if ahead.record(address).is_none() {
                let log = &self.records.get()?.0;
                let end = self.limit().min(log.filled()).min(address.plus(AHEAD as u64));
                if ahead.run < RUN || end <= address {
                    return None;
                }
                ahead.from = address;
                ahead.bytes.resize(end.since(address) as usize, 0);
                if log.read(address, &mut ahead.bytes).is_err() {
                    ahead.bytes.clear();
                    return None;
                }
            }
            let record = ahead.record(address)?;
            let header = RecordHeader::decode(record).ok().filter(|header| header.fid == fid && header.rid == rid)?;
            row.extend_from_slice(&record[RECORD_HEADER..]);
            ahead.end = address.plus(record.len() as u64);
            Some(Loaded { kind: header.kind, prev: header.prev })
        })
    }
}

impl RecordSource for VersionSource {
    fn load(&self, address: Lsn, fid: Fid, rid: Rid, row: &mut Vec<u8>) -> Result<Loaded, LoadError> {
        if self.is_damaged(address) {
            return Err(LoadError::Log(format!("the log is damaged at {address}")));
        }
        if let Some(loaded) = self.load_ahead(address, fid, rid, row) {
            return Ok(loaded);
        }
        let records = self.records.get().ok_or_else(|| LoadError::Log("the log is not open".into()))?;
        let begun = row.len();
        let loaded = records.load(address, fid, rid, row)?;
        let end = address.plus((RECORD_HEADER + row.len() - begun) as u64);
        READ_AHEAD.with_borrow_mut(|ahead| ahead.end = end);
        Ok(loaded)
    }

    fn limit(&self) -> Lsn {
        match (self.leads.get(), self.visible.get()) {
            (None, Some(visible)) => visible.get(),
            _ => Lsn::MAX,
        }
    }
}
