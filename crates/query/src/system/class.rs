//! Everything that has columns, as `pg_class` sees it: tables, views, sequences, indexes, and the
//! system's own relations.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use freshet_sql::{SqlError, Type, general::Column};

use super::{
    definition::Definition,
    sink::{Sink, row},
};
use crate::{
    relations::Snapshot,
    schema::{
        Entry, FIRST_ROLE, FIRST_USER_OID, Grant, Identity, Index, Named, Oid, Schema, Sequence, TableInfo, View,
        privilege,
    },
};

/// The id of `pg_class` itself, where other catalogs say in which one an object is.
pub const PG_CLASS: Oid = 1259;
/// The id of `pg_attrdef`.
pub const PG_ATTRDEF: Oid = 2604;
/// The id of `pg_constraint`.
pub const PG_CONSTRAINT: Oid = 2606;
/// The id of `pg_rewrite`.
pub const PG_REWRITE: Oid = 2618;
/// The id of `pg_namespace`.
pub const PG_NAMESPACE: Oid = 2615;
/// The id of `pg_database`.
pub const PG_DATABASE: Oid = 1262;
/// The id of `pg_extension`.
pub const PG_EXTENSION: Oid = 3079;
/// The id of `pg_authid`.
pub const PG_AUTHID: Oid = 1260;

/// What others may do with a relation of the system.
const SYSTEM_GRANTS: &[Grant] =
    &[Grant { role: 0, column: None, privileges: privilege::SELECT, grantable: 0, grantor: FIRST_ROLE }];

