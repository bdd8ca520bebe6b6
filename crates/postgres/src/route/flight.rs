//! What of a session is under way, as the node in the middle sees it: which of the client's
//! messages have no answer yet, and what is certain of them when the answer does not come.

use std::collections::HashMap;

use crate::{
    backend::TransactionStatus,
    report::{Report, SqlState},
};

/// Names of statements that were prepared since the last answer, at most.
const NAMES: usize = 256;

/// What a text does to the transaction around it, as far as it shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing: it is one statement, and neither ends nor begins a transaction.
    Stays,
    /// The same, and it writes nothing.
    WritesNothing,
    /// It begins one.
    Begins,
    /// It takes one back, and nothing else.
    RollsBack,
    /// It may commit, and none is open behind it: COMMIT, or several statements that end so.
    Ends,
    /// It may commit, and one may be open behind it.
    MayOpen,
    /// It may commit, and is not understood. Behind it one may be open if one was before.
    #[default]
    MayCommit,
}

impl Effect {
    /// That of a text; of one that was not kept whole, this is the beginning, and `several` says
    /// that there may be more than one statement in it.
    pub fn of(sql: &[u8], cut_off: Option<bool>) -> Self {
        let statements = match cut_off {
            None => statements(sql),
            Some(several) => Some(vec![sql.to_vec()]).filter(|_| !several),
        };
        match statements.as_deref() {
            Some([only]) => Self::of_one(only),
            Some(all) => all.iter().fold(Self::MayCommit, |effect, statement| match Self::of_one(statement) {
                Self::Begins => Self::MayOpen,
                Self::RollsBack | Self::Ends => Self::Ends,
                _ => effect,
            }),
            None if has_word(sql, &["BEGIN", "START"]) => Self::MayOpen,
            None => Self::MayCommit,
        }
    }

    fn of_one(sql: &[u8]) -> Self {
        let Some(rest) = skip_blanks(sql) else { return Self::MayCommit };
        let mut words = words(rest);
        // A digit or a sign first, or a part of a word, is no statement that ends one.
        let first = words.next().unwrap_or_default();
        // What may follow a word that ends one.
        let mut second = words.next();
        if second.is_some_and(|word| is(word, &["WORK", "TRANSACTION"])) && !is(first, &["PREPARE"]) {
            second = words.next();
        }
        if is(first, &["ROLLBACK", "ABORT"]) {
            return match second {
                None => Self::RollsBack,
                Some(word) if is(word, &["TO"]) => Self::Stays,
                // AND CHAIN, or PREPARED.
                Some(_) => Self::MayCommit,
            };
        }
        if is(first, &["COMMIT", "END"]) && second.is_none() {
            return Self::Ends;
        }
        if is(first, &["COMMIT", "END", "PREPARE", "DO", "CALL", "EXECUTE"]) || first.is_empty() {
            return Self::MayCommit;
        }
        if is(first, &["BEGIN", "START"]) {
            return Self::Begins;
        }
        if is(first, &["SHOW", "SET", "RESET"]) {
            return Self::WritesNothing;
        }
        Self::Stays
    }
}

fn words(sql: &[u8]) -> impl Iterator<Item = &[u8]> {
    sql.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').filter(|word| !word.is_empty())
}

fn is(word: &[u8], names: &[&str]) -> bool {
    names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
}

fn has_word(sql: &[u8], names: &[&str]) -> bool {
    words(sql).any(|word| is(word, names))
}

/// The statements of a whole text, without comments; none where it is in doubt where one ends.
fn statements(sql: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut all, mut at) = (vec![Vec::new()], 0);
    while let Some(byte) = sql.get(at) {
        let rest = &sql[at..];
        let length = match byte {
            b'\'' | b'"' => {
                let inside = &rest[1..];
                let length = inside.iter().position(|it| it == byte)?;
                // A quote that is said twice begins again behind itself. What a backslash means
                // depends on settings.
                if inside[..length].contains(&b'\\') {
                    return None;
                }
                length + 2
            }
            b'$' => {
                let end = rest[1..].iter().position(|it| !it.is_ascii_alphanumeric() && *it != b'_');
                let tag = end.map(|end| &rest[..end + 2]).filter(|tag| tag.ends_with(b"$"));
                match tag {
                    Some(tag) => 2 * tag.len() + rest[tag.len()..].windows(tag.len()).position(|it| it == tag)?,
                    None => 1,
                }
            }
            b'-' if rest.starts_with(b"--") => {
                at += rest.iter().position(|it| *it == b'\n').unwrap_or(rest.len());
                continue;
            }
            b'/' if rest.starts_with(b"/*") => {
                at = sql.len() - skip_blanks(rest)?.len();
                all.last_mut()?.push(b' ');
                continue;
            }
            b';' => {
                all.push(Vec::new());
                at += 1;
                continue;
            }
            _ => 1,
        };
        all.last_mut()?.extend_from_slice(&rest[..length]);
        at += length;
    }
    all.retain(|statement| !statement.trim_ascii().is_empty());
    Some(all)
}

