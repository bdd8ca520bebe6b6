//! Files of rows.
//!
//! | file header, 64 bytes | |
//! |---|---|
//! | 0..8   | `FRESHROW` |
//! | 8..12  | format version |
//! | 12..16 | table id |
//! | 16..32 | cluster id |
//! | 32..40 | the checkpoint's start |
//! | 40..44 | CRC-32C of bytes 0..40 |
//!
//! Behind it, blocks:
//!
//! | block | |
//! |---|---|
//! | 0..4   | length of the whole block |
//! | 4..8   | CRC-32C of everything behind |
//! | 8..12  | number of rows |
//! | then, for each row | record id (8 bytes), LSN (8), length (4), the row |
//!
//! A length of all ones, and no row, says that the record was deleted at that LSN and its id is
//! free.

use std::{
    fs::File,
    io::{Read, Write},
    ops::Range,
    path::{Path, PathBuf},
};

use freshet_base::{
    ClusterId, Fid, Lsn, Rid, private,
    versions::{Level, Versions},
};

use super::{CheckpointError, CheckpointFile, folder};

const MAGIC: &[u8; 8] = b"FRESHROW";
const READS: Versions = Versions::new(1, 1);
const HEAD: usize = 64;
const BLOCK_HEAD: usize = 12;
const ROW_HEAD: usize = 20;
/// Where the length of a row would be: the record is gone.
const GONE: u32 = u32::MAX;
/// A block is written when it has this many bytes.
pub const BLOCK: usize = 256 << 10;

/// Makes blocks of rows.
#[derive(Debug)]
pub struct RowsEncoder {
    block: Vec<u8>,
    /// Those that are gone, too.
    rows_in_block: u32,
    rows: u64,
}

impl RowsEncoder {
    /// No rows yet.
    pub fn new() -> Self {
        Self { block: vec![0; BLOCK_HEAD], rows_in_block: 0, rows: 0 }
    }

    /// What a file begins with that has rows of `fid`, in a checkpoint of `cluster` that began at
    /// `start`.
    pub fn head(cluster: ClusterId, start: Lsn, fid: Fid) -> [u8; HEAD] {
        head(READS.writes(), cluster, start, fid)
    }

    /// Adds a row to the block; without one, the record was deleted at that LSN, and its id is
    /// free. Returns whether the block is full, and should be taken.
    #[inline]
    pub fn push(&mut self, rid: Rid, lsn: Lsn, row: Option<&[u8]>) -> bool {
        self.block.extend_from_slice(&rid.0.to_le_bytes());
        self.block.extend_from_slice(&lsn.0.to_le_bytes());
        // Rows are shorter than `Table::MAX_ROW`.
        self.block.extend_from_slice(&row.map_or(GONE, |row| row.len() as u32).to_le_bytes());
        self.block.extend_from_slice(row.unwrap_or_default());
        self.rows += u64::from(row.is_some());
        self.rows_in_block += 1;
        self.block.len() >= BLOCK
    }

    /// How many rows were added, those that are gone not counted.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Hands the block to `write`, if it has rows, and begins another.
    ///
    /// # Errors
    /// What `write` says.
    pub fn take<E>(&mut self, write: impl FnOnce(&[u8]) -> Result<(), E>) -> Result<u64, E> {
        if self.rows_in_block == 0 {
            return Ok(0);
        }
        let length = u32::try_from(self.block.len()).expect("a block is little longer than its rows");
        self.block[8..12].copy_from_slice(&self.rows_in_block.to_le_bytes());
        let crc = crc32c::crc32c(&self.block[8..]);
        self.block[..4].copy_from_slice(&length.to_le_bytes());
        self.block[4..8].copy_from_slice(&crc.to_le_bytes());
        write(&self.block)?;
        self.rows_in_block = 0;
        self.block.truncate(BLOCK_HEAD);
        Ok(length.into())
    }
}

impl Default for RowsEncoder {
    fn default() -> Self {
        Self::new()
    }
}

