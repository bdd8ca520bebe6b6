//! LISTEN and NOTIFY: what is heard, in which order, on which nodes, and what is seen by then.

use std::{collections::BTreeSet, sync::Arc, thread, time::Instant};

use crate::common::{
    SOON, SqlNode, config, eventually,
    wire::{Answer, Part, Wire},
};
use freshet_engine::{Consent, NodeConfig, Safety};
use freshet_general::QueryEngine;
use freshet_query::session::settings::Bounds;

/// The notifications in an answer: `channel:payload`, in their order.
fn notifications(answer: &Answer) -> Vec<String> {
    let parts = answer.parts.iter();
    parts
        .filter_map(|part| match part {
            Part::Notified { channel, payload } => Some(format!("{channel}:{payload}")),
            _ => None,
        })
        .collect()
}

fn listener(node: &SqlNode, channels: &[&str]) -> Wire {
    let mut wire = Wire::tcp(node.address());
    for channel in channels {
        assert_eq!(wire.query(&format!("LISTEN {channel}")).state(), None);
    }
    wire
}

fn next(wire: &mut Wire) -> String {
    let (channel, payload) = wire.notified();
    format!("{channel}:{payload}")
}

fn pair() -> (SqlNode, SqlNode, [tempfile::TempDir; 2]) {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let of = |number: usize| NodeConfig { safety: Safety::TwoSafe, ..config(Some(directories[number].path())) };
    let primary = SqlNode::start(of(0));
    let standby = SqlNode::start(NodeConfig { join: Some(primary.node.address().to_owned()), ..of(1) });
    drop(primary.connect());
    let made = primary.node.database().core().snapshots.current();
    standby.node.wait_visible(made, Some(Instant::now() + SOON)).unwrap();
    (primary, standby, directories)
}

#[test]
fn what_commits_is_delivered_once_and_in_order() {
    let node = SqlNode::in_memory();
    let mut wire = listener(&node, &["news", "\"Other News\""]);
    let writer = node.connect();
    writer.lines(
        "BEGIN; NOTIFY news, 'one'; NOTIFY \"Other News\"; NOTIFY news, 'one'; SELECT pg_notify('news', 'two'); \
         NOTIFY nobody, 'x'; COMMIT",
    );
    let all: Vec<String> = (0..3).map(|_| next(&mut wire)).collect();
    assert_eq!(all, ["news:one", "Other News:", "news:two"]);
    writer.lines("BEGIN; NOTIFY news, 'gone'; ROLLBACK");
    writer.lines(
        "BEGIN; NOTIFY news, 'a'; SAVEPOINT s; NOTIFY news, 'b'; NOTIFY news, 'a'; ROLLBACK TO s; NOTIFY news, 'c'; \
         NOTIFY news, 'b'; RELEASE s; COMMIT",
    );
    let all: Vec<String> = (0..3).map(|_| next(&mut wire)).collect();
    assert_eq!(all, ["news:a", "news:c", "news:b"]);
    writer.lines("SELECT pg_notify('news', g::text) FROM generate_series(1, 3) g");
    let all: Vec<String> = (0..3).map(|_| next(&mut wire)).collect();
    assert_eq!(all, ["news:1", "news:2", "news:3"]);
    assert_eq!(writer.outcome("BEGIN; NOTIFY news, 'gone'; SELECT 1 / 0; COMMIT"), "22012");
    writer.lines("ROLLBACK; BEGIN READ ONLY; NOTIFY news, 'a reader may, too'; COMMIT");
    assert_eq!(next(&mut wire), "news:a reader may, too");
}

#[test]
fn a_session_notifies_itself_before_it_is_ready() {
    let node = SqlNode::in_memory();
    let mut wire = listener(&node, &["news"]);
    assert_eq!(notifications(&wire.query("NOTIFY news, 'x'")), ["news:x"]);
    // In the transaction that listens, too, and behind the last statement of a text.
    let mut wire = Wire::tcp(node.address());
    assert_eq!(notifications(&wire.query("BEGIN; NOTIFY mine, '1'; LISTEN mine; COMMIT; SELECT 1")), ["mine:1"]);
    assert_eq!(notifications(&wire.query("NOTIFY mine, '2'; UNLISTEN mine; NOTIFY mine, '3'")), [""; 0]);
    assert_eq!(notifications(&wire.query("LISTEN mine; NOTIFY mine, '4'")), ["mine:4"]);
}

