//! Functions over the catalogs: what clients call beside reading them.

mod privilege;
mod set;
mod statistics;

use freshet_engine::node::RoleStatus;
use freshet_sql::{
    Kind, SqlError, SqlState, Value,
    functions::SessionFunction as F,
    types::{Array, Timestamp},
};

use super::{
    class::{self, Class},
    constraint, describe, names, object, role, routine, row_type,
    statistics::lsn,
    types::{BTREE, COLLATIONS, scalars},
};
use crate::{ddl::shown_expression, relations::Snapshot, schema::Oid};

pub use set::rows;

/// Arguments, as functions look at them.
#[derive(Clone, Copy)]
struct Arguments<'a>(&'a [Value]);

impl<'a> Arguments<'a> {
    /// An object id.
    fn oid(self, place: usize) -> Oid {
        self.0.get(place).and_then(Value::as_i64).and_then(|oid| Oid::try_from(oid).ok()).unwrap_or(0)
    }

    fn number(self, place: usize) -> i64 {
        self.0.get(place).and_then(Value::as_i64).unwrap_or(0)
    }

    fn text(self, place: usize) -> &'a str {
        self.0.get(place).and_then(Value::as_str).unwrap_or_default()
    }

    fn truth(self, place: usize) -> bool {
        self.0.get(place).and_then(Value::as_bool) == Some(true)
    }
}

fn some(text: Option<String>) -> Value {
    text.map_or(Value::Null, Value::text)
}

