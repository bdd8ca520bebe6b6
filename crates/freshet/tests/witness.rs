//! Two nodes with data and a witness: either of the two fails, and the other continues by itself.

mod common;

use std::path::Path;

use common::{
    Archive, SOON, Writer, connect, create_journal, in_sync, missing, program, refused, run, start, status, wait_until,
    wait_until_either, wait_until_writable, write,
};
use freshet::children::{NodeProcess, SpawnError};
use serde_json::Value;

const AUTOMATIC: [&str; 4] = ["--failover", "automatic", "--standby-timeout-ms", "1000"];

fn node(directory: &Path, more: &[&str]) -> NodeProcess {
    start(directory, &[&AUTOMATIC[..], more].concat())
}

fn witness_flags(directory: &Path, more: &[&str]) -> Vec<String> {
    let listen = freshet_testing::ports::reserve().unwrap().to_string();
    let own = ["--directory", directory.to_str().unwrap(), "--listen", &listen];
    // Of two the last counts.
    own.iter().chain(more).map(ToString::to_string).collect()
}

fn witness(directory: &Path, more: &[&str]) -> NodeProcess {
    NodeProcess::start_witness(&program(), witness_flags(directory, more), SOON).unwrap()
}

fn has_witness(status: &Value) -> bool {
    status["witness"]["connected"] == true && status["witness"]["votes"] == true && in_sync(status) == 1
}

/// Two nodes with data, and their witness; their directories are "a", "b" and "w".
fn pair(directory: &Path) -> [NodeProcess; 3] {
    let path = |name: &str| directory.join(name);
    let a = node(&path("a"), &[]);
    let b = node(&path("b"), &["--join", &a.ready().listen]);
    // Any node says where the primary is.
    let w = witness(&path("w"), &["--join", &b.ready().listen]);
    wait_until(&a, "a pair with its witness", has_witness);
    create_journal(&connect(&a));
    [a, b, w]
}

#[test]
fn the_standby_takes_over_and_the_old_primary_follows_it() {
    let directory = tempfile::tempdir().unwrap();
    let [mut a, b, w] = pair(directory.path());
    let (_, shown) = run(&["members", &a.ready().address]);
    assert!(shown.contains("witness") && shown.contains(&w.ready().listen), "{shown}");
    assert_eq!(status(&a)["failover"]["lacks"], Value::Null, "{:#}", status(&a)["failover"]);
    let writer = Writer::start(connect(&a), 1);
    writer.wait_for(200);
    a.kill();
    let written = writer.join();
    wait_until_writable(&b, 2);
    assert_eq!(missing(&connect(&b), &written.acknowledged), []);
    // The witness is asked by the new primary, which was told of it by the old one.
    wait_until(&b, "the witness votes", |status| status["witness"]["votes"] == true);
    let back = node(&directory.path().join("a"), &[]);
    wait_until(&b, "a pair with its witness", has_witness);
    assert_eq!(status(&back)["role"], "standby");
    assert_eq!(missing(&connect(&back), &written.acknowledged), []);
}

#[test]
fn the_primary_continues_alone_and_the_standby_does_not_lead_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let [mut a, mut b, _w] = pair(directory.path());
    b.kill();
    wait_until_writable(&a, 2);
    wait_until(&a, "it is alone", |status| status["standing"]["standing"] == "degraded");
    write(&connect(&a), 3, 1, SOON).unwrap();
    let alone = status(&a);
    let (counts, lacks) = (alone["node"].as_str().unwrap(), alone["failover"]["lacks"].as_str().unwrap());
    assert!(lacks.contains("of 3 nodes that count only 2 are in sync"), "{lacks}");
    a.kill();
    // What was written last is on that node alone: the other waits for it, though it has the
    // witness's answer.
    let b = node(&directory.path().join("b"), &[]);
    let refused = connect(&b).promote(freshet_base::Consent::Nothing, SOON).unwrap_err().to_string();
    let names_it = |why: &str| why.contains("is none of those") && why.contains(&format!("(nodes {counts})"));
    assert!(names_it(&refused), "{refused}");
    wait_until(&b, "it stands, too", |status| status["failover"]["cannot_lead"].as_str().is_some_and(names_it));
    let a = node(&directory.path().join("a"), &[]);
    wait_until(&a, "a pair with its witness", has_witness);
    wait_until(&b, "it follows", |status| status["failover"]["cannot_lead"].is_null());
    let mark = freshet_workloads::journal::Mark { client: 3, sequence: 1 };
    assert_eq!((missing(&connect(&a), &[mark]), missing(&connect(&b), &[mark])), (vec![], vec![]));
}

#[test]
fn a_lost_witness_is_replaced_at_its_address() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b, mut w] = pair(directory.path());
    w.kill();
    wait_until(&a, "the witness is away", |status| status["witness"]["connected"] == false);
    // Both nodes with data are there: nothing waits for it.
    write(&connect(&a), 2, 1, SOON).unwrap();
    let again = ["--join", &a.ready().listen];
    let elsewhere = NodeProcess::start_witness(&program(), witness_flags(&directory.path().join("v"), &again), SOON);
    let elsewhere = elsewhere.unwrap();
    common::wait_for_message(&elsewhere, "this cluster has the witness");
    drop(elsewhere);
    let at = ["--listen", &w.ready().listen, "--join", &a.ready().listen];
    let new = witness(&directory.path().join("x"), &at);
    wait_until(&a, "another witness votes", |status| has_witness(status) && status["witness"]["node"] != Value::Null);
    let (_, shown) = run(&["members", &b.ready().address]);
    assert_eq!(shown.matches("witness").count(), 1, "{shown}");
    drop(new);
    // The one of before has no word any more, and is told so.
    let old =
        witness(&directory.path().join("w"), &["--listen", &freshet_testing::ports::reserve().unwrap().to_string()]);
    common::wait_for_message(&old, "this cluster has the witness");
}

