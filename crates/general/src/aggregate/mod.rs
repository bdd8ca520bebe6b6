//! Aggregates, as PostgreSQL computes them.
//!
//! Two ways lead to a result: [`groups`] add whole arrays up, for the aggregates that queries use
//! most; [`state`] takes rows of values one by one, for all of them, and for DISTINCT, ORDER BY and
//! moving windows.

mod fast;
mod groups;
mod state;
mod statistics;

use std::fmt;

use arrow::{
    array::{Array as _, ArrayRef, BooleanArray},
    datatypes::DataType,
};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::{
    Accumulator, AggregateUDFImpl, EmitTo, Expr, GroupsAccumulator, Signature, Volatility, function::AccumulatorArgs,
    utils::AggregateOrderSensitivity,
};
use freshet_sql::{
    Type, Value,
    work::{self, Kept},
};
use sqlparser::ast::OrderByOptions;

pub(crate) use self::statistics::Regression;
use self::{groups::Groups, state::Sliding};
use crate::{
    error::external,
    layout::{Builder, data_type, to_scalar},
    session,
};

/// The aggregates that queries can call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AggregateKind {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    BoolAnd,
    BoolOr,
    BitAnd,
    BitOr,
    BitXor,
    StringAgg,
    ArrayAgg,
    JsonAgg {
        binary: bool,
        /// Whether it is of whole rows.
        rows: bool,
    },
    JsonObjectAgg {
        binary: bool,
    },
    /// Variance, or its root, of a sample or of all there is.
    Variance {
        population: bool,
        root: bool,
    },
    Regression(Regression),
    PercentileCont,
    PercentileDisc,
    Mode,
    /// One of the values: for groups whose values are equal.
    AnyValue,
}

impl AggregateKind {
    /// The aggregate of a name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "count" => Self::Count,
            "sum" => Self::Sum,
            "avg" => Self::Avg,
            "min" => Self::Min,
            "max" => Self::Max,
            "bool_and" | "every" => Self::BoolAnd,
            "bool_or" => Self::BoolOr,
            "bit_and" => Self::BitAnd,
            "bit_or" => Self::BitOr,
            "bit_xor" => Self::BitXor,
            "string_agg" => Self::StringAgg,
            "array_agg" => Self::ArrayAgg,
            "json_agg" => Self::JsonAgg { binary: false, rows: false },
            "jsonb_agg" => Self::JsonAgg { binary: true, rows: false },
            "json_object_agg" => Self::JsonObjectAgg { binary: false },
            "jsonb_object_agg" => Self::JsonObjectAgg { binary: true },
            "stddev" | "stddev_samp" => Self::Variance { population: false, root: true },
            "stddev_pop" => Self::Variance { population: true, root: true },
            "variance" | "var_samp" => Self::Variance { population: false, root: false },
            "var_pop" => Self::Variance { population: true, root: false },
            "percentile_cont" => Self::PercentileCont,
            "percentile_disc" => Self::PercentileDisc,
            "mode" => Self::Mode,
            name => Self::Regression(Regression::named(name)?),
        })
    }

    /// Whether it is called WITHIN GROUP.
    pub fn is_ordered_set(self) -> bool {
        matches!(self, Self::PercentileCont | Self::PercentileDisc | Self::Mode)
    }
}

/// How rows are sorted by one of their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SortKey {
    pub ty: Type,
    pub descending: bool,
    pub nulls_first: bool,
}

impl SortKey {
    /// As ORDER BY says; nulls are larger than all values unless it says otherwise.
    pub fn of(ty: Type, options: &OrderByOptions) -> Self {
        let descending = options.asc == Some(false);
        Self { ty, descending, nulls_first: options.nulls_first.unwrap_or(descending) }
    }
}

/// An aggregate with its types.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Aggregate {
    kind: AggregateKind,
    name: String,
    /// Of its own arguments, and of those that ORDER BY adds.
    types: Vec<Type>,
    /// How many arguments are its own.
    own: usize,
    result: Type,
    order: Vec<SortKey>,
    distinct: bool,
    signature: Signature,
}

