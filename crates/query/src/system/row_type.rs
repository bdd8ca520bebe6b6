//! The types of relations' rows. PostgreSQL makes one for each table and view, named as that, and
//! one of arrays of such rows. Clients join them with the relations; no value here has one.

use super::{
    class::{self, Class, MOST_COLUMNS, derived_oid},
    describe, names,
    sink::{NULL, Sink, row},
    types::{self, Support},
};
use crate::{
    relations::Snapshot,
    schema::{FIRST_USER_OID, Oid},
};

/// The longest name of a type, in bytes.
const LONGEST_NAME: usize = 63;

/// The functions of PostgreSQL's type `record`, which all such types have.
pub const INPUT: Support = Support { oid: 2290, name: "record_in" };
/// The output function of all row types: see [`INPUT`].
pub const OUTPUT: Support = Support { oid: 2291, name: "record_out" };
/// The binary input function of all row types: see [`INPUT`].
pub const RECEIVE: Support = Support { oid: 2402, name: "record_recv" };
/// The binary output function of all row types: see [`INPUT`].
pub const SEND: Support = Support { oid: 2403, name: "record_send" };

/// Where the ids of the types of the system's relations begin, and those of arrays of them: user's
/// ids do not come that far.
const OF_SYSTEM: Oid = 0x7FFF_0000;
const ARRAYS_OF_SYSTEM: Oid = OF_SYSTEM + FIRST_USER_OID;

/// The id of the type of a relation's rows; 0 for what has none: indexes and sequences.
pub fn of(class: Class<'_>) -> Oid {
    match class {
        Class::Table(_) | Class::View(_) => derived_oid(class.oid(), 0),
        Class::System(_) => OF_SYSTEM + class.oid(),
        Class::Index(..) | Class::Sequence(_) => 0,
    }
}

/// The id of the type of arrays of such rows; 0 likewise.
pub fn array_of(class: Class<'_>) -> Oid {
    match class {
        Class::Table(_) | Class::View(_) => derived_oid(class.oid(), MOST_COLUMNS + 1),
        Class::System(_) => ARRAYS_OF_SYSTEM + class.oid(),
        Class::Index(..) | Class::Sequence(_) => 0,
    }
}

/// Resolves a row type; true if it is the array type.
pub fn relation(snapshot: &Snapshot, ty: Oid) -> Option<(Class<'_>, bool)> {
    if ty < OF_SYSTEM {
        return None;
    }
    let relation = match ty {
        ARRAYS_OF_SYSTEM.. if ty < ARRAYS_OF_SYSTEM + FIRST_USER_OID => ty - ARRAYS_OF_SYSTEM,
        OF_SYSTEM.. if ty < ARRAYS_OF_SYSTEM => ty - OF_SYSTEM,
        ty => class::of_derived(ty),
    };
    let class = class::by_oid(snapshot, relation)?;
    [(of(class), false), (array_of(class), true)].into_iter().find(|(id, _)| *id == ty).map(|(_, array)| (class, array))
}

/// The id of the type of a relation's rows that a text names, or with `[]` that of arrays of them.
pub fn named(snapshot: &Snapshot, text: &str) -> Option<Oid> {
    let text = text.trim();
    let (name, id): (_, fn(Class<'_>) -> Oid) = match text.strip_suffix("[]") {
        Some(name) => (name, array_of),
        None => (text, of),
    };
    let class = names::relation(snapshot, name).ok()??;
    Some(id(class)).filter(|id| *id != 0)
}

/// What SQL calls the type of this id, if it is that of a relation's rows.
pub fn name(snapshot: &Snapshot, ty: Oid) -> Option<String> {
    let (class, array) = relation(snapshot, ty)?;
    let name = describe::relation_name(snapshot, class);
    Some(if array { format!("{name}[]") } else { name })
}

/// The rows of `pg_type` of these types.
pub(super) fn types(snapshot: &Snapshot, sink: &mut Sink<'_>) {
    for class in class::all(snapshot) {
        let (own, of_arrays) = (of(class), array_of(class));
        if own == 0 || !sink.admits("typnamespace", class.namespace()) {
            continue;
        }
        let array_name = format!("_{}", class.name());
        let array_name = &array_name[..array_name.floor_char_boundary(LONGEST_NAME)];
        for (oid, name, is_array, functions) in [
            (own, class.name(), false, [INPUT, OUTPUT, RECEIVE, SEND]),
            (of_arrays, array_name, true, types::array_support()),
        ] {
            if !sink.admits("oid", oid) || !sink.admits("typname", name) {
                continue;
            }
            let [input, output, receive, send] = functions.map(|support| support.oid);
            sink.push(row![
                oid,
                name,
                class.namespace(),
                class.owner(),
                -1i16,
                false,
                if is_array { 'b' } else { 'c' },
                if is_array { 'A' } else { 'C' },
                false,
                true,
                ',',
                if is_array { 0 } else { class.oid() },
                if is_array { types::ARRAY_SUBSCRIPT } else { 0 },
                if is_array { own } else { 0 },
                if is_array { 0 } else { of_arrays },
                input,
                output,
                receive,
                send,
                0u32,
                0u32,
                if is_array { types::ARRAY_ANALYZE } else { 0 },
                'd',
                'x',
                false,
                0u32,
                -1i32,
                0i32,
                0u32,
                NULL,
                NULL,
                NULL,
            ]);
        }
    }
}
