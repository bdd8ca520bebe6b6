//! What a primary says of itself and its standbys, taken down for a while: what a status counts is
//! looked up again and again, and what transactions write is seen from pieces of the log.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use freshet_base::{Lsn, cpu::Ticks};
use freshet_engine::{Mix, RoundTrips, StandbyLoad, scheme::inputs::weigh};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use super::reckon::{Changes, Form, Inputs, Load, Now, Processors, Standby};
use crate::{Failure, client::Client};

/// The status is looked up this often.
const EVERY: Duration = Duration::from_secs(1);
/// The log may grow for no less than this before a piece of it is seen.
const LEAST: Duration = Duration::from_millis(10);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// No advice rests on fewer transactions.
const FEWEST: u64 = 20;

/// A status, as far as it counts here.
#[derive(Clone, Debug, Deserialize)]
struct Look {
    node: String,
    address: String,
    filled: Lsn,
    log_bytes: u64,
    batches: u64,
    log_cpu: Duration,
    ship_cpu: Duration,
    prompt_cpu: Duration,
    ack_cpu: Duration,
    process_cpu: Duration,
    processors: OwnProcessors,
    inputs: Option<Recorded>,
    checkpoint: Option<Checkpoint>,
    standbys: Vec<Fed>,
    observers: Vec<IgnoredAny>,
}

impl Look {
    /// What the group commit takes by itself.
    fn log_cpu(&self) -> Duration {
        self.log_cpu.saturating_sub(self.prompt_cpu)
    }
}

#[derive(Clone, Debug, Deserialize)]
struct OwnProcessors {
    count: u32,
    #[serde(flatten)]
    ticks: Option<Ticks>,
}

#[derive(Clone, Debug, Deserialize)]
struct Recorded {
    kept: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Checkpoint {
    rows: u64,
    bytes: u64,
}

/// A standby in a status.
#[derive(Clone, Debug, Deserialize)]
struct Fed {
    node: String,
    address: String,
    connected: bool,
    encoding: Option<Form>,
    #[serde(default)]
    mirror: bool,
    fabric: Option<String>,
    one_sided: bool,
    load: Option<StandbyLoad>,
    round_trips: RoundTrips,
    shipped: Lsn,
    acked: Lsn,
    visible: Lsn,
    sent_bytes: u64,
    ack_lag_bytes: u64,
    visible_lag_bytes: Option<u64>,
}

impl Fed {
    /// How it is fed; nothing while it is not connected.
    fn form(&self) -> Option<Form> {
        let form = if self.mirror { Some(Form::Mirror) } else { self.encoding };
        form.filter(|_| self.connected)
    }

    /// How far its readers see the log, or of a mirror what is in its memory.
    fn reached(&self) -> Lsn {
        if self.mirror { self.acked } else { self.visible }
    }

