//! One-sided memory between nodes, in the words of RDMA verbs (Query Fresh, section 2.2).
//!
//! Each side *registers* pieces of memory ([`memory`]) and makes an [`Offer`] of them; when both
//! know the other's offer they are connected by a [`QueuePair`], which writes into the other side's
//! memory, reads it and adds to its words, and a [`CompletionQueue`], which hears of writes that
//! carried an immediate value. Delivery is in order per connection: a thread that has heard of an
//! immediate value finds in place what was written before it. What was offered can become more
//! while they are connected ([`CompletionQueue::register`]), and is taken back at the end
//! ([`CompletionQueue::revoke`]).
//!
//! Writes are posted as *lists*, each with one [`Token`] (Active-Memory, section 4.5.1). Tokens
//! complete in the order in which they were given, so that several lists can be under way at once:
//! a writer asks which have completed ([`QueuePair::completed`]), or waits for one
//! ([`QueuePair::wait`]).
//!
//! | fabric | writes are done by | the other side's processor |
//! |---|---|---|
//! | `tcp` | the other side's receiving thread, which does by hand what a network card would do ([`tcp::queue`]) | works |
//! | `shm` | the writer itself: both are processes of one machine and have mapped the memory ([`shm`]) | is not asked |
//! | `verbs` | the network card: reliable connected queue pairs of libibverbs (module `verbs`, cargo feature `verbs`) | is not asked |
//!
//! Every fabric has a TCP connection beside it, on which two nodes first greet one another in
//! [`frame`]s ([`tcp::Connection`]); it stays open as long as they are connected, and when it ends,
//! so does everything. On the queue pairs, [`channel`] carries frames again, whose payload is
//! written to its place; that is what replication speaks. [`limit`] makes any link slower than it
//! is.
//!
//! What the other side writes has no meaning before its bounds and its checksum were looked at, and
//! it is never a Rust reference to bytes.

#![cfg_attr(not(feature = "verbs"), forbid(unsafe_code))]

pub mod channel;
mod error;
pub mod foreign;
pub mod frame;
pub mod landing;
pub mod limit;
pub mod local;
pub mod shm;
pub mod stream;
pub mod tcp;
#[cfg(feature = "verbs")]
pub mod verbs;
mod watch;

use std::{fmt, time::Duration};

pub use freshet_base::cpu;
pub use freshet_memory as memory;
use serde::{Deserialize, Serialize};

pub use self::error::{OpenError, ReceiveError, SendError};
use self::memory::{Region, SharedKey};

/// Which fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FabricKind {
    /// Emulated over TCP: works everywhere.
    #[default]
    Tcp,
    /// Shared memory: between processes of one machine and one user.
    Shm,
    /// RDMA.
    Verbs,
}

impl FabricKind {
    /// Whether both ends are on one machine: they have one clock, and pass descriptors to one
    /// another.
    pub fn is_local(self) -> bool {
        self == Self::Shm
    }

    /// Whether a side's processor has no part in what the other side writes there. Else one of its
    /// threads does what a network card would.
    pub fn is_one_sided(self) -> bool {
        self != Self::Tcp
    }
}

freshet_base::named!(FabricKind, "fabric", { Tcp: "tcp", Shm: "shm", Verbs: "verbs" });

/// How a fabric is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricConfig {
    /// A thread that waits for an immediate value looks for it this long before going to sleep.
    /// Only worth anything where a processor is idle.
    pub spin: Duration,
    /// Where the fabric allocates memory itself, it tries huge pages.
    pub huge_pages: bool,
    /// The other side may take this long to take something in.
    pub patience: Duration,
    /// Without TLS over TCP once both sides have authenticated, if both want that.
    pub bare: bool,
    /// The RDMA device, its port and the index of its address; none: the first device that is up.
    pub device: Option<(String, u8, u8)>,
}

impl Default for FabricConfig {
    fn default() -> Self {
        Self { spin: Duration::ZERO, huge_pages: false, patience: Duration::from_secs(5), bare: false, device: None }
    }
}

/// A place in the other side's registered memory, to the byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the region, in the order of the other side's offer.
    pub region: usize,
    /// Where in it, in bytes.
    pub offset: u64,
}

/// How the other side reaches one registered region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionKey {
    /// Its length in bytes.
    pub length: u64,
    /// What the fabric needs to know.
    pub access: Access,
}

/// What a fabric needs to know of a region of the other side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Its number is enough.
    Tcp,
    /// The mapping.
    Shm(SharedKey),
    /// Address and key.
    Verbs {
        /// Where it lies in the other process.
        address: u64,
        /// The remote key.
        key: u32,
    },
}

/// How immediate values reach a side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bell {
    /// In frames.
    Tcp,
    /// In a ring in shared memory.
    Shm(SharedKey),
    /// By a queue pair.
    Verbs {
        /// Its number.
        queue_pair: u32,
        /// The first sequence number of its packets.
        sequence: u32,
        /// The port's global address.
        gid: [u8; 16],
        /// The port's local address, where there is a subnet manager.
        lid: u16,
        /// The largest packet of the port, as the verbs number it.
        mtu: u32,
    },
}

