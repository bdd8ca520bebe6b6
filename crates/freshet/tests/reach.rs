//! Voters that do not reach each other, while the primary reaches all of them: `freshet members`
//! shows it before the primary is lost.

mod common;

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use common::{SOON, in_sync, program, run, start, status, wait_until};
use freshet::children::NodeProcess;
use freshet_testing::ports::reserve;
use serde_json::Value;

/// Exit codes of `freshet members`.
const WELL: Option<i32> = Some(0);
const LACKING: Option<i32> = Some(3);

/// Hands connections on to a node, until it is cut: then new ones end at once, and those that are
/// there stay. It ends with this process.
struct Cable {
    address: String,
    cut: Arc<AtomicBool>,
}

impl Cable {
    fn to(node: SocketAddr) -> Self {
        let listener = TcpListener::bind(reserve().unwrap()).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cut = Arc::new(AtomicBool::new(false));
        let is_cut = Arc::clone(&cut);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                if let Ok(far) = TcpStream::connect(node) {
                    pass(&near, &far);
                    pass(&far, &near);
                }
            }
        });
        Self { address, cut }
    }

    fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }
}

/// Passes on what comes from `from`, until that ends.
fn pass(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        // However it ends: so does the other side.
        let _ = io::copy(&mut from, &mut to);
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
}

/// A witness that others reach through a cable.
fn witness(directory: &Path, join: &NodeProcess) -> (NodeProcess, Cable) {
    let listen = reserve().unwrap();
    let cable = Cable::to(listen);
    let (directory, join, at) = (directory.to_str().unwrap(), &join.ready().listen, listen.to_string());
    let flags = ["--directory", directory, "--listen", &at, "--advertise", &cable.address, "--join", join];
    let witness = NodeProcess::start_witness(&program(), flags.map(str::to_owned).to_vec(), SOON).unwrap();
    (witness, cable)
}

/// Blocks until `freshet members` ends with this code, for no other reason than a node that does
/// not reach another one; returns what it shows, as text and as JSON.
#[track_caller]
fn members(asked: &NodeProcess, code: Option<i32>) -> (String, Value) {
    let address = &asked.ready().address;
    let deadline = Instant::now() + SOON;
    loop {
        let (ends_with, shown) = run(&["members", address]);
        let (and_so, json) = run(&["members", "--json", address]);
        let all: Value = serde_json::from_str(json.lines().next().unwrap_or_default()).unwrap_or_default();
        let misses = |node: &Value| node["unreached"].as_array().is_some_and(|nodes| !nodes.is_empty());
        let is_why = code == WELL || all["nodes"].as_array().is_some_and(|nodes| nodes.iter().any(misses));
        if (ends_with, and_so) == (code, code) && is_why && all["set_pending"].is_null() {
            return (shown, all);
        }
        assert!(Instant::now() < deadline, "it ends with {ends_with:?} and {and_so:?}: {shown}{json}");
    }
}

fn id(node: &NodeProcess) -> Value {
    status(node)["node"].clone()
}

/// What the table has of each node, in this order.
fn unreached(members: &Value, nodes: [&Value; 3]) -> [Value; 3] {
    let all = members["nodes"].as_array().unwrap();
    nodes.map(|id| all.iter().find(|node| node["node"] == *id).unwrap()["unreached"].clone())
}

#[test]
fn a_standby_that_does_not_reach_the_witness_is_shown_while_the_primary_does() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let a = start(&path("a"), &[]);
    let b = start(&path("b"), &["--join", &a.ready().listen]);
    let (_w, cable) = witness(&path("w"), &a);
    let has_witness = |status: &Value| status["witness"]["votes"] == true && in_sync(status) == 1;
    let w = wait_until(&a, "a pair with its witness", has_witness)["witness"]["node"].clone();
    let (own, other) = (id(&a), id(&b));
    let ids = [&own, &other, &w];
    let none = Value::Array(vec![]);
    let (_, all) = members(&a, WELL);
    assert_eq!(unreached(&all, ids), [none.clone(), none.clone(), Value::Null]);
    cable.cut(true);
    // Any node shows it.
    for asked in [&a, &b] {
        let (shown, all) = members(asked, LACKING);
        assert_eq!(unreached(&all, ids), [none.clone(), Value::Array(vec![w.clone()]), Value::Null]);
        let [other, w] = [&other, &w].map(|id| id.as_str().unwrap());
        let expected = format!(
            "standby {other} at {} does not reach witness {w} at {}: if the primary is lost, too few nodes may find \
             each other",
            b.ready().listen,
            cable.address
        );
        assert!(shown.lines().any(|line| line == expected), "{expected}: {shown}");
        assert_eq!((&all["standing"], &all["set_pending"]), (&Value::from("safe"), &Value::Null), "{shown}");
    }
    assert!(has_witness(&status(&a)), "the primary asks it on the connection that it has");
    let (code, refused) = run(&["restart", "--rolling", &a.ready().address]);
    assert!(code == Some(1) && refused.contains("within reach of each other"), "{code:?}: {refused}");
    cable.cut(false);
    let (shown, _) = members(&b, WELL);
    assert!(!shown.contains("does not reach"), "{shown}");
}

/// The third node announces an address where nothing is. It follows all the same.
#[test]
fn a_node_that_is_not_at_its_address_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let a = start(&path("a"), &[]);
    let join = ["--join", &a.ready().listen];
    let nowhere = reserve().unwrap().to_string();
    let b = start(&path("b"), &join);
    let c = start(&path("c"), &[&join[..], &["--advertise", &nowhere]].concat());
    wait_until(&a, "two in sync", |status| in_sync(status) == 2);
    let (shown, all) = members(&b, LACKING);
    let (own, other, third) = (id(&a), id(&b), id(&c));
    let lacks = Value::Array(vec![third.clone()]);
    // It was not asked itself.
    assert_eq!(unreached(&all, [&own, &other, &third]), [lacks.clone(), lacks, Value::Null], "{shown}");
    assert_eq!(shown.matches(&format!("does not reach standby {} at {nowhere}", third.as_str().unwrap())).count(), 2);
}
