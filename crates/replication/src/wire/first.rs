//! The first message of a connection and its answer, by which both sides agree on a version.
//!
//! Both begin with the version in which they are written, the oldest and the newest that the sender
//! speaks, two bytes each. Who connects writes the newest. Who does not speak that answers with its
//! own versions and nothing behind them, and the other side introduces itself again, in the highest
//! that both speak. So two nodes of one release need no more messages than without that. These six
//! bytes are for good.
//!
//! A node whose newest version is older than the cluster's format level asks for is refused: it
//! could not read what it would get.

use std::ops::RangeInclusive;

use freshet_base::versions::{self, Level, OtherVersion, RELEASE, Versions};
use freshet_fabric::tcp::{Connection, Spoken};
use serde::{Serialize, de::DeserializeOwned};

use super::{DecodeError, decode, encode};

/// Changes with every change of a message. Each format level has a version of its own, so that a
/// node's versions say which levels it knows.
pub const READS: Versions = Versions::new(33, 33);
/// The newest.
pub const PROTOCOL: u16 = READS.newest() as u16;

/// Bytes before the message.
const HEAD: usize = 6;

/// The version that a node has to speak in a cluster of this level.
pub fn needed_at(level: Level) -> u16 {
    READS.written_at(level) as u16
}

/// Why a node is refused whose newest version is `theirs`, if this cluster needs a newer one.
pub(crate) fn too_old(theirs: u16) -> Option<String> {
    let (level, needed) = (versions::level(), needed_at(versions::level()));
    (theirs < needed).then(|| {
        format!(
            "the upgrade of this cluster was finished: it has format level {level}, for which a node has to speak \
             protocol version {needed}, and this one speaks {theirs}: run at least release {RELEASE} there"
        )
    })
}

/// Encodes a [`Hello`](super::Hello) or a [`Reply`](super::Reply), for a side that speaks
/// `version`.
pub fn encode_in<T: Serialize>(version: u16, message: &T) -> Vec<u8> {
    let mut bytes = versions_in(version);
    bytes.extend(encode(message));
    if READS.is_next(version.into()) {
        bytes.extend(RELEASE.as_bytes());
    }
    bytes
}

/// Encodes an answer on this connection.
pub fn encode_first<T: Serialize>(connection: &Connection, message: &T) -> Vec<u8> {
    encode_in(connection.spoken().map_or(PROTOCOL, |spoken| spoken.version), message)
}

/// What stands before a message; alone, it answers one that this side cannot read.
pub(crate) fn versions_in(version: u16) -> Vec<u8> {
    let (oldest, newest) = READS.reads().into_inner();
    [version, oldest as u16, newest as u16].into_iter().flat_map(u16::to_le_bytes).collect()
}

/// Decodes a [`Hello`](super::Hello) or a [`Reply`](super::Reply); says what both sides speak from
/// now on.
///
/// # Errors
/// [`DecodeError`]; [`DecodeError::Version`] where it is written in another version, or has nothing
/// but versions.
pub fn decode_first<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<(T, Spoken), DecodeError> {
    let malformed = |why: &str| DecodeError::Malformed { what, why: why.to_owned() };
    let Some((head, message)) = bytes.split_first_chunk::<HEAD>() else {
        // What releases before 0.2.0 send, which have one version only, is no shorter than this.
        return Err(malformed("it is too short"));
    };
    let word = |at: usize| u32::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let (version, theirs) = (word(0), word(2)..=word(4));
    if READS.check(version).is_err() || message.is_empty() {
        // Before 0.2.0 no versions followed.
        let theirs = if theirs.contains(&version) { theirs } else { version..=version };
        return Err(DecodeError::Version(Differ { theirs }));
    }
    let common = READS.common(&theirs).ok_or_else(|| malformed("it is in a version that its sender does not speak"))?;
    let message = match message.strip_suffix(RELEASE.as_bytes()) {
        Some(message) if READS.is_next(version) => message,
        None if READS.is_next(version) => return Err(malformed("it does not name its release")),
        _ => message,
    };
    let newest = u16::try_from(*theirs.end()).unwrap_or(u16::MAX);
    let version = u16::try_from(common).unwrap_or(PROTOCOL);
    Ok((decode(what, message)?, Spoken { version, newest }))
}

