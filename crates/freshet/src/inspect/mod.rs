//! `freshet inspect`: looks into a node's files, and changes nothing. A node may be at work on
//! them.

mod checkpoint;
mod events;
mod log;
mod mismatches;
mod options;

use std::{
    io::{self, BufWriter, StdoutLock, Write},
    path::Path,
    process::ExitCode,
};

pub(crate) use self::options::Inspect;
use crate::Failure;

/// Shows what was asked for.
pub(crate) fn run(options: &Inspect) -> Result<ExitCode, Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let shown = match options {
        Inspect::Log(options) => log::show(options, &mut out),
        Inspect::Checkpoint(options) => checkpoint::show(options, &mut out),
        Inspect::Mismatches(options) => mismatches::show(options, &mut out),
        Inspect::Events(options) => events::show(options, &mut out),
    };
    match shown.and_then(|sound| Ok(out.flush().map(|()| sound)?)) {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        // A reader that has gone, like `head`, is not the fault of what is shown.
        Err(Trouble::Output(cause)) if cause.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(Trouble::Output(cause)) => Err(cause.into()),
        Err(Trouble::Files(failure)) => {
            out.flush()?;
            Err(failure)
        }
    }
}

type Output = BufWriter<StdoutLock<'static>>;

enum Trouble {
    /// The output does not take any more.
    Output(io::Error),
    /// What is to be shown cannot be read.
    Files(Failure),
}

impl From<io::Error> for Trouble {
    fn from(cause: io::Error) -> Self {
        Self::Output(cause)
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Files(failure)
    }
}

fn must_exist(path: &Path) -> Result<(), Failure> {
    match path.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::new(format!("{}: there is no such file or directory", path.display()))),
        Err(cause) => Err(Failure::new(format!("{}: {cause}", path.display()))),
    }
}
