//! Addresses of networks and of network cards.

use std::{fmt::Write, net::Ipv6Addr};

use super::{Kind, text::invalid, wire::Reader};
use crate::{SqlError, SqlState};

/// How the wire and keys name the families.
const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 3;

/// An IP address, with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// Whether it is of version 6.
    pub v6: bool,
    /// How many bits are the network's.
    pub bits: u8,
    /// The address; of version 4, in the first four bytes.
    pub address: [u8; 16],
}

impl Net {
    /// As many bits as such an address has.
    pub const fn most_bits(self) -> u8 {
        if self.v6 { 128 } else { 32 }
    }

    const fn bytes(self) -> usize {
        if self.v6 { 16 } else { 4 }
    }

    /// The bits of the network's prefix.
    pub fn mask(self) -> [u8; 16] {
        let mut mask = [0; 16];
        for bit in 0..usize::from(self.bits) {
            mask[bit / 8] |= 0x80 >> (bit % 8);
        }
        mask
    }

    /// The bits of addresses of this version.
    pub fn all(self) -> [u8; 16] {
        Self { bits: self.most_bits(), ..self }.mask()
    }

    /// The same with another address, made of this one's bytes and others.
    pub fn combined(self, other: [u8; 16], combine: fn(u8, u8) -> u8) -> Self {
        let mut address = [0; 16];
        for at in 0..self.bytes() {
            address[at] = combine(self.address[at], other[at]);
        }
        Self { address, ..self }
    }

    /// Its network: the bits behind the prefix are zero.
    pub fn network(self) -> Self {
        self.combined(self.mask(), |byte, mask| byte & mask)
    }

    /// Whether the other one's address begins with this one's prefix, which is no longer than its
    /// own.
    pub fn contains_or_equals(self, other: Self) -> bool {
        self.v6 == other.v6
            && self.bits <= other.bits
            && Self { bits: self.bits, ..other }.network().address == self.network().address
    }

    /// Bytes that sort as addresses do: family, network, prefix, address.
    pub fn sort_bytes(self) -> [u8; 34] {
        let mut bytes = [0; 34];
        bytes[0] = if self.v6 { FAMILY_V6 } else { FAMILY_V4 };
        bytes[1..17].copy_from_slice(&self.network().address);
        bytes[17] = self.bits;
        bytes[18..].copy_from_slice(&self.address);
        bytes
    }

    /// Undoes [`Net::sort_bytes`]; none for other bytes.
    pub fn from_sort_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 34] = bytes.try_into().ok()?;
        let v6 = bytes[0] == FAMILY_V6;
        let address = bytes[18..].try_into().ok()?;
        let net = Self { v6, bits: bytes[17], address };
        (net.bits <= net.most_bits()).then_some(net)
    }

    /// Reads an address; a network if `cidr`.
    ///
    /// # Errors
    /// 22P02 when it is none.
    pub fn parse(text: &str, cidr: bool) -> Result<Self, SqlError> {
        let kind = if cidr { Kind::Cidr } else { Kind::Inet };
        let net = Self::read(text, cidr).ok_or_else(|| invalid(kind, text))?;
        if cidr && net.network() != net {
            return Err(SqlError::new(
                SqlState::INVALID_TEXT_REPRESENTATION,
                format!("invalid cidr value: \"{text}\""),
            )
            .with_detail("Value has bits set to right of mask."));
        }
        Ok(net)
    }

    fn read(text: &str, cidr: bool) -> Option<Self> {
        let (text, bits) = match text.split_once('/') {
            Some((text, bits)) => {
                if bits.is_empty() || bits.len() > 3 || !bits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return None;
                }
                (text, Some(bits.parse::<u8>().ok()?))
            }
            None => (text, None),
        };
        let (v6, address, implied) = if text.contains(':') {
            (true, text.parse::<Ipv6Addr>().ok()?.octets(), 128)
        } else {
            let mut address = [0; 16];
            let mut count = 0;
            for part in text.split('.') {
                let digits = (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
                *address[..4].get_mut(count)? = part.parse().ok().filter(|_| digits)?;
                count += 1;
            }
            // Networks may be abbreviated; then their class says how long the prefix is.
            let class = match address[0] {
                240.. => 32,
                224.. => 4,
                192.. => 24,
                128.. => 16,
                _ => 8,
            };
            if count < 4 && bits.is_none() && !cidr {
                return None;
            }
            let given = 8 * count as u8;
            let implied = if count == 4 {
                32
            } else if given > class && (class != 4 || count > 1) {
                given
            } else {
                class
            };
            (false, address, implied)
        };
        let net = Self { v6, bits: bits.unwrap_or(implied), address };
        (net.bits <= net.most_bits()).then_some(net)
    }

    /// Writes the address alone.
    pub fn write_address(self, out: &mut String) {
        let [a, b, c, d, ..] = self.address;
        if !self.v6 {
            let _ = write!(out, "{a}.{b}.{c}.{d}");
            return;
        }
        let words: Vec<u16> = self.address.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        // The longest run of zeros is left out, the first one of several.
        let (mut best, mut length) = (0, 0);
        let mut start = 0;
        for at in 0..=words.len() {
            if words.get(at) != Some(&0) {
                if at - start > length {
                    (best, length) = (start, at - start);
                }
                start = at + 1;
            }
        }
        let dotted = best == 0 && (length == 6 || length == 5 && words[5] == 0xffff);
        let mut at = 0;
        while at < words.len() {
            if length >= 2 && at == best {
                out.push_str("::");
                at += length;
                continue;
            }
            if at > 0 && !(length >= 2 && at == best + length) {
                out.push(':');
            }
            if dotted && at == 6 {
                let [.., a, b, c, d] = self.address;
                let _ = write!(out, "{a}.{b}.{c}.{d}");
                return;
            }
            let _ = write!(out, "{:x}", words[at]);
            at += 1;
        }
    }

    /// Writes it: with its prefix's length if it is a network, or not the longest.
    pub fn write(self, cidr: bool, out: &mut String) {
        self.write_address(out);
        if cidr || self.bits != self.most_bits() {
            let _ = write!(out, "/{}", self.bits);
        }
    }

    /// Reads the wire's form.
    ///
    /// # Errors
    /// 22P03 when it is malformed.
    pub fn read_binary(reader: &mut Reader<'_>, cidr: bool) -> Result<Self, SqlError> {
        let name = if cidr { "cidr" } else { "inet" };
        let malformed = |what: &str| {
            let message = format!("invalid {what} in external \"{name}\" value");
            SqlError::new(SqlState::INVALID_BINARY_REPRESENTATION, message)
        };
        let v6 = match reader.u8()? {
            FAMILY_V4 => false,
            FAMILY_V6 => true,
            _ => return Err(malformed("address family")),
        };
        let mut net = Self { v6, bits: reader.u8()?, address: [0; 16] };
        if net.bits > net.most_bits() {
            return Err(malformed("bits"));
        }
        let _ = reader.u8()?;
        if usize::from(reader.u8()?) != net.bytes() {
            return Err(malformed("length"));
        }
        let length = net.bytes();
        net.address[..length].copy_from_slice(reader.take(length)?);
        if cidr && net.network() != net {
            let message = "invalid external \"cidr\" value";
            return Err(SqlError::new(SqlState::INVALID_BINARY_REPRESENTATION, message)
                .with_detail("Value has bits set to right of mask."));
        }
        Ok(net)
    }

    /// Writes the wire's form.
    pub fn write_binary(self, cidr: bool, out: &mut Vec<u8>) {
        out.extend([if self.v6 { FAMILY_V6 } else { FAMILY_V4 }, self.bits, u8::from(cidr), self.bytes() as u8]);
        out.extend(&self.address[..self.bytes()]);
    }
}

