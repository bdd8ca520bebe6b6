//! Following a primary without replaying its log: an archive, or a node whose checkpoint is still
//! on its way. No commit counts on an observer; its acknowledgements only keep the primary from
//! removing log too early.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_base::Lsn;
use freshet_log::Log;
use freshet_replication::{
    follow::{FollowConfig, StandbyFabric},
    standby::{ReplayError, ReplayTarget, Standby, StandbyConfig, Starting},
    status::{LinkStatus, OwnStatus},
};

use super::{config::NodeConfig, ground::Ground, start::StartError};

/// What is received need only be kept.
struct NoReplay;

impl ReplayTarget for NoReplay {
    fn replay(&self, _: Lsn, _: Lsn, _: &[Lsn]) -> Result<(), ReplayError> {
        Ok(())
    }

    fn cut(&self, _: Lsn) -> Result<(), ReplayError> {
        Ok(())
    }
}

/// Receives and persists the log, and acknowledges it, but no commit counts on it.
pub(super) struct Observer {
    standby: Standby,
    log: Arc<Log>,
}

impl Observer {
    /// Follows `primary` from `from` on, where the log on `ground` ends.
    ///
    /// # Errors
    /// [`StartError`] when the log or a thread cannot be had. That the primary cannot be reached is
    /// none: it is tried again.
    pub fn start(ground: &Ground, config: &NodeConfig, primary: &str, from: Lsn) -> Result<Self, StartError> {
        let store = ground.store.clone().expect("an observer has a store");
        let (log, receiver) = Log::receive(config.log.buffer_bytes, store, from)?;
        let log = Arc::new(log);
        let who = ground.follower(String::new(), Some(primary.to_owned()));
        let starting = Starting { replayed: from, global: Lsn::ZERO, floor: Lsn::ZERO };
        let fabric = config.fabric.standby()?;
        let settings = StandbyConfig {
            follow: FollowConfig {
                member: false,
                peers: config.peers.clone(),
                fabric: StandbyFabric { appliance: false, ..fabric },
                ..FollowConfig::default()
            },
            saved_tails: ground.directory.as_ref().map(|directory| directory.path().to_owned()),
            ..StandbyConfig::default()
        };
        let filled = (Arc::clone(&log), receiver);
        let standby = Standby::start(who, starting, settings, filled, Arc::new(NoReplay), ground.terms.clone())
            .map_err(|cause| StartError::System(format!("cannot start a standby's threads: {cause}")))?;
        Ok(Self { standby, log })
    }

    /// As things stand.
    pub fn status(&self) -> OwnStatus {
        self.standby.status()
    }

    /// Blocks until the log is persistent here up to `to`. `came` hears now and then how far it is.
    ///
    /// # Errors
    /// Why it never will be.
    pub fn wait_persisted(&self, to: Lsn, came: &impl Fn(Lsn)) -> Result<(), String> {
        loop {
            came(self.log.durable());
            let soon = Instant::now() + Duration::from_millis(100);
            if self.log.wait_persisted(to, Some(soon)).map_err(|cause| cause.to_string())? {
                return Ok(());
            }
            if let LinkStatus::Failed { why } = self.standby.status().link {
                return Err(why);
            }
        }
    }

    /// Ends it, with everything received persistent; returns where the log ends.
    ///
    /// # Errors
    /// What went wrong with the log, now or before.
    pub fn stop(self) -> Result<Lsn, String> {
        let mut receiver = self.standby.into_receiver();
        // Half a transaction is none; the rest would come only if this went on.
        receiver.cut(self.log.transaction_end(receiver.received())).map_err(|cause| cause.to_string())?;
        self.log.close().map_err(|cause| cause.to_string())?;
        Ok(self.log.received().get())
    }
}
