//! What a command prints: text for people, or one JSON object for programs.

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;

/// How a command prints what has come of it.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Prints {
    /// Print a JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print nothing: the command is a part of another one.
    #[arg(skip)]
    quiet: bool,
}

impl Prints {
    /// Of a part of another command.
    pub(crate) fn quiet() -> Self {
        Self { json: false, quiet: true }
    }

    /// Prints the outcome: the value as one line of JSON, or the text.
    pub(crate) fn show(self, value: &impl Serialize, text: impl FnOnce() -> String) {
        if self.quiet {
            return;
        }
        let shown = match self.json {
            true => serde_json::to_string(value).unwrap_or_default(),
            false => text(),
        };
        put(&shown);
    }

    /// Prints how far the command is. With JSON, that goes to standard error.
    pub(crate) fn note(self, text: &str) {
        if self.json && !self.quiet {
            eprintln!("{text}");
        } else if !self.quiet {
            put(text);
        }
    }
}

/// Writes this to standard output, and ends the line. Says whether anybody reads that.
pub(crate) fn put(text: &str) -> bool {
    let mut out = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    write!(out, "{text}{end}").and_then(|()| out.flush()).is_ok()
}
