//! What functions ask the session.

use freshet_sql::{
    SqlError, SqlState, Type, Value,
    types::{Array, Kind, ObjectNames},
};

use super::State;
use crate::{
    bind::not_supported,
    expression::SessionView,
    schema::{self, Oid, privilege},
    sequence::Position,
    server::Shared,
    session_function::SessionFunction as F,
};

/// A session while it runs a statement.
pub struct View<'s> {
    /// What all sessions share.
    pub shared: &'s Shared,
    /// This one.
    pub state: &'s State,
}

impl<'s> View<'s> {
    /// Of this session.
    pub fn new(shared: &'s Shared, state: &'s State) -> Self {
        Self { shared, state }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl SessionView for View<'_> {
    fn call(&self, function: F, arguments: &[Value]) -> Result<Value, SqlError> {
        let State { settings, schema, .. } = self.state;
        let oid = |place: usize| arguments.get(place).and_then(Value::as_i64).and_then(|oid| Oid::try_from(oid).ok());
        Ok(match function {
            F::CurrentUser | F::CurrentRole | F::User => Value::text(self.state.user.as_str()),
            F::SessionUser => Value::text(self.state.session_user.as_str()),
            F::CurrentDatabase | F::CurrentCatalog => Value::text(self.state.database.as_str()),
            F::CurrentSchema => {
                let path = self.state.path();
                path.get(1).map_or(Value::Null, |first| Value::text(schema.namespace_name(*first)))
            }
            F::CurrentSchemas => {
                let path = self.state.path();
                let implicit = usize::from(arguments.first().and_then(Value::as_bool) != Some(true));
                let names = path.iter().skip(implicit).map(|oid| Value::text(schema.namespace_name(*oid)));
                Value::array(Array::new(Kind::Name, names.collect()))
            }
            F::Version => Value::text(format!("PostgreSQL 15.0 (Freshet {})", self.shared.version)),
            F::BackendPid => Value::Int4(self.state.pid),
            F::IsInRecovery => Value::Bool(self.shared.is_standby()),
            F::CancelBackend => Value::Bool(self.reach(arguments, freshet_postgres::Sessions::cancel)?),
            F::TerminateBackend => Value::Bool(self.reach(arguments, freshet_postgres::Sessions::terminate)?),
            F::CurrentSetting | F::CurrentSettingOrNull => {
                let Some(name) = arguments.first().and_then(Value::as_str) else { return Ok(Value::Null) };
                match settings.get(name) {
                    Some(_) if name == "freshet.last_commit" => {
                        Value::text(self.state.last_commit.map_or_else(String::new, |stamp| stamp.0.to_string()))
                    }
                    Some(value) => Value::text(value),
                    None if arguments.get(1).and_then(Value::as_bool) == Some(true) => Value::Null,
                    None => {
                        let message = format!("unrecognized configuration parameter \"{name}\"");
                        return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
                    }
                }
            }
            F::SetConfig => {
                let [name, value, local] = arguments else {
                    return Err(SqlError::internal("set_config has three arguments"));
                };
                let wanted = (text(name).to_owned(), text(value).to_owned(), local.as_bool() == Some(true));
                self.state.wanted.borrow_mut().push(wanted);
                value.clone()
            }
            F::FormatType => match (oid(0), arguments.get(1).and_then(Value::as_i64)) {
                (Some(oid), modifier) => match Kind::from_oid(oid) {
                    Some(kind) => {
                        let modifier = modifier.and_then(|modifier| i32::try_from(modifier).ok()).unwrap_or(-1);
                        Value::text(Type::with_modifier(kind, modifier).to_string())
                    }
                    None => Value::text("???"),
                },
                _ => Value::Null,
            },
            F::LastCommit => self.state.last_commit.map_or(Value::Null, |stamp| Value::text(stamp.0.to_string())),
            F::EncodingToChar => {
                Value::text(if arguments.first().and_then(Value::as_i64) == Some(6) { "UTF8" } else { "" })
            }
            F::ObjDescription | F::SharedObjDescription => {
                let comment = oid(0).and_then(|oid| schema.comment(oid, None));
                comment.map_or(Value::Null, |comment| Value::text(comment.text.as_str()))
            }
            F::ColDescription => {
                let place = arguments.get(1).and_then(Value::as_i64).and_then(|place| u16::try_from(place - 1).ok());
                let comment = oid(0).zip(place).and_then(|(oid, place)| schema.comment(oid, Some(place)));
                comment.map_or(Value::Null, |comment| Value::text(comment.text.as_str()))
            }
            F::TableIsVisible => {
                let Some(oid) = oid(0) else { return Ok(Value::Null) };
                let visible = self.relation_name(oid).map(|(namespace, name)| {
                    let found = schema.find(&self.state.path(), &name);
                    found.is_some() && found == schema.named(namespace, &name)
                });
                visible.map_or(Value::Null, Value::Bool)
            }
            F::TypeIsVisible | F::FunctionIsVisible => Value::Bool(true),
            F::GetUserById => {
                let Some(oid) = oid(0) else { return Ok(Value::Null) };
                let name = schema.role_by_oid(oid).map(|role| role.name.clone());
                Value::text(name.unwrap_or_else(|| format!("unknown (OID={oid})")))
            }
            F::ClientAddress => Value::text(self.state.client.ip().to_string()),
            F::GetExpr | F::GetExprPretty => arguments.first().cloned().unwrap_or(Value::Null),
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
            F::LastValue => Value::Int8(self.state.sequences.last()?),
            F::SetValue | F::SetValueCalled => {
                let Some(sequence) = self.sequence(oid(0), "setval", privilege::UPDATE)? else {
                    return Ok(Value::Null);
                };
                let Some(value) = arguments.get(1).and_then(Value::as_i64) else { return Ok(Value::Null) };
                let called = arguments.get(2).and_then(Value::as_bool).unwrap_or(true);
                let position = Position { value, called };
                Value::Int8(self.state.sequences.set(&self.shared.sequences, sequence, position, &|| self.check())?)
            }
            F::Sleep => self.sleep(arguments)?,
            other => return Err(not_supported(format!("{}()", other.name()))),
        })
    }
}

impl View<'_> {
    fn check(&self) -> Result<(), SqlError> {
        self.state.flag.check(self.state.deadline)
    }

