//! The PostgreSQL frontend/backend protocol, versions 3.0 to 3.2, from the server's side.
//!
//! This crate knows messages, proofs of identity, flow and limits, and nothing of SQL: what a
//! statement means is for a [`Backend`] and its [`Session`]s. It is read in the order in which a
//! connection goes:
//!
//! | module | does |
//! |---|---|
//! | [`server`] | listens, gives each connection a thread, ends them all in order |
//! | `local` | the Unix socket |
//! | `registry` | who is connected; seats, cancelling, terminating |
//! | `start_up` | TLS or not, the start-up packet, the proof of identity, the session's opening |
//! | [`access`] | which clients get in, by which proof: the access file |
//! | `delay` | delays for wrong passwords |
//! | [`scram`] | SCRAM-SHA-256: verifiers, and the exchange as a state machine without I/O |
//! | `connection` | the loop: a message in, a call of the session, the answer out |
//! | `message` | what clients say, decoded in place |
//! | [`out`] | what they are told, encoded in place |
//! | [`copy`] | COPY in both directions |
//! | [`route`] | sessions that one node hands on to another |
//! | `transport` | a socket of TCP, plain or with TLS, a Unix socket, or memory |
//!
//! | thread | does | ends when |
//! |---|---|---|
//! | one for each address, and for the Unix socket | accepts | the server stops |
//! | one | ends what is done for clients that have gone | the server stops |
//! | one | sends delayed refusals | the server stops |
//! | one for each connection | everything for its client, the session's work included | the client has gone, or is sent away |
//!
//! A session is synchronous: while its statement waits for a lock or for its commit, so does its
//! thread, and so, by TCP, does its client. Other threads reach it by an [`Interrupt`] or a
//! [`Bell`] only.
//!
//! Answers are collected and written when the client waits for them: after Sync and Flush, and when
//! there are many.
//!
//! Architecture invariants: no byte from a client can make this crate panic, block without end, or
//! hold more memory than the [`Limits`] say; nobody has a session who has not proved who he is; a
//! password in clear text is never asked for without TLS.

#![forbid(unsafe_code)]

pub mod access;
pub mod backend;
mod bell;
mod connection;
mod conversation;
pub mod copy;
mod delay;
mod encoding;
mod input;
pub mod limits;
mod local;
pub mod message;
pub mod out;
mod packet;
pub mod parameters;
mod proof;
mod registry;
pub mod report;
pub mod route;
pub mod scram;
pub mod server;
mod spare;
mod start_up;
pub mod tls;
mod transport;

pub use access::{AccessError, AccessRules, Claim, Required};
pub use backend::{
    Access, Backend, Encryption, Ending, FailedLogin, Interrupt, Opening, Origin, Peer, Proof, Session,
    TransactionStatus, Why, idle_report,
};
pub use bell::Bell;
pub use conversation::conversation;
pub use copy::{Client, CopyIn, CopyOut};
pub use encoding::{Encoding, Stream as EncodedStream};
pub use limits::Limits;
pub use message::{Bind, Format, Formats, Types, Values};
pub use out::{Described, Executed, Field, Mark, Out, Row};
pub use packet::Startup;
pub use parameters::Parameters;
pub use registry::Sessions;
pub use report::{Report, Severity, SqlState};
pub use route::{Ask, Asks, HandedOn, Hop, Link, Moved, Note, Part, Route, Served, Takes};
pub use scram::{Verifier, VerifierError};
pub use server::{Options, Server, StartError, probe_socket};
pub use tls::{Tls, TlsError};
