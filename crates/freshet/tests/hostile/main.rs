//! Whatever PostgreSQL's clients do to a node, it goes on, and nothing of it stays: no session,
//! thread, descriptor, lock or memory.

#[path = "../common/mod.rs"]
mod common;

mod client;
mod connections;
mod interruptions;
mod messages;
mod statements;
mod subject;
