//! The network of a torture whose cables are cut: [`freshet::throwaway::net`].

use std::{fs, path::Path, sync::mpsc::Receiver, time::Duration};

use freshet::{
    Failure,
    children::{Process, Ready},
    throwaway::net::Way,
};
use freshet_membership::{Files, Grant};

use super::{cluster::Cluster, history::Deed};
use crate::processes::STATUS;

/// How long a token is valid.
const HOUR: Duration = Duration::from_secs(3600);

impl Cluster<'_> {
    /// Does it where an end of the network is, if there is one.
    pub(super) fn at<T: Send>(&self, end: usize, deed: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        match &self.net {
            Some(net) => net.at(end, deed),
            None => Ok(deed()),
        }
    }

    /// Starts a process of this program there, which keeps its data in `directory` and joins the
    /// node that listens at `--join`.
    pub(super) fn spawn(
        &self,
        end: usize,
        (runs, directory): (&str, &Path),
        mut flags: Vec<String>,
    ) -> Result<(Process, Receiver<Ready>), Failure> {
        let join = flags.iter().skip_while(|flag| *flag != "--join").nth(1);
        let member = (0..self.names().len()).find(|node| join.is_some_and(|at| *at == self.listens(*node).to_string()));
        if let (Some(member), true) = (member, self.net.is_some() && !Files::in_directory(directory).exist()) {
            // It is of no use any more when that member has stopped, and made again with the next
            // start.
            let token = self.client(member)?.token(Grant::Node(None), HOUR, STATUS)?;
            let file = directory.with_extension("token");
            fs::write(&file, token)?;
            flags.extend(["--member-token-file".to_owned(), file.display().to_string()]);
        }
        let program = std::env::current_exe()?;
        Ok(self.at(end, || Process::spawn_as(runs, &program, flags))??)
    }

    /// Cuts an end from these others, or from all if none are named.
    pub(super) fn cut(&self, end: usize, others: &[usize], way: Way) -> Result<(), Failure> {
        let Some(net) = &self.net else { return Err(Failure::new("there is no network to cut")) };
        let all = net.others(end);
        let others = if others.is_empty() { &all } else { others };
        // The others have one another, unless there is but one.
        let alone = others.iter().copied().filter(|_| others.len() == 1).chain([end]);
        alone.filter(|end| *end < self.names().len()).for_each(|node| self.history.did(node, Deed::Cut));
        net.cut(end, others, way)
    }

    /// All cables are whole and fast.
    pub(super) fn heal_net(&self) {
        let Some(net) = &self.net else { return };
        if let Err(failure) = net.heal() {
            self.history.violated(format!("the network does not heal: {failure}"));
        }
        (0..self.names().len()).for_each(|node| self.history.did(node, Deed::Healed));
    }
}
