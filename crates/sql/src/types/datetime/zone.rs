//! Time zones: those of the IANA database, and fixed offsets.

use std::{fmt, fmt::Write};

use chrono::{DateTime, Offset, TimeZone as _};
use chrono_tz::{TZ_VARIANTS, Tz};

use super::{DAY, SECOND, Timestamp, UNIX_EPOCH, calendar};
use crate::{SqlError, SqlState};

/// The offset that clocks of some place have from UTC, at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeZone {
    /// No offset, ever.
    Utc,
    /// A place of the IANA database.
    Place(Tz),
    /// Always this many seconds, to the east when positive.
    Fixed(i32),
    /// MSK, which has meant different offsets.
    Moscow,
}

/// Offsets are below 16 hours, as PostgreSQL has it.
pub(super) const MAX_OFFSET: i32 = 16 * 3600;

/// The database's rules are written out until this year; later years repeat them.
const LAST_YEAR: i32 = 2099;

impl TimeZone {
    /// A zone by its name or by a fixed offset, as `SET TIME ZONE` takes it: `Europe/Berlin`,
    /// `UTC`, `+02`, `-5.5`. The offset of `<+05>-05` and `UTC-5` counts to the west, as POSIX has
    /// it.
    ///
    /// # Errors
    /// 22023 when there is no such zone.
    pub fn parse(name: &str) -> Result<Self, SqlError> {
        Self::find(name).ok_or_else(|| {
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized"))
        })
    }

    /// A zone as the setting TimeZone takes it, which knows no abbreviations, and what SHOW then
    /// shows: of POSIX's notation that itself.
    pub fn setting(name: &str) -> Option<(Self, String)> {
        if let Some(zone) = Self::named(name) {
            return Some((zone, zone.to_string()));
        }
        let written = name.trim_ascii().to_ascii_uppercase();
        posix(name).map(|seconds| (Self::Fixed(seconds), written))
    }

    /// The zone of a name, an abbreviation, or POSIX's notation.
    pub fn find(name: &str) -> Option<Self> {
        Self::named(name).or_else(|| abbreviation(name)).or_else(|| posix(name).map(Self::Fixed))
    }

    fn named(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("utc") || name.eq_ignore_ascii_case("z") || name.eq_ignore_ascii_case("zulu") {
            return Some(Self::Utc);
        }
        Self::place(name)
    }

    /// A place of the IANA database, in any case.
    pub fn place(name: &str) -> Option<Self> {
        if let Ok(zone) = name.parse::<Tz>() {
            return Some(Self::Place(zone));
        }
        TZ_VARIANTS.iter().find(|zone| zone.name().eq_ignore_ascii_case(name)).copied().map(Self::Place)
    }

    /// Always this many seconds to the east.
    ///
    /// # Errors
    /// 22009 when that is too far.
    pub fn fixed(seconds: i64) -> Result<Self, SqlError> {
        match i32::try_from(seconds) {
            Ok(0) => Ok(Self::Utc),
            Ok(seconds) if seconds.abs() < MAX_OFFSET => Ok(Self::Fixed(seconds)),
            _ => Err(SqlError::new(
                SqlState::INVALID_TIME_ZONE_DISPLACEMENT_VALUE,
                "time zone displacement out of range",
            )),
        }
    }

    /// Seconds to the east of UTC at a moment.
    #[inline]
    pub fn offset_at(self, moment: Timestamp) -> i32 {
        match self {
            Self::Utc => 0,
            Self::Fixed(seconds) => seconds,
            Self::Place(zone) => place_offset(zone, moment.0),
            Self::Moscow => moscow_offset(moment.0),
        }
    }

    /// Seconds to the east of UTC when clocks show a time. A time that clocks skip is taken as if
    /// they had not been put forward; one that they show twice, as the second of these.
    pub fn offset_of_local(self, local: Timestamp) -> i32 {
        if self == Self::Moscow {
            let offset = Self::Place(Tz::Europe__Moscow).offset_of_local(local);
            return moscow_offset(local.0 - i64::from(offset) * SECOND);
        }
        let Self::Place(zone) = self else { return self.offset_at(local) };
        let before = place_offset(zone, local.0.saturating_sub(DAY));
        let after = place_offset(zone, local.0.saturating_add(DAY));
        if before == after {
            // Places that change twice within two days are none of this world's.
            return before;
        }
        let shows = |offset: i32| place_offset(zone, local.0 - i64::from(offset) * SECOND) == offset;
        if shows(after) { after } else { before }
    }

