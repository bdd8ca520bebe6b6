//! What a statement depends on of its session.

use freshet_sql::types::{Formats, TimeZone, Timestamp};
use serde::{Deserialize, Serialize};

use super::build;
use crate::{
    schema::Oid,
    session::settings::{self, Settings},
    syntax::Rules,
};

/// What a statement depends on of its session: in what surroundings it is read, bound and run.
/// Whatever else it asks the session is captured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// Which build of the program has executed it: another may have other functions, and other
    /// tables of time zones. Stands first, so that every version finds it.
    build: u64,
    /// The oid of the database.
    pub database: Oid,
    /// The role in whose name it runs.
    pub role: Oid,
    /// Where names without a schema are looked for.
    pub path: Vec<Oid>,
    /// TimeZone
    zone: String,
    /// DateStyle
    dates: String,
    /// IntervalStyle
    intervals: String,
    /// Whether bytea_output is `escape`.
    bytea_escape: bool,
    /// extra_float_digits
    float_digits: i8,
    /// standard_conforming_strings
    standard: bool,
    /// Whether backslash_quote lets `\'` stand for a quote.
    quotes: bool,
    /// The server's number in ids of rows.
    pub run: u64,
    /// When the server started: times of transactions count from here.
    pub started: i64,
}

impl Surroundings {
    /// Those of a session with these settings, on a server with this number that has started then.
    pub fn of(database: Oid, role: Oid, path: Vec<Oid>, settings: &Settings, (run, started): (u64, Timestamp)) -> Self {
        let shown = |name| settings.get(name).unwrap_or_default().to_owned();
        let ready = &settings.ready;
        Self {
            build: build::number(),
            database,
            role,
            path,
            zone: shown("timezone"),
            dates: shown("datestyle"),
            intervals: shown("intervalstyle"),
            bytea_escape: ready.formats.bytea_escape,
            float_digits: ready.formats.float_digits,
            standard: ready.literals.standard,
            quotes: ready.literals.quotes,
            run,
            started: started.0,
        }
    }

    /// Whether what was encoded here is of another build than this one.
    pub fn is_of_other_build(bytes: &[u8]) -> bool {
        postcard::take_from_bytes::<u64>(bytes).is_ok_and(|(build, _)| build != build::number())
    }

    /// In few bytes.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// What [`Surroundings::encode`] has written. None for other bytes; any are safe.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((surroundings, [])) => Some(surroundings),
            _ => None,
        }
    }

    /// The time zone.
    pub fn zone(&self) -> TimeZone {
        TimeZone::parse(&self.zone).unwrap_or(TimeZone::Utc)
    }

    /// How values are written and read.
    pub fn formats(&self) -> Formats {
        settings::formats(&self.dates, &self.intervals, self.bytea_escape, self.float_digits)
    }

    /// How literals are read.
    pub fn literals(&self) -> Rules {
        Rules { standard: self.standard, warns: false, quotes: self.quotes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::settings::By;

    const SERVER: (u64, Timestamp) = (u64::MAX, Timestamp(-1));

    #[test]
    fn settings_come_back() {
        let mut settings = Settings::default();
        let now = |settings: &Settings| Surroundings::of(5, 10, vec![11, 2200], settings, SERVER);
        assert_eq!(now(&settings).formats(), settings.ready.formats);
        for (name, value) in [
            ("timezone", "Europe/Berlin"),
            ("datestyle", "German, DMY"),
            ("intervalstyle", "iso_8601"),
            ("bytea_output", "escape"),
            ("extra_float_digits", "-3"),
            ("standard_conforming_strings", "off"),
            ("backslash_quote", "off"),
        ] {
            let before = now(&settings);
            settings.set(name, value, false, By::Statement).unwrap();
            let (after, ready) = (now(&settings), &settings.ready);
            assert_ne!(after, before, "{name}");
            let back = Surroundings::decode(&after.encode()).unwrap();
            assert_eq!(back, after);
            assert_eq!((back.zone(), back.formats()), (ready.zone, ready.formats), "{name}");
            let Rules { standard, quotes, .. } = back.literals();
            assert_eq!((standard, quotes), (ready.literals.standard, ready.literals.quotes), "{name}");
        }
    }

    #[test]
    fn another_build_is_noticed() {
        let ours = Surroundings::of(5, 10, vec![11, 2200], &Settings::default(), SERVER);
        assert!(!Surroundings::is_of_other_build(&ours.encode()));
        let theirs = Surroundings { build: ours.build ^ 1, ..ours };
        assert!(Surroundings::is_of_other_build(&theirs.encode()));
        assert!(!Surroundings::is_of_other_build(&[]));
    }

    #[test]
    fn other_bytes_are_none() {
        let bytes = Surroundings::of(5, 10, vec![11, 2200], &Settings::default(), SERVER).encode();
        for end in 0..bytes.len() {
            assert_eq!(Surroundings::decode(&bytes[..end]), None);
        }
        assert_eq!(Surroundings::decode(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(Surroundings::decode(&[0xff; 40]), None);
    }
}
