//! EXPLAIN.

use std::{sync::Arc, time::Instant};

use freshet_postgres::Client;
use freshet_sql::{
    SqlError, Type, Value,
    explain::{Measured, Step},
};
use sqlparser::ast::Statement;

use super::{
    Session,
    parse::{Parsed, parse},
    prepare::{Plan, Planned, Prepared},
    statement::{Rows, Tag},
    utility::Parameters,
};
use crate::{
    execute::{measure::Measures, modify::Collected},
    explain::{Document, Options, add_time_of_top, steps, subject, write},
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
        } else if options.analyze && matches!(statement, Statement::CreateTable(table) if table.query.is_some()) {
            self.explained_creation(statement, options, parameters, began, client)?
        } else {
            let prepared = Prepared::new("", Some(Parsed::sql(subject(statement)?)), parameters.given());
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
        let plan = if let Plan::General(query) = &planned.plan {
            let general = self.explain_general(query, &planned.firsts, values, options.analyze)?;
            steps(planned, Some(general), None)
        } else {
            let within = planned.plan.general();
            let general =
                within.map(|query| self.explain_general(query, &planned.firsts, values, false)).transpose()?;
            if options.analyze {
                let mut kept = Collected::within(&self.state.statement_memory());
                let measures = Measures::new(planned.firsts.len());
                let kept = Rows::Kept(&mut kept);
                let tag = self.run_with(prepared, planned, values, kept, client, &measures)?;
                measured(steps(planned, general, Some(&measures)), &tag, &measures)
            } else {
                steps(planned, general, None)
            }
        };
        Ok(document(plan, options, planning, started))
    }

    /// CREATE TABLE AS, which is run.
    fn explained_creation(
        &mut self,
        statement: &Statement,
        options: Options,
        parameters: Parameters<'_>,
        began: Instant,
        client: &mut Client<'_>,
    ) -> Result<Document, SqlError> {
        let prepared = Prepared::new("", Some(Parsed::sql(subject(statement)?)), parameters.given());
        let planned = self.plan(&prepared)?;
        let general = match &planned.plan {
            Plan::General(query) => Some(self.explain_general(query, &planned.firsts, parameters.values, false)?),
            _ => None,
        };
        let definition = parse(&statement.to_string())?.pop();
        let Some(Parsed::Define(definition)) = &definition else {
            return Err(SqlError::internal("CREATE TABLE AS is no definition"));
        };
        let planning = milliseconds(began);
        let started = Instant::now();
        let measures = Measures::new(planned.firsts.len());
        let tag = self.define_with(definition, client, &measures)?;
        let plan = if tag.0.starts_with("SELECT ") {
            measured(steps(&planned, general, Some(&measures)), &tag, &measures)
        } else {
            // It was there, or is to be without rows: the query has not run.
            steps(&planned, general, None)
        };
        Ok(document(plan, options, planning, started))
    }
}

/// A plan that has run, with the rows that it gave or changed, as its tag says.
fn measured(mut plan: Step, Tag(tag): &Tag, measures: &Measures) -> Step {
    let rows = tag.rsplit(' ').next().and_then(|count| count.parse().ok());
    if let Some(rows) = rows.filter(|_| plan.measured.is_none()) {
        plan.measured = Some(Measured { rows, loops: Some(1), own_time: Some(0.0) });
    }
    measures.finish();
    add_time_of_top(&mut plan, Some(measures));
    plan
}

fn document(mut plan: Step, options: Options, planning: f64, started: Instant) -> Document {
    if !options.timing {
        plan.forget_times();
    }
    Document {
        plan,
        planning: options.summary.then_some(planning),
        execution: (options.summary && options.analyze).then(|| milliseconds(started)),
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
