//! Joins whose right side is a join without parentheses around it: `a JOIN b JOIN c ON p ON q` is
//! `a JOIN (b JOIN c ON p) ON q`.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{is_word, replaced};

/// A join whose condition has not come yet.
struct Open {
    /// Where its right side begins.
    right: usize,
    /// Whether that is a join.
    nests: bool,
}

/// The tokens, with these parentheses.
pub(super) fn spelt_out(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut marks = Vec::new();
    // Of each parenthesis that is open.
    let mut open: Vec<Vec<Open>> = vec![Vec::new()];
    let mut has_no_condition = false;
    for (place, TokenWithSpan { token, .. }) in tokens.iter().enumerate() {
        let is = |word| is_word(token, word);
        match token {
            Token::Whitespace(_) => continue,
            Token::LParen => open.push(Vec::new()),
            Token::RParen if open.len() > 1 => drop(open.pop()),
            Token::SemiColon => open = vec![Vec::new()],
            _ => {}
        }
        let Some(joins) = open.last_mut() else { break };
        if is("join") {
            if let Some(around) = joins.last_mut() {
                around.nests = true;
            }
            if !has_no_condition {
                joins.push(Open { right: place + 1, nests: false });
            }
        } else if (is("on") || is("using"))
            && let Some(join) = joins.pop()
            && join.nests
        {
            marks.extend([(join.right, Token::LParen), (place, Token::RParen)]);
        }
        let of_kind = ["left", "right", "full", "inner", "outer"].into_iter().any(is);
        has_no_condition = is("cross") || is("natural") || has_no_condition && of_kind;
    }
    if marks.is_empty() {
        return tokens;
    }
    marks.sort_by_key(|(place, _)| *place);
    let mark = |(place, mark): (usize, Token)| (place, TokenWithSpan::new(mark, tokens[place].span));
    let marks = marks.into_iter().map(mark).collect();
    replaced(tokens, marks, Vec::new())
}
