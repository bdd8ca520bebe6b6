//! Numbers in as few bytes as they need: seven bits a byte, the lowest first, and a bit that says
//! that another byte follows (LEB128, as `postcard` writes them too).

/// The most bytes that a number takes.
pub const LONGEST: usize = 10;

/// Appends a number, seven bits a byte, the lowest first.
#[inline]
pub fn put(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Takes a number from the beginning of `from`. None when no number of 64 bits lies there; `from`
/// is of no use then. Any bytes are safe.
#[inline]
pub fn take(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..LONGEST {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if place == LONGEST - 1 && bits > 1 {
            return None;
        }
        number |= bits << (7 * place);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// A signed number as an unsigned one that is small where its magnitude is.
#[inline]
pub const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// What [`zigzag`] was given.
#[inline]
pub const fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let edges = (0..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        for number in edges.chain([u64::MAX]) {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            assert_eq!(bytes.len(), (64 - number.leading_zeros() as usize).div_ceil(7).max(1), "{number}");
            bytes.push(0xff);
            let mut from = &bytes[..];
            assert_eq!((take(&mut from), from), (Some(number), &[0xff][..]));
            assert_eq!(zigzag(unzigzag(number)), number);
            assert_eq!(unzigzag(zigzag(number as i64)), number as i64);
        }
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for bytes in [&[][..], &[0x80], &[0xff; 9], &[0xff; 10], &[0xff; 11], &[0x80; 12]] {
            assert_eq!(take(&mut &bytes[..]), None, "{bytes:?}");
        }
        // Bit 64.
        assert_eq!(take(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2][..]), None);
    }
}
