//! Whether this node belongs to its cluster: an operator may have removed it, while it was away. No
//! other node answers it then, and nothing comes of waiting.

use std::time::Duration;

use freshet_base::{NodeId, Term};
use freshet_cluster::in_sync::SetName;
use freshet_replication::{
    endpoint::{CallError, call},
    terms::Terms,
    wire::{Hello, Purpose, Refusal},
};
use serde::Serialize;

use super::{config::NodeConfig, ground::Ground, start::StartError};

/// A node that is to follow does not wait longer for an answer before it has started: only then may
/// it take the place of a primary that stands still.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// A node that is not new asks the one that it is to join whether an operator has removed it: then
/// nothing comes of it, however long it tries. Blocks for [`PATIENCE`] at most.
pub(super) fn ask(config: &NodeConfig, ground: &Ground) -> Result<(), StartError> {
    let (Some(join), Some(_)) = (&config.join, ground.terms.fence().holder()) else { return Ok(()) };
    let (cluster, node) = (Some(ground.cluster), ground.id);
    let hello = Hello { cluster, node, address: String::new(), purpose: Purpose::Identify };
    if let Err(CallError::Refused { refusal, .. }) = call(&ground.credentials, join, &hello, Term(0), PATIENCE) {
        ground.terms.refused(node, &refusal);
    }
    check(&ground.terms, node)
}

/// Whether another node has told `node` that it is removed.
///
/// # Errors
/// [`StartError::Removed`]
pub(super) fn check(terms: &Terms, node: NodeId) -> Result<(), StartError> {
    match terms.removal() {
        Some(record) => Err(StartError::Removed(Refusal::Removed { node, record })),
        None => Ok(()),
    }
}

/// An operator has removed this node.
#[derive(Clone, Debug, Serialize)]
pub struct Removal {
    /// The in-sync set by which it is no member: the term that wrote that,
    pub term: Term,
    /// whose term it was,
    pub primary: NodeId,
    /// and its number.
    pub number: u64,
    /// The same in words, and what to do.
    pub why: String,
}

impl Removal {
    /// Of `node`, by this record.
    pub(super) fn of(node: NodeId, record: SetName) -> Self {
        let (term, primary, number) = record;
        Self { term, primary, number, why: Refusal::Removed { node, record }.to_string() }
    }
}
