//! `freshet completion` and `freshet man`: what shells and `man` know of the command line, made of
//! the same declarations as `--help`.

use std::{fs, io, path::PathBuf, process::ExitCode};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::{Failure, cli::Cli};

/// Options of `freshet completion`.
#[derive(Debug, Args)]
pub(crate) struct CompletionOptions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Options of `freshet man`.
#[derive(Debug, Args)]
pub(crate) struct ManOptions {
    /// The directory, as /usr/local/share/man/man1. It is made if it does not exist.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints the script for a shell.
pub(crate) fn completion(options: &CompletionOptions) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "freshet", &mut script);
    match io::Write::write_all(&mut io::stdout(), &script) {
        // A reader that has gone, like `head`, is no failure.
        Err(cause) if cause.kind() != io::ErrorKind::BrokenPipe => Err(cause.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Writes a page for each command.
pub(crate) fn man(options: &ManOptions) -> Result<ExitCode, Failure> {
    let failed = |cause: io::Error| {
        Failure::new(format!("cannot write manual pages into {}: {cause}", options.directory.display()))
    };
    fs::create_dir_all(&options.directory).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &options.directory).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
