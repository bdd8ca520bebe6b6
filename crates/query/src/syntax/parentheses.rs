//! Parentheses where the parser takes them for something else, spelt as it reads them.
//!
//! - `FETCH FIRST (a + b) ROWS ONLY`, where the parser knows a literal only, is `LIMIT (a + b)`.
//! - `TRIM(BOTH FROM text)` is `TRIM(BOTH text)`.
//! - `= ANY (VALUES …)`, `EXISTS (VALUES …)` and their like have the query `SELECT * FROM (VALUES
//!   …)`.
//! - An element of ROLLUP, CUBE or GROUPING SETS that only begins with a parenthesis, `(a + 1) *
//!   2`, is no list in parentheses. It gets parentheses around it.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{is_word, replaced};

/// One of these words is in all of them.
const CONCERNED: [&str; 6] = ["fetch", "rollup", "cube", "grouping", "trim", "values"];

/// The tokens, spelt so.
pub(super) fn spelt_out(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let concerned = |token: &TokenWithSpan| CONCERNED.iter().any(|word| is_word(&token.token, word));
    if !tokens.iter().any(concerned) {
        return tokens;
    }
    let seen = Seen::of(&tokens);
    // What comes before which token; and the tokens that go.
    let (mut marks, mut gone) = (Vec::new(), Vec::new());
    for number in 0..seen.places.len() {
        let (from, at) = (number + 2, |number: usize| seen.places[number]);
        if seen.reads(number, &["fetch", "first"]) || seen.reads(number, &["fetch", "next"]) {
            let Some(rows) = seen.close(from).map(|close| close + 1) else { continue };
            if seen.reads(rows, &["row", "only"]) || seen.reads(rows, &["rows", "only"]) {
                marks.push((at(number), Token::make_keyword("LIMIT")));
                gone.extend([number, number + 1, rows, rows + 1].map(at));
            }
        }
        if seen.reads(number, &["trim"]) && seen.token(number + 1) == Some(&Token::LParen) {
            let sided = ["both", "leading", "trailing"].iter().any(|side| seen.reads(from, &[side]));
            let word = from + usize::from(sided);
            gone.extend(seen.reads(word, &["from"]).then(|| at(word)));
        }
        if ["any", "some", "all", "exists", "array"].iter().any(|word| seen.reads(number, &[word]))
            && seen.reads(from, &["values"])
            && let Some(close) = seen.close(number + 1)
        {
            let before = [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM"), Token::LParen];
            let behind = [Token::RParen, Token::make_keyword("AS"), Token::make_word("*VALUES*", Some('"'))];
            marks.extend(before.map(|token| (at(from), token)));
            marks.extend(behind.map(|token| (at(close), token)));
        }
        let begins = match () {
            () if seen.reads(number, &["grouping", "sets"]) => from,
            () if seen.reads(number, &["rollup"]) || seen.reads(number, &["cube"]) => number + 1,
            () => continue,
        };
        let Some(last) = seen.close(begins) else { continue };
        let mut element = begins + 1;
        while element < last {
            let close = seen.close(element);
            let end = seen.end_of_element(element, last);
            if close.is_some_and(|close| close + 1 < end) {
                marks.extend([(at(element), Token::LParen), (at(end), Token::RParen)]);
            }
            element = end + 1;
        }
    }
    if marks.is_empty() && gone.is_empty() {
        return tokens;
    }
    marks.sort_by_key(|(place, _)| *place);
    gone.sort_unstable();
    let mark = |(place, mark): (usize, Token)| (place, TokenWithSpan::new(mark, tokens[place].span));
    let marks = marks.into_iter().map(mark).collect();
    replaced(tokens, marks, gone)
}

/// Tokens without the blanks between them.
struct Seen<'a> {
    tokens: &'a [TokenWithSpan],
    /// Where each of them is.
    places: Vec<usize>,
    /// Of each that opens a parenthesis: which one closes it; zero if none does.
    closes: Vec<usize>,
}

impl<'a> Seen<'a> {
    fn of(tokens: &'a [TokenWithSpan]) -> Self {
        let is_blank = |place: &usize| matches!(tokens[*place].token, Token::Whitespace(_));
        let places: Vec<usize> = (0..tokens.len()).filter(|place| !is_blank(place)).collect();
        let mut closes = vec![0; places.len()];
        let mut open = Vec::new();
        for (number, place) in places.iter().enumerate() {
            match tokens[*place].token {
                Token::LParen => open.push(number),
                Token::RParen => {
                    if let Some(opens) = open.pop() {
                        closes[opens] = number;
                    }
                }
                Token::SemiColon => open.clear(),
                _ => {}
            }
        }
        Self { tokens, places, closes }
    }

    fn token(&self, number: usize) -> Option<&'a Token> {
        self.places.get(number).map(|place| &self.tokens[*place].token)
    }

    /// Whether these words begin with token `number`.
    fn reads(&self, number: usize, words: &[&str]) -> bool {
        let is = |(number, word): (usize, &&str)| self.token(number).is_some_and(|token| is_word(token, word));
        (number..).zip(words).all(is)
    }

    /// What closes the parenthesis that token `number` opens, if it does.
    fn close(&self, number: usize) -> Option<usize> {
        self.closes.get(number).copied().filter(|close| *close > 0)
    }

    /// The comma behind an element of a list, or `last`, which closes that list.
    fn end_of_element(&self, element: usize, last: usize) -> usize {
        let mut number = element;
        while number < last && self.token(number) != Some(&Token::Comma) {
            number = self.close(number).unwrap_or(number) + 1;
        }
        number.min(last)
    }
}
