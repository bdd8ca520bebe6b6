//! Bound expressions on a table's rows as SQL, as PostgreSQL writes those of its catalog: with
//! every operator in parentheses and every type said, so that the text means the same in all
//! sessions.

use std::fmt::Write;

use freshet_sql::{
    Type, Value,
    functions::quote_identifier,
    types::{EvalContext, Kind, text},
};

use crate::{
    bind::implied,
    expression::{Comparison, Expression},
    schema::{Column, Table},
};

/// A writer for the expressions of one table.
struct Deparser<'t> {
    columns: &'t [Column],
    /// With no more parentheses than PostgreSQL puts when it is asked for a pretty text.
    pretty: bool,
}

/// An expression on a table's rows, which are source 0, as SQL that has this type; nothing when it
/// has a part that has no text here. `pretty` leaves out the parentheses around the whole.
pub fn deparse(table: &Table, expression: &Expression, ty: Type, pretty: bool) -> Option<String> {
    over(&table.columns, expression, ty, pretty)
}

/// The same of an expression that is on no row.
pub fn alone(expression: &Expression, ty: Type, pretty: bool) -> Option<String> {
    over(&[], expression, ty, pretty)
}

/// A value that a text was read as, with its type. Only numbers that are read as of this type
/// without being told stand without quotes.
pub fn read_from_text(value: &Value, ty: Type) -> Option<String> {
    let shown = Deparser { columns: &[], pretty: false }.constant(value, Some(ty))?;
    match shown.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((number, cast)) => Some(format!("'{number}'{cast}")),
        None if matches!(value.kind(), Some(Kind::Int2 | Kind::Int8)) && !shown.contains('\'') => {
            Some(format!("'{shown}'::{ty}"))
        }
        None => Some(shown),
    }
}

fn over(columns: &[Column], expression: &Expression, ty: Type, pretty: bool) -> Option<String> {
    let deparser = Deparser { columns, pretty };
    match expression {
        Expression::Constant(value) => deparser.constant(value, Some(ty)),
        // A cast that changes nothing is no part of the expression.
        Expression::Column { .. } if deparser.type_of(expression)? != ty => deparser.cast(expression, ty),
        _ => deparser.write(expression),
    }
}

/// Texts in a list, as PostgreSQL puts commas between them.
pub fn list(texts: impl IntoIterator<Item = String>) -> String {
    let mut list = String::new();
    for text in texts {
        if !list.is_empty() {
            list.push_str(if text.starts_with('\n') { "," } else { ", " });
        }
        list.push_str(&text);
    }
    list
}

