//! Values of a few bytes that lie as bytes which sort as they do: addresses, times with a zone, and
//! places in the log.

use std::{cmp::Ordering, hash};

use super::{
    EvalContext, Kind,
    datetime::TimeTz,
    lsn,
    network::{self, Net},
    wire::Reader,
};
use crate::{SqlError, SqlState};

/// A value of a packed type: address, time with a zone, or LSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    which: Which,
    bytes: [u8; 18],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Inet,
    Cidr,
    Macaddr,
    Macaddr8,
    Timetz,
    Lsn,
}

/// The longest of their sort bytes.
const WIDEST: usize = 34;

/// The bytes by which such values sort, and as which they lie in rows.
#[derive(Clone, Copy, Debug)]
pub struct PackedBytes {
    bytes: [u8; WIDEST],
    length: usize,
}

impl PackedBytes {
    fn of(bytes: &[u8]) -> Self {
        let mut all = [0; WIDEST];
        all[..bytes.len()].copy_from_slice(bytes);
        Self { bytes: all, length: bytes.len() }
    }

    /// Those bytes that the value has.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Kind {
    /// How many bytes a value of such a type lies in; nothing of other types.
    pub const fn packed_width(self) -> Option<usize> {
        match self {
            Self::Inet | Self::Cidr => Some(34),
            Self::Macaddr => Some(6),
            Self::Macaddr8 | Self::PgLsn => Some(8),
            Self::Timetz => Some(12),
            _ => None,
        }
    }
}

fn which(kind: Kind) -> Option<Which> {
    Some(match kind {
        Kind::Inet => Which::Inet,
        Kind::Cidr => Which::Cidr,
        Kind::Macaddr => Which::Macaddr,
        Kind::Macaddr8 => Which::Macaddr8,
        Kind::Timetz => Which::Timetz,
        Kind::PgLsn => Which::Lsn,
        _ => return None,
    })
}

impl Packed {
    fn of(which: Which, bytes: &[u8]) -> Self {
        let mut all = [0; 18];
        all[..bytes.len()].copy_from_slice(bytes);
        Self { which, bytes: all }
    }

    /// An address of a host or of a network.
    pub fn net(net: Net, cidr: bool) -> Self {
        let mut bytes = [0; 18];
        (bytes[0], bytes[1]) = (net.v6.into(), net.bits);
        bytes[2..].copy_from_slice(&net.address);
        Self { which: if cidr { Which::Cidr } else { Which::Inet }, bytes }
    }

    /// The address of a network card.
    pub fn macaddr(bytes: [u8; 6]) -> Self {
        Self::of(Which::Macaddr, &bytes)
    }

    /// The address of a network card, of eight bytes.
    pub fn macaddr8(bytes: [u8; 8]) -> Self {
        Self::of(Which::Macaddr8, &bytes)
    }

