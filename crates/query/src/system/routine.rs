//! Functions, aggregates and operators: `pg_proc`, `pg_operator` and their like.

use std::{collections::HashMap, sync::OnceLock};

use freshet_sql::{
    Kind, SqlError, Type,
    functions::{self, Volatility},
    types::Category,
};

use super::{
    Generator, row_type,
    sink::{NULL, Sink, oid_vector, row},
    types::{self, CSTRING, INTERNAL, Support},
};
use crate::{
    bind::aggregate::Aggregate,
    relations::Snapshot,
    schema::{FIRST_ROLE, Oid, PG_CATALOG},
    system,
};

/// The relations of this module.
pub(super) const RELATIONS: &[(&str, Generator)] =
    &[("pg_proc", pg_proc), ("pg_aggregate", pg_aggregate), ("pg_operator", pg_operator), ("pg_language", pg_language)];

/// The language of all functions.
pub const INTERNAL_LANGUAGE: Oid = 12;
/// Functions that PostgreSQL's catalog does not refer to by their ids are numbered from here, and
/// so are operators.
const FIRST_ROUTINE: Oid = 8000;
/// The type of rows of any columns.
const RECORD: Oid = 2249;
/// Functions that the rows of `pg_am`, `pg_type` and `pg_language` name.
const HANDLERS: &[(Oid, &str)] = &[
    (3, "heap_tableam_handler"),
    (330, "bthandler"),
    (2246, "fmgr_internal_validator"),
    (3816, "array_typanalyze"),
    (6098, "jsonb_subscript_handler"),
    (6179, "array_subscript_handler"),
    (6180, "raw_array_subscript_handler"),
];

/// A function or an aggregate.
#[derive(Clone, Debug)]
pub struct Routine {
    /// The oid in `pg_proc`.
    pub oid: Oid,
    /// The name by which SQL calls it.
    pub name: &'static str,
    /// The ids of the types that it takes.
    pub arguments: Vec<Oid>,
    /// The id of the type that may come any number of times at the end; 0 when none exists.
    pub variadic: Oid,
    /// The id of the type that it returns.
    pub result: Oid,
    /// Whether it is an aggregate.
    pub aggregate: bool,
    /// Whether it is null when an argument is.
    pub strict: bool,
    /// When its result may change.
    pub volatility: Volatility,
    /// Whether it returns a set.
    pub set: bool,
    /// The schema that it is in.
    pub namespace: Oid,
}

/// An operator.
#[derive(Clone, Debug)]
pub struct Operator {
    /// The oid in `pg_operator`.
    pub oid: Oid,
    /// Its signs.
    pub name: &'static str,
    /// The id of its left operand's type; 0 when none exists.
    pub left: Oid,
    /// That of its right operand.
    pub right: Oid,
    /// The oid of its result's type.
    pub result: Oid,
}

struct Routines {
    all: Vec<Routine>,
    by_oid: HashMap<Oid, usize>,
    by_name: HashMap<&'static str, Vec<usize>>,
    operators: Vec<Operator>,
}

fn routine(name: &'static str, arguments: Vec<Oid>, result: Oid) -> Routine {
    let (oid, variadic) = (0, 0);
    let volatility = Volatility::Stable;
    let (set, namespace) = (false, PG_CATALOG);
    Routine { oid, name, arguments, variadic, result, aggregate: false, strict: true, volatility, set, namespace }
}

/// The functions that types have, with PostgreSQL's ids.
fn supports(found: &mut HashMap<Oid, Routine>) {
    for kind in Kind::ALL.iter().copied() {
        let info = types::info(kind);
        let mut add = |support: Support, arguments: Vec<Oid>, result: Oid| {
            if support.oid != 0 {
                let made = Routine { oid: support.oid, ..routine(support.name, arguments, result) };
                found.entry(support.oid).or_insert(made);
            }
        };
        let array = kind.is_array() && kind.array().is_none();
        let of = if array { Kind::AnyArray.oid() } else { kind.oid() };
        let more: &[Oid] = if array { &[Kind::Oid.oid(), Kind::Int4.oid()] } else { &[] };
        let with = |first: Oid| [&[first], more].concat();
        add(info.input, with(CSTRING), of);
        add(info.output, vec![of], CSTRING);
        add(info.receive, with(INTERNAL), of);
        add(info.send, vec![of], Kind::Bytea.oid());
        // An array of C strings is none of the types here; its id is PostgreSQL's.
        add(info.modifier_in, vec![1263], Kind::Int4.oid());
        add(info.modifier_out, vec![Kind::Int4.oid()], CSTRING);
    }
    let (record, more) = (RECORD, [Kind::Oid.oid(), Kind::Int4.oid()]);
    for (support, arguments, result) in [
        (row_type::INPUT, vec![CSTRING, more[0], more[1]], record),
        (row_type::OUTPUT, vec![record], CSTRING),
        (row_type::RECEIVE, vec![INTERNAL, more[0], more[1]], record),
        (row_type::SEND, vec![record], Kind::Bytea.oid()),
    ] {
        found.insert(support.oid, Routine { oid: support.oid, ..routine(support.name, arguments, result) });
    }
    for (oid, name) in HANDLERS.iter().copied() {
        found.insert(oid, Routine { oid, ..routine(name, vec![INTERNAL], INTERNAL) });
    }
}

