//! The transaction's tables for general queries.
//!
//! General queries know nothing of transactions, and keep what they read from in structures without
//! lifetimes. So a relation here is a table and nothing more; when its rows
//! are asked for, they are those of the statement that the thread runs ([`within`]). They are read
//! in pieces: a scan remembers where it was.

use std::{
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use freshet_engine::{Direction, Rid};
use freshet_sql::{
    SqlError, Type, Value, ValueRef,
    general::{Cells, Column, Filter, Lockable, Named, Origin, Readable, Relation, Relations, Rows, Scan, Test},
    locking::RowMark,
    row::{KeyRange, Layout},
    types::Kind,
};

use crate::{
    bind::access::{self, Access, Among},
    bind::modify::parse_expression,
    bind::select::all_of,
    error::read_error,
    execute::Run,
    expression::{Comparison, Expression, SessionView, Source},
    schema::{self, Oid, Schema, TableInfo, no_relation, privilege},
    session::State,
    syntax,
    system::{self, SystemView},
};

scoped_tls_hkt::scoped_thread_local!(static RUNNING: for<'a> &'a (dyn Scanner + 'a));

/// A statement that runs, as relations see it.
trait Scanner {
    /// The next rows of a scan, not many more than `count`; says whether there may be more.
    fn read(
        &self,
        scan: &mut StoredRows,
        count: usize,
        sink: &mut dyn FnMut(&dyn Cells) -> Result<(), SqlError>,
    ) -> Result<bool, SqlError>;

    /// Locks a row. Returns whether it stays in the query.
    fn lock(&self, info: &TableInfo, rid: Rid, mark: RowMark) -> Result<bool, SqlError>;

    /// The session that runs it.
    fn session(&self) -> &dyn SessionView;
}

/// Asks the session whose statement this thread runs; nothing when it runs none.
pub fn with_session<T>(ask: impl FnOnce(&dyn SessionView) -> T) -> Option<T> {
    RUNNING.is_set().then(|| RUNNING.with(|run| ask(run.session())))
}

/// Does something in which relations are read, as of a statement.
pub fn within<T>(run: &Run<'_, '_>, what: impl FnOnce() -> T) -> T {
    RUNNING.set(run as &dyn Scanner, what)
}

/// On whose behalf relations are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// This role's.
    Role(Oid),
    /// This role's, within a view: names of schemas were resolved when it was made.
    View(Oid),
    /// Nothing is read: a query is only described.
    Nobody,
}

/// What a session's statements can name.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The catalog, as the transaction sees it.
    pub schema: Arc<Schema>,
    /// Where names without a schema are looked for.
    pub path: Vec<Oid>,
    /// The role that asks.
    pub role: Oid,
    /// On whose behalf relations are read.
    pub reader: Reader,
    /// What the database is called.
    pub database: Arc<str>,
    /// The server, as system views show it.
    pub system: Arc<dyn SystemView>,
}

impl Snapshot {
    /// As a session sees it now.
    pub fn of(state: &State) -> Self {
        Self {
            schema: Arc::clone(&state.schema),
            path: state.path(),
            role: state.role,
            reader: Reader::Role(state.role),
            database: Arc::clone(&state.database),
            system: Arc::clone(&state.system),
        }
    }
}

impl Relations for Snapshot {
    fn check_database(&self, parts: &[String]) -> Result<(), SqlError> {
        self.schema.check_database(parts)
    }

    fn named(&self, schema: Option<&str>, name: &str) -> Result<Named, SqlError> {
        if let Some(relation) = system::relation(self, schema, name) {
            return Ok(Named::Relation(relation));
        }
        let found = match (self.reader, schema) {
            (Reader::View(_), Some(schema)) => {
                self.schema.namespace(schema).and_then(|namespace| self.schema.named(namespace, name))
            }
            _ => self.schema.lookup(self.role, &self.path, schema, name)?,
        };
        match found {
            Some(schema::Named::Table(oid)) => {
                let info = self.schema.table(oid).ok_or_else(|| no_relation(name))?;
                Ok(Named::Relation(Arc::new(Stored::new(info, self))))
            }
            Some(schema::Named::View(oid)) => {
                let view = self.schema.view(oid).ok_or_else(|| no_relation(name))?;
                let query = syntax::query(&view.query).map_err(|cause| syntax::unreadable(&view.query, cause))?;
                let column = |(name, ty): &(String, _)| Column { name: name.clone(), ty: *ty, hidden: false };
                let reader = match self.reader {
                    Reader::Nobody => Reader::Nobody,
                    Reader::Role(role) | Reader::View(role) if view.security_invoker => Reader::View(role),
                    Reader::Role(_) | Reader::View(_) => Reader::View(view.owner),
                };
                Ok(Named::View {
                    query: Arc::new(*query),
                    relations: Arc::new(Self { reader, ..self.clone() }),
                    columns: view.columns.iter().map(column).collect(),
                    access: Arc::new(ViewAccess { view: Arc::clone(view), guard: Guard::of(self) }),
                })
            }
            Some(schema::Named::Sequence(oid)) => {
                let sequence = self.schema.sequence(oid).ok_or_else(|| no_relation(name))?;
                Ok(Named::Relation(system::sequence(self, sequence)))
            }
            _ => Err(no_relation(&schema.map_or_else(|| name.to_owned(), |schema| format!("{schema}.{name}")))),
        }
    }
}

/// The name of the hidden column that has the record id of a row, as an int8.
pub const RECORD_ID: &str = "record id";

/// Its number, which is that of no column.
const RECORD_ID_COLUMN: usize = usize::MAX;

/// The reader, and the catalog in which its privileges are.
#[derive(Debug)]
pub(crate) struct Guard {
    schema: Arc<Schema>,
    reader: Reader,
}

impl Guard {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        Self { schema: Arc::clone(&snapshot.schema), reader: snapshot.reader }
    }

    /// The role in whose name something is read, if it is.
    pub(crate) fn role(&self) -> Option<Oid> {
        match self.reader {
            Reader::Role(role) | Reader::View(role) => Some(role),
            Reader::Nobody => None,
        }
    }

    /// Fails unless these columns of something may be read.
    ///
    /// # Errors
    /// 42501.
    pub(crate) fn may_read(
        &self,
        of: (Oid, &[schema::Grant]),
        columns: impl IntoIterator<Item = u16>,
        what: (&str, &str),
    ) -> Result<(), SqlError> {
        self.may(privilege::SELECT, of, columns, what)
    }

    /// Fails unless rows of something may be locked.
    ///
    /// # Errors
    /// 42501.
    fn may_lock(&self, of: (Oid, &[schema::Grant]), what: (&str, &str)) -> Result<(), SqlError> {
        self.may(privilege::UPDATE, of, [], what)
    }

    fn may(
        &self,
        privilege: u16,
        (owner, grants): (Oid, &[schema::Grant]),
        columns: impl IntoIterator<Item = u16>,
        (kind, name): (&str, &str),
    ) -> Result<(), SqlError> {
        let Some(role) = self.role() else { return Ok(()) };
        if self.schema.may_with_columns((role, owner), grants, privilege, columns) {
            return Ok(());
        }
        Err(schema::denied(kind, name))
    }
}

