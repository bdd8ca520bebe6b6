//! From syntax to a logical plan.
//!
//! DataFusion's own planner has types and rules of its own; here names are looked up, overloads are
//! chosen and types are given as PostgreSQL does, and what comes out needs no coercion any more.
//! Every column of a plan has a name that occurs nowhere else in it.

mod aggregate;
mod call;
mod clause;
mod decorrelate;
mod expression;
mod from;
mod group;
mod locking;
mod name;
mod operator;
mod query;
mod row;
mod scope;
mod select;
mod series;
mod subquery;
mod typed;
mod window;
mod with;

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
    sync::Arc,
};

use datafusion_expr::{Expr, LogicalPlan};
use freshet_sql::{
    SqlError, SqlState, Type,
    general::{Relations, ResultColumn},
    types::EvalContext,
    work::{self, Kept},
};
use sqlparser::ast::Query;

pub(crate) use self::{locking::nullable_side, subquery::depends_on};
use self::{
    query::Item,
    scope::{Innermost, Level, Mention},
};
use crate::held::parts;

/// How deeply queries and expressions may be nested.
const MAX_DEPTH: usize = 128;
/// How deep the queries of WITH may be made of each other.
const MAX_HEIGHT: usize = 2 * MAX_DEPTH;
/// This number of them may stand within one another as one plan.
const MAX_INLINED: usize = 16;

/// About how many bytes an expression, a query or something in FROM takes in a plan.
const PART: usize = 1024;
/// The same of an expression within others.
const EXPRESSION: usize = 256;
/// About how many bytes a column takes in the schema of one step of a plan.
pub(crate) const FIELD: usize = 64;
/// The same of a column that is made, or that can be named.
const COLUMN: usize = 512;

/// No plan is deeper: what goes over it does so by recursion.
const MAX_REACH: usize = 512;

/// Fails where a plan that joins these would be too deep. Joins may come to stand one upon the
/// other in whatever way they were written.
///
/// # Errors
/// 54001
pub(crate) fn check_reach(plans: &[&LogicalPlan]) -> Result<(), SqlError> {
    /// How many joins, and how many other steps stand upon each other at most.
    fn reach(plan: &LogicalPlan, most: usize) -> Option<(usize, usize)> {
        let most = most.checked_sub(1)?;
        let is_join = matches!(plan, LogicalPlan::Join(_));
        let (mut joins, mut others) = (0, 0);
        for input in plan.inputs() {
            let (below, upon) = reach(input, most)?;
            joins = if is_join { joins + below } else { joins.max(below) };
            others = others.max(upon);
        }
        if is_join {
            joins += 1
        } else {
            others += 1
        }
        (joins + others <= MAX_REACH).then_some((joins, others))
    }
    let (mut joins, mut others) = (0, 0);
    for plan in plans {
        let (below, upon) = reach(plan, MAX_REACH + 1).unwrap_or((MAX_REACH, MAX_REACH));
        joins += below;
        others = others.max(upon);
    }
    if joins + others <= MAX_REACH {
        return Ok(());
    }
    Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "the query joins too much, or is nested too deeply"))
}

/// A query whose names and types are known.
pub(crate) struct Bound {
    /// The memory of the plan, counted for as long as it lives.
    pub _kept: Kept,
    pub plan: LogicalPlan,
    /// The subqueries by their numbers, where there are such.
    pub subqueries: Vec<Option<LogicalPlan>>,
    pub columns: Vec<ResultColumn>,
    /// The oids of the tables whose rows are locked.
    pub locked: Vec<u32>,
    /// The oids of those whose rows' ids are behind the columns.
    pub records: Vec<u32>,
    pub parameters: Vec<Type>,
}

