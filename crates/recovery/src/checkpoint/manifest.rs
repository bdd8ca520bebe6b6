//! What says that a checkpoint counts.
//!
//! | bytes | |
//! |---|---|
//! | 0..8   | `FRESHCKP` |
//! | 8..12  | format version |
//! | 12..16 | CRC-32C of everything behind |
//! | 16..   | the manifest, in postcard's encoding |
//!
//! It is written under another name, synced, renamed, and the directory synced: at every moment it
//! is there whole, or not at all.

use std::{
    fs,
    path::{Path, PathBuf},
};

use freshet_base::{
    ClusterId, Lsn, private,
    versions::{RELEASE, Versions},
};
use serde::{Deserialize, Serialize};

use super::CheckpointError;

const MAGIC: &[u8; 8] = b"FRESHCKP";
const READS: Versions = Versions::new(1, 1);
const HEAD: usize = 16;

/// One file of rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointFile {
    /// The number of its device, from 0.
    pub device: u32,
    /// Its name in the checkpoint's folder there.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The files of one table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointTable {
    /// The table's id.
    pub fid: u32,
    /// How many rows there are.
    pub rows: u64,
    /// The files, each on a device of its own where there are several.
    pub files: Vec<CheckpointFile>,
}

/// An installed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    cluster: u128,
    start: u64,
    end: u64,
    /// When it was installed: milliseconds since 1970, by the node's clock.
    pub time: u64,
    /// How many devices its files are on.
    pub devices: u32,
    /// Its tables, the catalog first.
    pub tables: Vec<CheckpointTable>,
    /// The incarnation of the log that it lies on, where it is installed; not sent.
    #[serde(skip)]
    incarnation: Option<u64>,
}

impl Manifest {
    /// A checkpoint of `cluster` from `start` to `end`, at `time` (milliseconds since 1970).
    pub fn new(
        cluster: ClusterId,
        start: Lsn,
        end: Lsn,
        time: u64,
        devices: u32,
        tables: Vec<CheckpointTable>,
    ) -> Self {
        Self { cluster: cluster.0, start: start.0, end: end.0, time, devices, tables, incarnation: None }
    }

    /// The cluster whose checkpoint it is.
    pub fn cluster(&self) -> ClusterId {
        ClusterId(self.cluster)
    }

    /// Everything below is in it, unless the log from here on says otherwise.
    pub fn start(&self) -> Lsn {
        Lsn(self.start)
    }

    /// The log must be there up to here.
    pub fn end(&self) -> Lsn {
        Lsn(self.end)
    }

    /// The incarnation of the log that it lies on, if that was noted when it was installed.
    pub fn incarnation(&self) -> Option<u64> {
        self.incarnation
    }

