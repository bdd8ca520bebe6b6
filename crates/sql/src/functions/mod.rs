//! Operators and functions on values.
//!
//! Both are in one registry: an operator is a function whose name is made of signs. [`resolve`]
//! chooses among overloads as PostgreSQL does; the evaluator of expressions casts the arguments
//! to what was chosen and calls [`Function::call`]. What SQL writes in a syntax of its own goes by
//! these names:
//!
//! | SQL | here |
//! |---|---|
//! | `a LIKE b`, `NOT LIKE`, `ILIKE`, `NOT ILIKE` | `~~`, `!~~`, `~~*`, `!~~*`; with ESCAPE, the pattern goes through `like_escape` |
//! | `a SIMILAR TO b ESCAPE c` | `~`, `!~` with a pattern that goes through `similar_to_escape` |
//! | `EXTRACT(f FROM a)` | `extract(f, a)` |
//! | `SUBSTRING(a FROM b FOR c)`, `POSITION(a IN b)` | `substring(a, b, c)`, `position(b, a)` |
//! | `TRIM(LEADING / TRAILING / BOTH b FROM a)` | `ltrim`, `rtrim`, `btrim(a, b)` |
//! | `OVERLAY(a PLACING b FROM c FOR d)` | `overlay(a, b, c, d)` |
//! | `(a, b) OVERLAPS (c, d)` | `overlaps(a, b, c, d)` |
//! | `a AT TIME ZONE z` | `timezone(z, a)` |
//! | `a = ANY (b)`, `a <> ALL (b)` | [`any`], [`all`] with the operator's function |
//! | AND, OR, NOT, IS DISTINCT FROM | [`and`], [`or`], [`not`], [`is_distinct`] |
//! | COALESCE, NULLIF, GREATEST, LEAST | functions of these names; CASE and COALESCE should evaluate no more than they need |

mod arithmetic;
mod array;
mod bits;
mod bytes;
mod cast;
mod comparison;
mod compiled;
mod crypto;
mod datetime;
mod format_datetime;
mod format_number;
mod hash;
mod json;
mod json_change;
mod logic;
mod lsn;
mod math;
pub mod named;
mod network;
mod overlaps;
mod parse_datetime;
mod parse_number;
mod pattern;
mod posix;
mod quote;
mod regex;
mod regexp;
mod resolve;
mod session;
mod set;
mod similar;
mod string;
mod system;
mod trigonometry;

use std::{collections::HashMap, fmt, sync::OnceLock};

pub use logic::{all, and, any, check_row_length, is_distinct, not, or};
pub use quote::quote_identifier;
pub use regex::Regex;
pub use regexp::regexp_matches;
pub use resolve::{Resolved, ambiguous, check_collatable, common_kind, resolve, shown};
pub use session::{SessionCalls, SessionFunction, WORDS_OF_SESSIONS};
pub use set::{Declared as SetDeclared, SetFunction};
pub(crate) use string::checked_length;

use crate::{
    SqlError,
    types::{EvalContext, Kind, LARGE, Value, extent},
    work,
};

/// No function makes a value of more bytes: those of a text, and of all elements of an array. As
/// long as the longest that a client can send.
const MAX_EXTENT: usize = 64 << 20;

/// A value that was made, counted if it is large.
///
/// # Errors
/// 54000 when it is too large for any value, 53200 when it is too large for its statement.
#[inline]
pub fn made(value: Value, context: &EvalContext<'_>) -> Result<Value, SqlError> {
    let extent = extent(&value);
    work::made()?;
    if extent >= LARGE {
        if extent > MAX_EXTENT {
            return Err(string::too_long());
        }
        context.large.made(&value)?;
    }
    Ok(value)
}

/// How a function is evaluated. Its arguments are of the kinds that it declares, or null.
pub type Eval = fn(&[Value], &EvalContext<'_>) -> Result<Value, SqlError>;

/// When a function's result may change though its arguments do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Volatility {
    /// Never.
    Immutable,
    /// Between statements.
    Stable,
    /// At any time.
    Volatile,
}

