//! How long the chains of operators in a text are, before it is parsed.

use sqlparser::{
    keywords::Keyword,
    tokenizer::{Token, TokenWithSpan},
};

/// The longest chains of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chains {
    /// Conditions joined by AND and OR.
    pub conditions: usize,
    /// Other operators, and whatever else is applied to what stands before it.
    pub operators: usize,
    /// Queries joined by UNION, INTERSECT and EXCEPT.
    pub queries: usize,
    /// How many statements and queries there are in all, chained or not.
    pub parts: usize,
    /// How deep brackets and CASEs are within one another, or how many signs and NOTs follow one
    /// another.
    pub depth: usize,
}

/// What is counted between two brackets.
#[derive(Default)]
struct Level {
    now: Chains,
    /// BETWEENs whose AND is still to come.
    between: usize,
    /// It is a CASE, which END closes.
    case: bool,
}

/// Finds the longest chains. A chain is counted as longer than it is rather than as shorter.
pub fn chains(tokens: &[TokenWithSpan]) -> Chains {
    let mut longest = Chains::default();
    let mut levels = vec![Level::default()];
    let mut before = Keyword::NoKeyword;
    let (mut parts, mut depth, mut signs) = (0, 0, 0);
    for token in tokens {
        if matches!(token.token, Token::Whitespace(_)) {
            continue;
        }
        let mut opens = None;
        let mut closes = false;
        if let Some(level) = levels.last_mut() {
            let keyword = match &token.token {
                Token::Word(word) => word.keyword,
                _ => Keyword::NoKeyword,
            };
            parts += usize::from(matches!(
                (&token.token, keyword),
                (Token::SemiColon, _) | (_, Keyword::SELECT | Keyword::VALUES | Keyword::TABLE | Keyword::WITH)
            ));
            let is_sign = keyword == Keyword::NOT || matches!(token.token, Token::Minus | Token::Plus);
            signs = if is_sign { signs + 1 } else { 0 };
            depth = depth.max(signs);
            let now = &mut level.now;
            match (&token.token, keyword) {
                (Token::SemiColon, _) => (level.now, level.between) = (Chains::default(), 0),
                (Token::Comma, _) => (now.conditions, now.operators, level.between) = (0, 0, 0),
                (Token::LParen, _) => opens = Some(false),
                (Token::LBracket | Token::LBrace, _) => {
                    now.operators += 1;
                    opens = Some(false);
                }
                (Token::RParen | Token::RBracket | Token::RBrace, _) => closes = true,
                (_, Keyword::CASE) => opens = Some(true),
                (_, Keyword::END) => closes = level.case,
                (_, Keyword::AND) if level.between > 0 => level.between -= 1,
                (_, Keyword::AND | Keyword::OR) => {
                    now.conditions += 1;
                    (now.operators, level.between) = (0, 0);
                }
                (_, Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT) => {
                    now.queries += 1;
                    (now.conditions, now.operators, level.between) = (0, 0, 0);
                }
                (_, Keyword::FROM) if before == Keyword::DISTINCT => {}
                (
                    _,
                    Keyword::WHEN
                    | Keyword::THEN
                    | Keyword::ELSE
                    | Keyword::SELECT
                    | Keyword::FROM
                    | Keyword::WHERE
                    | Keyword::GROUP
                    | Keyword::ORDER
                    | Keyword::HAVING
                    | Keyword::SET
                    | Keyword::VALUES
                    | Keyword::RETURNING
                    | Keyword::JOIN
                    | Keyword::ON
                    | Keyword::LIMIT,
                ) => (now.conditions, now.operators, level.between) = (0, 0, 0),
                (
                    _,
                    Keyword::IS
                    | Keyword::NOTNULL
                    | Keyword::IN
                    | Keyword::LIKE
                    | Keyword::ILIKE
                    | Keyword::SIMILAR
                    | Keyword::COLLATE
                    | Keyword::AT
                    | Keyword::OVERLAPS
                    | Keyword::OPERATOR,
                ) => now.operators += 1,
                (_, Keyword::BETWEEN) => {
                    now.operators += 1;
                    level.between += 1;
                }
                (
                    Token::Word(_)
                    | Token::Number(..)
                    | Token::SingleQuotedString(_)
                    | Token::EscapedStringLiteral(_)
                    | Token::DollarQuotedString(_)
                    | Token::Placeholder(_)
                    | Token::Period
                    | Token::EOF,
                    _,
                ) => {}
                // Signs.
                _ => now.operators += 1,
            }
            before = keyword;
            longest = Chains {
                conditions: longest.conditions.max(level.now.conditions),
                operators: longest.operators.max(level.now.operators),
                queries: longest.queries.max(level.now.queries),
                parts,
                depth,
            };
        }
        if let Some(case) = opens {
            levels.push(Level { case, ..Level::default() });
            depth = depth.max(levels.len());
        }
        if closes && levels.len() > 1 {
            // A CASE without an end does not outlive its parentheses.
            let parenthesis = !matches!(&token.token, Token::Word(_));
            while parenthesis && levels.len() > 2 && levels.last().is_some_and(|level| level.case) {
                levels.pop();
            }
            levels.pop();
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sql: &str) -> (usize, usize, usize) {
        let found = chains(&super::super::tokens(sql, None, |_| Ok(())).unwrap());
        (found.conditions, found.operators, found.queries)
    }

    #[test]
    fn chains_are_counted_within_brackets() {
        assert_eq!(of("SELECT a + b * c, d + e FROM t"), (0, 2, 0));
        assert_eq!(of("SELECT 1 WHERE a = 1 AND b = 2 OR c = 3 + 4"), (2, 2, 0));
        assert_eq!(of("SELECT (a + b) + (c + d + e + f)"), (0, 3, 0));
        assert_eq!(of("SELECT 1 UNION SELECT 2 + 3 EXCEPT SELECT 4"), (0, 1, 2));
        assert_eq!(of("SELECT a::int::text[][] IS NULL IS NULL"), (0, 6, 0));
        let sql = "INSERT INTO t VALUES (-1, -2), (-3, -4); SELECT - 1";
        assert_eq!(of(sql), (0, 1, 0));
        assert_eq!(chains(&super::super::tokens(sql, None, |_| Ok(())).unwrap()).parts, 3);
    }

    #[test]
    fn and_within_between_joins_nothing() {
        assert_eq!(of("SELECT a BETWEEN 1 AND 2 BETWEEN 3 AND 4 AND b"), (1, 2, 0));
    }

    #[test]
    fn what_looks_like_an_end_is_none() {
        // The chain continues after a CASE, and after IS DISTINCT FROM.
        assert_eq!(of("SELECT CASE WHEN a = 1 THEN 1 END + CASE WHEN a = 1 THEN 1 ELSE 2 END + 1"), (0, 2, 0));
        assert_eq!(of("SELECT a IS DISTINCT FROM b IS DISTINCT FROM c"), (0, 2, 0));
        assert_eq!(of("SELECT (CASE WHEN a) + (CASE + b) + c"), (0, 2, 0));
        assert_eq!(of(") END ) ] ; END"), (0, 0, 0));
    }

    #[test]
    fn depth_is_that_of_brackets_or_of_signs() {
        let depth = |sql| chains(&super::super::tokens(sql, None, |_| Ok(())).unwrap()).depth;
        assert_eq!(depth("SELECT 1"), 0);
        assert_eq!(depth("SELECT ((1), CASE WHEN (a) THEN 1 END)"), 4);
        assert_eq!(depth("SELECT NOT NOT NOT a, - + 1"), 3);
    }
}
