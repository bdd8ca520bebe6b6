//! Two nodes with data, and etcd in the place of their witness: Debian's package etcd-server.

mod common;
mod etcd_server;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    time::Instant,
};

use common::{
    SOON, Writer, connect, create_journal, in_sync, missing, run, status, wait_until, wait_until_writable, write,
};
use etcd_server::{ASKS, Server, is_whole, node, votes};
use freshet::children::NodeProcess;
use freshet_testing::ports::reserve;
use serde_json::Value;

/// Two nodes with data, "a" and "b", and etcd.
fn pair(directory: &Path, endpoints: impl Fn(&Server) -> String) -> Option<(NodeProcess, NodeProcess, Server)> {
    let server = Server::start(directory)?;
    let etcd = endpoints(&server);
    let a = node(&directory.join("a"), &etcd, &[]);
    let b = node(&directory.join("b"), &etcd, &["--join", &a.ready().listen]);
    wait_until(&a, "a pair with etcd", is_whole);
    create_journal(&connect(&a));
    Some((a, b, server))
}

#[test]
fn the_standby_takes_over_and_the_old_primary_follows_it() {
    let directory = tempfile::tempdir().unwrap();
    let Some((mut a, b, server)) = pair(directory.path(), Server::endpoint) else { return };
    let etcd = server.endpoint();
    let (_, shown) = run(&["members", &a.ready().address]);
    assert!(shown.contains("witness") && shown.contains(&etcd), "{shown}");
    let writer = Writer::start(connect(&a), 1);
    writer.wait_for(200);
    a.kill();
    let killed = Instant::now();
    let written = writer.join();
    wait_until_writable(&b, 2);
    println!("writable again after {:?}", killed.elapsed());
    assert_eq!(missing(&connect(&b), &written.acknowledged), []);
    wait_until(&b, "etcd votes", votes);
    let back = node(&directory.path().join("a"), &etcd, &[]);
    wait_until(&b, "a pair with etcd", is_whole);
    assert_eq!(status(&back)["role"], "standby");
    assert_eq!(missing(&connect(&back), &written.acknowledged), []);
}

#[test]
fn the_primary_continues_alone_and_the_standby_does_not_lead_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let Some((mut a, mut b, server)) = pair(directory.path(), Server::endpoint) else { return };
    let path = |name: &str| directory.path().join(name);
    b.kill();
    wait_until_writable(&a, 2);
    wait_until(&a, "it is alone", |status| status["standing"]["standing"] == "degraded");
    write(&connect(&a), 3, 1, SOON).unwrap();
    a.kill();
    // What was written last is on that node alone: the other waits for it, though etcd answers.
    let again =
        |name: &str, before: &NodeProcess| node(&path(name), &server.endpoint(), &["--listen", &before.ready().listen]);
    let b = again("b", &b);
    let refused = connect(&b).promote(freshet_base::Consent::Nothing, SOON).unwrap_err().to_string();
    assert!(refused.contains("is none of those"), "{refused}");
    let a = again("a", &a);
    wait_until(&a, "a pair with etcd", is_whole);
    let mark = freshet_workloads::journal::Mark { client: 3, sequence: 1 };
    assert_eq!((missing(&connect(&a), &[mark]), missing(&connect(&b), &[mark])), (vec![], vec![]));
    assert_eq!(status(&b)["role"], "standby");
}

/// Without etcd the two are a pair without a witness. It comes back with what it had, or stands
/// still for a while.
#[test]
fn the_pair_continues_while_etcd_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let Some((a, b, mut server)) = pair(directory.path(), Server::endpoint) else { return };
    let client = connect(&a);
    let mut sequence = 0;
    let mut writes = || {
        sequence += 1;
        write(&client, 2, sequence, SOON).unwrap();
    };
    let witness = status(&a)["witness"]["node"].clone();
    server.kill();
    wait_until(&a, "etcd is away", |status| status["witness"]["connected"] == false);
    common::wait_for_message(&a, "does not answer");
    writes();
    wait_until(&a, "a pair without a witness", |status| status["witness"]["votes"] == false && in_sync(status) == 1);
    writes();
    server.run();
    wait_until(&a, "etcd votes again", is_whole);
    server.signal("-STOP");
    wait_until(&a, "etcd stands still", |status| status["witness"]["connected"] == false);
    writes();
    server.signal("-CONT");
    let whole = wait_until(&a, "etcd votes again", is_whole);
    writes();
    assert_eq!((&whole["witness"]["node"], status(&b)["role"].as_str()), (&witness, Some("standby")));
}

