//! Functions that say what a role may do.

use std::sync::Arc;

use freshet_sql::{Kind, SqlError, SqlState, Value, functions::SessionFunction as F};

use super::{Arguments, column, relation};
use crate::{
    relations::Snapshot,
    schema::{Database, FIRST_ROLE, Grant, INFORMATION_SCHEMA, Oid, PG_CATALOG, privilege},
    system::{
        class::{self, Class},
        describe, names,
        role::DEFAULT_TABLESPACE,
        routine,
    },
};

/// Names of privileges, and their bits.
type Words = &'static [(&'static str, u16)];

const OF_TABLES: Words = &[
    ("SELECT", privilege::SELECT),
    ("INSERT", privilege::INSERT),
    ("UPDATE", privilege::UPDATE),
    ("DELETE", privilege::DELETE),
    ("TRUNCATE", privilege::TRUNCATE),
    ("REFERENCES", privilege::REFERENCES),
    ("TRIGGER", privilege::TRIGGER),
];
const OF_COLUMNS: Words = &[
    ("SELECT", privilege::SELECT),
    ("INSERT", privilege::INSERT),
    ("UPDATE", privilege::UPDATE),
    ("REFERENCES", privilege::REFERENCES),
];
const OF_SEQUENCES: Words =
    &[("USAGE", privilege::USAGE), ("SELECT", privilege::SELECT), ("UPDATE", privilege::UPDATE)];
const OF_SCHEMAS: Words = &[("CREATE", privilege::CREATE), ("USAGE", privilege::USAGE)];
const OF_DATABASES: Words = &[
    ("CREATE", privilege::CREATE),
    ("CONNECT", privilege::CONNECT),
    ("TEMPORARY", privilege::TEMPORARY),
    ("TEMP", privilege::TEMPORARY),
];
const OF_ROLES: Words = &[("USAGE", USAGE_OF), ("MEMBER", MEMBER_OF), ("SET", SET_OF)];
const USAGE_OF: u16 = 1;
const MEMBER_OF: u16 = 2;
const SET_OF: u16 = 4;
const EXECUTE: Words = &[("EXECUTE", privilege::USAGE)];
const USAGE: Words = &[("USAGE", privilege::USAGE)];
const CREATE: Words = &[("CREATE", privilege::CREATE)];

/// A privilege that is asked for, and whether it must be one that may be granted on.
#[derive(Clone, Copy)]
struct Wanted {
    bit: u16,
    grantable: bool,
}

/// The privileges of a list like `SELECT, INSERT WITH GRANT OPTION`: it is asked whether one of
/// them is held.
///
/// # Errors
/// 22023 for what is no privilege here.
fn wanted(text: &str, words: Words) -> Result<Vec<Wanted>, SqlError> {
    let one = |word: &str| {
        let word = word.trim();
        let upper = word.to_ascii_uppercase();
        let option = upper.strip_suffix(" WITH GRANT OPTION").or_else(|| upper.strip_suffix(" WITH ADMIN OPTION"));
        let name = option.map_or(upper.as_str(), str::trim_end);
        let found = words.iter().find(|(known, _)| *known == name);
        found.map(|(_, bit)| Wanted { bit: *bit, grantable: option.is_some() }).ok_or_else(|| {
            let message = format!("unrecognized privilege type: \"{word}\"");
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
        })
    };
    text.split(',').map(one).collect()
}

/// Whether a role holds one of these on the whole of something with this owner and these grants.
/// Role 0 is everybody.
fn holds(snapshot: &Snapshot, role: Oid, owner: Oid, grants: &[Grant], wanted: &[Wanted]) -> bool {
    holds_part(snapshot, role, (owner, grants), |column| column.is_none(), wanted)
}

/// The same where grants on these columns count, too.
fn holds_part(
    snapshot: &Snapshot,
    role: Oid,
    (owner, grants): (Oid, &[Grant]),
    counts: impl Fn(Option<u16>) -> bool,
    wanted: &[Wanted],
) -> bool {
    let schema = &snapshot.schema;
    if schema.is_member(role, owner) {
        return true;
    }
    let counted = grants.iter().filter(|grant| counts(grant.column));
    let held = counted.filter(|grant| grant.role == 0 || schema.is_member(role, grant.role));
    let (held, grantable) =
        held.fold((0, 0), |(held, grantable), grant| (held | grant.privileges, grantable | grant.grantable));
    wanted.iter().any(|wanted| if wanted.grantable { grantable } else { held } & wanted.bit != 0)
}

/// The role that an argument names, or has the id of.
fn role(snapshot: &Snapshot, given: &Value) -> Result<Oid, SqlError> {
    match given.as_str() {
        Some("public") => Ok(0),
        Some(name) => match snapshot.schema.role(name) {
            Some(role) => Ok(role.oid),
            None => Err(SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))),
        },
        None => Ok(given.as_i64().and_then(|oid| Oid::try_from(oid).ok()).unwrap_or(0)),
    }
}

