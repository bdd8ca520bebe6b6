//! Expressions as they are evaluated: names resolved, overloads chosen, casts explicit.
//!
//! A column is read where it lies. A comparison of a column with a parameter allocates nothing; a
//! text that a function takes is copied into a value.

use std::cmp::Ordering;

use freshet_engine::Rid;
use freshet_sql::{
    SqlError, Type, Value, ValueRef,
    functions::{self, Function, SessionFunction, Volatility},
    row::Layout,
    types::{Array, Cast, EvalContext, Kind},
};
use smallvec::SmallVec;

pub use crate::session_view::SessionView;
pub(crate) use crate::session_view::no_cursor;
use crate::{bind::first::Given, inputs::captured::Captured, schema::Oid};

/// A row that an expression's columns refer to.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// As a table has it, with its record id.
    Stored(&'a Layout, &'a [u8], Rid),
    /// Values that were computed before.
    Values(&'a [Value]),
    /// No row: all columns are null.
    Absent,
}

/// What an expression depends on besides rows.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// The parameters' values.
    pub parameters: &'a [Value],
    /// What the subqueries have given that were run before.
    pub firsts: &'a [Given],
    /// What functions know of the session.
    pub context: &'a EvalContext<'a>,
    /// What only the session itself knows.
    pub session: &'a dyn SessionView,
    /// Where values go, or come from, that the database does not determine: while the statement is
    /// recorded, and where it is executed again.
    pub captured: Option<&'a Captured>,
}

impl Environment<'_> {
    /// The value of something that the database does not determine: `fresh`, unless the statement
    /// is executed again.
    ///
    /// # Errors
    /// As `fresh`; where the statement is executed again, that it asks for more than it did.
    #[inline]
    pub fn captured(&self, fresh: impl FnOnce() -> Result<Value, SqlError>) -> Result<Value, SqlError> {
        match self.captured {
            None => fresh(),
            Some(captured) => captured.value(fresh),
        }
    }
}

/// A comparison of two values of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `=`
    Equal,
    /// `>=`
    GreaterOrEqual,
    /// `>`
    Greater,
    /// `<>`
    NotEqual,
}

/// An expression whose names and types are known.
#[derive(Clone, Debug)]
pub enum Expression {
    /// A value.
    Constant(Value),
    /// A parameter, from 0.
    Parameter(u16),
    /// What a subquery has given that was run before.
    Subquery {
        /// The number of the subquery in its statement.
        number: u16,
        /// Whether it may be a long list, which should not be looked at for each row.
        is_long: bool,
    },
    /// A column of one of the rows.
    Column {
        /// The number of the row among those that the expression sees.
        source: u16,
        /// Which column of it.
        column: u16,
    },
    /// A function or operator.
    Call(&'static Function, Box<[Expression]>),
    /// A function of the session.
    Session(SessionFunction, Box<[Expression]>),
    /// The next value of an identity column, from this sequence.
    Identity(Oid),
    /// A cast.
    Cast(Cast, Box<Expression>),
    /// A comparison of values of one kind.
    Compare(Comparison, Box<(Expression, Expression)>),
    /// AND of all of these.
    And(Box<[Expression]>),
    /// OR of all of these.
    Or(Box<[Expression]>),
    /// The contrary.
    Not(Box<Expression>),
    /// `IS NULL`
    IsNull(Box<Expression>),
    /// `IS TRUE`, `IS FALSE`
    Is(Box<Expression>, bool),
    /// `IS DISTINCT FROM`
    Distinct(Box<(Expression, Expression)>),
    /// CASE: conditions with results, and the result if none holds.
    Case(Box<[(Expression, Expression)]>, Box<Expression>),
    /// The first that is not null.
    Coalesce(Box<[Expression]>),
    /// `operand IN (list)`, all of one kind.
    In(Box<Expression>, Box<[Expression]>),
    /// `(operands) IN ((row), …)`, column by column of one kind.
    InRows(Box<[Expression]>, Box<[Box<[Expression]>]>),
    /// `left operator ANY (array)`, with the elements of the operator's kind; or ALL.
    Quantified {
        /// ANY, not ALL.
        any: bool,
        /// The operator.
        operator: &'static Function,
        /// Left operand and array.
        operands: Box<(Expression, Expression)>,
    },
    /// `ARRAY[…]` of elements of this kind.
    Array(Kind, Box<[Expression]>),
}

/// An expression and its type.
#[derive(Clone, Debug)]
pub struct Typed {
    /// What is evaluated.
    pub expression: Expression,
    /// The type of its values; unknown for literals and parameters that nothing is known of yet.
    pub ty: Type,
}

impl Comparison {
    /// By its operator.
    pub fn named(operator: &str) -> Option<Self> {
        Some(match operator {
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            "=" => Self::Equal,
            ">=" => Self::GreaterOrEqual,
            ">" => Self::Greater,
            "<>" => Self::NotEqual,
            _ => return None,
        })
    }

