//! `freshet inspect`: looks into a node's files.

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use freshet_base::Stamp;
use freshet_log::{
    BlockKind, RecordKind,
    inspect::{Finding, Inspection},
};

use crate::{Failure, cli::InspectLog, units};

/// What was seen.
#[derive(Default)]
struct Seen {
    blocks: u64,
    records: u64,
    bytes: u64,
    skips: u64,
    bad: u64,
    first: Option<Stamp>,
    end: Stamp,
}

/// Shows a log.
pub(crate) fn run(options: &InspectLog) -> Result<ExitCode, Failure> {
    // A reader that has gone, like `head`, is not the log's fault.
    match show(options, &mut BufWriter::new(io::stdout().lock())) {
        Err(Trouble::Output(cause)) if cause.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(Trouble::Output(cause)) => Err(cause.into()),
        Err(Trouble::Log(failure)) => Err(failure),
        Ok(0) => Ok(ExitCode::SUCCESS),
        Ok(_) => Ok(ExitCode::FAILURE),
    }
}

enum Trouble {
    Output(io::Error),
    Log(Failure),
}

impl From<io::Error> for Trouble {
    fn from(cause: io::Error) -> Self {
        Self::Output(cause)
    }
}

/// Returns how many places are damaged.
fn show(options: &InspectLog, out: &mut impl Write) -> Result<u64, Trouble> {
    if !options.path.exists() {
        let path = options.path.display();
        return Err(Trouble::Log(Failure::new(format!("{path}: there is no such file or directory"))));
    }
    let log = |cause: freshet_log::StoreError| Trouble::Log(cause.into());
    let inspection = Inspection::open(&options.path).map_err(log)?;
    let watermark = inspection.watermark();
    match inspection.cluster() {
        Some(cluster) => writeln!(out, "log of cluster {cluster}")?,
        None => writeln!(out, "an empty log")?,
    }
    let within = |at: Stamp| at.0 >= options.from && options.to.is_none_or(|to| at.0 < to);
    let mut seen = Seen::default();
    for finding in inspection {
        match finding.map_err(log)? {
            Finding::Block { header, records } => {
                seen.first.get_or_insert(header.stamp);
                seen.end = header.stamp.plus(u64::from(header.length));
                if options.to.is_some_and(|to| header.stamp.0 >= to) {
                    break;
                }
                if !within(header.stamp) {
                    continue;
                }
                seen.blocks += 1;
                seen.records += records.len() as u64;
                seen.bytes += u64::from(header.length);
                seen.skips += u64::from(header.kind == BlockKind::Skip);
                if options.summary {
                    continue;
                }
                let kind = format!("{:?}", header.kind).to_lowercase();
                writeln!(
                    out,
                    "{:>14}  {kind:<6}  {:>8} bytes  term {:<4}  {:>5} records  checksum {:08x} is right",
                    header.stamp.0,
                    header.length,
                    header.term.0,
                    records.len(),
                    header.crc
                )?;
                if options.records {
                    for (address, record) in records {
                        let kind = match record.kind {
                            RecordKind::Insert => "insert",
                            RecordKind::Update => "update",
                            RecordKind::Delete => "delete",
                        };
                        let (fid, rid, length) = (record.fid.0, record.rid.0, record.length);
                        write!(out, "{:>14}    {kind} table {fid} record {rid}, {length} bytes", address.0)?;
                        match record.prev {
                            Some(prev) => writeln!(out, ", was at {prev}")?,
                            None => writeln!(out)?,
                        }
                    }
                }
            }
            Finding::Bad { at, file, offset, why } => {
                seen.bad += 1;
                let file = file.display();
                let whether = match watermark {
                    Some(watermark) if at < watermark => "below the durable watermark: DAMAGE",
                    _ => "above the durable watermark: torn by a crash, or being written",
                };
                writeln!(out, "{:>14}  no block ({whether}): {why}; {file} at byte {offset}", at.0)?;
            }
            Finding::End { at } => seen.end = at,
        }
    }
    let Seen { blocks, records, bytes, skips, bad, first, end } = seen;
    let first = first.unwrap_or(end);
    writeln!(
        out,
        "{} blocks ({skips} skipped) with {} records, {}, from {first} to {end}",
        units::grouped(blocks),
        units::grouped(records),
        units::bytes(bytes)
    )?;
    if let Some(watermark) = watermark {
        writeln!(out, "durable up to {watermark} at least")?;
    }
    match bad {
        0 => writeln!(out, "no damage")?,
        bad => writeln!(out, "{bad} place(s) that are no blocks")?,
    }
    out.flush()?;
    Ok(bad)
}
