//! Conditions on one column that a scan can apply itself.

use std::{fmt, sync::Arc};

use datafusion_common::Result;
use datafusion_expr::{Expr, Operator};
use freshet_sql::{
    Kind, SqlError, Type, Value, ValueRef,
    general::{Column, Filter, Relation, Test},
    types::Cast,
};

use crate::{
    error::external,
    estimate::finds,
    exec::FoundKeys,
    function::{Outer, Parameter, RowFunction, Work, called},
    key::Key,
    layout::{from_scalar, literal_text},
    session,
};

/// A value that is the same for all rows of a scan.
#[derive(Clone, Debug)]
enum Operand {
    Literal(Value, String),
    Parameter(Parameter),
    Outer(Outer),
    Cast(Box<Self>, Cast),
}

impl Operand {
    fn of(expr: &Expr, ty: Type) -> Option<Self> {
        if let Expr::Literal(scalar, _) = expr {
            return Some(Self::Literal(from_scalar(ty, scalar).ok()?, literal_text(ty, scalar)));
        }
        if let Some((parameter, _)) = called::<Parameter>(expr) {
            return Some(Self::Parameter(parameter.clone()));
        }
        if let Some((outer, _)) = called::<Outer>(expr) {
            return Some(Self::Outer(outer.clone()));
        }
        match called::<RowFunction>(expr)? {
            (RowFunction { work: Work::Cast(cast), arguments, .. }, [inner]) => {
                let inner = Self::of(inner, *arguments.first()?)?;
                Some(Self::Cast(Box::new(inner), *cast))
            }
            _ => None,
        }
    }

    fn value(&self) -> Result<Value> {
        match self {
            Self::Literal(value, _) => Ok(value.clone()),
            Self::Parameter(parameter) => parameter.value(),
            Self::Outer(outer) => from_scalar(outer.ty, &outer.scalar()?).map_err(external),
            Self::Cast(inner, cast) => {
                let value = inner.value()?;
                session::with(|session| cast.apply(value, session.context).map_err(external))
            }
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(_, text) => f.write_str(text),
            Self::Parameter(parameter) => write!(f, "${}", parameter.number + 1),
            Self::Outer(outer) => write!(f, "outer {}.{}", outer.subquery, outer.at),
            Self::Cast(inner, _) => inner.fmt(f),
        }
    }
}

#[derive(Clone, Debug)]
enum Check {
    Compare(Operator, Operand),
    Among(Vec<Operand>),
    /// Among the elements of an array.
    AmongElements(Operand),
    /// Among the keys of a join's other side.
    AmongFound(Arc<FoundKeys>),
    IsNull,
    IsNotNull,
}

/// A condition on a column, whose values are known when the scan begins.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    column: usize,
    name: String,
    kind: Kind,
    check: Check,
}

/// A condition whose values are known.
pub(crate) enum Resolved {
    Filter(Filter),
    /// No row can fulfil it.
    Never,
    /// All rows fulfil it.
    Always,
}

impl Condition {
    /// The condition that an expression is, if it is one on a single one of these columns.
    pub fn of(expr: &Expr, columns: &[Column]) -> Option<Self> {
        let made = |(at, ty): (usize, Type), check| {
            Some(Self { column: at, name: columns[at].name.clone(), kind: ty.kind(), check })
        };
        match expr {
            Expr::IsNull(inner) => made(plain(inner, columns)?, Check::IsNull),
            Expr::IsNotNull(inner) => made(plain(inner, columns)?, Check::IsNotNull),
            Expr::Column(_) => {
                let (at, ty) = plain(expr, columns)?;
                let truth = Operand::Literal(Value::Bool(true), "true".to_owned());
                (ty.kind() == Kind::Bool).then(|| made((at, ty), Check::Compare(Operator::Eq, truth)))?
            }
            Expr::Not(inner) => {
                let (at, ty) = plain(inner, columns)?;
                let truth = Operand::Literal(Value::Bool(false), "false".to_owned());
                (ty.kind() == Kind::Bool).then(|| made((at, ty), Check::Compare(Operator::Eq, truth)))?
            }
            Expr::BinaryExpr(binary) => {
                let op = binary.op;
                let compares = matches!(
                    op,
                    Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
                );
                if !compares {
                    return None;
                }
                if let Some((column, ty)) = compared(&binary.left, columns) {
                    return made(column, Check::Compare(op, operand(&binary.right, ty)?));
                }
                let (column, ty) = compared(&binary.right, columns)?;
                made(column, Check::Compare(op.swap()?, operand(&binary.left, ty)?))
            }
            Expr::InList(list) if !list.negated => {
                let (column, ty) = compared(&list.expr, columns)?;
                let operands = list.list.iter().map(|expr| operand(expr, ty)).collect::<Option<_>>()?;
                made(column, Check::Among(operands))
            }
            expr => {
                let (function, arguments) = called::<RowFunction>(expr)?;
                let [left, array] = arguments else { return None };
                let is_equal = matches!(function.work, Work::Any(operator) if operator.name == "=");
                let array_type = *function.arguments.get(1)?;
                let (column, ty) = compared(left, columns).filter(|_| is_equal)?;
                if array_type.kind().element() != Some(ty.kind()) {
                    return None;
                }
                made(column, Check::AmongElements(Operand::of(array, array_type)?))
            }
        }
    }

