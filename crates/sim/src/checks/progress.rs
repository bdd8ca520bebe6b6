use super::{Property, Violation};
use crate::world::World;

impl World {
    /// Who leads and is followed by everybody, if there is such a one.
    pub(crate) fn settled(&self) -> Option<usize> {
        let mut leading = (0..self.nodes.len()).filter(|node| self.nodes[*node].leads());
        let primary = leading.next().filter(|_| leading.next().is_none())?;
        let term = self.nodes[primary].lead()?.term;
        let follows = |node: usize| {
            let link = self.nodes[node].link.as_ref();
            let excused = self.is_gone(node) || self.nodes[node].is_witness;
            node == primary || link.is_some_and(|link| link.term == Some(term)) || excused
        };
        ((0..self.nodes.len()).all(follows) && self.witness_votes(primary)).then_some(primary)
    }

    /// Whether everybody holds, and shows, the log of the primary, all of which is committed.
    pub(crate) fn level(&self) -> Option<usize> {
        let primary = self.settled()?;
        let (log, acknowledged) = (&self.nodes[primary].disk.log, self.nodes[primary].lead()?.acknowledged);
        let level = |node: &crate::node::Node| {
            let own = &node.disk.log;
            (own.end(), node.disk.synced, own.digest(own.end())) == (log.end(), log.end(), log.digest(log.end()))
        };
        // A mirror serves no readers.
        let shows = |node: usize| {
            let state = &self.nodes[node];
            node == primary || state.mirror.is_some() || state.visible == acknowledged
        };
        let stays = |node: &usize| !self.is_gone(*node) && !self.nodes[*node].is_witness;
        let mut stay = (0..self.nodes.len()).filter(stays);
        (acknowledged == log.end() && stay.all(|node| level(&self.nodes[node]) && shows(node))).then_some(primary)
    }

    /// Each mirror that belongs to the cluster is as its log says.
    pub(crate) fn check_mirrors(&mut self) -> Result<(), Violation> {
        (0..self.nodes.len()).try_for_each(|node| if self.is_removed(node) { Ok(()) } else { self.check_mirror(node) })
    }

    /// The faults are long over, and not everything is well.
    pub(crate) fn no_progress<T>(&self, what: &str) -> Result<T, Violation> {
        let states: Vec<String> = self.nodes.iter().map(describe).collect();
        Property::Progress.violated(format!("{what}:\n{}", states.join("\n")))
    }
}

fn describe(node: &crate::node::Node) -> String {
    let role = match node.lead() {
        Some(lead) => format!(
            "leads in {}, committed {}, {:?}, set {:?}, to write {:?}, members {:?}",
            lead.term,
            lead.acknowledged,
            lead.rule.standing(),
            lead.rule.in_sync_set(),
            lead.rule.to_write(),
            lead.rule.members().collect::<Vec<_>>()
        ),
        None => format!(
            "follows {:?} ({:?}), candidate {}",
            node.upstream,
            node.link.as_ref().map(|link| link.term),
            node.candidate.is_some()
        ),
    };
    format!(
        "  node {} digest {:?}: {role}; {}feeds {:?}; log {} synced {} replayed {} global {} visible {} fence {:?} set {:?}",
        node.id.0,
        node.disk.log.digest(node.disk.log.end()),
        node.mirror.as_ref().map_or(String::new(), |mirror| mirror.describe()),
        node.host,
        node.disk.log.end(),
        node.disk.synced,
        node.follower.replayed(),
        node.follower.global(),
        node.visible,
        node.disk.terms.fence,
        node.disk.terms.set
    )
}
