//! TPC-C as commands: the log says what transactions were told, and standbys execute them again
//! (Query Fresh, section 4.3, "Logical"). For benchmarks only; see the engine's `CommandExecutor`
//! for what must hold. Terminals must be at home
//! ([`Terminal::at_home`](super::input::Terminal::at_home)): then warehouses are partitions.

use std::sync::OnceLock;

use freshet_base::Isolation;

use super::{
    input::{Input, Kind, Request},
    outcome::Outcome,
    tables::Tables,
    transactions::{run_then, transact},
};
use crate::{
    engine::{CommandExecutor, ProcedureError, Ticket, Transaction, Worker, log_as},
    table::{TableSet, missing},
};

/// The id of a transaction as a stored procedure.
fn procedure(kind: Kind) -> u32 {
    Kind::ALL.iter().position(|other| *other == kind).map_or(0, |place| place as u32 + 1)
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
    let warehouse = match &request.input {
        Input::NewOrder(input) => input.warehouse,
        Input::Payment(input) => input.warehouse,
        Input::OrderStatus(input) => input.warehouse,
        Input::Delivery(input) => input.warehouse,
        Input::StockLevel(input) => input.warehouse,
    };
    run_then(worker, tables, isolation, request, |txn| {
        let inputs = postcard::to_stdvec(request).expect("requests can be written down");
        log_as(txn, procedure(request.input.kind()), warehouse.into(), &inputs);
    })
}

/// Executes TPC-C's transactions again.
#[derive(Debug, Default)]
pub struct Commands {
    tables: OnceLock<Tables>,
}

impl CommandExecutor for Commands {
    fn execute(&self, txn: &Transaction<'_>, id: u32, inputs: &[u8]) -> Result<(), ProcedureError> {
        let tables = match self.tables.get() {
            Some(tables) => tables,
            None => {
                let tables = Tables::open(txn).map_err(|absent| ProcedureError::Aborted(absent.to_string().into()))?;
                self.tables.get_or_init(|| tables)
            }
        };
        let Ok(request) = postcard::from_bytes::<Request>(inputs) else {
            return missing("the inputs of a command are not those of a transaction of TPC-C");
        };
        if procedure(request.input.kind()) != id {
            return missing("a command names another transaction than its inputs are for");
        }
        match transact(txn, tables, &request)? {
            Outcome::RolledBack(_) => missing("a command was rolled back that had committed"),
            _ => Ok(()),
        }
    }
}
