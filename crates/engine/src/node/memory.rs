//! How much memory a node takes, and may take ([`freshet_txn::Memory`]).

use freshet_base::memory::{Owner, Usage};
use freshet_txn::Core;
use serde::{Serialize, Serializer};

use super::Node;

/// The memory of a node.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MemoryStatus {
    /// What it takes, in bytes.
    pub used: u64,
    /// What of that takes how much.
    #[serde(serialize_with = "by_owner")]
    pub owners: Usage,
    /// What it may take, if there is a limit.
    pub limit: Option<u64>,
    /// What of the rows is old versions that go when no snapshot needs them any more.
    pub kept_for_snapshots: u64,
    /// Nearly all of the limit is taken: statements that add rows are refused.
    pub full: bool,
}

fn by_owner<S: Serializer>(usage: &Usage, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(Owner::ALL.map(|owner| (owner.key(), usage.of(owner))))
}

impl MemoryStatus {
    pub(super) fn of(core: &Core) -> Self {
        let (full, kept_for_snapshots) = (core.memory.measure(), core.kept_for_snapshots());
        let owners = core.memory.used();
        Self { used: owners.total(), owners, limit: core.memory.limit(), kept_for_snapshots, full }
    }
}

impl Node {
    /// Its memory. Cheap.
    pub fn memory(&self) -> MemoryStatus {
        MemoryStatus::of(self.database.core())
    }

    /// Whether sessions and statements may take this many bytes more
    /// ([`freshet_txn::Memory::admits`]). Cheap.
    pub fn admits_statements(&self, bytes: u64) -> bool {
        self.database.core().memory.admits(bytes)
    }

    /// From now on it may take this many bytes; 0: as many as there are.
    pub fn set_memory_bytes(&self, bytes: u64) {
        self.database.core().memory.set_limit(bytes);
    }
}
