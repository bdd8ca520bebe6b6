//! A cluster of nodes, driven by threads for a time, and what was measured.
//!
//! Each thread steps some of the nodes in turn, so that there are no more threads than processors
//! however many nodes there are, and a node that waits for another one takes no time from it.

use std::{
    thread,
    time::{Duration, Instant},
};

use freshet_base::{
    cpu::thread_time,
    sync::{Arc, AtomicU8, AtomicU64, AtomicUsize, Ordering},
};
use freshet_fabric::limit::TokenBucket;

use crate::{
    Failed,
    active_memory::Memories,
    calvin::Calvin,
    clock::{Clock, Role},
    hstore::HStore,
    input::{Clients, Workload},
    link::{Link, Logs, Wire, join},
    locking::{Locking, Replication},
    model::{compare, verify},
    node::{self, Core, Done, History, Node, Tally},
    recover::{Decided, decide_and_undo},
    shape::Shape,
    shipping::Shipping,
    store::Store,
};

/// How partitions are replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Undo entries, rows and marks are written into others' memory.
    ActiveMemory,
    /// Records of the log are replayed by backups.
    LogShipping,
    /// Partitions and backups run the same transactions one after another.
    HStore,
    /// All copies run the same transactions with locks granted in one order.
    Calvin,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ActiveMemory, Self::LogShipping, Self::HStore, Self::Calvin];
}

/// A cluster and its load.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The scheme.
    pub scheme: Scheme,
    /// The nodes.
    pub shape: Shape,
    /// What clients ask for.
    pub workload: Workload,
    /// How many transactions the clients of a node have open at a time, at most 60.
    pub open: usize,
    /// What each node may send, in gigabits per second; none: as fast as it can.
    pub gigabits: Option<f64>,
    /// Divide processor time among roles, which costs some of it.
    pub roles: bool,
    /// Remember all transactions, and execute them again at the end, one after another, to compare.
    pub check: bool,
    /// Of all random numbers.
    pub seed: u64,
}

/// How long to run.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Before the measurement.
    pub warmup: Duration,
    /// The measurement.
    pub measure: Duration,
    /// Threads that drive nodes; no more than there are nodes.
    pub threads: usize,
    /// At the end, the first node is lost with all that it has under way, and the others recover.
    pub lose: bool,
}

/// What was measured, over all nodes.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// How long it was measured, in seconds.
    pub seconds: f64,
    /// Transactions whose clients were told.
    pub executed: u64,
    /// How often transactions had to begin again.
    pub aborted: u64,
    /// Processor time of the threads that drive nodes.
    pub cpu: Duration,
    /// The same by [`Role::ALL`], if it was asked for.
    pub roles: [Duration; Role::ALL.len()],
    /// Bytes that went from node to node, without headers of packets.
    pub wire_bytes: u64,
    /// Writes that went from node to node.
    pub wire_writes: u64,
    /// How long transactions took, in nanoseconds, sorted.
    pub latencies: Vec<u64>,
    /// What is wrong at the end, if something is.
    pub wrong: Option<String>,
    /// How the others recovered, if a node was lost.
    pub recovery: Option<Recovery>,
}

/// How nodes recovered from the loss of one.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// How long it took, from when they ended what they had under way.
    pub time: Duration,
    /// Parts of transactions that were undone, over all nodes.
    pub undone: usize,
}

/// Each has a mailbox and undo rings on each other one: there are not more.
const MOST_NODES: usize = 16;

/// Tells threads what to do.
const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

/// How often a thread finds nothing to do before it sleeps, and for how long.
const PATIENT: u32 = 100;
const NAP: Duration = Duration::from_micros(50);
/// Nodes come to rest within this time.
const REST: Duration = Duration::from_secs(60);
/// After a loss each of the others runs at least this many transactions.
const AFTERWARDS: u64 = 100;

/// Runs a cluster, and measures. Blocks for the time that is asked for, the time to load, and that
/// to compare copies at the end.
///
/// # Errors
/// [`Failed`].
pub fn run(config: &Config, time: &Time) -> Result<Found, Failed> {
    if time.lose && config.scheme != Scheme::ActiveMemory {
        return Err(Failed::Config("only Active-Memory recovers from the loss of a node here".to_owned()));
    }
    if time.lose && config.shape.copies < 2 {
        return Err(Failed::Config("nothing is left of what has one copy: use --copies 2 or more".to_owned()));
    }
    let mut nodes = make(config)?;
    let mut found = measure(&mut nodes, time)?;
    let mut lost = None;
    if time.lose {
        let (recovery, decided, history) = lose(&mut nodes, 0)?;
        found.recovery = Some(recovery);
        lost = Some((history, decided.kept.0));
        go_on(&mut nodes, AFTERWARDS)?;
    }
    come_to_rest(&mut nodes)?;
    let wrong = compare(&nodes).and_then(|()| {
        let of = |node: &'_ Node| node.core.history.as_ref().map(|history| history.done.clone());
        let done: Vec<Vec<Done>> = nodes.iter().filter_map(of).collect();
        let mut histories: Vec<_> = done.iter().map(|done| (&done[..], None)).collect();
        histories.extend(lost.iter().map(|(done, kept)| (&done[..], Some(*kept))));
        if config.check { verify(&nodes, &histories) } else { Ok(()) }
    });
    found.wrong = wrong.err().map(|wrong| wrong.to_string());
    Ok(found)
}

