//! What a node is made of at the moment: the only place that knows what a role has, and what each
//! of them does when it is asked.

use std::sync::Arc;

use freshet_log::{
    Log,
    persist::{Medium, Method},
};
use freshet_replication::{
    follow::Watching,
    primary::Primary,
    promotion::{self, PromoteOptions, Promoted},
};

use super::{Node, Role, lead::Lead, mirror::Mirrored, standby::Following};

/// See the module.
pub(super) enum Composition {
    Primary(Lead),
    Standby(Following),
    Mirror(Mirrored),
    /// A failover failed half-way.
    Failed,
    Stopped,
}

impl Composition {
    pub fn role(&self) -> Role {
        match self {
            Self::Primary(_) => Role::Primary,
            Self::Standby(_) => Role::Standby,
            Self::Mirror(_) => Role::Mirror,
            Self::Failed => Role::Failed,
            Self::Stopped => Role::Stopped,
        }
    }

    /// Of a primary.
    pub fn lead(&self) -> Option<&Lead> {
        if let Self::Primary(lead) = self { Some(lead) } else { None }
    }

    /// Of a standby.
    pub fn standby(&self) -> Option<&Following> {
        if let Self::Standby(following) = self { Some(following) } else { None }
    }

    /// Of a mirror.
    pub fn mirror(&self) -> Option<&Mirrored> {
        if let Self::Mirror(mirrored) = self { Some(mirrored) } else { None }
    }

    /// What feeds the standbys of a primary.
    pub fn shipping(&self) -> Option<&Primary> {
        self.lead().map(|lead| &*lead.shipping)
    }

    /// The log, if it keeps one.
    pub fn log(&self) -> Option<&Arc<Log>> {
        self.lead().map(|lead| &lead.log).or(self.standby().map(|following| &following.log))
    }

    /// What lies under the memory that other nodes write into, or under the log's buffer, if that
    /// is persistent memory.
    pub fn persistent_medium(&self) -> Option<(Medium, Method)> {
        match self.mirror() {
            Some(mirrored) => mirrored.mirror.persistent_medium(),
            None => self.log()?.persistent_medium(),
        }
    }

    /// Follows the node at `address` from now on; without effect on one that follows none.
    pub fn follow(&self, address: &str) {
        match self {
            Self::Standby(following) => following.standby.follow(address),
            Self::Mirror(mirrored) => mirrored.mirror.follow(address),
            Self::Primary(_) | Self::Failed | Self::Stopped => {}
        }
    }

    /// Takes over; none if it follows no other.
    pub fn promote(&self, options: &PromoteOptions) -> Option<Result<Promoted, promotion::PromoteError>> {
        match self {
            Self::Standby(following) => Some(following.standby.promote(options)),
            Self::Mirror(mirrored) => Some(mirrored.mirror.promote(options)),
            Self::Primary(_) | Self::Failed | Self::Stopped => None,
        }
    }

    /// Of a node that follows: when it takes its primary for lost.
    pub fn watching(&self) -> Option<Arc<Watching>> {
        match self {
            Self::Standby(following) => Some(following.standby.watching()),
            Self::Mirror(mirrored) => Some(mirrored.mirror.watching()),
            Self::Primary(_) | Self::Failed | Self::Stopped => None,
        }
    }

    /// It is promoted: leads. An error says what went wrong, and what to do.
    pub fn into_lead(self, node: &Node, promoted: &Promoted) -> Result<Self, (String, &'static str)> {
        let (lead, remedy) = match self {
            Self::Standby(following) => (following.into_lead(node, promoted), "restart it without `join`"),
            Self::Mirror(mirrored) => {
                let remedy = "promote another node, or bring the old primary back; or restart this one and promote it \
                              again, if it has mirror.keep-dir, and nothing there is damaged";
                (mirrored.into_lead(node, promoted), remedy)
            }
            Self::Primary(_) | Self::Failed | Self::Stopped => unreachable!("only who follows is promoted"),
        };
        lead.map(Self::Primary).map_err(|why| (why, remedy))
    }

    /// Ends its threads and connections, and closes its log. An error says what went wrong with
    /// that.
    pub fn stop(self) -> Result<(), String> {
        match self {
            Self::Primary(lead) => lead.stop(),
            Self::Standby(following) => following.stop(),
            Self::Mirror(mirrored) => {
                mirrored.mirror.stop();
                Ok(())
            }
            Self::Failed | Self::Stopped => Ok(()),
        }
    }
}
