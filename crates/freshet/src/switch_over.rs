//! `freshet switch-over`: the primary hands its role to a standby.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use freshet_base::wait::{self, Patience};
use serde_json::Value;

use crate::{Failure, cli::ThePrimary, client::ClientError, messages::plain};

/// Options of `freshet switch-over`.
#[derive(Debug, Args)]
pub(crate) struct SwitchOverOptions {
    /// The standby that is to lead: its id, or the address where other nodes reach it (`listen`, or
    /// `advertise`), as the status shows them. Without it the nearest standby in sync leads.
    #[arg(value_name = "NODE")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) primary: ThePrimary,
}

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
    let client = options.primary.connect()?;
    let before = term(&client.status(CONNECT)?);
    match client.switch_over(options.to.clone(), PATIENCE) {
        Ok((node, address, after, at)) => {
            let address = plain(&address);
            println!(
                "{node} at {address} is the primary; all that was acknowledged in term {after}, up to {at}, is there"
            );
            Ok(ExitCode::SUCCESS)
        }
        Err(lost @ ClientError::Lost { .. }) => match after(options, before) {
            Some(After::Follows(primary)) if options.to.as_ref().is_none_or(|to| primary.contains(to)) => {
                println!("the role has moved to {}", plain(&primary[1]));
                Ok(ExitCode::SUCCESS)
            }
            Some(After::Follows([_, address])) => {
                Err(Failure::new(format!("{lost}; another node leads than the one that was to: {address}")))
            }
            Some(After::Leads) => Err(Failure::new(format!("{lost}; that node leads again, in a later term"))),
            None => Err(Failure::new(format!("{lost}; whether the role has moved is open: see freshet status"))),
        },
        Err(cause) => Err(cause.into()),
    }
}

/// What the node is after its connection was lost.
enum After {
    /// It follows the node with this id and address.
    Follows([String; 2]),
    Leads,
}

/// What the node is in a term later than `before`, as soon as it is that.
fn after(options: &SwitchOverOptions, before: u64) -> Option<After> {
    let patience = Patience::endless().until(Instant::now() + FOLLOWS);
    let look = || {
        let status = options.primary.connect().ok()?.status(CONNECT).ok()?;
        let status = parse(&status);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let link = &status["link"];
        match status["role"].as_str() {
            _ if status["term"].as_u64().is_none_or(|term| term <= before) => None,
            Some("primary") => Some(After::Leads),
            _ => Some(After::Follows([text(&link["node"])?, text(&link["address"])?])),
        }
    };
    wait::poll(LOOK, patience, look).ok()
}

fn term(status: &str) -> u64 {
    parse(status)["term"].as_u64().unwrap_or_default()
}

fn parse(status: &str) -> Value {
    serde_json::from_str(status).unwrap_or_default()
}
