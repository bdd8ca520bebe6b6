//! `freshet inspect log`: the blocks of a log.

use std::io::{self, Write};

use freshet_base::{Fid, Lsn};
use freshet_log::{
    BlockHeader, BlockKind, RecordHeader, RecordKind,
    inspect::{Finding, Inspection, StreamNotes, View},
};

use super::{Output, Trouble, must_exist};
use crate::{Failure, inspect::options::InspectLog, units};

/// What was counted of the log.
#[derive(Default)]
struct Seen {
    blocks: u64,
    records: u64,
    bytes: u64,
    skips: u64,
    bad: u64,
    first: Option<Lsn>,
    end: Lsn,
}

/// Returns whether the log is whole.
pub(super) fn show(options: &InspectLog, out: &mut Output) -> Result<bool, Trouble> {
    options.paths.iter().try_for_each(|path| must_exist(path))?;
    let failed = |cause: freshet_log::StoreError| Trouble::Files(Failure::from(cause));
    let inspection = Inspection::open_all(&options.paths).map_err(failed)?;
    let (view, watermark) = (inspection.view(), inspection.watermark());
    let columns = Columns { view, several: inspection.log_streams() > 1 };
    about(&inspection, out)?;
    let mut seen = Seen::default();
    for finding in inspection {
        match finding.map_err(failed)? {
            Finding::Block { stream, position, header, begins_term, time, records } => {
                if options.to.is_some_and(|to| header.lsn.0 >= to) {
                    break;
                }
                if header.lsn.0 < options.from {
                    continue;
                }
                let place = columns.place(position, &header);
                seen.first.get_or_insert(place);
                seen.end = place.plus(u64::from(header.length));
                seen.blocks += 1;
                seen.records += records.len() as u64;
                seen.bytes += u64::from(header.length);
                seen.skips += u64::from(header.kind == BlockKind::Skip);
                if options.summary {
                    continue;
                }
                columns.block(out, stream, position, &header)?;
                if let Some((term, node)) = begins_term {
                    write!(out, "  node {node} begins term {term}")?;
                }
                if let Some(time) = time {
                    write!(out, "  {}", units::date(time))?;
                }
                if header.kind == BlockKind::Redo
                    && let Some((_, inputs)) = records.last().filter(|(_, last)| last.fid == Fid::INPUTS)
                {
                    write!(out, "  with inputs of {} bytes", inputs.length)?;
                }
                if header.continued {
                    write!(out, "  continued in the next block")?;
                }
                writeln!(out)?;
                if options.records {
                    records.iter().try_for_each(|(address, record)| show_record(out, *address, record))?;
                }
            }
            Finding::Bad { stream, at, file, offset, why, durable } => {
                seen.bad += 1;
                let stream = if columns.several { format!("stream {stream}: ") } else { String::new() };
                let whether = whether(durable);
                let file = file.display();
                writeln!(out, "{:>14}  {stream}no block ({whether}): {why}; {file} at byte {offset}", at.0)?;
            }
            Finding::Gap { from, to, durable } => {
                seen.bad += 1;
                writeln!(out, "{:>14}  no stream has the blocks from here to {to} ({})", from.0, whether(durable))?;
            }
            Finding::End { at } => seen.end = at,
        }
    }
    let Seen { blocks, records, bytes, skips, bad, first, end } = seen;
    let first = first.unwrap_or(end);
    let positions = if view == View::Stream { "position " } else { "" };
    writeln!(
        out,
        "{} blocks ({skips} skipped) with {} records, {}, from {positions}{first} to {end}",
        units::grouped(blocks),
        units::grouped(records),
        units::bytes(bytes)
    )?;
    if let Some(watermark) = watermark {
        writeln!(out, "durable up to {watermark} at least")?;
    }
    match bad {
        0 => writeln!(out, "no damage")?,
        bad => writeln!(out, "{bad} place(s) without a valid block")?,
    }
    Ok(bad == 0)
}

