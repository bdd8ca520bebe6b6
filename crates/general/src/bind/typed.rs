//! Expressions with PostgreSQL's types, and how one type becomes another.

use datafusion_common::tree_node::TreeNode;
use datafusion_expr::Expr;
use freshet_sql::{
    Kind, SqlError, SqlState, Type, Value,
    functions::{self, Volatility, common_kind, shown},
    general::Origin,
    types::{Cast, CastContext, Category},
};

use super::Binder;
use crate::{
    function::{Outer, Parameter, RowFunction, Work, called},
    layout::{data_type, from_scalar, to_scalar},
};

/// An expression and its type. Literals and parameters are of type `unknown` while nothing is known
/// of them.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub expr: Expr,
    pub ty: Type,
    /// The column of a table or a view that it is, if it is one.
    pub origin: Option<Origin>,
}

impl Typed {
    pub fn new(expr: Expr, ty: Type) -> Self {
        Self { expr, ty, origin: None }
    }

    /// A literal.
    ///
    /// # Errors
    /// When the value is not of this type.
    pub fn literal(value: &Value, ty: Type) -> Result<Self, SqlError> {
        Ok(Self::new(Expr::Literal(to_scalar(ty, value)?, None), ty))
    }

    /// The same, where this is what it shows.
    pub fn from(self, origin: Option<Origin>) -> Self {
        Self { origin, ..self }
    }

    pub fn kind(&self) -> Kind {
        self.ty.kind()
    }

    pub fn is_unknown(&self) -> bool {
        self.kind() == Kind::Unknown
    }

    /// The value, if it is a literal.
    pub fn as_value(&self) -> Option<Value> {
        match &self.expr {
            Expr::Literal(scalar, _) => from_scalar(self.ty, scalar).ok(),
            _ => None,
        }
    }

    fn is_null_literal(&self) -> bool {
        matches!(&self.expr, Expr::Literal(scalar, _) if scalar.is_null())
    }

    pub fn pair(self) -> (Expr, Type) {
        (self.expr, self.ty)
    }
}

/// Whether a cast depends on the session.
fn is_stable(from: Kind, to: Kind) -> bool {
    let of = |kind: Kind| kind.element().unwrap_or(kind);
    let (from, to) = (of(from), of(to));
    let depends = |kind: Kind| {
        matches!(kind, Kind::Date | Kind::Time | Kind::Timestamp | Kind::Timestamptz | Kind::Interval)
            || kind.is_object_alias()
    };
    let text = |kind: Kind| kind.category() == Category::String;
    text(from) && depends(to) || text(to) && depends(from) || (from == Kind::Timestamptz) != (to == Kind::Timestamptz)
}

