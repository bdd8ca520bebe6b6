//! Subqueries that depend on nothing outside: they are run before the statement, once, and stand in
//! it as values.
//!
//! So `WHERE id = (SELECT max(id) FROM t)` and `WHERE id IN (SELECT id FROM queue ORDER BY id LIMIT
//! 1 FOR UPDATE SKIP LOCKED)` need no general query: what they compare with is known when the index
//! is read. A list of values has to lead to an index for this; looked at row by row, it would be
//! slower than what general queries make of it.
//!
//! PostgreSQL runs such a subquery when its value is first needed, if ever. That makes a difference
//! for one that fails, so its error is kept, and is one where the value is needed; and for one that
//! does something, which is run before only where its value is needed for certain.

use std::sync::Arc;

use freshet_sql::{SqlError, Type, Value, types::Kind};
use sqlparser::ast::Query;

use super::{Binder, Bound, Stop, select::SelectPlan};
use crate::expression::{Expression, Typed};

/// A subquery that is run before the statement.
#[derive(Clone, Debug)]
pub struct First {
    /// The plan of the subquery, which runs once before the statement.
    pub plan: Arc<SelectPlan>,
    /// All its values as an array of this kind of elements; otherwise the only one.
    pub list_of: Option<Kind>,
    /// Whether it does something, or is another one each time.
    pub volatile: bool,
}

/// What a subquery has given that was run before, or how it has failed.
pub type Given = Result<Value, SqlError>;

impl First {
    /// What comes of running it.
    ///
    /// # Errors
    /// What ends the statement whether or not the value is needed.
    pub fn given(&self, value: Result<Value, SqlError>) -> Result<Given, SqlError> {
        match value {
            Err(error) if self.plan.locks() || !is_about_values(&error) => Err(error),
            given => Ok(given),
        }
    }
}

/// Whether an error says that values are not as they should be (classes 21 and 22).
fn is_about_values(error: &SqlError) -> bool {
    matches!(error.state.class(), "21" | "22")
}

impl Binder<'_> {
    /// The value of a subquery, `needed` for certain or perhaps.
    pub(super) fn first_value(&self, query: &Query, needed: bool) -> Bound<Typed> {
        let (plan, ty, volatile) = self.first(query, needed)?;
        let expression = self.add_first(First { plan: Arc::new(plan), list_of: None, volatile }, false)?;
        Ok(Typed { expression, ty })
    }

    /// The values of a subquery, as an array.
    pub(super) fn first_list(&self, query: &Query) -> Bound<Typed> {
        let (plan, ty, volatile) = self.first(query, false)?;
        let array = ty.kind().array().ok_or(Stop::General("a subquery"))?;
        // What locks rows can be done here only.
        let is_long = !plan.locks();
        let first = First { plan: Arc::new(plan), list_of: Some(ty.kind()), volatile };
        Ok(Typed { expression: self.add_first(first, is_long)?, ty: Type::of(array) })
    }

    fn first(&self, query: &Query, needed: bool) -> Bound<(SelectPlan, Type, bool)> {
        if self.planner.is_none() {
            return Err(Stop::General("a subquery"));
        }
        // An error may only mean that it is about rows outside of it.
        let bound = self.attempt(|| {
            let mut plan = self.any_query(query)?;
            let volatile = self.does_something(&mut plan);
            if volatile && !needed && !plan.locks() { Err(Stop::General("a subquery")) } else { Ok((plan, volatile)) }
        });
        let (plan, volatile) = bound.map_err(|_| Stop::General("a subquery"))?;
        match plan.output.as_slice() {
            [output] => {
                let ty = output.ty;
                Ok((plan, ty, volatile))
            }
            _ => Err(Stop::General("a subquery")),
        }
    }

    /// Whether a subquery is volatile, or one that is run before it.
    fn does_something(&self, plan: &mut SelectPlan) -> bool {
        let firsts = self.firsts.borrow();
        let mut found = false;
        let mut look = |expression: &Expression| {
            found |= expression.is_volatile();
            let within = |number: u16| firsts.get(usize::from(number)).is_some_and(|first| first.volatile);
            found |= expression.has_subquery(&within);
        };
        plan.expressions(&mut |expression| look(expression));
        let conditions = plan.scans.iter().flat_map(|scan| scan.filter.iter().chain(&scan.conditions));
        conditions.chain(&plan.filter).chain(plan.values.iter().flatten()).for_each(look);
        found
    }

    fn add_first(&self, first: First, is_long: bool) -> Result<Expression, SqlError> {
        let mut all = self.firsts.borrow_mut();
        all.push(first);
        let number = u16::try_from(all.len() - 1).map_err(|_| SqlError::internal("too many subqueries"))?;
        Ok(Expression::Subquery { number, is_long })
    }

    /// Binds something; what was found out on the way is forgotten if that fails.
    ///
    /// # Errors
    /// As `what`.
    pub(crate) fn attempt<T>(&self, what: impl FnOnce() -> Bound<T>) -> Bound<T> {
        let (known, firsts) = (self.parameters.borrow().clone(), self.firsts.borrow().len());
        let needs = self.needs.borrow().len();
        let bound = what();
        if bound.is_err() {
            *self.parameters.borrow_mut() = known;
            self.firsts.borrow_mut().truncate(firsts);
            self.needs.borrow_mut().truncate(needs);
        }
        bound
    }
}

/// Fails if a list of values is looked at for each row.
pub(super) fn not_row_by_row(expression: Option<&Expression>) -> Bound<()> {
    match expression {
        Some(expression) if expression.has_long_list() => Err(Stop::General("a subquery")),
        _ => Ok(()),
    }
}