/// Binds a query whose parameters have these types, where they are known.
///
/// # Errors
/// When it is no query over these relations.
pub(crate) fn bind(
    query: &Query,
    parameters: &[Option<Type>],
    relations: &Arc<dyn Relations>,
    context: &EvalContext<'_>,
) -> Result<Bound, SqlError> {
    let mut binder = Binder {
        relations: Arc::clone(relations),
        mentions: Vec::new(),
        context,
        parameters: parameters.iter().map(|ty| ty.filter(|ty| *ty != Type::UNKNOWN)).collect(),
        levels: Vec::new(),
        ctes: Vec::new(),
        subqueries: Vec::new(),
        joinable: HashMap::new(),
        qualifiers: HashSet::new(),
        names: 0,
        shared: 0,
        depth: 0,
        innermost: Innermost::default(),
        recursions: Vec::new(),
        places: Vec::new(),
        wanted: Vec::new(),
        locked: Vec::new(),
        locks: 0,
        shared_depth: 0,
        height: 0,
        kept: work::kept(),
        made: 0,
    };
    let rows = binder.query(query)?;
    for mention in &binder.mentions {
        mention.check()?;
    }
    let column = |item: Item| ResultColumn { name: item.name, ty: item.typed.ty, origin: item.typed.origin };
    let columns = rows.items.into_iter().map(column).collect();
    // Of a parameter that is used nowhere, nothing can be known.
    let parameters = binder
        .parameters
        .iter()
        .enumerate()
        .map(|(at, ty)| {
            ty.ok_or_else(|| {
                SqlError::new(
                    SqlState::INDETERMINATE_DATATYPE,
                    format!("could not determine data type of parameter ${}", at + 1),
                )
            })
        })
        .collect::<Result<_, _>>()?;
    let records = rows.records.iter().map(|(oid, _)| *oid).collect();
    let kept = binder.kept;
    Ok(Bound {
        _kept: kept,
        plan: rows.plan,
        subqueries: binder.subqueries,
        columns,
        locked: binder.locked,
        records,
        parameters,
    })
}

struct Binder<'a> {
    /// What names mean, here or in the view that is being bound.
    relations: Arc<dyn Relations>,
    /// All that is read, in the order in which it is named.
    mentions: Vec<Rc<Mention>>,
    context: &'a EvalContext<'a>,
    /// The parameters' types, as far as they are known by now.
    parameters: Vec<Option<Type>>,
    /// The queries around the one that is being bound, which is the last.
    levels: Vec<Level>,
    ctes: Vec<with::Named>,
    subqueries: Vec<Option<LogicalPlan>>,
    /// The subqueries that may become joins.
    joinable: HashMap<usize, decorrelate::Joinable>,
    /// The names that tables have in the plan.
    qualifiers: HashSet<String>,
    names: usize,
    shared: usize,
    depth: usize,
    /// The query that the arguments of an aggregate belong to.
    innermost: Innermost,
    /// The recursive queries whose second parts are being bound.
    recursions: Vec<with::Recursion>,
    /// Where recursive queries must not be named, the innermost last.
    places: Vec<&'static str>,
    /// For each SELECT that is being bound: the names whose whole rows are wanted beside outer
    /// joins.
    wanted: Vec<Rc<HashSet<String>>>,
    /// The oids of the tables whose rows are locked.
    locked: Vec<u32>,
    /// In how many places rows are locked.
    locks: usize,
    /// In how many queries of WITH this is.
    shared_depth: usize,
    /// How deep what the query of WITH is made of lies, which is being bound.
    height: usize,
    /// What has been made so far, and the memory that it takes.
    kept: Kept,
    made: usize,
}

impl Binder<'_> {
    /// The query that is being bound.
    fn level(&mut self) -> &mut Level {
        if self.levels.is_empty() {
            self.levels.push(Level::default());
        }
        let last = self.levels.len() - 1;
        &mut self.levels[last]
    }

    /// A column's name that occurs nowhere else.
    fn fresh(&mut self, hint: &str) -> String {
        self.names += 1;
        format!("{hint}#{}", self.names)
    }

    fn next_subquery(&mut self) -> usize {
        self.subqueries.push(None);
        self.subqueries.len() - 1
    }

    fn next_shared(&mut self) -> usize {
        self.shared += 1;
        self.shared
    }

    fn put_subquery(&mut self, number: usize, plan: LogicalPlan) {
        self.subqueries[number] = Some(plan);
    }

    /// Does something where recursive queries must not be named.
    fn placed<T>(&mut self, place: Option<&'static str>, work: impl FnOnce(&mut Self) -> T) -> T {
        self.places.extend(place);
        let done = work(self);
        if place.is_some() {
            self.places.pop();
        }
        done
    }

    /// Counts what is about to be made.
    ///
    /// # Errors
    /// 53200, 57014, 57P01.
    fn makes(&mut self, bytes: usize) -> Result<(), SqlError> {
        work::done(1 + bytes / 64)?;
        self.made += bytes;
        self.kept.grown_to(self.made)
    }

    /// Counts an expression that is about to be copied.
    ///
    /// # Errors
    /// 53200, 57014, 57P01.
    fn makes_copy(&mut self, expr: &Expr) -> Result<(), SqlError> {
        self.makes(parts(expr, usize::MAX) * EXPRESSION)
    }

    /// Does something one level further down.
    ///
    /// # Errors
    /// 54001 when that is too deep; 53200, 57014, 57P01.
    fn deeper<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, SqlError>) -> Result<T, SqlError> {
        self.makes(PART)?;
        if self.depth >= MAX_DEPTH {
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "the query is nested too deeply"));
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }
}