    /// A condition on a column whose values a join finds first.
    pub fn found(column: usize, described: &Column, found: Arc<FoundKeys>) -> Self {
        let check = Check::AmongFound(found);
        Self { column, name: described.name.clone(), kind: described.ty.kind(), check }
    }

    /// The share of rows that it lets through, guessed.
    pub fn selectivity(&self, relation: &dyn Relation) -> f64 {
        let equality = matches!(
            self.check,
            Check::Compare(Operator::Eq, _) | Check::Among(_) | Check::AmongElements(_) | Check::AmongFound(_)
        );
        match equality {
            true if finds(relation, self.column) => 0.001,
            true => 0.02,
            false => 0.3,
        }
    }

    /// The condition with the values that this thread's session gives it.
    ///
    /// # Errors
    /// When a parameter is missing.
    pub fn resolve(&self) -> Result<Resolved> {
        let filter = |test| Resolved::Filter(Filter { column: self.column, test });
        Ok(match &self.check {
            Check::IsNull => filter(Test::IsNull),
            Check::IsNotNull => filter(Test::IsNotNull),
            Check::Compare(op, operand) => self.compare(*op, operand.value()?)?,
            Check::Among(operands) => {
                let values = operands.iter().map(Operand::value).collect::<Result<Vec<_>>>()?;
                self.among(values)
            }
            Check::AmongFound(found) => found.get().map_or(Resolved::Always, |values| self.among(values)),
            Check::AmongElements(operand) => match operand.value()? {
                Value::Array(array) => self.among(array.values().to_vec()),
                _ => Resolved::Never,
            },
        })
    }

    fn among(&self, values: Vec<Value>) -> Resolved {
        let mut values: Vec<Value> = values
            .into_iter()
            .filter_map(|value| match self.fit(value) {
                Fitted::Value(value) => Some(value),
                Fitted::Below | Fitted::Above | Fitted::Null => None,
            })
            .collect();
        values.sort();
        values.dedup();
        match values.len() {
            0 => Resolved::Never,
            1 => Resolved::Filter(Filter { column: self.column, test: Test::Equal(values.swap_remove(0)) }),
            _ => Resolved::Filter(Filter { column: self.column, test: Test::Among(values) }),
        }
    }

    fn compare(&self, op: Operator, value: Value) -> Result<Resolved> {
        let value = match self.fit(value) {
            Fitted::Null => return Ok(Resolved::Never),
            Fitted::Value(value) => value,
            // The value lies beyond all that the column can hold.
            Fitted::Below => {
                return Ok(match op {
                    Operator::Gt | Operator::GtEq | Operator::NotEq => self.any_value(),
                    _ => Resolved::Never,
                });
            }
            Fitted::Above => {
                return Ok(match op {
                    Operator::Lt | Operator::LtEq | Operator::NotEq => self.any_value(),
                    _ => Resolved::Never,
                });
            }
        };
        let test = match op {
            Operator::Eq => Test::Equal(value),
            Operator::NotEq => Test::NotEqual(value),
            Operator::Lt => Test::Less(value),
            Operator::LtEq => Test::LessOrEqual(value),
            Operator::Gt => Test::Greater(value),
            Operator::GtEq => Test::GreaterOrEqual(value),
            op => return Err(external(SqlError::internal(format!("{op} is no comparison")))),
        };
        Ok(Resolved::Filter(Filter { column: self.column, test }))
    }

