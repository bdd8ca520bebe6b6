//! Every rule that is got wrong is noticed, by its name; or the checks would be worth nothing.

mod common;

use common::caught;
use freshet_base::Safety;
use freshet_sim::{Broken, Property, Scenario};

const SEEDS: u64 = 200;
const LEVELS: [Safety; 3] = [Safety::TwoSafe, Safety::VerySafe, Safety::Quorum(2)];

#[test]
fn an_acknowledgement_before_persistence() {
    for safety in LEVELS {
        let violation = caught(
            Broken::AckBeforePersist,
            Scenario::new(safety, 2),
            &[Property::Acknowledged, Property::InSync],
            SEEDS,
        );
        println!("{safety}: {violation}");
    }
}

#[test]
fn a_commit_before_persistence() {
    for safety in [Safety::OneSafe, Safety::Quorum(2)] {
        caught(Broken::CommitBeforePersist, Scenario::new(safety, 2), &[Property::Acknowledged], SEEDS);
    }
}

#[test]
fn a_view_ahead_of_persistence() {
    for safety in LEVELS {
        caught(Broken::ViewAheadOfPersistence, Scenario::new(safety, 2), &[Property::Views], SEEDS);
        caught(Broken::ViewAheadOfOthers, Scenario::new(safety, 2), &[Property::Views, Property::Acknowledged], SEEDS);
    }
}

#[test]
fn a_view_of_half_a_transaction() {
    caught(Broken::ViewWithinTransactions, Scenario::new(Safety::TwoSafe, 1), &[Property::Views], SEEDS);
}

#[test]
fn a_batch_of_an_old_term() {
    // Under very safe the candidate itself is missed.
    for safety in [Safety::TwoSafe, Safety::Quorum(2)] {
        let seen = [
            Property::Acknowledged,
            Property::OnePrimary,
            Property::InSync,
            Property::Logs,
            Property::Views,
            Property::Reads,
        ];
        let violation = caught(Broken::OldTermAccepted, Scenario { floor: 1, ..Scenario::new(safety, 2) }, &seen, 8000);
        println!("{safety}: {violation}");
    }
}

#[test]
fn a_change_of_the_in_sync_set_without_a_record() {
    let scenario = Scenario { floor: 1, ..Scenario::new(Safety::TwoSafe, 3) };
    let seen = [Property::InSync, Property::Acknowledged, Property::Successor];
    let violation = caught(Broken::SetNotRecorded, scenario, &seen, 1000);
    println!("{violation}");
}

/// Members of the set before that have not noted it take over without it.
#[test]
fn a_set_that_has_not_met_the_one_before() {
    for floor in 1..=2 {
        let scenario = Scenario { floor, ..Scenario::new(Safety::TwoSafe, 1 + floor as usize) };
        let seen = [Property::InSync, Property::Acknowledged, Property::Views, Property::OnePrimary, Property::Logs];
        let violation = caught(Broken::SetNotJoint, scenario, &seen, SEEDS);
        println!("floor {floor}: {violation}");
    }
}

#[test]
fn a_set_that_is_taken_for_the_newest() {
    for standbys in 1..=2 {
        let scenario = Scenario::new(Safety::TwoSafe, standbys);
        let seen = [Property::InSync, Property::Acknowledged, Property::Views];
        let violation = caught(Broken::SetTakenForNewest, scenario, &seen, SEEDS);
        println!("{violation}");
    }
}

#[test]
fn a_commit_that_waits_for_the_quickest_only() {
    for safety in [Safety::VerySafe, Safety::Quorum(3)] {
        caught(Broken::QuickestOnly, Scenario::new(safety, 3), &[Property::Acknowledged], SEEDS);
    }
}

#[test]
fn a_ring_that_is_overrun() {
    for safety in LEVELS {
        caught(Broken::CreditIgnored, Scenario::new(safety, 2), &[Property::Logs], SEEDS);
    }
}

#[test]
fn a_tail_that_is_kept_at_a_rejoin() {
    for safety in LEVELS {
        caught(Broken::CutForgotten, Scenario::new(safety, 2), &[Property::Logs], SEEDS);
    }
}

