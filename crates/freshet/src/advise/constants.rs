//! What is not measured on the spot: constants from docs/benchmarks.md, where a test looks for
//! them.

use serde::Serialize;

/// A figure that was measured before, or is reckoned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Constant {
    /// What it is, as the document says it.
    pub what: &'static str,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
}

const fn constant(what: &'static str, value: f64, unit: &'static str) -> Constant {
    Constant { what, value, unit }
}

pub(super) const SHIP_TCP: Constant = constant("shipping over TCP, on the primary", 1.26, "µs a KiB");
pub(super) const SHIP_ONE_SIDED: Constant = constant("shipping one-sidedly, on the primary", 0.59, "µs a KiB");
pub(super) const FOLLOW: Constant = constant("following with bytes, on the standby", 7.8, "µs a KiB of log");
pub(super) const INPUTS: Constant = constant("length of inputs", 6.2, "% of the log");
pub(super) const RECORD: Constant = constant("recording inputs", 1.1, "% of forward work");
pub(super) const ENCODE: Constant = constant("encoding inputs, on the primary", 1.1, "µs a KiB of log");
pub(super) const EXECUTE: Constant = constant("executing again, on the standby", 2.1, "times forward work");
pub(super) const RECEIVE: Constant = constant("receiving over TCP, on the standby", 0.45, "µs a KiB");
pub(super) const COPY: Constant = constant("copying into other memory", 0.11, "µs a KiB");
pub(super) const CHECKSUM: Constant = constant("checksum of a row", 0.11, "µs a KiB");
pub(super) const COMPARE: Constant = constant("comparing a row with the one before", 0.1, "µs a KiB");
pub(super) const LOOK_UP: Constant = constant("finding the version before", 0.12, "µs a record");
pub(super) const PACKET: Constant = constant("headers of a packet", 58.0, "bytes");
pub(super) const PROMOTE: Constant = constant("take-over without anything to replay", 0.1, "s");
pub(super) const ENTRIES: Constant = constant("building indexes", 4.25, "M entries a second and processor");

/// All of them.
pub(super) const ALL: [Constant; 15] = [
    SHIP_TCP,
    SHIP_ONE_SIDED,
    FOLLOW,
    INPUTS,
    RECORD,
    ENCODE,
    EXECUTE,
    RECEIVE,
    COPY,
    CHECKSUM,
    COMPARE,
    LOOK_UP,
    PACKET,
    PROMOTE,
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
        let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
        let rows: Vec<_> = rows.map(|row| row.split(" | ").take(2).collect::<Vec<_>>().join(" | ")).collect();
        let wanted = ALL.map(|Constant { what, value, unit }| format!("| {what} | {value} {unit}"));
        assert_eq!(rows, wanted);
    }
}
