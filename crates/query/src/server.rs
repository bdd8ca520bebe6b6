//! What all sessions of a node share, and how clients get in.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant, SystemTime},
};

use freshet_base::wait;
use freshet_engine::{Database, Lsn, Node, NodeStatus};
use freshet_postgres::{
    Access, AccessRules, Backend, Claim, FailedLogin, Limits, Opening, Parameters, Peer, Proof, Report, Required,
    Served, Sessions, Startup, Verifier,
};
pub use freshet_sql::general::General;
use freshet_sql::{
    SqlError, SqlState,
    memory::Pool,
    types::{Timestamp, datetime},
};

use crate::{
    advisory::{AdvisoryLock, AdvisoryLocks},
    execute::RowIdSource,
    exported::ExportedSnapshots,
    inputs::Dictionary,
    locks::{LockManager, OtherWaits, TableLock},
    login_log,
    notify::Notifications,
    old_snapshots::OldSnapshots,
    outcome::Outcomes,
    route,
    schema::{Catalog, Entry, Oid, Role, Schema, Sequence, TableInfo},
    sequence::{Position, Sequences},
    session::{Session, settings::Bounds, wire::report},
    statistics::{self, Summary},
    system::{
        SessionInfo, SystemView,
        activity::{Activity, RECORD_WAIT, Registry, Wait},
        size::{self, TableSize},
    },
    wait::waiting,
};

/// The answer to a password that is not accepted: it does not depend on the role.
const HINT: &str = "A role that has no password gets one by ALTER ROLE ... PASSWORD, from the user who runs the server, \
                    who needs none at the Unix socket.";
/// How often a wait for a fresh read view looks: what makes it fresh is that time passed and the
/// primary was heard, which wakes nobody.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What all sessions of a node share.
pub struct Shared {
    /// The node that is served.
    pub node: Arc<Node>,
    /// The node's database, on which sessions run transactions.
    pub database: Database,
    /// What there is in it.
    pub catalog: Catalog,
    /// Locks on tables.
    pub locks: Arc<LockManager>,
    /// Locks on numbers.
    pub advisory: Arc<AdvisoryLocks>,
    /// Snapshots that transactions have exported.
    pub exported: Arc<ExportedSnapshots>,
    /// Which snapshots are too old.
    pub old_snapshots: Arc<OldSnapshots>,
    /// Which session listens to which channel.
    pub notifications: Notifications,
    /// Where sequences stand.
    pub sequences: Sequences,
    /// Which transactions are committed.
    pub outcomes: Arc<Outcomes>,
    /// Gives ids to rows that have no other key.
    pub row_ids: Arc<RowIdSource>,
    /// What recorded transactions say again and again.
    pub(crate) words: Dictionary,
    /// Who runs general queries, if anybody.
    pub general: Option<Arc<dyn General>>,
    /// How much clients may have.
    pub limits: Limits,
    /// When the server was started.
    pub started: SystemTime,
    /// The role that is there from the beginning.
    pub first_role: String,
    /// What sessions begin with, and may not exceed.
    pub bounds: RwLock<Bounds>,
    /// The memory of all of them.
    pub memory: Arc<Pool>,
    /// The version of this program.
    pub version: String,
    /// Who is connected.
    pub sessions: Arc<Registry>,
    /// One connection at a time looks up its role, so guesses take at most one of the workers'
    /// places.
    asking: Mutex<()>,
    /// Which clients get in, and by which proof.
    access: RwLock<Arc<AccessRules>>,
    /// Whether this node has been seen to be primary, and has what one needs.
    made: Mutex<bool>,
}

/// A node's SQL server, for the protocol.
#[derive(Clone)]
pub struct SqlServer(Arc<Shared>);

/// How a server is to be.
pub struct Setup {
    /// The node that is to be served.
    pub node: Arc<Node>,
    /// Who runs general queries, if anybody.
    pub general: Option<Arc<dyn General>>,
    /// How much clients may have.
    pub limits: Limits,
    /// The name of the superuser that is made with a new database, without a password.
    pub first_role: String,
    /// What sessions begin with, and may not exceed.
    pub bounds: Bounds,
    /// The memory of all sessions, [`Bounds::pool`], and of whatever else takes of it.
    pub memory: Arc<Pool>,
    /// The version of this program.
    pub version: String,
}