    /// Bytes of log beyond that.
    fn lag_bytes(&self) -> u64 {
        if self.mirror { self.ack_lag_bytes } else { self.visible_lag_bytes.unwrap_or(self.ack_lag_bytes) }
    }
}

/// What a primary and its standbys did in the time of a measurement.
pub(super) struct Measured {
    /// The id of the primary.
    pub node: String,
    pub address: String,
    pub load: Load,
    pub standbys: Vec<Standby>,
}

/// Measures for `time`, a little more than that.
///
/// # Errors
/// What is in the way, and what to do.
pub(super) fn measure(client: &Client, control: &str, time: Duration) -> Result<Measured, Failure> {
    let look = || read(control, &client.status(PATIENCE)?);
    let begun = Instant::now();
    let mut totals = Totals::new(look()?);
    let (mut grows, mut unseen) = (EVERY, None);
    for next in 1.. {
        let from = totals.last.1.filled;
        thread::sleep(grows);
        match client.mix(from, totals.batch_bytes(), PATIENCE) {
            Ok(mix) => totals.add(&mix),
            // The log may have grown by more than is kept.
            Err(why) => (grows, unseen) = ((grows / 2).max(LEAST), Some(why)),
        }
        thread::sleep((EVERY * next).saturating_sub(begun.elapsed()));
        totals.look(begun.elapsed(), look()?);
        if begun.elapsed() >= time {
            break;
        }
    }
    let seconds = time.as_secs();
    if totals.mix.transactions >= FEWEST {
        return Ok(totals.measured());
    }
    Err(Failure::new(match unseen {
        Some(why) if totals.mix.transactions == 0 => format!("{control} does not show what is written: {why}"),
        _ => format!(
            "{control} has written next to nothing in {seconds} s ({} transactions were seen): run this while the load \
             is there that counts, or for longer (--for)",
            totals.mix.transactions
        ),
    }))
}

/// A primary's status.
///
/// # Errors
/// What else it is.
fn read(control: &str, json: &str) -> Result<Look, Failure> {
    let status: Value = serde_json::from_str(json)?;
    let role = status["role"].as_str().unwrap_or("node of another kind");
    if role != "primary" {
        let primary = status["link"]["address"].as_str();
        let primary = primary.map_or_else(String::new, |address| format!(", which other nodes reach at {address}"));
        return Err(Failure::new(match role {
            "standby" => {
                format!("{control} is a standby: ask its primary{primary}, at its control port (its `address`)")
            }
            "starting" => format!("{control} is starting: ask again when it is ready (see `freshet status`)"),
            role => format!("{control} is not a primary, but {role}: ask the primary, at its control port"),
        }));
    }
    let version = status["version"].as_str().unwrap_or("unknown").to_owned();
    Look::deserialize(status).map_err(|why| {
        let ours = freshet_base::versions::RELEASE;
        Failure::new(format!(
            "{control} runs Freshet {version} and does not say all that this needs ({why}): this is {ours}; use the \
             program that the node runs, or run the newer one on both"
        ))
    })
}

/// A standby at a time.
#[derive(Clone)]
struct Sight {
    at: Duration,
    /// The end of its primary's log.
    filled: Lsn,
    fed: Fed,
}

/// What was seen of one standby.
struct Seen {
    /// Since the present connection was first seen.
    first: Sight,
    last: Sight,
    /// Sums of this number of looks.
    looks: u64,
    lag_bytes: u64,
    loads: u64,
    idle: u64,
    link_busy: u64,
    following: u64,
}

impl Seen {
    fn new(first: Sight) -> Self {
        let last = first.clone();
        Self { first, last, looks: 0, lag_bytes: 0, loads: 0, idle: 0, link_busy: 0, following: 0 }
    }

    fn look(&mut self, sight: Sight) {
        let (fed, before) = (&sight.fed, &self.last.fed);
        if fed.sent_bytes < before.sent_bytes || fed.form() != before.form() {
            *self = Self::new(sight);
            return;
        }
        self.looks += 1;
        self.lag_bytes += fed.lag_bytes();
        if let Some(load) = fed.load {
            self.loads += 1;
            self.idle += u64::from(load.idle);
            self.link_busy += u64::from(load.link_busy);
            self.following += u64::from(load.following);
        }
        self.last = sight;
    }

    /// `log_bytes` are those of a transaction.
    fn standby(&self, log_bytes: f64) -> Standby {
        let fed = &self.last.fed;
        let now = fed.form().map(|form| self.now(form, log_bytes));
        Standby { node: Some(fed.node.clone()), address: Some(fed.address.clone()), now }
    }

