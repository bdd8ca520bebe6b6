//! What is answered at which path.

use std::{borrow::Cow, time::Duration};

use serde_json::{Value, json};

use super::{metrics, page};
use crate::{
    status::{Health, health, time},
    verdict::Verdict,
};

/// What is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked<'a> {
    pub method: &'a str,
    pub target: &'a str,
    /// Which host it is for, as the client names that; empty where it does not.
    pub host: &'a str,
    /// The page that asks; empty where no page does.
    pub origin: &'a str,
}

/// Who knows what is answered.
pub(super) trait Knows {
    /// The node's status.
    fn status(&self) -> Value;
    /// What the page polls, as JSON.
    fn page(&self) -> String;
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    code: u16,
    content: &'static str,
    /// Further headers.
    headers: String,
    pub body: Cow<'static, str>,
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// The paths, for people.
const PATHS: &str = "\
/                     the operator's page, for a browser
/metrics              all numbers, for Prometheus (OpenMetrics)
/health               200 unless nothing commits, or the node follows no other
/liveness             200 while the process answers
/readiness            200 when the node serves clients: it leads, or follows (also /ready)
/primary              200 when it leads (also /read-write)
/standby?max-lag=LAG  200 when it follows, and its readers see what is no older than LAG: bytes, as
                      16MB, or a time, as 2s (also /replica, /read-only, lag=)
/status               its status, as `freshet status --json` shows it
/page.json            the same with what it knows of other nodes: what the page shows
";

/// Other names of paths that are there.
const OTHER_PATHS: [&str; 4] = ["/ready", "/read-write", "/replica", "/read-only"];

/// A name that is not this machine's may be that of a page from elsewhere, which leads here.
const OTHER_HOST: &str = "this is served to who asks for it by an address or as localhost, and the Host header of this \
                          request has another name; a proxy in front has to set that header, as \"localhost\"";

impl Answer {
    fn new(code: u16, content: &'static str, body: impl Into<Cow<'static, str>>) -> Self {
        Self { code, content, headers: String::new(), body: body.into() }
    }

    /// To this request.
    pub fn to(asked: Asked<'_>, node: &impl Knows) -> Self {
        if !matches!(asked.method, "GET" | "HEAD" | "OPTIONS") {
            let refused = Self::new(405, TEXT, "only GET, HEAD and OPTIONS are served\n");
            return Self { headers: "Allow: GET, HEAD, OPTIONS\r\n".to_owned(), ..refused };
        }
        let (path, query) = asked.target.split_once('?').unwrap_or((asked.target, ""));
        if let Some((content, file)) = page::file(path) {
            return Self { headers: page::POLICY.to_owned(), ..Self::new(200, content, file) };
        }
        if matches!(path, "/status" | page::DATA) && !page::is_own(asked.host) {
            return Self::new(421, TEXT, format!("{OTHER_HOST}\n"));
        }
        if path == page::DATA {
            return Self::new(200, JSON, node.page() + "\n").readable_by(asked.origin);
        }
        let is_listed = |line: &str| !path.is_empty() && line.split([' ', '?']).next() == Some(path);
        if !PATHS.lines().any(is_listed) && !OTHER_PATHS.contains(&path) {
            return Self::new(404, TEXT, PATHS);
        }
        Self::of_status(path, query, node.status())
    }

    fn of_status(path: &str, query: &str, mut status: Value) -> Self {
        let is_so = match path {
            "/status" => {
                status["verdict"] = Verdict::of(Some(&status), None, "").to_json();
                return Self::new(200, JSON, format!("{status}\n"));
            }
            "/metrics" => return Self::new(200, metrics::CONTENT, metrics::text(&status)),
            "/liveness" => true,
            "/health" => health(&status) != Health::Failing,
            "/ready" | "/readiness" => leads(&status) || follows(&status),
            "/primary" | "/read-write" => leads(&status),
            // "/standby" and its other names.
            _ => match most_lag(query) {
                Ok(most) => follows(&status) && most.is_none_or(|most| most.allows(&status)),
                Err(wrong) => return Self::bad(&format!("max-lag={wrong}: it is bytes, as 16MB, or a time, as 2s")),
            },
        };
        Self::new(if is_so { 200 } else { 503 }, JSON, summary(&status))
    }

