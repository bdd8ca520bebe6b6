//! The anomalies that isolation levels allow, each as a history: executed again, the transactions
//! read what they have read, and so write what they have written.

use freshet_base::{Certifier, Isolation, Lsn};
use freshet_txn::{Direction, Inputs};

use crate::{
    primary::Scene,
    program::{Program, Step},
    standby::Standby,
};

const SNAPSHOT: Isolation = Isolation::Snapshot;
const X: u64 = 1;
const Y: u64 = 2;

/// Runs the programs, whose steps and commits follow one another as `schedule` names the programs,
/// and executes those that have committed again, last to first. As many commit as `committed` says.
fn history(programs: &[Program], schedule: &[usize], committed: usize) {
    history_under(Certifier::Validation, programs, schedule, committed);
}

fn history_under(certifier: Certifier, programs: &[Program], schedule: &[usize], committed: usize) {
    let scene = Scene::new(programs.len(), &[(X, X, 0), (Y, Y, 0)], certifier);
    // Those that are under way, in the order in which the scene keeps them.
    let mut running: Vec<usize> = (0..programs.len()).collect();
    let mut left: Vec<usize> = programs.iter().map(|program| program.steps.len()).collect();
    let mut schedule = schedule.iter();
    let counted = scene.run(0, programs, |count| {
        assert_eq!(count, running.len(), "no transaction loses a race but at its commit");
        let program = *schedule.next().expect("the schedule names all steps and commits");
        let place = running.iter().position(|there| *there == program).expect("it is not over");
        match left[program].checked_sub(1) {
            Some(fewer) => left[program] = fewer,
            None => drop(running.swap_remove(place)),
        }
        place
    });
    assert_eq!((counted, schedule.next()), (committed, None));
    let mut standby = Standby::new(scene.log(), programs.len() + 1);
    let holder = standby.core().participants.join().unwrap();
    let (_guard, _) = holder.pin(|| Lsn::ZERO);
    standby.batch(programs, programs.len(), |order| order.reverse());
    assert_eq!((standby.tally.executed, standby.tally.kept), (committed, programs.len() - committed));
}

#[test]
fn write_skew() {
    let one = Program::new(SNAPSHOT, [Step::Get(X), Step::Get(Y), Step::Change(X)]);
    let other = Program::new(SNAPSHOT, [Step::Get(X), Step::Get(Y), Step::Change(Y)]);
    history(&[one, other], &[0, 0, 1, 1, 0, 1, 0, 1], 2);
}

#[test]
fn write_skew_between_serializable_transactions() {
    // The second one fails, and leaves a skip block.
    let one = Program::new(Isolation::Serializable, [Step::Get(X), Step::Get(Y), Step::Change(X)]);
    let other = Program::new(Isolation::Serializable, [Step::Get(X), Step::Get(Y), Step::Change(Y)]);
    history(&[one, other], &[0, 0, 1, 1, 0, 1, 0, 1], 1);
}

#[test]
fn one_that_commits_back_in_time() {
    // It writes what it has made of the old X, after the new one: with a larger LSN.
    let reader = Program::new(Isolation::Serializable, [Step::Get(X), Step::Change(Y)]);
    let writer = Program::new(Isolation::Serializable, [Step::Change(X)]);
    for (certifier, committed) in [(Certifier::Validation, 1), (Certifier::Ssn, 2)] {
        history_under(certifier, &[reader.clone(), writer.clone()], &[0, 1, 1, 0, 0], committed);
    }
}

#[test]
fn only_validation_makes_a_transaction_what_it_would_be_at_its_lsn() {
    for (certifier, is_serial) in [(Certifier::Validation, true), (Certifier::Ssn, false)] {
        for (isolation, serial) in [(Isolation::Serializable, is_serial), (SNAPSHOT, false)] {
            let scene = Scene::new(1, &[(X, X, 0)], certifier);
            assert_eq!(scene.run(0, &[Program::new(isolation, [Step::Change(X)])], |_| 0), 1);
            let (_, logged) = scene.log();
            let block = logged.last().unwrap().block();
            assert_eq!(Inputs::decode(block.inputs().unwrap()).unwrap().serial, serial, "{isolation}, {certifier}");
        }
    }
}

