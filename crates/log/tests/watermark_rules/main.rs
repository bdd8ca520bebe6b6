//! The rules by which the log says how far it is durable, as models that are explored from end to
//! end: every order of steps, with any worker or logger standing still for as long as it likes, and
//! a crash after each step that keeps any of what was not synced. Whatever was announced must
//! survive, and what is found must be a prefix of the LSN order.
//!
//! Blocks have length one, so LSNs are 0, 1, 2, ... Two workers, two streams, three or four
//! blocks. An action is one access to shared memory, one critical section, or one operation on the
//! medium:
//!
//! | action | in the code |
//! |---|---|
//! | `check`, `load`, `publish`, `reserve` | `Writer::reserve`: `check_open`, then `Bounds::take` (steps 1 and 2) |
//! | `fill`, `clear` | `Reservation::put`: `LogBuffer::write`, then `Bounds::clear` (step 4) |
//! | `look`, `look at ..` | `Bounds::filled`: `reserved` first, then one bound after the other |
//! | `deal` | `Runs::take`: deals out what is filled, takes the logger's share |
//! | `write`, `sync` | `Core::flush_share`: `SegmentStore::append`, `SegmentStore::sync` |
//! | `announce` | `Runs::durable`: the minimum over the streams, and what to note |
//! | `announce` | `Watcher::durable`: `Watermark::advance`, from where tickets resolve |
//! | `note` | `SegmentStore::note`, without a sync |
//! | `end epoch` | `Epochs::end` by the thread `log-epoch` |
//! | `persist`, `write epoch`, `sync epoch` | `Epochs::persist` under its lock; `PersistentEpochFile::persist` |
//! | `close ..`, `exit` | `Log::close`, `Shared::end`, `Epochs::close`; the end of `GroupCommit::go` |
//! | `settle`, `copy`, `leave open` | `Reservation::put_persistently`: `Passive::settle`, `LogBuffer::write`, `Passive::leave_open` |
//! | `force_fence ..`, `barrier`, `clean ..` | `Passive::force_fence` by `membarrier`; `handler` is that by signal |
//! | the crash | `store::settle`, or `recover_buffer`, and what continues behind it |
//!
//! Left out: the ring's room, lengths of blocks, terms, replication. The loom models in
//! `src/model.rs` have the orderings of single accesses, which are taken for sequentially
//! consistent here.
//!
//! Each mutant breaks one rule, and is caught.

mod explore;
mod files;
mod passive;

use explore::explore;
use files::{Files, Kind};
use passive::Passive;

/// Fails with the way there when something is wrong; says how many states there were.
fn holds(name: &str, model: &impl explore::Model) {
    let begun = std::time::Instant::now();
    match explore(model) {
        Ok(states) => println!("{name}: {states} states, {:.1?}", begun.elapsed()),
        Err(trace) => panic!("{name}: {trace}"),
    }
}

/// Fails when nothing is found to be wrong, or something else.
fn caught(name: &str, model: &impl explore::Model, text: &str) {
    match explore(model) {
        Ok(states) => panic!("{name} was not caught in {states} states"),
        Err(trace) => {
            assert!(trace.lines().next().is_some_and(|line| line.contains(text)), "{name}: {trace}");
            println!("{name}: {}", trace.lines().next().unwrap_or_default());
        }
    }
}

const PIPELINED: Files =
    Files { kind: Kind::Pipelined, blocks: 3, pages: false, lives: 1, close: false, fine: false, mutant: None };

const PASSIVE: Passive = Passive { blocks: 3, lives: 1, signals: false, lookers: 1, fine: false, mutant: None };

#[test]
fn pipelined_group_commit_of_several_streams() {
    holds("two blocks, fine", &Files { fine: true, blocks: 2, ..PIPELINED });
    holds("four blocks", &Files { blocks: 4, ..PIPELINED });
    holds("three blocks by page", &Files { pages: true, ..PIPELINED });
}

