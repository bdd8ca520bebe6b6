//! Passive group commit (distributed logging, section 4.1), for a log buffer in persistent memory.
//!
//! A worker that has copied its block does not wait until the block is durable: it leaves the fence
//! to its next commit, which will find the stores long done. Until then its *dgsn* is dirty: it
//! holds the LSN of that block. The log is durable up to the minimum over all dirty LSNs (and
//! over what is not filled yet). A worker that does not come back soon, because it is idle or in a
//! long transaction, is a straggler: a thread that needs to know forces its fence.
//!
//! | force-fence | how |
//! |---|---|
//! | `signal` | the paper's: a signal to the thread; its handler fences and clears the flag |
//! | `membarrier` | `membarrier(2)`: the kernel runs a barrier on every processor that runs one of our threads; a thread that asked clears the flags |
//!
//! Either drains what the straggler's processor holds back: interrupts and serialising instructions
//! do (Intel SDM, volume 3A, section 11.3.1), and a thread that is not running has been switched
//! away from, which does too.
//!
//! # Access protocol
//!
//! A slot belongs to one writer at a time. `state` is zero when clean, else the LSN of the
//! unfenced block plus one. The owner stores an LSN before it clears its bound (release; the group
//! commit reads bounds first, then slots, so a block that is not durable is in one of the two), and
//! zero after a fence. Others only exchange an LSN that they read *before* the force-fence for zero
//! *after* it: a newer block's LSN is another value and stays. Slots are never freed: a handler
//! may look at one whenever it runs.

