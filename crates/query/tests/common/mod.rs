//! A node with its SQL server, and clients of it.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod judge;
pub mod scripts;
pub mod wire;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_engine::{Domain, Node, NodeConfig, ProofSettings, Safety, executors};
use freshet_postgres::{AccessRules, Limits, Options, Server};
use freshet_query::{
    inputs::StatementExecutor,
    server::{General, Setup, SqlServer},
    session::settings::Bounds,
};
use tokio_postgres::{Client, Config, NoTls};

/// More than enough.
pub const SOON: Duration = Duration::from_secs(30);

/// A node with its SQL server.
pub struct SqlNode {
    pub node: Arc<Node>,
    pub server: SqlServer,
    front: Option<Server>,
}

/// How a small node is set up; in memory, unless it has a directory.
pub fn config(directory: Option<&Path>) -> NodeConfig {
    NodeConfig {
        directory: directory.map(Path::to_owned).unwrap_or_default(),
        domain: if directory.is_some() { Domain::File } else { Domain::None },
        listen: ([127, 0, 0, 1], 0).into(),
        safety: Safety::OneSafe,
        workers: 64,
        replay_threads: 1,
        // Where there is a standby, states are compared.
        state_proof: ProofSettings { interval_ms: 10, ..ProofSettings::default() },
        new_cluster: true,
        failover: freshet_engine::Failover::Manual,
        ..NodeConfig::default()
    }
}

impl SqlNode {
    pub fn start(config: NodeConfig) -> Self {
        Self::start_with(config, Arc::new(freshet_general::QueryEngine))
    }

    pub fn start_with(config: NodeConfig, general: Arc<dyn General>) -> Self {
        Self::start_within(config, general, Bounds::default())
    }

    pub fn start_within(config: NodeConfig, general: Arc<dyn General>, bounds: Bounds) -> Self {
        let node = Self::serve(config, general, bounds);
        node.server.set_access(AccessRules::parse("host all all 127.0.0.1/32 trust").unwrap());
        node
    }

    fn serve(config: NodeConfig, general: Arc<dyn General>, bounds: Bounds) -> Self {
        let node = Node::start_executing(config, Some(executors(StatementExecutor::default)), |_| ()).unwrap();
        let limits = Limits { connections: 40, of_role: 34, ..Limits::default() };
        let setup = Setup {
            node: Arc::clone(&node),
            general: Some(general),
            limits: limits.clone(),
            first_role: "freshet".to_owned(),
            bounds,
            memory: bounds.pool(),
            version: "test".to_owned(),
        };
        let server = SqlServer::new(setup).unwrap();
        let options = Options { addresses: vec!["127.0.0.1:0".parse().unwrap()], limits, ..Options::default() };
        let front = Server::start(Arc::new(server.clone()), options).unwrap();
        Self { node, server, front: Some(front) }
    }

    /// One with the default rules.
    pub fn guarded(config: NodeConfig) -> Self {
        Self::serve(config, Arc::new(freshet_general::QueryEngine), Bounds::default())
    }

    pub fn in_memory() -> Self {
        Self::start(config(None))
    }

    /// Ends all sessions, as a deposed primary does; returns how many have not ended.
    pub fn shut_down(&mut self) -> usize {
        self.front.take().unwrap().shut_down(Duration::ZERO)
    }

    /// Where clients find it; or the node that the environment names, so that what finds faults of
    /// this build can be tried on another one.
    pub fn address(&self) -> std::net::SocketAddr {
        let named = std::env::var("FRESHET_NODE").ok();
        named.map_or_else(|| self.front.as_ref().unwrap().addresses()[0], |it| it.parse().expect("host:port"))
    }

    /// A node in memory whose first session has run `sql`, and a second one that waits for locks no
    /// longer than a moment.
    pub fn for_two(sql: &str) -> (Self, Sql, Sql) {
        let node = Self::in_memory();
        let (one, other) = (node.connect(), node.connect());
        one.lines(sql);
        other.lines("SET lock_timeout = '100ms'");
        (node, one, other)
    }