/// What is known before the first block is seen.
fn about(inspection: &Inspection, out: &mut Output) -> io::Result<()> {
    match inspection.cluster() {
        Some(cluster) => write!(out, "log of cluster {cluster}")?,
        None => write!(out, "an empty log")?,
    }
    if let Some(node) = inspection.node() {
        write!(out, ", node {node}")?;
    }
    let streams = inspection.log_streams();
    match inspection.view() {
        View::SavedTail => writeln!(out, ", a saved tail")?,
        View::Log if streams == 1 => writeln!(out)?,
        View::Log => writeln!(out, ", {streams} streams in the order of LSNs")?,
        View::Stream => writeln!(out, ", one of {streams} streams, by positions")?,
    }
    if let Some(trouble) = inspection.trouble() {
        writeln!(out, "{trouble}")?;
    }
    for notes in inspection.streams() {
        about_stream(inspection, notes, out)?;
    }
    if let Some((epoch, end)) = inspection.persistent_epoch() {
        writeln!(out, "epoch {epoch} is persistent, it ended at {end}: nothing above is kept at the next start")?;
    }
    Ok(())
}

fn about_stream(inspection: &Inspection, notes: &StreamNotes, out: &mut Output) -> io::Result<()> {
    let StreamNotes { stream, directory, kept, durable, bound, anchor, anchor_position, cut } = notes;
    let directory = directory.display();
    let Some((first, end)) = kept else {
        return writeln!(out, "{directory} holds no segments; if the log is kept elsewhere (log-dir), inspect that");
    };
    match inspection.log_streams() {
        1 => writeln!(out, "{directory} has room from {first} to {end}, noted as durable up to {durable}")?,
        _ => writeln!(
            out,
            "stream {stream}, {directory}: positions {first} to {end}, noted as durable up to {durable} and so up to LSN \
             {bound}, together with all streams up to LSN {anchor} (position {anchor_position})"
        )?,
    }
    match cut {
        Some(cut) => writeln!(out, "it is being cut at {cut}, or will be at the next start: what comes behind is void"),
        None => Ok(()),
    }
}

fn whether(durable: bool) -> &'static str {
    match durable {
        true => "below the durable watermark: DAMAGE",
        false => "above the durable watermark: torn by a crash",
    }
}

/// How blocks are placed and shown.
struct Columns {
    view: View,
    /// Whether the log has several streams.
    several: bool,
}

impl Columns {
    fn place(&self, position: Lsn, header: &BlockHeader) -> Lsn {
        if self.view == View::Stream { position } else { header.lsn }
    }

    fn block(&self, out: &mut Output, stream: usize, position: Lsn, header: &BlockHeader) -> io::Result<()> {
        write!(out, "{:>14}  ", self.place(position, header).0)?;
        match self.view {
            View::Stream => write!(out, "LSN {:<14}  ", header.lsn.0)?,
            View::Log if self.several => write!(out, "stream {stream}  ")?,
            _ => {}
        }
        let kind = format!("{:?}", header.kind).to_lowercase();
        write!(
            out,
            "{kind:<6}  {:>8} bytes  term {:<4}  {:>5} records  checksum {:08x} is right",
            header.length, header.term.0, header.record_count, header.crc
        )?;
        // A node with fewer streams than the primary keeps several in one.
        match usize::from(header.stream) {
            number if number != stream => write!(out, "  of stream {number}"),
            _ => Ok(()),
        }
    }
}

fn show_record(out: &mut Output, address: Lsn, record: &RecordHeader) -> io::Result<()> {
    let kind = match record.kind {
        RecordKind::Insert => "insert",
        RecordKind::Update => "update",
        RecordKind::Delete => "delete",
    };
    let (fid, rid, length) = (record.fid.0, record.rid.0, record.length);
    match record.fid {
        Fid::INPUTS => return writeln!(out, "{:>14}    inputs, {length} bytes", address.0),
        Fid::MESSAGES => return writeln!(out, "{:>14}    message, {length} bytes", address.0),
        _ => {}
    }
    write!(out, "{:>14}    {kind} table {fid} record {rid}, {length} bytes", address.0)?;
    match record.prev {
        Some(prev) => writeln!(out, ", was at {prev}"),
        None => writeln!(out),
    }
}
