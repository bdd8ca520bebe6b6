//! What arrives at a standby, and becomes part of its log: executed, or as its bytes.

use freshet_base::Lsn;
use freshet_cluster::{
    follower::Event,
    inputs::{Asked, Demand, Original, Reach},
    promotion::Standing,
};

use super::{Content, Does, Lacking, Tables};
use crate::{
    Property,
    checks::Violation,
    log::Block,
    net::{ConnectionId, Message},
    node::Node,
    scenario::Broken,
    world::{Own, World},
};

/// How long others have to answer that are asked for a block, in microseconds.
const PATIENCE: u64 = 15_000;

impl Node {
    /// Whether this node has acknowledged a block that does not come out here, and not its bytes.
    pub(crate) fn lacks_original(&self) -> bool {
        self.content.lacking.values().any(|lacking| !lacking.slow)
    }

    /// Where the log ends: without what has arrived and is not part of it.
    pub(crate) fn log_end(&self) -> u64 {
        let has_arrived = self.content.composed && self.mirror.is_none() && self.lead().is_none();
        if has_arrived { self.content.complete } else { self.disk.log.end() }
    }
}

impl World {
    /// Whatever happens to their disks now, nodes are still asked for a block.
    pub(crate) fn is_asked_for_originals(&self) -> bool {
        self.nodes.iter().any(Node::lacks_original)
    }

    /// The log of `node` has reached the end of its checkpoint: from here on it is a state.
    pub(super) fn compose(&mut self, node: usize) {
        let (slack, early) = (Content::slack(self), self.scenario.broken == Broken::ExecutedBelowFloor);
        let state = &mut self.nodes[node];
        let (end, disk) = (state.content.complete, &state.disk);
        let floor = disk.floor;
        if end >= floor {
            state.content.tables = Tables::restored(&disk.log, end, floor);
        } else if early {
            let (dice, length) = (&mut self.dice, floor - disk.kept + 1);
            state.content.tables = Tables::fuzzy(&disk.log, (disk.kept, floor), || dice.below(length));
        } else {
            return;
        }
        let reach = Reach { floor: Lsn(if early { 0 } else { floor }), slack };
        (state.content.composed, state.content.reach) = (true, Some(reach));
        state.content.kept = freshet_cluster::inputs::Kept::new(Lsn(end), Lsn(end), reach.floor);
        state.content.asks = !self.dice.one_in(4);
    }

    /// Blocks have arrived that follow those before, in this batch.
    pub(crate) fn blocks_arrive(&mut self, node: usize, from: u64, ends: &[Lsn]) -> Result<(), Violation> {
        if !self.nodes[node].content.composed {
            self.becomes_complete(node, ends)?;
            self.compose(node);
            return Ok(());
        }
        let to = ends.last().map_or(from, |end| end.0);
        let strong = self.scenario.strong();
        let sender = self.nodes[node].link.as_ref().map(|link| self.peer(link.connection, node));
        let giver =
            sender.map(|sender| &self.nodes[sender].disk).filter(|disk| strong && !disk.rotten && !disk.set_back);
        let given = giver.map_or(0, |disk| disk.sure);
        let state = &mut self.nodes[node];
        let content = &mut state.content;
        let reach = content.reach.unwrap_or(Reach { floor: Lsn::ZERO, slack: 0 });
        let mut demand = Demand::behind(content.defined);
        let mut is_form = false;
        for block in state.disk.log.between(from, to) {
            match block.does.as_deref() {
                Some(Does::Define { .. }) => demand.defines(Lsn(block.end())),
                Some(Does::Execute(it, _)) if block.form.is_some() => {
                    is_form = true;
                    demand.executes(Lsn(block.start), Some(Lsn(it.snapshot)), &reach);
                    // One that does not come out comes out nowhere; others take long here.
                    let slow = block.content % 150 != 0 || block.end() > given;
                    if !slow || self.dice.one_in(80) {
                        content
                            .lacking
                            .insert(block.start, Lacking { end: block.end(), slow, given: false, asked: None });
                    }
                }
                _ => {}
            }
        }
        content.defined = demand.defined();
        if (is_form || content.asks) && content.kept.keeps(Lsn(to), demand.oldest()) {
            content.waiting.push((from, to));
        }
        self.arrive(node, ends)
    }

    /// The first `count` blocks that have arrived and are not part of the log become that, up to
    /// one that has to wait.
    pub(crate) fn complete_some(&mut self, node: usize, count: usize) -> Result<(), Violation> {
        let mut ends = Vec::new();
        while ends.len() < count
            && let Some(end) = self.nodes[node].arrived.front().copied()
            && (!self.scenario.forms || self.comes_out(node, end.0)?)
        {
            self.nodes[node].arrived.pop_front();
            ends.push(end);
        }
        self.becomes_complete(node, &ends)
    }

