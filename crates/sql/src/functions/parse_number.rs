//! Numbers read by templates: `to_number('1,234.5-', '9,999D9S')`.

use super::{
    Function,
    format_number::{Item, Template, power_of_ten},
    take,
};
use crate::{
    SqlError, SqlState,
    types::{EvalContext, Kind, Numeric, Precision, Value},
    work,
};

const T: Kind = Kind::Text;

pub(super) const FUNCTIONS: &[Function] = &[Function::new("to_number", &[T, T], Kind::Numeric, to_number).stable()];

/// What has been read, and what is left.
struct Reader<'a> {
    template: &'a Template,
    rest: &'a [u8],
    sign: Option<u8>,
    digits: String,
    before: usize,
    behind: usize,
    past_point: bool,
}

impl Reader<'_> {
    fn skip(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or(&[]);
    }

    /// One character, of however many bytes.
    fn skip_character(&mut self) {
        self.skip(1);
        while let [0x80..=0xbf, after @ ..] = self.rest {
            self.rest = after;
        }
    }

    /// Up to this many characters that no number has.
    fn skip_others(&mut self, count: usize) {
        for _ in 0..count {
            match self.rest {
                [] => break,
                [byte, ..] if b"0123456789.,+-".contains(byte) => break,
                _ => self.skip_character(),
            }
        }
    }

    /// What stands in the place of a digit or of the point; the sign may stand before it, or behind
    /// the last one.
    fn slot(&mut self, is_digit: bool) {
        if let [b' ', after @ ..] = self.rest {
            self.rest = after;
        }
        if is_digit && self.sign.is_none() && self.before + self.behind == 0 {
            match self.rest {
                [sign @ (b'+' | b'-'), after @ ..] => (self.sign, self.rest) = (Some(*sign), after),
                [b'<', after @ ..] if self.template.brackets => (self.sign, self.rest) = (Some(b'-'), after),
                _ => {}
            }
        }
        let Some(&found) = self.rest.first() else { return };
        let mut taken = false;
        if found.is_ascii_digit() {
            // More digits behind the point than the template has are passed over.
            if !(self.past_point && self.behind == self.template.behind) {
                self.digits.push(char::from(found));
                *(if self.past_point { &mut self.behind } else { &mut self.before }) += 1;
                taken = true;
            }
        } else if found == b'.' && self.template.point && !self.past_point {
            self.digits.push('.');
            self.past_point = true;
            taken = true;
        }
        if self.sign.is_none() && self.before + self.behind > 0 {
            if self.template.signs().sign {
                if let [_, sign @ (b'+' | b'-'), ..] = self.rest
                    && taken
                {
                    self.sign = Some(*sign);
                    self.skip(1);
                }
            } else if !taken && self.template.signs().own() && matches!(found, b'+' | b'-') {
                self.sign = Some(found);
            }
        }
        self.skip(1);
    }

    /// A sign in a place of its own.
    fn own_sign(&mut self, wanted: &[u8]) {
        match self.rest {
            [sign, ..] if wanted.contains(sign) => {
                self.sign = Some(*sign);
                self.skip(1);
            }
            _ => self.skip_others(1),
        }
    }

    fn read(&mut self) -> Result<(), SqlError> {
        let template = self.template;
        for item in &template.items {
            if self.rest.is_empty() {
                break;
            }
            work::done(2)?;
            match item {
                Item::Digit { .. } => self.slot(true),
                Item::Point => self.slot(false),
                Item::Group => {
                    if !template.fill && self.rest.starts_with(b",") {
                        self.skip(1);
                    }
                }
                Item::Minus => self.own_sign(b"-"),
                Item::Plus => self.own_sign(b"+"),
                Item::PlusMinus => self.own_sign(b"+-"),
                Item::Ordinal { .. } if template.point => {}
                Item::Ordinal { .. } => self.skip_others(2),
                Item::Currency => self.skip_others(1),
                // Whatever stands there.
                Item::Literal(literal) => literal.chars().for_each(|_| self.skip_character()),
                Item::Sign | Item::Shift => {}
            }
        }
        Ok(())
    }
}

fn to_number(arguments: &[Value], _: &EvalContext<'_>) -> Result<Value, SqlError> {
    take!(arguments: Text(text), Text(format));
    if format.is_empty() {
        return Ok(Value::Null);
    }
    let template = Template::parse(format)?;
    let unsupported =
        |what: &str| SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("\"{what}\" not supported for input"));
    if template.roman.is_some() {
        return Err(unsupported("RN"));
    }
    if template.scientific {
        return Err(unsupported("EEEE"));
    }
    let mut reader = Reader {
        template: &template,
        rest: text.as_bytes(),
        sign: None,
        digits: String::new(),
        before: 0,
        behind: 0,
        past_point: false,
    };
    reader.read()?;
    let Reader { sign, digits, behind, .. } = reader;
    let written = format!("{}{}", char::from(sign.unwrap_or(b' ')), digits.trim_end_matches('.'));
    // No more digits than the template has.
    let width = template.before + template.shift + behind;
    let to = match (u16::try_from(width), i16::try_from(behind)) {
        (Ok(digits), Ok(scale)) => Some(Precision { digits, scale }),
        _ => None,
    };
    let mut result = Numeric::parse(&written, to)?;
    if template.shift > 0 {
        result = result.div(&power_of_ten(template.shift))?;
    }
    Ok(Value::Numeric(result))
}
