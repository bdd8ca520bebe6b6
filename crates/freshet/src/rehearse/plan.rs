//! What cluster is rehearsed, and with what: as the command line and a running cluster say.

use std::{path::PathBuf, time::Duration};

use freshet_base::Safety;
use freshet_engine::{
    Failover, LogSettings,
    node::archive::{self, ArchiveConfig, Moment, RestoreConfig},
};
use serde_json::Value;

use super::{RehearseOptions, fault::Fault, print_line};
use crate::{
    Failure,
    throwaway::{Nodes, Plan, net::Net},
    units,
};

/// How long the running cluster may take to answer.
const ASK: Duration = Duration::from_secs(10);
/// How long a node may take until it serves: it may have to load a large backup.
const START: Duration = Duration::from_secs(1800);

/// What comes to the cluster if nothing is named.
const FAULTS: [Fault; 6] =
    [Fault::Kill, Fault::Stop, Fault::SwitchOver, Fault::FullDisk, Fault::DeadDisk, Fault::Power];
/// And where there is a network to cut.
const CUTS: [Fault; 4] = [Fault::Cut, Fault::CutOut, Fault::CutIn, Fault::CutPeer];

/// What is rehearsed.
pub(super) struct Rehearsal {
    pub(super) nodes: usize,
    pub(super) witness: bool,
    pub(super) level: Safety,
    /// Whether nodes take over by themselves. Otherwise the rehearsal promotes.
    pub(super) automatic: bool,
    pub(super) faults: Vec<Fault>,
    /// Those of them that were asked for by name.
    named: Vec<Fault>,
    /// Where other nodes reach the node that gives the backup.
    gives: Option<String>,
}

impl Rehearsal {
    /// As the options say, and for the rest the running cluster, or the defaults.
    pub(super) fn of(options: &RehearseOptions) -> Result<Self, Failure> {
        let running = options.address.as_ref().map(|at| {
            let status = options.shows.connect(at, ASK)?.status(ASK)?;
            Ok::<Value, Failure>(serde_json::from_str(&status)?)
        });
        let running = running.transpose()?.unwrap_or(Value::Null);
        let set = &running["in_sync_set"];
        let level = set["level"].as_str().or_else(|| running["safety"].as_str());
        let level = match (options.level, level) {
            (Some(level), _) => level,
            (None, Some(level)) => level.parse().map_err(|cause| Failure::new(format!("{level}: {cause}")))?,
            (None, None) => Safety::Majority,
        };
        let voters = set["roster"]["voters"].as_array().map(Vec::len).filter(|voters| *voters > 0);
        let nodes = options.nodes.map(usize::from).or(voters).unwrap_or(3);
        if !(2..=9).contains(&nodes) {
            return Err(Failure::new(format!(
                "a failover of {nodes} node(s) cannot be rehearsed: say --nodes, 2 to 9"
            )));
        }
        let witness = options.witness || options.nodes.is_none() && !set["roster"]["witness"].is_null();
        let by = options.failover.unwrap_or(match running["failover"]["by"].as_str() {
            Some("manual") => Failover::Manual,
            _ => Failover::Automatic,
        });
        if let Safety::Quorum(needed) = level
            && needed as usize > nodes
        {
            return Err(Failure::new(format!("{nodes} nodes never commit at {level}: give --level or --nodes")));
        }
        let automatic = by == Failover::Automatic;
        let named = lying(options)?;
        let faults = faults(&named, automatic && !needs_all(level, nodes))?;
        let gives = running["address"].as_str().map(str::to_owned).filter(|_| options.backup.is_none());
        Ok(Self { nodes, witness, level, automatic, faults, named, gives })
    }

    /// Whether nothing commits without each of the nodes.
    pub(super) fn needs_all(&self) -> bool {
        needs_all(self.level, self.nodes)
    }

    /// Whether a primary continues without those that are not in sync. They cannot succeed it then.
    pub(super) fn leaves_out(&self) -> bool {
        self.level.needed(self.nodes as u32).is_none()
    }

