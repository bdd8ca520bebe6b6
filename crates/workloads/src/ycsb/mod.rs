//! YCSB (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC
//! 2010): its core workloads A to F, and the 70/30 mix of SiloR (section 6.1).

pub mod input;
pub mod mix;
mod run;
mod tables;

pub use run::{Outcome, Scratch, run, transact};
pub use tables::{Population, PopulationRow, Tables, definitions, load};

pub use crate::batch::LoadError;
