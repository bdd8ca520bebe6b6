//! Rehearses a mirror now and then, at low cost: [`Pictures::rehearse`].

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::Fid;
use freshet_replication::mirror::{Pictures, Rehearsal};
use freshet_storage::Catalog;

/// It rests this many times as long as it reads: it takes about two hundredths of a processor.
const RESTS: u32 = 49;
/// No rest is longer.
const LONGEST: Duration = Duration::from_secs(1);
/// One that was not read to its end is tried again after this time.
const AGAIN: Duration = Duration::from_secs(60);

/// Whether it is to end.
#[derive(Default)]
struct Ends(Mutex<bool>, Condvar);

impl Ends {
    /// Blocks for this time; says whether it is to end.
    fn wait(&self, pause: Duration) -> bool {
        let ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.1.wait_timeout_while(ends, pause, |ends| !*ends);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A thread that rehearses a mirror.
pub(super) struct Rehearsing {
    ends: Arc<Ends>,
    thread: Option<JoinHandle<()>>,
}

impl Rehearsing {
    /// Each time that this has passed; never, if it is zero.
    ///
    /// # Errors
    /// When the system has no thread.
    pub fn start(pictures: Pictures, every: Duration) -> std::io::Result<Self> {
        let ends = Arc::<Ends>::default();
        let own = Arc::clone(&ends);
        let run = move || {
            let mut pause = every;
            while !own.wait(pause) {
                pause = match rehearse(&pictures, &own) {
                    Rehearsal::Open => every.min(AGAIN),
                    Rehearsal::Sound(records) => {
                        tracing::info!(records, "this mirror was rehearsed: all that it holds is sound");
                        every
                    }
                    Rehearsal::Damaged(_) => every,
                };
            }
        };
        let start = || thread::Builder::new().name("rehearse".into()).spawn(run);
        let thread = (!every.is_zero()).then(start).transpose()?;
        Ok(Self { ends, thread })
    }
}

impl Drop for Rehearsing {
    fn drop(&mut self) {
        *self.ends.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ends.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported already.
            let _ = thread.join();
        }
    }
}

fn rehearse(pictures: &Pictures, ends: &Ends) -> Rehearsal {
    let mut read_since = Instant::now();
    pictures.rehearse(
        |fid, rid, row| match fid == Fid::CATALOG && Catalog::describes_table(row) {
            true => Catalog::definition_in(row)
                .map(drop)
                .map_err(|cause| format!("record {} of the catalog in a mirror's memory: {cause}", rid.0)),
            false => Ok(()),
        },
        || {
            let continues = !ends.wait((read_since.elapsed() * RESTS).min(LONGEST));
            read_since = Instant::now();
            continues
        },
    )
}
