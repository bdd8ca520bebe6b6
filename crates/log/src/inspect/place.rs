//! What is at a path: a node's directory, streams, or a saved tail.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use freshet_base::Lsn;

use super::{Inspection, Stream, StreamNotes, View, saved::SavedTail, walk::Walk};
use crate::{
    control::{Control, ControlError, read_control},
    identity::StreamIdentity,
    medium::{FileMedium, Medium},
    scan::{LogSource, Positions},
    segments::{SegmentStore, StoreError, look_at_epoch},
};

/// What is at `paths`, before anything was read of it.
pub(super) fn find(paths: &[PathBuf]) -> Result<Inspection, StoreError> {
    let path = match paths {
        [path] => path,
        [] => return Err(trouble(Path::new(""), "no directory was named".to_owned())),
        _ => return all_streams(paths, None),
    };
    if !path.is_dir() {
        return saved_tail(path);
    }
    let (control, trouble) = match read_control(path) {
        Ok(control) => (Some(control), None),
        Err(ControlError::NoLog(_)) => (None, None),
        Err(error) => (None, Some(error)),
    };
    let streams = control.as_ref().map_or_else(|| streams_below(path), |control| control.streams);
    let mut inspection = match StreamIdentity::read(path)? {
        Some(identity) if identity.streams > 1 => one_stream(path, identity)?,
        _ if streams > 1 => {
            let below = (0..streams).map(|stream| path.join(format!("stream-{stream}"))).collect::<Vec<_>>();
            if let Some(missing) = below.iter().find(|directory| !directory.is_dir()) {
                return Err(elsewhere(missing, streams));
            }
            all_streams(&below, control.as_ref())?
        }
        identity => only_stream(path, identity)?,
    };
    if let Some(control) = control {
        inspection.directory = Some(path.to_owned());
        inspection.cluster = inspection.cluster.or(Some(control.cluster));
        inspection.node = inspection.node.or(Some(control.node));
    }
    inspection.trouble = trouble;
    Ok(inspection)
}

/// How far the stream is noted to be durable now.
pub(super) fn noted(stream: &Stream) -> Option<Lsn> {
    SegmentStore::look_at_note(&FileMedium::read_only(&stream.notes.directory)).ok()?.map(|note| note.position)
}

fn look(directory: &Path) -> Result<SegmentStore, StoreError> {
    let medium: Arc<dyn Medium> = Arc::new(FileMedium::read_only(directory));
    SegmentStore::look(&medium)
}

fn trouble(path: &Path, what: String) -> StoreError {
    StoreError::Look { path: path.to_owned(), what }
}

fn elsewhere(missing: &Path, streams: usize) -> StoreError {
    let what = format!(
        "there is no such directory, the log has {streams} streams; if they are kept elsewhere \
                        (log-dir), name the directories of all of them"
    );
    trouble(missing, what)
}

/// How many streams there are below a directory whose control file cannot be read.
fn streams_below(directory: &Path) -> usize {
    (0..).take_while(|stream| directory.join(format!("stream-{stream}")).is_dir()).count()
}

fn notes(stream: usize, directory: &Path, store: &SegmentStore) -> StreamNotes {
    let note = store.noted();
    StreamNotes {
        stream,
        directory: directory.to_owned(),
        kept: store.extent(),
        durable: note.position,
        bound: note.bound,
        anchor: note.anchor,
        anchor_position: note.anchor_position,
        cut: store.unfinished_cut(),
    }
}

/// A directory with the log of one stream, where positions are LSNs.
fn only_stream(directory: &Path, identity: Option<StreamIdentity>) -> Result<Inspection, StoreError> {
    // Before the segments are listed: they are to hold what it promises.
    let epoch = look_at_epoch(&FileMedium::read_only(directory))?;
    let store = look(directory)?;
    let notes = notes(0, directory, &store);
    let mut walk = Walk::new(Box::new(store.clone()));
    if notes.kept.is_some_and(|(first, _)| first > Lsn::ZERO) || walk.begins_later()? {
        walk.seek()?;
    }
    let cluster = store.extent().map(|_| store.config().cluster);
    Ok(Inspection {
        cluster,
        node: identity.map(|identity| identity.node),
        persistent_epoch: epoch.map(|epoch| (epoch.epoch, epoch.end)),
        ..Inspection::over(View::Log, vec![Stream { notes, walk, pending: None }])
    })
}

