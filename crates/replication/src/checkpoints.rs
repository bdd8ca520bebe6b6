//! Giving a checkpoint to a node that is about to join with an empty directory (Query Fresh,
//! section 3.4.4), so that it needs only the log since then.
//!
//! The one who connects says [`Purpose::Checkpoint`](crate::wire::Purpose). The answer is
//! [`Reply::Checkpoint`], if need be after some [`Reply::Working`], or a refusal; then come the
//! manifest and the files that it names, in its order, piece by piece ([`Kind::Piece`]): address is
//! the offset, the immediate value a [`PieceNote`].

use std::{
    io::{self, Read},
    sync::mpsc,
    thread,
    time::Duration,
};

use freshet_base::{Lsn, Term};
use freshet_cluster::term::TermState;
use freshet_fabric::tcp::{Closer, Connection};
use freshet_membership::Credentials;
use serde::{Deserialize, Serialize};

pub use crate::wire::KnownLog;
use crate::{
    endpoint::{CallError, answer, ask, connect, read_reply, refuse},
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
    /// Where it ends, as far as is known.
    pub end: Lsn,
    /// The manifest's bytes.
    pub manifest: Vec<u8>,
    /// Its files, in the manifest's order; and one more with another manifest, if the first is not
    /// complete.
    pub files: Vec<Box<dyn Read + Send>>,
    /// Keeps whatever must be kept until all is sent.
    pub hold: Box<dyn std::any::Any + Send>,
}

impl std::fmt::Debug for OpenCheckpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenCheckpoint(to {}, {} files)", self.end, self.files.len())
    }
}

/// Why a checkpoint was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The other node cannot be asked, or refuses.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The connection ended.
    #[error(
        "{0}: the node that gives the checkpoint was lost, stops, or starts again in another role, as after a \
         switch-over; fetch it again, or from another node"
    )]
    Receive(#[from] freshet_fabric::tcp::ReceiveError),
    /// What came fits nothing.
    #[error("{address} sent something that does not belong to a checkpoint: {what}")]
    Violation {
        /// Who.
        address: String,
        /// What came.
        what: String,
    },
    /// It could not be kept.
    #[error("cannot store the checkpoint: {0}")]
    Keep(String),
}

/// How often the other side is sent that a checkpoint is still being written.
const STILL_WORKING: Duration = Duration::from_secs(1);

/// Waits for `open` to give what to send, and lets the other side know in between; then sends the
/// checkpoint and ends the connection. `state` gives what the sender remembers of terms, once there
/// is a checkpoint. Without one, the other side receives that answer.
pub fn serve(
    mut connection: Connection,
    open: impl FnOnce() -> Result<Option<OpenCheckpoint>, String> + Send,
    state: impl FnOnce() -> TermState,
) {
    let (done, answer_comes) = mpsc::channel();
    let opened = thread::scope(|scope| {
        scope.spawn(move || done.send(open()));
        loop {
            match answer_comes.recv_timeout(STILL_WORKING) {
                Ok(opened) => return opened,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    // If it has gone, that shows when there is something to send.
                    let working = wire::encode_first(&connection, &Reply::Working);
                    let _ = connection.sender().send(Kind::Reply as u8, Term(0), &working);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err("a bug: see this node's output".to_owned()),
            }
        }
    });
    match opened {
        Ok(Some(open)) => send(connection, open, &state()),
        Ok(None) => answer(connection, Term(0), &Reply::NoCheckpoint),
        Err(why) => refuse(connection, Refusal::Failed(why)),
    }
}

fn send(mut connection: Connection, open: OpenCheckpoint, state: &TermState) {
    let term = Term(0);
    let reply = Reply::Checkpoint { known: KnownLog::of(state, open.end), files: open.files.len() as u32 };
    let reply = wire::encode_first(&connection, &reply);
    if connection.sender().send(Kind::Reply as u8, term, &reply).is_err() {
        return;
    }
    let manifest: &[u8] = &open.manifest;
    let mut sources: Vec<Box<dyn Read>> = vec![Box::new(manifest)];
    sources.extend(open.files.into_iter().map(|file| file as Box<dyn Read>));
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

/// Who takes a checkpoint in.
pub trait Keeper {
    /// A checkpoint comes. Its giver knows this of its log.
    ///
    /// # Errors
    /// Why it is not wanted.
    fn begin(&mut self, known: KnownLog) -> Result<(), String>;

    /// The next bytes of a file, and whether they are its last. The manifest comes first, as
    /// number 0.
    ///
    /// # Errors
    /// Why they cannot be kept.
    fn keep(&mut self, file: u32, bytes: &[u8], last: bool) -> Result<(), String>;
}

/// Fetches a checkpoint of the node at `address`; `hello` says which. Returns whether there was
/// one. While the other node writes one, that may take long; else it may be silent no longer than
/// `patience`. `connected` gets what ends the connection, before anything is asked.
///
/// # Errors
/// See [`FetchError`].
pub fn fetch(
    credentials: &Credentials,
    address: &str,
    hello: &Hello,
    patience: Duration,
    connected: impl FnOnce(Closer),
    keeper: &mut dyn Keeper,
) -> Result<bool, FetchError> {
    let mut connection = connect(credentials, address, patience)?;
    connected(connection.closer());
    let mut reply = ask(&mut connection, address, hello, Term(0))?;
    let violation = |what: String| FetchError::Violation { address: address.to_owned(), what };
    let (known, files) = loop {
        match reply {
            Reply::Checkpoint { known, files } => break (known, files),
            Reply::NoCheckpoint => return Ok(false),
            Reply::Working => {
                reply = read_reply(&mut connection, address).map_err(|cause| match cause {
                    CallError::Receive(cause) => FetchError::Receive(cause),
                    cause => FetchError::Call(cause),
                })?;
            }
            _ => return Err(CallError::Unexpected { address: address.to_owned() }.into()),
        }
    };
    keeper.begin(known).map_err(FetchError::Keep)?;
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
            keeper.keep(file, &piece[..length], note.last).map_err(FetchError::Keep)?;
            at += length as u64;
            if note.last {
                break;
            }
        }
    }
    Ok(true)
}
