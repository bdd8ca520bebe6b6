//! Sessions that insert rows wherever one can write, and remember what they heard.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
        mpsc::Sender,
    },
    thread,
    time::{Duration, Instant},
};

use freshet_workloads::random::Random;

use crate::sql_client::{Session, SqlFailure};

/// The table of the rows.
pub(super) const TABLE: &str = "freshet_rehearsal";
/// A session without a primary looks for one again after this.
const RETRY: Duration = Duration::from_millis(5);
/// A session rests for less than this after a row, in microseconds.
const REST: u64 = 4_000;
/// How long a session waits for an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// A row that a node has acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    pub(super) row: i64,
    pub(super) node: usize,
    /// When its session began, and when it was acknowledged.
    pub(super) opened: Instant,
    pub(super) at: Instant,
}

/// What became of rows that were not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// Rows that may or may not be there, as their sessions heard.
    pub(super) open: Vec<i64>,
    /// Rows that are not there, as their sessions heard.
    pub(super) refused: Vec<i64>,
    /// How often which SQLSTATE was heard.
    pub(super) errors: BTreeMap<String, u64>,
}

/// What all sessions share.
pub(super) struct Load {
    /// Where nodes serve sessions, by number.
    pub(super) sockets: Vec<PathBuf>,
    /// The role of all sessions.
    pub(super) user: String,
    pub(super) over: AtomicBool,
    next: AtomicI64,
    failures: Mutex<Failures>,
}

impl Load {
    /// No session has begun yet.
    pub(super) fn new(sockets: Vec<PathBuf>, user: &str) -> Self {
        let user = user.to_owned();
        Self { sockets, user, over: AtomicBool::new(false), next: AtomicI64::new(0), failures: Mutex::default() }
    }

    /// What has failed so far.
    pub(super) fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session with a node. Whatever its role has set, its commits keep to the level.
    pub(super) fn open(&self, node: usize) -> Result<Session, SqlFailure> {
        let mut session = Session::open(&self.sockets[node], &self.user, ANSWER)?;
        session.run("SET synchronous_commit = on")?;
        Ok(session)
    }

    /// Inserts one row after the other on whichever of these nodes takes writers, until `stop`.
    pub(super) fn insert(&self, nodes: &[usize], stop: &AtomicBool, acks: &Sender<Ack>, mut random: Random) {
        let mut session = None;
        // Relaxed, as below: the threads are joined before anything is read that they have written.
        while !stop.load(Ordering::Relaxed) {
            let Some((node, opened, mut open)) = session.take().or_else(|| self.find(nodes, &mut random)) else {
                thread::sleep(RETRY);
                continue;
            };
            let row = self.next.fetch_add(1, Ordering::Relaxed);
            match Session::run(&mut open, &format!("INSERT INTO {TABLE} VALUES ({row})")) {
                Ok(_) => {
                    // The receiver is dropped when the rounds have ended.
                    let _ = acks.send(Ack { row, node, opened, at: Instant::now() });
                    session = Some((node, opened, open));
                    thread::sleep(Duration::from_micros(random.below(REST)));
                }
                Err(failure) => self.note(row, &failure),
            }
        }
    }

    fn note(&self, row: i64, failure: &SqlFailure) {
        let mut failures = self.failures();
        let code = match failure {
            SqlFailure::Server { code, .. } => code.clone(),
            SqlFailure::Lost(_) => "connection lost".to_owned(),
        };
        *failures.errors.entry(code).or_default() += 1;
        if failure.is_open() { &mut failures.open } else { &mut failures.refused }.push(row);
    }

    /// A session on one of these nodes that takes writers.
    fn find(&self, nodes: &[usize], random: &mut Random) -> Option<(usize, Instant, Session)> {
        let mut order = nodes.to_vec();
        random.shuffle(&mut order);
        let open = |node: usize| {
            let opened = Instant::now();
            Some((node, opened, self.open(node).ok().filter(Session::takes_writers)?))
        };
        order.into_iter().find_map(open)
    }
}
