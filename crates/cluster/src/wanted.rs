//! What one session waits for beside the level of its node: the same members, counted once more.

use freshet_base::{Lsn, Safety};

use crate::commit_rule::{Member, Place};

/// What a session waits for after a commit that holds as the node is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The standbys that count for this level have it persistently.
    Persistent(Safety),
    /// Readers of the standbys that count for this level see it.
    Visible(Safety),
}

/// A member, and up to where readers see its state; none if it serves no readers, as a mirror.
pub type Shows = (Member, Option<Lsn>);

impl Wanted {
    /// Whether that is so of everything below `until`: of all members that are in sync under 1-safe
    /// and 2-safe, of as many as the level says under the others, of a cluster that has `standbys`.
    /// A member that serves no readers hides nothing from them, and counts when it has persisted
    /// it.
    pub fn holds(self, until: Lsn, standbys: u32, members: &[Shows]) -> bool {
        let has = |(member, visible): &&Shows| match self {
            Self::Persistent(_) => member.acked >= until,
            Self::Visible(_) => visible.unwrap_or(member.acked) >= until,
        };
        let is_in_sync = |(member, _): &&Shows| member.place == Place::InSync && member.connected;
        let count = || members.iter().filter(has).count();
        let (Self::Persistent(safety) | Self::Visible(safety)) = self;
        match safety.needed(standbys.saturating_add(1)) {
            Some(nodes) if self != Self::Visible(Safety::OneSafe) => count() + 1 >= nodes as usize,
            _ => members.iter().filter(is_in_sync).all(|shows| has(&shows)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;

    fn shows(acked: u64, visible: Option<u64>, place: Place, connected: bool) -> Shows {
        let mut member = Member::unknown(Moment(0));
        (member.acked, member.place, member.connected) = (Lsn(acked), place, connected);
        (member, visible.map(Lsn))
    }

    #[test]
    fn members_are_counted_as_the_level_wants() {
        let (here, behind) = (shows(20, Some(20), Place::InSync, true), shows(20, Some(10), Place::InSync, true));
        let out = shows(5, Some(5), Place::Behind, true);
        let all = [here, behind, out];
        let holds = |wanted: Wanted, members: &[Shows]| wanted.holds(Lsn(20), 2, members);
        for (safety, persistent, visible) in [
            (Safety::OneSafe, true, false),
            (Safety::TwoSafe, true, false),
            (Safety::VerySafe, true, false),
            (Safety::Quorum(2), true, true),
            (Safety::Quorum(3), true, false),
            (Safety::Quorum(4), false, false),
        ] {
            assert_eq!(holds(Wanted::Persistent(safety), &all), persistent, "{safety}");
            assert_eq!(holds(Wanted::Visible(safety), &all), visible, "{safety}");
            assert!(holds(Wanted::Visible(safety), &[here; 3]), "{safety}");
        }
        let lost = shows(5, Some(5), Place::InSync, false);
        assert!(holds(Wanted::Visible(Safety::TwoSafe), &[here, lost]), "who is lost does not count");
        assert!(!holds(Wanted::Visible(Safety::VerySafe), &[here, lost]));
    }

    /// It has no readers who could miss what is persistent there.
    #[test]
    fn a_mirror_hides_nothing_from_readers() {
        let mirror = |acked| shows(acked, None, Place::InSync, true);
        let holds = |acked| Wanted::Visible(Safety::TwoSafe).holds(Lsn(20), 1, &[mirror(acked)]);
        assert_eq!([holds(19), holds(20)], [false, true]);
    }
}
