//! SQL clients that read: one for each node, and now and then those who write.

use std::{thread, time::Duration};

use freshet_workloads::random::Random;

use super::{
    history::{ACCOUNTS, BALANCE, Id, KEYS, PER_CLIENT, PIECES, Read, Route},
    load::{Load, is_harmless, number, numbers, registers},
};
use freshet::sql_client::{Reply, Session, SqlFailure};

/// A session that reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reader {
    /// The node that was reached, and who serves the session.
    pub(super) node: usize,
    pub(super) route: Route,
    connection: u64,
    begun: Duration,
    /// What it was last told that it has committed: where, and which transaction.
    wrote: Option<(u64, Id)>,
}

impl Reader {
    /// One that is about to begin.
    pub(super) fn begin(load: &Load, node: usize, route: Route) -> Self {
        let (connection, begun) = (load.history.connection(), load.history.now());
        Self { node, route, connection, begun, wrote: None }
    }

    pub(super) fn wrote(&mut self, lsn: u64, id: Id) {
        self.wrote = Some((lsn, id));
    }

    /// What it is about to read, as far as that is known before. A divided session begins with what
    /// the primary has, and has to see what it has written itself.
    fn read(&self, load: &Load) -> Read {
        let is_divided = self.route == Route::Any;
        Read {
            node: self.node,
            route: self.route,
            connection: self.connection,
            begun: load.history.now(),
            after: self.wrote.map(|(lsn, _)| lsn).filter(|_| is_divided),
            own: self.wrote.map(|(_, id)| id),
            // Without leases a primary that was succeeded may not know it yet.
            since: (is_divided && load.history.book().leases).then_some(self.begun),
            ..Read::default()
        }
    }
}

