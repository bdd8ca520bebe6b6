//! Recording: what happened to a node's machines, so that it can be replayed step by step.
//!
//! ```text
//!   event ─▶ Recorded<machine> ─▶ outcome
//!     └───────▶ tape ◀──────────────┘      state, event, outcome, event, outcome, …
//!   tape ─▶ Replay: the same machine, the same events; the same outcomes, or it stops
//! ```
//!
//! A machine is changed by its methods only, and has neither clock nor chance, so its methods are
//! its events. [`Recorded`] has a machine and lets nobody change it but through the events that
//! are listed here; each goes to the node's [`Tape`], if it has one, before it happens, since the
//! process may end over it; and then what came of it. A machine's state is recorded before its
//! first event, and again whenever a tape begins again, so that it can be read from the middle.
//! What happened in production is a test case then: [`Replay`] asserts that each machine decides
//! the same again.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use freshet_base::{Lsn, NodeId, sync::Arc};
use serde::{Deserialize, Serialize};

use crate::{
    Moment,
    commit_rule::{self, CommitRule},
    entering::Entered,
    flow::FlowError,
    follower::{self, Ack, Follower, Piece, Room, Seen},
    handshake::Welcome,
    host::{Acked, FeedId, Host, Joined, Note, ReplicaState, Word},
    in_sync::Noted,
    mirror::{Cut, MirrorFeed, MirrorState},
    promotion::{Answer, LogState, Promotion, Question, Step},
    term::{Fence, LastTerm, TermState},
    upstream::{Announced, Ended, Next, Order, Upstream},
};

/// Where records go.
pub trait Tape: Send + Sync {
    /// A number that no other machine on this tape has.
    fn next_machine(&self) -> u64;

    /// Changes when the tape begins again: the state of each machine has to be recorded again.
    fn generation(&self) -> u64;

    /// Takes a record. Under the mutex of the machine: it is to be quick, and need not be durable.
    fn record(&self, record: &Record);
}

/// Records, if there is a tape.
#[derive(Clone, Default)]
pub struct Recorder(Option<Arc<dyn Tape>>);

impl Recorder {
    /// On this tape.
    pub fn new(tape: Arc<dyn Tape>) -> Self {
        Self(Some(tape))
    }

    /// The node remembers this of terms from now on.
    pub fn terms(&self, terms: &TermState) {
        if let Some(tape) = &self.0 {
            tape.record(&Record { machine: 0, what: What::Terms(Box::new(terms.clone())) });
        }
    }
}

impl Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({})", if self.0.is_some() { "on" } else { "off" })
    }
}

/// One step of one machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Which machine; zero: none.
    pub machine: u64,
    /// What is recorded of it.
    pub what: What,
}

/// See [`Record`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum What {
    /// A process of this version begins to record, or does so again after it could not. It does not
    /// know the machines that were recorded before.
    Begins {
        /// Which.
        version: String,
    },
    /// It is this.
    State(State),
    /// The node remembers this of terms from now on. That is no machine's state.
    Terms(Box<TermState>),
    /// Something is about to happen.
    Event(Box<Event>),
    /// What came of the event before, in words, unless nothing did. Where this is missing at the
    /// end, the process has ended in between.
    Outcome(String),
}

/// How the outcome reads that is not recorded.
const NOTHING: &str = "()";

/// A machine as it was.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum State {
    /// Of a primary: up to where is committed.
    Rule(Box<CommitRule>),
    /// Of a primary, or a relay: who is fed.
    Host(Box<Host>),
    /// Of a standby.
    Follower(Box<Follower>),
    /// Of a mirror.
    Mirror(Box<MirrorState>),
    /// Of a primary: how one mirror is fed.
    Feed(Box<MirrorFeed>),
    /// Of a candidate.
    Promotion(Box<Promotion>),
    /// Of a node that follows another: whom.
    Upstream(Box<Upstream>),
}

/// Something that happened to a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is that of the state of its name")]
pub enum Event {
    Rule(RuleEvent),
    Host(HostEvent),
    Follower(FollowerEvent),
    Mirror(MirrorEvent),
    Feed(FeedEvent),
    Promotion(PromotionEvent),
    Upstream(UpstreamEvent),
}

/// A machine whose every change is an event.
trait Machine: Clone {
    type Event;

    fn state(&self) -> State;

    fn event(event: Self::Event) -> Event;

