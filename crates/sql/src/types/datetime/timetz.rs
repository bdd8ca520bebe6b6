//! Times of day with a zone.

use super::{DAY, Date, Interval, SECOND, Time, TimeZone, Timestamp, round_micros, write_clock, zone::write_offset};
use crate::SqlError;

/// A time of day, by the clocks of a zone that is so far from UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeTz {
    /// Microseconds since midnight.
    pub micros: i64,
    /// Seconds to the west of UTC.
    pub west: i32,
}

/// No zone is as far from UTC, in seconds.
const FARTHEST: i32 = 16 * 3600;

impl TimeTz {
    /// Whether there is such a time.
    pub const fn is_valid(self) -> bool {
        self.micros >= 0 && self.micros <= DAY && self.west > -FARTHEST && self.west < FARTHEST
    }

    /// Microseconds since midnight of UTC, which may be on the day before or after.
    pub const fn utc(self) -> i64 {
        self.micros + self.west as i64 * SECOND
    }

    /// The time of a moment, by the clocks of a zone.
    pub fn of(moment: Timestamp, zone: TimeZone) -> Result<Self, SqlError> {
        Ok(Self { micros: moment.to_local(zone)?.time().0, west: -zone.offset_at(moment) })
    }

    /// The time of day alone.
    pub const fn time(self) -> Time {
        Time(self.micros)
    }

    /// The same moment of a day, by other clocks.
    pub fn at(self, west: i32) -> Self {
        Self { micros: (self.utc() - i64::from(west) * SECOND).rem_euclid(DAY), west }
    }

    /// Moved by an interval's hours and less, over midnight if need be.
    pub fn plus(self, interval: Interval) -> Self {
        Self { micros: self.time().plus(interval).0, ..self }
    }

    /// The moment on a day.
    ///
    /// # Errors
    /// 22008 when it is out of range.
    pub fn on(self, date: Date) -> Result<Timestamp, SqlError> {
        let midnight = date.to_timestamp()?;
        if !midnight.is_finite() {
            return Ok(midnight);
        }
        Timestamp::checked(i128::from(midnight.0) + i128::from(self.utc()))
    }

    /// Rounded to this many digits behind the seconds' point.
    pub fn rounded(self, digits: Option<u32>) -> Self {
        Self { micros: round_micros(self.micros, digits).clamp(0, DAY), ..self }
    }

    /// Bytes that sort as such times do: by the moment, then by the zone.
    pub fn sort_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&(self.utc() ^ i64::MIN).to_be_bytes());
        bytes[8..].copy_from_slice(&(self.west ^ i32::MIN).to_be_bytes());
        bytes
    }

    /// Undoes [`TimeTz::sort_bytes`]; none for other bytes.
    pub fn from_sort_bytes(bytes: &[u8]) -> Option<Self> {
        let (utc, west) = bytes.split_first_chunk::<8>()?;
        let west = i32::from_be_bytes(west.try_into().ok()?) ^ i32::MIN;
        let micros = (i64::from_be_bytes(*utc) ^ i64::MIN).checked_sub(i64::from(west) * SECOND)?;
        Some(Self { micros, west })
    }

    /// Writes it as `12:34:56.789+02`.
    pub fn write(self, out: &mut String) {
        write_clock(self.micros, out);
        write_offset(-self.west, out);
    }
}
