//! Constraints and comments.

use std::{ops::ControlFlow, sync::Arc};

use freshet_sql::{Kind, SqlError, Value};
use sqlparser::ast::{Expr, Visit, Visitor};

use super::{
    Generator,
    class::{self, PG_AUTHID, PG_CLASS, PG_CONSTRAINT, PG_DATABASE, PG_EXTENSION, PG_NAMESPACE},
    describe, routine,
    sink::{NULL, Sink, oids, row, shorts},
};
use crate::{
    bind::name_of,
    relations::Snapshot,
    schema::{Check, Comment, Deferral, Entry, ForeignKey, Index, IndexConstraint, Oid, Schema, Table, TableInfo},
    syntax,
};

/// The relations of this module.
pub(super) const RELATIONS: &[(&str, Generator)] =
    &[("pg_constraint", pg_constraint), ("pg_description", pg_description), ("pg_shdescription", pg_shdescription)];

/// A constraint of a table.
#[derive(Clone, Copy, Debug)]
pub enum Constraint<'s> {
    /// PRIMARY KEY or UNIQUE
    Key(&'s Index),
    /// CHECK
    Check(&'s Check),
    /// FOREIGN KEY
    Foreign(&'s ForeignKey),
}

impl<'s> Constraint<'s> {
    /// The oid in `pg_constraint`.
    pub fn oid(self) -> Oid {
        match self {
            Self::Key(index) => index.oid,
            Self::Check(check) => check.oid,
            Self::Foreign(key) => key.oid,
        }
    }

    /// The constraint's name.
    pub fn name(self) -> &'s str {
        match self {
            Self::Key(index) => &index.name,
            Self::Check(check) => &check.name,
            Self::Foreign(key) => &key.name,
        }
    }

    /// Its letter in `contype`.
    pub fn kind(self) -> char {
        match self {
            Self::Key(index) if index.constraint == IndexConstraint::Primary => 'p',
            Self::Key(_) => 'u',
            Self::Check(_) => 'c',
            Self::Foreign(_) => 'f',
        }
    }

    /// When it is checked.
    pub fn deferral(self) -> Deferral {
        match self {
            Self::Key(index) => index.deferral,
            Self::Check(_) => Deferral::Never,
            Self::Foreign(key) => key.deferral,
        }
    }

    /// The numbers of its columns, from 0.
    pub fn columns(self, table: &Table) -> Vec<u16> {
        match self {
            Self::Key(index) => index.columns.iter().map(|part| part.column).collect(),
            Self::Check(check) => columns_in(&check.condition, table),
            Self::Foreign(key) => key.columns.clone(),
        }
    }

    /// As SQL writes it.
    pub fn definition(self, snapshot: &Snapshot, table: &Table, pretty: bool) -> String {
        let text = match self {
            Self::Key(index) => describe::key(table, index),
            Self::Check(check) => describe::check(snapshot, table, check, pretty),
            Self::Foreign(key) => describe::foreign_key(snapshot, table, key),
        };
        text + self.deferral().sql()
    }
}

/// The columns of a table that a condition has in it, in the order of their numbers.
fn columns_in(condition: &str, table: &Table) -> Vec<u16> {
    struct Columns<'t>(&'t Table, Vec<u16>);
    impl Visitor for Columns<'_> {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let name = match expr {
                Expr::Identifier(name) => Some(name),
                Expr::CompoundIdentifier(parts) => parts.last(),
                _ => None,
            };
            self.1.extend(name.and_then(|name| self.0.column(&name_of(name))).map(|column| column as u16));
            ControlFlow::Continue(())
        }
    }
    let parsed = syntax::expression(condition);
    let mut found = Columns(table, Vec::new());
    if let Ok(expr) = parsed {
        let _ = expr.visit(&mut found);
    }
    found.1.sort_unstable();
    found.1.dedup();
    found.1
}

/// The constraints of a table.
pub fn of_table(table: &Table) -> impl Iterator<Item = Constraint<'_>> {
    let keys = table.indexes.iter().filter(|index| index.oid != 0 && index.constraint != IndexConstraint::None);
    let checks = table.checks.iter().map(Constraint::Check);
    keys.map(Constraint::Key).chain(checks).chain(table.foreign_keys.iter().map(Constraint::Foreign))
}

/// The constraint of this id, with its table.
pub fn by_oid(schema: &Schema, oid: Oid) -> Option<(&Arc<TableInfo>, Constraint<'_>)> {
    schema.entries().find_map(|entry| match entry {
        Entry::Table(info) => {
            of_table(&info.table).find(|constraint| constraint.oid() == oid).map(|constraint| (info, constraint))
        }
        _ => None,
    })
}

