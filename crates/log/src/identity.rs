//! Whose a directory on a device is: one file in it says that.
//!
//! A node that is given a directory for a stream of its log, or for the rows of its checkpoints,
//! takes it only when nothing else is in it, and leaves its name there. From then on no other node
//! takes it. All directories are looked at before anything is written to one of them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use freshet_base::{ClusterId, NodeId, private};

use crate::{
    block::MAX_STREAMS,
    control::{CONTROL, Control, ControlError, io_error, read_control},
    medium::make_directory,
    segments::StoreError,
};

/// The file in a stream's directory that says whose it is.
const STREAM: &str = "stream";
/// The same where the rows of checkpoints are.
const CHECKPOINTS: &str = "checkpoint-device";

/// Where such a file is written first: half of it would be taken for another node's.
fn unfinished(file: &str) -> String {
    format!("{file}.new")
}

/// What the file in a stream's directory says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamIdentity {
    pub(crate) stream: usize,
    /// How many streams the log has.
    pub(crate) streams: usize,
    pub(crate) cluster: ClusterId,
    pub(crate) node: NodeId,
}

impl StreamIdentity {
    fn encode(&self) -> String {
        let Self { stream, streams, cluster, node } = self;
        format!("freshet stream {stream} of {streams}\n{}", owner(*cluster, *node))
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (stream, streams) = lines.next()?.strip_prefix("freshet stream ")?.split_once(" of ")?;
        let (stream, streams) = (stream.parse().ok()?, streams.parse().ok()?);
        let cluster = ClusterId(u128::from_str_radix(lines.next()?.strip_prefix("cluster ")?, 16).ok()?);
        let node = NodeId(u64::from_str_radix(lines.next()?.strip_prefix("node ")?, 16).ok()?);
        (stream < streams && streams <= MAX_STREAMS).then_some(Self { stream, streams, cluster, node })
    }

    /// Whose the stream in `directory` is; none when nothing there says so.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be read or understood.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, StoreError> {
        let file = directory.join(STREAM);
        match fs::read_to_string(&file) {
            Ok(text) => match Self::decode(&text) {
                Some(identity) => Ok(Some(identity)),
                None => Err(StoreError::Header { file, what: "it does not say whose stream this is".to_owned() }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io("read", file, 0, 0, error)),
        }
    }
}

/// The last lines of each such file.
fn owner(cluster: ClusterId, node: NodeId) -> String {
    format!("cluster {cluster}\nnode {node}\n")
}

/// A directory that a node is given for something.
#[derive(Debug)]
pub(crate) struct Claim<'c> {
    directory: &'c Path,
    control: &'c Control,
    file: &'static str,
    text: String,
}

impl<'c> Claim<'c> {
    /// For one stream of the log.
    pub(crate) fn stream(directory: &'c Path, stream: usize, control: &'c Control) -> Self {
        let Control { streams, cluster, node, .. } = *control;
        let text = StreamIdentity { stream, streams, cluster, node }.encode();
        Self { directory, control, file: STREAM, text }
    }

    /// For the rows of checkpoints.
    pub(crate) fn checkpoints(directory: &'c Path, control: &'c Control) -> Self {
        let text = format!("freshet checkpoints\n{}", owner(control.cluster, control.node));
        Self { directory, control, file: CHECKPOINTS, text }
    }

    /// Whether the node has the directory already for this; if not, it may have it. `known` are
    /// names of what is the node's own in it without that file. Changes nothing.
    ///
    /// # Errors
    /// [`ControlError::Foreign`] when something else uses it; [`StoreError::Stream`] when it is
    /// another stream's.
    pub(crate) fn check(&self, known: &dyn Fn(&str) -> bool) -> Result<bool, StoreError> {
        match self.content_of(self.file)? {
            Some(found) if found == self.text => return Ok(true),
            Some(found) if self.file == STREAM => {
                let found = found.lines().collect::<Vec<_>>().join(", ");
                let what = format!("it is of {found:?}, not of {:?}; nothing was changed", self.text);
                return Err(StoreError::Stream { file: self.directory.join(STREAM), what });
            }
            Some(_) => return Err(self.foreign(self.file).into()),
            None => {}
        }
        // The node may keep its log and its checkpoints in one place, and both in its directory.
        let other = if self.file == STREAM { CHECKPOINTS } else { STREAM };
        if let Some(found) = self.content_of(other)? {
            let ours = found.ends_with(&owner(self.control.cluster, self.control.node));
            return if ours { Ok(false) } else { Err(self.foreign(other).into()) };
        }
        match read_control(self.directory) {
            Ok(found) if (found.cluster, found.node) == (self.control.cluster, self.control.node) => return Ok(false),
            Err(ControlError::NoLog(_)) => {}
            // A file where a directory should be.
            Err(error @ ControlError::Io { .. }) => return Err(error.into()),
            Ok(_) | Err(_) => return Err(self.foreign(CONTROL).into()),
        }
        let ours = |name: &str| name == unfinished(STREAM) || name == unfinished(CHECKPOINTS) || known(name);
        match first_foreign(self.directory, &ours)? {
            Some(found) => Err(ControlError::foreign(self.directory, found).into()),
            None => Ok(false),
        }
    }

    fn content_of(&self, file: &str) -> Result<Option<String>, StoreError> {
        let path = self.directory.join(file);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io("read", path, 0, 0, error)),
        }
    }

    fn foreign(&self, found: &str) -> ControlError {
        let guess = ", as in a directory of another node";
        ControlError::Foreign { directory: self.directory.to_owned(), found: found.into(), guess }
    }

    /// Makes the directory, and leaves the node's name there, durably. To be [checked](Self::check)
    /// before.
    ///
    /// # Errors
    /// [`StoreError`]; it can be done again.
    pub(crate) fn make(&self) -> Result<(), StoreError> {
        let file = self.directory.join(self.file);
        let io = |doing, source| StoreError::io(doing, file.clone(), 0, 0, source);
        make_directory(self.directory).map_err(|source| io("make", source))?;
        private::keep_directory(self.directory).map_err(|source| io("make", source))?;
        let unfinished = self.directory.join(unfinished(self.file));
        private::replace(&file, &unfinished, self.text.as_bytes()).map_err(|source| io("write", source))
    }
}

/// The name of something in a directory that is not `ours`, if there is such a thing. Empty
/// directories have no owner: something is to be mounted there, or they are devices of this node.
pub(crate) fn first_foreign(directory: &Path, ours: &dyn Fn(&str) -> bool) -> Result<Option<PathBuf>, ControlError> {
    let failed = |source| io_error("look into", directory, source);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| name == "lost+found" || ours(name));
        let is_empty = || fs::read_dir(entry.path()).is_ok_and(|mut entries| entries.next().is_none());
        if !is_ours && !is_empty() {
            return Ok(Some(name.into()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_states_whose_it_is() {
        let identity = StreamIdentity { stream: 2, streams: 3, cluster: ClusterId(0x0102), node: NodeId(9) };
        assert_eq!(StreamIdentity::decode(&identity.encode()), Some(identity));
        for text in ["", "freshet stream 3 of 3\ncluster 1\nnode 1\n", "freshet stream 0 of 1\ncluster x\nnode 1\n"] {
            assert_eq!(StreamIdentity::decode(text), None);
        }
    }
}
