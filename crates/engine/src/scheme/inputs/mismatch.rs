//! Mismatches: transactions that did not give the same again, and the files that keep them.
//!
//! A node's are there after a restart and after a crash: what is noted is synced, and comes behind
//! what was noted before. When the file is full it becomes `mismatches.1`, then `.2` and `.3`, and
//! another one begins; when all are full, no more is noted before one is removed: the first ones
//! say most.
//!
//! The file begins with [`MAGIC`]. For each mismatch follow, as numbers of four bytes, little
//! endian, the length of its description and the CRC-32C of that, then the description: the LSN in
//! eight bytes, then, each behind its length in four, the reason, the row of inputs, the original
//! block, or nothing where it could not be had, the block that came out, or nothing, and the
//! transaction's command, for people.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use freshet_base::{Lsn, private};
use freshet_txn::Inputs;

use super::{failure::Failure, pending::Pending, pool::Mismatches};
use crate::{node::OnMismatch, scheme::command::recorded_as};

/// The first bytes of a file of mismatches.
pub const MAGIC: &[u8; 8] = b"FRMISM02";
/// No file becomes longer than this many bytes: a bug rarely comes alone.
const FULL: u64 = 16 << 20;
/// A node keeps this many full files beside the one that it writes.
const FULL_FILES: u32 = 3;

/// A node that stops at a mismatch waits so long for the block that was to come out.
const PATIENCE: Duration = Duration::from_secs(10);

/// A transaction that could not be executed again, or gave something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Its LSN.
    pub lsn: Lsn,
    /// What went wrong, for people.
    pub why: String,
    /// The row of its inputs' record.
    pub inputs: Vec<u8>,
    /// Its block, as the primary made it; empty where it could not be had.
    pub original: Vec<u8>,
    /// Its block as it came out; empty if it did not come that far.
    pub regenerated: Vec<u8>,
    /// The command that it executes, for people; empty where that is not known.
    pub command: String,
}

impl Mismatch {
    pub(super) fn of(block: &Pending, failure: &Failure, original: &[u8]) -> Self {
        Self {
            lsn: block.lsn(),
            why: failure.why.to_string(),
            inputs: block.task().map(|task| task.inputs.to_vec()).unwrap_or_default(),
            original: original.to_vec(),
            regenerated: failure.image.clone().unwrap_or_default(),
            command: failure.command.clone(),
        }
    }

    /// The stored procedure, as far as it is known.
    pub fn procedure(&self) -> Option<u32> {
        recorded_as(Inputs::decode(&self.inputs)?.body).map(|(procedure, _)| procedure)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.lsn.0.to_le_bytes().to_vec();
        let parts = [self.why.as_bytes(), &self.inputs, &self.original, &self.regenerated, self.command.as_bytes()];
        for part in parts {
            bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        bytes
    }

    fn decode(mut bytes: &[u8]) -> Option<Self> {
        let lsn = Lsn(u64::from_le_bytes(*take(&mut bytes, 8)?.first_chunk()?));
        let mut part = || {
            let length = take_length(&mut bytes)?;
            take(&mut bytes, length).map(<[u8]>::to_vec)
        };
        let (why, inputs, original, regenerated, command) = (part()?, part()?, part()?, part()?, part()?);
        let (why, command) = (String::from_utf8(why).ok()?, String::from_utf8(command).ok()?);
        bytes.is_empty().then_some(Self { lsn, why, inputs, original, regenerated, command })
    }
}

fn take<'b>(bytes: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn take_length(bytes: &mut &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(*take(bytes, 4)?.first_chunk()?) as usize)
}

/// Why a file of mismatches cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MismatchFileError {
    /// The system's word.
    #[error("cannot read {}: {source}", file.display())]
    Io {
        /// Which file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is none.
    #[error("{} is no file of mismatches, or another version wrote it", .0.display())]
    Foreign(PathBuf),
}

