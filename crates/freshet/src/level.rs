//! `freshet level`: what a commit promises, and how an operator changes it.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use freshet_base::Safety;

use crate::{Failure, cli::Shows};

/// How long a primary may take to accept a connection, and to have the level on record.
const CONNECT: Duration = Duration::from_secs(5);
const RECORDED: Duration = Duration::from_secs(20);

/// Options of `freshet level`.
#[derive(Debug, Args)]
pub(crate) struct LevelOptions {
    /// The level from now on: 1-safe, 2-safe, majority, very-safe, or quorum:K.
    #[arg(value_name = "LEVEL")]
    level: Safety,
    /// The primary's control port (its `address`): host:port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    address: String,
    #[command(flatten)]
    shows: Shows,
}

/// Runs `freshet level`.
pub(crate) fn run(options: &LevelOptions) -> Result<ExitCode, Failure> {
    let client = options.shows.connect(&options.address, CONNECT)?;
    let before = client.change_level(options.level, RECORDED)?;
    println!("a commit keeps to {} from now on; before it kept to {before}", options.level);
    Ok(ExitCode::SUCCESS)
}
