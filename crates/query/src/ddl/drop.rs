//! DROP, and what else takes things away.

use std::sync::Arc;

use freshet_sql::{SqlError, SqlState};

use super::{
    dependency::{Dependency, Target},
    syntax::{Drop, DropKind, Name, RelationKind},
    work::{Step, Work, error, is_system},
};
use crate::{
    bind::not_supported,
    schema::{Index, IndexConstraint, Named, Oid, PUBLIC, TableInfo},
};

/// The most dependents that a message names.
const MOST_NAMED: usize = 100;

impl RelationKind {
    /// Its name in messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::View => "view",
            Self::Sequence => "sequence",
            Self::Index => "index",
        }
    }

    /// The same with an article.
    pub(super) const fn with_article(self) -> &'static str {
        match self {
            Self::Table => "a table",
            Self::View => "a view",
            Self::Sequence => "a sequence",
            Self::Index => "an index",
        }
    }
}

fn kind_of(named: Named) -> RelationKind {
    match named {
        Named::Table(_) => RelationKind::Table,
        Named::View(_) => RelationKind::View,
        Named::Sequence(_) => RelationKind::Sequence,
        Named::Index { .. } => RelationKind::Index,
    }
}

impl Work<'_, '_, '_> {
    pub(super) fn drop(&mut self, statement: &Drop) -> Step<&'static str> {
        let mut targets = Vec::new();
        for name in &statement.names {
            match statement.kind {
                DropKind::Role => self.drop_role(&name.name, statement.if_exists)?,
                DropKind::Owned => return Err(not_supported("DROP OWNED").into()),
                DropKind::Extension => targets.extend(self.extension_to_drop(&name.name, statement.if_exists)?),
                DropKind::Schema => targets.extend(self.schema_to_drop(&name.name, statement.if_exists)?),
                DropKind::Relation(kind) => targets.extend(self.relation_to_drop(kind, name, statement.if_exists)?),
            }
        }
        self.remove(&targets, statement.cascade)?;
        Ok(match statement.kind {
            DropKind::Relation(RelationKind::Table) => "DROP TABLE",
            DropKind::Relation(RelationKind::View) => "DROP VIEW",
            DropKind::Relation(RelationKind::Sequence) => "DROP SEQUENCE",
            DropKind::Relation(RelationKind::Index) => "DROP INDEX",
            DropKind::Schema => "DROP SCHEMA",
            DropKind::Extension => "DROP EXTENSION",
            DropKind::Role => "DROP ROLE",
            DropKind::Owned => "DROP OWNED",
        })
    }

    fn schema_to_drop(&mut self, name: &str, if_exists: bool) -> Result<Option<Target>, SqlError> {
        if is_system(name) {
            let message = format!("cannot drop schema {name} because it is required by the database system");
            return Err(error(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message));
        }
        let oid = match self.namespace(name) {
            Ok(oid) => oid,
            Err(missing) if if_exists => {
                self.notice(SqlState::SUCCESSFUL_COMPLETION, format!("{}, skipping", missing.message));
                return Ok(None);
            }
            Err(missing) => return Err(missing),
        };
        let owner = self.schema().namespace_by_oid(oid).map_or(0, |namespace| namespace.owner);
        self.check_owner(owner, "schema", name)?;
        if oid == PUBLIC && !self.is_superuser() {
            return Err(error(SqlState::INSUFFICIENT_PRIVILEGE, "must be owner of schema public"));
        }
        Ok(Some(Target::Namespace(oid)))
    }

    fn relation_to_drop(
        &mut self,
        kind: RelationKind,
        name: &Name,
        if_exists: bool,
    ) -> Result<Option<Target>, SqlError> {
        let found = match self.find(name) {
            Ok(found) => found,
            Err(missing) if if_exists && missing.state == SqlState::INVALID_SCHEMA_NAME => {
                self.notice(SqlState::SUCCESSFUL_COMPLETION, format!("{}, skipping", missing.message));
                return Ok(None);
            }
            Err(missing) => return Err(missing),
        };
        let Some(found) = found else {
            let message = format!("{} \"{name}\" does not exist", kind.name());
            if !if_exists {
                let state = match kind {
                    RelationKind::Index => SqlState::UNDEFINED_OBJECT,
                    _ => SqlState::UNDEFINED_TABLE,
                };
                return Err(error(state, message));
            }
            self.notice(SqlState::SUCCESSFUL_COMPLETION, message + ", skipping");
            return Ok(None);
        };
        let is = kind_of(found);
        if is != kind {
            let message = format!("\"{}\" is not {}", name.name, kind.with_article());
            let hint = format!("Use DROP {} to remove {}.", is.name().to_uppercase(), is.with_article());
            return Err(error(SqlState::WRONG_OBJECT_TYPE, message).with_hint(hint));
        }
        let (target, owner, namespace) = match found {
            Named::Table(oid) => {
                let info = self.table_by_oid(oid)?;
                (Target::Table(oid), info.table.owner, info.table.namespace)
            }
            Named::View(oid) => {
                let view = self.view_by_oid(oid)?;
                (Target::View(oid), view.owner, view.namespace)
            }
            Named::Sequence(oid) => {
                let sequence = self.sequence_by_oid(oid)?;
                self.check_not_identity(oid)?;
                (Target::Sequence(oid), sequence.owner, sequence.namespace)
            }
            Named::Index { table, number } => {
                let info = self.table_by_oid(table)?;
                let index = &info.table.indexes[number];
                if index.constraint != IndexConstraint::None {
                    let (index, table) = (&index.name, self.shown(info.table.namespace, &info.table.name));
                    let message =
                        format!("cannot drop index {index} because constraint {index} on table {table} requires it");
                    let hint = format!("You can drop constraint {index} on table {table} instead.");
                    return Err(error(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message).with_hint(hint));
                }
                (Target::Index(table, index.oid), info.table.owner, info.table.namespace)
            }
        };
        // Who owns the schema may take away what is in it.
        let of_schema = self.schema().namespace_by_oid(namespace).map_or(0, |namespace| namespace.owner);
        if !self.schema().is_member(self.ddl.role, of_schema) {
            self.check_owner(owner, kind.name(), &name.name)?;
        }
        Ok(Some(target))
    }

    fn check_not_identity(&self, sequence: Oid) -> Result<(), SqlError> {
        let sequence = self.sequence_by_oid(sequence)?;
        let Some((table, column)) = sequence.owned_by else { return Ok(()) };
        let info = self.table_by_oid(table)?;
        let column = &info.table.columns[usize::from(column)];
        if column.identity.is_none() {
            return Ok(());
        }
        let (name, table, column) = (&sequence.name, &info.table.name, &column.name);
        let message = format!("cannot drop sequence {name} because column {column} of table {table} requires it");
        let hint = format!("You can drop column {column} of table {table} instead.");
        Err(error(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message).with_hint(hint))
    }

    /// Takes things away, with their parts; and with what depends on them, if that is wanted.
    pub(super) fn remove(&mut self, targets: &[Target], cascade: bool) -> Step<()> {
        let mut all: Vec<Target> = Vec::new();
        for target in targets {
            if !all.contains(target) {
                all.push(*target);
            }
        }
        // First the parts of what is named: what depends on one named thing may be another.
        let mut needing: Vec<(Target, Target)> = Vec::new();
        let mut at = 0;
        while at < all.len() {
            freshet_sql::work::check()?;
            let target = all[at];
            for (dependent, how) in self.dependents(target) {
                match how {
                    Dependency::Part if !all.contains(&dependent) => all.push(dependent),
                    Dependency::Part => {}
                    Dependency::Needs => needing.push((dependent, target)),
                }
            }
            at += 1;
        }
        // What is in a schema goes with it, but is reported; the same thing may depend on several.
        let mut affected: Vec<(Target, Target)> = Vec::new();
        let mut at = 0;
        while at < needing.len() {
            freshet_sql::work::check()?;
            let (dependent, on) = needing[at];
            at += 1;
            if self.is_gone(dependent, &all) {
                continue;
            }
            affected.push((dependent, on));
            let mut more = vec![dependent];
            while let Some(next) = more.pop() {
                if all.contains(&next) {
                    continue;
                }
                all.push(next);
                for (dependent, how) in self.dependents(next) {
                    match how {
                        Dependency::Part => more.push(dependent),
                        Dependency::Needs => needing.push((dependent, next)),
                    }
                }
            }
        }
        if !affected.is_empty() && !cascade {
            return Err(self.still_needed(targets, &affected).into());
        }
        match affected.as_slice() {
            [] => {}
            [(one, _)] => {
                let message = format!("drop cascades to {}", self.called(*one));
                self.notice(SqlState::SUCCESSFUL_COMPLETION, message);
            }
            several => {
                let lines: Vec<String> = several
                    .iter()
                    .take(MOST_NAMED)
                    .map(|(one, _)| format!("drop cascades to {}", self.called(*one)))
                    .collect();
                let message = format!("drop cascades to {} other objects", several.len());
                let notice = error(SqlState::SUCCESSFUL_COMPLETION, message).with_detail(lines.join("\n"));
                self.ddl.notices.push(notice);
            }
        }
        self.take_away(&all)
    }

    /// Whether a thing goes since something else goes that it is part of.
    fn is_gone(&self, target: Target, all: &[Target]) -> bool {
        let table = match target {
            Target::ForeignKey(table, _)
            | Target::Check(table, _)
            | Target::Index(table, _)
            | Target::Column(table, _)
            | Target::Default(table, _) => Some(table),
            _ => None,
        };
        let column = match target {
            Target::Default(table, number) => all.contains(&Target::Column(table, number)),
            _ => false,
        };
        all.contains(&target) || column || table.is_some_and(|table| all.contains(&Target::Table(table)))
    }

    fn still_needed(&self, targets: &[Target], needing: &[(Target, Target)]) -> SqlError {
        let what = match targets {
            [one] => format!("cannot drop {} because other objects depend on it", self.called(*one)),
            _ => "cannot drop desired object(s) because other objects depend on them".to_owned(),
        };
        let lines: Vec<String> = needing
            .iter()
            .take(MOST_NAMED)
            .map(|(dependent, on)| format!("{} depends on {}", self.called(*dependent), self.called(*on)))
            .collect();
        error(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, what)
            .with_detail(lines.join("\n"))
            .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
    }

    /// Takes away just these.
    fn take_away(&mut self, all: &[Target]) -> Step<()> {
        // Locks first: a wait for one starts the statement again.
        let mut changed: Vec<Oid> = Vec::new();
        for target in all {
            match *target {
                Target::Table(oid) => {
                    self.lock(oid)?;
                    let parents: Vec<Oid> =
                        self.table_by_oid(oid)?.table.foreign_keys.iter().map(|key| key.parent).collect();
                    for parent in parents {
                        self.lock(parent)?;
                    }
                }
                Target::ForeignKey(table, key) => {
                    self.lock(table)?;
                    let info = self.table_by_oid(table)?;
                    if let Some(key) = info.table.foreign_keys.iter().find(|known| known.oid == key) {
                        self.lock(key.parent)?;
                    }
                    changed.push(table);
                }
                Target::Check(table, _)
                | Target::Index(table, _)
                | Target::Column(table, _)
                | Target::Default(table, _) => {
                    self.lock(table)?;
                    changed.push(table);
                }
                Target::View(_) | Target::Sequence(_) | Target::Namespace(_) | Target::Extension(_) => {}
            }
        }
        for target in all {
            freshet_sql::work::check()?;
            self.remove_comments(*target)?;
        }
        for target in all {
            freshet_sql::work::check()?;
            match *target {
                Target::Table(oid) => {
                    let rows = self.table_by_oid(oid)?.table.rows.clone();
                    self.ddl.effects.touch_rows(self.ddl.catalog, &rows);
                    self.change.remove(oid)?;
                }
                Target::View(oid) | Target::Namespace(oid) | Target::Extension(oid) => self.change.remove(oid)?,
                Target::Sequence(oid) => {
                    let state = self.sequence_by_oid(oid)?.state;
                    self.ddl.effects.touch_state(self.ddl.catalog, state);
                    self.change.remove(oid)?;
                }
                _ => {}
            }
        }
        changed.sort_unstable();
        changed.dedup();
        for table in changed {
            if let Some(info) = self.schema().table(table).cloned() {
                self.take_from_table(&info, all)?;
            }
        }
        Ok(())
    }

    /// What is said of a thing goes with it.
    fn remove_comments(&mut self, target: Target) -> Result<(), SqlError> {
        match target {
            Target::Table(oid) => {
                let table = self.table_by_oid(oid)?;
                let table = &table.table;
                let indexes = table.indexes.iter().map(|index| index.oid);
                let checks = table.checks.iter().map(|check| check.oid);
                let keys = table.foreign_keys.iter().map(|key| key.oid);
                let all: Vec<Oid> = indexes.chain(checks).chain(keys).chain([oid]).collect();
                all.into_iter().try_for_each(|oid| self.change.remove_comments(oid))
            }
            Target::View(oid) | Target::Sequence(oid) | Target::Namespace(oid) | Target::Extension(oid) => {
                self.change.remove_comments(oid)
            }
            Target::ForeignKey(_, oid) | Target::Check(_, oid) | Target::Index(_, oid) => {
                self.change.remove_comments(oid)
            }
            Target::Column(table, number) => self.set_comment((table, Some(number as u16), false), None),
            Target::Default(..) => Ok(()),
        }
    }

    fn take_from_table(&mut self, info: &Arc<TableInfo>, all: &[Target]) -> Step<()> {
        let oid = info.table.oid;
        let mut table = info.table.clone();
        table.foreign_keys.retain(|key| !all.contains(&Target::ForeignKey(oid, key.oid)));
        table.checks.retain(|check| !all.contains(&Target::Check(oid, check.oid)));
        for (number, column) in table.columns.iter_mut().enumerate() {
            let gone = all.contains(&Target::Column(oid, number));
            if gone || all.contains(&Target::Default(oid, number)) {
                column.default = None;
            }
            if gone {
                table.grants.retain(|grant| grant.column != Some(number as u16));
                column.dropped = true;
                column.not_null = false;
                column.identity = None;
                column.missing = None;
                // Its place stays; its name is free.
                column.name = format!("........pg.dropped.{}........", number + 1);
            }
        }
        let goes = |index: &mut Index| index.oid != 0 && all.contains(&Target::Index(oid, index.oid));
        let gone: Vec<u16> = table.indexes.extract_if(.., goes).map(|index| index.number).collect();
        super::index::give_up_computed(&mut table);
        // The engine's first index stays with its table.
        if !gone.contains(&0) {
            for number in gone {
                self.ddl.effects.touch_index(self.ddl.catalog, &table.rows, number);
            }
            self.put_table(table)?;
        } else {
            self.rewrite(info, table, Vec::new())?;
        }
        Ok(())
    }
}
