//! Statements about the session itself: transactions, settings, cursors. `sqlparser` reads many
//! dialects' statements of this kind and only parts of PostgreSQL's, so they are read here, on its
//! tokens.

use sqlparser::{ast::Query, parser::Parser, tokenizer::Token};

use crate::ddl::syntax::{Read, Words};

/// A statement about the session.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionStatement {
    /// What begins or ends transactions, or parts of them.
    Control(Control),
    /// SET, RESET, SHOW
    Setting(Setting),
    /// DECLARE, FETCH, MOVE, CLOSE
    Cursor(Cursor),
    /// LISTEN, UNLISTEN, NOTIFY
    Channel(Channel),
}

/// A statement about channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channel {
    /// LISTEN
    Listen(String),
    /// UNLISTEN; nothing is all.
    Unlisten(Option<String>),
    /// NOTIFY, with what it says.
    Notify(String, String),
}

/// What begins or ends transactions, or parts of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// BEGIN and START TRANSACTION, with the tag.
    Begin(Modes, &'static str),
    /// COMMIT, and whether another one begins.
    Commit(bool),
    /// ROLLBACK, and whether another one begins.
    Rollback(bool),
    /// ROLLBACK TO SAVEPOINT
    RollbackTo(String),
    /// SAVEPOINT
    Savepoint(String),
    /// RELEASE SAVEPOINT
    Release(String),
    /// SET TRANSACTION
    Set(Modes),
    /// SET TRANSACTION SNAPSHOT
    Import(String),
}

/// How a transaction is to be, as far as it is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Its level.
    pub isolation: Option<&'static str>,
    /// Whether it must not write.
    pub read_only: Option<bool>,
    /// Whether it may wait for a snapshot that is safe.
    pub deferrable: Option<bool>,
}

/// A statement about settings.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// SET, with what it is set to: the default if that is nothing.
    Set {
        /// The setting's name.
        name: String,
        /// The parts of its value.
        value: Option<Vec<String>>,
        /// Until the transaction's end.
        local: bool,
    },
    /// SET TIME ZONE INTERVAL, with the text of the interval.
    ZoneInterval(String, bool),
    /// SET SESSION CHARACTERISTICS
    Characteristics(Modes),
    /// RESET
    Reset(String),
    /// RESET ALL
    ResetAll,
    /// SHOW
    Show(String),
    /// SHOW ALL
    ShowAll,
}

/// A statement about cursors.
#[derive(Clone, Debug, PartialEq)]
pub enum Cursor {
    /// DECLARE
    Declare(Box<Declare>),
    /// FETCH
    Fetch(String, Direction),
    /// MOVE
    Move(String, Direction),
    /// CLOSE; nothing closes all.
    Close(Option<String>),
}

/// DECLARE
#[derive(Clone, Debug, PartialEq)]
pub struct Declare {
    /// The cursor's name.
    pub name: String,
    /// Whether its rows are sent in binary.
    pub binary: bool,
    /// Whether it can go backward; nothing if that is not said.
    pub scroll: Option<bool>,
    /// Whether it outlives its transaction.
    pub hold: bool,
    /// The query whose rows the cursor shows.
    pub query: Box<Query>,
}

/// Where a cursor goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// This many rows on, or back if that is negative. All if it is the greatest or least number.
    Forward(i64),
    /// To this row, from 1; from the end if it is negative.
    Absolute(i64),
    /// To the row that is this many rows on.
    Relative(i64),
}

/// The statement about the session at which a parser stands; nothing if it stands at another one.
///
/// # Errors
/// When one begins, and is none.
pub fn parse(parser: &mut Parser<'_>) -> Read<Option<SessionStatement>> {
    let mut words = Words { parser, unsupported: None };
    let Some(statement) = statement(&mut words)? else { return Ok(None) };
    if !words.ends() {
        return words.fail("end of statement");
    }
    Ok(Some(statement))
}

