//! Bootstrap a mirror: a checkpoint that comes from another node goes into the mirror's memory, row
//! by row, and none of it to a disk.

use std::{path::PathBuf, vec};

use freshet_base::{ClusterId, Fid, Lsn};
use freshet_mirror::Record;
use freshet_recovery::checkpoint::{CheckpointFile, RowsDecoder};
use freshet_replication::{
    checkpoints::{Keeper, KnownLog},
    mirror::{Beginning, Checkpoints, Seed},
};

use super::join::manifest_that_came;

/// Reads checkpoints of this cluster.
pub(super) struct SeedsMirrors {
    pub cluster: ClusterId,
}

impl Checkpoints for SeedsMirrors {
    fn keeper<'s, 'a: 's>(&self, seed: &'s mut Seed<'a>) -> Box<dyn Keeper + 's> {
        Box::new(Arriving {
            cluster: self.cluster,
            seed,
            known: KnownLog::default(),
            head: Vec::new(),
            start: Lsn::ZERO,
            files: Vec::new().into_iter(),
            file: None,
        })
    }
}

/// A checkpoint that arrives.
struct Arriving<'s, 'a> {
    cluster: ClusterId,
    seed: &'s mut Seed<'a>,
    known: KnownLog,
    head: Vec<u8>,
    start: Lsn,
    /// The files to come, in order, and the tables whose rows they have.
    files: vec::IntoIter<(Fid, CheckpointFile)>,
    file: Option<(Fid, RowsDecoder)>,
}

impl Keeper for Arriving<'_, '_> {
    fn begin(&mut self, known: KnownLog) -> Result<(), String> {
        self.known = known;
        Ok(())
    }

    fn keep(&mut self, file: u32, bytes: &[u8], last: bool) -> Result<(), String> {
        if file == 0 {
            self.head.extend_from_slice(bytes);
            return if last { self.manifest_is_here() } else { Ok(()) };
        }
        if self.file.is_none() {
            let (fid, entry) = self.files.next().ok_or("more files came than the manifest names")?;
            // Its name is for messages only.
            let name = PathBuf::from(&entry.name);
            self.file = Some((fid, RowsDecoder::new(name, self.cluster, self.start, fid, &entry)));
        }
        let (fid, decoder) = self.file.as_mut().expect("just begun");
        decoder.take(bytes).map_err(|cause| cause.to_string())?;
        while let Some(block) = decoder.next_block().map_err(|cause| cause.to_string())? {
            for (rid, address, row) in block {
                self.seed.record(&Record { fid: *fid, rid, address, row })?;
            }
        }
        if last {
            if !decoder.is_over() {
                return Err("one of its files is shorter than the manifest says".into());
            }
            self.file = None;
        }
        self.seed.came(bytes.len() as u64)
    }
}

impl Arriving<'_, '_> {
    fn manifest_is_here(&mut self) -> Result<(), String> {
        let manifest = manifest_that_came(&self.head, self.cluster)?;
        if manifest.is_open() {
            self.seed.decline();
            return Err("it is that of another mirror".into());
        }
        self.start = manifest.start();
        self.seed.begin(Beginning {
            cluster: self.cluster,
            known: std::mem::take(&mut self.known),
            start: manifest.start(),
            end: manifest.end(),
            bytes: manifest.bytes(),
        })?;
        let tables = manifest.tables.into_iter();
        let files = tables.flat_map(|table| table.files.into_iter().map(move |file| (Fid(table.fid), file)));
        self.files = files.collect::<Vec<_>>().into_iter();
        Ok(())
    }
}
