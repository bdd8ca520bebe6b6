//! Order-Status (clause 2.6).

use std::ops::{Bound, ControlFlow};

use super::{customer, input, keys, outcome};
use crate::{
    engine::{Direction, ProcedureError, Transaction},
    list::List,
    table::missing,
    tpcc::{
        rows::{Customer, Order, OrderLine},
        tables::{BY_CUSTOMER, Tables},
    },
};

/// Clause 2.6.2.2, step by step.
pub(super) fn order_status(
    txn: &Transaction<'_>,
    tables: &Tables,
    input: &input::OrderStatus,
) -> Result<outcome::OrderStatus, ProcedureError> {
    let (w, d) = (input.warehouse, input.district);
    let customer = customer(txn, tables, w, d, input.customer)?.row;
    let number = customer.get(Customer::ID);

    let (low, high) = (keys::order_of_customer(w, d, number, 0), keys::order_of_customer(w, d, number, u32::MAX));
    let range = (Bound::Included(low.as_slice()), Bound::Included(high.as_slice()));
    let mut latest = None;
    tables.orders.scan(txn, BY_CUSTOMER, range, Direction::Backward, |found| {
        latest = Some(found.row);
        ControlFlow::Break(())
    })?;
    let Some(order) = latest else { return missing("the customer has no order") };

    let mut lines = List::new();
    let mut fits = true;
    let id = order.get(Order::ID);
    let (low, high) = (keys::order_line(w, d, id, 0), keys::order_line(w, d, id, u8::MAX));
    let range = (Bound::Included(low.as_slice()), Bound::Included(high.as_slice()));
    tables.order_line.scan(txn, 0, range, Direction::Forward, |found| {
        fits &= lines.push(outcome::StatusLine {
            item: found.row.get(OrderLine::I_ID),
            supply_warehouse: found.row.get(OrderLine::SUPPLY_W_ID),
            quantity: found.row.get(OrderLine::QUANTITY),
            amount: found.row.get(OrderLine::AMOUNT),
            delivered_at: found.row.get(OrderLine::DELIVERY_D),
        });
        ControlFlow::Continue(())
    })?;
    if !fits {
        return missing(super::TOO_MANY_LINES);
    }
    Ok(outcome::OrderStatus {
        customer: number,
        first: customer.get(Customer::FIRST),
        middle: customer.get(Customer::MIDDLE),
        last: customer.get(Customer::LAST),
        balance: customer.get(Customer::BALANCE),
        order: id,
        entered_at: order.get(Order::ENTRY_D),
        carrier: order.get(Order::CARRIER_ID),
        lines,
    })
}
