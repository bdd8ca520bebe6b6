//! What a client wants to have done next, as a whole: a simple query, or what comes up to a Sync.
//! Its node looks at it before it decides which node does it.

use std::collections::HashMap;

use super::Statement;

/// Bytes before a message's body.
const HEADER: usize = 5;
/// A unit that is longer than this is not looked at.
pub(super) const LONGEST: usize = 128 << 10;

/// A statement that a unit runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs<'u> {
    /// The statements of a text.
    Text(&'u [u8]),
    /// One that was prepared before, by its name; the last unnamed one has none.
    Prepared(&'u [u8]),
}

/// What a unit does with the statement that has no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Unnamed<'u> {
    /// Nothing.
    #[default]
    Kept,
    /// It uses the one of before.
    Used,
    /// It prepares it: the body of that message.
    Prepared(&'u [u8]),
    /// The statement is gone.
    Gone,
}

impl Unnamed<'_> {
    /// The statement that is prepared.
    pub fn statement(&self) -> Option<Statement> {
        let Self::Prepared(body) = self else { return None };
        let [_, sql] = texts(body)?;
        let types = body.get(sql.len() + 2..)?.get(2..)?.as_chunks().0.iter().map(|ty| u32::from_be_bytes(*ty));
        let sql = std::str::from_utf8(sql).ok()?.to_owned();
        Some(Statement { name: String::new(), sql, types: types.collect(), by_sql: None })
    }
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unit<'u> {
    /// More has to come before that can be said.
    More,
    /// Something that only the primary may get: it is too long, no query, or not understood.
    Other,
    /// Statements that are run; and the bytes of all of it.
    Runs(Vec<Runs<'u>>, Unnamed<'u>, &'u [u8]),
}

/// The texts of a message, which zeros end.
fn texts<const COUNT: usize>(body: &[u8]) -> Option<[&[u8]; COUNT]> {
    let mut all = body.split(|byte| *byte == 0);
    let mut found = [&[][..]; COUNT];
    for text in &mut found {
        *text = all.next()?;
    }
    // The last piece has no end.
    all.next().map(|_| found)
}

impl<'u> Unit<'u> {
    /// That which begins here.
    pub fn read(bytes: &'u [u8]) -> Self {
        let mut rest = bytes;
        let mut batch = Batch::default();
        loop {
            let Some(&[kind, a, b, c, d]) = rest.first_chunk::<HEADER>() else { return Self::unless_long(bytes) };
            let length = usize::try_from(i32::from_be_bytes([a, b, c, d])).ok();
            let Some(length) = length.and_then(|length| length.checked_sub(4)).filter(|it| *it <= LONGEST) else {
                return Self::Other;
            };
            // What ends a session, or belongs to a copy, does not wait for more.
            if !matches!(kind, b'Q' | b'P' | b'B' | b'D' | b'E' | b'C' | b'S') {
                return Self::Other;
            }
            let Some(body) = rest.get(HEADER..HEADER + length) else { return Self::unless_long(bytes) };
            rest = &rest[HEADER + length..];
            match (kind, batch.is_empty) {
                (b'Q', true) => {
                    let whole = &bytes[..bytes.len() - rest.len()];
                    let runs = |[sql]: [&'u [u8]; 1]| Self::Runs(vec![Runs::Text(sql)], Unnamed::Gone, whole);
                    return texts(body).map_or(Self::Other, runs);
                }
                (b'S', false) if !batch.runs.is_empty() => {
                    return Self::Runs(batch.runs, batch.unnamed, &bytes[..bytes.len() - rest.len()]);
                }
                (b'Q' | b'S', _) => return Self::Other,
                _ => {}
            }
            if batch.take(kind, body).is_none() {
                return Self::Other;
            }
        }
    }

    fn unless_long(bytes: &[u8]) -> Self {
        if bytes.len() > LONGEST { Self::Other } else { Self::More }
    }
}

/// Messages up to a Sync.
struct Batch<'u> {
    is_empty: bool,
    /// Statements that it prepares, and portals that it binds.
    prepared: HashMap<&'u [u8], &'u [u8]>,
    bound: HashMap<&'u [u8], Runs<'u>>,
    runs: Vec<Runs<'u>>,
    unnamed: Unnamed<'u>,
}

impl Default for Batch<'_> {
    fn default() -> Self {
        let (prepared, bound, runs, unnamed) = Default::default();
        Self { is_empty: true, prepared, bound, runs, unnamed }
    }
}

