//! Calls of functions: those with a syntax or rules of their own, aggregates, windows, and all
//! others.

use std::collections::VecDeque;

use datafusion_common::Column;
use datafusion_expr::Expr;
use freshet_sql::{
    Kind, SqlError, SqlState, Type, Value,
    functions::{self, named, named::Place},
    types::CastContext,
};
use sqlparser::ast::{
    self, DuplicateTreatment, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, NullTreatment,
    OrderByExpr,
};

use super::{
    Binder, MAX_DEPTH,
    expression::{case_of, if_there},
    name,
    typed::Typed,
};
use crate::{
    aggregate::AggregateKind,
    error::{to_sql, unsupported},
    held::{Held, must_hold},
    series::Series,
};

/// The arguments of a call, as they were written.
pub(super) struct Arguments<'a> {
    pub exprs: Vec<&'a ast::Expr>,
    pub names: Vec<Option<String>>,
    /// `f(*)`
    pub star: bool,
    pub distinct: bool,
    pub order: &'a [OrderByExpr],
}

impl<'a> Arguments<'a> {
    pub(super) fn of(function: &'a ast::Function) -> Result<Self, SqlError> {
        let mut arguments = Self { exprs: Vec::new(), names: Vec::new(), star: false, distinct: false, order: &[] };
        let list = match &function.args {
            FunctionArguments::None => return Ok(arguments),
            FunctionArguments::Subquery(_) => return Err(unsupported("a subquery as the arguments of a function")),
            FunctionArguments::List(list) => list,
        };
        arguments.distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
        for clause in &list.clauses {
            match clause {
                FunctionArgumentClause::OrderBy(order) => arguments.order = order,
                clause => return Err(unsupported(format_args!("{clause} in a call"))),
            }
        }
        for argument in &list.args {
            arguments.push(argument)?;
        }
        Ok(arguments)
    }

    fn push(&mut self, argument: &'a FunctionArg) -> Result<(), SqlError> {
        let (name, argument) = match argument {
            FunctionArg::Unnamed(argument) => (None, argument),
            FunctionArg::Named { name, arg, .. }
            | FunctionArg::ExprNamed { name: ast::Expr::Identifier(name), arg, .. } => (Some(name::fold(name)), arg),
            FunctionArg::ExprNamed { .. } => return Err(unsupported("an argument named by an expression")),
        };
        match argument {
            FunctionArgExpr::Expr(expr) => {
                self.exprs.push(expr);
                self.names.push(name);
            }
            FunctionArgExpr::Wildcard | FunctionArgExpr::QualifiedWildcard(_) => self.star = true,
            FunctionArgExpr::WildcardWithOptions(_) => return Err(unsupported("* with options in a call")),
        }
        Ok(())
    }
}

