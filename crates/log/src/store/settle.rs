//! Where a log of several streams ends after a crash.
//!
//! Each stream ends where its own blocks end (module `tail`, in positions). Together they end at
//! the first LSN that no stream has a block for: LSNs are dense, so the loss of one stream's
//! tail shows itself as a gap, and nothing above the gap may be kept, since it may depend on what
//! is missing (distributed logging, section 4). What lies above was never acknowledged: a commit
//! waits for the minimum over all streams.
//!
//! Under the group commit kind `epoch`, nothing above the persistent epoch is kept either (SiloR,
//! section 5.2).
//!
//! The comparison starts at the largest anchor: below it all streams were durable. A gap below
//! the bound that every stream had noted is damage.
//!
//! What is kept above the notes is written again and synced in every stream, and only then noted in
//! any: an anchor speaks for all streams.

use freshet_base::Lsn;

use super::{LogStore, merge::Cursor};
use crate::{
    block::{BLOCK_ALIGN, Block, BlockError},
    scan::{Positions, find_block},
    segments::{Note, SegmentStore, StoreError},
    tail::{Tail, TailError, Torn, damage, find_tail, renew},
};

/// With `keeps_half`, blocks of a transaction stay at the end although its last ones are missing.
pub(super) fn settle(store: &LogStore, committed: Option<Lsn>, keeps_half: bool) -> Result<Tail, TailError> {
    let notes: Vec<Note> = (0..store.streams()).map(|stream| store.stream(stream).noted()).collect();
    if (0..store.streams()).any(|stream| store.stream(stream).extent().is_none()) {
        return settle_unused(store);
    }
    let mut found = Tail { end: Lsn::ZERO, blocks_end: Lsn::ZERO, cut: None, blocks: 0, term: None };
    let mut cursors = Vec::with_capacity(store.streams());
    let mut torn = vec![None; store.streams()];
    for (stream, note) in notes.iter().enumerate() {
        let segments = store.stream(stream);
        let tail = find_tail(&Positions(segments), note.position, note.position)?;
        found.blocks += tail.blocks;
        torn[stream] = tail.cut;
        segments.set_end(tail.end);
        cursors.push(Cursor::new(segments, note.anchor_position, tail.end));
    }
    // Where segments were removed, the log begins where all streams have begun again; and not
    // before the first block of all.
    let mut lowest: Option<Lsn> = None;
    for (stream, note) in notes.iter().enumerate() {
        let segments = store.stream(stream);
        let Some((first, _)) = segments.extent() else { continue };
        let block = match first {
            Lsn::ZERO => Some(first),
            _ => first_block(segments, first, note.anchor_position)?,
        };
        let Some(block) = block else { continue };
        let Some(header) = Cursor::new(segments, block, segments.end()).block()? else { continue };
        lowest = Some(lowest.map_or(header.lsn, |lowest| lowest.min(header.lsn)));
        if first > Lsn::ZERO {
            store.shared.begin.fetch_max(header.lsn.0, std::sync::atomic::Ordering::AcqRel);
            store.at(stream).landmarks.enter(header.lsn, block);
        }
    }
    let lowest = lowest.or(notes.iter().map(|note| note.anchor).min()).unwrap_or_default();
    store.shared.begin.fetch_max(lowest.0, std::sync::atomic::Ordering::AcqRel);
    // Everything below was durable in every stream.
    let mut at = notes.iter().map(|note| note.anchor).max().unwrap_or_default();
    let mut end = at;
    for (stream, cursor) in cursors.iter_mut().enumerate() {
        cursor.skip_below(at)?;
        if let Some(block) = cursor.block()? {
            store.at(stream).landmarks.enter(block.lsn, cursor.position());
        }
    }
    'merging: loop {
        if committed.is_some_and(|committed| at >= committed) {
            break;
        }
        for (stream, cursor) in cursors.iter_mut().enumerate() {
            let Some(header) = cursor.block()?.filter(|block| block.lsn == at) else { continue };
            store.at(stream).landmarks.enter(header.lsn, cursor.position());
            let place = cursor.position();
            let Some(bytes) = cursor.block_bytes()? else { break 'merging };
            if let Err(why) = Block::parse(bytes, at) {
                return Err(damage(&Positions(store.stream(stream)), place, why.to_string()));
            }
            cursor.advance();
            at = header.end();
            found.term = Some(header.term);
            if !header.continued {
                end = at;
            }
            continue 'merging;
        }
        break;
    }
    // What every stream had said to be durable must be there; by epochs, what was released to
    // clients.
    let noted = notes.iter().map(|note| note.bound).min().unwrap_or_default();
    let watermark = committed.unwrap_or(noted);
    if end < watermark {
        // The stream that lost a block is one of those whose next block is not the missing one;
        // which, nobody knows.
        let (stream, cursor) = cursors.iter().enumerate().min_by_key(|(_, c)| c.position()).expect("there is a stream");
        let what = format!(
            "no stream has the block at LSN {at}; the log was durable up to {watermark}, so one of the log directories \
             lost a part, or is not the one that belongs here"
        );
        return Err(damage(&Positions(store.stream(stream)), cursor.position(), what));
    }
    found.end = end;
    found.blocks_end = at;
    let end = if keeps_half { at } else { end };
    store.shared.written.store(end.0, std::sync::atomic::Ordering::Release);
    let mut lost = 0;
    let mut cut_at = None;
    for (stream, torn) in torn.iter().enumerate() {
        let segments = store.stream(stream);
        let mut cursor = Cursor::new(segments, notes[stream].anchor_position, segments.end());
        cursor.skip_below(end)?;
        let position = cursor.position();
        let whole = segments.end().since(position);
        // A bound above the end was true, and would be false for what comes in place of what is
        // lost.
        if whole > 0 || torn.is_some() || notes[stream].bound > end {
            lost += whole + torn.map_or(0, |torn| torn.bytes);
            if whole > 0 || torn.is_some() {
                cut_at.get_or_insert(torn.map_or(BlockError::Empty, |torn| torn.why));
            }
            store.at(stream).landmarks.cut(end);
            segments.cut_stream(position, end)?;
        }
    }
    found.cut = cut_at.map(|why| Torn { at: end, bytes: lost, why });
    for stream in 0..store.streams() {
        let segments = store.stream(stream);
        renew(&Positions(segments), segments, segments.watermark(), segments.end())?;
    }
    for (stream, note) in notes.iter().enumerate() {
        let segments = store.stream(stream);
        let mut cursor = Cursor::new(segments, note.anchor_position, segments.end());
        cursor.skip_below(found.end)?;
        let position = cursor.position();
        segments.note_settled(Note { position, bound: found.end, anchor: found.end, anchor_position: position })?;
    }
    Ok(found)
}

