//! Who takes over, and who restarts: sound out, consult, fetch, finish, begin.

use std::collections::VecDeque;

use freshet_base::{Consent, Lsn, NodeId, Term};
use freshet_cluster::{
    commit_rule::Event,
    handshake::{Agreed, Continue, Refusal, Welcome, check_elects, consider},
    in_sync::Succession,
    maintenance::Notice,
    promising::{self, Promising},
    promotion::{Answer, ComesBack, Inheritance, Promotion, Question, Rules, Standing, Step, Stopped, known_level},
    recording::Recorded,
    term::{Living, Refused},
};

use crate::{
    checks::Violation,
    entering::Purpose,
    log::Block,
    net::{ConnectionId, Message},
    node::Candidate,
    register::Asks,
    sabotage::Effect,
    scenario::Broken,
    upstream::address,
    world::{CLUSTER, Own, World},
};

/// How long a peer may take to answer, in microseconds.
const PATIENCE: u64 = 15_000;

impl World {
    /// The operator wants `node` to take over.
    pub(crate) fn promote(&mut self, node: usize, consent: Consent) -> Result<(), Violation> {
        if self.nodes[node].mirror.as_ref().is_some_and(|mirror| mirror.stands()) {
            return Ok(());
        }
        self.stands(node, consent, Standing::Ordered)
    }

    /// It stands as soon as it may.
    pub(crate) fn stands(&mut self, node: usize, consent: Consent, standing: Standing) -> Result<(), Violation> {
        self.rest(node)?;
        match self.nodes[node].mirror {
            Some(_) => self.mirror_stands(node, consent, standing),
            None => self.stand(node, consent, standing),
        }
    }

    /// A primary of before wants to lead again.
    pub(crate) fn restart(&mut self, node: usize) -> Result<(), Violation> {
        let state = &self.nodes[node];
        if !state.returns || state.candidate.is_some() || state.lead().is_some() {
            return Ok(());
        }
        if self.scenario.broken == Broken::RestartUnasked {
            let end = self.nodes[node].disk.log.transaction_end(u64::MAX);
            self.cut(node, end)?;
            let state = &self.nodes[node];
            let term = Term(state.disk.terms.fence.highest().0 + 1);
            let succession = state.disk.terms.set.clone().map_or(Succession::begin(), Succession::Of);
            let committed = state.follower.global();
            let answered = Default::default();
            return self.begin_term(node, term, Inheritance { succession, committed, answered });
        }
        self.rest(node)?;
        self.stand(node, Consent::Nothing, Standing::ComesBack(ComesBack::default()))
    }

    /// Follows nobody, and feeds nobody, until it leads or gives up.
    fn rest(&mut self, node: usize) -> Result<(), Violation> {
        self.steer(node, |upstream| upstream.rest())?;
        self.end_feeds(node);
        Ok(())
    }

    pub(crate) fn stand(&mut self, node: usize, consent: Consent, standing: Standing) -> Result<(), Violation> {
        if let Some(mirror) = &self.nodes[node].mirror
            && !(mirror.is_database() && (consent.is_forced() || mirror.has_vote()))
        {
            return self.end_rest(node);
        }
        if !self.drain(node)? {
            // It does not ask others before it can say what it has.
            return self.stands_later(node, standing);
        }
        let state = &self.nodes[node];
        let safety = known_level(state.view.level(), Some(self.scenario.safety));
        let broken = self.scenario.broken;
        let comes_back = standing.is_unordered().then(|| state.disk.terms.fence.highest());
        let automatic = standing == Standing::Automatic;
        let standing = match standing {
            Standing::ComesBack(_) if broken == Broken::PrimaryPassedOver => Standing::Ordered,
            Standing::Automatic if broken == Broken::MajorityNotAsked => Standing::Ordered,
            standing => standing,
        };
        let rules = Rules { safety, consent, standing };
        let promotion = Promotion::new(state.id, self.log_state_of(state), &state.disk.terms, rules);
        let candidate = Candidate {
            promotion: Recorded::new(promotion, &state.recorder),
            fence: state.disk.terms.fence,
            comes_back,
            round: state.rounds,
            asked: VecDeque::new(),
            automatic,
            leads_at: None,
            fetching: None,
        };
        self.nodes[node].candidate = Some(candidate);
        if self.scenario.appliance && !self.is_settled(node) {
            // What counts for a primary is this log's before others are compared with it.
            self.flush(node)?;
            let round = self.nodes[node].rounds;
            self.later(node, 500, Own::Fetched(round));
            return Ok(());
        }
        self.consult(node)
    }

