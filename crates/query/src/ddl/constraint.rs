//! Constraints: keys, checks, foreign keys.

use std::sync::Arc;

use freshet_engine::{Rid, WriteError};
use freshet_sql::{SqlError, SqlState};
use sqlparser::ast::{Expr, ReferentialAction as Action};

use super::{
    create_table::are_comparable,
    expression::columns_in,
    syntax::{Constraint, ConstraintKind, Name},
    work::{Step, Work, check_name, error},
};
use crate::{
    bind::not_supported,
    error::read_error,
    schema::{
        Check, Deferral, ForeignKey, Index, IndexColumn, IndexConstraint, Object, Oid, ReferentialAction, Table,
        TableInfo, denied, privilege,
    },
};

impl Work<'_, '_, '_> {
    /// Adds the keys among a new table's constraints.
    pub(super) fn add_keys(&mut self, table: &mut Table, constraints: &[Constraint]) -> Result<(), SqlError> {
        for constraint in constraints {
            match &constraint.kind {
                ConstraintKind::PrimaryKey(_) | ConstraintKind::Unique { .. } => self.add_key(table, constraint)?,
                ConstraintKind::UsingIndex { index, .. } => {
                    let message = format!("index \"{index}\" does not exist");
                    return Err(error(SqlState::UNDEFINED_OBJECT, message));
                }
                ConstraintKind::Check(_) | ConstraintKind::ForeignKey { .. } => {}
            }
        }
        Ok(())
    }

    /// Adds a primary key or unique constraint to what the catalog says of a table.
    fn add_key(&mut self, table: &mut Table, constraint: &Constraint) -> Result<(), SqlError> {
        let (columns, kind, nulls_not_distinct) = match &constraint.kind {
            ConstraintKind::PrimaryKey(columns) => (columns, IndexConstraint::Primary, false),
            ConstraintKind::Unique { columns, nulls_not_distinct } => {
                (columns, IndexConstraint::Unique, *nulls_not_distinct)
            }
            _ => return Err(SqlError::internal("a constraint without a key")),
        };
        let primary = kind == IndexConstraint::Primary;
        if primary && table.primary_key().is_some() {
            let message = format!("multiple primary keys for table \"{}\" are not allowed", table.name);
            return Err(error(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        let mut parts: Vec<IndexColumn> = Vec::new();
        for name in columns {
            let number = table.column(name).ok_or_else(|| {
                error(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" named in key does not exist"))
            })?;
            if parts.iter().any(|part| usize::from(part.column) == number) {
                let what = if primary { "primary key" } else { "unique" };
                let message = format!("column \"{name}\" appears twice in {what} constraint");
                return Err(error(SqlState::DUPLICATE_COLUMN, message));
            }
            table.columns[number].not_null |= primary;
            parts.push(IndexColumn::new(number as u16));
        }
        let include = self.included(table, constraint.include.iter().map(String::as_str))?;
        let named: Vec<&str> = columns.iter().chain(&constraint.include).map(String::as_str).collect();
        let middle = if primary { String::new() } else { named.join("_") };
        let label = if primary { "pkey" } else { "key" };
        let name = self.index_name(table, constraint.name.as_deref(), (&middle, label))?;
        let oid = self.change.take_oid()?;
        let index = Index {
            constraint: kind,
            include,
            nulls_not_distinct,
            deferral: constraint.deferral,
            ..Index::new(oid, name, parts, true)
        };
        table.indexes.push(index);
        Ok(())
    }

    /// The name of a new index: the one that is wanted, or one that is free.
    pub(super) fn index_name(
        &self,
        table: &Table,
        wanted: Option<&str>,
        (middle, label): (&str, &str),
    ) -> Result<String, SqlError> {
        let taken: Vec<String> =
            table.indexes.iter().map(|index| index.name.clone()).chain([table.name.clone()]).collect();
        let Some(name) = wanted else {
            return Ok(self.free_name(table.namespace, (&table.name, middle), label, &taken));
        };
        check_name(name)?;
        if self.schema().named(table.namespace, name).is_some() || taken.iter().any(|taken| taken == name) {
            return Err(error(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists")));
        }
        Ok(name.to_owned())
    }

    /// Adds checks and foreign keys to a new table.
    pub(super) fn add_other_constraints(&mut self, info: &Arc<TableInfo>, constraints: &[Constraint]) -> Step<()> {
        let mut table = info.table.clone();
        for constraint in constraints {
            match &constraint.kind {
                ConstraintKind::Check(condition) => drop(self.add_check(&mut table, constraint, condition)?),
                ConstraintKind::ForeignKey { .. } => drop(self.add_foreign_key(&mut table, constraint)?),
                _ => {}
            }
        }
        if table != info.table {
            self.put(Object::Table(table))?;
        }
        Ok(())
    }

    /// The name of a new constraint: the one that is wanted, or one that is free.
    fn constraint_name(
        &self,
        table: &Table,
        wanted: Option<&str>,
        middle: &str,
        label: &str,
    ) -> Result<String, SqlError> {
        let taken = constraint_names(table);
        match wanted {
            Some(name) => {
                check_name(name)?;
                if taken.iter().any(|taken| taken == name) {
                    let message = format!("constraint \"{name}\" for relation \"{}\" already exists", table.name);
                    return Err(error(SqlState::DUPLICATE_OBJECT, message));
                }
                Ok(name.to_owned())
            }
            None => Ok(self.free_name(table.namespace, (&table.name, middle), label, &taken)),
        }
    }

    fn add_check(
        &mut self,
        table: &mut Table,
        constraint: &Constraint,
        condition: &Expr,
    ) -> Result<(String, crate::expression::Expression), SqlError> {
        if constraint.deferral.is_deferrable() {
            return Err(error(SqlState::FEATURE_NOT_SUPPORTED, "CHECK constraints cannot be marked DEFERRABLE"));
        }
        let (sql, expression) = self.check_condition(condition, table)?;
        let columns = columns_in(condition);
        let middle = match columns.as_slice() {
            [column] => column.as_str(),
            _ => "",
        };
        let name = self.constraint_name(table, constraint.name.as_deref(), middle, "check")?;
        let oid = self.change.take_oid()?;
        table.checks.push(Check { oid, name: name.clone(), condition: sql });
        Ok((name, expression))
    }

    /// Adds a foreign key to what the catalog says of a table. The table it refers to is locked:
    /// who writes to it must know.
    fn add_foreign_key(&mut self, table: &mut Table, constraint: &Constraint) -> Step<ForeignKey> {
        let ConstraintKind::ForeignKey { columns, parent, parent_columns, on_delete, on_update, unusual_match } =
            &constraint.kind
        else {
            return Err(SqlError::internal("a constraint without a foreign key").into());
        };
        if *unusual_match {
            return Err(not_supported("MATCH FULL or MATCH PARTIAL").into());
        }
        let itself = is_itself(self, table, parent)?;
        let parent_info = if itself { None } else { Some(self.referenced_table(parent)?) };
        let parent_table = parent_info.as_ref().map_or(&*table, |info| &info.table);
        let number = |table: &Table, name: &str| {
            table.column(name).map(|number| number as u16).ok_or_else(|| {
                let message = format!("column \"{name}\" referenced in foreign key constraint does not exist");
                error(SqlState::UNDEFINED_COLUMN, message)
            })
        };
        let own = columns.iter().map(|name| number(table, name)).collect::<Result<Vec<_>, _>>()?;
        let theirs = match parent_columns.is_empty() {
            false => parent_columns.iter().map(|name| number(parent_table, name)).collect::<Result<Vec<_>, _>>()?,
            true => match parent_table.primary_key() {
                Some(key) if key.deferral.is_deferrable() => {
                    let name = &parent_table.name;
                    let message = format!("cannot use a deferrable primary key for referenced table \"{name}\"");
                    return Err(error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).into());
                }
                Some(key) => key.columns.iter().map(|part| part.column).collect(),
                None => {
                    let message = format!("there is no primary key for referenced table \"{}\"", parent_table.name);
                    return Err(error(SqlState::UNDEFINED_OBJECT, message).into());
                }
            },
        };
        if own.len() != theirs.len() {
            let message = "number of referencing and referenced columns for foreign key disagree";
            return Err(error(SqlState::INVALID_FOREIGN_KEY, message).into());
        }
        let Some(_) = key_of(parent_table, &theirs) else {
            if has_deferrable_key(parent_table, &theirs) {
                let name = &parent_table.name;
                let message = format!("cannot use a deferrable unique constraint for referenced table \"{name}\"");
                return Err(error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).into());
            }
            let message = format!(
                "there is no unique constraint matching given keys for referenced table \"{}\"",
                parent_table.name
            );
            return Err(error(SqlState::INVALID_FOREIGN_KEY, message).into());
        };
        if let Some(Table { owner, grants, name, .. }) = parent_info.as_ref().map(|info| &info.table) {
            let (who, named) = ((self.ddl.role, *owner), theirs.iter().copied());
            if !self.schema().may_with_columns(who, grants, privilege::REFERENCES, named) {
                return Err(denied("table", name).into());
            }
        }
        let name = self.constraint_name(table, constraint.name.as_deref(), &columns.join("_"), "fkey")?;
        for (one, other) in own.iter().zip(&theirs) {
            let (one, other) = (&table.columns[usize::from(*one)], &parent_table.columns[usize::from(*other)]);
            if !are_comparable(one.ty, other.ty) {
                let message = format!("foreign key constraint \"{name}\" cannot be implemented");
                let detail = format!(
                    "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
                    one.name,
                    other.name,
                    one.ty.kind().sql_name(),
                    other.ty.kind().sql_name()
                );
                return Err(error(SqlState::DATATYPE_MISMATCH, message).with_detail(detail).into());
            }
        }
        let parent = parent_table.oid;
        if !itself {
            self.lock(parent)?;
        }
        let key = ForeignKey {
            oid: self.change.take_oid()?,
            name,
            columns: own,
            parent,
            parent_columns: theirs,
            on_delete: action(on_delete.as_ref()),
            on_update: action(on_update.as_ref()),
            deferral: constraint.deferral,
        };
        table.foreign_keys.push(key.clone());
        Ok(key)
    }

    fn referenced_table(&self, name: &Name) -> Result<Arc<TableInfo>, SqlError> {
        let info = match self.relation(name)? {
            crate::schema::Named::Table(oid) => self.table_by_oid(oid)?,
            _ => {
                let message = format!("referenced relation \"{}\" is not a table", name.name);
                return Err(error(SqlState::WRONG_OBJECT_TYPE, message));
            }
        };
        Ok(info)
    }

    /// ALTER TABLE … ADD CONSTRAINT. Rows that are there must fulfil it.
    pub(super) fn add_constraint(&mut self, info: &Arc<TableInfo>, constraint: &Constraint) -> Step<Arc<TableInfo>> {
        let mut table = info.table.clone();
        match &constraint.kind {
            ConstraintKind::PrimaryKey(_) | ConstraintKind::Unique { .. } => {
                self.add_key(&mut table, constraint)?;
                let made = self.rewrite(info, table, Vec::new())?;
                if constraint.deferral.is_deferrable() {
                    self.validate_key(&made, made.table.indexes.iter().map(|index| index.oid).max().unwrap_or(0))?;
                }
                Ok(made)
            }
            ConstraintKind::UsingIndex { primary, index } => {
                self.use_index(&mut table, constraint, *primary, index)?;
                let rebuilt = *primary || constraint.deferral.is_deferrable();
                if rebuilt { self.rewrite(info, table, Vec::new()) } else { Ok(self.put_table(table)?) }
            }
            ConstraintKind::Check(condition) => {
                let check = self.add_check(&mut table, constraint, condition)?;
                if !constraint.not_valid {
                    self.validate(info, &[], &[check])?;
                }
                Ok(self.put_table(table)?)
            }
            ConstraintKind::ForeignKey { .. } => {
                let key = self.add_foreign_key(&mut table, constraint)?;
                let made = self.put_table(table)?;
                if !constraint.not_valid {
                    self.validate_foreign_key(&made, &key)?;
                }
                Ok(made)
            }
        }
    }

    /// Makes an index that is there a constraint's.
    fn use_index(
        &mut self,
        table: &mut Table,
        constraint: &Constraint,
        primary: bool,
        index: &str,
    ) -> Result<(), SqlError> {
        let missing = || error(SqlState::UNDEFINED_OBJECT, format!("index \"{index}\" does not exist"));
        let at = table.indexes.iter().position(|known| known.oid != 0 && known.name == index).ok_or_else(missing)?;
        if !table.indexes[at].unique {
            let message = format!("\"{index}\" is not a unique index");
            return Err(error(SqlState::WRONG_OBJECT_TYPE, message));
        }
        if table.indexes[at].predicate.is_some() {
            let message = format!("\"{index}\" is a partial index");
            let detail = "Cannot create a primary key or unique constraint using such an index.";
            return Err(error(SqlState::WRONG_OBJECT_TYPE, message).with_detail(detail));
        }
        let is_computed = |part: &IndexColumn| table.columns[usize::from(part.column)].computed.is_some();
        if table.indexes[at].columns.iter().any(is_computed) {
            let message = format!("index \"{index}\" contains expressions");
            let detail = "Cannot create a primary key or unique constraint using such an index.";
            return Err(error(SqlState::WRONG_OBJECT_TYPE, message).with_detail(detail));
        }
        if table.indexes[at].columns.iter().any(|part| part.descending || part.nulls_first || part.class.is_some()) {
            let message = format!("index \"{index}\" column number 1 does not have default sorting behavior");
            let detail = "Cannot create a primary key or unique constraint using such an index.";
            return Err(error(SqlState::WRONG_OBJECT_TYPE, message).with_detail(detail));
        }
        if table.indexes[at].constraint != IndexConstraint::None {
            let message = format!("index \"{index}\" is already associated with a constraint");
            return Err(error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        if primary && table.primary_key().is_some() {
            let message = format!("multiple primary keys for table \"{}\" are not allowed", table.name);
            return Err(error(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        if let Some(name) = constraint.name.as_deref().filter(|name| *name != index) {
            self.index_name(table, Some(name), ("", ""))?;
            let message =
                format!("ALTER TABLE / ADD CONSTRAINT USING INDEX will rename index \"{index}\" to \"{name}\"");
            self.notice(SqlState::SUCCESSFUL_COMPLETION, message);
            table.indexes[at].name = name.to_owned();
        }
        table.indexes[at].deferral = constraint.deferral;
        table.indexes[at].constraint = if primary { IndexConstraint::Primary } else { IndexConstraint::Unique };
        if primary {
            for part in table.indexes[at].columns.clone() {
                table.columns[usize::from(part.column)].not_null = true;
            }
        }
        Ok(())
    }

    /// Fails unless all rows refer to rows that are there.
    pub(super) fn validate_foreign_key(&mut self, info: &Arc<TableInfo>, key: &ForeignKey) -> Result<(), SqlError> {
        let parent = self.table_by_oid(key.parent)?;
        let missing = || SqlError::internal("a foreign key refers to no key");
        let index = key_of(&parent.table, &key.parent_columns).ok_or_else(missing)?;
        // In the order of the index's columns.
        let order: Vec<u16> = parent.table.indexes[index]
            .columns
            .iter()
            .filter_map(|part| key.parent_columns.iter().position(|column| *column == part.column))
            .map(|place| key.columns[place])
            .collect();
        self.see_everything();
        let transaction = self.ddl.transaction;
        let context = self.ddl.context;
        let mut bytes = Vec::new();
        self.scan(info, |row, _: Rid| {
            bytes.clear();
            let mut possible = true;
            for (part, column) in parent.keys[index].iter().zip(&order) {
                let value = info.layout.get(row, usize::from(*column))?;
                if value.is_null() {
                    return Ok(());
                }
                possible &= part.append_key(value, &mut bytes)?;
            }
            if possible
                && transaction.get(&parent.rows, parent.index_number(index), &bytes).map_err(read_error)?.is_some()
            {
                return Ok(());
            }
            let (table, name) = (&info.table.name, &key.name);
            let message = format!("insert or update on table \"{table}\" violates foreign key constraint \"{name}\"");
            let (mut names, mut values) = (Vec::new(), Vec::new());
            for column in &key.columns {
                let definition = &info.table.columns[usize::from(*column)];
                let mut shown = String::new();
                let value = info.layout.get(row, usize::from(*column))?;
                freshet_sql::types::text::output_as(definition.ty.kind(), value, context, &mut shown);
                names.push(definition.name.as_str());
                values.push(shown);
            }
            let (names, values) = (names.join(", "), values.join(", "));
            let detail = format!("Key ({names})=({values}) is not present in table \"{}\".", parent.table.name);
            let error = error(SqlState::FOREIGN_KEY_VIOLATION, message).with_detail(detail);
            Err(error.with_constraint(name.clone()))
        })
    }

    /// Fails unless no two rows have the same key in an index that takes equal keys.
    fn validate_key(&mut self, info: &Arc<TableInfo>, oid: Oid) -> Result<(), SqlError> {
        let index = info.table.indexes.iter().position(|index| index.oid == oid);
        let index = index.ok_or_else(|| SqlError::internal("an index was made and is not there"))?;
        self.see_everything();
        let transaction = self.ddl.transaction;
        self.scan(info, |_, rid: Rid| match transaction.check_key(&info.rows, info.index_number(index), rid) {
            Ok(()) => Ok(()),
            Err(WriteError::UniqueViolation { .. }) => {
                let name = &info.table.indexes[index].name;
                let message = format!("could not create unique index \"{name}\"");
                Err(error(SqlState::UNIQUE_VIOLATION, message).with_constraint(name.clone()))
            }
            Err(other) => Err(crate::error::write_error(other)),
        })
    }

    /// ALTER TABLE … ALTER CONSTRAINT
    pub(super) fn alter_constraint(
        &mut self,
        info: &Arc<TableInfo>,
        name: &str,
        deferral: Deferral,
    ) -> Result<(), SqlError> {
        let mut table = info.table.clone();
        match table.foreign_keys.iter_mut().find(|key| key.name == name) {
            Some(key) => key.deferral = deferral,
            None if constraint_names(&info.table).iter().any(|known| known == name) => {
                let table = &info.table.name;
                let message = format!("constraint \"{name}\" of relation \"{table}\" is not a foreign key constraint");
                return Err(error(SqlState::WRONG_OBJECT_TYPE, message));
            }
            None => return Err(no_constraint(name, &info.table)),
        }
        self.put_table(table).map(drop)
    }

    /// ALTER TABLE … VALIDATE CONSTRAINT
    pub(super) fn validate_constraint(&mut self, info: &Arc<TableInfo>, name: &str) -> Result<(), SqlError> {
        if let Some(key) = info.table.foreign_keys.iter().find(|key| key.name == name) {
            return self.validate_foreign_key(info, &key.clone());
        }
        if let Some(check) = info.table.checks.iter().find(|check| check.name == name) {
            let condition = crate::bind::modify::parse_expression(&check.condition)?;
            let (_, expression) = self.check_condition(&condition, &info.table)?;
            return self.validate(info, &[], &[(name.to_owned(), expression)]);
        }
        Err(no_constraint(name, &info.table))
    }
}

/// Whether a name means the table that is being defined.
fn is_itself(work: &Work<'_, '_, '_>, table: &Table, name: &Name) -> Result<bool, SqlError> {
    Ok(work.find(name)? == Some(crate::schema::Named::Table(table.oid)))
}

fn action(action: Option<&Action>) -> ReferentialAction {
    match action {
        None | Some(Action::NoAction) => ReferentialAction::NoAction,
        Some(Action::Restrict) => ReferentialAction::Restrict,
        Some(Action::Cascade) => ReferentialAction::Cascade,
        Some(Action::SetNull) => ReferentialAction::SetNull,
        Some(Action::SetDefault) => ReferentialAction::SetDefault,
    }
}

/// The unique index over just these columns, in whatever order.
pub(super) fn key_of(table: &Table, columns: &[u16]) -> Option<usize> {
    table.indexes.iter().position(|index| index.is_unique_over(columns))
}

/// Whether a constraint makes just these columns unique, in the end.
fn has_deferrable_key(table: &Table, columns: &[u16]) -> bool {
    table.indexes.iter().filter(|index| index.unique && index.deferral.is_deferrable()).any(|index| {
        index.columns.len() == columns.len() && index.columns.iter().all(|part| columns.contains(&part.column))
    })
}

/// The names of a table's constraints.
pub(super) fn constraint_names(table: &Table) -> Vec<String> {
    let keys = table.indexes.iter().filter(|index| index.constraint != IndexConstraint::None).map(|index| &index.name);
    let checks = table.checks.iter().map(|check| &check.name);
    let foreign = table.foreign_keys.iter().map(|key| &key.name);
    keys.chain(checks).chain(foreign).cloned().collect()
}

pub(super) fn no_constraint(name: &str, table: &Table) -> SqlError {
    let message = format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name);
    error(SqlState::UNDEFINED_OBJECT, message)
}
