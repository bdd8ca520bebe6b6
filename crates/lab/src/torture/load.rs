//! SQL clients that write, on whichever node takes writers, or by whichever has them done.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use freshet_workloads::random::Random;

use super::{
    history::{
        ACCOUNTS, BALANCE, Effect, Final, History, Id, KEYS, Outcome, PER_CLIENT, PIECES, PLACES, Route, Seen, Write,
    },
    reading::Reader,
};
use freshet::sql_client::{Reply, Session, SqlFailure};

/// The superuser of a new database.
pub(super) const USER: &str = "freshet";

/// How long a client waits for any answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long it waits for a session.
const CONNECT: Duration = Duration::from_secs(1);

/// Errors that a client has to expect when nodes come and go, besides those of class 08: conflicts,
/// deadlocks, open outcomes, standbys, nodes that end or are not ready, time-outs, too many
/// sessions.
const EXPECTED: [&str; 9] = ["40001", "40P01", "40003", "25006", "57P01", "57P03", "57014", "53300", "23505"];

/// Of these, those after which the session is as good as before.
const HARMLESS: [&str; 4] = ["40001", "40P01", "57014", "23505"];

/// Who serves the sessions of clients that write.
const ROUTES: [Route; 6] = [Route::Node, Route::Node, Route::Node, Route::Any, Route::Any, Route::Primary];

/// How many rows table `labour` has.
const LABOURS: i64 = 90;

/// The statements that make what the load works on.
pub(super) fn definitions() -> Vec<String> {
    let values = |count: i64, row: &dyn Fn(i64) -> String| (0..count).map(row).collect::<Vec<_>>().join(", ");
    let mut statements: Vec<String> = [
        "CREATE TABLE journal (id bigint PRIMARY KEY, key bigint, version bigint, note text)",
        "CREATE TABLE register (key bigint PRIMARY KEY, version bigint NOT NULL, writer bigint NOT NULL)",
        "CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL)",
        "CREATE TABLE piece (place bigint PRIMARY KEY, piece bigint NOT NULL, hops bigint NOT NULL)",
        "CREATE UNIQUE INDEX piece_piece ON piece (piece)",
        "CREATE TABLE shelf (id bigint PRIMARY KEY, tag bigint NOT NULL)",
        "CREATE INDEX shelf_tag ON shelf (tag)",
        "CREATE TABLE litter (id bigint PRIMARY KEY)",
        "CREATE TABLE labour (id bigint PRIMARY KEY, times bigint NOT NULL)",
    ]
    .map(str::to_owned)
    .to_vec();
    // All at once: a node that begins with nothing, and gets the whole log, shows each step.
    statements.push("BEGIN".to_owned());
    statements.push(format!("INSERT INTO labour VALUES {}", values(LABOURS, &|row| format!("({}, 0)", 10 + row))));
    statements.push(format!("INSERT INTO register VALUES {}", values(KEYS, &|key| format!("({key}, 0, 0)"))));
    statements.push(format!("INSERT INTO account VALUES {}", values(ACCOUNTS, &|id| format!("({id}, {BALANCE})"))));
    statements.push(format!("INSERT INTO piece VALUES {}", values(PIECES, &|piece| format!("({piece}, {piece}, 0)"))));
    statements.push("COMMIT".to_owned());
    statements
}

/// Runs a statement that takes about `time`, and as much on standbys that execute it again, and
/// logs little.
pub(super) fn labour(session: &mut Session, time: Duration) -> Result<(), SqlFailure> {
    let mut update = |rows: i64| {
        let work = "length(md5(repeat(id::text, 1000000))) = 32";
        session.run(&format!("UPDATE labour SET times = times + 1 WHERE id < {} AND {work}", 10 + rows)).map(drop)
    };
    let begun = Instant::now();
    update(1)?;
    let rows = time.as_secs_f64() / begun.elapsed().as_secs_f64();
    update((rows as i64).clamp(1, LABOURS))
}

pub(super) fn number(text: &str) -> i64 {
    text.parse().unwrap_or(i64::MIN)
}

