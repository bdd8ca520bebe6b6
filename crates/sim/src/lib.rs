//! A whole cluster in one thread: the state machines of crate `cluster`, bound to a clock, a
//! network and disks that a seed drives. What production binds to threads, sockets and files is
//! bound here to events; the decisions are the same code.
//!
//! | module | is |
//! |---|---|
//! | [`scenario`] | what is simulated, and what is got wrong on purpose |
//! | `world` | the clock, the faults, the clients, the operator |
//! | `net` | connections: delays, losses, partitions |
//! | `node`, `log` | what a crash leaves of a node; logs as sequences of blocks that have contents |
//! | `feeding`, `committing`, `following`, `candidacy` | the drivers: primary and relay, standby, failover and restart |
//! | `watching`, `maintenance` | when nodes stand by themselves, and when they do not |
//! | `upstream`, `entering` | whom a node follows, and what it does before |
//! | `disks` | disks that are lost and replaced; beginning with a checkpoint |
//! | `mirror` | nodes whose memory a primary writes, and the rows in it |
//! | `content` | standbys that execute transactions again: versions, indexes, journal, checkpoints |
//! | `one_sided` | memory into which another node writes, and processes that stand still |
//! | [`sabotage`] | drivers that do not do what the machines say |
//! | [`checks`] | the properties, a file each |
//!
//! Fault model. Messages are delayed, and a message that is lost ends its connection with
//! everything in flight, as TCP would; the two ends notice at times of their own. Connections
//! overtake one another. Pairs and single nodes are cut off, and of a pair one direction alone:
//! then the other continues, and neither node is told. Each node has a clock of its own, which may
//! jump ahead. Any node crashes at any time. Either its machine loses power and keeps any subset of
//! the blocks that it had not synced, and recovery keeps what has no gap before it; or its process
//! dies, the next one reads what was written, and a loss of power may follow. Syncs fail, which
//! ends the process; what they covered is read by the next one, and no later sync makes it durable
//! unless it is written again. Disks are slow and full, replay is slow. A process stands still for
//! a while, and continues as if nothing had happened; where primaries write into their standbys'
//! memory themselves, it continues first of all with what it was writing; and what was written once
//! may be written again, later. With the appliance method what has arrived outlives a crash, and
//! counts when it was read back. A node takes over while the primary is down, or while it lives on.
//! Whatever ends is started again as it was: it is not told which node to follow. What was synced
//! is never lost, but by nodes on which no commit counts: their disks fail, or bits rot there, and
//! they begin again with nothing or with a checkpoint.
#![forbid(unsafe_code)]

mod candidacy;
pub mod checks;
mod committing;
mod content;
mod dice;
mod disks;
mod entering;
mod faults;
mod feeding;
mod following;
mod levels;
mod log;
mod maintenance;
mod mirror;
mod net;
mod node;
mod one_sided;
mod operator;
mod queue;
mod register;
mod removing;
pub mod sabotage;
pub mod scenario;
pub mod shapes;
mod stuck;
mod switching;
mod upgrading;
mod upstream;
mod watching;
mod witness;
mod world;

pub use checks::{Property, Violation};
use freshet_cluster::recording::Recorder;
pub use scenario::{Broken, Draws, Dying, Scenario};

/// What happened in a run in which nothing was violated: enough to see that the run was worth
/// something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Transactions that were acknowledged.
    pub acknowledged: u64,
    /// Leads that began, failovers and restarts.
    pub leads: u64,
    /// Of these, by another node than the one before.
    pub failovers: u64,
    /// Times that a node stood by itself, since it took its primary for lost.
    pub stood: u64,
    /// Switch-overs that were ordered, and those of them in which the primary gave its promise.
    pub switch_overs: u64,
    /// See there.
    pub handed_over: u64,
    /// Nodes that an operator has removed.
    pub removed: u64,
    /// Levels that an operator has ordered.
    pub levels: u64,
    /// Times that the format level was ordered to rise.
    pub raised: u64,
    /// Orders of maintenance, and ends of it.
    pub maintenance: u64,
    /// Failovers that were refused.
    pub refused: u64,
    /// Logs that were cut at a rejoin.
    pub cuts: u64,
    /// In-sync sets that were written.
    pub sets: u64,
    /// Batches of old log, read back.
    pub old: u64,
    /// Hypothetical failovers that were judged.
    pub judged: u64,
    /// Syncs that failed.
    pub failed_syncs: u64,
    /// Primaries that let their standbys go, since nothing became durable.
    pub stuck: u64,
    /// Disks that were lost, and replaced.
    pub disks: u64,
    /// Primaries that an operator has declared gone.
    pub gone: u64,
    /// Disks that were set back.
    pub set_back: u64,
    /// Batches that mirrors have kept of a primary that was given up, and that they have undone.
    pub kept: u64,
    /// See there.
    pub undone: u64,
    /// Mirrors that were filled from a checkpoint.
    pub seeded: u64,
    /// Failovers by mirrors that got the rest of the log first, and batches of that.
    pub fetched: u64,
    /// See there.
    pub taken: u64,
    /// Fuzzy snapshots of mirrors that were compared.
    pub fuzzy_snapshots: u64,
    /// Failovers by mirrors, which are nodes with a log since.
    pub by_mirrors: u64,
    /// Transactions that standbys have executed again.
    pub executed: u64,
    /// Blocks that a restart has found in a journal.
    pub journaled: u64,
    /// Blocks whose bytes another node has given, since they did not come out.
    pub originals: u64,
    /// Nodes' own checkpoints that have come to count.
    pub checkpoints: u64,
    /// Indexes that were made or dropped.
    pub definitions: u64,
    /// Times that nodes died at a write that was named.
    pub died: u64,
    /// Times that an undo ring grew for a transaction that writes over more than it holds.
    pub larger: u64,
}

/// Runs one cluster from the beginning, through its faults, to where everybody is level again.
///
/// # Errors
/// The first [`Violation`].
pub fn run(scenario: Scenario, seed: u64) -> Result<Report, Violation> {
    record(scenario, seed, &Recorder::default())
}

/// The same, and records what happens to the nodes' machines.
///
/// # Errors
/// The first [`Violation`].
pub fn record(scenario: Scenario, seed: u64, recorder: &Recorder) -> Result<Report, Violation> {
    world::World::new(scenario, seed, recorder).run()
}

/// Runs it again, and returns all that happens, event by event.
pub fn trace(scenario: Scenario, seed: u64) -> Vec<String> {
    let mut world = world::World::new(scenario, seed, &Recorder::default());
    world.trace = Some(Vec::new());
    // It ends as it did.
    let _ = world.run();
    world.trace.unwrap_or_default()
}
