//! Bound expressions on a table's rows as SQL, as PostgreSQL writes those of its catalog: with every
//! operator in parentheses and every type said, so that the text means the same in all sessions.

use std::fmt::Write;

use freshet_sql::{
    Type, Value,
    functions::quote_identifier,
    types::{EvalContext, Kind, text},
};

use crate::{
    expression::{Comparison, Expression},
    schema::Table,
};

/// A writer for the expressions of one table.
struct Deparser<'t> {
    table: &'t Table,
    /// With no more parentheses than PostgreSQL puts when it is asked for a pretty text.
    pretty: bool,
}

/// An expression on a table's rows, which are source 0, as SQL; nothing when it has a part that
/// has no text here. `pretty` leaves out the parentheses around the whole.
pub fn deparse(table: &Table, expression: &Expression, pretty: bool) -> Option<String> {
    Deparser { table, pretty }.write(expression)
}

/// The same with the parentheses that an index's list of columns needs around what is no function.
pub fn indexed(table: &Table, expression: &Expression, pretty: bool) -> Option<String> {
    let text = deparse(table, expression, pretty)?;
    Some(if looks_like_function(expression) { text } else { format!("({text})") })
}

fn is_name(function: &str) -> bool {
    function.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

fn looks_like_function(expression: &Expression) -> bool {
    match expression {
        Expression::Call(function, _) => is_name(function.name),
        Expression::Coalesce(_) => true,
        _ => false,
    }
}

impl Deparser<'_> {
    /// An expression, with its own parentheses.
    fn write(&self, expression: &Expression) -> Option<String> {
        Some(match expression {
            Expression::Column { source: 0, column } => {
                quote_identifier(&self.table.columns.get(usize::from(*column))?.name).to_string()
            }
            Expression::Constant(value) => constant(value, None)?,
            Expression::Call(function, arguments) => return self.call(function, arguments),
            Expression::Cast(cast, inner) => {
                if let Expression::Constant(value) = &**inner {
                    return constant(value, Some(cast.to()));
                }
                self.cast(inner, cast.to())?
            }
            Expression::Compare(comparison, operands) => {
                let (one, other) = self.operands(&operands.0, &operands.1)?;
                self.wrapped(format!("{one} {} {other}", operator(*comparison)))
            }
            Expression::And(all) => self.chain(all, " AND ")?,
            Expression::Or(all) => self.chain(all, " OR ")?,
            Expression::Not(inner) => match &**inner {
                Expression::IsNull(operand) => self.wrapped(format!("{} IS NOT NULL", self.part(operand)?)),
                Expression::In(operand, list) => self.listed(operand, list, "<> ALL")?,
                _ => self.wrapped(format!("NOT {}", self.part(inner)?)),
            },
            Expression::IsNull(operand) => self.wrapped(format!("{} IS NULL", self.part(operand)?)),
            Expression::Is(operand, truth) => {
                let truth = if *truth { "TRUE" } else { "FALSE" };
                self.wrapped(format!("{} IS {truth}", self.part(operand)?))
            }
            Expression::Distinct(operands) => {
                let (one, other) = self.operands(&operands.0, &operands.1)?;
                self.wrapped(format!("{one} IS DISTINCT FROM {other}"))
            }
            Expression::Case(branches, otherwise) => {
                let (before, end) = if self.pretty { ("\n    ", "\n") } else { (" ", " ") };
                let mut text = "CASE".to_owned();
                for (condition, result) in branches {
                    let (condition, result) = (self.write(condition)?, self.write(result)?);
                    let _ = write!(text, "{before}WHEN {condition} THEN {result}");
                }
                let ty = branches.iter().find_map(|(_, result)| self.type_of(result));
                let otherwise = match &**otherwise {
                    Expression::Constant(Value::Null) => format!("NULL::{}", ty?),
                    otherwise => self.write(otherwise)?,
                };
                let _ = write!(text, "{before}ELSE {otherwise}{end}END");
                text
            }
            Expression::Coalesce(all) => {
                let all = all.iter().map(|one| self.write(one)).collect::<Option<Vec<_>>>()?;
                format!("COALESCE({})", all.join(", "))
            }
            Expression::In(operand, list) => self.listed(operand, list, "= ANY")?,
            Expression::Quantified { any, operator, operands } => {
                let (one, other) = (self.part(&operands.0)?, self.write(&operands.1)?);
                let all = if *any { "ANY" } else { "ALL" };
                self.wrapped(format!("{one} {} {all} ({other})", operator.name))
            }
            Expression::Array(_, elements) => {
                let all = elements.iter().map(|one| self.write(one)).collect::<Option<Vec<_>>>()?;
                format!("ARRAY[{}]", all.join(", "))
            }
            _ => return None,
        })
    }

    /// Parentheses around an operator.
    fn wrapped(&self, text: String) -> String {
        if self.pretty { text } else { format!("({text})") }
    }

    /// A part of an operator: in parentheses if it is one itself.
    fn part(&self, expression: &Expression) -> Option<String> {
        let text = self.write(expression)?;
        let open = match expression {
            Expression::Column { .. } | Expression::Constant(_) | Expression::Coalesce(_) | Expression::Array(..) => {
                false
            }
            Expression::Call(function, _) => !is_name(function.name),
            Expression::Cast(..) => false,
            _ => true,
        };
        Some(if self.pretty && open { format!("({text})") } else { text })
    }

    fn chain(&self, all: &[Expression], between: &str) -> Option<String> {
        let part = |one: &Expression| match one {
            // In a pretty text only what binds less tightly is in parentheses.
            Expression::And(_) | Expression::Or(_) => self.part(one),
            _ => self.write(one),
        };
        let all = all.iter().map(part).collect::<Option<Vec<_>>>()?;
        Some(self.wrapped(all.join(between)))
    }

    fn listed(&self, operand: &Expression, list: &[Expression], how: &str) -> Option<String> {
        let list = list.iter().map(|one| self.write(one)).collect::<Option<Vec<_>>>()?;
        let operand = self.as_operand(operand, None)?;
        Some(self.wrapped(format!("{operand} {how} (ARRAY[{}])", list.join(", "))))
    }

    fn cast(&self, inner: &Expression, to: Type) -> Option<String> {
        let text = self.write(inner)?;
        let plain = self.pretty && matches!(inner, Expression::Column { .. });
        Some(if plain { format!("{text}::{to}") } else { format!("({text})::{to}") })
    }

    /// An operand; where the operator takes it as of another type without a cast, that is said, as
    /// PostgreSQL does.
    fn as_operand(&self, expression: &Expression, wanted: Option<Kind>) -> Option<String> {
        let own = self.type_of(expression).map(|ty| ty.kind());
        let constant = matches!(expression, Expression::Constant(_));
        match (own, wanted) {
            (Some(Kind::Varchar), None | Some(Kind::Text)) if !constant => self.cast(expression, Type::TEXT),
            _ => self.part(expression),
        }
    }

    fn operands(&self, one: &Expression, other: &Expression) -> Option<(String, String)> {
        Some((self.as_operand(one, None)?, self.as_operand(other, None)?))
    }

    fn call(&self, function: &'static freshet_sql::functions::Function, arguments: &[Expression]) -> Option<String> {
        let wanted = |at: usize| function.arguments.get(at).or(function.arguments.last()).copied();
        let argument = |(at, one): (usize, &Expression)| match is_name(function.name) {
            true => match (self.type_of(one).map(|ty| ty.kind()), wanted(at)) {
                (Some(Kind::Varchar), Some(Kind::Text)) if !matches!(one, Expression::Constant(_)) => {
                    self.cast(one, Type::TEXT)
                }
                _ => self.write(one),
            },
            false => self.as_operand(one, wanted(at)),
        };
        let all = arguments.iter().enumerate().map(argument).collect::<Option<Vec<_>>>()?;
        if is_name(function.name) {
            return Some(format!("{}({})", quote_identifier(function.name), all.join(", ")));
        }
        match all.as_slice() {
            [one] => Some(self.wrapped(format!("{} {one}", function.name))),
            [one, other] => Some(self.wrapped(format!("{one} {} {other}", function.name))),
            _ => None,
        }
    }

    fn type_of(&self, expression: &Expression) -> Option<Type> {
        Some(match expression {
            Expression::Column { column, .. } => self.table.columns.get(usize::from(*column))?.ty,
            Expression::Constant(value) => Type::of(value.kind()?),
            Expression::Call(function, _) => Type::of(function.result),
            Expression::Cast(cast, _) => cast.to(),
            Expression::Coalesce(all) => self.type_of(all.first()?)?,
            Expression::Case(branches, _) => branches.iter().find_map(|(_, result)| self.type_of(result))?,
            Expression::Array(..) | Expression::Subquery { .. } | Expression::Parameter(_) => return None,
            Expression::Session(..) | Expression::Identity(_) => return None,
            _ => Type::BOOL,
        })
    }
}

fn operator(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Equal => "=",
        Comparison::GreaterOrEqual => ">=",
        Comparison::Greater => ">",
        Comparison::NotEqual => "<>",
    }
}

/// A value, with its type where it would be taken for another one without.
fn constant(value: &Value, to: Option<Type>) -> Option<String> {
    if value.is_null() {
        return Some(to.map_or_else(|| "NULL".to_owned(), |ty| format!("NULL::{ty}")));
    }
    let kind = value.kind()?;
    let mut shown = String::new();
    text::output_as(kind, value.as_ref(), &EvalContext::default(), &mut shown);
    let begins_with_digit = shown.starts_with(|first: char| first.is_ascii_digit());
    let plain = match kind {
        Kind::Bool => return Some(if shown == "t" { "true" } else { "false" }.to_owned()),
        Kind::Int4 => begins_with_digit,
        Kind::Numeric => begins_with_digit && shown.contains(['.', 'e', 'E']),
        _ => false,
    };
    let ty = to.unwrap_or(Type::of(kind));
    let is_own = to.is_none_or(|to| to == Type::of(kind));
    Some(match plain && is_own {
        true => shown,
        false => format!("'{}'::{ty}", shown.replace('\'', "''")),
    })
}
