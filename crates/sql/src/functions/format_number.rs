//! Numbers written by templates: `to_char(12.5, '999D99')`.

use super::{Function, mismatch};
use crate::{
    SqlError, SqlState, portable,
    types::{EvalContext, Kind, Numeric, Value},
    work::{self, Kept},
};

const T: Kind = Kind::Text;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("to_char", &[Kind::Int4, T], T, to_char).stable(),
    Function::new("to_char", &[Kind::Int8, T], T, to_char).stable(),
    Function::new("to_char", &[Kind::Float4, T], T, to_char).stable(),
    Function::new("to_char", &[Kind::Float8, T], T, to_char).stable(),
    Function::new("to_char", &[Kind::Numeric, T], T, to_char).stable(),
];

/// A piece of a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    /// `9`, or `0` where zeros are shown.
    Digit { zero: bool },
    /// `.` or `D`
    Point,
    /// `,` or `G`
    Group,
    /// `S`
    Sign,
    /// `MI`
    Minus,
    /// `PL`
    Plus,
    /// `SG`
    PlusMinus,
    /// `TH`, with capitals or without
    Ordinal { capitals: bool },
    /// `L`
    Currency,
    /// `V`
    Shift,
    /// Anything else, and what stands in quotes.
    Literal(String),
}

/// A template of `to_char` or `to_number`, taken apart.
#[derive(Debug, Default)]
pub(super) struct Template {
    pub(super) items: Vec<Item>,
    /// `FM`: nothing is filled up.
    pub(super) fill: bool,
    /// `PR`: negative numbers in angle brackets.
    pub(super) brackets: bool,
    /// `RN`, and whether with capitals.
    pub(super) roman: Option<bool>,
    /// `EEEE`
    pub(super) scientific: bool,
    /// Digits before the point, behind it, and behind `V`.
    pub(super) before: usize,
    pub(super) behind: usize,
    pub(super) shift: usize,
    pub(super) point: bool,
    /// The first slot before the point with a `0`, counting from the left.
    first_zero: Option<usize>,
    /// The last slot with a `0`, counting the point, too.
    last_zero: Option<usize>,
    /// Which signs it has a place for.
    signs: Signs,
    /// The memory of the pieces, counted for as long as they live.
    kept: Kept,
}

/// Which of these a template has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs {
    /// `S`
    pub(super) sign: bool,
    /// `MI`
    pub(super) minus: bool,
    /// `PL`
    pub(super) plus: bool,
    /// `SG`
    pub(super) either: bool,
}

impl Signs {
    /// Whether there is one that stands for nothing but a sign.
    pub(super) fn own(self) -> bool {
        self.minus || self.plus || self.either
    }
}

/// Whether text in capitals begins with something that a template knows.
fn is_pattern(upper: &str) -> bool {
    ["EEEE", "FM", "MI", "PL", "SG", "PR", "RN", "SP", "TH"].iter().any(|known| upper.starts_with(known))
        || upper.starts_with(|first: char| "90.,DGSBCLV".contains(first))
}

