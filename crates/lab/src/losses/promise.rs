//! What may be lost, and what may not: pure, from what was acknowledged and what disks have.
//!
//! | level | an acknowledged commit may be missing on a primary, without `--force`, if |
//! |---|---|
//! | 1-safe | the disk of the node that acknowledged it is lost, or that node could not be asked |
//! | 2-safe | all disks of the in-sync set that it was acknowledged by are lost; or one of them was set back, which it cannot know, and the others are lost or could not be asked |
//! | very-safe | all disks are lost, or were set back or could not be asked |
//! | quorum:K | K disks or more are lost, of nodes that commits wait for; or a disk was set back, which it cannot know, and with those that could not be asked it makes K |
//!
//! A disk is lost when it is emptied or replaced, when its segments are gone, and when a copy from
//! before that commit was put back. Whatever was lost: what a node could be asked for must not be
//! missing, and nor what the primary's own disk had. But what was acknowledged in the second before
//! a copy was made, its disk may not have noted
//! ([`freshet_replication::terms::NOTE_COMMITTED_EVERY`]).

use std::time::Duration;

use super::{
    ledger::{Ack, Book, Id, Sight},
    plan::{Fate, Level, Plan, name},
};

/// A node that has answered for so long could have been asked.
pub(super) const REACHABLE: Duration = Duration::from_secs(2);

/// For so long a node may not have noted that something was acknowledged: it gives that up for a
/// primary that lacks it, and keeps it aside.
const NOTED: Duration = Duration::from_secs(1);

/// Whether a commit may be missing on a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    May(&'static str),
    MustNot(String),
}

/// What is known about a primary that has acknowledged something after the losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lead {
    pub(super) by: usize,
    /// Which of its processes.
    pub(super) process: usize,
    /// When it began to acknowledge.
    pub(super) since: Duration,
    /// Nobody else had acknowledged anything after the losses.
    pub(super) first: bool,
}

impl Lead {
    /// Whether a node could be asked when it began: it was there when the others lost something, or
    /// has been for a while.
    fn could_ask(self, book: &Book, losses: Duration, node: usize) -> bool {
        let reached = |(from, until): &(Duration, Option<Duration>)| {
            (*from <= losses || *from + REACHABLE <= self.since) && until.is_none_or(|until| until >= self.since)
        };
        node != self.by && book.up[node].iter().any(reached)
    }
}

/// Whether a disk was lost for a commit.
fn is_lost(plan: &Plan, book: &Book, node: usize, id: Id) -> bool {
    plan.members[node].fate != Fate::Kept && !book.holds[node].contains(&id)
}

/// Whether `id` may be missing on a primary.
pub(super) fn may_be_missing(plan: &Plan, book: &Book, losses: Duration, lead: Lead, id: Id, ack: &Ack) -> Verdict {
    let holds = |node: &usize| book.holds[*node].contains(&id);
    // A disk that was put back is as old as its copy.
    let knows = |node: &usize| holds(node) && book.copied[*node].is_none_or(|copied| ack.ended + NOTED < copied);
    let all = 0..plan.members.len();
    let asked: Vec<usize> = all.clone().filter(|node| lead.could_ask(book, losses, *node)).collect();
    if let Some(holder) = asked.iter().find(|node| knows(node) && plan.members[**node].form.is_synchronous()) {
        return Verdict::MustNot(format!("node {} has it, and could be asked", name(*holder)));
    }
    if holds(&lead.by) && lead.first {
        return Verdict::MustNot("its own disk had it".to_owned());
    }
    let synchronous = all.filter(|node| {
        let member = plan.members[*node];
        member.form.is_synchronous() && !member.comes_late
    });
    let lost = synchronous.clone().filter(|node| is_lost(plan, book, *node, id)).count();
    let set = synchronous.clone().filter(|node| ack.set >> node & 1 == 1);
    let is_lost = |node: usize| is_lost(plan, book, node, id);
    let set_lost = set.clone().all(is_lost);
    // A log cannot know that it was set back: who knows better has to be there.
    let was_set_back = |node: usize| matches!(plan.members[node].fate, Fate::SetBack | Fate::OlderLog);
    let has_spoken = |node: usize| node == lead.by || book.up[node].iter().any(|(from, _)| *from <= lead.since);
    let votes_wrongly = |node: usize| was_set_back(node) && is_lost(node) && has_spoken(node);
    // These nodes may have it: their disks were not looked at since.
    let is_silent = |node: &usize| !asked.contains(node) || holds(node) && !knows(node);
    let is_gone = |node: &usize| is_lost(*node) || *node != lead.by && is_silent(node);
    // Who has nothing is no candidate.
    let leads = matches!(plan.members[lead.by].fate, Fate::Kept | Fate::SetBack | Fate::OlderLog);
    let misled = |among: &[usize], copies: usize| {
        let gone = among.iter().filter(|node| is_gone(node)).count();
        leads && among.iter().any(|node| votes_wrongly(*node)) && gone >= copies
    };
    let (synchronous, set) = (synchronous.collect::<Vec<_>>(), set.collect::<Vec<_>>());
    let kept = |promise: &str| Verdict::MustNot(format!("{promise}; {lost} disk(s) are lost"));
    match plan.level {
        Level::OneSafe if !holds(&ack.by) => Verdict::May("the disk of its primary is lost"),
        Level::OneSafe => Verdict::May("its primary could not be asked"),
        Level::TwoSafe(_) if set_lost => Verdict::May("all disks of its in-sync set are lost"),
        Level::TwoSafe(_) if misled(&set, set.len()) => {
            Verdict::May("a disk of its in-sync set was set back, and the others of that were away")
        }
        Level::TwoSafe(_) => kept("a member of its in-sync set has it"),
        Level::VerySafe if lost == synchronous.len() => Verdict::May("all disks are lost"),
        Level::VerySafe if misled(&synchronous, synchronous.len()) => {
            Verdict::May("a disk was set back, and the others were away")
        }
        Level::VerySafe => kept("very-safe is on all disks"),
        Level::Quorum(count) if lost >= count as usize => Verdict::May("as many disks are lost as it was on"),
        Level::Quorum(count) if misled(&synchronous, count as usize) => {
            Verdict::May("a disk was set back, and the others that it was on were away")
        }
        Level::Quorum(count) => kept(&format!("it was on {count} disks")),
    }
}

