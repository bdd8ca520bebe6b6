//! Expressions: from syntax to what DataFusion evaluates, with PostgreSQL's types.

use datafusion_common::{
    ScalarValue,
    tree_node::{TreeNode, TreeNodeRecursion},
};
use datafusion_expr::{
    Expr, Operator,
    expr::{BinaryExpr, Case},
};
use freshet_sql::{
    Kind, SqlError, SqlState, Type, Value,
    functions::{WORDS_OF_SESSIONS, check_collatable},
    sign,
    types::{CastContext, implicitly, text},
    work,
};
use sqlparser::ast::{
    self, AccessExpr, CastFormat, CeilFloorKind, DateTimeField, Subscript, TrimWhereField, UnaryOperator,
};

use super::{
    Binder, EXPRESSION, name,
    scope::{missing_column, missing_table},
    typed::Typed,
};
use crate::{
    array::OPEN,
    error::{to_sql, unsupported},
    function::{Parameter, RowFunction, Work},
};

impl Binder<'_> {
    /// An expression.
    ///
    /// # Errors
    /// Whatever there is to say against it.
    pub(super) fn expression(&mut self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        let typed = self.deeper(|binder| binder.any_expression(expr))?;
        // Some forms have an operand several times.
        let mut parts = 0;
        let counted = typed.expr.apply(|_| {
            parts += 1;
            Ok(TreeNodeRecursion::Continue)
        });
        counted.map_err(to_sql)?;
        work::done(parts)?;
        self.kept.grown_to(self.made + parts * EXPRESSION)?;
        Ok(typed)
    }

    fn any_expression(&mut self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        use ast::Expr as E;
        // Frames of this function are many: what it does itself is little.
        if self.is_grouped(expr) {
            return self.grouped_alike(expr);
        }
        match expr {
            E::Nested(inner) => self.expression(inner),
            E::Value(value) => self.literal(&value.value),
            E::Identifier(ident) => self.named(expr, ident),
            E::CompoundIdentifier(idents) => self.compound(idents),
            E::CompoundFieldAccess { root, access_chain } => self.access(root, access_chain),
            E::Collate { expr, collation } => self.collate(expr, collation),
            E::Cast { expr, data_type, format, array: false, kind } => {
                if format.as_ref().is_some_and(|format: &CastFormat| !format.to_string().is_empty()) {
                    return Err(unsupported("CAST with FORMAT"));
                }
                if !matches!(kind, ast::CastKind::Cast | ast::CastKind::DoubleColon) {
                    return Err(unsupported("this form of CAST"));
                }
                self.explicit_cast(expr, data_type)
            }
            E::TypedString(typed) => {
                let ty = Type::of_literal(&typed.data_type)?;
                let literal = self.literal(&typed.value.value)?;
                self.cast(literal, ty, CastContext::Explicit)
            }
            E::Interval(interval) => self.interval(interval),
            E::IsTrue(inner) => self.truth(inner, "IS TRUE", Expr::IsTrue),
            E::IsNotTrue(inner) => self.truth(inner, "IS NOT TRUE", Expr::IsNotTrue),
            E::IsFalse(inner) => self.truth(inner, "IS FALSE", Expr::IsFalse),
            E::IsNotFalse(inner) => self.truth(inner, "IS NOT FALSE", Expr::IsNotFalse),
            E::IsUnknown(inner) => self.truth(inner, "IS UNKNOWN", Expr::IsUnknown),
            E::IsNotUnknown(inner) => self.truth(inner, "IS NOT UNKNOWN", Expr::IsNotUnknown),
            E::IsNull(inner) => self.null_test(inner, true),
            E::IsNotNull(inner) => self.null_test(inner, false),
            E::IsDistinctFrom(left, right) => self.distinct(left, right, true),
            E::IsNotDistinctFrom(left, right) => self.distinct(left, right, false),
            E::Between { expr, negated, low, high } => self.between(expr, *negated, low, high),
            E::InList { expr, list, negated } => self.in_list(expr, list, *negated),
            E::InSubquery { expr, subquery, negated } => self.in_subquery(expr, subquery, *negated),
            E::Exists { subquery, negated } => self.exists(subquery, *negated),
            E::Subquery(query) => self.scalar_subquery(query),
            E::AnyOp { left, compare_op, right, .. } => self.quantified(left, compare_op, right, false),
            E::AllOp { left, compare_op, right } => self.quantified(left, compare_op, right, true),
            E::Like { negated, any, expr, pattern, escape_char } => {
                let name = if *negated { "!~~" } else { "~~" };
                match any {
                    true => self.quantified_by(expr, name, pattern, false),
                    false => self.like(expr, pattern, escape_char.as_ref(), name),
                }
            }
            E::ILike { negated, any, expr, pattern, escape_char } => {
                let name = if *negated { "!~~*" } else { "~~*" };
                match any {
                    true => self.quantified_by(expr, name, pattern, false),
                    false => self.like(expr, pattern, escape_char.as_ref(), name),
                }
            }
            E::SimilarTo { negated, expr, pattern, escape_char } => {
                self.similar(expr, pattern, escape_char.as_ref(), if *negated { "!~" } else { "~" })
            }
            E::BinaryOp { left, op, right } => self.binary(left, op, right),
            E::UnaryOp { op, expr } => self.unary(*op, expr),
            E::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            E::Function(function) => self.function(function),
            E::Extract { field, expr, .. } => {
                let field = Typed::literal(&Value::text(field_name(field)), Type::TEXT)?;
                let from = self.expression(expr)?;
                self.call("extract", vec![field, from])
            }
            E::AtTimeZone { timestamp, time_zone } => {
                let zone = self.expression(time_zone)?;
                let time = self.expression(timestamp)?;
                self.call("timezone", vec![zone, time])
            }
            E::Ceil { expr, field } => self.rounded("ceil", expr, field),
            E::Floor { expr, field } => self.rounded("floor", expr, field),
            E::Position { expr, r#in } => {
                let (needle, text) = (self.expression(expr)?, self.expression(r#in)?);
                self.call("position", vec![text, needle])
            }
            E::Substring { expr, substring_from, substring_for, .. } => {
                self.substring(expr, substring_from.as_deref(), substring_for.as_deref())
            }
            E::Trim { trim_where, trim_what, expr, trim_characters } => {
                let function = match trim_where {
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                    Some(TrimWhereField::Both) | None => "btrim",
                };
                let mut arguments = vec![self.expression(expr)?];
                for what in trim_what.as_deref().into_iter().chain(trim_characters.iter().flatten()) {
                    arguments.push(self.expression(what)?);
                }
                self.call(function, arguments)
            }
            E::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut arguments = Vec::with_capacity(4);
                for part in [expr, overlay_what, overlay_from].into_iter().chain(overlay_for) {
                    arguments.push(self.expression(part)?);
                }
                self.call("overlay", arguments)
            }
            E::Array(array) => self.array(&array.elem),
            E::Tuple(_) | E::QualifiedWildcard(..) => self.row_value(expr),
            E::Wildcard(_) => Err(SqlError::new(SqlState::SYNTAX_ERROR, "* is not allowed here")),
            _ => Err(unsupported(format_args!("the expression {expr}"))),
        }
    }

    /// Whether an expression is one with a subquery that is grouped by.
    fn is_grouped(&self, expr: &ast::Expr) -> bool {
        self.levels.last().is_some_and(|level| level.grouped.iter().any(|(written, _)| written == expr))
    }

    fn grouped_alike(&self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        let mut grouped = self.levels.last().into_iter().flat_map(|level| &level.grouped);
        let found = grouped.find(|(written, _)| written == expr).map(|(_, typed)| typed.clone());
        found.ok_or_else(|| SqlError::internal("a group that is none"))
    }

    /// A column, a row, or a word that is a call.
    fn named(&mut self, expr: &ast::Expr, ident: &ast::Ident) -> Result<Typed, SqlError> {
        let name = name::fold(ident);
        match self.find_column(&name)? {
            Some(column) => Ok(column),
            None if self.whole_row(expr)?.is_some() => self.row_value(expr),
            None if ident.quote_style.is_none() => self.word(&name),
            None => Err(missing_column(&name)),
        }
    }

    fn compound(&mut self, idents: &[ast::Ident]) -> Result<Typed, SqlError> {
        let parts: Vec<String> = idents.iter().map(name::fold).collect();
        match parts.as_slice() {
            [column] => self.find_column(column)?.ok_or_else(|| missing_column(column)),
            [table, column] => self.qualified_column(None, table, column),
            [schema, table, column] | [_, schema, table, column] => self.qualified_column(Some(schema), table, column),
            _ => Err(missing_table(&parts.join("."))),
        }
    }

    fn similar(
        &mut self,
        expr: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ast::ValueWithSpan>,
        name: &str,
    ) -> Result<Typed, SqlError> {
        let mut arguments = vec![self.expression(pattern)?];
        if let Some(escape) = escape {
            arguments.push(self.literal(&escape.value)?);
        }
        let pattern = self.call("similar_to_escape", arguments)?;
        let value = self.expression(expr)?;
        self.operator(name, value, pattern)
    }

    pub(super) fn expressions(&mut self, exprs: &[ast::Expr]) -> Result<Vec<Typed>, SqlError> {
        exprs.iter().map(|expr| self.expression(expr)).collect()
    }

    fn literal(&mut self, value: &ast::Value) -> Result<Typed, SqlError> {
        use ast::Value as V;
        match value {
            V::Number(digits, _) => {
                let value = text::number(digits)?;
                let kind = value.kind().unwrap_or(Kind::Numeric);
                Typed::literal(&value, Type::of(kind))
            }
            V::Boolean(value) => Typed::literal(&Value::Bool(*value), Type::BOOL),
            V::Null => Typed::literal(&Value::Null, Type::UNKNOWN),
            V::SingleQuotedString(text)
            | V::EscapedStringLiteral(text)
            | V::UnicodeStringLiteral(text)
            | V::NationalStringLiteral(text) => Typed::literal(&Value::text(text.as_str()), Type::UNKNOWN),
            V::DollarQuotedString(text) => Typed::literal(&Value::text(text.value.as_str()), Type::UNKNOWN),
            V::Placeholder(name) => self.placeholder(name),
            value => Err(unsupported(format_args!("the literal {value}"))),
        }
    }

    fn placeholder(&mut self, name: &str) -> Result<Typed, SqlError> {
        let number = name.strip_prefix('$').and_then(|digits| digits.parse::<u16>().ok()).filter(|number| *number > 0);
        let Some(number) = number else {
            return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter {name}")));
        };
        let number = usize::from(number) - 1;
        if self.parameters.len() <= number {
            self.parameters.resize(number + 1, None);
        }
        let ty = self.parameters[number].unwrap_or(Type::UNKNOWN);
        Ok(Typed::new(Parameter::expression(number, ty), ty))
    }

    /// The type of a parameter, which is this one unless it was known before.
    pub(super) fn parameter_type(&mut self, number: usize, ty: Type) -> Type {
        match self.parameters.get_mut(number) {
            Some(Some(known)) => *known,
            Some(unknown) => *unknown.insert(ty),
            None => ty,
        }
    }

    /// Words that are calls without parentheses.
    fn word(&mut self, name: &str) -> Result<Typed, SqlError> {
        if WORDS_OF_SESSIONS.contains(&name) { self.call(name, Vec::new()) } else { Err(missing_column(name)) }
    }

    fn explicit_cast(&mut self, expr: &ast::Expr, data_type: &ast::DataType) -> Result<Typed, SqlError> {
        let ty = Type::from_sql(data_type)?;
        // An array's literals are of its type from the beginning.
        if let (ast::Expr::Array(array), Some(element)) = (expr, ty.element()) {
            let mut elements = Vec::with_capacity(array.elem.len());
            for elem in &array.elem {
                match elem {
                    ast::Expr::Array(_) => elements.push(self.explicit_cast(elem, data_type)?),
                    _ => {
                        let typed = self.expression(elem)?;
                        elements.push(self.cast(typed, element, CastContext::Explicit)?);
                    }
                }
            }
            return self.array_of(elements, Some(element));
        }
        let typed = self.expression(expr)?;
        self.cast(typed, ty, CastContext::Explicit)
    }

    fn interval(&mut self, interval: &ast::Interval) -> Result<Typed, SqlError> {
        let literal = self.expression(&interval.value)?;
        self.cast(literal, Type::of_interval(interval)?, CastContext::Explicit)
    }

    fn collate(&mut self, expr: &ast::Expr, collation: &ast::ObjectName) -> Result<Typed, SqlError> {
        let typed = self.expression(expr)?;
        let typed = self.settle(typed)?;
        let (_, name) = name::qualified(collation)?;
        match name.as_str() {
            // Text compares bytewise everywhere.
            _ if check_collatable(typed.ty).is_err() => check_collatable(typed.ty).map(|()| typed),
            "default" | "C" | "POSIX" | "ucs_basic" => Ok(typed),
            _ => Err(SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("collation \"{name}\" for encoding \"UTF8\" does not exist"),
            )),
        }
    }

    fn truth(&mut self, inner: &ast::Expr, what: &str, make: fn(Box<Expr>) -> Expr) -> Result<Typed, SqlError> {
        let typed = self.expression(inner)?;
        let typed = self.condition(typed, what)?;
        Ok(Typed::new(make(Box::new(typed.expr)), Type::BOOL))
    }

    fn null_test(&mut self, inner: &ast::Expr, is_null: bool) -> Result<Typed, SqlError> {
        if let Some(row) = self.whole_row(inner)? {
            let test = |(_, typed): (String, Typed)| {
                let expr = Box::new(typed.expr);
                if is_null { Expr::IsNull(expr) } else { Expr::IsNotNull(expr) }
            };
            return all_of(row.fields.into_iter().map(test));
        }
        let test = |typed: Typed| {
            let expr = Box::new(typed.expr);
            if is_null { Expr::IsNull(expr) } else { Expr::IsNotNull(expr) }
        };
        if let Some(elements) = self.written_row(inner)? {
            // A row is null when all of it is, and not null when none of it is.
            let tests = elements.into_iter().map(|element| self.settle(element).map(test));
            return all_of(tests.collect::<Result<Vec<_>, _>>()?.into_iter());
        }
        let typed = self.expression(inner)?;
        Ok(Typed::new(test(self.settle(typed)?), Type::BOOL))
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Result<Typed, SqlError> {
        let operand = operand.map(|operand| self.expression(operand)).transpose()?;
        let operand = operand.map(|operand| self.settle(operand)).transpose()?;
        match operand {
            Some(operand) => {
                self.held(operand, |binder, operand| binder.case_by(Some(&operand), conditions, otherwise))
            }
            None => self.case_by(None, conditions, otherwise),
        }
    }

    fn case_by(
        &mut self,
        operand: Option<&Typed>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Result<Typed, SqlError> {
        let mut whens = Vec::with_capacity(conditions.len());
        let mut thens = Vec::with_capacity(conditions.len() + 1);
        // The type of ELSE counts first.
        thens.push(match otherwise {
            Some(otherwise) => self.expression(otherwise)?,
            None => Typed::literal(&Value::Null, Type::UNKNOWN)?,
        });
        for when in conditions {
            let condition = self.expression(&when.condition)?;
            whens.push(match operand {
                Some(operand) => self.compare("=", operand.clone(), condition)?,
                None => self.condition(condition, "CASE/WHEN")?,
            });
            thens.push(self.expression(&when.result)?);
        }
        let (mut thens, ty) = self.unify(thens, "CASE")?;
        let otherwise = thens.remove(0);
        Ok(case_of(whens.into_iter().zip(thens).map(|(when, then)| (when.expr, then.expr)), otherwise.expr, ty))
    }

    fn rounded(&mut self, name: &str, expr: &ast::Expr, field: &CeilFloorKind) -> Result<Typed, SqlError> {
        if !matches!(field, CeilFloorKind::DateTimeField(DateTimeField::NoDateTime)) {
            return Err(unsupported(format_args!("{name} with a second argument")));
        }
        let typed = self.expression(expr)?;
        self.call(name, vec![typed])
    }

    fn substring(
        &mut self,
        expr: &ast::Expr,
        from: Option<&ast::Expr>,
        length: Option<&ast::Expr>,
    ) -> Result<Typed, SqlError> {
        let mut arguments = vec![self.expression(expr)?];
        match from {
            Some(from) => arguments.push(self.expression(from)?),
            None => arguments.push(Typed::literal(&Value::Int4(1), Type::INT4)?),
        }
        if let Some(length) = length {
            arguments.push(self.expression(length)?);
        }
        self.call("substring", arguments)
    }

    /// `ARRAY[...]`
    fn array(&mut self, elements: &[ast::Expr]) -> Result<Typed, SqlError> {
        let elements = self.expressions(elements)?;
        self.array_of(elements, None)
    }

    fn array_of(&mut self, elements: Vec<Typed>, element: Option<Type>) -> Result<Typed, SqlError> {
        if elements.is_empty() && element.is_none() {
            return Err(SqlError::new(SqlState::INDETERMINATE_DATATYPE, "cannot determine type of empty array")
                .with_hint("Explicitly cast to the desired type, for example ARRAY[]::integer[]."));
        }
        let nested = elements.iter().any(|element| element.kind().is_array());
        let (elements, common) = match element {
            Some(element) if !nested => (elements, element),
            Some(element) => {
                let ty = element.to_array().ok_or_else(|| undefined_array(element))?;
                (elements, ty)
            }
            None => self.unify(elements, "ARRAY")?,
        };
        let (work, ty) = if nested {
            (Work::NestedArray(common.kind().element().unwrap_or(Kind::Text)), common)
        } else {
            (Work::Array(common.kind()), common.to_array().ok_or_else(|| undefined_array(common))?)
        };
        let ty = Type::of(ty.kind());
        if let Some(values) = elements.iter().map(Typed::as_value).collect::<Option<Vec<_>>>() {
            return Typed::literal(&work.evaluate(&values, self.context)?, ty);
        }
        Ok(Typed::new(RowFunction::call(work, elements.into_iter().map(Typed::pair).collect(), ty), ty))
    }

    /// A chain of subscripts, slices and fields behind `root`.
    fn access(&mut self, root: &ast::Expr, chain: &[AccessExpr]) -> Result<Typed, SqlError> {
        // `t.a[1]` is read as a field of `t`.
        let mut parts = match root {
            ast::Expr::Identifier(ident) => vec![ident.clone()],
            ast::Expr::CompoundIdentifier(idents) => idents.clone(),
            _ => Vec::new(),
        };
        let mut chain = chain;
        while let (false, [AccessExpr::Dot(ast::Expr::Identifier(ident)), rest @ ..]) = (parts.is_empty(), chain) {
            parts.push(ident.clone());
            chain = rest;
        }
        let column;
        let root = match parts.len() {
            0 => root,
            _ => {
                column = ast::Expr::CompoundIdentifier(parts);
                &column
            }
        };
        if let [AccessExpr::Dot(field)] = chain {
            return self.field(root, field);
        }
        let array = self.expression(root)?;
        // A name is an array of a fixed length, in PostgreSQL's eyes.
        let element = array.ty.element().or_else(|| (array.kind() == Kind::Name).then_some(Type::SINGLE_CHAR));
        let Some(element) = element else {
            if array.kind() == Kind::Jsonb {
                return self.json_access(array, chain);
            }
            return Err(SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                format!("cannot subscript type {} because it does not support subscripting", array.ty),
            ));
        };
        let sliced = chain.iter().any(|access| matches!(access, AccessExpr::Subscript(Subscript::Slice { .. })));
        if sliced && array.kind() == Kind::Name {
            let message = "slices of fixed-length arrays not implemented";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let mut arguments = vec![array.clone()];
        for access in chain {
            match access {
                AccessExpr::Subscript(Subscript::Index { index }) => {
                    let index = self.subscript(index)?;
                    if sliced {
                        arguments.push(Typed::literal(&Value::Int4(1), Type::INT4)?);
                    }
                    arguments.push(index);
                }
                AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride: None }) => {
                    for (bound, open) in [(lower_bound, OPEN.0), (upper_bound, OPEN.1)] {
                        arguments.push(match bound {
                            Some(bound) => self.subscript(bound)?,
                            None => Typed::literal(&Value::Int4(open), Type::INT4)?,
                        });
                    }
                }
                _ => return Err(unsupported("a field of a composite value")),
            }
        }
        let (work, ty) = if sliced { (Work::Slice, array.ty) } else { (Work::Subscript, Type::of(element.kind())) };
        Ok(Typed::new(RowFunction::call(work, arguments.into_iter().map(Typed::pair).collect(), ty), ty))
    }

    fn subscript(&mut self, index: &ast::Expr) -> Result<Typed, SqlError> {
        let typed = self.expression(index)?;
        self.cast(typed, Type::INT4, CastContext::Assignment)
    }

    /// `jsonb['member'][1]`: what is at a path. Each step is a text or a number.
    fn json_access(&mut self, json: Typed, chain: &[AccessExpr]) -> Result<Typed, SqlError> {
        let mut path = Vec::with_capacity(chain.len());
        for access in chain {
            let AccessExpr::Subscript(Subscript::Index { index }) = access else {
                return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, "jsonb subscript does not support slices"));
            };
            let index = self.expression(index)?;
            let step = match index.kind() {
                Kind::Unknown => index,
                kind if implicitly(kind, Kind::Int4) => self.cast(index, Type::INT4, CastContext::Implicit)?,
                kind if implicitly(kind, Kind::Text) => index,
                kind => {
                    let message = format!("subscript type {kind} is not supported");
                    return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                        .with_hint("jsonb subscript must be coercible to either integer or text."));
                }
            };
            path.push(self.cast(step, Type::TEXT, CastContext::Explicit)?);
        }
        let path = self.array_of(path, Some(Type::TEXT))?;
        self.call("#>", vec![json, path])
    }

    fn unary(&mut self, op: UnaryOperator, expr: &ast::Expr) -> Result<Typed, SqlError> {
        if op == UnaryOperator::Minus
            && let Some(value) = sign::negated(expr)
        {
            let value = value?;
            return Typed::literal(&value, Type::of(value.kind().unwrap_or(Kind::Numeric)));
        }
        let typed = self.expression(expr)?;
        let name = match op {
            UnaryOperator::Not => {
                let condition = self.condition(typed, "NOT")?;
                return Ok(Typed::new(Expr::Not(Box::new(condition.expr)), Type::BOOL));
            }
            op => op.to_string(),
        };
        self.call(&name, vec![typed])
    }
}

