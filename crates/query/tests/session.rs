//! Sessions by the messages of the protocol: encodings, time-outs between messages, cursors in one
//! batch, what comes before an error.

#[path = "../../postgres/tests/wire/mod.rs"]
pub mod wire;

use std::time::{Duration, Instant};

use crate::common::SqlNode;
use wire::{Answer, Wire, bind, describe, execute, field, message, outline, parse, query, startup, sync};

fn open(node: &SqlNode, parameters: &[(&str, &str)]) -> Wire {
    let mut wire = Wire::connect(node.address());
    wire.send(&startup(&[&[("user", "freshet")], parameters].concat()));
    let answers = wire.receive_until('Z');
    for (kind, body) in &answers {
        if *kind == 'S' {
            let mut texts = body.split(|byte| *byte == 0).map(|text| String::from_utf8(text.to_vec()).unwrap());
            wire.parameters.push((texts.next().unwrap(), texts.next().unwrap()));
        }
    }
    wire
}

fn parameter<'w>(wire: &'w Wire, name: &str) -> &'w str {
    wire.parameters.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

/// A message whose texts are bytes.
fn raw(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    message(kind, &parts.concat())
}

/// The values of the rows.
fn rows(answers: &[Answer]) -> Vec<Vec<u8>> {
    answers.iter().filter(|(kind, _)| *kind == 'D').map(|(_, body)| body[6..].to_vec()).collect()
}

fn error(answers: &[Answer]) -> (String, Vec<u8>) {
    let (_, body) = answers.iter().find(|(kind, _)| *kind == 'E').expect("an error");
    let text = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&b'M')).unwrap();
    let state = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&b'C')).unwrap();
    (String::from_utf8(state[1..].to_vec()).unwrap(), text[1..].to_vec())
}

