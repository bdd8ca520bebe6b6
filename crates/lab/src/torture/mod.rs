//! `freshet-lab torture`: clusters of real processes under SQL load that are killed, stopped,
//! continued, restarted and promoted, and a history that is checked.
//!
//! | module | is |
//! |---|---|
//! | [`shape`] | what clusters there are |
//! | [`cluster`] | their processes, and the supervisor that starts them again |
//! | [`net`] | the network that they are in, if cables are cut |
//! | [`nemesis`] | what is done to them, and by [`cuts`] to their cables |
//! | [`fault`] | of these, which faults there are |
//! | [`mending`] | what an operator does where mirrors are |
//! | [`levels`] | what a commit promises, and how that changes |
//! | [`sparing`] | whom it spares |
//! | [`load`] | clients that write |
//! | [`reading`] | clients that read |
//! | [`history`] | what those did, heard and saw |
//! | [`checks`] | what a history must satisfy |
//! | [`sessions`] | of that, what one session sees |
//! | [`serial`] | of that, in which order SERIALIZABLE transactions can have been |

mod checks;
mod cluster;
mod cuts;
mod fault;
mod history;
mod levels;
mod load;
mod mending;
mod nemesis;
mod net;
mod reading;
mod serial;
mod sessions;
mod shape;
mod sparing;
mod states;
mod witness;

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use freshet_base::{Certifier, Safety};
#[cfg(debug_assertions)]
use freshet_engine::Break;
use freshet_engine::{Encoding, Failover, ReplayMode};
use freshet_workloads::random::Random;
use serde::Serialize;

use self::{
    cluster::Cluster,
    fault::Fault,
    history::{Book, History, Outcome, Route},
    load::Load,
    nemesis::{Done, Nemesis},
    shape::{Fabric, Shape},
};
use freshet::sql_client::Session;
use freshet::{Failure, interruption::Interruption, units::grouped};

/// How long nodes may take to be in sync after the load has ended, and to answer when all is quiet.
const QUIET: Duration = Duration::from_secs(60);

/// Options of `freshet-lab torture`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TortureOptions {
    /// The seed of the first cluster; each further cluster has the next seed. [default: from the
    /// clock, and printed]
    #[arg(long, value_name = "SEED", env = "FRESHET_SEED")]
    seed: Option<u64>,
    /// How many clusters to run, one after another: nine of them combine all fabrics with all
    /// safety levels. [default: 9, or as many as --seconds permits]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    clusters: Option<u32>,
    /// The rounds of each cluster: load with faults, a quiet time, and the checks.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Begin no round after this many seconds.
    #[arg(long, value_name = "S", value_parser = crate::bench::options::seconds)]
    seconds: Option<f64>,
    /// The number of nodes for which commits may wait, and which may lead.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=9))]
    nodes: u8,
    /// A witness votes beside them. Of use with two nodes.
    #[arg(long)]
    witness: bool,
    /// Cut cables, too, and let them flap and be slow: each node is in a network namespace of its
    /// own. Over TCP only; needs root, unshare, ip and tc.
    #[arg(long)]
    cut: bool,
    /// The number of clients that write.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=50))]
    clients: u8,
    /// How standbys get the log. [default: by seed]
    #[arg(long, value_name = "FABRIC", value_enum)]
    fabric: Option<Fabric>,
    /// The level at first: 2-safe (with least-in-sync 1), very-safe, majority or quorum:K. The
    /// fault `level` changes it. [default: by seed]
    #[arg(long, value_name = "LEVEL")]
    safety: Option<Safety>,
    /// When standbys replay. [default: by seed]
    #[arg(long, value_name = "POLICY")]
    replay: Option<ReplayMode>,
    /// In which form standbys ask for the log: bytes, inputs or auto. [default: each its own, by
    /// seed]
    #[arg(long, value_name = "FORM")]
    encoding: Option<Encoding>,
    /// How many nodes are mirrors, besides the first one, which is none. [default: by seed; two
    /// clusters of three have none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=8))]
    mirrors: Option<u8>,
    /// How many more nodes are asynchronous: 1 may be below a relay, of 2 the first one is.
    /// [default: by seed; one cluster of three has none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=2))]
    asynchronous: Option<u8>,
    /// Who makes a standby the primary: manual or automatic. With automatic, nothing is promoted in
    /// the place of a primary that is away. [default: by seed; with two nodes manual]
    #[arg(long, value_name = "WHO")]
    failover: Option<Failover>,
    /// What decides whether a serializable transaction may commit: validation or ssn. [default: by
    /// seed]
    #[arg(long, value_name = "CERTIFIER")]
    certifier: Option<Certifier>,
    /// Leave out this fault. Can be repeated.
    #[arg(long, value_name = "FAULT", value_enum, value_delimiter = ',')]
    without: Vec<Fault>,
    /// Use only this fault. Can be repeated.
    #[arg(long, value_name = "FAULT", value_enum, value_delimiter = ',')]
    only: Vec<Fault>,
    /// Give restarting nodes the primary by --join, as an operator would. Otherwise they restart as
    /// they were started.
    #[arg(long)]
    rejoin: bool,
    /// Do not change keys of rows in the load.
    #[arg(long)]
    no_moves: bool,
    /// How soon after the last fault something must commit, in seconds.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    recover_within: u64,
    /// Where to make a directory for the nodes; it is kept if something is wrong. [default: the
    /// directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print one JSON object at the end, and the events to standard error.
    #[arg(long)]
    json: bool,
}

