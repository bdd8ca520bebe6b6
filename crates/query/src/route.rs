//! Which node serves a session: the setting freshet.route.

use std::{sync::Arc, time::Duration};

use freshet_base::Term;
use freshet_engine::{
    Node,
    node::sessions::{DoneBy, Raw, Way},
};
use freshet_postgres::{Asks, Hop, Link, Report, Route, Served, Startup};
use freshet_sql::{SqlError, SqlState};

mod asks;

use crate::{
    schema::{Oid, Schema},
    server::Shared,
    session::{
        settings::{By, Settings, canonical},
        settings_of,
        wire::report,
    },
};

/// The name of the setting.
const SETTING: &str = "freshet.route";
/// A request to cancel may take so long for each step.
const CANCELS: Duration = Duration::from_secs(1);

/// Who is to serve a session: by the setting of the start-up packet, else of the role and the
/// database. What is wrong with any of them, opening the session says.
///
/// # Errors
/// 57P03 when it wants a standby, and this node is none.
pub fn served(shared: &Shared, startup: &Startup) -> Result<Served, Report> {
    let wanted = wanted(shared, startup).unwrap_or_default();
    let standby = shared.is_standby();
    match wanted.as_str() {
        "primary" if standby => Ok(Served::OnPrimary(Box::new(ByCluster(Arc::clone(&shared.node))))),
        "any" => Ok(Served::Divided(Box::new(ByCluster(Arc::clone(&shared.node))))),
        "standby" if !standby => {
            let message = "this node is the primary, and freshet.route wants a standby";
            let error = SqlError::new(SqlState::CANNOT_CONNECT_NOW, message);
            Err(report(error.with_hint("Connect to a standby.")))
        }
        _ => Ok(Served::Here),
    }
}

fn wanted(shared: &Shared, startup: &Startup) -> Option<String> {
    let ours = |(name, value): &(String, String)| (canonical(name) == SETTING).then(|| value.clone());
    let value = match startup.settings().ok()?.iter().rev().find_map(ours) {
        Some(value) => value,
        None => {
            let worker = shared.catalog.worker().ok()?;
            let transaction = worker.begin_read_only();
            let common = shared.catalog.shared(&transaction).ok()?;
            let role = common.role(startup.user())?.oid;
            let database = common.database_named(startup.database())?.oid;
            of_catalog(&*shared.catalog.find(&transaction, database).ok()??, role)?
        }
    };
    Settings::default().checked(SETTING, &value, By::Catalog).ok()
}

fn of_catalog(schema: &Schema, role: Oid) -> Option<String> {
    let all = settings_of(schema, role);
    all.into_iter().rev().find(|(_, setting)| canonical(&setting.name) == SETTING).map(|(_, it)| it.value.clone())
}

/// To the primary and to standbys, by way of the cluster's own connections.
struct ByCluster(Arc<Node>);

impl Route for ByCluster {
    fn connect(&self, pid: i32, patience: Duration) -> Result<(Hop, Box<dyn Link>), String> {
        let Way { connection, term, address, own } = self.0.way_to_primary(pid, patience).inspect_err(|cause| {
            tracing::debug!(cause, "a session waits for a primary");
        })?;
        Ok((hop(connection)?, Box::new(OfTerm { node: Arc::clone(&self.0), term, address, own })))
    }

    fn connect_reader(
        &self,
        pid: i32,
        turn: usize,
        old: bool,
        patience: Duration,
    ) -> Result<(Hop, Box<dyn Link>), String> {
        let Way { connection, address, own, .. } =
            self.0.way_to_reader(pid, turn, old, patience).inspect_err(|cause| {
                tracing::debug!(cause, "a session reads on the primary");
            })?;
        Ok((hop(connection)?, Box::new(Reader { node: Arc::clone(&self.0), address, own })))
    }

    fn goes(&self, reads: bool, again: bool) {
        self.0.count_divided(match (reads, again) {
            (true, _) => DoneBy::Standby,
            (false, false) => DoneBy::Primary,
            (false, true) => DoneBy::PrimaryInstead,
        });
    }

    fn asks(&self, sql: &str) -> Vec<Asks> {
        asks::asks(sql)
    }
}

fn hop(connection: Raw) -> Result<Hop, String> {
    Hop::new(connection.socket, connection.tls, connection.ahead).map_err(|cause| cause.to_string())
}

fn cancel(node: &Node, address: &str, pid: i32, key: &[u8]) {
    if let Err(cause) = node.cancel_session(address, pid, key, CANCELS) {
        tracing::debug!(cause, "a request to cancel is not passed on");
    }
}

/// The primary of a term.
struct OfTerm {
    node: Arc<Node>,
    term: Term,
    address: String,
    own: bool,
}

impl Link for OfTerm {
    fn is_past(&self) -> bool {
        self.node.is_past(self.term)
    }

    fn is_own(&self) -> bool {
        self.own
    }

    fn cancel(&self, pid: i32, key: &[u8]) {
        cancel(&self.node, &self.address, pid, key);
    }
}

/// A standby that reads.
struct Reader {
    node: Arc<Node>,
    address: String,
    own: bool,
}

impl Link for Reader {
    fn is_past(&self) -> bool {
        self.node.is_no_reader(&self.address)
    }

    fn is_own(&self) -> bool {
        self.own
    }

    fn cancel(&self, pid: i32, key: &[u8]) {
        cancel(&self.node, &self.address, pid, key);
    }
}
