//! The proof: nothing that was acknowledged is missing, on any node.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use freshet_base::Lsn;

use super::{
    Teller,
    bank::Mark,
    cluster::{Cluster, PATIENCE},
    load::Outcomes,
};
use crate::{Failure, client::Client, interruption::Interruption, sql_client::Session, units::grouped};

/// What all transfers together have put into each of them is the same.
const SUMS: [&str; 4] = [
    "SELECT sum(balance) FROM accounts",
    "SELECT sum(balance) FROM tellers",
    "SELECT sum(balance) FROM branches",
    "SELECT sum(delta) FROM history",
];
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
    let marks: HashSet<Mark> = result.acknowledged.iter().chain(&result.found).copied().collect();
    let end = cluster.connect(cluster.primary())?.watermarks(PATIENCE)?.visible;
    let mut hashes = Vec::new();
    for number in 0..cluster.size() {
        interruption.check()?;
        let name = cluster.name(number);
        let client = cluster.connect(number)?;
        wait_visible(&client, end)?;
        let mut session = cluster.session(number)?;
        session.wait_for(LONG)?;
        let history = history(&mut session)?;
        let (missing, others) = (marks.difference(&history).count(), history.difference(&marks).count());
        let first = marks.difference(&history).next().map(|mark| format!(", one is {mark:?}")).unwrap_or_default();
        let of = grouped(marks.len() as u64);
        verdict(
            missing == 0 && others == 0,
            format!("node {name}: {missing} of {of} transfers are missing{first}, and {others} others are there"),
        );
        let sums = SUMS.iter().map(|sum| session.run(sum).map(|reply| reply.rows)).collect::<Result<Vec<_>, _>>()?;
        let equal = sums.iter().all(|sum| *sum == sums[0]);
        let what = match equal {
            true => format!("{} in accounts, with tellers, in branches and in the history", sums[0].concat().concat()),
            false => format!("the sums differ: {sums:?}"),
        };
        verdict(equal, format!("node {name}: {what}"));
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

/// The marks of all transfers that a node has.
fn history(session: &mut Session) -> Result<HashSet<Mark>, Failure> {
    let rows = session.run("SELECT client, number FROM history")?.rows;
    let mark = |row: Vec<String>| {
        let [client, number] = &row[..] else { return None };
        Some(Mark { client: client.parse().ok()?, number: number.parse().ok()? })
    };
    rows.into_iter().map(mark).collect::<Option<_>>().ok_or_else(|| Failure::new("a line of the history is no mark"))
}
