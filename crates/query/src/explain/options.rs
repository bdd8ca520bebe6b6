//! What EXPLAIN is asked for, by PostgreSQL's rules.

use freshet_sql::{SqlError, SqlState, Type};
use sqlparser::ast::{self, DescribeAlias, Expr, Statement, UtilityOption};

use crate::bind::name_of;

/// In which form a plan is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A line for each step, each a row.
    #[default]
    Text,
    /// One value of type json.
    Json,
    /// YAML, as one text.
    Yaml,
    /// XML, as one text.
    Xml,
}

impl Format {
    /// The type of the column that has the plan.
    pub fn column_type(self) -> Type {
        match self {
            Self::Json => Type::JSON,
            Self::Text | Self::Yaml | Self::Xml => Type::TEXT,
        }
    }
}

/// What EXPLAIN is asked for. VERBOSE, COSTS, SETTINGS, BUFFERS and WAL are understood, and ask for
/// what is not known here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The statement runs.
    pub analyze: bool,
    /// With the time that each step took.
    pub timing: bool,
    /// With the times of planning and of the run.
    pub summary: bool,
    /// The form of the answer: text, JSON, YAML or XML.
    pub format: Format,
}

/// An option's value. It can only be a word, a string or a number.
enum Value {
    Nothing,
    Text(String),
    Number(String),
}

impl Options {
    /// Those of a statement that is EXPLAIN, or nothing if it is another one.
    ///
    /// # Errors
    /// 42601 for an unknown option and for a wrong truth value, 22023 for a wrong format, and for
    /// options that need ANALYZE.
    pub fn of(statement: &Statement) -> Result<Option<Self>, SqlError> {
        match statement {
            Statement::Explain { describe_alias, query_plan, estimate, format, .. }
                if *describe_alias != DescribeAlias::Explain || *query_plan || *estimate || format.is_some() =>
            {
                let word = match format {
                    Some(_) => "format".to_owned(),
                    None if *query_plan => "query".to_owned(),
                    None if *estimate => "estimate".to_owned(),
                    None => describe_alias.to_string(),
                };
                Err(syntax(format!("syntax error at or near \"{word}\"")))
            }
            Statement::Explain { options: Some(options), .. } => Self::from_list(options).map(Some),
            Statement::Explain { analyze, .. } => {
                Ok(Some(Self { analyze: *analyze, timing: *analyze, summary: *analyze, ..Self::default() }))
            }
            _ => Ok(None),
        }
    }

    fn from_list(list: &[UtilityOption]) -> Result<Self, SqlError> {
        let mut options = Self::default();
        let (mut timing, mut summary, mut wal) = (None, None, false);
        for option in list {
            let name = name_of(&option.name);
            let value = value(&option.arg)?;
            match name.as_str() {
                "analyze" | "analyse" => options.analyze = truth(&name, &value)?,
                "verbose" | "costs" | "buffers" | "settings" => drop(truth(&name, &value)?),
                "wal" => wal = truth(&name, &value)?,
                "timing" => timing = Some(truth(&name, &value)?),
                "summary" => summary = Some(truth(&name, &value)?),
                "format" => options.format = format(&name, &value)?,
                _ => return Err(syntax(format!("unrecognized EXPLAIN option \"{name}\""))),
            }
        }
        for (asked, name) in [(wal, "WAL"), (timing == Some(true), "TIMING")] {
            if asked && !options.analyze {
                return Err(invalid(format!("EXPLAIN option {name} requires ANALYZE")));
            }
        }
        options.timing = timing.unwrap_or(options.analyze);
        options.summary = summary.unwrap_or(options.analyze);
        Ok(options)
    }
}

/// What is planned for a statement that is to be explained: itself, or the query in it.
///
/// # Errors
/// 42601 for a statement that has no plan.
pub fn subject(explained: &Statement) -> Result<Statement, SqlError> {
    let query = match explained {
        Statement::Query(_)
        | Statement::Insert(_)
        | Statement::Update(_)
        | Statement::Delete(_)
        | Statement::Merge(_)
        | Statement::Execute { .. } => return Ok(explained.clone()),
        Statement::Declare { stmts } => match stmts.as_slice() {
            [declared] => declared.for_query.as_ref(),
            _ => None,
        },
        Statement::CreateTable(table) => table.query.as_ref(),
        _ => None,
    };
    match query {
        Some(query) => Ok(Statement::Query(query.clone())),
        None => {
            let text = explained.to_string();
            let word = text.split(' ').next().unwrap_or_default();
            Err(syntax(format!("syntax error at or near \"{word}\"")))
        }
    }
}

fn syntax(message: String) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}

fn invalid(message: String) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn value(given: &Option<Expr>) -> Result<Value, SqlError> {
    let Some(given) = given else { return Ok(Value::Nothing) };
    let wrong = || syntax(format!("syntax error at or near \"{given}\""));
    Ok(match given {
        Expr::Identifier(name) => Value::Text(name_of(name)),
        Expr::Value(value) => match &value.value {
            ast::Value::Boolean(truth) => Value::Text(truth.to_string()),
            ast::Value::Number(number, _) => Value::Number(number.clone()),
            ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => Value::Text(text.clone()),
            _ => return Err(wrong()),
        },
        Expr::UnaryOp { op, expr } => match (op, expr.as_ref()) {
            (ast::UnaryOperator::Plus | ast::UnaryOperator::Minus, Expr::Value(value)) => match &value.value {
                ast::Value::Number(number, _) if *op == ast::UnaryOperator::Minus => {
                    Value::Number(format!("-{number}"))
                }
                ast::Value::Number(number, _) => Value::Number(number.clone()),
                _ => return Err(wrong()),
            },
            _ => return Err(wrong()),
        },
        _ => return Err(wrong()),
    })
}

/// A truth value, as options of statements have it: none is true.
fn truth(name: &str, value: &Value) -> Result<bool, SqlError> {
    let found = match value {
        Value::Nothing => Some(true),
        Value::Number(number) => match number.as_str() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        },
        Value::Text(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "on" => Some(true),
            "false" | "off" => Some(false),
            _ => None,
        },
    };
    found.ok_or_else(|| syntax(format!("{name} requires a Boolean value")))
}

fn format(name: &str, value: &Value) -> Result<Format, SqlError> {
    match value {
        Value::Nothing => Err(syntax(format!("{name} requires a parameter"))),
        Value::Number(text) | Value::Text(text) => match text.as_str() {
            "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            "yaml" => Ok(Format::Yaml),
            "xml" => Ok(Format::Xml),
            other => Err(invalid(format!("unrecognized value for EXPLAIN option \"{name}\": \"{other}\""))),
        },
    }
}
