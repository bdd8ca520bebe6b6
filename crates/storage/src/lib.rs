//! Main-memory storage: tables as indirection arrays of version chains,
//! ordered indexes from keys to record ids, and reclamation of both while
//! readers run.
//!
//! The log is the database (Query Fresh, section 1.2): what lives here is a
//! cache of it that knows where everything is.

pub mod index;
pub mod reclaim;

pub use reclaim::{Guard, Participant, Participants};
