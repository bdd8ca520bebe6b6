//! The one place where the parts are composed: a [`Database`], with the commit
//! pipeline of a primary or the replay pipeline of a standby.
#![forbid(unsafe_code)]

mod compare;
mod database;
mod hash;
mod indexes;
pub mod node;
pub mod scheme;
mod source;

#[cfg(debug_assertions)]
pub use compare::Break;
pub use compare::{MOST_RANGES, RangeHash, StateAnswer, StateAsk, TableState};
pub use database::{CreateTableError, Database, DropTableError};
pub use freshet_base::{Certifier, Consent, Isolation, Lsn, Rid, Safety};
pub use freshet_cluster::{flow::Mode as FeedMode, recording, relay::RelayAck, wanted::Wanted};
pub use freshet_fabric::FabricKind;
pub use freshet_log::{
    DurableError,
    persist::{Medium as PersistMedium, Method as PersistMethod},
};
pub use freshet_mirror::format as mirror_format;
pub use freshet_replication::tape;
pub use freshet_replication::{
    maintenance::Order,
    members::{ASYNCHRONOUS, STILL_COUNTED, ask_members},
    primary::VisibleWanted,
    status::{Load as StandbyLoad, PrimaryStatus, RoundTrips, StandbyStatus},
};
pub use freshet_storage::{
    Held, IndexDefinition, IndexState, KeyEncoding, KeyPart, ReadError, RowTest, Table, TableDefinition,
};
pub use freshet_txn::{
    BuildError, CommitError, Core, Direction, Inputs, LockWaitError, Message, Messages, NotRecorded, OutcomeOpen,
    ProcedureError, Record, Recorded, RowLock, Savepoint, Ticket, Transaction, Worker, WorkerError, WriteError, circle,
};
pub use hash::StateHash;
pub use indexes::{IndexBuild, IndexError};
pub use node::{
    Apply, CheckpointKind, CheckpointSettings, CheckpointStatus, DivideBy, Domain, Encoding, FabricEncryption,
    FabricSettings, Failover, ForceFenceBy, GroupCommit, LogSettings, MembershipSettings, MemoryStatus, MirrorSettings,
    Mix, MixError, Node, NodeConfig, NodeStatus, OnDoubt, OnMismatch, ProofSettings, ProofStatus, ReplayMode, Role,
    SettingError, SweepCounts, SweepSettings, SweepStatus, WitnessSettings,
};
pub use scheme::{
    command::{CommandExecutor, Executors, executors, log_as, record_as, record_with, record_with_reads, recorded_as},
    inputs::{AgainStatus, Layout, VerifyError, VerifyOptions, VerifyReport, verify},
};
