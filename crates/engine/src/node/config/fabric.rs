//! The table `[fabric]`.

use std::{str::FromStr, sync::Arc, time::Duration};

use clap::{Args, ValueEnum};
use freshet_fabric::{FabricConfig, FabricKind, limit::TokenBucket};
use freshet_replication::{feed::FeedFabric, follow::StandbyFabric};
use serde::{Deserialize, Serialize};

use super::{SettingError, headings::LABORATORY};

/// How nodes write into one another's memory. A standby says by which fabric its primary does; the
/// other keys each node says for itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Args)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Fabric")]
pub struct FabricSettings {
    /// On a standby: how its primary writes into its memory; on a primary: what standbys may ask
    /// for besides `tcp`. `tcp`: works everywhere. `shm`: both nodes are processes of one machine
    /// and one user. `verbs`: RDMA, in a program built with `--features verbs`. See
    /// docs/operations.md#rdma.
    ///
    /// Choose what connects the two.
    #[arg(id = "fabric-kind", long, value_name = "FABRIC")]
    pub kind: FabricKind,
    /// With `shm` and `verbs`, on either node: how many microseconds to poll for the other side
    /// before going to sleep, at most 10000.
    ///
    /// Try 50 where each node has a processor to spare; never where processors are short.
    #[arg(id = "fabric-spin-us", long, value_name = "US", help_heading = LABORATORY)]
    pub spin_us: u64,
    /// With `shm` and `verbs`: mailboxes are in huge pages, if the system has some to spare.
    ///
    /// Set it where huge pages are set aside.
    #[arg(id = "fabric-huge-pages", long, help_heading = LABORATORY)]
    pub huge_pages: bool,
    /// How many gigabits (10^9 bits) per second this node sends at most to all others together, up
    /// to 100000. 0: no limit.
    ///
    /// Set it to leave others their share of a network card, or to measure.
    #[arg(id = "fabric-bandwidth-gbit", long, value_name = "GBIT", hide = true)]
    pub bandwidth_gbit: f64,
    /// On a primary: batches are compressed with LZ4. `freshet status` shows what that costs
    /// (`pack_cpu`) and saves (`packed_bytes`).
    ///
    /// Set it where the network is narrower than the log and a processor is idle.
    #[arg(id = "fabric-compress", long, hide = true)]
    pub compress: bool,
    /// On a standby in domain `pmem`: what its primary has written and read back is persistent and
    /// needs no acknowledgement ("appliance", Query Fresh, section 2.3). Not with `replay`
    /// `synchronous`, nor on a relay with `relay-ack` `downstream`: the primary would acknowledge
    /// too early.
    ///
    /// Set it only where writes from the network go around the processor's caches, or the caches
    /// survive a loss of power.
    #[arg(id = "fabric-appliance", long, hide = true)]
    pub appliance: bool,
    /// With `verbs`: the RDMA device, NAME:PORT:GID-INDEX. Empty: the first that is up.
    ///
    /// Set it when there are several.
    #[arg(id = "fabric-device", long, value_name = "DEVICE", hide = true)]
    pub device: String,
    /// How nodes encrypt what they send over TCP after they have authenticated, which they do in
    /// any case. Without encryption, an attacker who controls the network can read and change it.
    ///
    /// Use `none` in a network where no other party can listen or send, to spare the processor:
    /// docs/benchmarks.md.
    #[arg(id = "fabric-encryption", long, value_name = "HOW")]
    pub encryption: FabricEncryption,
}

/// Whether what two nodes write into each other's memory over TCP is encrypted. Other fabrics do
/// not use TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum FabricEncryption {
    /// By TLS.
    #[default]
    Tls,
    /// Not encrypted, if both nodes say so.
    None,
}

impl Default for FabricSettings {
    fn default() -> Self {
        Self {
            kind: FabricKind::Tcp,
            spin_us: 0,
            huge_pages: false,
            bandwidth_gbit: 0.0,
            compress: false,
            appliance: false,
            device: String::new(),
            encryption: FabricEncryption::Tls,
        }
    }
}

impl FabricSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        SettingError::within("fabric.spin-us", self.spin_us, 0..=10_000)?;
        if !(0.0..=100_000.0).contains(&self.bandwidth_gbit) {
            let remedy = "use a number from 0 (no limit) to 100000";
            return Err(SettingError::new("fabric.bandwidth-gbit", self.bandwidth_gbit, remedy));
        }
        self.device().map(drop)
    }

    /// Name, port and index of the group id.
    fn device(&self) -> Result<Option<(String, u8, u8)>, SettingError> {
        if self.device.is_empty() {
            return Ok(None);
        }
        let mut parts = self.device.split(':');
        let device = match (parts.next(), parts.next().map(u8::from_str), parts.next().map(u8::from_str)) {
            (Some(name), Some(Ok(port)), Some(Ok(gid))) => Some((name.to_owned(), port, gid)),
            _ => None,
        };
        match device.filter(|_| parts.next().is_none()) {
            Some(device) => Ok(Some(device)),
            None => Err(SettingError::new("fabric.device", &self.device, "use NAME:PORT:GID-INDEX")),
        }
    }

    fn config(&self) -> Result<FabricConfig, SettingError> {
        Ok(FabricConfig {
            spin: Duration::from_micros(self.spin_us),
            huge_pages: self.huge_pages,
            device: self.device()?,
            bare: self.encryption == FabricEncryption::None,
            ..FabricConfig::default()
        })
    }

    fn limit(&self) -> Option<Arc<TokenBucket>> {
        (self.bandwidth_gbit > 0.0).then(|| Arc::new(TokenBucket::gigabits(self.bandwidth_gbit)))
    }

    pub(crate) fn primary(&self) -> Result<FeedFabric, SettingError> {
        Ok(FeedFabric { kind: self.kind, config: self.config()?, limit: self.limit(), compress: self.compress })
    }

    pub(crate) fn standby(&self) -> Result<StandbyFabric, SettingError> {
        Ok(StandbyFabric { kind: self.kind, config: self.config()?, limit: self.limit(), appliance: self.appliance })
    }
}
