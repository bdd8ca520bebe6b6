//! A node's log directory: who it belongs to, which terms it has lived through, and that only one
//! process has it.
//!
//! The file `control` is a few lines of text, so that it can be read in an emergency:
//!
//! ```text
//! freshet control 3
//! cluster 000102030405060708090a0b0c0d0e0f
//! node 0011223344556677
//! segment-size 67108864
//! streams 1
//! heard 2 0011223344556677
//! term 1 0 0011223344556677 13579bdf02468ace
//! term 2 81234 8899aabbccddeeff 02468ace13579bdf
//! in-sync 0102030405
//! led 1
//! log here
//! journal 12
//! life 0123456789abcdef 81300
//! incarnation 89abcdef01234567
//! former 76543210fedcba98
//! reached 81300
//! lease 400
//! writes 17
//! joins
//! crc 89abcdef
//! ```
//!
//! `heard` is the latest term the node knows of, and who leads in it (`-` if unknown). Each `term`
//! line says at which LSN a term began, who led, and a random number of that term. `in-sync`, where
//! there is such a line, is the newest in-sync set that the node knows of, in the words of
//! replication, and `led` the latest term of its own in which such a set took effect. `log`, where
//! there is such a line, says that the node has begun its log, and whether it is `here`, in this
//! directory, or `elsewhere`: a log that is not there is missing from then on, and no new one.
//! `journal`, where there is such a line, is the number of the newest file of the journal of what
//! has arrived. `life`, on a mirror that keeps its memory, is the number that this memory has to
//! have, the LSN that it has to reach, and then, while the number is being changed, the one of
//! before. `incarnation` says which log it is, `former` which ones this directory had before and
//! lost, `reached` how far each stream of it was durable at least, `lease` for how many
//! milliseconds a grant of this node may last, and `writes` how often this file was written (module
//! `parts`). `joins`, where it stands, says that the node was made to join a cluster. The last line
//! is the CRC-32C of all bytes before it. The file is never changed in place: a new one is written,
//! synced and renamed over it.

mod error;
mod fields;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use freshet_base::{
    ClusterId, Lsn, NodeId, Regularly, Term, private,
    versions::{RELEASE, Versions},
};

pub use error::ControlError;

use self::fields::{from_hex, life_of, term_entry};
use crate::{
    block::MAX_STREAMS,
    identity::{Claim, first_foreign},
    medium::{make_directory, with_descriptors},
    parts::{self, ControlFile},
    sealed::{self, seal},
    segments::{MIN_SEGMENT, StoreConfig, StoreError},
    store::LogStore,
};

pub(crate) const CONTROL: &str = "control";
const LOCK: &str = "lock";
/// A control file that is being written.
const UNFINISHED: &str = "control.new";
const HEAD: &str = "freshet control ";
/// Those before 6 have an in-sync set in other words: only a restore reads them.
const READS: Versions = Versions::new(2, 6);
/// A node starts from this one on.
const STARTS: u32 = 6;

/// Where a node keeps its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPlace {
    /// In its directory.
    Here,
    /// In directories that were named (`log-dir`).
    Elsewhere,
}