/// A row of `pg_class`.
#[derive(Clone, Copy, Debug)]
pub enum Class<'s> {
    /// A table.
    Table(&'s Arc<TableInfo>),
    /// A view.
    View(&'s Arc<View>),
    /// A sequence.
    Sequence(&'s Arc<Sequence>),
    /// An index of a table.
    Index(&'s Arc<TableInfo>, &'s Index),
    /// A relation of the system.
    System(&'static Definition),
}

/// A column of one.
#[derive(Clone, Debug)]
pub struct Attribute<'s> {
    /// Its number, from 1.
    pub number: i16,
    /// The column's name.
    pub name: Cow<'s, str>,
    /// The type of its values.
    pub ty: Type,
    /// Whether it is never null.
    pub not_null: bool,
    /// DEFAULT, as SQL.
    pub default: Option<&'s str>,
    /// GENERATED … AS IDENTITY.
    pub identity: Option<Identity>,
    /// Whether it was dropped.
    pub dropped: bool,
    /// Whether rows that were written before it have a value for it kept elsewhere.
    pub missing: bool,
}

impl<'s> Class<'s> {
    /// The oid in `pg_class`.
    pub fn oid(self) -> Oid {
        match self {
            Self::Table(info) => info.table.oid,
            Self::View(view) => view.oid,
            Self::Sequence(sequence) => sequence.oid,
            Self::Index(_, index) => index.oid,
            Self::System(definition) => definition.oid,
        }
    }

    /// The relation's name, without its schema.
    pub fn name(self) -> &'s str {
        match self {
            Self::Table(info) => &info.table.name,
            Self::View(view) => &view.name,
            Self::Sequence(sequence) => &sequence.name,
            Self::Index(_, index) => &index.name,
            Self::System(definition) => definition.name,
        }
    }

    /// The schema that it is in.
    pub fn namespace(self) -> Oid {
        match self {
            Self::Table(info) | Self::Index(info, _) => info.table.namespace,
            Self::View(view) => view.namespace,
            Self::Sequence(sequence) => sequence.namespace,
            Self::System(definition) => definition.namespace,
        }
    }

    /// The role that owns it.
    pub fn owner(self) -> Oid {
        match self {
            Self::Table(info) | Self::Index(info, _) => info.table.owner,
            Self::View(view) => view.owner,
            Self::Sequence(sequence) => sequence.owner,
            Self::System(_) => FIRST_ROLE,
        }
    }

    /// What others may do with it.
    pub fn grants(self) -> &'s [Grant] {
        match self {
            Self::Table(info) => &info.table.grants,
            Self::View(view) => &view.grants,
            Self::Sequence(sequence) => &sequence.grants,
            Self::Index(..) => &[],
            // What is in these is nobody's business but superusers'.
            Self::System(definition) if matches!(definition.name, "pg_authid" | "pg_shadow") => &[],
            Self::System(_) => SYSTEM_GRANTS,
        }
    }

    /// Its letter in `relkind`.
    pub fn kind(self) -> char {
        match self {
            Self::Table(_) => 'r',
            Self::View(_) => 'v',
            Self::Sequence(_) => 'S',
            Self::Index(..) => 'i',
            Self::System(definition) => {
                if definition.table {
                    'r'
                } else {
                    'v'
                }
            }
        }
    }

    /// How many columns it has, those counted that were dropped.
    pub fn width(self) -> i16 {
        match self {
            Self::Table(info) => {
                info.table.columns.iter().rposition(|column| !column.hidden).map_or(0, |last| last as i16 + 1)
            }
            Self::View(view) => view.columns.len() as i16,
            Self::Sequence(_) => sequence_columns().len() as i16 - 1,
            Self::Index(_, index) => (index.columns.len() + index.include.len()) as i16,
            Self::System(definition) => definition.visible().count() as i16,
        }
    }

    /// Its columns. That which rows without a primary key are found by is nobody's.
    pub fn attributes(self) -> Vec<Attribute<'s>> {
        let plain = |place: usize, name: &'s str, ty: Type, not_null: bool| Attribute {
            number: place as i16 + 1,
            name: Cow::Borrowed(name),
            ty,
            not_null,
            default: None,
            identity: None,
            dropped: false,
            missing: false,
        };
        match self {
            Self::Table(info) => {
                // Clients want numbers without gaps: what is hidden between others looks dropped.
                let last = info.table.columns.iter().rposition(|column| !column.hidden);
                let columns = info.table.columns.iter().enumerate().take(last.map_or(0, |last| last + 1));
                columns
                    .map(|(place, column)| Attribute {
                        name: match column.dropped || column.hidden {
                            true => Cow::Owned(format!("........pg.dropped.{}........", place + 1)),
                            false => Cow::Borrowed(&*column.name),
                        },
                        default: column.default.as_deref().filter(|_| !column.dropped && column.identity.is_none()),
                        identity: column.identity.filter(|_| !column.dropped),
                        dropped: column.dropped || column.hidden,
                        missing: column.missing.is_some(),
                        ..plain(place, "", column.ty, column.not_null && !column.hidden)
                    })
                    .collect()
            }
            Self::View(view) => {
                let columns = view.columns.iter().enumerate();
                columns.map(|(place, (name, ty))| plain(place, name, *ty, false)).collect()
            }
            Self::Sequence(_) => {
                let columns = sequence_columns().iter().enumerate().filter(|(_, column)| !column.hidden);
                columns.map(|(place, column)| plain(place, &column.name, column.ty, true)).collect()
            }
            Self::Index(info, index) => {
                let columns = index.columns.iter().map(|part| part.column).chain(index.include.iter().copied());
                let mut names: Vec<Cow<'s, str>> = Vec::new();
                for column in columns.clone() {
                    let name = info.attribute_name(column);
                    let numbered = |number: u32| Cow::Owned(format!("{name}{number}"));
                    let name = match names.contains(&name) {
                        true => (1..).map(numbered).find(|name| !names.contains(name)).unwrap_or(name),
                        false => name,
                    };
                    names.push(name);
                }
                let columns = columns.zip(names).enumerate();
                let columns = columns.filter_map(|(place, (column, name))| {
                    Some((place, info.table.columns.get(usize::from(column))?, name))
                });
                columns.map(|(place, column, name)| Attribute { name, ..plain(place, "", column.ty, false) }).collect()
            }
            Self::System(definition) => {
                let columns = definition.visible();
                columns
                    .map(|(place, column)| plain(place, &column.name, column.ty, definition.not_null[place]))
                    .collect()
            }
        }
    }

    /// What the statement's role may do with it or with any of its columns, as bits of
    /// [`privilege`].
    pub fn privileges(self, snapshot: &Snapshot) -> u16 {
        snapshot.schema.any_privileges(snapshot.role, self.owner(), self.grants())
    }
}