    /// The same with the operands the other way round.
    pub fn turned(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::GreaterOrEqual => Self::LessOrEqual,
            Self::Greater => Self::Less,
            same => same,
        }
    }

    #[inline]
    fn holds(self, one: ValueRef<'_>, other: ValueRef<'_>) -> bool {
        match self {
            Self::Equal => one.equals(other),
            Self::NotEqual => !one.equals(other),
            Self::Less => one.compare(other) == Ordering::Less,
            Self::LessOrEqual => one.compare(other) != Ordering::Greater,
            Self::GreaterOrEqual => one.compare(other) != Ordering::Less,
            Self::Greater => one.compare(other) == Ordering::Greater,
        }
    }
}

/// The value of a row's column.
///
/// # Errors
/// When the row is damaged.
#[inline]
pub fn column<'a>(rows: &[Source<'a>], source: u16, column: u16) -> Result<ValueRef<'a>, SqlError> {
    match rows.get(usize::from(source)) {
        Some(Source::Stored(layout, row, _)) => layout.get(row, usize::from(column)),
        Some(Source::Values(values)) => Ok(values.get(usize::from(column)).map_or(ValueRef::Null, Value::as_ref)),
        Some(Source::Absent) | None => Ok(ValueRef::Null),
    }
}

impl Expression {
    /// Null.
    pub const NULL: Self = Self::Constant(Value::Null);

