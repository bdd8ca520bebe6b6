//! Looks at how fresh a standby is, without disturbing it much.
//!
//! One thread asks the standby each 20 ms for its read view, and compares it with what the
//! primary's is when the answer arrives: the answer's way back counts against the standby. Another
//! picks LSNs, notes when they are acknowledged on the primary, and when the standby says that
//! they are visible there; the standby answers when that has come about, so nobody polls. The
//! answer's way and the wake-ups on it are part of the figure.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_engine::Node;
use serde::Serialize;

use super::report::Spread;
use freshet::{
    client::{Arrived, Client},
    protocol::{Answer, Ask},
};

/// Between two looks at freshness.
const EVERY: Duration = Duration::from_millis(20);
/// Between two LSNs that are followed.
const FOLLOW: Duration = Duration::from_millis(5);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Two threads that look at one standby.
pub(crate) struct Probe {
    end: Arc<AtomicBool>,
    freshness: JoinHandle<Vec<Look>>,
    visibility: JoinHandle<Vec<f64>>,
}

/// One look at a standby.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Look {
    /// When, in seconds from the first look on.
    pub(crate) seconds: f64,
    /// The standby's read view / the primary's (the score of Query Fresh, section 4.5).
    pub(crate) freshness: f64,
    /// Bytes of log between the two.
    pub(crate) behind_bytes: f64,
}

/// What they saw.
pub(crate) struct Sighted {
    pub(crate) looks: Vec<Look>,
    pub(crate) freshness: Spread,
    pub(crate) behind_bytes: Spread,
    pub(crate) visibility_us: Spread,
}

impl Probe {
    pub(crate) fn start(node: &Arc<Node>, client: &Arc<Client>) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let freshness = {
            let (node, client, end) = (Arc::clone(node), Arc::clone(client), Arc::clone(&end));
            thread::spawn(move || look_at_freshness(&node, &client, &end))
        };
        let visibility = {
            let (node, client, end) = (Arc::clone(node), Arc::clone(client), Arc::clone(&end));
            thread::spawn(move || follow_lsns(&node, &client, &end))
        };
        Self { end, freshness, visibility }
    }

    /// Nothing is looked at any more.
    pub(crate) fn halt(&self) {
        self.end.store(true, Ordering::Relaxed);
    }

    /// What was seen; blocks until a standby that lags shows what was last waited for, ten seconds
    /// at most.
    pub(crate) fn end(self) -> Sighted {
        self.halt();
        let looks = self.freshness.join().unwrap_or_default();
        let visibility = self.visibility.join().unwrap_or_default();
        Sighted {
            freshness: Spread::new(looks.iter().map(|look| look.freshness).collect()),
            behind_bytes: Spread::new(looks.iter().map(|look| look.behind_bytes).collect()),
            looks,
            visibility_us: Spread::new(visibility),
        }
    }
}

fn look_at_freshness(node: &Node, client: &Client, end: &AtomicBool) -> Vec<Look> {
    let mut looks = Vec::new();
    let begun = Instant::now();
    let mut next = begun;
    while !end.load(Ordering::Relaxed) {
        let Ok(watermarks) = client.watermarks(PATIENCE) else { break };
        let primary = node.database().core().snapshots.current();
        let standby = watermarks.visible.min(primary);
        looks.push(Look {
            seconds: begun.elapsed().as_secs_f64(),
            freshness: standby.0 as f64 / primary.0.max(1) as f64,
            behind_bytes: primary.since(standby) as f64,
        });
        next += EVERY;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    looks
}

fn follow_lsns(node: &Node, client: &Client, end: &AtomicBool) -> Vec<f64> {
    let mut microseconds = Vec::new();
    let Some(primary) = node.database().core().snapshots.primary() else { return microseconds };
    while !end.load(Ordering::Relaxed) {
        let lsn = primary.log.reserved();
        let deadline_ms = PATIENCE.as_millis() as u64;
        let (sender, receiver) = mpsc::sync_channel(1);
        let sent = client.send(Ask::WaitVisible { lsn, deadline_ms }, move |arrived| drop(sender.send(arrived)));
        if sent.is_err() || primary.gate.wait(lsn, (Instant::now() + PATIENCE).into()).is_err() {
            break;
        }
        let acknowledged = Instant::now();
        let Ok(Arrived { at, answer: Answer::Visible { .. } }) = receiver.recv_timeout(PATIENCE) else { break };
        microseconds.push(at.saturating_duration_since(acknowledged).as_secs_f64() * 1e6);
        thread::sleep(FOLLOW);
    }
    microseconds
}