    fn now(&self, form: Form, log_bytes: f64) -> Now {
        let (Sight { at: begun, filled, fed: first }, Sight { at: ended, filled: end, fed }) =
            (&self.first, &self.last);
        let seconds = ended.saturating_sub(*begun).as_secs_f64().max(1e-9);
        let sent = fed.sent_bytes.saturating_sub(first.sent_bytes) as f64;
        let since = |now: Lsn, then: Lsn| now.since(then) as f64;
        let seen = since(fed.reached(), first.reached());
        let thousandth = |sum: u64| sum as f64 / self.loads.max(1) as f64 / 1000.0;
        let trips = fed.round_trips.count.saturating_sub(first.round_trips.count);
        let took = fed.round_trips.total.saturating_sub(first.round_trips.total);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Now {
            form,
            fabric: fed.fabric.clone().unwrap_or_default(),
            one_sided: fed.one_sided,
            wire_bytes: sent * log_bytes / since(fed.shipped, first.shipped).max(1.0),
            sent_s: sent / seconds,
            link_busy: (self.loads > 0).then(|| thousandth(self.link_busy)),
            round_trip_ms: (trips > 0).then(|| (ms(fed.round_trips.least), ms(took) / trips as f64)),
            processors: fed.load.filter(|_| self.loads > 0).map(|load| Processors {
                count: load.processors,
                idle: thousandth(self.idle),
                following: thousandth(self.following),
            }),
            lag_bytes: self.lag_bytes as f64 / self.looks.max(1) as f64,
            replays: (seen > 0.0).then(|| seen / since(*end, *filled).max(1.0)),
        }
    }
}

impl Now {
    /// How many bytes a second the link carries, where it is busy enough to tell.
    pub(super) fn link_carries(&self) -> Option<f64> {
        weigh::carries(self.sent_s, self.link_busy?)
    }
}

/// What was measured so far. It has no clock.
struct Totals {
    first: Look,
    last: (Duration, Look),
    standbys: BTreeMap<String, Seen>,
    mix: Mix,
    /// Of those pieces of the log in which inputs are recorded.
    recorded: Mix,
}

impl Totals {
    fn new(first: Look) -> Self {
        let last = (Duration::ZERO, first.clone());
        let mut totals = Self { first, last, standbys: BTreeMap::new(), mix: Mix::default(), recorded: Mix::default() };
        totals.look(Duration::ZERO, totals.first.clone());
        totals
    }

    /// This was said `at` after the first look.
    fn look(&mut self, at: Duration, look: Look) {
        for fed in &look.standbys {
            let sight = Sight { at, filled: look.filled, fed: fed.clone() };
            match self.standbys.get_mut(&fed.node) {
                Some(seen) => seen.look(sight),
                None => drop(self.standbys.insert(fed.node.clone(), Seen::new(sight))),
            }
        }
        self.last = (at, look);
    }

    /// Bytes of a group commit.
    fn batch_bytes(&self) -> u64 {
        let (first, last) = (&self.first, &self.last.1);
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let (bytes, batches) = (since(last.log_bytes, first.log_bytes), since(last.batches, first.batches));
        // Nothing since the first look: since the start.
        let (bytes, batches) = if batches > 0 { (bytes, batches) } else { (last.log_bytes, last.batches) };
        (bytes / batches.max(1)).max(1)
    }

    /// This was seen of the log.
    fn add(&mut self, mix: &Mix) {
        sum(&mut self.mix, mix);
        if mix.form.is_some() {
            sum(&mut self.recorded, mix);
        }
    }

    fn measured(&self) -> Measured {
        let load = self.load();
        let standbys = self.standbys.values().map(|seen| seen.standby(load.log_bytes)).collect();
        let Look { node, address, .. } = &self.last.1;
        Measured { node: node.clone(), address: address.clone(), load, standbys }
    }