/// The unique index of a table that has just these columns.
pub fn unique_index<'t>(table: &'t Table, columns: &[u16]) -> Option<&'t Index> {
    let has_all = |index: &&Index| index.is_unique_over(columns);
    // The primary key first, and constraints before mere indexes.
    let rank = |index: &&Index| match index.constraint {
        IndexConstraint::Primary => 0,
        IndexConstraint::Unique => 1,
        IndexConstraint::None => 2,
    };
    table.indexes.iter().filter(has_all).min_by_key(rank)
}

fn numbers(columns: &[u16]) -> Value {
    shorts(columns.iter().map(|column| *column as i16 + 1))
}

fn pg_constraint(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for info in class::tables(snapshot) {
        let table = &info.table;
        if !sink.admits("conrelid", table.oid) {
            continue;
        }
        for constraint in of_table(table) {
            let kind = constraint.kind();
            if !sink.admits("contype", kind) || !sink.admits("oid", constraint.oid()) {
                continue;
            }
            let key = match constraint {
                Constraint::Foreign(key) => Some(key),
                _ => None,
            };
            let parent = key.and_then(|key| snapshot.schema.table(key.parent));
            let index = match (constraint, parent) {
                (Constraint::Key(index), _) => index.oid,
                (Constraint::Foreign(key), Some(parent)) => {
                    unique_index(&parent.table, &key.parent_columns).map_or(0, |index| index.oid)
                }
                _ => 0,
            };
            let equal = |one: &TableInfo, columns: &[u16], other: &TableInfo, others: &[u16]| {
                let kind = |info: &TableInfo, column: &u16| {
                    info.table.columns.get(usize::from(*column)).map(|it| it.ty.kind())
                };
                let pairs = columns.iter().zip(others);
                oids(pairs.map(|(left, right)| match (kind(one, left), kind(other, right)) {
                    (Some(left), Some(right)) => equality(left, right),
                    _ => 0,
                }))
            };
            let (across, above, below) = match (key, parent) {
                (Some(key), Some(parent)) => (
                    equal(parent, &key.parent_columns, info, &key.columns),
                    equal(parent, &key.parent_columns, parent, &key.parent_columns),
                    equal(info, &key.columns, info, &key.columns),
                ),
                _ => (NULL, NULL, NULL),
            };
            sink.push(row![
                constraint.oid(),
                constraint.name(),
                table.namespace,
                kind,
                constraint.deferral().is_deferrable(),
                constraint.deferral() == Deferral::Deferred,
                true,
                table.oid,
                0u32,
                index,
                0u32,
                key.map_or(0, |key| key.parent),
                key.map_or(' ', |key| describe::action_letter(key.on_update)),
                key.map_or(' ', |key| describe::action_letter(key.on_delete)),
                if key.is_some() { 's' } else { ' ' },
                true,
                0i32,
                kind != 'c',
                numbers(&constraint.columns(table)),
                key.map(|key| numbers(&key.parent_columns)),
                across,
                above,
                below,
                NULL,
                NULL,
                match constraint {
                    Constraint::Check(check) => Some(&check.condition),
                    _ => None,
                },
            ]);
        }
    }
    Ok(())
}

/// The operator by which values of two kinds are equal; 0 when none exists.
fn equality(left: Kind, right: Kind) -> Oid {
    let plain = |kind| if kind == Kind::Varchar { Kind::Text } else { kind };
    routine::operator("=", plain(left), plain(right))
}

/// All comments, in the order of what they are about.
fn comments(snapshot: &Snapshot) -> Vec<&Arc<Comment>> {
    let comments = snapshot.schema.entries().filter_map(|entry| match entry {
        Entry::Comment(comment) => Some(comment),
        _ => None,
    });
    let mut comments: Vec<_> = comments.collect();
    comments.sort_unstable_by_key(|comment| (comment.object, comment.column, comment.constraint));
    comments
}

fn pg_description(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for comment in comments(snapshot).into_iter().filter(|comment| !comment.shared) {
        let object = comment.object;
        if !sink.admits("objoid", object) {
            continue;
        }
        let class = match snapshot.schema.entry(object) {
            _ if comment.constraint => PG_CONSTRAINT,
            Some(Entry::Namespace(_)) => PG_NAMESPACE,
            Some(Entry::Extension(_)) => PG_EXTENSION,
            Some(_) => PG_CLASS,
            None if class::index(&snapshot.schema, object).is_some() => PG_CLASS,
            None => PG_CONSTRAINT,
        };
        sink.push(row![object, class, comment.column.map_or(0, |column| i32::from(column) + 1), &comment.text]);
    }
    Ok(())
}

fn pg_shdescription(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for comment in comments(snapshot).into_iter().filter(|comment| comment.shared) {
        let class = match snapshot.schema.entry(comment.object) {
            Some(Entry::Database(_)) => PG_DATABASE,
            _ => PG_AUTHID,
        };
        sink.push(row![comment.object, class, &comment.text]);
    }
    Ok(())
}
