//! The three nodes of the demo.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use freshet_base::{Consent, Lsn};
use freshet_log::inspect::{Finding, Inspection};
use serde_json::Value;

use super::Teller;
pub(crate) use crate::throwaway::{PATIENCE, USER};
use crate::{
    Failure,
    client::Client,
    interruption::Interruption,
    sql_client::Session,
    status::failover::counted,
    throwaway::{Nodes, Plan},
    units,
};

/// Three nodes, and which of them leads.
pub(crate) struct Cluster {
    nodes: Nodes,
    primary: usize,
}

impl Cluster {
    /// Starts a primary and two standbys.
    pub(crate) fn start(base: Option<&Path>, sessions: usize, teller: &Teller) -> Result<Self, Failure> {
        let sessions = sessions.to_string();
        // The demo shows how an operator promotes a node.
        let flags = [("--sql-connections", &*sessions), ("--failover", "manual"), ("--replay-threads", "1")];
        let flags = flags.into_iter().flat_map(|(name, value)| [name.into(), value.into()]).collect();
        let plan = Plan { prefix: "freshet-demo-", base, nodes: 3, flags, start: PATIENCE, ..Plan::default() };
        let mut cluster = Self { nodes: Nodes::prepare(&plan)?, primary: 0 };
        for number in 0..cluster.size() {
            cluster.nodes.start(number, (number > 0).then_some(0))?;
        }
        let it = |number| {
            let (name, pid) = (cluster.name(number), cluster.nodes.pid(number));
            format!("{name} ({}, pid {pid})", cluster.address(number))
        };
        let pids: Vec<String> = (0..cluster.size()).map(it).collect();
        teller.print(format!("three nodes run: primary {}, standbys {} and {}", pids[0], pids[1], pids[2]));
        Ok(cluster)
    }

    /// How many nodes there are, dead or alive.
    pub(crate) fn size(&self) -> usize {
        self.nodes.size()
    }

    /// Which one is the primary.
    pub(crate) fn primary(&self) -> usize {
        self.primary
    }

    /// The standbys that are alive.
    pub(crate) fn standbys(&self) -> Vec<usize> {
        (0..self.size()).filter(|number| *number != self.primary && self.nodes.is_at_work(*number)).collect()
    }

    pub(crate) fn name(&self, number: usize) -> String {
        self.nodes.name(number)
    }

    /// The control port of a node.
    pub(crate) fn address(&self, number: usize) -> &str {
        self.nodes.address(number)
    }

    /// Where its SQL clients connect.
    pub(crate) fn sql_socket(&self, number: usize) -> Result<&Path, Failure> {
        self.nodes.sql_socket(number)
    }

    /// A session with a node.
    pub(crate) fn session(&self, number: usize) -> Result<Session, Failure> {
        self.nodes.session(number)
    }

    pub(crate) fn connect(&self, number: usize) -> Result<Client, Failure> {
        self.nodes.connect(number)
    }

    pub(crate) fn status(&self, number: usize) -> Result<Value, Failure> {
        Ok(serde_json::from_str(&self.connect(number)?.status(PATIENCE)?)?)
    }

    /// Blocks until the primary counts on this many standbys.
    pub(crate) fn wait_in_sync(&self, standbys: usize, interruption: &Interruption) -> Result<(), Failure> {
        let client = self.connect(self.primary)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            interruption.check()?;
            let status: Value = serde_json::from_str(&client.status(PATIENCE)?)?;
            if counted(&status) >= standbys {
                return Ok(());
            }
            if Instant::now() > deadline {
                let messages: Vec<String> =
                    (0..self.size()).map(|node| self.nodes.messages(node)).filter(|it| !it.is_empty()).collect();
                return Err(Failure::new(format!(
                    "the standbys do not come into sync: {status}; the nodes say: {}",
                    messages.join("; ")
                )));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills a node's process with SIGKILL.
    pub(crate) fn kill(&mut self, number: usize) {
        self.nodes.kill(number);
    }

    /// Makes the next living standby the primary; returns its term and where that begins.
    pub(crate) fn promote_next(&mut self) -> Result<(u32, Lsn), Failure> {
        let next = *self.standbys().first().ok_or_else(|| Failure::new("no standby is left"))?;
        let promoted = self.connect(next)?.promote(Consent::Nothing, PATIENCE)?;
        self.primary = next;
        Ok(promoted)
    }

    /// Starts a dead node again, as a standby of the present primary.
    pub(crate) fn restart_as_standby(&mut self, number: usize, teller: &Teller) -> Result<(), Failure> {
        self.nodes.start(number, Some(self.primary))?;
        let (name, primary) = (self.name(number), self.name(self.primary));
        teller.print(format!("{name} is back, on the log it died with, as a standby of {primary}"));
        Ok(())
    }

    /// Prints what became of the end of the old primary's log.
    pub(crate) fn print_saved_tail(&self, number: usize, teller: &Teller) -> Result<(), Failure> {
        let name = self.name(number);
        let status = self.status(number)?;
        let tails = status["saved_tails"].as_array().map_or(&[][..], Vec::as_slice);
        for tail in tails.iter().filter_map(Value::as_str) {
            let mut blocks = 0;
            for finding in Inspection::open(Path::new(tail))? {
                blocks += u64::from(matches!(finding?, Finding::Block { .. }));
            }
            let bytes = units::bytes(std::fs::metadata(tail)?.len());
            teller.print(format!(
                "{name} had {blocks} blocks that no client was told of: they are cut off, and saved in a file of {bytes}"
            ));
        }
        if tails.is_empty() {
            teller.print(format!("{name} had nothing in its log that {} did not have", self.name(self.primary)));
        }
        Ok(())
    }

    /// Ends all nodes cleanly.
    pub(crate) fn stop(mut self, teller: &Teller) {
        let mut clean = 0;
        // Standbys first, so that the primary can still ship what it flushes.
        let mut order = self.standbys();
        order.push(self.primary);
        for number in order {
            clean += usize::from(self.nodes.stop(number));
        }
        teller.print(format!("{clean} nodes have ended cleanly"));
    }
}
