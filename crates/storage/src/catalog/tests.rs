//! What the catalog makes of its records.

use super::*;
use crate::reclaim::Participants;

#[test]
fn a_table_survives_its_catalog_row() {
    let participants = Participants::new(1);
    let participant = participants.join().unwrap();
    let guard = participant.pin_without_snapshot();
    let definition = TableDefinition::new(
        "stock",
        vec![IndexDefinition::new("stock_key", true, &[KeyPart::unsigned(0, 4), KeyPart::signed(4, 4)])],
    );
    let row = Catalog::row_of(&definition).unwrap();
    let catalog = Catalog::new();
    catalog.enter_row(&guard, Rid(0), &row, Lsn(8)).unwrap();
    let table = catalog.by_name("stock", Lsn(9)).unwrap();
    assert_eq!((table.fid(), table.definition()), (Fid(1), &definition));
    assert!(catalog.by_name("stock", Lsn(8)).is_none(), "it was made there");
    catalog.enter_row(&guard, Rid(0), &row, Lsn(8)).expect("replay is idempotent");
    let other = TableDefinition::new("other", definition.indexes.clone());
    let other = Catalog::row_of(&other).unwrap();
    assert_eq!(catalog.enter_row(&guard, Rid(0), &other, Lsn(8)).unwrap_err(), CatalogError::Exists("other".into()));
    assert_eq!(catalog.tables_at(Lsn(9)).len(), 2);
    assert!(Catalog::describes_table(&row));
    assert!(!Catalog::describes_table(&[&row[..], &[0]].concat()), "nothing behind it");
    let itself = TableDefinition::new("freshet_catalog", definition.indexes.clone());
    assert!(!Catalog::describes_table(&Catalog::row_of(&itself).unwrap()));
    for length in 0..row.len() {
        // Never a panic, whatever comes out of a log.
        assert!(!Catalog::describes_table(&row[..length]));
        let _ = Catalog::new().enter_row(&guard, Rid(0), &row[..length], Lsn(8));
    }
    assert_eq!(catalog.enter_row(&guard, Rid(1 << 40), &row, Lsn(8)).unwrap_err(), CatalogError::Full);
}

fn row(name: &str) -> Vec<u8> {
    let index = IndexDefinition::new("k", true, &[KeyPart::unsigned(0, 4)]);
    Catalog::row_of(&TableDefinition::new(name, vec![index])).unwrap()
}

/// What happens to two tables of one name, by the LSNs of their catalog records.
const HISTORY: [(u64, bool, u64); 3] = [(0, true, 10), (0, false, 20), (1, true, 30)];

fn replay(catalog: &Catalog, guard: &Guard<'_>, order: [usize; 3]) {
    for (rid, made, at) in order.map(|number| HISTORY[number]) {
        match made {
            true => catalog.enter_row(guard, Rid(rid), &row("t"), Lsn(at)).unwrap(),
            false => catalog.drop_row(guard, Rid(rid), &row("t"), Lsn(at)).unwrap(),
        }
    }
}

#[test]
fn catalog_records_come_in_any_order_and_more_than_once() {
    let participants = Participants::new(1);
    let participant = participants.join().unwrap();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let guard = participant.pin_without_snapshot();
        let catalog = Catalog::new();
        for _ in 0..2 {
            replay(&catalog, &guard, order);
            let seen = |at| catalog.by_name("t", Lsn(at)).map(|table| table.fid().0);
            assert_eq!([10, 11, 20, 21, 30, 31].map(seen), [None, Some(1), Some(1), None, None, Some(2)], "{order:?}");
            assert!(catalog.has_dropped());
            assert_eq!([15, 25, 35].map(|at| catalog.tables_at(Lsn(at)).len()), [2, 1, 2]);
        }
        // Where nobody can see what was dropped.
        let catalog = Catalog::new();
        replay(&catalog, &guard, order);
        catalog.clear_dropped(&guard, Lsn::MAX);
        assert!(matches!(catalog.known(&guard, Fid(1)), Known::Dropped) && !catalog.has_dropped());
        assert!(matches!(catalog.known(&guard, Fid(2)), Known::Table(table) if table.name() == "t"));
        assert!(matches!(catalog.known(&guard, Fid(3)), Known::Unknown));
        assert_eq!(catalog.by_name("t", Lsn(15)).map(|table| table.fid().0), None);
    }
}

