//! Record-replay: transactions are executed again from their inputs, and give the bytes of the log
//! that the primary has ("Scalable Replay-Based Replication For Fast Databases", section 4).
//!
//! The primary's log holds, behind the records of a transaction, its inputs. In the
//! *inputs form* of a block the rows are left out: the header with the checksum is there, what is
//! written and where, the keys of what is inserted, and the inputs. A node that gets that executes
//! the transaction again and has the block, byte for byte, and the checksum proves it. What comes
//! after that, the log, replay and readers, knows nothing of all this.
//!
//! | stage | what | paper | file |
//! |---|---|---|---|
//! | enter | a block's records into version arrays, its keys into indexes | 4.5.1 | `entrance.rs`, `versions.rs` |
//! | execute | threads execute transactions in the order of LSNs; a reader of a version that is not there yet sleeps | 4.5.2 | `pool.rs`, `pending.rs` |
//! | make | the thread that has executed a block puts its versions into the tables, above what readers see | 4.5.2 | `tables.rs` |
//! | complete | blocks whose versions are there go, in order, into the log; when readers see them, they leave the window | | `window.rs` |
//!
//! The paper puts placeholders into the database's own version arrays, epoch by epoch. Here they
//! live in a [`Window`](window::Window) beside the tables: it slides, so there are no epochs, and
//! the tables hold what is proven alone.
//!
//! # Why that gives the same, at every isolation level
//!
//! By induction over LSNs: let all blocks below `t` be what they were, byte for byte. The
//! transaction at `t` is a function of its inputs, of values that were captured into them, and of
//! what it reads. A read is determined by its snapshot `s` and by the transaction's own writes so
//! far: the newest version of the record below `s`, a place in the log. The snapshots are in the
//! inputs, and none is above `t`, so all versions that are asked for lie in blocks below `t`.
//! LSNs of versions are log positions, so "below `s`" means the same here and there. A scan finds
//! what it found: index entries of all records below are entered before the transaction is
//! executed, those of later ones lead to no version below `s`, and an entry goes only when no
//! snapshot needs it. So the reads give the same values, the transaction does the same, and its
//! block is the same.
//!
//! Certification, locks and "the first writer wins" decide only *whether* a transaction commits.
//! The log holds those that have, so an execution that takes no locks and is not certified loses
//! nothing. What a transaction saw beyond its snapshots would break the argument: such transactions
//! are not recorded (`txn/src/record.rs`), and keep their bytes.
//!
//! What the argument takes for granted, the checksum checks, transaction by transaction: a primary
//! that certified wrongly, a procedure that depends on something else, a definition that differs.
//! Then the original bytes are fetched, and what happened is told ([`Mismatch`]).
//!
//! # How fast, and in which form
//!
//! Every execution is measured, so that no more arrives than is executed in a given time, and
//! `status` can say how long what is pending would take (`pace.rs`). `watch.rs` takes figures down
//! once a second, for the choice between bytes and inputs (`choice/mod.rs`); `freshet advise`
//! weighs them in the same way ([`weigh`]). It asks for bytes while too many blocks have to be
//! fetched (`storm.rs`), and has the block fetched that all others wait for, if executing it takes
//! long: what comes first counts.
//!
//! # Who ends an execution
//!
//! The node that stops, a cut, a block that has come from elsewhere. All of them are looked at
//! before each record that a transaction reads or writes, and every 256 rows of a statement.
//!
//! # Calvin, a baseline
//!
//! With [`Schedule::Locks`] transactions are not begun in the order of LSNs, but when they have
//! locks on all records that they read and write, which are granted in that order (`locks.rs`). The
//! primary must have recorded the read sets of serializable transactions (`reads.rs`), since locks
//! follow the order of LSNs, and snapshots do only there.
//!
//! # Old snapshots
//!
//! A transaction may have read long before its LSN. The tables keep old versions for snapshots of
//! up to a given distance below the window's beginning; a block that reads below that is not
//! executed, and its bytes are asked for.

mod again;
mod batch;
mod choice;
mod entrance;
mod failure;
mod live;
mod locks;
mod mismatch;
mod originals;
mod pace;
mod pending;
mod pool;
mod reader;
pub(crate) mod reads;
mod room;
mod sample;
mod storm;
mod tables;
#[cfg(test)]
mod tests;
mod verify;
mod versions;
mod watch;
mod window;

pub(crate) use self::{
    again::Again,
    sample::{Sampler, Samples},
    window::Window,
};
pub use self::{
    choice::{Figures, weigh},
    entrance::Kept,
    live::AgainStatus,
    mismatch::{Mismatch, MismatchFile, MismatchFileError, read_mismatches},
    room::{Room, Schedule},
    sample::SampleStatus,
    storm::StormStatus,
    verify::{VerifyError, VerifyOptions, VerifyReport, verify},
    versions::Layout,
    watch::Chosen,
    window::Perturb,
};