pub(super) fn numbers(rows: &[Vec<String>]) -> impl Iterator<Item = Vec<i64>> {
    rows.iter().map(|row| row.iter().map(|value| number(value)).collect())
}

pub(super) fn registers(rows: &[Vec<String>]) -> Vec<(i64, i64, Id)> {
    numbers(rows).map(|row| (row[0], row[1], row[2])).collect()
}

/// How many rows a statement has changed.
fn changed(reply: &Reply) -> i64 {
    reply.tags.last().and_then(|tag| tag.rsplit(' ').next()).map_or(0, number)
}

/// Everything that a node shows.
pub(super) fn all(socket: &Path, patience: Duration) -> Result<Final, SqlFailure> {
    let mut session = Session::open(socket, USER, patience)?;
    let mut shown = Final::default();
    for row in session.run("SELECT id, key, version FROM journal")?.rows {
        let register = (!row[1].is_empty()).then(|| (number(&row[1]), number(&row[2])));
        shown.journal.insert(number(&row[0]), register);
    }
    shown.registers = registers(&session.run("SELECT key, version, writer FROM register")?.rows).into_iter().collect();
    let pairs = |rows: &[Vec<String>]| numbers(rows).map(|row| (row[0], row[1])).collect();
    shown.accounts = pairs(&session.run("SELECT id, balance FROM account")?.rows);
    shown.pieces = pairs(&session.run("SELECT piece, hops FROM piece")?.rows);
    Ok(shown)
}

/// What all clients of a load share.
pub(super) struct Load<'a> {
    pub(super) history: &'a History,
    /// Where each node's sessions are.
    pub(super) sockets: &'a [PathBuf],
    pub(super) names: &'a [String],
    pub(super) stop: &'a AtomicBool,
    /// How many write.
    pub(super) clients: u64,
    /// Whether pieces are moved.
    pub(super) moves: bool,
}

impl Load<'_> {
    pub(super) fn lasts(&self) -> bool {
        // Relaxed: they stop some time soon.
        !self.stop.load(Ordering::Relaxed)
    }

    /// Counts an error, and judges it.
    pub(super) fn judge(&self, failure: &SqlFailure, node: usize, whose: &str) {
        let (key, unexpected) = match failure {
            SqlFailure::Lost(_) => ("connection lost", false),
            SqlFailure::Server { code, .. } => {
                (code.as_str(), !EXPECTED.contains(&code.as_str()) && !code.starts_with("08"))
            }
        };
        *self.history.book().errors.entry(key.to_owned()).or_default() += 1;
        if unexpected {
            self.history
                .violated(format!("an unexpected error: {whose} on node {} received {failure}", self.names[node]));
        }
    }

    pub(super) fn open(&self, node: usize, route: Route) -> Result<Session, SqlFailure> {
        let settings = [("freshet.route", route.name())];
        let mut session = Session::open_with(&self.sockets[node], USER, &settings, CONNECT)?;
        session.run("SET freshet.commit_lsns = on")?;
        session.wait_for(PATIENCE)?;
        Ok(session)
    }

    /// Writes, as client `number`, whose last transaction had the sequence number `last`; returns
    /// the new one.
    pub(super) fn write(&self, number: i64, last: i64, random: Random) -> i64 {
        let reader = Reader::default();
        let mut client = Client { load: self, number, sequence: last, random, reader };
        let mut session: Option<Session> = None;
        while self.lasts() {
            let mut open = match session.take() {
                Some(open) => open,
                None => match client.connect() {
                    Some(open) => open,
                    None => {
                        thread::sleep(Duration::from_millis(20));
                        continue;
                    }
                },
            };
            if client.step(&mut open) {
                session = Some(open);
            }
            thread::sleep(Duration::from_micros(client.random.below(6_000)));
        }
        client.sequence
    }
}

/// What a transaction is about.
#[derive(Clone, Copy)]
enum Plan {
    Journal,
    Transfer,
    Register,
    Move,
    Bump,
}

/// Who writes.
struct Client<'a> {
    load: &'a Load<'a>,
    number: i64,
    sequence: i64,
    random: Random,
    reader: Reader,
}

