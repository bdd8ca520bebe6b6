//! CREATE INDEX.

use freshet_sql::{SqlError, SqlState};

use super::{
    syntax::CreateIndex,
    work::{Step, Work, error},
};
use crate::{
    bind::not_supported,
    schema::{Deferral, Index, IndexColumn, IndexConstraint, privilege},
};

/// The most columns that an index can have.
const MOST_COLUMNS: usize = 32;

impl Work<'_, '_, '_> {
    pub(super) fn create_index(&mut self, statement: &CreateIndex) -> Step<&'static str> {
        let info = self.table(&statement.table)?;
        self.check_owner(info.table.owner, "table", &info.table.name)?;
        self.check_namespace(info.table.namespace, privilege::CREATE)?;
        if let Some(name) = &statement.name
            && self.is_there(info.table.namespace, name, statement.if_not_exists)?
        {
            return Ok("CREATE INDEX");
        }
        match statement.method.as_deref() {
            // All indexes are ordered; one for equality alone would only do less.
            None | Some("btree" | "hash") => {}
            Some(other @ ("gist" | "gin" | "spgist" | "brin")) => {
                return Err(not_supported(format!("access method \"{other}\"")).into());
            }
            Some(other) => {
                let message = format!("access method \"{other}\" does not exist");
                return Err(error(SqlState::UNDEFINED_OBJECT, message).into());
            }
        }
        if let Some(what) = statement.unsupported {
            return Err(not_supported(what).into());
        }
        if statement.columns.len() > MOST_COLUMNS {
            let message = format!("cannot use more than {MOST_COLUMNS} columns in an index");
            return Err(error(SqlState::TOO_MANY_COLUMNS, message).into());
        }
        let mut table = info.table.clone();
        let mut columns = Vec::new();
        let mut names = Vec::new();
        for element in &statement.columns {
            let Some(name) = &element.column else { return Err(not_supported("an index on an expression").into()) };
            let missing = || error(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"));
            let number = table.column(name).ok_or_else(missing)?;
            if element.nulls_first.is_some_and(|first| first != element.descending) {
                return Err(
                    not_supported("NULLS FIRST of an ascending column, or NULLS LAST of a descending one").into()
                );
            }
            names.push(name.as_str());
            columns.push(IndexColumn { column: number as u16, descending: element.descending });
        }
        let name = self.index_name(&table, statement.name.as_deref(), (&names.join("_"), "idx"))?;
        let oid = self.change.take_oid()?;
        table.indexes.push(Index {
            oid,
            name,
            number: 0,
            columns,
            unique: statement.unique,
            constraint: IndexConstraint::None,
            deferral: Deferral::Never,
        });
        check_keys(&table)?;
        if !self.add_online(&info, &mut table)? {
            self.rewrite(&info, table, Vec::new())?;
        }
        Ok("CREATE INDEX")
    }
}

/// Fails unless all indexes' columns have an order.
fn check_keys(table: &crate::schema::Table) -> Result<(), SqlError> {
    crate::schema::relation::engine_table(table).map(drop)
}
