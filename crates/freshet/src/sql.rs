//! PostgreSQL's clients of a node.

use std::{
    net::{SocketAddr, TcpListener},
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

/// The certificates and the key, read from their files.
///
/// # Errors
/// When they cannot be used.
pub(crate) fn tls(settings: &SqlSettings) -> Result<Option<Tls>, Failure> {
    match (&settings.tls_certificates, &settings.tls_key) {
        (Some(certificates), Some(key)) => Ok(Some(Tls::from_files(certificates, key)?)),
        _ => Ok(None),
    }
}

/// Finds out whether they can be served; none if they are not to be.
///
/// # Errors
/// When the address cannot be had, or certificate and key cannot be used.
pub(crate) fn prepare(settings: &SqlSettings) -> Result<Option<Prepared>, Failure> {
    let SqlListen::At(address) = settings.listen else { return Ok(None) };
    let tls = tls(settings)?;
    let listener = TcpListener::bind(address).map_err(|cause| {
        Failure::new(format!("cannot listen for PostgreSQL clients at {address}: {cause}; choose another --sql-listen"))
    })?;
    Ok(Some(Prepared { address, tls, listener: Some(listener) }))
}

/// They are served.
pub(crate) struct Serving {
    /// The protocol.
    pub(crate) server: Arc<Server>,
    /// What sessions share.
    pub(crate) sessions: SqlServer,
}

/// Begins to serve them.
pub(crate) fn start(settings: &SqlSettings, prepared: Prepared, node: &Arc<Node>) -> Result<Serving, Failure> {
    let Prepared { address, tls, listener } = prepared;
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
    let sessions = SqlServer::new(setup).map_err(|error| Failure::new(error.to_string()))?;
    let options = Options { addresses: vec![address], limits, tls, decoy: None };
    let server = Server::start(Arc::new(sessions.clone()), options)?;
    Ok(Serving { server: Arc::new(server), sessions })
}
