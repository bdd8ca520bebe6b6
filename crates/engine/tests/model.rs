//! Random sequences of operations of several interleaved transactions in one thread, against a
//! reference that keeps every committed state.
//!
//! What a transaction reads must be just what the state at its snapshot and its own writes say.
//! What it writes must succeed just when nobody else holds one of the keys or has written one since
//! the snapshot. A serializable transaction that commits must have seen what it would see at its
//! LSN.

mod items;

use std::{collections::BTreeSet, time::SystemTime};

use freshet_engine::{CommitError, Isolation, Lsn};
use items::{
    Item, Txn, World,
    operation::{Operation, Outcome, State},
};
use proptest::{
    prelude::*,
    test_runner::{RngSeed, TestRunner},
};

const WORKERS: usize = 3;
const KEYS: u64 = 6;

#[derive(Clone, Debug)]
enum Step {
    Do(usize, Operation),
    Commit(usize),
    Abort(usize),
    Collect,
}

fn step() -> impl Strategy<Value = Step> {
    let draws = prop::collection::vec(any::<u64>(), 10);
    let operation = draws.prop_map(|draws| {
        let mut draws = draws.into_iter();
        Operation::draw(|limit| draws.next().expect("enough") % limit, KEYS)
    });
    prop_oneof![
        12 => (0..WORKERS, operation).prop_map(|(worker, operation)| Step::Do(worker, operation)),
        2 => (0..WORKERS).prop_map(Step::Commit),
        1 => (0..WORKERS).prop_map(Step::Abort),
        1 => Just(Step::Collect),
    ]
}

/// A key in one of the unique indexes: of the ids or of the names.
type Key = (usize, u64);

fn keys(item: Item) -> [Key; 2] {
    [(items::BY_ID, item.id), (items::BY_NAME, item.name)]
}

/// A running transaction and what the reference knows of it.
struct Running<'w> {
    txn: Txn<'w>,
    level: Isolation,
    /// The snapshot and its own writes.
    view: State,
    /// Keys of the committed records that it has written.
    taken: BTreeSet<Key>,
    /// Ids of the records that it has made, and not taken away.
    made: BTreeSet<u64>,
    steps: Vec<(Operation, Outcome)>,
}

impl Running<'_> {
    /// The keys that it keeps others from.
    fn held(&self) -> BTreeSet<Key> {
        let made = self.made.iter().flat_map(|id| keys(self.view[id]));
        self.taken.iter().copied().chain(made).collect()
    }

    /// Notes what `operation` is about to do to the record `id`, which is visible: whether it goes,
    /// and what comes.
    fn note(&mut self, id: u64, goes: bool, comes: Option<u64>) {
        let was_made = if goes { self.made.remove(&id) } else { self.made.contains(&id) };
        if !was_made {
            self.taken.extend(keys(self.view[&id]));
        }
        self.made.extend(comes);
    }

    fn note_write(&mut self, operation: &Operation) {
        match *operation {
            Operation::Insert(item) => {
                self.made.insert(item.id);
            }
            Operation::Set { id, .. } => self.note(id, false, None),
            Operation::Delete(id) => self.note(id, true, None),
            Operation::Update { id, item } => {
                let old = self.view[&id];
                let moves = (old.id, old.name, old.group) != (item.id, item.name, item.group);
                self.note(id, moves, moves.then_some(item.id));
            }
            _ => unreachable!("it writes"),
        }
    }

    /// The keys that `operation` needs for itself.
    fn needs(&self, operation: &Operation) -> Vec<Key> {
        match *operation {
            Operation::Insert(item) => keys(item).to_vec(),
            Operation::Set { id, .. } | Operation::Delete(id) => vec![(items::BY_ID, id)],
            Operation::Update { id, item } => {
                let old = self.view.get(&id).map_or(vec![], |old| keys(*old).to_vec());
                let new = keys(item).into_iter().filter(|key| !old.contains(key));
                new.chain([(items::BY_ID, id)]).collect()
            }
            _ => vec![],
        }
    }
}

struct Reference {
    /// Every committed state, with the LSN of the transaction that made it.
    states: Vec<(Lsn, State)>,
    /// The keys that each committed transaction held.
    commits: Vec<(Lsn, BTreeSet<Key>)>,
}

impl Reference {
    fn at(&self, snapshot: Lsn) -> State {
        let seen = self.states.partition_point(|(lsn, _)| *lsn < snapshot);
        self.states[seen - 1].1.clone()
    }

    fn changed_since(&self, snapshot: Lsn, key: Key) -> bool {
        self.commits.iter().any(|(lsn, keys)| *lsn >= snapshot && keys.contains(&key))
    }
}