/// The columns of a sequence that is read like a table.
pub fn sequence_columns() -> &'static [Column] {
    static COLUMNS: OnceLock<[Column; 4]> = OnceLock::new();
    COLUMNS.get_or_init(|| {
        let column = |(name, ty, hidden): (&str, Type, bool)| Column { name: name.to_owned(), ty, hidden };
        [
            ("last_value", Type::INT8, false),
            ("log_cnt", Type::INT8, false),
            ("is_called", Type::BOOL, false),
            ("tableoid", Type::OID, true),
        ]
        .map(column)
    })
}

/// The row of a sequence that is read like a table.
///
/// # Errors
/// When where it stands cannot be read.
pub(super) fn sequence_row(snapshot: &Snapshot, sequence: &Arc<Sequence>, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let position = snapshot.system.sequence_position(sequence)?;
    // Nothing is kept ahead that a client could count on.
    sink.push(row![position.value, 0i64, position.called]);
    Ok(())
}

/// The most columns that a relation has.
pub const MOST_COLUMNS: u32 = 1600;

/// An id for something that a user's relation has, and that has a row in PostgreSQL: a place
/// below `MOST_COLUMNS + 2` says what. Nothing else has it as long as fewer than a million
/// relations were made.
pub fn derived_oid(relation: Oid, place: u32) -> Oid {
    0x8000_0000 | relation.wrapping_sub(FIRST_USER_OID).wrapping_mul(MOST_COLUMNS + 2).wrapping_add(place)
}

/// The relation of such an id.
pub fn of_derived(oid: Oid) -> Oid {
    (oid & 0x7FFF_FFFF) / (MOST_COLUMNS + 2) + FIRST_USER_OID
}

/// The id of the default of a column.
pub fn default_oid(table: Oid, column: i16) -> Oid {
    derived_oid(table, u32::from(column.unsigned_abs()))
}

/// All rows of `pg_class`, in the order of their ids; the system's relations first.
pub fn all(snapshot: &Snapshot) -> Vec<Class<'_>> {
    let mut classes: Vec<Class<'_>> = users(&snapshot.schema);
    classes.extend(Definition::all().iter().map(Class::System));
    classes.sort_unstable_by_key(|class| class.oid());
    classes
}

/// The same without the system's relations, and in no order.
fn users(schema: &Schema) -> Vec<Class<'_>> {
    let mut classes = Vec::new();
    for entry in schema.entries() {
        match entry {
            Entry::Table(info) => {
                classes.push(Class::Table(info));
                let indexes = info.table.indexes.iter().filter(|index| index.oid != 0);
                classes.extend(indexes.map(|index| Class::Index(info, index)));
            }
            Entry::View(view) => classes.push(Class::View(view)),
            Entry::Sequence(sequence) => classes.push(Class::Sequence(sequence)),
            Entry::Namespace(_)
            | Entry::Role(_)
            | Entry::Comment(_)
            | Entry::Database(_)
            | Entry::Common(_)
            | Entry::Extension(_) => {}
        }
    }
    classes
}

/// All tables, in the order of their ids.
pub fn tables(snapshot: &Snapshot) -> Vec<&Arc<TableInfo>> {
    let tables = snapshot.schema.entries().filter_map(|entry| match entry {
        Entry::Table(info) => Some(info),
        _ => None,
    });
    let mut tables: Vec<_> = tables.collect();
    tables.sort_unstable_by_key(|info| info.table.oid);
    tables
}

