//! The operator's page: the files of it, and the one JSON that it polls.
//!
//! The JSON is what `freshet status --json` prints, made from the same status. However many pages
//! are open, a status is made every [`FRESH`] at most, and the other nodes are asked every
//! [`MEMBERS`] at most, by a thread that no request waits for: while a primary is gone, the page is
//! needed most. It shows neither statements nor the names of users, databases and tables: who comes
//! to this port has shown no password.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{server::Host, status::FORMAT, verdict::Verdict};

/// A status that is no older than this is shown again.
const FRESH: Duration = Duration::from_millis(400);
/// What is known of the other nodes is asked for again after this time.
const MEMBERS: Duration = Duration::from_secs(5);

/// Where the JSON is.
pub(super) const DATA: &str = "/page.json";

/// With each file of the page: it loads nothing from elsewhere, and asks only nodes of this
/// machine, or those that come to it by a tunnel.
pub(super) const POLICY: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; \
                                 img-src 'self'; connect-src 'self' http://127.0.0.1:* http://localhost:*; \
                                 base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
                                 Referrer-Policy: no-referrer\r\n";

/// The page's program, in the order of its parts.
const PROGRAM: &str = concat!(
    "\"use strict\";\n",
    include_str!("numbers.js"),
    include_str!("history.js"),
    include_str!("curves.js"),
    include_str!("tables.js"),
    include_str!("follow.js"),
    include_str!("page.js"),
);

/// The file at this path: its content's type, and itself.
pub(super) fn file(path: &str) -> Option<(&'static str, &'static str)> {
    Some(match path {
        "/" => ("text/html; charset=utf-8", include_str!("page.html")),
        "/page.css" => ("text/css; charset=utf-8", include_str!("page.css")),
        "/page.js" => ("text/javascript; charset=utf-8", PROGRAM),
        "/page.svg" => ("image/svg+xml", include_str!("page.svg")),
        _ => return None,
    })
}

/// Whether a page from there may read what this port answers: one of a port of this machine, as
/// everything that has access to this port is.
pub(super) fn is_near(origin: &str) -> bool {
    origin.strip_prefix("http://").is_some_and(|host| match name(host) {
        "localhost" => true,
        host => address(host).is_some_and(|ip| ip.is_loopback()),
    })
}

/// Whether a request that names this host may be one for this node. A page from elsewhere can have
/// its own name lead to this machine, but neither an address nor this machine's name.
pub(super) fn is_own(host: &str) -> bool {
    let name = name(host);
    name.is_empty() || name == "localhost" || address(name).is_some()
}

/// A host without its port.
fn name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    }
}

