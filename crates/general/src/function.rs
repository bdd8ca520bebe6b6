//! Functions of rows: what an expression computes from values, as DataFusion calls it.
//!
//! What a function does to values is said in [`freshet_sql::functions`]; here they are read from
//! arrays, and results put into one. The binder has chosen the overload and cast the arguments, so
//! nothing is left to DataFusion's coercion.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow::{array::UInt32Array, compute::take, datatypes::DataType};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, expr::ScalarFunction,
};
use freshet_sql::{
    Kind, SqlError, Type, Value,
    functions::{self, Function},
    memory::size_of_value,
    types::{Array, Cast, CastContext, EvalContext, json},
};

use crate::{
    array::{make_nested, slice, subscript},
    error::external,
    fast,
    layout::{Builder, Reader, data_type, from_scalar, to_scalar},
    session,
};

/// After how many rows of a batch it is asked whether the statement is to end.
const LOOK_EVERY: usize = 16;

/// Arrays that functions make count with the statement's memory from this number of bytes on:
/// smaller ones are no more than a query has columns.
const COUNTED: usize = 256 << 10;

/// What is done with each row's values.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// A function or an operator.
    Call(&'static Function),
    /// `CAST (value AS type)`.
    Cast(Cast),
    /// `left operator ANY (array)`.
    Any(&'static Function),
    /// `left operator ALL (array)`.
    All(&'static Function),
    /// `ARRAY[...]` of such elements.
    Array(Kind),
    /// `ARRAY[...]` of arrays of such elements.
    NestedArray(Kind),
    /// `array[n]`, `array[n][m]`.
    Subscript,
    /// `array[n:m]`: for each dimension two arguments follow, null where the bound is left out.
    Slice,
    /// A row as an object of JSON, whose members have these names; or else of `jsonb`.
    Object(Arc<[String]>, bool),
    /// A row as the text of a composite value.
    Record,
}

impl Work {
    fn name(&self) -> &str {
        match self {
            Self::Call(function) => function.name,
            Self::Cast(_) => "cast",
            Self::Any(_) => "any",
            Self::All(_) => "all",
            Self::Array(_) | Self::NestedArray(_) => "array",
            Self::Subscript => "subscript",
            Self::Slice => "slice",
            Self::Object(..) => "row_to_json",
            Self::Record => "row",
        }
    }

    fn volatility(&self) -> Volatility {
        match self {
            Self::Call(function) => match function.volatility {
                functions::Volatility::Immutable => Volatility::Immutable,
                functions::Volatility::Stable => Volatility::Stable,
                functions::Volatility::Volatile => Volatility::Volatile,
            },
            _ => Volatility::Immutable,
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// What functions and casts return.
    pub fn evaluate(&self, arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
        let made = match (self, arguments) {
            // It counts for itself.
            (Self::Call(function), _) => return function.call(arguments, context),
            (Self::Cast(cast), [value]) => cast.apply(value.clone(), context),
            (Self::Any(operator), [left, array]) => functions::any(operator, left, array, context),
            (Self::All(operator), [left, array]) => functions::all(operator, left, array, context),
            (Self::Array(element), _) => Ok(Value::array(Array::new(*element, arguments.to_vec()))),
            (Self::NestedArray(element), _) => make_nested(*element, arguments),
            (Self::Subscript, [array, subscripts @ ..]) => Ok(subscript(array, subscripts)),
            (Self::Slice, [array, bounds @ ..]) => slice(array, bounds),
            (Self::Object(names, binary), _) => {
                let mut text = String::from("{");
                for (at, (name, value)) in names.iter().zip(arguments).enumerate() {
                    text.push_str(if at == 0 { "" } else { "," });
                    json::write_string(name, &mut text);
                    text.push(':');
                    let kind = value.kind().unwrap_or(Kind::Text);
                    match functions::resolve("to_json", &[kind])?.function.call(std::slice::from_ref(value), context)? {
                        Value::Json(member) => text.push_str(&member),
                        _ => text.push_str("null"),
                    }
                }
                text.push('}');
                if *binary {
                    return Ok(Value::Jsonb(json::canonical(&text)?.into()));
                }
                Ok(Value::Json(text.into()))
            }
            (Self::Record, _) => record(arguments, context),
            _ => Err(SqlError::internal(format!("{} takes another number of arguments", self.name()))),
        };
        functions::made(made?, context)
    }

    /// The functions that it stands for, by which it is told from others.
    fn identity(&self) -> (u8, usize, Option<Cast>, Option<Kind>, Option<&[String]>) {
        let address = |function: &'static Function| std::ptr::from_ref(function).addr();
        match self {
            Self::Call(function) => (0, address(function), None, None, None),
            Self::Cast(cast) => (1, 0, Some(*cast), None, None),
            Self::Any(function) => (2, address(function), None, None, None),
            Self::All(function) => (3, address(function), None, None, None),
            Self::Array(kind) => (4, 0, None, Some(*kind), None),
            Self::NestedArray(kind) => (5, 0, None, Some(*kind), None),
            Self::Subscript => (6, 0, None, None, None),
            Self::Slice => (7, 0, None, None, None),
            Self::Object(names, binary) => (8, usize::from(*binary), None, None, Some(names)),
            Self::Record => (9, 0, None, None, None),
        }
    }
}

/// A composite value's text: `(1,"a b",)`.
fn record(fields: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let mut text = String::from("(");
    for (at, field) in fields.iter().enumerate() {
        text.push_str(if at == 0 { "" } else { "," });
        let Some(kind) = field.kind() else { continue };
        let shown = match field {
            Value::Bool(truth) => Value::text(if *truth { "t" } else { "f" }),
            field => Cast::find(kind, Type::TEXT, CastContext::Explicit)?.apply(field.clone(), context)?,
        };
        let shown = shown.as_str().unwrap_or_default();
        let special = |sign: char| sign.is_ascii_whitespace() || matches!(sign, '(' | ')' | ',' | '"' | '\\');
        if shown.is_empty() || shown.contains(special) {
            text.push('"');
            for sign in shown.chars() {
                if matches!(sign, '"' | '\\') {
                    text.push(sign);
                }
                text.push(sign);
            }
            text.push('"');
        } else {
            text.push_str(shown);
        }
    }
    text.push(')');
    Ok(Value::text(text))
}

/// A function of rows, with the types of its arguments and of its result.
#[derive(Clone, Debug)]
pub(crate) struct RowFunction {
    pub work: Work,
    pub arguments: Vec<Type>,
    pub result: Type,
    signature: Signature,
}

impl PartialEq for RowFunction {
    fn eq(&self, other: &Self) -> bool {
        self.work.identity() == other.work.identity()
            && self.arguments == other.arguments
            && self.result == other.result
    }
}

impl Eq for RowFunction {}

impl Hash for RowFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (tag, address, _, _, _) = self.work.identity();
        (tag, address, &self.arguments, self.result).hash(state);
    }
}

impl RowFunction {
    /// An expression that calls it.
    pub fn call(work: Work, arguments: Vec<(Expr, Type)>, result: Type) -> Expr {
        let signature = Signature::user_defined(work.volatility());
        let (arguments, types) = arguments.into_iter().unzip();
        let function = Self { work, arguments: types, result, signature };
        call(function, arguments)
    }

    fn evaluate_rows(&self, arguments: &[ColumnarValue], rows: usize) -> Result<ColumnarValue> {
        session::with(|session| {
            session.check()?;
            if let Some(result) = fast::evaluate(self, arguments)? {
                return Ok(result);
            }
            let inputs = arguments
                .iter()
                .zip(&self.arguments)
                .map(|(argument, ty)| Input::new(argument, *ty))
                .collect::<Result<Vec<_>, SqlError>>()
                .map_err(external)?;
            let constant = inputs.iter().all(|input| matches!(input, Input::Constant(_)));
            let mut values = vec![Value::Null; inputs.len()];
            let mut evaluate = |row| {
                for (value, input) in values.iter_mut().zip(&inputs) {
                    *value = input.value(row)?;
                }
                let large = &session.context.large;
                let held = large.held();
                let value = self.work.evaluate(&values, session.context);
                // What it takes in an array counts there.
                large.back_to(held);
                value
            };
            let mut builder = Builder::new(self.result, rows);
            if constant && self.signature.volatility != Volatility::Volatile {
                let value = evaluate(0).map_err(external)?;
                if size_of_value(&value) < COUNTED {
                    return Ok(ColumnarValue::Scalar(to_scalar(self.result, &value).map_err(external)?));
                }
                // All rows share it, where it counts.
                let kept = session.state.reserve();
                kept.try_grow(size_of_value(&value))?;
                builder.append(value.as_ref()).map_err(external)?;
                let one = builder.finish_counted(kept)?;
                return Ok(ColumnarValue::Array(take(&one, &UInt32Array::from(vec![0; rows]), None)?));
            }
            let kept = session.state.reserve();
            let mut bytes = 0;
            for row in 0..rows {
                // Each of them may do much.
                if row % LOOK_EVERY == LOOK_EVERY - 1 {
                    session.check()?;
                }
                let value = evaluate(row).map_err(external)?;
                bytes += size_of_value(&value);
                if bytes > kept.size().max(COUNTED) {
                    kept.try_grow(bytes.next_multiple_of(COUNTED) - kept.size())?;
                }
                builder.append(value.as_ref()).map_err(external)?;
            }
            session.state.have_made(rows, bytes);
            if kept.size() == 0 { Ok(builder.finish()) } else { builder.finish_counted(kept) }.map(ColumnarValue::Array)
        })
    }
}

/// Where an argument's values come from.
enum Input<'a> {
    Constant(Value),
    Column(Reader<'a>),
}

impl<'a> Input<'a> {
    fn new(argument: &'a ColumnarValue, ty: Type) -> Result<Self, SqlError> {
        Ok(match argument {
            ColumnarValue::Scalar(scalar) => Self::Constant(from_scalar(ty, scalar)?),
            ColumnarValue::Array(array) => Self::Column(Reader::new(ty, array)?),
        })
    }

    #[inline]
    fn value(&self, row: usize) -> Result<Value, SqlError> {
        match self {
            Self::Constant(value) => Ok(value.clone()),
            Self::Column(reader) => reader.value(row),
        }
    }
}

impl ScalarUDFImpl for RowFunction {
    fn name(&self) -> &str {
        self.work.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(data_type(self.result))
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arguments.to_vec())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.evaluate_rows(&arguments.args, arguments.number_rows)
    }
}

/// An expression that calls a function.
pub(crate) fn call(function: impl ScalarUDFImpl + 'static, arguments: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction { func: Arc::new(ScalarUDF::from(function)), args: arguments })
}

/// The implementation that an expression calls, if it is of this kind.
pub(crate) fn called<F: ScalarUDFImpl + 'static>(expr: &Expr) -> Option<(&F, &[Expr])> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else { return None };
    let inner: &dyn std::any::Any = func.inner().as_ref();
    inner.downcast_ref::<F>().map(|function| (function, args.as_slice()))
}

