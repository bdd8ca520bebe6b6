//! Types and what belongs to them: `pg_type`, operator classes, collations, access methods, casts.

use std::sync::OnceLock;

use freshet_sql::{
    Kind, SqlError, Type,
    types::{Cast, CastContext, Category, implicitly},
};

use super::{
    Generator,
    classes::CLASSES,
    row_type,
    sink::{NULL, Sink, row},
};
use crate::{
    relations::Snapshot,
    schema::{AccessMethod, FIRST_ROLE, Oid, PG_CATALOG},
};

/// The relations of this module.
pub(super) const RELATIONS: &[(&str, Generator)] = &[
    ("pg_type", pg_type),
    ("pg_opclass", pg_opclass),
    ("pg_opfamily", pg_opfamily),
    ("pg_collation", pg_collation),
    ("pg_am", pg_am),
    ("pg_cast", pg_cast),
];

/// The list: see its first lines.
const LIST: &str = include_str!("types.txt");

/// The access method of tables.
pub const HEAP: Oid = 2;
/// The access method of indexes.
pub const BTREE: Oid = 403;
/// The other one: its indexes are ordered, too.
pub const HASH: Oid = 405;
/// The functions that stand for the access methods.
const HEAP_HANDLER: Oid = 3;
const BTREE_HANDLER: Oid = 330;
const HASH_HANDLER: Oid = 331;
/// The collation of texts.
pub const DEFAULT_COLLATION: Oid = 100;
/// The collation of names.
pub const C_COLLATION: Oid = 950;
/// The one that goes by its other name.
const POSIX_COLLATION: Oid = 951;
/// The function behind subscripts of arrays, and that behind those of `jsonb`.
pub(super) const ARRAY_SUBSCRIPT: Oid = 6179;
const JSONB_SUBSCRIPT: Oid = 6098;
/// That behind those of `name`.
const RAW_SUBSCRIPT: Oid = 6180;
/// What PostgreSQL gathers statistics of arrays with.
pub(super) const ARRAY_ANALYZE: Oid = 3816;
/// PostgreSQL's types `cstring` and `internal`, which functions for input and output take.
pub const CSTRING: Oid = 2275;
/// The pseudo-type `internal`: see [`CSTRING`].
pub const INTERNAL: Oid = 2281;

/// Types that no value has, with PostgreSQL's ids: in signatures of functions, and in what clients
/// ask for.
pub const PSEUDO_TYPES: &[(Oid, &str)] = &[
    (269, "table_am_handler"),
    (325, "index_am_handler"),
    (1263, "_cstring"),
    (2249, "record"),
    (CSTRING, "cstring"),
    (2279, "trigger"),
    (2280, "language_handler"),
    (INTERNAL, "internal"),
    (2287, "_record"),
    (3115, "fdw_handler"),
    (3310, "tsm_handler"),
    (3500, "anyenum"),
    (3831, "anyrange"),
    (3838, "event_trigger"),
    (5077, "anycompatible"),
];

/// A function that supports a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// Its id; 0 when none exists.
    pub oid: Oid,
    /// The name of the function.
    pub name: &'static str,
}

/// What PostgreSQL's catalog says of a type besides what its [`Kind`] says.
#[derive(Clone, Copy, Debug)]
pub struct TypeInfo {
    /// The kind of type that it describes.
    pub kind: Kind,
    /// Text to values.
    pub input: Support,
    /// Values to text.
    pub output: Support,
    /// Bytes to values.
    pub receive: Support,
    /// Values to bytes.
    pub send: Support,
    /// A modifier's text to its number.
    pub modifier_in: Support,
    /// And back.
    pub modifier_out: Support,
    /// The letter of its alignment.
    pub alignment: char,
    /// The letter of how it is stored.
    pub storage: char,
    /// Its collation; 0 when its values have none.
    pub collation: Oid,
    /// How a btree orders it; none when it has no order.
    pub class: Support,
    /// The family of that.
    pub family: Support,
}

fn parse(line: &'static str) -> Option<TypeInfo> {
    let mut words = line.split(' ');
    let kind = Kind::from_catalog_name(words.next()?)?;
    let mut support = || Some(Support { oid: words.next()?.parse().ok()?, name: words.next()? });
    let functions = [support()?, support()?, support()?, support()?, support()?, support()?];
    let [input, output, receive, send, modifier_in, modifier_out] = functions;
    let alignment = words.next()?.chars().next()?;
    let storage = words.next()?.chars().next()?;
    let collation = words.next()?.parse().ok()?;
    let mut support = || Some(Support { oid: words.next()?.parse().ok()?, name: words.next()? });
    let (class, family) = (support()?, support()?);
    Some(TypeInfo {
        kind,
        input,
        output,
        receive,
        send,
        modifier_in,
        modifier_out,
        alignment,
        storage,
        collation,
        class,
        family,
    })
}

