//! Operators: comparison, logic, patterns, lists.

use datafusion_common::{ScalarValue, tree_node::TreeNode as _};
use datafusion_expr::{Expr, Operator, expr::Like};
use freshet_sql::{
    Kind, SqlError, SqlState, Type, Value,
    functions::{check_row_length, resolve},
};
use sqlparser::ast::{self, BinaryOperator};

use super::{
    Binder,
    expression::{all_of, any_of, balanced, binary, case_of, row},
    typed::{Typed, nothing_to_ask},
};
use crate::{
    error::unsupported,
    function::{Outer, RowFunction, Work, called},
    key::comparable,
};

/// The name that an operator has among functions.
pub(super) fn operator_name(op: &BinaryOperator) -> Result<String, SqlError> {
    Ok(match op {
        BinaryOperator::PGCustomBinaryOperator(parts) => match parts.as_slice() {
            [name] => name.clone(),
            [schema, name] if schema.eq_ignore_ascii_case("pg_catalog") => name.clone(),
            _ => {
                return Err(SqlError::new(
                    SqlState::UNDEFINED_FUNCTION,
                    format!("operator does not exist: {}", parts.join(".")),
                ));
            }
        },
        BinaryOperator::PGExp | BinaryOperator::BitwiseXor => "^".to_owned(),
        BinaryOperator::PGBitwiseXor => "#".to_owned(),
        op => op.to_string(),
    })
}

fn comparison(name: &str) -> Option<Operator> {
    Some(match name {
        "=" => Operator::Eq,
        "<>" | "!=" => Operator::NotEq,
        "<" => Operator::Lt,
        "<=" => Operator::LtEq,
        ">" => Operator::Gt,
        ">=" => Operator::GtEq,
        _ => return None,
    })
}

