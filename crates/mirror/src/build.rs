//! A batch becomes what has to be written into one mirror (Active-Memory, section 4.5.1 and listing
//! 1): ranges of slots, and the undo entries that go before.

use std::{ops::Range, sync::Arc};

use freshet_base::{Fid, Lsn, Rid};
use freshet_fabric::Place;

use crate::{
    Batch, Before, Layout, List, NotPut, Record, Ring, RingFull,
    batch::{Change, Differences},
    layout::Placed,
    slot::{self, HEADER, Header, REFERENCE},
};

/// Where places are counted from the slot on.
const SLOT: Place = Place { region: 0, offset: 0 };

/// One batch after the other: laid out, entered into the undo ring. Each step can be tried again
/// where it has found no room.
#[derive(Debug)]
pub struct Build {
    batch: Arc<Batch>,
    /// Where its changes go, as far as they are placed.
    placed: Vec<Placed>,
    /// All of them are laid out.
    is_done: bool,
    /// What was marked when they were: it is not kept to be undone, and is written over
    /// ([`Layout::committed`]).
    marked: Lsn,
    /// What lies where some changes go, as far as it has to be read: one after the other, and what
    /// there is of each.
    old: Vec<u8>,
    reads: Vec<Option<Read>>,
    /// What differs in slots: `writes` refers to it.
    differences: Arc<Differences>,
    writes: List,
    undo: List,
}

impl Build {
    /// Has no batch yet.
    pub fn new() -> Self {
        Self {
            batch: Arc::default(),
            placed: Vec::new(),
            is_done: false,
            marked: Lsn::ZERO,
            old: Vec::new(),
            reads: Vec::new(),
            differences: Arc::default(),
            writes: List::default(),
            undo: List::default(),
        }
    }

    /// Begins with the next batch. Returns the one before.
    pub fn begin(&mut self, batch: Arc<Batch>) -> Arc<Batch> {
        self.placed.clear();
        self.writes.clear();
        self.undo.clear();
        self.is_done = false;
        std::mem::replace(&mut self.batch, batch)
    }

    /// The batch.
    pub fn batch(&self) -> &Arc<Batch> {
        &self.batch
    }

    /// Lays the changes out, if they are not yet. What is written over is read, unless another
    /// mirror of the feeder has said what differs.
    ///
    /// # Errors
    /// [`NotPut`]; can be called again after that, unless it is [`NotPut::Before`].
    pub fn put<B: Before>(&mut self, layout: &mut Layout, before: &mut B) -> Result<(), NotPut<B::Error>> {
        if self.is_done {
            return Ok(());
        }
        while let Some(change) = self.batch.changes.get(self.placed.len()) {
            let placed = layout.place(change.id, change.address, change.length(), &mut self.writes)?;
            self.placed.push(placed);
        }
        self.marked = layout.marked();
        let batch = Arc::clone(&self.batch);
        let shared = batch.differences.get();
        let (known, mut found) = (shared.map(Arc::as_ref), Differences::default());
        let mut begin = 0;
        while begin < self.placed.len() {
            let end = self.read(begin, known, before).map_err(NotPut::Before)?;
            for number in begin..end {
                self.lay_out(number, begin, known, &mut found);
            }
            begin = end;
        }
        self.differences = shared.map_or_else(|| Arc::new(found), Arc::clone);
        // Another mirror may have been quicker: each keeps what it has found itself.
        let _ = batch.differences.set(Arc::clone(&self.differences));
        self.is_done = true;
        Ok(())
    }

    /// Reads what changes write over from `first` on, as far as it matters and is not known, and as
    /// many of them as are worth reading at once. Says where they end.
    fn read<B: Before>(
        &mut self,
        first: usize,
        known: Option<&Differences>,
        before: &mut B,
    ) -> Result<usize, B::Error> {
        let (batch, at_once) = (&self.batch, before.at_once());
        self.reads.clear();
        let mut end = 0;
        for (number, (change, placed)) in batch.changes.iter().zip(&self.placed).enumerate().skip(first) {
            if end >= at_once {
                break;
            }
            let is_known = known.is_some_and(|known| is_known(&known.of[number], placed));
            let read = (placed.was_used && !is_known).then(|| Read::new(end, change, placed));
            end = read.as_ref().map_or(end, |read| read.end);
            self.reads.push(read);
        }
        let behind = first + self.reads.len();
        let (changes, placed) = (&batch.changes[first..behind], &self.placed[first..behind]);
        fetch(before, &mut self.old, 0, self.reads.iter().zip(changes).zip(placed))?;
        // What the log says of a row is of use only where the slot has the one that it replaces.
        let mut whole = end;
        for ((read, change), placed) in self.reads.iter_mut().zip(changes).zip(placed) {
            let Some(read) = read else { continue };
            let header = self.old[read.begin..].first_chunk().and_then(Header::of);
            if read.is_part && !header.is_some_and(|header| change.is_over(&header)) {
                *read = Read::whole(whole, change, placed);
                whole = read.end;
            }
        }
        fetch(before, &mut self.old, end, self.reads.iter().zip(changes).zip(placed))?;
        Ok(behind)
    }

