//! Register: what stands in a witness's place where that is no process, but one value that others
//! keep and change by compare-and-swap, as etcd does.
//!
//! ```text
//!   asker   reads value and revision ─▶ the witness's own step ─▶ writes, if no other has since
//!              ▲                                                      │ else, or if the answer is lost
//!              └──────────────────────────────────────────────────────┘
//! ```
//!
//! The steps are those of [`crate::witness`]: who asks, takes the step itself. A step that
//! changes nothing writes nothing, and has been taken when the value was read; reads are
//! linearizable. A step may be taken twice, and its answer may be lost: the second time it changes
//! nothing. A request that arrives late finds another revision, and changes nothing.
//!
//! **Leases.** No clock runs there, so each step is taken by a witness that has just started: what
//! it may have granted lasts for a whole lease from then on ([`crate::lease`]). The primary
//! counts from when it sent what it asked, which is before the value was read. A candidate counts
//! from when it knows that its term is in the value, which is after that. A grant that was read
//! later names the candidate's term, and is no grant.
//!
//! **Whether the primary lives.** No connection says so. A candidate that gives way *knocks*: it
//! writes a number. A primary that finds that when it asks, says so in the value. A candidate that
//! gets no answer in time continues.
//!
//! **Which value it is.** Its incarnation is drawn when it is made, by a primary alone. A value
//! that was deleted, or is older than one that was read before, or was copied from elsewhere, has
//! forgotten what was promised in it. So a primary makes another one, and the one of before
//! counts as lost, as a witness's file would.

use freshet_base::{ClusterId, NodeId, Term};
use serde::{Deserialize, Serialize};

use crate::{
    Moment,
    handshake::{Refusal, check_belongs},
    maintenance::Notice,
    promotion::Testimony,
    term::{Living, Refused, TermState},
    witness::{Ask, Consult, Granted, NoTestimony, Witness},
};

/// The form of a value: another one is not read.
pub const FORM: u32 = 1;

/// The value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// [`FORM`].
    pub form: u32,
    /// How many steps have changed it.
    pub step: u64,
    /// Where it was made: those who keep it have a number.
    pub place: u64,
    /// What a witness keeps on its disk.
    pub state: TermState,
    /// Where the primary is that has asked last in the term in force.
    pub primary: Option<String>,
    /// What the primary knew last of maintenance, when that changed.
    pub maintenance: Notice,
    /// Whether that lives, a candidate wants to know.
    pub knock: Option<Knock>,
}

/// A candidate's question whether the primary lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knock {
    /// Who asks.
    pub by: NodeId,
    /// A random number.
    pub number: u64,
    /// The primary of the term in force has found it.
    pub answered: bool,
}

/// Which values a node has read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The incarnation and the step of the last one.
    last: Option<(u64, u64)>,
    /// The incarnations before that, the latest last: [`FORMER`] at most.
    former: Vec<u64>,
}

/// A node remembers this number of values that were replaced.
const FORMER: usize = 16;

impl Seen {
    /// This one was read, and counts, or was written.
    pub fn observe(&mut self, register: &Register) {
        let incarnation = register.state.incarnation.unwrap_or_default();
        if let Some((before, _)) = self.last.filter(|(before, _)| *before != incarnation) {
            self.former.push(before);
            self.former.drain(..self.former.len().saturating_sub(FORMER));
        }
        self.last = Some((incarnation, register.step));
    }

    /// Whether `register` has forgotten something that was read before.
    fn check(&self, register: &Register) -> Result<(), Void> {
        let incarnation = register.state.incarnation.unwrap_or_default();
        match self.last.filter(|(last, step)| *last == incarnation && *step > register.step) {
            Some((_, seen)) => Err(Void::SetBack { step: register.step, seen }),
            None if self.former.contains(&incarnation) => Err(Void::Former),
            None => Ok(()),
        }
    }
}