/// Who waits for whose records, as the engine knows.
#[derive(Clone)]
struct Records(Database);

impl OtherWaits for Records {
    fn waits_for(&self, waiter: usize) -> Vec<usize> {
        self.0.core().waits_for(waiter)
    }
}

/// Who waits for tables and records.
struct Waits {
    tables: Arc<LockManager>,
    records: Records,
}

impl OtherWaits for Waits {
    fn waits_for(&self, waiter: usize) -> Vec<usize> {
        let mut all = self.tables.waits_for(waiter);
        all.extend(self.records.waits_for(waiter));
        all
    }
}

impl Shared {
    /// The settings of a session that begins now.
    pub fn bounds(&self) -> Bounds {
        *self.bounds.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes what a primary needs and may not have yet.
    fn make_catalog(&self) -> Result<(), SqlError> {
        self.catalog.make(&self.first_role)?;
        self.sequences.make()?;
        self.outcomes.make()
    }

    /// Makes what a primary needs and may not have yet, and removes what the one before it may have
    /// left. Does nothing on a standby; the next time it removes old tokens.
    fn make(&self) -> Result<(), SqlError> {
        if self.is_standby() {
            return Ok(());
        }
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if *made {
            drop(made);
            self.outcomes.clean();
            return Ok(());
        }
        self.make_catalog()?;
        if let Err(cause) = self.outcomes.begin_run() {
            // The first who asks for a token, or for the outcome of an earlier one, tries again.
            tracing::debug!(%cause, "standbys do not know outcomes of earlier terms yet");
        }
        *made = true;
        drop(made);
        crate::ddl::effects::sweep(&self.catalog, &self.sequences)
    }

    /// Whether this node only reads.
    pub fn is_standby(&self) -> bool {
        self.database.core().snapshots.primary().is_none()
    }

    /// Waits until what has this LSN can be seen here.
    ///
    /// # Errors
    /// 57014 when that takes too long, and what `interrupted` says.
    pub fn wait_visible(
        &self,
        lsn: Lsn,
        deadline: Instant,
        interrupted: &dyn Fn() -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        // A view ends before its LSN: what is at this one must be in it.
        let lsn = Lsn(lsn.0.saturating_add(1));
        if waiting(interrupted, |patience| self.node.wait_visible(lsn, patience.until(deadline))).is_ok() {
            return Ok(());
        }
        interrupted()?;
        let message = format!("this node does not show LSN {} yet", lsn.0 - 1);
        let error = SqlError::new(SqlState::QUERY_CANCELED, message);
        Err(error.with_hint("See freshet.read_after_timeout, or read on the primary."))
    }

    /// Whether what this node has in memory may be read.
    ///
    /// # Errors
    /// XX001 on a standby whose state is in doubt.
    pub fn check_proof(&self) -> Result<(), SqlError> {
        match self.node.proof().withdrawn().filter(|_| self.is_standby()) {
            None => Ok(()),
            Some(doubt) => {
                let message = format!("the state of this standby is in doubt: {doubt}");
                Err(SqlError::new(SqlState::DATA_CORRUPTED, message).with_hint("Read on another node."))
            }
        }
    }

    /// Waits until the read view is no older than `limit`; at most for as long.
    ///
    /// # Errors
    /// 57014 when it stays older, and what `interrupted` says.
    pub fn wait_fresh(&self, limit: Duration, interrupted: &dyn Fn() -> Result<(), SqlError>) -> Result<(), SqlError> {
        let deadline = Instant::now() + limit;
        let mut age = None;
        let look = || {
            age = self.node.staleness();
            age.filter(|age| *age <= limit).map(drop)
        };
        if waiting(interrupted, |patience| wait::poll(LOOK_EVERY, patience.until(deadline), look)).is_ok() {
            return Ok(());
        }
        interrupted()?;
        let age = age.map_or_else(|| "of unknown age".to_owned(), |age| format!("{} ms old", age.as_millis()));
        let message = format!("what this standby shows is {age}, more than freshet.max_staleness allows");
        Err(SqlError::new(SqlState::QUERY_CANCELED, message))
    }
}

impl Shared {
    /// What this node has counted since it was started, of sessions, transactions and statements.
    pub fn summary(&self) -> Summary {
        let mut now = statistics::summary::Sessions::default();
        for session in self.sessions.all() {
            now.now += 1;
            match session.activity() {
                Activity::Idle => {}
                Activity::Active => {
                    now.active += 1;
                    now.waiting += u64::from(self.wait(session.place).is_some());
                }
                Activity::InTransaction | Activity::Failed => now.idle_in_transaction += 1,
            }
        }
        Summary::of(self.sessions.sums().values(), now)
    }

