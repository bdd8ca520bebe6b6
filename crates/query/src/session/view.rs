//! What functions ask the session.

use std::{collections::HashMap, sync::Arc, time::Instant};

use freshet_base::wait;
use freshet_engine::Rid;
use freshet_sql::{
    SqlError, SqlState, Type, Value,
    functions::{SessionCalls, SessionFunction as F, SetFunction},
    types::{Array, Kind, ObjectNames},
};

use super::{
    Portal, State, Wanted,
    cursor::Declared,
    prepare::Prepared,
    settings::{By, canonical, unrecognized},
    transaction::Block,
};
use crate::{
    advisory::AdvisoryKey,
    bind::not_supported,
    expression::{SessionView, no_cursor},
    locks::Patience,
    outcome::Token,
    relations::Snapshot,
    schema::{self, Oid, privilege},
    sequence::Position,
    server::Shared,
    statistics::{RelationCounts, Tally, relation::ByOid},
    system::{
        self,
        activity::{CursorInfo, SettingInfo, StatementInfo},
    },
    wait::waiting,
};

/// A session while it runs a statement.
pub struct View<'s> {
    /// What all sessions share.
    pub shared: &'s Shared,
    /// This one.
    pub state: &'s State,
    kept: Option<Kept<'s>>,
    /// The transaction that the statement runs in, if it is one that runs.
    block: Option<&'s Block<'s>>,
    /// What the session counts, if it runs a statement.
    tally: Option<&'s Tally>,
}

/// What a session keeps: statements and portals, by their names.
type Kept<'s> = (&'s HashMap<String, Arc<Prepared>>, &'s HashMap<String, Portal>);

impl<'s> View<'s> {
    /// Of this session.
    pub fn new(shared: &'s Shared, state: &'s State) -> Self {
        Self { shared, state, kept: None, block: None, tally: None }
    }

    /// With what it keeps.
    pub(super) fn with(
        self,
        statements: &'s HashMap<String, Arc<Prepared>>,
        portals: &'s HashMap<String, Portal>,
    ) -> Self {
        Self { kept: Some((statements, portals)), ..self }
    }

