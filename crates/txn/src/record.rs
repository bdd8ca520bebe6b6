//! Recording: the inputs of a transaction, beside what it did.
//!
//! The block of a transaction is what it always is, and behind its other records one of
//! [`Fid::INPUTS`], with the snapshots that the transaction has read at and the inputs that its
//! caller records ([`Transaction::record_inputs`]). Who replays the records passes it over. Who
//! executes the transaction again, with these inputs and at these snapshots, gets the other
//! records, byte for byte (Record-Replay, section 4; there with commit LSNs alone).
//!
//! # Why a transaction can be executed again
//!
//! A transaction is a function of its inputs and of what it reads. What a read gives is determined
//! by its snapshot, a place in the log, and by the transaction's own writes so far: the newest
//! version below the snapshot, which lies in the log below the transaction's own block. This holds
//! at every isolation level, as long as each snapshot that is taken is noted. Certification, locks
//! and "the first writer wins" decide whether a transaction commits, and nothing of what it writes;
//! the log holds only those that have. So whatever lets a transaction see more than its snapshots
//! show, and continue, is what keeps it from being recorded ([`NotRecorded`]).

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use crossbeam_utils::CachePadded;
use freshet_base::{Fid, Lsn, RecordKind, Rid, varint};
use freshet_log::{BlockBuilder, BlockKind, block::MAX_RECORDS};
use serde::{Serialize, Serializer};

use crate::{Transaction, Worker, core::Core};

/// Why a transaction that has committed while inputs are recorded has none in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotRecorded {
    /// Its inputs were not given.
    NoInputs,
    /// It changes tables or indexes.
    Definitions,
    /// It carries messages. They are inputs themselves, so that little would be gained.
    Messages,
    /// Something that it wrote was taken back: a savepoint was rolled back to, or a record was
    /// inserted and deleted again. Then its records are not all that it wrote.
    TakenBack,
    /// It takes more than one block.
    Long,
    /// It has met what another transaction was about to do, or had done since its snapshot, and
    /// went on: it has waited for a record, or passed it over. Unless its caller knows that what
    /// came of that is what a noted snapshot shows ([`Transaction::forgive_others`]).
    Others,
    /// What it does is not determined by its inputs and by what it read: its caller decides that.
    Undetermined,
    /// Its inputs are about as long as what it writes: its caller decides that.
    Bulk,
}

impl NotRecorded {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 8] = [
        Self::NoInputs,
        Self::Definitions,
        Self::Messages,
        Self::TakenBack,
        Self::Long,
        Self::Others,
        Self::Undetermined,
        Self::Bulk,
    ];
}

impl fmt::Display for NotRecorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoInputs => "no-inputs",
            Self::Definitions => "definitions",
            Self::Messages => "messages",
            Self::TakenBack => "taken-back",
            Self::Long => "long",
            Self::Others => "others",
            Self::Undetermined => "undetermined",
            Self::Bulk => "bulk",
        })
    }
}

impl Serialize for NotRecorded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How many transactions have committed while inputs were recorded, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// Those whose inputs are in the log.
    pub recorded: u64,
    /// The bytes of these inputs, without the headers of their records.
    pub bytes: u64,
    /// The others, by reason; reasons without any are left out.
    pub kept: BTreeMap<NotRecorded, u64>,
}

impl Recorded {
    /// Those since `before`, which was asked for earlier.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |why| before.kept.get(why).copied().unwrap_or(0);
        let kept = self.kept.iter().map(|(why, count)| (*why, count - earlier(why)));
        Self {
            recorded: self.recorded - before.recorded,
            bytes: self.bytes - before.bytes,
            kept: kept.filter(|(_, count)| *count > 0).collect(),
        }
    }
}

/// What a record of [`Fid::INPUTS`] says, in a block that has other records too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inputs<'b> {
    /// The transaction was certified to be what it would be at its own LSN: it is serializable,
    /// and nothing that it has read was written by another up to there. Never so under the serial
    /// safety net, where it may come before others with smaller LSNs.
    pub serial: bool,
    /// The snapshots that the transaction has read at, ascending: that of its beginning, and one
    /// more each time that it took another ([`Transaction::refresh`]).
    pub snapshots: Vec<Lsn>,
    /// What [`Transaction::record_inputs`] was given.
    pub body: &'b [u8],
}

