//! A database of a few canned statements, for tests, measuring and fuzzing.

#![allow(dead_code, reason = "each of its users needs another part")]

use std::{
    collections::HashMap,
    net::SocketAddr,
    num::NonZeroU32,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use freshet_postgres::{
    Access, Backend, Bell, Bind, Client, Described, Executed, FailedLogin, Field, Format, Interrupt, Limits, Opening,
    Options, Origin, Out, Parameters, Peer, Proof, Report, Server, Session, Sessions, SqlState, Startup,
    TransactionStatus, Types, Verifier, Why,
};

const INT4: u32 = 23;
const TEXT: u32 = 25;
const DIVISION_BY_ZERO: SqlState = SqlState::new("22012");

type News = Arc<Mutex<Vec<String>>>;

/// Users are known by what they are: `trusted`, `root` (a superuser), `ann` (whose password is
/// `pencil`, by SCRAM), `clear` (the same, in clear text).
pub struct Toy {
    verifier: Verifier,
    /// Bells of those who listen, and what they are to be told.
    listening: Mutex<Vec<(Bell, News)>>,
    pub ended: Mutex<Vec<String>>,
    /// From where clients came.
    pub origins: Mutex<Vec<Origin>>,
    /// The clients that were refused and why, and those that were let in, after how many failures.
    pub logins: Mutex<Vec<String>>,
    /// What sessions answer to [`Session::flushes`].
    flushes: bool,
    /// No number in a statement counts for more.
    most: u32,
    /// Whether ENTER waits for the end of its session.
    pub holds: AtomicBool,
    /// How often it does.
    pub held: AtomicU32,
}

impl Toy {
    pub fn new() -> Arc<Self> {
        Self::with(true, u32::MAX)
    }

    /// One that does nothing for long.
    pub fn brief() -> Arc<Self> {
        Self::with(true, 20)
    }

    pub fn that_flushes(flushes: bool) -> Arc<Self> {
        Self::with(flushes, u32::MAX)
    }

    fn with(flushes: bool, most: u32) -> Arc<Self> {
        let verifier = Verifier::from_password("pencil", NonZeroU32::new(64).unwrap(), b"0123456789abcdef");
        Arc::new(Self {
            verifier,
            listening: Mutex::default(),
            ended: Mutex::default(),
            origins: Mutex::default(),
            logins: Mutex::default(),
            flushes,
            most,
            holds: AtomicBool::default(),
            held: AtomicU32::default(),
        })
    }

    /// A toy's server on a free port.
    pub fn serve(options: Options) -> (Arc<Self>, Server) {
        let toy = Self::new();
        let server = Server::start(Arc::clone(&toy) as Arc<dyn Backend>, options).unwrap();
        (toy, server)
    }
}

pub fn options(limits: Limits) -> Options {
    Options { addresses: vec![SocketAddr::from(([127, 0, 0, 1], 0))], limits, ..Options::default() }
}

impl Backend for Toy {
    fn access(&self, startup: &Startup, peer: &Peer) -> Result<Access, Report> {
        self.origins.lock().unwrap().push(peer.origin);
        let user = startup.user();
        let proof = match user {
            "trusted" | "root" => Proof::None,
            "ann" => Proof::Scram(Some(self.verifier.clone())),
            "clear" => Proof::Password(Some(self.verifier.clone())),
            _ => Proof::Scram(None),
        };
        let hopeless = matches!(proof, Proof::Scram(None)).then_some("nobody knows it");
        Ok(Access { superuser: user == "root", hopeless, ..Access::by(proof) })
    }

    fn open(&self, opening: Opening<'_>, serve: &mut dyn FnMut(&mut dyn Session, &Parameters)) -> Result<(), Report> {
        let database = opening.startup.database();
        if database == "missing" {
            let message = format!("database \"{database}\" does not exist");
            return Err(Report::error(SqlState::new("3D000"), message));
        }
        let mut parameters = Parameters::expected("toy", opening.startup);
        for (name, value) in opening.startup.settings()? {
            parameters.set(&name, &value);
        }
        let mut session = ToySession {
            pid: opening.pid,
            encrypted: opening.peer.encryption.is_some(),
            sessions: opening.sessions,
            bell: opening.bell,
            news: Arc::default(),
            stop: Arc::default(),
            statements: HashMap::new(),
            portals: HashMap::new(),
            status: TransactionStatus::Idle,
            idle_limit: None,
            flushes: self.flushes,
            most: self.most,
            toy: self,
            is_held: false,
        };
        self.listening.lock().unwrap().push((session.bell.clone(), Arc::clone(&session.news)));
        serve(&mut session, &parameters);
        Ok(())
    }

    fn failed_login(&self, failure: &FailedLogin<'_>) {
        let (user, why) = (failure.startup.user(), failure.why.unwrap_or_default());
        let line = format!("{user}: {} ({why}) after {:?}", failure.reply.state(), failure.after);
        self.logins.lock().unwrap().push(line);
    }

    fn logged_in(&self, _: &Peer, startup: &Startup, failures: u32) {
        self.logins.lock().unwrap().push(format!("{} in after {failures}", startup.user()));
    }

    fn ended(&self, _: &Peer, reason: &Report) {
        self.ended.lock().unwrap().push(reason.to_string());
    }
}

impl Toy {
    /// Tells all sessions that listen.
    pub fn notify(&self, payload: &str) {
        for (bell, news) in self.listening.lock().unwrap().iter() {
            news.lock().unwrap().push(payload.to_owned());
            bell.ring();
        }
    }
}

#[derive(Default)]
struct Stop {
    why: Mutex<Option<Why>>,
    changed: Condvar,
}

impl Interrupt for Stop {
    fn interrupt(&self, why: Why) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        self.changed.notify_all();
    }

    fn clear(&self) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[derive(Clone)]
struct Statement {
    sql: String,
    types: Vec<u32>,
}

struct Portal {
    statement: Statement,
    values: Vec<Option<Vec<u8>>>,
    results: Vec<Format>,
    /// How many rows it has returned.
    position: u32,
}

struct ToySession<'t> {
    toy: &'t Toy,
    is_held: bool,
    pid: i32,
    encrypted: bool,
    sessions: Sessions,
    bell: Bell,
    news: News,
    stop: Arc<Stop>,
    statements: HashMap<String, Statement>,
    portals: HashMap<String, Portal>,
    status: TransactionStatus,
    idle_limit: Option<Duration>,
    flushes: bool,
    most: u32,
}

