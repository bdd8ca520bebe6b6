//! Settings of a session: what SET, SHOW and the start-up packet know.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use freshet_engine::Isolation;
use freshet_postgres::Encoding;
use freshet_sql::{
    SqlError, SqlState,
    memory::{Pool, Reservation},
    types::{Formats, TimeZone, datetime},
};

use crate::{
    commit::Level,
    schema::Oid,
    syntax::{Rules, clipped},
    system::activity::SettingInfo,
};

mod known;
mod logged;
mod moved;
mod value;

pub use known::Context;
use known::{Kind, Known, known};
pub use logged::Logged;
use value::{Unit, duration, invalid, is_custom_name, memory};
pub use value::{formats, truth};

/// The settings of one session.
#[derive(Debug)]
pub struct Settings {
    changed: BTreeMap<String, String>,
    /// The settings that SET LOCAL has changed, and their values after the transaction has
    /// committed.
    local: BTreeMap<String, Option<String>>,
    /// Whether a transaction is open.
    in_transaction: bool,
    /// Changes in the transaction that a rollback takes back: the first change of each setting
    /// after each savepoint.
    undo: Vec<Undo>,
    /// How many of these there were at each savepoint.
    savepoints: Vec<usize>,
    /// What RESET goes back to: what the start-up packet said, or the role's settings.
    start: BTreeMap<String, String>,
    /// The source of settings that the client has not set, as in `pg_settings`.
    sources: BTreeMap<String, &'static str>,
    /// What every statement needs, ready for use.
    pub ready: Ready,
    /// Another one whenever something has changed.
    pub generation: u64,
    /// What they take of their session's memory.
    kept: Option<Reservation>,
    /// The most that freshet.query_memory can be, in bytes.
    most_memory: usize,
    /// Its client knows that settings without effect are there.
    remarked: bool,
}

/// The values that a client knows of the settings that it follows.
#[derive(Debug, Default)]
pub struct Reported {
    generation: u64,
    values: BTreeMap<&'static str, String>,
}

impl Reported {
    /// Reports those that have other values than were reported last.
    pub fn changed(&mut self, settings: &Settings, mut report: impl FnMut(&str, &str)) {
        if self.generation == settings.generation {
            return;
        }
        self.generation = settings.generation;
        for (key, known) in known::reported() {
            let value = settings.get(key).unwrap_or_default();
            if self.values.get(key).is_none_or(|before| before != value) {
                self.values.insert(key, value.to_owned());
                report(known.name, value);
            }
        }
    }
}

/// What a setting was before a change.
#[derive(Debug)]
struct Undo {
    name: String,
    value: Option<String>,
    /// Its value after the transaction, if SET LOCAL has changed it.
    local: Option<Option<String>>,
}

/// What sessions begin with, and what they may not exceed: how the server is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many bytes all sessions may keep together.
    pub memory: usize,
    /// How many one session may keep: in its cursors, portals, prepared statements, settings, and
    /// in the statement that it runs.
    pub session_memory: usize,
    /// How many a statement or a cursor may keep: freshet.query_memory, which cannot be set higher.
    pub statement_memory: usize,
    /// The default of statement_timeout; zero for none.
    pub statement_timeout: Duration,
    /// The default of idle_in_transaction_session_timeout.
    pub idle_in_transaction_timeout: Duration,
    /// The default of idle_session_timeout.
    pub idle_session_timeout: Duration,
    /// How old the snapshot of a transaction may be; zero for as old as it likes.
    pub snapshot_age: Duration,
    /// How many bytes of old versions may be kept for transactions; zero for a quarter of what
    /// tables may take.
    pub snapshot_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            memory: 4 << 30,
            session_memory: 1 << 30,
            statement_memory: 256 << 20,
            statement_timeout: Duration::ZERO,
            idle_in_transaction_timeout: Duration::ZERO,
            idle_session_timeout: Duration::ZERO,
            snapshot_age: Duration::ZERO,
            snapshot_bytes: 0,
        }
    }
}

