//! Operator classes besides those by which btrees usually order types.

use freshet_sql::Kind;

use crate::schema::{
    AccessMethod::{self, Btree, Hash},
    Oid,
};

/// An operator class.
#[derive(Clone, Copy, Debug)]
pub struct OperatorClass {
    /// The access method that it is for.
    pub method: AccessMethod,
    /// The oid in `pg_opclass`.
    pub oid: Oid,
    /// The name of the operator class.
    pub name: &'static str,
    /// The id and the name of its family.
    pub family: (Oid, &'static str),
    /// The type that it is for.
    pub kind: Kind,
    /// Whether it is the usual one.
    pub usual: bool,
}

const fn c(
    method: AccessMethod,
    (oid, name): (Oid, &'static str),
    family: (Oid, &'static str),
    kind: Kind,
    usual: bool,
) -> OperatorClass {
    OperatorClass { method, oid, name, family, kind, usual }
}

/// All of them, as PostgreSQL has them.
pub const CLASSES: &[OperatorClass] = &[
    c(Btree, (4217, "text_pattern_ops"), (2095, "text_pattern_ops"), Kind::Text, false),
    c(Btree, (4218, "varchar_pattern_ops"), (2095, "text_pattern_ops"), Kind::Text, false),
    c(Btree, (4219, "bpchar_pattern_ops"), (2097, "bpchar_pattern_ops"), Kind::Char, false),
    c(Btree, (10044, "varchar_ops"), (1994, "text_ops"), Kind::Text, false),
    c(Hash, (10005, "bpchar_ops"), (427, "bpchar_ops"), Kind::Char, true),
    c(Hash, (10008, "char_ops"), (431, "char_ops"), Kind::SingleChar, true),
    c(Hash, (10011, "date_ops"), (435, "date_ops"), Kind::Date, true),
    c(Hash, (10013, "float4_ops"), (1971, "float_ops"), Kind::Float4, true),
    c(Hash, (10014, "float8_ops"), (1971, "float_ops"), Kind::Float8, true),
    c(Hash, (10019, "int2_ops"), (1977, "integer_ops"), Kind::Int2, true),
    c(Hash, (10020, "int4_ops"), (1977, "integer_ops"), Kind::Int4, true),
    c(Hash, (10021, "int8_ops"), (1977, "integer_ops"), Kind::Int8, true),
    c(Hash, (10023, "interval_ops"), (1983, "interval_ops"), Kind::Interval, true),
    c(Hash, (10029, "name_ops"), (1995, "text_ops"), Kind::Name, true),
    c(Hash, (10030, "numeric_ops"), (1998, "numeric_ops"), Kind::Numeric, true),
    c(Hash, (10031, "oid_ops"), (1990, "oid_ops"), Kind::Oid, true),
    c(Hash, (10037, "text_ops"), (1995, "text_ops"), Kind::Text, true),
    c(Hash, (10039, "time_ops"), (1997, "time_ops"), Kind::Time, true),
    c(Hash, (10040, "timestamptz_ops"), (1999, "timestamptz_ops"), Kind::Timestamptz, true),
    c(Hash, (10045, "varchar_ops"), (1995, "text_ops"), Kind::Text, false),
    c(Hash, (10046, "timestamp_ops"), (2040, "timestamp_ops"), Kind::Timestamp, true),
    c(Hash, (10048, "bool_ops"), (2222, "bool_ops"), Kind::Bool, true),
    c(Hash, (10049, "bytea_ops"), (2223, "bytea_ops"), Kind::Bytea, true),
    c(Hash, (10056, "text_pattern_ops"), (2229, "text_pattern_ops"), Kind::Text, false),
    c(Hash, (10057, "varchar_pattern_ops"), (2229, "text_pattern_ops"), Kind::Text, false),
    c(Hash, (10058, "bpchar_pattern_ops"), (2231, "bpchar_pattern_ops"), Kind::Char, false),
    c(Hash, (10066, "uuid_ops"), (2969, "uuid_ops"), Kind::Uuid, true),
    c(Hash, (10089, "jsonb_ops"), (4034, "jsonb_ops"), Kind::Jsonb, true),
];
