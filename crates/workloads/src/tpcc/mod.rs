//! TPC-C, standard specification, revision 5.11.
pub mod consistency;
pub mod input;
pub mod keys;
pub mod load;
pub mod outcome;
pub mod population;
pub mod rows;
pub mod tables;
pub mod text;
mod transactions;

pub use transactions::{run, transact};
