//! `freshet status` as a command: once, again and again, or the verdict alone.

use std::{
    fmt::Write,
    io::{self, IsTerminal},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use freshet_base::wait;
use serde_json::Value;

use super::{cluster, table, text};
use crate::{
    Failure,
    cli::Asked,
    messages::plain,
    prints::{Prints, put},
    verdict::Verdict,
};

/// The version of what `--json` prints. A key may be added without another one.
pub(crate) const FORMAT: u32 = 1;

/// Options of `freshet status`.
#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    #[command(flatten)]
    asked: Asked,
    #[command(flatten)]
    prints: Prints,
    /// Print the verdict alone, and end with 0 if it is ok, 1 if degraded, 2 if blocked or if the
    /// node does not answer: for Nagios and the like.
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    check: bool,
    /// Show it again after each time of this length, 1 to 3600, until a signal ends the command.
    /// Where standard output is no terminal: a line with the verdict each time.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
    #[arg(conflicts_with = "json", value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
    /// How long to wait for each answer, in seconds.
    #[arg(long, value_name = "S", default_value_t = 5)]
    patience: u64,
}

/// What a node has answered.
struct Seen {
    status: Value,
    /// Unless the node could not be asked for them.
    members: Option<Value>,
    verdict: Verdict,
}

/// Shows a node's status.
pub(crate) fn run(options: &StatusOptions) -> Result<ExitCode, Failure> {
    if options.check {
        let verdict = Seen::ask(options).map_or_else(|cause| Verdict::unreachable(&cause.to_string()), |it| it.verdict);
        put(&verdict.line());
        return Ok(ExitCode::from(verdict.health().check_code()));
    }
    if let Some(seconds) = options.watch {
        return watch(options, Duration::from_secs(seconds));
    }
    let seen = Seen::ask(options)?;
    options.prints.show(&seen.to_json(), || seen.text(None));
    Ok(seen.verdict.health().into())
}

/// Shows it again and again; ends when nobody reads it.
fn watch(options: &StatusOptions, every: Duration) -> Result<ExitCode, Failure> {
    let paints = io::stdout().is_terminal();
    let mut before = None;
    loop {
        let due = Instant::now() + every;
        let seen = Seen::ask(options);
        let verdict = match &seen {
            Ok(seen) => seen.verdict.line(),
            Err(cause) => Verdict::unreachable(&cause.to_string()).line(),
        };
        let shown = match &seen {
            Ok(seen) if paints => seen.text(before.as_ref()),
            _ => verdict,
        };
        // The cursor goes to the upper left corner, and all below it is cleared.
        let clears = if paints { "\u{1b}[H\u{1b}[J" } else { "" };
        if !put(&format!("{clears}{shown}")) {
            return Ok(ExitCode::SUCCESS);
        }
        before = seen.ok().map(|seen| seen.status);
        let _ = wait::sleep(due.into());
    }
}

impl Seen {
    fn ask(options: &StatusOptions) -> Result<Self, Failure> {
        let patience = Duration::from_secs(options.patience);
        let client = options.asked.connect(patience)?;
        let status: Value = serde_json::from_str(&client.status(patience)?)?;
        // One that starts, takes over or has failed knows of no others.
        let members = client.members(patience).ok().and_then(|json| serde_json::from_str(&json).ok());
        let verdict = Verdict::of(Some(&status), members.as_ref(), options.asked.address()?);
        Ok(Self { status, members, verdict })
    }

    /// For programs: the status, with `format`, `verdict` and `members` added.
    fn to_json(&self) -> Value {
        let mut all = self.status.clone();
        if let Value::Object(keys) = &mut all {
            keys.insert("format".to_owned(), FORMAT.into());
            keys.insert("verdict".to_owned(), self.verdict.to_json());
            keys.insert("members".to_owned(), self.members.clone().unwrap_or_default());
        }
        all
    }

    /// For people. `before`: an earlier status.
    fn text(&self, before: Option<&Value>) -> String {
        let mut out = self.verdict.line() + "\n\n" + &table(&self.status, before);
        let mut line = |name: &str, value: String| {
            let _ = writeln!(out, "{name:<16} {}", plain(&value));
        };
        if let Some(members) = self.members.as_ref().filter(|_| text(&self.status["role"]) != "starting") {
            cluster::members(members, &self.status, &mut line);
        }
        out
    }
}
