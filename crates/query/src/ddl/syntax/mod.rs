//! Statements that define: their syntax trees, and how they are read.
//!
//! `sqlparser` knows many dialects' definitions and only parts of PostgreSQL's: options in a fixed
//! order, no ALTER SEQUENCE, no membership in roles. So these statements are read here, on its
//! tokens; expressions, types and queries in them it reads itself. Names are as they are meant: in
//! small letters unless they were quoted.

mod access;
mod alter;
mod database;
mod extension;
mod object;
mod table;
mod words;

use sqlparser::{
    ast::{self, DataType, Expr, Query},
    parser::{Parser, ParserError},
};

pub use alter::{AlterTable, ColumnChange, TableChange};
pub use database::{AlterDatabase, CreateDatabase, DatabaseOption};
pub use extension::{AlterExtension, CreateExtension};
pub(crate) use words::{Read, Words};
pub use words::{conflict_target, starts_definition};

use crate::{schema::Deferral, syntax::PostgreSql};

/// The name of something that may be in a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The database, if it is said.
    pub database: Option<String>,
    /// The schema, if it is said.
    pub schema: Option<String>,
    /// The name in it.
    pub name: String,
}

/// A statement that defines.
#[derive(Clone, Debug, PartialEq)]
pub enum Definition {
    /// CREATE TABLE
    CreateTable(Box<CreateTable>),
    /// CREATE TABLE … AS
    CreateTableAs(Box<CreateTableAs>),
    /// CREATE INDEX
    CreateIndex(Box<CreateIndex>),
    /// CREATE SEQUENCE
    CreateSequence(CreateSequence),
    /// CREATE VIEW
    CreateView(Box<CreateView>),
    /// CREATE SCHEMA
    CreateSchema(CreateSchema),
    /// CREATE ROLE, CREATE USER
    CreateRole(CreateRole),
    /// ALTER TABLE, and what of it other relations can do, too.
    AlterTable(AlterTable),
    /// ALTER SEQUENCE, but RENAME, OWNER and SET SCHEMA.
    AlterSequence(AlterSequence),
    /// ALTER SCHEMA
    AlterSchema {
        /// The schema's name.
        name: String,
        /// What changes of it.
        change: AlterSchema,
    },
    /// ALTER ROLE, ALTER USER
    AlterRole {
        /// The role's name.
        name: RoleName,
        /// What changes of it.
        change: AlterRole,
    },
    /// CREATE DATABASE
    CreateDatabase(CreateDatabase),
    /// ALTER DATABASE, but SET and RESET
    AlterDatabase {
        /// The database's name.
        name: String,
        /// What changes of it.
        change: AlterDatabase,
    },
    /// DROP DATABASE
    DropDatabase {
        /// The database's name.
        name: String,
        /// IF EXISTS
        if_exists: bool,
        /// FORCE: sessions in it are ended.
        force: bool,
    },
    /// CREATE EXTENSION
    CreateExtension(CreateExtension),
    /// ALTER EXTENSION
    AlterExtension {
        /// The extension's name.
        name: String,
        /// What changes of it.
        change: AlterExtension,
    },
    /// ALTER ROLE … SET, ALTER DATABASE … SET
    AlterSetting {
        /// The role; none for all.
        role: Option<RoleName>,
        /// The database, if only one is meant.
        database: Option<String>,
        /// SET or RESET, with the setting.
        change: SettingChange,
    },
    /// DROP
    Drop(Drop),
    /// TRUNCATE
    Truncate(Truncate),
    /// GRANT, REVOKE on objects
    Grant(Grant),
    /// GRANT, REVOKE of roles
    Membership(Membership),
    /// COMMENT ON
    Comment(Comment),
    /// REASSIGN OWNED BY … TO
    ReassignOwned {
        /// The roles that lose what they own.
        from: Vec<RoleName>,
        /// The role that gets it.
        to: RoleName,
    },
    /// LOCK TABLE
    Lock(Lock),
    /// One that is not offered; what it is.
    Unsupported(String),
}

/// What CREATE TABLE makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// A table as all are.
    Permanent,
    /// TEMPORARY
    Temporary,
    /// UNLOGGED
    Unlogged,
}

