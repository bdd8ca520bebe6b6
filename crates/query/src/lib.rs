//! Statements: from SQL to the engine and back.
//!
//! It is read in the order in which a statement goes:
//!
//! | module | does |
//! |---|---|
//! | [`session`] | one client: its messages, its settings, its transaction |
//! | [`syntax`] | what parsing may take |
//! | [`bind`] | syntax to plans: names, types, overloads, access paths |
//! | [`schema`] | what there is: the catalog, kept in the engine like all data |
//! | [`execute`] | plans to rows, over the engine's indexes |
//! | [`ddl`] | statements that define: tables, indexes, views, sequences, roles |
//! | [`sequence`] | where sequences stand |
//! | [`outcome`] | which transactions are committed, for clients that do not know |
//! | [`advisory`] | locks on numbers, for clients |
//! | [`exported`] | snapshots that sessions lend to one another |
//! | [`locks`] | locks on tables, between those who write and those who define |
//! | [`system`] | the catalogs that clients ask what there is |
//! | [`session_view`] | a session, as expressions see it |
//! | [`statistics`] | what sessions count of what they do |
//! | [`inputs`] | what transactions were told, for nodes that execute them again |
//! | [`expression`] | conditions and values, evaluated on rows where they lie |
//!
//! Queries that are more than that go through the door [`freshet_sql::general`].
#![forbid(unsafe_code)]

pub mod advisory;
pub mod bind;
pub mod commit;
pub mod copy;
pub mod ddl;
mod deparse;
pub mod error;
pub mod execute;
pub mod explain;
pub mod exported;
pub mod expression;
pub mod inputs;
pub mod locks;
mod login_log;
mod notify;
mod old_snapshots;
pub mod outcome;
pub mod relations;
mod route;
pub mod schema;
pub mod sequence;
pub mod server;
pub mod session;
pub mod session_view;
pub mod statistics;
pub mod syntax;
pub mod system;
mod wait;
