//! Register: asks a value that is changed by compare-and-swap, in the place of a witness
//! ([`freshet_cluster::register`]). Where that is kept is for a [`Keeper`] to know.
//!
//! A step is: read, let the machine take the step, write unless another has written since. It is
//! taken again when it fails, within the time that the caller gives. One step is under way at a
//! time, so that what is read is never older than what was read before, unless it was set back.

use std::{
    fmt,
    time::{Duration, Instant},
};

use freshet_base::{
    ClusterId, NodeId, Term,
    sync::{Mutex, MutexGuard},
    wait::{self, Patience},
};
use freshet_cluster::{
    promotion::Testimony,
    register::{Register, Seen, Void},
    term::Refused,
    witness::{Ask, Consult, Granted},
};

use freshet_membership::Credentials;

use crate::{
    clock::Clock,
    endpoint::{CallError, call},
    maintenance::{Maintained, Notice},
    wire::{Hello, Peer, Purpose, Refusal, Reply},
    witness::{no_vote, refusal},
};

/// A primary that lives finds a knock within this: it looks four times as often.
const KNOCK: Duration = Duration::from_millis(400);
/// What a primary has said to a knock counts for so long from then on.
const ANSWERED: Duration = Duration::from_secs(1);
/// That it has said nothing, for so long.
const UNANSWERED: Duration = Duration::from_secs(3);
/// A step ends when this number of questions have failed.
const FAILURES: u32 = 6;
/// The time before a question that has failed is asked again.
const PAUSE: Duration = Duration::from_millis(10);

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The number of those who keep it.
    pub place: u64,
    /// Which change was the last; zero if there is no value.
    pub revision: u64,
    /// The value.
    pub value: Option<Vec<u8>>,
}

/// Keeps one value.
pub trait Keeper: Send + Sync {
    /// The value, as it is at some time between call and return. Blocks for `patience` at most.
    ///
    /// # Errors
    /// What went wrong.
    fn read(&self, patience: Duration) -> Result<Kept, String>;

    /// Writes `value` if `revision` was the last change; says whether it was. Blocks for `patience`
    /// at most.
    ///
    /// # Errors
    /// What went wrong: the value may have been written, or will be.
    fn swap(&self, revision: u64, value: &[u8], patience: Duration) -> Result<bool, String>;
}

/// A register in the place of a cluster's witness.
pub struct RegisterWitness {
    /// The witness that it stands for.
    node: NodeId,
    cluster: ClusterId,
    /// What is shown as its address.
    address: String,
    keeper: Box<dyn Keeper>,
    /// The time of the first question of a step; the next ones have twice as much each.
    attempt: Duration,
    clock: Clock,
    /// What was read. Held during a step.
    seen: Mutex<Seen>,
    /// The last knock of this node, and when it was in the value.
    knocked: Mutex<Option<(u64, Instant)>>,
    /// Why it could not be read when this node, a standby, looked last.
    trouble: Mutex<Option<String>>,
}

impl fmt::Debug for RegisterWitness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegisterWitness({} at {})", self.node, self.address)
    }
}

/// What a step finds.
struct Found {
    place: u64,
    value: Option<Register>,
    /// Why that does not count.
    void: Option<Void>,
}

/// Why a step was not taken.
enum Failed {
    /// It may be taken if it is tried again.
    Now(String),
    /// It may not.
    ForGood(CallError),
}

impl RegisterWitness {
    /// The witness `node` of `cluster`, which `keeper` keeps, at what is called `address`. No first
    /// question takes longer than `attempt`.
    pub fn new(
        node: NodeId,
        cluster: ClusterId,
        address: String,
        keeper: impl Keeper + 'static,
        attempt: Duration,
    ) -> Self {
        let (seen, knocked, trouble) = Default::default();
        let (keeper, clock) = (Box::new(keeper), Clock::start());
        Self { node, cluster, address, keeper, attempt, clock, seen, knocked, trouble }
    }

