//! A client that says exactly what it is told to.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use freshet_fuzzing::message::{CANCEL, field, message, packet, query, startup};

use crate::common::SOON;

/// A connection.
pub struct Client {
    stream: TcpStream,
    key: [u8; 8],
}

/// A message of the server.
pub type Answer = (u8, Vec<u8>);

impl Client {
    /// Only connects.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, SOON).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_write_timeout(Some(SOON)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, key: [0; 8] }
    }

    /// Opens a session, or returns the SQLSTATE of what is said against it; "gone" when nothing is
    /// said.
    pub fn open(address: SocketAddr, user: &str) -> Result<Self, String> {
        let mut client = Self::connect(address);
        if !client.send(&startup(&[("user", user)])) {
            return Err("gone".to_owned());
        }
        loop {
            match client.receive() {
                Some((b'Z', _)) => return Ok(client),
                Some((b'E', body)) => return Err(field(&body, b'C').unwrap()),
                Some((b'K', body)) => client.key.copy_from_slice(&body),
                Some((b'R', body)) if body[..4] != [0; 4] => return Err("password".to_owned()),
                Some(_) => {}
                None => return Err("gone".to_owned()),
            }
        }
    }

    /// Sends, if there is somebody to receive it.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// A byte outside of messages.
    pub fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte).ok()?;
        Some(byte[0])
    }

    /// The next message; nothing at the end.
    pub fn receive(&mut self) -> Option<Answer> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes(head[1..].try_into().unwrap());
        let mut body = vec![0; length as usize - 4];
        self.stream.read_exact(&mut body).ok()?;
        Some((head[0], body))
    }

    /// All messages up to the server being ready, or the end.
    pub fn answers(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Some(answer) = self.receive() {
            let last = answer.0 == b'Z';
            answers.push(answer);
            if last {
                break;
            }
        }
        answers
    }

    /// The SQLSTATEs of errors up to the server being ready ("Z" at the end), or the end.
    pub fn outline(&mut self) -> String {
        let answers = self.answers();
        let words = answers.iter().filter_map(|(kind, body)| match kind {
            b'E' => field(body, b'C'),
            b'Z' => Some("Z".to_owned()),
            _ => None,
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// Says something, and outlines the answer.
    pub fn ask(&mut self, bytes: &[u8]) -> String {
        if !self.send(bytes) {
            return "gone".to_owned();
        }
        self.outline()
    }

    /// The SQLSTATE of a statement, empty when it succeeds.
    pub fn state(&mut self, sql: &str) -> String {
        let answer = self.ask(&query(sql.as_bytes()));
        let state = answer.strip_suffix('Z').unwrap_or_else(|| panic!("{sql} has ended the session: {answer}"));
        state.trim_end().to_owned()
    }

    /// Runs statements that succeed.
    pub fn run(&mut self, sql: &str) {
        self.send(&query(sql.as_bytes()));
        for (kind, body) in self.answers() {
            assert!(kind != b'E', "{sql}: {:?}", field(&body, b'M'));
        }
    }

    /// The notices of statements that succeed: states and messages.
    pub fn notices(&mut self, sql: &str) -> Vec<(String, String)> {
        self.send(&query(sql.as_bytes()));
        let mut notices = Vec::new();
        for (kind, body) in self.answers() {
            assert!(kind != b'E', "{sql}: {:?}", field(&body, b'M'));
            if kind == b'N' {
                notices.push((field(&body, b'C').unwrap_or_default(), field(&body, b'M').unwrap_or_default()));
            }
        }
        notices
    }

    /// The rows of a statement that succeeds, as text.
    pub fn rows(&mut self, sql: &str) -> Vec<Vec<String>> {
        assert!(self.send(&query(sql.as_bytes())), "{sql}: nobody is there");
        let mut rows = Vec::new();
        for (kind, body) in self.answers() {
            assert!(kind != b'E', "{sql}: {:?}", field(&body, b'M'));
            if kind == b'D' {
                let mut rest = &body[2..];
                let mut row = Vec::new();
                while let Some((length, after)) = rest.split_first_chunk() {
                    let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
                    row.push(String::from_utf8(after[..length].to_vec()).unwrap());
                    rest = &after[length..];
                }
                rows.push(row);
            }
        }
        rows
    }

    /// The server's number of this session.
    pub fn pid(&self) -> u32 {
        u32::from_be_bytes(self.key[..4].try_into().unwrap())
    }

    /// Asks over another connection that what this one does be canceled.
    pub fn cancel(&self) {
        let mut other = Self::connect(self.stream.peer_addr().unwrap());
        other.send(&packet(CANCEL, &self.key));
        // The server hangs up when it has done so.
        assert!(other.receive().is_none());
    }

    /// Ends in order.
    pub fn terminate(mut self) {
        self.send(&message(b'X', b""));
        assert!(self.receive().is_none());
    }
}
