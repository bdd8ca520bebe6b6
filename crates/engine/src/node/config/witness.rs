//! The table `[witness]`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::SettingError;

/// What stands in the place of a witness.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Args)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Witness")]
pub struct WitnessSettings {
    /// The endpoints of an etcd cluster, `http://HOST:PORT` or `https://HOST:PORT`, which stands in
    /// the place of a witness of two nodes with data: it keeps what a witness would, under the key
    /// `/freshet/CLUSTER/witness`. A path behind each port, the same one, takes the place of
    /// `/freshet`. See docs/operations.md#etcd-in-the-place-of-a-witness.
    ///
    /// Set it, on all nodes, where you run etcd already, on other machines than these nodes; with
    /// another path after `freshet remove` of that witness.
    #[arg(id = "witness-etcd", long, value_name = "URL", hide_short_help = true, value_delimiter = ',')]
    pub etcd: Vec<String>,
    /// A directory with the certificates of those who may have signed the certificates of etcd,
    /// `authority.crt`, and, if there is one, the certificate that this node shows to etcd,
    /// `node.crt`, with its key, `node.key`: all in PEM. Read at the start.
    ///
    /// Set it where the endpoints have `https`.
    #[arg(id = "witness-etcd-certificates", long, value_name = "DIR", hide = true)]
    pub etcd_certificates: Option<PathBuf>,
    /// A file with one line, `USER:PASSWORD`: the user of etcd as which this node reads and writes.
    /// No other user of this machine may read it. Read at the start.
    ///
    /// Set it where etcd asks for users, also beside a certificate: etcd's JSON interface takes no
    /// user from that.
    #[arg(id = "witness-etcd-user-file", long, value_name = "FILE", hide = true)]
    pub etcd_user_file: Option<PathBuf>,
}

/// The bounds of how long the first question of a step may take.
const ATTEMPT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

impl WitnessSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        let (_, path) = self.places();
        let is_one = self.etcd.iter().all(|url| parts(url).1 == path);
        if is_one && path.len() <= 256 && !path.chars().any(char::is_control) {
            return Ok(());
        }
        let remedy = "give all endpoints the same path, of at most 256 bytes without control characters, or none";
        Err(SettingError::new("witness.etcd", self.etcd.join(","), remedy))
    }

    /// The endpoints, and the beginning of the key there.
    pub(crate) fn places(&self) -> (Vec<String>, &str) {
        let path = self.etcd.first().map_or("", |url| parts(url).1);
        (self.etcd.iter().map(|url| parts(url).0.to_owned()).collect(), path)
    }

    /// How long the first question of a step may take, with leases of this length: an endpoint that
    /// hangs is left for another one well before a lease ends.
    pub(crate) fn attempt(&self, lease: Duration) -> Duration {
        (lease / 4).clamp(ATTEMPT.0, ATTEMPT.1)
    }
}

/// A URL up to its path, and that, without a slash at its end.
fn parts(url: &str) -> (&str, &str) {
    let host = url.find("://").map_or(0, |scheme| scheme + 3);
    let path = url[host..].find('/').map_or(url.len(), |path| host + path);
    (&url[..path], url[path..].trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_all_endpoints_is_the_beginning_of_the_key() {
        let of = |urls: &[&str]| WitnessSettings {
            etcd: urls.iter().map(|url| (*url).to_owned()).collect(),
            ..WitnessSettings::default()
        };
        for (urls, endpoints, path) in [
            (&["http://a:1", "https://b:2/"][..], &["http://a:1", "https://b:2"][..], ""),
            (&["http://a:1/x/y/", "http://b:2/x/y"], &["http://a:1", "http://b:2"], "/x/y"),
            (&["a:1/x"], &["a:1"], "/x"),
            (&[], &[], ""),
        ] {
            let settings = of(urls);
            assert!(settings.check().is_ok());
            assert_eq!(settings.places(), (endpoints.iter().map(|it| (*it).to_owned()).collect(), path));
        }
        for urls in [&["http://a:1/x", "http://b:2"][..], &["http://a:1/\n"]] {
            assert!(of(urls).check().is_err(), "{urls:?}");
        }
    }
}