/// What was noted in a file, and how many bytes behind that say nothing: a crash may have torn the
/// end.
///
/// # Errors
/// See [`MismatchFileError`].
pub fn read_mismatches(file: &Path) -> Result<(Vec<Mismatch>, usize), MismatchFileError> {
    let bytes = std::fs::read(file).map_err(|source| MismatchFileError::Io { file: file.to_owned(), source })?;
    let mut rest = bytes.strip_prefix(MAGIC).ok_or_else(|| MismatchFileError::Foreign(file.to_owned()))?;
    let mut found = Vec::new();
    let mut left = rest;
    while let Some(mismatch) = next(&mut left) {
        found.push(mismatch);
        rest = left;
    }
    Ok((found, rest.len()))
}

fn next(bytes: &mut &[u8]) -> Option<Mismatch> {
    let length = take_length(bytes)?;
    let crc = u32::from_le_bytes(*take(bytes, 4)?.first_chunk()?);
    let description = take(bytes, length)?;
    if crc32c::crc32c(description) == crc { Mismatch::decode(description) } else { None }
}

/// Keeps mismatches in a file, which is made with the first.
pub struct MismatchFile {
    path: PathBuf,
    /// It comes behind what is there, and full files stay.
    keeps: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    file: Option<File>,
    written: u64,
    /// Why no more are written.
    failed: Option<String>,
}

impl fmt::Debug for MismatchFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MismatchFile({})", self.path.display())
    }
}

impl MismatchFile {
    /// Will be at `path`, in the place of what is there.
    pub fn new(path: PathBuf) -> Self {
        Self { path, keeps: false, state: Mutex::default() }
    }

    /// Is at `path`, and is continued. What is no file of mismatches, or full, becomes another's.
    pub fn kept(path: PathBuf) -> Self {
        Self { keeps: true, ..Self::new(path) }
    }

    /// Why something is missing in it, if that is so.
    pub fn failed(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failed.clone()
    }

    /// How people see what it holds.
    pub(super) fn shown_by(&self) -> String {
        format!("what was to come out and what did: `freshet inspect mismatches {}`", self.path.display())
    }

    /// Writes behind what is there, durably. False when there is no room for it.
    fn write(&self, state: &mut State, description: &[u8]) -> io::Result<bool> {
        let mut bytes = (description.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&crc32c::crc32c(description).to_le_bytes());
        bytes.extend_from_slice(description);
        loop {
            let State { file, written, .. } = state;
            let file = match file {
                Some(file) => file,
                none => {
                    let (opened, length) = self.open()?;
                    *written = length;
                    none.insert(opened)
                }
            };
            if *written + bytes.len() as u64 <= FULL {
                file.write_all(&bytes)?;
                file.sync_data()?;
                *written += bytes.len() as u64;
                return Ok(true);
            }
            if *written <= MAGIC.len() as u64 || !self.put_aside()? {
                return Ok(false);
            }
            state.file = None;
        }
    }

    /// The file, at its end, and how long it is.
    fn open(&self) -> io::Result<(File, u64)> {
        if self.keeps && self.path.exists() {
            match read_mismatches(&self.path) {
                Ok((_, torn)) => {
                    let mut file = private::open(File::options().read(true).write(true), &self.path)?;
                    let end = file.metadata()?.len().saturating_sub(torn as u64);
                    file.set_len(end)?;
                    file.seek(SeekFrom::Start(end))?;
                    return Ok((file, end));
                }
                Err(MismatchFileError::Io { source, .. }) => return Err(source),
                Err(MismatchFileError::Foreign(_)) if self.put_aside()? => {}
                Err(MismatchFileError::Foreign(_)) => return Err(io::Error::other("it is no file of mismatches")),
            }
        }
        let mut file = private::create(&self.path)?;
        file.write_all(MAGIC)?;
        private::directory_of(&self.path)?.sync_all()?;
        Ok((file, MAGIC.len() as u64))
    }

    /// Gives the file another name. False when all that there may be are taken.
    fn put_aside(&self) -> io::Result<bool> {
        let names = (1..=FULL_FILES).map(|number| self.path.with_added_extension(number.to_string()));
        let Some(name) = names.into_iter().find(|name| self.keeps && !name.exists()) else { return Ok(false) };
        fs::rename(&self.path, name)?;
        private::directory_of(&self.path)?.sync_all()?;
        Ok(true)
    }
}