/// What is committed is with the other.
#[test]
fn a_candidate_with_less_of_the_log() {
    for safety in [Safety::Quorum(2), Safety::Majority] {
        for automatic in [false, true] {
            let scenario = Scenario { automatic, ..Scenario::new(safety, 2) };
            let seen = [Property::Acknowledged, Property::InSync, Property::Views, Property::Logs];
            let violation = caught(Broken::LessLogLeads, scenario, &seen, SEEDS);
            println!("{safety}, automatic {automatic}: {violation}");
        }
    }
}

#[test]
fn a_restart_without_asking() {
    for safety in [Safety::Quorum(2), Safety::Quorum(3)] {
        // Or they take the term from one another for ever.
        let seen = [Property::Acknowledged, Property::OnePrimary, Property::Views, Property::Progress];
        let violation = caught(Broken::RestartUnasked, Scenario::new(safety, 3), &seen, SEEDS);
        println!("{safety}: {violation}");
    }
}

/// A node that was told of a living term promises itself all the same.
#[test]
fn a_term_that_is_taken_back() {
    for safety in [Safety::Quorum(2), Safety::TwoSafe, Safety::VerySafe] {
        let violation = caught(Broken::PrimaryPassedOver, Scenario::new(safety, 2), &[Property::TakenBack], SEEDS);
        println!("{safety}: {violation}");
    }
}

/// All nodes are up, and each waits for another.
#[test]
fn nobody_who_comes_back() {
    for safety in [Safety::Quorum(2), Safety::VerySafe] {
        let violation = caught(Broken::PromiseForgotten, Scenario::new(safety, 2), &[Property::Progress], 5000);
        println!("{safety}: {violation}");
    }
}

/// Two terms of one number were promised, and no node begins a later one.
#[test]
fn a_term_that_stays_contested() {
    let scenario = Scenario { automatic: true, levels: true, ..Scenario::new(Safety::Quorum(2), 2) };
    println!("{}", caught(Broken::ContestKept, scenario, &[Property::Progress], 20_000));
}

#[test]
fn a_format_level_that_not_all_know() {
    let scenario = Scenario { levels: true, ..Scenario::new(Safety::Majority, 2) };
    println!("{}", caught(Broken::RaisedTooEarly, scenario, &[Property::Format], SEEDS));
}

#[test]
fn asynchronous_standbys_that_count() {
    for safety in [Safety::Quorum(2), Safety::VerySafe] {
        let scenario = Scenario { asynchronous: 1, ..Scenario::new(safety, 2) };
        caught(Broken::AsynchronousCounted, scenario, &[Property::Acknowledged], SEEDS);
    }
}

#[test]
fn a_tail_that_is_taken_for_committed() {
    for scenario in [Scenario::new(Safety::VerySafe, 2), Scenario::new(Safety::Quorum(3), 4)] {
        let violation =
            caught(Broken::TailTakenForCommitted, scenario, &[Property::Acknowledged, Property::Views], SEEDS);
        println!("{violation}");
    }
}

#[test]
fn two_terms_of_one_number_that_ignore_one_another() {
    let scenario = Scenario::new(Safety::OneSafe, 2);
    println!("{}", caught(Broken::ContestIgnored, scenario, &[Property::Progress], 2000));
}

#[test]
fn a_tail_that_is_not_made_durable_at_a_restart() {
    for safety in LEVELS {
        for broken in [Broken::TailNotSynced, Broken::TailNotRewritten] {
            let seen = [Property::Acknowledged, Property::InSync, Property::Views];
            let violation = caught(broken, Scenario::new(safety, 2), &seen, 1000);
            println!("{safety}, {broken:?}: {violation}");
        }
    }
}

/// A primary has read back what its standby has not taken yet, and has told its clients.
#[test]
fn an_answer_before_the_memory_was_taken_back() {
    for safety in LEVELS {
        let scenario = Scenario { mapped: true, appliance: true, ..Scenario::new(safety, 2) };
        let seen = [Property::Acknowledged, Property::InSync, Property::Views];
        println!("{safety}: {}", caught(Broken::AnsweredBeforeRevoked, scenario, &seen, 10_000));
    }
}

