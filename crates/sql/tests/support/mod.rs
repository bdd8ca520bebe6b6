//! Evaluates expressions of literals, for tests: the syntax tree, the choice among overloads, casts
//! and functions.

use freshet_sql::{
    Kind, SqlError, SqlState, Type, Value,
    functions::{self, common_kind, resolve},
    types::{Array, Cast, CastContext, Dimension, EvalContext, TimeZone, text},
};
use sqlparser::{
    ast::{
        self, AccessExpr, BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Subscript,
        UnaryOperator,
    },
    dialect::PostgreSqlDialect,
    parser::Parser,
};

type Typed = (Value, Type);

/// The session that expressions are evaluated in.
pub fn context() -> EvalContext<'static> {
    EvalContext { zone: TimeZone::parse("Europe/Berlin").expect("a time zone"), ..EvalContext::default() }
}

/// The type of an expression and its value as text; nothing for null.
pub fn evaluate(expression: &str, context: &EvalContext<'_>) -> Result<(Type, Option<String>), SqlError> {
    let syntax = |error: sqlparser::parser::ParserError| SqlError::new(SqlState::SYNTAX_ERROR, error.to_string());
    let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(expression).map_err(syntax)?;
    let expr = parser.parse_expr().map_err(syntax)?;
    let (value, ty) = Evaluator { context }.expression(&expr)?;
    if value.is_null() {
        return Ok((ty, None));
    }
    let mut out = String::new();
    text::output_as(ty.kind(), value.as_ref(), context, &mut out);
    Ok((ty, Some(out)))
}

struct Evaluator<'a> {
    context: &'a EvalContext<'a>,
}

fn unsupported(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("the tests' evaluator does not know {what}"))
}

fn boolean(value: Value) -> Typed {
    (value, Type::BOOL)
}

