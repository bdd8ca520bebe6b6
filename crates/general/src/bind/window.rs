//! Calls of window functions, and the windows that they see.

use std::{cmp::Ordering, sync::Arc};

use datafusion_common::ScalarValue;
use datafusion_expr::{
    Expr, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, WindowUDF,
    expr::{Sort, WindowFunction, WindowFunctionParams},
};
use freshet_sql::{Kind, SqlError, SqlState, Type, Value, types::CastContext};
use sqlparser::ast::{self, NamedWindowExpr, WindowSpec, WindowType};

use super::{Binder, call::Arguments, clause::Clause, name, typed::Typed};

/// What the plan of a window takes grows with the cube of their number.
const MAX_PARTITION_KEYS: usize = 64;
use crate::{
    aggregate::{AggregateKind, SortKey},
    error::unsupported,
    window::{Ranking, WindowKind},
};

pub(super) fn is_window_function(name: &str) -> bool {
    WindowKind::named(name).is_some()
}

/// A window with what it takes from the one that it names.
#[derive(Clone, Default)]
struct Window<'a> {
    partition_by: &'a [ast::Expr],
    order_by: &'a [ast::OrderByExpr],
    frame: Option<&'a ast::WindowFrame>,
}

impl Binder<'_> {
    pub(super) fn window_call(
        &mut self,
        function: &ast::Function,
        name: &str,
        arguments: &Arguments<'_>,
    ) -> Result<Typed, SqlError> {
        self.level().check_window()?;
        let outside = self.level().clause;
        self.level().clause = Clause::Window;
        let windows = std::mem::take(&mut self.level().windows);
        let result = self.bind_window_call(function, name, arguments, &windows);
        let level = self.level();
        level.windows = windows;
        level.clause = outside;
        let (expr, ty) = result?;
        if expr.is_volatile() {
            let call = self.collect(expr, ty, name);
            let column = call.column.clone();
            self.level().collected.windows.push(call);
            return Ok(column);
        }
        Ok(self.collected(|collected| &mut collected.windows, expr, ty, name))
    }

    /// What a window is divided or ordered by.
    fn window_key(&mut self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        let typed = self.expression(expr)?;
        let typed = self.settle(typed)?;
        if !typed.expr.is_volatile() {
            return Ok(typed);
        }
        Ok(self.collected(|collected| &mut collected.keys, typed.expr, typed.ty, "key"))
    }

    fn bind_window_call(
        &mut self,
        function: &ast::Function,
        name: &str,
        arguments: &Arguments<'_>,
        windows: &[ast::NamedWindowDefinition],
    ) -> Result<(Expr, Type), SqlError> {
        let window = match &function.over {
            Some(WindowType::NamedWindow(ident)) => named(&name::fold(ident), windows, 0)?,
            Some(WindowType::WindowSpec(spec)) => specified(spec, windows, 0)?,
            None => return Err(SqlError::internal("a window function without a window")),
        };
        let partition_by = self.partition_keys(window.partition_by)?;
        let mut order_by = Vec::with_capacity(window.order_by.len());
        let mut order_type = None;
        for by in window.order_by {
            let typed = self.window_key(&by.expr)?;
            order_type = Some(typed.ty);
            let SortKey { descending, nulls_first, .. } = SortKey::of(typed.ty, &by.options);
            let asc = !descending;
            order_by.push(Sort { expr: self.sort_expression(typed)?, asc, nulls_first });
        }
        let window_frame = self.frame(window.frame, &order_by, order_type)?;
        let (fun, args, ty, filter) = match AggregateKind::named(name) {
            Some(kind) => {
                if arguments.distinct {
                    return Err(SqlError::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "DISTINCT is not implemented for window functions",
                    ));
                }
                if !arguments.order.is_empty() {
                    return Err(SqlError::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "aggregate ORDER BY is not implemented for window functions",
                    ));
                }
                let prepared = self.prepare_aggregate(function, kind, name, arguments, true)?;
                self.level().clause = Clause::Window;
                let fun = WindowFunctionDefinition::AggregateUDF(prepared.function);
                (fun, prepared.arguments, prepared.result, prepared.filter)
            }
            None => {
                if function.filter.is_some() {
                    return Err(SqlError::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "FILTER is not implemented for non-aggregate window functions",
                    ));
                }
                let (fun, args, ty) = self.ranking(name, arguments)?;
                (WindowFunctionDefinition::WindowUDF(fun), args, ty, None)
            }
        };
        let params = WindowFunctionParams {
            args,
            partition_by,
            order_by,
            window_frame,
            filter: filter.map(Box::new),
            null_treatment: None,
            distinct: false,
        };
        Ok((Expr::WindowFunction(Box::new(WindowFunction { fun, params })), ty))
    }

    fn partition_keys(&mut self, keys: &[ast::Expr]) -> Result<Vec<Expr>, SqlError> {
        if keys.len() > MAX_PARTITION_KEYS {
            let message = format!("a window is partitioned by more than {MAX_PARTITION_KEYS} expressions");
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message));
        }
        let key = |expr| self.window_key(expr).and_then(|typed| self.sort_expression(typed));
        keys.iter().map(key).collect()
    }

    /// A function that is nothing but a window function.
    fn ranking(
        &mut self,
        name: &str,
        arguments: &Arguments<'_>,
    ) -> Result<(Arc<WindowUDF>, Vec<Expr>, Type), SqlError> {
        let missing =
            |what: &str| SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function {name}({what}) does not exist"));
        let Some(kind) = WindowKind::named(name) else {
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("OVER specified, but {name} is not a window function nor an aggregate function"),
            ));
        };
        let mut typed = Vec::with_capacity(arguments.exprs.len());
        for expr in &arguments.exprs {
            typed.push(self.expression(expr)?);
        }
        let (least, most) = kind.arguments();
        if typed.len() < least || typed.len() > most || arguments.star {
            let kinds: Vec<_> = typed.iter().map(|typed| typed.kind().sql_name()).collect();
            return Err(missing(&kinds.join(", ")));
        }
        let ty = match kind {
            WindowKind::RowNumber | WindowKind::Rank | WindowKind::DenseRank => Type::INT8,
            WindowKind::PercentRank | WindowKind::CumeDist => Type::FLOAT8,
            WindowKind::Ntile => Type::INT4,
            WindowKind::Lag
            | WindowKind::Lead
            | WindowKind::FirstValue
            | WindowKind::LastValue
            | WindowKind::NthValue => {
                typed[0] = self.settled_with(&typed, &missing)?;
                typed[0].ty
            }
        };
        if kind == WindowKind::Ntile {
            typed[0] = self.coerce(typed[0].clone(), Type::INT4)?;
        } else if let [_, number, ..] = typed.as_slice() {
            typed[1] = self.coerce(number.clone(), Type::INT4)?;
        }
        if let [_, _, default] = typed.as_slice() {
            typed[2] = self.coerce(default.clone(), ty)?;
        }
        if typed.is_empty() {
            // Something to count.
            typed.push(Typed::literal(&Value::Int4(1), Type::INT4)?);
        }
        let function = Arc::new(WindowUDF::from(Ranking::new(kind, ty)));
        Ok((function, typed.into_iter().map(|typed| typed.expr).collect(), ty))
    }

    /// The value that one of these functions gives, of the type that it has in common with what
    /// stands for one that is not there, and of any length.
    fn settled_with(&mut self, arguments: &[Typed], missing: &dyn Fn(&str) -> SqlError) -> Result<Typed, SqlError> {
        let types: Vec<Type> = arguments.iter().enumerate().filter(|(at, _)| *at != 1).map(|(_, it)| it.ty).collect();
        let common = self.common_type(&types, "ARRAY").map_err(|_| {
            let kinds: Vec<_> = arguments.iter().map(|typed| typed.kind().sql_name()).collect();
            missing(&kinds.join(", "))
        })?;
        let kind = if common.kind() == Kind::Unknown { Kind::Text } else { common.kind() };
        self.coerce(arguments[0].clone(), Type::of(kind))
    }

    fn frame(
        &mut self,
        frame: Option<&ast::WindowFrame>,
        order_by: &[Sort],
        order_type: Option<Type>,
    ) -> Result<WindowFrame, SqlError> {
        let ordered = !order_by.is_empty();
        let Some(frame) = frame else {
            let end = if ordered {
                WindowFrameBound::CurrentRow
            } else {
                WindowFrameBound::Following(ScalarValue::UInt64(None))
            };
            return Ok(WindowFrame::new_bounds(
                if ordered { WindowFrameUnits::Range } else { WindowFrameUnits::Rows },
                WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
                end,
            ));
        };
        let units = match frame.units {
            ast::WindowFrameUnits::Rows => WindowFrameUnits::Rows,
            ast::WindowFrameUnits::Range => WindowFrameUnits::Range,
            ast::WindowFrameUnits::Groups => WindowFrameUnits::Groups,
        };
        let error = |message: &'static str| Err(SqlError::new(SqlState::WINDOWING_ERROR, message));
        if units == WindowFrameUnits::Groups && !ordered {
            return error("GROUPS mode requires an ORDER BY clause");
        }
        let order = order_type.filter(|_| order_by.len() == 1);
        let start = self.bound(&frame.start_bound, units, order)?;
        let end = match &frame.end_bound {
            Some(bound) => self.bound(bound, units, order)?,
            None => WindowFrameBound::CurrentRow,
        };
        match (&start, &end) {
            (WindowFrameBound::Following(offset), _) if offset.is_null() => {
                return error("frame start cannot be UNBOUNDED FOLLOWING");
            }
            (_, WindowFrameBound::Preceding(offset)) if offset.is_null() => {
                return error("frame end cannot be UNBOUNDED PRECEDING");
            }
            (WindowFrameBound::CurrentRow, WindowFrameBound::Preceding(_)) => {
                return error("frame starting from current row cannot have preceding rows");
            }
            (WindowFrameBound::Following(_), WindowFrameBound::Preceding(_)) => {
                return error("frame starting from following row cannot have preceding rows");
            }
            (WindowFrameBound::Following(_), WindowFrameBound::CurrentRow) => {
                return error("frame starting from following row cannot end with current row");
            }
            _ => {}
        }
        // An offset that is there; all of one frame are of one type.
        let given = |offset: &ScalarValue| (!offset.is_null()).then(|| offset.clone());
        let (from, to) = match (&start, &end) {
            (WindowFrameBound::Following(from), WindowFrameBound::Following(to)) => (given(from), given(to)),
            (WindowFrameBound::Preceding(from), WindowFrameBound::Preceding(to)) => (given(to), given(from)),
            _ => (None, None),
        };
        if let (Some(from), Some(to)) = (from, to)
            && from.partial_cmp(&to) == Some(Ordering::Greater)
        {
            // It ends before it begins, which DataFusion's operators do not expect.
            if units == WindowFrameUnits::Range {
                return Err(unsupported("a frame in RANGE mode that ends before it begins"));
            }
            let nowhere = WindowFrameBound::Following(ScalarValue::UInt64(Some(BEYOND)));
            return Ok(WindowFrame::new_bounds(WindowFrameUnits::Rows, nowhere.clone(), nowhere));
        }
        // Without an order all rows are peers: the frame is the partition.
        if units == WindowFrameUnits::Range && !ordered {
            return Ok(WindowFrame::new_bounds(
                WindowFrameUnits::Rows,
                WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
                WindowFrameBound::Following(ScalarValue::UInt64(None)),
            ));
        }
        Ok(WindowFrame::new_bounds(units, start, end))
    }

    fn bound(
        &mut self,
        bound: &ast::WindowFrameBound,
        units: WindowFrameUnits,
        order: Option<Type>,
    ) -> Result<WindowFrameBound, SqlError> {
        let (offset, preceding) = match bound {
            ast::WindowFrameBound::CurrentRow => return Ok(WindowFrameBound::CurrentRow),
            ast::WindowFrameBound::Preceding(offset) => (offset, true),
            ast::WindowFrameBound::Following(offset) => (offset, false),
        };
        let offset = match offset {
            None => ScalarValue::UInt64(None),
            Some(offset) => {
                let typed = self.expression(offset)?;
                match units {
                    WindowFrameUnits::Rows | WindowFrameUnits::Groups => self.rows_offset(typed, preceding)?,
                    WindowFrameUnits::Range => self.range_offset(typed, order, preceding)?,
                }
            }
        };
        Ok(if preceding { WindowFrameBound::Preceding(offset) } else { WindowFrameBound::Following(offset) })
    }

    fn rows_offset(&mut self, typed: Typed, preceding: bool) -> Result<ScalarValue, SqlError> {
        let typed = self.cast(typed, Type::INT8, CastContext::Implicit)?;
        let which = if preceding { "starting" } else { "ending" };
        match typed.as_value() {
            Some(Value::Int8(number)) => match u64::try_from(number) {
                Ok(number) => Ok(ScalarValue::UInt64(Some(number))),
                Err(_) => {
                    Err(SqlError::new(SqlState::new("22013"), format!("frame {which} offset must not be negative")))
                }
            },
            Some(Value::Null) => {
                Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, format!("frame {which} offset must not be null")))
            }
            _ => Err(unsupported("a frame's offset that is not constant")),
        }
    }

    /// A distance in the values by which the window is ordered.
    fn range_offset(&mut self, typed: Typed, order: Option<Type>, preceding: bool) -> Result<ScalarValue, SqlError> {
        let Some(order) = order else {
            return Err(SqlError::new(
                SqlState::WINDOWING_ERROR,
                "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column",
            ));
        };
        let ty = match order.kind() {
            Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Float4 | Kind::Float8 => order,
            Kind::Date | Kind::Timestamp | Kind::Timestamptz | Kind::Time => Type::INTERVAL,
            kind => {
                return Err(SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("RANGE with offset PRECEDING/FOLLOWING is not supported for column type {kind}"),
                ));
            }
        };
        let typed = self.cast(typed, ty, CastContext::Assignment)?;
        let which = if preceding { "preceding" } else { "following" };
        let negative =
            || SqlError::new(SqlState::new("22013"), format!("invalid {which} or following size in window function"));
        let Some(value) = typed.as_value() else {
            return Err(unsupported("a frame's offset that is not constant"));
        };
        match value {
            Value::Interval(interval) => {
                if interval.length() < 0 {
                    return Err(negative());
                }
                let days = i64::from(interval.days);
                let micros = days.checked_mul(86_400_000_000).and_then(|micros| micros.checked_add(interval.micros));
                match (interval.months, order.kind(), micros) {
                    (0, Kind::Date, Some(micros)) if micros % 86_400_000_000 == 0 => {
                        Ok(ScalarValue::Int32(i32::try_from(micros / 86_400_000_000).ok()))
                    }
                    (0, Kind::Timestamp | Kind::Timestamptz | Kind::Time, Some(micros)) => {
                        Ok(ScalarValue::Int64(Some(micros)))
                    }
                    _ => Err(unsupported("RANGE with an offset of months, or of parts of days for dates")),
                }
            }
            value if value.is_null() => {
                Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, "frame offset must not be null"))
            }
            value => {
                let below_zero = match value {
                    Value::Float4(number) => number < 0.0,
                    Value::Float8(number) => number < 0.0,
                    ref number => number.as_i64().is_some_and(|number| number < 0),
                };
                if below_zero {
                    return Err(negative());
                }
                crate::layout::to_scalar(ty, &value)
            }
        }
    }
}

