//! What a statement asks of the clock, of the session and of its connection is the same where it is
//! executed again, at another time and without a session.

use std::sync::Arc;

use crate::common::{Sql, SqlNode, config, shown};
use freshet_engine::{CommandExecutor, NodeConfig, VerifyOptions, VerifyReport, verify};
use freshet_query::inputs::StatementExecutor;

const TABLES: &str = "
    CREATE TABLE d (id serial PRIMARY KEY, t text, tz timestamptz, ts timestamp, dd date, tm time, tmz timetz);
    CREATE TABLE words (id int PRIMARY KEY, w text);
    CREATE TABLE defaults (
        k int, a timestamptz DEFAULT 'now', b date DEFAULT 'today', c text DEFAULT pg_client_encoding());
    CREATE SEQUENCE sq;
    CREATE VIEW moment AS SELECT now() n, 'now'::timestamptz l;
    INSERT INTO words VALUES (1, 'now'), (2, 'today'), (3, 'tomorrow'), (4, 'yesterday');
    SELECT nextval('sq'), nextval('d_id_seq')";

/// What a session may have set. No node that executes again has set any of it.
const SETTINGS: &[&str] = &[
    "SET timezone = 'America/St_Johns'; SET client_encoding = 'LATIN1'; SET application_name = 'zed'",
    "SET datestyle = 'German'; SET intervalstyle = 'sql_standard'; SET bytea_output = 'escape'",
    "SET timezone = 'Pacific/Kiritimati'; SET client_encoding = 'SJIS'; SET extra_float_digits = -4",
    "SET standard_conforming_strings = off; SET default_transaction_isolation = 'repeatable read'; SET lc_time = 'C'",
];

/// What depends on the clock or the session, as text.
const EXPRESSIONS: &[&str] = &[
    "'2024-03-04 05:06:07'::timestamptz::text",
    "'03.04.2024'::date::text",
    "'2024-07-01 12:00+02'::timestamptz::timestamp::text",
    "'10:00'::timetz::text",
    "'now'::timestamptz::timetz::text",
    "'10:00'::time::timetz::text",
    "'-1 2:03:04'::interval::text",
    "'1-2'::interval::text",
    "(0.1::float8 / 3)::text",
    "(0.1::float4 / 3)::text",
    r"'\x00ff41'::bytea::text",
    r"'a\\b'",
    "('now'::timestamptz - interval '1 day')::text",
    "to_char('now'::timestamptz, 'YYYY-MM-DD HH24:MI:SS.US TZ TMDay')",
    "to_char(now(), 'TMMonth')",
    "to_timestamp('2024-01-02', 'YYYY-MM-DD')::text",
    "date_trunc('day', now())::text",
    "extract(timezone FROM now())::text",
    "age('now'::timestamptz)::text",
    "(ARRAY['now', 'today']::timestamptz[])::text",
    "('{now,today,tomorrow}'::timestamptz[])::text",
    "('{now}'::time[])::text",
    "coalesce(NULL, 'now'::timestamptz)::text",
    "greatest('now'::timestamptz, 'epoch')::text",
    "CASE WHEN 'now'::time >= '00:00' THEN 'now'::time::text END",
    "(SELECT max(w)::timestamptz::text FROM words WHERE id = 1)",
    "(SELECT 'now'::timestamptz::text FROM words WHERE id = 1)",
    "(SELECT w::timestamptz::text FROM words WHERE id = 3)",
    "(SELECT pg_client_encoding() || pg_backend_pid() FROM words WHERE id = 1)",
    "current_setting('timezone') || current_setting('client_encoding') || current_setting('application_name')",
    "current_setting('transaction_isolation') || current_setting('default_transaction_isolation')",
    "set_config('my.setting', 'q', true) || current_setting('my.setting')",
    "current_schemas(true)::text",
    "'d'::regclass::text",
    "nextval('sq')::text || currval('sq') || lastval()",
    "random()::text || gen_random_uuid()",
    "clock_timestamp()::text || statement_timestamp() || transaction_timestamp() || timeofday()",
    "current_date::text || current_time || localtime || localtimestamp || current_timestamp(0)",
];

