//! Transactions: snapshots, execution, certification, and the way to the log.
//!
//! On the primary a transaction goes one way: *execute* (reads a snapshot, puts
//! uncommitted versions at chain heads), *certify* (takes its LSN, looks at its reads again),
//! *log* (copies its block into the log). What follows, *persist*, *ship*, *ack* and
//! *commit*, happens elsewhere; the [`Ticket`] that [`Transaction::commit`] returns
//! resolves when it has.
#![forbid(unsafe_code)]

mod again;
mod build;
mod certify;
mod commit;
mod core;
mod definitions;
mod error;
mod garbage;
mod gate;
mod identity;
mod inputs;
mod insert;
mod lock;
mod memory;
mod messages;
mod plan;
mod procedure;
mod read;
mod record;
mod rids;
mod row_locks;
mod savepoint;
mod snapshots;
mod state;
mod transaction;
mod waits;
mod worker;
mod write;

pub use freshet_base::RowLock;

pub use self::{
    again::{Entry, Mismatch, Past},
    build::{Batch, BuildError},
    core::{Core, MarkError},
    error::{CommitError, ProcedureError, WriteError},
    garbage::Collector,
    gate::{CommitGate, NotAdmitted, OpenGate, OutcomeOpen, Ticket},
    memory::Memory,
    messages::{Message, Messages},
    procedure::RETRIES,
    read::{Direction, Record},
    record::{Inputs, InputsAsked, InputsDemand, NotRecorded, Recorded},
    savepoint::Savepoint,
    snapshots::{Primary, Snapshots},
    transaction::Transaction,
    waits::{LockWaitError, circle},
    worker::{Rollbacks, Worker, WorkerError},
};