/// Why a value has no vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Void {
    /// It belongs to another cluster.
    #[error("the value belongs to another cluster")]
    Foreign,
    /// It was made by another version.
    #[error("the value has form {0}, and this version of Freshet reads form {FORM} alone: run the same on all nodes")]
    Form(u32),
    /// It was copied, or restored.
    #[error(
        "the value was made in another etcd cluster, and this one is a copy or a backup of that: what was promised \
         since is missing. The primary makes another value as soon as it asks"
    )]
    Elsewhere,
    /// Another one had taken its place.
    #[error(
        "another value had taken the place of this one, which is back: etcd was set back. The primary makes another \
         value as soon as it asks"
    )]
    Former,
    /// It is older than what was read before.
    #[error(
        "the value is older than it was (step {step}, and {seen} before): etcd was set back, and what was promised \
         since is missing. The primary makes another value as soon as it asks"
    )]
    SetBack {
        /// What it says now.
        step: u64,
        /// What it said before.
        seen: u64,
    },
}

impl Void {
    /// Whether a primary makes another one in its place.
    pub fn is_replaced(&self) -> bool {
        matches!(self, Self::Elsewhere | Self::Former | Self::SetBack { .. })
    }
}

impl Register {
    /// A new one of `cluster`, which those keep that have the number `place`.
    pub fn made(cluster: ClusterId, incarnation: u64, place: u64) -> Self {
        let state = TermState { cluster: Some(cluster), incarnation: Some(incarnation), ..TermState::empty() };
        Self { form: FORM, step: 1, place, state, primary: None, maintenance: Notice::default(), knock: None }
    }

    /// Another one in the place of this one, which has forgotten something. It forgets no term and
    /// no lease besides.
    #[must_use]
    pub fn replaced(&self, cluster: ClusterId, incarnation: u64, place: u64) -> Self {
        let mut made = Self::made(cluster, incarnation, place);
        (made.state.fence, made.state.lease) = (self.state.fence, self.state.lease);
        made
    }

    /// Whether what this value says counts for `cluster`, where `place` keeps it, and these were
    /// `seen` before.
    ///
    /// # Errors
    /// [`Void`]
    pub fn check(&self, cluster: ClusterId, place: u64, seen: &Seen) -> Result<(), Void> {
        match self {
            _ if self.form != FORM => Err(Void::Form(self.form)),
            _ if self.state.cluster != Some(cluster) => Err(Void::Foreign),
            _ if self.place != place => Err(Void::Elsewhere),
            _ => seen.check(self),
        }
    }

    /// What is to be written for `next`, if that is another.
    pub fn change(&self, mut next: Self) -> Option<Self> {
        if next == *self {
            return None;
        }
        next.step = next.step.saturating_add(1);
        Some(next)
    }

    /// The primary at `address` asks, of the witness `me`, and knows this of maintenance. Gives the
    /// value that then has to be there before the answer counts.
    ///
    /// # Errors
    /// [`Refused`], as by a witness.
    pub fn asked(
        &self,
        me: NodeId,
        ask: &Ask,
        (address, maintenance): (&str, Notice),
        now: Moment,
    ) -> Result<(Self, Granted), Refused> {
        let mut next = self.clone();
        let granted = Witness::restarted(me, now).asked(&mut next.state, ask, now)?;
        next.primary = Some(address.to_owned());
        let ended = maintenance.order == next.maintenance.order && maintenance.left.is_zero();
        if maintenance.order > next.maintenance.order || ended {
            next.maintenance = maintenance;
        }
        next.knock = next.knock.map(|knock| Knock { answered: true, ..knock });
        Ok((next, granted))
    }

    /// A candidate wants to know whether the primary lives.
    #[must_use]
    pub fn knocked(&self, by: NodeId, number: u64) -> Self {
        Self { knock: Some(Knock { by, number, answered: false }), ..self.clone() }
    }

    /// Whether the node that asks the witness `me` belongs to the cluster, and may stand: `stands`
    /// is what a candidate knows of maintenance that stands by itself.
    ///
    /// # Errors
    /// [`Refusal`]
    pub fn check_asker(&self, me: NodeId, asker: NodeId, stands: Option<Notice>) -> Result<(), Refusal> {
        check_belongs(asker, &self.state)?;
        let notice = self.maintenance;
        match stands.filter(|theirs| notice.order > theirs.order && !notice.left.is_zero()) {
            Some(_) => Err(Refusal::Maintenance { node: me, notice }),
            None => Ok(()),
        }
    }

