//! The syntax that is understood: PostgreSQL's, as far as sqlparser knows it, with bounds for what
//! parsing may take.
//!
//! The parser tries alternatives one after another and goes back when one has failed. Within one
//! another these tries multiply: a hundred bytes can keep it busy for years. So its steps are
//! counted, and when they are far more than the text should need, parsing ends. The parser asks its
//! dialect at every step, which is where they are counted; since most of these questions cannot be
//! answered by an error, it is left by unwinding, which is no panic: nothing is reported.
//!
//! How deep statements may be nested is bounded by the parser itself. What it does not bound are
//! chains, `a + b + c …`, whose tree is as deep as they are long: see [`chains`].

use std::{
    any::TypeId,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use freshet_sql::{SqlError, SqlState, work};
use sqlparser::{
    ast::{Expr, Interval, Join, JoinConstraint, JoinOperator, Query},
    dialect::{Dialect, PostgreSqlDialect, Precedence},
    keywords::{Keyword, RESERVED_FOR_COLUMN_ALIAS},
    parser::{Parser, ParserError},
    tokenizer::{Token, TokenWithSpan, Tokenizer},
};

use crate::bind::syntax_error;

mod balance;
mod chains;
mod conflict;
pub mod current;
mod joins;
mod literals;
pub mod locking;
mod operators;
mod parentheses;
mod rows;

pub use balance::balance;
use chains::chains;
pub use conflict::CONFLICT_TARGET;
use literals::Masked;
pub use literals::Rules;

/// Steps that a text may take beyond those that its length is worth.
const FREE_STEPS: u64 = 50_000;
/// Steps that each of its tokens is worth.
const STEPS: u64 = 10;

const INNER: PostgreSqlDialect = PostgreSqlDialect {};

thread_local! {
    /// The steps that are left to the text that this thread parses.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Why parsing is left.
enum Left {
    /// It has taken too long.
    TooLong,
    /// The statement is to end, or may not take what it would.
    Refused(SqlError),
}

/// What a join is by, where its kind can have that.
pub fn constraint_of(join: &Join) -> Option<&JoinConstraint> {
    match &join.join_operator {
        JoinOperator::Join(it)
        | JoinOperator::Inner(it)
        | JoinOperator::Left(it)
        | JoinOperator::LeftOuter(it)
        | JoinOperator::Right(it)
        | JoinOperator::RightOuter(it)
        | JoinOperator::FullOuter(it) => Some(it),
        _ => None,
    }
}

/// The error 54001: the statement is nested too deeply, or is too long.
fn too_complex(why: &'static str) -> SqlError {
    SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, why)
}

/// Parses something of this many tokens, by parsers with the dialect [`PostgreSql`].
///
/// # Errors
/// What `parse` returns; 54001 when it takes too many steps.
fn bounded<T>(tokens: usize, parse: impl FnOnce() -> Result<T, SqlError>) -> Result<T, SqlError> {
    if LEFT.get().is_some() {
        return parse();
    }
    /// However parsing ends.
    struct Counting;
    impl Drop for Counting {
        fn drop(&mut self) {
            LEFT.set(None);
        }
    }
    LEFT.set(Some(FREE_STEPS + STEPS * tokens as u64));
    let counting = Counting;
    let parsed = unless_left(parse);
    drop(counting);
    match parsed {
        Ok(parsed) => parsed,
        Err(Left::TooLong) => Err(too_complex("the statement is too complex: it takes too long to be parsed")),
        Err(Left::Refused(error)) => Err(error),
    }
}

/// Does something, which may be left by [`leave`].
fn unless_left<T>(work: impl FnOnce() -> T) -> Result<T, Left> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| match payload.downcast::<Left>() {
        Ok(left) => *left,
        Err(payload) => resume_unwind(payload),
    })
}

fn leave(why: Left) -> ! {
    resume_unwind(Box::new(why))
}

