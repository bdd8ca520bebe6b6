use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::types::{Array, Date, Interval, Numeric, Time, Timestamp, Type};

#[test]
fn the_registry_is_consistent() {
    let polymorphic = |kind: &Kind| matches!(kind, Kind::AnyElement | Kind::AnyArray);
    let mut seen = HashSet::new();
    for function in registered() {
        assert!(seen.insert((function.name, function.arguments)), "{function:?} is there twice");
        assert!(named(function.name).iter().any(|found| std::ptr::eq(*found, function)));
        assert!(!function.variadic || !function.arguments.is_empty(), "{function:?} repeats nothing");
        if function.is_operator() {
            assert!(matches!(function.arguments.len(), 1 | 2) && !function.variadic, "{function:?}");
        }
        if polymorphic(&function.result) {
            assert!(function.arguments.iter().any(polymorphic), "{function:?}: of what kind is its result?");
        }
    }
    assert!(named("no such function").is_empty());
}

#[test]
fn overloads_are_chosen_as_postgresql_does() {
    use Kind::*;
    type Case<'a> = (&'a str, &'a [Kind], Result<(&'a [Kind], Kind), &'a str>);
    let cases: &[Case<'_>] = &[
        ("+", &[Int4, Int4], Ok((&[Int4, Int4], Int4))),
        ("+", &[Int4, Int8], Ok((&[Int4, Int8], Int8))),
        ("+", &[Int4, Numeric], Ok((&[Numeric, Numeric], Numeric))),
        ("+", &[Int4, Float4], Ok((&[Float8, Float4], Float8))),
        ("+", &[Unknown, Int4], Ok((&[Int4, Int4], Int4))),
        ("+", &[Date, Unknown], Err("42725")),
        ("-", &[Timestamp, Unknown], Ok((&[Timestamp, Timestamp], Interval))),
        ("=", &[Unknown, Unknown], Ok((&[Text, Text], Bool))),
        ("=", &[Varchar, Char], Ok((&[Char, Char], Bool))),
        ("=", &[Int4, Text], Err("42883")),
        ("||", &[Unknown, Int4], Ok((&[Text, AnyNonArray], Text))),
        ("||", &[Int4Array, Int4], Ok((&[Int4Array, Int4], Int4Array))),
        ("||", &[Int4, Int4], Err("42883")),
        ("length", &[Varchar], Ok((&[Text], Int4))),
        ("length", &[Int4], Err("42883")),
        ("round", &[Float8, Int4], Err("42883")),
        ("abs", &[Unknown], Ok((&[Float8], Float8))),
        ("coalesce", &[Int4, Numeric, Unknown], Ok((&[Numeric, Numeric, Numeric], Numeric))),
        ("concat", &[Int4, Bool], Ok((&[Any, Any], Text))),
        ("no_such", &[], Err("42883")),
    ];
    for (name, given, expected) in cases {
        let found = resolve(name, given);
        match (expected, &found) {
            (Ok((arguments, result)), Ok(found)) => {
                assert_eq!((*arguments, *result), (&found.arguments[..], found.result), "{name}{given:?}");
            }
            (Err(state), Err(error)) => assert_eq!(*state, error.state.code(), "{name}{given:?}: {error}"),
            _ => panic!("{name}{given:?}: {found:?}"),
        }
    }
}

fn pick<'a>(seed: &mut u64, from: &[&'a str]) -> &'a str {
    from[number(seed, from.len() as u64) as usize]
}