#[test]
fn a_second_life_takes_nothing_of_the_first_for_its_own() {
    holds("two lives", &Files { lives: 2, ..PIPELINED });
    holds("two lives by page", &Files { lives: 2, blocks: 2, pages: true, ..PIPELINED });
    holds("two lives by epochs", &Files { lives: 2, blocks: 2, kind: Kind::Epoch, ..PIPELINED });
}

#[test]
fn group_commit_by_epochs() {
    holds("three blocks", &Files { kind: Kind::Epoch, ..PIPELINED });
}

#[test]
fn a_close_that_meets_workers() {
    for kind in [Kind::Pipelined, Kind::Epoch] {
        holds("close", &Files { kind, blocks: 2, close: true, ..PIPELINED });
    }
}

#[test]
fn passive_group_commit() {
    for signals in [false, true] {
        holds("three blocks, fine", &Passive { signals, fine: true, ..PASSIVE });
        // A barrier at any time multiplies states.
        let blocks = if signals { 3 } else { 2 };
        holds("two who look", &Passive { signals, lookers: 2, blocks, ..PASSIVE });
        holds("two lives", &Passive { signals, lives: 2, ..PASSIVE });
    }
}

#[test]
fn every_broken_rule_is_noticed() {
    use files::Mutant as M;
    for (mutant, text) in [
        (M::BoundAfterReserve, "was not filled"),
        (M::BoundsBeforeReserved, "was not filled"),
        (M::ClearBeforeFill, "was not filled"),
        (M::GreatestOfStreams, "was announced"),
        (M::AtWorkIsIdle, "was announced"),
        (M::AnnounceBeforeSync, "was announced"),
        (M::NoteBeforeSync, "damage"),
        (M::OwnBoundForAnchor, "is missing below"),
        (M::GapsSkipped, "is missing below"),
    ] {
        caught(&format!("{mutant:?}"), &Files { mutant: Some(mutant), fine: true, ..PIPELINED }, text);
    }
    let half = Files { mutant: Some(M::HalfTransactions), pages: true, blocks: 3, ..PIPELINED };
    caught("HalfTransactions", &half, "half a transaction");
    let uncut = Files { mutant: Some(M::NothingIsCut), lives: 2, blocks: 3, ..PIPELINED };
    caught("NothingIsCut", &uncut, "of an earlier life");
    for mutant in [M::FoundNotSynced, M::FoundNotRewritten] {
        let found = Files { mutant: Some(mutant), lives: 2, blocks: 2, ..PIPELINED };
        caught(&format!("{mutant:?}"), &found, "was announced");
    }
    let epoch = Files { kind: Kind::Epoch, blocks: 2, ..PIPELINED };
    caught("EpochBeforeItsSync", &Files { mutant: Some(M::EpochBeforeItsSync), ..epoch }, "was announced");
    caught("EpochOfOneStream", &Files { mutant: Some(M::GreatestOfStreams), ..epoch }, "is missing below");
    for (kind, text) in [(Kind::Pipelined, "was announced"), (Kind::Epoch, "damage")] {
        let close = Files { kind, blocks: 2, close: true, mutant: Some(M::CloseToReserved), ..PIPELINED };
        caught("CloseToReserved", &close, text);
    }
}

#[test]
fn every_broken_rule_of_passive_group_commit_is_noticed() {
    use passive::Mutant as M;
    for mutant in
        [M::StragglersIgnored, M::SlotsBeforeBounds, M::OpenAfterClear, M::CleanWithoutBarrier, M::CleanWhateverIsThere]
    {
        let model = Passive { fine: true, mutant: Some(mutant), ..PASSIVE };
        caught(&format!("{mutant:?}"), &model, "was announced");
    }
    let uncleared = Passive { blocks: 2, lives: 2, mutant: Some(M::RingNotCleared), ..PASSIVE };
    caught("RingNotCleared", &uncleared, "of an earlier life");
}