    /// The event happens. Returns what comes of it, in words.
    fn happen(&mut self, event: &Self::Event) -> String;
}

/// A machine, and where its events go.
#[derive(Clone, Debug)]
pub struct Recorded<M> {
    machine: M,
    recorder: Recorder,
    number: u64,
    /// For which [`Tape::generation`] its state is recorded.
    known_to: Option<u64>,
}

impl<M> Recorded<M> {
    /// This machine, as it is when it begins.
    pub fn new(machine: M, recorder: &Recorder) -> Self {
        let number = recorder.0.as_ref().map_or(0, |tape| tape.next_machine());
        Self { machine, recorder: recorder.clone(), number, known_to: None }
    }
}

impl<M> Deref for Recorded<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.machine
    }
}

#[expect(private_bounds, reason = "only the machines that are listed here are recorded")]
impl<M: Machine> Recorded<M> {
    /// Something is about to happen.
    fn begins(&mut self, event: impl FnOnce() -> M::Event) {
        let Some(tape) = &self.recorder.0 else { return };
        let generation = Some(tape.generation());
        if self.known_to != generation {
            self.known_to = generation;
            tape.record(&Record { machine: self.number, what: What::State(self.machine.state()) });
        }
        tape.record(&Record { machine: self.number, what: What::Event(Box::new(M::event(event()))) });
    }

    /// It has happened.
    fn happened(&self, outcome: &impl Debug) {
        let Some(tape) = &self.recorder.0 else { return };
        let outcome = format!("{outcome:?}");
        if outcome != NOTHING {
            tape.record(&Record { machine: self.number, what: What::Outcome(outcome) });
        }
    }
}

/// The events of a machine: `Event { argument: type => type that the method takes } = method ->
/// outcome`.
macro_rules! recorded {
    (@takes $stored:ty) => { $stored };
    (@takes $stored:ty, $given:ty) => { $given };
    (@gives $arg:ident) => { $arg.to_owned() };
    (@gives $arg:ident, $given:ty) => { $arg };
    ($machine:ty, $kind:ident, $events:ident {
        $($event:ident { $($arg:ident: $stored:ty $(=> $given:ty)?),* } = $method:ident -> $out:ty;)*
    }) => {
        #[doc = concat!("What happens to a [`", stringify!($machine), "`]: its methods of these names.")]
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "each is documented at the method of its name")]
        pub enum $events {
            $($event { $($arg: $stored),* },)*
        }

        impl Machine for $machine {
            type Event = $events;

            fn state(&self) -> State {
                State::$kind(Box::new(self.clone()))
            }

            fn event(event: $events) -> Event {
                Event::$kind(event)
            }

            fn happen(&mut self, event: &$events) -> String {
                match event {
                    $($events::$event { $($arg),* } => {
                        format!("{:?}", self.$method($(recorded!(@gives $arg $(, $given)?)),*))
                    })*
                }
            }
        }

        impl Recorded<$machine> {
            $(
                #[doc = concat!("See `", stringify!($method), "` of the machine.")]
                pub fn $method(&mut self, $($arg: recorded!(@takes $stored $(, $given)?)),*) -> $out {
                    self.begins(|| $events::$event { $($arg: $arg.to_owned()),* });
                    let outcome = self.machine.$method($($arg),*);
                    self.happened(&outcome);
                    outcome
                }
            )*
        }
    };
}

recorded!(CommitRule, Rule, RuleEvent {
    Apply { event: commit_rule::Event, now: Moment } = apply -> commit_rule::Decision;
    ChangeLevel { level: freshet_base::Safety, now: Moment } = change_level
        -> Result<commit_rule::Decision, commit_rule::CannotChange>;
    Leave { standby: NodeId, how: commit_rule::Leaves, now: Moment } = leave
        -> Result<commit_rule::Decision, commit_rule::CannotLeave>;
    Note { noted: Noted => &Noted, now: Moment } = note -> commit_rule::Decision;
    Announced { whole: Lsn } = announced -> ();
});

