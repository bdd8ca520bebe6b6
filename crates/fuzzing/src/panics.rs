//! Panics of this process, in whichever thread, caught or not.

use std::{
    panic,
    sync::{
        Once,
        atomic::{AtomicUsize, Ordering},
    },
};

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// How many there have been since this was first asked.
pub(crate) fn count() -> usize {
    static COUNTING: Once = Once::new();
    COUNTING.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            COUNT.fetch_add(1, Ordering::SeqCst);
            report(panic);
        }));
    });
    COUNT.load(Ordering::SeqCst)
}
