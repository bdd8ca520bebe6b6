//! The node's numbers for Prometheus, in OpenMetrics' text: made of its status, which is the only
//! source, so that `freshet status` and a graph never differ.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::{Registry, Unit},
};
use serde_json::Value;

use crate::status::{Health, health, number, text as text_of, time};

/// What a scrape gets.
pub(super) const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All numbers of a node with this status.
pub(super) fn text(status: &Value) -> String {
    let mut registry = Registry::with_prefix("freshet");
    registry.register_collector(Box::new(Scrape(families(status))));
    let mut out = String::new();
    // Only what is written to can fail, and that is a text.
    let _ = text::encode(&mut out, &registry);
    out
}

/// One value of a metric, and what distinguishes it from its others.
#[derive(Debug)]
struct Sample {
    labels: Vec<(&'static str, String)>,
    value: Measured,
}

#[derive(Clone, Debug)]
enum Measured {
    Number(f64),
    /// What was measured: how much in all, how often, and how often up to each bound.
    Histogram {
        sum: f64,
        count: u64,
        buckets: Vec<(f64, u64)>,
    },
}

#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    /// Counters and histograms only grow while the process lives.
    kind: MetricType,
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct Scrape(Vec<Family>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, unit, kind, samples } in &self.0 {
            if samples.is_empty() {
                continue;
            }
            let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), *kind)?;
            for Sample { labels, value } in samples {
                let put = |metric: &mut MetricEncoder<'_>| match (value, kind) {
                    (Measured::Number(value), MetricType::Counter) => {
                        metric.encode_counter::<NoLabelSet, _, f64>(value, None)
                    }
                    (Measured::Number(value), _) => metric.encode_gauge(value),
                    (Measured::Histogram { sum, count, buckets }, _) => {
                        metric.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
                    }
                };
                if labels.is_empty() { put(&mut family)? } else { put(&mut family.encode_family(labels)?)? }
            }
        }
        Ok(())
    }
}

/// Collects families.
#[derive(Default)]
struct Families(Vec<Family>);

impl Families {
    /// Begins one; what is [put](Self::put) next belongs to it.
    fn begin(&mut self, name: &'static str, unit: Option<Unit>, help: &'static str, kind: MetricType) -> &mut Self {
        self.0.push(Family { name, help, unit, kind, samples: Vec::new() });
        self
    }

    fn gauge(&mut self, name: &'static str, unit: Option<Unit>, help: &'static str) -> &mut Self {
        self.begin(name, unit, help, MetricType::Gauge)
    }

    fn counter(&mut self, name: &'static str, unit: Option<Unit>, help: &'static str) -> &mut Self {
        self.begin(name, unit, help, MetricType::Counter)
    }