/// All views, in the order of their ids.
pub fn views(snapshot: &Snapshot) -> Vec<&Arc<View>> {
    let views = snapshot.schema.entries().filter_map(|entry| match entry {
        Entry::View(view) => Some(view),
        _ => None,
    });
    let mut views: Vec<_> = views.collect();
    views.sort_unstable_by_key(|view| view.oid);
    views
}

/// All sequences, in the order of their ids.
pub fn sequences(snapshot: &Snapshot) -> Vec<&Arc<Sequence>> {
    let sequences = snapshot.schema.entries().filter_map(|entry| match entry {
        Entry::Sequence(sequence) => Some(sequence),
        _ => None,
    });
    let mut sequences: Vec<_> = sequences.collect();
    sequences.sort_unstable_by_key(|sequence| sequence.oid);
    sequences
}

/// The index of this id, with its table.
pub fn index(schema: &Schema, oid: Oid) -> Option<(&Arc<TableInfo>, &Index)> {
    if oid < FIRST_USER_OID {
        return None;
    }
    schema.entries().find_map(|entry| match entry {
        Entry::Table(info) => info.table.indexes.iter().find(|index| index.oid == oid).map(|index| (info, index)),
        _ => None,
    })
}

/// The row of `pg_class` of this id.
pub fn by_oid(snapshot: &Snapshot, oid: Oid) -> Option<Class<'_>> {
    match snapshot.schema.entry(oid) {
        Some(Entry::Table(info)) => Some(Class::Table(info)),
        Some(Entry::View(view)) => Some(Class::View(view)),
        Some(Entry::Sequence(sequence)) => Some(Class::Sequence(sequence)),
        _ => match Definition::of(oid) {
            Some(definition) => Some(Class::System(definition)),
            None => index(&snapshot.schema, oid).map(|(info, index)| Class::Index(info, index)),
        },
    }
}

/// The row of `pg_class` of this name in a schema.
fn in_namespace<'s>(snapshot: &'s Snapshot, namespace: Oid, name: &str) -> Option<Class<'s>> {
    if let Some(definition) = Definition::named(namespace, name) {
        return Some(Class::System(definition));
    }
    let schema = &snapshot.schema;
    Some(match schema.named(namespace, name)? {
        Named::Table(oid) => Class::Table(schema.table(oid)?),
        Named::View(oid) => Class::View(schema.view(oid)?),
        Named::Sequence(oid) => Class::Sequence(schema.sequence(oid)?),
        Named::Index { table, number } => {
            let info = schema.table(table)?;
            Class::Index(info, info.table.indexes.get(number)?)
        }
    })
}

/// The row of `pg_class` that a name means; without a schema, along the search path.
///
/// # Errors
/// 42501 when the statement's role may not use the schema.
pub fn by_name<'s>(snapshot: &'s Snapshot, schema: Option<&str>, name: &str) -> Result<Option<Class<'s>>, SqlError> {
    let Some(schema) = schema else { return Ok(along_path(snapshot, name)) };
    let namespace = match super::namespace(schema) {
        Some(namespace) => Some(namespace),
        None => snapshot.schema.usable_namespace(snapshot.role, schema)?,
    };
    Ok(namespace.and_then(|namespace| in_namespace(snapshot, namespace, name)))
}

fn along_path<'s>(snapshot: &'s Snapshot, name: &str) -> Option<Class<'s>> {
    snapshot.path.iter().find_map(|namespace| in_namespace(snapshot, *namespace, name))
}

/// Whether a relation is the one that its name means without its schema.
pub fn is_visible(snapshot: &Snapshot, class: Class<'_>) -> bool {
    along_path(snapshot, class.name()).is_some_and(|found| found.oid() == class.oid())
}

/// The name of a schema.
pub fn namespace_name(snapshot: &Snapshot, oid: Oid) -> &str {
    snapshot.schema.namespace_name(oid)
}
