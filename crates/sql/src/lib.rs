//! SQL's types, values, expressions and rows, as PostgreSQL has them.
//!
//! This crate knows nothing of tables, transactions or connections: it is what both the statements'
//! compiler and the protocol stand on.
//!
//! - [`types`]: which types there are, their values, and how these are read and written, as text
//!   and in the wire's binary formats; comparison, hashing and casts.
//! - [`functions`]: operators and functions on values, and the choice among overloads.
//! - [`general`]: the door between tables and whatever runs general queries over them.
//! - [`locking`]: clauses that lock rows.
//! - [`names`]: names as statements write them, and those of result columns.
//! - `portable`: functions of floating-point numbers, the same on every machine.
//! - [`row`]: how a row lies in memory, with its columns read in place, and index keys that sort as
//!   values do.
//! - [`work`]: what a statement costs, and whether it is to end.
//! - [`error`]: SQLSTATE codes and the error that everything here returns.
//!
//! Nothing here panics on any input; what is no value of its type is an error with PostgreSQL's
//! code and wording.
#![forbid(unsafe_code)]

pub mod account;
pub mod error;
pub mod explain;
pub mod functions;
pub mod general;
pub mod listed;
pub mod locking;
pub mod memory;
pub mod names;
mod portable;
pub mod row;
pub mod sign;
pub mod types;
pub mod work;

pub use error::{SqlError, SqlState};
pub use types::{Kind, Type, Value, ValueRef};
