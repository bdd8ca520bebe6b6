//! The initial population: complete, as the specification says, repeatable.

mod common;

use common::{NOW, assert_consistent, loaded, read};
use freshet_engine::{Database, StateHash};
use freshet_workloads::{
    TableSet,
    tpcc::{
        load::{LoadError, expected_rows, load},
        population::{Population, Scale, WrongScale},
        rows::{Customer, CustomerData, History, Item, NewOrderRow, Order, OrderLine, Stock, StockData},
        tables::Tables,
        text::{is_original, last_name},
    },
};

#[test]
fn a_fresh_population_is_consistent_and_does_not_depend_on_who_loads_it() {
    let hash = |threads| {
        let (database, tables, population) = loaded(Scale::small(2), threads);
        assert_consistent(&database, &tables);
        assert_eq!(read(&database, |txn| tables.population(txn)), population);
        read(&database, |txn| Ok(StateHash::of(txn)?))
    };
    let (one, two) = (hash(1), hash(2));
    assert_eq!((one.hash, one.records), (two.hash, two.records));
}

#[test]
fn tables_have_their_rows() {
    let scale = Scale { warehouses: 1, items: 200, customers: 1_100, undelivered: 330 };
    let (database, tables, _) = loaded(scale, 1);
    read(&database, |txn| {
        let mut count = [0u32; 4];
        tables.item.scan_all(txn, |found| {
            count[0] += 1;
            count[1] += u32::from(is_original(found.row.bytes(Item::DATA)));
            assert!((100..=10_000).contains(&found.row.get(Item::PRICE)));
            assert!((14..=24).contains(&found.row.get(Item::NAME).trimmed().len()));
        })?;
        assert_eq!(count, [200, 20, 0, 0]);

        let mut count = [0u32; 2];
        tables.stock.scan_all(txn, |found| {
            count[0] += 1;
            assert!((10..=100).contains(&found.row.get(Stock::QUANTITY)));
        })?;
        tables.stock_data.scan_all(txn, |found| {
            count[1] += u32::from(is_original(found.row.bytes(StockData::DATA)));
            assert!(found.row.bytes(StockData::DISTRICTS).iter().all(u8::is_ascii_alphanumeric));
        })?;
        assert_eq!(count, [200, 20]);

        let mut count = [0u32; 2];
        tables.customer.scan_all(txn, |found| {
            count[0] += 1;
            count[1] += u32::from(found.row.get(Customer::CREDIT).0 == *b"BC");
            let id = found.row.get(Customer::ID);
            if id <= 1_000 {
                assert_eq!(found.row.get(Customer::LAST), last_name(id as u16 - 1));
            }
            assert_eq!((found.row.get(Customer::BALANCE), found.row.get(Customer::SINCE)), (-1_000, NOW));
        })?;
        assert_eq!(count, [11_000, 1_100]);
        tables.customer_data.scan_all(txn, |found| {
            assert!((300..=500).contains(&found.row.get(CustomerData::DATA).trimmed().len()));
        })?;

        let mut payments = 0;
        tables.history.scan_all(txn, |found| {
            payments += 1;
            assert_eq!(found.row.get(History::AMOUNT), 1_000);
        })?;
        assert_eq!(payments, 11_000);

        let (mut orders, mut customers) = (0, std::collections::HashSet::new());
        tables.orders.scan_all(txn, |found| {
            orders += 1;
            customers.insert((found.row.get(Order::D_ID), found.row.get(Order::C_ID)));
            assert_eq!(found.row.get(Order::CARRIER_ID) == 0, found.row.get(Order::ID) > 770);
            assert!((5..=15).contains(&found.row.get(Order::LINE_COUNT)));
        })?;
        assert_eq!((orders, customers.len()), (11_000, 11_000));

        let mut new_orders = 0;
        tables.new_order.scan_all(txn, |found| {
            new_orders += 1;
            assert!(found.row.get(NewOrderRow::O_ID) > 770);
        })?;
        assert_eq!(new_orders, 3_300);

        tables.order_line.scan_all(txn, |found| {
            let delivered = found.row.get(OrderLine::O_ID) <= 770;
            assert_eq!(found.row.get(OrderLine::DELIVERY_D), if delivered { NOW } else { 0 });
            assert_eq!(found.row.get(OrderLine::AMOUNT) == 0, delivered);
        })
    });
}

#[test]
fn progress_adds_up() {
    let database = Database::volatile(4);
    let tables = Tables::create(&database).unwrap();
    let population = Population { scale: Scale::small(2), seed: 1, loaded_at: NOW };
    let rows = std::sync::atomic::AtomicU64::new(0);
    let progress = |more| {
        rows.fetch_add(more, std::sync::atomic::Ordering::Relaxed);
    };
    let _ = load(&database, &tables, &population, 2, &progress).unwrap();
    let (rows, expected) = (rows.into_inner(), expected_rows(&population));
    assert!(rows.abs_diff(expected) * 20 < expected, "{rows} rows, {expected} expected");
}

#[test]
fn what_cannot_be_loaded_is_refused() {
    let (database, tables, population) = loaded(Scale::small(1), 1);
    let again = load(&database, &tables, &population, 1, &|_| {});
    assert_eq!(again, Err(LoadError::NotEmpty));

    let empty = Population { scale: Scale::new(0), ..population };
    assert_eq!(load(&database, &tables, &empty, 1, &|_| {}), Err(LoadError::Scale(WrongScale::Empty)));
    let odd = Population { scale: Scale { undelivered: 31, ..Scale::small(1) }, ..population };
    let undelivered = WrongScale::Undelivered { undelivered: 31, orders: 30 };
    assert_eq!(load(&database, &tables, &odd, 1, &|_| {}), Err(LoadError::Scale(undelivered)));

    let bare = Database::volatile(1);
    assert!(Tables::open(&bare).unwrap_err().to_string().contains("load the workload first"));
    let tables = Tables::create(&bare).unwrap();
    let worker = bare.worker().unwrap();
    let unfinished = tables.population(&worker.begin_read_only()).unwrap_err();
    assert!(unfinished.to_string().contains("not complete"), "{unfinished}");
}
