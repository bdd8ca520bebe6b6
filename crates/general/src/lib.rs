//! General queries: whatever SELECT can say, over any relations.
//!
//! Implements [`freshet_sql::general`], the door between tables and queries, with DataFusion's
//! operators. It knows nothing of how rows are kept or where they come from.
//!
//! A query goes this way:
//!
//! | step | does |
//! |---|---|
//! | bind | looks names up, chooses overloads, gives types, all as PostgreSQL does: syntax becomes a logical plan |
//! | optimize | moves filters, limits and lists of columns down, finds the keys of joins |
//! | physical | makes operators, with the parameters' values |
//! | exec | runs them, in the thread that asks for rows |
//!
//! Binding and optimizing are done once for a statement, the rest each time it runs.
#![forbid(unsafe_code)]

mod aggregate;
mod array;
mod bind;
mod error;
mod estimate;
mod exec;
mod explain;
mod fast;
mod filter;
mod function;
mod held;
mod joins;
mod key;
mod layout;
mod lazy;
mod node;
mod optimize;
mod physical;
mod plan;
mod series;
mod session;
mod source;
mod subquery;
mod volatile;
mod window;

use std::sync::Arc;

use freshet_sql::{
    SqlError, Type,
    general::{General, GeneralPlan, Relations},
    types::EvalContext,
};
use sqlparser::ast::Query;

use crate::plan::{Plan, Planned};

/// Plans and runs any query.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueryEngine;

impl General for QueryEngine {
    fn plan(
        &self,
        query: &Query,
        parameters: &[Option<Type>],
        relations: &Arc<dyn Relations>,
        context: &EvalContext<'_>,
    ) -> Result<Arc<dyn GeneralPlan>, SqlError> {
        let planned = Planned::new(query, parameters, relations, context)?;
        Ok(Arc::new(Plan(Arc::new(planned))))
    }
}
