use std::{cmp::Ordering, ops::Bound};

use freshet_storage::{IndexDefinition, KeyBuffer, KeyPart};
use proptest::prelude::*;

use super::*;
use crate::{
    Kind,
    types::{Array, Date, Interval, Numeric, Time, Timestamp, fit},
};

/// What the engine is told of a column.
fn part(column: &KeyColumn) -> KeyPart {
    let encoding = match column.encoding {
        KeyEncoding::Bytes => freshet_storage::KeyEncoding::Bytes,
        KeyEncoding::Unsigned => freshet_storage::KeyEncoding::Unsigned,
        KeyEncoding::Signed => freshet_storage::KeyEncoding::Signed,
        KeyEncoding::Float => freshet_storage::KeyEncoding::Float,
        KeyEncoding::Variable => freshet_storage::KeyEncoding::Variable,
    };
    let KeyColumn { offset, width, nullable, descending, null_low, .. } = *column;
    KeyPart { offset, width, encoding, nullable, descending, missing_low: null_low }
}

/// The engine's key of a row.
fn engine_key(row: &[u8], columns: &[KeyColumn]) -> Vec<u8> {
    let parts: Vec<KeyPart> = columns.iter().map(part).collect();
    IndexDefinition::new("i", false, &parts).key_of(row, &mut KeyBuffer::new()).to_vec()
}

fn searched(value: &Value, column: &KeyColumn) -> Vec<u8> {
    let mut key = Vec::new();
    assert!(column.append_key(value.as_ref(), &mut key).unwrap());
    key
}

fn encoded(layout: &Layout, values: &[Value]) -> Vec<u8> {
    let mut row = Vec::new();
    layout.encode(values, &mut row).unwrap();
    row
}

fn layout(types: &[Type]) -> Layout {
    Layout::new(types.iter().copied().map(Column::new).collect()).unwrap()
}

/// Types with every form of slot.
fn types() -> Vec<Type> {
    vec![
        Type::BOOL,
        Type::INT2,
        Type::INT4,
        Type::INT8,
        Type::FLOAT4,
        Type::FLOAT8,
        Type::NUMERIC,
        Type::numeric(6, 2).unwrap(),
        Type::numeric(18, 18).unwrap(),
        Type::numeric(30, 5).unwrap(),
        Type::OID,
        Type::REGCLASS,
        Type::SINGLE_CHAR,
        Type::TEXT,
        Type::varchar(5).unwrap(),
        Type::NAME,
        Type::BPCHAR,
        Type::char(4).unwrap(),
        Type::BYTEA,
        Type::DATE,
        Type::TIME,
        Type::TIMESTAMP,
        Type::TIMESTAMPTZ,
        Type::INTERVAL,
        Type::UUID,
        Type::JSON,
        Type::JSONB,
        Type::INT4.to_array().unwrap(),
        Type::TEXT.to_array().unwrap(),
    ]
}

/// Small numbers often, all others too.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![-3i64..4, -1000i64..1000, any::<i64>(), Just(i64::MIN), Just(i64::MAX)]
}

fn characters() -> impl Strategy<Value = String> {
    prop_oneof!["[ab ]{0,4}", "[a-c \u{1}ÿ€𝄞]{0,9}", "[a-z]{200,400}"]
}

/// Numbers that are longer, or none, and their like that are not.
fn wide() -> impl Strategy<Value = Numeric> {
    let special = prop_oneof![Just("NaN".to_owned()), Just("Infinity".to_owned()), Just("-Infinity".to_owned())];
    let long = (number(), prop_oneof![Just(0u32), 30u32..60, 200u32..300], prop_oneof![Just(0i32), 30..60, -60..-30])
        .prop_map(|(digits, zeros, exponent)| format!("{digits}{}7e{exponent}", "0".repeat(zeros as usize)));
    let padded = (number(), 30u32..90).prop_map(|(digits, zeros)| format!("{digits}.{}", "0".repeat(zeros as usize)));
    prop_oneof![special, long, padded].prop_map(|text| Numeric::parse(&text, None).unwrap())
}