impl Mismatches for MismatchFile {
    fn note(&self, mismatch: Mismatch) -> Result<(), String> {
        let mut description = mismatch.encode();
        if description.len() as u64 > FULL / 2 {
            let why = format!("{}; its blocks are too long to be kept", mismatch.why);
            let (original, regenerated) = Default::default();
            description = Mismatch { why, original, regenerated, ..mismatch }.encode();
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.failed.is_some() {
            return Ok(());
        }
        match self.write(&mut state, &description) {
            Ok(true) => {}
            Ok(false) => {
                state.failed = Some(format!("{} is full: what comes later is only counted", self.path.display()));
            }
            Err(cause) => state.failed = Some(format!("{}: {cause}", self.path.display())),
        }
        Ok(())
    }
}

/// What becomes of mismatches on a standby.
pub(super) struct Policy {
    on_mismatch: OnMismatch,
    /// None where the node has no directory: then they are counted alone.
    file: Option<MismatchFile>,
    warned: AtomicBool,
}

impl Policy {
    pub fn new(on_mismatch: OnMismatch, file: Option<PathBuf>) -> Self {
        if let Some(file) = file.as_ref().filter(|file| file.exists()) {
            let file = file.display();
            tracing::warn!(%file, "mismatches were noted before: `freshet inspect mismatches` shows them");
        }
        Self { on_mismatch, file: file.map(MismatchFile::kept), warned: AtomicBool::new(false) }
    }

    /// Where what was noted can be seen.
    fn kept(&self) -> String {
        match &self.file {
            None => "this node has no directory to keep its block in".into(),
            Some(file) => file.failed().unwrap_or_else(|| file.shown_by()),
        }
    }
}

impl Mismatches for Policy {
    fn patience(&self) -> Option<Duration> {
        // A node that stops anyway need not be whole.
        (self.on_mismatch == OnMismatch::Stop).then_some(PATIENCE)
    }