impl Bounds {
    /// The memory of all sessions.
    pub fn pool(&self) -> Arc<Pool> {
        Pool::new("server", self.memory, "Other sessions take it too; see the server's setting sql.memory-bytes.")
    }

    /// The memory of one session.
    pub fn session(&self, server: &Arc<Pool>) -> Arc<Pool> {
        let remedy = "Close cursors, deallocate statements, or raise the server's setting sql.statement-memory-bytes.";
        server.below("session", self.session_memory, remedy)
    }
}

/// Settings that every statement needs.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// client_encoding
    pub encoding: Encoding,
    /// TimeZone
    pub zone: TimeZone,
    /// DateStyle, IntervalStyle, bytea_output and extra_float_digits.
    pub formats: Formats,
    /// statement_timeout
    pub statement_timeout: Option<Duration>,
    /// lock_timeout
    pub lock_timeout: Option<Duration>,
    /// idle_session_timeout
    pub idle: Option<Duration>,
    /// idle_in_transaction_session_timeout
    pub idle_in_transaction: Option<Duration>,
    /// Whether transactions wait before they read, for freshet.read_after or freshet.max_staleness.
    pub waits_for_view: bool,
    /// freshet.query_memory, in bytes.
    pub query_memory: usize,
    /// default_transaction_isolation
    pub isolation: &'static str,
    /// default_transaction_read_only
    pub read_only: bool,
    /// default_transaction_deferrable
    pub deferrable: bool,
    /// What a commit waits for.
    pub level: Level,
    /// freshet.commit_lsns
    pub commit_lsns: bool,
    /// client_min_messages: whether notices are sent, and warnings.
    pub sends: (bool, bool),
    /// standard_conforming_strings, escape_string_warning, backslash_quote.
    pub literals: Rules,
    /// log_statement, log_min_duration_statement.
    pub logged: Logged,
}

impl Default for Settings {
    fn default() -> Self {
        let ready = Ready {
            encoding: Encoding::UTF8,
            zone: TimeZone::Utc,
            formats: Formats::default(),
            statement_timeout: None,
            lock_timeout: None,
            idle: None,
            idle_in_transaction: None,
            waits_for_view: false,
            query_memory: 256 << 20,
            isolation: "read committed",
            read_only: false,
            deferrable: false,
            level: Level::Node,
            commit_lsns: false,
            sends: (true, true),
            literals: Rules::default(),
            logged: Logged::default(),
        };
        Self {
            changed: BTreeMap::new(),
            local: BTreeMap::new(),
            in_transaction: false,
            undo: Vec::new(),
            savepoints: Vec::new(),
            start: BTreeMap::new(),
            sources: BTreeMap::new(),
            ready,
            generation: 0,
            kept: None,
            most_memory: usize::MAX,
            remarked: false,
        }
    }
}

fn size_of_one(name: &str, value: Option<&String>) -> usize {
    2 * size_of::<String>() + name.len() + value.map_or(0, String::len)
}

fn size_of_all(settings: &BTreeMap<String, String>) -> usize {
    settings.iter().map(|(name, value)| size_of_one(name, Some(value))).sum()
}

/// A setting's value as clients know it: of a role, its id is kept, too.
fn shown<'v>(name: &str, value: &'v str) -> &'v str {
    match (name, value.split_once(' ')) {
        ("role" | "session_authorization", Some((_, role))) => role,
        _ => value,
    }
}

/// Who changes a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A statement of the session.
    Statement,
    /// The client, when the session begins.
    Client,
    /// The catalog, when the session begins: who has put it there was allowed to.
    Catalog,
}

/// An isolation level by PostgreSQL's name.
pub fn isolation(value: &str) -> Option<&'static str> {
    ISOLATIONS.iter().copied().find(|known| known.eq_ignore_ascii_case(value))
}

/// PostgreSQL's names of isolation levels.
const ISOLATIONS: &[&str] = &["read uncommitted", "read committed", "repeatable read", "serializable"];