fn check(config: &Config) -> Result<(), Failed> {
    let Config { shape: Shape { nodes, copies, records }, open, workload, gigabits, .. } = *config;
    let wrong = if nodes == 0 || nodes > MOST_NODES {
        "there are 1 to 16 nodes"
    } else if copies == 0 || copies > nodes {
        "copies of a partition lie on different nodes: there are 1 to as many as nodes"
    } else if records < 20 {
        "a partition has at least 20 records"
    } else if open == 0 || open > 60 {
        "a node has 1 to 60 transactions open"
    } else if usize::from(workload.writes) > crate::OPERATIONS {
        "a transaction has ten operations"
    } else if gigabits.is_some_and(|rate| rate.is_nan() || rate <= 0.0) {
        "a network has a rate"
    } else {
        return Ok(());
    };
    Err(Failed::Config(wrong.to_owned()))
}

/// Loads the nodes, and connects each with each.
pub(crate) fn make(config: &Config) -> Result<Vec<Node>, Failed> {
    check(config)?;
    let shape = config.shape;
    let next = Arc::new(AtomicU64::new(0));
    let mut cores = (0..shape.nodes).map(|me| core(config, me, &next)).collect::<Result<Vec<_>, _>>()?;
    for two in 1..shape.nodes {
        for one in 0..two {
            let side = |node: usize, other: usize| (cores[node].store.memory(), &cores[node].logs[other]);
            let (first, second) = join(side(one, two), side(two, one))?;
            (cores[one].links[two], cores[two].links[one]) = (Some(first), Some(second));
        }
    }
    Ok(cores.into_iter().map(|core| Node { scheme: scheme(config, &core), core }).collect())
}

fn core(config: &Config, me: usize, next: &Arc<AtomicU64>) -> Result<Core, Failed> {
    let Config { shape, workload, open, gigabits, roles, seed, .. } = *config;
    let logs = (0..shape.nodes).map(|coordinator| Logs::new(&shape, coordinator)).collect::<Result<_, _>>()?;
    Ok(Core {
        me,
        shape,
        store: Store::new(shape, me)?,
        logs,
        links: (0..shape.nodes).map(|_| None).collect(),
        is_alive: vec![true; shape.nodes],
        clients: Clients::new(workload, shape, me, seed)?,
        most_open: open,
        open: 0,
        may_begin: true,
        limit: gigabits.map(|rate| Arc::new(TokenBucket::gigabits(rate))),
        clock: Clock::new(roles),
        tally: Tally::default(),
        history: config.check.then(|| History { next: Arc::clone(next), done: Vec::new() }),
    })
}

fn scheme(config: &Config, core: &Core) -> Box<dyn node::Scheme> {
    match config.scheme {
        Scheme::ActiveMemory => {
            let memories = Box::new(Memories::new(config.shape.nodes));
            Box::new(Locking::new(core, Replication::ActiveMemory(memories)))
        }
        Scheme::LogShipping => Box::new(Locking::new(core, Replication::Shipping(Box::new(Shipping::new())))),
        Scheme::HStore => Box::new(HStore::default()),
        Scheme::Calvin => Box::new(Calvin::new(core)),
    }
}

/// Runs nodes on threads. They are left with what they have under way.
fn measure(nodes: &mut Vec<Node>, time: &Time) -> Result<Found, Failed> {
    let threads = time.threads.clamp(1, nodes.len());
    let mut shares: Vec<Vec<Node>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, node) in nodes.drain(..).enumerate() {
        shares[number % threads].push(node);
    }
    let (phase, measuring) = (AtomicU8::new(WARM_UP), AtomicUsize::new(0));
    let driven = thread::scope(|scope| {
        let (phase, measuring) = (&phase, &measuring);
        let drive = |share: Vec<Node>| scope.spawn(move || drive(share, phase, measuring));
        let drivers: Vec<_> = shares.into_iter().map(drive).collect();
        thread::sleep(time.warmup);
        phase.store(MEASURE, Ordering::SeqCst);
        // On a busy machine one may be late; one that has failed does not begin.
        while measuring.load(Ordering::SeqCst) < threads && !drivers.iter().any(|driver| driver.is_finished()) {
            thread::sleep(NAP);
        }
        thread::sleep(time.measure);
        phase.store(STOP, Ordering::SeqCst);
        drivers.into_iter().map(|driver| driver.join()).collect::<Vec<_>>()
    });
    let mut found = Found::default();
    for driven in driven {
        let Driven { share, time, cpu, wire } = driven.map_err(|_| Failed::Panicked)??;
        found.seconds = found.seconds.max(time.as_secs_f64());
        found.cpu += cpu;
        found.wire_bytes += wire.bytes;
        found.wire_writes += wire.writes;
        nodes.extend(share);
    }
    nodes.sort_by_key(|node| node.core.me);
    for node in nodes {
        let tally = std::mem::take(&mut node.core.tally);
        found.executed += tally.executed;
        found.aborted += tally.aborted;
        found.latencies.extend(tally.latencies);
        for (sum, role) in found.roles.iter_mut().zip(Role::ALL) {
            *sum += node.time(role);
        }
    }
    found.latencies.sort_unstable();
    Ok(found)
}

