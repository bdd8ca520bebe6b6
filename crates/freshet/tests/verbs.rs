//! Nodes that replicate over RDMA: links that are cut, nodes that are killed.
//!
//! Needs RDMA devices that reach one another, and so is ignored elsewhere: `tests/vm/verbs` runs it
//! in a virtual machine.
//!
//! | variable | |
//! |---|---|
//! | `FRESHET_VERBS_DEVICES` | two devices, "rxe1,rxe2"; the address with index 1 is used of each |
//! | `FRESHET_VERBS_CUT`, `FRESHET_VERBS_MEND` | commands that cut the link between them, and mend it |

mod common;

use std::{
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use common::{
    SOON, Sql, Writer, Written, assert_same_state, connect, create_journal, in_sync, missing, open_sql, status,
    wait_for_message, wait_until, write,
};
use freshet::children::NodeProcess;
use freshet_base::Consent;
use freshet_testing::{Missing, skip};
use freshet_workloads::journal::Mark;
use serde_json::Value;

/// A standby with these is a mirror; with memory for what the tests write, and room to grow.
const MIRROR: [&str; 4] = ["--mirror-bytes", "536870912", "--mirror-directory-bytes", "1048576"];

/// Every acknowledged commit is on the standby, and a standby that is away is waited for.
const SAFE: [&str; 4] = ["--safety", "very-safe", "--standby-timeout-ms", "10000"];

fn device(side: usize) -> String {
    let devices = std::env::var("FRESHET_VERBS_DEVICES").expect("FRESHET_VERBS_DEVICES names two devices");
    format!("{}:1:1", devices.split(',').nth(side).expect("FRESHET_VERBS_DEVICES names two devices"))
}

/// Runs the command that a variable holds.
fn run(variable: &str) {
    let command = std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is a command"));
    assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success(), "{command}");
}

/// The link is cut until this is dropped.
struct Cut;

impl Cut {
    fn now() -> Self {
        run("FRESHET_VERBS_CUT");
        Self
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        run("FRESHET_VERBS_MEND");
    }
}

fn primary(directory: &Path, more: &[&str]) -> NodeProcess {
    common::start(directory, &[&["--fabric-kind", "verbs", "--fabric-device", &device(0)], &SAFE[..], more].concat())
}

fn join(primary: &NodeProcess, directory: &Path, side: usize, more: &[&str]) -> NodeProcess {
    let by = ["--join", &primary.ready().listen, "--fabric-kind", "verbs", "--fabric-device", &device(side)];
    common::start(directory, &[&by[..], &SAFE[..], more].concat())
}

struct Pair {
    primary: NodeProcess,
    standby: NodeProcess,
    directory: tempfile::TempDir,
}

fn pair(more: &[&str], standby: &[&str]) -> Pair {
    let directory = tempfile::tempdir().unwrap();
    let primary = primary(&directory.path().join("a"), more);
    let standby = join(&primary, &directory.path().join("b"), 1, &[more, standby].concat());
    wait_until(&primary, "a standby in sync", |status| in_sync(status) == 1);
    create_journal(&connect(&primary));
    Pair { primary, standby, directory }
}

/// Both have the same state, and the marks.
fn assert_equal(primary: &NodeProcess, standby: &NodeProcess, marks: &[Mark]) {
    let (primary, standby) = (connect(primary), connect(standby));
    assert_same_state(&primary, &standby);
    assert_eq!((missing(&primary, marks), missing(&standby, marks)), (vec![], vec![]));
}

#[test]
#[ignore = "needs two RDMA devices: tests/vm/verbs"]
fn commits_reach_the_standby() {
    let pair = pair(&[], &[]);
    let writer = Writer::start(connect(&pair.primary), 1);
    writer.wait_for(500);
    let written = writer.stop();
    assert!(written.open.is_empty() && written.refused.is_empty(), "{written:?}");
    assert_equal(&pair.primary, &pair.standby, &written.acknowledged);
    println!("{} commits over verbs, both nodes have the same state", written.acknowledged.len());
}

