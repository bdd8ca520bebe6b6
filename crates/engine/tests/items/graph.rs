//! The graph of who must come before whom, of committed transactions on the items, and whether it
//! has a cycle (Adya's thesis, 1999).
//!
//! It is made from what is known of a history once it is certain that each transaction has read the
//! state at its snapshot: from snapshots, LSNs, what was written, and which items an operation
//! has looked for.

use std::{collections::BTreeMap, fmt, ops::Bound};

use freshet_engine::Lsn;

use super::{
    Item,
    operation::{Operation, Outcome},
};

/// What a transaction has made of an item: what it was, and what it is.
pub type Written = BTreeMap<u64, (Option<Item>, Option<Item>)>;

/// A committed transaction.
pub struct Node<'h> {
    pub snapshot: Lsn,
    /// Its LSN, or where the log ended when it did, if it wrote nothing.
    pub place: Lsn,
    /// Whether its reads must be those of the serial order.
    pub serializable: bool,
    pub steps: &'h [(Operation, Outcome)],
    pub written: Written,
}

/// Whether an operation with this outcome depends on whether there is such an item.
fn looks_for(operation: &Operation, outcome: &Outcome, item: Item) -> bool {
    let found_all = |limit: usize, found: &[Item]| found.len() < limit;
    match (operation, outcome) {
        (_, Outcome::Conflict) => false,
        (Operation::Get(id) | Operation::Set { id, .. } | Operation::Delete(id), _) => item.id == *id,
        (Operation::Named(name), _) => item.name == *name,
        (Operation::Group(group), _) => item.group == *group,
        (Operation::Scan { low, high, backward, limit }, Outcome::Found(found)) => {
            let above = match (backward, found.last()) {
                (true, Some(last)) if !found_all(*limit, found) => item.id >= last.id,
                _ => match low {
                    Bound::Unbounded => true,
                    Bound::Included(low) => item.id >= *low,
                    Bound::Excluded(low) => item.id > *low,
                },
            };
            let below = match (backward, found.last()) {
                (false, Some(last)) if !found_all(*limit, found) => item.id <= last.id,
                _ => match high {
                    Bound::Unbounded => true,
                    Bound::Included(high) => item.id <= *high,
                    Bound::Excluded(high) => item.id < *high,
                },
            };
            above && below
        }
        (Operation::Scan { .. }, _) => unreachable!("a scan finds"),
        (Operation::Insert(new), outcome) => is_in_the_way(*new, outcome, item),
        (Operation::Update { id, item: new }, outcome) => item.id == *id || is_in_the_way(*new, outcome, item),
    }
}

/// Of keys that are to be free, the id is looked at first.
fn is_in_the_way(new: Item, outcome: &Outcome, item: Item) -> bool {
    let names = match outcome {
        Outcome::Taken(index) => index != "items_id",
        Outcome::NotFound => return false,
        _ => true,
    };
    item.id == new.id || names && item.name == new.name
}

/// Edges by the number of the transaction that comes first, with the reasons.
pub struct Graph<'h> {
    nodes: Vec<Node<'h>>,
    edges: Vec<Vec<(usize, &'static str)>>,
}

impl<'h> Graph<'h> {
    pub fn new(nodes: Vec<Node<'h>>) -> Self {
        let edges = nodes.iter().map(|_| Vec::new()).collect();
        let mut graph = Self { nodes, edges };
        let mut writers: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        let mut by_place: Vec<usize> = (0..graph.nodes.len()).collect();
        by_place.sort_by_key(|node| graph.nodes[*node].place);
        for node in by_place {
            graph.nodes[node].written.keys().for_each(|id| writers.entry(*id).or_default().push(node));
        }
        for (id, writers) in &writers {
            writers.windows(2).for_each(|pair| graph.edges[pair[0]].push((pair[1], "overwritten")));
            for reader in 0..graph.nodes.len() {
                graph.read(reader, *id, writers);
            }
        }
        graph
    }

    /// The edges of what `reader` has read of item `id`, which these have written, one after
    /// another.
    fn read(&mut self, reader: usize, id: u64, writers: &[usize]) {
        let nodes = &self.nodes;
        let Node { snapshot, serializable, steps, .. } = nodes[reader];
        let seen = writers.partition_point(|writer| nodes[*writer].place < snapshot);
        for (operation, outcome) in steps {
            let matters = |writer: &&usize| {
                let (old, new) = nodes[**writer].written[&id];
                old != new && old.into_iter().chain(new).any(|item| looks_for(operation, outcome, item))
            };
            if let Some(writer) = writers[..seen].iter().rfind(matters) {
                self.edges[*writer].push((reader, "read"));
            }
            let later = writers[seen..].iter().take_while(|writer| **writer != reader);
            if let Some(writer) = later.clone().find(|writer| matters(writer)).filter(|_| serializable) {
                self.edges[reader].push((*writer, "changed what was read"));
            }
        }
    }

    /// How many edges lead back in time from those that have written something.
    pub fn back_edges(&self) -> usize {
        let back = |from: usize| {
            self.edges[from].iter().filter(move |(to, _)| self.nodes[*to].place < self.nodes[from].place).count()
        };
        (0..self.nodes.len()).filter(|node| !self.nodes[*node].written.is_empty()).map(back).sum()
    }

    /// # Panics
    /// When there is a cycle.
    pub fn check(&self) {
        let mut incoming = vec![0usize; self.nodes.len()];
        self.edges.iter().flatten().for_each(|(to, _)| incoming[*to] += 1);
        let mut free: Vec<usize> = (0..incoming.len()).filter(|node| incoming[*node] == 0).collect();
        while let Some(node) = free.pop() {
            for (to, _) in &self.edges[node] {
                incoming[*to] -= 1;
                if incoming[*to] == 0 {
                    free.push(*to);
                }
            }
        }
        // Every one that is left is in a cycle, or comes after one: going back leads into one.
        let Some(mut node) = incoming.iter().position(|count| *count > 0) else { return };
        let mut path = vec![node];
        let cycle = loop {
            let before = |from: &usize| incoming[*from] > 0 && self.edges[*from].iter().any(|(to, _)| *to == node);
            node = (0..incoming.len()).find(before).expect("each of them comes after another");
            if let Some(at) = path.iter().position(|there| *there == node) {
                break path.split_off(at);
            }
            path.push(node);
        };
        let mut text = String::new();
        for (number, node) in cycle.iter().rev().enumerate() {
            let next = cycle[(2 * cycle.len() - 2 - number) % cycle.len()];
            let why = self.edges[*node].iter().find(|(to, _)| *to == next).map_or("?", |(_, why)| why);
            text += &format!("\n{:?}\n  then, {why}:", self.nodes[*node]);
        }
        panic!("a cycle of {}:{text}", cycle.len());
    }
}

impl fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { snapshot, place, serializable, steps, .. } = self;
        write!(f, "at {snapshot:?}, with {place:?}, serializable: {serializable}: {steps:?}")
    }
}
