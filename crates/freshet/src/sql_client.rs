//! A small client of the PostgreSQL protocol: simple queries, values as text.

use std::{
    collections::HashMap,
    io::{self, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use thiserror::Error;

/// The longest message that is believed.
const LONGEST: usize = 256 << 20;

/// Why there is no answer, or not the one that was hoped for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SqlFailure {
    /// The server has refused it.
    #[error("{code}: {message}")]
    Server {
        /// The SQLSTATE.
        code: String,
        /// For people.
        message: String,
        /// The session has ended with it.
        fatal: bool,
    },
    /// There is no connection, or not any more, or no answer came in time: what was under way may
    /// or may not be done.
    #[error("connection lost: {0}")]
    Lost(String),
}

impl SqlFailure {
    /// Whether what was under way may be done all the same.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Lost(_) => true,
            Self::Server { code, fatal, .. } => *fatal || code == "40003" || code.starts_with("08"),
        }
    }

    /// Whether another transaction was in the way.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Server { code, .. } if code == "40001" || code == "40P01")
    }
}

impl From<io::Error> for SqlFailure {
    fn from(cause: io::Error) -> Self {
        Self::Lost(match cause.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".to_owned(),
            _ => cause.to_string(),
        })
    }
}

/// What a string of statements came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The rows of all statements, one after another; an empty text for null.
    pub rows: Vec<Vec<String>>,
    /// What each statement did.
    pub tags: Vec<String>,
}

/// A session. A wait for an answer lasts as long as its patience at most; the connection is of no
/// use after a failure that is not [`SqlFailure::Server`], or is fatal.
pub struct Session {
    stream: BufReader<UnixStream>,
    parameters: HashMap<String, String>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Connects, and does not wait for a server that stands still and has its queue full.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &address)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

impl Session {
    /// Connects and begins a session, without a password.
    pub fn open(socket: &Path, user: &str, patience: Duration) -> Result<Self, SqlFailure> {
        Self::open_with(socket, user, &[], patience)
    }

    /// The same, with settings of the session from its beginning on.
    pub fn open_with(
        socket: &Path,
        user: &str,
        settings: &[(&str, &str)],
        patience: Duration,
    ) -> Result<Self, SqlFailure> {
        let stream = connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut session = Self { stream: BufReader::new(stream), parameters: HashMap::new() };
        let mut body = (3_u32 << 16).to_be_bytes().to_vec();
        for (name, value) in [&[("user", user)], settings].concat() {
            body.extend(format!("{name}\0{value}\0").as_bytes());
        }
        body.push(0);
        session.send(None, &body)?;
        session.answer()?;
        Ok(session)
    }

    /// From now on waits so long at most for an answer.
    pub fn wait_for(&mut self, patience: Duration) -> Result<(), SqlFailure> {
        Ok(self.stream.get_ref().set_read_timeout(Some(patience))?)
    }

    /// Runs statements.
    pub fn run(&mut self, sql: &str) -> Result<Reply, SqlFailure> {
        self.send(Some(b'Q'), format!("{sql}\0").as_bytes())?;
        self.answer()
    }

    /// What the server has last reported a setting to be.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// Whether the server takes writers, as far as it has said.
    pub fn takes_writers(&self) -> bool {
        self.parameter("in_hot_standby") == Some("off")
    }

    fn send(&mut self, kind: Option<u8>, body: &[u8]) -> Result<(), SqlFailure> {
        let mut message = Vec::with_capacity(body.len() + 5);
        message.extend(kind);
        message.extend_from_slice(&u32::try_from(body.len() + 4).unwrap_or(u32::MAX).to_be_bytes());
        message.extend_from_slice(body);
        Ok(self.stream.get_mut().write_all(&message)?)
    }

    fn receive(&mut self) -> Result<(u8, Vec<u8>), SqlFailure> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = (u32::from_be_bytes(length) as usize).checked_sub(4).filter(|length| *length <= LONGEST);
        let length = length.ok_or_else(|| SqlFailure::Lost("a message without sense".to_owned()))?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((kind, body))
    }

    /// All up to the server being ready again; the first error, if it says any.
    fn answer(&mut self) -> Result<Reply, SqlFailure> {
        let mut reply = Reply::default();
        let mut failure = None;
        loop {
            let (kind, body) = match self.receive() {
                Ok(message) => message,
                // What it said before it hung up is worth more.
                Err(lost) => return Err(failure.unwrap_or(lost)),
            };
            match kind {
                b'Z' => return failure.map_or(Ok(reply), Err),
                b'D' => reply.rows.push(row(&body).ok_or_else(|| SqlFailure::Lost("a row without sense".to_owned()))?),
                b'C' => reply.tags.push(text(body.strip_suffix(b"\0").unwrap_or(&body))),
                b'S' => {
                    let mut parts = body.split(|byte| *byte == 0);
                    if let (Some(name), Some(value)) = (parts.next(), parts.next()) {
                        self.parameters.insert(text(name), text(value));
                    }
                }
                b'E' => {
                    let field = |letter: u8| {
                        let found = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&letter));
                        found.map(|field| text(&field[1..])).unwrap_or_default()
                    };
                    let fatal = matches!(field(b'V').as_str(), "FATAL" | "PANIC");
                    failure.get_or_insert(SqlFailure::Server { code: field(b'C'), message: field(b'M'), fatal });
                }
                b'R' if body != [0; 4] => return Err(SqlFailure::Lost("a password is asked for".to_owned())),
                _ => {}
            }
        }
    }
}

fn row(body: &[u8]) -> Option<Vec<String>> {
    let (columns, mut rest) = body.split_first_chunk()?;
    let mut row = Vec::new();
    for _ in 0..u16::from_be_bytes(*columns) {
        let (length, after) = rest.split_first_chunk()?;
        let (value, after) = after.split_at_checked(usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0))?;
        row.push(text(value));
        rest = after;
    }
    Some(row)
}
