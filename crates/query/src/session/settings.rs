//! Settings of a session: what SET, SHOW and the start-up packet know.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use freshet_engine::Isolation;
use freshet_sql::{
    SqlError, SqlState,
    memory::{Pool, Reservation},
    types::{
        Formats, TimeZone,
        datetime::{self, IntervalStyle},
    },
};

use crate::{commit::Level, schema::Oid, system::activity::SettingInfo};

/// How a setting is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Bool,
    /// Milliseconds, or with a unit.
    Time,
    /// Bytes, or with a unit.
    Memory,
    Isolation,
    Safety,
    TimeZone,
    DateStyle,
    /// From -15 to 3.
    FloatDigits,
    /// Its value cannot be changed.
    Fixed,
    /// A role: the session sets it, since it knows which roles it may become
    /// ([`Settings::set_role`]).
    Role,
    /// One of these.
    Choice(&'static [&'static str]),
}

const INTERVAL_STYLES: &[&str] = &["postgres", "postgres_verbose", "sql_standard", "iso_8601"];

/// What there is: name, value at the start, kind, whether clients are told of changes.
const KNOWN: &[(&str, &str, Kind, bool)] = &[
    ("application_name", "", Kind::Text, true),
    ("bytea_output", "hex", Kind::Choice(&["hex", "escape"]), false),
    ("check_function_bodies", "on", Kind::Bool, false),
    ("client_encoding", "UTF8", Kind::Choice(&["utf8", "utf-8", "unicode", "sql_ascii"]), true),
    ("client_min_messages", "notice", Kind::Text, false),
    ("datestyle", "ISO, MDY", Kind::DateStyle, true),
    ("default_table_access_method", "heap", Kind::Text, false),
    ("default_tablespace", "", Kind::Text, false),
    ("default_transaction_deferrable", "off", Kind::Bool, false),
    ("default_transaction_isolation", "read committed", Kind::Isolation, false),
    ("default_transaction_read_only", "off", Kind::Bool, true),
    ("extra_float_digits", "1", Kind::FloatDigits, false),
    ("freshet.commit_stamps", "off", Kind::Bool, false),
    ("freshet.last_commit", "", Kind::Fixed, true),
    ("freshet.max_staleness", "0", Kind::Time, false),
    ("freshet.query_memory", "256MB", Kind::Memory, false),
    ("freshet.read_after", "", Kind::Text, false),
    ("freshet.read_after_timeout", "10s", Kind::Time, false),
    ("freshet.safety", "", Kind::Safety, false),
    ("geqo", "on", Kind::Bool, false),
    ("idle_in_transaction_session_timeout", "0", Kind::Time, false),
    ("idle_session_timeout", "0", Kind::Time, false),
    ("in_hot_standby", "off", Kind::Fixed, true),
    ("integer_datetimes", "on", Kind::Fixed, true),
    ("intervalstyle", "postgres", Kind::Choice(INTERVAL_STYLES), true),
    ("is_superuser", "on", Kind::Fixed, true),
    ("jit", "off", Kind::Bool, false),
    ("lc_collate", "C", Kind::Fixed, false),
    ("lc_ctype", "C.UTF-8", Kind::Fixed, false),
    ("lc_messages", "C", Kind::Text, false),
    ("lc_monetary", "C", Kind::Text, false),
    ("lc_numeric", "C", Kind::Text, false),
    ("lc_time", "C", Kind::Text, false),
    ("lock_timeout", "0", Kind::Time, false),
    ("max_connections", "100", Kind::Fixed, false),
    ("max_identifier_length", "63", Kind::Fixed, false),
    ("max_index_keys", "32", Kind::Fixed, false),
    ("role", "none", Kind::Role, false),
    ("row_security", "on", Kind::Bool, false),
    ("search_path", "\"$user\", public", Kind::Text, false),
    ("server_encoding", "UTF8", Kind::Fixed, true),
    ("server_version", "15.0", Kind::Fixed, true),
    ("server_version_num", "150000", Kind::Fixed, false),
    ("session_authorization", "", Kind::Role, true),
    ("standard_conforming_strings", "on", Kind::Choice(&["on", "true", "yes", "1"]), true),
    ("statement_timeout", "0", Kind::Time, false),
    (
        "synchronous_commit",
        "on",
        Kind::Choice(&["on", "off", "local", "remote_write", "remote_apply", "true", "false", "yes", "no", "1", "0"]),
        false,
    ),
    ("synchronize_seqscans", "on", Kind::Bool, false),
    ("timezone", "UTC", Kind::TimeZone, true),
    ("transaction_deferrable", "off", Kind::Bool, false),
    ("transaction_isolation", "read committed", Kind::Isolation, false),
    ("transaction_read_only", "off", Kind::Bool, false),
    ("wal_level", "replica", Kind::Fixed, false),
    ("work_mem", "4MB", Kind::Memory, false),
    ("xmloption", "content", Kind::Text, false),
];

