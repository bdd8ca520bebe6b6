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
//! | `state` | which files count, what they are, and whose; none while the memory is empty |
//! | `<generation>-<number>` | a region, behind a page that says that it may be shared |
//! | `aside` | a directory with the files of a memory that does not count, until another has what it had |
//!
//! Where a process still has the memory mapped, it is taken back by a copy: the files of
//! another generation. The state is replaced at once, when all of them are there.
//!
//! # What counts
//!
//! A memory that counts has a vote, so it must be the one that this node had when it acknowledged
//! something last. `state` is text with a checksum (`freshet_log::sealed`), and says
//!
//! - whose it is. What is another node's, or another cluster's, is refused: nothing is changed.
//! - its number, which the node's control file has, too ([`Life`]). It is another one after each
//!   start, so older files do not count, and neither do these where the control file is an older
//!   one, or where the mirror has had other memory since.
//! - which files these are: their inodes, and when they were made. A copy of them does not count,
//!   since it may be older than the last acknowledgement of the same life.
//!
//! The same files may have an older content: from a snapshot of their device, or because a backup
//! was copied over them. So the control file says how far the memory reached, some seconds ago at
//! most while it is fed ([`Kept::reaches`]). What is recovered and ends below is older. A rollback
//! of less than these seconds, or of both directories, cannot be seen.
//!
//! A new number is noted in three steps: the control file has it beside the one of before; then the
//! state has it; then the control file has it alone, and something may be acknowledged. After a
//! crash between them the state has one of the two.
//!
//! What does not count is set aside, and begun again as another incarnation, which loses nothing
//! that others have. So is a damaged state: a loss of power may leave one where the files are not
//! to be durable. Where they are to be, and none is there, the start is refused: their device is
//! not mounted, perhaps.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use freshet_base::{
    ClusterId, Lsn, NodeId, private,
    versions::{RELEASE, Versions},
};
use freshet_cluster::term::{Life, TermHistory};
use freshet_fabric::memory::{Method, SharedMemory};
use freshet_log::sealed;

use crate::terms::Terms;

/// Where a memory is kept that does not count any more.
const ASIDE: &str = "aside";

/// The first line of a state. Another format does not count.
const HEAD: &str = "freshet mirror ";
const READS: Versions = Versions::new(3, 3);

/// What `state` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeptState {
    pub cluster: ClusterId,
    node: NodeId,
    /// The number of this memory.
    pub life: u64,
    /// When the machine was started that wrote this.
    boot: String,
    generation: u64,
    /// See [`freshet_cluster::mirror::MirrorState::floor`].
    pub floor: Lsn,
    /// See [`freshet_cluster::mirror::MirrorState::owes`].
    pub owes: Lsn,
    /// What is there is not what was written.
    pub damaged: bool,
    /// What has completed survives a loss of power.
    pub durable: bool,
    pub regions: Vec<KeptRegion>,
}

/// A file of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeptRegion {
    /// How long the region is.
    pub bytes: u64,
    /// Which file of its file system it is, and when that was made (in nanoseconds since 1970; 0
    /// where the file system does not say). No copy has both.
    file: (u64, u128),
}

/// What a memory is noted to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted<'a> {
    pub cluster: ClusterId,
    /// How long the regions are.
    pub lengths: &'a [u64],
    /// See [`KeptState`].
    pub floor: Lsn,
    /// See [`freshet_cluster::mirror::MirrorState::owes`].
    pub owes: Lsn,
    /// See there.
    pub damaged: bool,
    /// See there.
    pub durable: bool,
}

/// The files of a mirror's memory.
pub(super) struct Kept {
    directory: PathBuf,
    boot: String,
    generation: u64,
    /// How what is stored there becomes durable, if it is to be.
    method: Option<Method>,
    node: NodeId,
    /// Where the number of the memory is noted as well.
    terms: Terms,
    life: u64,
    /// See [`Life::reached`].
    reached: Lsn,
}

