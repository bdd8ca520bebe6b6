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

use crate::{Failure, messages};

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
    now: Arc<Now>,
}

/// What the threads that hear of the end have to know.
#[derive(Default)]
struct Now {
    /// The end has come.
    over: AtomicBool,
    /// What is to run is not there yet ([`Ending::while_starting`]).
    starting: AtomicBool,
}

impl Now {
    fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.end_if_starting();
    }

    fn end_if_starting(&self) {
        if self.over.load(Ordering::SeqCst) && self.starting.load(Ordering::SeqCst) {
            tracing::info!("it stops before it has started");
            messages::flush();
            std::process::exit(0);
        }
    }
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
        let now = Arc::<Now>::default();
        let (by_signal, by_input) = (Arc::clone(&now), Arc::clone(&now));
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                let (name, what) = match signal {
                    SIGHUP => ("SIGHUP", Event::Reload),
                    SIGINT => ("SIGINT", Event::End),
                    _ => ("SIGTERM", Event::End),
                };
                tracing::info!(signal = name, "a signal has arrived");
                if what == Event::End {
                    by_signal.end();
                }
                let _ = on_signal.send(what);
            }
        })?;
        if while_stdin {
            thread::Builder::new().name("standard input".to_owned()).spawn(move || {
                let _ = io::stdin().read_to_end(&mut Vec::new());
                by_input.end();
                let _ = sender.send(Event::End);
            })?;
        }
        Ok(Self { events, now })
    }

    /// Starts something, whatever that waits for. The end ends the process at once until it has
    /// started, as a crash would: what has yet to come back has acknowledged nothing that a crash
    /// takes away.
    pub(crate) fn while_starting<T>(&self, start: impl FnOnce() -> T) -> T {
        self.now.starting.store(true, Ordering::SeqCst);
        self.now.end_if_starting();
        let started = start();
        self.now.starting.store(false, Ordering::SeqCst);
        started
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
