use freshet_base::Term;

use super::{Property, Violation};
use crate::world::World;

impl World {
    /// Node `node` is about to answer node `from`, and to promise it the term `promises`: one that
    /// only comes back must not be promised anything by those who live under another term.
    pub(crate) fn check_taken_back(&self, node: usize, from: usize, promises: Option<Term>) -> Result<(), Violation> {
        let comes_back = self.nodes[from].candidate.as_ref().and_then(|candidate| candidate.comes_back);
        let (Some(term), Some(latest)) = (promises, comes_back) else { return Ok(()) };
        let outranked =
            self.nodes[node].living(self.clock(node)).filter(|lead| lead.outranks(self.nodes[from].id, latest));
        let Some(lead) = outranked else { return Ok(()) };
        let other = &self.nodes[lead.node.0 as usize];
        if !other.leads() || other.lead().is_none_or(|theirs| theirs.term != lead.term) {
            return Ok(());
        }
        Property::TakenBack.violated(format!(
            "node {from} comes back by itself, and node {node} promises it term {term}, though node {} leads in term {}",
            lead.node, lead.term
        ))
    }
}
