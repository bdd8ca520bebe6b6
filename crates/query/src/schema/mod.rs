//! The catalog: what there is, at one version.
//!
//! It is kept in a table of the engine (module [`store`]), and so it is transactional, logged and
//! replicated like all data. A [`Schema`] is what that table says of one database at one version,
//! with everything found by name; sessions share it and never change it. Every statement looks at
//! the version in its own snapshot first. Roles, and the list of databases, are in all of them.

pub mod change;
pub mod computed;
pub mod extension;
pub mod object;
pub mod references;
pub mod relation;
pub mod store;

use std::{collections::HashMap, sync::Arc};

use freshet_sql::{SqlError, SqlState};

pub use change::{Change, ChangeError};
pub use extension::Extension;
pub use object::*;
pub use relation::TableInfo;
pub use store::{Catalog, SchemaVersion};

/// Everything that there is in a database, at one version.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Which version it is.
    pub version: SchemaVersion,
    /// Which database; [`COMMON`] for what databases share and nothing else.
    pub database: Oid,
    objects: HashMap<Oid, Entry>,
    /// Tables, views, sequences and indexes of a schema share their names.
    names: HashMap<(Oid, String), Named>,
    namespaces: HashMap<String, Oid>,
    roles: HashMap<String, Oid>,
    databases: HashMap<String, Oid>,
    extensions: HashMap<String, Oid>,
    /// Comments by what they are about: an object, or a column of it, or the constraint of its id.
    comments: HashMap<(Oid, Option<u16>, bool), Oid>,
    /// Foreign keys that refer to a table: the referring table and the number of its constraint.
    referring: HashMap<Oid, Vec<(Oid, usize)>>,
}

/// An object, with what follows from it.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A schema.
    Namespace(Arc<Namespace>),
    /// A role.
    Role(Arc<Role>),
    /// A table.
    Table(Arc<TableInfo>),
    /// A view.
    View(Arc<View>),
    /// A sequence.
    Sequence(Arc<Sequence>),
    /// What people say of an object.
    Comment(Arc<Comment>),
    /// A database.
    Database(Arc<Database>),
    /// What is kept of all databases together.
    Common(Arc<Common>),
    /// An extension.
    Extension(Arc<Extension>),
}

/// What a name in a schema means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A table.
    Table(Oid),
    /// A view.
    View(Oid),
    /// A sequence.
    Sequence(Oid),
    /// An index of a table.
    Index {
        /// The table.
        table: Oid,
        /// The index's number in it.
        number: usize,
    },
}

impl Schema {
    /// A database with nothing in it.
    pub fn empty(database: Oid) -> Self {
        Self { database, ..Self::default() }
    }

    /// Enters an object.
    pub(crate) fn enter(&mut self, entry: Entry) {
        match &entry {
            Entry::Namespace(it) => {
                self.namespaces.insert(it.name.clone(), it.oid);
            }
            Entry::Role(it) => {
                self.roles.insert(it.name.clone(), it.oid);
            }
            Entry::View(it) => {
                self.names.insert((it.namespace, it.name.clone()), Named::View(it.oid));
            }
            Entry::Sequence(it) => {
                self.names.insert((it.namespace, it.name.clone()), Named::Sequence(it.oid));
            }
            Entry::Comment(it) => {
                self.comments.insert((it.object, it.column, it.constraint), it.oid);
            }
            Entry::Database(it) => {
                self.databases.insert(it.name.clone(), it.oid);
            }
            Entry::Common(_) => {}
            Entry::Extension(it) => {
                self.extensions.insert(it.name.clone(), it.oid);
            }
            Entry::Table(info) => {
                let table = &info.table;
                self.names.insert((table.namespace, table.name.clone()), Named::Table(table.oid));
                for (number, index) in table.indexes.iter().enumerate().filter(|(_, index)| index.oid != 0) {
                    let name = (table.namespace, index.name.clone());
                    self.names.insert(name, Named::Index { table: table.oid, number });
                }
                for (number, key) in table.foreign_keys.iter().enumerate() {
                    self.referring.entry(key.parent).or_default().push((table.oid, number));
                }
            }
        }
        self.objects.insert(entry.oid(), entry);
    }

    /// Takes an object out.
    pub(crate) fn leave(&mut self, oid: Oid) {
        let Some(entry) = self.objects.remove(&oid) else { return };
        match entry {
            Entry::Namespace(it) => drop(self.namespaces.remove(&it.name)),
            Entry::Role(it) => drop(self.roles.remove(&it.name)),
            Entry::Comment(it) => drop(self.comments.remove(&(it.object, it.column, it.constraint))),
            Entry::Database(it) => drop(self.databases.remove(&it.name)),
            Entry::Common(_) => {}
            Entry::Extension(it) => drop(self.extensions.remove(&it.name)),
            Entry::View(it) => drop(self.names.remove(&(it.namespace, it.name.clone()))),
            Entry::Sequence(it) => drop(self.names.remove(&(it.namespace, it.name.clone()))),
            Entry::Table(info) => {
                self.names.remove(&(info.table.namespace, info.table.name.clone()));
                for index in info.table.indexes.iter().filter(|index| index.oid != 0) {
                    self.names.remove(&(info.table.namespace, index.name.clone()));
                }
                for key in &info.table.foreign_keys {
                    if let Some(referring) = self.referring.get_mut(&key.parent) {
                        referring.retain(|(table, _)| *table != oid);
                    }
                }
            }
        }
    }