impl Binder<'_> {
    pub(super) fn binary(
        &mut self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
    ) -> Result<Typed, SqlError> {
        let logic = match op {
            BinaryOperator::And => Some(("AND", Operator::And)),
            BinaryOperator::Or => Some(("OR", Operator::Or)),
            _ => None,
        };
        if let Some((name, operator)) = logic {
            return self.logic(&connected(left, op, right), name, operator);
        }
        let name = operator_name(op)?;
        if let (Some(left), Some(right)) = (row(left), row(right)) {
            return self.compare_rows(&name, left, right);
        }
        if matches!(name.as_str(), "=" | "<>" | "!=") && self.are_whole_rows(left, right)? {
            return self.equal_whole_rows(left, right, name != "=");
        }
        // `x = (SELECT a, b)` and its like have rows on one side only, and are refused as such.
        let left = self.expression(left)?;
        let right = self.expression(right)?;
        self.operator(&name, left, right)
    }

    /// `a AND b AND ...`, or the same with OR.
    fn logic(&mut self, exprs: &[&ast::Expr], name: &str, operator: Operator) -> Result<Typed, SqlError> {
        let mut conditions = Vec::with_capacity(exprs.len());
        for expr in exprs {
            let typed = self.expression(expr)?;
            conditions.push(self.condition(typed, name)?.expr);
        }
        // One that decides is enough, where the others are not made of constants alone.
        let decides = Typed::literal(&Value::Bool(operator == Operator::Or), Type::BOOL)?;
        let reads = |expr: &Expr| *expr == decides.expr || !expr.column_refs().is_empty();
        if conditions.contains(&decides.expr) && conditions.iter().all(reads) {
            return Ok(decides);
        }
        let expr = balanced(conditions, operator).ok_or_else(|| SqlError::internal("no conditions"))?;
        Ok(Typed::new(expr, Type::BOOL))
    }

    fn are_whole_rows(&mut self, left: &ast::Expr, right: &ast::Expr) -> Result<bool, SqlError> {
        Ok(self.compare_whole_rows(left, right)?.is_some())
    }

    /// `t = u`: without one of the rows there is no answer.
    fn equal_whole_rows(&mut self, left: &ast::Expr, right: &ast::Expr, negated: bool) -> Result<Typed, SqlError> {
        let rows = self.compare_whole_rows(left, right)?;
        let present = rows.into_iter().flat_map(|(one, two)| one.present.into_iter().chain(two.present));
        let there = all_of(present.map(|present| Expr::IsNotNull(Box::new(present))))?;
        let distinct = self.distinct(left, right, negated)?;
        let null = Typed::literal(&Value::Null, Type::BOOL)?;
        Ok(case_of(std::iter::once((there.expr, distinct.expr)), null.expr, Type::BOOL))
    }

    /// Any operator on values.
    pub(super) fn operator(&mut self, name: &str, left: Typed, right: Typed) -> Result<Typed, SqlError> {
        match comparison(name) {
            Some(_) => self.compare(name, left, right),
            None if matches!(name, "~~" | "!~~") => self.like_of(name, left, right),
            None => self.call(name, vec![left, right]),
        }
    }

    /// One of the six comparisons.
    ///
    /// # Errors
    /// 42883 when the types do not compare.
    pub(super) fn compare(&mut self, name: &str, left: Typed, right: Typed) -> Result<Typed, SqlError> {
        let name = if name == "!=" { "<>" } else { name };
        let operator = comparison(name).ok_or_else(|| SqlError::internal("no comparison"))?;
        let resolved = resolve(name, &[left.kind(), right.kind()])?;
        let [one, two] = resolved.arguments.as_slice() else {
            return Err(SqlError::internal("a comparison takes two arguments"));
        };
        let left = if left.kind() == *one { left } else { self.coerce(left, Type::of(*one))? };
        let right = if right.kind() == *two { right } else { self.coerce(right, Type::of(*two))? };
        if nothing_to_ask(&[&left, &right]) {
            return Typed::literal(&Value::Null, Type::BOOL);
        }
        if let (Some(one), Some(two)) = (left.as_value(), right.as_value()) {
            let value = resolved.function.call(&[one, two], self.context)?;
            return Typed::literal(&value, Type::BOOL);
        }
        match self.same_kind(left, right)? {
            Ok((left, right)) => {
                let (left, right) = comparable(left.pair(), right.pair());
                Ok(Typed::new(binary(left, operator, right), Type::BOOL))
            }
            Err((left, right)) => {
                let arguments = vec![left.pair(), right.pair()];
                Ok(Typed::new(RowFunction::call(Work::Call(resolved.function), arguments, Type::BOOL), Type::BOOL))
            }
        }
    }

    /// The two as values of one kind, whose arrays compare; or as they were, if none exists.
    #[expect(clippy::type_complexity, reason = "what is not changed is given back")]
    fn same_kind(&mut self, left: Typed, right: Typed) -> Result<Result<(Typed, Typed), (Typed, Typed)>, SqlError> {
        let (one, two) = (left.kind(), right.kind());
        let text = |kind: Kind| matches!(kind, Kind::Text | Kind::Varchar | Kind::Name);
        if one == two && one == Kind::Numeric && left.ty != right.ty {
            // A literal takes the scale of what it is compared with, if it has no more digits.
            let (left, right) = (rescaled(left, &right)?, right);
            let right = rescaled(right, &left)?;
            return Ok(Ok((left, right)));
        }
        if one == two || text(one) && text(two) || one.is_object_id() && two.is_object_id() {
            return Ok(Ok((left, right)));
        }
        let integer = |kind: Kind| matches!(kind, Kind::Int2 | Kind::Int4 | Kind::Int8);
        if integer(one) && integer(two) {
            // A literal is taken as what it is compared with, so that the column stays as it is.
            if let Some(left) = narrowed(&left, two) {
                return Ok(Ok((left, right)));
            }
            if let Some(right) = narrowed(&right, one) {
                return Ok(Ok((left, right)));
            }
            let wide = Type::of(wider(one, two));
            return Ok(Ok((self.coerce(left, wide)?, self.coerce(right, wide)?)));
        }
        let float = |kind: Kind| matches!(kind, Kind::Float4 | Kind::Float8);
        if float(one) && float(two) {
            return Ok(Ok((self.coerce(left, Type::FLOAT8)?, self.coerce(right, Type::FLOAT8)?)));
        }
        Ok(Err((left, right)))
    }

    /// `(a, b) = (c, d)`, and by the first difference, `(a, b) < (c, d)`.
    fn compare_rows(&mut self, name: &str, left: &[ast::Expr], right: &[ast::Expr]) -> Result<Typed, SqlError> {
        let (left, right) = (self.expressions(left)?, self.expressions(right)?);
        self.compare_row_values(name, left, right)
    }

    pub(super) fn compare_row_values(
        &mut self,
        name: &str,
        left: Vec<Typed>,
        right: Vec<Typed>,
    ) -> Result<Typed, SqlError> {
        if left.len() != right.len() {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "unequal number of entries in row expressions"));
        }
        check_row_length(name, left.len())?;
        for typed in left.iter().chain(&right) {
            // It is used twice or three times.
            self.makes_copy(&typed.expr)?;
        }
        let pairs = || left.iter().cloned().zip(right.iter().cloned());
        match name {
            "=" | "<>" | "!=" => {
                let mut tests = Vec::with_capacity(left.len());
                for (left, right) in pairs() {
                    tests.push(self.compare(name, left, right)?.expr);
                }
                if name == "=" { all_of(tests.into_iter()) } else { any_of(tests.into_iter()) }
            }
            "<" | "<=" | ">" | ">=" => {
                // By the first pair that differs; only the last pair may be equal.
                let mut result: Option<Expr> = None;
                for (left, right) in pairs().collect::<Vec<_>>().into_iter().rev() {
                    let operator = if result.is_none() { name } else { &name[..1] };
                    let here = self.compare(operator, left.clone(), right.clone())?.expr;
                    result = Some(match result {
                        None => here,
                        Some(rest) => {
                            let equal = self.compare("=", left, right)?.expr;
                            binary(here, Operator::Or, binary(equal, Operator::And, rest))
                        }
                    });
                }
                any_of(result.into_iter())
            }
            _ => Err(unsupported(format_args!("the operator {name} on rows"))),
        }
    }

    pub(super) fn distinct(&mut self, left: &ast::Expr, right: &ast::Expr, negated: bool) -> Result<Typed, SqlError> {
        let operator = if negated { Operator::IsDistinctFrom } else { Operator::IsNotDistinctFrom };
        if let (Some(left), Some(right)) = (row(left), row(right)) {
            let (left, right) = (self.expressions(left)?, self.expressions(right)?);
            if left.len() != right.len() {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "unequal number of entries in row expressions"));
            }
            let mut tests = Vec::new();
            for (left, right) in left.into_iter().zip(right) {
                tests.push(self.distinct_values(left, right, operator)?.expr);
            }
            return if negated { any_of(tests.into_iter()) } else { all_of(tests.into_iter()) };
        }
        if let Some((left, right)) = self.compare_whole_rows(left, right)? {
            let mut tests = Vec::with_capacity(left.fields.len());
            for ((_, left), (_, right)) in left.fields.into_iter().zip(right.fields) {
                tests.push(self.distinct_values(left, right, operator)?.expr);
            }
            return if negated { any_of(tests.into_iter()) } else { all_of(tests.into_iter()) };
        }
        let (left, right) = (self.expression(left)?, self.expression(right)?);
        self.distinct_values(left, right, operator)
    }

    fn distinct_values(&mut self, left: Typed, right: Typed, operator: Operator) -> Result<Typed, SqlError> {
        let resolved = resolve("=", &[left.kind(), right.kind()])?;
        let (left, right) = match resolved.arguments.as_slice() {
            [one, two] => (self.coerce(left, Type::of(*one))?, self.coerce(right, Type::of(*two))?),
            _ => return Err(SqlError::internal("a comparison takes two arguments")),
        };
        let (left, right) = match self.same_kind(left, right)? {
            Ok(pair) => pair,
            // Dates and timestamps: the later in the alphabet takes both.
            Err((left, right)) => {
                let wide = if left.kind() == Kind::Timestamptz || right.kind() == Kind::Timestamptz {
                    Type::TIMESTAMPTZ
                } else {
                    Type::TIMESTAMP
                };
                (self.coerce(left, wide)?, self.coerce(right, wide)?)
            }
        };
        let (left, right) = comparable(left.pair(), right.pair());
        Ok(Typed::new(binary(left, operator, right), Type::BOOL))
    }

    pub(super) fn between(
        &mut self,
        expr: &ast::Expr,
        negated: bool,
        low: &ast::Expr,
        high: &ast::Expr,
    ) -> Result<Typed, SqlError> {
        let value = self.expression(expr)?;
        let (low, high) = (self.expression(low)?, self.expression(high)?);
        let (from, to, op) = if negated { ("<", ">", Operator::Or) } else { (">=", "<=", Operator::And) };
        let from = self.compare(from, value.clone(), low)?;
        let to = self.compare(to, value, high)?;
        Ok(Typed::new(binary(from.expr, op, to.expr), Type::BOOL))
    }

    pub(super) fn in_list(&mut self, expr: &ast::Expr, list: &[ast::Expr], negated: bool) -> Result<Typed, SqlError> {
        if let Some(left) = row(expr) {
            let left = self.expressions(left)?;
            let mut tests = Vec::with_capacity(list.len());
            for element in list {
                let Some(right) = row(element) else {
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, "unequal number of entries in row expressions"));
                };
                let right = self.expressions(right)?;
                tests.push(self.compare_row_values("=", left.clone(), right)?.expr);
            }
            let any = any_of(tests.into_iter())?;
            return Ok(if negated { not(any) } else { any });
        }
        let value = self.expression(expr)?;
        let list = self.expressions(list)?;
        self.among(value, list, negated)
    }

    /// `value IN (list)` for a volatile value: it is computed once for all constants, and again for
    /// each element that depends on the row.
    fn volatile_among(&mut self, value: Typed, list: Vec<Typed>) -> Result<Typed, SqlError> {
        let (constants, others): (Vec<_>, Vec<_>) =
            list.into_iter().partition(|element| element.expr.column_refs().is_empty());
        let mut tests = Vec::with_capacity(others.len() + 1);
        if !constants.is_empty() {
            let any = self.held(value.clone(), |binder, value| binder.among(value, constants, false))?;
            tests.push(any.expr);
        }
        for element in others {
            tests.push(self.compare("=", value.clone(), element)?.expr);
        }
        any_of(tests.into_iter())
    }

    /// `value IN (list)`
    pub(super) fn among(&mut self, value: Typed, list: Vec<Typed>, negated: bool) -> Result<Typed, SqlError> {
        // All are compared as values of one type if they have one in common.
        let types: Vec<Type> = std::iter::once(value.ty).chain(list.iter().map(|typed| typed.ty)).collect();
        let (value, list) = match self.common_type(&types, "IN") {
            Ok(common) if common.kind() != value.kind() || value.is_unknown() => {
                let only_literals = list.iter().all(|typed| narrowed(typed, value.kind()).is_some());
                if only_literals {
                    let list = list.iter().filter_map(|typed| narrowed(typed, value.kind())).collect();
                    (value, list)
                } else {
                    let value = self.coerce(value, Type::of(common.kind()))?;
                    (value, list)
                }
            }
            _ => (value, list),
        };
        if value.expr.is_volatile() {
            let any = self.volatile_among(value, list)?;
            return Ok(if negated { not(any) } else { any });
        }
        let mut tests = Vec::with_capacity(list.len());
        for element in list {
            tests.push(self.compare("=", value.clone(), element)?.expr);
        }
        let expr = in_set(&tests).map_or_else(|| any_of(tests.into_iter()), |expr| Ok(Typed::new(expr, Type::BOOL)))?;
        Ok(if negated { not(expr) } else { expr })
    }

    pub(super) fn like(
        &mut self,
        expr: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ast::ValueWithSpan>,
        name: &str,
    ) -> Result<Typed, SqlError> {
        let value = self.expression(expr)?;
        let mut pattern = self.expression(pattern)?;
        if let Some(escape) = escape {
            let escape = self.expression(&ast::Expr::Value(escape.clone()))?;
            pattern = self.call("like_escape", vec![pattern, escape])?;
        }
        self.operator(name, value, pattern)
    }

    /// LIKE: by whole arrays when its pattern is known.
    fn like_of(&mut self, name: &str, value: Typed, pattern: Typed) -> Result<Typed, SqlError> {
        let like = self.call(name, vec![value.clone(), pattern.clone()])?;
        let text = matches!(value.kind(), Kind::Text | Kind::Varchar | Kind::Name);
        let literal = match (pattern.kind(), pattern.as_value()) {
            (Kind::Unknown | Kind::Text | Kind::Varchar, Some(Value::Text(literal))) => literal,
            _ => return Ok(like),
        };
        // A backslash at the end, or one that does not escape anything, is left to the function.
        if !text || literal.contains('\\') || like.as_value().is_some() {
            return Ok(like);
        }
        let pattern = Expr::Literal(ScalarValue::Utf8View(Some(literal.to_string())), None);
        let like = Like::new(name == "!~~", Box::new(value.expr), Box::new(pattern), None, false);
        Ok(Typed::new(Expr::Like(like), Type::BOOL))
    }

    /// `left operator ANY (right)`, `left operator ALL (right)`
    pub(super) fn quantified(
        &mut self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        all: bool,
    ) -> Result<Typed, SqlError> {
        self.quantified_by(left, &operator_name(op)?, right, all)
    }

    pub(super) fn quantified_by(
        &mut self,
        left: &ast::Expr,
        name: &str,
        right: &ast::Expr,
        all: bool,
    ) -> Result<Typed, SqlError> {
        if let Some(query) = subquery_of(right) {
            return self.quantified_subquery(left, name, query, all);
        }
        let left = self.expression(left)?;
        // A list that is written out is one of IN.
        if let ast::Expr::Array(array) = inner(right)
            && !array.elem.iter().any(|element| matches!(element, ast::Expr::Array(_)))
        {
            let list = self.expressions(&array.elem)?;
            return self.quantified_list(left, name, list, all);
        }
        let right = self.expression(right)?;
        let right = self.array_for(&left, right)?;
        if let Some(Value::Array(array)) = right.as_value() {
            let element = Type::of(array.element());
            let list = array.values().iter().map(|v| Typed::literal(v, element)).collect::<Result<Vec<_>, _>>()?;
            return self.quantified_list(left, name, list, all);
        }
        let Some(element) = right.ty.element() else {
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, "op ANY/ALL (array) requires array on right side"));
        };
        let resolved = resolve(name, &[left.kind(), element.kind()])?;
        if resolved.result != Kind::Bool {
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                "op ANY/ALL (array) requires operator to yield boolean",
            ));
        }
        let [one, two] = resolved.arguments.as_slice() else {
            return Err(SqlError::internal("an operator takes two arguments"));
        };
        let left = self.coerce(left, Type::of(*one))?;
        let elements = Type::of(*two).to_array().unwrap_or(right.ty);
        let right = self.coerce(right, elements)?;
        let work = if all { Work::All(resolved.function) } else { Work::Any(resolved.function) };
        Ok(Typed::new(RowFunction::call(work, vec![left.pair(), right.pair()], Type::BOOL), Type::BOOL))
    }

    /// What stands right of ANY: a literal or parameter is an array of what stands left.
    fn array_for(&mut self, left: &Typed, right: Typed) -> Result<Typed, SqlError> {
        if !right.is_unknown() {
            return Ok(right);
        }
        let element = if left.is_unknown() { Kind::Text } else { left.kind() };
        let array = element.array().ok_or_else(|| unsupported(format_args!("an array of {element}")))?;
        self.coerce(right, Type::of(array))
    }

    fn quantified_list(&mut self, left: Typed, name: &str, list: Vec<Typed>, all: bool) -> Result<Typed, SqlError> {
        if left.expr.is_volatile() {
            return self.held(left, |binder, left| binder.quantified_list(left, name, list, all));
        }
        if name == "=" && !all && !list.is_empty() {
            return self.among(left, list, false);
        }
        if name == "<>" && all && !list.is_empty() {
            return self.among(left, list, true);
        }
        let mut tests = Vec::with_capacity(list.len());
        for element in list {
            let test = self.operator(name, left.clone(), element)?;
            tests.push(self.condition(test, "ANY/ALL")?.expr);
        }
        if all { all_of(tests.into_iter()) } else { any_of(tests.into_iter()) }
    }
}