impl Load<'_> {
    /// Reads on one node, or begins there and has others read, too.
    pub(super) fn read(&self, node: usize, mut random: Random) {
        while self.lasts() {
            let route = if random.below(4) == 0 { Route::Any } else { Route::Node };
            let reader = Reader::begin(self, node, route);
            let Ok(mut session) = self.open(node, route) else {
                thread::sleep(Duration::from_millis(50));
                continue;
            };
            while self.lasts() {
                let client = random.below(self.clients).cast_signed();
                if let Err(failure) = self.look(&mut session, &reader, client, &mut random) {
                    self.judge(&failure, node, "a reader");
                    if !is_harmless(&failure) || session.run("ROLLBACK").is_err() {
                        break;
                    }
                }
                thread::sleep(Duration::from_millis(random.within(2, 30)));
            }
        }
    }

    /// Where the newest transactions of a client begin, of those that it has tried.
    fn newest_of(&self, client: i64) -> Id {
        let book = self.history.book();
        let newest = book.writes.iter().rev().find(|write| write.id / PER_CLIENT == client);
        newest.map_or(client * PER_CLIENT, |write| (write.id - 60).max(client * PER_CLIENT))
    }

    /// One snapshot of all, or, in a divided session, of one table by one statement.
    pub(super) fn look(
        &self,
        session: &mut Session,
        reader: &Reader,
        client: i64,
        random: &mut Random,
    ) -> Result<(), SqlFailure> {
        if reader.route != Route::Any {
            let asks = random.below(3) == 0;
            return self.look_at_all(session, reader, client, asks);
        }
        match random.below(4) {
            0 => self.look_at_registers(session, reader),
            1 | 2 => self.look_at_journal(session, reader, client),
            _ => self.look_at_all(session, reader, client, false),
        }
    }

    fn look_at_registers(&self, session: &mut Session, reader: &Reader) -> Result<(), SqlFailure> {
        let mut read = reader.read(self);
        let seen = session.run("SELECT key, version, writer FROM register")?;
        read.ended = self.history.now();
        self.keep_registers(&mut read, &seen);
        self.history.book().reads.push(read);
        Ok(())
    }

    fn look_at_journal(&self, session: &mut Session, reader: &Reader, client: i64) -> Result<(), SqlFailure> {
        let mut read = reader.read(self);
        read.journal = self.journal_of(session, client, || self.whence(&read))?;
        read.ended = self.history.now();
        self.history.book().reads.push(read);
        Ok(())
    }

    fn whence(&self, read: &Read) -> String {
        let (node, route) = (&self.names[read.node], read.route.name());
        format!("on node {node}, connection {}, route {route}", read.connection)
    }

    fn keep_registers(&self, read: &mut Read, seen: &Reply) {
        read.registers = registers(&seen.rows);
        if read.registers.len() as i64 != KEYS {
            self.history.violated(format!("registers are missing, seen {}: {:?}", self.whence(read), read.registers));
        }
    }

    /// The newest transactions of a client, from some id on.
    pub(super) fn journal_of(
        &self,
        session: &mut Session,
        client: i64,
        whence: impl FnOnce() -> String,
    ) -> Result<Option<(Id, Vec<Id>)>, SqlFailure> {
        let (from, below) = (self.newest_of(client), (client + 1) * PER_CLIENT);
        let journal =
            session.run(&format!("SELECT id FROM journal WHERE id >= {from} AND id < {below} ORDER BY id"))?;
        let ids: Vec<Id> = journal.rows.iter().map(|row| number(&row[0])).collect();
        if !ids.is_sorted() || ids.iter().any(|id| !(from..below).contains(id)) {
            self.history.violated(format!("ids from {from} to {below} were asked for {}: {ids:?}", whence()));
            return Ok(None);
        }
        Ok(Some((from, ids)))
    }

    /// One snapshot; `asks` for the LSN that was told last.
    fn look_at_all(&self, session: &mut Session, reader: &Reader, client: i64, asks: bool) -> Result<(), SqlFailure> {
        let led = session.takes_writers();
        let mut read = reader.read(self);
        if asks {
            // As a client that was told of a commit asks for it.
            let lsn = *read.after.insert(self.history.book().last_lsn);
            session.run(&format!("SET freshet.read_after = '{lsn}'"))?;
        } else if reader.route != Route::Any {
            session.run("SET freshet.read_after = ''")?;
        }
        session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
        let registers_seen = session.run("SELECT key, version, writer FROM register")?;
        let accounts = session.run("SELECT id, balance FROM account")?;
        let pieces = session.run("SELECT piece, place FROM piece")?;
        // A node that began with nothing is at the definitions still.
        let nothing = [&registers_seen, &accounts, &pieces].iter().all(|it| it.rows.is_empty());
        if nothing && read.after.is_none() && reader.route == Route::Node {
            return session.run("COMMIT").map(drop);
        }
        let by_index = session.run("SELECT count(*) FROM shelf WHERE tag = 1")?.rows;
        let by_row = session.run("SELECT count(*) FROM shelf WHERE tag + 0 = 1")?.rows;
        read.journal = self.journal_of(session, client, || self.whence(&read))?;
        // On a primary what was read counts only when the end of the transaction says that it
        // holds.
        session.run("COMMIT")?;
        read.ended = self.history.now();
        read.current = led && session.takes_writers() && self.is_current(reader.route);
        let whence = self.whence(&read);
        let sum: i64 = numbers(&accounts.rows).map(|row| row[1]).sum();
        if sum != ACCOUNTS * BALANCE || accounts.rows.len() as i64 != ACCOUNTS {
            self.history.violated(format!("half a transaction was seen {whence}: accounts {:?}", accounts.rows));
        }
        if by_index != by_row {
            let what = format!("an index lacks rows, seen {whence}: {by_index:?} of {by_row:?}");
            self.history.violated(what);
        }
        let mut found: Vec<i64> = numbers(&pieces.rows).map(|row| row[0]).collect();
        found.sort_unstable();
        if !found.iter().copied().eq(0..PIECES) {
            self.history.violated(format!("a moved row is lost, seen {whence}: {:?}", pieces.rows));
        }
        self.keep_registers(&mut read, &registers_seen);
        self.history.book().reads.push(read);
        Ok(())
    }

    /// Whether what such a session sees on what says that it is the primary is up to date: which
    /// node that is, and whether it stood still before, is not known of one that was handed on.
    fn is_current(&self, route: Route) -> bool {
        match route {
            Route::Node => true,
            Route::Primary => self.history.book().leases,
            Route::Any => false,
        }
    }
}