    /// A session has added what it counts of relations to the totals: those that are there no more
    /// are forgotten there when they are many. Reads the catalog then.
    pub(crate) fn forget_relations(&self, database: Oid) {
        let totals = &self.sessions.totals;
        if !totals.is_full(database) {
            return;
        }
        // What cannot be read now is read the next time.
        let Ok(Some(schema)) = self.catalog.newest(database) else { return };
        let tables = schema.entries().filter_map(|entry| match entry {
            Entry::Table(info) => Some(&info.table),
            _ => None,
        });
        let relations: HashSet<Oid> =
            { tables }.flat_map(|table| table.indexes.iter().map(|index| index.oid).chain([table.oid])).collect();
        totals.forget(database, |oid| relations.contains(&oid));
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("catalog", &self.catalog)
            .field("sessions", &self.sessions)
            .finish_non_exhaustive()
    }
}

impl SystemView for Shared {
    fn started(&self) -> Timestamp {
        let since = self.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let micros = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
        Timestamp(micros.saturating_sub(datetime::UNIX_EPOCH))
    }

    fn is_standby(&self) -> bool {
        Self::is_standby(self)
    }

    fn sessions(&self) -> Vec<Arc<SessionInfo>> {
        self.sessions.all()
    }

    fn registry(&self) -> Option<&Registry> {
        Some(&self.sessions)
    }

    fn table_locks(&self) -> Vec<TableLock> {
        self.locks.all()
    }

    fn wait(&self, place: usize) -> Option<Wait> {
        let some = |event: &'static str, by: Vec<usize>| (!by.is_empty()).then_some(Wait { event, by });
        some("relation", self.locks.waits_for(place))
            .or_else(|| some("advisory", self.advisory.waits_for(place)))
            .or_else(|| some(RECORD_WAIT, self.database.core().waits_for(place)))
    }

    fn advisory_locks(&self) -> Vec<AdvisoryLock> {
        self.advisory.all()
    }

    fn status(&self) -> Option<NodeStatus> {
        Some(self.node.status())
    }

    fn approximate_rows(&self, info: &TableInfo) -> Option<u64> {
        self.database.approximate_rows(&info.rows)
    }

    fn table_size(&self, info: &TableInfo) -> Option<TableSize> {
        size::measure(&self.database, info)
    }

    fn database_size(&self, database: Oid) -> Option<u64> {
        let worker = self.database.worker().ok()?;
        let schema = self.catalog.read(&worker.begin_read_only(), database).ok()?;
        let tables = schema.entries().filter_map(|entry| match entry {
            Entry::Table(info) => Some(info),
            _ => None,
        });
        { tables }.map(|info| Some(self.table_size(info)?.all_bytes())).sum()
    }

