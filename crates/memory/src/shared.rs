//! Memory that has a file without a name, which others can map.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io,
    os::{fd::BorrowedFd, unix::fs::FileExt},
    path::Path,
};

use freshet_base::{
    memory::{Held, Owner},
    private,
    sync::{AtomicU32, AtomicU64},
};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};

use crate::{
    Medium, Method, PERSISTENT, Registered, copy_words,
    mapped::{Mapped, PAGE},
};

/// The size of huge pages that is tried.
const HUGE_PAGE: usize = 2 << 20;

/// Memory that several processes of one machine can have in common: sealed, so that none of
/// them can cut it off under us; or what another process has made so and passed.
pub struct SharedMemory {
    mapped: Mapped,
    huge_pages: bool,
    /// How what is stored here becomes durable, if it is to be.
    method: Option<Method>,
    /// What lies under it, then.
    medium: Option<Medium>,
    /// What it takes of this process's memory: nothing if another has made it, or it is persistent.
    _held: Option<Held>,
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedMemory({} bytes)", self.words().len() * 8)
    }
}

impl SharedMemory {
    /// `length` bytes of zeros, rounded up to whole words, at least one. Pages are not touched
    /// before they are used. With `huge_pages`, in those that the system has set aside, if it has,
    /// and the length is a multiple of two MiB; else in ordinary ones, which the kernel may put
    /// together by itself.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(length: usize, huge_pages: bool) -> io::Result<Self> {
        let length = length.next_multiple_of(8).max(8);
        let huge =
            if huge_pages && length.is_multiple_of(HUGE_PAGE) { Self::of_pages(length, true).ok() } else { None };
        let mapped = match huge {
            Some(mapped) => mapped,
            None => {
                let mapped = Self::of_pages(length, false)?;
                if huge_pages {
                    mapped.prefer_huge_pages();
                }
                mapped
            }
        };
        let held = Some(Held::by(Owner::Buffers, length));
        Ok(Self { mapped, huge_pages, method: None, medium: None, _held: held })
    }

    fn of_pages(length: usize, huge: bool) -> io::Result<Mapped> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let flags = if huge { flags | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB } else { flags };
        let file = File::from(memfd_create(c"freshet-memory", flags)?);
        private::keep(&file)?;
        file.set_len(length.next_multiple_of(PAGE) as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // Huge pages are set aside here, or it fails; later there would be a signal instead.
        Mapped::of(file, 0, length, libc::MAP_SHARED).map_err(|(_, error)| error)
    }

    /// `length` bytes in the file at `path`, behind a page that says that others may map them. With
    /// `is_new` the file is made, with zeros and with room on its disk; else it is there, as a
    /// process of before has made it. What is stored is in the file, for every process of this
    /// machine. With a `method` it is durable when it was [flushed](Registered::flush), where
    /// [`SharedMemory::medium`] says so; without, nothing says when it gets onto the disk.
    ///
    /// # Errors
    /// What the system says; that there is no room, or that the file is another one; that this
    /// processor does not have the method.
    pub fn in_file(path: &Path, length: usize, is_new: bool, method: Option<Method>) -> io::Result<Self> {
        is_available(method)?;
        let (length, mut options) = (length.next_multiple_of(8).max(8), OpenOptions::new());
        let file = private::open(options.read(true).write(true).create_new(is_new), path)?;
        let bytes = (PAGE + length).next_multiple_of(PAGE) as u64;
        if is_new {
            // Without room there would be a signal later.
            let made = fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(io::Error::from);
            let made = made.and_then(|()| file.write_all_at(PERSISTENT, 0));
            let made = made.and_then(|()| if method.is_some() { file.sync_all() } else { Ok(()) });
            made.inspect_err(|_| {
                // It would take room, and be in the way of the next attempt.
                let _ = fs::remove_file(path);
            })?;
        } else {
            let mut first = [0; PERSISTENT.len()];
            file.read_exact_at(&mut first, 0)?;
            if file.metadata()?.len() != bytes || first != *PERSISTENT {
                return Err(io::Error::other("it is not the memory that was here"));
            }
        }
        let mut memory = Self::passed(file, PAGE as u64, length, method)?;
        let is_persistent = matches!(memory.medium, Some(Medium::Dax));
        memory._held = (!is_persistent).then(|| Held::by(Owner::Buffers, length));
        Ok(memory)
    }

    /// `length` bytes of a file that another process has passed, from byte `at` on; what it has was
    /// looked at.
    pub(crate) fn passed(file: File, at: u64, length: usize, method: Option<Method>) -> io::Result<Self> {
        let (mapped, medium) = Mapped::durable(file, at, length)?;
        Ok(Self { mapped, huge_pages: false, method, medium: method.map(|_| medium), _held: None })
    }

    /// What lies under memory that is to be durable.
    pub fn medium(&self) -> Option<&Medium> {
        self.medium.as_ref()
    }

    /// Whether others may have mapped it.
    pub fn is_lent(&self) -> bool {
        self.mapped.is_lent()
    }

    /// Whether another process has mapped it now, with [`SharedKey::attach`](crate::SharedKey).
    /// Where it is in a file, that may be one to which a process of before has passed it. Never
    /// blocks.
    ///
    /// # Errors
    /// What the system says.
    pub fn is_mapped_elsewhere(&self) -> io::Result<bool> {
        self.mapped.is_mapped_elsewhere()
    }

    /// Takes the memory away from every other process that has mapped it. It stays at its
    /// addresses; words that `keep` refuses are zero then. What others write in the meantime is
    /// kept or lost, word by word, and none of it arrives after the return of this. No thread of
    /// this process writes in the meantime. Takes as long as copying does.
    ///
    /// # Errors
    /// What the system says; nothing has changed then.
    pub fn renew(&self, keep: impl Fn(usize) -> bool) -> io::Result<()> {
        let new = Self::new(self.words().len() * 8, self.huge_pages)?;
        copy_words(self.words(), new.words(), keep);
        self.mapped.replace(new.mapped)
    }

    /// The lower half of a word, to sleep at: all processes must take the same half.
    ///
    /// # Panics
    /// When there is no such word.
    pub fn half(&self, word: usize) -> &AtomicU32 {
        let word: *const AtomicU64 = &self.words()[word];
        // SAFETY: a word's first half is aligned for four bytes, mapped as long as `self` is
        // borrowed, and everybody who uses this word uses it by this half.
        unsafe { &*word.cast() }
    }
}

