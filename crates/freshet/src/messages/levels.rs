//! Which lines are wanted: a level for all parts, and levels for single parts.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use tracing::{Level, level_filters::LevelFilter};

/// The parts of the program that say something, and the steps of commits.
const PARTS: [&str; 9] =
    ["freshet", "engine", "replication", "recovery", "log", "fabric", "query", "postgres", "stage"];

/// A level for all parts, and the levels of those that have their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Levels {
    all: Level,
    parts: Vec<(String, Level)>,
}

impl Default for Levels {
    fn default() -> Self {
        Self { all: Level::INFO, parts: Vec::new() }
    }
}

impl Levels {
    /// The level of a part.
    pub(super) fn of(&self, part: &str) -> Level {
        self.parts.iter().find(|(name, _)| name == part).map_or(self.all, |(_, level)| *level)
    }

    /// The most verbose of all levels.
    pub(super) fn most(&self) -> LevelFilter {
        let all = self.parts.iter().map(|(_, level)| *level);
        LevelFilter::from_level(all.fold(self.all, Level::max))
    }
}

fn level(text: &str) -> Result<Level, String> {
    match text {
        "error" => Ok(Level::ERROR),
        "warn" => Ok(Level::WARN),
        "info" => Ok(Level::INFO),
        "debug" => Ok(Level::DEBUG),
        "trace" => Ok(Level::TRACE),
        other => Err(format!("{other:?} is not a level: use error, warn, info, debug or trace")),
    }
}

/// As [`level`] reads it.
pub(super) fn name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

impl FromStr for Levels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut levels = Self::default();
        let mut has_all = false;
        for word in text.split(',').map(str::trim) {
            let Some((part, its)) = word.split_once('=') else {
                if has_all {
                    return Err(format!("{text:?} has two levels for all parts"));
                }
                (levels.all, has_all) = (level(word)?, true);
                continue;
            };
            if !PARTS.contains(&part) {
                return Err(format!("there is no part {part:?}: use {}", PARTS.join(", ")));
            }
            if levels.parts.iter().any(|(name, _)| name == part) {
                return Err(format!("{text:?} has two levels for {part}"));
            }
            levels.parts.push((part.to_owned(), level(its)?));
        }
        Ok(levels)
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name(self.all))?;
        self.parts.iter().try_for_each(|(part, level)| write!(f, ",{part}={}", name(*level)))
    }
}

impl TryFrom<String> for Levels {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Levels> for String {
    fn from(levels: Levels) -> Self {
        levels.to_string()
    }
}
