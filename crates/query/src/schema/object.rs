//! What the catalog keeps: tables and their columns, views, sequences, schemas, roles.

use freshet_sql::Type;
use serde::{Deserialize, Serialize};

use super::Extension;

/// An object id, as PostgreSQL's clients know it.
pub type Oid = u32;

/// Object ids of users' objects begin here.
pub const FIRST_USER_OID: Oid = 16384;
/// `pg_catalog`.
pub const PG_CATALOG: Oid = 11;
/// `information_schema`.
pub const INFORMATION_SCHEMA: Oid = 13000;
/// What is kept of all databases together, and in place of a database what they share.
pub const COMMON: Oid = 0;
/// The database `template1`.
pub const TEMPLATE1: Oid = 1;
/// The database `template0`.
pub const TEMPLATE0: Oid = 4;
/// The database `postgres`.
pub const POSTGRES: Oid = 5;
/// The database that is named as the first role.
pub const FIRST_DATABASE: Oid = 16383;
/// `public`; each database has its own.
pub const PUBLIC: Oid = 2200;
/// The role that is there from the beginning, a superuser.
pub const FIRST_ROLE: Oid = 10;
/// `pg_database_owner`: the owner of a session's database is its one member.
pub const DATABASE_OWNER: Oid = 6171;

/// One thing in the catalog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Object {
    /// A schema.
    Namespace(Namespace),
    /// A role.
    Role(Role),
    /// A table, with its indexes and constraints.
    Table(Table),
    /// A view.
    View(View),
    /// A sequence.
    Sequence(Sequence),
    /// What people say of an object.
    Comment(Comment),
    /// A database.
    Database(Database),
    /// What is kept of all databases together.
    Common(Common),
    /// An extension.
    Extension(Extension),
}

/// A schema, in SQL's sense.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Namespace {
    /// The oid in `pg_namespace`.
    pub oid: Oid,
    /// The schema's name.
    pub name: String,
    /// The role that owns it.
    pub owner: Oid,
    /// What others may do with it.
    pub grants: Vec<Grant>,
}

/// A role: a user, or a group of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Role {
    /// The oid in `pg_authid`.
    pub oid: Oid,
    /// The role's name.
    pub name: String,
    /// Whether it may do everything.
    pub superuser: bool,
    /// Whether it may open sessions.
    pub login: bool,
    /// Whether it may make roles.
    pub create_role: bool,
    /// Whether it may make databases.
    pub create_database: bool,
    /// From what its password is checked, in PostgreSQL's notation for SCRAM; without one, no
    /// password is right.
    pub verifier: Option<String>,
    /// Whether by default it inherits the privileges of roles that it becomes a member of.
    pub inherit: bool,
    /// The roles that it is a member of; of one by several grants, if several roles have granted
    /// it.
    pub member_of: Vec<MemberOf>,
    /// How many sessions it may have at once; none for any number.
    pub connection_limit: Option<u32>,
    /// Until when its password is valid, as in [`Timestamp`](freshet_sql::types::Timestamp); none
    /// for ever.
    pub valid_until: Option<i64>,
}

/// How a role is a member of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberOf {
    /// The id of the membership.
    pub oid: Oid,
    /// The role that it is a member of.
    pub role: Oid,
    /// The role that granted it.
    pub grantor: Oid,
    /// Whether it may grant and revoke membership, and change and drop that role.
    pub admin: bool,
    /// Whether it has that role's privileges.
    pub inherit: bool,
    /// Whether it may become that role: SET ROLE.
    pub set: bool,
}