fn syntax(message: impl Into<crate::error::Text>) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, SqlError> {
        /// What a piece takes, at most: its text is allocated by itself.
        const PIECE: usize = 2 * size_of::<Item>() + 32;
        let mut template = Self { kept: work::kept(), ..Self::default() };
        let mut rest = text;
        let mut shifted = false;
        while let Some(first) = rest.chars().next() {
            work::done(8)?;
            template.kept.grown_to(template.items.len() * PIECE)?;
            let upper = rest.get(..4).unwrap_or(rest).to_ascii_uppercase();
            let mut length = 2;
            if template.scientific && is_pattern(&upper) && !upper.starts_with("EEEE") {
                return Err(syntax("\"EEEE\" must be the last pattern used"));
            }
            if upper.starts_with("EEEE") {
                template.scientific = true;
                length = 4;
            } else if upper.starts_with("FM") {
                template.fill = true;
            } else if upper.starts_with("MI") {
                template.signs.minus = true;
                template.items.push(Item::Minus);
            } else if upper.starts_with("PL") {
                template.signs.plus = true;
                template.items.push(Item::Plus);
            } else if upper.starts_with("SG") {
                template.signs.either = true;
                template.items.push(Item::PlusMinus);
            } else if upper.starts_with("PR") {
                template.brackets = true;
            } else if upper.starts_with("RN") {
                template.roman = Some(first == 'R');
            } else if upper.starts_with("SP") {
                // Known, but of no effect.
            } else if upper.starts_with("TH") {
                template.items.push(Item::Ordinal { capitals: first == 'T' });
            } else {
                length = first.len_utf8();
                match first.to_ascii_uppercase() {
                    '9' | '0' => {
                        let zero = first == '0';
                        let slot = template.before + usize::from(template.point) + template.behind + template.shift;
                        if zero {
                            template.last_zero = Some(slot);
                            if !template.point {
                                template.first_zero.get_or_insert(slot);
                            }
                        }
                        if template.brackets {
                            return Err(syntax(format!("\"{first}\" must be ahead of \"PR\"")));
                        }
                        if shifted {
                            template.shift += 1;
                        } else if template.point {
                            template.behind += 1;
                        } else {
                            template.before += 1;
                        }
                        template.items.push(Item::Digit { zero });
                    }
                    '.' | 'D' => {
                        if template.point {
                            return Err(syntax("multiple decimal points"));
                        }
                        if shifted {
                            return Err(syntax("cannot use \"V\" and decimal point together"));
                        }
                        template.point = true;
                        template.items.push(Item::Point);
                    }
                    ',' | 'G' => template.items.push(Item::Group),
                    'S' => {
                        if template.signs.sign {
                            return Err(syntax("cannot use \"S\" twice"));
                        }
                        template.signs.sign = true;
                        template.items.push(Item::Sign);
                    }
                    // Known, but of no effect.
                    'B' | 'C' => {}
                    'L' => template.items.push(Item::Currency),
                    'V' => {
                        if template.point {
                            return Err(syntax("cannot use \"V\" and decimal point together"));
                        }
                        shifted = true;
                        template.items.push(Item::Shift);
                    }
                    '"' => {
                        let (literal, used) = quoted(&rest[1..]);
                        template.items.push(Item::Literal(literal));
                        length = used + 1;
                    }
                    '\\' if rest[1..].starts_with('"') => {
                        template.items.push(Item::Literal("\"".to_owned()));
                        length = 2;
                    }
                    _ => template.items.push(Item::Literal(first.to_string())),
                }
            }
            rest = &rest[length..];
        }
        let signs = template.signs;
        if signs.sign && (signs.own() || template.brackets) {
            return Err(syntax("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"));
        }
        if template.brackets && signs.own() {
            return Err(syntax("cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together"));
        }
        Ok(template)
    }

    pub(super) fn signs(&self) -> Signs {
        self.signs
    }

    /// Whether `S` stands before all digits.
    fn sign_first(&self) -> bool {
        self.before > 0
            && self.items.iter().find(|item| matches!(item, Item::Sign | Item::Digit { .. } | Item::Point))
                == Some(&Item::Sign)
    }
}

/// What stands up to the closing quote, and how many bytes that are with the quote.
pub(super) fn quoted(text: &str) -> (String, usize) {
    let mut literal = String::new();
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            '"' if !escaped => return (literal, at + 1),
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            _ => literal.push(character),
        }
        escaped = false;
    }
    (literal, text.len())
}

/// A number in decimal digits.
struct Digits {
    negative: bool,
    whole: String,
    fraction: String,
}

impl Digits {
    fn of(text: &str) -> Self {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        Self { negative, whole: whole.to_owned(), fraction: fraction.to_owned() }
    }
}