/// All types but arrays, which have their elements' properties for the most part.
pub fn scalars() -> &'static [TypeInfo] {
    static ALL: OnceLock<Vec<TypeInfo>> = OnceLock::new();
    ALL.get_or_init(|| LIST.lines().filter(|line| !line.starts_with('#')).filter_map(parse).collect())
}

/// What the functions of arrays are.
pub(super) const fn array_support() -> [Support; 4] {
    [
        Support { oid: 750, name: "array_in" },
        Support { oid: 751, name: "array_out" },
        Support { oid: 2400, name: "array_recv" },
        Support { oid: 2401, name: "array_send" },
    ]
}

/// What the catalog says of a type.
pub fn info(kind: Kind) -> TypeInfo {
    let scalar = |kind: Kind| scalars().iter().find(|info| info.kind == kind).copied();
    if let Some(info) = scalar(kind) {
        return info;
    }
    // Whatever is not in the list is an array.
    let array = scalar(Kind::AnyArray).unwrap_or_else(|| scalars()[0]);
    let element = kind.element().and_then(scalar).unwrap_or(array);
    let [input, output, receive, send] = array_support();
    TypeInfo {
        kind,
        input,
        output,
        receive,
        send,
        alignment: if element.alignment == 'd' { 'd' } else { 'i' },
        storage: 'x',
        class: array.class,
        family: array.family,
        ..element
    }
}

/// The collation of a column.
pub fn collation(ty: Type) -> Oid {
    info(ty.kind()).collation
}

/// The name of the usual operator class of a kind; none when its values have no order.
pub fn class_name(kind: Kind) -> Option<&'static str> {
    let class = match kind {
        Kind::Varchar => info(Kind::Text).class,
        kind if kind.is_object_alias() => info(Kind::Oid).class,
        kind => info(kind).class,
    };
    (class.oid != 0).then_some(class.name)
}

/// How a btree orders a column; 0 when it has no order.
pub fn operator_class(ty: Type) -> Oid {
    match ty.kind() {
        // It is ordered as text is.
        Kind::Varchar => info(Kind::Text).class.oid,
        kind if kind.is_object_alias() => info(Kind::Oid).class.oid,
        kind => info(kind).class.oid,
    }
}

/// The collation of this name; 0 when none exists.
pub fn collation_named(name: &str) -> Oid {
    COLLATIONS.iter().find(|(_, known, _)| *known == name).map_or(0, |(oid, ..)| *oid)
}

/// The access method that an index says it has.
pub fn access_method(method: AccessMethod) -> Oid {
    match method {
        AccessMethod::Btree => BTREE,
        AccessMethod::Hash => HASH,
    }
}

/// The operator class of a column of an index, the usual one without a name; 0 when it has no
/// order.
pub fn class_named(name: Option<&str>, ty: Type, method: AccessMethod) -> Oid {
    match (method, name) {
        (AccessMethod::Btree, None) => operator_class(ty),
        (method, name) => {
            let wanted = name.or(class_name(ty.kind()));
            let found = CLASSES.iter().find(|class| class.method == method && Some(class.name) == wanted);
            found.map_or(0, |class| class.oid)
        }
    }
}

/// Whether values are passed in a word.
pub fn by_value(kind: Kind) -> bool {
    matches!(kind.length(), 1 | 2 | 4 | 8)
}

fn pg_type(snapshot: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for kind in Kind::ALL.iter().copied() {
        if !sink.admits("oid", kind.oid()) || !sink.admits("typname", kind.catalog_name()) {
            continue;
        }
        let info = info(kind);
        let of = |kind: Option<Kind>| kind.map_or(0, Kind::oid);
        let pseudo = matches!(kind.category(), Category::Pseudo | Category::Unknown);
        let (subscript, analyze) = match kind {
            Kind::Int2Vector | Kind::OidVector => (ARRAY_SUBSCRIPT, 0),
            Kind::Jsonb => (JSONB_SUBSCRIPT, 0),
            Kind::Name => (RAW_SUBSCRIPT, 0),
            kind if kind.is_array() => (ARRAY_SUBSCRIPT, ARRAY_ANALYZE),
            _ => (0, 0),
        };
        sink.push(row![
            kind.oid(),
            kind.catalog_name(),
            PG_CATALOG,
            FIRST_ROLE,
            kind.length(),
            by_value(kind),
            if pseudo { 'p' } else { 'b' },
            kind.category().letter(),
            kind.is_preferred(),
            true,
            ',',
            0u32,
            subscript,
            if kind == Kind::Name { Kind::SingleChar.oid() } else { of(kind.element()) },
            of(kind.array()),
            info.input.oid,
            info.output.oid,
            info.receive.oid,
            info.send.oid,
            info.modifier_in.oid,
            info.modifier_out.oid,
            analyze,
            info.alignment,
            info.storage,
            false,
            0u32,
            -1i32,
            0i32,
            info.collation,
            NULL,
            NULL,
            NULL,
        ]);
    }
    row_type::types(snapshot, sink);
    Ok(())
}

