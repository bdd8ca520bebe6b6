//! Definitions as SQL, and privileges as text: as PostgreSQL writes them.

use std::fmt::Write;

use freshet_sql::{Type, Value, functions::quote_identifier};

use super::{
    class::{self, Class},
    sink::texts,
};
use crate::{
    ddl::shown_expression,
    relations::Snapshot,
    schema::{
        AccessMethod, Check, Database, ForeignKey, Grant, Index, IndexColumn, IndexConstraint, Oid, ReferentialAction,
        Table, TableInfo, computed, privilege,
    },
};

/// Privileges with their letters, in the order in which they are written.
const LETTERS: &[(u16, char)] = &[
    (privilege::INSERT, 'a'),
    (privilege::SELECT, 'r'),
    (privilege::UPDATE, 'w'),
    (privilege::DELETE, 'd'),
    (privilege::TRUNCATE, 'D'),
    (privilege::REFERENCES, 'x'),
    (privilege::TRIGGER, 't'),
    (privilege::USAGE, 'U'),
    (privilege::CREATE, 'C'),
    (privilege::TEMPORARY, 'T'),
    (privilege::CONNECT, 'c'),
];

/// The name of a relation, with its schema unless it is found without.
pub fn relation_name(snapshot: &Snapshot, class: Class<'_>) -> String {
    if class::is_visible(snapshot, class) { quote_identifier(class.name()) } else { full_name(snapshot, class) }
}

/// The name of a relation with its schema.
pub fn full_name(snapshot: &Snapshot, class: Class<'_>) -> String {
    let namespace = class::namespace_name(snapshot, class.namespace());
    format!("{}.{}", quote_identifier(namespace), quote_identifier(class.name()))
}

fn table_name(snapshot: &Snapshot, oid: Oid) -> String {
    class::by_oid(snapshot, oid).map_or_else(|| oid.to_string(), |class| relation_name(snapshot, class))
}

/// The names of columns, separated by commas.
fn names(table: &Table, columns: impl IntoIterator<Item = u16>) -> String {
    let mut list = String::new();
    for column in columns {
        if !list.is_empty() {
            list.push_str(", ");
        }
        let name = table.columns.get(usize::from(column)).map_or("", |column| &column.name);
        let _ = write!(list, "{}", quote_identifier(name));
    }
    list
}

/// The statement that makes an index. With `pretty`, the table has its schema only where it needs
/// it.
pub fn index(snapshot: &Snapshot, info: &std::sync::Arc<TableInfo>, index: &Index, pretty: bool) -> String {
    let class = Class::Table(info);
    let table = if pretty { relation_name(snapshot, class) } else { full_name(snapshot, class) };
    let unique = if index.unique { "UNIQUE " } else { "" };
    let columns: Vec<String> = index.columns.iter().map(|part| column(info, part, pretty)).collect();
    let name = quote_identifier(&index.name);
    let method = method(index);
    let mut text = format!("CREATE {unique}INDEX {name} ON {table} USING {method} ({})", columns.join(", "));
    text.push_str(&included(info, index));
    if index.nulls_not_distinct {
        text.push_str(" NULLS NOT DISTINCT");
    }
    let place = info.table.indexes.iter().position(|known| known.oid == index.oid);
    if let Some(predicate) = place.and_then(|place| info.shown_predicate(place, pretty)) {
        let _ = write!(text, " WHERE {predicate}");
    }
    text
}

/// The name of an index's access method.
pub fn method(index: &Index) -> &'static str {
    match index.method {
        AccessMethod::Btree => "btree",
        AccessMethod::Hash => "hash",
    }
}

fn column(info: &TableInfo, part: &IndexColumn, pretty: bool) -> String {
    let mut text = info.shown_column(part.column, pretty);
    if let Some(collation) = &part.collation {
        let _ = write!(text, " COLLATE {}", quote_identifier(collation));
    }
    if let Some(class) = &part.class {
        let _ = write!(text, " {}", quote_identifier(class));
    }
    if part.descending {
        text.push_str(" DESC");
    }
    if part.nulls_first != part.descending {
        text.push_str(if part.nulls_first { " NULLS FIRST" } else { " NULLS LAST" });
    }
    text
}

fn included(info: &TableInfo, index: &Index) -> String {
    match index.include.is_empty() {
        true => String::new(),
        false => format!(" INCLUDE ({})", names(&info.table, index.include.iter().copied())),
    }
}