/// Runs `load` on a node that records inputs, and executes its log again.
fn verified(load: impl FnOnce(&SqlNode)) -> VerifyReport {
    let (home, file) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    {
        let node = SqlNode::start(NodeConfig { record_inputs: true, ..config(Some(home.path())) });
        node.connect().lines(TABLES);
        load(&node);
        println!("{:?}", node.node.database().core().recorded());
    }
    let executor: Arc<dyn CommandExecutor> = Arc::new(StatementExecutor::default());
    let path = file.path().join("mismatches");
    let options = VerifyOptions { threads: 2, mismatches: Some(path.clone()), ..VerifyOptions::default() };
    let report = verify(home.path(), &executor, &options, &mut |_, _| true).unwrap();
    let (found, _) = freshet_engine::scheme::inputs::read_mismatches(&path).unwrap_or_default();
    let lines: Vec<_> = found.iter().map(|it| format!("{}: {}", it.command, it.why)).collect();
    assert_eq!(report.mismatches, 0, "{lines:#?}");
    println!("{} executed again, {:?}", report.executed, report.kept);
    report
}

#[test]
fn literals_that_mean_a_moment_are_the_same_again() {
    let report = verified(|node| {
        for settings in SETTINGS {
            let sql = node.connect();
            sql.lines(settings);
            for word in ["now", "today", "tomorrow", "yesterday", "epoch", "NOW", "  now ", "today 10:00", "allballs"] {
                for (column, ty) in
                    [("tz", "timestamptz"), ("ts", "timestamp"), ("dd", "date"), ("tm", "time"), ("tmz", "timetz")]
                {
                    // Some are no value of the type.
                    let _ = sql.query(&format!("INSERT INTO d ({column}) VALUES ('{word}')"));
                    let _ = sql.query(&format!("UPDATE d SET {column} = '{word}' WHERE id = 3"));
                    let _ = sql.query(&format!("INSERT INTO d (t) SELECT '{word}'::{ty}::text || id FROM words"));
                }
            }
            for statement in [
                "INSERT INTO d (tz) SELECT w::timestamptz FROM words",
                "UPDATE d SET t = 'later' WHERE tz < 'now'::timestamptz AND id < 5",
                "DELETE FROM d WHERE tz > 'now'::timestamptz - interval '1 second' AND id % 2 = 0",
                "INSERT INTO defaults (k) VALUES (1)",
                "INSERT INTO defaults (k) SELECT id FROM words",
                "INSERT INTO d (tz) SELECT l FROM moment",
                "INSERT INTO d (id, tz) VALUES (1, 'now') ON CONFLICT (id) DO UPDATE SET tz = 'now', t = 'again'",
            ] {
                sql.query(statement).unwrap_or_else(|error| panic!("{statement}: {}", shown(&error)));
            }
        }
    });
    assert!(report.executed > 250, "{report:?}");
}

#[test]
fn what_expressions_ask_of_the_session_is_the_same_again() {
    let report = verified(|node| {
        for settings in SETTINGS {
            let sql = node.connect();
            sql.lines(settings);
            for expression in EXPRESSIONS {
                let run = |statement: &str| match sql.query(statement) {
                    Ok(_) => {}
                    Err(error) => println!("{statement}: {}", shown(&error)),
                };
                run(&format!("INSERT INTO d (t) VALUES ({expression})"));
                run(&format!("INSERT INTO d (t) SELECT {expression} FROM words w WHERE w.id < 3"));
                run(&format!("UPDATE d SET t = {expression} WHERE id IN (1, 2, 3)"));
                run(&format!(
                    "BEGIN; SET LOCAL timezone = 'Asia/Tokyo'; INSERT INTO d (t) VALUES ({expression}); COMMIT"
                ));
            }
        }
    });
    assert!(report.executed > 400, "{report:?}");
}

/// An argument of this type, with which most functions return something.
fn argument(ty: &str) -> String {
    match ty {
        "regclass" => "'d'::regclass".to_owned(),
        "oid" => "'d'::regclass::oid".to_owned(),
        "name" => "'freshet'::name".to_owned(),
        "text" => "'d'::text".to_owned(),
        "boolean" => "true".to_owned(),
        ty if ty.contains("time") || ty == "date" => format!("'now'::{ty}"),
        ty if ty.ends_with("[]") => format!("'{{}}'::{ty}"),
        // No session has this number.
        ty => format!("'0'::{ty}"),
    }
}

