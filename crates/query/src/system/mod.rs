//! The system catalogs: `pg_catalog` and `information_schema`, as relations that are computed when
//! they are read.
//!
//! Clients ask them what there is. Their columns are those of PostgreSQL 15 (module
//! [`definition`]); their rows come from the [schema](crate::schema::Schema) that the statement
//! sees, and from the server as it is at that moment ([`SystemView`]). What Freshet has none of is
//! an empty relation.
//!
//! | module | has |
//! |---|---|
//! | [`definition`] | which relations there are, and their columns |
//! | [`sink`] | where rows go: filters, columns |
//! | [`class`] | everything that has columns, as `pg_class` sees it |
//! | [`catalog`], [`constraint`], [`depend`] | tables, columns, indexes, constraints, sequences, views, and what depends on what |
//! | [`types`], [`row_type`], [`routine`] | types, operator classes, functions, operators |
//! | [`role`] | roles, schemas, databases |
//! | [`activity`], [`statistics`], [`relation_statistics`], [`query_statistics`] | sessions, locks, replication, settings, what is counted |
//! | [`information`], [`information_constraint`], [`information_other`] | `information_schema` |
//! | `counted` | what sessions have counted |
//! | [`names`] | names and ids of objects |
//! | [`describe`] | definitions as SQL, privileges as text |
//! | [`functions`] | functions over all this |
//! | [`size`] | how much tables take |
//! | [`shown`] | texts of statements, as others are shown them |
//!
//! # Object ids
//!
//! Relations and types have PostgreSQL's. A primary key or unique constraint has the id of its
//! index, a view's rule that of the view, a default and the type of a relation's rows one that is
//! [derived](class::derived_oid) from the relation's. Functions and operators are numbered when the
//! program starts: their ids hold for one version of it.

pub mod activity;
mod catalog;
pub mod class;
mod classes;
pub(crate) mod constraint;
mod counted;
pub mod definition;
mod depend;
pub mod describe;
pub mod functions;
mod information;
mod information_constraint;
mod information_other;
pub mod names;
mod object;
mod query_statistics;
mod relation_statistics;
pub mod role;
pub mod routine;
mod row_type;
pub mod shown;
mod sink;
pub mod size;
mod statistics;
#[cfg(test)]
mod tests;
pub mod types;

use std::{collections::HashMap, sync::Arc, sync::OnceLock};

use freshet_sql::{
    SqlError, SqlState, Value, ValueRef,
    general::{Cells, Column, Filter, Lockable, Readable, Relation, Rows, Scan},
};

pub use activity::{SessionInfo, SystemView};
use definition::Definition;
use sink::Sink;

use crate::{
    relations::{Guard, Reader, Snapshot},
    schema::{INFORMATION_SCHEMA, Oid, PG_CATALOG, Schema, Sequence},
};

/// Gives a relation's rows.
type Generator = fn(&Snapshot, &mut Sink<'_>) -> Result<(), SqlError>;

/// Those that may have rows. No two of them have the same name, though they are in two schemas.
const GENERATORS: &[&[(&str, Generator)]] = &[
    catalog::RELATIONS,
    constraint::RELATIONS,
    depend::RELATIONS,
    types::RELATIONS,
    routine::RELATIONS,
    role::RELATIONS,
    activity::RELATIONS,
    statistics::RELATIONS,
    relation_statistics::RELATIONS,
    query_statistics::RELATIONS,
    information::RELATIONS,
    information_constraint::RELATIONS,
    information_other::RELATIONS,
];

fn generator(name: &str) -> Option<Generator> {
    static BY_NAME: OnceLock<HashMap<&'static str, Generator>> = OnceLock::new();
    BY_NAME.get_or_init(|| GENERATORS.iter().copied().flatten().copied().collect()).get(name).copied()
}

/// The schema of the system of this name.
pub fn namespace(name: &str) -> Option<Oid> {
    match name {
        "pg_catalog" => Some(PG_CATALOG),
        "information_schema" => Some(INFORMATION_SCHEMA),
        _ => None,
    }
}

/// The relation of the system that a name means; nothing when it means none, or a user's relation.
fn find(schema: &Schema, path: &[Oid], namespace: Option<&str>, name: &str) -> Option<&'static Definition> {
    if let Some(namespace) = namespace {
        return Definition::named(self::namespace(namespace)?, name);
    }
    for namespace in path {
        if let Some(definition) = Definition::named(*namespace, name) {
            return Some(definition);
        }
        if schema.named(*namespace, name).is_some() {
            return None;
        }
    }
    None
}

/// Whether a name is that of a relation of the system, or would be if there were one.
pub fn is_named(schema: &Schema, path: &[Oid], namespace: Option<&str>, name: &str) -> bool {
    namespace.is_some_and(|namespace| self::namespace(namespace).is_some())
        || find(schema, path, namespace, name).is_some()
}