/// 10 to a power.
pub(super) fn power_of_ten(power: usize) -> Numeric {
    // As short as templates are, it has few digits.
    Numeric::parse(&format!("1e{power}"), None).unwrap_or(Numeric::ONE)
}

/// The number rounded to this many digits behind the point, multiplied by a power of ten first.
fn digits_of(value: &Value, behind: usize, shift: usize) -> Result<Digits, SqlError> {
    let digits = match value {
        Value::Int4(_) | Value::Int8(_) | Value::Numeric(_) => {
            let number = match value {
                Value::Numeric(number) => number.clone(),
                _ => Numeric::from(value.as_i64().unwrap_or(0)),
            };
            let number = if shift > 0 { number.mul(&power_of_ten(shift))? } else { number };
            let rounded = number.round(behind as i32)?;
            Digits::of(&rounded.to_string())
        }
        Value::Float4(_) | Value::Float8(_) => {
            let (number, precise) = match value {
                Value::Float4(number) => (f64::from(*number), 6),
                Value::Float8(number) => (*number, 15),
                _ => (0.0, 15),
            };
            let number = number * portable::pow(10.0, shift as f64);
            // No more digits than such a number has.
            let whole = format!("{:.0}", number.abs()).len();
            Digits::of(&format!("{number:.*}", behind.min(precise - whole.min(precise))))
        }
        _ => return Err(mismatch(std::slice::from_ref(value))),
    };
    let mut digits = digits;
    if !matches!(value, Value::Float4(_) | Value::Float8(_)) && is_finite(value) {
        let missing = behind.saturating_sub(digits.fraction.len());
        digits.fraction.extend(std::iter::repeat_n('0', missing));
    }
    let zero = digits.whole.bytes().chain(digits.fraction.bytes()).all(|digit| digit == b'0');
    digits.negative &= !zero || matches!(value, Value::Float4(_) | Value::Float8(_));
    Ok(digits)
}

fn to_char(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    let [value, Value::Text(format)] = arguments else { return Err(mismatch(arguments)) };
    if format.is_empty() {
        return Ok(Value::text(""));
    }
    let template = Template::parse(format)?;
    if let Some(capitals) = template.roman {
        return Ok(Value::text(roman(value, &template, capitals)?));
    }
    if template.scientific {
        return scientific(value, &template).map(Value::text);
    }
    let mut digits = if is_finite(value) || matches!(value, Value::Numeric(_)) {
        digits_of(value, template.behind, template.shift)?
    } else {
        Digits { negative: false, whole: "#".repeat(template.before + 1), fraction: "#".repeat(template.behind) }
    };
    let slots = template.before + template.shift;
    if digits.whole.len() > slots {
        // It does not fit.
        digits.whole = "#".repeat(slots);
        let behind = if is_finite(value) { digits.fraction.len() } else { template.behind };
        digits.fraction = "#".repeat(behind);
    }
    layout(&template, &digits).map(Value::text)
}

/// Puts digits into a template's slots.
fn layout(template: &Template, digits: &Digits) -> Result<String, SqlError> {
    let mut layout = Layout::new(template, digits);
    let overflow = digits.whole.starts_with('#') || layout.slots() == 0 && digits.whole.is_empty();
    let last_digit = template.items.iter().rposition(|item| matches!(item, Item::Digit { .. } | Item::Point));
    let minus = |other: &'static str| if digits.negative { "-" } else { other };
    let blank = if template.fill { "" } else { " " };
    for (at, item) in template.items.iter().enumerate() {
        work::done(1)?;
        match item {
            Item::Digit { zero } if layout.past_point => layout.fraction_digit(*zero),
            Item::Digit { .. } => layout.whole_digit(),
            // A point that no digits follow ends the text.
            Item::Point if digits.fraction.is_empty() && !overflow => break,
            Item::Point => {
                layout.past_point = true;
                layout.write_sign();
                layout.out.push('.');
            }
            Item::Group => layout.out.push_str(if layout.in_number { "," } else { blank }),
            Item::Minus => layout.out.push_str(minus(blank)),
            Item::Plus => layout.out.push_str(if digits.negative { blank } else { "+" }),
            Item::PlusMinus => layout.out.push_str(minus("+")),
            Item::Ordinal { capitals } => {
                if !digits.negative && !template.point && !digits.whole.starts_with('#') {
                    layout.out.push_str(ordinal(&digits.whole, *capitals));
                }
            }
            Item::Currency => layout.out.push_str(blank),
            Item::Sign | Item::Shift => {}
            Item::Literal(text) => layout.out.push_str(text),
        }
        if Some(at) == last_digit {
            if template.signs.sign && !template.sign_first() {
                layout.out.push_str(minus("+"));
            }
            if template.brackets {
                layout.out.push_str(if digits.negative { ">" } else { blank });
            }
        }
    }
    Ok(layout.out)
}

