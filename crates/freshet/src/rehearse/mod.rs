//! `freshet rehearse`: failures of a cluster that is there for that alone, made from a backup of
//! one that is not.
//!
//! Sessions insert rows, and a fault comes to the cluster at a random moment. A round's figure is
//! the time from the fault until a node that it did not come to acknowledges a row; of a fault that
//! lasts, the longest time without a row. Then all nodes come back and are in sync, and the next
//! round begins. In the end every acknowledged row must be on all nodes, none that was refused, and
//! all nodes must hold the same.

mod acks;
mod fault;
mod flap;
mod load;
mod plan;
mod report;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    slice,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use freshet_base::{Consent, Safety};
use freshet_engine::Failover;
use freshet_log::inspect::{Finding, Inspection};
use freshet_workloads::random::Random;

use self::{
    acks::{Acks, Found},
    fault::Fault,
    load::{Load, TABLE},
    plan::Rehearsal,
    report::Report,
};
use crate::{
    Failure,
    cli::Shows,
    interruption::Interruption,
    status::failover::counted,
    throwaway::{Nodes, PATIENCE, USER},
};

/// How long a node may take to read all that it holds.
const READ: Duration = Duration::from_secs(1800);
/// How long the load works before a fault: at least, and at most, in milliseconds.
const BEFORE: [u64; 2] = [500, 1_500];
/// How often it is looked whether all are in sync.
const LOOK: Duration = Duration::from_millis(20);

/// Options of `freshet rehearse`.
#[derive(Debug, Args)]
pub(crate) struct RehearseOptions {
    /// The control port of a node of a running cluster: host:port. The rehearsal has its level, its
    /// number of nodes, a witness if it has one, and a backup of it, which that node writes now.
    /// [default: an empty database]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Option<String>,
    #[command(flatten)]
    pub(crate) shows: Shows,
    /// A file with a token for a node, if the running cluster is on another machine or another
    /// user's: for the backup.
    #[arg(long, value_name = "FILE", requires = "address", conflicts_with = "backup")]
    pub(crate) token_file: Option<PathBuf>,
    /// Make the nodes from this backup or archive.
    #[arg(long, value_name = "DIR")]
    pub(crate) backup: Option<PathBuf>,
    /// And from the log in this archive.
    #[arg(long, value_name = "DIR", requires = "backup")]
    pub(crate) archive: Option<PathBuf>,
    /// The number of nodes with data, 2 to 9. [default: as the running cluster; 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=9))]
    pub(crate) nodes: Option<u8>,
    /// A witness votes beside them. [default: as the running cluster, unless --nodes is given]
    #[arg(long)]
    pub(crate) witness: bool,
    /// What a commit promises. [default: as the running cluster; majority]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) level: Option<Safety>,
    /// Who promotes: `automatic`, or `manual` for this command, as an operator would at once.
    /// [default: as the running cluster; automatic, where the nodes may]
    #[arg(long, value_name = "WHO")]
    pub(crate) failover: Option<Failover>,
    /// What comes to the cluster, in turn. Can be repeated. [default: all but flap, as far as this
    /// machine and these nodes permit]
    #[arg(long, value_name = "FAULT", value_enum, value_delimiter = ',')]
    pub(crate) fault: Vec<Fault>,
    /// How many faults come.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rounds: u32,
    /// How long nodes may take to be in sync after a fault, in seconds.
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) sync_within: u64,
    /// How long a cable flaps, in seconds.
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) flap: u64,
    /// The number of sessions that insert rows all the time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=50))]
    pub(crate) clients: u8,
    /// The role of the sessions, which may create a table.
    #[arg(long, value_name = "ROLE", default_value = USER)]
    pub(crate) user: String,
    /// Let the disks of the nodes' logs acknowledge 0.2 s before they have written, and nodes
    /// lose power where they are killed: shows that the rehearsal notices what is lost.
    #[arg(long)]
    pub(crate) lying_fsync: bool,
    /// The seed of the moments at which faults come.
    #[arg(long, value_name = "SEED", env = "FRESHET_SEED", default_value_t = 42)]
    pub(crate) seed: u64,
    /// Where to make a directory for the nodes, which is kept if something is wrong. [default: the
    /// directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Print one JSON object at the end, and the rounds to standard error.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The exit status of a rehearsal that could not be held: that says nothing of the cluster.
const NOT_HELD: u8 = 2;