/// The other side writes in a version that this one does not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Differ {
    theirs: RangeInclusive<u32>,
}

impl Differ {
    /// The highest version that both speak.
    pub fn common(&self) -> Option<u16> {
        READS.common(&self.theirs).and_then(|common| u16::try_from(common).ok())
    }
}

impl std::fmt::Display for Differ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (oldest, newest) = (*self.theirs.start(), *self.theirs.end());
        let nearest = if newest < *READS.reads().start() { newest } else { oldest };
        write!(f, "the other side speaks protocol versions {oldest} to {newest}, and so ")?;
        match READS.check(nearest) {
            Ok(()) => write!(f, "has one in common with this one, which speaks {READS}"),
            Err(OtherVersion { found, .. }) if found > u32::from(PROTOCOL) => {
                write!(f, "is of a later release; this one, {RELEASE}, speaks {READS}: run at least that release here")
            }
            Err(_) => write!(f, "is of an earlier release; this one, {RELEASE}, speaks {READS}: upgrade that node"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Hello, Purpose};
    use freshet_base::NodeId;

    fn hello() -> Hello {
        Hello { cluster: None, node: NodeId(1), address: "host:1".into(), purpose: Purpose::Identify }
    }

    /// As a release that speaks `theirs` writes it, in its `version`.
    fn of_another(version: u32, theirs: RangeInclusive<u32>) -> Vec<u8> {
        let mut bytes = encode_in(PROTOCOL, &hello());
        for (at, word) in [version, *theirs.start(), *theirs.end()].into_iter().enumerate() {
            bytes[2 * at..2 * at + 2].copy_from_slice(&(word as u16).to_le_bytes());
        }
        bytes
    }

    #[test]
    fn both_sides_take_the_highest_version_that_they_speak() {
        let ours = u32::from(PROTOCOL);
        let (heard, spoken) = decode_first::<Hello>("greeting", &of_another(ours, ours..=ours + 3)).unwrap();
        assert_eq!((heard, spoken), (hello(), Spoken { version: PROTOCOL, newest: PROTOCOL + 3 }));
        // Written in a later version by one that speaks this one, too.
        let error = decode_first::<Hello>("greeting", &of_another(ours + 1, ours..=ours + 1)).unwrap_err();
        let DecodeError::Version(differ) = error else { panic!("{error}") };
        assert_eq!(differ.common(), Some(PROTOCOL));
        // Versions alone, as the answer to what could not be read.
        let error = decode_first::<Hello>("answer", &versions_in(PROTOCOL)).unwrap_err();
        assert!(matches!(&error, DecodeError::Version(differ) if differ.common() == Some(PROTOCOL)), "{error}");
    }

    #[test]
    fn without_a_common_version_the_message_names_both() {
        let ours = u32::from(PROTOCOL);
        for (theirs, whose) in [(ours + 2..=ours + 4, "of a later release"), (7..=9, "of an earlier release")] {
            let error = decode_first::<Hello>("greeting", &of_another(*theirs.end(), theirs.clone())).unwrap_err();
            let DecodeError::Version(differ) = error else { panic!("{error}") };
            let text = differ.to_string();
            assert_eq!(differ.common(), None);
            assert!(text.contains(whose) && text.contains(&READS.to_string()), "{text}");
            assert!(text.contains(&theirs.end().to_string()), "{text}");
        }
    }

    /// A greeting of 0.1.0: the version, and the message at once.
    #[test]
    fn a_node_of_before_the_versions_is_an_earlier_release() {
        let mut bytes = 32_u16.to_le_bytes().to_vec();
        bytes.extend(encode(&hello()));
        let error = decode_first::<Hello>("greeting", &bytes).unwrap_err().to_string();
        assert!(error.contains("32 to 32") && error.contains("of an earlier release"), "{error}");
    }
}
