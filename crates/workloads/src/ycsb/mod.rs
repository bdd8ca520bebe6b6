//! YCSB (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010): its core
//! workloads A to F, the 70/30 mix of SiloR (section 6.1), and the mix of Active-Memory (section
//! 6.1.2).
//!
//! Two things are done otherwise than in the original. Keys are numbers in order instead of hashes;
//! popular ones are scattered over them by a permutation, so the skew is exactly the one asked for.
//! And only mix D reads records that were inserted during the run; E scans begin at records that
//! were loaded.

pub mod input;
pub mod mix;
mod run;
mod tables;

pub(crate) use run::write;
pub use run::{Outcome, Scratch, run, run_with_reads, transact};
pub use tables::{Population, PopulationRow, Tables, load};

pub use crate::batch::LoadError;
