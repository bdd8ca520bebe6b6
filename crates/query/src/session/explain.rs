//! EXPLAIN.

use std::{sync::Arc, time::Instant};

use freshet_postgres::Client;
use freshet_sql::{SqlError, Type, Value, explain::Measured};
use sqlparser::ast::Statement;

use super::{
    Session,
    parse::Parsed,
    prepare::{Plan, Planned, Prepared},
    statement::{Rows, Tag},
    utility::Parameters,
};
use crate::{
    execute::modify::Collected,
    explain::{Document, Options, steps, subject, write},
};

impl Session<'_> {
    /// How a statement is run, as rows of one column; it runs if that is asked for.
    ///
    /// # Errors
    /// What goes wrong in planning it, and in running it.
    pub(super) fn explain(
        &mut self,
        statement: &Statement,
        options: Options,
        parameters: Parameters<'_>,
        client: &mut Client<'_>,
    ) -> Result<Vec<Vec<Value>>, SqlError> {
        let began = Instant::now();
        let document = if let Statement::Execute { name: Some(name), parameters: given, .. } = statement {
            let prepared = self.prepared_by_name(name)?;
            let planned = self.plan(&prepared)?;
            let values = self.parameters_of(given, &planned.parameters)?;
            let planned = self.plan_for(&prepared, &planned, &values).unwrap_or(planned);
            self.explained(&prepared, &planned, &values, options, began, client)?
        } else {
            let prepared =
                Prepared::new("", Some(Parsed::sql(subject(statement, options.analyze)?)), parameters.given());
            let planned = self.plan(&prepared)?;
            self.explained(&prepared, &planned, parameters.values, options, began, client)?
        };
        let value = |text: String| {
            if options.format.column_type() == Type::JSON { Value::Json(text.into()) } else { Value::text(text) }
        };
        Ok(write(&document, options.format).into_iter().map(|text| vec![value(text)]).collect())
    }

    /// Its planning has begun at `began`, and is done now.
    fn explained(
        &mut self,
        prepared: &Prepared,
        planned: &Arc<Planned>,
        values: &[Value],
        options: Options,
        began: Instant,
        client: &mut Client<'_>,
    ) -> Result<Document, SqlError> {
        let planning = milliseconds(began);
        let started = Instant::now();
        let mut plan = if let Plan::General(query) = &planned.plan {
            let general = self.explain_general(query, &planned.firsts, values, options.analyze)?;
            steps(planned, Some(general))
        } else {
            let within = planned.plan.general();
            let general =
                within.map(|query| self.explain_general(query, &planned.firsts, values, false)).transpose()?;
            let mut plan = steps(planned, general);
            if options.analyze {
                let mut kept = Collected::within(&self.state.statement_memory());
                let Tag(tag) = self.run(prepared, planned, values, Rows::Kept(&mut kept), client)?;
                // The rows that it gave or changed.
                let rows = tag.rsplit(' ').next().and_then(|count| count.parse().ok());
                plan.measured = rows.map(|rows| Measured { rows, own_time: None });
            }
            plan
        };
        if !options.timing {
            plan.forget_times();
        }
        Ok(Document {
            plan,
            planning: options.summary.then_some(planning),
            execution: (options.summary && options.analyze).then(|| milliseconds(started)),
        })
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
