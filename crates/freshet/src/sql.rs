//! PostgreSQL's clients of a node.

use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use freshet_base::NodeId;
use freshet_engine::{
    Node,
    node::sessions::{Raw, TakeSession},
};
use freshet_postgres::{AccessRules, HandedOn, Limits, Options, Server, Takes, Tls};
use freshet_query::{
    inputs::MemoryPool,
    server::{General, Setup, SqlServer},
};

use crate::{
    Failure,
    config::{SqlListen, SqlSettings, listed},
    serve::NodeHost,
};

/// How long sessions may take to end what they are at when the node stops.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// How many workers its sessions need.
pub(crate) fn places(settings: &SqlSettings) -> usize {
    match settings.listen {
        SqlListen::Off => 0,
        // Each session has one, and needs another for a moment when it begins; tables and sequences
        // are made by further ones, and one asks for outcomes.
        SqlListen::At(_) => 2 * settings.connections + 10,
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
    addresses: Vec<SocketAddr>,
    socket_directory: Option<PathBuf>,
    files: Files,
    /// Keep the TCP ports until they are served.
    listeners: Vec<TcpListener>,
}

impl Prepared {
    /// The ports are free for others again: who comes before the node serves is to be refused, and
    /// not to wait.
    pub(crate) fn let_port_go(&mut self) {
        self.listeners.clear();
    }
}

/// The contents of the files that the configuration names. The files can be read again while
/// clients are served.
pub(crate) struct Files {
    tls: Option<Tls>,
    access: AccessRules,
}

impl Files {
    /// Reads and checks them.
    ///
    /// # Errors
    /// What is wrong in them.
    pub(crate) fn read(settings: &SqlSettings) -> Result<Self, Failure> {
        let access = match &settings.access {
            Some(path) => AccessRules::read(path)?,
            None => AccessRules::default(),
        };
        if access.asks_for_certificates() && settings.tls_ca.is_none() {
            let file = settings.access.as_deref().unwrap_or(Path::new("")).display();
            return Err(Failure::new(format!(
                "{file} asks for clients' certificates (cert, clientcert), and nothing says who may sign them: give \
                 --sql-tls-ca"
            )));
        }
        let tls = match (&settings.tls_certificates, &settings.tls_key) {
            (Some(certificates), Some(key)) => Some(Tls::from_files(certificates, key, settings.tls_ca.as_deref())?),
            _ => None,
        };
        Ok(Self { tls, access })
    }
}

/// Finds out whether they can be served; none if they are not to be.
///
/// # Errors
/// When the address, the Unix socket or the files cannot be used.
pub(crate) fn prepare(settings: &SqlSettings) -> Result<Option<Prepared>, Failure> {
    let SqlListen::At(addresses) = &settings.listen else { return Ok(None) };
    let files = Files::read(settings)?;
    let bind = |address: &SocketAddr| {
        TcpListener::bind(address).map_err(|cause| {
            let remedy = "choose another --sql-listen";
            Failure::new(format!("cannot listen for PostgreSQL clients at {address}: {cause}; {remedy}"))
        })
    };
    let listeners = addresses.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
    let socket_directory = match settings.socket_directory() {
        // Where other users keep this one from having a directory, clients come by TCP.
        Err(cause) if settings.socket_directory.is_none() => {
            tracing::warn!(%cause, "there is no Unix socket for PostgreSQL clients");
            None
        }
        directory => directory
            .map_err(|cause| Failure::new(format!("cannot make a Unix socket for PostgreSQL clients: {cause}")))?,
    };
    if let (Some(directory), Some(first)) = (&socket_directory, listeners.first()) {
        freshet_postgres::probe_socket(directory, first.local_addr()?.port())?;
    }
    Ok(Some(Prepared { addresses: addresses.clone(), socket_directory, files, listeners }))
}

/// Serves sessions that other nodes hand on.
struct Taking(Takes);

impl TakeSession for Taking {
    fn take(&self, connection: Raw, pid: i32, (by, own): (NodeId, bool)) {
        let Raw { socket, tls, ahead } = connection;
        if let Err(cause) = self.0.serve(socket, tls, ahead, HandedOn { pid, node: by.0, own }) {
            tracing::debug!(%cause, "a session that was handed on is not served");
        }
    }

    fn cancel(&self, pid: i32, key: &[u8]) {
        let _ = self.0.cancel(pid, key);
    }
}

/// Begins to serve them.
pub(crate) fn start(
    settings: &SqlSettings,
    prepared: Prepared,
    host: &NodeHost,
    memory: Arc<MemoryPool>,
) -> Result<Serving, Failure> {
    let node = &host.node;
    let Prepared { addresses, socket_directory, files, listeners } = prepared;
    drop(listeners);
    let of = Arc::downgrade(node);
    memory.within(move |bytes| of.upgrade().is_none_or(|node| node.admits_statements(bytes)));
    let of_role = settings.connections_per_role();
    let limits = Limits { connections: settings.connections, of_role, ..Limits::default() };
    let setup = Setup {
        node: Arc::clone(node),
        general: general(),
        limits: limits.clone(),
        first_role: settings.user.clone(),
        bounds: settings.bounds(node.memory().limit.unwrap_or(0)),
        memory,
        version: freshet_base::versions::RELEASE.to_owned(),
    };
    let sessions = SqlServer::new(setup).map_err(|error| Failure::new(error.to_string()))?;
    sessions.set_access(files.access);
    let options = Options { addresses, socket_directory, limits, tls: files.tls, ..Options::default() };
    let server = Arc::new(Server::start(Arc::new(sessions.clone()), options)?);
    host.counts(&sessions);
    node.serve_sessions(Some(Arc::new(Taking(server.takes()))));
    Ok(Serving { server, sessions })
}

/// PostgreSQL's clients being served.
#[derive(Clone)]
pub(crate) struct Serving {
    /// What accepts connections and speaks the protocol.
    pub(crate) server: Arc<Server>,
    /// What all sessions share: catalog, locks, settings.
    pub(crate) sessions: SqlServer,
}

impl Serving {
    /// Where they connect by TCP: the first address.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.server.addresses().first().copied()
    }

    /// All addresses where they connect by TCP, as the configuration writes them.
    pub(crate) fn listens(&self) -> String {
        listed(self.server.addresses())
    }

    /// The Unix socket where they connect, if there is one.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.server.socket()
    }

    /// Ends the sessions that nodes have handed on whom an operator has removed from the cluster:
    /// it is their word who those clients are.
    pub(crate) fn end_those_of_removed(&self, node: &Node) {
        if node.has_removed_any() {
            self.server.takes().end_those_of(|by| node.has_removed(NodeId(by)));
        }
    }

    /// Uses the contents of the files for new connections.
    pub(crate) fn take(&self, files: Files) {
        let rules = files.access.len();
        tracing::info!(
            tls = files.tls.is_some(),
            rules,
            "certificates and access file are read again for SQL's clients"
        );
        self.server.set_tls(files.tls);
        self.sessions.set_access(files.access);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{Read, Write},
        net::{Ipv4Addr, TcpStream},
        time::Instant,
    };

    use freshet_engine::{Domain, NodeConfig};

    use super::*;
    use crate::{disk::Disks, reload::InForce};

    /// The first message's kind that a client hears which calls itself `freshet`, and what the
    /// server asks for.
    fn first_answer(address: SocketAddr) -> (u8, [u8; 4]) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(b"\0\0\0\x16\0\x03\0\0user\0freshet\0\0").unwrap();
        let mut answer = [0; 9];
        stream.read_exact(&mut answer).unwrap();
        (answer[0], answer[5..].try_into().unwrap())
    }

    #[test]
    fn rules_are_read_again_and_stay_when_they_are_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let access = directory.path().join("access");
        fs::write(&access, "host all all all trust\n").unwrap();
        let settings = SqlSettings {
            listen: SqlListen::At(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))]),
            socket_directory: Some("off".into()),
            access: Some(access.clone()),
            connections: 4,
            ..SqlSettings::default()
        };
        let config = NodeConfig { domain: Domain::None, listen: ([127, 0, 0, 1], 0).into(), ..NodeConfig::default() };
        let node = Node::start(NodeConfig { workers: places(&settings), ..config }, |_| ()).unwrap();
        let memory = settings.bounds(0).pool();
        let host = NodeHost::new(Arc::clone(&node), Instant::now(), InForce::default(), Disks::default());
        let serving = start(&settings, prepare(&settings).unwrap().unwrap(), &host, memory).unwrap();
        let address = serving.address().unwrap();
        assert_eq!(first_answer(address), (b'R', [0; 4]), "trusted");

        fs::write(&access, "host all all all scram-sha-256\nhost all all all reject\n").unwrap();
        assert_eq!(first_answer(address), (b'R', [0; 4]), "nobody has had it read again");
        let reload = || Files::read(&settings).map(|files| serving.take(files));
        reload().unwrap();
        assert_eq!(first_answer(address), (b'R', [0, 0, 0, 10]), "asked for a password");

        fs::write(&access, "host all all all truth\n").unwrap();
        let refused = reload().unwrap_err().to_string();
        assert!(refused.contains("access:1: invalid authentication method \"truth\""), "{refused}");
        assert_eq!(first_answer(address), (b'R', [0, 0, 0, 10]), "as before");
        fs::remove_file(&access).unwrap();
        assert!(reload().unwrap_err().to_string().contains("cannot read the access file"));
        assert_eq!(first_answer(address), (b'R', [0, 0, 0, 10]), "as before");
        assert_eq!(Arc::into_inner(serving.server).unwrap().shut_down(GRACE), 0);
        node.stop().unwrap();
    }
}
