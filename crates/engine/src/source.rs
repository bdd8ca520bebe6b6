//! Versions from the log.

use std::sync::{Arc, OnceLock};

use freshet_base::{Fid, Rid, Stamp, Watermark};
use freshet_log::{LogReader, RecordHeader, block::RECORD_HEADER};
use freshet_replay::LogBytes;
use freshet_storage::{LoadError, Loaded, RecordSource};

/// Bytes that are read at once: most records whole.
const GUESS: usize = 512;

/// The log as a source of versions.
#[derive(Debug, Default)]
pub(crate) struct LogSource {
    /// Set when the log is open; nothing is in the log only before.
    reader: OnceLock<LogReader>,
    /// On a standby: its read view. Above it, a take-over could cut what was replayed.
    visible: OnceLock<Arc<Watermark>>,
    /// Set when this node becomes primary: then nothing is cut any more while it lives.
    reigns: OnceLock<()>,
}

impl LogSource {
    /// The log is open.
    pub(crate) fn open(&self, reader: LogReader) {
        assert!(self.reader.set(reader).is_ok(), "a node opens its log once");
    }

    /// This node is a standby with this read view.
    pub(crate) fn limit_to(&self, visible: Arc<Watermark>) {
        assert!(self.visible.set(visible).is_ok(), "a node has one read view");
    }

    /// This node is the primary.
    pub(crate) fn unlimited(&self) {
        let _ = self.reigns.set(());
    }

    /// How far the log is filled.
    pub(crate) fn filled(&self) -> Stamp {
        self.reader.get().map_or(Stamp::ZERO, LogReader::filled)
    }

    fn read(&self, at: Stamp, into: &mut [u8]) -> Result<(), LoadError> {
        let reader = self.reader.get().ok_or_else(|| LoadError::Log("the log is not open".into()))?;
        reader.read(at, into).map_err(|cause| LoadError::Log(cause.to_string()))
    }
}

impl RecordSource for LogSource {
    fn load(&self, address: Stamp, fid: Fid, rid: Rid, row: &mut Vec<u8>) -> Result<Loaded, LoadError> {
        let mut bytes = [0; GUESS];
        // The record may be the log's last: then there are fewer bytes behind it.
        let filled = self.filled();
        let have = (filled.since(address) as usize).min(GUESS);
        if have < RECORD_HEADER {
            return Err(LoadError::Mismatch { address });
        }
        self.read(address, &mut bytes[..have])?;
        let header = RecordHeader::decode(&bytes[..have]).map_err(|_| LoadError::Mismatch { address })?;
        let length = header.length as usize;
        let end = address.plus((RECORD_HEADER + length) as u64);
        if header.fid != fid || header.rid != rid || end > filled {
            return Err(LoadError::Mismatch { address });
        }
        let begun = length.min(have - RECORD_HEADER);
        row.extend_from_slice(&bytes[RECORD_HEADER..RECORD_HEADER + begun]);
        if begun < length {
            let from = row.len();
            row.resize(from + length - begun, 0);
            self.read(address.plus((RECORD_HEADER + begun) as u64), &mut row[from..])?;
        }
        Ok(Loaded { kind: header.kind, prev: header.prev })
    }

    fn limit(&self) -> Stamp {
        match (self.reigns.get(), self.visible.get()) {
            (None, Some(visible)) => visible.get(),
            _ => Stamp::MAX,
        }
    }
}

impl LogBytes for LogSource {
    fn read(&self, at: Stamp, buffer: &mut [u8]) -> Result<(), String> {
        self.read(at, buffer).map_err(|cause| cause.to_string())
    }
}
