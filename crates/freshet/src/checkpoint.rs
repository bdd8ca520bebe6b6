//! `freshet checkpoint`: has a node write a checkpoint.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{Failure, cli::CheckpointOptions, units};

/// How long a node may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Asks for a checkpoint and waits for it.
pub(crate) fn run(options: &CheckpointOptions) -> Result<ExitCode, Failure> {
    let client = options.asked.connect(CONNECT)?;
    let begun = Instant::now();
    let (start, end, bytes, rows) = client.checkpoint(options.consistent, Duration::from_secs(options.patience))?;
    let (seconds, size) = (begun.elapsed().as_secs_f64(), units::bytes(bytes));
    let value = json!({ "start": start, "end": end, "bytes": bytes, "rows": rows, "seconds": seconds });
    let text = || format!("checkpoint from {start} to {end} installed in {seconds:.1} s: {rows} rows, {size}");
    options.prints.show(&value, text);
    Ok(ExitCode::SUCCESS)
}
