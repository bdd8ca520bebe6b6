//! The log buffer in persistent memory, a primary's or a standby's: it *is* the newest part of the
//! log, and segments get it later ("de-staging").
//!
//! | bytes of the file `buffer` | |
//! |---|---|
//! | 0..8       | `FRESHBUF` |
//! | 8..12      | format version |
//! | 12..16     | CRC-32C of bytes 16..48 |
//! | 16..32     | cluster id |
//! | 32..40     | capacity of the ring in bytes |
//! | 40..48     | node id |
//! | 2048..2176 | how far the log is in the segments, durably ([`super::slots`]) |
//! | 4096..     | the ring: virtual byte `x` lies at `4096 + x mod capacity` |

use std::{
    fs,
    io::{self, Read},
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use freshet_base::{
    ClusterId, Lsn, NodeId, Term,
    private::{self, NotPrivate},
    versions::{OtherVersion, Versions},
};
use freshet_memory::{PERSISTENT, copy_words};

use super::{
    Delay, Lines, Medium, Method,
    map::Mapping,
    ring::{Ring, chain},
    slots,
};
use crate::{
    core::LogFailure,
    store::LogStore,
    stream::{Log, LogOpenError, ReceiveConfig},
    tail::Tail,
};

/// Other processes look for it before they map the file.
const MAGIC: &[u8; 8] = PERSISTENT;
const FORMAT: u32 = 2;
const READS: Versions = Versions::only(FORMAT);
const HEADER: usize = 4096;
const SLOTS: usize = 2048;

/// How a log buffer in persistent memory is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistenceConfig {
    /// The file; on a DAX file system for the real thing.
    pub path: PathBuf,
    /// Whose buffer it is: no other node's is replaced.
    pub owner: NodeId,
    /// How stores become durable.
    pub method: Method,
    /// Waited for at each insertion of a primary, and by each thread for its share on a standby, to
    /// stand for slower memory.
    pub delay: Duration,
    /// The same for each KiB that is made durable, in proportion to the bytes;
    /// [`super::time_around_cache`] is a measure.
    pub delay_per_kib: Duration,
}

/// Why a log buffer in persistent memory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BufferError {
    /// The operating system refused something.
    #[error("cannot {doing} {file}: {source}; check the file system and the permissions", file = .file.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file.
        file: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The processor cannot do it.
    #[error("this processor has no {0}: configure another persist-method, or auto")]
    Method(Method),
    /// The file is not what was written.
    #[error(
        "{file} is damaged ({what}): it may hold the end of the log; restore it from a backup, or remove it, which gives up what \
         was not in the segments yet",
        file = .file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What does not hold.
        what: String,
    },
    /// Written by another version.
    #[error("{file} has buffer {cause}; nothing was changed, and it may hold the end of the log", file = .file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// The format in its header.
        cause: OtherVersion,
    },
    /// Something else is there.
    #[error(
        "{file} is not empty and is not a log buffer of this node: move it away; nothing was changed",
        file = .0.display()
    )]
    Foreign(PathBuf),
    /// Others than this user can read it.
    #[error(transparent)]
    OpenToOthers(#[from] NotPrivate),
    /// It is not there, or was never used, and it held the end of the log.
    #[error(
        "{file} is missing or empty, but it held the end of the log when this node ended: bring it back; without it the node \
         can only join its cluster again, with an empty directory",
        file = .0.display()
    )]
    Missing(PathBuf),
    /// What it holds could not be put into the segments.
    #[error(transparent)]
    Log(#[from] LogFailure),
    /// As above.
    #[error(transparent)]
    Open(Box<LogOpenError>),
}

/// A ring in a mapped file.
#[derive(Debug)]
pub(crate) struct PersistentBuffer {
    mapping: Mapping,
    path: PathBuf,
    delay: Delay,
    /// The last sequence number of the slots.
    sequence: Mutex<u64>,
    destaged: AtomicU64,
}

/// How many bytes of the header are used.
const HEAD: usize = 48;

