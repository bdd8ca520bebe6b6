//! A primary that records what its transactions are told, and its log.

use std::sync::Arc;

use freshet_base::{Certifier, Fid, Isolation, Lsn, NodeId, Rid, Term, Watermark};
use freshet_log::{Block, BlockKind, Log, LogConfig, Persistence};
use freshet_storage::{Catalog, LoadError, Loaded, Participants, RecordSource, Table};
use freshet_txn::{Core, Inputs, OpenGate, Primary, ProcedureError, Snapshots, Worker};

use crate::program::{Program, Run, Step, definition};

/// All versions are in memory.
struct Nothing;

impl RecordSource for Nothing {
    fn load(&self, address: Lsn, _: Fid, _: Rid, _: &mut Vec<u8>) -> Result<Loaded, LoadError> {
        Err(LoadError::Mismatch { address })
    }

    fn limit(&self) -> Lsn {
        Lsn::MAX
    }
}

/// A transaction, or something else of the log.
#[derive(Clone, Debug)]
pub struct Logged {
    pub lsn: Lsn,
    pub bytes: Arc<[u8]>,
    /// The number of its program, if that was recorded.
    pub program: Option<usize>,
}

impl Logged {
    pub fn block(&self) -> Block<'_> {
        Block::parse(&self.bytes, self.lsn).unwrap()
    }
}

pub struct Scene {
    core: Arc<Core>,
    table: Arc<Table>,
    workers: Vec<Worker>,
}

impl Scene {
    /// A table with these records, of id, name and group.
    pub fn new(workers: usize, records: &[(u64, u64, u32)], certifier: Certifier) -> Self {
        let log = Log::open(LogConfig::default(), Persistence::None, Lsn(0), Term(1)).unwrap();
        let snapshots = Snapshots::standby(Arc::new(Watermark::new(Lsn::ZERO)));
        let (participants, catalog) = (Participants::new(workers + 1), Arc::new(Catalog::new()));
        let core =
            Core::new(participants, catalog, snapshots, Arc::new(Nothing), Arc::default(), Arc::default(), certifier);
        log.begin_term(NodeId(1)).unwrap();
        core.snapshots.lead(Primary { log: Arc::new(log), term: Term(1), gate: Arc::new(OpenGate) });
        core.set_records_inputs(true);
        let workers: Vec<Worker> = (0..workers).map(|_| Worker::new(&core).unwrap()).collect();
        let (catalog, definition) = (core.catalog.table(), Catalog::row_of(&definition()).unwrap());
        let made = workers[0].execute(Isolation::Snapshot, |txn| Ok(txn.insert(catalog, &definition)?));
        let table = core.catalog.table_of(Catalog::fid_of(made.unwrap().0).unwrap()).unwrap();
        let scene = Self { core, table, workers };
        let steps: Vec<Step> = records.iter().map(|(id, name, group)| Step::Insert(*id, *name, *group)).collect();
        scene.run(usize::MAX, &[Program::new(Isolation::Snapshot, steps)], |_| 0);
        scene
    }

    /// Runs programs side by side, each step as `next` chooses among those that are under way.
    /// Their numbers begin at `first`. Returns how many have committed.
    pub fn run(&self, first: usize, programs: &[Program], mut next: impl FnMut(usize) -> usize) -> usize {
        let (mut waiting, mut committed) = (programs.iter().enumerate(), 0);
        let mut idle: Vec<&Worker> = self.workers.iter().collect();
        let mut running: Vec<(usize, &Program, Run<'_>, usize)> = Vec::new();
        loop {
            while let Some(worker) = idle.pop() {
                let Some((number, program)) = waiting.next() else { break };
                let run = Run::new(worker.begin(program.isolation), Arc::clone(&self.table));
                running.push((first.wrapping_add(number), program, run, 0));
            }
            if running.is_empty() {
                return committed;
            }
            let chosen = next(running.len());
            let (_, program, run, at) = &mut running[chosen];
            let Some(step) = program.steps.get(*at) else {
                let (number, _, run, _) = running.swap_remove(chosen);
                idle.push(run.transaction.worker());
                if number < usize::MAX / 2 {
                    run.transaction.record_inputs((number as u32).to_le_bytes().to_vec());
                }
                committed += usize::from(run.transaction.commit().is_ok_and(|ticket| ticket.lsn.is_some()));
                continue;
            };
            *at += 1;
            if let Err(cause) = run.step(*step)
                && !program.stubborn
            {
                assert!(ProcedureError::from(cause.clone()).is_retryable(), "{step:?}: {cause}");
                let (_, _, run, _) = running.swap_remove(chosen);
                idle.push(run.transaction.worker());
            }
        }
    }

    /// Everything that is in the log.
    pub fn log(&self) -> (Vec<u8>, Vec<Logged>) {
        let log = &self.core.snapshots.primary().unwrap().log;
        let mut bytes = vec![0; log.reserved().0 as usize];
        log.read(Lsn::ZERO, &mut bytes).unwrap();
        let (mut at, mut logged) = (0, Vec::new());
        while at < bytes.len() {
            let lsn = Lsn(at as u64);
            let block = Block::parse(&bytes[at..], lsn).unwrap();
            let inputs = block.inputs().filter(|_| block.header().kind == BlockKind::Redo);
            let program = inputs.map(|row| {
                let body = Inputs::decode(row).unwrap().body;
                u32::from_le_bytes(body.try_into().unwrap()) as usize
            });
            logged.push(Logged { lsn, bytes: block.bytes().into(), program });
            at += block.bytes().len();
        }
        (bytes, logged)
    }
}