impl Binder<'_> {
    pub(super) fn function(&mut self, function: &ast::Function) -> Result<Typed, SqlError> {
        if let FunctionArguments::Subquery(query) = &function.args
            && name::function(&function.name)? == "array"
        {
            return self.array_subquery(query);
        }
        let (schema, name) = name::routine(&function.name)?;
        let arguments = Arguments::of(function)?;
        if !matches!(function.parameters, FunctionArguments::None) {
            return Err(unsupported("a call with two lists of arguments"));
        }
        if function.over.is_some() {
            if function.null_treatment == Some(NullTreatment::IgnoreNulls) {
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "IGNORE NULLS is not supported"));
            }
            return self.window_call(function, &name, &arguments);
        }
        if let Some(kind) = AggregateKind::named(&name) {
            return self.aggregate_call(function, kind, &name, &arguments);
        }
        if name == "grouping" {
            return self.grouping(&arguments);
        }
        if super::window::is_window_function(&name) {
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("window function {name} requires an OVER clause"),
            ));
        }
        let plain = [
            (arguments.star, "*"),
            (arguments.distinct, "DISTINCT"),
            (!arguments.order.is_empty(), "ORDER BY"),
            (function.filter.is_some(), "FILTER"),
            (!function.within_group.is_empty(), "WITHIN GROUP"),
        ];
        if let Some((_, what)) = plain.iter().find(|(used, _)| *used) {
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("{what} specified, but {name} is not an aggregate function"),
            ));
        }
        if let Some(series) = Series::named(schema.as_deref(), &name) {
            return self.series_call(series, &arguments, None);
        }
        self.plain_call(&name, &arguments)
    }

    fn plain_call(&mut self, name: &str, arguments: &Arguments<'_>) -> Result<Typed, SqlError> {
        match name {
            "coalesce" => return self.coalesce(&arguments.exprs),
            "nullif" => return self.null_if(&arguments.exprs),
            "row" => {
                let elements = self.row_elements(arguments.exprs.iter().copied())?;
                return self.record_of(elements);
            }
            "row_to_json" | "to_json" | "to_jsonb" => {
                if let [expr] = arguments.exprs.as_slice()
                    && let Some(object) = self.row_object(expr, name == "to_jsonb")?
                {
                    return Ok(object);
                }
            }
            _ => {}
        }
        let mut typed = Vec::with_capacity(arguments.exprs.len());
        for expr in &arguments.exprs {
            let object = match name {
                "json_build_object" | "json_build_array" => self.row_object(expr, false)?,
                "jsonb_build_object" | "jsonb_build_array" => self.row_object(expr, true)?,
                _ => None,
            };
            typed.push(match object {
                Some(object) => object,
                None => self.expression(expr)?,
            });
        }
        if arguments.names.iter().any(Option::is_some) {
            typed = positional(name, typed, &arguments.names)?;
        }
        if let ("pg_typeof", [argument]) = (name, typed.as_slice()) {
            return Typed::literal(&Value::Oid(argument.ty.oid()), Type::REGTYPE);
        }
        if functions::named(name).is_empty()
            && let [argument] = typed.as_slice()
            && let Some(kind) = Kind::from_catalog_name(name).filter(|kind| !kind.is_polymorphic())
        {
            // A type's name casts.
            return self.cast(argument.clone(), Type::of(kind), CastContext::Explicit);
        }
        self.call(name, typed)
    }

    /// COALESCE, which evaluates no more than it needs.
    fn coalesce(&mut self, exprs: &[&ast::Expr]) -> Result<Typed, SqlError> {
        let mut typed = Vec::with_capacity(exprs.len());
        for expr in exprs {
            typed.push(self.expression(expr)?);
        }
        let (mut typed, ty) = self.unify(typed, "COALESCE")?;
        let Some(last) = typed.pop() else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "COALESCE needs an argument"));
        };
        let mut otherwise = last;
        let mut held = 0;
        let mut branches: VecDeque<(Expr, Expr)> = VecDeque::new();
        let close = |branches: &mut VecDeque<_>, otherwise: Typed| match branches.is_empty() {
            true => otherwise,
            false => case_of(std::mem::take(branches).into_iter(), otherwise.expr, ty),
        };
        while let Some(value) = typed.pop() {
            if !must_hold(&value.expr) {
                self.makes_copy(&value.expr)?;
                branches.push_front(if_there(value.expr));
                continue;
            }
            held += 1;
            if held > MAX_DEPTH {
                return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "COALESCE has too many arguments"));
            }
            let rest = close(&mut branches, otherwise);
            let first = |_: &mut Self, value: Typed| Ok(case_of(std::iter::once(if_there(value.expr)), rest.expr, ty));
            otherwise = self.held(value, first)?;
        }
        Ok(close(&mut branches, otherwise))
    }

    /// What is made of a value that it may use in several places, and that is computed once.
    ///
    /// # Errors
    /// What making it returns.
    pub(super) fn held(
        &mut self,
        value: Typed,
        make: impl FnOnce(&mut Self, Typed) -> Result<Typed, SqlError>,
    ) -> Result<Typed, SqlError> {
        if !must_hold(&value.expr) {
            return make(self, value);
        }
        let name = self.fresh("held");
        let column = Expr::Column(Column::new_unqualified(name.clone()));
        let made = make(self, Typed::new(column, value.ty))?;
        let expr = Held::call(value.expr, name, made.expr, made.ty).map_err(to_sql)?;
        Ok(Typed::new(expr, made.ty))
    }

    fn null_if(&mut self, exprs: &[&ast::Expr]) -> Result<Typed, SqlError> {
        let [one, two] = exprs else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "NULLIF needs two arguments"));
        };
        let (one, two) = (self.expression(one)?, self.expression(two)?);
        self.held(one, |binder, one| {
            let equal = binder.compare("=", one.clone(), two.clone())?;
            let one =
                if one.is_unknown() && !two.is_unknown() { binder.coerce(one, two.ty)? } else { binder.settle(one)? };
            let null = Typed::literal(&Value::Null, one.ty)?;
            Ok(case_of(std::iter::once((equal.expr, null.expr)), one.expr, one.ty))
        })
    }
}

/// Puts named arguments in their places, with the defaults of those that are left out.
fn positional(function: &str, typed: Vec<Typed>, names: &[Option<String>]) -> Result<Vec<Typed>, SqlError> {
    let Some(places) = named::places(function, names)? else {
        return Err(named::missing(function, names, typed.iter().map(|typed| typed.kind().sql_name())));
    };
    let take = |place| match place {
        Place::Given(at) => Ok(typed[at].clone()),
        Place::Default(value) => {
            let ty = value.kind().map_or(Type::UNKNOWN, Type::of);
            Typed::literal(&value, ty)
        }
    };
    places.into_iter().map(take).collect()
}
