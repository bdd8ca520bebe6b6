//! Beside: what a program does beside the node that it runs. `freshet serve` does nothing;
//! `freshet-lab node` answers benchmarks.

use std::{any::Any, net::SocketAddr};

use freshet_engine::{Database, Executors};

use crate::Failure;

/// Begins what a program does beside its node, with the node's database and the address of its
/// control port. What it returns is dropped before the node stops.
type Begin = Box<dyn FnOnce(&Database, SocketAddr) -> Result<Box<dyn Any>, Failure>>;

/// What a program does beside the node that it runs.
pub struct Beside {
    /// How many workers of the database that takes at the same time.
    pub workers: usize,
    /// Execute again what its transactions log as commands.
    pub executors: Option<Executors>,
    /// Begins it, when the node is ready.
    pub begin: Begin,
}

impl Beside {
    /// Nothing: as `freshet serve` runs a node.
    pub(crate) fn nothing() -> Self {
        Self { workers: 0, executors: None, begin: Box::new(|_, _| Ok(Box::new(()))) }
    }
}
