//! A definition under way.

use std::sync::Arc;

use freshet_engine::Isolation;
use freshet_sql::{
    SqlError, SqlState, Type, Value,
    functions::{SessionCalls, SessionFunction, SetFunction},
};

use sqlparser::ast::Query;

use super::{
    Ddl, Outcome,
    syntax::{self, Name, RoleName},
};
use crate::{
    bind::{Binder, Stop},
    expression::{Environment, SessionView},
    locks::LockMode,
    schema::{
        self, Change, ChangeError, Entry, Grant, Named, Object, Oid, Schema, Sequence, Table, TableInfo, no_relation,
        privilege,
    },
    sequence::Sequences,
};

/// Why a definition does not go on.
pub(super) enum Halt {
    /// The statement is wrong: the client gets this error.
    Error(SqlError),
    /// Somebody else has a lock on the table.
    Blocked(Oid, LockMode),
    /// Somebody else changes the catalog.
    Held,
}

impl From<SqlError> for Halt {
    fn from(error: SqlError) -> Self {
        Self::Error(error)
    }
}

/// What a step of a definition returns.
pub(super) type Step<T> = Result<T, Halt>;

/// A definition under way: the session's surroundings, and the change of the catalog.
pub(super) struct Work<'d, 'a, 'w> {
    pub(super) ddl: &'d mut Ddl<'a, 'w>,
    pub(super) change: Change<'a, 'w>,
}

/// The session as expressions in a definition know it.
pub(super) struct View<'v> {
    session: &'v dyn SessionView,
    schema: &'v Schema,
    sequences: &'v Sequences,
    interrupted: &'v dyn Fn() -> Result<(), SqlError>,
}

impl SessionView for View<'_> {
    fn identity_value(&self, sequence: Oid) -> Result<Value, SqlError> {
        match self.schema.sequence(sequence) {
            Some(sequence) => self.sequences.next(sequence, self.interrupted).map(Value::Int8),
            None => self.session.identity_value(sequence),
        }
    }
}

impl SessionCalls for View<'_> {
    fn call(&self, function: SessionFunction, arguments: &[Value]) -> Result<Value, SqlError> {
        let oid = arguments.first().and_then(Value::as_i64).and_then(|oid| Oid::try_from(oid).ok());
        match (function, oid.and_then(|oid| self.schema.sequence(oid))) {
            // The session may not know it yet.
            (SessionFunction::NextValue, Some(sequence)) => {
                self.sequences.next(sequence, self.interrupted).map(Value::Int8)
            }
            _ => self.session.call(function, arguments),
        }
    }

    fn rows(&self, function: SetFunction, arguments: &[Value]) -> Result<Vec<Vec<Value>>, SqlError> {
        self.session.rows(function, arguments)
    }
}

/// The longest name, in bytes.
const LONGEST_NAME: usize = 63;

pub(super) fn error(state: SqlState, message: impl Into<String>) -> SqlError {
    SqlError::new(state, message.into())
}

/// What binding an expression of a definition came to, where `what` can have no subqueries.
pub(super) fn bound<T>(result: crate::bind::Bound<T>, what: &str) -> Result<T, SqlError> {
    result.map_err(|stop| match stop {
        Stop::Error(error) => error,
        Stop::General(_) => error(SqlState::FEATURE_NOT_SUPPORTED, format!("cannot use subquery in {what}")),
    })
}

impl<'d, 'a, 'w> Work<'d, 'a, 'w> {
    /// Begins to change the catalog of the session's database, or also what databases share.
    pub(super) fn begin(ddl: &'d mut Ddl<'a, 'w>, shared: bool) -> Step<Self> {
        let (catalog, transaction, database) = (ddl.catalog, ddl.transaction, ddl.schema.database);
        ddl.effects.begin(database);
        match catalog.change(transaction, database, shared) {
            Ok(change) => Ok(Self { ddl, change }),
            Err(ChangeError::Held) => Err(Halt::Held),
            Err(ChangeError::Other(error)) => Err(error.into()),
        }
    }

    /// Ends the work: the session has the catalog that was made.
    pub(super) fn finish(self) {
        self.ddl.schema = self.change.finish();
        self.ddl.effects.reach(self.ddl.schema.version.number);
    }

    pub(super) fn schema(&self) -> &Schema {
        &self.change.schema
    }

    /// Tells the client something.
    pub(super) fn notice(&mut self, state: SqlState, message: impl Into<String>) {
        self.ddl.notices.push(error(state, message));
    }