/// What extra_float_digits can be.
const FLOAT_DIGITS: std::ops::RangeInclusive<i64> = -15..=3;

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
        let remedy = "Close cursors, deallocate statements, or raise the server's setting sql.session-memory-bytes.";
        server.below("session", self.session_memory, remedy)
    }
}

/// Settings that every statement needs.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// TimeZone
    pub zone: TimeZone,
    /// DateStyle, IntervalStyle, bytea_output and extra_float_digits.
    pub formats: Formats,
    /// statement_timeout
    pub statement_timeout: Option<Duration>,
    /// lock_timeout
    pub lock_timeout: Option<Duration>,
    /// freshet.query_memory, in bytes.
    pub query_memory: usize,
    /// default_transaction_isolation
    pub isolation: &'static str,
    /// default_transaction_read_only
    pub read_only: bool,
    /// What a commit waits for.
    pub level: Level,
    /// freshet.commit_stamps
    pub commit_stamps: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let ready = Ready {
            zone: TimeZone::Utc,
            formats: Formats::default(),
            statement_timeout: None,
            lock_timeout: None,
            query_memory: 256 << 20,
            isolation: "read committed",
            read_only: false,
            level: Level::Node,
            commit_stamps: false,
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
        }
    }
}

fn size_of_one(name: &str, value: Option<&String>) -> usize {
    2 * size_of::<String>() + name.len() + value.map_or(0, String::len)
}

fn size_of_all(settings: &BTreeMap<String, String>) -> usize {
    settings.iter().map(|(name, value)| size_of_one(name, Some(value))).sum()
}

fn known(name: &str) -> Option<&'static (&'static str, &'static str, Kind, bool)> {
    KNOWN.iter().find(|(known, ..)| *known == name)
}

/// A setting's value as clients know it: of a role, its id is kept, too.
fn shown<'v>(name: &str, value: &'v str) -> &'v str {
    match (name, value.split_once(' ')) {
        ("role" | "session_authorization", Some((_, role))) => role,
        _ => value,
    }
}