    /// A page of another node on this machine may read it, too.
    fn readable_by(mut self, origin: &str) -> Self {
        self.headers = match page::is_near(origin) {
            true => format!("Access-Control-Allow-Origin: {origin}\r\nVary: Origin\r\n"),
            false => "Vary: Origin\r\n".to_owned(),
        };
        self
    }

    /// To what is no request.
    pub fn bad(why: &str) -> Self {
        Self::new(400, TEXT, format!("{why}\n"))
    }

    /// All before the body.
    pub fn head(&self) -> String {
        let reason = match self.code {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            421 => "Misdirected Request",
            _ => "Service Unavailable",
        };
        let Self { code, content, headers, body } = self;
        format!(
            "HTTP/1.1 {code} {reason}\r\nContent-Type: {content}\r\nContent-Length: {}\r\n{headers}\
             X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
            body.len()
        )
    }
}

/// It leads, and may acknowledge.
fn leads(status: &Value) -> bool {
    let standing = status["standing"]["standing"].as_str();
    status["role"] == "primary" && !matches!(standing, None | Some("fenced" | "lease-over"))
}

/// Its readers see what its primary commits.
fn follows(status: &Value) -> bool {
    status["role"] == "standby" && status["link"]["link"] == "following" && status["doubt"].is_null()
}

/// How far a standby may be behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MostLag {
    Bytes(u64),
    Time(Duration),
}

impl MostLag {
    fn allows(self, status: &Value) -> bool {
        let lag = &status["visible_lag"];
        match self {
            Self::Bytes(most) => lag["bytes"].as_u64().is_some_and(|bytes| bytes <= most),
            Self::Time(most) => lag["time"].is_object() && time(lag, "time") <= most,
        }
    }
}

/// What the query asks for; the text, if that is neither bytes nor a time.
fn most_lag(query: &str) -> Result<Option<MostLag>, &str> {
    let mut parts = query.split('&').filter_map(|part| part.split_once('='));
    let Some((_, text)) = parts.find(|(key, _)| matches!(*key, "max-lag" | "lag")) else { return Ok(None) };
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" | "B" => Some(0),
        "kB" | "KB" => Some(10),
        "MB" => Some(20),
        "GB" => Some(30),
        _ => None,
    };
    let bytes = shift.and_then(|shift| number.parse::<u64>().ok()?.checked_mul(1 << shift));
    let most = bytes.map(MostLag::Bytes).or_else(|| humantime::parse_duration(text).ok().map(MostLag::Time));
    most.map(Some).ok_or(text)
}

