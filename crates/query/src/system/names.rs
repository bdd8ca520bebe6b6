//! Names of objects and their ids: what `regclass` and its like read and print.

use freshet_sql::{Kind, SqlError, SqlState, Type, functions::quote_identifier};

use super::{
    class::{self, Class},
    describe, namespace,
    role::SYSTEM_NAMESPACES,
    routine::{self, Operator, Routine, type_name},
    row_type,
    types::{COLLATIONS, PSEUDO_TYPES},
};
use crate::{
    relations::Snapshot,
    schema::{Entry, Oid, PG_CATALOG},
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
            part = rest[..end].to_ascii_lowercase();
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
    let Some((schema, name)) = qualified(&path) else { return Vec::new() };
    let schema = schema.map_or(Some(PG_CATALOG), namespace);
    routine::by_name(name).filter(|routine| Some(routine.namespace) == schema).collect()
}

/// The operators that a text names.
fn operators(text: &str) -> Vec<&'static Operator> {
    let text = text.trim();
    let name = match text.rsplit_once('.') {
        Some((schema, name)) => match parse_path(schema).as_deref() {
            Some([schema]) if schema == "pg_catalog" => name,
            _ => return Vec::new(),
        },
        None => text,
    };
    routine::operators().iter().filter(|operator| operator.name == name).collect()
}

/// The name and the types of `name(type, type)`; an operator's operand may be missing: NONE.
fn with_types(text: &str) -> Option<(&str, Vec<Oid>)> {
    let mut quoted = false;
    let open = text.find(|it: char| {
        quoted ^= it == '"';
        it == '(' && !quoted
    })?;
    let list = text[open + 1..].trim_end().strip_suffix(')')?;
    let (mut quoted, mut depth) = (false, 0);
    let parts = list.split(|it: char| {
        match it {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        it == ',' && !quoted && depth == 0
    });
    let types = match list.trim() {
        "" => Vec::new(),
        _ => parts.map(type_named).collect::<Option<_>>()?,
    };
    Some((&text[..open], types))
}

/// The only one, if there is one.
///
/// # Errors
/// 42725 when there are several.
fn only<T>(found: Vec<T>, what: &str, name: &str) -> Result<Option<T>, SqlError> {
    if found.len() > 1 {
        let message = format!("more than one {what} named {name}");
        return Err(SqlError::new(SqlState::AMBIGUOUS_FUNCTION, message));
    }
    Ok(found.into_iter().next())
}

/// The id of the object that a text names; nothing when it names none.
///
/// # Errors
/// 42501 when the statement's role may not use its schema, 42602 when a relation's name is none,
/// 42725 when a function or an operator is one of several.
pub fn id_of(snapshot: &Snapshot, kind: Kind, text: &str) -> Result<Option<Oid>, SqlError> {
    match kind {
        Kind::Regclass if parse_path(text).is_none() => {
            Err(SqlError::new(SqlState::INVALID_NAME, "invalid name syntax"))
        }
        Kind::Regclass => Ok(relation(snapshot, text)?.map(Class::oid)),
        Kind::Regproc => Ok(only(routines(text), "function", &format!("\"{text}\""))?.map(|found| found.oid)),
        Kind::Regoper => Ok(only(operators(text), "operator", text)?.map(|found| found.oid)),
        kind => Ok(id_of_other(snapshot, kind, text)),
    }
}

/// The same for objects outside of schemas, for which no USAGE is needed.
fn id_of_other(snapshot: &Snapshot, kind: Kind, text: &str) -> Option<Oid> {
    match kind {
        Kind::Regtype => type_named(text).or_else(|| row_type::named(snapshot, text)),
        Kind::Regnamespace => match &parse_path(text)?[..] {
            [name] => namespace_named(snapshot, name),
            _ => None,
        },
        Kind::Regrole => match &parse_path(text)?[..] {
            [name] => snapshot.schema.role(name).map(|role| role.oid),
            _ => None,
        },
        Kind::Regcollation => {
            let path = parse_path(text)?;
            let (schema, name) = qualified(&path)?;
            let known = COLLATIONS.iter().find(|(_, known, _)| *known == name)?;
            matches!(schema, None | Some("pg_catalog")).then_some(known.0)
        }
        Kind::Regprocedure => {
            let (name, arguments) = with_types(text)?;
            routines(name).into_iter().find(|routine| routine.arguments == arguments).map(|routine| routine.oid)
        }
        Kind::Regoperator => {
            let (name, operands) = with_types(text)?;
            let [left, right] = operands[..] else { return None };
            let found = operators(name).into_iter().find(|it| (it.left, it.right) == (left, right));
            found.map(|operator| operator.oid)
        }
        _ => None,
    }
}

/// The id of the type that a text names; 0 for NONE.
fn type_named(name: &str) -> Option<Oid> {
    let name = name.trim();
    if name.eq_ignore_ascii_case("none") {
        return Some(0);
    }
    if let Some(ty) = Type::from_name(name) {
        return Some(ty.kind().oid());
    }
    let path = parse_path(name)?;
    match qualified(&path)? {
        (None | Some("pg_catalog"), name) => PSEUDO_TYPES.iter().find(|(_, known)| *known == name).map(|(oid, _)| *oid),
        _ => None,
    }
}

fn operator_by_oid(id: Oid) -> Option<&'static Operator> {
    routine::operators().iter().find(|operator| operator.oid == id)
}

/// What an object of this id prints as.
pub fn name_of(snapshot: &Snapshot, kind: Kind, id: Oid) -> Option<String> {
    match kind {
        Kind::Regclass => class::by_oid(snapshot, id).map(|class| describe::relation_name(snapshot, class)),
        Kind::Regtype if Kind::from_oid(id).is_some() || PSEUDO_TYPES.iter().any(|(oid, _)| *oid == id) => {
            Some(type_name(id))
        }
        Kind::Regtype => row_type::name(snapshot, id),
        Kind::Regcollation => COLLATIONS.iter().find(|(oid, ..)| *oid == id).map(|(_, name, _)| quote_identifier(name)),
        Kind::Regoper => {
            let operator = operator_by_oid(id)?;
            let several = routine::operators().iter().filter(|other| other.name == operator.name).nth(1).is_some();
            Some(if several { format!("pg_catalog.{}", operator.name) } else { operator.name.to_owned() })
        }
        Kind::Regoperator => {
            let operator = operator_by_oid(id)?;
            let operand = |oid: Oid| if oid == 0 { "NONE".to_owned() } else { type_name(oid) };
            Some(format!("{}({},{})", operator.name, operand(operator.left), operand(operator.right)))
        }
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
