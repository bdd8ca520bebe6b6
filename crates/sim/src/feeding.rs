//! Who has the log and passes it on: the primary, and a relay.

use freshet_base::{Lsn, NodeId, Term};
use freshet_cluster::{
    commit_rule::{CommitRule, Event},
    contest::Contest,
    flow::{FlowError, Next},
    follower::{self, Ack},
    handshake::{Continue, Refusal, Sender},
    host::{Acked, Asking, Host, ReplicaState},
    in_sync::InSyncSet,
    promotion::Inheritance,
    recording::Recorded,
    stuck::Stuck,
    term::{NotBegun, TermEntry},
    upstream::Ended,
};

use crate::{
    checks::Violation,
    log::Block,
    mirror::{Records, state_at},
    net::{Along, ConnectionId, Message},
    node::{Lead, Role},
    scenario::Broken,
    stuck::STUCK,
    switching::{CONTEST, Switching},
    world::{CLUSTER, Own, What, World, Writes},
};

/// A node that wants to follow another.
#[derive(Clone, Copy)]
pub(crate) struct Joining<'j> {
    pub node: usize,
    pub id: ConnectionId,
    /// The latest term that it knows of.
    pub fence: Term,
    pub log: &'j Continue,
    /// Whether commits may wait for it, and whether they may count on it.
    pub synchronous: bool,
    pub member: bool,
    pub mirror: bool,
    /// Everything below is known there to have been acknowledged.
    pub holds: Lsn,
    /// The last term of its log took effect.
    pub in_effect: bool,
}

impl World {
    /// `node` leads from the end of its log on.
    pub(crate) fn begin_term(&mut self, node: usize, term: Term, inheritance: Inheritance) -> Result<(), Violation> {
        if self.notes_term(node, term, &inheritance) { self.lead(node, term, inheritance) } else { Ok(()) }
    }

    /// `term` begins at the end of what `node` has, durably; `false` if a later one is in force.
    pub(crate) fn notes_term(&mut self, node: usize, term: Term, inheritance: &Inheritance) -> bool {
        let nonce = if self.scenario.broken == Broken::NonceReused { 1 } else { self.unique() };
        let state = &mut self.nodes[node];
        let start = Lsn(state.disk.log.end());
        let entry = TermEntry { term, start, node: state.id, nonce };
        match state.disk.terms.begin(entry, start, &inheritance.succession) {
            Err(NotBegun::Fenced { .. }) => false,
            begun => begun.map(|()| true).expect("a term above all that were observed"),
        }
    }

    /// `node` has begun `term` at the end of its log, and leads.
    pub(crate) fn lead(&mut self, node: usize, term: Term, inheritance: Inheritance) -> Result<(), Violation> {
        let Inheritance { succession, committed, answered } = inheritance;
        let (rule, now, broken) = (self.rule(), self.clock(node), self.scenario.broken);
        let with_rows = self.scenario.mirrors > 0;
        let state = &mut self.nodes[node];
        let end = Lsn(state.disk.log.end());
        let known = if broken == Broken::TailTakenForCommitted { end } else { committed.min(end) };
        let me = state.disk.terms.holder(state.id);
        let rule = CommitRule::new(rule, end, now).known_committed(known);
        let rule = rule.recorded(me, term, succession, &answered, now);
        let rule = Recorded::new(rule, &state.recorder);
        let acknowledged = state.disk.log.transaction_end(known.0);
        let records = if with_rows { state_at(&state.disk.log, end.0) } else { Records::new() };
        state.role = Role::Primary(Box::new(Lead {
            term,
            rule,
            records,
            acknowledged,
            written: 0,
            switching: Switching::default(),
            stuck: Stuck::new(STUCK, end, now),
            contest: Contest::new(CONTEST),
            witness: None,
        }));
        state.follower.passes_nothing();
        state.follower.closed();
        state.view.closed();
        state.candidate = None;
        state.returns = false;
        state.ticks = None;
        self.content_leads(node);
        self.begin_to_feed(node, term, Vec::new());
        self.committed(node, acknowledged)?;
        self.note(|| format!("node {node} begins to lead in {term} at {end}"));
        self.report.leads += 1;
        self.report.failovers += u64::from(self.checks.last_primary() != Some(self.nodes[node].id));
        self.check_new_term(node)?;
        let block = self.block(node, term, Writes::Term);
        let digest = self.nodes[node].disk.log.push(block.clone());
        self.check_block(node, &block, digest)?;
        self.later(node, 500, Own::Announce);
        self.later(node, 300, Own::AskWitness);
        self.later(node, 400, Own::LookWhetherStuck);
        // It may have promised a later term since it began this one.
        let highest = self.nodes[node].disk.terms.fence.highest();
        let event = if highest > term && self.scenario.broken != Broken::PromiseWhileTakingOver {
            Event::Fenced { by: highest }
        } else {
            Event::Tick
        };
        self.apply_to_rule(node, event)?;
        self.flush(node)
    }

