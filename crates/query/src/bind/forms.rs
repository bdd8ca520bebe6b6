//! Expressions that have a form of their own: tests, CASE, arrays, casts, and functions that are
//! written in words.

use freshet_sql::{SqlError, SqlState, Type, Value, functions::check_collatable, types::CastContext};
use sqlparser::ast::{self, CeilFloorKind, Expr, TrimWhereField};

use super::{
    Binder, Bound, Scope, Stop,
    expression::{boolean, unknown},
    not_supported, parts_of,
};
use crate::expression::{Expression, Typed};

impl Binder<'_> {
    /// The forms; general queries have more.
    pub(super) fn form(&self, expr: &Expr, scope: &Scope, depth: usize) -> Bound<Typed> {
        let deeper = |expr: &Expr| self.nested(expr, scope, depth + 1);
        Ok(match expr {
            Expr::Interval(interval) => {
                let literal = match &*interval.value {
                    Expr::Value(value) => value.value.clone().into_string().unwrap_or_default(),
                    _ => return Err(not_supported("INTERVAL of an expression").into()),
                };
                self.coerce(unknown(literal), Type::of_interval(interval)?, CastContext::Explicit)?
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char } => {
                let name = if *negated { "!~~" } else { "~~" };
                self.like(name, deeper(expr)?, deeper(pattern)?, escape_char.as_ref())?
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char } => {
                let name = if *negated { "!~~*" } else { "~~*" };
                self.like(name, deeper(expr)?, deeper(pattern)?, escape_char.as_ref())?
            }
            Expr::SimilarTo { negated, expr, pattern, escape_char } => {
                let mut arguments = vec![deeper(pattern)?];
                arguments.extend(escape_char.as_ref().map(|escape| self.literal(escape)).transpose()?);
                let pattern = self.call("similar_to_escape", arguments)?;
                self.operator(if *negated { "!~" } else { "~" }, deeper(expr)?, pattern)?
            }
            Expr::Collate { expr, collation } => {
                let name = parts_of(collation)?.pop().unwrap_or_default();
                if !matches!(name.as_str(), "C" | "default" | "POSIX" | "ucs_basic") {
                    let message = format!("collation \"{name}\" for encoding \"UTF8\" does not exist");
                    return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message).into());
                }
                let typed = deeper(expr)?;
                check_collatable(typed.ty)?;
                typed
            }
            Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsNotTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsNotFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotUnknown(_)
            | Expr::IsDistinctFrom(..)
            | Expr::IsNotDistinctFrom(..) => self.test(expr, scope, depth)?,
            _ => self.written_call(expr, scope, depth)?,
        })
    }

    /// `IS [NOT]` something.
    fn test(&self, expr: &Expr, scope: &Scope, depth: usize) -> Bound<Typed> {
        let deeper = |expr: &Expr| self.nested(expr, scope, depth + 1);
        Ok(match expr {
            Expr::IsNull(inner) => boolean(Expression::IsNull(Box::new(self.settle(deeper(inner)?)?.expression))),
            Expr::IsNotNull(inner) => {
                let inner = Expression::IsNull(Box::new(self.settle(deeper(inner)?)?.expression));
                boolean(Expression::Not(Box::new(inner)))
            }
            Expr::IsTrue(inner) => self.is(self.truth(deeper(inner)?, "IS TRUE")?, true, false),
            Expr::IsNotTrue(inner) => self.is(self.truth(deeper(inner)?, "IS NOT TRUE")?, true, true),
            Expr::IsFalse(inner) => self.is(self.truth(deeper(inner)?, "IS FALSE")?, false, false),
            Expr::IsNotFalse(inner) => self.is(self.truth(deeper(inner)?, "IS NOT FALSE")?, false, true),
            Expr::IsUnknown(inner) => {
                let inner = self.truth(deeper(inner)?, "IS UNKNOWN")?;
                boolean(Expression::IsNull(Box::new(inner)))
            }
            Expr::IsNotUnknown(inner) => {
                let inner = self.truth(deeper(inner)?, "IS NOT UNKNOWN")?;
                boolean(Expression::Not(Box::new(Expression::IsNull(Box::new(inner)))))
            }
            Expr::IsDistinctFrom(one, other) => self.distinct(deeper(one)?, deeper(other)?)?,
            Expr::IsNotDistinctFrom(one, other) => {
                let distinct = self.distinct(deeper(one)?, deeper(other)?)?;
                boolean(Expression::Not(Box::new(distinct.expression)))
            }
            _ => return Err(Stop::General("another test")),
        })
    }

    /// Functions whose arguments have words between them.
    fn written_call(&self, expr: &Expr, scope: &Scope, depth: usize) -> Bound<Typed> {
        let deeper = |expr: &Expr| self.nested(expr, scope, depth + 1);
        Ok(match expr {
            Expr::AtTimeZone { timestamp, time_zone } => {
                self.call("timezone", vec![deeper(time_zone)?, deeper(timestamp)?])?
            }
            Expr::Extract { field, expr, .. } => {
                self.call("extract", vec![unknown(field.to_string().to_lowercase().trim_matches('\'')), deeper(expr)?])?
            }
            Expr::Ceil { expr, field: CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime) } => {
                self.call("ceil", vec![deeper(expr)?])?
            }
            Expr::Floor { expr, field: CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime) } => {
                self.call("floor", vec![deeper(expr)?])?
            }
            Expr::Position { expr, r#in } => self.call("position", vec![deeper(r#in)?, deeper(expr)?])?,
            Expr::Substring { expr, substring_from, substring_for, .. } => {
                let mut arguments = vec![deeper(expr)?];
                match (substring_from, substring_for) {
                    (Some(from), None) => arguments.push(deeper(from)?),
                    (from, Some(length)) => {
                        let one = Typed { expression: Expression::Constant(Value::Int4(1)), ty: Type::INT4 };
                        arguments.push(from.as_deref().map(deeper).transpose()?.unwrap_or(one));
                        arguments.push(deeper(length)?);
                    }
                    (None, None) => {}
                }
                self.call("substring", arguments)?
            }
            Expr::Trim { trim_where, trim_what, expr, trim_characters } => {
                let name = match trim_where {
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                    _ => "btrim",
                };
                let mut arguments = vec![deeper(expr)?];
                let characters = trim_what.as_deref().into_iter().chain(trim_characters.iter().flatten());
                for characters in characters {
                    arguments.push(deeper(characters)?);
                }
                self.call(name, arguments)?
            }
            Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut arguments = vec![deeper(expr)?, deeper(overlay_what)?, deeper(overlay_from)?];
                arguments.extend(overlay_for.as_deref().map(deeper).transpose()?);
                self.call("overlay", arguments)?
            }
            _ => return Err(Stop::General("an expression of another kind")),
        })
    }

    pub(super) fn and(&self, sides: [&Expr; 2], scope: &Scope, depth: usize) -> Bound<Typed> {
        let mut all = Vec::new();
        for side in sides {
            match self.nested_condition(side, scope, "AND", depth + 1)? {
                Expression::And(inner) => all.extend(inner),
                other => all.push(other),
            }
        }
        Ok(boolean(Expression::And(all.into())))
    }

    pub(super) fn or(&self, sides: [&Expr; 2], scope: &Scope, depth: usize) -> Bound<Typed> {
        let mut any = Vec::new();
        for side in sides {
            match self.nested_condition(side, scope, "OR", depth + 1)? {
                Expression::Or(inner) => any.extend(inner),
                other => any.push(other),
            }
        }
        // One that is true is enough, where the others are not made of constants alone.
        let is_true = |expression: &Expression| matches!(expression, Expression::Constant(Value::Bool(true)));
        if any.iter().any(is_true) && any.iter().all(|part| is_true(part) || !part.is_before(0)) {
            return Ok(boolean(Expression::Constant(Value::Bool(true))));
        }
        Ok(boolean(Expression::Or(any.into())))
    }

    pub(super) fn cast(&self, expr: &Expr, ty: Type, scope: &Scope, depth: usize) -> Bound<Typed> {
        let deeper = |expr: &Expr| self.nested(expr, scope, depth + 1);
        Ok(match (expr, ty.element()) {
            // The elements are cast, one by one; there may be none.
            (Expr::Array(array), Some(element)) => {
                let elements = array.elem.iter().map(deeper).collect::<Bound<Vec<_>>>()?;
                if elements.iter().any(|element| element.ty.kind().is_array()) {
                    return Err(Stop::General("an array of arrays"));
                }
                let cast = |one| Ok(self.coerce(one, element, CastContext::Explicit)?.expression);
                let elements = elements.into_iter().map(cast).collect::<Bound<Vec<_>>>()?;
                Typed { expression: Expression::Array(element.kind(), elements.into()), ty }
            }
            _ => self.coerce(deeper(expr)?, ty, CastContext::Explicit)?,
        })
    }

    pub(super) fn case(
        &self,
        operand: Option<&Expr>,
        conditions: &[ast::CaseWhen],
        else_result: Option<&Expr>,
        scope: &Scope,
        depth: usize,
    ) -> Bound<Typed> {
        let deeper = |expr: &Expr| self.nested(expr, scope, depth + 1);
        let operand = operand.map(deeper).transpose()?;
        if operand.as_ref().is_some_and(|operand| operand.expression.is_volatile()) {
            return Err(Stop::General("CASE of a volatile function"));
        }
        let mut branches = Vec::new();
        for when in conditions {
            let condition = match &operand {
                Some(operand) => self.operator("=", operand.clone(), deeper(&when.condition)?)?.expression,
                None => self.nested_condition(&when.condition, scope, "CASE/WHEN", depth + 1)?,
            };
            branches.push((condition, deeper(&when.result)?));
        }
        let otherwise = match else_result {
            Some(expr) => deeper(expr)?,
            None => Typed { expression: Expression::NULL, ty: Type::UNKNOWN },
        };
        let (conditions, mut results): (Vec<_>, Vec<_>) = branches.into_iter().unzip();
        results.push(otherwise);
        let (mut results, ty) = self.common(results, "CASE")?;
        let otherwise = results.pop().unwrap_or(Expression::NULL);
        let branches = conditions.into_iter().zip(results).collect();
        Ok(Typed { expression: Expression::Case(branches, Box::new(otherwise)), ty })
    }

    pub(super) fn array(&self, array: &ast::Array, scope: &Scope, depth: usize) -> Bound<Typed> {
        let deeper = |expr: &Expr| self.nested(expr, scope, depth + 1);
        let elements = array.elem.iter().map(deeper).collect::<Bound<Vec<_>>>()?;
        if elements.iter().any(|element| element.ty.kind().is_array()) {
            return Err(Stop::General("an array of arrays"));
        }
        if elements.is_empty() {
            let message = "cannot determine type of empty array";
            let hint = "Explicitly cast to the desired type, for example ARRAY[]::integer[].";
            return Err(SqlError::new(SqlState::new("42P18"), message).with_hint(hint).into());
        }
        let (elements, ty) = self.common(elements, "ARRAY")?;
        let array = ty.kind().array().ok_or_else(|| not_supported(format!("an array of {}", ty.kind().sql_name())))?;
        Ok(Typed { expression: Expression::Array(ty.kind(), elements.into()), ty: Type::of(array) })
    }

    pub(super) fn subscripts(
        &self,
        root: &Expr,
        access_chain: &[ast::AccessExpr],
        scope: &Scope,
        depth: usize,
    ) -> Bound<Typed> {
        let deeper = |expr: &Expr| self.nested(expr, scope, depth + 1);
        if matches!(access_chain.first(), Some(ast::AccessExpr::Dot(_))) {
            return Err(Stop::General("a field"));
        }
        let mut value = deeper(root)?;
        for access in access_chain {
            let ast::AccessExpr::Subscript(ast::Subscript::Index { index }) = access else {
                return Err(Stop::General("a slice or a field"));
            };
            value =
                self.call("array_element", vec![value, deeper(index)?]).map_err(|_| Stop::General("a subscript"))?;
        }
        Ok(value)
    }
}
