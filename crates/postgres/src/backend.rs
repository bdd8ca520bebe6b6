//! What a database has to offer to be spoken to: a [`Backend`], and a [`Session`] for each client.

use std::{net::SocketAddr, num::NonZeroU32, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    bell::Bell,
    copy::Client,
    message::{Bind, Types},
    out::{Described, Executed, Out},
    packet::Startup,
    parameters::Parameters,
    registry::Sessions,
    report::{Report, SqlState},
    route::{Ask, Moved, Note, Part, Served, takes_none},
    scram::Verifier,
};

/// A database, as far as its clients are concerned.
pub trait Backend: Send + Sync {
    /// What the user whom a client names has to show.
    ///
    /// A user who is not known should be treated like one whose password is wrong:
    /// `Proof::Scram(None)`.
    ///
    /// # Errors
    /// When the client is refused whatever it shows.
    fn access(&self, startup: &Startup, peer: &Peer) -> Result<Access, Report>;

    /// Opens a session for a client that has shown what was asked for, and has it served: `serve`
    /// is called once, with what the client is told at the start, and returns when the session is
    /// to end. All in the session's thread, so that a session can borrow from what lies on its
    /// stack.
    ///
    /// # Errors
    /// When there can be none: no such database, a setting that cannot be.
    fn open(&self, opening: Opening<'_>, serve: &mut dyn FnMut(&mut dyn Session, &Parameters)) -> Result<(), Report>;

    /// Who is to serve a client that has shown what was asked for.
    ///
    /// # Errors
    /// When it is refused: it wants what this node is not.
    fn route(&self, _startup: &Startup) -> Result<Served, Report> {
        Ok(Served::Here)
    }

    /// Under which conditions a client gets in that another node has let in; the proof is not asked
    /// for.
    ///
    /// # Errors
    /// When it is refused.
    fn admit_handed(&self, _startup: &Startup) -> Result<Access, Report> {
        Err(takes_none())
    }

    /// Looks which sessions are to end since what they were opened for is no more. Called now and
    /// then by a thread of the server: it must not block for long.
    fn watch(&self, _sessions: &Sessions) {}

    /// A connection was refused or ended by the server, for this reason. For a log.
    fn ended(&self, _peer: &Peer, _reason: &Report) {}

    /// A client was refused, by the rules or because of what it has shown. For a log; called before
    /// `ended`, in the connection's thread.
    fn failed_login(&self, _failure: &FailedLogin<'_>) {}

    /// A client was let in, after this number of recent failures, from there or for its role. For a
    /// log.
    fn logged_in(&self, _peer: &Peer, _startup: &Startup, _failures: u32) {}
}

/// A client that was refused.
#[derive(Clone, Copy, Debug)]
pub struct FailedLogin<'f> {
    /// Where the client connected from, and through which TLS.
    pub peer: &'f Peer,
    /// What it has sent; names in it can hold anything.
    pub startup: &'f Startup,
    /// The error that the client gets.
    pub reply: &'f Report,
    /// The reason, where the reply does not have it.
    pub why: Option<&'f str>,
    /// The delay before it is told.
    pub after: Duration,
}

/// The TLS of a connection, in OpenSSL's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// The version of TLS: `TLSv1.3`.
    pub version: &'static str,
    /// What it encrypts with: `TLS_AES_256_GCM_SHA384`.
    pub cipher: &'static str,
    /// How many bits the keys of that have.
    pub bits: i32,
}

/// How a client comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The socket, or the address, that it connects from.
    pub origin: Origin,
    /// Through which TLS it comes, if it does.
    pub encryption: Option<Encryption>,
    /// The common name of the certificate that it has shown, signed by an authority that the server
    /// trusts for clients; empty where the certificate has none.
    pub certificate: Option<Arc<str>>,
}

impl Peer {
    /// A client that has connected, and sent nothing yet.
    pub(crate) fn new(origin: Origin) -> Self {
        Self { origin, encryption: None, certificate: None }
    }
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// On this machine, connected by the Unix socket.
    Local {
        /// The user who runs it, as the system knows it.
        uid: u32,
    },
    /// Connected by TCP, from this address.
    Host(SocketAddr),
}

impl Origin {
    /// Its address, unless it is connected by the Unix socket.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Local { .. } => None,
            Self::Host(address) => Some(*address),
        }
    }
}

