//! Whom the nemesis spares: nodes that hold what was acknowledged in memory alone are not killed at
//! once beyond what the cluster's level permits to lose. Such a cluster stands still by design,
//! until an operator forces a promotion, and there would be nothing to check.

use freshet_base::Safety;

use super::cluster::Cluster;

/// How many of `counted` nodes may lose what they hold, and a primary that has its log comes back
/// without force. Under a quorum those who answer have to be more than any who could have
/// acknowledged without them. The other levels have the primary itself in every set of nodes that
/// acknowledge.
fn may_lose(safety: Safety, counted: usize) -> usize {
    let needed = safety.needed(counted as u32);
    needed.map_or(counted, |needed| needed as usize).saturating_sub(1)
}

/// Parts nodes that are to be killed at once: those that are, in their order, and those that are
/// spared. Only the first `may_lose` die of those that are `volatile`.
fn part(nodes: &[usize], volatile: impl Fn(usize) -> bool, may_lose: usize) -> [Vec<usize>; 2] {
    let mut lost = 0;
    let (killed, spared) = nodes.iter().partition(|node| {
        let is_lost = volatile(**node);
        lost += usize::from(is_lost);
        !is_lost || lost <= may_lose
    });
    [killed, spared]
}

impl Cluster<'_> {
    /// Parts nodes into those that may be killed at once and those that are to be spared, by the
    /// strictest of `levels`, which may be in effect. Where not all were in sync (`whole`), what is
    /// missing may have been lost already.
    pub(super) fn spare(&self, nodes: &[usize], whole: bool, levels: &[Safety]) -> [Vec<usize>; 2] {
        let may_lose = levels.iter().map(|level| may_lose(*level, self.shape().counted)).min();
        part(nodes, |node| self.is_volatile(node), may_lose.filter(|_| whole).unwrap_or(0))
    }

    /// Whether what a node holds goes with its process: a mirror's memory does that is in no files,
    /// until the mirror has taken over. One that does not answer may be such a mirror.
    fn is_volatile(&self, node: usize) -> bool {
        let has_log = |node| self.status(node).is_some_and(|it| it["role"] == "primary" || it["role"] == "standby");
        !self.shape().keeps_memory() && node < self.shape().counted && !has_log(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_memory_is_lost_at_once_than_the_level_permits() {
        // Node 0 has a log, and leads; 3 is asynchronous.
        let mirrors = |node| node == 1 || node == 2;
        for (safety, spared) in [
            (Safety::Quorum(2), &[2][..]),
            (Safety::Majority, &[2]),
            (Safety::Quorum(3), &[]),
            (Safety::TwoSafe, &[]),
            (Safety::VerySafe, &[]),
            (Safety::OneSafe, &[1, 2]),
        ] {
            let [_, found] = part(&[3, 1, 2, 0], mirrors, may_lose(safety, 3));
            assert_eq!(found, spared, "{safety}");
        }
        assert_eq!(part(&[1, 0], mirrors, 1), [vec![1, 0], vec![]], "one mirror is what the level permits");
        assert_eq!(part(&[2, 1], mirrors, 1), [vec![2], vec![1]]);
        assert_eq!(part(&[0, 1, 2], mirrors, 0), [vec![0], vec![1, 2]], "not all were in sync");
        assert_eq!(part(&[0, 1, 2], |_| false, 0), [vec![0, 1, 2], vec![]], "all have logs, or keep their memory");
    }
}