/// Counts a step.
fn step() {
    match LEFT.get() {
        None => return,
        Some(0) => leave(Left::TooLong),
        Some(left) => LEFT.set(Some(left - 1)),
    }
    work::done(4).unwrap_or_else(|error| leave(Left::Refused(error)));
}

/// PostgreSQL's dialect.
#[derive(Clone, Copy, Debug)]
pub struct PostgreSql;

impl Dialect for PostgreSql {
    fn dialect(&self) -> TypeId {
        INNER.dialect()
    }

    fn prec_unknown(&self) -> u8 {
        step();
        INNER.prec_unknown()
    }

    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        step();
        precise_interval(parser).or_else(|| operators::prefix(parser)).or_else(|| literals::typed(parser))
    }

    fn parse_infix(&self, parser: &mut Parser<'_>, left: &Expr, _: u8) -> Option<Result<Expr, ParserError>> {
        operators::infix(parser, left)
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        INNER.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        INNER.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        INNER.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        INNER.is_identifier_part(ch)
    }

    fn supports_unicode_string_literal(&self) -> bool {
        INNER.supports_unicode_string_literal()
    }

    fn is_reserved_for_identifier(&self, kw: Keyword) -> bool {
        INNER.is_reserved_for_identifier(kw)
    }

    /// ON and FOR need AS before them to be names: in `INSERT … SELECT 1 ON CONFLICT` it is none.
    fn is_column_alias(&self, kw: &Keyword, _: &mut Parser<'_>) -> bool {
        !matches!(kw, Keyword::ON | Keyword::FOR) && !RESERVED_FOR_COLUMN_ALIAS.contains(kw)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        INNER.is_custom_operator_part(ch)
    }

    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        operators::next_strength(parser).map(Ok).or_else(|| INNER.get_next_precedence(parser))
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        INNER.supports_filter_during_aggregation()
    }

    fn supports_group_by_expr(&self) -> bool {
        INNER.supports_group_by_expr()
    }

    fn prec_value(&self, prec: Precedence) -> u8 {
        INNER.prec_value(prec)
    }

    fn allow_extract_custom(&self) -> bool {
        INNER.allow_extract_custom()
    }

    fn allow_extract_single_quotes(&self) -> bool {
        INNER.allow_extract_single_quotes()
    }

    fn supports_create_index_with_clause(&self) -> bool {
        INNER.supports_create_index_with_clause()
    }

    fn supports_explain_with_utility_options(&self) -> bool {
        INNER.supports_explain_with_utility_options()
    }

    fn supports_listen_notify(&self) -> bool {
        INNER.supports_listen_notify()
    }

    fn supports_factorial_operator(&self) -> bool {
        INNER.supports_factorial_operator()
    }

    fn supports_bitwise_shift_operators(&self) -> bool {
        INNER.supports_bitwise_shift_operators()
    }

    fn supports_comment_on(&self) -> bool {
        INNER.supports_comment_on()
    }

    fn supports_load_extension(&self) -> bool {
        INNER.supports_load_extension()
    }

    fn supports_named_fn_args_with_colon_operator(&self) -> bool {
        INNER.supports_named_fn_args_with_colon_operator()
    }

    // PostgreSQL's arguments have names, and no expressions: to look for these, the parser reads
    // each argument twice, and at each level of calls again.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    fn supports_named_fn_args_with_assignment_operator(&self) -> bool {
        true
    }

    fn supports_empty_projections(&self) -> bool {
        INNER.supports_empty_projections()
    }

    fn supports_nested_comments(&self) -> bool {
        INNER.supports_nested_comments()
    }

    fn supports_string_escape_constant(&self) -> bool {
        INNER.supports_string_escape_constant()
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        INNER.supports_numeric_literal_underscores()
    }

    fn supports_array_typedef_with_brackets(&self) -> bool {
        INNER.supports_array_typedef_with_brackets()
    }

    fn supports_geometric_types(&self) -> bool {
        INNER.supports_geometric_types()
    }

    fn supports_set_names(&self) -> bool {
        INNER.supports_set_names()
    }

    fn supports_alter_column_type_using(&self) -> bool {
        INNER.supports_alter_column_type_using()
    }

    fn supports_notnull_operator(&self) -> bool {
        INNER.supports_notnull_operator()
    }

    fn supports_interval_options(&self) -> bool {
        INNER.supports_interval_options()
    }

    fn supports_insert_table_alias(&self) -> bool {
        INNER.supports_insert_table_alias()
    }

    fn supports_create_table_like_parenthesized(&self) -> bool {
        INNER.supports_create_table_like_parenthesized()
    }

    fn supports_select_wildcard_with_alias(&self) -> bool {
        INNER.supports_select_wildcard_with_alias()
    }

    fn supports_comma_separated_trim(&self) -> bool {
        INNER.supports_comma_separated_trim()
    }

    fn supports_select_expr_star(&self) -> bool {
        true
    }

    fn supports_xml_expressions(&self) -> bool {
        INNER.supports_xml_expressions()
    }

    fn supports_comment_optimizer_hint(&self) -> bool {
        INNER.supports_comment_optimizer_hint()
    }
}

