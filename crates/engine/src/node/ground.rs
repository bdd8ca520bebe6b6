//! What a node stands on: its directory, its log, its names.

use std::{
    fs::{self, File},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use freshet_base::{ClusterId, Lsn, NodeId, private};
use freshet_cluster::{
    recording::Recorder,
    term::{TermHistory, TermState},
};
use freshet_log::{
    Control, ControlError, LogDirectory, LogOpenError, LogStore, Persistence, StoreConfig, Torn, check_devices,
    persist::recover_buffer,
};
use freshet_membership::{Credentials, Part};
use freshet_recovery::{Manifest, Phase, RestoreError, checkpoint::folder};
use freshet_replication::{
    follow::{FollowConfig, FollowerId},
    renewal::Renewal,
    tape,
    terms::{Terms, VolatileTerms},
};

use super::{
    adapters::{ControlTerms, remembered_nodes, term_state},
    config::{Domain, NodeConfig, SettingError},
    etcd,
    join::{self, JOINING},
    membership,
    start::StartError,
};

/// What lies on disk, or nothing.
#[derive(Clone)]
pub(crate) struct Ground {
    pub directory: Option<Arc<LogDirectory>>,
    pub store: Option<LogStore>,
    pub id: NodeId,
    pub cluster: ClusterId,
    pub credentials: Credentials,
    pub terms: Terms,
}

/// The file that says where the log's buffer in persistent memory is, while the end of the log may
/// be in that alone.
pub(super) struct BufferInUse;

impl BufferInUse {
    fn path(directory: &Path) -> PathBuf {
        directory.join("buffer-in-use")
    }

    fn failed(path: &Path) -> impl FnOnce(io::Error) -> StartError {
        move |cause| StartError::System(format!("{}: {cause}", path.display()))
    }

    fn read(directory: &Path) -> Result<Option<PathBuf>, StartError> {
        let path = Self::path(directory);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(directory.join(std::ffi::OsString::from_vec(bytes)))),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(Self::failed(&path)(cause)),
        }
    }

    /// Durable when this returns. Called when the buffer is there, and before anything is put into
    /// it.
    pub fn write(directory: &Path, buffer: &Path) -> Result<(), StartError> {
        let (path, unfinished) = (Self::path(directory), directory.join("buffer-in-use.new"));
        let write = || {
            // Below the directory it moves with it.
            let (buffer, base) = (std::path::absolute(buffer)?, std::path::absolute(directory)?);
            let named = buffer.strip_prefix(base).unwrap_or(&buffer);
            private::replace(&path, &unfinished, named.as_os_str().as_bytes())
        };
        write().map_err(Self::failed(&path))
    }

    fn remove(directory: &Path) -> Result<(), StartError> {
        let path = Self::path(directory);
        match fs::remove_file(&path).and_then(|()| File::open(directory)?.sync_all()) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(Self::failed(&path)(cause)),
            _ => Ok(()),
        }
    }
}

/// A name that nobody else has.
pub(super) fn random() -> Result<u128, StartError> {
    let mut bytes = [0; 16];
    let failed = |cause: std::io::Error| StartError::System(format!("cannot read /dev/urandom: {cause}"));
    let mut urandom = std::fs::File::open("/dev/urandom").map_err(failed)?;
    std::io::Read::read_exact(&mut urandom, &mut bytes).map_err(failed)?;
    Ok(u128::from_le_bytes(bytes))
}

/// Where other nodes may be: as configured, and as a node in this directory has noted.
pub(super) fn known(config: &NodeConfig, directory: Option<&Path>) -> Vec<String> {
    let mut known = config.peers.clone();
    known.extend(config.join.clone());
    known.extend(directory.into_iter().flat_map(remembered_nodes));
    known.sort();
    known.dedup();
    known
}

/// With what the configuration says of where it is recorded what happens, and of the witness.
fn configured(terms: Terms, config: &NodeConfig, cluster: ClusterId) -> Result<Terms, StartError> {
    let terms = terms.recording(recorder(config)?);
    Ok(match etcd::witness(config, cluster)? {
        Some(register) => terms.witnessed_by(register),
        None => terms,
    })
}

/// Where it is recorded what happens, if it is to be.
fn recorder(config: &NodeConfig) -> Result<Recorder, StartError> {
    let opened = config.record_events.as_deref().map(|path| {
        let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        if whole(path).starts_with(whole(&config.directory)) {
            // It would be lost with the directory when the node begins again.
            let why = format!("record-events, {}: choose a file outside of the node's directory", path.display());
            return Err(StartError::Config(why));
        }
        tape::recorder(path).map_err(|cause| StartError::System(format!("record-events, {cause}")))
    });
    Ok(opened.transpose()?.unwrap_or_default())
}

