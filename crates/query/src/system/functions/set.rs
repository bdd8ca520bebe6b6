//! Functions over the catalogs that return sets of rows.

use freshet_sql::{
    SqlError, SqlState, Value,
    functions::SetFunction,
    general::{Relation, Scan},
};

use super::Arguments;
use crate::{
    relations::Snapshot,
    schema::Oid,
    system::{
        class::{self, Class},
        sink::row,
    },
};

/// Privileges by the letters that stand for them.
const PRIVILEGES: &[(char, &str)] = &[
    ('a', "INSERT"),
    ('r', "SELECT"),
    ('w', "UPDATE"),
    ('d', "DELETE"),
    ('D', "TRUNCATE"),
    ('x', "REFERENCES"),
    ('t', "TRIGGER"),
    ('X', "EXECUTE"),
    ('U', "USAGE"),
    ('C', "CREATE"),
    ('T', "TEMPORARY"),
    ('c', "CONNECT"),
];

/// The rows of one of these functions. No argument is null.
///
/// # Errors
/// 42704 and 42809 where an argument names nothing that fits, 22P02 when privileges cannot be read.
pub fn rows(snapshot: &Snapshot, function: SetFunction, arguments: &[Value]) -> Result<Vec<Vec<Value>>, SqlError> {
    let given = Arguments(arguments);
    match function {
        SetFunction::AclExplode => {
            let Some(Value::Array(entries)) = arguments.first() else { return Ok(Vec::new()) };
            let mut rows = Vec::new();
            for entry in entries.values().iter().filter_map(Value::as_str) {
                privileges(snapshot, entry, &mut rows)?;
            }
            Ok(rows)
        }
        SetFunction::SequenceParameters => match class::by_oid(snapshot, given.oid(0)) {
            Some(Class::Sequence(sequence)) => Ok(vec![row![
                sequence.start,
                sequence.minimum,
                sequence.maximum,
                sequence.increment,
                sequence.cycle,
                sequence.cache,
                sequence.ty.oid(),
            ]]),
            _ => {
                let message = format!("could not find a sequence with OID {}", given.oid(0));
                Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message))
            }
        },
        SetFunction::Settings => {
            let Some(settings) = crate::system::relation(snapshot, Some("pg_catalog"), "pg_settings") else {
                return Ok(Vec::new());
            };
            let width = function.declared().columns.len();
            read(settings.as_ref(), width)
        }
        other => Err(SqlError::internal(format!("{}() asks nothing of a session", other.declared().name))),
    }
}

/// The rows of an entry like `reader=r*w/owner`.
///
/// # Errors
/// 22P02 when it is none, 42704 when it names roles that there are not.
fn privileges(snapshot: &Snapshot, entry: &str, rows: &mut Vec<Vec<Value>>) -> Result<(), SqlError> {
    let wrong = || {
        let message = format!("invalid input syntax for type aclitem: \"{entry}\"");
        SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
    };
    let (grantee, rest) = role(snapshot, entry)?;
    let (letters, grantor) = rest.strip_prefix('=').and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
    let (grantor, rest) = role(snapshot, grantor)?;
    if !rest.is_empty() {
        return Err(wrong());
    }
    let mut letters = letters.chars().peekable();
    while let Some(letter) = letters.next() {
        let (_, name) = PRIVILEGES.iter().find(|(known, _)| *known == letter).ok_or_else(wrong)?;
        let grantable = letters.next_if_eq(&'*').is_some();
        rows.push(row![grantor, grantee, *name, grantable]);
    }
    Ok(())
}

/// The role that a text begins with, 0 for nobody in particular, and what follows it.
///
/// # Errors
/// 42704 when nothing has this name.
fn role<'t>(snapshot: &Snapshot, text: &'t str) -> Result<(Oid, &'t str), SqlError> {
    let (name, rest) = match text.strip_prefix('"') {
        Some(quoted) => {
            let mut name = String::new();
            let mut rest = quoted;
            while let Some((part, behind)) = rest.split_once('"') {
                name.push_str(part);
                rest = behind;
                match behind.strip_prefix('"') {
                    Some(more) => {
                        name.push('"');
                        rest = more;
                    }
                    None => break,
                }
            }
            (name, rest)
        }
        None => {
            let end = text.find(['=', '/']).unwrap_or(text.len());
            (text[..end].to_owned(), &text[end..])
        }
    };
    if name.is_empty() {
        return Ok((0, rest));
    }
    match snapshot.schema.role(&name) {
        Some(role) => Ok((role.oid, rest)),
        None => {
            // A role that is no more is written as its number.
            let oid = name
                .parse()
                .map_err(|_| SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist")))?;
            Ok((oid, rest))
        }
    }
}

/// All rows of a relation, this many columns of it.
fn read(relation: &dyn Relation, width: usize) -> Result<Vec<Vec<Value>>, SqlError> {
    let mut scan = relation.scan(Scan { columns: (0..width).collect(), ..Scan::default() })?;
    let mut rows = Vec::new();
    let mut sink = |cells: &dyn freshet_sql::general::Cells| {
        let row = (0..width).map(|n| cells.cell(n).map(|value| value.to_value())).collect::<Result<_, _>>()?;
        rows.push(row);
        Ok(())
    };
    while scan.next(usize::MAX, &mut sink)? {}
    Ok(rows)
}