/// The directories of all streams of a log, in any order if they say whose they are.
fn all_streams(directories: &[PathBuf], control: Option<&Control>) -> Result<Inspection, StoreError> {
    let mut ordered: Vec<Option<&Path>> = vec![None; directories.len()];
    let whose = |identity: &StreamIdentity| (identity.cluster, identity.node, identity.streams);
    let mut owner = control.map(|control| (control.cluster, control.node, control.streams));
    for (number, directory) in directories.iter().enumerate() {
        let identity = StreamIdentity::read(directory)?;
        if let Some(identity) = &identity
            && (*owner.get_or_insert(whose(identity)) != whose(identity) || identity.streams != directories.len())
        {
            let StreamIdentity { stream, streams, node, .. } = identity;
            let what = format!("it holds stream {stream} of {streams} of node {node}, which does not fit the others");
            return Err(trouble(directory, what));
        }
        let number = identity.map_or(number, |identity| identity.stream);
        if let Some(other) = ordered[number].replace(directory) {
            return Err(trouble(directory, format!("it holds stream {number}, and so does {}", other.display())));
        }
    }
    let ordered: Vec<&Path> = ordered.into_iter().flatten().collect();
    // Before the segments are listed: they are to hold what it promises.
    let epoch = look_at_epoch(&FileMedium::read_only(ordered[0]))?;
    let mut cluster = None;
    let mut streams = Vec::new();
    for (number, directory) in ordered.into_iter().enumerate() {
        let store = look(directory)?;
        cluster = cluster.or_else(|| store.extent().map(|_| store.config().cluster));
        let notes = notes(number, directory, &store);
        streams.push(Stream { notes, walk: Walk::new(Box::new(Positions(store))), pending: None });
    }
    Ok(Inspection {
        cluster,
        node: owner.map(|(_, node, _)| node),
        persistent_epoch: epoch.map(|epoch| (epoch.epoch, epoch.end)),
        ..Inspection::over(View::Log, streams)
    })
}

/// The directory of one stream of several.
fn one_stream(directory: &Path, identity: StreamIdentity) -> Result<Inspection, StoreError> {
    let epoch = look_at_epoch(&FileMedium::read_only(directory))?;
    let store = look(directory)?;
    let notes = notes(identity.stream, directory, &store);
    let mut walk = Walk::new(Box::new(Positions(store)));
    if notes.kept.is_some_and(|(first, _)| first > Lsn::ZERO) {
        walk.seek()?;
    }
    Ok(Inspection {
        cluster: Some(identity.cluster),
        node: Some(identity.node),
        log_streams: identity.streams,
        persistent_epoch: epoch.map(|epoch| (epoch.epoch, epoch.end)),
        ..Inspection::over(View::Stream, vec![Stream { notes, walk, pending: None }])
    })
}

fn saved_tail(file: &Path) -> Result<Inspection, StoreError> {
    let tail = SavedTail::open(file)?;
    let (start, cluster) = (tail.header.start, tail.header.cluster);
    let notes = StreamNotes {
        stream: 0,
        directory: file.to_owned(),
        kept: tail.extent(),
        durable: start,
        bound: start,
        anchor: start,
        anchor_position: start,
        cut: None,
    };
    let stream = Stream { notes, walk: Walk::new(Box::new(tail)), pending: None };
    Ok(Inspection { cluster: Some(cluster), quiet: true, ..Inspection::over(View::SavedTail, vec![stream]) })
}

impl Inspection {
    fn over(view: View, streams: Vec<Stream>) -> Self {
        Self {
            view,
            cluster: None,
            node: None,
            log_streams: streams.len(),
            streams,
            persistent_epoch: None,
            trouble: None,
            directory: None,
            next: None,
            quiet: false,
            over: false,
        }
    }
}
