//! The keys that are the server's own; all others are the engine's (`NodeConfig`).

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use freshet_base::listen;
use freshet_engine::{
    SettingError,
    node::headings::{COMMON, LABORATORY},
};
use freshet_query::session::settings::Bounds;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    messages::{Format, Levels},
    pin::Cpus,
};

/// How a node is served to its clients and operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Args)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct ServerSettings {
    /// The control port, where operators and monitors connect: an address or name of this machine,
    /// or `*`, and a port, 7400 if none is given; port 0 takes a free one. See
    /// docs/operations.md#who-may-look-after-a-node.
    ///
    /// Change it when they are on other machines.
    #[serde(deserialize_with = "control_address")]
    #[arg(long, value_name = "ADDRESS", help_heading = COMMON, value_parser = control)]
    pub(crate) address: SocketAddr,
    /// Every client that reaches `address` over TCP may ask for the status.
    ///
    /// Set it for a monitor without a certificate.
    #[arg(long, help_heading = "Membership")]
    pub(crate) open_status: bool,
    /// Where health checks, metrics and a page for browsers are served over HTTP: a loopback
    /// address or `localhost`, and a port; port 0 takes a free one. None: nowhere. See
    /// docs/operations.md#health-checks-and-metrics.
    ///
    /// Set it for a load balancer, Kubernetes, Prometheus or a browser (docs/page.md).
    #[serde(deserialize_with = "http_address")]
    #[arg(long, value_name = "ADDRESS", help_heading = COMMON, value_parser = http)]
    pub(crate) http_listen: Option<SocketAddr>,
    /// The processors that the node may use, like `0` or `0,2-3`. None: all.
    ///
    /// Set it to keep nodes apart on one machine.
    #[arg(long, value_name = "CPUS", help_heading = LABORATORY)]
    pub(crate) pin: Option<Cpus>,
    /// What the node says about itself.
    #[command(flatten)]
    pub(crate) log: MessageSettings,
    /// How PostgreSQL's clients are served.
    #[command(flatten)]
    pub(crate) sql: SqlSettings,
}

/// What the node says about itself. In a file these keys are in the table `[log]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Args)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Log")]
pub(crate) struct MessageSettings {
    /// The format of messages on standard error.
    ///
    /// Use `json` where a program reads them.
    #[arg(id = "log-format", long, value_name = "FORMAT")]
    pub(crate) format: Format,
    /// Which messages are written: `error`, `warn`, `info`, `debug` or `trace`, and levels for
    /// parts (`freshet`, `engine`, `replication`, `recovery`, `log`, `fabric`, `query`, `postgres`,
    /// `stage`), as in `info,replication=debug`.
    ///
    /// Change it when you look for something.
    #[arg(id = "log-level", long, value_name = "LEVELS", help_heading = COMMON)]
    pub(crate) level: Levels,
}

/// Where clients of the control port connect, as it is written.
fn control(text: &str) -> Result<SocketAddr, String> {
    listen::address(text, Some(7400))
}

fn control_address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    control(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

/// Where HTTP is served, as it is written.
fn http(text: &str) -> Result<SocketAddr, String> {
    listen::address(text, None)
}

fn http_address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| http(&text)).transpose().map_err(serde::de::Error::custom)
}

/// As a list is written.
pub(crate) fn listed(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
}

/// Where PostgreSQL's clients connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum SqlListen {
    /// SQL is not served: `off`.
    Off,
    /// SQL is served at these addresses.
    At(Vec<SocketAddr>),
}

impl std::str::FromStr for SqlListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            text => listen::list(text, Some(5432)).map(Self::At).map_err(|cause| format!("{cause}; or \"off\"")),
        }
    }
}

impl TryFrom<String> for SqlListen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<SqlListen> for String {
    fn from(listen: SqlListen) -> Self {
        match listen {
            SqlListen::Off => "off".to_owned(),
            SqlListen::At(addresses) => listed(&addresses),
        }
    }
}

