//! What goes with what: the things that depend on a thing, and how they are called.

use super::{
    constraint::key_of,
    expression::{columns_in, objects_of},
    work::Work,
};
use crate::schema::{Entry, Oid, TableInfo, View};

/// Something that can be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A table.
    Table(Oid),
    /// A view.
    View(Oid),
    /// A sequence.
    Sequence(Oid),
    /// A schema.
    Namespace(Oid),
    /// An extension.
    Extension(Oid),
    /// A foreign key of a table.
    ForeignKey(Oid, Oid),
    /// A check of a table.
    Check(Oid, Oid),
    /// An index of a table, with the constraint that it is there for.
    Index(Oid, Oid),
    /// A column of a table.
    Column(Oid, usize),
    /// The default of a column.
    Default(Oid, usize),
}

/// How something depends on something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dependency {
    /// It is a part of it, and goes with it.
    Part,
    /// It goes with it only if that is said.
    Needs,
}

impl Work<'_, '_, '_> {
    /// What depends on a thing.
    pub(super) fn dependents(&self, target: Target) -> Vec<(Target, Dependency)> {
        use Dependency::{Needs, Part};
        let mut found = Vec::new();
        let all = self.relations();
        match target {
            Target::Table(oid) => {
                for (child, number) in self.schema().referring(oid) {
                    if let Some(info) = self.schema().table(*child).filter(|_| *child != oid) {
                        found.push((Target::ForeignKey(*child, info.table.foreign_keys[*number].oid), Needs));
                    }
                }
                found.extend(views_on(&all, oid).map(|view| (Target::View(view.oid), Needs)));
                for entry in &all {
                    if let Entry::Sequence(sequence) = entry
                        && sequence.owned_by.is_some_and(|(table, _)| table == oid)
                    {
                        found.push((Target::Sequence(sequence.oid), Part));
                    }
                }
            }
            Target::View(oid) => found.extend(views_on(&all, oid).map(|view| (Target::View(view.oid), Needs))),
            Target::Sequence(oid) => {
                found.extend(views_on(&all, oid).map(|view| (Target::View(view.oid), Needs)));
                for entry in &all {
                    let Entry::Table(info) = entry else { continue };
                    for (number, column) in info.table.columns.iter().enumerate() {
                        if column.default.as_deref().is_some_and(|sql| objects_of(sql).contains(&oid)) {
                            found.push((Target::Default(info.table.oid, number), Needs));
                        }
                    }
                }
            }
            Target::Namespace(oid) => {
                for entry in &all {
                    let (namespace, target) = match entry {
                        Entry::Table(info) => (info.table.namespace, Target::Table(info.table.oid)),
                        Entry::View(view) => (view.namespace, Target::View(view.oid)),
                        Entry::Sequence(sequence) => (sequence.namespace, Target::Sequence(sequence.oid)),
                        _ => continue,
                    };
                    if namespace == oid {
                        found.push((target, Needs));
                    }
                }
                let extensions = self.schema().extensions().into_iter().filter(|it| it.namespace == oid);
                found.extend(extensions.map(|it| (Target::Extension(it.oid), Needs)));
            }
            Target::Column(table, number) => {
                let Some(info) = self.schema().table(table) else { return found };
                self.dependents_of_column(info, number, &all, &mut found);
            }
            Target::Index(table, index) => {
                let Some(info) = self.schema().table(table) else { return found };
                for (child, number) in self.schema().referring(table) {
                    let Some(child) = self.schema().table(*child) else { continue };
                    let key = &child.table.foreign_keys[*number];
                    let used = key_of(&info.table, &key.parent_columns);
                    if used.is_some_and(|used| info.table.indexes[used].oid == index) {
                        found.push((Target::ForeignKey(child.table.oid, key.oid), Needs));
                    }
                }
                let relies = |view: &&View| view.references(self.schema()).keys.contains(&index);
                found.extend(views_on(&all, table).filter(relies).map(|view| (Target::View(view.oid), Needs)));
            }
            Target::ForeignKey(..) | Target::Check(..) | Target::Default(..) | Target::Extension(_) => {}
        }
        found
    }

    /// Whether a view's query names a column of a relation.
    pub(super) fn names_column(&self, view: &View, relation: Oid, number: usize) -> bool {
        let number = i32::try_from(number + 1).unwrap_or(i32::MAX);
        view.references(self.schema()).columns.contains(&(relation, number))
    }

    fn dependents_of_column(
        &self,
        info: &TableInfo,
        number: usize,
        all: &[Entry],
        found: &mut Vec<(Target, Dependency)>,
    ) {
        use Dependency::{Needs, Part};
        let table = &info.table;
        let name = &table.columns[number].name;
        for (place, index) in table.indexes.iter().enumerate() {
            if info.columns_of(place).contains(&(number as u16)) {
                found.push((Target::Index(table.oid, index.oid), Part));
            }
        }
        for key in &table.foreign_keys {
            if key.columns.iter().any(|column| usize::from(*column) == number) {
                found.push((Target::ForeignKey(table.oid, key.oid), Part));
            }
        }
        for check in &table.checks {
            let Ok(condition) = crate::bind::modify::parse_expression(&check.condition) else { continue };
            let columns = columns_in(&condition);
            if columns.contains(name) {
                let how = if columns.len() == 1 { Part } else { Needs };
                found.push((Target::Check(table.oid, check.oid), how));
            }
        }
        found.extend(
            views_on(all, table.oid)
                .filter(|view| self.names_column(view, table.oid, number))
                .map(|view| (Target::View(view.oid), Needs)),
        );
        found.extend(self.sequences_of(table.oid, number).map(|it| (Target::Sequence(it.oid), Part)));
    }

    /// How a thing is called in messages.
    pub(super) fn called(&self, target: Target) -> String {
        let table = |oid| self.schema().table(oid).map(|info| &info.table);
        let of = |oid| table(oid).map_or_else(String::new, |table| self.shown(table.namespace, &table.name));
        match target {
            Target::Table(oid) => format!("table {}", of(oid)),
            Target::View(oid) => {
                let view = self.schema().view(oid);
                format!("view {}", view.map_or_else(String::new, |view| self.shown(view.namespace, &view.name)))
            }
            Target::Sequence(oid) => {
                let sequence = self.schema().sequence(oid);
                let name = sequence.map_or_else(String::new, |it| self.shown(it.namespace, &it.name));
                format!("sequence {name}")
            }
            Target::Namespace(oid) => format!("schema {}", self.schema().namespace_name(oid)),
            Target::Extension(oid) => {
                let name = self.schema().extension_by_oid(oid).map_or("", |extension| &extension.name);
                format!("extension {name}")
            }
            Target::ForeignKey(oid, key) => {
                let keys = table(oid).map_or(&[][..], |table| &table.foreign_keys);
                let name = keys.iter().find(|known| known.oid == key).map_or("", |key| &key.name);
                format!("constraint {name} on table {}", of(oid))
            }
            Target::Check(oid, check) => {
                let checks = table(oid).map_or(&[][..], |table| &table.checks);
                let name = checks.iter().find(|known| known.oid == check).map_or("", |check| &check.name);
                format!("constraint {name} on table {}", of(oid))
            }
            Target::Index(oid, index) => {
                let indexes = table(oid).map_or(&[][..], |table| &table.indexes);
                match indexes.iter().find(|known| known.oid == index) {
                    Some(index) if index.constraint != crate::schema::IndexConstraint::None => {
                        format!("constraint {} on table {}", index.name, of(oid))
                    }
                    Some(index) => format!("index {}", index.name),
                    None => "index".to_owned(),
                }
            }
            Target::Column(oid, number) => {
                let name = table(oid).and_then(|table| table.columns.get(number)).map_or("", |column| &column.name);
                format!("column {name} of table {}", of(oid))
            }
            Target::Default(oid, number) => {
                let name = table(oid).and_then(|table| table.columns.get(number)).map_or("", |column| &column.name);
                format!("default value for column {name} of table {}", of(oid))
            }
        }
    }
}

/// The views that refer to a relation.
pub(super) fn views_on(all: &[Entry], relation: Oid) -> impl Iterator<Item = &View> {
    all.iter().filter_map(move |entry| match entry {
        Entry::View(view) if view.uses.contains(&relation) => Some(&**view),
        _ => None,
    })
}
