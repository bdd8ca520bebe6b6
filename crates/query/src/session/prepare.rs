//! Text to statements, and statements to plans.
//!
//! A plan holds as long as the catalog has the version that it was made for, and for the role and
//! the search path that it was made with. It is made again when one of them has changed. What a
//! client was told of a statement that it has prepared holds until it prepares it again: its
//! parameters keep their types, and as long as its columns would be others, it fails.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use freshet_sql::{
    SqlError, SqlState, Type, Value,
    general::{GeneralPlan, Relations, ResultColumn},
    memory::{Pool, Reservation},
    types::{EvalContext, Formats, Kind, TimeZone, Timestamp},
    work,
};
use sqlparser::ast::{self, SetExpr, Statement};

use super::{
    Session, State,
    parse::Parsed,
    settings::Ready,
    syntax::{Cursor, SessionStatement},
    transaction::Block,
    view::View,
};
use crate::{
    bind::{
        Binder, Stop,
        first::First,
        general::{GeneralQuery, Planner},
        implied,
        modify::{DeletePlan, InsertPlan, RowSource, Targets, UpdatePlan},
        select::{Output, SelectPlan},
    },
    inputs::{Divided, Fingerprint},
    relations::{Reader, Snapshot},
    schema::{Oid, Schema, SchemaVersion},
    server::Shared,
    syntax::Rules,
    system::shown::shown,
};

/// No result has more columns, as in PostgreSQL.
const COLUMNS: usize = 1664;

/// A statement's text, understood.
#[derive(Debug)]
pub struct Prepared {
    /// The statement's text, as the client has sent it.
    pub sql: String,
    /// What it is; nothing for an empty one.
    pub statement: Option<Parsed>,
    /// The types of parameters that the client has named.
    pub given: Vec<Option<Type>>,
    /// When it was understood.
    pub made: Timestamp,
    /// PREPARE as it was written, with what came with it, if that has made it.
    pub by_sql: Option<String>,
    /// How its literals were read.
    pub rules: Rules,
    /// Its text, if it is from a simple query and inputs are recorded.
    pub query: Option<Arc<str>>,
    /// Its text, as it is recorded.
    divided: OnceLock<Option<Divided>>,
    shown: OnceLock<Arc<str>>,
    pub(super) print: OnceLock<Arc<Fingerprint>>,
    /// Whether it may be run again, by who was told of its first plan.
    fixed: bool,
    plans: Mutex<Plans>,
    /// What it takes of its session's memory.
    _kept: Option<Reservation>,
}

/// What is known of a statement's plans.
#[derive(Debug, Default)]
struct Plans {
    /// The last one, and the generation of the session's settings with which it was found to hold.
    last: Option<(u64, Arc<Planned>)>,
    /// Its shape as the client knows it, if the statement is fixed.
    shape: Option<Shape>,
    /// It was prepared again since then, so that the client gets the shape of the next plan.
    again: bool,
}

/// What a client knows of a statement, as far as values cannot be read without it.
#[derive(Debug)]
struct Shape {
    parameters: Vec<Kind>,
    columns: Option<Vec<(String, Type)>>,
}

impl Shape {
    fn of(planned: &Planned) -> Self {
        let column = |column: &ResultColumn| (column.name.clone(), column.ty);
        Self {
            parameters: planned.parameters.iter().map(|ty| ty.kind()).collect(),
            columns: planned.columns.as_ref().map(|columns| columns.iter().map(column).collect()),
        }
    }

    fn has_columns_of(&self, planned: &Planned) -> bool {
        match (&self.columns, &planned.columns) {
            (Some(known), Some(columns)) => {
                let mut pairs = known.iter().zip(columns);
                known.len() == columns.len() && pairs.all(|((name, ty), it)| *name == it.name && *ty == it.ty)
            }
            (None, None) => true,
            _ => false,
        }
    }
}

/// A statement, ready to be run.
#[derive(Debug)]
pub struct Planned {
    /// What its constants take of its session's memory.
    _kept: Reservation,
    version: SchemaVersion,
    role: Oid,
    path: Vec<Oid>,
    /// Whether another plan may be better, which is made when its parameters are known.
    by_values: bool,
    /// What its literals depend on.
    pub bound: Bound,
    /// The subqueries that are run before.
    pub firsts: Vec<First>,
    /// The plan that runs.
    pub plan: Plan,
    /// The types of its parameters.
    pub parameters: Vec<Type>,
    /// What it returns; nothing when it returns no rows.
    pub columns: Option<Vec<ResultColumn>>,
}