    /// Asks every other node.
    pub(crate) fn consult(&mut self, node: usize) -> Result<(), Violation> {
        let mine = self.log_state_of(&self.nodes[node]);
        let (maintenance, lasts) = (self.maintenance(node), self.maintained(node).is_some());
        let state = &mut self.nodes[node];
        let Some(candidate) = &mut state.candidate else { return Ok(()) };
        if self.scenario.broken == Broken::OwnPromiseForgotten && candidate.promotion.term() > candidate.fence.highest()
        {
            state.disk.terms.fence = candidate.fence;
        }
        let raised = candidate.promotion.raise(state.disk.terms.fence);
        state.disk.terms.fence = raised.expect("a simulation does not use all terms up");
        candidate.fence = state.disk.terms.fence;
        let question = candidate.promotion.question(mine);
        if lasts {
            candidate.promotion.observe(state.id, Answer::Maintenance(maintenance));
        }
        let stands = question.automatic.then_some(maintenance);
        candidate.round += 1;
        candidate.leads_at = None;
        let round = candidate.round;
        let is_asked = |other: &usize| question.only.is_none_or(|only| only.0 as usize == *other);
        for other in (0..self.nodes.len()).filter(|other| *other != node).filter(is_asked) {
            let id = if self.is_register(other) {
                self.connect(node, other, Message::Read { asks: Asks::Candidate(question, stands) })
            } else {
                self.connect(node, other, Message::Consult { question, stands })
            };
            if let Some(candidate) = &mut self.nodes[node].candidate {
                candidate.asked.push_back(id);
            }
        }
        self.later(node, PATIENCE, Own::Round(round));
        Ok(())
    }

    /// A candidate asks.
    pub(crate) fn consulted(
        &mut self,
        node: usize,
        from: usize,
        id: ConnectionId,
        (question, stands): (Question, Option<Notice>),
    ) -> Result<(), Violation> {
        let Question { term, binding, gives_way, handed, automatic, .. } = question;
        if self.nodes[node].disk.terms.has_removed(self.nodes[from].id) && self.scenario.broken != Broken::RemovedLives
        {
            self.hang_up(id, node);
            return Ok(());
        }
        let living = self.nodes[node].living(self.clock(node));
        let name = self.nodes[from].id;
        if let Some(lead) = living.filter(|lead| gives_way.is_some_and(|latest| lead.outranks(name, latest))) {
            self.send(id, node, Message::Answer { answer: Answer::LedBy(lead) });
            return Ok(());
        }
        if let Some(number) = handed.filter(|_| binding)
            && !self.hands_over(node, from, (term, number))?
        {
            match living {
                Some(lead) => self.send(id, node, Message::Answer { answer: Answer::LedBy(lead) }),
                // It is stuck.
                None => self.hang_up(id, node),
            }
            return Ok(());
        }
        if let Some(theirs) = stands
            && !self.lets_stand(node, id, theirs)
        {
            return Ok(());
        }
        self.check_taken_back(node, from, binding.then_some(term))?;
        if !binding && !automatic && check_elects(name, (term, gives_way), || self.elects(node)).is_err() {
            self.send(id, node, Message::Answer { answer: Answer::Elects });
            return Ok(());
        }
        if binding {
            if !self.promise_to(node, (term, false), name, id)? {
                return Ok(());
            }
            if automatic {
                self.check_maintenance(node)?;
            }
            if gives_way.is_none() {
                self.observe_primary_of(node, term, name);
            }
        }
        self.answer(node, id, binding);
        Ok(())
    }

    /// Whether a node that stands by itself, and knows this of maintenance, is answered by `node`;
    /// otherwise it is sent why not.
    fn lets_stand(&mut self, node: usize, id: ConnectionId, theirs: Notice) -> bool {
        self.observe_maintenance(node, theirs);
        let state = &mut self.nodes[node];
        let now = state.steady_clock(self.now);
        match state.maintenance.machine.check_stands(state.id, theirs, now) {
            Err(Refusal::Maintenance { notice, .. }) if self.scenario.broken != Broken::MaintenanceUnsaid => {
                self.send(id, node, Message::Answer { answer: Answer::Maintenance(notice) });
                false
            }
            _ => true,
        }
    }

