//! What one session sees, whichever nodes serve it: what it has written, and never an older state
//! after a newer one.

use std::{collections::HashMap, time::Duration};

use super::{
    checks::{Verdicts, place, seconds},
    history::{Book, Id, PER_CLIENT, Read},
};

/// The check that a session sees its own writes.
pub(super) const OWN: &str = "a session does not see what it has written";

/// Judges what each session has seen.
pub(super) fn check(book: &Book, names: &[String], verdicts: &mut Verdicts) {
    let mut registers: HashMap<(u64, i64), (i64, Duration)> = HashMap::new();
    let mut journals: HashMap<(u64, Id), (Id, Duration)> = HashMap::new();
    for read in &book.reads {
        let whose = || format!("connection {} on {}", read.connection, place(read.node, read.route, names));
        for &(key, version, _) in &read.registers {
            let before = registers.entry((read.connection, key)).or_insert((version, read.begun));
            if version < before.0 {
                let (begun, [then, earlier]) = (seconds(read.begun), [before.0.to_string(), seconds(before.1)]);
                verdicts.add("time runs backwards", || {
                    format!("{} saw version {version} of register {key} at {begun}, and {then} at {earlier}", whose())
                });
            }
            *before = (*before).max((version, read.begun));
        }
        let Some((from, ids)) = &read.journal else { continue };
        let client = from / PER_CLIENT;
        if let Some(own) = lacks(read.own.filter(|own| own / PER_CLIENT == client), *from, ids) {
            verdicts.add(OWN, || format!("{} did not see {own} at {}", whose(), seconds(read.begun)));
        }
        let before = journals.get(&(read.connection, client)).copied();
        if let Some(id) = lacks(before.map(|(id, _)| id), *from, ids) {
            let earlier = seconds(before.map_or(Duration::ZERO, |(_, at)| at));
            verdicts.add("time runs backwards", || {
                format!("{} did not see {id} at {}, but at {earlier}", whose(), seconds(read.begun))
            });
        }
        if let Some(newest) = newest(read) {
            journals.insert((read.connection, client), (newest, read.begun));
        }
    }
}

/// The transaction, if it is one of those from `from` on and not among these.
fn lacks(id: Option<Id>, from: Id, ids: &[Id]) -> Option<Id> {
    id.filter(|id| *id >= from && ids.binary_search(id).is_err())
}

fn newest(read: &Read) -> Option<Id> {
    read.journal.as_ref()?.1.last().copied()
}
