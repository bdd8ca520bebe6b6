//! The targets: what is done with some bytes, and how it is judged.

use std::{
    cell::RefCell,
    fs,
    path::{Path, PathBuf},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use crate::{
    fixture::{Fixture, ROLE},
    message::{bind, cut, describe, execute, field, message, parse, query, startup, sync},
    panics,
};

/// What a statement may take before it is canceled, and once more before its session is terminated.
const PATIENCE: Duration = Duration::from_millis(250);
/// What a canceled and terminated session may take to end. Much, because the machine may be busy
/// with something else.
const HANGS: Duration = Duration::from_secs(30);
/// By how much a conversation may make the process grow, in bytes: several times what a query may
/// take.
const GROWTH: u64 = 1 << 30;
/// A server is as good as new for this many conversations that may have committed something.
const FRESH_FOR: usize = 25;
/// A query may take less than the default, so that a run needs less; there are tables in two
/// schemas.
const SETTINGS: &str = "-c freshet.query_memory=64MB -c lock_timeout=100ms -c search_path=public,general";

thread_local! {
    static CASE: RefCell<Case> = RefCell::new(Case::new());
}

/// Takes all that a client sends, from the start-up packet on; the first byte says in what pieces
/// it is read.
///
/// # Panics
/// When the server has not stood it.
pub fn protocol(data: &[u8]) {
    CASE.with_borrow_mut(|case| case.protocol(data));
}

/// Takes the text of statements.
///
/// # Panics
/// When the server has not stood it.
pub fn statements(data: &[u8]) {
    CASE.with_borrow_mut(|case| case.statements(data));
}

/// A server, and the judgement of how it stands what it is sent.
pub struct Case {
    fixture: Fixture,
    /// How many conversations may have changed the database for good.
    changes: usize,
    keep: Option<PathBuf>,
}

impl Default for Case {
    fn default() -> Self {
        Self::new()
    }
}

impl Case {
    /// With a new server.
    pub fn new() -> Self {
        panics::count();
        Self { fixture: Fixture::new(), changes: 0, keep: None }
    }

    /// Has all bytes be in a file before they are used, so that they are known should the process
    /// end with them.
    #[must_use]
    pub fn keep_in(mut self, path: &Path) -> Self {
        self.keep = Some(path.to_owned());
        self
    }

    /// As [`protocol`].
    ///
    /// # Panics
    /// When the server has not stood it.
    pub fn protocol(&mut self, data: &[u8]) {
        let (piece, bytes) = data.split_first().map_or((255, data), |(piece, bytes)| (*piece, bytes));
        self.changes += 1;
        let response = self.talk(bytes.to_vec(), usize::from(piece).max(1) * 16, data);
        // Whether encryption is to be had is answered without a message.
        let declined = response.iter().take_while(|byte| **byte == b'N').count();
        judge(&response[declined.min(2)..], data);
    }

    /// As [`statements`]; returns the SQLSTATEs of the errors.
    ///
    /// # Panics
    /// When the server has not stood it.
    pub fn statements(&mut self, data: &[u8]) -> Vec<String> {
        let parameters = parameters(data);
        let values = vec![None; parameters];
        let again = [query(b"ROLLBACK"), query(b"BEGIN")].concat();
        let bytes = [
            startup(&[("user", ROLE), ("options", SETTINGS)]),
            query(b"BEGIN"),
            parse("s", data, &[]),
            describe(b'S', "s"),
            sync(),
            again.clone(),
            parse("", data, &[]),
            bind("", "", 0, &values),
            describe(b'P', ""),
            execute("", 3),
            execute("", 0),
            sync(),
            again,
            query(data),
            message(b'c', b""),
            query(b"ROLLBACK"),
            message(b'X', b""),
        ];
        let text = String::from_utf8_lossy(data).to_lowercase();
        if ["commit", "rollback", "end", "abort", "prepare"].iter().any(|word| text.contains(word)) {
            self.changes += 1;
        }
        let response = self.talk(bytes.concat(), 1 << 20, data);
        judge(&response, data)
    }

    /// Has a conversation, in a thread as sessions have them.
    fn talk(&mut self, bytes: Vec<u8>, piece: usize, data: &[u8]) -> Vec<u8> {
        if self.changes >= FRESH_FOR {
            *self = Self { keep: self.keep.take(), ..Self::new() };
        }
        if let Some(path) = &self.keep {
            fs::write(path, data).expect("the case can be kept");
        }
        let before = (panics::count(), resident().map(|(now, _)| now));
        // What it takes at most is to be that of this conversation.
        let _ = fs::write("/proc/self/clear_refs", "5");
        let (sender, receiver) = mpsc::channel();
        let fixture = self.fixture.clone();
        let thread = thread::Builder::new().stack_size(fixture.stack());
        let thread = thread.spawn(move || sender.send(fixture.talk(&bytes, piece))).expect("a thread can be had");
        let mut response = receiver.recv_timeout(PATIENCE);
        if let Err(RecvTimeoutError::Timeout) = response {
            self.fixture.cancel();
            response = receiver.recv_timeout(PATIENCE);
        }
        if let Err(RecvTimeoutError::Timeout) = response {
            self.fixture.terminate();
            response = receiver.recv_timeout(HANGS);
        }
        match response {
            Ok(response) => {
                let _ = thread.join();
                let panics = panics::count() - before.0;
                assert!(panics == 0, "{panics} panics, by {}", shown(data));
                if let (Some(before), Some((_, most))) = (before.1, resident()) {
                    let grown = most.saturating_sub(before);
                    assert!(grown <= GROWTH, "{} MiB more were taken, by {}", grown >> 20, shown(data));
                }
                let ended = self.fixture.ended().join("; ");
                assert!(!ended.contains("not foreseen"), "{ended}, by {}", shown(data));
                response
            }
            Err(RecvTimeoutError::Timeout) => {
                panic!("it does not end {HANGS:?} after its session was terminated: {}", shown(data))
            }
            Err(RecvTimeoutError::Disconnected) => panic!("the thread has fallen, by {}", shown(data)),
        }
    }
}

/// What the process has in memory now, and at most since that was last forgotten, in bytes. Nothing
/// where there is no such file.
fn resident() -> Option<(u64, u64)> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
    };
    Some((of("VmRSS:")?, of("VmHWM:")?))
}

