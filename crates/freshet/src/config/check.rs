//! All mistakes of a configuration file, each with its line, without a node.

use std::{collections::BTreeMap, fs, path::Path};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::{ConfigError, Settings, unknown};
use crate::sql;

/// Something that no node can start with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Mistake {
    /// The line in the file, from 1 on; none of a key that is not there.
    pub line: Option<usize>,
    /// The key, with its table; empty where the file is not even TOML.
    pub key: String,
    /// What is wrong, and what is allowed.
    pub why: String,
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = self.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let key = if self.key.is_empty() { String::new() } else { format!("{}: ", self.key) };
        write!(f, "{line}{key}{}", self.why)
    }
}

/// A key of the file, with its value as it is written there.
struct Line {
    number: usize,
    key: String,
    written: String,
}

impl Line {
    /// As a file that has nothing else.
    fn alone(&self) -> String {
        format!("{} = {}\n", self.key, self.written)
    }

    fn mistake(&self, why: impl Into<String>) -> Mistake {
        Mistake { line: Some(self.number), key: self.key.clone(), why: why.into() }
    }
}

/// What is wrong in the file. Nothing is, if that is empty: a node can start with it.
///
/// # Errors
/// [`ConfigError::Unreadable`].
pub(super) fn mistakes(path: &Path, known: &BTreeMap<String, Value>) -> Result<Vec<Mistake>, ConfigError> {
    let text = fs::read_to_string(path).map_err(|cause| ConfigError::Unreadable { path: path.to_owned(), cause })?;
    Ok(of_text(&text, known))
}

fn of_text(text: &str, known: &BTreeMap<String, Value>) -> Vec<Mistake> {
    let number = |at: usize| 1 + text[..at.min(text.len())].matches('\n').count();
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(cause) => {
            let line = cause.span().map(|span| number(span.start));
            return vec![Mistake { line, key: String::new(), why: cause.message().to_owned() }];
        }
    };
    let is_unknown = |(key, at): (String, usize)| {
        let why = "no such key: docs/configuration.md and freshet config sample list all".to_owned();
        Mistake { line: Some(number(at)), key, why }
    };
    let mut found: Vec<_> = unknown(table.get_ref(), "", known).into_iter().map(is_unknown).collect();
    let mut lines = Vec::new();
    collect(table.get_ref(), "", text, known, &mut lines);
    lines.retain(|line| match settings(&line.alone()) {
        Ok(_) => true,
        Err(cause) => {
            found.push(line.mistake(cause.message()));
            false
        }
    });
    found.extend(together(lines));
    found.sort_by_key(|mistake| mistake.line);
    found
}

/// Keys whose values can be read, and cannot be used.
fn together(mut lines: Vec<Line>) -> Vec<Mistake> {
    let mut found = Vec::new();
    loop {
        let text: String = lines.iter().map(Line::alone).collect();
        let settings = match settings(&text) {
            Ok(settings) => settings,
            Err(cause) => {
                found.push(Mistake { line: None, key: String::new(), why: cause.message().to_owned() });
                return found;
            }
        };
        let Err(wrong) = settings.check() else {
            // Only a file with no other mistake says which files are meant.
            if let Some(cause) = sql::Files::read(&settings.server.sql).err().filter(|_| found.is_empty()) {
                found.push(Mistake { line: None, key: "sql".to_owned(), why: cause.to_string() });
            }
            return found;
        };
        let why = format!("{} is not possible: {}", wrong.value, wrong.remedy);
        let Some(at) = lines.iter().position(|line| line.key == wrong.key) else {
            // Another key makes the default wrong.
            found.push(Mistake { line: None, key: wrong.key.to_owned(), why });
            return found;
        };
        found.push(lines.remove(at).mistake(why));
    }
}

/// The settings that this says, and the defaults for all that it does not.
fn settings(text: &str) -> Result<Settings, toml::de::Error> {
    fn part<T: DeserializeOwned>(text: &str) -> Result<T, toml::de::Error> {
        toml::from_str(text)
    }
    Ok(Settings { node: part(text)?, server: part(text)? })
}

/// The known keys below `prefix`, with their lines.
fn collect(table: &DeTable<'_>, prefix: &str, text: &str, known: &BTreeMap<String, Value>, into: &mut Vec<Line>) {
    for (name, value) in table {
        let key = format!("{prefix}{}", name.get_ref());
        match value.get_ref() {
            DeValue::Table(table) if !known.contains_key(&key) => {
                collect(table, &format!("{key}."), text, known, into);
            }
            _ if known.contains_key(&key) => {
                let number = 1 + text[..name.span().start].matches('\n').count();
                into.push(Line { number, key, written: text[value.span()].to_owned() });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::flags::Keys;

    fn found(text: &str) -> Vec<(Option<usize>, String)> {
        let found = of_text(text, &Keys::Product.defaults());
        for mistake in &found {
            assert!(!mistake.why.is_empty() && !mistake.why.contains('\n'), "{mistake:?}");
        }
        found.into_iter().map(|mistake| (mistake.line, mistake.key)).collect()
    }

    #[test]
    fn each_mistake_has_its_key_and_line() {
        let wrong = "adress = \"127.0.0.1:7400\"\nlisten = 5\n\n[sql]\nconnections = 0\nlisten = \"off\"\n\
                     usr = \"x\"\n[log]\nlevel = \"much\"\n";
        let expected = [(1, "adress"), (2, "listen"), (5, "sql.connections"), (7, "sql.usr"), (9, "log.level")];
        assert_eq!(found(wrong), expected.map(|(line, key)| (Some(line), key.to_owned())));
        assert_eq!(found("listen = \"127.0.0.1:1\"\nlisten ="), [(Some(2), String::new())]);
        assert_eq!(found("sql.tls-key = \"/nowhere\"\n"), [(Some(1), "sql.tls-key".to_owned())]);
        assert_eq!(found("listen = \"127.0.0.1:7400\"\n"), [(None, "address".to_owned())]);
        assert_eq!(found("[sql]\naccess = \"/nowhere\"\n"), [(None, "sql".to_owned())]);
        for right in ["", "listen = \"127.0.0.1:7411\"\n[sql]\nlisten = \"off\"\n"] {
            assert_eq!(found(right), [], "{right}");
        }
    }
}
