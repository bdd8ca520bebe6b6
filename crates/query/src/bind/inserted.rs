//! What is known of a query whose rows are inserted before it is planned.

use freshet_sql::Type;
use sqlparser::ast::{self, Expr, ObjectName, Query, SelectItem, SetExpr, ValueWithSpan};

use crate::schema::TableInfo;

/// How many columns it has, if its text says so.
pub(super) fn width(query: &Query) -> Option<usize> {
    let mut body = &*query.body;
    loop {
        body = match body {
            SetExpr::Select(select) => {
                let plain =
                    |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
                return select.projection.iter().all(plain).then_some(select.projection.len());
            }
            SetExpr::Values(values) => return values.rows.first().map(|row| row.content.len()),
            SetExpr::Query(inner) => &inner.body,
            SetExpr::SetOperation { left, .. } => left,
            _ => return None,
        }
    }
}

/// The query with the types of the columns that they are for at literals and nulls, which have none of their own.
pub(super) fn with_types(query: &Query, table: &TableInfo, targets: &[usize]) -> Query {
    let mut query = query.clone();
    let SetExpr::Select(select) = &mut *query.body else { return query };
    for (item, target) in select.projection.iter_mut().zip(targets) {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
            // What it stands for is not known yet, nor the places of those after it.
            break;
        };
        let Expr::Value(ValueWithSpan { value, .. }) = &*expr else { continue };
        use ast::Value::{EscapedStringLiteral, Null, SingleQuotedString};
        if !matches!(value, SingleQuotedString(_) | EscapedStringLiteral(_) | Null) {
            continue;
        }
        let kind = table.table.columns[*target].ty.kind();
        let name = ObjectName::from(vec![ast::Ident::with_quote('"', kind.catalog_name())]);
        let data_type = ast::DataType::Custom(name, Vec::new());
        // A modifier applies when the column is assigned.
        if Type::from_sql(&data_type).is_ok_and(|found| found == Type::of(kind)) {
            let literal = Box::new(expr.clone());
            let kind = ast::CastKind::Cast;
            *expr = Expr::Cast { kind, expr: literal, data_type, array: false, format: None };
        }
    }
    query
}
