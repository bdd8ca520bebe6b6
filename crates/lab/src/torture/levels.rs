//! What a commit promises, which an operator changes while the cluster works. Where a change was
//! interrupted, either level may be the one that stays: what depends on it goes by both.

use std::{thread, time::Duration};

use freshet_base::Safety;
use serde_json::Value;

use super::{
    cluster::Cluster,
    nemesis::{Deal, Nemesis},
};
use freshet::{Failure, client::ClientError};

/// How long a primary may take to say whether a level is on record.
const RECORDED: Duration = Duration::from_secs(20);
/// Nodes are killed within this time of the order: a change takes no longer as a rule.
const ON_THE_WAY: u32 = 64;

/// The levels to which a cluster of this many nodes may change, under which any one node that is
/// lost is no matter for a person. Of two, a majority is, unless they have a witness, which has no
/// vote at most other levels.
fn permitted(nodes: usize, witness: bool) -> Vec<Safety> {
    if witness {
        return vec![Safety::Majority, Safety::TwoSafe];
    }
    let counting = (2..=nodes as u32).map(Safety::Quorum).chain((nodes > 2).then_some(Safety::Majority));
    [Safety::TwoSafe, Safety::VerySafe].into_iter().chain(counting).collect()
}

/// The levels that may be in effect, by what a primary says.
fn in_effect(status: &Value) -> Vec<Safety> {
    let level = |name: &str| status[name].as_str()?.parse().ok();
    ["safety", "wanted"].into_iter().filter_map(level).collect()
}

impl Cluster<'_> {
    fn permitted(&self) -> Vec<Safety> {
        permitted(self.shape().counted, self.shape().witness)
    }

    /// The levels that may be in effect: all that there may be, if the primary does not say.
    pub(super) fn levels(&self, primary: usize) -> Vec<Safety> {
        let levels = self.status(primary).map(|status| in_effect(&status));
        levels.filter(|levels| levels.len() == 2).unwrap_or_else(|| self.permitted())
    }

    fn change_level(&self, primary: usize, level: Safety) -> Result<Safety, ClientError> {
        self.client(primary)?.change_level(level, RECORDED)
    }
}

impl Nemesis<'_> {
    /// The primary changes the level. That may be refused, where a node is away, or not come
    /// through in time; what must hold all the same, the checks see.
    pub(super) fn change_level(&mut self, deal: &Deal, primary: usize, standbys: &[usize]) -> Result<(), Failure> {
        let levels = self.cluster.permitted().into_iter();
        let others: Vec<Safety> = levels.filter(|level| !self.levels.contains(level)).collect();
        let Some(level) = others.get((deal.dice[0] >> 8) as usize % others.len().max(1)).copied() else {
            self.history.log(&format!("{deal} is left out: there is no other level"));
            return Ok(());
        };
        // From here on commits may keep to it, or failovers to the one before.
        self.levels.push(level);
        let both = [standbys[0], primary];
        let (away, on_the_way) = match deal.dice[1] % 8 {
            0 => (&both[..1], &both[..0]),
            1 => (&both[..0], &both[..1]),
            2 => (&both[..0], &both[1..]),
            3 => (&both[..0], &both[..]),
            _ => (&both[..0], &both[..0]),
        };
        let [away, on_the_way] = [away, on_the_way].map(|nodes| self.doomed(nodes));
        away.iter().for_each(|node| self.kill(*node));
        self.history.log(&format!("{} is to have the level {level}", self.name(primary)));
        let cluster = self.cluster;
        let outcome = thread::scope(|scope| {
            let changed = scope.spawn(|| cluster.change_level(primary, level));
            if !on_the_way.is_empty() {
                self.sleep(deal.first / ON_THE_WAY)?;
            }
            on_the_way.iter().for_each(|node| self.kill(*node));
            self.sleep(deal.second)?;
            // It may wait for these.
            [&away[..], &on_the_way].concat().iter().for_each(|node| self.want(*node));
            Ok::<_, Failure>(changed.join())
        })?;
        match outcome {
            Ok(Ok(before)) => {
                self.history.log(&format!("the level is {level}, it was {before}"));
                self.done.levels += 1;
            }
            Ok(Err(failure)) => self.history.log(&format!("the level is not {level} yet: {failure}")),
            Err(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_levels_of_a_cluster_have_a_set_that_commits_and_fails_over_with_one_node_away() {
        let [two, three] = [2, 3].map(|nodes| permitted(nodes, false));
        assert_eq!(two, [Safety::TwoSafe, Safety::VerySafe, Safety::Quorum(2)]);
        assert!([Safety::Majority, Safety::Quorum(3)].iter().all(|level| three.contains(level)));
        assert!(!three.contains(&Safety::OneSafe) && !three.contains(&Safety::Quorum(4)));
        assert_eq!(permitted(2, true), [Safety::Majority, Safety::TwoSafe]);
    }

    #[test]
    fn a_change_on_its_way_has_both_levels() {
        let status = json!({ "safety": "very-safe", "wanted": "quorum:2" });
        assert_eq!(in_effect(&status), [Safety::VerySafe, Safety::Quorum(2)]);
        assert_eq!(in_effect(&json!({ "role": "standby" })), []);
    }
}
