//! Authority: the primary sees to it that its cluster has an authority that counts, and has on
//! record by which keys its nodes are known ([`freshet_membership::OnRecord`]).
//!
//! A record says that an authority counts no more: with a node that an operator removes, or by an
//! operator's word alone. When that is in effect, the primary makes the next authority, durably,
//! and records its fingerprint. The others get it when they have noted that ([`crate::renewal`]).
//! A crash or a failover between two of these steps leaves a primary, the same or another, that
//! finds another authority on record than its own, or none: it makes one, and records that.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use freshet_base::NodeId;
use freshet_cluster::{
    commit_rule::Event,
    in_sync::{Fingerprint, Noted},
};

use freshet_membership::fingerprint_of_text;

use super::{
    Primary, Shared,
    on_record::{ON_RECORD, comes_true},
};
use crate::{
    feed::Feeder,
    members::{FROM_ABOVE, MemberStatus},
};

/// Looks so often without being asked to.
const EVERY: Duration = Duration::from_secs(1);

/// Why the authority was not replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RotateError {
    /// This node has no key to replace.
    #[error(
        "this cluster's operator provides its certificates: sign new ones with another authority, give each node its \
         files, and send it SIGHUP"
    )]
    Brought,
    /// It has yet to take effect.
    #[error(
        "the new authority is not on record yet: commits wait for other nodes, or another node has taken over; it \
         comes as soon as that is over: see `freshet status`"
    )]
    NotRecorded,
}

/// The authority thread.
pub(super) fn run(shared: &Shared) {
    let mut reported = String::new();
    while !shared.stopping() && !shared.is_fenced() {
        shared.note_keys(BTreeMap::new());
        match shared.settle_authority() {
            Ok(()) => reported.clear(),
            Err(cause) if cause != reported => {
                tracing::error!(cause, "the cluster's new authority cannot be kept on this node; it tries again");
                reported = cause;
            }
            Err(_) => {}
        }
        shared.authority.sleep(Some(Instant::now() + EVERY));
    }
}

impl Shared {
    /// Makes the authority that counts, or has it recorded, if the record in effect lacks one.
    fn settle_authority(&self) -> Result<(), String> {
        let credentials = &self.who.credentials;
        let (Some(own), Some((generation, authority))) = (credentials.authority(), self.commit.authority()) else {
            return Ok(());
        };
        if authority == Some(own.1) {
            return Ok(());
        }
        let is_next = own.0 > generation || own.0 == generation && authority.is_none();
        if !is_next {
            let next = if authority.is_some() { generation + 1 } else { generation };
            credentials.make_authority(next).map_err(|cause| cause.to_string())?;
            tracing::warn!(
                generation = next,
                term = self.who.term.0,
                "the cluster gets a new authority: certificates of operators and monitors that the one before has \
                 signed count no more"
            );
        }
        if let Some((generation, authority)) = credentials.authority() {
            self.note(&Noted::Made(generation, authority));
        }
        Ok(())
    }

    pub(super) fn note(&self, noted: &Noted) {
        self.commit.note(noted);
        self.apply(Event::Tick);
    }

    /// Has the keys recorded of all nodes that this one knows, and `more`, as far as they are not.
    fn note_keys(&self, more: BTreeMap<NodeId, Fingerprint>) {
        let known = self.commit.places().into_keys().chain(self.commit.voters()).chain(self.commit.witness());
        let known = known.chain(self.feeds.observers().into_iter().map(|observer| observer.node));
        let mut keys = more;
        for node in known.chain([self.who.node]) {
            keys.extend(self.who.credentials.key_of(node).map(|key| (node, key)));
        }
        let (news, changed) = self.commit.unknown_keys(keys);
        for node in changed {
            tracing::warn!(
                %node,
                "a node has come with another key than the one on record, as after it was certified again, with a \
                 token or by an operator; if it was not, another has its id: then remove it"
            );
        }
        if !news.is_empty() {
            self.note(&Noted::Keys(news));
        }
    }

    /// The keys of all nodes, those below relays too, are on record with what comes next. Blocks
    /// for a time that is bounded.
    pub(super) fn note_all_keys(&self) {
        let keys = |status: MemberStatus| Some((status.node, fingerprint_of_text(status.key.as_deref()?)?));
        self.note_keys(self.known_members(FROM_ABOVE).nodes.into_iter().filter_map(keys).collect());
    }

    /// Blocks until the own authority is the one on record, until `deadline` at most.
    pub(super) fn wait_for_authority(&self, deadline: Instant) -> Result<(), RotateError> {
        let is_on_record = || {
            let own = self.who.credentials.authority();
            let known = self.commit.authority().and_then(|(generation, known)| Some((generation, known?)));
            let is_it = own.is_none() || own == known;
            if !is_it {
                self.authority.ring();
            }
            is_it
        };
        if comes_true(deadline, is_on_record) { Ok(()) } else { Err(RotateError::NotRecorded) }
    }
}

impl Primary {
    /// Gives the cluster another authority: what the present one has signed counts no more, but for
    /// nodes whose keys are on record. Returns the generation of the new one. Blocks until that is
    /// on record, ten seconds at most.
    ///
    /// # Errors
    /// [`RotateError`].
    pub fn rotate(&self) -> Result<u64, RotateError> {
        let shared = &self.shared;
        if shared.who.credentials.authority().is_none() {
            return Err(RotateError::Brought);
        }
        let deadline = Instant::now() + ON_RECORD;
        let (before, _) = shared.commit.authority().ok_or(RotateError::NotRecorded)?;
        shared.note_all_keys();
        tracing::warn!(term = shared.who.term.0, "an operator replaces the cluster's authority");
        shared.note(&Noted::Retired);
        let is_retired = || shared.commit.authority().is_some_and(|(generation, _)| generation > before);
        if !comes_true(deadline, is_retired) {
            return Err(RotateError::NotRecorded);
        }
        shared.wait_for_authority(deadline)?;
        Ok(shared.commit.authority().map_or(before, |(generation, _)| generation))
    }
}
