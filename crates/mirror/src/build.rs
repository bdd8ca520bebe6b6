//! A batch becomes what has to be written into one mirror (Active-Memory, section 4.5.1 and listing
//! 1): ranges of slots, and the undo entries that go before.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use freshet_base::{Fid, Rid, Stamp, Term};
use freshet_fabric::Place;

use crate::{
    Batch, Before, Layout, List, NotPut, Record, Ring, RingFull,
    batch::Differences,
    layout::Placed,
    slot::{self, HEADER, Header, REFERENCE},
};

/// One batch after the other: laid out, entered into the undo ring. Each step can be tried again
/// where it has found no room.
#[derive(Debug)]
pub struct Build {
    batch: Arc<Batch>,
    /// Where its changes go, as far as they are placed.
    placed: Vec<Placed>,
    /// All of them are laid out.
    is_done: bool,
    /// What was marked when they were.
    after: Stamp,
    /// What lies there, as far as that has to be read: one after the other, and where each begins.
    old: Vec<u8>,
    begins: Vec<Option<usize>>,
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
            after: Stamp::ZERO,
            old: Vec::new(),
            begins: Vec::new(),
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

    /// Lays the changes out, if they are not yet. What is written over is read at once for all of
    /// them, unless another mirror of the feeder has said what differs.
    ///
    /// # Errors
    /// [`NotPut`]; can be called again after that.
    pub fn put<B: Before>(&mut self, layout: &mut Layout, before: &mut B) -> Result<(), NotPut<B::Error>> {
        if self.is_done {
            return Ok(());
        }
        while let Some(change) = self.batch.changes.get(self.placed.len()) {
            let placed = layout.place(change.id, change.address, change.length(), &mut self.writes)?;
            self.placed.push(placed);
        }
        self.read(before).map_err(NotPut::Before)?;
        self.after = layout.marked();
        let batch = Arc::clone(&self.batch);
        if let Some(differences) = batch.differences.get() {
            (0..batch.changes.len()).for_each(|number| self.lay_out(number, differences));
        } else {
            let mut found = Differences::default();
            for number in 0..batch.changes.len() {
                let difference = self.compare(number, &mut found.list);
                found.of.push(difference.unwrap_or_default());
            }
            // Another mirror may have been quicker: what both say is the same only for rows.
            let differences = batch.differences.get_or_init(|| found);
            (0..batch.changes.len()).for_each(|number| self.lay_out(number, differences));
        }
        self.is_done = true;
        Ok(())
    }

    /// Reads what is written over, where it matters and is not known.
    fn read<B: Before>(&mut self, before: &mut B) -> Result<(), B::Error> {
        let (batch, known) = (&self.batch, self.batch.differences.get());
        self.begins.clear();
        let mut end = 0;
        for (number, (change, placed)) in batch.changes.iter().zip(&self.placed).enumerate() {
            let is_known = known.is_some_and(|known| is_known(&known.of[number], placed));
            let begins = (placed.was_used && !is_known).then_some(end);
            end += begins.map_or(0, |_| content(placed, change.length()));
            self.begins.push(begins);
        }
        if self.old.len() < end {
            self.old.resize(end, 0);
        }
        let (mut list, mut rest) = (Vec::with_capacity(self.placed.len()), &mut self.old[..end]);
        for ((change, placed), begins) in batch.changes.iter().zip(&self.placed).zip(&self.begins) {
            if begins.is_some() {
                let (into, behind) = rest.split_at_mut(content(placed, change.length()));
                list.push((placed.slot, into));
                rest = behind;
            }
        }
        if list.is_empty() { Ok(()) } else { before.read_all(&mut list) }
    }
}

impl Build {
    /// What differs in a slot that has its record's row, if that is sound, since others will
    /// believe it, and keeps its length. What lies behind a row is not the same in all mirrors, and
    /// may have to be kept: the row may have been longer in a batch that can still be undone.
    fn compare(&self, number: usize, list: &mut List) -> Option<Range<usize>> {
        let (change, placed) = (&self.batch.changes[number], &self.placed[number]);
        let row = self.batch.row(change).filter(|_| placed.elsewhere.is_none())?;
        let old = &self.old[self.begins[number]?..][..HEADER + row.len()];
        let header = old.first_chunk().and_then(Header::of)?;
        (header.row_length() == Some(row.len()) && header.holds(change.id, &old[HEADER..])).then(|| {
            let begin = list.len();
            list.push_changes(Place { region: 0, offset: 0 }, &self.batch.headers[number], row, old);
            begin..list.len()
        })
    }

    /// Appends what has to be written for one change.
    fn lay_out(&mut self, number: usize, differences: &Differences) {
        let (batch, placed) = (&self.batch, &self.placed[number]);
        let (change, difference) = (&batch.changes[number], &differences.of[number]);
        if is_known(difference, placed) {
            self.writes.push_shared(placed.slot, &differences.list, difference.clone());
            return;
        }
        let old = self.begins[number].map(|begin| &self.old[begin..][..content(placed, change.length())]);
        let (id, address, row) = (change.id, change.address, batch.row(change));
        let header = &batch.headers[number];
        put(&Put { id, address, row, header, placed, old, marked: self.after }, &mut self.writes);
    }

    /// Each mirror of the layout gets the list when its own mark has arrived there, and not before.
    /// What was marked ([`Layout::committed`]) is not kept to be undone, and is written over.
    pub fn after(&self) -> Stamp {
        self.after
    }

    /// Enters what is written over into the undo ring, when all is laid out.
    ///
    /// # Errors
    /// [`RingFull`]; can be called again after that.
    pub fn enter(&mut self, ring: &mut Ring, term: Term) -> Result<(), RingFull> {
        self.undo.clear();
        let shared = shared(&self.batch.differences, &self.writes);
        ring.enter_all(self.batch.extent(), term, self.writes.destroyed(shared), &mut self.undo)
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
        self.writes.writes_with(shared(&self.batch.differences, &self.writes))
    }
}

impl Default for Build {
    fn default() -> Self {
        Self::new()
    }
}

/// The list whose writes `own` may have got.
fn shared<'l>(differences: &'l OnceLock<Differences>, own: &'l List) -> &'l List {
    differences.get().map_or(own, |differences| &differences.list)
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

/// A change that is laid out.
struct Put<'p> {
    id: (Fid, Rid),
    address: Stamp,
    row: Option<&'p [u8]>,
    /// The slot's, if the row lies there.
    header: &'p [u8; HEADER],
    placed: &'p Placed,
    /// What the slot holds, as far as it is written; none if it was never used.
    old: Option<&'p [u8]>,
    /// Nothing below is undone.
    marked: Stamp,
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
