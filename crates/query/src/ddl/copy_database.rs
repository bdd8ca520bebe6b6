//! What a new database has from its template: copies of all objects, with ids of their own, and of
//! all rows.
//!
//! Rows are copied as by definitions that change how rows lie ([`super::rewrite`]): into new tables
//! of the engine, which nobody knows of before the transaction commits. What a crash leaves of them
//! is swept. Nobody has a session in the template, and its tables are locked.

use std::{collections::HashMap, sync::Arc};

use freshet_sql::SqlError;

use super::{
    expression::with_others,
    work::{Step, Work},
};
use crate::schema::{Entry, FIRST_USER_OID, Object, Oid, Sequence, TableInfo};

/// Ids of copies, by those of what is copied.
#[derive(Debug, Default)]
struct Copies(HashMap<Oid, Oid>);

impl Work<'_, '_, '_> {
    /// Copies what a database has.
    pub(super) fn copy_of(&mut self, source: Oid) -> Step<Vec<Object>> {
        let template = self.change.other(source)?;
        for entry in template.entries() {
            if let Entry::Table(info) = entry {
                self.lock_of_other(info.table.oid)?;
            }
        }
        self.see_everything();
        let mut copies = Copies::default();
        let mut objects = Vec::new();
        for entry in template.entries() {
            let copy = match entry {
                Entry::Namespace(it) => {
                    let mut copy = (**it).clone();
                    self.copied(&mut copies, &mut copy.oid)?;
                    Object::Namespace(copy)
                }
                Entry::Table(info) => self.copy_table(&mut copies, info)?,
                Entry::View(it) => {
                    let mut copy = (**it).clone();
                    let ids = [&mut copy.oid, &mut copy.namespace].into_iter().chain(&mut copy.uses);
                    ids.into_iter().try_for_each(|id| self.copied(&mut copies, id))?;
                    Object::View(copy)
                }
                Entry::Sequence(it) => self.copy_sequence(&mut copies, it)?,
                Entry::Comment(it) if !it.shared => {
                    let mut copy = (**it).clone();
                    self.copied(&mut copies, &mut copy.oid)?;
                    self.copied(&mut copies, &mut copy.object)?;
                    Object::Comment(copy)
                }
                Entry::Extension(it) => {
                    let mut copy = (**it).clone();
                    self.copied(&mut copies, &mut copy.oid)?;
                    self.copied(&mut copies, &mut copy.namespace)?;
                    Object::Extension(copy)
                }
                Entry::Comment(_) | Entry::Role(_) | Entry::Database(_) | Entry::Common(_) => continue,
            };
            objects.push(copy);
        }
        Ok(objects)
    }

    /// Replaces an id by that of the copy. What every database has keeps its own.
    fn copied(&mut self, copies: &mut Copies, id: &mut Oid) -> Result<(), SqlError> {
        if *id < FIRST_USER_OID {
            return Ok(());
        }
        *id = match copies.0.get(id) {
            Some(copy) => *copy,
            None => {
                let copy = self.change.take_oid()?;
                copies.0.insert(*id, copy);
                copy
            }
        };
        Ok(())
    }

    fn copy_table(&mut self, copies: &mut Copies, info: &Arc<TableInfo>) -> Step<Object> {
        let mut copy = info.table.clone();
        let ids = [&mut copy.oid, &mut copy.namespace].into_iter();
        let ids = ids.chain(copy.indexes.iter_mut().map(|it| &mut it.oid));
        let ids = ids.chain(copy.checks.iter_mut().map(|it| &mut it.oid));
        let ids = ids.chain(copy.foreign_keys.iter_mut().flat_map(|it| [&mut it.oid, &mut it.parent]));
        for id in ids {
            self.copied(copies, id)?;
        }
        let texts = copy.columns.iter_mut().flat_map(|it| {
            let computed = it.computed.iter_mut();
            it.default.iter_mut().chain(computed.flat_map(|it| std::iter::once(&mut it.expression).chain(&mut it.when)))
        });
        let texts = texts.chain(copy.checks.iter_mut().map(|it| &mut it.condition));
        let texts = texts.chain(copy.indexes.iter_mut().flat_map(|it| &mut it.predicate).map(|it| &mut it.condition));
        for text in texts {
            with_others(text, |mut id| self.copied(copies, &mut id).map(|()| id))?;
        }
        for column in &mut copy.columns {
            // All rows will have a value.
            column.missing = None;
        }
        self.make_rows(&mut copy)?;
        let missing = || SqlError::internal("a table of the engine was made and is not there");
        let rows = self.ddl.catalog.database().table(&copy.rows).ok_or_else(missing)?;
        let target = TableInfo::new(copy.clone(), rows)?;
        self.copy(info, &target, &[], &[])?;
        Ok(Object::Table(copy))
    }

    fn copy_sequence(&mut self, copies: &mut Copies, sequence: &Sequence) -> Step<Object> {
        let mut copy = sequence.clone();
        let ids = [&mut copy.oid, &mut copy.namespace].into_iter();
        for id in ids.chain(copy.owned_by.as_mut().map(|(table, _)| table)) {
            self.copied(copies, id)?;
        }
        copy.state = self.take_state()?;
        let position = self.ddl.sequences.position(sequence)?;
        if position.called || position.value != copy.start {
            self.ddl.sequences.set(&copy, position, self.ddl.interrupted)?;
        }
        Ok(Object::Sequence(copy))
    }
}
