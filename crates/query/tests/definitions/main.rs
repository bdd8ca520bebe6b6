//! Statements that define, against the engine.

mod harness;
mod tables;
