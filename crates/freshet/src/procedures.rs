//! What benchmarks call at their nodes.
//!
//! | procedure | input | returns |
//! |---|---|---|
//! | `tpcc/load` | [`LoadTpcc`] | the [`Population`]; makes the tables first |
//! | `tpcc/progress` | nothing | how many rows have been loaded |
//! | `tpcc/population` | nothing | the [`Population`] |
//! | `tpcc/run` | [`tpcc::input::Request`] | [`tpcc::outcome::Outcome`] |
//! | `tpcc/check` | nothing | a [`tpcc::consistency::Verdict`] for each of the conditions 1 to 12 |
//! | `journal/create` | nothing | nothing; makes the table when it is not there |
//! | `journal/write` | [`Mark`] | nothing |
//! | `journal/missing` | a list of [`Mark`]s | those that are not there |

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use freshet_base::Isolation;
use freshet_engine::{Database, Ticket, Worker};
use freshet_workloads::{
    TableSet,
    journal::{self, JournalRow, Mark},
    procedure::read_only,
    table::Typed,
    tpcc::{self, consistency, load, population::Population, tables::Tables},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    protocol::Call,
    server::{
        Host,
        procedures::{AT_ONCE, CallError, Procedures},
    },
};

/// The input of `tpcc/load`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct LoadTpcc {
    /// What the tables are filled with at first.
    pub(crate) population: Population,
    /// With this many threads.
    pub(crate) threads: u16,
}

/// TPC-C and the journal of acknowledged transactions.
pub struct Tpcc {
    isolation: Isolation,
    tpcc: OnceLock<Tables>,
    journal: OnceLock<Typed<JournalRow>>,
    loaded: AtomicU64,
}

/// A procedure's input, from a client.
fn input<T: DeserializeOwned>(call: &Call) -> Result<T, CallError> {
    postcard::from_bytes(&call.arguments)
        .map_err(|cause| CallError::Refused(format!("{}: the input cannot be understood: {cause}", call.procedure)))
}

/// A procedure's result, for a client.
fn output<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("results can be encoded")
}

impl Procedures for Tpcc {
    fn is_long(&self, procedure: &str) -> bool {
        matches!(procedure, "tpcc/load" | "tpcc/check" | "journal/create" | "journal/missing")
    }

    fn answer_at_once(&self, _host: &Arc<dyn Host>, call: &Call) -> Option<Result<Vec<u8>, String>> {
        (call.procedure == "tpcc/progress").then(|| Ok(output(&self.loaded.load(Ordering::Relaxed))))
    }

    fn run(&self, database: &Database, worker: &Worker, call: &Call) -> Result<(Vec<u8>, Ticket), CallError> {
        match call.procedure.as_str() {
            "tpcc/run" => {
                let (outcome, ticket) = tpcc::run(worker, self.tpcc(database)?, self.isolation, &input(call)?)?;
                Ok((output(&outcome), ticket))
            }
            "tpcc/population" => {
                let tables = self.tpcc(database)?;
                let (population, ticket) = read_only(worker, |txn| tables.population(txn))?;
                Ok((output(&population), ticket))
            }
            "tpcc/check" => {
                let tables = self.tpcc(database)?;
                let (verdicts, ticket) = read_only(worker, |txn| consistency::check(txn, tables))?;
                Ok((output(&verdicts), ticket))
            }
            "tpcc/load" => self.load_tpcc(database, input(call)?),
            "journal/create" => {
                if database.table(&journal::definition().name).is_none() {
                    database.create_table(&journal::definition())?;
                }
                Ok((Vec::new(), AT_ONCE))
            }
            "journal/write" => {
                let (journal, mark) = (self.journal(database)?, input::<Mark>(call)?);
                let ((), ticket) = worker.execute(self.isolation, |txn| journal.write(txn, mark))?;
                Ok((Vec::new(), ticket))
            }
            "journal/missing" => {
                let (journal, marks) = (self.journal(database)?, input::<Vec<Mark>>(call)?);
                let (missing, ticket) = read_only(worker, |txn| journal.missing(txn, marks.iter().copied()))?;
                Ok((output(&missing), ticket))
            }
            unknown => Err(CallError::Refused(format!("there is no procedure {unknown:?}"))),
        }
    }
}

impl Tpcc {
    /// Transactions that write run at this level.
    #[must_use]
    pub fn new(isolation: Isolation) -> Self {
        Self { isolation, tpcc: OnceLock::new(), journal: OnceLock::new(), loaded: AtomicU64::new(0) }
    }

    fn tpcc(&self, database: &Database) -> Result<&Tables, CallError> {
        if let Some(tables) = self.tpcc.get() {
            return Ok(tables);
        }
        let tables = Tables::open(database).map_err(|absent| CallError::Refused(absent.to_string()))?;
        Ok(self.tpcc.get_or_init(|| tables))
    }

    fn journal(&self, database: &Database) -> Result<&Typed<JournalRow>, CallError> {
        if let Some(table) = self.journal.get() {
            return Ok(table);
        }
        let table = Typed::open(database).map_err(|absent| CallError::Refused(absent.to_string()))?;
        Ok(self.journal.get_or_init(|| table))
    }

    fn load_tpcc(&self, database: &Database, order: LoadTpcc) -> Result<(Vec<u8>, Ticket), CallError> {
        let refused = |cause: String| CallError::Refused(cause);
        order.population.scale.check().map_err(|cause| refused(cause.to_string()))?;
        let tables = Tables::create(database)?;
        self.loaded.store(0, Ordering::Relaxed);
        let progress = |rows| {
            self.loaded.fetch_add(rows, Ordering::Relaxed);
        };
        let threads = usize::from(order.threads).clamp(1, 2);
        let ticket = load::load(database, &tables, &order.population, threads, &progress)
            .map_err(|cause| CallError::RolledBack(cause.to_string()))?;
        Ok((output(&order.population), ticket.unwrap_or(AT_ONCE)))
    }
}
