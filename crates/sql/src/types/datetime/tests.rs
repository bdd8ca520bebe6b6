use proptest::prelude::*;

use super::*;
use crate::types::Type;

fn moment() -> Moment<'static> {
    Moment {
        now: Box::leak(Box::new(Timestamp(0).into())),
        zone: TimeZone::parse("Europe/Berlin").unwrap(),
        order: DateOrder::Mdy,
    }
}

/// Days of all years, near ones more often.
fn day() -> impl Strategy<Value = Date> {
    prop_oneof![-20_000i32..20_000, Date::MIN.0..=Date::MAX.0, Just(Date::MIN.0), Just(Date::MAX.0)].prop_map(Date)
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        -1_000_000_000_000_000i64..1_000_000_000_000_000,
        Timestamp::MIN.0..=Timestamp::MAX.0,
        Just(Timestamp::MIN.0),
        Just(Timestamp::MAX.0)
    ]
    .prop_map(Timestamp)
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        date in day(), timestamp in timestamp(), micros in 0..=DAY,
        months in -100_000i32..100_000, days in -1_000_000i32..1_000_000, length in -(1i64 << 50)..1i64 << 50,
    ) {
        prop_assert_eq!(Date::parse(&date.to_string(), moment()).unwrap(), date);
        prop_assert_eq!(Time::parse(&Time(micros).to_string(), moment()).unwrap(), Time(micros));
        prop_assert_eq!(Timestamp::parse(&timestamp.to_string(), moment()).unwrap(), timestamp);
        let india = TimeZone::parse("Asia/Kolkata").unwrap();
        for zone in [TimeZone::Utc, moment().zone, india, TimeZone::Fixed(-3 * 3600)] {
            // What the zone's clocks show may be beyond what is read.
            if timestamp.to_local(zone).is_ok() {
                let mut text = String::new();
                timestamp.write_zoned(zone, &mut text);
                prop_assert_eq!(Timestamp::parse_zoned(&text, moment()).unwrap(), timestamp, "{}", text);
            }
        }
        let interval = Interval { months, days, micros: length };
        let read = Interval::parse(&interval.to_string(), Type::INTERVAL, IntervalStyle::Postgres).unwrap();
        prop_assert_eq!((read.months, read.days, read.micros), (months, days, length), "{}", interval);
    }

    #[test]
    fn the_calendar_goes_both_ways(date in day()) {
        let civil = date.civil();
        let days = calendar::days(civil.year.into(), civil.month.into(), civil.day.into());
        prop_assert_eq!(days, i64::from(date.0));
        prop_assert!((1..=12).contains(&civil.month) && (1..=31).contains(&civil.day));
        // The next day is the next number, or the first of the next month.
        let next = Date(date.0.saturating_add(1)).civil();
        prop_assert!(next.day == civil.day + 1 || next.day == 1 || date == Date::MAX);
    }

    #[test]
    fn clocks_show_a_time_at_most_twice(timestamp in -1_000_000_000_000_000i64..1_000_000_000_000_000) {
        let zone = moment().zone;
        let local = Timestamp(timestamp).to_local(zone).unwrap();
        let back = local.to_utc(zone).unwrap();
        // Of a time that is shown twice, an hour apart, it is one or the other.
        prop_assert!(back == Timestamp(timestamp) || (back.0 - timestamp).abs() == HOUR);
        prop_assert_eq!(back.to_local(zone).unwrap(), local);
    }

    #[test]
    fn no_text_panics(text in "[-+0-9:./ TZPYMDHSWa-f]{0,24}|\\PC{0,12}") {
        let _ = Date::parse(&text, moment());
        let _ = Time::parse(&text, moment());
        let _ = Timestamp::parse(&text, moment());
        let _ = Timestamp::parse_zoned(&text, moment());
        let _ = Interval::parse(&text, Type::INTERVAL, IntervalStyle::Postgres);
        let _ = TimeZone::find(&text);
    }
}

#[test]
fn words_refer_to_the_moment() {
    // 2000-01-01 00:00 in UTC, one o'clock in Berlin.
    let date = |text: &str| Date::parse(text, moment()).unwrap().to_string();
    assert_eq!(date("today"), "2000-01-01");
    assert_eq!(date("tomorrow"), "2000-01-02");
    assert_eq!(date("yesterday"), "1999-12-31");
    assert_eq!(date("now"), "2000-01-01");
    assert_eq!(Timestamp::parse("now", moment()).unwrap().to_string(), "2000-01-01 01:00:00");
    assert_eq!(Timestamp::parse_zoned("now", moment()).unwrap(), Timestamp(0));
    assert_eq!(Timestamp::parse("tomorrow 10:30", moment()).unwrap().to_string(), "2000-01-02 10:30:00");
    assert_eq!(Time::parse("now", moment()).unwrap().to_string(), "01:00:00");
}
