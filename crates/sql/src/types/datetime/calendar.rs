//! Days and dates.

use std::fmt::Write;

/// Days from 0000-03-01 to 2000-01-01.
const SHIFT: i64 = 730_425;
/// Days in 400 years.
const ERA_DAYS: i64 = 146_097;

/// A year, a month from 1 and a day from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Civil {
    /// The year; 0 is 1 BC.
    pub year: i32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
}

impl Civil {
    /// The date of a day counted from 2000-01-01; the year is cut to what fits.
    pub fn of_days(days: i64) -> Self {
        // Years that begin with March have their odd day at the end.
        let days = days.clamp(-1 << 40, 1 << 40) + SHIFT;
        let era = days.div_euclid(ERA_DAYS);
        let day_of_era = days.rem_euclid(ERA_DAYS);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * shifted + 2) / 5 + 1) as u32;
        let month = (if shifted < 10 { shifted + 3 } else { shifted - 9 }) as u32;
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        Self { year: year.clamp(i32::MIN.into(), i32::MAX.into()) as i32, month, day }
    }

    /// The day, counted from 2000-01-01.
    pub fn days(self) -> i64 {
        days(self.year.into(), self.month.into(), self.day.into())
    }

    /// The year as people count it, without its era: 0 is 1 BC.
    pub fn displayed_year(self) -> i32 {
        if self.year > 0 { self.year } else { 1 - self.year }
    }

    /// Writes year, month and day.
    pub fn write(self, out: &mut String) {
        let _ = write!(out, "{:04}-{:02}-{:02}", self.displayed_year(), self.month, self.day);
    }

    /// What follows a date or a timestamp of before our era.
    pub fn era(self) -> &'static str {
        if self.year > 0 { "" } else { " BC" }
    }

    /// 1 to 366.
    pub fn day_of_year(self) -> i64 {
        self.days() - days(self.year.into(), 1, 1) + 1
    }

    /// The ISO week and the year that it belongs to.
    pub fn iso_week(self) -> (i32, u32) {
        let day = self.days();
        // The week belongs to the year that its Thursday is in.
        let thursday = day - i64::from(weekday(day) + 6) % 7 + 3;
        let year = Self::of_days(thursday).year;
        (year, ((thursday - days(year.into(), 1, 1)) / 7 + 1) as u32)
    }
}

/// The day, counted from 2000-01-01, of any year, month from 1 to 12, and any day.
pub fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * ERA_DAYS + day_of_era - SHIFT
}

/// Whether a year has a 29th of February.
pub fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// How many days a month from 1 to 12 has.
pub fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The day of the week, 0 for Sunday, of a day counted from 2000-01-01.
pub fn weekday(day: i64) -> u32 {
    // 2000-01-01 was a Saturday.
    (day + 6).rem_euclid(7) as u32
}

/// The first day of an ISO week, counted from 2000-01-01.
pub fn iso_week_start(year: i64, week: i64) -> i64 {
    // The 4th of January is in the first week.
    let fourth = days(year, 1, 4);
    fourth - i64::from(weekday(fourth) + 6) % 7 + (week - 1) * 7
}

/// The names of months.
pub const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The names of the days of the week, from Sunday.
pub const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
