//! Operations on the items, on the database and on the reference: a sorted map.

use std::{collections::BTreeMap, ops::Bound};

use freshet_engine::{Direction, WriteError};

use super::{Item, Txn};

/// The state of the reference: items by id.
pub type State = BTreeMap<u64, Item>;

/// What a transaction does at once.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    Get(u64),
    Named(u64),
    Scan { low: Bound<u64>, high: Bound<u64>, backward: bool, limit: usize },
    Group(u32),
    Insert(Item),
    Set { id: u64, value: i64 },
    Update { id: u64, item: Item },
    Delete(u64),
}

/// What comes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Found(Vec<Item>),
    Done,
    NotFound,
    /// The key is taken, in the index of this name.
    Taken(String),
    /// Another transaction was first.
    Conflict,
}

impl Operation {
    /// One drawn from the numbers that `below(n)` gives, each below `n`, on `keys` ids and names.
    pub fn draw(mut below: impl FnMut(u64) -> u64, keys: u64) -> Self {
        let (id, name) = (below(keys), below(keys));
        let item = Item { id, name, group: below(3) as u32, value: below(100) as i64 };
        match below(20) {
            0..4 => Self::Get(id),
            4 => Self::Named(name),
            5..8 => {
                let mut bound = |key| match below(3) {
                    0 => Bound::Unbounded,
                    1 => Bound::Included(key),
                    _ => Bound::Excluded(key),
                };
                let (low, high) = (bound(id.min(name)), bound(id.max(name)));
                let limit = if below(2) == 0 { usize::MAX } else { 1 + below(3) as usize };
                Self::Scan { low, high, backward: below(2) == 0, limit }
            }
            8 => Self::Group(item.group),
            9..12 => Self::Insert(item),
            12..15 => Self::Set { id, value: item.value },
            15..18 => Self::Update { id, item: Item { id: below(keys), ..item } },
            _ => Self::Delete(id),
        }
    }

    pub fn is_write(&self) -> bool {
        matches!(self, Self::Insert(_) | Self::Set { .. } | Self::Update { .. } | Self::Delete(_))
    }

    /// Does it in a transaction.
    pub fn run(&self, txn: &Txn<'_>) -> Outcome {
        let result = match *self {
            Self::Get(id) => return Outcome::Found(txn.get(id).into_iter().collect()),
            Self::Named(name) => return Outcome::Found(txn.named(name).into_iter().collect()),
            Self::Scan { low, high, backward, limit } => {
                let direction = if backward { Direction::Backward } else { Direction::Forward };
                return Outcome::Found(txn.scan((low, high), direction, limit));
            }
            Self::Group(group) => {
                let mut found = txn.group(group);
                found.sort_unstable();
                return Outcome::Found(found);
            }
            Self::Insert(item) => txn.insert(item),
            Self::Set { id, value } => txn.set(id, value),
            Self::Update { id, item } => txn.update(id, item),
            Self::Delete(id) => txn.delete(id),
        };
        match result {
            Ok(()) => Outcome::Done,
            Err(WriteError::NotFound) => Outcome::NotFound,
            Err(WriteError::UniqueViolation { index }) => Outcome::Taken(index),
            Err(WriteError::Conflict) => Outcome::Conflict,
            Err(error) => panic!("{self:?}: {error}"),
        }
    }

    /// Does it to the reference.
    pub fn apply(&self, state: &mut State) -> Outcome {
        match *self {
            Self::Get(id) => Outcome::Found(state.get(&id).copied().into_iter().collect()),
            Self::Named(name) => {
                Outcome::Found(state.values().find(|item| item.name == name).copied().into_iter().collect())
            }
            Self::Scan { low, high, backward, limit } => {
                let inside = |id: &u64| {
                    (match low {
                        Bound::Unbounded => true,
                        Bound::Included(low) => *id >= low,
                        Bound::Excluded(low) => *id > low,
                    }) && (match high {
                        Bound::Unbounded => true,
                        Bound::Included(high) => *id <= high,
                        Bound::Excluded(high) => *id < high,
                    })
                };
                let found = state.values().filter(|item| inside(&item.id)).copied();
                Outcome::Found(if backward { found.rev().take(limit).collect() } else { found.take(limit).collect() })
            }
            Self::Group(group) => Outcome::Found(state.values().filter(|item| item.group == group).copied().collect()),
            Self::Insert(item) => match taken(state, item, None) {
                Some(index) => Outcome::Taken(index.into()),
                None => {
                    state.insert(item.id, item);
                    Outcome::Done
                }
            },
            Self::Set { id, value } => match state.get_mut(&id) {
                Some(item) => {
                    item.value = value;
                    Outcome::Done
                }
                None => Outcome::NotFound,
            },
            Self::Update { id, item } => match (state.contains_key(&id), taken(state, item, Some(id))) {
                (false, _) => Outcome::NotFound,
                (true, Some(index)) => Outcome::Taken(index.into()),
                (true, None) => {
                    state.remove(&id);
                    state.insert(item.id, item);
                    Outcome::Done
                }
            },
            Self::Delete(id) => match state.remove(&id) {
                Some(_) => Outcome::Done,
                None => Outcome::NotFound,
            },
        }
    }
}

/// The first unique index in which a key of `item` is taken, by another item than `except`.
fn taken(state: &State, item: Item, except: Option<u64>) -> Option<&'static str> {
    let mut others = state.values().filter(|other| Some(other.id) != except);
    if others.clone().any(|other| other.id == item.id) {
        Some("items_id")
    } else {
        others.any(|other| other.name == item.name).then_some("items_name")
    }
}
