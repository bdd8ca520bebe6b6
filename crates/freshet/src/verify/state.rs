//! `freshet verify --state`: the states of two nodes are compared, at one LSN.
//!
//! Each node opens a view, and what both show by then is compared at the larger of the two LSNs:
//! table by table, by the hashes of ranges of record ids, and within a range that differs by those
//! of smaller ones. What a node answers are hashes, ids and LSNs, no rows; each answer is short.

use std::{
    collections::BTreeMap,
    fmt,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use freshet_base::Lsn;
use freshet_engine::{MOST_RANGES, RangeHash, StateAnswer, StateAsk, TableState};

use serde_json::json;

use crate::{Failure, cli::VerifyOptions, client::Client, protocol::Ask, units};

/// How long a node may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Compares, and says what has come of it.
pub(crate) fn run(options: &VerifyOptions) -> Result<ExitCode, Failure> {
    let [a, b] = &options.state[..] else { return Err(Failure::new("name two nodes")) };
    let connect = |address: &String| options.shows.connect(address, CONNECT);
    let clients = [connect(a)?, connect(b)?];
    let begun = Instant::now();
    let Compared { at, tables, records, difference } =
        compare([&clients[0], &clients[1]], Duration::from_secs(options.patience))?;
    let seconds = begun.elapsed().as_secs_f64();
    match difference {
        None => {
            let value = json!({ "same": true, "records": records, "tables": tables, "at": at, "seconds": seconds });
            options.prints.show(&value, || {
                let (records, at) = (units::grouped(records), at.0);
                format!("the same: {records} records in {tables} tables, at LSN {at}, in {seconds:.1} s")
            });
            Ok(ExitCode::SUCCESS)
        }
        Some(difference) => {
            let mut text = format!("DIFFERENT at LSN {}: {difference}\n", at.0);
            let value = json!({
                "same": false, "at": at, "difference": difference.to_string(), "versions": difference.lsns,
            });
            for (client, lsn) in clients.iter().zip(difference.lsns) {
                let version = lsn.map_or_else(|| "no such record".to_owned(), |lsn| format!("version {}", lsn.0));
                text.push_str(&format!("  {}: {version}\n", client.address()));
            }
            options.prints.show(&value, || text);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// What a comparison has come to.
#[derive(Debug)]
pub struct Compared {
    /// The LSN at which both were read.
    pub at: Lsn,
    /// How many tables are the same.
    pub tables: usize,
    /// How many records were compared.
    pub records: u64,
    /// The first record that differs, if any does.
    pub difference: Option<Difference>,
}

/// A record that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The name of the record's table.
    pub table: String,
    /// The file id of that table.
    pub fid: u32,
    /// The record's id.
    pub rid: u64,
    /// Where the log has the version that each node shows; none where it shows none.
    pub lsns: [Option<Lsn>; 2],
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, fid, rid, lsns } = self;
        write!(f, "table {table:?} (id {fid}), record {rid}")?;
        match lsns {
            [Some(one), Some(other)] if one == other => f.write_str(": the same version with another row"),
            [Some(_), Some(_)] => f.write_str(": different versions"),
            [None, None] => f.write_str(": it is not there any more"),
            _ => f.write_str(": one node has it"),
        }
    }
}

/// Compares the states of two nodes within `patience`.
///
/// # Errors
/// When one of them does not answer, or does not show in time what the other does.
pub fn compare(clients: [&Client; 2], patience: Duration) -> Result<Compared, Failure> {
    let comparing = Comparing::open(clients, Instant::now() + patience)?;
    let at = comparing.at;
    let mut compared = Compared { at, tables: 0, records: 0, difference: None };
    let mut tables: BTreeMap<u32, TableState> = BTreeMap::new();
    for table in comparing.tables()?.into_iter().flatten() {
        let known = tables.entry(table.fid).or_insert_with(|| table.clone());
        known.rids = known.rids.max(table.rids);
    }
    // The catalog is the first: a table that is on one node only is a record there that differs.
    for (fid, table) in tables {
        match comparing.first(fid, 0, table.rids, &mut compared.records)? {
            None => compared.tables += 1,
            Some(rid) => {
                let lsns = comparing.record(fid, rid)?;
                compared.difference = Some(Difference { table: table.name, fid, rid, lsns });
                break;
            }
        }
    }
    Ok(compared)
}

/// A node that is compared.
struct Side<'c> {
    client: &'c Client,
    view: u64,
}

