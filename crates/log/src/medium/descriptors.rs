//! Descriptors that are kept for the log: connections that take all the process may have do not
//! keep a segment from being made.

use std::{
    fs::File,
    io,
    sync::{Mutex, PoisonError},
};

use crate::segments::is_out_of_descriptors;

/// How many are kept. A segment that is made takes one for good and one more for a moment, in each
/// of 8 streams at most.
const KEPT: usize = 16;

#[derive(Default)]
struct Reserve {
    /// How many there should be.
    wanted: usize,
    files: Vec<File>,
}

static RESERVE: Mutex<Reserve> = Mutex::new(Reserve { wanted: 0, files: Vec::new() });

impl Reserve {
    fn fill(&mut self) -> io::Result<()> {
        while self.files.len() < self.wanted {
            self.files.push(File::open("/dev/null")?);
        }
        Ok(())
    }
}

/// Opens as many descriptors to nothing as are kept for the log. To be called once, when a node
/// starts; without it nothing is kept.
///
/// # Errors
/// When that many cannot be opened now; they are opened when they can be.
pub fn keep_descriptors() -> io::Result<()> {
    let mut reserve = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
    reserve.wanted = KEPT;
    reserve.fill()
}

/// Does what needs descriptors; when none is left, once more with those that are kept. Not to be
/// called from within `open`.
pub(crate) fn with_descriptors<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let done = match open() {
        Err(error) if is_out_of_descriptors(&error) => {
            // One at a time: the thread that gives them up is to find them.
            let mut reserve = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
            reserve.files.clear();
            let done = open();
            // As many as are left; the rest at the next call.
            let _ = reserve.fill();
            return done;
        }
        done => done,
    };
    let mut reserve = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = reserve.fill();
    done
}
