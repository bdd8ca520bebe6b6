//! `ON CONFLICT (…) WHERE …`, where it says more than the names of columns: the parser knows no
//! expressions there. Such a target becomes the name of a constraint that no constraint has, with
//! the text in it, to be read when the statement is bound.

use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::is_word;

/// What such a name begins with. No text of a client has this character.
pub const CONFLICT_TARGET: char = '\0';

/// The tokens with such targets in place of what stands behind ON CONFLICT.
pub(super) fn spelt_out(read: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let conflicts = read.iter().any(|token| is_word(&token.token, "conflict"));
    if !conflicts {
        return read;
    }
    let mut tokens = Vec::with_capacity(read.len());
    let mut rest = read.as_slice();
    while let Some((first, after)) = rest.split_first() {
        tokens.push(first.clone());
        rest = after;
        let begins = is_word(&first.token, "conflict")
            && significant(&tokens[..tokens.len() - 1]).next_back().is_some_and(|before| is_word(before, "on"));
        if begins && let Some(count) = target(rest) {
            let span = first.span;
            let name = format!("{CONFLICT_TARGET}{}", text(&rest[..count]));
            let words =
                [Token::make_keyword("ON"), Token::make_keyword("CONSTRAINT"), Token::make_word(&name, Some('"'))];
            tokens.extend(words.into_iter().map(|word| TokenWithSpan::new(word, span)));
            rest = &rest[count..];
        }
    }
    tokens
}

fn significant(tokens: &[TokenWithSpan]) -> impl DoubleEndedIterator<Item = &Token> {
    tokens.iter().map(|token| &token.token).filter(|token| !matches!(token, Token::Whitespace(_)))
}

/// How many tokens the target is that these begin with; nothing if it is none, or one of names
/// only.
fn target(tokens: &[TokenWithSpan]) -> Option<usize> {
    let (mut depth, mut names_only, mut closed) = (0, true, false);
    let mut last: Option<&Token> = None;
    let mut count = tokens.len();
    for (at, token) in tokens.iter().enumerate() {
        let token = &token.token;
        match token {
            Token::Whitespace(_) => continue,
            Token::LParen => {
                names_only &= depth == 0 && !closed;
                depth += 1;
            }
            Token::RParen => {
                depth -= 1;
                closed |= depth == 0;
            }
            _ if depth == 0 && !closed => return None,
            // What follows a target.
            word if depth == 0 && is_word(word, "do") => {
                count = at;
                break;
            }
            // One name between commas.
            Token::Word(_) => names_only &= !closed && !matches!(last, Some(Token::Word(_))),
            Token::Comma => names_only &= !closed,
            _ => names_only = false,
        }
        if depth < 0 || *token == Token::SemiColon {
            return None;
        }
        last = Some(token);
    }
    (closed && !names_only).then_some(count)
}

/// Tokens as a text that has the same tokens.
fn text(tokens: &[TokenWithSpan]) -> String {
    let mut text = String::new();
    for token in tokens {
        match &token.token {
            Token::Whitespace(_) => text.push(' '),
            Token::SingleQuotedString(string) | Token::EscapedStringLiteral(string) => {
                text.push_str(&format!("'{}'", string.replace('\'', "''")));
            }
            Token::DollarQuotedString(string) => text.push_str(&format!("'{}'", string.value.replace('\'', "''"))),
            Token::Word(Word { value, quote_style: Some('"'), .. }) => {
                text.push_str(&format!("\"{}\"", value.replace('"', "\"\"")));
            }
            other => text.push_str(&other.to_string()),
        }
    }
    text
}