/// What a role may do with a table, view or sequence, as bits.
pub mod privilege {
    /// SELECT
    pub const SELECT: u16 = 1;
    /// INSERT
    pub const INSERT: u16 = 2;
    /// UPDATE
    pub const UPDATE: u16 = 4;
    /// DELETE
    pub const DELETE: u16 = 8;
    /// TRUNCATE
    pub const TRUNCATE: u16 = 16;
    /// REFERENCES
    pub const REFERENCES: u16 = 32;
    /// TRIGGER: there are none; kept for what clients say.
    pub const TRIGGER: u16 = 64;
    /// USAGE of a sequence or schema.
    pub const USAGE: u16 = 128;
    /// CREATE in a schema.
    pub const CREATE: u16 = 256;
    /// All privileges that a table can have.
    pub const ALL_TABLE: u16 = SELECT | INSERT | UPDATE | DELETE | TRUNCATE | REFERENCES | TRIGGER;
    /// All privileges that a column can have.
    pub const ALL_COLUMN: u16 = SELECT | INSERT | UPDATE | REFERENCES;
    /// All privileges that a sequence can have.
    pub const ALL_SEQUENCE: u16 = SELECT | UPDATE | USAGE;
    /// All privileges that a schema can have.
    pub const ALL_SCHEMA: u16 = CREATE | USAGE;
    /// All privileges that a database can have.
    pub const ALL_DATABASE: u16 = CREATE | TEMPORARY | CONNECT;
    /// TEMPORARY in a database: there are no temporary tables; kept for what clients say.
    pub const TEMPORARY: u16 = 512;
    /// CONNECT to a database.
    pub const CONNECT: u16 = 1024;

    /// The privilege of this name, in small letters.
    pub fn named(name: &str) -> Option<u16> {
        Some(match name {
            "select" => SELECT,
            "insert" => INSERT,
            "update" => UPDATE,
            "delete" => DELETE,
            "truncate" => TRUNCATE,
            "references" => REFERENCES,
            "trigger" => TRIGGER,
            "usage" => USAGE,
            "create" => CREATE,
            "temporary" | "temp" => TEMPORARY,
            "connect" => CONNECT,
            _ => return None,
        })
    }
}

/// What a role was granted on an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// To whom; 0 is PUBLIC.
    pub role: Oid,
    /// On which column, by its number from 0; on the whole object without one.
    pub column: Option<u16>,
    /// What: bits of [`privilege`].
    pub privileges: u16,
    /// Which of these may be granted on.
    pub grantable: u16,
    /// By whom.
    pub grantor: Oid,
}

/// Gives an object to another owner, with what its owner has granted. What the new one was granted
/// before is part of what an owner has anyway.
pub fn change_owner(owner: &mut Oid, grants: &mut Vec<Grant>, to: Oid) {
    let from = std::mem::replace(owner, to);
    let before = std::mem::take(grants);
    for mut grant in before.into_iter().filter(|grant| ![from, to].contains(&grant.role)) {
        if grant.grantor == from {
            grant.grantor = to;
        }
        let place = |it: &Grant| (it.role, it.column, it.grantor);
        match grants.iter_mut().find(|known| place(known) == place(&grant)) {
            Some(known) => {
                known.privileges |= grant.privileges;
                known.grantable |= grant.grantable;
            }
            None => grants.push(grant),
        }
    }
}

/// A table, as the catalog keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// The oid in `pg_class`.
    pub oid: Oid,
    /// The schema that it is in.
    pub namespace: Oid,
    /// The table's name, without its schema.
    pub name: String,
    /// The role that owns it.
    pub owner: Oid,
    /// Its columns. Numbers never change: a column that was dropped leaves its place.
    pub columns: Vec<Column>,
    /// The engine's table that has its rows. Another one after TRUNCATE and what rewrites the rows.
    pub rows: String,
    /// Its indexes; the first is the one that rows are stored by.
    pub indexes: Vec<Index>,
    /// CHECK constraints.
    pub checks: Vec<Check>,
    /// FOREIGN KEY constraints of this table.
    pub foreign_keys: Vec<ForeignKey>,
    /// What others may do with it.
    pub grants: Vec<Grant>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// The column's name.
    pub name: String,
    /// The type of its values.
    pub ty: Type,
    /// Whether it must have a value.
    pub not_null: bool,
    /// DEFAULT, as SQL.
    pub default: Option<String>,
    /// GENERATED … AS IDENTITY.
    pub identity: Option<Identity>,
    /// Whether it was dropped: nobody sees it any more.
    pub dropped: bool,
    /// Whether statements do not see it: it is the id that rows without a primary key have, or
    /// computed for an index.
    pub hidden: bool,
    /// How its value follows from the row, if it is computed for an index.
    pub computed: Option<Computed>,
    /// What rows have here that were written before the column was added: a value in its binary
    /// form.
    pub missing: Option<Vec<u8>>,
}