/// An option in parentheses, and its value if it has one.
pub type StorageOption = (String, Option<String>);

/// CREATE TABLE
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTable {
    /// The name of the new table.
    pub name: Name,
    /// Permanent, temporary or unlogged.
    pub persistence: Persistence,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// Columns, constraints and tables to be like, in their order.
    pub elements: Vec<TableElement>,
    /// Options after the columns that there is no support for: what they are.
    pub unsupported: Option<&'static str>,
}

/// What stands between the parentheses.
#[derive(Clone, Debug, PartialEq)]
pub enum TableElement {
    /// A column.
    Column(Box<ColumnDefinition>),
    /// A constraint.
    Constraint(Constraint),
    /// LIKE another table, with what of it.
    Like(Name, LikeOptions),
}

/// What LIKE takes over besides columns and NOT NULL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LikeOptions {
    /// DEFAULTS
    pub defaults: bool,
    /// CONSTRAINTS: those that are checks.
    pub constraints: bool,
    /// IDENTITY
    pub identity: bool,
    /// INDEXES
    pub indexes: bool,
}

/// The definition of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnDefinition {
    /// The column's name.
    pub name: String,
    /// The type of its values.
    pub ty: DataType,
    /// NOT NULL, or NULL.
    pub not_null: Option<bool>,
    /// DEFAULT
    pub default: Option<Expr>,
    /// GENERATED … AS IDENTITY
    pub identity: Option<IdentityDefinition>,
    /// The constraints that are written beside it.
    pub constraints: Vec<Constraint>,
}

/// GENERATED … AS IDENTITY
#[derive(Clone, Debug, PartialEq)]
pub struct IdentityDefinition {
    /// ALWAYS, not BY DEFAULT.
    pub always: bool,
    /// Options of the sequence that gives its values.
    pub options: SequenceOptions,
}

/// A constraint of a table or column.
#[derive(Clone, Debug, PartialEq)]
pub struct Constraint {
    /// Its name, if it is said.
    pub name: Option<String>,
    /// What it demands of rows.
    pub kind: ConstraintKind,
    /// NOT VALID
    pub not_valid: bool,
    /// DEFERRABLE, INITIALLY DEFERRED
    pub deferral: Deferral,
    /// INCLUDE, of a key.
    pub include: Vec<String>,
}

/// What a constraint says.
#[derive(Clone, Debug, PartialEq)]
pub enum ConstraintKind {
    /// PRIMARY KEY
    PrimaryKey(Vec<String>),
    /// UNIQUE
    Unique {
        /// The columns whose values together are unique.
        columns: Vec<String>,
        /// NULLS NOT DISTINCT
        nulls_not_distinct: bool,
    },
    /// PRIMARY KEY or UNIQUE USING INDEX
    UsingIndex {
        /// Whether it is the primary key.
        primary: bool,
        /// The name of the index that becomes the constraint's.
        index: String,
    },
    /// CHECK
    Check(Box<Expr>),
    /// FOREIGN KEY, REFERENCES
    ForeignKey {
        /// The referring columns.
        columns: Vec<String>,
        /// The table referred to.
        parent: Name,
        /// Its columns; its primary key's if there are none.
        parent_columns: Vec<String>,
        /// ON DELETE
        on_delete: Option<ast::ReferentialAction>,
        /// ON UPDATE
        on_update: Option<ast::ReferentialAction>,
        /// MATCH FULL or PARTIAL.
        unusual_match: bool,
    },
}

/// CREATE TABLE … AS
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTableAs {
    /// The name of the new table.
    pub name: Name,
    /// Permanent, temporary or unlogged.
    pub persistence: Persistence,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// Names of columns, if they are said.
    pub columns: Vec<String>,
    /// Where its rows come from.
    pub query: Box<Query>,
    /// WITH DATA
    pub with_data: bool,
}