/// A view, and the check whether it may be read.
#[derive(Debug)]
struct ViewAccess {
    view: Arc<schema::View>,
    guard: Guard,
}

impl Readable for ViewAccess {
    fn may_read(&self, columns: &[usize]) -> Result<(), SqlError> {
        let view = &self.view;
        let columns = columns.iter().map(|column| *column as u16);
        self.guard.may_read((view.owner, &view.grants), columns, ("view", &view.name))
    }

    fn may_lock(&self) -> Result<(), SqlError> {
        let view = &self.view;
        self.guard.may_lock((view.owner, &view.grants), ("view", &view.name))
    }

    fn origin(&self, column: usize) -> Option<Origin> {
        Some((self.view.oid, column as i16 + 1))
    }
}

/// A table, read as a relation of a general query.
#[derive(Debug)]
struct Stored {
    info: Arc<TableInfo>,
    columns: Vec<Column>,
    /// The number in the table of each of these.
    numbers: Vec<usize>,
    /// Which of these are the primary key.
    key: Vec<usize>,
    /// What hidden ones of these have computed.
    computed: Vec<(sqlparser::ast::Expr, usize)>,
    system: Arc<dyn SystemView>,
    guard: Guard,
}

impl Stored {
    fn new(info: &Arc<TableInfo>, snapshot: &Snapshot) -> Self {
        let column = |(number, column): (usize, &schema::Column)| {
            (number, Column { name: column.name.clone(), ty: column.ty, hidden: false })
        };
        let (mut numbers, mut columns): (Vec<_>, Vec<_>) = info.table.visible_columns().map(column).unzip();
        let mut expressions = Vec::new();
        // What is computed for some rows only is of no use for others.
        for computed in info.computed.iter().filter(|computed| computed.when.is_empty()) {
            let sql = info.table.columns[usize::from(computed.column)].computed.as_ref();
            let Some(Ok(parsed)) = sql.map(|it| parse_expression(&it.expression)) else { continue };
            let mut name = format!("{} (computed)", info.shown_column(computed.column, true));
            while columns.iter().any(|column| column.name == name) {
                name.push('*');
            }
            expressions.push((parsed, columns.len()));
            numbers.push(usize::from(computed.column));
            columns.push(Column { name, ty: computed.ty, hidden: true });
        }
        numbers.push(RECORD_ID_COLUMN);
        columns.push(Column { name: RECORD_ID.to_owned(), ty: Type::of(Kind::Int8), hidden: true });
        let place = |column: u16| numbers.iter().position(|number| *number == usize::from(column));
        let key = info
            .table
            .indexes
            .iter()
            .find(|index| index.constraint == schema::IndexConstraint::Primary && index.is_unique_at_once())
            .and_then(|index| index.columns.iter().map(|part| place(part.column)).collect::<Option<Vec<_>>>());
        let (key, system) = (key.unwrap_or_default(), Arc::clone(&snapshot.system));
        let computed = expressions;
        Self { info: Arc::clone(info), columns, numbers, key, computed, system, guard: Guard::of(snapshot) }
    }

