//! Clients that read on the standbys.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use freshet_workloads::random::Random;

use super::{
    bank::Bank,
    cluster::{Cluster, USER},
};
use crate::{Failure, sql_client::Session};

/// Between two transactions of a reader: it is there to see, not to compete for the processors.
const PAUSE: Duration = Duration::from_millis(2);

/// One reader for each standby.
pub(crate) struct Readers {
    bank: Bank,
    seed: u64,
    stop: Arc<AtomicBool>,
    /// What each node's reader has read, by the node's number.
    counts: Arc<[AtomicU64]>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts a reader on every standby. It stays there when the standby becomes the primary.
    pub(crate) fn start(bank: Bank, seed: u64, cluster: &Cluster) -> Result<Self, Failure> {
        let mut readers = Self {
            bank,
            seed,
            stop: Arc::default(),
            counts: (0..cluster.size()).map(|_| AtomicU64::new(0)).collect(),
            threads: Vec::new(),
        };
        for number in cluster.standbys() {
            readers.read_on(cluster, number)?;
        }
        Ok(readers)
    }

    /// Starts a reader on this node.
    pub(crate) fn read_on(&mut self, cluster: &Cluster, number: usize) -> Result<(), Failure> {
        let (bank, mut random) = (self.bank, Random::stream(self.seed, 1_000_000 + number as u64));
        let socket = cluster.sql_socket(number)?.to_owned();
        let (stop, counts) = (Arc::clone(&self.stop), Arc::clone(&self.counts));
        self.threads.push(thread::Builder::new().name("reader".to_owned()).spawn(move || {
            let Ok(mut session) = Session::open(&socket, USER, Duration::from_secs(5)) else { return };
            while !stop.load(Ordering::Relaxed) {
                if session.run(&bank.question(&mut random)).is_ok() {
                    counts[number].fetch_add(1, Ordering::Relaxed);
                }
                thread::sleep(PAUSE);
            }
        })?);
        Ok(())
    }

    /// Transactions read on this node so far.
    pub(crate) fn count(&self, number: usize) -> u64 {
        self.counts[number].load(Ordering::Relaxed)
    }

    /// Ends all readers, and waits for them.
    pub(crate) fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