    /// The witness that it stands for.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// What is shown as its address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Reads it, since a standby that cannot would learn that only when its primary is lost. Blocks
    /// for `patience` at most.
    pub(crate) fn look(&self, patience: Duration) {
        let read = self.step(Instant::now() + patience, |found| self.sound(found).map(|_| (None, ())));
        let trouble = read.err().map(|cause| cause.to_string());
        let before = std::mem::replace(&mut *self.trouble(), trouble.clone());
        match trouble {
            Some(cause) if before.is_none() => tracing::warn!(
                witness = %self.node, cause,
                "this node cannot read what stands in the witness's place, and cannot take over if its primary is lost"
            ),
            None if before.is_some() => {
                tracing::info!(witness = %self.node, "what stands in the witness's place answers")
            }
            _ => {}
        }
    }

    pub(crate) fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().expect("no code panics under this mutex")
    }

    /// It, as one of those that a candidate asks.
    pub(crate) fn peer(&self) -> Peer {
        Peer { node: Some(self.node), ..Peer::at(self.address.clone()) }
    }

    fn is(&self, peer: &Peer) -> bool {
        peer.node == Some(self.node) && peer.address == self.address
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no code panics under this mutex")
    }

    fn knocked(&self) -> MutexGuard<'_, Option<(u64, Instant)>> {
        self.knocked.lock().expect("no code panics under this mutex")
    }

    fn failed(&self, why: impl fmt::Display) -> CallError {
        CallError::Register { address: self.address.clone(), why: why.to_string() }
    }

    fn refused(&self, refusal: Refusal) -> CallError {
        CallError::Refused { address: self.address.clone(), refusal }
    }

    /// Takes a step, which `take` says, until `deadline`.
    fn step<R>(
        &self,
        deadline: Instant,
        take: impl Fn(&Found) -> Result<(Option<Register>, R), CallError>,
    ) -> Result<R, CallError> {
        let mut seen = self.seen();
        let (mut attempt, mut failures, mut why) = (self.attempt, 0, "there was no time to ask".to_owned());
        while Instant::now() < deadline && failures < FAILURES {
            let until = deadline.min(Instant::now() + attempt);
            match self.try_step(&mut seen, until, &take) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => why = "other nodes change the value all the time".into(),
                Err(Failed::ForGood(cause)) => return Err(cause),
                Err(Failed::Now(cause)) => {
                    (why, failures, attempt) = (cause, failures + 1, attempt * 2);
                    let _ = wait::sleep(Patience::endless().until(deadline.min(Instant::now() + PAUSE)));
                }
            }
        }
        Err(self.failed(why))
    }

    /// Once; nothing if another node has written in between.
    fn try_step<R>(
        &self,
        seen: &mut Seen,
        until: Instant,
        take: impl Fn(&Found) -> Result<(Option<Register>, R), CallError>,
    ) -> Result<Option<R>, Failed> {
        let left = || until.saturating_duration_since(Instant::now());
        let Kept { place, revision, value } = self.keeper.read(left()).map_err(Failed::Now)?;
        let read = value.as_deref().map(serde_json::from_slice::<Register>).transpose();
        let value = read.map_err(|why| {
            Failed::ForGood(self.failed(format!("the value is not one of this version of Freshet: {why}")))
        })?;
        let void = value.as_ref().and_then(|value| value.check(self.cluster, place, seen).err());
        let found = Found { place, value, void };
        let (next, answer) = take(&found).map_err(Failed::ForGood)?;
        if let Some(sound) = found.value.as_ref().filter(|_| found.void.is_none()) {
            seen.observe(sound);
        }
        let change = next.and_then(|next| found.value.as_ref().map_or(Some(next.clone()), |value| value.change(next)));
        let Some(change) = change else { return Ok(Some(answer)) };
        let bytes = serde_json::to_vec(&change).expect("a register consists of plain data");
        if !self.keeper.swap(revision, &bytes, left()).map_err(Failed::Now)? {
            return Ok(None);
        }
        seen.observe(&change);
        Ok(Some(answer))
    }

    /// The primary at `address` asks, which knows of maintenance. What the answer says is in the
    /// register. Blocks for `patience` at most.
    ///
    /// # Errors
    /// [`CallError`]; a refusal is one.
    pub(crate) fn ask(
        &self,
        ask: &Ask,
        address: &str,
        maintained: &Maintained,
        patience: Duration,
    ) -> Result<Granted, CallError> {
        let incarnation = getrandom::u64().map_err(|cause| self.failed(format!("no random number: {cause}")))?;
        self.step(Instant::now() + patience, |found| {
            let present = match (&found.value, found.void) {
                (Some(value), None) => value.clone(),
                (Some(value), Some(void)) if void.is_replaced() => {
                    tracing::warn!(witness = %self.node, at = self.address, cause = %void, "another value is made");
                    value.replaced(self.cluster, incarnation, found.place)
                }
                (Some(_), Some(void)) => return Err(self.failed(void)),
                (None, _) => {
                    tracing::info!(witness = %self.node, at = self.address, "the witness's value is made");
                    Register::made(self.cluster, incarnation, found.place)
                }
            };
            self.check_asker(&present, ask.living.node, None)?;
            maintained.observe(present.maintenance);
            let asked = present.asked(self.node, ask, (address, maintained.notice()), self.clock.now());
            let (next, granted) = asked.map_err(|Refused { highest, holder }| {
                let primary = present.primary.clone();
                self.refused(Refusal::of_term(ask.living.term, highest, holder, primary))
            })?;
            Ok((Some(next), granted))
        })
    }

    /// A candidate asks with `hello`, or one that wants to know whether it may stand. What the
    /// answer says is in the register. Blocks for `patience` at most.
    pub(crate) fn consult(&self, hello: &Hello, patience: Duration) -> CallError {
        let Purpose::Consult { term, binding, gives_way, stands, .. } = hello.purpose else {
            return CallError::Unexpected { address: self.address.clone() };
        };
        let asks = Consult { node: hello.node, term, binding, gives_way };
        let answer = self.testimony(&asks, stands, Instant::now() + patience);
        answer.map_or_else(|why| why, |testimony| self.refused(no_vote(self.node, testimony)))
    }

    fn testimony(&self, asks: &Consult, stands: Option<Notice>, deadline: Instant) -> Result<Testimony, CallError> {
        self.find_out_whether_the_primary_lives(asks, stands, deadline)?;
        let own = *self.knocked();
        self.step(deadline, |found| {
            let value = self.sound(found)?;
            self.check_asker(value, asks.node, stands)?;
            let lives = own.is_some_and(|(number, _)| value.is_answered(number) == Some(true));
            let primary = |term| value.primary.clone().filter(|_| term == value.state.fence.highest());
            let answer = value.consulted(self.node, asks, lives, self.clock.now());
            let (next, testimony) = answer.map_err(|why| self.refused(refusal(why, asks, primary)))?;
            Ok((Some(next), testimony))
        })
    }

    fn check_asker(&self, value: &Register, asker: NodeId, stands: Option<Notice>) -> Result<(), CallError> {
        value.check_asker(self.node, asker, stands).map_err(|refusal| self.refused(refusal))
    }

    /// What is there, if it counts.
    fn sound<'f>(&self, found: &'f Found) -> Result<&'f Register, CallError> {
        match (&found.value, found.void) {
            (Some(value), None) => Ok(value),
            (_, Some(void)) => Err(self.failed(void)),
            (None, None) => {
                Err(self.failed("it has no value for this cluster: the primary makes one as soon as it asks"))
            }
        }
    }

    /// Knocks, unless that has been done, and waits until a primary that lives would have answered.
    fn find_out_whether_the_primary_lives(
        &self,
        asks: &Consult,
        stands: Option<Notice>,
        deadline: Instant,
    ) -> Result<(), CallError> {
        loop {
            let own = *self.knocked();
            let answered = self.step(deadline, |found| {
                let value = self.sound(found)?;
                self.check_asker(value, asks.node, stands)?;
                let answered = own.map(|(number, _)| value.is_answered(number));
                Ok((None, value.is_to_knock(asks).then_some(answered.flatten())))
            })?;
            let since = own.map(|(_, since)| since.elapsed()).unwrap_or_default();
            match answered {
                None => return Ok(()),
                Some(Some(true)) if since < ANSWERED => return Ok(()),
                Some(Some(false)) if (KNOCK..UNANSWERED).contains(&since) => return Ok(()),
                Some(Some(false)) if since < KNOCK => {
                    let until = deadline.min(Instant::now() + (KNOCK - since));
                    let _ = wait::sleep(Patience::endless().until(until));
                }
                _ => {
                    let number = getrandom::u64().map_err(|cause| self.failed(format!("no random number: {cause}")))?;
                    self.step(deadline, |found| Ok((Some(self.sound(found)?.knocked(asks.node, number)), ())))?;
                    *self.knocked() = Some((number, Instant::now()));
                }
            }
        }
    }
}

