//! Text to statements, and statements to plans.
//!
//! A plan holds as long as the catalog has the version that it was made for, and for the role and the search path that it was made
//! with. It is made anew when one of them has changed; a client that was told other columns than there are now hears of that.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use freshet_sql::{
    SqlError, SqlState, Type,
    general::{GeneralPlan, Relations},
    types::{Kind, Timestamp},
};
use sqlparser::ast::{self, Statement};

use super::{Session, parse::Parsed, view::View, wire::ResultColumn};
use crate::{
    bind::{
        Binder, Stop,
        modify::{DeletePlan, InsertPlan, RowSource, UpdatePlan},
        not_supported,
        select::{Output, SelectPlan},
    },
    expression::Expression,
    schema::{Oid, SchemaVersion},
    system::activity::shown,
};

/// No result has more columns, as in PostgreSQL.
const COLUMNS: usize = 1664;

/// A statement's text, understood.
#[derive(Debug)]
pub struct Prepared {
    /// The text.
    pub sql: String,
    /// What it is; nothing for an empty one.
    pub statement: Option<Parsed>,
    /// The types of parameters that the client has named.
    pub given: Vec<Option<Type>>,
    /// When it was understood.
    pub made: Timestamp,
    /// Whether PREPARE has made it.
    pub by_sql: bool,
    shown: OnceLock<Arc<str>>,
    /// The plan, and the generation of the session's settings with which it was found to hold.
    planned: Mutex<Option<(u64, Arc<Planned>)>>,
}

/// A statement, ready to be run.
#[derive(Debug)]
pub struct Planned {
    version: SchemaVersion,
    role: Oid,
    path: Vec<Oid>,
    /// What is run.
    pub plan: Plan,
    /// The types of its parameters.
    pub parameters: Vec<Type>,
    /// What it returns; nothing when it returns no rows.
    pub columns: Option<Vec<ResultColumn>>,
}

/// What is run.
pub enum Plan {
    /// SELECT, VALUES
    Select(SelectPlan),
    /// INSERT
    Insert(InsertPlan),
    /// INSERT of what a general query finds, with the casts to the columns' types.
    InsertGeneral(InsertPlan, Arc<dyn GeneralPlan>, Vec<Expression>),
    /// UPDATE
    Update(UpdatePlan),
    /// DELETE
    Delete(DeletePlan),
    /// Any other query.
    General(Arc<dyn GeneralPlan>),
    /// Neither a query nor a change of rows.
    Utility,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Select(_) => "Select",
            Self::Insert(_) => "Insert",
            Self::InsertGeneral(..) => "InsertGeneral",
            Self::Update(_) => "Update",
            Self::Delete(_) => "Delete",
            Self::General(_) => "General",
            Self::Utility => "Utility",
        })
    }
}

impl Plan {
    /// The tables whose rows it changes or locks.
    pub fn writes_to(&self) -> impl Iterator<Item = Oid> {
        let one = match self {
            Self::Insert(plan) | Self::InsertGeneral(plan, ..) => Some(plan.table.table.oid),
            Self::Update(plan) => Some(plan.scan.table.table.oid),
            Self::Delete(plan) => Some(plan.scan.table.table.oid),
            Self::Select(_) | Self::General(_) | Self::Utility => None,
        };
        let locked = match self {
            Self::Select(plan) if plan.lock.is_some() => plan.scans.as_slice(),
            _ => &[],
        };
        one.into_iter().chain(locked.iter().map(|scan| scan.table.table.oid))
    }
}

fn columns_of(output: &[Output]) -> Vec<ResultColumn> {
    let column = |output: &Output| ResultColumn { name: output.name.clone(), ty: output.ty, origin: output.origin };
    output.iter().map(column).collect()
}

impl Prepared {
    /// A statement of a text.
    pub fn new(sql: &str, statement: Option<Parsed>, given: Vec<Option<Type>>) -> Self {
        let made = Timestamp::now();
        let (shown, planned) = Default::default();
        Self { sql: sql.to_owned(), statement, given, made, by_sql: false, shown, planned }
    }

    /// As much of its text as others are shown.
    pub fn shown(&self) -> Arc<str> {
        Arc::clone(self.shown.get_or_init(|| shown(&self.sql).into()))
    }

    /// The types of its parameters, as far as they are known.
    pub fn parameters(&self) -> Vec<Type> {
        let planned = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        planned.as_ref().map_or_else(Vec::new, |(_, planned)| planned.parameters.clone())
    }
}

