//! Aggregates: what they are, and what stands behind a GROUP BY.

use std::cell::RefCell;

use freshet_sql::{SqlError, SqlState, Type, types::Kind};
use sqlparser::ast;

use crate::expression::{Expression, Typed};

/// An aggregate function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// `count(*)`
    CountRows,
    /// `count(x)`
    Count,
    /// `sum(x)`
    Sum,
    /// `avg(x)`
    Average,
    /// `min(x)`
    Least,
    /// `max(x)`
    Greatest,
    /// `bool_and(x)`
    Every,
    /// `bool_or(x)`
    Some,
}

/// A call of one.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// The function.
    pub aggregate: Aggregate,
    /// Of what; nothing for `count(*)`.
    pub argument: Option<Expression>,
    /// The kind of the argument's values.
    pub kind: Kind,
    /// DISTINCT: equal values count once.
    pub distinct: bool,
    /// FILTER: only rows that fulfil this count.
    pub filter: Option<Expression>,
    /// The type of its result.
    pub ty: Type,
}

/// What is computed for each group.
#[derive(Debug, Default)]
pub struct Grouping {
    /// The expressions of GROUP BY, as they were written and as they are evaluated.
    pub groups: Vec<(ast::Expr, Typed)>,
    /// The calls met so far. Their results follow the groups' values in the row that is computed.
    pub calls: RefCell<Vec<AggregateCall>>,
    /// The number of that row among the sources.
    pub source: u16,
}

impl Aggregate {
    /// The one of this name. A few more are left to general queries.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "count" => Self::Count,
            "sum" => Self::Sum,
            "avg" => Self::Average,
            "min" => Self::Least,
            "max" => Self::Greatest,
            "bool_and" | "every" => Self::Every,
            "bool_or" => Self::Some,
            _ => return None,
        })
    }

    /// What it makes of values of a kind: what they are cast to before, and its result.
    ///
    /// # Errors
    /// 42883 when it takes no such values.
    pub fn over(self, name: &str, kind: Kind) -> Result<(Kind, Type), SqlError> {
        let none = || {
            let message = format!("function {name}({}) does not exist", kind.sql_name());
            SqlError::new(SqlState::UNDEFINED_FUNCTION, message)
        };
        Ok(match (self, kind) {
            (Self::CountRows | Self::Count, kind) => (kind, Type::INT8),
            (Self::Sum, Kind::Int2 | Kind::Int4) => (kind, Type::INT8),
            (Self::Sum, Kind::Int8 | Kind::Numeric) => (kind, Type::NUMERIC),
            (Self::Sum, Kind::Float4 | Kind::Float8 | Kind::Interval) => (kind, Type::of(kind)),
            (Self::Average, Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Numeric) => (kind, Type::NUMERIC),
            (Self::Average, Kind::Float4 | Kind::Float8) => (Kind::Float8, Type::FLOAT8),
            (Self::Average, Kind::Interval) => (kind, Type::INTERVAL),
            (Self::Every | Self::Some, Kind::Bool) => (kind, Type::BOOL),
            (Self::Least | Self::Greatest, Kind::Varchar | Kind::Unknown) => (Kind::Text, Type::TEXT),
            (
                Self::Least | Self::Greatest,
                Kind::Bool | Kind::Uuid | Kind::Macaddr | Kind::Macaddr8 | Kind::Json | Kind::Jsonb,
            ) => return Err(none()),
            (Self::Least | Self::Greatest, Kind::Cidr) => (Kind::Inet, Type::of(Kind::Inet)),
            (Self::Least | Self::Greatest, kind) => (kind, Type::of(kind)),
            _ => return Err(none()),
        })
    }
}
