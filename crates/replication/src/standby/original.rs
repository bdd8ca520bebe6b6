//! Original: the bytes of blocks that this node could not regenerate, from a node that has them.
//!
//! The node that has given a block last is asked alone, at first the one that is followed. If it
//! does not give the next one, all others are asked at once, as by a candidate
//! ([`crate::takeover`]). What comes must be the block with the header that the form says.

use std::{collections::BTreeMap, sync::Weak, time::Duration};

use freshet_base::{Stamp, Term};
use freshet_fabric::tcp::Connection;
use freshet_log::{Block, BlockHeader, ReadError, StoreError};
use freshet_membership::Credentials;

use super::{
    Shared,
    introduce::{Follows, violation},
    receive::SessionError,
};
use crate::{
    endpoint::{CallError, ask, connect, refuse},
    forms::Missing,
    takeover::ask_all,
    wire::{self, Hello, Kind, Purpose, Refusal, Reply},
};

/// Which blocks were asked for, and not found.
#[derive(Debug, Default)]
pub(super) struct Originals {
    /// How often a block was asked for.
    asked: u64,
    /// Those that were not found when they were asked for last, and which asking that was.
    missing: BTreeMap<Stamp, (u64, Missing)>,
    /// The node that has given a block last.
    giver: Option<String>,
}

impl Originals {
    /// How often a block was asked for.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// The first block that was not found, if that was asked for when `asked` askings had begun.
    pub fn missing_since(&self, asked: u64) -> Option<&Missing> {
        self.missing.values().find(|(number, _)| *number >= asked).map(|(_, missing)| missing)
    }

    /// The first block that was not found.
    pub fn missing(&self) -> Option<&Missing> {
        self.missing_since(0)
    }

    /// Whether the block at `at` was not found.
    pub fn lacks(&self, at: Stamp) -> bool {
        self.missing.contains_key(&at)
    }

    /// The log is complete up to `to`.
    pub fn completed(&mut self, to: Stamp) {
        while self.missing.first_entry().is_some_and(|first| *first.key() < to) {
            self.missing.pop_first();
        }
    }

    /// The log was cut at `at`.
    pub fn cut(&mut self, at: Stamp) {
        self.missing.split_off(&at);
    }

    /// What has come of an asking. Returns whether that is news.
    fn heard(&mut self, number: u64, outcome: &Result<Given, Missing>, at: Stamp) -> bool {
        match outcome {
            Ok(given) => {
                self.giver = Some(given.by.clone());
                self.missing.remove(&at);
                false
            }
            Err(missing) => self.missing.insert(at, (number, missing.clone())).is_none(),
        }
    }
}

/// A block that came.
struct Given {
    by: String,
    bytes: Vec<u8>,
}

/// Why a block did not come from a node.
struct Refused {
    /// What it said, or what happened on the way.
    said: String,
    /// Whether it may come from there later.
    later: bool,
}

/// One asking. It holds nothing of the standby, which may stop in the meantime.
struct Asking {
    number: u64,
    /// Where other nodes are, the likeliest giver first.
    addresses: Vec<String>,
    credentials: Credentials,
    hello: Hello,
    term: Term,
    patience: Duration,
}

/// The block with this header.
pub(super) fn original(of: &Weak<Shared>, header: &BlockHeader) -> Result<Vec<u8>, Missing> {
    let ended = || Missing { at: header.stamp, nowhere: false, said: Vec::new() };
    let asking = Asking::begin(&*of.upgrade().ok_or_else(ended)?, header);
    let outcome = asking.ask(header);
    let shared = of.upgrade().ok_or_else(ended)?;
    let is_news = shared.state().originals.heard(asking.number, &outcome, header.stamp);
    if let Err(missing) = &outcome {
        if is_news {
            tracing::warn!(cause = %missing, "this standby lacks a block, and asks for it again");
        }
        // Threads that wait until all is complete may give up.
        shared.changed.notify_all();
    }
    outcome.map(|given| given.bytes)
}