fn head(cluster: ClusterId, owner: NodeId, capacity: u64) -> [u8; HEAD] {
    let mut bytes = [0; HEAD];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[16..32].copy_from_slice(&cluster.0.to_le_bytes());
    bytes[32..40].copy_from_slice(&capacity.to_le_bytes());
    bytes[40..48].copy_from_slice(&owner.0.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Whether a whole header says that the buffer is that of another node than `owner` in `cluster`.
fn is_anothers(found: &[u8], cluster: ClusterId, owner: NodeId) -> bool {
    let capacity = u64::from_le_bytes(std::array::from_fn(|at| found[32 + at]));
    let whole = found[8..12] == FORMAT.to_le_bytes() && found[12..16] == crc32c::crc32c(&found[16..HEAD]).to_le_bytes();
    whole && found[..HEAD] != head(cluster, owner, capacity)
}

/// Whether this version reads a buffer whose header is there.
fn check_format(header: &[u8], file: &Path) -> Result<(), BufferError> {
    let found = u32::from_le_bytes(std::array::from_fn(|at| header[8 + at]));
    if !header.starts_with(MAGIC) {
        return Ok(());
    }
    READS.check(found).map_err(|cause| BufferError::Format { file: file.to_owned(), cause })
}

impl PersistentBuffer {
    /// Where in the file the ring begins.
    pub(crate) const RING: usize = HEADER;

    /// Makes the buffer for a log that continues at `start`, up to which the segments have
    /// everything. What was in the file must have been [recovered](recover_buffer) before.
    pub(crate) fn create(
        config: &PersistenceConfig,
        cluster: ClusterId,
        capacity: usize,
        start: Lsn,
    ) -> Result<Arc<Self>, BufferError> {
        if !config.method.is_available() {
            return Err(BufferError::Method(config.method));
        }
        let io = |doing, source| BufferError::Io { doing, file: config.path.clone(), source };
        // A link stays what it is, and names the new file.
        let path = fs::canonicalize(&config.path).unwrap_or_else(|_| config.path.clone());
        // A new file each time: a primary that stood still may have mapped the previous one, and
        // may continue to write there.
        let unfinished = unfinished(&path);
        for file in [&path, &unfinished] {
            if !may_be_buffer(file).map_err(|source| io("look at", source))? {
                return Err(BufferError::Foreign(file.clone()));
            }
        }
        remove(&unfinished).map_err(|source| io("replace", source))?;
        let mapping =
            Mapping::open(&unfinished, HEADER + capacity, config.method).map_err(|source| io("map", source))?;
        let this = Self {
            mapping,
            path,
            delay: Delay::of(config.delay, config.delay_per_kib),
            sequence: Mutex::new(0),
            destaged: start.0.into(),
        };
        this.write_slot(start);
        this.mapping.store(0, &head(cluster, config.owner, capacity as u64));
        this.mapping.persist(0, HEAD);
        // It counts from here on, whole; a crash before leaves the old one, and the segments have
        // everything that is in that.
        fs::rename(&unfinished, &this.path).map_err(|source| io("replace", source))?;
        sync_parent(&this.path).map_err(|source| io("sync", source))?;
        Ok(Arc::new(this))
    }

    /// Moves the buffer to a new file, which takes the old one's place: another process that has
    /// mapped that writes nowhere from now on. Those words of the ring that `keep` refuses are zero
    /// then. Nobody in this process writes to the ring in the meantime; a crash finds one file or
    /// the other.
    pub(crate) fn renew(&self, keep: &dyn Fn(usize) -> bool) -> io::Result<()> {
        // No slot is written in the meantime.
        let _slots = self.slots();
        let unfinished = unfinished(&self.path);
        remove(&unfinished)?;
        let length = self.mapping.words().len() * 8;
        let new = Mapping::open(&unfinished, length, self.mapping.method())?;
        copy_words(self.mapping.words(), new.words(), |word| word < HEADER / 8 || keep(word - HEADER / 8));
        new.flush_received(0, length);
        new.fence();
        fs::rename(&unfinished, &self.path)?;
        sync_parent(&self.path)?;
        self.mapping.replace(new)
    }

    /// The file, for others to map; the ring begins at [`Self::RING`].
    pub(crate) fn lend(&self) -> BorrowedFd<'_> {
        self.mapping.lend()
    }

    /// Whether others may have mapped it.
    pub(crate) fn is_lent(&self) -> bool {
        self.mapping.is_lent()
    }

    fn write_slot(&self, to: Lsn) {
        let mut sequence = self.slots();
        *sequence += 1;
        slots::write(&self.mapping, SLOTS, *sequence, to.0);
    }

    /// The ring's words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.mapping.words()[HEADER / 8..]
    }

    /// Copies a piece of a block into the ring and starts to make it durable; [`super::fence`]
    /// completes that.
    #[inline]
    pub(crate) fn insert(&self, at: usize, bytes: &[u8]) {
        self.mapping.store(HEADER + at, bytes);
        self.mapping.flush(HEADER + at, bytes.len());
        self.delay.wait(bytes.len());
    }

    /// The segments have everything below `to`, durably: the ring may be used again.
    pub(crate) fn note_destaged(&self, to: Lsn) {
        if self.destaged.load(Ordering::Acquire) < to.0 {
            self.write_slot(to);
            // Release: the slot is durable before the room is given back.
            self.destaged.fetch_max(to.0, Ordering::Release);
        }
    }

    fn slots(&self) -> MutexGuard<'_, u64> {
        self.sequence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) -> Ring {
        Ring { base: HEADER, capacity: (self.words().len() * 8) as u64 }
    }

    /// Makes durable what others have stored in `[from, to)`, the calling thread's share of a
    /// standby's log.
    pub(crate) fn persist_received(&self, from: Lsn, to: Lsn) {
        self.ring().persist_received(&self.mapping, from, to);
        self.delay.wait(to.since(from) as usize);
    }

    /// Whether what others have stored needs no work, and no delay stands for it.
    pub(crate) fn is_at_once(&self) -> bool {
        self.mapping.method() == Method::Eadr && self.delay == Delay::default()
    }

    /// Takes back everything at or above `at`, of a ring that was written up to `end` at most: a
    /// restart finds nothing of it. To be called before the same is done in the segments, and while
    /// nobody writes.
    pub(crate) fn take_back(&self, at: Lsn, end: Lsn) {
        if at < end {
            self.ring().erase(&self.mapping, at, end);
        }
        if at < self.destaged() {
            // The segments will end there.
            self.write_slot(at);
            self.destaged.fetch_min(at.0, Ordering::AcqRel);
        }
    }

    /// How far the segments have everything.
    pub(crate) fn destaged(&self) -> Lsn {
        Lsn(self.destaged.load(Ordering::Acquire))
    }

    /// What lies under it.
    pub(crate) fn medium(&self) -> &Medium {
        self.mapping.medium()
    }

    /// How stores become durable.
    pub(crate) fn method(&self) -> Method {
        self.mapping.method()
    }
}