/// The term of each acknowledgement after the losses: a node's process begins one when it
/// acknowledges something.
fn leads(book: &Book, losses: Duration) -> Vec<(&Sight, Lead)> {
    let mut leads: Vec<(&Sight, Lead)> = Vec::new();
    for sight in book.sights.iter().filter(|sight| sight.begun >= losses) {
        let process = book.process(sight.by, sight.begun);
        let same = |(_, lead): &&(&Sight, Lead)| (lead.by, lead.process) == (sight.by, process);
        let lead = leads.iter().find(same).map_or_else(
            || Lead {
                by: sight.by,
                process,
                since: sight.begun,
                first: leads.iter().all(|(_, lead)| lead.by == sight.by),
            },
            |(_, lead)| *lead,
        );
        leads.push((sight, lead));
    }
    leads
}

/// Judges each acknowledgement after the losses: at most one find for each term.
pub(super) fn lost(plan: &Plan, book: &Book, losses: Duration) -> Vec<String> {
    let mut finds: Vec<(Lead, String)> = Vec::new();
    let old = |ack: &&Ack| ack.ended < losses;
    for (sight, lead) in leads(book, losses) {
        if finds.iter().any(|(found, _)| *found == lead) {
            continue;
        }
        // What was acknowledged after the losses is judged by those who show it in the end.
        let missing = sight.missing.iter().filter_map(|id| Some((*id, book.acks.get(id).filter(old)?)));
        let lost = missing.filter_map(|(id, ack)| match may_be_missing(plan, book, losses, lead, id, ack) {
            Verdict::May(_) => None,
            Verdict::MustNot(why) => Some((id, why)),
        });
        let lost: Vec<(Id, String)> = lost.collect();
        let Some((id, why)) = lost.first() else { continue };
        let find = format!(
            "LOST UNFORCED: node {} acknowledges at {:.3} s without {} of {} acknowledged commits, as {id}: {why}",
            name(sight.by),
            sight.ended.as_secs_f64(),
            lost.len(),
            book.acks.values().filter(old).count(),
        );
        finds.push((lead, find));
    }
    finds.into_iter().map(|(_, find)| find).collect()
}

