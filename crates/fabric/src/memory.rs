//! Memory that can be registered: what the other side may read and write behind our back.
//!
//! It is never a Rust reference to bytes, but a slice of atomic words (`freshet_base::words`), and
//! what lies there has no meaning before its bounds and its checksum were looked at.

use std::{
    fmt, fs, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::Arc,
};

pub use freshet_base::words::Registered;
use freshet_base::{
    sync::{AtomicU32, AtomicU64},
    words,
};
use rustix::fs::SealFlags;
use serde::{Deserialize, Serialize};

/// A registered piece of memory.
pub type Region = Arc<dyn Registered>;

/// Bytes of a page; mappings begin and end at its multiples.
const PAGE: usize = 4096;
/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// Where memory lies in the file whose descriptor is passed to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedKey {
    /// Where in the file the memory begins.
    at: u64,
    /// Its length in bytes.
    length: u64,
}

impl SharedKey {
    /// How others find `region` in its file; none unless it is a mapping of a file.
    pub fn of(region: &dyn Registered) -> Option<Self> {
        region.file().map(|(_, at)| Self { at, length: (region.words().len() * 8) as u64 })
    }

    /// Maps it, in the file that the other process has passed.
    ///
    /// # Errors
    /// When the file is shorter, or cannot be shared: it is neither sealed, so that no process can
    /// truncate it under this one, nor a log buffer in persistent memory.
    pub(crate) fn attach(&self, file: OwnedFd) -> io::Result<SharedMemory> {
        let file = fs::File::from(file);
        let state = rustix::fs::fstat(&file)?;
        let sealed =
            rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK | SealFlags::GROW));
        if !sealed && !is_log_buffer(&file)? {
            return Err(io::Error::other("the other process has passed a file that is not there to be shared"));
        }
        let end = self.at.checked_add(self.length).ok_or_else(|| io::Error::other("an impossible length"))?;
        if (state.st_size as u64) < end
            || self.length == 0
            || !self.length.is_multiple_of(8)
            || !self.at.is_multiple_of(8)
        {
            return Err(io::Error::other("the other process's memory is not as long as it says"));
        }
        SharedMemory::map(file.into(), self.at, self.length as usize)
    }
}

/// What a log buffer in persistent memory begins with (crate `log`, `persist/buffer.rs`). Such a
/// file cannot be sealed.
const LOG_BUFFER: &[u8; 8] = b"FRESHBUF";

fn is_log_buffer(file: &fs::File) -> io::Result<bool> {
    use std::os::unix::fs::FileExt;
    let mut magic = [0; 8];
    match file.read_exact_at(&mut magic, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| magic == *LOG_BUFFER),
    }
}

/// Copies `bytes` to byte `at` of `words`, around this processor's caches where it can: who writes
/// is not going to read it, and neither its caches nor those of the threads beside it lose
/// anything. What was copied is in place for the thread that sees what is stored afterwards.
/// Others may write the bytes beside these ([`words::store_among`]).
///
/// # Panics
/// When there are not as many bytes.
pub(crate) fn store_around(words: &[AtomicU64], at: usize, bytes: &[u8]) {
    let (head, bytes) = bytes.split_at(bytes.len().min(at.next_multiple_of(8) - at));
    words::store_among(words, at, head);
    let (at, (chunks, tail)) = (at + head.len(), bytes.as_chunks::<8>());
    words::store_among(words, at + chunks.len() * 8, tail);
    if chunks.is_empty() {
        return;
    }
    let target = &words[at / 8..at / 8 + chunks.len()];
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_sfence, _mm_stream_si64};
        for (word, chunk) in target.iter().zip(chunks) {
            // SAFETY: SSE2 is part of x86-64; the word is aligned, and inside a mapping that
            // `words` keeps. Others touch it by atomic instructions only, or from outside of this
            // program, and a store of eight aligned bytes is whole to them.
            unsafe { _mm_stream_si64(word.as_ptr().cast(), i64::from_ne_bytes(*chunk)) };
        }
        // SAFETY: SSE is part of x86-64. Orders the stores above before all that follow.
        unsafe { _mm_sfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    for (word, chunk) in target.iter().zip(chunks) {
        // Relaxed: published by the caller.
        word.store(u64::from_ne_bytes(*chunk), freshet_base::sync::Ordering::Relaxed);
    }
}

/// Memory that several processes of one machine can have in common: a mapping of a file without a
/// name.
pub struct SharedMemory {
    words: NonNull<AtomicU64>,
    length: usize,
    mapped: usize,
    at: u64,
    file: OwnedFd,
}

// SAFETY: the memory is an array of atomics that is mapped as long as this value lives; the
// descriptor is only asked about.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedMemory({} bytes)", self.length)
    }
}

