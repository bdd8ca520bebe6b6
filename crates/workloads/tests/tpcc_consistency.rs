//! The checker finds damage: each condition fails when what it speaks of is damaged, and not
//! otherwise.

mod common;

use common::{assert_consistent, loaded, violated};
use freshet_engine::{Isolation, ProcedureError, Transaction};
use freshet_workloads::{
    row::{Column, Layout, Row, Value},
    table::Typed,
    tpcc::{
        consistency::check,
        keys,
        population::Scale,
        rows::{Customer, District, NewOrderRow, Order, OrderLine, Warehouse},
        tables::Tables,
    },
};

type Done = Result<(), ProcedureError>;

/// Replaces the value of one column.
fn change<L: Layout, V: Value>(
    txn: &Transaction<'_>,
    table: &Typed<L>,
    key: &[u8],
    column: Column<L, V>,
    change: impl FnOnce(V::Of) -> V::Of,
) -> Done {
    let found = table.need(txn, key, "no such record")?;
    let mut row = found.row.to_row();
    row.set(column, change(row.get(column)));
    table.update(txn, found.rid, &row)
}

fn remove<L: Layout>(txn: &Transaction<'_>, table: &Typed<L>, key: &[u8]) -> Done {
    let found = table.need(txn, key, "no such record")?;
    table.delete(txn, found.rid)
}

/// Inserts a copy of a line as number 99 of another order.
fn copy_line(txn: &Transaction<'_>, tables: &Tables, from: &[u8], order: u32) -> Done {
    let line = tables.order_line.need(txn, from, "no such line")?.row.to_row();
    tables.order_line.insert(txn, &line.with(OrderLine::O_ID, order).with(OrderLine::NUMBER, 99))?;
    Ok(())
}

/// What is damaged, how, and which conditions are violated then.
struct Damage(&'static str, fn(&Transaction<'_>, &Tables) -> Done, &'static [u8]);

