//! Originals: the bytes of blocks that this node could not regenerate, from a node that has them.
//!
//! The node that has given blocks last is asked alone, at first the one that is followed, for as
//! many at once as are wanted, and on one connection, which is kept while blocks are wanted. What
//! it does not give all others are asked for at once, as by a candidate ([`crate::promotion`]).
//! What comes must be the block with the header that the form says.

use std::{collections::BTreeMap, sync::Weak, time::Duration};

use freshet_base::{Lsn, Term};
use freshet_fabric::tcp::Connection;
use freshet_log::{Block, BlockHeader};
use freshet_membership::Credentials;

use super::Shared;
use crate::{
    endpoint::{CallError, ask, connect},
    follow::{SessionError, violation},
    forms::{Missing, Wanted},
    originals::AskedBlock,
    promotion::ask_all,
    wire::{self, Hello, Kind, Purpose, Refusal, Reply},
};

/// Which blocks were asked for, and not found.
#[derive(Debug, Default)]
pub(crate) struct Originals {
    /// How often blocks were asked for.
    asked: u64,
    /// Those that were not found when they were asked for last, and which asking that was.
    missing: BTreeMap<Lsn, (u64, Missing)>,
    /// The node that has given a block last.
    giver: Option<String>,
    /// The connection to it, on which it can be asked for more.
    kept: Option<Connection>,
    /// How many connections were made to ask for blocks.
    connections: u64,
}

