//! FOR UPDATE and its like, as far as the parser does not know them.
//!
//! The parser knows `FOR UPDATE` and `FOR SHARE`, of one relation. So before it sees the tokens,
//! each such clause becomes `FOR UPDATE OF "mark"."name"."name"`: the mark says how strongly rows
//! are locked, the names are those after OF. [`freshet_sql::locking::clause`] reads it again.

use freshet_engine::RowLock;
use freshet_sql::{
    SqlError,
    locking::{MARK, name_of_lock},
};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::is_word;
use crate::bind::syntax_error;

/// The words after FOR, the longest first.
const WORDS: [(&[&str], RowLock); 4] = [
    (&["no", "key", "update"], RowLock::NoKeyUpdate),
    (&["key", "share"], RowLock::KeyShare),
    (&["update"], RowLock::Update),
    (&["share"], RowLock::Share),
];

/// Tokens without blanks from a place on, with their places.
fn significant(tokens: &[TokenWithSpan], from: usize) -> impl Iterator<Item = (usize, &Token)> {
    let tokens = tokens.iter().enumerate().skip(from).map(|(at, token)| (at, &token.token));
    tokens.filter(|(_, token)| !matches!(token, Token::Whitespace(_)))
}

/// The lock that words say, and the place behind them.
fn lock_at(tokens: &[TokenWithSpan], from: usize) -> Option<(RowLock, usize)> {
    WORDS.iter().find_map(|(words, lock)| {
        let mut end = from;
        let mut there = significant(tokens, from);
        for word in *words {
            let (at, token) = there.next()?;
            if !is_word(token, word) {
                return None;
            }
            end = at + 1;
        }
        Some((*lock, end))
    })
}

/// The names after OF, and the place behind them; nothing where there is no OF.
fn names_at(tokens: &[TokenWithSpan], from: usize, lock: RowLock) -> Result<Option<(Vec<Token>, usize)>, SqlError> {
    let mut there = significant(tokens, from).peekable();
    match there.next() {
        Some((_, token)) if is_word(token, "of") => {}
        _ => return Ok(None),
    }
    let mut names = Vec::new();
    while let Some((at, name @ Token::Word(word))) = there.next() {
        if word.quote_style.is_some() && word.value.starts_with(MARK) {
            // It was marked before: a text of the catalog.
            return Ok(None);
        }
        names.push(name.clone());
        match there.peek() {
            Some((_, Token::Period)) => {
                let message = format!("{} must specify unqualified relation names", name_of_lock(lock));
                return Err(syntax_error(message));
            }
            Some((_, Token::Comma)) => drop(there.next()),
            _ => return Ok(Some((names, at + 1))),
        }
    }
    // The parser complains.
    Ok(None)
}

/// Whether a clause begins at a place.
fn is_clause(tokens: &[TokenWithSpan], at: usize) -> bool {
    is_word(&tokens[at].token, "for") && lock_at(tokens, at + 1).is_some()
}

/// The first place at or behind `from`, within the same brackets, at which something is so; or the
/// end of the query that is there.
fn place(tokens: &[TokenWithSpan], from: usize, steps: &mut usize, is_so: impl Fn(usize) -> bool) -> usize {
    let mut depth = 0_u32;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        *steps = steps.saturating_sub(1);
        match token.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket if depth > 0 => depth -= 1,
            Token::RParen | Token::RBracket | Token::SemiColon | Token::EOF => return at,
            _ if depth == 0 && is_so(at) => return at,
            _ => {}
        }
    }
    tokens.len()
}

/// Puts LIMIT, OFFSET and FETCH behind clauses before these, where the parser knows them.
fn limited_before(tokens: &mut [TokenWithSpan]) {
    // A text with very many clauses in one query is nobody's.
    let mut steps = 100_000 + 20 * tokens.len();
    let mut at = 0;
    while at < tokens.len() && steps > 0 {
        let begun = at;
        at += 1;
        if !is_clause(tokens, begun) {
            continue;
        }
        let is_limit = |at: usize| ["limit", "offset", "fetch"].iter().any(|word| is_word(&tokens[at].token, word));
        let limit = place(tokens, begun, &mut steps, is_limit);
        if limit == tokens.len() || !is_limit(limit) {
            continue;
        }
        let end = place(tokens, limit, &mut steps, |at| is_clause(tokens, at));
        // What was one word each stays so.
        tokens[begun..end].rotate_left(limit - begun);
        at = end;
    }
}

/// The tokens of a text, with its clauses marked.
///
/// # Errors
/// 42601 where a relation after OF is named with its schema.
pub(super) fn marked(mut tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>, SqlError> {
    if !(0..tokens.len()).any(|at| is_clause(&tokens, at)) {
        return Ok(tokens);
    }
    limited_before(&mut tokens);
    let mut marked = Vec::with_capacity(tokens.len() + 8);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        marked.push(token.clone());
        at += 1;
        if !is_word(&token.token, "for") {
            continue;
        }
        let Some((lock, end)) = lock_at(&tokens, at) else { continue };
        let names = names_at(&tokens, end, lock)?;
        let of_marked = names.is_none() && significant(&tokens, end).next().is_some_and(|(_, it)| is_word(it, "of"));
        if of_marked {
            continue;
        }
        let (names, end) = names.unwrap_or((Vec::new(), end));
        let mark = Token::make_word(&format!("{MARK}{}", lock as u8), Some('"'));
        let added = [Token::make_keyword("UPDATE"), Token::make_keyword("OF"), mark];
        let names = names.into_iter().flat_map(|name| [Token::Period, name]);
        // A blank between what would be one word.
        marked.extend(added.into_iter().chain(names).map(|it| TokenWithSpan::new(it, token.span)));
        at = end;
    }
    Ok(marked)
}