impl Settings {
    /// Those of a session that begins, which take what they need from its memory.
    pub fn of(bounds: &Bounds, memory: &Arc<Pool>) -> Self {
        let mut settings =
            Self { kept: Some(memory.reserve()), most_memory: bounds.statement_memory, ..Self::default() };
        for (name, limit) in [
            ("statement_timeout", bounds.statement_timeout),
            ("idle_in_transaction_session_timeout", bounds.idle_in_transaction_timeout),
            ("idle_session_timeout", bounds.idle_session_timeout),
        ] {
            if !limit.is_zero() {
                let limit = limit.as_millis().try_into().unwrap_or(i64::MAX);
                settings.fix(name, &Unit::Milliseconds.show_integer(limit));
            }
        }
        if bounds.statement_memory != settings.ready.query_memory {
            let memory = i64::try_from(bounds.statement_memory / 1024).unwrap_or(i64::MAX).max(1);
            settings.fix("freshet.query_memory", &Unit::Kilobytes.show_integer(memory));
        }
        settings.refresh();
        settings
    }

    /// The value of a setting; nothing when there is no such setting.
    pub fn get(&self, name: &str) -> Option<&str> {
        let name = canonical(name);
        match self.changed.get(&name) {
            Some(value) => Some(shown(&name, value)),
            None => known(&name).map(|known| known.boot.as_str()),
        }
    }

    /// The role that one of the settings that are roles is set to, and its name as it was then.
    pub fn role(&self, name: &str) -> Option<(Oid, &str)> {
        let (oid, name) = self.changed.get(name)?.split_once(' ')?;
        Some((oid.parse().ok()?, name))
    }

    /// Sets a setting that is a role, which the session may become; to none without one.
    ///
    /// # Errors
    /// 53200.
    pub fn set_role(&mut self, name: &str, role: Option<(Oid, &str)>, local: bool) -> Result<(), SqlError> {
        self.put(name, role.map(|(oid, role)| format!("{oid} {role}")), local)
    }

    /// What RESET makes of a setting.
    pub fn initial(&self, name: &str) -> Option<&str> {
        let name = canonical(name);
        self.start.get(&name).map(|value| shown(&name, value)).or_else(|| known(&name).map(|known| known.boot.as_str()))
    }

    /// The role that a setting goes back to.
    pub fn start(&self, name: &str) -> Option<(Oid, &str)> {
        let (oid, name) = self.start.get(name)?.split_once(' ')?;
        Some((oid.parse().ok()?, name))
    }

    /// All that lists have: their names, their values as SHOW shows them, what they are for.
    pub fn all(&self) -> Vec<(String, String, &'static str)> {
        let listed = self.listed().into_iter();
        listed
            .map(|(name, known)| {
                let value = self.get(&name).unwrap_or_default().to_owned();
                (known.map_or(name, |known| known.name.to_owned()), value, known.map_or("", |known| known.about))
            })
            .collect()
    }