    /// The columns of a query, where the catalog is as this change has it: the session may know an
    /// older one.
    pub(super) fn columns_of(&self, query: &Query) -> Result<Vec<(String, Type)>, SqlError> {
        (self.ddl.columns_of)(query, &Arc::new(self.schema().clone()))
    }

    pub(super) fn binder(&self) -> Binder<'_> {
        Binder::new(&self.change.schema, self.ddl.path, self.ddl.role, self.ddl.context)
    }

    /// The session, with the sequences that the definition has made.
    pub(super) fn view(&self) -> View<'_> {
        View {
            session: self.ddl.session,
            schema: &self.change.schema,
            sequences: self.ddl.sequences,
            interrupted: self.ddl.interrupted,
        }
    }

    pub(super) fn environment<'v>(&self, view: &'v View<'_>) -> Environment<'v>
    where
        'a: 'v,
    {
        Environment { parameters: &[], firsts: &[], context: self.ddl.context, session: view, captured: None }
    }

    // --- names --------------------------------------------------------------------------------

    /// The schema of a name, which must be there.
    pub(super) fn namespace(&self, name: &str) -> Result<Oid, SqlError> {
        self.schema()
            .namespace(name)
            .ok_or_else(|| error(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist")))
    }

    /// The schema of a name, which must be there, for the role to use what is in it.
    pub(super) fn usable_namespace(&self, name: &str) -> Result<Oid, SqlError> {
        let oid = self.namespace(name)?;
        self.check_namespace(oid, privilege::USAGE)?;
        Ok(oid)
    }

    fn check_database(&self, name: &Name) -> Result<(), SqlError> {
        self.schema().check_database(&name.parts())
    }

    /// What a relation's name means.
    pub(super) fn find(&self, name: &Name) -> Result<Option<Named>, SqlError> {
        self.check_database(name)?;
        match &name.schema {
            None => Ok(self.schema().find(self.ddl.path, &name.name)),
            Some(schema) if is_system(schema) => Ok(None),
            Some(schema) => Ok(self.schema().named(self.usable_namespace(schema)?, &name.name)),
        }
    }

    /// What a relation's name means, of one that must be there.
    pub(super) fn relation(&self, name: &Name) -> Result<Named, SqlError> {
        self.find(name)?.ok_or_else(|| no_relation(&name.to_string()))
    }

    /// The table of a name.
    pub(super) fn table(&self, name: &Name) -> Result<Arc<TableInfo>, SqlError> {
        match self.relation(name)? {
            Named::Table(oid) => self.table_by_oid(oid),
            _ => Err(error(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is not a table", name.name))),
        }
    }

    pub(super) fn table_by_oid(&self, oid: Oid) -> Result<Arc<TableInfo>, SqlError> {
        let found = self.schema().table(oid).cloned();
        found.ok_or_else(|| SqlError::internal(format!("table {oid} is named and is not there")))
    }

    pub(super) fn sequence_by_oid(&self, oid: Oid) -> Result<Arc<Sequence>, SqlError> {
        let found = self.schema().sequence(oid).cloned();
        found.ok_or_else(|| SqlError::internal(format!("sequence {oid} is named and is not there")))
    }

    pub(super) fn view_by_oid(&self, oid: Oid) -> Result<Arc<schema::View>, SqlError> {
        let found = self.schema().view(oid).cloned();
        found.ok_or_else(|| SqlError::internal(format!("view {oid} is named and is not there")))
    }

    /// Where something new of this name goes, which the role may put there. The name may be taken.
    pub(super) fn place_for(&self, name: &Name) -> Result<Oid, SqlError> {
        self.check_database(name)?;
        check_name(&name.name)?;
        let namespace = match &name.schema {
            Some(schema) if is_system(schema) => {
                let message = format!("permission denied for schema {schema}");
                return Err(error(SqlState::INSUFFICIENT_PRIVILEGE, message));
            }
            Some(schema) => self.namespace(schema)?,
            None => self.first_namespace()?,
        };
        self.check_namespace(namespace, privilege::CREATE)?;
        Ok(namespace)
    }

    /// Where something new goes whose schema is not said.
    pub(super) fn first_namespace(&self) -> Result<Oid, SqlError> {
        let first = self.ddl.path.iter().copied().find(|oid| self.schema().namespace_by_oid(*oid).is_some());
        first.ok_or_else(|| error(SqlState::INVALID_SCHEMA_NAME, "no schema has been selected to create in"))
    }

    /// A name for something, made of these parts, that nothing has in the schema, nor is among
    /// `taken`.
    pub(super) fn free_name(&self, namespace: Oid, parts: (&str, &str), label: &str, taken: &[String]) -> String {
        let mut number = 0;
        loop {
            let label = if number == 0 { label.to_owned() } else { format!("{label}{number}") };
            let name = composed_name(parts.0, parts.1, &label);
            if self.schema().named(namespace, &name).is_none() && !taken.contains(&name) {
                return name;
            }
            number += 1;
        }
    }

    /// A relation's name as messages show it: with its schema unless it is found without.
    pub(super) fn shown(&self, namespace: Oid, name: &str) -> String {
        let own = self.schema().named(namespace, name);
        if own.is_some() && self.schema().find(self.ddl.path, name) == own {
            return name.to_owned();
        }
        format!("{}.{name}", self.schema().namespace_name(namespace))
    }

    // --- roles --------------------------------------------------------------------------------

    /// The role that a statement means.
    pub(super) fn role(&self, name: &RoleName) -> Result<Oid, SqlError> {
        let name = match name {
            RoleName::Current => return Ok(self.ddl.role),
            RoleName::Session => return Ok(self.ddl.session_role),
            RoleName::Public => "public",
            RoleName::Named(name) => name,
        };
        let role = self.schema().role(name);
        role.map(|role| role.oid)
            .ok_or_else(|| error(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist")))
    }

    pub(super) fn is_superuser(&self) -> bool {
        self.schema().role_by_oid(self.ddl.role).is_some_and(|role| role.superuser)
    }

    /// Fails unless the role owns what this role owns.
    pub(super) fn check_owner(&self, owner: Oid, kind: &str, name: &str) -> Result<(), SqlError> {
        if self.schema().is_member(self.ddl.role, owner) {
            return Ok(());
        }
        Err(error(SqlState::INSUFFICIENT_PRIVILEGE, format!("must be owner of {kind} {name}")))
    }

    /// Fails unless the role may do this.
    pub(super) fn check_grant(
        &self,
        owner: Oid,
        grants: &[Grant],
        wanted: u16,
        kind: &str,
        name: &str,
    ) -> Result<(), SqlError> {
        if self.schema().privileges(self.ddl.role, owner, grants) & wanted == wanted {
            return Ok(());
        }
        Err(schema::denied(kind, name))
    }

    pub(super) fn check_namespace(&self, oid: Oid, wanted: u16) -> Result<(), SqlError> {
        let Some(namespace) = self.schema().namespace_by_oid(oid) else {
            return Err(SqlError::internal(format!("schema {oid} is named and is not there")));
        };
        self.check_grant(namespace.owner, &namespace.grants, wanted, "schema", &namespace.name)
    }

    /// Fails unless the role may give things to this one.
    pub(super) fn check_new_owner(&self, owner: Oid) -> Result<(), SqlError> {
        if self.schema().may_become(self.ddl.role, owner) {
            return Ok(());
        }
        let name = self.schema().role_by_oid(owner).map_or("", |role| &role.name);
        Err(error(SqlState::INSUFFICIENT_PRIVILEGE, format!("must be able to SET ROLE \"{name}\"")))
    }

    // --- changes ------------------------------------------------------------------------------

    /// Locks a table against everybody else, and notes that it changes.
    pub(super) fn lock(&mut self, table: Oid) -> Step<()> {
        if !self.ddl.locks.try_lock(table, LockMode::AccessExclusive) {
            return Err(Halt::Blocked(table, LockMode::AccessExclusive));
        }
        self.ddl.effects.change(table);
        Ok(())
    }

    /// The same for a table of another database.
    pub(super) fn lock_of_other(&self, table: Oid) -> Step<()> {
        match self.ddl.locks.try_lock(table, LockMode::AccessExclusive) {
            true => Ok(()),
            false => Err(Halt::Blocked(table, LockMode::AccessExclusive)),
        }
    }

    /// From here on the transaction sees what was committed before the locks that it has were
    /// granted.
    pub(super) fn see_everything(&self) {
        // A serializable one is validated: if it misses something, it does not commit.
        if self.ddl.transaction.isolation() != Isolation::Serializable {
            self.ddl.transaction.refresh();
        }
    }

    pub(super) fn put(&mut self, object: Object) -> Result<(), SqlError> {
        self.change.put(object)
    }

    pub(super) fn put_table(&mut self, table: Table) -> Result<Arc<TableInfo>, SqlError> {
        let oid = table.oid;
        self.change.put(Object::Table(table))?;
        self.table_by_oid(oid)
    }

    /// A name for a new table of the engine for this table's rows.
    pub(super) fn name_for_rows(&mut self, table: Oid) -> String {
        let database = self.ddl.catalog.database();
        let taken = |name: &String| database.table(name).is_some();
        let mut names = (1u64..).map(|number| format!("sql.{table}.{number}"));
        let name = names.find(|name| !taken(name)).unwrap_or_default();
        self.ddl.effects.touch_rows(self.ddl.catalog, &name);
        name
    }

    /// All tables, views and sequences, in the order of their ids.
    pub(super) fn relations(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.schema().entries().cloned().collect();
        entries.retain(|entry| matches!(entry, Entry::Table(_) | Entry::View(_) | Entry::Sequence(_)));
        entries.sort_by_key(Entry::oid);
        entries
    }
}

impl Ddl<'_, '_> {
    /// LOCK TABLE
    pub(super) fn lock(&mut self, lock: &syntax::Lock) -> Step<Outcome> {
        for name in &lock.tables {
            self.schema.check_database(&name.parts())?;
            let found = self.schema.lookup(self.role, self.path, name.schema.as_deref(), &name.name);
            let oid = match found? {
                None => return Err(no_relation(&name.to_string()).into()),
                Some(Named::Table(oid)) => oid,
                Some(_) => {
                    let message = format!("\"{}\" is not a table", name.name);
                    return Err(error(SqlState::WRONG_OBJECT_TYPE, message).into());
                }
            };
            let Some(info) = self.schema.table(oid) else { return Err(no_relation(&name.name).into()) };
            let held = self.schema.privileges(self.role, info.table.owner, &info.table.grants);
            let writing = privilege::UPDATE | privilege::DELETE | privilege::TRUNCATE;
            let enough = match lock.mode {
                LockMode::AccessShare => privilege::SELECT,
                LockMode::RowExclusive => writing | privilege::INSERT,
                _ => writing,
            };
            if held & enough == 0 {
                let message = format!("permission denied for table {}", info.table.name);
                return Err(error(SqlState::INSUFFICIENT_PRIVILEGE, message).into());
            }
            if !self.locks.try_lock(oid, lock.mode) {
                if lock.no_wait {
                    let message = format!("could not obtain lock on relation \"{}\"", info.table.name);
                    return Err(error(SqlState::LOCK_NOT_AVAILABLE, message).into());
                }
                return Err(Halt::Blocked(oid, lock.mode));
            }
        }
        Ok(Outcome { tag: "LOCK TABLE", fill: None })
    }
}

/// Whether a schema is one of the system's.
pub(super) fn is_system(schema: &str) -> bool {
    schema == "pg_catalog" || schema == "information_schema"
}

/// Fails when a name is too long to be one.
pub(super) fn check_name(name: &str) -> Result<(), SqlError> {
    if name.len() > LONGEST_NAME {
        let message = format!("identifier \"{name}\" is longer than {LONGEST_NAME} bytes");
        return Err(error(SqlState::NAME_TOO_LONG, message));
    }
    if name.is_empty() {
        return Err(error(SqlState::SYNTAX_ERROR, "zero-length delimited identifier"));
    }
    Ok(())
}

/// `one_other_label`, both parts shortened so that it is not too long, the longer one first.
fn composed_name(one: &str, other: &str, label: &str) -> String {
    let between = usize::from(!other.is_empty()) + usize::from(!label.is_empty());
    let room = LONGEST_NAME.saturating_sub(label.len() + between);
    let (mut first, mut second) = (one.len(), other.len());
    while first + second > room {
        if first > second { first -= 1 } else { second -= 1 }
    }
    let cut = |text: &str, mut length: usize| {
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        text[..length].to_owned()
    };
    let mut name = cut(one, first);
    for part in [cut(other, second), label.to_owned()] {
        if !part.is_empty() {
            name.push('_');
            name.push_str(&part);
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_are_not_too_long() {
        assert_eq!(composed_name("t", "a_b", "key"), "t_a_b_key");
        assert_eq!(composed_name("t", "", "pkey"), "t_pkey");
        let long = composed_name(&"t".repeat(60), &"c".repeat(60), "fkey");
        assert_eq!(long.len(), LONGEST_NAME);
        assert!(long.ends_with("_fkey"));
        let wide = composed_name(&"ä".repeat(40), "", "idx1");
        assert!(wide.len() <= LONGEST_NAME && wide.ends_with("_idx1"));
    }
}