/// Asks `peer`, which is a node, or the register in the place of a witness.
///
/// # Errors
/// [`CallError`]; a refusal is one.
pub(crate) fn ask_peer(
    register: Option<&RegisterWitness>,
    credentials: &Credentials,
    peer: &Peer,
    hello: &Hello,
    term: Term,
    patience: Duration,
) -> Result<Reply, CallError> {
    match register.filter(|register| register.is(peer)) {
        Some(register) => Err(register.consult(hello, patience)),
        None => call(credentials, &peer.address, hello, term, patience).map(|(reply, _)| reply),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, sync::Arc};

    use freshet_cluster::{Moment, term::Living};

    use super::*;

    const CLUSTER: ClusterId = ClusterId(3);
    const SOON: Duration = Duration::from_secs(5);

    /// What happens to a swap.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Fault {
        /// It takes effect, and its answer is lost.
        Answer,
        /// It is lost.
        Question,
        /// Another one comes before.
        Outrun,
    }

    #[derive(Clone, Default)]
    struct Memory {
        kept: Arc<Mutex<(u64, Option<Vec<u8>>)>>,
        faults: Arc<Mutex<VecDeque<Fault>>>,
    }

    impl Keeper for Memory {
        fn read(&self, _: Duration) -> Result<Kept, String> {
            let (revision, value) = self.kept.lock().unwrap().clone();
            Ok(Kept { place: 70, revision, value })
        }

        fn swap(&self, revision: u64, value: &[u8], _: Duration) -> Result<bool, String> {
            let (fault, mut kept) = (self.faults.lock().unwrap().pop_front(), self.kept.lock().unwrap());
            if fault == Some(Fault::Outrun) {
                kept.0 += 1;
            }
            if fault == Some(Fault::Question) || kept.0 != revision {
                return fault.filter(|fault| *fault == Fault::Question).map_or(Ok(false), |_| Err("lost".into()));
            }
            *kept = (kept.0 + 1, Some(value.to_owned()));
            if fault == Some(Fault::Answer) { Err("lost".into()) } else { Ok(true) }
        }
    }

    impl Memory {
        fn of_node(&self) -> RegisterWitness {
            RegisterWitness::new(NodeId(9), CLUSTER, "memory".into(), self.clone(), Duration::from_millis(100))
        }

        fn value(&self) -> Register {
            serde_json::from_slice(self.kept.lock().unwrap().1.as_deref().unwrap()).unwrap()
        }
    }

    fn ask(of: &RegisterWitness, term: u32, node: u64) -> Result<Granted, CallError> {
        let living = Living { term: Term(term), node: NodeId(node) };
        let lease = Duration::from_millis(350);
        let ask = Ask { cluster: CLUSTER, living, sent: Moment(5), lease, set: None };
        of.ask(&ask, "a:1", &Maintained::default(), SOON)
    }

    fn consult(of: &RegisterWitness, term: u32, node: u64, gives_way: Option<u32>) -> Refusal {
        let (term, gives_way) = (Term(term), gives_way.map(Term));
        let purpose = Purpose::Consult { term, binding: true, gives_way, handed: None, stands: None };
        let hello = Hello { cluster: Some(CLUSTER), node: NodeId(node), address: String::new(), purpose };
        match of.consult(&hello, SOON) {
            CallError::Refused { refusal, .. } => refusal,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_step_whose_answer_is_lost_is_taken_once() {
        for faults in [vec![Fault::Answer], vec![Fault::Question, Fault::Question], vec![Fault::Outrun, Fault::Answer]]
        {
            let memory = Memory::default();
            assert_eq!(ask(&memory.of_node(), 2, 1).unwrap().node, NodeId(9));
            let before = memory.value();
            memory.faults.lock().unwrap().extend(faults);
            let Refusal::NoVote { testimony, .. } = consult(&memory.of_node(), 3, 2, None) else { panic!() };
            assert_eq!(testimony.incarnations, [before.state.incarnation.unwrap()]);
            assert_eq!(testimony.lease, Duration::from_millis(350) * 65 / 64);
            assert_eq!(memory.value().step, before.step + 1);
            assert!(memory.faults.lock().unwrap().is_empty());
            // The primary of before, and another candidate of the same term.
            let Err(CallError::Refused { refusal, .. }) = ask(&memory.of_node(), 2, 1) else { panic!() };
            assert!(matches!(refusal, Refusal::Fenced { highest: Term(3), .. }), "{refusal}");
            let other = consult(&memory.of_node(), 3, 1, None);
            assert!(matches!(other, Refusal::Fenced { holder: Some(NodeId(2)), .. }), "{other}");
        }
    }

    #[test]
    fn a_primary_that_asks_is_not_deposed_by_one_that_gives_way() {
        let memory = Memory::default();
        let (primary, standby) = (memory.of_node(), memory.of_node());
        ask(&primary, 2, 1).unwrap();
        std::thread::scope(|scope| {
            let (over, ended) = std::sync::mpsc::channel::<()>();
            let primary = &primary;
            scope.spawn(move || {
                while ended.recv_timeout(KNOCK / 4) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                    ask(primary, 2, 1).unwrap();
                }
            });
            let led = consult(&standby, 3, 2, Some(2));
            let expected = Refusal::LedBy { node: NodeId(1), term: Term(2), primary: Some("a:1".into()) };
            assert_eq!(led, expected);
            drop(over);
        });
        // It asks no more: what it has answered last counts for a while.
        let at = Instant::now();
        let mut answer = consult(&standby, 3, 2, Some(2));
        while matches!(answer, Refusal::LedBy { .. }) && at.elapsed() < SOON {
            answer = consult(&standby, 3, 2, Some(2));
        }
        assert!(matches!(answer, Refusal::NoVote { .. }) && at.elapsed() < SOON, "{answer}");
        assert_eq!(memory.value().state.fence.holder(), Some(NodeId(2)));
    }

    #[test]
    fn what_is_no_value_has_no_vote() {
        let memory = Memory::default();
        let purpose = Purpose::Consult { term: Term(3), binding: true, gives_way: None, handed: None, stands: None };
        let hello = Hello { cluster: Some(CLUSTER), node: NodeId(2), address: String::new(), purpose };
        let refused = |memory: &Memory| memory.of_node().consult(&hello, SOON).to_string();
        // A candidate makes none.
        assert!(refused(&memory).contains("has no value for this cluster"), "{}", refused(&memory));
        for nonsense in ["", "{}", "[1", "null", "{\"form\":1,\"step\":-1}"] {
            *memory.kept.lock().unwrap() = (4, Some(nonsense.into()));
            assert!(refused(&memory).contains("is not one of this version"), "{}", refused(&memory));
            assert!(ask(&memory.of_node(), 2, 1).is_err());
        }
        let other = serde_json::to_vec(&Register::made(ClusterId(4), 1, 70)).unwrap();
        *memory.kept.lock().unwrap() = (4, Some(other));
        assert!(ask(&memory.of_node(), 2, 1).unwrap_err().to_string().contains("another cluster"));
    }
}
