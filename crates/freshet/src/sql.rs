//! PostgreSQL's clients of a node.

use std::{sync::Arc, time::Duration};

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

/// Begins to serve them.
pub(crate) fn start(settings: &SqlSettings, node: &Arc<Node>) -> Result<Option<Server>, Failure> {
    let SqlListen::At(address) = settings.listen else { return Ok(None) };
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
    let tls = match (&settings.tls_certificates, &settings.tls_key) {
        (Some(certificates), Some(key)) => Some(Tls::from_files(certificates, key)?),
        _ => None,
    };
    let options = Options { addresses: vec![address], limits, tls, decoy: None };
    Ok(Some(Server::start(Arc::new(server), options)?))
}