/// Where the first block lies in a stream that begins at `first`, within a block; what looks like
/// one there may lie in its body (module `pieces`). Then its headers do not lead to the anchor,
/// with LSNs that ascend. Where none does, the log is damaged, which its reader tells.
fn first_block(segments: &SegmentStore, first: Lsn, anchor_position: Lsn) -> Result<Option<Lsn>, StoreError> {
    let source = Positions(segments);
    let (mut from, mut closest) = (first, None);
    while let Some(found) = find_block(&source, from, anchor_position)? {
        closest.get_or_insert(found);
        let (mut cursor, mut last, mut ascends) = (Cursor::new(segments, found, segments.end()), found, Lsn::ZERO);
        cursor.reads_on();
        while cursor.position() < anchor_position {
            let Some(block) = cursor.block()?.filter(|block| block.lsn >= ascends) else { break };
            (last, ascends) = (cursor.position(), block.end());
            cursor.advance();
        }
        if cursor.position() == anchor_position {
            return Ok(Some(found));
        }
        from = last.plus(BLOCK_ALIGN as u64);
    }
    match closest {
        None => find_block(&source, anchor_position.max(first), segments.end()),
        closest => Ok(closest),
    }
}

/// A stream that has no segments: the log is new, or its making was interrupted, before there was
/// any block.
fn settle_unused(store: &LogStore) -> Result<Tail, TailError> {
    let mut found = Tail { end: Lsn::ZERO, blocks_end: Lsn::ZERO, cut: None, blocks: 0, term: None };
    let streams = 0..store.streams();
    let empty = streams.clone().find(|stream| store.stream(*stream).extent().is_none()).unwrap_or_default();
    for stream in streams {
        let segments = store.stream(stream);
        let Some((first, _)) = segments.extent() else { continue };
        if find_tail(&Positions(segments), first, first)?.blocks > 0 {
            let what = format!("the log directory of stream {empty} is empty, that of stream {stream} is not");
            return Err(damage(&Positions(store.stream(empty)), Lsn::ZERO, what));
        }
        found.end = found.end.max(segments.noted().bound);
    }
    Ok(found)
}
