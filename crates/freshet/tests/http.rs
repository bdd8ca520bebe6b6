//! Health checks and metrics, as load balancers and Prometheus ask for them.

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
    let answer = exchange(node, format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let length = format!("Content-Length: {}\r\n", body.len());
    assert!(head.contains(&length), "{head}");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
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