impl Session<'_> {
    /// The plan of a statement, made anew if it does not hold any more. The transaction's catalog is the session's.
    ///
    /// # Errors
    /// When the statement makes no sense.
    pub(super) fn plan(&self, prepared: &Prepared) -> Result<Arc<Planned>, SqlError> {
        let mut place = prepared.planned.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.state.settings.generation;
        if let Some((generation, planned)) = &mut *place
            && planned.version == self.state.schema.version
            && planned.role == self.state.role
            && (*generation == now || planned.path == self.state.path())
        {
            *generation = now;
            return Ok(Arc::clone(planned));
        }
        let planned = Arc::new(self.make_plan(prepared)?);
        if let Some((_, before)) = &*place
            && before.columns.as_ref().map(|all| all.iter().map(|column| column.ty).collect::<Vec<_>>())
                != planned.columns.as_ref().map(|all| all.iter().map(|column| column.ty).collect::<Vec<_>>())
            && !matches!(planned.plan, Plan::Utility)
        {
            *place = None;
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "cached plan must not change result type"));
        }
        *place = Some((now, Arc::clone(&planned)));
        Ok(planned)
    }

    fn make_plan(&self, prepared: &Prepared) -> Result<Planned, SqlError> {
        let path = self.state.path();
        let view = View::new(&self.shared, &self.state);
        let context = self.state.context(Some(&view), freshet_sql::types::Timestamp::now());
        let binder = Binder {
            schema: &self.state.schema,
            path: &path,
            role: self.state.role,
            context: &context,
            parameters: prepared.given.clone().into(),
        };
        let statement = match &prepared.statement {
            Some(Parsed::Sql(statement)) => Some(&**statement),
            _ => None,
        };
        let (plan, columns) = match statement {
            Some(Statement::Query(query)) => match binder.query(query) {
                Ok(plan) => {
                    let columns = columns_of(&plan.output);
                    (Plan::Select(plan), Some(columns))
                }
                Err(Stop::General(why)) => {
                    let plan = self.general(query, &binder, why)?;
                    let columns =
                        plan.columns().iter().map(|column| ResultColumn::new(&column.name, column.ty)).collect();
                    (Plan::General(plan), Some(columns))
                }
                Err(Stop::Error(error)) => return Err(error),
            },
            Some(Statement::Insert(insert)) => {
                let plan = binder.insert(insert).map_err(Stop::into_error)?;
                let columns = plan.returning.as_deref().map(columns_of);
                match &plan.source {
                    RowSource::General(query) => {
                        let general = self.general(query, &binder, "INSERT")?;
                        let casts = self.casts(&binder, &plan, &*general)?;
                        (Plan::InsertGeneral(plan, general, casts), columns)
                    }
                    _ => (Plan::Insert(plan), columns),
                }
            }
            Some(Statement::Update(update)) => {
                let plan = binder.update(update).map_err(Stop::into_error)?;
                let columns = plan.returning.as_deref().map(columns_of);
                (Plan::Update(plan), columns)
            }
            Some(Statement::Delete(delete)) => {
                let plan = binder.delete(delete).map_err(Stop::into_error)?;
                let columns = plan.returning.as_deref().map(columns_of);
                (Plan::Delete(plan), columns)
            }
            Some(statement) => (Plan::Utility, self.utility_columns(statement)?),
            None => (Plan::Utility, None),
        };
        if columns.as_ref().is_some_and(|columns| columns.len() > COLUMNS) {
            let message = format!("target lists can have at most {COLUMNS} entries");
            return Err(SqlError::new(SqlState::TOO_MANY_COLUMNS, message));
        }
        let found = binder.parameters.into_inner().into_iter();
        let parameters = found.map(|ty| match ty {
            Some(ty) if ty.kind() != Kind::Unknown => ty,
            // Nothing says what it is.
            _ => Type::TEXT,
        });
        Ok(Planned {
            version: self.state.schema.version,
            role: self.state.role,
            path,
            plan,
            parameters: parameters.collect(),
            columns,
        })
    }

    fn casts(
        &self,
        binder: &Binder<'_>,
        plan: &InsertPlan,
        general: &dyn GeneralPlan,
    ) -> Result<Vec<Expression>, SqlError> {
        let columns = general.columns();
        if columns.len() > plan.targets.len() {
            return Err(crate::bind::syntax_error("INSERT has more expressions than target columns"));
        }
        if columns.len() < plan.targets.len() {
            return Err(crate::bind::syntax_error("INSERT has more target columns than expressions"));
        }
        let casts = columns.iter().zip(&plan.targets).enumerate().map(|(place, (column, target))| {
            let expression = Expression::Column { source: 0, column: place as u16 };
            binder.assign(crate::expression::Typed { expression, ty: column.ty }, &plan.table, *target)
        });
        casts.collect()
    }

    /// Plans a query that is more than this crate's own plans can do.
    fn general(&self, query: &ast::Query, binder: &Binder<'_>, why: &str) -> Result<Arc<dyn GeneralPlan>, SqlError> {
        let Some(general) = &self.shared.general else {
            return Err(not_supported(format!("{why}, in a build without general queries,")));
        };
        let relations: Arc<dyn Relations> = Arc::new(crate::relations::Snapshot::of(&self.state));
        let plan = general.plan(query, &binder.parameters.borrow(), &relations, binder.context)?;
        let mut parameters = binder.parameters.borrow_mut();
        for (number, ty) in plan.parameters().iter().enumerate() {
            if parameters.len() <= number {
                parameters.resize(number + 1, None);
            }
            parameters[number].get_or_insert(*ty);
        }
        drop(parameters);
        Ok(plan)
    }
}
