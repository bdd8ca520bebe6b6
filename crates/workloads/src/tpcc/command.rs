//! TPC-C as commands: what the log says that transactions were told, beside what they did or, for
//! comparisons, in the place of that (Query Fresh, section 4.3, "Logical"; see the engine's
//! `CommandExecutor` for what must hold then). For the latter terminals must be at home
//! ([`Terminal::at_home`](super::input::Terminal::at_home)): then warehouses are partitions.

use freshet_base::Isolation;

use super::{
    input::{Kind, Request},
    outcome::Outcome,
    tables::Tables,
    transactions::{run_then, transact},
};
pub use crate::command::{Commands, ReadSet};
use crate::{
    command::{self, encoded},
    engine::{ProcedureError, Ticket, Transaction, Worker, log_as},
    table::missing,
};

/// The id of a transaction as a stored procedure.
fn procedure(kind: Kind) -> u32 {
    kind as u32 + 1
}

/// As [`run`](super::transactions::run), but what is logged is the request.
///
/// # Errors
/// As there.
pub fn run_as_command(
    worker: &Worker,
    tables: &Tables,
    isolation: Isolation,
    request: &Request,
) -> Result<(Outcome, Ticket), ProcedureError> {
    run_then(worker, tables, isolation, request, |txn| {
        log_as(txn, procedure(request.input.kind()), request.input.warehouse().into(), &encoded(request));
    })
}

/// As [`run`](super::transactions::run), and what the transaction has read is recorded too, where
/// inputs are. For standbys with locks.
///
/// # Errors
/// As there.
pub fn run_with_reads(
    worker: &Worker,
    tables: &Tables,
    isolation: Isolation,
    request: &Request,
    reads: ReadSet,
) -> Result<(Outcome, Ticket), ProcedureError> {
    run_then(worker, tables, isolation, request, |txn| {
        let constant = [tables.item.fid(), tables.stock_data.fid()];
        command::record_reading(txn, (procedure(request.input.kind()), request), reads, &constant);
    })
}

/// The transaction has done what `request` says.
pub(super) fn record(txn: &Transaction<'_>, request: &Request) {
    command::record(txn, procedure(request.input.kind()), request);
}

/// Executes a transaction again that has committed.
pub(crate) fn execute(
    txn: &Transaction<'_>,
    tables: &Tables,
    id: u32,
    request: &Request,
) -> Result<(), ProcedureError> {
    if procedure(request.input.kind()) != id {
        return missing("a command names another transaction than its inputs are for");
    }
    match transact(txn, tables, request)? {
        Outcome::RolledBack(_) => missing("a command was rolled back that had committed"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procedures_keep_their_numbers() {
        let numbers = [
            (Kind::NewOrder, 1),
            (Kind::Payment, 2),
            (Kind::OrderStatus, 3),
            (Kind::Delivery, 4),
            (Kind::StockLevel, 5),
            (Kind::CreditCheck, command::LAST_OF_TPCC),
        ];
        assert_eq!(numbers.map(|(kind, _)| kind), Kind::ALL);
        for (kind, number) in numbers {
            assert_eq!(procedure(kind), number);
        }
    }
}
