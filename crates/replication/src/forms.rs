//! Batches of the log in another form, from which a standby regenerates the blocks.
//!
//! Replication does not know that form: the engine gives a node's feeds a [`Forms`], which encodes,
//! and its standby's target a [`Regenerate`], which hands complete blocks back ([`Complete`]). A
//! standby asks for the form when it joins; a sender may send any batch as bytes all the same.
//!
//! # What becomes of a batch that comes in its form
//!
//! ```text
//!   arrived ─▶ journal ─▶ acknowledged
//!         └──▶ regenerated ─▶ complete: part of the log ─▶ persisted ─▶ replayed ─▶ visible
//! ```
//!
//! The log of a standby holds complete blocks only. So two watermarks take the place of `received`:
//! what has *arrived*, which is what the sender has sent and what a log that is continued begins
//! from ([`freshet_cluster::follower::Follower::received`]), and what is *complete*, which is what
//! the log says that it has received. `persisted` is the larger one of what is durable in the log
//! and in the journal (`standby/forms.rs`), and lies below `arrived`; what is replayed lies below
//! `complete`. No more arrives beyond what is complete than half the log's buffer, and than
//! [`Regenerate::ahead`] says, since no more room is granted. If the next block is longer than
//! that, the room doubles while nothing comes, until it fits.
//!
//! A batch that comes as bytes takes the same way: what was executed again before may not be
//! visible yet. While this node asks for bytes
//! ([`Standby::ask_for`](crate::standby::Standby::ask_for)), such a batch is not written into the
//! journal: it counts when the log has it. A node changes what it asks for by a word of its status,
//! as often as it likes. Whatever needs the log itself waits until all that has arrived is
//! complete, and persistent there: the answer to a candidate, this node's own candidacy, and a node
//! that asks for bytes. A cut takes back what has arrived, in the journal too, before the node
//! enters a term.
//!
//! # What a restart regenerates by itself
//!
//! A restart has old versions only as far back as its checkpoint ends, the *floor*. What arrives
//! and reads below that is not written into the journal: it counts when the log has it, as what
//! arrives as bytes does. Before a checkpoint counts, the floor is raised to its end, and what has
//! arrived until then becomes part of the log ([`ArrivedLog`](crate::standby::ArrivedLog)). So
//! whatever was acknowledged and is not part of the log, this node regenerates without any other,
//! also after checkpoints, changes of tables and restarts, in any order.
//!
//! # Blocks that cannot be regenerated
//!
//! Any node whose log is complete there has their bytes: the one that is followed, and, when that
//! has gone, all others that are known ([`Complete::originals`]). What comes is checked against the
//! header that the form has. While a known node cannot be reached, or may get the block yet, they
//! are asked again and again. If all were reached and none has it, this node stops and says so.
//!
//! Until it comes, what is behind that block is not complete. So a candidate that lacks it does not
//! begin to consult, and a node that is consulted does not describe its log: both say which block
//! is missing, and what each node has said. If a candidate has the block, the node that it consults
//! gets it from there, and answers. So none wins that lacks what another one has acknowledged. With
//! force, a candidate gives up what it cannot regenerate, like every loss that force permits.
//!
//! A restart hands what the journal holds beyond the log to [`Regenerate`] again, before the node
//! follows anybody.

use std::{fmt, sync::Arc, time::Duration};

use freshet_base::{Lsn, Watermark};
use freshet_log::BlockHeader;
use serde::{Deserialize, Serialize};

/// In which form a standby wants to have the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    /// As it is.
    #[default]
    Bytes,
    /// What transactions were told, where that is in the log: the standby executes them again.
    Inputs,
}

freshet_base::named!(Encoding, "form of the log", { Bytes: "bytes", Inputs: "inputs" });

/// What has come from the node that is followed, since this one started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// How far the primary's log reaches, as far as was heard.
    pub end: Lsn,
    /// Bytes of log.
    pub log_bytes: u64,
    /// Of those: bytes that came while half of what may be ahead of what is complete was.
    pub held_bytes: u64,
    /// Bytes that the link has carried for them.
    pub carried_bytes: u64,
    /// For how long something was on its way.
    pub busy: Duration,
}

/// Knows the form. What can be said in it depends on what the primary puts into its log while a
/// node wants the form. So a relay says to whom it follows, with each acknowledgement, whether one
/// below it does.
pub trait Forms: Send + Sync {
    /// An encoder for one standby, which follows from now on, for as long as the encoder is kept.
    fn encoder(&self) -> Box<dyn Encode>;

