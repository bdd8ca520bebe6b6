//! What tests and models of tables have in common: a log in memory, and those who act on a table.

use std::{cell::RefCell, collections::BTreeMap, sync::Mutex};

use freshet_base::{
    Fid, Lsn, RecordKind, Rid,
    sync::{AtomicU64, Ordering},
};

use super::{Content, LoadError, Loaded, ReadContext, ReadError, RecordSource};
use crate::{owner::Owners, reclaim::Guard};

struct Logged {
    kind: RecordKind,
    prev: Option<Lsn>,
    row: Vec<u8>,
}

/// A log: records by address, each record id with addresses of its own. Its lock is not modelled,
/// as the real log's bytes are not.
pub(super) struct FakeLog {
    records: Mutex<BTreeMap<(Lsn, Rid), Logged>>,
    pub(super) limit: AtomicU64,
}

/// What happens before a load from its address.
type Hook = Box<dyn FnMut(Lsn)>;

thread_local! {
    /// Called before each load, with its address.
    static BEFORE_LOAD: RefCell<Option<Hook>> = const { RefCell::new(None) };
    /// Loads of this thread.
    static LOADS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl FakeLog {
    pub(super) fn new() -> Self {
        Self { records: Mutex::new(BTreeMap::new()), limit: AtomicU64::new(u64::MAX) }
    }

    pub(super) fn append(&self, address: u64, rid: Rid, kind: RecordKind, prev: Option<u64>, row: &[u8]) {
        let record = Logged { kind, prev: prev.map(Lsn), row: row.to_vec() };
        self.records.lock().unwrap().insert((Lsn(address), rid), record);
    }

    /// Loses the record at `address`.
    #[cfg(not(loom))]
    pub(super) fn lose(&self, address: u64, rid: Rid) {
        self.records.lock().unwrap().remove(&(Lsn(address), rid));
    }

    /// Cuts off everything at or above `at`.
    pub(super) fn cut(&self, at: u64) {
        self.records.lock().unwrap().retain(|(address, _), _| address.0 < at);
    }

    #[cfg(not(loom))]
    pub(super) fn before_load(call: impl FnMut(Lsn) + 'static) {
        BEFORE_LOAD.with(|hook| *hook.borrow_mut() = Some(Box::new(call)));
    }

    /// Loads of this thread so far.
    #[cfg(not(loom))]
    pub(super) fn loads() -> u64 {
        LOADS.with(std::cell::Cell::get)
    }
}

impl RecordSource for FakeLog {
    fn load(&self, address: Lsn, _fid: Fid, rid: Rid, row: &mut Vec<u8>) -> Result<Loaded, LoadError> {
        LOADS.with(|loads| loads.set(loads.get() + 1));
        if let Some(mut hook) = BEFORE_LOAD.with(|hook| hook.borrow_mut().take()) {
            hook(address);
            BEFORE_LOAD.with(|place| *place.borrow_mut() = Some(hook));
        }
        let records = self.records.lock().unwrap();
        let record = records.get(&(address, rid)).ok_or(LoadError::Mismatch { address })?;
        row.extend_from_slice(&record.row);
        Ok(Loaded { kind: record.kind, prev: record.prev })
    }

    fn limit(&self) -> Lsn {
        Lsn(self.limit.load(Ordering::Acquire))
    }
}

/// A reader's context at `snapshot`, which trims at `horizon`.
pub(super) fn context<'c>(owners: &'c Owners, log: &'c FakeLog, snapshot: u64, horizon: u64) -> ReadContext<'c> {
    ReadContext { snapshot: Lsn(snapshot), me: None, owners, source: log, horizon: Lsn(horizon) }
}

/// The row that the context's snapshot sees.
pub(super) fn see<'g>(
    table: &Content,
    guard: &'g Guard<'_>,
    rid: Rid,
    context: &ReadContext<'_>,
) -> Result<Option<&'g [u8]>, ReadError> {
    Ok(table.read(guard, rid, context)?.and_then(|visible| visible.row))
}