fn statement(words: &mut Words<'_, '_>) -> Read<Option<SessionStatement>> {
    const FIRST: &[&str] = &[
        "begin",
        "start",
        "commit",
        "end",
        "rollback",
        "abort",
        "savepoint",
        "release",
        "set",
        "reset",
        "show",
        "declare",
        "fetch",
        "move",
        "close",
        "listen",
        "unlisten",
        "notify",
    ];
    if words.sees(&["set", "constraints"]) {
        return Ok(None);
    }
    let Some(first) = words.takes_any(FIRST) else { return Ok(None) };
    Ok(Some(match first {
        "begin" => {
            words.takes_any(&["work", "transaction"]);
            SessionStatement::Control(Control::Begin(modes(words)?, "BEGIN"))
        }
        "start" => {
            words.expect(&["transaction"])?;
            SessionStatement::Control(Control::Begin(modes(words)?, "START TRANSACTION"))
        }
        "commit" | "end" => {
            words.takes_any(&["work", "transaction"]);
            SessionStatement::Control(Control::Commit(chain(words)?))
        }
        "rollback" | "abort" => {
            words.takes_any(&["work", "transaction"]);
            if first == "rollback" && words.takes(&["to"]) {
                words.takes(&["savepoint"]);
                return Ok(Some(SessionStatement::Control(Control::RollbackTo(words.ident()?))));
            }
            SessionStatement::Control(Control::Rollback(chain(words)?))
        }
        "savepoint" => SessionStatement::Control(Control::Savepoint(words.ident()?)),
        "release" => {
            words.takes(&["savepoint"]);
            SessionStatement::Control(Control::Release(words.ident()?))
        }
        "set" => return set(words).map(Some),
        "reset" if words.takes(&["all"]) => SessionStatement::Setting(Setting::ResetAll),
        "reset" => SessionStatement::Setting(Setting::Reset(setting_name(words)?)),
        "show" if words.takes(&["all"]) => SessionStatement::Setting(Setting::ShowAll),
        "show" => SessionStatement::Setting(Setting::Show(setting_name(words)?)),
        "declare" => SessionStatement::Cursor(declare(words)?),
        "fetch" => {
            let (name, direction) = fetch(words)?;
            SessionStatement::Cursor(Cursor::Fetch(name, direction))
        }
        "move" => {
            let (name, direction) = fetch(words)?;
            SessionStatement::Cursor(Cursor::Move(name, direction))
        }
        "close" if words.takes(&["all"]) => SessionStatement::Cursor(Cursor::Close(None)),
        "close" => SessionStatement::Cursor(Cursor::Close(Some(words.ident()?))),
        "listen" => SessionStatement::Channel(Channel::Listen(words.ident()?)),
        "unlisten" if words.token(&Token::Mul) => SessionStatement::Channel(Channel::Unlisten(None)),
        "unlisten" => SessionStatement::Channel(Channel::Unlisten(Some(words.ident()?))),
        _ => {
            let name = words.ident()?;
            let payload = if words.token(&Token::Comma) { words.string()? } else { String::new() };
            SessionStatement::Channel(Channel::Notify(name, payload))
        }
    }))
}

fn chain(words: &mut Words<'_, '_>) -> Read<bool> {
    if !words.takes(&["and"]) {
        return Ok(false);
    }
    let chain = !words.takes(&["no"]);
    words.expect(&["chain"])?;
    Ok(chain)
}

fn modes(words: &mut Words<'_, '_>) -> Read<Modes> {
    let mut modes = Modes::default();
    let mut first = true;
    while !words.ends() {
        if !first {
            words.token(&Token::Comma);
        }
        first = false;
        if words.takes(&["isolation", "level"]) {
            let levels: [(&[&str], _); 4] = [
                (&["read", "uncommitted"], "read uncommitted"),
                (&["read", "committed"], "read committed"),
                (&["repeatable", "read"], "repeatable read"),
                (&["serializable"], "serializable"),
            ];
            let Some((_, level)) = levels.iter().find(|(spelling, _)| words.takes(spelling)) else {
                return words.fail("an isolation level");
            };
            modes.isolation = Some(level);
        } else if words.takes(&["read", "only"]) {
            modes.read_only = Some(true);
        } else if words.takes(&["read", "write"]) {
            modes.read_only = Some(false);
        } else if words.takes(&["deferrable"]) {
            modes.deferrable = Some(true);
        } else if words.takes(&["not", "deferrable"]) {
            modes.deferrable = Some(false);
        } else {
            return words.fail("a mode of transactions");
        }
    }
    Ok(modes)
}

