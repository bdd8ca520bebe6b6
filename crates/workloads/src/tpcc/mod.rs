//! TPC-C, standard specification, revision 5.11.
//!
//! In the order of its use: [`population`] says how much data there is, [`tables`] makes its
//! tables, [`load`] fills them (clause 4.3.3); an [`input::Terminal`] makes up requests (clauses
//! 2.4.1 to 2.8.1 in the mix of 5.2.3), [`run`] does one of them as a transaction, whose
//! [`outcome`] is what the terminal would display; and [`consistency`] checks the conditions of
//! clause 3.3.2.
//!
//! Not here, because drivers do it: keying and think times, the queue of deferred deliveries, and
//! measuring.

pub mod command;
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
