//! Sequences.

use freshet_engine::Node;
use freshet_query::{
    schema::{Entry, Sequence},
    sequence::Position,
};

use crate::harness::{Base, Session};

fn sequence(session: &mut Session<'_>, name: &str) -> Sequence {
    let schema = session.schema();
    let found = schema.entries().find_map(|entry| match entry {
        Entry::Sequence(sequence) if sequence.name == name => Some((**sequence).clone()),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no sequence {name}"))
}

fn go_on() -> Result<(), freshet_sql::SqlError> {
    Ok(())
}

#[test]
fn sequences_go_as_they_were_made() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    let take = |session: &mut Session<'_>, name: &str, count: usize| -> Vec<i64> {
        let sequence = sequence(session, name);
        (0..count).map(|_| base.sequences.next(&sequence, &go_on).unwrap()).collect()
    };
    session.ok("CREATE SEQUENCE s");
    assert_eq!(take(&mut session, "s", 100), (1..=100).collect::<Vec<_>>());
    session.ok("CREATE SEQUENCE odd INCREMENT 2 MINVALUE -3 MAXVALUE 4 CYCLE");
    assert_eq!(take(&mut session, "odd", 6), [-3, -1, 1, 3, -3, -1]);
    session.ok("CREATE SEQUENCE down INCREMENT BY -1 MINVALUE -2 START -1");
    assert_eq!(take(&mut session, "down", 2), [-1, -2]);
    let end = base.sequences.next(&sequence(&mut session, "down"), &go_on).unwrap_err();
    assert_eq!(
        (end.state.code(), &*end.message),
        ("2200H", "nextval: reached minimum value of sequence \"down\" (-2)")
    );
    session.ok("CREATE SEQUENCE most MAXVALUE 9223372036854775807 START 9223372036854775806");
    assert_eq!(take(&mut session, "most", 2), [i64::MAX - 1, i64::MAX]);
    assert!(base.sequences.next(&sequence(&mut session, "most"), &go_on).is_err());
    session.ok("CREATE SEQUENCE small AS smallint START 32766");
    assert_eq!(take(&mut session, "small", 2), [32766, 32767]);
    assert!(base.sequences.next(&sequence(&mut session, "small"), &go_on).is_err());
    session.ok("ALTER SEQUENCE small AS int");
    assert_eq!(take(&mut session, "small", 1), [32768]);
    session.ok("ALTER SEQUENCE s INCREMENT 10");
    assert_eq!(take(&mut session, "s", 2), [110, 120]);
    session.ok("ALTER SEQUENCE s RESTART WITH 7");
    assert_eq!(take(&mut session, "s", 2), [7, 17]);
    let s = sequence(&mut session, "s");
    base.sequences.set(&s, Position { value: 50, called: true }, &go_on).unwrap();
    assert_eq!(take(&mut session, "s", 1), [60]);
    base.sequences.set(&s, Position { value: 50, called: false }, &go_on).unwrap();
    assert_eq!(base.sequences.position(&s).unwrap(), Position { value: 50, called: false });
    assert_eq!(take(&mut session, "s", 1), [50]);
    let beyond = base.sequences.set(&s, Position { value: 0, called: true }, &go_on).unwrap_err();
    assert_eq!(beyond.state.code(), "22003");
    for (options, message) in [
        ("INCREMENT 0", "INCREMENT must not be zero"),
        ("MINVALUE 5 MAXVALUE 5", "MINVALUE (5) must be less than MAXVALUE (5)"),
        ("START 0", "START value (0) cannot be less than MINVALUE (1)"),
        ("MAXVALUE 3 START 4", "START value (4) cannot be greater than MAXVALUE (3)"),
        ("CACHE 0", "CACHE (0) must be greater than zero"),
        ("AS smallint MAXVALUE 40000", "MAXVALUE (40000) is out of range for sequence data type smallint"),
    ] {
        assert_eq!(session.fails(&format!("CREATE SEQUENCE x {options}")), format!("22023: {message}"));
    }
    assert_eq!(session.fails("CREATE SEQUENCE x AS text"), "22023: sequence type must be smallint, integer, or bigint");
}

#[test]
fn a_restart_is_part_of_its_transaction() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE SEQUENCE s");
    let before = sequence(&mut session, "s");
    for n in 1..=3 {
        assert_eq!(base.sequences.next(&before, &go_on).unwrap(), n);
    }
    session.ok("BEGIN");
    session.ok("ALTER SEQUENCE s RESTART");
    let within = sequence(&mut session, "s");
    assert_eq!(base.sequences.next(&within, &go_on).unwrap(), 1);
    // Others go on.
    assert_eq!(base.sequences.next(&before, &go_on).unwrap(), 4);
    session.ok("ROLLBACK");
    assert_eq!(base.sequences.next(&sequence(&mut session, "s"), &go_on).unwrap(), 5);
    assert_eq!(base.sequences.numbers().unwrap(), [before.state]);
    session.ok("ALTER SEQUENCE s RESTART");
    assert_eq!(base.sequences.next(&sequence(&mut session, "s"), &go_on).unwrap(), 1);
    session.ok("DROP SEQUENCE s");
    assert_eq!(base.sequences.numbers().unwrap(), Vec::<u64>::new());
}

#[test]
fn many_sessions_get_different_values() {
    let base = Base::new();
    let worker = base.worker();
    let mut session = base.session(&worker);
    session.ok("CREATE SEQUENCE s INCREMENT 3");
    let s = sequence(&mut session, "s");
    let mut values: Vec<i64> = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..4)
            .map(|_| {
                let (base, s) = (&base, &s);
                scope.spawn(move || (0..2000).map(|_| base.sequences.next(s, &go_on).unwrap()).collect::<Vec<_>>())
            })
            .collect();
        takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
    });
    values.sort_unstable();
    assert_eq!(values, (0..8000).map(|n| 1 + n * 3).collect::<Vec<_>>());
}

#[test]
fn no_value_comes_twice_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut last = 0;
    for round in 0..3 {
        let node = Node::start(super::durability::config(directory.path()), |_| {}).unwrap();
        let base = Base::of(node.database().clone());
        let worker = base.worker();
        let mut session = base.session(&worker);
        if round == 0 {
            session.ok("CREATE SEQUENCE s");
        }
        let s = sequence(&mut session, "s");
        for _ in 0..70 {
            let value = base.sequences.next(&s, &go_on).unwrap();
            assert!(value > last, "round {round}: {value} after {last}");
            last = value;
        }
        assert!(last < 70 * (round + 1) + 2000, "too many are lost: {last}");
        drop(session);
        drop(worker);
        drop(base);
        drop(node);
    }
}
