//! TRUNCATE.

use std::sync::Arc;

use freshet_sql::SqlState;

use super::{
    syntax::Truncate,
    work::{Step, Work, error},
};
use crate::schema::{Entry, Oid, TableInfo, privilege};

impl Work<'_, '_, '_> {
    pub(super) fn truncate(&mut self, statement: &Truncate) -> Step<&'static str> {
        let mut tables: Vec<Arc<TableInfo>> = Vec::new();
        for name in &statement.tables {
            let info = self.table(name)?;
            if !tables.iter().any(|known| known.table.oid == info.table.oid) {
                tables.push(info);
            }
        }
        for info in &tables {
            let table = &info.table;
            self.check_grant(table.owner, &table.grants, privilege::TRUNCATE, "table", &table.name)?;
        }
        // Tables that refer to these.
        let mut at = 0;
        while at < tables.len() {
            let info = Arc::clone(&tables[at]);
            let referring: Vec<(Oid, usize)> = self.schema().referring(info.table.oid).to_vec();
            for (child, number) in referring {
                if tables.iter().any(|known| known.table.oid == child) {
                    continue;
                }
                let child = self.table_by_oid(child)?;
                let name = child.table.name.clone();
                if !statement.cascade {
                    let message = "cannot truncate a table referenced in a foreign key constraint";
                    let key = &child.table.foreign_keys[number].name;
                    let parent = &info.table.name;
                    let detail = format!("Table \"{name}\" references \"{parent}\" (constraint \"{key}\").");
                    let hint = format!("Truncate table \"{name}\" at the same time, or use TRUNCATE ... CASCADE.");
                    let error = error(SqlState::FEATURE_NOT_SUPPORTED, message);
                    return Err(error.with_detail(detail).with_hint(hint).into());
                }
                self.notice(SqlState::SUCCESSFUL_COMPLETION, format!("truncate cascades to table \"{name}\""));
                tables.push(child);
            }
            at += 1;
        }
        for info in &tables {
            let table = &info.table;
            self.check_grant(table.owner, &table.grants, privilege::TRUNCATE, "table", &table.name)?;
        }
        for info in &tables {
            self.lock(info.table.oid)?;
        }
        for info in &tables {
            self.empty(info)?;
            if statement.restart {
                let owned: Vec<_> = self
                    .schema()
                    .entries()
                    .filter_map(|entry| match entry {
                        Entry::Sequence(sequence) => {
                            sequence.owned_by.filter(|(table, _)| *table == info.table.oid).and(Some(sequence))
                        }
                        _ => None,
                    })
                    .cloned()
                    .collect();
                for sequence in owned {
                    self.restart_sequence((*sequence).clone(), None)?;
                }
            }
        }
        Ok("TRUNCATE TABLE")
    }
}
