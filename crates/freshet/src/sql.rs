//! PostgreSQL's clients of a node.

use std::{
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use freshet_engine::Node;
use freshet_postgres::{Limits, Options, Server, Tls};
use freshet_query::server::{General, Setup, SqlServer};

use crate::{
    Failure,
    config::{SqlListen, SqlSettings},
    process,
};

/// How long sessions may take to end what they are at when the node stops.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// How many workers its sessions need.
pub(crate) fn places(settings: &SqlSettings) -> usize {
    match settings.listen {
        SqlListen::Off => 0,
        // Each session has one, and needs another for a moment when it begins; tables and sequences are made by further ones.
        SqlListen::At(_) => 2 * settings.connections + 8,
    }
}

/// Who runs general queries, in a build that has somebody.
fn general() -> Option<Arc<dyn General>> {
    #[cfg(feature = "general")]
    return Some(Arc::new(freshet_general::QueryEngine));
    #[cfg(not(feature = "general"))]
    None
}

/// What serving them needs that may not be there, found before a node is started, or made, for
/// them.
pub(crate) struct Prepared {
    address: SocketAddr,
    socket_directory: Option<PathBuf>,
    tls: Option<Tls>,
    /// Holds the port.
    listener: Option<TcpListener>,
}

impl Prepared {
    /// The port is free for others again: who comes before the node serves is to be refused, and
    /// not to wait.
    pub(crate) fn let_port_go(&mut self) {
        self.listener = None;
    }
}

/// Finds out whether they can be served; none if they are not to be.
///
/// # Errors
/// When the address cannot be had, or certificate and key cannot be used.
pub(crate) fn prepare(settings: &SqlSettings) -> Result<Option<Prepared>, Failure> {
    let SqlListen::At(address) = settings.listen else { return Ok(None) };
    let tls = match (&settings.tls_certificates, &settings.tls_key) {
        (Some(certificates), Some(key)) => Some(Tls::from_files(certificates, key, None)?),
        _ => None,
    };
    let listener = TcpListener::bind(address).map_err(|cause| {
        Failure::new(format!("cannot listen for PostgreSQL clients at {address}: {cause}; choose another --sql-listen"))
    })?;
    let socket_directory = settings
        .socket_directory()
        .map_err(|cause| Failure::new(format!("cannot make a Unix socket for PostgreSQL clients: {cause}")))?;
    Ok(Some(Prepared { address, socket_directory, tls, listener: Some(listener) }))
}

/// Begins to serve them.
pub(crate) fn start(settings: &SqlSettings, prepared: Prepared, node: &Arc<Node>) -> Result<Server, Failure> {
    let Prepared { address, socket_directory, tls, listener } = prepared;
    drop(listener);
    let limits = Limits { connections: settings.connections, ..Limits::default() };
    let setup = Setup {
        node: Arc::clone(node),
        general: general(),
        limits: limits.clone(),
        first_role: settings.user.clone(),
        bounds: settings.bounds(process::available_bytes()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let server = SqlServer::new(setup).map_err(|error| Failure::new(error.to_string()))?;
    let options = Options { addresses: vec![address], socket_directory, limits, tls, decoy: None };
    Ok(Server::start(Arc::new(server), options)?)
}
