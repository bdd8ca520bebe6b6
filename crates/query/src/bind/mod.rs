//! From syntax to plans: names are resolved, types found, overloads chosen, access paths selected.
//!
//! A statement that is more than this crate's own plans can do stops with [`Stop::General`], and
//! becomes a general query.

pub mod access;
pub mod aggregate;
mod conflict;
mod expression;
pub mod first;
mod forms;
mod found;
pub mod general;
pub mod implied;
mod join;
pub mod modify;
pub mod need;
pub mod scope;
pub mod select;

use std::{cell::RefCell, rc::Rc};

use freshet_sql::{
    SqlError, SqlState, Type, Value,
    types::{Cast, CastContext, EvalContext, Kind},
};
use sqlparser::ast::{ObjectName, ObjectNamePart};

use crate::{
    expression::{Expression, Typed},
    schema::{Named, Oid, Schema, no_relation},
};
pub use freshet_sql::names::{fold as name_of, of_column as column_name};
pub use scope::{Scope, ScopeSource};

/// Why something was not bound.
#[derive(Debug)]
pub enum Stop {
    /// It is a general query; what it is that is too much here.
    General(&'static str),
    /// The statement is wrong: the client gets this error.
    Error(SqlError),
}

impl From<SqlError> for Stop {
    fn from(error: SqlError) -> Self {
        Self::Error(error)
    }
}

impl Stop {
    /// As an error, where general queries are of no use.
    pub fn into_error(self) -> SqlError {
        match self {
            Self::Error(error) => error,
            Self::General(what) => not_supported(format!("{what} here")),
        }
    }
}

/// What binding returns.
pub type Bound<T> = Result<T, Stop>;

/// In what surroundings a statement is bound.
pub struct Binder<'a> {
    /// The tables, views and roles that names are looked up in.
    pub schema: &'a Schema,
    /// Where names without a schema are looked for.
    pub path: &'a [Oid],
    /// The role in whose name it runs.
    pub role: Oid,
    /// What literals depend on: the time zone, formats, the clock.
    pub context: &'a EvalContext<'a>,
    /// The types of parameters, as far as they are known.
    pub parameters: RefCell<Vec<Option<Type>>>,
    /// The values of parameters whose types are known, where the plan is for these alone.
    pub values: Option<&'a [Value]>,
    /// Who plans general queries, where there may be any subqueries.
    pub planner: Option<&'a dyn general::Planner>,
    /// The subqueries that are run before the statement.
    pub firsts: RefCell<Vec<first::First>>,
    /// What it does with tables, for which the role needs privileges.
    pub needs: RefCell<Vec<Rc<need::Need>>>,
    /// Whether privileges are checked: not for a statement that is only described.
    pub checked: bool,
}

/// The parts of a name.
///
/// # Errors
/// When one of them is no identifier.
pub fn parts_of(name: &ObjectName) -> Result<Vec<String>, SqlError> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(identifier) => Ok(name_of(identifier)),
        other => Err(syntax_error(format!("{other} is no name"))),
    };
    name.0.iter().map(part).collect()
}

/// A name, and its schema if it says one; the database that may stand before that is this one.
///
/// # Errors
/// When there are too many parts.
pub fn qualified(name: &ObjectName) -> Result<(Option<String>, String), SqlError> {
    let mut parts = parts_of(name)?;
    match parts.len() {
        1..=3 => {
            let last = parts.pop().unwrap_or_default();
            Ok((parts.pop(), last))
        }
        _ => Err(syntax_error(format!("improper qualified name (too many dotted names): {name}"))),
    }
}

/// The error 42601: the statement has no such syntax.
pub fn syntax_error(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, message.into())
}

/// The error 0A000: the statement is right, and the server cannot do it.
pub fn not_supported(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
}

impl<'a> Binder<'a> {
    /// For statements and expressions without parameters and subqueries.
    pub fn new(schema: &'a Schema, path: &'a [Oid], role: Oid, context: &'a EvalContext<'a>) -> Self {
        let (parameters, firsts, needs) = Default::default();
        let (values, planner) = (None, None);
        Self { schema, path, role, context, parameters, values, planner, firsts, needs, checked: true }
    }
}