    /// Appends what has to be written for one change. What it writes over was read, with that of
    /// others from `first` on. Adds to `found` what differs, unless that is known.
    fn lay_out(&mut self, number: usize, first: usize, known: Option<&Differences>, found: &mut Differences) {
        let (batch, placed) = (&self.batch, &self.placed[number]);
        let (change, header) = (&batch.changes[number], &batch.headers[number]);
        let read = self.reads[number - first].as_ref().map(|read| (read, &self.old[read.begin..read.end]));
        let difference = match known {
            Some(known) => known.of[number].clone(),
            None => {
                let begin = found.list.len();
                if let (Some((read, old)), Some(row)) = (read, batch.row(change)) {
                    let same = Same { change, placed, header, row, old };
                    if read.is_part { same.put(SLOT, &mut found.list) } else { same.compare(&mut found.list) }
                }
                found.of.push(begin..found.list.len());
                begin..found.list.len()
            }
        };
        let (id, address, row) = (change.id, change.address, batch.row(change));
        match (read, row) {
            _ if is_known(&difference, placed) => {
                self.writes.push_shared(placed.slot, &known.unwrap_or(found).list, difference);
            }
            (Some((Read { is_part: true, .. }, old)), Some(row)) => {
                Same { change, placed, header, row, old }.put(placed.slot, &mut self.writes);
            }
            _ => {
                let old = read.map(|(_, old)| old);
                put(&Put { id, address, row, header, placed, old, marked: self.marked }, &mut self.writes);
            }
        }
    }

    /// Enters what is written over into the undo ring, when all is laid out.
    ///
    /// # Errors
    /// [`RingFull`]; can be called again after that.
    pub fn enter(&mut self, ring: &mut Ring) -> Result<(), RingFull> {
        self.undo.clear();
        let destroyed = self.writes.destroyed(&self.differences.list);
        ring.enter_all(self.batch.extent(), destroyed, &mut self.undo)
    }

    /// The list: undo entries, then what is written in place (figure 6).
    pub fn list(&self) -> impl Iterator<Item = (Place, &[u8])> {
        self.undo().chain(self.changes())
    }

    /// The undo entries of the list.
    pub fn undo(&self) -> impl Iterator<Item = (Place, &[u8])> {
        self.undo.writes()
    }

    /// What is written in place. In memory that is to be durable the undo entries are so before.
    pub fn changes(&self) -> impl Iterator<Item = (Place, &[u8])> {
        self.writes.writes_with(&self.differences.list)
    }
}

impl Default for Build {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether what differs in another mirror's slot is what differs in this one, too: both have the
/// row in them, before and after.
fn is_known(difference: &Range<usize>, placed: &Placed) -> bool {
    !difference.is_empty() && placed.was_used && placed.elsewhere.is_none()
}

/// How many bytes of a slot are written for a record with a row as long, or without one.
fn content(placed: &Placed, row: Option<usize>) -> usize {
    match (row, placed.elsewhere) {
        (None, _) => HEADER,
        (Some(length), None) => HEADER + length,
        (Some(_), Some(_)) => HEADER + REFERENCE,
    }
}

/// What was read of a slot, or is to be.
#[derive(Debug)]
struct Read {
    /// Where it is in what was read.
    begin: usize,
    end: usize,
    /// What the log says that changes, and the header before that. Else all that is written over.
    is_part: bool,
}

impl Read {
    fn whole(begin: usize, change: &Change, placed: &Placed) -> Self {
        Self { begin, end: begin + content(placed, change.length()), is_part: false }
    }

    /// What has to be known.
    fn new(begin: usize, change: &Change, placed: &Placed) -> Self {
        match change.ranges().filter(|_| placed.elsewhere.is_none()) {
            Some(ranges) => Self { begin, end: begin + ranges.map(|range| range.len()).sum::<usize>(), is_part: true },
            None => Self::whole(begin, change, placed),
        }
    }

    /// Where that lies in a slot.
    fn ranges(&self, change: &Change) -> impl Iterator<Item = Range<usize>> {
        let parts = change.ranges().filter(|_| self.is_part);
        let whole = (!self.is_part).then_some(0..self.end - self.begin);
        parts.into_iter().flatten().chain(whole)
    }
}

/// A row that replaces one of the same length in its slot.
struct Same<'s> {
    change: &'s Change,
    placed: &'s Placed,
    header: &'s [u8; HEADER],
    row: &'s [u8],
    /// What was read of the slot.
    old: &'s [u8],
}

