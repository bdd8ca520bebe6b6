//! Meeting: what becomes of two primaries that learn of one another.
//!
//! The earlier term is over, whatever was acknowledged in it: the later one may have been forced,
//! which is an operator's word. Two terms of one number are another matter. Nodes that do not hear
//! one another may choose the same term, and a directory that was set back, or copied, begins its
//! term twice. At most one of them can have commits that another node holds, unless a failover was
//! forced; so each says what its log holds, and both decide the same by it ([`Claim::meets`]).

use serde::{Deserialize, Serialize};

use crate::term::TermEntry;

/// Who holds what was committed in a term, beside the node that leads. The later ones count more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Acknowledged {
    /// Nothing was committed; or only what the safety level promises for no other node.
    Nothing,
    /// No other node, although the level counts on others: none was left.
    Alone,
    /// Other nodes, of the in-sync set or as a quorum, have acknowledged it.
    ByOthers,
}

/// What a primary says of its term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The term.
    pub term_entry: TermEntry,
    /// What its log holds.
    pub acknowledged: Acknowledged,
}

/// The other of two terms of one number, as the commit rule sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rival {
    /// What its log holds.
    pub acknowledged: Acknowledged,
    /// It continues where neither log holds anything.
    pub is_first: bool,
}

/// Which of two primaries yields: it acknowledges nothing any more, and keeps its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Yields {
    /// The one that says so.
    This,
    /// The one that it has met.
    Other,
    /// Both: an operator has to choose.
    Both,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its term is the earlier one.
    EarlierTerm,
    /// Its log holds less that was acknowledged than the other's.
    HoldsLess,
    /// Nothing that others hold was committed by either, and one of them has to end.
    NeitherHolds,
    /// What others have acknowledged is in both logs.
    BothHold,
    /// Each has committed something that no other node holds.
    Unknown,
}

impl Acknowledged {
    /// What becomes of a term whose log holds this, and of its rival.
    pub fn meets(self, rival: Rival) -> (Yields, Why) {
        let (mine, theirs) = (self, rival.acknowledged);
        match mine {
            _ if mine < theirs => (Yields::This, Why::HoldsLess),
            _ if mine > theirs => (Yields::Other, Why::HoldsLess),
            Self::Nothing if rival.is_first => (Yields::This, Why::NeitherHolds),
            Self::Nothing => (Yields::Other, Why::NeitherHolds),
            Self::Alone => (Yields::Both, Why::Unknown),
            Self::ByOthers => (Yields::Both, Why::BothHold),
        }
    }
}

impl Claim {
    /// This claim, as a rival of `mine`.
    pub fn rivals(&self, mine: &TermEntry) -> Rival {
        let order = |term_entry: &TermEntry| (term_entry.node, term_entry.nonce);
        Rival { acknowledged: self.acknowledged, is_first: order(&self.term_entry) > order(mine) }
    }

    /// Which of the two yields, this one or the `other`, which is another term.
    pub fn meets(&self, other: &Self) -> (Yields, Why) {
        match self.term_entry.term.cmp(&other.term_entry.term) {
            std::cmp::Ordering::Less => (Yields::This, Why::EarlierTerm),
            std::cmp::Ordering::Greater => (Yields::Other, Why::EarlierTerm),
            std::cmp::Ordering::Equal => self.acknowledged.meets(other.rivals(&self.term_entry)),
        }
    }
}

#[cfg(test)]
mod tests {
    use freshet_base::{Lsn, NodeId, Term};

    use super::{Acknowledged::*, *};

    fn claim(term: u32, node: u64, nonce: u64, acknowledged: Acknowledged) -> Claim {
        Claim { term_entry: TermEntry { term: Term(term), start: Lsn(50), node: NodeId(node), nonce }, acknowledged }
    }

    /// Both decide the same, of whatever kind they are.
    #[test]
    fn both_come_to_the_same_end() {
        let mut claims = Vec::new();
        for acknowledged in [Nothing, Alone, ByOthers] {
            for (term, node, nonce) in [(2, 1, 1), (2, 1, 2), (2, 3, 1), (3, 1, 1)] {
                claims.push(claim(term, node, nonce, acknowledged));
            }
        }
        for (one, other) in claims.iter().flat_map(|one| claims.iter().map(move |other| (one, other))) {
            if one.term_entry.is(&other.term_entry) {
                continue;
            }
            let ((here, why), (there, because)) = (one.meets(other), other.meets(one));
            let swapped = match here {
                Yields::This => Yields::Other,
                Yields::Other => Yields::This,
                Yields::Both => Yields::Both,
            };
            assert_eq!((there, because), (swapped, why), "{one:?} and {other:?}");
        }
    }

    #[test]
    fn a_later_term_ends_an_earlier_one_whatever_was_acknowledged() {
        let earlier = claim(2, 1, 1, ByOthers);
        assert_eq!(earlier.meets(&claim(3, 2, 1, Nothing)), (Yields::This, Why::EarlierTerm));
    }

    #[test]
    fn in_one_term_the_one_without_acknowledgements_yields_and_both_only_if_both_have_them() {
        for other in [(1, 2), (2, 1)] {
            let meet = |mine, theirs| claim(2, 1, 1, mine).meets(&claim(2, other.0, other.1, theirs));
            assert_eq!(meet(ByOthers, Nothing), (Yields::Other, Why::HoldsLess));
            assert_eq!(meet(ByOthers, Alone), (Yields::Other, Why::HoldsLess));
            assert_eq!(meet(Nothing, ByOthers), (Yields::This, Why::HoldsLess));
            assert_eq!(meet(ByOthers, ByOthers), (Yields::Both, Why::BothHold));
            // Which of them was right to continue alone, neither can know.
            assert_eq!(meet(Alone, Alone), (Yields::Both, Why::Unknown));
            assert_eq!(meet(Nothing, Nothing), (Yields::This, Why::NeitherHolds));
        }
    }
}
