//! `freshet level`: what a commit promises, and how an operator changes it.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use freshet_base::Safety;
use serde_json::json;

use crate::{Failure, cli::ThePrimary, prints::Prints};

/// How long a primary may take to have the level on record.
const RECORDED: Duration = Duration::from_secs(20);

/// Options of `freshet level`.
#[derive(Debug, Args)]
pub(crate) struct LevelOptions {
    /// The level from now on: 1-safe, 2-safe, majority, very-safe, or quorum:K.
    #[arg(value_name = "LEVEL")]
    level: Safety,
    #[command(flatten)]
    primary: ThePrimary,
    #[command(flatten)]
    prints: Prints,
}

/// Runs `freshet level`.
pub(crate) fn run(options: &LevelOptions) -> Result<ExitCode, Failure> {
    let before = options.primary.connect()?.change_level(options.level, RECORDED)?;
    let level = options.level;
    let value = json!({ "level": level.to_string(), "before": before.to_string() });
    options.prints.show(&value, || format!("a commit keeps to {level} from now on; before it kept to {before}"));
    Ok(ExitCode::SUCCESS)
}