/// How many parameters a statement seems to have.
fn parameters(data: &[u8]) -> usize {
    let numbers = data.split(|byte| *byte == b'$').skip(1).map(|rest| {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).take(3);
        digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
    });
    numbers.filter(|number| *number <= 100).max().unwrap_or(0)
}

/// Bytes as they can be read and, as an escaped literal, used again.
fn shown(data: &[u8]) -> String {
    let shown: String = data.escape_ascii().to_string();
    match shown.char_indices().nth(4000) {
        Some((end, _)) => format!("{} … ({} bytes)", &shown[..end], data.len()),
        None => format!("b\"{shown}\""),
    }
}

/// What is wrong with an answer, whatever was asked. Returns the errors' SQLSTATEs.
fn judge(response: &[u8], data: &[u8]) -> Vec<String> {
    let Some(answers) = cut(response) else { panic!("the answer is not made of whole messages, to {}", shown(data)) };
    let mut states = Vec::new();
    for (kind, body) in answers {
        let known = b"RSKZTDCINEvtns123GHdcA".contains(&kind);
        assert!(known, "there is no message of kind {:?}, answered to {}", char::from(kind), shown(data));
        if kind == b'E' {
            let state = field(body, b'C').unwrap_or_default();
            let message = field(body, b'M').unwrap_or_default();
            assert!(state.len() == 5 && state != "XX000", "{state} {message}, by {}", shown(data));
            states.push(state);
        }
    }
    states
}
