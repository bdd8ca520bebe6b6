//! Begin again: a memory that is damaged, or cannot be continued, is kept aside, and the mirror
//! begins with nothing, as another incarnation.

use std::{io, path::PathBuf};

use freshet_cluster::term::TermHistory;

use super::{Shared, memory};
use crate::follow::SessionError;

impl Shared {
    /// What is here is not what was written: it has no vote from now on, and the mirror begins
    /// again, from another node, as soon as one gives what it has. Until then it is kept.
    pub(super) fn condemn(&self, why: String) {
        {
            let mut state = self.state();
            state.mirror_state.silence();
            if state.condemned.is_some() {
                return;
            }
            state.condemned = Some(why.clone());
        }
        tracing::error!(cause = why, "what this mirror holds is damaged: it has no vote, and begins again");
        if let Err(cause) = self.memory().note_damaged() {
            tracing::error!(%cause, "it cannot be noted that a mirror's memory is damaged");
        }
        // Nothing more is acknowledged for it.
        self.follow.leave();
    }

    /// Gives up what is damaged: it is kept aside before.
    pub(super) fn set_aside(&self) -> Result<(), SessionError> {
        if self.state().condemned.is_none() {
            return Ok(());
        }
        let kept = self.keep_aside().map_err(|cause| {
            SessionError::Seed(format!(
                "the memory that is damaged cannot be kept aside: {cause}; see that there is room"
            ))
        })?;
        let path = kept.map(|path| path.display().to_string());
        tracing::warn!(path, "the damaged memory is kept aside until this mirror has everything again");
        self.state().condemned = None;
        Ok(())
    }

    /// No other node writes here any more.
    fn keep_aside(&self) -> io::Result<Option<PathBuf>> {
        let terms = self.terms.get();
        let (reached, history) = (self.committed(&terms), terms.history);
        let (kept, regions) = {
            let mut memory = self.memory();
            (memory.set_aside(history.clone(), reached)?, memory.regions())
        };
        let Some(directory) = self.store.config.aside.as_ref().filter(|_| kept.is_none()) else { return Ok(kept) };
        // That takes a while, and others ask for the status in the meantime.
        memory::write_out(&regions, directory)?;
        self.memory().is_aside(directory.clone(), history, reached);
        Ok(Some(directory.clone()))
    }

    /// Begins again with nothing. What was here has no vote from the first moment on.
    pub(super) fn forget(&self) -> Result<(), SessionError> {
        {
            let mut state = self.state();
            state.mirror_state.silence();
            (state.lacks, state.holds_more) = (None, None);
        }
        self.memory().forget().map_err(|cause| SessionError::Local(format!("no memory for a mirror: {cause}")))?;
        if let Some(cluster) = self.terms.get().cluster {
            self.terms.adopt(cluster, TermHistory::default())?;
        }
        self.state().mirror_state.forgotten();
        Ok(())
    }
}