impl<'b> Inputs<'b> {
    /// What a record's row says. None when it says nothing of that kind; any bytes are safe.
    pub fn decode(row: &'b [u8]) -> Option<Self> {
        let mut body = row;
        let head = varint::take(&mut body)?;
        let (serial, count) = (head & 1 == 1, head >> 1);
        // Each takes a byte or more.
        let mut snapshots = Vec::with_capacity(usize::try_from(count).ok().filter(|count| *count <= body.len())?);
        let mut last = 0u64;
        for _ in 0..count {
            last = last.checked_add(varint::take(&mut body)?)?;
            snapshots.push(Lsn(last));
        }
        Some(Self { serial, snapshots, body })
    }

    /// Appends the row that [`Inputs::decode`] understands.
    ///
    /// # Panics
    /// When the snapshots do not ascend.
    pub fn encode(&self, row: &mut Vec<u8>) {
        encode(self.serial, &self.snapshots, self.body, row);
    }
}

fn encode(serial: bool, snapshots: &[Lsn], body: &[u8], row: &mut Vec<u8>) {
    varint::put(row, (snapshots.len() as u64) << 1 | u64::from(serial));
    let mut last = 0;
    for snapshot in snapshots {
        varint::put(row, snapshot.0.checked_sub(last).expect("snapshots ascend"));
        last = snapshot.0;
    }
    row.extend_from_slice(body);
}

/// How many bytes of memory a worker keeps for what a transaction is told.
const KEPT: usize = 64 << 10;

/// What is recorded of a running transaction.
#[derive(Default)]
pub(crate) struct Recording {
    snapshots: Vec<Lsn>,
    /// The transaction's inputs, if they were recorded. Their memory is used again.
    body: Vec<u8>,
    has_body: bool,
    /// What has become of it when its block was built: the length of the record's row, or why it
    /// has no such record.
    outcome: Option<Result<u64, NotRecorded>>,
    /// For the row; its memory is used again.
    row: Vec<u8>,
}

impl Recording {
    /// Forgets everything, for the worker's next transaction.
    pub(crate) fn reset(&mut self) {
        self.snapshots.clear();
        self.has_body = false;
        self.outcome = None;
    }
}

/// Who asks for inputs. Cloned, it is the same.
#[derive(Clone, Debug, Default)]
pub struct InputsDemand(Arc<AtomicUsize>);

impl InputsDemand {
    /// One more asks for them, as long as it keeps what is returned. Who asked before, of a term
    /// that is over, takes nothing away from this one.
    #[must_use]
    pub fn ask(&self) -> InputsAsked {
        // Relaxed, here and below: who looks wants no more than the number.
        self.0.fetch_add(1, Relaxed);
        InputsAsked(self.clone())
    }

    /// Whether anyone asks for them.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.0.load(Relaxed) > 0
    }
}

/// Inputs are asked for as long as this is kept.
#[derive(Debug)]
pub struct InputsAsked(InputsDemand);

impl Drop for InputsAsked {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

/// Whether inputs are recorded, and how many were, by the worker's place.
pub(crate) struct Recorder {
    demand: InputsDemand,
    /// They are, whether any node asks for them or not.
    always: Mutex<Option<InputsAsked>>,
    counts: Box<[CachePadded<Counts>]>,
}

/// Written by one worker at a time.
#[derive(Default)]
struct Counts {
    recorded: AtomicU64,
    bytes: AtomicU64,
    kept: [AtomicU64; NotRecorded::ALL.len()],
}

impl Counts {
    /// Relaxed: only its worker writes it, and readers want no more than the number.
    fn add(count: &AtomicU64, number: u64) {
        count.store(count.load(Relaxed) + number, Relaxed);
    }
}

impl Recorder {
    pub(crate) fn new(places: usize) -> Self {
        let counts = (0..places).map(|_| CachePadded::default()).collect();
        Self { demand: InputsDemand::default(), always: Mutex::default(), counts }
    }
}

impl Core {
    /// Whether transactions that begin now should say what they are told. Cheap.
    #[inline]
    pub fn records_inputs(&self) -> bool {
        self.recorder.demand.is_asked()
    }