/// CREATE INDEX
#[derive(Clone, Debug, PartialEq)]
pub struct CreateIndex {
    /// Its name, if it is said.
    pub name: Option<String>,
    /// The table that gets the index.
    pub table: Name,
    /// UNIQUE
    pub unique: bool,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// CONCURRENTLY
    pub concurrently: bool,
    /// USING
    pub method: Option<String>,
    /// The parts of its key, in their order.
    pub columns: Vec<IndexElement>,
    /// INCLUDE
    pub include: Vec<IndexElement>,
    /// NULLS NOT DISTINCT
    pub nulls_not_distinct: bool,
    /// WHERE
    pub predicate: Option<Expr>,
}

/// A column of an index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexElement {
    /// What it is: a column, or an expression.
    pub of: Indexed,
    /// COLLATE
    pub collation: Option<Name>,
    /// The operator class.
    pub class: Option<Name>,
    /// Whether the operator class has parameters.
    pub class_parameters: bool,
    /// ASC, DESC
    pub order: Option<&'static str>,
    /// NULLS FIRST, or LAST
    pub nulls_first: Option<bool>,
}

/// What an index is on.
#[derive(Clone, Debug, PartialEq)]
pub enum Indexed {
    /// The column of this name.
    Column(String),
    /// An expression.
    Expression(Box<Expr>),
}

/// How a sequence goes; what is not said is nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SequenceOptions {
    /// AS
    pub ty: Option<DataType>,
    /// INCREMENT
    pub increment: Option<i64>,
    /// MINVALUE, or NO MINVALUE
    pub minimum: Option<Option<i64>>,
    /// MAXVALUE, or NO MAXVALUE
    pub maximum: Option<Option<i64>>,
    /// START
    pub start: Option<i64>,
    /// RESTART, WITH which value
    pub restart: Option<Option<i64>>,
    /// CACHE
    pub cache: Option<i64>,
    /// CYCLE, or NO CYCLE
    pub cycle: Option<bool>,
    /// OWNED BY which column, or NONE
    pub owned_by: Option<Option<(Name, String)>>,
    /// SEQUENCE NAME, of an identity column
    pub name: Option<Name>,
}

/// CREATE SEQUENCE
#[derive(Clone, Debug, PartialEq)]
pub struct CreateSequence {
    /// The name of the new sequence.
    pub name: Name,
    /// TEMPORARY
    pub temporary: bool,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// How it goes.
    pub options: SequenceOptions,
}

/// ALTER SEQUENCE
#[derive(Clone, Debug, PartialEq)]
pub struct AlterSequence {
    /// The sequence's name.
    pub name: Name,
    /// IF EXISTS
    pub if_exists: bool,
    /// The options that change.
    pub options: SequenceOptions,
}

/// CREATE VIEW
#[derive(Clone, Debug, PartialEq)]
pub struct CreateView {
    /// The name of the new view.
    pub name: Name,
    /// OR REPLACE
    pub or_replace: bool,
    /// TEMPORARY
    pub temporary: bool,
    /// Names of columns, if they are said.
    pub columns: Vec<String>,
    /// WITH (…)
    pub options: Vec<StorageOption>,
    /// The query whose rows it shows.
    pub query: Box<Query>,
    /// What there is no support for.
    pub unsupported: Option<&'static str>,
}

/// CREATE SCHEMA
#[derive(Clone, Debug, PartialEq)]
pub struct CreateSchema {
    /// Its name; the owner's if none is said.
    pub name: Option<String>,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// AUTHORIZATION
    pub owner: Option<RoleName>,
}

/// ALTER SCHEMA
#[derive(Clone, Debug, PartialEq)]
pub enum AlterSchema {
    /// RENAME TO
    Rename(String),
    /// OWNER TO
    Owner(RoleName),
}

/// A role in a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleName {
    /// By its name.
    Named(String),
    /// CURRENT_USER, CURRENT_ROLE
    Current,
    /// SESSION_USER
    Session,
    /// PUBLIC
    Public,
}

/// CREATE ROLE, CREATE USER
#[derive(Clone, Debug, PartialEq)]
pub struct CreateRole {
    /// The name of the new role.
    pub name: String,
    /// Whether it may open sessions if nothing is said: that of a USER may.
    pub user: bool,
    /// Options like LOGIN and PASSWORD.
    pub options: RoleOptions,
    /// IN ROLE
    pub in_roles: Vec<RoleName>,
    /// ROLE, USER
    pub members: Vec<RoleName>,
    /// ADMIN
    pub administrators: Vec<RoleName>,
}

