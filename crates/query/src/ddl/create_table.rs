//! CREATE TABLE.

use freshet_engine::CreateTableError;
use freshet_sql::{
    SqlError, SqlState, Type,
    types::{Cast, CastContext, Kind},
};
use sqlparser::ast::{DataType, ObjectNamePart};

use super::{
    Fill,
    expression::next_value,
    syntax::{
        ColumnDefinition, Constraint, CreateTable, CreateTableAs, LikeOptions, Name, Persistence, SequenceOptions,
        TableElement,
    },
    work::{Step, Work, check_name, error},
};
use crate::{
    bind::{modify::ROW_ID, not_supported},
    error::{open_error, procedure_error},
    schema::{
        Check, Column, Identity, Index, IndexColumn, IndexConstraint, Named, Oid, Table, TableInfo, privilege, relation,
    },
};

/// The most columns that a table can have.
const MOST_COLUMNS: usize = 1600;

/// A sequence that a new column takes its values from.
struct Serial {
    column: usize,
    options: SequenceOptions,
    ty: Type,
}

impl Work<'_, '_, '_> {
    pub(super) fn check_persistence(&mut self, persistence: Persistence) -> Result<(), SqlError> {
        match persistence {
            Persistence::Permanent => {}
            Persistence::Temporary => return Err(not_supported("a temporary table")),
            Persistence::Unlogged => {
                let message = "unlogged tables are logged and replicated like all others";
                self.notice(SqlState::WARNING, message);
            }
        }
        Ok(())
    }

    /// Whether the statement has nothing to do, since there is something of this name.
    pub(super) fn is_there(&mut self, namespace: Oid, name: &str, if_not_exists: bool) -> Result<bool, SqlError> {
        if self.schema().named(namespace, name).is_none() {
            return Ok(false);
        }
        let message = format!("relation \"{name}\" already exists");
        if !if_not_exists {
            return Err(error(SqlState::DUPLICATE_TABLE, message));
        }
        self.notice(SqlState::DUPLICATE_TABLE, message + ", skipping");
        Ok(true)
    }

    pub(super) fn create_table(&mut self, statement: &CreateTable) -> Step<&'static str> {
        if let Some(what) = statement.unsupported {
            return Err(not_supported(what).into());
        }
        let namespace = self.place_for(&statement.name)?;
        if self.is_there(namespace, &statement.name.name, statement.if_not_exists)? {
            return Ok("CREATE TABLE");
        }
        self.check_persistence(statement.persistence)?;
        let mut table = self.new_table(namespace, &statement.name.name)?;
        let mut serials = Vec::new();
        let mut constraints: Vec<Constraint> = Vec::new();
        let mut copied: Vec<Index> = Vec::new();
        for element in &statement.elements {
            match element {
                TableElement::Column(column) => {
                    self.add_new_column(&mut table, column, &mut serials)?;
                    constraints.extend(column.constraints.iter().cloned());
                }
                TableElement::Constraint(constraint) => constraints.push(constraint.clone()),
                TableElement::Like(name, options) => {
                    self.like(&mut table, name, *options, &mut serials, &mut copied)?
                }
            }
        }
        if table.columns.len() > MOST_COLUMNS {
            let message = format!("tables can have at most {MOST_COLUMNS} columns");
            return Err(error(SqlState::TOO_MANY_COLUMNS, message).into());
        }
        // Keys come first: they say which columns must have values, and which index rows are stored
        // by.
        self.add_keys(&mut table, &constraints)?;
        for index in copied {
            self.copy_index(&mut table, index)?;
        }
        let made = self.make(table, serials)?;
        self.add_other_constraints(&made, &constraints)?;
        Ok("CREATE TABLE")
    }

    /// A table without columns.
    fn new_table(&mut self, namespace: Oid, name: &str) -> Result<Table, SqlError> {
        Ok(Table {
            oid: self.change.take_oid()?,
            namespace,
            name: name.to_owned(),
            owner: self.ddl.role,
            columns: Vec::new(),
            rows: String::new(),
            indexes: Vec::new(),
            checks: Vec::new(),
            foreign_keys: Vec::new(),
            grants: Vec::new(),
        })
    }

    /// Makes the engine's table, the catalog's entry and the sequences of a new table.
    fn make(&mut self, mut table: Table, serials: Vec<Serial>) -> Step<std::sync::Arc<TableInfo>> {
        // The catalog's entry needs the sequences' ids in its defaults; the sequences need nothing
        // but the table's.
        for serial in serials {
            let owner = (table.oid, serial.column as u16);
            let column = table.columns[serial.column].name.clone();
            let names = (table.namespace, table.name.as_str(), column.as_str());
            let sequence = self.make_owned_sequence(names, table.owner, owner, serial.ty, &serial.options)?;
            table.columns[serial.column].default = Some(next_value(sequence));
        }
        ensure_first_index(&mut table);
        self.make_rows(&mut table)?;
        Ok(self.put_table(table)?)
    }

    /// Makes a table of the engine for a table's rows.
    pub(super) fn make_rows(&mut self, table: &mut Table) -> Result<(), SqlError> {
        table.rows = self.name_for_rows(table.oid);
        table.number_indexes();
        let definition = relation::engine_table(table)?;
        let (database, frees) = (self.ddl.catalog.database(), self.ddl.transaction.worker().frees());
        let made = database.define_table_for(&definition, frees).map(|(table, _)| table);
        made.map(drop).map_err(|cause| {
            let what = format!("cannot make table \"{}\"", table.name);
            match cause {
                CreateTableError::Procedure(cause) => procedure_error(&what, cause),
                CreateTableError::Open(cause) => open_error(&what, &cause),
                other => error(SqlState::PROGRAM_LIMIT_EXCEEDED, format!("{what}: {other}")),
            }
        })
    }

    fn add_new_column(
        &mut self,
        table: &mut Table,
        definition: &ColumnDefinition,
        serials: &mut Vec<Serial>,
    ) -> Result<(), SqlError> {
        let (column, serial) = self.column(definition, &table.columns)?;
        if let Some((ty, options)) = serial {
            serials.push(Serial { column: table.columns.len(), options, ty });
        }
        table.columns.push(column);
        Ok(())
    }

    /// A column as it is defined; and the sequence that it needs, if it needs one: its type and
    /// options.
    pub(super) fn column(
        &self,
        definition: &ColumnDefinition,
        others: &[Column],
    ) -> Result<(Column, Option<(Type, SequenceOptions)>), SqlError> {
        let name = &definition.name;
        check_name(name)?;
        if others.iter().any(|other| other.is_visible() && other.name == *name) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(error(SqlState::DUPLICATE_COLUMN, message));
        }
        let serial = serial_type(&definition.ty);
        let ty = match serial {
            Some(ty) => ty,
            None => column_type(&definition.ty, name)?,
        };
        let mut column = Column::new(name, ty);
        column.not_null = definition.not_null == Some(true);
        let mut sequence = None;
        if serial.is_some() {
            if definition.default.is_some() {
                let message = format!("multiple default values specified for column \"{name}\"");
                return Err(error(SqlState::SYNTAX_ERROR, message));
            }
            if definition.not_null == Some(false) {
                let message = format!("conflicting NULL/NOT NULL declarations for column \"{name}\"");
                return Err(error(SqlState::SYNTAX_ERROR, message));
            }
            column.not_null = true;
            sequence = Some((ty, SequenceOptions::default()));
        }
        if let Some(identity) = &definition.identity {
            if serial.is_some() || definition.default.is_some() {
                let message = format!("both default and identity specified for column \"{name}\"");
                return Err(error(SqlState::SYNTAX_ERROR, message));
            }
            if definition.not_null == Some(false) {
                let message = format!("conflicting NULL/NOT NULL declarations for column \"{name}\"");
                return Err(error(SqlState::SYNTAX_ERROR, message));
            }
            check_identity_type(ty)?;
            column.not_null = true;
            column.identity = Some(if identity.always { Identity::Always } else { Identity::ByDefault });
            sequence = Some((ty, identity.options.clone()));
        }
        if let Some(value) = &definition.default {
            column.default = self.default(value, name, ty)?.0;
        }
        Ok((column, sequence))
    }

    /// LIKE
    fn like(
        &mut self,
        table: &mut Table,
        name: &Name,
        options: LikeOptions,
        serials: &mut Vec<Serial>,
        copied: &mut Vec<Index>,
    ) -> Result<(), SqlError> {
        if let Named::View(oid) = self.relation(name)? {
            let view = self.view_by_oid(oid)?;
            self.check_grant(view.owner, &view.grants, privilege::SELECT, "view", &view.name)?;
            for (name, ty) in &view.columns {
                table.columns.push(Column::new(name, *ty));
            }
            return Ok(());
        }
        let like = self.table(name)?;
        self.check_grant(like.table.owner, &like.table.grants, privilege::SELECT, "table", &like.table.name)?;
        let mut numbers = vec![None; like.table.columns.len()];
        for (number, column) in like.table.visible_columns() {
            if table.columns.iter().any(|other| other.name == column.name) {
                let message = format!("column \"{}\" specified more than once", column.name);
                return Err(error(SqlState::DUPLICATE_COLUMN, message));
            }
            let mut new = Column::new(&column.name, column.ty);
            new.not_null = column.not_null;
            if column.identity.is_some() {
                if options.identity {
                    new.identity = column.identity;
                    let sequence = self.sequence_of(like.table.oid, number);
                    let options = sequence.map(|it| SequenceOptions {
                        increment: Some(it.increment),
                        minimum: Some(Some(it.minimum)),
                        maximum: Some(Some(it.maximum)),
                        start: Some(it.start),
                        cache: Some(it.cache),
                        cycle: Some(it.cycle),
                        ..SequenceOptions::default()
                    });
                    serials.push(Serial {
                        column: table.columns.len(),
                        options: options.unwrap_or_default(),
                        ty: new.ty,
                    });
                }
            } else if options.defaults {
                new.default.clone_from(&column.default);
            }
            numbers[number] = Some(table.columns.len() as u16);
            table.columns.push(new);
        }
        if options.constraints {
            for check in &like.table.checks {
                let oid = self.change.take_oid()?;
                table.checks.push(Check { oid, name: check.name.clone(), condition: check.condition.clone() });
            }
        }
        if options.indexes {
            // What is computed for indexes comes with them.
            for (number, column) in like.table.columns.iter().enumerate() {
                if column.computed.is_some() && !column.dropped {
                    numbers[number] = Some(table.columns.len() as u16);
                    table.columns.push(column.clone());
                }
            }
            for index in like.table.indexes.iter().filter(|index| index.oid != 0) {
                let mut index = index.clone();
                for part in &mut index.columns {
                    part.column = numbers[usize::from(part.column)].unwrap_or(0);
                }
                for column in &mut index.include {
                    *column = numbers[usize::from(*column)].unwrap_or(0);
                }
                if let Some(column) = index.predicate.as_mut().and_then(|it| it.column.as_mut()) {
                    *column = numbers[usize::from(*column)].unwrap_or(0);
                }
                copied.push(index);
            }
        }
        Ok(())
    }

    /// An index that was taken over from another table, under a name of its own.
    fn copy_index(&mut self, table: &mut Table, mut index: Index) -> Result<(), SqlError> {
        let taken: Vec<String> = table.indexes.iter().map(|index| index.name.clone()).collect();
        let columns = index.columns.iter().map(|part| part.column).chain(index.include.iter().copied());
        let columns = super::index::names_in_index(table, columns).join("_");
        let (middle, label) = match index.constraint {
            IndexConstraint::Primary => (String::new(), "pkey"),
            IndexConstraint::Unique => (columns, "key"),
            IndexConstraint::None => (columns, "idx"),
        };
        index.name = self.free_name(table.namespace, (&table.name, &middle), label, &taken);
        index.oid = self.change.take_oid()?;
        if index.constraint == IndexConstraint::Primary {
            table.indexes.insert(0, index);
        } else {
            table.indexes.push(index);
        }
        Ok(())
    }

    pub(super) fn create_table_as(&mut self, statement: &CreateTableAs) -> Step<(&'static str, Option<Fill>)> {
        let namespace = self.place_for(&statement.name)?;
        if self.is_there(namespace, &statement.name.name, statement.if_not_exists)? {
            return Ok(("CREATE TABLE AS", None));
        }
        self.check_persistence(statement.persistence)?;
        let found = self.columns_of(&statement.query)?;
        if statement.columns.len() > found.len() {
            return Err(error(SqlState::SYNTAX_ERROR, "too many column names were specified").into());
        }
        let mut table = self.new_table(namespace, &statement.name.name)?;
        for (number, (name, ty)) in found.into_iter().enumerate() {
            let name = statement.columns.get(number).unwrap_or(&name);
            if table.columns.iter().any(|other| other.name == *name) {
                let message = format!("column \"{name}\" specified more than once");
                return Err(error(SqlState::DUPLICATE_COLUMN, message).into());
            }
            let ty = if ty.kind() == Kind::Unknown { Type::TEXT } else { ty };
            table.columns.push(Column::new(name, ty));
        }
        let made = self.make(table, Vec::new())?;
        let fill = statement.with_data.then(|| (made.table.oid, statement.query.clone()));
        Ok((if statement.with_data { "SELECT" } else { "CREATE TABLE AS" }, fill))
    }
}

