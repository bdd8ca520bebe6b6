//! Watch: what a node that follows has heard of its primary and granted to it, and when it takes
//! the primary for lost ([`Watch`], [`Voter`]).

use std::time::Duration;

use freshet_base::sync::{Arc, Mutex, MutexGuard};
use freshet_cluster::{
    Moment,
    lease::Voter,
    promotion::Standing,
    switch_over::HandOver,
    watch::{Next, Watch, WatchConfig},
};

use crate::{bell::Bell, clock::Clock, maintenance::Maintained};

/// Shared by the threads of a node that follows, and by the one that has it stand.
#[derive(Debug)]
pub struct Watching {
    state: Mutex<State>,
    /// Rung when the node may have to stand earlier, or stops.
    bell: Bell,
    clock: Clock,
    maintained: Arc<Maintained>,
}

#[derive(Debug)]
struct State {
    watch: Watch,
    voter: Voter,
    /// The primary hands this node its role.
    handed: Option<HandOver>,
    /// Why this node, which has stood since it lost its primary, does not lead.
    cannot_lead: Option<String>,
    stopped: bool,
}

impl Watching {
    pub(crate) fn new(config: WatchConfig, clock: Clock, maintained: Arc<Maintained>) -> Self {
        let now = clock.now();
        let (watch, voter) = (Watch::new(config, now), Voter::restarted(now));
        let state = State { watch, voter, handed: None, cannot_lead: None, stopped: false };
        Self { state: Mutex::new(state), bell: Bell::default(), clock, maintained }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the machine panics only on a bug of its own")
    }

    /// The log flows.
    pub(crate) fn linked(&self) {
        let State { watch, voter, cannot_lead, .. } = &mut *self.state();
        watch.linked(self.clock.now());
        voter.linked();
        *cannot_lead = None;
        // It may be silent for less long than one may take to come.
        self.bell.ring();
    }

    /// The primary has sent something then, by its clock.
    pub(crate) fn observe(&self, sent: Moment) {
        let State { watch, voter, .. } = &mut *self.state();
        watch.observe(self.clock.now());
        voter.observe(sent);
    }

    /// Whether the primary whose log flows has been silent for too long.
    pub(crate) fn suspects(&self) -> bool {
        self.state().watch.suspects(self.clock.now())
    }

    /// See [`Watch::elects`].
    pub(crate) fn elects(&self) -> bool {
        let watch = &mut self.state().watch;
        watch.hold(self.maintained.until());
        watch.elects(self.clock.now())
    }

    /// The primary is about to be answered: says what was heard of it last.
    pub(crate) fn answers(&self) -> Option<Moment> {
        self.state().voter.answers(self.clock.now())
    }

    /// What is left of the leases that were granted, if each is so long.
    pub(crate) fn lease_left(&self, length: Duration) -> Duration {
        self.state().voter.left(length, self.clock.now())
    }

    /// The connection to whom this node follows is over.
    pub(crate) fn closed(&self) {
        self.state().watch.closed(self.clock.now(), draw());
        self.bell.ring();
    }

    /// This node has promised a term to another, or gives way to another that stands.
    pub fn promised(&self) {
        self.state().watch.promised(self.clock.now());
    }

    /// The primary hands this node its role.
    pub(crate) fn hand_over(&self, hand_over: HandOver) {
        self.state().handed = Some(hand_over);
        self.bell.ring();
    }

    /// The node stands for nothing more.
    pub(crate) fn stop(&self) {
        self.state().stopped = true;
        self.bell.ring();
    }

    /// Maintenance may end sooner.
    pub(crate) fn look(&self) {
        self.bell.ring();
    }

    /// Blocks until this node has to stand, and says why; `None` when it stops instead. Not
    /// `by_itself`, it does so only when the primary hands it the role.
    pub fn wait(&self, by_itself: bool) -> Option<Standing> {
        loop {
            let next = {
                let state = &mut *self.state();
                if state.stopped {
                    return None;
                }
                if let Some(hand_over) = state.handed.take() {
                    return Some(Standing::Handed(hand_over));
                }
                state.watch.hold(self.maintained.until());
                state.watch.next(self.clock.now())
            };
            match next {
                Next::Stand if by_itself => return Some(Standing::Automatic),
                Next::Stand => self.bell.sleep(None),
                Next::Sleep(until) => {
                    let until = (until != Moment(u64::MAX)).then(|| self.clock.instant(until));
                    self.bell.sleep(until);
                }
            }
        }
    }

    /// It has stood, and does not lead: this is why.
    pub fn gave_up(&self, why: String) {
        let state = &mut *self.state();
        state.watch.gave_up(self.clock.now(), draw());
        state.cannot_lead = Some(why);
    }

    /// Why this node, which has lost its primary and stood, does not lead.
    pub fn cannot_lead(&self) -> Option<String> {
        self.state().cannot_lead.clone()
    }
}

/// Those who stand at the same time are to part.
fn draw() -> u64 {
    // Without, they part by their priorities.
    getrandom::u64().unwrap_or_default()
}
