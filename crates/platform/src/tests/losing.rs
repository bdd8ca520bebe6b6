//! Coordinators that fail at any write that they post, and what becomes of their transactions
//! (table 1, over several partitions: section 5.3).

use std::{collections::BTreeSet, io, iter};

use freshet_base::{
    Lsn,
    sync::{Arc, AtomicU64, Ordering},
};
use freshet_fabric::{OpenError, Place, QueuePair, RegionKey, SendError, Token, Write};
use freshet_mirror::Status;

use super::*;
use crate::{
    input::Input,
    node::Done,
    recover::{Decided, decide_and_undo},
    run::exclude,
    store::{Store, modify},
};

/// A queue pair of a node that fails: after this many writes on all its queue pairs nothing is
/// written any more, and of the next one only the first half if `torn`.
struct Cut {
    inner: Box<dyn QueuePair>,
    left: Arc<AtomicU64>,
    torn: bool,
}

impl Cut {
    fn lost() -> SendError {
        SendError::Lost { peer: ([127, 0, 0, 1], 1).into(), source: io::ErrorKind::BrokenPipe.into() }
    }
}

impl QueuePair for Cut {
    fn post(&mut self, list: &[Write<'_>], signaled: bool) -> Result<Token, SendError> {
        let mut token = self.inner.post(&[], signaled)?;
        for write in list {
            if self.left.load(Ordering::Relaxed) == 0 {
                let piece = write.pieces.first().map_or(&[][..], |piece| &piece[..piece.len() / 2]);
                if self.torn && !piece.is_empty() {
                    self.inner
                        .post(&[Write { to: write.to, pieces: &[piece], immediate: None, fenced: false }], false)?;
                }
                return Err(Self::lost());
            }
            self.left.fetch_sub(1, Ordering::Relaxed);
            token = self.inner.post(&[*write], signaled)?;
        }
        Ok(token)
    }

    fn completed(&mut self) -> Result<Token, SendError> {
        self.inner.completed()
    }

    fn wait(&mut self, token: Token) -> Result<(), SendError> {
        self.inner.wait(token)
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), SendError> {
        self.inner.read(from, into)
    }

    fn fetch_add(&mut self, at: Place, add: u64) -> Result<u64, SendError> {
        self.inner.fetch_add(at, add)
    }

    fn attach(&mut self, key: &RegionKey) -> Result<usize, OpenError> {
        self.inner.attach(key)
    }

    fn region_length(&self, region: usize) -> u64 {
        self.inner.region_length(region)
    }

    fn is_prompt(&self) -> bool {
        self.inner.is_prompt()
    }
}

/// The node fails after this many writes. Returns how many are left.
fn cut(node: &mut Node, writes: u64, torn: bool) -> Arc<AtomicU64> {
    let left = Arc::new(AtomicU64::new(writes));
    for link in &mut node.core.links {
        let left = Arc::clone(&left);
        *link = link.take().map(|link| link.behind(|inner| Box::new(Cut { inner, left, torn })));
    }
    left
}

fn history(node: &Node) -> Vec<Done> {
    node.core.history.as_ref().unwrap().done.clone()
}

/// Looks at the nodes that are left, and at what they and those that are gone have told clients.
fn is_right(nodes: &[Node], gone: &[(Vec<Done>, Lsn)]) {
    compare(nodes).unwrap();
    let done: Vec<_> = nodes.iter().map(history).collect();
    let mut histories: Vec<_> = done.iter().map(|done| (&done[..], None)).collect();
    histories.extend(gone.iter().map(|(done, kept)| (&done[..], Some(kept.0))));
    verify(nodes, &histories).unwrap();
}

/// What a node has of a part of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// None: not even a part of an undo entry.
    log: Option<Status>,
    data: Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    Untouched,
    Corrupt,
    Updated,
}