/// A primary that stood still continues, and writes into the log of its successor.
#[test]
fn memory_that_stays_where_it_is_at_a_promotion() {
    for safety in LEVELS {
        let scenario = Scenario { mapped: true, ..Scenario::new(safety, 2) };
        println!("{safety}: {}", caught(Broken::MovedAtJoinOnly, scenario, &[Property::Logs], 8000));
    }
}

/// Another candidate was promised the term, and may lead in it: this one, which led before,
/// no longer knows that it is the last one.
#[test]
fn a_candidate_that_forgets_its_promise() {
    let seen = [
        Property::Acknowledged,
        Property::InSync,
        Property::Views,
        Property::OnePrimary,
        Property::Logs,
        Property::Progress,
    ];
    println!("{}", caught(Broken::OwnPromiseForgotten, Scenario::new(Safety::TwoSafe, 2), &seen, 4000));
}

// Under very safe the candidate itself is missed, whatever it asks for.

#[test]
fn a_promise_that_a_loss_of_power_undoes() {
    for safety in [Safety::TwoSafe, Safety::Quorum(2)] {
        let seen = [Property::Acknowledged, Property::InSync, Property::Views, Property::OnePrimary, Property::Logs];
        println!("{safety}: {}", caught(Broken::PromiseNotDurable, Scenario::new(safety, 2), &seen, 4000));
    }
}

/// A standby shows of one log what was committed of another.
#[test]
fn commits_of_another_log() {
    let scenario = Scenario::new(Safety::OneSafe, 2);
    println!("{}", caught(Broken::CommittedOfAnother, scenario, &[Property::Views], 8000));
}

/// Commits wait for a standby that does not acknowledge to the primary.
#[test]
fn a_leaf_that_stays_behind_its_relay() {
    let scenario = Scenario { cascaded: 2, ..Scenario::new(Safety::TwoSafe, 1) };
    println!("{}", caught(Broken::RelayNotLeft, scenario, &[Property::Progress], 2000));
}

#[test]
fn a_level_that_is_taken_for_one_safe() {
    for safety in [Safety::TwoSafe, Safety::Quorum(2)] {
        let seen = [Property::Acknowledged, Property::InSync, Property::Views];
        println!("{safety}: {}", caught(Broken::LevelForgotten, Scenario::new(safety, 2), &seen, 1000));
    }
}

/// Two mirrors, and one beside a standby with a log.
fn mirrors() -> [Scenario; 2] {
    [2, 1].map(|mirrors| Scenario { mirrors, ..Scenario::new(Safety::TwoSafe, 2) })
}

/// What becomes of mirrors shows in what they hold, in what is acknowledged, or in what others see.
const SEEN: [Property; 4] = [Property::Mirrors, Property::Acknowledged, Property::InSync, Property::Views];

/// A primary that was given up writes on, into memory that was recovered.
#[test]
fn a_mirror_that_its_primary_can_still_write_into() {
    for scenario in mirrors() {
        println!("{}", caught(Broken::MirrorNotMoved, scenario, &SEEN, SEEDS));
    }
}

#[test]
fn undo_entries_that_come_after_the_data() {
    for scenario in mirrors() {
        println!("{}", caught(Broken::UndoBehindData, scenario, &SEEN, SEEDS));
    }
}

/// A row that is long, and was replaced, is written over on a mirror that may come back to it.
#[test]
fn rows_that_are_written_over_on_a_mirror_that_lags() {
    for scenario in mirrors() {
        println!("{}", caught(Broken::WrittenOverEarly, scenario, &SEEN, 2000));
    }
}

#[test]
fn an_undo_ring_of_two_primaries() {
    for scenario in mirrors() {
        println!("{}", caught(Broken::RingNotCleared, scenario, &SEEN, SEEDS));
    }
}

/// A mirror that begins from a checkpoint has other rows before a batch than the others.
#[test]
fn differences_that_were_found_for_another_mirror() {
    println!("{}", caught(Broken::SharedEarly, mirrors()[0], &SEEN, 2000));
}