recorded!(Host, Host, HostEvent {
    Join { id: FeedId, replica: ReplicaState, now: Moment } = join -> Option<Joined>;
    IsPrompt { id: FeedId } = is_prompt -> ();
    Leave { id: FeedId } = leave -> Option<commit_rule::Event>;
    GiveUp { id: FeedId } = give_up -> Lsn;
    Close {} = close -> ();
    Filled { from: Lsn, to: Lsn, partition_ends: Vec<Lsn> => &[Lsn], now: Moment } = filled -> ();
    Committed { to: Lsn, now: Moment } = committed -> Vec<FeedId>;
    Observe { word: Word, now: Moment } = observe -> ();
    SetRecorded { end: Lsn } = set_recorded -> ();
    PeersChanged {} = peers_changed -> ();
    Placed { in_sync: Vec<NodeId> => &[NodeId] } = placed -> ();
    PeersSent { id: FeedId } = peers_sent -> ();
    CreditTooSmall { id: FeedId, upto: Lsn } = credit_too_small -> ();
    Shipped { id: FeedId, to: Option<Lsn>, now: Moment } = shipped -> Option<Note>;
    ReadBack { id: FeedId, to: Lsn } = read_back -> Result<Acked, FlowError>;
    Acked { id: FeedId, ack: Ack => &Ack } = acked -> Result<Acked, FlowError>;
});

recorded!(Follower, Follower, FollowerEvent {
    Apply { event: follower::Event, now: Moment } = apply -> follower::Decision;
    Accepted { ends: Vec<Lsn> => &[Lsn] } = accepted -> follower::Decision;
    Shown { to: Lsn } = shown -> bool;
    Hold { at: Lsn } = hold -> Result<(), Seen>;
    Cut { at: Lsn } = cut -> ();
    NotCut {} = not_cut -> ();
    Entered { entered: Entered } = entered -> ();
    Linked { welcome: Welcome => &Welcome } = linked -> ();
    PassOn { welcome: Welcome => &Welcome, now: Moment } = pass_on -> ();
    PassesNothing {} = passes_nothing -> ();
    Closed {} = closed -> ();
    Ack { room: Room, now: Moment } = ack -> Option<Ack>;
    ReportVisible { wanted: bool } = report_visible -> ();
    NextPiece { limit: u64 } = next_piece -> Option<Piece>;
    ReplayFailed {} = replay_failed -> ();
    SetLacksMemory { lacks: bool, files: bool } = set_lacks_memory -> ();
    ReplayUntil { to: Lsn } = replay_until -> bool;
    NotNoted {} = not_noted -> ();
});

recorded!(MirrorState, Mirror, MirrorEvent {
    Silence {} = silence -> ();
    Forgotten {} = forgotten -> ();
    Seeded { start: Lsn, end: Lsn } = seeded -> ();
    Observe { to: Lsn, committed: Lsn } = observe -> ();
    Recovered { end: Lsn } = recovered -> ();
    GoesStale {} = goes_stale -> bool;
    Linked { entered: Entered } = linked -> ();
    Fetched { to: Lsn } = fetched -> ();
    Cut { at: Lsn, end: Lsn } = cut -> Cut;
});

recorded!(MirrorFeed, Feed, FeedEvent {
    Posted { token: u64, batch: Option<Lsn>, mark: Option<Lsn> } = posted -> ();
    Complete { upto: u64 } = complete -> Option<Lsn>;
    Acknowledged { counts: bool } = acknowledged -> bool;
    Note { now: Moment } = note -> Lsn;
    AsksForRegion { now: Moment } = asks_for_region -> bool;
    RegionAnswered { granted: bool, now: Moment } = region_answered -> ();
});

recorded!(Promotion, Promotion, PromotionEvent {
    Raise { fence: Fence } = raise -> Result<Fence, LastTerm>;
    Question { mine: LogState } = question -> Question;
    Observe { node: NodeId, answer: Answer } = observe -> ();
    Decide { silent: u32 } = decide -> Step;
    FetchFailed {} = fetch_failed -> bool;
});

recorded!(Upstream, Upstream, UpstreamEvent {
    Lead { address: Option<String> } = lead -> ();
    Announced { node: NodeId, address: String => &str } = announced -> Announced;
    LookElsewhere { order: Order, address: String => &str } = look_elsewhere -> ();
    NextAttempt {} = next_attempt -> Next;
    Offer { order: Order } = offer -> bool;
    Revoked {} = revoked -> ();
    Revoke { risen: bool } = revoke -> Order;
    Joined { node: NodeId, above: Vec<NodeId> => &[NodeId] } = joined -> ();
    Ended { order: Order, why: Ended => &Ended, known: Vec<String> => &[String], draw: u64 } = ended -> Duration;
    Rest {} = rest -> ();
    EndRest {} = end_rest -> ();
    Fail {} = fail -> ();
    Stop {} = stop -> ();
});