use std::{
    io,
    sync::{
        OnceLock,
        atomic::{AtomicI32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_utils::CachePadded;
use freshet_base::Lsn;

use super::{ForceFence, dirty::Dirty};
use crate::persist::fence;

/// Writers of all logs of this process that can commit passively at once.
const SLOTS: usize = 1024;
/// Bits of `owner`: a slot in use without a thread yet.
const TAKEN: i32 = -1;
/// How long a signalled thread that runs may take. One that does not run clears its flag when it
/// does; who looks again later finds that.
const PATIENCE: Duration = Duration::from_micros(50);

#[derive(Debug)]
struct Slot {
    /// Zero when free, else who writes: a thread's id, or [`TAKEN`].
    owner: AtomicI32,
    state: Dirty,
}

static SLOTS_OF_ALL: [CachePadded<Slot>; SLOTS] =
    [const { CachePadded::new(Slot { owner: AtomicI32::new(0), state: Dirty::new() }) }; SLOTS];

/// The slots of one log's writers.
#[derive(Debug)]
pub(crate) struct Passive {
    force_fence: ForceFence,
    /// By writer: its slot in [`SLOTS_OF_ALL`] plus one; zero for none.
    slots: Box<[AtomicU64]>,
    force_fences: AtomicU64,
}

thread_local! {
    static THREAD: i32 = rustix::thread::gettid().as_raw_nonzero().get();
}

impl Passive {
    /// For a log of this many writers.
    pub(super) fn new(force_fence: ForceFence, writers: usize) -> io::Result<Self> {
        match force_fence {
            ForceFence::Membarrier => membarrier(Membarrier::Register)?,
            ForceFence::Signal => install_handler()?,
        }
        Ok(Self {
            force_fence,
            slots: (0..writers).map(|_| AtomicU64::new(0)).collect(),
            force_fences: AtomicU64::new(0),
        })
    }

    /// How often stragglers were force-fenced.
    pub(super) fn force_fences(&self) -> u64 {
        self.force_fences.load(Ordering::Relaxed)
    }

    /// Gives writer `writer` a slot. Returns whether there was one.
    pub(super) fn join(&self, writer: usize) -> bool {
        let free = |slot: &CachePadded<Slot>| {
            // AcqRel: pairs with the release in `leave`.
            slot.owner.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some(found) = SLOTS_OF_ALL.iter().position(free) else { return false };
        self.slots[writer].store(found as u64 + 1, Ordering::Release);
        true
    }

    fn slot(&self, writer: usize) -> Option<&'static Slot> {
        let number = self.slots[writer].load(Ordering::Acquire);
        number.checked_sub(1).map(|number| &*SLOTS_OF_ALL[number as usize])
    }

    /// The writer ends: what it wrote is made durable.
    pub(super) fn leave(&self, writer: usize) {
        if let Some(slot) = self.slot(writer) {
            // The thread that wrote may be another; whatever it held back was drained when the
            // writer moved here.
            fence();
            slot.state.fenced();
            self.slots[writer].store(0, Ordering::Release);
            // Release: pairs with the next owner's exchange.
            slot.owner.store(0, Ordering::Release);
        }
    }

    /// The writer is about to write: makes its last block durable.
    #[inline]
    pub(super) fn settle(&self, writer: usize) {
        if let Some(slot) = self.slot(writer) {
            slot.state.settle(fence);
        }
    }

    /// The block at `lsn` was copied, but not fenced. Comes before the bound is cleared.
    #[inline]
    pub(super) fn leave_open(&self, writer: usize, lsn: u64) {
        let Some(slot) = self.slot(writer) else { return fence() };
        let thread = THREAD.with(|thread| *thread);
        if slot.owner.load(Ordering::Relaxed) != thread {
            slot.owner.store(thread, Ordering::Release);
        }
        slot.state.leave_open(lsn);
    }

    fn dirty(&self) -> impl Iterator<Item = (&'static Slot, u64)> {
        (0..self.slots.len()).filter_map(|writer| {
            let slot = self.slot(writer)?;
            let state = slot.state.seen();
            (state != 0).then_some((slot, state))
        })
    }

    /// The oldest block that may not be durable, below `filled`, which was read before.
    pub(super) fn oldest(&self, filled: Lsn) -> Lsn {
        self.dirty().fold(filled, |oldest, (_, state)| oldest.min(Lsn(state - 1)))
    }

    /// Makes durable what stragglers hold back. Bounded; a signalled thread that does not run
    /// within the patience stays a straggler.
    pub(super) fn force_fence(&self) {
        let dirty: Vec<(&'static Slot, u64)> = self.dirty().collect();
        if dirty.is_empty() {
            return;
        }
        self.force_fences.fetch_add(1, Ordering::Relaxed);
        match self.force_fence {
            ForceFence::Membarrier => {
                if membarrier(Membarrier::Run).is_ok() {
                    for (slot, state) in dirty {
                        slot.state.clean(state);
                    }
                }
            }
            ForceFence::Signal => {
                let mut waiting = Vec::new();
                for (slot, state) in dirty {
                    match signal(slot.owner.load(Ordering::Acquire)) {
                        Ok(()) => waiting.push((slot, state)),
                        // The thread has ended, which drains what it held back as any switch does.
                        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                            slot.state.clean(state);
                        }
                        Err(_) => {}
                    }
                }
                // Delivery is asynchronous (section 4.1, step 10). To yield here could cost a whole
                // time slice.
                let begun = Instant::now();
                while waiting.iter().any(|(slot, state)| slot.state.seen() == *state) && begun.elapsed() < PATIENCE {
                    std::hint::spin_loop();
                }
            }
        }
    }
}

enum Membarrier {
    Register,
    Run,
}

fn membarrier(what: Membarrier) -> io::Result<()> {
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
    let command = match what {
        Membarrier::Register => REGISTER_PRIVATE_EXPEDITED,
        Membarrier::Run => PRIVATE_EXPEDITED,
    };
    // SAFETY: the call takes numbers only.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn number() -> libc::c_int {
    libc::SIGRTMIN() + 5
}

/// Runs on the straggler: fences, then clears its slots.
extern "C" fn handler(_: libc::c_int) {
    fence();
    // SAFETY: the call takes nothing and may be made in a handler.
    let own = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    for slot in &SLOTS_OF_ALL {
        // This thread stands still: its last store to `state` came before the fence.
        slot.state.clean_own(|| slot.owner.load(Ordering::Acquire) == own);
    }
}

fn install_handler() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let install = || {
        // SAFETY: zero is a valid `sigaction`; the handler only uses atomics, a fence and gettid,
        // which are safe in a handler.
        let result = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(number(), &action, std::ptr::null_mut())
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
    };
    INSTALLED.get_or_init(install).map_err(io::Error::from_raw_os_error)
}

fn signal(thread: i32) -> io::Result<()> {
    if thread <= 0 {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    // SAFETY: the call takes numbers only; the handler is installed.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, number()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