fn head(format: u32, cluster: ClusterId, start: Lsn, fid: Fid) -> [u8; HEAD] {
    let mut bytes = [0; HEAD];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&format.to_le_bytes());
    bytes[12..16].copy_from_slice(&fid.0.to_le_bytes());
    bytes[16..32].copy_from_slice(&cluster.0.to_le_bytes());
    bytes[32..40].copy_from_slice(&start.0.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..40]);
    bytes[40..44].copy_from_slice(&crc.to_le_bytes());
    if READS.is_next(format) {
        bytes[44..48].copy_from_slice(&Level::NEWEST.0.to_le_bytes());
    }
    bytes
}

/// Writes one checkpointer's share of a table, to the files of one device.
#[derive(Debug)]
pub struct TableWriter {
    files: Vec<(PathBuf, File, CheckpointFile)>,
    next: usize,
    rows: RowsEncoder,
    unsynced: u64,
    sync_bytes: u64,
}

impl TableWriter {
    /// Makes the files of these numbers on a device for rows of `fid`; writers side by side have
    /// others. A sync comes every `sync_bytes` (SiloR, section 6.2: without, the kernel writes it
    /// all at the worst moment); 0 means one at the end only.
    ///
    /// # Errors
    /// [`CheckpointError::Io`].
    pub fn create(
        device: (u32, &Path),
        cluster: ClusterId,
        start: Lsn,
        fid: Fid,
        files: Range<u32>,
        sync_bytes: u64,
    ) -> Result<Self, CheckpointError> {
        let (number, device) = device;
        let folder = folder(device, start);
        private::create_directories(&folder).map_err(|source| CheckpointError::io("make", &folder, source))?;
        let make = |k: u32| {
            let name = format!("{}-{number}-{k}.rows", fid.0);
            let path = folder.join(&name);
            let mut file = private::create(&path).map_err(|source| CheckpointError::io("make", &path, source))?;
            let written = file.write_all(&head(READS.writes(), cluster, start, fid));
            written.map_err(|source| CheckpointError::io("write", &path, source))?;
            Ok((path, file, CheckpointFile { device: number, name, bytes: HEAD as u64 }))
        };
        Ok(Self {
            files: files.map(make).collect::<Result<_, _>>()?,
            next: 0,
            rows: RowsEncoder::new(),
            unsynced: 0,
            sync_bytes: if sync_bytes == 0 { u64::MAX } else { sync_bytes },
        })
    }

    /// Adds a row to the block; without one, the record was deleted at that LSN, and its id is
    /// free. Returns whether the block is full and should be [written](TableWriter::write_block).
    #[inline]
    pub fn push(&mut self, rid: Rid, lsn: Lsn, row: Option<&[u8]>) -> bool {
        self.rows.push(rid, lsn, row)
    }

    /// Writes the block to the next file, and syncs when much was written since the last time.
    /// Returns the bytes that the file has grown by.
    ///
    /// # Errors
    /// [`CheckpointError::Io`].
    pub fn write_block(&mut self) -> Result<u64, CheckpointError> {
        let number = self.next % self.files.len();
        let (path, file, entry) = &mut self.files[number];
        let write = |block: &[u8]| file.write_all(block);
        let length = self.rows.take(write).map_err(|source| CheckpointError::io("write", path.clone(), source))?;
        if length == 0 {
            return Ok(0);
        }
        entry.bytes += length;
        self.next += 1;
        self.unsynced += length;
        if self.unsynced >= self.sync_bytes {
            self.sync()?;
        }
        Ok(length)
    }

    fn sync(&mut self) -> Result<(), CheckpointError> {
        for (path, file, _) in &self.files {
            file.sync_data().map_err(|source| CheckpointError::io("sync", path.clone(), source))?;
        }
        self.unsynced = 0;
        Ok(())
    }