/// Under which conditions a user gets in.
#[derive(Clone, Debug)]
pub struct Access {
    /// What the client has to show.
    pub proof: Proof,
    /// Whether it may take one of the reserved seats.
    pub superuser: bool,
    /// What a client is told that has shown a right proof, and is refused all the same.
    pub refused: Option<Report>,
    /// How many sessions the user may have at once; none for any number.
    pub connections: Option<usize>,
    /// Why no proof will do, if so: for the log, not for the client.
    pub hopeless: Option<&'static str>,
    /// A hint for a client whose password is refused. Must be the same for all users.
    pub hint: Option<&'static str>,
}

impl Access {
    /// Access by a proof, under no other condition.
    #[must_use]
    pub fn by(proof: Proof) -> Self {
        Self { proof, superuser: false, refused: None, connections: None, hopeless: None, hint: None }
    }
}

/// What a client has to show. Where there is no verifier nothing will do, and the client does not
/// learn why.
#[derive(Clone, Debug)]
pub enum Proof {
    /// No proof is asked for.
    None,
    /// That it knows the password, by SCRAM-SHA-256.
    Scram(Option<Verifier>),
    /// The password itself. Refused without TLS.
    Password(Option<Verifier>),
}

/// A session that is to be opened.
#[derive(Debug)]
pub struct Opening<'a> {
    /// What the client has said.
    pub startup: &'a Startup,
    /// Where the client connects from, and through which TLS.
    pub peer: Peer,
    /// The session's number, which clients know as the process id of their server.
    pub pid: i32,
    /// To get the session's attention while it is idle.
    pub bell: Bell,
    /// All sessions, to cancel or terminate them.
    pub sessions: Sessions,
    /// If another node has handed it on, as which part of its client's session: then it says what
    /// it has, in [`Session::notes`].
    pub handed: Option<Part>,
}

/// How it stands with a session's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// No transaction is open: `I` in ReadyForQuery.
    Idle,
    /// A transaction is open: `T` in ReadyForQuery.
    Open,
    /// One is open that has failed: it can only be rolled back.
    Failed,
}

/// Why a statement is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its client, or somebody who may, asked for that.
    Canceled,
    /// Its session ends: terminated, or the server stops.
    Ending,
}

/// Reaches a session from another thread while it runs a statement.
pub trait Interrupt: Send + Sync {
    /// The statement that is running is to end soon, with an error (57014 as a rule), even if it
    /// waits. Must not wait for it.
    fn interrupt(&self, why: Why);

    /// Whether the statement that is running is to end, for whatever reason. Asked while its client
    /// does not read what it says, in the session's own thread.
    fn ends(&self) -> bool {
        false
    }

    /// What was asked for is void: no statement is running. Called in the session's own thread
    /// before it waits for its client; never at the same time as `interrupt`.
    fn clear(&self);
}

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its client has said so.
    Asked,
    /// Its client is gone.
    Abandoned,
    /// By an error that ends a session.
    Fatal,
    /// By somebody, or with the server.
    Killed,
}