#[test]
fn both_nodes_start_again_in_either_order() {
    let directory = tempfile::tempdir().unwrap();
    let Some((mut a, mut b, server)) = pair(directory.path(), Server::endpoint) else { return };
    let etcd = server.endpoint();
    for first in ["a", "b"] {
        let at = [&a, &b].map(|node| node.ready().listen.clone());
        let writer = Writer::start(connect(&a), if first == "a" { 1 } else { 2 });
        writer.wait_for(50);
        b.kill();
        a.kill();
        let acknowledged = writer.join().acknowledged;
        let starts = |name: &str, listen: &str| node(&directory.path().join(name), &etcd, &["--listen", listen]);
        // Of two that start, one may wait for the other.
        (a, b) = std::thread::scope(|scope| {
            let later = |name: &'static str, listen: &str| {
                let listen = listen.to_owned();
                scope.spawn(move || starts(name, &listen))
            };
            if first == "a" {
                let a = later("a", &at[0]);
                let b = later("b", &at[1]);
                (a.join().unwrap(), b.join().unwrap())
            } else {
                let b = later("b", &at[1]);
                let a = later("a", &at[0]);
                (a.join().unwrap(), b.join().unwrap())
            }
        });
        wait_until(&a, "a pair with etcd", |status| status["role"] == "standby" || is_whole(status));
        if status(&a)["role"] == "standby" {
            std::mem::swap(&mut a, &mut b);
        }
        wait_until(&a, "a pair with etcd", is_whole);
        for node in [&a, &b] {
            assert_eq!(missing(&connect(node), &acknowledged), []);
        }
    }
}

/// What was promised in it is gone: it is another witness from then on.
#[test]
fn a_value_that_is_gone_or_set_back_is_another_witness() {
    let directory = tempfile::tempdir().unwrap();
    let Some((a, mut b, mut server)) = pair(directory.path(), Server::endpoint) else { return };
    let key = format!("/freshet/{}/witness", status(&a)["cluster"].as_str().unwrap());
    let kept = |server: &Server| -> Value {
        let value = server.reader().read(&key, ASKS).unwrap().value;
        value.map_or(Value::Null, |value| serde_json::from_slice(&value).unwrap())
    };
    let incarnation = |value: Value| value["state"]["incarnation"].as_u64();
    // Nothing, a value of before that, and one that has seen fewer steps.
    let (path, mut incarnations) = (|name: &str| directory.path().join(name), vec![incarnation(kept(&server))]);
    let mut sequence = 0;
    let mut is_another = |server: &Server| {
        wait_until(&a, "another value votes", |status| {
            let present = incarnation(kept(server));
            is_whole(status) && present.is_some() && !incarnations.contains(&present)
        });
        incarnations.push(incarnation(kept(server)));
        sequence += 1;
        write(&connect(&a), 2, sequence, SOON).unwrap();
    };
    server.move_to(&path("former"));
    server.run();
    is_another(&server);
    server.move_to(&path("other"));
    std::fs::rename(path("former"), &server.directory).unwrap();
    server.run();
    is_another(&server);
    server.kill();
    assert!(Command::new("cp").arg("-r").args([&server.directory, &path("earlier")]).status().unwrap().success());
    server.run();
    wait_until(&a, "a pair with etcd", is_whole);
    let (listen, step) = (b.ready().listen.clone(), kept(&server)["step"].as_u64());
    b.kill();
    wait_until(&a, "it is alone", |status| status["standing"]["standing"] == "degraded");
    let b = node(&path("b"), &server.endpoint(), &["--listen", &listen]);
    wait_until(&a, "a pair with etcd", |status| is_whole(status) && kept(&server)["step"].as_u64() > step);
    server.move_to(&path("later"));
    std::fs::rename(path("earlier"), &server.directory).unwrap();
    server.run();
    is_another(&server);
    common::wait_for_message(&a, "etcd was set back");
    assert_eq!((status(&a)["role"].as_str(), status(&b)["role"].as_str()), (Some("primary"), Some("standby")));
}

/// It says so before its primary is lost.
#[test]
fn a_standby_reports_that_it_cannot_read_etcd() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(directory.path()) else { return };
    let a = node(&directory.path().join("a"), &server.endpoint(), &[]);
    let nowhere = format!("http://{}", freshet_testing::ports::reserve().unwrap());
    let join = ["--join", &a.ready().listen];
    let mut b = node(&directory.path().join("b"), &nowhere, &join);
    wait_until(&a, "a pair with etcd", is_whole);
    let lacks = |status: &Value| status["failover"]["lacks"].as_str().is_some_and(|why| why.contains("etcd "));
    wait_until(&b, "it cannot read etcd", lacks);
    b.kill();
    let b = node(&directory.path().join("b"), &server.endpoint(), &[]);
    wait_until(&a, "a pair with etcd", is_whole);
    wait_until(&b, "nothing is missing", |status| status["failover"]["lacks"].is_null());
}

/// Takes connections, and says nothing.
fn mute() -> (TcpListener, String) {
    let listener = TcpListener::bind(reserve().unwrap()).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    (listener, endpoint)
}