#[test]
#[ignore = "needs two RDMA devices: tests/vm/verbs"]
fn what_was_read_back_counts_as_acknowledged() {
    // The appliance method (Query Fresh, section 2.3); what lies under the buffers here is no
    // persistent memory.
    let pair = pair(&["--domain", "pmem"], &["--fabric-appliance", "true"]);
    let writer = Writer::start(connect(&pair.primary), 1);
    writer.wait_for(200);
    let written = writer.stop();
    assert!(written.open.is_empty() && written.refused.is_empty(), "{written:?}");
    assert_equal(&pair.primary, &pair.standby, &written.acknowledged);
    println!("{} commits over verbs, written and read back", written.acknowledged.len());
}

/// Cuts the link under load, and mends it when either node has noticed; returns what was written.
fn cut(pair: &Pair) -> Written {
    let writer = Writer::start(connect(&pair.primary), 1);
    writer.wait_for(200);
    let link = Cut::now();
    let cut = Instant::now();
    // Either's card may give up first; the other node sees that it hangs up.
    let text = loop {
        let text = format!("{:#}\n{:#}", status(&pair.primary), status(&pair.standby));
        if let Some(text) = text.lines().find(|line| line.contains("transport retry counter exceeded")) {
            break text.trim().to_owned();
        }
        assert!(cut.elapsed() < SOON, "{text}");
        thread::sleep(Duration::from_millis(20));
    };
    println!("{:?} after the cut: {text}", cut.elapsed());
    wait_until(&pair.primary, "no standby in sync", |status| in_sync(status) == 0);
    let acknowledged = writer.count();
    drop(link);
    let mended = Instant::now();
    wait_until(&pair.primary, "in sync again", |status| in_sync(status) == 1);
    println!("{:?} after the link was mended the standby is in sync", mended.elapsed());
    writer.wait_for(acknowledged + 200);
    let written = writer.stop();
    assert!(written.open.is_empty() && written.refused.is_empty(), "{written:?}");
    written
}

#[test]
#[ignore = "needs two RDMA devices: tests/vm/verbs"]
fn a_cut_link_costs_no_commit() {
    let pair = pair(&[], &[]);
    let written = cut(&pair);
    assert_equal(&pair.primary, &pair.standby, &written.acknowledged);
    println!("{} commits were acknowledged, none is missing", written.acknowledged.len());
}

/// Kills the standby under load, twice, and then the primary; the standby takes over. Returns what
/// was acknowledged.
fn kill(pair: &mut Pair, standby: &[&str]) -> Vec<Mark> {
    let writer = Writer::start(connect(&pair.primary), 1);
    for _ in 0..2 {
        writer.wait_for(writer.count() + 100);
        pair.standby.kill();
        pair.standby = join(&pair.primary, &pair.directory.path().join("b"), 1, standby);
    }
    writer.wait_for(writer.count() + 100);
    if !standby.is_empty() {
        wait_until(&pair.standby, "a whole mirror", |status| status["whole"] == true);
    }
    pair.primary.kill();
    let written = writer.join();
    let client = connect(&pair.standby);
    client.promote(Consent::Nothing, SOON).unwrap();
    assert_eq!(missing(&client, &written.acknowledged), []);
    println!("{} commits were acknowledged, none is missing after the failover", written.acknowledged.len());
    written.acknowledged
}

/// A node that follows the one that has taken over, over verbs too. Without it, the other commits
/// nothing.
fn follower(pair: &Pair, directory: &str) -> NodeProcess {
    let back = join(&pair.standby, &pair.directory.path().join(directory), 0, &[]);
    wait_until(&pair.standby, "a standby in sync", |status| in_sync(status) == 1);
    back
}

/// The same, with what was acknowledged, and more.
fn follows(pair: &Pair, directory: &str, acknowledged: &[Mark]) {
    let back = follower(pair, directory);
    write(&connect(&pair.standby), 2, 1, SOON).unwrap();
    assert_equal(&pair.standby, &back, acknowledged);
    assert_eq!(status(&back)["role"], "standby");
}

