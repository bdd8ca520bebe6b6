//! Switch-over: this primary hands its role to a standby ([`freshet_replication::primary`]).

use freshet_cluster::promotion::is_to_be_unattended;
use freshet_replication::primary::{Primary, SwitchOverError as Failed, SwitchedOver, UnderWay};

pub use freshet_cluster::contest::Next as LeavesTerm;

use super::{Failover, Node, as_primary::OfPrimary};

/// Why the role has not moved.
pub type SwitchOverError = OfPrimary<Failed>;

impl Node {
    /// What a primary does that a node cannot follow before it leads in a later term
    /// ([`freshet_cluster::contest`]), where no person is there to see to that. Never blocks for
    /// long.
    pub fn leaves_contested_term(&self) -> LeavesTerm {
        let unattended = || is_to_be_unattended(self.config.safety, self.terms.get().set.as_ref());
        let contested = self.of_term(Primary::is_contested) == Some(true);
        if !contested || self.config.failover == Failover::Manual || !unattended() {
            return LeavesTerm::Rest;
        }
        self.of_term(Primary::leaves_contested_term).unwrap_or(LeavesTerm::Rest)
    }

    /// No node has taken the role that was offered for that.
    pub fn role_not_taken(&self) {
        if let Ok(shipping) = self.shipping() {
            shipping.role_not_taken();
        }
    }

    /// Hands the role of this primary to the standby `to`, named by its id or by the address where
    /// other nodes reach it; to the one that is nearest where that is `None`. Nothing is lost and
    /// no outcome is open. Blocks until that node leads, or the role stays here: ten seconds for it
    /// to come near, half a second in which transactions wait that would begin.
    ///
    /// # Errors
    /// [`SwitchOverError`]; unless it says otherwise this node continues as before.
    pub fn switch_over(&self, to: Option<&str>) -> Result<SwitchedOver, SwitchOverError> {
        let shipping = self.shipping().map_err(SwitchOverError::NotPrimary)?;
        let core = self.database.core();
        let transactions = || {
            let (open, committing) = core.under_way();
            UnderWay { open, committing }
        };
        Ok(shipping.switch_over(to, &transactions)?)
    }
}