    /// Makes a part of what was written durable; a primary ships it meanwhile.
    pub(crate) fn flush(&mut self, node: usize) -> Result<(), Violation> {
        let state = &mut self.nodes[node];
        if !state.up || state.flushing || state.disk.full.is_some() || state.disk.failed || state.mirror.is_some() {
            return Ok(());
        }
        let Some((from, end)) = self.next_flush(node) else { return Ok(()) };
        // A batch may end within a transaction.
        let state = &mut self.nodes[node];
        let blocks = state.disk.log.between(from, end);
        let some = !blocks.is_empty() && self.dice.one_in(4);
        let take = if some { 1 + self.dice.below(blocks.len() as u64) as usize } else { blocks.len() };
        let to = blocks[..take].last().map_or(end, Block::end);
        let longest = if self.dice.one_in(30) { 6000 } else { 500 };
        let quick = self.dice.between(40, longest);
        let pause = quick * state.disk.slowness;
        state.flushing = true;
        let cuts = state.cuts;
        self.later(node, pause, Own::Flushed { cuts, to });
        let state = &mut self.nodes[node];
        if let (Role::Primary(_), Some(host)) = (&state.role, &mut state.host) {
            let filled = host.filled_to();
            if Lsn(to) > filled {
                let blocks = state.disk.log.between(filled.0, to).iter();
                let ends: Vec<Lsn> = blocks.map(|block| Lsn(block.end())).collect();
                self.filled(node, filled, &ends)?;
                if self.scenario.broken == Broken::CommitBeforePersist {
                    self.apply_to_rule(node, Event::Durable(Lsn(to)))?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn flushed(&mut self, node: usize, cuts: u32, to: u64) -> Result<(), Violation> {
        let state = &mut self.nodes[node];
        if state.cuts != cuts {
            // What it wrote was cut off meanwhile; whoever cut has begun another.
            return Ok(());
        }
        state.flushing = false;
        if std::mem::take(&mut state.disk.failing) {
            self.log_fails(node);
            return Ok(());
        }
        let to = self.wrote(node, to);
        let state = &mut self.nodes[node];
        let from = std::mem::replace(&mut state.disk.synced, to);
        if !state.disk.dropped {
            state.disk.sure = to;
        }
        let leaves = state.note_sets(from, to);
        if state.lead().is_some() {
            self.apply_to_rule(node, Event::Durable(Lsn(to)))?;
        } else {
            self.apply_to_follower(node, follower::Event::Persisted(Lsn(to)))?;
            self.acknowledge(node, false);
            if leaves && self.scenario.broken != Broken::RelayNotLeft {
                self.unlink(node, Ended::Lost)?;
            }
            self.settled_now(node);
        }
        self.flush(node)
    }

    /// `node` speaks for its log, which ends at `end`.
    pub(crate) fn sender(&self, node: usize, term: Term, above: Vec<NodeId>, end: Lsn) -> Sender {
        let state = &self.nodes[node];
        let (history, lease_ms) = (state.disk.terms.history.clone(), self.lease().as_millis() as u32);
        Sender {
            cluster: CLUSTER,
            node: state.id,
            above,
            term,
            history,
            end,
            needed_capacity: 0,
            keep_alive_ms: 10,
            lease_ms,
        }
    }

    /// `node` feeds others with its log from its end on.
    pub(crate) fn begin_to_feed(&mut self, node: usize, term: Term, above: Vec<NodeId>) {
        let end = Lsn(self.nodes[node].log_end());
        let host = Host::new(self.sender(node, term, above, end), self.flow(), 24);
        let mut host = Recorded::new(host, &self.nodes[node].recorder);
        if host.sender().above.is_empty() || self.nodes[node].view.level().is_some() {
            host.peers_changed();
        }
        self.nodes[node].host = Some(host);
        self.nodes[node].batches.clear();
    }

    /// The log of `node` has grown from `from` on, by blocks with these ends.
    pub(crate) fn filled(&mut self, node: usize, from: Lsn, ends: &[Lsn]) -> Result<(), Violation> {
        let (now, end) = (self.clock(node), self.nodes[node].log_end());
        let (Some(host), Some(to)) = (&mut self.nodes[node].host, ends.last()) else { return Ok(()) };
        assert!(to.0 <= end, "node {node} would pass on what it has not executed, {to} of {end}");
        host.filled(from, *to, ends, now);
        self.pump(node)
    }

    /// A node wants to follow `node`.
    pub(crate) fn joins(&mut self, node: usize, joining: &Joining<'_>) -> Result<(), Violation> {
        let &Joining { node: from, id, fence, log, synchronous, member, mirror, holds, in_effect } = joining;
        let (now, name) = (self.clock(node), self.nodes[from].id);
        let appliance = self.scenario.appliance || mirror;
        let mirror = mirror.then(|| self.nodes[from].disk.terms.set.as_ref().map(InSyncSet::name));
        let incarnation = self.nodes[from].disk.terms.holder(name).incarnation;
        let (leads, stuck) = (self.nodes[node].leads(), self.refuses_stuck(node));
        let terms = self.known_terms(node);
        let counted = synchronous && (member || mirror.is_some()) && self.scenario.broken != Broken::RelayNotLeft;
        let state = &mut self.nodes[node];
        let follows = state.link.as_ref().is_some_and(|link| link.term.is_some());
        let serves = (leads || follows) && state.candidate.is_none();
        let asking = Asking { cluster: Some(CLUSTER), node: name, fence, log, counted, holds, in_effect, mirror };
        let agreed =
            state.host.as_ref().filter(|_| serves).map(|host| stuck.map_or_else(|| host.agree(&asking, &terms), Err));
        let (agreed, host) = match (agreed, &mut state.host) {
            (Some(Ok(agreed)), _) if agreed.welcome.cut_at.0 < state.disk.kept => {
                let why = Refusal::LogGone { from: agreed.welcome.cut_at, why: String::new() };
                self.send(id, node, Message::NotFed { why });
                return Ok(());
            }
            (Some(Ok(agreed)), Some(host)) => (agreed, host),
            (refused, _) => return self.join_refused(node, joining, refused.and_then(Result::err)),
        };
        let replica = ReplicaState {
            node: name,
            incarnation,
            member,
            // Who follows a relay is that relay's standby, as good as any.
            synchronous: synchronous || !leads,
            appliance,
            from: agreed.welcome.cut_at,
            persisted: agreed.persisted,
            replayed: Lsn::ZERO,
        };
        let joined = host.join(id, replica, now).unwrap_or_default();
        if let Some(old) = joined.replaced {
            self.hang_up(old, node);
            self.drop_line(node, old);
        }
        self.send(id, node, Message::Welcome { welcome: agreed.welcome });
        for event in joined.events.into_iter().flatten() {
            self.apply_to_rule(node, event)?;
        }
        self.pump(node)
    }

    /// It does not, for this reason, if there is one to be named.
    fn join_refused(&mut self, node: usize, joining: &Joining<'_>, why: Option<Refusal>) -> Result<(), Violation> {
        let &Joining { node: from, id, fence, .. } = joining;
        let leads = self.nodes[node].leads();
        match why {
            Some(Refusal::SameTermTwice { .. }) => self.check_begun_twice(node, from),
            Some(
                Refusal::HoldsMore { at, committed, .. } | Refusal::MirrorHoldsMore { here: at, end: committed, .. },
            ) => {
                let term = self.nodes[node].host.as_ref().map_or(fence, |host| host.sender().term);
                self.hang_up(id, node);
                self.holds_more(from, (term, at, committed))
            }
            why => {
                let fenced = leads && matches!(why, Some(Refusal::Fenced { .. }));
                // A relay knows whom it follows.
                let why = why.filter(|why| !matches!(why, Refusal::NotPrimary { .. }));
                let why = why.unwrap_or_else(|| self.nodes[node].not_primary());
                self.send(id, node, Message::NotFed { why });
                if fenced { self.apply_to_rule(node, Event::Fenced { by: fence }) } else { Ok(()) }
            }
        }
    }

    /// Sends everybody what the host says.
    pub(crate) fn pump(&mut self, node: usize) -> Result<(), Violation> {
        let (now, maintenance) = (self.clock(node), self.maintenance(node));
        let state = &mut self.nodes[node];
        let Some(host) = &mut state.host else { return Ok(()) };
        let (term, log) = (host.sender().term, &state.disk.log);
        let mut outgoing: Vec<(ConnectionId, Message)> = Vec::new();
        let mut wake = u64::MAX;
        let feeds = host.feeds().map(|(id, _)| id).filter(|id| !self.net.connections[*id].is_of_mirror);
        for id in feeds.collect::<Vec<_>>() {
            while let Some(next) = host.next(id, now) {
                let blocks: Vec<Block> = match next {
                    Next::Wait { until } => {
                        wake = wake.min(until.0.max(now.0 + 1));
                        break;
                    }
                    Next::SendPeers => {
                        host.peers_sent(id);
                        outgoing.push((id, Message::Peers));
                        continue;
                    }
                    Next::SendWatermark | Next::SendKeepAlive => Vec::new(),
                    Next::SendLive { from, to } => log.between(from.0, to.0).to_vec(),
                    Next::SendOld { from, upto } => {
                        self.report.old += 1;
                        let mut length = 0;
                        let fits = |block: &&Block| {
                            length += block.length;
                            length <= 1500 || length == block.length
                        };
                        let blocks: Vec<Block> = log.between(from.0, upto.0).iter().take_while(fits).cloned().collect();
                        if blocks.is_empty() {
                            host.credit_too_small(id, upto);
                            continue;
                        }
                        blocks
                    }
                };
                let to = blocks.last().map(|block| Lsn(block.end()));
                let Some(note) = host.shipped(id, to, now) else { break };
                outgoing.push((id, Message::Batch { term, blocks, along: Along::new(note, maintenance) }));
            }
        }
        for (id, mut message) in outgoing {
            if let Message::Batch { blocks, .. } = &mut message {
                self.encode(node, id, blocks);
            }
            self.send(id, node, message);
        }
        for id in self.nodes[node].lines.keys().copied().collect::<Vec<_>>() {
            wake = wake.min(self.pump_mirror(node, id)?.max(now.0 + 1));
        }
        let state = &mut self.nodes[node];
        let wake = state.world_time(wake);
        if wake < state.wakes.unwrap_or(u64::MAX) {
            state.wakes = Some(wake);
            let life = state.life;
            self.at(wake, What::Of { node, life, what: Own::Pump });
        }
        Ok(())
    }

    /// Those who are fed hear of it when their feeds next look; some are told at once.
    pub(crate) fn committed(&mut self, node: usize, to: u64) -> Result<(), Violation> {
        let now = self.clock(node);
        let Some(host) = &mut self.nodes[node].host else { return Ok(()) };
        let term = host.sender().term;
        let at_once = host.committed(Lsn(to), now);
        for id in at_once.into_iter().filter(|id| !self.net.connections[*id].is_of_mirror).collect::<Vec<_>>() {
            let note = self.nodes[node].host.as_mut().and_then(|host| host.shipped(id, None, now));
            if let Some(note) = note {
                self.send(
                    id,
                    node,
                    Message::Batch { term, blocks: Vec::new(), along: Along::new(note, self.maintenance(node)) },
                );
            }
        }
        self.pump(node)
    }

    /// Somebody who is fed says what it holds.
    pub(crate) fn acked(&mut self, node: usize, id: ConnectionId, ack: &Ack) -> Result<(), Violation> {
        let mut ack = *ack;
        if self.scenario.broken == Broken::LeaseFromAnswer {
            ack.observed = Some(self.clock(node));
        }
        let acked = self.nodes[node].host.as_mut().map(|host| host.acked(id, &ack));
        self.observe(node, id, acked)
    }

    pub(crate) fn observe(
        &mut self,
        node: usize,
        id: ConnectionId,
        acked: Option<Result<Acked, FlowError>>,
    ) -> Result<(), Violation> {
        match acked {
            Some(Err(error)) => {
                let from = self.peer(id, node);
                crate::Property::Logs.violated(format!("node {from} to node {node}: {error}"))
            }
            Some(Ok(Acked { event: Some(event), .. })) => {
                self.apply_to_rule(node, event)?;
                self.pump(node)
            }
            _ => Ok(()),
        }
    }

    /// A feed is over.
    pub(crate) fn left(&mut self, node: usize, id: ConnectionId) -> Result<(), Violation> {
        self.drop_line(node, id);
        let left = self.nodes[node].host.as_mut().and_then(|host| host.leave(id));
        left.map_or(Ok(()), |event| self.apply_to_rule(node, event))
    }

    /// A mirror is fed no more.
    fn drop_line(&mut self, node: usize, id: ConnectionId) {
        self.nodes[node].lines.remove(&id);
        if self.net.connections[id].ends[1] == node {
            self.line_ends(id);
        }
    }

    /// Everybody who is fed has to look for somebody else.
    pub(crate) fn end_feeds(&mut self, node: usize) {
        self.nodes[node].follower.passes_nothing();
        let Some(host) = self.nodes[node].host.take() else { return };
        for (id, _) in host.feeds() {
            self.hang_up(id, node);
            self.drop_line(node, id);
        }
    }

    /// Now and then a primary tells the others that it leads.
    pub(crate) fn announce_again(&mut self, node: usize) {
        if self.nodes[node].leads() {
            self.announce(node);
            let pause = self.dice.between(8000, 16_000);
            self.later(node, pause, Own::Announce);
        }
    }

    /// Tells everybody who is not fed who leads. One that is stuck is not to be followed.
    pub(crate) fn announce(&mut self, node: usize) {
        let Some(lead) = self.nodes[node].lead().filter(|lead| !lead.stuck.is_stuck()) else { return };
        let (term, acknowledged) = (lead.term, lead.rule.acknowledged());
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            let fed = |host: &Recorded<Host>| host.feed_of(self.nodes[other].id).is_some();
            if !self.nodes[node].host.as_ref().is_some_and(fed) {
                self.connect(node, other, Message::Announce { term, acknowledged });
            }
        }
    }
}
