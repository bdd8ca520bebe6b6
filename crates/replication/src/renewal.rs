//! Renewal: a node sees to it that its certificate is valid, and is by the authority that counts
//! ([`freshet_membership::OnRecord`]).
//!
//! Each node has the authority's key, and so signs for itself before its certificate ends. When the
//! record names another authority, it asks the nodes that it knows for that, and for a certificate
//! by it: they know it by its key. Connections that there are continue. An archive has no key of an
//! authority, and asks in both cases.
//!
//! A node that the record does not know, such as a witness whose turn has not come, may be a
//! stranger when the authority is another: it looks now and then. Where a member is a process of
//! the same user on the same machine, that certifies it again; elsewhere it takes a token.

use std::{
    io,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::{
    ClusterId, NodeId, Term,
    sync::{Arc, AtomicBool, Mutex, Ordering},
};
use freshet_membership::Credentials;

use crate::{
    bell::Bell,
    endpoint::{CallError, call, enrol},
    wire::{Hello, Purpose, Reply},
};

/// Looks so often.
const EVERY: Duration = Duration::from_millis(500);
/// A node that is not on record looks so often whether it is let in.
const KNOCKS: Duration = Duration::from_secs(2);
/// Another node has this long to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The thread that renews a node's certificate. It ends when this is dropped.
pub struct Renewal {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    credentials: Credentials,
    cluster: ClusterId,
    node: NodeId,
    stopping: AtomicBool,
    bell: Bell,
    troubled: Mutex<Option<String>>,
}

impl std::fmt::Debug for Renewal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Renewal(of {})", self.shared.node)
    }
}

impl Renewal {
    /// Begins. `known` says where other nodes may be, each time that they are asked.
    ///
    /// # Errors
    /// What the system says when no thread can be started.
    pub fn start(
        credentials: Credentials,
        cluster: ClusterId,
        node: NodeId,
        known: impl Fn() -> Vec<String> + Send + 'static,
    ) -> io::Result<Self> {
        let (stopping, bell, troubled) = Default::default();
        let shared = Arc::new(Shared { credentials, cluster, node, stopping, bell, troubled });
        let runs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("renew".into()).spawn(move || runs.run(&known))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What keeps this node from having a certificate of the authority that counts.
    pub fn trouble(&self) -> Option<String> {
        self.shared.troubled.lock().expect("no code panics under this mutex").clone()
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, known: &impl Fn() -> Vec<String>) {
        let mut knocks = Instant::now();
        while !self.stopping.load(Ordering::SeqCst) {
            let mut renewed = self.look(known);
            if renewed.is_ok() && !self.credentials.are_on_record() && knocks <= Instant::now() {
                knocks = Instant::now() + KNOCKS;
                renewed = self.knock(&known());
            }
            let mut troubled = self.troubled.lock().expect("no code panics under this mutex");
            if let Err(cause) = &renewed
                && troubled.is_none()
            {
                tracing::warn!(cause, "this node has yet to get another certificate; it tries again");
            }
            *troubled = renewed.err();
            drop(troubled);
            self.bell.sleep(Some(Instant::now() + EVERY));
        }
    }

    fn look(&self, known: &impl Fn() -> Vec<String>) -> Result<(), String> {
        let credentials = &self.credentials;
        if self.is_to_ask() {
            return self.ask(&known());
        }
        if credentials.are_due() {
            credentials.renew().map_err(|cause| cause.to_string())?;
            tracing::info!(expires = credentials.expire(), "the certificate of this node is renewed");
        }
        Ok(())
    }

    /// Whether another node has to certify this one.
    fn is_to_ask(&self) -> bool {
        !self.credentials.is_current() || self.credentials.are_due() && !self.credentials.can_sign()
    }

    /// Looks whether it is let in, and whether a member nearby certifies it where it is not.
    fn knock(&self, known: &[String]) -> Result<(), String> {
        let mut strangers = Ok(());
        for address in known {
            let cause = match self.call(address, Purpose::Identify) {
                Err(cause) if cause.is_of_strangers() => cause,
                // Who cannot be reached says nothing of the certificate.
                Err(CallError::Connect(_)) => continue,
                _ => return Ok(()),
            };
            let certified = enrol(address, None, Some(self.node), self.credentials.part(), PATIENCE)
                .map_err(|cause| cause.to_string());
            let taken = certified.and_then(|(enrolled, key)| {
                self.credentials.take_enrolled(enrolled, &key).map_err(|cause| cause.to_string())
            });
            match taken {
                Ok(()) => {
                    tracing::info!(address, "a member on this machine has certified this node again");
                    return Ok(());
                }
                Err(why) => strangers = Err(format!("{cause}; {why}")),
            }
        }
        strangers
    }

    fn call(&self, address: &str, purpose: Purpose) -> Result<Reply, CallError> {
        let (cluster, node) = (Some(self.cluster), self.node);
        let hello = Hello { cluster, node, address: String::new(), purpose };
        call(&self.credentials, address, &hello, Term(0), PATIENCE).map(|(reply, _)| reply)
    }

    /// Asks the others, one after the other.
    fn ask(&self, known: &[String]) -> Result<(), String> {
        let mut causes = Vec::new();
        for address in known {
            if self.stopping.load(Ordering::SeqCst) || !self.is_to_ask() {
                return Ok(());
            }
            match self.ask_at(address) {
                Ok(()) => return Ok(()),
                Err(cause) => causes.push(cause),
            }
        }
        Err(if causes.is_empty() { "it knows no other node".into() } else { causes.join("; ") })
    }

    fn ask_at(&self, address: &str) -> Result<(), String> {
        match self.call(address, Purpose::Renew) {
            Ok(Reply::Enrolled(certified)) => {
                let taken = self.credentials.take_certificate(certified);
                taken.map_err(|cause| format!("{address}: {cause}"))?;
                let generation = self.credentials.authority().map(|(generation, _)| generation);
                tracing::info!(address, generation, "another node has certified this one again");
                Ok(())
            }
            Ok(_) => Err(CallError::Unexpected { address: address.to_owned() }.to_string()),
            Err(cause) => Err(cause.to_string()),
        }
    }
}
