//! What etcd's answers mean. Numbers of 64 bits are texts there; what is zero, empty or false is
//! left out.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::Found;

/// An error of etcd that is shown is cut there.
const SHOWN: usize = 200;

fn number(of: &Value, name: &str) -> Result<u64, String> {
    match &of[name] {
        Value::Null => Ok(0),
        Value::String(digits) => digits.parse().map_err(|_| format!("{name} is no number: {digits:?}")),
        other => other.as_u64().ok_or_else(|| format!("{name} is no number")),
    }
}

/// The answer to `range` of one key.
pub fn found(answer: &Value) -> Result<Found, String> {
    let header = &answer["header"];
    let cluster = number(header, "cluster_id")?;
    if cluster == 0 {
        return Err("the answer names no cluster".into());
    }
    let kvs = match &answer["kvs"] {
        Value::Null => &[][..],
        Value::Array(kvs) => kvs,
        _ => return Err("kvs is no list".into()),
    };
    let Some(kv) = kvs.first() else { return Ok(Found { cluster, revision: 0, value: None }) };
    let value = match &kv["value"] {
        Value::Null => Vec::new(),
        Value::String(text) => STANDARD.decode(text).map_err(|why| format!("a value is not in base64: {why}"))?,
        _ => return Err("a value is no text".into()),
    };
    match number(kv, "mod_revision")? {
        0 => Err("a key has no revision".into()),
        revision => Ok(Found { cluster, revision, value: Some(value) }),
    }
}

/// The answer to `txn`.
pub fn succeeded(answer: &Value) -> Result<bool, String> {
    if !answer["header"].is_object() {
        return Err("the answer has no header".into());
    }
    match &answer["succeeded"] {
        Value::Null => Ok(false),
        other => other.as_bool().ok_or_else(|| "succeeded is neither true nor false".into()),
    }
}

/// The answer to `authenticate`.
pub fn token(answer: &Value) -> Result<String, String> {
    let token = answer["token"].as_str().filter(|token| !token.is_empty());
    let is_plain = |token: &&str| token.bytes().all(|byte| byte.is_ascii_graphic());
    token.filter(is_plain).map(str::to_owned).ok_or_else(|| "it gives no token".into())
}

/// An answer that is an error.
pub fn error(status: u16, body: &Value) -> String {
    let said = body["error"].as_str().or_else(|| body["message"].as_str()).unwrap_or_default();
    let said: String = said.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
    if said.is_empty() { format!("HTTP status {status}") } else { format!("{said} (HTTP status {status})") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_are_read_and_nonsense_is_refused() {
        let header = json!({ "cluster_id": "18446744073709551615", "revision": "7" });
        let has = json!({ "header": header, "kvs": [{ "mod_revision": "7", "value": "YWJj" }], "count": "1" });
        assert_eq!(found(&has), Ok(Found { cluster: u64::MAX, revision: 7, value: Some(b"abc".into()) }));
        let lacks = json!({ "header": header });
        assert_eq!(found(&lacks), Ok(Found { cluster: u64::MAX, revision: 0, value: None }));
        let empty = json!({ "header": header, "kvs": [{ "mod_revision": "7" }] });
        assert_eq!(found(&empty).unwrap().value, Some(Vec::new()));
        for nonsense in [
            json!(null),
            json!([1]),
            json!({ "header": { "cluster_id": "x" } }),
            json!({ "header": { "cluster_id": -1 } }),
            json!({ "header": header, "kvs": "x" }),
            json!({ "header": header, "kvs": [{ "mod_revision": "7", "value": "!" }] }),
            json!({ "header": header, "kvs": [{ "mod_revision": "7", "value": [1] }] }),
            json!({ "header": header, "kvs": [{ "value": "YWJj" }] }),
        ] {
            assert!(found(&nonsense).is_err(), "{nonsense}");
        }
        assert_eq!(succeeded(&json!({ "header": header, "succeeded": true })), Ok(true));
        assert_eq!(succeeded(&json!({ "header": header })), Ok(false));
        assert!(succeeded(&json!({})).is_err() && succeeded(&json!({ "header": header, "succeeded": 1 })).is_err());
        assert_eq!(token(&json!({ "token": "abc.7" })), Ok("abc.7".into()));
        assert!(token(&json!({ "token": "a\r\nb" })).is_err() && token(&json!({})).is_err());
        assert_eq!(error(500, &json!({ "error": "a\nb" })), "ab (HTTP status 500)");
        assert_eq!(error(404, &json!("x")), "HTTP status 404");
    }
}