/// How PostgreSQL's clients are served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Args)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "SQL")]
pub(crate) struct SqlSettings {
    /// Where PostgreSQL's clients connect: addresses or names of this machine, with commas between,
    /// or `*` for all of its addresses; each with a port, 5432 if none is given. Port 0 takes a
    /// free one, `off`: nowhere.
    ///
    /// Change it to an address that others reach.
    #[arg(id = "sql-listen", long, value_name = "ADDRESS", help_heading = COMMON)]
    pub(crate) listen: SqlListen,
    /// The directory of the Unix socket `.s.PGSQL.<port>`, with the first port of `sql.listen`;
    /// `off`: no socket. None: `freshet` in `$XDG_RUNTIME_DIR`, or `/tmp/freshet-<uid>`, made with
    /// mode 0700; where another user has taken that, `/tmp/freshet-<uid>-1` to `-7`. Any other
    /// directory must exist, and its mode says who may connect.
    ///
    /// Use `/run/postgresql` or the like for clients of other users.
    #[arg(id = "sql-socket-directory", long, value_name = "DIR", help_heading = COMMON)]
    pub(crate) socket_directory: Option<PathBuf>,
    /// A file that says which clients get in and how they authenticate, with the lines of
    /// PostgreSQL's `pg_hba.conf`. None: the user who runs the server, and root, need no password
    /// at the Unix socket; all others need their role's. See docs/operations.md#who-may-log-in.
    ///
    /// Set it where clients come over a network.
    #[arg(id = "sql-access", long, value_name = "FILE", help_heading = COMMON)]
    pub(crate) access: Option<PathBuf>,
    /// How many clients at once, 1 to 10000. Each has a thread, and places among the node's
    /// workers.
    ///
    /// Raise it for many clients without a pooler.
    #[arg(id = "sql-connections", long, value_name = "N", help_heading = COMMON)]
    pub(crate) connections: usize,
    /// How many of them one role may have that is no superuser and has no CONNECTION LIMIT of its
    /// own, so that no role keeps all others out. 0: nine tenths.
    ///
    /// Lower it where strangers may log in.
    #[arg(id = "sql-role-connections", long, value_name = "N", help_heading = LABORATORY)]
    pub(crate) role_connections: usize,
    /// The superuser that a new node has, without a password, and the database named after it
    /// (docs/sql.md#databases).
    ///
    /// Change it before the first start.
    #[arg(id = "sql-user", long, value_name = "NAME")]
    pub(crate) user: String,
    /// The certificates with which TLS is offered, in PEM, the server's own first. None: no TLS.
    ///
    /// Set it when clients come over a network.
    #[arg(id = "sql-tls-certificates", long, value_name = "FILE", help_heading = COMMON)]
    pub(crate) tls_certificates: Option<PathBuf>,
    /// The key of these certificates, in PEM.
    ///
    /// Set it with them.
    #[arg(id = "sql-tls-key", long, value_name = "FILE", help_heading = COMMON)]
    pub(crate) tls_key: Option<PathBuf>,
    /// The authorities that must have signed clients' certificates, in PEM. Clients without a
    /// certificate are refused only if a rule of the access file says `cert` or `clientcert`.
    ///
    /// Set it where clients authenticate by certificates.
    #[arg(id = "sql-tls-ca", long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// How much memory all sessions together may keep for their queries; a statement that needs
    /// more gets 53200. It is part of `memory-bytes`. 0: a quarter of that.
    ///
    /// Lower it where tables fill the machine; raise it where queries are large and tables small.
    #[arg(id = "sql-memory-bytes", long, value_name = "BYTES", help_heading = LABORATORY)]
    pub(crate) memory_bytes: u64,
    /// How much memory one session may keep: its cursors and portals, prepared statements, settings
    /// and parameters, and the statement that it runs. No less than `sql.statement-memory-bytes`,
    /// and no more than `sql.memory-bytes`.
    ///
    /// Lower it where strangers may log in.
    #[arg(id = "sql-session-memory-bytes", long, value_name = "BYTES", help_heading = LABORATORY)]
    pub(crate) session_memory_bytes: u64,
    /// How much memory a statement or a cursor may keep: sorts, groups, hash tables, results that
    /// wait. No more than `sql.memory-bytes`. A session may keep 1 GiB, or as much as a statement.
    /// `freshet.query_memory` begins with this, and no role can set it higher.
    ///
    /// Raise it for large sorts.
    #[arg(id = "sql-statement-memory-bytes", long, value_name = "BYTES", hide = true)]
    pub(crate) statement_memory_bytes: u64,
    /// `statement_timeout` of sessions that do not set it. 0: none.
    ///
    /// Set it where a forgotten statement would be in the way of others.
    #[arg(id = "sql-statement-timeout-ms", long, value_name = "MS", help_heading = LABORATORY)]
    pub(crate) statement_timeout_ms: u64,
    /// `idle_in_transaction_session_timeout` of sessions that do not set it. 0: none. An open
    /// transaction keeps old versions in memory.
    ///
    /// Set it where clients forget to commit.
    #[arg(id = "sql-idle-in-transaction-timeout-ms", long, value_name = "MS", help_heading = LABORATORY)]
    pub(crate) idle_in_transaction_timeout_ms: u64,
    /// How old the snapshot of an open transaction may be. Beyond that the transaction ends with
    /// 72000, whatever its role has set: at once if it is idle. 0: as old as it likes. See
    /// docs/sql.md#old-snapshots.
    ///
    /// Set it where nobody is to hold old versions for longer.
    #[arg(id = "sql-snapshot-max-age-ms", long, value_name = "MS", help_heading = LABORATORY)]
    pub(crate) snapshot_max_age_ms: u64,
    /// How much memory old versions may take that are kept for open transactions. Beyond that the
    /// transaction with the oldest snapshot ends with 72000. 0: a quarter of `memory-bytes`. Where
    /// 95 % of `memory-bytes` are taken, a 64th of that.
    ///
    /// Raise it for long reports beside many changes.
    #[arg(id = "sql-snapshot-max-bytes", long, value_name = "BYTES", hide = true)]
    pub(crate) snapshot_max_bytes: u64,
    /// `idle_session_timeout` of sessions that do not set it. 0: none.
    ///
    /// Set it where clients without a pooler leave connections open.
    #[arg(id = "sql-idle-session-timeout-ms", long, value_name = "MS", help_heading = LABORATORY)]
    pub(crate) idle_session_timeout_ms: u64,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 7400)),
            open_status: false,
            http_listen: None,
            pin: None,
            log: MessageSettings::default(),
            sql: SqlSettings::default(),
        }
    }
}