/// What the values of a plan's literals depend on: its session's settings when it was made, and the
/// transaction's beginning then, if one of them has asked for it as `'now'` does.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    zone: TimeZone,
    formats: Formats,
    /// When that transaction began.
    pub at: Option<Timestamp>,
}

impl Bound {
    /// Whether they would be read in the same way with these settings.
    pub fn is_of(&self, ready: &Ready) -> bool {
        (self.zone, self.formats) == (ready.zone, ready.formats)
    }
}

/// A plan of a prepared statement.
pub enum Plan {
    /// SELECT, VALUES
    Select(SelectPlan),
    /// INSERT
    Insert(InsertPlan),
    /// UPDATE
    Update(UpdatePlan),
    /// DELETE
    Delete(DeletePlan),
    /// Any other query.
    General(GeneralQuery),
    /// Neither a query nor a change of rows.
    Utility,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Select(_) => "Select",
            Self::Insert(_) => "Insert",
            Self::Update(_) => "Update",
            Self::Delete(_) => "Delete",
            Self::General(_) => "General",
            Self::Utility => "Utility",
        })
    }
}

impl Plan {
    /// The general query that finds the rows that it changes or adds.
    pub fn general(&self) -> Option<&GeneralQuery> {
        match self {
            Self::Update(UpdatePlan { targets: Targets::Found(query), .. })
            | Self::Delete(DeletePlan { targets: Targets::Found(query), .. })
            | Self::Insert(InsertPlan { source: RowSource::General(query, _), .. }) => Some(query),
            _ => None,
        }
    }
}

impl Plan {
    /// What a statement that changes rows returns of them.
    fn returning(&self) -> Option<&[Output]> {
        match self {
            Self::Insert(plan) => plan.returning.as_deref(),
            Self::Update(plan) => plan.returning.as_deref(),
            Self::Delete(plan) => plan.returning.as_deref(),
            Self::Select(_) | Self::General(_) | Self::Utility => None,
        }
    }

    /// Whether an index that has some rows only may have all that are wanted when the values of
    /// parameters are known. What finds one row by a key needs no other plan.
    pub(crate) fn may_be_better(&self) -> bool {
        let scans = match self {
            Self::Select(plan) => plan.scans.as_slice(),
            Self::Update(UpdatePlan { targets: Targets::Scan(scan), .. })
            | Self::Delete(DeletePlan { targets: Targets::Scan(scan), .. }) => std::slice::from_ref(&**scan),
            _ => &[],
        };
        { scans }.iter().enumerate().any(|(source, scan)| {
            !scan.access.single
                && scan.conditions.as_ref().is_some_and(|all| implied::may_be_covered(&scan.table, source as u16, all))
        })
    }
}

/// The plan of a statement that changes rows; nothing for any other.
///
/// # Errors
/// When the statement makes no sense.
pub fn change_of(binder: &Binder<'_>, statement: &Statement) -> Result<Option<Plan>, SqlError> {
    let (statement, with) = match statement {
        Statement::Query(query) => match &*query.body {
            SetExpr::Insert(inner) | SetExpr::Update(inner) | SetExpr::Delete(inner) => (inner, query.with.as_ref()),
            _ => return Ok(None),
        },
        _ => (statement, None),
    };
    Ok(Some(match statement {
        Statement::Insert(insert) => Plan::Insert(binder.insert(insert, with).map_err(Stop::into_error)?),
        Statement::Update(update) => Plan::Update(binder.update(update, with).map_err(Stop::into_error)?),
        Statement::Delete(delete) => Plan::Delete(binder.delete(delete, with).map_err(Stop::into_error)?),
        _ => return Ok(None),
    }))
}

impl Planned {
    /// The table whose rows it changes.
    pub fn writes_to(&self) -> Option<Oid> {
        match &self.plan {
            Plan::Insert(plan) => Some(plan.table.table.oid),
            Plan::Update(plan) => Some(plan.table.table.oid),
            Plan::Delete(plan) => Some(plan.table.table.oid),
            Plan::Select(_) | Plan::General(_) | Plan::Utility => None,
        }
    }

    /// The tables whose rows it locks besides.
    pub fn locks_rows_of(&self) -> impl Iterator<Item = Oid> {
        let locked = self.selects().flat_map(|plan| &plan.scans).filter(|scan| scan.mark.is_some());
        let found = self.locked_by_general().iter().copied();
        locked.map(|scan| scan.table.table.oid).chain(found)
    }

