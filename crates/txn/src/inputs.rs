//! Inputs: what a transaction was given, for nodes that execute it again.
//!
//! On the primary a transaction executes as always, but its inputs are logged in the place of its
//! records ([`Transaction::log_inputs`]). On a standby it is executed again, as of the LSN that
//! it had ([`Worker::begin_again`], [`Transaction::commit_again`]). When that gives the same state
//! is for the replication scheme to say, and what stands in the inputs as well; here they are
//! bytes. A transaction that was rolled back leaves none: its skip block says nothing. Inputs that
//! stand beside the records are another thing (`record.rs`).
//!
//! A log that lacks records cannot be replayed record by record: restarts, and standbys of other
//! schemes, refuse it.

use freshet_base::{Fid, Lsn, RecordKind, Rid};
use freshet_log::{BlockBuilder, BlockKind};

use crate::{CommitError, Transaction, Worker, plan::Plan};

impl Worker {
    /// Begins a transaction that is executed again: it sees everything below `lsn`, which was its
    /// own. For standbys that execute transactions; nobody else may write there.
    ///
    /// # Panics
    /// When this worker has a transaction already.
    pub fn begin_again(&self, lsn: Lsn) -> Transaction<'_> {
        Transaction::begin_again(self, lsn)
    }
}

impl Transaction<'_> {
    /// Logs `inputs` in the place of what the transaction writes. To be called before the commit. A
    /// transaction that changes tables or carries messages is logged as always.
    pub fn log_inputs(&self, inputs: Vec<u8>) {
        self.worker.state.borrow_mut().inputs = Some(inputs);
    }

    /// Builds the block of a transaction that logs its inputs alone.
    pub(crate) fn build_inputs(
        &self,
        stream: u8,
        builder: &mut BlockBuilder,
    ) -> Result<Option<BlockKind>, CommitError> {
        let state = self.worker.state.borrow();
        let Some(inputs) = state.inputs.as_ref().filter(|_| !state.changes && state.messages.is_empty()) else {
            return Ok(None);
        };
        builder.begin_in(stream);
        let pushed = builder.push(None, Fid::INPUTS, Rid(0), RecordKind::Insert, inputs);
        pushed.map_err(|full| CommitError::TooLarge(full.to_string()))?;
        Ok(Some(BlockKind::Inputs))
    }

    /// Commits a transaction that was begun by [`Worker::begin_again`], at its LSN. `length` is
    /// how many bytes its block takes. Readers see it when the read view has passed that.
    pub fn commit_again(self, length: u64) {
        let worker = self.worker;
        let mut inner = worker.inner.borrow_mut();
        let inner = &mut *inner;
        self.drop_vanished(inner);
        let made = worker.state.borrow().writes.len();
        if let Some(owner) = worker.owner.get() {
            let lsn = self.snapshot();
            worker.core.owners.committing(owner);
            worker.core.owners.lsn(owner, lsn);
            worker.core.owners.decided(owner, true);
            let plan = Plan::of_nothing(length);
            self.enter_tables(lsn, &plan, &inner.builder);
            self.publish(lsn, &plan, &inner.builder);
        }
        self.finished.set(true);
        worker.tidy(inner, &self, made);
    }
}