impl Binder<'_> {
    /// Casts to a type, where the syntax has not asked for it.
    ///
    /// # Errors
    /// What [`Self::cast`] returns.
    pub(super) fn coerce(&mut self, typed: Typed, to: Type) -> Result<Typed, SqlError> {
        self.cast(typed, to, CastContext::Implicit)
    }

    /// Casts to a type.
    ///
    /// # Errors
    /// 42846 when there is no such cast, and what reading literals returns.
    pub(super) fn cast(&mut self, typed: Typed, to: Type, context: CastContext) -> Result<Typed, SqlError> {
        // It shows the column as it is if it stays of its type.
        let origin = typed.origin.filter(|_| typed.ty == to);
        Ok(self.cast_again(typed, to, context)?.from(origin))
    }

    fn cast_again(&mut self, typed: Typed, to: Type, context: CastContext) -> Result<Typed, SqlError> {
        let from = typed.kind();
        if typed.is_unknown() {
            return self.cast_unknown(typed, to, context);
        }
        if to.kind() == Kind::Unknown {
            return Ok(typed);
        }
        let cast = Cast::find(from, to, context)?;
        if from == to.kind() && (to.modifier() < 0 || to == typed.ty) {
            return self.store(typed, to);
        }
        if cast.is_identity() && data_type(typed.ty) == data_type(to) {
            return Ok(Typed::new(typed.expr, to));
        }
        if typed.is_null_literal() {
            return Typed::literal(&Value::Null, to);
        }
        if let Some(value) = typed.as_value()
            && !is_stable(from, to.kind())
        {
            return Typed::literal(&cast.apply(value, self.context)?, to);
        }
        if from == Kind::Char && typed.ty.character_length().is_some() && to == Type::TEXT {
            // Without its blanks it lies there already.
            return Ok(Typed::new(typed.expr, to));
        }
        Ok(Typed::new(RowFunction::call(Work::Cast(cast), vec![typed.pair()], to), to))
    }

    fn cast_unknown(&mut self, typed: Typed, to: Type, context: CastContext) -> Result<Typed, SqlError> {
        if to.kind() == Kind::Unknown {
            return Ok(typed);
        }
        if let Some((parameter, _)) = called::<Parameter>(&typed.expr) {
            let number = parameter.number;
            let known = self.parameter_type(number, Type::of(to.kind()));
            let parameter = Typed::new(Parameter::expression(number, known), known);
            return self.cast(parameter, to, context);
        }
        let cast = Cast::find(Kind::Unknown, to, context)?;
        match typed.as_value() {
            Some(value) => Typed::literal(&cast.apply(value, self.context)?, to),
            // A column of a subquery that was never told its type.
            None => Ok(Typed::new(RowFunction::call(Work::Cast(cast), vec![typed.pair()], to), to)),
        }
    }

    /// The same values, lying as those of another type of the same kind do, of which they are.
    pub(super) fn store(&mut self, typed: Typed, ty: Type) -> Result<Typed, SqlError> {
        if data_type(typed.ty) == data_type(ty) && lies_alike(typed.ty, ty) {
            return Ok(Typed::new(typed.expr, ty));
        }
        if let Some(value) = typed.as_value() {
            return Typed::literal(&value, ty);
        }
        let cast = Cast::find(typed.kind(), Type::of(ty.kind()), CastContext::Implicit)?;
        Ok(Typed::new(RowFunction::call(Work::Cast(cast), vec![typed.pair()], ty), ty))
    }

    /// What is still unknown becomes text.
    ///
    /// # Errors
    /// Never for literals and parameters.
    pub(super) fn settle(&mut self, typed: Typed) -> Result<Typed, SqlError> {
        if typed.is_unknown() { self.coerce(typed, Type::TEXT) } else { Ok(typed) }
    }

    /// The type that expressions have in common: for CASE, UNION, arrays. `what` they are is named
    /// in errors.
    ///
    /// # Errors
    /// 42804 when none exists.
    pub(super) fn common_type(&self, types: &[Type], what: &str) -> Result<Type, SqlError> {
        if let [first, rest @ ..] = types
            && first.kind() != Kind::Unknown
            && rest.iter().all(|ty| ty == first)
        {
            return Ok(*first);
        }
        let kinds: Vec<Kind> = types.iter().map(|ty| ty.kind()).collect();
        common_kind(&kinds, what).map(Type::of)
    }

    /// Casts all to the type that they have in common.
    ///
    /// # Errors
    /// 42804 when none exists.
    pub(super) fn unify(&mut self, typed: Vec<Typed>, what: &str) -> Result<(Vec<Typed>, Type), SqlError> {
        let types: Vec<Type> = typed.iter().map(|typed| typed.ty).collect();
        let common = self.common_type(&types, what)?;
        let unified = typed.into_iter().map(|typed| self.coerce(typed, common)).collect::<Result<_, _>>()?;
        Ok((unified, common))
    }

    /// Something that has to be true or false.
    ///
    /// # Errors
    /// 42804 when it is neither.
    pub(super) fn condition(&mut self, typed: Typed, what: &str) -> Result<Typed, SqlError> {
        match typed.kind() {
            Kind::Bool => Ok(typed),
            Kind::Unknown => self.coerce(typed, Type::BOOL),
            kind => Err(SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                format!("argument of {what} must be type boolean, not type {kind}"),
            )),
        }
    }

    /// Calls a function or an operator of the registry.
    ///
    /// # Errors
    /// 42883 when none exists for these arguments, 42725 when there are several.
    pub(super) fn call(&mut self, name: &str, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        let kinds: Vec<Kind> = arguments.iter().map(Typed::kind).collect();
        let resolved = functions::resolve(name, &kinds)?;
        let mut coerced = Vec::with_capacity(arguments.len());
        for (argument, kind) in arguments.into_iter().zip(&resolved.arguments) {
            coerced.push(match kind {
                kind if argument.kind() != *kind && shown(argument.kind()) == *kind => self.shown(argument)?,
                Kind::Any | Kind::AnyNonArray => self.settle(argument)?,
                // A number keeps its scale, a text its length: functions take either.
                kind if argument.kind() == *kind => argument,
                kind => self.coerce(argument, Type::of(*kind))?,
            });
        }
        let result = Type::of(resolved.result);
        if resolved.function.strict && nothing_to_ask(&coerced.iter().collect::<Vec<_>>()) {
            return Typed::literal(&Value::Null, result);
        }
        if resolved.function.volatility == Volatility::Immutable
            && let Some(values) = coerced.iter().map(Typed::as_value).collect::<Option<Vec<_>>>()
            // What fails fails when it is evaluated, if it is.
            && let Ok(value) = resolved.function.call(&values, self.context)
        {
            return Typed::literal(&value, result);
        }
        let arguments = coerced.into_iter().map(Typed::pair).collect();
        Ok(Typed::new(RowFunction::call(Work::Call(resolved.function), arguments, result), result))
    }
}

/// Whether something that is null when one of its arguments is has a null that is written out,
/// beside something that is read: then it is null, and what else it has is not computed. What is
/// made of constants alone may fail.
pub(super) fn nothing_to_ask(arguments: &[&Typed]) -> bool {
    let reads = |typed: &&Typed| {
        typed.expr.exists(|expr| Ok(matches!(expr, Expr::Column(_)) || called::<Outer>(expr).is_some()))
    };
    arguments.iter().any(|typed| typed.is_null_literal()) && arguments.iter().any(|typed| reads(typed).unwrap_or(false))
}

/// Whether values of one type lie as those of another one of the same kind and array type do.
fn lies_alike(one: Type, two: Type) -> bool {
    one.kind() != Kind::Char || one == two
}
