//! Whatever a client sends: targets for fuzzing the SQL server; and what another node may send.
//!
//! A target takes bytes and panics when the server has not stood them. The first two talk to a
//! whole SQL server, with general queries and a node in memory, in the thread and with the stack
//! that a session has:
//!
//! | target | takes |
//! |---|---|
//! | [`protocol`] | all that a client sends, from the start-up packet on |
//! | [`statements`] | the text of statements, which is parsed, described, bound and run |
//! | [`forms`] | a part of the log in the inputs form |
//!
//! [`generate`] makes such bytes from statements that clients are known to send. The tests of this
//! crate run the targets for some seconds; `fuzz/` has them for libFuzzer. docs/testing.md says
//! how.
//!
//! What is found: a panic in any thread, an error that the server calls internal (XX000), an answer
//! that is not made of whole messages, a conversation that does not end when it is canceled and its
//! session terminated, and memory beyond what a session may have. A stack that overflows ends the
//! process; the bytes are then in the file that [`Case::keep_in`] has named.
#![forbid(unsafe_code)]

#[cfg(feature = "server")]
mod case;
#[cfg(feature = "server")]
mod fixture;
mod forms;
#[cfg(feature = "server")]
pub mod generate;
pub mod message;
#[cfg(feature = "server")]
mod panics;

#[cfg(feature = "server")]
pub use case::{Case, protocol, statements};
pub use forms::forms;