    /// What clocks of the zone call themselves at a moment: `CET`, `+03`.
    pub fn abbreviation_at(self, moment: Timestamp) -> String {
        match self {
            Self::Utc => "UTC".to_owned(),
            Self::Moscow => MOSCOW.to_owned(),
            Self::Fixed(seconds) => {
                let mut name = String::new();
                write_offset(seconds, &mut name);
                name
            }
            Self::Place(zone) => with_offset(zone, moment.0, |offset| {
                chrono_tz::OffsetName::abbreviation(offset).unwrap_or_default().to_owned()
            }),
        }
    }
}

/// As `SHOW timezone` prints it.
impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Utc => f.write_str("UTC"),
            Self::Moscow => f.write_str(MOSCOW),
            Self::Place(zone) => f.write_str(zone.name()),
            Self::Fixed(seconds) => {
                let (mut name, mut opposite) = (String::new(), String::new());
                write_offset(*seconds, &mut name);
                write_offset(-*seconds, &mut opposite);
                write!(f, "<{name}>{opposite}")
            }
        }
    }
}

fn place_offset(zone: Tz, micros: i64) -> i32 {
    with_offset(zone, micros, |offset| offset.fix().local_minus_utc())
}

fn with_offset<T>(zone: Tz, micros: i64, read: impl FnOnce(&<Tz as chrono::TimeZone>::Offset) -> T) -> T {
    let seconds = similar_year(micros.div_euclid(SECOND)) + UNIX_EPOCH / SECOND;
    let moment = DateTime::from_timestamp(seconds, 0).unwrap_or_default().naive_utc();
    read(&zone.offset_from_utc_datetime(&moment))
}

/// The same second of a year that the database knows and that has the same days of the week.
fn similar_year(seconds: i64) -> i64 {
    let day_seconds = DAY / SECOND;
    let day = seconds.div_euclid(day_seconds);
    let year = calendar::Civil::of_days(day).year;
    if year <= LAST_YEAR {
        return seconds;
    }
    let first = calendar::days(year.into(), 1, 1);
    let similar = (LAST_YEAR - 27..=LAST_YEAR).map(i64::from).find(|&candidate| {
        calendar::is_leap(candidate) == calendar::is_leap(year.into())
            && calendar::weekday(calendar::days(candidate, 1, 1)) == calendar::weekday(first)
    });
    let similar = similar.unwrap_or(LAST_YEAR.into());
    seconds - (first - calendar::days(similar, 1, 1)) * day_seconds
}

/// Writes seconds to the east as `+02`, `-03:30` or `+00:19:32`.
pub(super) fn write_offset(seconds: i32, out: &mut String) {
    let magnitude = seconds.unsigned_abs();
    let _ = write!(out, "{}{:02}", if seconds < 0 { '-' } else { '+' }, magnitude / 3600);
    if !magnitude.is_multiple_of(3600) {
        let _ = write!(out, ":{:02}", magnitude / 60 % 60);
    }
    if !magnitude.is_multiple_of(60) {
        let _ = write!(out, ":{:02}", magnitude % 60);
    }
}

/// Reads `hh`, `hhmm`, `hh:mm` or `hh:mm:ss` as seconds.
pub(super) fn parse_displacement(text: &str) -> Option<i32> {
    let number = |text: &str| text.parse::<i32>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let (hours, minutes, seconds) = match text.split(':').collect::<Vec<_>>()[..] {
        [digits] if digits.len() <= 2 => (number(digits)?, 0, 0),
        [digits] if digits.len() <= 6 && digits.is_ascii() => {
            let (rest, last) = digits.split_at(digits.len() - 2);
            match rest.len() {
                0..=2 => (number(rest)?, number(last)?, 0),
                _ => {
                    let (first, middle) = rest.split_at(rest.len() - 2);
                    (number(first)?, number(middle)?, number(last)?)
                }
            }
        }
        [hours, minutes] => (number(hours)?, number(minutes)?, 0),
        [hours, minutes, seconds] => (number(hours)?, number(minutes)?, number(seconds)?),
        _ => return None,
    };
    (hours < 16 && minutes < 60 && seconds < 60).then_some(hours * 3600 + minutes * 60 + seconds)
}

/// The offset of a POSIX zone without rules: `UTC-5`, `<+05>-05`, `+5`. It counts to the west.
fn posix(name: &str) -> Option<i32> {
    let rest = match name.strip_prefix('<') {
        Some(quoted) => quoted.split_once('>')?.1,
        None => name.trim_start_matches(|character: char| character.is_ascii_alphabetic()),
    };
    let (west, digits) = match rest.as_bytes().first()? {
        b'-' => (false, &rest[1..]),
        b'+' => (true, &rest[1..]),
        b'0'..=b'9' => (true, rest),
        _ => return None,
    };
    let seconds = parse_displacement(digits)?;
    Some(if west { -seconds } else { seconds })
}

