//! Whatever PostgreSQL's clients do to a node, it continues, and nothing of it stays: no session,
//! thread, descriptor, lock or memory.

#[path = "../common/mod.rs"]
mod common;

mod client;
mod connections;
mod interruptions;
mod messages;
mod statements;
mod subject;
