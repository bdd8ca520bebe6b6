//! The inputs of a transaction: its statements, for nodes that execute it again.
//!
//! While the node records inputs, a transaction that has written records beside its records what
//! its session has executed ([`freshet_engine::record_as`], with [`PROCEDURE`]). What the client
//! has decided in between is in that, so interactive transactions are recorded as well. Who
//! executes it again ([`StatementExecutor`]) runs the same statements at the same snapshots, and
//! writes the same rows.
//!
//! # What is recorded
//!
//! | | why |
//! |---|---|
//! | statements that have written, in their order: text, types, parameters | all others write nothing, and later ones see the transaction's writes alone |
//! | what they depend on of the session: database, role, path, time zone, formats | [`surroundings`] say it, once |
//! | what they have asked for outside of the database: random numbers, clocks, sequences, the session | [`captured`] |
//! | when the transaction and the statement began, if they have asked for it | `now()` |
//! | when the statement's plan was made, if a literal has asked for it | `'now'`, `'today'` |
//! | where ids for rows without a key begin | they follow one another |
//! | whether a statement has taken a newer snapshot, and which rows it has looked at again | READ COMMITTED |
//!
//! A statement that only reads is left out, and so are the snapshots that it has taken. If it calls
//! a function that changes something else, a sequence or a setting, what comes of that is captured
//! where a statement that writes asks for it.
//!
//! # What keeps its records
//!
//! A transaction that does any of this is logged as always ([`freshet_engine::NotRecorded`] counts
//! them): it defines; it copies from the client; a general query finds or makes the rows that it
//! writes, whose order nothing determines; it writes where a cursor stands; it defers constraints;
//! it has asked for its token, which its commit writes; its plan was made, or its text read, under
//! other settings of the session than it runs under; it is longer than [`LONGEST`]. The engine adds
//! those that have taken something back, or have met another transaction's rows. Of these, a row of
//! UPDATE or DELETE that is looked at again, at a snapshot of that moment, is recorded: that
//! snapshot is noted, too.
//!
//! # Why the same rows come out
//!
//! A statement's plan depends on the catalog at its snapshot, its text, the types of its parameters
//! and its surroundings. `query`'s own plans visit rows in the order of an index, and of record ids
//! among equal keys; groups come in the order in which they are met. What is not determined by
//! rows, parameters and surroundings goes through [`captured::Captured`], in the order in which the
//! plan asks. If any of that should fail, the block's checksum differs, and its bytes are fetched.
//!
//! # Layout
//!
//! A byte of flags; when the transaction began, in microseconds after its server started, if the
//! flags say so; the statements (module `recorded`). A text is its template and its literals
//! (`template`); templates and surroundings that come again have short numbers (`dictionary`).

mod again;
mod build;
pub mod captured;
mod dictionary;
mod fingerprint;
mod nowhere;
mod record;
mod recorded;
pub mod surroundings;
mod template;
mod value;

pub use again::StatementExecutor;
pub(crate) use dictionary::Dictionary;
pub use fingerprint::Fingerprint;
pub use freshet_sql::memory::Pool as MemoryPool;
pub(crate) use record::{Recorder, Statement};
pub(crate) use template::{Divided, statements};

/// The procedure's number under which statements are recorded.
pub const PROCEDURE: u32 = 32;

/// No transaction's statements take more bytes than this: they would hardly be shorter than what
/// they write.
pub const LONGEST: usize = 256 << 10;

/// In the flags: the transaction's beginning follows.
const BEGUN: u8 = 1;
/// In the flags: the isolation level is READ COMMITTED.
const READ_COMMITTED: u8 = 2;
