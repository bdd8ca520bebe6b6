//! `freshet inspect events`: what happened to a node's state machines, and whether they decide so
//! again.

use std::{io::Write, time::UNIX_EPOCH};

use freshet_engine::{
    recording::{Record, Replay, What},
    tape::{self, Reader},
};

use super::{Output, Trouble, must_exist};
use crate::{Failure, inspect::options::InspectEvents, messages::plain, units};

/// Returns whether all could be read, and what was replayed was decided as before.
pub(super) fn show(options: &InspectEvents, out: &mut Output) -> Result<bool, Trouble> {
    let path = &options.file;
    let files = tape::read(path).map_err(|cause| Failure::new(cause.to_string()))?;
    if files.is_empty() {
        must_exist(path)?;
    }
    let mut shown = Shown { quiet: options.quiet, ..Shown::default() };
    for file in files {
        shown.file(file, out)?;
    }
    let Shown { replay, events, replayed, differs, damaged, .. } = shown;
    for (machine, event) in replay.stopped() {
        writeln!(out, "STOPS: machine {machine}, at its last event, {event:?}")?;
    }
    writeln!(
        out,
        "{} events; {} were replayed, {} of these are decided otherwise now",
        units::grouped(events),
        units::grouped(replayed),
        units::grouped(differs)
    )?;
    Ok(differs == 0 && !damaged)
}

#[derive(Default)]
struct Shown {
    quiet: bool,
    replay: Replay,
    events: u64,
    replayed: u64,
    differs: u64,
    damaged: bool,
}

impl Shown {
    /// What is behind damage is left out.
    fn file(&mut self, file: Reader, out: &mut Output) -> Result<(), Trouble> {
        for read in file {
            let (since, record) = match read {
                Ok(read) => read,
                Err(cause) => {
                    self.damaged = true;
                    writeln!(out, "DAMAGED: {cause}")?;
                    break;
                }
            };
            if !self.quiet {
                let time = humantime::format_rfc3339_micros(UNIX_EPOCH + since);
                let machine = record.machine;
                match &record.what {
                    What::Begins { version } => writeln!(out, "{time} begins: {}", plain(version))?,
                    What::State(state) => writeln!(out, "{time} {machine} is {state:?}")?,
                    What::Terms(terms) => writeln!(out, "{time} remembers {terms:?}")?,
                    What::Event(event) => writeln!(out, "{time} {machine} {event:?}")?,
                    What::Outcome(outcome) => writeln!(out, "{time} {machine} -> {}", plain(outcome))?,
                }
            }
            self.step(&record, out)?;
        }
        Ok(())
    }

    fn step(&mut self, record: &Record, out: &mut Output) -> Result<(), Trouble> {
        let is_event = matches!(record.what, What::Event(_));
        self.events += u64::from(is_event);
        match self.replay.step(record) {
            Ok(replayed) => self.replayed += u64::from(replayed && is_event),
            Err(why) => {
                self.differs += 1;
                writeln!(out, "DIFFERS: {}", plain(&why.to_string()))?;
            }
        }
        Ok(())
    }
}