/// A node was asked, and has lost its disk since.
#[test]
fn a_log_that_is_not_what_was_described() {
    let scenario = Scenario { automatic: true, ..Scenario::new(Safety::Quorum(3), 4) };
    let seen = [Property::Views, Property::Acknowledged, Property::Logs];
    println!("{}", caught(Broken::FetchUnchecked, scenario, &seen, 20_000));
}

#[test]
fn a_promise_while_a_mirror_takes_over() {
    let scenario = Scenario { mirrors: 1, asynchronous: 1, ..Scenario::new(Safety::TwoSafe, 1) };
    let shows = [Property::OnePrimary, Property::InSync, Property::Acknowledged, Property::Reads];
    println!("{}", caught(Broken::PromiseWhileTakingOver, scenario, &shows, 8000));
}

#[test]
fn a_cut_that_a_recovery_takes_back() {
    let scenario = Scenario { mirrors: 1, ..Scenario::new(Safety::Quorum(2), 2) };
    println!("{}", caught(Broken::CutNotSettled, scenario, &[Property::Mirrors, Property::Acknowledged], 3000));
}

/// Standbys that execute what they get, alone, and beside a relay.
fn inputs() -> [Scenario; 2] {
    let with = |it| Scenario { forms: true, ..it };
    let relayed = Scenario { cascaded: 1, asynchronous: 1, ..Scenario::new(Safety::TwoSafe, 2) };
    [with(Scenario::new(Safety::TwoSafe, 1)), with(relayed)]
}

#[test]
fn versions_that_are_given_up_before_they_are_read() {
    println!("{}", caught(Broken::ReclaimedEarly, inputs()[0], &[Property::Content], SEEDS));
}

/// S1: a restart has no versions below its checkpoint, and no indexes that were dropped.
#[test]
fn what_a_restart_cannot_execute() {
    for broken in [Broken::FloorNotRaised, Broken::CheckpointNotWaited] {
        println!("{broken:?}: {}", caught(broken, inputs()[0], &[Property::Content], 5000));
    }
}

/// S2: an index is dropped while a standby lags that still reads by it.
#[test]
fn keys_of_an_index_that_was_dropped() {
    println!("{}", caught(Broken::KeysOfNow, inputs()[0], &[Property::Content], 5000));
}

#[test]
fn what_a_sender_must_not_encode() {
    println!("{}", caught(Broken::ReadsAnything, inputs()[0], &[Property::Content], 5000));
    println!("{}", caught(Broken::RelayGuessesKeys, inputs()[1], &[Property::Content], 20_000));
}

/// D1: the checkpoint comes before the log up to its end.
#[test]
fn a_checkpoint_that_is_no_state_yet() {
    println!("{}", caught(Broken::ExecutedBelowFloor, inputs()[1], &[Property::Content], 5000));
}

/// R1, R12: a node whose disk was lost is counted as if it had what it held.
/// R10: what says so is left of that disk.
#[test]
fn an_answer_of_who_has_lost_its_log() {
    for safety in [Safety::Quorum(2), Safety::TwoSafe] {
        for broken in [Broken::AnyoneVotes, Broken::IncarnationKept] {
            let scenario = Scenario { floor: 1, ..Scenario::new(safety, 2) };
            let seen = [Property::Acknowledged, Property::InSync, Property::Views, Property::Progress];
            println!("{safety}, {broken:?}: {}", caught(broken, scenario, &seen, 2000));
        }
    }
}

/// R2: with an older copy of its disk, too.
#[test]
fn a_primary_that_was_set_back_and_asks_nobody() {
    let scenario = Scenario { floor: 1, ..Scenario::new(Safety::TwoSafe, 2) };
    let seen = [Property::Acknowledged, Property::InSync, Property::Views, Property::OnePrimary, Property::Progress];
    println!("{}", caught(Broken::RestartUnasked, scenario, &seen, 2000));
}

/// R3: a node that was set back, or lost its disk, begins a term that it began before.
#[test]
fn a_term_that_is_begun_twice_under_one_name() {
    println!("{}", caught(Broken::NonceReused, Scenario::new(Safety::OneSafe, 2), &[Property::Logs], 5000));
}

