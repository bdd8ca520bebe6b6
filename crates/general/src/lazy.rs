//! AND and OR whose right side is evaluated for those rows alone whose answer the left side leaves
//! open. So a right side that fails, or does something, does so for no other row.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow::{
    array::{AsArray as _, BooleanArray, RecordBatch},
    compute::{and_kleene, or_kleene},
    datatypes::{DataType, Schema},
};
use datafusion_common::{
    Result,
    tree_node::{Transformed, TreeNode as _},
};
use datafusion_expr::{ColumnarValue, Operator};
use datafusion_physical_expr::{
    PhysicalExpr, ScalarFunctionExpr,
    expressions::{BinaryExpr, CaseExpr},
};

/// `left AND right`, or `left OR right`.
#[derive(Debug, Eq)]
struct Lazy {
    left: Arc<dyn PhysicalExpr>,
    right: Arc<dyn PhysicalExpr>,
    is_and: bool,
}

// Derived, it would move what it compares.
impl PartialEq for Lazy {
    fn eq(&self, other: &Self) -> bool {
        self.left.eq(&other.left) && self.right.eq(&other.right) && self.is_and == other.is_and
    }
}

impl Hash for Lazy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.left, &self.right, self.is_and).hash(state);
    }
}

/// An expression whose ANDs and ORs are lazy where that can be seen.
///
/// # Errors
/// Never: what it walks through are expressions that were made.
pub(crate) fn lazily(expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    expr.transform_up(|expr| {
        let Some(binary) = expr.downcast_ref::<BinaryExpr>() else { return Ok(Transformed::no(expr)) };
        let is_and = match binary.op() {
            Operator::And => true,
            Operator::Or => false,
            _ => return Ok(Transformed::no(expr)),
        };
        if !calls(binary.right())? {
            return Ok(Transformed::no(expr));
        }
        let (left, right) = (Arc::clone(binary.left()), Arc::clone(binary.right()));
        Ok(Transformed::yes(Arc::new(Lazy { left, right, is_and }) as Arc<dyn PhysicalExpr>))
    })
    .map(|transformed| transformed.data)
}

/// Whether an expression calls functions, which may fail or do something, or computes.
fn calls(expr: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    expr.exists(|expr| {
        let computes = expr.downcast_ref::<BinaryExpr>().is_some_and(|binary| binary.op().is_numerical_operators());
        Ok(computes || expr.is::<ScalarFunctionExpr>() || expr.is::<CaseExpr>() || expr.is::<Lazy>())
    })
}

impl PhysicalExpr for Lazy {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        Ok(self.left.nullable(schema)? || self.right.nullable(schema)?)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let left = self.left.evaluate(batch)?.into_array(batch.num_rows())?;
        let left: &BooleanArray = left.as_boolean();
        let decides = Some(!self.is_and);
        let open: BooleanArray = left.iter().map(|left| Some(left != decides)).collect();
        let right = self.right.evaluate_selection(batch, &open)?.into_array(batch.num_rows())?;
        let combine = if self.is_and { and_kleene } else { or_kleene };
        Ok(ColumnarValue::Array(Arc::new(combine(left, right.as_boolean())?)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.left, &self.right]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let mut children = children.into_iter();
        let mut next = |otherwise: &Arc<dyn PhysicalExpr>| children.next().unwrap_or_else(|| Arc::clone(otherwise));
        let (left, right) = (next(&self.left), next(&self.right));
        Ok(Arc::new(Self { left, right, is_and: self.is_and }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Lazy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.left, if self.is_and { "AND" } else { "OR" }, self.right)
    }
}