    fn sequence_position(&self, sequence: &Sequence) -> Result<Position, SqlError> {
        self.sequences.position(sequence)
    }
}

impl SqlServer {
    /// A server over a node. On a primary whose database has no catalog yet, one is made.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(setup: Setup) -> Result<Self, SqlError> {
        let database = setup.node.database().clone();
        let records = Records(database.clone());
        let locks = LockManager::new(Some(Arc::new(records.clone())));
        let waits = Waits { tables: Arc::clone(&locks), records };
        let shared = Shared {
            catalog: Catalog::new(database.clone()),
            exported: Arc::default(),
            old_snapshots: OldSnapshots::new(database.core()),
            advisory: AdvisoryLocks::new(Some(Arc::new(waits))),
            locks,
            notifications: Notifications::start(&database)?,
            sequences: Sequences::new(database.clone()),
            outcomes: Arc::new(Outcomes::new(database.clone())?),
            row_ids: Arc::new(RowIdSource::new()?),
            words: Dictionary::new(database.clone()),
            database,
            node: setup.node,
            general: setup.general,
            limits: setup.limits,
            started: SystemTime::now(),
            first_role: setup.first_role,
            memory: setup.memory,
            bounds: RwLock::new(setup.bounds),
            version: setup.version,
            sessions: Arc::default(),
            asking: Mutex::default(),
            access: RwLock::default(),
            made: Mutex::new(false),
        };
        if !shared.is_standby() {
            shared.make_catalog()?;
        }
        Ok(Self(Arc::new(shared)))
    }

    /// Changes the limits of sessions that begin from now on. The limit on the memory of all
    /// sessions together stays as it was.
    pub fn set_bounds(&self, bounds: Bounds) {
        let mut ours = self.0.bounds.write().unwrap_or_else(PoisonError::into_inner);
        *ours = Bounds { memory: ours.memory, ..bounds };
    }