    /// In a transaction.
    pub(super) fn inside(self, block: &'s Block<'s>, tally: &'s Tally) -> Self {
        Self { block: Some(block), tally: Some(tally), ..self }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl View<'_> {
    /// A number of the transaction: when it began, in microseconds, and the place of its session,
    /// which has one at a time.
    fn transaction_number(&self) -> Value {
        const PLACES: i64 = 1 << 12;
        let Some(block) = self.block else { return Value::Null };
        Value::Int8(block.begun.0.saturating_mul(PLACES).saturating_add(self.state.place as i64 % PLACES))
    }
}

impl SessionCalls for View<'_> {
    fn call(&self, function: F, arguments: &[Value]) -> Result<Value, SqlError> {
        let State { settings, schema, .. } = self.state;
        let oid = |place: usize| arguments.get(place).and_then(Value::as_i64).and_then(|oid| Oid::try_from(oid).ok());
        Ok(match function {
            F::CurrentUser | F::CurrentRole | F::User => Value::text(self.state.user.as_str()),
            F::SessionUser => Value::text(self.state.session_user.as_str()),
            F::CurrentDatabase | F::CurrentCatalog => Value::text(Arc::clone(&self.state.database)),
            F::CurrentSchema => {
                self.state.path().get(1).map_or(Value::Null, |first| Value::text(schema.namespace_name(*first)))
            }
            F::CurrentSchemas => {
                let path = self.state.path();
                let wanted = arguments.first().and_then(Value::as_bool) == Some(true);
                // Where it is named, it is no implicit one.
                let named = path.iter().skip(1).any(|oid| path.first() == Some(oid));
                let names =
                    path.iter().skip(usize::from(named || !wanted)).map(|oid| Value::text(schema.namespace_name(*oid)));
                Value::array(Array::new(Kind::Name, names.collect()))
            }
            F::Version => Value::text(format!("PostgreSQL 15.0 (Freshet {})", self.shared.version)),
            F::BackendPid => Value::Int4(self.state.pid),
            F::IsInRecovery => Value::Bool(self.shared.is_standby()),
            F::CancelBackend => Value::Bool(self.reach(arguments, freshet_postgres::Sessions::cancel)?),
            F::TerminateBackend => Value::Bool(self.reach(arguments, freshet_postgres::Sessions::terminate)?),
            F::CurrentSetting | F::CurrentSettingOrNull => {
                let Some(name) = arguments.first().and_then(Value::as_str) else { return Ok(Value::Null) };
                // A function before this one may have set it.
                let name = canonical(name);
                let wanted = self.state.wanted.borrow();
                let set = wanted.iter().rev().find(|(set, value, _)| *set == name && value.is_some());
                match set.and_then(|(_, value, _)| value.clone()).or_else(|| self.state.shown(&name)) {
                    Some(value) => Value::text(value),
                    None if arguments.get(1).and_then(Value::as_bool) == Some(true) => Value::Null,
                    None => return Err(unrecognized(&name)),
                }
            }
            F::SetConfig => {
                let [name, value, local] = arguments else {
                    return Err(SqlError::internal("set_config has three arguments"));
                };
                let (name, local) = (canonical(text(name)), local.as_bool() == Some(true));
                let role = matches!(name.as_str(), "role" | "session_authorization");
                let value = match value.as_str() {
                    Some(value) if role => Some(value.to_owned()),
                    Some(value) => Some(settings.checked(&name, value, By::Statement)?),
                    None => None,
                };
                let shown = value.as_deref().or_else(|| settings.initial(&name)).map_or(Value::Null, Value::text);
                want(&mut self.state.wanted.borrow_mut(), name, value, local)?;
                shown
            }
            F::FormatType => match (oid(0), arguments.get(1).and_then(Value::as_i64)) {
                (Some(oid), modifier) => match Kind::from_oid(oid) {
                    Some(kind) => {
                        let modifier = modifier.and_then(|modifier| i32::try_from(modifier).ok()).unwrap_or(-1);
                        Value::text(Type::with_modifier(kind, modifier).to_string())
                    }
                    None if oid == 0 => Value::text("-"),
                    None => {
                        let known = system::names::name_of(&Snapshot::of(self.state), Kind::Regtype, oid);
                        Value::text(known.unwrap_or_else(|| "???".to_owned()))
                    }
                },
                _ => Value::Null,
            },
            F::CurrentTransaction | F::CurrentTransactionId => self.transaction_number(),
            F::LastCommit => self.state.last_commit.map_or(Value::Null, |lsn| Value::text(lsn.0.to_string())),
            F::ClientAddress => self.state.client.map_or(Value::Null, |client| Value::text(client.ip().to_string())),
            F::ClientPort => self.state.client.map_or(Value::Null, |client| Value::Int4(client.port().into())),
            F::NextValue => {
                let Some(sequence) = self.sequence(oid(0), "nextval", privilege::USAGE | privilege::UPDATE)? else {
                    return Ok(Value::Null);
                };
                Value::Int8(self.state.sequences.next(&self.shared.sequences, sequence, &|| self.check())?)
            }
            F::CurrentValue => {
                let Some(sequence) = self.sequence(oid(0), "", privilege::USAGE | privilege::SELECT)? else {
                    return Ok(Value::Null);
                };
                Value::Int8(self.state.sequences.current(sequence)?)
            }
            F::LastValue => {
                let last = self.state.sequences.last()?;
                self.sequence(self.state.sequences.last_sequence(), "", privilege::USAGE | privilege::SELECT)?;
                Value::Int8(last)
            }
            F::SetValue | F::SetValueCalled => {
                let Some(sequence) = self.sequence(oid(0), "setval", privilege::UPDATE)? else {
                    return Ok(Value::Null);
                };
                let Some(value) = arguments.get(1).and_then(Value::as_i64) else { return Ok(Value::Null) };
                let called = arguments.get(2).and_then(Value::as_bool).unwrap_or(true);
                let position = Position { value, called };
                Value::Int8(self.state.sequences.set(&self.shared.sequences, sequence, position, &|| self.check())?)
            }
            F::AdvisoryLock
            | F::AdvisoryLockShared
            | F::AdvisoryTry
            | F::AdvisoryTryShared
            | F::AdvisoryTransaction
            | F::AdvisoryTransactionShared
            | F::AdvisoryTransactionTry
            | F::AdvisoryTransactionTryShared
            | F::AdvisoryUnlock
            | F::AdvisoryUnlockShared => self.advisory(function, arguments)?,
            F::AdvisoryUnlockAll => {
                self.state.advisory.unlock_all();
                Value::text("")
            }
            F::Notify => self.notify(arguments)?,
            F::NotificationQueueUsage => Value::Float8(self.shared.notifications.usage()),
            F::TransactionToken => self.token()?,
            F::TransactionOutcome => self.outcome(arguments)?,
            F::Sleep => self.sleep(arguments)?,
            F::ExportSnapshot => {
                let block = self.block.ok_or_else(|| not_supported("a snapshot exported outside of a statement"))?;
                Value::text(block.export(self.shared, self.state.place, &self.state.memory)?)
            }
            other => {
                let value = system::functions::call(&Snapshot::of(self.state), other, arguments)?;
                value.ok_or_else(|| not_supported(format!("{}()", other.name())))?
            }
        })
    }