fn number(text: &str) -> Result<u32, Report> {
    text.parse().map_err(|_| Report::error(SqlState::SYNTAX_ERROR, format!("not a number: {text}")).position(1))
}

impl Statement {
    fn new(sql: &str, types: impl Iterator<Item = u32>) -> Self {
        let mut types: Vec<_> = types.map(|oid| if oid == 0 { TEXT } else { oid }).collect();
        // As many parameters as `$` are in it.
        types.resize(sql.matches('$').count().max(types.len()), TEXT);
        Self { sql: sql.trim_matches([' ', '\n', ';']).to_owned(), types }
    }

    /// What it is, and what follows that.
    fn parts(&self) -> (&str, &str) {
        self.sql.split_once(' ').unwrap_or((&self.sql, ""))
    }

    fn fields(&self) -> Option<Vec<(String, u32)>> {
        match self.parts() {
            ("SELECT" | "PID", _) => Some(vec![("?column?".to_owned(), INT4)]),
            ("ROWS", _) => Some(vec![("n".to_owned(), INT4)]),
            ("WIDE" | "WAIT", _) => Some(vec![("w".to_owned(), TEXT)]),
            ("ECHO", _) => Some(self.types.iter().enumerate().map(|(n, oid)| (format!("p{}", n + 1), *oid)).collect()),
            _ => None,
        }
    }

    fn describe(&self, formats: &[Format], out: &mut Out) -> Result<Described, Report> {
        let Some(fields) = self.fields() else { return Ok(out.no_data()) };
        out.row_description(fields.iter().enumerate().map(|(number, (name, type_oid))| Field {
            name,
            table: 0,
            column: 0,
            type_oid: *type_oid,
            type_size: if *type_oid == INT4 { 4 } else { -1 },
            type_modifier: -1,
            format: format(formats, number),
        }))
    }
}

fn format(formats: &[Format], number: usize) -> Format {
    match formats {
        [one] => *one,
        several => several.get(number).copied().unwrap_or(Format::Text),
    }
}

fn int4(out: &mut Out, number: u32, format: Format) -> Result<(), Report> {
    let mut row = out.row();
    match format {
        Format::Text => row.text(number),
        Format::Binary => row.bytes(&number.to_be_bytes()),
    }
    row.finish()
}