impl Client<'_> {
    /// Connects to a node that takes writers, as drivers do with target_session_attrs=read-write;
    /// or to any, for a session that it hands on, or divides.
    fn connect(&mut self) -> Option<Session> {
        let route = ROUTES[self.random.below(ROUTES.len() as u64) as usize];
        let mut order: Vec<usize> = (0..self.load.sockets.len()).collect();
        self.random.shuffle(&mut order);
        for node in order {
            if !self.load.lasts() {
                return None;
            }
            let reader = Reader::begin(self.load, node, route);
            if let Ok(session) = self.load.open(node, route)
                && session.takes_writers()
            {
                self.reader = reader;
                return Some(session);
            }
        }
        None
    }

    /// One transaction; returns whether the session can be used again.
    fn step(&mut self, session: &mut Session) -> bool {
        let Reader { node, route, .. } = self.reader;
        // Of what a divided session writes, much is looked for.
        if self.random.below(if route == Route::Any { 2 } else { 12 }) == 0 {
            let load = self.load;
            let looked = load.look(session, &self.reader, self.number, &mut self.random);
            return match looked {
                Ok(()) => true,
                Err(failure) => {
                    load.judge(&failure, node, &format!("client {}, reading,", self.number));
                    is_harmless(&failure) && session.run("ROLLBACK").is_ok()
                }
            };
        }
        self.sequence += 1;
        let id = self.number * PER_CLIENT + self.sequence;
        let begun = self.load.history.now();
        let mut effect = Effect::default();
        let went = self.transaction(session, id, &mut effect);
        let ended = self.load.history.now();
        let (outcome, again) = match went {
            Ok(lsn) => {
                self.reader.wrote(lsn, id);
                (Outcome::Committed(lsn), true)
            }
            Err((committing, failure)) => {
                self.load.judge(&failure, node, &format!("client {}", self.number));
                let harmless = is_harmless(&failure);
                let text = failure.to_string();
                let outcome =
                    if committing && failure.is_open() { Outcome::Open(text) } else { Outcome::Refused(text) };
                (outcome, harmless && session.run("ROLLBACK").is_ok())
            }
        };
        self.load.history.wrote(Write { id, node, route, begun, ended, outcome, effect });
        again
    }

    /// Runs a transaction; returns its LSN, or why not and whether it was being committed.
    fn transaction(&mut self, session: &mut Session, id: Id, effect: &mut Effect) -> Result<u64, (bool, SqlFailure)> {
        let before = |failure: SqlFailure| (false, failure);
        let level = self.random.below(3) as usize;
        let levels = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
        let plan = match self.random.below(100) {
            0..30 => Plan::Journal,
            30..55 => Plan::Transfer,
            55..82 => Plan::Register,
            82..97 if self.load.moves => Plan::Move,
            82..97 => Plan::Register,
            _ => Plan::Bump,
        };
        session.run(&format!("BEGIN ISOLATION LEVEL {}", levels[level])).map_err(before)?;
        if levels[level] == "SERIALIZABLE" {
            effect.seen = Some(self.see(session).map_err(before)?);
        }
        match plan {
            Plan::Journal => {}
            Plan::Transfer => self.transfer(session, effect).map_err(before)?,
            Plan::Register => self.register(session, id, level > 0, effect).map_err(before)?,
            Plan::Move => self.move_piece(session, effect).map_err(before)?,
            Plan::Bump => self.bump(session, levels[level], effect).map_err(before)?,
        }
        if self.random.below(40) == 0 {
            // Standbys write checkpoints in the meantime, and what it has seen is older than these.
            thread::sleep(Duration::from_millis(self.random.within(100, 1_500)));
        }
        let register = effect.register.map_or("NULL, NULL".to_owned(), |(key, version)| format!("{key}, {version}"));
        let note = match self.random.below(10) {
            0 => format!("repeat('x', {})", self.random.within(1_000, 20_000)),
            _ => "''".to_owned(),
        };
        session.run(&format!("INSERT INTO journal VALUES ({id}, {register}, {note})")).map_err(before)?;
        let reply = session.run("COMMIT").map_err(|failure| (true, failure))?;
        if reply.tags.last().map(String::as_str) != Some("COMMIT") {
            let refusal =
                SqlFailure::Server { code: "40001".to_owned(), message: format!("{:?}", reply.tags), fatal: false };
            return Err((false, refusal));
        }
        let lsn = session.parameter("freshet.last_commit").and_then(|lsn| lsn.parse().ok());
        lsn.ok_or_else(|| (true, SqlFailure::Lost("no LSN came with the commit".to_owned())))
    }

    /// Reads what others write, as a SERIALIZABLE transaction that then writes something else.
    fn see(&mut self, session: &mut Session) -> Result<Seen, SqlFailure> {
        let mut seen = Seen::default();
        if self.random.below(2) == 0 {
            let (one, other) = (self.random.below(KEYS as u64), self.random.below(KEYS as u64));
            let rows = session.run(&format!("SELECT key, version FROM register WHERE key IN ({one}, {other})"))?.rows;
            seen.registers = numbers(&rows).map(|row| (row[0], row[1])).collect();
        }
        if self.random.below(4) == 0 {
            let client = self.random.below(self.load.clients).cast_signed();
            seen.journal = self.load.journal_of(session, client, || format!("by client {}", self.number))?;
        }
        Ok(seen)
    }

    fn transfer(&mut self, session: &mut Session, effect: &mut Effect) -> Result<(), SqlFailure> {
        let (from, amount) = (self.random.below(ACCOUNTS as u64) as i64, self.random.within(1, 10) as i64);
        let to = (from + self.random.within(1, ACCOUNTS as u64 - 1) as i64) % ACCOUNTS;
        session.run(&format!("UPDATE account SET balance = balance - {amount} WHERE id = {from}"))?;
        session.run(&format!("UPDATE account SET balance = balance + {amount} WHERE id = {to}"))?;
        effect.transfer = Some((from, to, amount));
        Ok(())
    }

    /// Makes the next version of a register: in one statement, after locking it, or, where the
    /// level prevents lost updates, after reading it.
    fn register(
        &mut self,
        session: &mut Session,
        id: Id,
        prevents: bool,
        effect: &mut Effect,
    ) -> Result<(), SqlFailure> {
        let key = self.random.below(KEYS as u64) as i64;
        let first = |reply: &Reply| reply.rows.first().map_or(i64::MIN, |row| number(&row[0]));
        let version = match self.random.below(3) {
            0 => {
                let update = "UPDATE register SET version = version + 1";
                let update = format!("{update}, writer = {id} WHERE key = {key} RETURNING version");
                first(&session.run(&update)?)
            }
            how => {
                let lock = if how == 1 || !prevents { " FOR UPDATE" } else { "" };
                let read = session.run(&format!("SELECT version FROM register WHERE key = {key}{lock}"))?;
                let version = first(&read) + 1;
                session.run(&format!("UPDATE register SET version = {version}, writer = {id} WHERE key = {key}"))?;
                version
            }
        };
        effect.register = Some((key, version));
        Ok(())
    }

    /// Moves what is at some place to another one, by its key.
    fn move_piece(&mut self, session: &mut Session, effect: &mut Effect) -> Result<(), SqlFailure> {
        let mut place = || self.random.below(PLACES as u64);
        let (from, to) = (place(), place());
        let moved = session.run(&format!("UPDATE piece SET place = {to}, hops = hops + 1 WHERE place = {from}"))?;
        effect.hops = changed(&moved);
        Ok(())
    }

    /// Changes all pieces, wherever they move in the meantime.
    fn bump(&mut self, session: &mut Session, level: &str, effect: &mut Effect) -> Result<(), SqlFailure> {
        effect.hops = changed(&session.run("UPDATE piece SET hops = hops + 1")?);
        if effect.hops != PIECES {
            let (node, hops) = (&self.load.names[self.reader.node], effect.hops);
            self.load.history.violated(format!(
                "a moved row is skipped: UPDATE of all {PIECES} pieces on node {node} ({level}) changed {hops}"
            ));
        }
        Ok(())
    }
}

pub(super) fn is_harmless(failure: &SqlFailure) -> bool {
    matches!(failure, SqlFailure::Server { code, fatal: false, .. } if HARMLESS.contains(&code.as_str()))
}
