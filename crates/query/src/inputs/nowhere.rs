//! No server: what a statement that is executed again asks of one was captured.

use std::sync::Arc;

use freshet_engine::NodeStatus;
use freshet_sql::{SqlError, types::Timestamp};

use crate::{
    advisory::AdvisoryLock,
    locks::TableLock,
    schema::{Oid, Sequence, TableInfo},
    sequence::Position,
    system::{
        SessionInfo, SystemView,
        activity::{Registry, Wait},
        size::TableSize,
    },
};

/// A server that nothing is known about.
#[derive(Debug)]
pub(super) struct Nowhere;

impl SystemView for Nowhere {
    fn started(&self) -> Timestamp {
        Timestamp(0)
    }

    fn is_standby(&self) -> bool {
        true
    }

    fn sessions(&self) -> Vec<Arc<SessionInfo>> {
        Vec::new()
    }

    fn registry(&self) -> Option<&Registry> {
        None
    }

    fn table_locks(&self) -> Vec<TableLock> {
        Vec::new()
    }

    fn advisory_locks(&self) -> Vec<AdvisoryLock> {
        Vec::new()
    }

    fn wait(&self, _: usize) -> Option<Wait> {
        None
    }

    fn status(&self) -> Option<NodeStatus> {
        None
    }

    fn approximate_rows(&self, _: &TableInfo) -> Option<u64> {
        None
    }

    fn table_size(&self, _: &TableInfo) -> Option<TableSize> {
        None
    }

    fn database_size(&self, _: Oid) -> Option<u64> {
        None
    }

    fn sequence_position(&self, sequence: &Sequence) -> Result<Position, SqlError> {
        Err(SqlError::internal(format!("where \"{}\" stands was not captured", sequence.name)))
    }
}