    fn load(&self) -> Load {
        let (first, (time, last), mix) = (&self.first, &self.last, &self.mix);
        let seconds = time.as_secs_f64().max(1e-9);
        let each = |count: u64| count as f64 / mix.transactions.max(1) as f64;
        let log_bytes = each(mix.log_bytes);
        let transactions_s = last.filled.since(first.filled) as f64 / log_bytes.max(1.0) / seconds;
        let transactions = (transactions_s * seconds).max(1e-9);
        let cpu = |of: fn(&Look) -> Duration| of(last).saturating_sub(of(first)).as_secs_f64() * 1e6 / transactions;
        let (log_us, shipping) = (cpu(Look::log_cpu), cpu(|look| look.ship_cpu + look.ack_cpu));
        let (ship_us, shipped_as) = shipped(last, shipping).unzip();
        let distinct = mix.distinct;
        let checkpoint = last.checkpoint.as_ref().filter(|checkpoint| checkpoint.rows > 0);
        let written = distinct.row_bytes as f64 / distinct.records.max(1) as f64;
        Load {
            seconds,
            transactions_s,
            forward_us: (cpu(|look| look.process_cpu) - log_us - shipping).max(0.0),
            log_us,
            ship_us,
            shipped_as,
            processors: last.processors.count,
            idle: last.processors.ticks.zip(first.processors.ticks).and_then(|(now, then)| now.idle_since(&then)),
            log_bytes,
            batch_bytes: self.batch_bytes() as f64,
            records: each(mix.records),
            changes: Changes {
                batches: each(distinct.batches),
                records: each(distinct.records),
                row_bytes: each(distinct.row_bytes),
                updates: each(distinct.updates),
                update_bytes: each(distinct.update_bytes),
                noted: each(distinct.noted),
                noted_bytes: each(distinct.noted_bytes),
                changed_bytes: each(distinct.changed_bytes),
                pieces: each(distinct.pieces),
            },
            inputs: self.inputs(log_bytes),
            not_recorded: self.not_recorded(),
            rows: mix.rows,
            row_bytes: checkpoint.map_or(written, |checkpoint| checkpoint.bytes as f64 / checkpoint.rows as f64),
            index_entries: mix.index_entries,
        }
    }

    /// Of transactions of this length, if inputs are recorded.
    fn inputs(&self, log_bytes: f64) -> Option<Inputs> {
        if self.first.inputs.is_none() || self.last.1.inputs.is_none() {
            return None;
        }
        let mix = &self.recorded;
        let Some(form) = mix.form else { return Some(Inputs { wire_bytes: log_bytes, ..Inputs::default() }) };
        let transactions = mix.transactions.max(1) as f64;
        Some(Inputs {
            share: form.transactions as f64 / transactions,
            wire_bytes: form.bytes as f64 * log_bytes / mix.log_bytes.max(1) as f64,
            encode_us: form.cpu.as_secs_f64() * 1e6 / transactions,
        })
    }

    fn not_recorded(&self) -> BTreeMap<String, u64> {
        let (Some(first), Some(last)) = (&self.first.inputs, &self.last.1.inputs) else { return BTreeMap::new() };
        let before = |why| first.kept.get(why).copied().unwrap_or(0);
        let since = last.kept.iter().map(|(why, count)| (why.clone(), count.saturating_sub(before(why))));
        since.filter(|(_, count)| *count > 0).collect()
    }
}

/// What each standby has of the time that shipping takes, and in which form it is fed; nothing if
/// they are fed in different ones.
fn shipped(look: &Look, shipping: f64) -> Option<(f64, Form)> {
    let mut forms = look.standbys.iter().filter_map(Fed::form);
    let form = forms.next()?;
    let (mut count, observers) = (1, look.observers.len());
    for other in forms {
        if other != form {
            return None;
        }
        count += 1;
    }
    // Observers get bytes.
    (observers == 0 || form == Form::Bytes).then(|| (shipping / (count + observers) as f64, form))
}

/// Adds what was seen of another piece. How large tables are, the newest knows.
fn sum(all: &mut Mix, more: &Mix) {
    all.log_bytes += more.log_bytes;
    all.transactions += more.transactions;
    all.recorded += more.recorded;
    all.records += more.records;
    let (all_distinct, distinct) = (&mut all.distinct, &more.distinct);
    all_distinct.batches += distinct.batches;
    all_distinct.records += distinct.records;
    all_distinct.row_bytes += distinct.row_bytes;
    all_distinct.updates += distinct.updates;
    all_distinct.update_bytes += distinct.update_bytes;
    all_distinct.noted += distinct.noted;
    all_distinct.noted_bytes += distinct.noted_bytes;
    all_distinct.changed_bytes += distinct.changed_bytes;
    all_distinct.pieces += distinct.pieces;
    if let Some(form) = &more.form {
        let all = all.form.get_or_insert_default();
        all.bytes += form.bytes;
        all.transactions += form.transactions;
        all.cpu += form.cpu;
    }
    (all.rows, all.index_entries) = (more.rows, more.index_entries);
}

#[cfg(test)]
mod tests {
    use freshet_engine::node::{Distinct, FormMix};
    use serde_json::json;

