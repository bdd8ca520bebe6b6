//! Which statements are written to the server's log.

use std::time::Duration;

use super::{Settings, value::Unit};
use crate::statistics::Kind;

/// log_statement and log_min_duration_statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logged {
    begun: Begun,
    /// Statements that take as long are logged when they end.
    pub after: Option<Duration>,
}

/// Which statements are logged when they begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Begun {
    #[default]
    Nothing,
    Definitions,
    Changes,
    All,
}

impl Logged {
    /// As these settings have it.
    pub(super) fn of(settings: &Settings) -> Self {
        let begun = match settings.get("log_statement") {
            Some("ddl") => Begun::Definitions,
            Some("mod") => Begun::Changes,
            Some("all") => Begun::All,
            _ => Begun::Nothing,
        };
        let after = settings.get("log_min_duration_statement").and_then(|shown| Unit::Milliseconds.read(shown).ok());
        let after = after.filter(|after| *after >= 0.0).map(|after| Duration::from_micros((after * 1000.0) as u64));
        Self { begun, after }
    }

    /// Whether all statements are logged when they begin.
    pub fn all(self) -> bool {
        self.begun == Begun::All
    }

    /// Whether one of this kind is logged when it begins, where not all are.
    pub fn logs(self, kind: Kind) -> bool {
        match self.begun {
            Begun::Nothing | Begun::All => false,
            Begun::Definitions => kind == Kind::Ddl,
            Begun::Changes => !matches!(kind, Kind::Select | Kind::Other),
        }
    }
}

impl Settings {
    /// What a client is to be told that has set this: once in a session, where it is of what is to
    /// be logged and nothing comes of it.
    pub fn remark(&mut self, name: &str) -> Option<String> {
        let name = super::canonical(name);
        let without_effect = name.starts_with("auto_explain.")
            || (name.starts_with("log_") && !matches!(&*name, "log_statement" | "log_min_duration_statement"));
        if !without_effect || std::mem::replace(&mut self.remarked, true) {
            return None;
        }
        Some(format!("\"{name}\" is set, and has no effect here: log_statement and log_min_duration_statement have"))
    }
}
