//! What a block that is executed reads of the window, and when it is given up.

use std::{sync::Arc, time::Instant};

use freshet_base::{Fid, Lsn, Rid};
use freshet_storage::{LoadError, ReadError};
use freshet_txn::Past;

use super::{
    pending::{Closed, Pending},
    window::Window,
};

/// What a block that is executed reads of the window.
pub(crate) struct Reader {
    pub window: Arc<Window>,
    pub block: Arc<Pending>,
}

impl Past for Reader {
    fn wait(&self, fid: Fid, rid: Rid, below: Lsn) -> Result<(), ReadError> {
        let window = &self.window;
        window.perturb();
        let Some(block) = window.to_come((fid, rid), below) else { return Ok(()) };
        if !window.may_wait() {
            let why = format!("its read set lacks record {} of table {}", rid.0, fid.0);
            return Err(LoadError::Log(why).into());
        }
        window.parks();
        let since = Instant::now();
        let waited = block.wait(|| self.is_over());
        self.block.has_parked(since);
        window.has_waited();
        let stops = |Closed| LoadError::Log("transactions are not executed again any more".into());
        Ok(waited.map_err(stops)?)
    }

    fn is_over(&self) -> bool {
        self.window.is_closed() || self.block.is_cut() || self.block.is_claimed()
    }
}
