//! etcd in the place of a witness: where it keeps what a witness would
//! ([`freshet_replication::register`]).

use std::{fs, path::Path, time::Duration};

use freshet_base::{ClusterId, NodeId, private};
use freshet_etcd::{Etcd, EtcdConfig, Login, Tls};
use freshet_membership::Files;
use freshet_replication::register::{Keeper, Kept, RegisterWitness};
use xxhash_rust::xxh3::xxh3_64;

use super::{config::NodeConfig, start::StartError};

/// What is shown as the address of etcd begins so.
pub const ETCD: &str = "etcd ";

/// One key of etcd.
struct KeyOfEtcd {
    etcd: Etcd,
    key: String,
}

impl Keeper for KeyOfEtcd {
    fn read(&self, patience: Duration) -> Result<Kept, String> {
        let found = self.etcd.read(&self.key, patience).map_err(|error| error.to_string())?;
        Ok(Kept { place: found.cluster, revision: found.revision, value: found.value })
    }

    fn swap(&self, revision: u64, value: &[u8], patience: Duration) -> Result<bool, String> {
        self.etcd.swap(&self.key, revision, value, patience).map_err(|error| error.to_string())
    }
}

fn login(path: &Path) -> Result<Login, StartError> {
    private::check_file(path).map_err(|open| StartError::Config(open.to_string()))?;
    let text = fs::read_to_string(path);
    let text = text.map_err(|cause| StartError::Config(format!("cannot read {}: {cause}", path.display())))?;
    let line = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
    let login = line.split_once(':').filter(|(user, _)| !user.is_empty() && !line.contains(['\r', '\n']));
    let (user, password) = login.ok_or_else(|| {
        StartError::Config(format!("witness.etcd-user-file, {}: write one line, USER:PASSWORD", path.display()))
    })?;
    Ok(Login { user: user.to_owned(), password: password.to_owned() })
}

/// What stands in the witness's place, if that is configured. Connects to nothing yet.
///
/// # Errors
/// [`StartError::Config`]: a file cannot be used, or an endpoint is none.
pub(super) fn witness(config: &NodeConfig, cluster: ClusterId) -> Result<Option<RegisterWitness>, StartError> {
    let settings = &config.witness;
    if settings.etcd.is_empty() {
        return Ok(None);
    }
    if !config.rule().takes_witness() {
        return Err(StartError::Config(format!(
            "witness.etcd: leave it out, since at the level {} a witness has no vote: commits count nodes with data. \
             It is of use at the levels majority, and 2-safe without least-in-sync",
            config.safety
        )));
    }
    let (endpoints, path) = settings.places();
    let tls = settings.etcd_certificates.as_deref().map(|folder| {
        let Files { certificate, key, authority, .. } = Files::of_operator(folder);
        Tls { authority, own: certificate.exists().then_some((certificate, key)) }
    });
    let etcd =
        Etcd::new(EtcdConfig { endpoints, tls, login: settings.etcd_user_file.as_deref().map(login).transpose()? });
    let etcd = etcd.map_err(|error| StartError::Config(format!("witness.etcd: {error}")))?;
    let key = format!("{}/{cluster}/witness", if path.is_empty() { "/freshet" } else { path });
    // The same on each node. Which value it is, that says itself.
    let node = NodeId(xxh3_64(key.as_bytes()).max(1));
    let address = format!("{ETCD}{}", settings.etcd.join(","));
    let attempt = settings.attempt(Duration::from_millis(config.lease_ms));
    Ok(Some(RegisterWitness::new(node, cluster, address, KeyOfEtcd { etcd, key }, attempt)))
}
