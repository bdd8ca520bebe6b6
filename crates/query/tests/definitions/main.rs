//! Statements that define, against the engine.

mod alter;
mod concurrency;
mod constraints;
mod dependencies;
mod durability;
mod harness;
mod indexes;
mod online;
mod roles;
mod sequences;
mod syntax;
mod tables;
mod transactions;
mod views;
