//! Leases: whether another process has memory mapped.
//!
//! A process that maps what it was passed opens the file once more, and holds a shared lock of that
//! open file (`flock(2)`): its *lease*. The mapping keeps the open file, so the lease ends when the
//! memory is unmapped, or when the process has ended, however that was: not before, and without a
//! word of the process.
//!
//! The one whose memory it is tries to lock its own open file exclusively, for a moment. If it can,
//! no process that has mapped the memory is left. One that was passed the descriptor and stood
//! still may map it later. So a process looks whether it is still wanted when it has its lease,
//! before it stores anything.

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::AsRawFd,
    thread,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

/// Somebody who only looks has the lock for a moment.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// The file that was passed, opened once more, with a lease. Blocks for 100 ms at most.
///
/// # Errors
/// What the system says: without `/proc` there is no lease.
pub(crate) fn lease(passed: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", passed.as_raw_fd());
    let file = OpenOptions::new().read(true).write(true).open(&path);
    let file = file.map_err(|cause| io::Error::new(cause.kind(), format!("{path} cannot be opened: {cause}")))?;
    for _ in 0..ATTEMPTS {
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => thread::sleep(PAUSE),
            locked => return locked.map(|()| file).map_err(Into::into),
        }
    }
    Err(io::Error::other("the memory that was passed is locked by another process"))
}

/// Whether a process has a lease of this file. Never blocks.
///
/// # Errors
/// What the system says.
pub(crate) fn is_leased(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(true),
        locked => Ok(locked.and_then(|()| flock(file, FlockOperation::Unlock)).map(|()| false)?),
    }
}
