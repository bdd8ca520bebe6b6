//! Texts of statements, as others are shown them.

use std::borrow::Cow;

/// How many bytes of a statement's text are shown.
const SHOWN: usize = 1024;

/// As much of a statement's text as is shown: its beginning, and nothing of a password.
pub fn shown(sql: &str) -> Cow<'_, str> {
    let text = &sql[..sql.floor_char_boundary(SHOWN)];
    match password(text) {
        Some(at) => format!("{} <hidden>", &text[..at]).into(),
        None => text.into(),
    }
}

/// Where the word PASSWORD ends that something follows which may be a password. What comes behind
/// it is not looked at: a password is hidden whatever way it is quoted.
fn password(text: &str) -> Option<usize> {
    const WORD: &[u8] = b"password";
    let bytes = text.as_bytes();
    let of_a_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 128..);
    (WORD.len()..=bytes.len()).find(|end| {
        let (before, word) = bytes[..*end].split_at(end - WORD.len());
        if !word.eq_ignore_ascii_case(WORD) || before.last().is_some_and(of_a_name) {
            return false;
        }
        let rest = bytes[*end..].trim_ascii_start();
        match rest {
            [b'\'' | b'$', ..] | [b'-', b'-', ..] | [b'/', b'*', ..] => true,
            [b'e' | b'E', b'\'', ..] | [b'u' | b'U', b'&', ..] => rest.len() < bytes.len() - end,
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (statement, expected) in [
            ("ALTER ROLE a PASSWORD 'secret'", "ALTER ROLE a PASSWORD <hidden>"),
            ("create role a login password'secret' superuser", "create role a login password <hidden>"),
            ("ALTER ROLE a Password\n E'sec\\'ret'", "ALTER ROLE a Password <hidden>"),
            ("ALTER ROLE a PASSWORD U&'secret'", "ALTER ROLE a PASSWORD <hidden>"),
            ("ALTER ROLE a PASSWORD $x$secret$x$", "ALTER ROLE a PASSWORD <hidden>"),
            ("ALTER ROLE a PASSWORD /* ' */ 'secret'", "ALTER ROLE a PASSWORD <hidden>"),
            ("ALTER ROLE a PASSWORD -- '\n 'secret'", "ALTER ROLE a PASSWORD <hidden>"),
            (
                "SELECT 1; ALTER ROLE a ENCRYPTED PASSWORD 'secret'; SELECT 2",
                "SELECT 1; ALTER ROLE a ENCRYPTED PASSWORD <hidden>",
            ),
        ] {
            assert_eq!(shown(statement), expected);
        }
        for open in [
            "ALTER ROLE a PASSWORD NULL",
            "SELECT password, 'x' FROM users",
            "SELECT * FROM users WHERE password = 'x'",
            "SELECT my_password 'x'",
            "SELECT passwords 'x'",
            "SELECT passworde'x'",
        ] {
            assert_eq!(shown(open), open);
        }
        let long = "x".repeat(SHOWN - 30) + " ALTER ROLE a PASSWORD 'secret and more'";
        assert!(shown(&long).ends_with("PASSWORD <hidden>") && !shown(&long).contains("secr"));
        assert_eq!(shown(&"ä".repeat(SHOWN)).len(), SHOWN);
    }
}
