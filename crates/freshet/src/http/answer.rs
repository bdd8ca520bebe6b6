//! What is answered at which path.

use std::time::Duration;

use serde_json::{Value, json};

use super::metrics;
use crate::{
    status::{Health, health, time},
    verdict::Verdict,
};

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    code: u16,
    content: &'static str,
    pub body: String,
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// The paths, for people.
const PATHS: &str = "\
/metrics              all numbers, for Prometheus (OpenMetrics)
/health               200 unless nothing commits, or the node follows no other
/liveness             200 while the process answers
/readiness            200 when the node serves clients: it leads, or follows (also /ready)
/primary              200 when it leads (also /read-write)
/standby?max-lag=LAG  200 when it follows, and its readers see what is no older than LAG: bytes, as
                      16MB, or a time, as 2s (also /replica, /read-only, lag=)
/status               its status, as `freshet status --json` shows it
";

impl Answer {
    /// To this request. `status` gives the node's, as JSON.
    pub fn to(method: &str, target: &str, status: impl FnOnce() -> String) -> Self {
        if !matches!(method, "GET" | "HEAD" | "OPTIONS") {
            return Self { code: 405, content: TEXT, body: "only GET, HEAD and OPTIONS are served\n".into() };
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if path == "/" {
            return Self { code: 200, content: TEXT, body: PATHS.into() };
        }
        let text = status();
        let mut status: Value = serde_json::from_str(&text).unwrap_or_default();
        let is_so = match path {
            "/status" => {
                status["verdict"] = Verdict::of(Some(&status), None, "").to_json();
                return Self { code: 200, content: JSON, body: format!("{status}\n") };
            }
            "/metrics" => return Self { code: 200, content: metrics::CONTENT, body: metrics::text(&status) },
            "/liveness" => true,
            "/health" => health(&status) != Health::Failing,
            "/ready" | "/readiness" => leads(&status) || follows(&status),
            "/primary" | "/read-write" => leads(&status),
            "/standby" | "/replica" | "/read-only" => match most_lag(query) {
                Ok(most) => follows(&status) && most.is_none_or(|most| most.allows(&status)),
                Err(wrong) => return Self::bad(&format!("max-lag={wrong}: it is bytes, as 16MB, or a time, as 2s")),
            },
            _ => return Self { code: 404, content: TEXT, body: PATHS.into() },
        };
        Self { code: if is_so { 200 } else { 503 }, content: JSON, body: summary(&status) }
    }

    /// To what is no request.
    pub fn bad(why: &str) -> Self {
        Self { code: 400, content: TEXT, body: format!("{why}\n") }
    }

    /// All before the body.
    pub fn head(&self) -> String {
        let reason = match self.code {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            _ => "Service Unavailable",
        };
        let Self { code, content, body } = self;
        let allow = if *code == 405 { "Allow: GET, HEAD, OPTIONS\r\n" } else { "" };
        format!(
            "HTTP/1.1 {code} {reason}\r\nContent-Type: {content}\r\nContent-Length: {}\r\n{allow}Cache-Control: \
             no-store\r\nConnection: close\r\n\r\n",
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

    fn code(target: &str, status: &Value) -> u16 {
        Answer::to("GET", target, || status.to_string()).code
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
        let to = |method, target| Answer::to(method, target, || "{}".to_owned());
        assert_eq!([to("POST", "/health").code, to("GET", "/etc/passwd").code, to("GET", "/").code], [405, 404, 200]);
        assert_eq!(to("OPTIONS", "/liveness").code, 200);
        let head = to("GET", "/health").head();
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }
}