/// Where a buffer is made that is to take the place of the one at `path`.
fn unfinished(path: &Path) -> PathBuf {
    path.with_added_extension("new")
}

/// Whether nothing but a log buffer can be at `path`, by its first bytes: a regular file that
/// begins as one does, an empty one, one that was never finished, or none.
fn may_be_buffer(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
        // To read another kind may never end.
        Ok(found) if !found.is_file() => return Ok(false),
        Ok(_) => {}
    }
    let mut first = Vec::new();
    fs::File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut first)?;
    Ok(first.is_empty() || first == MAGIC || first == [0; MAGIC.len()])
}

/// What an earlier attempt may have left.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| fs::File::open(parent)?.sync_all())
}

/// After a crash: puts what the buffer in the file at `path` holds beyond the end of the segments,
/// which is `tail`, into `store`, and returns where the log's blocks end then. Does nothing when
/// there is no such file, unless it is `expected`. `owner` is the node whose buffer it is to be.
///
/// `terms` is the history of terms: each, and where it began. Of a block that says another term
/// than led at its place, nothing is taken: a primary that was deposed may have left it there.
/// Without any, that is not asked.
///
/// The segments may end with half a transaction ([`LogStore::settle_before_buffer`]). When the rest
/// is not in the buffer either, they still do when this returns: then `tail.blocks_end` is
/// returned, the file is of no more use, and the store is to be settled once more.
///
/// # Errors
/// [`BufferError`]; nothing was changed then, or it can be done again.
pub fn recover_buffer(
    path: &Path,
    owner: NodeId,
    store: &LogStore,
    tail: &Tail,
    terms: &[(Term, Lsn)],
    expected: bool,
) -> Result<Lsn, BufferError> {
    let end = tail.blocks_end;
    let missing = || if expected { Err(BufferError::Missing(path.to_owned())) } else { Ok(end) };
    let failed = |source| BufferError::Io { doing: "read", file: path.to_owned(), source };
    // One that was in use may be damaged; anything else is another's.
    if !expected && !may_be_buffer(path).map_err(failed)? {
        return Err(BufferError::Foreign(path.to_owned()));
    }
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return missing(),
        Err(source) => return Err(failed(source)),
    };
    if bytes.iter().all(|byte| *byte == 0) {
        // Room for one: nothing was ever in it.
        return missing();
    }
    if !expected && !bytes.starts_with(MAGIC) {
        return Err(BufferError::Foreign(path.to_owned()));
    }
    let damaged = |what: &str| BufferError::Damaged { file: path.to_owned(), what: what.to_owned() };
    let capacity = bytes.len().saturating_sub(HEADER);
    if bytes.len() < HEADER || !capacity.is_power_of_two() {
        return Err(damaged("its length is none of a buffer"));
    }
    let cluster = store.config().cluster;
    if !expected && is_anothers(&bytes, cluster, owner) {
        return Err(BufferError::Foreign(path.to_owned()));
    }
    private::check_file(path)?;
    check_format(&bytes, path)?;
    if bytes[..HEAD] != head(cluster, owner, capacity as u64) {
        return Err(damaged("its header is not that of this node's buffer of this size"));
    }
    let slots_bytes = bytes[SLOTS..SLOTS + slots::BYTES].try_into().expect("it has that length");
    let (_, destaged) = slots::read(&slots_bytes).ok_or_else(|| damaged("it does not say how far the segments are"))?;
    if destaged > end.0 {
        return Err(damaged(&format!("the segments end at {end}, and had everything up to {destaged}")));
    }
    // At most one lap, beginning where the segments were sure to be.
    let rest = chain(&bytes[HEADER..], end, Lsn(destaged.saturating_add(capacity as u64)), terms);
    let whole = rest.len();
    if rest.is_empty() {
        return Ok(end);
    }
    // The way of a standby: into a ring, dealt out to streams, persisted.
    let config = ReceiveConfig { capacity: whole.next_power_of_two().max(1 << 16), ..ReceiveConfig::default() };
    let opened = Log::receive_within(&config, store.clone().into(), end, tail.end);
    let (log, mut receiver) = opened.map_err(|error| BufferError::Open(Box::new(error)))?;
    let to = end.plus(whole as u64);
    receiver.append(&rest).map_err(|error| damaged(&error.to_string()))?;
    log.close()?;
    Ok(to)
}
