//! The messages, as they travel in the immediate values of frames.
//!
//! By the first message of a connection, and its answer, both sides agree on a version (`first`).

mod first;
mod load;

use freshet_base::{ClusterId, Lsn, NodeId, Term, versions::Level};
pub use freshet_cluster::begin_again::Verdict;
use freshet_cluster::{
    Moment, handshake,
    host::{Asking, Noted},
    in_sync::InSyncSet,
    maintenance::Notice,
    meeting::Claim,
    promotion::LogState,
    switch_over::HandOver,
    term::{Living, TermEntry, TermHistory, TermState},
    witness::{Ask, Granted},
};
pub use freshet_cluster::{
    follower::Ack,
    handshake::{Continue, Refusal, Wait},
};
use freshet_fabric::{Offer, channel::STATUS_WORDS};
use freshet_membership::{Enrolled, Enrolment};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use self::first::{Differ, PROTOCOL, READS, decode_first, encode_first, encode_in, needed_at};
pub(crate) use self::first::{too_old, versions_in};
use self::load::{load_of_word, load_word};
pub use crate::forms::Encoding;
use crate::{
    members::{Members, Voter},
    status::{AheadStatus, Load, TwoPrimaries},
};

/// What the giver of a checkpoint knows of its log, as far as the checkpoint reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownLog {
    /// Its terms.
    pub history: TermHistory,
    /// Everything below is committed. That need not be all of the checkpoint: a mirror that has
    /// taken over begins with a checkpoint of what it holds.
    pub committed: Lsn,
}

impl KnownLog {
    /// What a node in this state knows up to `end`. The receiver will hold nothing beyond, and so
    /// gets no terms that begin there.
    pub fn of(state: &TermState, end: Lsn) -> Self {
        Self { history: state.history.cut(end), committed: state.committed.min(end) }
    }
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The first frame of a connection, from whoever connected: [`Hello`].
    Hello = 1,
    /// Its answer: [`Reply`].
    Reply = 2,
    /// Blocks, with a [`BatchNote`]. On the way to a standby they lie in its log buffer already, or
    /// come compressed.
    Batch = 3,
    /// A [`BatchNote`] without blocks: the globally persistent LSN advanced, or the connection
    /// was silent. The standby answers a keep-alive.
    Watermark = 4,
    /// What a candidate holds that fetches the log: [`Ack`]. A standby writes it into its primary's
    /// status words.
    Ack = 5,
    /// Who else is in the cluster: [`Peers`].
    Peers = 6,
    /// The sender ends the connection: [`Refusal`].
    Goodbye = 7,
    /// A part of a checkpoint, or of the log.
    Piece = 8,
    /// Blocks in another form ([`crate::forms`]), with a [`BatchNote`]: behind that 0 and the form,
    /// or 1, the form's length in four bytes, and the form, compressed. Its payload's length is
    /// that of the blocks.
    Inputs = 9,
    /// To a mirror: it is to have one more region, of at least this many bytes.
    Grow = 10,
    /// From a mirror: the region that it has added, if there was memory for one.
    Grown = 11,
    /// From a mirror, before anything is written into it: a part of what says what lies where
    /// there, and whether it is the last.
    Layout = 12,
    /// To a mirror: an in-sync set that it has to note, encoded.
    Members = 13,
    /// From a standby that asks for blocks: where they begin and how many bytes each has, encoded
    /// pairs. Each is answered, in that order, by a piece or by what stands in its place.
    Blocks = 14,
    /// A block that was asked for is not here: [`Refusal`].
    Lacks = 15,
    /// A primary asks its witness once more: [`Ask`], answered by a reply.
    Ask = 16,
}

impl Kind {
    /// The kind with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Hello,
            2 => Self::Reply,
            3 => Self::Batch,
            4 => Self::Watermark,
            5 => Self::Ack,
            6 => Self::Peers,
            7 => Self::Goodbye,
            8 => Self::Piece,
            9 => Self::Inputs,
            10 => Self::Grow,
            11 => Self::Grown,
            12 => Self::Layout,
            13 => Self::Members,
            14 => Self::Blocks,
            15 => Self::Lacks,
            16 => Self::Ask,
            _ => return None,
        })
    }
}