impl Asking {
    fn begin(shared: &Shared, header: &BlockHeader) -> Self {
        let upstream = shared.follow.upstream();
        let mut state = shared.state();
        state.originals.asked += 1;
        let number = state.originals.asked - 1;
        let known = state.peers.iter().map(|peer| peer.address.clone());
        let mut addresses: Vec<String> = Vec::new();
        for address in state.originals.giver.clone().into_iter().chain(upstream).chain(known) {
            if address != shared.address && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        drop(state);
        let (at, length) = (header.stamp, header.length);
        Self {
            number,
            addresses,
            credentials: shared.credentials.clone(),
            hello: shared.hello(Purpose::Original { at, length }),
            term: shared.terms.get().fence.highest(),
            patience: shared.config.patience,
        }
    }

    fn ask(&self, header: &BlockHeader) -> Result<Given, Missing> {
        let mut missing = Missing { at: header.stamp, nowhere: !self.addresses.is_empty(), said: Vec::new() };
        let (first, others) = self.addresses.split_at(self.addresses.len().min(1));
        for group in [first, others] {
            for (address, answer) in ask_all(group.iter(), |address| self.ask_node(address, header)) {
                match answer {
                    Ok(bytes) => return Ok(Given { by: address.clone(), bytes }),
                    Err(Refused { said, later }) => {
                        missing.nowhere &= !later;
                        missing.said.push((address.clone(), said));
                    }
                }
            }
        }
        Err(missing)
    }

    fn ask_node(&self, address: &str, header: &BlockHeader) -> Result<Vec<u8>, Refused> {
        let bytes = self.fetch(address, header).map_err(|error| match error {
            SessionError::Call(CallError::Refused { refusal: Refusal::NoBlock { why, comes }, .. }) => {
                Refused { said: why, later: comes }
            }
            // It may be reached later, or answer.
            error => Refused { said: error.to_string(), later: true },
        })?;
        match Block::parse(&bytes, header.stamp) {
            Ok(found) if found.header() == header && bytes.len() == header.length as usize => Ok(bytes),
            _ => Err(Refused { said: "its log has another block there".into(), later: false }),
        }
    }

    fn fetch(&self, address: &str, header: &BlockHeader) -> Result<Vec<u8>, SessionError> {
        let mut connection = connect(&self.credentials, address, self.patience)?;
        match ask(&mut connection, address, &self.hello, self.term)? {
            Reply::Original => {}
            _ => return Err(CallError::Unexpected { address: address.to_owned() }.into()),
        }
        let (_, mut receiver) = connection.split();
        let frame = receiver.receive()?;
        let expected = (header.stamp.0, header.length);
        if Kind::from_code(frame.kind) != Some(Kind::Piece) || (frame.address, frame.payload) != expected {
            return Err(violation("another part of the log came than was asked for".into()));
        }
        let mut bytes = vec![0; header.length as usize];
        receiver.payload_into(&mut bytes)?;
        receiver.payload_done()?;
        Ok(bytes)
    }
}

/// Sends a block to a node that could not regenerate it, and ends the connection. The log here ends
/// at `end`; `stuck`: and does not continue, since the same block is missing.
pub(crate) fn serve_original(
    mut connection: Connection,
    (at, length): (Stamp, u32),
    (end, stuck): (Stamp, bool),
    read: impl Fn(Stamp, &mut [u8]) -> Result<(), ReadError>,
) {
    if length as usize > freshet_log::block::MAX_BLOCK {
        return refuse(connection, Refusal::Violation("no block is that long".into()));
    }
    if u64::from(length) > end.since(at) {
        let why = match stuck {
            true => "it cannot be executed again there either".to_owned(),
            false => format!("the log there ends at {end}"),
        };
        return refuse(connection, Refusal::NoBlock { why, comes: !stuck });
    }
    let mut bytes = vec![0; length as usize];
    if let Err(error) = read(at, &mut bytes) {
        // A cut came in between, or the disk has failed, which may pass.
        let comes = !matches!(error, ReadError::Gone { .. } | ReadError::Store(StoreError::Gone { .. }));
        return refuse(connection, Refusal::NoBlock { why: error.to_string(), comes });
    }
    let reply = wire::encode_first(&Reply::Original);
    if connection.sender().send(Kind::Reply as u8, Term(0), &reply).is_err() {
        return;
    }
    let (mut sender, mut receiver) = connection.split();
    if sender.write_with_imm(Kind::Piece as u8, Term(0), at.0, [&bytes, &[]], &[]).is_ok() {
        // The other side hangs up when it has it.
        while receiver.receive().is_ok_and(|header| header.payload == 0) {}
    }
}
