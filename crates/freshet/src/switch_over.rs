//! `freshet switch-over`: the primary hands its role to a standby.

use std::{
    process::ExitCode,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use freshet_base::{
    ClusterId,
    wait::{self, Patience},
};
use freshet_engine::ask_members;
use freshet_membership::Credentials;
use serde_json::{Value, json};

use crate::{
    Failure,
    cli::ThePrimary,
    client::{Client, ClientError, client_credentials},
    members::nodes,
    messages::plain,
    prints::Prints,
};

/// Options of `freshet switch-over`.
#[derive(Debug, Args)]
pub(crate) struct SwitchOverOptions {
    /// The standby that is to lead: its id, or the address where other nodes reach it (`listen`, or
    /// `advertise`), as the status shows them. Without it the nearest standby in sync leads.
    #[arg(value_name = "NODE")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) primary: ThePrimary,
    #[command(flatten)]
    pub(crate) prints: Prints,
}

/// How long a node may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The steps of a switch-over have bounds, which come to less.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it is looked who leads, where the answer is lost; and how often. The node that has
/// handed its role over may start again in that time, to follow.
const FOLLOWS: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(100);
/// How long another node may take to say whether it leads.
const ASKS: Duration = Duration::from_secs(1);

/// Runs `freshet switch-over`. Its exit status is true: where the answer is lost, it looks who
/// leads.
pub(crate) fn run(options: &SwitchOverOptions) -> Result<ExitCode, Failure> {
    let client = options.primary.connect()?;
    let before = Before::of(&client, options)?;
    match client.switch_over(options.to.clone(), PATIENCE) {
        Ok((node, address, after, at)) => {
            let address = plain(&address);
            let value = json!({ "primary": node.to_string(), "address": address, "after_term": after, "up_to": at });
            options.prints.show(&value, || {
                format!(
                    "{node} at {address} is the primary; all that was acknowledged in term {after}, up to {at}, is \
                     there"
                )
            });
            Ok(ExitCode::SUCCESS)
        }
        Err(lost @ ClientError::Lost { .. }) => match after(&options.primary, before) {
            Some(After::LedBy(primary)) if options.to.as_ref().is_none_or(|to| primary.contains(to)) => {
                let value = json!({ "primary": primary[0], "address": primary[1] });
                options.prints.show(&value, || format!("the role has moved to {}", plain(&primary[1])));
                Ok(ExitCode::SUCCESS)
            }
            Some(After::LedBy([_, address])) => {
                Err(Failure::new(format!("{lost}; another node leads than the one that was to: {}", plain(&address))))
            }
            Some(After::Leads) => Err(Failure::new(format!("{lost}; that node leads again, in a later term"))),
            None => {
                let waited = FOLLOWS.as_secs();
                Err(Failure::new(format!(
                    "{lost}; no node that could be asked has led in a later term within {waited} s, so whether the \
                     role has moved is open: see freshet members, at each of the others"
                )))
            }
        },
        Err(cause) => Err(cause.into()),
    }
}

/// What is known before the role moves.
struct Before {
    term: u64,
    cluster: Option<ClusterId>,
    /// Where the other nodes are reached by nodes.
    others: Vec<String>,
    credentials: Option<Arc<Credentials>>,
}

impl Before {
    /// As the primary says it; without the others, if it does not know them.
    fn of(client: &Client, options: &SwitchOverOptions) -> Result<Self, Failure> {
        let status = parse(&client.status(CONNECT)?);
        let members = client.members(CONNECT).map(|json| parse(&json)).unwrap_or_default();
        let is_other = |it: &&Value| it["node"] != status["node"] && it["role"] != "witness" && it["role"] != "archive";
        let others = nodes(&members).iter().filter(is_other).filter_map(|it| it["address"].as_str());
        let credentials = options.primary.shows.credentials.as_deref();
        Ok(Self {
            term: status["term"].as_u64().unwrap_or_default(),
            cluster: serde_json::from_value(status["cluster"].clone()).ok(),
            others: others.filter(|address| !address.is_empty()).map(str::to_owned).collect(),
            // They were good enough to connect.
            credentials: credentials.and_then(|directory| client_credentials(directory).ok()).map(Arc::new),
        })
    }
}

/// Who leads after the connection was lost.
enum After {
    /// The node with this id and address.
    LedBy([String; 2]),
    /// The node that was asked.
    Leads,
}

/// Who leads in a term later than `before`, as soon as one does: what the node says that was asked,
/// or any other that it knew.
fn after(asked: &ThePrimary, before: Before) -> Option<After> {
    let Before { term, cluster, others, credentials } = before;
    let (found, finds) = mpsc::channel();
    let deadline = Instant::now() + FOLLOWS;
    let watch = |look: Box<dyn Fn() -> Option<After> + Send>| {
        let found = found.clone();
        // It ends with this process, or in time.
        thread::spawn(move || {
            if let Ok(after) = wait::poll(LOOK, Patience::endless().until(deadline), look) {
                let _ = found.send(after);
            }
        });
    };
    let asked = asked.clone();
    watch(Box::new(move || of_asked(&asked, term)));
    for address in others {
        let credentials = credentials.clone();
        watch(Box::new(move || of_other(&address, term, cluster?, credentials.as_deref())));
    }
    finds.recv_timeout(FOLLOWS).ok()
}

/// What the node says that was asked.
fn of_asked(asked: &ThePrimary, before: u64) -> Option<After> {
    let status = parse(&asked.connect().ok()?.status(CONNECT).ok()?);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let link = &status["link"];
    match status["role"].as_str() {
        _ if status["term"].as_u64().is_none_or(|term| term <= before) => None,
        Some("primary") => Some(After::Leads),
        _ => Some(After::LedBy([text(&link["node"])?, text(&link["address"])?])),
    }
}

/// Whether the node leads that others reach at `address`.
fn of_other(address: &str, before: u64, cluster: ClusterId, credentials: Option<&Credentials>) -> Option<After> {
    let members = ask_members(address, cluster, credentials, ASKS)?;
    let leads = members.primary && u64::from(members.term.0) > before;
    leads.then(|| After::LedBy([members.by.to_string(), address.to_owned()]))
}

fn parse(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_default()
}
