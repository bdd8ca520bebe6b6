//! Standbys that execute transactions again, and what `freshet verify` and `freshet inspect
//! mismatches` say of a log.

mod common;

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread::JoinHandle,
};

use common::{
    SOON, Sql, assert_same_state, connect, flags, in_sync, open_sql, program, start, status, wait_for_message,
    wait_until,
};
use freshet::children::NodeProcess;
use freshet_base::Consent;
use freshet_log::{Block, BlockBuilder, BlockHeader};

/// A session that inserts rows and changes others, until its connection ends; returns the ids of
/// those that were acknowledged.
fn write(sql: Sql, session: u64, count: &Arc<AtomicU64>) -> JoinHandle<Vec<u64>> {
    let count = Arc::clone(count);
    std::thread::spawn(move || {
        let mut acknowledged = Vec::new();
        for number in 0.. {
            let id = number * 16 + session;
            let both = format!(
                "BEGIN; INSERT INTO t (id, v) VALUES ({id}, 'row {id}'); \
                 UPDATE total SET n = n + 1, at = now() WHERE session = {session}; COMMIT"
            );
            if sql.run(&both).is_err() {
                break;
            }
            acknowledged.push(id);
            count.fetch_add(1, SeqCst);
        }
        acknowledged
    })
}

const SESSIONS: u64 = 4;

fn create(sql: &Sql) {
    sql.run("CREATE TABLE t (id bigint PRIMARY KEY, v text)").unwrap();
    sql.run("CREATE TABLE total (session int PRIMARY KEY, n bigint, at timestamptz)").unwrap();
    for session in 0..SESSIONS {
        sql.run(&format!("INSERT INTO total VALUES ({session}, 0, now())")).unwrap();
    }
}

fn executed(node: &NodeProcess) -> u64 {
    status(node)["again"]["executed"].as_u64().unwrap()
}

#[test]
fn a_standby_that_executes_statements_again_takes_over_and_lacks_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let sql_flags = |name: &str| open_sql(&path(name));
    let flags = |access: &[String], more: &[&str]| {
        let quorum = ["--safety", "quorum:2"].map(str::to_owned);
        let more = more.iter().map(|flag| (*flag).to_owned());
        access.iter().cloned().chain(quorum).chain(more).collect::<Vec<_>>()
    };
    let begin = |name: &str, more: &[&str]| {
        let flags = flags(&sql_flags(&format!("{name}.access")), more);
        start(&path(name), &flags.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let mut old = begin("a", &[]);
    let upstream = old.ready().listen.clone();
    let join = ["--join", upstream.as_str(), "--encoding", "inputs"];
    let (new, third) = (begin("b", &join), begin("c", &join));
    wait_until(&old, "two standbys in sync", |status| in_sync(status) == 2);
    create(&Sql::connect(&old));
    let count = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..SESSIONS).map(|session| write(Sql::connect(&old), session, &count)).collect();
    let client = connect(&new);
    let deadline = std::time::Instant::now() + SOON;
    while count.load(SeqCst) < 2_000 {
        assert!(std::time::Instant::now() < deadline && !writers[0].is_finished(), "nothing is acknowledged any more");
        std::thread::yield_now();
    }
    old.kill();
    let acknowledged: Vec<Vec<u64>> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let again = executed(&new);
    client.promote(Consent::Nothing, SOON).unwrap();
    let sql = Sql::connect(&new);
    let there: std::collections::BTreeSet<u64> =
        sql.run("SELECT id FROM t").unwrap().iter().map(|id| id.parse().unwrap()).collect();
    for (session, ids) in acknowledged.iter().enumerate() {
        assert!(ids.iter().all(|id| there.contains(id)), "session {session} lacks what it was told of");
        let own = there.iter().filter(|id| **id % 16 == session as u64).count();
        let counted = sql.run(&format!("SELECT n FROM total WHERE session = {session}")).unwrap();
        assert_eq!(counted, [own.to_string()], "a transaction is there by halves");
        // One may have been under way.
        assert!(own == ids.len() || own == ids.len() + 1, "{own} for {}", ids.len());
    }
    assert!(again > 1_000, "{again} were executed again");
    // The other one follows, and executes what comes from then on.
    wait_until(&new, "a standby in sync", |status| in_sync(status) == 1);
    let before = executed(&third);
    for id in 0..50 {
        sql.run(&format!("INSERT INTO t VALUES ({}, 'late')", (1_u64 << 40) + id)).unwrap();
    }
    assert_same_state(&client, &connect(&third));
    assert!(executed(&third) >= before + 40, "{} after {before}", executed(&third));
    assert_eq!(status(&third)["again"]["mismatches"], 0);
    // The old one comes back and does the same.
    drop(old);
    let back = begin("a", &["--join", new.ready().listen.as_str(), "--encoding", "inputs"]);
    wait_until(&new, "two standbys in sync", |status| in_sync(status) == 2);
    assert_same_state(&client, &connect(&back));
}

