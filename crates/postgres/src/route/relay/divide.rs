//! Which of two nodes does what, where what only reads goes to a standby.
//!
//! What a client wants next is looked at as a whole, a *unit*, while nothing is under way and no
//! transaction is open. It goes to the standby if all its statements only read, or if it begins a
//! transaction that is READ ONLY; then the rest of the transaction follows. Everything else is for
//! the primary.
//!
//! A unit is kept until the client hears something of it. If the standby is lost before, or does
//! not show in time what the session has seen, or finds that the unit does more than to read, then
//! it is put back and goes to the primary.
//!
//! A transaction that has only begun may move: to the standby when it says that it is READ ONLY, to
//! the primary when it turns out to need its session there.

use std::{
    mem,
    time::{Duration, Instant},
};

use super::{Far, LOOK_EVERY, Next, On, Relay};
use crate::{
    backend::TransactionStatus,
    message::framed,
    report::{Report, SqlState},
    route::{
        Asks, Modes, Part, Statement,
        flight::{Flight, lost_reader},
        front::Front,
        kept::field,
        unit::{Runs, Unit, Unnamed},
    },
    start_up::End,
};

/// So long a standby may take to show what the session has seen.
const LAG: Duration = Duration::from_millis(250);
/// So long it may take to say that it does.
const SILENCE: Duration = Duration::from_secs(1);
/// So long a session does not ask for a standby again after that has failed.
const REST: Duration = Duration::from_secs(1);
/// How long a step on the way to a standby may take.
const STEP: Duration = Duration::from_millis(500);
/// How long a primary may take to show what the session has seen on a standby.
const PRIMARY_LAG: Duration = Duration::from_secs(10);
/// Messages that only announce others.
const ANNOUNCE: &[u8] = b"123tTn";
/// Errors of a standby that the primary may not have: it is told to write, or is in doubt.
const OF_STANDBYS: [&[u8]; 2] = [b"25006", b"XX001"];

/// What is kept of a session that works on two nodes.
#[derive(Default)]
pub(super) struct Division {
    /// What the standby was told to do, while the client has heard nothing of it; and how things
    /// stood before.
    unit: Option<(Vec<u8>, Flight)>,
    /// What it has announced of that.
    held: Vec<u8>,
    /// Since when it has not said that it is ready.
    asked: Option<Instant>,
    /// The transaction's beginning, as long as nothing was done in it.
    begun: Option<Begun>,
    /// Where that transaction is moving.
    moving: Option<On>,
    /// The unnamed statement, if the standby has prepared it.
    unnamed: Option<Statement>,
    /// The primary may have an unnamed statement that the session has replaced since, or ended.
    is_stale: bool,
    /// Until then no standby is asked for.
    rests_until: Option<Instant>,
    /// How often one was given up.
    turn: usize,
    /// The unit that comes next was put back, and goes to the primary.
    put_back: bool,
}

/// How a transaction has begun.
#[derive(Clone)]
struct Begun {
    /// What the client has sent for that, and how many answers it has.
    all: Vec<u8>,
    answers: u32,
    modes: Modes,
}

/// What is done with what a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// It goes to the node that works.
    Goes,
    /// Others have to be done before.
    Waits,
    /// More of it has to come.
    More,
}

/// Where a unit goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Goes {
    to: On,
    /// If it only begins a transaction, and says how that is to be: how it is.
    begins: Option<Modes>,
}

const TO_PRIMARY: Goes = Goes { to: On::Primary, begins: None };

/// Where what comes between transactions goes; `modes` is how these are that do not say it.
fn place(asks: &[Asks], modes: Modes) -> Goes {
    if !asks.is_empty() && asks.iter().all(|it| *it == Asks::Rows) {
        let to = if modes.serializable { On::Primary } else { On::Reader };
        return Goes { to, begins: None };
    }
    let Some((Asks::Begins(said), rest)) = asks.split_first() else { return TO_PRIMARY };
    let (modes, rest) = with_modes(modes.with(*said), rest);
    let to = if reads(modes) && stays(rest) { On::Reader } else { On::Primary };
    Goes { to, begins: rest.is_empty().then_some(modes) }
}

/// Whether a standby may do such a transaction: it certifies none.
fn reads(modes: Modes) -> bool {
    modes.read_only && !modes.serializable
}