    fn note(&self, mismatch: Mismatch) -> Result<(), String> {
        let Mismatch { lsn, why, command, .. } = mismatch.clone();
        if let Some(file) = &self.file {
            file.note(mismatch)?;
        }
        let kept = self.kept();
        if self.on_mismatch == OnMismatch::Stop {
            // The status shows why nothing is executed any more. It shows no data, as the cause and
            // the statements do.
            tracing::error!(lsn = lsn.0, cause = why, command, kept, "a transaction did not give its block");
            return Err(format!(
                "the transaction at {lsn} was executed again and did not give its block; this node's output says \
                 what it is; {kept}; restart this node with on-mismatch = \"fetch\" to have it take the block's bytes"
            ));
        }
        if !self.warned.swap(true, Relaxed) {
            tracing::warn!(
                lsn = lsn.0,
                cause = why,
                command,
                kept,
                "a transaction was executed again and did not give its block, whose bytes are fetched; `freshet \
                 status` counts further ones"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::inputs::failure::Why;

    #[test]
    fn a_file_gives_back_what_was_noted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mismatches");
        let file = MismatchFile::new(path.clone());
        let mismatch = |number: u8| Mismatch {
            lsn: Lsn(u64::from(number) << 40),
            why: format!("reason {number}"),
            inputs: vec![number; 9],
            original: vec![number; 300],
            regenerated: vec![!number; usize::from(number) % 2 * 300],
            command: format!("procedure {number}"),
        };
        assert!(!path.exists(), "it is made with the first mismatch");
        for number in 0..5 {
            file.note(mismatch(number)).unwrap();
        }
        assert_eq!(file.failed(), None);
        let all: Vec<_> = (0..5).map(mismatch).collect();
        assert_eq!(read_mismatches(&path).unwrap(), (all.clone(), 0));
        // However much of it is torn off, or wrong: what is before is there.
        let bytes = std::fs::read(&path).unwrap();
        let torn = directory.path().join("torn");
        for end in MAGIC.len()..bytes.len() {
            std::fs::write(&torn, &bytes[..end]).unwrap();
            let (found, left) = read_mismatches(&torn).unwrap();
            assert!(found.len() < all.len() && all.starts_with(&found), "up to {end}");
            assert_eq!(found.iter().map(|found| found.encode().len() + 8).sum::<usize>() + left + MAGIC.len(), end);
        }
        std::fs::write(&torn, b"something else").unwrap();
        assert!(matches!(read_mismatches(&torn), Err(MismatchFileError::Foreign(_))));
    }

    #[test]
    fn what_was_noted_before_a_restart_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mismatches");
        let mismatch = |number: u64, length: usize| Mismatch {
            lsn: Lsn(number),
            why: "reason".into(),
            inputs: vec![1; 9],
            original: vec![2; length],
            regenerated: Vec::new(),
            command: String::new(),
        };
        // Each node that starts continues, behind what a crash has torn, too.
        for number in 0..4 {
            let file = MismatchFile::kept(path.clone());
            file.note(mismatch(number, 100)).unwrap();
            assert_eq!(file.failed(), None);
            let mut bytes = fs::read(&path).unwrap();
            bytes.extend_from_slice(&[7; 11]);
            fs::write(&path, bytes).unwrap();
        }
        let (found, torn) = read_mismatches(&path).unwrap();
        assert_eq!((found, torn), ((0..4).map(|number| mismatch(number, 100)).collect(), 11));
        // Full files stay, and there is an end.
        let file = MismatchFile::kept(path.clone());
        let long = FULL as usize / 2 - 1000;
        let mut number = 4;
        while file.failed().is_none() {
            file.note(mismatch(number, long)).unwrap();
            number += 1;
            assert!(number < 100);
        }
        let names = ["mismatches.1", "mismatches.2", "mismatches.3", "mismatches"];
        let kept: Vec<Mismatch> =
            names.iter().flat_map(|name| read_mismatches(&directory.path().join(name)).unwrap().0).collect();
        let lsns: Vec<u64> = kept.iter().map(|mismatch| mismatch.lsn.0).collect();
        assert_eq!(lsns, (0..number - 1).collect::<Vec<_>>(), "all but the one that found no room");
        let all = names.iter().map(|name| fs::metadata(directory.path().join(name)).unwrap().len()).sum::<u64>();
        assert!(all <= 4 * FULL, "{all} bytes");
        // What is no such file is not written over.
        fs::remove_file(directory.path().join("mismatches.2")).unwrap();
        fs::write(&path, "something else").unwrap();
        let file = MismatchFile::kept(path.clone());
        // A block that is too long alone is left out.
        file.note(mismatch(7, FULL as usize)).unwrap();
        assert_eq!(file.failed(), None);
        assert_eq!(fs::read(directory.path().join("mismatches.2")).unwrap(), b"something else");
        let (found, _) = read_mismatches(&path).unwrap();
        assert!(found[0].original.is_empty() && found[0].why.contains("too long"), "{}", found[0].why);
    }

    #[test]
    fn a_status_shows_no_data_of_a_mismatch() {
        let policy = Policy::new(OnMismatch::Stop, None);
        let mismatch = Mismatch {
            lsn: Lsn(7),
            why: "it failed: duplicate key (secret)".to_owned(),
            inputs: b"secret".to_vec(),
            original: Vec::new(),
            regenerated: Vec::new(),
            command: "INSERT INTO t VALUES ('secret')".to_owned(),
        };
        let shown = policy.note(mismatch).unwrap_err();
        assert!(
            shown.contains("the transaction at 7 ") && !shown.contains("secret") && !shown.contains("INSERT"),
            "{shown}"
        );
        for (why, shown) in [
            (Why::Failed("secret".to_owned()), "it failed"),
            (Why::Panicked("secret".to_owned()), "it panicked"),
            (Why::Writes("secret".to_owned()), "it wrote something else"),
            (Why::OldSnapshot, "it reads at a snapshot that is too old"),
        ] {
            assert_eq!(why.for_status(), shown);
        }
    }
}
