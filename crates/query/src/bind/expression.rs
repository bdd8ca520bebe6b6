//! Expressions: from syntax to what is evaluated.

use freshet_sql::{
    SqlError, SqlState, Type, Value,
    functions::{
        self, SessionFunction, WORDS_OF_SESSIONS, check_row_length, common_kind, named, named::Place, resolve,
    },
    sign,
    types::{CastContext, Kind, text},
    work,
};
use sqlparser::ast::{
    self, BinaryOperator, DuplicateTreatment, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator,
    ValueWithSpan,
};

use super::{
    Binder, Bound, Scope, Stop,
    aggregate::{Aggregate, AggregateCall},
    name_of, not_supported, parts_of, syntax_error,
};
use crate::expression::{Comparison, Expression, Typed};

/// How deep expressions may be nested.
const DEEPEST: usize = 200;

pub(super) fn unknown(literal: impl AsRef<str>) -> Typed {
    Typed { expression: Expression::Constant(Value::text(literal.as_ref())), ty: Type::UNKNOWN }
}

pub(super) fn boolean(expression: Expression) -> Typed {
    Typed { expression, ty: Type::BOOL }
}

/// The signs of an operator.
fn signs(operator: &BinaryOperator) -> String {
    match operator {
        BinaryOperator::NotEq => "<>".to_owned(),
        BinaryOperator::PGCustomBinaryOperator(parts) => parts.last().cloned().unwrap_or_default(),
        BinaryOperator::Custom(signs) => signs.clone(),
        other => other.to_string(),
    }
}

