//! The packets that come before any message: without a kind, told apart by a number.

use serde::{Deserialize, Serialize};

use crate::{
    message::{Body, Fault},
    report::{Report, SqlState},
};

/// The longest packet of the start-up, as in PostgreSQL.
pub(crate) const LONGEST: usize = 10_000;
const TLS: i32 = 80_877_103;
const GSS: i32 = 80_877_104;
const CANCEL: i32 = 80_877_102;
pub(crate) const MAJOR: i32 = 3;
/// The longest key for canceling, by the protocol.
const LONGEST_KEY: usize = 256;

/// How a connection begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    Tls,
    Gss,
    Cancel { pid: i32, secret: Vec<u8> },
    Startup(Startup),
}

/// What a client says of itself and of the session that it wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Startup {
    minor: i32,
    /// Names and values, as they came; without those of protocol extensions.
    parameters: Vec<(String, String)>,
    extensions: Vec<String>,
}

impl Packet {
    /// Decodes what follows a packet's length.
    pub(crate) fn decode(packet: &[u8]) -> Result<Self, Fault> {
        let mut body = Body(packet);
        match body.i32()? {
            TLS => body.end().map(|()| Self::Tls),
            GSS => body.end().map(|()| Self::Gss),
            CANCEL => {
                let pid = body.i32()?;
                let secret = body.0.to_vec();
                if !(4..=LONGEST_KEY).contains(&secret.len()) {
                    return Err(Fault::Malformed("its key has no length that keys have"));
                }
                Ok(Self::Cancel { pid, secret })
            }
            version if version >> 16 == MAJOR => Startup::decode(version & 0xffff, body).map(Self::Startup),
            version => {
                let (major, minor) = (version >> 16, version & 0xffff);
                let message =
                    format!("unsupported frontend protocol {major}.{minor}: server supports {MAJOR}.0 to {MAJOR}.2");
                Err(Fault::Refused(Report::fatal(SqlState::FEATURE_NOT_SUPPORTED, message)))
            }
        }
    }
}

impl Startup {
    fn decode(minor: i32, mut body: Body<'_>) -> Result<Self, Fault> {
        let text = |body: &mut Body<'_>| {
            let text = std::str::from_utf8(body.string()?);
            text.map(str::to_owned).map_err(|_| Fault::Malformed("a parameter is not UTF-8"))
        };
        let mut startup = Self { minor, ..Self::default() };
        loop {
            let name = text(&mut body)?;
            if name.is_empty() {
                body.end()?;
                return Ok(startup);
            }
            let value = text(&mut body)?;
            if name.starts_with("_pq_.") {
                startup.extensions.push(name);
            } else {
                startup.parameters.push((name, value));
            }
        }
    }

    /// Who wants the session; never empty once it came to a [`Backend`](crate::Backend).
    #[must_use]
    pub fn user(&self) -> &str {
        self.get("user").unwrap_or_default()
    }

    /// The database; named like the user unless the client says otherwise.
    #[must_use]
    pub fn database(&self) -> &str {
        self.get("database").filter(|name| !name.is_empty()).unwrap_or_else(|| self.user())
    }

    /// A parameter's value. The last one counts.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Settings of the session in the order in which they take effect: those of `options` (`-c
    /// name=value` or `--name=value`), then parameters other than user, database, options and
    /// replication.
    ///
    /// # Errors
    /// When `options` is not of that form.
    pub fn settings(&self) -> Result<Vec<(String, String)>, Report> {
        let mut settings = options(self.get("options").unwrap_or_default())?;
        let apart = ["user", "database", "options", "replication"];
        settings.extend(self.parameters.iter().filter(|(name, _)| !apart.contains(&name.as_str())).cloned());
        Ok(settings)
    }

    /// The version of the protocol that the client wants to speak.
    pub(crate) fn version(&self) -> i32 {
        MAJOR << 16 | self.minor
    }

    /// What the client asked of the protocol beyond 3.`newest`, if anything: names of extensions.
    pub(crate) fn beyond(&self, newest: i32) -> Option<&[String]> {
        (self.minor > newest || !self.extensions.is_empty()).then_some(&self.extensions)
    }
}

/// Settings from a command line: words are separated by blanks, a backslash takes the next
/// character as it is.
fn options(line: &str) -> Result<Vec<(String, String)>, Report> {
    let mut settings = Vec::new();
    let mut words = words(line).into_iter();
    while let Some(word) = words.next() {
        let refused = || {
            let message = format!("invalid command-line argument for server process: {word}");
            Report::fatal(SqlState::SYNTAX_ERROR, message)
        };
        let setting = match word.strip_prefix("--") {
            Some(setting) => setting.to_owned(),
            None => match word.strip_prefix("-c").ok_or_else(refused)? {
                "" => words.next().ok_or_else(refused)?,
                setting => setting.to_owned(),
            },
        };
        let (name, value) = setting.split_once('=').ok_or_else(refused)?;
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            blank if blank.is_ascii_whitespace() => words.extend(word.take()),
            '\\' => word.get_or_insert_default().extend(characters.next()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: i32, rest: &[u8]) -> Result<Packet, Fault> {
        Packet::decode(&[&code.to_be_bytes(), rest].concat())
    }

    fn startup(rest: &[u8]) -> Startup {
        match packet(3 << 16, rest) {
            Ok(Packet::Startup(startup)) => startup,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn packets_are_distinguished_by_their_number() {
        assert_eq!(packet(TLS, b""), Ok(Packet::Tls));
        assert_eq!(packet(GSS, b""), Ok(Packet::Gss));
        assert_eq!(packet(CANCEL, b"\0\0\0\x07abcd"), Ok(Packet::Cancel { pid: 7, secret: b"abcd".to_vec() }));
        assert!(matches!(packet(CANCEL, b"\0\0\0\x07abc"), Err(Fault::Malformed(_))));
        assert!(matches!(packet(TLS, b"x"), Err(Fault::Malformed(_))));
        assert!(matches!(packet(2 << 16, b""), Err(Fault::Refused(report)) if report.state().as_str() == "0A000"));
    }

    #[test]
    fn a_start_up_packet_names_user_database_and_settings() {
        let startup = startup(b"user\0ann\0options\0-c a=1 --b-c=x\\ y -cd=\0application_name\0psql\0\0");
        assert_eq!((startup.user(), startup.database()), ("ann", "ann"));
        let expected = [("a", "1"), ("b_c", "x y"), ("d", ""), ("application_name", "psql")];
        assert_eq!(startup.settings().unwrap(), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(startup.beyond(0), None);
    }

    #[test]
    fn malformed_ones_are_refused() {
        for rest in [&b""[..], b"user\0ann\0", b"user\0\0\0x", b"user", b"\xff\0\0\0"] {
            assert!(matches!(packet(3 << 16, rest), Err(Fault::Malformed(_))), "{rest:?}");
        }
        for line in ["-x", "-c", "-c a", "a=b", "--", "- -"] {
            assert!(options(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_goes_beyond_the_version_is_kept_apart() {
        let Ok(Packet::Startup(startup)) = packet(3 << 16 | 2, b"user\0a\0_pq_.x\0y\0\0") else {
            panic!("it is valid")
        };
        assert_eq!(startup.beyond(2), Some(&["_pq_.x".to_owned()][..]));
        assert_eq!(startup.settings().unwrap(), []);
    }
}
