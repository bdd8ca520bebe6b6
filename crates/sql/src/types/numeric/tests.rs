use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
};

use proptest::prelude::*;

use super::*;
use crate::types::wire::Reader;

fn number(text: &str) -> Numeric {
    Numeric::parse(text, None).unwrap()
}

fn hash(number: Numeric) -> u64 {
    let mut hasher = DefaultHasher::new();
    number.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn text_is_kept() {
    for text in ["0", "1.00", "-0.5", "0.001", "99999999999999999999999999999999999999", "-12.340"] {
        assert_eq!(number(text).to_string(), text);
    }
    for (text, printed) in [
        (" +1.5e3 ", "1500"),
        ("1.5e-3", "0.0015"),
        (".5", "0.5"),
        ("5.", "5"),
        ("-0", "0"),
        ("000012", "12"),
        ("0e100", "0"),
        (
            "1.00000000000000000000000000000000000000000000000000",
            "1.00000000000000000000000000000000000000000000000000",
        ),
        ("1e38", "100000000000000000000000000000000000000"),
        ("-1.5e-40", "-0.00000000000000000000000000000000000000015"),
        ("nan", "NaN"),
        ("-INF", "-Infinity"),
    ] {
        assert_eq!(number(text).to_string(), printed, "{text}");
    }
}

#[test]
fn what_is_no_number_is_refused() {
    for (text, state) in [
        ("", "22P02"),
        (".", "22P02"),
        ("1e", "22P02"),
        ("1x", "22P02"),
        ("--1", "22P02"),
        ("1 2", "22P02"),
        ("-NaN", "22P02"),
        ("1e131072", "22003"),
        ("1e999999999999999999999", "22003"),
        ("1e-16384", "22003"),
    ] {
        assert_eq!(Numeric::parse(text, None).unwrap_err().state.code(), state, "{text}");
    }
}

#[test]
fn precision_rounds_and_refuses() {
    let to = |digits, scale| Some(Precision { digits, scale });
    let cases = [
        ("1.005", to(5, 2), "1.01"),
        ("-1.005", to(5, 2), "-1.01"),
        ("1", to(5, 2), "1.00"),
        ("999.994", to(5, 2), "999.99"),
        ("0.1000000000000000055511151231257827021181583404541015625", to(10, 2), "0.10"),
        ("1.99999999999999999999999999999999999999999", to(5, 2), "2.00"),
        (
            "0.00000000000000000000000000000000000000000000000000000000000000001",
            to(38, 38),
            "0.00000000000000000000000000000000000000",
        ),
        ("1.2345678901234567890123456789012345678501", to(38, 37), "1.2345678901234567890123456789012345679"),
    ];
    for (text, to, expected) in cases {
        assert_eq!(Numeric::parse(text, to).unwrap().to_string(), expected);
    }
    let error = Numeric::parse("999.995", to(5, 2)).unwrap_err();
    assert_eq!(error.message, "numeric field overflow");
    assert_eq!(
        error.detail.as_deref(),
        Some("A field with precision 5, scale 2 must round to an absolute value less than 10^3.")
    );
}

#[test]
fn binary_is_that_of_the_wire() {
    let bytes = |text: &str| {
        let mut out = Vec::new();
        number(text).write_binary(&mut out);
        out
    };
    assert_eq!(bytes("12345.678"), [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 9, 0x29, 0x1a, 0x7c]);
    assert_eq!(bytes("-0.00010"), [0, 1, 0xff, 0xff, 0x40, 0, 0, 5, 0, 1]);
    assert_eq!(bytes("0.00"), [0, 0, 0, 0, 0, 0, 0, 2]);
    let read = |bytes: &[u8]| Numeric::read_binary(&mut Reader::new(bytes), None);
    assert_eq!(read(&[0, 1, 0, 1, 0, 0, 0, 0, 0, 7]).unwrap().to_string(), "70000");
    assert_eq!(read(&[0, 0, 0, 0, 0xc0, 0, 0, 0]).unwrap().to_string(), "NaN");
    for text in ["1e100", "-1.5e-77", "Infinity", "-Infinity", "NaN", "123456789e91", "1e-101"] {
        assert_eq!(read(&bytes(text)).unwrap().to_string(), number(text).to_string());
    }
    assert_eq!(read(&[0, 1, 0, 0, 0, 1, 0, 0, 0, 7]).unwrap_err().state.code(), "22P03");
    assert_eq!(read(&[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10]).unwrap_err().state.code(), "22P03");
}

#[test]
fn results_have_the_usual_digits() {
    let n = number;
    let cases = [
        (n("1").div(&n("3")), "0.33333333333333333333"),
        (n("10").div(&n("4")), "2.5000000000000000"),
        (n("1.5").mul(&n("-2.25")), "-3.375"),
        (n("1.1").add(&n("2.22")), "3.32"),
        (n("7").rem(&n("-4.5")), "2.5"),
        (n("-7").div_trunc(&n("2")), "-3"),
        (n("2").sqrt(), "1.414213562373095"),
        (n("10000000000").sqrt(), "100000.00000000000"),
        (n("1").exp(), "2.7182818284590452"),
        (n("2").ln(), "0.6931471805599453"),
        (n("100").log(&n("10")), "2.0000000000000000"),
        (n("2").pow(&n("0.5")), "1.4142135623730950"),
        (n("12.345").round(1), "12.3"),
        (n("-12.355").round(2), "-12.36"),
        (n("155").round(-1), "160"),
        (n("-1.5").floor(), "-2"),
        (n("-1.5").ceil(), "-1"),
        (n("99999999999999999999").mul(&n("0.99999999999999999999")), "99999999999999999998.00000000000000000001"),
    ];
    for (at, (result, expected)) in cases.into_iter().enumerate() {
        assert_eq!(result.unwrap().to_string(), expected, "case {at}");
    }
    assert_eq!(n("1").div(&n("0.0")).unwrap_err().state.code(), "22012");
    assert_eq!(n("1e37").mul(&n("10")).unwrap().to_string(), format!("1{}", "0".repeat(38)));
    assert_eq!(n("99999999999999999999999999999999999999").add(&n("1")).unwrap(), n("1e38"));
    assert_eq!(n("1e131071").mul(&n("10")).unwrap_err().state.code(), "22003");
}

/// Short numbers, long ones, and what is none.
fn any_number() -> impl Strategy<Value = Numeric> {
    let short =
        (prop_oneof![-1000i128..1000, any::<i64>().prop_map(i128::from), -small::LIMIT..=small::LIMIT], 0u32..=38)
            .prop_map(|(coefficient, scale)| Numeric::new(coefficient, scale).unwrap());
    let long = (any::<i64>(), 0usize..120, -150i32..150)
        .prop_map(|(digits, zeros, exponent)| number(&format!("{digits}{}7e{exponent}", "0".repeat(zeros))));
    let padded =
        (-100i64..100, 30usize..60).prop_map(|(digits, zeros)| number(&format!("{digits}.{}", "0".repeat(zeros))));
    let special = prop_oneof![
        Just(Numeric::nan()),
        Just(Numeric::special(Special::Infinity)),
        Just(Numeric::special(Special::MinusInfinity))
    ];
    prop_oneof![6 => short, 3 => long, 2 => padded, 1 => special]
}

/// The same digits in both forms of a number.
fn same(one: &Numeric, two: &Numeric) -> bool {
    one == two && one.scale() == two.scale() && one.small().is_some() == two.small().is_some()
}

proptest! {
    #[test]
    fn forms_come_back(number in any_number()) {
        let text = number.to_string();
        let read = Numeric::parse(&text, None).unwrap();
        prop_assert!(same(&read, &number), "{read} {number}");
        let mut bytes = Vec::new();
        number.write_binary(&mut bytes);
        let read = Numeric::read_binary(&mut Reader::new(&bytes), None).unwrap();
        prop_assert!(same(&read, &number), "{read} {number}");
    }

    #[test]
    fn order_is_that_of_differences(one in any_number(), two in any_number()) {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        one.as_ref().write_sorted(&mut first);
        two.as_ref().write_sorted(&mut second);
        prop_assert_eq!(one.cmp(&two), first.cmp(&second));
        prop_assert!(!first.contains(&0));
        if let (Ok(a), Ok(b)) = (one.big(), two.big()) {
            let scale = a.scale.max(b.scale);
            prop_assert_eq!(one.cmp(&two), a.at_scale(scale).coefficient.cmp(&b.at_scale(scale).coefficient));
        }
        if one == two {
            prop_assert_eq!(hash(one), hash(two));
        }
    }

    #[test]
    fn equal_numbers_have_one_hash(number in any_number(), zeros in 0u32..60) {
        if let Some(padded) = number.rescaled(number.scale() + zeros) {
            prop_assert_eq!(&padded, &number);
            prop_assert!(same(&padded.trimmed(), &number.trimmed()));
            prop_assert_eq!(hash(padded), hash(number));
        }
    }

    #[test]
    fn long_sums_are_those_of_short_ones(one in any_number(), two in any_number()) {
        let sum = one.add(&two).unwrap();
        prop_assert_eq!(sum.sub(&two).unwrap() == one, one.as_special().is_none() && two.as_special().is_none()
            || two.as_special().is_none() || one.as_special() == Some(Special::NaN)
            || one.as_special() == two.as_special() && one.as_special() == Some(Special::NaN));
        prop_assert_eq!(sum.neg(), one.neg().sub(&two).unwrap());
    }

    #[test]
    fn no_function_panics(one in any_number(), two in any_number(), digits in any::<i32>()) {
        let _ = (one.add(&two), one.sub(&two), one.mul(&two), one.div(&two), one.rem(&two), one.div_trunc(&two));
        let _ = (one.round(digits), one.trunc(digits % 50), one.floor(), one.ceil());
        let _ = (one.sqrt(), one.to_f64(), one.to_f32(), one.to_i64(), one.gcd(&two));
    }

    #[test]
    fn what_was_multiplied_divides(one in -1_000_000_000i64..1_000_000_000, two in 1i64..1_000_000_000, scale in 0u32..6) {
        let (one, two) = (Numeric::new(one.into(), scale).unwrap(), Numeric::from(two));
        prop_assert_eq!(one.mul(&two).unwrap().div(&two).unwrap(), one);
    }

    #[test]
    fn random_bytes_are_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..40), text in ".{0,20}") {
        let _ = Numeric::read_binary(&mut Reader::new(&bytes), None);
        let _ = Numeric::parse(&text, None);
        let _ = NumericRef::Wide(&bytes).as_special();
        Numeric::from_wide(&bytes).to_string();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_long_function_panics(one in any_number(), two in any_number()) {
        let _ = (one.exp(), one.ln(), one.log(&two), one.pow(&two));
    }
}
