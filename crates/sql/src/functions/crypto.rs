//! What the extensions pgcrypto and uuid-ossp bring.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use blowfish::Blowfish;
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use ripemd::Ripemd160;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::{Function, mismatch, take};
use crate::{
    SqlError, SqlState,
    types::{EvalContext, Kind, Value},
    work,
};

const T: Kind = Kind::Text;
const I: Kind = Kind::Int4;
const BYTES: Kind = Kind::Bytea;
const U: Kind = Kind::Uuid;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("digest", &[T, T], BYTES, digest),
    Function::new("digest", &[BYTES, T], BYTES, digest),
    Function::new("hmac", &[T, T, T], BYTES, hmac),
    Function::new("hmac", &[BYTES, BYTES, T], BYTES, hmac),
    Function::new("crypt", &[T, T], T, crypt),
    Function::new("gen_salt", &[T], T, gen_salt).volatile(),
    Function::new("gen_salt", &[T, I], T, gen_salt).volatile(),
    Function::new("gen_random_bytes", &[I], BYTES, random_bytes).volatile(),
    Function::new("gen_random_uuid", &[], U, random_uuid).volatile(),
    Function::new("uuid_generate_v1", &[], U, |_, _| Ok(Value::Uuid(timed_uuid(node()?)?))).volatile(),
    Function::new("uuid_generate_v1mc", &[], U, |_, _| Ok(Value::Uuid(timed_uuid(new_node()?)?))).volatile(),
    Function::new("uuid_generate_v3", &[U, T], U, |arguments, _| named_uuid::<Md5>(arguments, 3)),
    Function::new("uuid_generate_v4", &[], U, random_uuid).volatile(),
    Function::new("uuid_generate_v5", &[U, T], U, |arguments, _| named_uuid::<Sha1>(arguments, 5)),
    Function::new("uuid_nil", &[], U, |_, _| Ok(Value::Uuid([0; 16]))),
    Function::new("uuid_ns_dns", &[], U, |_, _| Ok(uuid_namespace(0x10))),
    Function::new("uuid_ns_url", &[], U, |_, _| Ok(uuid_namespace(0x11))),
    Function::new("uuid_ns_oid", &[], U, |_, _| Ok(uuid_namespace(0x12))),
    Function::new("uuid_ns_x500", &[], U, |_, _| Ok(uuid_namespace(0x14))),
];

fn random<const COUNT: usize>() -> Result<[u8; COUNT], SqlError> {
    let mut bytes = [0; COUNT];
    getrandom::fill(&mut bytes).map_err(|error| SqlError::internal(format!("no randomness: {error}")))?;
    Ok(bytes)
}

/// The error 22023.
fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn no_algorithm(name: &str) -> SqlError {
    invalid(format!("Cannot use \"{name}\": No such hash algorithm"))
}

fn bytes_of(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Text(text) => Some(text.as_bytes()),
        Value::Bytea(bytes) => Some(bytes),
        _ => None,
    }
}

fn digest(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let [data, Value::Text(name)] = arguments else { return Err(mismatch(arguments)) };
    let data = bytes_of(data).ok_or_else(|| mismatch(arguments))?;
    Ok(Value::bytea(match name.to_ascii_lowercase().as_str() {
        "md5" => Md5::digest(data).to_vec(),
        "sha1" => Sha1::digest(data).to_vec(),
        "sha224" => Sha224::digest(data).to_vec(),
        "sha256" => Sha256::digest(data).to_vec(),
        "sha384" => Sha384::digest(data).to_vec(),
        "sha512" => Sha512::digest(data).to_vec(),
        "rmd160" | "ripemd160" => Ripemd160::digest(data).to_vec(),
        _ => return Err(no_algorithm(name)),
    }))
}

fn hmac(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    fn code<M: Mac + KeyInit>(data: &[u8], key: &[u8]) -> Result<Vec<u8>, SqlError> {
        let mut mac = <M as KeyInit>::new_from_slice(key).map_err(|_| invalid("invalid key"))?;
        mac.update(data);
        Ok(mac.finalize().into_bytes().to_vec())
    }
    let [data, key, Value::Text(name)] = arguments else { return Err(mismatch(arguments)) };
    let (Some(data), Some(key)) = (bytes_of(data), bytes_of(key)) else { return Err(mismatch(arguments)) };
    Ok(Value::bytea(match name.to_ascii_lowercase().as_str() {
        "md5" => code::<Hmac<Md5>>(data, key)?,
        "sha1" => code::<Hmac<Sha1>>(data, key)?,
        "sha224" => code::<Hmac<Sha224>>(data, key)?,
        "sha256" => code::<Hmac<Sha256>>(data, key)?,
        "sha384" => code::<Hmac<Sha384>>(data, key)?,
        "sha512" => code::<Hmac<Sha512>>(data, key)?,
        "rmd160" | "ripemd160" => code::<Hmac<Ripemd160>>(data, key)?,
        _ => return Err(no_algorithm(name)),
    }))
}