#[test]
fn a_client_speaks_its_encoding_everywhere() {
    let node = SqlNode::in_memory();
    let mut wire = open(&node, &[("client_encoding", "ISO-8859-1")]);
    assert_eq!(parameter(&wire, "client_encoding"), "LATIN1");
    let mut ask = |bytes: &[u8]| {
        wire.send(bytes);
        wire.receive_until('Z')
    };
    // Names, values and texts of statements, in both protocols.
    let answers = ask(&raw(
        b'Q',
        &[b"create table \"t\xe4\" (\"\xf6\" text, n int); insert into \"t\xe4\" values ('\xfc', 1)\0"],
    ));
    assert_eq!(outline(&answers), "C C ZI");
    let answers = ask(&raw(b'Q', &[b"select \"\xf6\", length(\"\xf6\"), octet_length(\"\xf6\") from \"t\xe4\"\0"]));
    assert!(answers[0].1[2..].starts_with(b"\xf6\0"), "a column's name is converted");
    assert_eq!(rows(&answers), [b"\xfc\0\0\0\x011\0\0\0\x012".to_vec()]);
    let extended = [
        raw(b'P', &[b"\0select $1::text || '\xe4', array['\xf6', $1]\0\0\0"]),
        // One parameter as text; the first column as text, the second in binary.
        raw(b'B', &[b"\0\0\0\0\0\x01\0\0\0\x01\xdf\0\x02\0\0\0\x01"]),
        execute("", 0),
        sync(),
    ];
    let answers = ask(&extended.concat());
    assert_eq!(outline(&answers), "1 2 D C ZI");
    let row = &answers[2].1;
    assert_eq!(row[2..8], *b"\0\0\0\x02\xdf\xe4");
    assert!(row.ends_with(b"\0\0\0\x01\xf6\0\0\0\x01\xdf"), "elements of arrays are converted: {row:?}");
    // In binary, too.
    let extended =
        [raw(b'P', &[b"\0select $1::text\0\0\0"]), raw(b'B', &[b"\0\0\0\x01\0\x01\0\x01\0\0\0\x01\xdf\0\x01\0\x01"])];
    let answers = ask(&[extended.concat(), execute("", 0), sync()].concat());
    assert_eq!(rows(&answers), [b"\xdf".to_vec()]);
    // Errors and notices.
    let (state, text) = error(&ask(&raw(b'Q', &[b"select * from \"\xe4\xe4\"\0"])));
    assert_eq!((state.as_str(), &text[..]), ("42P01", &b"relation \"\xe4\xe4\" does not exist"[..]));
    // What there is no letter for.
    let (state, text) = error(&ask(&query("select chr(8364)")));
    assert_eq!(state, "22P05");
    let expected =
        "character with byte sequence 0xe2 0x82 0xac in encoding \"UTF8\" has no equivalent in encoding \"LATIN1\"";
    assert_eq!(text, expected.as_bytes());
    // COPY in both directions.
    let copied = [query("copy \"t\" from stdin"), message(b'd', b""), message(b'c', b"")];
    assert!(outline(&ask(&copied[0])).contains("E42P01"));
    let copied = [
        raw(b'Q', &[b"copy \"t\xe4\" from stdin\0"]),
        message(b'd', b"\xe9\t"),
        message(b'd', b"2\n"),
        message(b'c', b""),
    ];
    assert_eq!(outline(&ask(&copied.concat())), "G C ZI");
    let answers = ask(&raw(b'Q', &[b"copy (select * from \"t\xe4\" order by n) to stdout\0"]));
    let data: Vec<u8> = answers.iter().filter(|(kind, _)| *kind == 'd').flat_map(|(_, body)| body.clone()).collect();
    assert_eq!(data, b"\xfc\t1\n\xe9\t2\n");
    // Another one, within a transaction that is rolled back.
    assert_eq!(outline(&ask(&query("begin; set client_encoding = 'win1251'"))), "C C S ZT");
    assert_eq!(rows(&ask(&query("select pg_client_encoding(), 'x'"))), [b"WIN1251\0\0\0\x01x".to_vec()]);
    assert_eq!(rows(&ask(&query("select chr(1046)"))), [b"\xc6".to_vec()]);
    ask(&query("rollback"));
    assert_eq!(error(&ask(&query("select chr(1046)"))).0, "22P05");
    for (name, state) in [("mule_internal", "0A000"), ("nothing", "22023")] {
        assert_eq!(error(&ask(&query(&format!("set client_encoding = {name}")))).0, state);
    }
    // Half of a character is a backslash.
    ask(&query("set client_encoding = sjis; create table s (a text, b text)"));
    let copied = [query("copy s from stdin"), message(b'd', b"\x83"), message(b'd', b"\x5c\tb\n"), message(b'c', b"")];
    assert_eq!(outline(&ask(&copied.concat())), "G C ZI");
    assert_eq!(rows(&ask(&query("select a, b, ascii(a) from s"))), [b"\x83\x5c\0\0\0\x01b\0\0\0\x0512477".to_vec()]);
    assert_eq!(error(&ask(&raw(b'Q', &[b"select '\x83\xff'\0"]))).0, "22021");
    let broken = [query("copy s from stdin"), message(b'd', b"\x83"), message(b'c', b"")];
    assert_eq!(outline(&ask(&broken.concat())), "G E22021 ZI");
}

#[test]
fn a_statements_time_also_runs_between_its_messages() {
    let node = SqlNode::in_memory();
    let mut wire = open(&node, &[]);
    wire.ask(&query("set statement_timeout = '1s'"));
    // Without a Sync the client gets it unasked, and continues behind the Sync.
    wire.send(&[parse("", "select 1"), message(b'H', b"")].concat());
    let begun = Instant::now();
    assert_eq!(outline(&[wire.receive().unwrap()]), "1");
    assert_eq!(outline(&[wire.receive().unwrap()]), "E57014");
    assert!(begun.elapsed() >= Duration::from_millis(900));
    assert_eq!(wire.ask(&[bind("", "", &[]), execute("", 0), sync()].concat()), "ZI");
    // Each statement has a time of its own, and nothing runs between them.
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(
            wire.ask(&[parse("", "select pg_sleep(0.4)"), bind("", "", &[]), execute("", 0), sync()].concat()),
            "1 2 D C ZI"
        );
    }
    assert_eq!(wire.ask(&query("select pg_sleep(0.6); select pg_sleep(0.6)")), "T D C T D C ZI");
    let slow = [parse("", "select pg_sleep(30)"), bind("", "", &[]), execute("", 0), sync()].concat();
    assert_eq!(wire.ask(&slow), "1 2 E57014 ZI");
    // In a transaction it is failed.
    assert_eq!(wire.ask(&query("begin")), "C ZT");
    wire.send(&[parse("", "select 1"), message(b'H', b"")].concat());
    assert_eq!(outline(&[wire.receive().unwrap(), wire.receive().unwrap()]), "1 E57014");
    assert_eq!(wire.ask(&sync()), "ZE");
}