    pub(crate) fn becomes_complete(&mut self, node: usize, ends: &[Lsn]) -> Result<(), Violation> {
        let Some(to) = ends.last() else { return Ok(()) };
        let from = std::mem::replace(&mut self.nodes[node].content.complete, to.0);
        self.filled(node, Lsn(from), ends)?;
        self.accept(node, ends)
    }

    /// All that has arrived becomes part of the log, if that can be.
    pub(crate) fn drain(&mut self, node: usize) -> Result<bool, Violation> {
        loop {
            let left = self.nodes[node].arrived.len();
            self.complete_some(node, usize::MAX)?;
            match self.nodes[node].arrived.len() {
                0 => return Ok(true),
                still if still < left || self.nodes[node].replaying.is_some() => self.finish_replay(node)?,
                _ => return Ok(false),
            }
        }
    }

    /// The block that ends here is executed, or was given by another node; false if it has to wait.
    fn comes_out(&mut self, node: usize, end: u64) -> Result<bool, Violation> {
        let state = &mut self.nodes[node];
        let count = state.disk.log.count(end);
        let block = state.disk.log.blocks()[count - 1].clone();
        let (Some(keys), Some(Does::Execute(it, writes))) = (block.form, block.does.as_deref()) else {
            // Replay makes its versions.
            state.content.barrier = end;
            return Ok(true);
        };
        if state.content.barrier > state.follower.replayed().0 {
            return Ok(false);
        }
        let reaches = state.content.reach.is_some_and(|reach| reach.reaches(Lsn(it.snapshot), Lsn(block.start)));
        let lacking = (!reaches).then_some(Lacking { end, slow: false, given: false, asked: None });
        if let Some(lacking) = lacking {
            // One that takes long does not come out at all.
            state.content.lacking.entry(block.start).and_modify(|lacking| lacking.slow = false).or_insert(lacking);
        }
        let mut is_given = false;
        if let Some(lacking) = state.content.lacking.get(&block.start) {
            is_given = lacking.given;
            let comes = is_given || lacking.slow && self.dice.one_in(40);
            if !comes {
                self.ask_for_original(node, &block);
                return Ok(false);
            }
        }
        let tables = &mut self.nodes[node].content.tables;
        if let Some((key, there)) = tables.lacks(writes) {
            return Property::Content.violated(format!(
                "node {node} finds version {there} of record {key} where block {} changes another: {writes:?}",
                block.start
            ));
        }
        if !is_given {
            let own = tables.execute(it);
            if own != *writes {
                return Property::Content.violated(format!(
                    "node {node} executes block {} again, {it:?}, and gets {own:?} instead of {writes:?}",
                    block.start
                ));
            }
        }
        tables.apply(&block, Some(keys));
        self.report.executed += u64::from(!is_given);
        self.report.originals += u64::from(is_given);
        self.nodes[node].content.lacking.remove(&block.start);
        Ok(true)
    }

    /// The log is replayed up to `to`: blocks that came with their bytes are in the tables.
    pub(crate) fn content_replayed(&mut self, node: usize, to: Lsn) -> Result<(), Violation> {
        let state = &mut self.nodes[node];
        if !state.content.composed {
            return Ok(());
        }
        for block in state.disk.log.between(state.follower.replayed().0, to.0) {
            if state.content.tables.has(block) {
                continue;
            }
            if let Some(Does::Execute(_, writes) | Does::Write(writes)) = block.does.as_deref()
                && let Some((key, there)) = state.content.tables.lacks(writes)
            {
                return Property::Content.violated(format!(
                    "node {node} replays block {}, and finds version {there} of record {key}: {writes:?}",
                    block.start
                ));
            }
            state.content.tables.apply(block, None);
        }
        Ok(())
    }

    /// Readers see everything up to `visible`, and older versions are given up.
    pub(crate) fn reclaim(&mut self, node: usize, visible: u64) {
        let early = self.scenario.broken == Broken::ReclaimedEarly;
        let content = &mut self.nodes[node].content;
        if let Some(reach) = content.reach {
            let oldest = if early { Lsn(visible) } else { reach.oldest(Lsn(visible)) };
            content.tables.reclaim(oldest.0);
        }
    }

    /// The log from `at` on never was.
    pub(crate) fn content_cut(&mut self, node: usize, at: u64) {
        let Node { content, disk, .. } = &mut self.nodes[node];
        content.tables.cut(at);
        content.kept.cut(Lsn(at));
        content.complete = content.complete.min(at);
        content.barrier = content.barrier.min(at);
        content.lacking.split_off(&at);
        content.writing = 0;
        content.waiting.retain(|(from, _)| *from < at);
        content.waiting.iter_mut().for_each(|(_, to)| *to = at.min(*to));
        disk.cut_journal(at);
    }