#[test]
fn a_cut_takes_back_what_was_made_and_dropped() {
    let participants = Participants::new(1);
    let participant = participants.join().unwrap();
    for (at, expected) in [(31, [false, true]), (30, [false, false]), (20, [true, false]), (10, [false, false])] {
        let guard = participant.pin_without_snapshot();
        let catalog = Catalog::new();
        replay(&catalog, &guard, [0, 1, 2]);
        catalog.cut(&guard, Lsn(at));
        let there = [1, 2].map(|fid| catalog.get(&guard, Fid(fid)).is_some_and(|table| table.dropped_at().is_none()));
        assert_eq!(there, expected, "cut at {at}");
        // Another term makes other tables of the same ids.
        if at <= 30 {
            catalog.enter_row(&guard, Rid(1), &row("else"), Lsn(40)).unwrap();
            assert_eq!(catalog.by_name("else", Lsn(50)).unwrap().fid(), Fid(2));
            let old = catalog.by_name("t", Lsn(50)).map(|table| table.fid().0);
            assert_eq!(old, (at == 20).then_some(1));
        }
    }
}

#[test]
fn what_was_dropped_goes_when_no_snapshot_sees_it() {
    let participants = Participants::new(2);
    let participant = participants.join().unwrap();
    let catalog = Catalog::new();
    catalog.enter_row(&participant.pin_without_snapshot(), Rid(0), &row("t"), Lsn(10)).unwrap();
    let held = catalog.by_name("t", Lsn(11)).unwrap();
    {
        let guard = participant.pin_without_snapshot();
        catalog.drop_row(&guard, Rid(0), &row("t"), Lsn(20)).unwrap();
        assert_eq!((held.dropped_at(), held.exists_at(Lsn(20)), held.exists_at(Lsn(21))), (Some(Lsn(20)), true, false));
        catalog.clear_dropped(&guard, Lsn(20));
        assert!(held.content(&guard).is_some() && catalog.has_dropped(), "there may be a snapshot at 20");
    }
    let reader = participants.join().unwrap();
    let reading = reader.pin_without_snapshot();
    let content = held.content(&reading).unwrap();
    {
        let guard = participant.pin_without_snapshot();
        catalog.clear_dropped(&guard, Lsn(21));
        assert!(held.content(&guard).is_none() && !catalog.has_dropped());
        assert!(catalog.get(&guard, Fid(1)).is_none() && matches!(catalog.known(&guard, Fid(1)), Known::Dropped));
        // Its making comes once more.
        catalog.enter_row(&guard, Rid(0), &row("t"), Lsn(10)).unwrap();
        assert!(catalog.by_name("t", Lsn(15)).is_none());
    }
    participant.collect();
    assert_eq!(content.fid(), Fid(1), "those that were there continue");
    assert_eq!(Arc::strong_count(&held), 2, "the slot's share waits for the reader");
    drop(reading);
    participant.collect();
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn names_fit_their_column() {
    let mut definition =
        TableDefinition::new(&"n".repeat(65), vec![IndexDefinition::new("k", true, &[KeyPart::unsigned(0, 4)])]);
    assert!(matches!(Catalog::row_of(&definition), Err(CatalogError::Name(_))));
    definition.name = "a\0b".into();
    assert!(matches!(Catalog::row_of(&definition), Err(CatalogError::Name(_))));
}

/// A table with an index more or less, whose state is `state`.
fn row_with(state: Option<IndexState>) -> Vec<u8> {
    let index = |name: &str| IndexDefinition::new(name, true, &[KeyPart::unsigned(0, 4)]);
    let second = state.map(|state| IndexDefinition { state, ..index("second") });
    Catalog::row_of(&TableDefinition::new("t", std::iter::once(index("k")).chain(second).collect())).unwrap()
}

/// What happens to an index, by the LSNs of the catalog's records; the first makes the table.
const STEPS: [(u64, Option<IndexState>); 4] =
    [(10, None), (20, Some(IndexState::Building)), (30, Some(IndexState::Ready)), (40, Some(IndexState::Dropped))];

fn step(catalog: &Catalog, guard: &Guard<'_>, number: usize) {
    let (at, state) = STEPS[number];
    match state {
        None => catalog.enter_row(guard, Rid(0), &row_with(None), Lsn(at)).unwrap(),
        state => catalog.alter_row(guard, Rid(0), &row_with(state), Lsn(at)).unwrap(),
    }
}

/// Whether the second index is there, is kept by writers, and which snapshots find everything in
/// it.
fn second(catalog: &Catalog, guard: &Guard<'_>) -> (bool, bool, Vec<u64>) {
    let indexes = catalog.get(guard, Fid(1)).unwrap().content(guard).unwrap().indexes(guard);
    let Some(index) = indexes.get(1) else { return (false, false, Vec::new()) };
    let seen = [10, 11, 20, 21, 30, 31, 40, 41].into_iter().filter(|at| index.exists_at(Lsn(*at)));
    (true, indexes.kept().count() == 2, seen.collect())
}

#[test]
fn indexes_come_and_go_in_any_order_and_more_than_once() {
    let participants = Participants::new(1);
    let participant = participants.join().unwrap();
    let orders = (0..256).map(|code| [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6]);
    for order in orders.filter(|order| (0..4).all(|step| order.contains(&step))) {
        for again in 0..2 {
            let guard = participant.pin_without_snapshot();
            let catalog = Catalog::new();
            for _ in 0..=again {
                order.iter().for_each(|number| step(&catalog, &guard, *number));
            }
            assert_eq!(second(&catalog, &guard), (true, false, vec![31, 40]), "{order:?}");
            let table = catalog.by_name("t", Lsn(50)).unwrap();
            assert_eq!((table.index_number("k"), table.index_number("second")), (Some(0), Some(1)));
            assert!(catalog.has_dropped() && catalog.take_unfilled());
            let first = table.content(&guard).unwrap().indexes(&guard).primary();
            assert!([11, 50].iter().all(|at| first.exists_at(Lsn(*at))) && first.is_filled());
            catalog.clear_dropped(&guard, Lsn(40));
            assert!(second(&catalog, &guard).0, "there may be a snapshot at 40");
            catalog.clear_dropped(&guard, Lsn(41));
            assert!(!second(&catalog, &guard).0 && !catalog.has_dropped());
            // Once more, all of it: nothing comes back.
            order.iter().for_each(|number| step(&catalog, &guard, *number));
            assert!(!second(&catalog, &guard).0 && !catalog.has_dropped(), "{order:?}");
            // Where nobody can see what was dropped.
            let catalog = Catalog::new();
            order.iter().for_each(|number| step(&catalog, &guard, *number));
            catalog.clear_dropped(&guard, Lsn::MAX);
            assert!(!second(&catalog, &guard).0 && !catalog.has_dropped(), "{order:?}");
        }
    }
}

#[test]
fn a_cut_takes_back_what_became_of_indexes() {
    let participants = Participants::new(1);
    let participant = participants.join().unwrap();
    let cases = [
        (41, (true, false, vec![31, 40])),
        (40, (true, true, vec![31, 40, 41])),
        (30, (true, true, vec![])),
        (20, (false, false, vec![])),
    ];
    for (at, expected) in cases {
        let guard = participant.pin_without_snapshot();
        let catalog = Catalog::new();
        (0..4).for_each(|number| step(&catalog, &guard, number));
        catalog.cut(&guard, Lsn(at));
        assert_eq!(second(&catalog, &guard), expected, "cut at {at}");
        assert_eq!(catalog.has_dropped(), at > 40);
        let table = catalog.by_name("t", Lsn(50)).unwrap();
        assert_eq!(table.index_number("second"), (at > 20).then_some(1));
        if at == 20 {
            // Another term adds another index of this number.
            let other = IndexDefinition {
                state: IndexState::Building,
                ..IndexDefinition::new("other", false, &[KeyPart::unsigned(0, 2)])
            };
            let indexes = vec![table.definition().indexes[0].clone(), other];
            let row = Catalog::row_of(&TableDefinition::new("t", indexes)).unwrap();
            catalog.alter_row(&guard, Rid(0), &row, Lsn(25)).unwrap();
            assert_eq!(table.index_number("other"), Some(1));
            // Which is not what the first one said.
            let foreign = catalog.alter_row(&guard, Rid(0), &row_with(Some(IndexState::Ready)), Lsn(30));
            assert!(matches!(foreign, Err(CatalogError::Row { .. })));
        }
    }
}

#[test]
fn indexes_in_a_checkpoint_are_as_they_were() {
    let participants = Participants::new(1);
    let participant = participants.join().unwrap();
    for (_, state) in STEPS.into_iter().skip(1) {
        let guard = participant.pin_without_snapshot();
        let catalog = Catalog::new();
        catalog.enter_row(&guard, Rid(0), &row_with(state), Lsn(45)).unwrap();
        let table = catalog.get(&guard, Fid(1)).unwrap();
        let index = table.content(&guard).unwrap().indexes(&guard).get(1);
        // Everything that is restored is entered.
        assert!(index.is_none_or(|index| index.is_filled()));
        let found = index.map(|index| (index.is_building(), index.exists_at(Lsn(46))));
        let expected = match state {
            Some(IndexState::Building) => Some((true, false)),
            Some(IndexState::Ready) => Some((false, true)),
            _ => None,
        };
        assert_eq!(found, expected);
    }
}