    /// A relay passes on what this node sends to standbys that want the form, or to other relays
    /// that do: for as long as what is returned is kept.
    fn ask(&self) -> Box<dyn Send>;

    /// Whether anyone wants the form.
    fn is_asked(&self) -> bool;
}

impl fmt::Debug for dyn Forms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Forms")
    }
}

/// Encodes for one standby.
pub trait Encode: Send {
    /// Appends to `into` the form of `blocks`: whole blocks; the first begins at `from`.
    /// Says whether it did; else they are sent as they are.
    fn encode(&mut self, from: Lsn, blocks: &[u8], into: &mut Vec<u8>) -> bool;
}

/// Regenerates blocks on a standby.
pub trait Regenerate: Send + Sync {
    /// Begins at `at`, where the log ends, and hands over to `complete` from now on. Readers see
    /// everything below `visible`. Called once, before everything else.
    fn begin(&self, at: Lsn, visible: &Arc<Watermark>, complete: Arc<dyn Complete>);

    /// Takes in the form of blocks; the first begins at `from`. Those that were taken in
    /// before are passed over, and those from `to` on, where one ends. `members` is called with
    /// what each block of members records ([`freshet_log::Block::members`]). Called by one thread
    /// at a time.
    ///
    /// Returns the oldest snapshot that regenerating these blocks reads at: a restart regenerates
    /// them by itself if its checkpoint ends at or below that. The largest LSN if nothing is
    /// read; zero if a restart cannot do it.
    ///
    /// # Errors
    /// What is wrong with the form; then nothing of it was taken in.
    fn enter(&self, from: Lsn, to: Lsn, form: &[u8], members: &mut dyn FnMut(&[u8])) -> Result<Lsn, String>;

    /// Appends to `into` the form that `blocks` have as they are; they were not checked.
    ///
    /// # Errors
    /// When they are no blocks.
    fn plain(&self, blocks: &[u8], into: &mut Vec<u8>) -> Result<(), String>;

    /// How many bytes of log may have arrived beyond what is complete, as far as this side cares:
    /// it bounds how long a failover has to wait for them.
    fn ahead(&self) -> u64;

    /// Forgets the blocks from `at` on: when this returns, [`Complete`] gets none of them any more.
    fn cut(&self, at: Lsn);

    /// Ends: when this returns, [`Complete`] gets nothing any more.
    fn stop(&self);
}

/// A block whose bytes no node has given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Where it begins.
    pub at: Lsn,
    /// All nodes that are known were reached, none has it, and to none of them it comes yet.
    pub nowhere: bool,
    /// Which nodes were asked, and what each has answered.
    pub answers: Vec<(String, String)>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the transaction at {} cannot be executed again here, and its block was not found: ", self.at)?;
        if self.answers.is_empty() {
            return f.write_str("no other node is known");
        }
        for (number, (address, answer)) in self.answers.iter().enumerate() {
            let semicolon = if number > 0 { "; " } else { "" };
            write!(f, "{semicolon}{address}: {answer}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Missing {}

/// A block whose bytes are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What it has to begin with, checksum included.
    pub header: BlockHeader,
    /// It cannot be regenerated. Else it may be, and takes long: nothing is lost if no node gives
    /// it.
    pub lacking: bool,
}

/// Takes what was regenerated, and helps where that did not succeed.
pub trait Complete: Send + Sync {
    /// The next blocks of the log, as they are on the primary. Called by one thread at a time.
    ///
    /// # Errors
    /// Why they were not taken. This node cannot continue then.
    fn append(&self, blocks: &[u8]) -> Result<(), String>;

    /// The bytes of these blocks, in ascending order, from the node that is followed, on one
    /// connection that is kept from one call to the next, or from any other that is known: of what
    /// the first does not give, all of them are asked. One answer for each block. Blocks for as
    /// long as nodes may be silent. Called by one thread at a time.
    ///
    /// An error is what each of them has said. Until that says that the block is nowhere, asking
    /// again may bring it.
    fn originals(&self, wanted: &[Wanted]) -> Vec<Result<Vec<u8>, Missing>>;

    /// What has come so far.
    fn arrivals(&self) -> Arrivals;

    /// Asks for the log in this form from now on. What comes until then may have either.
    fn ask_for(&self, encoding: Encoding);

    /// In which form it asks for the log.
    fn asks_for(&self) -> Encoding;

    /// Blocks cannot be regenerated, and cannot be had otherwise: this node cannot continue.
    fn failed(&self, why: String);
}