    /// `leading` leads in `term`, or is about to, as it says.
    pub(crate) fn observe_primary_of(&mut self, node: usize, term: Term, leading: freshet_base::NodeId) {
        let now = self.clock(node);
        let steady = self.nodes[node].steady_clock(self.now);
        let (state, living) = (&mut self.nodes[node], Living { term, node: leading });
        match &mut state.witness {
            Some(witness) => witness.observe_primary(living, steady),
            None => state.view.observe_primary(living, now),
        }
    }

    /// Promises `term` to the node `name`, which `leads` in it or would like to, as [`Promising`]
    /// says, or tells that node on this connection that it does not. What is not persistent yet is
    /// waited for with the answer.
    pub(crate) fn promise_to(
        &mut self,
        node: usize,
        (term, leads): (Term, bool),
        name: NodeId,
        id: ConnectionId,
    ) -> Result<bool, Violation> {
        let mut promising = Promising::to(term, name);
        let risen = match self.observe_term(node, (term, leads), name) {
            Ok(risen) => risen,
            Err(Refused { highest, holder }) => {
                self.send(id, node, Message::Refused { highest, holder });
                return Ok(false);
            }
        };
        if self.nodes[node].is_witness {
            // It follows nobody, and holds nothing.
            return Ok(true);
        }
        if self.does(Effect::Promise) {
            promising.promised(promising::Effect::Promise { term, node: name }, risen);
        }
        for effect in self.steps(promising.left(), Effect::of_promising) {
            match effect {
                promising::Effect::Promise { .. } => {}
                promising::Effect::EndTerm { risen } => self.end_term(node, term, risen)?,
                // Of a log, that is done at once.
                promising::Effect::TakeBack => {}
                promising::Effect::Settle => {
                    if !self.drain(node)? {
                        self.hang_up(id, node);
                        return Ok(false);
                    }
                }
            }
            promising.done(effect);
        }
        let _ = promising.finish();
        let now = self.clock(node);
        self.nodes[node].watch.promised(now);
        self.looks(node);
        Ok(true)
    }

    /// Another node speaks for `term`, and leads in it, or would like to.
    pub(crate) fn observe_term(
        &mut self,
        node: usize,
        (term, leads): (Term, bool),
        other: NodeId,
    ) -> Result<bool, Refused> {
        let state = &mut self.nodes[node];
        match leads && self.scenario.broken != Broken::ContestKept {
            true => state.disk.terms.observe_primary(state.id, term, other),
            false => state.disk.terms.fence.observe(term, other),
        }
    }

    /// What is of an earlier term than `term` ends.
    fn end_term(&mut self, node: usize, term: Term, risen: bool) -> Result<(), Violation> {
        if self.nodes[node].lead().is_some() {
            return self.apply_to_rule(node, Event::Fenced { by: term });
        }
        let earlier = |candidate: &Candidate| candidate.promotion.term() < term;
        if self.nodes[node].candidate.as_ref().is_some_and(earlier) {
            self.give_up(node)?;
        }
        if self.scenario.broken != Broken::OldTermAccepted {
            self.steer(node, |upstream| upstream.revoke(risen))?;
            if risen {
                self.end_feeds(node);
            }
        }
        Ok(())
    }

    /// One who was asked has answered.
    pub(crate) fn answered(&mut self, node: usize, id: ConnectionId, mut answer: Answer) -> Result<(), Violation> {
        let peer = self.peer(id, node);
        let name = self.nodes[peer].id;
        self.hang_up(id, node);
        if let (Broken::LessLogLeads, Answer::Log(log)) = (self.scenario.broken, &mut answer) {
            log.end = log.end.min(Lsn(self.nodes[node].disk.synced));
        }
        let Some(candidate) = &mut self.nodes[node].candidate else { return Ok(()) };
        let Some(place) = candidate.asked.iter().position(|asked| *asked == id) else { return Ok(()) };
        candidate.asked.remove(place);
        let notice = if let Answer::Maintenance(notice) = answer { Some(notice) } else { None };
        candidate.promotion.observe(name, answer);
        if let Some(notice) = notice {
            self.observe_maintenance(node, notice);
        }
        let Some(candidate) = &mut self.nodes[node].candidate else { return Ok(()) };
        if candidate.asked.is_empty() { self.decide(node) } else { Ok(()) }
    }

    /// One who was asked, or whose log is being fetched, is not heard any more.
    pub(crate) fn silent(&mut self, node: usize, id: ConnectionId) -> Result<(), Violation> {
        let Some(candidate) = &mut self.nodes[node].candidate else { return Ok(()) };
        if candidate.fetching.is_some_and(|(fetching, _)| fetching == id) {
            candidate.fetching = None;
            if candidate.promotion.fetch_failed() {
                return self.consult(node);
            }
            return self.give_up(node);
        }
        let Some(place) = candidate.asked.iter().position(|asked| *asked == id) else { return Ok(()) };
        candidate.asked.remove(place);
        if candidate.asked.is_empty() { self.decide(node) } else { Ok(()) }
    }

