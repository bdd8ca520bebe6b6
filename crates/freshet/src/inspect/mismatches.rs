//! `freshet inspect mismatches`: transactions that did not give the same again.

use std::io::{self, Write};

use freshet_base::Lsn;
use freshet_engine::scheme::inputs::{Mismatch, read_mismatches};
use freshet_log::{Block, RecordHeader, RecordKind};

use super::{Output, Trouble};
use crate::{Failure, inspect::options::InspectMismatches, units};

/// At most this many bytes of a row or of inputs are shown.
const SHOWN: usize = 64;

/// Returns whether the file holds nothing.
pub(super) fn show(options: &InspectMismatches, out: &mut Output) -> Result<bool, Trouble> {
    let (mismatches, torn) = read_mismatches(&options.file).map_err(Failure::from)?;
    for mismatch in &mismatches {
        show_one(mismatch, out)?;
    }
    writeln!(out, "{} mismatches", units::grouped(mismatches.len() as u64))?;
    if torn > 0 {
        writeln!(out, "{} at the end of the file say nothing", units::bytes(torn as u64))?;
    }
    Ok(mismatches.is_empty())
}

/// Bytes as hexadecimal digits; of many, the first.
fn hexadecimal(bytes: &[u8]) -> String {
    let mut text: String = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > SHOWN {
        text.push_str("...");
    }
    text
}

fn show_one(mismatch: &Mismatch, out: &mut Output) -> io::Result<()> {
    let Mismatch { lsn, why, inputs, original, regenerated, command } = mismatch;
    write!(out, "transaction {lsn}")?;
    match mismatch.procedure() {
        Some(procedure) => writeln!(out, ", procedure {procedure}: {why}")?,
        None => writeln!(out, ": {why}")?,
    }
    if !command.is_empty() {
        writeln!(out, "  command: {command}")?;
    }
    if original.is_empty() {
        writeln!(out, "  its block could not be had")?;
    }
    writeln!(out, "  inputs ({} bytes): {}", inputs.len(), hexadecimal(inputs))?;
    let (was, is) = (records(original, *lsn), records(regenerated, *lsn));
    if regenerated.is_empty() {
        return writeln!(out, "  {} records were to come out", was.len());
    }
    for number in 0..was.len().max(is.len()) {
        let (was, is) = (was.get(number), is.get(number));
        if was == is {
            continue;
        }
        for (what, record) in [("was", was), ("came out", is)] {
            match record {
                Some((header, row)) => writeln!(out, "  {what}: {}: {}", describe(header), hexadecimal(row))?,
                None => writeln!(out, "  {what}: no record")?,
            }
        }
        if let (Some((_, was)), Some((_, is))) = (was, is)
            && let Some(place) = was.iter().zip(is.iter()).position(|(was, is)| was != is)
        {
            writeln!(out, "  the rows differ from byte {place} on")?;
        }
    }
    Ok(())
}

/// The records of a block.
fn records(bytes: &[u8], at: Lsn) -> Vec<(RecordHeader, &[u8])> {
    let block = Block::parse(bytes, at);
    block.map(|block| block.records().map(|record| (record.header, record.row)).collect()).unwrap_or_default()
}

fn describe(record: &RecordHeader) -> String {
    let kind = match record.kind {
        RecordKind::Insert => "insert",
        RecordKind::Update => "update",
        RecordKind::Delete => "delete",
    };
    let before = record.prev.map_or(String::new(), |prev| format!(", was at {prev}"));
    format!("{kind} table {} record {}, {} bytes{before}", record.fid.0, record.rid.0, record.length)
}
