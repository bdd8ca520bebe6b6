//! What ends a process that runs until it is told to end.

use std::{
    io::{self, Read},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::Failure;

/// Hears of the end: SIGTERM, SIGINT, or the end of standard input if that counts.
pub(crate) struct Ending(mpsc::Receiver<()>);

impl Ending {
    /// Listens from now on. To be called before there are threads that a signal could hit.
    ///
    /// # Errors
    /// When signals cannot be heard, or a thread cannot be started.
    pub(crate) fn listen(while_stdin: bool) -> Result<Self, Failure> {
        let (end, ended) = mpsc::channel();
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let on_signal = end.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for _ in signals.forever() {
                let _ = on_signal.send(());
            }
        })?;
        if while_stdin {
            thread::Builder::new().name("standard input".to_owned()).spawn(move || {
                let _ = io::stdin().read_to_end(&mut Vec::new());
                let _ = end.send(());
            })?;
        }
        Ok(Self(ended))
    }

    /// Blocks until the end, or for so long; returns whether it has come.
    pub(crate) fn wait_for(&self, time: Duration) -> bool {
        !matches!(self.0.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }
}