/// What the control file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// The cluster that the log belongs to.
    pub cluster: ClusterId,
    /// The node that the log belongs to.
    pub node: NodeId,
    /// How much of the log a segment holds, in bytes.
    pub segment_size: u64,
    /// How many streams the log has; fixed when it is made.
    pub streams: usize,
    /// Which term began where, ascending in both, who led in it, and the random number of that
    /// lead.
    pub terms: Vec<(Term, Lsn, NodeId, u64)>,
    /// The latest term that this node has observed, and whose it is: everything earlier is refused.
    pub latest_term: (Term, Option<NodeId>),
    /// The newest in-sync set that this node knows of, as replication writes it.
    pub in_sync: Option<Vec<u8>>,
    /// The latest term of this node itself in which an in-sync set took effect.
    pub led: Option<Term>,
    /// Where the log is, once it was begun.
    pub log: Option<LogPlace>,
    /// The newest file of the journal of what has arrived, if there is one.
    pub journal: Option<u64>,
    /// The number of the memory that a mirror keeps, the LSN that this reaches, and the number
    /// that it may have as well.
    pub life: Option<(u64, Lsn, Option<u64>)>,
    /// Which log this is: a random number that a directory gets before its log begins, and loses
    /// with it. For a mirror, of the memory that it began with nothing in it.
    pub incarnation: Option<u64>,
    /// Which ones this directory had before: see `freshet_cluster::term::TermState::former`.
    pub former: Vec<u64>,
    /// How far each stream of the log was durable, at least: a log that has less is another one, or
    /// an older state of it. Positions; with one stream, they are LSNs.
    pub reached: Option<Vec<Lsn>>,
    /// The longest lease that was asked of this node, in milliseconds.
    pub lease_ms: u64,
    /// How often the file was written.
    pub writes: u64,
    /// The node was made to join a cluster.
    pub joins: bool,
    /// It is a witness: it has no log, and never will.
    pub witness: bool,
    /// The format in which it was read. It is written as the format level says.
    pub format: u32,
}

impl Control {
    /// Of a new node, which has neither begun a log nor heard of a term.
    pub fn new(cluster: ClusterId, node: NodeId, segment_size: u64, streams: usize) -> Self {
        Self {
            cluster,
            node,
            segment_size,
            streams,
            terms: Vec::new(),
            latest_term: (Term(0), None),
            in_sync: None,
            led: None,
            log: None,
            journal: None,
            life: None,
            incarnation: None,
            former: Vec::new(),
            reached: None,
            lease_ms: 0,
            writes: 0,
            joins: false,
            witness: false,
            format: READS.writes(),
        }
    }

    fn encode(&self) -> String {
        let format = READS.writes();
        let mut text = format!("{HEAD}{format}\ncluster {}\nnode {}\n", self.cluster, self.node);
        text.push_str(&format!("segment-size {}\nstreams {}\n", self.segment_size, self.streams));
        let holder = self.latest_term.1.map_or_else(|| "-".to_owned(), |node| node.to_string());
        text.push_str(&format!("heard {} {holder}\n", self.latest_term.0));
        for (term, start, node, nonce) in &self.terms {
            text.push_str(&format!("term {term} {start} {node} {nonce:016x}\n"));
        }
        let mut line = |name, value: Option<String>| text.extend(value.map(|value| format!("{name} {value}\n")));
        line("in-sync", self.in_sync.as_ref().map(|set| set.iter().map(|byte| format!("{byte:02x}")).collect()));
        line("led", self.led.map(|led| led.to_string()));
        let log = self.log.map(|place| if place == LogPlace::Here { "here" } else { "elsewhere" });
        line("log", log.map(str::to_owned));
        line("journal", self.journal.map(|journal| journal.to_string()));
        line("lease", (self.lease_ms > 0).then(|| self.lease_ms.to_string()));
        if let Some((number, reached, before)) = self.life {
            let before = before.map_or_else(String::new, |before| format!(" {before:016x}"));
            text.push_str(&format!("life {number:016x} {}{before}\n", reached.0));
        }
        if let Some(incarnation) = self.incarnation {
            text.push_str(&format!("incarnation {incarnation:016x}\n"));
        }
        if !self.former.is_empty() {
            let former: String = self.former.iter().map(|lost| format!(" {lost:016x}")).collect();
            text.push_str(&format!("former{former}\n"));
        }
        if let Some(reached) = &self.reached {
            let positions: String = reached.iter().map(|position| format!(" {}", position.0)).collect();
            text.push_str(&format!("reached{positions}\n"));
        }
        text.push_str(&format!("writes {}\n", self.writes));
        if self.joins {
            text.push_str("joins\n");
        }
        if self.witness {
            text.push_str("witness\n");
        }
        if READS.is_next(format) {
            text.push_str(&format!("release {RELEASE}\n"));
        }
        seal(text)
    }