    pub fn connect_as(&self, user: &str) -> Sql {
        Sql::connect(self.address(), user)
    }

    pub fn connect(&self) -> Sql {
        self.connect_as("freshet")
    }
}

impl Drop for SqlNode {
    fn drop(&mut self) {
        if let Some(front) = self.front.take() {
            let _ = front.shut_down(Duration::from_secs(1));
        }
        let _ = self.node.stop();
    }
}

/// A client that waits.
pub struct Sql {
    pub runtime: tokio::runtime::Runtime,
    pub client: Client,
}

impl Sql {
    pub fn connect(address: std::net::SocketAddr, user: &str) -> Self {
        Self::connect_with(address, user, None)
    }

    pub fn connect_with(address: std::net::SocketAddr, user: &str, password: Option<&str>) -> Self {
        Self::try_connect(address, user, password).unwrap()
    }

    /// A connection that may be refused.
    pub fn try_connect(
        address: std::net::SocketAddr,
        user: &str,
        password: Option<&str>,
    ) -> Result<Self, tokio_postgres::Error> {
        Self::open(&Self::config(address, user, password))
    }

    pub fn config(address: std::net::SocketAddr, user: &str, password: Option<&str>) -> Config {
        let mut config = Config::new();
        config.host(address.ip().to_string()).port(address.port()).user(user).dbname("freshet");
        if let Some(password) = password {
            config.password(password);
        }
        config
    }

    pub fn open(config: &Config) -> Result<Self, tokio_postgres::Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (client, connection) = runtime.block_on(config.connect(NoTls))?;
        runtime.spawn(connection);
        Ok(Self { runtime, client })
    }

    /// Runs statements; returns the rows of the last one that has any, as text.
    pub fn query(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, tokio_postgres::Error> {
        use tokio_postgres::SimpleQueryMessage::Row;
        let messages = self.runtime.block_on(self.client.simple_query(sql))?;
        let rows = messages.iter().filter_map(|message| match message {
            Row(row) => Some((0..row.len()).map(|n| row.get(n).map(str::to_owned)).collect()),
            _ => None,
        });
        Ok(rows.collect())
    }

    /// The same of statements that succeed, rows as lines of text.
    pub fn lines(&self, sql: &str) -> Vec<String> {
        let rows = self.query(sql).unwrap_or_else(|error| panic!("{sql}: {}", shown(&error)));
        let line = |row: Vec<Option<String>>| {
            row.into_iter().map(|value| value.unwrap_or_else(|| "NULL".to_owned())).collect::<Vec<_>>().join(" ")
        };
        rows.into_iter().map(line).collect()
    }

    /// The SQLSTATE of statements that fail.
    pub fn state(&self, sql: &str) -> String {
        let state = self.outcome(sql);
        assert_ne!(state, "00000", "{sql} has succeeded");
        state
    }

    /// The SQLSTATE of statements: 00000 when they succeed.
    pub fn outcome(&self, sql: &str) -> String {
        match self.query(sql) {
            Ok(_) => "00000".to_owned(),
            Err(error) => error.code().map_or_else(|| error.to_string(), |state| state.code().to_owned()),
        }
    }
}

/// The SQLSTATE with which a statement fails, if it ends.
pub fn ends(sql: &Sql, statement: &str) -> String {
    let asked = sql.runtime.block_on(async { tokio::time::timeout(SOON, sql.client.simple_query(statement)).await });
    match asked {
        Err(_) => "it does not end".to_owned(),
        Ok(Ok(_)) => "it succeeds".to_owned(),
        Ok(Err(error)) => error.code().map_or_else(|| "closed".to_owned(), |state| state.code().to_owned()),
    }
}

/// An error with what the server has said.
pub fn shown(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(report) => {
            format!("{} {} {}", report.code().code(), report.message(), report.detail().unwrap_or_default())
        }
        None => error.to_string(),
    }
}

/// Waits until something is so.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not so after {SOON:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