#[test]
fn a_fetch_is_understood_before_its_cursor_is_there() {
    let node = SqlNode::in_memory();
    let mut wire = open(&node, &[]);
    let step = |sql: &str| [parse("", sql), bind("", "", &[]), execute("", 0)].concat();
    let batch = [step("begin"), step("declare c scroll cursor for select 1 union all select 2")];
    // A fetch that is parsed and described first, and run afterwards.
    let early = [parse("f", "fetch 1 from c"), describe('S', "f")];
    let later = [step("move 1 in c"), bind("", "f", &[]), describe('P', ""), execute("", 0), step("commit"), sync()];
    let all = [early.concat(), batch.concat(), later.concat()].concat();
    assert_eq!(wire.ask(&all), "1 t n 1 2 C 1 2 C 1 2 C 2 T D C 1 2 C ZI");
    // It is another cursor's the next time, with other columns.
    let again = [
        step("begin"),
        step("declare c cursor for select 'a', 'b'"),
        bind("", "f", &[]),
        describe('P', ""),
        execute("", 0),
    ];
    assert_eq!(wire.ask(&[again.concat(), step("rollback"), sync()].concat()), "1 2 C 1 2 C 2 T D C 1 2 C ZI");
    assert_eq!(wire.ask(&[bind("", "f", &[]), execute("", 0), sync()].concat()), "2 E34000 ZI");
}

#[test]
fn no_columns_come_before_an_error_that_comes_first() {
    let node = SqlNode::in_memory();
    let mut wire = open(&node, &[]);
    wire.ask(&query("create table t (id int primary key); insert into t values (1)"));
    for (sql, outline) in [
        ("select 1/0", "E22012 ZI"),
        ("insert into t values (1) returning id", "E23505 ZI"),
        ("update t set id = id / 0 returning id", "E22012 ZI"),
        ("fetch 1 from c", "E34000 ZI"),
        ("select id / 0 from t", "T E22012 ZI"),
        ("insert into t values (2) returning id", "T D C ZI"),
    ] {
        assert_eq!(wire.ask(&query(sql)), outline, "{sql}");
    }
}

#[test]
fn a_session_that_is_terminated_receives_the_reason() {
    let node = SqlNode::in_memory();
    let (other, mut wire) = (node.connect(), open(&node, &[]));
    wire.send(&query("select pg_backend_pid()"));
    let answers = wire.receive_until('Z');
    let pid = String::from_utf8(rows(&answers).remove(0)).unwrap();
    other.lines(&format!("SELECT pg_terminate_backend({pid})"));
    assert_eq!(wire.last_words(), "E57P01");
    // One that ends itself hears nothing else.
    let mut wire = open(&node, &[]);
    wire.send(&query("select pg_terminate_backend(pg_backend_pid())"));
    assert_eq!(wire.last_words(), "E57P01");
}

#[test]
fn names_that_are_too_long_are_cut_with_a_notice() {
    let node = SqlNode::in_memory();
    let mut wire = open(&node, &[]);
    let name = "ä".repeat(40);
    wire.send(&query(&format!("select 1 as \"{name}\"")));
    let answers = wire.receive_until('Z');
    assert_eq!(outline(&answers), "N T D C ZI");
    assert_eq!(field(&answers[0].1, 'C').unwrap(), "42622");
    assert!(answers[1].1[2..].starts_with(format!("{}\0", "ä".repeat(31)).as_bytes()));
    assert_eq!(wire.ask(&[parse("", &format!("select 1 as \"{name}\"")), sync()].concat()), "N 1 ZI");
}

#[test]
fn discard_all_stands_alone() {
    let node = SqlNode::in_memory();
    let mut wire = open(&node, &[]);
    assert_eq!(wire.ask(&query("discard all")), "C ZI");
    assert_eq!(wire.ask(&query("select 1; discard all")), "T D C E25001 ZI");
    assert_eq!(wire.ask(&query("begin; discard all")), "C E25001 ZE");
    assert_eq!(wire.ask(&query("rollback; vacuum")), "C E25001 ZI");
    let step = |sql: &str| [parse("", sql), bind("", "", &[]), execute("", 0)].concat();
    assert_eq!(wire.ask(&[step("select 1"), step("discard all"), sync()].concat()), "1 2 D C 1 2 E25001 ZI");
}