    fn condition(&self, filter: &Filter) -> Option<Expression> {
        let number = self.numbers.get(filter.column).filter(|number| **number != RECORD_ID_COLUMN)?;
        let column = Expression::Column { source: 0, column: *number as u16 };
        let compare = |comparison, value: &Value| {
            Expression::Compare(comparison, Box::new((column.clone(), Expression::Constant(value.clone()))))
        };
        Some(match &filter.test {
            Test::Less(value) => compare(Comparison::Less, value),
            Test::LessOrEqual(value) => compare(Comparison::LessOrEqual, value),
            Test::Equal(value) => compare(Comparison::Equal, value),
            Test::GreaterOrEqual(value) => compare(Comparison::GreaterOrEqual, value),
            Test::Greater(value) => compare(Comparison::Greater, value),
            Test::NotEqual(value) => compare(Comparison::NotEqual, value),
            Test::Among(values) => {
                let list = values.iter().cloned().map(Expression::Constant).collect();
                Expression::In(Box::new(column), list)
            }
            Test::IsNull => Expression::IsNull(Box::new(column)),
            Test::IsNotNull => Expression::Not(Box::new(Expression::IsNull(Box::new(column)))),
        })
    }
}

impl Readable for Stored {
    fn may_read(&self, columns: &[usize]) -> Result<(), SqlError> {
        let table = &self.info.table;
        let numbers = columns.iter().filter_map(|column| self.numbers.get(*column).copied());
        let mut read: Vec<usize> = numbers.collect();
        let whole = read.len();
        read.retain(|number| *number != RECORD_ID_COLUMN);
        if read.is_empty() && whole > 0 {
            // The places of its rows, not their contents: roles that may change rows may see that.
            // Other privileges of a change are checked where it is bound.
            let Some(role) = self.guard.role() else { return Ok(()) };
            let held = self.guard.schema.any_privileges(role, table.owner, &table.grants);
            if held & (privilege::SELECT | privilege::UPDATE | privilege::DELETE) != 0 {
                return Ok(());
            }
        }
        let read = read.into_iter().map(|number| number as u16);
        self.guard.may_read((table.owner, &table.grants), read, ("table", &table.name))
    }

    fn may_lock(&self) -> Result<(), SqlError> {
        let table = &self.info.table;
        self.guard.may_lock((table.owner, &table.grants), ("table", &table.name))
    }

