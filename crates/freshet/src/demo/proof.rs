//! The proof: nothing that was acknowledged is missing, on any node.

use std::time::{Duration, Instant};

use freshet_base::Lsn;
use freshet_workloads::{journal::Mark, tpcc::consistency::Verdict};

use super::{
    Teller,
    cluster::{Cluster, PATIENCE},
    load::Outcomes,
};
use crate::{Failure, client::Client, interruption::Interruption, units::grouped};

/// Marks in one request.
const AT_ONCE: usize = 50_000;
/// How long reading everything may take.
const LONG: Duration = Duration::from_secs(300);

/// Checks all nodes; returns how many proofs failed.
pub(crate) fn prove(
    cluster: &Cluster,
    result: &Outcomes,
    teller: &Teller,
    interruption: &Interruption,
) -> Result<u64, Failure> {
    let mut failed = 0;
    let mut verdict = |holds: bool, what: String| {
        failed += u64::from(!holds);
        teller.print(format!("{} {what}", if holds { "  ok  " } else { " FAIL " }));
    };
    let (found, gone) = (result.found.len(), result.gone.len());
    teller.print(format!(
        "proof: {} acknowledged; {} had an open outcome, of which {found} were found and {gone} were not; {} refused, \
         {} rolled back",
        grouped(result.acknowledged.len() as u64),
        found + gone,
        result.refused,
        result.rolled_back
    ));
    let marks: Vec<Mark> = result.acknowledged.iter().chain(&result.found).copied().collect();
    let end = cluster.connect(cluster.primary())?.watermarks(PATIENCE)?.visible;
    let mut hashes = Vec::new();
    for number in 0..cluster.size() {
        interruption.check()?;
        let name = cluster.name(number);
        let client = cluster.connect(number)?;
        wait_visible(&client, end)?;
        let missing = missing(&client, &marks)?;
        let first = missing.first().map(|mark| format!(", the first is {mark:?}")).unwrap_or_default();
        let of = grouped(marks.len() as u64);
        verdict(missing.is_empty(), format!("node {name}: {} of {of} marks are missing{first}", missing.len()));
        let verdicts = client.call::<Vec<Verdict>>("tpcc/check", &(), LONG)?.result;
        let violated: Vec<String> = verdicts.iter().filter(|it| !it.ok).map(ToString::to_string).collect();
        let holds = violated.is_empty() && verdicts.len() == 12;
        verdict(
            holds,
            format!(
                "node {name}: TPC-C's consistency conditions 1 to 12 {}",
                match holds {
                    true => "hold".to_owned(),
                    false => format!("do not hold: {}", violated.join("; ")),
                }
            ),
        );
        hashes.push(client.hash(Some(end), LONG)?);
    }
    let (at, hash, records) = hashes[0];
    // Some may have got further: now and then a primary notes the time.
    let equal = hashes.iter().all(|other| (other.1, other.2) == (hash, records));
    let what = match equal {
        true => format!("all states at {at} hash to {hash:016x} over {} records", grouped(records)),
        false => format!("the states differ: {hashes:?}"),
    };
    verdict(equal, what);
    Ok(failed)
}

fn wait_visible(client: &Client, lsn: Lsn) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    while client.watermarks(PATIENCE)?.visible < lsn {
        if Instant::now() > deadline {
            return Err(Failure::new(format!("{} does not come to see {lsn}", client.address())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn missing(client: &Client, marks: &[Mark]) -> Result<Vec<Mark>, Failure> {
    let mut missing = Vec::new();
    for part in marks.chunks(AT_ONCE) {
        missing.extend(client.call::<Vec<Mark>>("journal/missing", &part, LONG)?.result);
    }
    Ok(missing)
}
