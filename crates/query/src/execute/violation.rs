//! What is wrong with a row, as PostgreSQL says it.

use freshet_sql::{SqlError, SqlState, types::text};

use super::Run;
use crate::{
    bind::modify::Constraints,
    expression::Source,
    schema::{Table, TableInfo, privilege},
};

impl Run<'_, '_> {
    /// 23505, as PostgreSQL says it.
    #[cold]
    pub(super) fn duplicate(&self, info: &TableInfo, index: &str, row: &[u8]) -> SqlError {
        let found = info.index_named(index).and_then(|number| info.table.indexes.get(number));
        let name = found.map_or(index, |found| &found.name);
        let message = format!("duplicate key value violates unique constraint \"{name}\"");
        let error = SqlError::new(SqlState::UNIQUE_VIOLATION, message).with_constraint(name.to_owned());
        let mut error = self.concerning(&info.table, error);
        let number = found.and_then(|found| info.table.indexes.iter().position(|index| index.oid == found.oid));
        let may_see = |number| self.may_see(&info.table, info.columns_of(number));
        if let Some(found) = found.filter(|_| number.is_some_and(may_see)) {
            let context = freshet_sql::types::EvalContext::default();
            let (mut names, mut values) = (Vec::new(), Vec::new());
            for part in &found.columns {
                let column = &info.table.columns[usize::from(part.column)];
                let mut shown = String::new();
                match info.layout.get(row, usize::from(part.column)) {
                    Ok(value) if !value.is_null() => {
                        text::output_as(column.ty.kind(), value, &context, &mut shown);
                    }
                    _ => shown.push_str("null"),
                }
                names.push(info.shown_column(part.column, true));
                values.push(shown);
            }
            error = error.with_detail(format!("Key ({})=({}) already exists.", names.join(", "), values.join(", ")));
        }
        error
    }

    #[cold]
    pub(super) fn null_in(
        &self,
        info: &TableInfo,
        column: usize,
        constraints: &Constraints,
        row: Source<'_>,
    ) -> SqlError {
        let (name, table) = (&info.table.columns[column].name, &info.table.name);
        let message = format!("null value in column \"{name}\" of relation \"{table}\" violates not-null constraint");
        let error = SqlError::new(SqlState::NOT_NULL_VIOLATION, message).with_column(name.clone());
        self.with_failing(self.concerning(&info.table, error), info, constraints, row)
    }

    /// Lets an error that names a column or a constraint say which table has it.
    pub(super) fn concerning(&self, table: &Table, error: SqlError) -> SqlError {
        match self.schema {
            Some(schema) => schema.concerning(table, error),
            None => error,
        }
    }

    /// Shows a row that fails as PostgreSQL does: a role that may not read the whole table sees the
    /// columns that it may read, and those that the statement itself has set.
    pub(super) fn with_failing(
        &self,
        error: SqlError,
        info: &TableInfo,
        constraints: &Constraints,
        row: Source<'_>,
    ) -> SqlError {
        let table = &info.table;
        let whole = self
            .schema
            .is_none_or(|schema| schema.privileges(self.role, table.owner, &table.grants) & privilege::SELECT != 0);
        let (mut names, mut shown) = (Vec::new(), Vec::new());
        for (number, column) in table.visible_columns() {
            let number = number as u16;
            if !whole && !constraints.given.contains(&number) && !self.may_see(table, [number]) {
                continue;
            }
            names.push(column.name.as_str());
            shown.push(match crate::expression::column(&[row], 0, number) {
                Ok(value) if value.is_null() => "null".to_owned(),
                Ok(value) => {
                    let mut out = String::new();
                    text::output_as(column.ty.kind(), value, self.environment.context, &mut out);
                    match out.char_indices().nth(64) {
                        Some((end, _)) => format!("{}...", &out[..end]),
                        None => out,
                    }
                }
                Err(_) => "?".to_owned(),
            });
        }
        let (names, shown) = (names.join(", "), shown.join(", "));
        match whole {
            true => error.with_detail(format!("Failing row contains ({shown}).")),
            false if names.is_empty() => error,
            false => error.with_detail(format!("Failing row contains ({names}) = ({shown}).")),
        }
    }
}

#[cold]
pub(super) fn too_long(info: &TableInfo) -> SqlError {
    let message = format!("a row of table \"{}\", or a key of one of its indexes, is too long", info.table.name);
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
}