    /// Whether its end and the lengths of its files are not known yet, where it is sent while it is
    /// made: another one follows behind the files, and counts.
    pub fn is_open(&self) -> bool {
        self.end < self.start
    }

    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().flat_map(|table| &table.files).map(|file| file.bytes).sum()
    }

    /// Rows in all its tables.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }

    /// How the manifest of a checkpoint that began at `start` is called.
    pub fn path(directory: &Path, start: Lsn) -> PathBuf {
        directory.join(format!("checkpoint-{:020}.manifest", start.0))
    }

    /// Its bytes, as they lie in its file.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = postcard::to_stdvec(self).expect("a manifest has an encoding");
        // A version that does not know of it passes over what comes last.
        body.extend(self.incarnation.map(u64::to_le_bytes).into_iter().flatten());
        let format = READS.writes();
        if READS.is_next(format) {
            // Behind the incarnation, which is there then.
            body.extend(self.incarnation.is_none().then_some([0; 8]).into_iter().flatten());
            body.extend(RELEASE.as_bytes());
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(format.to_le_bytes());
        bytes.extend(crc32c::crc32c(&body).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    /// Installs the checkpoint, whose files are durable, for the log of this incarnation.
    ///
    /// # Errors
    /// [`CheckpointError::Io`]; then it does not count.
    pub fn install(&self, directory: &Path, incarnation: Option<u64>) -> Result<(), CheckpointError> {
        let file = Self::path(directory, self.start());
        let unfinished = file.with_extension("unfinished");
        let bytes = Self { incarnation, ..self.clone() }.encode();
        private::replace(&file, &unfinished, &bytes)
            .map_err(|source| CheckpointError::io("install", file.clone(), source))
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// [`CheckpointError`] says what is wrong with it.
    pub fn read(file: &Path) -> Result<Self, CheckpointError> {
        let bytes = fs::read(file).map_err(|source| CheckpointError::io("read", file, source))?;
        Self::decode(&bytes, file)
    }

    /// Decodes what [`Manifest::install`] has written, or a node has sent; `file` is for messages.
    ///
    /// # Errors
    /// [`CheckpointError`] says what is wrong with it.
    pub fn decode(bytes: &[u8], file: &Path) -> Result<Self, CheckpointError> {
        let damaged = |what: &str| CheckpointError::Damaged { file: file.into(), offset: 0, what: what.into() };
        let Some((head, body)) = bytes.split_first_chunk::<HEAD>() else {
            return Err(damaged("it is shorter than its header"));
        };
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        if head[..8] != *MAGIC {
            return Err(damaged("it does not begin as a manifest does"));
        }
        READS.check(word(8)).map_err(|cause| CheckpointError::Format { file: file.into(), cause })?;
        if word(12) != crc32c::crc32c(body) {
            return Err(damaged("its checksum does not hold"));
        }
        let taken = postcard::take_from_bytes::<Self>(body);
        let (manifest, rest) = taken.map_err(|cause| damaged(&cause.to_string()))?;
        let incarnation = rest.first_chunk().map(|number| u64::from_le_bytes(*number));
        if !READS.is_next(word(8)) {
            return Ok(Self { incarnation, ..manifest });
        }
        match rest.get(8..) {
            Some(release) if release == RELEASE.as_bytes() => {
                Ok(Self { incarnation: incarnation.filter(|number| *number != 0), ..manifest })
            }
            _ => Err(damaged("it does not name its release")),
        }
    }

    /// The LSNs of all installed checkpoints in `directory`, the newest first.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] when it cannot be listed.
    pub fn installed(directory: &Path) -> Result<Vec<Lsn>, CheckpointError> {
        let failed = |source| CheckpointError::io("list", directory, source);
        let mut found = Vec::new();
        for entry in fs::read_dir(directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let lsn = name.to_str().and_then(|name| name.strip_prefix("checkpoint-")?.strip_suffix(".manifest"));
            found.extend(lsn.and_then(|lsn| lsn.parse().ok()).map(Lsn));
        }
        found.sort_unstable_by_key(|lsn| std::cmp::Reverse(*lsn));
        Ok(found)
    }

    /// Removes everything that belongs to checkpoints other than those in `keep`, half-written ones
    /// included: the manifest first, so that what does not count any more is never taken for whole.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] for the first thing that could not be removed.
    pub fn remove_others(directory: &Path, devices: &[PathBuf], keep: &[Lsn]) -> Result<(), CheckpointError> {
        let ours = |name: &str| {
            let lsn = name.strip_prefix("checkpoint-")?.get(..20)?.parse().ok()?;
            Some(Lsn(lsn)).filter(|lsn| !keep.contains(lsn))
        };
        let places = std::iter::once((directory, false)).chain(devices.iter().map(|device| (&**device, true)));
        for (place, folders) in places {
            let entries = match fs::read_dir(place) {
                Ok(entries) => entries,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(source) => return Err(CheckpointError::io("list", place, source)),
            };
            for entry in entries {
                let entry = entry.map_err(|source| CheckpointError::io("list", place, source))?;
                if entry.file_name().to_str().and_then(ours).is_none() {
                    continue;
                }
                let path = entry.path();
                let removed = match (folders, path.is_dir()) {
                    (true, true) => fs::remove_dir_all(&path),
                    (false, false) => fs::remove_file(&path),
                    _ => continue,
                };
                removed.map_err(|source| CheckpointError::io("remove", path, source))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_of_another_format_is_refused() {
        let manifest = Manifest::new(ClusterId(7), Lsn(8), Lsn(16), 5, 1, Vec::new());
        let mut bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes, Path::new("it")).unwrap(), manifest);
        bytes[8] = 9;
        let error = Manifest::decode(&bytes, Path::new("it")).unwrap_err();
        assert!(matches!(error, CheckpointError::Format { .. }), "{error}");
        assert!(error.to_string().contains("format 9, of a later release"), "{error}");
    }
}