/// What was left: a memory that counts, nothing, or why it does not count.
type Left = Result<Option<KeptState>, String>;

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

/// Which file it is: see [`KeptRegion`].
fn identity(file: &Path) -> io::Result<(u64, u128)> {
    let metadata = fs::metadata(file)?;
    let made = metadata.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
    Ok((metadata.ino(), made.map_or(0, |since| since.as_nanos())))
}

impl KeptState {
    fn encode(&self) -> String {
        let Self { cluster, node, life, boot, generation, floor, owes, damaged, durable, regions } = self;
        let format = READS.writes();
        let mut text = format!("{HEAD}{format}\ncluster {cluster}\nnode {node}\nlife {life:016x}\nboot {boot}\n");
        text.push_str(&format!("generation {generation}\nfloor {}\nowes {}\n", floor.0, owes.0));
        text.push_str(&format!("damaged {damaged}\ndurable {durable}\n"));
        for KeptRegion { bytes, file: (inode, made) } in regions {
            text.push_str(&format!("region {bytes} {inode} {made}\n"));
        }
        if READS.is_next(format) {
            text.push_str(&format!("release {RELEASE}\n"));
        }
        sealed::seal(text)
    }

    /// An error says what is wrong with it.
    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let text = sealed::open(str::from_utf8(bytes).map_err(|_| "it is no text")?)?;
        let (first, rest) = text.split_once('\n').unwrap_or_default();
        let format = first.strip_prefix(HEAD).and_then(|format| format.parse().ok());
        let format =
            format.filter(|format| READS.check(*format).is_ok()).ok_or("another version of Freshet wrote it")?;
        let last = if READS.is_next(format) { format!("release {RELEASE}\n") } else { String::new() };
        let rest = rest.strip_suffix(&last).ok_or("it does not name its release")?;
        Self::read(rest).ok_or("it does not say what a state says")
    }

    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let state = Self {
            cluster: ClusterId(u128::from_str_radix(field("cluster")?, 16).ok()?),
            node: NodeId(u64::from_str_radix(field("node")?, 16).ok()?),
            life: u64::from_str_radix(field("life")?, 16).ok()?,
            boot: field("boot")?.to_owned(),
            generation: field("generation")?.parse().ok()?,
            floor: Lsn(field("floor")?.parse().ok()?),
            owes: Lsn(field("owes")?.parse().ok()?),
            damaged: field("damaged")?.parse().ok()?,
            durable: field("durable")?.parse().ok()?,
            regions: Vec::new(),
        };
        let region = |line: &str| {
            let mut words = line.strip_prefix("region ")?.split(' ');
            let bytes = words.next()?.parse().ok()?;
            Some(KeptRegion { bytes, file: (words.next()?.parse().ok()?, words.next()?.parse().ok()?) })
        };
        let regions = lines.map(region).collect::<Option<_>>()?;
        Some(Self { regions, ..state })
    }
}

impl Kept {
    /// In this directory, for this node, which has these terms; with what a process of before has
    /// left there. What does not count is still there until it is [forgotten](Self::forget).
    ///
    /// # Errors
    /// When it belongs to another node, or cannot be looked at. Nothing was changed then.
    pub fn open(directory: &Path, method: Option<Method>, node: NodeId, terms: &Terms) -> io::Result<(Self, Left)> {
        Self::look(directory, method, node, terms.clone()).map_err(at(directory))
    }

    fn look(directory: &Path, method: Option<Method>, node: NodeId, terms: Terms) -> io::Result<(Self, Left)> {
        private::create_directories(directory)?;
        let (boot, directory) = (boot()?, directory.to_owned());
        let reached = terms.get().life.map_or(Lsn::ZERO, |life| life.reached);
        let mut kept = Self { directory, boot, generation: 0, method, node, terms, life: 0, reached };
        let left = kept.left()?;
        if let Ok(Some(state)) = &left {
            kept.generation = state.generation;
            kept.sweep()?;
        } else {
            kept.generation = kept.files()?.into_iter().map(|(generation, _)| generation).max().unwrap_or(0);
        }
        Ok((kept, left))
    }