impl Binder<'_> {
    /// A relation's name, and its schema if it says one.
    ///
    /// # Errors
    /// When there are too many parts, or the first is another database.
    pub fn qualified(&self, name: &ObjectName) -> Result<(Option<String>, String), SqlError> {
        self.schema.check_database(&parts_of(name)?)?;
        qualified(name)
    }

    /// What a name of a relation means, with its schema.
    ///
    /// # Errors
    /// 42P01, 42501 when its schema may not be used.
    pub fn relation(&self, name: &ObjectName) -> Result<Named, SqlError> {
        let (schema, last) = self.qualified(name)?;
        let found = self.schema.lookup(self.role, self.path, schema.as_deref(), &last)?;
        found.ok_or_else(|| match schema {
            None => no_relation(&last),
            Some(schema) => no_relation(&format!("{schema}.{last}")),
        })
    }

    /// The type that a parameter is known to have.
    pub(crate) fn parameter_type(&self, number: u16) -> Option<Type> {
        let known = self.parameters.borrow().get(usize::from(number)).copied().flatten();
        known.filter(|ty| ty.kind() != Kind::Unknown)
    }

    pub(crate) fn set_parameter_type(&self, number: u16, ty: Type) {
        let mut parameters = self.parameters.borrow_mut();
        let needed = usize::from(number) + 1;
        if parameters.len() < needed {
            parameters.resize(needed, None);
        }
        let known = &mut parameters[needed - 1];
        if known.is_none_or(|known| known.kind() == Kind::Unknown) {
            *known = Some(ty);
        }
    }

    /// The same value as a value of `ty`.
    ///
    /// # Errors
    /// 42846, 42804, and what reading a literal returns.
    pub fn coerce(&self, typed: Typed, ty: Type, context: CastContext) -> Result<Typed, SqlError> {
        let expression = match (typed.ty.kind(), typed.expression) {
            (Kind::Unknown, Expression::Constant(Value::Null)) => Expression::NULL,
            (Kind::Unknown, Expression::Constant(literal)) if literal.as_str().is_some() => {
                Expression::Constant(Cast::find(Kind::Unknown, ty, context)?.apply(literal, self.context)?)
            }
            (Kind::Unknown, Expression::Parameter(number)) if ty.kind() != Kind::Unknown => {
                self.set_parameter_type(number, Type::of(ty.kind()));
                let known = self.parameter_type(number).unwrap_or(ty);
                if known.kind() != ty.kind() {
                    let given = Typed { expression: Expression::Parameter(number), ty: known };
                    return self.coerce(given, ty, context);
                }
                match Cast::find(known.kind(), ty, context) {
                    Ok(cast) if !cast.is_identity() => Expression::Cast(cast, Box::new(Expression::Parameter(number))),
                    _ => Expression::Parameter(number),
                }
            }
            (Kind::Unknown, expression) if ty.kind() == Kind::Unknown => expression,
            (from, expression) => {
                let from = if from == Kind::Unknown { Kind::Text } else { from };
                let cast = Cast::find(from, ty, context)?;
                if cast.is_identity() {
                    expression
                } else if let Expression::Constant(value) = &expression
                    && does_not_depend_on_session(from)
                    && does_not_depend_on_session(ty.kind())
                {
                    Expression::Constant(cast.apply(value.clone(), self.context)?)
                } else {
                    Expression::Cast(cast, Box::new(expression))
                }
            }
        };
        Ok(Typed { expression, ty })
    }

    /// The same, where anything of unknown type is text.
    ///
    /// # Errors
    /// As for [`Binder::coerce`].
    pub fn settle(&self, typed: Typed) -> Result<Typed, SqlError> {
        if typed.ty.kind() == Kind::Unknown { self.coerce(typed, Type::TEXT, CastContext::Implicit) } else { Ok(typed) }
    }
}

/// Whether values of this kind are read and written in the same way in all sessions.
fn does_not_depend_on_session(kind: Kind) -> bool {
    !kind.is_object_alias()
        && matches!(
            kind,
            Kind::Bool
                | Kind::Int2
                | Kind::Int4
                | Kind::Int8
                | Kind::Float4
                | Kind::Float8
                | Kind::Numeric
                | Kind::Text
                | Kind::Varchar
                | Kind::Char
                | Kind::Name
                | Kind::Uuid
                | Kind::Bytea
                | Kind::Oid
        )
}