/// What the nodes that are left have of the only transaction of node 0, part by part.
fn parts(nodes: &[Node], input: &Input) -> Vec<Part> {
    let shape = nodes[0].core.shape;
    let before = Store::new(Shape { copies: shape.nodes, ..shape }, 0).unwrap();
    let hosts =
        |partition: &usize| iter::repeat(*partition).zip(shape.hosts(*partition)).filter(|(_, node)| *node != 0);
    let all = input.partitions();
    let of = |(partition, node): (usize, usize)| {
        let core = &nodes.iter().find(|it| it.core.me == node).unwrap().core;
        let memory = core.logs[0].mirror(partition, core.store.memory());
        let is_empty = memory[freshet_mirror::UNDO].words().iter().all(|word| word.load(Ordering::Relaxed) == 0);
        let torn = (!is_empty).then_some(Status::Corrupt);
        let log = freshet_mirror::footprint(&memory).unwrap().batches.last().map_or(torn, |(_, status)| Some(*status));
        let (mut some, mut all) = (false, true);
        for operation in input.within(partition) {
            let slot = core.store.find(partition, operation.key).unwrap();
            let old = before.column(partition, slot, operation.column);
            let (mut new, is) = (old, core.store.column(partition, slot, operation.column));
            modify(&mut new, input.seed, operation.key);
            (some, all) = (some || is != old, all && is == new);
        }
        let data = if all { Data::Updated } else { if some { Data::Corrupt } else { Data::Untouched } };
        Part { log, data }
    };
    all.iter().flat_map(hosts).map(of).collect()
}

/// The case of table 1 that a part is in.
fn case_of(part: Part, all: &[Part], is_acknowledged: bool) -> &'static str {
    let ready = all.iter().filter(|part| part.log == Some(Status::CommitReady)).count();
    let is_complete = |part: &Part| *part == Part { log: Some(Status::Logged), data: Data::Updated };
    match part.log {
        None => "2a",
        Some(Status::Corrupt) => "2b",
        Some(Status::Logged) if ready > 0 => "4a",
        Some(Status::Logged) if all.iter().all(is_complete) => "3",
        Some(Status::Logged) => "2c",
        Some(Status::CommitReady) if ready < all.len() => "4b",
        Some(Status::CommitReady) if is_acknowledged => "5b",
        Some(Status::CommitReady) => "5a",
    }
}

/// One transaction over three partitions, whose coordinator fails after each number of writes in
/// turn: every part is in one of the cases of table 1, and becomes what the table says.
#[test]
fn cases_1_to_5b_of_table_1_over_several_partitions() {
    let mut seen = BTreeSet::new();
    for torn in [false, true] {
        let mut acknowledged = false;
        for writes in 0.. {
            let mut config = config(Scheme::ActiveMemory, 4, 2, 7);
            config.workload = Workload { multi: 100, writers: 100, writes: 10, spread: Spread::Home };
            config.open = 1;
            let mut nodes = make(&config).unwrap();
            nodes[1..].iter_mut().for_each(|node| node.core.may_begin = false);
            let left = cut(&mut nodes[0], writes, torn);
            // It fails at once, or at the next write, or has told its client of the transaction.
            while left.load(Ordering::Relaxed) > 0 && nodes[0].core.tally.executed == 0 && nodes[0].step().is_ok() {
                for node in &mut nodes[1..] {
                    node.step().unwrap();
                }
            }
            let dead = nodes.remove(0);
            acknowledged = dead.core.tally.executed > 0;
            nodes.iter_mut().for_each(|node| node.exclude(0).unwrap());
            come_to_rest(&mut nodes).unwrap();
            let done = history(&dead);
            let Some(input) = done.first().map(|done| &done.input) else {
                assert_eq!(decide_and_undo(&mut nodes, 0).unwrap(), Decided { kept: Lsn(0), undone: 0 });
                is_right(&nodes, &[(done, Lsn(0))]);
                seen.insert("1");
                continue;
            };
            assert_eq!(input.partitions().len(), 3);
            let before = parts(&nodes, input);
            let cases: Vec<_> = before.iter().map(|part| case_of(*part, &before, acknowledged)).collect();
            let Decided { kept, undone } = decide_and_undo(&mut nodes, 0).unwrap();
            println!("{writes} writes: {cases:?}");
            for (part, case) in before.iter().zip(&cases) {
                let possible: &[Data] = match *case {
                    "2a" | "2b" => &[Data::Untouched],
                    "2c" => &[Data::Untouched, Data::Corrupt, Data::Updated],
                    _ => &[Data::Updated],
                };
                assert!(possible.contains(&part.data), "{writes} writes, {case}: {part:?}");
            }
            // All agree, or it is undone wherever there is something to undo.
            let is_kept = cases.iter().all(|case| ["5a", "5b"].contains(case));
            let undoes = cases.iter().filter(|case| ["2c", "3", "4a", "4b"].contains(case)).count();
            assert_eq!((kept, undone), if is_kept { (Lsn(1), 0) } else { (Lsn(0), undoes) }, "{cases:?}");
            let data = if is_kept { Data::Updated } else { Data::Untouched };
            assert!(parts(&nodes, input).iter().all(|part| part.data == data), "{cases:?}");
            is_right(&nodes, &[(done.clone(), kept)]);
            seen.extend(cases);
            if acknowledged {
                break;
            }
        }
        assert!(acknowledged);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["1", "2a", "2b", "2c", "3", "4a", "4b", "5a", "5b"]);
}

