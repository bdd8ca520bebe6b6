//! Names of objects and their ids: what `regclass` and its like read and print.

use freshet_sql::{Kind, SqlError, Type, functions::quote_identifier};

use super::{
    class::{self, Class},
    describe, namespace,
    role::SYSTEM_NAMESPACES,
    routine::{self, Routine, type_name},
};
use crate::{
    relations::Snapshot,
    schema::{Entry, Oid},
};

/// The identifiers of a name like `a."B c".d`, as they are meant; nothing when it is none.
pub fn parse_path(text: &str) -> Option<Vec<String>> {
    let mut rest = text.trim();
    let mut parts = Vec::new();
    loop {
        let mut part = String::new();
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut characters = quoted.char_indices();
            let end = loop {
                match characters.next()? {
                    (_, '"') if characters.as_str().starts_with('"') => {
                        part.push('"');
                        characters.next();
                    }
                    (at, '"') => break at + 1,
                    (_, other) => part.push(other),
                }
            };
            rest = &quoted[end..];
        } else {
            let word = |it: char| it.is_alphanumeric() || it == '_' || it == '$';
            let end = rest.find(|it: char| !word(it)).unwrap_or(rest.len());
            part = rest[..end].to_lowercase();
            rest = &rest[end..];
            if part.starts_with(|it: char| it.is_ascii_digit()) {
                return None;
            }
        }
        if part.is_empty() {
            return None;
        }
        parts.push(part);
        rest = rest.trim_start();
        match rest.strip_prefix('.') {
            Some(more) => rest = more.trim_start(),
            None if rest.is_empty() => return Some(parts),
            None => return None,
        }
    }
}

/// The schema, if it is named, and the name of a path. A database may be named before.
fn qualified(path: &[String]) -> Option<(Option<&str>, &str)> {
    match path {
        [name] => Some((None, name)),
        [schema, name] | [_, schema, name] => Some((Some(schema), name)),
        _ => None,
    }
}

/// The relation that a text names; nothing when it names none.
///
/// # Errors
/// 42501 when the statement's role may not use its schema.
pub fn relation<'s>(snapshot: &'s Snapshot, text: &str) -> Result<Option<Class<'s>>, SqlError> {
    let path = parse_path(text).unwrap_or_default();
    snapshot.schema.check_database(&path)?;
    let Some((schema, name)) = qualified(&path) else { return Ok(None) };
    class::by_name(snapshot, schema, name)
}

/// The id of the schema of this name.
pub fn namespace_named(snapshot: &Snapshot, name: &str) -> Option<Oid> {
    namespace(name).or_else(|| snapshot.schema.namespace(name))
}

/// The functions that a text names; those of users would be in other schemas.
fn routines(text: &str) -> Vec<&'static Routine> {
    let Some(path) = parse_path(text) else { return Vec::new() };
    match qualified(&path) {
        Some((None | Some("pg_catalog"), name)) => routine::by_name(name).collect(),
        _ => Vec::new(),
    }
}

/// The id of the object that a text names; nothing when it names none.
///
/// # Errors
/// 42501 when the statement's role may not use its schema.
pub fn id_of(snapshot: &Snapshot, kind: Kind, text: &str) -> Result<Option<Oid>, SqlError> {
    match kind {
        Kind::Regclass => Ok(relation(snapshot, text)?.map(Class::oid)),
        kind => Ok(id_of_other(snapshot, kind, text)),
    }
}

/// The same for objects outside of schemas, for which no USAGE is needed.
fn id_of_other(snapshot: &Snapshot, kind: Kind, text: &str) -> Option<Oid> {
    match kind {
        Kind::Regtype => Type::from_name(text).map(|ty| ty.kind().oid()),
        Kind::Regnamespace => match &parse_path(text)?[..] {
            [name] => namespace_named(snapshot, name),
            _ => None,
        },
        Kind::Regrole => match &parse_path(text)?[..] {
            [name] => snapshot.schema.role(name).map(|role| role.oid),
            _ => None,
        },
        Kind::Regproc => match routines(text)[..] {
            [only] => Some(only.oid),
            _ => None,
        },
        Kind::Regprocedure => {
            let (name, rest) = text.split_once('(')?;
            let arguments = rest.trim_end().strip_suffix(')')?;
            let arguments: Option<Vec<Oid>> = match arguments.trim() {
                "" => Some(Vec::new()),
                list => list.split(',').map(argument_type).collect(),
            };
            let arguments = arguments?;
            routines(name).into_iter().find(|routine| routine.arguments == arguments).map(|routine| routine.oid)
        }
        _ => None,
    }
}

fn argument_type(name: &str) -> Option<Oid> {
    match name.trim() {
        "cstring" => Some(super::types::CSTRING),
        "internal" => Some(super::types::INTERNAL),
        name => Type::from_name(name).map(|ty| ty.kind().oid()),
    }
}

/// What an object of this id prints as.
pub fn name_of(snapshot: &Snapshot, kind: Kind, id: Oid) -> Option<String> {
    match kind {
        Kind::Regclass => class::by_oid(snapshot, id).map(|class| describe::relation_name(snapshot, class)),
        Kind::Regtype => Some(Kind::from_oid(id)?.sql_name().to_owned()),
        Kind::Regnamespace => {
            let system = SYSTEM_NAMESPACES.iter().find(|(oid, _)| *oid == id).map(|(_, name)| *name);
            let name = match (system, snapshot.schema.entry(id)) {
                (Some(name), _) => name,
                (None, Some(Entry::Namespace(namespace))) => &namespace.name,
                _ => return None,
            };
            Some(quote_identifier(name))
        }
        Kind::Regrole => snapshot.schema.role_by_oid(id).map(|role| quote_identifier(&role.name)),
        Kind::Regproc => {
            let routine = routine::by_oid(id)?;
            // A name that several have needs its schema, as if another one were meant otherwise.
            let several = routine::by_name(routine.name).nth(1).is_some();
            let name = quote_identifier(routine.name);
            Some(if several { format!("pg_catalog.{name}") } else { name })
        }
        Kind::Regprocedure => {
            let routine = routine::by_oid(id)?;
            let arguments: Vec<String> = routine.arguments.iter().map(|oid| type_name(*oid)).collect();
            Some(format!("{}({})", quote_identifier(routine.name), arguments.join(",")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_statements_write_them() {
        let path = |text: &str| parse_path(text).map(|parts| parts.join("|"));
        for (text, expected) in [
            ("Abc", "abc"),
            (" public . \"T a.b\" ", "public|T a.b"),
            ("\"a\"\"b\"", "a\"b"),
            ("x1.y_2.z$", "x1|y_2|z$"),
            ("Größe", "größe"),
        ] {
            assert_eq!(path(text).as_deref(), Some(expected), "{text}");
        }
        for wrong in ["", ".", "a.", ".a", "a b", "\"a", "\"\"", "1a", "a..b", "a-b", "\"a\"b"] {
            assert_eq!(path(wrong), None, "{wrong}");
        }
    }
}