fn pg_opclass(_: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for info in scalars().iter().filter(|info| info.class.oid != 0) {
        let (class, family) = (info.class, info.family);
        let kind = info.kind.oid();
        sink.push(row![class.oid, BTREE, class.name, PG_CATALOG, FIRST_ROLE, family.oid, kind, true, 0u32]);
    }
    for class in CLASSES {
        let (method, kind) = (access_method(class.method), class.kind.oid());
        let (family, usual) = (class.family.0, class.usual);
        sink.push(row![class.oid, method, class.name, PG_CATALOG, FIRST_ROLE, family, kind, usual, 0u32]);
    }
    Ok(())
}

fn pg_opfamily(_: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let usual = scalars().iter().map(|info| info.family).filter(|family| family.oid != 0);
    let usual = usual.map(|family| (family.oid, BTREE, family.name));
    let others = CLASSES.iter().map(|class| (class.family.0, access_method(class.method), class.family.1));
    let mut families: Vec<_> = usual.chain(others).collect();
    families.sort_unstable();
    families.dedup();
    for (oid, method, name) in families {
        sink.push(row![oid, method, name, PG_CATALOG, FIRST_ROLE]);
    }
    Ok(())
}

/// Which collations there are: texts are compared by their bytes, under each of these names.
pub const COLLATIONS: &[(Oid, &str, char)] =
    &[(DEFAULT_COLLATION, "default", 'd'), (C_COLLATION, "C", 'c'), (POSIX_COLLATION, "POSIX", 'c')];

fn pg_collation(_: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    for (oid, name, provider) in COLLATIONS.iter().copied() {
        let locale = (provider == 'c').then_some(name);
        let row = row![oid, name, PG_CATALOG, FIRST_ROLE, provider, true, -1i32, locale, locale, NULL, NULL];
        sink.push(row);
    }
    Ok(())
}

fn pg_am(_: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    sink.push(row![HEAP, "heap", HEAP_HANDLER, 't']);
    sink.push(row![BTREE, "btree", BTREE_HANDLER, 'i']);
    sink.push(row![HASH, "hash", HASH_HANDLER, 'i']);
    Ok(())
}

fn pg_cast(_: &Snapshot, sink: &mut Sink<'_>) -> Result<(), SqlError> {
    let scalars = || Kind::ALL.iter().copied().filter(|kind| !kind.is_array() && kind.array().is_some());
    let pairs = scalars().flat_map(|from| scalars().map(move |to| (from, to))).filter(|(from, to)| from != to);
    for (number, (from, to)) in pairs.enumerate() {
        let there = |context| Cast::find(from, Type::of(to), context).is_ok();
        let context = match (implicitly(from, to), there(CastContext::Assignment), there(CastContext::Explicit)) {
            (true, ..) => 'i',
            (_, true, _) => 'a',
            (_, _, true) => 'e',
            _ => continue,
        };
        // What goes over text is no cast of its own, as in PostgreSQL.
        let over_text = |kind: Kind| kind.category() == Category::String;
        if context != 'i' && over_text(from) != over_text(to) {
            continue;
        }
        let oid = FIRST_CAST + number as Oid;
        sink.push(row![oid, from.oid(), to.oid(), 0u32, context, 'i']);
    }
    Ok(())
}

/// Casts are numbered from here.
const FIRST_CAST: Oid = 6300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_support() {
        let lines = LIST.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(scalars().len(), lines);
        for kind in Kind::ALL.iter().copied() {
            let listed = scalars().iter().any(|info| info.kind == kind);
            assert!(listed || kind.is_array(), "{kind:?} is not in the list");
            let info = info(kind);
            assert_eq!(info.kind, kind);
            assert!(info.input.oid != 0 && info.output.oid != 0);
        }
        assert_eq!(info(Kind::VarcharArray).modifier_in.name, "varchartypmodin");
        assert_eq!(info(Kind::TimestampArray).alignment, 'd');
        assert_eq!(info(Kind::NameArray).collation, C_COLLATION);
        assert_eq!(operator_class(Type::varchar(3).unwrap()), operator_class(Type::TEXT));
        assert_eq!(operator_class(Type::JSON), 0);
    }
}