/// Steps nodes by chance until one fails.
fn until_lost(nodes: &mut [Node], random: &mut Random, dead: usize) {
    for _ in 0..10_000_000 {
        let number = random.below(nodes.len() as u64) as usize;
        match nodes[number].step() {
            Ok(_) => {}
            Err(_) if nodes[number].core.me == dead => return,
            Err(error) => panic!("node {number}: {error}"),
        }
    }
    panic!("it does not fail");
}

#[test]
fn nodes_are_lost_under_load_one_after_another() {
    let mut random = random();
    for _ in 0..8 {
        let mut nodes = make(&config(Scheme::ActiveMemory, 5, 3, random.bits())).unwrap();
        let mut gone = Vec::new();
        for _ in 0..2 {
            let number = random.below(nodes.len() as u64) as usize;
            let dead = nodes[number].core.me;
            cut(&mut nodes[number], random.below(2000), random.below(2) == 0);
            until_lost(&mut nodes, &mut random, dead);
            let lost = nodes.remove(number);
            let decided = exclude(&mut nodes, dead).unwrap();
            gone.push((history(&lost), decided.kept));
            is_right(&nodes, &gone);
            nodes.iter_mut().for_each(|node| node.core.tally.executed = 0);
            drive(&mut nodes, &mut random, 30).unwrap();
        }
        come_to_rest(&mut nodes).unwrap();
        is_right(&nodes, &gone);
    }
}

#[test]
fn two_nodes_are_lost_at_once() {
    let mut random = random();
    for _ in 0..8 {
        let mut nodes = make(&config(Scheme::ActiveMemory, 5, 3, random.bits())).unwrap();
        cut(&mut nodes[0], random.below(2000), random.below(2) == 0);
        until_lost(&mut nodes, &mut random, 0);
        let lost = [nodes.remove(0), nodes.remove(0)];
        for dead in [0, 1] {
            nodes.iter_mut().for_each(|node| node.exclude(dead).unwrap());
        }
        come_to_rest(&mut nodes).unwrap();
        let gone: Vec<_> =
            lost.iter().map(|node| (history(node), decide_and_undo(&mut nodes, node.core.me).unwrap().kept)).collect();
        is_right(&nodes, &gone);
        // A recovery that is done again leads to the same.
        for dead in [1, 0] {
            decide_and_undo(&mut nodes, dead).unwrap();
        }
        is_right(&nodes, &gone);
    }
}

#[test]
fn what_a_node_does_that_others_take_for_lost_has_no_effect() {
    let mut random = random();
    let mut nodes = make(&config(Scheme::ActiveMemory, 4, 3, random.bits())).unwrap();
    drive(&mut nodes, &mut random, 20).unwrap();
    let mut zombie = nodes.remove(2);
    let decided = exclude(&mut nodes, 2).unwrap();
    let gone = [(history(&zombie), decided.kept)];
    is_right(&nodes, &gone);
    let refused = (0..100).any(|_| zombie.step().is_err());
    assert!(refused, "it hears that it is shut out");
    // Nor has it told clients of anything else than what is kept.
    is_right(&nodes, &[(history(&zombie), decided.kept)]);
}
