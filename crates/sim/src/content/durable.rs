//! The log and the journal of a standby, what a crash leaves of both, and checkpoints.

use freshet_base::Lsn;
use freshet_cluster::inputs::{Kept, Raising};

use super::{Content, Does};
use crate::{
    Property,
    checks::Violation,
    node::Node,
    scenario::Broken,
    world::{Own, World},
};

/// What of `pieces` continues what is durable up to `end`.
fn continued(pieces: &[(u64, u64)], end: u64) -> u64 {
    pieces.iter().fold(end, |held, (from, to)| if *from <= held { held.max(*to) } else { held })
}

impl World {
    fn keeps_journal(&self, node: usize) -> bool {
        self.has_content(node) && self.nodes[node].content.composed && self.nodes[node].lead().is_none()
    }

    /// How far the log itself is durable: what only the journal has is no part of it.
    pub(crate) fn written(&self, node: usize) -> u64 {
        let disk = &self.nodes[node].disk;
        if self.keeps_journal(node) { disk.durable } else { disk.synced }
    }

    /// What of the log is to be written; none if it and the journal have everything.
    pub(crate) fn next_flush(&mut self, node: usize) -> Option<(u64, u64)> {
        let keeps = self.keeps_journal(node);
        let Node { content, disk, .. } = &mut self.nodes[node];
        if !keeps {
            return Some((disk.synced, disk.log.end())).filter(|(from, to)| from < to);
        }
        let writes = disk.durable < content.complete || !content.waiting.is_empty();
        content.writing = content.waiting.len();
        writes.then_some((disk.durable, content.complete.max(disk.durable)))
    }

    /// The log is written up to `to`, and what was given to the journal before. Returns how far
    /// everything is durable.
    pub(crate) fn wrote(&mut self, node: usize, to: u64) -> u64 {
        let keeps = self.keeps_journal(node);
        let Node { content, disk, .. } = &mut self.nodes[node];
        disk.durable = disk.durable.max(to);
        if !keeps {
            return to;
        }
        for (from, to) in content.waiting.drain(..std::mem::take(&mut content.writing)) {
            content.kept.wrote(Lsn(from), Lsn(to));
            disk.journal.push((from, to));
        }
        content.kept.in_log(Lsn(disk.durable));
        disk.journal.retain(|(_, to)| *to > disk.durable);
        content.kept.held(Lsn(disk.durable)).0.max(disk.synced)
    }

    /// `node` ends, or loses power once more: everything up to `sure` is left, and perhaps more.
    pub(crate) fn journal_is_left(&mut self, node: usize, sure: u64) {
        if !self.scenario.forms {
            return;
        }
        let keeps = self.keeps_journal(node);
        let low = !self.dice.one_in(2);
        let Node { content, disk, .. } = &mut self.nodes[node];
        let end = disk.log.end();
        let complete = match (keeps, disk.journal.is_empty()) {
            (true, _) => content.complete.min(end),
            // It has ended before.
            (false, false) => disk.durable.min(end),
            (false, true) => end,
        };
        let mut pieces = std::mem::take(&mut disk.journal);
        pieces.append(&mut content.waiting);
        pieces.sort_unstable();
        let mut log = if low && keeps { disk.durable.min(complete) } else { complete };
        let mut held = continued(&pieces, log).min(end);
        if held < sure {
            log = complete;
            held = continued(&pieces, log).min(end);
        }
        assert!(held >= sure, "node {node} has told of {sure}, and {held} is left");
        pieces.retain(|(_, to)| *to > log);
        pieces.iter_mut().for_each(|(_, to)| *to = held.min(*to));
        disk.log.cut(held);
        (disk.durable, disk.journal, content.composed) = (log, pieces, false);
    }

    /// `node` starts with what is on its disk.
    pub(crate) fn content_begins(&mut self, node: usize) -> Result<(), Violation> {
        if !self.scenario.forms {
            return Ok(());
        }
        let state = &mut self.nodes[node];
        if state.disk.journal.is_empty() {
            state.disk.durable = state.disk.log.end();
        }
        *state.content = Content { complete: state.disk.durable, ..Content::default() };
        if !self.has_content(node) {
            return Ok(());
        }
        let state = &self.nodes[node];
        let (log, end, floor) = (state.disk.durable, state.disk.log.end(), state.disk.floor);
        if state.disk.own_floor && log < floor {
            return Property::Content
                .violated(format!("the log of node {node} ends at {log}, its checkpoint at {floor}"));
        }
        self.compose(node);
        let pause = self.dice.between(3000, 150_000);
        self.later(node, pause, Own::Checkpoint);
        let state = &mut self.nodes[node];
        if !state.content.composed || end <= log {
            return Ok(());
        }
        state.content.kept = Kept::new(Lsn(log), Lsn(end), Lsn(floor));
        let blocks = state.disk.log.between(log, end);
        let ends: Vec<Lsn> = blocks.iter().map(|block| Lsn(block.end())).collect();
        // All of that was acknowledged: there may be no other node any more.
        for block in blocks {
            if let (Some(_), Some(Does::Execute(it, _))) = (block.form, block.does.as_deref())
                && it.snapshot < floor
            {
                return Property::Content.violated(format!(
                    "node {node} starts with a checkpoint that ends at {floor}, and cannot execute block {}, which it \
                     has acknowledged: {it:?}",
                    block.start
                ));
            }
        }
        self.report.journaled += ends.len() as u64;
        self.arrived_before(node, &ends)
    }

    /// `node` leads from the end of its log on.
    pub(crate) fn content_leads(&mut self, node: usize) {
        if !self.scenario.forms {
            return;
        }
        let state = &mut self.nodes[node];
        let end = state.disk.log.end();
        (state.disk.durable, state.content.complete) = (end, end);
        state.disk.journal.clear();
        if !state.content.composed {
            self.compose(node);
        }
    }

    /// `node` writes a checkpoint, or waits until one counts.
    pub(crate) fn own_checkpoint(&mut self, node: usize) {
        if !self.nodes[node].content.composed {
            let pause = self.dice.between(3000, 150_000);
            return self.later(node, pause, Own::Checkpoint);
        }
        let (dice, broken) = (&mut self.dice, self.scenario.broken);
        let asks = !dice.one_in(4);
        let state = &mut self.nodes[node];
        let acknowledged = state.lead().map(|lead| lead.acknowledged);
        let leads = acknowledged.is_some();
        let end = acknowledged.unwrap_or(state.visible);
        let Node { content, disk, .. } = &mut *state;
        let (mut raising, end) = content.raising.take().unwrap_or((Raising::new(Lsn(end)), end));
        let kept = (!leads && broken != Broken::FloorNotRaised).then_some(&mut content.kept);
        let to = raising.begin(kept);
        let counts = if leads { disk.synced >= end } else { disk.durable >= to.0 };
        let pause = if counts || broken == Broken::CheckpointNotWaited {
            (disk.floor, disk.own_floor) = (disk.floor.max(end), true);
            content.asks = asks;
            self.report.checkpoints += 1;
            dice.between(3000, 150_000)
        } else {
            content.raising = Some((raising, end));
            1000
        };
        self.later(node, pause, Own::Checkpoint);
    }
}
