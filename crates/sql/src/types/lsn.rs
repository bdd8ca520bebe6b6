//! Places in the log, written as PostgreSQL does: two hexadecimal numbers of 32 bits.

use std::fmt::Write as _;

use super::{Kind, text::invalid};
use crate::SqlError;

/// The place that is written so.
///
/// # Errors
/// 22P02 when it is none.
pub(super) fn parse(text: &str) -> Result<u64, SqlError> {
    let part = |text: &str| {
        let plain = (1..=8).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| plain)
    };
    let parts = text.split_once('/').and_then(|(high, low)| Some((part(high)?, part(low)?)));
    parts.map(|(high, low)| high << 32 | low).ok_or_else(|| invalid(Kind::PgLsn, text))
}

/// Writes an LSN as `pg_lsn` shows it: two hexadecimal numbers and a slash.
pub(super) fn write(lsn: u64, out: &mut String) {
    let _ = write!(out, "{:X}/{:X}", lsn >> 32, lsn & 0xFFFF_FFFF);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_the_log_are_read_as_they_are_written() {
        for lsn in [0, 1, 0xFFFF_FFFF, 0x1_0000_0000, u64::MAX] {
            let mut text = String::new();
            write(lsn, &mut text);
            assert_eq!(parse(&text).unwrap(), lsn, "{text}");
        }
        assert_eq!(parse("16/b374D848").unwrap(), 0x16_B374_D848);
        for wrong in ["", "1", "/", "1/", "/1", "g/0", "+1/0", "123456789/0", " 1/0"] {
            assert_eq!(parse(wrong).unwrap_err().state.code(), "22P02", "{wrong}");
        }
    }
}
