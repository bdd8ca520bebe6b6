//! `freshet upgrade`: up to which versions the cluster writes its formats, and how an operator
//! finishes an upgrade.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use freshet_base::versions::{Level, RELEASE};
use serde_json::{Value, json};

use crate::{
    Failure,
    cli::ThePrimary,
    members::{named, nodes},
    prints::Prints,
};

/// How long a primary may take to look at all nodes, and to have the level on record.
const RECORDED: Duration = Duration::from_secs(30);

/// Options of `freshet upgrade`.
#[derive(Debug, Args)]
pub(crate) struct UpgradeOptions {
    /// Let the cluster write what only the present release reads. Nodes of earlier releases are
    /// refused from then on. Refused as long as a node is of such a release, or away.
    #[arg(long)]
    finish: bool,
    #[command(flatten)]
    primary: ThePrimary,
    #[command(flatten)]
    prints: Prints,
}

/// Runs `freshet upgrade`.
pub(crate) fn run(options: &UpgradeOptions) -> Result<ExitCode, Failure> {
    let client = options.primary.connect()?;
    if !options.finish {
        let members: Value = serde_json::from_str(&client.members(RECORDED)?)?;
        let versions: Vec<_> = nodes(&members)
            .iter()
            .map(|node| json!({ "node": node["node"], "version": node["version"], "protocol": node["protocol"] }))
            .collect();
        options.prints.show(&json!({ "format": members["format"], "nodes": versions }), || shown(&members));
        return Ok(ExitCode::SUCCESS);
    }
    let (before, level) = client.finish_upgrade(RECORDED)?;
    let value = json!({ "format": level.0, "before": before.0 });
    options.prints.show(&value, || match before == level {
        true => format!("the cluster has format level {level} already: there is nothing to finish"),
        false => format!("the cluster has format level {level} now, and had {before}: earlier releases are refused"),
    });
    Ok(ExitCode::SUCCESS)
}

/// The format level, and what is to be done about it, for people.
pub(crate) fn level(format: &Value) -> Option<String> {
    let level = Level(u32::try_from(format.as_u64()?).ok()?);
    Some(match level < Level::NEWEST {
        true => format!("{level}; release {RELEASE} knows {}: see `freshet upgrade`", Level::NEWEST),
        false => level.to_string(),
    })
}

fn shown(members: &Value) -> String {
    let mut lines = vec![format!("format level {}", level(&members["format"]).unwrap_or_else(|| "unknown".to_owned()))];
    for node in nodes(members) {
        let version = node["version"].as_str().unwrap_or("unknown");
        lines.push(format!("{}: release {version}", named(node)));
    }
    lines.join("\n")
}
