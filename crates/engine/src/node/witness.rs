//! A witness: a node without data, that votes ([`freshet_cluster::witness`]).

use std::{fmt, net::SocketAddr, sync::Arc};

use freshet_base::{ClusterId, NodeId};
use freshet_fabric::tcp::Listener;
use freshet_log::{Control, ControlError, LogDirectory};
use freshet_membership::{Credentials, Part};
use freshet_replication::{
    endpoint::Endpoint,
    maintenance::Order,
    renewal::Renewal,
    terms::Terms,
    witness::{RunningWitness, WitnessId},
};

use super::{
    adapters::{ControlTerms, remembered_nodes, term_state},
    config::NodeConfig,
    ground::{self, random},
    membership,
    start::StartError,
};

/// A witness that runs. It ends when this is dropped.
pub struct WitnessNode {
    id: NodeId,
    cluster: ClusterId,
    credentials: Credentials,
    address: String,
    renewal: Renewal,
    // Dropped in this order: the directory is free only when no question is answered any more.
    endpoint: Endpoint,
    running: RunningWitness,
    directory: Arc<LogDirectory>,
}

impl fmt::Debug for WitnessNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WitnessNode({} at {})", self.id, self.address)
    }
}

const NO_NODE: &str = "a witness has to know a node of its cluster: name one with --join";

/// Warns where only nodes of this machine reach a witness whose cluster is on others.
fn look_at_address(config: &NodeConfig, address: &str) {
    let is_here = |address: &str| {
        let loopback = |address: SocketAddr| address.ip().is_loopback();
        address.starts_with("localhost:") || address.parse().is_ok_and(loopback)
    };
    if let Some(join) = &config.join
        && is_here(address)
        && !is_here(join)
    {
        tracing::warn!(address, join, "only this machine reaches this witness: say with --listen where others do");
    }
}

impl WitnessNode {
    /// Starts a witness. Of `config` only `directory`, `listen`, `advertise`, `join`, `peers` and
    /// `member` count: who is to be joined certifies a new one, and one of them knows the primary.
    /// Returns when it answers candidates; the primary asks it as soon as it has found that.
    ///
    /// # Errors
    /// [`StartError`]
    pub fn start(config: &NodeConfig) -> Result<Self, StartError> {
        config.check_reached()?;
        drop(Listener::bind(&config.listen.to_string())?);
        let path = &config.directory;
        let directory = match LogDirectory::open(path) {
            Err(ControlError::NoLog(_)) => Self::made(config)?,
            opened => opened?,
        };
        let control = directory.control();
        if !control.witness {
            let why = format!("{} is the directory of a node with data, which is no witness", path.display());
            return Err(StartError::Config(why));
        }
        let (id, cluster) = (control.node, control.cluster);
        let state = term_state(&control, path).map_err(StartError::Config)?;
        let directory = Arc::new(directory);
        let terms = Terms::new(state, Arc::new(ControlTerms(Arc::clone(&directory))));
        let credentials = membership::of_node(config, path, (id, cluster), &terms, (Part::Node, false))?;
        let endpoint = Endpoint::open(id, credentials.clone(), &config.listen.to_string())?;
        let address = config.advertise.clone().unwrap_or_else(|| endpoint.address().to_string());
        let mut known: Vec<_> = config.join.iter().chain(&config.peers).cloned().collect();
        // Until a primary has asked, that is all that says where its cluster is.
        config.join.iter().for_each(|join| terms.remember_address(join.clone()));
        known.extend(remembered_nodes(path));
        if known.is_empty() {
            return Err(StartError::Config(NO_NODE.into()));
        }
        look_at_address(config, &address);
        let (others, at) = (config.clone(), path.clone());
        let known_now = move || ground::known(&others, Some(&at));
        let renewal = Renewal::start(credentials.clone(), cluster, id, known_now);
        let renewal = renewal.map_err(|cause| StartError::System(cause.to_string()))?;
        let who = WitnessId { node: id, credentials: credentials.clone(), address: address.clone(), known };
        let running = RunningWitness::start(who, terms).map_err(|cause| StartError::System(cause.to_string()))?;
        endpoint.set_service(Some(running.service()));
        Ok(Self { id, cluster, credentials, address, renewal, endpoint, running, directory })
    }

    /// A new one's directory.
    fn made(config: &NodeConfig) -> Result<LogDirectory, StartError> {
        let path = &config.directory;
        if config.join.is_none() {
            return Err(StartError::Config(NO_NODE.into()));
        }
        LogDirectory::check_unused(path)?;
        let (id, cluster, credentials) = membership::of_new_node(config, Part::Node)?;
        let incarnation = Some(random()? as u64);
        let own = Control::new(cluster, id, config.log.segment_bytes, 1);
        let directory = LogDirectory::create(path, Control { witness: true, joins: true, incarnation, ..own })?;
        if !config.member.is_brought() {
            credentials.write(path)?;
        }
        Ok(directory)
    }

    /// Which node it is.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Whose witness it is.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The certificate that it shows to others.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// What keeps it from having a certificate of the authority that counts.
    pub fn certificate_trouble(&self) -> Option<String> {
        self.renewal.trouble()
    }

    /// Where other nodes reach it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Where it listens.
    pub fn bound_address(&self) -> SocketAddr {
        self.endpoint.address()
    }

    /// What an operator wants of its process.
    pub fn ordered(&self) -> Option<Order> {
        self.running.ordered()
    }

    /// Whether a primary has asked it since it was started.
    pub fn was_asked(&self) -> bool {
        self.running.was_asked()
    }

    /// Where it keeps what it has promised and noted.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }
}
