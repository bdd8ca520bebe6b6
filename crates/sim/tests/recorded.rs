//! What is recorded of a run is decided again: the machines have neither clock nor chance.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use freshet_cluster::recording::{Record, Recorder, Replay, State, Tape, What};
use freshet_sim::{Scenario, record, shapes::Group};

/// Records as a node writes them into its file; it begins again now and then.
#[derive(Default)]
struct Encoded {
    records: Mutex<Vec<Vec<u8>>>,
    machines: AtomicU64,
}

/// After this number of records it begins again.
const AGAIN: usize = 3000;

impl Tape for Encoded {
    fn next_machine(&self) -> u64 {
        self.machines.fetch_add(1, Ordering::SeqCst)
    }

    fn generation(&self) -> u64 {
        (self.records.lock().unwrap().len() / AGAIN) as u64
    }

    fn record(&self, record: &Record) {
        self.records.lock().unwrap().push(postcard::to_stdvec(record).unwrap());
    }
}

/// Records a run, and replays it. Returns how many events were replayed, and what kinds of machines
/// there were.
fn replayed(scenario: Scenario, seed: u64) -> (usize, [bool; 7]) {
    let tape = Arc::new(Encoded::default());
    let outcome = record(scenario, seed, &Recorder::new(tape.clone()));
    assert!(outcome.is_ok(), "{scenario:?}, seed {seed}: {outcome:?}");
    let (mut replay, mut count, mut kinds) = (Replay::default(), 0, [false; 7]);
    for bytes in tape.records.lock().unwrap().iter() {
        let record: Record = postcard::from_bytes(bytes).unwrap();
        if let What::State(state) = &record.what {
            let kind = match state {
                State::Rule(_) => 0,
                State::Host(_) => 1,
                State::Follower(_) => 2,
                State::Mirror(_) => 3,
                State::Feed(_) => 4,
                State::Promotion(_) => 5,
                State::Upstream(_) => 6,
            };
            kinds[kind] = true;
        }
        let step = replay.step(&record).unwrap_or_else(|why| panic!("{scenario:?}, seed {seed}: {why}"));
        assert!(step || matches!(record.what, What::State(_)), "{scenario:?}, seed {seed}: {record:?}");
        count += usize::from(matches!(record.what, What::Event(_)));
    }
    (count, kinds)
}

#[test]
fn machines_decide_again_what_they_decided() {
    let (mut total, mut candidates) = (0, 0);
    for scenario in Group::ALL.into_iter().flat_map(Group::shapes) {
        let mut mirrors = [false; 2];
        for seed in 20_171..20_174 {
            let (count, kinds) = replayed(scenario, seed);
            assert_eq!(kinds[..3], [true; 3], "{scenario:?}, seed {seed}");
            let has_mirrors = scenario.of(seed).mirrors > 0;
            assert!(has_mirrors == kinds[3] && (has_mirrors || !kinds[4]), "{scenario:?}, seed {seed}");
            mirrors = [mirrors[0] || has_mirrors, mirrors[1] || kinds[4]];
            total += count;
            candidates += u32::from(kinds[5]);
        }
        // An operator may remove a mirror before it was fed.
        assert_eq!(mirrors[0], mirrors[1], "{scenario:?}");
    }
    assert!(total > 100_000, "{total} events");
    assert!(candidates > 50, "{candidates} runs with candidates");
}
