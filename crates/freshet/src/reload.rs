//! SIGHUP: reads the configuration again, and changes what can change while the node runs.
//!
//! All of it is read and checked before anything changes, so a file with an error changes nothing.
//! A [`Thing`] is something that can change; keys that belong to no thing wait for the next start.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use freshet_base::lock;
use freshet_engine::{Encoding, Node};
use freshet_query::server::SqlServer;
use serde_json::Value;

use crate::{
    Failure,
    config::{Flags, Settings, SqlSettings},
    memory,
    messages::Messages,
    process,
    sql::{Files, Serving},
};

/// What is left to do once everything has been read and checked.
pub(crate) type Change = Box<dyn FnOnce()>;

type Prepare = Box<dyn Fn(&Settings) -> Result<Change, Failure>>;

/// Something that can change while the node runs.
pub(crate) struct Thing {
    /// The keys whose new values it takes up.
    keys: &'static [&'static str],
    /// Reads and checks what the change needs, and changes nothing. Called at each reload, since a
    /// file that a key names may have changed.
    prepare: Prepare,
}

/// All that can change, on a node that serves.
pub(crate) fn things(
    messages: &Messages,
    node: &Arc<Node>,
    serving: Option<&Serving>,
    settings: &Settings,
) -> Vec<Thing> {
    let its_node = Arc::clone(node);
    let (messages, node) = (messages.clone(), Arc::clone(node));
    let mut things = vec![
        Thing {
            keys: &["log.format", "log.level"],
            prepare: Box::new(move |new| {
                let (messages, format, levels) =
                    (messages.clone(), new.server.log.format, new.server.log.level.clone());
                Ok(Box::new(move || messages.set(format, &levels)))
            }),
        },
        Thing {
            keys: &[
                "checkpoint.files",
                "checkpoint.interval-s",
                "checkpoint.log-bytes",
                "checkpoint.sync-bytes",
                "checkpoint.cpu-percent",
                "checkpoint.keep-log-bytes",
            ],
            prepare: Box::new(move |new| {
                let (node, checkpoint) = (Arc::clone(&node), new.node.checkpoint.clone());
                Ok(Box::new(move || node.set_checkpoints(checkpoint)))
            }),
        },
    ];
    things.push(memory(&its_node));
    things.extend(sweep_and_doubt(&its_node));
    things.extend(encoding(&its_node, settings.node.encoding));
    things.extend(certificates(&its_node));
    things.extend(mirror(&its_node, settings.node.mirror.is_wanted()));
    if let Some(serving) = serving.cloned() {
        let sessions = serving.sessions.clone();
        let serving = Arc::downgrade(&serving.server);
        let its_sessions = sessions.clone();
        things.push(Thing {
            keys: &["sql.tls-certificates", "sql.tls-key", "sql.tls-ca", "sql.access"],
            prepare: Box::new(move |new| {
                let (server, sessions) = (serving.upgrade(), its_sessions.clone());
                let files = Files::read(&new.server.sql)?;
                Ok(Box::new(move || {
                    if let Some(server) = server {
                        Serving { server, sessions }.take(files);
                    }
                }))
            }),
        });
        things.push(bounds(sessions, settings.server.sql.memory_bytes));
    }
    things
}

/// What sessions may not exceed. What all of them may have together stays as it was.
fn bounds(sessions: SqlServer, memory_bytes: u64) -> Thing {
    let prepare = move |new: &Settings| {
        let limits = SqlSettings { memory_bytes, ..new.server.sql.clone() };
        let (sessions, bounds) = (sessions.clone(), limits.bounds(memory::limit(new, process::available_bytes())));
        Ok(Box::new(move || sessions.set_bounds(bounds)) as Change)
    };
    let keys = &[
        "sql.session-memory-bytes",
        "sql.statement-memory-bytes",
        "sql.statement-timeout-ms",
        "sql.idle-in-transaction-timeout-ms",
        "sql.idle-session-timeout-ms",
        "sql.snapshot-max-age-ms",
        "sql.snapshot-max-bytes",
    ];
    Thing { keys, prepare: Box::new(prepare) }
}

/// How much memory the node may take.
fn memory(node: &Arc<Node>) -> Thing {
    let node = Arc::clone(node);
    let prepare = move |new: &Settings| {
        let (node, bytes) = (Arc::clone(&node), memory::limit(new, process::available_bytes()));
        Ok(Box::new(move || node.set_memory_bytes(bytes)) as Change)
    };
    Thing { keys: &["memory-bytes"], prepare: Box::new(prepare) }
}

/// How the state is looked at for damage, and what the node does about that.
fn sweep_and_doubt(node: &Arc<Node>) -> [Thing; 2] {
    let (sweeping, doubting) = (Arc::clone(node), Arc::clone(node));
    [
        Thing {
            keys: &["sweep.interval-s", "sweep.cpu-percent"],
            prepare: Box::new(move |new| {
                let (node, sweep) = (Arc::clone(&sweeping), new.node.sweep.clone());
                Ok(Box::new(move || node.set_sweep(sweep)))
            }),
        },
        Thing {
            keys: &["on-doubt"],
            prepare: Box::new(move |new| {
                let (node, on_doubt) = (Arc::clone(&doubting), new.node.on_doubt);
                Ok(Box::new(move || node.set_on_doubt(on_doubt)))
            }),
        },
    ]
}