    pub(crate) fn round_over(&mut self, node: usize, round: u32) -> Result<(), Violation> {
        let Some(candidate) = &mut self.nodes[node].candidate else { return Ok(()) };
        if candidate.round != round || candidate.asked.is_empty() {
            // Perhaps it waits for its disk: then it looks again.
            let waits = candidate.round == round && candidate.fetching.is_none();
            let finishes = candidate.leads_at.is_some();
            return match waits {
                true if finishes => self.finish(node),
                true => self.decide(node),
                false => Ok(()),
            };
        }
        let late: Vec<ConnectionId> = candidate.asked.drain(..).collect();
        for id in late {
            self.hang_up(id, node);
        }
        self.decide(node)
    }

    /// Gives the candidacy up.
    pub(crate) fn give_up(&mut self, node: usize) -> Result<(), Violation> {
        let Some(candidate) = self.nodes[node].candidate.take() else { return Ok(()) };
        // What has a time in this candidacy has none in the next.
        self.nodes[node].rounds = candidate.round + 1;
        let pause = self.dice.between(5000, 30_000);
        for id in candidate.asked.iter().copied().chain(candidate.fetching.map(|(id, _)| id)) {
            self.hang_up(id, node);
        }
        if self.nodes[node].returns {
            self.later(node, pause, Own::Restart);
        }
        if candidate.automatic {
            let (now, draw) = (self.clock(node), self.dice.below(1 << 20));
            self.nodes[node].watch.gave_up(now, draw);
            self.looks(node);
        }
        self.end_rest(node)
    }

    pub(crate) fn end_rest(&mut self, node: usize) -> Result<(), Violation> {
        self.steer(node, |upstream| upstream.end_rest())?;
        self.reconnect(node);
        Ok(())
    }

    fn decide(&mut self, node: usize) -> Result<(), Violation> {
        let state = &mut self.nodes[node];
        let Some(candidate) = &mut state.candidate else { return Ok(()) };
        let step = candidate.promotion.decide(0);
        let set = state.disk.terms.set.clone();
        self.note(|| format!("node {node} decides {step:?}, knowing of {set:?}"));
        if !self.does(Effect::of_step(&step)) {
            return Ok(());
        }
        let Some(candidate) = &mut self.nodes[node].candidate else { return Ok(()) };
        match step {
            Step::Ask => self.consult(node),
            Step::Fetch(wanted) => {
                let term = candidate.promotion.term();
                let (log, from) = (self.continuation(node), wanted.from.0 as usize);
                self.may_lose_disk_at_once(from)?;
                let id = self.connect(node, from, Message::Fetch { term, log });
                if let Some(candidate) = &mut self.nodes[node].candidate {
                    candidate.fetching = Some((id, wanted));
                }
                Ok(())
            }
            Step::Finish { after, .. } => {
                let at = self.nodes[node].steady_clock(self.now).after(after);
                if let Some(candidate) = &mut self.nodes[node].candidate {
                    candidate.leads_at = Some(at);
                }
                self.finish(node)
            }
            Step::Stop(Stopped::SameTermTwice { with, .. }) => self.check_begun_twice(node, with.0 as usize),
            Step::Stop(why) => {
                self.report.refused += u64::from(!matches!(
                    why,
                    Stopped::Superseded { .. } | Stopped::Contested(_) | Stopped::Maintenance
                ));
                if candidate.automatic && matches!(why, Stopped::Contested(_)) {
                    let now = self.clock(node);
                    self.nodes[node].watch.promised(now);
                }
                if let Stopped::Superseded { living, .. } = why {
                    let primary = Some(address(living.node.0 as usize));
                    self.steer(node, |upstream| upstream.lead(primary))?;
                }
                self.give_up(node)
            }
        }
    }

