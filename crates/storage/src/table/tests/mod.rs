//! Tables, one thread at a time: chains as writers, readers, replay and reclamation leave them.

mod free;
mod primary;
mod standby;

use std::ops::ControlFlow;

use freshet_base::{Fid, Lsn, Rid, sync::Ordering};

use super::Content;
use crate::{
    array::Word,
    definition::{IndexDefinition, KeyPart, TableDefinition},
    reclaim::Guard,
    version::LIVE,
};

const RID: Rid = Rid(0);
/// In these tests a row's key is its first byte.
const A: &[u8] = b"a";
const B: &[u8] = b"b";

fn table() -> Content {
    let index = IndexDefinition::new("letters", true, &[KeyPart::bytes(0, 1)]);
    Content::new(Fid(1), &TableDefinition::new("rows", vec![index])).unwrap()
}

/// Memory that versions of this thread take.
fn live() -> i64 {
    LIVE.with(std::cell::Cell::get)
}

/// The chain in memory, newest first: LSNs, and at the end the log address that follows.
fn chain(table: &Content, rid: Rid) -> (Vec<u64>, Option<Lsn>) {
    let mut lsns = Vec::new();
    let mut word = Word(table.data.get(rid).map_or(0, |word| word.load(Ordering::Acquire)));
    while let Some(version) = word.as_pointer() {
        // SAFETY: one thread at a time in these tests; what hangs from the word is alive.
        let version = unsafe { &*version };
        lsns.push(version.lsn.load(Ordering::Acquire));
        word = Word(version.next.load(Ordering::Acquire));
    }
    (lsns, word.as_address())
}

fn entries(table: &Content, guard: &Guard<'_>, key: &[u8]) -> Vec<Rid> {
    let mut found = Vec::new();
    let _ = table.indexes(guard).primary().tree().get(guard, key, |rid| {
        found.push(rid);
        ControlFlow::Continue(())
    });
    found
}
