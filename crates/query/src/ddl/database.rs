//! Databases.
//!
//! A database is a row of the catalog among what databases share, and the rows that have its id. To
//! make or drop one is a transaction like any other. What makes it stand alone, and who is in it,
//! is the session's business (`session/database.rs`).

use freshet_sql::{SqlError, SqlState};

use super::{
    syntax::{AlterDatabase, CreateDatabase, DatabaseOption, RoleName},
    work::{Step, Work, check_name, error},
};
use crate::{
    bind::not_supported,
    schema::{Database, Entry, Object, Oid, change_owner},
    session::settings,
};

/// The error 3D000: no database has this name.
pub(crate) fn no_database(name: &str) -> SqlError {
    error(SqlState::INVALID_CATALOG_NAME, format!("database \"{name}\" does not exist"))
}

/// What the options of a statement say.
#[derive(Debug, Default)]
struct Options<'s> {
    owner: Option<&'s str>,
    template: Option<&'s str>,
    encoding: Option<&'s str>,
    allow_connections: Option<bool>,
    connection_limit: Option<i64>,
    is_template: Option<bool>,
}

fn invalid(message: impl Into<String>) -> SqlError {
    error(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn truth(option: &DatabaseOption) -> Result<Option<bool>, SqlError> {
    let Some(value) = &option.value else { return Ok(None) };
    match value.as_str() {
        "1" => Ok(Some(true)),
        "0" => Ok(Some(false)),
        word => match settings::truth(word) {
            Some(value) => Ok(Some(value)),
            None => Err(error(SqlState::SYNTAX_ERROR, format!("{} requires a Boolean value", option.name))),
        },
    }
}

fn number(option: &DatabaseOption) -> Result<Option<i64>, SqlError> {
    let Some(value) = &option.value else { return Ok(None) };
    let wrong = || error(SqlState::SYNTAX_ERROR, format!("{} requires an integer value", option.name));
    value.parse().map(Some).map_err(|_| wrong())
}

/// Whether a locale is the one that there is: characters are compared by their bytes.
fn is_known_locale(name: &str) -> bool {
    matches!(name.to_ascii_lowercase().as_str(), "c" | "posix" | "c.utf-8" | "c.utf8")
}

impl<'s> Options<'s> {
    fn of(options: &'s [DatabaseOption], new: bool) -> Result<Self, SqlError> {
        let mut read = Self::default();
        for (at, option) in options.iter().enumerate() {
            if options[..at].iter().any(|known| known.name == option.name) {
                return Err(error(SqlState::SYNTAX_ERROR, "conflicting or redundant options"));
            }
            let value = option.value.as_deref();
            match option.name.as_str() {
                "allow_connections" => read.allow_connections = truth(option)?,
                "connection_limit" => read.connection_limit = number(option)?,
                "is_template" => read.is_template = truth(option)?,
                "owner" if new => read.owner = value,
                "template" if new => read.template = value,
                "encoding" if new => read.encoding = value,
                "tablespace" if new => check_tablespace(value.unwrap_or("pg_default"))?,
                "locale" | "lc_collate" | "lc_ctype" if new => {
                    if let Some(name) = value.filter(|name| !is_known_locale(name)) {
                        let wrong = error(SqlState::WRONG_OBJECT_TYPE, format!("invalid locale name: \"{name}\""));
                        return Err(wrong.with_hint("Databases have the locale C."));
                    }
                }
                "locale_provider" if new => match value.map(str::to_ascii_lowercase).as_deref() {
                    None | Some("libc") => {}
                    Some("icu") => return Err(not_supported("the locale provider icu")),
                    Some(other) => {
                        let message = format!("unrecognized locale provider: {other}");
                        return Err(error(SqlState::INVALID_OBJECT_DEFINITION, message));
                    }
                },
                "icu_locale" if new => {
                    let message = "ICU locale cannot be specified unless locale provider is ICU";
                    return Err(error(SqlState::INVALID_OBJECT_DEFINITION, message));
                }
                "strategy" if new => match value.map(str::to_ascii_lowercase).as_deref() {
                    None | Some("wal_log" | "file_copy") => {}
                    Some(_) => {
                        let wrong =
                            invalid(format!("invalid create database strategy \"{}\"", value.unwrap_or_default()));
                        return Err(wrong.with_hint("Valid strategies are \"wal_log\", and \"file_copy\"."));
                    }
                },
                "collation_version" if new => {}
                other => {
                    return Err(error(SqlState::SYNTAX_ERROR, format!("option \"{other}\" not recognized")));
                }
            }
        }
        if let Some(limit) = read.connection_limit.filter(|limit| *limit < -1 || *limit > i64::from(i32::MAX)) {
            return Err(invalid(format!("invalid connection limit: {limit}")));
        }
        Ok(read)
    }

    /// Sets what is said.
    fn apply(&self, database: &mut Database) {
        database.allow_connections = self.allow_connections.unwrap_or(database.allow_connections);
        database.is_template = self.is_template.unwrap_or(database.is_template);
        if let Some(limit) = self.connection_limit {
            database.connection_limit = u32::try_from(limit).ok();
        }
    }
}

fn check_tablespace(name: &str) -> Result<(), SqlError> {
    match name {
        "pg_default" => Ok(()),
        "pg_global" => Err(invalid("pg_global cannot be used as default tablespace")),
        other => Err(error(SqlState::UNDEFINED_OBJECT, format!("tablespace \"{other}\" does not exist"))),
    }
}

/// Fails unless an encoding, by its name or number, is UTF8. From `template0` PostgreSQL makes
/// databases in others.
fn check_encoding(encoding: &str, template: &str) -> Result<(), SqlError> {
    let name: String = encoding.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    if matches!(name.as_str(), "utf8" | "unicode" | "6") {
        return Ok(());
    }
    const OTHERS: &[&str] = &[
        "sqlascii",
        "eucjp",
        "euccn",
        "euckr",
        "euctw",
        "eucjis2004",
        "muleinternal",
        "latin1",
        "latin2",
        "latin3",
        "latin4",
        "latin5",
        "latin6",
        "latin7",
        "latin8",
        "latin9",
        "latin10",
        "win1250",
        "win1251",
        "win1252",
        "win1253",
        "win1254",
        "win1255",
        "win1256",
        "win1257",
        "win1258",
        "win866",
        "win874",
        "koi8r",
        "koi8u",
        "iso88595",
        "iso88596",
        "iso88597",
        "iso88598",
        "iso88591",
        "iso885915",
    ];
    if !OTHERS.contains(&name.as_str()) {
        let message = format!("{encoding} is not a valid encoding name");
        return Err(error(SqlState::UNDEFINED_OBJECT, message));
    }
    if template == "template0" {
        return Err(not_supported(format!("a database in the encoding {encoding}")));
    }
    let message = format!(
        "new encoding ({}) is incompatible with the encoding of the template database (UTF8)",
        encoding.to_uppercase()
    );
    let hint = "Use the same encoding as in the template database, or use template0 as template.";
    Err(invalid(message).with_hint(hint))
}

impl Work<'_, '_, '_> {
    /// Fails unless the role may make databases.
    fn check_makes_databases(&self, what: &str) -> Result<(), SqlError> {
        let role = self.schema().role_by_oid(self.ddl.role);
        if role.is_some_and(|role| role.superuser || role.create_database) {
            return Ok(());
        }
        Err(error(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied to {what} database")))
    }

    fn check_name_is_free(&self, name: &str) -> Result<(), SqlError> {
        match self.schema().database_named(name) {
            None => Ok(()),
            Some(_) => Err(error(SqlState::DUPLICATE_DATABASE, format!("database \"{name}\" already exists"))),
        }
    }

    fn database_named(&self, name: &str) -> Result<Database, SqlError> {
        self.schema().database_named(name).map(|it| (**it).clone()).ok_or_else(|| no_database(name))
    }

    /// CREATE DATABASE
    pub(super) fn create_database(&mut self, statement: &CreateDatabase) -> Step<&'static str> {
        let options = Options::of(&statement.options, true)?;
        check_name(&statement.name)?;
        let owner = match options.owner {
            Some(name) => self.role(&RoleName::Named(name.to_owned()))?,
            None => self.ddl.role,
        };
        self.check_makes_databases("create")?;
        self.check_new_owner(owner)?;
        let template = options.template.unwrap_or("template1");
        let Some(source) = self.schema().database_named(template).cloned() else {
            let message = format!("template database \"{template}\" does not exist");
            return Err(error(SqlState::INVALID_CATALOG_NAME, message).into());
        };
        if !source.is_template && !self.schema().is_member(self.ddl.role, source.owner) {
            let message = format!("permission denied to copy database \"{template}\"");
            return Err(error(SqlState::INSUFFICIENT_PRIVILEGE, message).into());
        }
        if let Some(encoding) = options.encoding {
            check_encoding(encoding, template)?;
        }
        self.check_name_is_free(&statement.name)?;
        let mut database = Database::new(self.change.take_oid()?, &statement.name, owner);
        options.apply(&mut database);
        let oid = database.oid;
        let objects = self.copy_of(source.oid)?;
        self.change.make_database(database, &objects)?;
        self.ddl.effects.touch_database(oid, Vec::new());
        Ok("CREATE DATABASE")
    }

    /// ALTER DATABASE
    pub(super) fn alter_database(&mut self, name: &str, change: &AlterDatabase) -> Step<&'static str> {
        let mut database = self.database_named(name)?;
        self.check_owner(database.owner, "database", name)?;
        match change {
            AlterDatabase::Rename(new) => {
                self.check_makes_databases("rename")?;
                check_name(new)?;
                self.check_name_is_free(new)?;
                if database.oid == self.schema().database {
                    let message = "current database cannot be renamed";
                    return Err(error(SqlState::FEATURE_NOT_SUPPORTED, message).into());
                }
                database.name.clone_from(new);
            }
            AlterDatabase::Owner(owner) => {
                let owner = self.role(owner)?;
                if owner == database.owner {
                    return Ok("ALTER DATABASE");
                }
                self.check_new_owner(owner)?;
                if !self.is_superuser() {
                    self.check_makes_databases("change owner of")?;
                }
                self.own_database(&database, owner)?;
                return Ok("ALTER DATABASE");
            }
            AlterDatabase::Options(options) => {
                let options = Options::of(options, false)?;
                if options.allow_connections == Some(false) && database.oid == self.schema().database {
                    return Err(invalid("cannot disallow connections for current database").into());
                }
                options.apply(&mut database);
            }
            AlterDatabase::Tablespace(name) => check_tablespace(name)?,
            AlterDatabase::RefreshCollation => {
                self.notice(SqlState::SUCCESSFUL_COMPLETION, "version has not changed");
                return Ok("ALTER DATABASE");
            }
        }
        self.put(Object::Database(database))?;
        Ok("ALTER DATABASE")
    }

    /// Gives a database to another role, with what its owner has granted.
    pub(super) fn own_database(&mut self, database: &Database, owner: Oid) -> Result<(), SqlError> {
        let mut database = database.clone();
        change_owner(&mut database.owner, &mut database.grants, owner);
        self.put(Object::Database(database))
    }

    /// DROP DATABASE
    pub(super) fn drop_database(&mut self, name: &str, if_exists: bool) -> Step<&'static str> {
        let Some(database) = self.schema().database_named(name).cloned() else {
            if !if_exists {
                return Err(no_database(name).into());
            }
            self.notice(SqlState::SUCCESSFUL_COMPLETION, format!("{}, skipping", no_database(name).message));
            return Ok("DROP DATABASE");
        };
        self.check_owner(database.owner, "database", name)?;
        if database.is_template {
            return Err(error(SqlState::WRONG_OBJECT_TYPE, "cannot drop a template database").into());
        }
        if database.oid == self.schema().database {
            return Err(error(SqlState::OBJECT_IN_USE, "cannot drop the currently open database").into());
        }
        let content = self.change.other(database.oid)?;
        let mut tables = Vec::new();
        for entry in content.entries() {
            match entry {
                Entry::Table(info) => {
                    // A session that was just opened may write to it.
                    self.lock_of_other(info.table.oid)?;
                    self.ddl.effects.touch_rows(self.ddl.catalog, &info.table.rows);
                    tables.push(info.table.oid);
                }
                Entry::Sequence(sequence) => self.ddl.effects.touch_state(self.ddl.catalog, sequence.state),
                _ => {}
            }
        }
        self.ddl.effects.touch_database(database.oid, tables);
        self.change.remove_database(database.oid)?;
        Ok("DROP DATABASE")
    }
}