/// More rows than any partition has: a frame that begins so far on is empty.
const BEYOND: u64 = 1 << 62;

/// The window of a name.
fn named<'a>(name: &str, windows: &'a [ast::NamedWindowDefinition], depth: usize) -> Result<Window<'a>, SqlError> {
    let found = windows.iter().find(|ast::NamedWindowDefinition(ident, _)| name::fold(ident) == name);
    match found {
        // A window can only name one that was defined before it.
        Some(_) if depth > windows.len() => Err(undefined(name)),
        Some(ast::NamedWindowDefinition(_, NamedWindowExpr::NamedWindow(other))) => {
            named(&name::fold(other), windows, depth + 1)
        }
        Some(ast::NamedWindowDefinition(_, NamedWindowExpr::WindowSpec(spec))) => specified(spec, windows, depth + 1),
        None => Err(undefined(name)),
    }
}

#[cold]
fn undefined(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("window \"{name}\" does not exist"))
}

fn specified<'a>(
    spec: &'a WindowSpec,
    windows: &'a [ast::NamedWindowDefinition],
    depth: usize,
) -> Result<Window<'a>, SqlError> {
    let mut window = match &spec.window_name {
        Some(ident) => named(&name::fold(ident), windows, depth)?,
        None => Window::default(),
    };
    let error = |what: &str, ident: &ast::Ident| {
        Err(SqlError::new(SqlState::WINDOWING_ERROR, format!("cannot override {what} clause of window \"{ident}\"")))
    };
    if !spec.partition_by.is_empty() {
        if let Some(ident) = &spec.window_name {
            return error("PARTITION BY", ident);
        }
        window.partition_by = &spec.partition_by;
    }
    if !spec.order_by.is_empty() {
        if let Some(ident) = spec.window_name.as_ref().filter(|_| !window.order_by.is_empty()) {
            return error("ORDER BY", ident);
        }
        window.order_by = &spec.order_by;
    }
    if spec.window_frame.is_some() {
        window.frame = spec.window_frame.as_ref();
    }
    Ok(window)
}