/// Whether this processor can make memory durable so.
pub(crate) fn is_available(method: Option<Method>) -> io::Result<()> {
    let missing = method.filter(|method| !method.is_available());
    let why = |method| io::Error::other(format!("this processor has no {method}, by which memory is made durable"));
    missing.map_or(Ok(()), |method| Err(why(method)))
}

impl Registered for SharedMemory {
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self.mapped.words()
    }

    /// From now on another process may write there unseen, until the memory is
    /// [renewed](SharedMemory::renew). The descriptor's number stays the same then, and names the
    /// new file.
    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        Some(self.mapped.lend())
    }

    fn method(&self) -> Option<Method> {
        self.method
    }
}

#[cfg(test)]
mod tests {
    use freshet_base::{sync::Ordering, words};

    use super::*;
    use crate::SharedKey;

    /// The memory as another process has it that has mapped it.
    fn mapped(memory: &SharedMemory) -> SharedMemory {
        let key = SharedKey::of(memory).unwrap();
        let (file, _) = memory.file().unwrap();
        key.attach(file.try_clone_to_owned().unwrap()).unwrap()
    }

    #[test]
    fn two_mappings_are_one_memory() {
        let memory = SharedMemory::new(10_000, true).unwrap();
        let other = mapped(&memory);
        assert_eq!(other.words().len(), 1250);
        words::store(memory.words(), 9_990, b"0123456789");
        let mut back = [0; 10];
        words::load(other.words(), 9_990, &mut back);
        assert_eq!(&back, b"0123456789");
        other.half(3).store(7, Ordering::SeqCst);
        assert_eq!(memory.half(3).load(Ordering::SeqCst), 7);
        drop(memory);
        // The mapping outlives the one who made it, and the descriptor does not.
        assert_eq!(other.half(3).load(Ordering::SeqCst), 7);
    }

