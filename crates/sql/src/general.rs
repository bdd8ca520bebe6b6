//! The door between statements and whatever runs general queries: joins, grouping, windows,
//! subqueries, set operations.
//!
//! Who has tables implements [`Relations`]; who can run any query over them implements [`General`].
//! Neither knows the other. A query runs in the thread that asks for its rows, all of it: a
//! relation's rows come from the transaction of that thread.

use std::{fmt, sync::Arc};

use sqlparser::ast::{Expr, Query};

use crate::{
    SqlError, SqlState,
    explain::Step,
    locking::RowMark,
    memory::Pool,
    types::{EvalContext, Type, Value, ValueRef},
};

/// A column of a relation or of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The column's name, unique among those that are not hidden.
    pub name: String,
    /// The type of its values.
    pub ty: Type,
    /// Whether `*` leaves it out: a system column, to be named to be seen.
    pub hidden: bool,
}

/// A column of a query's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultColumn {
    /// The column's name, as the client shows it.
    pub name: String,
    /// The type of its values.
    pub ty: Type,
    /// The column of a table or a view that it shows as it is, if it does.
    pub origin: Option<Origin>,
}

impl ResultColumn {
    /// A column that is none of a table's.
    pub fn new(name: &str, ty: Type) -> Self {
        Self { name: name.to_owned(), ty, origin: None }
    }
}

/// What a name in FROM means.
#[derive(Clone, Debug)]
pub enum Named {
    /// Something that has rows.
    Relation(Arc<dyn Relation>),
    /// A view: a query, whose columns have these names.
    View {
        /// What is in its place.
        query: Arc<Query>,
        /// The relations that names in it mean: the view reads in its owner's name.
        relations: Arc<dyn Relations>,
        /// As many as the query has columns.
        columns: Vec<Column>,
        /// Checks whether it may be read.
        access: Arc<dyn Readable>,
    },
}

/// Checks whether something in FROM may be read.
pub trait Readable: fmt::Debug + Send + Sync {
    /// Called once a query is bound, for each place where it names the relation. Fails unless the
    /// query may read these of its columns, or any one if it reads none and only counts rows.
    ///
    /// # Errors
    /// 42501.
    fn may_read(&self, columns: &[usize]) -> Result<(), SqlError>;

    /// Called where a query locks rows of it, after [`Readable::may_read`]. Fails unless the query
    /// may do that.
    ///
    /// # Errors
    /// 42501; 0A000 when it has no rows that can be locked.
    fn may_lock(&self) -> Result<(), SqlError> {
        Err(not_lockable())
    }

    /// Where clients are told that one of its columns comes from, if it is a column of a table or a
    /// view.
    fn origin(&self, _column: usize) -> Option<Origin> {
        None
    }
}

/// A table's or view's oid, and the number of one of its columns there, from 1.
pub type Origin = (u32, i16);

/// The error for something whose rows cannot be locked.
#[cold]
fn not_lockable() -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "rows of this relation cannot be locked")
}

/// What it takes to lock rows of a relation.
pub trait Lockable: fmt::Debug + Send + Sync {
    /// The oid of the relation in `pg_class`.
    fn oid(&self) -> u32;

    /// The number of the hidden column, an int8, by whose value rows are locked.
    fn column(&self) -> usize;

    /// Locks the row with this value, for the statement that the thread runs, until its transaction
    /// ends. Returns false when the row is to be left out: it is gone, or it is held and the mark
    /// says to skip it. Blocks while others hold it, unless the mark says otherwise.
    ///
    /// # Errors
    /// 40001, also where the statement will run again by itself; 40P01, 55P03, 57014.
    fn lock(&self, row: i64, mark: RowMark) -> Result<bool, SqlError>;
}

/// All that can be in FROM, as a statement sees it.
pub trait Relations: fmt::Debug + Send + Sync {
    /// What a name means; without a schema, by the session's search path.
    ///
    /// # Errors
    /// 42P01 when there is no such relation, 42501 when its schema may not be used.
    fn named(&self, schema: Option<&str>, name: &str) -> Result<Named, SqlError>;

    /// Fails where the parts of a name begin with a database that is not the session's.
    ///
    /// # Errors
    /// 0A000
    fn check_database(&self, _parts: &[String]) -> Result<(), SqlError> {
        Ok(())
    }
}

/// Something that has columns and rows.
pub trait Relation: Readable {
    /// Its columns, hidden ones last.
    fn columns(&self) -> &[Column];

    /// The columns of its primary key, which determine all others; none if it has none.
    fn key(&self) -> &[usize] {
        &[]
    }

    /// Expressions over its columns whose values other columns of it, hidden ones, have in every
    /// row, with the numbers of these: a filter on the expression is one on the column.
    fn computed(&self) -> &[(Expr, usize)] {
        &[]
    }