/// Runs `freshet rehearse`.
pub(crate) fn run(options: &RehearseOptions) -> Result<ExitCode, Failure> {
    rehearse(options).map_err(|failure| failure.with_status(NOT_HELD))
}

fn rehearse(options: &RehearseOptions) -> Result<ExitCode, Failure> {
    let interruption = Interruption::listen()?;
    let rehearsal = Rehearsal::of(options)?;
    let nodes = rehearsal.prepare(options)?;
    let mut report = Report {
        seed: options.seed,
        nodes: rehearsal.nodes,
        witness: rehearsal.witness,
        level: rehearsal.level.to_string(),
        ..Report::default()
    };
    let mut stage = Stage { options, rehearsal, nodes, interruption: &interruption, begun: Instant::now() };
    // Until sessions write, nothing can be wrong but what was asked for.
    let load = stage.set_up(&mut report)?;
    let went = stage.run(&load, &mut report);
    interruption.check()?;
    report.violations.extend(went.err().map(|failure| failure.to_string()));
    report.violations.extend(stage.nodes.ended());
    if report.holds() {
        stage.end(&mut report)?;
    }
    if report.holds() {
        drop(stage);
    } else {
        report.kept = Some(stage.nodes.keep());
    }
    if options.json {
        print_line(&serde_json::to_string(&report)?);
    } else {
        report.print();
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints a line, if there is someone to read it: a rehearsal comes to its end without.
fn print_line(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// The nodes, and what is done with them.
struct Stage<'a> {
    options: &'a RehearseOptions,
    rehearsal: Rehearsal,
    nodes: Nodes,
    interruption: &'a Interruption,
    begun: Instant,
}

/// Ends sessions with itself.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        // Relaxed: the threads are joined next.
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Stage<'_> {
    fn print(&self, what: &str) {
        let line = format!("[{:6.1} s] {what}", self.begun.elapsed().as_secs_f64());
        let _ = if self.options.json { writeln!(io::stderr(), "{line}") } else { writeln!(io::stdout(), "{line}") };
    }

    /// Starts the nodes, and makes the table.
    fn set_up(&mut self, report: &mut Report) -> Result<Load, Failure> {
        self.start()?;
        let sockets = (0..self.nodes.size()).map(|node| Ok(self.nodes.sql_socket(node)?.to_owned()));
        let load = Load::new(sockets.collect::<Result<_, Failure>>()?, &self.options.user);
        let first = self.wait_until_whole()?;
        let status = self.nodes.status(first).unwrap_or_default();
        self.rehearsal.settle(&status)?;
        report.failover = if self.rehearsal.automatic { "automatic" } else { "manual" }.to_owned();
        let table = format!("CREATE TABLE {TABLE} (id bigint PRIMARY KEY)");
        let made = load.open(first).and_then(|mut session| session.run(&table));
        made.map_err(|cause| {
            Failure::new(format!("the role {} cannot make a table to write to: {cause}", self.options.user))
        })?;
        Ok(load)
    }

    /// All rounds, and what is there at their end.
    fn run(&mut self, load: &Load, report: &mut Report) -> Result<(), Failure> {
        let (sender, receiver) = mpsc::channel();
        let mut acks = Acks::new(&sender, &receiver);
        let mut found: BTreeMap<Fault, Vec<Found>> = BTreeMap::new();
        let all: Vec<usize> = (0..self.nodes.size()).collect();
        let went = thread::scope(|scope| {
            let over = Over(&load.over);
            for client in 0..u64::from(self.options.clients) {
                let (all, sender) = (&all, sender.clone());
                let random = Random::stream(self.options.seed, 1 + client);
                scope.spawn(move || load.insert(all, &load.over, &sender, random));
            }
            let went = self.rounds(load, &mut acks, &mut found);
            drop(over);
            // A session that waits for an answer gets none from a node that stands still.
            went.and(self.nodes.heal())
        });
        acks.take();
        report.found(&found);
        report.acknowledged = acks.rows.len();
        report.errors.clone_from(&load.failures().errors);
        let judged = self.judge(load, &acks.rows, report);
        went.and(judged)
    }

    /// Starts all nodes, the first one before those who join it.
    fn start(&mut self) -> Result<(), Failure> {
        let all = self.nodes.size() + usize::from(self.rehearsal.witness);
        for node in 0..all {
            self.interruption.check()?;
            self.nodes.start(node, (node > 0).then_some(0))?;
        }
        let with = if self.rehearsal.witness { " and a witness" } else { "" };
        self.print(&format!("{} nodes{with} run, at {}", self.rehearsal.nodes, self.rehearsal.level));
        Ok(())
    }

    fn rounds(
        &mut self,
        load: &Load,
        acks: &mut Acks<'_>,
        found: &mut BTreeMap<Fault, Vec<Found>>,
    ) -> Result<(), Failure> {
        let mut random = Random::stream(self.options.seed, 0);
        for (number, fault) in (1..=self.options.rounds).zip(self.rehearsal.faults.clone().into_iter().cycle()) {
            let primary = self.wait_until_whole()?;
            let of = self.round(fault, primary, load, acks, &mut random)?;
            self.print(&format!("round {number}, {} of {}: {of}", fault.name(), self.nodes.name(primary)));
            found.entry(fault).or_default().push(of);
            if fault == Fault::DeadDisk {
                self.nodes.kill(primary);
            }
            self.nodes.heal()?;
            self.nodes.start_dead()?;
        }
        Ok(())
    }

    /// What came of a fault.
    fn round(
        &mut self,
        fault: Fault,
        primary: usize,
        load: &Load,
        acks: &mut Acks<'_>,
        random: &mut Random,
    ) -> Result<Found, Failure> {
        let before = Duration::from_millis(random.within(BEFORE[0], BEFORE[1]));
        self.interruption.sleep_until(Instant::now() + before)?;
        acks.take();
        let others: Vec<usize> = (0..self.nodes.size()).filter(|node| *node != primary).collect();
        let to = others[random.below(others.len() as u64) as usize];
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            // Others may wait for an answer of the primary, which never comes.
            for node in &others {
                let (sender, stop, random) = (acks.sender(), &stop, Random::stream(random.bits(), 0));
                scope.spawn(move || load.insert(slice::from_ref(node), stop, &sender, random));
            }
            let _over = Over(&stop);
            let begun = Instant::now();
            match fault {
                Fault::Flap => self.flap(primary, acks, random),
                Fault::CutPeer => self.cut_peer(primary, acks, random),
                _ => {
                    let restarted = self.strike(fault, primary, &others, to)?;
                    Ok(Found::after(begun, acks.first(begun, primary, restarted)))
                }
            }
        })
    }

    /// The fault comes. Says since when sessions of the primary count that begin then: where it was
    /// started again, since nothing else could serve.
    fn strike(
        &mut self,
        fault: Fault,
        primary: usize,
        others: &[usize],
        to: usize,
    ) -> Result<Option<Instant>, Failure> {
        if let Some(way) = fault.cut() {
            self.nodes.cut(primary, None, way)?;
            return Ok(None);
        }
        if let Some(how) = fault.disk() {
            self.nodes.break_disk(primary, how)?;
            return Ok(None);
        }
        match fault {
            Fault::Stop => self.nodes.pause(primary),
            Fault::SwitchOver => {
                let to = self.nodes.listen(to)?;
                self.nodes.connect(primary)?.switch_over(Some(to), PATIENCE)?;
            }
            Fault::Power => {
                self.nodes.kill_all();
                let dead = Instant::now();
                self.nodes.start_dead()?;
                return Ok(Some(dead));
            }
            _ => {
                self.nodes.kill(primary);
                let dead = Instant::now();
                // Where commits wait for every node, the dead one is started again at once.
                let leads = self.rehearsal.automatic || self.promote(others);
                if !leads || self.rehearsal.needs_all() {
                    self.nodes.start_dead()?;
                    return Ok(Some(dead));
                }
            }
        }
        Ok(None)
    }

    /// Promotes one of these, as an operator would who knows that the primary is dead; says whether
    /// one leads.
    fn promote(&self, nodes: &[usize]) -> bool {
        let consent = match nodes.len() {
            1 if !self.rehearsal.witness => Consent::PrimaryIsGone,
            _ => Consent::Nothing,
        };
        nodes.iter().any(|node| {
            let promoted = self.nodes.connect(*node).and_then(|client| Ok(client.promote(consent, PATIENCE)?));
            promoted.inspect_err(|cause| self.print(&format!("{}: {cause}", self.nodes.name(*node)))).is_ok()
        })
    }

    /// Blocks until one node leads and all others are in sync with it; says which one.
    fn wait_until_whole(&mut self) -> Result<usize, Failure> {
        let deadline = Instant::now() + Duration::from_secs(self.options.sync_within);
        loop {
            self.interruption.check()?;
            if let Some(ended) = self.nodes.ended().into_iter().next() {
                return Err(Failure::new(ended));
            }
            match self.whole() {
                Ok(primary) => return Ok(primary),
                Err(why) if Instant::now() > deadline => {
                    return Err(Failure::new(format!("the nodes do not come into sync: {why}")));
                }
                Err(_) => self.interruption.sleep_until(Instant::now() + LOOK)?,
            }
        }
    }

    /// The primary, or why not all is as it should be.
    fn whole(&self) -> Result<usize, String> {
        let statuses = (0..self.nodes.size()).filter_map(|node| Some((node, self.nodes.status(node)?)));
        let primaries = statuses.filter(|(_, it)| it["role"] == "primary" && it["standing"]["standing"] != "fenced");
        let newest = primaries.max_by_key(|(_, status)| status["term"].as_u64());
        let (primary, status) = newest.ok_or("there is no primary")?;
        let count = counted(&status);
        // Under 1-safe commits wait for none.
        if count + 1 < self.nodes.size() {
            return Err(format!("{} leads with {count} standby(s) in sync", self.nodes.name(primary)));
        }
        let votes = status["witness"]["connected"] == true && status["witness"]["votes"] == true;
        if self.rehearsal.witness && !votes {
            return Err("the witness does not vote".to_owned());
        }
        Ok(primary)
    }

    /// Ends all nodes in order, and looks whether their logs are whole.
    fn end(&mut self, report: &mut Report) -> Result<(), Failure> {
        for node in (0..self.nodes.size()).rev() {
            let name = self.nodes.name(node);
            if !self.nodes.stop(node) {
                report.violations.push(format!("node {name} did not end in order"));
            }
            for finding in Inspection::open(&self.nodes.directory(node))? {
                match finding? {
                    Finding::Bad { at, why, .. } => {
                        report.violations.push(format!("the log of node {name} is damaged at {at}: {why}"));
                    }
                    Finding::Gap { from, to, .. } => {
                        report.violations.push(format!("the log of node {name} has a gap from {from} to {to}"));
                    }
                    Finding::Block { .. } | Finding::End { .. } => {}
                }
            }
        }
        Ok(())
    }

    /// Compares what is there with what sessions were told.
    fn judge(&mut self, load: &Load, acknowledged: &BTreeSet<i64>, report: &mut Report) -> Result<(), Failure> {
        self.nodes.heal()?;
        self.nodes.start_dead()?;
        let whole = self.wait_until_whole();
        let primary =
            whole.as_ref().ok().copied().or_else(|| (0..self.nodes.size()).find(|it| self.nodes.is_at_work(*it)));
        let end =
            whole.as_ref().ok().map(|leads| self.nodes.connect(*leads)?.watermarks(PATIENCE).map_err(Failure::from));
        let end = end.transpose()?.map(|watermarks| watermarks.visible);
        let mut lost = BTreeSet::new();
        let failures = load.failures();
        let mut hashes = Vec::new();
        for node in 0..self.nodes.size() {
            if let Some(end) = end {
                let client = self.nodes.connect(node)?;
                let _ = client.wait_visible(end, PATIENCE)?;
                hashes.push(client.hash(Some(end), READ)?);
            }
            let mut session = load.open(node)?;
            session.wait_for(READ)?;
            let rows = session.run(&format!("SELECT id FROM {TABLE}")).map(|reply| reply.rows);
            let name = self.nodes.name(node);
            let rows = rows.unwrap_or_else(|cause| {
                report.violations.push(format!("node {name} does not show its rows: {cause}"));
                Vec::new()
            });
            let there: BTreeSet<i64> = rows.iter().filter_map(|row| row.first()?.parse().ok()).collect();
            lost.extend(acknowledged.difference(&there).copied());
            let refused = failures.refused.iter().filter(|row| there.contains(row)).count();
            if refused > 0 {
                report.violations.push(format!("node {name} has {refused} row(s) that sessions heard were refused"));
            }
            if primary == Some(node) {
                (report.open, report.open_found) =
                    (failures.open.len(), failures.open.iter().filter(|row| there.contains(row)).count());
            }
        }
        report.lost = Some(lost.len());
        let same = hashes.iter().all(|(_, hash, records)| (*hash, *records) == (hashes[0].1, hashes[0].2));
        if !same {
            report.violations.push(format!("the nodes hold different states: {hashes:?}"));
        }
        whole.map(|_| ())
    }
}