/// How the value of a hidden column follows from a row, so that the engine, which knows no types,
/// finds it there as it finds any key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Computed {
    /// The expression, as SQL.
    pub expression: String,
    /// It is computed only where this condition holds, and null elsewhere: SQL, too.
    pub when: Option<String>,
}

/// How an identity column gets its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identity {
    /// ALWAYS
    Always,
    /// BY DEFAULT
    ByDefault,
}

/// An index of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// Its id; 0 for the hidden one.
    pub oid: Oid,
    /// The index's name, without its schema.
    pub name: String,
    /// The engine's number for it.
    pub number: u16,
    /// Its columns, most significant first.
    pub columns: Vec<IndexColumn>,
    /// Columns that were named with INCLUDE. They are no part of the key; a reader of the
    /// index has the row.
    pub include: Vec<u16>,
    /// Which rows it has, if not all.
    pub predicate: Option<Predicate>,
    /// What was said after USING.
    pub method: AccessMethod,
    /// Whether no two rows have the same key.
    pub unique: bool,
    /// NULLS NOT DISTINCT: whether a missing value is the same as another one.
    pub nulls_not_distinct: bool,
    /// The constraint for which it was made, if it was.
    pub constraint: IndexConstraint,
    /// When it is seen to that no two rows have the same key.
    pub deferral: Deferral,
}

/// When a constraint is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deferral {
    /// NOT DEFERRABLE: a key with each row, a reference with each statement.
    #[default]
    Never,
    /// DEFERRABLE INITIALLY IMMEDIATE: with each statement, unless it is deferred.
    Immediate,
    /// DEFERRABLE INITIALLY DEFERRED: when the transaction commits.
    Deferred,
}

impl Deferral {
    /// Whether it may be deferred.
    pub fn is_deferrable(self) -> bool {
        self != Self::Never
    }

    /// What SQL says of it, after a blank; nothing where it says nothing.
    pub fn sql(self) -> &'static str {
        match self {
            Self::Never => "",
            Self::Immediate => " DEFERRABLE",
            Self::Deferred => " DEFERRABLE INITIALLY DEFERRED",
        }
    }
}

/// Which rows an index has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predicate {
    /// Those that fulfil this condition, as SQL.
    pub condition: String,
    /// The hidden column that says whether a row does; none where the engine sees it from the
    /// columns that the condition is about.
    pub column: Option<u16>,
}

/// An access method. All indexes are ordered; what was asked for is only remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessMethod {
    /// btree
    #[default]
    Btree,
    /// hash
    Hash,
}

/// Which constraint an index is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexConstraint {
    /// The index belongs to no constraint.
    None,
    /// PRIMARY KEY
    Primary,
    /// UNIQUE
    Unique,
}

/// A column of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexColumn {
    /// The column's number in the table, from 0.
    pub column: u16,
    /// Whether larger values come first.
    pub descending: bool,
    /// Whether nulls come before all values; otherwise they come behind them.
    pub nulls_first: bool,
    /// The operator class, if it is not the type's usual one. All order values in the same way.
    pub class: Option<String>,
    /// The collation, if one was named. There is one order of texts, under several names.
    pub collation: Option<String>,
}

/// A CHECK constraint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The oid in `pg_constraint`.
    pub oid: Oid,
    /// The constraint's name.
    pub name: String,
    /// The condition, as SQL.
    pub condition: String,
}

/// A FOREIGN KEY constraint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForeignKey {
    /// The oid in `pg_constraint`.
    pub oid: Oid,
    /// The constraint's name.
    pub name: String,
    /// The columns of this table.
    pub columns: Vec<u16>,
    /// The table that is referred to.
    pub parent: Oid,
    /// Its columns, in the same order; they are those of a unique index.
    pub parent_columns: Vec<u16>,
    /// ON DELETE
    pub on_delete: ReferentialAction,
    /// ON UPDATE
    pub on_update: ReferentialAction,
    /// When it is checked.
    pub deferral: Deferral,
}