/// Modes; there is at least one.
fn some_modes(words: &mut Words<'_, '_>) -> Read<Modes> {
    if words.ends() { words.fail("a mode of transactions") } else { modes(words) }
}

/// A setting's name, as SET, RESET and SHOW have it.
fn setting_name(words: &mut Words<'_, '_>) -> Read<String> {
    for (spelling, name) in [
        (&["time", "zone"][..], "timezone"),
        (&["transaction", "isolation", "level"], "transaction_isolation"),
        (&["session", "authorization"], "session_authorization"),
    ] {
        if words.takes(spelling) {
            return Ok(name.to_owned());
        }
    }
    let mut name = words.ident()?;
    while words.token(&Token::Period) {
        name = format!("{name}.{}", words.ident()?);
    }
    Ok(name)
}

fn set(words: &mut Words<'_, '_>) -> Read<SessionStatement> {
    if words.takes(&["session", "characteristics", "as", "transaction"]) {
        return Ok(SessionStatement::Setting(Setting::Characteristics(some_modes(words)?)));
    }
    let authorization = words.sees(&["session", "authorization"]);
    let scope = if authorization { None } else { words.takes_any(&["local", "session"]) };
    let local = scope == Some("local");
    let set = |name: &str, value| {
        let name = name.to_owned();
        Ok(SessionStatement::Setting(Setting::Set { name, value, local }))
    };
    if words.takes(&["transaction", "snapshot"]) {
        return Ok(SessionStatement::Control(Control::Import(words.string()?)));
    }
    if words.takes(&["transaction"]) {
        return Ok(SessionStatement::Control(Control::Set(some_modes(words)?)));
    }
    if words.takes(&["time", "zone"]) {
        if words.takes(&["interval"]) {
            let mut interval = words.string()?;
            // A number by itself counts in hours, where these are said.
            if words.takes(&["hour"]) {
                words.takes(&["to", "minute"]);
                if interval.trim_ascii().parse::<i64>().is_ok() {
                    interval.push_str(" hour");
                }
            }
            return Ok(SessionStatement::Setting(Setting::ZoneInterval(interval, local)));
        }
        let value = if words.takes_any(&["local", "default"]).is_some() { None } else { Some(vec![value(words)?]) };
        return set("timezone", value);
    }
    for (spelling, name) in [
        (&["session", "authorization"][..], "session_authorization"),
        (&["role"], "role"),
        (&["names"], "client_encoding"),
        (&["schema"], "search_path"),
    ] {
        if words.sees(spelling) && !is_assigned(words, spelling.len()) {
            words.takes(spelling);
            let none = name == "client_encoding" && words.ends();
            let value = if none || words.takes(&["default"]) { None } else { Some(vec![value(words)?]) };
            return set(name, value);
        }
    }
    if words.takes(&["xml", "option"]) {
        let Some(option) = words.takes_any(&["document", "content"]) else { return words.fail("DOCUMENT or CONTENT") };
        return set("xmloption", Some(vec![option.to_owned()]));
    }
    let name = setting_name(words)?;
    if !words.takes(&["to"]) {
        words.expect_token(&Token::Eq)?;
    }
    let value = if words.takes(&["default"]) { None } else { Some(words.list(value)?) };
    set(&name, value)
}

/// Whether TO or `=` follows this many tokens.
fn is_assigned(words: &Words<'_, '_>, tokens: usize) -> bool {
    match &words.parser.peek_nth_token_ref(tokens).token {
        Token::Eq => true,
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case("to"),
        _ => false,
    }
}