    /// Who asks for inputs: transactions that begin while anyone does are recorded.
    pub fn inputs_demand(&self) -> &InputsDemand {
        &self.recorder.demand
    }

    /// Transactions that begin from now on are recorded whether anyone asks for that or not.
    pub fn set_records_inputs(&self, always: bool) {
        let asked = always.then(|| self.recorder.demand.ask());
        *self.recorder.always.lock().unwrap_or_else(PoisonError::into_inner) = asked;
    }

    /// How many were recorded since the start, and how many were not.
    pub fn recorded(&self) -> Recorded {
        let sum = |of: &dyn Fn(&Counts) -> u64| self.recorder.counts.iter().map(|counts| of(counts)).sum::<u64>();
        let kept = NotRecorded::ALL.map(|why| (why, sum(&|counts| counts.kept[why as usize].load(Relaxed))));
        Recorded {
            recorded: sum(&|counts| counts.recorded.load(Relaxed)),
            bytes: sum(&|counts| counts.bytes.load(Relaxed)),
            kept: kept.into_iter().filter(|(_, count)| *count > 0).collect(),
        }
    }
}

impl Worker {
    /// The transaction that is recorded reads at `snapshot` from now on, or for a moment.
    pub(crate) fn note_snapshot(&self, snapshot: Lsn) {
        let mut state = self.state.borrow_mut();
        let noted = &mut state.recording.snapshots;
        match noted.last() {
            // It has looked further ahead for a moment, and now the log stands still.
            Some(last) if *last > snapshot => {
                self.not_recorded.set(self.not_recorded.get().or(Some(NotRecorded::Others)));
            }
            _ => noted.push(snapshot),
        }
    }
}

impl Transaction<'_> {
    /// Whether what it is told should be recorded: the node records inputs, the transaction has
    /// begun since and may write, and nothing is known that keeps it from being executed again.
    #[inline]
    pub fn records_inputs(&self) -> bool {
        self.records && self.worker.not_recorded.get().is_none()
    }

    /// Records the transaction's inputs: whatever those need who execute it again. Before the
    /// commit; the last call counts. Without effect unless [`Transaction::records_inputs`].
    pub fn record_inputs(&self, body: Vec<u8>) {
        self.record_inputs_with(|into| *into = body);
    }

    /// The same; `write` appends to what is empty, in memory that is used again.
    #[inline]
    pub fn record_inputs_with(&self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.records {
            let recording = &mut self.worker.state.borrow_mut().recording;
            recording.body.clear();
            write(&mut recording.body);
            recording.has_body = true;
        }
    }

    /// The records that it has read so far, whether it has seen them or not, and does not write:
    /// ascending, each once. Of a serializable transaction; others do not remember them.
    pub fn read_set(&self) -> Vec<(Fid, Rid)> {
        let state = self.worker.state.borrow();
        let written: HashSet<(Fid, Rid)> =
            state.writes.iter().map(|write| (write.fid, write.installed.rid())).collect();
        let mut reads: Vec<_> = state.reads.iter().copied().filter(|record| !written.contains(record)).collect();
        reads.sort_unstable();
        reads.dedup();
        reads
    }

    /// Why the transaction cannot be executed again, as far as that is known.
    pub fn why_kept(&self) -> Option<NotRecorded> {
        self.worker.not_recorded.get()
    }

    /// That the transaction has met what others did, since [`Transaction::why_kept`] has said
    /// `before`, keeps it from nothing: what came of that is what a snapshot shows that is noted.
    pub fn forgive_others(&self, before: Option<NotRecorded>) {
        if self.why_kept() == Some(NotRecorded::Others) {
            self.worker.not_recorded.set(before);
        }
    }