    fn rows(&self, function: SetFunction, arguments: &[Value]) -> Result<Vec<Vec<Value>>, SqlError> {
        if function == SetFunction::ListeningChannels {
            return Ok(self.state.channels.listening().into_iter().map(|it| vec![Value::text(it)]).collect());
        }
        system::functions::rows(&Snapshot::of(self.state), function, arguments)
    }
}

impl SessionView for View<'_> {
    fn identity_value(&self, sequence: Oid) -> Result<Value, SqlError> {
        let missing = || SqlError::internal(format!("an identity column has no sequence {sequence}"));
        let sequence = self.state.schema.sequence(sequence).ok_or_else(missing)?;
        self.may_change("nextval")?;
        Ok(Value::Int8(self.state.sequences.next(&self.shared.sequences, sequence, &|| self.check())?))
    }

    fn settings(&self) -> Vec<SettingInfo> {
        let mut settings = self.state.settings.describe();
        for setting in &mut settings {
            let by_session = setting.name.starts_with("transaction_")
                || matches!(setting.name.as_str(), "in_hot_standby" | "freshet.last_commit");
            if let Some(value) = self.state.shown(&setting.name).filter(|_| by_session) {
                setting.value = value;
            }
        }
        settings
    }

    fn current_of(&self, cursor: &str, table: &schema::Table) -> Result<Rid, SqlError> {
        let portal = self.kept.and_then(|(_, portals)| portals.get(cursor)).filter(|portal| portal.declared.is_some());
        portal.ok_or_else(|| no_cursor(cursor))?.current(cursor, table)
    }

    fn cursors(&self) -> Vec<CursorInfo> {
        let Some((_, portals)) = self.kept else { return Vec::new() };
        let shown = portals.iter().filter(|(name, _)| !name.is_empty()).map(|(name, portal)| {
            let (name, statement) = (name.clone(), portal.prepared.sql.clone());
            match portal.declared {
                Some(Declared { made, scroll, hold, binary, .. }) => {
                    CursorInfo { name, statement, made, scroll, hold, binary }
                }
                // A portal that Bind has named.
                None => CursorInfo { name, statement, made: portal.made, scroll: false, hold: false, binary: false },
            }
        });
        let mut cursors: Vec<_> = shown.collect();
        cursors.sort_by(|one, other| one.name.cmp(&other.name));
        cursors
    }

    fn statements(&self) -> Vec<StatementInfo> {
        let Some((statements, _)) = self.kept else { return Vec::new() };
        let named = statements.iter().filter(|(name, _)| !name.is_empty());
        let mut statements: Vec<_> = named
            .map(|(name, prepared)| StatementInfo {
                name: name.clone(),
                statement: prepared.by_sql.as_ref().unwrap_or(&prepared.sql).clone(),
                made: prepared.made,
                parameters: prepared.parameters().into_iter().map(Type::oid).collect(),
                by_sql: prepared.by_sql.is_some(),
            })
            .collect();
        statements.sort_by(|one, other| one.name.cmp(&other.name));
        statements
    }

    fn transaction_counts(&self) -> ByOid<RelationCounts> {
        self.tally.map(Tally::of_transaction).unwrap_or_default()
    }
}

