//! LISTEN, UNLISTEN and NOTIFY in a session: what its transaction wants, until it ends, and what
//! the client is told.

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeSet, HashSet},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_engine::{Lsn, NotRecorded};
use freshet_postgres::{Bell, Out, Report};
use freshet_sql::{
    SqlError, SqlState,
    memory::{Pool, Reservation},
};

use super::{Session, statement::Tag, syntax::Channel, transaction::Block};
use crate::{
    error::write_error,
    notify::{Listener, Notification, Notifications, Overflown},
    schema::Oid,
    server::Shared,
};

/// About how many bytes it takes to listen on a channel.
const LISTENING: usize = 512;

/// Longer than anybody waits.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// What LISTEN and UNLISTEN do at the end of their transaction.
#[derive(Clone, Debug)]
enum Change {
    Listen(Box<str>),
    Unlisten(Box<str>),
    UnlistenAll,
}

/// What a transaction wants.
#[derive(Debug, Default)]
struct Wanted {
    changes: Vec<Change>,
    /// In the order of NOTIFY, none twice.
    notifications: Vec<Rc<Notification>>,
    known: HashSet<Rc<Notification>>,
    /// Channels that the session hears of since its transaction is about to commit.
    entered: Vec<Box<str>>,
    kept: Option<Reservation>,
}

impl Wanted {
    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.notifications.is_empty()
    }

    fn keep(&mut self, memory: &Arc<Pool>, bytes: usize) -> Result<(), SqlError> {
        self.kept.get_or_insert_with(|| memory.reserve()).take(bytes)
    }
}

/// How much a transaction wanted at a savepoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct WantedMark(usize, usize);

/// A session's channels.
pub struct SessionChannels {
    shared: Arc<Shared>,
    database: Oid,
    pid: i32,
    bell: Bell,
    /// Made when it first listens.
    listener: OnceCell<Arc<Listener>>,
    /// On which channels it listens.
    listening: RefCell<BTreeSet<Box<str>>>,
    wanted: RefCell<Wanted>,
}

impl SessionChannels {
    /// Of a session that listens to nothing.
    pub fn new(shared: &Arc<Shared>, database: Oid, pid: i32, bell: Bell) -> Self {
        Self {
            shared: Arc::clone(shared),
            database,
            pid,
            bell,
            listener: OnceCell::new(),
            listening: RefCell::default(),
            wanted: RefCell::default(),
        }
    }

    fn notifications(&self) -> &Notifications {
        &self.shared.notifications
    }

    /// On which channels the session listens, in the order of their names.
    pub fn listening(&self) -> Vec<String> {
        self.listening.borrow().iter().map(|channel| channel.to_string()).collect()
    }

    /// Has the transaction notify a channel when it commits. Again the same is once.
    ///
    /// # Errors
    /// 22023, 25006 on a standby, 53200.
    pub fn notify(&self, channel: &str, payload: &str, memory: &Arc<Pool>) -> Result<(), SqlError> {
        if self.shared.is_standby() {
            let message = "cannot execute NOTIFY during recovery";
            return Err(SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message));
        }
        let notification = Rc::new(Notification::new(channel, payload)?);
        let mut wanted = self.wanted.borrow_mut();
        if !wanted.known.contains(&notification) {
            wanted.keep(memory, 2 * notification.size())?;
            wanted.known.insert(Rc::clone(&notification));
            wanted.notifications.push(notification);
        }
        Ok(())
    }

    fn change(&self, change: Change, memory: &Arc<Pool>) -> Result<(), SqlError> {
        let mut wanted = self.wanted.borrow_mut();
        wanted.keep(memory, LISTENING)?;
        wanted.changes.push(change);
        Ok(())
    }

    /// What the transaction wants by now.
    pub fn mark(&self) -> WantedMark {
        let wanted = self.wanted.borrow();
        WantedMark(wanted.changes.len(), wanted.notifications.len())
    }

    /// Takes back what it has wanted since.
    pub fn back_to(&self, WantedMark(changes, notifications): WantedMark) {
        let mut wanted = self.wanted.borrow_mut();
        wanted.changes.truncate(changes);
        for notification in wanted.notifications.split_off(notifications) {
            wanted.known.remove(&notification);
        }
    }

    /// On which channels the session listens after its transaction.
    fn after(&self, changes: &[Change]) -> BTreeSet<Box<str>> {
        let mut channels = self.listening.borrow().clone();
        for change in changes {
            match change {
                Change::Listen(channel) => drop(channels.insert(channel.clone())),
                Change::Unlisten(channel) => drop(channels.remove(channel)),
                Change::UnlistenAll => channels.clear(),
            }
        }
        channels
    }

    /// Whether the transaction has the session listen to anything.
    fn begins_to_listen(&self) -> bool {
        self.wanted.borrow().changes.iter().any(|change| matches!(change, Change::Listen(_)))
    }

    /// The transaction is about to commit: from here on the session hears of what it will listen
    /// to.
    fn enter(&self) {
        let wanted = &mut *self.wanted.borrow_mut();
        let Some(listener) = self.listener.get().filter(|_| !wanted.changes.is_empty()) else { return };
        let (before, after) = (self.listening.borrow(), self.after(&wanted.changes));
        wanted.entered = after.difference(&before).cloned().collect();
        self.notifications().listen(self.database, wanted.entered.iter().map(|it| &**it), listener);
    }

    /// The transaction has ended. What came while it lasted, the client is told soon.
    pub fn ended(&self, committed: bool) {
        if self.listener.get().is_none() && self.wanted.borrow().kept.is_none() {
            return;
        }
        let wanted = std::mem::take(&mut *self.wanted.borrow_mut());
        let Some(listener) = self.listener.get() else { return };
        if committed && !wanted.changes.is_empty() {
            let after = self.after(&wanted.changes);
            let before = self.listening.replace(after);
            let (before, after) = (before, self.listening.borrow());
            self.notifications().unlisten(self.database, before.difference(&after).map(|it| &**it), listener);
        } else if !committed && !wanted.entered.is_empty() {
            self.notifications().unlisten(self.database, wanted.entered.iter().map(|it| &**it), listener);
        }
        listener.ring_again();
    }

    /// Listens to nothing any more.
    pub fn unlisten_all(&self) {
        let channels = self.listening.take();
        if let Some(listener) = self.listener.get() {
            self.notifications().unlisten(self.database, channels.iter().map(|it| &**it), listener);
        }
    }

    /// Sends the client the notifications that have come.
    ///
    /// # Errors
    /// 54000, and the session ends, when more has come than can wait for it.
    fn deliver(&self, out: &mut Out) -> Result<(), Report> {
        let Some(listener) = self.listener.get() else { return Ok(()) };
        let delivered = listener.take().map_err(|Overflown| {
            let message = "terminating connection because too many notifications wait for it";
            let report = Report::fatal(freshet_postgres::SqlState::new("54000"), message);
            report.hint("A session hears of notifications between its transactions, when its client reads.")
        })?;
        let listening = self.listening.borrow();
        for it in delivered.iter().filter(|it| listening.contains(&it.notification.channel)) {
            out.notification(it.pid, &it.notification.channel, &it.notification.payload);
        }
        Ok(())
    }
}

