//! ALTER TABLE, and what of it other relations can do, too.

use std::sync::Arc;

use freshet_sql::{SqlError, SqlState, types::binary};

use super::{
    alter_column,
    constraint::{constraint_names, no_constraint},
    dependency::Target,
    expression::next_value,
    rewrite::Fill,
    syntax::{AlterTable, ColumnChange, ColumnDefinition, ConstraintKind, RelationKind, RoleName, TableChange},
    work::{Step, Work, bound, check_name, error},
};
use crate::{
    bind::{Scope, modify::parse_expression, not_supported},
    schema::{Entry, Named, Object, Oid, TableInfo, change_owner, privilege},
};

impl Work<'_, '_, '_> {
    pub(super) fn alter_table(&mut self, statement: &AlterTable) -> Step<&'static str> {
        let tag = match statement.kind {
            RelationKind::Table => "ALTER TABLE",
            RelationKind::View => "ALTER VIEW",
            RelationKind::Index => "ALTER INDEX",
            RelationKind::Sequence => "ALTER SEQUENCE",
        };
        let found = match self.find(&statement.name) {
            Ok(None) | Err(_) if statement.if_exists => {
                let message = format!("relation \"{}\" does not exist, skipping", statement.name);
                self.notice(SqlState::SUCCESSFUL_COMPLETION, message);
                return Ok(tag);
            }
            _ => self.relation(&statement.name)?,
        };
        let fits = match statement.kind {
            RelationKind::Table => true,
            RelationKind::View => matches!(found, Named::View(_)),
            RelationKind::Sequence => matches!(found, Named::Sequence(_)),
            RelationKind::Index => matches!(found, Named::Index { .. }),
        };
        if !fits {
            let message = format!(
                "\"{}\" is not {}",
                statement.name.name,
                match statement.kind {
                    RelationKind::View => "a view",
                    RelationKind::Sequence => "a sequence",
                    _ => "an index",
                }
            );
            return Err(error(SqlState::WRONG_OBJECT_TYPE, message).into());
        }
        match found {
            Named::Table(oid) => {
                let info = self.table_by_oid(oid)?;
                self.check_owner(info.table.owner, "table", &info.table.name)?;
                self.lock(oid)?;
                for change in &statement.changes {
                    self.change_table(oid, change)?;
                }
                let converted = statement.changes.iter().filter_map(|change| match change {
                    TableChange::Column { name, change } if matches!(**change, ColumnChange::Type(..)) => {
                        Some(name.as_str())
                    }
                    _ => None,
                });
                self.keep_references(oid, &converted.collect::<Vec<_>>())?;
            }
            other => {
                for change in &statement.changes {
                    self.change_other(other, &statement.name.name, change)?;
                }
            }
        }
        Ok(tag)
    }

    /// Columns have got other values: fails unless the references of the table, and to it, still
    /// hold that these columns are part of.
    fn keep_references(&mut self, oid: Oid, converted: &[&str]) -> Step<()> {
        if converted.is_empty() {
            return Ok(());
        }
        let info = self.table_by_oid(oid)?;
        let is_part = |columns: &[u16]| {
            columns.iter().any(|column| converted.contains(&info.table.columns[usize::from(*column)].name.as_str()))
        };
        let own = info
            .table
            .foreign_keys
            .iter()
            .filter(|key| is_part(&key.columns) || key.parent == oid && is_part(&key.parent_columns));
        let mut keys: Vec<_> = own.map(|key| (oid, key.clone())).collect();
        for (child, number) in self.schema().referring(oid) {
            let Some(child) = self.schema().table(*child).filter(|child| child.table.oid != oid) else { continue };
            let key = &child.table.foreign_keys[*number];
            if is_part(&key.parent_columns) {
                keys.push((child.table.oid, key.clone()));
            }
        }
        for (child, key) in keys {
            self.lock(child)?;
            let child = self.table_by_oid(child)?;
            self.validate_foreign_key(&child, &key)?;
        }
        Ok(())
    }

    fn change_table(&mut self, oid: Oid, change: &TableChange) -> Step<()> {
        let info = self.table_by_oid(oid)?;
        match change {
            TableChange::AddColumn { if_not_exists, column } => self.add_column(&info, column, *if_not_exists)?,
            TableChange::DropColumn { name, if_exists, cascade } => {
                let Some(number) = info.table.column(name) else {
                    let missing = no_column(name, &info);
                    if !if_exists {
                        return Err(missing.into());
                    }
                    self.notice(SqlState::SUCCESSFUL_COMPLETION, format!("{}, skipping", missing.message));
                    return Ok(());
                };
                self.remove(&[Target::Column(oid, number)], *cascade)?;
            }
            TableChange::Column { name, change } => {
                let number = info.table.column(name).ok_or_else(|| no_column(name, &info))?;
                self.change_column(&info, number, change)?;
            }
            TableChange::AddConstraint(constraint) => drop(self.add_constraint(&info, constraint)?),
            TableChange::DropConstraint { name, if_exists, cascade } => {
                self.drop_constraint(&info, name, *if_exists, *cascade)?;
            }
            TableChange::ValidateConstraint(name) => self.validate_constraint(&info, name)?,
            TableChange::AlterConstraint(name, deferral) => self.alter_constraint(&info, name, *deferral)?,
            TableChange::RenameColumn(old, new) => self.rename_column(&info, old, new)?,
            TableChange::RenameConstraint(old, new) => self.rename_constraint(&info, old, new)?,
            TableChange::Rename(new) => {
                self.check_rename(info.table.namespace, new)?;
                let mut table = info.table.clone();
                table.name.clone_from(new);
                self.put_table(table)?;
                self.rename_in_views(|_, renamed| renamed == oid, Some(&info.table.name), None)?;
            }
            TableChange::Owner(owner) => {
                let owner = self.new_owner(owner, info.table.namespace)?;
                let mut table = info.table.clone();
                change_owner(&mut table.owner, &mut table.grants, owner);
                self.put_table(table)?;
                for sequence in self.owned_sequences(oid) {
                    let mut sequence = (*sequence).clone();
                    change_owner(&mut sequence.owner, &mut sequence.grants, owner);
                    self.put(Object::Sequence(sequence))?;
                }
            }
            TableChange::Schema(name) => self.move_table(&info, name)?,
            TableChange::Storage | TableChange::Options { .. } => {}
            TableChange::Unsupported(what) => return Err(not_supported(what).into()),
        }
        Ok(())
    }

    fn owned_sequences(&self, table: Oid) -> Vec<Arc<crate::schema::Sequence>> {
        let owned = self.schema().entries().filter_map(|entry| match entry {
            Entry::Sequence(sequence) if sequence.owned_by.is_some_and(|(owner, _)| owner == table) => {
                Some(Arc::clone(sequence))
            }
            _ => None,
        });
        owned.collect()
    }

    /// The role that something in a schema is given to.
    fn new_owner(&self, owner: &RoleName, namespace: Oid) -> Result<Oid, SqlError> {
        let owner = self.role(owner)?;
        self.check_new_owner(owner)?;
        if !self.is_superuser()
            && let Some(namespace) = self.schema().namespace_by_oid(namespace)
            && self.schema().privileges(owner, namespace.owner, &namespace.grants) & privilege::CREATE == 0
        {
            let message = format!("permission denied for schema {}", namespace.name);
            return Err(error(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        Ok(owner)
    }

    fn check_rename(&self, namespace: Oid, new: &str) -> Result<(), SqlError> {
        check_name(new)?;
        self.check_namespace(namespace, privilege::CREATE)?;
        if self.schema().named(namespace, new).is_some() {
            return Err(error(SqlState::DUPLICATE_TABLE, format!("relation \"{new}\" already exists")));
        }
        Ok(())
    }

    fn check_move(&self, name: &str, from: Oid, to: &str) -> Result<Oid, SqlError> {
        let namespace = self.namespace(to)?;
        self.check_namespace(namespace, privilege::CREATE)?;
        if namespace != from && self.schema().named(namespace, name).is_some() {
            let message = format!("relation \"{name}\" already exists in schema \"{to}\"");
            return Err(error(SqlState::DUPLICATE_TABLE, message));
        }
        Ok(namespace)
    }

    /// SET SCHEMA of a table: its indexes and sequences go with it.
    fn move_table(&mut self, info: &Arc<TableInfo>, to: &str) -> Result<(), SqlError> {
        let from = info.table.namespace;
        let mut names = vec![info.table.name.clone()];
        names.extend(info.table.indexes.iter().filter(|index| index.oid != 0).map(|index| index.name.clone()));
        let sequences = self.owned_sequences(info.table.oid);
        names.extend(sequences.iter().filter(|it| it.namespace == from).map(|sequence| sequence.name.clone()));
        let mut namespace = from;
        for name in &names {
            namespace = self.check_move(name, from, to)?;
        }
        if namespace == from {
            return Ok(());
        }
        let mut table = info.table.clone();
        table.namespace = namespace;
        self.put_table(table)?;
        for sequence in sequences {
            let mut sequence = (*sequence).clone();
            sequence.namespace = namespace;
            self.put(Object::Sequence(sequence))?;
        }
        let (oid, old) = (info.table.oid, self.schema().namespace_name(from).to_owned());
        self.rename_in_views(|_, moved| moved == oid, None, Some((&old, to)))
    }

    /// Changes of views, sequences and indexes.
    fn change_other(&mut self, named: Named, name: &str, change: &TableChange) -> Step<()> {
        match named {
            Named::Index { table, number } => {
                let info = self.table_by_oid(table)?;
                self.check_owner(info.table.owner, "index", name)?;
                match change {
                    TableChange::Rename(new) => {
                        self.check_rename(info.table.namespace, new)?;
                        let mut table = info.table.clone();
                        table.indexes[number].name.clone_from(new);
                        self.put_table(table)?;
                    }
                    TableChange::Storage | TableChange::Options { .. } => {}
                    _ => return Err(wrong_change("an index", name).into()),
                }
            }
            Named::View(oid) => {
                let mut view = (*self.view_by_oid(oid)?).clone();
                self.check_owner(view.owner, "view", name)?;
                match change {
                    TableChange::Rename(new) => {
                        self.check_rename(view.namespace, new)?;
                        view.name.clone_from(new);
                        self.put(Object::View(view))?;
                        self.rename_in_views(|_, renamed| renamed == oid, Some(name), None)?;
                    }
                    TableChange::Owner(owner) => {
                        let owner = self.new_owner(owner, view.namespace)?;
                        change_owner(&mut view.owner, &mut view.grants, owner);
                        self.put(Object::View(view))?;
                    }
                    TableChange::Schema(to) => {
                        let old = self.schema().namespace_name(view.namespace).to_owned();
                        view.namespace = self.check_move(name, view.namespace, to)?;
                        self.put(Object::View(view))?;
                        self.rename_in_views(|_, moved| moved == oid, None, Some((&old, to)))?;
                    }
                    TableChange::RenameColumn(old, new) => {
                        check_name(new)?;
                        self.check_unused_column(oid, old)?;
                        if view.columns.iter().any(|(known, _)| known == new) {
                            return Err(column_exists(new, name).into());
                        }
                        let Some(column) = view.columns.iter_mut().find(|(known, _)| known == old) else {
                            let message = format!("column \"{old}\" does not exist");
                            return Err(error(SqlState::UNDEFINED_COLUMN, message).into());
                        };
                        column.0.clone_from(new);
                        self.put(Object::View(view))?;
                    }
                    TableChange::Options { set, options } => {
                        super::view::set_options(&mut view, *set, options)?;
                        self.put(Object::View(view))?;
                    }
                    TableChange::Storage => {}
                    _ => return Err(wrong_change("a view", name).into()),
                }
            }
            Named::Sequence(oid) => {
                let mut sequence = (*self.sequence_by_oid(oid)?).clone();
                self.check_owner(sequence.owner, "sequence", name)?;
                match change {
                    TableChange::Rename(new) => {
                        self.check_rename(sequence.namespace, new)?;
                        sequence.name.clone_from(new);
                        self.put(Object::Sequence(sequence))?;
                        self.rename_in_views(|_, renamed| renamed == oid, Some(name), None)?;
                    }
                    TableChange::Owner(_) | TableChange::Schema(_) if sequence.owned_by.is_some() => {
                        let what = match change {
                            TableChange::Owner(_) => "cannot change owner of sequence",
                            _ => "cannot move an owned sequence into another schema",
                        };
                        let table = sequence.owned_by.and_then(|(table, _)| self.schema().table(table));
                        let table = table.map_or("", |info| &info.table.name);
                        let detail = format!("Sequence \"{name}\" is linked to table \"{table}\".");
                        return Err(error(SqlState::FEATURE_NOT_SUPPORTED, what).with_detail(detail).into());
                    }
                    TableChange::Owner(owner) => {
                        let owner = self.new_owner(owner, sequence.namespace)?;
                        change_owner(&mut sequence.owner, &mut sequence.grants, owner);
                        self.put(Object::Sequence(sequence))?;
                    }
                    TableChange::Schema(to) => {
                        let old = self.schema().namespace_name(sequence.namespace).to_owned();
                        sequence.namespace = self.check_move(name, sequence.namespace, to)?;
                        self.put(Object::Sequence(sequence))?;
                        self.rename_in_views(|_, moved| moved == oid, None, Some((&old, to)))?;
                    }
                    TableChange::Storage => {}
                    _ => return Err(wrong_change("a sequence", name).into()),
                }
            }
            Named::Table(_) => return Err(SqlError::internal("a table is changed otherwise").into()),
        }
        Ok(())
    }

    /// Fails when a view names a column of a relation.
    pub(super) fn check_unused_column(&self, relation: Oid, column: &str) -> Result<(), SqlError> {
        let all = self.relations();
        let number = match (self.schema().table(relation), self.schema().view(relation)) {
            (Some(info), _) => info.table.column(column),
            (None, Some(view)) => view.columns.iter().position(|(name, _)| name == column),
            (None, None) => None,
        };
        let Some(number) = number else { return Ok(()) };
        let mut views = super::dependency::views_on(&all, relation);
        let Some(view) = views.find(|view| self.names_column(view, relation, number)) else { return Ok(()) };
        let what = format!("cannot rename or alter column \"{column}\", which view \"{}\" uses", view.name);
        Err(error(SqlState::FEATURE_NOT_SUPPORTED, what).with_hint("Drop the view first, and recreate it afterwards."))
    }

    fn add_column(&mut self, info: &Arc<TableInfo>, definition: &ColumnDefinition, if_not_exists: bool) -> Step<()> {
        if info.table.column(&definition.name).is_some() {
            let there = column_exists(&definition.name, &info.table.name);
            if !if_not_exists {
                return Err(there.into());
            }
            self.notice(there.state, format!("{}, skipping", there.message));
            return Ok(());
        }
        let (mut column, serial) = self.column(definition, &info.table.columns)?;
        let number = info.table.columns.len();
        let primary = definition.constraints.iter().any(|it| matches!(it.kind, ConstraintKind::PrimaryKey(_)));
        if let Some((ty, options)) = serial {
            let names = (info.table.namespace, info.table.name.as_str(), definition.name.as_str());
            let owner = (info.table.oid, number as u16);
            let sequence = self.make_owned_sequence(names, info.table.owner, owner, ty, &options)?;
            column.default = Some(next_value(sequence));
        }
        let mut table = info.table.clone();
        let not_null = column.not_null;
        let value = match &column.default {
            None => None,
            Some(sql) => {
                let binder = self.binder();
                let typed = bound(binder.expression(&parse_expression(sql)?, &Scope::nothing()), "DEFAULT expression")?;
                Some(binder.coerce(typed, column.ty, freshet_sql::types::CastContext::Assignment)?.expression)
            }
        };
        match value {
            Some(value) if value.is_volatile() => {
                // Each row gets a value of its own.
                table.columns.push(column);
                self.rewrite(info, table, vec![(number, Fill::Expression(value))])?;
            }
            value => {
                let value = match value {
                    Some(value) => value.evaluate(&[], &self.environment(&self.view()))?,
                    None => freshet_sql::Value::Null,
                };
                if !value.is_null() {
                    let mut bytes = Vec::new();
                    binary::output(value.as_ref(), &mut bytes);
                    column.missing = Some(bytes);
                }
                table.columns.push(column);
                let made = self.put_table(table)?;
                if (not_null || primary) && value.is_null() {
                    self.validate(&made, &[number], &[])?;
                }
            }
        }
        for constraint in &definition.constraints {
            let info = self.table_by_oid(info.table.oid)?;
            self.add_constraint(&info, constraint)?;
        }
        Ok(())
    }

    fn drop_constraint(&mut self, info: &Arc<TableInfo>, name: &str, if_exists: bool, cascade: bool) -> Step<()> {
        let table = &info.table;
        let index = table.indexes.iter().find(|index| {
            index.oid != 0 && index.constraint != crate::schema::IndexConstraint::None && index.name == name
        });
        let target = if let Some(index) = index {
            Target::Index(table.oid, index.oid)
        } else if let Some(key) = table.foreign_keys.iter().find(|key| key.name == name) {
            Target::ForeignKey(table.oid, key.oid)
        } else if let Some(check) = table.checks.iter().find(|check| check.name == name) {
            Target::Check(table.oid, check.oid)
        } else {
            let missing = no_constraint(name, table);
            if !if_exists {
                return Err(missing.into());
            }
            self.notice(SqlState::SUCCESSFUL_COMPLETION, format!("{}, skipping", missing.message));
            return Ok(());
        };
        self.remove(&[target], cascade)
    }

    fn rename_column(&mut self, info: &Arc<TableInfo>, old: &str, new: &str) -> Result<(), SqlError> {
        let number = info
            .table
            .column(old)
            .ok_or_else(|| error(SqlState::UNDEFINED_COLUMN, format!("column \"{old}\" does not exist")))?;
        check_name(new)?;
        if info.table.column(new).is_some() {
            return Err(column_exists(new, &info.table.name));
        }
        self.check_unused_column(info.table.oid, old)?;
        let mut table = info.table.clone();
        table.columns[number].name = new.to_owned();
        for check in &mut table.checks {
            check.condition = alter_column::renamed(&check.condition, old, new)?;
        }
        for computed in table.columns.iter_mut().filter(|it| !it.dropped).filter_map(|it| it.computed.as_mut()) {
            computed.expression = alter_column::renamed(&computed.expression, old, new)?;
            if let Some(when) = &mut computed.when {
                *when = alter_column::renamed(when, old, new)?;
            }
        }
        for predicate in table.indexes.iter_mut().filter_map(|index| index.predicate.as_mut()) {
            predicate.condition = alter_column::renamed(&predicate.condition, old, new)?;
        }
        self.put_table(table).map(drop)
    }

    fn rename_constraint(&mut self, info: &Arc<TableInfo>, old: &str, new: &str) -> Result<(), SqlError> {
        check_name(new)?;
        let mut table = info.table.clone();
        if constraint_names(&table).iter().any(|name| name == new) {
            let message = format!("constraint \"{new}\" for relation \"{}\" already exists", table.name);
            return Err(error(SqlState::DUPLICATE_OBJECT, message));
        }
        let index = table.indexes.iter_mut().find(|index| {
            index.oid != 0 && index.constraint != crate::schema::IndexConstraint::None && index.name == old
        });
        if let Some(index) = index {
            if self.schema().named(table.namespace, new).is_some() {
                return Err(error(SqlState::DUPLICATE_TABLE, format!("relation \"{new}\" already exists")));
            }
            new.clone_into(&mut index.name);
        } else if let Some(key) = table.foreign_keys.iter_mut().find(|key| key.name == old) {
            new.clone_into(&mut key.name);
        } else if let Some(check) = table.checks.iter_mut().find(|check| check.name == old) {
            new.clone_into(&mut check.name);
        } else {
            let message = format!("constraint \"{old}\" for table \"{}\" does not exist", table.name);
            return Err(error(SqlState::UNDEFINED_OBJECT, message));
        }
        self.put_table(table).map(drop)
    }
}

fn no_column(name: &str, info: &TableInfo) -> SqlError {
    let message = format!("column \"{name}\" of relation \"{}\" does not exist", info.table.name);
    error(SqlState::UNDEFINED_COLUMN, message)
}

fn column_exists(name: &str, relation: &str) -> SqlError {
    error(SqlState::DUPLICATE_COLUMN, format!("column \"{name}\" of relation \"{relation}\" already exists"))
}

fn wrong_change(what: &str, name: &str) -> SqlError {
    let detail = "This operation is not supported for it.";
    error(SqlState::WRONG_OBJECT_TYPE, format!("ALTER action cannot be performed on relation \"{name}\", {what}"))
        .with_detail(detail)
}