/// The zone that an abbreviation means by default.
pub(super) fn abbreviation(name: &str) -> Option<TimeZone> {
    fn find<T: Copy>(table: &[(&str, T)], upper: &[u8]) -> Option<T> {
        let at = table.binary_search_by(|(known, _)| known.as_bytes().cmp(upper)).ok()?;
        Some(table[at].1)
    }
    let mut upper = [0; 5];
    let upper = upper.get_mut(..name.len())?;
    upper.copy_from_slice(name.as_bytes());
    upper.make_ascii_uppercase();
    if upper == MOSCOW.as_bytes() {
        return Some(TimeZone::Moscow);
    }
    find(OF_PLACES, upper).map(TimeZone::Place).or_else(|| find(ABBREVIATIONS, upper).map(TimeZone::Fixed))
}

/// What clocks in Moscow call themselves in winter, and have at some times in summer.
const MOSCOW: &str = "MSK";

/// Seconds to the east that MSK means at a moment: what it meant when it was last in use.
fn moscow_offset(micros: i64) -> i32 {
    /// In summer, from April to October, another name was in use.
    const LONGEST: i64 = 7 * 31;
    let used = (0..=LONGEST).step_by(31).map(|days| micros.saturating_sub(days * DAY)).find(|at| {
        with_offset(Tz::Europe__Moscow, *at, |offset| chrono_tz::OffsetName::abbreviation(offset) == Some(MOSCOW))
    });
    place_offset(Tz::Europe__Moscow, used.unwrap_or(micros))
}

/// Abbreviations in the order of their bytes, with the places whose clocks they mean: these have
/// changed, and do not call themselves so any more.
const OF_PLACES: &[(&str, Tz)] = &[
    ("AMST", Tz::Asia__Yerevan),
    ("ANAST", Tz::Asia__Anadyr),
    ("ANAT", Tz::Asia__Anadyr),
    ("ARST", Tz::America__Argentina__Buenos_Aires),
    ("ART", Tz::America__Argentina__Buenos_Aires),
    ("AZST", Tz::Asia__Baku),
    ("AZT", Tz::Asia__Baku),
    ("CKT", Tz::Pacific__Rarotonga),
    ("CLT", Tz::America__Santiago),
    ("DAVT", Tz::Antarctica__Davis),
    ("EASST", Tz::Pacific__Easter),
    ("EAST", Tz::Pacific__Easter),
    ("FKST", Tz::Atlantic__Stanley),
    ("FKT", Tz::Atlantic__Stanley),
    ("GEST", Tz::Asia__Tbilisi),
    ("GET", Tz::Asia__Tbilisi),
    ("GYT", Tz::America__Guyana),
    ("IOT", Tz::Indian__Chagos),
    ("IRKST", Tz::Asia__Irkutsk),
    ("IRKT", Tz::Asia__Irkutsk),
    ("KGT", Tz::Asia__Bishkek),
    ("KOST", Tz::Pacific__Kosrae),
    ("KRAST", Tz::Asia__Krasnoyarsk),
    ("KRAT", Tz::Asia__Krasnoyarsk),
    ("LHDT", Tz::Australia__Lord_Howe),
    ("LINT", Tz::Pacific__Kiritimati),
    ("LKT", Tz::Asia__Colombo),
    ("MAGST", Tz::Asia__Magadan),
    ("MAGT", Tz::Asia__Magadan),
    ("MAWT", Tz::Antarctica__Mawson),
    ("NOVST", Tz::Asia__Novosibirsk),
    ("NOVT", Tz::Asia__Novosibirsk),
    ("NUT", Tz::Pacific__Niue),
    ("OMSST", Tz::Asia__Omsk),
    ("OMST", Tz::Asia__Omsk),
    ("PETST", Tz::Asia__Kamchatka),
    ("PETT", Tz::Asia__Kamchatka),
    ("PYT", Tz::America__Asuncion),
    ("SGT", Tz::Asia__Singapore),
    ("TKT", Tz::Pacific__Fakaofo),
    ("TMT", Tz::Asia__Ashgabat),
    ("ULAT", Tz::Asia__Ulaanbaatar),
    ("VET", Tz::America__Caracas),
    ("VLAST", Tz::Asia__Vladivostok),
    ("VLAT", Tz::Asia__Vladivostok),
    ("VOLT", Tz::Europe__Volgograd),
    ("YAKST", Tz::Asia__Yakutsk),
    ("YAKT", Tz::Asia__Yakutsk),
    ("YEKT", Tz::Asia__Yekaterinburg),
];