impl Default for SqlSettings {
    fn default() -> Self {
        Self {
            listen: SqlListen::At(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 5432))]),
            socket_directory: None,
            access: None,
            connections: 100,
            role_connections: 0,
            user: "freshet".to_owned(),
            tls_certificates: None,
            tls_key: None,
            tls_ca: None,
            memory_bytes: 0,
            session_memory_bytes: 1 << 30,
            statement_memory_bytes: 256 << 20,
            statement_timeout_ms: 0,
            idle_in_transaction_timeout_ms: 0,
            snapshot_max_age_ms: 0,
            snapshot_max_bytes: 0,
            idle_session_timeout_ms: 0,
        }
    }
}

impl SqlSettings {
    /// # Errors
    /// The first key with a value that cannot be used.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        let bytes = 1 << 20..=1 << 50;
        // What sessions can set at most.
        let time = 0..=i32::MAX as u64;
        SettingError::within("sql.connections", self.connections, 1..=10_000)?;
        SettingError::within("sql.role-connections", self.role_connections, 0..=10_000)?;
        if self.memory_bytes != 0 {
            SettingError::within("sql.memory-bytes", self.memory_bytes, bytes.clone())?;
        }
        SettingError::within("sql.session-memory-bytes", self.session_memory_bytes, bytes.clone())?;
        SettingError::within("sql.statement-memory-bytes", self.statement_memory_bytes, bytes.clone())?;
        SettingError::within("sql.statement-timeout-ms", self.statement_timeout_ms, time.clone())?;
        let idle_in_transaction = self.idle_in_transaction_timeout_ms;
        SettingError::within("sql.idle-in-transaction-timeout-ms", idle_in_transaction, time.clone())?;
        SettingError::within("sql.snapshot-max-age-ms", self.snapshot_max_age_ms, time.clone())?;
        if self.snapshot_max_bytes != 0 {
            SettingError::within("sql.snapshot-max-bytes", self.snapshot_max_bytes, bytes.clone())?;
        }
        SettingError::within("sql.idle-session-timeout-ms", self.idle_session_timeout_ms, time)?;
        let shown = |path: &Option<PathBuf>| path.as_ref().map_or("none".to_owned(), |path| path.display().to_string());
        if self.tls_certificates.is_some() != self.tls_key.is_some() {
            let remedy = "certificates and their key belong together: give both, or none";
            return Err(SettingError::new("sql.tls-key", shown(&self.tls_key), remedy));
        }
        if self.tls_ca.is_some() && self.tls_key.is_none() {
            let remedy = "clients show certificates through TLS only: give sql.tls-certificates and sql.tls-key";
            return Err(SettingError::new("sql.tls-ca", shown(&self.tls_ca), remedy));
        }
        Ok(())
    }

    /// How many sessions one role may have for which nothing else was said.
    pub(crate) fn connections_per_role(&self) -> usize {
        match self.role_connections {
            0 => (self.connections - self.connections / 10).max(1),
            most => most,
        }
    }

    /// The directory for the Unix socket, which exists; none for no socket.
    ///
    /// # Errors
    /// When it does not exist, or when the default directory cannot be used.
    pub(crate) fn socket_directory(&self) -> io::Result<Option<PathBuf>> {
        match &self.socket_directory {
            Some(off) if off.as_os_str() == "off" => Ok(None),
            Some(directory) if directory.is_dir() => Ok(Some(directory.clone())),
            Some(directory) => {
                let why = format!(
                    "{} is not a directory: make it, or choose another --sql-socket-directory",
                    directory.display()
                );
                Err(io::Error::new(io::ErrorKind::NotFound, why))
            }
            None => freshet_base::run_directory().map(Some),
        }
    }

    /// What sessions begin with, and may not exceed, where the node may take `node` bytes of
    /// memory; 0: as many as there are.
    pub(crate) fn bounds(&self, node: u64) -> Bounds {
        let memory = match self.memory_bytes {
            0 if node == 0 => Bounds::default().memory,
            0 => (node / 4) as usize,
            bytes => bytes as usize,
        };
        let session_memory = memory.min(self.session_memory_bytes.max(self.statement_memory_bytes) as usize);
        Bounds {
            memory,
            session_memory,
            statement_memory: memory.min(self.statement_memory_bytes as usize),
            statement_timeout: Duration::from_millis(self.statement_timeout_ms),
            idle_in_transaction_timeout: Duration::from_millis(self.idle_in_transaction_timeout_ms),
            idle_session_timeout: Duration::from_millis(self.idle_session_timeout_ms),
            snapshot_age: Duration::from_millis(self.snapshot_max_age_ms),
            snapshot_bytes: self.snapshot_max_bytes,
        }
    }
}
