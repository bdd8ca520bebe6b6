//! `freshet switch-over`: the primary hands its role to a standby.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use freshet_base::wait::{self, Patience};
use serde_json::Value;

use crate::{Failure, cli::SwitchOverOptions, client::ClientError};

/// How long a node may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The steps of a switch-over have bounds, which come to less.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the node that has handed its role over may take to follow, where its answer was lost
/// when it started again; and how often it is looked.
const FOLLOWS: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(100);

/// Runs `freshet switch-over`. Its exit status is true: where the answer is lost, it looks who
/// leads.
pub(crate) fn run(options: &SwitchOverOptions) -> Result<ExitCode, Failure> {
    let client = options.shows.connect(&options.address, CONNECT)?;
    let before = term(&client.status(CONNECT)?);
    match client.switch_over(options.to.clone(), PATIENCE) {
        Ok((node, address, after, at)) => {
            println!(
                "{node} at {address} is the primary; all that was acknowledged in term {after}, up to {at}, is there"
            );
            Ok(ExitCode::SUCCESS)
        }
        Err(lost @ ClientError::Lost { .. }) => match follows(options, before) {
            Some(primary) => {
                println!("the role has moved to {primary}");
                Ok(ExitCode::SUCCESS)
            }
            None => Err(Failure::new(format!("{lost}; whether the role has moved is open: see freshet status"))),
        },
        Err(cause) => Err(cause.into()),
    }
}

/// Whom the node follows in a term later than `before`, as soon as it does.
fn follows(options: &SwitchOverOptions, before: u64) -> Option<String> {
    let patience = Patience::endless().until(Instant::now() + FOLLOWS);
    let follows = || {
        let status = options.shows.connect(&options.address, CONNECT).ok()?.status(CONNECT).ok()?;
        followed(&status).filter(|_| term(&status) > before)
    };
    wait::poll(LOOK, patience, follows).ok()
}

fn term(status: &str) -> u64 {
    parse(status)["term"].as_u64().unwrap_or_default()
}

fn followed(status: &str) -> Option<String> {
    parse(status)["link"]["address"].as_str().map(str::to_owned)
}

fn parse(status: &str) -> Value {
    serde_json::from_str(status).unwrap_or_default()
}