/// One client's session. It lives in one thread. Its end is being dropped, when an open transaction
/// is to be rolled back.
///
/// Every method may write notices, settings that changed, and notifications. An error that is
/// returned is told the client, then [`Session::failed`] is called. When it is
/// [fatal](crate::Severity::Fatal) the connection ends. After an error in the extended protocol,
/// nothing is called until the client's Sync.
pub trait Session {
    /// Runs a string of statements, writing to each its result: rows if any, and how it completed.
    /// An empty string has [`Out::empty_query`] as its result. A transaction that was not begun by
    /// a statement ends here.
    ///
    /// # Errors
    /// When a statement fails. Those after it are not run.
    fn simple_query(&mut self, sql: &str, client: &mut Client<'_>) -> Result<(), Report>;

    /// Prepares a statement; the unnamed one is replaced. `types` may name less types than there
    /// are parameters.
    ///
    /// # Errors
    /// When it cannot be prepared.
    fn parse(&mut self, name: &str, sql: &str, types: Types<'_>, out: &mut Out) -> Result<(), Report>;

    /// Makes a portal: a statement with its parameters' values.
    ///
    /// # Errors
    /// When there is no such statement, or a value cannot be.
    fn bind(&mut self, bind: &Bind<'_>, out: &mut Out) -> Result<(), Report>;

    /// Says what parameters a statement takes, then what it returns.
    ///
    /// # Errors
    /// When there is no such statement.
    fn describe_statement(&mut self, name: &str, out: &mut Out) -> Result<Described, Report>;

    /// Says what a portal returns.
    ///
    /// # Errors
    /// When there is no such portal.
    fn describe_portal(&mut self, name: &str, out: &mut Out) -> Result<Described, Report>;

    /// Runs a portal, or continues with it, for this many rows.
    ///
    /// # Errors
    /// When it fails.
    fn execute(&mut self, portal: &str, limit: Option<NonZeroU32>, client: &mut Client<'_>)
    -> Result<Executed, Report>;

    /// Forgets a statement and its portals; there may be none.
    ///
    /// # Errors
    /// When that cannot be done now.
    fn close_statement(&mut self, name: &str) -> Result<(), Report>;

    /// Forgets a portal; there may be none.
    ///
    /// # Errors
    /// When that cannot be done now.
    fn close_portal(&mut self, name: &str) -> Result<(), Report>;

    /// The client's Sync: a transaction that was not begun by a statement ends, with a commit
    /// unless it has failed.
    ///
    /// # Errors
    /// When it cannot be committed.
    fn sync(&mut self, out: &mut Out) -> Result<(), Report>;

    /// The client is about to receive that the session is ready for the next statement: settings
    /// that it follows, and that have changed since they were written last, are written before.
    fn write_settings(&mut self, _out: &mut Out) {}

    /// Of a session that was handed on, before it is ready for the next statement: what has changed
    /// of that which outlives its transactions since this was called last.
    fn notes(&mut self, _notes: &mut Vec<Note>) {}

    /// It is to have what a session had on another node.
    ///
    /// # Errors
    /// When it cannot be the same.
    fn begin_again(&mut self, _moved: &Moved, _out: &mut Out) -> Result<(), Report> {
        Ok(())
    }

    /// Of a session that was handed on, between transactions: its client has worked on another
    /// node, and it is to have what was changed there. Blocks until the node shows what it must.
    ///
    /// # Errors
    /// When it cannot be so, or takes too long.
    fn catch_up(&mut self, _ask: &Ask, _out: &mut Out) -> Result<(), Report> {
        Ok(())
    }

    /// Of a session that was handed on and ends in the middle of what was said since the last Sync
    /// or query: whether anything of that was begun. If not, it is said again elsewhere.
    fn has_begun(&self) -> bool {
        true
    }

    /// What has come of a message that is not whole yet is about to take this many bytes; zero when
    /// it is whole, or was passed over.
    ///
    /// # Errors
    /// When there is no memory for it: the message is passed over.
    fn keeps_input(&mut self, _bytes: usize) -> Result<(), Report> {
        Ok(())
    }

    /// Something has failed, in a method of the session or before it was called: a transaction that
    /// was begun by a statement is failed from now on, any other is rolled back. `why` is what the
    /// client was told.
    fn failed(&mut self, why: &Report);

    /// It ends, and is not called again.
    fn ends(&mut self, _how: Ending) {}

    /// How it stands with the transaction.
    fn status(&self) -> TransactionStatus;

    /// By what the session is interrupted. Asked for once.
    fn interrupt(&self) -> Arc<dyn Interrupt>;

    /// How long the client may leave the session idle, as it stands now. Asked for each time the
    /// session begins to be idle; costs a system call more when there is such a limit.
    fn idle_limit(&self) -> Option<Duration> {
        None
    }

    /// The limit has passed. The connection ends with what is returned if that is fatal; otherwise
    /// it is an error of the messages that have come since the last Sync. Without, the session
    /// stays idle for as long again.
    fn idle_too_long(&mut self) -> Option<Report> {
        Some(idle_report(self.status()))
    }

    /// The session's bell was rung: it may write notifications, notices, settings. Called while it
    /// is idle.
    ///
    /// # Errors
    /// With which the connection ends.
    fn rung(&mut self, _out: &mut Out) -> Result<(), Report> {
        Ok(())
    }

    /// Whether the session calls [`Out::flush_owed`] before whatever may take long. Then answers to
    /// several Syncs that came together are written together; otherwise each is written at once.
    fn flushes(&self) -> bool {
        false
    }
}

/// What a client is told whose session was idle for too long.
#[must_use]
pub fn idle_report(status: TransactionStatus) -> Report {
    match status {
        TransactionStatus::Idle => {
            Report::fatal(SqlState::IDLE_SESSION, "terminating connection due to idle-session timeout")
        }
        TransactionStatus::Open | TransactionStatus::Failed => {
            let message = "terminating connection due to idle-in-transaction timeout";
            Report::fatal(SqlState::IDLE_IN_TRANSACTION, message)
        }
    }
}
