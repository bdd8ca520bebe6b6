//! Originals: blocks that another node could not regenerate, from this one's log.

use std::time::{Duration, Instant};

use freshet_base::{Lsn, Term};
use freshet_cluster::inputs::Original;
use freshet_fabric::tcp::Connection;
use freshet_log::{Log, ReadError, StoreError};
use serde::{Deserialize, Serialize};

use crate::wire::{self, Kind, Refusal, Reply};

/// How long a node waits on a connection on which it has given blocks to be asked for more, before
/// it ends it.
const IDLE: Duration = Duration::from_secs(1);

/// A block that a node is asked for, which could not be regenerated elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AskedBlock {
    /// Where it begins.
    pub at: Lsn,
    /// How many bytes it has.
    pub length: u32,
}

impl AskedBlock {
    /// Where it ends. It may name any length.
    pub fn end(self) -> Lsn {
        Lsn(self.at.0.saturating_add(self.length.into()))
    }

    /// Its bytes, from a log that ends at `end`, and whether that does not continue since the same
    /// block is missing.
    ///
    /// # Errors
    /// What is there instead.
    pub fn read(self, log: &Log, end: Lsn, stuck: impl Fn() -> bool) -> Result<Vec<u8>, Refusal> {
        let Self { at, length } = self;
        if length as usize > freshet_log::block::MAX_BLOCK {
            return Err(Refusal::Violation("no block is that long".into()));
        }
        let why = match Original::of_log(self.end(), end, stuck) {
            Original::Given => None,
            Original::Later => Some((format!("the log there ends at {end}"), true)),
            Original::Lacking => Some(("it cannot be executed again there either".to_owned(), false)),
        };
        if let Some((why, comes)) = why {
            return Err(Refusal::NoBlock { why, comes });
        }
        let mut bytes = vec![0; length as usize];
        match log.read(at, &mut bytes) {
            Ok(()) => Ok(bytes),
            // A cut came in between, or the disk has failed, which may pass.
            Err(error) => {
                let comes = !matches!(error, ReadError::Gone { .. } | ReadError::Store(StoreError::Gone { .. }));
                Err(Refusal::NoBlock { why: error.to_string(), comes })
            }
        }
    }
}

/// Sends blocks to a node that could not regenerate them, as long as it asks for some; each is what
/// `read` says.
pub(crate) fn serve_originals(mut connection: Connection, read: impl Fn(AskedBlock) -> Result<Vec<u8>, Refusal>) {
    let reply = wire::encode_first(&connection, &Reply::Originals);
    if connection.sender().send(Kind::Reply as u8, Term(0), &reply).is_err() {
        return;
    }
    loop {
        // Who asks for no more, or hangs up, has what it wanted.
        if connection.receiver().set_deadline(Some(Instant::now() + IDLE)).is_err() {
            return;
        }
        let Ok(frame) = connection.receiver().receive() else { return };
        if frame.kind != Kind::Blocks as u8 || frame.payload != 0 {
            return;
        }
        let Ok(wanted) = wire::decode::<Vec<AskedBlock>>("question", connection.receiver().immediate()) else { return };
        for block in wanted {
            let sender = connection.sender();
            let sent = match read(block) {
                Ok(bytes) => sender.write_with_imm(Kind::Piece as u8, Term(0), block.at.0, [&bytes, &[]], &[]),
                Err(refusal) => sender.send(Kind::Lacks as u8, Term(0), &wire::encode(&refusal)),
            };
            if sent.is_err() {
                return;
            }
        }
    }
}