/// Abbreviations in the order of their bytes, with seconds to the east.
const ABBREVIATIONS: &[(&str, i32)] = &[
    ("ACDT", 37_800),
    ("ACSST", 37_800),
    ("ACST", 34_200),
    ("ACT", -18_000),
    ("ACWST", 31_500),
    ("ADT", -10_800),
    ("AEDT", 39_600),
    ("AESST", 39_600),
    ("AEST", 36_000),
    ("AFT", 16_200),
    ("AKDT", -28_800),
    ("AKST", -32_400),
    ("ALMST", 25_200),
    ("ALMT", 21_600),
    ("AMT", -14_400),
    ("AST", -14_400),
    ("AWSST", 32_400),
    ("AWST", 28_800),
    ("AZOST", 0),
    ("AZOT", -3_600),
    ("BDST", 7_200),
    ("BDT", 21_600),
    ("BNT", 28_800),
    ("BORT", 28_800),
    ("BOT", -14_400),
    ("BRA", -10_800),
    ("BRST", -7_200),
    ("BRT", -10_800),
    ("BST", 3_600),
    ("BTT", 21_600),
    ("CADT", 37_800),
    ("CAST", 34_200),
    ("CCT", 28_800),
    ("CDT", -18_000),
    ("CEST", 7_200),
    ("CET", 3_600),
    ("CHADT", 49_500),
    ("CHAST", 45_900),
    ("CHUT", 36_000),
    ("CLST", -10_800),
    ("COT", -18_000),
    ("CST", -21_600),
    ("CXT", 25_200),
    ("DDUT", 36_000),
    ("EAT", 10_800),
    ("EDT", -14_400),
    ("EEST", 10_800),
    ("EET", 7_200),
    ("EGST", 0),
    ("EGT", -3_600),
    ("EST", -18_000),
    ("FET", 10_800),
    ("FJST", 46_800),
    ("FJT", 43_200),
    ("FNST", -3_600),
    ("FNT", -7_200),
    ("GALT", -21_600),
    ("GAMT", -32_400),
    ("GFT", -10_800),
    ("GILT", 43_200),
    ("GMT", 0),
    ("HKT", 28_800),
    ("HST", -36_000),
    ("ICT", 25_200),
    ("IDT", 10_800),
    ("IRT", 12_600),
    ("IST", 7_200),
    ("JAYT", 32_400),
    ("JST", 32_400),
    ("KDT", 36_000),
    ("KGST", 21_600),
    ("KST", 32_400),
    ("LHST", 37_800),
    ("LIGT", 36_000),
    ("MART", -34_200),
    ("MDT", -21_600),
    ("MEST", 7_200),
    ("MESZ", 7_200),
    ("MET", 3_600),
    ("MEZ", 3_600),
    ("MHT", 43_200),
    ("MMT", 23_400),
    ("MPT", 36_000),
    ("MSD", 14_400),
    ("MST", -25_200),
    ("MUST", 18_000),
    ("MUT", 14_400),
    ("MVT", 18_000),
    ("MYT", 28_800),
    ("NDT", -9_000),
    ("NFT", -12_600),
    ("NPT", 20_700),
    ("NST", -12_600),
    ("NZDT", 46_800),
    ("NZST", 43_200),
    ("NZT", 43_200),
    ("PDT", -25_200),
    ("PET", -18_000),
    ("PGT", 36_000),
    ("PHT", 28_800),
    ("PKST", 21_600),
    ("PKT", 18_000),
    ("PMDT", -7_200),
    ("PMST", -10_800),
    ("PONT", 39_600),
    ("PST", -28_800),
    ("PWT", 32_400),
    ("PYST", -10_800),
    ("RET", 14_400),
    ("SADT", 37_800),
    ("SAST", 7_200),
    ("SCT", 14_400),
    ("TAHT", -36_000),
    ("TFT", 18_000),
    ("TJT", 18_000),
    ("TOT", 46_800),
    ("TRUT", 36_000),
    ("TVT", 43_200),
    ("UCT", 0),
    ("ULAST", 32_400),
    ("UT", 0),
    ("UTC", 0),
    ("UYST", -7_200),
    ("UYT", -10_800),
    ("UZST", 21_600),
    ("UZT", 18_000),
    ("VUT", 39_600),
    ("WADT", 28_800),
    ("WAKT", 43_200),
    ("WAST", 25_200),
    ("WAT", 3_600),
    ("WDT", 32_400),
    ("WET", 0),
    ("WFT", 43_200),
    ("WGST", -7_200),
    ("WGT", -10_800),
    ("XJT", 21_600),
    ("YAPT", 36_000),
    ("YEKST", 21_600),
    ("Z", 0),
    ("ZULU", 0),
];
