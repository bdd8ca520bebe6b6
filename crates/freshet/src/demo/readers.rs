//! Clients that read on the standbys: TPC-C's two transactions that change nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use freshet_workloads::{
    random::Random,
    tpcc::{
        input::{Kind, Request, Terminal},
        outcome::Outcome,
        population::Population,
        text::Constants,
    },
};

use super::{cluster::Cluster, connect_patiently};
use crate::{Failure, units::now_micros};

/// Between two transactions of a reader: it is there to see, not to compete for the processors.
const PAUSE: Duration = Duration::from_millis(2);

/// One reader for each standby.
pub(crate) struct Readers {
    population: Population,
    seed: u64,
    stop: Arc<AtomicBool>,
    /// What each node's reader has read, by the node's number.
    counts: Arc<[AtomicU64]>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts a reader on every standby. It stays there when the standby becomes the primary.
    pub(crate) fn start(population: &Population, seed: u64, cluster: &Cluster) -> Result<Self, Failure> {
        let mut readers = Self {
            population: *population,
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
        let constants = Constants::of_run(self.population.constants(), &mut Random::stream(self.seed, u64::MAX));
        let mut terminal = Terminal::new(&self.population, constants, self.seed, 1_000_000 + number as u64, 1);
        let address = cluster.address(number).to_owned();
        let (stop, counts) = (Arc::clone(&self.stop), Arc::clone(&self.counts));
        self.threads.push(thread::Builder::new().name("reader".to_owned()).spawn(move || {
            let patience = Duration::from_secs(5);
            let Ok(client) = connect_patiently(&address, patience) else { return };
            for kind in [Kind::OrderStatus, Kind::StockLevel].into_iter().cycle() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let request = Request { mark: None, input: terminal.next_of(kind, now_micros()) };
                if client.call::<Outcome>("tpcc/run", &request, patience).is_ok() {
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
