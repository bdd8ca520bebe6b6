//! Signals to a process that runs until it is told to end: to end, or to read its configuration
//! again.

use std::{
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::Failure;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The process is to end.
    End,
    /// It is to read its configuration again (SIGHUP).
    Reload,
    /// Nothing in the time that was given.
    Nothing,
}

/// Receives the end: SIGTERM, SIGINT, or the end of standard input if that counts. SIGHUP does not
/// end the process.
pub(crate) struct Ending {
    events: mpsc::Receiver<Event>,
    /// Whether the end has come, for other threads.
    over: Arc<AtomicBool>,
}

impl Ending {
    /// Listens from now on. To be called before there are threads that a signal could hit.
    ///
    /// # Errors
    /// When signals cannot be received, or a thread cannot be started.
    pub(crate) fn listen(while_stdin: bool) -> Result<Self, Failure> {
        let (sender, events) = mpsc::channel();
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let on_signal = sender.clone();
        let over = Arc::new(AtomicBool::new(false));
        let (by_signal, by_input) = (Arc::clone(&over), Arc::clone(&over));
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                let (name, what) = match signal {
                    SIGHUP => ("SIGHUP", Event::Reload),
                    SIGINT => ("SIGINT", Event::End),
                    _ => ("SIGTERM", Event::End),
                };
                tracing::info!(signal = name, "a signal has arrived");
                by_signal.fetch_or(what == Event::End, Ordering::SeqCst);
                let _ = on_signal.send(what);
            }
        })?;
        if while_stdin {
            thread::Builder::new().name("standard input".to_owned()).spawn(move || {
                let _ = io::stdin().read_to_end(&mut Vec::new());
                by_input.store(true, Ordering::SeqCst);
                let _ = sender.send(Event::End);
            })?;
        }
        Ok(Self { events, over })
    }

    /// Whether the end has come, for any thread.
    pub(crate) fn over(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.over)
    }

    /// Blocks until a signal comes, or until the time has passed.
    pub(crate) fn wait_for_event(&self, time: Duration) -> Event {
        match self.events.recv_timeout(time) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => Event::Nothing,
            Err(RecvTimeoutError::Disconnected) => Event::End,
        }
    }

    /// Blocks until the end, or until the time has passed; returns whether the end has come. For
    /// processes without a configuration to read again.
    pub(crate) fn wait_for(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            match self.wait_for_event(until.saturating_duration_since(Instant::now())) {
                Event::End => return true,
                Event::Nothing => return false,
                Event::Reload => tracing::info!("there is nothing to reload at the moment"),
            }
        }
    }
}
