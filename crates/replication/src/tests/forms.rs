//! A standby that gets the log in another form, and regenerates it.

use std::sync::Arc;

use freshet_base::{Safety, Stamp, sync::Ordering};

use super::{
    fixture::*,
    toy::{Toy, ToyForms},
};
use crate::{
    forms::Encoding,
    primary::PrimaryConfig,
    standby::StandbyConfig,
    takeover::{PromoteOptions, promote},
};

fn asking() -> StandbyConfig {
    StandbyConfig { encoding: Encoding::Inputs, ..StandbyConfig::default() }
}

fn encoding(safety: Safety, leaves: usize) -> (PrimaryConfig, Arc<ToyForms>) {
    let forms = Arc::new(ToyForms { leaves, ..ToyForms::default() });
    let mut config = config(rule(safety, 1));
    config.feed.forms = Some(Arc::clone(&forms) as _);
    (config, forms)
}

/// A standby that asks for forms, of `primary`.
fn below(primary: &PrimaryNode) -> (StandbyNode, Arc<Toy>) {
    let standby = StandbyNode::with(2, Some(primary.address()), asking(), TestLog::received(CAPACITY));
    standby.joined();
    let toy = Arc::clone(&standby.tape.toy);
    (standby, toy)
}

#[test]
fn what_has_arrived_counts_before_it_is_regenerated() {
    let (config, forms) = encoding(Safety::VerySafe, 0);
    let primary = PrimaryNode::first(config);
    let (standby, toy) = below(&primary);
    toy.gate(Some(0));
    let end = primary.write(&[64; 20]);
    primary.commits(end);
    assert_eq!((standby.log.end(), standby.standby.visible().get()), (Stamp(0), Stamp(0)));
    assert!(forms.encoded.load(Ordering::SeqCst) > 0);
    toy.gate(None);
    standby.shows(end);
    assert_eq!(standby.log.bytes(), primary.log.bytes());
}

#[test]
fn forms_and_bytes_come_in_turn() {
    let (config, forms) = encoding(Safety::VerySafe, 3);
    let primary = PrimaryNode::first(config);
    let (standby, toy) = below(&primary);
    let mut end = Stamp(0);
    for round in 0..60 {
        toy.gate((round % 2 == 0).then_some(end.0));
        for _ in 0..3 {
            end = primary.write(&[64, 72, 200]);
        }
        toy.gate(None);
    }
    primary.commits(end);
    standby.shows(end);
    assert_eq!(standby.log.bytes(), primary.log.bytes());
    assert!(forms.encoded.load(Ordering::SeqCst) > 0);
}

#[test]
fn what_cannot_be_regenerated_is_read_from_the_primary() {
    let (config, _) = encoding(Safety::VerySafe, 0);
    let primary = PrimaryNode::first(config);
    let (standby, toy) = below(&primary);
    toy.lose(64 * 10);
    let end = primary.write(&[64; 20]);
    standby.shows(end);
    assert_eq!((standby.log.bytes(), toy.originals()), (primary.log.bytes(), 10));
}

#[test]
fn a_restart_has_what_was_acknowledged_and_regenerates_it() {
    let (config, _) = encoding(Safety::VerySafe, 0);
    let primary = PrimaryNode::first(config);
    let (standby, toy) = below(&primary);
    let first = primary.write(&[64; 5]);
    standby.shows(first);
    toy.gate(Some(first.0));
    let end = primary.write(&[64; 20]);
    primary.commits(end);
    let (log, terms) = (Arc::clone(&standby.log), standby.terms.clone());
    toy.freeze();
    drop(standby);
    assert_eq!(log.end(), first);
    let bytes = primary.log.bytes();
    drop(primary);
    // Without anybody to ask, and whatever it asks for from now on.
    let config = StandbyConfig { encoding: Encoding::Bytes, ..asking() };
    let standby = StandbyNode::resume(freshet_base::NodeId(2), None, config, log, terms);
    until("all of it is regenerated", || standby.log.end() == end);
    assert_eq!(standby.log.bytes(), bytes);
}

#[test]
fn a_take_over_finds_what_was_acknowledged() {
    let (config, _) = encoding(Safety::VerySafe, 0);
    let primary = PrimaryNode::first(config);
    let (standby, toy) = below(&primary);
    toy.gate(Some(0));
    let end = primary.write(&[64; 20]);
    primary.commits(end);
    let bytes = primary.log.bytes();
    drop(primary);
    let promoted = std::thread::scope(|scope| {
        let promoted = scope.spawn(|| promote(&standby.standby, &PromoteOptions::default()));
        // It waits for that.
        toy.gate(Some(64 * 7));
        until("some of it is regenerated", || standby.log.end() == Stamp(64 * 7));
        toy.gate(None);
        promoted.join().unwrap().unwrap()
    });
    assert_eq!((promoted.start, standby.tape.replayed(), standby.log.bytes()), (end, end, bytes));
}

#[test]
fn what_another_reign_lacks_is_taken_back_before_it_is_regenerated() {
    let (first, _) = encoding(Safety::OneSafe, 0);
    let primary = PrimaryNode::first(first);
    let (standby, toy) = below(&primary);
    let common = primary.write(&[64; 5]);
    standby.shows(common);
    let other = StandbyNode::empty(3, &primary.address());
    other.joined();
    other.shows(common);
    // The other one gets no more of it.
    let (log, terms) = (Arc::clone(&other.log), other.terms.clone());
    drop(other);
    toy.gate(Some(common.0));
    let lost = primary.write(&[64; 6]);
    until("it has arrived", || standby.standby.status().arrived == lost);
    drop(primary);
    let other = StandbyNode::resume(freshet_base::NodeId(3), None, StandbyConfig::default(), log, terms);
    let options = PromoteOptions { force: true, ..PromoteOptions::default() };
    let promoted = promote(&other.standby, &options).unwrap();
    assert_eq!(promoted.start, common);
    let (log, terms) = (Arc::clone(&other.log), other.terms.clone());
    drop(other);
    log.promote(promoted.term);
    let (config, _) = encoding(Safety::VerySafe, 0);
    let primary = PrimaryNode::reign(open(3), freshet_base::NodeId(3), config, log, terms);
    standby.standby.follow(&primary.address());
    let end = primary.write(&[72; 20]);
    primary.commits(end);
    toy.gate(None);
    standby.shows(end);
    assert_eq!(standby.log.bytes(), primary.log.bytes());
    // Nor is it there after a restart.
    let (log, terms) = (Arc::clone(&standby.log), standby.terms.clone());
    drop(standby);
    let standby = StandbyNode::resume(freshet_base::NodeId(2), None, asking(), log, terms);
    assert_eq!((standby.log.end(), standby.standby.status().arrived), (end, end));
}
