//! What is done to the cables between nodes. They heal with the fault.

use std::time::{Duration, Instant};

use freshet_workloads::random::Random;

use super::{
    fault::Fault,
    nemesis::{Deal, Nemesis},
};
use freshet::{
    Failure,
    throwaway::net::{Way, turn},
};

/// For so long a node is cut off and heals, or its cable is slow, at least.
const WHILE: Duration = Duration::from_secs(3);

impl Nemesis<'_> {
    /// Carries out a fault of cables, which are whole again then.
    pub(super) fn cut(&mut self, deal: &Deal, nodes: [usize; 3]) -> Result<(), Failure> {
        let [primary, standby, other] = nodes;
        let mut random = Random::stream(deal.dice[1], 0);
        let way = [Way::Both, Way::Both, Way::Out, Way::In][random.below(4) as usize];
        let any = if random.below(2) == 0 { primary } else { other };
        match deal.fault {
            Fault::CutPrimary => {
                self.lose(primary, &[], way)?;
                if random.below(4) == 0 {
                    self.sleep(deal.first)?;
                } else {
                    self.replace(primary, standby)?;
                    self.wait_for_load(deal.second)?;
                }
            }
            Fault::CutStandby => {
                self.lose(other, &[], way)?;
                self.sleep(deal.first * 2)?;
            }
            Fault::CutPair => {
                let peers = self.cluster.net.iter().flat_map(|net| net.others(any)).collect::<Vec<_>>();
                let peer = peers[random.below(peers.len() as u64) as usize];
                self.lose(any, &[peer], way)?;
                self.sleep(deal.first * 2)?;
            }
            Fault::Flap => self.flap(any, way, WHILE + deal.first, &mut random)?,
            _ => {
                let how = self.cluster.net.as_ref().map(|net| net.slow(any)).transpose()?;
                self.history.log(&format!("the cable of {} is slow: {}", self.name(any), how.unwrap_or_default()));
                self.sleep(WHILE + deal.first)?;
            }
        }
        self.kill_beside(nodes, deal, &mut random)?;
        self.cluster.heal_net();
        Ok(())
    }

    fn lose(&mut self, end: usize, peers: &[usize], way: Way) -> Result<(), Failure> {
        let name = |end: usize| self.cluster.names().get(end).map_or("the witness", String::as_str);
        let whom: Vec<&str> = peers.iter().copied().map(name).collect();
        let whom = if peers.is_empty() { "all others".to_owned() } else { whom.join(", ") };
        let lost = match way {
            Way::Both => "all is lost",
            Way::Out => "what it sends is lost",
            Way::In => "what it is sent is lost",
        };
        self.history.log(&format!("{} is cut from {whom}: {lost}", name(end)));
        self.done.cuts += 1;
        self.cluster.cut(end, peers, way)
    }

    /// Cuts a node off and heals it, until the time is over.
    fn flap(&mut self, node: usize, way: Way, time: Duration, random: &mut Random) -> Result<(), Failure> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.lose(node, &[], way)?;
            self.sleep(turn(random))?;
            self.history.log(&format!("the cable of {} is whole", self.name(node)));
            self.cluster.heal_net();
            self.sleep(turn(random))?;
        }
        Ok(())
    }

    /// In one of four cases kills one of these, too, which may be back before the cables are.
    fn kill_beside(&mut self, nodes: [usize; 3], deal: &Deal, random: &mut Random) -> Result<(), Failure> {
        let victim = nodes[random.below(3) as usize];
        let back_before = random.below(2) == 0;
        if random.below(4) != 0 {
            return Ok(());
        }
        // Not all are in sync now.
        self.whole = false;
        for node in self.doomed(&[victim]) {
            self.kill(node);
            if back_before {
                self.want(node);
            }
            self.sleep(deal.second)?;
            self.cluster.heal_net();
            self.want(node);
        }
        Ok(())
    }
}