    fn any_value(&self) -> Resolved {
        Resolved::Filter(Filter { column: self.column, test: Test::IsNotNull })
    }

    /// A value as the column's kind has it. Whole numbers may be wider than the column.
    fn fit(&self, value: Value) -> Fitted {
        if value.is_null() {
            return Fitted::Null;
        }
        let number = match (&value, self.kind) {
            (Value::Int2(_) | Value::Int4(_) | Value::Int8(_), Kind::Int2 | Kind::Int4 | Kind::Int8) => value.as_i64(),
            _ => None,
        };
        let Some(number) = number else { return Fitted::Value(value) };
        let fitted = match self.kind {
            Kind::Int2 => i16::try_from(number).map(Value::Int2).ok(),
            Kind::Int4 => i32::try_from(number).map(Value::Int4).ok(),
            _ => Some(Value::Int8(number)),
        };
        match fitted {
            Some(value) => Fitted::Value(value),
            None if number < 0 => Fitted::Below,
            None => Fitted::Above,
        }
    }
}

enum Fitted {
    Value(Value),
    Below,
    Above,
    Null,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.check {
            Check::Compare(op, operand) => write!(f, "{name} {op} {operand}"),
            Check::Among(operands) => {
                let operands: Vec<String> = operands.iter().map(ToString::to_string).collect();
                write!(f, "{name} IN ({})", operands.join(", "))
            }
            Check::AmongElements(operand) => write!(f, "{name} = ANY ({operand})"),
            Check::AmongFound(_) => write!(f, "{name} IN (keys of the join)"),
            Check::IsNull => write!(f, "{name} IS NULL"),
            Check::IsNotNull => write!(f, "{name} IS NOT NULL"),
        }
    }
}

/// The column that an expression is.
fn plain(expr: &Expr, columns: &[Column]) -> Option<(usize, Type)> {
    let Expr::Column(column) = expr else { return None };
    let at = columns.iter().position(|known| known.name == column.name)?;
    Some((at, columns[at].ty))
}

/// The column that one side of a comparison is, and the type in which it is compared.
fn compared(expr: &Expr, columns: &[Column]) -> Option<((usize, Type), Type)> {
    if let Some(column) = plain(expr, columns) {
        return Some((column, column.1));
    }
    if let Some((_, [inner])) = called::<Key>(expr) {
        return plain(inner, columns).map(|column| (column, column.1));
    }
    let (function, arguments) = called::<RowFunction>(expr)?;
    let ([inner], Work::Cast(_)) = (arguments, &function.work) else { return None };
    let column = plain(inner, columns)?;
    let integer = |kind: Kind| matches!(kind, Kind::Int2 | Kind::Int4 | Kind::Int8);
    let widens = integer(column.1.kind()) && integer(function.result.kind());
    widens.then_some((column, function.result))
}

/// The operand that is compared with a column of type `ty`.
fn operand(expr: &Expr, ty: Type) -> Option<Operand> {
    match called::<Key>(expr) {
        Some((key, [inner])) => Operand::of(inner, key.ty),
        _ => Operand::of(expr, ty),
    }
}

/// Whether a value passes a test.
pub(crate) fn passes(test: &Test, value: ValueRef<'_>) -> bool {
    let compare = |other: &Value| value.compare(other.as_ref());
    match test {
        Test::IsNull => value.is_null(),
        Test::IsNotNull => !value.is_null(),
        _ if value.is_null() => false,
        Test::Less(other) => compare(other).is_lt(),
        Test::LessOrEqual(other) => compare(other).is_le(),
        Test::Equal(other) => value.equals(other.as_ref()),
        Test::GreaterOrEqual(other) => compare(other).is_ge(),
        Test::Greater(other) => compare(other).is_gt(),
        Test::NotEqual(other) => !value.equals(other.as_ref()),
        // They are sorted.
        Test::Among(values) => values.binary_search_by(|other| value.compare(other.as_ref()).reverse()).is_ok(),
    }
}