#[test]
fn listening_begins_and_ends_with_its_transaction() {
    let node = SqlNode::in_memory();
    let (mut wire, writer) = (Wire::tcp(node.address()), node.connect());
    wire.query("BEGIN; LISTEN one; SAVEPOINT s; LISTEN two; ROLLBACK TO s; LISTEN three");
    writer.lines("NOTIFY one, 'early'");
    wire.query("COMMIT");
    let channels = |wire: &mut Wire| {
        let answer = wire.query("SELECT string_agg(c, ' ' ORDER BY c) FROM pg_listening_channels() c");
        answer.parts.iter().find_map(|part| match part {
            Part::Row(row) => row[0].clone(),
            _ => None,
        })
    };
    assert_eq!(channels(&mut wire).as_deref(), Some("one three"));
    writer.lines("NOTIFY two, 'not heard'; NOTIFY one, 'heard'");
    assert_eq!(next(&mut wire), "one:heard");
    wire.query("BEGIN; UNLISTEN one; LISTEN four; ROLLBACK");
    assert_eq!(channels(&mut wire).as_deref(), Some("one three"));
    // Within a transaction nothing is heard; what was unlistened by its end never is.
    wire.query("BEGIN; UNLISTEN one");
    writer.lines("NOTIFY one, 'too late'");
    writer.lines("NOTIFY three, 'kept'");
    assert_eq!(notifications(&wire.query("SELECT 1")), [""; 0]);
    assert_eq!(notifications(&wire.query("COMMIT")), ["three:kept"]);
    wire.query("DISCARD ALL");
    assert_eq!(channels(&mut wire), None);
    wire.query("LISTEN five; LISTEN five; LISTEN six");
    writer.lines("NOTIFY five, 'once'");
    assert_eq!(next(&mut wire), "five:once");
    wire.query("UNLISTEN *");
    assert_eq!(channels(&mut wire), None);
}

#[test]
fn databases_do_not_notify_one_another() {
    let node = SqlNode::in_memory();
    node.connect().lines("CREATE DATABASE other");
    let mut wire = listener(&node, &["news"]);
    let mut there = crate::common::Sql::config(node.address(), "freshet", None);
    let there = crate::common::Sql::open(there.dbname("other")).unwrap();
    there.lines("NOTIFY news, 'from the other'");
    node.connect().lines("NOTIFY news, 'from here'");
    assert_eq!(next(&mut wire), "news:from here");
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let node = SqlNode::in_memory();
    let session = node.connect();
    for (sql, state) in [
        ("SELECT pg_notify('', 'x')", "22023"),
        ("SELECT pg_notify(NULL, 'x')", "22023"),
        ("SELECT pg_notify(repeat('x', 64), 'x')", "22023"),
        ("SELECT pg_notify('x', repeat('x', 8000))", "22023"),
        ("NOTIFY", "42601"),
        ("NOTIFY x, y", "42601"),
        ("LISTEN *", "42601"),
        ("UNLISTEN", "42601"),
    ] {
        assert_eq!(session.state(sql), state, "{sql}");
    }
    assert_eq!(session.lines("SELECT pg_notify('x', NULL) IS NULL, pg_notification_queue_usage()"), ["f 0"]);
}

/// Those who listen and then read miss nothing: what was committed before is read, all after it is
/// received. And all receive one order, on the standby, too, and see by then what it is about.
#[test]
fn nothing_is_missed_and_all_receive_one_order() {
    const WRITERS: i32 = 3;
    const EACH: i32 = 150;
    let (primary, standby, _directories) = pair();
    primary.connect().lines("CREATE TABLE t (id int PRIMARY KEY)");
    let made = primary.node.database().core().snapshots.current();
    standby.node.wait_visible(made, Some(Instant::now() + SOON)).unwrap();
    let receive = |node: &SqlNode| {
        let address = node.address();
        thread::spawn(move || {
            let mut wire = Wire::tcp(address);
            wire.query("LISTEN t");
            let mut read = BTreeSet::new();
            let answer = wire.query("SELECT id FROM t");
            let mut order = notifications(&answer);
            read.extend(answer.parts.iter().filter_map(|part| match part {
                Part::Row(row) => row[0].clone(),
                _ => None,
            }));
            while order.last().is_none_or(|last| last != "t:end") {
                order.push(next(&mut wire));
                let id = order[order.len() - 1].trim_start_matches("t:").to_owned();
                let answer = wire.query(&format!("SELECT id FROM t WHERE id::text = '{id}'"));
                let seen = id == "end" || answer.parts.iter().any(|part| matches!(part, Part::Row(_)));
                assert!(seen, "{id} is seen when it is heard of");
                order.extend(notifications(&answer));
            }
            order.pop();
            let all: BTreeSet<String> = order.iter().map(|text| text[2..].to_owned()).collect();
            assert_eq!(all.len(), order.len(), "nothing is heard twice");
            assert_eq!(all.union(&read).count(), (WRITERS * EACH) as usize, "what is not read is heard");
            order
        })
    };
    let first = receive(&primary);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let session = primary.connect();
            thread::spawn(move || {
                for number in 0..EACH {
                    let id = writer * EACH + number;
                    session.lines(&format!("BEGIN; INSERT INTO t VALUES ({id}); NOTIFY t, '{id}'; COMMIT"));
                }
            })
        })
        .collect();
    let others = [receive(&primary), receive(&standby), receive(&standby)];
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    primary.connect().lines("NOTIFY t, 'end'");
    let mut orders: Vec<Vec<String>> = others.into_iter().map(|it| it.join().unwrap()).collect();
    orders.push(first.join().unwrap());
    orders.sort_by_key(Vec::len);
    let longest = orders.pop().unwrap();
    for order in orders {
        assert_eq!(longest[longest.len() - order.len()..], order, "all hear one order");
    }
}