/// How a transaction is after what is said of it first, and what follows that.
fn with_modes(mut modes: Modes, mut asks: &[Asks]) -> (Modes, &[Asks]) {
    while let Some((Asks::Modes(said), rest)) = asks.split_first() {
        (modes, asks) = (modes.with(*said), rest);
    }
    (modes, asks)
}

/// Whether a standby can do these in a READ ONLY transaction, and nothing follows that.
fn stays(asks: &[Asks]) -> bool {
    let (last, others) = asks.split_last().map_or((None, asks), |(last, others)| (Some(last), others));
    let may = |asks: &Asks| match asks {
        Asks::Rows | Asks::Other => true,
        Asks::Modes(said) => said.read_only != Some(false) && said.serializable != Some(true),
        Asks::Prepared(_) | Asks::Begins(_) | Asks::Ends | Asks::Session => false,
    };
    others.iter().all(may) && last.is_none_or(|last| may(last) || *last == Asks::Ends)
}

impl Relay<'_> {
    /// Decides which node does what begins here in what is pending, where something begins.
    pub(super) fn choose(&mut self, at: usize) -> Choice {
        let Some(division) = &mut self.division else { return Choice::Goes };
        if self.front.is_within() || self.flight.is_in_batch() {
            return Choice::Goes;
        }
        if division.moving.is_some() {
            return Choice::Waits;
        }
        // The end of the session waits for nothing.
        if self.pending.get(at) == Some(&b'X') {
            return Choice::Goes;
        }
        if self.flight.is_busy() {
            if self.on == On::Reader || division.unnamed.is_some() {
                return Choice::Waits;
            }
            // What was said together goes the same way.
            division.begun = None;
            return Choice::Goes;
        }
        let pending = mem::take(&mut self.pending);
        let choice = match Unit::read(&pending[at..]) {
            Unit::More => Choice::More,
            unit => self.turn_to(&unit),
        };
        self.pending = pending;
        choice
    }

    /// Turns to the node that is to do a unit.
    fn turn_to(&mut self, unit: &Unit<'_>) -> Choice {
        let (asks, unnamed, whole) = match unit {
            Unit::Runs(runs, unnamed, whole) => (self.asks_of(runs), *unnamed, *whole),
            Unit::More | Unit::Other => (None, Unnamed::Used, &[][..]),
        };
        match self.flight.status() {
            TransactionStatus::Idle => {
                let goes = asks.map_or(TO_PRIMARY, |asks| place(&asks, self.kept.modes));
                let reads = goes.to == On::Reader && self.kept.bound().is_none() && self.has_reader();
                if reads {
                    self.turn_to_reader(whole, unnamed);
                } else {
                    self.turn_to_primary(unnamed);
                }
                if let Some(division) = &mut self.division {
                    division.begun = goes.begins.map(|modes| Begun { all: whole.to_vec(), answers: 1, modes });
                }
                Choice::Goes
            }
            TransactionStatus::Open => self.go_on(&asks.unwrap_or_default(), whole),
            TransactionStatus::Failed => Choice::Goes,
        }
    }

    /// What comes in a transaction goes where that is, unless that has only begun and has to move.
    fn go_on(&mut self, asks: &[Asks], whole: &[u8]) -> Choice {
        let on = self.on;
        let Some(division) = &mut self.division else { return Choice::Goes };
        let Some(begun) = division.begun.take() else { return Choice::Goes };
        let (modes, rest) = with_modes(begun.modes, asks);
        let says = rest.len() < asks.len();
        let moves = match on {
            On::Primary => says && reads(modes) && stays(rest) && self.kept.bound().is_none(),
            On::Reader => !reads(modes) || rest.contains(&Asks::Session),
        };
        if moves && self.move_to(&begun) {
            return Choice::Waits;
        }
        if says
            && rest.is_empty()
            && let Some(division) = &mut self.division
        {
            let all = [&begun.all, whole].concat();
            division.begun = Some(Begun { all, answers: begun.answers + 1, modes });
        }
        Choice::Goes
    }

    /// Begins the transaction once more, on the other node; that continues when it has. Says
    /// whether that is under way.
    fn move_to(&mut self, begun: &Begun) -> bool {
        let (to, is_there) = match self.on {
            On::Primary => (On::Reader, self.has_reader()),
            On::Reader => (On::Primary, self.primary.is_some()),
        };
        if !is_there {
            return false;
        }
        self.ask(to, None);
        self.send_to(to, &begun.all);
        if let Some(far) = self.far(to) {
            far.muted += begun.answers;
        }
        if let Some(division) = &mut self.division {
            (division.begun, division.moving) = (Some(begun.clone()), Some(to));
        }
        true
    }

    /// An answer has ended that the client does not hear, and a transaction may have moved by that.
    pub(super) fn moved(&mut self, on: On, status: u8) {
        let muted = self.far(on).as_ref().map_or(0, |far| far.muted);
        let Some(division) = self.division.as_mut().filter(|it| it.moving == Some(on) && muted == 0) else { return };
        division.moving = None;
        if status != b'T' {
            division.begun = None;
            return;
        }
        let from = mem::replace(&mut self.on, on);
        self.send_muted(from, &["ROLLBACK"]);
    }

    /// The transaction that was moving to this node stays where it is.
    pub(super) fn stop_moving(&mut self, to: On) {
        if let Some(division) = self.division.as_mut().filter(|it| it.moving == Some(to)) {
            (division.moving, division.begun) = (None, None);
        }
    }

    fn send_muted(&mut self, on: On, texts: &[&str]) {
        for text in texts {
            self.send_to(on, &framed(b'Q', &[text.as_bytes(), b"\0"].concat()));
            if let Some(far) = self.far(on) {
                far.muted += 1;
            }
        }
    }

    fn turn_to_reader(&mut self, whole: &[u8], unnamed: Unnamed<'_>) {
        self.on = On::Reader;
        self.waits_since = None;
        self.route.goes(true, false);
        self.ask(On::Reader, None);
        let before = self.flight.clone();
        let Some(division) = &mut self.division else { return };
        division.unit = Some((whole.to_vec(), before));
        division.held.clear();
        match unnamed {
            Unnamed::Prepared(_) => (division.unnamed, division.is_stale) = (unnamed.statement(), true),
            Unnamed::Gone => (division.unnamed, division.is_stale) = (None, true),
            Unnamed::Kept | Unnamed::Used => {}
        }
    }

    fn turn_to_primary(&mut self, unnamed: Unnamed<'_>) {
        self.on = On::Primary;
        let Some(division) = &mut self.division else { return };
        if self.primary.is_none() {
            return;
        }
        self.route.goes(false, mem::take(&mut division.put_back));
        let there = match unnamed {
            Unnamed::Kept => None,
            Unnamed::Used => division.unnamed.take(),
            Unnamed::Prepared(_) | Unnamed::Gone => {
                (division.unnamed, division.is_stale) = (None, false);
                None
            }
        };
        let is_stale = matches!(unnamed, Unnamed::Used) && mem::take(&mut division.is_stale) && there.is_none();
        self.ask(On::Primary, there);
        if is_stale {
            // Any simple query ends it.
            self.send_muted(On::Primary, &[""]);
        }
    }

    /// Asks a node to be as the session is by now; `unnamed` is the unnamed statement that it has
    /// to know, if it has to.
    fn ask(&mut self, on: On, unnamed: Option<Statement>) {
        let reads = on == On::Reader;
        let far = match on {
            On::Primary => &mut self.primary,
            On::Reader => &mut self.reader,
        };
        let (Some(far), Some(division)) = (far, &mut self.division) else { return };
        // What binds a session has come of its primary, and so it is there.
        let is_known = self.kept.bound().is_some() || self.kept.is_known(&far.knows, reads);
        if !reads && unnamed.is_none() && is_known {
            return;
        }
        let mut ask = self.kept.ask(&mut far.knows, reads);
        ask.prepare.extend(unnamed);
        ask.patience = if reads { LAG } else { PRIMARY_LAG };
        ask.answers = reads && !far.link.is_own();
        division.asked = ask.answers.then(Instant::now);
        // That it does not get it is found out when it is read from.
        let _ = ask.encode().and_then(|ask| far.hop.send(&ask));
    }

    /// Whether a standby is there that may read; looks for one if it is time for that.
    fn has_reader(&mut self) -> bool {
        let Some(division) = &mut self.division else { return false };
        if division.put_back || division.rests_until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        if let Some(reader) = &self.reader {
            return reader.muted == 0;
        }
        let (turn, old) = (division.turn, self.primary.is_none());
        let found = self.route.connect_reader(self.seat.entry.pid, turn, old, STEP).map_err(|why| self.fails(why));
        let begun = found.and_then(|way| self.begin(way, Part::Reads, false, Instant::now() + SILENCE));
        match begun {
            Ok((reader, _)) => self.reader = Some(reader),
            Err(_) => self.rest(),
        }
        self.reader.is_some()
    }

    fn rest(&mut self) {
        if let Some(division) = &mut self.division {
            division.rests_until = Some(Instant::now() + REST);
            division.turn = division.turn.wrapping_add(1);
        }
    }

    /// What statements ask for; none if one of them cannot be understood as it is sent.
    fn asks_of(&self, runs: &[Runs<'_>]) -> Option<Vec<Asks>> {
        let told = |name| self.reported.as_ref().and_then(|reported| reported.get(name)).map(String::as_str);
        if told("standard_conforming_strings") != Some("on") {
            return None;
        }
        let is_utf8 = told("client_encoding") == Some("UTF8");
        let mut asks = Vec::new();
        for run in runs {
            match run {
                Runs::Text(sql) if is_utf8 || sql.is_ascii() => asks.extend(self.route.asks(str::from_utf8(sql).ok()?)),
                Runs::Text(_) => return None,
                Runs::Prepared(name) => asks.push(Asks::Prepared(str::from_utf8(name).ok()?.to_owned())),
            }
        }
        for ask in &mut asks {
            if let Asks::Prepared(name) = ask {
                let known = self.kept.statements.get(name.as_str())?;
                let of_text = || match <[Asks; 1]>::try_from(self.route.asks(&known.statement.sql)) {
                    Ok([Asks::Prepared(_)]) | Err(_) => Asks::Other,
                    Ok([asks]) => asks,
                };
                *ask = known.asks.get_or_init(of_text).clone();
            }
        }
        Some(asks)
    }

    /// Whether the client is not to hear this message of a standby: it only announces others, or
    /// is an error that the primary may not have.
    pub(super) fn holds(&mut self, on: On, kind: u8, range: &std::ops::Range<usize>) -> Next<bool> {
        let (Some(division), Some(far), On::Reader) = (&mut self.division, &mut self.reader, on) else {
            return Ok(false);
        };
        if division.unit.is_none() {
            return Ok(false);
        }
        if ANNOUNCE.contains(&kind) {
            division.held.extend_from_slice(&far.hop.bytes()[range.clone()]);
            return Ok(true);
        }
        let state = field(far.hop.body(range), b'C');
        if kind == b'E' && state.is_some_and(|state| OF_STANDBYS.contains(&state)) {
            // What it has prepared of the unit is no part of the session.
            self.reader = None;
            self.put_back();
            return Ok(true);
        }
        // A notice or a setting says nothing of it yet.
        if !matches!(kind, b'N' | b'S') {
            self.release()?;
        }
        Ok(false)
    }

    /// The client hears of a unit: it is not put back any more.
    pub(super) fn release(&mut self) -> Next {
        let Some(division) = &mut self.division else { return Ok(()) };
        division.unit = None;
        division.asked = None;
        let held = mem::take(&mut division.held);
        self.write(&held)
    }

    /// What a standby was told goes to the primary.
    fn put_back(&mut self) {
        let Some(division) = &mut self.division else { return };
        let Some((unit, before)) = division.unit.take() else { return };
        division.held.clear();
        (division.asked, division.put_back) = (None, true);
        self.pending.splice(0..0, unit);
        (self.flight, self.front, self.on) = (before, Front::default(), On::Primary);
    }

    /// The standby is lost, or given up. The client hears of that only if it has heard of what was
    /// under way there, or had a transaction there.
    pub(super) fn lose_reader(&mut self) -> Next {
        let Some(Far { hop, .. }) = self.reader.take() else { return Ok(()) };
        self.rest();
        self.stop_moving(On::Reader);
        if self.on != On::Reader {
            return Ok(());
        }
        if self.division.as_ref().is_some_and(|division| division.unit.is_some()) {
            self.put_back();
            return Ok(());
        }
        if hop.is_passing() {
            // In the middle of a message there is no place for another one.
            return Err(End::Quiet);
        }
        drop(hop);
        self.on = On::Primary;
        if self.flight.is_busy() || self.flight.status() != TransactionStatus::Idle {
            self.report_lost(true, lost_reader)?;
        }
        if self.flight.status() == TransactionStatus::Failed {
            // No savepoint has that name.
            self.send_muted(On::Primary, &["BEGIN", "ROLLBACK TO SAVEPOINT lost_with_its_standby"]);
        }
        Ok(())
    }

    /// Whether a standby has not said yet that it is ready.
    pub(super) fn is_asking(&self) -> bool {
        self.division.as_ref().is_some_and(|division| division.asked.is_some())
    }

    pub(super) fn is_ready(&mut self) {
        if let Some(division) = &mut self.division {
            division.asked = None;
        }
    }

    /// Gives a standby up that is silent, or is none any more.
    pub(super) fn heed_reader(&mut self) -> Next {
        let asked = self.division.as_ref().and_then(|division| division.asked);
        if asked.is_some_and(|asked| asked.elapsed() > SILENCE) {
            return self.lose_reader();
        }
        let works = self.on == On::Reader && (self.flight.is_busy() || self.flight.status() != TransactionStatus::Idle);
        if let Some(reader) = &mut self.reader
            && reader.looked.elapsed() >= LOOK_EVERY
        {
            reader.looked = Instant::now();
            // What this node has begun it can end, also as the primary. While there is no primary,
            // there is nothing better.
            if self.primary.is_some() && !(works && reader.link.is_own()) && reader.link.is_past() {
                return self.lose_reader();
            }
        }
        Ok(())
    }

    /// What a standby has said of the session has to be known to the primary, too.
    pub(super) fn check_kept(&self, on: On) -> Next {
        if on == On::Reader && self.kept.is_overflown() {
            let message = "the settings and prepared statements of this session take too much to be on two nodes";
            let report = Report::fatal(SqlState::PROGRAM_LIMIT_EXCEEDED, message);
            return Err(End::Reported(report.hint("Set freshet.route to primary.")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Stated;

    const READER: On = On::Reader;
    const PRIMARY: On = On::Primary;

    #[test]
    fn reads_and_read_only_transactions_go_to_a_standby() {
        use Asks::{Ends, Other, Rows, Session};
        let said = |read_only| Stated { read_only, serializable: None };
        let begins = |read_only| Asks::Begins(said(read_only));
        let modes = |read_only| Asks::Modes(said(read_only));
        let level = |serializable| Stated { read_only: None, serializable: Some(serializable) };
        let (read_only, read_write) = (begins(Some(true)), begins(Some(false)));
        for (asks, default, to, is_beginning) in [
            (vec![], false, PRIMARY, false),
            (vec![Rows], false, READER, false),
            (vec![Rows, Rows], false, READER, false),
            (vec![Rows, Other], false, PRIMARY, false),
            (vec![Rows, Session], true, PRIMARY, false),
            (vec![begins(None)], false, PRIMARY, true),
            (vec![begins(None)], true, READER, true),
            (vec![read_only.clone()], false, READER, true),
            (vec![read_write], true, PRIMARY, true),
            (vec![begins(None), modes(Some(true))], false, READER, true),
            (vec![read_only.clone(), modes(Some(false))], false, PRIMARY, true),
            (vec![read_only.clone(), Asks::Modes(level(true))], false, PRIMARY, true),
            (vec![Asks::Begins(level(true)), Asks::Modes(level(false))], true, READER, true),
            (vec![read_only.clone(), Rows, Other], false, READER, false),
            (vec![read_only.clone(), Rows, Ends], false, READER, false),
            (vec![read_only.clone(), Rows, Asks::Modes(level(true))], false, PRIMARY, false),
            (vec![read_only.clone(), Ends, Other], false, PRIMARY, false),
            (vec![read_only.clone(), Ends, read_only.clone()], false, PRIMARY, false),
            (vec![read_only.clone(), Session], false, PRIMARY, false),
            (vec![Ends], true, PRIMARY, false),
            (vec![Other], true, PRIMARY, false),
        ] {
            let goes = place(&asks, Modes { read_only: default, serializable: false });
            assert_eq!((goes.to, goes.begins.is_some()), (to, is_beginning), "{asks:?}");
        }
        let serializable = Modes { read_only: true, serializable: true };
        for asks in [vec![Rows], vec![read_only]] {
            assert_eq!(place(&asks, serializable).to, PRIMARY, "a standby certifies nothing: {asks:?}");
        }
    }
}
