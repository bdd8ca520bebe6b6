//! Models, not measurements, of what one machine cannot show.
//!
//! The first is of machines with a processor each for as many nodes as share the processors here: a
//! transaction needs the processor time that was measured, over all nodes together, and nodes are
//! alike, so that they all have as much to do. It leaves out that the caches and the memory of one
//! machine are shared here.
//!
//! The second is of a network: what nodes send for a transaction was measured, and no node sends
//! more than its limit.

/// Transactions per second of `nodes` nodes with a processor each, which need `cpu` microseconds
/// for one, all together.
pub(super) fn on_processors(nodes: f64, cpu: f64) -> f64 {
    nodes * 1e6 / cpu
}

/// Transactions per second where `nodes` nodes send at most `gigabits` each, and `bytes` in
/// `writes` packets for one, all together; `unlimited` without a limit.
pub(super) fn on_network(nodes: f64, gigabits: f64, (bytes, writes): (f64, f64), unlimited: f64) -> f64 {
    unlimited.min(nodes * gigabits * 1e9 / 8.0 / (bytes + writes * HEADERS))
}

/// Bytes of a packet's headers, as the limit of a link counts them.
const HEADERS: f64 = 58.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_nodes_do_twice_as_much() {
        assert!((on_processors(5.0, 50.0) - 1e5).abs() < 1e-6);
        assert!((on_processors(10.0, 50.0) / on_processors(5.0, 50.0) - 2.0).abs() < 1e-9);
    }

    /// The paper's own numbers: with what table 3 says of a transaction, Active-Memory can do at 10
    /// Gb/s what the processors of five machines can, about (figure 11 and section 6.4).
    #[test]
    fn a_network_limits_as_in_the_paper() {
        let at = |gigabits: f64, bytes: f64| on_network(5.0, gigabits, (bytes, 0.0), 1.2e6);
        let [memory, log, hstore] = [4500.0, 2500.0, 300.0].map(|bytes| at(1.0, bytes));
        assert!((log / memory - 1.8).abs() < 0.01, "outperformed by log shipping by a factor of 2");
        assert!((hstore / memory - 15.0).abs() < 6.5, "and much more so by H-Store");
        assert!(at(10.0, 4500.0) > 1.1e6, "beyond 10 Gb/s it is no more the network");
    }
}
