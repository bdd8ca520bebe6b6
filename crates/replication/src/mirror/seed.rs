//! Seed: a mirror that has nothing, or nothing that can be continued, begins from a checkpoint of
//! the node that it follows, as a standby with an empty directory does (Query Fresh, section
//! 3.4.4).
//!
//! It asks for that before it joins. The rows go into its slots as they come, without undo: until
//! all are there the memory is its own, and has no superblock, so that a recovery takes it for
//! empty. If the other node has no checkpoint, its log reaches back to the beginning, and the
//! mirror is fed from there.
//!
//! A checkpoint is fuzzy: only with the log from its start up to its end is it a state of the
//! database. So the mirror joins at the start, as a node on which no commit counts, and joins once
//! more when it has reached the end ([`super::MirrorState`]). Before that it answers no
//! candidate, and does not take over whatever it is told.
//!
//! The feeder could read its checkpoint and write the rows here by itself. But a mirror's processor
//! has nothing else to do, a node gives its checkpoint already to every node that asks, and its
//! thread that ships would need a second way of writing. A scan of the feeder's tables would have
//! to hold a snapshot for as long as it takes.

use freshet_base::{ClusterId, Lsn, sync::Arc};
use freshet_mirror::{Filling, NoRoom, Record};

use super::Shared;
use crate::{
    checkpoints::{FetchError, Keeper, KnownLog, fetch},
    follow::SessionError,
    status::Bootstrap,
    wire::{Growing, Purpose},
};

/// Reads checkpoints as they come from other nodes.
pub trait Checkpoints: Send + Sync {
    /// Takes one in, and puts all of its records into `seed`.
    fn keeper<'s, 'a: 's>(&self, seed: &'s mut Seed<'a>) -> Box<dyn Keeper + 's>;
}

/// A checkpoint, as its manifest has it.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// Whose it is.
    pub cluster: ClusterId,
    /// What the sender knows of its log.
    pub known: KnownLog,
    /// The log is needed from here on.
    pub start: Lsn,
    /// With the log up to here it is a state of the database.
    pub end: Lsn,
    /// How long its files are.
    pub bytes: u64,
}

/// A mirror that is being seeded.
pub struct Seed<'a> {
    shared: &'a Shared,
    order: u64,
    begun: Option<(Beginning, Filling)>,
    declined: bool,
    /// Why trying again would change nothing.
    hopeless: Option<String>,
}

impl std::fmt::Debug for Seed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seed({:?})", self.begun)
    }
}

impl Seed<'_> {
    fn wanted(&self) -> bool {
        self.shared.follow.order() == self.order && !self.shared.stopping()
    }

    /// A checkpoint comes: whatever this mirror had, it has no more. One that has less than the
    /// mirror knows to be committed is declined: the log says whether its node has the rest.
    ///
    /// # Errors
    /// Why it cannot be taken in.
    pub fn begin(&mut self, beginning: Beginning) -> Result<(), String> {
        if !self.shared.may_be_given_up(&beginning.known.history, beginning.end) {
            self.decline();
            return Err("it has less than this mirror knows to be committed".into());
        }
        self.shared.set_aside().map_err(|cause| cause.to_string())?;
        self.shared.forget().map_err(|cause| self.never(cause.to_string()))?;
        let memory = self.shared.memory().regions();
        let filling = Filling::new(memory);
        self.shared.state().bootstrap = Some(Bootstrap { done_bytes: 0, of_bytes: beginning.bytes });
        tracing::info!(
            start = beginning.start.0,
            end = beginning.end.0,
            bytes = beginning.bytes,
            "this mirror begins from a checkpoint"
        );
        self.begun = Some((beginning, filling));
        Ok(())
    }

    /// What the other node gives is of no use here. The mirror joins without it.
    pub fn decline(&mut self) {
        self.declined = true;
    }

    /// One of its records; if it comes twice, the last time counts.
    ///
    /// # Errors
    /// Why it cannot be taken in.
    pub fn record(&mut self, record: &Record<'_>) -> Result<(), String> {
        let Some((_, filling)) = &mut self.begun else { return Err("a record came before the manifest".into()) };
        loop {
            let bytes = match filling.put(record) {
                Ok(()) => return Ok(()),
                Err(NoRoom::Arena { bytes }) => bytes,
                Err(why) => return Err(self.never(why.to_string())),
            };
            match self.shared.grow(bytes, Growing::Arenas) {
                Some(arena) => filling.grow(arena),
                None => {
                    let why = self.shared.state().lacks.clone().unwrap_or_default();
                    return Err(self.never(format!("this mirror has no memory for the database: {why}")));
                }
            }
        }
    }

    /// All records are there that lay in this number of bytes of the checkpoint.
    ///
    /// # Errors
    /// When this mirror is to do something else.
    pub fn came(&mut self, bytes: u64) -> Result<(), String> {
        if let Some(bootstrap) = &mut self.shared.state().bootstrap {
            bootstrap.done_bytes += bytes;
        }
        if self.wanted() { Ok(()) } else { Err("it is not wanted any more".into()) }
    }

    fn never(&mut self, why: String) -> String {
        self.hopeless = Some(why.clone());
        why
    }

    /// The checkpoint has come, or not. If it has, the memory continues from its start.
    fn end(mut self, fetched: Result<bool, FetchError>) -> Result<(), SessionError> {
        let bootstrap = self.shared.state().bootstrap.take();
        let is_all = bootstrap.is_none_or(|bootstrap| bootstrap.done_bytes == bootstrap.of_bytes);
        let error = match fetched {
            // A node without a checkpoint has all of the log.
            Ok(false) => return Ok(()),
            Err(_) if self.declined => return Ok(()),
            Ok(true) if is_all => match self.begun.take() {
                Some((beginning, _)) => return self.shared.seeded(beginning),
                None => SessionError::Seed("no manifest came".into()),
            },
            Ok(true) => SessionError::Seed("it is shorter than its manifest says".into()),
            Err(_) if !self.wanted() => SessionError::Interrupted,
            Err(cause) => match (self.hopeless.take(), cause) {
                (Some(why), _) => SessionError::Local(why),
                (None, FetchError::Call(cause)) => cause.into(),
                (None, FetchError::Receive(cause)) => cause.into(),
                (None, cause) => SessionError::Seed(cause.to_string()),
            },
        };
        if self.begun.is_some() {
            self.shared.forget()?;
        }
        Err(error)
    }
}

/// Seeds the mirror from the node at `upstream`, if it has nothing that can be continued.
pub(super) fn seed(shared: &Arc<Shared>, upstream: &str, order: u64) -> Result<(), SessionError> {
    let wants = {
        let state = shared.state();
        state.mirror_state.is_of_no_use() || state.condemned.is_some()
    };
    if !wants {
        return Ok(());
    }
    let hello = shared.hello(Purpose::Checkpoint { consistent: false });
    let mut seed = Seed { shared, order, begun: None, declined: false, hopeless: None };
    // If it is not wanted any more, it is closed already.
    let interruptible = |closer| _ = shared.follow.connected(order, closer);
    let fetched = {
        let mut keeper = shared.store.checkpoints.keeper(&mut seed);
        fetch(&shared.who.credentials, upstream, &hello, shared.config.patience, interruptible, &mut *keeper)
    };
    seed.end(fetched)
}
