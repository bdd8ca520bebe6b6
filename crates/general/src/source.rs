//! What plans read from: relations, results that are shared, and what recursive queries go on from.

use std::{
    any::Any,
    sync::{Arc, OnceLock},
};

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion_common::{
    Result,
    tree_node::{Transformed, TreeNode},
};
use datafusion_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableSource};
use freshet_sql::{
    SqlError,
    general::{Column, Relation},
};

use crate::{bind::depends_on, filter::Condition, layout::field, node::is_volatile, subquery::Depends};

/// A relation, as DataFusion asks for it.
pub(crate) struct RelationSource {
    pub relation: Arc<dyn Relation>,
    pub name: String,
    schema: SchemaRef,
    /// What its columns have computed: expressions, and the columns.
    computed: Vec<(Expr, Expr)>,
}

impl RelationSource {
    pub fn new(relation: Arc<dyn Relation>, name: &str, computed: Vec<(Expr, Expr)>) -> Self {
        let row = relation.lockable().ok().map(|lockable| lockable.column());
        let field = |(at, column): (usize, &Column)| match row == Some(at) {
            // Every row has one: where none exists, there is no row.
            true => Arc::new(field(&column.name, column.ty).as_ref().clone().with_nullable(false)),
            false => field(&column.name, column.ty),
        };
        let fields: Vec<FieldRef> = relation.columns().iter().enumerate().map(field).collect();
        Self { relation, name: name.to_owned(), schema: Arc::new(Schema::new(fields)), computed }
    }

    /// The source, if it is one of these.
    pub fn of(source: &dyn TableSource) -> Option<&Self> {
        (source as &dyn Any).downcast_ref()
    }

    /// The condition on one column that a filter is, if it is one, be it on what a column has
    /// computed.
    pub fn condition(&self, filter: &Expr) -> Result<Option<Condition>> {
        let columns = self.relation.columns();
        if self.computed.is_empty() {
            return Ok(Condition::of(filter, columns));
        }
        let replaced = filter.clone().transform_down(|expr| {
            Ok(match self.computed.iter().find(|(known, _)| *known == expr) {
                Some((_, column)) => Transformed::yes(column.clone()),
                None => Transformed::no(expr),
            })
        })?;
        Ok(Condition::of(&replaced.data, columns))
    }
}

impl TableSource for RelationSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // What the relation does not take itself, the scan applies before it copies a row.
        let taken = |filter: &&Expr| {
            Ok(match self.condition(filter)? {
                Some(_) => TableProviderFilterPushDown::Exact,
                None => TableProviderFilterPushDown::Unsupported,
            })
        };
        filters.iter().map(taken).collect()
    }
}

/// A result that is computed once, however many parts of a query read it.
pub(crate) struct SharedSource {
    pub number: usize,
    plan: LogicalPlan,
    schema: SchemaRef,
    /// Whether it has to be computed once, or must not; nothing when that is to be decided.
    pub fixed: Option<bool>,
    /// The plan as it is to be run.
    pub optimized: OnceLock<Arc<LogicalPlan>>,
    depends: OnceLock<Depends>,
    volatile: OnceLock<bool>,
}

impl SharedSource {
    pub fn new(number: usize, plan: LogicalPlan, fields: Vec<FieldRef>, fixed: Option<bool>) -> Self {
        Self {
            number,
            plan,
            schema: Arc::new(Schema::new(fields)),
            fixed,
            optimized: OnceLock::new(),
            depends: OnceLock::new(),
            volatile: OnceLock::new(),
        }
    }

    /// The source, if it is one of these.
    pub fn of(source: &dyn TableSource) -> Option<&Self> {
        (source as &dyn Any).downcast_ref()
    }

    /// On what its rows depend.
    ///
    /// # Errors
    /// When the plan cannot be looked through.
    pub fn depends(&self) -> Result<&Depends, SqlError> {
        if self.depends.get().is_none() {
            // Whichever thread was first has found the same.
            let _ = self.depends.set(depends_on(&self.plan)?);
        }
        self.depends.get().ok_or_else(|| SqlError::internal("a shared result depends on something unknown"))
    }

    /// Whether it is another one each time.
    pub fn is_volatile(&self) -> bool {
        *self.volatile.get_or_init(|| is_volatile(&self.plan))
    }

    /// The plan whose result it is.
    pub fn plan(&self) -> &LogicalPlan {
        &self.plan
    }
}

impl TableSource for SharedSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// The rows from which a recursive query continues.
pub(crate) struct WorkSource {
    pub number: usize,
    pub name: String,
    schema: SchemaRef,
}

impl WorkSource {
    pub fn new(number: usize, name: &str, fields: Vec<FieldRef>) -> Self {
        Self { number, name: name.to_owned(), schema: Arc::new(Schema::new(fields)) }
    }

    /// The source, if it is one of these.
    pub fn of(source: &dyn TableSource) -> Option<&Self> {
        (source as &dyn Any).downcast_ref()
    }
}

impl TableSource for WorkSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