    fn decode(text: &str, file: &Path) -> Result<Self, ControlError> {
        let damaged = |what: &str| ControlError::Damaged { file: file.to_owned(), what: what.to_owned() };
        let first = text.lines().next().unwrap_or_default();
        let format = first.strip_prefix(HEAD).ok_or_else(|| damaged("it does not begin as a control file does"))?;
        let format: u32 = format.parse().map_err(|_| damaged("its format is none"))?;
        READS.check(format).map_err(|cause| ControlError::Format { file: file.to_owned(), cause })?;
        let mut lines = sealed::open(text).map_err(damaged)?.lines().skip(1);
        let mut field = |name: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.ok_or_else(|| damaged(&format!("no {name} where it should be")))
        };
        let bad = |name: &str| damaged(&format!("its {name} is none"));
        let cluster = u128::from_str_radix(field("cluster")?, 16).map_err(|_| bad("cluster"))?;
        let node = u64::from_str_radix(field("node")?, 16).map_err(|_| bad("node"))?;
        let segment_size: u64 = field("segment-size")?.parse().map_err(|_| bad("segment size"))?;
        if segment_size < MIN_SEGMENT || !segment_size.is_multiple_of(MIN_SEGMENT) {
            return Err(bad("segment size"));
        }
        let streams: usize = field("streams")?.parse().map_err(|_| bad("number of streams"))?;
        if streams == 0 || streams > MAX_STREAMS {
            return Err(bad("number of streams"));
        }
        let latest = field("heard")?.split_once(' ').ok_or_else(|| bad("latest term"))?;
        let holder = match latest.1 {
            "-" => None,
            node => Some(NodeId(u64::from_str_radix(node, 16).map_err(|_| bad("latest term"))?)),
        };
        let latest_term = (Term(latest.0.parse().map_err(|_| bad("latest term"))?), holder);
        let (cluster, node) = (ClusterId(cluster), NodeId(node));
        let mut control = Self { latest_term, format, ..Self::new(cluster, node, segment_size, streams) };
        for line in lines {
            control.take(line).map_err(bad)?;
        }
        Ok(control)
    }

    /// Takes in a line that need not be there; says which one is none.
    fn take(&mut self, line: &str) -> Result<(), &'static str> {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            "joins" => self.joins = true,
            "witness" => self.witness = true,
            "release" if READS.is_next(self.format) => {}
            "log" => {
                self.log = Some(match value {
                    "here" => LogPlace::Here,
                    "elsewhere" => LogPlace::Elsewhere,
                    _ => return Err("log's place"),
                });
            }
            "in-sync" => self.in_sync = Some(from_hex(value).ok_or("in-sync set")?),
            // It had another name in format 2 at first.
            _ if name == "led" || name.strip_prefix("rei") == Some("gned") => {
                self.led = Some(Term(value.parse().map_err(|_| "own latest term")?))
            }
            "journal" => self.journal = Some(value.parse().map_err(|_| "newest file of the journal")?),
            "life" => self.life = Some(life_of(value).ok_or("number of the kept memory")?),
            "incarnation" => {
                self.incarnation = Some(u64::from_str_radix(value, 16).map_err(|_| "incarnation")?);
            }
            "former" => {
                let former: Result<_, _> = value.split(' ').map(|lost| u64::from_str_radix(lost, 16)).collect();
                self.former = former.map_err(|_| "former incarnations")?;
            }
            "reached" => {
                let positions: Result<_, _> = value.split(' ').map(|at| at.parse().map(Lsn)).collect();
                self.reached = Some(positions.map_err(|_| "note of how far the log had come")?);
            }
            "lease" => self.lease_ms = value.parse().map_err(|_| "longest lease")?,
            "writes" => self.writes = value.parse().map_err(|_| "count of its writes")?,
            "term" => {
                let term = term_entry(value, self.format).ok_or("term history")?;
                if self.terms.last().is_some_and(|last| last.0 >= term.0 || last.1 > term.1) {
                    return Err("term history");
                }
                self.terms.push(term);
            }
            _ => return Err("term history"),
        }
        Ok(())
    }

    /// The newest term; zero before the first.
    pub fn term(&self) -> Term {
        self.terms.last().map_or(Term(0), |last| last.0)
    }

    /// The configuration of this log's store.
    pub fn store_config(&self) -> StoreConfig {
        StoreConfig { cluster: self.cluster, segment_size: self.segment_size }
    }
}

