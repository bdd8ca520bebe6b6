//! Statements and sessions on nodes. One program for all of these files: each would hold the whole
//! SQL stack again.
//!
//!     cargo test -p freshet-query --test main row_locks::

mod common;

mod access;
mod certifier;
mod concurrency;
mod cost;
mod databases;
mod deferrable;
mod deposed;
mod determined;
mod differential;
mod dumped;
mod dumps;
mod executing;
mod explain;
mod exported;
mod interrupts;
mod locked_shapes;
mod locks;
mod memory;
mod mirrored;
mod moved_rows;
mod notify;
mod old_snapshots;
mod outcomes;
mod panics;
mod privilege_matrix;
mod privileges;
mod recorded;
mod reported;
mod row_locks;
mod scripts;
mod session;
mod shapes;
mod standby;
mod statistics;
mod types;
mod waits;
