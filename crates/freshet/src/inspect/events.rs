//! `freshet inspect events`: what happened to a node's state machines, and whether they decide so
//! again.

use std::{io::Write, path::Path, time::UNIX_EPOCH};

use freshet_engine::{
    recording::{Record, Replay, What},
    tape,
};

use super::{Output, Trouble, must_exist};
use crate::{Failure, cli::InspectEvents, units};

/// Returns whether all that was replayed was decided as before.
pub(super) fn show(options: &InspectEvents, out: &mut Output) -> Result<bool, Trouble> {
    let path = &options.file;
    must_exist(path)?;
    let before = tape::before(path);
    let mut shown = Shown { quiet: options.quiet, ..Shown::default() };
    for path in [Some(&before).filter(|before| before.exists()), Some(path)].into_iter().flatten() {
        shown.file(path, out)?;
    }
    let Shown { events, replayed, differs, .. } = shown;
    writeln!(
        out,
        "{} events; {} were replayed, {} of these are decided otherwise now",
        units::grouped(events),
        units::grouped(replayed),
        units::grouped(differs)
    )?;
    Ok(differs == 0)
}

#[derive(Default)]
struct Shown {
    quiet: bool,
    replay: Replay,
    events: u64,
    replayed: u64,
    differs: u64,
}

impl Shown {
    fn file(&mut self, path: &Path, out: &mut Output) -> Result<(), Trouble> {
        let read = tape::read(path);
        let records = read.map_err(|cause| Failure::new(format!("{}: {cause}", path.display())))?;
        for (since, record) in &records {
            if !self.quiet {
                let time = humantime::format_rfc3339_micros(UNIX_EPOCH + *since);
                match &record.what {
                    What::State(state) => writeln!(out, "{time} {} is {state:?}", record.machine)?,
                    What::Terms(terms) => writeln!(out, "{time} remembers {terms:?}")?,
                    What::Event { event, outcome } => {
                        writeln!(out, "{time} {} {event:?} -> {outcome}", record.machine)?;
                    }
                }
            }
            self.step(record, out)?;
        }
        Ok(())
    }

    fn step(&mut self, record: &Record, out: &mut Output) -> Result<(), Trouble> {
        let is_event = matches!(record.what, What::Event { .. });
        self.events += u64::from(is_event);
        match self.replay.step(record) {
            Ok(replayed) => self.replayed += u64::from(replayed && is_event),
            Err(why) => {
                self.replayed += 1;
                self.differs += 1;
                writeln!(out, "DIFFERS: {why}")?;
            }
        }
        Ok(())
    }
}