impl Originals {
    /// How often a block was asked for.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// How many connections were made to ask.
    #[cfg_attr(not(test), expect(dead_code, reason = "for tests"))]
    pub fn connections(&self) -> u64 {
        self.connections
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
    pub fn lacks(&self, at: Lsn) -> bool {
        self.missing.contains_key(&at)
    }

    /// The log is complete up to `to`.
    pub fn completed(&mut self, to: Lsn) {
        while self.missing.first_entry().is_some_and(|first| *first.key() < to) {
            self.missing.pop_first();
        }
    }

    /// The log was cut at `at`.
    pub fn cut(&mut self, at: Lsn) {
        self.missing.split_off(&at);
    }

    /// What has come of an asking for a block. Returns whether that is news.
    fn observe(&mut self, number: u64, outcome: &Result<Vec<u8>, Missing>, wanted: &Wanted) -> bool {
        let at = wanted.header.lsn;
        match outcome {
            Ok(_) => {
                self.missing.remove(&at);
                false
            }
            Err(missing) => wanted.lacking && self.missing.insert(at, (number, missing.clone())).is_none(),
        }
    }
}

/// Why a block did not come from a node.
#[derive(Clone)]
struct Refused {
    /// What it answered, or what happened on the way.
    why: String,
    /// Whether it may come from there later.
    later: bool,
}

/// What a node has answered, for each of the blocks that it was asked for.
type Answers = Vec<Result<Vec<u8>, Refused>>;

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

/// What has come of an asking.
struct Asked {
    outcomes: Vec<Result<Vec<u8>, Missing>>,
    /// Who has given a block, and the connection to it.
    giver: Option<(String, Option<Connection>)>,
    connections: u64,
}

/// The blocks with these headers.
pub(crate) fn originals(of: &Weak<Shared>, wanted: &[Wanted]) -> Vec<Result<Vec<u8>, Missing>> {
    let ended = || {
        let ended = |wanted: &Wanted| Err(Missing { at: wanted.header.lsn, nowhere: false, answers: Vec::new() });
        wanted.iter().map(ended).collect()
    };
    let Some(shared) = of.upgrade() else { return ended() };
    let (asking, kept) = Asking::begin(&shared);
    drop(shared);
    let headers: Vec<&BlockHeader> = wanted.iter().map(|wanted| &wanted.header).collect();
    let Asked { outcomes, giver, connections } = asking.ask(&headers, kept);
    let Some(shared) = of.upgrade() else { return ended() };
    let mut news = None;
    {
        let mut state = shared.state();
        state.originals.connections += connections;
        if let Some((giver, connection)) = giver {
            (state.originals.giver, state.originals.kept) = (Some(giver), connection);
        }
        for (wanted, outcome) in wanted.iter().zip(&outcomes) {
            let is_news = state.originals.observe(asking.number, outcome, wanted);
            news = news.or(outcome.as_ref().err().filter(|_| is_news));
        }
    }
    if let Some(missing) = news {
        tracing::warn!(cause = %missing, "this standby lacks a block, and asks for it again");
    }
    if outcomes.iter().any(Result::is_err) {
        // Threads that wait until all is complete may give up.
        shared.store.changed.notify_all();
    }
    outcomes
}

impl Asking {
    /// With the connection that was kept.
    fn begin(shared: &Shared) -> (Self, Option<Connection>) {
        let upstream = shared.follow.upstream();
        let known = shared.peers().into_iter().map(|peer| peer.address);
        let mut state = shared.state();
        state.originals.asked += 1;
        let number = state.originals.asked - 1;
        let kept = state.originals.kept.take();
        let mut addresses: Vec<String> = Vec::new();
        for address in state.originals.giver.clone().into_iter().chain(upstream).chain(known) {
            if address != shared.address() && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        drop(state);
        let asking = Self {
            number,
            addresses,
            credentials: shared.who.credentials.clone(),
            hello: shared.hello(Purpose::Originals),
            term: shared.terms.fence().highest(),
            patience: shared.config.patience,
        };
        (asking, kept)
    }

    fn ask(&self, headers: &[&BlockHeader], mut kept: Option<Connection>) -> Asked {
        let mut nowhere = vec![freshet_cluster::inputs::Asked::new(!self.addresses.is_empty()); headers.len()];
        let missing = |header: &&BlockHeader| Err(Missing { at: header.lsn, nowhere: false, answers: Vec::new() });
        let mut asked = Asked { outcomes: headers.iter().map(missing).collect(), giver: None, connections: 0 };
        let (first, others) = self.addresses.split_at(self.addresses.len().min(1));
        for group in [first, others] {
            let left: Vec<usize> = (0..headers.len()).filter(|place| asked.outcomes[*place].is_err()).collect();
            if left.is_empty() {
                break;
            }
            let wanted: Vec<&BlockHeader> = left.iter().map(|place| headers[*place]).collect();
            let kept = std::sync::Mutex::new(kept.take());
            let answers = ask_all(group.iter(), |address| {
                // It was kept for the first node, which is asked alone.
                let kept = kept.lock().ok().and_then(|mut kept| kept.take());
                self.ask_node(address, &wanted, kept)
            });
            for (address, (answers, connection, connected)) in answers {
                asked.connections += u64::from(connected);
                if asked.giver.is_none() && answers.iter().any(Result::is_ok) {
                    asked.giver = Some((address.clone(), connection));
                }
                for (place, answer) in left.iter().zip(answers) {
                    match (&mut asked.outcomes[*place], answer) {
                        (Ok(_), _) => {}
                        (outcome, Ok(bytes)) => *outcome = Ok(bytes),
                        (Err(missing), Err(Refused { why, later })) => {
                            nowhere[*place].lacks(later);
                            missing.answers.push((address.clone(), why));
                        }
                    }
                }
            }
        }
        for (outcome, nowhere) in asked.outcomes.iter_mut().zip(nowhere) {
            if let Err(missing) = outcome {
                missing.nowhere = nowhere.is_nowhere();
            }
        }
        asked
    }

    /// What one node says, the connection to it if it can be used again, and whether that was made
    /// here.
    fn ask_node(
        &self,
        address: &str,
        headers: &[&BlockHeader],
        kept: Option<Connection>,
    ) -> (Answers, Option<Connection>, bool) {
        let mut answers = Answers::new();
        if let Some(mut connection) = kept {
            match self.converse(&mut connection, address, headers, &mut answers) {
                Ok(()) => return (answers, Some(connection), false),
                // It has ended since: what was kept says nothing about the node.
                Err(_) if answers.is_empty() => {}
                Err(error) => {
                    unanswered(&mut answers, headers.len(), &error);
                    return (answers, None, false);
                }
            }
        }
        let conversed = self.connect(address).and_then(|mut connection| {
            self.converse(&mut connection, address, headers, &mut answers)?;
            Ok(connection)
        });
        let connection = conversed.map_err(|error| unanswered(&mut answers, headers.len(), &error)).ok();
        (answers, connection, true)
    }

    fn connect(&self, address: &str) -> Result<Connection, SessionError> {
        let mut connection = connect(&self.credentials, address, self.patience)?;
        match ask(&mut connection, address, &self.hello, self.term)? {
            Reply::Originals => Ok(connection),
            _ => Err(CallError::Unexpected { address: address.to_owned() }.into()),
        }
    }

    /// Asks for blocks on a connection, and hears what comes.
    fn converse(
        &self,
        connection: &mut Connection,
        address: &str,
        headers: &[&BlockHeader],
        answers: &mut Answers,
    ) -> Result<(), SessionError> {
        let wanted: Vec<AskedBlock> =
            headers.iter().map(|header| AskedBlock { at: header.lsn, length: header.length }).collect();
        connection.sender().send(Kind::Blocks as u8, self.term, &wire::encode(&wanted)).map_err(CallError::from)?;
        let receiver = connection.receiver();
        for header in headers {
            let frame = receiver.receive()?;
            match (Kind::from_code(frame.kind), frame.payload) {
                (Some(Kind::Lacks), 0) => {
                    let refusal = wire::decode::<Refusal>("answer", receiver.immediate());
                    let refusal =
                        refusal.map_err(|source| CallError::Decode { address: address.to_owned(), source })?;
                    answers.push(Err(match refusal {
                        Refusal::NoBlock { why, comes } => Refused { why, later: comes },
                        other => Refused { why: other.to_string(), later: true },
                    }));
                }
                (Some(Kind::Piece), length) if (frame.address, length) == (header.lsn.0, header.length) => {
                    let mut bytes = vec![0; length as usize];
                    receiver.payload_into(&mut bytes)?;
                    receiver.payload_done()?;
                    answers.push(match Block::parse(&bytes, header.lsn) {
                        Ok(found) if found.header() == *header => Ok(bytes),
                        _ => Err(Refused { why: "its log has another block there".into(), later: false }),
                    });
                }
                _ => return Err(violation("another part of the log came than was asked for".into())),
            }
        }
        Ok(())
    }
}

/// Why nothing came behind what was answered, for each of the rest of `count` blocks.
fn unanswered(answers: &mut Answers, count: usize, error: &SessionError) {
    // The node may be reached later, or answer.
    let why = error.to_string();
    answers.resize_with(count, || Err(Refused { why: why.clone(), later: true }));
}