/// The relation that an argument names, or has the id of; nothing for an id of nothing.
fn class_of<'s>(snapshot: &'s Snapshot, given: Arguments<'_>, place: usize) -> Result<Option<Class<'s>>, SqlError> {
    match given.0.get(place).and_then(Value::as_str) {
        Some(name) => relation(snapshot, name).map(Some),
        None => Ok(class::by_oid(snapshot, given.oid(place))),
    }
}

/// The database that an argument names, or has the id of; nothing for an id of none.
///
/// # Errors
/// 3D000 when it names none.
pub(super) fn database<'s>(
    snapshot: &'s Snapshot,
    given: Arguments<'_>,
    place: usize,
) -> Result<Option<&'s Arc<Database>>, SqlError> {
    match given.0.get(place).and_then(Value::as_str) {
        Some(name) => match snapshot.schema.database_named(name) {
            Some(database) => Ok(Some(database)),
            None => Err(crate::ddl::no_database(name)),
        },
        None => Ok(snapshot.schema.database_by_oid(given.oid(place))),
    }
}

fn truth(known: Option<bool>) -> Result<Option<Value>, SqlError> {
    Ok(Some(known.map_or(Value::Null, Value::Bool)))
}

/// Calls one of these functions; nothing when it is none of them.
///
/// # Errors
/// For names of nothing, and 22023 for what is no privilege.
pub(super) fn call(snapshot: &Snapshot, function: F, given: Arguments<'_>) -> Result<Option<Value>, SqlError> {
    let least = match function {
        F::HasColumnPrivilege => 3,
        F::AclDefault => {
            let kind = match given.0.first() {
                Some(Value::SingleChar(letter)) => char::from(*letter),
                _ => '\0',
            };
            let found = describe::default_privileges(snapshot, kind, given.oid(1));
            let message = || format!("unrecognized object type abbreviation: {kind}");
            return found.map(Some).ok_or_else(|| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message()));
        }
        F::HasTablePrivilege
        | F::HasAnyColumnPrivilege
        | F::HasSequencePrivilege
        | F::HasSchemaPrivilege
        | F::HasDatabasePrivilege
        | F::HasFunctionPrivilege
        | F::HasTypePrivilege
        | F::HasLanguagePrivilege
        | F::HasTablespacePrivilege
        | F::HasRole => 2,
        _ => return Ok(None),
    };
    // Whose, what, which: the first is the session's role, if it is left out.
    let (whose, rest) = match given.0.split_first() {
        Some((first, rest)) if given.0.len() > least => (role(snapshot, first)?, Arguments(rest)),
        _ => (snapshot.role, given),
    };
    let words = rest.0.last().and_then(Value::as_str).unwrap_or_default();
    Question { snapshot, whose, rest, words }.answer(function)
}

/// Whether a role has some privileges on something.
struct Question<'a> {
    snapshot: &'a Snapshot,
    whose: Oid,
    /// What it is about, and the privileges.
    rest: Arguments<'a>,
    words: &'a str,
}

