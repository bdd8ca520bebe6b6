//! Which relations the system has, and their columns: PostgreSQL 15's, with types that Freshet has.

use std::{collections::HashMap, sync::OnceLock};

use freshet_sql::{Kind, Type, general::Column};

use crate::schema::{INFORMATION_SCHEMA, Oid, PG_CATALOG};

/// The list: see its first lines.
const LIST: &str = include_str!("relations.txt");

/// A relation of the system.
#[derive(Debug)]
pub struct Definition {
    /// The schema that it is in.
    pub namespace: Oid,
    /// The name of the relation.
    pub name: &'static str,
    /// The oid in `pg_class`.
    pub oid: Oid,
    /// Whether it is a table, as clients see it, and not a view.
    pub table: bool,
    /// Its columns; behind those of PostgreSQL `tableoid` if it is a table.
    pub columns: Vec<Column>,
    /// Whether each of them is never null.
    pub not_null: Vec<bool>,
}

/// The type that stands for one of PostgreSQL's.
fn type_of(name: &str) -> Option<Type> {
    Some(match name {
        // Expressions are kept as SQL, addresses as text.
        "pg_node_tree" | "inet" | "anyarray" | "pg_ndistinct" | "pg_dependencies" | "pg_mcv_list" => Type::TEXT,
        "aclitem[]" | "pg_statistic[]" => Type::of(Kind::TextArray),
        "sql_identifier" => Type::NAME,
        "character_data" => Type::VARCHAR,
        "yes_or_no" => Type::varchar(3).ok()?,
        "cardinal_number" => Type::INT4,
        "time_stamp" => Type::with_precision(Kind::Timestamptz, 2).ok()?,
        name => Type::from_name(name)?,
    })
}

struct Definitions {
    all: Vec<Definition>,
    by_name: HashMap<(Oid, &'static str), usize>,
    by_oid: HashMap<Oid, usize>,
}

/// Reads the list. What is wrong in it is left out: a test sees to it that nothing is.
fn read(list: &'static str) -> Definitions {
    let mut all: Vec<Definition> = Vec::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(columns) = line.strip_prefix(' ') {
            let Some(definition) = all.last_mut() else { continue };
            for column in columns.split(',').map(str::trim).filter(|column| !column.is_empty()) {
                let Some((name, ty)) = column.split_once(' ') else { continue };
                let (ty, not_null) = ty.strip_suffix('!').map_or((ty, false), |ty| (ty, true));
                let Some(ty) = type_of(ty) else { continue };
                definition.columns.push(Column { name: name.to_owned(), ty, hidden: false });
                definition.not_null.push(not_null);
            }
        } else if let [name, oid, kind] = line.split(' ').collect::<Vec<_>>()[..]
            && let (Some((schema, name)), Ok(oid)) = (name.split_once('.'), oid.parse())
        {
            let namespace = if schema == "pg_catalog" { PG_CATALOG } else { INFORMATION_SCHEMA };
            let (columns, not_null) = Default::default();
            all.push(Definition { namespace, name, oid, table: kind == "r", columns, not_null });
        }
    }
    for definition in all.iter_mut().filter(|definition| definition.table) {
        definition.columns.push(Column { name: "tableoid".to_owned(), ty: Type::OID, hidden: true });
        definition.not_null.push(true);
    }
    let numbered = || all.iter().enumerate();
    let by_name = numbered().map(|(number, it)| ((it.namespace, it.name), number)).collect();
    let by_oid = numbered().map(|(number, it)| (it.oid, number)).collect();
    Definitions { all, by_name, by_oid }
}

fn definitions() -> &'static Definitions {
    static DEFINITIONS: OnceLock<Definitions> = OnceLock::new();
    DEFINITIONS.get_or_init(|| read(LIST))
}

impl Definition {
    /// The definitions of all system relations.
    pub fn all() -> &'static [Self] {
        &definitions().all
    }

    /// The one of this name in a schema.
    pub fn named(namespace: Oid, name: &str) -> Option<&'static Self> {
        let definitions = definitions();
        // The key borrows as long as the map lives; a name that is looked for does not.
        if namespace != PG_CATALOG && namespace != INFORMATION_SCHEMA {
            return None;
        }
        definitions.by_name.get(&(namespace, name)).map(|number| &definitions.all[*number])
    }

    /// The one of this id.
    pub fn of(oid: Oid) -> Option<&'static Self> {
        let definitions = definitions();
        definitions.by_oid.get(&oid).map(|number| &definitions.all[*number])
    }

    /// The columns that `*` shows.
    pub fn visible(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(|(_, column)| !column.hidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_whole() {
        let columns: usize = LIST
            .lines()
            .filter(|line| line.starts_with(' '))
            .map(|line| line.trim().trim_end_matches(',').split(',').count())
            .sum();
        let relations =
            LIST.lines().filter(|line| line.starts_with("pg_catalog.") || line.starts_with("information_schema."));
        assert_eq!(Definition::all().len(), relations.count());
        assert_eq!(Definition::all().iter().map(|it| it.visible().count()).sum::<usize>(), columns);
        for definition in Definition::all() {
            assert_eq!(definition.columns.len(), definition.not_null.len());
            assert!(std::ptr::eq(Definition::named(definition.namespace, definition.name).unwrap(), definition));
            assert!(
                std::ptr::eq(Definition::of(definition.oid).unwrap(), definition),
                "{} has no id of its own",
                definition.name
            );
        }
    }

    #[test]
    fn types_are_those_of_postgresql_where_there_are_such() {
        let class = Definition::named(PG_CATALOG, "pg_class").unwrap();
        let types: Vec<_> = class.columns.iter().map(|column| (column.name.as_str(), column.ty.to_string())).collect();
        let ty = |name: &str| types.iter().find(|(known, _)| *known == name).unwrap().1.as_str();
        assert_eq!((ty("oid"), ty("relname"), ty("relkind"), ty("reltuples")), ("oid", "name", "\"char\"", "real"));
        assert_eq!((ty("relacl"), ty("relfrozenxid"), ty("relpartbound")), ("text[]", "xid", "text"));
        assert_eq!(class.oid, 1259);
        assert!(class.columns.last().unwrap().hidden);
        let index = Definition::named(PG_CATALOG, "pg_index").unwrap();
        assert_eq!(index.columns[15].ty, Type::of(Kind::Int2Vector));
        let columns = Definition::named(INFORMATION_SCHEMA, "columns").unwrap();
        assert_eq!(columns.columns[6].ty.to_string(), "character varying(3)");
    }
}