    /// The sequence of this id, if the role has one of these privileges on it. `writes` names the function, if it changes the sequence.
    fn sequence(&self, oid: Option<Oid>, writes: &str, wanted: u16) -> Result<Option<&schema::Sequence>, SqlError> {
        let Some(oid) = oid else { return Ok(None) };
        let schema = &self.state.schema;
        let sequence = schema.sequence(oid).ok_or_else(|| {
            let name = self.relation_name(oid).map_or_else(|| oid.to_string(), |(_, name)| name);
            SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a sequence"))
        })?;
        if schema.privileges(self.state.role, sequence.owner, &sequence.grants) & wanted == 0 {
            let message = format!("permission denied for sequence {}", sequence.name);
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        if !writes.is_empty() && (self.state.read_only || self.shared.is_standby()) {
            let message = format!("cannot execute {writes}() in a read-only transaction");
            return Err(SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message));
        }
        Ok(Some(sequence))
    }

    fn reach(
        &self,
        arguments: &[Value],
        how: impl Fn(&freshet_postgres::Sessions, i32) -> bool,
    ) -> Result<bool, SqlError> {
        let superuser = self.state.schema.role_by_oid(self.state.role).is_some_and(|role| role.superuser);
        let Some(Value::Int4(pid)) = arguments.first() else { return Ok(false) };
        if !superuser && *pid != self.state.pid {
            let message = "must be a superuser to signal another session";
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        Ok(how(&self.state.sessions, *pid))
    }

    fn sleep(&self, arguments: &[Value]) -> Result<Value, SqlError> {
        let seconds = match arguments.first() {
            Some(Value::Float8(seconds)) if *seconds > 0.0 => seconds.min(1e9),
            _ => return Ok(Value::text("")),
        };
        let end = std::time::Instant::now() + std::time::Duration::from_secs_f64(seconds);
        loop {
            self.check()?;
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Ok(Value::text(""));
            }
            std::thread::sleep(left.min(std::time::Duration::from_millis(10)));
        }
    }

    /// The schema and the name of a table, view, sequence or index.
    pub fn relation_name(&self, oid: Oid) -> Option<(Oid, String)> {
        let schema = &self.state.schema;
        match schema.entry(oid) {
            Some(schema::Entry::Table(info)) => return Some((info.table.namespace, info.table.name.clone())),
            Some(schema::Entry::View(view)) => return Some((view.namespace, view.name.clone())),
            Some(schema::Entry::Sequence(sequence)) => return Some((sequence.namespace, sequence.name.clone())),
            _ => {}
        }
        schema.entries().find_map(|entry| match entry {
            schema::Entry::Table(info) => {
                let index = info.table.indexes.iter().find(|index| index.oid == oid)?;
                Some((info.table.namespace, index.name.clone()))
            }
            _ => None,
        })
    }
}

impl ObjectNames for View<'_> {
    fn name_of(&self, kind: Kind, id: u32) -> Option<String> {
        match kind {
            Kind::Regclass => {
                let (namespace, name) = self.relation_name(id)?;
                let schema = &self.state.schema;
                let quoted = freshet_sql::functions::quote_identifier(&name);
                let visible = schema.find(&self.state.path(), &name) == schema.named(namespace, &name);
                Some(if visible {
                    quoted.to_string()
                } else {
                    format!("{}.{quoted}", schema.namespace_name(namespace))
                })
            }
            Kind::Regtype => Some(Kind::from_oid(id)?.sql_name().to_owned()),
            _ => None,
        }
    }

    fn id_of(&self, kind: Kind, name: &str) -> Option<u32> {
        match kind {
            Kind::Regclass => {
                let parts: Vec<String> = name
                    .split('.')
                    .map(|part| match part.strip_prefix('"').and_then(|part| part.strip_suffix('"')) {
                        Some(quoted) => quoted.replace("\"\"", "\""),
                        None => part.to_lowercase(),
                    })
                    .collect();
                let schema = &self.state.schema;
                let named = match parts.as_slice() {
                    [name] => schema.find(&self.state.path(), name)?,
                    [namespace, name] => schema.named(schema.namespace(namespace)?, name)?,
                    _ => return None,
                };
                Some(match named {
                    schema::Named::Table(oid) | schema::Named::View(oid) | schema::Named::Sequence(oid) => oid,
                    schema::Named::Index { table, number } => schema.table(table)?.table.indexes[number].oid,
                })
            }
            Kind::Regtype => Type::from_name(name).map(|ty| ty.kind().oid()),
            _ => None,
        }
    }
}
