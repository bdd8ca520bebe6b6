//! Threads that look after something now and then, until they are dropped.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Builder, JoinHandle},
    time::{Duration, Instant},
};

use crate::wait::{Patience, WaitList};

/// Whether such a thread is to end.
#[derive(Debug, Default)]
pub struct Stops(AtomicBool, WaitList);

impl Stops {
    /// Blocks for this time, or until the thread is to end; says whether it is.
    pub fn wait(&self, pause: Duration) -> bool {
        let patience = Patience::endless().until(Instant::now().checked_add(pause));
        self.1.until(patience, || self.0.load(Ordering::SeqCst).then_some(())).is_ok()
    }
}

/// One of them. Dropping it ends the thread, and blocks until that has ended.
#[derive(Debug)]
pub struct Regularly {
    stops: Arc<Stops>,
    thread: Option<JoinHandle<()>>,
}

impl Regularly {
    /// Works after this pause, and again after each pause that `work` asks for, until it asks for
    /// none. A long `work` can look whether it is to end.
    ///
    /// # Errors
    /// When the system has no thread.
    pub fn start(
        name: &str,
        pause: Duration,
        mut work: impl FnMut(&Stops) -> Option<Duration> + Send + 'static,
    ) -> io::Result<Self> {
        let stops = Arc::<Stops>::default();
        let own = Arc::clone(&stops);
        let run = move || {
            let mut next = Some(pause);
            while next.is_some_and(|pause| !own.wait(pause)) {
                next = work(&own);
            }
        };
        Ok(Self { stops, thread: Some(Builder::new().name(name.to_owned()).spawn(run)?) })
    }
}

impl Drop for Regularly {
    fn drop(&mut self) {
        self.stops.0.store(true, Ordering::SeqCst);
        self.stops.1.wake_all();
        // The last owner of something may be the thread itself.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id()) {
            // A panic there was reported already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn it_works_until_it_wants_no_more_or_is_dropped() {
        let (worked, works) = channel();
        let mut left = 3;
        let three = Regularly::start("three", Duration::ZERO, move |_| {
            let _ = worked.send(left);
            left -= 1;
            (left > 0).then_some(Duration::ZERO)
        });
        assert_eq!(works.iter().collect::<Vec<_>>(), [3, 2, 1]);
        drop(three.unwrap());
        let (began, begins) = channel();
        let waits = Regularly::start("waits", Duration::ZERO, move |stops| {
            let _ = began.send(());
            assert!(stops.wait(Duration::from_secs(3600)));
            Some(Duration::from_secs(3600))
        });
        begins.recv().unwrap();
        drop(waits.unwrap());
        drop(Regularly::start("never", Duration::from_secs(3600), |_| unreachable!()).unwrap());
    }
}