    /// Whether a candidate that asks so has to knock before it is answered: a primary that lives is
    /// in its way.
    pub fn is_to_knock(&self, asks: &Consult) -> bool {
        let living = self.holder();
        asks.gives_way.is_some_and(|latest| living.is_some_and(|living| living.outranks(asks.node, latest)))
    }

    /// Whether the primary has answered that knock; nothing if the value has another one.
    pub fn is_answered(&self, number: u64) -> Option<bool> {
        self.knock.filter(|knock| knock.number == number).map(|knock| knock.answered)
    }

    fn holder(&self) -> Option<Living> {
        let (term, node) = (self.state.fence.highest(), self.state.fence.holder()?);
        (term > Term(0)).then_some(Living { term, node })
    }

    /// A candidate asks the witness `me`; the primary is known to live if it has answered a knock
    /// of this candidate's. Gives the value that then has to be there before the answer counts.
    ///
    /// # Errors
    /// [`NoTestimony`], as by a witness.
    pub fn consulted(
        &self,
        me: NodeId,
        asks: &Consult,
        lives: bool,
        now: Moment,
    ) -> Result<(Self, Testimony), NoTestimony> {
        let (mut next, mut witness) = (self.clone(), Witness::restarted(me, now));
        if let Some(living) = self.holder().filter(|_| lives) {
            witness.observe_primary(living, now);
        }
        let testimony = witness.consulted(&mut next.state, asks, now)?;
        if next.state.fence != self.state.fence {
            (next.primary, next.knock) = (None, None);
        }
        Ok((next, testimony))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::maintenance::Maintenance;

    const CLUSTER: ClusterId = ClusterId(3);
    const ME: NodeId = NodeId(9);
    const NOW: Moment = Moment(1_000_000);
    const LEASE: Duration = Duration::from_millis(64);

    fn a() -> (&'static str, Notice) {
        ("a:1", Notice::default())
    }

    fn ask(term: u32, node: u64) -> Ask {
        let living = Living { term: Term(term), node: NodeId(node) };
        Ask { cluster: CLUSTER, living, sent: Moment(5), lease: LEASE, set: None }
    }

    fn consult(term: u32, node: u64, gives_way: Option<u32>) -> Consult {
        Consult { node: NodeId(node), term: Term(term), binding: true, gives_way: gives_way.map(Term) }
    }

    #[test]
    fn a_step_that_was_taken_changes_nothing_the_second_time() {
        let made = Register::made(CLUSTER, 7, 70);
        let (next, granted) = made.asked(ME, &ask(2, 1), a(), NOW).unwrap();
        assert_eq!((granted.incarnation, granted.sent), (7, Moment(5)));
        let asked = made.change(next).unwrap();
        assert_eq!(asked.step, 2);
        assert_eq!(asked.change(asked.asked(ME, &ask(2, 1), a(), Moment(9_000_000)).unwrap().0), None);
        let (next, testimony) = asked.consulted(ME, &consult(3, 2, None), false, NOW).unwrap();
        // Nothing says when the primary was granted its last lease: a moment ago.
        assert_eq!((testimony.lease, testimony.granted), (LEASE + LEASE / 64, None));
        let promised = asked.change(next).unwrap();
        assert_eq!(promised.change(promised.consulted(ME, &consult(3, 2, None), false, NOW).unwrap().0), None);
        let over = Refused { highest: Term(3), holder: Some(NodeId(2)) };
        assert_eq!(promised.asked(ME, &ask(2, 1), a(), NOW), Err(over));
        assert_eq!(promised.consulted(ME, &consult(3, 1, None), false, NOW), Err(NoTestimony::Refused(over)));
    }

    #[test]
    fn a_candidate_that_gives_way_knocks_and_the_primary_answers() {
        let made = Register::made(CLUSTER, 7, 70);
        assert!(!made.is_to_knock(&consult(1, 2, Some(0))), "no node leads");
        let asked = made.asked(ME, &ask(2, 1), a(), NOW).unwrap().0;
        let stands = consult(3, 2, Some(2));
        assert!(asked.is_to_knock(&stands) && !asked.is_to_knock(&consult(3, 2, None)));
        let knocked = asked.knocked(NodeId(2), 55);
        assert_eq!((knocked.is_answered(55), knocked.is_answered(56)), (Some(false), None));
        assert!(knocked.consulted(ME, &stands, false, NOW).is_ok());
        let answered = knocked.asked(ME, &ask(2, 1), a(), NOW).unwrap().0;
        assert_eq!(answered.is_answered(55), Some(true));
        let led = NoTestimony::Led(Living { term: Term(2), node: NodeId(1) });
        assert_eq!(answered.consulted(ME, &stands, true, NOW), Err(led));
        // A promise ends what was known of the primary of before.
        let promised = knocked.consulted(ME, &stands, false, NOW).unwrap().0;
        assert_eq!((promised.knock, promised.primary), (None, None));
    }

    #[test]
    fn a_candidate_that_stands_by_itself_learns_of_maintenance() {
        let (mut primary, hour) = (Maintenance::default(), Duration::from_secs(3600));
        let ordered = primary.order(1, hour, NOW);
        let asked = Register::made(CLUSTER, 7, 70).asked(ME, &ask(2, 1), ("a:1", ordered), NOW).unwrap().0;
        // It is written once, although less and less is left.
        let less = primary.notice(NOW.after(hour / 2));
        assert_eq!(asked.asked(ME, &ask(2, 1), ("a:1", less), NOW).unwrap().0, asked);
        let refused = Err(Refusal::Maintenance { node: ME, notice: ordered });
        assert_eq!(asked.check_asker(ME, NodeId(2), Some(Notice::default())), refused);
        assert_eq!(asked.check_asker(ME, NodeId(2), Some(less)), Ok(()), "it knows, and keeps its own time");
        assert_eq!(asked.check_asker(ME, NodeId(2), None), Ok(()), "an operator orders it");
        let over = primary.notice(NOW.after(2 * hour));
        let ended = asked.asked(ME, &ask(2, 1), ("a:1", over), NOW).unwrap().0;
        assert_eq!(ended.check_asker(ME, NodeId(2), Some(Notice::default())), Ok(()));
    }

    #[test]
    fn a_value_that_has_forgotten_something_has_no_vote() {
        let made = Register::made(CLUSTER, 7, 70);
        let later = made.change(made.asked(ME, &ask(2, 1), a(), NOW).unwrap().0).unwrap();
        let mut seen = Seen::default();
        seen.observe(&made);
        assert_eq!(later.check(CLUSTER, 70, &seen), Ok(()));
        seen.observe(&later);
        assert_eq!(later.check(CLUSTER, 70, &seen), Ok(()));
        let back = Void::SetBack { step: 1, seen: 2 };
        assert_eq!(made.check(CLUSTER, 70, &seen), Err(back));
        assert!(back.is_replaced() && Void::Elsewhere.is_replaced() && !Void::Foreign.is_replaced());
        assert_eq!(later.check(CLUSTER, 71, &seen), Err(Void::Elsewhere));
        assert_eq!(later.check(ClusterId(4), 70, &seen), Err(Void::Foreign));
        assert_eq!(Register { form: 2, ..later.clone() }.check(CLUSTER, 70, &seen), Err(Void::Form(2)));
        let other = later.replaced(CLUSTER, 8, 71);
        assert_eq!(other.check(CLUSTER, 71, &seen), Ok(()));
        seen.observe(&other);
        assert_eq!((other.check(CLUSTER, 71, &seen), later.check(CLUSTER, 70, &seen)), (Ok(()), Err(Void::Former)));
        assert_eq!((other.state.fence, other.state.lease), (later.state.fence, LEASE));
        assert_eq!((other.state.incarnation, other.state.former.len()), (Some(8), 0));
    }
}