/// Gives a table whose rows have no primary key the hidden column and index that they are stored
/// by, and takes it from one whose rows have.
pub(super) fn ensure_first_index(table: &mut Table) {
    // What takes equal keys for a while cannot be what rows are stored by.
    let is_first = |index: &Index| index.constraint == IndexConstraint::Primary && index.is_unique_at_once();
    let hidden_index = table.indexes.iter().position(|index| index.oid == 0);
    let hidden_column = table.columns.iter().position(Column::is_row_id);
    if let Some(primary) = table.indexes.iter().position(is_first) {
        let index = table.indexes.remove(primary);
        table.indexes.insert(0, index);
        table.indexes.retain(|index| index.oid != 0);
        if let Some(number) = hidden_column {
            table.columns[number].dropped = true;
            table.columns[number].not_null = false;
        }
        return;
    }
    let number = match hidden_column {
        Some(number) => number,
        None => {
            let mut column = Column::new("", ROW_ID);
            column.hidden = true;
            table.columns.push(column);
            table.columns.len() - 1
        }
    };
    table.columns[number].dropped = false;
    table.columns[number].not_null = true;
    let part = IndexColumn::new(number as u16);
    match hidden_index {
        Some(at) => {
            let index = table.indexes.remove(at);
            table.indexes.insert(0, index);
        }
        None => {
            let index = Index::new(0, format!("sql.{}.rowid", table.oid), vec![part], true);
            table.indexes.insert(0, index);
        }
    }
}

