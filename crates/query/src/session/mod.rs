//! One client's session.
//!
//! | module | does |
//! |---|---|
//! | [`messages`] | what the protocol asks of a session |
//! | [`transaction`] | transactions, savepoints, commits and their waits |
//! | [`parse`] | text to statements |
//! | [`prepare`] | statements to plans, and how long these hold |
//! | [`statement`] | runs a statement |
//! | `savepoint` | parts of transactions |
//! | `counting` | what it counts |
//! | [`database`] | which database it is in, and who else is in one |
//! | [`syntax`] | reads statements about the session |
//! | [`utility`] | statements that are neither queries nor changes of rows |
//! | [`cursor`] | DECLARE, FETCH, MOVE, CLOSE |
//! | [`settings`] | SET, SHOW |
//! | [`encoding`] | values in the client's encoding |
//! | [`role`] | SET ROLE, SET SESSION AUTHORIZATION |
//! | [`view`] | what functions ask the session |
//! | `moves` | what it takes along to another primary |
//! | `record` | what the session was told, for nodes that execute its transactions again |
//! | [`wire`] | rows to the client |

mod account;
mod constraints;
mod copy;
mod counting;
pub mod cursor;
mod database;
mod define;
mod encoding;
mod explain;
pub mod interrupt;
pub mod messages;
mod moves;
mod notify;
pub mod parse;
pub mod prepare;
mod record;
pub mod role;
mod savepoint;
pub mod settings;
pub mod statement;
pub mod syntax;
pub mod transaction;
pub mod utility;
pub mod view;
pub mod wire;

use std::{cell::RefCell, collections::HashMap, net::SocketAddr, sync::Arc, time::Instant};

use freshet_engine::{Lsn, Worker};
use freshet_postgres::{Out, Part, Report, Severity, TransactionStatus};
use freshet_sql::{
    SqlError, SqlState, Value,
    account::Account,
    memory::{Pool, Reservation},
    types::{EvalContext, Large, Timestamp},
};

use crate::{
    advisory::SessionAdvisory,
    ddl::Effects,
    execute::RowIds,
    locks::TableLocks,
    schema::{INFORMATION_SCHEMA, Oid, PG_CATALOG, Role, RoleSetting, Schema},
    sequence::SessionSequences,
    server::Shared,
    statistics::Tally,
    system::{
        SessionInfo, SystemView,
        activity::{Activity, Identity, Registered},
    },
};
use cursor::{Declared, Rows};
use interrupt::Flag;
use moves::{HeldUp, Noted, Statements};
use notify::SessionChannels;
use prepare::Prepared;
use settings::{By, Reported, Settings, canonical};
use transaction::Block;
use view::View;

/// A session.
pub struct Session<'w> {
    shared: Arc<Shared>,
    worker: &'w Worker,
    block: Option<Block<'w>>,
    state: State,
    statements: Statements,
    portals: HashMap<String, Portal>,
    /// Whether the simple query that runs has more than one statement.
    several: bool,
    /// What the beginning of a message takes while the rest is still to come.
    input: Option<Reservation>,
    row_ids: RowIds,
    locks: TableLocks,
    effects: Effects,
    /// What others see of it.
    info: Registered,
    /// What it counts.
    tally: Tally,
    /// The generation of its settings that they were told of.
    noted: u64,
    /// What its client was told of its settings.
    reported: Reported,
    /// Whether its node was a standby then.
    standby: bool,
    /// When it began to wait for its client.
    rested: Instant,
    /// What its statements depend on, when it was last recorded.
    around: record::Around,
    /// What the node knows of it that has handed it on, if one has.
    handed: Option<Noted>,
    held_up: HeldUp,
}

/// A setting that a function wants to have changed, its value, or none for that of the start, and
/// whether only until the transaction ends.
pub type Wanted = (String, Option<String>, bool);

