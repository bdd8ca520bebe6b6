//! Giving a checkpoint to a node that is about to join with an empty directory (Query Fresh, section 3.4.4), so that it needs
//! only the log since then.
//!
//! The one who connects says [`Purpose::Checkpoint`]. The answer is [`Reply::Checkpoint`], or a refusal; then come the
//! manifest and the files that it names, in its order, piece by piece ([`Kind::Piece`]): address is the offset, the
//! immediate value a [`PieceNote`].

use std::{
    fs::File,
    io::{self, Read},
};

use freshet_base::{Stamp, Term};
use freshet_cluster::term::TermHistory;
use freshet_fabric::tcp::Connection;
use serde::{Deserialize, Serialize};

use crate::{
    endpoint::{CallError, call, refuse},
    wire::{self, Hello, Kind, Refusal, Reply},
};

/// Bytes of a piece.
const PIECE: usize = 1 << 20;

/// What a piece belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PieceNote {
    /// Which file; the manifest is number 0.
    pub(crate) file: u32,
    /// Whether the file ends with this piece.
    pub(crate) last: bool,
}

/// A checkpoint, opened so that its files stay even if they are removed meanwhile.
pub struct OpenCheckpoint {
    /// Where it begins.
    pub start: Stamp,
    /// The manifest's bytes.
    pub manifest: Vec<u8>,
    /// Its files, in the manifest's order.
    pub files: Vec<File>,
    /// Keeps whatever must be kept until all is sent.
    pub hold: Box<dyn std::any::Any + Send>,
}

impl std::fmt::Debug for OpenCheckpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenCheckpoint({}, {} files)", self.start, self.files.len())
    }
}

/// Why a checkpoint was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The other node cannot be asked, or refuses.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The connection ended.
    #[error(transparent)]
    Receive(#[from] freshet_fabric::tcp::ReceiveError),
    /// What came fits nothing.
    #[error("{address} sent something that is no part of a checkpoint: {what}")]
    Violation {
        /// Who.
        address: String,
        /// What came.
        what: String,
    },
    /// It could not be kept.
    #[error("the checkpoint cannot be kept here: {0}")]
    Keep(String),
}

/// Sends a checkpoint and ends the connection. `history` are the sender's terms.
pub fn serve(mut connection: Connection, term: Term, history: TermHistory, open: Result<OpenCheckpoint, String>) {
    let open = match open {
        Ok(open) => open,
        Err(why) => return refuse(connection, Refusal::Failed(why)),
    };
    // History that the receiver's log will not have is none of its own.
    let reply = Reply::Checkpoint { history: history.cut(open.start), files: open.files.len() as u32 };
    if connection.sender().send(Kind::Reply as u8, term, &wire::encode_first(&reply)).is_err() {
        return;
    }
    let manifest: &[u8] = &open.manifest;
    let mut sources: Vec<Box<dyn Read>> = vec![Box::new(manifest)];
    sources.extend(open.files.into_iter().map(|file| Box::new(file) as Box<dyn Read>));
    let mut piece = vec![0; PIECE];
    for (file, source) in sources.iter_mut().enumerate() {
        let mut at = 0;
        loop {
            // If it cannot be read, the other side notices that the connection ends too early.
            let Ok(length) = fill(source, &mut piece) else { return };
            let note = PieceNote { file: file as u32, last: length < PIECE };
            let payload: [&[u8]; 2] = [&piece[..length], &[]];
            let sent = connection.sender().write_with_imm(Kind::Piece as u8, term, at, payload, &wire::encode(&note));
            if sent.is_err() {
                return;
            }
            at += length as u64;
            if note.last {
                break;
            }
        }
    }
    // The receiver hangs up when it has everything.
    let _ = connection.receiver().receive();
    drop(open.hold);
}

fn fill(source: &mut dyn Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match source.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Fetches the newest checkpoint of the node at `address`: `keep` gets the pieces of each file (number, bytes, whether they
/// are its last), the manifest first, as number 0. Returns the sender's terms up to where the checkpoint begins; none when
/// it has no checkpoint.
///
/// # Errors
/// See [`FetchError`].
pub fn fetch(
    address: &str,
    hello: &Hello,
    patience: std::time::Duration,
    mut keep: impl FnMut(u32, &[u8], bool) -> Result<(), String>,
) -> Result<Option<TermHistory>, FetchError> {
    let (reply, mut connection) = call(address, hello, Term(0), patience)?;
    let violation = |what: String| FetchError::Violation { address: address.to_owned(), what };
    let (history, files) = match reply {
        Reply::Checkpoint { history, files } => (history, files),
        Reply::NoCheckpoint => return Ok(None),
        _ => return Err(CallError::Unexpected { address: address.to_owned() }.into()),
    };
    let mut piece = vec![0; PIECE];
    for file in 0..=files {
        let mut at = 0;
        loop {
            let header = connection.receiver().receive()?;
            let length = header.payload as usize;
            if header.kind != Kind::Piece as u8 || length > PIECE || header.address != at {
                return Err(violation(format!("a frame of kind {} for offset {}", header.kind, header.address)));
            }
            let note: PieceNote = wire::decode("piece of a checkpoint", connection.receiver().immediate())
                .map_err(|cause| violation(cause.to_string()))?;
            connection.receiver().payload_into(&mut piece[..length])?;
            connection.receiver().payload_done()?;
            if note.file != file {
                return Err(violation(format!("a piece of file {}, not {file}", note.file)));
            }
            keep(file, &piece[..length], note.last).map_err(FetchError::Keep)?;
            at += length as u64;
            if note.last {
                break;
            }
        }
    }
    Ok(Some(history))
}
