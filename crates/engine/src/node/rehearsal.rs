//! Rehearses a mirror now and then, at low cost: [`FuzzySnapshots::rehearse`].

use std::{
    io,
    time::{Duration, Instant},
};

use freshet_base::{Fid, Regularly, Stops};
use freshet_replication::mirror::{FuzzySnapshots, Rehearsal};
use freshet_storage::Catalog;

/// It rests this many times as long as it reads: it takes about two hundredths of a processor.
const RESTS: u32 = 49;
/// No rest is longer.
const LONGEST: Duration = Duration::from_secs(1);
/// One that was not read to its end is tried again after this time.
const AGAIN: Duration = Duration::from_secs(60);

/// Has a thread rehearse a mirror each time that this has passed; never, if it is zero.
///
/// # Errors
/// When the system has no thread.
pub(super) fn start(fuzzy_snapshots: FuzzySnapshots, every: Duration) -> io::Result<Option<Regularly>> {
    let work = move |stops: &Stops| {
        Some(match rehearse(&fuzzy_snapshots, stops) {
            Rehearsal::Open => every.min(AGAIN),
            Rehearsal::Sound(records) => {
                tracing::info!(records, "this mirror was rehearsed: all that it holds is sound");
                every
            }
            Rehearsal::Damaged(_) => every,
        })
    };
    (!every.is_zero()).then(|| Regularly::start("rehearse", every, work)).transpose()
}

fn rehearse(fuzzy_snapshots: &FuzzySnapshots, stops: &Stops) -> Rehearsal {
    let mut read_since = Instant::now();
    fuzzy_snapshots.rehearse(
        |fid, rid, row| match fid == Fid::CATALOG && Catalog::describes_table(row) {
            true => Catalog::definition_in(row)
                .map(drop)
                .map_err(|cause| format!("record {} of the catalog in a mirror's memory: {cause}", rid.0)),
            false => Ok(()),
        },
        || {
            let continues = !stops.wait((read_since.elapsed() * RESTS).min(LONGEST));
            read_since = Instant::now();
            continues
        },
    )
}