#[cold]
fn undefined_array(element: Type) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("could not find array type for data type {element}"))
}

/// The elements of a row, if it is one.
pub(super) fn row(expr: &ast::Expr) -> Option<&[ast::Expr]> {
    match expr {
        ast::Expr::Tuple(elements) => Some(elements),
        ast::Expr::Nested(inner) => row(inner),
        _ => None,
    }
}

/// A branch of CASE: the value, where it is not null.
pub(super) fn if_there(value: Expr) -> (Expr, Expr) {
    (Expr::IsNotNull(Box::new(value.clone())), value)
}

/// A CASE of conditions and results that are of one type.
pub(super) fn case_of(whens: impl Iterator<Item = (Expr, Expr)>, otherwise: Expr, ty: Type) -> Typed {
    let when_then_expr = whens.map(|(when, then)| (Box::new(when), Box::new(then))).collect();
    Typed::new(Expr::Case(Case { expr: None, when_then_expr, else_expr: Some(Box::new(otherwise)) }), ty)
}

pub(super) fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) })
}

/// Into how many parts a condition can be taken apart at most. The optimizer makes a chain of them,
/// and goes down that by recursion.
const MAX_CONJUNCTS: usize = 64;

/// Conditions as a tree that is no deeper than it has to be: there may be thousands.
pub(super) fn balanced(mut conditions: Vec<Expr>, op: Operator) -> Option<Expr> {
    if op == Operator::And && conditions.len() > MAX_CONJUNCTS {
        // Said with OR, the optimizer leaves them alone.
        let rest = conditions.split_off(MAX_CONJUNCTS - 1).into_iter().map(|expr| Expr::Not(Box::new(expr)));
        conditions.extend(balanced(rest.collect(), Operator::Or).map(|any| Expr::Not(Box::new(any))));
    }
    while conditions.len() > 1 {
        let mut pairs = conditions.into_iter();
        let mut joined = Vec::with_capacity(pairs.len() / 2 + 1);
        while let Some(left) = pairs.next() {
            joined.push(match pairs.next() {
                Some(right) => binary(left, op, right),
                None => left,
            });
        }
        conditions = joined;
    }
    conditions.pop()
}

fn join(conditions: impl Iterator<Item = Expr>, op: Operator, of_none: bool) -> Result<Typed, SqlError> {
    let expr = balanced(conditions.collect(), op);
    let expr = expr.unwrap_or(Expr::Literal(ScalarValue::Boolean(Some(of_none)), None));
    Ok(Typed::new(expr, Type::BOOL))
}

/// Whether all conditions hold.
pub(super) fn all_of(conditions: impl Iterator<Item = Expr>) -> Result<Typed, SqlError> {
    join(conditions, Operator::And, true)
}

/// Whether any condition holds.
pub(super) fn any_of(conditions: impl Iterator<Item = Expr>) -> Result<Typed, SqlError> {
    join(conditions, Operator::Or, false)
}

fn field_name(field: &DateTimeField) -> String {
    match field {
        DateTimeField::Custom(ident) => ident.value.to_ascii_lowercase(),
        field => field.to_string().to_ascii_lowercase(),
    }
}