    /// How many snapshots are noted, while the transaction is recorded: that of its beginning, and
    /// one for each [`Transaction::refresh`] and [`Transaction::at_present`].
    pub fn noted_snapshots(&self) -> usize {
        self.worker.state.borrow().recording.snapshots.len()
    }

    /// Nothing that the transaction writes depends on what it has read at these snapshots, by their
    /// places among those that are noted: who executes it again takes none of them.
    ///
    /// # Panics
    /// When fewer are noted.
    pub fn forget_snapshots(&self, range: Range<usize>) {
        self.worker.state.borrow_mut().recording.snapshots.drain(range);
    }

    /// The transaction cannot be executed again, or should not be: its block says what it did, and
    /// nothing else. The first reason counts.
    pub fn keep_records(&self, why: NotRecorded) {
        if self.worker.not_recorded.get().is_none() {
            self.worker.not_recorded.set(Some(why));
        }
    }

    /// The transaction's block of this kind is built, or none since the transaction is too long:
    /// adds the inputs, if there can be some.
    pub(crate) fn record(&self, built: Option<BlockKind>, builder: &mut BlockBuilder) {
        if !self.records {
            return;
        }
        let mut state = self.worker.state.borrow_mut();
        let why_not = match self.worker.not_recorded.get() {
            _ if built == Some(BlockKind::Schema) => Some(NotRecorded::Definitions),
            _ if !state.messages.is_empty() => Some(NotRecorded::Messages),
            Some(why) => Some(why),
            None if built.is_none() || builder.block_count() > 1 || builder.record_count() == MAX_RECORDS => {
                Some(NotRecorded::Long)
            }
            None => None,
        };
        let Recording { snapshots, body, has_body, outcome, row } = &mut state.recording;
        *outcome = Some(match why_not {
            Some(why) => Err(why),
            None if !*has_body => Err(NotRecorded::NoInputs),
            None => {
                row.clear();
                encode(self.is_certified_by_lsn(), snapshots, body, row);
                let pushed = builder.push(None, Fid::INPUTS, Rid(0), RecordKind::Insert, row);
                pushed.map(|_| row.len() as u64).map_err(|_| NotRecorded::Long)
            }
        });
        // One with very long inputs does not keep that of this worker for good.
        body.shrink_to(KEPT);
        row.shrink_to(KEPT);
    }

    /// Counts the transaction, which is decided, among those that were recorded or not.
    pub(crate) fn count_recorded(&self) {
        if !self.records {
            return;
        }
        let counts = &self.worker.core.recorder.counts[self.worker.place()];
        match self.worker.state.borrow().recording.outcome {
            Some(Ok(length)) => {
                Counts::add(&counts.recorded, 1);
                Counts::add(&counts.bytes, length);
            }
            Some(Err(why)) => Counts::add(&counts.kept[why as usize], 1),
            // Without a log, or with its inputs in the place of its records.
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_come_back_and_other_bytes_are_none() {
        for snapshots in [&[][..], &[7], &[0, 0, 300], &[1 << 40, (1 << 40) + 5, u64::MAX]] {
            let snapshots: Vec<Lsn> = snapshots.iter().map(|lsn| Lsn(*lsn)).collect();
            for (serial, body) in [(false, &b""[..]), (true, b"input")] {
                let inputs = Inputs { serial, snapshots: snapshots.clone(), body };
                let mut row = Vec::new();
                inputs.encode(&mut row);
                assert_eq!(Inputs::decode(&row), Some(inputs));
                // Whatever is cut off the front matter, nothing is made up.
                for end in 0..row.len() - body.len() {
                    assert_eq!(Inputs::decode(&row[..end]), None, "{row:?} up to {end}");
                }
            }
        }
        // More than there can be; beyond the last LSN.
        assert_eq!(Inputs::decode(&[200, 200, 200, 1, 0]), None);
        let mut beyond = vec![4];
        varint::put(&mut beyond, u64::MAX);
        beyond.push(1);
        assert_eq!(Inputs::decode(&beyond), None);
    }

    #[test]
    fn reasons_are_counted_at_their_places() {
        for (place, why) in NotRecorded::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, place);
        }
    }
}
