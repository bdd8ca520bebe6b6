//! Procedures as the log names them: which one had which inputs, so that it can be executed again.
//!
//! On a primary that records inputs every writing procedure records its inputs, beside what it did.
//! [`Commands`] executes that again. The numbers of procedures stand in logs, so they never change
//! their meaning.

use std::sync::OnceLock;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    engine::{CommandExecutor, Fid, ProcedureError, Transaction, record_with, record_with_reads},
    table::{TableSet, missing},
    tatp, tpcb, tpcc,
    ycsb::{self, Scratch, mix::Shape},
};

/// The last of TPC-C's, which begin with 1.
pub(crate) const LAST_OF_TPCC: u32 = 6;
/// YCSB's.
pub(crate) const YCSB: u32 = 16;
/// TPC-B's.
pub(crate) const TPCB: u32 = 17;
/// TATP's.
pub(crate) const TATP: u32 = 18;

const WRITTEN: &str = "what a procedure is told can be written down";

/// A procedure's inputs, in bytes.
pub(crate) fn encoded(inputs: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(inputs).expect(WRITTEN)
}

fn decoded<T: DeserializeOwned>(inputs: &[u8]) -> Result<T, ProcedureError> {
    match postcard::from_bytes(inputs) {
        Ok(inputs) => Ok(inputs),
        Err(_) => missing("the inputs of a command are not those of its procedure"),
    }
}

/// Records the transaction's inputs, if the node does that. At its end, before the commit.
#[inline]
pub(crate) fn record(txn: &Transaction<'_>, procedure: u32, inputs: &impl Serialize) {
    if txn.records_inputs() {
        record_with(txn, procedure, |body| {
            *body = postcard::to_extend(inputs, std::mem::take(body)).expect(WRITTEN);
        });
    }
}

/// Which of what a transaction has read is recorded, for standbys with locks (Calvin, a baseline).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadSet {
    /// All.
    All,
    /// What is in tables that the workload's transactions write ("Calvin Optimized", Record-Replay,
    /// section 6.2).
    Written,
}

/// As [`record`], with what the transaction has read, but for what is in the tables `constant`
/// where these are left out.
pub(crate) fn record_reading(
    txn: &Transaction<'_>,
    (procedure, inputs): (u32, &impl Serialize),
    reads: ReadSet,
    constant: &[Fid],
) {
    if txn.records_inputs() {
        let counts = |fid| reads == ReadSet::All || !constant.contains(&fid);
        record_with_reads(txn, procedure, counts, |body| {
            *body = postcard::to_extend(inputs, std::mem::take(body)).expect(WRITTEN);
        });
    }
}

/// Executes the procedures of all workloads again.
#[derive(Debug, Default)]
pub struct Commands {
    tpcc: OnceLock<tpcc::tables::Tables>,
    ycsb: OnceLock<(ycsb::Tables, Shape)>,
    tpcb: OnceLock<tpcb::Tables>,
    tatp: OnceLock<tatp::Tables>,
}

/// What a workload's procedures need, opened once.
fn opened<T>(kept: &OnceLock<T>, open: impl FnOnce() -> Result<T, ProcedureError>) -> Result<&T, ProcedureError> {
    match kept.get() {
        Some(known) => Ok(known),
        None => open().map(|opened| kept.get_or_init(|| opened)),
    }
}

fn tables<T: TableSet>(txn: &Transaction<'_>) -> Result<T, ProcedureError> {
    T::open(txn).map_err(|absent| ProcedureError::Aborted(absent.to_string().into()))
}

impl CommandExecutor for Commands {
    fn execute(&self, txn: &Transaction<'_>, procedure: u32, inputs: &[u8]) -> Result<(), ProcedureError> {
        match procedure {
            1..=LAST_OF_TPCC => {
                let tables = opened(&self.tpcc, || tables(txn))?;
                tpcc::command::execute(txn, tables, procedure, &decoded(inputs)?)
            }
            YCSB => {
                let open = || {
                    let tables: ycsb::Tables = tables(txn)?;
                    tables.population(txn).map(|population| (tables, population.shape))
                };
                let (tables, shape) = opened(&self.ycsb, open)?;
                ycsb::write(txn, tables, &decoded(inputs)?, &mut Scratch::new(*shape)).map(drop)
            }
            TPCB => tpcb::transact(txn, opened(&self.tpcb, || tables(txn))?, &decoded(inputs)?).map(drop),
            TATP => tatp::transact(txn, opened(&self.tatp, || tables(txn))?, &decoded(inputs)?).map(drop),
            _ => missing("a command names no procedure"),
        }
    }
}