    use super::*;

    fn micros(micros: u64) -> Value {
        serde_json::to_value(Duration::from_micros(micros)).unwrap()
    }

    /// A primary that has written `transactions` of 1,000 bytes, with a standby that has got as
    /// many.
    fn status(transactions: u64) -> Value {
        json!({
            "role": "primary", "version": "0", "node": "0a", "address": "a:7401",
            "filled": 4096 + transactions * 1000, "log_bytes": 4096 + transactions * 1000, "batches": transactions / 50,
            "log_cpu": micros(3 * transactions), "ship_cpu": micros(2 * transactions),
            "prompt_cpu": micros(2 * transactions),
            "ack_cpu": micros(transactions), "process_cpu": micros(24 * transactions),
            "processors": {"count": 2, "all": 1000 + transactions / 10, "idle": 500 + transactions / 40},
            "checkpoint": null, "observers": [],
            "standbys": [{
                "node": "0b", "address": "b:7401", "connected": true, "encoding": "bytes", "fabric": "shm",
                "one_sided": true, "load": {"processors": 4, "idle": 250, "link_busy": 100, "following": 300},
                "round_trips": {"count": transactions / 100, "total": micros(transactions * 5), "least": micros(250)},
                "shipped": 4096 + transactions * 1000, "visible": 4096 + transactions * 900,
                "acked": 4096 + transactions * 950, "ack_lag_bytes": 700,
                "sent_bytes": transactions * 1100, "visible_lag_bytes": 3000,
            }],
        })
    }

    fn look(status: &Value) -> Look {
        read("here", &status.to_string()).map_err(|failure| failure.to_string()).unwrap()
    }

    fn mix(transactions: u64) -> Mix {
        let distinct = Distinct {
            batches: 2,
            records: 3 * transactions,
            row_bytes: 240 * transactions,
            updates: 2 * transactions,
            update_bytes: 160 * transactions,
            noted: transactions,
            noted_bytes: 80 * transactions,
            changed_bytes: 24 * transactions,
            pieces: transactions,
        };
        Mix {
            log_bytes: transactions * 1000,
            transactions,
            records: transactions * 4,
            distinct,
            rows: 70,
            index_entries: 90,
            ..Mix::default()
        }
    }

    #[test]
    fn figures_are_those_of_the_time_between() {
        let mut totals = Totals::new(look(&status(50_000)));
        totals.look(Duration::from_secs(1), look(&status(70_000)));
        totals.add(&mix(100));
        totals.look(Duration::from_secs(4), look(&status(90_000)));
        totals.add(&mix(300));
        let Measured { load, standbys, .. } = totals.measured();
        assert_eq!((load.transactions_s, load.log_bytes, load.seconds), (10_000.0, 1000.0, 4.0));
        let times = [load.log_us, load.ship_us.unwrap(), load.forward_us].map(|time| (time * 1000.0).round());
        assert_eq!(times, [1000.0, 3000.0, 20_000.0]);
        assert_eq!((load.shipped_as, load.idle, load.batch_bytes), (Some(Form::Bytes), Some(0.25), 50_000.0));
        let changes = Changes {
            batches: 0.01,
            records: 3.0,
            row_bytes: 240.0,
            updates: 2.0,
            update_bytes: 160.0,
            noted: 1.0,
            noted_bytes: 80.0,
            changed_bytes: 24.0,
            pieces: 1.0,
        };
        assert_eq!((load.records, load.changes, load.row_bytes), (4.0, changes, 80.0));
        assert_eq!((load.rows, load.index_entries, load.inputs), (70, 90, None));
        let now = standbys[0].now.as_ref().unwrap();
        assert_eq!((now.form, now.wire_bytes, now.link_busy), (Form::Bytes, 1100.0, Some(0.1)));
        assert_eq!((now.round_trip_ms, now.lag_bytes, now.replays), (Some((0.25, 0.5)), 3000.0, Some(0.9)));
        assert_eq!(now.processors, Some(Processors { count: 4, idle: 0.25, following: 0.3 }));
        assert_eq!(now.link_carries(), None, "it is hardly busy");
    }