    #[test]
    fn who_has_mapped_memory_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory");
        for memory in [SharedMemory::new(10_000, true), SharedMemory::in_file(&path, 10_000, true, None)] {
            let memory = memory.unwrap();
            let is_mapped = || memory.is_mapped_elsewhere().unwrap();
            assert!(!is_mapped());
            let passed = memory.file().unwrap().0.try_clone_to_owned().unwrap();
            assert!(!is_mapped(), "it was passed only");
            let (one, another) = (mapped(&memory), mapped(&memory));
            drop((one, passed));
            assert!(is_mapped());
            drop(another);
            assert!(!is_mapped());
        }
        // A process that finds the file knows it, too.
        let other = mapped(&SharedMemory::in_file(&path, 10_000, false, None).unwrap());
        let memory = SharedMemory::in_file(&path, 10_000, false, None).unwrap();
        assert!(memory.is_mapped_elsewhere().unwrap());
        drop(other);
        assert!(!memory.is_mapped_elsewhere().unwrap());
    }

    #[test]
    fn memory_without_room_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory");
        assert!(SharedMemory::in_file(&path, 1 << 60, true, None).is_err(), "no file is that long");
        assert!(!path.exists());
        SharedMemory::in_file(&path, 10_000, true, None).unwrap();
        assert!(SharedMemory::in_file(&path, 10_000, true, None).is_err(), "it is there");
        assert!(path.exists());
    }

    #[test]
    fn memory_in_a_file_is_there_for_the_next_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory");
        assert!(SharedMemory::in_file(&path, 5000, false, None).is_err(), "it is not there");
        let memory = SharedMemory::in_file(&path, 5000, true, None).unwrap();
        words::store(memory.words(), 4990, b"0123456789");
        // Another process has it mapped as well.
        let other = mapped(&memory);
        words::store(other.words(), 0, b"abc");
        drop(memory);
        let memory = SharedMemory::in_file(&path, 5000, false, None).unwrap();
        let mut all = [0; 5000];
        words::load(memory.words(), 0, &mut all);
        assert_eq!((&all[..4], &all[4990..]), (&b"abc\0"[..], &b"0123456789"[..]));
        assert!(SharedMemory::in_file(&path, 5000, true, None).is_err(), "it is there");
        assert!(SharedMemory::in_file(&path, 50_000, false, None).is_err(), "it is shorter");
        std::fs::write(&path, vec![0; 3 * PAGE]).unwrap();
        assert!(SharedMemory::in_file(&path, 5000, false, None).is_err(), "it is another file");
    }

    #[test]
    fn renewed_memory_is_out_of_reach_of_those_who_have_mapped_it() {
        for (length, huge_pages) in [(10_000, false), (2 << 20, true)] {
            let memory = SharedMemory::new(length, huge_pages).unwrap();
            assert!(!memory.is_lent());
            let other = mapped(&memory);
            assert!(memory.is_lent());
            let (first, last) = (memory.words().as_ptr(), memory.words().len() - 1);
            other.words()[0].store(1, Ordering::SeqCst);
            other.words()[5].store(5, Ordering::SeqCst);
            other.words()[last].store(2, Ordering::SeqCst);
            memory.renew(|word| word != 5).unwrap();
            assert!(!memory.is_lent());
            let now = |word: usize| memory.words()[word].load(Ordering::SeqCst);
            assert_eq!((memory.words().as_ptr(), memory.words().len() - 1), (first, last), "it stays in its place");
            assert_eq!([now(0), now(1), now(5), now(last)], [1, 0, 0, 2]);
            // It had stood still.
            other.words()[0].store(3, Ordering::SeqCst);
            other.words()[last].store(3, Ordering::SeqCst);
            assert_eq!([now(0), now(last)], [1, 2]);
            // Those who map it from now on do reach it, until it is renewed again.
            let next = mapped(&memory);
            next.words()[last].store(4, Ordering::SeqCst);
            assert_eq!(now(last), 4);
            memory.renew(|_| true).unwrap();
            next.words()[last].store(5, Ordering::SeqCst);
            assert_eq!([now(0), now(last)], [1, 4]);
        }
    }
}