impl Question<'_> {
    fn answer(&self, function: F) -> Result<Option<Value>, SqlError> {
        match function {
            F::HasTablePrivilege | F::HasAnyColumnPrivilege | F::HasColumnPrivilege => self.on_table(function),
            F::HasSequencePrivilege => self.on_sequence(),
            F::HasSchemaPrivilege => self.on_schema(),
            F::HasDatabasePrivilege => {
                let found = database(self.snapshot, self.rest, 0)?;
                let wanted = wanted(self.words, OF_DATABASES)?;
                truth(found.map(|it| holds(self.snapshot, self.whose, it.owner, &it.grants, &wanted)))
            }
            F::HasTablespacePrivilege => self.on_tablespace(),
            F::HasFunctionPrivilege => {
                let oid = self.named(|name| {
                    names::id_of(self.snapshot, Kind::Regprocedure, name)?.ok_or_else(|| {
                        SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function \"{name}\" does not exist"))
                    })
                })?;
                self.for_all(EXECUTE, routine::by_oid(oid).is_some())
            }
            F::HasTypePrivilege => {
                let oid = self.named(|name| {
                    names::id_of(self.snapshot, Kind::Regtype, name)?.ok_or_else(|| undefined("type", name))
                })?;
                self.for_all(USAGE, Kind::from_oid(oid).is_some())
            }
            F::HasLanguagePrivilege => {
                let oid = self.named(|name| match name {
                    "internal" => Ok(routine::INTERNAL_LANGUAGE),
                    name => Err(undefined("language", name)),
                })?;
                self.for_all(USAGE, oid == routine::INTERNAL_LANGUAGE)
            }
            F::HasRole => self.in_role(),
            _ => Ok(None),
        }
    }

    /// The id of what the question is about: what `find` gives for its name, if it is named.
    fn named(&self, find: impl FnOnce(&str) -> Result<Oid, SqlError>) -> Result<Oid, SqlError> {
        self.rest.0.first().and_then(Value::as_str).map_or_else(|| Ok(self.rest.oid(0)), find)
    }

    fn is_superuser(&self) -> bool {
        self.snapshot.schema.role_by_oid(self.whose).is_some_and(|role| role.superuser)
    }

    /// What everybody may do with something that is there.
    fn for_all(&self, words: Words, there: bool) -> Result<Option<Value>, SqlError> {
        let wanted = wanted(self.words, words)?;
        truth(there.then(|| self.is_superuser() || wanted.iter().any(|wanted| !wanted.grantable)))
    }

    fn on_table(&self, function: F) -> Result<Option<Value>, SqlError> {
        let Self { snapshot, whose, rest, words } = *self;
        let class = class_of(snapshot, rest, 0)?;
        let wanted = wanted(words, if function == F::HasTablePrivilege { OF_TABLES } else { OF_COLUMNS })?;
        let Some(class) = class else { return truth(None) };
        let of = (class.owner(), class.grants());
        if function == F::HasTablePrivilege {
            return truth(Some(holds(snapshot, whose, of.0, of.1, &wanted)));
        }
        if function == F::HasAnyColumnPrivilege {
            return truth(Some(holds_part(snapshot, whose, of, |_| true, &wanted)));
        }
        let number = match rest.0.get(1).and_then(Value::as_str) {
            Some(name) => i64::from(column(class, name)?),
            None => rest.number(1),
        };
        if !class.attributes().iter().any(|it| i64::from(it.number) == number && !it.dropped) {
            return truth(None);
        }
        let counts = |column: Option<u16>| column.is_none_or(|column| i64::from(column) + 1 == number);
        truth(Some(holds_part(snapshot, whose, of, counts, &wanted)))
    }

    fn on_sequence(&self) -> Result<Option<Value>, SqlError> {
        let class = class_of(self.snapshot, self.rest, 0)?;
        let wanted = wanted(self.words, OF_SEQUENCES)?;
        match class {
            Some(class) if !matches!(class, Class::Sequence(_)) => {
                let message = format!("\"{}\" is not a sequence", class.name());
                Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message))
            }
            class => truth(class.map(|class| holds(self.snapshot, self.whose, class.owner(), class.grants(), &wanted))),
        }
    }

    fn on_schema(&self) -> Result<Option<Value>, SqlError> {
        let oid = self.named(|name| {
            names::namespace_named(self.snapshot, name).ok_or_else(|| {
                SqlError::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
            })
        })?;
        let wanted = wanted(self.words, OF_SCHEMAS)?;
        if matches!(oid, PG_CATALOG | INFORMATION_SCHEMA) {
            let usage =
                Grant { role: 0, column: None, privileges: privilege::USAGE, grantable: 0, grantor: FIRST_ROLE };
            return truth(Some(holds(self.snapshot, self.whose, FIRST_ROLE, &[usage], &wanted)));
        }
        let namespace = self.snapshot.schema.namespace_by_oid(oid);
        truth(namespace.map(|it| holds(self.snapshot, self.whose, it.owner, &it.grants, &wanted)))
    }

    fn on_tablespace(&self) -> Result<Option<Value>, SqlError> {
        let oid = self.named(|name| match name {
            "pg_default" => Ok(DEFAULT_TABLESPACE),
            "pg_global" => Ok(0),
            name => Err(undefined("tablespace", name)),
        })?;
        let wanted = wanted(self.words, CREATE)?;
        let there = oid == DEFAULT_TABLESPACE;
        truth(Some(self.is_superuser() || there && wanted.iter().any(|wanted| !wanted.grantable)))
    }

    fn in_role(&self) -> Result<Option<Value>, SqlError> {
        let (schema, whose) = (&self.snapshot.schema, self.whose);
        let of = self.rest.0.first().map_or(Ok(0), |of| role(self.snapshot, of))?;
        let wanted = wanted(self.words, OF_ROLES)?;
        truth(Some(wanted.iter().any(|wanted| match wanted.bit {
            _ if wanted.grantable => schema.administers(whose, of),
            USAGE_OF => schema.is_member(whose, of),
            SET_OF => schema.may_become(whose, of),
            _ => self.is_superuser() || schema.is_within(whose, of),
        })))
    }
}

fn undefined(what: &str, name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("{what} \"{name}\" does not exist"))
}