/// What becomes of rows when the row that they refer to goes or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReferentialAction {
    /// It may not, seen at the end of the statement.
    NoAction,
    /// It may not.
    Restrict,
    /// They go or change with it.
    Cascade,
    /// They refer to nothing.
    SetNull,
    /// They get their columns' defaults.
    SetDefault,
}

/// A view, as the catalog keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// The oid in `pg_class`.
    pub oid: Oid,
    /// The schema that it is in.
    pub namespace: Oid,
    /// The view's name, without its schema.
    pub name: String,
    /// The role that owns it.
    pub owner: Oid,
    /// The names and types of its columns.
    pub columns: Vec<(String, Type)>,
    /// What it shows, as SQL: relations with their schemas.
    pub query: String,
    /// The relations that it refers to.
    pub uses: Vec<Oid>,
    /// Whether it is read in the name of the role that reads it, instead of its owner's.
    pub security_invoker: bool,
    /// What others may do with it.
    pub grants: Vec<Grant>,
}

/// A sequence: what it was made with. Where it stands is kept apart, outside of transactions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sequence {
    /// The oid in `pg_class`.
    pub oid: Oid,
    /// The schema that it is in.
    pub namespace: Oid,
    /// The sequence's name, without its schema.
    pub name: String,
    /// The role that owns it.
    pub owner: Oid,
    /// Under which number it is kept where it stands. Another one when it begins again.
    pub state: u64,
    /// The type of its values.
    pub ty: Type,
    /// Where it begins.
    pub start: i64,
    /// How far each value is from the one before.
    pub increment: i64,
    /// The smallest value.
    pub minimum: i64,
    /// The largest.
    pub maximum: i64,
    /// How many values a session takes at a time.
    pub cache: i64,
    /// Whether it begins again at its end.
    pub cycle: bool,
    /// The table and column that it belongs to: it goes with them.
    pub owned_by: Option<(Oid, u16)>,
    /// What others may do with it.
    pub grants: Vec<Grant>,
}

/// What people say of an object: COMMENT ON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comment {
    /// Its own id.
    pub oid: Oid,
    /// What it is about: an object, index or constraint.
    pub object: Oid,
    /// Which column of the object, from 0, if it is about one.
    pub column: Option<u16>,
    /// Whether it is about the constraint of this id, not about its index, which has the same.
    pub constraint: bool,
    /// Whether the object is one that databases share, and so is what is said.
    pub shared: bool,
    /// What is said.
    pub text: String,
}

/// A database of the node, with a catalog of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Database {
    /// The oid in `pg_database`.
    pub oid: Oid,
    /// The database's name.
    pub name: String,
    /// The role that owns it.
    pub owner: Oid,
    /// What others may do with it. Without any grant nobody but its owner may; a new database has
    /// those of [`Database::public`].
    pub grants: Vec<Grant>,
    /// Whether sessions may be opened in it.
    pub allow_connections: bool,
    /// How many sessions it may have at once; none for any number.
    pub connection_limit: Option<u32>,
    /// Whether every role that may make databases may copy it.
    pub is_template: bool,
    /// What sessions in it begin with. These override the settings for all databases.
    pub settings: Vec<RoleSetting>,
}

impl Database {
    /// A database as CREATE DATABASE makes it.
    pub fn new(oid: Oid, name: &str, owner: Oid) -> Self {
        Self {
            oid,
            name: name.to_owned(),
            owner,
            grants: vec![Self::public(owner)],
            allow_connections: true,
            connection_limit: None,
            is_template: false,
            settings: Vec::new(),
        }
    }

    /// What PUBLIC has on a database that nobody has granted or revoked anything on.
    pub fn public(owner: Oid) -> Grant {
        let privileges = privilege::CONNECT | privilege::TEMPORARY;
        Grant { role: 0, column: None, privileges, grantable: 0, grantor: owner }
    }
}

/// What is kept of all databases together.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Common {
    /// The secret from which clients get a decoy in place of a role's salt. The same on all nodes,
    /// for ever.
    pub secret: [u8; 32],
    /// What sessions in any database begin with.
    pub settings: Vec<RoleSetting>,
}

