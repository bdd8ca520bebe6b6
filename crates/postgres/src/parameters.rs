//! Settings that a client is told of unasked, at the start and whenever they change.

use crate::packet::Startup;

/// Settings reported when a session opens. Drivers rely on several of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Those that PostgreSQL's clients expect, with the values of a fresh session on a primary.
    /// `version` stands behind the version of PostgreSQL that is spoken.
    #[must_use]
    pub fn expected(version: &str, startup: &Startup) -> Self {
        let mut parameters = Self(Vec::new());
        let fixed = [
            ("server_version", &*format!("15.0 (Freshet {version})")),
            ("server_encoding", "UTF8"),
            ("client_encoding", "UTF8"),
            ("DateStyle", "ISO, MDY"),
            ("IntervalStyle", "postgres"),
            ("TimeZone", "UTC"),
            ("integer_datetimes", "on"),
            ("standard_conforming_strings", "on"),
            ("is_superuser", "off"),
            ("session_authorization", startup.user()),
            ("in_hot_standby", "off"),
            ("default_transaction_read_only", "off"),
            ("application_name", startup.get("application_name").unwrap_or_default()),
        ];
        for (name, value) in fixed {
            parameters.set(name, value);
        }
        parameters
    }

    /// Adds or changes one.
    pub fn set(&mut self, name: &str, value: &str) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => value.clone_into(known),
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}
