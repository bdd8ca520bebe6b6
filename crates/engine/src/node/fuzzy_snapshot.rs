//! What a mirror has, given to a node that joins or restarts without a disk, in the form of a
//! checkpoint ([`FuzzySnapshot`]). The primary writes on, so how long it gets and where it ends is
//! known when it was read: the manifest that comes first says neither ([`Manifest::is_open`]), and
//! another one follows behind the files.

use std::{
    collections::{BTreeMap, HashSet},
    io::{self, Read},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use freshet_base::{ClusterId, Fid, Lsn, Rid, Term};
use freshet_fabric::tcp::Connection;
use freshet_recovery::{
    Manifest,
    checkpoint::{CheckpointFile, CheckpointTable, RowsEncoder},
};
use freshet_replication::{
    checkpoints::{OpenCheckpoint, serve},
    endpoint::{Service, answer},
    mirror::{FuzzySnapshot, FuzzySnapshots},
    wire::{Hello, Purpose, Refusal, Reply},
};
use freshet_storage::Catalog;

/// Tables do not change all the time: the catalog can be read within this time.
const PATIENCE: Duration = Duration::from_secs(4);
/// It is tried this often.
const LOOK: Duration = Duration::from_millis(5);

/// Gives a mirror's memory to the nodes that ask.
pub(super) struct MirrorDoor {
    pub fuzzy_snapshots: FuzzySnapshots,
    pub cluster: ClusterId,
}

impl Service for MirrorDoor {
    fn serve(&self, hello: Hello, connection: Connection) {
        let refuse = |why: &str| Reply::Refused(Refusal::Failed(why.to_owned()));
        if hello.cluster.is_some_and(|theirs| theirs != self.cluster) {
            return answer(connection, Term(0), &Reply::NoCheckpoint);
        }
        if matches!(hello.purpose, Purpose::Checkpoint { consistent: true }) {
            let why = "a mirror gives no consistent checkpoint: ask a node that has a log";
            return answer(connection, Term(0), &refuse(why));
        }
        tracing::info!(node = %hello.node, address = hello.address, "a node fetches what this mirror has");
        serve(connection, || self.open().map(Some), || self.fuzzy_snapshots.state());
    }
}

/// Rows with their addresses; none where a record is gone.
type Rows = Vec<(Rid, Lsn, Option<Vec<u8>>)>;

/// What is sent, file by file: one for each table.
struct Sending {
    fuzzy_snapshot: FuzzySnapshot,
    /// What was sent.
    tables: Vec<CheckpointTable>,
}

type Shared = Arc<Mutex<Sending>>;

fn lock(sending: &Shared) -> MutexGuard<'_, Sending> {
    sending.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file of a table's rows.
fn file(fid: Fid, bytes: u64) -> CheckpointFile {
    CheckpointFile { device: 0, name: format!("{}-0-0.rows", fid.0), bytes }
}

/// Reads what `fill` appends, until that appends nothing.
struct Stream<F> {
    ready: Vec<u8>,
    at: usize,
    fill: F,
}

impl<F: FnMut(&mut Vec<u8>) -> Result<(), String>> Read for Stream<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.ready.len() {
            self.ready.clear();
            self.at = 0;
            (self.fill)(&mut self.ready).map_err(|cause| {
                tracing::warn!(cause, "what a mirror has is not sent to its end");
                io::Error::other(cause)
            })?;
        }
        let length = into.len().min(self.ready.len() - self.at);
        into[..length].copy_from_slice(&self.ready[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}

fn stream(fill: impl FnMut(&mut Vec<u8>) -> Result<(), String> + Send + 'static) -> Box<dyn Read + Send> {
    Box::new(Stream { ready: Vec::new(), at: 0, fill })
}

impl MirrorDoor {
    fn open(&self) -> Result<OpenCheckpoint, String> {
        let (fuzzy_snapshot, catalog) = self.with_catalog()?;
        // Of tables that were dropped some records may be left.
        let there = |row: &&(Rid, Lsn, Option<Vec<u8>>)| row.2.is_some();
        let tables: HashSet<Fid> = catalog.iter().filter(there).filter_map(|row| Catalog::fid_of(row.0)).collect();
        let mut chunks: BTreeMap<Fid, Vec<usize>> = BTreeMap::new();
        for (fid, chunk) in fuzzy_snapshot.chunks().filter(|(fid, _)| tables.contains(fid)) {
            chunks.entry(fid).or_default().push(chunk);
        }
        let (cluster, start) = (self.cluster, fuzzy_snapshot.start());
        let fids: Vec<_> = [Fid::CATALOG].into_iter().chain(chunks.keys().copied()).collect();
        let named = fids.iter().map(|fid| CheckpointTable { fid: fid.0, rows: 0, files: vec![file(*fid, 0)] });
        let manifest = Manifest::new(cluster, start, Lsn::ZERO, 0, 1, named.collect());
        let sending = Arc::new(Mutex::new(Sending { fuzzy_snapshot, tables: Vec::new() }));
        let mut files = vec![catalog_of(&sending, (cluster, start), catalog)];
        files.extend(chunks.into_iter().map(|(fid, chunks)| table_of(&sending, (cluster, start), fid, chunks)));
        files.push(manifest_of(sending, cluster));
        // All of the terms: below its end, which is not known yet, none is missing.
        Ok(OpenCheckpoint { end: Lsn::MAX, manifest: manifest.encode(), files, hold: Box::new(()) })
    }

    /// Begins a fuzzy snapshot in which the catalog is as it was at the start: there has to be a
    /// description of every table that has records in it, or in the log since then.
    fn with_catalog(&self) -> Result<(FuzzySnapshot, Rows), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut fuzzy_snapshot = self.fuzzy_snapshots.take()?;
            let mut rows = Rows::new();
            let chunks: Vec<_> = fuzzy_snapshot.chunks().filter(|(fid, _)| *fid == Fid::CATALOG).collect();
            for (_, chunk) in chunks {
                fuzzy_snapshot.visit(chunk, |rid, address, row| rows.push((rid, address, row.map(<[u8]>::to_vec))))?;
            }
            if fuzzy_snapshot.newest().is_none() {
                return Ok((fuzzy_snapshot, rows));
            }
            if Instant::now() > deadline {
                return Err("tables are changed all the time: ask again".into());
            }
            thread::sleep(LOOK);
        }
    }
}