/// What a session knows besides its transaction.
pub struct State {
    /// The session's number, which clients know as the process id of their server.
    pub pid: i32,
    /// The place of its worker among the node's.
    pub place: usize,
    /// Where its client is; none for one at the Unix socket.
    pub client: Option<SocketAddr>,
    /// The memory that it may take.
    pub memory: Arc<Pool>,
    /// What its work takes from the allocator.
    pub account: Arc<Account>,
    /// What SET, SHOW and the start-up packet know.
    pub settings: Settings,
    /// The catalog as its transaction sees it, or saw it last.
    pub schema: Arc<Schema>,
    /// The role whose session it is: that which has opened it, unless a superuser has changed that.
    pub session_user: String,
    /// That role's id.
    pub session_role: Oid,
    /// The role in whose name it runs statements.
    pub user: String,
    /// That role's id.
    pub role: Oid,
    /// The name of its database, which does not change while it is there.
    pub database: Arc<str>,
    /// The server, for those that ask what there is.
    pub system: Arc<dyn SystemView>,
    /// The advisory locks that the session holds.
    pub advisory: SessionAdvisory,
    /// What its sequences have given.
    pub sequences: SessionSequences,
    /// The LSN of its last commit.
    pub last_commit: Option<Lsn>,
    /// The channels that the session listens to.
    pub channels: SessionChannels,
    /// To reach other sessions.
    pub sessions: freshet_postgres::Sessions,
    /// Set when a statement is to end.
    pub flag: Arc<Flag>,
    /// Whether the statement that runs must not write.
    pub read_only: bool,
    /// Its transaction's level, as PostgreSQL calls it.
    pub isolation: &'static str,
    /// Whether its transaction was said to be DEFERRABLE.
    pub deferrable: bool,
    /// When the client has sent the statement that runs.
    pub statement_start: Timestamp,
    /// Settings that functions want to have changed.
    pub wanted: RefCell<Vec<Wanted>>,
    /// What functions want the client to be warned of.
    pub warnings: RefCell<Vec<&'static str>>,
    /// Whether it reads on this standby for a client whose session is on another node as well:
    /// nothing of it may stay here that is not moved there.
    pub reads_for_others: bool,
}

/// A statement with its parameters, in the middle of being run or before.
pub struct Portal {
    prepared: Arc<Prepared>,
    parameters: Vec<Value>,
    formats: Vec<freshet_postgres::Format>,
    /// Its rows, when it was run with a limit, or is a cursor.
    rows: Option<Rows>,
    done: bool,
    /// When Bind has made it, if it has a name.
    made: Timestamp,
    /// How it was declared, if it is a cursor.
    declared: Option<Declared>,
    /// What its parameters take.
    _kept: Reservation,
}

impl State {
    /// Sends a notice or a warning, unless client_min_messages wants graver ones only.
    fn send_notice(&self, out: &mut Out, report: &Report) {
        let (notices, warnings) = self.settings.ready.sends;
        let is_wanted = match report.severity() {
            Severity::Debug | Severity::Notice => notices,
            Severity::Warning => warnings,
            Severity::Info | Severity::Error | Severity::Fatal => true,
        };
        if is_wanted {
            out.notice(report);
        }
    }

    /// The memory of a statement or a cursor that begins.
    pub fn statement_memory(&self) -> Arc<Pool> {
        let remedy = "Raise freshet.query_memory, which the server's setting sql.statement-memory-bytes bounds.";
        self.memory.below("statement", self.settings.ready.query_memory, remedy)
    }

    /// The value of a setting, as SHOW shows it to the statement that runs; nothing when none
    /// exists.
    pub fn shown(&self, name: &str) -> Option<String> {
        let on_or_off = |value: bool| Some(if value { "on" } else { "off" }.to_owned());
        let name = canonical(name);
        match name.as_str() {
            "transaction_isolation" => Some(self.isolation.to_owned()),
            "transaction_read_only" => on_or_off(self.read_only || self.system.is_standby()),
            "transaction_deferrable" => on_or_off(self.deferrable),
            "in_hot_standby" => on_or_off(self.system.is_standby()),
            "freshet.last_commit" => Some(self.last_commit.map_or_else(String::new, |lsn| lsn.0.to_string())),
            name => self.settings.get(name).map(str::to_owned),
        }
    }

