//! PostgreSQL's hashes of texts, which clients take for keys of advisory locks. They are Bob
//! Jenkins's lookup3 with other beginnings, and the same on all machines.

use super::{Function, take};
use crate::{
    SqlError,
    types::{EvalContext, Kind, Value},
};

const T: Kind = Kind::Text;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("hashtext", &[T], Kind::Int4, hash),
    Function::new("hashtextextended", &[T, Kind::Int8], Kind::Int8, hash_extended),
];

fn hash(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text));
    let (_, hash) = hashed(text.as_bytes(), 0);
    Ok(Value::Int4(hash.cast_signed()))
}

fn hash_extended(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Int8(seed));
    let (high, low) = hashed(text.as_bytes(), seed.cast_unsigned());
    Ok(Value::Int8((u64::from(high) << 32 | u64::from(low)).cast_signed()))
}

/// Two hashes of bytes. The second is the better one.
fn hashed(bytes: &[u8], seed: u64) -> (u32, u32) {
    let begin = 0x9e37_79b9_u32.wrapping_add(bytes.len() as u32).wrapping_add(3_923_095);
    let mut words = [begin; 3];
    if seed != 0 {
        words[0] = words[0].wrapping_add((seed >> 32) as u32);
        words[1] = words[1].wrapping_add(seed as u32);
        mix(&mut words);
    }
    let parts = bytes.chunks_exact(12);
    let rest = parts.remainder();
    for part in parts {
        add(&mut words, part, 0);
        mix(&mut words);
    }
    // The lowest byte of the last word stands for the length.
    add(&mut words, &rest[..rest.len().min(8)], 0);
    add(&mut words, rest.get(8..).unwrap_or_default(), 9);
    let [mut a, mut b, mut c] = words;
    for turn in [14, 11, 25, 16, 4, 14, 24] {
        c = (c ^ b).wrapping_sub(b.rotate_left(turn));
        (a, b, c) = (b, c, a);
    }
    (a, b)
}

/// Adds bytes to the words, from this byte of them on.
fn add(words: &mut [u32; 3], bytes: &[u8], from: usize) {
    for (at, byte) in (from..).zip(bytes) {
        words[at / 4] = words[at / 4].wrapping_add(u32::from(*byte) << (at % 4 * 8));
    }
}

fn mix(words: &mut [u32; 3]) {
    let [mut a, mut b, mut c] = *words;
    for turn in [4, 6, 8, 16, 19, 4] {
        a = a.wrapping_sub(c) ^ c.rotate_left(turn);
        c = c.wrapping_add(b);
        (a, b, c) = (b, c, a);
    }
    *words = [a, b, c];
}
