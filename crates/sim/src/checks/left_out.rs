use freshet_base::{Consent, Lsn};
use freshet_cluster::promotion::{Promotion, Standing};

use super::{Property, Violation};
use crate::world::World;

impl World {
    /// Node `node` was ordered to lead, and is about to. No primary that has promised it the term
    /// loses what clients were told of, unless its own term had ended before.
    pub(crate) fn check_left_out(&self, node: usize, promotion: &Promotion) -> Result<(), Violation> {
        let rules = promotion.rules();
        if rules.standing != Standing::Ordered || rules.consent != Consent::Nothing {
            return Ok(());
        }
        let own = &self.nodes[node].disk;
        let last = own.terms.history.cut(Lsn(own.log.end())).last_term();
        let answered = promotion.inheritance(Lsn(own.log.end())).answered;
        // A disk that was set back since knows nothing of the promise.
        let promised = |other: &&crate::node::Node| {
            answered.contains(&other.id) && other.disk.terms.fence.highest() >= promotion.term()
        };
        for other in self.nodes.iter().filter(promised) {
            // One that leads in a later term gives nothing up.
            let Some(lead) = other.lead().filter(|lead| lead.term < promotion.term()) else { continue };
            let told = lead.acknowledged;
            if other.disk.terms.history.cut(Lsn(told)).last_term() < last {
                continue;
            }
            if own.log.digest(told) != other.disk.log.digest(told) {
                return Property::Acknowledged.violated(format!(
                    "node {node} takes over with a log that lacks some of what node {} has acknowledged up to {told} \
                     in term {}",
                    other.id.0, lead.term
                ));
            }
        }
        Ok(())
    }
}