/// A log directory that this process owns until it is dropped.
#[derive(Debug)]
pub struct LogDirectory {
    /// Ends before another process may have the directory.
    noting: Mutex<Option<Regularly>>,
    file: Arc<ControlFile>,
    /// Locked for as long as it is open.
    _lock: File,
}

impl LogDirectory {
    /// Makes a new log directory, with its parents.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::Exists`] when there is a log in it,
    /// [`ControlError::Foreign`] when there is anything else.
    pub fn create(path: &Path, control: Control) -> Result<Self, ControlError> {
        Self::check_unused(path)?;
        make_directory(path).map_err(|source| io_error("make the directory", path, source))?;
        private::keep_directory(path).map_err(|source| io_error("make private", path, source))?;
        let lock = take_lock(path)?;
        let exists = path.join(CONTROL).try_exists();
        if exists.map_err(|source| io_error("look into", path, source))? {
            return Err(ControlError::Exists(path.to_owned()));
        }
        replace(path, &control)?;
        Ok(Self::of(path, control, lock))
    }

    fn of(path: &Path, control: Control, lock: File) -> Self {
        Self { noting: Mutex::default(), file: Arc::new(ControlFile::new(path, control)), _lock: lock }
    }

    /// Whether nothing else uses the directory: it is not there, or there is nothing in it but what
    /// the interrupted making of a log leaves, and empty directories; or it holds a log.
    ///
    /// # Errors
    /// [`ControlError::Foreign`] if not; [`ControlError::Io`].
    pub fn check_unused(path: &Path) -> Result<(), ControlError> {
        let failed = |source| io_error("look into", path, source);
        if path.join(CONTROL).try_exists().map_err(failed)? {
            return Ok(());
        }
        match first_foreign(path, &|name| name == LOCK || name == UNFINISHED)? {
            Some(found) => Err(ControlError::foreign(path, found)),
            None => Ok(private::check_owner(path)?),
        }
    }

    /// Opens a log directory, to write to it.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::NoLog`] when there is no log in it,
    /// [`ControlError::OpenToOthers`] when others can read it.
    pub fn open(path: &Path) -> Result<Self, ControlError> {
        if path.join(CONTROL).try_exists().is_ok_and(|exists| exists) {
            private::check(path)?;
        }
        let opened = Self::open_source(path)?;
        match opened.control().format {
            found @ ..STARTS => Err(ControlError::Earlier { directory: path.to_owned(), found }),
            _ => Ok(opened),
        }
    }

    /// Opens a log directory from which something is copied, however it is kept: a backup may come
    /// from anywhere.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::NoLog`] when there is no log in it.
    pub fn open_source(path: &Path) -> Result<Self, ControlError> {
        // Before the lock, which would make a file in whatever directory this is.
        let control = read_control(path)?;
        let lock = take_lock(path)?;
        drop(control);
        // Again: it may have changed until the lock was ours.
        let control = read_control(path)?;
        // Its content was durable before it got its name; who gave it the name may have ended
        // before that was durable, too.
        let synced = File::open(path).and_then(|directory| directory.sync_all());
        synced.map_err(|source| io_error("sync", path, source))?;
        Ok(Self::of(path, control, lock))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.file.directory()
    }

    /// What its control file says.
    pub fn control(&self) -> Control {
        self.file.control()
    }

    /// Changes the control file, durably.
    ///
    /// # Errors
    /// [`ControlError::Io`]; the old one stays then for as long as this process has the directory.
    /// A restart may find either, so the change must not have been told to anyone.
    pub fn update(&self, change: impl FnOnce(&mut Control)) -> Result<(), ControlError> {
        self.file.update(change)
    }

