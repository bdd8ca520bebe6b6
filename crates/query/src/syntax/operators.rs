//! PostgreSQL's operators, where the parser's own rules are others: how strong they are, what
//! stands on their right, and which of them cannot follow one another.
//!
//! | from weak to strong | several in a row |
//! |---|---|
//! | OR | from the left |
//! | AND | from the left |
//! | NOT | |
//! | IS, ISNULL, NOTNULL | an error |
//! | < > = <= >= <> | an error |
//! | BETWEEN, IN, LIKE, ILIKE, SIMILAR | an error |
//! | all other operators, also those before their operand | from the left |
//! | + - | from the left |
//! | * / % | from the left |
//! | ^ | from the left |
//! | AT TIME ZONE | from the left |
//! | COLLATE | |
//! | + - before their operand | |
//! | [ ] | |
//! | :: | from the left |
//! | . | |
//!
//! What ends in a word or a bracket, such as IS NULL or IN (…), can be followed by any operator.

use sqlparser::{
    ast::{BinaryOperator, Expr, UnaryOperator},
    dialect::{Dialect, Precedence},
    keywords::Keyword,
    parser::{Parser, ParserError},
    tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer},
};

use super::{INNER, step};

/// Signs before their operand: stronger than COLLATE, weaker than a subscript.
const SIGN: u8 = 125;

fn strength(precedence: Precedence) -> u8 {
    INNER.prec_value(precedence)
}

fn keyword(token: &Token) -> Keyword {
    match token {
        Token::Word(word) => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

/// ISNULL is no keyword of the parser.
fn is_isnull(token: &Token) -> bool {
    super::is_word(token, "isnull")
}

/// How strong the operator is that comes next, where that is not as the parser has it.
pub(super) fn next_strength(parser: &Parser<'_>) -> Option<u8> {
    let token = &parser.peek_token_ref().token;
    let found = match token {
        Token::Tilde
        | Token::TildeAsterisk
        | Token::ExclamationMarkTilde
        | Token::ExclamationMarkTildeAsterisk
        | Token::DoubleTilde
        | Token::DoubleTildeAsterisk
        | Token::ExclamationMarkDoubleTilde
        | Token::ExclamationMarkDoubleTildeAsterisk
        | Token::Spaceship
        | Token::DoubleEq => strength(Precedence::PgOther),
        Token::Assignment => 0,
        Token::Word(_) if is_isnull(token) => strength(Precedence::Is),
        token => match keyword(token) {
            Keyword::OPERATOR => strength(Precedence::PgOther),
            // These are names.
            Keyword::XOR | Keyword::DIV | Keyword::RLIKE | Keyword::REGEXP | Keyword::MATCH | Keyword::MEMBER => 0,
            Keyword::NOT if keyword(&parser.peek_nth_token_ref(1).token) == Keyword::NULL => 0,
            _ => return None,
        },
    };
    Some(found)
}

/// The same tokens, where signs that end an operator are operators of their own: `>=-` is `>=` and
/// `-`. They belong to it if it has a sign that PostgreSQL's own operators do not begin with.
pub(super) fn split(read: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let splits = |token: &Token| match token {
        Token::CustomBinaryOperator(op) => {
            op.len() > 1 && op.ends_with(['+', '-']) && !op.contains(['~', '!', '@', '#', '^', '&', '|', '`', '?', '%'])
        }
        _ => false,
    };
    if !read.iter().any(|token| splits(&token.token)) {
        return read;
    }
    let mut tokens = Vec::with_capacity(read.len() + 1);
    for token in read {
        let Token::CustomBinaryOperator(op) = &token.token else {
            tokens.push(token);
            continue;
        };
        if !splits(&token.token) {
            tokens.push(token);
            continue;
        }
        // Where nothing but signs is left, the first is an operator as well.
        let mut parts = vec![op.trim_end_matches(['+', '-'])];
        parts.extend(op[parts[0].len()..].split_inclusive(['+', '-']));
        let mut start = token.span.start;
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let known = Tokenizer::new(&super::PostgreSql, part).tokenize();
            let known = known.ok().filter(|known| known.len() == 1).and_then(|mut known| known.pop());
            let end = Location::new(start.line, start.column + part.len() as u64);
            let known = known.unwrap_or_else(|| Token::CustomBinaryOperator(part.to_owned()));
            tokens.push(TokenWithSpan::new(known, Span::new(start, end)));
            start = end;
        }
    }
    tokens
}

/// Something before its operand.
pub(super) fn prefix(parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
    let token = &parser.peek_token_ref().token;
    let (op, strength) = match token {
        Token::Minus => (UnaryOperator::Minus, SIGN),
        Token::Plus => (UnaryOperator::Plus, SIGN),
        Token::AtSign => (UnaryOperator::PGAbs, strength(Precedence::PgOther)),
        Token::Tilde => (UnaryOperator::BitwiseNot, strength(Precedence::PgOther)),
        Token::PGSquareRoot => (UnaryOperator::PGSquareRoot, strength(Precedence::PgOther)),
        Token::PGCubeRoot => (UnaryOperator::PGCubeRoot, strength(Precedence::PgOther)),
        Token::DoubleExclamationMark => (UnaryOperator::PGPrefixFactorial, strength(Precedence::PgOther)),
        token if keyword(token) == Keyword::NOT => (UnaryOperator::Not, strength(Precedence::UnaryNot)),
        _ => return None,
    };
    parser.advance_token();
    Some(parser.parse_subexpr(strength).map(|operand| match (op, operand) {
        (UnaryOperator::Not, Expr::Exists { subquery, negated: false }) => Expr::Exists { subquery, negated: true },
        (op, operand) => Expr::UnaryOp { op, expr: Box::new(operand) },
    }))
}

/// Something behind `left`, where the parser's own rules are others.
///
/// What is on the left is copied. It can be long only where operators of one strength follow one
/// another, and those that are read here cannot, or where it ends in a word or a bracket: such
/// chains are short (see [`super::chains`]).
pub(super) fn infix(parser: &mut Parser<'_>, left: &Expr) -> Option<Result<Expr, ParserError>> {
    let token = parser.peek_token_ref().token.clone();
    let comparison = match &token {
        Token::Eq => Some(BinaryOperator::Eq),
        Token::Neq => Some(BinaryOperator::NotEq),
        Token::Lt => Some(BinaryOperator::Lt),
        Token::LtEq => Some(BinaryOperator::LtEq),
        Token::Gt => Some(BinaryOperator::Gt),
        Token::GtEq => Some(BinaryOperator::GtEq),
        _ => None,
    };
    if let Some(op) = comparison {
        let quantified =
            matches!(keyword(&parser.peek_nth_token_ref(1).token), Keyword::ANY | Keyword::ALL | Keyword::SOME);
        return (!quantified).then(|| compared(parser, left, op));
    }
    match &token {
        // Operators that there are not, rather than what another database takes them for.
        Token::DoubleEq | Token::Spaceship | Token::ExclamationMark => {
            let op = BinaryOperator::Custom(token.to_string());
            parser.advance_token();
            let right = parser.parse_subexpr(strength(Precedence::PgOther));
            return Some(right.map(|right| binary(left, op, right)));
        }
        token if is_isnull(token) => {
            parser.advance_token();
            return Some(Ok(Expr::IsNull(Box::new(left.clone()))));
        }
        _ => {}
    }
    match keyword(&token) {
        Keyword::COLLATE => {
            parser.advance_token();
            let collation = parser.parse_object_name(false);
            Some(collation.map(|collation| Expr::Collate { expr: Box::new(left.clone()), collation }))
        }
        Keyword::IS => distinct(parser, left),
        Keyword::OPERATOR => quantified(parser, left),
        Keyword::NOT | Keyword::BETWEEN | Keyword::LIKE | Keyword::ILIKE | Keyword::SIMILAR => matched(parser, left),
        _ => None,
    }
}

fn binary(left: &Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left.clone()), op, right: Box::new(right) }
}