fn catalog_of(sending: &Shared, (cluster, start): (ClusterId, Lsn), catalog: Rows) -> Box<dyn Read + Send> {
    let (sending, mut catalog) = (Arc::clone(sending), Some(catalog));
    stream(move |into| {
        let Some(catalog) = catalog.take() else { return Ok(()) };
        let mut rows = RowsEncoder::new();
        into.extend_from_slice(&RowsEncoder::head(cluster, start, Fid::CATALOG));
        for (rid, address, row) in catalog {
            if rows.push(rid, address, row.as_deref()) {
                append(&mut rows, into);
            }
        }
        append(&mut rows, into);
        let file = file(Fid::CATALOG, into.len() as u64);
        lock(&sending).tables.push(CheckpointTable { fid: Fid::CATALOG.0, rows: rows.rows(), files: vec![file] });
        Ok(())
    })
}

/// The table's rows, chunk by chunk.
fn table_of(
    sending: &Shared,
    (cluster, start): (ClusterId, Lsn),
    fid: Fid,
    chunks: Vec<usize>,
) -> Box<dyn Read + Send> {
    let (sending, mut chunks, mut rows) = (Arc::clone(sending), Some(chunks.into_iter()), RowsEncoder::new());
    let mut bytes = 0;
    stream(move |into| {
        let Some(left) = &mut chunks else { return Ok(()) };
        if bytes == 0 {
            into.extend_from_slice(&RowsEncoder::head(cluster, start, fid));
        }
        let mut sending = lock(&sending);
        // A chunk may have nothing that is sent.
        while into.is_empty()
            && let Some(chunk) = left.next()
        {
            sending.fuzzy_snapshot.visit(chunk, |rid, address, row| {
                if rows.push(rid, address, row) {
                    append(&mut rows, into);
                }
            })?;
        }
        if into.is_empty() {
            append(&mut rows, into);
            let file = file(fid, bytes + into.len() as u64);
            sending.tables.push(CheckpointTable { fid: fid.0, rows: rows.rows(), files: vec![file] });
            chunks = None;
        }
        bytes += into.len() as u64;
        Ok(())
    })
}

fn append(rows: &mut RowsEncoder, into: &mut Vec<u8>) {
    let appended = rows.take(|block| {
        into.extend_from_slice(block);
        Ok::<_, std::convert::Infallible>(())
    });
    match appended {
        Ok(_) => {}
        Err(never) => match never {},
    }
}

/// What counts: when all was read, and is committed.
fn manifest_of(sending: Shared, cluster: ClusterId) -> Box<dyn Read + Send> {
    let mut sending = Some(sending);
    stream(move |into| {
        let Some(sending) = sending.take() else { return Ok(()) };
        let mut sending = lock(&sending);
        let (start, end, tables) =
            (sending.fuzzy_snapshot.start(), sending.fuzzy_snapshot.end()?, std::mem::take(&mut sending.tables));
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64);
        into.extend(Manifest::new(cluster, start, end, time, 1, tables).encode());
        Ok(())
    })
}
