//! Joining with an empty directory: a checkpoint and the log since then, side by side, while live
//! blocks arrive (Query Fresh, section 3.4.4). And the other side of it.
//!
//! As soon as the manifest says where the checkpoint begins, an [`Observer`] follows the primary
//! from there: it persists the log and replays nothing. When all files have come, and the log up to
//! the checkpoint's end, the observer ends, and the node restarts from its own checkpoint and log
//! like any other. Until then a file in its directory says that it is unfinished, and where its log
//! begins.
//!
//! A fuzzy checkpoint without the log up to its end is no state of the database. So nothing that
//! makes versions of it, shows it, takes it over or hands it on begins before that is there: no
//! node is composed without it, and none restarts.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_base::{
    ClusterId, Lsn, private,
    wait::{self, Patience},
};
use freshet_cluster::term::{Agreement, TermHistory};
use freshet_fabric::tcp::Connection;
use freshet_log::{KEEP_ASIDE, LogStore};
use freshet_membership::Credentials;
use freshet_recovery::{Manifest, Phase, RestoreError, checkpoint::folder};
use freshet_replication::{
    checkpoints::{FetchError, Keeper, KnownLog, fetch, serve},
    endpoint::{CallError, Service, answer},
    terms::Terms,
    wire::{Hello, Purpose, Refusal, Reply},
};

use super::{
    checkpoint::{CheckpointKind, Checkpointing},
    config::NodeConfig,
    ground::Ground,
    observer::Observer,
    start::StartError,
};

/// How long the other node may be silent.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a checkpoint is fetched, before that is given up.
const FETCHES: u32 = 10;
/// How long after the first that failed; each pause is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// No pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What a node's stop means for who waits for its checkpoint.
const AGAIN: &str = "or starts again in another role, as after a switch-over; ask again, or ask another node";

/// Gives this node's checkpoints to the nodes that ask.
pub(super) struct CheckpointDoor {
    pub checkpointing: Arc<Checkpointing>,
    pub cluster: ClusterId,
    pub terms: Terms,
}

impl Service for CheckpointDoor {
    fn serve(&self, hello: Hello, connection: Connection) {
        let consistent = matches!(hello.purpose, Purpose::Checkpoint { consistent: true });
        if hello.cluster.is_some_and(|theirs| theirs != self.cluster) {
            return answer(connection, freshet_base::Term(0), &Reply::NoCheckpoint);
        }
        tracing::info!(node = %hello.node, address = hello.address, consistent, "a node fetches a checkpoint");
        let open = || match consistent {
            true => {
                let manifest = self.checkpointing.now(CheckpointKind::Consistent);
                let stops = |why| if self.checkpointing.stops() { format!("{why}, {AGAIN}") } else { why };
                let manifest = manifest.map_err(stops)?;
                self.checkpointing.open(manifest.start()).map(Some)
            }
            false => self.checkpointing.open_newest(),
        };
        serve(connection, open, || self.terms.get());
    }
}

/// A checkpoint that arrives.
struct Arriving<'a, B> {
    cluster: ClusterId,
    devices: &'a [PathBuf],
    /// Called with the manifest and what the sender knows of its log, before any row has come.
    begun: B,
    known: KnownLog,
    head: Vec<u8>,
    manifest: Option<Manifest>,
    /// The files to come, in order.
    places: Vec<PathBuf>,
    file: Option<File>,
    bytes: u64,
}

impl<B: FnMut(&Manifest, KnownLog) -> Result<(), String>> Keeper for Arriving<'_, B> {
    fn begin(&mut self, known: KnownLog) -> Result<(), String> {
        self.known = known;
        Ok(())
    }

    fn keep(&mut self, file: u32, bytes: &[u8], last: bool) -> Result<(), String> {
        let is_second = file as usize == self.places.len() + 1 && self.manifest.as_ref().is_some_and(Manifest::is_open);
        let Some(number) = file.checked_sub(1).filter(|_| !is_second) else {
            self.head.extend_from_slice(bytes);
            return match (last, is_second) {
                (false, _) => Ok(()),
                (true, false) => self.manifest_is_here(),
                (true, true) => self.second_manifest_is_here(),
            };
        };
        let path = self.places.get(number as usize).ok_or("more files came than the manifest names")?;
        let failed = |cause: std::io::Error| format!("{}: {cause}", path.display());
        if self.file.is_none() {
            self.file = Some(private::create(path).map_err(failed)?);
        }
        let open = self.file.as_mut().expect("just opened");
        open.write_all(bytes).map_err(failed)?;
        self.bytes += bytes.len() as u64;
        if last {
            open.sync_all().map_err(failed)?;
            self.file = None;
        }
        Ok(())
    }
}