fn bytes(count: u64) -> Value {
    Value::Int8(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Calls one of these functions; nothing when it is none of them. All of them are null when an
/// argument is.
///
/// # Errors
/// 42P01, 42704 and 3F000 for names of nothing, 22023 for words that mean nothing, 55000 where the
/// node has another role.
pub fn call(snapshot: &Snapshot, function: F, arguments: &[Value]) -> Result<Option<Value>, SqlError> {
    if arguments.iter().any(Value::is_null) {
        return Ok(Some(Value::Null));
    }
    let given = Arguments(arguments);
    if let Some(value) = privilege::call(snapshot, function, given)? {
        return Ok(Some(value));
    }
    if let Some(value) = place_in_log(snapshot, function)? {
        return Ok(Some(value));
    }
    if let Some(value) = is_visible(snapshot, function, given) {
        return Ok(Some(value));
    }
    if let Some(value) = of_routine(function, given) {
        return Ok(Some(value));
    }
    if let Some(value) = statistics::call(snapshot, function, given)? {
        return Ok(Some(value));
    }
    if let Some(value) = size(snapshot, function, given)? {
        return Ok(Some(value));
    }
    definition(snapshot, function, given)
}

/// Definitions, and what is the same for everything.
fn definition(snapshot: &Snapshot, function: F, given: Arguments<'_>) -> Result<Option<Value>, SqlError> {
    Ok(Some(match function {
        F::GetIndexDef => {
            let found = class::index(&snapshot.schema, given.oid(0));
            some(found.map(|(info, index)| describe::index(snapshot, info, index, false)))
        }
        F::GetIndexColumn => {
            let found = class::index(&snapshot.schema, given.oid(0));
            some(found.and_then(|(info, index)| match given.number(1) {
                0 => Some(describe::index(snapshot, info, index, given.truth(2))),
                number => describe::index_column(info, index, number, given.truth(2)),
            }))
        }
        F::GetConstraintDef => {
            let found = constraint::by_oid(&snapshot.schema, given.oid(0));
            some(found.map(|(info, constraint)| constraint.definition(snapshot, &info.table, given.truth(1))))
        }
        F::DescribeObject => {
            let column = i32::try_from(given.number(2)).unwrap_or(-1);
            some(object::describe(snapshot, given.oid(0), given.oid(1), column))
        }
        F::GetExpr => {
            let info = snapshot.schema.table(given.oid(1));
            let of_table = info.and_then(|info| describe::expression(snapshot, info, given.text(0), given.truth(2)));
            let shown = || shown_expression(given.text(0), &snapshot.schema, &snapshot.path);
            Value::text(of_table.unwrap_or_else(shown))
        }
        F::GetViewDef => {
            let found = match given.0.first().and_then(Value::as_str) {
                Some(name) => Some(relation(snapshot, name)?),
                None => class::by_oid(snapshot, given.oid(0)),
            };
            match found {
                Some(Class::View(view)) => Value::text(describe::view(view)),
                _ => Value::Null,
            }
        }
        F::SerialSequence => serial_sequence(snapshot, given)?,
        F::SequenceLastValue => match class::by_oid(snapshot, given.oid(0)) {
            Some(Class::Sequence(sequence)) => {
                let position = snapshot.system.sequence_position(sequence)?;
                if position.called { Value::Int8(position.value) } else { Value::Null }
            }
            _ => Value::Null,
        },
        F::GetUserById => {
            let oid = given.oid(0);
            let name = snapshot.schema.role_by_oid(oid).map(|role| role.name.clone());
            Value::text(name.unwrap_or_else(|| format!("unknown (OID={oid})")))
        }
        F::IndexColumnProperty => {
            let found = class::index(&snapshot.schema, given.oid(0));
            let place = usize::try_from(given.number(1) - 1).ok();
            let part = found.and_then(|(_, index)| index.columns.get(place?));
            part.map_or(Value::Null, |part| column_property(given.text(2), part))
        }
        F::IndexProperty if class::index(&snapshot.schema, given.oid(0)).is_some() => {
            match given.text(1).to_lowercase().as_str() {
                "clusterable" | "index_scan" | "backward_scan" => Value::Bool(true),
                "bitmap_scan" => Value::Bool(false),
                _ => Value::Null,
            }
        }
        F::AccessMethodProperty if given.oid(0) == BTREE => match given.text(1).to_lowercase().as_str() {
            "can_order" | "can_unique" | "can_multi_col" => Value::Bool(true),
            "can_exclude" | "can_include" => Value::Bool(false),
            _ => Value::Null,
        },
        F::ReplicaIdentity => match class::by_oid(snapshot, given.oid(0)) {
            Some(Class::Table(info)) => info.table.primary_key().map_or(Value::Null, |index| Value::Oid(index.oid)),
            _ => Value::Null,
        },
        F::FileNode => match class::by_oid(snapshot, given.oid(0)) {
            Some(Class::View(_) | Class::System(_)) | None => Value::Null,
            Some(class) => Value::Oid(class.oid()),
        },
        // UPDATE, INSERT and DELETE.
        F::IsUpdatable => match class::by_oid(snapshot, given.oid(0)) {
            Some(Class::Table(_)) => Value::Int4(1 << 2 | 1 << 3 | 1 << 4),
            _ => Value::Int4(0),
        },
        F::SharedObjDescription => comment(snapshot, given.oid(0), None),
        F::ObjDescription => {
            let of_constraint = || snapshot.schema.comment(given.oid(0), None, true);
            match given.0.get(1).and_then(Value::as_str) {
                Some("pg_constraint") => text_of(of_constraint()),
                Some(_) => comment(snapshot, given.oid(0), None),
                None => match comment(snapshot, given.oid(0), None) {
                    Value::Null => text_of(of_constraint()),
                    found => found,
                },
            }
        }
        F::ColDescription => match u16::try_from(given.number(1) - 1) {
            Ok(place) => comment(snapshot, given.oid(0), Some(place)),
            Err(_) => Value::Null,
        },
        F::TablespaceLocation => Value::text(""),
        F::EncodingToChar => Value::text(if given.number(0) == i64::from(role::UTF8) { "UTF8" } else { "" }),
        F::ToRegprocedure => to_id(snapshot, Kind::Regprocedure, given)?,
        F::PostmasterStart | F::LoadTime => Value::Timestamptz(snapshot.system.started()),
        F::BlockingPids => {
            let sessions = snapshot.system.sessions();
            let waiter = sessions.iter().find(|session| i64::from(session.pid) == given.number(0));
            let by = waiter.and_then(|waiter| snapshot.system.wait(waiter.place)).map_or_else(Vec::new, |wait| wait.by);
            let pids = sessions.iter().filter(|session| by.contains(&session.place)).map(|session| session.pid);
            Value::array(Array::new(Kind::Int4, pids.map(Value::Int4).collect()))
        }
        F::TempSchema => Value::Oid(0),
        F::IsOtherTempSchema | F::IsPublishable | F::RowSecurityActive | F::JitAvailable => Value::Bool(false),
        // There are no such objects, or nothing is known of them.
        F::IndexProperty
        | F::AccessMethodProperty
        | F::GetFunctionDefault
        | F::GetFunctionBody
        | F::GetPartitionKey
        | F::GetPartitionConstraint
        | F::GetStatisticsColumns
        | F::GetStatistics
        | F::GetRule
        | F::GetTrigger
        | F::FilePath
        | F::AssignedTransaction => Value::Null,
        _ => return Ok(None),
    }))
}

/// What is said of an object, or of a column of it, counted from 0.
fn comment(snapshot: &Snapshot, object: Oid, column: Option<u16>) -> Value {
    text_of(snapshot.schema.comment(object, column, false))
}

fn text_of(comment: Option<&std::sync::Arc<crate::schema::Comment>>) -> Value {
    comment.map_or(Value::Null, |comment| Value::text(comment.text.as_str()))
}

fn column_property(property: &str, part: &crate::schema::IndexColumn) -> Value {
    match property.to_lowercase().as_str() {
        "asc" => Value::Bool(!part.descending),
        "desc" => Value::Bool(part.descending),
        "nulls_first" => Value::Bool(part.nulls_first),
        "nulls_last" => Value::Bool(!part.nulls_first),
        "orderable" | "search_array" | "search_nulls" => Value::Bool(true),
        "distance_orderable" | "returnable" => Value::Bool(false),
        _ => Value::Null,
    }
}

fn to_id(snapshot: &Snapshot, kind: Kind, given: Arguments<'_>) -> Result<Value, SqlError> {
    let text = given.text(0);
    // A number is no name.
    if text.starts_with(|it: char| it.is_ascii_digit()) {
        return Ok(Value::Null);
    }
    Ok(names::id_of(snapshot, kind, text)?.map_or(Value::Null, Value::Oid))
}

/// The relation that a text names.
///
/// # Errors
/// 42P01 when there is no such relation, 42602 when it is not a name, 42501 when its schema may not
/// be used.
fn relation<'s>(snapshot: &'s Snapshot, text: &str) -> Result<Class<'s>, SqlError> {
    if names::parse_path(text).is_none() {
        return Err(SqlError::new(SqlState::INVALID_NAME, "invalid name syntax"));
    }
    names::relation(snapshot, text)?.ok_or_else(|| crate::schema::no_relation(text))
}