#[test]
fn a_standby_listens_and_does_not_speak_and_goes_on_when_it_takes_over() {
    let (primary, standby, _directories) = pair();
    let mut wire = listener(&standby, &["news"]);
    assert_eq!(wire.query("NOTIFY news").state(), Some("25006"));
    assert_eq!(wire.query("SELECT pg_notify('news', '')").state(), Some("25006"));
    let writer = primary.connect();
    writer.lines("NOTIFY news, 'before'");
    assert_eq!(next(&mut wire), "news:before");
    primary.node.stop().unwrap();
    standby.node.promote(Consent::Loss).unwrap();
    eventually("it is the primary", || wire.query("NOTIFY other").state().is_none());
    standby.connect().lines("NOTIFY news, 'after'");
    assert_eq!(next(&mut wire), "news:after");
}

/// Messages stay in the log, where a restart and a node that joins meet them.
#[test]
fn messages_of_the_past_are_nobodys_concern() {
    let directory = tempfile::tempdir().unwrap();
    {
        let node = SqlNode::start(config(Some(directory.path())));
        let writer = node.connect();
        writer.lines("CREATE TABLE t (id int PRIMARY KEY)");
        for id in 0..10 {
            writer.lines(&format!("BEGIN; INSERT INTO t VALUES ({id}); NOTIFY news, '{id}'; COMMIT; NOTIFY news"));
        }
        node.node.stop().unwrap();
    }
    let node = SqlNode::start(config(Some(directory.path())));
    let mut wire = listener(&node, &["news"]);
    let session = node.connect();
    assert_eq!(session.lines("SELECT count(*) FROM t"), ["10"]);
    session.lines("NOTIFY news, 'new'");
    assert_eq!(next(&mut wire), "news:new");
}

/// A transaction too long for one block carries its messages, too; and a session for which more has
/// come than can wait ends, and nobody else does.
#[test]
fn who_does_not_listen_in_time_ends() {
    let (primary, standby, _directories) = pair();
    let (mut idle, mut there) = (listener(&primary, &["news"]), listener(&standby, &["news"]));
    let mut busy = listener(&primary, &["news"]);
    busy.query("BEGIN");
    let writer = primary.connect();
    for round in 0..5 {
        writer.lines(&format!(
            "SELECT count(pg_notify('news', lpad({round} || ' ' || g, 7999, '.'))) FROM generate_series(1, 1000) g"
        ));
        for wire in [&mut idle, &mut there] {
            for number in 1..=1000 {
                let (_, payload) = wire.notified();
                assert_eq!(payload.trim_start_matches('.'), format!("{round} {number}"));
            }
        }
    }
    let usage = writer.lines("SELECT pg_notification_queue_usage()").remove(0);
    assert_eq!(usage, "1");
    assert_eq!(busy.query("SELECT 1").state(), None, "within its transaction it knows nothing of it");
    busy.ask("COMMIT", "");
    assert_eq!(busy.last_words(), "54000");
    eventually("it is gone", || writer.lines("SELECT pg_notification_queue_usage()") == ["0"]);
}

/// Listeners in transactions cannot keep what statements need.
#[test]
fn who_listens_leaves_memory_for_others() {
    const MB: usize = 1 << 20;
    let bounds = Bounds { memory: 32 * MB, session_memory: 32 * MB, statement_memory: 16 * MB, ..Bounds::default() };
    let node = SqlNode::start_within(config(None), Arc::new(QueryEngine), bounds);
    let mut busy: Vec<_> = (0..4).map(|_| listener(&node, &["news"])).collect();
    busy.iter_mut().for_each(|wire| drop(wire.query("BEGIN")));
    let writer = node.connect();
    for _ in 0..20 {
        writer.lines("SELECT count(pg_notify('news', lpad(g::text, 7999, '.'))) FROM generate_series(1, 200) g");
    }
    for mut wire in busy {
        wire.ask("COMMIT", "");
        assert_eq!(wire.last_words(), "54000");
    }
    assert_eq!(writer.lines("SELECT 1"), ["1"]);
}