impl<'u> Batch<'u> {
    /// Takes a message in; none when it is not understood, or of what is not known here.
    fn take(&mut self, kind: u8, body: &'u [u8]) -> Option<()> {
        self.is_empty = false;
        match kind {
            b'P' => {
                let [name, sql] = texts(body)?;
                self.prepared.insert(name, sql);
                if name.is_empty() && self.unnamed != Unnamed::Used {
                    self.unnamed = Unnamed::Prepared(body);
                }
            }
            b'B' => {
                let [portal, statement] = texts(body)?;
                let runs = self.prepared.get(statement).map_or(Runs::Prepared(statement), |sql| Runs::Text(sql));
                self.uses(statement);
                self.bound.insert(portal, runs);
            }
            b'E' => {
                let [portal] = texts(body)?;
                self.runs.push(*self.bound.get(portal)?);
            }
            b'D' | b'C' => {
                let (what, rest) = body.split_first()?;
                let [name] = texts(rest)?;
                match (kind, what) {
                    (b'D', b'S') => self.uses(name),
                    // A statement that is closed here is not what it was.
                    (b'C', b'S') => return None,
                    _ => {}
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn uses(&mut self, statement: &[u8]) {
        if statement.is_empty() && !self.prepared.contains_key(statement) {
            self.unnamed = Unnamed::Used;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::framed as message;

    #[test]
    fn a_unit_is_whole_or_more_has_to_come() {
        let query = message(b'Q', b"SELECT 1\0");
        let batch = [
            message(b'P', b"\0BEGIN\0\0\0"),
            message(b'B', b"\0\0\0\0\0\0\0\0"),
            message(b'E', b"\0\0\0\0\0"),
            message(b'P', b"s\0SELECT 2\0\0\0"),
            message(b'B', b"p\0s\0\0\0\0\0\0\0"),
            message(b'D', b"Pp\0"),
            message(b'E', b"p\0\0\0\0\0"),
            message(b'S', b""),
        ]
        .concat();
        let runs = vec![Runs::Text(b"BEGIN"), Runs::Text(b"SELECT 2")];
        let unnamed = Unnamed::Prepared(b"\0BEGIN\0\0\0");
        assert_eq!(Unit::read(&query), Unit::Runs(vec![Runs::Text(b"SELECT 1")], Unnamed::Gone, &query));
        assert_eq!(Unit::read(&batch), Unit::Runs(runs, unnamed, &batch));
        assert_eq!(unnamed.statement().map(|it| it.sql), Some("BEGIN".to_owned()));
        for cut in 0..batch.len() {
            assert_eq!(Unit::read(&batch[..cut]), Unit::More, "after {cut}");
        }
        let more = [&batch[..], &query].concat();
        assert!(matches!(Unit::read(&more), Unit::Runs(_, _, whole) if whole == batch), "what follows is another one");
    }

    #[test]
    fn what_was_prepared_before_is_run_by_its_name() {
        let run = |bind: &[u8]| [message(b'B', bind), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat();
        let (named, unnamed) = (run(b"\0s\0\0\0\0\0\0\0"), run(b"\0\0\0\0\0\0\0\0"));
        assert_eq!(Unit::read(&named), Unit::Runs(vec![Runs::Prepared(b"s")], Unnamed::Kept, &named));
        assert_eq!(Unit::read(&unnamed), Unit::Runs(vec![Runs::Prepared(b"")], Unnamed::Used, &unnamed));
    }

    #[test]
    fn what_is_not_understood_is_for_the_primary() {
        let sync = message(b'S', b"");
        let flushed = [message(b'P', b"s\0SELECT 1\0\0\0"), message(b'H', b"")].concat();
        let prepares = [&message(b'P', b"s\0SELECT 1\0\0\0")[..], &sync].concat();
        let unknown = [&message(b'E', b"p\0\0\0\0\0")[..], &sync].concat();
        let closes = [&message(b'C', b"Ss\0")[..], &unknown].concat();
        let endless = message(b'Q', b"SELECT 1");
        let long = message(b'Q', &vec![b'x'; LONGEST + 1]);
        for bytes in [&sync, &flushed, &prepares, &unknown, &closes, &endless, &long, &message(b'X', b"")] {
            assert_eq!(Unit::read(bytes), Unit::Other);
        }
        assert_eq!(Unit::read(b"Q\0\0\0\x03"), Unit::Other);
        assert_eq!(Unit::read(&long[..10]), Unit::Other, "it need not come to be known as too long");
    }

    /// Bytes that mean nothing are understood somehow, and the same however much follows.
    #[test]
    fn bytes_that_mean_nothing_do_no_harm() {
        let kinds = b"QPBDECSHXdcf=\0\xff";
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            for _ in 0..random(6) {
                let body: Vec<u8> = (0..random(12)).map(|_| b"\0\0sp$1\xff"[random(7) as usize]).collect();
                bytes.extend(message(kinds[random(kinds.len() as u64) as usize], &body));
            }
            bytes.truncate(bytes.len() - random(bytes.len() as u64 + 1) as usize / 4);
            let unit = Unit::read(&bytes);
            if unit != Unit::More {
                assert_eq!(unit, Unit::read(&[&bytes[..], b"Q\0\0\0\x05\0"].concat()));
            }
            if let Unit::Runs(_, unnamed, whole) = unit {
                assert!(bytes.starts_with(whole));
                let _ = unnamed.statement();
            }
        }
    }
}
