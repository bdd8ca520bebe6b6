//! The five transactions (clauses 2.4 to 2.8), and the one that TPC-C+ adds.
//!
//! They allocate nothing: keys and changed rows are on the stack, rows are read
//! where they are stored.
//!
//! Order-Status and Stock-Level read a snapshot, which is a state between two
//! commits and so serializable without further ado. Delivery is the deferred part
//! of clause 2.7.2: queueing it is the driver's business.

mod credit_check;
mod delivery;
mod new_order;
mod order_status;
mod payment;
mod stock_level;

use std::ops::{Bound, ControlFlow};

use freshet_base::Isolation;

use super::{
    command,
    input::{self, Input, Request},
    keys,
    outcome::{self, Outcome},
    rows::Customer,
    tables::{BY_NAME, Tables},
};
use crate::{
    engine::{Direction, ProcedureError, Ticket, Transaction, Worker},
    procedure::{read_only, reading},
    row::Text,
    table::{Found, missing},
};

/// Runs a request as one transaction, several times if it loses races. On a standby only the
/// reading ones run.
///
/// The ticket tells when the outcome may be shown: it covers what was written and what was read.
///
/// # Errors
/// When the transaction could not be done, or is to work on what does not exist. It has left
/// no trace then. An order that is rolled back because of an unused item is no error, but
/// [`Outcome::RolledBack`].
pub fn run(
    worker: &Worker,
    tables: &Tables,
    isolation: Isolation,
    request: &Request,
) -> Result<(Outcome, Ticket), ProcedureError> {
    run_then(worker, tables, isolation, request, |txn| command::record(txn, request))
}

/// Runs a request; `then` is called with the transaction before it commits, if it changes anything.
pub(super) fn run_then(
    worker: &Worker,
    tables: &Tables,
    isolation: Isolation,
    request: &Request,
    then: impl Fn(&Transaction<'_>),
) -> Result<(Outcome, Ticket), ProcedureError> {
    if request.input.kind().is_read_only() {
        return reading(worker, isolation, |txn| transact(txn, tables, request));
    }
    // An order that is rolled back has an outcome nonetheless.
    let mut rolled_back = None;
    let result = worker.execute(isolation, |txn| match transact(txn, tables, request)? {
        Outcome::RolledBack(outcome) => {
            rolled_back = Some(outcome);
            missing("item number is not valid")
        }
        outcome => {
            rolled_back = None;
            then(txn);
            Ok(outcome)
        }
    });
    match (result, rolled_back) {
        (Err(ProcedureError::Aborted(_)), Some(outcome)) => {
            // What it displays was read, so it waits for that.
            let ((), ticket) = read_only(worker, |_| Ok(()))?;
            Ok((Outcome::RolledBack(outcome), ticket))
        }
        (result, _) => result,
    }
}

/// Does what a request asks for within a transaction of the caller, who commits it, or rolls it
/// back on an error and on [`Outcome::RolledBack`].
///
/// # Errors
/// As [`run`].
#[inline]
pub fn transact(txn: &Transaction<'_>, tables: &Tables, request: &Request) -> Result<Outcome, ProcedureError> {
    let outcome = match &request.input {
        Input::NewOrder(input) => new_order::new_order(txn, tables, input)?,
        Input::Payment(input) => Outcome::Payment(payment::payment(txn, tables, input)?),
        Input::OrderStatus(input) => Outcome::OrderStatus(order_status::order_status(txn, tables, input)?),
        Input::Delivery(input) => Outcome::Delivery(delivery::delivery(txn, tables, input)?),
        Input::StockLevel(input) => Outcome::StockLevel(stock_level::stock_level(txn, tables, input)?),
        Input::CreditCheck(input) => Outcome::CreditCheck(credit_check::credit_check(txn, tables, input)?),
    };
    if let Some(mark) = request.mark
        && !request.input.kind().is_read_only()
        && !matches!(outcome, Outcome::RolledBack(_))
    {
        tables.journal.write(txn, mark)?;
    }
    Ok(outcome)
}

const NO_WAREHOUSE: &str = "there is no such warehouse";
const NO_DISTRICT: &str = "there is no such district";
const NO_CUSTOMER: &str = "there is no such customer";
const TOO_MANY_LINES: &str = "an order has more than 15 lines: the database is damaged";

/// The customer that an input names (clauses 2.5.2.2 and 2.6.2.2).
#[inline]
fn customer<'t>(
    txn: &'t Transaction<'_>,
    tables: &Tables,
    warehouse: u16,
    district: u8,
    customer: input::Customer,
) -> Result<Found<'t, Customer>, ProcedureError> {
    match customer {
        input::Customer::Number(number) => {
            tables.customer.need(txn, &keys::customer(warehouse, district, number), NO_CUSTOMER)
        }
        input::Customer::LastName(last) => customer_named(txn, tables, warehouse, district, last),
    }
}

/// Of the `n` customers with this last name, in the order of their first names, the one at position
/// `n/2` rounded up.
fn customer_named<'t>(
    txn: &'t Transaction<'_>,
    tables: &Tables,
    warehouse: u16,
    district: u8,
    last: Text<16>,
) -> Result<Found<'t, Customer>, ProcedureError> {
    /// More than share a name in a population by the specification, give or take very few.
    const REMEMBERED: usize = 24;
    let (low, high) = keys::customers_named(warehouse, district, last);
    let range = (Bound::Included(low.as_slice()), Bound::Included(high.as_slice()));
    let mut remembered = [None; REMEMBERED];
    let mut count = 0;
    tables.customer.scan(txn, BY_NAME, range, Direction::Forward, |found| {
        if let Some(place) = remembered.get_mut(count) {
            *place = Some(found);
        }
        count += 1;
        ControlFlow::Continue(())
    })?;
    if count == 0 {
        return missing(NO_CUSTOMER);
    }
    let middle = count.div_ceil(2) - 1;
    let mut found = remembered.get(middle).copied().flatten();
    if found.is_none() {
        // Too many for the middle one to be remembered.
        let mut position = 0;
        tables.customer.scan(txn, BY_NAME, range, Direction::Forward, |candidate| {
            if position == middle {
                found = Some(candidate);
                return ControlFlow::Break(());
            }
            position += 1;
            ControlFlow::Continue(())
        })?;
    }
    match found {
        Some(found) => Ok(found),
        None => missing(NO_CUSTOMER),
    }
}
