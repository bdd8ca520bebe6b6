//! `freshet promote`: makes a standby the primary.

use std::{process::ExitCode, time::Duration};

use crate::{Failure, cli::PromoteOptions};

/// How long a node may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Promotes a node.
pub(crate) fn run(options: &PromoteOptions) -> Result<ExitCode, Failure> {
    let client = options.shows.connect(&options.address, CONNECT)?;
    let (term, at) = client.promote(options.force, Duration::from_secs(options.patience))?;
    println!("{} is the primary of term {term}, which begins at {at}", client.address());
    Ok(ExitCode::SUCCESS)
}
