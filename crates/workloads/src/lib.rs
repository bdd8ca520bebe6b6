//! The workloads that Freshet is measured and checked with: TPC-C, TPC-B, TATP, YCSB, and
//! the journal that proves after a crash that nothing was lost.
//!
//! They are written against the engine's public interface only, as any user's
//! procedures would be. What a transaction does depends on its input alone,
//! time included; inputs are generated apart from execution, so that they can
//! come over a wire, and both inputs and outcomes can be serialised.
#![forbid(unsafe_code)]

mod batch;
pub mod command;
mod engine;
pub mod journal;
pub mod list;
pub mod procedure;
pub mod random;
pub mod row;
mod share;
pub mod table;
pub mod tatp;
pub mod tpcb;
pub mod tpcc;
pub mod ycsb;
pub mod zipf;

pub use table::TableSet;
