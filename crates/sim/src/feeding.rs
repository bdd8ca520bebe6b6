//! Who has the log and passes it on: the primary, and a relay.

use freshet_base::{Stamp, Term};
use freshet_cluster::{
    commit_rule::{CommitRule, Event},
    flow::{Boundaries, Flow, Next},
    take_over::Inheritance,
    term::{Agreement, TermHistory, Verdict},
};

use crate::{
    checks::Violation,
    log::Block,
    net::{ConnectionId, Message},
    node::{Feed, Feeding, Reign, Role},
    scenario::Broken,
    world::{Crash, RING, What, World},
};

impl World {
    /// `node` reigns from the end of its log on.
    pub(crate) fn begin_reign(&mut self, node: usize, term: Term, inheritance: Inheritance) -> Result<(), Violation> {
        let Inheritance { succession, committed } = inheritance;
        let (rule, now) = (self.rule(), self.now);
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
        state.relay = None;
        state.candidate = None;
        state.returns = false;
        state.feeding = Some(Feeding::new(term, end));
        state.ticks = None;
        state.recorded = end.0;
        let life = state.life;
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
        let now = self.now;
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
        state.note_sets(from, to);
        if state.reign().is_some() {
            self.tell_rule(node, Event::Durable(Stamp(to)))?;
        } else {
            if let Some(relay) = &mut state.relay {
                let _ = relay.persisted(Stamp(to), now);
                self.watch(node);
                self.pump(node);
            }
            self.show(node)?;
            self.acknowledge(node);
            let state = &self.nodes[node];
            let relay = state.link.as_ref().map(|link| self.peer(link.connection, node));
            if relay.is_some() && relay == state.upstream && relay != state.leader && state.is_counted() {
                self.unlink(node)?;
            }
            self.settled_now(node);
        }
        self.flush(node)
    }

    /// `from` wants to follow `node`.
    #[allow(clippy::too_many_arguments, reason = "the fields of one message")]
    pub(crate) fn joins(
        &mut self,
        node: usize,
        from: usize,
        id: ConnectionId,
        fence: Term,
        history: &TermHistory,
        received: u64,
        persisted: u64,
        credit: u64,
    ) -> Result<(), Violation> {
        let flow = self.flow();
        let now = self.now;
        let reigns = self.nodes[node].reigns();
        let state = &mut self.nodes[node];
        let follows = state.relays && state.link.as_ref().is_some_and(|link| link.term.is_some());
        let serves = (reigns || follows) && state.candidate.is_none();
        let (highest, leader) = (state.disk.terms.fence.highest(), state.leader);
        let Some(feeding) = state.feeding.as_mut().filter(|_| serves) else {
            self.send(id, node, Message::Refused { highest, leader: leader.filter(|_| !reigns) });
            return Ok(());
        };
        let (term, end) = (feeding.term, feeding.boundaries.available());
        if fence > term {
            self.send(id, node, Message::Refused { highest: fence, leader: None });
            return if reigns { self.tell_rule(node, Event::Fenced { by: fence }) } else { Ok(()) };
        }
        let Agreement::Upto(cut_at) = state.disk.terms.history.agreement(end, history, Stamp(received)) else {
            return crate::Property::Logs.violated(format!("nodes {node} and {from} cannot be reconciled"));
        };
        if !reigns && cut_at == end && received > end.0 {
            // A relay that is merely behind has nothing to say yet: who follows it must not forget what it has shown.
            self.send(id, node, Message::Refused { highest, leader: None });
            return Ok(());
        }
        let before: Vec<ConnectionId> =
            feeding.feeds.iter().filter(|(_, feed)| feed.node == from).map(|(id, _)| *id).collect();
        for old in before {
            self.hang_up(old, node);
            self.left(node, old)?;
        }
        let room = if self.scenario.broken == Broken::CreditIgnored { u64::MAX } else { credit.min(cut_at.0 + RING) };
        let synchronous = match self.scenario.broken {
            Broken::AsynchronousCounted => true,
            // Who follows a relay is that relay's standby, as good as any.
            _ => self.nodes[from].synchronous || !reigns,
        };
        let state = &mut self.nodes[node];
        let (name, history) = (state.id, state.disk.terms.history.clone());
        self.send(id, node, Message::Welcome { term, reigns, node: name, history, cut_at: cut_at.0 });
        let Some(feeding) = &mut self.nodes[node].feeding else { return Ok(()) };
        feeding.feeds.insert(id, Feed { node: from, flow: Flow::new(flow, cut_at, Stamp(room), now) });
        let standby = self.nodes[from].id;
        let persisted = Stamp(persisted).min(cut_at);
        self.tell_rule(node, Event::Joined { standby, persisted, synchronous })?;
        self.pump(node);
        Ok(())
    }

    /// Sends everybody what the flow says.
    pub(crate) fn pump(&mut self, node: usize) {
        let now = self.now;
        let mut outgoing: Vec<(ConnectionId, Message)> = Vec::new();
        let state = &mut self.nodes[node];
        let global = match (&state.role, &state.relay) {
            (Role::Primary(reign), _) => Stamp(reign.acknowledged),
            (Role::Standby, Some(relay)) => relay.downward(),
            (Role::Standby, None) => return,
        };
        let Some(Feeding { term, boundaries, feeds, wakes }) = &mut state.feeding else { return };
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
                        wake = wake.min(until.0.max(now.0 + 1));
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
    pub(crate) fn acked(
        &mut self,
        node: usize,
        id: ConnectionId,
        persisted: Stamp,
        credit: Stamp,
    ) -> Result<(), Violation> {
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
    pub(crate) fn new(term: Term, end: Stamp) -> Self {
        Self { term, boundaries: Boundaries::new(end, 24), feeds: std::collections::BTreeMap::new(), wakes: None }
    }
}