    /// Writes the last block, syncs everything with its names, and tells how many rows there are
    /// and where.
    ///
    /// # Errors
    /// [`CheckpointError::Io`].
    pub fn finish(mut self) -> Result<(u64, Vec<CheckpointFile>), CheckpointError> {
        self.write_block()?;
        self.sync()?;
        // The files' names, and that of their folder: the manifest may not outlive it.
        let folders = self.files.first().map(|(path, _, _)| path.ancestors().skip(1).take(2)).into_iter().flatten();
        for folder in folders {
            let synced = File::open(folder).and_then(|folder| folder.sync_all());
            synced.map_err(|source| CheckpointError::io("sync", folder, source))?;
        }
        Ok((self.rows.rows(), self.files.into_iter().map(|(_, _, entry)| entry).collect()))
    }
}

/// Reads a file of rows, block by block, as its bytes come.
#[derive(Debug)]
pub struct RowsDecoder {
    /// The file's name, for messages.
    path: PathBuf,
    cluster: ClusterId,
    start: Lsn,
    fid: Fid,
    /// Where in the file the next block begins, and how long the file is.
    at: u64,
    end: u64,
    /// What has come and was not decoded is between these.
    bytes: Vec<u8>,
    begin: usize,
    filled: usize,
}

impl RowsDecoder {
    /// For a file of a checkpoint of `cluster` that began at `start`, with rows of `fid`; `path` is
    /// for messages.
    pub fn new(path: PathBuf, cluster: ClusterId, start: Lsn, fid: Fid, entry: &CheckpointFile) -> Self {
        Self { path, cluster, start, fid, at: 0, end: entry.bytes, bytes: Vec::new(), begin: 0, filled: 0 }
    }

    fn damaged(&self, what: impl Into<String>) -> CheckpointError {
        CheckpointError::Damaged { file: self.path.clone(), offset: self.at, what: what.into() }
    }

    /// Where the next `length` bytes are to be put.
    fn room(&mut self, length: usize) -> &mut [u8] {
        if self.begin > 0 {
            self.bytes.copy_within(self.begin..self.filled, 0);
            (self.begin, self.filled) = (0, self.filled - self.begin);
        }
        let end = self.filled + length;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[self.filled..end]
    }