fn perform(running: &mut Running<'_>, others: &BTreeSet<Key>, reference: &Reference, operation: Operation) {
    let snapshot = running.txn.inner.snapshot();
    let needs = running.needs(&operation);
    let own = running.held();
    let contested =
        needs.iter().any(|key| others.contains(key) || !own.contains(key) && reference.changed_since(snapshot, *key));
    let mut after = running.view.clone();
    let expected = operation.apply(&mut after);
    let outcome = operation.run(&running.txn);
    match &outcome {
        Outcome::Done => {
            assert_eq!(expected, Outcome::Done, "{operation:?}");
            assert!(!contested, "{operation:?} went past another transaction");
            running.note_write(&operation);
            running.view = after;
        }
        Outcome::Conflict => assert!(contested, "{operation:?} met a conflict with nobody"),
        Outcome::Taken(_) if outcome != expected => {
            assert!(contested && running.level == Isolation::Snapshot, "{operation:?}: {outcome:?}, not {expected:?}");
        }
        _ => assert_eq!(outcome, expected, "{operation:?} at {snapshot}"),
    }
    running.steps.push((operation, outcome));
}

fn commit(running: Running<'_>, reference: &mut Reference) {
    let snapshot = running.txn.inner.snapshot();
    let held = running.held();
    let Running { txn, level, view, steps, .. } = running;
    let latest = reference.states.last().expect("the first").1.clone();
    match txn.commit() {
        Ok(ticket) => {
            let Some(lsn) = ticket.lsn else {
                assert!(held.is_empty(), "it wrote {held:?}");
                return;
            };
            assert!(lsn >= snapshot);
            let mut state = latest.clone();
            if level == Isolation::Serializable {
                for (operation, outcome) in steps.iter().filter(|(_, outcome)| *outcome != Outcome::Conflict) {
                    assert_eq!(operation.apply(&mut state), *outcome, "{operation:?} at {lsn} in {steps:?}");
                }
            } else {
                // First updater wins: what it wrote is as it saw it, so its writes can be carried
                // over.
                let seen = reference.at(snapshot);
                state.retain(|id, _| view.contains_key(id) || !seen.contains_key(id));
                state
                    .extend(view.iter().filter(|(id, item)| seen.get(id) != Some(item)).map(|(id, item)| (*id, *item)));
            }
            reference.commits.push((lsn, held));
            reference.states.push((lsn, state));
        }
        Err(CommitError::ReadChanged | CommitError::Phantom) => {
            assert_eq!(level, Isolation::Serializable);
            assert!(reference.commits.iter().any(|(lsn, _)| *lsn >= snapshot), "refused for the sake of nobody");
        }
        Err(error) => panic!("{error}"),
    }
}

fn check(levels: &[Isolation], steps: Vec<Step>) {
    let first: State = (0..KEYS / 2).map(|id| (id, Item::plain(id, 0))).collect();
    let world = World::new(WORKERS + 1, first.values().copied());
    let mut reference = Reference { states: vec![(Lsn::ZERO, first)], commits: Vec::new() };
    let mut running: Vec<Option<Running<'_>>> = (0..WORKERS).map(|_| None).collect();
    for step in steps {
        match step {
            Step::Do(worker, operation) => {
                let others = running.iter().enumerate().filter(|(other, _)| *other != worker);
                let others = others.filter_map(|(_, other)| other.as_ref()).flat_map(Running::held).collect();
                let mine = running[worker].get_or_insert_with(|| {
                    let txn = world.begin(worker, levels[worker]);
                    Running {
                        view: reference.at(txn.inner.snapshot()),
                        txn,
                        level: levels[worker],
                        taken: BTreeSet::new(),
                        made: BTreeSet::new(),
                        steps: Vec::new(),
                    }
                });
                perform(mine, &others, &reference, operation);
            }
            Step::Commit(worker) => {
                if let Some(mine) = running[worker].take() {
                    commit(mine, &mut reference);
                }
            }
            Step::Abort(worker) => drop(running[worker].take()),
            Step::Collect => world.workers[WORKERS].collect_garbage(),
        }
    }
    drop(running);
    let state = &reference.states.last().expect("the first").1;
    assert_eq!(world.read(0).all(), state.values().copied().collect::<Vec<_>>());
    for worker in &world.workers {
        worker.collect_garbage();
    }
    let entries: Vec<_> = world.indexes().iter().map(|index| index.entries).collect();
    assert_eq!(entries, [state.len() as u64; 3], "no index entry is left behind");
}

/// `FRESHET_SEED` repeats a run.
fn seed() -> u64 {
    let seed = std::env::var("FRESHET_SEED").ok().map_or_else(
        || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64,
        |seed| seed.parse().expect("FRESHET_SEED is a number"),
    );
    println!("FRESHET_SEED={seed}");
    seed
}

#[test]
fn interleaved_transactions_keep_to_the_reference() {
    let config = ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().map_or(64, |cases| cases.parse().expect("a number")),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed()),
        ..ProptestConfig::default()
    };
    let level = prop_oneof![1 => Just(Isolation::Snapshot), 2 => Just(Isolation::Serializable)];
    let levels = prop::collection::vec(level, WORKERS);
    let steps = prop::collection::vec(step(), 1..800);
    let result = TestRunner::new(config).run(&(levels, steps), |(levels, steps)| {
        check(&levels, steps);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
