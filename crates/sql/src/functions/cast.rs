//! Casts in the guise of functions: `date(now())`, `text(5)`.

use super::{Function, mismatch};
use crate::{
    SqlError,
    types::{Cast, CastContext, EvalContext, Kind, Type, Value},
};

/// A function for each pair of kinds, named after the kind it leads to.
macro_rules! casts {
    ($($name:literal = $to:ident from $($from:ident)+;)+) => {
        pub(super) const FUNCTIONS: &[Function] = &[$($(
            Function::new($name, &[Kind::$from], Kind::$to, |arguments, context| {
                cast(arguments, Kind::$from, Kind::$to, context)
            })
            .stable(),
        )+)+];
    };
}

casts! {
    "bool" = Bool from Int4 Text Jsonb;
    "int2" = Int2 from Int4 Int8 Float4 Float8 Numeric Text Jsonb;
    "int4" = Int4 from Bool Int2 Int8 Float4 Float8 Numeric Text Jsonb;
    "int8" = Int8 from Int2 Int4 Oid Float4 Float8 Numeric Text Jsonb;
    "float4" = Float4 from Int2 Int4 Int8 Float8 Numeric Text Jsonb;
    "float8" = Float8 from Int2 Int4 Int8 Float4 Numeric Text Jsonb;
    "oid" = Oid from Int8 Text;
    "text" = Text from Bool Int2 Int4 Int8 Float4 Float8 Numeric Oid Char Name Date Time Timestamp Timestamptz Interval
        Uuid Bytea Json Jsonb;
    "bpchar" = Char from Name Text;
    "name" = Name from Text Char;
    "date" = Date from Timestamp Timestamptz Text;
    "timestamptz" = Timestamptz from Date Timestamp Text;
    "uuid" = Uuid from Text;
    "inet" = Inet from Text;
    "cidr" = Cidr from Inet Text;
    "macaddr" = Macaddr from Macaddr8 Text;
    "macaddr8" = Macaddr8 from Macaddr Text;
    "pg_lsn" = PgLsn from Text;
    "timetz" = Timetz from Time Timestamptz Text;
    "json" = Json from Jsonb Text;
    "jsonb" = Jsonb from Json Text;
}

fn cast(arguments: &[Value], from: Kind, to: Kind, context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let [value] = arguments else { return Err(mismatch(arguments)) };
    Cast::find(from, Type::of(to), CastContext::Explicit)?.apply(value.clone(), context)
}