fn invalid(name: &str, value: &str) -> SqlError {
    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// A truth value as settings write them.
pub fn truth(value: &str) -> Option<bool> {
    let value = value.to_ascii_lowercase();
    match value.as_str() {
        "on" | "1" => Some(true),
        "off" | "0" => Some(false),
        _ if !value.is_empty() && ("true".starts_with(&value) || "yes".starts_with(&value)) => Some(true),
        _ if !value.is_empty() && ("false".starts_with(&value) || "no".starts_with(&value)) => Some(false),
        _ => None,
    }
}

fn number_and_unit(value: &str) -> Option<(f64, &str)> {
    let value = value.trim();
    let end = value.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
}

/// As much of a name as names can have: 63 bytes, and no part of a character.
pub fn clipped(name: &str) -> &str {
    const LONGEST: usize = 63;
    let end = name.char_indices().map(|(at, character)| at + character.len_utf8());
    &name[..end.take_while(|end| *end <= LONGEST).last().unwrap_or(0)]
}

fn duration(value: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(value)?;
    let milliseconds = match unit {
        "us" => 0.001,
        "" | "ms" => 1.0,
        "s" => 1e3,
        "min" => 6e4,
        "h" => 3.6e6,
        "d" => 8.64e7,
        _ => return None,
    };
    let all = number * milliseconds;
    (0.0..=2_147_483_647.0).contains(&all).then(|| Duration::from_micros((all * 1000.0) as u64))
}

fn bytes(value: &str) -> Option<usize> {
    let (number, unit) = number_and_unit(value)?;
    let by = match unit {
        "B" => 1.0,
        "" | "kB" => 1024.0,
        "MB" => 1048576.0,
        "GB" => 1073741824.0,
        "TB" => 1099511627776.0,
        _ => return None,
    };
    (number >= 0.0 && number * by < 1e15).then_some((number * by) as usize)
}

/// An isolation level by PostgreSQL's name.
pub fn isolation(value: &str) -> Option<&'static str> {
    let value = value.to_ascii_lowercase();
    ISOLATIONS.iter().copied().find(|known| *known == value)
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
                settings.fix(name, &limit.as_millis().to_string());
            }
        }
        if bounds.statement_memory != settings.ready.query_memory {
            settings.fix("freshet.query_memory", &format!("{}B", bounds.statement_memory));
        }
        settings.refresh();
        settings
    }

    /// The value of a setting; nothing when there is no such setting.
    pub fn get(&self, name: &str) -> Option<&str> {
        let name = canonical(name);
        match self.changed.get(&name) {
            Some(value) => Some(shown(&name, value)),
            None => known(&name).map(|(_, value, ..)| *value),
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

    /// What a setting goes back to.
    pub fn start(&self, name: &str) -> Option<(Oid, &str)> {
        let (oid, name) = self.start.get(name)?.split_once(' ')?;
        Some((oid.parse().ok()?, name))
    }

    /// All of them.
    pub fn all(&self) -> Vec<(String, String)> {
        let mut all: BTreeMap<String, String> =
            KNOWN.iter().map(|(name, value, ..)| ((*name).to_owned(), (*value).to_owned())).collect();
        all.extend(self.changed.iter().map(|(name, value)| (name.clone(), shown(name, value).to_owned())));
        all.into_iter().collect()
    }

    /// All of them, as `pg_settings` has them.
    pub fn describe(&self) -> Vec<SettingInfo> {
        let all = self.all().into_iter();
        all.map(|(name, value)| {
            let known = known(&name);
            let kind = known.map_or(Kind::Text, |(_, _, kind, _)| *kind);
            let milliseconds = |value: &str| duration(value).map(|time| time.as_millis().to_string());
            let kilobytes = |value: &str| bytes(value).map(|bytes| (bytes / 1024).to_string());
            let (unit, ty) = match kind {
                Kind::Time => (Some("ms"), "integer"),
                Kind::Memory => (Some("kB"), "integer"),
                Kind::FloatDigits => (None, "integer"),
                Kind::Bool => (None, "bool"),
                Kind::Choice(_) | Kind::Isolation => (None, "enum"),
                Kind::Text | Kind::Safety | Kind::TimeZone | Kind::DateStyle | Kind::Fixed | Kind::Role => {
                    (None, "string")
                }
            };
            let plain = |value: &str| match kind {
                Kind::Time => milliseconds(value),
                Kind::Memory => kilobytes(value),
                _ => None,
            };
            let plain = |value: &str| plain(value).unwrap_or_else(|| value.to_owned());
            let boot = known.map(|(_, value, ..)| plain(value));
            let start = self.start.get(&name).map(|value| plain(shown(&name, value)));
            let reset = start.clone().or_else(|| boot.clone()).unwrap_or_default();
            let value = plain(&value);
            let source = match (&start, &boot) {
                _ if value != reset => "session",
                // A setting that was not set for this session is the server's.
                (Some(_), _) => self.sources.get(&name).copied().unwrap_or(match kind {
                    Kind::Fixed => "override",
                    _ => "configuration file",
                }),
                _ => "default",
            };
            SettingInfo {
                name: known.map_or(name.clone(), |(known, ..)| display_name(known).to_owned()),
                value,
                unit,
                kind: ty,
                changeable: kind != Kind::Fixed,
                source,
                values: match kind {
                    Kind::Choice(values) => Some(values),
                    Kind::Isolation => Some(ISOLATIONS),
                    _ => None,
                },
                boot,
                reset,
            }
        })
        .collect()
    }

    /// Changes a setting, until the transaction's end if it is `local`. Returns its new value if clients are told of it.
    ///
    /// # Errors
    /// 42704 when there is none, 22023 when it cannot have the value, 55P02 when it cannot be changed.
    pub fn set(&mut self, name: &str, value: &str, local: bool) -> Result<Option<(&'static str, String)>, SqlError> {
        let name = canonical(name);
        let Some((known_name, _, kind, reported)) = known(&name) else {
            // Names with a point are for whoever wants to use them.
            if name.contains('.') && !name.starts_with("freshet.") {
                self.put(&name, Some(value.to_owned()), local)?;
                return Ok(None);
            }
            let message = format!("unrecognized configuration parameter \"{name}\"");
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        };
        let invalid = || invalid(&name, value);
        let value = match kind {
            Kind::Fixed => {
                if self.get(&name) == Some(value) {
                    return Ok(None);
                }
                let message = format!("parameter \"{name}\" cannot be changed");
                return Err(SqlError::new(SqlState::CANT_CHANGE_RUNTIME_PARAM, message));
            }
            Kind::Role => return Err(SqlError::internal("a role is set like other settings")),
            // As PostgreSQL has it: a name, in signs that can be printed.
            Kind::Text if name == "application_name" => clipped(value)
                .bytes()
                .map(|byte| if (32..127).contains(&byte) { char::from(byte) } else { '?' })
                .collect(),
            Kind::Text => value.to_owned(),
            Kind::Bool => match truth(value) {
                Some(true) => "on".to_owned(),
                Some(false) => "off".to_owned(),
                None => {
                    let message = format!("parameter \"{name}\" requires a Boolean value");
                    return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
                }
            },
            Kind::Time => duration(value).map(|_| value.to_owned()).ok_or_else(invalid)?,
            Kind::Memory => {
                let wanted = bytes(value).ok_or_else(invalid)?;
                if name == "freshet.query_memory" && (wanted == 0 || wanted > self.most_memory) {
                    let hint = format!(
                        "This server lets a statement keep from 1 to {} bytes (its setting sql.statement-memory-bytes).",
                        self.most_memory
                    );
                    return Err(invalid().with_hint(hint));
                }
                value.to_owned()
            }
            Kind::FloatDigits => {
                let digits = value.trim().parse::<i64>().map_err(|_| invalid())?;
                if !FLOAT_DIGITS.contains(&digits) {
                    let message = format!(
                        "{digits} is outside the valid range for parameter \"{name}\" ({} .. {})",
                        FLOAT_DIGITS.start(),
                        FLOAT_DIGITS.end()
                    );
                    return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
                }
                digits.to_string()
            }
            Kind::DateStyle => {
                let formats = self.ready.formats.with_date_style(value);
                formats.ok_or_else(|| self::invalid("DateStyle", value))?.date_style()
            }
            Kind::Isolation => isolation(value).map(str::to_owned).ok_or_else(invalid)?,
            Kind::Safety => crate::commit::is_level(value).then(|| value.to_owned()).ok_or_else(invalid)?,
            Kind::Choice(choices) => {
                let lower = value.to_ascii_lowercase();
                choices.iter().any(|choice| *choice == lower).then(|| value.to_owned()).ok_or_else(invalid)?
            }
            Kind::TimeZone => {
                self.check_zone(value)?;
                value.to_owned()
            }
        };
        let value = if name == "client_encoding" { "UTF8".to_owned() } else { value };
        self.put(&name, Some(value.clone()), local)?;
        Ok(reported.then(|| (display_name(known_name), value)))
    }

    fn check_zone(&self, value: &str) -> Result<(), SqlError> {
        datetime::TimeZone::parse(value).map(drop).map_err(|_| invalid("TimeZone", value))
    }

    /// Makes a setting what it was at the start.
    ///
    /// # Errors
    /// As for [`Settings::set`].
    pub fn reset(&mut self, name: &str) -> Result<Option<(&'static str, String)>, SqlError> {
        let name = canonical(name);
        let value = match self.start.get(&name) {
            Some(value) => value.clone(),
            None => known(&name).map_or_else(String::new, |(_, value, ..)| (*value).to_owned()),
        };
        self.set(&name, &value, false)
    }

    /// Resets all settings except roles to what they were at the start, as PostgreSQL does. Returns
    /// what to tell the client.
    pub fn reset_all(&mut self) -> Vec<(&'static str, String)> {
        let names: Vec<String> = self.changed.keys().cloned().collect();
        let changeable =
            |name: &&String| known(name).is_none_or(|(_, _, kind, _)| !matches!(kind, Kind::Fixed | Kind::Role));
        names.iter().filter(changeable).filter_map(|name| self.reset(name).ok().flatten()).collect()
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
        let mut formats = Formats::default();
        if let Some(style) = self.get("datestyle").and_then(|style| formats.with_date_style(style)) {
            formats = style;
        }
        formats.interval = self.get("intervalstyle").and_then(IntervalStyle::named).unwrap_or_default();
        formats.bytea_escape = self.get("bytea_output").is_some_and(|output| output.eq_ignore_ascii_case("escape"));
        formats.float_digits = self.get("extra_float_digits").and_then(|digits| digits.parse().ok()).unwrap_or(1);
        self.ready = Ready {
            zone: zone.unwrap_or(TimeZone::Utc),
            formats,
            statement_timeout: self.limit("statement_timeout"),
            lock_timeout: self.limit("lock_timeout"),
            query_memory: self.memory("freshet.query_memory"),
            isolation: self.get("default_transaction_isolation").and_then(isolation).unwrap_or("read committed"),
            read_only: self.is_on("default_transaction_read_only"),
            level: Level::of(self),
            commit_stamps: self.is_on("freshet.commit_stamps"),
        };
    }

    /// What the server itself says of the session, which clients cannot change.
    pub fn fix(&mut self, name: &str, value: &str) {
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

    /// A transaction ends. Returns what clients are told of.
    pub fn end(&mut self, committed: bool) -> Vec<(&'static str, String)> {
        self.in_transaction = false;
        self.savepoints.clear();
        if self.undo.is_empty() && self.local.is_empty() {
            return Vec::new();
        }
        if !committed {
            return self.undo_to(0);
        }
        self.undo.clear();
        let local = std::mem::take(&mut self.local);
        self.changed_back(local)
    }

    /// A savepoint is set.
    pub fn savepoint(&mut self) {
        self.savepoints.push(self.undo.len());
    }

    /// Only this many savepoints are left: the others are released.
    pub fn release(&mut self, savepoints: usize) {
        self.savepoints.truncate(savepoints);
    }

    /// Takes back what was changed after the last of this many savepoints. Returns what to tell the
    /// client.
    pub fn roll_back_to(&mut self, savepoints: usize) -> Vec<(&'static str, String)> {
        self.release(savepoints);
        let behind = self.savepoints.last().copied().unwrap_or(0);
        self.undo_to(behind)
    }

    fn undo_to(&mut self, behind: usize) -> Vec<(&'static str, String)> {
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
        self.changed_back(back)
    }

    /// Gives settings the values that they had. Returns what to tell the client.
    fn changed_back(&mut self, values: BTreeMap<String, Option<String>>) -> Vec<(&'static str, String)> {
        let mut changed = Vec::new();
        for (name, value) in values {
            if self.changed.get(&name) != value.as_ref() {
                self.place(&name, value);
                changed.push(name);
            }
        }
        if changed.is_empty() {
            self.count();
        } else {
            self.refresh();
        }
        let mut told = Vec::new();
        for name in changed {
            if let Some((known_name, _, _, true)) = known(&name) {
                told.push((display_name(known_name), self.get(&name).unwrap_or_default().to_owned()));
            }
        }
        told
    }

    /// A time limit; nothing when there is none.
    pub fn limit(&self, name: &str) -> Option<Duration> {
        duration(self.get(name)?).filter(|limit| !limit.is_zero())
    }

    /// A number of bytes.
    fn memory(&self, name: &str) -> usize {
        self.get(name).and_then(bytes).unwrap_or(256 << 20)
    }

    /// Whether a setting is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name).and_then(truth) == Some(true)
    }

    /// The schemas of the search path, by name.
    pub fn search_path(&self, user: &str) -> Vec<String> {
        let path = self.get("search_path").unwrap_or_default();
        let names = path.split(',').map(str::trim).filter(|name| !name.is_empty());
        names
            .map(|name| {
                match name
                    .strip_prefix('"')
                    .and_then(|name| name.strip_suffix('"'))
                    .or_else(|| name.strip_prefix('\'').and_then(|name| name.strip_suffix('\'')))
                {
                    Some("$user") => user.to_owned(),
                    Some(quoted) => quoted.replace("\"\"", "\""),
                    None if name == "$user" => user.to_owned(),
                    None => name.to_lowercase(),
                }
            })
            .collect()
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

/// How clients know a setting.
pub fn display_name(name: &'static str) -> &'static str {
    match name {
        "timezone" => "TimeZone",
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        other => other,
    }
}

/// The engine's level for one of PostgreSQL's.
pub fn engine_isolation(level: &str) -> Isolation {
    if level == "serializable" { Isolation::Serializable } else { Isolation::Snapshot }
}
