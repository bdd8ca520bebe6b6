//! What is not measured on the spot: constants from docs/benchmarks.md, where a test looks for
//! them.

use serde::Serialize;

/// A figure that was measured before, or is reckoned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Constant {
    /// What it is, as the document says it.
    pub what: &'static str,
    /// The figure.
    pub value: f64,
    /// The unit of the figure, as the document says it.
    pub unit: &'static str,
}

const fn constant(what: &'static str, value: f64, unit: &'static str) -> Constant {
    Constant { what, value, unit }
}

pub(super) const SHIP_TCP: Constant = constant("shipping over TCP, on the primary", 1.26, "µs a KiB");
pub(super) const SHIP_ONE_SIDED: Constant = constant("shipping one-sidedly, on the primary", 0.59, "µs a KiB");
pub(super) const FOLLOW: Constant = constant("following with bytes, on the standby", 7.8, "µs a KiB of log");
pub(super) const SHIP_BATCH_TCP: Constant = constant("a batch of log over TCP, on the primary", 50.0, "µs");
pub(super) const SHIP_BATCH: Constant = constant("a batch of log one-sidedly, on the primary", 21.0, "µs");
pub(super) const FOLLOW_BATCH: Constant = constant("a batch of log, on the standby", 58.0, "µs");
pub(super) const INPUTS: Constant = constant("length of inputs", 6.2, "% of the log");
pub(super) const RECORD: Constant = constant("recording inputs", 1.1, "% of forward work");
pub(super) const ENCODE: Constant = constant("encoding inputs, on the primary", 1.1, "µs a KiB of log");
pub(super) const EXECUTE: Constant = constant("executing again, on the standby", 2.1, "times forward work");
pub(super) const LIST: Constant = constant("a batch to a mirror one-sidedly, on the primary", 35.0, "µs");
pub(super) const LIST_TCP: Constant = constant("a batch to a mirror over TCP, on the primary", 85.0, "µs");
pub(super) const LISTED_TCP: Constant = constant("a batch over TCP, on the mirror", 55.0, "µs");
pub(super) const TAKE_IN: Constant = constant("making a mirror's batch of the log", 0.4, "µs a KiB of log");
pub(super) const LAY_OUT: Constant = constant("laying out a record for a mirror", 0.1, "µs");
pub(super) const READ_BACK: Constant = constant("reading back from a mirror one-sidedly", 0.1, "µs an update");
pub(super) const READ_TCP: Constant = constant("reading back over TCP, on the primary", 0.9, "µs a piece");
pub(super) const ANSWER_TCP: Constant = constant("reading back over TCP, on the mirror", 2.0, "µs a piece");
pub(super) const WRITE: Constant = constant("writing into a mirror", 0.46, "µs a KiB");
pub(super) const CHANGED: Constant = constant("what an update changes of a row", 25.0, "%");
pub(super) const OPERATION: Constant = constant("header of an operation over TCP", 32.0, "bytes");
pub(super) const PACKET: Constant = constant("headers of a packet", 58.0, "bytes");
pub(super) const PROMOTE: Constant = constant("failover without anything to replay", 0.1, "s");
pub(super) const TABLES: Constant =
    constant("tables and a checkpoint of a mirror's rows", 330.0, "MiB a second and processor");
pub(super) const ENTRIES: Constant = constant("building a mirror's indexes", 8.8, "M entries a second and processor");

/// All of them, in the order of the report.
pub(super) const ALL: [Constant; 25] = [
    SHIP_TCP,
    SHIP_ONE_SIDED,
    FOLLOW,
    SHIP_BATCH_TCP,
    SHIP_BATCH,
    FOLLOW_BATCH,
    INPUTS,
    RECORD,
    ENCODE,
    EXECUTE,
    LIST,
    LIST_TCP,
    LISTED_TCP,
    TAKE_IN,
    LAY_OUT,
    READ_BACK,
    READ_TCP,
    ANSWER_TCP,
    WRITE,
    CHANGED,
    OPERATION,
    PACKET,
    PROMOTE,
    TABLES,
    ENTRIES,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_all_constants_and_no_others() {
        let document = include_str!("../../../../docs/benchmarks.md");
        let (_, section) = document.split_once("## What `freshet advise` reckons with").unwrap();
        let section = section.split("\n## ").next().unwrap();
        // The first table of the section.
        let rows = section.lines().skip_while(|line| !line.starts_with("| ")).take_while(|line| line.starts_with('|'));
        let rows = rows.filter(|line| line.starts_with("| ")).skip(1);
        let rows: Vec<_> = rows.map(|row| row.split(" | ").take(2).collect::<Vec<_>>().join(" | ")).collect();
        let wanted = ALL.map(|Constant { what, value, unit }| format!("| {what} | {value} {unit}"));
        assert_eq!(rows, wanted);
    }
}