    /// A value, if it is known.
    fn put(&mut self, labels: &[(&'static str, &str)], value: Option<f64>) -> &mut Self {
        self.put_measured(labels, value.map(Measured::Number))
    }

    fn put_measured(&mut self, labels: &[(&'static str, &str)], value: Option<Measured>) -> &mut Self {
        if let (Some(family), Some(value)) = (self.0.last_mut(), value) {
            let labels = labels.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
            family.samples.push(Sample { labels, value });
        }
        self
    }

    /// For each of these keys that `of` has a number for, one with `label` naming it.
    fn each(&mut self, label: &'static str, of: &Value, keys: &[(&str, &str)]) -> &mut Self {
        for (key, name) in keys {
            self.put(&[(label, name)], whole(&of[*key]));
        }
        self
    }
}

fn whole(value: &Value) -> Option<f64> {
    value.as_u64().map(|number| number as f64)
}

fn seconds(of: &Value, key: &str) -> Option<f64> {
    of[key].is_object().then(|| time(of, key).as_secs_f64())
}

/// 1 where something is so.
fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// Positions of the log, by their keys in the status.
const POINTS: [(&str, &str); 11] = [
    ("reserved", "reserved"),
    ("filled", "filled"),
    ("durable", "durable"),
    ("committed", "committed"),
    ("received", "received"),
    ("persisted", "persisted"),
    ("replayed", "replayed"),
    ("global", "global"),
    ("visible", "visible"),
    ("read_view", "read view"),
    ("oldest_reader", "oldest reader"),
];

const STAGES: [(&str, &str); 4] =
    [("receive_lag", "receive"), ("persist_lag", "persist"), ("replay_lag", "replay"), ("visible_lag", "visible")];

/// Processor time, by what used it.
const PARTS: [(&str, &str); 8] = [
    ("process_cpu", "process"),
    ("log_cpu", "log"),
    ("ship_cpu", "ship"),
    ("prompt_cpu", "prompt"),
    ("pack_cpu", "pack"),
    ("ack_cpu", "ack"),
    ("receive_cpu", "receive"),
    ("replay_threads_cpu", "replay"),
];

fn families(status: &Value) -> Vec<Family> {
    let mut all = Families::default();
    of_node(status, &mut all);
    of_log(status, &mut all);
    of_standbys(status, &mut all);
    of_memory(status, &mut all);
    of_state(status, &mut all);
    of_clients(status, &mut all);
    all.0
}

/// Who it is, and how well.
fn of_node(status: &Value, all: &mut Families) {
    let of = |key: &str| text_of(&status[key]);
    let (node, cluster, version, role) = (of("node"), of("cluster"), of("version"), of("role"));
    let labels = [("node", &*node), ("cluster", &*cluster), ("version", &*version)];
    all.gauge("node", None, "The node, its cluster and its version: always 1").put(&labels, Some(1.0));
    all.gauge("role", None, "1 for the role that the node has");
    for name in ["primary", "standby", "mirror", "starting", "taking-over"] {
        all.put(&[("role", name)], Some(flag(role == name)));
    }
    let health = match health(status) {
        Health::Well => 0.0,
        Health::Lacking => 1.0,
        Health::Failing => 2.0,
    };
    all.gauge("health", None, "0: all is as configured; 1: something is missing; 2: it does not do what it is for");
    all.put(&[], Some(health));
    all.gauge("standing", None, "1 for how the promise of a primary's level stands");
    if let Some(standing) = status["standing"]["standing"].as_str() {
        for name in ["safe", "degraded", "blocked", "lease-over", "fenced"] {
            all.put(&[("standing", name)], Some(flag(standing == name)));
        }
    }
    all.gauge("term", None, "The term that the node is in").put(&[], whole(&status["term"]));
    all.gauge("uptime", Some(Unit::Seconds), "How long the process has run").put(&[], seconds(status, "uptime"));
    let failover = &status["failover"];
    let lacks = failover["lacks"].is_string() || failover["by"] != "automatic";
    all.gauge("failover_automatic", None, "1 while the nodes replace a lost primary by themselves");
    all.put(&[], failover.is_object().then(|| flag(!lacks)));
    all.gauge("maintenance", Some(Unit::Seconds), "How long maintenance lasts yet");
    all.put(&[], seconds(failover, "maintenance").or(failover.is_object().then_some(0.0)));
    all.counter("processor", Some(Unit::Seconds), "Processor time of the process, and of parts of it");
    for (key, part) in PARTS {
        all.put(&[("part", part)], seconds(status, key));
    }
}

fn of_log(status: &Value, all: &mut Families) {
    all.gauge("lsn", Some(Unit::Bytes), "Up to where the log has come, by what was done with it");
    all.each("point", status, &POINTS);
    all.counter("log_written", Some(Unit::Bytes), "Bytes of log written since the start");
    all.put(&[], whole(&status["log_bytes"]));
    all.counter("group_commits", None, "Group commits since the start").put(&[], whole(&status["batches"]));
    all.gauge("log_trouble", None, "1 while the log has failed, waits for room, or a device does not answer");
    if status["node"].is_string() {
        for (key, kind) in [("log_failure", "failed"), ("log_waits", "waits"), ("log_hangs", "hangs")] {
            all.put(&[("kind", kind)], Some(flag(status[key].is_string())));
        }
    }
    let checkpoint = &status["checkpoint"];
    all.counter("checkpoints", None, "Checkpoints installed since the start").put(&[], whole(&checkpoint["installed"]));
    all.gauge("checkpoint", Some(Unit::Bytes), "Size of the newest checkpoint").put(&[], whole(&checkpoint["bytes"]));
    all.gauge("checkpoint_duration", Some(Unit::Seconds), "How long the newest checkpoint took");
    all.put(&[], seconds(checkpoint, "took"));
    all.gauge("checkpoint_failed", None, "1 while checkpoints fail");
    all.put(&[], checkpoint.is_object().then(|| flag(checkpoint["failure"].is_string())));
}

/// How far standbys are behind, as they see that themselves, and as their primary does.
fn of_standbys(status: &Value, all: &mut Families) {
    all.gauge("lag", Some(Unit::Bytes), "How far this standby is behind its primary");
    for (key, stage) in STAGES {
        all.put(&[("stage", stage)], whole(&status[key]["bytes"]));
    }
    all.gauge("lag_time", Some(Unit::Seconds), "For how long it has been behind what it has not done yet");
    for (key, stage) in STAGES {
        all.put(&[("stage", stage)], seconds(&status[key], "time"));
    }
    all.gauge("following", None, "1 while the log flows to this node from its primary");
    all.put(&[], status["link"].is_object().then(|| flag(status["link"]["link"] == "following")));
    let standbys = status["standbys"].as_array().map_or(&[][..], Vec::as_slice);
    let named = |standby: &Value| [text_of(&standby["node"]), text_of(&standby["address"])];
    let mut one = |name, unit, help, value: &dyn Fn(&Value) -> Option<f64>| {
        all.gauge(name, unit, help);
        for standby in standbys {
            let [node, address] = named(standby);
            all.put(&[("standby", &node), ("address", &address)], value(standby));
        }
    };
    one("standby_connected", None, "1 while the log flows to this standby", &|it| Some(flag(it["connected"] == true)));
    one("standby_in_sync", None, "1 while commits count on this standby", &|it| Some(flag(it["in_sync"] == true)));
    one("standby_ack_lag", Some(Unit::Bytes), "What it has not acknowledged", &|it| whole(&it["ack_lag_bytes"]));
    one("standby_visible_lag", Some(Unit::Bytes), "What its readers do not see", &|it| whole(&it["visible_lag_bytes"]));
    one("standby_ack_lag_time", Some(Unit::Seconds), "For how long it has owed acknowledgements", &|it| {
        seconds(it, "ack_lag")
    });
    let witness = &status["witness"];
    all.gauge("witness_connected", None, "1 while the witness answers");
    all.put(&[], witness.is_object().then(|| flag(witness["connected"] == true)));
}

fn of_memory(status: &Value, all: &mut Families) {
    let memory = &status["memory"];
    all.gauge("memory", Some(Unit::Bytes), "What the node counts of its memory, by owner");
    for (owner, bytes) in memory["owners"].as_object().into_iter().flatten() {
        all.put(&[("owner", owner)], whole(bytes));
    }
    all.gauge("memory_limit", Some(Unit::Bytes), "memory-bytes").put(&[], whole(&memory["limit"]));
    all.gauge("memory_full", None, "1 while statements that add rows get 53200");
    all.put(&[], memory["full"].as_bool().map(flag));
    all.gauge("memory_kept_for_snapshots", Some(Unit::Bytes), "Old versions that open snapshots keep");
    all.put(&[], whole(&memory["kept_for_snapshots"]));
    all.gauge("resident", Some(Unit::Bytes), "Memory that the process has resident");
    all.put(&[], whole(&status["resident_bytes"]));
    all.gauge("tables", None, "Tables, those of the catalog included").put(&[], whole(&status["tables"]));
    let descriptors = &status["descriptors"];
    all.gauge("descriptors", None, "Open file descriptors").put(&[], whole(&descriptors["used"]));
    all.gauge("descriptors_limit", None, "How many the process may have").put(&[], whole(&descriptors["limit"]));
}

/// What may be wrong with what it holds.
fn of_state(status: &Value, all: &mut Families) {
    let sweep = &status["sweep"];
    all.counter("sweeps", None, "Passes over all memory that looked for damage").put(&[], whole(&sweep["passes"]));
    all.counter("damage", None, "What these have found damaged").put(&[], whole(&sweep["damage"]));
    let in_doubt = status.get("doubt").map(|doubt| !doubt.is_null());
    all.gauge("state_in_doubt", None, "1 while the state of this node is not that of its primary");
    all.put(&[], in_doubt.map(flag));
    let met = status["two_primaries"].as_array();
    all.gauge("two_primaries", None, "Primaries that this node has met beside its own");
    all.put(&[], met.map(|met| met.len() as f64));
    all.gauge("certificate_expires_timestamp", Some(Unit::Seconds), "When the node's certificate ends, in Unix time");
    all.put(&[], Some(number(status, "certificate_expires") as f64).filter(|time| *time > 0.0));
}

/// Microseconds as seconds.
fn of_micros(value: &Value) -> Option<f64> {
    whole(value).map(|micros| micros / 1e6)
}

/// What clients do: sessions, transactions, statements.
fn of_clients(status: &Value, all: &mut Families) {
    let (sessions, transactions) = (&status["sessions"], &status["transactions"]);
    all.gauge("sessions", None, "SQL sessions, by what they do; those that wait for a lock are active, too");
    let states = ["active", "idle_in_transaction", "waiting"];
    all.each("state", sessions, &states.map(|state| (state, state)));
    let idle = |all| whole(&sessions[all]);
    let idle = idle("now").zip(idle("active")).zip(idle("idle_in_transaction"));
    all.put(&[("state", "idle")], idle.map(|((now, active), open)| now - active - open));
    all.counter("sessions_opened", None, "SQL sessions since the start").put(&[], whole(&sessions["total"]));
    all.counter("sessions_ended_badly", None, "SQL sessions that their clients have not ended");
    all.each("how", sessions, &["abandoned", "fatal", "killed"].map(|how| (how, how)));
    all.counter("session_time", Some(Unit::Seconds), "How long SQL sessions have been there, and what they did");
    for (key, doing) in [("time_us", "all"), ("active_us", "active"), ("idle_in_transaction_us", "idle in transaction")]
    {
        all.put(&[("doing", doing)], of_micros(&sessions[key]));
    }
    all.counter("commits", None, "SQL transactions that were committed").put(&[], whole(&transactions["committed"]));
    all.counter("rollbacks", None, "SQL transactions that were rolled back, by why");
    for (cause, count) in transactions["rolled_back"].as_object().into_iter().flatten() {
        all.put(&[("cause", cause)], whole(count));
    }
    all.counter("deadlocks", None, "Deadlocks that were found").put(&[], whole(&transactions["deadlocks"]));
    all.begin(
        "statement",
        Some(Unit::Seconds),
        "How long SQL statements took, commits included",
        MetricType::Histogram,
    );
    let statements = &status["statements"];
    let bounds = statements["bounds_us"].as_array().map_or(&[][..], Vec::as_slice);
    for (kind, of) in statements["kinds"].as_object().into_iter().flatten() {
        let bounds = bounds.iter().filter_map(of_micros).chain([f64::INFINITY]);
        let counts = of["buckets"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        let measured = of_micros(&of["time_us"]).map(|sum| {
            let (count, buckets) = (number(of, "count"), bounds.zip(counts).collect());
            Measured::Histogram { sum, count, buckets }
        });
        all.put_measured(&[("kind", kind)], measured);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(text: &str, begins: &str) -> String {
        let found = text.lines().find(|line| line.starts_with(begins));
        found.unwrap_or_else(|| panic!("no line {begins:?} in {text}")).to_owned()
    }

    #[test]
    fn a_primary_and_its_standbys_are_numbers() {
        let lag = json!({ "secs": 1, "nanos": 500_000_000 });
        let standby = json!({ "node": "b2", "address": "b:\"1\"", "connected": true, "in_sync": false,
            "ack_lag_bytes": 4096, "visible_lag_bytes": 8192, "ack_lag": lag });
        let status = json!({ "node": "a1", "cluster": "c", "version": "0.1.0", "role": "primary", "term": 7,
            "standing": { "standing": "degraded" }, "committed": 640, "log_bytes": 5, "standbys": [standby],
            "memory": { "owners": { "rows": 10, "indexes": 20 }, "limit": null, "full": false },
            "failover": { "by": "automatic", "lacks": "one is away" }, "doubt": null,
            "sessions": { "now": 5, "active": 2, "idle_in_transaction": 1, "waiting": 1, "total": 9, "killed": 1 },
            "transactions": { "committed": 7, "rolled_back": { "deadlock": 2 }, "deadlocks": 2 },
            "statements": { "bounds_us": [10, 100], "kinds": {
                "select": { "count": 6, "time_us": 2_000_000, "buckets": [3, 2, 1] } } } });
        let text = text(&status);
        for expected in [
            "freshet_node{node=\"a1\",cluster=\"c\",version=\"0.1.0\"} 1.0",
            "freshet_role{role=\"primary\"} 1.0",
            "freshet_role{role=\"standby\"} 0.0",
            "freshet_health 1.0",
            "freshet_standing{standing=\"degraded\"} 1.0",
            "freshet_lsn_bytes{point=\"committed\"} 640.0",
            "freshet_log_written_bytes_total 5.0",
            "freshet_standby_connected{standby=\"b2\",address=\"b:\\\"1\\\"\"} 1.0",
            "freshet_standby_ack_lag_bytes{standby=\"b2\",",
            "freshet_standby_ack_lag_time_seconds{standby=\"b2\",address=\"b:\\\"1\\\"\"} 1.5",
            "freshet_memory_bytes{owner=\"indexes\"} 20.0",
            "freshet_failover_automatic 0.0",
            "freshet_state_in_doubt 0.0",
            "freshet_sessions{state=\"active\"} 2.0",
            "freshet_sessions{state=\"idle\"} 2.0",
            "freshet_sessions_ended_badly_total{how=\"killed\"} 1.0",
            "freshet_commits_total 7.0",
            "freshet_rollbacks_total{cause=\"deadlock\"} 2.0",
            "# TYPE freshet_statement_seconds histogram",
            "freshet_statement_seconds_sum{kind=\"select\"} 2.0",
            "freshet_statement_seconds_count{kind=\"select\"} 6",
            "freshet_statement_seconds_bucket{le=\"0.00001\",kind=\"select\"} 3",
            "freshet_statement_seconds_bucket{le=\"0.0001\",kind=\"select\"} 5",
            "freshet_statement_seconds_bucket{le=\"+Inf\",kind=\"select\"} 6",
        ] {
            line(&text, expected);
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
        // What is not known is not said to be zero.
        for unknown in ["freshet_memory_limit", "freshet_lag", "freshet_following", "freshet_witness"] {
            assert!(!text.contains(unknown), "{unknown} in {text}");
        }
    }

    #[test]
    fn a_node_that_starts_has_a_role_and_no_more() {
        let text = text(&json!({ "role": "starting" }));
        line(&text, "freshet_role{role=\"starting\"} 1.0");
        assert!(!text.contains("freshet_lsn") && !text.contains("freshet_log_trouble"), "{text}");
    }
}
