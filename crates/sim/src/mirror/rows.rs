//! What transactions write where rows count: blocks with bytes, as production makes them.

use std::rc::Rc;

use freshet_base::{Fid, Lsn, NodeId, RecordKind, Rid, Term};
use freshet_cluster::in_sync::InSyncSet;
use freshet_log::{
    BlockBuilder, BlockKind,
    block::{members_block, term_block},
};

use super::memory::{Id, Records, Row};
use crate::dice::Dice;

/// What a block consists of.
#[derive(Debug)]
pub(crate) struct Content {
    pub bytes: Vec<u8>,
    /// What it makes of records, and where in the log that is.
    pub rows: Vec<(Id, Lsn, Row)>,
}

/// How many records a chunk of a mirror has.
const SLOTS: u64 = 4096;

/// The mark with which a term begins.
pub(crate) fn of_term(at: u64, term: Term, node: NodeId) -> Rc<Content> {
    Rc::new(Content { bytes: term_block(Lsn(at), term, node).to_vec(), rows: Vec::new() })
}

/// A record of an in-sync set: its number stands for it.
pub(crate) fn of_set(at: u64, term: Term, set: &InSyncSet) -> Rc<Content> {
    Rc::new(Content { bytes: members_block(Lsn(at), term, &set.number.to_le_bytes()), rows: Vec::new() })
}

/// Some changes, drawn by what the records are, which know of them from then on.
pub(crate) fn of_changes(at: u64, term: Term, is_last: bool, records: &mut Records, dice: &mut Dice) -> Rc<Content> {
    let mut changes: Vec<(Id, RecordKind, Row)> = Vec::new();
    for _ in 0..dice.between(1, 7) {
        let change = draw(records, dice);
        // The next one is drawn by what was there before.
        if changes.iter().all(|(id, ..)| *id != change.0) {
            changes.push(change);
        }
    }
    let mut builder = BlockBuilder::new();
    builder.begin();
    let push = |((fid, rid), kind, row): &(Id, RecordKind, Row)| {
        // Of every second record the log says where its rows differ.
        let before = records.get(&(*fid, *rid)).filter(|_| *kind == RecordKind::Update && rid.0 % 2 == 0);
        let (prev, below) = before.map(|(at, row)| (*at, row.as_deref())).unzip();
        let placed = builder.push_over(prev, *fid, *rid, *kind, row.as_deref().unwrap_or_default(), below.flatten());
        ((*fid, *rid), Lsn(at + u64::from(placed.expect("it is far below the limit"))), row.clone())
    };
    let rows: Vec<_> = changes.iter().map(push).collect();
    builder.seal_records();
    let bytes = builder.finish_part(Lsn(at), term, BlockKind::Redo, is_last).to_vec();
    records.extend(rows.iter().map(|(id, at, row)| (*id, (*at, row.clone()))));
    Rc::new(Content { bytes, rows })
}

/// A change by chance.
fn draw(records: &Records, dice: &mut Dice) -> (Id, RecordKind, Row) {
    let fid = Fid(1 + dice.below(3) as u32);
    let rid = match fid.0 {
        3 => Rid(dice.below(16)),
        _ if dice.one_in(4) => Rid(SLOTS + dice.below(6)),
        _ => Rid(dice.below(24)),
    };
    let id = (fid, rid);
    let first = (fid, Rid(rid.0 - rid.0 % SLOTS));
    let usual = if fid.0 == 3 { 480 } else { 40 };
    let bytes = |length: u64, dice: &mut Dice| {
        let mut bytes = vec![0; length as usize];
        for some in bytes.chunks_mut(8) {
            some.copy_from_slice(&dice.draw().to_le_bytes()[..some.len()]);
        }
        bytes
    };
    if records.range(first..(fid, Rid(first.1.0 + SLOTS))).next().is_none() {
        // It says how long slots are.
        return (id, RecordKind::Insert, Some(bytes(usual, dice).into()));
    }
    let before = records.get(&id).and_then(|(_, row)| row.as_deref());
    let kind = if before.is_some() { RecordKind::Update } else { RecordKind::Insert };
    let row = match (dice.below(10), before) {
        (0 | 1, Some(_)) => return (id, RecordKind::Delete, None),
        (2, _) => {
            let length = dice.between(500, 6000);
            bytes(length, dice)
        }
        (3..8, Some(row)) if !row.is_empty() => {
            let mut row = row.to_vec();
            for _ in 0..dice.below(4) {
                let at = dice.below(row.len() as u64) as usize;
                row[at] ^= 1 + dice.below(255) as u8;
            }
            row
        }
        _ => {
            let length = dice.below(usual + 1);
            bytes(length, dice)
        }
    };
    (id, kind, Some(row.into()))
}