/// The certificate that a node shows to others. Where Freshet made it, there is nothing to read.
fn certificates(node: &Arc<Node>) -> Option<Thing> {
    let (read, credentials) = (node.reads_certificates()?, node.credentials().clone());
    let prepare = move |new: &Settings| {
        let (newer, credentials) = (read(&new.node.member)?, credentials.clone());
        credentials.fits(&newer)?;
        Ok(Box::new(move || {
            credentials.take(&newer);
            tracing::info!(ends = newer.expire(), "the certificate of this node was read again");
        }) as Change)
    };
    let keys = &["member.certificates"];
    Some(Thing { keys, prepare: Box::new(prepare) })
}

/// In which form the log comes. A node that was started to take bytes alone executes nothing.
fn encoding(node: &Arc<Node>, started: Encoding) -> Option<Thing> {
    let node = Arc::clone(node);
    let prepare = move |new: &Settings| {
        let (node, encoding) = (Arc::clone(&node), new.node.encoding);
        Ok(Box::new(move || node.set_encoding(encoding)) as Change)
    };
    (started != Encoding::Bytes).then(|| Thing { keys: &["encoding"], prepare: Box::new(prepare) })
}

/// How much memory a mirror may have. A node that was started as another one is no mirror.
fn mirror(node: &Arc<Node>, started: bool) -> Option<Thing> {
    let node = Arc::clone(node);
    let prepare = move |new: &Settings| {
        let (node, bytes) = (Arc::clone(&node), new.node.mirror.bytes);
        Ok(Box::new(move || node.set_mirror_bytes(bytes)) as Change)
    };
    started.then(|| Thing { keys: &["mirror.bytes"], prepare: Box::new(prepare) })
}

/// Each key with the value that is in force.
#[derive(Clone, Default)]
pub(crate) struct InForce(Arc<Mutex<BTreeMap<String, Value>>>);

impl InForce {
    /// These settings are.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self(Arc::new(Mutex::new(settings.keys())))
    }

    /// Them, while they do not change.
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Value>> {
        lock(&self.0)
    }
}

/// The configuration in force, and the things in it that can change.
pub(crate) struct Reload {
    flags: Flags,
    in_force: InForce,
    things: Vec<Thing>,
}

impl Reload {
    /// What is `in_force` came from `flags`.
    pub(crate) fn new(flags: &Flags, in_force: InForce, things: Vec<Thing>) -> Self {
        Self { flags: flags.clone(), in_force, things }
    }

    /// Reads the configuration again and changes what can change. Says each change in a line.
    pub(crate) fn reload(&mut self) {
        let file = self.flags.config.as_ref().map(|file| tracing::field::display(file.display()));
        tracing::info!(file, "the configuration is read again");
        match self.prepare() {
            Err(Failure { message: cause, .. }) => {
                tracing::error!(cause, "the configuration is not reloaded, and everything stays as it was");
            }
            Ok((new, changes)) => {
                changes.into_iter().for_each(|change| change());
                self.report(new);
            }
        }
    }

    fn prepare(&self) -> Result<(BTreeMap<String, Value>, Vec<Change>), Failure> {
        let settings = Settings::gather(&self.flags)?;
        let changes = self.things.iter().map(|thing| (thing.prepare)(&settings)).collect::<Result<_, _>>()?;
        Ok((settings.keys(), changes))
    }

    /// Logs what has changed.
    fn report(&self, new: BTreeMap<String, Value>) {
        let can_change = |key: &str| self.things.iter().any(|thing| thing.keys.contains(&key));
        let (mut changed, mut waiting) = (0, 0);
        let mut in_force = self.in_force.lock();
        for (key, value) in new {
            let Some(old) = in_force.get_mut(&key).filter(|old| **old != value) else { continue };
            if can_change(&key) {
                changed += 1;
                tracing::info!(key, before = plain(old), now = plain(&value), "a setting has changed");
                *old = value;
            } else {
                waiting += 1;
                let (in_force, configured) = (plain(old), plain(&value));
                tracing::warn!(key, in_force, configured, "a setting changes only when the node is started again");
            }
        }
        tracing::info!(changed, waiting, "the configuration is reloaded");
    }
}

/// A value as it is written in the file.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A misspelled key would be reported as waiting for the next start.
    #[test]
    fn what_can_change_are_keys() {
        let settings = Settings::default();
        let keys = settings.keys();
        let quiet = "error".parse().unwrap();
        let messages = crate::messages::begin(settings.server.log.format, &quiet).unwrap();
        let config = freshet_engine::NodeConfig {
            domain: freshet_engine::Domain::None,
            listen: ([127, 0, 0, 1], 0).into(),
            ..Default::default()
        };
        let node = Node::start(config, |_| {}).unwrap();
        for thing in things(&messages, &node, None, &settings) {
            thing.keys.iter().for_each(|key| assert!(keys.contains_key(*key), "{key}"));
        }
        assert!(keys.contains_key("sql.tls-key") && keys.contains_key("standby-timeout-ms"));
    }
}