fn freshet(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program()).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(!text.contains("panicked"), "{text}");
    (output.status.success(), text)
}

/// In the log of a node that does not run, makes another row of one that holds `text`, with a right
/// checksum: as if the primary had done something else than it was told.
fn falsify(directory: &Path, text: &[u8]) {
    let segments = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    for segment in segments.filter(|path| path.extension().is_some_and(|extension| extension == "segment")) {
        let mut bytes = fs::read(&segment).unwrap();
        let Some(place) = bytes.windows(text.len()).position(|window| window == text) else { continue };
        for at in (0..place).step_by(8).rev() {
            let Ok(header) = BlockHeader::peek(&bytes[at..]) else { continue };
            let end = at + header.length as usize;
            let Some(Ok(block)) = bytes.get(at..end).map(|bytes| Block::parse(bytes, header.lsn)) else { continue };
            let mut builder = BlockBuilder::new();
            builder.begin_in(header.stream);
            for (number, record) in block.records().enumerate() {
                let mut row = record.row.to_vec();
                if number == 0 {
                    let place = row.windows(text.len()).position(|window| window == text).expect("it is in the row");
                    row[place] ^= 1;
                }
                let header = record.header;
                builder.push(header.prev, header.fid, header.rid, header.kind, &row).unwrap();
            }
            builder.seal_records();
            let other = builder.finish(header.lsn, header.term, header.kind).to_vec();
            bytes[at..end].copy_from_slice(&other);
            return fs::write(&segment, &bytes).unwrap();
        }
    }
    panic!("no row holds {text:?}");
}

#[test]
fn a_log_is_verified_and_what_differs_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    let more = ["--record-inputs".to_owned()];
    let flags: Vec<_> = open_sql(&directory.path().join("access")).into_iter().chain(more).collect();
    let mut node = start(&path, &flags.iter().map(String::as_str).collect::<Vec<_>>());
    let sql = Sql::connect(&node);
    create(&sql);
    for id in 0..200 {
        sql.run(&format!("INSERT INTO t (id, v) VALUES ({id}, 'number {id:04}')")).unwrap();
    }
    sql.run("UPDATE t SET v = v || '!' WHERE id > 150").unwrap();
    let (_, hash, _) = connect(&node).hash(None, SOON).unwrap();
    drop(sql);
    assert!(node.stop(SOON).unwrap().success(), "{}", node.messages());
    let (log, file) = (path.to_str().unwrap(), directory.path().join("mismatches"));
    let file = file.to_str().unwrap();

    let (whole, text) = freshet(&["verify", log, "--mismatches", file, "--threads", "3"]);
    assert!(whole && text.contains("no mismatch") && text.contains("transactions executed again"), "{text}");
    assert!(text.contains(&format!("state {hash:016x} over")), "it is {hash:016x}: {text}");
    assert!(!Path::new(file).exists(), "there was nothing to be noted");
    let (whole, text) = freshet(&["inspect", "mismatches", file]);
    assert!(!whole && text.contains(file), "{text}");

    falsify(&path, b"number 0100");
    let (whole, text) = freshet(&["inspect", "log", log]);
    assert!(whole && text.contains("no damage"), "its checksums are right: {text}");
    let (whole, text) = freshet(&["verify", log, "--mismatches", file]);
    assert!(!whole && text.contains("MISMATCHES") && text.contains(&format!("inspect mismatches {file}")), "{text}");
    let (whole, text) = freshet(&["inspect", "mismatches", file]);
    assert!(!whole && text.contains("the checksum differs") && text.contains("1 mismatches"), "{text}");
    assert!(text.contains("  was: insert") && text.contains("  came out: insert"), "{text}");
    // Not a file of mismatches.
    let (whole, text) = freshet(&["inspect", "mismatches", directory.path().join("access").to_str().unwrap()]);
    assert!(!whole && text.contains("is no file of mismatches"), "{text}");
}

