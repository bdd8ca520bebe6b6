//! What names mean within a query: the columns of FROM, and of the queries around it.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    sync::Arc,
};

use datafusion_expr::Expr;
use freshet_sql::{
    SqlError, SqlState, Type,
    general::{Origin, Readable},
};

use super::{Binder, locking::Locking, typed::Typed};
use crate::function::Outer;

/// A place where a query names a relation or a view, and which of its columns it reads there.
#[derive(Debug)]
pub(super) struct Mention {
    access: Arc<dyn Readable>,
    read: RefCell<BTreeSet<usize>>,
    /// Whether its rows are locked.
    locked: Cell<bool>,
}

impl Mention {
    pub fn of(access: Arc<dyn Readable>) -> Rc<Self> {
        Rc::new(Self { access, read: RefCell::default(), locked: Cell::new(false) })
    }

    /// Notes that rows of it are locked.
    pub fn lock(&self) {
        self.locked.set(true);
    }

    /// Where a column of it comes from.
    pub fn origin(&self, column: usize) -> Option<Origin> {
        self.access.origin(column)
    }

    /// # Errors
    /// 42501 when the query may not read what it reads, or lock what it locks.
    pub fn check(&self) -> Result<(), SqlError> {
        let read: Vec<usize> = self.read.borrow().iter().copied().collect();
        self.access.may_read(&read)?;
        if self.locked.get() { self.access.may_lock() } else { Ok(()) }
    }
}

/// A column that can be named.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub name: String,
    pub ty: Type,
    pub expr: Expr,
    /// Whether `*` leaves it out.
    pub hidden: bool,
    /// The relation or view that it is a column of, if any, and which column.
    pub of: Option<(Rc<Mention>, usize)>,
    /// Where clients are told that it comes from.
    pub origin: Option<Origin>,
}

impl Column {
    /// The column in an expression that reads it.
    pub fn typed(&self) -> Typed {
        if let Some((mention, at)) = &self.of {
            mention.read.borrow_mut().insert(*at);
        }
        self.unread()
    }

    /// The same, without counting as read.
    pub fn unread(&self) -> Typed {
        Typed::new(self.expr.clone(), self.ty).from(self.origin)
    }
}

/// Something in FROM whose name can stand before a column's.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub schema: Option<String>,
    pub name: String,
    pub columns: Vec<Column>,
    /// Which of these are the key that determines all others.
    pub key: Vec<usize>,
    /// True, where there is a row of it, if there may be none.
    pub present: Option<Expr>,
}

impl Table {
    /// The columns that `*` shows.
    fn visible(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| !column.hidden)
    }
}

/// All that is in FROM.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub tables: Vec<Table>,
    /// The columns that can stand without a table's name, in the order of `*`.
    pub columns: Vec<Column>,
}

impl Scope {
    /// The two side by side.
    pub fn join(mut self, mut other: Self) -> Self {
        self.tables.append(&mut other.tables);
        self.columns.append(&mut other.columns);
        self
    }

    fn column(&self, name: &str) -> Result<Option<&Column>, SqlError> {
        one_of(self.columns.iter().filter(|column| column.name == name), name)
    }

    /// The table of a name.
    pub fn table(&self, schema: Option<&str>, name: &str) -> Option<&Table> {
        self.tables
            .iter()
            .find(|table| table.name == name && schema.is_none_or(|schema| table.schema.as_deref() == Some(schema)))
    }
}

fn one_of<'a>(mut found: impl Iterator<Item = &'a Column>, name: &str) -> Result<Option<&'a Column>, SqlError> {
    let first = found.next();
    if found.next().is_some() {
        return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, format!("column reference \"{name}\" is ambiguous")));
    }
    Ok(first)
}

/// The innermost query below a height whose columns were found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Innermost {
    pub below: usize,
    pub level: Option<usize>,
}

impl Innermost {
    pub fn note(&mut self, level: usize) {
        if level < self.below {
            self.level = self.level.max(Some(level));
        }
    }
}

