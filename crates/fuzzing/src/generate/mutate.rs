//! Changes of statements and of bytes.

use super::{
    Random,
    hostile::{EXPRESSIONS, NUMBERS, TEXTS},
};

/// Cuts a statement into words, numbers, literals and signs, without the blanks between them.
pub(super) fn tokens(sql: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || c == '.';
        let sign = |c: char| "+-*/<>=~!@#%^&|`?:".contains(c);
        let end = match first {
            '\'' | '"' => {
                let closing = rest[1..].find(first).map_or(rest.len(), |at| at + 2);
                closing.min(rest.len())
            }
            c if c.is_whitespace() => rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len()),
            c if word(c) => rest.find(|c: char| !word(c)).unwrap_or(rest.len()),
            c if sign(c) => rest.find(|c: char| !sign(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (token, after) = rest.split_at(end);
        if !first.is_whitespace() {
            tokens.push(token.to_owned());
        }
        rest = after;
    }
    tokens
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Something that can stand where a value stands.
pub(super) fn value(random: &mut Random) -> String {
    match random.below(4) {
        0 => random.of(NUMBERS).to_owned(),
        1 => literal(random.of(TEXTS)),
        _ => random.of(EXPRESSIONS).to_owned(),
    }
}

/// Changes one thing in a statement; `dictionary` has what may be put into it.
pub(super) fn change(tokens: &mut Vec<String>, dictionary: &[String], random: &mut Random) {
    let at = random.below(tokens.len());
    if tokens.is_empty() {
        tokens.push(value(random));
        return;
    }
    let some = |random: &mut Random| at + random.count(30).min(tokens.len() - at);
    match random.below(14) {
        0 | 1 => tokens[at] = value(random),
        2 | 3 => {
            // What has the shape of a value becomes another one.
            let is_value = |token: &String| token.starts_with(|c: char| c == '\'' || c.is_ascii_digit());
            let places: Vec<usize> = (0..tokens.len()).filter(|at| is_value(&tokens[*at])).collect();
            if let Some(place) = places.get(random.below(places.len())) {
                tokens[*place] = value(random);
            }
        }
        4 => tokens[at] = dictionary[random.below(dictionary.len())].clone(),
        5 => tokens.insert(at, dictionary[random.below(dictionary.len())].clone()),
        6 => {
            let end = some(random);
            tokens.drain(at..end);
        }
        7 => {
            let part = tokens[at..some(random)].to_vec();
            let times = random.count(200);
            tokens.splice(at..at, (0..times).flat_map(|_| part.clone()).take(20_000));
        }
        8 => {
            let to = random.below(tokens.len());
            tokens.swap(at, to);
        }
        9 => {
            // Into parentheses, perhaps many.
            let end = some(random);
            let times = random.count(60);
            tokens.splice(end..end, std::iter::repeat_n(")".to_owned(), times));
            let before = random.of(&["(", "(", "(SELECT", "NOT (", "- (", "abs(", "ARRAY["]);
            tokens.splice(at..at, std::iter::repeat_n(before.to_owned(), times));
        }
        10 => {
            let operator = random.of(&[
                "+",
                "||",
                "AND",
                "OR",
                "=",
                "::",
                "->",
                "COLLATE",
                "IS",
                "UNION ALL SELECT",
                ",",
                "*",
                "^",
                "~",
                "[",
                "IN (",
                "BETWEEN",
                "NOT",
                "-",
                ";",
            ]);
            let times = random.count(3000);
            let part = [operator.to_owned(), value(random)];
            tokens.splice(at..at, (0..times).flat_map(|_| part.clone()).take(20_000));
        }
        11 => {
            // A part of a token.
            let token = &mut tokens[at];
            let end = token.char_indices().map(|(at, _)| at).nth(random.below(token.chars().count())).unwrap_or(0);
            token.truncate(end);
        }
        12 => {
            let end = some(random);
            let part: Vec<String> = tokens.drain(at..end).collect();
            let to = random.below(tokens.len() + 1);
            tokens.splice(to..to, part);
        }
        _ => tokens.insert(at, value(random)),
    }
}

/// Changes bytes, whatever they mean.
pub(super) fn bytes(data: &mut Vec<u8>, random: &mut Random) {
    if data.is_empty() {
        data.push(random.any() as u8);
        return;
    }
    let at = random.below(data.len());
    let end = at + random.count(200).min(data.len() - at);
    match random.below(7) {
        0 => data[at] = random.any() as u8,
        1 => data[at] = random.of(&[&0_u8, &1, &0x7f, &0x80, &0xff, &b'\'', &b'"', &b'(', &b'\\', &0xc3]).to_owned(),
        2 => data[at] ^= 1 << random.below(8),
        3 => drop(data.drain(at..end)),
        4 => {
            let part = data[at..end].to_vec();
            data.splice(at..at, part);
        }
        5 => {
            let length = [0_u32, 1, 3, 4, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, random.any() as u32][random.below(8)];
            let end = data.len().min(at + 4);
            data.splice(at..end, length.to_be_bytes());
        }
        _ => data.truncate(at),
    }
}
