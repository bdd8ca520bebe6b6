//! YCSB: every mix, by two threads, at both isolation levels.

mod common;

use common::{read, seed};
use freshet_engine::{Database, Isolation};
use freshet_workloads::{
    TableSet,
    journal::Mark,
    ycsb::{
        LoadError, Outcome, Population, Scratch, Tables,
        input::{Client, NewKeys, Operation, Request, Workload},
        load,
        mix::{Mix, Shape},
        run,
    },
};

fn loaded(records: u64, shape: Shape, threads: usize) -> (Database, Tables, Population) {
    let database = Database::volatile(8);
    let tables = Tables::create(&database).unwrap();
    let population = Population { records, shape, seed: seed() };
    let _ = load(&database, &tables, &population, threads, &|_| {}).unwrap();
    (database, tables, population)
}

fn one(database: &Database, tables: &Tables, shape: Shape, operation: Operation) -> Outcome {
    let worker = database.worker().unwrap();
    let request = Request { mark: None, operations: vec![operation] };
    let (outcome, _) = run(&worker, tables, Isolation::Snapshot, &request, &mut Scratch::new(shape)).unwrap();
    outcome
}

#[test]
fn every_mix_runs_at_both_levels() {
    const RECORDS: u64 = 500;
    const EACH: u64 = 400;
    for mix in Mix::ALL {
        for (isolation, theta) in [(Isolation::Snapshot, 0.0), (Isolation::Serializable, 0.9)] {
            let shape = Shape { fields: 3, field_bytes: 10 };
            let (database, tables, population) = loaded(RECORDS, shape, 2);
            let workload = Workload { mix, records: RECORDS, shape, theta, operations: 3 };
            let first = Client::new(workload, NewKeys::new(RECORDS, 0, 1), population.seed).unwrap();
            let drive = |number: u64| {
                let worker = database.worker().unwrap();
                let (mut client, mut scratch) = (first.another(population.seed, number), Scratch::new(shape));
                let mut request = Request::default();
                let (mut sum, mut marks) = (Outcome::default(), Vec::new());
                for sequence in 0..EACH {
                    let mark = Mark { client: number, sequence };
                    request.mark = Some(mark);
                    client.next(&mut request.operations);
                    let (outcome, ticket) = run(&worker, &tables, isolation, &request, &mut scratch).unwrap();
                    database.wait(ticket).unwrap();
                    sum.read += outcome.read;
                    sum.written += outcome.written;
                    sum.missing += outcome.missing;
                    if outcome.written > 0 {
                        marks.push(mark);
                    }
                }
                (sum, marks)
            };
            let (mine, theirs) = std::thread::scope(|scope| {
                let theirs = scope.spawn(|| drive(1));
                (drive(0), theirs.join().unwrap())
            });
            if !mix.prefers_latest() {
                assert_eq!(mine.0.missing + theirs.0.missing, 0, "{mix}");
            }
            assert_eq!(mine.0.written + theirs.0.written > 0, mix != Mix::C, "{mix}");
            assert_eq!(read(&database, |txn| tables.journal.missing(txn, mine.1.iter().chain(&theirs.1).copied())), []);
        }
    }
}

#[test]
fn each_operation_has_its_effect() {
    let shape = Shape { fields: 3, field_bytes: 10 };
    let (database, tables, population) = loaded(100, shape, 1);
    assert_eq!(read(&database, |txn| tables.population(txn)), population);
    let operation = |operation| one(&database, &tables, shape, operation);
    let checksum = |key| operation(Operation::Read { key }).checksum;

    let (before, neighbour) = (checksum(7), checksum(8));
    assert_eq!(operation(Operation::Update { key: 7, field: 2, seed: 1 }).written, 1);
    let updated = checksum(7);
    assert_ne!(updated, before);
    assert_eq!(operation(Operation::Modify { key: 7, field: 2, seed: 2 }).checksum, updated);
    assert_ne!(checksum(7), updated);
    let _ = operation(Operation::Update { key: 7, field: 2, seed: 1 });
    assert_eq!(checksum(7), updated, "the other fields stayed what they were");
    assert_eq!(operation(Operation::Overwrite { key: 7, seed: 3 }), Outcome { written: 1, ..Outcome::default() });
    assert_eq!(checksum(8), neighbour);

    assert_eq!(operation(Operation::Read { key: 100 }).missing, 1);
    assert_eq!(operation(Operation::Insert { key: 100, seed: 3 }).written, 1);
    assert_eq!(operation(Operation::Read { key: 100 }).read, 1);
    assert_eq!(checksum(100).wrapping_sub(checksum(7)), 93 << 56, "the same value under another key");
    assert_eq!(read(&database, |txn| tables.largest_key(txn)), Some(100));

    let scanned = operation(Operation::Scan { from: 95, count: 3 });
    let expected = (95..98).fold(0u64, |sum, key| sum.wrapping_add(checksum(key)));
    assert_eq!((scanned.read, scanned.checksum), (3, expected));
    assert_eq!(operation(Operation::Scan { from: 99, count: 50 }).read, 2);
    assert_eq!(operation(Operation::Scan { from: 5, count: 0 }).read, 0);
}

#[test]
fn inputs_from_afar_cannot_do_harm() {
    let shape = Shape { fields: 3, field_bytes: 10 };
    let (database, tables, population) = loaded(100, shape, 1);
    let worker = database.worker().unwrap();
    for (operation, complaint) in [
        (Operation::Insert { key: 99, seed: 1 }, "usertable_key"),
        (Operation::Update { key: 9, field: 3, seed: 1 }, "no such field"),
        (Operation::Modify { key: 9, field: u16::MAX, seed: 1 }, "no such field"),
    ] {
        // What was done before the mistake is undone.
        let request = Request { mark: None, operations: vec![Operation::Overwrite { key: 1, seed: 5 }, operation] };
        let read = || one(&database, &tables, shape, Operation::Scan { from: 0, count: 200 });
        let before = read();
        let error = run(&worker, &tables, Isolation::Snapshot, &request, &mut Scratch::new(shape)).unwrap_err();
        assert!(error.to_string().contains(complaint), "{error}");
        assert_eq!(read(), before);
    }
    let again = load(&database, &tables, &population, 1, &|_| {});
    assert_eq!(again, Err(LoadError::NotEmpty));
}

#[test]
fn a_load_does_not_depend_on_who_loads() {
    let checksum = |threads| {
        let shape = Shape { fields: 1, field_bytes: 100 };
        let (database, tables, _) = loaded(25_000, shape, threads);
        let outcome = one(&database, &tables, shape, Operation::Scan { from: 0, count: u16::MAX });
        assert_eq!(outcome.read, 25_000);
        outcome.checksum
    };
    assert_eq!(checksum(1), checksum(2));
}