    /// About how many rows it has, if anybody knows.
    fn row_estimate(&self) -> Option<u64> {
        None
    }

    /// How its rows are locked.
    ///
    /// # Errors
    /// When they cannot be.
    fn lockable(&self) -> Result<Arc<dyn Lockable>, SqlError> {
        Err(not_lockable())
    }

    /// Whether a scan applies this filter itself, exactly, and is faster for it or as fast.
    fn takes(&self, filter: &Filter) -> bool;

    /// Begins to read. The rows are those of the statement that the thread runs when they are asked
    /// for.
    ///
    /// # Errors
    /// When it cannot be read at all.
    fn scan(&self, scan: Scan) -> Result<Box<dyn Rows>, SqlError>;
}

/// What is to be read of a relation.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Which columns, in this order.
    pub columns: Vec<usize>,
    /// Filters that the relation [takes](Relation::takes); a row passes all of them.
    pub filters: Vec<Filter>,
    /// No more rows than this many are wanted.
    pub limit: Option<u64>,
}

/// A condition on one column. It is not fulfilled where it is unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// The column's number in its relation.
    pub column: usize,
    /// What has to hold of it.
    pub test: Test,
}

/// What has to hold of a column. Values are of the column's kind, and not null.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// `column < value`
    Less(Value),
    /// `column <= value`
    LessOrEqual(Value),
    /// `column = value`
    Equal(Value),
    /// `column >= value`
    GreaterOrEqual(Value),
    /// `column > value`
    Greater(Value),
    /// `column <> value`
    NotEqual(Value),
    /// `column IN (values)`
    Among(Vec<Value>),
    /// `column IS NULL`
    IsNull,
    /// `column IS NOT NULL`
    IsNotNull,
}

/// Rows that are being read.
pub trait Rows: Send {
    /// Gives the next rows, not many more than `count`, to `sink`, and says whether there may be
    /// more.
    ///
    /// # Errors
    /// When they cannot be read, or the statement is interrupted.
    fn next(
        &mut self,
        count: usize,
        sink: &mut dyn FnMut(&dyn Cells) -> Result<(), SqlError>,
    ) -> Result<bool, SqlError>;
}

/// One row, where it lies.
pub trait Cells {
    /// The value of the scan's nth column.
    ///
    /// # Errors
    /// When the row is damaged.
    fn cell(&self, n: usize) -> Result<ValueRef<'_>, SqlError>;
}

/// A planner of any query: the crate `general` is one.
pub trait General: Send + Sync {
    /// Plans a query whose parameters have these types, where they are known. May be used again as
    /// long as the relations have the columns that they have now.
    ///
    /// # Errors
    /// When it is no query over these relations.
    fn plan(
        &self,
        query: &Query,
        parameters: &[Option<Type>],
        relations: &Arc<dyn Relations>,
        context: &EvalContext<'_>,
    ) -> Result<Arc<dyn GeneralPlan>, SqlError>;
}

/// A query that is planned, and can run as often as one likes.
pub trait GeneralPlan: Send + Sync {
    /// What its result has.
    fn columns(&self) -> &[ResultColumn];

    /// The oids of the tables whose rows it locks.
    fn locked(&self) -> &[u32];

    /// The oids of the tables whose rows it has locked in the end for each row that it gives:
    /// behind its columns, a row has the values by which these were locked.
    fn records(&self) -> &[u32];

    /// The types of its parameters, as far as they were found.
    fn parameters(&self) -> &[Type];

    /// Begins to run it.
    ///
    /// # Errors
    /// When it cannot.
    fn run<'r>(&self, run: &Run<'r>) -> Result<Box<dyn GeneralRows + 'r>, SqlError>;

    /// How it is run; with `analyze`, it is run, and what each step took is said.
    ///
    /// # Errors
    /// When it cannot be run.
    fn explain(&self, run: &Run<'_>, analyze: bool) -> Result<Step, SqlError>;
}

/// With what a query runs.
#[derive(Clone, Copy)]
pub struct Run<'r> {
    /// The parameters' values, of their types.
    pub parameters: &'r [Value],
    /// What functions and types depend on: the time zone, formats, the clock.
    pub context: &'r EvalContext<'r>,
    /// What it keeps is taken from here.
    pub memory: &'r Arc<Pool>,
    /// Asked again and again: an error ends the query with it.
    pub interrupted: &'r dyn Fn() -> Result<(), SqlError>,
}

/// The rows of a running query.
pub trait GeneralRows {
    /// Adds some rows to `rows`, each with as many values as the result has columns,
    /// and its [records](GeneralPlan::records) behind them; none when there are no more.
    ///
    /// # Errors
    /// What went wrong, in the query or in a relation.
    fn next(&mut self, rows: &mut Vec<Vec<Value>>) -> Result<(), SqlError>;
}