/// A copy of the program that is another build: its linker has given it another number.
fn other_build(directory: &Path) -> PathBuf {
    let copy = directory.join("other-build");
    let mut bytes = fs::read(program()).unwrap();
    let note = [&[4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0][..], b"GNU\0"].concat();
    let at = bytes.windows(note.len()).position(|window| window == note).expect("the linker has numbered it");
    bytes[at + note.len()] ^= 1;
    fs::write(&copy, bytes).unwrap();
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
    copy
}

#[test]
fn a_standby_of_another_build_takes_bytes_and_reports_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let access = open_sql(&path("access"));
    let access: Vec<&str> = access.iter().map(String::as_str).collect();
    let primary = start(&path("a"), &[&access[..], &["--safety", "2-safe"]].concat());
    let join = ["--join", &primary.ready().listen, "--encoding", "inputs"];
    let standby = NodeProcess::start(&other_build(directory.path()), flags(&path("b"), &join), SOON).unwrap();
    wait_until(&primary, "a standby in sync", |status| in_sync(status) == 1);
    let sql = Sql::connect(&primary);
    create(&sql);
    let again = |key: &str| status(&standby)["again"][key].as_u64().unwrap();
    // Until the standby has noticed, and what it has asked for comes.
    let (mut id, mut as_bytes) = (0, None);
    let deadline = std::time::Instant::now() + SOON;
    while as_bytes.is_none_or(|before| again("came_as_bytes") < before + 20) {
        assert!(std::time::Instant::now() < deadline, "{}", status(&standby)["again"]);
        sql.run(&format!("INSERT INTO t VALUES ({id}, 'row')")).unwrap();
        id += 1;
        if as_bytes.is_none() && again("other_build") > 0 && status(&primary)["standbys"][0]["encoding"] == "bytes" {
            as_bytes = Some(again("came_as_bytes"));
        }
    }
    assert_same_state(&connect(&primary), &connect(&standby));
    assert_eq!((again("executed"), again("mismatches")), (0, 0), "{}", status(&standby)["again"]);
    let (well, shown) = freshet(&["status", "--address", &standby.ready().address]);
    assert!(well && shown.contains("another build has recorded: bytes are asked for"), "{shown}");
    wait_for_message(&standby, "this standby asks for the log as bytes: its primary is another build");
}

/// Whether a file below a directory has this text.
fn has_text(directory: &Path, text: &str) -> bool {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).any(|path| match path.is_dir() {
        true => has_text(&path, text),
        false => fs::read(path).unwrap().windows(text.len()).any(|window| window == text.as_bytes()),
    })
}

/// What is deleted is in no checkpoint any more, however a statement has said it.
#[test]
fn words_of_statements_keep_no_data() {
    let directory = tempfile::tempdir().unwrap();
    let (rows, access) = (directory.path().join("rows"), open_sql(&directory.path().join("access")));
    let kept = ["--record-inputs", "--checkpoint-dir", rows.to_str().unwrap()];
    let access = access.iter().map(String::as_str);
    let node = start(&directory.path().join("a"), &access.chain(kept).collect::<Vec<_>>());
    let sql = Sql::connect(&node);
    sql.run("CREATE TABLE s (id int, t text)").unwrap();
    for form in [
        "(1, 'secret')",
        "(2, $$secret$$)",
        "(3, $a$secret$a$ || 'it''s secret')",
        "(4, E'it\\'s secret')",
        "(5, U&'secret' UESCAPE '!')",
        "(6, N'secret')",
        "(7, 'one'\n 'secret')",
        "(10, 5553331), (11, 555.3331e2), (12, '5553331'::int)",
        "(13, 'x') -- secret",
        "(14, /* /* secret */ ' */ 'y')",
        "(15, 'z'); COMMIT; ALTER ROLE freshet PASSWORD 'secret'; BEGIN",
    ] {
        for _ in 0..3 {
            sql.run(&format!("BEGIN; INSERT INTO s VALUES {form}; COMMIT")).unwrap();
        }
    }
    sql.run("DELETE FROM s").unwrap();
    connect(&node).checkpoint(true, SOON).unwrap();
    for word in ["INSERT INTO s VALUES", "UESCAPE", "N'"] {
        assert!(has_text(&rows, word), "{word}");
    }
    for data in ["secret", "555333", "555.3331", "it'"] {
        assert!(!has_text(&rows, data), "{data}");
    }
}