    /// All objects, in no order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.objects.values()
    }

    /// The object of this id.
    pub fn entry(&self, oid: Oid) -> Option<&Entry> {
        self.objects.get(&oid)
    }

    /// The schema of this id.
    pub fn namespace_by_oid(&self, oid: Oid) -> Option<&Arc<Namespace>> {
        match self.objects.get(&oid)? {
            Entry::Namespace(namespace) => Some(namespace),
            _ => None,
        }
    }

    /// The schema of this name.
    pub fn namespace(&self, name: &str) -> Option<Oid> {
        self.namespaces.get(name).copied()
    }

    /// The role of this name.
    pub fn role(&self, name: &str) -> Option<&Arc<Role>> {
        match self.objects.get(self.roles.get(name)?)? {
            Entry::Role(role) => Some(role),
            _ => None,
        }
    }

    /// The extension of this id.
    pub fn extension_by_oid(&self, oid: Oid) -> Option<&Arc<Extension>> {
        match self.objects.get(&oid)? {
            Entry::Extension(extension) => Some(extension),
            _ => None,
        }
    }

    /// The extension of this name.
    pub fn extension(&self, name: &str) -> Option<&Arc<Extension>> {
        self.extension_by_oid(*self.extensions.get(name)?)
    }

    /// All extensions, in the order of their ids.
    pub fn extensions(&self) -> Vec<&Arc<Extension>> {
        let mut all: Vec<_> = self.extensions.values().filter_map(|oid| self.extension_by_oid(*oid)).collect();
        all.sort_unstable_by_key(|extension| extension.oid);
        all
    }

    /// What a name in a schema means.
    pub fn named(&self, namespace: Oid, name: &str) -> Option<Named> {
        // No allocation for a look-up would need a key of its own kind; statements are planned
        // once.
        self.names.get(&(namespace, name.to_owned())).copied()
    }

    /// What a name means that has no schema: the first one along the search path.
    pub fn find(&self, path: &[Oid], name: &str) -> Option<Named> {
        path.iter().find_map(|namespace| self.named(*namespace, name))
    }

    /// The table of this id.
    pub fn table(&self, oid: Oid) -> Option<&Arc<TableInfo>> {
        match self.objects.get(&oid)? {
            Entry::Table(info) => Some(info),
            _ => None,
        }
    }

    /// The view of this id.
    pub fn view(&self, oid: Oid) -> Option<&Arc<View>> {
        match self.objects.get(&oid)? {
            Entry::View(view) => Some(view),
            _ => None,
        }
    }

    /// The sequence of this id.
    pub fn sequence(&self, oid: Oid) -> Option<&Arc<Sequence>> {
        match self.objects.get(&oid)? {
            Entry::Sequence(sequence) => Some(sequence),
            _ => None,
        }
    }

    /// The role of this id.
    pub fn role_by_oid(&self, oid: Oid) -> Option<&Arc<Role>> {
        match self.objects.get(&oid)? {
            Entry::Role(role) => Some(role),
            _ => None,
        }
    }

    /// What people say of an object or index, or of a column, counted from 0; or, if `constraint`,
    /// of the constraint of this id.
    pub fn comment(&self, object: Oid, column: Option<u16>, constraint: bool) -> Option<&Arc<Comment>> {
        match self.objects.get(self.comments.get(&(object, column, constraint))?)? {
            Entry::Comment(comment) => Some(comment),
            _ => None,
        }
    }

    /// All comments on an object and its columns.
    pub fn comments_on(&self, object: Oid) -> impl Iterator<Item = &Arc<Comment>> {
        self.comments.iter().filter(move |((of, ..), _)| *of == object).filter_map(|(_, oid)| {
            match self.objects.get(oid)? {
                Entry::Comment(comment) => Some(comment),
                _ => None,
            }
        })
    }

    /// The name of the schema of this id.
    pub fn namespace_name(&self, oid: Oid) -> &str {
        match (oid, self.objects.get(&oid)) {
            (_, Some(Entry::Namespace(namespace))) => &namespace.name,
            (PG_CATALOG, _) => "pg_catalog",
            (INFORMATION_SCHEMA, _) => "information_schema",
            _ => "",
        }
    }

    /// Lets an error that names a column or a constraint say which table has it.
    pub fn concerning(&self, table: &Table, error: SqlError) -> SqlError {
        match error.column.is_some() || error.constraint.is_some() {
            true => error.with_table(self.namespace_name(table.namespace).to_owned(), table.name.clone()),
            false => error,
        }
    }

    /// The foreign keys that refer to a table: which table has them, and their numbers there.
    pub fn referring(&self, parent: Oid) -> &[(Oid, usize)] {
        self.referring.get(&parent).map_or(&[], Vec::as_slice)
    }

    /// The tables that a statement which changes rows of these may write to: these, those that
    /// refer to them, and so on as far as that may go. Behind them the others that they refer to,
    /// whose rows it may lock.
    pub fn touched_with(&self, tables: impl IntoIterator<Item = Oid>) -> (Vec<Oid>, Vec<Oid>) {
        let mut all: Vec<Oid> = Vec::new();
        let mut next: Vec<Oid> = tables.into_iter().collect();
        while let Some(table) = next.pop() {
            if all.contains(&table) {
                continue;
            }
            all.push(table);
            next.extend(self.referring(table).iter().map(|(child, _)| *child));
        }
        let parents = all.iter().filter_map(|table| self.table(*table));
        let parents = parents.flat_map(|info| info.table.foreign_keys.iter().map(|key| key.parent));
        let parents = parents.filter(|parent| !all.contains(parent)).collect();
        (all, parents)
    }

    /// This database.
    pub fn database(&self) -> Option<&Arc<Database>> {
        self.database_by_oid(self.database)
    }

    /// The database of this id.
    pub fn database_by_oid(&self, oid: Oid) -> Option<&Arc<Database>> {
        match self.objects.get(&oid)? {
            Entry::Database(database) => Some(database),
            _ => None,
        }
    }

    /// The database of this name.
    pub fn database_named(&self, name: &str) -> Option<&Arc<Database>> {
        self.database_by_oid(*self.databases.get(name)?)
    }

    /// Fails where a name of three parts begins with another database than this one.
    ///
    /// # Errors
    /// 0A000
    pub fn check_database(&self, parts: &[String]) -> Result<(), SqlError> {
        match (parts, self.database()) {
            ([database, _, _], Some(own)) if *database != own.name => {
                let message = format!("cross-database references are not implemented: \"{}\"", parts.join("."));
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
            }
            _ => Ok(()),
        }
    }

    /// All databases, in the order of their ids.
    pub fn databases(&self) -> Vec<&Arc<Database>> {
        let mut all: Vec<_> = self.databases.values().filter_map(|oid| self.database_by_oid(*oid)).collect();
        all.sort_unstable_by_key(|database| database.oid);
        all
    }

    /// What is kept of all databases together.
    pub fn common(&self) -> Option<&Arc<Common>> {
        match self.objects.get(&COMMON)? {
            Entry::Common(common) => Some(common),
            _ => None,
        }
    }

    fn is_superuser(&self, role: Oid) -> bool {
        self.role_by_oid(role).is_some_and(|role| role.superuser)
    }

    /// A role, and all that it is a member of by such grants, directly or not; the nearest first.
    fn with_groups(&self, role: Oid, counts: impl Fn(&MemberOf) -> bool) -> Vec<Oid> {
        let owner = self.database().map(|database| database.owner);
        let mut found = vec![role];
        let mut at = 0;
        while let Some(next) = found.get(at).copied() {
            at += 1;
            if Some(next) == owner && !found.contains(&DATABASE_OWNER) {
                found.push(DATABASE_OWNER);
            }
            let Some(role) = self.role_by_oid(next) else { continue };
            for member_of in role.member_of.iter().filter(|it| counts(it)) {
                if !found.contains(&member_of.role) {
                    found.push(member_of.role);
                }
            }
        }
        found
    }

    /// Whether a role has another role's privileges: it is that role, or inherits from it, directly
    /// or not. Superusers have the privileges of all.
    pub fn is_member(&self, role: Oid, of: Oid) -> bool {
        role == of || self.is_superuser(role) || self.with_groups(role, |it| it.inherit).contains(&of)
    }

    /// Whether a role may become another one. Superusers may become all.
    pub fn may_become(&self, role: Oid, other: Oid) -> bool {
        role == other || self.is_superuser(role) || self.with_groups(role, |it| it.set).contains(&other)
    }

    /// Whether a role is another one or a member of it, directly or not. Superusers count as
    /// members only if they are.
    pub fn is_within(&self, role: Oid, of: Oid) -> bool {
        self.with_groups(role, |_| true).contains(&of)
    }

    /// Whether a role may grant and revoke membership of another one: the role, or one that it is a
    /// member of, has ADMIN. Superusers may do so for all roles.
    pub fn administers(&self, role: Oid, other: Oid) -> bool {
        let groups = || self.with_groups(role, |_| true);
        self.is_superuser(role) || groups().into_iter().any(|group| self.has_admin(group, other))
    }

    /// The role that counts as grantor when `role` grants membership of another one: itself, or the
    /// nearest one whose privileges it has, if that has ADMIN; for a superuser the first role.
    pub fn administrator(&self, role: Oid, other: Oid) -> Option<Oid> {
        if self.is_superuser(role) {
            return Some(FIRST_ROLE);
        }
        self.with_groups(role, |it| it.inherit).into_iter().find(|group| self.has_admin(*group, other))
    }

    /// Whether a role itself was granted another one with ADMIN.
    pub fn has_admin(&self, role: Oid, other: Oid) -> bool {
        let role = self.role_by_oid(role);
        role.is_some_and(|role| role.member_of.iter().any(|it| it.role == other && it.admin))
    }

    /// Which privileges a role has on something with this owner and these grants. Privileges on
    /// single columns are not included.
    pub fn privileges(&self, role: Oid, owner: Oid, grants: &[Grant]) -> u16 {
        self.held(role, owner, grants, |column| column.is_none())
    }

    /// Which privileges a role has on one column of such a relation, by a grant on the column or on
    /// the relation.
    pub fn column_privileges(&self, role: Oid, owner: Oid, grants: &[Grant], column: u16) -> u16 {
        self.held(role, owner, grants, |of| of.is_none_or(|of| of == column))
    }

    /// Which privileges a role has on the relation, or on any of its columns.
    pub fn any_privileges(&self, role: Oid, owner: Oid, grants: &[Grant]) -> u16 {
        self.held(role, owner, grants, |_| true)
    }

    fn held(&self, role: Oid, owner: Oid, grants: &[Grant], counts: impl Fn(Option<u16>) -> bool) -> u16 {
        if self.is_member(role, owner) {
            return u16::MAX;
        }
        let counted = grants.iter().filter(|grant| counts(grant.column));
        let held = counted.filter(|grant| grant.role == 0 || self.is_member(role, grant.role));
        held.fold(0, |all, grant| all | grant.privileges)
    }

    /// Whether a role may do something with these columns of such a relation, as one privilege
    /// says: with any one, if none is named.
    pub fn may_with_columns(
        &self,
        (role, owner): (Oid, Oid),
        grants: &[Grant],
        privilege: u16,
        columns: impl IntoIterator<Item = u16>,
    ) -> bool {
        if self.privileges(role, owner, grants) & privilege != 0 {
            return true;
        }
        let mut columns = columns.into_iter().peekable();
        match columns.peek() {
            None => self.any_privileges(role, owner, grants) & privilege != 0,
            Some(_) => columns.all(|column| self.column_privileges(role, owner, grants, column) & privilege != 0),
        }
    }

    /// The schema of this name, for a role that uses what is in it; none when there is no such
    /// schema.
    ///
    /// # Errors
    /// 42501 without USAGE.
    pub fn usable_namespace(&self, role: Oid, name: &str) -> Result<Option<Oid>, SqlError> {
        let Some(oid) = self.namespace(name) else { return Ok(None) };
        if self.may_use(role, oid) {
            return Ok(Some(oid));
        }
        Err(denied("schema", name))
    }

    /// Whether a role has USAGE of a schema.
    pub fn may_use(&self, role: Oid, namespace: Oid) -> bool {
        let found = self.namespace_by_oid(namespace);
        found.is_none_or(|it| self.privileges(role, it.owner, &it.grants) & privilege::USAGE != 0)
    }

    /// The relation that a role means by a name: in the schema that the name gives, or along a path
    /// whose schemas the role may use.
    ///
    /// # Errors
    /// 42501 without USAGE of the schema.
    pub fn lookup(&self, role: Oid, path: &[Oid], schema: Option<&str>, name: &str) -> Result<Option<Named>, SqlError> {
        match schema {
            None => Ok(self.find(path, name)),
            Some(schema) => Ok(self.usable_namespace(role, schema)?.and_then(|namespace| self.named(namespace, name))),
        }
    }
}

impl Entry {
    /// The oid by which system catalogs know it.
    pub fn oid(&self) -> Oid {
        match self {
            Self::Namespace(it) => it.oid,
            Self::Role(it) => it.oid,
            Self::Table(it) => it.table.oid,
            Self::View(it) => it.oid,
            Self::Sequence(it) => it.oid,
            Self::Comment(it) => it.oid,
            Self::Database(it) => it.oid,
            Self::Common(_) => COMMON,
            Self::Extension(it) => it.oid,
        }
    }
}

/// The error 42501: a role may not do something with an object.
pub fn denied(kind: &str, name: &str) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied for {kind} {name}"))
}

/// 42P01 for a relation that there is not.
pub fn no_relation(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
}