/// The functions that statements call.
fn callable() -> Vec<Routine> {
    let mut all = Vec::new();
    for function in functions::registered().filter(|function| !function.is_operator()) {
        let mut arguments: Vec<Oid> = function.arguments.iter().map(|kind| kind.oid()).collect();
        let mut variadic = 0;
        if let (true, Some(last)) = (function.variadic, function.arguments.last()) {
            variadic = last.oid();
            arguments.pop();
            arguments.push(last.array().unwrap_or(*last).oid());
        }
        let (strict, volatility) = (function.strict, function.volatility);
        let made = routine(function.name, arguments, function.result.oid());
        all.push(Routine { variadic, strict, volatility, ..made });
    }
    for declared in functions::SetDeclared::all() {
        let arguments = declared.arguments.iter().map(|kind| kind.oid()).collect();
        let result = match declared.columns {
            [(_, kind)] => kind.oid(),
            _ => RECORD,
        };
        let namespace = system::namespace(declared.schema).unwrap_or(PG_CATALOG);
        all.push(Routine { set: true, namespace, ..routine(declared.name, arguments, result) });
    }
    for name in ["count", "sum", "avg", "min", "max", "bool_and", "bool_or", "every"] {
        let Some(aggregate) = Aggregate::named(name) else { continue };
        let mut add = |arguments: Vec<Oid>, result: Type| {
            let volatility = Volatility::Immutable;
            let made = routine(name, arguments, result.oid());
            all.push(Routine { aggregate: true, strict: false, volatility, ..made });
        };
        if aggregate == Aggregate::Count {
            add(Vec::new(), Type::INT8);
            add(vec![Kind::Any.oid()], Type::INT8);
            continue;
        }
        let values = |kind: &Kind| !matches!(kind.category(), Category::Pseudo | Category::Unknown);
        for kind in Kind::ALL.iter().copied().filter(values) {
            // Where it takes another kind instead, the call is one of that.
            if let Ok((taken, result)) = aggregate.over(name, kind)
                && taken == kind
            {
                add(vec![kind.oid()], result);
            }
        }
    }
    all
}

fn make() -> Routines {
    let mut fixed = HashMap::new();
    supports(&mut fixed);
    let mut all = callable();
    all.sort_by(|one, other| (one.name, &one.arguments).cmp(&(other.name, &other.arguments)));
    all.dedup_by(|one, other| (one.name, &one.arguments) == (other.name, &other.arguments));
    for (number, routine) in all.iter_mut().enumerate() {
        routine.oid = FIRST_ROUTINE + number as Oid;
    }
    all.extend(fixed.into_values());
    all.sort_by_key(|routine| routine.oid);
    let mut operators: Vec<Operator> = functions::registered()
        .filter(|function| function.is_operator())
        .filter_map(|function| {
            let (left, right) = match function.arguments {
                [right] => (0, right.oid()),
                [left, right] => (left.oid(), right.oid()),
                _ => return None,
            };
            Some(Operator { oid: 0, name: function.name, left, right, result: function.result.oid() })
        })
        .collect();
    operators.sort_by_key(|operator| (operator.name, operator.left, operator.right));
    for (number, operator) in operators.iter_mut().enumerate() {
        operator.oid = FIRST_ROUTINE + number as Oid;
    }
    let by_oid = all.iter().enumerate().map(|(number, routine)| (routine.oid, number)).collect();
    let mut by_name: HashMap<_, Vec<usize>> = HashMap::new();
    for (number, routine) in all.iter().enumerate() {
        by_name.entry(routine.name).or_default().push(number);
    }
    Routines { all, by_oid, by_name, operators }
}

fn routines() -> &'static Routines {
    static ROUTINES: OnceLock<Routines> = OnceLock::new();
    ROUTINES.get_or_init(make)
}

/// All functions and aggregates, in the order of their ids.
pub fn all() -> &'static [Routine] {
    &routines().all
}

/// All operators, in the order of their ids.
pub fn operators() -> &'static [Operator] {
    &routines().operators
}

/// The function of this id.
pub fn by_oid(oid: Oid) -> Option<&'static Routine> {
    let routines = routines();
    routines.by_oid.get(&oid).map(|number| &routines.all[*number])
}

/// The functions of this name.
pub fn by_name(name: &str) -> impl Iterator<Item = &'static Routine> + use<> {
    let routines = routines();
    routines.by_name.get(name).map_or(&[][..], Vec::as_slice).iter().map(|number| &routines.all[*number])
}

/// The id of an operator, 0 when none exists.
pub fn operator(name: &str, left: Kind, right: Kind) -> Oid {
    let found = operators().iter().find(|it| it.name == name && it.left == left.oid() && it.right == right.oid());
    found.map_or(0, |operator| operator.oid)
}

