//! A model of more cores than there are (docs/benchmarks.md, "A model of more cores"). Not a
//! measurement.
//!
//! Every transaction that writes does one `fetch_add` on the counter that gives LSNs, with any
//! number of streams. The model says how many transactions a second that leaves, where access is
//! uniform and without conflicts, and devices, loggers and cores for them keep up.

/// What a transfer of a cache line between cores costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// What it is, in words.
    pub(super) name: &'static str,
    /// A transfer, in microseconds.
    transfer: f64,
    /// Transfers of the counter's line for each transaction that exclude those of others.
    counter: f64,
}

/// One socket, where only the `fetch_add` excludes others.
pub(super) const ONE_SOCKET: Machine = Machine { name: "one socket", transfer: 0.1, counter: 1.0 };
/// Several, where every access to the counter misses.
pub(super) const SOCKETS: Machine = Machine { name: "four sockets", transfer: 0.2, counter: 4.0 };

/// Threads for which it is asked, up to the paper's.
pub(super) const THREADS: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 24.0, 48.0];

/// Transactions per second of `workers` threads, which need `cpu` microseconds each of processor
/// time for one.
pub(super) fn throughput(machine: Machine, cpu: f64, workers: f64) -> f64 {
    let Machine { transfer, counter, .. } = machine;
    // Other lines that a transaction waits for: the edge of the ring, the reclamation epoch, its
    // own announcement, and those of others, four at a time.
    let others = (workers - 1.0) / workers
        + (workers / 64.0).min(1.0)
        + ((workers - 1.0) / 8.5).min(1.0)
        + (workers - 1.0) / 34.0;
    let alone = workers / (cpu + transfer * (counter + others));
    alone.min(1.0 / (counter * transfer)) * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/benchmarks.md, in millions per second.
    #[test]
    fn it_is_the_model_of_the_benchmarks() {
        for (machine, workers, expected) in [
            (ONE_SOCKET, 8.0, 4.8),
            (ONE_SOCKET, 24.0, 10.0),
            (ONE_SOCKET, 48.0, 10.0),
            (SOCKETS, 8.0, 1.2),
            (SOCKETS, 48.0, 1.2),
        ] {
            let modelled = throughput(machine, 1.36, workers) / 1e6;
            // The table has two digits.
            assert!((modelled - expected).abs() < 0.06, "{}, {workers} workers: {modelled}", machine.name);
        }
    }
}