/// What a role may; what is not said is nothing.
#[derive(Clone, Default, PartialEq)]
pub struct RoleOptions {
    /// SUPERUSER
    pub superuser: Option<bool>,
    /// LOGIN
    pub login: Option<bool>,
    /// CREATEROLE
    pub create_role: Option<bool>,
    /// CREATEDB
    pub create_database: Option<bool>,
    /// INHERIT
    pub inherit: Option<bool>,
    /// REPLICATION, which has no effect, but which not every role may give
    pub replication: Option<bool>,
    /// BYPASSRLS, likewise
    pub bypass_row_security: Option<bool>,
    /// PASSWORD, or PASSWORD NULL
    pub password: Option<Option<String>>,
    /// CONNECTION LIMIT
    pub connection_limit: Option<i64>,
    /// VALID UNTIL
    pub valid_until: Option<String>,
    /// An option that there is no support for.
    pub unsupported: Option<String>,
}

impl std::fmt::Debug for RoleOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A password is nobody's business.
        f.debug_struct("RoleOptions")
            .field("login", &self.login)
            .field("superuser", &self.superuser)
            .finish_non_exhaustive()
    }
}

/// ALTER ROLE
#[derive(Clone, Debug, PartialEq)]
pub enum AlterRole {
    /// RENAME TO
    Rename(String),
    /// Options like LOGIN and PASSWORD.
    Options(RoleOptions),
}

/// What ALTER ROLE, or ALTER DATABASE, does to the settings with which sessions begin.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingChange {
    /// SET, with the parts of the value; without any FROM CURRENT
    Set(String, Option<Vec<String>>),
    /// RESET, and SET … TO DEFAULT
    Reset(String),
    /// RESET ALL
    ResetAll,
}

/// Kinds of relations, as statements name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelationKind {
    /// TABLE
    Table,
    /// VIEW
    View,
    /// SEQUENCE
    Sequence,
    /// INDEX
    Index,
}

/// What DROP takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropKind {
    /// A relation.
    Relation(RelationKind),
    /// SCHEMA
    Schema,
    /// ROLE, USER
    Role,
    /// OWNED BY
    Owned,
    /// EXTENSION
    Extension,
}

/// DROP
#[derive(Clone, Debug, PartialEq)]
pub struct Drop {
    /// The kind of objects that go.
    pub kind: DropKind,
    /// The names of what goes.
    pub names: Vec<Name>,
    /// IF EXISTS
    pub if_exists: bool,
    /// CASCADE
    pub cascade: bool,
}

/// TRUNCATE
#[derive(Clone, Debug, PartialEq)]
pub struct Truncate {
    /// The tables whose rows go.
    pub tables: Vec<Name>,
    /// RESTART IDENTITY
    pub restart: bool,
    /// CASCADE
    pub cascade: bool,
}

/// What privileges are granted on.
#[derive(Clone, Debug, PartialEq)]
pub enum GrantObjects {
    /// Tables and views.
    Tables(Vec<Name>),
    /// Sequences.
    Sequences(Vec<Name>),
    /// Schemas.
    Schemas(Vec<String>),
    /// All tables and views of schemas.
    AllTables(Vec<String>),
    /// All sequences of schemas.
    AllSequences(Vec<String>),
    /// Databases.
    Databases(Vec<String>),
}

/// A privilege in GRANT or REVOKE.
#[derive(Clone, Debug, PartialEq)]
pub struct Privilege {
    /// A bit of [`crate::schema::privilege`], and how it was called; nothing for ALL.
    pub one: Option<(u16, String)>,
    /// On which columns; on the whole object if there are none.
    pub columns: Vec<String>,
}

/// GRANT, REVOKE
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// GRANT, not REVOKE.
    pub grant: bool,
    /// The privileges that are given or taken.
    pub privileges: Vec<Privilege>,
    /// The objects to which they belong.
    pub objects: GrantObjects,
    /// To or from whom.
    pub roles: Vec<RoleName>,
    /// WITH GRANT OPTION, GRANT OPTION FOR
    pub option: bool,
    /// CASCADE, of REVOKE
    pub cascade: bool,
}

