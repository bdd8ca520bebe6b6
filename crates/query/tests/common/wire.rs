//! A client that shows each answer as it comes over the wire.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    io::{self, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// The longest time that a server may be silent.
const PATIENCE: Duration = Duration::from_secs(120);

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// The oid of its type.
    pub kind: u32,
    /// Whether it is said to be a table's column, and its number there.
    pub of_table: bool,
    pub number: i16,
}

/// A part of an answer to a text of statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Columns(Vec<Column>),
    Row(Vec<Option<String>>),
    /// What COPY sends.
    Copied(String),
    /// A statement is done; its command tag.
    Done(String),
    Empty,
    /// A notification.
    Notified {
        channel: String,
        payload: String,
    },
    /// An error.
    Failed {
        state: String,
        message: String,
        /// What it concerns: its fields `s`, `t`, `c`, `d` and `n`.
        concerns: Vec<(char, String)>,
    },
}

/// What a server says to a text of statements.
#[derive(Clone, Debug)]
pub struct Answer {
    pub parts: Vec<Part>,
    /// `I`, `T` or `E`: out of a transaction, in one, in one that has failed; `X` when the
    /// connection ended behind an error.
    pub status: char,
}

impl Answer {
    /// The SQLSTATE of the error in it.
    pub fn state(&self) -> Option<&str> {
        self.parts.iter().find_map(|part| match part {
            Part::Failed { state, .. } => Some(state.as_str()),
            _ => None,
        })
    }

    /// Puts the rows of each result into the order of their texts.
    pub fn sort(&mut self) {
        let is_row = |part: &Part| matches!(part, Part::Row(_));
        for rows in self.parts.chunk_by_mut(|one, other| is_row(one) && is_row(other)) {
            if is_row(&rows[0]) {
                rows.sort_by_cached_key(|row| format!("{row:?}"));
            }
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = 0;
        for part in &self.parts {
            match part {
                Part::Columns(columns) => {
                    rows = 0;
                    let shown = columns.iter().map(|it| {
                        let place = if it.of_table { format!("@{}", it.number) } else { String::new() };
                        format!("{}:{}{place}", it.name, it.kind)
                    });
                    write!(out, "[{}]", shown.collect::<Vec<_>>().join(", "))?;
                }
                Part::Row(row) => {
                    rows += 1;
                    match rows {
                        ..=12 => {
                            let shown = row.iter().map(|value| value.as_deref().unwrap_or("NULL"));
                            write!(out, " ({})", shown.collect::<Vec<_>>().join(" | "))?;
                        }
                        13 => write!(out, " …")?,
                        _ => {}
                    }
                }
                Part::Copied(data) => write!(out, " copied {data:?}")?,
                Part::Done(tag) => write!(out, " {tag};")?,
                Part::Empty => write!(out, " nothing;")?,
                Part::Notified { channel, payload } => write!(out, " {channel} says {payload:?}")?,
                Part::Failed { state, message, concerns } => {
                    write!(out, " error {state} {message}")?;
                    for (field, name) in concerns {
                        write!(out, " {field}={name}")?;
                    }
                }
            }
        }
        write!(out, " {}", self.status)
    }
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A session that waits for its answers.
pub struct Wire {
    stream: BufReader<Box<dyn Stream>>,
    /// What the server has said of its settings.
    pub parameters: BTreeMap<String, String>,
    asked: String,
    /// What COPY from the client gets.
    data: String,
}

impl Wire {
    /// A session of the superuser at an address.
    pub fn tcp(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::begin(Box::new(stream))
    }

    /// A session of the superuser at a Unix socket.
    pub fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::begin(Box::new(stream))
    }

    fn begin(stream: Box<dyn Stream>) -> Self {
        let mut wire = Self {
            stream: BufReader::new(stream),
            parameters: BTreeMap::new(),
            asked: "the start-up".to_owned(),
            data: String::new(),
        };
        let mut packet = 196_608_u32.to_be_bytes().to_vec();
        for word in ["user", "freshet", "database", "freshet", "TimeZone", "UTC", ""] {
            packet.extend_from_slice(word.as_bytes());
            packet.push(0);
        }
        wire.send(None, &packet);
        wire.answer();
        wire
    }

    /// Sends a text of statements. An answer is to be read before the next one. A COPY in it that
    /// asks for rows gets `data`.
    pub fn ask(&mut self, sql: &str, data: &str) {
        sql.clone_into(&mut self.asked);
        data.clone_into(&mut self.data);
        let mut body = sql.as_bytes().to_vec();
        body.push(0);
        self.send(Some(b'Q'), &body);
    }

    /// Asks, and waits for the answer.
    pub fn query(&mut self, sql: &str) -> Answer {
        self.ask(sql, "");
        self.answer()
    }

    /// Sends messages, and returns all that the server says until it is ready again: the last one
    /// must make it so.
    pub fn exchange(&mut self, messages: &[u8]) -> Vec<(char, Vec<u8>)> {
        "messages".clone_into(&mut self.asked);
        self.stream.get_mut().write_all(messages).unwrap();
        let mut answers = Vec::new();
        loop {
            let (kind, body) = self.message().unwrap();
            if kind == b'S' {
                let mut body = Body(&body);
                let name = body.text();
                self.parameters.insert(name, body.text());
            }
            answers.push((char::from(kind), body));
            if kind == b'Z' {
                return answers;
            }
        }
    }

    /// The whole answer to what was asked.
    ///
    /// # Panics
    /// When the connection ends before, or the server is silent for two minutes.
    pub fn answer(&mut self) -> Answer {
        let mut parts = Vec::new();
        let mut copied = None;
        loop {
            let (kind, body) = match self.message() {
                Ok(message) => message,
                Err(_) if matches!(parts.last(), Some(Part::Failed { .. })) => return Answer { parts, status: 'X' },
                Err(cause) => panic!("{}: {cause}", self.asked),
            };
            let mut body = Body(&body);
            match kind {
                b'T' => {
                    let count = body.int16();
                    parts.push(Part::Columns((0..count).map(|_| body.column()).collect()));
                }
                b'D' => {
                    let count = body.int16();
                    parts.push(Part::Row((0..count).map(|_| body.value()).collect()));
                }
                b'C' => parts.push(Part::Done(body.text())),
                b'I' => parts.push(Part::Empty),
                b'E' => parts.push(body.error()),
                b'S' => {
                    let name = body.text();
                    self.parameters.insert(name, body.text());
                }
                b'H' => copied = Some(String::new()),
                b'd' => {
                    let copied = copied.as_mut().expect("COPY was begun");
                    write!(copied, "{}", body.0.escape_ascii()).unwrap();
                }
                b'c' => parts.extend(copied.take().map(Part::Copied)),
                b'G' => {
                    let data = std::mem::take(&mut self.data);
                    self.send(Some(b'd'), data.as_bytes());
                    self.send(Some(b'c'), &[]);
                }
                b'Z' => return Answer { parts, status: char::from(body.0[0]) },
                b'A' => parts.push(body.notification()),
                // Authentication, keys of sessions, notices.
                _ => {}
            }
        }
    }

    /// The SQLSTATE of the error with which the connection ends.
    ///
    /// # Panics
    /// When it continues, or ends without one.
    pub fn last_words(&mut self) -> String {
        self.last_errors().pop().expect("an error")
    }

    /// The SQLSTATEs of all errors until the connection ends.
    ///
    /// # Panics
    /// When it continues.
    pub fn last_errors(&mut self) -> Vec<String> {
        let mut states = Vec::new();
        while let Ok((kind, body)) = self.message() {
            assert_ne!(kind, b'Z', "the session goes on");
            if kind == b'E'
                && let Part::Failed { state: found, .. } = Body(&body).error()
            {
                states.push(found);
            }
        }
        states
    }

    /// Waits for a notification, when nothing was asked: channel and payload.
    ///
    /// # Panics
    /// When the connection ends or says something else.
    pub fn notified(&mut self) -> (String, String) {
        let (kind, body) = self.message().unwrap();
        assert_eq!(char::from(kind), 'A', "a notification");
        let Part::Notified { channel, payload } = Body(&body).notification() else { unreachable!() };
        (channel, payload)
    }

    /// Begins a COPY from the client and sends some rows, with more to come.
    pub fn begin_copy(&mut self, sql: &str, data: &str) {
        self.ask(sql, "");
        loop {
            match self.message().unwrap_or_else(|cause| panic!("{sql}: {cause}")) {
                (b'G', _) => break,
                (b'E', body) => panic!("{sql}: {:?}", Body(&body).error()),
                _ => {}
            }
        }
        self.send(Some(b'd'), data.as_bytes());
    }

    fn message(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body)?;
        Ok((head[0], body))
    }