    /// A time with a zone.
    pub fn timetz(time: TimeTz) -> Self {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&time.micros.to_ne_bytes());
        bytes[8..].copy_from_slice(&time.west.to_ne_bytes());
        Self::of(Which::Timetz, &bytes)
    }

    /// A place in the log.
    pub fn lsn(lsn: u64) -> Self {
        Self::of(Which::Lsn, &lsn.to_be_bytes())
    }

    /// The kind of type whose value it is.
    pub const fn kind(self) -> Kind {
        match self.which {
            Which::Inet => Kind::Inet,
            Which::Cidr => Kind::Cidr,
            Which::Macaddr => Kind::Macaddr,
            Which::Macaddr8 => Kind::Macaddr8,
            Which::Timetz => Kind::Timetz,
            Which::Lsn => Kind::PgLsn,
        }
    }

    /// The address that it is, and whether of a network.
    pub fn as_net(self) -> Option<(Net, bool)> {
        let cidr = match self.which {
            Which::Inet => false,
            Which::Cidr => true,
            _ => return None,
        };
        let mut address = [0; 16];
        address.copy_from_slice(&self.bytes[2..]);
        Some((Net { v6: self.bytes[0] != 0, bits: self.bytes[1], address }, cidr))
    }

    /// The bytes of a network card's address.
    pub fn as_card(&self) -> Option<&[u8]> {
        match self.which {
            Which::Macaddr => Some(&self.bytes[..6]),
            Which::Macaddr8 => Some(&self.bytes[..8]),
            _ => None,
        }
    }

    /// The time that it is.
    pub fn as_timetz(self) -> Option<TimeTz> {
        if self.which != Which::Timetz {
            return None;
        }
        let micros = i64::from_ne_bytes(*self.bytes.first_chunk()?);
        let west = i32::from_ne_bytes(*self.bytes[8..].first_chunk()?);
        Some(TimeTz { micros, west })
    }

    /// The place in the log that it is.
    pub fn as_lsn(self) -> Option<u64> {
        self.bytes.first_chunk().filter(|_| self.which == Which::Lsn).map(|bytes| u64::from_be_bytes(*bytes))
    }

    /// Bytes that sort as the values of its type do.
    pub fn sort_bytes(self) -> PackedBytes {
        match (self.as_net(), self.as_card(), self.as_timetz()) {
            (Some((net, _)), ..) => PackedBytes::of(&net.sort_bytes()),
            (_, Some(card), _) => PackedBytes::of(card),
            (_, _, Some(time)) => PackedBytes::of(&time.sort_bytes()),
            _ => PackedBytes::of(&self.as_lsn().unwrap_or_default().to_be_bytes()),
        }
    }

    /// The value of a type with these sort bytes.
    pub fn from_sort_bytes(kind: Kind, bytes: &[u8]) -> Option<Self> {
        Some(match which(kind)? {
            Which::Inet => Self::net(Net::from_sort_bytes(bytes)?, false),
            Which::Cidr => Self::net(Net::from_sort_bytes(bytes)?, true),
            Which::Macaddr => Self::macaddr(bytes.try_into().ok()?),
            Which::Macaddr8 => Self::macaddr8(bytes.try_into().ok()?),
            Which::Timetz => Self::timetz(TimeTz::from_sort_bytes(bytes)?),
            Which::Lsn => Self::lsn(u64::from_be_bytes(bytes.try_into().ok()?)),
        })
    }

    /// Reads a value of a type.
    ///
    /// # Errors
    /// 22P02 and others when it is none.
    pub fn parse(kind: Kind, text: &str, context: &EvalContext<'_>) -> Result<Self, SqlError> {
        match which(kind) {
            Some(Which::Inet) => Net::parse(text, false).map(|net| Self::net(net, false)),
            Some(Which::Cidr) => Net::parse(text, true).map(|net| Self::net(net, true)),
            Some(Which::Macaddr) => network::parse_macaddr(text).map(Self::macaddr),
            Some(Which::Macaddr8) => network::parse_macaddr8(text).map(Self::macaddr8),
            Some(Which::Timetz) => TimeTz::parse(text, context.moment()).map(Self::timetz),
            Some(Which::Lsn) => lsn::parse(text).map(Self::lsn),
            None => Err(SqlError::internal(format!("values of type {kind} are not packed"))),
        }
    }

    /// Appends the value as text.
    pub fn write(self, out: &mut String) {
        match (self.as_net(), self.as_card(), self.as_timetz()) {
            (Some((net, cidr)), ..) => net.write(cidr, out),
            (_, Some(card), _) => network::write_macaddr(card, out),
            (_, _, Some(time)) => time.write(out),
            _ => lsn::write(self.as_lsn().unwrap_or_default(), out),
        }
    }

    /// Reads the wire's form.
    ///
    /// # Errors
    /// 22P03, 08P01, 22008 when it is none.
    pub fn read_binary(kind: Kind, reader: &mut Reader<'_>) -> Result<Self, SqlError> {
        Ok(match which(kind) {
            Some(Which::Inet) => Self::net(Net::read_binary(reader, false)?, false),
            Some(Which::Cidr) => Self::net(Net::read_binary(reader, true)?, true),
            Some(Which::Macaddr) => Self::macaddr(reader.array()?),
            Some(Which::Macaddr8) => Self::macaddr8(reader.array()?),
            Some(Which::Lsn) => Self::lsn(u64::from_be_bytes(reader.array()?)),
            Some(Which::Timetz) => {
                let time = TimeTz { micros: reader.i64()?, west: reader.i32()? };
                if !time.is_valid() {
                    return Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "time out of range"));
                }
                Self::timetz(time)
            }
            None => return Err(SqlError::internal(format!("values of type {kind} are not packed"))),
        })
    }

    /// Writes the wire's form.
    pub fn write_binary(self, out: &mut Vec<u8>) {
        match (self.as_net(), self.as_card(), self.as_timetz()) {
            (Some((net, cidr)), ..) => net.write_binary(cidr, out),
            (_, Some(card), _) => out.extend(card),
            (_, _, Some(time)) => {
                out.extend(time.micros.to_be_bytes());
                out.extend(time.west.to_be_bytes());
            }
            _ => out.extend(self.as_lsn().unwrap_or_default().to_be_bytes()),
        }
    }

    /// Compares as `<` and `=` do.
    pub fn compare(self, other: Self) -> Ordering {
        self.sort_bytes().as_slice().cmp(other.sort_bytes().as_slice())
    }

    /// Hashes what equal values have in common.
    #[expect(clippy::should_implement_trait, reason = "by value, as all methods here")]
    pub fn hash<H: hash::Hasher>(self, state: &mut H) {
        state.write(self.sort_bytes().as_slice());
    }
}