fn random_bytes(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Int4(count));
    let Some(count) = usize::try_from(*count).ok().filter(|count| (1..=1024).contains(count)) else {
        return Err(SqlError::new(SqlState::EXTERNAL_ROUTINE_INVOCATION_EXCEPTION, "Length not in range"));
    };
    let mut bytes = vec![0; count];
    getrandom::fill(&mut bytes).map_err(|error| SqlError::internal(format!("no randomness: {error}")))?;
    Ok(Value::bytea(bytes))
}

/// The signs of bcrypt.
const BCRYPT: &[u8; 64] = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// The signs of all others.
const OTHERS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

fn no_des() -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "passwords encrypted by DES are not supported")
        .with_hint("Use gen_salt('bf').")
}

fn gen_salt(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let (name, rounds) = match arguments {
        [Value::Text(name)] => (name, 0),
        [Value::Text(name), Value::Int4(rounds)] => (name, *rounds),
        _ => return Err(mismatch(arguments)),
    };
    let wrong = || invalid("gen_salt: Incorrect number of rounds");
    match name.to_ascii_lowercase().as_str() {
        "bf" => {
            let rounds = if rounds == 0 { 6 } else { rounds };
            if !(4..=31).contains(&rounds) {
                return Err(wrong());
            }
            let mut salt = format!("$2a${rounds:02}$");
            write_bcrypt(&random::<16>()?, &mut salt);
            Ok(Value::text(salt))
        }
        "md5" if !matches!(rounds, 0 | 1000) => Err(wrong()),
        "md5" => {
            let mut salt = "$1$".to_owned();
            salt.extend(random::<8>()?.iter().map(|byte| char::from(OTHERS[usize::from(byte & 63)])));
            Ok(Value::text(salt))
        }
        "des" | "xdes" => Err(no_des()),
        _ => Err(invalid("gen_salt: Unknown salt algorithm")),
    }
}

fn crypt(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(password), Text(salt));
    let crypted = match salt.get(..4) {
        Some("$2a$") => bcrypt(password, salt)?,
        _ if salt.starts_with("$1$") => Some(md5_crypt(password, salt)?),
        _ if salt.starts_with("$2") || salt.len() < 2 || salt.starts_with('_') && salt.len() < 9 => None,
        _ => return Err(no_des()),
    };
    crypted.map(Value::text).ok_or_else(|| invalid("invalid salt"))
}

/// Three bytes as four signs, and what is left at the end.
fn write_bcrypt(bytes: &[u8], out: &mut String) {
    for part in bytes.chunks(3) {
        let byte = |at: usize| u32::from(part.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for sign in 0..=part.len() {
            out.push(char::from(BCRYPT[(bits >> (18 - 6 * sign) & 63) as usize]));
        }
    }
}

/// bcrypt, with a salt like `$2a$06$` and 22 signs; nothing when it is none.
fn bcrypt(password: &str, setting: &str) -> Result<Option<String>, SqlError> {
    /// As much of a password counts.
    const LONGEST: usize = 72;
    /// About how many comparisons a round takes.
    const STEPS: usize = 20_000;
    let signs = setting.as_bytes();
    let (Some(&[tens @ b'0'..=b'3', ones @ b'0'..=b'9', b'$']), Some(written)) =
        (signs.get(4..7).and_then(<[u8]>::first_chunk), signs.get(7..29))
    else {
        return Ok(None);
    };
    let cost = u32::from((tens - b'0') * 10 + (ones - b'0'));
    let mut salt = Vec::with_capacity(18);
    for part in written.chunks(4) {
        let mut bits = 0;
        for sign in part {
            let Some(place) = BCRYPT.iter().position(|known| known == sign) else { return Ok(None) };
            bits = bits << 6 | place as u32;
        }
        bits <<= 6 * (4 - part.len());
        salt.extend_from_slice(&bits.to_be_bytes()[1..]);
    }
    salt.truncate(16);
    if !(4..=31).contains(&cost) {
        return Ok(None);
    }
    let mut key = password.as_bytes().to_vec();
    key.push(0);
    key.truncate(LONGEST);
    let mut state = Blowfish::bc_init_state();
    state.salted_expand_key(&salt, &key);
    for _ in 0..1u64 << cost {
        work::done(STEPS)?;
        state.bc_expand_key(&key);
        state.bc_expand_key(&salt);
    }
    let mut hash = Vec::with_capacity(24);
    for words in [[0x4f72_7068, 0x6561_6e42], [0x6568_6f6c, 0x6465_7253], [0x6372_7944, 0x6f75_6274]] {
        let words = (0..64).fold(words, |words, _| state.bc_encrypt(words));
        words.iter().for_each(|word| hash.extend_from_slice(&word.to_be_bytes()));
    }
    let mut text = setting[..7].to_owned();
    write_bcrypt(&salt, &mut text);
    write_bcrypt(&hash[..23], &mut text);
    Ok(Some(text))
}

/// The MD5-based algorithm of FreeBSD, with a salt like `$1$` and up to eight signs.
fn md5_crypt(password: &str, setting: &str) -> Result<String, SqlError> {
    let password = password.as_bytes();
    let salt = setting.as_bytes()[3..].split(|byte| *byte == b'$').next().unwrap_or_default();
    let salt = &salt[..salt.len().min(8)];
    let first = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut hash = Md5::new().chain_update(password).chain_update("$1$").chain_update(salt);
    for part in password.chunks(16) {
        hash.update(&first[..part.len()]);
    }
    let mut length = password.len();
    while length > 0 {
        match length & 1 {
            1 => hash.update([0]),
            _ => hash.update(&password[..1]),
        }
        length >>= 1;
    }
    let mut last = hash.finalize();
    for round in 0..1000 {
        work::done(16 + password.len() / 16)?;
        let mut hash = Md5::new();
        let odd = round % 2 == 1;
        if odd {
            hash.update(password)
        } else {
            hash.update(last)
        }
        if round % 3 != 0 {
            hash.update(salt);
        }
        if round % 7 != 0 {
            hash.update(password);
        }
        if odd {
            hash.update(last)
        } else {
            hash.update(password)
        }
        last = hash.finalize();
    }
    let mut text = format!("$1${}$", String::from_utf8_lossy(salt));
    let mut write = |mut bits: u32, signs: usize| {
        for _ in 0..signs {
            text.push(char::from(OTHERS[(bits & 63) as usize]));
            bits >>= 6;
        }
    };
    for [a, b, c] in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        write(u32::from(last[a]) << 16 | u32::from(last[b]) << 8 | u32::from(last[c]), 4);
    }
    write(u32::from(last[11]), 2);
    Ok(text)
}