fn compared(parser: &mut Parser<'_>, left: &Expr, op: BinaryOperator) -> Result<Expr, ParserError> {
    parser.advance_token();
    Ok(binary(left, op, operand(parser, Precedence::Eq)?))
}

/// What is on the right of an operator that none of its strength can follow.
fn operand(parser: &mut Parser<'_>, precedence: Precedence) -> Result<Expr, ParserError> {
    let strength = strength(precedence);
    let operand = parser.parse_subexpr(strength)?;
    not_again(parser, strength)?;
    Ok(operand)
}

fn not_again(parser: &Parser<'_>, strength: u8) -> Result<(), ParserError> {
    if parser.get_next_precedence()? == strength {
        return parser.expected_ref("another operator, or parentheses", parser.peek_token_ref());
    }
    Ok(())
}

/// `OPERATOR(schema.=) ANY (…)`: the parser knows ANY behind signs only.
fn quantified(parser: &mut Parser<'_>, left: &Expr) -> Option<Result<Expr, ParserError>> {
    let token = |at: usize| &parser.peek_nth_token_ref(at).token;
    if *token(1) != Token::LParen {
        return None;
    }
    let (mut at, mut parts) = (2, Vec::new());
    loop {
        parts.push(token(at).to_string());
        match token(at + 1) {
            Token::Period => at += 2,
            Token::RParen => break,
            _ => return None,
        }
    }
    let word = keyword(token(at + 2));
    if !matches!(word, Keyword::ANY | Keyword::ALL | Keyword::SOME) || *token(at + 3) != Token::LParen {
        return None;
    }
    (0..at + 3).for_each(|_| parser.advance_token());
    // The parentheses are those of a subquery, or stand around an expression.
    let right = parser.parse_prefix();
    Some(right.map(|right| {
        let right = match right {
            Expr::Nested(inner) => inner,
            other => Box::new(other),
        };
        let (left, compare_op) = (Box::new(left.clone()), BinaryOperator::PGCustomBinaryOperator(parts));
        match word {
            Keyword::ALL => Expr::AllOp { left, compare_op, right },
            _ => Expr::AnyOp { left, compare_op, right, is_some: word == Keyword::SOME },
        }
    }))
}

