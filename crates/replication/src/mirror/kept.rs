//! Kept: where a mirror's memory lies that is to outlive its process.
//!
//! Each region has a file, which is mapped. What is stored in it is there for the next process, as
//! soon as it is stored: the kernel has the pages, on a disk, in persistent memory or in tmpfs. So
//! a mirror whose process was killed finds all that was written there, and recovers it.
//!
//! With a [`Method`] what has completed is *durable* where the files are in persistent memory
//! (DAX): the one who stores flushes. Then the memory counts after a restart of the machine, too.
//! Anywhere else, and without a method, some pages may be older than others then: the memory counts
//! for nothing, and the mirror begins again. `state` says which it is.
//!
//! | file | holds |
//! |---|---|
//! | `state` | which files count, and what they are; none while the memory is empty |
//! | `<generation>-<number>` | a region, behind a page that says that it may be shared |
//!
//! Where a process still has the memory mapped, it is taken back by a copy: the files of
//! another generation. The state is replaced at once, when all of them are there.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use freshet_base::{Stamp, private};
use freshet_fabric::memory::{Method, SharedMemory};

/// What `state` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeptState {
    generation: u64,
    /// How long the regions are.
    pub lengths: Vec<u64>,
    /// See [`super::State::floor`].
    pub floor: Stamp,
    /// Nothing was missing that the mirror had ever acknowledged.
    pub whole: bool,
    /// What has completed survives a loss of power.
    pub durable: bool,
}

/// The files of a mirror's memory.
#[derive(Debug)]
pub(super) struct Kept {
    directory: PathBuf,
    boot: String,
    generation: u64,
    /// How what is stored there becomes durable, if it is to be.
    method: Option<Method>,
}

/// Names the time since the machine was started.
fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// An error says of what.
fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |cause| io::Error::new(cause.kind(), format!("{}: {cause}", path.display()))
}

/// Removes the file, if it is there.
fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(cause),
        _ => Ok(()),
    }
}

impl KeptState {
    fn encode(&self, boot: &str) -> String {
        let lengths: Vec<_> = self.lengths.iter().map(u64::to_string).collect();
        let (whole, durable) = (u8::from(self.whole), u8::from(self.durable));
        format!("{boot} {} {} {whole} {durable} {}\n", self.generation, self.floor.0, lengths.join(" "))
    }

    /// None unless it was written since the machine was started, or is durable.
    fn decode(text: &str, boot: &str) -> Option<Self> {
        let mut words = text.strip_suffix('\n')?.split(' ');
        let is_of_now = words.next()? == boot;
        let generation = words.next()?.parse().ok()?;
        let floor = Stamp(words.next()?.parse().ok()?);
        let is_true = |word: &str| matches!(word, "0" | "1").then_some(word == "1");
        let (whole, durable) = (is_true(words.next()?)?, is_true(words.next()?)?);
        let lengths = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        (is_of_now || durable).then_some(Self { generation, lengths, floor, whole, durable })
    }
}

impl Kept {
    /// In this directory; with what a process of before has left there, if that counts.
    pub fn open(directory: &Path, method: Option<Method>) -> io::Result<(Self, Option<KeptState>)> {
        Self::look(directory, method).map_err(at(directory))
    }

    fn look(directory: &Path, method: Option<Method>) -> io::Result<(Self, Option<KeptState>)> {
        private::create_directories(directory)?;
        let boot = boot()?;
        let mut kept = Self { directory: directory.to_owned(), boot, generation: 0, method };
        let state = match fs::read(kept.state()) {
            Ok(bytes) => str::from_utf8(&bytes).ok().and_then(|text| KeptState::decode(text, &kept.boot)),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => None,
            Err(cause) => return Err(cause),
        };
        for generation in kept.generations()? {
            kept.generation = kept.generation.max(generation);
        }
        if let Some(state) = &state {
            kept.generation = state.generation;
        }
        kept.sweep()?;
        Ok((kept, state))
    }

    fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    fn generations(&self) -> io::Result<Vec<u64>> {
        Ok(self.files()?.into_iter().map(|(generation, _)| generation).collect())
    }

    /// The files of regions, and their generations.
    fn files(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let generation = name.split_once('-').and_then(|(generation, _)| generation.parse().ok());
            files.extend(generation.map(|generation| (generation, path.clone())));
        }
        Ok(files)
    }

    /// Removes the files of other generations.
    fn sweep(&self) -> io::Result<()> {
        let mut others = self.files()?.into_iter().filter(|(generation, _)| *generation != self.generation);
        others.try_for_each(|(_, path)| fs::remove_file(path))
    }

    fn region(&self, number: usize) -> PathBuf {
        self.directory.join(format!("{}-{number}", self.generation))
    }

    /// A new region, of zeros. A file of that number was none: it could not be noted.
    pub fn make(&self, number: usize, bytes: u64) -> io::Result<SharedMemory> {
        let made = || {
            remove(&self.region(number))?;
            SharedMemory::in_file(&self.region(number), bytes as usize, true, self.method)
        };
        made().map_err(at(&self.directory))
    }

    /// A region that is there.
    pub fn find(&self, number: usize, bytes: u64) -> io::Result<SharedMemory> {
        let found = SharedMemory::in_file(&self.region(number), bytes as usize, false, self.method);
        found.map_err(at(&self.region(number)))
    }

    /// Nothing counts any more; what is made from now on is of another generation.
    pub fn forget(&mut self) -> io::Result<()> {
        remove(&self.state())?;
        self.sync()?;
        self.generation += 1;
        self.sweep()
    }

    /// What the directory has stays so, if its files are to be durable.
    fn sync(&self) -> io::Result<()> {
        if self.method.is_some() { fs::File::open(&self.directory)?.sync_all() } else { Ok(()) }
    }

    /// What is made from now on is of another generation, and counts when it is noted.
    pub fn begin_copy(&mut self) {
        self.generation += 1;
    }

    /// Regions of these lengths count, and no others.
    pub fn note(&self, lengths: Vec<u64>, (floor, whole): (Stamp, bool), durable: bool) -> io::Result<()> {
        let state = KeptState { generation: self.generation, lengths, floor, whole, durable };
        let next = self.directory.join("state.next");
        let replace = || {
            let mut file = private::create(&next)?;
            file.write_all(state.encode(&self.boot).as_bytes())?;
            if self.method.is_some() {
                file.sync_all()?;
            }
            fs::rename(&next, self.state())?;
            self.sync()
        };
        replace().map_err(at(&self.directory))?;
        self.sweep()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_counts_until_the_machine_is_started_again_or_longer() {
        for durable in [false, true] {
            let state = KeptState { generation: 3, lengths: vec![65_536, 8], floor: Stamp(7), whole: true, durable };
            let text = state.encode("now");
            for length in 0..text.len() {
                assert_eq!(KeptState::decode(&text[..length], "now"), None, "{length} bytes of it");
            }
            assert_eq!(KeptState::decode(&text, "later"), durable.then(|| state.clone()));
            assert_eq!(KeptState::decode(&text, "now"), Some(state));
        }
    }
}
