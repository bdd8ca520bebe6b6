//! What may be lost, and what may not: pure, from what was acknowledged and what disks have.
//!
//! | level | an acknowledged commit may be missing on a primary, without `--force`, if |
//! |---|---|
//! | 1-safe | the disk of the node that acknowledged it is lost, or that node could not be asked |
//! | 2-safe, least-in-sync 0 | all disks of the in-sync set that it was acknowledged by are lost; or the primary itself was set back, and no node could be asked: that cannot be known |
//! | 2-safe, least-in-sync N | all disks of that set are lost |
//! | very-safe | all disks are lost |
//! | quorum:K | K disks or more are lost, of nodes that commits wait for |
//! | each | an empty directory is started without `--join`, and no other node could be asked: that is a new cluster |
//!
//! A disk is lost when it is emptied or replaced, when its segments are gone, and when a copy from
//! before that commit was put back. Whatever was lost: what a node could be asked for must not be
//! missing, and nor what the primary's own disk had.

use std::time::Duration;

use super::{
    ledger::{Ack, Book, Id, Sight},
    plan::{Fate, Level, Plan, name},
};

/// A node that has answered for so long could have been asked.
pub(super) const REACHABLE: Duration = Duration::from_secs(2);

/// Whether a commit may be missing on a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    May(&'static str),
    MustNot(String),
}

/// What is known about a primary that has acknowledged something after the losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reign {
    pub(super) by: usize,
    /// Which of its processes.
    pub(super) process: usize,
    /// When it began to acknowledge.
    pub(super) since: Duration,
    /// Nobody else had acknowledged anything after the losses.
    pub(super) first: bool,
    /// It has not even the table.
    pub(super) empty: bool,
}

/// Whether a disk was lost for a commit.
fn is_lost(plan: &Plan, book: &Book, node: usize, id: Id) -> bool {
    plan.members[node].fate != Fate::Kept && !book.holds[node].contains(&id)
}

/// Whether `id` may be missing on a primary.
pub(super) fn may_be_missing(plan: &Plan, book: &Book, reign: Reign, id: Id, ack: &Ack) -> Verdict {
    let reachable = |node: &usize| *node != reign.by && book.is_reachable(*node, reign.since, REACHABLE);
    let holds = |node: &usize| book.holds[*node].contains(&id);
    let all = 0..plan.members.len();
    let asked: Vec<usize> = all.clone().filter(reachable).collect();
    if let Some(holder) = asked.iter().find(|node| holds(node) && plan.members[**node].form.is_synchronous()) {
        return Verdict::MustNot(format!("node {} has it, and could be asked", name(*holder)));
    }
    if holds(&reign.by) && reign.first {
        return Verdict::MustNot("its own disk had it".to_owned());
    }
    let nothing = matches!(plan.members[reign.by].fate, Fate::Emptied | Fate::New | Fate::NoSegments)
        || plan.members[reign.by].comes_late;
    if nothing && reign.empty && asked.is_empty() {
        return Verdict::May("a new cluster, with nobody there to ask");
    }
    let synchronous = all.filter(|node| {
        let member = plan.members[*node];
        member.form.is_synchronous() && !member.comes_late
    });
    let lost = synchronous.clone().filter(|node| is_lost(plan, book, *node, id)).count();
    let set_lost =
        synchronous.clone().filter(|node| ack.set >> node & 1 == 1).all(|node| is_lost(plan, book, node, id));
    let set_back = matches!(plan.members[reign.by].fate, Fate::SetBack | Fate::OlderLog);
    let kept = |promise: &str| Verdict::MustNot(format!("{promise}; {lost} disk(s) are lost"));
    match plan.level {
        Level::OneSafe if !holds(&ack.by) => Verdict::May("the disk of its primary is lost"),
        Level::OneSafe => Verdict::May("its primary could not be asked"),
        Level::TwoSafe(_) if set_lost => Verdict::May("all disks of its in-sync set are lost"),
        Level::TwoSafe(0) if set_back && asked.is_empty() => {
            Verdict::May("a primary that was set back, with nobody there to ask")
        }
        Level::TwoSafe(_) => kept("a member of its in-sync set has it"),
        Level::VerySafe if lost == synchronous.count() => Verdict::May("all disks are lost"),
        Level::VerySafe => kept("very-safe is on all disks"),
        Level::Quorum(count) if lost >= count as usize => Verdict::May("as many disks are lost as it was on"),
        Level::Quorum(count) => kept(&format!("it was on {count} disks")),
    }
}

/// The reign of each acknowledgement after the losses: a node's process begins one when it
/// acknowledges something.
fn reigns(book: &Book, losses: Duration) -> Vec<(&Sight, Reign)> {
    let mut reigns: Vec<(&Sight, Reign)> = Vec::new();
    for sight in book.sights.iter().filter(|sight| sight.begun >= losses) {
        let process = book.process(sight.by, sight.begun);
        let same = |(_, reign): &&(&Sight, Reign)| (reign.by, reign.process) == (sight.by, process);
        let reign = reigns.iter().find(same).map_or_else(
            || Reign {
                by: sight.by,
                process,
                since: sight.begun,
                first: reigns.iter().all(|(_, reign)| reign.by == sight.by),
                empty: !sight.table,
            },
            |(_, reign)| *reign,
        );
        reigns.push((sight, reign));
    }
    reigns
}

/// Judges each acknowledgement after the losses: at most one find for each reign.
pub(super) fn lost(plan: &Plan, book: &Book, losses: Duration) -> Vec<String> {
    let mut finds: Vec<(Reign, String)> = Vec::new();
    let old = |ack: &&Ack| ack.ended < losses;
    for (sight, reign) in reigns(book, losses) {
        if finds.iter().any(|(found, _)| *found == reign) {
            continue;
        }
        // What was acknowledged after the losses is judged by those who show it in the end.
        let missing = sight.missing.iter().filter_map(|id| Some((*id, book.acks.get(id).filter(old)?)));
        let lost = missing.filter_map(|(id, ack)| match may_be_missing(plan, book, reign, id, ack) {
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
        finds.push((reign, find));
    }
    finds.into_iter().map(|(_, find)| find).collect()
}

/// Two that acknowledge at once: one still does so when the other has for a while. What founded
/// another cluster is none of them.
pub(super) fn two_primaries(book: &Book, losses: Duration) -> Option<String> {
    let sights: Vec<&Sight> =
        reigns(book, losses).into_iter().filter(|(_, reign)| !reign.empty).map(|(sight, _)| sight).collect();
    for (number, sight) in sights.iter().enumerate() {
        let (before, after) = sights.split_at(number);
        let Some(other) = before.iter().rev().find(|other| other.by != sight.by) else { continue };
        let late = |again: &&&Sight| again.by == other.by && again.begun > sight.ended + REACHABLE;
        let goes_on = |time| after.iter().any(|later| later.by == sight.by && later.ended > time);
        if let Some(again) = after.iter().find(late).filter(|again| goes_on(again.begun)) {
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