/// The relation of the system that a name means, to be read; nothing when it means none, or a
/// user's relation.
pub fn relation(snapshot: &Snapshot, schema: Option<&str>, name: &str) -> Option<Arc<dyn Relation>> {
    let definition = find(&snapshot.schema, &snapshot.path, schema, name)?;
    Some(Arc::new(SystemRelation {
        columns: &definition.columns,
        rows: Origin::System(definition, generator(definition.name)),
        snapshot: snapshot.clone(),
    }))
}

/// A sequence as something that can be read: where it stands.
pub fn sequence(snapshot: &Snapshot, sequence: &Arc<Sequence>) -> Arc<dyn Relation> {
    Arc::new(SystemRelation {
        columns: class::sequence_columns(),
        rows: Origin::Sequence(Arc::clone(sequence), Guard::of(snapshot)),
        snapshot: snapshot.clone(),
    })
}

/// Where rows come from.
#[derive(Debug)]
enum Origin {
    System(&'static Definition, Option<Generator>),
    Sequence(Arc<Sequence>, Guard),
}

/// A relation whose rows are computed.
#[derive(Debug)]
struct SystemRelation {
    columns: &'static [Column],
    rows: Origin,
    snapshot: Snapshot,
}

impl Readable for SystemRelation {
    fn may_read(&self, columns: &[usize]) -> Result<(), SqlError> {
        match &self.rows {
            Origin::System(..) => Ok(()),
            Origin::Sequence(sequence, guard) => {
                let columns = columns.iter().map(|column| *column as u16);
                guard.may_read((sequence.owner, &sequence.grants), columns, ("sequence", &sequence.name))
            }
        }
    }

    fn origin(&self, column: usize) -> Option<(u32, i16)> {
        let oid = match &self.rows {
            Origin::System(definition, _) => definition.oid,
            Origin::Sequence(sequence, _) => sequence.oid,
        };
        Some((oid, column as i16 + 1))
    }
}

impl Relation for SystemRelation {
    fn columns(&self) -> &[Column] {
        self.columns
    }

    fn takes(&self, filter: &Filter) -> bool {
        filter.column < self.columns.len()
    }

    fn lockable(&self) -> Result<Arc<dyn Lockable>, SqlError> {
        Err(match &self.rows {
            Origin::System(..) => {
                SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "rows of a table of the system cannot be locked")
            }
            Origin::Sequence(sequence, _) => {
                let message = format!("cannot lock rows in sequence \"{}\"", sequence.name);
                SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
            }
        })
    }

    fn scan(&self, scan: Scan) -> Result<Box<dyn Rows>, SqlError> {
        if scan
            .columns
            .iter()
            .chain(scan.filters.iter().map(|filter| &filter.column))
            .any(|at| *at >= self.columns.len())
        {
            return Err(SqlError::internal("a scan of no column"));
        }
        let rows = match &self.rows {
            Origin::System(_, None) => Vec::new(),
            Origin::System(definition, Some(generator)) => {
                let mut sink = Sink::new(self.columns, definition.table.then_some(definition.oid), &scan);
                generator(&self.snapshot, &mut sink)?;
                sink.finish()
            }
            Origin::Sequence(sequence, _) => {
                let mut sink = Sink::new(self.columns, Some(sequence.oid), &scan);
                class::sequence_row(&self.snapshot, sequence, &mut sink)?;
                sink.finish()
            }
        };
        Ok(Box::new(Computed { rows: rows.into_iter() }))
    }
}

/// Rows that were computed.
struct Computed {
    rows: std::vec::IntoIter<Vec<Value>>,
}

/// The cells of a row that was computed as values.
struct ComputedCells<'r>(&'r [Value]);

impl Cells for ComputedCells<'_> {
    fn cell(&self, n: usize) -> Result<ValueRef<'_>, SqlError> {
        self.0.get(n).map(Value::as_ref).ok_or_else(|| SqlError::internal("a row has no such cell"))
    }
}

impl Rows for Computed {
    fn next(
        &mut self,
        count: usize,
        sink: &mut dyn FnMut(&dyn Cells) -> Result<(), SqlError>,
    ) -> Result<bool, SqlError> {
        for row in self.rows.by_ref().take(count.max(1)) {
            sink(&ComputedCells(&row))?;
        }
        Ok(self.rows.len() > 0)
    }
}

impl Snapshot {
    /// Whether the statement's role is this one or a member of it.
    pub(crate) fn is_member(&self, of: Oid) -> bool {
        self.schema.is_member(self.role, of)
    }

    /// Fails unless the reader is a superuser.
    ///
    /// # Errors
    /// 42501.
    fn superusers_only(&self, relation: &str) -> Result<(), SqlError> {
        let may = match self.reader {
            Reader::Role(role) | Reader::View(role) => self.schema.role_by_oid(role).is_some_and(|it| it.superuser),
            Reader::Nobody => true,
        };
        if may {
            return Ok(());
        }
        let message = format!("permission denied for {relation}");
        Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message))
    }
}