    /// The schemas of the search path that the role may use, with the implicit one first.
    pub fn path(&self) -> Vec<Oid> {
        let mut path = vec![PG_CATALOG];
        let named = |name: &String| match name.as_str() {
            "information_schema" => Some(INFORMATION_SCHEMA),
            "pg_catalog" => Some(PG_CATALOG),
            name => self.schema.namespace(name).filter(|namespace| self.schema.may_use(self.role, *namespace)),
        };
        path.extend(self.settings.search_path(&self.user).iter().filter_map(named));
        path
    }

    /// The session as a statement's functions know it: the large values that they make are taken
    /// from its memory.
    pub fn context_within<'a>(
        &self,
        view: Option<&'a View<'a>>,
        begun: Timestamp,
        memory: &Arc<Pool>,
    ) -> EvalContext<'a> {
        EvalContext { large: Large::of(memory), ..self.context(view, begun) }
    }

    /// The session as functions know it.
    pub fn context<'a>(&self, view: Option<&'a View<'a>>, begun: Timestamp) -> EvalContext<'a> {
        EvalContext {
            zone: self.settings.ready.zone,
            formats: self.settings.ready.formats,
            transaction_start: begun.into(),
            statement_start: self.statement_start.into(),
            names: view.map(|view| view as _),
            session: view.map(|view| view as _),
            ..EvalContext::default()
        }
    }
}

/// The settings with which sessions of a role begin in the schema's database, each with its source,
/// the most specific last.
pub fn settings_of(schema: &Schema, role: Oid) -> Vec<(&'static str, &RoleSetting)> {
    let everywhere = schema.common().map_or(&[][..], |it| &it.settings);
    let here = schema.database().map_or(&[][..], |it| &it.settings);
    let sources =
        [(everywhere, 0, "global"), (here, 0, "database"), (everywhere, role, "user"), (here, role, "database user")];
    let mut all = Vec::new();
    for (settings, of, source) in sources {
        all.extend(settings.iter().filter(|it| it.role == of).map(|it| (source, it)));
    }
    all
}

/// The settings that say what the session is, and what its server.
fn fix_settings(settings: &mut Settings, shared: &Shared, (user, role): (&str, &Role), standby: bool) {
    let on = |is_so| if is_so { "on" } else { "off" };
    settings.fix("is_superuser", on(role.superuser));
    settings.fix("session_authorization", &format!("{} {user}", role.oid));
    settings.fix("in_hot_standby", on(standby));
    settings.fix("max_connections", &shared.limits.connections.to_string());
    settings.fix("server_version", &format!("15.0 (Freshet {})", shared.version));
}

impl<'w> Session<'w> {
    /// A session for a client that has proved to be `user`.
    ///
    /// # Errors
    /// 28000 when there is no such role, or it may not log in; what is said by [`database::open`],
    /// and of the start-up packet's settings.
    pub fn open(
        shared: Arc<Shared>,
        worker: &'w Worker,
        opening: &freshet_postgres::Opening<'_>,
        database: &str,
    ) -> Result<Self, SqlError> {
        let (user, common) = (opening.startup.user().to_owned(), shared.catalog.shared(&worker.begin_read_only())?);
        let role = common.role(&user).ok_or_else(|| {
            SqlError::new(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, format!("role \"{user}\" does not exist"))
        })?;
        let opened = database::open(&shared, &common, role, database)?;
        let (oid, superuser, standby, bounds) = (role.oid, role.superuser, shared.is_standby(), shared.bounds());
        let memory = bounds.session(&shared.memory);
        let mut settings = Settings::of(&bounds, &memory);
        fix_settings(&mut settings, &shared, (&user, role), standby);
        let totals = &shared.sessions.totals;
        totals.forget_databases(common.databases().len(), |oid| common.database_by_oid(oid).is_some());
        // From here on others see that it is in the database. It may have been dropped before.
        let info = shared.sessions.enter(SessionInfo::new(Identity {
            pid: opening.pid,
            place: worker.place(),
            user: &user,
            role: oid,
            database: (opened.oid, database),
            peer: &opening.peer,
        }));
        let found = shared.catalog.find(&worker.begin_read_only(), opened.oid)?;
        let schema = found.ok_or_else(|| crate::ddl::no_database(database))?;
        let session = Self {
            worker,
            block: None,
            state: State {
                pid: opening.pid,
                place: worker.place(),
                client: opening.peer.origin.address(),
                account: Account::of(&memory),
                memory,
                settings,
                schema,
                session_user: user.clone(),
                session_role: oid,
                user,
                role: oid,
                database: database.into(),
                advisory: shared.advisory.session(worker.place(), (!superuser).then_some(oid)),
                system: Arc::clone(&shared) as _,
                sequences: SessionSequences::default(),
                last_commit: None,
                channels: SessionChannels::new(&shared, opened.oid, opening.pid, opening.bell.clone()),
                sessions: opening.sessions.clone(),
                flag: Arc::new(Flag::of_this_thread()),
                read_only: false,
                isolation: "read committed",
                deferrable: false,
                statement_start: Timestamp::now(),
                wanted: RefCell::default(),
                warnings: RefCell::default(),
                reads_for_others: opening.handed == Some(Part::Reads),
            },
            statements: Statements::default(),
            portals: HashMap::new(),
            several: false,
            input: None,
            row_ids: RowIds::new(&shared.row_ids),
            locks: shared.locks.session(worker.place(), opened.oid),
            effects: Effects::default(),
            tally: Tally::new(&info.counts, &shared.sessions.totals),
            info,
            noted: 0,
            reported: Reported::default(),
            standby,
            rested: Instant::now(),
            around: None,
            handed: opening.handed.map(Noted::of),
            held_up: HeldUp::default(),
            shared,
        };
        session.state.flag.heed(&session.shared.old_snapshots, worker.place());
        Ok(session)
    }

