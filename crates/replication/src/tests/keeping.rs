//! A mirror that holds more than the node that it is to follow keeps that: it may be the last copy.

use std::sync::Arc;

use freshet_base::{Consent, Lsn, NodeId, Safety, Term};
use freshet_cluster::term::{TermEntry, TermHistory, TermState};
use freshet_fabric::FabricKind;

use super::{bootstrap::*, fixture::*, mirroring::*};
use crate::{
    promotion::PromoteOptions,
    status::LinkStatus,
    terms::{Terms, VolatileTerms},
};

fn term_entry(start: Lsn, node: NodeId) -> TermEntry {
    TermEntry { term: Term(2), start, node, nonce: 1 }
}

/// A primary whose log ends with these bytes of term 1, and that begins term 2 there.
pub fn set_back(log: &[u8], node: NodeId) -> PrimaryNode {
    let (next, end) = (TestLog::received(CAPACITY), Lsn(log.len() as u64));
    next.append(log);
    next.promote(Term(2));
    let mut history = TermHistory::first(Term(1), NodeId(1), 1);
    history.begin(term_entry(end, node)).unwrap();
    let terms = Terms::new(TermState::of(CLUSTER, history), Arc::new(VolatileTerms));
    PrimaryNode::lead(open(node.0), node, config(rule(Safety::OneSafe, 1)), next, terms)
}

/// A mirror that has all of a log that is committed as a whole, and that log; and where its
/// first part ends.
fn level(undoes: bool, reconnects: bool) -> (MirrorNode, Vec<u8>, usize) {
    let primary = PrimaryNode::first(config(rule(Safety::Quorum(2), 1)));
    let mirror = MirrorNode::new(2, primary.address(), small(FabricKind::Shm));
    mirror.joined();
    let first = primary.write(&[64, 72, 80]);
    // What its undo ring has room for, or more.
    for _ in 0..if undoes { 2 } else { 40 } {
        primary.commits(primary.write(&[64, 72, 80]));
    }
    let end = primary.log.end();
    until("it is marked", || mirror.mirror.status().mark == end);
    if reconnects {
        mirror.mirror.follow(&primary.address());
        until("it is fed again", || mirror.mirror.status().in_sync.is_some() && mirror.mirror.status().mark == end);
    }
    (mirror, primary.log.bytes(), first.0 as usize)
}

/// Both say so, and nothing has become of what the mirror holds.
#[track_caller]
fn is_kept(mirror: &MirrorNode, primary: &PrimaryNode, log: &[u8]) {
    until("both say so", || {
        let (status, ahead) = (mirror.mirror.status(), primary.primary.status().ahead);
        let explains = |why: &str| why.contains("is committed up to") && why.contains("freshet refill");
        status.holds_more.is_some_and(|why| explains(&why)) && ahead.first().is_some_and(|ahead| explains(&ahead.why))
    });
    let status = mirror.mirror.status();
    assert!(matches!(status.link, LinkStatus::Connecting { .. }), "{status:?}");
    assert_eq!((status.term, status.whole), (Term(1), true), "it has promised nothing");
    assert!(mirror.records(Lsn(log.len() as u64)) == newest(log), "{status:?}");
    assert!(primary.primary.status().standbys.is_empty(), "it is not counted each time it tries");
}

#[test]
fn a_mirror_keeps_what_it_knows_to_be_committed() {
    for (undoes, reconnects) in [(true, false), (false, false), (true, true)] {
        for (node, gives, promotes) in [(1, false, true), (1, true, false), (3, true, true), (3, false, false)] {
            let (mirror, log, first) = level(undoes, reconnects);
            let next = set_back(&log[..first], NodeId(node));
            if gives {
                let mut history = TermHistory::first(Term(1), NodeId(1), 1);
                history.begin(term_entry(Lsn(first as u64), NodeId(node))).unwrap();
                let door = Door(Toy::of(&log[..first], Lsn(64)), history);
                next.endpoint.set_checkpoints(Some(Arc::new(door)));
            }
            mirror.mirror.follow(&next.address());
            is_kept(&mirror, &next, &log);
            // It has gone on without the mirror.
            let end = next.write(&[64, 72]);
            mirror.mirror.follow(&next.address());
            is_kept(&mirror, &next, &log);
            if promotes {
                let options = PromoteOptions { consent: Consent::Loss, ..PromoteOptions::default() };
                let promoted = mirror.mirror.promote(&options).unwrap();
                assert_eq!((promoted.start.0, promoted.committed.0), (log.len() as u64, log.len() as u64));
                assert!(mirror.records(promoted.start) == newest(&log));
                continue;
            }
            mirror.mirror.refill().unwrap();
            until("it has the other log", || mirror.mirror.status().whole && mirror.mirror.status().end == end);
            assert!(mirror.records(end) == newest(&next.log.bytes()));
            let status = (mirror.mirror.status().holds_more, next.primary.status().ahead);
            assert_eq!(status, (None, Vec::new()));
            assert!(mirror.mirror.refill().is_err(), "it has no more");
        }
    }
}

/// The log is gone from where they part, and a checkpoint has less than the mirror.
#[test]
fn a_mirror_keeps_what_it_has_although_the_log_is_gone() {
    let (mirror, log, first) = level(false, false);
    let next = TestLog::received_in_ring(1 << 16);
    next.append(&log[..first]);
    next.promote(Term(2));
    let mut history = TermHistory::first(Term(1), NodeId(1), 1);
    history.begin(term_entry(Lsn(first as u64), NodeId(1))).unwrap();
    let terms = Terms::new(TermState::of(CLUSTER, history.clone()), Arc::new(VolatileTerms));
    let next = PrimaryNode::lead(open(1), NodeId(1), config(rule(Safety::OneSafe, 1)), next, terms);
    while next.log.log.read(Lsn(first as u64), &mut [0; 8]).is_ok() {
        next.write(&[904; 8]);
    }
    let door = Door(Toy::of(&log[..first], Lsn(64)), history);
    next.endpoint.set_checkpoints(Some(Arc::new(door)));
    mirror.mirror.follow(&next.address());
    is_kept(&mirror, &next, &log);
}

/// It is stale for another node, too: what that has less, it does not get.
#[test]
fn a_mirror_that_was_away_for_too_long_is_not_filled_with_less() {
    let (mirror, log, first) = level(false, false);
    let gone = PrimaryNode::first_on(TestLog::in_ring(1 << 16), config(rule(Safety::OneSafe, 1)));
    while gone.log.log.read(Lsn(log.len() as u64), &mut [0; 8]).is_ok() || gone.log.end().0 < log.len() as u64 {
        gone.write(&[904; 8]);
    }
    mirror.mirror.follow(&gone.address());
    until("the log is gone", || super::joining::cannot_follow(mirror.mirror.status().link).is_some());
    let next = set_back(&log[..first], NodeId(1));
    let door = Door(Toy::of(&log[..first], Lsn(64)), next.terms.get().history);
    next.endpoint.set_checkpoints(Some(Arc::new(door)));
    mirror.mirror.follow(&next.address());
    is_kept(&mirror, &next, &log);
}