/// What follows blanks and comments; none when a comment has no end here.
fn skip_blanks(mut sql: &[u8]) -> Option<&[u8]> {
    loop {
        sql = sql.trim_ascii_start();
        if sql.starts_with(b"--") {
            let end = sql.iter().position(|byte| *byte == b'\n')?;
            sql = &sql[end..];
        } else if sql.starts_with(b"/*") {
            let mut depth = 0_usize;
            let mut at = 0;
            loop {
                match sql.get(at..at + 2)? {
                    b"/*" => (depth, at) = (depth + 1, at + 2),
                    b"*/" => (depth, at) = (depth - 1, at + 2),
                    _ => at += 1,
                }
                if depth == 0 {
                    break;
                }
            }
            sql = &sql[at..];
        } else {
            return Some(sql);
        }
    }
}

/// What is under way.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    /// As the last ReadyForQuery said it.
    status: TransactionStatus,
    /// This many of them are still to come.
    owed: usize,
    /// Messages of the extended protocol have gone since the last Sync.
    batch: bool,
    /// The first of what is under way has its error already.
    errored: bool,
    /// Of what is under way, the last was an Execute, and this many Syncs have gone since then.
    syncs_since_execute: Option<usize>,
    /// The client is sending data.
    copying: bool,
    /// Behind all that was said a transaction may be open.
    in_block: bool,
    /// A commit may be under way.
    may_commit: bool,
    /// How many statements are under way, and whether the last of them begins a transaction.
    runs: (usize, bool),
    /// The portal that was bound last, and what it does.
    portal: Option<(Vec<u8>, Effect)>,
    /// A portal was bound in this transaction that is not sure to stay in it.
    armed: bool,
    /// What statements do that were prepared lately.
    lately: HashMap<Vec<u8>, Effect>,
    /// What the unnamed one does.
    unnamed: Effect,
}

impl Default for Flight {
    fn default() -> Self {
        Self {
            status: TransactionStatus::Idle,
            owed: 0,
            batch: false,
            errored: false,
            syncs_since_execute: None,
            copying: false,
            in_block: false,
            may_commit: false,
            runs: (0, false),
            portal: None,
            armed: false,
            lately: HashMap::new(),
            unnamed: Effect::MayCommit,
        }
    }
}

/// What a client is told when its primary is lost.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lost {
    /// This many errors and ReadyForQuerys.
    pub units: usize,
    /// But for this: the first has its error already.
    pub errored: bool,
    /// After them, an error for a batch whose Sync has not come.
    pub batch: bool,
    /// What became of the transaction.
    pub state: SqlState,
    /// How it stands with the transaction now.
    pub status: TransactionStatus,
}

/// The error that a client gets whose primary was lost.
pub(super) fn lost(state: SqlState) -> Report {
    if state == SqlState::STATEMENT_COMPLETION_UNKNOWN {
        let message = "the primary was lost, and nobody knows whether it has committed this transaction";
        let hint = "The session continues with the next primary. Ask there what is so, before you repeat it.";
        return Report::error(state, message).hint(hint);
    }
    let message = "the primary was lost or has given up its role, and this transaction was rolled back with that";
    Report::error(state, message).hint("Roll back, and repeat it: the session continues with the next primary.")
}

/// The error that a client gets whose session ends before its commit was answered.
pub(super) fn unanswered(state: SqlState) -> Report {
    let message = "this session has to end, and its primary has not answered whether it has committed this transaction";
    Report::error(state, message).hint("Ask any node what is so, before you repeat it.")
}

