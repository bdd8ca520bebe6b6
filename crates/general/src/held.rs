//! A value that an expression uses in several places, and that is computed once: `NULLIF(a, b)`
//! compares `a`, and returns it.
//!
//! Where computing it twice makes no difference, it stands in both places. Only a volatile one is
//! held, and a large one: what is copied at each of several levels would have no bound.

use datafusion_common::{
    Column, DFSchema, Result,
    tree_node::{Transformed, TreeNode as _, TreeNodeRecursion},
};
use datafusion_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use freshet_sql::Type;

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::{DataType, Field, Schema},
};
use std::sync::Arc;

use crate::{
    function::{Outer, call, called},
    layout::data_type,
    physical,
};

/// The most parts of an expression that is copied.
const MAX_COPIED: usize = 64;

/// Whether a value that is used in several places is computed once.
pub(crate) fn must_hold(value: &Expr) -> bool {
    value.is_volatile() || parts(value, MAX_COPIED) > MAX_COPIED
}

/// How many parts an expression has; it is left once there are more than `most`.
pub(crate) fn parts(expr: &Expr, most: usize) -> usize {
    let mut count = 0;
    let counted = expr.apply(|_| {
        count += 1;
        Ok(if count > most { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    counted.map_or(usize::MAX, |_| count)
}

/// An expression over a value, which is the first argument; what else it takes from the row
/// follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    body: Expr,
    /// What the arguments are called in it.
    names: Vec<String>,
    result: Type,
    signature: Signature,
}

impl Held {
    /// An expression over `value`, which it calls by this name.
    ///
    /// # Errors
    /// Never.
    pub fn call(value: Expr, name: String, body: Expr, result: Type) -> Result<Expr> {
        let (mut names, mut arguments) = (vec![name], vec![value]);
        let body = body.transform_down(|part| {
            let is_taken = match &part {
                Expr::Column(column) => column.name != names[0],
                part => called::<Outer>(part).is_some(),
            };
            if !is_taken {
                return Ok(Transformed::no(part));
            }
            let at = arguments[1..].iter().position(|argument| *argument == part).map_or_else(
                || {
                    arguments.push(part);
                    names.push(format!("{}.{}", names[0], arguments.len()));
                    arguments.len() - 1
                },
                |at| at + 1,
            );
            let taken = Expr::Column(Column::new_unqualified(names[at].clone()));
            Ok(Transformed::new(taken, true, TreeNodeRecursion::Jump))
        })?;
        let volatility = if arguments[0].is_volatile() { Volatility::Volatile } else { Volatility::Stable };
        let signature = Signature::user_defined(volatility);
        Ok(call(Self { body: body.data, names, result, signature }, arguments))
    }
}

impl ScalarUDFImpl for Held {
    fn name(&self) -> &'static str {
        "held"
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
        let rows = arguments.number_rows;
        let arrays =
            arguments.args.into_iter().map(|argument| argument.into_array(rows)).collect::<Result<Vec<_>>>()?;
        let fields: Vec<Field> = self
            .names
            .iter()
            .zip(&arrays)
            .map(|(name, array)| Field::new(name, array.data_type().clone(), true))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let body = physical::expr(&self.body, &DFSchema::try_from(Arc::clone(&schema))?)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        body.evaluate(&RecordBatch::try_new_with_options(schema, arrays, &options)?)
    }
}