    /// All other nodes are asked for a block that does not come out here.
    fn ask_for_original(&mut self, node: usize, block: &Block) {
        let others: Vec<usize> = (0..self.nodes.len()).filter(|other| *other != node).collect();
        let (at, end) = (block.start, block.end());
        let Some(lacking) = self.nodes[node].content.lacking.get_mut(&at) else { return };
        if lacking.asked.is_some() {
            return;
        }
        lacking.asked = Some((Asked::new(!others.is_empty()), Vec::new()));
        let content = block.content;
        for other in others {
            let id = self.connect(node, other, Message::AskOriginal { end, content });
            if let Some(Lacking { asked: Some((_, open)), .. }) = self.nodes[node].content.lacking.get_mut(&at) {
                open.push(id);
            }
        }
        self.later(node, PATIENCE, Own::Asked(at));
    }

    /// Somebody lacks the block that ends here.
    pub(crate) fn original_asked(&mut self, node: usize, id: ConnectionId, end: u64, content: u64) {
        let state = &self.nodes[node];
        let original = match &state.mirror {
            Some(mirror) => Original::of_mirror(Lsn(end), mirror.is_database().then_some(Lsn(state.disk.log.end()))),
            None => Original::of_log(Lsn(end), Lsn(state.log_end()), || {
                state.content.lacking.values().any(|lacking| lacking.end == end && !lacking.slow)
            }),
        };
        let found = state.disk.log.between(0, end).last().filter(|block| block.content == content);
        let gone = found.is_none() || end <= state.disk.kept;
        let original = if original == Original::Given && gone { Original::Lacking } else { original };
        self.send(id, node, Message::GiveOriginal { original });
    }

    /// One who was asked answers.
    pub(crate) fn original_comes(
        &mut self,
        node: usize,
        id: ConnectionId,
        original: Original,
    ) -> Result<(), Violation> {
        self.hang_up(id, node);
        let waits = |lacking: &&mut Lacking| lacking.asked.as_ref().is_some_and(|(_, open)| open.contains(&id));
        let Some(lacking) = self.nodes[node].content.lacking.values_mut().find(waits) else { return Ok(()) };
        let Some((asked, open)) = &mut lacking.asked else { return Ok(()) };
        open.retain(|other| *other != id);
        match original {
            Original::Given => lacking.given = true,
            Original::Later => asked.lacks(true),
            Original::Lacking => asked.lacks(false),
        }
        Ok(())
    }

    /// Those that have not answered were not reached.
    pub(crate) fn originals_over(&mut self, node: usize, at: u64) -> Result<(), Violation> {
        let Some(lacking) = self.nodes[node].content.lacking.get_mut(&at) else { return Ok(()) };
        let Some((mut asked, open)) = lacking.asked.take() else { return Ok(()) };
        open.iter().for_each(|_| asked.lacks(true));
        let (end, stops) = (lacking.end, asked.is_nowhere() && !lacking.given && !lacking.slow);
        for id in open {
            self.hang_up(id, node);
        }
        if !stops {
            return Ok(());
        }
        // What no log has any more a node that gets another disk does not need.
        self.nodes[node].disk.hopeless |= self.went_with_a_disk(node, end);
        let needs = self.scenario.strong() && !self.nodes[node].disk.hopeless;
        if needs && end <= self.checks.promised.end() && self.holds_promised(node, end) {
            return Property::Content.violated(format!(
                "node {node} takes the block that ends at {end} for lost, and somebody was told of it"
            ));
        }
        self.crash(node);
        Ok(())
    }

    /// Whether the block that ends here is in no log, since a node began with another disk, and a
    /// mirror leads that has the state of it: it had no log until then.
    fn went_with_a_disk(&self, node: usize, end: u64) -> bool {
        let has = |other: &Node| {
            end > other.disk.kept && other.disk.log.between(0, end).last().is_some_and(|block| block.end() == end)
        };
        let mut others = self.nodes.iter().filter(|other| other.id.0 as usize != node);
        let leads = |other: usize| self.nodes[other].leads() && self.holds_promised(other, self.checks.promised.end());
        self.report.disks > 0 && !others.any(has) && (0..self.nodes.len()).any(leads)
    }

    /// A node that was to stand lacks something yet. Who comes back by itself tries again.
    pub(crate) fn stands_later(&mut self, node: usize, standing: Standing) -> Result<(), Violation> {
        let pause = self.dice.between(5000, 30_000);
        if standing.comes_back().is_some() {
            self.later(node, pause, Own::Restart);
        }
        self.end_rest(node)
    }

    /// What was found in the journal at a start has arrived.
    pub(super) fn arrived_before(&mut self, node: usize, ends: &[Lsn]) -> Result<(), Violation> {
        self.arrive(node, ends)?;
        match ends.last() {
            Some(end) => self.apply_to_follower(node, Event::Persisted(*end)),
            None => Ok(()),
        }
    }
}