    /// Everything that was received has to be persistent, and replayed; then the term begins.
    fn finish(&mut self, node: usize) -> Result<(), Violation> {
        let now = self.nodes[node].steady_clock(self.now);
        let state = &mut self.nodes[node];
        let Some(candidate) = &mut state.candidate else { return Ok(()) };
        let (term, round) = (candidate.promotion.term(), candidate.round);
        let Some(leads_at) = candidate.leads_at else { return Ok(()) };
        if now < leads_at && self.scenario.broken != Broken::LeaseNotAwaited {
            let at = state.world_time(leads_at.0 + state.jumped);
            self.later(node, at.saturating_sub(self.now.0).max(1), Own::Round(round));
            return Ok(());
        }
        if self.written(node) < self.nodes[node].disk.log.end() {
            self.flush(node)?;
            self.later(node, 700, Own::Round(round));
            return Ok(());
        }
        let state = &self.nodes[node];
        let Some(candidate) = &state.candidate else { return Ok(()) };
        let promotion = candidate.promotion.clone();
        if state.mirror.is_some() {
            self.check_left_out(node, &promotion)?;
            let inheritance = promotion.inheritance(Lsn(state.disk.log.end()));
            return self.mirror_takes_over(node, term, inheritance);
        }
        if state.disk.log.end() < state.disk.floor {
            // It is no state of the database.
            return self.give_up(node);
        }
        self.finish_replay(node)?;
        // A transaction that is not wholly there never was.
        let log = &self.nodes[node].disk.log;
        let whole = log.transaction_end(u64::MAX);
        if whole < log.end() {
            self.cut(node, whole)?;
        }
        self.check_left_out(node, &promotion)?;
        self.begin_term(node, term, promotion.inheritance(Lsn(whole)))
    }

    /// A candidate wants the log.
    pub(crate) fn fetched_from(
        &mut self,
        node: usize,
        from: usize,
        id: ConnectionId,
        term: Term,
        log: &Continue,
    ) -> Result<(), Violation> {
        let name = self.nodes[from].id;
        let state = &mut self.nodes[node];
        // A mirror has no log to give.
        let is_mirror = state.mirror.is_some();
        if !self.promise_to(node, (term, false), name, id)? {
            return Ok(());
        }
        if is_mirror {
            self.send(id, node, Message::Refused { highest: term, holder: None });
            return Ok(());
        }
        let end = Lsn(self.nodes[node].disk.synced);
        let sender = self.sender(node, term, Vec::new(), end);
        let Ok(Agreed { welcome, .. }) = consider(&sender, Some(CLUSTER), name, Term(0), log) else {
            return self.check_begun_twice(node, from);
        };
        if welcome.cut_at.0 < self.nodes[node].disk.kept {
            self.send(id, node, Message::Refused { highest: term, holder: None });
            return Ok(());
        }
        let blocks = self.nodes[node].disk.log.between(welcome.cut_at.0, end.0).to_vec();
        self.send(id, node, Message::Fetched { welcome, blocks });
        Ok(())
    }

    pub(crate) fn fetched(
        &mut self,
        node: usize,
        id: ConnectionId,
        welcome: Welcome,
        blocks: Vec<Block>,
    ) -> Result<(), Violation> {
        self.hang_up(id, node);
        let state = &mut self.nodes[node];
        let Some(candidate) = state.candidate.as_mut() else { return Ok(()) };
        let Some((_, wanted)) = candidate.fetching.take_if(|(fetching, _)| *fetching == id) else { return Ok(()) };
        if wanted.check(&welcome).is_err() && self.scenario.broken != Broken::FetchUnchecked {
            if candidate.promotion.fetch_failed() {
                return self.consult(node);
            }
            return self.give_up(node);
        }
        // It asks no more before it has all of that.
        candidate.round += 1;
        if let Some(mirror) = &mut state.mirror {
            mirror.nothing_is_fetched(welcome.cut_at);
        }
        self.welcomed(node, welcome, Purpose::Fetch(blocks))
    }

    /// The terms of a log are entered, and these blocks of it have come. They count once they are
    /// persistent.
    pub(crate) fn log_was_fetched(&mut self, node: usize, blocks: Vec<Block>) -> Result<(), Violation> {
        self.take_in_all(node, blocks)?;
        self.flush(node)?;
        if let Some(candidate) = &self.nodes[node].candidate {
            let round = candidate.round;
            self.later(node, 1500, Own::Fetched(round));
        }
        Ok(())
    }

    /// What was fetched may be persistent now: everybody is asked again.
    pub(crate) fn after_fetch(&mut self, node: usize, round: u32) -> Result<(), Violation> {
        let state = &self.nodes[node];
        if state.candidate.as_ref().is_none_or(|candidate| candidate.round != round) {
            return Ok(());
        }
        if state.disk.synced < state.disk.log.end() {
            self.flush(node)?;
            self.later(node, 1000, Own::Fetched(round));
            return Ok(());
        }
        self.consult(node)
    }
}