/// A function or an operator.
#[derive(Clone, Copy)]
pub struct Function {
    /// Its name: a word, or an operator's signs.
    pub name: &'static str,
    /// The kinds of its arguments.
    pub arguments: &'static [Kind],
    /// Whether the last of these may be repeated.
    pub variadic: bool,
    /// The kind of its result; a polymorphic one follows the arguments.
    pub result: Kind,
    /// Whether it is null when an argument is, without being evaluated.
    pub strict: bool,
    /// When its result may change.
    pub volatility: Volatility,
    /// How it is evaluated.
    pub eval: Eval,
}

impl Function {
    /// Strict and immutable, as most are.
    const fn new(name: &'static str, arguments: &'static [Kind], result: Kind, eval: Eval) -> Self {
        Self { name, arguments, variadic: false, result, strict: true, volatility: Volatility::Immutable, eval }
    }

    const fn stable(mut self) -> Self {
        self.volatility = Volatility::Stable;
        self
    }

    const fn volatile(mut self) -> Self {
        self.volatility = Volatility::Volatile;
        self
    }

    /// Evaluated even when an argument is null.
    const fn lenient(mut self) -> Self {
        self.strict = false;
        self
    }

    const fn variadic(mut self) -> Self {
        self.variadic = true;
        self
    }

    /// Whether its name is made of signs.
    pub fn is_operator(&self) -> bool {
        !self.name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
    }

    /// Evaluates it.
    ///
    /// # Errors
    /// Whatever there is to say against the arguments.
    #[inline]
    pub fn call(&self, arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
        if self.strict && arguments.iter().any(Value::is_null) {
            return Ok(Value::Null);
        }
        // What is done with large values may take long by itself.
        if arguments.iter().any(|argument| extent(argument) >= LARGE) {
            work::check()?;
        }
        made((self.eval)(arguments, context)?, context)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?} -> {}", self.name, self.arguments, self.result)
    }
}

/// The tables of all topics. A name may be in several.
const TABLES: &[&[Function]] = &[
    arithmetic::FUNCTIONS,
    array::FUNCTIONS,
    bits::FUNCTIONS,
    bytes::FUNCTIONS,
    cast::FUNCTIONS,
    comparison::FUNCTIONS,
    crypto::FUNCTIONS,
    hash::FUNCTIONS,
    datetime::FUNCTIONS,
    format_datetime::FUNCTIONS,
    format_number::FUNCTIONS,
    json::FUNCTIONS,
    json_change::FUNCTIONS,
    logic::FUNCTIONS,
    math::FUNCTIONS,
    lsn::FUNCTIONS,
    network::FUNCTIONS,
    overlaps::FUNCTIONS,
    parse_datetime::FUNCTIONS,
    parse_number::FUNCTIONS,
    pattern::FUNCTIONS,
    quote::FUNCTIONS,
    regexp::FUNCTIONS,
    session::FUNCTIONS,
    string::FUNCTIONS,
    system::FUNCTIONS,
    trigonometry::FUNCTIONS,
];

/// All functions and operators.
pub fn registered() -> impl Iterator<Item = &'static Function> {
    TABLES.iter().copied().flatten()
}

/// The functions, or the operators, of a name.
pub fn named(name: &str) -> &'static [&'static Function] {
    static BY_NAME: OnceLock<HashMap<&'static str, Vec<&'static Function>>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| {
        let mut by_name: HashMap<_, Vec<_>> = HashMap::new();
        for function in registered() {
            by_name.entry(function.name).or_default().push(function);
        }
        by_name
    });
    by_name.get(name).map_or(&[], Vec::as_slice)
}

/// The error for arguments that are not of the kinds that a function declares: its caller's
/// mistake.
#[cold]
fn mismatch(arguments: &[Value]) -> SqlError {
    let kinds: Vec<_> = arguments.iter().map(Value::kind).collect();
    SqlError::internal(format!("a function was called with arguments of the kinds {kinds:?}"))
}

/// Names the arguments of a function, whose kinds are known.
macro_rules! take {
    ($arguments:ident: $($variant:ident($name:ident)),+) => {
        let [$(Value::$variant($name)),+] = $arguments else { return Err(crate::functions::mismatch($arguments)) };
    };
}
use take;

#[cfg(test)]
mod tests;