/// Every function of the catalog that may have another value the next time.
#[test]
fn what_functions_ask_of_the_session_is_the_same_again() {
    let report = verified(|node| {
        let sql = node.connect();
        let all = "SELECT proname || '|' || pg_get_function_identity_arguments(oid) FROM pg_proc
            WHERE provolatile <> 'i' AND prokind = 'f' AND NOT proretset ORDER BY 1";
        let all: Vec<String> = sql.lines(all);
        println!("{} functions", all.len());
        assert!(all.len() > 150, "{}", all.len());
        assert!(all.iter().any(|it| it.starts_with("pg_client_encoding|")), "{all:?}");
        sql.lines(SETTINGS[0]);
        let mut failed = 0;
        for function in &all {
            let (name, types) = function.split_once('|').unwrap();
            let arguments: Vec<_> = types.split(", ").filter(|ty| !ty.is_empty()).map(argument).collect();
            let is_word = arguments.is_empty()
                && (name.starts_with("current_") || name.starts_with("local") || name.ends_with("user"));
            let call = if is_word { name.to_owned() } else { format!("{name}({})", arguments.join(", ")) };
            for statement in [
                format!("INSERT INTO d (t) VALUES (({call})::text)"),
                format!("UPDATE d SET t = ({call})::text || id WHERE id < 3"),
            ] {
                if let Err(error) = sql.query(&statement) {
                    failed += 1;
                    println!("{statement}: {}", shown(&error));
                }
            }
        }
        println!("{failed} statements have failed");
    });
    assert!(report.executed > 150, "{report:?}");
}

/// A plan that a session keeps has the moment and the settings with which it was made.
#[test]
fn plans_that_are_kept_are_the_same_again() {
    let report = verified(|node| {
        let Sql { runtime, client } = node.connect();
        let run = |text: &str| runtime.block_on(client.batch_execute(text)).unwrap();
        let texts = [
            "INSERT INTO d (tz) VALUES ('now')",
            "INSERT INTO d (dd) VALUES ('01.02.2024')",
            "INSERT INTO d (tz) VALUES ('2024-01-01 00:00')",
            "INSERT INTO d (t) VALUES ('a\\\\b')",
            "INSERT INTO d (t) VALUES (pg_client_encoding())",
        ];
        let kept = texts.map(|text| runtime.block_on(client.prepare(text)).unwrap());
        run("PREPARE p AS INSERT INTO d (t, tz) VALUES ('a\\\\b', 'now')");
        run("PREPARE q (int) AS UPDATE d SET tz = 'now', t = '01.02.2024'::date WHERE id = $1");
        for settings in SETTINGS {
            for _ in 0..2 {
                kept.iter().for_each(|it| assert_eq!(runtime.block_on(client.execute(it, &[])).unwrap(), 1));
                run("EXECUTE p");
                run("EXECUTE q(3)");
            }
            run(settings);
        }
        // A text is read as a whole before its first statement runs.
        run("RESET ALL");
        run("SET standard_conforming_strings = off; INSERT INTO d (t) VALUES ('a\\\\b')");
        run("SET standard_conforming_strings = on; INSERT INTO d (t) VALUES ('a\\\\b')");
    });
    assert!(report.executed >= 14, "{report:?}");
}

/// Literals are read again whenever a client sends a text, but not when it runs a prepared one.
#[test]
fn now_is_when_its_transaction_began() {
    let node = SqlNode::in_memory();
    let Sql { runtime, client } = node.connect();
    let ask = |text: &str| -> String {
        let rows = runtime.block_on(client.query_typed(text, &[])).unwrap();
        rows[0].get(0)
    };
    assert_eq!(ask("SELECT ('now'::timestamptz = now())::text"), "true");
    let now = "SELECT 'now'::timestamptz::text";
    assert_ne!(ask(now), ask(now));
    let day = "SELECT extract(month FROM '01.02.2024'::date)::text";
    assert_eq!(ask(day), "1");
    ask("SELECT set_config('datestyle', 'German', false)");
    assert_eq!(ask(day), "2");
    let kept = runtime.block_on(client.prepare(now)).unwrap();
    let kept = || runtime.block_on(client.query_one(&kept, &[])).unwrap().get::<_, String>(0);
    assert_eq!(kept(), kept());
}