#[test]
fn a_client_receives_notices_as_grave_as_it_wants() {
    let node = SqlNode::in_memory();
    let mut wire = open(&node, &[]);
    let mut notices = |sql: &str| {
        wire.send(&query(sql));
        wire.receive_until('Z').iter().filter(|(kind, _)| *kind == 'N').count()
    };
    // One has a notice to tell, the other a warning.
    let statements = ["DROP TABLE IF EXISTS nothing", "COMMIT"];
    for (least, sent) in [("debug1", [1, 1]), ("notice", [1, 1]), ("warning", [0, 1]), ("error", [0, 0])] {
        assert_eq!(notices(&format!("SET client_min_messages = {least}")), 0);
        assert_eq!(statements.map(&mut notices), sent, "{least}");
    }
    assert_eq!(notices("RESET client_min_messages"), 0);
    assert_eq!(statements.map(&mut notices), [1, 1]);
}

/// Portals that Bind has named are cursors, as in PostgreSQL.
#[test]
fn portals_of_the_protocol_can_be_fetched_from() {
    let node = SqlNode::in_memory();
    let mut sql = node.connect();
    let (runtime, client) = (&sql.runtime, &mut sql.client);
    runtime.block_on(async {
        let text = |messages: Vec<tokio_postgres::SimpleQueryMessage>| -> Vec<String> {
            let rows = messages.iter().filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => {
                    Some((0..row.len()).map(|n| row.get(n).unwrap_or("NULL")).collect::<Vec<_>>().join(" "))
                }
                _ => None,
            });
            rows.collect()
        };
        let transaction = client.transaction().await.unwrap();
        let query = "SELECT g::text FROM generate_series(1, $1::int) g";
        let statement = transaction.prepare(query).await.unwrap();
        let portal = transaction.bind(&statement, &[&10]).await.unwrap();
        let cursors = "SELECT statement, is_holdable, is_binary, is_scrollable, creation_time <= clock_timestamp() FROM pg_cursors";
        assert_eq!(text(transaction.simple_query(cursors).await.unwrap()), [format!("{query} f f f t")]);
        let name = text(transaction.simple_query("SELECT name FROM pg_cursors").await.unwrap()).remove(0);
        let run = async |sql: String| transaction.simple_query(&sql).await.map(text);
        // Described before it was run; by messages and by statements in turn.
        let fetch = transaction.prepare(&format!("FETCH 2 FROM \"{name}\"")).await.unwrap();
        assert_eq!(fetch.columns()[0].type_(), &tokio_postgres::types::Type::TEXT);
        let rows = transaction.query(&fetch, &[]).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["1", "2"]);
        let rows = transaction.query_portal(&portal, 2).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["3", "4"]);
        assert_eq!(run(format!("MOVE 3 IN \"{name}\"; FETCH \"{name}\"")).await.unwrap(), ["8"]);
        assert_eq!(run(format!("FETCH ALL \"{name}\"")).await.unwrap(), ["9", "10"]);
        assert_eq!(run(format!("FETCH \"{name}\"")).await.unwrap(), [""; 0]);
        assert!(transaction.query_portal(&portal, 0).await.unwrap().is_empty());
        run(format!("CLOSE \"{name}\"")).await.unwrap();
        assert_eq!(run("SELECT count(*) FROM pg_cursors".to_owned()).await.unwrap(), ["0"]);
        // What has given all its rows stands behind them.
        let portal = transaction.bind(&statement, &[&3]).await.unwrap();
        assert_eq!(transaction.query_portal(&portal, 0).await.unwrap().len(), 3);
        let name = run("SELECT name FROM pg_cursors".to_owned()).await.unwrap().remove(0);
        assert_eq!(run(format!("FETCH ALL \"{name}\"")).await.unwrap(), [""; 0]);
        // Only forward; CLOSE ALL closes them, too.
        let portal = transaction.bind(&statement, &[&3]).await.unwrap();
        let name = run("SELECT max(name) FROM pg_cursors".to_owned()).await.unwrap().remove(0);
        run(format!("SAVEPOINT a; FETCH 2 \"{name}\"; SAVEPOINT b")).await.unwrap();
        let error = run(format!("FETCH BACKWARD 1 \"{name}\"")).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "55000");
        run("ROLLBACK TO b; CLOSE ALL; SELECT count(*) FROM pg_cursors".to_owned()).await.unwrap();
        drop(portal);
        // A change of rows is run when it is first fetched from; what returns nothing is no cursor.
        run("CREATE TABLE changed (x int)".to_owned()).await.unwrap();
        let insert = transaction.prepare("INSERT INTO changed VALUES (1), (2) RETURNING x").await.unwrap();
        let _portal = transaction.bind(&insert, &[]).await.unwrap();
        let name = run("SELECT max(name) FROM pg_cursors".to_owned()).await.unwrap().remove(0);
        assert_eq!(run(format!("FETCH 1 \"{name}\"; SELECT count(*) FROM changed")).await.unwrap(), ["1", "2"]);
        let insert = transaction.prepare("INSERT INTO changed VALUES (3)").await.unwrap();
        let _other = transaction.bind(&insert, &[]).await.unwrap();
        let name = run("SELECT name FROM pg_cursors WHERE statement LIKE '%(3)'".to_owned()).await.unwrap().remove(0);
        assert!(run(format!("FETCH 1 \"{name}\"")).await.is_err());
    });
}