impl Drop for SessionChannels {
    fn drop(&mut self) {
        self.ended(false);
        self.unlisten_all();
    }
}

impl Session<'_> {
    /// LISTEN, UNLISTEN, NOTIFY
    ///
    /// # Errors
    /// As for [`SessionChannels::notify`]; 53000 when the system has no descriptor left.
    pub(super) fn channel(&self, channel: &Channel) -> Result<Tag, SqlError> {
        let (channels, memory) = (&self.state.channels, &self.state.memory);
        let tag = match channel {
            Channel::Listen(name) => {
                self.state.must_not_read_for_others("LISTEN")?;
                if channels.listener.get().is_none() {
                    channels.bell.listen().map_err(|cause| {
                        let message = format!("the session cannot be woken for notifications: {cause}");
                        SqlError::new(SqlState::new("53000"), message)
                    })?;
                    let _ = channels.listener.set(Listener::new(channels.bell.clone(), &self.shared.memory));
                }
                channels.change(Change::Listen(name.as_str().into()), memory)?;
                "LISTEN"
            }
            Channel::Unlisten(name) => {
                let change = match name {
                    Some(name) => Change::Unlisten(name.as_str().into()),
                    None => Change::UnlistenAll,
                };
                channels.change(change, memory)?;
                "UNLISTEN"
            }
            Channel::Notify(name, payload) => {
                channels.notify(name, payload, memory)?;
                "NOTIFY"
            }
        };
        Ok(Tag(tag.to_owned()))
    }

    /// Adds to the transaction what goes with its commit: its token, and what it notifies of.
    /// Returns whether it notifies.
    ///
    /// # Errors
    /// As for [`Session::carry_notifications`]; when the token cannot be written.
    pub(super) fn carry(&mut self) -> Result<bool, SqlError> {
        if let Some(Block { token, transaction: Some(transaction), .. }) = &self.block
            && let Some(open) = token.get()
        {
            open.write(transaction)?;
            // No statement has written it.
            transaction.keep_records(NotRecorded::Undetermined);
        }
        self.carry_notifications()
    }

    /// Before a transaction commits: hands what it notifies to the engine's, and has the session
    /// hear of what it is going to listen to. Returns whether it notifies.
    ///
    /// # Errors
    /// 54000, what the engine says, and what ends the wait of a standby that has just been started.
    fn carry_notifications(&mut self) -> Result<bool, SqlError> {
        if self.state.channels.wanted.borrow().is_empty() {
            return Ok(false);
        }
        let notifies = !self.state.channels.wanted.borrow().notifications.is_empty();
        if notifies {
            if self.block.as_ref().is_some_and(|block| block.transaction.is_none()) {
                self.block_for_statement()?;
            }
            let transaction = self.block.as_ref().and_then(|block| block.transaction.as_ref());
            let transaction = transaction.ok_or_else(|| SqlError::internal("notifications without a transaction"))?;
            let SessionChannels { database, pid, wanted, .. } = &self.state.channels;
            for notification in &wanted.borrow().notifications {
                transaction.carry(&notification.encode(*database, *pid)).map_err(write_error)?;
            }
        }
        if self.state.channels.begins_to_listen() && self.shared.is_standby() {
            // What a standby had at its start and has not shown yet is not told: it is read.
            let from = self.shared.database.messages().from();
            if self.shared.database.committed() < from {
                let deadline = Instant::now() + NEVER;
                self.shared.wait_visible(Lsn(from.0 - 1), deadline, &|| self.check())?;
            }
        }
        self.state.channels.enter();
        Ok(notifies)
    }

    /// Sends the client the notifications that have come, unless a transaction is open.
    ///
    /// # Errors
    /// As for [`SessionChannels::deliver`].
    pub(super) fn deliver_notifications(&self, out: &mut Out) -> Result<(), Report> {
        if self.block.is_none() { self.state.channels.deliver(out) } else { Ok(()) }
    }
}