impl Binder<'_> {
    /// Binds an expression.
    ///
    /// # Errors
    /// When it makes no sense, or is for general queries.
    pub fn expression(&self, expr: &Expr, scope: &Scope) -> Bound<Typed> {
        self.nested(expr, scope, 0)
    }

    /// Binds a condition.
    ///
    /// # Errors
    /// As for [`Binder::expression`]; 42804 when it is none.
    pub fn condition(&self, expr: &Expr, scope: &Scope, clause: &str) -> Bound<Expression> {
        self.nested_condition(expr, scope, clause, 0)
    }

    pub(super) fn nested_condition(&self, expr: &Expr, scope: &Scope, clause: &str, depth: usize) -> Bound<Expression> {
        self.truth(self.nested(expr, scope, depth)?, clause)
    }

    /// Something that is true or not.
    pub(super) fn truth(&self, typed: Typed, clause: &str) -> Bound<Expression> {
        if !matches!(typed.ty.kind(), Kind::Bool | Kind::Unknown) {
            let message = format!("argument of {clause} must be type boolean, not type {}", typed.ty.kind().sql_name());
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).into());
        }
        Ok(self.coerce(typed, Type::BOOL, CastContext::Implicit)?.expression)
    }

    pub(super) fn nested(&self, expr: &Expr, scope: &Scope, depth: usize) -> Bound<Typed> {
        let typed = self.any_nested(expr, scope, depth)?;
        // Some forms have an operand several times.
        let parts = typed.expression.parts();
        work::done(8 + parts)?;
        work::keep(parts * size_of::<Expression>())?;
        Ok(typed)
    }

    fn any_nested(&self, expr: &Expr, scope: &Scope, depth: usize) -> Bound<Typed> {
        if depth > DEEPEST {
            let message = format!("expressions are nested more than {DEEPEST} levels deep");
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message).into());
        }
        if let Some(grouping) = &scope.grouping
            && let Some(number) = grouping.groups.iter().position(|(written, _)| written == expr)
        {
            let expression = Expression::Column { source: grouping.source, column: number as u16 };
            return Ok(Typed { expression, ty: grouping.groups[number].1.ty });
        }
        let deeper = |expr: &Expr| self.nested(expr, scope, depth + 1);
        Ok(match expr {
            Expr::Identifier(name) if name.quote_style.is_none() && self.is_word_function(&name.value, scope) => {
                self.call(&name_of(name), Vec::new())?
            }
            Expr::Identifier(name) => self.column(std::slice::from_ref(name), scope)?,
            Expr::CompoundIdentifier(parts) => self.column(parts, scope)?,
            Expr::Nested(inner) => deeper(inner)?,
            Expr::Value(value) => self.literal(value)?,
            Expr::TypedString(typed) => {
                let ty = Type::of_literal(&typed.data_type)?;
                let literal = typed.value.value.clone().into_string().unwrap_or_default();
                self.coerce(unknown(literal), ty, CastContext::Explicit)?
            }
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => self.and([left, right], scope, depth)?,
            Expr::BinaryOp { left, op: BinaryOperator::Or, right } => self.or([left, right], scope, depth)?,
            Expr::BinaryOp { left, op, right } => match (&**left, &**right) {
                (Expr::Tuple(one), Expr::Tuple(other)) => self.rows(op, one, other, scope, depth)?,
                _ => {
                    let operator = signs(op);
                    self.operator(&operator, deeper(left)?, deeper(right)?)?
                }
            },
            Expr::UnaryOp { op, expr } => self.unary(op, expr, scope, depth)?,
            Expr::Cast { expr, data_type, array: false, format: None, .. } => {
                self.cast(expr, Type::from_sql(data_type)?, scope, depth)?
            }
            Expr::Between { expr, negated, low, high } => {
                let operand = deeper(expr)?;
                let (from, to) = if *negated { ("<", ">") } else { (">=", "<=") };
                let low = self.operator(from, operand.clone(), deeper(low)?)?.expression;
                let high = self.operator(to, operand, deeper(high)?)?.expression;
                let both = Box::new([low, high]);
                boolean(if *negated { Expression::Or(both) } else { Expression::And(both) })
            }
            Expr::InList { expr, list, negated } => match &**expr {
                Expr::Tuple(operands) => negate(self.in_rows(operands, list, scope, depth)?, *negated),
                _ => {
                    let operand = deeper(expr)?;
                    if operand.expression.is_volatile() {
                        return Err(Stop::General("IN of a volatile function"));
                    }
                    let list = list.iter().map(deeper).collect::<Bound<Vec<_>>>()?;
                    negate(self.in_list(operand, list, if *negated { "<>" } else { "=" })?, *negated)
                }
            },
            Expr::AnyOp { left, compare_op, right, .. } => {
                self.quantified(true, &signs(compare_op), deeper(left)?, right, scope, depth)?
            }
            Expr::AllOp { left, compare_op, right } => {
                self.quantified(false, &signs(compare_op), deeper(left)?, right, scope, depth)?
            }
            Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), scope, depth)?
            }
            Expr::Array(array) => self.array(array, scope, depth)?,
            Expr::CompoundFieldAccess { root, access_chain } => self.subscripts(root, access_chain, scope, depth)?,
            Expr::Function(function) => self.function(function, scope, depth)?,
            // In a query without FROM, what stands by itself is computed.
            Expr::Subquery(query) => self.first_value(query, depth == 0 && scope.sources.is_empty())?,
            Expr::InSubquery { expr, subquery, negated } => {
                if matches!(**expr, Expr::Tuple(_)) {
                    return Err(Stop::General("a subquery"));
                }
                let operand = deeper(expr)?;
                let among = self.quantified_over(true, "=", operand, self.first_list(subquery)?)?;
                negate(among.expression, *negated)
            }
            Expr::Exists { .. } => return Err(Stop::General("a subquery")),
            other => self.form(other, scope, depth)?,
        })
    }

    fn column(&self, parts: &[ast::Ident], scope: &Scope) -> Bound<Typed> {
        let found = match (scope.column(parts), parts) {
            (Err(error), [name]) if error.state == SqlState::UNDEFINED_COLUMN && scope.has_source(&name_of(name)) => {
                return Err(Stop::General("a whole row"));
            }
            (found, _) => found?,
        };
        if let Some(grouping) = &scope.grouping {
            // By another spelling it may be one of the groups.
            let same = |group: &Typed| {
                matches!((&group.expression, &found.expression),
                (Expression::Column { source: a, column: b }, Expression::Column { source: c, column: d }) if a == c && b == d)
            };
            if let Some(number) = grouping.groups.iter().position(|(_, group)| same(group)) {
                let expression = Expression::Column { source: grouping.source, column: number as u16 };
                return Ok(Typed { expression, ty: found.ty });
            }
            return Err(Stop::General("a column that is not grouped by"));
        }
        Ok(found)
    }

    /// `current_date` and the like, which are written without parentheses.
    fn is_word_function(&self, word: &str, scope: &Scope) -> bool {
        WORDS_OF_SESSIONS.iter().any(|known| known.eq_ignore_ascii_case(word)) && !scope.has(&ast::Ident::new(word))
    }

    pub(super) fn literal(&self, value: &ValueWithSpan) -> Bound<Typed> {
        Ok(match &value.value {
            ast::Value::Number(digits, _) => {
                let value = text::number(digits)?;
                let kind = value.kind().unwrap_or(Kind::Numeric);
                Typed { expression: Expression::Constant(value), ty: Type::of(kind) }
            }
            ast::Value::Boolean(truth) => boolean(Expression::Constant(Value::Bool(*truth))),
            ast::Value::Null => Typed { expression: Expression::NULL, ty: Type::UNKNOWN },
            ast::Value::Placeholder(name) => {
                let number = name.strip_prefix('$').and_then(|digits| digits.parse::<u16>().ok());
                let number = number.and_then(|number| number.checked_sub(1));
                let number = number.ok_or_else(|| {
                    SqlError::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter {name}"))
                })?;
                let mut parameters = self.parameters.borrow_mut();
                if parameters.len() <= usize::from(number) {
                    parameters.resize(usize::from(number) + 1, None);
                }
                let ty = parameters[usize::from(number)].unwrap_or(Type::UNKNOWN);
                let value = self.values.and_then(|values| values.get(usize::from(number)));
                let expression = match value.filter(|_| ty.kind() != Kind::Unknown) {
                    Some(value) => Expression::Constant(value.clone()),
                    None => Expression::Parameter(number),
                };
                Typed { expression, ty }
            }
            other @ (ast::Value::HexStringLiteral(_) | ast::Value::SingleQuotedByteStringLiteral(_)) => {
                return Err(not_supported(format!("the bit string {other}")).into());
            }
            other => match other.clone().into_string() {
                Some(literal) => unknown(literal),
                None => return Err(not_supported(format!("the literal {other}")).into()),
            },
        })
    }

    pub(super) fn is(&self, operand: Expression, truth: bool, negated: bool) -> Typed {
        negate(Expression::Is(Box::new(operand), truth), negated)
    }

    pub(super) fn distinct(&self, one: Typed, other: Typed) -> Bound<Typed> {
        let (mut both, _) = self.comparable(vec![one, other], "=")?;
        let other = both.pop().unwrap_or(Expression::NULL);
        let one = both.pop().unwrap_or(Expression::NULL);
        Ok(boolean(Expression::Distinct(Box::new((one, other)))))
    }

    /// The same values, all of one type.
    pub(crate) fn common(&self, values: Vec<Typed>, what: &str) -> Bound<(Vec<Expression>, Type)> {
        let kinds: Vec<Kind> = values.iter().map(|value| value.ty.kind()).collect();
        let kind = common_kind(&kinds, what)?;
        let kind = if kind == Kind::Unknown { Kind::Text } else { kind };
        // A modifier that all of them have stays.
        let first = values.first().map_or(Type::of(kind), |value| value.ty);
        let ty =
            if values.iter().all(|value| value.ty == first) && first.kind() == kind { first } else { Type::of(kind) };
        let coerced = values.into_iter().map(|value| Ok(self.coerce(value, ty, CastContext::Implicit)?.expression));
        Ok((coerced.collect::<Result<_, SqlError>>()?, ty))
    }

    /// The same values, all of one type, where the first is compared with each of the others.
    ///
    /// # Errors
    /// 42883 when there is no such operator for one of them.
    fn comparable(&self, values: Vec<Typed>, operator: &str) -> Bound<(Vec<Expression>, Type)> {
        let Some(first) = values.first().map(|value| value.ty.kind()) else { return Ok((Vec::new(), Type::BOOL)) };
        let kinds: Vec<Kind> = values.iter().map(|value| value.ty.kind()).collect();
        if common_kind(&kinds, operator).is_err() {
            kinds[1..].iter().try_for_each(|kind| resolve(operator, &[first, *kind]).map(drop))?;
            return Err(Stop::General("a comparison of values of several kinds"));
        }
        self.common(values, operator)
    }

    /// An operator between two values.
    pub(crate) fn operator(&self, name: &str, left: Typed, right: Typed) -> Bound<Typed> {
        let resolved = resolve(name, &[left.ty.kind(), right.ty.kind()])?;
        let [one, other] = resolved.arguments[..] else {
            return Err(SqlError::internal("an operator without two operands").into());
        };
        let left = self.argument(left, one)?;
        let right = self.argument(right, other)?;
        if resolved.function.strict && nothing_to_ask(&[&left, &right]) {
            return Ok(Typed { expression: Expression::NULL, ty: Type::of(resolved.result) });
        }
        if let Some(comparison) = Comparison::named(name) {
            if same_values(one, other) {
                return Ok(boolean(Expression::Compare(comparison, Box::new((left, right)))));
            }
            // As comparisons of one kind they can be looked up in an index.
            if let Some(kind) = wider(one, other) {
                let widen = |expression, from| {
                    let typed = Typed { expression, ty: Type::of(from) };
                    Ok::<_, SqlError>(self.coerce(typed, Type::of(kind), CastContext::Implicit)?.expression)
                };
                let operands = (widen(left, one)?, widen(right, other)?);
                return Ok(boolean(Expression::Compare(comparison, Box::new(operands))));
            }
        }
        Ok(Typed {
            expression: Expression::Call(resolved.function, Box::new([left, right])),
            ty: Type::of(resolved.result),
        })
    }

    fn argument(&self, argument: Typed, kind: Kind) -> Result<Expression, SqlError> {
        match kind {
            kind if argument.ty.kind() != kind && functions::shown(argument.ty.kind()) == kind => {
                Ok(self.coerce(argument, Type::of(kind), CastContext::Explicit)?.expression)
            }
            Kind::Any | Kind::AnyNonArray => Ok(self.settle(argument)?.expression),
            // Lengths do not matter to functions.
            _ if argument.ty.kind() == kind => Ok(argument.expression),
            _ => Ok(self.coerce(argument, Type::of(kind), CastContext::Implicit)?.expression),
        }
    }

    fn unary(&self, op: &UnaryOperator, expr: &Expr, scope: &Scope, depth: usize) -> Bound<Typed> {
        if *op == UnaryOperator::Not {
            return Ok(boolean(Expression::Not(Box::new(self.nested_condition(expr, scope, "NOT", depth + 1)?))));
        }
        if *op == UnaryOperator::Minus
            && let Some(value) = sign::negated(expr)
        {
            let value = value?;
            let kind = value.kind().unwrap_or(Kind::Numeric);
            return Ok(Typed { expression: Expression::Constant(value), ty: Type::of(kind) });
        }
        let operand = self.nested(expr, scope, depth + 1)?;
        self.call(&op.to_string(), vec![operand])
    }

    pub(super) fn like(
        &self,
        name: &str,
        operand: Typed,
        pattern: Typed,
        escape: Option<&ValueWithSpan>,
    ) -> Bound<Typed> {
        let pattern = match escape {
            Some(escape) => self.call("like_escape", vec![pattern, self.literal(escape)?])?,
            None => pattern,
        };
        self.operator(name, operand, pattern)
    }

    fn in_list(&self, operand: Typed, list: Vec<Typed>, operator: &str) -> Bound<Expression> {
        let mut all = vec![operand];
        all.extend(list);
        let (mut all, _) = self.comparable(all, operator)?;
        let list = all.split_off(1);
        let operand = all.pop().unwrap_or(Expression::NULL);
        Ok(Expression::In(Box::new(operand), list.into()))
    }

    fn tuple(&self, exprs: &[Expr], scope: &Scope, depth: usize) -> Bound<Vec<Typed>> {
        exprs.iter().map(|expr| self.nested(expr, scope, depth + 1)).collect()
    }

    fn in_rows(&self, operands: &[Expr], list: &[Expr], scope: &Scope, depth: usize) -> Bound<Expression> {
        let operands = self.tuple(operands, scope, depth)?;
        let mut columns: Vec<Vec<Typed>> = operands.into_iter().map(|operand| vec![operand]).collect();
        for row in list {
            let Expr::Tuple(row) = row else { return Err(Stop::General("a row compared with a value")) };
            let row = self.tuple(row, scope, depth)?;
            if row.len() != columns.len() {
                return Err(syntax_error("unequal number of entries in row expressions").into());
            }
            columns.iter_mut().zip(row).for_each(|(column, element)| column.push(element));
        }
        let mut operands = Vec::with_capacity(columns.len());
        let mut rows = vec![Vec::with_capacity(columns.len()); list.len()];
        for column in columns {
            let (mut column, _) = self.common(column, "IN")?;
            let elements = column.split_off(1);
            operands.extend(column);
            rows.iter_mut().zip(elements).for_each(|(row, element)| row.push(element));
        }
        let rows = rows.into_iter().map(Vec::into_boxed_slice).collect();
        Ok(Expression::InRows(operands.into(), rows))
    }

    /// `(a, b) = (c, d)` and its like.
    fn rows(&self, op: &BinaryOperator, one: &[Expr], other: &[Expr], scope: &Scope, depth: usize) -> Bound<Typed> {
        if one.len() != other.len() {
            return Err(syntax_error("unequal number of entries in row expressions").into());
        }
        check_row_length(signs(op).as_str(), one.len())?;
        let (one, other) = (self.tuple(one, scope, depth)?, self.tuple(other, scope, depth)?);
        let pairs = one.into_iter().zip(other);
        match op {
            BinaryOperator::Eq | BinaryOperator::NotEq => {
                let all = pairs.map(|(one, other)| Ok(self.operator("=", one, other)?.expression));
                let all = Expression::And(all.collect::<Bound<_>>()?);
                Ok(negate(all, *op == BinaryOperator::NotEq))
            }
            _ => {
                // (a, b) < (c, d) is a < c OR a = c AND b < d.
                let operator = signs(op);
                let Some(comparison) = Comparison::named(&operator) else {
                    return Err(Stop::General("an operator on rows"));
                };
                let strict = match comparison {
                    Comparison::LessOrEqual => "<",
                    Comparison::GreaterOrEqual => ">",
                    _ => operator.as_str(),
                };
                let mut pairs: Vec<_> = pairs.collect();
                let Some((one, other)) = pairs.pop() else { return Err(syntax_error("a row without columns").into()) };
                let mut holds = self.operator(&operator, one, other)?.expression;
                while let Some((one, other)) = pairs.pop() {
                    let same = self.operator("=", one.clone(), other.clone())?.expression;
                    let before = self.operator(strict, one, other)?.expression;
                    holds = Expression::Or(Box::new([before, Expression::And(Box::new([same, holds]))]));
                }
                Ok(boolean(holds))
            }
        }
    }

    fn quantified(
        &self,
        any: bool,
        name: &str,
        left: Typed,
        right: &Expr,
        scope: &Scope,
        depth: usize,
    ) -> Bound<Typed> {
        let array = match right {
            Expr::Subquery(query) => self.first_list(query)?,
            _ => self.nested(right, scope, depth + 1)?,
        };
        self.quantified_over(any, name, left, array)
    }

    fn quantified_over(&self, any: bool, name: &str, left: Typed, array: Typed) -> Bound<Typed> {
        let element = match array.ty.kind() {
            Kind::Unknown => left.ty.kind(),
            kind => kind.element().ok_or_else(|| {
                SqlError::new(SqlState::WRONG_OBJECT_TYPE, "op ANY/ALL (array) requires array on right side")
            })?,
        };
        let resolved = resolve(name, &[left.ty.kind(), element])?;
        if resolved.result != Kind::Bool {
            let message = "op ANY/ALL (array) requires operator to yield boolean";
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into());
        }
        let [one, other] = resolved.arguments[..] else {
            return Err(SqlError::internal("an operator without two operands").into());
        };
        let of = other.array().ok_or_else(|| not_supported(format!("an array of {}", other.sql_name())))?;
        let left = self.argument(left, one)?;
        let array = self.coerce(array, Type::of(of), CastContext::Implicit)?.expression;
        let operands = Box::new((left, array));
        Ok(boolean(Expression::Quantified { any, operator: resolved.function, operands }))
    }

    /// A function of values.
    pub(crate) fn call(&self, name: &str, arguments: Vec<Typed>) -> Bound<Typed> {
        match name {
            "coalesce" => {
                let (all, ty) = self.common(arguments, "COALESCE")?;
                return Ok(Typed { expression: Expression::Coalesce(all.into()), ty });
            }
            "nullif" if arguments.len() == 2 => {
                if arguments[0].expression.is_volatile() {
                    return Err(Stop::General("NULLIF of a volatile function"));
                }
                let same = self.operator("=", arguments[0].clone(), arguments[1].clone())?.expression;
                let value = self.settle(arguments.into_iter().next().unwrap_or_else(|| unknown("")))?;
                let branches = Box::new([(same, Expression::NULL)]);
                return Ok(Typed { expression: Expression::Case(branches, Box::new(value.expression)), ty: value.ty });
            }
            _ => {}
        }
        let kinds: Vec<Kind> = arguments.iter().map(|argument| argument.ty.kind()).collect();
        if let Some((declared, result, function)) = session_function(name, &kinds) {
            let arguments = arguments.into_iter().zip(declared);
            let arguments =
                arguments.map(|(argument, kind)| self.argument(argument, *kind)).collect::<Result<_, _>>()?;
            return Ok(Typed { expression: Expression::Session(function, arguments), ty: Type::of(result) });
        }
        if functions::named(name).is_empty() {
            return Err(Stop::General("a function that is not known here"));
        }
        let resolved = resolve(name, &kinds)?;
        let arguments = arguments.into_iter().zip(&resolved.arguments);
        let arguments: Box<[Expression]> =
            arguments.map(|(argument, kind)| self.argument(argument, *kind)).collect::<Result<_, _>>()?;
        if resolved.function.strict && nothing_to_ask(&arguments.iter().collect::<Vec<_>>()) {
            return Ok(Typed { expression: Expression::NULL, ty: Type::of(resolved.result) });
        }
        Ok(Typed { expression: Expression::Call(resolved.function, arguments), ty: Type::of(resolved.result) })
    }

    fn function(&self, function: &ast::Function, scope: &Scope, depth: usize) -> Bound<Typed> {
        if function.over.is_some() || !function.within_group.is_empty() || function.null_treatment.is_some() {
            return Err(Stop::General("a window"));
        }
        let parts = parts_of(&function.name)?;
        let name = match parts.as_slice() {
            [name] => name,
            [schema, name] if schema == "pg_catalog" => name,
            _ => return Err(Stop::General("a function of another schema")),
        };
        let (arguments, distinct) = match &function.args {
            FunctionArguments::None => (&[][..], false),
            FunctionArguments::Subquery(_) => return Err(Stop::General("a subquery")),
            FunctionArguments::List(list) => {
                if !list.clauses.is_empty() {
                    return Err(Stop::General("an ordered aggregate"));
                }
                (&list.args[..], list.duplicate_treatment == Some(DuplicateTreatment::Distinct))
            }
        };
        if let Some(aggregate) = Aggregate::named(name) {
            return self.aggregate(name, aggregate, function, arguments, distinct, scope);
        }
        if distinct || function.filter.is_some() {
            return Err(Stop::General("an aggregate that is not known here"));
        }
        let mut values = Vec::with_capacity(arguments.len());
        let mut names = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let (name, argument) = match argument {
                FunctionArg::Unnamed(argument) => (None, argument),
                FunctionArg::Named { name, arg, .. }
                | FunctionArg::ExprNamed { name: Expr::Identifier(name), arg, .. } => (Some(name_of(name)), arg),
                FunctionArg::ExprNamed { .. } => return Err(Stop::General("an argument named by an expression")),
            };
            let FunctionArgExpr::Expr(expr) = argument else { return Err(Stop::General("* in a call")) };
            values.push(self.nested(expr, scope, depth + 1)?);
            names.push(name);
        }
        if names.iter().any(Option::is_some) {
            let Some(places) = named::places(name, &names)? else {
                let kinds = values.iter().map(|value| value.ty.kind().sql_name());
                return Err(named::missing(name, &names, kinds).into());
            };
            let take = |place| match place {
                Place::Given(at) => Typed::clone(&values[at]),
                Place::Default(value) => {
                    let ty = value.kind().map_or(Type::UNKNOWN, Type::of);
                    Typed { expression: Expression::Constant(value), ty }
                }
            };
            values = places.into_iter().map(take).collect();
        }
        self.call(name, values)
    }

    fn aggregate(
        &self,
        name: &str,
        aggregate: Aggregate,
        function: &ast::Function,
        arguments: &[FunctionArg],
        distinct: bool,
        scope: &Scope,
    ) -> Bound<Typed> {
        let Some(grouping) = &scope.grouping else {
            let message = "aggregate functions are not allowed here".to_owned();
            return Err(SqlError::new(SqlState::GROUPING_ERROR, message).into());
        };
        // What it is of is a matter of the rows, not of the groups.
        let rows = Scope { sources: scope.sources.clone(), grouping: None };
        let (aggregate, argument) = match arguments {
            [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] if aggregate == Aggregate::Count => {
                (Aggregate::CountRows, None)
            }
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))] => (aggregate, Some(self.expression(expr, &rows)?)),
            _ => return Err(Stop::General("an aggregate of several values")),
        };
        let kind = argument.as_ref().map_or(Kind::Int8, |argument| argument.ty.kind());
        let (kind, ty) = aggregate.over(name, kind)?;
        let argument = argument.map(|argument| self.argument(argument, kind)).transpose()?;
        let filter = function.filter.as_deref().map(|filter| self.condition(filter, &rows, "FILTER")).transpose()?;
        let mut calls = grouping.calls.borrow_mut();
        calls.push(AggregateCall { aggregate, argument, kind, distinct, filter, ty });
        let column = (grouping.groups.len() + calls.len() - 1) as u16;
        Ok(Typed { expression: Expression::Column { source: grouping.source, column }, ty })
    }
}