impl std::fmt::Debug for Common {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Common").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A setting with which sessions begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleSetting {
    /// For sessions of this role; 0 for all roles.
    pub role: Oid,
    /// The setting's name.
    pub name: String,
    /// The setting's value, as text.
    pub value: String,
}

impl Object {
    /// The oid by which system catalogs know it.
    pub fn oid(&self) -> Oid {
        match self {
            Self::Namespace(it) => it.oid,
            Self::Role(it) => it.oid,
            Self::Table(it) => it.oid,
            Self::View(it) => it.oid,
            Self::Sequence(it) => it.oid,
            Self::Comment(it) => it.oid,
            Self::Database(it) => it.oid,
            Self::Common(_) => COMMON,
            Self::Extension(it) => it.oid,
        }
    }

    /// Whether databases share it.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::Role(_) | Self::Database(_) | Self::Common(_) => true,
            Self::Comment(it) => it.shared,
            Self::Namespace(_) | Self::Table(_) | Self::View(_) | Self::Sequence(_) | Self::Extension(_) => false,
        }
    }

    /// The object's name, without its schema.
    pub fn name(&self) -> &str {
        match self {
            Self::Namespace(it) => &it.name,
            Self::Role(it) => &it.name,
            Self::Table(it) => &it.name,
            Self::View(it) => &it.name,
            Self::Sequence(it) => &it.name,
            Self::Database(it) => &it.name,
            Self::Extension(it) => &it.name,
            Self::Comment(_) | Self::Common(_) => "",
        }
    }
}

impl Column {
    /// A column that may be null and has no default.
    pub fn new(name: &str, ty: Type) -> Self {
        Self {
            name: name.to_owned(),
            ty,
            not_null: false,
            default: None,
            identity: None,
            dropped: false,
            hidden: false,
            computed: None,
            missing: None,
        }
    }

    /// Whether statements see it.
    pub fn is_visible(&self) -> bool {
        !self.dropped && !self.hidden
    }

    /// Whether it is the id that rows without a primary key have.
    pub fn is_row_id(&self) -> bool {
        self.hidden && self.computed.is_none()
    }
}

impl IndexColumn {
    /// A column in ascending order.
    pub fn new(column: u16) -> Self {
        Self { column, descending: false, nulls_first: false, class: None, collation: None }
    }
}

impl Index {
    /// An index that has all rows, for no constraint.
    pub fn new(oid: Oid, name: String, columns: Vec<IndexColumn>, unique: bool) -> Self {
        Self {
            oid,
            name,
            number: 0,
            columns,
            include: Vec::new(),
            predicate: None,
            method: AccessMethod::Btree,
            unique,
            nulls_not_distinct: false,
            constraint: IndexConstraint::None,
            deferral: Deferral::Never,
        }
    }

    /// Whether it makes just these columns of every row unique, at any time, in whatever order.
    pub fn is_unique_over(&self, columns: &[u16]) -> bool {
        self.is_unique_at_once()
            && self.oid != 0
            && self.predicate.is_none()
            && self.columns.len() == columns.len()
            && self.columns.iter().all(|part| columns.contains(&part.column))
    }
}

impl Index {
    /// Whether the engine sees to it that no two rows have the same key, with each row.
    pub fn is_unique_at_once(&self) -> bool {
        self.unique && !self.deferral.is_deferrable()
    }
}

impl Table {
    /// The columns that statements see, with their numbers.
    pub fn visible_columns(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(|(_, column)| column.is_visible())
    }

    /// The number of the column of this name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.visible_columns().find(|(_, column)| column.name == name).map(|(number, _)| number)
    }

    /// The engine's table is made again: its indexes are numbered as they come.
    pub fn number_indexes(&mut self) {
        (0..).zip(&mut self.indexes).for_each(|(number, index)| index.number = number);
    }

    /// The index of the primary key.
    pub fn primary_key(&self) -> Option<&Index> {
        self.indexes.iter().find(|index| index.constraint == IndexConstraint::Primary)
    }
}
