//! `freshet promote`: makes a standby the primary. `freshet refill`: has a mirror begin again,
//! `freshet begin-again` a standby.

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use freshet_base::{Consent, Lsn};
use serde_json::{Value, json};

use crate::{
    Failure,
    cli::{Asked, BeginAgainOptions, RefillOptions},
    client::Client,
    messages::plain,
    prints::Prints,
};

/// How long a node may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a standby may take to ask its primary.
const ASKS: Duration = Duration::from_secs(30);
/// How long another node that was promoted at the same time may take to depose this one, and how
/// often it is looked.
const RIVALS: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);

/// What an operator has agreed to with `--force`.
const FORCED: &str = "warning: forced, without asking whether all that was acknowledged is here: commits may be lost \
                      that only nodes hold which have not answered, an old primary above all; one that comes back and \
                      holds some keeps them, and its status says HOLDS MORE";

/// The same with `--primary-is-gone`.
const GONE: &str = "warning: the primary of before was taken for gone: what it acknowledged without this node is not \
                    here, and nothing is missing if it went while in sync; see that it does not run: it might go \
                    on beside this one until the two meet";

/// Options of `freshet promote`.
#[derive(Debug, Args)]
pub(crate) struct PromoteOptions {
    #[command(flatten)]
    pub(crate) asked: Asked<false>,
    /// Take over without the answer of the primary of before: it does not run, and never will
    /// again with what it holds. Of two nodes nothing else is missing, and nothing is lost unless
    /// that primary has gone on alone.
    #[arg(long, conflicts_with = "force")]
    primary_is_gone: bool,
    /// Take over even if that may lose acknowledged commits.
    #[arg(long)]
    force: bool,
    /// How long to wait for the answer, in seconds.
    #[arg(long, value_name = "S", default_value_t = 600)]
    pub(crate) patience: u64,
    #[command(flatten)]
    pub(crate) prints: Prints,
}

impl PromoteOptions {
    /// What the operator agrees to.
    pub(crate) fn consent(&self) -> Consent {
        match (self.force, self.primary_is_gone) {
            (true, _) => Consent::Loss,
            (false, true) => Consent::PrimaryIsGone,
            (false, false) => Consent::Nothing,
        }
    }
}

/// Runs `freshet promote`.
pub(crate) fn run(options: &PromoteOptions) -> Result<ExitCode, Failure> {
    let client = options.asked.connect(CONNECT)?;
    let (term, at) = client.promote(options.consent(), Duration::from_secs(options.patience))?;
    if !stays(&client, term) {
        return Err(Failure::new(deposed(client.address(), term, at)));
    }
    let value = json!({ "primary": client.address(), "term": term, "at": at });
    let text = || format!("{} is the primary of term {term}, which begins at {at}", client.address());
    options.prints.show(&value, text);
    match options.consent() {
        Consent::Nothing => {}
        Consent::PrimaryIsGone => eprintln!("{GONE}"),
        Consent::Loss => eprintln!("{FORCED}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Has a mirror give up what it holds more than its primary has.
pub(crate) fn refill(options: &RefillOptions) -> Result<ExitCode, Failure> {
    let client = options.asked.connect(CONNECT)?;
    client.refill(CONNECT)?;
    let text = || format!("{} begins again with what the node has that it follows", client.address());
    options.prints.show(&json!({ "node": client.address() }), text);
    Ok(ExitCode::SUCCESS)
}

/// Has a standby begin again.
pub(crate) fn begin_again(options: &BeginAgainOptions) -> Result<ExitCode, Failure> {
    let client = options.asked.connect(CONNECT)?;
    let from = client.begin_again(options.force, ASKS)?;
    let from = plain(&from);
    let node = client.address();
    let text = || format!("{node} begins again with what the primary at {from} has; its status says how far that is");
    options.prints.show(&json!({ "node": node, "from": from }), text);
    Ok(ExitCode::SUCCESS)
}

fn deposed(address: &str, term: u32, at: Lsn) -> String {
    format!(
        "{address} was the primary of term {term}, which began at {at}, and is not any more: another node has \
         taken over at the same time; freshet status of the nodes says which terms"
    )
}

/// Whether the node is still the primary a moment later. Of two that are promoted at the same time,
/// one is deposed by the other.
fn stays(client: &Client, term: u32) -> bool {
    let until = Instant::now() + RIVALS;
    while Instant::now() < until {
        // A node that is deposed starts again, and its connections end.
        let Ok(status) = client.status(CONNECT) else { return false };
        if !leads(&status, term) {
            return false;
        }
        thread::sleep(LOOK);
    }
    true
}

fn leads(status: &str, term: u32) -> bool {
    let status: Value = serde_json::from_str(status).unwrap_or_default();
    let fenced = status["standing"]["standing"] == "fenced";
    status["role"] == "primary" && status["term"] == term && !fenced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_deposed_does_not_lead() {
        let status = |role: &str, term: u32, standing: &str| {
            serde_json::json!({"role": role, "term": term, "standing": {"standing": standing}}).to_string()
        };
        assert!(leads(&status("primary", 3, "safe"), 3));
        assert!(leads(&status("primary", 3, "blocked"), 3));
        assert!(!leads(&status("primary", 3, "fenced"), 3));
        assert!(!leads(&status("primary", 4, "safe"), 3), "a later term is in force");
        assert!(!leads(&status("standby", 3, "safe"), 3));
        assert!(!leads("", 3));
    }
}