/// What SQL calls the type of this id.
pub fn type_name(oid: Oid) -> String {
    if let Some(kind) = Kind::from_oid(oid) {
        return kind.sql_name().to_owned();
    }
    let found = types::PSEUDO_TYPES.iter().find(|(known, _)| *known == oid).map(|(_, name)| *name);
    match found {
        Some(name) => name.strip_prefix('_').map_or_else(|| name.to_owned(), |element| format!("{element}[]")),
        None => "???".to_owned(),
    }
}

impl Routine {
    /// What it takes, as a declaration has it.
    pub fn signature(&self) -> String {
        let last = self.arguments.len().saturating_sub(1);
        let arguments = self.arguments.iter().enumerate().map(|(place, oid)| {
            let variadic = if self.variadic != 0 && place == last { "VARIADIC " } else { "" };
            format!("{variadic}{}", type_name(*oid))
        });
        arguments.collect::<Vec<_>>().join(", ")
    }

    /// What it returns, as a declaration has it.
    pub fn returned(&self) -> String {
        let result = type_name(self.result);
        if self.set { format!("SETOF {result}") } else { result }
    }

    /// The statement that would make it.
    pub fn definition(&self) -> String {
        let volatility = match self.volatility {
            Volatility::Immutable => " IMMUTABLE",
            Volatility::Stable => " STABLE",
            Volatility::Volatile => "",
        };
        let strict = if self.strict { " STRICT" } else { "" };
        let properties = format!("{volatility}{strict}");
        let properties = if properties.is_empty() { properties } else { format!("{properties}\n") };
        let (name, result) = (self.name, self.returned());
        format!(
            "CREATE OR REPLACE FUNCTION pg_catalog.{}({})\n RETURNS {result}\n LANGUAGE internal\n{properties}AS \
             $function${name}$function$\n",
            functions::quote_identifier(name),
            self.signature()
        )
    }
}

fn pg_proc(_: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for routine in all() {
        if !sink.admits("oid", routine.oid) || !sink.admits("proname", routine.name) {
            continue;
        }
        let volatility = match routine.volatility {
            Volatility::Immutable => 'i',
            Volatility::Stable => 's',
            Volatility::Volatile => 'v',
        };
        sink.push(row![
            routine.oid,
            routine.name,
            routine.namespace,
            FIRST_ROLE,
            INTERNAL_LANGUAGE,
            1f32,
            if routine.set { 10f32 } else { 0f32 },
            routine.variadic,
            0u32,
            if routine.aggregate { 'a' } else { 'f' },
            false,
            false,
            routine.strict,
            routine.set,
            volatility,
            's',
            routine.arguments.len() as i16,
            0i16,
            routine.result,
            oid_vector(routine.arguments.iter().copied()),
            NULL,
            NULL,
            NULL,
            NULL,
            NULL,
            if routine.aggregate { "aggregate_dummy" } else { routine.name },
            NULL,
            NULL,
            NULL,
            NULL,
        ]);
    }
    Ok(())
}

fn pg_aggregate(_: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for routine in all().iter().filter(|routine| routine.aggregate) {
        // How it is computed is not in terms of functions that could be named.
        sink.push(row![
            routine.oid,
            'n',
            0i16,
            0u32,
            0u32,
            0u32,
            0u32,
            0u32,
            0u32,
            0u32,
            0u32,
            false,
            false,
            'r',
            'r',
            0u32,
            routine.result,
            0i32,
            0u32,
            0i32,
            NULL,
            NULL,
        ]);
    }
    Ok(())
}

fn pg_operator(_: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for operator in operators() {
        if !sink.admits("oid", operator.oid) || !sink.admits("oprname", operator.name) {
            continue;
        }
        let related = |name: &str, left: Oid, right: Oid| {
            let found = operators().iter().find(|it| (it.name, it.left, it.right) == (name, left, right));
            found.map_or(0, |operator| operator.oid)
        };
        let (commutator, negator) = match operator.name {
            "=" => ("=", "<>"),
            "<>" => ("<>", "="),
            "<" => (">", ">="),
            ">" => ("<", "<="),
            "<=" => (">=", ">"),
            ">=" => ("<=", "<"),
            _ => ("", ""),
        };
        let is_equality = operator.name == "=";
        sink.push(row![
            operator.oid,
            operator.name,
            PG_CATALOG,
            FIRST_ROLE,
            if operator.left == 0 { 'l' } else { 'b' },
            is_equality,
            is_equality,
            operator.left,
            operator.right,
            operator.result,
            related(commutator, operator.right, operator.left),
            related(negator, operator.left, operator.right),
            0u32,
            0u32,
            0u32,
        ]);
    }
    Ok(())
}

fn pg_language(_: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    sink.push(row![INTERNAL_LANGUAGE, "internal", FIRST_ROLE, false, false, 0u32, 0u32, 2246u32, NULL]);
    Ok(())
}
