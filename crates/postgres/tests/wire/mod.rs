//! A client that says exactly what it is told to.

#![allow(dead_code, reason = "each of its users needs another part")]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Nothing here takes longer.
pub const SOON: Duration = Duration::from_secs(20);

/// A message with its kind and length.
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

/// A packet of the start-up.
pub fn packet(code: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 8).unwrap();
    [&length.to_be_bytes()[..], &code.to_be_bytes(), body].concat()
}

pub const TLS: u32 = 80_877_103;
pub const GSS: u32 = 80_877_104;
pub const CANCEL: u32 = 80_877_102;

/// The packet that asks for a session.
pub fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in parameters {
        body.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
    }
    body.push(0);
    packet(3 << 16, &body)
}

pub fn query(sql: &str) -> Vec<u8> {
    message(b'Q', format!("{sql}\0").as_bytes())
}

pub fn parse(name: &str, sql: &str) -> Vec<u8> {
    message(b'P', format!("{name}\0{sql}\0\0\0").as_bytes())
}

/// Parameters and results as text.
pub fn bind(portal: &str, statement: &str, values: &[Option<&str>]) -> Vec<u8> {
    let mut body = format!("{portal}\0{statement}\0\0\0").into_bytes();
    body.extend_from_slice(&u16::try_from(values.len()).unwrap().to_be_bytes());
    for value in values {
        match value {
            None => body.extend_from_slice(&(-1_i32).to_be_bytes()),
            Some(value) => {
                body.extend_from_slice(&u32::try_from(value.len()).unwrap().to_be_bytes());
                body.extend_from_slice(value.as_bytes());
            }
        }
    }
    body.extend_from_slice(&[0, 0]);
    message(b'B', &body)
}

pub fn describe(kind: char, name: &str) -> Vec<u8> {
    message(b'D', format!("{kind}{name}\0").as_bytes())
}

pub fn close(kind: char, name: &str) -> Vec<u8> {
    message(b'C', format!("{kind}{name}\0").as_bytes())
}

pub fn execute(portal: &str, limit: u32) -> Vec<u8> {
    message(b'E', &[portal.as_bytes(), b"\0", &limit.to_be_bytes()].concat())
}

pub fn sync() -> Vec<u8> {
    message(b'S', b"")
}

/// What the server says: kinds and bodies.
pub type Answer = (char, Vec<u8>);

/// Cuts what a server sent into messages; `None` when that cannot be done.
pub fn cut(mut sent: &[u8]) -> Option<Vec<Answer>> {
    let mut answers = Vec::new();
    while let Some((kind, rest)) = sent.split_first() {
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?.checked_sub(4)?;
        let (body, rest) = rest.split_at_checked(length)?;
        answers.push((char::from(*kind), body.to_vec()));
        sent = rest;
    }
    Some(answers)
}

/// The field of an error or a notice with this letter.
pub fn field(body: &[u8], letter: char) -> Option<String> {
    let mut fields = body.split(|byte| *byte == 0);
    let found = fields.find(|field| field.first().is_some_and(|first| char::from(*first) == letter))?;
    Some(String::from_utf8(found[1..].to_vec()).unwrap())
}

/// Kinds of messages, as a string; errors with their code.
pub fn outline(answers: &[Answer]) -> String {
    let each = answers.iter().map(|(kind, body)| match kind {
        'E' => format!("E{}", field(body, 'C').unwrap()),
        'Z' => format!("Z{}", char::from(body[0])),
        other => other.to_string(),
    });
    each.collect::<Vec<_>>().join(" ")
}

pub struct Wire {
    stream: TcpStream,
    pub pid: u32,
    pub secret: [u8; 4],
    pub parameters: Vec<(String, String)>,
}

impl Wire {
    /// Only connects.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_write_timeout(Some(SOON)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, pid: 0, secret: [0; 4], parameters: Vec::new() }
    }

    /// Opens a session for a user who need not prove anything.
    pub fn open(address: SocketAddr, user: &str) -> Self {
        Self::try_open(address, user).unwrap_or_else(|code| panic!("no session for {user}: {code}"))
    }

    /// Opens a session, or returns the code of what is wrong.
    pub fn try_open(address: SocketAddr, user: &str) -> Result<Self, String> {
        let mut wire = Self::connect(address);
        wire.send(&startup(&[("user", user)]));
        loop {
            match wire.receive() {
                Some(('Z', _)) => return Ok(wire),
                Some(('E', body)) => return Err(field(&body, 'C').unwrap()),
                Some(('K', body)) => {
                    wire.pid = u32::from_be_bytes(body[..4].try_into().unwrap());
                    wire.secret.copy_from_slice(&body[4..]);
                }
                Some(('S', body)) => {
                    let mut texts = body.split(|byte| *byte == 0).map(|text| String::from_utf8(text.to_vec()).unwrap());
                    wire.parameters.push((texts.next().unwrap(), texts.next().unwrap()));
                }
                Some(('R', body)) => assert_eq!(body, [0; 4]),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Whether something has come that was not heard yet, or the end.
    pub fn is_answered(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        !matches!(peeked, Err(cause) if cause.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Sends.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends, if there is still somebody to receive it.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// A byte outside of messages.
    pub fn byte(&mut self) -> char {
        let mut byte = [0];
        self.stream.read_exact(&mut byte).unwrap();
        char::from(byte[0])
    }

    /// The next message; `None` at the end.
    pub fn receive(&mut self) -> Option<Answer> {
        let mut head = [0; 5];
        match self.stream.read(&mut head[..1]) {
            Ok(0) => return None,
            Ok(_) => self.stream.read_exact(&mut head[1..]).unwrap(),
            Err(cause) if cause.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(cause) => panic!("no answer: {cause}"),
        }
        let length = u32::from_be_bytes(head[1..].try_into().unwrap());
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        self.stream.read_exact(&mut body).unwrap();
        Some((char::from(head[0]), body))
    }

    /// Has the session write an answer that is longer than what the connection takes, and reads no
    /// more than its beginning.
    pub fn begin_to_write(&mut self) {
        self.send(&query("WIDE 30000000"));
        assert_eq!(self.receive().unwrap().0, 'T');
    }

    /// All messages up to one of this kind, or the end.
    pub fn receive_until(&mut self, kind: char) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Some(answer) = self.receive() {
            let last = answer.0 == kind;
            answers.push(answer);
            if last {
                break;
            }
        }
        answers
    }

    /// Says something and outlines what comes up to the server being ready, or the end.
    pub fn ask(&mut self, bytes: &[u8]) -> String {
        self.send(bytes);
        outline(&self.receive_until('Z'))
    }

    /// All that comes until the connection ends, outlined.
    pub fn last_words(&mut self) -> String {
        outline(&self.receive_until('\0'))
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}