/// Who connects, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Its cluster; `None` while it belongs to none.
    pub cluster: Option<ClusterId>,
    /// Itself.
    pub node: NodeId,
    /// Where it can be reached, for the list of peers; empty when nowhere.
    pub address: String,
    /// What it wants.
    pub purpose: Purpose,
}

/// Whether `node`, which belongs to `cluster`, may answer a node that introduces itself with
/// `hello`. A message that can fence, redirect or cut has to name this cluster. A node without a
/// cluster may ask which this is, and join.
///
/// # Errors
/// [`Refusal`], to be sent to it.
pub fn check_hello(node: NodeId, cluster: Option<ClusterId>, hello: &Hello) -> Result<(), Refusal> {
    handshake::check_cluster(node, cluster, hello.cluster)?;
    match (hello.cluster, &hello.purpose) {
        (_, Purpose::Announce { claim: Claim { term_entry: TermEntry { node, .. }, .. }, .. })
        | (_, Purpose::HandOver(HandOver { by: node, .. }))
        | (_, Purpose::Ask(Ask { living: Living { node, .. }, .. }))
            if *node != hello.node =>
        {
            Err(Refusal::Violation("it speaks for the term of another node".into()))
        }
        (
            None,
            Purpose::Announce { .. }
            | Purpose::Consult { .. }
            | Purpose::HandOver(_)
            | Purpose::Fetch { .. }
            | Purpose::Originals
            | Purpose::BeginAgain { .. }
            | Purpose::Members { .. }
            | Purpose::Reach(_)
            | Purpose::Maintenance(_)
            | Purpose::Witness
            | Purpose::Ask(_)
            | Purpose::Restart
            | Purpose::Stop
            | Purpose::Renew
            | Purpose::Session { .. }
            | Purpose::Cancel { .. },
        ) => Err(Refusal::NotMember("it does not say to which cluster it belongs".into())),
        _ => Ok(()),
    }
}

/// A standby that wants to follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The latest term it has heard of.
    pub fence: Term,
    /// Its log.
    pub log: Continue,
    /// Whether commits may count on it. What it holds is of no use to an observer's cluster yet: an
    /// archive, or a node whose checkpoint is still on its way.
    pub member: bool,
    /// Whether commits may wait for it, if it is a member.
    pub synchronous: bool,
    /// Its log buffer and its mailbox: the log is written there.
    pub offer: Offer,
    /// What has arrived in its log buffer is persistent: the primary reads back what it wrote, and
    /// waits for no acknowledgement.
    pub appliance: bool,
    /// It is a mirror: rows are written in place, and none of the log. It offers its head and its
    /// undo ring, and says of the rest when it is connected.
    pub mirror: bool,
    /// Under this number it has opened a [`Purpose::Passage`] before.
    pub passage: Option<u64>,
    /// Whether it agrees to get the log without TLS.
    pub bare: bool,
    /// In which form it wants to have the log, where the sender can.
    pub encoding: Encoding,
    /// Which log it has, or which memory ([`freshet_cluster::in_sync::Holder`]).
    pub incarnation: u64,
    /// Of a mirror: the newest in-sync set that it has noted, by its term, whose that was, and its
    /// number.
    pub noted: Noted,
    /// It knows that everything below was acknowledged to clients, and has it. It is not fed with a
    /// log that has less of that.
    pub holds: Lsn,
    /// The last term of its log is known to have taken effect: it is not fed with a log that has
    /// nothing of that term and less than this.
    pub in_effect: bool,
    /// It is a relay: it feeds others.
    pub relay: bool,
    /// The version of its program.
    pub version: String,
    /// What it knows of maintenance.
    pub maintenance: Notice,
}