impl View<'_> {
    /// The sequence of this id, if the role has one of these privileges on it. `writes` names the
    /// function, if it changes the sequence.
    fn sequence(&self, oid: Option<Oid>, writes: &str, wanted: u16) -> Result<Option<&schema::Sequence>, SqlError> {
        let Some(oid) = oid else { return Ok(None) };
        let schema = &self.state.schema;
        let sequence = schema.sequence(oid).ok_or_else(|| {
            let name = system::class::by_oid(&Snapshot::of(self.state), oid)
                .map_or_else(|| oid.to_string(), |class| class.name().to_owned());
            SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a sequence"))
        })?;
        if schema.privileges(self.state.role, sequence.owner, &sequence.grants) & wanted == 0 {
            return Err(schema::denied("sequence", &sequence.name));
        }
        if !writes.is_empty() {
            self.may_change(writes)?;
        }
        Ok(Some(sequence))
    }

    /// Fails where a function must not change a sequence.
    fn may_change(&self, function: &str) -> Result<(), SqlError> {
        if !self.state.read_only && !self.shared.is_standby() {
            return Ok(());
        }
        let message = format!("cannot execute {function}() in a read-only transaction");
        Err(SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message))
    }

    /// The token of the transaction, which is made when it is asked for first.
    fn token(&self) -> Result<Value, SqlError> {
        self.may_change("freshet_transaction_token")?;
        let block = self.block.ok_or_else(|| not_supported("the token of a transaction outside of a statement"))?;
        if block.token.get().is_none() {
            let token = self.shared.outcomes.token(&|| self.check())?;
            block.token.get_or_init(|| token);
        }
        Ok(block.token.get().map_or(Value::Null, |open| Value::Uuid(open.token().0)))
    }

    /// What became of a transaction.
    fn outcome(&self, arguments: &[Value]) -> Result<Value, SqlError> {
        let [Value::Uuid(token)] = arguments else { return Ok(Value::Null) };
        let outcome = self.shared.outcomes.outcome(Token(*token), &|| self.check())?;
        Ok(outcome.word().map_or(Value::Null, Value::text))
    }

    fn notify(&self, arguments: &[Value]) -> Result<Value, SqlError> {
        let text = |place: usize| arguments.get(place).and_then(Value::as_str).unwrap_or_default();
        self.state.channels.notify(text(0), text(1), &self.state.memory)?;
        Ok(Value::text(""))
    }

    /// Functions about advisory locks.
    fn advisory(&self, function: F, arguments: &[Value]) -> Result<Value, SqlError> {
        self.state.must_not_read_for_others(&format!("{}()", function.name()))?;
        let key = match arguments {
            [Value::Int8(number)] => AdvisoryKey::one(*number),
            [Value::Int4(class), Value::Int4(object)] => AdvisoryKey::two(*class, *object),
            _ => return Ok(Value::Null),
        };
        let key = key.within(self.state.schema.database);
        let locks = &self.state.advisory;
        let shared = matches!(
            function,
            F::AdvisoryLockShared
                | F::AdvisoryTryShared
                | F::AdvisoryTransactionShared
                | F::AdvisoryTransactionTryShared
                | F::AdvisoryUnlockShared
        );
        let transaction = matches!(
            function,
            F::AdvisoryTransaction
                | F::AdvisoryTransactionShared
                | F::AdvisoryTransactionTry
                | F::AdvisoryTransactionTryShared
        );
        match function {
            F::AdvisoryTry | F::AdvisoryTryShared | F::AdvisoryTransactionTry | F::AdvisoryTransactionTryShared => {
                Ok(Value::Bool(locks.try_lock(key, shared, transaction)?))
            }
            F::AdvisoryUnlock | F::AdvisoryUnlockShared => {
                let held = locks.unlock(key, shared);
                if !held {
                    self.warn(match shared {
                        true => "you don't own a lock of type ShareLock",
                        false => "you don't own a lock of type ExclusiveLock",
                    });
                }
                Ok(Value::Bool(held))
            }
            _ => {
                let timeout = self.state.settings.ready.lock_timeout;
                let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
                locks.lock(key, shared, transaction, Patience { deadline, interrupted: &|| self.check() })?;
                // Who held it may have ended because all sessions do.
                self.check().inspect_err(|_| _ = !transaction && locks.unlock(key, shared))?;
                Ok(Value::text(""))
            }
        }
    }

    /// Fails when the statement is to end.
    fn check(&self) -> Result<(), SqlError> {
        self.state.flag.check()
    }

    /// Has the client warned when the statement is done; not more often than it can be of use.
    fn warn(&self, message: &'static str) {
        let mut warnings = self.state.warnings.borrow_mut();
        if warnings.len() < 100 {
            warnings.push(message);
        }
    }

    fn reach(
        &self,
        arguments: &[Value],
        how: impl Fn(&freshet_postgres::Sessions, i32) -> bool,
    ) -> Result<bool, SqlError> {
        let Some(Value::Int4(pid)) = arguments.first() else { return Ok(false) };
        let schema = &self.state.schema;
        let superuser = |oid| schema.role_by_oid(oid).is_some_and(|role| role.superuser);
        let sessions = self.shared.sessions.all();
        let whose = sessions.iter().find(|session| session.pid == *pid).map(|session| session.role);
        if let Some(whose) = whose.filter(|_| *pid != self.state.pid && !superuser(self.state.role)) {
            // As PostgreSQL says it.
            let message = match superuser(whose) {
                true => "must be a superuser to terminate superuser process",
                false if schema.is_within(self.state.role, whose) => "",
                false => {
                    "must be a member of the role whose process is being terminated or member of pg_signal_backend"
                }
            };
            if !message.is_empty() {
                return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
            }
        }
        let reached = how(&self.state.sessions, *pid);
        // It may have been its own.
        self.check()?;
        Ok(reached)
    }

    fn sleep(&self, arguments: &[Value]) -> Result<Value, SqlError> {
        let seconds = match arguments.first() {
            Some(Value::Float8(seconds)) if *seconds > 0.0 => seconds.min(1e9),
            _ => return Ok(Value::text("")),
        };
        let end = Instant::now() + std::time::Duration::from_secs_f64(seconds);
        waiting(&|| self.check(), |patience| wait::sleep(patience.until(end)));
        self.check()?;
        Ok(Value::text(""))
    }
}

