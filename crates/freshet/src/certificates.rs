//! Looks when the certificate ends that this node shows to others, and says so in time: open
//! connections go on, and so it would be noticed by the next failover.

use std::time::{Duration, Instant};

use freshet_membership::Credentials;
use serde_json::Value;

use crate::units;

/// How often certificates are looked at.
const EVERY: Duration = Duration::from_secs(60);
/// So long before it ends, it is told of, once a day.
pub(crate) const SOON: u64 = 30 * DAY;
/// So long before, it is an error not to have replaced it.
const VERY_SOON: u64 = 3 * DAY;
pub(crate) const DAY: u64 = 24 * 3600;

/// What was reported last.
pub(crate) struct CertificateWatch {
    credentials: Credentials,
    due: Instant,
    reported: Option<(Option<u64>, Level)>,
}

/// How it is with a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Valid,
    /// It ends in this number of days.
    Soon {
        days: u64,
    },
    Over,
}

fn level(expires: Option<u64>, now: u64) -> Level {
    match expires.map(|expires| expires.checked_sub(now)) {
        Some(None | Some(0)) => Level::Over,
        Some(Some(left)) if left < SOON => Level::Soon { days: left / DAY },
        Some(Some(_)) | None => Level::Valid,
    }
}

/// What is to be done about one that ends. `own`: Freshet signs it.
pub(crate) fn remedy(own: bool) -> &'static str {
    if own {
        "this node renews it by itself: its messages say what hinders it"
    } else {
        "replace the files in the directory that member.certificates names, and send SIGHUP"
    }
}

/// What a status says of it.
pub(crate) fn show(status: &Value, line: &mut impl FnMut(&str, String)) {
    if let Some(expires) = status["certificate_expires"].as_u64()
        && expires < now() + SOON
    {
        let remedy = remedy(status["authority"].is_u64());
        let shown = match expires.checked_sub(now()) {
            Some(left) => format!("ends in {} days: {remedy}", left / DAY),
            None => format!(
                "HAS ENDED, by the clock of this machine: no other node can connect; set the clock right if that is \
                 wrong, else {remedy}"
            ),
        };
        line("certificate", shown);
    }
    if let Some(trouble) = status["certificate_trouble"].as_str() {
        line("certificate", format!("is not by the authority that counts yet: {trouble}"));
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    units::now_micros() / 1_000_000
}

impl CertificateWatch {
    pub(crate) fn new(credentials: Credentials) -> Self {
        Self { credentials, due: Instant::now(), reported: None }
    }

    /// Says it when something has changed. Costs nothing between two looks; a certificate that was
    /// replaced is seen with the next.
    pub(crate) fn look(&mut self) {
        if Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + EVERY;
        let expires = self.credentials.expire();
        let level = level(expires, now());
        if self.reported.replace((expires, level)) == Some((expires, level)) {
            return;
        }
        let remedy = remedy(self.credentials.authority().is_some());
        match level {
            Level::Valid => {}
            Level::Soon { days } if days * DAY < VERY_SOON => tracing::error!(
                days,
                remedy,
                "the certificate of this node ends very soon: then no other node can connect, and no failover succeeds"
            ),
            Level::Soon { days } => tracing::warn!(days, remedy, "the certificate of this node ends soon"),
            Level::Over => tracing::error!(
                remedy,
                "the certificate of this node has ended: connections that are there continue, no other node can \
                 connect, and no failover succeeds"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_reported_in_time() {
        let now = 1_800_000_000;
        assert_eq!(level(None, now), Level::Valid);
        assert_eq!(level(Some(now + SOON), now), Level::Valid);
        assert_eq!(level(Some(now + SOON - 1), now), Level::Soon { days: 29 });
        assert_eq!(level(Some(now + 1), now), Level::Soon { days: 0 });
        assert_eq!((level(Some(now), now), level(Some(1), now)), (Level::Over, Level::Over));
    }
}