/// A column of an index, by its number from 1.
pub fn index_column(info: &TableInfo, index: &Index, number: i64, pretty: bool) -> Option<String> {
    let place = usize::try_from(number).ok()?.checked_sub(1)?;
    let columns = index.columns.iter().map(|part| part.column).chain(index.include.iter().copied());
    { columns }.nth(place).map(|column| info.shown_column(column, pretty))
}

/// What `pg_index` says of an index's expressions or its predicate, as it is shown; nothing when
/// the text is no such one.
fn index_expression(info: &TableInfo, text: &str, pretty: bool) -> Option<String> {
    let indexes = info.table.indexes.iter().enumerate().filter(|(_, index)| index.oid != 0);
    { indexes }.find_map(|(place, index)| {
        if info.shown_predicate(place, false).as_deref() == Some(text) {
            return info.shown_predicate(place, pretty);
        }
        let computed = |pretty| {
            let all = index.columns.iter().filter_map(|part| info.shown_expression(part.column, pretty));
            Some(crate::deparse::list(all)).filter(|all| !all.is_empty())
        };
        if computed(false).as_deref() == Some(text) { computed(pretty) } else { None }
    })
}

/// A PRIMARY KEY or UNIQUE constraint.
pub fn key(table: &Table, index: &Index) -> String {
    let kind = match (index.constraint, index.nulls_not_distinct) {
        (IndexConstraint::Primary, _) => "PRIMARY KEY",
        (_, true) => "UNIQUE NULLS NOT DISTINCT",
        (_, false) => "UNIQUE",
    };
    let mut text = format!("{kind} ({})", names(table, index.columns.iter().map(|part| part.column)));
    if !index.include.is_empty() {
        let _ = write!(text, " INCLUDE ({})", names(table, index.include.iter().copied()));
    }
    text
}

/// A CHECK constraint.
pub fn check(snapshot: &Snapshot, table: &Table, check: &Check, pretty: bool) -> String {
    format!("CHECK ({})", check_condition(snapshot, table, check, pretty))
}

/// Its condition.
pub fn check_condition(snapshot: &Snapshot, table: &Table, check: &Check, pretty: bool) -> String {
    computed::shown_condition(table, &check.condition, pretty)
        .unwrap_or_else(|| shown_expression(&check.condition, &snapshot.schema, &snapshot.path))
}

/// A column's default.
pub fn default(snapshot: &Snapshot, sql: &str, ty: Type, pretty: bool) -> String {
    computed::shown_default(sql, ty, pretty).unwrap_or_else(|| shown_expression(sql, &snapshot.schema, &snapshot.path))
}

/// An expression of a table that the catalog has as this text: a default, a condition, an index's.
pub fn expression(snapshot: &Snapshot, info: &TableInfo, text: &str, pretty: bool) -> Option<String> {
    if let Some(shown) = index_expression(info, text, pretty) {
        return Some(shown);
    }
    if let Some(check) = info.table.checks.iter().find(|check| check.condition == text) {
        return Some(check_condition(snapshot, &info.table, check, pretty));
    }
    let column = info.table.columns.iter().find(|column| column.default.as_deref() == Some(text))?;
    Some(default(snapshot, text, column.ty, pretty))
}

/// A FOREIGN KEY constraint.
pub fn foreign_key(snapshot: &Snapshot, table: &Table, key: &ForeignKey) -> String {
    let parent = snapshot.schema.table(key.parent);
    let columns = parent.map(|info| names(&info.table, key.parent_columns.iter().copied())).unwrap_or_default();
    let mut text = format!(
        "FOREIGN KEY ({}) REFERENCES {}({columns})",
        names(table, key.columns.iter().copied()),
        table_name(snapshot, key.parent)
    );
    for (event, action) in [("UPDATE", key.on_update), ("DELETE", key.on_delete)] {
        if action != ReferentialAction::NoAction {
            let _ = write!(text, " ON {event} {}", self::action(action));
        }
    }
    text
}

/// What SQL calls an action.
pub fn action(action: ReferentialAction) -> &'static str {
    match action {
        ReferentialAction::NoAction => "NO ACTION",
        ReferentialAction::Restrict => "RESTRICT",
        ReferentialAction::Cascade => "CASCADE",
        ReferentialAction::SetNull => "SET NULL",
        ReferentialAction::SetDefault => "SET DEFAULT",
    }
}