/// A parameter of the statement: `$1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Parameter {
    /// The parameter's number less one: `$1` has 0.
    pub number: usize,
    pub ty: Type,
    signature: Signature,
}

impl Parameter {
    /// An expression for it.
    pub fn expression(number: usize, ty: Type) -> Expr {
        call(Self { number, ty, signature: Signature::user_defined(Volatility::Immutable) }, Vec::new())
    }

    /// Its value in this thread's session.
    ///
    /// # Errors
    /// When the statement was given too few.
    pub fn value(&self) -> Result<Value> {
        session::with(|session| {
            session.parameters.get(self.number).cloned().ok_or_else(|| {
                external(SqlError::new(
                    freshet_sql::SqlState::UNDEFINED_PARAMETER,
                    format!("there is no parameter ${}", self.number + 1),
                ))
            })
        })
    }
}

impl ScalarUDFImpl for Parameter {
    fn name(&self) -> &'static str {
        "parameter"
    }

    fn schema_name(&self, _: &[Expr]) -> Result<String> {
        Ok(format!("${}", self.number + 1))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(data_type(self.ty))
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arguments.to_vec())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        to_scalar(self.ty, &self.value()?).map(ColumnarValue::Scalar).map_err(external)
    }
}

/// A value of the row for which a subquery runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outer {
    /// The number of the subquery that runs.
    pub subquery: usize,
    /// Which of its captured values.
    pub at: usize,
    pub ty: Type,
    signature: Signature,
}

impl Outer {
    /// An expression for it.
    pub fn expression(subquery: usize, at: usize, ty: Type) -> Expr {
        call(Self { subquery, at, ty, signature: Signature::user_defined(Volatility::Immutable) }, Vec::new())
    }

    /// Its value in the row for which the subquery runs now.
    ///
    /// # Errors
    /// When the subquery is not running: a mistake in this crate.
    pub fn scalar(&self) -> Result<ScalarValue> {
        session::with(|session| {
            session
                .state
                .captured(self.subquery, self.at)
                .ok_or_else(|| DataFusionError::Internal("a subquery is evaluated outside of its row".to_owned()))
        })
    }
}

impl ScalarUDFImpl for Outer {
    fn name(&self) -> &'static str {
        "outer"
    }

    fn schema_name(&self, _: &[Expr]) -> Result<String> {
        Ok(format!("outer#{}.{}", self.subquery, self.at))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(data_type(self.ty))
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arguments.to_vec())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.scalar().map(ColumnarValue::Scalar)
    }
}
