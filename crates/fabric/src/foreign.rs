//! Callers that have come to the wrong port: their first bytes say which protocol they speak, and
//! they are turned away in it.

use std::{
    io::{self, IoSlice},
    time::{Duration, Instant},
};

use freshet_base::wait::{self, Patience};

use crate::stream::Stream;

/// PostgreSQL's requests for encryption, which come before the greeting: for TLS, and for GSSAPI.
const ENCRYPTION: [u32; 2] = [80_877_103, 80_877_104];
/// The major version of PostgreSQL's protocol, where a greeting has it.
const MAJOR: u32 = 3;
/// Bytes of a greeting's length and kind.
const HEAD: usize = 8;
/// How HTTP's requests begin.
const METHODS: [&[u8]; 7] = [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH "];
/// How often it is looked for the rest of a greeting.
const LOOK: Duration = Duration::from_millis(1);
/// A TLS record of a handshake begins with this.
const TLS: u8 = 0x16;

/// Lets a caller pass that begins with TLS. One that speaks PostgreSQL's protocol, or HTTP, gets
/// `message` and `hint` as an error in its own protocol. Blocks until its first bytes are here, or
/// `deadline` has passed.
///
/// # Errors
/// That it was turned away, or what the system says.
pub fn turn_away(stream: &Stream, deadline: Instant, message: &str, hint: &str) -> io::Result<()> {
    let mut head = [0; HEAD];
    loop {
        let come = peek(stream, &mut head, deadline)?;
        let (length, kind) = head.split_at(4);
        let [length, kind] = [length, kind].map(|part| part.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)));
        if come == 0 || head[0] == TLS {
            return Ok(());
        }
        if METHODS.iter().any(|method| head.starts_with(method)) {
            return refuse(stream, &http(message, hint), "it speaks HTTP");
        }
        // Another protocol is TLS's to refuse.
        if come < HEAD || head[0] != 0 {
            return Ok(());
        }
        if kind >> 16 == MAJOR {
            return refuse(stream, &postgres(message, hint), "it speaks PostgreSQL's protocol");
        }
        if length as usize != HEAD || !ENCRYPTION.contains(&kind) {
            return Ok(());
        }
        let mut taken = 0;
        while taken < HEAD {
            match stream.read(&mut head[taken..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => taken += count,
            }
        }
        // Without encryption: then the greeting comes, and can be answered.
        stream.write_all(&mut [IoSlice::new(b"N")], false)?;
    }
}

/// How many of the first bytes are there: fewer than asked for if the caller says no more by then,
/// or if they are none of a greeting of PostgreSQL's.
fn peek(stream: &Stream, into: &mut [u8; HEAD], deadline: Instant) -> io::Result<usize> {
    // The first byte is waited for, and the rest is on its way then.
    let look = || {
        let left = deadline.saturating_duration_since(Instant::now()).max(LOOK);
        let come = stream.set_read_timeout(Some(left)).and_then(|()| stream.peek(into));
        match come {
            Ok(come) if come > 0 && come < HEAD && into[0] == 0 => None,
            come => Some(come),
        }
    };
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    wait::poll(LOOK, Patience::endless().until(deadline), look).map_err(late)?
}

fn refuse(stream: &Stream, answer: &[u8], why: &str) -> io::Result<()> {
    stream.write_all(&mut [IoSlice::new(answer)], false)?;
    stream.shut_down(std::net::Shutdown::Write);
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

/// An error message of PostgreSQL's protocol.
fn postgres(message: &str, hint: &str) -> Vec<u8> {
    let mut fields = Vec::new();
    for (code, text) in [(b'S', "FATAL"), (b'V', "FATAL"), (b'C', "08P01"), (b'M', message), (b'H', hint)] {
        fields.push(code);
        fields.extend_from_slice(text.as_bytes());
        fields.push(0);
    }
    fields.push(0);
    let length = u32::try_from(fields.len() + 4).unwrap_or(u32::MAX).to_be_bytes();
    [b"E".as_slice(), &length, &fields].concat()
}

fn http(message: &str, hint: &str) -> Vec<u8> {
    let body = format!("{message}; {hint}\n");
    let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n";
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        thread,
    };

    use super::*;

    const SOON: Duration = Duration::from_secs(30);

    /// What a caller gets that sends these pieces, one after each answer; and whether it passes.
    fn answer(pieces: &[&[u8]]) -> (String, bool) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        caller.set_read_timeout(Some(SOON)).unwrap();
        let stream = Stream::from(listener.accept().unwrap().0);
        let served =
            thread::spawn(move || turn_away(&stream, Instant::now() + SOON, "no SQL here", "see there").is_ok());
        let mut answers = Vec::new();
        for (number, piece) in pieces.iter().enumerate() {
            caller.write_all(piece).unwrap();
            if number + 1 < pieces.len() {
                let mut byte = [0];
                caller.read_exact(&mut byte).unwrap();
                answers.push(byte[0]);
            }
        }
        let passes = served.join().unwrap();
        if !passes {
            caller.read_to_end(&mut answers).unwrap();
        }
        (String::from_utf8_lossy(&answers).into_owned(), passes)
    }

    #[test]
    fn other_protocols_are_answered_in_their_own_words() {
        let greeting = b"\0\0\0\x16\0\x03\0\0user\0freshet\0\0";
        let (encrypted, gss) = (b"\0\0\0\x08\x04\xd2\x16\x2f", b"\0\0\0\x08\x04\xd2\x16\x30");
        let error = "SFATAL\0VFATAL\0C08P01\0Mno SQL here\0Hsee there\0\0";
        for (pieces, begins) in
            [(vec![&greeting[..]], "E"), (vec![encrypted, greeting], "NE"), (vec![gss, encrypted, greeting], "NNE")]
        {
            let (answer, passes) = answer(&pieces);
            assert!(!passes && answer.starts_with(begins) && answer.ends_with(error), "{answer:?}");
        }
        for request in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"POST /x HTTP/1.1\r\n\r\n", b"OPTIONS * HTTP/1.1\r\n\r\n"] {
            let (answer, passes) = answer(&[request]);
            assert!(!passes && answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("no SQL here; see there\n"));
        }
    }

    #[test]
    fn tls_and_what_is_not_known_pass() {
        for bytes in
            [&b"\x16\x03\x01\x00\x10"[..], b"\x01\x02", b"\0\0\0\x09\0\0\0\0\0", b"\xff\xff\xff\xff\xff\xff\xff\xff"]
        {
            assert_eq!(answer(&[bytes]), (String::new(), true), "{bytes:?}");
        }
    }
}
