//! Random histories of several threads on a few records, recorded and then checked against a sorted
//! map.
//!
//! Serializable: every transaction that committed with writes must have seen just what it sees when
//! all of them run one by one in the order of their LSNs. Snapshot: it must have seen the state
//! at its snapshot and its own writes, and nobody else may have written what it wrote between its
//! snapshot and its LSN. A transaction that wrote nothing has seen the state at its snapshot,
//! at either level.
//!
//! Under the serial safety net, serializable transactions are checked as those at level snapshot,
//! and then the graph of who must come before whom has no cycle. Some transactions are at level
//! snapshot then: what they have read does not count.
//!
//! `FRESHET_SEED` repeats a run (as far as the scheduler does), `FRESHET_STRESS_SECONDS` makes it
//! longer.

mod common;
mod items;

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant, SystemTime},
};

use freshet_engine::{Certifier, Database, Isolation, Lsn, Table};
use items::{
    Item, Txn, World, certified_by,
    graph::{Graph, Node, Written},
    operation::{Operation, Outcome, State},
};

const THREADS: usize = 3;
const KEYS: u64 = 8;
/// Transactions of each thread between two checks.
const ROUND: usize = 400;

/// Marsaglia's xorshift64*, so that a seed means the same everywhere.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}

/// A transaction that committed.
struct Committed {
    snapshot: Lsn,
    /// `None` when it wrote nothing.
    lsn: Option<Lsn>,
    /// Where the log ended when it had committed.
    end: Lsn,
    level: Isolation,
    steps: Vec<(Operation, Outcome)>,
}

impl Committed {
    fn node(&self, written: Written) -> Node<'_> {
        let (serializable, place) = (self.level == Isolation::Serializable, self.lsn.unwrap_or(self.end));
        Node { snapshot: self.snapshot, place, serializable, steps: &self.steps, written }
    }
}

fn transaction(txn: Txn<'_>, random: &mut Random) -> Option<Committed> {
    let snapshot = txn.inner.snapshot();
    let long = random.below(20) == 0;
    let length = 1 + random.below(if long { 30 } else { 5 });
    let mut steps = Vec::new();
    for _ in 0..length {
        let operation = Operation::draw(|limit| random.below(limit), KEYS);
        let outcome = operation.run(&txn);
        // Most give up then; some try something else.
        let lost = outcome == Outcome::Conflict && random.below(3) != 0;
        steps.push((operation, outcome));
        if lost {
            return None;
        }
        // So that there are interleavings on few processors too.
        if random.below(3) == 0 {
            thread::yield_now();
        }
    }
    if random.below(10) == 0 {
        return None;
    }
    commit(txn, snapshot, steps)
}

fn commit(txn: Txn<'_>, snapshot: Lsn, steps: Vec<(Operation, Outcome)>) -> Option<Committed> {
    let level = txn.inner.isolation();
    let snapshots = &txn.inner.worker().core().snapshots;
    let ticket = txn.commit().ok()?;
    Some(Committed { snapshot, lsn: ticket.lsn, end: snapshots.current(), level, steps })
}

fn read_only(txn: Txn<'_>, random: &mut Random, certifier: Certifier) -> Option<Committed> {
    let snapshot = txn.inner.snapshot();
    let mut steps = Vec::new();
    for _ in 0..1 + random.below(8) {
        let operation = Operation::draw(|limit| random.below(limit), KEYS);
        if !operation.is_write() {
            steps.push((operation, operation.run(&txn)));
            thread::yield_now();
        }
    }
    let committed = commit(txn, snapshot, steps);
    assert!(committed.as_ref().map_or(certifier == Certifier::Ssn, |committed| committed.lsn.is_none()));
    committed
}