impl ToySession<'_> {
    fn wait(&self, milliseconds: u32) -> Result<(), Report> {
        let why = self.stop.why.lock().unwrap();
        let patience = Duration::from_millis(milliseconds.into());
        let (why, _) = self.stop.changed.wait_timeout_while(why, patience, |why| why.is_none()).unwrap();
        match *why {
            None => Ok(()),
            Some(_) => Err(Report::error(SqlState::QUERY_CANCELED, "canceling statement due to user request")),
        }
    }

    fn run(
        &mut self,
        portal: &mut Portal,
        limit: Option<NonZeroU32>,
        client: &mut Client<'_>,
    ) -> Result<Executed, Report> {
        let statement = portal.statement.clone();
        let (what, rest) = statement.parts();
        if self.status == TransactionStatus::Failed && !matches!(what, "COMMIT" | "ROLLBACK") {
            let message = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(Report::error(SqlState::new("25P02"), message));
        }
        let first = format(&portal.results, 0);
        let number = |text| number(text).map(|number| number.min(self.most));
        match what {
            "" => return Ok(client.empty_query()),
            "SELECT" => int4(client, number(rest)?, first)?,
            "PID" => int4(client, self.pid.unsigned_abs(), first)?,
            "ECHO" => {
                let mut row = client.row();
                for value in &portal.values {
                    match value {
                        None => row.null(),
                        Some(value) => row.bytes(value),
                    }
                }
                row.finish()?;
            }
            "ROWS" => {
                let all = number(rest)?;
                let end = all.min(portal.position.saturating_add(limit.map_or(u32::MAX, NonZeroU32::get)));
                for n in portal.position..end {
                    int4(client, n, first)?;
                }
                let count = end - portal.position;
                portal.position = end;
                return Ok(if limit.is_some_and(|limit| limit.get() == count) {
                    client.portal_suspended()
                } else {
                    client.command_complete(format_args!("SELECT {count}"))
                });
            }
            "WIDE" => {
                let length = usize::try_from(number(rest)?.min(100 << 20)).unwrap();
                let mut row = client.row();
                row.value().extend(std::iter::repeat_n(b'w', length));
                row.finish()?;
            }
            "WAIT" => {
                // Who hears this knows that it is being waited.
                client.flush();
                self.wait(number(rest)?)?;
                let mut row = client.row();
                row.bytes(b"waited");
                row.finish()?;
            }
            "ENTER" => {
                self.is_held = self.toy.holds.load(Ordering::SeqCst);
                if self.is_held {
                    self.toy.held.fetch_add(1, Ordering::SeqCst);
                    self.wait(u32::MAX)?;
                }
            }
            "SLEEP" => {
                client.flush_owed();
                self.wait(number(rest)?)?;
            }
            "BEGIN" | "START" => self.status = TransactionStatus::Open,
            "ROLLBACK" if rest.starts_with("TO") => {
                return Err(Report::error(SqlState::new("3B001"), "there are no savepoints"));
            }
            "COMMIT" | "ROLLBACK" => self.status = TransactionStatus::Idle,
            "FAIL" => {
                return Err(Report::error(DIVISION_BY_ZERO, "division by zero")
                    .detail("a detail")
                    .hint("a hint")
                    .position(3)
                    .column("c")
                    .data_type("d")
                    .constraint("n"));
            }
            "FATAL" => return Err(Report::fatal(SqlState::INTERNAL_ERROR, "that was too much")),
            "PANIC" => panic!("as asked for"),
            "NOTICE" => client.notice(&Report::notice(rest)),
            "SET" => {
                let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
                client.parameter_status(name, value);
            }
            "IDLE" => self.idle_limit = Some(Duration::from_millis(number(rest)?.into())).filter(|d| !d.is_zero()),
            "LISTEN" => self.bell.listen().unwrap(),
            "ENCRYPTED" => client.notice(&Report::notice(self.encrypted.to_string())),
            "CANCEL" => drop(self.sessions.cancel(number(rest)? as i32)),
            "TERMINATE" => drop(self.sessions.terminate(number(rest)? as i32)),
            // psql takes no data in for a statement that it does not know as this one.
            "COPY" if rest == "toys FROM STDIN" => {
                let mut copy = client.copy_in(Format::Text, &[Format::Text])?;
                let mut lines = 0;
                while let Some(piece) = copy.next()? {
                    lines += piece.iter().filter(|byte| **byte == b'\n').count();
                    if piece.windows(3).any(|word| word == b"bad") {
                        return Err(Report::error(SqlState::new("22P04"), "bad line"));
                    }
                }
                return Ok(client.command_complete(format_args!("COPY {lines}")));
            }
            "COPYOUT" => {
                let count = number(rest)?;
                let mut copy = client.copy_out(Format::Text, &[Format::Text]);
                for n in 0..count {
                    let mut piece = copy.piece();
                    piece.data().extend_from_slice(format!("line {n}\n").as_bytes());
                    piece.finish()?;
                }
                copy.finish();
                return Ok(client.command_complete(format_args!("COPY {count}")));
            }
            _ => {
                let message = format!("syntax error at or near \"{what}\"");
                return Err(Report::error(SqlState::SYNTAX_ERROR, message).position(1));
            }
        }
        Ok(match portal.statement.fields() {
            Some(_) => client.command_complete("SELECT 1"),
            None => client.command_complete(what),
        })
    }
}