/// Reads the address of a network card of six bytes.
///
/// # Errors
/// 22P02 when it is none.
pub fn parse_macaddr(text: &str) -> Result<[u8; 6], SqlError> {
    let error = || invalid(Kind::Macaddr, text);
    let trimmed = text.trim_matches(super::text::is_space);
    let forms: [(&[char], usize, std::ops::RangeInclusive<usize>); 6] = [
        (&[':'], 6, 1..=2),
        (&['-'], 6, 1..=2),
        (&[':', '-'], 2, 6..=6),
        (&['.'], 3, 4..=4),
        (&['-'], 3, 4..=4),
        (&[], 1, 12..=12),
    ];
    for (signs, count, lengths) in forms {
        let parts: Vec<&str> = trimmed.split(|sign| signs.contains(&sign)).collect();
        let fits = parts.len() == count
            && parts
                .iter()
                .all(|part| lengths.contains(&part.len()) && part.bytes().all(|digit| digit.is_ascii_hexdigit()));
        if fits {
            let digits: String = parts.iter().map(|part| format!("{part:0>2}")).collect();
            return hex(&digits).and_then(|bytes| bytes.try_into().ok()).ok_or_else(error);
        }
    }
    Err(error())
}

/// Reads the address of a network card of eight bytes; one of six gets two in its middle.
///
/// # Errors
/// 22P02 when it is none.
pub fn parse_macaddr8(text: &str) -> Result<[u8; 8], SqlError> {
    let error = || invalid(Kind::Macaddr8, text);
    let trimmed = text.trim_matches(super::text::is_space);
    let sign = trimmed.chars().find(|sign| matches!(sign, ':' | '-' | '.'));
    let parts: Vec<&str> = trimmed.split(|found| Some(found) == sign).collect();
    if parts.iter().any(|part| part.is_empty() || !part.len().is_multiple_of(2)) {
        return Err(error());
    }
    let bytes = hex(&parts.concat()).ok_or_else(error)?;
    match bytes[..] {
        [a, b, c, d, e, f] => Ok([a, b, c, 0xff, 0xfe, d, e, f]),
        _ => bytes.try_into().map_err(|_| error()),
    }
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| super::bytes::hex_digit(*byte);
    digits.as_bytes().chunks(2).map(|pair| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?)).collect()
}

/// Writes bytes as pairs of hexadecimal digits between colons.
pub fn write_macaddr(bytes: &[u8], out: &mut String) {
    for (at, byte) in bytes.iter().enumerate() {
        if at > 0 {
            out.push(':');
        }
        super::bytes::write_hex(*byte, out);
    }
}
