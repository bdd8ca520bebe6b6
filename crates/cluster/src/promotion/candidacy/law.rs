//! What holds before a candidate does something that cannot be taken back.

use freshet_base::NodeId;

use super::{Candidacy, Fetch};

impl Candidacy {
    /// It is about to lead.
    ///
    /// # Panics
    /// When a term may begin that another node has, or has had.
    pub(crate) fn check_lead(&self, term: freshet_base::Term) {
        assert_eq!(term, self.term, "a candidate leads in the term that it has asked for");
        assert_eq!(self.fence.highest(), term, "a candidate has not promised the term to itself");
        assert_eq!(self.fence.holder(), Some(self.me), "a candidate has promised the term to another");
        assert!(self.higher.is_none_or(|higher| higher < term), "somebody has heard of a later term");
        assert!(self.mine.history.last_term() < term, "the candidate's log has the term already");
        let written = self.logs.values().map(|log| log.rank().0).max().unwrap_or_default();
        assert!(written < term, "somebody's log has the term already");
        assert!(!self.logs.contains_key(&self.me), "the candidate has heard itself");
    }

    /// It is about to give up what it has from `cut_at` on, for what `from` has.
    ///
    /// # Panics
    /// When what is acknowledged may be lost.
    pub(crate) fn check_fetch(&self, fetch: &Fetch) {
        let Fetch { from, cut_at, upto } = *fetch;
        assert_ne!(from, self.me, "a candidate fetches from itself");
        let end = |from: NodeId| self.logs.get(&from).filter(|log| log.log).map(|log| log.end);
        assert_eq!(end(from), Some(upto), "{from} has not said that it has this log");
        assert!(cut_at <= upto && cut_at <= self.mine.end, "the logs part behind their ends, at {cut_at}");
        assert!(cut_at >= self.committed(), "acknowledged commits would be cut at {cut_at}");
    }
}
