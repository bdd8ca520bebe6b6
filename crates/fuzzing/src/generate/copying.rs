//! COPY in all formats and encodings, with data that is nearly right.

use super::{Random, grammar, mutate};
use crate::message::{message, query, startup};

/// The pieces that make up text and CSV.
const PIECES: &[&[u8]] = &[
    b"1",
    b"\t",
    b",",
    b"\n",
    b"\r\n",
    b"\r",
    b"\\.",
    b"\\N",
    b"\\",
    b"\\x41",
    b"\\101",
    b"\\x",
    b"\"",
    b"\"\"",
    b"''",
    b"'",
    b"a",
    b"\xc3\xa4",
    b"\xff",
    b"\xc3",
    b"\0",
    b"\x83\x5c",
    b"\xa4\xa4",
    b"id,a,b",
    b"id\ta\tb",
    b"NULL",
    b"",
    b"|",
    b"2.5",
];

fn lines(random: &mut Random) -> Vec<u8> {
    let mut data = Vec::new();
    for _ in 0..random.count(40) {
        if random.once_in(3) {
            let row: [&[u8]; 4] = [b"1\tx\t2\n", b"1,\"x\",2\n", b"2\t\\N\t\\N\r\n", b"7|y|1\n"];
            data.extend_from_slice(random.of(&row));
        }
        for _ in 0..random.below(5) {
            data.extend_from_slice(random.of(PIECES));
        }
    }
    data
}

fn binary(random: &mut Random) -> Vec<u8> {
    let mut data = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
    for _ in 0..random.count(5) {
        let fields = random.below(5) as i16 - i16::from(random.once_in(8));
        data.extend(fields.to_be_bytes());
        for _ in 0..fields.max(0) {
            let length = random.below(10) as i32 - 1;
            data.extend(length.to_be_bytes());
            data.extend((0..length.max(0)).map(|at| if at == 3 { 1 } else { 0 }));
        }
    }
    if random.once_in(2) {
        data.extend([0xff, 0xff]);
    }
    if random.once_in(2) {
        mutate::bytes(&mut data, random);
    }
    data
}

/// A conversation for the target `protocol`.
pub fn copies(random: &mut Random) -> Vec<u8> {
    let encodings = ["UTF8", "LATIN1", "SJIS", "BIG5", "GBK", "EUC_JP", "WIN1252", "SQL_ASCII", "GB18030"];
    let mut messages = vec![startup(&[
        ("user", "freshet"),
        ("client_encoding", encodings[random.below(encodings.len())]),
        ("options", "-c statement_timeout=2s -c lock_timeout=100ms"),
    ])];
    for _ in 0..random.count(6) {
        let table = ["t", "t (id, a, b)", "t (b)", "tree", "t1 (a, b, n)", "t1 (j, arr, ba)"];
        let table = table[random.below(table.len())];
        let is_binary = random.once_in(4);
        let options: Vec<String> = (0..random.below(4)).map(|_| grammar::part("copyoption", random)).collect();
        let options = match (is_binary, options.as_slice()) {
            (true, _) => " (FORMAT binary)".to_owned(),
            (_, []) => String::new(),
            (_, options) if random.once_in(2) => format!(" (FORMAT csv, {})", options.join(", ")),
            (_, options) => format!(" ({})", options.join(", ")),
        };
        messages.push(query(format!("COPY {table} FROM STDIN{options}").as_bytes()));
        let data = if is_binary { binary(random) } else { lines(random) };
        let piece = 1 + random.below(data.len().max(8));
        messages.extend(data.chunks(piece).map(|piece| message(b'd', piece)));
        messages.push(if random.once_in(8) { message(b'f', b"no\0") } else { message(b'c', b"") });
        if random.once_in(2) {
            messages.push(query(format!("COPY {table} TO STDOUT{options}").as_bytes()));
        }
        messages.push(query(b"ROLLBACK"));
    }
    if random.once_in(4) {
        let at = 1 + random.below(messages.len() - 1);
        mutate::bytes(&mut messages[at], random);
    }
    let mut bytes = vec![random.any() as u8];
    bytes.extend(messages.concat());
    bytes
}
