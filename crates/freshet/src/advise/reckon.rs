//! Which form of replication fits a standby, and what each would cost: from what was measured, and
//! from nothing else. Nothing here asks anybody.
//!
//! | form | the standby gets | its processors |
//! |---|---|---|
//! | bytes | the log | replay it |
//! | inputs | what transactions were told | execute them again |
//! | mirror | changed records, in place, with undo entries before them (Active-Memory, section 4) | do nothing where the fabric is one-sided |
//!
//! Between bytes and inputs the measures of `encoding = "auto"` decide
//! ([`weigh`]). A mirror is for a standby whose processors do not keep up with replay: it costs its
//! primary more, and serves no readers. What it would take is reckoned: a record that changes
//! several times in a batch is written once. Of an update that is what changes of its slot; what
//! was there before is read, and goes into an undo entry. While a mirror follows, the log says what
//! changes. Without one a share of the row is taken that was measured before.

use std::collections::BTreeMap;

use freshet_engine::{LogSettings, MirrorSettings, mirror_format, scheme::inputs::weigh};
use serde::{Deserialize, Serialize};

use super::constants::{
    ANSWER_TCP, CHANGED, ENCODE, ENTRIES, EXECUTE, FOLLOW, FOLLOW_BATCH, INPUTS, LAY_OUT, LIST, LIST_TCP, LISTED_TCP,
    OPERATION, PACKET, PROMOTE, READ_BACK, READ_TCP, RECORD, SHIP_BATCH, SHIP_BATCH_TCP, SHIP_ONE_SIDED, SHIP_TCP,
    TABLES, TAKE_IN, WRITE,
};

/// Bytes of a mirror's slot before its row, and of an undo entry's change before the old ones.
const SLOT_HEADER: f64 = mirror_format::SLOT_HEADER as f64;
const CHANGE_HEADER: f64 = mirror_format::CHANGE_HEADER as f64;
/// Bytes of an undo entry, and how many of these are head and end.
const ENTRY: f64 = mirror_format::ENTRY as f64;
const ENTRY_FRAME: f64 = mirror_format::ENTRY_FRAME as f64;
/// Bytes of a request's number, which goes with what is to be read over TCP.
const REQUEST: f64 = 8.0;
/// A row of no more bytes mostly changes close to its header.
const SHORT: f64 = 128.0;
/// A standby falls behind that replays less than this share of what is written.
const ENOUGH: f64 = 0.9;

/// How a standby is fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Form {
    Bytes,
    Inputs,
    Mirror,
}

impl Form {
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Inputs => "inputs",
            Self::Mirror => "mirror",
        }
    }
}

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Origin {
    /// It was measured now.
    Measured,
    /// It was measured now at other standbys.
    Elsewhere,
    /// What was measured now, times a constant that was measured before.
    Constant,
    /// From a model of what a mirror does.
    Reckoned,
}

/// A number and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figure {
    pub value: f64,
    pub from: Origin,
}

/// What the primary does. Times are processor time in microseconds; what is not said to be else is
/// of one transaction that writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Load {
    /// For how long it was measured, in seconds.
    pub seconds: f64,
    /// Transactions that write, in a second.
    pub transactions_s: f64,
    /// Everything but the log and shipping: sessions and reading, too.
    pub forward_us: f64,
    pub log_us: f64,
    /// For each standby; if all get the log in the same form.
    pub ship_us: Option<f64>,
    /// The form in which all standbys get the log, if it is one.
    pub shipped_as: Option<Form>,
    pub processors: u32,
    /// The share of them that did nothing.
    pub idle: Option<f64>,
    pub log_bytes: f64,
    /// Average length of a group commit.
    pub batch_bytes: f64,
    pub records: f64,
    pub changes: Changes,
    /// Nothing if no inputs are recorded at present.
    pub inputs: Option<Inputs>,
    /// How many transactions were not recorded, by reason.
    pub not_recorded: BTreeMap<String, u64>,
    /// Rows in all tables, about.
    pub rows: u64,
    /// Average length of a row, about.
    pub row_bytes: f64,
    /// Entries in all indexes, about.
    pub index_entries: u64,
}

/// What a transaction writes, if each batch writes a record once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Changes {
    pub batches: f64,
    pub records: f64,
    pub row_bytes: f64,
    /// Records that were there before, and the bytes of their rows.
    pub updates: f64,
    pub update_bytes: f64,
    /// Of these, those whose changes the log says in parts, and the bytes of their rows.
    pub noted: f64,
    pub noted_bytes: f64,
    /// What changes of their slots in a mirror, in bytes, and in how many pieces.
    pub changed_bytes: f64,
    pub pieces: f64,
}