impl Same<'_> {
    /// Appends what the log says that changes, for the slot at `to`.
    fn put(&self, to: Place, list: &mut List) {
        let mut old = self.old;
        for range in self.change.ranges().into_iter().flatten() {
            let (now, rest) = old.split_at(range.len());
            list.push_range(to, self.header, self.row, range, now);
            old = rest;
        }
    }

    /// Appends what differs if the slot has its record's row, if that is sound, since others will
    /// believe it, and keeps its length. What lies behind a row is not the same in all mirrors, and
    /// may have to be kept: the row may have been longer in a batch that can still be undone.
    fn compare(&self, list: &mut List) {
        let before = self.old.first_chunk().and_then(Header::of);
        if let Some(before) = before.filter(|_| self.placed.elsewhere.is_none())
            && before.row_length() == Some(self.row.len())
            && before.holds(self.change.id, &self.old[HEADER..])
        {
            list.push_changes(SLOT, self.header, self.row, self.old);
        }
    }
}

/// Reads all that begins at `from` or behind it in `old`.
fn fetch<'r, B: Before>(
    before: &mut B,
    old: &mut Vec<u8>,
    from: usize,
    reads: impl Iterator<Item = ((&'r Option<Read>, &'r Change), &'r Placed)> + Clone,
) -> Result<(), B::Error> {
    let reads = reads.filter_map(|((read, change), placed)| {
        let read = read.as_ref().filter(|read| read.begin >= from)?;
        Some((read, change, placed.slot))
    });
    let Some((last, ..)) = reads.clone().last() else { return Ok(()) };
    if old.len() < last.end {
        old.resize(last.end, 0);
    }
    let (mut list, mut rest) = (Vec::new(), &mut old[from..]);
    for (read, change, slot) in reads {
        list.extend(read.ranges(change).map(|range| {
            let place = Place { offset: slot.offset + range.start as u64, ..slot };
            (place, rest.split_off_mut(..range.len()).expect("there is room for all of them"))
        }));
    }
    before.read_all(&mut list)
}

/// A change that is laid out.
struct Put<'p> {
    id: (Fid, Rid),
    address: Lsn,
    row: Option<&'p [u8]>,
    /// The slot's, if the row lies there.
    header: &'p [u8; HEADER],
    placed: &'p Placed,
    /// What the slot holds, as far as it is written; none if it was never used.
    old: Option<&'p [u8]>,
    /// Nothing below is undone.
    marked: Lsn,
}

/// Appends to `list` what turns the slot into what it is to be, and a row that lies elsewhere.
fn put(what: &Put<'_>, list: &mut List) {
    let Put { placed, marked, .. } = *what;
    let elsewhere = what.row.zip(placed.elsewhere);
    let elsewhere = elsewhere.map(|(row, place)| slot::elsewhere(what.id, what.address, row, place));
    let (header, content) = match &elsewhere {
        Some((header, reference)) => (header, &reference[..]),
        None => (what.header, what.row.unwrap_or_default()),
    };
    let replaced = what.old.and_then(|old| Some((Header::of(old.first_chunk()?)?, old)));
    match replaced {
        Some((before, old)) if !(before.is_deleted() && before.address < marked) => {
            list.push_changes(placed.slot, header, content, old);
        }
        // What lies behind the old header means nothing, whatever is undone.
        _ => {
            let old = what.old.map_or(&[0; HEADER][..], |old| &old[..HEADER]);
            list.push_parts(placed.slot, [header, content], old);
        }
    }
    if let (Some(row), Some(place)) = (what.row, placed.elsewhere) {
        // Nothing that is needed lies there.
        list.push(place, row, &[]);
    }
}

/// Appends to `list` what has to be written for one change alone.
pub(crate) fn put_alone<B: Before>(
    layout: &mut Layout,
    record: &Record<'_>,
    before: &mut B,
    list: &mut List,
) -> Result<(), NotPut<B::Error>> {
    let (id, address, row) = ((record.fid, record.rid), record.address, record.row);
    let length = row.map(<[u8]>::len);
    let placed = layout.place(id, address, length, list)?;
    let mut old = vec![0; content(&placed, length)];
    if placed.was_used {
        before.read(placed.slot, &mut old).map_err(NotPut::Before)?;
    }
    let header = &slot::header_of(id, address, row);
    let (old, marked) = (placed.was_used.then_some(&old[..]), layout.marked());
    put(&Put { id, address, row, header, placed: &placed, old, marked }, list);
    Ok(())
}