impl ObjectNames for View<'_> {
    fn name_of(&self, kind: Kind, id: u32) -> Option<String> {
        system::names::name_of(&Snapshot::of(self.state), kind, id)
    }

    fn id_of(&self, kind: Kind, name: &str) -> Result<Option<u32>, SqlError> {
        system::names::id_of(&Snapshot::of(self.state), kind, name)
    }
}

/// How many settings functions of a statement may change, and to values of how many bytes in all.
const WANTED: (usize, usize) = (1000, 1 << 24);

/// Notes that a setting is to have a value when the statement has ended; the last one counts.
///
/// # Errors
/// 54000 when there are too many.
fn want(wanted: &mut Vec<Wanted>, name: String, value: Option<String>, local: bool) -> Result<(), SqlError> {
    let length = |value: &Option<String>| value.as_ref().map_or(0, String::len);
    let last = wanted.iter_mut().rev().find(|(other, ..)| *other == name);
    match last.filter(|(_, _, others)| *others == local) {
        Some((_, before, _)) => *before = value,
        None => wanted.push((name, value, local)),
    }
    let bytes: usize = wanted.iter().map(|(_, value, _)| length(value)).sum();
    if wanted.len() <= WANTED.0 && bytes <= WANTED.1 {
        return Ok(());
    }
    let message = format!("one statement cannot change more than {} settings, or {} bytes of them", WANTED.0, WANTED.1);
    Err(SqlError::new(SqlState::new("54000"), message))
}