impl Join {
    /// What a host has to know of the node that says `hello`.
    pub(crate) fn asking(&self, hello: &Hello) -> Asking<'_> {
        // A mirror comes as an observer until it has its checkpoint, and then as a member.
        let counted = self.synchronous && (self.member || self.mirror);
        let Self { fence, ref log, holds, in_effect, noted, .. } = *self;
        let mirror = self.mirror.then_some(noted);
        Asking { cluster: hello.cluster, node: hello.node, fence, log, counted, holds, in_effect, mirror }
    }
}

/// What a region is for by which a mirror's memory grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Growing {
    /// Rows.
    Arenas,
    /// What a transaction writes over.
    Undo,
}

/// What a connection is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// A standby wants to follow.
    Join(Join),
    /// A candidate wants to have the log as far as it goes.
    Fetch {
        /// The candidate's term.
        term: Term,
        /// Its log.
        log: Continue,
    },
    /// A candidate asks what the log is like.
    Consult {
        /// The candidate's term.
        term: Term,
        /// Whether the answer is a promise to refuse every earlier term.
        binding: bool,
        /// Of a candidate that no operator has asked to lead: the latest term that it had heard of.
        /// It is refused by those who live under a term that is not older.
        gives_way: Option<Term>,
        /// Of a candidate to which a primary hands its role: the number of that offer. That primary
        /// gives no promise but for this.
        handed: Option<u64>,
        /// Of a candidate that stands by itself: what it knows of maintenance. It is refused while
        /// that lasts.
        stands: Option<Notice>,
    },
    /// A primary hands its role to the node that it asks.
    HandOver(HandOver),
    /// Somebody wants to know which cluster this is: a node that is about to join it with an empty
    /// directory.
    Identify,
    /// A node that is about to join with an empty directory wants a checkpoint to begin with, or
    /// somebody wants a backup.
    Checkpoint {
        /// Whether it must be a new one, of one snapshot; the newest that is there will do else.
        consistent: bool,
    },
    /// A primary makes itself known.
    Announce {
        /// Its term, and what its log holds.
        claim: Claim,
        /// Where to follow it.
        address: String,
    },
    /// A newcomer wants to be certified. Every other purpose needs a certificate.
    Enrol(Enrolment),
    /// From a process of this user on this machine: on this connection descriptors are passed, for
    /// the node that joins with this number.
    Passage {
        /// A random number.
        number: u64,
    },
    /// A standby could not regenerate blocks, and wants their bytes. It says which on the
    /// connection, as often as it likes.
    Originals,
    /// A standby whose state is in doubt asks its primary whether it may begin again.
    BeginAgain {
        /// The mark at which its state differed; zero for damage that it has found by itself.
        since: Lsn,
    },
    /// Somebody wants to know which nodes there are, and how they are.
    Members {
        /// Through how many relays, one below the other, it is asked on.
        relays: u8,
    },
    /// A primary asks which of these voters the node reaches: at most [`crate::members::MOST`].
    Reach(Vec<Voter>),
    /// Maintenance was ordered, or ended.
    Maintenance(Notice),
    /// A witness makes itself known: a primary asks it from then on.
    Witness,
    /// A primary asks its witness, and does so again on the same connection ([`Kind::Ask`]).
    Ask(Ask),
    /// An operator wants this node to start again.
    Restart,
    /// A node that the cluster knows by its key wants a certificate by the authority that counts.
    Renew,
    /// A node hands on the session of a client that it has let in. What follows on the connection
    /// is that session, in PostgreSQL's protocol.
    Session {
        /// Its number where it was let in.
        pid: i32,
        /// It only reads: a standby is wanted, and no primary.
        reads: bool,
    },
    /// What a session does that was handed on is to be canceled.
    Cancel {
        /// The session's number.
        pid: i32,
        /// Its key.
        key: Vec<u8>,
    },
    /// An operator wants this node to stop. Last, so that all others have their numbers of before.
    Stop,
}

