//! What a node must remember of terms across a restart.

use std::{collections::BTreeMap, sync::Weak, time::Duration};

use freshet_base::{ClusterId, Lsn, NodeId, Term, versions::raise_to};
use freshet_cluster::{
    Moment,
    handshake::{Welcome, check_belongs},
    in_sync::{InSyncSet, Known, SetName, Succession},
    promotion::{LogState, Promotion, Rules, Testimony},
    recording::{Recorded, Recorder},
    term::{Fence, LastTerm, Life, NotBegun, Refused, TermEntry, TermHistory, TermState},
    witness::{Ask, Consult, Granted, Witness},
};

use freshet_base::sync::{Arc, Mutex, MutexGuard};
use freshet_membership::{Credentials, OnRecord};

use crate::{
    maintenance::Maintained,
    members::MOST,
    register::RegisterWitness,
    wire::{Peer, Refusal},
};

/// What was acknowledged to clients is noted so often for a restart ([`Terms::note_committed`]).
pub const NOTE_COMMITTED_EVERY: Duration = Duration::from_millis(200);

/// The state could not be made durable; nothing that rests on it may be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot write this node's terms: {why}")]
pub struct TermStoreError {
    /// What the system says, with the file's name.
    pub why: String,
}

/// Keeps a [`TermState`]; the engine binds it to the control file.
pub trait TermStore: Send + Sync {
    /// Makes `state` durable before it returns.
    ///
    /// # Errors
    /// [`TermStoreError`] when that fails; the earlier state is then still there.
    fn save(&self, state: &TermState) -> Result<(), TermStoreError>;

    /// Notes what was acknowledged to clients of what this incarnation of the node holds, for a
    /// restart. A hint, too.
    fn note_committed(&self, _incarnation: Option<u64>, _to: Lsn) {}

    /// Notes where other nodes were reached last, for a restart. Only a hint: it need not be
    /// durable, and may be lost.
    fn remember(&self, _addresses: &BTreeMap<String, Option<NodeId>>) {}

    /// What was noted of that last, before this start too.
    fn recall(&self) -> BTreeMap<String, Option<NodeId>> {
        BTreeMap::new()
    }
}

/// Does not outlive its process; for tests and for domain `none`.
#[derive(Debug, Default)]
pub struct VolatileTerms;

impl TermStore for VolatileTerms {
    fn save(&self, _: &TermState) -> Result<(), TermStoreError> {
        Ok(())
    }
}

/// A node's terms, what it knows of maintenance, where it is recorded what happens to its machines,
/// and the register in its witness's place: one per node, shared by its roles. Every change of the
/// terms is durable before it is visible. Changes wait for the disk one after the other; who asks
/// for the terms waits for no disk, which may hang.
#[derive(Clone)]
pub struct Terms {
    kept: Arc<Mutex<Kept>>,
    /// Held while terms are changed, before `kept`.
    changing: Arc<Mutex<()>>,
    /// Where other nodes were reached last.
    remembered: Arc<Mutex<BTreeMap<String, Option<NodeId>>>>,
    store: Arc<dyn TermStore>,
    recorder: Recorder,
    maintained: Arc<Maintained>,
    register: Option<Arc<RegisterWitness>>,
    /// What another node has said: the set by which this one is removed.
    removal: Arc<Mutex<Option<SetName>>>,
}

/// A role that ends when a later term is in force.
pub(crate) trait Leads: Send + Sync {
    /// This node has promised the term `by` to another, durably. Called before anybody hears of the
    /// promise, by the thread that has made it.
    fn promised(&self, by: Term);
}

struct Kept {
    state: TermState,
    /// The term that this node leads, if it does.
    leads: Option<Weak<dyn Leads>>,
    /// What the newest set says of keys, these know.
    credentials: Option<Credentials>,
}

impl Kept {
    fn admit(&self) {
        let Some(credentials) = &self.credentials else { return };
        let on_record = self.state.set.as_ref().map(|set| {
            let roster = &set.roster;
            let (removed, leaves) = roster.removed.iter().partition(|node| set.is_without(**node));
            let leaving = roster.leaving.union(&leaves).copied().collect();
            let Known { generation, authority, keys } = roster.known.clone();
            OnRecord { generation, authority, keys, removed, leaving, set: Some(set.name()) }
        });
        credentials.know(on_record.unwrap_or_default());
    }
}