    /// Opens the streams of the log: in `directories`, one for each, in their order; or, when none
    /// are given, in this directory, if there is one stream, else in `stream-0`, `stream-1` and so
    /// on below it. They are made when they are not there, unless the log [has
    /// begun](Self::log_has_begun). Nothing is written before all of them were looked at.
    ///
    /// # Errors
    /// As [`SegmentStore::open`](crate::SegmentStore::open); [`StoreError::Stream`] when a
    /// directory is another stream's, [`StoreError::Directory`] when it is not this node's, the log
    /// that has begun is not there, or what is there does not belong together (module `parts`).
    pub fn open_store(&self, directories: &[PathBuf]) -> Result<LogStore, StoreError> {
        let control = self.control();
        let path = self.path();
        let streams = stream_directories(path, &control, directories)?;
        let store = if streams.is_empty() {
            LogStore::open_directory(path, control.store_config())?
        } else {
            for claim in check_streams(path, &control, &streams)? {
                claim.make()?;
            }
            LogStore::open_directories(&streams, control.store_config())?
        };
        parts::check(path, &control, &streams, &store)?;
        if control.incarnation.is_none() {
            // Before any file says so.
            let number = getrandom::u64()
                .map_err(|cause| io_error("ask for a random number for", path, io::Error::other(cause)))?;
            self.update(|control| control.incarnation = Some(number.max(1)))?;
        }
        self.file.attach(&store);
        Ok(store)
    }

    /// Notes, durably and once, that the log is there now: in `directories`, which were
    /// [opened](Self::open_store), or when there are none in this directory. To be called when it
    /// can be appended to, before anything in it counts.
    ///
    /// # Errors
    /// [`ControlError::Io`].
    pub fn log_has_begun(&self, directories: &[PathBuf]) -> Result<(), ControlError> {
        if self.control().log.is_none() {
            let place = if directories.is_empty() { LogPlace::Here } else { LogPlace::Elsewhere };
            self.update(|control| control.log = Some(place))?;
        }
        let mut noting = self.noting.lock().unwrap_or_else(PoisonError::into_inner);
        if noting.is_none() {
            *noting = parts::noting(&self.file);
        }
        Ok(())
    }

    /// Removes the log: nothing of it counts, and another one may begin anywhere.
    ///
    /// # Errors
    /// [`StoreError`]; to be done again then.
    pub fn clear_log(&self, store: &LogStore) -> Result<(), StoreError> {
        // First what says that it must be there.
        self.update(|control| (control.log, control.reached) = (None, None))?;
        store.clear()
    }

    /// Takes directories for the rows of checkpoints. `known` are names of what is this node's in
    /// them, although nothing there says so.
    ///
    /// # Errors
    /// [`StoreError::Directory`] when one is not this node's: no other is changed then.
    /// [`StoreError::Io`].
    pub fn take_checkpoint_devices(
        &self,
        directories: &[PathBuf],
        known: &dyn Fn(&str) -> bool,
    ) -> Result<(), StoreError> {
        let control = self.control();
        for claim in check_checkpoint_devices(&control, directories, known)? {
            claim.make()?;
        }
        Ok(())
    }
}

/// Whether a node of this name, with its directory at `path`, can have its log in `logs` and the
/// rows of its checkpoints in `checkpoints`: nothing else is in them. Changes nothing; for a node
/// that is not there yet, and before the first of them is taken.
///
/// # Errors
/// As [`LogDirectory::open_store`] and [`LogDirectory::take_checkpoint_devices`].
pub fn check_devices(
    path: &Path,
    control: &Control,
    logs: &[PathBuf],
    checkpoints: &[PathBuf],
    known: &dyn Fn(&str) -> bool,
) -> Result<(), StoreError> {
    let streams = stream_directories(path, control, logs)?;
    check_streams(path, control, &streams)?;
    check_checkpoint_devices(control, checkpoints, known)?;
    for directory in logs.iter().chain(checkpoints) {
        // An empty one is made private when it is taken.
        let is_empty = first_foreign(directory, &|_| false)?.is_none();
        let checked = if is_empty { private::check_owner(directory) } else { private::check(directory) };
        checked.map_err(ControlError::from)?;
    }
    Ok(())
}

