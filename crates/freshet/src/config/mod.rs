//! The configuration of a node: defaults, a file, the environment, and flags; later sources
//! override earlier ones.
//!
//! A key is a field of [`NodeConfig`] or [`ServerSettings`], with its documentation, and is spelled
//! the same everywhere: `log.buffer-bytes` in the file, `FRESHET_LOG_BUFFER_BYTES` in the
//! environment, `--log-buffer-bytes` as a flag.

mod check;
mod command;
#[cfg(test)]
mod docs;
mod flags;
mod server;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use freshet_engine::{Domain, NodeConfig, SettingError};
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;
use toml::de::{DeTable, DeValue};

pub(crate) use self::{
    command::{ConfigCommand, run},
    flags::{Flags, Given},
    server::{ServerSettings, SqlListen, SqlSettings, listed},
};

/// All that a node can be told.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct Settings {
    /// What the engine is told.
    #[command(flatten)]
    pub(crate) node: NodeConfig,
    /// What the server is told.
    #[command(flatten)]
    pub(crate) server: ServerSettings,
}

/// Why there is no configuration to start with.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {path}: {cause}")]
    Unreadable {
        /// The path of the configuration file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// The file is not TOML, or has a value that does not fit.
    #[error("configuration file {path}: {cause}(docs/configuration.md lists all keys)")]
    File {
        /// The path of the configuration file.
        path: PathBuf,
        /// What is wrong, with line and column.
        cause: toml::de::Error,
    },
    /// The file has a key that does not exist.
    #[error("configuration file {path}, line {line}: unknown key {key} (docs/configuration.md lists all keys)")]
    Unknown {
        /// The path of the configuration file.
        path: PathBuf,
        /// Where in it, from 1 on.
        line: usize,
        /// The key, with its table.
        key: String,
    },
    /// The environment names a key that does not exist.
    #[error("environment variable {0} is not known: docs/configuration.md lists all keys")]
    Environment(String),
    /// A value that no node can run with.
    #[error("{setting}: {remedy}")]
    Value {
        /// The key and its value, as the user has written them.
        setting: String,
        /// What the user can write instead.
        remedy: String,
    },
}

impl Settings {
    /// Puts the configuration together.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub(crate) fn gather(flags: &Flags) -> Result<Self, ConfigError> {
        flags::check_environment(flags.keys, std::env::vars_os())?;
        let mut settings = match &flags.config {
            Some(path) => Self::read(path, &flags.keys.defaults())?,
            None => Self::default(),
        };
        flags.apply(&mut settings);
        settings.check().map_err(|wrong| flags.blame(wrong))?;
        Ok(settings)
    }

    /// The engine and the server each take their keys from the file; a key that neither has is an
    /// error.
    fn read(path: &Path, known: &BTreeMap<String, Value>) -> Result<Self, ConfigError> {
        fn part<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, ConfigError> {
            toml::from_str(text).map_err(|cause| ConfigError::File { path: path.to_owned(), cause })
        }
        let text =
            fs::read_to_string(path).map_err(|cause| ConfigError::Unreadable { path: path.to_owned(), cause })?;
        let table = DeTable::parse(&text).map_err(|cause| ConfigError::File { path: path.to_owned(), cause })?;
        if let Some((key, at)) = unknown(table.get_ref(), "", known).into_iter().next() {
            let line = 1 + text[..at].matches('\n').count();
            return Err(ConfigError::Unknown { path: path.to_owned(), line, key });
        }
        Ok(Self { node: part(&text, path)?, server: part(&text, path)? })
    }

    /// Whether a node can run with it.
    ///
    /// # Errors
    /// The first key with a value that cannot be used.
    pub(crate) fn check(&self) -> Result<(), SettingError> {
        self.node.check()?;
        self.server.sql.check()?;
        let address = self.server.address;
        if address == self.node.listen && address.port() != 0 {
            let remedy = "clients and nodes need different ports: change address or listen";
            return Err(SettingError::new("address", address, remedy));
        }
        if let Some(http) = self.server.http_listen.filter(|http| !http.ip().is_loopback()) {
            let remedy = "HTTP is neither encrypted nor asks who comes: give an address of this machine alone, and put \
                          a proxy in front of it for others";
            return Err(SettingError::new("http-listen", http, remedy));
        }
        Ok(())
    }

    /// All keys with their values, in tables as a file has them.
    pub(crate) fn to_json(&self) -> Value {
        let mut all = serde_json::to_value(&self.node).unwrap_or_default();
        let server = serde_json::to_value(&self.server).unwrap_or_default();
        if let (Value::Object(all), Value::Object(server)) = (&mut all, server) {
            for (key, value) in server {
                match (all.get_mut(&key), value) {
                    (Some(Value::Object(table)), Value::Object(more)) => table.extend(more),
                    (_, value) => drop(all.insert(key, value)),
                }
            }
        }
        all
    }

    /// Each key with its value.
    pub(crate) fn keys(&self) -> BTreeMap<String, Value> {
        fn flatten(prefix: &str, value: Value, into: &mut BTreeMap<String, Value>) {
            match value {
                Value::Object(table) => {
                    let dot = if prefix.is_empty() { "" } else { "." };
                    table.into_iter().for_each(|(key, value)| flatten(&format!("{prefix}{dot}{key}"), value, into));
                }
                value => drop(into.insert(prefix.to_owned(), value)),
            }
        }
        let mut keys = BTreeMap::new();
        flatten("", self.to_json(), &mut keys);
        keys
    }

    /// The keys whose values differ from the default.
    pub(crate) fn changed(&self) -> BTreeMap<String, Value> {
        let (mut keys, defaults) = (self.keys(), Self::default().keys());
        keys.retain(|key, value| defaults.get(key) != Some(value));
        keys
    }

    /// The directories in which the node keeps data.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        let NodeConfig { directory, domain, log, checkpoint, .. } = &self.node;
        let own = (*domain != Domain::None).then(|| directory.clone());
        own.into_iter().chain(log.dir.iter().cloned()).chain(checkpoint.dir.iter().cloned()).collect()
    }
}

/// The keys below `prefix` that are none of `known`, and at which byte of the file each is.
fn unknown(table: &DeTable<'_>, prefix: &str, known: &BTreeMap<String, Value>) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (name, value) in table {
        let key = format!("{prefix}{}", name.get_ref());
        let inside = format!("{key}.");
        match value.get_ref() {
            DeValue::Table(table) if known.keys().any(|key| key.starts_with(&inside)) => {
                found.extend(unknown(table, &inside, known));
            }
            _ if known.contains_key(&key) => {}
            _ => found.push((key, name.span().start)),
        }
    }
    found
}
