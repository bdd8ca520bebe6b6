//! `freshet inspect checkpoint`: the checkpoints of a node.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use freshet_base::Fid;
use freshet_recovery::{
    CheckpointError, Manifest,
    checkpoint::{CheckpointFile, RowsReader, folder},
};

use super::{Output, Trouble, must_exist};
use crate::{Failure, inspect::options::InspectCheckpoint, units};

/// Returns whether all checkpoints are whole, as far as that was looked at.
pub(super) fn show(options: &InspectCheckpoint, out: &mut Output) -> Result<bool, Trouble> {
    must_exist(&options.path)?;
    let default = [options.path.join("checkpoints")];
    let devices = if options.devices.is_empty() { &default[..] } else { &options.devices[..] };
    let mut found = 0;
    let mut bad = 0;
    for start in Manifest::installed(&options.path).map_err(Failure::from)? {
        let file = Manifest::path(&options.path, start);
        let shown = match Manifest::read(&file) {
            Ok(manifest) => show_one(options, &manifest, devices, out)?,
            Err(error) => Err(error.to_string()),
        };
        match shown {
            Ok(()) => found += 1,
            // A node at work has replaced it by a newer one in the meantime.
            Err(_) if !file.exists() => writeln!(out, "checkpoint from {start}: was removed just now")?,
            Err(error) => {
                bad += 1;
                writeln!(out, "checkpoint from {start} cannot be used: {error}")?;
            }
        }
    }
    match (found, bad) {
        (0, 0) => writeln!(out, "no checkpoint is installed in {}", options.path.display())?,
        (_, 0) if options.check => writeln!(out, "{found} checkpoint(s), every block of rows is right")?,
        (_, 0) => writeln!(out, "{found} checkpoint(s), all files are there; --check reads them, too")?,
        (_, bad) => writeln!(out, "{bad} checkpoint(s) cannot be used")?,
    }
    Ok(bad == 0)
}

/// Shows one checkpoint; inside is what is wrong with it.
fn show_one(
    options: &InspectCheckpoint,
    manifest: &Manifest,
    devices: &[PathBuf],
    out: &mut Output,
) -> io::Result<Result<(), String>> {
    let (start, end) = (manifest.start(), manifest.end());
    let kind = match start == end {
        true => "consistent: the state at that LSN".to_owned(),
        false => format!("fuzzy: needs the log from {start} to {end}"),
    };
    writeln!(
        out,
        "checkpoint from {start} to {end}, installed {}, of cluster {}\n  {} rows of {} tables, {} on {} device(s); {kind}",
        units::date(manifest.time.saturating_mul(1000)),
        manifest.cluster(),
        units::grouped(manifest.rows()),
        manifest.tables.len(),
        units::bytes(manifest.bytes()),
        manifest.devices,
    )?;
    for table in &manifest.tables {
        if options.files {
            let bytes = table.files.iter().map(|file| file.bytes).sum();
            writeln!(out, "  table {}: {} rows, {}", table.fid, units::grouped(table.rows), units::bytes(bytes))?;
        }
        let mut rows = 0;
        for file in &table.files {
            let device = devices.get(file.device as usize).map(PathBuf::as_path);
            let path = folder(device.unwrap_or(Path::new("?")), start).join(&file.name);
            if options.files {
                writeln!(out, "    {}, {}", path.display(), units::bytes(file.bytes))?;
            }
            let Some(device) = device else {
                let what =
                    format!("{} lies on device {}: name the directories of all (--device)", file.name, file.device);
                return Ok(Err(what));
            };
            match check(manifest, device, Fid(table.fid), file, options.check) {
                Ok(found) => rows += found,
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
        if options.check && rows != table.rows {
            let (fid, stated) = (table.fid, table.rows);
            return Ok(Err(format!("its manifest says that table {fid} has {stated} rows, its files hold {rows}")));
        }
    }
    Ok(Ok(()))
}

/// Whether a file is there as it should be; with `read`, whether every block in it is right.
/// Returns how many rows were seen.
fn check(
    manifest: &Manifest,
    device: &Path,
    fid: Fid,
    file: &CheckpointFile,
    read: bool,
) -> Result<u64, CheckpointError> {
    let mut reader = RowsReader::open(device, manifest.cluster(), manifest.start(), fid, file)?;
    let mut rows = 0;
    while read && let Some(block) = reader.next_block()? {
        rows += block.filter(|(_, _, row)| row.is_some()).count() as u64;
    }
    Ok(rows)
}
