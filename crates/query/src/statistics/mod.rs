//! What sessions count of what they do, and the sums of it: the one source of the `pg_stat` views,
//! of the status of a node and of its metrics.
//!
//! Each session counts by itself, in memory that nobody else writes ([`SessionCounts`]): a count is
//! a load, an addition and a store, on a cache line of the session's own. Who asks sums up over the
//! sessions ([`Totals`]); a session that ends adds what it has counted to the totals. What others
//! see of a session that runs may be a few counts apart, as each is read by itself.
//!
//! | module | has |
//! |---|---|
//! | [`counters`] | transactions, statements with their latencies, times: fixed cells |
//! | [`relation`] | tables and indexes, as many of them as the session has used lately |
//! | [`query`] | statements that differ in their literals alone |
//! | [`totals`] | the sums, over sessions that are there and sessions that have ended |
//! | [`summary`] | the sums of a node, as its status has them |
//!
//! Nothing of this is kept across a restart, and nothing is replicated: each node counts its own.

pub mod counters;
pub mod query;
pub mod relation;
pub mod summary;
pub mod totals;

pub use counters::{Cause, Cells, Counters, Ending, Kind};
pub use query::{Query, QueryTotals};
pub use relation::{RelationCounts, SessionCounts, Tally};
pub use summary::Summary;
pub use totals::{DatabaseSums, Totals};