/// A word, a text or a number.
pub(crate) fn value(words: &mut Words<'_, '_>) -> Read<String> {
    let sign = if words.token(&Token::Minus) { "-" } else { "" };
    if sign.is_empty() {
        words.token(&Token::Plus);
    }
    let next = words.parser.peek_token_ref().token.clone();
    let value = match next {
        Token::Number(digits, _) => format!("{sign}{digits}"),
        _ if !sign.is_empty() => return words.fail("a number"),
        Token::Word(word) if word.quote_style.is_some() => word.value,
        Token::Word(word) => word.value.to_ascii_lowercase(),
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) | Token::UnicodeStringLiteral(text) => text,
        Token::DollarQuotedString(text) => text.value,
        _ => return words.fail("a value"),
    };
    words.parser.advance_token();
    Ok(value)
}

fn declare(words: &mut Words<'_, '_>) -> Read<Cursor> {
    let name = words.ident()?;
    let (mut binary, mut scroll) = (false, None);
    loop {
        if words.takes(&["binary"]) {
            binary = true;
        } else if words.takes(&["no", "scroll"]) {
            scroll = Some(false);
        } else if words.takes(&["scroll"]) {
            scroll = Some(true);
        } else if words.takes_any(&["insensitive", "asensitive"]).is_none() {
            break;
        }
    }
    words.expect(&["cursor"])?;
    let hold = words.takes(&["with", "hold"]);
    if !hold {
        words.takes(&["without", "hold"]);
    }
    words.expect(&["for"])?;
    let query = crate::syntax::parse_query(words.parser)?;
    Ok(Cursor::Declare(Box::new(Declare { name, binary, scroll, hold, query })))
}

fn is_number(words: &Words<'_, '_>) -> bool {
    matches!(words.parser.peek_token_ref().token, Token::Number(..) | Token::Minus | Token::Plus)
}

fn fetch(words: &mut Words<'_, '_>) -> Read<(String, Direction)> {
    const SINGLE: &[(&str, Direction)] = &[
        ("next", Direction::Forward(1)),
        ("prior", Direction::Forward(-1)),
        ("first", Direction::Absolute(1)),
        ("last", Direction::Absolute(-1)),
        ("all", Direction::Forward(i64::MAX)),
    ];
    // A cursor may have such a word as its name.
    let named = matches!(words.parser.peek_nth_token_ref(1).token, Token::EOF | Token::SemiColon);
    let direction = if named {
        Direction::Forward(1)
    } else if let Some((_, direction)) = SINGLE.iter().find(|(word, _)| words.takes(&[word])) {
        *direction
    } else if words.takes(&["absolute"]) {
        Direction::Absolute(words.integer()?)
    } else if words.takes(&["relative"]) {
        Direction::Relative(words.integer()?)
    } else if let Some(way) = words.takes_any(&["forward", "backward"]) {
        let count = match words.takes(&["all"]) {
            true => i64::MAX,
            false if is_number(words) => words.integer()?,
            false => 1,
        };
        Direction::Forward(if way == "forward" { count } else { -count })
    } else if is_number(words) {
        Direction::Forward(words.integer()?)
    } else {
        Direction::Forward(1)
    };
    words.takes_any(&["from", "in"]);
    Ok((words.ident()?, direction))
}

impl SessionStatement {
    /// Whether it begins or ends transactions or parts of them.
    pub fn is_control(&self) -> bool {
        matches!(self, Self::Control(control) if !matches!(control, Control::Set(_) | Control::Import(_)))
    }

    /// Whether it reads nothing.
    pub fn needs_no_snapshot(&self) -> bool {
        !matches!(self, Self::Cursor(Cursor::Declare(_)))
    }
}

/// What is wrong with a statement that is not offered.
pub fn unsupported(parser: &Parser<'_>) -> Option<&'static str> {
    let word = |at: usize| match &parser.peek_nth_token_ref(at).token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_lowercase(),
        _ => String::new(),
    };
    match (word(0).as_str(), word(1).as_str()) {
        ("prepare", "transaction") => Some("PREPARE TRANSACTION"),
        ("commit", "prepared") => Some("COMMIT PREPARED"),
        ("rollback", "prepared") => Some("ROLLBACK PREPARED"),
        _ => None,
    }
}