/// Two that acknowledge at once: one still does so when the other has for a while. What founded
/// another cluster is none of them.
pub(super) fn two_primaries(book: &Book, losses: Duration) -> Option<String> {
    let sights: Vec<&Sight> = leads(book, losses).into_iter().map(|(sight, _)| sight).collect();
    for (number, sight) in sights.iter().enumerate() {
        let (before, after) = sights.split_at(number);
        let Some(other) = before.iter().rev().find(|other| other.by != sight.by) else { continue };
        let late = |again: &&&Sight| again.by == other.by && again.begun > sight.ended + REACHABLE;
        let continues = |time| after.iter().any(|later| later.by == sight.by && later.ended > time);
        if let Some(again) = after.iter().find(late).filter(|again| continues(again.begun)) {
            return Some(format!(
                "TWO PRIMARIES: node {} acknowledges at {:.3} s, and node {} still at {:.3} s",
                name(sight.by),
                sight.ended.as_secs_f64(),
                name(again.by),
                again.ended.as_secs_f64()
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::losses::plan::{Kind, Member};

    const LOSSES: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Three nodes with these fates. Commit 1 was acknowledged by node 0 when all were in sync.
    fn world(level: Level, fates: [Fate; 3]) -> (Plan, Book) {
        let mut plan = Plan::draw(100, Some(Kind::Silent));
        plan.level = level;
        plan.members = fates.iter().map(|fate| Member { fate: *fate, lives: false, ..plan.members[0] }).collect();
        let mut book = Book { copied: vec![None; 3], up: vec![Vec::new(); 3], ..Book::default() };
        book.acks.insert(1, Ack { by: 0, begun: at(1), ended: at(2), set: 0b111 });
        for fate in fates {
            let kept = fate == Fate::Kept;
            book.holds.push(if kept { BTreeSet::from([1]) } else { BTreeSet::new() });
        }
        (plan, book)
    }

    /// Node `by` acknowledges something at this time, and shows nothing.
    fn acknowledges(book: &mut Book, by: usize, time: u64, table: bool) {
        book.up[by].push((at(time - 1), None));
        let missing = book.before(at(time)).collect();
        let cluster = if table { String::new() } else { "another".to_owned() };
        book.sights.push(Sight { by, begun: at(time), ended: at(time), missing, table, cluster });
    }

    fn finds(level: Level, fates: [Fate; 3], by: usize) -> usize {
        let (plan, mut book) = world(level, fates);
        acknowledges(&mut book, by, 12, true);
        lost(&plan, &book, LOSSES).len()
    }

    #[test]
    fn each_level_has_its_promise() {
        use Fate::{Emptied, Kept, NoSegments, SetBack};
        assert_eq!(finds(Level::OneSafe, [Kept, Kept, SetBack], 2), 0, "its primary could not be asked");
        assert_eq!(finds(Level::OneSafe, [SetBack, Kept, Kept], 0), 0);
        assert_eq!(finds(Level::TwoSafe(0), [SetBack, Kept, Kept], 0), 0, "nobody can know");
        assert_eq!(finds(Level::TwoSafe(1), [Kept, Emptied, Kept], 1), 1);
        assert_eq!(finds(Level::TwoSafe(0), [Kept, Emptied, Kept], 1), 1);
        assert_eq!(finds(Level::TwoSafe(1), [SetBack, Emptied, NoSegments], 0), 0);
        assert_eq!(finds(Level::VerySafe, [Emptied, Emptied, Kept], 1), 1);
        assert_eq!(finds(Level::VerySafe, [Emptied, Emptied, SetBack], 1), 0);
        assert_eq!(finds(Level::Quorum(2), [Kept, Emptied, Kept], 1), 1);
        assert_eq!(finds(Level::Quorum(2), [SetBack, Emptied, Kept], 1), 0);
        assert_eq!(finds(Level::Quorum(3), [SetBack, Emptied, Kept], 1), 1);
    }

    #[test]
    fn what_could_be_asked_for_must_be_there() {
        for (from, until, found) in [(5, None, 1), (12, None, 0), (9, Some(11), 0), (11, None, 1)] {
            let (plan, mut book) = world(Level::OneSafe, [Fate::SetBack, Fate::Kept, Fate::Kept]);
            book.up[1].push((at(from), until.map(at)));
            acknowledges(&mut book, 0, 13, true);
            assert_eq!(lost(&plan, &book, LOSSES).len(), found, "up from {from} to {until:?}");
        }
    }

    #[test]
    fn the_own_disk_counts() {
        assert_eq!(finds(Level::Quorum(2), [Fate::SetBack, Fate::Emptied, Fate::Kept], 2), 1);
    }

    #[test]
    fn no_new_cluster_is_founded_by_a_node_that_was_emptied() {
        for other in [None, Some((at(1), None))] {
            let (plan, mut book) = world(Level::Quorum(3), [Fate::Emptied, Fate::Kept, Fate::Kept]);
            book.up[1].extend(other);
            acknowledges(&mut book, 0, 12, false);
            assert_eq!(lost(&plan, &book, LOSSES).len(), 1);
        }
    }

    #[test]
    fn a_disk_that_was_set_back_misleads_where_those_who_know_better_are_away() {
        use Fate::{Kept, SetBack};
        for (level, fates, by, found) in [
            (Level::Quorum(2), [Kept, SetBack, Kept], 1, 0),
            (Level::Quorum(2), [Kept, Kept, Kept], 1, 1),
            (Level::Quorum(3), [SetBack, Kept, Kept], 0, 0),
            (Level::VerySafe, [SetBack, Kept, Kept], 0, 0),
            (Level::TwoSafe(1), [Kept, SetBack, Kept], 2, 1),
            (Level::TwoSafe(1), [SetBack, Kept, Kept], 0, 0),
            (Level::TwoSafe(0), [SetBack, Kept, SetBack], 0, 0),
        ] {
            assert_eq!(finds(level, fates, by), found, "{level:?}, {fates:?}");
            // The others are there, and are not asked.
            let (plan, mut book) = world(level, fates);
            (0..3).filter(|node| *node != by).for_each(|node| book.up[node].push((at(1), None)));
            acknowledges(&mut book, by, 12, true);
            assert_eq!(lost(&plan, &book, LOSSES).len(), 1, "{level:?}, {fates:?}");
        }
    }

    #[test]
    fn two_primaries_are_found_and_successors_are_not() {
        for (order, found) in [(&[0, 1, 0, 1][..], true), (&[0, 0, 1, 1], false), (&[0, 1, 0], false)] {
            let (_, mut book) = world(Level::Quorum(2), [Fate::Kept; 3]);
            for (by, time) in order.iter().zip((20..).step_by(3)) {
                acknowledges(&mut book, *by, time, true);
            }
            assert_eq!(two_primaries(&book, LOSSES).is_some(), found, "{order:?}");
        }
    }
}
