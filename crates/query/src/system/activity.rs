//! What happens now: sessions, locks, cursors, settings.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering},
    },
    time::Duration,
};

use freshet_base::wait::{WaitList, Waiter};
use freshet_engine::NodeStatus;
use freshet_postgres::Peer;
use freshet_sql::{
    Kind, SqlError, Value,
    types::{Array, Timestamp},
};

use super::{
    Generator,
    sink::{NULL, Sink, row, texts},
    size::TableSize,
};
use crate::{
    advisory::AdvisoryLock,
    locks::{LockMode, TableLock},
    relations::{self, Snapshot},
    schema::{Oid, Sequence, TableInfo},
    sequence::Position,
    statistics::{SessionCounts, Totals, totals::Counting},
};

/// The relations of this module.
pub(super) const RELATIONS: &[(&str, Generator)] = &[
    ("pg_stat_activity", pg_stat_activity),
    ("pg_stat_ssl", pg_stat_ssl),
    ("pg_locks", pg_locks),
    ("pg_cursors", pg_cursors),
    ("pg_prepared_statements", pg_prepared_statements),
    ("pg_settings", pg_settings),
];

/// The server, as the system's relations see it at the moment that they are read.
pub trait SystemView: fmt::Debug + Send + Sync {
    /// When it was started.
    fn started(&self) -> Timestamp;

    /// Whether it is a standby now.
    fn is_standby(&self) -> bool;

    /// Who is connected.
    fn sessions(&self) -> Vec<Arc<SessionInfo>>;

    /// Where its sessions are, and the sums of what they count; nothing where none can be.
    fn registry(&self) -> Option<&Registry>;

    /// Which tables are locked, and which locks on them are waited for.
    fn table_locks(&self) -> Vec<TableLock>;

    /// The same of advisory locks.
    fn advisory_locks(&self) -> Vec<AdvisoryLock>;

    /// What a session waits for, by its number among the engine's workers, if it waits for others.
    fn wait(&self, place: usize) -> Option<Wait>;

    /// The node; nothing where none exists.
    fn status(&self) -> Option<NodeStatus>;

    /// About how many rows a table has; nothing when that cannot be found out now. Looks at a few
    /// paths of its index.
    fn approximate_rows(&self, info: &TableInfo) -> Option<u64>;

    /// About how much a table takes; nothing when that cannot be found out now.
    fn table_size(&self, info: &TableInfo) -> Option<TableSize>;

    /// About how much the tables of a database take, in bytes; nothing when there is no such
    /// database, or when that cannot be found out now.
    fn database_size(&self, database: Oid) -> Option<u64>;

    /// Where a sequence stands.
    ///
    /// # Errors
    /// When that cannot be read.
    fn sequence_position(&self, sequence: &Sequence) -> Result<Position, SqlError>;
}

/// A session waits for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// For what, as `pg_stat_activity` has it.
    pub event: &'static str,
    /// For whom: numbers of sessions among the engine's workers.
    pub by: Vec<usize>,
}

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Activity {
    /// Nothing, outside of a transaction.
    Idle,
    /// It runs a statement.
    Active,
    /// Nothing, within a transaction.
    InTransaction,
    /// Nothing, within a transaction that has failed.
    Failed,
}

impl Activity {
    fn of(code: u8) -> Self {
        match code {
            0 => Self::Idle,
            1 => Self::Active,
            2 => Self::InTransaction,
            _ => Self::Failed,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Active => "active",
            Self::InTransaction => "idle in transaction",
            Self::Failed => "idle in transaction (aborted)",
        }
    }
}

/// One session, as others see it. The session itself changes it, without ever waiting for those who
/// look.
#[derive(Debug)]
pub struct SessionInfo {
    /// The session's number, which clients know as the process id of their server.
    pub pid: i32,
    /// Its number among the engine's workers.
    pub place: usize,
    /// The role that has opened it.
    pub user: String,
    /// That role's id.
    pub role: Oid,
    /// The name of the session's database.
    pub database: String,
    /// That database's id.
    pub database_id: Oid,
    /// Where its client is, and how it comes.
    pub peer: Peer,
    /// When it was opened.
    pub started: Timestamp,
    waiter: Waiter,
    activity: AtomicU8,
    /// Microseconds, as in [`Timestamp`]; the smallest number for none.
    changed: AtomicI64,
    statement_start: AtomicI64,
    transaction_start: AtomicI64,
    texts: Mutex<Texts>,
    /// What it counts.
    pub counts: Arc<SessionCounts>,
    /// What it has counted is among what ended sessions have: changed within the totals' lock.
    ended: AtomicBool,
}