    /// Uses these rules for new connections. Existing sessions stay.
    pub fn set_access(&self, rules: AccessRules) {
        *self.0.access.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

    /// What its sessions share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

/// The proof that a client is asked for. For a role without a verifier that is a decoy, the same on
/// every node.
fn prove(required: Required, schema: &Schema, user: &str, verifier: Option<Verifier>) -> Proof {
    match required {
        Required::Nothing => Proof::None,
        Required::Password => {
            let decoy = || schema.common().map(|common| Verifier::decoy(user, &common.secret));
            Proof::Scram(verifier.or_else(decoy))
        }
    }
}

/// Whether a role's password has expired.
fn has_expired(role: &Role) -> bool {
    role.valid_until.is_some_and(|until| until < Timestamp::now().0)
}

/// A session is refused whatever its client shows.
fn refused(message: String) -> Option<Report> {
    Some(report(SqlError::new(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, message)).into_fatal())
}

fn no_role(name: &str) -> Option<Report> {
    refused(format!("role \"{name}\" does not exist"))
}

impl Shared {
    /// Under which conditions a role gets in that shows this.
    fn of_role(&self, role: &Role, proof: Proof) -> Access {
        let no_login = || refused(format!("role \"{}\" is not permitted to log in", role.name));
        Access {
            superuser: role.superuser,
            refused: if role.login { None } else { no_login() },
            connections: Some(role.connection_limit.map_or(self.limits.of_role, |limit| limit as usize)),
            ..Access::by(proof)
        }
    }
}

impl SqlServer {
    /// The roles that there are, if this node serves clients.
    fn roles(&self) -> Result<Arc<Schema>, Report> {
        if self.0.node.is_deposed() {
            let message = "another node has become the primary, and this one is about to follow it";
            let error = SqlError::new(SqlState::CANNOT_CONNECT_NOW, message);
            return Err(report(error.with_hint("Connect to the new primary, or try again in a moment.")));
        }
        if let Some(others) = self.0.node.served_elsewhere() {
            let message = "this node is a mirror, which serves no readers";
            let error = SqlError::new(SqlState::CANNOT_CONNECT_NOW, message);
            let hint = match &*others {
                [] => "Connect to a node that is none; this one does not know of any yet.".to_owned(),
                others => format!("Connect to a node that does, listening for other nodes at {}.", others.join(" or ")),
            };
            return Err(report(error.with_hint(hint)));
        }
        // It may have taken over.
        self.0.make().map_err(report)?;
        let asking = self.0.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = self
            .0
            .database
            .worker()
            .map_err(|cause| report(SqlError::new(SqlState::TOO_MANY_CONNECTIONS, cause.to_string())))?;
        let transaction = worker.begin_read_only();
        let schema = self.0.catalog.shared(&transaction).map_err(report)?;
        drop(transaction);
        drop((worker, asking));
        if schema.version.number == 0 {
            let message = "the database system is starting up: there is no catalog here yet";
            return Err(report(SqlError::new(SqlState::CANNOT_CONNECT_NOW, message)));
        }
        Ok(schema)
    }
}

impl Backend for SqlServer {
    fn access(&self, startup: &Startup, peer: &Peer) -> Result<Access, Report> {
        let schema = self.roles()?;
        let (user, role) = (startup.user(), schema.role(startup.user()));
        let is_member = |of: &str| {
            let both = role.zip(schema.role(of));
            both.is_some_and(|(role, of)| schema.is_within(role.oid, of.oid))
        };
        let claim = Claim { peer, user, database: startup.database(), is_member: &is_member };
        let rules = Arc::clone(&self.0.access.read().unwrap_or_else(PoisonError::into_inner));
        let required = rules.decide(&claim)?;
        let Some(role) = role else {
            let refused = no_role(user);
            let (proof, hopeless) = (prove(required, &schema, user, None), "there is no such role");
            return Ok(Access { refused, hopeless: Some(hopeless), hint: Some(HINT), ..Access::by(proof) });
        };
        let (verifier, hopeless) = match &role.verifier {
            None => (None, Some("the role has no password")),
            Some(_) if has_expired(role) => (None, Some("the role's password has expired")),
            Some(verifier) => match verifier.parse::<Verifier>() {
                Ok(verifier) => (Some(verifier), None),
                Err(_) => (None, Some("what is kept of the role's password is no verifier")),
            },
        };
        Ok(Access { hopeless, hint: Some(HINT), ..self.0.of_role(role, prove(required, &schema, user, verifier)) })
    }

    fn admit_handed(&self, startup: &Startup) -> Result<Access, Report> {
        let schema = self.roles()?;
        Ok(match schema.role(startup.user()) {
            Some(role) => self.0.of_role(role, Proof::None),
            None => Access { refused: no_role(startup.user()), ..Access::by(Proof::None) },
        })
    }

    fn route(&self, startup: &Startup) -> Result<Served, Report> {
        route::served(&self.0, startup)
    }

    /// Looks whose snapshots are too old. On a standby, ends sessions that do nothing in a database
    /// that its primary has dropped. Those in a transaction end with it.
    fn watch(&self, sessions: &Sessions) {
        let open = self.0.sessions.all();
        self.0.old_snapshots.look(open.iter().map(|session| session.place), &self.0.bounds());
        for session in open.iter().filter(|session| self.0.old_snapshots.condemns(session.place)) {
            session.wake();
        }
        if open.is_empty() || !self.0.is_standby() {
            return;
        }
        // What cannot be read now is read the next time.
        let Ok(schema) = self.0.catalog.worker().and_then(|it| self.0.catalog.shared(&it.begin_read_only())) else {
            return;
        };
        for session in open {
            if schema.database_by_oid(session.database_id).is_none() && session.activity() == Activity::Idle {
                let _ = sessions.terminate(session.pid);
            }
        }
    }

    fn failed_login(&self, failure: &FailedLogin<'_>) {
        login_log::failed(failure);
    }

    fn logged_in(&self, peer: &Peer, startup: &Startup, failures: u32) {
        login_log::succeeded(peer, startup, failures);
    }

    fn open(
        &self,
        opening: Opening<'_>,
        serve: &mut dyn FnMut(&mut dyn freshet_postgres::Session, &Parameters),
    ) -> Result<(), Report> {
        let settings = opening.startup.settings()?;
        let database = opening.startup.database().to_owned();
        let worker = self
            .0
            .database
            .worker()
            .map_err(|cause| report(SqlError::new(SqlState::TOO_MANY_CONNECTIONS, cause.to_string())))?;
        let mut parameters = Parameters::expected(&self.0.version, opening.startup);
        let mut session = Session::open(Arc::clone(&self.0), &worker, &opening, &database)
            .map_err(|error| report(error).into_fatal())?;
        session.start_with_role_settings();
        for (name, value) in settings {
            session.start_with(&name, &value).map_err(report)?;
        }
        session.started();
        session.parameters(&mut parameters);
        serve(&mut session, &parameters);
        Ok(())
    }
}