/// What is executed by no name is what was prepared last, or nothing.
#[test]
fn an_unnamed_statement_is_gone_when_the_next_one_is_not_understood() {
    let node = SqlNode::in_memory();
    let mut wire = open(&node, &[]);
    let mut ask = |bytes: &[u8]| {
        wire.send(bytes);
        wire.receive_until('Z')
    };
    assert_eq!(outline(&ask(&query("create table t (a int)"))), "C ZI");
    let inserts = [parse("", "insert into t values (1)"), bind("", "", &[]), execute("", 0), sync()].concat();
    assert_eq!(outline(&ask(&inserts)), "1 2 C ZI");
    let again = [bind("", "", &[]), execute("", 0), sync()].concat();
    for next in [[parse("", "selec"), sync()].concat(), query("selec")] {
        assert!(ask(&next).iter().any(|(kind, _)| *kind == 'E'));
        assert_eq!(error(&ask(&again)).0, "26000");
        assert_eq!(outline(&ask(&inserts)), "1 2 C ZI");
    }
    assert_eq!(rows(&ask(&query("select count(*) from t"))), [b"3"]);
}

/// Whatever it is that keeps the transaction from being committed.
#[test]
fn a_cursor_outlives_a_transaction_only_if_that_was_committed() {
    let node = SqlNode::in_memory();
    let (one, other) = (node.connect(), node.connect());
    one.query("create table t (id int primary key, n int unique deferrable initially deferred)").unwrap();
    one.query("insert into t values (1, 1), (2, 2)").unwrap();
    let declare = "declare c cursor with hold for select 7";
    for (statements, why) in [
        (vec![format!("{declare}; select 1/0")], "22012"),
        (vec![format!("{declare}; insert into t values (3, 1)")], "23505"),
        (
            vec!["begin".to_owned(), declare.to_owned(), "insert into t values (3, 1)".to_owned(), "commit".to_owned()],
            "23505",
        ),
    ] {
        let (last, before) = statements.split_last().unwrap();
        before.iter().for_each(|sql| drop(one.query(sql).unwrap()));
        assert_eq!(one.state(last), why, "{statements:?}");
        assert_eq!(one.state("fetch c"), "34000", "{statements:?}");
    }
    let begin = |session: &crate::common::Sql, id: u32| {
        session.query("begin isolation level serializable").unwrap();
        session.query("select sum(n) from t").unwrap();
        session.query(&format!("update t set n = n + 10 where id = {id}")).unwrap();
    };
    begin(&one, 1);
    one.query(declare).unwrap();
    begin(&other, 2);
    other.query("commit").unwrap();
    assert_eq!(one.state("commit"), "40001");
    assert_eq!(one.state("fetch c"), "34000");
    one.query(&format!("{declare}; select 1")).unwrap();
    assert_eq!(one.lines("fetch c"), ["7"]);
}
