//! Where the processor time of a node is (figure 9).

use std::time::Duration;

use freshet_base::cpu::thread_time;

/// What a node works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The logic of transactions: locks, reading, computing, changing rows.
    Logic,
    /// Making lists of writes, or records of the log.
    Build,
    /// Posting lists and messages.
    Send,
    /// Hearing of messages and completions, and what is done for protocols alone.
    Receive,
    /// Doing again what another node has done: replaying its log, or executing what it has
    /// executed.
    Replay,
    /// Clients, and looking what there is to do.
    Other,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Logic, Self::Build, Self::Send, Self::Receive, Self::Replay, Self::Other];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Logic => "logic",
            Self::Build => "build",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Replay => "replay",
            Self::Other => "other",
        }
    }
}

/// Divides the processor time of a node among roles. A change of roles costs a system call, so this
/// is done only where it was asked for.
#[derive(Debug)]
pub(crate) struct Clock {
    is_on: bool,
    role: Role,
    noted: Duration,
    totals: [Duration; Role::ALL.len()],
}

impl Clock {
    pub fn new(is_on: bool) -> Self {
        Self { is_on, role: Role::Other, noted: Duration::ZERO, totals: Default::default() }
    }

    /// The calling thread works for this node from now on.
    pub fn begin(&mut self) {
        if self.is_on {
            (self.role, self.noted) = (Role::Other, thread_time());
        }
    }

    /// It works on something else, perhaps.
    pub fn enter(&mut self, role: Role) {
        if self.is_on && role != self.role {
            self.note();
            self.role = role;
        }
    }

    /// It works for another node from now on.
    pub fn end(&mut self) {
        if self.is_on {
            self.note();
        }
    }

    fn note(&mut self) {
        let now = thread_time();
        self.totals[self.role as usize] += now.saturating_sub(self.noted);
        self.noted = now;
    }

    /// The time of a role.
    pub fn total(&self, role: Role) -> Duration {
        self.totals[role as usize]
    }

    /// Forgets what was.
    pub fn reset(&mut self) {
        self.totals = Default::default();
    }
}
