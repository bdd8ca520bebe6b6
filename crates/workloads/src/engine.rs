//! The engine's public interface, as far as workloads use it: one place to see it all.

pub(crate) use freshet_base::Fid;
pub(crate) use freshet_engine::{
    CommandExecutor, CreateTableError, Database, Direction, IndexDefinition, KeyPart, ProcedureError, Record, Table,
    TableDefinition, Ticket, Transaction, Worker, WorkerError, WriteError, log_as, record_with, record_with_reads,
};