/// No chain of conditions may be longer.
const CONDITIONS: usize = 10_000;
/// Nor one of other operators: no plan would have as many within one another.
const OPERATORS: usize = 400;
/// Nor one of queries.
const QUERIES: usize = 400;
/// What is deeper than this may be too deep for the parser.
const DEEP: usize = 40;
/// No text may have more statements and queries: each takes some kilobytes.
const PARTS: usize = 30_000;
/// Nor more tokens, blanks among them: each takes some hundred bytes.
const TOKENS: usize = 4_000_000;
/// What each takes, with the syntax and the plan that are made of it: measured with long lists of
/// values, which have the most plan for their tokens.
const TOKEN_BYTES: usize = 640;
/// This many are counted together: a statement of fewer costs no more than a session does anyway.
const TOKENS_AT_A_TIME: usize = 500;
/// The bytes of a text count from this number on.
const LONG: usize = 64 << 10;

/// Reads a text whose chains are not too long.
///
/// # Errors
/// What `parse` returns; 42601 when there is something that is no token; 54001.
pub fn read<T>(sql: &str, parse: impl FnOnce(&mut Parser<'_>) -> Result<T, SqlError>) -> Result<T, SqlError> {
    read_within(sql, |_| Ok(()), Rules::default(), &mut Remarks::default(), parse)
}

/// What is to be said of a text that can be read.
#[derive(Debug, Default)]
pub struct Remarks {
    /// The names that were too long, which are cut.
    pub clipped: Vec<String>,
    /// Warnings, about its literals.
    pub warnings: Vec<SqlError>,
}

/// The same, by a client's leave: `take` is told of the bytes that the text takes until it is run,
/// before they are taken.
///
/// # Errors
/// As for [`read`], and those of `take`.
pub fn read_within<T>(
    sql: &str,
    take: impl FnMut(usize) -> Result<(), SqlError>,
    rules: Rules,
    remarks: &mut Remarks,
    parse: impl FnOnce(&mut Parser<'_>) -> Result<T, SqlError>,
) -> Result<T, SqlError> {
    let mut masked = literals::masked(sql, rules, &mut remarks.warnings)?;
    let mut tokens = tokens(sql, masked.as_mut(), take)?;
    tokens.iter_mut().for_each(|token| clip(token, &mut remarks.clipped));
    let chains = chains(&tokens);
    if chains.parts > PARTS {
        return Err(too_complex("the text is too long: it has too many statements and queries"));
    }
    if chains.conditions > CONDITIONS || chains.operators > OPERATORS || chains.queries > QUERIES {
        return Err(too_complex("the statement is too complex: too many operators follow one another"));
    }
    let parsed = bounded(tokens.len(), || parse(&mut Parser::new(&PostgreSql).with_tokens_with_locations(tokens)));
    // Where the parser has come too deep it may try something else, and complain of that.
    parsed.map_err(|error| match error.state {
        SqlState::SYNTAX_ERROR if chains.depth > DEEP => too_complex("the statement is nested too deep"),
        _ => error,
    })
}

/// What is wrong with a text, in PostgreSQL's words as far as the parser says enough; what it
/// expected is the detail.
pub fn wrong(error: ParserError, sql: &str) -> SqlError {
    let what = match error {
        ParserError::TokenizerError(what) | ParserError::ParserError(what) => what,
        ParserError::RecursionLimitExceeded => {
            return too_complex("the statement is nested too deep");
        }
    };
    let (what, place) = match what.rsplit_once(" at Line: ") {
        Some((what, place)) => {
            let place = place.split_once(", Column: ");
            (what, place.and_then(|(line, column)| Some((line.parse().ok()?, column.trim().parse().ok()?))))
        }
        None => (what.as_str(), None),
    };
    let error = match what.split_once(", found: ") {
        Some((expected, "EOF")) => syntax_error("syntax error at end of input").with_detail(format!("{expected}.")),
        Some((expected, found)) => {
            syntax_error(format!("syntax error at or near \"{found}\"")).with_detail(format!("{expected}."))
        }
        None => syntax_error(format!("syntax error: {what}")),
    };
    match place {
        Some((line, column)) => at(error, sql, line, column),
        None => error,
    }
}

/// The error, at a place in the text.
pub fn at(error: SqlError, sql: &str, line: u64, column: u64) -> SqlError {
    match position(sql, line, column) {
        Some(position) => error.with_position(position),
        None => error,
    }
}

/// Which character of a text this is, from 1; lines and columns count from 1, too.
fn position(sql: &str, line: u64, column: u64) -> Option<u32> {
    let before = usize::try_from(line.checked_sub(1)?).ok()?;
    let lines: usize = sql.split_inclusive('\n').take(before).map(|line| line.chars().count()).sum();
    u32::try_from(lines as u64 + column).ok()
}

/// The error for a text of the catalog that cannot be read: it is damaged, or nested deeper than it
/// was when it was written.
pub fn unreadable(sql: &str, cause: SqlError) -> SqlError {
    match cause.state {
        SqlState::STATEMENT_TOO_COMPLEX | SqlState::QUERY_CANCELED | SqlState::ADMIN_SHUTDOWN => cause,
        _ => SqlError::internal(format!("the catalog has a text that cannot be read, {sql:?}: {cause}")),
    }
}

/// Reads a text at which a parser stands, in quotes or between dollars.
///
/// # Errors
/// When none exists.
pub fn text(parser: &mut Parser<'_>) -> Result<String, ParserError> {
    match &parser.peek_token_ref().token {
        Token::SingleQuotedString(text) => {
            let text = text.clone();
            parser.advance_token();
            Ok(text)
        }
        Token::DollarQuotedString(text) => {
            let text = text.value.clone();
            parser.advance_token();
            Ok(text)
        }
        _ => parser.expected("a text", parser.peek_token()),
    }
}

/// Reads a query at which a parser stands.
///
/// # Errors
/// When none exists.
pub fn parse_query(parser: &mut Parser<'_>) -> Result<Box<Query>, ParserError> {
    let mut query = parser.parse_query()?;
    balance(&mut *query);
    Ok(query)
}

/// Reads an expression at which a parser stands.
///
/// # Errors
/// When none exists.
pub fn parse_expression(parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
    let mut expression = parser.parse_expr()?;
    balance(&mut expression);
    Ok(expression)
}

/// Reads a query that was kept as a text.
///
/// # Errors
/// When it is none.
pub fn query(sql: &str) -> Result<Box<Query>, SqlError> {
    read(sql, |parser| parse_query(parser).map_err(|error| wrong(error, sql)))
}

/// Reads an expression that was kept as a text.
///
/// # Errors
/// When it is none.
pub fn expression(sql: &str) -> Result<Expr, SqlError> {
    read(sql, |parser| parse_expression(parser).map_err(|error| wrong(error, sql)))
}

/// As much of a name as names can have: 63 bytes, and no part of a character.
pub fn clipped(name: &str) -> &str {
    const LONGEST: usize = 63;
    let end = name.char_indices().map(|(at, character)| at + character.len_utf8());
    &name[..end.take_while(|end| *end <= LONGEST).last().unwrap_or(0)]
}

/// Cuts a name that is too long, and notes it.
fn clip(token: &mut TokenWithSpan, noted: &mut Vec<String>) {
    /// More notices are of no use to anybody.
    const MOST: usize = 100;
    let Token::Word(word) = &mut token.token else { return };
    let length = clipped(&word.value).len();
    if length < word.value.len() {
        if noted.len() < MOST {
            noted.push(word.value.clone());
        }
        word.value.truncate(length);
    }
}

/// The tokens of a text, whose literals may be masked.
///
/// # Errors
/// 42601 when it has something that is no token, 54001 when there are too many, and those of
/// `take`.
fn tokens(
    sql: &str,
    masked: Option<&mut Masked>,
    mut take: impl FnMut(usize) -> Result<(), SqlError>,
) -> Result<Vec<TokenWithSpan>, SqlError> {
    let mut tokens = Vec::new();
    let mut left = TOKENS;
    // Long literals are in tokens, and in the syntax that is made of them.
    take(if sql.len() < LONG { 0 } else { sql.len() })?;
    let read = unless_left(|| {
        let count = |token| {
            left = left.checked_sub(1).unwrap_or_else(|| leave(Left::TooLong));
            let taken = if left.is_multiple_of(TOKENS_AT_A_TIME) {
                take(TOKENS_AT_A_TIME * TOKEN_BYTES).and_then(|()| work::done(8))
            } else {
                work::done(8)
            };
            taken.unwrap_or_else(|error| leave(Left::Refused(error)));
            token
        };
        let text = masked.as_ref().map_or(sql, |masked| &masked.text);
        Tokenizer::new(&PostgreSql, text).tokenize_with_location_into_buf_with_mapper(&mut tokens, count)
    });
    match read {
        Ok(Ok(())) => {
            if let Some(masked) = masked {
                tokens.iter_mut().for_each(|token| masked.unmask(token));
            }
            check_numbers(&tokens, sql)?;
            literals::check_neighbours(&tokens, sql)?;
            Ok(current::marked(locking::marked(spelt_out(operators::split(tokens)))?))
        }
        Ok(Err(error)) => Err(wrong(error.into(), sql)),
        Err(Left::TooLong) => Err(too_complex("the text is too long: it has too many words and signs")),
        Err(Left::Refused(error)) => Err(error),
    }
}

/// Fails where a word follows a number without a blank between them.
fn check_numbers(tokens: &[TokenWithSpan], sql: &str) -> Result<(), SqlError> {
    for (at, token) in tokens.iter().enumerate() {
        let start = token.span.start;
        let junk = match (&token.token, tokens.get(at + 1)) {
            (Token::Number(digits, _), Some(next)) => match &next.token {
                Token::Word(word) if word.quote_style.is_none() && next.span.start == token.span.end => {
                    format!("{digits}{}", word.value)
                }
                _ if digits.contains('_') => digits.clone(),
                _ => continue,
            },
            (Token::Number(digits, _), None) if digits.contains('_') => digits.clone(),
            // 0x1F, not x'1F'.
            (Token::HexStringLiteral(digits), _)
                if token.span.end.line == start.line
                    && token.span.end.column - start.column == digits.len() as u64 + 2 =>
            {
                format!("0x{digits}")
            }
            _ => continue,
        };
        let error = syntax_error(format!("trailing junk after numeric literal at or near \"{junk}\""));
        return Err(self::at(error, sql, start.line, start.column));
    }
    Ok(())
}

/// `INTERVAL(3) '…'`, if that comes next.
fn precise_interval(parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
    match &parser.peek_token_ref().token {
        Token::Word(word) if word.keyword == Keyword::INTERVAL => {}
        _ => return None,
    }
    let [_, open, digits, close, literal] = parser.peek_tokens();
    let (Token::LParen, Token::Number(digits, _), Token::RParen) = (open, digits, close) else { return None };
    if !matches!(literal, Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_)) {
        return None;
    }
    for _ in 0..4 {
        parser.advance_token();
    }
    Some(parser.parse_value().map(|value| {
        Expr::Interval(Interval {
            value: Box::new(Expr::Value(value)),
            leading_field: None,
            leading_precision: None,
            last_field: None,
            fractional_seconds_precision: Some(digits.parse().unwrap_or(u64::MAX)),
        })
    }))
}

/// Whether a token is this word, without quotes.
pub(crate) fn is_word(token: &Token, wanted: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

/// Whether a table's name comes next after this.
fn comes_before_table(token: &Token) -> bool {
    *token == Token::Comma || ["from", "join", "update"].iter().any(|word| is_word(token, word))
}

/// Whether what has been read ends where a query may begin, within a statement: behind AS, within
/// parentheses or behind them, as a part of UNION and the like, behind DECLARE … CURSOR FOR, or
/// behind the table of an INSERT.
fn begins_query(read: &[TokenWithSpan]) -> bool {
    let mut back = read.iter().rev().map(|token| &token.token).filter(|token| !matches!(token, Token::Whitespace(_)));
    let Some(last) = back.next() else { return false };
    let words = ["as", "union", "except", "intersect", "all", "distinct", "explain"];
    if matches!(last, Token::LParen | Token::RParen) || words.iter().any(|word| is_word(last, word)) {
        return true;
    }
    if is_word(last, "for") {
        return back.any(|token| is_word(token, "cursor"));
    }
    // INSERT INTO schema.name, or INSERT INTO name.
    let mut before = back.next();
    if before == Some(&Token::Period) {
        before = back.nth(1);
    }
    before.is_some_and(|token| is_word(token, "into")) && back.next().is_some_and(|token| is_word(token, "insert"))
}

/// Of `t.*`, before which something is said of the row, leaves `t`: the parser takes the rest for
/// the end of an entry of a list.
fn take_star(tokens: &mut Vec<TokenWithSpan>) {
    let seen = tokens.iter().rposition(|token| !matches!(token.token, Token::Whitespace(_))).map_or(0, |at| at + 1);
    if let [.., word, point, star] = &tokens[..seen]
        && matches!(word.token, Token::Word(_))
        && (&point.token, &star.token) == (&Token::Period, &Token::Mul)
    {
        tokens.drain(seen - 2..seen);
    }
}

/// Of `(t).*` in a list leaves `t.*`, which is the same: the parser knows no other star.
fn take_parentheses(tokens: &mut Vec<TokenWithSpan>) {
    let [.., open, word, close, point] = tokens.as_slice() else { return };
    let before = tokens[..tokens.len() - 4].iter().rev().find(|token| !matches!(token.token, Token::Whitespace(_)));
    let begins = before.is_some_and(|before| match &before.token {
        Token::Comma => true,
        Token::Word(word) => matches!(word.keyword, Keyword::SELECT | Keyword::DISTINCT | Keyword::RETURNING),
        _ => false,
    });
    if begins
        && matches!(word.token, Token::Word(_))
        && (&open.token, &close.token, &point.token) == (&Token::LParen, &Token::RParen, &Token::Period)
    {
        tokens.remove(tokens.len() - 2);
        tokens.remove(tokens.len() - 3);
    }
}

/// The same, with what the parser does not know spelt as it does: `TABLE name` where a query begins
/// is `SELECT * FROM name`, and `ONLY name` and `ONLY (name)` are `name`, since no
/// table has descendants. For OVERRIDING SYSTEM VALUE its INSERT has no place; such an INSERT gets
/// the mark OVERWRITE, and one with OVERRIDING USER VALUE the word TABLE, of other dialects.
fn spelt_out(read: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut tokens: Vec<TokenWithSpan> = Vec::with_capacity(read.len());
    let mut first = true;
    let mut before_table = false;
    // Within ONLY, and within its parentheses, whose end is left out, too.
    let (mut only, mut within) = (false, false);
    let mut overriding = false;
    for token in read {
        if matches!(token.token, Token::Whitespace(_)) {
            tokens.push(token);
            continue;
        }
        if is_word(&token.token, "table") && (first || begins_query(&tokens)) {
            let spelt = [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
            tokens.extend(spelt.into_iter().map(|spelt| TokenWithSpan::new(spelt, token.span)));
            (first, before_table) = (false, true);
            continue;
        }
        if before_table && is_word(&token.token, "only") {
            (only, before_table) = (true, false);
            continue;
        }
        if std::mem::take(&mut only) && token.token == Token::LParen {
            within = true;
            continue;
        }
        if within && token.token == Token::RParen {
            within = false;
            continue;
        }
        overriding |= is_word(&token.token, "overriding");
        if is_word(&token.token, "is") {
            take_star(&mut tokens);
        }
        if token.token == Token::Mul {
            take_parentheses(&mut tokens);
        }
        first = token.token == Token::SemiColon;
        before_table = comes_before_table(&token.token);
        tokens.push(token);
    }
    if overriding {
        tokens = mark_overriding(tokens);
    }
    joins::spelt_out(parentheses::spelt_out(conflict::spelt_out(tokens)))
}

/// Puts marks for OVERRIDING where the parser has a place for them.
fn mark_overriding(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let significant: Vec<usize> =
        (0..tokens.len()).filter(|place| !matches!(tokens[*place].token, Token::Whitespace(_))).collect();
    // Marks, before which token; and the tokens that they stand for.
    let (mut marks, mut gone) = (Vec::new(), Vec::new());
    // Where the last INSERT INTO has its INTO.
    let mut into = None;
    for (number, place) in significant.iter().enumerate() {
        let places = &significant[number..];
        let reads = |words: &[&str]| {
            words.len() <= places.len() && words.iter().zip(places).all(|(word, at)| is_word(&tokens[*at].token, word))
        };
        let is_overriding = is_word(&tokens[*place].token, "overriding");
        if reads(&["insert", "into"]) {
            into = Some(places[1]);
        } else if let Some(place) = into.filter(|_| is_overriding) {
            let (mark, before) = if reads(&["overriding", "system", "value"]) {
                (Token::make_keyword("OVERWRITE"), place)
            } else if reads(&["overriding", "user", "value"]) {
                (Token::make_keyword("TABLE"), place + 1)
            } else {
                continue;
            };
            marks.push((before, TokenWithSpan::new(mark, tokens[place].span)));
            gone.extend_from_slice(&places[..3]);
            into = None;
        }
    }
    replaced(tokens, marks, gone)
}

/// Tokens with others put before them, and without those that are `gone`; both are given by their
/// places, which ascend.
fn replaced(tokens: Vec<TokenWithSpan>, marks: Vec<(usize, TokenWithSpan)>, gone: Vec<usize>) -> Vec<TokenWithSpan> {
    let mut replaced = Vec::with_capacity(tokens.len() + marks.len());
    let (mut marks, mut gone) = (marks.into_iter().peekable(), gone.into_iter().peekable());
    for (place, token) in tokens.into_iter().enumerate() {
        while let Some((_, mark)) = marks.next_if(|(before, _)| *before == place) {
            replaced.push(mark);
        }
        if gone.next_if_eq(&place).is_none() {
            replaced.push(token);
        }
    }
    replaced
}