/// The error that a client gets whose standby was lost, in a transaction that reads.
pub(super) fn lost_reader(state: SqlState) -> Report {
    let message = "the standby that reads for this session was lost, and this transaction with it";
    Report::error(state, message).hint("Roll back, and repeat it: the session continues with other nodes.")
}

impl Flight {
    /// Whether an answer is still to come.
    pub fn is_busy(&self) -> bool {
        self.owed > 0 || self.batch
    }

    /// Whether a commit is under way, as far as shows.
    pub fn may_be_committing(&self) -> bool {
        self.is_busy() && self.may_commit
    }

    /// Whether a batch of the extended protocol has begun, and its Sync has not been said.
    pub fn is_in_batch(&self) -> bool {
        self.batch
    }

    /// Whether all that was said together was one statement that begins a transaction.
    pub fn only_begins(&self) -> bool {
        self.runs == (1, true)
    }

    /// How it stands with the transaction.
    pub fn status(&self) -> TransactionStatus {
        self.status
    }

    /// The client begins to say something of this kind.
    pub fn begins(&mut self, kind: u8) {
        if !self.is_busy() {
            self.in_block = self.status != TransactionStatus::Idle;
            (self.may_commit, self.errored) = (false, false);
            self.runs = (0, false);
            self.syncs_since_execute = None;
            self.lately.clear();
        }
        match kind {
            b'Q' | b'F' => {
                self.owed += 1;
                self.syncs_since_execute = None;
            }
            // Within a copy it is passed over.
            b'S' if self.copying => {}
            b'S' => {
                self.owed += 1;
                self.batch = false;
                self.syncs_since_execute = self.syncs_since_execute.map(|syncs| syncs + 1);
            }
            b'E' => {
                self.batch = true;
                self.syncs_since_execute = Some(0);
            }
            b'P' | b'B' | b'D' | b'C' => self.batch = true,
            b'c' | b'f' => self.copying = false,
            _ => {}
        }
    }

    /// A query or a call was said whole.
    pub fn ran(&mut self, effect: Effect) {
        self.runs = (self.runs.0 + 1, effect == Effect::Begins);
        match effect {
            Effect::Begins => self.in_block = true,
            Effect::WritesNothing => {}
            Effect::Stays => self.may_commit |= !self.in_block,
            Effect::RollsBack => self.in_block = false,
            Effect::Ends | Effect::MayOpen | Effect::MayCommit => {
                // One that has failed can only be taken back.
                self.may_commit |= self.status != TransactionStatus::Failed;
                self.in_block = effect == Effect::MayOpen || effect == Effect::MayCommit && self.in_block;
            }
        }
    }

    /// A statement was prepared.
    pub fn prepared(&mut self, name: &[u8], effect: Effect) {
        if name.is_empty() {
            self.unnamed = effect;
        } else if self.lately.len() < NAMES {
            self.lately.insert(name.to_vec(), effect);
        }
    }

    /// A portal was bound to a statement; `known` says what that does, if the primary has said what
    /// it is.
    pub fn bound(&mut self, portal: &[u8], statement: &[u8], known: impl FnOnce() -> Option<Effect>) {
        let lately = self.lately.get(statement).copied();
        let unnamed = statement.is_empty().then_some(self.unnamed);
        let effect = unnamed.or(lately).or_else(known).unwrap_or_default();
        self.portal = Some((portal.to_vec(), effect));
        self.armed |= !matches!(effect, Effect::Stays | Effect::WritesNothing);
    }

    /// A portal is run; one whose name is not known may be any.
    pub fn executed(&mut self, portal: Option<&[u8]>) {
        let last = self.portal.as_ref().filter(|(name, _)| Some(name.as_slice()) == portal);
        self.ran(match last {
            Some((_, effect)) => *effect,
            None if self.armed || portal.is_none() => Effect::MayCommit,
            None => Effect::Stays,
        });
    }

    /// ReadyForQuery has come, with this status.
    pub fn ready(&mut self, status: u8) {
        self.status = match status {
            b'T' => TransactionStatus::Open,
            b'E' => TransactionStatus::Failed,
            _ => TransactionStatus::Idle,
        };
        self.armed &= self.status != TransactionStatus::Idle;
        self.owed = self.owed.saturating_sub(1);
        (self.errored, self.copying) = (false, false);
    }

