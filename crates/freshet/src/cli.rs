//! What a user may say.

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::{Failure, bench, config::Flags};

/// A main-memory transactional database: what one node commits is durable on the others before the client hears of
/// it, and can be read there at once.
///
/// `freshet demo` shows all of it on this machine in less than a minute.
#[derive(Debug, Parser)]
#[command(name = "freshet", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node: a primary, or with --join a standby.
    ///
    /// Without any option: a primary with its log in ./freshet-data that only this machine can reach. Every key can be
    /// given in a file (--config), in the environment or as a flag; the later beats the former. When the node can
    /// serve it prints one line, `ready` and a JSON object with its addresses. SIGTERM and SIGINT end it cleanly.
    Serve(Box<Serve>),
    /// Measure the engine: tpcc or ycsb.
    ///
    /// The primary runs within this process, standbys beside it in processes of their own.
    #[command(subcommand)]
    Bench(bench::Bench),
}

/// Options of `freshet serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) flags: Flags,
    /// End cleanly when standard input ends: for processes that start nodes.
    #[arg(long, hide = true)]
    pub(crate) while_stdin: bool,
}

impl Cli {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Serve(_) => Err(Failure::new("not yet")),
            Command::Bench(options) => bench::run(options),
        }
    }
}
