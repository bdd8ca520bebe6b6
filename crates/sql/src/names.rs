//! Names as statements write them, and those of result columns to which statements give none.

use sqlparser::ast::{
    AccessExpr, Expr, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, SelectItem, SetExpr, TrimWhereField,
};

use crate::types::Type;

/// A column that nothing gives a name.
const ANONYMOUS: &str = "?column?";

/// A name as PostgreSQL folds it: in lower case unless quoted.
pub fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}

fn last(name: &ObjectName) -> Option<String> {
    match name.0.last()? {
        ObjectNamePart::Identifier(ident) => Some(fold(ident)),
        ObjectNamePart::Function(_) => None,
    }
}

/// What PostgreSQL calls a result column.
pub fn of_column(expr: &Expr) -> String {
    find(expr).map_or_else(|| ANONYMOUS.to_owned(), |(name, _)| name)
}

/// The name, and whether it is a good one: that of a column or function.
fn find(expr: &Expr) -> Option<(String, bool)> {
    let good = |name: &str| Some((name.to_owned(), true));
    let poor = |name: &str| Some((name.to_owned(), false));
    match expr {
        Expr::Identifier(ident) => good(&fold(ident)),
        Expr::CompoundIdentifier(idents) => good(&fold(idents.last()?)),
        Expr::CompoundFieldAccess { root, access_chain } => {
            // The last field; subscripts have no names.
            let field = access_chain.iter().rev().find_map(|access| match access {
                AccessExpr::Dot(Expr::Identifier(field)) => Some(fold(field)),
                _ => None,
            });
            field.map_or_else(|| find(root), |field| good(&field))
        }
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => find(inner),
        Expr::Function(function) => {
            if matches!(function.args, FunctionArguments::Subquery(_)) {
                return good("array");
            }
            good(&last(&function.name)?)
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
        Expr::Exists { negated: false, .. } => good("exists"),
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
    let mut body = query.body.as_ref();
    let select = loop {
        match body {
            SetExpr::Select(select) => break select,
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Query(inner) => body = inner.body.as_ref(),
            _ => return None,
        }
    };
    match select.projection.first()? {
        SelectItem::ExprWithAlias { alias, .. } => Some((fold(alias), true)),
        SelectItem::UnnamedExpr(expr) => Some((of_column(expr), true)),
        _ => None,
    }
}
