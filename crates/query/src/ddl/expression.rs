//! Expressions that the catalog keeps: defaults and conditions.

use std::ops::ControlFlow;

use freshet_sql::{
    SqlError, SqlState, Type, Value,
    types::{CastContext, Kind},
};
use sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart, Value as Literal, VisitMut,
    VisitorMut, visit_expressions, visit_expressions_mut,
};

use super::{
    syntax::Name,
    work::{Work, bound, error, is_system},
};
use crate::{
    bind::{Scope, name_of},
    expression::Expression,
    schema::{Named, Oid, Schema, Table, computed},
};

/// Puts sequences' ids in the place of their names.
struct Resolve<'w, F: Fn(&str) -> Result<Oid, SqlError>> {
    find: &'w F,
}

pub(super) fn literal(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Value(value) => match &value.value {
            Literal::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn is_regclass(ty: &ast::DataType) -> bool {
    Type::from_sql(ty).is_ok_and(|ty| ty.kind() == Kind::Regclass)
}

fn object_literal(oid: Oid) -> Expr {
    Expr::Cast {
        kind: ast::CastKind::DoubleColon,
        expr: Box::new(Expr::Value(Literal::SingleQuotedString(oid.to_string()).into())),
        data_type: ast::DataType::Regclass,
        array: false,
        format: None,
    }
}

impl<F: Fn(&str) -> Result<Oid, SqlError>> VisitorMut for Resolve<'_, F> {
    type Break = SqlError;

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<SqlError> {
        let resolve = |name: &str| match (self.find)(name) {
            Ok(oid) => ControlFlow::Continue(object_literal(oid)),
            Err(error) => ControlFlow::Break(error),
        };
        match expression {
            Expr::Cast { expr, data_type, .. } if is_regclass(data_type) => {
                if let Some(name) = literal(expr) {
                    *expression = resolve(name)?;
                }
            }
            Expr::Function(function) => {
                let name = match function.name.0.last() {
                    Some(ObjectNamePart::Identifier(name)) => name_of(name),
                    _ => String::new(),
                };
                if !matches!(name.as_str(), "nextval" | "currval" | "setval") {
                    return ControlFlow::Continue(());
                }
                if let FunctionArguments::List(list) = &mut function.args
                    && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))) = list.args.first_mut()
                    && let Some(name) = literal(argument)
                {
                    *argument = resolve(name)?;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The relations that an expression of the catalog refers to by their ids.
pub fn objects_of(sql: &str) -> Vec<Oid> {
    let Ok(expression) = crate::bind::modify::parse_expression(sql) else { return Vec::new() };
    let mut found = Vec::new();
    let _: ControlFlow<()> = visit_expressions(&expression, |expression| {
        if let Expr::Cast { expr, data_type, .. } = expression
            && is_regclass(data_type)
        {
            found.extend(literal(expr).and_then(|text| text.parse::<Oid>().ok()));
        }
        ControlFlow::Continue(())
    });
    found
}

/// Puts other relations in the place of those that an expression of the catalog refers to by their
/// ids.
///
/// # Errors
/// What `other` says.
pub(super) fn with_others(
    sql: &mut String,
    mut other: impl FnMut(Oid) -> Result<Oid, SqlError>,
) -> Result<(), SqlError> {
    if objects_of(sql).is_empty() {
        return Ok(());
    }
    let mut expression = crate::bind::modify::parse_expression(sql)?;
    let done = visit_expressions_mut(&mut expression, |expression| {
        if let Expr::Cast { expr, data_type, .. } = &*expression
            && is_regclass(data_type)
            && let Some(oid) = literal(expr).and_then(|text| text.parse::<Oid>().ok())
        {
            match other(oid) {
                Ok(other) => *expression = object_literal(other),
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    });
    if let ControlFlow::Break(error) = done {
        return Err(error);
    }
    *sql = expression.to_string();
    Ok(())
}

/// An expression of the catalog as people want to see it: with names of sequences instead of their
/// ids, and with PostgreSQL's names of types.
pub fn shown_expression(sql: &str, schema: &Schema, path: &[Oid]) -> String {
    struct Show<'s>(&'s Schema, &'s [Oid]);
    impl VisitorMut for Show<'_> {
        type Break = ();

        fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
            let Self(schema, path) = self;
            if let Expr::Cast { expr, data_type, .. } = expression
                && is_regclass(data_type)
                && let Some(sequence) = literal(expr).and_then(|text| schema.sequence(text.parse().ok()?))
            {
                let own = schema.named(sequence.namespace, &sequence.name);
                let name = match schema.find(path, &sequence.name) == own {
                    true => quoted(&sequence.name),
                    false => {
                        format!("{}.{}", quoted(schema.namespace_name(sequence.namespace)), quoted(&sequence.name))
                    }
                };
                **expr = Expr::Value(Literal::SingleQuotedString(name).into());
            }
            if let Expr::Identifier(name) = expression
                && name.quote_style.is_none()
                && freshet_sql::functions::WORDS_OF_SESSIONS.contains(&name.value.to_ascii_lowercase().as_str())
            {
                name.value.make_ascii_uppercase();
            }
            if let Expr::Function(function) = expression
                && function.args == FunctionArguments::None
            {
                *expression = Expr::Identifier(ast::Ident::new(function.name.to_string().to_uppercase()));
            }
            if let Expr::Cast { data_type, .. } = expression
                && let Ok(ty) = Type::from_sql(data_type)
            {
                // In PostgreSQL's words.
                let name = ast::Ident::new(ty.to_string());
                *data_type = ast::DataType::Custom(ast::ObjectName::from(vec![name]), Vec::new());
            }
            ControlFlow::Continue(())
        }
    }
    let Ok(mut expression) = crate::bind::modify::parse_expression(sql) else { return sql.to_owned() };
    // One pair of parentheses, where PostgreSQL's grammar needs them.
    while let Expr::Nested(inner) = expression {
        expression = *inner;
    }
    let _ = expression.visit(&mut Show(schema, path));
    match expression {
        Expr::Identifier(_)
        | Expr::Value(_)
        | Expr::TypedString(_)
        | Expr::Function(_)
        | Expr::Cast { .. }
        | Expr::Case { .. }
        | Expr::Array(_) => expression.to_string(),
        _ => format!("({expression})"),
    }
}

/// An identifier, quoted unless it means the same without.
pub(super) fn quoted(name: &str) -> String {
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
        && !sqlparser::keywords::ALL_KEYWORDS.contains(&name.to_ascii_uppercase().as_str());
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// The default of a column that takes its values from a sequence.
pub(super) fn next_value(sequence: Oid) -> String {
    format!("nextval('{sequence}'::REGCLASS)")
}

impl Work<'_, '_, '_> {
    /// The sequence that a text names.
    fn sequence_named(&self, text: &str) -> Result<Oid, SqlError> {
        if let Ok(oid) = text.trim().parse::<Oid>()
            && self.schema().sequence(oid).is_some()
        {
            return Ok(oid);
        }
        let name = parse_name(text)?;
        match self.find(&name)? {
            Some(Named::Sequence(oid)) => Ok(oid),
            Some(_) => Err(error(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is not a sequence", name.name))),
            None => Err(crate::schema::no_relation(text)),
        }
    }

    /// An expression as the catalog keeps it: sequences by their ids, so that these can be renamed.
    pub(super) fn resolved(&self, expression: &Expr) -> Result<Expr, SqlError> {
        let mut expression = expression.clone();
        let find = |name: &str| self.sequence_named(name);
        match expression.visit(&mut Resolve { find: &find }) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(expression),
        }
    }

    /// A column's default, as the catalog keeps it, found to be one: and as it is evaluated. NULL
    /// is no default.
    pub(super) fn default(&self, value: &Expr, name: &str, ty: Type) -> Result<(Option<String>, Expression), SqlError> {
        let resolved = self.resolved(value)?;
        let binder = self.binder();
        let typed = match binder.expression(&resolved, &Scope::nothing()) {
            Err(crate::bind::Stop::Error(error)) if error.state == SqlState::UNDEFINED_COLUMN => {
                let message = "cannot use column reference in DEFAULT expression";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            other => bound(other, "DEFAULT expression")?,
        };
        let from = typed.ty.kind();
        // Sequences are in it by their ids.
        let in_words = match objects_of(&resolved.to_string()).is_empty() {
            true => computed::default_in_words(&binder, &resolved, typed.clone(), ty, false),
            false => None,
        };
        let coerced = binder.coerce(typed, ty, CastContext::Assignment).map_err(|cause| {
            if cause.state != SqlState::DATATYPE_MISMATCH && cause.state != SqlState::CANNOT_COERCE {
                return cause;
            }
            let (to, from) = (ty.kind().sql_name(), from.sql_name());
            let message = format!("column \"{name}\" is of type {to} but default expression is of type {from}");
            error(SqlState::DATATYPE_MISMATCH, message).with_hint("You will need to rewrite or cast the expression.")
        })?;
        let kept = match &coerced.expression {
            Expression::Constant(Value::Null) => None,
            _ => Some(in_words.map_or_else(|| kept(&resolved), Ok)?),
        };
        Ok((kept, coerced.expression))
    }

    /// A CHECK's condition on a table's rows: as the catalog keeps it, and as it is evaluated.
    pub(super) fn check_condition(&self, condition: &Expr, table: &Table) -> Result<(String, Expression), SqlError> {
        let scope = Scope::over(table);
        bound(self.binder().condition(&self.resolved(condition)?, &scope, "CHECK"), "check constraint")?;
        let resolved = self.of_row_alone(condition)?;
        let expression = bound(self.binder().condition(&resolved, &scope, "CHECK"), "check constraint")?;
        Ok((kept(&resolved)?, expression))
    }

    /// An expression on a table's row as the catalog keeps it: without the table's name, which may
    /// change.
    pub(super) fn of_row_alone(&self, expression: &Expr) -> Result<Expr, SqlError> {
        let mut resolved = self.resolved(expression)?;
        let _: ControlFlow<()> = visit_expressions_mut(&mut resolved, |expression| {
            if let Expr::CompoundIdentifier(parts) = expression
                && let Some(last) = parts.pop()
            {
                *expression = Expr::Identifier(last);
            }
            ControlFlow::Continue(())
        });
        Ok(resolved)
    }
}

/// An expression as text, which can be read again.
pub(super) fn kept(expression: &Expr) -> Result<String, SqlError> {
    let text = expression.to_string();
    crate::bind::modify::parse_expression(&text)
        .map_err(|_| error(SqlState::FEATURE_NOT_SUPPORTED, format!("this expression cannot be kept: {text}")))?;
    Ok(text)
}

/// A name within a text, as `regclass` reads it.
pub(super) fn parse_name(text: &str) -> Result<Name, SqlError> {
    let wrong = || error(SqlState::INVALID_NAME, format!("invalid name syntax: \"{text}\""));
    let dialect = sqlparser::dialect::PostgreSqlDialect {};
    let mut parser = sqlparser::parser::Parser::new(&dialect).try_with_sql(text).map_err(|_| wrong())?;
    let name = parser.parse_object_name(false).map_err(|_| wrong())?;
    let (schema, name) = crate::bind::qualified(&name)?;
    Ok(Name { database: None, schema: schema.filter(|schema| !is_system(schema)), name })
}

/// The names of columns that an expression has: the last parts of its names.
pub(super) fn columns_in(expression: &Expr) -> Vec<String> {
    let mut found = Vec::new();
    let _: ControlFlow<()> = visit_expressions(expression, |expression| {
        match expression {
            Expr::Identifier(name) => found.push(name_of(name)),
            Expr::CompoundIdentifier(parts) => found.extend(parts.last().map(name_of)),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    found.sort_unstable();
    found.dedup();
    found
}