    /// Whether it locks rows.
    pub fn locks(&self) -> bool {
        !self.locked_by_general().is_empty() || self.selects().any(SelectPlan::locks)
    }

    /// Whether its columns are told before it runs: it is a query, and reads something.
    pub fn reads_as_it_goes(&self) -> bool {
        match &self.plan {
            Plan::Select(plan) => !plan.scans.is_empty(),
            Plan::General(_) => true,
            _ => false,
        }
    }

    /// The tables whose rows a general query locks.
    fn locked_by_general(&self) -> &[Oid] {
        let general = match &self.plan {
            Plan::General(query) => Some(query),
            plan => plan.general(),
        };
        general.map_or(&[], |query| query.0.locked())
    }

    /// The tables of whose records each row of a cursor is made, and whether these are locked; none
    /// where a row is made of several ones.
    pub fn read_by_cursor(&self) -> Vec<(Oid, bool)> {
        match &self.plan {
            Plan::Select(plan) if plan.aggregation.is_none() && !plan.distinct => {
                plan.scans.iter().map(|scan| (scan.table.table.oid, scan.mark.is_some())).collect()
            }
            Plan::General(query) => query.0.records().iter().map(|oid| (*oid, true)).collect(),
            _ => Vec::new(),
        }
    }

    fn selects(&self) -> impl Iterator<Item = &SelectPlan> {
        let itself = match &self.plan {
            Plan::Select(plan) => Some(plan),
            _ => None,
        };
        self.firsts.iter().map(|first| &*first.plan).chain(itself)
    }
}

fn columns_of(output: &[Output]) -> Vec<ResultColumn> {
    let column = |output: &Output| ResultColumn { name: output.name.clone(), ty: output.ty, origin: output.origin };
    output.iter().map(column).collect()
}

/// About how many bytes the syntax and the plan of a short statement take.
const PREPARED: usize = 4096;

/// About how many more for each byte of its text.
const PREPARED_PER_BYTE: usize = 64;

impl Prepared {
    /// A statement of a text.
    pub fn new(sql: &str, statement: Option<Parsed>, given: Vec<Option<Type>>) -> Self {
        let made = Timestamp::now();
        let (shown, print, plans, divided, fixed) = Default::default();
        let (by_sql, query, sql, rules) = (None, None, sql.to_owned(), Rules::default());
        Self { sql, statement, given, made, by_sql, rules, query, divided, shown, print, fixed, plans, _kept: None }
    }

    /// The same; its client relies on what it is told of it.
    pub fn fixed(self) -> Self {
        // What is looked up by a name when it runs is whatever has the name then, as in PostgreSQL.
        let fixed = !self.statement.as_ref().is_some_and(Parsed::has_others_columns);
        Self { fixed, ..self }
    }

    /// The same text was prepared again.
    pub fn prepare_again(&self) {
        self.plans().again = true;
    }

    /// The client takes it for what it would be with this plan.
    pub fn describe(&self, planned: &Planned) {
        self.plans().shape = Some(Shape::of(planned));
    }

    fn plans(&self) -> MutexGuard<'_, Plans> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its text, as it is recorded; nothing when it is part of another statement.
    pub(super) fn source(&self) -> Option<&Divided> {
        let text = self.query.as_deref().unwrap_or(&self.sql);
        self.divided.get_or_init(|| Divided::of(text, self.rules)).as_ref()
    }

    /// Whether its text would be read as it was with these settings.
    pub fn is_read_with(&self, ready: &Ready) -> bool {
        let now = ready.literals;
        (self.rules.standard, self.rules.quotes) == (now.standard, now.quotes)
    }

    /// Whether its text, read and planned again with these settings, would mean the same.
    pub fn means_the_same(&self, ready: &Ready) -> bool {
        let same = |bound: &Bound| bound.is_of(ready) && bound.at.is_none();
        self.is_read_with(ready) && self.plans().last.as_ref().is_none_or(|(_, planned)| same(&planned.bound))
    }

    /// The same, kept in a session: what it takes there is counted by the length of its text.
    ///
    /// # Errors
    /// 53200.
    pub fn kept_in(self, memory: &Arc<Pool>) -> Result<Self, SqlError> {
        let kept = memory.reserve();
        let written = self.by_sql.as_ref().map_or(0, String::len);
        kept.take(PREPARED + self.sql.len() * PREPARED_PER_BYTE + written)?;
        Ok(Self { _kept: Some(kept), ..self })
    }