/// What a check says beside its code.
fn summary(status: &Value) -> String {
    let verdict = Verdict::of(Some(status), None, "").to_json();
    let mut summary =
        json!({ "node": status["node"], "role": status["role"], "term": status["term"], "verdict": verdict });
    for key in ["standing", "link", "visible_lag"] {
        if !status[key].is_null() {
            summary[key] = status[key].clone();
        }
    }
    format!("{summary}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Node(Value);

    impl Knows for Node {
        fn status(&self) -> Value {
            self.0.clone()
        }
        fn page(&self) -> String {
            "{}".to_owned()
        }
    }

    fn to(method: &str, target: &str, host: &str, origin: &str) -> Answer {
        Answer::to(Asked { method, target, host, origin }, &Node(json!({})))
    }

    fn code(target: &str, status: &Value) -> u16 {
        Answer::to(Asked { method: "GET", target, ..Asked::default() }, &Node(status.clone())).code
    }

    #[test]
    fn checks_differ_by_role() {
        let primary = |standing: &str| json!({ "role": "primary", "standing": { "standing": standing } });
        let standby = |link: &str| json!({ "role": "standby", "link": { "link": link }, "in_sync": true });
        let starting = json!({ "role": "starting" });
        for (status, codes) in [
            (primary("safe"), [200, 200, 503, 200, 200]),
            (primary("degraded"), [200, 200, 503, 200, 200]),
            (primary("blocked"), [503, 200, 503, 200, 200]),
            (primary("lease-over"), [503, 503, 503, 503, 200]),
            (primary("fenced"), [503, 503, 503, 503, 200]),
            (standby("following"), [200, 503, 200, 200, 200]),
            (standby("connecting"), [200, 503, 503, 503, 200]),
            (starting, [200, 503, 503, 503, 200]),
            (json!({}), [503, 503, 503, 503, 200]),
        ] {
            let paths = ["/health", "/primary", "/standby", "/ready", "/liveness"];
            assert_eq!(paths.map(|path| code(path, &status)), codes, "{status}");
        }
        let mut doubtful = standby("following");
        doubtful["doubt"] = json!({ "since": 1 });
        assert_eq!(code("/standby", &doubtful), 503);
    }

    #[test]
    fn a_standby_may_be_behind_by_what_is_asked() {
        let second = json!({ "secs": 1, "nanos": 0 });
        let lag = json!({ "bytes": 1 << 20, "time": second });
        let status = json!({ "role": "standby", "link": { "link": "following" }, "visible_lag": lag });
        for (query, expected) in [
            ("", 200),
            ("?max-lag=1048576", 200),
            ("?max-lag=1MB", 200),
            ("?lag=1GB", 200),
            ("?max-lag=1023kB", 503),
            ("?max-lag=0", 503),
            ("?x=1&max-lag=1s", 200),
            ("?max-lag=999ms", 503),
            ("?max-lag=much", 400),
            ("?max-lag=", 400),
            ("?max-lag=99999999999999999999GB", 400),
        ] {
            assert_eq!(code(&format!("/standby{query}"), &status), expected, "{query}");
        }
        let mut unknown = status.clone();
        unknown["visible_lag"]["time"] = Value::Null;
        assert_eq!(code("/standby?max-lag=1h", &unknown), 503, "it is not known");
    }

    #[test]
    fn only_what_changes_nothing_is_served() {
        let code = |method, target| to(method, target, "", "").code;
        assert_eq!([code("POST", "/health"), code("GET", "/etc/passwd"), code("GET", "/")], [405, 404, 200]);
        assert_eq!([code("OPTIONS", "/liveness"), code("GET", "/replica"), code("GET", "")], [200, 503, 404]);
        let head = to("GET", "/health", "", "").head();
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(to("PUT", "/", "", "").head().contains("\r\nAllow: GET"));
    }

    #[test]
    fn only_pages_of_this_machine_get_a_status() {
        for (target, host, expected) in [
            ("/page.json", "127.0.0.1:7480", 200),
            ("/page.json", "evil.example:7480", 421),
            ("/status", "evil.example", 421),
            ("/status", "", 200),
            ("/health", "balancer.example", 503),
            ("/metrics", "proxy.example", 200),
        ] {
            assert_eq!(to("GET", target, host, "").code, expected, "{target} {host}");
        }
        let near = to("GET", "/page.json", "localhost", "http://127.0.0.1:7481").head();
        assert!(near.contains("\r\nAccess-Control-Allow-Origin: http://127.0.0.1:7481\r\n"), "{near}");
        for origin in ["", "http://evil.example", "http://127.0.0.1:1\r\nX: y"] {
            let head = to("GET", "/page.json", "localhost", origin).head();
            assert!(!head.contains("Access-Control") && !head.contains("X: y"), "{head}");
        }
        let page = to("GET", "/", "localhost", "");
        assert!(page.head().contains("\r\nContent-Security-Policy: default-src 'none';"), "{}", page.head());
        assert!(!to("GET", "/status", "localhost", "http://127.0.0.1:7481").head().contains("Access-Control"));
    }
}