/// The column of a table that a name means.
///
/// # Errors
/// 42703 when none exists.
fn column(class: Class<'_>, name: &str) -> Result<i16, SqlError> {
    let found = class.attributes().into_iter().find(|attribute| !attribute.dropped && attribute.name == name);
    found.map(|attribute| attribute.number).ok_or_else(|| {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", class.name());
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    })
}

fn serial_sequence(snapshot: &Snapshot, given: Arguments<'_>) -> Result<Value, SqlError> {
    let class = relation(snapshot, given.text(0))?;
    let number = column(class, given.text(1))?;
    let owned = (class.oid(), number as u16 - 1);
    let found = class::sequences(snapshot).into_iter().find(|sequence| sequence.owned_by == Some(owned));
    Ok(some(found.map(|sequence| describe::full_name(snapshot, Class::Sequence(sequence)))))
}

fn is_visible(snapshot: &Snapshot, function: F, given: Arguments<'_>) -> Option<Value> {
    let oid = given.oid(0);
    let known = match function {
        F::TableIsVisible => {
            let class = class::by_oid(snapshot, oid);
            return Some(class.map_or(Value::Null, |class| Value::Bool(class::is_visible(snapshot, class))));
        }
        F::TypeIsVisible => match row_type::relation(snapshot, oid) {
            Some((class, _)) => class::is_visible(snapshot, class),
            None => Kind::from_oid(oid).is_some(),
        },
        F::FunctionIsVisible => routine::by_oid(oid).is_some(),
        F::OperatorIsVisible => routine::operators().binary_search_by_key(&oid, |operator| operator.oid).is_ok(),
        F::OperatorClassIsVisible => scalars().iter().any(|info| info.class.oid == oid),
        F::OperatorFamilyIsVisible => scalars().iter().any(|info| info.family.oid == oid),
        F::CollationIsVisible => COLLATIONS.iter().any(|(known, ..)| *known == oid),
        F::ConversionIsVisible
        | F::StatisticsAreVisible
        | F::SearchConfigIsVisible
        | F::SearchDictIsVisible
        | F::SearchParserIsVisible
        | F::SearchTemplateIsVisible => false,
        _ => return None,
    };
    // All of these are in pg_catalog, which every search path has first.
    Some(if known { Value::Bool(true) } else { Value::Null })
}