impl std::fmt::Debug for Terms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Terms").field(&self.get()).finish()
    }
}

/// Why a term cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// The term or the position is not new, or the term is another node's.
    #[error(transparent)]
    NotBegun(#[from] NotBegun),
    /// It could not be written.
    #[error(transparent)]
    Store(#[from] TermStoreError),
}

/// Why a term is not promised to the node that speaks for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotPromised {
    /// A later term is in force, or the term cannot be.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It could not be written.
    #[error(transparent)]
    Store(#[from] TermStoreError),
}

impl From<NotPromised> for Refusal {
    fn from(why: NotPromised) -> Self {
        match why {
            NotPromised::Refused(refusal) => refusal,
            NotPromised::Store(error) => Self::Failed(error.to_string()),
        }
    }
}

/// Why a candidate has no term to ask for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaiseError {
    /// All terms are used up.
    #[error(transparent)]
    LastTerm(#[from] LastTerm),
    /// It could not be written.
    #[error(transparent)]
    Store(#[from] TermStoreError),
}

/// What has changed, durably.
fn log_change(old: &TermState, new: &TermState) {
    let (risen, term) = (new.fence.highest(), new.history.last_term());
    if risen != old.fence.highest() {
        let node = new.fence.holder().map(tracing::field::display);
        tracing::info!(term = risen.0, node, "a later term is in force: what is of an earlier one is refused");
    }
    if term != old.history.last_term() {
        tracing::info!(term = term.0, before = old.history.last_term().0, "the log is in another term");
    }
    if let Some(set) = new.set.as_ref().filter(|set| old.set.as_ref() != Some(*set)) {
        let members: Vec<_> = set.nodes().map(|node| node.to_string()).collect();
        tracing::info!(
            term = set.term.0,
            number = set.number,
            members = members.join(" "),
            "the in-sync set is recorded"
        );
    }
}

impl Terms {
    /// Wraps what was read from `store` when the node started.
    pub fn new(state: TermState, store: Arc<dyn TermStore>) -> Self {
        state.set.iter().for_each(|set| raise_to(set.roster.format));
        let kept = Arc::new(Mutex::new(Kept { state, leads: None, credentials: None }));
        let (changing, remembered, recorder, maintained, removal) = Default::default();
        Self { kept, changing, remembered, store, recorder, maintained, register: None, removal }
    }

    /// From now on these admit whom the newest in-sync set lets in.
    pub fn admit(&self, credentials: Credentials) {
        let mut kept = self.lock();
        kept.credentials = Some(credentials);
        kept.admit();
    }

    /// What happens is recorded there.
    #[must_use]
    pub fn recording(self, recorder: Recorder) -> Self {
        recorder.terms(&self.get());
        Self { recorder, ..self }
    }

    /// The cluster's witness is this register.
    #[must_use]
    pub fn witnessed_by(self, register: RegisterWitness) -> Self {
        Self { register: Some(Arc::new(register)), ..self }
    }

    /// Reads the register in the witness's place, if one is; a failure is logged, and is what
    /// [`Terms::register_trouble`] says. Blocks for `patience` at most.
    pub fn look_at_register(&self, patience: Duration) {
        if let Some(register) = &self.register {
            register.look(patience);
        }
    }

    /// Why the register in the witness's place could not be read last.
    pub fn register_trouble(&self) -> Option<String> {
        self.register.as_ref().and_then(|register| register.trouble().clone())
    }

    /// The register in the witness's place, if one is.
    pub(crate) fn register(&self) -> Option<&Arc<RegisterWitness>> {
        self.register.as_ref()
    }

    /// Where it is recorded what happens.
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// What the node knows of maintenance.
    pub fn maintained(&self) -> &Arc<Maintained> {
        &self.maintained
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no code panics under this mutex")
    }

    /// Others were reached there; `own` is the address of this node.
    pub(crate) fn remember(&self, peers: &[Peer], own: &str) {
        let others = peers.iter().filter(|peer| peer.address != own);
        let addresses: BTreeMap<_, _> = others.map(|peer| (peer.address.clone(), peer.node)).collect();
        let mut remembered = self.remembered.lock().expect("no code panics under this mutex");
        let removed = |node: &Option<NodeId>| node.is_some_and(|node| self.lock().state.has_removed(node));
        // A node that knows no other has not been told yet, unless all of them were removed.
        let is_told = || !addresses.is_empty() || self.store.recall().values().all(removed);
        if *remembered != addresses && is_told() {
            self.store.remember(&addresses);
            *remembered = addresses;
        }
    }

    /// One more was reached there. Those of before are remembered as well, [`MOST`] at most.
    pub(crate) fn remember_one(&self, peer: Peer) {
        let mut all = self.store.recall();
        all.remove(&peer.address);
        let others = all.into_iter().take(MOST - 1).map(|(address, node)| Peer { node, ..Peer::at(address) });
        self.remember(&others.chain([peer]).collect::<Vec<_>>(), "");
    }

    /// A node may be reached there.
    pub fn remember_address(&self, address: String) {
        let known = self.store.recall().get(&address).copied().flatten();
        self.remember_one(Peer { node: known, ..Peer::at(address) });
    }

    /// Where `node` was reached last, before this start too.
    pub(crate) fn recall(&self, node: NodeId) -> Option<String> {
        self.store.recall().into_iter().find(|(_, known)| *known == Some(node)).map(|(address, _)| address)
    }

    /// Gives those of `peers` whose address alone is known the nodes that were reached there last,
    /// before this start too.
    pub(crate) fn name(&self, peers: &mut [Peer]) {
        let recalled = self.store.recall();
        for peer in peers.iter_mut().filter(|peer| peer.node.is_none()) {
            peer.node = recalled.get(&peer.address).copied().flatten();
        }
    }

    /// As things stand.
    pub fn get(&self) -> TermState {
        self.lock().state.clone()
    }

    /// [`check_belongs`], with what this node remembers. Cheap.
    ///
    /// # Errors
    /// As there.
    pub fn check_belongs(&self, node: NodeId) -> Result<(), Refusal> {
        check_belongs(node, &self.lock().state)
    }

    /// Whether an operator has removed any node, as far as this one remembers. Cheap.
    pub fn has_removed_any(&self) -> bool {
        self.lock().state.set.as_ref().is_some_and(|set| !set.roster.removed.is_empty())
    }

    /// Another node has refused this one, `own`. If that is since an operator has removed it, that
    /// is remembered, unless the word is that of a primary that is itself removed, as far as this
    /// node knows.
    pub fn refused(&self, own: NodeId, refusal: &Refusal) {
        let &Refusal::Removed { node, record } = refusal else { return };
        if node == own && !self.lock().state.has_removed(record.1) && self.removed().replace(record).is_none() {
            tracing::error!("{refusal}");
        }
    }

    /// Another node feeds this one, which belongs to the cluster.
    pub(crate) fn belongs(&self) {
        self.removed().take();
    }

    /// Which set says that this node is no member any more, as another node has answered it last.
    pub fn removal(&self) -> Option<SetName> {
        *self.removed()
    }

    fn removed(&self) -> MutexGuard<'_, Option<SetName>> {
        self.removal.lock().expect("no code panics under this mutex")
    }

    /// Which terms count. Cheap.
    pub fn fence(&self) -> Fence {
        self.lock().state.fence
    }

    /// Whether a frame of `term` may be taken in. Cheap.
    pub fn admits(&self, term: Term) -> bool {
        self.lock().state.fence.admits(term)
    }

    /// The term in which this node leads, or that it has entered last. Cheap.
    pub fn last_term(&self) -> Term {
        self.lock().state.history.last_term()
    }

    /// `node` speaks as the primary, or as a candidate, of `term`. Says whether the fence has
    /// risen; that is durable when this returns. A node that is refused is sent to `primary` of the
    /// term in force, as far as that is known.
    ///
    /// # Errors
    /// [`NotPromised`]: then nothing has changed, and nothing may be answered but that.
    pub(crate) fn promise(
        &self,
        term: Term,
        node: NodeId,
        primary: impl FnOnce(Term) -> Option<String>,
    ) -> Result<bool, NotPromised> {
        self.promise_by(term, |state| state.fence.observe(term, node), primary)
    }

    /// The same where `node` shows that it leads in `term`, and `me` is this node
    /// ([`TermState::observe_primary`]).
    ///
    /// # Errors
    /// [`NotPromised`]: then nothing has changed.
    pub(crate) fn promise_primary(
        &self,
        me: NodeId,
        (term, node): (Term, NodeId),
        primary: impl FnOnce(Term) -> Option<String>,
    ) -> Result<bool, NotPromised> {
        self.promise_by(term, |state| state.observe_primary(me, term, node), primary)
    }

    /// Promises `term` as `observe` does.
    fn promise_by(
        &self,
        term: Term,
        observe: impl FnOnce(&mut TermState) -> Result<bool, Refused>,
        primary: impl FnOnce(Term) -> Option<String>,
    ) -> Result<bool, NotPromised> {
        let observed = self.change(|state| Ok::<_, TermStoreError>(observe(state)))?;
        let refusal = |Refused { highest, holder }| Refusal::of_term(term, highest, holder, primary(highest));
        observed.map_err(|refused| refusal(refused).into())
    }

    /// This witness answers a primary. What the answer says is durable when this returns.
    ///
    /// # Errors
    /// [`NotPromised`]: then nothing may be answered but that.
    pub(crate) fn ask_witness(&self, witness: &mut Witness, ask: &Ask, now: Moment) -> Result<Granted, NotPromised> {
        let answer = self.change(|state| Ok::<_, TermStoreError>(witness.asked(state, ask, now)))?;
        let refusal = |Refused { highest, holder }| Refusal::of_term(ask.living.term, highest, holder, None);
        answer.map_err(|refused| refusal(refused).into())
    }

    /// This witness answers a candidate. What the answer says is durable when this returns. Where
    /// the primary of a term is, `primary` says.
    ///
    /// # Errors
    /// [`NotPromised`]: then nothing may be answered but that.
    pub(crate) fn consult_witness(
        &self,
        witness: &mut Witness,
        asks: &Consult,
        now: Moment,
        primary: impl Fn(Term) -> Option<String>,
    ) -> Result<Testimony, NotPromised> {
        let answer = self.change(|state| Ok::<_, TermStoreError>(witness.consulted(state, asks, now)))?;
        answer.map_err(|why| crate::witness::refusal(why, asks, primary).into())
    }

    /// The term of `node`, this one, has ended for that of the `other` in the same term
    /// ([`freshet_cluster::term::Fence::cede`]).
    ///
    /// # Errors
    /// [`TermStoreError`]: then this node does not follow the other in that term.
    pub(crate) fn cede(&self, term: Term, node: NodeId, other: NodeId) -> Result<(), TermStoreError> {
        self.change(|state| {
            state.fence.cede(term, node, other);
            Ok(())
        })
    }

    /// Raises the fence for a failover by this node ([`Promotion::raise`]). Durable when this
    /// returns.
    ///
    /// # Errors
    /// [`RaiseError`]: then nothing has changed here, and no node may be asked for a promise.
    pub fn raise_for(&self, promotion: &mut Recorded<Promotion>) -> Result<(), RaiseError> {
        self.change(|state| {
            state.fence = promotion.raise(state.fence)?;
            Ok(())
        })
    }

    /// The promotion of `node`, this one, whose log is `mine`.
    pub(crate) fn promotion(&self, node: NodeId, mine: LogState, rules: Rules) -> Recorded<Promotion> {
        Recorded::new(Promotion::new(node, mine, &self.get(), rules), &self.recorder)
    }

    /// Whether an honest node can have reached `term`, as far as this one knows.
    pub fn believes(&self, term: Term) -> bool {
        self.lock().state.fence.believes(term)
    }

    /// The log was cut at `end` and continues with the log of the primary whose history this is.
    ///
    /// # Errors
    /// [`TermStoreError`]: then nothing has changed.
    pub fn adopt(&self, cluster: ClusterId, history: TermHistory) -> Result<(), TermStoreError> {
        self.change(|state| {
            state.adopt(cluster, history);
            Ok(())
        })
    }

    /// The log continues as `welcome` says ([`TermState::enter`]).
    ///
    /// # Errors
    /// [`TermStoreError`]: then nothing has changed.
    pub(crate) fn enter(&self, welcome: &Welcome) -> Result<(), TermStoreError> {
        self.change(|state| {
            state.enter(welcome);
            Ok(())
        })
    }

    /// The node begins to lead in `term` at `start`, the end of its log, and its in-sync sets
    /// follow those of before.
    ///
    /// # Errors
    /// [`BeginError`]: then nothing has changed.
    pub fn begin(
        &self,
        term: Term,
        node: NodeId,
        start: Lsn,
        succession: &Succession,
    ) -> Result<TermHistory, BeginError> {
        let nonce = getrandom::u64().map_err(|cause| TermStoreError { why: format!("no random number: {cause}") })?;
        self.change(|state| {
            state.begin(TermEntry { term, start, node, nonce }, start, succession)?;
            Ok(state.history.clone())
        })
    }

    /// Everything below `to` was acknowledged to clients: noted for a restart, if it is more than
    /// before. Not synced, and blocks no thread that asks for terms.
    pub fn note_committed(&self, to: Lsn) {
        let (is_more, incarnation) = {
            let state = &mut self.lock().state;
            let before = state.committed;
            state.note_committed(to);
            (state.committed > before, state.incarnation)
        };
        if is_more {
            self.store.note_committed(incarnation, to);
        }
    }

    /// The primary has recorded an in-sync set; an older one than is known changes nothing.
    ///
    /// # Errors
    /// [`TermStoreError`]: then nothing may be acknowledged that lies behind the record.
    pub fn note_set(&self, set: InSyncSet) -> Result<(), TermStoreError> {
        self.change(|state| {
            state.note_set(set);
            Ok(())
        })
    }

    /// In the term `term` of this node an in-sync set took effect.
    ///
    /// # Errors
    /// [`TermStoreError`]: then nothing has changed.
    pub fn note_led(&self, term: Term) -> Result<(), TermStoreError> {
        self.change(|state| {
            state.note_led(term);
            Ok(())
        })
    }

    /// The memory that this mirror keeps has another number, or this node keeps no memory.
    ///
    /// # Errors
    /// [`TermStoreError`]: then a restart may find either.
    pub(crate) fn note_life(&self, life: Option<Life>) -> Result<(), TermStoreError> {
        self.change(|state| {
            state.life = life;
            Ok(())
        })
    }

    /// What this node has is another log, or another memory of a mirror, from now on.
    ///
    /// # Errors
    /// [`TermStoreError`]: then a restart may find either.
    pub fn note_incarnation(&self, incarnation: u64) -> Result<(), TermStoreError> {
        self.change(|state| {
            state.note_incarnation(incarnation);
            Ok(())
        })
    }

    /// `term` begins to be led here: it ends as soon as this node promises a later one to another,
    /// whichever of its listeners was asked. What was a standby a moment ago may still answer
    /// candidates, and may have promised a later term since this one began.
    pub(crate) fn lead(&self, term: Term, leads: &Arc<impl Leads + 'static>) {
        let highest = {
            let mut kept = self.lock();
            let leads: Arc<dyn Leads> = Arc::clone(leads) as _;
            kept.leads = Some(Arc::downgrade(&leads));
            kept.state.fence.highest()
        };
        if highest > term {
            leads.promised(highest);
        }
    }

    fn change<T, E: From<TermStoreError>>(&self, change: impl FnOnce(&mut TermState) -> Result<T, E>) -> Result<T, E> {
        let changing = self.changing.lock().expect("no code panics under this mutex");
        let before = self.get();
        let mut next = before.clone();
        let result = change(&mut next)?;
        if next == before {
            return Ok(result);
        }
        next.check_follows(&before);
        // What is written from here on may be so at its level.
        next.set.iter().for_each(|set| raise_to(set.roster.format));
        self.store.save(&next)?;
        log_change(&before, &next);
        self.recorder.terms(&next);
        let (highest, is_later) = (next.fence.highest(), next.fence.highest() > before.fence.highest());
        let mut kept = self.lock();
        if (next.committed, next.incarnation) == (before.committed, before.incarnation) {
            // More may have been noted since.
            next.committed = kept.state.committed;
        }
        kept.state = next;
        if kept.state.set != before.set {
            kept.admit();
        }
        let leads = kept.leads.clone().filter(|_| is_later);
        drop((kept, changing));
        if let Some(leads) = leads.and_then(|leads| leads.upgrade()) {
            leads.promised(highest);
        }
        Ok(result)
    }
}