impl Session for ToySession<'_> {
    fn has_begun(&self) -> bool {
        !self.is_held
    }

    fn simple_query(&mut self, sql: &str, client: &mut Client<'_>) -> Result<(), Report> {
        if sql.trim().is_empty() {
            let _ = client.empty_query();
            return Ok(());
        }
        for sql in sql.split(';').filter(|sql| !sql.trim().is_empty()) {
            let statement = Statement::new(sql, std::iter::empty());
            if statement.fields().is_some() {
                let _ = statement.describe(&[], client)?;
            }
            let values = vec![None; statement.types.len()];
            let mut portal = Portal { statement, values, results: Vec::new(), position: 0 };
            let _ = self.run(&mut portal, None, client)?;
        }
        Ok(())
    }

    fn parse(&mut self, name: &str, sql: &str, types: Types<'_>, _: &mut Out) -> Result<(), Report> {
        if sql.starts_with("UNPARSABLE") {
            return Err(Report::error(SqlState::SYNTAX_ERROR, "syntax error").position(1));
        }
        self.statements.insert(name.to_owned(), Statement::new(sql, types.iter()));
        Ok(())
    }

    fn bind(&mut self, bind: &Bind<'_>, _: &mut Out) -> Result<(), Report> {
        let statement = self.statements.get(bind.statement).ok_or_else(|| no_statement(bind.statement))?;
        if bind.values.len() != statement.types.len() {
            return Err(Report::error(SqlState::PROTOCOL_VIOLATION, "another number of parameters"));
        }
        bind.results.check_columns(statement.fields().map_or(0, |fields| fields.len()))?;
        let portal = Portal {
            statement: statement.clone(),
            values: bind.values.iter().map(|value| value.map(<[u8]>::to_vec)).collect(),
            results: bind.results.iter().collect(),
            position: 0,
        };
        self.portals.insert(bind.portal.to_owned(), portal);
        Ok(())
    }

    fn describe_statement(&mut self, name: &str, out: &mut Out) -> Result<Described, Report> {
        let statement = self.statements.get(name).ok_or_else(|| no_statement(name))?;
        out.parameter_description(&statement.types);
        statement.describe(&[], out)
    }

    fn describe_portal(&mut self, name: &str, out: &mut Out) -> Result<Described, Report> {
        let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
        portal.statement.describe(&portal.results, out)
    }

    fn execute(
        &mut self,
        portal: &str,
        limit: Option<NonZeroU32>,
        client: &mut Client<'_>,
    ) -> Result<Executed, Report> {
        let (name, mut portal) = self.portals.remove_entry(portal).ok_or_else(|| no_portal(portal))?;
        let executed = self.run(&mut portal, limit, client)?;
        self.portals.insert(name, portal);
        Ok(executed)
    }

    fn close_statement(&mut self, name: &str) -> Result<(), Report> {
        self.statements.remove(name);
        Ok(())
    }

    fn close_portal(&mut self, name: &str) -> Result<(), Report> {
        self.portals.remove(name);
        Ok(())
    }

    fn sync(&mut self, _: &mut Out) -> Result<(), Report> {
        if self.status == TransactionStatus::Idle {
            self.portals.clear();
        }
        Ok(())
    }

    fn failed(&mut self, _: &Report) {
        self.portals.clear();
        if self.status == TransactionStatus::Open {
            self.status = TransactionStatus::Failed;
        }
    }

    fn status(&self) -> TransactionStatus {
        self.status
    }

    fn interrupt(&self) -> Arc<dyn Interrupt> {
        Arc::clone(&self.stop) as Arc<dyn Interrupt>
    }

    fn idle_limit(&self) -> Option<Duration> {
        self.idle_limit
    }

    fn rung(&mut self, out: &mut Out) -> Result<(), Report> {
        for payload in self.news.lock().unwrap().drain(..) {
            out.notification(self.pid, "news", &payload);
        }
        Ok(())
    }

    fn flushes(&self) -> bool {
        self.flushes
    }
}

fn no_statement(name: &str) -> Report {
    Report::error(SqlState::new("26000"), format!("prepared statement \"{name}\" does not exist"))
}

fn no_portal(name: &str) -> Report {
    Report::error(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}
