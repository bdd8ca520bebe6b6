//! The user's wish that a demo or a benchmark ends early.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Failure;

/// Whether the user has asked for the end.
#[derive(Clone, Debug)]
pub struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Hears of Ctrl-C, SIGTERM and the end of the terminal; the second one ends the process at
    /// once.
    ///
    /// # Errors
    /// When the signals cannot be listened for.
    pub fn listen() -> Result<Self, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))?;
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// Nothing, unless the user has asked for the end.
    ///
    /// # Errors
    /// When the user has.
    pub fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) { Err(Failure::new("interrupted; all nodes are stopped")) } else { Ok(()) }
    }

    /// Sleeps until then.
    ///
    /// # Errors
    /// When the user asks for the end, at once.
    pub fn sleep_until(&self, then: Instant) -> Result<(), Failure> {
        loop {
            self.check()?;
            let left = then.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}