/// What a thread has done.
struct Driven {
    share: Vec<Node>,
    /// How long it was measured.
    time: Duration,
    cpu: Duration,
    wire: Wire,
}

/// What went out of nodes so far.
fn wire_of(nodes: &[Node]) -> Wire {
    nodes
        .iter()
        .flat_map(|node| node.core.links.iter().flatten())
        .map(Link::wire)
        .fold(Wire::default(), |sum, it| Wire { bytes: sum.bytes + it.bytes, writes: sum.writes + it.writes })
}

/// Steps nodes in turn until it is told to stop. Counts itself among those who are `measuring`.
fn drive(mut share: Vec<Node>, phase: &AtomicU8, measuring: &AtomicUsize) -> Result<Driven, Failed> {
    let (mut before, mut began, mut idle) = (WARM_UP, (Instant::now(), thread_time(), wire_of(&share)), 0);
    loop {
        let now = phase.load(Ordering::Relaxed);
        if now == STOP {
            break;
        }
        if now != before {
            share.iter_mut().for_each(Node::reset);
            began = (Instant::now(), thread_time(), wire_of(&share));
            before = now;
            measuring.fetch_add(1, Ordering::SeqCst);
        }
        let mut some = false;
        for node in &mut share {
            some |= node.step()?;
        }
        idle = if some { 0 } else { idle + 1 };
        match idle {
            0 => {}
            1..PATIENT => thread::yield_now(),
            _ => thread::sleep(NAP),
        }
    }
    let (begun, cpu, wire) = began;
    let all = wire_of(&share);
    let wire = Wire { bytes: all.bytes - wire.bytes, writes: all.writes - wire.writes };
    Ok(Driven { time: begun.elapsed(), cpu: thread_time().saturating_sub(cpu), wire, share })
}

/// Ends what is under way on all nodes, and begins nothing.
pub(crate) fn come_to_rest(nodes: &mut [Node]) -> Result<(), Failed> {
    nodes.iter_mut().for_each(|node| node.core.may_begin = false);
    let (begun, mut quiet) = (Instant::now(), 0);
    // What a node sends in a step is taken in the next, so two rounds say that nothing is left.
    while quiet < 2 {
        let mut some = false;
        for node in nodes.iter_mut() {
            some |= node.step()?;
        }
        let is_quiet = !some && nodes.iter().all(Node::is_at_rest);
        quiet = if is_quiet { quiet + 1 } else { 0 };
        if begun.elapsed() > REST {
            return Err(Failed::Restless);
        }
    }
    Ok(())
}

/// Runs until each node has executed this many more transactions.
pub(crate) fn go_on(nodes: &mut [Node], count: u64) -> Result<(), Failed> {
    let begun = Instant::now();
    for node in nodes.iter_mut() {
        node.core.may_begin = true;
        node.core.tally = Tally::default();
    }
    while nodes.iter().any(|node| node.core.tally.executed < count) {
        for node in nodes.iter_mut() {
            node.step()?;
        }
        if begun.elapsed() > REST {
            return Err(Failed::Restless);
        }
    }
    Ok(())
}

/// Loses a node with all that it has under way: the others end what they have under way, and
/// recover. Returns what became of its transactions, and what it remembers of them.
pub(crate) fn lose(nodes: &mut Vec<Node>, number: usize) -> Result<(Recovery, Decided, Vec<Done>), Failed> {
    let mut dead = nodes.remove(number);
    let history = dead.core.history.take().map(|history| history.done).unwrap_or_default();
    let begun = Instant::now();
    let decided = exclude(nodes, dead.core.me)?;
    let recovery = Recovery { time: begun.elapsed(), undone: decided.undone };
    Ok((recovery, decided, history))
}

/// The nodes that are left hear from the cluster manager that one is gone.
pub(crate) fn exclude(nodes: &mut [Node], dead: usize) -> Result<Decided, Failed> {
    nodes.iter_mut().try_for_each(|node| node.exclude(dead))?;
    come_to_rest(nodes)?;
    let decided = decide_and_undo(nodes, dead)?;
    nodes.iter_mut().for_each(|node| node.core.may_begin = true);
    Ok(decided)
}