/// `IS [NOT] DISTINCT FROM`
fn distinct(parser: &mut Parser<'_>, left: &Expr) -> Option<Result<Expr, ParserError>> {
    let negated = keyword(&parser.peek_nth_token_ref(1).token) == Keyword::NOT;
    let at = 1 + usize::from(negated);
    if keyword(&parser.peek_nth_token_ref(at).token) != Keyword::DISTINCT
        || keyword(&parser.peek_nth_token_ref(at + 1).token) != Keyword::FROM
    {
        return None;
    }
    (0..at + 2).for_each(|_| parser.advance_token());
    Some(operand(parser, Precedence::Is).map(|right| {
        let (left, right) = (Box::new(left.clone()), Box::new(right));
        if negated { Expr::IsNotDistinctFrom(left, right) } else { Expr::IsDistinctFrom(left, right) }
    }))
}

/// `[NOT] BETWEEN`, `[NOT] LIKE` and its like.
fn matched(parser: &mut Parser<'_>, left: &Expr) -> Option<Result<Expr, ParserError>> {
    let negated = keyword(&parser.peek_token_ref().token) == Keyword::NOT;
    let word = keyword(&parser.peek_nth_token_ref(usize::from(negated)).token);
    if !matches!(word, Keyword::BETWEEN | Keyword::LIKE | Keyword::ILIKE | Keyword::SIMILAR) {
        return None;
    }
    (0..=usize::from(negated)).for_each(|_| parser.advance_token());
    if word == Keyword::BETWEEN {
        return Some(between(parser, left, negated));
    }
    if word == Keyword::SIMILAR
        && let Err(error) = parser.expect_keyword_is(Keyword::TO)
    {
        return Some(Err(error));
    }
    Some(like(parser, left, negated, word))
}

fn like(parser: &mut Parser<'_>, left: &Expr, negated: bool, word: Keyword) -> Result<Expr, ParserError> {
    let any = word != Keyword::SIMILAR && parser.parse_keyword(Keyword::ANY);
    let expr = Box::new(left.clone());
    let strength = strength(Precedence::Like);
    let pattern = Box::new(parser.parse_subexpr(strength)?);
    let escape_char = parser.parse_escape_char()?;
    if !any {
        not_again(parser, strength)?;
    }
    Ok(match word {
        Keyword::LIKE => Expr::Like { negated, any, expr, pattern, escape_char },
        Keyword::ILIKE => Expr::ILike { negated, any, expr, pattern, escape_char },
        _ => Expr::SimilarTo { negated, expr, pattern, escape_char },
    })
}

/// The rest of `[NOT] BETWEEN`. Its first bound ends at AND, and may be a comparison.
fn between(parser: &mut Parser<'_>, left: &Expr, negated: bool) -> Result<Expr, ParserError> {
    let symmetric = parser.parse_keyword(Keyword::SYMMETRIC);
    if !symmetric {
        let _ = parser.parse_keyword(Keyword::ASYMMETRIC);
    }
    let low = Box::new(parser.parse_subexpr(strength(Precedence::UnaryNot))?);
    parser.expect_keyword_is(Keyword::AND)?;
    let high = Box::new(operand(parser, Precedence::Between)?);
    let expr = Box::new(left.clone());
    let one = Expr::Between { expr, negated, low, high };
    if !symmetric {
        return Ok(one);
    }
    // As PostgreSQL does it: in either order. Copies within copies count as steps.
    let mut other = counted(&one);
    if let Expr::Between { low, high, .. } = &mut other {
        std::mem::swap(low, high);
    }
    let op = if negated { BinaryOperator::And } else { BinaryOperator::Or };
    let (one, other) = (Box::new(Expr::Nested(Box::new(one))), Box::new(Expr::Nested(Box::new(other))));
    Ok(Expr::Nested(Box::new(Expr::BinaryOp { left: one, op, right: other })))
}

/// A copy; each part is a step.
fn counted(expr: &Expr) -> Expr {
    let _ = sqlparser::ast::visit_expressions(expr, |_| {
        step();
        std::ops::ControlFlow::<()>::Continue(())
    });
    expr.clone()
}