fn random_uuid(_: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    Ok(Value::Uuid(of_version(random()?, 4)))
}

/// The namespace of this number: these are 6ba7b8??-9dad-11d1-80b4-00c04fd430c8.
fn uuid_namespace(number: u8) -> Value {
    Value::Uuid([0x6b, 0xa7, 0xb8, number, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0, 0xc0, 0x4f, 0xd4, 0x30, 0xc8])
}

/// With a version, and variant 1.
fn of_version(mut uuid: [u8; 16], version: u8) -> [u8; 16] {
    uuid[6] = uuid[6] & 0x0f | version << 4;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

fn named_uuid<D: Digest>(arguments: &[Value], version: u8) -> Result<Value, SqlError> {
    take!(arguments: Uuid(namespace), Text(name));
    let hash = D::new().chain_update(namespace).chain_update(name.as_bytes()).finalize();
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&hash[..16]);
    Ok(Value::Uuid(of_version(uuid, version)))
}

/// A random number in the place of a network card's address, which its multicast bit says.
fn new_node() -> Result<[u8; 6], SqlError> {
    let mut node: [u8; 6] = random()?;
    node[0] |= 1;
    Ok(node)
}

/// The one of this process.
fn node() -> Result<[u8; 6], SqlError> {
    static NODE: OnceLock<[u8; 6]> = OnceLock::new();
    match NODE.get() {
        Some(node) => Ok(*node),
        None => new_node().map(|node| *NODE.get_or_init(|| node)),
    }
}

/// An identifier of version 1: of the time, which no two have in common.
fn timed_uuid(node: [u8; 6]) -> Result<[u8; 16], SqlError> {
    /// From the beginning of the Gregorian calendar until 1970, in 100 ns.
    const BEFORE_1970: u64 = 0x01b2_1dd2_1381_4000;
    static LAST: AtomicU64 = AtomicU64::new(0);
    static SEQUENCE: OnceLock<[u8; 2]> = OnceLock::new();
    let sequence = match SEQUENCE.get() {
        Some(sequence) => *sequence,
        None => random().map(|made| *SEQUENCE.get_or_init(|| made))?,
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(since.as_nanos() / 100).unwrap_or(0) + BEFORE_1970;
    // SeqCst: the only access to it, which hands out each number once.
    let last = LAST.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |last| Some(now.max(last + 1)));
    let time = now.max(last.unwrap_or_else(|last| last) + 1).to_be_bytes();
    let mut uuid = [0; 16];
    uuid[..4].copy_from_slice(&time[4..]);
    uuid[4..6].copy_from_slice(&time[2..4]);
    uuid[6..8].copy_from_slice(&time[..2]);
    uuid[8..10].copy_from_slice(&sequence);
    uuid[10..].copy_from_slice(&node);
    Ok(of_version(uuid, 1))
}