impl SharedMemory {
    /// `bytes` of zeros (at least one word), in huge pages if `huge` and the system has some to
    /// spare. Pages are not touched before they are used.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(bytes: usize, huge: bool) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(8).max(8);
        if huge && let Ok(memory) = Self::made(bytes, HUGE, rustix::fs::MemfdFlags::HUGETLB) {
            return Ok(memory);
        }
        Self::made(bytes, PAGE, rustix::fs::MemfdFlags::empty())
    }

    fn made(bytes: usize, page: usize, more: rustix::fs::MemfdFlags) -> io::Result<Self> {
        use rustix::fs::MemfdFlags;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | more;
        let file = rustix::fs::memfd_create("freshet", flags)?;
        rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
        rustix::fs::ftruncate(&file, bytes.next_multiple_of(page) as u64)?;
        // No process that maps it can take pages away under the others, which would be a signal and
        // not an error.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mut memory = Self::map(file, 0, bytes.next_multiple_of(page))?;
        memory.length = bytes;
        Ok(memory)
    }

    fn map(file: OwnedFd, at: u64, length: usize) -> io::Result<Self> {
        let first = at - at % PAGE as u64;
        let mapped = (length + (at - first) as usize).next_multiple_of(PAGE);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; the file has this length
        // (checked, or made so).
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                first as libc::off_t,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let skip = (at - first) as usize;
        let words = NonNull::new(memory.cast::<u8>().wrapping_add(skip).cast());
        let words = words.ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { words, length, mapped: mapped - skip, at, file })
    }

    /// The lower half of a word, to sleep at: all processes must take the same half.
    ///
    /// # Panics
    /// When there is no such word.
    pub(crate) fn half(&self, word: usize) -> &AtomicU32 {
        let word: *const AtomicU64 = &self.words()[word];
        // SAFETY: a word's first half is aligned for four bytes, mapped as long as `self` is
        // borrowed, and everybody who uses this word uses it by this half.
        unsafe { &*word.cast() }
    }
}

impl Registered for SharedMemory {
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped with this length until `drop`; page-aligned, or at a multiple of eight
        // bytes in the file; any bytes are words.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.length / 8) }
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        Some((self.file.as_fd(), self.at))
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let skip = (self.at % PAGE as u64) as usize;
        let first = self.words.as_ptr().cast::<u8>().wrapping_sub(skip);
        // SAFETY: mapped by `map` with this address and length; nobody has a reference into it any
        // more.
        unsafe { libc::munmap(first.cast(), self.mapped + skip) };
    }
}

#[cfg(test)]
mod tests {
    use freshet_base::sync::Ordering;

    use super::*;

    /// As the other process gets it.
    fn passed(memory: &SharedMemory) -> OwnedFd {
        memory.file.try_clone().unwrap()
    }

    #[test]
    fn two_mappings_are_one_memory() {
        let memory = SharedMemory::new(10_000, true).unwrap();
        let other = SharedKey::of(&memory).unwrap().attach(passed(&memory)).unwrap();
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
    fn what_is_copied_around_the_caches_lies_where_it_should() {
        let memory = SharedMemory::new(256, false).unwrap();
        let bytes: Vec<u8> = (1..=200).collect();
        for at in 0..20 {
            for length in (0..20).chain(180..200) {
                words::store(memory.words(), 0, &[255; 256]);
                store_around(memory.words(), at, &bytes[..length]);
                let mut all = [0; 256];
                words::load(memory.words(), 0, &mut all);
                assert_eq!(all[at..at + length], bytes[..length], "{length} bytes at {at}");
                assert!(all[..at].iter().chain(&all[at + length..]).all(|byte| *byte == 255), "{length} bytes at {at}");
            }
        }
    }

    #[test]
    fn what_is_not_as_long_is_refused() {
        let memory = SharedMemory::new(64, false).unwrap();
        let key = SharedKey::of(&memory).unwrap();
        assert!(SharedKey { length: 8 << 20, ..key.clone() }.attach(passed(&memory)).is_err());
        assert!(SharedKey { at: u64::MAX, ..key.clone() }.attach(passed(&memory)).is_err());
        assert!(SharedKey { at: 4, ..key.clone() }.attach(passed(&memory)).is_err());
        assert!(SharedKey { length: 0, ..key }.attach(passed(&memory)).is_err());
    }

    /// The side that joins may pass any descriptor: it must be memory that no process can truncate.
    #[test]
    fn a_file_that_is_not_there_to_be_shared_is_refused() {
        use std::io::Write;
        let path = std::env::temp_dir().join(format!("freshet-fabric-{}", std::process::id()));
        let mut file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        file.write_all(&[7; 4096]).unwrap();
        let key = SharedKey { at: 0, length: 4096 };
        let passed = || file.try_clone().unwrap().into();
        assert!(key.attach(passed()).unwrap_err().to_string().contains("not there to be shared"));
        std::os::unix::fs::FileExt::write_all_at(&file, LOG_BUFFER, 0).unwrap();
        assert!(key.attach(passed()).is_ok(), "a log buffer cannot be sealed");
    }
}