    /// An error has come.
    pub fn failed(&mut self) {
        (self.errored, self.copying) = (true, false);
    }

    /// The primary wants data: what the client has said to end the batch before does not count.
    pub fn copies(&mut self) {
        self.copying = true;
        if let Some(syncs) = self.syncs_since_execute {
            self.owed = self.owed.saturating_sub(syncs);
            self.batch = true;
        }
    }

    /// The primary is lost: nothing is under way any more. `left` says that nothing of what has no
    /// answer was begun.
    pub fn lose(&mut self, left: bool) -> Lost {
        let busy = self.is_busy();
        // Where the client may take a transaction for open, it has failed: what comes next must not
        // be done by itself.
        let is_open = if busy { self.in_block } else { self.status != TransactionStatus::Idle };
        let status = if is_open { TransactionStatus::Failed } else { TransactionStatus::Idle };
        let lost = Lost {
            units: self.owed,
            errored: busy && self.errored,
            batch: self.batch,
            state: match busy && self.may_commit && !left {
                true => SqlState::STATEMENT_COMPLETION_UNKNOWN,
                false => SqlState::SERIALIZATION_FAILURE,
            },
            status,
        };
        *self = Self { status, unnamed: self.unnamed, ..Self::default() };
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: SqlState = SqlState::STATEMENT_COMPLETION_UNKNOWN;
    const ROLLED_BACK: SqlState = SqlState::SERIALIZATION_FAILURE;
    use TransactionStatus::{Failed, Idle};

    fn query(flight: &mut Flight, sql: &str) {
        flight.begins(b'Q');
        flight.ran(Effect::of(sql.as_bytes(), None));
    }

    #[test]
    fn what_a_text_does_to_a_transaction() {
        for (sql, effect) in [
            ("  commit", Effect::Ends),
            ("/* a /* b */ */ END", Effect::Ends),
            ("-- x\nCOMMIT WORK;", Effect::Ends),
            ("COMMIT AND CHAIN", Effect::MayCommit),
            ("COMMIT PREPARED 'x'", Effect::MayCommit),
            ("-- x", Effect::MayCommit),
            ("/* COMMIT", Effect::MayCommit),
            ("", Effect::MayCommit),
            ("begin", Effect::Begins),
            ("START TRANSACTION", Effect::Begins),
            ("ROLLBACK;", Effect::RollsBack),
            ("abort work", Effect::RollsBack),
            ("ROLLBACK TO s", Effect::Stays),
            ("ROLLBACK WORK TO SAVEPOINT s", Effect::Stays),
            ("ROLLBACK AND CHAIN", Effect::MayCommit),
            ("INSERT INTO commit VALUES (1)", Effect::Stays),
            ("EXECUTE x", Effect::MayCommit),
            ("(SELECT 1)", Effect::Stays),
            ("SELECT 'a;b', $$;$$, $x$ ; $y$ ; $x$, \"c;d\", 'it''s; so' -- ; and\n /* ; */ , $1 ; ", Effect::Stays),
            ("SELECT 1; COMMIT", Effect::Ends),
            ("SELECT 'COMMIT; COMMIT'; SELECT 1", Effect::MayCommit),
            ("BEGIN; SELECT 1", Effect::MayOpen),
            ("BEGIN; SELECT 1; COMMIT -- so", Effect::Ends),
            ("COMMIT; BEGIN; SELECT 1", Effect::MayOpen),
            ("SELECT E'\\'; COMMIT", Effect::MayCommit),
            ("SELECT 'x; COMMIT", Effect::MayCommit),
            ("SELECT $x$ ; COMMIT", Effect::MayCommit),
            ("BEGIN; SELECT E'\\''", Effect::MayOpen),
        ] {
            assert_eq!(Effect::of(sql.as_bytes(), None), effect, "{sql}");
        }
        assert_eq!(Effect::of(b"INSERT INTO t VALUES ('x", Some(false)), Effect::Stays);
        assert_eq!(Effect::of(b"INSERT INTO t VALUES ('x", Some(true)), Effect::MayCommit);
        assert_eq!(Effect::of(b"BEGIN; INSERT INTO t", Some(true)), Effect::MayOpen);
    }

    #[test]
    fn what_may_be_committed_is_open_and_the_rest_is_rolled_back() {
        for (before, sql, state, status) in [
            (b'I', "INSERT INTO t VALUES (1)", UNKNOWN, Idle),
            (b'I', "BEGIN", ROLLED_BACK, Failed),
            (b'I', "BEGIN; INSERT INTO t VALUES (1)", UNKNOWN, Failed),
            (b'I', "SHOW x", ROLLED_BACK, Idle),
            (b'I', "BEGIN; INSERT INTO t VALUES (1); COMMIT", UNKNOWN, Idle),
            (b'T', "INSERT INTO t VALUES (1)", ROLLED_BACK, Failed),
            (b'T', "INSERT INTO t VALUES (1); COMMIT", UNKNOWN, Idle),
            (b'T', "COMMIT", UNKNOWN, Idle),
            (b'T', "ROLLBACK TO s", ROLLED_BACK, Failed),
            (b'T', "SELECT ';'", ROLLED_BACK, Failed),
            (b'T', "EXECUTE x", UNKNOWN, Failed),
            (b'T', "SELECT 1; SELECT 2", UNKNOWN, Failed),
            (b'T', "ROLLBACK", ROLLED_BACK, Idle),
            (b'E', "COMMIT", ROLLED_BACK, Idle),
            (b'E', "SELECT 1", ROLLED_BACK, Failed),
        ] {
            let mut flight = Flight::default();
            flight.ready(before);
            query(&mut flight, sql);
            let expected = Lost { units: 1, errored: false, batch: false, state, status };
            assert_eq!(flight.lose(false), expected, "{sql} in {}", char::from(before));
            assert!(!flight.is_busy());
        }
    }

    #[test]
    fn a_transaction_that_is_lost_while_its_client_is_idle_has_failed() {
        let mut flight = Flight::default();
        flight.ready(b'T');
        let lost = flight.lose(false);
        assert_eq!((lost.units, lost.batch, lost.state, lost.status), (0, false, ROLLED_BACK, Failed));
        let mut flight = Flight::default();
        assert_eq!(flight.lose(false).status, Idle);
        query(&mut flight, "INSERT INTO t VALUES (1)");
        assert_eq!(flight.lose(true).state, ROLLED_BACK, "it was not begun");
    }

    #[test]
    fn a_pipeline_has_an_answer_for_each_sync() {
        let mut flight = Flight::default();
        flight.ready(b'T');
        for kind in [b'P', b'B', b'E', b'S'] {
            flight.begins(kind);
            match kind {
                b'P' => flight.prepared(b"", Effect::Stays),
                b'B' => flight.bound(b"", b"", || None),
                b'E' => flight.executed(Some(b"")),
                _ => {}
            }
        }
        flight.failed();
        flight.begins(b'B');
        flight.bound(b"", b"s", || Some(Effect::MayCommit));
        let mut whole = Flight { owed: flight.owed, ..Flight::default() };
        whole.ready(b'I');
        assert_eq!(whole.owed, 0);
        flight.begins(b'E');
        flight.executed(Some(b""));
        let lost = flight.lose(false);
        assert_eq!((lost.units, lost.errored, lost.batch, lost.state), (1, true, true, UNKNOWN));
    }

    #[test]
    fn a_statement_that_is_not_known_may_commit() {
        let mut flight = Flight::default();
        flight.ready(b'T');
        flight.begins(b'B');
        flight.bound(b"", b"x", || None);
        assert_eq!(flight.lose(false).state, ROLLED_BACK, "it was not run");
        flight.ready(b'T');
        flight.begins(b'B');
        flight.bound(b"", b"x", || None);
        flight.begins(b'E');
        flight.executed(Some(b""));
        assert_eq!(flight.lose(false).state, UNKNOWN);
    }

    #[test]
    fn syncs_before_a_copy_are_passed_over() {
        let mut flight = Flight::default();
        for kind in [b'B', b'E', b'S'] {
            flight.begins(kind);
        }
        flight.copies();
        for kind in [b'd', b'S', b'c', b'S'] {
            flight.begins(kind);
        }
        flight.ready(b'I');
        assert!(!flight.is_busy());
        query(&mut flight, "COPY t FROM STDIN");
        flight.copies();
        flight.begins(b'c');
        flight.ready(b'I');
        assert!(!flight.is_busy());
    }
}
