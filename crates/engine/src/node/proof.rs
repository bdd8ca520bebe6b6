//! What a primary says of its state: the sums over its live records at marks, for all others to
//! compare with their own ([`freshet_storage::identity`]).
//!
//! The sums of a term begin with a mark, and with a sweep of this node's own arrays for the state
//! there, in a thread of its own, beside commits: a snapshot keeps what is needed. From then on
//! they are what commits have counted. They are never those of another node, or of an earlier
//! lead.

use std::{
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use freshet_base::{Lsn, Rid, WaitError};
use freshet_log::{Log, Writer};
use freshet_replication::primary::Primary as Shipping;
use freshet_storage::{
    Participant,
    identity::{Figures, Sums},
};
use freshet_txn::{Core, MarkError};

use super::config::ProofSettings;

/// How often it is looked at whether a mark is due.
const LOOK: Duration = Duration::from_millis(50);
/// This many record ids are swept between two looks whether the log has ended.
const AT_ONCE: u64 = 1 << 16;

/// Makes the marks of a term. Its thread ends with the log.
pub(super) struct Marks {
    core: Arc<Core>,
    log: Arc<Log>,
    writer: Writer,
    participant: Participant,
    settings: ProofSettings,
    shipping: Arc<Shipping>,
}

impl Marks {
    /// Begins. Without a log that others could read, there is nothing to say.
    pub fn begin(
        core: &Arc<Core>,
        (log, shipping): (&Arc<Log>, &Arc<Shipping>),
        settings: &ProofSettings,
    ) -> Result<Option<JoinHandle<()>>, String> {
        if log.is_volatile() {
            return Ok(None);
        }
        let writer = log.writer().map_err(|cause| cause.to_string())?;
        let participant = core.participants.join().map_err(|cause| cause.to_string())?;
        let (core, log) = (Arc::clone(core), Arc::clone(log));
        let (settings, shipping) = (settings.clone(), Arc::clone(shipping));
        let marks = Self { core, log, writer, participant, settings, shipping };
        let thread = std::thread::Builder::new().name("state-proof".into()).spawn(move || marks.run());
        thread.map(Some).map_err(|cause| format!("cannot start a thread: {cause}"))
    }

    fn run(mut self) {
        // What ends it ends the log, and others report that.
        let _ = self.go();
    }

    fn go(&mut self) -> Result<(), MarkError> {
        let mut at = self.log.grown();
        // Where nothing changes there is nothing to compare, but for who has joined since.
        self.wait_while(|grown, _| grown <= at && !self.shipping.awaits_proof())?;
        let (mut mark, mut sums) = self.sweep()?;
        self.write_sums(mark, &mut sums)?;
        loop {
            let ProofSettings { bytes, interval_ms, .. } = self.settings;
            let interval = Duration::from_millis(interval_ms);
            self.wait_while(|grown, waited| {
                let news = grown > at || self.shipping.awaits_proof();
                grown.saturating_sub(at) < bytes && !(news && waited >= interval)
            })?;
            at = self.log.grown();
            let (next, changed) = self.core.mark(&self.log, &mut self.writer)?;
            assert!(mark < next, "the mark {next} comes before {mark}");
            mark = next;
            sums.merge(&changed);
            self.write_sums(mark, &mut sums)?;
        }
    }

    /// Waits while this holds of how far the log has grown by transactions, and of how long that
    /// takes already.
    fn wait_while(&self, holds: impl Fn(u64, Duration) -> bool) -> Result<(), MarkError> {
        let begin = Instant::now();
        while holds(self.log.grown(), begin.elapsed()) {
            self.rest(LOOK)?;
        }
        Ok(())
    }

    fn rest(&self, time: Duration) -> Result<(), MarkError> {
        // No log reaches this LSN: the wait ends when the watermark is closed.
        match self.log.durable_mark().wait(Lsn::MAX, Some(Instant::now() + time)) {
            Err(WaitError::Deadline | WaitError::Interrupted) => Ok(()),
            Ok(_) | Err(WaitError::Closed) => Err(MarkError::Ended),
        }
    }

    /// The sums at a first mark.
    fn sweep(&mut self) -> Result<(Lsn, Sums), MarkError> {
        // Before the mark: from now on nothing goes that is needed there.
        let (guard, _) = self.participant.pin(|| self.core.snapshots.current());
        // What commits have counted by then is part of what is swept.
        let (mark, _) = self.core.mark(&self.log, &mut self.writer)?;
        assert!(mark < self.log.reserved(), "a mark is where no log is");
        let mut sums = Sums::default();
        for table in self.core.catalog.tables_at(mark) {
            let Some(content) = table.content(&guard) else { continue };
            let mut from = Rid(0);
            while from < content.records_end() {
                let to = Rid(from.0 + AT_ONCE);
                sums.add(table.fid(), content.identity_sum(&guard, from, to, mark));
                from = to;
                self.rest(Duration::ZERO)?;
            }
        }
        Ok((mark, sums))
    }

    /// Writes the sums at a mark into the log.
    fn write_sums(&mut self, mark: Lsn, sums: &mut Sums) -> Result<(), MarkError> {
        // A table that was dropped behind the mark may be given up by now.
        sums.keep(&self.core.catalog.ids_at(mark));
        self.writer.note_sums(&Figures::new(mark, sums.iter()).encode())?;
        Ok(())
    }
}