impl Drop for Side<'_> {
    fn drop(&mut self) {
        // A view that is not closed ends by itself.
        let _ = self.client.send(Ask::State(StateAsk::Close { view: self.view }), drop);
    }
}

/// A comparison under way.
struct Comparing<'c> {
    sides: [Side<'c>; 2],
    at: Lsn,
    deadline: Instant,
}

fn unexpected(answer: &StateAnswer) -> Failure {
    let mut answer = format!("{answer:?}");
    answer.truncate(answer.floor_char_boundary(200));
    Failure::new(format!("unexpected answer: {answer}"))
}

impl<'c> Comparing<'c> {
    fn open(clients: [&'c Client; 2], deadline: Instant) -> Result<Self, Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        let keep_ms = left.as_millis() as u64;
        let open = |client: &'c Client| match client.state(StateAsk::Open { keep_ms }, left)? {
            StateAnswer::Opened { view, at } => Ok((Side { client, view }, at)),
            other => Err(unexpected(&other)),
        };
        let ((one, of_one), (other, of_other)) = (open(clients[0])?, open(clients[1])?);
        let comparing = Self { sides: [one, other], at: of_one.max(of_other), deadline };
        comparing.both(|side, left| Ok(side.client.wait_visible(comparing.at, left)?))?;
        Ok(comparing)
    }

    /// Asks both at the same time.
    fn both<T: Send>(&self, ask: impl Fn(&Side<'_>, Duration) -> Result<T, Failure> + Sync) -> Result<[T; 2], Failure> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::new("the states could not be compared in time: give it more --patience"));
        }
        let [one, other] = &self.sides;
        let (one, other) = thread::scope(|scope| {
            let asked = scope.spawn(|| ask(one, left));
            let other = ask(other, left);
            (asked.join().expect("it does not panic"), other)
        });
        Ok([one?, other?])
    }

    /// The tables of both.
    fn tables(&self) -> Result<[Vec<TableState>; 2], Failure> {
        self.both(|side, left| {
            let mut tables: Vec<TableState> = Vec::new();
            loop {
                let from = tables.last().map_or(0, |last| last.fid + 1);
                let ask = StateAsk::Tables { view: side.view, at: self.at, from };
                match side.client.state(ask, left)? {
                    StateAnswer::Tables(more) if more.is_empty() => return Ok(tables),
                    // A node that goes back would be asked for ever.
                    StateAnswer::Tables(more) if more[0].fid >= from => tables.extend(more),
                    other => return Err(unexpected(&other)),
                }
            }
        })
    }

    /// The first record of `[from, to)` that differs. Counts those that do not.
    fn first(&self, fid: u32, from: u64, to: u64, records: &mut u64) -> Result<Option<u64>, Failure> {
        let step = (to - from).div_ceil(u64::from(MOST_RANGES)).max(1);
        let mut from = from;
        while from < to {
            let ranges = (to - from).div_ceil(step) as u32;
            let [one, other] = self.both(|side, left| {
                let ask = StateAsk::Hash { view: side.view, at: self.at, fid, from, step, ranges };
                match side.client.state(ask, left)? {
                    StateAnswer::Hashes(hashes) if !hashes.is_empty() => Ok(hashes),
                    other => Err(unexpected(&other)),
                }
            })?;
            let common = one.len().min(other.len());
            let same = |(one, other): (&RangeHash, &RangeHash)| one == other;
            let number = one.iter().zip(&other).take_while(|pair| same(*pair)).count();
            *records += one[..number].iter().map(|range| range.records).sum::<u64>();
            let here = from + number as u64 * step;
            if number < common {
                return match step {
                    1 => Ok(Some(here)),
                    _ => match self.first(fid, here, to.min(here + step), records)? {
                        None => Err(Failure::new(format!("table {fid} gives other hashes when they are asked again"))),
                        found => Ok(found),
                    },
                };
            }
            from = here;
        }
        Ok(None)
    }

    /// Where the log has what both show of a record.
    fn record(&self, fid: u32, rid: u64) -> Result<[Option<Lsn>; 2], Failure> {
        self.both(|side, left| {
            let ask = StateAsk::Record { view: side.view, at: self.at, fid, rid };
            match side.client.state(ask, left)? {
                StateAnswer::Record(lsn) => Ok(lsn),
                other => Err(unexpected(&other)),
            }
        })
    }
}