fn numeric() -> impl Strategy<Value = Numeric> {
    let limit = 10i128.pow(38) - 1;
    (prop_oneof![-12i128..13, number().prop_map(i128::from), -limit..=limit, Just(limit), Just(-limit)], 0u32..=38)
        .prop_map(|(coefficient, scale)| Numeric::new(coefficient, scale).unwrap())
        .boxed()
        .prop_union(wide().boxed())
}

/// Values of a type, null among them.
fn value(ty: Type) -> BoxedStrategy<Value> {
    let some = match ty.kind() {
        Kind::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Kind::Int2 => number().prop_map(|n| Value::Int2(n as i16)).boxed(),
        Kind::Int4 => number().prop_map(|n| Value::Int4(n as i32)).boxed(),
        Kind::Int8 => number().prop_map(Value::Int8).boxed(),
        Kind::Float4 => prop_oneof![any::<f32>(), Just(0.0), Just(-0.0), Just(-f32::NAN), Just(f32::INFINITY)]
            .prop_map(Value::Float4)
            .boxed(),
        Kind::Float8 => prop_oneof![any::<f64>(), Just(0.0), Just(-0.0), Just(-f64::NAN), Just(f64::NEG_INFINITY)]
            .prop_map(Value::Float8)
            .boxed(),
        Kind::Numeric => match ty.precision() {
            None => numeric().prop_map(Value::Numeric).boxed(),
            Some(precision) => {
                let limit = 10i128.pow(precision.digits.into()) - 1;
                prop_oneof![-3i128..4, -limit..=limit]
                    .prop_map(move |n| Value::Numeric(Numeric::new(n, precision.scale as u32).unwrap()))
                    .boxed()
            }
        },
        Kind::SingleChar => any::<u8>().prop_map(Value::SingleChar).boxed(),
        Kind::Char => characters().prop_map(move |text| fit(Value::Char(text.into()), ty, true).unwrap()).boxed(),
        Kind::Bytea => prop_oneof![
            proptest::collection::vec(0u8..3, 0..5),
            proptest::collection::vec(any::<u8>(), 0..40),
            Just(vec![0; 200])
        ]
        .prop_map(Value::bytea)
        .boxed(),
        Kind::Date => number().prop_map(|n| Value::Date(Date(n as i32))).boxed(),
        Kind::Time => number().prop_map(|n| Value::Time(Time(n))).boxed(),
        Kind::Timestamp => number().prop_map(|n| Value::Timestamp(Timestamp(n))).boxed(),
        Kind::Timestamptz => number().prop_map(|n| Value::Timestamptz(Timestamp(n))).boxed(),
        Kind::Interval => prop_oneof![
            (number(), number(), number()),
            // Equal lengths in different fields.
            (-2i64..3, -60i64..61, (-2i64..3).prop_map(|days| days * 86_400_000_000))
        ]
        .prop_map(|(months, days, micros)| {
            Value::Interval(Interval { months: months as i32, days: days as i32, micros })
        })
        .boxed(),
        Kind::Uuid => prop_oneof![any::<[u8; 16]>(), (0u8..3).prop_map(|n| [n; 16])].prop_map(Value::Uuid).boxed(),
        Kind::Json => characters().prop_map(|text| Value::Json(format!("{text:?}").into())).boxed(),
        Kind::Jsonb => number().prop_map(|n| Value::Jsonb(format!("{{\"a\": {n}}}").into())).boxed(),
        _ if ty.kind().is_object_id() => any::<u32>().prop_map(Value::Oid).boxed(),
        _ => match ty.element() {
            Some(element) => proptest::collection::vec(value(element), 0..5)
                .prop_map(move |values| Value::array(Array::new(element.kind(), values)))
                .boxed(),
            None => characters().prop_map(move |text| fit(Value::text(text), ty, true).unwrap()).boxed(),
        },
    };
    prop_oneof![1 => Just(Value::Null), 9 => some].boxed()
}

