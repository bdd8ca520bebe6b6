//! Functions of addresses.

use super::{Function, mismatch};
use crate::{
    SqlError, SqlState,
    types::{EvalContext, Kind, Net, Packed, Value},
};

const N: Kind = Kind::Inet;
const C: Kind = Kind::Cidr;
const M: Kind = Kind::Macaddr;
const W: Kind = Kind::Macaddr8;
const B: Kind = Kind::Bool;
const I: Kind = Kind::Int4;
const L: Kind = Kind::Int8;
const T: Kind = Kind::Text;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("<<", &[N, N], B, |arguments, _| related(arguments, |one, two| inside(two, one))),
    Function::new("<<=", &[N, N], B, |arguments, _| related(arguments, |one, two| two.contains_or_equals(one))),
    Function::new(">>", &[N, N], B, |arguments, _| related(arguments, inside)),
    Function::new(">>=", &[N, N], B, |arguments, _| related(arguments, Net::contains_or_equals)),
    Function::new("&&", &[N, N], B, |arguments, _| {
        related(arguments, |one, two| one.contains_or_equals(two) || two.contains_or_equals(one))
    }),
    Function::new("~", &[N], N, |arguments, _| changed(arguments, false, |net| net.combined(net.all(), |a, b| a ^ b))),
    Function::new("&", &[N, N], N, |arguments, _| combined(arguments, "AND", |a, b| a & b)),
    Function::new("|", &[N, N], N, |arguments, _| combined(arguments, "OR", |a, b| a | b)),
    Function::new("+", &[N, L], N, |arguments, _| moved(arguments, 1)),
    Function::new("+", &[L, N], N, |arguments, _| match arguments {
        [number, net] => moved(&[net.clone(), number.clone()], 1),
        _ => Err(mismatch(arguments)),
    }),
    Function::new("-", &[N, L], N, |arguments, _| moved(arguments, -1)),
    Function::new("-", &[N, N], L, difference),
    Function::new("abbrev", &[N], T, |arguments, _| Ok(written(net(arguments, 0)?.0, false))),
    Function::new("abbrev", &[C], T, abbreviated),
    Function::new("broadcast", &[N], N, |arguments, _| {
        changed(arguments, false, |net| net.combined(host_mask(net), |a, b| a | b))
    }),
    Function::new("family", &[N], I, |arguments, _| Ok(Value::Int4(if net(arguments, 0)?.0.v6 { 6 } else { 4 }))),
    Function::new("host", &[N], T, |arguments, _| {
        let mut text = String::new();
        net(arguments, 0)?.0.write_address(&mut text);
        Ok(Value::text(text))
    }),
    Function::new("hostmask", &[N], N, |arguments, _| {
        changed(arguments, false, |net| Net { bits: net.most_bits(), address: host_mask(net), ..net })
    }),
    Function::new("netmask", &[N], N, |arguments, _| {
        changed(arguments, false, |net| Net { bits: net.most_bits(), address: net.mask(), ..net })
    }),
    Function::new("network", &[N], C, |arguments, _| changed(arguments, true, Net::network)),
    Function::new("masklen", &[N], I, |arguments, _| Ok(Value::Int4(net(arguments, 0)?.0.bits.into()))),
    Function::new("set_masklen", &[N, I], N, |arguments, _| with_bits(arguments, false)),
    Function::new("set_masklen", &[C, I], C, |arguments, _| with_bits(arguments, true)),
    Function::new("text", &[N], T, |arguments, _| Ok(written(net(arguments, 0)?.0, true))),
    Function::new("inet_same_family", &[N, N], B, |arguments, _| related(arguments, |one, two| one.v6 == two.v6)),
    Function::new("inet_merge", &[N, N], C, merged),
    Function::new("trunc", &[M], M, |arguments, _| cut(arguments)),
    Function::new("trunc", &[W], W, |arguments, _| cut(arguments)),
    Function::new("macaddr8_set7bit", &[W], W, |arguments, _| {
        cards(arguments, |at, one, _| if at == 0 { one | 2 } else { one })
    }),
    Function::new("~", &[M], M, |arguments, _| cards(arguments, |_, one, _| !one)),
    Function::new("&", &[M, M], M, |arguments, _| cards(arguments, |_, one, two| one & two)),
    Function::new("|", &[M, M], M, |arguments, _| cards(arguments, |_, one, two| one | two)),
    Function::new("~", &[W], W, |arguments, _| cards(arguments, |_, one, _| !one)),
    Function::new("&", &[W, W], W, |arguments, _| cards(arguments, |_, one, two| one & two)),
    Function::new("|", &[W, W], W, |arguments, _| cards(arguments, |_, one, two| one | two)),
];

fn net(arguments: &[Value], at: usize) -> Result<(Net, bool), SqlError> {
    match arguments.get(at) {
        Some(Value::Packed(packed)) => packed.as_net(),
        _ => None,
    }
    .ok_or_else(|| mismatch(arguments))
}

fn inside(outer: Net, inner: Net) -> bool {
    outer.bits < inner.bits && outer.contains_or_equals(inner)
}

fn related(arguments: &[Value], holds: fn(Net, Net) -> bool) -> Result<Value, SqlError> {
    Ok(Value::Bool(holds(net(arguments, 0)?.0, net(arguments, 1)?.0)))
}

