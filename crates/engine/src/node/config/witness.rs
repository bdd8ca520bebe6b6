//! The table `[witness]`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::SettingError;

/// What stands in the place of a witness.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Args)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Witness")]
pub struct WitnessSettings {
    /// The endpoints of an etcd cluster, `http://HOST:PORT` or `https://HOST:PORT`, which stands in
    /// the place of a witness of two nodes with data: it keeps what a witness would. See
    /// docs/operations.md#etcd-in-the-place-of-a-witness.
    ///
    /// Set it, on all nodes, where you run etcd already, on other machines than these nodes.
    #[arg(id = "witness-etcd", long, value_name = "URL", hide_short_help = true, value_delimiter = ',')]
    pub etcd: Vec<String>,
    /// The key in etcd is this, a slash, the cluster's id, and `/witness`.
    ///
    /// Set it, the same on all nodes, where users of etcd may use some keys only, and after
    /// `freshet remove` of that witness.
    #[arg(id = "witness-etcd-prefix", long, value_name = "KEY", hide = true)]
    pub etcd_prefix: String,
    /// The certificates, in PEM, of those who may have signed the certificates of etcd. Read at the
    /// start.
    ///
    /// Set it where the endpoints have `https`.
    #[arg(id = "witness-etcd-authority", long, value_name = "FILE", hide = true)]
    pub etcd_authority: Option<PathBuf>,
    /// The certificate, in PEM, that this node shows to etcd. Read at the start.
    ///
    /// Set it where etcd asks clients for certificates.
    #[arg(id = "witness-etcd-certificate", long, value_name = "FILE", hide = true)]
    pub etcd_certificate: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    ///
    /// Set it with the certificate.
    #[arg(id = "witness-etcd-key", long, value_name = "FILE", hide = true)]
    pub etcd_key: Option<PathBuf>,
    /// A file with one line, `USER:PASSWORD`: the user of etcd as which this node reads and writes.
    /// No other user of this machine may read it. Read at the start.
    ///
    /// Set it where etcd asks for users, also beside a certificate: etcd's JSON interface takes no
    /// user from that.
    #[arg(id = "witness-etcd-user-file", long, value_name = "FILE", hide = true)]
    pub etcd_user_file: Option<PathBuf>,
}

impl Default for WitnessSettings {
    fn default() -> Self {
        Self {
            etcd: Vec::new(),
            etcd_prefix: "/freshet".into(),
            etcd_authority: None,
            etcd_certificate: None,
            etcd_key: None,
            etcd_user_file: None,
        }
    }
}

/// The bounds of how long the first question of a step may take.
const ATTEMPT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

impl WitnessSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        if self.etcd_certificate.is_some() != self.etcd_key.is_some() {
            let given = self.etcd_certificate.as_deref().map_or("none".into(), Path::to_string_lossy);
            let remedy = "witness.etcd-certificate and witness.etcd-key belong together: give both, or none";
            return Err(SettingError::new("witness.etcd-certificate", given, remedy));
        }
        if self.etcd_prefix.len() > 256 || self.etcd_prefix.chars().any(char::is_control) {
            let remedy = "use at most 256 bytes, and no control characters";
            return Err(SettingError::new("witness.etcd-prefix", &self.etcd_prefix, remedy));
        }
        Ok(())
    }

    /// How long the first question of a step may take, with leases of this length: an endpoint that
    /// hangs is left for another one well before a lease ends.
    pub(crate) fn attempt(&self, lease: Duration) -> Duration {
        (lease / 4).clamp(ATTEMPT.0, ATTEMPT.1)
    }
}
