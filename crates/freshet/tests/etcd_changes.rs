//! Two nodes with data, and etcd in the place of their witness: an etcd that loses a member, and
//! the change from a witness to etcd and back.

mod common;
mod etcd_server;

use common::{
    SOON, Writer, connect, create_journal, missing, program, run, start, status, wait_until, wait_until_writable, write,
};
use etcd_server::{AUTOMATIC, Server, is_whole, node};
use freshet::children::NodeProcess;
use freshet_testing::ports::reserve;

/// The one that leads them may be the one that is lost.
#[test]
fn one_of_three_members_of_etcd_may_be_lost() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut servers) = Server::start_members(directory.path(), 3) else { return };
    let etcd = servers.iter().map(Server::endpoint).collect::<Vec<_>>().join(",");
    let path = |name: &str| directory.path().join(name);
    let mut a = node(&path("a"), &etcd, &[]);
    let mut b = node(&path("b"), &etcd, &["--join", &a.ready().listen]);
    wait_until(&a, "a pair with etcd", is_whole);
    create_journal(&connect(&a));
    let mut all = Vec::new();
    // Each member is lost once, and each time the primary with it.
    for (client, server) in (1..).zip(&mut servers) {
        let writer = Writer::start(connect(&a), client);
        writer.wait_for(100);
        server.kill();
        wait_until(&a, "the others vote", is_whole);
        writer.wait_for(writer.count() + 100);
        let listen = a.ready().listen.clone();
        a.kill();
        all.extend(writer.join().acknowledged);
        wait_until_writable(&b, 10 + client);
        server.run();
        let back = node(&path(if client % 2 == 1 { "a" } else { "b" }), &etcd, &["--listen", &listen]);
        a = std::mem::replace(&mut b, back);
        wait_until(&a, "a pair with etcd", is_whole);
        assert_eq!(status(&b)["role"], "standby");
    }
    for node in [&a, &b] {
        wait_until(node, "all is visible", |_| missing(&connect(node), &all).is_empty());
    }
}

/// Two nodes by their names; the first one leads.
type Pair = [(&'static str, NodeProcess); 2];

/// Blocks until the pair has the witness at this address, whichever of the two leads.
fn wait_for_witness(pair: &mut Pair, address: &str) {
    if status(&pair[0].1)["role"] != "primary" {
        pair.swap(0, 1);
    }
    wait_until(&pair[0].1, "a pair with that witness", |status| {
        is_whole(status) && status["witness"]["address"].as_str().is_some_and(|it| it.contains(address))
    });
}

/// As docs/operations.md says it, and back.
#[test]
fn etcd_takes_the_place_of_a_witness_and_gives_it_back() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(directory.path()) else { return };
    let path = |name: &str| directory.path().join(name);
    let settings = path("freshet.toml");
    std::fs::write(&settings, "").unwrap();
    let starts = |name: &'static str, more: &[&str]| {
        let flags = [&AUTOMATIC[..], &["--config", settings.to_str().unwrap()], more].concat();
        (name, start(&path(name), &flags))
    };
    let witness = |name: &str, of: &NodeProcess| {
        let (own, listen) = (path(name), reserve().unwrap().to_string());
        let flags = ["--directory", own.to_str().unwrap(), "--listen", &listen, "--join", &of.ready().listen];
        NodeProcess::start_witness(&program(), flags.map(str::to_owned), SOON).unwrap()
    };
    let orders = |words: &[&str]| {
        let (code, shown) = run(words);
        assert_eq!(code, Some(0), "{words:?}: {shown}");
    };
    let mut marks = Vec::new();
    // What the witness is for: the primary is lost, and the other node leads by itself.
    let mut takes_over = |pair: &mut Pair, address: &str| {
        let mark = freshet_workloads::journal::Mark { client: 1, sequence: marks.len() as u64 + 1 };
        write(&connect(&pair[0].1), mark.client, mark.sequence, SOON).unwrap();
        marks.push(mark);
        let listen = pair[0].1.ready().listen.clone();
        pair[0].1.kill();
        wait_until_writable(&pair[1].1, 10 + mark.sequence);
        assert_eq!(missing(&connect(&pair[1].1), &marks), []);
        pair[0] = starts(pair[0].0, &["--listen", &listen]);
        wait_for_witness(pair, address);
    };
    let a = starts("a", &[]);
    let b = starts("b", &["--join", &a.1.ready().listen]);
    let process = witness("w", &a.1);
    let mut pair = [a, b];
    wait_for_witness(&mut pair, &process.ready().listen);
    create_journal(&connect(&pair[0].1));
    // To etcd.
    std::fs::write(&settings, format!("[witness]\netcd = [\"{}\"]\n", server.endpoint())).unwrap();
    orders(&["restart", "--rolling", &pair[0].1.ready().address]);
    wait_for_witness(&mut pair, &process.ready().listen);
    orders(&["remove", "--address", &pair[0].1.ready().address, &process.ready().listen]);
    wait_for_witness(&mut pair, &server.endpoint());
    drop(process);
    takes_over(&mut pair, &server.endpoint());
    // And back.
    let etcd = status(&pair[0].1)["witness"]["node"].as_str().unwrap().to_owned();
    orders(&["remove", "--gone", "--address", &pair[0].1.ready().address, &etcd]);
    std::fs::write(&settings, "").unwrap();
    orders(&["restart", "--rolling", &pair[0].1.ready().address]);
    if status(&pair[0].1)["role"] != "primary" {
        pair.swap(0, 1);
    }
    let process = witness("x", &pair[0].1);
    wait_for_witness(&mut pair, &process.ready().listen);
    takes_over(&mut pair, &process.ready().listen);
}