impl Aggregate {
    pub fn new(
        kind: AggregateKind,
        name: &str,
        types: Vec<Type>,
        own: usize,
        result: Type,
        order: Vec<SortKey>,
        distinct: bool,
    ) -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        // The order of rows does not matter to all.
        let sensitive = matches!(
            kind,
            AggregateKind::StringAgg
                | AggregateKind::ArrayAgg
                | AggregateKind::JsonAgg { .. }
                | AggregateKind::JsonObjectAgg { .. }
        ) || kind.is_ordered_set();
        let order = if sensitive { order } else { Vec::new() };
        Self { kind, name: name.to_owned(), types, own, result, order, distinct, signature }
    }

    fn groups(&self) -> Box<dyn Groups> {
        if !self.distinct
            && self.order.is_empty()
            && let Some(groups) = fast::groups(self.kind, &self.types, self.result)
        {
            return groups;
        }
        Box::new(state::Generic::new(self.clone()))
    }
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        &self.name
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

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(OneGroup { groups: self.groups(), result: self.result, given: work::kept() }))
    }

    fn create_sliding_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Sliding::new(self.clone())))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(ManyGroups { groups: self.groups(), count: 0, result: self.result }))
    }

    fn default_value(&self, _: &DataType) -> Result<ScalarValue> {
        let value = if self.kind == AggregateKind::Count { Value::Int8(0) } else { Value::Null };
        to_scalar(self.result, &value).map_err(external)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// Whether an expression counts rows or values.
pub(crate) fn is_count(expr: &Expr) -> bool {
    let expr = match expr {
        Expr::Alias(alias) => alias.expr.as_ref(),
        expr => expr,
    };
    let Expr::AggregateFunction(function) = expr else { return false };
    let inner: &dyn std::any::Any = function.func.inner().as_ref();
    inner.downcast_ref::<Aggregate>().is_some_and(|aggregate| match aggregate.kind {
        AggregateKind::Count => true,
        AggregateKind::Regression(what) => what.is_count(),
        _ => false,
    })
}

/// Queries run in one thread, so there are no partial states to be merged.
#[cold]
fn no_partial_state<T>() -> Result<T> {
    Err(DataFusionError::Internal("an aggregate was asked for a partial state".to_owned()))
}

/// A result, which is kept until all of the window have theirs.
fn counted(result: ScalarValue, given: &Kept) -> Result<ScalarValue> {
    let bytes = result.size();
    if bytes > 2 * size_of::<ScalarValue>() {
        session::check()?;
        // As it is, and in the column that is made of it.
        given.more(2 * bytes).map_err(external)?;
    }
    Ok(result)
}

/// An aggregate over all rows.
struct OneGroup {
    groups: Box<dyn Groups>,
    result: Type,
    /// What its results take: over a window there is one for each row.
    given: Kept,
}

impl fmt::Debug for OneGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneGroup").field("result", &self.result).finish_non_exhaustive()
    }
}

impl Accumulator for OneGroup {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        session::check()?;
        self.groups.resize(1);
        let rows = values.first().map_or(0, |array| array.len());
        self.groups.update(values, &vec![0; rows], None)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.groups.resize(1);
        let value = self.groups.value(0).map_err(external)?;
        counted(to_scalar(self.result, &value).map_err(external)?, &self.given)
    }

    fn size(&self) -> usize {
        self.groups.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        no_partial_state()
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        no_partial_state()
    }
}

/// An aggregate over each group's rows.
struct ManyGroups {
    groups: Box<dyn Groups>,
    count: usize,
    result: Type,
}

impl GroupsAccumulator for ManyGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        session::check()?;
        self.groups.resize(total_num_groups);
        self.count = total_num_groups;
        self.groups.update(values, group_indices, filter)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let count = match emit_to {
            EmitTo::All => self.count,
            EmitTo::First(count) => count,
        };
        let mut builder = Builder::new(self.result, count);
        for group in 0..count {
            let value = self.groups.value(group).map_err(external)?;
            builder.append(value.as_ref()).map_err(external)?;
        }
        self.groups.drop_first(count);
        self.count -= count;
        Ok(builder.finish())
    }

    fn state(&mut self, _: EmitTo) -> Result<Vec<ArrayRef>> {
        no_partial_state()
    }

    fn merge_batch(&mut self, _: &[ArrayRef], _: &[usize], _: usize) -> Result<()> {
        no_partial_state()
    }

    fn convert_to_state(&self, _: &[ArrayRef], _: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        no_partial_state()
    }

    fn size(&self) -> usize {
        self.groups.size()
    }
}