/// The answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To Join and Fetch: the log follows.
    Welcome(Welcome),
    /// To Consult.
    Log {
        /// Who answers.
        node: NodeId,
        /// Its log.
        log: LogState,
        /// Whom else it knows: the candidate asks them, too.
        peers: Vec<Peer>,
    },
    /// To Identify.
    Cluster(ClusterId),
    /// To Checkpoint: its files follow.
    Checkpoint {
        /// What the sender knows of its log.
        known: KnownLog,
        /// How many files there are, beside the manifest.
        files: u32,
    },
    /// To Checkpoint: it is being written. Another answer follows.
    Working,
    /// To Checkpoint: there is none; the log is there from its beginning.
    NoCheckpoint,
    /// To Announce, Passage, Cancel, Witness, Restart and Stop.
    Noted,
    /// To Ask.
    Granted(Granted),
    /// To Announce, by another primary: both know then which of them yields.
    Leads(Claim),
    /// To Enrol and Renew.
    Enrolled(Enrolled),
    /// To anything.
    Refused(Refusal),
    /// To Originals: say which.
    Originals,
    /// To BeginAgain.
    Verdict(Verdict),
    /// To Members.
    Members(Box<Members>),
    /// To Reach: those that it does not reach.
    Reach(Vec<NodeId>),
    /// To Maintenance: what the node knows of it now.
    Maintenance(Notice),
    /// To Session: the session may follow.
    Session {
        /// The term of the primary that serves it.
        term: Term,
    },
}

/// How a log goes on, and by which memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// What was agreed.
    pub log: handshake::Welcome,
    /// To Join: the sender's mailbox and status words. Nothing more is said on this connection; all
    /// is written.
    pub offer: Option<Offer>,
    /// To Join: after this the connection leaves TLS.
    pub bare: bool,
}

/// What travels with a batch or alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchNote {
    /// Everything below is persistent wherever the safety level demands.
    pub global: Lsn,
    /// When this was sent, by the primary's clock.
    pub time: Moment,
    /// Until when, by that clock, no other primary can have committed anything, as far as the
    /// sender knows: what it says is as old as that.
    pub sure: Moment,
    /// When the sender began to send this, by its own clock.
    pub begun: Moment,
    /// How far the primary's log reached then.
    pub end: Lsn,
    /// When the first of the group commit's batches in this one was handed over; nothing for old
    /// log and without blocks.
    pub filled_at: Option<Moment>,
    /// Whether the standby is in the in-sync set.
    pub in_sync: bool,
    /// Whether commits of the primary wait until the standby shows them: it is to say so at once.
    pub report_visible: bool,
    /// What the sender knows of maintenance.
    pub maintenance: Notice,
    /// Ends of blocks at which the batch can be divided among replay threads, as distances from its
    /// beginning, ascending; the last is its length.
    pub ends: Vec<u32>,
}

/// What a standby asks its sender for with each acknowledgement, and says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    /// In which form it wants to have what is sent from now on.
    pub own: Encoding,
    /// A node below it wants another form of the log.
    pub below: bool,
    /// Something speaks against its state.
    pub in_doubt: bool,
    /// The last mark at which its state was that of the primary.
    pub equal_at: Option<Lsn>,
}

/// An [`Ack`], what is asked for, and how busy the standby is, if it knows that, as status words.
pub fn ack_words(ack: &Ack, asks: Asks, load: Option<Load>) -> [u64; STATUS_WORDS] {
    let (own, below) = (u64::from(asks.own == Encoding::Inputs) | u64::from(asks.in_doubt) << 1, asks.below.into());
    let equal_at = asks.equal_at.unwrap_or_default().0;
    let (load, observed) = (load_word(load), ack.observed.map_or(0, |sent| sent.0));
    [ack.persisted.0, ack.may_send_until.0, ack.replayed.0, ack.visible.0, own, below, load, equal_at, observed]
}

