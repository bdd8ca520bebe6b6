//! A server with tables in it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use freshet_engine::{Domain, Node, NodeConfig, Safety};
use freshet_general::QueryEngine;
use freshet_postgres::{
    Access, AccessRules, Backend, Limits, Opening, Parameters, Peer, Report, Session, Sessions, Startup, conversation,
};
use freshet_query::{
    server::{Setup, SqlServer},
    session::settings::Bounds,
};

use crate::message::{cut, field, message, query, startup};

/// The role that gets in without a password.
pub(crate) const ROLE: &str = "freshet";

/// What there is in the database: what the corpora are about.
const SCHEMA: [&str; 2] =
    [include_str!("../corpus/schema.sql"), include_str!("../../general/tests/general/fixture.sql")];

/// A server in memory.
#[derive(Clone)]
pub(crate) struct Fixture(Arc<Inner>);

struct Inner {
    node: Arc<Node>,
    server: SqlServer,
    limits: Limits,
    /// Of the conversation that was begun last: how to reach its session.
    reach: Mutex<Option<(Sessions, i32)>>,
    /// Why conversations were ended.
    ended: Mutex<Vec<String>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = self.node.stop();
    }
}

impl Fixture {
    /// A new one.
    pub fn new() -> Self {
        let config = NodeConfig {
            domain: Domain::None,
            listen: ([127, 0, 0, 1], 0).into(),
            safety: Safety::OneSafe,
            workers: 16,
            replay_threads: 1,
            new_cluster: true,
            ..NodeConfig::default()
        };
        let node = Node::start(config, |_| ()).expect("a node in memory starts");
        let limits = Limits { message: 16 << 20, start_up: Duration::from_secs(5), ..Limits::default() };
        let setup = Setup {
            node: Arc::clone(&node),
            general: Some(Arc::new(QueryEngine)),
            limits: limits.clone(),
            first_role: ROLE.to_owned(),
            bounds: Bounds::default(),
            memory: Bounds::default().pool(),
            version: "fuzzing".to_owned(),
        };
        let server = SqlServer::new(setup).expect("a server over a new node starts");
        server.set_access(
            AccessRules::parse("host all freshet all trust\nhost all all all scram-sha-256").expect("the rule is one"),
        );
        let fixture = Self(Arc::new(Inner { node, server, limits, reach: Mutex::default(), ended: Mutex::default() }));
        let [ours, general] = SCHEMA.map(|sql| query(sql.as_bytes()));
        let other = query(b"CREATE SCHEMA general; SET search_path = general");
        let bytes = [startup(&[("user", ROLE)]), ours, other, general, message(b'X', b"")].concat();
        let response = fixture.talk(&bytes, 4096);
        for (kind, body) in cut(&response).expect("whole messages") {
            assert!(kind != b'E', "the schema cannot be made: {:?} {:?}", field(body, b'M'), field(body, b'C'));
        }
        fixture
    }

    /// How much stack a session has, in bytes.
    pub fn stack(&self) -> usize {
        self.0.limits.stack
    }

    /// Lets a client say all this, read this many bytes at a time; returns what it is told. In this
    /// thread.
    pub fn talk(&self, bytes: &[u8], piece: usize) -> Vec<u8> {
        *self.reach() = None;
        self.ended().clear();
        conversation(Arc::new(self.clone()), self.0.limits.clone(), bytes, piece)
    }

    /// Cancels what the session does that is being talked to; from another thread.
    pub fn cancel(&self) {
        if let Some((sessions, pid)) = &*self.reach() {
            let _ = sessions.cancel(*pid);
        }
    }

    /// Ends the session that is being talked to; from another thread.
    pub fn terminate(&self) {
        if let Some((sessions, pid)) = &*self.reach() {
            let _ = sessions.terminate(*pid);
        }
    }

    fn reach(&self) -> std::sync::MutexGuard<'_, Option<(Sessions, i32)>> {
        self.0.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why conversations were ended by the server, since the last one began.
    pub fn ended(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.0.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for Fixture {
    fn access(&self, startup: &Startup, peer: &Peer) -> Result<Access, Report> {
        self.0.server.access(startup, peer)
    }

    fn open(&self, opening: Opening<'_>, serve: &mut dyn FnMut(&mut dyn Session, &Parameters)) -> Result<(), Report> {
        *self.reach() = Some((opening.sessions.clone(), opening.pid));
        self.0.server.open(opening, serve)
    }

    fn ended(&self, peer: &Peer, reason: &Report) {
        self.ended().push(reason.to_string());
        self.0.server.ended(peer, reason);
    }
}