    /// The names under which all that lists have are kept, in the order of lists.
    fn listed(&self) -> BTreeMap<String, Option<&'static Known>> {
        let known = known::all().filter(|(_, known)| known.listed);
        let mut all: BTreeMap<_, _> = known.map(|(name, known)| (name.to_owned(), Some(known))).collect();
        let custom = self.changed.keys().filter(|name| known::known(name).is_none());
        all.extend(custom.map(|name| (name.clone(), None)));
        all
    }

    /// All of them, as `pg_settings` has them.
    pub fn describe(&self) -> Vec<SettingInfo> {
        let describe = |(name, known): (String, Option<&'static Known>)| {
            let value = self.get(&name).unwrap_or_default().to_owned();
            let (mut unit, mut least, mut most, mut values) = Default::default();
            let kind = match known.map(|known| &known.kind) {
                Some(Kind::Integer(of, from, to)) => {
                    (unit, least, most) = (of.name(), Some(from.to_string()), Some(to.to_string()));
                    "integer"
                }
                Some(Kind::Real(of, from, to)) => {
                    (unit, least, most) = (of.name(), Some(value::general(*from)), Some(value::general(*to)));
                    "real"
                }
                Some(Kind::Choice(choices)) => {
                    values = Some(choices.as_slice());
                    "enum"
                }
                Some(Kind::Bool) => "bool",
                _ => "string",
            };
            let plain = |shown: &str| match known.map(|known| &known.kind) {
                Some(Kind::Integer(unit, ..) | Kind::Real(unit, ..)) => unit.plain(shown),
                _ => None,
            };
            let plain = |value: &str| plain(value).unwrap_or_else(|| value.to_owned());
            let boot = known.map(|known| plain(&known.boot));
            let start = self.start.get(&name).map(|value| plain(shown(&name, value)));
            let reset = start.clone().or_else(|| boot.clone()).unwrap_or_default();
            let value = plain(&value);
            let context = known.map_or(Context::User, |known| known.context);
            let source = match (&start, &boot) {
                _ if value != reset => "session",
                // A setting that was not set for this session is the server's.
                (Some(_), _) => self.sources.get(&name).copied().unwrap_or(match context {
                    Context::Internal => "override",
                    _ => "configuration file",
                }),
                _ => "default",
            };
            SettingInfo {
                name: known.map_or(name, |known| known.name.to_owned()),
                value,
                unit,
                kind,
                context: context.name(),
                category: known.map_or("Customized Options", |known| known.category),
                about: known.map_or("", |known| known.about),
                source,
                least,
                most,
                values,
                boot,
                reset,
            }
        };
        self.listed().into_iter().map(describe).collect()
    }

    /// The value that a setting has when it is set to this one, as SHOW shows it.
    ///
    /// # Errors
    /// As for [`Settings::set`].
    pub fn checked(&self, name: &str, value: &str, by: By) -> Result<String, SqlError> {
        let name = canonical(name);
        let Some(known) = known(&name) else {
            return match name.starts_with("freshet.") {
                false if is_custom_name(&name) => Ok(value.to_owned()),
                false if name.contains('.') => {
                    let message = format!("invalid configuration parameter name \"{name}\"");
                    let detail = "Custom parameter names must be two or more simple identifiers separated by dots.";
                    Err(SqlError::new(SqlState::INVALID_NAME, message).with_detail(detail))
                }
                _ => Err(unrecognized(&name)),
            };
        };
        self.may_change(known, by)?;
        Ok(match &known.kind {
            Kind::Role => return Err(SqlError::internal("a role is set like other settings")),
            // As PostgreSQL has it: a name, in signs that can be printed.
            Kind::Text if name == "application_name" => clipped(value)
                .bytes()
                .map(|byte| if (32..127).contains(&byte) { char::from(byte) } else { '?' })
                .collect(),
            Kind::Text if name == "default_table_access_method" && value != "heap" => {
                return Err(
                    invalid(known.name, value).with_detail(format!("Table access method \"{value}\" does not exist."))
                );
            }
            Kind::Text if name == "default_tablespace" && !matches!(value, "" | "pg_default") => {
                return Err(invalid(known.name, value).with_detail(format!("Tablespace \"{value}\" does not exist.")));
            }
            Kind::Names if value::split_names(value).is_none() => {
                return Err(invalid(known.name, value).with_detail("List syntax is invalid."));
            }
            Kind::Text | Kind::Names => value.to_owned(),
            Kind::Bool => value::boolean(known.name, value)?.to_owned(),
            Kind::Integer(unit, least, most) => {
                let shown = value::integer(known.name, *unit, *least, *most, value)?;
                if name == "freshet.query_memory"
                    && memory(&shown).is_none_or(|wanted| wanted == 0 || wanted > self.most_memory)
                {
                    let hint = format!(
                        "This server lets a statement keep from 1 to {} bytes (its setting sql.statement-memory-bytes).",
                        self.most_memory
                    );
                    return Err(invalid(known.name, value).with_hint(hint));
                }
                shown
            }
            Kind::Real(unit, least, most) => value::real(known.name, *unit, *least, *most, value)?,
            Kind::Choice(choices) => value::choice(known.name, choices, value)?.to_owned(),
            Kind::Safety if crate::commit::is_level(value) => value.to_owned(),
            Kind::Safety => return Err(invalid(known.name, value)),
            Kind::DateStyle => {
                let start = self.start.get(&name).unwrap_or(&known.boot);
                value::date_style(value, self.get(&name).unwrap_or_default(), start)?
            }
            Kind::Encoding => {
                let encoding = Encoding::named(value).ok_or_else(|| invalid(known.name, value))?;
                if !encoding.is_spoken() {
                    let message = format!("invalid value for parameter \"{}\": \"{value}\"", known.name);
                    let refused = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message);
                    let detail = format!("Conversion between {} and UTF8 is not supported.", encoding.name());
                    return Err(refused.with_detail(detail));
                }
                encoding.name().to_owned()
            }
            Kind::TimeZone => {
                let shown = match value.trim_ascii().parse::<f64>() {
                    Ok(hours) => TimeZone::fixed((hours * 3600.0) as i64).ok().map(|zone| zone.to_string()),
                    Err(_) => TimeZone::setting(value).map(|(_, shown)| shown),
                };
                shown.ok_or_else(|| invalid(known.name, value))?
            }
        })
    }

    /// Fails unless a setting can be changed like this.
    fn may_change(&self, known: &Known, by: By) -> Result<(), SqlError> {
        let refused = |why: &str| {
            let message = format!("parameter \"{}\" cannot be {why}", known.name);
            Err(SqlError::new(SqlState::CANT_CHANGE_RUNTIME_PARAM, message))
        };
        let may_all = by == By::Catalog || self.is_on("is_superuser");
        match known.context {
            Context::Internal => refused("changed"),
            Context::Postmaster => refused("changed without restarting the server"),
            Context::Sighup => refused("changed now"),
            Context::Backend | Context::SuperuserBackend if by == By::Statement => {
                refused("set after connection start")
            }
            Context::Superuser | Context::SuperuserBackend if !may_all => {
                let message = format!("permission denied to set parameter \"{}\"", known.name);
                Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message))
            }
            _ => Ok(()),
        }
    }

    /// Changes a setting, until the transaction's end if it is `local`.
    ///
    /// # Errors
    /// 42704 when none exists, 22023 when it cannot have the value, 55P02 when it cannot be
    /// changed.
    pub fn set(&mut self, name: &str, value: &str, local: bool, by: By) -> Result<(), SqlError> {
        let value = self.checked(name, value, by)?;
        self.put(&canonical(name), Some(value), local)
    }

    /// Makes a setting what it was at the start.
    ///
    /// # Errors
    /// As for [`Settings::set`].
    pub fn reset(&mut self, name: &str, local: bool) -> Result<(), SqlError> {
        let name = canonical(name);
        let known = known(&name);
        match known {
            None if !is_custom_name(&name) || name.starts_with("freshet.") => return Err(unrecognized(&name)),
            Some(known) => self.may_change(known, By::Statement)?,
            None => {}
        }
        // One that is nobody's is there, and empty, once it was named.
        let value = self.start.get(&name).cloned().or_else(|| known.is_none().then(String::new));
        self.put(&name, value, local)
    }

    /// Resets all settings except roles to what they were at the start, as PostgreSQL does.
    pub fn reset_all(&mut self) {
        let names: Vec<String> = self.changed.keys().cloned().collect();
        let changeable = |name: &&String| known(name).is_none_or(|known| known.kind != Kind::Role);
        for name in names.iter().filter(changeable) {
            // Those that cannot be changed keep their values.
            let _ = self.reset(name, false);
        }
    }

    fn put(&mut self, name: &str, value: Option<String>, local: bool) -> Result<(), SqlError> {
        let there = self.changed.get(name);
        let behind = self.savepoints.last().copied().unwrap_or(0);
        let undone = self.undo[behind..].iter().any(|undo| undo.name == name);
        let noted = self.in_transaction && !undone;
        if let Some(kept) = &self.kept {
            // The value that is there goes to one of these places; the other one has a copy.
            let places = usize::from(local && !self.local.contains_key(name)) + usize::from(noted);
            let copies = places.saturating_sub(1);
            let outlives =
                self.local.get(name).filter(|_| noted && local).map_or(0, |it| size_of_one(name, it.as_ref()));
            kept.take(size_of_one(name, value.as_ref()) + copies * size_of_one(name, there) + outlives)?;
        }
        if noted {
            let (value, local) = (there.cloned(), self.local.get(name).cloned());
            self.undo.push(Undo { name: name.to_owned(), value, local });
        }
        if local {
            let there = there.cloned();
            self.local.entry(name.to_owned()).or_insert(there);
        } else {
            // It outlives the transaction, whatever was local before.
            self.local.remove(name);
        }
        self.place(name, value);
        self.refresh();
        Ok(())
    }

    fn place(&mut self, name: &str, value: Option<String>) {
        match value {
            Some(value) => self.changed.insert(name.to_owned(), value),
            None => self.changed.remove(name),
        };
    }

    /// Gives back what is not needed any more.
    fn count(&self) {
        if let Some(kept) = &self.kept {
            let local: usize = self.local.iter().map(|(name, value)| size_of_one(name, value.as_ref())).sum();
            let undo = self.undo.iter().map(|undo| {
                let local = undo.local.as_ref().map_or(0, |value| size_of_one("", value.as_ref()));
                size_of_one(&undo.name, undo.value.as_ref()) + local
            });
            let all = local + undo.sum::<usize>() + size_of_all(&self.changed) + size_of_all(&self.start);
            // What is there is there; it never is more than was taken, but for what the server
            // itself says.
            let _ = kept.set(all);
        }
    }

    /// Something has changed.
    fn refresh(&mut self) {
        self.generation += 1;
        self.count();
        let zone = datetime::TimeZone::parse(self.get("timezone").unwrap_or("UTC"));
        let formats = formats(
            self.get("datestyle").unwrap_or_default(),
            self.get("intervalstyle").unwrap_or_default(),
            self.get("bytea_output") == Some("escape"),
            self.get("extra_float_digits").and_then(|digits| digits.parse().ok()).unwrap_or(1),
        );
        self.ready = Ready {
            logged: Logged::of(self),
            encoding: self.get("client_encoding").and_then(Encoding::named).unwrap_or(Encoding::UTF8),
            zone: zone.unwrap_or(TimeZone::Utc),
            formats,
            statement_timeout: self.limit("statement_timeout"),
            lock_timeout: self.limit("lock_timeout"),
            idle: self.limit("idle_session_timeout"),
            idle_in_transaction: self.limit("idle_in_transaction_session_timeout"),
            waits_for_view: self.get("freshet.read_after").is_some_and(|lsn| !lsn.is_empty())
                || self.limit("freshet.max_staleness").is_some(),
            query_memory: self.memory("freshet.query_memory"),
            isolation: self.get("default_transaction_isolation").and_then(isolation).unwrap_or("read committed"),
            read_only: self.is_on("default_transaction_read_only"),
            deferrable: self.is_on("default_transaction_deferrable"),
            level: Level::of(self),
            commit_lsns: self.is_on("freshet.commit_lsns"),
            sends: match self.get("client_min_messages").unwrap_or_default() {
                "warning" => (false, true),
                "error" => (false, false),
                _ => (true, true),
            },
            literals: Rules {
                standard: self.is_on("standard_conforming_strings"),
                warns: self.is_on("escape_string_warning"),
                quotes: match self.get("backslash_quote") {
                    Some("off") => false,
                    Some("on") => true,
                    _ => !self.get("client_encoding").and_then(Encoding::named).is_some_and(Encoding::hides_ascii),
                },
            },
        };
    }

    /// What the server itself says of the session, which clients cannot change.
    pub fn fix(&mut self, name: &str, value: &str) {
        self.generation += 1;
        self.changed.insert(name.to_owned(), value.to_owned());
    }

    /// The source of the value of a setting that the client has not set.
    pub fn came_from(&mut self, source: &'static str, name: &str) {
        self.sources.insert(canonical(name), source);
    }

    /// What is set now is what RESET goes back to.
    pub fn started(&mut self) {
        self.start.clone_from(&self.changed);
        self.local.clear();
        self.undo.clear();
        self.savepoints.clear();
        self.refresh();
    }

    /// A transaction begins.
    pub fn begin(&mut self) {
        self.in_transaction = true;
    }

    /// A transaction ends.
    pub fn end(&mut self, committed: bool) {
        self.in_transaction = false;
        self.savepoints.clear();
        if self.undo.is_empty() && self.local.is_empty() {
            return;
        }
        if !committed {
            return self.undo_to(0);
        }
        self.undo.clear();
        let local = std::mem::take(&mut self.local);
        self.changed_back(local);
    }

    /// A savepoint is set.
    pub fn savepoint(&mut self) {
        self.savepoints.push(self.undo.len());
    }

    /// Only this many savepoints are left: the others are released.
    pub fn release(&mut self, savepoints: usize) {
        self.savepoints.truncate(savepoints);
    }

    /// Takes back what was changed after the last of this many savepoints.
    pub fn roll_back_to(&mut self, savepoints: usize) {
        self.release(savepoints);
        let behind = self.savepoints.last().copied().unwrap_or(0);
        self.undo_to(behind);
    }

    fn undo_to(&mut self, behind: usize) {
        let mut back = BTreeMap::new();
        // The last change that is taken back is the first that was made.
        while self.undo.len() > behind
            && let Some(Undo { name, value, local }) = self.undo.pop()
        {
            match local {
                Some(local) => self.local.insert(name.clone(), local),
                None => self.local.remove(&name),
            };
            back.insert(name, value);
        }
        self.changed_back(back);
    }

    /// Gives settings the values that they had.
    fn changed_back(&mut self, values: BTreeMap<String, Option<String>>) {
        let mut changed = false;
        for (name, value) in values {
            if self.changed.get(&name) != value.as_ref() {
                self.place(&name, value);
                changed = true;
            }
        }
        if changed {
            self.refresh();
        } else {
            self.count();
        }
    }

    /// A time limit; nothing when none exists.
    pub fn limit(&self, name: &str) -> Option<Duration> {
        duration(self.get(name)?)
    }

    /// A number of bytes.
    fn memory(&self, name: &str) -> usize {
        self.get(name).and_then(memory).unwrap_or(256 << 20)
    }

    /// Whether a setting is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name).and_then(truth) == Some(true)
    }

    /// The schemas of the search path, by name.
    pub fn search_path(&self, user: &str) -> Vec<String> {
        let names = value::split_names(self.get("search_path").unwrap_or_default()).unwrap_or_default();
        names.into_iter().map(|name| if name == "$user" { user.to_owned() } else { name }).collect()
    }
}

/// The name under which a setting is kept.
pub fn canonical(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "time zone" => "timezone".to_owned(),
        _ => name,
    }
}

/// How a setting is shown, by the name under which it is kept.
pub fn display_name(name: &str) -> &str {
    known(name).map_or(name, |known| known.name)
}

/// The error 42704: no setting has this name.
pub fn unrecognized(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

/// The value that a statement gives a setting, which has these parts.
///
/// # Errors
/// 22023 when there are several, and the setting takes one.
pub fn of_parts(name: &str, parts: &[String]) -> Result<String, SqlError> {
    let name = canonical(name);
    match (parts, known(&name).map(|known| &known.kind)) {
        (parts, Some(Kind::Names)) => Ok(value::names(parts)),
        ([one], _) => Ok(one.clone()),
        (parts, Some(Kind::DateStyle)) => Ok(parts.join(", ")),
        (_, known) => {
            let known = known.is_some() || name.contains('.');
            let message = format!("SET {name} takes only one argument");
            Err(if known { SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message) } else { unrecognized(&name) })
        }
    }
}

/// The engine's level for one of PostgreSQL's.
pub fn engine_isolation(level: &str) -> Isolation {
    if level == "serializable" { Isolation::Serializable } else { Isolation::Snapshot }
}
