//! The primary's end of a hop: a session whose client another node has let in.

use std::{
    io,
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::Connection;

use super::{Ask, Handed, LONGEST, Moved, NOTE, Note};
use crate::{
    backend::{Peer, Session},
    copy::Client,
    input::Input,
    out::Out,
    registry::{Registry, Seat, Wanted},
    report::{Report, SqlState},
    server::{Shared, begin_handed},
    start_up::End,
    transport::Received,
};

/// What says who the client is has this length at most: a start-up packet, and what was moved.
const LONGEST_HANDED: usize = LONGEST + (1 << 20);
/// The beginning of a message says how long the rest is.
const LENGTH: usize = 4;

/// Which session another node hands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandedOn {
    /// The number that it has there, and is to have here if that is free.
    pub pid: i32,
    /// What that node calls itself.
    pub node: u64,
    /// Whether it is this one, where the client has its seat.
    pub own: bool,
}

/// Serves sessions that other nodes hand on, among those of a server.
#[derive(Clone)]
pub struct Takes {
    pub(crate) shared: Arc<Shared>,
    pub(crate) registry: Arc<Registry>,
}

impl std::fmt::Debug for Takes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Takes").finish_non_exhaustive()
    }
}

impl Takes {
    /// Serves a session on this connection, in a thread of its own. `ahead` came of it already. A
    /// member of the cluster must be at the other end: it is believed who the client is.
    ///
    /// # Errors
    /// When the system has no more, or the server ends.
    pub fn serve(&self, socket: TcpStream, tls: Option<Connection>, ahead: Vec<u8>, hop: HandedOn) -> io::Result<()> {
        if self.registry.is_crowded(&self.shared.limits) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        begin_handed(self, socket, tls, ahead, hop)
    }

    /// Ends the sessions that have been handed on by nodes for which this is true.
    pub fn end_those_of(&self, is_gone: impl Fn(u64) -> bool) {
        self.registry.end_handed_on(is_gone);
    }

    /// Cancels what the session with this number does, if the key is right; says whether it was.
    #[must_use]
    pub fn cancel(&self, pid: i32, key: &[u8]) -> bool {
        self.registry.cancel(pid, key)
    }
}

/// Reads whose session it is, and gives it a seat.
pub(crate) fn admit(shared: &Shared, seat: &Seat, input: &mut Input, out: &mut Out, own: bool) -> Result<Handed, End> {
    let deadline = Instant::now() + shared.limits.start_up.min(Duration::from_secs(60));
    let mut fill = |input: &mut Input, count: usize| {
        while input.bytes().len() < count {
            if !matches!(input.fill(out.transport(), Some(deadline), None), Received::Bytes(_)) {
                return Err(End::Quiet);
            }
        }
        Ok(())
    };
    fill(input, LENGTH)?;
    let length = input.bytes().first_chunk().map_or(0, |length| u32::from_be_bytes(*length)) as usize;
    let nonsense = || End::Reported(Report::violation("a session is handed on that makes no sense"));
    if length > LONGEST_HANDED {
        return Err(nonsense());
    }
    fill(input, LENGTH + length)?;
    let handed: Handed = postcard::from_bytes(&input.bytes()[LENGTH..LENGTH + length]).map_err(|_| nonsense())?;
    input.consume(LENGTH + length);
    if handed.startup.user().is_empty() {
        return Err(nonsense());
    }
    let access = shared.backend.admit_handed(&handed.startup).map_err(End::Reported)?;
    if let Some(reply) = access.refused {
        return Err(End::Reported(reply));
    }
    let user = handed.startup.user();
    let wanted = Wanted { user, superuser: access.superuser, connections: access.connections, covered: own };
    seat.take(&wanted, &shared.limits).map_err(End::Reported)?;
    Ok(handed)
}

impl Handed {
    /// Its client.
    pub(crate) fn peer(&self) -> Peer {
        Peer::new(self.origin)
    }
}

/// Gives a session what it had on another primary. The client gets nothing of what it writes for
/// that.
pub(crate) fn begin_again(
    session: &mut dyn Session,
    moved: &Moved,
    failed: bool,
    client: &mut Client<'_>,
) -> Result<(), Report> {
    let mark = client.mark();
    session.begin_again(moved, client).map_err(|report| {
        let message = format!("this session cannot go on with another primary: {}", report.message());
        Report::fatal(SqlState::ADMIN_SHUTDOWN, message)
    })?;
    if failed {
        session.simple_query("BEGIN", client)?;
        // Such a savepoint is never there.
        if let Err(report) = session.simple_query("ROLLBACK TO SAVEPOINT lost_with_its_primary", client) {
            session.failed(&report);
        }
    }
    client.rewind(mark);
    Ok(())
}

/// What a session is asked for before it continues; none when that makes no sense.
pub(crate) fn read_ask(body: &[u8]) -> Option<Ask> {
    postcard::from_bytes(body).ok()
}

/// Says to the node in the middle what has changed of a session.
pub(crate) fn write_note(note: &Note, out: &mut Out) {
    let Ok(encoded) = postcard::to_allocvec(note) else { return };
    let mut message = out.begin(NOTE);
    message.bytes(&encoded);
    message.end();
}