#[derive(Clone, Debug)]
struct Texts {
    statement: Arc<str>,
    application: Arc<str>,
}

const NEVER: i64 = i64::MIN;

fn time(of: &AtomicI64) -> Option<Timestamp> {
    // Relaxed, as everywhere here: each of these is looked at by itself.
    Some(of.load(Ordering::Relaxed)).filter(|micros| *micros != NEVER).map(Timestamp)
}

/// Who a session is.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'i> {
    /// The session's number, which clients know as the process id of their server.
    pub pid: i32,
    /// Its number among the engine's workers.
    pub place: usize,
    /// The role that has opened it.
    pub user: &'i str,
    /// That role's id.
    pub role: Oid,
    /// Its database: the id and the name.
    pub database: (Oid, &'i str),
    /// Where its client is, and how it comes.
    pub peer: &'i Peer,
}

impl SessionInfo {
    /// A session that was opened now, in the calling thread.
    pub fn new(who: Identity<'_>) -> Self {
        let now = Timestamp::now();
        Self {
            pid: who.pid,
            place: who.place,
            user: who.user.to_owned(),
            role: who.role,
            database: who.database.1.to_owned(),
            database_id: who.database.0,
            peer: who.peer.clone(),
            started: now,
            waiter: Waiter::current(),
            activity: AtomicU8::new(Activity::Idle as u8),
            changed: AtomicI64::new(now.0),
            statement_start: AtomicI64::new(NEVER),
            transaction_start: AtomicI64::new(NEVER),
            texts: Mutex::new(Texts { statement: "".into(), application: "".into() }),
            counts: Arc::new(SessionCounts::new(who.database.0)),
            ended: AtomicBool::new(false),
        }
    }

    /// A statement begins now, whose text is shown; within a transaction that has begun then, or
    /// with it.
    pub fn begin(&self, statement: Arc<str>, now: Timestamp, transaction: Option<Timestamp>) {
        // Relaxed: who sees the text, behind its lock, sees that the statement runs, or has ended.
        self.activity.store(Activity::Active as u8, Ordering::Relaxed);
        self.statement_start.store(now.0, Ordering::Relaxed);
        self.transaction_start.store(transaction.unwrap_or(now).0, Ordering::Relaxed);
        self.changed.store(now.0, Ordering::Relaxed);
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).statement = statement;
    }

    /// One statement of a text has ended, and the next one begins.
    pub fn next(&self) -> Option<Duration> {
        let now = Timestamp::now();
        let ran = self.count_until(now);
        self.changed.store(now.0, Ordering::Relaxed);
        ran
    }

    /// The session waits for its client, within a transaction that has begun then, if it is in one.
    pub fn rest(&self, activity: Activity, transaction: Option<Timestamp>) -> Option<Duration> {
        let mut ran = None;
        if self.activity.load(Ordering::Relaxed) != activity as u8 {
            let now = Timestamp::now();
            ran = self.count_until(now);
            self.activity.store(activity as u8, Ordering::Relaxed);
            self.changed.store(now.0, Ordering::Relaxed);
        }
        self.transaction_start.store(transaction.map_or(NEVER, |begun| begun.0), Ordering::Relaxed);
        ran
    }

    /// How long it had lasted then, in microseconds.
    fn lasted_at(&self, now: Timestamp) -> u64 {
        u64::try_from(now.0.saturating_sub(self.started.0)).unwrap_or(0)
    }

    /// Counts what it has done since that changed last. Returns how long a statement has run, if
    /// that is what it has done.
    pub fn count_until(&self, now: Timestamp) -> Option<Duration> {
        let micros = now.0.saturating_sub(self.changed.load(Ordering::Relaxed));
        let lasted = Duration::from_micros(u64::try_from(micros).unwrap_or(0));
        match self.activity() {
            Activity::Idle => None,
            Activity::Active => {
                self.counts.counters.statement(self.counts.take_kind(), lasted);
                Some(lasted)
            }
            Activity::InTransaction | Activity::Failed => {
                self.counts.counters.idle_in_transaction(lasted);
                None
            }
        }
    }

    /// What its client calls itself.
    pub fn set_application(&self, name: &str) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if *texts.application != *name {
            texts.application = name.into();
        }
    }

    /// The statement that runs, or ran last, as others are shown it.
    pub fn statement(&self) -> Arc<str> {
        Arc::clone(&self.texts.lock().unwrap_or_else(PoisonError::into_inner).statement)
    }

    /// Has what it waits for look whether it is to end.
    pub fn wake(&self) {
        self.waiter.wake();
    }

    /// What it is doing.
    pub fn activity(&self) -> Activity {
        Activity::of(self.activity.load(Ordering::Relaxed))
    }
}

