//! Who has the log and passes it on: the primary, and a relay.

use freshet_base::{NodeId, Stamp, Term};
use freshet_cluster::{
    commit_rule::{CommitRule, Event},
    flow::{Boundaries, Flow, Next},
    follower::{self, Ack},
    handshake::{Continue, Host, Refusal, consider},
    take_over::Inheritance,
    term::Verdict,
};

use crate::{
    checks::Violation,
    log::Block,
    net::{ConnectionId, Message},
    node::{Feed, Feeding, Reign, Role},
    scenario::Broken,
    world::{CLUSTER, Crash, What, World},
};

impl World {
    /// `node` reigns from the end of its log on.
    pub(crate) fn begin_reign(&mut self, node: usize, term: Term, inheritance: Inheritance) -> Result<(), Violation> {
        let Inheritance { succession, committed } = inheritance;
        let (rule, now) = (self.rule(), self.clock(node));
        let broken = self.scenario.broken;
        let state = &mut self.nodes[node];
        let end = Stamp(state.disk.log.end());
        if let Verdict::Refused { .. } = state.disk.terms.fence.hear(term, state.id) {
            return Ok(());
        }
        state.disk.terms.history = state.disk.terms.history.cut(end);
        state.disk.terms.history.begin(term, end, state.id).expect("a term above all that were heard");
        let known = if broken == Broken::TailTakenForCommitted { end } else { committed.min(end) };
        let rule = CommitRule::new(rule, end, now).known_committed(known).recorded(state.id, term, succession, now);
        let acknowledged = state.disk.log.transaction_end(known.0);
        state.role = Role::Primary(Box::new(Reign { term, rule, acknowledged }));
        state.feeding = None;
        state.follower.passes_nothing();
        state.follower.closed();
        state.candidate = None;
        state.returns = false;
        state.feeding = Some(Feeding::new(term, Vec::new(), end));
        state.ticks = None;
        state.recorded = end.0;
        let life = state.life;
        self.note(|| format!("node {node} begins to reign in {term} at {end}"));
        self.report.reigns += 1;
        self.report.takeovers += u64::from(self.checks.last_reign() != Some(self.nodes[node].id));
        self.check_reign(node)?;
        let block = self.block(node, term, 48, true, None);
        let digest = self.nodes[node].disk.log.push(block.clone());
        self.check_block(node, &block, digest)?;
        self.after(500, What::Announce { node, life });
        self.tell_rule(node, Event::Tick)?;
        self.flush(node)
    }

