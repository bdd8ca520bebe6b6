//! Lines on their way to the one thread that writes them.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Write},
    os::fd::AsFd,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};

/// At most this number of bytes waits.
pub(super) const CAPACITY: usize = 1 << 20;

#[derive(Default)]
struct State {
    lines: VecDeque<String>,
    bytes: usize,
    /// Lines for which there was no room.
    dropped: u64,
    writing: bool,
    /// The thread that writes is to wake and look at the time.
    woken: bool,
}

/// A bounded queue. Threads that put lines into it never wait.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a line at the end, or counts it as dropped. Never blocks.
    pub(super) fn push(&self, line: String) {
        let mut state = self.lock();
        if state.bytes + line.len() > CAPACITY {
            state.dropped += 1;
        } else {
            state.bytes += line.len();
            state.lines.push_back(line);
        }
        self.changed.notify_all();
    }

    /// Wakes the thread that waits in [`Queue::take`], although there is no line.
    pub(super) fn wake(&self) {
        self.lock().woken = true;
        self.changed.notify_all();
    }

    /// Takes all lines, and how many were dropped since the last call. Blocks until there are some,
    /// until `patience` has passed, or until it is woken.
    pub(super) fn take(&self, patience: Option<Duration>) -> (VecDeque<String>, u64) {
        let mut state = self.lock();
        let deadline = patience.map(|patience| Instant::now() + patience);
        while state.lines.is_empty() && state.dropped == 0 && !std::mem::take(&mut state.woken) {
            state = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => break,
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        state.bytes = 0;
        state.writing = true;
        (std::mem::take(&mut state.lines), std::mem::take(&mut state.dropped))
    }

    /// The lines that were taken are written.
    pub(super) fn written(&self) {
        self.lock().writing = false;
        self.changed.notify_all();
    }

    /// Blocks until nothing waits to be written, or the deadline passes.
    pub(super) fn wait_written(&self, deadline: Instant) {
        let mut state = self.lock();
        while state.writing || !state.lines.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Writes, for as long as that takes. What cannot be written is lost: there is no other place to
/// report it.
pub(super) fn write(out: &mut (impl Write + AsFd), mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return,
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Another process has made the shared standard error non-blocking.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(out, PollFlags::OUT)], None);
            }
            Err(_) => return,
        }
    }
}