    /// This number of bytes were put there.
    fn came(&mut self, length: usize) -> Result<(), CheckpointError> {
        self.filled += length;
        match self.bytes[self.begin..self.filled].first_chunk::<HEAD>() {
            Some(found) if self.at == 0 => {
                self.check(found)?;
                self.begin += HEAD;
                self.at = HEAD as u64;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The next bytes of the file.
    ///
    /// # Errors
    /// [`CheckpointError`] when it is another file.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.came(bytes.len())
    }

    fn check(&self, found: &[u8; HEAD]) -> Result<(), CheckpointError> {
        // Before the checksum: another version may compute another one.
        let format = half(found, 8);
        if found[..8] == *MAGIC {
            READS.check(format).map_err(|cause| CheckpointError::Format { file: self.path.clone(), cause })?;
        }
        if crc32c::crc32c(&found[..40]).to_le_bytes() == found[40..44] && found[16..32] != self.cluster.0.to_le_bytes()
        {
            let found = ClusterId(u128::from_le_bytes(std::array::from_fn(|i| found[16 + i])));
            return Err(CheckpointError::ForeignCluster { file: self.path.clone(), found, expected: self.cluster });
        }
        if *found != head(format, self.cluster, self.start, self.fid) || self.end < HEAD as u64 {
            return Err(self.damaged("its header is not that of this table and checkpoint"));
        }
        Ok(())
    }

    /// How many bytes are to be decoded next, as far as is known: of the header, of a block's head,
    /// or of a block; none at the end.
    fn unit(&self) -> Result<usize, CheckpointError> {
        let left = self.end - self.at;
        if self.at == 0 {
            return Ok(HEAD);
        }
        if left == 0 {
            return Ok(0);
        }
        if left < BLOCK_HEAD as u64 {
            return Err(self.damaged("the last block is cut off"));
        }
        let Some(head) = self.bytes[self.begin..self.filled].first_chunk::<BLOCK_HEAD>() else { return Ok(BLOCK_HEAD) };
        let length = half(head, 0);
        if (length as usize) < BLOCK_HEAD || u64::from(length) > left {
            return Err(self.damaged("the length of a block is none"));
        }
        Ok(length as usize)
    }

    /// The next block, if it has come wholly.
    ///
    /// # Errors
    /// [`CheckpointError`] when it is damaged.
    pub fn next_block(&mut self) -> Result<Option<RowsBlock<'_>>, CheckpointError> {
        let length = self.unit()?;
        if length == 0 || self.filled - self.begin < length.max(BLOCK_HEAD) {
            return Ok(None);
        }
        let block = self.begin..self.begin + length;
        let bytes = &self.bytes[block.clone()];
        if crc32c::crc32c(&bytes[8..]) != half(bytes, 4) {
            return Err(self.damaged("the checksum of a block does not hold"));
        }
        if !whole_rows(&bytes[BLOCK_HEAD..], half(bytes, 8)) {
            return Err(self.damaged("the rows of a block do not fill it"));
        }
        self.begin = block.end;
        self.at += length as u64;
        Ok(Some(RowsBlock { bytes: &self.bytes[block.start + BLOCK_HEAD..block.end] }))
    }

    /// Whether all of the file was decoded.
    pub fn is_over(&self) -> bool {
        self.at == self.end && self.begin == self.filled
    }
}

/// The half of a word at byte `at`.
fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// Reads a file of rows, block by block.
#[derive(Debug)]
pub struct RowsReader {
    file: File,
    decoder: RowsDecoder,
}

impl RowsReader {
    /// Opens a file of a checkpoint on the device at `device` and checks that it is that one.
    ///
    /// # Errors
    /// [`CheckpointError`] says what is wrong with it.
    pub fn open(
        device: &Path,
        cluster: ClusterId,
        start: Lsn,
        fid: Fid,
        entry: &CheckpointFile,
    ) -> Result<Self, CheckpointError> {
        let path = folder(device, start).join(&entry.name);
        let io = |doing, source| CheckpointError::io(doing, path.clone(), source);
        let file = File::open(&path).map_err(|source| io("open", source))?;
        let length = file.metadata().map_err(|source| io("ask the size of", source))?.len();
        let decoder = RowsDecoder::new(path.clone(), cluster, start, fid, entry);
        if length != entry.bytes {
            return Err(decoder.damaged(format!("it has {length} bytes, its manifest says {}", entry.bytes)));
        }
        let mut reader = Self { file, decoder };
        reader.read(HEAD)?;
        Ok(reader)
    }

    fn read(&mut self, length: usize) -> Result<(), CheckpointError> {
        let read = self.file.read_exact(self.decoder.room(length));
        read.map_err(|source| CheckpointError::io("read", self.decoder.path.clone(), source))?;
        self.decoder.came(length)
    }

    /// Reads the next block; none at the end.
    ///
    /// # Errors
    /// [`CheckpointError`] when it is not whole.
    pub fn next_block(&mut self) -> Result<Option<RowsBlock<'_>>, CheckpointError> {
        // Its head says how long it is.
        for _ in 0..2 {
            let missing = self.decoder.unit()?.saturating_sub(self.decoder.filled - self.decoder.begin);
            self.read(missing)?;
        }
        self.decoder.next_block()
    }
}

fn whole_rows(bytes: &[u8], rows: u32) -> bool {
    let mut rest = bytes;
    for _ in 0..rows {
        let Some((head, behind)) = rest.split_first_chunk::<ROW_HEAD>() else { return false };
        let length = u32::from_le_bytes(std::array::from_fn(|i| head[16 + i]));
        let length = if length == GONE { 0 } else { length as usize };
        let Some(behind) = behind.get(length..) else { return false };
        rest = behind;
    }
    rest.is_empty()
}

/// A checked block of rows.
#[derive(Debug)]
pub struct RowsBlock<'r> {
    bytes: &'r [u8],
}

