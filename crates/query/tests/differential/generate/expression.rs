//! Expressions of a wanted type.

use super::random::Random;

/// The types that expressions are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Bigint,
    Numeric,
    Float,
    Text,
    Bool,
    Date,
    Timestamp,
    Interval,
}

use Kind::{Bigint, Bool, Date, Float, Integer, Interval, Numeric, Text, Timestamp};

/// All of them.
pub const KINDS: [Kind; 9] = [Integer, Bigint, Numeric, Float, Text, Bool, Date, Timestamp, Interval];
/// Those with values that have one text each, and that differ little.
pub const PLAIN: [Kind; 6] = [Integer, Bigint, Text, Bool, Date, Timestamp];

/// A column that an expression may name.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
}

/// Makes expressions.
pub struct Expressions<'a> {
    pub random: &'a mut Random,
    /// What they may name.
    pub columns: &'a [Column],
    /// How often, in a hundred times, parentheses are left out where operators are nested.
    pub bare: usize,
}

impl Expressions<'_> {
    /// An expression, at most so deep.
    pub fn make(&mut self, kind: Kind, depth: u32) -> String {
        if depth == 0 || self.random.chance(15) {
            return self.leaf(kind);
        }
        let depth = depth - 1;
        match self.random.below(10) {
            0 => {
                let (test, yes, no) = (self.make(Bool, depth), self.make(kind, depth), self.make(kind, depth));
                format!("CASE WHEN {test} THEN {yes} ELSE {no} END")
            }
            1 => format!("coalesce({}, {})", self.make(kind, depth), self.make(kind, depth)),
            2 if kind != Bool => {
                let name = self.random.one(&["greatest", "least", "nullif"]);
                format!("{name}({}, {})", self.make(kind, depth), self.make(kind, depth))
            }
            _ => self.of(kind, depth),
        }
    }

    fn leaf(&mut self, kind: Kind) -> String {
        let known: Vec<&Column> = self.columns.iter().filter(|it| it.kind == kind).collect();
        if !known.is_empty() && self.random.chance(70) {
            return known[self.random.below(known.len())].name.clone();
        }
        if self.random.chance(8) {
            return format!("NULL::{}", name(kind));
        }
        let random = &mut *self.random;
        match kind {
            Integer => random.between(-3, 9).to_string(),
            Bigint => format!("{}::bigint", random.between(0, 40)),
            Numeric => random.one(&["1.5", "0.25", "2.00", "-7.125", "10.0", "3::numeric"]).to_owned(),
            Float => random.one(&["0.5::float8", "'2'::float8", "1e1::float8", "-0.25::float8"]).to_owned(),
            Text => random.one(&["'a'", "'Bc'", "''", "'x y'", "'ab%'", "'10'", "'äé'"]).to_owned(),
            Bool => random.one(&["true", "false"]).to_owned(),
            Date => random.one(&["date '2024-02-29'", "date '2023-12-31'", "date '2000-01-01'"]).to_owned(),
            Timestamp => {
                random.one(&["timestamp '2024-02-29 12:30:00'", "timestamp '1999-12-31 23:59:59.5'"]).to_owned()
            }
            Interval => random.one(&["interval '1 day'", "interval '2 hours'", "interval '1 mon -3 days'"]).to_owned(),
        }
    }

    /// An operand, in parentheses or not.
    fn operand(&mut self, kind: Kind, depth: u32) -> String {
        let made = self.make(kind, depth);
        let is_plain = made.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'\''));
        if is_plain || self.random.chance(self.bare) { made } else { format!("({made})") }
    }

    fn infix(&mut self, left: Kind, operators: &[&str], right: Kind, depth: u32) -> String {
        let operator = self.random.one(operators);
        format!("{} {operator} {}", self.operand(left, depth), self.operand(right, depth))
    }

    fn prefix(&mut self, operators: &[&str], kind: Kind, depth: u32) -> String {
        let operator = self.random.one(operators);
        format!("{operator} {}", self.operand(kind, depth))
    }

    fn call(&mut self, names: &[&str], kinds: &[Kind], depth: u32) -> String {
        let name = self.random.one(names);
        let arguments: Vec<String> = kinds.iter().map(|&kind| self.make(kind, depth)).collect();
        format!("{name}({})", arguments.join(", "))
    }

    fn of(&mut self, kind: Kind, depth: u32) -> String {
        let way = self.random.below(8);
        match kind {
            Integer => match way {
                0 | 1 => self.infix(Integer, &["+", "-", "*"], Integer, depth),
                2 => self.infix(Integer, &["&", "|", "#"], Integer, depth),
                3 => self.prefix(&["-", "+", "@", "~"], Integer, depth),
                4 => format!("{} {} 7", self.operand(Integer, depth), self.random.one(&["/", "%", "<<", ">>"])),
                5 => self.call(&["length", "ascii", "octet_length", "char_length"], &[Text], depth),
                6 => self.infix(Date, &["-"], Date, depth),
                _ => self.call(&["strpos"], &[Text, Text], depth),
            },
            Bigint => match way {
                0..3 => self.infix(Bigint, &["+", "-", "*"], Integer, depth),
                3 => self.infix(Integer, &["+", "-"], Bigint, depth),
                4 => self.prefix(&["-", "@"], Bigint, depth),
                5 => format!("({})::bigint", self.make(Integer, depth)),
                _ => self.call(&["abs", "sign"], &[Bigint], depth).replace("sign", "abs"),
            },
            Numeric => match way {
                0..3 => self.infix(Numeric, &["+", "-", "*"], Numeric, depth),
                3 => self.infix(Numeric, &["+", "*"], Integer, depth),
                4 => format!("round({}, {})", self.make(Numeric, depth), self.random.between(-1, 3)),
                5 => self.call(&["abs", "ceil", "floor", "trunc", "sign"], &[Numeric], depth),
                6 => format!("{} / 4.0", self.operand(Numeric, depth)),
                _ => format!("({})::numeric", self.make(Integer, depth)),
            },
            Float => match way {
                0..3 => self.infix(Float, &["+", "-", "*"], Float, depth),
                3 => self.infix(Float, &["+", "*"], Integer, depth),
                4 => self.call(&["abs", "floor", "sign"], &[Float], depth),
                5 => self.prefix(&["-", "@"], Float, depth),
                _ => format!("({})::float8", self.make(Integer, depth)),
            },
            Text => match way {
                0 | 1 => self.infix(Text, &["||"], Text, depth),
                2 => self.call(&["upper", "lower", "initcap", "reverse", "md5", "btrim", "ltrim"], &[Text], depth),
                3 => format!("substr({}, {}, 2)", self.make(Text, depth), self.random.between(-1, 3)),
                4 => self.call(&["concat"], &[Text, Integer, Bool], depth),
                5 => self.call(&["replace"], &[Text, Text, Text], depth),
                6 => format!(
                    "{}({}, {})",
                    self.random.one(&["left", "right"]),
                    self.make(Text, depth),
                    self.random.between(-2, 3)
                ),
                _ => format!("({})::text", self.make(Integer, depth)),
            },
            Bool => self.condition(way, depth),
            Date => match way {
                0..4 => self.infix(Date, &["+", "-"], Integer, depth),
                _ => format!("({})::date", self.make(Timestamp, depth)),
            },
            Timestamp => match way {
                0..3 => self.infix(Timestamp, &["+", "-"], Interval, depth),
                3 => self.infix(Date, &["+"], Interval, depth),
                4 => {
                    let unit = self.random.one(&["year", "month", "week", "day", "hour", "quarter"]);
                    format!("date_trunc('{unit}', {})", self.make(Timestamp, depth))
                }
                _ => format!("({})::timestamp", self.make(Date, depth)),
            },
            Interval => match way {
                0..3 => self.infix(Timestamp, &["-"], Timestamp, depth),
                3 => self.infix(Interval, &["+", "-"], Interval, depth),
                4 => format!("{} * {}", self.operand(Interval, depth), self.random.between(-2, 3)),
                5 => self.prefix(&["-"], Interval, depth),
                _ => self.call(&["justify_hours", "justify_days"], &[Interval], depth),
            },
        }
    }

    fn condition(&mut self, way: usize, depth: u32) -> String {
        let kind = KINDS[self.random.below(KINDS.len())];
        let not = if self.random.chance(30) { " NOT" } else { "" };
        match way {
            0 | 1 => self.infix(Bool, &["AND", "OR", "AND", "OR", "=", "<>"], Bool, depth),
            2 => self.infix(kind, &["=", "<>", "<", ">", "<=", ">=", "!="], kind, depth),
            3 => self.prefix(&["NOT"], Bool, depth),
            4 => format!("{} IS{not} DISTINCT FROM {}", self.operand(kind, depth), self.operand(kind, depth)),
            5 => {
                let test = self.random.one(&["NULL", "NULL", "TRUE", "FALSE", "UNKNOWN"]);
                let kind = if test == "NULL" { kind } else { Bool };
                format!("{} IS{not} {test}", self.operand(kind, depth))
            }
            6 => {
                let symmetric = if self.random.chance(30) { " SYMMETRIC" } else { "" };
                let subject = self.operand(kind, depth);
                format!("{subject}{not} BETWEEN{symmetric} {} AND {}", self.operand(kind, 0), self.operand(kind, 0))
            }
            _ if self.random.chance(50) => {
                let operator = self.random.one(&["LIKE", "ILIKE", "SIMILAR TO"]);
                let pattern = self.random.one(&["'%a%'", "'_'", "'ab\\%'", "'%'", "'B%'"]);
                format!("{}{not} {operator} {pattern}", self.operand(Text, depth))
            }
            _ => {
                let subject = self.operand(kind, depth);
                format!("{subject}{not} IN ({}, {})", self.make(kind, 0), self.make(kind, 0))
            }
        }
    }
}

/// What a type is called.
pub fn name(kind: Kind) -> &'static str {
    match kind {
        Integer => "integer",
        Bigint => "bigint",
        Numeric => "numeric",
        Float => "float8",
        Text => "text",
        Bool => "boolean",
        Date => "date",
        Timestamp => "timestamp",
        Interval => "interval",
    }
}