fn round(database: &Database, table: &Table, level: Isolation, certifier: Certifier, seed: u64) -> Vec<Committed> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS as u64)
            .map(|number| {
                scope.spawn(move || {
                    let mut random = Random::new(seed ^ number << 32);
                    // A worker of its own, which leaves its garbage to others when it ends.
                    let worker = database.worker().unwrap();
                    let mut committed = Vec::new();
                    for _ in 0..ROUND {
                        let level = match certifier {
                            Certifier::Ssn if random.below(6) == 0 => Isolation::Snapshot,
                            _ => level,
                        };
                        let done = if random.below(5) == 0 {
                            read_only(Txn { table, inner: worker.begin_reading(level) }, &mut random, certifier)
                        } else {
                            transaction(Txn { table, inner: worker.begin(level) }, &mut random)
                        };
                        committed.extend(done);
                    }
                    committed
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// What a transaction sees from `state` on must be what it has seen. Writes that failed only for
/// the sake of others (`Conflict`; and at snapshot isolation a key taken since the snapshot) tell
/// nothing.
fn replay(committed: &Committed, mut state: State) -> State {
    for (number, (operation, outcome)) in committed.steps.iter().enumerate() {
        let failed = matches!(outcome, Outcome::Taken(_)) && committed.level == Isolation::Snapshot;
        if *outcome == Outcome::Conflict || failed {
            continue;
        }
        let expected = operation.apply(&mut state);
        assert_eq!(
            *outcome, expected,
            "step {number}, {operation:?}, of a transaction at {} with LSN {:?}: {:?}",
            committed.snapshot, committed.lsn, committed.steps
        );
    }
    state
}

/// The records that a transaction has written, by id: what it has made of those that it saw, and
/// what it has left behind. What it has both made and taken away has never been for others.
fn written(committed: &Committed, before: &State, after: &State) -> BTreeMap<u64, Option<Item>> {
    let done = committed.steps.iter().filter(|(_, outcome)| *outcome == Outcome::Done);
    let ids = done.flat_map(|(operation, _)| match *operation {
        Operation::Insert(item) => vec![item.id],
        Operation::Set { id, .. } | Operation::Delete(id) => vec![id],
        Operation::Update { id, item } => vec![id, item.id],
        _ => vec![],
    });
    ids.filter(|id| before.contains_key(id) || after.contains_key(id)).map(|id| (id, after.get(&id).copied())).collect()
}

/// Checks a round that began in `state`, and returns the state in which it ended, and how often one
/// comes before another that had a smaller LSN. With `by_lsns` none does.
fn check(mut history: Vec<Committed>, state: State, by_lsns: bool) -> (State, usize) {
    history.sort_by_key(|committed| committed.lsn);
    let readers = history.partition_point(|committed| committed.lsn.is_none());
    let writers = history.split_off(readers);
    // The state before each LSN, and at the end.
    let mut states: Vec<(Lsn, State)> = vec![(Lsn::ZERO, state)];
    let at = |states: &[(Lsn, State)], snapshot: Lsn| {
        let seen = states.partition_point(|(lsn, _)| *lsn < snapshot);
        states[seen - 1].1.clone()
    };
    let mut nodes = Vec::new();
    let mut all_written: Vec<(Lsn, BTreeMap<u64, Option<Item>>)> = Vec::new();
    for writer in &writers {
        let lsn = writer.lsn.expect("a writer");
        let mut state = states.last().expect("the first").1.clone();
        let seen = if by_lsns { state.clone() } else { at(&states, writer.snapshot) };
        let mine = written(writer, &seen, &replay(writer, seen.clone()));
        for (other, theirs) in all_written.iter().rev().take_while(|(other, _)| *other >= writer.snapshot) {
            let both: Vec<_> = mine.keys().filter(|id| theirs.contains_key(id)).collect();
            assert!(both.is_empty(), "first updater wins: {both:?} at {other:?} and {lsn:?}");
        }
        for (id, item) in &mine {
            match item {
                Some(item) => state.insert(*id, *item),
                None => state.remove(id),
            };
        }
        let names: BTreeSet<_> = state.values().map(|item| item.name).collect();
        assert_eq!(names.len(), state.len(), "names are unique: {state:?} after {lsn:?}, {:?}", writer.steps);
        nodes.push(writer.node(mine.iter().map(|(id, new)| (*id, (seen.get(id).copied(), *new))).collect()));
        all_written.push((lsn, mine));
        states.push((lsn, state));
    }
    for reader in &history {
        replay(reader, at(&states, reader.snapshot));
        nodes.push(reader.node(BTreeMap::new()));
    }
    let mut back = 0;
    if !by_lsns {
        let graph = Graph::new(nodes);
        graph.check();
        back = graph.back_edges();
    }
    (states.pop().expect("the first").1, back)
}

fn histories(level: Isolation, certifier: Certifier) {
    let seed = std::env::var("FRESHET_SEED").ok().map_or_else(
        || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64,
        |seed| seed.parse().expect("FRESHET_SEED is a number"),
    );
    println!("FRESHET_SEED={seed}");
    let seconds = std::env::var("FRESHET_STRESS_SECONDS").ok().map_or(1.5, |s| s.parse().expect("a number"));
    let world = certified_by(certifier, || World::new(1, (0..KEYS / 2).map(|id| Item::plain(id, 0))));
    let mut state: State = (0..KEYS / 2).map(|id| (id, Item::plain(id, 0))).collect();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let (mut rounds, mut transactions, mut writers, mut back) = (0, 0, 0, 0);
    let by_lsns = level == Isolation::Serializable && certifier == Certifier::Validation;
    while rounds == 0 || Instant::now() < end {
        let history = round(&world.database, &world.table, level, certifier, seed.wrapping_add(rounds));
        transactions += history.len();
        writers += history.iter().filter(|committed| committed.lsn.is_some()).count();
        let back_edges;
        (state, back_edges) = check(history, state, by_lsns);
        back += back_edges;
        assert_eq!(world.read(0).all(), state.values().copied().collect::<Vec<_>>());
        rounds += 1;
    }
    println!(
        "{rounds} rounds, {transactions} committed, {writers} of them with writes, {back} times back in time, at \
         {level} under {certifier}"
    );
    assert!(back > 0 || level == Isolation::Snapshot || by_lsns, "nobody has committed back in time");
    // Nothing is left of what was deleted, replaced or rolled back.
    world.workers[0].collect_garbage();
    world.workers[0].collect_garbage();
    let entries: Vec<_> = world.indexes().iter().map(|index| index.entries).collect();
    assert_eq!(entries, [state.len() as u64; 3]);
    assert!(common::next_rid(&world.database, &world.table) < 16 * 1024, "record ids are used again");
}

#[test]
fn serializable_histories_are_those_of_the_lsn_order() {
    histories(Isolation::Serializable, Certifier::Validation);
}

#[test]
fn serializable_histories_under_the_safety_net_have_no_cycle() {
    histories(Isolation::Serializable, Certifier::Ssn);
}

#[test]
fn snapshot_histories_read_snapshots_and_the_first_updater_wins() {
    histories(Isolation::Snapshot, Certifier::Validation);
}