impl<B: FnMut(&Manifest, KnownLog) -> Result<(), String>> Arriving<'_, B> {
    /// The manifest is there: makes the folders, and deals the files out to this node's devices.
    fn manifest_is_here(&mut self) -> Result<(), String> {
        let manifest = self.deal()?;
        for device in self.devices {
            let folder = folder(device, manifest.start());
            private::create_directories(&folder).map_err(|cause| format!("{}: {cause}", folder.display()))?;
        }
        (self.begun)(&manifest, std::mem::take(&mut self.known))?;
        self.manifest = Some(manifest);
        Ok(())
    }

    /// So is the one that counts: it is of the same checkpoint.
    fn second_manifest_is_here(&mut self) -> Result<(), String> {
        let places = std::mem::take(&mut self.places);
        let manifest = self.deal()?;
        let start = self.manifest.as_ref().map(Manifest::start);
        if manifest.is_open() || Some(manifest.start()) != start || self.places != places {
            return Err("its second manifest is of another checkpoint than the first".into());
        }
        self.manifest = Some(manifest);
        Ok(())
    }

    /// The manifest that came, with its files dealt out to this node's devices.
    fn deal(&mut self) -> Result<Manifest, String> {
        let mut manifest = manifest_that_came(&std::mem::take(&mut self.head), self.cluster)?;
        let (mut next, start) = (0, manifest.start());
        for file in manifest.tables.iter_mut().flat_map(|table| &mut table.files) {
            // The name comes from another node: nothing but a name.
            if file.name.contains(['/', '\\', '\0']) || !file.name.ends_with(".rows") {
                return Err(format!("{:?} is not the name of a file of rows", file.name));
            }
            let device = next % self.devices.len();
            next += 1;
            file.device = device as u32;
            self.places.push(folder(&self.devices[device], start).join(&file.name));
        }
        manifest.devices = self.devices.len() as u32;
        Ok(manifest)
    }
}

/// What says of the checkpoint that comes of what it consists.
pub(super) fn manifest_that_came(bytes: &[u8], cluster: ClusterId) -> Result<Manifest, String> {
    let manifest = Manifest::decode(bytes, Path::new("the manifest that came")).map_err(|cause| cause.to_string())?;
    match manifest.cluster() == cluster {
        true => Ok(manifest),
        false => Err(format!("it is of cluster {}, not of {cluster}", manifest.cluster())),
    }
}

/// Fetches a checkpoint of the node at `primary` to `devices`: the newest, or a new and consistent
/// one. `begun` hears as soon as it is known what it is, with the sender's terms up to there.
/// Returns what is still to be installed; none when there is no checkpoint.
///
/// # Errors
/// See [`FetchError`]; what has come does not count then.
pub(super) fn fetch_checkpoint(
    primary: &str,
    credentials: &Credentials,
    cluster: ClusterId,
    kind: CheckpointKind,
    devices: &[PathBuf],
    begun: impl FnMut(&Manifest, KnownLog) -> Result<(), String>,
) -> Result<Option<Manifest>, FetchError> {
    let purpose = Purpose::Checkpoint { consistent: kind == CheckpointKind::Consistent };
    let node = credentials.node().map_err(|cause| FetchError::Keep(cause.to_string()))?;
    let hello = Hello { cluster: Some(cluster), node, address: String::new(), purpose };
    let (head, known) = (Vec::new(), KnownLog::default());
    let mut arriving =
        Arriving { cluster, devices, begun, known, head, manifest: None, places: Vec::new(), file: None, bytes: 0 };
    fetch(credentials, primary, &hello, PATIENCE, drop, &mut arriving)?;
    let Some(manifest) = arriving.manifest else { return Ok(None) };
    if manifest.is_open() {
        return Err(FetchError::Keep("no manifest came that says where it ends".into()));
    }
    if arriving.bytes != manifest.bytes() {
        return Err(FetchError::Keep(format!("{} bytes came, its manifest says {}", arriving.bytes, manifest.bytes())));
    }
    for device in devices {
        let folder = folder(device, manifest.start());
        // Its name too.
        let synced = [&folder, device].into_iter().try_for_each(|it| File::open(it)?.sync_all());
        synced.map_err(|cause| FetchError::Keep(format!("{}: {cause}", folder.display())))?;
    }
    Ok(Some(manifest))
}