#[test]
fn one_that_commits_back_in_time_before_another_one() {
    let third = Program::new(Isolation::Serializable, [Step::Get(Y), Step::Insert(9, 9, 1)]);
    let group = Step::Group(7, Direction::Forward);
    let second = Program::new(Isolation::Serializable, [Step::Get(X), group, Step::Change(Y)]);
    let first = Program::new(Isolation::Serializable, [Step::Change(X), Step::Insert(3, 3, 7)]);
    history_under(Certifier::Ssn, &[third, second, first], &[0, 1, 1, 2, 2, 2, 1, 1, 0, 0], 3);
}

#[test]
fn a_lost_update() {
    // What was read before the refresh is written after it.
    let one = Program::new(SNAPSHOT, [Step::Get(X), Step::Refresh, Step::Change(X)]);
    let other = Program::new(SNAPSHOT, [Step::Get(X), Step::Change(X)]);
    history(&[one, other], &[0, 1, 1, 1, 0, 0, 0], 2);
}

#[test]
fn read_skew() {
    // X of before the other transaction, Y of after it.
    let reader = Program::new(SNAPSHOT, [Step::Get(X), Step::Refresh, Step::Get(Y), Step::Insert(9, 9, 1)]);
    let writer = Program::new(SNAPSHOT, [Step::Change(X), Step::Change(Y)]);
    history(&[reader, writer], &[0, 1, 1, 1, 0, 0, 0, 0], 2);
}

#[test]
fn a_phantom() {
    let all = Step::Range(0, 100, usize::MAX);
    let reader = Program::new(SNAPSHOT, [all, Step::Refresh, all, Step::Change(Y)]);
    let writer = Program::new(SNAPSHOT, [Step::Insert(3, 3, 0), Step::Delete(X)]);
    history(&[reader, writer], &[0, 1, 1, 1, 0, 0, 0, 0], 2);
}

#[test]
fn a_read_only_transactions_anomaly() {
    // The batch is closed, the receipt is dated by what was read before, the report sees one of
    // them; all three write what they have read.
    let receipt = Program::new(SNAPSHOT, [Step::Get(Y), Step::Change(X)]);
    let batch = Program::new(SNAPSHOT, [Step::Change(Y)]);
    let report = Program::new(SNAPSHOT, [Step::Refresh, Step::Get(X), Step::Get(Y), Step::Insert(9, 9, 1)]);
    history(&[receipt, batch, report], &[0, 1, 1, 2, 2, 2, 2, 2, 0, 0], 3);
}

#[test]
fn a_key_that_moves_around() {
    // Ids are exchanged by way of a third one, in transactions that see each other's.
    let programs = [
        Program::new(SNAPSHOT, [Step::Refresh, Step::Renumber(X, 7)]),
        Program::new(SNAPSHOT, [Step::Refresh, Step::Renumber(Y, X), Step::Get(X)]),
        Program::new(SNAPSHOT, [Step::Refresh, Step::Renumber(7, Y), Step::Group(0, Direction::Forward)]),
    ];
    history(&programs, &[0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2], 3);
}

#[test]
fn an_insertion_that_is_refused_and_one_that_is_not() {
    let programs = [
        Program::new(SNAPSHOT, [Step::Insert(X, 50, 0), Step::Insert(3, 3, 0), Step::Upsert(Y, 70, 0)]),
        Program::new(SNAPSHOT, [Step::Refresh, Step::Insert(4, 3, 0), Step::Insert(4, 4, 0), Step::Upsert(3, 8, 1)]),
    ];
    history(&programs, &[0, 0, 0, 0, 1, 1, 1, 1, 1], 2);
}