#[test]
fn an_endpoint_that_hangs_is_left_for_another_one() {
    let directory = tempfile::tempdir().unwrap();
    let (_mute, mute) = mute();
    let nothing = format!("http://{}", reserve().unwrap());
    let endpoints = |server: &Server| format!("{mute},{nothing},{}", server.endpoint());
    let Some((mut a, b, _server)) = pair(directory.path(), endpoints) else { return };
    let writer = Writer::start(connect(&a), 1);
    writer.wait_for(100);
    a.kill();
    let written = writer.join();
    wait_until_writable(&b, 2);
    assert_eq!(missing(&connect(&b), &written.acknowledged), []);
}

/// Carries bytes to a node, until it is cut.
struct Cable {
    address: SocketAddr,
    /// What it carries; nothing while it is cut.
    carries: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Cable {
    fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(reserve().unwrap()).unwrap();
        let (address, carries) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Some(Vec::new()))));
        let shared = Arc::clone(&carries);
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let mut carries = shared.lock().unwrap();
                let (Some(streams), Ok(far)) = (carries.as_mut(), TcpStream::connect(target)) else { continue };
                let pairs =
                    [(&near, &far), (&far, &near)].map(|(from, to)| [from, to].map(|it| it.try_clone().unwrap()));
                for [mut from, mut to] in pairs {
                    std::thread::spawn(move || carry(&mut from, &mut to));
                }
                streams.extend([near, far]);
            }
        });
        Self { address, carries }
    }

    fn cut(&self) {
        for stream in self.carries.lock().unwrap().take().into_iter().flatten() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    fn mend(&self) {
        *self.carries.lock().unwrap() = Some(Vec::new());
    }
}

fn carry(from: &mut TcpStream, to: &mut TcpStream) {
    let mut bytes = [0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// Each of the two takes the other for lost, and both reach etcd.
#[test]
fn two_that_are_cut_from_each_other_do_not_both_lead() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(directory.path()) else { return };
    let path = |name: &str| directory.path().join(name);
    let at = [(); 2].map(|()| reserve().unwrap());
    let cables = at.map(Cable::to);
    let starts = |name: &str, which: usize, more: &[&str]| {
        let (listen, advertise) = (at[which].to_string(), cables[which].address.to_string());
        let own = ["--listen", &listen, "--advertise", &advertise];
        node(&path(name), &server.endpoint(), &[&own[..], more].concat())
    };
    let a = starts("a", 0, &[]);
    // It is let in without a token as a process of this user.
    let b = starts("b", 1, &["--join", &at[0].to_string()]);
    wait_until(&a, "a pair with etcd", is_whole);
    drop(b);
    let b = starts("b", 1, &["--join", &cables[0].address.to_string()]);
    wait_until(&a, "a pair with etcd", is_whole);
    create_journal(&connect(&a));
    let term = status(&a)["term"].clone();
    let writer = Writer::start(connect(&a), 1);
    writer.wait_for(100);
    cables.iter().for_each(Cable::cut);
    wait_until(&a, "it is alone", |status| status["standing"]["standing"] == "degraded");
    writer.wait_for(writer.count() + 100);
    // It stands again and again, and hears from etcd that the primary lives.
    assert_eq!((status(&b)["role"].as_str(), &status(&a)["term"]), (Some("standby"), &term));
    cables.iter().for_each(Cable::mend);
    wait_until(&a, "a pair with etcd", is_whole);
    let written = writer.stop();
    assert_eq!((written.open.len(), written.refused.len()), (0, 0), "{written:?}");
    for node in [&a, &b] {
        wait_until(node, "all is visible", |_| missing(&connect(node), &written.acknowledged).is_empty());
    }
    assert_eq!(status(&a)["term"], term);
}

/// Under load. A user and its password let the nodes in.
#[test]
fn nodes_start_again_one_after_the_other_and_etcd_knows_them_by_a_password() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(directory.path()) else { return };
    server.demand_passwords();
    let user = directory.path().join("user");
    std::fs::write(&user, "freshet:secret:with colon\n").unwrap();
    std::fs::set_permissions(&user, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let file = user.to_str().unwrap();
    let starts = |name: &str, more: &[&str]| {
        let flags = [&["--witness-etcd-user-file", file][..], more].concat();
        node(&directory.path().join(name), &server.endpoint(), &flags)
    };
    let a = starts("a", &[]);
    let b = starts("b", &["--join", &a.ready().listen]);
    wait_until(&a, "a pair with etcd", is_whole);
    create_journal(&connect(&a));
    let writer = Writer::start(connect(&a), 1);
    writer.wait_for(100);
    let (code, shown) = run(&["restart", "--rolling", &a.ready().address]);
    assert!(code == Some(0) && shown.ends_with("all nodes have started again\n"), "{code:?}: {shown}");
    let written = writer.join();
    wait_until(&b, "a pair with etcd", is_whole);
    for node in [&a, &b] {
        assert_eq!(missing(&connect(node), &written.acknowledged), []);
    }
    // Without the user, etcd says what is wrong.
    let stranger = node(&directory.path().join("c"), &server.endpoint(), &[]);
    common::wait_for_message(&stranger, "refuses: ");
}
