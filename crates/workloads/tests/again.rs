//! A standby that gets inputs, executes transactions again, and has the log of its primary.

mod common;

use std::{
    ops::Range,
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use common::{NOW, assert_consistent, read, seed};
use freshet_engine::{
    AgainStatus, Apply, CommandExecutor, Consent, Domain, Encoding, Isolation, Lsn, Node, NodeConfig, OnMismatch,
    ProcedureError, ProofSettings, Safety, StateHash, Ticket, Transaction, Worker, executors,
    node::{LinkStatus, RoleStatus},
    scheme::inputs::{Mismatch, read_mismatches},
};
use freshet_workloads::{
    TableSet,
    command::Commands,
    journal::Mark,
    random::Random,
    tpcc::{
        command::{ReadSet, run_with_reads},
        input::{Mix, Request, Terminal},
        load::load,
        outcome::Outcome,
        population::{Population, Scale},
        run,
        tables::Tables,
        text::Constants,
    },
};
use tempfile::TempDir;

const SCALE: Scale = Scale { warehouses: 3, items: 400, customers: 60, undelivered: 18 };

fn config(directory: &Path) -> NodeConfig {
    NodeConfig {
        directory: directory.to_owned(),
        domain: Domain::File,
        listen: ([127, 0, 0, 1], 0).into(),
        safety: Safety::TwoSafe,
        state_proof: ProofSettings { interval_ms: 10, ..ProofSettings::default() }, // All compare.
        new_cluster: true,
        failover: freshet_engine::Failover::Manual,
        ..NodeConfig::default()
    }
}

/// Blocks until the standby has found its state equal to its primary's at a mark behind `end`.
fn proven(node: &Node, end: Lsn) {
    let until = Instant::now() + Duration::from_secs(120);
    while node.state_proof().equal_at < Some(end) {
        assert_eq!(node.state_proof().differs, None);
        assert!(Instant::now() < until, "{:?} behind {end}", node.state_proof());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn standby(directory: &Path, primary: &str, encoding: Encoding) -> Arc<Node> {
    standby_with(directory, primary, NodeConfig { encoding, ..config(directory) })
}

fn standby_with(directory: &Path, primary: &str, config: NodeConfig) -> Arc<Node> {
    let config = NodeConfig { directory: directory.to_owned(), join: Some(primary.to_owned()), ..config };
    Node::start_executing(config, Some(executors(Commands::default)), |_| {}).unwrap()
}

fn hash(node: &Node, at: Option<Lsn>) -> StateHash {
    assert_eq!(node.state_proof().differs, None);
    if let Some(at) = at {
        node.wait_visible(at, Some(Instant::now() + Duration::from_secs(120))).unwrap();
    }
    read(node.database(), |txn| Ok(StateHash::of(txn)?))
}

fn drive(node: &Node, population: &Population, isolation: Isolation, sequences: Range<u64>) -> Ticket {
    let by_run = |worker: &Worker, tables: &Tables, request: &Request| run(worker, tables, isolation, request);
    drive_by(node, population, sequences, &|terminal| terminal, &by_run)
}

/// How a request is run.
type Run<'r> = &'r (dyn Fn(&Worker, &Tables, &Request) -> Result<(Outcome, Ticket), ProcedureError> + Sync);

/// Three terminals, as `shape` makes them, have `sequences` of requests run by `run`.
fn drive_by(
    node: &Node,
    population: &Population,
    sequences: Range<u64>,
    shape: &(dyn Fn(Terminal) -> Terminal + Sync),
    run: Run<'_>,
) -> Ticket {
    let tables = Tables::open(node.database()).unwrap();
    let constants = Constants::of_run(population.constants(), &mut Random::new(population.seed));
    let drive = |number: u64| {
        let terminal = Terminal::new(population, constants, population.seed, number, (number % 3) as u16 + 1);
        let mut terminal = shape(terminal);
        let worker = node.database().worker().unwrap();
        let mut last = None;
        for sequence in sequences.clone() {
            let mark = Some(Mark { client: number, sequence });
            let request = Request { mark, input: terminal.next(NOW + sequence) };
            last = Some(loop {
                match run(&worker, &tables, &request) {
                    Ok((_, ticket)) => break ticket,
                    // On a busy machine the others may be stopped for longer than the engine tries.
                    Err(ProcedureError::Exhausted { .. }) => std::thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            });
        }
        last.unwrap()
    };
    let drive = &drive;
    let threads: Vec<Ticket> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|number| scope.spawn(move || drive(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    threads.into_iter().max_by_key(|ticket| ticket.until).unwrap()
}

fn sent(primary: &Node) -> u64 {
    let RoleStatus::Primary { shipping, .. } = primary.status().role else { panic!("it is the primary") };
    shipping.standbys.iter().map(|standby| standby.sent_bytes).sum()
}

/// A primary and its standby, with a population.
fn pair(directories: &[TempDir; 2], encoding: Encoding) -> (Arc<Node>, Arc<Node>, Population) {
    pair_with(directories, NodeConfig { encoding, ..config(directories[1].path()) })
}

fn pair_with(directories: &[TempDir; 2], follower: NodeConfig) -> (Arc<Node>, Arc<Node>, Population) {
    let primary = Node::start(config(directories[0].path()), |_| {}).unwrap();
    let follower = standby_with(directories[1].path(), primary.address(), follower);
    let tables = Tables::create(primary.database()).unwrap();
    let population = Population { scale: SCALE, seed: seed(), loaded_at: NOW };
    let loaded = load(primary.database(), &tables, &population, 2, &|_| {}).unwrap().unwrap();
    primary.database().wait(loaded).unwrap();
    (primary, follower, population)
}

/// What the standby has executed again.
fn again(follower: &Node) -> AgainStatus {
    let RoleStatus::Standby { again, .. } = follower.status().role else { panic!("it is a standby") };
    again.expect("it executes transactions again")
}

fn directories() -> [TempDir; 2] {
    [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()]
}

#[track_caller]
fn assert_same(primary: &Node, follower: &Node) -> StateHash {
    let theirs = hash(primary, None);
    let ours = hash(follower, Some(theirs.at));
    assert_eq!((ours.hash, ours.records), (theirs.hash, theirs.records));
    theirs
}

#[test]
fn a_standby_that_executes_transactions_again_has_the_log_of_its_primary() {
    let directories = directories();
    let (primary, follower, population) = pair(&directories, Encoding::Inputs);
    for (isolation, sequences) in [(Isolation::Snapshot, 0..400), (Isolation::Serializable, 400..800)] {
        let before = (hash(&primary, None).at, sent(&primary));
        let last = drive(&primary, &population, isolation, sequences);
        primary.database().wait(last).unwrap();
        proven(&follower, last.until);
        let theirs = assert_same(&primary, &follower);
        let (logged, sent) = (theirs.at.since(before.0), sent(&primary) - before.1);
        println!("{isolation}: {sent} bytes sent for {logged} of log");
        assert!(sent * 10 < logged, "{sent} bytes for {logged}");
    }
    let again = again(&follower);
    assert!(again.executed > 2000 && again.mismatches == 0, "{again:?}");
    assert_consistent(follower.database(), &Tables::open(follower.database()).unwrap());
    follower.stop().unwrap();
    primary.stop().unwrap();
}

/// Calvin's locks, a baseline: with the read sets of transactions they give the same, and what
/// transactions read is there, but for what index entries of gone records lead to.
#[test]
fn locks_in_the_order_of_the_log_give_the_log_of_the_primary() {
    let isolation = Isolation::Serializable;
    for (mix, reads, spread) in [(Mix::Standard, ReadSet::All, false), (Mix::Plus, ReadSet::Written, true)] {
        let directories = directories();
        let calvin = NodeConfig { apply: Apply::Calvin, encoding: Encoding::Inputs, ..config(directories[1].path()) };
        let (primary, follower, population) = pair_with(&directories, calvin);
        let shape = |terminal: Terminal| {
            let terminal = terminal.with_mix(mix);
            if spread { terminal.spread() } else { terminal }
        };
        let run = |worker: &Worker, tables: &Tables, request: &Request| {
            run_with_reads(worker, tables, isolation, request, reads)
        };
        let last = drive_by(&primary, &population, 0..400, &shape, &run);
        primary.database().wait(last).unwrap();
        assert_same(&primary, &follower);
        let again = again(&follower);
        println!("{mix:?}: {again:?}");
        // Without locks a third of them wait. With them, up to 6 % do, where a thread is stopped
        // while it has some.
        assert!(again.executed > 1000 && again.waits < again.executed / 8, "{again:?}");
        // All threads but one may wait at once; the last one fails.
        assert!(again.mismatches < again.executed / 100, "{again:?}");
        assert_consistent(follower.database(), &Tables::open(follower.database()).unwrap());
        follower.stop().unwrap();
        primary.stop().unwrap();
    }
}

/// What a transaction reads that its read set does not name, is waited for, or fetched.
#[test]
fn without_read_sets_locks_are_not_enough_and_the_state_is_right() {
    let directories = directories();
    let calvin = NodeConfig { apply: Apply::Calvin, encoding: Encoding::Inputs, ..config(directories[1].path()) };
    let (primary, follower, population) = pair_with(&directories, calvin);
    let last = drive(&primary, &population, Isolation::Snapshot, 0..200);
    primary.database().wait(last).unwrap();
    assert_same(&primary, &follower);
    println!("{:?}", again(&follower));
    follower.stop().unwrap();
    primary.stop().unwrap();
}

/// Executes as it should, but for one transaction of each `each`.
struct Liar {
    honest: Commands,
    count: AtomicU64,
    each: u64,
}

impl CommandExecutor for Liar {
    fn execute(&self, txn: &Transaction<'_>, procedure: u32, inputs: &[u8]) -> Result<(), ProcedureError> {
        if self.count.fetch_add(1, SeqCst) % self.each == self.each - 1 {
            // It writes nothing.
            return Ok(());
        }
        self.honest.execute(txn, procedure, inputs)
    }
}

#[test]
fn what_does_not_come_out_the_same_is_fetched() {
    let directories = directories();
    let primary = Node::start(config(directories[0].path()), |_| {}).unwrap();
    let liar = executors(|| Liar { honest: Commands::default(), count: AtomicU64::new(0), each: 10 });
    let join = Some(primary.address().to_owned());
    let follower = NodeConfig { join, encoding: Encoding::Inputs, ..config(directories[1].path()) };
    let follower = Node::start_executing(follower, Some(liar), |_| {}).unwrap();
    let tables = Tables::create(primary.database()).unwrap();
    let population = Population { scale: SCALE, seed: seed(), loaded_at: NOW };
    let _ = load(primary.database(), &tables, &population, 2, &|_| {}).unwrap().unwrap();
    let last = drive(&primary, &population, Isolation::Snapshot, 0..100);
    primary.database().wait(last).unwrap();
    assert_same(&primary, &follower);
    let again = again(&follower);
    assert!(again.mismatches >= 20 && again.executed > 10 * again.mismatches / 2, "{again:?}");
    assert!(directories[1].path().join("mismatches").exists());
    follower.stop().unwrap();
    primary.stop().unwrap();
}

#[test]
fn a_standby_stops_at_a_mismatch_if_it_is_configured_to() {
    let directories = directories();
    let primary = Node::start(config(directories[0].path()), |_| {}).unwrap();
    let join = Some(primary.address().to_owned());
    let (encoding, on_mismatch) = (Encoding::Inputs, OnMismatch::Stop);
    let follower = NodeConfig { join, encoding, on_mismatch, asynchronous: true, ..config(directories[1].path()) };
    let start = |config: &NodeConfig| {
        let liar = executors(|| Liar { honest: Commands::default(), count: AtomicU64::new(0), each: 50 });
        Node::start_executing(config.clone(), Some(liar), |_| {}).unwrap()
    };
    let standby = start(&follower);
    let tables = Tables::create(primary.database()).unwrap();
    let population = Population { scale: SCALE, seed: seed(), loaded_at: NOW };
    let _ = load(primary.database(), &tables, &population, 2, &|_| {}).unwrap().unwrap();
    let last = drive(&primary, &population, Isolation::Snapshot, 0..100);
    primary.database().wait(last).unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    let why = loop {
        let RoleStatus::Standby { own, .. } = standby.status().role else { panic!("it is a standby") };
        match own.link {
            LinkStatus::Failed { why } => break why,
            _ => assert!(Instant::now() < deadline, "it continues"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    println!("{why}");
    let file = directories[1].path().join("mismatches");
    let (found, _) = read_mismatches(&file).unwrap();
    let Mismatch { lsn, command, original, .. } = &found[0];
    // Its command may have data in it, which is for the file alone.
    assert!(!why.contains(command.as_str()), "{why}");
    for part in [&format!("at {lsn} "), &format!("inspect mismatches {}", file.display())] {
        assert!(why.contains(part.as_str()), "{part}: {why}");
    }
    assert!(command.starts_with("procedure ") && !original.is_empty(), "{command}");
    // Nothing of it, or behind it, is shown.
    assert!(hash(&standby, None).at <= *lsn);
    standby.stop().unwrap();
    drop(standby);
    let standby = start(&NodeConfig { on_mismatch: OnMismatch::Fetch, ..follower });
    // Of what it had not executed before, fewer may be left than it takes for a lie.
    let last = drive(&primary, &population, Isolation::Snapshot, 100..200);
    primary.database().wait(last).unwrap();
    assert_same(&primary, &standby);
    assert!(again(&standby).mismatches > 0);
    standby.stop().unwrap();
    primary.stop().unwrap();
}

#[test]
fn a_standby_changes_what_it_asks_for_while_it_runs() {
    let directories = directories();
    let (primary, follower, population) = pair(&directories, Encoding::Inputs);
    for (round, encoding) in [Encoding::Bytes, Encoding::Inputs, Encoding::Bytes].into_iter().enumerate() {
        follower.set_encoding(encoding);
        let inputs = encoding == Encoding::Inputs;
        while primary.database().core().records_inputs() != inputs {
            std::thread::yield_now();
        }
        let before = (hash(&primary, None).at, sent(&primary), again(&follower).executed);
        let first = round as u64 * 100;
        let last = drive(&primary, &population, Isolation::Snapshot, first..first + 100);
        primary.database().wait(last).unwrap();
        let theirs = assert_same(&primary, &follower);
        let (logged, sent) = (theirs.at.since(before.0), sent(&primary) - before.1);
        let executed = again(&follower).executed - before.2;
        println!("{encoding}: {sent} bytes sent for {logged} of log, {executed} executed");
        assert_eq!((sent * 5 < logged, executed > 0), (inputs, inputs));
    }
    // Often, in the midst of it.
    std::thread::scope(|scope| {
        let driven = scope.spawn(|| drive(&primary, &population, Isolation::Snapshot, 300..600));
        for turn in 0.. {
            if driven.is_finished() {
                break;
            }
            follower.set_encoding([Encoding::Inputs, Encoding::Bytes][turn % 2]);
            std::thread::sleep(Duration::from_millis(turn as u64 % 7 * 5));
        }
        primary.database().wait(driven.join().unwrap()).unwrap();
    });
    assert_same(&primary, &follower);
    assert_eq!(again(&follower).mismatches, 0);
    assert_consistent(follower.database(), &Tables::open(follower.database()).unwrap());
    let RoleStatus::Primary { shipping, .. } = primary.status().role else { panic!("it is the primary") };
    assert_eq!(shipping.standbys[0].last_loss, None, "it has joined once");
    follower.stop().unwrap();
    primary.stop().unwrap();
}

#[test]
fn a_standby_that_chooses_reports_its_choice() {
    let directories = directories();
    let (primary, follower, population) = pair(&directories, Encoding::Auto);
    let chosen = || again(&follower).chosen.expect("it chooses");
    assert!(!chosen().why.is_empty());
    let last = drive(&primary, &population, Isolation::Snapshot, 0..50);
    primary.database().wait(last).unwrap();
    assert_same(&primary, &follower);
    // It looks once a second.
    let deadline = Instant::now() + Duration::from_secs(60);
    while chosen().lasts == Duration::ZERO {
        assert!(Instant::now() < deadline, "it does not look");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(chosen().figures.idle.is_some(), "{:?}", chosen());
    follower.set_encoding(Encoding::Inputs);
    assert_eq!(again(&follower).chosen, None);
    follower.set_encoding(Encoding::Auto);
    let last = drive(&primary, &population, Isolation::Snapshot, 50..100);
    primary.database().wait(last).unwrap();
    assert_same(&primary, &follower);
    assert_eq!(chosen().why, "it was asked for before");
    follower.stop().unwrap();
    primary.stop().unwrap();
}

/// Executes nothing while it is closed.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set_closed(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }
}

/// Opens it at the end.
struct Open<'g>(&'g Gate);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.set_closed(false);
    }
}

/// One that goes through it.
struct Gated(Arc<Gate>, Commands);

impl CommandExecutor for Gated {
    fn execute(&self, txn: &Transaction<'_>, procedure: u32, inputs: &[u8]) -> Result<(), ProcedureError> {
        drop(self.0.opened.wait_while(self.0.closed.lock().unwrap(), |closed| *closed).unwrap());
        self.1.execute(txn, procedure, inputs)
    }
}

#[test]
fn what_a_failover_has_yet_to_execute_is_reported() {
    let directories = directories();
    let primary = Node::start(config(directories[0].path()), |_| {}).unwrap();
    let gate = Arc::new(Gate::default());
    let join = Some(primary.address().to_owned());
    // Without a limit: of what is not executed everything is to arrive.
    let follower = NodeConfig { join, encoding: Encoding::Inputs, backlog_ms: 0, ..config(directories[1].path()) };
    let through = Arc::clone(&gate);
    let executors = executors(move || Gated(Arc::clone(&through), Commands::default()));
    let follower = Node::start_executing(follower, Some(executors), |_| {}).unwrap();
    let tables = Tables::create(primary.database()).unwrap();
    let population = Population { scale: SCALE, seed: seed(), loaded_at: NOW };
    let _ = load(primary.database(), &tables, &population, 2, &|_| {}).unwrap().unwrap();
    // Until it has seen how fast it is.
    let mut first = 0;
    while again(&follower).executed == 0 || again(&follower).restart.is_none() {
        let last = drive(&primary, &population, Isolation::Snapshot, first..first + 20);
        primary.database().wait(last).unwrap();
        first += 20;
    }
    let before = assert_same(&primary, &follower).at;
    gate.set_closed(true);
    // Or what ends would wait for it.
    let _open = Open(&gate);
    let last = drive(&primary, &population, Isolation::Snapshot, first..first + 20);
    primary.database().wait(last).unwrap();
    let theirs = hash(&primary, None);
    let arrived = || {
        let RoleStatus::Standby { own, .. } = follower.status().role else { panic!("it is a standby") };
        own.arrived
    };
    let mut there = (arrived(), Instant::now());
    while there.0 < theirs.at {
        assert!(there.1.elapsed() < Duration::from_secs(60), "nothing more arrives: {:?}", follower.status().role);
        std::thread::yield_now();
        there = Some(arrived()).filter(|to| *to > there.0).map_or(there, |to| (to, Instant::now()));
    }
    let held = again(&follower);
    assert!(held.pending_transactions >= 40 && held.restart.unwrap() > Duration::ZERO, "{held:?}");
    let made = theirs.at.since(before);
    // A mark may have come behind.
    assert!((made / 2..=made + 1024).contains(&held.pending_bytes), "{made} bytes were made, {held:?}");
    primary.stop().unwrap();
    drop(primary);
    std::thread::scope(|scope| {
        let promoted = scope.spawn(|| follower.promote(Consent::Loss));
        let under_way = loop {
            match follower.status().role {
                RoleStatus::TakingOver { again, .. } => break again.unwrap(),
                _ if promoted.is_finished() => panic!("{:?}", promoted.join().unwrap()),
                _ => std::thread::yield_now(),
            }
        };
        assert!(under_way.pending_transactions >= held.pending_transactions, "{under_way:?}");
        // These do not wait for it either, or they would for ever.
        assert!(follower.staleness().is_none());
        assert!(follower.want_visible().is_none());
        gate.set_closed(false);
        promoted.join().unwrap().unwrap();
    });
    let ours = hash(&follower, None);
    assert_eq!((ours.hash, ours.records), (theirs.hash, theirs.records));
    follower.stop().unwrap();
}

#[test]
fn a_standby_is_started_again_and_asks_for_bytes_and_for_inputs() {
    let directories = directories();
    let (primary, mut follower, population) = pair(&directories, Encoding::Inputs);
    for (round, encoding) in [Encoding::Inputs, Encoding::Bytes, Encoding::Inputs].into_iter().enumerate() {
        let first = round as u64 * 200;
        follower = std::thread::scope(|scope| {
            let driven = scope.spawn(|| drive(&primary, &population, Isolation::Snapshot, first..first + 200));
            // In the midst of it.
            follower.stop().unwrap();
            // It owns its directory.
            drop(follower);
            let follower = standby(directories[1].path(), primary.address(), encoding);
            primary.database().wait(driven.join().unwrap()).unwrap();
            follower
        });
        assert_same(&primary, &follower);
        // Readers see nothing of what a restart has found before the primary has said what is
        // committed; transactions that are executed again do.
        if encoding == Encoding::Inputs {
            assert_eq!(again(&follower).mismatches, 0, "{:?}", again(&follower));
        }
    }
    assert_consistent(follower.database(), &Tables::open(follower.database()).unwrap());
    follower.stop().unwrap();
    primary.stop().unwrap();
}

#[test]
fn a_standby_that_executes_transactions_again_takes_over() {
    let directories = directories();
    let (primary, follower, population) = pair(&directories, Encoding::Inputs);
    let last = drive(&primary, &population, Isolation::Snapshot, 0..300);
    primary.database().wait(last).unwrap();
    let theirs = hash(&primary, None);
    primary.stop().unwrap();
    drop(primary);
    follower.promote(Consent::Loss).unwrap();
    let ours = hash(&follower, None);
    assert_eq!((ours.hash, ours.records), (theirs.hash, theirs.records));
    // The old primary comes back as a standby that executes transactions again.
    let other = standby(directories[0].path(), follower.address(), Encoding::Inputs);
    let last = drive(&follower, &population, Isolation::Snapshot, 300..500);
    follower.database().wait(last).unwrap();
    assert_same(&follower, &other);
    other.stop().unwrap();
    follower.stop().unwrap();
}

/// What an executor has found in tables is of one database: a node that follows again in the same
/// process has another.
#[test]
fn a_node_that_was_deposed_executes_transactions_again() {
    let directories = directories();
    let made = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&made);
    let again_by = executors(move || {
        counts.fetch_add(1, SeqCst);
        Commands::default()
    });
    let follow = |directory: &TempDir, primary: &Node| {
        let join = Some(primary.address().to_owned());
        // A sample would be executed by others.
        let config = NodeConfig { join, encoding: Encoding::Inputs, verify_sample: 0, ..config(directory.path()) };
        Node::start_executing(config, Some(Arc::clone(&again_by)), |_| {}).unwrap()
    };
    let first = Node::start(config(directories[0].path()), |_| {}).unwrap();
    let second = follow(&directories[1], &first);
    let tables = Tables::create(first.database()).unwrap();
    let population = Population { scale: SCALE, seed: seed(), loaded_at: NOW };
    let _ = load(first.database(), &tables, &population, 2, &|_| {}).unwrap().unwrap();
    let drives = |node: &Node, sequences: Range<u64>| {
        let last = drive(node, &population, Isolation::Snapshot, sequences);
        node.database().wait(last).unwrap();
    };
    drives(&first, 0..100);
    assert_same(&first, &second);
    first.stop().unwrap();
    drop(first);
    second.promote(Consent::Loss).unwrap();
    let first = follow(&directories[0], &second);
    drives(&second, 100..200);
    assert_same(&second, &first);
    // While the other one lives, which is deposed.
    first.promote(Consent::Loss).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !second.is_deposed() {
        assert!(Instant::now() < deadline, "it never hears of its successor");
        std::thread::yield_now();
    }
    second.stop().unwrap();
    drop(second);
    let second = follow(&directories[1], &first);
    drives(&first, 200..300);
    assert_same(&first, &second);
    let again = again(&second);
    assert!(again.executed > 200 && again.mismatches == 0, "{again:?}");
    assert_eq!(made.load(SeqCst), 3, "each time that a node follows");
    assert_consistent(second.database(), &Tables::open(second.database()).unwrap());
    second.stop().unwrap();
    first.stop().unwrap();
}

/// The relay follows by bytes, or executes transactions again itself.
#[test]
fn a_relay_passes_inputs_on_to_a_leaf_that_executes_transactions_again() {
    for encoding in [Encoding::Bytes, Encoding::Inputs] {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let follow = |number: usize, upstream: &Node, encoding| {
            let config = NodeConfig {
                join: Some(upstream.address().to_owned()),
                encoding,
                asynchronous: number == 2,
                relay_standbys: u32::from(number == 1),
                ..config(directories[number].path())
            };
            Node::start_executing(config, Some(executors(Commands::default)), |_| {}).unwrap()
        };
        let primary = Node::start(config(directories[0].path()), |_| {}).unwrap();
        let relay = follow(1, &primary, encoding);
        let leaf = follow(2, &relay, Encoding::Inputs);
        let tables = Tables::create(primary.database()).unwrap();
        let population = Population { scale: SCALE, seed: seed(), loaded_at: NOW };
        let _ = load(primary.database(), &tables, &population, 2, &|_| {}).unwrap().unwrap();
        let drives = |sequences: Range<u64>| {
            let last = drive(&primary, &population, Isolation::Snapshot, sequences);
            primary.database().wait(last).unwrap();
        };
        drives(0..50);
        assert_same(&primary, &leaf);
        let (before, executed) = (hash(&primary, None).at, again(&leaf).executed);
        let sent_before = relayed(&relay);
        drives(50..300);
        let theirs = assert_same(&primary, &leaf);
        // The wish of the leaf has come to the primary, through the relay.
        let (logged, sent) = (theirs.at.since(before), relayed(&relay) - sent_before);
        println!("{encoding}: {sent} bytes sent to the leaf for {logged} of log");
        assert!(sent * 10 < logged, "{sent} bytes for {logged}");
        assert!(again(&leaf).executed >= executed + 600, "{:?}", again(&leaf));
        // It continues without the relay.
        relay.stop().unwrap();
        drop(relay);
        leaf.follow(primary.address());
        drives(300..400);
        assert_same(&primary, &leaf);
        let again = again(&leaf);
        assert!(again.mismatches == 0, "{again:?}");
        assert_consistent(leaf.database(), &Tables::open(leaf.database()).unwrap());
        leaf.stop().unwrap();
        primary.stop().unwrap();
    }
}

/// How transactions are executed again, if not as they should be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Course {
    /// Not before the course is another.
    Waiting,
    /// One of each ten writes nothing.
    Lying,
}

#[derive(Default)]
struct Bench {
    course: Mutex<Option<Course>>,
    changed: Condvar,
    count: AtomicU64,
}

impl Bench {
    fn set(&self, course: Course) {
        *self.course.lock().unwrap() = Some(course);
        self.changed.notify_all();
    }

    fn lies(&self) -> bool {
        let mut course = self.course.lock().unwrap();
        while *course == Some(Course::Waiting) {
            course = self.changed.wait(course).unwrap();
        }
        *course == Some(Course::Lying) && self.count.fetch_add(1, SeqCst).is_multiple_of(10)
    }
}

struct Directed(Commands, Arc<Bench>);

impl CommandExecutor for Directed {
    fn execute(&self, txn: &Transaction<'_>, procedure: u32, inputs: &[u8]) -> Result<(), ProcedureError> {
        if self.1.lies() { Ok(()) } else { self.0.execute(txn, procedure, inputs) }
    }
}

/// The primary is killed while blocks wait that do not come out the same. The other standby has
/// them.
#[test]
fn a_candidate_gets_what_does_not_come_out_from_another_standby() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let of = |number: usize| NodeConfig { safety: Safety::Quorum(2), ..config(directories[number].path()) };
    let primary = Node::start(of(0), |_| {}).unwrap();
    let join = || Some(primary.address().to_owned());
    let bench = Arc::new(Bench::default());
    let theirs = Arc::clone(&bench);
    let directed = executors(move || Directed(Commands::default(), Arc::clone(&theirs)));
    let inputs = NodeConfig { join: join(), encoding: Encoding::Inputs, ..of(1) };
    let candidate = Node::start_executing(inputs, Some(directed), |_| {}).unwrap();
    let other = Node::start(NodeConfig { join: join(), ..of(2) }, |_| {}).unwrap();
    let tables = Tables::create(primary.database()).unwrap();
    let population = Population { scale: SCALE, seed: seed(), loaded_at: NOW };
    let _ = load(primary.database(), &tables, &population, 2, &|_| {}).unwrap().unwrap();
    let last = drive(&primary, &population, Isolation::Snapshot, 0..50);
    primary.database().wait(last).unwrap();
    assert_same(&primary, &candidate);
    bench.set(Course::Waiting);
    let last = drive(&primary, &population, Isolation::Snapshot, 50..100);
    primary.database().wait(last).unwrap();
    let before = assert_same(&primary, &other);
    // Who is not named has no vote and cannot be promoted.
    let named = || primary.status().in_sync_set.is_some_and(|set| set.members.len() == 3 && set.before.is_empty());
    let deadline = Instant::now() + Duration::from_secs(60);
    while !named() {
        assert!(Instant::now() < deadline, "{:?}", primary.status().in_sync_set);
        std::thread::yield_now();
    }
    primary.stop().unwrap();
    drop(primary);
    bench.set(Course::Lying);
    candidate.promote(Consent::Nothing).unwrap();
    let after = hash(&candidate, None);
    assert_eq!((after.hash, after.records), (before.hash, before.records));
    let (found, _) = read_mismatches(&directories[1].path().join("mismatches")).unwrap();
    assert!(!found.is_empty() && found.iter().all(|mismatch| mismatch.lsn < before.at), "{}", found.len());
    assert_same(&candidate, &other);
    other.stop().unwrap();
    candidate.stop().unwrap();
}

/// What a relay has sent to its standbys.
fn relayed(relay: &Node) -> u64 {
    let RoleStatus::Standby { own, .. } = relay.status().role else { panic!("it is a standby") };
    own.relay.expect("it is a relay").standbys.iter().map(|standby| standby.sent_bytes).sum()
}
