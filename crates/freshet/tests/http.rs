//! Health checks, metrics and the operator's page, as load balancers, Prometheus and browsers ask
//! for them.

mod common;

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use common::{SOON, in_sync, run, start, status, wait_through_restart, wait_until};
use freshet::children::NodeProcess;

/// Sends this to the node's HTTP port, and returns all of its answer.
fn exchange(node: &NodeProcess, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(node.ready().http.as_deref().expect("it serves HTTP")).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(node: &NodeProcess, target: &str) -> (u16, String) {
    let (code, _, body) = get_for(node, target, "localhost", "");
    (code, body)
}

/// The code, the headers and the body; `more` are further headers.
fn get_for(node: &NodeProcess, target: &str, host: &str, more: &str) -> (u16, String, String) {
    let answer = exchange(node, format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let length = format!("Content-Length: {}\r\n", body.len());
    assert!(head.contains(&length), "{head}");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_owned(), body.to_owned())
}

fn codes(node: &NodeProcess) -> [u16; 5] {
    ["/health", "/ready", "/primary", "/standby", "/standby?max-lag=1GB"].map(|target| get(node, target).0)
}

/// A metric's value, by how its line begins.
fn metric(node: &NodeProcess, begins: &str) -> f64 {
    let (code, text) = get(node, "/metrics");
    assert!(code == 200 && text.ends_with("# EOF\n"), "{code} {text}");
    let line = text.lines().find(|line| line.starts_with(begins)).unwrap_or_else(|| panic!("no {begins} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn checks_follow_the_role_and_metrics_the_status() {
    let place = tempfile::tempdir().unwrap();
    let http = ["--http-listen", "127.0.0.1:0"];
    let one = start(&place.path().join("a"), &http);
    let join = ["--join", &one.ready().listen];
    let two = start(&place.path().join("b"), &[&http[..], &join].concat());
    wait_until(&one, "it is in sync", |status| in_sync(status) == 1);
    wait_until(&two, "it follows", |status| status["link"]["link"] == "following");
    assert_eq!((codes(&one), codes(&two)), ([200, 200, 200, 503, 503], [200, 200, 503, 200, 200]));
    assert_eq!(metric(&one, "freshet_role{role=\"primary\"}"), 1.0);
    let lsn = metric(&two, "freshet_lsn_bytes{point=\"visible\"}");
    assert!(status(&two)["visible"].as_u64().unwrap() as f64 >= lsn && lsn > 0.0, "{lsn}");
    assert_eq!(metric(&one, "freshet_standby_in_sync{"), 1.0);
    assert!(metric(&one, "freshet_memory_bytes{owner=\"buffers\"}") > 0.0);
    assert!(metric(&one, "freshet_sessions_opened_total") >= 0.0);
    assert!(metric(&one, "freshet_statement_seconds_bucket{le=\"+Inf\",kind=\"select\"}") >= 0.0);
    let (code, json) = get(&one, "/status");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["node"]), (200, &status(&one)["node"]));
    assert!(!json.to_string().contains("PRIVATE"), "no secret is shown");
    // The role moves, and the checks with it.
    let handed = run(&["promote", &two.ready().address, "--primary-is-gone"]);
    wait_through_restart(&two, "it leads", |status| status["role"] == "primary");
    wait_through_restart(&one, "it follows", |status| status["link"]["link"] == "following");
    assert_eq!((codes(&two)[2], codes(&one)[2..4].to_vec()), (200, vec![503, 200]), "{handed:?}");
}

/// What the page polls has the cluster, costs no other node a thing each time, and is no way to
/// what only operators may ask.
#[test]
fn the_page_has_the_cluster_and_looks_on() {
    let place = tempfile::tempdir().unwrap();
    let one = start(&place.path().join("a"), &["--http-listen", "127.0.0.1:0"]);
    let two = start(&place.path().join("b"), &["--join", &one.ready().listen]);
    wait_until(&one, "it is in sync", |status| in_sync(status) == 1);
    for (path, kind) in [("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css")] {
        let (code, head, body) = get_for(&one, path, "localhost", "");
        assert!(code == 200 && head.contains(kind) && !body.is_empty(), "{path}: {head}");
        assert!(head.contains("\r\nContent-Security-Policy: default-src 'none'; script-src 'self';"), "{head}");
    }
    let deadline = std::time::Instant::now() + SOON;
    let page = loop {
        let (code, json) = get(&one, "/page.json");
        let page: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((code, &page["node"]), (200, &status(&one)["node"]));
        let there = page["members"]["nodes"].as_array().map_or(0, Vec::len);
        if there == 2 && page["verdict"]["state"] == "ok" {
            break page;
        }
        assert!(std::time::Instant::now() < deadline, "{page:#}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert_eq!((&page["format"], page["members"]["primary"].as_bool()), (&1.into(), Some(true)));
    let roles: Vec<_> = page["members"]["nodes"].as_array().unwrap().iter().map(|node| &node["role"]).collect();
    assert!(roles.contains(&&"primary".into()) && roles.contains(&&"standby".into()), "{roles:?}");
    // Pages of other nodes on this machine may read it, others not, and not by a name of their own.
    let near = get_for(&one, "/page.json", "127.0.0.1", "Origin: http://127.0.0.1:1\r\n").1;
    assert!(near.contains("\r\nAccess-Control-Allow-Origin: http://127.0.0.1:1\r\n"), "{near}");
    assert!(!get_for(&one, "/page.json", "127.0.0.1", "Origin: http://a.example\r\n").1.contains("Access-Control"));
    assert_eq!(["/page.json", "/status"].map(|path| get_for(&one, path, "a.example", "").0), [421, 421]);
    drop(two);
}

/// Positions that the HTTP port shows are none that a client may have measured.
#[test]
fn who_looks_on_announces_nothing() {
    let place = tempfile::tempdir().unwrap();
    let node = start(&place.path().join("a"), &["--http-listen", "127.0.0.1:0"]);
    let client = common::connect(&node);
    common::create_journal(&client);
    let filled = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap()["filled"].as_u64().unwrap();
    let at = filled(&get(&node, "/status").1);
    // The node itself may write now and then: the position counts only if it is still the end.
    assert!(client.mix(freshet_base::Lsn(at), 1 << 20, SOON).is_err(), "{at} was noted for a look");
    let at = filled(&client.status(SOON).unwrap());
    client.mix(freshet_base::Lsn(at), 1 << 20, SOON).unwrap();
}

/// Nothing that a client sends ends the port, or takes it from others.
#[test]
fn what_is_no_request_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let node = start(&place.path().join("a"), &["--http-listen", "127.0.0.1:0"]);
    let address = node.ready().http.clone().unwrap();
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for bytes in [&b"\x16\x03\x01\x02\x00"[..], b"GET\r\n\r\n", b"GET / FTP/9\r\n\r\n"] {
        assert!(exchange(&node, bytes).starts_with("HTTP/1.1 400 "), "{bytes:?}");
    }
    let long = [&b"GET /"[..], &[b'x'; 20_000], b" HTTP/1.1\r\n\r\n"].concat();
    // It may be closed before all of that was sent.
    let mut stream = TcpStream::connect(&address).unwrap();
    let _ = stream.write_all(&long);
    assert!(exchange(&node, b"DELETE /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(exchange(&node, b"HEAD /health HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
    assert_eq!(get(&node, "/../../etc/passwd").0, 404);
    drop(silent);
    assert_eq!(get(&node, "/liveness").0, 200);
}

#[test]
fn others_than_this_machine_are_not_served() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("a");
    let words = ["serve", "--new-cluster", "--directory", directory.to_str().unwrap(), "--http-listen", "0.0.0.0:0"];
    let (code, text) = run(&words);
    assert!(code != Some(0) && text.contains("http-listen") && text.contains("proxy"), "{text}");
}