fn changed(arguments: &[Value], cidr: bool, change: fn(Net) -> Net) -> Result<Value, SqlError> {
    Ok(Value::Packed(Packed::net(change(net(arguments, 0)?.0), cidr)))
}

/// The bits behind the prefix.
fn host_mask(net: Net) -> [u8; 16] {
    Net { address: net.all(), ..net }.combined(net.mask(), |all, mask| all & !mask).address
}

fn written(net: Net, cidr: bool) -> Value {
    let mut text = String::new();
    net.write(cidr, &mut text);
    Value::text(text)
}

fn combined(arguments: &[Value], name: &str, combine: fn(u8, u8) -> u8) -> Result<Value, SqlError> {
    let (one, two) = (net(arguments, 0)?.0, net(arguments, 1)?.0);
    if one.v6 != two.v6 {
        let message = format!("cannot {name} inet values of different sizes");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    let both = Net { bits: one.bits.max(two.bits), ..one.combined(two.address, combine) };
    Ok(Value::Packed(Packed::net(both, false)))
}

fn out_of_range() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "result is out of range")
}

/// An address as a number.
fn number(net: Net) -> u128 {
    let all = u128::from_be_bytes(net.address);
    if net.v6 { all } else { all >> 96 }
}

fn moved(arguments: &[Value], sign: i128) -> Result<Value, SqlError> {
    let by = arguments.get(1).and_then(Value::as_i64).ok_or_else(|| mismatch(arguments))?;
    let net = net(arguments, 0)?.0;
    let by = i128::from(by) * sign;
    let next = number(net).checked_add_signed(by).ok_or_else(out_of_range)?;
    let address = if net.v6 {
        next
    } else if next >> 32 == 0 {
        next << 96
    } else {
        return Err(out_of_range());
    };
    Ok(Value::Packed(Packed::net(Net { address: address.to_be_bytes(), ..net }, false)))
}

fn difference(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (one, two) = (net(arguments, 0)?.0, net(arguments, 1)?.0);
    if one.v6 != two.v6 {
        let message = "cannot subtract inet values of different sizes";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    let (one, two) = (number(one), number(two));
    let size = i64::try_from(one.abs_diff(two)).map_err(|_| out_of_range())?;
    Ok(Value::Int8(if one < two { -size } else { size }))
}

/// Without the bytes that are zero behind the prefix.
fn abbreviated(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let net = net(arguments, 0)?.0;
    if !net.v6 {
        let parts: Vec<String> =
            net.address[..usize::from(net.bits.div_ceil(8).max(1))].iter().map(u8::to_string).collect();
        return Ok(Value::text(format!("{}/{}", parts.join("."), net.bits)));
    }
    let mut text = String::new();
    net.write_address(&mut text);
    let short = match text.strip_suffix("::") {
        Some(prefix) if !prefix.is_empty() => prefix,
        _ => &text,
    };
    Ok(Value::text(format!("{short}/{}", net.bits)))
}

fn with_bits(arguments: &[Value], cidr: bool) -> Result<Value, SqlError> {
    let wanted = arguments.get(1).and_then(Value::as_i64).ok_or_else(|| mismatch(arguments))?;
    let net = net(arguments, 0)?.0;
    let bits = if wanted == -1 { Some(net.most_bits()) } else { u8::try_from(wanted).ok() };
    let Some(bits) = bits.filter(|bits| *bits <= net.most_bits()) else {
        let message = format!("invalid mask length: {wanted}");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    };
    let net = Net { bits, ..net };
    Ok(Value::Packed(Packed::net(if cidr { net.network() } else { net }, cidr)))
}

/// The smallest network that has both.
fn merged(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (one, two) = (net(arguments, 0)?.0, net(arguments, 1)?.0);
    if one.v6 != two.v6 {
        let message = "cannot merge addresses from different families";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    let same = (u128::from_be_bytes(one.address) ^ u128::from_be_bytes(two.address)).leading_zeros();
    let bits = u8::try_from(same).unwrap_or(128).min(one.bits).min(two.bits);
    Ok(Value::Packed(Packed::net(Net { bits, ..one }.network(), true)))
}

fn cards(arguments: &[Value], combine: fn(usize, u8, u8) -> u8) -> Result<Value, SqlError> {
    let card = |at: usize| match arguments.get(at) {
        Some(Value::Packed(packed)) => packed.as_card().map(<[u8]>::to_vec),
        _ => None,
    };
    let mut bytes = card(0).ok_or_else(|| mismatch(arguments))?;
    let other = card(1).unwrap_or_else(|| bytes.clone());
    for (at, (byte, other)) in bytes.iter_mut().zip(other).enumerate() {
        *byte = combine(at, *byte, other);
    }
    let six: Result<[u8; 6], _> = bytes.as_slice().try_into();
    match (six, bytes.as_slice().try_into()) {
        (Ok(six), _) => Ok(Value::Packed(Packed::macaddr(six))),
        (_, Ok(eight)) => Ok(Value::Packed(Packed::macaddr8(eight))),
        _ => Err(mismatch(arguments)),
    }
}

/// The maker's part of a network card's address.
fn cut(arguments: &[Value]) -> Result<Value, SqlError> {
    cards(arguments, |at, one, _| if at < 3 { one } else { 0 })
}