/// One query among those that are nested in each other.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub scope: Scope,
    /// The number of the subquery that begins here: what it takes from outside is captured.
    pub subquery: Option<usize>,
    /// Whether nothing further out can be seen.
    pub closed: bool,
    /// What the subquery takes from outside, as the query around it sees it.
    pub captures: Vec<Typed>,
    pub clause: super::clause::Clause,
    /// The windows that have names.
    pub windows: Vec<sqlparser::ast::NamedWindowDefinition>,
    pub collected: super::clause::Collected,
    /// Expressions with subqueries that are grouped by: repeated occurrences match.
    pub grouped: Vec<(sqlparser::ast::Expr, Typed)>,
    /// Whether the last rows of a recursive query are read here.
    pub recursive: bool,
    /// Whose rows are locked.
    pub locking: Locking,
}

impl Binder<'_> {
    /// A column by its name alone.
    ///
    /// # Errors
    /// 42702 when there are several.
    pub(super) fn find_column(&mut self, name: &str) -> Result<Option<Typed>, SqlError> {
        self.find(self.levels.len(), &|scope| Ok(scope.column(name)?.map(Column::typed)))
    }

    /// A column of a table.
    ///
    /// # Errors
    /// 42P01 when there is no such table, 42703 when it has no such column.
    pub(super) fn qualified_column(
        &mut self,
        schema: Option<&str>,
        table: &str,
        name: &str,
    ) -> Result<Typed, SqlError> {
        let found = self.find(self.levels.len(), &|scope| {
            let Some(found) = scope.table(schema, table) else { return Ok(None) };
            match one_of(found.columns.iter().filter(|column| column.name == name), name)? {
                Some(column) => Ok(Some(column.typed())),
                None => Err(SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column {table}.{name} does not exist"))),
            }
        })?;
        found.ok_or_else(|| missing_table(table))
    }

    /// Looks through the levels below `height`, the innermost first.
    fn find(
        &mut self,
        height: usize,
        look: &dyn Fn(&Scope) -> Result<Option<Typed>, SqlError>,
    ) -> Result<Option<Typed>, SqlError> {
        let Some(at) = height.checked_sub(1) else { return Ok(None) };
        let level = &self.levels[at];
        if let Some(found) = look(&level.scope)? {
            self.innermost.note(at);
            return Ok(Some(found));
        }
        if level.closed {
            return Ok(None);
        }
        let subquery = level.subquery;
        let Some(found) = self.find(at, look)? else { return Ok(None) };
        let Some(subquery) = subquery else { return Ok(Some(found)) };
        Ok(Some(self.levels[at].capture(subquery, found)))
    }

    /// What is true where there is a row of a table that is in FROM, if there may be none.
    pub(super) fn present(&mut self, schema: Option<&str>, name: &str) -> Result<Option<Expr>, SqlError> {
        let look = |scope: &Scope| {
            let present = scope.table(schema, name).and_then(|table| table.present.clone());
            Ok(present.map(|expr| Typed::new(expr, Type::BOOL)))
        };
        Ok(self.find(self.levels.len(), &look)?.map(|typed| typed.expr))
    }

    /// The columns of a table that is in FROM, here or further out.
    pub(super) fn table_columns(
        &mut self,
        schema: Option<&str>,
        name: &str,
    ) -> Result<Option<Vec<(String, Typed)>>, SqlError> {
        let found = self.levels.iter().rev().find_map(|level| level.scope.table(schema, name));
        let Some(count) = found.map(|table| table.visible().count()) else { return Ok(None) };
        let mut columns = Vec::with_capacity(count);
        // Several may have one name.
        for at in 0..count {
            let column = |scope: &Scope| scope.table(schema, name).and_then(|table| table.visible().nth(at).cloned());
            let found = self.levels.iter().rev().find_map(|level| column(&level.scope)).map(|column| column.name);
            let typed = self.find(self.levels.len(), &|scope| Ok(column(scope).as_ref().map(Column::typed)))?;
            columns.extend(found.zip(typed));
        }
        Ok(Some(columns))
    }
}

impl Level {
    /// What stands in a subquery for something from outside.
    pub fn capture(&mut self, subquery: usize, typed: Typed) -> Typed {
        let at = match self.captures.iter().position(|captured| captured.expr == typed.expr) {
            Some(at) => at,
            None => {
                self.captures.push(typed.clone());
                self.captures.len() - 1
            }
        };
        Typed::new(Outer::expression(subquery, at, typed.ty), typed.ty).from(typed.origin)
    }
}

/// The error for a table's name that means nothing.
#[cold]
pub(super) fn missing_table(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_TABLE, format!("missing FROM-clause entry for table \"{name}\""))
}

/// The error for a column's name that means nothing.
#[cold]
pub(super) fn missing_column(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"))
}