/// A machine decides otherwise than it did.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("machine {machine}, at {event}: it decided {was}, and decides {is} now")]
pub struct Differs {
    /// Which machine.
    pub machine: u64,
    /// What happened to it.
    pub event: String,
    /// What came of that.
    pub was: String,
    /// What comes of it now.
    pub is: String,
}

/// Replays a tape.
#[derive(Debug, Default)]
pub struct Replay(BTreeMap<u64, Replayed>);

/// A machine of a tape.
#[derive(Debug)]
struct Replayed {
    state: State,
    /// Its last event, and what has come of it now, if the tape has still to say what came of it.
    pending: Option<(Event, String)>,
}

/// What comes of an event over which the machine panics.
const STOPS: &str = "nothing: it stops";
/// What comes of an event that a machine of this kind does not have.
const OTHER: &str = "nothing: it is another machine";

impl Replay {
    /// The next record. Says whether it was replayed: what comes before the state of its machine
    /// cannot be.
    ///
    /// # Errors
    /// [`Differs`]; the machine is left out then, until its state is recorded again.
    pub fn step(&mut self, record: &Record) -> Result<bool, Differs> {
        let &Record { machine, ref what } = record;
        let differs = |event: String, was: &str, is: String| Err(Differs { machine, event, was: was.to_owned(), is });
        match what {
            What::Begins { .. } => {
                self.0.clear();
                Ok(false)
            }
            What::Terms(_) => Ok(false),
            What::State(state) => match self.0.insert(machine, Replayed { state: state.clone(), pending: None }) {
                None => Ok(false),
                Some(Replayed { pending: Some((event, is)), .. }) => differs(format!("{event:?}"), NOTHING, is),
                Some(Replayed { state: is, .. }) if format!("{is:?}") != format!("{state:?}") => {
                    differs("its state".into(), &format!("{state:?}"), format!("{is:?}"))
                }
                Some(_) => Ok(true),
            },
            What::Event(event) => {
                let Some(mut known) = self.0.remove(&machine) else { return Ok(false) };
                if let Some((event, is)) = known.pending {
                    return differs(format!("{event:?}"), NOTHING, is);
                }
                let is = catch_unwind(AssertUnwindSafe(|| happen(&mut known.state, event)));
                let is = is.map_or(STOPS.into(), |is| is.unwrap_or(OTHER.into()));
                known.pending = Some((Event::clone(event), is)).filter(|(_, is)| is != NOTHING);
                self.0.insert(machine, known);
                Ok(true)
            }
            What::Outcome(outcome) => {
                let Some(mut known) = self.0.remove(&machine) else { return Ok(false) };
                match known.pending.take() {
                    Some((_, is)) if is == *outcome => {
                        self.0.insert(machine, known);
                        Ok(true)
                    }
                    Some((event, is)) => differs(format!("{event:?}"), outcome, is),
                    None => differs("the event before".into(), outcome, NOTHING.into()),
                }
            }
        }
    }

    /// At the end of a tape: the machines that stop over their last event, and that event.
    pub fn stopped(&self) -> impl Iterator<Item = (u64, &Event)> {
        let last = self.0.iter().filter_map(|(machine, known)| Some((*machine, known.pending.as_ref()?)));
        last.filter(|(_, (_, is))| is == STOPS).map(|(machine, (event, _))| (machine, event))
    }
}