fn address(name: &str) -> Option<IpAddr> {
    name.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// What a node has found out about its cluster.
#[derive(Default)]
struct Known {
    members: Value,
    /// When they were asked for last.
    asked: Option<Instant>,
    is_asking: bool,
}

/// What the page is given, for all who have it open.
#[derive(Default)]
pub(super) struct Polled {
    made: Mutex<Option<(Instant, String)>>,
    known: Arc<Mutex<Known>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Polled {
    /// All that was known is forgotten: another one answers from now on.
    pub(super) fn forget(&self) {
        *lock(&self.made) = None;
    }

    /// The JSON. `host` is none while the node starts. Waits for another one who makes it, and for
    /// no other node.
    pub(super) fn json(&self, host: Option<&Arc<dyn Host>>, status: impl FnOnce() -> Value) -> String {
        let mut made = lock(&self.made);
        if let Some((at, text)) = &*made
            && at.elapsed() < FRESH
        {
            return text.clone();
        }
        let (members, age) = host.map(|host| self.members(host)).unwrap_or_default();
        let text = with_cluster(status(), members, age).to_string();
        *made = Some((Instant::now(), text.clone()));
        text
    }

    /// What is known of the other nodes, and how old that is; has them asked where it is old.
    fn members(&self, host: &Arc<dyn Host>) -> (Value, Option<Duration>) {
        let mut known = lock(&self.known);
        let age = known.asked.map(|asked| asked.elapsed());
        if !known.is_asking && age.is_none_or(|age| age >= MEMBERS) {
            let (host, all) = (Arc::clone(host), Arc::clone(&self.known));
            let ask = move || {
                let members = host.members().ok().and_then(|json| serde_json::from_str(&json).ok());
                drop(host);
                *lock(&all) =
                    Known { members: members.unwrap_or_default(), asked: Some(Instant::now()), is_asking: false };
            };
            // Without a thread, the next request tries again.
            known.is_asking = thread::Builder::new().name("http-members".to_owned()).spawn(ask).is_ok();
        }
        (known.members.clone(), age)
    }
}

/// The status, as `freshet status --json` prints it, with how old what it has of others is. What
/// the page does not show and takes room is left out.
fn with_cluster(mut status: Value, members: Value, age: Option<Duration>) -> Value {
    let verdict = Verdict::of(Some(&status), Some(&members).filter(|members| members.is_object()), "").to_json();
    if let Value::Object(keys) = &mut status {
        keys.remove("in_sync_set");
        keys.insert("format".to_owned(), FORMAT.into());
        keys.insert("verdict".to_owned(), verdict);
        keys.insert("members".to_owned(), members);
        keys.insert("members_age_s".to_owned(), age.map_or(Value::Null, |age| json!(age.as_secs())));
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_from_elsewhere_may_not_read_it() {
        for near in ["http://127.0.0.1:7480", "http://localhost:1", "http://[::1]:7480", "http://127.0.0.1"] {
            assert!(is_near(near), "{near}");
        }
        for far in ["https://example.org", "http://example.org:7480", "http://10.0.0.1:7480", "null", "", "http://"] {
            assert!(!is_near(far), "{far}");
        }
        for far in ["http://localhost.example.org", "http://127.0.0.1.example.org:80", "file://localhost"] {
            assert!(!is_near(far), "{far}");
        }
    }

    #[test]
    fn a_name_that_leads_here_is_not_this_node() {
        for own in ["", "127.0.0.1:7480", "localhost:7480", "localhost", "[::1]:7480", "10.0.0.7"] {
            assert!(is_own(own), "{own}");
        }
        for other in ["example.org", "example.org:7480", "127.0.0.1.example.org:7480", "localhost.example.org", "x"] {
            assert!(!is_own(other), "{other}");
        }
    }

    /// A `script-src` of `'self'` runs nothing that stands in the page itself.
    #[test]
    fn nothing_is_within_the_page_or_from_elsewhere() {
        let files = ["/", "/page.css", "/page.js", "/page.svg"].map(|path| file(path).unwrap_or_default().1);
        let [html, css, program, icon] = files;
        for refused in ["<style", "style=\"", " onclick", " onload", "javascript:", "src=\"http", "href=\"http"] {
            assert!(!html.contains(refused), "{refused}");
        }
        for file in [html, css, program] {
            assert!(!file.is_empty() && !file.contains("@import") && !file.contains("url(http"));
        }
        for unsafe_call in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
            assert!(!program.contains(unsafe_call), "{unsafe_call}: what nodes send is text");
        }
        assert!(icon.starts_with("<svg") && html.contains("<script src=\"/page.js\" defer></script>"));
    }

    #[test]
    fn the_members_count_in_the_verdict() {
        let status = json!({ "role": "primary", "standing": { "standing": "safe" }, "in_sync_set": 1 });
        let alone = with_cluster(status.clone(), Value::Null, None);
        assert_eq!((&alone["verdict"]["state"], &alone["members_age_s"]), (&"ok".into(), &Value::Null));
        let away = json!({ "node": "b", "role": "standby", "vote": true, "connected": false });
        let members = json!({ "primary": true, "standing": "safe", "nodes": [away] });
        let all = with_cluster(status, members, Some(Duration::from_millis(2500)));
        assert_eq!((&all["verdict"]["state"], &all["members_age_s"]), (&"degraded".into(), &2.into()));
        assert!(all.get("in_sync_set").is_none() && all["format"] == FORMAT);
    }
}