/// The file that says that the log in this directory is of no use yet, and where that begins.
pub(super) struct Unfinished(&'static str);

/// The node has not finished joining.
pub(super) const JOINING: Unfinished = Unfinished("joining");
/// The node is a mirror that is taking over, and has no checkpoint yet of what is in its memory.
pub(super) const TAKING_OVER: Unfinished = Unfinished("taking-over");

impl Unfinished {
    fn path(&self, directory: &Path) -> PathBuf {
        directory.join(self.0)
    }

    /// Where the log of an unfinished node begins.
    pub fn read(&self, directory: &Path) -> Result<Option<Lsn>, StartError> {
        let path = self.path(directory);
        match fs::read_to_string(&path) {
            Ok(text) => match text.trim().parse() {
                Ok(lsn) => Ok(Some(Lsn(lsn))),
                Err(_) => Err(StartError::System(format!("{}: {text:?} is not an LSN", path.display()))),
            },
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(StartError::System(format!("{}: {cause}", path.display()))),
        }
    }

    /// Durable when this returns.
    pub fn write(&self, directory: &Path, begin: Lsn) -> Result<(), String> {
        let path = self.path(directory);
        let write = || {
            let mut file = private::create(&path)?;
            file.write_all(format!("{}\n", begin.0).as_bytes())?;
            file.sync_all()?;
            File::open(directory)?.sync_all()
        };
        write().map_err(|cause| format!("{}: {cause}", path.display()))
    }

    /// The log counts from now on. Durable when this returns.
    pub fn remove(&self, directory: &Path) -> Result<(), StartError> {
        let path = self.path(directory);
        let removed = fs::remove_file(&path).and_then(|()| File::open(directory)?.sync_all());
        removed.map_err(|cause| StartError::System(format!("{}: {cause}", path.display())))
    }
}

/// Brings a checkpoint and the log since then, at least up to its end, into an empty directory;
/// returns where the log ends then. The log here, of an attempt before this one, ends at `end`, if
/// there is one. `report` is called with how far that is.
///
/// Blocks for as long as the checkpoint and the log take. One whose giver is lost, or has nothing
/// to give for a moment, is fetched again, up to [`FETCHES`] times in all.
pub(super) fn join_from_checkpoint(
    ground: &Ground,
    config: &NodeConfig,
    primary: &str,
    end: Lsn,
    report: &impl Fn(Phase),
) -> Result<Lsn, StartError> {
    let directory = ground.directory.as_ref().expect("only a node with a directory fetches a checkpoint").path();
    let (mut earlier, mut pause) = (left_before(ground, directory, end)?, FIRST_PAUSE);
    if earlier.is_none()
        && let Some(start) = Manifest::installed(directory).map_err(RestoreError::from)?.first()
    {
        return Ok(*start);
    }
    let mut fetch = 1;
    loop {
        let mut bootstrap = Bootstrap { ground, config, primary, directory, earlier, observer: None, theirs: None };
        let why = match bootstrap.fetch() {
            Ok(Some(manifest)) => return bootstrap.install(manifest, report),
            Ok(None) => return bootstrap.without_checkpoint(),
            Err(why) => why,
        };
        if fetch == FETCHES || !may_pass(&why, fetch > 1) {
            return Err(why.into());
        }
        tracing::warn!(cause = %why, fetch, "a checkpoint to start from has not arrived: it is fetched again");
        if let Some(observer) = bootstrap.observer {
            let end = observer.stop().map_err(StartError::System)?;
            earlier = left_before(ground, directory, end)?;
        }
        let _ = wait::sleep(Patience::endless().until(Instant::now() + pause));
        pause = (pause * 2).min(LONGEST_PAUSE);
        fetch += 1;
    }
}

/// Where the log begins and ends that an attempt to join has left, which ends at `end`.
fn left_before(ground: &Ground, directory: &Path, end: Lsn) -> Result<Option<(Lsn, Lsn)>, StartError> {
    // With nothing in the store, that attempt did not come far.
    let begun = JOINING.read(directory)?.filter(|_| ground.store.as_ref().is_some_and(|it| it.extent().is_some()));
    Ok(begun.map(|begin| (begin, end.max(begin))))
}

/// Whether another attempt may do better; `again` after one that was worth repeating. Who gives
/// the checkpoint may restart, or fail over, and a mirror's memory is continued in another term.
fn may_pass(why: &FetchError, again: bool) -> bool {
    match why {
        FetchError::Receive(_) | FetchError::Call(CallError::Receive(_) | CallError::Send(_)) => true,
        FetchError::Call(CallError::Refused { refusal, .. }) => {
            matches!(refusal, Refusal::Failed(_) | Refusal::NotPrimary { .. })
        }
        // An address at which nothing answers from the start is wrong.
        FetchError::Call(CallError::Connect(_)) => again,
        FetchError::Call(_) | FetchError::Violation { .. } | FetchError::Keep(_) => false,
    }
}

/// One attempt to join with a checkpoint.
struct Bootstrap<'a> {
    ground: &'a Ground,
    config: &'a NodeConfig,
    primary: &'a str,
    directory: &'a Path,
    /// Where the log of the attempt before begins and ends.
    earlier: Option<(Lsn, Lsn)>,
    /// Receives the log from where the checkpoint begins, as soon as that is known.
    observer: Option<Observer>,
    /// The terms in which the giver has lived.
    theirs: Option<TermHistory>,
}