/// What ANDs or ORs connect, in the order in which it was written. They may be nested thousands
/// deep.
fn connected<'a>(left: &'a ast::Expr, op: &BinaryOperator, right: &'a ast::Expr) -> Vec<&'a ast::Expr> {
    let mut found = Vec::new();
    let mut waiting = vec![right, left];
    while let Some(expr) = waiting.pop() {
        match expr {
            ast::Expr::BinaryOp { left, op: inner, right } if inner == op => waiting.extend([right.as_ref(), left]),
            expr => found.push(expr),
        }
    }
    found
}

fn inner(expr: &ast::Expr) -> &ast::Expr {
    match expr {
        ast::Expr::Nested(nested) => inner(nested),
        expr => expr,
    }
}

fn subquery_of(expr: &ast::Expr) -> Option<&ast::Query> {
    match inner(expr) {
        ast::Expr::Subquery(query) => Some(query),
        _ => None,
    }
}

pub(super) fn not(typed: Typed) -> Typed {
    Typed::new(Expr::Not(Box::new(typed.expr)), Type::BOOL)
}

/// Equalities of one expression with literals as a set.
fn in_set(tests: &[Expr]) -> Option<Expr> {
    if tests.len() < 2 {
        return None;
    }
    let mut common: Option<&Expr> = None;
    let mut list = Vec::with_capacity(tests.len());
    for test in tests {
        let Expr::BinaryExpr(test) = test else { return None };
        if common.is_some_and(|common| *common != *test.left) || test.op != Operator::Eq {
            return None;
        }
        // A set is made once; what comes from outside of a subquery differs from row to row there.
        if test.right.exists(|part| Ok(called::<Outer>(part).is_some())).unwrap_or(true) {
            return None;
        }
        common = Some(&test.left);
        list.push(test.right.as_ref().clone());
    }
    Some(common?.clone().in_list(list, false))
}