/// All of them from status words.
pub fn ack_of_words(words: [u64; STATUS_WORDS]) -> (Ack, Asks, Option<Load>) {
    let own = if words[4] & 1 == 1 { Encoding::Inputs } else { Encoding::Bytes };
    let equal_at = Some(Lsn(words[7])).filter(|at| *at > Lsn::ZERO);
    let asks = Asks { own, below: words[5] != 0, in_doubt: words[4] & 2 == 2, equal_at };
    let load = load_of_word(words[6]);
    let observed = Some(Moment(words[8])).filter(|sent| *sent > Moment::default());
    let [persisted, may_send_until, replayed, visible, ..] = words.map(Lsn);
    (Ack { persisted, may_send_until, replayed, visible, observed }, asks, load)
}

/// A node that can be reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Peer {
    /// Its name; `None` for an address from the configuration whose node was never met.
    pub node: Option<NodeId>,
    /// Where.
    pub address: String,
    /// Whether it serves readers, as far as is known: a mirror does not.
    pub serves: bool,
}

impl Peer {
    /// One that was never met, as far as is known here.
    pub fn at(address: String) -> Self {
        Self { node: None, address, serves: true }
    }
}

/// Everyone whom the primary knows, itself included, and what everyone has to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peers {
    /// In no order.
    pub peers: Vec<Peer>,
    /// The safety level, as the primary's configuration prints it.
    pub safety: freshet_base::Safety,
    /// Those that are not fed, since they hold more than the log that they are to follow.
    pub ahead: Vec<AheadStatus>,
    /// Other primaries that this one has met.
    pub two_primaries: Vec<TwoPrimaries>,
}

/// Bytes that are not the message which their frame announced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Another version.
    #[error(transparent)]
    Version(Differ),
    /// Nonsense.
    #[error("cannot decode a {what}: {why}")]
    Malformed {
        /// What it should be.
        what: &'static str,
        /// What the decoder says.
        why: String,
    },
}

/// Encodes any message.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_allocvec(message).expect("messages consist of plain data")
}

/// Encodes an in-sync set for the log and the control file. The level comes last, and is left out
/// where it is the first, as before there were levels.
pub fn encode_set(set: &InSyncSet) -> Vec<u8> {
    let mut bytes = encode(set);
    if set.roster.format == Level::FIRST {
        bytes.pop();
    }
    bytes
}

/// Decodes what [`encode_set`] has encoded.
///
/// # Errors
/// [`DecodeError::Malformed`].
pub fn decode_set(bytes: &[u8]) -> Result<InSyncSet, DecodeError> {
    let what = "in-sync set";
    decode(what, bytes).or_else(|error| {
        let first = encode(&Level::FIRST);
        decode(what, &[bytes, &first].concat()).map_err(|_| error)
    })
}

/// Decodes a message; `what` names it in the error.
///
/// # Errors
/// [`DecodeError::Malformed`]; bytes left over are an error too.
pub fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, DecodeError> {
    let malformed = |why: String| DecodeError::Malformed { what, why };
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(malformed(format!("{} bytes are left over", rest.len()))),
        Err(error) => Err(malformed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use freshet_cluster::term::TermHistory;

    use super::*;

    #[test]
    fn messages_come_back_and_nonsense_does_not() {
        let hello = Hello {
            cluster: Some(ClusterId(7)),
            node: NodeId(1),
            address: "host:1".into(),
            purpose: Purpose::Consult {
                term: Term(3),
                binding: true,
                gives_way: Some(Term(2)),
                handed: None,
                stands: None,
            },
        };
        let bytes = encode_in(PROTOCOL, &hello);
        assert_eq!(decode_first::<Hello>("greeting", &bytes).map(|(hello, _)| hello), Ok(hello.clone()));
        for length in 0..bytes.len() {
            assert!(decode_first::<Hello>("greeting", &bytes[..length]).is_err());
        }
        assert!(decode::<Ack>("acknowledgement", &[0xFF; 64]).is_err());
    }

    #[test]
    fn a_history_from_the_wire_is_checked() {
        let bad = vec![(Term(2), Lsn(5)), (Term(1), Lsn(9))];
        assert!(decode::<TermHistory>("history", &encode(&bad)).is_err());
    }
}