    /// Applies a setting of the start-up packet.
    ///
    /// # Errors
    /// When none exists, or it cannot have the value.
    pub fn start_with(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        self.set_at_start("client", name, value, By::Client)
    }

    fn set_at_start(&mut self, source: &'static str, name: &str, value: &str, by: By) -> Result<(), SqlError> {
        self.state.set(name, Some(value), false, by)?;
        self.state.settings.came_from(source, name);
        Ok(())
    }

    /// Applies the settings of the database and of the session's role, the most specific last.
    /// Skips settings that this server does not allow any more.
    pub fn start_with_role_settings(&mut self) {
        let schema = Arc::clone(&self.state.schema);
        for (source, setting) in settings_of(&schema, self.state.role) {
            let _ = self.set_at_start(source, &setting.name, &setting.value, By::Catalog);
        }
    }

    /// What is set now is what RESET goes back to.
    pub fn started(&mut self) {
        self.state.settings.started();
        self.note_rest();
    }

    /// A message has come, with which a transaction may begin.
    fn note_message(&mut self) {
        if self.block.is_none() {
            self.state.statement_start = Timestamp::now();
        }
    }

    /// Others see that it runs a statement.
    fn note_statement(&mut self, shown: Arc<str>) {
        self.arm();
        let now = Timestamp::now();
        self.state.statement_start = now;
        self.tally.begin(now.0);
        self.count_ran(self.info.count_until(now));
        self.info.begin(shown, now, self.block.as_ref().map(|block| block.begun));
    }

    /// Others see that it waits for its client.
    fn note_rest(&mut self) {
        self.rested = Instant::now();
        self.tally.rest();
        let settings = &self.state.settings;
        if settings.generation != self.noted {
            self.noted = settings.generation;
            self.info.set_application(settings.get("application_name").unwrap_or_default());
        }
        let activity = match self.transaction_status() {
            TransactionStatus::Idle => Activity::Idle,
            TransactionStatus::Open => Activity::InTransaction,
            TransactionStatus::Failed => Activity::Failed,
        };
        let took = self.info.rest(activity, self.block.as_ref().map(|block| block.begun));
        self.count_ran(took);
    }

    /// Fails when what runs now is to end: every wait of a session asks this again and again.
    ///
    /// # Errors
    /// 57014 by its time-out or a request to cancel it, 57P01 when the session ends.
    fn check(&self) -> Result<(), SqlError> {
        self.state.flag.check()
    }

    /// The time of a statement begins, unless it has begun: with the first of its messages.
    fn arm(&mut self) {
        self.state.flag.arm(self.state.settings.ready.statement_timeout);
    }

    /// The statement is done: the next one has a time of its own.
    fn disarm(&mut self) {
        self.state.flag.disarm();
    }
}
