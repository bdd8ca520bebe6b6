//! Where the rows of a relation go: what a scan does not want is dropped at once.

use std::cmp::Ordering;

use freshet_sql::{
    Kind, Value, ValueRef,
    general::{Column, Scan, Test},
    types::{Array, Interval, Timestamp},
};

use crate::schema::Oid;

/// Takes rows, keeps what a scan wants of them.
pub struct Sink<'s> {
    columns: &'s [Column],
    /// Whose rows these are, where one can ask for that.
    table: Option<Oid>,
    scan: &'s Scan,
    rows: Vec<Vec<Value>>,
}

/// Something that is a value.
pub trait Cell {
    /// This, as a value of SQL.
    fn cell(self) -> Value;
}

macro_rules! cells {
    ($($from:ty => $value:ident),+ $(,)?) => {
        $(impl Cell for $from {
            fn cell(self) -> Value {
                Value::$value(self.into())
            }
        })+
    };
}

cells! {
    bool => Bool, i16 => Int2, i32 => Int4, i64 => Int8, f32 => Float4, f64 => Float8, u32 => Oid, &str => Text, String => Text,
    std::sync::Arc<str> => Text, Timestamp => Timestamptz, Interval => Interval,
}

impl Cell for &String {
    fn cell(self) -> Value {
        Value::text(self.as_str())
    }
}

/// A letter of type `"char"`.
impl Cell for char {
    fn cell(self) -> Value {
        Value::SingleChar(u8::try_from(self).unwrap_or(b'?'))
    }
}

impl Cell for Value {
    fn cell(self) -> Value {
        self
    }
}

impl<C: Cell> Cell for Option<C> {
    fn cell(self) -> Value {
        self.map_or(Value::Null, Cell::cell)
    }
}

/// Null.
pub const NULL: Value = Value::Null;

/// A row of values.
macro_rules! row {
    ($($cell:expr),* $(,)?) => {
        vec![$($crate::system::sink::Cell::cell($cell)),*]
    };
}
pub(super) use row;

/// An array of numbers of type `smallint`.
pub fn shorts(values: impl IntoIterator<Item = i16>) -> Value {
    Value::array(Array::new(Kind::Int2, values.into_iter().map(Value::Int2).collect()))
}

/// An `int2vector`, whose first subscript is 0.
pub fn short_vector(values: impl IntoIterator<Item = i16>) -> Value {
    Value::array(Array::with_lower(Kind::Int2, values.into_iter().map(Value::Int2).collect(), 0))
}

/// An array of object ids.
pub fn oids(values: impl IntoIterator<Item = Oid>) -> Value {
    Value::array(Array::new(Kind::Oid, values.into_iter().map(Value::Oid).collect()))
}

/// An `oidvector`, whose first subscript is 0.
pub fn oid_vector(values: impl IntoIterator<Item = Oid>) -> Value {
    Value::array(Array::with_lower(Kind::Oid, values.into_iter().map(Value::Oid).collect(), 0))
}

/// An array of texts.
pub fn texts(values: impl IntoIterator<Item = impl Into<std::sync::Arc<str>>>) -> Value {
    Value::array(Array::new(Kind::Text, values.into_iter().map(Value::text).collect()))
}

/// `YES` or `NO`.
pub fn yes(truth: bool) -> &'static str {
    if truth { "YES" } else { "NO" }
}

/// Whether a value passes a test: not, where it is unknown.
pub fn passes(value: ValueRef<'_>, test: &Test) -> bool {
    let order = |wanted: &Value, fits: fn(Ordering) -> bool| {
        !value.is_null() && !wanted.is_null() && fits(value.compare(wanted.as_ref()))
    };
    match test {
        Test::Less(wanted) => order(wanted, Ordering::is_lt),
        Test::LessOrEqual(wanted) => order(wanted, Ordering::is_le),
        Test::Equal(wanted) => order(wanted, Ordering::is_eq),
        Test::GreaterOrEqual(wanted) => order(wanted, Ordering::is_ge),
        Test::Greater(wanted) => order(wanted, Ordering::is_gt),
        Test::NotEqual(wanted) => order(wanted, Ordering::is_ne),
        Test::Among(all) => all.iter().any(|wanted| order(wanted, Ordering::is_eq)),
        Test::IsNull => value.is_null(),
        Test::IsNotNull => !value.is_null(),
    }
}

impl<'s> Sink<'s> {
    /// For a scan of a relation with these columns. The columns were checked to be there.
    pub fn new(columns: &'s [Column], table: Option<Oid>, scan: &'s Scan) -> Self {
        Self { columns, table, scan, rows: Vec::new() }
    }

    fn number(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|known| known.name == column)
    }

    /// Whether a column is asked for: what is costly may be left out otherwise.
    pub fn wants(&self, column: &str) -> bool {
        self.number(column).is_some_and(|number| {
            self.scan.columns.contains(&number) || self.scan.filters.iter().any(|filter| filter.column == number)
        })
    }

    /// Whether rows with this value in a column may pass the scan's filters: to be asked before
    /// they are made.
    pub fn admits(&self, column: &str, value: impl Cell) -> bool {
        if self.is_full() {
            return false;
        }
        if self.scan.filters.is_empty() {
            return true;
        }
        let Some(number) = self.number(column) else { return true };
        let value = value.cell();
        let mut filters = self.scan.filters.iter().filter(|filter| filter.column == number);
        filters.all(|filter| passes(value.as_ref(), &filter.test))
    }

    fn is_full(&self) -> bool {
        self.scan.limit.is_some_and(|limit| self.rows.len() as u64 >= limit)
    }

    /// A row, with a value for each column that is not hidden.
    pub fn push(&mut self, mut row: Vec<Value>) {
        row.extend(self.table.filter(|_| row.len() < self.columns.len()).map(Value::Oid));
        debug_assert_eq!(row.len(), self.columns.len(), "a row of another relation: {row:?}");
        if self.is_full() {
            return;
        }
        let value = |number: usize| row.get(number).map_or(ValueRef::Null, Value::as_ref);
        if self.scan.filters.iter().all(|filter| passes(value(filter.column), &filter.test)) {
            let wanted = self.scan.columns.iter().map(|number| row.get(*number).cloned().unwrap_or_default());
            self.rows.push(wanted.collect());
        }
    }

    /// What was kept.
    pub fn finish(self) -> Vec<Vec<Value>> {
        self.rows
    }
}