/// Where the streams are that have directories of their own.
fn stream_directories(path: &Path, control: &Control, directories: &[PathBuf]) -> Result<Vec<PathBuf>, StoreError> {
    let wrong = |what, place| Err(ControlError::Place { directory: path.to_owned(), what, place }.into());
    match (control.log, directories) {
        (Some(LogPlace::Here), [_, ..]) => return wrong("log-dir is to be left out", "in that directory"),
        (Some(LogPlace::Elsewhere), []) => {
            return wrong("log-dir is missing", "in directories that log-dir named: name them again");
        }
        _ => {}
    }
    if directories.is_empty() {
        let below = 0..if control.streams > 1 { control.streams } else { 0 };
        return Ok(below.map(|stream| path.join(format!("stream-{stream}"))).collect());
    }
    let stream_error = |what| Err(StoreError::Stream { file: path.join(CONTROL), what });
    if directories.len() != control.streams {
        let given = directories.len();
        return stream_error(format!("{given} directories are given, the log has {} streams", control.streams));
    }
    let whole = |directory: &PathBuf| fs::canonicalize(directory).unwrap_or_else(|_| directory.clone());
    let places: Vec<_> = directories.iter().map(whole).collect();
    if let Some(twice) = (1..places.len()).find(|at| places[..*at].contains(&places[*at])) {
        return stream_error(format!("{} is given twice", directories[twice].display()));
    }
    Ok(directories.to_vec())
}

/// Those of the streams' directories that are to be taken.
fn check_streams<'c>(
    path: &Path,
    control: &'c Control,
    directories: &'c [PathBuf],
) -> Result<Vec<Claim<'c>>, StoreError> {
    let mut claims = Vec::new();
    for (stream, directory) in directories.iter().enumerate() {
        let claim = Claim::stream(directory, stream, control);
        if claim.check(&|_| false)? {
            continue;
        }
        if control.log.is_some() {
            return Err(ControlError::LogGone { missing: directory.clone(), directory: path.to_owned() }.into());
        }
        claims.push(claim);
    }
    Ok(claims)
}

/// Those of the directories for checkpoints that are to be taken.
fn check_checkpoint_devices<'c>(
    control: &'c Control,
    directories: &'c [PathBuf],
    known: &dyn Fn(&str) -> bool,
) -> Result<Vec<Claim<'c>>, StoreError> {
    let mut claims = Vec::new();
    for directory in directories {
        let claim = Claim::checkpoints(directory, control);
        if !claim.check(known)? {
            claims.push(claim);
        }
    }
    Ok(claims)
}

/// Reads the control file of a directory without owning it: for looking only.
///
/// # Errors
/// [`ControlError`].
pub fn read_control(directory: &Path) -> Result<Control, ControlError> {
    let file = directory.join(CONTROL);
    match fs::read_to_string(&file) {
        Ok(text) => Control::decode(&text, &file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ControlError::NoLog(directory.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(ControlError::Damaged { file, what: "it is not text".to_owned() })
        }
        Err(source) => Err(io_error("read", &file, source)),
    }
}

pub(crate) fn io_error(doing: &'static str, file: &Path, source: io::Error) -> ControlError {
    ControlError::Io { doing, file: file.to_owned(), source }
}

fn take_lock(directory: &Path) -> Result<File, ControlError> {
    let path = directory.join(LOCK);
    let opened = private::open(OpenOptions::new().read(true).write(true).create(true).truncate(false), &path);
    let file = opened.map_err(|source| io_error("open", &path, source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ControlError::Locked(directory.to_owned())),
        Err(TryLockError::Error(source)) => Err(io_error("lock", &path, source)),
    }
}

/// Whether a process owns the log directory now. When none does, this one has a share of the lock
/// for a moment.
pub(crate) fn is_owned(directory: &Path) -> bool {
    let lock = File::open(directory.join(LOCK));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Durable when this returns. Takes no room, so that a node on a full disk can promise a term.
pub(crate) fn replace(directory: &Path, control: &Control) -> Result<(), ControlError> {
    let (file, unfinished) = (directory.join(CONTROL), directory.join(UNFINISHED));
    let text = control.encode();
    let write = || private::exchange(&file, &unfinished, text.as_bytes());
    with_descriptors(write).map_err(|source| io_error("replace", &file, source))
}