    fn send(&mut self, kind: Option<u8>, body: &[u8]) {
        let mut message = Vec::from_iter(kind);
        message.extend_from_slice(&u32::try_from(body.len() + 4).unwrap().to_be_bytes());
        message.extend_from_slice(body);
        let sent = self.stream.get_mut().write_all(&message);
        sent.unwrap_or_else(|cause| panic!("{}: {cause}", self.asked));
    }
}

/// What is left of a message.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) = self.0.split_first_chunk().expect("a whole message");
        self.0 = rest;
        *head
    }

    fn int16(&mut self) -> i16 {
        i16::from_be_bytes(self.take())
    }

    fn text(&mut self) -> String {
        let end = self.0.iter().position(|&byte| byte == 0).expect("a text that ends");
        let text = String::from_utf8_lossy(&self.0[..end]).into_owned();
        self.0 = &self.0[end + 1..];
        text
    }

    fn value(&mut self) -> Option<String> {
        let length = usize::try_from(i32::from_be_bytes(self.take())).ok()?;
        let (value, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    fn column(&mut self) -> Column {
        let name = self.text();
        let of_table = self.take() != [0_u8; 4];
        let number = self.int16();
        let kind = u32::from_be_bytes(self.take());
        // Its length, modifier and format.
        let _: [u8; 8] = self.take();
        Column { name, kind, of_table, number }
    }

    fn notification(&mut self) -> Part {
        self.0 = &self.0[4..];
        Part::Notified { channel: self.text(), payload: self.text() }
    }

    fn error(&mut self) -> Part {
        let (mut state, mut message, mut concerns) = (String::new(), String::new(), Vec::new());
        loop {
            match self.take() {
                [0_u8] => return Part::Failed { state, message, concerns },
                [b'C'] => state = self.text(),
                [b'M'] => message = self.text(),
                [field @ (b's' | b't' | b'c' | b'd' | b'n')] => concerns.push((char::from(field), self.text())),
                _ => drop(self.text()),
            }
        }
    }
}