#[test]
#[ignore = "needs two RDMA devices: tests/vm/verbs"]
fn killed_nodes_cost_no_commit() {
    let mut pair = pair(&[], &[]);
    let acknowledged = kill(&mut pair, &[]);
    // The old primary.
    follows(&pair, "a", &acknowledged);
}

/// What a node shows that nothing is written to: how many records, and their hash.
fn shown(node: &NodeProcess) -> (u64, u64) {
    let (_, hash, records) = connect(node).hash(None, SOON).unwrap();
    (hash, records)
}

/// Rows, some of them longer than their neighbours' slots, more than the first region of a mirror
/// has room for; some are changed, and become longer, and some deleted.
fn load(node: &NodeProcess) {
    let sql = Sql::connect(node);
    sql.run("CREATE TABLE t (id bigint PRIMARY KEY, v text)").unwrap();
    for batch in 0..240 {
        let length = |row| if row % 5 == 0 { 30 } else { 2800 };
        let rows = (0..25).map(|row| format!("({}, '{}')", batch * 25 + row, "row".repeat(length(row))));
        sql.run(&format!("INSERT INTO t VALUES {}", rows.collect::<Vec<_>>().join(", "))).unwrap();
    }
    for id in (0..6000).step_by(40) {
        sql.run(&format!("UPDATE t SET v = '{}' WHERE id = {id}", "new".repeat(6000))).unwrap();
        sql.run(&format!("DELETE FROM t WHERE id = {}", id + 1)).unwrap();
    }
}

#[test]
#[ignore = "needs two RDMA devices: tests/vm/verbs"]
fn a_mirror_grows_and_takes_over_with_all_that_the_primary_had() {
    let directory = tempfile::tempdir().unwrap();
    let sql = open_sql(&directory.path().join("access"));
    let sql: Vec<_> = sql.iter().map(String::as_str).collect();
    let mut pair = pair(&sql, &MIRROR);
    let granted = |status: &Value| status["granted_bytes"].as_u64().unwrap();
    let of_empty = status(&pair.standby);
    let writer = Writer::start(connect(&pair.primary), 1);
    let begun = Instant::now();
    load(&pair.primary);
    let written = writer.stop();
    assert!(written.open.is_empty() && written.refused.is_empty(), "{written:?}");
    let (of_primary, of_mirror) = (status(&pair.primary), status(&pair.standby));
    let fed = &of_primary["standbys"][0];
    assert_eq!((&fed["mirror"], &fed["fabric"], &fed["one_sided"]), (&true.into(), &"verbs".into(), &true.into()));
    assert_eq!((&of_mirror["fabric"], &of_mirror["one_sided"]), (&"verbs".into(), &true.into()));
    // By more than one region.
    assert!(granted(&of_mirror) >= granted(&of_empty) + (64 << 20), "{of_mirror:#}");
    println!(
        "{} bytes in a mirror's memory, written over verbs within {:?}; its thread had used {}, and has {}",
        granted(&of_mirror),
        begun.elapsed(),
        of_empty["cpu"],
        of_mirror["cpu"]
    );
    takes_over(&mut pair, &written.acknowledged);
}

/// The mirror succeeds the primary, which is killed, with all that it had; another node follows it.
fn takes_over(pair: &mut Pair, acknowledged: &[Mark]) {
    wait_until(&pair.standby, "a whole mirror", |status| status["whole"] == true);
    assert_same_state(&connect(&pair.primary), &connect(&pair.standby));
    let before = shown(&pair.primary);
    pair.primary.kill();
    let begun = Instant::now();
    connect(&pair.standby).promote(Consent::Nothing, SOON).unwrap();
    println!("{:?} after the kill the mirror has taken over", begun.elapsed());
    // A node without anything: no log leads on from a mirror.
    let other = follower(pair, "c");
    assert_eq!(shown(&pair.standby), before);
    assert_equal(&pair.standby, &other, acknowledged);
}

#[test]
#[ignore = "needs two RDMA devices: tests/vm/verbs"]
fn a_cut_link_costs_a_mirror_no_commit() {
    let mut pair = pair(&[], &MIRROR);
    let written = cut(&pair);
    takes_over(&mut pair, &written.acknowledged);
    println!("{} commits were acknowledged, none is missing in the mirror", written.acknowledged.len());
}

