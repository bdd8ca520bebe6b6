//! The witness of a torture: a process like a node's, which the supervisor starts again, too.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use freshet::{
    Failure,
    children::{Process, WITNESS},
};
use serde_json::Value;

use super::cluster::{Cluster, ENDING, FIRST_START};
use crate::processes::{self, AGAIN_AFTER};

/// Where it is, and its process.
pub(super) struct Witness {
    directory: PathBuf,
    listen: SocketAddr,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    process: Option<Process>,
    wanted: bool,
    stopped: bool,
    not_before: Option<Instant>,
}

impl Witness {
    /// Of a cluster whose nodes are below `directory`; it does not run yet.
    pub(super) fn prepare(directory: &Path, listen: SocketAddr) -> Self {
        Self { directory: directory.join("witness"), listen, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flags(&self, join: SocketAddr) -> Vec<String> {
        let directory = self.directory.display().to_string();
        let (listen, join) = (self.listen.to_string(), join.to_string());
        ["--directory", &directory, "--listen", &listen, "--join", &join].map(str::to_owned).to_vec()
    }

    /// SIGKILL; it stays away until it is [wanted](Self::want) again.
    pub(super) fn kill(&self) {
        let mut state = self.state();
        (state.wanted, state.stopped) = (false, false);
        if let Some(mut process) = state.process.take() {
            process.kill();
        }
    }

    /// SIGSTOP.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        if let Some(process) = &state.process {
            process.pause();
            state.stopped = true;
        }
    }

    /// It is to run, and to continue.
    pub(super) fn want(&self) {
        let mut state = self.state();
        (state.wanted, state.not_before) = (true, None);
        if std::mem::take(&mut state.stopped)
            && let Some(process) = &state.process
        {
            process.resume();
        }
    }
}

impl Cluster<'_> {
    /// Starts the witness, if there is one, and blocks until it answers.
    pub(super) fn start_witness(&self, join: SocketAddr) -> Result<(), Failure> {
        let Some(witness) = &self.witness else { return Ok(()) };
        let (process, ready) = self.spawn(self.names().len(), (WITNESS, &witness.directory), witness.flags(join))?;
        if ready.recv_timeout(FIRST_START).is_err() {
            return Err(Failure::new(format!("the witness does not start: {}", process.messages())));
        }
        let mut state = witness.state();
        (state.process, state.wanted) = (Some(process), true);
        Ok(())
    }

    /// Kills the witness beside another fault, if there is one and the dice say so.
    pub(super) fn kills_witness_too(&self, dice: u64) -> bool {
        let killed = self.witness.as_ref().filter(|_| dice >> 32 & 3 == 0);
        if let Some(witness) = killed {
            self.history.log("SIGKILL the witness, too");
            witness.kill();
        }
        killed.is_some()
    }

    /// Why the witness does not do what it is for, by the status of the primary.
    pub(super) fn check_witness(&self, status: &Value) -> Result<(), String> {
        let votes = status["witness"]["connected"] == true && status["witness"]["votes"] == true;
        if self.witness.is_none() || votes { Ok(()) } else { Err("the witness does not vote".to_owned()) }
    }

    /// Starts the witness again if it has ended; `join` is where a node listens.
    pub(super) fn supervise_witness(&self, join: SocketAddr) {
        let Some(witness) = &self.witness else { return };
        let mut state = witness.state();
        if let Some(status) = state.process.as_mut().and_then(|process| process.ended())
            && let Some(process) = state.process.take()
        {
            self.history.violated(format!("the witness ended by itself ({status}): {}", process.messages()));
        }
        let due = state.not_before.is_none_or(|then| Instant::now() >= then);
        if state.wanted && state.process.is_none() && due {
            match self.spawn(self.names().len(), (WITNESS, &witness.directory), witness.flags(join)) {
                Ok((process, _)) => state.process = Some(process),
                Err(_) => state.not_before = Some(Instant::now() + AGAIN_AFTER),
            }
        }
    }

    /// Keeps what the witness has said, and ends it in order.
    pub(super) fn end_witness(&self) -> Result<(), Failure> {
        let Some(witness) = &self.witness else { return Ok(()) };
        let Some(mut process) = witness.state().process.take() else { return Ok(()) };
        let status = process.stop(ENDING)?;
        processes::keep_messages(&witness.directory.with_extension("messages"), &process, "ended", self.history.now());
        if !status.success() {
            self.history.violated(format!("the witness did not end in order ({status})"));
        }
        Ok(())
    }

    /// Keeps what the witness has said so far.
    pub(super) fn keep_messages_of_witness(&self) {
        let Some(witness) = &self.witness else { return };
        if let Some(process) = &witness.state().process {
            let path = witness.directory.with_extension("messages");
            processes::keep_messages(&path, process, "still there", self.history.now());
        }
    }
}