    /// Evaluates it to a value that borrows where it can; what has to be computed is put into
    /// `hold`.
    ///
    /// # Errors
    /// What goes wrong in it.
    #[inline]
    pub fn look<'a>(
        &'a self,
        rows: &[Source<'a>],
        environment: &Environment<'a>,
        hold: &'a mut Value,
    ) -> Result<ValueRef<'a>, SqlError> {
        match self {
            Self::Column { source, column: number } => column(rows, *source, *number),
            Self::Constant(value) => Ok(value.as_ref()),
            Self::Parameter(number) => {
                let value = environment.parameters.get(usize::from(*number));
                Ok(value.map_or(ValueRef::Null, Value::as_ref))
            }
            Self::Subquery { number, .. } => match environment.firsts.get(usize::from(*number)) {
                Some(Ok(value)) => Ok(value.as_ref()),
                Some(Err(error)) => Err(error.clone()),
                None => Ok(ValueRef::Null),
            },
            _ => {
                *hold = self.evaluate(rows, environment)?;
                Ok(hold.as_ref())
            }
        }
    }

    /// Evaluates it as a condition: unknown does not hold.
    ///
    /// # Errors
    /// What goes wrong in it.
    #[inline]
    pub fn holds(&self, rows: &[Source<'_>], environment: &Environment<'_>) -> Result<bool, SqlError> {
        if let Self::And(all) = self {
            // One that is unknown decides.
            for one in all {
                if !one.holds(rows, environment)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let held = environment.context.large.held();
        let holds = self.evaluate(rows, environment)?.as_bool() == Some(true);
        environment.context.large.back_to(held);
        Ok(holds)
    }

    /// Evaluates it.
    ///
    /// # Errors
    /// What goes wrong in it.
    pub fn evaluate(&self, rows: &[Source<'_>], environment: &Environment<'_>) -> Result<Value, SqlError> {
        let compute = |one: &Self| one.evaluate(rows, environment);
        Ok(match self {
            Self::Constant(value) => value.clone(),
            Self::Parameter(number) => environment.parameters.get(usize::from(*number)).cloned().unwrap_or(Value::Null),
            Self::Subquery { number, .. } => {
                environment.firsts.get(usize::from(*number)).cloned().unwrap_or(Ok(Value::Null))?
            }
            Self::Column { source, column: number } => column(rows, *source, *number)?.to_value(),
            Self::Call(function, arguments) => {
                let large = &environment.context.large;
                let held = large.held();
                let values: SmallVec<[Value; 3]> = arguments.iter().map(compute).collect::<Result<_, _>>()?;
                let value = match function.volatility {
                    Volatility::Volatile => environment.captured(|| function.call(&values, environment.context))?,
                    _ => function.call(&values, environment.context)?,
                };
                if large.held() > held {
                    // The arguments are gone then.
                    large.back_to(held);
                    large.made(&value)?;
                }
                value
            }
            Self::Session(function, arguments) => {
                let values: SmallVec<[Value; 3]> = arguments.iter().map(compute).collect::<Result<_, _>>()?;
                environment.captured(|| environment.session.call(*function, &values))?
            }
            Self::Identity(sequence) => environment.captured(|| environment.session.identity_value(*sequence))?,
            Self::Cast(cast, operand) => {
                functions::made(cast.apply(compute(operand)?, environment.context)?, environment.context)?
            }
            Self::Compare(comparison, operands) => {
                let (mut one, mut other) = (Value::Null, Value::Null);
                let one = operands.0.look(rows, environment, &mut one)?;
                let other = operands.1.look(rows, environment, &mut other)?;
                match one.is_null() || other.is_null() {
                    true => Value::Null,
                    false => Value::Bool(comparison.holds(one, other)),
                }
            }
            Self::And(operands) => {
                let mut all = Value::Bool(true);
                for operand in operands {
                    match compute(operand)?.as_bool() {
                        Some(false) => return Ok(Value::Bool(false)),
                        None => all = Value::Null,
                        Some(true) => {}
                    }
                }
                all
            }
            Self::Or(operands) => {
                let mut any = Value::Bool(false);
                for operand in operands {
                    match compute(operand)?.as_bool() {
                        Some(true) => return Ok(Value::Bool(true)),
                        None => any = Value::Null,
                        Some(false) => {}
                    }
                }
                any
            }
            Self::Not(operand) => compute(operand)?.as_bool().map_or(Value::Null, |truth| Value::Bool(!truth)),
            Self::IsNull(operand) => Value::Bool(operand.look(rows, environment, &mut Value::Null)?.is_null()),
            Self::Is(operand, truth) => Value::Bool(compute(operand)?.as_bool() == Some(*truth)),
            Self::Distinct(operands) => {
                Value::Bool(functions::is_distinct(&compute(&operands.0)?, &compute(&operands.1)?))
            }
            Self::Case(branches, otherwise) => {
                for (condition, result) in branches {
                    if condition.holds(rows, environment)? {
                        return compute(result);
                    }
                }
                compute(otherwise)?
            }
            Self::Coalesce(operands) => {
                for operand in operands {
                    let value = compute(operand)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Value::Null
            }
            Self::In(operand, list) => {
                let mut hold = Value::Null;
                let operand = operand.look(rows, environment, &mut hold)?;
                let mut found = if operand.is_null() && !list.is_empty() { Value::Null } else { Value::Bool(false) };
                for element in list {
                    let mut hold = Value::Null;
                    let element = element.look(rows, environment, &mut hold)?;
                    if element.is_null() {
                        found = Value::Null;
                    } else if !operand.is_null() && operand.equals(element) {
                        return Ok(Value::Bool(true));
                    }
                }
                found
            }
            Self::InRows(operands, list) => {
                let operands = operands.iter().map(compute).collect::<Result<SmallVec<[Value; 4]>, _>>()?;
                let mut found = Value::Bool(false);
                for row in list {
                    let (mut same, mut unknown) = (true, false);
                    for (operand, element) in operands.iter().zip(row) {
                        let mut hold = Value::Null;
                        let element = element.look(rows, environment, &mut hold)?;
                        if operand.is_null() || element.is_null() {
                            unknown = true;
                        } else if !operand.as_ref().equals(element) {
                            same = false;
                            break;
                        }
                    }
                    match (same, unknown) {
                        (true, false) => return Ok(Value::Bool(true)),
                        (true, true) => found = Value::Null,
                        (false, _) => {}
                    }
                }
                found
            }
            Self::Quantified { any, operator, operands } => {
                let (left, array) = (compute(&operands.0)?, compute(&operands.1)?);
                match any {
                    true => functions::any(operator, &left, &array, environment.context)?,
                    false => functions::all(operator, &left, &array, environment.context)?,
                }
            }
            Self::Array(kind, elements) => {
                let values = elements.iter().map(compute).collect::<Result<Vec<_>, _>>()?;
                functions::made(Value::array(Array::new(*kind, values)), environment.context)?
            }
        })
    }

    /// Calls `visit` with every column in it.
    pub fn columns(&self, visit: &mut dyn FnMut(u16, u16)) {
        if let Self::Column { source, column } = self {
            visit(*source, *column);
        }
        self.children(&mut |child| child.columns(visit));
    }

    /// Whether a long list is in it.
    pub fn has_long_list(&self) -> bool {
        let mut found = matches!(self, Self::Subquery { is_long: true, .. });
        self.children(&mut |child| found |= child.has_long_list());
        found
    }

    /// Whether the value of such a subquery is in it.
    pub fn has_subquery(&self, such: &dyn Fn(u16) -> bool) -> bool {
        let mut found = matches!(self, Self::Subquery { number, .. } if such(*number));
        self.children(&mut |child| found |= child.has_subquery(such));
        found
    }

    /// Calls `change` with every column in it.
    pub fn each_column(&mut self, change: &mut dyn FnMut(&mut u16, &mut u16)) {
        if let Self::Column { source, column } = self {
            change(source, column);
        }
        self.children_mut(&mut |child| child.each_column(change));
    }

    /// Whether it has no column of a source from `from` on.
    pub fn is_before(&self, from: u16) -> bool {
        let mut before = true;
        self.columns(&mut |source, _| before &= source < from);
        before
    }

    /// What PostgreSQL takes for its cost, about: how many functions and operators it calls.
    pub fn cost(&self) -> usize {
        let mut cost = match self {
            Self::Call(..)
            | Self::Session(..)
            | Self::Compare(..)
            | Self::Distinct(_)
            | Self::In(..)
            | Self::InRows(..)
            | Self::Quantified { .. } => 1,
            _ => 0,
        };
        self.children(&mut |child| cost += child.cost());
        cost
    }

    /// Whether it may have another value when it is evaluated again within a statement.
    pub fn is_volatile(&self) -> bool {
        let mut volatile = match self {
            Self::Call(function, _) => function.volatility == Volatility::Volatile,
            Self::Session(function, _) => function.is_volatile(),
            Self::Identity(_) => true,
            _ => false,
        };
        self.children(&mut |child| volatile |= child.is_volatile());
        volatile
    }

    /// Whether its value depends on nothing but the rows: not on the session, the time or what else
    /// there is in the database.
    pub fn is_immutable(&self) -> bool {
        let immutable = |function: &Function| function.volatility == Volatility::Immutable;
        let mut all = match self {
            Self::Call(function, _) => immutable(function),
            Self::Quantified { operator, .. } => immutable(operator),
            Self::Cast(cast, _) => cast.is_immutable(),
            Self::Session(..) | Self::Identity(_) | Self::Parameter(_) | Self::Subquery { .. } => false,
            _ => true,
        };
        self.children(&mut |child| all &= child.is_immutable());
        all
    }

    /// How many expressions it is made of, with itself.
    pub fn parts(&self) -> usize {
        let mut parts = 1;
        self.children(&mut |child| parts += child.parts());
        parts
    }

    /// Visits the expressions that this one is made of.
    pub fn children<'e>(&'e self, visit: &mut dyn FnMut(&'e Self)) {
        match self {
            Self::Constant(_)
            | Self::Parameter(_)
            | Self::Subquery { .. }
            | Self::Column { .. }
            | Self::Identity(_) => {}
            Self::Call(_, all) | Self::Session(_, all) | Self::Array(_, all) => all.iter().for_each(visit),
            Self::And(all) | Self::Or(all) | Self::Coalesce(all) => all.iter().for_each(visit),
            Self::Cast(_, one) | Self::Not(one) | Self::IsNull(one) | Self::Is(one, _) => visit(one),
            Self::Compare(_, two) | Self::Distinct(two) | Self::Quantified { operands: two, .. } => {
                visit(&two.0);
                visit(&two.1);
            }
            Self::Case(branches, otherwise) => {
                for (condition, result) in branches {
                    visit(condition);
                    visit(result);
                }
                visit(otherwise);
            }
            Self::In(one, list) => {
                visit(one);
                list.iter().for_each(visit);
            }
            Self::InRows(operands, list) => {
                operands.iter().for_each(&mut *visit);
                list.iter().flat_map(|row| row.iter()).for_each(visit);
            }
        }
    }

    /// Calls `visit` with each expression that it is made of.
    pub fn children_mut(&mut self, visit: &mut dyn FnMut(&mut Self)) {
        match self {
            Self::Constant(_)
            | Self::Parameter(_)
            | Self::Subquery { .. }
            | Self::Column { .. }
            | Self::Identity(_) => {}
            Self::Call(_, all) | Self::Session(_, all) | Self::Array(_, all) => all.iter_mut().for_each(visit),
            Self::And(all) | Self::Or(all) | Self::Coalesce(all) => all.iter_mut().for_each(visit),
            Self::Cast(_, one) | Self::Not(one) | Self::IsNull(one) | Self::Is(one, _) => visit(one),
            Self::Compare(_, two) | Self::Distinct(two) | Self::Quantified { operands: two, .. } => {
                visit(&mut two.0);
                visit(&mut two.1);
            }
            Self::Case(branches, otherwise) => {
                for (condition, result) in branches {
                    visit(condition);
                    visit(result);
                }
                visit(otherwise);
            }
            Self::In(one, list) => {
                visit(one);
                list.iter_mut().for_each(visit);
            }
            Self::InRows(operands, list) => {
                operands.iter_mut().for_each(&mut *visit);
                list.iter_mut().flat_map(|row| row.iter_mut()).for_each(visit);
            }
        }
    }
}
