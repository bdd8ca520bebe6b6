//! Conversations that are nearly right.

use super::{Random, Statements, mutate};
use crate::message::{CANCEL, GSS, TLS, bind, close, describe, execute, message, packet, parse, query, startup, sync};

/// A conversation that has something of everything, message by message.
pub fn everything() -> Vec<Vec<u8>> {
    vec![
        packet(TLS, b""),
        packet(GSS, b""),
        startup(&[("user", "freshet"), ("options", "-c statement_timeout=2s -c lock_timeout=100ms"), ("application_name", "x")]),
        query(b"SELECT 1; SELECT * FROM t; SET application_name = 'y'"),
        query(b""),
        query(b"SELECT 1/0"),
        parse("s", b"SELECT a, b FROM t WHERE id = $1 OR b = $2", &[23, 25]),
        describe(b'S', "s"),
        bind("p", "s", 0, &[Some(b"1"), None]),
        describe(b'P', "p"),
        execute("p", 0),
        close(b'P', "p"),
        message(b'H', b""),
        sync(),
        parse("", b"SELECT * FROM pgbench_accounts ORDER BY aid", &[]),
        bind("", "", 1, &[]),
        execute("", 4),
        execute("", 4),
        sync(),
        parse("all", b"SELECT $1::int, $2::numeric, $3::timestamptz, $4::int[], $5::jsonb, $6::bytea, $7::uuid, $8::interval, $9::float8, $10::date", &[]),
        bind("", "all", 1, &[Some(&[0; 4]), Some(&[0, 1, 0, 0, 0, 0, 0, 0, 0, 5]), Some(&[0; 8]), Some(&[0; 12]), Some(b"\x01{}"), Some(b""), Some(&[1; 16]), Some(&[0; 16]), Some(&[0; 8]), Some(&[0; 4])]),
        execute("", 0),
        bind("", "all", 0, &[Some(b"1"), Some(b"1.5"), Some(b"now"), Some(b"{1,2}"), Some(b"[]"), Some(b"\\x00"), None, Some(b"1 day"), Some(b"NaN"), Some(b"infinity")]),
        execute("", 1),
        sync(),
        query(b"BEGIN; COPY t (a, b) FROM STDIN"),
        message(b'd', b"7\tseven\n8\t\\N\n"),
        message(b'd', b"9\tn\\tine\n\\.\n"),
        message(b'c', b""),
        query(b"ROLLBACK; COPY t1 (a, b, n) FROM STDIN WITH (FORMAT csv)"),
        message(b'd', b"1,\"a,\"\"b\",2.5\n"),
        message(b'f', b"no\0"),
        query(b"COPY pgbench_branches FROM STDIN WITH (FORMAT binary)"),
        message(b'd', b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x03\0\0\0\x04\0\0\0\x09\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        message(b'c', b""),
        query(b"COPY t TO STDOUT; COPY t1 TO STDOUT WITH (FORMAT binary)"),
        parse("c", b"COPY t (a) FROM STDIN", &[]),
        bind("", "c", 0, &[]),
        execute("", 0),
        message(b'd', b"5\n"),
        message(b'c', b""),
        sync(),
        query(b"DECLARE c CURSOR FOR SELECT * FROM t; FETCH 1 FROM c"),
        query(b"BEGIN; DECLARE c CURSOR FOR SELECT * FROM t; FETCH 1 FROM c"),
        execute("c", 1),
        query(b"SAVEPOINT a; SELECT nothing"),
        query(b"ROLLBACK TO a; COMMIT"),
        message(b'F', b"\0\0\0\x01"),
        message(b'X', b""),
    ]
}

/// Other ways to begin.
fn beginning(random: &mut Random) -> Vec<u8> {
    let proof = |user: &str, answer: &[u8]| {
        let first = b"n,,n=,r=rOprNGfwEbeRWgbNEkqO";
        let body = [&b"SCRAM-SHA-256\0"[..], &(first.len() as u32).to_be_bytes(), first].concat();
        [startup(&[("user", user)]), message(b'p', &body), message(b'p', answer)].concat()
    };
    match random.below(8) {
        0 => proof("ann", b"c=biws,r=rOprNGfwEbeRWgbNEkqO,p=dGVzdA=="),
        1 => proof("nobody", b"c=biws,r=x,p="),
        2 => packet(CANCEL, b"\0\0\0\x01abcd"),
        3 => startup(&[("user", "ann"), ("replication", "database")]),
        4 => packet(3 << 16 | 9, b"user\0freshet\0_pq_.x\0y\0\0"),
        5 => startup(&[
            ("user", "freshet"),
            ("options", "-c search_path=nowhere -c TimeZone=Nowhere"),
            ("DateStyle", "German"),
        ]),
        6 => startup(&[
            ("user", "freshet"),
            ("options", "-c statement_timeout=99999999999d"),
            ("client_encoding", "LATIN1"),
        ]),
        _ => startup(&[
            ("user", "freshet"),
            ("database", "postgres"),
            ("extra_float_digits", "3"),
            ("datestyle", "ISO, MDY"),
        ]),
    }
}

/// A conversation for the target `protocol`.
pub fn conversation(statements: &Statements, random: &mut Random) -> Vec<u8> {
    let all = everything();
    let mut messages: Vec<Vec<u8>> = if random.once_in(4) { vec![beginning(random)] } else { vec![all[2].clone()] };
    match random.below(3) {
        0 => messages.clone_from(&all),
        1 => messages.extend((0..random.count(30)).map(|_| all[3 + random.below(all.len() - 3)].clone())),
        _ => {
            for _ in 0..random.count(10) {
                let sql = statements.next(random);
                let types: Vec<u32> = (0..random.below(4))
                    .map(|_| [0, 16, 20, 23, 25, 1700, 1184, 3802, 1007, 17, 99, 705][random.below(12)])
                    .collect();
                messages.push(if random.once_in(2) { query(&sql) } else { parse("", &sql, &types) });
                let values: Vec<Vec<u8>> = (0..random.below(5)).map(|_| value(random)).collect();
                let values: Vec<_> = values.iter().map(|value| (!value.is_empty()).then_some(&value[..])).collect();
                messages.push(bind("", "", random.below(3) as u16, &values));
                messages.push(execute("", random.below(3) as u32));
                messages.push(all[3 + random.below(all.len() - 3)].clone());
                messages.push(sync());
            }
        }
    }
    let changes = if random.once_in(5) { 0 } else { random.count(6) };
    for _ in 0..changes {
        let at = random.below(messages.len());
        match random.below(4) {
            0 => drop(messages.remove(at)),
            1 => messages.insert(at, all[random.below(all.len())].clone()),
            _ => mutate::bytes(&mut messages[at], random),
        }
        if messages.is_empty() {
            break;
        }
    }
    let mut bytes = vec![random.any() as u8];
    bytes.extend(messages.concat());
    if random.once_in(4) {
        mutate::bytes(&mut bytes, random);
    }
    bytes
}

/// A parameter's value as bytes.
fn value(random: &mut Random) -> Vec<u8> {
    let texts: [&[u8]; 12] = [
        b"1",
        b"",
        b"x",
        b"1e400",
        b"{1,2}",
        b"\xff",
        b"\0",
        b"\0\0\0\x01",
        b"\0\0\0\0\0\0\0\x01",
        // Arrays with too many dimensions, or elements.
        b"\0\0\0\x07\0\0\0\0\0\0\0\x17",
        b"\0\0\0\x01\0\0\0\0\0\0\0\x17\x7f\xff\xff\xff\0\0\0\x01",
        b"\x7f\xff\0\0\0\0\0\0",
    ];
    let mut value = texts[random.below(texts.len())].to_vec();
    for _ in 0..random.below(3) {
        mutate::bytes(&mut value, random);
    }
    value
}