impl Changes {
    /// What changes of all slots in a mirror that have rows already: bytes, and in how many pieces.
    /// Where the log does not say so, that is the slot's header and a part of the row, in one piece
    /// with the header if the row is short.
    fn of_updates(&self) -> (f64, f64) {
        let (updates, bytes) = (self.updates - self.noted, self.update_bytes - self.noted_bytes);
        let pieces = if bytes > updates * SHORT { 2.0 } else { 1.0 };
        let bytes = updates * SLOT_HEADER + bytes * CHANGED.value / 100.0;
        (self.changed_bytes + bytes, self.pieces + updates * pieces)
    }
}

/// What goes into a mirror for a transaction.
struct Writes {
    /// Undo entries, and what is written in place.
    bytes: f64,
    /// How many writes these are.
    count: f64,
    /// How many slots are read before that, and how many pieces of them.
    updates: f64,
    reads: f64,
}

impl Writes {
    fn of(changes: &Changes) -> Self {
        let Changes { batches, records, row_bytes, updates, update_bytes, .. } = *changes;
        let (changed, pieces) = changes.of_updates();
        let others = records - updates;
        // Of a slot that had no row, the header is kept.
        let undo = (pieces + others) * CHANGE_HEADER + changed + others * SLOT_HEADER;
        let entries = batches * (undo / batches.max(1e-9) / (ENTRY - ENTRY_FRAME)).ceil();
        let in_place = changed + others * SLOT_HEADER + row_bytes - update_bytes;
        let undo = undo + entries * ENTRY_FRAME;
        Self { bytes: undo + in_place, count: entries + pieces + others, updates, reads: pieces }
    }
}

/// Inputs that are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Inputs {
    /// The share of transactions that go as inputs.
    pub share: f64,
    /// What the form takes, with those that go as bytes.
    pub wire_bytes: f64,
    pub encode_us: f64,
}

/// A standby that is measured, or only thought of.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Standby {
    /// Nothing of one that is only thought of.
    pub node: Option<String>,
    pub address: Option<String>,
    /// Nothing while it is not connected.
    pub now: Option<Now>,
}

/// How a standby is fed at present.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Now {
    pub form: Form,
    pub fabric: String,
    pub one_sided: bool,
    /// Bytes on the wire for one transaction.
    pub wire_bytes: f64,
    /// Bytes sent to it in a second.
    pub sent_s: f64,
    /// For which share of the time something was on its way.
    pub link_busy: Option<f64>,
    /// Until a batch is persistent there, in milliseconds: the quickest, and the mean.
    pub round_trip_ms: Option<(f64, f64)>,
    pub processors: Option<Processors>,
    /// Bytes of log that its readers did not see yet, on average.
    pub lag_bytes: f64,
    /// What became visible there, as a share of what was written in that time. Nothing if nothing
    /// did: it has all, or does not replay.
    pub replays: Option<f64>,
}

/// What a standby's machine has of processors, and uses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Processors {
    pub count: u32,
    /// The share of them that did nothing.
    pub idle: f64,
    /// How many of them following takes.
    pub following: f64,
}

/// What a form costs. Times are processor time in microseconds for each transaction that writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Costs {
    pub form: Form,
    pub wire_bytes: Figure,
    pub primary_us: Figure,
    pub standby_us: Figure,
    /// For which share of the time the link would be busy. More than 1: it does not carry that.
    pub link_busy: Option<f64>,
    /// How many of the standby's processors it needs.
    pub needs: f64,
    /// Whether the link is not busy enough to tell, so that `link_busy` is the most that may be.
    pub link_at_most: bool,
    /// Whether link and processors suffice, as far as they are known.
    pub keeps_up: bool,
    /// In seconds, from the order to the first commit.
    pub failover_s: Figure,
    pub serves_readers: bool,
    /// What a mirror's memory takes, in bytes.
    pub memory_bytes: Option<f64>,
}

/// What fits a standby.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Advice {
    #[serde(flatten)]
    pub standby: Standby,
    pub fits: Form,
    pub why: String,
    pub costs: [Costs; 3],
}

fn measured(value: f64) -> Figure {
    Figure { value, from: Origin::Measured }
}

