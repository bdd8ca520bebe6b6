//! The memory of simulated mirrors, and the log that it has to agree with.

use std::{collections::BTreeMap, rc::Rc, sync::Arc};

use freshet_base::{Fid, Lsn, Rid, sync::AtomicU64};
use freshet_fabric::memory::{Region, Registered, copy_words};
use freshet_mirror::{Contents, DIRECTORY, Damaged, note_undo};

use crate::{
    checks::{Property, Violation},
    log::Log,
};

/// How many chunks a directory has room for.
const CHUNKS: u32 = 300;
pub(super) const HEAD_BYTES: u64 = DIRECTORY + CHUNKS as u64 * 64;
/// Sixteen entries.
pub(super) const UNDO_BYTES: u64 = 16 * 4096;
const ARENA_BYTES: u64 = 600 << 10;

#[derive(Debug)]
struct Plain(Vec<AtomicU64>);

impl Registered for Plain {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// Zeros.
pub(super) fn region(bytes: u64) -> Region {
    Arc::new(Plain(vec![0; bytes as usize / 8].into_iter().map(AtomicU64::new).collect()))
}

/// Memory in which nothing is.
pub(super) fn empty() -> Vec<Region> {
    vec![region(HEAD_BYTES), region(UNDO_BYTES)]
}

/// More memory for rows, with room for this many bytes.
pub(super) fn grow(memory: &mut Vec<Region>, bytes: u64) -> Region {
    let more = region(bytes.max(ARENA_BYTES));
    memory.push(more.clone());
    more
}

/// The same for the undo ring.
pub(super) fn grow_undo(memory: &mut Vec<Region>, bytes: u64) -> Region {
    let more = region(bytes.max(UNDO_BYTES));
    memory.push(more.clone());
    let is_noted = note_undo(memory, memory.len() - 1);
    assert!(is_noted, "there is room");
    more
}

/// Other memory with the same bytes.
pub(super) fn moved(memory: &[Region]) -> Vec<Region> {
    let copy = |from: &Region| {
        let to = region(from.words().len() as u64 * 8);
        copy_words(from.words(), to.words(), |_| true);
        to
    };
    memory.iter().map(copy).collect()
}

pub(crate) type Id = (Fid, Rid);
/// Nothing of a record that was deleted.
pub(crate) type Row = Option<Rc<[u8]>>;
/// What records are: where in the log, and the row.
pub(crate) type Records = BTreeMap<Id, (Lsn, Row)>;

/// The state with the log up to `end`.
pub(crate) fn state_at(log: &Log, end: u64) -> Records {
    let blocks = log.blocks().iter().take_while(|block| block.end() <= end);
    let rows = blocks.flat_map(|block| block.rows());
    rows.map(|(id, at, row)| (*id, (*at, row.clone()))).collect()
}

/// Those that were not deleted.
pub(super) fn living(records: &Records) -> Records {
    records.iter().filter(|(_, (_, row))| row.is_some()).map(|(id, record)| (*id, record.clone())).collect()
}

pub(super) fn damaged(why: Damaged) -> Violation {
    Violation { property: Property::Mirrors, what: why.to_string() }
}

/// Compares all that a mirror has with what it has to have with this log up to `end`.
pub(super) fn check(memory: &[Region], end: u64, log: &Log) -> Result<(), Violation> {
    let mirror = Contents::open(memory.to_vec(), Lsn(end)).map_err(damaged)?;
    if log.transaction_end(end) != end {
        return Property::Mirrors.violated(format!("no transaction ends at {end}, where a mirror's memory does"));
    }
    let wanted = state_at(log, end);
    let (mut seen, mut wrong) = (0, None);
    for chunk in 0..mirror.chunk_count() {
        let visited = mirror.visit(chunk, |fid, rid, at, row| {
            let Some(row) = row else { return };
            seen += 1;
            let known = wanted.get(&(fid, rid));
            if known.is_none_or(|(address, known)| *address != at || known.as_deref() != Some(row)) {
                wrong = Some(format!("record {} of table {} is that of {at} at {end}, not {known:?}", rid.0, fid.0));
            }
        });
        visited.map_err(damaged)?;
    }
    if let Some(wrong) = wrong {
        return Property::Mirrors.violated(wrong);
    }
    let living = wanted.values().filter(|(_, row)| row.is_some()).count();
    if seen != living {
        return Property::Mirrors.violated(format!("{seen} records are there at {end}, of {living}"));
    }
    Ok(())
}