/// GRANT, REVOKE of roles
#[derive(Clone, Debug, PartialEq)]
pub struct Membership {
    /// GRANT, not REVOKE.
    pub grant: bool,
    /// The roles whose members change.
    pub roles: Vec<String>,
    /// Who becomes a member, or is one no more.
    pub members: Vec<RoleName>,
    /// WITH ADMIN, INHERIT, SET; of REVOKE, which of these are revoked, and the membership stays.
    pub options: MemberOptions,
    /// GRANTED BY
    pub grantor: Option<RoleName>,
    /// CASCADE, of REVOKE
    pub cascade: bool,
}

/// Options of a membership, as far as they are said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberOptions {
    /// ADMIN
    pub admin: Option<bool>,
    /// INHERIT
    pub inherit: Option<bool>,
    /// SET
    pub set: Option<bool>,
}

/// What a comment is about.
#[derive(Clone, Debug, PartialEq)]
pub enum Commented {
    /// A relation.
    Relation(RelationKind, Name),
    /// A column of a relation.
    Column(Name, String),
    /// A constraint of a table.
    Constraint(String, Name),
    /// A schema.
    Schema(String),
    /// A role.
    Role(String),
    /// A database.
    Database(String),
    /// An extension.
    Extension(String),
}

/// COMMENT ON
#[derive(Clone, Debug, PartialEq)]
pub struct Comment {
    /// The object that gets the comment.
    pub on: Commented,
    /// What is said; nothing for NULL.
    pub text: Option<String>,
}

/// LOCK TABLE
#[derive(Clone, Debug, PartialEq)]
pub struct Lock {
    /// The tables that are locked.
    pub tables: Vec<Name>,
    /// The mode of the lock.
    pub mode: crate::locks::LockMode,
    /// NOWAIT
    pub no_wait: bool,
}

impl Definition {
    /// Reads a definition, if that is what comes next: up to the end of the statement, the
    /// semicolon not included. If it is something else nothing is read.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(parser: &mut Parser<'_>) -> Result<Option<Self>, ParserError> {
        words::definition(parser)
    }

    /// Whether it leaves less than there was, so that it must not fail for want of memory.
    pub fn takes_away(&self) -> bool {
        match self {
            Self::Drop(_) | Self::DropDatabase { .. } | Self::Truncate(_) => true,
            Self::Grant(it) => !it.grant,
            Self::Membership(it) => !it.grant,
            _ => false,
        }
    }

    /// Whether it changes what databases share.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::CreateRole(_)
            | Self::AlterRole { .. }
            | Self::CreateDatabase(_)
            | Self::AlterDatabase { .. }
            | Self::DropDatabase { .. }
            | Self::AlterSetting { .. }
            | Self::Membership(_)
            | Self::ReassignOwned { .. } => true,
            Self::Drop(it) => it.kind == DropKind::Role,
            Self::Grant(it) => matches!(it.objects, GrantObjects::Databases(_)),
            Self::Comment(it) => matches!(it.on, Commented::Role(_) | Commented::Database(_)),
            _ => false,
        }
    }

    /// What it is called, if it cannot be part of a longer transaction.
    pub fn stands_alone(&self) -> Option<&'static str> {
        match self {
            Self::CreateDatabase(_) => Some("CREATE DATABASE"),
            Self::DropDatabase { .. } => Some("DROP DATABASE"),
            _ => None,
        }
    }

    /// The definition that a statement is which was read by `sqlparser`, if it is one.
    ///
    /// # Errors
    /// When it is no statement of PostgreSQL's.
    pub fn of(statement: &ast::Statement) -> Result<Option<Self>, ParserError> {
        let sql = statement.to_string();
        let mut parser = Parser::new(&PostgreSql).try_with_sql(&sql)?;
        Self::parse(&mut parser)
    }
}

impl Name {
    /// Its parts, as far as they are said.
    pub fn parts(&self) -> Vec<String> {
        [&self.database, &self.schema, &Some(self.name.clone())].into_iter().flatten().cloned().collect()
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