    /// The nodes run, and their primary says this: whether they take over by themselves, or what
    /// they lack, as the running cluster would. Then the faults go that only such nodes withstand.
    pub(super) fn settle(&mut self, status: &Value) -> Result<(), Failure> {
        if let Some(lacks) = status["failover"]["lacks"].as_str().filter(|_| self.automatic) {
            print_line(&format!("no node takes over by itself: {lacks}"));
            (self.automatic, self.faults) = (false, faults(&self.named, false)?);
        }
        Ok(())
    }

    /// Makes the nodes; none runs yet. The first one's directory is made from the backup, if there
    /// is one.
    pub(super) fn prepare(&self, options: &RehearseOptions) -> Result<Nodes, Failure> {
        let by = if self.automatic { "automatic" } else { "manual" };
        let mut flags: Vec<_> = ["--safety", &self.level.to_string(), "--failover", by].map(Into::into).into();
        if options.lying_fsync {
            flags.push("--lying-fsync".into());
        }
        let nodes = Nodes::prepare(&Plan {
            prefix: "freshet-rehearsal-",
            base: options.dir.as_deref(),
            nodes: self.nodes,
            witness: self.witness,
            net: self.faults.iter().any(|fault| fault.needs_net()),
            disks: self.faults.iter().any(|fault| fault.disk().is_some()),
            flags,
            start: START,
        })?;
        if let Some(backup) = self.backup(options, &nodes)? {
            let restored = archive::restore(&RestoreConfig {
                backup,
                archive: options.archive.clone(),
                streams: Vec::new(),
                directory: nodes.directory(0),
                moment: Moment::End,
            })?;
            let rows = units::grouped(restored.rows);
            print_line(&format!("restored to LSN {}: {rows} rows of a checkpoint", restored.end.0));
        }
        Ok(nodes)
    }

    /// Where the backup is: the one that is named, or one that is taken now.
    fn backup(&self, options: &RehearseOptions, nodes: &Nodes) -> Result<Option<PathBuf>, Failure> {
        let Some(node) = &self.gives else { return Ok(options.backup.clone()) };
        let directory = nodes.directory(0).with_extension("backup");
        let taken = archive::backup(&ArchiveConfig {
            directory: directory.clone(),
            node: node.clone(),
            token_file: options.token_file.clone(),
            peers: Vec::new(),
            buffer_bytes: LogSettings::default().buffer_bytes,
        })?;
        let (rows, bytes) = (units::grouped(taken.rows), units::bytes(taken.bytes));
        print_line(&format!("a backup of {node} is taken: {rows} rows, {bytes}"));
        Ok(Some(directory))
    }
}

fn needs_all(level: Safety, nodes: usize) -> bool {
    level.needed(nodes as u32).is_some_and(|needed| needed as usize >= nodes)
}

/// What was named; with disks that lie, that is something which shows it.
fn lying(options: &RehearseOptions) -> Result<Vec<Fault>, Failure> {
    match &options.fault[..] {
        [] if options.lying_fsync => Ok(vec![Fault::Power]),
        named if options.lying_fsync && !named.contains(&Fault::Power) => {
            Err(Failure::new("--lying-fsync is noticed when all nodes lose power: add --fault power"))
        }
        named => Ok(named.to_vec()),
    }
}

/// What comes, in turn.
fn faults(named: &[Fault], automatic: bool) -> Result<Vec<Fault>, Failure> {
    let fits = |fault: &Fault| automatic || !fault.leaves_it_alive();
    if let Some(other) = named.iter().find(|fault| !fits(fault)) {
        return Err(Failure::new(format!(
            "--fault {} needs nodes that take over by themselves, and commit without the primary of before",
            other.name()
        )));
    }
    if !named.is_empty() {
        return Ok(named.to_vec());
    }
    let mut faults: Vec<Fault> = FAULTS.into_iter().filter(fits).collect();
    match Net::prepare(1) {
        _ if !automatic => {}
        Ok(_) => faults.extend(CUTS),
        Err(cause) => print_line(&format!("no cable is cut: {cause}")),
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_that_take_over_lose_a_primary_that_lives() {
        assert_eq!(faults(&[], false).unwrap(), [Fault::Kill, Fault::SwitchOver, Fault::Power]);
        assert_eq!(faults(&[Fault::Stop, Fault::Kill], true).unwrap(), [Fault::Stop, Fault::Kill]);
        assert!(faults(&[Fault::CutIn], false).unwrap_err().to_string().contains("--fault cut-in"));
    }
}