/// The mean of what was measured at other standbys, if something was.
fn elsewhere(values: impl Iterator<Item = f64>) -> Option<Figure> {
    let (count, sum) = values.fold((0u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| Figure { value: sum / f64::from(count), from: Origin::Elsewhere })
}

fn constant(value: f64) -> Figure {
    Figure { value, from: Origin::Constant }
}

fn reckoned(value: f64) -> Figure {
    Figure { value, from: Origin::Reckoned }
}

fn kib(bytes: f64) -> f64 {
    bytes / 1024.0
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Whether inputs are worth asking for.
fn is_shorter(bytes: &Costs, inputs: &Costs) -> bool {
    weigh::is_shorter(inputs.wire_bytes.value, bytes.wire_bytes.value)
}

impl Now {
    /// Processor time that following takes, in microseconds for each transaction that is replayed.
    fn following_us(&self, load: &Load) -> Option<f64> {
        let replayed_s = load.transactions_s * self.replays.unwrap_or(1.0);
        Some(self.processors?.following * 1e6 / replayed_s.max(1e-9))
    }
}

/// Both sides, as far as costs depend on them.
struct Case<'c> {
    load: &'c Load,
    now: Option<&'c Now>,
    processors: Processors,
    others: Vec<&'c Now>,
}

/// Says which form fits each of the standbys, and what each form would cost.
pub(super) fn advise(load: &Load, standbys: Vec<Standby>) -> Vec<Advice> {
    let judge = |at: usize| {
        let case = Case::of(load, &standbys, at);
        let costs = [case.bytes(), case.inputs(), case.mirror()];
        (case.choose(&costs), costs)
    };
    let judged: Vec<_> = (0..standbys.len()).map(judge).collect();
    let advice = |(standby, ((fits, why), costs))| Advice { fits, why, costs, standby };
    standbys.into_iter().zip(judged).map(advice).collect()
}

impl<'c> Case<'c> {
    /// A standby that says nothing of its processors counts as one like the primary that does
    /// nothing else.
    fn of(load: &'c Load, standbys: &'c [Standby], at: usize) -> Self {
        let now = standbys[at].now.as_ref();
        let others = standbys.iter().enumerate().filter(|(other, _)| *other != at);
        let others = others.filter_map(|(_, other)| other.now.as_ref()).collect();
        let like_primary = Processors { count: load.processors.max(1), idle: 1.0, following: 0.0 };
        let processors = now.and_then(|now| now.processors).unwrap_or(like_primary);
        Self { load, now, processors, others }
    }

    fn is_fed(&self, form: Form) -> Option<&Now> {
        self.now.filter(|now| now.form == form)
    }

    /// What following takes on the standby for each transaction, if it gets the log in this form
    /// now, or else what it takes on others.
    fn following_us(&self, form: Form) -> Option<Figure> {
        let here = self.is_fed(form).and_then(|now| now.following_us(self.load));
        let others = self.others.iter().filter(|now| now.form == form);
        here.map(measured).or_else(|| elsewhere(others.filter_map(|now| now.following_us(self.load))))
    }

    /// Whether the standby, which gets the log in this form, falls behind, for whatever reason.
    fn falls_behind(&self, form: Form) -> bool {
        self.is_fed(form).and_then(|now| now.replays).is_some_and(|share| share < ENOUGH)
    }

    /// Whether the standby has the processors that this form needs. Of the form that it gets, what
    /// it makes of it says so.
    fn has_processors(&self, form: Form, needs: f64) -> bool {
        if self.is_fed(form).is_some() { !self.falls_behind(form) } else { needs <= self.free() }
    }

    /// Whether a link's share of the time may be too large: the link is not busy enough to tell
    /// what it carries, and part of what it is busy with is latency, which bytes do not change.
    fn is_upper_bound(&self, form: Form) -> bool {
        self.is_fed(form).is_none() && self.now.is_some_and(|now| now.link_carries().is_none())
    }

    /// What shipping takes on the primary, if it ships in this form now.
    fn shipping_us(&self, form: Form) -> Option<f64> {
        self.load.ship_us.filter(|_| self.load.shipped_as == Some(form))
    }

    fn is_one_sided(&self) -> bool {
        self.now.is_some_and(|now| now.one_sided)
    }

    /// What shipping as many bytes takes. Threads are woken for each batch, however short it is.
    fn ship_us(&self, bytes: f64) -> f64 {
        let (batch, each) = if self.is_one_sided() { (SHIP_BATCH, SHIP_ONE_SIDED) } else { (SHIP_BATCH_TCP, SHIP_TCP) };
        self.load.changes.batches * batch.value + kib(bytes) * each.value
    }

    /// Processors that following can have: those that do nothing, and what it has.
    fn free(&self) -> f64 {
        f64::from(self.processors.count) * self.processors.idle + self.processors.following
    }

    /// The rest follows from these.
    fn costs(&self, form: Form, wire_bytes: Figure, primary_us: Figure, standby_us: Figure) -> Costs {
        let now = self.now.and_then(|now| Some((now.link_busy?, now.wire_bytes)));
        let link_busy = now.map(|(busy, wire)| weigh::busy_with(busy, wire, wire_bytes.value));
        let needs = self.load.transactions_s * standby_us.value / 1e6;
        let carries = self.is_upper_bound(form) || link_busy.is_none_or(|busy| busy < 1.0);
        let keeps_up = carries && self.has_processors(form, needs);
        let count = f64::from(self.processors.count.max(1));
        let behind = self.now.map_or(0.0, |now| now.lag_bytes) / self.load.log_bytes.max(1.0);
        let replay_s = behind * standby_us.value / 1e6 / count;
        Costs {
            form,
            wire_bytes,
            primary_us,
            standby_us,
            link_busy,
            link_at_most: self.is_upper_bound(form),
            needs,
            keeps_up,
            failover_s: constant(PROMOTE.value + replay_s),
            serves_readers: true,
            memory_bytes: None,
        }
    }

    fn bytes(&self) -> Costs {
        let log = self.load.log_bytes;
        let wire = measured(self.is_fed(Form::Bytes).map_or(log, |now| now.wire_bytes));
        let primary = self.shipping_us(Form::Bytes).map_or_else(|| constant(self.ship_us(log)), measured);
        let follow = self.load.changes.batches * FOLLOW_BATCH.value + kib(log) * FOLLOW.value;
        let standby = self.following_us(Form::Bytes).unwrap_or_else(|| constant(follow));
        self.costs(Form::Bytes, wire, primary, standby)
    }

    fn inputs(&self) -> Costs {
        let log = self.load.log_bytes;
        let recorded = self.load.inputs;
        let wire = match (self.is_fed(Form::Inputs), recorded) {
            (Some(now), _) => measured(now.wire_bytes),
            (None, Some(inputs)) => measured(inputs.wire_bytes),
            (None, None) => constant(log * INPUTS.value / 100.0),
        };
        let encode = recorded.map_or(kib(log) * ENCODE.value, |inputs| inputs.encode_us);
        let ship = self.shipping_us(Form::Inputs).unwrap_or_else(|| encode + self.ship_us(wire.value));
        let primary = constant(ship + self.load.forward_us * RECORD.value / 100.0);
        let again = || constant(self.load.forward_us * EXECUTE.value);
        let standby = self.following_us(Form::Inputs).unwrap_or_else(again);
        self.costs(Form::Inputs, wire, primary, standby)
    }

    fn mirror(&self) -> Costs {
        let Load { log_bytes, changes: Changes { batches, records, .. }, .. } = *self.load;
        let writes = Writes::of(&self.load.changes);
        let make = kib(log_bytes) * TAKE_IN.value + records * LAY_OUT.value + kib(writes.bytes) * WRITE.value;
        let (headers, talk, standby) = match self.now.filter(|now| now.one_sided) {
            Some(now) => {
                let headers = if now.fabric == "shm" { 0.0 } else { writes.count * PACKET.value };
                (headers, batches * LIST.value + writes.updates * READ_BACK.value, 0.0)
            }
            None => {
                // Each piece is asked for with a number, and each batch asks to be told of.
                let operations = writes.count + writes.reads + batches;
                let headers = operations * OPERATION.value + writes.reads * REQUEST;
                let talk = batches * LIST_TCP.value + writes.reads * READ_TCP.value;
                (headers, talk, batches * LISTED_TCP.value + writes.reads * ANSWER_TCP.value)
            }
        };
        let (wire, primary) = (writes.bytes + headers, make + talk);
        let fed = self.is_fed(Form::Mirror);
        let wire = fed.map_or_else(|| reckoned(wire), |now| measured(now.wire_bytes));
        let primary = self.shipping_us(Form::Mirror).map_or_else(|| reckoned(primary), measured);
        let standby = self.following_us(Form::Mirror).unwrap_or_else(|| reckoned(standby));
        let costs = self.costs(Form::Mirror, wire, primary, standby);
        Costs {
            failover_s: reckoned(self.mirror_takes_over_s()),
            serves_readers: false,
            memory_bytes: Some(self.mirror_bytes()),
            ..costs
        }
    }

    /// How long a mirror takes to become the primary: it makes tables of its rows, and a checkpoint
    /// with that, then indexes.
    fn mirror_takes_over_s(&self) -> f64 {
        let count = f64::from(self.processors.count.max(1));
        let (mib, entries) = (kib(self.slots_bytes()) / 1024.0, self.load.index_entries as f64);
        PROMOTE.value + mib / (TABLES.value * count) + entries / (ENTRIES.value * 1e6 * count)
    }

    /// What a mirror's slots take, if all rows have about the same length.
    fn slots_bytes(&self) -> f64 {
        let slot = (mirror_format::SLOT_HEADER + self.load.row_bytes.ceil() as usize).max(mirror_format::LEAST_SLOT);
        self.load.rows as f64 * slot.next_multiple_of(mirror_format::SLOT_STEP) as f64
    }

    /// What the memory of a mirror with the usual settings takes.
    fn mirror_bytes(&self) -> f64 {
        let mirror = MirrorSettings::default();
        self.slots_bytes() + (mirror.undo(&LogSettings::default()) + mirror.directory_bytes) as f64
    }

    /// Whether the link is too narrow for bytes: a standby that gets inputs stays with them until
    /// the link is wide, as with `encoding = "auto"`.
    fn is_narrow(&self, bytes: &Costs) -> bool {
        let stays = self.is_fed(Form::Inputs).is_some();
        bytes.link_busy.is_some_and(|busy| if stays { !weigh::is_wide(busy) } else { weigh::is_full(busy) })
    }

    /// Whether the standby has the processors to execute, and the link carries inputs, which are
    /// shorter.
    fn can_execute(&self, bytes: &Costs, inputs: &Costs) -> bool {
        let count = f64::from(self.processors.count.max(1));
        let begins = || weigh::can_execute(self.processors.idle, inputs.needs / count);
        inputs.keeps_up && is_shorter(bytes, inputs) && (self.is_fed(Form::Inputs).is_some() || begins())
    }

    fn choose(&self, [bytes, inputs, mirror]: &[Costs; 3]) -> (Form, String) {
        let behind = self.now.filter(|now| self.falls_behind(now.form)).and_then(|now| now.replays);
        let (narrow, weak) = (self.is_narrow(bytes), !self.has_processors(Form::Bytes, bytes.needs));
        let link = |costs: &Costs| {
            let most = if costs.link_at_most { "at most " } else { "" };
            costs.link_busy.map_or("not known".to_owned(), |busy| format!("{most}{}", percent(busy)))
        };
        let needs = |costs: &Costs| format!("{:.2} of the {:.2} processors that are free", costs.needs, self.free());
        if !narrow && !weak {
            let busy = bytes.link_busy.map_or_else(
                || "the link is not known".to_owned(),
                |_| format!("the link is busy for {} of the time with them", link(bytes)),
            );
            return (Form::Bytes, format!("{busy}, and replay needs {}", needs(bytes)));
        }
        let trouble = match (narrow, weak) {
            (true, _) => format!("bytes would keep the link busy for {} of the time", link(bytes)),
            _ => format!("replay needs {}", needs(bytes)),
        };
        let trouble = behind.map_or(trouble.clone(), |share| {
            format!("it makes {} of what is written visible; {trouble}", percent(share))
        });
        if narrow && self.can_execute(bytes, inputs) {
            let recorded = match self.load.inputs {
                Some(Inputs { share, .. }) => format!("{} of the transactions go as inputs", percent(share)),
                None => "no inputs are recorded at present, so their length is that of TPC-C: `encoding = \"auto\"` \
                         tries it"
                    .to_owned(),
            };
            let why = format!("{trouble}, inputs for {}; executing needs {}; {recorded}", link(inputs), needs(inputs));
            return (Form::Inputs, why);
        }
        if mirror.keeps_up && !mirror.link_busy.is_some_and(weigh::is_full) {
            let why = format!(
                "{trouble}; a mirror needs {}, and would keep the link busy for {}. It serves no readers",
                needs(mirror),
                link(mirror)
            );
            return (Form::Mirror, why);
        }
        let pressure = |costs: &Costs| costs.link_busy.unwrap_or(0.0).max(costs.needs / self.free().max(1e-9));
        let worth =
            [bytes, inputs, mirror].into_iter().filter(|costs| costs.form != Form::Inputs || is_shorter(bytes, costs));
        let least = worth.min_by(|one, other| pressure(one).total_cmp(&pressure(other)));
        let least = least.map_or(Form::Bytes, |costs| costs.form);
        let why = format!(
            "{trouble}; inputs need {} and the link for {}, a mirror for {}. None fits: {} comes nearest. Give the \
             standby a wider link or more processors, or the primary less to do",
            needs(inputs),
            link(inputs),
            link(mirror),
            least.name()
        );
        (least, why)
    }
}

#[cfg(test)]
mod tests;