fn row(types: &[Type]) -> impl Strategy<Value = Vec<Value>> + use<> {
    types.iter().map(|ty| value(*ty)).collect::<Vec<_>>()
}

/// Which values are not only equal but the same: what they print as, and all fields.
fn print(value: &Value) -> String {
    format!("{value:?}")
}

fn any_type() -> impl Strategy<Value = Type> {
    proptest::sample::select(types())
}

/// A type that has keys, and values of it.
fn keyed(count: usize) -> impl Strategy<Value = (Type, Vec<Value>)> {
    let keyed: Vec<Type> = types().into_iter().filter(|ty| layout(&[*ty]).key_column(0, false).is_some()).collect();
    proptest::sample::select(keyed).prop_flat_map(move |ty| (Just(ty), proptest::collection::vec(value(ty), count)))
}

proptest! {
    #[test]
    fn values_come_back(values in row(&types()), before in 0usize..3) {
        let layout = layout(&types());
        let mut buffer = vec![7; before];
        layout.encode(&values, &mut buffer).unwrap();
        let row = &buffer[before..];
        prop_assert!(layout.is_current(row));
        for (column, value) in values.iter().enumerate() {
            let read = layout.get(row, column).unwrap().to_value();
            match (value, &read) {
                (Value::Float4(one), Value::Float4(two)) if one.is_nan() => prop_assert!(two.is_nan()),
                (Value::Float8(one), Value::Float8(two)) if one.is_nan() => prop_assert!(two.is_nan()),
                _ => prop_assert_eq!(print(&read), print(value)),
            }
        }
        let again = encoded(&layout, &layout.decode(row).unwrap());
        prop_assert_eq!(again, row);
        prop_assert!(layout.get(row, values.len()).is_err());
    }

    #[test]
    fn the_engine_computes_the_same_keys(
        (ty, values) in keyed(2),
        (descending, nulls_first) in any::<(bool, bool)>(),
    ) {
        let layout = layout(&[Type::INT4, ty, Type::TEXT]);
        let column = layout.key_column(1, descending).unwrap().nulls_first(nulls_first);
        let mut keys = Vec::new();
        for value in &values {
            let row = encoded(&layout, &[Value::Int4(1), value.clone(), Value::text("behind")]);
            let key = searched(value, &column);
            let made = engine_key(&row, &[column]);
            prop_assert_eq!(&made, &key[..key.len().min(IndexDefinition::MAX_KEY)]);
            keys.push(key);
        }
        let order = match (values[0].is_null(), values[1].is_null()) {
            (one, other) if one != other => if one == nulls_first { Ordering::Less } else { Ordering::Greater },
            _ if descending => values[1].cmp(&values[0]),
            _ => values[0].cmp(&values[1]),
        };
        prop_assert_eq!(keys[0].cmp(&keys[1]), order);
    }

    #[test]
    fn keys_of_many_columns_sort_as_rows_do(
        ((one, two), rows) in (any_type(), any_type()).prop_flat_map(|types| {
            (Just(types), proptest::collection::vec((value(types.0), value(types.1)), 2))
        }),
        descending in any::<(bool, bool)>(),
    ) {
        let layout = layout(&[one, two]);
        let (Some(first), Some(second)) = (layout.key_column(0, descending.0), layout.key_column(1, descending.1))
        else { return Ok(()) };
        let keys: Vec<_> = rows.iter().map(|(a, b)| [searched(a, &first), searched(b, &second)].concat()).collect();
        let directed = |order: Ordering, descending| if descending { order.reverse() } else { order };
        let order = directed(rows[0].0.cmp(&rows[1].0), descending.0)
            .then(directed(rows[0].1.cmp(&rows[1].1), descending.1));
        prop_assert_eq!(keys[0].cmp(&keys[1]), order);
        let row = encoded(&layout, &[rows[0].0.clone(), rows[0].1.clone()]);
        let made = engine_key(&row, &[first, second]);
        if keys[0].len() <= IndexDefinition::MAX_KEY {
            prop_assert_eq!(&made, &keys[0]);
        }
    }

    #[test]
    fn ranges_have_what_is_between(
        (ty, values) in keyed(3),
        (descending, nulls_first) in any::<(bool, bool)>(),
        kinds in any::<(u8, u8)>(),
        prefix in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0xFF)], 0..3),
    ) {
        let column = layout(&[ty]).key_column(0, descending).unwrap().nulls_first(nulls_first);
        let bound = |kind: u8, value| match kind % 3 {
            0 => Bound::Unbounded,
            1 => Bound::Included(value),
            _ => Bound::Excluded(value),
        };
        let (lower, upper) = (bound(kinds.0, values[0].as_ref()), bound(kinds.1, values[1].as_ref()));
        let mut range = KeyRange::new();
        range.set_between(&prefix, &column, lower, upper).unwrap();
        let value = &values[2];
        let mut key = prefix.clone();
        prop_assert!(column.append_key(value.as_ref(), &mut key).unwrap());
        // A unique index has the record's key alone, others have more behind it.
        let longer = [&key[..], &[9]].concat();
        let holds = |bound: Bound<ValueRef<'_>>, wanted: Ordering| match bound {
            Bound::Unbounded => true,
            Bound::Included(bound) => !bound.is_null() && value.as_ref().compare(bound) != wanted.reverse(),
            Bound::Excluded(bound) => !bound.is_null() && value.as_ref().compare(bound) == wanted,
        };
        let between = !value.is_null() && holds(lower, Ordering::Greater) && holds(upper, Ordering::Less);
        prop_assert_eq!(range.contains(&key), between);
        prop_assert_eq!(range.contains(&longer), between);
        if range.is_empty() {
            prop_assert!(!between);
        }
        range.set_prefix(&prefix);
        prop_assert!(range.contains(&key) && range.contains(&longer));
        range.set_prefix(&key);
        prop_assert!(range.contains(&key) && range.contains(&longer));
    }

    #[test]
    fn numbers_of_other_kinds_are_compared_exactly(
        bounds in (numeric(), numeric()),
        whole in (number(), number()),
        use_whole in any::<bool>(),
        ty in proptest::sample::select(vec![
            Type::INT2,
            Type::INT4,
            Type::INT8,
            Type::NUMERIC,
            Type::numeric(6, 2).unwrap(),
            Type::numeric(38, 3).unwrap(),
        ]),
        seed in any::<(bool, bool, bool, i8)>(),
    ) {
        let column = layout(&[ty]).key_column(0, seed.0).unwrap();
        let bounds = if use_whole { (Numeric::from(whole.0), Numeric::from(whole.1)) } else { bounds };
        let sent = |number: Numeric, whole: i64| if use_whole { Value::Int8(whole) } else { Value::Numeric(number) };
        let (lower, upper) = (sent(bounds.0.clone(), whole.0), sent(bounds.1.clone(), whole.1));
        // A value near a bound, as the column can hold it.
        let near = bounds.0.add(&Numeric::from(i32::from(seed.3) / 40)).unwrap_or(Numeric::ZERO);
        let scale = ty.precision().map_or(0, |precision| precision.scale as u32);
        let near = match near.rescaled(scale) {
            _ if ty.kind() == Kind::Numeric && seed.3 % 16 == 0 => Numeric::nan(),
            Some(near) => near,
            None => return Ok(()),
        };
        let Some(stored) = (match ty.kind() {
            Kind::Numeric => fit(Value::Numeric(near.clone()), ty, false).ok(),
            kind => near.to_i64().and_then(|near| match kind {
                Kind::Int2 => i16::try_from(near).ok().map(Value::Int2),
                Kind::Int4 => i32::try_from(near).ok().map(Value::Int4),
                _ => Some(Value::Int8(near)),
            }),
        }) else { return Ok(()) };
        let key = searched(&stored, &column);
        let mut range = KeyRange::new();
        let bound = |included, value| if included { Bound::Included(value) } else { Bound::Excluded(value) };
        range.set_between(&[], &column, bound(seed.1, lower.as_ref()), bound(seed.2, upper.as_ref())).unwrap();
        let between =
            (near > bounds.0 || seed.1 && near == bounds.0) && (near < bounds.1 || seed.2 && near == bounds.1);
        prop_assert_eq!(range.contains(&key), between, "{:?} between {:?} and {:?}", near, lower, upper);
        let mut exact = Vec::new();
        let held = column.append_key(lower.as_ref(), &mut exact).unwrap();
        prop_assert_eq!(held && exact == key, near == bounds.0);
        prop_assert!(held || exact.is_empty());
    }

    #[test]
    fn rewriting_is_encoding(
        old in row(&types()),
        new in row(&types()),
        changed in proptest::collection::vec(0usize..types().len(), 0..4),
        fixed_only in any::<bool>(),
        written in 0usize..types().len(),
        dropped in proptest::option::of(0usize..types().len()),
    ) {
        // Some columns were added after the row was written, one may have been dropped since.
        let older = layout(&types()[..written]);
        let mut columns: Vec<Column> = types().into_iter().map(Column::new).collect();
        for (at, column) in columns.iter_mut().enumerate().skip(written) {
            column.missing = old[at].clone();
        }
        if let Some(dropped) = dropped {
            columns[dropped] = Column::dropped(columns[dropped].ty);
        }
        let layout = Layout::new(columns).unwrap();
        for row in [encoded(&older, &old[..written]), encoded(&layout, &old)] {
            let changes: Vec<_> = changed
                .iter()
                .filter(|column| !fixed_only || !layout.slots[**column].form.is_variable())
                .map(|column| (*column, new[*column].clone()))
                .collect();
            let mut values = old.clone();
            for (column, value) in &changes {
                values[*column] = value.clone();
            }
            let mut rewritten = vec![1];
            layout.rewrite(&row, &changes, &mut rewritten).unwrap();
            prop_assert_eq!(&rewritten[1..], encoded(&layout, &values));
            for (column, value) in old.iter().enumerate() {
                let read = layout.get(&row, column).unwrap().to_value();
                let expected = if dropped == Some(column) { &Value::Null } else { value };
                prop_assert_eq!(&read, expected);
            }
        }
    }

    #[test]
    fn damaged_rows_are_no_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        values in row(&types()),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<proptest::sample::Index>(),
    ) {
        let layout = layout(&types());
        let mut row = encoded(&layout, &values);
        for (at, byte) in damage {
            let at = at.index(row.len());
            row[at] = byte;
        }
        let cut = row[..cut.index(row.len())].to_vec();
        for row in [bytes, row, cut] {
            for column in 0..types().len() {
                if let Ok(value) = layout.get(&row, column) {
                    let _ = print(&value.to_value());
                }
            }
            let mut out = vec![1, 2];
            for change in [None, Some((2, Value::Int4(1))), Some((13, Value::text("abc")))] {
                let before = out.len();
                match layout.rewrite(&row, change.as_slice(), &mut out) {
                    Ok(()) => prop_assert!(layout.is_current(&out[before..])),
                    Err(_) => prop_assert_eq!(out.len(), before),
                }
            }
        }
    }
}