/// Of two kinds of whole numbers, or of floating-point numbers, the wider one, which has all values
/// of the other.
fn wider(one: Kind, other: Kind) -> Option<Kind> {
    const WIDER: &[&[Kind]] = &[&[Kind::Int2, Kind::Int4, Kind::Int8], &[Kind::Float4, Kind::Float8]];
    WIDER.iter().find_map(|kinds| {
        let place = |kind| kinds.iter().position(|other| *other == kind);
        Some(kinds[place(one)?.max(place(other)?)])
    })
}

/// Whether values of both kinds are represented in the same way, so that they can be compared as
/// they are.
fn same_values(one: Kind, other: Kind) -> bool {
    let plain = |kind| if matches!(kind, Kind::Varchar | Kind::Name | Kind::Unknown) { Kind::Text } else { kind };
    plain(one) == plain(other) && !matches!(one, Kind::Json | Kind::Any | Kind::AnyElement | Kind::AnyArray)
}

/// Whether something that is null when one of its arguments is has a null that is written out,
/// beside something that is read: then it is null, and what else it has is not computed.
fn nothing_to_ask(arguments: &[&Expression]) -> bool {
    arguments.iter().any(|argument| matches!(argument, Expression::Constant(Value::Null)))
        && arguments.iter().any(|argument| !argument.is_before(0))
}

fn negate(expression: Expression, negated: bool) -> Typed {
    boolean(if negated { Expression::Not(Box::new(expression)) } else { expression })
}

/// A function of the session whose arguments these can become.
fn session_function(name: &str, kinds: &[Kind]) -> Option<(&'static [Kind], Kind, SessionFunction)> {
    SessionFunction::named(name).find(|(declared, ..)| {
        declared.len() == kinds.len()
            && declared.iter().zip(kinds).all(|(declared, given)| {
                declared == given
                    || *given == Kind::Unknown
                    || freshet_sql::types::implicitly(*given, *declared)
                    || (declared.is_object_id() && given.is_object_id())
            })
    })
}
