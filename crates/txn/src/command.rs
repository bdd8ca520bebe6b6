//! Command logging: a baseline for benchmarks and experiments, and for nothing else (Query Fresh,
//! sections 3.5 and 4.3, "Logical").
//!
//! On the primary a transaction executes as always, but what is logged is what it was told to do
//! ([`Transaction::log_as`]). On a standby it is executed again, as of the stamp that it had
//! ([`Worker::begin_again`], [`Transaction::commit_again`]).
//!
//! That gives the same state where the transactions are equivalent to the order of their stamps,
//! and each is a function of its inputs and of what it reads. So times and random numbers must be
//! inputs. Under isolation level serializable the first holds, and one thread may execute them in
//! the order of stamps. Under snapshot isolation it does not hold in general (the paper says the
//! same): it does where all transactions of a partition come from one worker and keep to their
//! partition, which is how the benchmark runs TPC-C. Then, and only then, partitions may also be
//! executed side by side. What was rolled back leaves no command: its skip block says nothing.
//!
//! A log that holds commands cannot be replayed record by record: restarts, and standbys that were
//! not told to execute commands, refuse it.

use freshet_base::{Fid, RecordKind, Rid, Stamp};
use freshet_log::{BlockBuilder, BlockKind};

use crate::{CommitError, Transaction, Worker, plan::Plan, state::Command};

impl Worker {
    /// Begins a transaction that is executed again: it sees everything below `stamp`, which was its
    /// own. For standbys that execute commands; nobody else may write there.
    ///
    /// # Panics
    /// When this worker has a transaction already.
    pub fn begin_again(&self, stamp: Stamp) -> Transaction<'_> {
        Transaction::begin_again(self, stamp)
    }
}

impl Transaction<'_> {
    /// Logs, in the place of what the transaction writes, that stored procedure `procedure` was
    /// told `inputs`, and that it keeps to `partition`. To be called before the commit. A
    /// transaction that changes tables or carries messages is logged as always.
    ///
    /// # Panics
    /// When `partition` does not fit [`Rid::BITS`].
    pub fn log_as(&self, procedure: u32, partition: u64, inputs: &[u8]) {
        assert!(Rid(partition) <= Rid::MAX, "partitions have {} bits", Rid::BITS);
        let command = Command { procedure, partition, inputs: inputs.to_vec() };
        self.worker.state.borrow_mut().command = Some(command);
    }

    /// Builds the block of a transaction that is logged as a command.
    pub(crate) fn build_command(
        &self,
        stream: u8,
        builder: &mut BlockBuilder,
    ) -> Result<Option<BlockKind>, CommitError> {
        let state = self.worker.state.borrow();
        let Some(command) = state.command.as_ref().filter(|_| !state.changes && state.messages.is_empty()) else {
            return Ok(None);
        };
        builder.begin_in(stream);
        let (procedure, partition) = (Fid(command.procedure), Rid(command.partition));
        let pushed = builder.push(None, procedure, partition, RecordKind::Insert, &command.inputs);
        pushed.map_err(|full| CommitError::TooLarge(full.to_string()))?;
        Ok(Some(BlockKind::Command))
    }

    /// Commits a transaction that was begun by [`Worker::begin_again`], at its stamp. `length` is
    /// how many bytes its block takes. Readers see it when the read view has passed that.
    pub fn commit_again(self, length: u64) {
        let worker = self.worker;
        let mut inner = worker.inner.borrow_mut();
        let inner = &mut *inner;
        self.drop_vanished(inner);
        let made = worker.state.borrow().writes.len();
        if let Some(owner) = worker.owner.get() {
            let stamp = self.snapshot();
            worker.core.owners.committing(owner);
            worker.core.owners.stamp(owner, stamp);
            worker.core.owners.decided(owner, true);
            self.publish(stamp, &Plan::of_nothing(length), &inner.builder);
        }
        self.finished.set(true);
        worker.tidy(inner, &self, made);
    }
}
