//! What is told of logins: who was not let in, and who was in the end.
//!
//! A client that guesses passwords must not fill a log with it: of many failures within a short
//! time some are told, and how many were not.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use freshet_postgres::{FailedLogin, Origin, Peer, Startup};

/// How many lines are written within a window.
const LINES: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);
/// How many characters of a name are shown.
const SHOWN: usize = 64;

/// Tells of logins.
#[derive(Debug, Default)]
pub struct LoginLog(Mutex<Window>);

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    begun: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl LoginLog {
    /// A client was not let in.
    pub fn failed(&self, failure: &FailedLogin<'_>) {
        if let Some(left_out) = self.admits(Instant::now()) {
            eprintln!("freshet: {}", failed_line(failure, left_out));
        }
    }

    /// A client was let in. Told where there were failures before, from there or for its role.
    pub fn succeeded(&self, peer: &Peer, startup: &Startup, failures: u32) {
        if failures > 0
            && let Some(left_out) = self.admits(Instant::now())
        {
            let (role, from) = (shown(startup.user()), place(peer));
            let line = format!("role {role} has logged in from {from}, after {failures} failed logins lately");
            eprintln!("freshet: {line}{}", and_others(left_out));
        }
    }

    /// Whether a line may be written now; then how many were not since the last one.
    fn admits(&self, now: Instant) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if window.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= WINDOW) {
            (window.begun, window.written) = (Some(now), 0);
        }
        if window.written == LINES {
            window.left_out += 1;
            return None;
        }
        window.written += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}

fn failed_line(failure: &FailedLogin<'_>, left_out: u64) -> String {
    let (role, database) = (shown(failure.startup.user()), shown(failure.startup.database()));
    let why = match failure.why {
        Some(why) => why.to_owned(),
        // What rules say has the names in it that the client has given.
        None => shown(failure.told.message()),
    };
    let from = place(failure.peer);
    let after = match failure.after.as_millis() {
        0 => String::new(),
        after => format!("; told after {after} ms"),
    };
    format!("login failed: role {role}, from {from}, database {database}: {why}{after}{}", and_others(left_out))
}

fn and_others(left_out: u64) -> String {
    if left_out == 0 { String::new() } else { format!(" ({left_out} lines about logins were left out before this)") }
}

fn place(peer: &Peer) -> String {
    match peer.origin {
        Origin::Local { uid } => format!("the Unix socket, user {uid}"),
        Origin::Host(address) => format!("{address}{}", if peer.encrypted { " by TLS" } else { "" }),
    }
}

/// A client's own words, so that they cannot look like another line.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(SHOWN).collect();
    let more = if short.len() < text.len() { "..." } else { "" };
    format!("{short:?}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_failures_some_are_told_and_the_others_counted() {
        let log = LoginLog::default();
        let now = Instant::now();
        let told = (0..1_000).filter(|_| log.admits(now).is_some()).count();
        assert_eq!(told, LINES as usize);
        assert_eq!(log.admits(now + WINDOW / 2), None);
        assert_eq!(log.admits(now + WINDOW), Some(1_001 - u64::from(LINES)));
        assert_eq!(log.admits(now + WINDOW), Some(0));
    }

    #[test]
    fn names_cannot_look_like_lines() {
        assert_eq!(shown("ann"), "\"ann\"");
        assert_eq!(shown("a\nfreshet: \u{1b}[1m"), "\"a\\nfreshet: \\u{1b}[1m\"");
        assert_eq!(shown(&"\u{e4}".repeat(100)), format!("\"{}\"...", "\u{e4}".repeat(SHOWN)));
    }
}
