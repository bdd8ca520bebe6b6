//! The sums of a node, as its status has them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Cause, DatabaseSums, Kind, counters::BOUNDS};

/// What a node has counted since it was started, over all its databases.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Who is connected, and who was.
    pub sessions: Sessions,
    /// How transactions have ended.
    pub transactions: Transactions,
    /// Statements, and how long they took.
    pub statements: Statements,
}

/// Sessions of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sessions {
    /// How many there are.
    pub now: u64,
    /// How many of these run a statement.
    pub active: u64,
    /// How many are in a transaction and run none.
    pub idle_in_transaction: u64,
    /// How many of those that are active wait for another session's lock.
    pub waiting: u64,
    /// How many there were and are.
    pub total: u64,
    /// How many have ended because their clients were gone.
    pub abandoned: u64,
    /// How many have ended by an error.
    pub fatal: u64,
    /// How many were ended, by somebody or with the server.
    pub killed: u64,
    /// How long they had been there when each last began to do something else, in microseconds.
    pub time_us: u64,
    /// How long they have run statements, in microseconds.
    pub active_us: u64,
    /// How long they have been in transactions and have run none, in microseconds.
    pub idle_in_transaction_us: u64,
}

/// Transactions of a node.
#[derive(Clone, Debug, Serialize)]
pub struct Transactions {
    /// How many were committed, those included that only read.
    pub committed: u64,
    /// How many were rolled back, by why.
    pub rolled_back: BTreeMap<&'static str, u64>,
    /// How many deadlocks were found.
    pub deadlocks: u64,
}

/// Statements of a node.
#[derive(Clone, Debug, Serialize)]
pub struct Statements {
    /// The upper bounds of the buckets, in microseconds; one more has what took longer.
    pub bounds_us: &'static [u64],
    /// Each kind by its name.
    pub kinds: BTreeMap<&'static str, Latencies>,
}

/// The statements of a kind.
#[derive(Clone, Debug, Serialize)]
pub struct Latencies {
    /// How many there were.
    pub count: u64,
    /// How long they took, commits included, in microseconds.
    pub time_us: u64,
    /// How many took how long, by the bounds.
    pub buckets: Vec<u64>,
}

impl Summary {
    /// Of these databases; `now` has the numbers of sessions that are there.
    pub fn of<'s>(sums: impl IntoIterator<Item = &'s DatabaseSums>, now: Sessions) -> Self {
        let mut all = DatabaseSums::default();
        for sum in sums {
            all.cells.add(&sum.cells);
            all.sessions += sum.sessions;
            all.session_micros += sum.session_micros;
            all.endings.abandoned += sum.endings.abandoned;
            all.endings.fatal += sum.endings.fatal;
            all.endings.killed += sum.endings.killed;
        }
        let DatabaseSums { cells, endings, .. } = &all;
        let latencies = |kind: Kind| {
            let buckets = cells.latencies(kind).to_vec();
            Latencies { count: buckets.iter().sum(), time_us: cells.kind_micros(kind), buckets }
        };
        Self {
            sessions: Sessions {
                total: all.sessions,
                abandoned: endings.abandoned,
                fatal: endings.fatal,
                killed: endings.killed,
                time_us: all.session_micros,
                active_us: cells.active_micros(),
                idle_in_transaction_us: cells.idle_in_transaction_micros(),
                ..now
            },
            transactions: Transactions {
                committed: cells.commits(),
                rolled_back: Cause::ALL.iter().map(|cause| (cause.name(), cells.aborts(*cause))).collect(),
                deadlocks: cells.deadlocks(),
            },
            statements: Statements {
                bounds_us: &BOUNDS,
                kinds: Kind::ALL.iter().map(|kind| (kind.name(), latencies(*kind))).collect(),
            },
        }
    }
}