/// Mirrors that were killed begin with empty memory, and are filled again.
#[test]
#[ignore = "needs two RDMA devices: tests/vm/verbs"]
fn killed_mirrors_and_their_primary_cost_no_commit() {
    let mut pair = pair(&[], &MIRROR);
    let acknowledged = kill(&mut pair, &MIRROR);
    follows(&pair, "c", &acknowledged);
}

/// A primary stands still with work under way, the mirror takes over, and the primary continues as
/// if nothing had happened. It continues when the mirror has said `resumed_at`, or, without that,
/// when the mirror leads. With `cut`, the link is cut before, and mended when the mirror has
/// recovered its memory: so the primary's card still has things to send.
fn zombie(resumed_at: Option<&str>, cut: bool) {
    let pair = pair(&[], &MIRROR);
    let writer = Writer::start(connect(&pair.primary), 1);
    writer.wait_for(200);
    wait_until(&pair.standby, "a whole mirror", |status| status["whole"] == true);
    let link = cut.then(Cut::now);
    wait_until(&pair.primary, "something is on its way", |status| {
        let fed = &status["standbys"][0];
        fed["shipped"] != fed["acked"]
    });
    pair.primary.pause();
    let client = connect(&pair.standby);
    let begun = Instant::now();
    let promoting = thread::spawn(move || client.promote(Consent::Nothing, SOON));
    wait_for_message(&pair.standby, RECOVERED);
    drop(link);
    if let Some(text) = resumed_at {
        wait_for_message(&pair.standby, text);
        pair.primary.resume();
    }
    let promoted = promoting.join().unwrap();
    println!("{:?} after the primary stood still: {promoted:?}", begun.elapsed());
    if let Err(refused) = promoted {
        // The primary has answered. What it has beyond the mirror's memory was not acknowledged.
        assert!(refused.to_string().contains("has more than this one"), "{refused}");
        assert_eq!(resumed_at, Some(RECOVERED));
        connect(&pair.standby).promote(Consent::Loss, SOON).unwrap();
    }
    if resumed_at.is_none() {
        pair.primary.resume();
    }
    let written = writer.join();
    assert!(!written.open.is_empty() || !written.refused.is_empty(), "nothing was under way");
    // The former primary has kept its log up to where the mirror's memory ended, and follows.
    wait_until(&pair.standby, "a standby in sync", |status| in_sync(status) == 1);
    write(&connect(&pair.standby), 2, 1, SOON).unwrap();
    assert_equal(&pair.standby, &pair.primary, &written.acknowledged);
    println!("{} commits were acknowledged, none is missing, and nothing came late", written.acknowledged.len());
}

/// What a mirror says when its memory is its own, and is a state of the log.
const RECOVERED: &str = "the mirror is recovered";
/// What it says before it makes a database of its memory.
const DECIDED: &str = "enough nodes have promised the term";

#[test]
#[ignore = "needs two RDMA devices: tests/vm/verbs"]
fn what_a_zombie_writes_late_does_not_land_in_a_mirror() {
    for resumed_at in [Some(RECOVERED), Some(DECIDED), None] {
        zombie(resumed_at, false);
    }
}

#[test]
#[ignore = "needs two RDMA devices: tests/vm/verbs"]
fn what_a_zombies_card_sends_late_does_not_land_in_a_mirror() {
    zombie(Some(DECIDED), true);
    zombie(None, true);
}

#[test]
fn a_machine_without_rdma_names_what_is_missing() {
    if std::env::var_os("FRESHET_VERBS_DEVICES").is_some() {
        return skip(Missing::Hardware, "a machine without RDMA", "this one has it");
    }
    let directory = tempfile::tempdir().unwrap();
    let primary = common::start(&directory.path().join("a"), &[]);
    let flags = ["--join", &primary.ready().listen, "--fabric-kind", "verbs", "--fabric-device", "none:1:0"];
    let text = common::refused(&directory.path().join("b"), &flags);
    assert!(text.contains("fabric verbs"), "{text}");
}