/// The type that a column of a serial type has.
fn serial_type(ty: &DataType) -> Option<Type> {
    let DataType::Custom(name, modifiers) = ty else { return None };
    let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
    if !modifiers.is_empty() || name.quote_style.is_some() {
        return None;
    }
    Some(match name.value.to_ascii_lowercase().as_str() {
        "smallserial" | "serial2" => Type::INT2,
        "serial" | "serial4" => Type::INT4,
        "bigserial" | "serial8" => Type::INT8,
        _ => return None,
    })
}

/// The type of a column.
pub(super) fn column_type(ty: &DataType, name: &str) -> Result<Type, SqlError> {
    let ty = Type::from_sql(ty)?;
    if ty.kind() == Kind::Unknown || ty.kind().category() == freshet_sql::types::Category::Pseudo {
        let message = format!("column \"{name}\" has pseudo-type {}", ty.kind().sql_name());
        return Err(error(SqlState::INVALID_TABLE_DEFINITION, message));
    }
    // What cannot be kept is found here, and not when the first row comes.
    freshet_sql::row::Layout::new(vec![freshet_sql::row::Column::new(ty)])?;
    Ok(ty)
}

pub(super) fn check_identity_type(ty: Type) -> Result<(), SqlError> {
    if matches!(ty.kind(), Kind::Int2 | Kind::Int4 | Kind::Int8) {
        return Ok(());
    }
    let message = "identity column type must be smallint, integer, or bigint";
    Err(error(SqlState::INVALID_PARAMETER_VALUE, message))
}

/// Whether values of one type can be looked for among those of another, in an index.
pub(super) fn are_comparable(one: Type, other: Type) -> bool {
    let class = |ty: Type| match ty.kind() {
        Kind::Int2 | Kind::Int4 | Kind::Int8 => Kind::Int8,
        Kind::Varchar | Kind::Text | Kind::Name => Kind::Text,
        kind => kind,
    };
    class(one) == class(other) && Cast::find(one.kind(), Type::of(other.kind()), CastContext::Assignment).is_ok()
}
