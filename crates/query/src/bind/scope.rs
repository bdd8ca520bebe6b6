//! What names in a statement can mean.

use std::{rc::Rc, sync::Arc};

use freshet_sql::{SqlError, SqlState, Type, general::Origin};

use super::{aggregate::Grouping, name_of, need::Need};
use crate::{
    expression::{Expression, Typed},
    schema::{Table, TableInfo},
};
use sqlparser::ast::{Expr, Ident};

/// A row that expressions can refer to.
#[derive(Clone, Debug)]
pub struct ScopeSource {
    /// Its name in the statement.
    pub alias: String,
    /// The schema that its name can be qualified with.
    pub schema: Option<String>,
    /// The columns that can be named: name, type, number in the row.
    pub columns: Vec<(String, Type, u16)>,
    /// The table that it is a row of.
    pub table: Option<Arc<TableInfo>>,
    /// Notes what is read of it, if the statement's role needs privileges for that.
    pub need: Option<Rc<Need>>,
    /// Where the columns come from, if it is no table's row.
    pub origins: Vec<Option<Origin>>,
}

impl ScopeSource {
    /// The row of a table.
    pub fn table(info: &Arc<TableInfo>, alias: String, schema: Option<String>) -> Self {
        let columns = info.table.visible_columns();
        let columns = columns.map(|(number, column)| (column.name.clone(), column.ty, number as u16)).collect();
        Self { alias, schema, columns, table: Some(Arc::clone(info)), need: None, origins: Vec::new() }
    }

    /// Where clients are told that a column comes from.
    pub fn origin(&self, column: u16) -> Option<Origin> {
        match &self.table {
            Some(info) => Some((info.table.oid, column as i16 + 1)),
            None => self.origins.get(usize::from(column)).copied().flatten(),
        }
    }

    /// Notes that a column is read.
    pub fn read(&self, column: u16) {
        if let Some(need) = &self.need {
            need.read(column);
        }
    }
}

/// The rows that expressions can refer to; and within an aggregation, what it has computed.
#[derive(Debug, Default)]
pub struct Scope {
    /// Rows, in the order in which expressions number them.
    pub sources: Vec<ScopeSource>,
    /// What is known of the aggregation, where expressions stand behind it.
    pub grouping: Option<Grouping>,
}

impl Scope {
    /// No rows at all.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// The rows of a table, whether it is there yet or not, which need no privilege to be read.
    pub fn over(table: &Table) -> Self {
        let columns = table.visible_columns();
        let columns = columns.map(|(number, column)| (column.name.clone(), column.ty, number as u16)).collect();
        let alias = table.name.clone();
        let source = ScopeSource { alias, schema: None, columns, table: None, need: None, origins: Vec::new() };
        Self { sources: vec![source], grouping: None }
    }

    /// One table's rows, which need no privilege to be read.
    pub fn of(info: &Arc<TableInfo>, alias: &str) -> Self {
        Self { sources: vec![ScopeSource::table(info, alias.to_owned(), None)], grouping: None }
    }

    /// One table's rows.
    pub fn needing(info: &Arc<TableInfo>, alias: &str, need: &Rc<Need>) -> Self {
        let mut scope = Self::of(info, alias);
        scope.sources[0].need = Some(Rc::clone(need));
        scope
    }

    /// Whether a name can be that of a column.
    pub fn has(&self, name: &Ident) -> bool {
        self.find(std::slice::from_ref(name)).is_ok()
    }

    /// Whether something in FROM goes by this name.
    pub fn has_source(&self, name: &str) -> bool {
        self.sources.iter().any(|source| source.alias == name)
    }

    /// The column of this name, to be read.
    ///
    /// # Errors
    /// 42703, 42702 when several have it, 42P01 for a table that is not in the statement.
    pub fn column(&self, parts: &[Ident]) -> Result<Typed, SqlError> {
        let found = self.find(parts)?;
        if let Expression::Column { source, column } = found.expression {
            self.sources[usize::from(source)].read(column);
        }
        Ok(found)
    }

    /// The column that an expression shows as it is, if it does, and its type.
    pub fn origin(&self, expr: &Expr) -> Option<(Origin, Type)> {
        let parts = match expr {
            Expr::Nested(inner) => return self.origin(inner),
            Expr::Cast { expr, data_type, array: false, format: None, .. } => {
                let to = Type::from_sql(data_type).ok()?;
                return self.origin(expr).filter(|(_, ty)| *ty == to);
            }
            Expr::Identifier(name) => std::slice::from_ref(name),
            Expr::CompoundIdentifier(parts) => parts,
            _ => return None,
        };
        let Typed { expression: Expression::Column { source, column }, ty } = self.find(parts).ok()? else {
            return None;
        };
        Some((self.sources.get(usize::from(source))?.origin(column)?, ty))
    }

    fn find(&self, parts: &[Ident]) -> Result<Typed, SqlError> {
        let names: Vec<String> = parts.iter().map(name_of).collect();
        let (qualifier, name) = match names.as_slice() {
            [name] => (None, name),
            [.., table, name] => (Some(table), name),
            [] => return Err(SqlError::internal("a column without a name")),
        };
        let mut found = None;
        let mut known = false;
        for (number, source) in self.sources.iter().enumerate() {
            if qualifier.is_some_and(|qualifier| *qualifier != source.alias) {
                continue;
            }
            if let [.., schema, _, _] = names.as_slice()
                && source.schema.as_ref().is_some_and(|own| own != schema)
            {
                continue;
            }
            known = true;
            for (_, ty, column) in source.columns.iter().filter(|(own, ..)| own == name) {
                let expression = Expression::Column { source: number as u16, column: *column };
                if found.replace(Typed { expression, ty: *ty }).is_some() {
                    let message = format!("column reference \"{name}\" is ambiguous");
                    return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message));
                }
            }
        }
        match (found, qualifier) {
            (Some(found), _) => Ok(found),
            (None, Some(table)) if !known => {
                let message = format!("missing FROM-clause entry for table \"{table}\"");
                Err(SqlError::new(SqlState::UNDEFINED_TABLE, message))
            }
            (None, Some(table)) => {
                let message = format!("column {table}.{name} does not exist");
                Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message))
            }
            (None, None) => {
                let message = format!("column \"{name}\" does not exist");
                Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message))
            }
        }
    }
}