/// The sessions of a node.
#[derive(Debug, Default)]
pub struct Registry {
    sessions: Mutex<BTreeMap<i32, Arc<SessionInfo>>>,
    changes: WaitList,
    /// What all of them have counted.
    pub totals: Arc<Totals>,
}

impl Counting for SessionInfo {
    fn counts(&self) -> &SessionCounts {
        &self.counts
    }

    fn lasted(&self) -> u64 {
        self.lasted_at(Timestamp(self.changed.load(Ordering::Relaxed)))
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// A session in the registry, until this is dropped.
#[derive(Debug)]
pub struct Registered {
    info: Arc<SessionInfo>,
    registry: Arc<Registry>,
}

impl Registry {
    /// Enters a session.
    pub fn enter(self: &Arc<Self>, info: SessionInfo) -> Registered {
        let info = Arc::new(info);
        self.sessions().insert(info.pid, Arc::clone(&info));
        self.changes.wake_all();
        Registered { info, registry: Arc::clone(self) }
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<i32, Arc<SessionInfo>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Woken when a session enters or leaves.
    pub fn changes(&self) -> &WaitList {
        &self.changes
    }

    /// The numbers of those in a database.
    pub fn in_database(&self, database: Oid) -> Vec<i32> {
        self.sessions().values().filter(|it| it.database_id == database).map(|it| it.pid).collect()
    }

    /// All of them, in the order of their numbers.
    pub fn all(&self) -> Vec<Arc<SessionInfo>> {
        self.sessions().values().cloned().collect()
    }
}

impl std::ops::Deref for Registered {
    type Target = SessionInfo;

    fn deref(&self) -> &SessionInfo {
        &self.info
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let ended = || self.info.ended.store(true, Ordering::Relaxed);
        self.registry.totals.end(&self.info.counts, self.info.lasted_at(Timestamp::now()), ended);
        let mut sessions = self.registry.sessions();
        // The number may be another session's by now.
        if sessions.get(&self.info.pid).is_some_and(|known| Arc::ptr_eq(known, &self.info)) {
            sessions.remove(&self.info.pid);
        }
        drop(sessions);
        self.registry.changes.wake_all();
    }
}

/// A cursor of the session that asks.
#[derive(Clone, Debug)]
pub struct CursorInfo {
    /// The cursor's name.
    pub name: String,
    /// Its query.
    pub statement: String,
    /// When it was made.
    pub made: Timestamp,
    /// Whether it may go backward.
    pub scroll: bool,
    /// Whether it outlives its transaction.
    pub hold: bool,
    /// Whether its rows are sent in binary.
    pub binary: bool,
}

/// A prepared statement of the session that asks.
#[derive(Clone, Debug)]
pub struct StatementInfo {
    /// The name of the prepared statement.
    pub name: String,
    /// The text that was prepared.
    pub statement: String,
    /// When it was prepared.
    pub made: Timestamp,
    /// The types of its parameters.
    pub parameters: Vec<Oid>,
    /// Whether it was PREPARE, and not a message, that has made it.
    pub by_sql: bool,
}

/// A setting of the session that asks.
#[derive(Clone, Debug)]
pub struct SettingInfo {
    /// The setting's name, as it is shown.
    pub name: String,
    /// Its value, in the unit.
    pub value: String,
    /// The unit of numbers.
    pub unit: Option<&'static str>,
    /// `bool`, `integer`, `real`, `string` or `enum`.
    pub kind: &'static str,
    /// Who may change it, and when.
    pub context: &'static str,
    /// The group that it belongs to.
    pub category: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// The least number that it can be.
    pub least: Option<String>,
    /// The greatest number that it can be.
    pub most: Option<String>,
    /// Where its value is from.
    pub source: &'static str,
    /// What it can be, if that is listed.
    pub values: Option<&'static [&'static str]>,
    /// Its value when the server starts.
    pub boot: Option<String>,
    /// What RESET makes of it.
    pub reset: String,
}

fn pg_stat_activity(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for session in snapshot.system.sessions() {
        if !sink.admits("pid", session.pid) {
            continue;
        }
        // What others do is theirs to know, and superusers'.
        let open = snapshot.is_member(session.role);
        let Texts { statement, application } = session.texts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let begun = time(&session.statement_start);
        let client = session.peer.origin.address();
        let wait = snapshot.system.wait(session.place).filter(|_| open);
        sink.push(row![
            session.database_id,
            &session.database,
            session.pid,
            NULL,
            session.role,
            &session.user,
            application,
            client.filter(|_| open).map(|client| client.ip().to_string()),
            NULL,
            open.then(|| client.map_or(-1, |client| i32::from(client.port()))),
            open.then_some(session.started),
            open.then(|| time(&session.transaction_start)).flatten(),
            open.then_some(begun).flatten(),
            open.then(|| time(&session.changed)).flatten(),
            wait.as_ref().map(|_| "Lock"),
            wait.as_ref().map(|wait| wait.event),
            open.then(|| session.activity().name()),
            NULL,
            NULL,
            NULL,
            if open { statement } else { "<insufficient privilege>".into() },
            open.then_some("client backend"),
        ]);
    }
    Ok(())
}

fn pg_stat_ssl(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for session in snapshot.system.sessions() {
        let open = snapshot.is_member(session.role);
        let encryption = session.peer.encryption.filter(|_| open);
        sink.push(row![
            session.pid,
            open.then_some(encryption.is_some()),
            encryption.map(|it| it.version),
            encryption.map(|it| it.cipher),
            encryption.map(|it| it.bits),
            session.peer.certificate.as_ref().filter(|_| open).map(|name| format!("/CN={name}")),
            NULL,
            NULL,
        ]);
    }
    Ok(())
}

/// What a session waits for that wants a record which another transaction holds.
pub const RECORD_WAIT: &str = "transactionid";

/// What `pg_locks` calls a mode.
fn mode_name(mode: LockMode) -> String {
    let words = mode.name().split(' ').map(|word| {
        let (first, rest) = word.split_at(1);
        format!("{first}{}", rest.to_lowercase())
    });
    words.chain(["Lock".to_owned()]).collect()
}

fn pg_locks(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let sessions = snapshot.system.sessions();
    let mut push = |kind: &str, table: Option<Oid>, object: [Value; 3], place: usize, mode: LockMode, granted: bool| {
        let session = sessions.iter().find(|session| session.place == place);
        let (pid, database) = (session.map(|it| it.pid), session.map(|it| it.database_id));
        let [class, object, part] = object;
        let transaction = format!("{place}/0");
        let mut row = row![kind, database, table, NULL, NULL, NULL, NULL, class, object, part];
        row.extend(row![transaction, pid, mode_name(mode), granted, false, NULL]);
        sink.push(row);
    };
    for lock in snapshot.system.table_locks() {
        push("relation", Some(lock.table), [NULL, NULL, NULL], lock.place, lock.mode, lock.granted);
    }
    for session in &sessions {
        // Records are held without a lock of their own: who wants one waits for the end of the
        // transaction that holds it.
        if snapshot.system.wait(session.place).is_some_and(|wait| wait.event == RECORD_WAIT) {
            push("transactionid", None, [NULL, NULL, NULL], session.place, LockMode::Share, false);
        }
    }
    for AdvisoryLock { key, place, shared, granted } in snapshot.system.advisory_locks() {
        let part = if key.pair { 2 } else { 1 };
        let object = [Value::Oid(key.class), Value::Oid(key.object), Value::Int2(part)];
        let mode = if shared { LockMode::Share } else { LockMode::Exclusive };
        push("advisory", None, object, place, mode, granted);
    }
    Ok(())
}

fn pg_cursors(_: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for cursor in relations::with_session(|session| session.cursors()).unwrap_or_default() {
        let CursorInfo { name, statement, made, scroll, hold, binary } = cursor;
        sink.push(row![name, statement, hold, binary, scroll, made]);
    }
    Ok(())
}

fn pg_prepared_statements(_: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for statement in relations::with_session(|session| session.statements()).unwrap_or_default() {
        let StatementInfo { name, statement, made, parameters, by_sql } = statement;
        let parameters = parameters.into_iter().map(Value::Oid).collect();
        let parameters = Value::array(Array::new(Kind::Regtype, parameters));
        sink.push(row![name, statement, made, parameters, by_sql, NULL, NULL]);
    }
    Ok(())
}

fn pg_settings(_: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for setting in relations::with_session(|session| session.settings()).unwrap_or_default() {
        let SettingInfo { name, value, unit, kind, context, category, about, .. } = setting;
        let values = setting.values.map(|values| texts(values.iter().copied()));
        let mut row = row![name, value, unit, category, about, NULL, context, kind, setting.source];
        row.extend(row![setting.least, setting.most, values, setting.boot, setting.reset, NULL, NULL, false]);
        sink.push(row);
    }
    Ok(())
}