impl RowsBlock<'_> {
    /// Its length in the file, in bytes.
    pub fn length(&self) -> u64 {
        (self.bytes.len() + BLOCK_HEAD) as u64
    }
}

impl<'r> Iterator for RowsBlock<'r> {
    /// Record id, LSN, and the row; without one, the record is gone.
    type Item = (Rid, Lsn, Option<&'r [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        // `whole_rows` went the same way, so that only the end has no header.
        let (head, rest) = self.bytes.split_first_chunk::<ROW_HEAD>()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        let length = u32::from_le_bytes(std::array::from_fn(|i| head[16 + i]));
        if length == GONE {
            self.bytes = rest;
            return Some((Rid(word(0)), Lsn(word(8)), None));
        }
        let (row, rest) = rest.split_at_checked(length as usize)?;
        self.bytes = rest;
        Some((Rid(word(0)), Lsn(word(8)), Some(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_format_is_refused() {
        let (cluster, start, fid) = (ClusterId(7), Lsn(90_000), Fid(3));
        let entry = CheckpointFile { device: 0, name: "it".into(), bytes: HEAD as u64 };
        let mut bytes = head(READS.writes(), cluster, start, fid);
        RowsDecoder::new("it".into(), cluster, start, fid, &entry).take(&bytes).unwrap();
        bytes[8] = 9;
        let error = RowsDecoder::new("it".into(), cluster, start, fid, &entry).take(&bytes).unwrap_err();
        assert!(matches!(error, CheckpointError::Format { .. }), "{error}");
    }

    #[test]
    fn rows_and_the_gone_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let (device, cluster, start, fid) = (directory.path(), ClusterId(7), Lsn(90_000), Fid(3));
        let mut writer = TableWriter::create((0, device), cluster, start, fid, 0..2, 0).unwrap();
        let mut expected = Vec::new();
        for number in 0..40_000 {
            let (rid, lsn) = (Rid(number), Lsn(number * 2));
            let row = (number % 3 != 1).then(|| vec![number as u8; number as usize % 20]);
            if writer.push(rid, lsn, row.as_deref()) {
                writer.write_block().unwrap();
            }
            expected.push((rid, lsn, row));
        }
        let (rows, files) = writer.finish().unwrap();
        assert_eq!(rows as usize, expected.iter().filter(|(.., row)| row.is_some()).count());
        let mut found = Vec::new();
        for file in &files {
            let mut reader = RowsReader::open(device, cluster, start, fid, file).unwrap();
            while let Some(block) = reader.next_block().unwrap() {
                found.extend(block.map(|(rid, lsn, row)| (rid, lsn, row.map(<[u8]>::to_vec))));
            }
        }
        found.sort_by_key(|(rid, ..)| *rid);
        assert_eq!(found, expected);
        // In pieces of any length, as they come from another node.
        let mut came = Vec::new();
        for (file, piece) in files.iter().zip([1, 300_007]) {
            let bytes = std::fs::read(folder(device, start).join(&file.name)).unwrap();
            let mut decoder = RowsDecoder::new("it".into(), cluster, start, fid, file);
            for bytes in bytes.chunks(piece) {
                decoder.take(bytes).unwrap();
                while let Some(block) = decoder.next_block().unwrap() {
                    came.extend(block.map(|(rid, lsn, row)| (rid, lsn, row.map(<[u8]>::to_vec))));
                }
            }
            assert!(decoder.is_over());
            let mut cut = RowsDecoder::new("it".into(), cluster, start, fid, file);
            cut.take(&bytes[..bytes.len() - 1]).unwrap();
            while cut.next_block().unwrap().is_some() {}
            assert!(!cut.is_over(), "a byte is missing");
            assert!(RowsDecoder::new("it".into(), cluster, start, Fid(4), file).take(&bytes).is_err(), "another table");
        }
        came.sort_by_key(|(rid, ..)| *rid);
        assert_eq!(came, expected);
    }
}
