//! The threads behind a standby's log. They make durable what has arrived; with a ring in persistent memory, what is
//! durable there goes on to the store (de-staging; Query Fresh, section 3.2).

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
};

use super::Shared;
use crate::core::LogFailure;

/// Marks the log as failed when its thread ends by a panic, so that nobody waits for ever.
struct EndsLog<'a>(&'a Shared);

impl Drop for EndsLog<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(LogFailure::bug());
        }
    }
}

/// The whole life of a thread that puts a stream's share into the store.
pub(super) fn flush(shared: &Arc<Shared>, stream: usize) {
    let _guard = EndsLog(shared);
    let sync_watermark = || match &shared.core.store {
        Some(store) => store.sync_watermark(),
        None => Ok(()),
    };
    let result = loop {
        if shared.core.failure().is_some() {
            // Another thread's.
            return;
        }
        // Before it looks: what has arrived until then is put there.
        let closing = shared.closing.load(Ordering::SeqCst);
        match flush_once(shared, stream) {
            Ok(true) => {}
            Ok(false) if closing => break sync_watermark().map_err(LogFailure::from),
            Ok(false) => shared.bells[stream].sleep(|| shared.is_due(stream) || shared.closing.load(Ordering::SeqCst)),
            Err(failure) => break Err(failure),
        }
    };
    if let Err(failure) = result {
        shared.fail(failure);
    }
}

/// Flushes what is due of one stream; returns whether there was something.
fn flush_once(shared: &Shared, stream: usize) -> Result<bool, LogFailure> {
    let mut guard = shared.flusher(stream);
    let Some(flusher) = guard.as_mut() else { return Ok(false) };
    let flushed = shared.is_due(stream) && shared.flush_share(flusher, shared.flushable())?;
    drop(guard);
    if flushed {
        shared.core.note_thread_cpu();
    }
    Ok(flushed)
}

/// The whole life of the one thread that flushes the lines of a ring in persistent memory, where those who replay do
/// not.
#[cfg(not(loom))]
pub(super) fn persist(shared: &Arc<Shared>) {
    let _guard = EndsLog(shared);
    let Some(nvm) = &shared.nvm else { return };
    let arrived = || shared.arrived.load(Ordering::SeqCst) > nvm.persisted.load(Ordering::SeqCst);
    loop {
        // As in `flush`.
        let closing = shared.closing.load(Ordering::SeqCst);
        match shared.persist_arrived() {
            Ok(true) => {}
            Ok(false) if closing => return,
            Ok(false) => nvm.bell.sleep(|| arrived() || shared.closing.load(Ordering::SeqCst)),
            // Another thread's failure.
            Err(_) => return,
        }
    }
}
