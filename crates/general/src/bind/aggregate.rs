//! Calls of aggregates.

use std::sync::Arc;

use datafusion_expr::{
    AggregateUDF, Expr,
    expr::{AggregateFunction, AggregateFunctionParams},
};
use freshet_sql::{
    Kind, SqlError, SqlState, Type, Value,
    types::{CastContext, Category},
};
use sqlparser::ast;

use super::{Binder, call::Arguments, clause::Clause, scope::Innermost, typed::Typed};
use crate::{
    aggregate::{Aggregate, AggregateKind, SortKey},
    key::key,
};

/// An aggregate with its arguments, ready to be called or to be slid over a window.
pub(super) struct Prepared {
    pub function: Arc<AggregateUDF>,
    pub arguments: Vec<Expr>,
    pub result: Type,
    pub filter: Option<Expr>,
}

impl Binder<'_> {
    pub(super) fn aggregate_call(
        &mut self,
        function: &ast::Function,
        kind: AggregateKind,
        name: &str,
        arguments: &Arguments<'_>,
    ) -> Result<Typed, SqlError> {
        let here = self.arguments_here(|binder| binder.prepare_aggregate(function, kind, name, arguments, false));
        let prepared = match here {
            Ok(prepared) => prepared,
            Err(place) => {
                return self.further_out(place, |binder| binder.aggregate_call(function, kind, name, arguments));
            }
        };
        self.level().check_aggregate()?;
        let prepared = prepared?;
        let expr = Expr::AggregateFunction(AggregateFunction {
            func: prepared.function,
            params: AggregateFunctionParams {
                args: prepared.arguments,
                distinct: false,
                filter: prepared.filter.map(Box::new),
                order_by: Vec::new(),
                null_treatment: None,
            },
        });
        Ok(self.collected(|collected| &mut collected.aggregates, expr, prepared.result, name))
    }

    /// Binds the arguments of something that is computed from groups. Their columns say whose:
    /// where that is a query around this one, returns its level, and how much each level had
    /// captured.
    fn arguments_here<T>(&mut self, bind: impl FnOnce(&mut Self) -> T) -> Result<T, (usize, Vec<usize>)> {
        let top = self.levels.len().saturating_sub(1);
        let captured: Vec<usize> = self.levels.iter().map(|level| level.captures.len()).collect();
        let outside = std::mem::replace(&mut self.innermost, Innermost { below: self.levels.len(), level: None });
        let bound = bind(self);
        let found = std::mem::replace(&mut self.innermost, outside).level;
        if let Some(level) = found {
            self.innermost.note(level);
        }
        match found.filter(|level| *level < top) {
            Some(level) => Err((level, captured)),
            None => Ok(bound),
        }
    }

    /// Something of the groups of a query around this one: it is computed there, and seen here.
    fn further_out(
        &mut self,
        (level, captured): (usize, Vec<usize>),
        bind: impl FnOnce(&mut Self) -> Result<Typed, SqlError>,
    ) -> Result<Typed, SqlError> {
        // What was captured for its arguments is not needed.
        for (level, count) in self.levels.iter_mut().zip(captured) {
            level.captures.truncate(count);
        }
        let inner = self.levels.split_off(level + 1);
        let result = bind(self);
        self.levels.extend(inner);
        let mut typed = result?;
        for level in &mut self.levels[level + 1..] {
            if let Some(subquery) = level.subquery {
                typed = level.capture(subquery, typed);
            }
        }
        Ok(typed)
    }

    /// Chooses the aggregate for its arguments.
    ///
    /// # Errors
    /// 42883 when none exists.
    pub(super) fn prepare_aggregate(
        &mut self,
        function: &ast::Function,
        kind: AggregateKind,
        name: &str,
        arguments: &Arguments<'_>,
        windowed: bool,
    ) -> Result<Prepared, SqlError> {
        let outside = self.level().clause;
        // A window's aggregate may be of the results of others.
        self.level().clause = if windowed { Clause::Window } else { Clause::Aggregate };
        let prepared = self.prepared(function, kind, name, arguments);
        self.level().clause = outside;
        prepared
    }

    fn prepared(
        &mut self,
        function: &ast::Function,
        kind: AggregateKind,
        name: &str,
        arguments: &Arguments<'_>,
    ) -> Result<Prepared, SqlError> {
        let mut typed = Vec::with_capacity(arguments.exprs.len());
        for (at, expr) in arguments.exprs.iter().enumerate() {
            typed.push(self.aggregate_argument(kind, at, arguments.distinct, expr)?);
        }
        let mut order = Vec::new();
        let mut keys = Vec::new();
        let ordered_set = kind.is_ordered_set();
        if ordered_set == function.within_group.is_empty() {
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                if ordered_set {
                    format!("WITHIN GROUP is required for ordered-set aggregate {name}")
                } else {
                    format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP")
                },
            ));
        }
        for by in &function.within_group {
            let value = self.expression(&by.expr)?;
            let value = self.settle(value)?;
            order.push(SortKey::of(value.ty, &by.options));
            typed.push(value);
        }
        for by in arguments.order {
            let value = self.expression(&by.expr)?;
            let value = self.settle(value)?;
            order.push(SortKey::of(value.ty, &by.options));
            keys.push(value);
        }
        self.level().clause = Clause::Filter;
        let filter = match &function.filter {
            Some(filter) => {
                let filter = self.expression(filter)?;
                Some(self.condition(filter, "FILTER")?.expr)
            }
            None => None,
        };
        if arguments.star && !(kind == AggregateKind::Count && typed.is_empty()) {
            return Err(missing(name, &[]));
        }
        let star = kind == AggregateKind::Count && typed.is_empty();
        if star && !arguments.star {
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                "count(*) must be used to call a parameterless aggregate function",
            ));
        }
        if star {
            typed.push(Typed::literal(&Value::Int4(1), Type::INT4)?);
        }
        let (typed, result) = self.aggregate_types(kind, name, typed)?;
        if arguments.distinct && !keys.is_empty() && keys.iter().any(|key| !typed.iter().any(|t| t.expr == key.expr)) {
            return Err(SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list",
            ));
        }
        let own = typed.len();
        let all: Vec<Typed> = typed.into_iter().chain(keys).collect();
        let types: Vec<Type> = all.iter().map(|typed| typed.ty).collect();
        let kind = match (kind, arguments.exprs.as_slice()) {
            (AggregateKind::JsonAgg { binary, .. }, [expr]) => {
                AggregateKind::JsonAgg { binary, rows: self.is_row(expr)? }
            }
            _ => kind,
        };
        let aggregate = Aggregate::new(kind, name, types, own, result, order, arguments.distinct);
        let arguments = all.into_iter().map(|typed| typed.expr).collect();
        Ok(Prepared { function: Arc::new(AggregateUDF::from(aggregate)), arguments, result, filter })
    }

    /// Argument `at`; a row becomes an object where JSON is made of it.
    fn aggregate_argument(
        &mut self,
        kind: AggregateKind,
        at: usize,
        distinct: bool,
        expr: &ast::Expr,
    ) -> Result<Typed, SqlError> {
        if let (AggregateKind::JsonAgg { binary, .. }, 0) | (AggregateKind::JsonObjectAgg { binary }, 1) = (kind, at)
            && let Some(object) = self.row_object(expr, binary)?
        {
            return Ok(object);
        }
        if kind == AggregateKind::Count
            && !distinct
            && let Some(row) = self.whole_row(expr)?
        {
            let there = Typed::literal(&Value::Bool(true), Type::BOOL)?;
            return Ok(row.present.map_or(there, |present| Typed::new(present, Type::BOOL)));
        }
        let typed = self.expression(expr)?;
        match kind {
            AggregateKind::JsonAgg { .. } | AggregateKind::JsonObjectAgg { .. } => self.shown(typed),
            _ => Ok(typed),
        }
    }

    /// What an aggregate takes and returns.
    fn aggregate_types(
        &mut self,
        kind: AggregateKind,
        name: &str,
        mut typed: Vec<Typed>,
    ) -> Result<(Vec<Typed>, Type), SqlError> {
        use AggregateKind as A;
        let kinds: Vec<Kind> = typed.iter().map(Typed::kind).collect();
        let none = || missing(name, &kinds);
        let result = match (kind, kinds.as_slice()) {
            (A::Count, [_]) => {
                typed = self.settle_all(typed)?;
                Type::INT8
            }
            (A::Sum, [kind]) => match kind {
                Kind::Int2 | Kind::Int4 => Type::INT8,
                Kind::Int8 | Kind::Numeric => Type::NUMERIC,
                Kind::Float4 => Type::FLOAT4,
                Kind::Float8 => Type::FLOAT8,
                Kind::Interval => Type::INTERVAL,
                Kind::Time => {
                    typed = self.coerce_all(typed, Type::INTERVAL)?;
                    Type::INTERVAL
                }
                _ => return Err(none()),
            },
            (A::Avg, [kind]) => match kind {
                Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Numeric => Type::NUMERIC,
                Kind::Float4 | Kind::Float8 => Type::FLOAT8,
                Kind::Interval => Type::INTERVAL,
                Kind::Time => {
                    typed = self.coerce_all(typed, Type::INTERVAL)?;
                    Type::INTERVAL
                }
                _ => return Err(none()),
            },
            (A::Min | A::Max, [kind]) => match kind {
                Kind::Unknown | Kind::Varchar | Kind::Name => {
                    typed = self.coerce_all(typed, Type::TEXT)?;
                    Type::TEXT
                }
                Kind::Bool
                | Kind::Uuid
                | Kind::Macaddr
                | Kind::Macaddr8
                | Kind::Json
                | Kind::Jsonb
                | Kind::SingleChar
                | Kind::Xid
                | Kind::Bytea => {
                    return Err(none());
                }
                kind if kind.is_object_alias() => {
                    typed = self.coerce_all(typed, Type::OID)?;
                    Type::OID
                }
                Kind::Char => Type::BPCHAR,
                // A number keeps its scale.
                _ => typed[0].ty,
            },
            (A::BoolAnd | A::BoolOr, [Kind::Bool | Kind::Unknown]) => {
                typed = self.coerce_all(typed, Type::BOOL)?;
                Type::BOOL
            }
            (A::BitAnd | A::BitOr | A::BitXor, [Kind::Int2 | Kind::Int4 | Kind::Int8]) => Type::of(kinds[0]),
            (A::StringAgg, [value, _]) => {
                let ty = if *value == Kind::Bytea { Type::BYTEA } else { Type::TEXT };
                let text = |kind: Kind| kind.category() == Category::String || kind == Kind::Unknown;
                if ty == Type::TEXT && !(text(*value) && text(kinds[1])) {
                    return Err(none());
                }
                typed = self.coerce_all(typed, ty)?;
                ty
            }
            (A::ArrayAgg, [Kind::Unknown]) => return Err(freshet_sql::functions::ambiguous(name, &[Kind::Unknown])),
            (A::ArrayAgg, [_]) => {
                typed = self.settle_all(typed)?;
                let kind = typed[0].kind();
                let array = if kind.is_array() { Some(kind) } else { kind.array() };
                Type::of(array.ok_or_else(none)?)
            }
            (A::JsonAgg { binary, .. }, [_]) | (A::JsonObjectAgg { binary }, [_, _]) => {
                typed = self.settle_all(typed)?;
                if binary { Type::JSONB } else { Type::JSON }
            }
            (A::Variance { .. }, [kind]) => match kind {
                Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Numeric => {
                    typed = self.coerce_all(typed, Type::NUMERIC)?;
                    Type::NUMERIC
                }
                Kind::Float4 | Kind::Float8 => {
                    typed = self.coerce_all(typed, Type::FLOAT8)?;
                    Type::FLOAT8
                }
                _ => return Err(none()),
            },
            (A::Regression(what), [_, _]) => {
                typed = self.coerce_all(typed, Type::FLOAT8).map_err(|_| none())?;
                if what.is_count() { Type::INT8 } else { Type::FLOAT8 }
            }
            (A::PercentileCont, [_, value]) => {
                let value = if *value == Kind::Interval { Type::INTERVAL } else { Type::FLOAT8 };
                typed = self.percentile(typed, value, none)?;
                value
            }
            (A::PercentileDisc, [_, _]) => {
                let value = typed[1].ty;
                typed = self.percentile(typed, value, none)?;
                value
            }
            (A::Mode, [_]) => typed[0].ty,
            _ => return Err(none()),
        };
        Ok((typed, result))
    }

    fn percentile(
        &mut self,
        typed: Vec<Typed>,
        value: Type,
        none: impl Fn() -> SqlError,
    ) -> Result<Vec<Typed>, SqlError> {
        let mut typed = typed.into_iter();
        let (Some(fraction), Some(of)) = (typed.next(), typed.next()) else { return Err(none()) };
        let fraction = self.coerce(fraction, Type::FLOAT8).map_err(|_| none())?;
        Ok(vec![fraction, self.coerce(of, value).map_err(|_| none())?])
    }

    fn settle_all(&mut self, typed: Vec<Typed>) -> Result<Vec<Typed>, SqlError> {
        typed.into_iter().map(|typed| self.settle(typed)).collect()
    }

    fn coerce_all(&mut self, typed: Vec<Typed>, ty: Type) -> Result<Vec<Typed>, SqlError> {
        typed.into_iter().map(|typed| self.cast(typed, ty, CastContext::Implicit)).collect()
    }

    /// `GROUPING(a, b)`: which of the columns are not grouped by. It is known when the grouping
    /// sets are.
    pub(super) fn grouping(&mut self, arguments: &Arguments<'_>) -> Result<Typed, SqlError> {
        let here = self.arguments_here(|binder| {
            arguments.exprs.iter().map(|expr| Ok(binder.expression(expr)?.expr)).collect::<Result<Vec<_>, SqlError>>()
        });
        match here {
            Ok(typed) => Ok(Typed::new(super::group::Grouping::call(typed?), Type::INT4)),
            Err(place) => self.further_out(place, |binder| binder.grouping(arguments)),
        }
    }

    /// An expression by which rows are sorted.
    pub(super) fn sort_expression(&self, typed: Typed) -> Result<Expr, SqlError> {
        if typed.kind() == Kind::Json {
            return Err(SqlError::new(
                SqlState::UNDEFINED_FUNCTION,
                "could not identify an ordering operator for type json",
            ));
        }
        Ok(key(typed.expr, typed.ty))
    }
}

#[cold]
fn missing(name: &str, kinds: &[Kind]) -> SqlError {
    let kinds: Vec<_> = kinds.iter().map(|kind| kind.sql_name()).collect();
    SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function {name}({}) does not exist", kinds.join(", ")))
        .with_hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}
