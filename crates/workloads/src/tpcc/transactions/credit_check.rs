//! Credit-Check, which TPC-C+ adds (Cahill, Röhm, Fekete: "Serializable Isolation for Snapshot
//! Databases", 2008, section 5.3; there the mix is called TPC-C++).
//!
//! A customer's credit is good as long as what he owes, and what he has ordered and not been
//! delivered yet, is within his limit. The undelivered orders are found from NEW-ORDER: the
//! transaction reads all of a district's, which takes many times longer than the other
//! transactions, and one of the rows that it reads it writes.

use std::ops::{Bound, ControlFlow};

use super::{NO_CUSTOMER, input, keys, outcome};
use crate::{
    engine::{Direction, ProcedureError, Transaction},
    row::Text,
    tpcc::{
        rows::{Customer, NewOrderRow, Order, OrderLine},
        tables::Tables,
    },
};

/// Sums up what a customer owes and will owe, and says whether his credit is good.
pub(super) fn credit_check(
    txn: &Transaction<'_>,
    tables: &Tables,
    input: &input::CreditCheck,
) -> Result<outcome::CreditCheck, ProcedureError> {
    let (w, d) = (input.warehouse, input.district);
    let customer = tables.customer.need(txn, &keys::customer(w, d, input.customer), NO_CUSTOMER)?;
    let (balance, limit) = (customer.row.get(Customer::BALANCE), customer.row.get(Customer::CREDIT_LIMIT));
    let (orders, ordered) = undelivered(txn, tables, input)?;
    let credit = if balance.saturating_add(ordered) > limit { Text(*b"BC") } else { Text(*b"GC") };
    tables.customer.update(txn, customer.rid, &customer.row.to_row().with(Customer::CREDIT, credit))?;
    Ok(outcome::CreditCheck { orders, ordered, balance, limit, credit })
}

/// How many orders of the customer's are not delivered yet, and the sum of their lines, in cents.
fn undelivered(
    txn: &Transaction<'_>,
    tables: &Tables,
    input: &input::CreditCheck,
) -> Result<(u32, i64), ProcedureError> {
    let (w, d) = (input.warehouse, input.district);
    let (low, high) = (keys::order(w, d, 0), keys::order(w, d, u32::MAX));
    let range = (Bound::Included(low.as_slice()), Bound::Included(high.as_slice()));
    let mut new = Vec::new();
    tables.new_order.scan(txn, 0, range, Direction::Forward, |found| {
        new.push(found.row.get(NewOrderRow::O_ID));
        ControlFlow::Continue(())
    })?;
    let (mut orders, mut sum) = (0, 0i64);
    for id in new {
        let order = tables.orders.need(txn, &keys::order(w, d, id), "a new order has no order")?;
        if order.row.get(Order::C_ID) == input.customer {
            orders += 1;
            sum = sum.saturating_add(amount(txn, tables, input, id)?);
        }
    }
    Ok((orders, sum))
}

/// The sum of an order's lines, in cents.
fn amount(
    txn: &Transaction<'_>,
    tables: &Tables,
    input: &input::CreditCheck,
    order: u32,
) -> Result<i64, ProcedureError> {
    let (w, d) = (input.warehouse, input.district);
    let (low, high) = (keys::order_line(w, d, order, 0), keys::order_line(w, d, order, u8::MAX));
    let range = (Bound::Included(low.as_slice()), Bound::Included(high.as_slice()));
    let mut sum = 0i64;
    tables.order_line.scan(txn, 0, range, Direction::Forward, |found| {
        sum = sum.saturating_add(found.row.get(OrderLine::AMOUNT).into());
        ControlFlow::Continue(())
    })?;
    Ok(sum)
}
