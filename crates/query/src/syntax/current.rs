//! `WHERE CURRENT OF cursor`, which the parser does not know.
//!
//! Before it sees the tokens of an UPDATE or DELETE, the condition becomes a column's name that
//! nothing else has: a mark, and behind a period the cursor's name. [`cursor_of`] reads it again.

use sqlparser::{
    ast::Expr,
    tokenizer::{Token, TokenWithSpan},
};

use super::is_word;
use crate::bind::name_of;

/// What stands for `CURRENT OF`.
const MARK: &str = "\u{1}current of";

/// The cursor whose row a condition means, if it is such a condition.
pub fn cursor_of(condition: Option<&Expr>) -> Option<String> {
    match condition {
        Some(Expr::CompoundIdentifier(parts)) => match parts.as_slice() {
            [mark, cursor] if mark.value == MARK => Some(name_of(cursor)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether what begins with a word changes rows that a condition can choose.
fn begins(tokens: &[TokenWithSpan], at: usize, before: Option<&Token>) -> Option<bool> {
    let after = |word| before.is_some_and(|before| is_word(before, word));
    let token = &tokens[at].token;
    if is_word(token, "update") {
        return Some(!after("do") && !after("for") && !after("key"));
    }
    if is_word(token, "delete") {
        return Some(true);
    }
    ["select", "insert", "values"].iter().any(|word| is_word(token, word)).then_some(false)
}

/// The places of CURRENT and of the cursor's name behind a WHERE, where these end a condition.
fn condition(tokens: &[TokenWithSpan], from: usize) -> Option<(usize, usize)> {
    let mut there = (from..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_)));
    let (current, of, name) = (there.next()?, there.next()?, there.next()?);
    if !is_word(&tokens[current].token, "current") || !is_word(&tokens[of].token, "of") {
        return None;
    }
    if !matches!(tokens[name].token, Token::Word(_)) {
        return None;
    }
    let ends = there.next().is_none_or(|at| {
        matches!(tokens[at].token, Token::SemiColon | Token::RParen | Token::EOF)
            || is_word(&tokens[at].token, "returning")
    });
    ends.then_some((current, name))
}

/// The tokens of a text, with such conditions marked.
pub(super) fn marked(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| is_word(&token.token, "current")) {
        return tokens;
    }
    // For each bracket that is open: whether a statement that changes rows stands in it.
    let mut changes = vec![false];
    let mut found = Vec::new();
    let mut before = None;
    for at in 0..tokens.len() {
        let token = &tokens[at].token;
        match token {
            Token::Whitespace(_) => continue,
            Token::LParen => changes.push(false),
            Token::RParen if changes.len() > 1 => drop(changes.pop()),
            Token::SemiColon => changes = vec![false],
            token if is_word(token, "where") => {
                if changes.last() == Some(&true) {
                    found.extend(condition(&tokens, at + 1));
                }
            }
            _ => {
                if let (Some(begun), Some(last)) = (begins(&tokens, at, before), changes.last_mut()) {
                    *last = begun;
                }
            }
        }
        before = Some(token);
    }
    for (current, name) in found.into_iter().rev() {
        let span = tokens[current].span;
        let mark = [Token::make_word(MARK, Some('"')), Token::Period].map(|token| TokenWithSpan::new(token, span));
        tokens.splice(current..name, mark);
    }
    tokens
}
