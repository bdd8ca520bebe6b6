//! Results that others have computed with many more digits, and the bits of all functions of SQL on
//! processors that offer less.

use std::{collections::BTreeMap, process::Command};

use super::*;
use crate::{
    functions::{Volatility, registered},
    types::{EvalContext, Kind, Numeric, Value},
};

type One = fn(f64) -> f64;
type Two = fn(f64, f64) -> f64;

const ONES: [(&str, One); 14] = [
    ("exp", exp),
    ("ln", ln),
    ("log10", log10),
    ("ln_1p", ln_1p),
    ("cbrt", cbrt),
    ("sin", sin),
    ("cos", cos),
    ("tan", tan),
    ("asin", asin),
    ("acos", acos),
    ("atan", atan),
    ("sinh", sinh),
    ("cosh", cosh),
    ("tanh", tanh),
];
const TWOS: [(&str, Two); 2] = [("pow", pow), ("atan2", atan2)];

/// Bits that come again.
fn bits(seed: u64) -> impl Iterator<Item = u64> {
    println!("seed {seed}");
    std::iter::successors(Some(seed), |state| {
        Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    })
    .map(|state| state ^ state >> 29)
}

#[test]
fn results_are_rounded_correctly() {
    let (ones, twos) = (BTreeMap::from(ONES), BTreeMap::from(TWOS));
    let mut wrong = Vec::new();
    for line in include_str!("expected.txt").lines().filter(|line| !line.starts_with('#')) {
        let (name, numbers) = line.split_once(' ').unwrap();
        let number = |bits| f64::from_bits(u64::from_str_radix(bits, 16).unwrap());
        let numbers: Vec<f64> = numbers.split(' ').map(number).collect();
        let (found, expected) = match numbers[..] {
            [x, expected] => (ones[name](x), expected),
            [x, y, expected] => (twos[name](x, y), expected),
            _ => panic!("{line}"),
        };
        if found.to_bits() != expected.to_bits() {
            wrong.push(format!("{name} {:?}: {found:?}", numbers));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Where there is no number to compute: what the standard library has there, which the standard of
/// C determines.
#[test]
fn the_ends_are_those_of_the_standard() {
    let ends = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300, -1e300];
    let theirs: [One; 14] = [
        f64::exp,
        f64::ln,
        f64::log10,
        f64::ln_1p,
        f64::cbrt,
        f64::sin,
        f64::cos,
        f64::tan,
        f64::asin,
        f64::acos,
        f64::atan,
        f64::sinh,
        f64::cosh,
        f64::tanh,
    ];
    let same = |ours: f64, theirs: f64| {
        ours.is_nan() && theirs.is_nan()
            || ours.to_bits() == theirs.to_bits()
            || ours.is_sign_negative() == theirs.is_sign_negative() && (ours - theirs).abs() <= theirs.abs() * 1e-15
    };
    for ((name, ours), theirs) in ONES.into_iter().zip(theirs) {
        for x in ends {
            assert!(same(ours(x), theirs(x)), "{name}({x}) is {}", ours(x));
        }
    }
    for x in ends {
        for y in ends {
            assert!(same(pow(x, y), x.powf(y)), "pow({x}, {y}) is {}", pow(x, y));
            assert!(same(atan2(x, y), x.atan2(y)), "atan2({x}, {y}) is {}", atan2(x, y));
        }
    }
}

/// No result is further from the standard library's than that may be from the right one.
#[test]
fn results_are_near_those_of_the_system() {
    let mut bits = bits(7);
    for _ in 0..20_000 {
        let [x, y] = [(); 2].map(|()| f64::from_bits(bits.next().unwrap()));
        let small = (x.to_bits() >> 11) as f64 / (1u64 << 50) as f64 - 4.0;
        for x in [x, small] {
            let pairs = [
                (exp(x), x.exp()),
                (ln(x), x.ln()),
                (log10(x), x.log10()),
                (ln_1p(x), x.ln_1p()),
                (sin(x), x.sin()),
                (cos(x), x.cos()),
                (tan(x), x.tan()),
                (asin(x), x.asin()),
                (acos(x), x.acos()),
                (atan(x), x.atan()),
                (sinh(x), x.sinh()),
                (cosh(x), x.cosh()),
                (tanh(x), x.tanh()),
                (atan2(x, y), x.atan2(y)),
                (pow(x.abs(), small), x.abs().powf(small)),
            ];
            for (at, (ours, theirs)) in pairs.into_iter().enumerate() {
                let same = ours == theirs || ours.is_nan() && theirs.is_nan();
                let apart = ours.to_bits().abs_diff(theirs.to_bits());
                assert!(same || apart <= 3, "{at}: {x:?}, {y:?}: {ours:?} and {theirs:?}");
            }
        }
    }
}

/// What all functions of SQL that get floating-point numbers make of many of them.
fn all_bits() -> String {
    let mut lines = String::new();
    let context = EvalContext::default();
    let mut bits = bits(11);
    let mut arguments: Vec<f64> = [0.0, 1.0, -1.0, 0.5, 2.0, 10.0, 1e-300, 1e300, 90.0, 45.0].to_vec();
    for _ in 0..30 {
        let wild = f64::from_bits(bits.next().unwrap());
        let unit = (bits.next().unwrap() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        arguments.extend([wild, unit, unit * 30.0, (unit * 30.0).abs()]);
    }
    for function in registered() {
        let kinds = function.arguments;
        if kinds.is_empty() || function.volatility == Volatility::Volatile || kinds.iter().any(|kind| !is_number(*kind))
        {
            continue;
        }
        // Those of decimal numbers take long, and only estimate with others.
        let few = if kinds.contains(&Kind::Numeric) { 12 } else { arguments.len() };
        for pair in arguments[..few].windows(kinds.len()) {
            let values: Vec<_> = kinds.iter().zip(pair).map(|(kind, number)| value(*kind, *number)).collect();
            let result = match function.call(&values, &context) {
                Ok(Value::Float8(number)) => format!("{:016x}", number.to_bits()),
                other => format!("{other:?}"),
            };
            lines += &format!("{} {pair:?} {result}\n", function.name);
        }
    }
    lines
}

fn is_number(kind: Kind) -> bool {
    matches!(kind, Kind::Float8 | Kind::Float4 | Kind::Numeric)
}

fn value(kind: Kind, number: f64) -> Value {
    match kind {
        Kind::Float4 => Value::Float4(number as f32),
        Kind::Numeric => Value::Numeric(Numeric::from((number.clamp(-50.0, 50.0) * 1000.0) as i64)),
        _ => Value::Float8(number),
    }
}

/// The environment's variable that has a child print bits.
const PRINTS: &str = "FRESHET_PRINTS_BITS";

#[test]
fn a_child_prints_bits() {
    if let Some(file) = std::env::var_os(PRINTS) {
        std::fs::write(file, all_bits()).unwrap();
    }
}

/// The system's library chooses code by processor; here it is told that the processor has less.
#[test]
fn all_processors_get_the_same_bits() {
    let file = std::env::temp_dir().join(format!("freshet-bits-{}", std::process::id()));
    let ours = all_bits();
    assert!(ours.lines().count() > 3_000 && ours.contains("\npower ") && ours.contains("\nsind "));
    for less in ["", "-FMA,-AVX2", "-FMA,-FMA4,-AVX2,-AVX,-AVX512F", "-SSE4_1,-SSE4_2,-AVX,-AVX2,-FMA,-ERMS"] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let tunables = format!("glibc.cpu.hwcaps={less}");
        child.args(["--exact", "portable::tests::a_child_prints_bits"]).env(PRINTS, &file);
        let output = child.env("GLIBC_TUNABLES", tunables).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let theirs = std::fs::read_to_string(&file).unwrap();
        let other = ours.lines().zip(theirs.lines()).find(|(ours, theirs)| ours != theirs);
        assert!(ours == theirs, "without {less}: {other:?}");
    }
    std::fs::remove_file(file).unwrap();
}
