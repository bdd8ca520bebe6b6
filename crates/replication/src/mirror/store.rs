//! What a mirror does in its own way: [`Store`].

use std::{convert::Infallible, time::Duration};

use freshet_base::{Lsn, Term, sync::Arc};
use freshet_cluster::{
    entering::Held,
    inputs::Original,
    promising::Promised,
    promotion::{Fetch, LogState},
    term::TermState,
};
use freshet_fabric::tcp::Connection;
use freshet_mirror::FetchedLog;

use super::{MemoryStore, Shared, fetch, receive, seed};
use crate::{
    endpoint::refuse,
    follow::{SessionError, Store},
    members::{self, MemberRole, MemberStatus},
    originals::AskedBlock,
    promotion::{PromoteError, PromoteOptions},
    status::{Lag, MirrorStatus},
    wire::{Continue, Hello, Join, Refusal},
};

impl Store for MemoryStore {
    fn prepare(shared: &Arc<Shared>, upstream: &str, order: u64) -> Result<(), SessionError> {
        if std::mem::take(&mut shared.state().given_up) {
            let end = shared.committed(&shared.terms.get()).0;
            tracing::warn!(end, "this mirror gives up what it holds, as it was told: it begins again");
            shared.forget()?;
        }
        seed::seed(shared, upstream, order)?;
        // There is no checkpoint: the log has everything.
        if shared.state().condemned.is_some() {
            shared.set_aside()?;
            shared.forget()?;
        }
        Ok(())
    }

    fn feed(shared: &Arc<Shared>, upstream: &str, connection: Connection) -> Result<Infallible, SessionError> {
        {
            let mut state = shared.state();
            state.mirror_state.fetched(Lsn::ZERO);
            state.fetched_log = FetchedLog::default();
        }
        receive::feed(shared, upstream, connection).map_err(|error| shared.explain(error))
    }

    fn held(shared: &Shared, state: &TermState) -> Held {
        let mark = shared.memory().mark();
        shared.state().mirror_state.held(mark, state)
    }

    fn holds_more(shared: &Shared, at: Lsn, committed: Lsn) -> SessionError {
        let term = shared.terms.get().history.cut(committed).last_term();
        let refusal = Refusal::MirrorHoldsMore { node: shared.node(), term, end: committed, here: at };
        shared.report_holds_more(&refusal);
        SessionError::Refused(refusal)
    }

    /// What the primary has left there is brought to the end of a batch (Active-Memory, section
    /// 5.2), before this node answers for it, or offers it again.
    fn take_back(shared: &Shared) -> Result<(), SessionError> {
        shared.recovered()
    }

    fn log_state(shared: &Shared) -> LogState {
        let terms = shared.terms.get();
        let committed = shared.committed(&terms);
        let (end, owes) = {
            let state = shared.state();
            (state.mirror_state.reaches(), state.mirror_state.owes())
        };
        let synchronous = shared.is_counted();
        LogState { synchronous, owes, log: false, ..LogState::of(terms, shared.node(), end, committed) }
    }

    fn has_no_vote(shared: &Shared) -> Option<&'static str> {
        if shared.state().condemned.is_some() {
            return Some("what this mirror holds is damaged, and it begins again from another node");
        }
        (!shared.state().mirror_state.has_vote())
            .then_some("this mirror is being filled from a checkpoint, and does not hold all of that yet")
    }

    fn member(shared: &Shared) -> MemberStatus {
        let MirrorStatus { end, lag_bytes, in_sync, .. } = shared.status();
        // How long ago the log went beyond, only the primary knows.
        let lag = lag_bytes.map(|bytes| Lag { bytes, time: (bytes == 0).then_some(Duration::ZERO) });
        MemberStatus { lsn: Some(end), lag, in_sync, ..members::of_itself(shared, MemberRole::Mirror) }
    }

    fn rested(shared: &Shared, options: &PromoteOptions) -> Result<(), String> {
        if let Some(why) = shared.follow.failure() {
            return Err(why);
        }
        shared.is_database()?;
        Self::has_no_vote(shared).filter(|_| !options.consent.is_forced()).map_or(Ok(()), |why| Err(why.to_owned()))
    }

    fn fetch(shared: &Arc<Shared>, from: &str, term: Term, wanted: &Fetch) -> Result<(), SessionError> {
        fetch::fetch(shared, from, term, wanted)
    }

    /// What is here was brought to the end of a batch when the connection ended.
    fn finish(shared: &Shared, _: Duration) -> Result<Lsn, PromoteError> {
        shared.is_database().map(|()| shared.state().mirror_state.end()).map_err(PromoteError::Local)
    }

    /// It ends between transactions.
    fn cut_half(_: &Shared, end: Lsn) -> Result<Lsn, PromoteError> {
        Ok(end)
    }

    fn join(shared: &Arc<Shared>, _: &Hello, _: Join, connection: Connection) {
        refuse(connection, shared.not_primary());
    }

    /// What is here in the place of a block: rows, which may be of a log that has it. Then the
    /// block is not lost, and who lacks it does not give up.
    fn original(shared: &Shared, block: AskedBlock) -> Result<Vec<u8>, Refusal> {
        let state = shared.state();
        let end = state.mirror_state.is_state().then(|| state.mirror_state.end());
        let has = Original::of_mirror(block.end(), end) == Original::Later;
        let why = match has {
            true => {
                "a mirror keeps rows, and no log: it has what this transaction has written, and can be promoted; the \
                 transaction itself comes from a node that has the log"
            }
            false => "a mirror keeps rows, and no log",
        };
        Err(Refusal::NoBlock { why: why.into(), comes: has })
    }

    fn serve_log(shared: &Shared, _: &Hello, _: Promised, _: &Continue, connection: Connection) {
        refuse(connection, Refusal::NoLog { node: shared.node() });
    }
}