/// R4, D3: it has a certificate, and no log.
#[test]
fn a_node_that_begins_its_cluster_again() {
    let scenario = Scenario::new(Safety::Quorum(2), 2);
    let seen = [Property::Logs, Property::Acknowledged, Property::OnePrimary, Property::Views, Property::Progress];
    println!("{}", caught(Broken::FoundsUnasked, scenario, &seen, 2000));
}

/// S11: a process writes into memory that nobody has any more.
#[test]
fn a_mirror_that_is_dead_and_acknowledges() {
    for scenario in mirrors() {
        println!("{}", caught(Broken::DeadMirrorCounts, scenario, &SEEN, 2000));
    }
}

/// A primary of before may answer readers yet.
#[test]
fn a_lease_that_is_not_awaited() {
    for broken in [Broken::LeaseNotAwaited, Broken::LeaseFromAnswer, Broken::RestartedVoterGrants] {
        // A process that stood still reads late what it was answered.
        let scenario = Scenario { mapped: broken == Broken::LeaseFromAnswer, ..Scenario::new(Safety::Quorum(2), 2) };
        let violation = caught(broken, scenario, &[Property::Reads], 8000);
        println!("{broken:?}: {violation}");
    }
}

/// Others hear the primary.
#[test]
fn a_node_that_stands_unasked() {
    let scenario = Scenario { automatic: true, ..Scenario::new(Safety::Quorum(2), 2) };
    let violation = caught(Broken::MajorityNotAsked, scenario, &[Property::TakenBack], 2000);
    println!("{violation}");
}

/// A primary hands its role over.
#[test]
fn a_switch_over_that_leaves_something_open() {
    for broken in [Broken::GateNotClosed, Broken::OfferNotTakenBack] {
        let violation = caught(broken, Scenario::new(Safety::Quorum(2), 2), &[Property::SwitchOver], 2000);
        println!("{broken:?}: {violation}");
    }
}

/// An operator says that a node is gone, and it is not.
#[test]
fn a_removed_node_that_votes() {
    let scenario = Scenario { removes: true, automatic: true, ..Scenario::new(Safety::Majority, 4) };
    // Or it leads itself, and no member follows it.
    let seen = [Property::InSync, Property::Acknowledged, Property::Progress];
    let violation = caught(Broken::RemovedLives, scenario, &seen, 2000);
    println!("{violation}");
}

/// The set before may be the one that candidates know.
#[test]
fn a_set_that_is_not_on_record_yet() {
    let scenario = Scenario { automatic: true, ..Scenario::new(Safety::Majority, 3) };
    let violation = caught(Broken::PendingUnseen, scenario, &[Property::Successor], 2000);
    println!("{violation}");
}

/// A node that was started again does not know of maintenance, and stands; or one whose primary is
/// lost.
#[test]
fn a_node_that_stands_during_maintenance() {
    for broken in [Broken::MaintenanceUnsaid, Broken::MaintenanceForgotten] {
        let scenario = Scenario { automatic: true, maintenance: true, ..Scenario::new(Safety::Quorum(2), 2) };
        let violation = caught(broken, scenario, &[Property::Maintenance], 2000);
        println!("{broken:?}: {violation}");
    }
}

#[test]
fn a_witness_that_does_not_keep_its_word() {
    let scenario = Scenario { witness: true, automatic: true, ..Scenario::new(Safety::Majority, 1) };
    let seen = [Property::InSync, Property::Acknowledged, Property::OnePrimary, Property::Views, Property::Reads];
    for broken in [Broken::WitnessNotesLate, Broken::WitnessGrantsBoth, Broken::WitnessCountsAsData] {
        let violation = caught(broken, scenario, &seen, 2000);
        println!("{broken:?}: {violation}");
    }
}

#[test]
fn a_register_whose_steps_are_not_what_they_seem() {
    let scenario = Scenario { witness: true, register: true, automatic: true, ..Scenario::new(Safety::Majority, 1) };
    let seen = [Property::InSync, Property::Acknowledged, Property::OnePrimary, Property::Views, Property::Reads];
    for broken in [Broken::RegisterNotCompared, Broken::RegisterNotAwaited, Broken::RegisterGrantsNothing] {
        let violation = caught(broken, scenario, &seen, 4000);
        println!("{broken:?}: {violation}");
    }
}
