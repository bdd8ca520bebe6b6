//! What an operator does where mirrors are.

use std::time::{Duration, Instant};

use freshet_workloads::random::Random;

use super::nemesis::Nemesis;
use freshet::Failure;

/// How long all may take to be in sync after a mirror has taken over.
const MENDING: Duration = Duration::from_secs(30);
/// So often all have to be in sync, one look after the other.
const CALM: u32 = 4;
/// A node that has lacked log for so long does not find it any more.
const LACKING: Duration = Duration::from_secs(1);
/// A primary that has committed nothing in a term that a node has promised to another gives it up
/// within this time, and leads in a later one.
const SHUT_OUT: Duration = Duration::from_secs(6);

impl Nemesis<'_> {
    /// After failovers by mirrors: others begin again with empty directories, as mirrors.
    pub(super) fn mirror_again(&self, random: &mut Random) -> Result<(), Failure> {
        let nodes = 0..self.cluster.shape().counted;
        let mirrors = nodes.clone().filter(|node| self.cluster.is_mirror(*node)).count();
        let missing = self.cluster.shape().mirror_count().saturating_sub(mirrors);
        let (Ok(primary), true) = (self.cluster.is_whole(), missing > 0) else { return Ok(()) };
        let mut others: Vec<usize> = nodes.filter(|node| *node != primary && !self.cluster.is_mirror(*node)).collect();
        random.shuffle(&mut others);
        for node in others.into_iter().take(missing) {
            self.history.log(&format!("{} begins again as a mirror", self.name(node)));
            self.cluster.begin_again(node, primary, true, None)?;
            self.mend()?;
        }
        Ok(())
    }

    /// What an operator has to do where mirrors are: a node that has less than a mirror which took
    /// over begins again with an empty directory. No other fault comes before all are in sync: what
    /// such a node had acknowledged does not count any more. A primary starts again whose term a
    /// node has promised to itself, or to another, that was killed before it led.
    pub(super) fn mend(&self) -> Result<(), Failure> {
        if self.cluster.shape().mirror_count() == 0 {
            return Ok(());
        }
        let deadline = Instant::now() + MENDING;
        let mut lacking: Vec<Option<Instant>> = vec![None; self.cluster.names().len()];
        // A node that lacks log seems to be in sync at times, while it tries to follow.
        let mut calm = 0;
        while calm < CALM && Instant::now() < deadline {
            calm = if self.cluster.is_whole().is_ok() { calm + 1 } else { 0 };
            for (node, lacking) in lacking.iter_mut().enumerate() {
                // Whether anything was lost that must not be, the ledger says.
                if self.cluster.refill(node) {
                    self.history.log(&format!("{} holds more, and gives it up", self.name(node)));
                    calm = 0;
                }
                let (lacks_log, is_shut_out) = (self.cluster.lacks_log(node), self.cluster.is_shut_out(node));
                let primary = self.cluster.primary().filter(|_| lacks_log || is_shut_out);
                let Some(primary) = primary else {
                    lacking.take_if(|_| calm > 0);
                    continue;
                };
                calm = 0;
                let time = if is_shut_out { SHUT_OUT } else { LACKING };
                if lacking.get_or_insert_with(Instant::now).elapsed() < time {
                    continue;
                }
                *lacking = None;
                if is_shut_out {
                    self.history.log(&format!(
                        "{} has promised the term of {} to another, and that starts again",
                        self.name(node),
                        self.name(primary)
                    ));
                    self.cluster.kill(primary);
                    self.want(primary);
                    continue;
                }
                self.history.log(&format!("{} lacks log, and begins again", self.name(node)));
                self.cluster.begin_again(node, primary, false, None)?;
            }
            self.sleep(Duration::from_millis(50))?;
        }
        Ok(())
    }
}