/// The same with the parentheses that an index's list of columns needs around what is no function.
pub fn indexed(table: &Table, expression: &Expression, ty: Type, pretty: bool) -> Option<String> {
    let text = deparse(table, expression, ty, pretty)?;
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
                quote_identifier(&self.columns.get(usize::from(*column))?.name).to_string()
            }
            Expression::Constant(value) => self.constant(value, None)?,
            Expression::Call(function, arguments) => return self.call(function, arguments),
            Expression::Cast(cast, inner) => {
                if let Expression::Constant(value) = &**inner {
                    return self.constant(value, Some(cast.to()));
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
                Expression::Is(operand, truth) => {
                    let truth = if *truth { "TRUE" } else { "FALSE" };
                    self.wrapped(format!("{} IS NOT {truth}", self.part(operand)?))
                }
                Expression::Compare(..) => self.wrapped(format!("NOT {}", self.write(inner)?)),
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
                // NULLIF is kept like this.
                if let [(Expression::Compare(Comparison::Equal, pair), Expression::Constant(Value::Null))] = &**branches
                    && implied::same(&pair.0, otherwise)
                {
                    return Some(format!("NULLIF({}, {})", self.write(&pair.0)?, self.write(&pair.1)?));
                }
                let mut text = "\nCASE".to_owned();
                for (condition, result) in branches {
                    let (condition, result) = (self.write(condition)?, self.write(result)?);
                    let _ = write!(text, "\n    WHEN {condition} THEN {result}");
                }
                let ty = branches.iter().find_map(|(_, result)| self.type_of(result));
                let otherwise = match &**otherwise {
                    Expression::Constant(Value::Null) => format!("NULL::{}", ty?),
                    otherwise => self.write(otherwise)?,
                };
                let _ = write!(text, "\n    ELSE {otherwise}\nEND");
                text
            }
            Expression::Coalesce(all) => {
                let all = all.iter().map(|one| self.write(one)).collect::<Option<Vec<_>>>()?;
                format!("COALESCE({})", all.join(", "))
            }
            Expression::In(operand, list) => self.listed(operand, list, "= ANY")?,
            // A list of `varchar`, as it is written here.
            Expression::Quantified { any, operator, operands }
                if matches!((*any, operator.name), (true, "=") | (false, "<>"))
                    && let Expression::Cast(cast, array) = &operands.1
                    && cast.to() == Type::of(Kind::TextArray)
                    && let Expression::Array(Kind::Varchar, list) = &**array =>
            {
                self.varchars(&operands.0, list, if *any { "= ANY" } else { "<> ALL" })?
            }
            Expression::Quantified { any, operator, operands } => {
                let (one, other) = (self.as_operand(&operands.0, None)?, self.write(&operands.1)?);
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
            Expression::Case(..) => !text.starts_with("NULLIF("),
            _ => true,
        };
        Some(if self.pretty && open { format!("({text})") } else { text })
    }

    fn chain(&self, all: &[Expression], between: &str) -> Option<String> {
        let part = |one: &Expression| match one {
            // In a pretty text, only what is no plain operator or binds less tightly.
            Expression::Or(_) | Expression::In(..) | Expression::Quantified { .. } => self.part(one),
            Expression::Not(inner) if matches!(**inner, Expression::In(..)) => self.part(one),
            _ => self.write(one),
        };
        let all = all.iter().map(part).collect::<Option<Vec<_>>>()?;
        Some(self.wrapped(all.join(between)))
    }

    fn listed(&self, operand: &Expression, list: &[Expression], how: &str) -> Option<String> {
        if self.type_of(operand).is_some_and(|ty| ty.kind() == Kind::Varchar) {
            return self.varchars(operand, list, how);
        }
        let list = list.iter().map(|one| self.write(one)).collect::<Option<Vec<_>>>()?.join(", ");
        let operand = self.as_operand(operand, None)?;
        Some(self.wrapped(format!("{operand} {how} (ARRAY[{list}])")))
    }

    /// The same of a list of `varchar`, which are compared as texts.
    fn varchars(&self, operand: &Expression, list: &[Expression], how: &str) -> Option<String> {
        let element = |one: &Expression| match one {
            Expression::Constant(value) => self.constant(value, Some(Type::of(Kind::Varchar))),
            one => self.write(one),
        };
        let list = list.iter().map(element).collect::<Option<Vec<_>>>()?.join(", ");
        let list = if self.pretty { format!("ARRAY[{list}]") } else { format!("(ARRAY[{list}])") };
        let operand = self.as_operand(operand, None)?;
        Some(self.wrapped(format!("{operand} {how} ({list}::text[])")))
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

    /// What is compared. PostgreSQL compares numbers of several widths as they are.
    fn operands(&self, one: &Expression, other: &Expression) -> Option<(String, String)> {
        let class = |kind: Kind| match kind {
            Kind::Int2 | Kind::Int4 | Kind::Int8 => 1,
            Kind::Float4 | Kind::Float8 => 2,
            _ => 0,
        };
        let as_it_is = |operand: &Expression| match operand {
            Expression::Cast(cast, inner)
                if !cast.is_explicit()
                    && class(cast.to().kind()) > 0
                    && self.type_of(inner).is_some_and(|ty| class(ty.kind()) == class(cast.to().kind())) =>
            {
                self.as_operand(inner, None)
            }
            _ => self.as_operand(operand, None),
        };
        Some((as_it_is(one)?, as_it_is(other)?))
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
            false if self.pretty && at == 0 && arguments.len() == 2 && binds_as_tightly(one, function.name) => {
                self.write(one)
            }
            false => self.as_operand(one, wanted(at)),
        };
        let all = arguments.iter().enumerate().map(argument).collect::<Option<Vec<_>>>()?;
        match (function.name, all.as_slice(), arguments) {
            ("timezone", [zone, _], [_, time]) => {
                return Some(format!("({} AT TIME ZONE {zone})", self.part(bare(time))?));
            }
            ("extract", _, [Expression::Constant(field), time]) => {
                return Some(format!("EXTRACT({} FROM {})", field.as_str()?, self.write(bare(time))?));
            }
            ("current_date" | "current_timestamp" | "localtime" | "localtimestamp", all, _) => {
                let digits = if all.is_empty() { String::new() } else { format!("({})", all.join(", ")) };
                return Some(format!("{}{digits}", function.name.to_uppercase()));
            }
            _ => {}
        }
        if matches!(function.name, "least" | "greatest" | "nullif") {
            // These are no functions.
            return Some(format!("{}({})", function.name.to_uppercase(), all.join(", ")));
        }
        if is_name(function.name) {
            return Some(format!("{}({})", quote_identifier(function.name), all.join(", ")));
        }
        match all.as_slice() {
            [one] => Some(self.wrapped(format!("{} {one}", function.name))),
            [one, other] => Some(self.wrapped(format!("{one} {} {other}", function.name))),
            _ => None,
        }
    }

    /// A value, with its type where it would be taken for another one without.
    fn constant(&self, value: &Value, to: Option<Type>) -> Option<String> {
        if value.is_null() {
            return Some(to.map_or_else(|| "NULL".to_owned(), |ty| format!("NULL::{ty}")));
        }
        let kind = value.kind()?;
        let mut shown = String::new();
        text::output_as(kind, value.as_ref(), &EvalContext::default(), &mut shown);
        if kind == Kind::Bool {
            return Some(if shown == "t" { "true" } else { "false" }.to_owned());
        }
        let ty = to.unwrap_or(Type::of(kind));
        let whole = !shown.is_empty() && shown.bytes().all(|byte| byte.is_ascii_digit());
        let number = shown.starts_with(|first: char| first.is_ascii_digit())
            && shown.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        // A whole number becomes one of another width where it has to.
        let as_it_is = match kind {
            Kind::Int2 | Kind::Int4 | Kind::Int8 => whole && shown.parse::<i32>().is_ok(),
            Kind::Numeric => number && !whole,
            _ => false,
        };
        Some(match kind {
            _ if as_it_is && ty == Type::of(kind) => shown,
            Kind::Numeric | Kind::Float4 | Kind::Float8 if number => match self.pretty {
                true => format!("{shown}::{ty}"),
                false => format!("({shown})::{ty}"),
            },
            _ => format!("'{}'::{ty}", shown.replace('\'', "''")),
        })
    }

    fn type_of(&self, expression: &Expression) -> Option<Type> {
        Some(match expression {
            Expression::Column { column, .. } => self.columns.get(usize::from(*column))?.ty,
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

/// What is cast without a statement's asking.
fn bare(expression: &Expression) -> &Expression {
    match expression {
        Expression::Cast(cast, inner) if !cast.is_explicit() && !matches!(**inner, Expression::Constant(_)) => inner,
        _ => expression,
    }
}

/// Whether an arithmetic operator on the left of another one needs no parentheses in a pretty text.
fn binds_as_tightly(left: &Expression, operator: &str) -> bool {
    let strength = |operator: &str| match operator {
        "*" | "/" | "%" => 2,
        "+" | "-" => 1,
        _ => 0,
    };
    match left {
        Expression::Call(function, arguments) if arguments.len() == 2 => {
            strength(operator) > 0 && strength(function.name) >= strength(operator)
        }
        _ => false,
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