/// The letter of an action.
pub fn action_letter(action: ReferentialAction) -> char {
    match action {
        ReferentialAction::NoAction => 'a',
        ReferentialAction::Restrict => 'r',
        ReferentialAction::Cascade => 'c',
        ReferentialAction::SetNull => 'n',
        ReferentialAction::SetDefault => 'd',
    }
}

/// The name of a role, as privileges have it.
fn role_name(snapshot: &Snapshot, oid: Oid) -> String {
    let Some(role) = snapshot.schema.role_by_oid(oid) else { return oid.to_string() };
    if role.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        role.name.clone()
    } else {
        format!("\"{}\"", role.name.replace('"', "\"\""))
    }
}

/// Who has which privileges, as an array like `{owner=arwdDxt/owner,=r/owner}`; null when nobody
/// but the owner has any. `all` are those of the owner.
pub fn privileges(snapshot: &Snapshot, owner: Oid, grants: &[Grant], all: u16) -> Value {
    let grants: Vec<&Grant> = grants.iter().filter(|grant| grant.column.is_none()).collect();
    if grants.is_empty() {
        return Value::Null;
    }
    let own = Grant { role: owner, column: None, privileges: all, grantable: 0, grantor: owner };
    let has_own = grants.iter().any(|grant| grant.role == owner);
    let listed = Some(&own).filter(|_| !has_own).into_iter().chain(grants);
    texts(listed.map(|grant| privilege_text(snapshot, grant)))
}

/// Who has which privileges on a database, likewise; null while they are those of a new one.
pub fn database_privileges(snapshot: &Snapshot, database: &Database) -> Value {
    let owner = database.owner;
    if *database.grants == [Database::public(owner)] {
        return Value::Null;
    }
    let mut grants = database.grants.clone();
    if grants.is_empty() {
        // Nobody but the owner has any more.
        let privileges = privilege::ALL_DATABASE;
        grants.push(Grant { role: owner, column: None, privileges, grantable: 0, grantor: owner });
    }
    self::privileges(snapshot, owner, &grants, privilege::ALL_DATABASE)
}

/// The privileges on one column, likewise; null when there is no grant on this column.
pub fn column_privileges(snapshot: &Snapshot, grants: &[Grant], column: u16) -> Value {
    let mut listed = grants.iter().filter(|grant| grant.column == Some(column)).peekable();
    match listed.peek() {
        None => Value::Null,
        Some(_) => texts(listed.map(|grant| privilege_text(snapshot, grant))),
    }
}

/// A grant like `reader=r*w/owner`.
fn privilege_text(snapshot: &Snapshot, grant: &Grant) -> String {
    let mut text = if grant.role == 0 { String::new() } else { role_name(snapshot, grant.role) };
    text.push('=');
    for (bit, letter) in LETTERS.iter().filter(|(bit, _)| grant.privileges & bit != 0) {
        text.push(*letter);
        if grant.grantable & bit != 0 {
            text.push('*');
        }
    }
    let _ = write!(text, "/{}", role_name(snapshot, grant.grantor));
    text
}

/// PostgreSQL's default privileges on an object of a kind, by its letter, before any GRANT or
/// REVOKE; nothing for a letter that stands for no kind.
pub fn default_privileges(snapshot: &Snapshot, kind: char, owner: Oid) -> Option<Value> {
    let (all, own) = match kind {
        'c' => ("", ""),
        'r' => ("", "arwdDxt"),
        's' => ("", "rwU"),
        'd' => ("Tc", "CTc"),
        'f' => ("X", "X"),
        'l' | 'T' => ("U", "U"),
        'L' => ("", "rw"),
        'n' => ("", "UC"),
        'p' => ("", "sA"),
        't' => ("", "C"),
        'F' | 'S' => ("", "U"),
        _ => return None,
    };
    let owner = role_name(snapshot, owner);
    let entry = |name: &str, letters: &str| (!letters.is_empty()).then(|| format!("{name}={letters}/{owner}"));
    Some(texts([entry("", all), entry(&owner, own)].into_iter().flatten()))
}

/// A view's query.
pub fn view(view: &crate::schema::View) -> String {
    let query = view.query.trim_end();
    if query.ends_with(';') { query.to_owned() } else { format!("{query};") }
}
