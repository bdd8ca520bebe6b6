//! Names: of things that statements mention, and of result columns that statements do not name.

use freshet_sql::{SqlError, SqlState, Type};
use sqlparser::ast::{
    Expr, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, SelectItem, SetExpr, TrimWhereField,
};

/// A column that nothing gives a name.
const ANONYMOUS: &str = "?column?";

/// A name as PostgreSQL folds it: in lower case unless quoted.
pub(super) fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}

/// The parts of a name.
///
/// # Errors
/// When one of them is no plain name.
pub(super) fn parts(name: &ObjectName) -> Result<Vec<String>, SqlError> {
    name.0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(ident) => Ok(fold(ident)),
            ObjectNamePart::Function(_) => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("\"{name}\" is no name"))),
        })
        .collect()
}

/// The schema and the name of a table; the database is left out if it is named.
///
/// # Errors
/// When there are too many parts.
pub(super) fn qualified(name: &ObjectName) -> Result<(Option<String>, String), SqlError> {
    let mut parts = parts(name)?;
    let last = parts.pop();
    match (last, parts.len()) {
        (Some(last), 0..=2) => Ok((parts.pop(), last)),
        _ => Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            format!("improper qualified name (too many dotted names): {name}"),
        )),
    }
}

/// The name of a function, which may be in `pg_catalog`.
///
/// # Errors
/// 42883 when it is in another schema.
pub(super) fn function(name: &ObjectName) -> Result<String, SqlError> {
    match qualified(name)? {
        (None, name) => Ok(name),
        (Some(schema), name) if schema == "pg_catalog" => Ok(name),
        (Some(schema), name) => {
            Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function {schema}.{name} does not exist")))
        }
    }
}

/// What PostgreSQL calls a result column.
pub(super) fn of_column(expr: &Expr) -> String {
    find(expr).map_or_else(|| ANONYMOUS.to_owned(), |(name, _)| name)
}

/// The name, and whether it is a good one: that of a column or function.
fn find(expr: &Expr) -> Option<(String, bool)> {
    let good = |name: &str| Some((name.to_owned(), true));
    let poor = |name: &str| Some((name.to_owned(), false));
    match expr {
        Expr::Identifier(ident) => good(&fold(ident)),
        Expr::CompoundIdentifier(idents) => good(&fold(idents.last()?)),
        Expr::CompoundFieldAccess { root, .. } => find(root),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => find(inner),
        Expr::Function(function) => {
            if matches!(function.args, FunctionArguments::Subquery(_)) {
                return good("array");
            }
            good(parts(&function.name).ok()?.last()?)
        }
        Expr::Cast { expr, data_type, .. } => match find(expr) {
            Some((name, true)) => good(&name),
            _ => poor(Type::from_sql(data_type).ok()?.kind().catalog_name().trim_start_matches('_')),
        },
        Expr::TypedString(typed) => poor(Type::from_sql(&typed.data_type).ok()?.kind().catalog_name()),
        Expr::Interval(_) => poor("interval"),
        Expr::Case { else_result, .. } => match else_result.as_deref().and_then(find) {
            Some((name, true)) => good(&name),
            _ => poor("case"),
        },
        Expr::Array(_) => good("array"),
        Expr::Exists { .. } => good("exists"),
        Expr::Subquery(query) => of_subquery(query),
        Expr::Tuple(_) => good("row"),
        Expr::Extract { .. } => good("extract"),
        Expr::Position { .. } => good("position"),
        Expr::Substring { shorthand, .. } => good(if *shorthand { "substr" } else { "substring" }),
        Expr::Overlay { .. } => good("overlay"),
        Expr::Ceil { .. } => good("ceil"),
        Expr::Floor { .. } => good("floor"),
        Expr::AtTimeZone { .. } => good("timezone"),
        Expr::Trim { trim_where, .. } => good(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            Some(TrimWhereField::Both) | None => "btrim",
        }),
        _ => None,
    }
}

fn of_subquery(query: &Query) -> Option<(String, bool)> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    match select.projection.first()? {
        SelectItem::ExprWithAlias { alias, .. } => Some((fold(alias), true)),
        SelectItem::UnnamedExpr(expr) => find(expr),
        _ => None,
    }
}
