//! Threads that look after something now and then, until they are dropped.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

/// One of them.
#[derive(Debug)]
pub(crate) struct Regularly {
    stops: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Regularly {
    /// Works at once, and then with such pauses, as long as `work` says so. If there can be no
    /// thread, nothing is done: what is done so is done for people, or done elsewhere too.
    pub(crate) fn start(name: &str, pause: Duration, mut work: impl FnMut() -> bool + Send + 'static) -> Self {
        let stops = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stops);
        let run = move || {
            let (stops, changed) = &*stopped;
            while work() {
                let stops = stops.lock().unwrap_or_else(PoisonError::into_inner);
                let wait = changed.wait_timeout_while(stops, pause, |stops| !*stops);
                if *wait.unwrap_or_else(PoisonError::into_inner).0 {
                    return;
                }
            }
        };
        Self { stops, thread: std::thread::Builder::new().name(name.to_owned()).spawn(run).ok() }
    }
}

impl Drop for Regularly {
    fn drop(&mut self) {
        *self.stops.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stops.1.notify_all();
        // The last owner of something may be the thread itself.
        let thread = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id());
        if let Some(thread) = thread {
            // It does not panic.
            let _ = thread.join();
        }
    }
}