#[test]
fn the_format_is_as_documented() {
    let layout = layout(&[Type::INT4, Type::TEXT, Type::char(3).unwrap(), Type::NUMERIC, Type::FLOAT8]);
    let row = encoded(
        &layout,
        &[
            Value::Int4(-2),
            Value::text("ab"),
            Value::Char("c  ".into()),
            Value::Numeric(Numeric::new(-1250, 2).unwrap()),
            Value::Float8(-0.0),
        ],
    );
    let expected: Vec<u8> = [
        &[47, 0][..],
        &[1, 0xFE, 0xFF, 0xFF, 0xFF],
        &[1, 47, 0, 0, 0, 2, 0, 0, 0],
        &[1, 49, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0],
        &[3, 52, 0, 0, 0, 4, 0, 0, 0],
        &[2, 0, 0, 0, 0, 0, 0, 0, 0],
        b"ab",
        b"c  ",
        // -12.50: the complement of C0 + 1, 12 + 1 and 50 + 1.
        &[0x3E, 0xF2, 0xCC, 0xFF],
    ]
    .concat();
    assert_eq!(row, expected);
    assert_eq!(layout.shortest(), 47);
}

#[test]
fn what_does_not_fit_is_refused() {
    let layout = layout(&[Type::INT4, Type::numeric(4, 2).unwrap(), Type::BYTEA]);
    let mut out = vec![9];
    for (values, state) in [
        (vec![Value::Int8(1), Value::Null, Value::Null], "42804"),
        (vec![Value::Null, Value::Numeric(Numeric::new(1, 3).unwrap()), Value::Null], "42804"),
        (vec![Value::Null, Value::Null], "XX000"),
        (vec![Value::Null, Value::Null, Value::bytea(vec![0; MAX_ROW])], "54000"),
    ] {
        assert_eq!(layout.encode(&values, &mut out).unwrap_err().state.code(), state);
        assert_eq!(out, [9]);
    }
    // Another scale is no obstacle when nothing is lost.
    let row = encoded(&layout, &[Value::Null, Value::Numeric(Numeric::new(1500, 3).unwrap()), Value::Null]);
    assert_eq!(layout.get(&row, 1).unwrap().to_string(), "1.50");
    assert_eq!(Layout::new(vec![Column::new(Type::VOID)]).unwrap_err().state.code(), "42P16");
    assert_eq!(Layout::new(vec![Column::new(Type::INTERVAL); 3000]).unwrap_err().state.code(), "54011");
    assert_eq!(Layout::new(vec![Column::added(Type::INT4, Value::text("1"))]).unwrap_err().state.code(), "42804");
    let error = layout.rewrite(&row, &[(3, Value::Null)], &mut out).unwrap_err();
    assert_eq!((error.state.code(), &out[..]), ("XX000", &[9][..]));
    let column = layout.key_column(0, false).unwrap();
    assert_eq!(column.append_key(ValueRef::Text("1"), &mut out).unwrap_err().state.code(), "42804");
}

#[test]
fn ranges_are_made_disjoint() {
    let layout = Layout::new(vec![Column::new(Type::INT4)]).unwrap();
    let column = layout.key_column(0, false).unwrap();
    let range = |from: i32, to: i32| {
        let mut range = KeyRange::new();
        let (from, to) = (Value::Int4(from), Value::Int4(to));
        range.set_between(&[], &column, Bound::Included(from.as_ref()), Bound::Included(to.as_ref())).unwrap();
        range
    };
    let mut open = KeyRange::new();
    open.set_between(&[], &column, Bound::Excluded(Value::Int4(90).as_ref()), Bound::Unbounded).unwrap();
    let ranges = vec![range(40, 50), range(1, 3), open, range(2, 5), range(95, 97), range(9, 8), range(4, 4)];
    let disjoint = KeyRange::disjoint(ranges.clone());
    assert_eq!(disjoint.len(), 3);
    for number in -2..120 {
        let mut key = Vec::new();
        column.append_key(ValueRef::Int4(number), &mut key).unwrap();
        let before = ranges.iter().any(|range| range.contains(&key));
        let after = disjoint.iter().filter(|range| range.contains(&key)).count();
        assert_eq!(after, usize::from(before), "{number}");
    }
}
