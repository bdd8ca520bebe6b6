//! `freshet restart`: a node starts again, or all nodes of a cluster do, one after the other.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use freshet_base::wait::{self, Patience};
use serde_json::{Value, json};

use crate::{
    Failure,
    cli::{Asked, ThePrimary},
    members::{health, nodes, others},
    messages::plain,
    prints::Prints,
    status::{Health, text, time},
    switch_over::{self, SwitchOverOptions},
};

/// How long a node may take to accept a connection, and to take an order or say which nodes there
/// are.
const CONNECT: Duration = Duration::from_secs(5);
const ORDER: Duration = Duration::from_secs(15);
/// How often the role is offered.
const ATTEMPTS: u32 = 10;
/// How long an in-sync set may take to be on record before a rolling restart begins.
const SETTLES: Duration = Duration::from_secs(5);
/// How often it is looked whether a node is back.
const LOOK: Duration = Duration::from_millis(200);

/// Options of `freshet restart`.
#[derive(Debug, Args)]
pub(crate) struct RestartOptions {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// Another node that is to start again, by the word of that one: its id, or the address where
    /// other nodes reach it, as `freshet members` shows them.
    #[arg(long, value_name = "NODE", conflicts_with = "rolling")]
    pub(crate) node: Option<String>,
    /// All nodes, one after the other.
    #[arg(long)]
    pub(crate) rolling: bool,
    /// How long a node may take until it is back and all are in sync, in seconds.
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    patience: u64,
    #[command(flatten)]
    prints: Prints,
}

/// Runs `freshet restart`.
pub(crate) fn run(options: &RestartOptions) -> Result<ExitCode, Failure> {
    if options.rolling {
        return rolling(options);
    }
    let client = options.asked.connect(CONNECT)?;
    let node = client.restart(options.node.clone(), ORDER)?;
    options.prints.show(&json!({ "node": node.to_string() }), || format!("{node} starts again"));
    Ok(ExitCode::SUCCESS)
}

/// What the primary says of its cluster.
fn table(options: &RestartOptions) -> Result<Value, Failure> {
    let json = options.asked.connect(CONNECT)?.members(ORDER)?;
    Ok(serde_json::from_str(&json).unwrap_or_default())
}

/// Each node but the primary, then a standby takes the role, and the node that had it starts again.
fn rolling(options: &RestartOptions) -> Result<ExitCode, Failure> {
    // What the last change of the members has left to be recorded is so in a moment.
    let settled = || table(options).ok().filter(|members| members["set_pending"].is_null());
    let patience = Patience::endless().until(Instant::now() + SETTLES);
    let members = wait::poll(LOOK, patience, settled).or_else(|_| table(options))?;
    let is_primary = |node: &&Value| node["role"] == "primary";
    let Some(own) = nodes(&members).iter().find(is_primary).filter(|_| members["primary"] == true) else {
        return Err(Failure::new("nodes start again one after the other by the word of the primary: ask that one"));
    };
    if health(&members) != Health::Well {
        return Err(Failure::new(
            "not all nodes are here, in sync and within reach of each other, and so none starts again now: see freshet \
             members",
        ));
    }
    let own = text(&own["node"]);
    let others = others(&members);
    for [node, role, address] in &others {
        options.prints.note(&format!("{role} {node} at {} starts again", plain(address)));
        let ordered = Instant::now();
        options.asked.connect(CONNECT)?.restart(Some(node.clone()), ORDER)?;
        wait_until_back(options, node, ordered)?;
    }
    if others.iter().all(|[_, role, _]| role == "witness") {
        options.prints.note(&format!("primary {own} starts again: there is no standby to take the role"));
    } else {
        hand_over(options)?;
        options.prints.note(&format!("{own}, which was the primary, starts again"));
    }
    // It may be starting already, to follow the other, as what it was.
    let order = || {
        let client = options.asked.connect(CONNECT).ok()?;
        let status: Value = serde_json::from_str(&client.status(ORDER).ok()?).ok()?;
        let is_ready = status["standing"]["standing"] != "fenced" && status["role"] != "starting";
        is_ready.then(|| client.restart(None, ORDER).ok()).flatten()
    };
    wait_for(options, &own, order)?;
    wait_until_back(options, &own, Instant::now())?;
    options.prints.show(&json!({ "restarted": "all" }), || "all nodes have started again".to_owned());
    Ok(ExitCode::SUCCESS)
}

/// A standby on a busy machine may not take the role in time: then it stays where it is.
fn hand_over(options: &RestartOptions) -> Result<(), Failure> {
    let (shows, address) = (options.asked.shows.clone(), options.asked.address()?.to_owned());
    let quiet = if options.prints.json { Prints::quiet() } else { options.prints };
    let to_nearest = SwitchOverOptions { to: None, primary: ThePrimary { address, shows }, prints: quiet };
    for _ in 1..ATTEMPTS {
        match switch_over::run(&to_nearest) {
            Ok(_) => return Ok(()),
            Err(cause) => options.prints.note(&format!("{cause}; it is tried again")),
        }
        wait_until_well(options)?;
    }
    switch_over::run(&to_nearest).map(drop)
}

/// Blocks until all nodes are here and in sync.
fn wait_until_well(options: &RestartOptions) -> Result<(), Failure> {
    let look = || table(options).ok().filter(|members| health(members) == Health::Well).map(drop);
    wait_for(options, "a standby", look)
}

/// Blocks until a node is connected again, and all are as they should be.
fn wait_until_back(options: &RestartOptions, node: &str, ordered: Instant) -> Result<(), Failure> {
    let is_new = |it: &Value| {
        let lasts = it["connected_or_away_for"].is_object().then(|| time(it, "connected_or_away_for"));
        it["connected"] == true && lasts.is_some_and(|lasts| lasts < ordered.elapsed())
    };
    let look = || {
        let members = table(options).ok().filter(|members| health(members) == Health::Well)?;
        nodes(&members).iter().find(|it| it["node"] == node).filter(|it| is_new(it)).map(|_| ())
    };
    wait_for(options, node, look)
}

/// Blocks until `look` finds something; `node` is said not to have come back when it does not.
fn wait_for<T>(options: &RestartOptions, node: &str, look: impl FnMut() -> Option<T>) -> Result<T, Failure> {
    let patience = Patience::endless().until(Instant::now() + Duration::from_secs(options.patience));
    let late = |_| {
        Failure::new(format!(
            "{node} has not come back, with all others in sync, within {} s (--patience): the rest has not started \
             again; see freshet members, and the log of that node",
            options.patience
        ))
    };
    wait::poll(LOOK, patience, look).map_err(late)
}
