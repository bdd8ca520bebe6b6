//! Messages about logins: clients that were refused, and those that were let in after failures. The
//! number of lines is limited where they are written.

use freshet_postgres::{FailedLogin, Origin, Peer, Startup};

/// How many characters of a name are shown.
const SHOWN: usize = 64;

/// A client was refused.
pub(crate) fn failed(failure: &FailedLogin<'_>) {
    let (role, database) = (shown(failure.startup.user()), shown(failure.startup.database()));
    let why = match failure.why {
        Some(why) => why.to_owned(),
        // The message of the rules contains names that the client has given.
        None => shown(failure.reply.message()),
    };
    let replied_after_ms = u64::try_from(failure.after.as_millis()).unwrap_or(u64::MAX);
    tracing::warn!(role, from = place(failure.peer), database, why, replied_after_ms, "a login failed");
}

/// A client was let in. Logged only after failures, from there or for its role.
pub(crate) fn succeeded(peer: &Peer, startup: &Startup, failures: u32) {
    if failures > 0 {
        tracing::info!(role = shown(startup.user()), from = place(peer), failures, "a login after failed ones");
    }
}

fn place(peer: &Peer) -> String {
    match peer.origin {
        Origin::Local { uid } => format!("the Unix socket, user {uid}"),
        Origin::Host(address) => format!("{address}{}", if peer.encryption.is_some() { " by TLS" } else { "" }),
    }
}

/// A client's own words, cut to a useful length.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() { short + "..." } else { short }
}