impl Ground {
    /// Whether it was made to join a cluster.
    pub fn joins(&self) -> bool {
        self.directory.as_ref().is_some_and(|directory| directory.control().joins)
    }

    /// Whether it was restored from a backup. What joins has a history before its log begins, too.
    pub fn is_restored(&self) -> bool {
        !self.joins() && self.terms.get().history != TermHistory::default()
    }

    /// Of a node, or of an archive.
    pub fn find(config: &NodeConfig, part: Part) -> Result<Self, StartError> {
        if config.domain == Domain::None {
            return Self::in_memory(config, part);
        }
        let path = &config.directory;
        match LogDirectory::open(path) {
            Ok(directory) => Self::existing(directory, config, part),
            Err(ControlError::NoLog(_)) => {
                LogDirectory::check_unused(path)?;
                let (id, cluster, credentials) = membership::of_new_node(config, part)?;
                let (segment, streams) = (config.log.segment_bytes, config.log.stream_count());
                let control = Control { joins: config.join.is_some(), ..Control::new(cluster, id, segment, streams) };
                // Nothing is made for a node whose devices are another's.
                check_devices(path, &control, &config.log.dir, &config.named_checkpoint_devices(), &|_| false)?;
                let directory = LogDirectory::create(path, control)?;
                if !config.member.is_brought() {
                    credentials.write(path)?;
                }
                Self::existing(directory, config, part)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn existing(directory: LogDirectory, config: &NodeConfig, part: Part) -> Result<Self, StartError> {
        let control = directory.control();
        if control.witness {
            let why = format!(
                "{} is the directory of a witness, which has no data: `freshet witness` runs it",
                directory.path().display()
            );
            return Err(StartError::Config(why));
        }
        let state = term_state(&control, directory.path()).map_err(StartError::Config)?;
        // Rows that were moved to another device are this node's there, too.
        let installed = Manifest::installed(directory.path()).map_err(RestoreError::from)?;
        let folders: Vec<_> = installed.into_iter().map(|start| folder(Path::new(""), start)).collect();
        let known = |name: &str| folders.iter().any(|folder| folder == Path::new(name));
        let devices = config.named_checkpoint_devices();
        check_devices(directory.path(), &control, &config.log.dir, &devices, &known)?;
        let store = directory.open_store(&config.log.dir)?;
        directory.take_checkpoint_devices(&devices, &known)?;
        let directory = Arc::new(directory);
        let terms = Terms::new(state, Arc::new(ControlTerms(Arc::clone(&directory))));
        let (id, cluster) = (control.node, control.cluster);
        let is_first = terms.get().fence.holder().is_none();
        let credentials = membership::of_node(config, directory.path(), (id, cluster), &terms, (part, is_first))?;
        let terms = configured(terms, config, cluster)?;
        Ok(Self { directory: Some(directory), store: Some(store), id, cluster, credentials, terms })
    }

    fn in_memory(config: &NodeConfig, part: Part) -> Result<Self, StartError> {
        let (id, cluster, credentials) = membership::of_new_node(config, part)?;
        let store_config = StoreConfig { cluster, segment_size: config.log.segment_bytes };
        // A standby's log is its database; a primary's is only on its way.
        let store = config.join.as_ref().map(|_| LogStore::in_memory(store_config));
        // A log in memory is another one each time.
        let incarnation = store.as_ref().map(|_| random()).transpose()?.map(|number| number as u64);
        let state = TermState { cluster: Some(cluster), incarnation, ..TermState::empty() };
        let terms = Terms::new(state, Arc::new(VolatileTerms));
        terms.admit(credentials.clone());
        let terms = configured(terms, config, cluster)?;
        Ok(Self { directory: None, store, id, cluster, credentials, terms })
    }

    /// To be called when the log is open, before anything is written to it: from now on it is
    /// missed when it is not there.
    pub fn log_has_begun(&self, config: &NodeConfig) -> Result<(), StartError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        directory.log_has_begun(&config.log.dir)?;
        let incarnation = directory.control().incarnation;
        let noted = incarnation.map_or(Ok(()), |incarnation| self.terms.note_incarnation(incarnation));
        noted.map_err(|cause| StartError::System(cause.to_string()))
    }

    /// Opens the log. Before anything is in it, the ground knows where it may be.
    pub(crate) fn open_log<T>(
        &self,
        config: &NodeConfig,
        open: impl FnOnce(Persistence) -> Result<T, LogOpenError>,
    ) -> Result<T, StartError> {
        let memory = config.persistence(self.id)?;
        let log = match (memory, self.store.clone()) {
            (Some(memory), Some(store)) => {
                let path = memory.path.clone();
                let log = open(Persistence::Pmem(store, memory))?;
                if let Some(directory) = &self.directory {
                    BufferInUse::write(directory.path(), &path)?;
                }
                log
            }
            (_, store) => open(store.into())?,
        };
        self.log_has_begun(config)?;
        Ok(log)
    }

    /// Finds the end of the log and cuts off what a crash tore. What a buffer in persistent memory
    /// holds beyond the segments is put there first, whatever the domain is now. Returns where the
    /// log ends then, and what was cut off.
    pub fn settle(&self, config: &NodeConfig, store: &LogStore) -> Result<(Lsn, Option<Torn>), StartError> {
        let in_use =
            self.directory.as_ref().map(|directory| BufferInUse::read(directory.path())).transpose()?.flatten();
        let Some(directory) = &self.directory else {
            let tail = freshet_recovery::settle_tail(store)?;
            return Ok((tail.end, tail.cut));
        };
        let file = in_use.clone().unwrap_or_else(|| config.buffer_file());
        let tail = freshet_recovery::settle_tail_before_buffer(store)?;
        let terms: Vec<_> = directory.control().terms.iter().map(|(term, start, ..)| (*term, *start)).collect();
        let end = recover_buffer(&file, self.id, store, &tail, &terms, in_use.is_some())?;
        // Everything is in the segments now.
        BufferInUse::remove(directory.path())?;
        let half = tail.end < tail.blocks_end && end == tail.blocks_end;
        if (half || config.domain != Domain::Pmem) && file.exists() {
            // It would be taken for the log's end once more, or missed.
            let removed = std::fs::remove_file(&file);
            removed.map_err(|cause| StartError::System(format!("cannot remove {}: {cause}", file.display())))?;
        }
        if !half {
            return Ok((end, tail.cut));
        }
        let settled = freshet_recovery::settle_tail(store)?;
        Ok((settled.end, settled.cut.or(tail.cut)))
    }

    /// Of a node that joins without any log: fetches its primary's checkpoint, if there is one,
    /// while the log since then arrives too, and returns where that ends; else `end`, where the log
    /// ends now. `report` is called with how far that is.
    pub fn bootstrap_from_checkpoint(
        &self,
        config: &NodeConfig,
        end: Lsn,
        report: &impl Fn(Phase),
    ) -> Result<Lsn, StartError> {
        let (Some(primary), Some(directory), Some(store)) = (&config.join, &self.directory, &self.store) else {
            return Ok(end);
        };
        if JOINING.read(directory.path())?.is_none() && store.extent().is_some() {
            return Ok(end);
        }
        join::join_from_checkpoint(self, config, primary, end, report)
    }

    /// This node, which is reached at `address`, follows the one at `upstream`, or waits to be
    /// told.
    pub fn follower(&self, address: String, upstream: Option<String>) -> FollowerId {
        FollowerId { node: self.id, credentials: self.credentials.clone(), address, upstream }
    }

    /// How it follows, as a member of its cluster.
    ///
    /// # Errors
    /// A value of `config` that cannot be.
    pub fn follows(&self, config: &NodeConfig) -> Result<FollowConfig, SettingError> {
        let (peers, fabric) = (self.known(config), config.fabric.standby()?);
        let (synchronous, watch) = (!config.asynchronous, config.watch());
        Ok(FollowConfig { peers, fabric, synchronous, watch, ..FollowConfig::default() })
    }

    /// Where other nodes may be: as configured, and as it was when this node ran last.
    pub fn known(&self, config: &NodeConfig) -> Vec<String> {
        known(config, self.directory.as_deref().map(LogDirectory::path))
    }

    /// Keeps this node's certificate valid, and by the authority that counts.
    pub fn renewal(&self, config: &NodeConfig) -> Result<Renewal, StartError> {
        let path = self.directory.as_ref().map(|directory| directory.path().to_owned());
        let config = config.clone();
        let known = move || known(&config, path.as_deref());
        let renewal = Renewal::start(self.credentials.clone(), self.cluster, self.id, known);
        renewal.map_err(|cause| StartError::System(cause.to_string()))
    }
}