/// In `Scale::small`, orders 1 to 21 of a district are delivered, 22 to 30 are new. Each of its 30
/// customers has one.
const DAMAGES: &[Damage] = &[
    Damage(
        "W_YTD",
        |txn, tables| change(txn, &tables.warehouse, &keys::warehouse(1), Warehouse::YTD, |ytd| ytd + 1),
        &[1, 8],
    ),
    Damage(
        "D_YTD",
        |txn, tables| change(txn, &tables.district, &keys::district(1, 3), District::YTD, |ytd| ytd + 1),
        &[1, 9],
    ),
    Damage("a warehouse", |txn, tables| remove(txn, &tables.warehouse, &keys::warehouse(1)), &[1, 8]),
    Damage(
        "D_NEXT_O_ID",
        |txn, tables| change(txn, &tables.district, &keys::district(1, 10), District::NEXT_O_ID, |next| next + 1),
        &[2],
    ),
    Damage("the last new order", |txn, tables| remove(txn, &tables.new_order, &keys::order(1, 1, 30)), &[2, 5, 11]),
    Damage(
        "a new order amid the others",
        |txn, tables| remove(txn, &tables.new_order, &keys::order(1, 1, 25)),
        &[3, 5, 11],
    ),
    Damage(
        "a new order without an order",
        |txn, tables| {
            let row = Row::new().with(NewOrderRow::W_ID, 1).with(NewOrderRow::D_ID, 1).with(NewOrderRow::O_ID, 31);
            tables.new_order.insert(txn, &row)?;
            change(txn, &tables.district, &keys::district(1, 1), District::NEXT_O_ID, |next| next + 1)
        },
        &[2, 5, 11],
    ),
    Damage("a line", |txn, tables| remove(txn, &tables.order_line, &keys::order_line(1, 2, 7, 1)), &[4, 6]),
    Damage(
        "O_OL_CNT",
        |txn, tables| change(txn, &tables.orders, &keys::order(1, 2, 7), Order::LINE_COUNT, |count| count + 1),
        &[4, 6],
    ),
    Damage(
        "O_CARRIER_ID of a new order",
        |txn, tables| change(txn, &tables.orders, &keys::order(1, 1, 30), Order::CARRIER_ID, |_| 3),
        &[5, 7],
    ),
    Damage(
        "a line that belongs to another order",
        |txn, tables| {
            let line = keys::order_line(1, 1, 20, 1);
            copy_line(txn, tables, &line, 19)?;
            remove(txn, &tables.order_line, &line)
        },
        &[6],
    ),
    Damage(
        "a line of no order",
        |txn, tables| {
            let line = keys::order_line(1, 1, 20, 1);
            copy_line(txn, tables, &line, 77)?;
            remove(txn, &tables.order_line, &line)
        },
        &[6],
    ),
    Damage(
        "OL_DELIVERY_D",
        |txn, tables| change(txn, &tables.order_line, &keys::order_line(1, 1, 20, 2), OrderLine::DELIVERY_D, |_| 0),
        &[7],
    ),
    Damage(
        "W_YTD and D_YTD alike",
        |txn, tables| {
            change(txn, &tables.warehouse, &keys::warehouse(1), Warehouse::YTD, |ytd| ytd + 100)?;
            change(txn, &tables.district, &keys::district(1, 1), District::YTD, |ytd| ytd + 100)
        },
        &[8, 9],
    ),
    Damage(
        "D_YTD of two districts",
        |txn, tables| {
            change(txn, &tables.district, &keys::district(1, 1), District::YTD, |ytd| ytd + 100)?;
            change(txn, &tables.district, &keys::district(1, 2), District::YTD, |ytd| ytd - 100)
        },
        &[9],
    ),
    Damage(
        "C_BALANCE and C_YTD_PAYMENT",
        |txn, tables| {
            let key = keys::customer(1, 4, 5);
            change(txn, &tables.customer, &key, Customer::BALANCE, |balance| balance - 1)?;
            change(txn, &tables.customer, &key, Customer::YTD_PAYMENT, |paid| paid + 1)
        },
        &[10],
    ),
    Damage(
        "OL_AMOUNT of what was delivered",
        |txn, tables| {
            change(txn, &tables.order_line, &keys::order_line(1, 1, 20, 2), OrderLine::AMOUNT, |amount| amount + 1)
        },
        &[10, 12],
    ),
    Damage(
        "C_DELIVERY_CNT",
        |txn, tables| {
            change(txn, &tables.customer, &keys::customer(1, 4, 5), Customer::DELIVERY_COUNT, |count| count + 1)
        },
        &[11],
    ),
    Damage(
        "C_YTD_PAYMENT",
        |txn, tables| change(txn, &tables.customer, &keys::customer(1, 4, 5), Customer::YTD_PAYMENT, |paid| paid + 1),
        &[12],
    ),
    Damage("a customer", |txn, tables| remove(txn, &tables.customer, &keys::customer(1, 4, 5)), &[10, 12]),
];

#[test]
fn each_condition_fails_when_its_data_is_damaged() {
    let (database, tables, _) = loaded(Scale::small(1), 1);
    let worker = database.worker().unwrap();
    for Damage(what, damage, expected) in DAMAGES {
        // The transaction sees its own damage, and takes it back.
        let txn = worker.begin(Isolation::Snapshot);
        damage(&txn, &tables).unwrap();
        let verdicts = check(&txn, &tables).unwrap();
        txn.roll_back();
        assert_eq!(violated(&verdicts), *expected, "{what}: {verdicts:#?}");
    }
    for condition in 1..=12 {
        assert!(DAMAGES.iter().any(|Damage(_, _, violated)| violated.contains(&condition)), "{condition}");
    }
    assert_consistent(&database, &tables);
}

#[test]
fn details_name_the_first_violations() {
    let (database, tables, _) = loaded(Scale::small(1), 1);
    let worker = database.worker().unwrap();
    let txn = worker.begin(Isolation::Snapshot);
    for customer in 1..=10 {
        let key = keys::customer(1, 1, customer);
        change(&txn, &tables.customer, &key, Customer::YTD_PAYMENT, |paid| paid + 500).unwrap();
    }
    let verdicts = check(&txn, &tables).unwrap();
    let text = verdicts[11].to_string();
    assert!(text.starts_with("3.3.2.12 VIOLATED: customer 1/1/"), "{text}");
    assert!(text.contains("C_BALANCE + C_YTD_PAYMENT is 5.00 instead of 0.00"), "{text}");
    assert!(text.ends_with("and 7 more of 310"), "{text}");
    assert_eq!(verdicts[0].to_string(), "3.3.2.1 holds: 3 checked");
}