    fn origin(&self, column: usize) -> Option<Origin> {
        let number = self.numbers.get(column).filter(|number| **number != RECORD_ID_COLUMN)?;
        Some((self.info.table.oid, *number as i16 + 1))
    }
}

/// A table whose rows are locked.
#[derive(Debug)]
struct LockableTable {
    info: Arc<TableInfo>,
    /// Its column of record ids.
    column: usize,
}

impl Lockable for LockableTable {
    fn oid(&self) -> u32 {
        self.info.table.oid
    }

    fn column(&self) -> usize {
        self.column
    }

    fn lock(&self, row: i64, mark: RowMark) -> Result<bool, SqlError> {
        if !RUNNING.is_set() {
            return Err(SqlError::internal("a row is locked outside of a statement"));
        }
        RUNNING.with(|run| run.lock(&self.info, Rid(row as u64), mark))
    }
}

impl Relation for Stored {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn key(&self) -> &[usize] {
        &self.key
    }

    fn computed(&self) -> &[(sqlparser::ast::Expr, usize)] {
        &self.computed
    }

    fn row_estimate(&self) -> Option<u64> {
        self.system.approximate_rows(&self.info)
    }

    fn lockable(&self) -> Result<Arc<dyn Lockable>, SqlError> {
        Ok(Arc::new(LockableTable { info: Arc::clone(&self.info), column: self.columns.len() - 1 }))
    }

    fn takes(&self, filter: &Filter) -> bool {
        // Alternatives are looked up where an index begins with the column; looked at row by row,
        // others are faster.
        if let (Test::Among(_), Some(number)) = (&filter.test, self.numbers.get(filter.column)) {
            let leads = |index: &schema::Index| {
                index.predicate.is_none()
                    && index.columns.first().is_some_and(|part| usize::from(part.column) == *number)
            };
            return self.info.table.indexes.iter().any(leads);
        }
        self.condition(filter).is_some()
    }

    fn scan(&self, scan: Scan) -> Result<Box<dyn Rows>, SqlError> {
        let conditions = scan.filters.iter().map(|filter| self.condition(filter)).collect::<Option<Vec<_>>>();
        let mut conditions = conditions.ok_or_else(|| SqlError::internal("a filter on no column"))?;
        let (access, _) = access::choose(&self.info, 0, &mut conditions, &[]);
        let wanted = scan.columns.iter().map(|column| self.numbers.get(*column).copied());
        let columns = wanted.collect::<Option<Vec<_>>>();
        Ok(Box::new(StoredRows {
            info: Arc::clone(&self.info),
            columns: columns.ok_or_else(|| SqlError::internal("a scan of no column"))?,
            access,
            ranges: None,
            filter: all_of(conditions),
            position: None,
            left: scan.limit.unwrap_or(u64::MAX),
        }))
    }
}

/// A table's rows that are being read.
struct StoredRows {
    info: Arc<TableInfo>,
    columns: Vec<usize>,
    access: Access,
    /// The parts of the index that are still to be read, the next one last; once they are known.
    ranges: Option<Vec<KeyRange>>,
    filter: Option<Expression>,
    /// The last row that was given.
    position: Option<(Vec<u8>, Rid)>,
    left: u64,
}

impl Rows for StoredRows {
    fn next(
        &mut self,
        count: usize,
        sink: &mut dyn FnMut(&dyn Cells) -> Result<(), SqlError>,
    ) -> Result<bool, SqlError> {
        if !RUNNING.is_set() {
            return Err(SqlError::internal("a table is read outside of a statement"));
        }
        RUNNING.with(|run| run.read(self, count, sink))
    }
}

/// A row, where it lies.
struct StoredCells<'r> {
    layout: &'r Layout,
    columns: &'r [usize],
    row: &'r [u8],
    rid: Rid,
}

impl Cells for StoredCells<'_> {
    fn cell(&self, n: usize) -> Result<ValueRef<'_>, SqlError> {
        let column = self.columns.get(n).ok_or_else(|| SqlError::internal("a row has no such cell"))?;
        if *column == RECORD_ID_COLUMN {
            return Ok(ValueRef::Int8(self.rid.0 as i64));
        }
        self.layout.get(self.row, *column)
    }
}