/// A text on its way into a template.
struct Layout<'a> {
    template: &'a Template,
    digits: &'a Digits,
    out: String,
    /// What is still to be written in front of the first digit.
    sign: Option<&'static str>,
    /// Whether the last slot held a digit.
    in_number: bool,
    past_point: bool,
    /// Slots that were passed, before the point and behind it.
    slot: usize,
    behind: usize,
    /// How many digits are shown behind the point.
    shown_behind: usize,
}

impl<'a> Layout<'a> {
    fn new(template: &'a Template, digits: &'a Digits) -> Self {
        let mut layout = Self {
            template,
            digits,
            out: String::new(),
            sign: leading_sign(template, digits),
            in_number: false,
            past_point: false,
            slot: 0,
            behind: 0,
            shown_behind: digits.fraction.len(),
        };
        // With FM, zeros at the end are not shown, but where the template has zeros.
        if template.fill && template.point {
            let relevant = digits.fraction.trim_end_matches('0').len();
            let demanded = template.last_zero.map_or(0, |last| last.saturating_sub(layout.slots()));
            layout.shown_behind = relevant.max(demanded.min(digits.fraction.len()));
        }
        layout
    }

    /// Places for digits before the point.
    fn slots(&self) -> usize {
        self.template.before + self.template.shift
    }

    fn write_sign(&mut self) {
        self.out.push_str(self.sign.take().unwrap_or(""));
    }

    fn fraction_digit(&mut self, zero: bool) {
        self.write_sign();
        if self.behind < self.shown_behind || zero && self.behind < self.digits.fraction.len() {
            self.out.push_str(&self.digits.fraction[self.behind..=self.behind]);
            self.in_number = true;
        }
        self.behind += 1;
    }

    fn whole_digit(&mut self) {
        let Template { fill, behind, first_zero, .. } = *self.template;
        let whole = &self.digits.whole;
        let blanks = self.slots() - whole.len().min(self.slots());
        // A zero before the point is not shown where there are digits behind it, unless the
        // template says so.
        let hide_zero = whole == "0" && behind > 0 && first_zero.is_none();
        let blank = self.slot < blanks && first_zero.is_none_or(|zero| zero > self.slot);
        let hidden = hide_zero && self.slot >= blanks;
        self.in_number = !blank && !hidden;
        if blank || hidden {
            if !fill {
                self.out.push(' ');
            } else if !blank && self.shown_behind == 0 {
                // FM shows it when nothing follows the point.
                self.write_sign();
                self.out.push('0');
            }
        } else {
            self.write_sign();
            match self.slot.checked_sub(blanks) {
                Some(index) => self.out.push_str(whole.get(index..=index).unwrap_or("")),
                None => self.out.push('0'),
            }
        }
        self.slot += 1;
    }
}

