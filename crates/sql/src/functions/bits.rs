//! Operators on the bits of whole numbers.

use super::{Function, take};
use crate::{
    SqlError,
    types::{EvalContext, Kind, Value},
};

macro_rules! operators {
    ($($kind:ident $module:ident $number:ty),+) => {
        pub(super) const FUNCTIONS: &[Function] = &[$(
            Function::new("&", &[Kind::$kind, Kind::$kind], Kind::$kind, $module::and),
            Function::new("|", &[Kind::$kind, Kind::$kind], Kind::$kind, $module::or),
            Function::new("#", &[Kind::$kind, Kind::$kind], Kind::$kind, $module::xor),
            Function::new("~", &[Kind::$kind], Kind::$kind, $module::not),
            Function::new("<<", &[Kind::$kind, Kind::Int4], Kind::$kind, $module::left),
            Function::new(">>", &[Kind::$kind, Kind::Int4], Kind::$kind, $module::right),
        )+];

        $(mod $module {
            use super::*;

            pub fn and(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                take!(arguments: $kind(one), $kind(two));
                Ok(Value::$kind(one & two))
            }

            pub fn or(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                take!(arguments: $kind(one), $kind(two));
                Ok(Value::$kind(one | two))
            }

            pub fn xor(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                take!(arguments: $kind(one), $kind(two));
                Ok(Value::$kind(one ^ two))
            }

            pub fn not(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                take!(arguments: $kind(one));
                Ok(Value::$kind(!one))
            }

            /// As far as the machine shifts: modulo the number of bits.
            pub fn left(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                take!(arguments: $kind(one), Int4(by));
                // Numbers of two bytes are shifted as if they had four.
                let wide = if <$number>::BITS < 32 {
                    i64::from((*one as i32).wrapping_shl(*by as u32))
                } else {
                    i64::from(one.wrapping_shl(*by as u32))
                };
                Ok(Value::$kind(wide as $number))
            }

            pub fn right(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
                take!(arguments: $kind(one), Int4(by));
                let wide = if <$number>::BITS < 32 {
                    i64::from((*one as i32).wrapping_shr(*by as u32))
                } else {
                    i64::from(one.wrapping_shr(*by as u32))
                };
                Ok(Value::$kind(wide as $number))
            }
        })+
    };
}

operators!(Int2 int2 i16, Int4 int4 i32, Int8 int8 i64);
