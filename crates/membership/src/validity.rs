//! When a certificate is valid. Reads no more of it than that, and trusts nothing in it.

use rustls::pki_types::CertificateDer;

/// DER's tags that are met on the way.
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xA0;

/// Both in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Valid {
    /// From then on.
    pub from: u64,
    /// When it ends.
    pub until: u64,
}

/// When it is valid; none when it does not say.
pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Valid> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (content, _) = element(whole, SEQUENCE)?;
    let rest = element(content, VERSION).map_or(content, |(_, rest)| rest);
    let (_, rest) = element(rest, INTEGER)?;
    // The algorithm, and who has signed it.
    let (_, rest) = element(rest, SEQUENCE)?;
    let (_, rest) = element(rest, SEQUENCE)?;
    let (validity, _) = element(rest, SEQUENCE)?;
    let (from, until) = time(validity)?;
    Some(Valid { from, until: time(until)?.0 })
}

/// A time, and what follows. What is before 1970 is taken for 1970.
fn time(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (tag, text, rest) = first(bytes)?;
    Some((seconds(tag, std::str::from_utf8(text).ok()?)?, rest))
}

/// The first element: its tag, its content, and what follows.
fn first(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        short if *short < 0x80 => (usize::from(*short), rest),
        long @ 0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(long - 0x80))?;
            (digits.iter().fold(0, |number, digit| number << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    first(bytes).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// `YYMMDDHHMMSSZ`, of the years from 1950 on, or `YYYYMMDDHHMMSSZ`.
fn seconds(tag: u8, text: &str) -> Option<u64> {
    let digits = text.strip_suffix('Z').filter(|text| text.bytes().all(|digit| digit.is_ascii_digit()))?;
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year: u64 = digits[..2].parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &digits[2..])
        }
        (GENERALIZED_TIME, 14) => (digits[..4].parse().ok()?, &digits[4..]),
        _ => return None,
    };
    let part = |at: usize| rest[2 * at..2 * at + 2].parse::<u64>().ok();
    let (month, day, hour, minute, second) = (part(0)?, part(1)?, part(2)?, part(3)?, part(4)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if year < 1970 {
        return Some(0);
    }
    // Days since 1970, by years that begin in March, so that a leap day comes last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn until(year: i32, month: u8, day: u8) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["node.freshet".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, month, day);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_end_of_a_certificate_is_found() {
        for (year, month, day, seconds) in [
            (1970, 1, 2, 86_400),
            (2024, 2, 29, 1_709_164_800),
            (2030, 12, 31, 1_924_905_600),
            (2049, 12, 31, 2_524_521_600),
            (2050, 1, 1, 2_524_608_000),
            (4096, 1, 1, 67_090_118_400),
        ] {
            let der = until(year, month, day);
            let valid = Valid { from: 157_766_400, until: seconds };
            assert_eq!(of(&CertificateDer::from(der)), Some(valid), "{year}-{month}-{day}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        let whole = until(2030, 1, 1);
        for length in 0..whole.len() {
            let _ = of(&CertificateDer::from(whole[..length].to_vec()));
            let mut changed = whole.clone();
            changed[length] ^= 0xFF;
            let _ = of(&CertificateDer::from(changed));
        }
        assert_eq!(of(&CertificateDer::from(Vec::new())), None);
        assert_eq!(of(&CertificateDer::from(whole[..60].to_vec())), None);
    }
}
