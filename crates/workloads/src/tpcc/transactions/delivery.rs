//! Delivery (clause 2.7): one order in each of the ten districts, in one transaction.

use std::ops::{Bound, ControlFlow};

use super::{NO_CUSTOMER, TOO_MANY_LINES, input, keys, outcome};
use crate::{
    engine::{Direction, ProcedureError, Transaction},
    list::List,
    table::missing,
    tpcc::{
        population::{DISTRICTS, MOST_LINES},
        rows::{Customer, NewOrderRow, Order, OrderLine},
        tables::Tables,
    },
};

/// Clause 2.7.4.2. A district without new orders is skipped.
pub(super) fn delivery(
    txn: &Transaction<'_>,
    tables: &Tables,
    input: &input::Delivery,
) -> Result<outcome::Delivery, ProcedureError> {
    let mut outcome = outcome::Delivery { carrier: input.carrier, ..Default::default() };
    for district in 1..=DISTRICTS {
        if let Some(order) = deliver_oldest(txn, tables, input, district)? {
            outcome.orders[usize::from(district) - 1] = order;
        }
    }
    Ok(outcome)
}

/// Delivers the oldest new order of a district and returns its number.
fn deliver_oldest(
    txn: &Transaction<'_>,
    tables: &Tables,
    input: &input::Delivery,
    d: u8,
) -> Result<Option<u32>, ProcedureError> {
    let w = input.warehouse;
    let (low, high) = (keys::order(w, d, 0), keys::order(w, d, u32::MAX));
    let range = (Bound::Included(low.as_slice()), Bound::Included(high.as_slice()));
    let mut oldest = None;
    tables.new_order.scan(txn, 0, range, Direction::Forward, |found| {
        oldest = Some(found);
        ControlFlow::Break(())
    })?;
    let Some(new_order) = oldest else { return Ok(None) };
    let id = new_order.row.get(NewOrderRow::O_ID);
    tables.new_order.delete(txn, new_order.rid)?;

    let order = tables.orders.need(txn, &keys::order(w, d, id), "a new order has no order")?;
    let mut changed = order.row.to_row();
    changed.set(Order::CARRIER_ID, input.carrier);
    tables.orders.update(txn, order.rid, &changed)?;

    let amount = deliver_lines(txn, tables, input, d, id)?;
    let number = changed.get(Order::C_ID);
    let customer = tables.customer.need(txn, &keys::customer(w, d, number), NO_CUSTOMER)?;
    let mut changed = customer.row.to_row();
    changed.set(Customer::BALANCE, changed.get(Customer::BALANCE).wrapping_add(amount));
    changed.set(Customer::DELIVERY_COUNT, changed.get(Customer::DELIVERY_COUNT).wrapping_add(1));
    tables.customer.update(txn, customer.rid, &changed)?;
    Ok(Some(id))
}

/// Marks an order's lines as delivered and returns the sum of their amounts.
fn deliver_lines(
    txn: &Transaction<'_>,
    tables: &Tables,
    input: &input::Delivery,
    d: u8,
    order: u32,
) -> Result<i64, ProcedureError> {
    let w = input.warehouse;
    let (low, high) = (keys::order_line(w, d, order, 0), keys::order_line(w, d, order, u8::MAX));
    let range = (Bound::Included(low.as_slice()), Bound::Included(high.as_slice()));
    // First all are found, then they are changed: a scan does not watch its own table change.
    let mut lines = List::<_, MOST_LINES>::new();
    let mut fits = true;
    tables.order_line.scan(txn, 0, range, Direction::Forward, |found| {
        fits &= lines.push(Some(found));
        ControlFlow::Continue(())
    })?;
    if !fits {
        return missing(TOO_MANY_LINES);
    }
    let mut sum = 0i64;
    for line in lines.iter().flatten() {
        let mut changed = line.row.to_row();
        sum = sum.wrapping_add(i64::from(changed.get(OrderLine::AMOUNT)));
        changed.set(OrderLine::DELIVERY_D, input.delivered_at);
        tables.order_line.update(txn, line.rid, &changed)?;
    }
    Ok(sum)
}