    /// Makes a part of what was written durable; a primary ships it meanwhile.
    pub(crate) fn flush(&mut self, node: usize) -> Result<(), Violation> {
        let state = &mut self.nodes[node];
        let (from, end) = (state.disk.synced, state.disk.log.end());
        if !state.up || state.flushing || state.disk.full || from >= end {
            return Ok(());
        }
        // A batch may end within a transaction.
        let blocks = state.disk.log.between(from, end);
        let take = if self.dice.one_in(4) { 1 + self.dice.below(blocks.len() as u64) as usize } else { blocks.len() };
        let to = blocks[take - 1].end();
        let longest = if self.dice.one_in(30) { 6000 } else { 500 };
        let quick = self.dice.between(40, longest);
        let pause = quick * state.disk.slowness;
        state.flushing = true;
        let (life, cuts) = (state.life, state.cuts);
        self.after(pause, What::Flushed { node, life, cuts, to });
        let state = &mut self.nodes[node];
        if let (Role::Primary(_), Some(feeding)) = (&state.role, &mut state.feeding) {
            let shipped = feeding.boundaries.available();
            if Stamp(to) > shipped {
                let ends: Vec<Stamp> =
                    state.disk.log.between(shipped.0, to).iter().map(|block| Stamp(block.end())).collect();
                feeding.boundaries.push(shipped, Stamp(to), &ends);
                self.pump(node);
                if self.scenario.broken == Broken::CommitBeforePersist {
                    self.tell_rule(node, Event::Durable(Stamp(to)))?;
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
            // The log takes nothing more, so the node is restarted; its machine is not.
            state.disk.dropped = true;
            self.report.failed_syncs += 1;
            self.crash_of(node, Crash::Process);
            return Ok(());
        }
        let from = std::mem::replace(&mut state.disk.synced, to);
        if !state.disk.dropped {
            state.disk.sure = to;
        }
        let leaves = state.note_sets(from, to);
        if state.reign().is_some() {
            self.tell_rule(node, Event::Durable(Stamp(to)))?;
        } else {
            self.told(node, follower::Event::Persisted(Stamp(to)))?;
            self.acknowledge(node, false);
            if leaves && self.scenario.broken != Broken::RelayNotLeft {
                self.unlink(node)?;
            }
            self.settled_now(node);
        }
        self.flush(node)
    }

    /// `from` wants to follow `node`.
    pub(crate) fn joins(
        &mut self,
        node: usize,
        from: usize,
        id: ConnectionId,
        fence: Term,
        log: Continue,
        synchronous: bool,
    ) -> Result<(), Violation> {
        let (flow, now, name) = (self.flow(), self.clock(node), self.nodes[from].id);
        let reigns = self.nodes[node].reigns();
        let state = &mut self.nodes[node];
        let follows = state.link.as_ref().is_some_and(|link| link.term.is_some());
        // Commits may wait for it: it has to answer to the primary itself.
        let counted = synchronous || state.disk.terms.may_wait_for(name);
        let counted = counted && self.scenario.broken != Broken::RelayNotLeft;
        let serves = (reigns || follows && !counted) && state.candidate.is_none();
        let (highest, leader) = (state.disk.terms.fence.highest(), state.leader);
        let Some(feeding) = state.feeding.as_mut().filter(|_| serves) else {
            self.send(id, node, Message::Refused { highest, leader: leader.filter(|_| !reigns) });
            return Ok(());
        };
        let host = Host {
            cluster: CLUSTER,
            node: state.id,
            above: feeding.above.clone(),
            term: feeding.term,
            history: state.disk.terms.history.clone(),
            end: feeding.boundaries.available(),
            needed_capacity: 0,
            keep_alive_ms: 10,
        };
        let agreed = match consider(&host, Some(CLUSTER), name, fence, &log) {
            Ok(agreed) => agreed,
            Err(Refusal::SameTermTwice { .. }) => {
                return crate::Property::Logs.violated(format!("nodes {node} and {from} cannot be reconciled"));
            }
            Err(refusal) => {
                self.send(id, node, Message::Refused { highest: highest.max(fence), leader: None });
                let fenced = matches!(refusal, Refusal::Fenced { .. }) && reigns;
                return if fenced { self.tell_rule(node, Event::Fenced { by: fence }) } else { Ok(()) };
            }
        };
        let before: Vec<ConnectionId> =
            feeding.feeds.iter().filter(|(_, feed)| feed.node == from).map(|(id, _)| *id).collect();
        for old in before {
            self.hang_up(old, node);
            self.left(node, old)?;
        }
        // Who follows a relay is that relay's standby, as good as any.
        let synchronous = synchronous || !reigns;
        let cut_at = agreed.welcome.cut_at;
        // No room before the standby has said so: it may have to cut its log first.
        let flow = Flow::new(flow, cut_at, cut_at, now);
        self.send(id, node, Message::Welcome { welcome: agreed.welcome });
        let Some(feeding) = &mut self.nodes[node].feeding else { return Ok(()) };
        feeding.feeds.insert(id, Feed { node: from, flow });
        let persisted = agreed.persisted;
        self.tell_rule(node, Event::Joined { standby: name, persisted, synchronous })?;
        self.pump(node);
        Ok(())
    }

    /// Sends everybody what the flow says.
    pub(crate) fn pump(&mut self, node: usize) {
        let (now, ahead) = (self.clock(node), self.nodes[node].ahead);
        let mut outgoing: Vec<(ConnectionId, Message)> = Vec::new();
        let state = &mut self.nodes[node];
        let global = match &state.role {
            Role::Primary(reign) => Some(Stamp(reign.acknowledged)),
            Role::Standby => state.follower.downward(),
        };
        let Some(global) = global else { return };
        let Some(Feeding { term, boundaries, feeds, wakes, .. }) = &mut state.feeding else { return };
        let mut wake = u64::MAX;
        for (id, feed) in feeds.iter_mut() {
            loop {
                let blocks: Vec<Block> = match feed.flow.next(boundaries, global, now) {
                    Next::SendLive { from, to } => state.disk.log.between(from.0, to.0).to_vec(),
                    Next::SendOld { from, upto } => {
                        self.report.old += 1;
                        let mut length = 0;
                        let fits = |block: &&Block| {
                            length += block.length;
                            length <= 1500 || length == block.length
                        };
                        state.disk.log.between(from.0, upto.0).iter().take_while(fits).cloned().collect()
                    }
                    Next::SendWatermark | Next::SendKeepAlive => {
                        feed.flow.said(global, now);
                        outgoing.push((*id, Message::Watermark { term: *term, global: global.0 }));
                        continue;
                    }
                    Next::Wait { until } => {
                        wake = wake.min(until.0.max(now.0 + 1) - ahead);
                        break;
                    }
                };
                match (blocks.last().map(Block::end), feed.flow.next(boundaries, global, now)) {
                    (None, Next::SendOld { upto, .. }) => feed.flow.credit_too_small(upto),
                    (None, _) => break,
                    (Some(to), _) => {
                        feed.flow.sent(Stamp(to), global, now);
                        outgoing.push((*id, Message::Batch { term: *term, blocks, global: global.0 }));
                    }
                }
            }
        }
        let life = state.life;
        let earlier = wake < wakes.unwrap_or(u64::MAX);
        if earlier {
            *wakes = Some(wake);
            self.at(wake, What::Pump { node, life });
        }
        for (id, message) in outgoing {
            self.send(id, node, message);
        }
    }

    /// Somebody who is fed says what it holds.
    pub(crate) fn acked(&mut self, node: usize, id: ConnectionId, ack: Ack) -> Result<(), Violation> {
        let Ack { persisted, may_send_until: credit, .. } = ack;
        let Some(feeding) = &mut self.nodes[node].feeding else { return Ok(()) };
        let Some(feed) = feeding.feeds.get_mut(&id) else { return Ok(()) };
        let from = feed.node;
        if let Err(error) = feed.flow.acked(persisted, credit) {
            return crate::Property::Logs.violated(format!("node {from} to node {node}: {error}"));
        }
        let standby = self.nodes[from].id;
        self.tell_rule(node, Event::Acked { standby, persisted })?;
        self.pump(node);
        Ok(())
    }

    /// A feed is over.
    pub(crate) fn left(&mut self, node: usize, id: ConnectionId) -> Result<(), Violation> {
        let Some(feeding) = &mut self.nodes[node].feeding else { return Ok(()) };
        let Some(feed) = feeding.feeds.remove(&id) else { return Ok(()) };
        let standby = self.nodes[feed.node].id;
        self.tell_rule(node, Event::Left { standby })
    }

    /// Everybody who is fed has to look for somebody else.
    pub(crate) fn end_feeds(&mut self, node: usize) {
        let Some(feeding) = &mut self.nodes[node].feeding else { return };
        for id in std::mem::take(&mut feeding.feeds).into_keys() {
            self.hang_up(id, node);
        }
    }

    /// Tells everybody who is not fed who reigns.
    pub(crate) fn announce(&mut self, node: usize) {
        if !self.nodes[node].reigns() {
            return;
        }
        let (term, life) = (self.nodes[node].reign().expect("it reigns").term, self.nodes[node].life);
        let fed: Vec<usize> =
            self.nodes[node].feeding.iter().flat_map(|feeding| feeding.feeds.values().map(|feed| feed.node)).collect();
        for other in (0..self.nodes.len()).filter(|other| *other != node && !fed.contains(other)) {
            self.connect(node, other, Message::Announce { term });
        }
        let pause = self.dice.between(8000, 16_000);
        self.after(pause, What::Announce { node, life });
    }
}

impl Feeding {
    /// Nobody yet, of a log that ends at `end`.
    pub(crate) fn new(term: Term, above: Vec<NodeId>, end: Stamp) -> Self {
        Self {
            term,
            above,
            boundaries: Boundaries::new(end, 24),
            feeds: std::collections::BTreeMap::new(),
            wakes: None,
        }
    }
}