/// What comes of an event; none if it is of another kind of machine.
fn happen(state: &mut State, event: &Event) -> Option<String> {
    match (state, event) {
        (State::Rule(machine), Event::Rule(event)) => Some(machine.happen(event)),
        (State::Host(machine), Event::Host(event)) => Some(machine.happen(event)),
        (State::Follower(machine), Event::Follower(event)) => Some(machine.happen(event)),
        (State::Mirror(machine), Event::Mirror(event)) => Some(machine.happen(event)),
        (State::Feed(machine), Event::Feed(event)) => Some(machine.happen(event)),
        (State::Promotion(machine), Event::Promotion(event)) => Some(machine.happen(event)),
        (State::Upstream(machine), Event::Upstream(event)) => Some(machine.happen(event)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    };

    use super::*;

    #[derive(Default)]
    struct Memory {
        records: Mutex<Vec<Record>>,
        machines: AtomicU64,
        generation: AtomicU64,
    }

    impl Tape for Memory {
        fn next_machine(&self) -> u64 {
            self.machines.fetch_add(1, Ordering::SeqCst)
        }

        fn generation(&self) -> u64 {
            self.generation.load(Ordering::SeqCst)
        }

        fn record(&self, record: &Record) {
            self.records.lock().unwrap().push(record.clone());
        }
    }

    fn taped() -> Vec<Record> {
        let tape = Arc::new(Memory::default());
        let recorder = Recorder::new(tape.clone());
        let mut it = Recorded::new(MirrorState::new(NodeId(2), true), &recorder);
        it.seeded(Lsn(100), Lsn(200));
        it.observe(Lsn(250), Lsn(150));
        tape.generation.fetch_add(1, Ordering::SeqCst);
        assert_eq!(it.cut(Lsn(200), Lsn(220)), Cut::Above(Lsn(220)));
        assert!(!it.goes_stale());
        let records = tape.records.lock().unwrap();
        records.clone()
    }

    #[test]
    fn what_was_recorded_is_decided_again() {
        let records = taped();
        assert_eq!(
            records.len(),
            8,
            "four events, two of them with outcomes, and the state before the first and third"
        );
        let mut replay = Replay::default();
        let replayed: Vec<_> = records.iter().map(|record| replay.step(record).unwrap()).collect();
        assert_eq!(replayed, [false, true, true, true, true, true, true, true]);
        let mut from_the_middle = Replay::default();
        let replayed: Vec<_> = records[1..].iter().map(|record| from_the_middle.step(record).unwrap()).collect();
        assert_eq!(replayed, [false, false, false, true, true, true, true]);
        // Another process has machines of the same numbers.
        let begins = Record { machine: 0, what: What::Begins { version: "1".into() } };
        assert_eq!(replay.step(&begins), Ok(false));
        assert_eq!(replay.step(&records[0]), Ok(false));
    }

    /// What a process ends over is the last thing on its tape, and ends a replay in the same way.
    #[test]
    fn an_event_that_ends_the_process_is_recorded() {
        let tape = Arc::new(Memory::default());
        let config = follower::FollowerConfig { replay: follower::ReplayMode::Pipelined, capacity: 1000, relay: None };
        let it = Follower::new(NodeId(2), config, follower::Begun::default());
        let mut it = Recorded::new(it, &Recorder::new(tape.clone()));
        let now = Moment(0);
        let _ = it.apply(follower::Event::Global(Lsn(100)), now);
        let persisted = follower::Event::Persisted(Lsn(100));
        catch_unwind(AssertUnwindSafe(|| it.apply(persisted, now))).expect_err("nothing was received");
        let mut replay = Replay::default();
        for record in tape.records.lock().unwrap().iter() {
            replay.step(record).unwrap();
        }
        let stopped: Vec<_> = replay.stopped().map(|(machine, event)| (machine, format!("{event:?}"))).collect();
        assert!(matches!(&stopped[..], [(0, event)] if event.contains("Persisted")), "{stopped:?}");
    }

    #[test]
    fn another_decision_stops_a_replay() {
        let mut records = taped();
        let What::Outcome(outcome) = &mut records[5].what else { panic!("it is the cut") };
        *outcome = "Done".into();
        let mut replay = Replay::default();
        let outcomes: Vec<_> = records.iter().map(|record| replay.step(record)).collect();
        assert!(outcomes[..5].iter().all(Result::is_ok));
        assert_eq!(outcomes[5].as_ref().unwrap_err().was, "Done");
        assert_eq!(outcomes[6], Ok(false), "its machine is left out");
        // An outcome that is missing, or was none.
        for (at, removed) in [(5, 5), (6, 6)] {
            let mut records = taped();
            if at == 5 {
                records.remove(removed);
            } else {
                records.insert(at, records[5].clone());
            }
            let mut replay = Replay::default();
            assert!(records.iter().map(|record| replay.step(record)).any(|step| step.is_err()), "{at}");
        }
        // An event that was left out shows in the next state.
        let mut records = taped();
        records.remove(2);
        let mut replay = Replay::default();
        let differs = records.iter().map(|record| replay.step(record)).find_map(Result::err).unwrap();
        assert_eq!(differs.event, "its state");
    }

    #[test]
    fn nothing_is_kept_without_a_tape() {
        let mut it = Recorded::new(MirrorState::new(NodeId(2), true), &Recorder::default());
        it.seeded(Lsn(100), Lsn(200));
        assert_eq!((it.end(), it.known_to), (Lsn(100), None));
    }
}
