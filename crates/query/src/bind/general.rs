//! General queries within statements.

use std::{fmt, sync::Arc};

use freshet_sql::{SqlError, Type, general::GeneralPlan, types::EvalContext};
use sqlparser::ast::Query;

use super::{Binder, not_supported};

/// Plans general queries over what a session can name.
pub trait Planner {
    /// Plans a query whose parameters have these types, where they are known; none when this server
    /// does not run general queries. It must not be run unless it is `checked`: whether the
    /// session's role may read what it reads.
    ///
    /// # Errors
    /// When it makes no sense.
    fn plan(
        &self,
        query: &Query,
        parameters: &[Option<Type>],
        context: &EvalContext<'_>,
        checked: bool,
    ) -> Option<Result<Arc<dyn GeneralPlan>, SqlError>>;
}

/// A planned general query.
#[derive(Clone)]
pub struct GeneralQuery(pub Arc<dyn GeneralPlan>);

impl fmt::Debug for GeneralQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GeneralQuery").field(&self.0.columns()).finish()
    }
}

impl Binder<'_> {
    /// Plans a query that is more than this crate's own plans can do, for this reason.
    ///
    /// # Errors
    /// When it makes no sense; 42501; 0A000 when this server does not run general queries.
    pub fn general(&self, query: &Query, why: &str) -> Result<GeneralQuery, SqlError> {
        self.planned(query, why, self.checked)
    }

    /// Plans a query that is not run, to know its columns.
    ///
    /// # Errors
    /// As for [`Binder::general`], but for privileges.
    pub(super) fn described(&self, query: &Query, why: &str) -> Result<GeneralQuery, SqlError> {
        self.planned(query, why, false)
    }

    fn planned(&self, query: &Query, why: &str, checked: bool) -> Result<GeneralQuery, SqlError> {
        let known = self.parameters.borrow().clone();
        let planned = self.planner.and_then(|planner| planner.plan(query, &known, self.context, checked));
        let Some(plan) = planned else {
            return Err(not_supported(format!("{why}, where there are no general queries,")));
        };
        let plan = plan?;
        let mut parameters = self.parameters.borrow_mut();
        for (number, ty) in plan.parameters().iter().enumerate() {
            if parameters.len() <= number {
                parameters.resize(number + 1, None);
            }
            parameters[number].get_or_insert(*ty);
        }
        Ok(GeneralQuery(plan))
    }
}