impl Evaluator<'_> {
    fn cast(&self, (value, from): Typed, to: Type, context: CastContext) -> Result<Value, SqlError> {
        Cast::find(from.kind(), to, context)?.apply(value, self.context)
    }

    fn implicit(&self, value: Typed, to: Kind) -> Result<Value, SqlError> {
        self.cast(value, Type::of(to), CastContext::Implicit)
    }

    fn call(&self, name: &str, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        let kinds: Vec<Kind> = arguments.iter().map(|(_, ty)| ty.kind()).collect();
        let resolved = resolve(name, &kinds)?;
        let values = arguments
            .into_iter()
            .zip(&resolved.arguments)
            .map(|(argument, kind)| match kind {
                Kind::Any | Kind::AnyNonArray => Ok(argument.0),
                kind => self.implicit(argument, *kind),
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok((resolved.function.call(&values, self.context)?, Type::of(resolved.result)))
    }

    fn all(&self, expressions: &[&Expr]) -> Result<Vec<Typed>, SqlError> {
        expressions.iter().map(|expression| self.expression(expression)).collect()
    }

    fn truth(&self, expression: &Expr) -> Result<Option<bool>, SqlError> {
        Ok(self.implicit(self.expression(expression)?, Kind::Bool)?.as_bool())
    }

    fn negated(result: Typed, negated: bool) -> Typed {
        match result {
            (Value::Bool(truth), ty) => (Value::Bool(truth != negated), ty),
            other => other,
        }
    }

    fn common(&self, values: Vec<Typed>, what: &str) -> Result<(Vec<Value>, Kind), SqlError> {
        let kinds: Vec<Kind> = values.iter().map(|(_, ty)| ty.kind()).collect();
        let common = common_kind(&kinds, what)?;
        let values = values.into_iter().map(|value| self.implicit(value, common)).collect::<Result<_, _>>()?;
        Ok((values, common))
    }

    fn expression(&self, expression: &Expr) -> Result<Typed, SqlError> {
        Ok(match expression {
            Expr::Nested(inner) => self.expression(inner)?,
            Expr::Value(value) => literal(&value.value)?,
            Expr::TypedString(typed) => {
                let ty = Type::from_sql(&typed.data_type)?;
                let (value, _) = literal(&typed.value.value)?;
                (self.cast((value, Type::UNKNOWN), ty, CastContext::Explicit)?, ty)
            }
            Expr::Interval(interval) => {
                let value = self.expression(&interval.value)?;
                let mut name = "interval".to_owned();
                if let Some(field) = &interval.leading_field {
                    name.push_str(&format!(" {field}"));
                }
                if let Some(field) = &interval.last_field {
                    name.push_str(&format!(" to {field}"));
                }
                if let Some(digits) = interval.fractional_seconds_precision.or(interval.leading_precision) {
                    name.push_str(&format!("({digits})"));
                }
                let ty = Parser::new(&PostgreSqlDialect {})
                    .try_with_sql(&name)
                    .and_then(|mut parser| parser.parse_data_type())
                    .map_err(unsupported)?;
                let ty = Type::from_sql(&ty)?;
                (self.cast(value, ty, CastContext::Explicit)?, ty)
            }
            Expr::Cast { expr, data_type, .. } => {
                let ty = Type::from_sql(data_type)?;
                if let Expr::Array(array) = &**expr
                    && array.elem.is_empty()
                    && let Some(element) = ty.element()
                {
                    return Ok((Value::array(Array::new(element.kind(), Vec::new())), ty));
                }
                (self.cast(self.expression(expr)?, ty, CastContext::Explicit)?, ty)
            }
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => boolean(functions::not(self.truth(expr)?).into()),
            Expr::UnaryOp { op, expr } => {
                // A sign before a number is part of it.
                if let (UnaryOperator::Minus, Expr::Value(value)) = (op, &**expr)
                    && let ast::Value::Number(digits, _) = &value.value
                {
                    return number(&format!("-{digits}"));
                }
                self.call(&op.to_string(), self.all(&[expr])?)?
            }
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                boolean(functions::and(self.truth(left)?, self.truth(right)?).into())
            }
            Expr::BinaryOp { left, op: BinaryOperator::Or, right } => {
                boolean(functions::or(self.truth(left)?, self.truth(right)?).into())
            }
            Expr::BinaryOp { left, op, right } => self.call(&op.to_string(), self.all(&[left, right])?)?,
            Expr::IsNull(inner) => boolean(Value::Bool(self.expression(inner)?.0.is_null())),
            Expr::IsNotNull(inner) => boolean(Value::Bool(!self.expression(inner)?.0.is_null())),
            Expr::IsTrue(inner) => boolean(Value::Bool(self.truth(inner)? == Some(true))),
            Expr::IsNotTrue(inner) => boolean(Value::Bool(self.truth(inner)? != Some(true))),
            Expr::IsFalse(inner) => boolean(Value::Bool(self.truth(inner)? == Some(false))),
            Expr::IsNotFalse(inner) => boolean(Value::Bool(self.truth(inner)? != Some(false))),
            Expr::IsUnknown(inner) => boolean(Value::Bool(self.truth(inner)?.is_none())),
            Expr::IsNotUnknown(inner) => boolean(Value::Bool(self.truth(inner)?.is_some())),
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                let (values, _) = self.common(self.all(&[left, right])?, "IS DISTINCT FROM")?;
                let distinct = functions::is_distinct(&values[0], &values[1]);
                boolean(Value::Bool(distinct == matches!(expression, Expr::IsDistinctFrom(..))))
            }
            Expr::InList { expr, list, negated } => {
                let left = self.expression(expr)?;
                let mut found = Some(false);
                for item in list {
                    let (equal, _) = self.call("=", vec![left.clone(), self.expression(item)?])?;
                    found = functions::or(found, equal.as_bool());
                }
                Self::negated(boolean(found.into()), *negated)
            }
            Expr::Between { expr, negated, low, high } => {
                let above = self.call(">=", self.all(&[expr, low])?)?.0;
                let below = self.call("<=", self.all(&[expr, high])?)?.0;
                Self::negated(boolean(functions::and(above.as_bool(), below.as_bool()).into()), *negated)
            }
            Expr::Collate { expr, .. } => self.expression(expr)?,
            Expr::SimilarTo { negated, expr, pattern, escape_char } => {
                let mut arguments = self.all(&[pattern])?;
                if let Some(escape) = escape_char {
                    arguments.push(literal(&escape.value)?);
                }
                let pattern = self.call("similar_to_escape", arguments)?;
                self.call(if *negated { "!~" } else { "~" }, vec![self.expression(expr)?, pattern])?
            }
            Expr::Like { any: true, expr, pattern, .. } => {
                self.quantified(expr, &BinaryOperator::PGLikeMatch, pattern, true)?
            }
            Expr::Like { negated, expr, pattern, escape_char, .. } => {
                self.like(if *negated { "!~~" } else { "~~" }, expr, pattern, escape_char.as_ref())?
            }
            Expr::ILike { negated, expr, pattern, escape_char, .. } => {
                self.like(if *negated { "!~~*" } else { "~~*" }, expr, pattern, escape_char.as_ref())?
            }
            Expr::AnyOp { left, compare_op, right, .. } => self.quantified(left, compare_op, right, true)?,
            Expr::AllOp { left, compare_op, right } => self.quantified(left, compare_op, right, false)?,
            Expr::AtTimeZone { timestamp, time_zone } => self.call("timezone", self.all(&[time_zone, timestamp])?)?,
            Expr::Extract { field, expr, .. } => {
                let field = (Value::text(field.to_string().trim_matches('\'')), Type::TEXT);
                self.call("extract", vec![field, self.expression(expr)?])?
            }
            Expr::Ceil { expr, .. } => self.call("ceil", self.all(&[expr])?)?,
            Expr::Floor { expr, .. } => self.call("floor", self.all(&[expr])?)?,
            Expr::Position { expr, r#in } => self.call("position", self.all(&[r#in, expr])?)?,
            Expr::Substring { expr, substring_from, substring_for, .. } => {
                let mut arguments = self.all(&[expr])?;
                match (substring_from, substring_for) {
                    (None, Some(_)) => arguments.push((Value::Int4(1), Type::INT4)),
                    (Some(from), _) => arguments.push(self.expression(from)?),
                    (None, None) => {}
                }
                if let Some(length) = substring_for {
                    arguments.push(self.expression(length)?);
                }
                self.call("substring", arguments)?
            }
            Expr::Trim { trim_where, trim_what, expr, trim_characters } => {
                let name = match trim_where {
                    Some(ast::TrimWhereField::Leading) => "ltrim",
                    Some(ast::TrimWhereField::Trailing) => "rtrim",
                    _ => "btrim",
                };
                let mut arguments = self.all(&[expr])?;
                for characters in trim_what.iter().map(|what| &**what).chain(trim_characters.iter().flatten()) {
                    arguments.push(self.expression(characters)?);
                }
                self.call(name, arguments)?
            }
            Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut arguments = self.all(&[expr, overlay_what, overlay_from])?;
                if let Some(length) = overlay_for {
                    arguments.push(self.expression(length)?);
                }
                self.call("overlay", arguments)?
            }
            Expr::Case { operand, conditions, else_result, .. } => {
                let mut results = Vec::new();
                let mut chosen = None;
                for (at, when) in conditions.iter().enumerate() {
                    let holds = match operand {
                        Some(operand) => {
                            let operand = self.expression(operand)?;
                            self.call("=", vec![operand, self.expression(&when.condition)?])?.0.as_bool()
                        }
                        None => self.truth(&when.condition)?,
                    };
                    if holds == Some(true) {
                        chosen = chosen.or(Some(at));
                    }
                    results.push(self.expression(&when.result)?);
                }
                results.push(match else_result {
                    Some(otherwise) => self.expression(otherwise)?,
                    None => (Value::Null, Type::UNKNOWN),
                });
                let (mut values, kind) = self.common(results, "CASE")?;
                let at = chosen.unwrap_or(values.len() - 1);
                (values.swap_remove(at), Type::of(kind))
            }
            Expr::Array(array) => {
                let values = self.all(&array.elem.iter().collect::<Vec<_>>())?;
                if values.is_empty() {
                    return Err(SqlError::new(
                        SqlState::INDETERMINATE_DATATYPE,
                        "cannot determine type of empty array",
                    ));
                }
                self.array(values)?
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                let (value, ty) = self.expression(root)?;
                let bound = |expression: &Expr| {
                    let index = self.implicit(self.expression(expression)?, Kind::Int4)?;
                    Ok::<_, SqlError>(index.as_i64())
                };
                let (mut ranges, mut slices) = (Vec::new(), false);
                for access in access_chain {
                    match access {
                        AccessExpr::Subscript(Subscript::Index { index }) => {
                            let Some(index) = bound(index)? else { return Ok((Value::Null, ty)) };
                            ranges.push((None, Some(index)));
                        }
                        AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride: None }) => {
                            let lower = lower_bound.as_ref().map(&bound).transpose()?.flatten();
                            let upper = upper_bound.as_ref().map(&bound).transpose()?.flatten();
                            ranges.push((Some(lower.unwrap_or(i64::MIN)), upper));
                            slices = true;
                        }
                        other => return Err(unsupported(other)),
                    }
                }
                let element = ty.kind().element().ok_or_else(|| unsupported("this subscript"))?;
                match value {
                    Value::Array(array) if slices => {
                        // Among slices, one subscript is a slice from 1 to it.
                        let ranges: Vec<_> = ranges.iter().map(|(low, high)| (low.or(Some(1)), *high)).collect();
                        (Value::array(array.slice(&ranges)), ty)
                    }
                    Value::Array(array) => {
                        let subscripts: Vec<_> = ranges.iter().filter_map(|(_, index)| *index).collect();
                        (array.get(&subscripts).cloned().unwrap_or_default(), Type::of(element))
                    }
                    _ => (Value::Null, Type::of(element)),
                }
            }
            Expr::Function(function) => {
                let name = function.name.to_string().to_lowercase();
                let name = name.strip_prefix("pg_catalog.").unwrap_or(&name).trim_matches('"').to_owned();
                let mut arguments = Vec::new();
                if let FunctionArguments::List(list) = &function.args {
                    for argument in &list.args {
                        let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument else {
                            return Err(unsupported(argument));
                        };
                        arguments.push(self.expression(argument)?);
                    }
                }
                self.call(&name, arguments)?
            }
            other => return Err(unsupported(other)),
        })
    }

    fn like(
        &self,
        operator: &str,
        left: &Expr,
        pattern: &Expr,
        escape: Option<&ast::ValueWithSpan>,
    ) -> Result<Typed, SqlError> {
        let mut pattern = self.expression(pattern)?;
        if let Some(escape) = escape {
            pattern = self.call("like_escape", vec![pattern, literal(&escape.value)?])?;
        }
        self.call(operator, vec![self.expression(left)?, pattern])
    }

    fn quantified(&self, left: &Expr, operator: &BinaryOperator, right: &Expr, any: bool) -> Result<Typed, SqlError> {
        let left = self.expression(left)?;
        let mut right = self.expression(right)?;
        if right.1 == Type::UNKNOWN
            && let Some(array) = if left.1 == Type::UNKNOWN { Type::TEXT } else { left.1 }.to_array()
        {
            right = (self.implicit(right, array.kind())?, array);
        }
        let element = right.1.kind().element().ok_or_else(|| {
            SqlError::new(SqlState::WRONG_OBJECT_TYPE, "op ANY/ALL (array) requires array on right side")
        })?;
        let resolved = resolve(&operator.to_string(), &[left.1.kind(), element])?;
        let left = self.implicit(left, resolved.arguments[0])?;
        let array = match resolved.arguments[1].array() {
            Some(kind) => self.implicit(right, kind)?,
            None => right.0,
        };
        let quantify = if any { functions::any } else { functions::all };
        Ok(boolean(quantify(resolved.function, &left, &array, self.context)?))
    }

    fn array(&self, values: Vec<Typed>) -> Result<Typed, SqlError> {
        let (values, kind) = self.common(values, "ARRAY")?;
        if kind.is_array() {
            // Arrays of arrays are arrays of one dimension more; of empty ones, they are empty.
            if values.iter().all(|value| matches!(value, Value::Array(array) if array.values().is_empty())) {
                return Ok((values.into_iter().next().unwrap_or_default(), Type::of(kind)));
            }
            let mut inner = Vec::new();
            let mut dimensions = vec![Dimension { length: values.len() as u32, lower: 1 }];
            for value in &values {
                let Value::Array(array) = value else { return Err(unsupported("null arrays")) };
                if dimensions.len() > 1 && dimensions[1..] != *array.dimensions() {
                    return Err(SqlError::new(
                        SqlState::ARRAY_SUBSCRIPT_ERROR,
                        "multidimensional arrays must have array expressions with matching dimensions",
                    ));
                }
                dimensions.truncate(1);
                dimensions.extend_from_slice(array.dimensions());
                inner.extend_from_slice(array.values());
            }
            let element = kind.element().unwrap_or(kind);
            return Ok((Value::array(Array::with_dimensions(element, dimensions, inner)?), Type::of(kind)));
        }
        let array = kind.array().ok_or_else(|| unsupported("arrays of these"))?;
        Ok((Value::array(Array::new(kind, values)), Type::of(array)))
    }
}

fn number(digits: &str) -> Result<Typed, SqlError> {
    let value = text::number(digits)?;
    let ty = Type::of(value.kind().unwrap_or(Kind::Unknown));
    Ok((value, ty))
}

fn literal(value: &ast::Value) -> Result<Typed, SqlError> {
    Ok(match value {
        ast::Value::Number(digits, _) => number(digits)?,
        ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => {
            (Value::text(text.as_str()), Type::UNKNOWN)
        }
        ast::Value::UnicodeStringLiteral(text) => (Value::text(text.as_str()), Type::UNKNOWN),
        ast::Value::DollarQuotedString(text) => (Value::text(text.value.as_str()), Type::UNKNOWN),
        ast::Value::Boolean(truth) => (Value::Bool(*truth), Type::BOOL),
        ast::Value::Null => (Value::Null, Type::UNKNOWN),
        other => return Err(unsupported(other)),
    })
}