#[test]
fn a_witness_and_a_node_do_not_take_one_anothers_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let a = node(&path("a"), &[]);
    let w = witness(&path("w"), &["--join", &a.ready().listen]);
    // With one node that has data it votes as well.
    wait_until(&a, "a witness", |status| status["witness"]["votes"] == true);
    let (a_listens, w_listens) = (a.ready().listen.clone(), w.ready().listen.clone());
    drop((a, w));
    assert!(refused(&path("w"), &["--join", &a_listens]).contains("is the directory of a witness"));
    let taken = NodeProcess::start_witness(&program(), witness_flags(&path("a"), &["--join", &w_listens]), SOON);
    let Err(SpawnError::Ended { messages, .. }) = taken else { panic!("{taken:?}") };
    assert!(messages.contains("is the directory of a node with data"), "{messages}");
    let new = NodeProcess::start_witness(&program(), witness_flags(&path("y"), &[]), SOON);
    let Err(SpawnError::Ended { messages, .. }) = new else { panic!("{new:?}") };
    assert!(messages.contains("--join"), "{messages}");
}

/// All three start again under load, one after the other. No outcome is open, and nothing is lost.
/// What follows them and is none of them, as an archive, is not asked to.
#[test]
fn all_nodes_start_again_one_after_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b, w] = pair(directory.path());
    let refused = run(&["restart", "--rolling", &b.ready().address]);
    assert!(refused.0 == Some(1) && refused.1.contains("ask that one"), "{refused:?}");
    let mut archive = Archive::start(&directory.path().join("archive"), &a.ready().listen, &[]);
    archive.wait_until_ready();
    let writer = Writer::start(connect(&a), 1);
    writer.wait_for(100);
    let (code, shown) = run(&["restart", "--rolling", &a.ready().address]);
    assert!(code == Some(0) && shown.ends_with("all nodes have started again\n"), "{code:?}: {shown}");
    let written = writer.join();
    // Sessions of the old primary end, none of them within a commit.
    assert!(written.open.iter().all(|(_, why)| why.starts_with("57P01")), "{shown}: {:?}", written.open);
    for node in [&a, &b, &w] {
        // Also one that was leaving already, to follow the other: an order is never lost.
        common::wait_for_message(node, "starts again, as an operator wants it");
    }
    let leads = wait_until(&b, "a pair with its witness", has_witness);
    assert_eq!((leads["role"].as_str(), leads["pid"].as_u64()), (Some("primary"), Some(b.pid().into())));
    for node in [&a, &b] {
        assert_eq!(missing(&connect(node), &written.acknowledged), []);
    }
    // One by itself, and one by the word of another.
    let (code, shown) = run(&["restart", &a.ready().address]);
    assert_eq!(code, Some(0), "{shown}");
    wait_until(&b, "a pair with its witness", has_witness);
    let (code, shown) = run(&["restart", "--node", "nobody", &b.ready().address]);
    assert!(code == Some(1) && shown.contains("no node of the cluster"), "{shown}");
}

/// The new witness is certified by the standby, and no primary is there to hear of it.
#[test]
fn a_witness_that_is_replaced_while_no_primary_is_there_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let [mut a, b, mut w] = pair(directory.path());
    let lost = status(&a)["witness"]["node"].clone();
    w.kill();
    wait_until(&a, "the pair is one without a witness", |status| {
        status["witness"]["votes"] == false && status["in_sync_set"]["before"] == Value::Array(vec![])
    });
    a.kill();
    let at = ["--listen", &w.ready().listen, "--join", &b.ready().listen];
    let _new = witness(&directory.path().join("x"), &at);
    let a = node(&directory.path().join("a"), &["--listen", &a.ready().listen]);
    // Either of the two may lead.
    let voted = |status: &Value| has_witness(status) && status["witness"]["node"] != lost;
    let (leads, _) = wait_until_either(&[&a, &b], "the new witness votes", voted);
    // Both nodes are called by their names.
    let lost = lost.as_str().unwrap();
    let (_, shown) = run(&["members", &leads.ready().address]);
    assert!(shown.matches("witness").count() == 1 && !shown.contains(lost), "{shown}");
}

/// It knows whom to ask for its cluster, also where no primary has asked it before; or says that it
/// does not.
#[test]
fn a_witness_remembers_whom_it_was_to_join() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let [a, b, mut w] = pair(directory.path());
    let refused = witness(&path("v"), &["--join", &b.ready().listen]);
    common::wait_for_message(&refused, "this cluster has the witness");
    let listen = refused.ready().listen.clone();
    drop(refused);
    let again = witness(&path("v"), &["--listen", &listen]);
    common::wait_for_message(&again, "this cluster has the witness");
    w.kill();
    let (code, shown) = run(&["remove", "--gone", "--address", &a.ready().address, &w.ready().listen]);
    assert_eq!(code, Some(0), "{shown}");
    wait_until(&a, "the other one votes", has_witness);
    let everywhere =
        NodeProcess::start_witness(&program(), witness_flags(&path("w"), &["--listen", "0.0.0.0:0"]), SOON);
    let Err(SpawnError::Ended { messages, .. }) = everywhere else { panic!("{everywhere:?}") };
    assert!(messages.contains("--advertise"), "{messages}");
}
