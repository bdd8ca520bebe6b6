//! The transactions: alone, and as the mix, by two threads, at both isolation levels.

mod common;

use std::collections::HashSet;

use common::{NOW, assert_consistent, loaded, loaded_with, read, seed};
use freshet_engine::{Certifier, Database, Isolation, ProcedureError, StateHash, Ticket, Worker};
use freshet_workloads::{
    journal::Mark,
    list::List,
    random::Random,
    tpcc::{
        input::{self, Input, Kind, Mix, Request, Terminal},
        keys,
        outcome::Outcome,
        population::{Population, Scale},
        rows::{Customer, CustomerData, District, Item, NewOrderRow, Order, OrderLine, Stock, Warehouse},
        run,
        tables::Tables,
        text::Constants,
    },
};

const SCALE: Scale = Scale { warehouses: 2, items: 400, customers: 60, undelivered: 18 };

fn terminal(population: &Population, number: u64, warehouse: u16) -> Terminal {
    let constants = Constants::of_run(population.constants(), &mut Random::new(population.seed));
    Terminal::new(population, constants, population.seed, number, warehouse)
}

/// On a busy machine the other thread may be stopped in the middle of a transaction, for longer
/// than the engine tries.
fn run_patiently(worker: &Worker, tables: &Tables, isolation: Isolation, request: &Request) -> (Outcome, Ticket) {
    for _ in 0..1_000 {
        match run(worker, tables, isolation, request) {
            Ok(done) => return done,
            Err(ProcedureError::Exhausted { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("a million tries were not enough");
}

/// Runs `count` transactions of the mix and returns the marks of those that were acknowledged and
/// have written.
fn drive(
    database: &Database,
    tables: &Tables,
    mut terminal: Terminal,
    client: u64,
    count: u64,
    isolation: Isolation,
) -> Vec<Mark> {
    let worker = database.worker().unwrap();
    let mut acknowledged = Vec::new();
    for sequence in 0..count {
        let mark = Mark { client, sequence };
        let request = Request { mark: Some(mark), input: terminal.next(NOW + sequence) };
        let (outcome, ticket) = run_patiently(&worker, tables, isolation, &request);
        database.wait(ticket).unwrap();
        if !request.input.kind().is_read_only() && !matches!(outcome, Outcome::RolledBack(_)) {
            acknowledged.push(mark);
        }
    }
    acknowledged
}

/// Two threads, each at home in the warehouses of `homes`.
fn the_mix_keeps_the_database_consistent(isolation: Isolation, homes: [u16; 2]) {
    let terminal = |population: &Population, client| terminal(population, client, homes[client as usize]);
    keeps_the_database_consistent(isolation, Certifier::Validation, terminal);
}

/// Two threads, with these terminals.
fn keeps_the_database_consistent(
    isolation: Isolation,
    certifier: Certifier,
    terminal: impl Fn(&Population, u64) -> Terminal,
) {
    const EACH: u64 = 1_000;
    let (database, tables, population) = loaded_with(SCALE, 2, certifier);
    let marks: Vec<Mark> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2u64)
            .map(|client| {
                let terminal = terminal(&population, client);
                let (database, tables) = (&database, &tables);
                scope.spawn(move || drive(database, tables, terminal, client, EACH, isolation))
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert_consistent(&database, &tables);

    // What was acknowledged is in the journal, and nothing else.
    assert!((EACH..2 * EACH).contains(&(marks.len() as u64)));
    let lost = read(&database, |txn| tables.journal.missing(txn, marks.iter().copied()));
    assert_eq!(lost, []);
    let mut written = 0;
    read(&database, |txn| {
        written = 0;
        tables.journal.scan_all(txn, |_| written += 1)
    });
    assert_eq!(written, marks.len());
    let never = Mark { client: 7, sequence: 0 };
    assert_eq!(read(&database, |txn| tables.journal.missing(txn, [never])), [never]);
}

#[test]
fn the_mix_under_snapshot_isolation() {
    the_mix_keeps_the_database_consistent(Isolation::Snapshot, [1, 2]);
}

#[test]
fn the_mix_under_serializable() {
    the_mix_keeps_the_database_consistent(Isolation::Serializable, [1, 2]);
}

#[test]
fn the_mix_in_one_warehouse_under_snapshot_isolation() {
    the_mix_keeps_the_database_consistent(Isolation::Snapshot, [1, 1]);
}

#[test]
fn the_mix_in_one_warehouse_under_serializable() {
    the_mix_keeps_the_database_consistent(Isolation::Serializable, [1, 1]);
}

#[test]
fn tpcc_plus_spread_under_snapshot_isolation() {
    let spread = |population: &Population, client| terminal(population, client, 1).with_mix(Mix::Plus).spread();
    keeps_the_database_consistent(Isolation::Snapshot, Certifier::Validation, spread);
}

#[test]
fn tpcc_plus_spread_under_serializable() {
    let spread = |population: &Population, client| terminal(population, client, 1).with_mix(Mix::Plus).spread();
    keeps_the_database_consistent(Isolation::Serializable, Certifier::Validation, spread);
}

#[test]
fn tpcc_plus_spread_under_the_safety_net() {
    let spread = |population: &Population, client| terminal(population, client, 1).with_mix(Mix::Plus).spread();
    keeps_the_database_consistent(Isolation::Serializable, Certifier::Ssn, spread);
}

#[test]
fn the_mix_in_one_warehouse_under_the_safety_net() {
    let one = |population: &Population, client| terminal(population, client, 1);
    keeps_the_database_consistent(Isolation::Serializable, Certifier::Ssn, one);
}

/// A database with one warehouse, and a way to run single transactions.
struct Single {
    database: Database,
    tables: Tables,
    population: Population,
}

impl Single {
    fn new() -> Self {
        let (database, tables, population) = loaded(Scale { warehouses: 2, ..SCALE }, 1);
        Self { database, tables, population }
    }

    fn run(&self, input: Input) -> Outcome {
        self.try_run(input, None).unwrap()
    }

    fn try_run(&self, input: Input, mark: Option<Mark>) -> Result<Outcome, ProcedureError> {
        let worker = self.database.worker().unwrap();
        run(&worker, &self.tables, Isolation::Serializable, &Request { mark, input }).map(|(outcome, _)| outcome)
    }

    fn hash(&self) -> (u64, u64) {
        let hash = read(&self.database, |txn| Ok(StateHash::of(txn)?));
        (hash.hash, hash.records)
    }
}

fn order(lines: &[(u32, u16, u8)]) -> input::NewOrder {
    let mut list = List::new();
    for &(item, supply_warehouse, quantity) in lines {
        assert!(list.push(input::Line { item, supply_warehouse, quantity }));
    }
    input::NewOrder { warehouse: 1, district: 2, customer: 3, entered_at: NOW, lines: list }
}

#[test]
fn a_new_order_does_what_its_clause_demands() {
    let single = Single::new();
    let before = read(&single.database, |txn| {
        let stock = |w, i| Ok::<_, ProcedureError>(single.tables.stock.need(txn, &keys::stock(w, i), "")?.row.to_row());
        Ok([stock(1, 10)?, stock(2, 20)?])
    });
    let outcome = single.run(Input::NewOrder(order(&[(10, 1, 3), (20, 2, 4)])));
    let Outcome::NewOrder(outcome) = outcome else { panic!("{outcome:?}") };
    assert_eq!(outcome.order, 61);
    read(&single.database, |txn| {
        let tables = &single.tables;
        let district = tables.district.need(txn, &keys::district(1, 2), "")?.row;
        assert_eq!(district.get(District::NEXT_O_ID), 62);
        let row = tables.orders.need(txn, &keys::order(1, 2, 61), "")?.row;
        assert_eq!((row.get(Order::C_ID), row.get(Order::LINE_COUNT), row.get(Order::ALL_LOCAL)), (3, 2, 0));
        assert_eq!((row.get(Order::CARRIER_ID), row.get(Order::ENTRY_D)), (0, NOW));
        assert!(tables.new_order.find(txn, &keys::order(1, 2, 61))?.is_some());
        let mut sum = 0;
        for (number, (item, w, quantity)) in [(1, (10, 1, 3u8)), (2, (20, 2, 4))] {
            let price = tables.item.need(txn, &keys::item(item), "")?.row.get(Item::PRICE);
            let line = tables.order_line.need(txn, &keys::order_line(1, 2, 61, number), "")?.row;
            assert_eq!(line.get(OrderLine::AMOUNT), price * i32::from(quantity));
            assert_eq!((line.get(OrderLine::SUPPLY_W_ID), line.get(OrderLine::DELIVERY_D)), (w, 0));
            let data = tables.stock_data.need(txn, &keys::stock(w, item), "")?.row;
            let information = &data.bytes(freshet_workloads::tpcc::rows::StockData::DISTRICTS)[24..48];
            assert_eq!(line.bytes(OrderLine::DIST_INFO), information);
            sum += i64::from(line.get(OrderLine::AMOUNT));

            let (old, new) = (&before[usize::from(number) - 1], tables.stock.need(txn, &keys::stock(w, item), "")?.row);
            let expected = old.get(Stock::QUANTITY) - i16::from(quantity);
            let expected = if expected < 10 { expected + 91 } else { expected };
            assert_eq!(new.get(Stock::QUANTITY), expected);
            assert_eq!((new.get(Stock::YTD), new.get(Stock::ORDER_COUNT)), (u32::from(quantity), 1));
            assert_eq!(new.get(Stock::REMOTE_COUNT), u32::from(w == 2));
        }
        let customer = tables.customer.need(txn, &keys::customer(1, 2, 3), "")?.row;
        let tax = tables.warehouse.need(txn, &keys::warehouse(1), "")?.row.get(Warehouse::TAX);
        let rate = 1.0 + f64::from(tax) / 1e4 + f64::from(district.get(District::TAX)) / 1e4;
        let total = sum as f64 * (1.0 - f64::from(customer.get(Customer::DISCOUNT)) / 1e4) * rate;
        assert!((outcome.total as f64 - total).abs() <= 0.51, "{} {total}", outcome.total);
        Ok(())
    });
    assert_consistent(&single.database, &single.tables);
}

#[test]
fn a_rolled_back_order_leaves_no_trace() {
    let single = Single::new();
    let before = single.hash();
    let mark = Mark { client: 1, sequence: 1 };
    let outcome = single.try_run(Input::NewOrder(order(&[(10, 1, 3), (20, 2, 4), (401, 1, 1)])), Some(mark)).unwrap();
    let Outcome::RolledBack(outcome) = outcome else { panic!("{outcome:?}") };
    assert_eq!(outcome.order, 61);
    assert_eq!(single.hash(), before);
    assert!(!read(&single.database, |txn| single.tables.journal.contains(txn, mark)));
    assert_consistent(&single.database, &single.tables);
}

#[test]
fn a_payment_does_what_its_clause_demands() {
    let single = Single::new();
    let mut credits = HashSet::new();
    for number in 1..=60 {
        let before = read(&single.database, |txn| {
            let key = keys::customer(2, 5, number);
            let data = single.tables.customer_data.need(txn, &key, "")?.row.get(CustomerData::DATA);
            Ok((single.tables.customer.need(txn, &key, "")?.row.to_row(), data))
        });
        let outcome = single.run(Input::Payment(input::Payment {
            warehouse: 1,
            district: 2,
            customer_warehouse: 2,
            customer_district: 5,
            customer: input::Customer::Number(number),
            amount: 123_456,
            paid_at: NOW,
        }));
        let Outcome::Payment(outcome) = outcome else { panic!("{outcome:?}") };
        assert_eq!((outcome.customer, outcome.balance), (number, -1_000 - 123_456));
        let (customer, data) = read(&single.database, |txn| {
            let key = keys::customer(2, 5, number);
            let data = single.tables.customer_data.need(txn, &key, "")?.row.get(CustomerData::DATA);
            Ok((single.tables.customer.need(txn, &key, "")?.row.to_row(), data))
        });
        assert_eq!(customer.get(Customer::BALANCE), outcome.balance);
        assert_eq!(customer.get(Customer::YTD_PAYMENT), 1_000 + 123_456);
        assert_eq!(customer.get(Customer::PAYMENT_COUNT), 2);
        credits.insert(outcome.credit.0);
        if outcome.credit.0 == *b"BC" {
            let front = format!("{number} 5 2 2 1 1234.56 ");
            assert_eq!(data.0[..front.len()], *front.as_bytes());
            assert_eq!(data.0[front.len()..], before.1.0[..500 - front.len()]);
            assert_eq!(outcome.data.unwrap().0[..], data.0[..200]);
        } else {
            assert_eq!((data, outcome.data), (before.1, None));
        }
    }
    assert_eq!(credits.len(), 2, "both kinds of customers were tried");
    read(&single.database, |txn| {
        let warehouse = single.tables.warehouse.need(txn, &keys::warehouse(1), "")?.row;
        assert_eq!(warehouse.get(Warehouse::YTD), 10 * 60 * 1_000 + 60 * 123_456);
        let district = single.tables.district.need(txn, &keys::district(1, 2), "")?.row;
        assert_eq!(district.get(District::YTD), 60 * 1_000 + 60 * 123_456);
        Ok(())
    });
    assert_consistent(&single.database, &single.tables);
}

/// Of those who share a last name, the one in the middle by first name, rounded up: for any number
/// of them, few enough to be remembered or not.
#[test]
fn a_last_name_means_the_customer_in_the_middle() {
    let single = Single::new();
    let worker = single.database.worker().unwrap();
    let last = freshet_workloads::row::Text::new(b"SHARED");
    let (template, _) = freshet_workloads::procedure::read_only(&worker, |txn| {
        Ok(single.tables.customer.need(txn, &keys::customer(1, 1, 1), "")?.row.to_row())
    })
    .unwrap();
    for count in 1..=100u32 {
        // Of those added so far, ordered by first name: 1000 + count, ..., 1001.
        let first = format!("{:03}", 500 - count);
        let row = template
            .with(Customer::ID, 1_000 + count)
            .with(Customer::LAST, last)
            .with(Customer::FIRST, freshet_workloads::row::Text::new(first.as_bytes()));
        let inserted = worker.execute(Isolation::Snapshot, |txn| single.tables.customer.insert(txn, &row));
        let _ = inserted.unwrap();
        let payment = input::Payment {
            warehouse: 1,
            district: 1,
            customer_warehouse: 1,
            customer_district: 1,
            customer: input::Customer::LastName(last),
            amount: 1,
            paid_at: NOW,
        };
        let Ok(Outcome::Payment(outcome)) = single.try_run(Input::Payment(payment), None) else { panic!("{count}") };
        assert_eq!(outcome.customer, 1_000 + count - (count.div_ceil(2) - 1), "{count} customers");
    }
}

#[test]
fn a_delivery_and_what_readers_see_of_it() {
    let single = Single::new();
    let status = |customer| {
        let input = input::OrderStatus { warehouse: 1, district: 4, customer: input::Customer::Number(customer) };
        match single.run(Input::OrderStatus(input)) {
            Outcome::OrderStatus(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    };
    // Orders 43 to 60 of every district are new.
    let customer = read(&single.database, |txn| {
        Ok(single.tables.orders.need(txn, &keys::order(1, 4, 43), "")?.row.get(Order::C_ID))
    });
    let before = status(customer);
    assert_eq!((before.order, before.carrier, before.balance), (43, 0, -1_000));
    assert!(before.lines.iter().all(|line| line.delivered_at == 0));

    for number in 43..=61 {
        let delivery = input::Delivery { warehouse: 1, carrier: 7, delivered_at: NOW + 5 };
        let Outcome::Delivery(outcome) = single.run(Input::Delivery(delivery)) else { panic!("not a delivery") };
        assert_eq!(outcome.orders, if number <= 60 { [number; 10] } else { [0; 10] });
    }
    let after = status(customer);
    assert_eq!((after.order, after.carrier), (43, 7));
    assert!(after.lines.iter().all(|line| line.delivered_at == NOW + 5));
    let sum: i64 = after.lines.iter().map(|line| i64::from(line.amount)).sum();
    assert_eq!(after.balance, before.balance + sum);
    read(&single.database, |txn| {
        let mut left = 0;
        single.tables.new_order.scan_all(txn, |found| left += u32::from(found.row.get(NewOrderRow::W_ID) == 1))?;
        assert_eq!(left, 0);
        let customer = single.tables.customer.need(txn, &keys::customer(1, 4, customer), "")?.row;
        assert_eq!(customer.get(Customer::DELIVERY_COUNT), 1);
        Ok(())
    });
    assert_consistent(&single.database, &single.tables);
}

#[test]
fn the_latest_order_is_the_one_asked_for() {
    let single = Single::new();
    let _ = single.run(Input::NewOrder(order(&[(10, 1, 3)])));
    let _ = single.run(Input::NewOrder(order(&[(11, 1, 3), (12, 1, 1)])));
    let input = input::OrderStatus { warehouse: 1, district: 2, customer: input::Customer::Number(3) };
    let Outcome::OrderStatus(outcome) = single.run(Input::OrderStatus(input)) else { panic!("no status") };
    assert_eq!((outcome.order, outcome.lines.len(), outcome.lines[1].item), (62, 2, 12));
}

#[test]
fn low_stock_is_counted_once_per_item() {
    let single = Single::new();
    let input = input::StockLevel { warehouse: 1, district: 3, threshold: 15 };
    let expected = read(&single.database, |txn| {
        let mut items = HashSet::new();
        single.tables.order_line.scan_all(txn, |found| {
            let row = found.row;
            if (row.get(OrderLine::W_ID), row.get(OrderLine::D_ID)) == (1, 3) && row.get(OrderLine::O_ID) > 40 {
                items.insert(row.get(OrderLine::I_ID));
            }
        })?;
        let mut low = 0;
        for item in items {
            let stock = single.tables.stock.need(txn, &keys::stock(1, item), "")?.row;
            low += u32::from(stock.get(Stock::QUANTITY) < 15);
        }
        Ok(low)
    });
    let Outcome::StockLevel(outcome) = single.run(Input::StockLevel(input)) else { panic!("no level") };
    assert_eq!(outcome.low, expected);
    assert!(expected > 0, "seed {} makes no stock low", single.population.seed);
}

#[test]
fn credit_is_good_as_long_as_the_limit_covers_what_is_owed_and_ordered() {
    let single = Single::new();
    let (warehouse, district) = (2, 7);
    let mut credits = HashSet::new();
    for customer in 1..=SCALE.customers {
        let (orders, ordered, owed, limit) = read(&single.database, |txn| {
            let mut open = HashSet::new();
            single.tables.orders.scan_all(txn, |found| {
                let row = found.row;
                let whose = (row.get(Order::W_ID), row.get(Order::D_ID), row.get(Order::C_ID));
                if whose == (warehouse, district, customer) && row.get(Order::CARRIER_ID) == 0 {
                    open.insert(row.get(Order::ID));
                }
            })?;
            let mut sum = 0;
            single.tables.order_line.scan_all(txn, |found| {
                let row = found.row;
                if (row.get(OrderLine::W_ID), row.get(OrderLine::D_ID)) == (warehouse, district)
                    && open.contains(&row.get(OrderLine::O_ID))
                {
                    sum += i64::from(row.get(OrderLine::AMOUNT));
                }
            })?;
            let row = single.tables.customer.need(txn, &keys::customer(warehouse, district, customer), "")?.row;
            Ok((open.len() as u32, sum, row.get(Customer::BALANCE), row.get(Customer::CREDIT_LIMIT)))
        });
        let input = Input::CreditCheck(input::CreditCheck { warehouse, district, customer });
        let Outcome::CreditCheck(outcome) = single.run(input) else { panic!("no check") };
        let credit = if owed + ordered > limit { b"BC" } else { b"GC" };
        assert_eq!((outcome.orders, outcome.ordered, outcome.balance), (orders, ordered, owed), "{customer}");
        assert_eq!((outcome.limit, &outcome.credit.0), (limit, credit), "{customer}");
        let now = read(&single.database, |txn| {
            let row = single.tables.customer.need(txn, &keys::customer(warehouse, district, customer), "")?.row;
            Ok(row.get(Customer::CREDIT))
        });
        assert_eq!(now, outcome.credit, "{customer}");
        credits.insert((now.0, orders > 0));
    }
    assert!(credits.contains(&(*b"GC", false)) && credits.contains(&(*b"BC", true)), "{credits:?}");
    assert_consistent(&single.database, &single.tables);
}

#[test]
fn inputs_from_afar_cannot_do_harm() {
    let single = Single::new();
    let before = single.hash();
    let customer = input::Customer::Number(1);
    let payment = input::Payment {
        warehouse: 1,
        district: 1,
        customer_warehouse: 1,
        customer_district: 1,
        customer,
        amount: 1,
        paid_at: 0,
    };
    let nobody = input::Customer::LastName(freshet_workloads::row::Text::new(b"NOBODY"));
    for (input, complaint) in [
        (Input::NewOrder(input::NewOrder { warehouse: 9, ..order(&[]) }), "no such warehouse"),
        (Input::NewOrder(input::NewOrder { district: 0, ..order(&[]) }), "no such district"),
        (Input::NewOrder(input::NewOrder { customer: 9_999, ..order(&[]) }), "no such customer"),
        (Input::NewOrder(order(&[(1, 9, 1)])), "no such stock"),
        (Input::Payment(input::Payment { customer_district: 99, ..payment }), "no such customer"),
        (Input::Payment(input::Payment { customer: nobody, ..payment }), "no such customer"),
        (Input::OrderStatus(input::OrderStatus { warehouse: 0, district: 1, customer }), "no such customer"),
        (Input::CreditCheck(input::CreditCheck { warehouse: 1, district: 11, customer: 1 }), "no such customer"),
        (Input::StockLevel(input::StockLevel { warehouse: 1, district: 200, threshold: 1 }), "no such district"),
    ] {
        let error = single.try_run(input, None).unwrap_err();
        assert!(error.to_string().contains(complaint), "{error}");
    }
    assert_eq!(single.hash(), before);
    // Somebody delivers for a warehouse that is not there: nothing to deliver.
    let nowhere = input::Delivery { warehouse: 77, carrier: 1, delivered_at: 1 };
    assert!(matches!(single.run(Input::Delivery(nowhere)), Outcome::Delivery(outcome) if outcome.orders == [0; 10]));
    // The largest numbers overflow nothing; the conditions still hold.
    for amount in [i32::MIN, i32::MAX] {
        let _ = single.try_run(Input::Payment(input::Payment { amount, ..payment }), None).unwrap();
    }
    let _ = single.try_run(Input::NewOrder(order(&[(1, 1, 255)])), None).unwrap();
    assert_consistent(&single.database, &single.tables);
}

#[test]
fn a_request_that_was_done_is_not_done_again() {
    let single = Single::new();
    let mut terminal = terminal(&single.population, 1, 1);
    let mark = Some(Mark { client: 1, sequence: seed() });
    let input = terminal.next_of(Kind::Payment, NOW);
    let _ = single.try_run(input, mark).unwrap();
    let before = single.hash();
    let error = single.try_run(input, mark).unwrap_err();
    assert!(error.to_string().contains("journal"), "{error}");
    assert_eq!(single.hash(), before);
}