/// A literal of whole numbers as one of another width, if it fits.
pub(super) fn narrowed(typed: &Typed, to: Kind) -> Option<Typed> {
    if !matches!(typed.kind(), Kind::Int2 | Kind::Int4 | Kind::Int8) {
        return None;
    }
    let number = typed.as_value()?.as_i64()?;
    let value = match to {
        Kind::Int2 => Value::Int2(number.try_into().ok()?),
        Kind::Int4 => Value::Int4(number.try_into().ok()?),
        Kind::Int8 => Value::Int8(number),
        _ => return None,
    };
    Typed::literal(&value, Type::of(to)).ok()
}

/// A number's literal with the scale of what it is compared with, if it has no more digits.
fn rescaled(literal: Typed, with: &Typed) -> Result<Typed, SqlError> {
    match (literal.as_value(), with.ty.precision()) {
        (Some(Value::Numeric(number)), Some(precision)) if !matches!(with.expr, Expr::Literal(..)) => {
            let scale = precision.short_scale().map(u32::from);
            match scale.and_then(|scale| number.rescaled(scale)) {
                Some(rescaled) if rescaled.small().is_some() && rescaled == number => {
                    Typed::literal(&Value::Numeric(rescaled), with.ty)
                }
                _ => Ok(literal),
            }
        }
        _ => Ok(literal),
    }
}

/// The wider of two kinds of whole numbers.
fn wider(one: Kind, two: Kind) -> Kind {
    match (one, two) {
        (Kind::Int8, _) | (_, Kind::Int8) => Kind::Int8,
        (Kind::Int4, _) | (_, Kind::Int4) => Kind::Int4,
        _ => Kind::Int2,
    }
}