impl Bootstrap<'_> {
    fn from(&self) -> &str {
        self.config.bootstrap_from.as_deref().unwrap_or(self.primary)
    }

    /// The checkpoint's files, while the log arrives beside them.
    fn fetch(&mut self) -> Result<Option<Manifest>, FetchError> {
        let devices = self.config.checkpoint_devices();
        let (credentials, cluster) = (&self.ground.credentials, self.ground.cluster);
        let from = self.from().to_owned();
        let begun = |manifest: &Manifest, known: KnownLog| {
            self.theirs = Some(known.history.clone());
            let log_from = log_wanted_from(self.ground, self.directory, manifest, known, self.earlier)?;
            let observer = Observer::start(self.ground, self.config, self.primary, log_from);
            self.observer = Some(observer.map_err(|cause| cause.to_string())?);
            Ok(())
        };
        fetch_checkpoint(&from, credentials, cluster, CheckpointKind::Fuzzy, &devices, begun)
    }

    /// Waits for the log up to the checkpoint's end; then both count. Returns where the log ends.
    fn install(self, manifest: Manifest, report: &impl Fn(Phase)) -> Result<Lsn, StartError> {
        tracing::info!(
            address = self.from(),
            start = manifest.start().0,
            rows = manifest.rows(),
            bytes = manifest.bytes(),
            "another node's checkpoint has arrived, to start from"
        );
        let begun = "it began with the manifest";
        let (observer, theirs) = (self.observer.expect(begun), self.theirs.expect(begun));
        let of = manifest.end().since(manifest.start());
        let came = |to: Lsn| {
            let done = to.clamp(manifest.start(), manifest.end()).since(manifest.start());
            report(Phase::CheckpointLog { done, of });
        };
        observer.wait_persisted(manifest.end(), &came).map_err(StartError::System)?;
        let end = observer.stop().map_err(StartError::System)?;
        is_of_this_log(&manifest, &theirs, &self.ground.terms.get().history).map_err(StartError::System)?;
        let incarnation = self.ground.store.as_ref().and_then(LogStore::incarnation);
        manifest.install(self.directory, incarnation).map_err(RestoreError::from)?;
        JOINING.remove(self.directory)?;
        Ok(end)
    }

    /// The other node has none.
    fn without_checkpoint(self) -> Result<Lsn, StartError> {
        match self.earlier {
            // The whole log is there.
            None => Ok(Lsn::ZERO),
            Some(_) => Err(StartError::System(format!(
                "joining was not finished, and {} has no checkpoint any more: {KEEP_ASIDE} ({})",
                self.from(),
                self.directory.display()
            ))),
        }
    }
}

/// From where on the log is to come, for this checkpoint; `earlier` is where that of an attempt
/// before begins and ends. What is of no use of that goes, and where the log begins is noted.
fn log_wanted_from(
    ground: &Ground,
    directory: &Path,
    manifest: &Manifest,
    known: KnownLog,
    earlier: Option<(Lsn, Lsn)>,
) -> Result<Lsn, String> {
    match earlier {
        Some((begin, _)) if manifest.start() < begin => Err(format!(
            "the checkpoint begins at {}, and the log here, of an attempt before, at {begin}: {KEEP_ASIDE} ({})",
            manifest.start(),
            directory.display()
        )),
        Some((_, end)) if end >= manifest.start() => Ok(end),
        earlier => {
            if let (Some((_, end)), Some(store)) = (earlier, &ground.store) {
                // Between the two the log may be gone, and what is here is of no use without.
                let start = manifest.start().0;
                tracing::info!(end = end.0, start, "the log of an attempt before ends below this checkpoint, and goes");
                store.clear().map_err(|cause| cause.to_string())?;
            }
            JOINING.write(directory, manifest.start())?;
            ground.terms.adopt(ground.cluster, known.history).map_err(|cause| cause.to_string())?;
            ground.terms.note_committed(known.committed);
            Ok(manifest.start())
        }
    }
}

/// Whether what the checkpoint holds, whose sender has lived in the terms of `theirs`, is of the
/// log that has come, which has the terms of `ours`. A failover that was forced may lie between.
fn is_of_this_log(manifest: &Manifest, theirs: &TermHistory, ours: &TermHistory) -> Result<(), String> {
    let end = manifest.end();
    match theirs.agreement(end, ours, end) {
        Agreement::Upto(at) if at >= end => Ok(()),
        agreement => Err(format!(
            "the checkpoint from {} to {end} that has come is of another log than the cluster's now ({agreement:?}): \
             start this node again, to fetch another",
            manifest.start()
        )),
    }
}