    #[test]
    fn a_connection_is_counted_from_its_beginning() {
        let mut totals = Totals::new(look(&status(50_000)));
        let mut gone = status(60_000);
        gone["standbys"][0]["connected"] = false.into();
        gone["standbys"][0]["encoding"] = Value::Null;
        totals.look(Duration::from_secs(1), look(&gone));
        totals.add(&mix(100));
        assert_eq!(totals.measured().standbys[0].now, None);
        let mut back = status(70_000);
        back["standbys"][0]["sent_bytes"] = 1000.into();
        totals.look(Duration::from_secs(2), look(&back));
        back["standbys"][0]["sent_bytes"] = 11_001_000.into();
        back["filled"] = (4096 + 80_000_000).into();
        totals.look(Duration::from_secs(3), look(&back));
        let standby = &totals.measured().standbys[0];
        assert_eq!(standby.now.as_ref().unwrap().sent_s, 11e6);
    }

    #[test]
    fn inputs_are_those_of_pieces_that_have_some() {
        let recording = |transactions, kept: u64| {
            let mut status = status(transactions);
            status["inputs"] = json!({"recorded": 7, "bytes": 9, "kept": {"long": kept, "bulk": 3}});
            look(&status)
        };
        let mut totals = Totals::new(recording(1000, 2));
        totals.look(Duration::from_secs(1), recording(2000, 8));
        totals.add(&mix(100));
        let load = totals.measured().load;
        assert_eq!(load.inputs, Some(Inputs { wire_bytes: 1000.0, ..Inputs::default() }), "none can be recorded");
        assert_eq!(load.not_recorded, BTreeMap::from([("long".to_owned(), 6)]));
        let form = FormMix { bytes: 12_000, transactions: 90, cpu: Duration::from_micros(200) };
        totals.add(&Mix { form: Some(form), ..mix(100) });
        let inputs = Inputs { share: 0.9, wire_bytes: 120.0, encode_us: 2.0 };
        assert_eq!(totals.measured().load.inputs, Some(inputs));
    }

    #[test]
    fn shipping_is_divided_among_those_who_are_fed_alike() {
        let mut two = status(1000);
        let mut other = two["standbys"][0].clone();
        other["node"] = "0c".into();
        two["standbys"].as_array_mut().unwrap().push(other);
        assert_eq!(shipped(&look(&two), 6.0), Some((3.0, Form::Bytes)));
        two["observers"] = json!([{}]);
        assert_eq!(shipped(&look(&two), 6.0), Some((2.0, Form::Bytes)));
        two["standbys"][1]["encoding"] = "inputs".into();
        assert_eq!(shipped(&look(&two), 6.0), None);
        two["standbys"] = json!([]);
        assert_eq!(shipped(&look(&two), 6.0), None);
    }

    #[test]
    fn other_nodes_are_distinguished() {
        let explains = |status: Value, what: &str| {
            let failure = read("here:7400", &status.to_string()).unwrap_err().to_string();
            assert!(failure.starts_with("here:7400") && failure.contains(what), "{failure}");
        };
        explains(json!({"role": "standby", "link": {"link": "following", "address": "p:7401"}}), "reach at p:7401");
        explains(json!({"role": "standby", "link": {"link": "resting"}}), "ask its primary, at its control port");
        explains(json!({"role": "starting"}), "is starting: ask again");
        explains(json!({"role": "taking-over"}), "not a primary, but taking-over");
        let mut old = status(5);
        old["version"] = "0.0.7".into();
        old.as_object_mut().unwrap().remove("process_cpu");
        explains(old, "runs Freshet 0.0.7 and does not say all that this needs (missing field `process_cpu`)");
        assert!(read("here", "nonsense").is_err());
    }
}
