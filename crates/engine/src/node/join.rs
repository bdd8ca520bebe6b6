//! Joining with an empty directory: first a checkpoint, then the log since then (Query Fresh, section 3.4.4).

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use freshet_base::{ClusterId, NodeId, Stamp, Term};
use freshet_cluster::term::TermHistory;
use freshet_fabric::tcp::Connection;
use freshet_recovery::{Manifest, checkpoint::folder};
use freshet_replication::{
    checkpoints::{FetchError, fetch, serve},
    endpoint::{Service, answer},
    terms::Terms,
    wire::{Hello, Purpose, Reply},
};

use super::checkpoint::Checkpointing;

/// How long the other node may be silent.
const PATIENCE: Duration = Duration::from_secs(10);

/// Gives this node's newest checkpoint to whoever asks.
pub(super) struct CheckpointDoor {
    pub checkpointing: Arc<Checkpointing>,
    pub cluster: ClusterId,
    pub terms: Terms,
}

impl Service for CheckpointDoor {
    fn serve(&self, hello: Hello, connection: Connection) {
        if hello.cluster.is_some_and(|theirs| theirs != self.cluster) {
            return answer(connection, Term(0), &Reply::NoCheckpoint);
        }
        match self.checkpointing.open() {
            Ok(None) => answer(connection, Term(0), &Reply::NoCheckpoint),
            Ok(Some(open)) => serve(connection, Term(0), self.terms.get().history, Ok(open)),
            Err(why) => serve(connection, Term(0), TermHistory::default(), Err(why)),
        }
    }
}

/// A checkpoint that arrives.
struct Arriving<'a> {
    cluster: ClusterId,
    devices: &'a [PathBuf],
    head: Vec<u8>,
    manifest: Option<Manifest>,
    /// The files to come, in order.
    places: Vec<PathBuf>,
    file: Option<File>,
    bytes: u64,
}

impl Arriving<'_> {
    fn keep(&mut self, file: u32, bytes: &[u8], last: bool) -> Result<(), String> {
        let Some(number) = file.checked_sub(1) else {
            self.head.extend_from_slice(bytes);
            return if last { self.begin() } else { Ok(()) };
        };
        let path = self.places.get(number as usize).ok_or("more files came than the manifest names")?;
        let failed = |cause: std::io::Error| format!("{}: {cause}", path.display());
        if self.file.is_none() {
            self.file = Some(File::create(path).map_err(failed)?);
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

    /// The manifest is there: makes the folders, and deals the files out to this node's devices.
    fn begin(&mut self) -> Result<(), String> {
        let mut manifest =
            Manifest::decode(&self.head, Path::new("the manifest that came")).map_err(|cause| cause.to_string())?;
        if manifest.cluster() != self.cluster {
            return Err(format!("it is of cluster {}, not of {}", manifest.cluster(), self.cluster));
        }
        let (mut next, start) = (0, manifest.start());
        for file in manifest.tables.iter_mut().flat_map(|table| &mut table.files) {
            // The name comes from another node: nothing but a name.
            if file.name.contains(['/', '\\', '\0']) || !file.name.ends_with(".rows") {
                return Err(format!("{:?} is no name of a file of rows", file.name));
            }
            let device = next % self.devices.len();
            next += 1;
            file.device = device as u32;
            self.places.push(folder(&self.devices[device], start).join(&file.name));
        }
        manifest.devices = self.devices.len() as u32;
        for device in self.devices {
            let folder = folder(device, manifest.start());
            fs::create_dir_all(&folder).map_err(|cause| format!("{}: {cause}", folder.display()))?;
        }
        self.manifest = Some(manifest);
        Ok(())
    }
}

/// Fetches the newest checkpoint of the node at `primary` into `directory` and `devices`, if it has one. `adopt` gets its
/// terms before the checkpoint counts.
///
/// # Errors
/// See [`FetchError`]; what has come does not count then.
pub(super) fn fetch_checkpoint(
    primary: &str,
    node: NodeId,
    cluster: ClusterId,
    (directory, devices): (&Path, &[PathBuf]),
    adopt: impl FnOnce(TermHistory) -> Result<(), String>,
) -> Result<Option<Stamp>, FetchError> {
    let hello = Hello { cluster: Some(cluster), node, address: String::new(), purpose: Purpose::Checkpoint };
    let mut arriving =
        Arriving { cluster, devices, head: Vec::new(), manifest: None, places: Vec::new(), file: None, bytes: 0 };
    let history = fetch(primary, &hello, PATIENCE, |file, bytes, last| arriving.keep(file, bytes, last))?;
    let (Some(history), Some(manifest)) = (history, arriving.manifest) else { return Ok(None) };
    if arriving.bytes != manifest.bytes() {
        return Err(FetchError::Keep(format!("{} bytes came, its manifest says {}", arriving.bytes, manifest.bytes())));
    }
    for device in devices {
        let folder = folder(device, manifest.start());
        // Its name too.
        let synced = [&folder, device].into_iter().try_for_each(|it| File::open(it)?.sync_all());
        synced.map_err(|cause| FetchError::Keep(format!("{}: {cause}", folder.display())))?;
    }
    adopt(history).map_err(FetchError::Keep)?;
    manifest.install(directory).map_err(|cause| FetchError::Keep(cause.to_string()))?;
    Ok(Some(manifest.start()))
}