    /// What `state` says, if it counts.
    fn left(&self) -> io::Result<Left> {
        let (terms, path) = (self.terms.get(), self.state());
        let state = match fs::read(&path) {
            Ok(bytes) => KeptState::decode(&bytes),
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
            // A mirror with a history has had something here.
            Err(_) if terms.life.is_none() || terms.history == TermHistory::default() => return Ok(Ok(None)),
            Err(_) if self.method.is_some() => return Err(self.missing()),
            Err(_) => return Ok(Err("it is gone".to_owned())),
        };
        let state = match state {
            Ok(state) => state,
            Err(what) => return Ok(Err(format!("{} is damaged: {what}", path.display()))),
        };
        if state.node != self.node || terms.cluster.is_some_and(|cluster| cluster != state.cluster) {
            return Err(self.foreign(&state, terms.cluster));
        }
        if !terms.life.is_some_and(|life| life.is(state.life)) {
            let why = "it is not the last that this node had: it is an older copy, or the node's directory is";
            return Ok(Err(why.to_owned()));
        }
        if state.boot != self.boot && !state.durable {
            return Ok(Err("the machine was started again since, and it was not in persistent memory".to_owned()));
        }
        Ok(Ok(Some(state)))
    }

    /// It was persistent, and is not there.
    fn missing(&self) -> io::Error {
        io::Error::other(
            "the memory of this mirror, which was persistent, is not here: mount its device, or set mirror.keep-dir to \
             where it is; if it is gone for good, keep this node's directory aside and start it with a new one; \
             nothing was changed",
        )
    }

    /// It belongs to another node.
    fn foreign(&self, state: &KeptState, cluster: Option<ClusterId>) -> io::Error {
        let cluster = cluster.map_or_else(|| "no cluster".to_owned(), |cluster| format!("cluster {cluster}"));
        io::Error::other(format!(
            "this is the memory of node {} of cluster {}, and not of this node, which is {} of {cluster}: set \
             mirror.keep-dir to another directory; or, if no node needs that memory any more, remove it; nothing was \
             changed",
            state.node, state.cluster, self.node
        ))
    }

    fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// The files of regions, and their generations.
    fn files(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some((generation, number)) = name.split_once('-') else { continue };
            if let (Ok(generation), Ok(_)) = (generation.parse(), number.parse::<usize>()) {
                files.push((generation, path));
            }
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
    pub fn find(&self, number: usize, region: KeptRegion) -> io::Result<SharedMemory> {
        let path = self.region(number);
        let found = || match identity(&path)? == region.file {
            true => SharedMemory::in_file(&path, region.bytes as usize, false, self.method),
            false => Err(io::Error::other("it is a copy, which may be older than what this node had")),
        };
        found().map_err(at(&path))
    }

    /// The files of the memory, and what says of them, go to a directory of their own, instead of
    /// what was there. Says which, if there are any.
    pub fn set_aside(&self) -> io::Result<Option<PathBuf>> {
        let of_memory = |(generation, path): (u64, PathBuf)| (generation == self.generation).then_some(path);
        let mut files: Vec<_> = self.files()?.into_iter().filter_map(of_memory).collect();
        if files.is_empty() {
            return Ok(None);
        }
        let to = self.directory.join(ASIDE);
        if to.exists() {
            fs::remove_dir_all(&to).map_err(at(&to))?;
        }
        private::create_directories(&to).map_err(at(&to))?;
        files.extend(Some(self.state()).filter(|state| state.exists()));
        for file in files {
            fs::rename(&file, to.join(file.file_name().unwrap_or_default())).map_err(at(&file))?;
        }
        Ok(Some(to))
    }

    /// Nothing counts any more; what is made from now on is of another generation.
    pub fn forget(&mut self) -> io::Result<()> {
        remove(&self.state())?;
        self.sync()?;
        self.reached = Lsn::ZERO;
        self.begin_life(None)?;
        self.live()?;
        self.generation += 1;
        self.sweep()
    }

    /// What is noted from now on has another number. Until the node [lives](Self::live) under that,
    /// what has the number `before` counts as well.
    pub fn begin_life(&mut self, before: Option<u64>) -> io::Result<()> {
        self.life = getrandom::u64().map_err(io::Error::other)?;
        match before {
            Some(_) => self.note_life(before),
            None => Ok(()),
        }
    }

    /// What has another number does not count any more.
    pub fn live(&self) -> io::Result<()> {
        self.note_life(None)
    }

    fn note_life(&self, before: Option<u64>) -> io::Result<()> {
        let life = Life { number: self.life, before, reached: self.reached };
        self.terms.note_life(Some(life)).map_err(io::Error::other)
    }

    /// The memory was noted to have everything below.
    pub fn reached(&self) -> Lsn {
        self.reached
    }

    /// The memory has everything below `to`, also when it is found again. Blocks until that is
    /// noted.
    pub fn reaches(&mut self, to: Lsn) -> io::Result<()> {
        if to == self.reached {
            return Ok(());
        }
        self.reached = to;
        self.live()
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
    pub fn note(&self, noted: Noted<'_>) -> io::Result<()> {
        self.replace(noted).map_err(at(&self.directory))?;
        self.sweep()
    }

    fn replace(&self, noted: Noted<'_>) -> io::Result<()> {
        let Noted { cluster, lengths, floor, owes, damaged, durable } = noted;
        let region = |(number, bytes): (usize, &u64)| {
            identity(&self.region(number)).map(|file| KeptRegion { bytes: *bytes, file })
        };
        let regions = lengths.iter().enumerate().map(region).collect::<io::Result<_>>()?;
        let &Self { node, life, generation, .. } = self;
        let boot = self.boot.clone();
        let state = KeptState { cluster, node, life, boot, generation, floor, owes, damaged, durable, regions };
        let next = self.directory.join("state.next");
        let mut file = private::create(&next)?;
        file.write_all(state.encode().as_bytes())?;
        if self.method.is_some() {
            file.sync_all()?;
        }
        fs::rename(&next, self.state())?;
        self.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> KeptState {
        let regions = [(65_536, (12, 1_700_000_000_123_456_789)), (8, (0, 0))];
        KeptState {
            cluster: ClusterId(0x0102),
            node: NodeId(9),
            life: 11,
            boot: "1f0c".into(),
            generation: 3,
            floor: Lsn(7),
            owes: Lsn(9),
            damaged: false,
            durable: false,
            regions: regions.map(|(bytes, file)| KeptRegion { bytes, file }).into(),
        }
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_of_a_state_is_noticed() {
        for state in [state(), KeptState { damaged: true, durable: true, regions: Vec::new(), ..state() }] {
            let bytes = state.encode().into_bytes();
            assert_eq!(KeptState::decode(&bytes), Ok(state));
            for length in 0..bytes.len() {
                assert!(KeptState::decode(&bytes[..length]).is_err(), "{length} bytes of it");
            }
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(KeptState::decode(&damaged).is_err(), "bit {bit}: {}", String::from_utf8_lossy(&damaged));
            }
            let longer = [&bytes[..], b"\n"].concat();
            assert!(KeptState::decode(&longer).is_err());
        }
    }

    #[test]
    fn a_state_of_another_version_is_refused() {
        let text = state().encode();
        let next = sealed::open(&text).unwrap().replacen("mirror 3", "mirror 4", 1);
        assert_eq!(KeptState::decode(sealed::seal(next).as_bytes()), Err("another version of Freshet wrote it"));
    }
}
