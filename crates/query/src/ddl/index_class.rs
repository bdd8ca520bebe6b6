//! Operator classes and collations of indexes. They change nothing: values have one order. What is
//! named is checked, kept and shown.

use freshet_sql::{Kind, SqlError, SqlState, Type};

use super::{syntax::Name, work::error};
use crate::{schema::AccessMethod, system::types};

/// Classes that are no type's usual one: what they are for, and whether they are of btree alone.
const OTHERS: &[(&str, &[Kind], bool)] = &[
    ("text_pattern_ops", &[Kind::Text, Kind::Varchar], false),
    ("varchar_pattern_ops", &[Kind::Text, Kind::Varchar], false),
    ("bpchar_pattern_ops", &[Kind::Char], false),
    ("varchar_ops", &[Kind::Text, Kind::Varchar], false),
];

/// The operator class of this name for values of a type; none for the usual one.
///
/// # Errors
/// 42704 when no class has this name, 42804 when it is for other types.
pub(super) fn class(name: &Name, ty: Type, method: AccessMethod) -> Result<Option<String>, SqlError> {
    let kind = ty.kind();
    let wanted = name.name.as_str();
    let is_system = name.schema.as_deref().is_none_or(|schema| schema == "pg_catalog");
    let usual = |kind: Kind| types::class_name(kind);
    if let Some(schema) = name.schema.as_deref().filter(|_| !is_system) {
        let message = format!("schema \"{schema}\" does not exist");
        return Err(error(SqlState::INVALID_SCHEMA_NAME, message));
    }
    if is_system && usual(kind) == Some(wanted) {
        return Ok(None);
    }
    let other = OTHERS.iter().find(|(name, ..)| is_system && *name == wanted);
    if other.is_some_and(|(_, kinds, _)| kinds.contains(&kind)) {
        return Ok(Some(wanted.to_owned()));
    }
    if other.is_some() || is_system && Kind::ALL.iter().any(|kind| usual(*kind) == Some(wanted)) {
        let message = format!("operator class \"{wanted}\" does not accept data type {}", kind.sql_name());
        return Err(error(SqlState::DATATYPE_MISMATCH, message));
    }
    let method = match method {
        AccessMethod::Btree => "btree",
        AccessMethod::Hash => "hash",
    };
    let message = format!("operator class \"{name}\" does not exist for access method \"{method}\"");
    Err(error(SqlState::UNDEFINED_OBJECT, message))
}

/// The collation of this name for values of a type; none for the type's own.
///
/// # Errors
/// 42704 when no class has this name, 42804 when the type's values have none.
pub(super) fn collation(name: &Name, ty: Type) -> Result<Option<String>, SqlError> {
    let known = types::COLLATIONS.iter().find(|(_, known, _)| *known == name.name);
    let is_system = name.schema.as_deref().is_none_or(|schema| schema == "pg_catalog");
    let Some((oid, known, _)) = known.filter(|_| is_system) else {
        let message = format!("collation \"{name}\" for encoding \"UTF8\" does not exist");
        return Err(error(SqlState::UNDEFINED_OBJECT, message));
    };
    let own = types::collation(ty);
    if own == 0 {
        let message = format!("collations are not supported by type {}", ty.kind().sql_name());
        return Err(error(SqlState::DATATYPE_MISMATCH, message));
    }
    Ok((own != *oid).then(|| (*known).to_owned()))
}