/// What one side tells the other before they are connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Its memory.
    pub regions: Vec<RegionKey>,
    /// How it hears.
    pub bell: Bell,
}

impl Offer {
    /// Which fabric it is made for.
    pub fn kind(&self) -> FabricKind {
        match self.bell {
            Bell::Tcp => FabricKind::Tcp,
            Bell::Shm(_) => FabricKind::Shm,
            Bell::Verbs { .. } => FabricKind::Verbs,
        }
    }
}

/// One write of a list.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Where to.
    pub to: Place,
    /// What, one piece after another.
    pub pieces: &'a [&'a [u8]],
    /// What the other side's completion queue hears when this, and everything that was written
    /// before it, is in place.
    pub immediate: Option<u32>,
    /// Of what was written before it, all that is to be durable is so before this is written.
    pub fenced: bool,
}

impl Write<'_> {
    /// How many bytes it writes.
    pub(crate) fn length(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

/// Names a list that was posted. Of two lists, the later one has the larger token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u64);

/// Posts work to a connection. Owned by one thread at a time. After an error it is of no more use.
pub trait QueuePair: Send {
    /// Posts a list of writes. They are done in their order, and after all that was posted before;
    /// this may return before they are. What they write may be changed as soon as it has returned.
    /// Nothing is written if one of them is out of bounds.
    ///
    /// The list has completed when all of it was sent and has reached the other side's memory or
    /// its caches. Where that memory [is to be durable](memory::Registered::method), it is then;
    /// else not (Query Fresh, section 2.3). Where `signaled`,
    /// [`QueuePair::completed`] tells of that by itself; else it may do so only with a later list.
    /// An empty list completes when everything that was posted before has.
    ///
    /// # Errors
    /// [`SendError`].
    fn post(&mut self, list: &[Write<'_>], signaled: bool) -> Result<Token, SendError>;

    /// The newest list that has completed, and all before it with it. Never blocks.
    ///
    /// # Errors
    /// [`SendError`]; it says nothing of what has completed before.
    fn completed(&mut self) -> Result<Token, SendError>;

    /// Blocks until a list, and all before it, has completed; for the other side's silence at most
    /// for [`FabricConfig::patience`].
    ///
    /// # Errors
    /// [`SendError`]; it says nothing of what has completed before.
    fn wait(&mut self, token: Token) -> Result<(), SendError>;

    /// Posts one write.
    ///
    /// # Errors
    /// [`SendError`].
    fn write(&mut self, to: Place, pieces: &[&[u8]]) -> Result<(), SendError> {
        self.post(&[Write { to, pieces, immediate: None, fenced: false }], false).map(drop)
    }

    /// The same, and the other side's completion queue hears `immediate` when everything that was
    /// written so far is in place.
    ///
    /// # Errors
    /// [`SendError`].
    fn write_with_imm(&mut self, to: Place, pieces: &[&[u8]], immediate: u32) -> Result<(), SendError> {
        self.post(&[Write { to, pieces, immediate: Some(immediate), fenced: false }], false).map(drop)
    }

    /// Reads from `from`, after everything that was written before. Blocks for it, as long as
    /// [`QueuePair::wait`] may.
    ///
    /// # Errors
    /// [`SendError`].
    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), SendError>;

    /// Reads several pieces, after everything that was written before. Blocks for all of them at
    /// once where the fabric can ask for more than one.
    ///
    /// # Errors
    /// [`SendError`].
    fn read_all(&mut self, list: &mut [(Place, &mut [u8])]) -> Result<(), SendError> {
        list.iter_mut().try_for_each(|(from, into)| self.read(*from, into))
    }

    /// Adds `add` to the word at `at`, and returns what it was. Atomic with respect to all that is
    /// added through this fabric. Blocks for it.
    ///
    /// # Errors
    /// [`SendError`].
    fn fetch_add(&mut self, at: Place, add: u64) -> Result<u64, SendError>;

    /// Blocks until everything that was posted has completed.
    ///
    /// # Errors
    /// [`SendError`].
    fn complete(&mut self) -> Result<(), SendError> {
        let all = self.post(&[], true)?;
        self.wait(all)
    }

    /// The other side has registered more memory ([`CompletionQueue::register`]), and has said so
    /// with this key. Returns the region's number. To be called in the order in which it was
    /// registered. May block for the other side.
    ///
    /// # Errors
    /// [`OpenError`] when the memory cannot be reached; the connection stays as it was.
    fn attach(&mut self, key: &RegionKey) -> Result<usize, OpenError>;

    /// The length of a region of the other side, in bytes; zero for one that was not offered.
    fn region_length(&self, region: usize) -> u64;

    /// Sees to it that what was posted arrives although this side ends the connection. Blocks at
    /// most for `patience`.
    fn farewell(&mut self, patience: Duration) {
        let _ = patience;
    }

    /// Whether posting takes no longer than copying, as long as there [is
    /// room](QueuePair::has_room): then it waits for no other thread, no socket and no limit.
    fn is_prompt(&self) -> bool;

    /// Whether a few more writes, of this many bytes together, could be posted now without waiting
    /// for the other side to hear of earlier ones, nor for a limit.
    fn has_room(&self, bytes: u64) -> bool {
        let _ = bytes;
        true
    }
}

/// Hears of what the other side has written. Owned by one thread at a time. After an error it is of
/// no more use.
pub trait CompletionQueue: Send {
    /// Blocks for the next immediate value, at most for `patience`; none when none came.
    ///
    /// # Errors
    /// [`ReceiveError`].
    fn next(&mut self, patience: Duration) -> Result<Option<u32>, ReceiveError>;

    /// Registers one more region, and returns what the other side has to be told of it. Its number
    /// follows that of the last one.
    ///
    /// # Errors
    /// [`OpenError`]; the connection stays as it was.
    fn register(&mut self, region: Region) -> Result<RegionKey, OpenError>;

    /// Ends it for the other side: from the return of this on, nothing that it asks for succeeds,
    /// neither reads nor completions. What has succeeded before is in place, and
    /// [`CompletionQueue::next`] still tells of it, without waiting for more; after that it fails.
    /// What this side sends may still arrive.
    ///
    /// It waits for what is just being written: nothing lands in any region after its return. There
    /// is one exception. Where the other side has mapped this memory (`shm`) it may continue to
    /// store there, although it is told that it failed. So a caller that uses such memory further
    /// moves it, once it has heard what there was to hear, unless
    /// [no process has it mapped](memory::SharedMemory::is_mapped_elsewhere).
    fn revoke(&mut self);
}

/// Both ends of a connection, on this side.
pub struct Connected {
    /// Posts.
    pub queue: Box<dyn QueuePair>,
    /// Hears.
    pub completions: Box<dyn CompletionQueue>,
    /// What went over it.
    pub counters: std::sync::Arc<tcp::Counters>,
    /// The other side.
    pub peer: std::net::SocketAddr,
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connected({})", self.peer)
    }
}

/// One side of a connection to be.
#[derive(Debug)]
pub struct Prepared {
    offer: Offer,
    config: FabricConfig,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Tcp(Vec<Region>),
    Shm(shm::Prepared),
    #[cfg(feature = "verbs")]
    Verbs(verbs::Prepared),
}

impl Prepared {
    /// Registers `regions` with a fabric.
    ///
    /// # Errors
    /// [`OpenError`] when this machine does not have that fabric, or memory is none that it can
    /// register.
    pub fn new(kind: FabricKind, regions: Vec<Region>, config: FabricConfig) -> Result<Self, OpenError> {
        match kind {
            FabricKind::Tcp => {
                let offer = Offer { regions: regions.iter().map(tcp::queue::key_of).collect(), bell: Bell::Tcp };
                Ok(Self { offer, config, kind: Kind::Tcp(regions) })
            }
            FabricKind::Shm => {
                let (prepared, offer) = shm::Prepared::new(regions, &config)?;
                Ok(Self { offer, config, kind: Kind::Shm(prepared) })
            }
            #[cfg(feature = "verbs")]
            FabricKind::Verbs => {
                let (prepared, offer) = verbs::Prepared::new(regions, &config)?;
                Ok(Self { offer, config, kind: Kind::Verbs(prepared) })
            }
            #[cfg(not(feature = "verbs"))]
            FabricKind::Verbs => Err(OpenError::NotBuilt),
        }
    }

    /// What the other side must be told.
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Connects with the side that made the offer `theirs`, beside `connection`, on which nothing
    /// else is said from now on.
    ///
    /// # Errors
    /// [`OpenError`] when the offer is for another fabric, or the other side's memory cannot be
    /// reached.
    pub fn connect(self, theirs: &Offer, connection: tcp::Connection) -> Result<Connected, OpenError> {
        match (self.kind, &theirs.bell) {
            (Kind::Tcp(regions), Bell::Tcp) => Ok(tcp::queue::connect(regions, theirs, connection, &self.config)?),
            (Kind::Shm(prepared), Bell::Shm(bell)) => prepared.connect(theirs, bell, connection, &self.config),
            #[cfg(feature = "verbs")]
            (Kind::Verbs(prepared), Bell::Verbs { .. }) => prepared.connect(theirs, connection, &self.config),
            (_, _) => Err(OpenError::OtherFabric { ours: self.offer.kind(), theirs: theirs.kind() }),
        }
    }
}

/// Whether `[offset, offset + length)` lies in a region of `bytes` bytes.
pub(crate) fn fits(offset: u64, length: u64, bytes: u64) -> bool {
    offset.checked_add(length).is_some_and(|end| end <= bytes)
}

/// Whether a whole word lies at `offset` of a region of `bytes` bytes.
pub(crate) fn is_word(offset: u64, bytes: u64) -> bool {
    offset.is_multiple_of(8) && fits(offset, 8, bytes)
}

/// No connection has more regions: their numbers have 16 bits.
pub(crate) const REGIONS: usize = 1 << 16;

/// There is no room for one more region.
pub(crate) fn too_many(kind: FabricKind) -> OpenError {
    OpenError::Missing { kind, why: format!("a connection has at most {REGIONS} pieces of memory: take larger ones") }
}

#[cfg(test)]
mod tests;