    /// As much of its text as others are shown.
    pub fn shown(&self) -> Arc<str> {
        Arc::clone(self.shown.get_or_init(|| shown(&self.sql).into()))
    }

    /// The types of its parameters, as far as they are known.
    pub fn parameters(&self) -> Vec<Type> {
        let plans = self.plans();
        let shape = plans.shape.iter().flat_map(|shape| &shape.parameters);
        shape.map(|kind| Type::of(*kind)).collect()
    }
}

impl Session<'_> {
    /// The plan of a statement, made again if it does not hold any more. The transaction's catalog
    /// is the session's.
    ///
    /// # Errors
    /// When the statement makes no sense; 0A000 when its client was told other columns; 42501.
    pub(super) fn plan(&self, prepared: &Prepared) -> Result<Arc<Planned>, SqlError> {
        let planned = self.plan_seen(prepared)?;
        self.check_rights_now(prepared)?;
        Ok(planned)
    }

    /// What was revoked since the transaction's snapshot is revoked for it, too: where its catalog
    /// is not the newest, the statement must be allowed by the newest as well. Whether it would
    /// make sense there does not matter.
    ///
    /// # Errors
    /// 42501.
    pub(super) fn check_rights_now(&self, prepared: &Prepared) -> Result<(), SqlError> {
        let keeps_snapshot = |block: &Block<'_>| !block.is_read_committed() && block.transaction.is_some();
        if !self.block.as_ref().is_some_and(keeps_snapshot) {
            return Ok(());
        }
        let newest = self.shared.catalog.newest(self.state.schema.database)?;
        let Some(newest) = newest.filter(|newest| newest.version != self.state.schema.version) else { return Ok(()) };
        match self.make_plan_with(prepared, &newest, true, prepared.given.clone(), None) {
            Err(error) if error.state == SqlState::INSUFFICIENT_PRIVILEGE => Err(error),
            _ => Ok(()),
        }
    }

    fn plan_seen(&self, prepared: &Prepared) -> Result<Arc<Planned>, SqlError> {
        let mut plans = prepared.plans();
        let plans = &mut *plans;
        let now = self.state.settings.generation;
        if let Some((generation, planned)) = &mut plans.last
            && planned.version == self.state.schema.version
            && planned.role == self.state.role
            && (*generation == now || planned.path == self.state.path())
        {
            *generation = now;
            // It has the columns that the client knows.
            plans.again = false;
            return Ok(Arc::clone(planned));
        }
        let shape = plans.shape.as_ref().filter(|_| !plans.again);
        let types = match shape {
            Some(shape) => shape.parameters.iter().map(|kind| Some(Type::of(*kind))).collect(),
            None => prepared.given.clone(),
        };
        let planned = Arc::new(self.make_plan_with(prepared, &self.state.schema, true, types, None)?);
        match shape {
            Some(shape) if !shape.has_columns_of(&planned) => {
                let message = "cached plan must not change result type";
                let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message);
                return Err(error.with_routine("RevalidateCachedQuery"));
            }
            Some(_) => {}
            None => plans.shape = prepared.fixed.then(|| Shape::of(&planned)),
        }
        plans.again = false;
        if !prepared.statement.as_ref().is_some_and(Parsed::has_others_columns) {
            plans.last = Some((now, Arc::clone(&planned)));
        }
        Ok(planned)
    }

    /// What a statement would be where the catalog is this, whether the role may run it or not.
    ///
    /// # Errors
    /// When the statement makes no sense.
    pub(super) fn would_be(&self, prepared: &Prepared, schema: &Arc<Schema>) -> Result<Planned, SqlError> {
        self.make_plan_with(prepared, schema, false, prepared.given.clone(), None)
    }

    /// The plan of a statement for these values alone, where they may say that an index which has
    /// some rows only has those that are wanted; nothing where it is as good without.
    pub(super) fn plan_for(&self, prepared: &Prepared, planned: &Planned, values: &[Value]) -> Option<Arc<Planned>> {
        if !planned.by_values {
            return None;
        }
        let types = planned.parameters.iter().copied().map(Some).collect();
        // What fails is told when it is run.
        self.make_plan_with(prepared, &self.state.schema, true, types, Some(values)).ok().map(Arc::new)
    }

    fn make_plan_with(
        &self,
        prepared: &Prepared,
        schema: &Arc<Schema>,
        checked: bool,
        types: Vec<Option<Type>>,
        values: Option<&[Value]>,
    ) -> Result<Planned, SqlError> {
        let path = self.state.path();
        let view = View::new(&self.shared, &self.state);
        let memory = self.state.statement_memory();
        let begun = self.begun();
        let context = self.state.context_within(Some(&view), begun, &memory);
        let planner = SessionPlanner { shared: &self.shared, state: &self.state, schema };
        let binder = Binder {
            parameters: types.into(),
            values,
            planner: Some(&planner),
            checked,
            ..Binder::new(schema, &path, self.state.role, &context)
        };
        let (plan, columns) = work::charged_to(&memory, || self.plan_parsed(&binder, prepared))?;
        if columns.as_ref().is_some_and(|columns| columns.len() > COLUMNS) {
            let message = format!("target lists can have at most {COLUMNS} entries");
            return Err(SqlError::new(SqlState::TOO_MANY_COLUMNS, message));
        }
        // What a utility runs is planned again when it runs.
        let firsts = if matches!(plan, Plan::Utility) { Vec::new() } else { binder.firsts.take() };
        let found = binder.parameters.into_inner().into_iter();
        let parameters = found.map(|ty| match ty {
            Some(ty) if ty.kind() != Kind::Unknown => ty,
            // Nothing says what it is.
            _ => Type::TEXT,
        });
        // What functions have made of constants is in the plan.
        let kept = self.state.memory.reserve();
        kept.take(context.large.held())?;
        let by_values = values.is_none() && plan.may_be_better();
        let at = context.transaction_start.was_asked().then_some(begun);
        Ok(Planned {
            by_values,
            bound: Bound { zone: context.zone, formats: context.formats, at },
            _kept: kept,
            version: schema.version,
            role: self.state.role,
            path,
            firsts,
            plan,
            parameters: parameters.collect(),
            columns,
        })
    }

    fn plan_parsed(
        &self,
        binder: &Binder<'_>,
        prepared: &Prepared,
    ) -> Result<(Plan, Option<Vec<ResultColumn>>), SqlError> {
        match &prepared.statement {
            Some(Parsed::Sql(statement)) => self.plan_of(binder, statement),
            Some(Parsed::Session(statement)) => {
                // What it runs has the parameters.
                if let SessionStatement::Cursor(Cursor::Declare(declared)) = &**statement {
                    self.plan_of(binder, &Statement::Query(declared.query.clone()))?;
                }
                Ok((Plan::Utility, self.session_columns(statement)?))
            }
            _ => Ok((Plan::Utility, None)),
        }
    }

    /// The plan of a statement, and the columns of its result.
    fn plan_of(
        &self,
        binder: &Binder<'_>,
        statement: &Statement,
    ) -> Result<(Plan, Option<Vec<ResultColumn>>), SqlError> {
        if let Some(plan) = change_of(binder, statement)? {
            let columns = plan.returning().map(columns_of);
            return Ok((plan, columns));
        }
        Ok(match statement {
            Statement::Query(query) => match binder.attempt(|| binder.query(query)) {
                Ok(plan) => {
                    let columns = columns_of(&plan.output);
                    (Plan::Select(plan), Some(columns))
                }
                Err(Stop::General(why)) => {
                    let query = binder.general(query, why)?;
                    let columns = query.0.columns().to_vec();
                    (Plan::General(query), Some(columns))
                }
                Err(Stop::Error(error)) => return Err(error),
            },
            Statement::Explain { statement: explained, .. } => {
                self.plan_of(binder, &crate::explain::subject(explained)?)?;
                (Plan::Utility, self.utility_columns(statement)?)
            }
            statement => (Plan::Utility, self.utility_columns(statement)?),
        })
    }
}

/// A session that can plan general queries.
struct SessionPlanner<'s> {
    shared: &'s Shared,
    state: &'s State,
    schema: &'s Arc<Schema>,
}

impl Planner for SessionPlanner<'_> {
    fn plan(
        &self,
        query: &ast::Query,
        parameters: &[Option<Type>],
        context: &EvalContext<'_>,
        checked: bool,
    ) -> Option<Result<Arc<dyn GeneralPlan>, SqlError>> {
        let mut snapshot = Snapshot { schema: Arc::clone(self.schema), ..Snapshot::of(self.state) };
        if !checked {
            snapshot.reader = Reader::Nobody;
        }
        let relations: Arc<dyn Relations> = Arc::new(snapshot);
        self.shared.general.as_ref().map(|general| general.plan(query, parameters, &relations, context))
    }
}