fn of_routine(function: F, given: Arguments<'_>) -> Option<Value> {
    let routine = routine::by_oid(given.oid(0));
    let text = match function {
        F::GetFunctionDef => routine.filter(|routine| !routine.aggregate).map(routine::Routine::definition),
        F::GetFunctionArguments | F::GetFunctionIdentity => routine.map(routine::Routine::signature),
        F::GetFunctionResult => routine.map(routine::Routine::returned),
        _ => return None,
    };
    Some(some(text))
}

/// Sizes of relations are told in these, as PostgreSQL does, in bytes.
const PAGE: u64 = 8192;

fn size(snapshot: &Snapshot, function: F, given: Arguments<'_>) -> Result<Option<Value>, SqlError> {
    let all = || {
        let tables = class::tables(snapshot).into_iter();
        let sizes = tables.map(|info| snapshot.system.table_size(info).map(|size| size.all_bytes()));
        sizes.sum::<Option<u64>>().map_or(Value::Null, bytes)
    };
    // Every role may ask. Exact sizes would tell how long a value is.
    let pages = |size: u64| bytes(size.next_multiple_of(PAGE));
    let of_relation = |relation: fn(&super::size::TableSize) -> u64| {
        let class = class::by_oid(snapshot, given.oid(0));
        match class {
            None => Value::Null,
            Some(Class::Table(info)) => {
                snapshot.system.table_size(info).map_or(Value::Null, |size| pages(relation(&size)))
            }
            Some(Class::Index(info, index)) => {
                let place = info.table.indexes.iter().position(|known| known.oid == index.oid);
                let size = snapshot.system.table_size(info);
                size.and_then(|size| size.indexes.get(place?).copied()).map_or(Value::Null, pages)
            }
            Some(_) => Value::Int8(0),
        }
    };
    Ok(Some(match function {
        F::RelationSize if given.0.len() == 2 && given.text(1) != "main" => {
            // There is nothing like a free space map, but one may ask for it.
            if !matches!(given.text(1), "fsm" | "vm" | "init") {
                let error = SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "invalid fork name");
                return Err(error.with_hint("Valid fork names are \"main\", \"fsm\", \"vm\", and \"init\"."));
            }
            Value::Int8(0)
        }
        F::RelationSize | F::TableSize => of_relation(|size| size.row_bytes),
        F::IndexesSize => of_relation(|size| size.indexes.iter().sum()),
        F::TotalRelationSize => of_relation(super::size::TableSize::all_bytes),
        F::DatabaseSize => {
            let database = privilege::database(snapshot, given, 0)?;
            let size = database.map(|database| match database.oid == snapshot.schema.database {
                true => all(),
                false => snapshot.system.database_size(database.oid).map_or(Value::Null, bytes),
            });
            size.unwrap_or_default()
        }
        F::TablespaceSize => all(),
        F::LiveTuples => match class::by_oid(snapshot, given.oid(0)) {
            Some(Class::Table(info)) => snapshot.system.table_size(info).map_or(Value::Null, |size| bytes(size.rows)),
            _ => Value::Int8(0),
        },
        _ => return Ok(None),
    }))
}

fn place_in_log(snapshot: &Snapshot, function: F) -> Result<Option<Value>, SqlError> {
    let place = |at| Ok(Some(lsn(at)));
    match function {
        F::CurrentLsn | F::InsertLsn | F::FlushLsn => match snapshot.system.status().map(|status| status.role) {
            Some(RoleStatus::Primary { reserved, filled, shipping, .. }) => place(match function {
                F::InsertLsn => reserved,
                F::FlushLsn => shipping.durable,
                _ => filled,
            }),
            _ => {
                let message = "recovery is in progress";
                let error = SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
                Err(error.with_hint("WAL control functions cannot be executed during recovery."))
            }
        },
        F::ReceiveLsn | F::ReplayLsn | F::ReplayTime => match snapshot.system.status().map(|status| status.role) {
            Some(RoleStatus::Standby { own, .. }) => match function {
                F::ReceiveLsn => place(own.persisted),
                F::ReplayLsn => place(own.visible),
                _ => Ok(Some(own.age.map_or(Value::Null, |age| {
                    let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
                    Value::Timestamptz(Timestamp(Timestamp::now().0.saturating_sub(age)))
                }))),
            },
            _ => Ok(Some(Value::Null)),
        },
        F::ReplayPaused => match snapshot.system.status().map(|status| status.role) {
            Some(RoleStatus::Standby { .. }) => Ok(Some(Value::Bool(false))),
            _ => {
                let error = SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "recovery is not in progress");
                Err(error.with_hint("Recovery control functions can only be executed during recovery."))
            }
        },
        _ => Ok(None),
    }
}
