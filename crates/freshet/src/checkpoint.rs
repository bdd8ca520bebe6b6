//! `freshet checkpoint`: has a node write a checkpoint.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use crate::{Failure, cli::CheckpointOptions, units};

/// How long a node may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Asks for a checkpoint and waits for it.
pub(crate) fn run(options: &CheckpointOptions) -> Result<ExitCode, Failure> {
    let client = options.asked.connect(CONNECT)?;
    let begun = Instant::now();
    let (start, end, bytes, rows) = client.checkpoint(options.consistent, Duration::from_secs(options.patience))?;
    println!(
        "checkpoint from {start} to {end} installed in {:.1} s: {rows} rows, {}",
        begun.elapsed().as_secs_f64(),
        units::bytes(bytes)
    );
    Ok(ExitCode::SUCCESS)
}