/// The next number below a bound.
fn number(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

const TEXTS: &[&str] = &[
    "",
    "a",
    "Ab c",
    "äöü€𝄞",
    "%_\\",
    "\\",
    "(",
    "[a-",
    "(a|b)*",
    "\\1",
    "%",
    "%1$-*2$I",
    "%s%L",
    "YYYY-MM-DD HH24:MI",
    "FM9,999.99PL",
    "9.9EEEE",
    "RN",
    "Month",
    "IYYY-IW",
    "hex",
    "base64",
    "escape",
    "utf8",
    "latin1",
    "i",
    "gx",
    "hour",
    "epoch",
    "Europe/Berlin",
    "+25",
    "1.5 GB",
    "{}",
    "\"a\".b",
    "12",
    "2024-02-30",
];

/// Some value of a kind, extreme ones often; no large number where it is a size.
fn value(seed: &mut u64, kind: Kind, small: bool) -> Value {
    if number(seed, 12) == 0 {
        return Value::Null;
    }
    let wide = match number(seed, if small { 2 } else { 5 }) {
        0 => number(seed, 7) as i64 - 3,
        1 => number(seed, 400) as i64 - 200,
        2 => i64::MAX,
        3 => i64::MIN,
        _ => number(seed, u64::MAX) as i64,
    };
    let float = [0.0, -0.0, 1.5, -2.5, 1e308, -1e-308, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, wide as f64]
        [number(seed, 10) as usize];
    match kind {
        Kind::Bool => Value::Bool(wide % 2 == 0),
        Kind::Int2 => Value::Int2(wide as i16),
        Kind::Int4 => {
            Value::Int4(if small { wide as i32 } else { wide.clamp(i32::MIN.into(), i32::MAX.into()) as i32 })
        }
        Kind::Int8 => Value::Int8(wide),
        Kind::Float4 => Value::Float4(float as f32),
        Kind::Float8 => Value::Float8(float),
        Kind::Numeric => {
            let coefficient = i128::from(wide) * [1, 1_000_000_000_000_000_000][number(seed, 2) as usize];
            Value::Numeric(Numeric::new(coefficient, number(seed, 39) as u32).unwrap_or(Numeric::ZERO))
        }
        Kind::Oid | Kind::Xid => Value::Oid(wide as u32),
        Kind::SingleChar => Value::SingleChar(wide as u8),
        Kind::Char => Value::Char(pick(seed, TEXTS).into()),
        Kind::Bytea => Value::bytea(pick(seed, TEXTS).as_bytes()),
        Kind::Date => {
            Value::Date([Date::MIN, Date::MAX, Date::INFINITY, Date(wide as i16 as i32)][number(seed, 4) as usize])
        }
        Kind::Time => Value::Time([Time(0), Time::MAX, Time(wide.rem_euclid(Time::MAX.0))][number(seed, 3) as usize]),
        Kind::Timestamp | Kind::Timestamptz => {
            let times =
                [Timestamp::MIN, Timestamp::MAX, Timestamp::MINUS_INFINITY, Timestamp(wide.clamp(-1 << 60, 1 << 60))];
            let time = times[number(seed, 4) as usize];
            if kind == Kind::Timestamp { Value::Timestamp(time) } else { Value::Timestamptz(time) }
        }
        Kind::Interval => {
            Value::Interval(Interval { months: wide as i32, days: (wide >> 16) as i32, micros: wide.rotate_left(7) })
        }
        Kind::Uuid => Value::Uuid([wide as u8; 16]),
        Kind::Json => {
            Value::Json(pick(seed, &["null", "[1, {\"a\": 2}]", "{\"a\" : {\"b\":null}}", "\"x\"", "1e5"]).into())
        }
        Kind::Jsonb => Value::Jsonb(
            pick(seed, &["null", "[1, {\"a\": 2}]", "{\"a\": {\"b\": null}}", "\"x\"", "1.5", "[]"]).into(),
        ),
        Kind::Any | Kind::AnyNonArray | Kind::AnyElement => value(seed, Kind::Int4, small),
        Kind::AnyArray => value(seed, Kind::Int4Array, small),
        kind => match kind.element() {
            Some(element) => {
                let count = number(seed, 4);
                let values = (0..count).map(|_| value(seed, element, true)).collect();
                Value::array(Array::with_lower(element, values, [1, 0, -3][number(seed, 3) as usize]))
            }
            None => Value::text(pick(seed, TEXTS)),
        },
    }
}

proptest! {
    /// Whatever the arguments, there is a value of the declared kind or an error.
    #[test]
    fn no_function_panics(seed in proptest::num::u64::ANY) {
        let mut seed = seed;
        let context = EvalContext::default();
        for function in registered() {
            // Numbers that say how long or large a result is to be; two that are large take long,
            // or much memory.
            let small = ["repeat", "lpad", "rpad", "array_fill", "power", "^", "pow"].contains(&function.name);
            let repeated = if function.variadic { number(&mut seed, 3) } else { 0 };
            let last = function.arguments.last().copied();
            let kinds = function.arguments.iter().copied().chain((0..repeated).filter_map(|_| last));
            let arguments: Vec<Value> = kinds.map(|kind| value(&mut seed, kind, small)).collect();
            if let Ok(result) = function.call(&arguments, &context)
                && let Some(kind) = result.kind()
                && !function.result.is_polymorphic()
                && !matches!(function.result, Kind::Void)
            {
                // The value tells its own kind only as far as it is kept differently.
                let kept = |kind: Kind| match kind {
                    Kind::Varchar | Kind::Name => Kind::Text,
                    kind if kind.is_object_id() || kind == Kind::Xid => Kind::Oid,
                    kind => kind,
                };
                prop_assert_eq!(kept(kind), kept(function.result), "{:?} of {:?}", function, arguments);
            }
        }
    }
}

fn text(text: impl Into<String>) -> Value {
    Value::text(text.into())
}

/// Calls that do much for arguments that are not long: each notices soon that it is to end.
fn long_calls() -> Vec<(&'static str, Vec<Value>)> {
    const MUCH: usize = 60_000;
    let letters = || text("aB é".repeat(MUCH / 5));
    let numeric = |number: &str| Value::Numeric(Numeric::parse(number, None).unwrap());
    let json = |text: String| Value::Json(text.into());
    let jsonb = |text: String| Value::Jsonb(text.into());
    let list = || format!("[{}1]", "1, ".repeat(MUCH / 3));
    let texts = |count: usize| Value::array(Array::new(Kind::Text, vec![text("a"); count]));
    vec![
        ("lower", vec![letters()]),
        ("upper", vec![letters()]),
        ("initcap", vec![letters()]),
        ("reverse", vec![letters()]),
        ("translate", vec![letters(), text("ab"), text("x")]),
        ("translate", vec![text("a"), letters(), text("x")]),
        ("quote_literal", vec![letters()]),
        ("btrim", vec![letters(), text("aB é")]),
        ("rtrim", vec![letters(), text("aB é")]),
        ("left", vec![letters(), Value::Int4(40_000)]),
        ("overlay", vec![letters(), text("x"), Value::Int4(30_000), Value::Int4(1)]),
        ("lpad", vec![text("a"), Value::Int4(60_000), text("xy")]),
        ("replace", vec![letters(), text("a"), text("b")]),
        ("split_part", vec![letters(), text("a"), Value::Int4(-11_000)]),
        ("regexp_replace", vec![letters(), text("a"), text("b"), text("g")]),
        ("regexp_split_to_array", vec![letters(), text("a")]),
        ("like_escape", vec![letters(), text("x")]),
        ("~~*", vec![letters(), text("%x%")]),
        ("unistr", vec![letters()]),
        ("format", vec![text("%1$s".repeat(MUCH / 4)), text("a")]),
        ("encode", vec![Value::bytea(vec![1; MUCH / 2]), text("hex")]),
        ("encode", vec![Value::bytea(vec![1; MUCH / 2]), text("escape")]),
        ("encode", vec![Value::bytea(vec![1; MUCH / 2]), text("base64")]),
        ("decode", vec![text("00".repeat(MUCH / 2)), text("hex")]),
        ("decode", vec![text("aaaa".repeat(MUCH / 4)), text("base64")]),
        ("decode", vec![text("a".repeat(MUCH)), text("escape")]),
        ("string_to_array", vec![text("a,".repeat(MUCH / 2)), text(",")]),
        ("string_to_array", vec![letters(), Value::Null]),
        ("array_to_string", vec![texts(8000), text("")]),
        ("to_char", vec![Value::Timestamp(Timestamp(0)), text("YYYY ".repeat(MUCH / 5))]),
        ("to_timestamp", vec![text("1".repeat(MUCH)), text("YYYY".repeat(MUCH / 4))]),
        ("to_date", vec![text(" ".repeat(MUCH)), text(" ".repeat(MUCH))]),
        ("to_char", vec![Value::Int4(1), text("9".repeat(MUCH))]),
        ("to_number", vec![text("1".repeat(MUCH)), text("9".repeat(MUCH))]),
        ("power", vec![numeric("9"), numeric("50000")]),
        ("power", vec![numeric("1.5"), numeric("1000.5")]),
        ("exp", vec![numeric("2000.5")]),
        ("ln", vec![numeric(&format!("1.{}", "7".repeat(900)))]),
        ("sqrt", vec![numeric(&"7".repeat(20_000))]),
        ("factorial", vec![Value::Int8(3000)]),
        ("*", vec![numeric(&"7".repeat(20_000)), numeric(&"7".repeat(20_000))]),
        ("/", vec![numeric(&"7".repeat(20_000)), numeric("7e-500")]),
        ("gcd", vec![numeric(&"7".repeat(5000)), numeric(&"6".repeat(4999))]),
        ("json_array_length", vec![json(list())]),
        ("->", vec![jsonb(list()), Value::Int4(15_000)]),
        ("jsonb_pretty", vec![jsonb(list())]),
        ("||", vec![jsonb(list()), jsonb("[]".to_owned())]),
        ("jsonb_exists_any", vec![jsonb(format!("[{}1]", "\"b\", ".repeat(100))), texts(8000)]),
        ("json_build_array", vec![Value::Int4(1)]),
    ]
}

fn called(name: &str, arguments: &[Value]) -> Result<Value, SqlError> {
    let kinds: Vec<Kind> = arguments.iter().map(|value| value.kind().unwrap_or(Kind::Text)).collect();
    let found = resolve(name, &kinds)?.function;
    found.call(arguments, &EvalContext::default())
}

#[test]
fn a_call_that_does_much_ends_when_it_is_to() {
    let memory = crate::memory::Pool::of(usize::MAX >> 1);
    let ended = || Err(SqlError::new(crate::SqlState::QUERY_CANCELED, "canceled"));
    for (name, arguments) in long_calls() {
        // It is their work that is counted, not their arguments.
        assert!(arguments.iter().all(|argument| extent(argument) < LARGE), "{name}");
        let free = called(name, &arguments);
        assert!(free.is_ok() || name.starts_with("to_"), "{name}: {free:?}");
        let found = work::within(&ended, &memory, || called(name, &arguments));
        match name {
            // It does little.
            "json_build_array" => assert!(found.is_ok()),
            _ => assert_eq!(found.unwrap_err().state, crate::SqlState::QUERY_CANCELED, "{name}"),
        }
        assert_eq!(memory.used(), 0, "{name}");
    }
    for kind in [Kind::Jsonb, Kind::Json, Kind::Int4Array, Kind::Bytea] {
        let text = match kind {
            Kind::Int4Array => format!("{{{}1}}", "1,".repeat(20_000)),
            Kind::Bytea => format!("\\x{}", "00".repeat(20_000)),
            _ => format!("[{}1]", "1,".repeat(20_000)),
        };
        let read = || crate::types::text::input(Type::of(kind), &text, &EvalContext::default());
        read().unwrap();
        let found = work::within(&ended, &memory, read);
        assert_eq!(found.unwrap_err().state, crate::SqlState::QUERY_CANCELED, "{kind}");
    }
}

#[test]
fn what_a_call_keeps_besides_is_counted() {
    let small = crate::memory::Pool::of(2 << 20);
    let many = |text: &str| Value::text(text.repeat(100_000));
    for (name, arguments) in [
        ("string_to_array", vec![many("a,"), text(",")]),
        ("string_to_array", vec![many("ab"), Value::Null]),
        ("regexp_split_to_array", vec![many("a,"), text(",")]),
        ("array_fill", vec![Value::Int4(1), Value::array(Array::new(Kind::Int4, vec![Value::Int4(500_000)]))]),
        ("to_char", vec![Value::Timestamp(Timestamp(0)), many("- ")]),
        ("to_timestamp", vec![many("1"), many("YYYY")]),
        ("to_char", vec![Value::Int4(1), many("xy")]),
        ("to_number", vec![many("1"), many("xy")]),
        ("jsonb_pretty", vec![Value::Jsonb(format!("[{}1]", "1, ".repeat(100_000)).into())]),
    ] {
        let found = work::within(&|| Ok(()), &small, || called(name, &arguments));
        assert_eq!(found.unwrap_err().state, crate::SqlState::OUT_OF_MEMORY, "{name}");
        assert_eq!(small.used(), 0, "{name}");
    }
    let array = format!("{{{}1}}", "1,".repeat(100_000));
    let read = || crate::types::text::input(Type::of(Kind::Int4Array), &array, &EvalContext::default());
    let found = work::within(&|| Ok(()), &small, read);
    assert_eq!(found.unwrap_err().state, crate::SqlState::OUT_OF_MEMORY);
}

#[test]
fn templates_are_read_once() {
    // As many steps as they are long, whatever they say.
    let counted = |name: &str, arguments: &[Value]| {
        let asked = std::cell::Cell::new(0);
        let count = || {
            asked.set(asked.get() + 1);
            Ok(())
        };
        let _ = work::within(&count, &crate::memory::Pool::of(usize::MAX >> 1), || called(name, arguments));
        asked.get()
    };
    for (name, text, template) in [("to_timestamp", "1", "YYYY"), ("to_number", "1", "9"), ("to_date", "1", "FMYYYY")] {
        let call = |times: usize| {
            let (text, template) = (text.repeat(times * 4), template.repeat(times));
            counted(name, &[Value::text(text), Value::text(template)])
        };
        let (one, four) = (call(2000), call(8000));
        assert!(one > 0 && four <= one * 5, "{name}: {one} and {four}");
    }
}