/// What stands in front of the first digit for the sign, unless the template has a place for it.
fn leading_sign(template: &Template, digits: &Digits) -> Option<&'static str> {
    let Signs { sign, minus, plus, either } = template.signs;
    // PL alone leaves the minus to the number.
    let only_plus = plus && !minus && !either;
    let positive = if template.fill { "" } else { " " };
    if template.signs.own() && !only_plus {
        None
    } else if sign {
        template.sign_first().then_some(if digits.negative { "-" } else { "+" })
    } else if template.brackets {
        Some(if digits.negative { "<" } else { positive })
    } else {
        Some(if digits.negative { "-" } else { positive })
    }
}

/// `st`, `nd`, `rd` or `th`.
pub(super) fn ordinal(digits: &str, capitals: bool) -> &'static str {
    let teen = digits.len() >= 2 && digits.as_bytes()[digits.len() - 2] == b'1';
    let at = match digits.bytes().last() {
        Some(b'1') if !teen => 0,
        Some(b'2') if !teen => 1,
        Some(b'3') if !teen => 2,
        _ => 3,
    };
    if capitals { ["ST", "ND", "RD", "TH"][at] } else { ["st", "nd", "rd", "th"][at] }
}

/// A number in Roman numerals, if it has them.
pub(super) fn roman_numeral(mut number: i64) -> Option<String> {
    const NUMERALS: [(i64, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if !(1..4000).contains(&number) {
        return None;
    }
    let mut out = String::new();
    for (value, numeral) in NUMERALS {
        while number >= value {
            out.push_str(numeral);
            number -= value;
        }
    }
    Some(out)
}

fn roman(value: &Value, template: &Template, capitals: bool) -> Result<String, SqlError> {
    let number = match value {
        Value::Numeric(number) => number.to_i64(),
        Value::Float4(number) if number.is_finite() => Some(number.round_ties_even() as i64),
        Value::Float8(number) if number.is_finite() => Some(number.round_ties_even() as i64),
        _ => value.as_i64(),
    };
    let numeral = number.and_then(roman_numeral).unwrap_or_else(|| "#".repeat(15));
    let numeral = if capitals { numeral } else { numeral.to_ascii_lowercase() };
    Ok(if template.fill { numeral } else { format!("{numeral:>15}") })
}

fn is_finite(value: &Value) -> bool {
    match value {
        Value::Float4(number) => number.is_finite(),
        Value::Float8(number) => number.is_finite(),
        Value::Numeric(number) => number.as_special().is_none(),
        _ => true,
    }
}

/// One digit before the point, and an exponent.
fn scientific(value: &Value, template: &Template) -> Result<String, SqlError> {
    if !is_finite(value) {
        return Ok(format!(" {}.{}", "#".repeat(template.before), "#".repeat(template.behind + 4)));
    }
    let text = match value {
        Value::Float4(number) => format!("{:.*e}", template.behind, number),
        Value::Float8(number) => format!("{:.*e}", template.behind, number),
        Value::Numeric(number) => scientific_numeric(number, template.behind)?,
        _ => scientific_numeric(&Numeric::from(value.as_i64().unwrap_or(0)), template.behind)?,
    };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    let blank = if mantissa.starts_with('-') { "" } else { " " };
    Ok(format!("{blank}{mantissa}e{sign}{exponent:0>2}"))
}

fn scientific_numeric(number: &Numeric, behind: usize) -> Result<String, SqlError> {
    // Rounding may lengthen it by a digit.
    let mut power = number.exponent();
    let mut rounded = number.clone();
    for _ in 0..2 {
        rounded = number.round((behind as i64 - power).clamp(-200_000, 200_000) as i32)?;
        if rounded.is_zero() || rounded.exponent() == power {
            break;
        }
        power = rounded.exponent();
    }
    let digits = rounded.abs().to_string().replace('.', "");
    let mut digits = match digits.trim_start_matches('0') {
        "" => "0".to_owned(),
        digits => digits.to_owned(),
    };
    digits.truncate(behind + 1);
    while digits.len() < behind + 1 {
        digits.push('0');
    }
    let sign = if number.is_negative() { "-" } else { "" };
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    Ok(format!("{sign}{first}{point}{rest}e{power}"))
}
