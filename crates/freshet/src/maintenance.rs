//! `freshet maintenance`: no node of a cluster takes over by itself for a while.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use serde_json::json;

use crate::{Failure, cli::Asked, messages::plain, prints::Prints, status::Health, units::lasting};

/// Options of `freshet maintenance`.
#[derive(Debug, Args)]
pub(crate) struct MaintenanceOptions {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// For how long, from now on: a number with s, m or h, at most 24h.
    #[arg(long = "for", value_name = "TIME", default_value = "30m", value_parser = length)]
    pub(crate) length: Duration,
    /// End it now.
    #[arg(long, conflicts_with = "length")]
    pub(crate) end: bool,
    #[command(flatten)]
    pub(crate) prints: Prints,
}

/// How long a node may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long it may take to ask the others.
const ASKS: Duration = Duration::from_secs(40);
/// It lasts no longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// As long as maintenance may last at most.
pub(crate) fn bounded(length: Duration) -> Duration {
    length.min(LONGEST)
}

/// A time as people write it: a number with `s`, `m` or `h`.
pub(crate) fn length(text: &str) -> Result<Duration, String> {
    let unit = |unit: &str| text.strip_suffix(unit).and_then(|number| number.parse::<u64>().ok());
    let seconds = [("s", 1), ("m", 60), ("h", 3600)]
        .into_iter()
        .find_map(|(suffix, seconds)| unit(suffix).map(|number| number.saturating_mul(seconds)))
        .ok_or("it is a number with s, m or h: 30m")?;
    let length = Duration::from_secs(seconds);
    match length {
        Duration::ZERO => Err("it has to last: --end ends it".to_owned()),
        length if length > LONGEST => Err("it lasts for 24h at most".to_owned()),
        length => Ok(length),
    }
}

/// Orders it, or ends it.
pub(crate) fn run(options: &MaintenanceOptions) -> Result<ExitCode, Failure> {
    let client = options.asked.connect(CONNECT)?;
    let length = if options.end { Duration::ZERO } else { options.length };
    let (known, unreached) = client.order_maintenance(length, ASKS)?;
    let value = json!({ "lasts_s": length.as_secs(), "known": known, "unreached": unreached });
    options.prints.show(&value, || match options.end {
        true => format!("maintenance is over: {known} node(s) know of it"),
        false => {
            let (lasts, address) = (lasting(length), client.address());
            format!(
                "maintenance for {lasts}: {known} node(s) know of it, and none of them takes over by itself\nfreshet \
                 maintenance --end {address} ends it; freshet promote works besides"
            )
        }
    });
    for why in unreached.iter().map(|why| plain(why)) {
        eprintln!("warning: a node did not take the order, and hears of it from its primary or when it asks: {why}");
    }
    Ok(if unreached.is_empty() { Health::Well } else { Health::Lacking }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_a_bound() {
        for (text, seconds) in [("30m", 1800), ("45s", 45), ("24h", 86_400), ("1440m", 86_400)] {
            assert_eq!(length(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "m", "30", "0s", "25h", "86401s", "-1m", "1.5h", "99999999999999999h", "1d"] {
            assert!(length(text).is_err(), "{text}");
        }
    }
}