/// What came of all.
#[derive(Debug, Default, Serialize)]
struct Summary {
    seed: u64,
    clusters: u32,
    rounds: u32,
    seconds: f64,
    /// Transactions that write.
    transactions: u64,
    acknowledged: u64,
    refused: u64,
    /// Of unknown outcome.
    open: u64,
    reads: u64,
    /// Transactions and reads of sessions that nodes hand on, and of those that they divide.
    handed_on: u64,
    divided: u64,
    #[serde(flatten)]
    done: Done,
    /// Nodes that ended by themselves.
    ended_alone: u64,
    /// How often clients heard which error.
    errors: BTreeMap<String, u64>,
    /// The longest time without an acknowledgement, under load.
    longest_unavailable_seconds: f64,
    /// The longest time from the last fault of a round to the beginning of the first transaction
    /// that was acknowledged then.
    longest_recovery_seconds: f64,
    violations: Vec<String>,
    /// How to run the cluster again in which they were found.
    rerun: Option<String>,
    /// Where its nodes' directories are.
    kept: Option<PathBuf>,
}

/// Runs clusters until something is wrong, or the time is over.
pub(crate) fn run(options: &TortureOptions) -> Result<ExitCode, Failure> {
    let kinds = Fault::drawn(options);
    if kinds.is_empty() {
        return Err(Failure::new("--only and --without leave no fault"));
    }
    let interruption = Interruption::listen()?;
    let began = Instant::now();
    let seed = options.seed.unwrap_or_else(|| freshet::units::now_micros() % 1_000_000);
    let end = options.seconds.map(|seconds| began + Duration::from_secs_f64(seconds));
    let clusters = options.clusters.unwrap_or(if end.is_some() { u32::MAX } else { 9 });
    let mut summary = Summary { seed, ..Summary::default() };
    for number in 0..clusters {
        if end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        let shape = Shape::draw(seed + u64::from(number), options)?;
        torment(&shape, options, &kinds, end, &interruption, &mut summary)?;
        if !summary.violations.is_empty() {
            break;
        }
    }
    summary.seconds = began.elapsed().as_secs_f64();
    if options.json {
        println!("{}", serde_json::to_string(&summary)?);
    } else {
        print(&summary);
    }
    Ok(if summary.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Summary {
    /// Adds what clients did and heard in a cluster's life.
    fn count(&mut self, book: &Book) {
        self.transactions += book.writes.len() as u64;
        self.acknowledged += book.acknowledged;
        for write in &book.writes {
            self.refused += u64::from(matches!(write.outcome, Outcome::Refused(_)));
            self.open += u64::from(matches!(write.outcome, Outcome::Open(_)));
        }
        self.reads += book.reads.len() as u64;
        let routes = || book.writes.iter().map(|write| write.route).chain(book.reads.iter().map(|read| read.route));
        self.handed_on += routes().filter(|route| *route == Route::Primary).count() as u64;
        self.divided += routes().filter(|route| *route == Route::Any).count() as u64;
        for (code, count) in &book.errors {
            *self.errors.entry(code.clone()).or_default() += count;
        }
    }
}

fn print(summary: &Summary) {
    println!(
        "{} cluster(s) from seed {}, {} round(s), {:.0} s: {} transactions that write, {} acknowledged, {} refused, {} of unknown \
         outcome; {} reads; {} of all in sessions that are handed on, {} in divided ones",
        summary.clusters,
        summary.seed,
        summary.rounds,
        summary.seconds,
        grouped(summary.transactions),
        grouped(summary.acknowledged),
        grouped(summary.refused),
        grouped(summary.open),
        grouped(summary.reads),
        grouped(summary.handed_on),
        grouped(summary.divided),
    );
    println!(
        "{} kills, {} stops, {} cuts, {} failovers and {} refused, {} roles handed over, {} levels changed, {} ends that nobody asked for; at most {:.1} s without an acknowledgement, \
         {:.1} s after the last fault",
        summary.done.kills,
        summary.done.stops,
        summary.done.cuts,
        summary.done.failovers,
        summary.done.refused,
        summary.done.switch_overs,
        summary.done.levels,
        summary.ended_alone,
        summary.longest_unavailable_seconds,
        summary.longest_recovery_seconds,
    );
    let mut alone = summary.done.automatic.clone();
    alone.sort_unstable_by(f64::total_cmp);
    if let [.., longest] = alone[..] {
        let median = alone[alone.len() / 2];
        println!("{} failovers by themselves: {median:.3} s in the middle, {longest:.3} s at most", alone.len());
    }
    let errors: Vec<String> = summary.errors.iter().map(|(code, count)| format!("{code} {count}")).collect();
    println!("errors that clients heard: {}", errors.join(", "));
    for violation in &summary.violations {
        println!("VIOLATED: {violation}");
    }
    if let (Some(kept), Some(rerun)) = (&summary.kept, &summary.rerun) {
        println!("directories, messages of nodes and the story are in {}", kept.display());
        println!("the same again: {rerun}");
    } else {
        println!("everything holds");
    }
}

/// One cluster's life.
fn torment(
    shape: &Shape,
    options: &TortureOptions,
    kinds: &[Fault],
    end: Option<Instant>,
    interruption: &Interruption,
    summary: &mut Summary,
) -> Result<(), Failure> {
    let base = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let directory = tempfile::Builder::new().prefix("freshet-torture-").tempdir_in(&base).map_err(|cause| {
        Failure::new(format!("cannot make a directory in {}: {cause}; choose another --dir", base.display()))
    })?;
    let history = History::new(Instant::now(), options.json, shape.automatic, shape.certifier == Certifier::Validation);
    history.log(&shape.rerun(options));
    history.log(&shape.drawn());
    let cluster = Cluster::prepare(directory.path(), shape, &history)?;
    cluster.start()?;
    define(&cluster, interruption)?;
    let mut nemesis = Nemesis::new(&cluster, &history, interruption);
    let mut random = Random::stream(shape.seed, 1);
    let result = thread::scope(|scope| {
        // Whatever becomes of this, the supervisor ends, or the scope would not.
        let _over = Over(&cluster);
        scope.spawn(|| cluster.supervise());
        let mut sequences = vec![0; usize::from(options.clients)];
        for round in 1..=options.rounds {
            if end.is_some_and(|end| Instant::now() >= end) || history.is_violated() {
                break;
            }
            nemesis.mirror_again(&mut Random::stream(shape.seed, 10_000 + u64::from(round)))?;
            let deals = nemesis::draw(&mut random, kinds);
            let texts: Vec<String> = deals.iter().map(ToString::to_string).collect();
            history.log(&format!("round {round}: {}", texts.join("; ")));
            let round = Round { shape, options, cluster: &cluster, history: &history, interruption };
            round.run(&mut nemesis, &deals, &mut sequences, summary)?;
            summary.rounds += 1;
        }
        if !history.is_violated() {
            let round = Round { shape, options, cluster: &cluster, history: &history, interruption };
            round.last_of_a_mirror(&mut nemesis)?;
        }
        #[cfg(debug_assertions)]
        if !history.is_violated() {
            Round { shape, options, cluster: &cluster, history: &history, interruption }.damage_is_found()?;
        }
        if !history.is_violated() {
            cluster.end()?;
        }
        Ok::<(), Failure>(())
    });
    // What went wrong on the way is told after what was found.
    if let Err(failure) = &result {
        interruption.check()?;
        history.violated(format!("it did not come to its end: {failure}"));
    }
    let violations = std::mem::take(&mut history.book().violations);
    let book = history.book();
    summary.clusters += 1;
    summary.count(&book);
    summary.done.add(&nemesis.done);
    summary.ended_alone += cluster.ended_alone.load(Ordering::Relaxed);
    let gap = book.longest_gap.as_secs_f64();
    summary.longest_unavailable_seconds = summary.longest_unavailable_seconds.max(gap);
    drop(book);
    if !violations.is_empty() {
        cluster.keep_all_messages();
        let mut story = history.story();
        for violation in &violations {
            story += &format!("\nVIOLATED: {violation}");
        }
        for node in 0..shape.nodes {
            story += &format!("\nnode {}: {}", cluster.names()[node], cluster.command(node));
        }
        drop(cluster);
        let kept = directory.keep();
        fs::write(kept.join("story"), story)?;
        summary.violations = violations;
        summary.rerun = Some(shape.rerun(options));
        summary.kept = Some(kept);
    }
    Ok(())
}

/// Ends the supervisor.
struct Over<'a>(&'a Cluster<'a>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Makes the tables, and waits until all nodes are in sync.
fn define(cluster: &Cluster, interruption: &Interruption) -> Result<(), Failure> {
    cluster.wait_until_whole(interruption)?.map_err(Failure::new)?;
    let deadline = Instant::now() + QUIET;
    let mut session = Session::open(&cluster.sql()[0], load::USER, QUIET)?;
    for statement in load::definitions() {
        session.run(&statement)?;
    }
    // Who compares has waited until all nodes show it. One that restarts shows what it has kept.
    if let Some(differs) = cluster.compare(0, QUIET)? {
        return Err(Failure::new(differs));
    }
    while !cluster.have_acknowledged(0) {
        if Instant::now() > deadline {
            return Err(Failure::new(format!("not all nodes acknowledge the tables: {}", cluster.statuses())));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Faults under load, peace, and the checks.
struct Round<'a> {
    shape: &'a Shape,
    options: &'a TortureOptions,
    cluster: &'a Cluster<'a>,
    history: &'a History,
    interruption: &'a Interruption,
}

impl Round<'_> {
    fn run(
        &self,
        nemesis: &mut Nemesis,
        deals: &[nemesis::Deal],
        sequences: &mut [i64],
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        let stop = AtomicBool::new(false);
        let sockets = self.cluster.sql();
        let load = Load {
            history: self.history,
            sockets: &sockets,
            names: self.cluster.names(),
            stop: &stop,
            clients: sequences.len() as u64,
            moves: !self.options.no_moves,
        };
        self.history.load_begins();
        let went = thread::scope(|scope| {
            let mut writers = Vec::new();
            for (number, last) in (0..).zip(sequences.iter()) {
                let random = Random::stream(self.shape.seed, 100 + number as u64 + 1_000 * *last as u64);
                let (load, last) = (&load, *last);
                writers.push(scope.spawn(move || load.write(number, last, random)));
            }
            for node in 0..self.shape.nodes {
                let random = Random::stream(self.shape.seed, 200 + node as u64);
                let load = &load;
                scope.spawn(move || load.read(node, random));
            }
            let went = deals.iter().try_for_each(|deal| nemesis.deal(deal)).and_then(|()| self.recover());
            stop.store(true, Ordering::Relaxed);
            for (writer, sequence) in writers.into_iter().zip(sequences.iter_mut()) {
                *sequence = writer.join().map_err(|_| Failure::new("a client panicked"))?;
            }
            went
        })?;
        let Some(recovered) = went else { return Ok(()) };
        summary.longest_recovery_seconds = summary.longest_recovery_seconds.max(recovered.as_secs_f64());
        self.judge()
    }

    /// Lets everybody be, and waits until something commits; how long that took, or nothing when it
    /// took too long.
    fn recover(&self) -> Result<Option<Duration>, Failure> {
        self.cluster.heal();
        let healed = self.history.now();
        let limit = Duration::from_secs(self.options.recover_within);
        loop {
            let begun = self.history.book().last_begun;
            if begun > healed {
                let took = self.history.now() - healed;
                self.history.log(&format!("something commits {:.1} s after the last fault", took.as_secs_f64()));
                return Ok(Some(took));
            }
            if self.history.now() > healed + limit {
                self.history.violated(format!(
                    "nothing commits within {} s after the last fault:\n{}",
                    limit.as_secs(),
                    self.cluster.statuses()
                ));
                return Ok(None);
            }
            self.interruption.check()?;
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// If a node is a mirror when all is quiet, it takes over, and what it shows is checked.
    fn last_of_a_mirror(&self, nemesis: &mut Nemesis) -> Result<(), Failure> {
        let Some(mirror) = (0..self.shape.nodes).find(|node| self.cluster.is_mirror(*node)) else { return Ok(()) };
        self.history.log("a mirror takes over at the end");
        nemesis.promote_of_whole(mirror);
        nemesis.mend()?;
        if self.history.is_violated() { Ok(()) } else { self.judge() }
    }

    /// A row, a replay word, an index entry or a record is damaged in a node's memory: its sweep
    /// finds that.
    #[cfg(debug_assertions)]
    fn damage_is_found(&self) -> Result<(), Failure> {
        let seed = self.shape.seed;
        let nodes: Vec<usize> = (0..self.shape.nodes).filter(|node| !self.cluster.is_mirror(*node)).collect();
        let node = nodes[seed as usize % nodes.len()];
        let kinds = [Break::Row, Break::ReplayWord, Break::Entry, Break::Record];
        let wanted = kinds[seed as usize / 3 % kinds.len()];
        // Where keys come before their rows, an entry that leads to nothing is no damage.
        let wanted = if self.shape.executes(node) && wanted == Break::Record { Break::Entry } else { wanted };
        // A primary may have no replay words, a standby no rows in memory yet, or all records
        // there.
        for what in [wanted, Break::Entry] {
            let Some(broken) = self.cluster.damage(node, what, seed)? else { continue };
            let found = self.cluster.sweep(node, QUIET)?;
            self.history.log(&format!("broken: {broken}, in memory of {}", self.cluster.names()[node]));
            if found == 0 {
                self.history.violated(format!("the sweep did not find what was broken on purpose: {broken}"));
                return Ok(());
            }
            return if self.cluster.primary() == Some(node) { Ok(()) } else { self.begins_again(node) };
        }
        Ok(())
    }

    /// A standby in doubt begins again with what its primary has; then all is as it was.
    #[cfg(debug_assertions)]
    fn begins_again(&self, node: usize) -> Result<(), Failure> {
        let deadline = Instant::now() + QUIET;
        while !self.cluster.has_begun_again(node) {
            self.interruption.check()?;
            if Instant::now() > deadline {
                let statuses = self.cluster.statuses();
                self.history.violated(format!(
                    "node {} is in doubt and has not begun again within {} s:\n{statuses}",
                    self.cluster.names()[node],
                    QUIET.as_secs()
                ));
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        self.history.log(&format!("node {} has begun again", self.cluster.names()[node]));
        self.judge()
    }

    /// Waits until all nodes are in sync, and checks what they show.
    fn judge(&self) -> Result<(), Failure> {
        let primary = match self.cluster.wait_until_whole(self.interruption)? {
            Ok(primary) => primary,
            Err(why) => {
                self.history.violated(format!("after the load {why}"));
                return Ok(());
            }
        };
        // Who compares has waited until all nodes show what the primary shows.
        if let Some(differs) = self.cluster.compare(primary, QUIET)? {
            self.history.violated(differs);
        }
        self.cluster.doubts(primary, QUIET)?.into_iter().for_each(|doubt| self.history.violated(doubt));
        let mut finals = Vec::new();
        for (node, socket) in self.cluster.sql().iter().enumerate() {
            // What a mirror holds was compared; it shows nothing.
            if !self.cluster.is_mirror(node) {
                finals.push((node, load::all(socket, QUIET)?));
            }
        }
        let mut found = checks::check(&self.history.book(), &finals, self.cluster.names());
        let (writes, reads) = {
            let mut book = self.history.book();
            book.violations.append(&mut found);
            (book.writes.len(), book.reads.len())
        };
        let (again, differ) = self.cluster.executed_again();
        differ.into_iter().for_each(|why| self.history.violated(why));
        let again = if again > 0 { format!(", {again} executed again") } else { String::new() };
        let divided = self.cluster.read_by_standbys();
        self.history.log(&format!(
            "checked: {writes} transactions that write, {reads} reads{again}; standbys have done {divided} \
             reads of divided sessions"
        ));
        Ok(())
    }
}