impl Scanner for Run<'_, '_> {
    fn session(&self) -> &dyn SessionView {
        self.environment.session
    }

    fn lock(&self, info: &TableInfo, rid: Rid, mark: RowMark) -> Result<bool, SqlError> {
        self.lock_found(info, rid, mark)
    }

    fn read(
        &self,
        scan: &mut StoredRows,
        count: usize,
        sink: &mut dyn FnMut(&dyn Cells) -> Result<(), SqlError>,
    ) -> Result<bool, SqlError> {
        (self.interrupted)()?;
        let StoredRows { info, columns, access, ranges, filter, position, left } = scan;
        let ranges = match ranges {
            Some(ranges) => ranges,
            None => {
                let mut found = self.ranges_of(info, access)?;
                found.reverse();
                ranges.insert(found)
            }
        };
        let mut given = 0;
        while given < count
            && *left > 0
            && let Some(range) = ranges.last()
        {
            let (from, to) = range.bounds();
            let start = position.take();
            let from = start.as_ref().map_or(from, |(key, _)| Bound::Included(key.as_slice()));
            let (mut outcome, mut last, mut met) = (Ok(()), None, 0);
            let visit = |key: &[u8], record: freshet_engine::Record<'_>| {
                if start.as_ref().is_some_and(|(at, rid)| at == key && record.rid <= *rid) {
                    return ControlFlow::Continue(());
                }
                met += 1;
                let source = Source::Stored(&info.layout, record.row, record.rid);
                let passes = self.step().and_then(|()| match filter {
                    Some(filter) => filter.holds(&[source], &self.environment),
                    None => Ok(true),
                });
                outcome = passes.and_then(|passes| {
                    if passes {
                        let (layout, row, rid) = (&info.layout, record.row, record.rid);
                        sink(&StoredCells { layout, columns, row, rid })?;
                        given += 1;
                        *left -= 1;
                    }
                    Ok(())
                });
                if outcome.is_err() || given >= count || *left == 0 {
                    last = Some((key.to_vec(), record.rid));
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            };
            let index = info.index_number(access.index);
            self.transaction.scan(&info.rows, index, (from, to), Direction::Forward, visit).map_err(read_error)?;
            self.count_read(info, access, u64::from(start.is_none()), met);
            outcome?;
            if last.is_none() {
                ranges.pop();
            }
            *position = last;
        }
        Ok(!ranges.is_empty() && *left > 0)
    }
}

impl Run<'_, '_> {
    /// The parts of an index that an access path reads, in order.
    pub(crate) fn ranges_of(&self, info: &TableInfo, access: &Access) -> Result<Vec<KeyRange>, SqlError> {
        let keys = &info.keys[access.index];
        let append = |values: &[Expression], from: usize, key: &mut Vec<u8>| {
            for (value, column) in values.iter().zip(&keys[from..]) {
                let value = value.evaluate(&[], &self.environment)?;
                if value.is_null() || !column.append_key(value.as_ref(), key)? {
                    return Ok::<_, SqlError>(false);
                }
            }
            Ok(true)
        };
        let mut prefix = Vec::new();
        if !append(&access.equal, 0, &mut prefix)? {
            return Ok(Vec::new());
        }
        let mut prefixes = Vec::new();
        match &access.among {
            Among::Nothing if access.range.is_some() => {
                let mut range = KeyRange::new();
                self.set_between(&mut range, &prefix, &keys[access.equal.len()], &access.range, &[])?;
                return Ok(if range.is_empty() { Vec::new() } else { vec![range] });
            }
            Among::Nothing => prefixes.push(prefix),
            Among::Rows(alternatives) => {
                for values in alternatives {
                    let mut key = prefix.clone();
                    if append(values, access.equal.len(), &mut key)? {
                        prefixes.push(key);
                    }
                }
            }
            Among::Ranges(ranges) => return self.alternatives(&prefix, &keys[access.equal.len()], ranges, &[]),
            Among::Array(_) => return Err(SqlError::internal("a scan among the elements of an array")),
        }
        prefixes.sort_unstable();
        prefixes.dedup();
        let range = |prefix: &Vec<u8>| {
            let mut range = KeyRange::new();
            range.set_prefix(prefix);
            range
        };
        Ok(prefixes.iter().map(range).collect())
    }
}
