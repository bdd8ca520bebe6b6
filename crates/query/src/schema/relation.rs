//! A table as statements use it: its catalog entry, how its rows lie, and the engine's table that
//! has them.

use std::sync::Arc;

use freshet_engine::{IndexDefinition, KeyEncoding, KeyPart, RowLock, TableDefinition};
use freshet_sql::{
    SqlError, SqlState, Type, Value,
    row::{self, KeyColumn, Layout},
    types::binary,
};

use super::{
    Index, Table,
    computed::{self, ComputedColumn},
};
use crate::expression::Expression;

/// A table, and what follows from its catalog entry.
#[derive(Debug)]
pub struct TableInfo {
    /// What the catalog says.
    pub table: Table,
    /// Where the columns lie in its rows.
    pub layout: Layout,
    /// The columns of each index as the engine sees them.
    pub keys: Vec<Vec<KeyColumn>>,
    /// The columns that are computed for indexes.
    pub computed: Vec<ComputedColumn>,
    /// Which rows each index has, over the row as source 0: those for which all of these hold.
    pub predicates: Vec<Vec<Expression>>,
    /// The engine's table with the rows.
    pub rows: Arc<freshet_engine::Table>,
    /// The places of the indexes whose keys are checked after they are written.
    pub deferrable_keys: Vec<usize>,
}

/// How rows of a table lie.
///
/// # Errors
/// When a column cannot be stored.
pub fn layout(table: &Table) -> Result<Layout, SqlError> {
    let columns = table.columns.iter().map(|column| {
        let missing = match &column.missing {
            Some(bytes) => binary::input(column.ty, bytes)?,
            None => Value::Null,
        };
        Ok(row::Column { ty: column.ty, missing, dropped: column.dropped })
    });
    Layout::new(columns.collect::<Result<Vec<_>, SqlError>>()?)
}

/// The columns of an index, as the engine sees them.
///
/// # Errors
/// 42704 when a column's values have no order.
pub fn key_columns(table: &Table, layout: &Layout, index: &Index) -> Result<Vec<KeyColumn>, SqlError> {
    let columns = index.columns.iter().map(|part| {
        let number = usize::from(part.column);
        let found = layout.key_column(number, part.descending);
        found.map(|column| column.nulls_first(part.nulls_first)).ok_or_else(|| {
            let kind = table.columns[number].ty.kind().sql_name();
            let message = format!("data type {kind} has no default operator class for access method \"btree\"");
            SqlError::new(SqlState::UNDEFINED_OBJECT, message)
        })
    });
    columns.collect()
}

/// What the engine is told of an index.
///
/// # Errors
/// When a column's values have no order, or the index's condition makes no sense.
pub fn engine_index(table: &Table, layout: &Layout, index: &Index) -> Result<IndexDefinition, SqlError> {
    let columns = key_columns(table, layout, index)?;
    let parts: Vec<KeyPart> = columns
        .iter()
        .map(|column| KeyPart {
            offset: column.offset,
            width: column.width,
            encoding: match column.encoding {
                row::KeyEncoding::Bytes => KeyEncoding::Bytes,
                row::KeyEncoding::Unsigned => KeyEncoding::Unsigned,
                row::KeyEncoding::Signed => KeyEncoding::Signed,
                row::KeyEncoding::Float => KeyEncoding::Float,
                row::KeyEncoding::Variable => KeyEncoding::Variable,
            },
            nullable: column.nullable,
            descending: column.descending,
            missing_low: column.null_low,
        })
        .collect();
    let made = IndexDefinition::new(&index.name, index.is_unique_at_once(), &parts);
    let tests = computed::index_tests(table, layout, index)?;
    Ok(made.of_rows(tests).with_missing_the_same(index.nulls_not_distinct))
}

/// What the engine is told of a table.
///
/// # Errors
/// When it cannot be stored.
pub fn engine_table(table: &Table) -> Result<TableDefinition, SqlError> {
    let layout = layout(table)?;
    let indexes = table.indexes.iter().map(|index| engine_index(table, &layout, index));
    Ok(TableDefinition::new(&table.rows, indexes.collect::<Result<_, SqlError>>()?))
}

impl TableInfo {
    /// What follows from a catalog entry, whose rows the engine has in `rows`.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn new(table: Table, rows: Arc<freshet_engine::Table>) -> Result<Self, SqlError> {
        let layout = layout(&table)?;
        let keys = table.indexes.iter().map(|index| key_columns(&table, &layout, index));
        let keys = keys.collect::<Result<_, _>>()?;
        let deferrable = table.indexes.iter().enumerate().filter(|(_, index)| index.deferral.is_deferrable());
        let deferrable_keys = deferrable.map(|(place, _)| place).collect();
        let predicates = table.indexes.iter().map(|index| computed::predicate(&table, index));
        let predicates = predicates.collect::<Result<_, _>>()?;
        let computed = computed::columns(&table)?;
        Ok(Self { layout, keys, computed, predicates, rows, deferrable_keys, table })
    }

    /// Which of the table's indexes the engine has under this name: the one that it had when the
    /// engine's index was made.
    pub fn index_named(&self, name: &str) -> Option<usize> {
        let number = self.rows.index_number(name)?;
        self.table.indexes.iter().position(|index| usize::from(index.number) == number)
    }

    /// The engine's number for the index in place `index` among the table's.
    pub fn index_number(&self, index: usize) -> usize {
        usize::from(self.table.indexes[index].number)
    }

    /// How strongly a change of these columns locks a row: more so where rows of other tables may
    /// refer to them.
    pub fn lock_to_change(&self, mut columns: impl Iterator<Item = usize>) -> RowLock {
        let is_key = |column: usize| {
            let unique = self.table.indexes.iter().filter(|index| index.unique);
            unique.flat_map(|index| &index.columns).any(|part| usize::from(part.column) == column)
        };
        if columns.any(is_key) { RowLock::Update } else { RowLock::NoKeyUpdate }
    }

    /// The type of a column.
    pub fn column_type(&self, column: usize) -> Type {
        self.table.columns[column].ty
    }
}
