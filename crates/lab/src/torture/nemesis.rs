//! What is done to nodes, by seed: a schedule is drawn before the first deed, and carried out as
//! far as the nodes' state permits.

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

use freshet_base::Safety;
use freshet_workloads::random::Random;

use super::{Fault, cluster::Cluster, history::History, load, witness::Witness};
use freshet::sql_client::Session;
use freshet::{Failure, client::ClientError, interruption::Interruption};

/// How long a failover may take.
const FAILOVER: Duration = Duration::from_secs(30);
/// How long a failover may take that no operator has asked for.
const BY_THEMSELVES: Duration = Duration::from_secs(10);
/// How long a statement may take that changes tables while nodes are away.
const DEFINING: Duration = Duration::from_secs(5);
/// For so long standbys that execute are behind what they have acknowledged.
const LABOUR: Duration = Duration::from_millis(700);
/// A primary has given up after this time what no transaction sees any more.
const FORGETTING: Duration = Duration::from_millis(400);
/// How long there may be no transaction before a fault comes all the same.
const LULL: Duration = Duration::from_secs(3);

/// A fault with its times.
#[derive(Clone, Debug)]
pub(super) struct Deal {
    pub(super) fault: Fault,
    /// The load before it.
    pub(super) before: Duration,
    /// From its beginning to its middle (the failover, the second node), and from there to its
    /// end.
    pub(super) first: Duration,
    pub(super) second: Duration,
    /// Chooses among the nodes that it could be done to.
    pub(super) dice: [u64; 2],
}

impl fmt::Display for Deal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, first, second] = [self.before, self.first, self.second].map(|time| time.as_millis());
        let name = clap::ValueEnum::to_possible_value(&self.fault);
        let name = name.as_ref().map_or("?", |value| value.get_name());
        write!(f, "{name} after {before} ms ({first} + {second} ms)")
    }
}

/// The faults of a round.
pub(super) fn draw(random: &mut Random, kinds: &[Fault]) -> Vec<Deal> {
    let millis = |random: &mut Random, low: u64, high: u64| Duration::from_millis(random.within(low, high));
    let count = random.within(1, 3);
    let mut deals = Vec::new();
    for _ in 0..count {
        // Short and long ones alike: the second that a standby is waited for lies between.
        let longest = [300, 2_500][random.below(2) as usize];
        deals.push(Deal {
            fault: kinds[random.below(kinds.len() as u64) as usize],
            before: millis(random, 50, 800),
            first: millis(random, 0, longest),
            second: millis(random, 0, longest),
            dice: [random.bits(), random.bits()],
        });
    }
    deals
}

/// These nodes, from the one on that the dice choose.
fn rotated(nodes: impl Iterator<Item = usize>, dice: u64) -> Vec<usize> {
    let mut nodes: Vec<usize> = nodes.collect();
    let first = (dice % nodes.len() as u64) as usize;
    nodes.rotate_left(first);
    nodes
}

/// What has happened.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(super) struct Done {
    pub(super) kills: u64,
    pub(super) stops: u64,
    /// How often cables were cut.
    pub(super) cuts: u64,
    pub(super) failovers: u64,
    /// Roles that were handed over.
    pub(super) switch_overs: u64,
    /// Levels that were changed.
    pub(super) levels: u64,
    /// Failovers that the node refused.
    pub(super) refused: u64,
    /// How long each took that no operator asked for, in seconds.
    pub(super) automatic: Vec<f64>,
}

impl Done {
    pub(super) fn add(&mut self, other: &Self) {
        self.kills += other.kills;
        self.stops += other.stops;
        self.cuts += other.cuts;
        self.failovers += other.failovers;
        self.switch_overs += other.switch_overs;
        self.levels += other.levels;
        self.refused += other.refused;
        self.automatic.extend(&other.automatic);
    }
}

/// Who does it.
pub(super) struct Nemesis<'a> {
    pub(super) cluster: &'a Cluster<'a>,
    pub(super) history: &'a History,
    pub(super) interruption: &'a Interruption,
    pub(super) done: Done,
    /// All nodes were in sync before the fault.
    pub(super) whole: bool,
    /// The levels that may be in effect since.
    pub(super) levels: Vec<Safety>,
}

impl<'a> Nemesis<'a> {
    pub(super) fn new(cluster: &'a Cluster<'a>, history: &'a History, interruption: &'a Interruption) -> Self {
        Self { cluster, history, interruption, done: Done::default(), whole: false, levels: Vec::new() }
    }

    pub(super) fn sleep(&self, time: Duration) -> Result<(), Failure> {
        self.interruption.sleep_until(std::time::Instant::now() + time)
    }

    pub(super) fn name(&self, node: usize) -> &str {
        &self.cluster.names()[node]
    }

    pub(super) fn kill(&mut self, node: usize) {
        self.history.log(&format!("SIGKILL {}", self.name(node)));
        self.cluster.kill(node);
        self.done.kills += 1;
    }

    /// Of nodes that are to die at once: those that may.
    pub(super) fn doomed(&self, nodes: &[usize]) -> Vec<usize> {
        let [doomed, spared] = self.cluster.spare(nodes, self.whole, &self.levels);
        for node in spared {
            self.history.log(&format!("{} is spared: too much would go with its memory", self.name(node)));
        }
        doomed
    }

    /// Kills those of them that may die at once, and names these.
    fn kill_at_once(&mut self, nodes: &[usize]) -> Vec<usize> {
        let doomed = self.doomed(nodes);
        doomed.iter().for_each(|node| self.kill(*node));
        doomed
    }

    fn kill_for(&mut self, node: usize, time: Duration) -> Result<(), Failure> {
        self.kill(node);
        self.sleep(time)?;
        self.want(node);
        Ok(())
    }

    pub(super) fn want(&self, node: usize) {
        self.history.log(&format!("{} may start again", self.name(node)));
        self.cluster.want(node);
    }

    fn stop(&mut self, node: usize) {
        self.cluster.stop(node);
        self.history.log(&format!("SIGSTOP {}", self.name(node)));
        self.done.stops += 1;
    }

    fn go_on(&self, node: usize) {
        self.history.log(&format!("SIGCONT {}", self.name(node)));
        self.cluster.go_on(node);
    }

    /// Promotes a node, or the one that it names because that has more, and cannot pass it on.
    fn promote(&mut self, node: usize) -> Option<ClientError> {
        self.history.log(&format!("promote {}", self.name(node)));
        let outcome = self.cluster.promote(node, FAILOVER);
        let failure = self.promoted(node, outcome)?;
        let better = self.cluster.named_in(&failure.to_string());
        let better = better.filter(|better| Some(*better) != self.cluster.primary());
        let Some(better) = better else { return Some(failure) };
        self.history.log(&format!("promote {}, which has more", self.name(better)));
        let outcome = self.cluster.promote(better, FAILOVER);
        self.promoted(better, outcome)
    }

    /// In the place of `lost`, which is away, another node becomes the primary: this one is
    /// promoted, or none is, where nodes do it by themselves. When all were whole, that must not
    /// fail.
    pub(super) fn replace(&mut self, lost: usize, node: usize) -> Result<(), Failure> {
        if !self.cluster.shape().automatic {
            drop(self.promote(node));
            return Ok(());
        }
        let (begun, deadline) = (Instant::now(), Instant::now() + BY_THEMSELVES);
        let new = loop {
            match self.cluster.primary().filter(|primary| *primary != lost) {
                Some(new) => break Some(new),
                None if Instant::now() > deadline => break None,
                None => self.sleep(Duration::from_millis(10))?,
            }
        };
        let Some(new) = new else {
            let name = self.name(lost);
            if self.whole {
                let statuses = self.cluster.statuses();
                self.history
                    .violated(format!("all nodes were in sync, and none takes the place of {name}:\n{statuses}"));
            }
            self.history.log(&format!("no node takes the place of {name}"));
            return Ok(());
        };
        let took = begun.elapsed().as_secs_f64();
        self.history.log(&format!("{} is the primary by itself after {took:.3} s", self.name(new)));
        self.done.failovers += 1;
        self.done.automatic.push(took);
        Ok(())
    }

    /// Promotes a node of a cluster in which all are in sync: that must not fail.
    pub(super) fn promote_of_whole(&mut self, node: usize) {
        if let Some(failure) = self.promote(node) {
            let name = self.name(node);
            self.history.violated(format!("all nodes were in sync, and node {name} did not take over: {failure}"));
        }
    }

    /// Promotes a node, and kills these a while later, whether it has taken over or not.
    fn promote_and_kill(&mut self, node: usize, killed: &[usize], later: Duration) -> Result<(), Failure> {
        self.history.log(&format!("promote {}", self.name(node)));
        let cluster = self.cluster;
        let outcome = thread::scope(|scope| {
            let promotion = scope.spawn(|| cluster.promote(node, FAILOVER));
            let slept = self.sleep(later);
            killed.iter().for_each(|node| self.kill(*node));
            slept.map(|()| promotion.join())
        })?;
        if let Ok(outcome) = outcome {
            self.promoted(node, outcome);
        }
        Ok(())
    }

    /// The primary hands its role to a standby, if there is one beside mirrors; in half of all
    /// cases some of the two are killed on the way. That may fail on a busy machine; what must hold
    /// all the same, the checks see.
    fn switch_over(&mut self, deal: &Deal, primary: usize, standbys: &[usize]) -> Result<(), Failure> {
        let node = *standbys.iter().find(|node| !self.cluster.is_mirror(**node)).unwrap_or(&standbys[0]);
        self.history.log(&format!("{} is to hand its role to {}", self.name(primary), self.name(node)));
        let both = [node, primary];
        let killed = [&both[..0], &both[..0], &both[..0], &both[..1], &both[1..], &both][(deal.dice[1] % 6) as usize];
        let killed = self.doomed(killed);
        let cluster = self.cluster;
        let outcome = thread::scope(|scope| {
            let handed = scope.spawn(|| cluster.switch_over(primary, node, FAILOVER));
            if !killed.is_empty() {
                self.sleep(deal.first / 8)?;
            }
            killed.iter().for_each(|node| self.kill(*node));
            Ok::<_, Failure>(handed.join())
        })?;
        match outcome {
            Ok(Ok(())) => {
                self.history.log(&format!("{} has the role", self.name(node)));
                self.done.switch_overs += 1;
            }
            Ok(Err(failure)) => self.history.log(&format!("{} does not take the role: {failure}", self.name(node))),
            Err(_) => {}
        }
        self.sleep(deal.second)?;
        killed.iter().for_each(|node| self.want(*node));
        Ok(())
    }

    fn promoted(&mut self, node: usize, outcome: Result<u32, ClientError>) -> Option<ClientError> {
        match outcome {
            Ok(term) => {
                self.history.log(&format!("{} is the primary of term {term}", self.name(node)));
                self.done.failovers += 1;
                None
            }
            Err(failure) => {
                self.history.log(&format!("{} is not: {failure}", self.name(node)));
                self.done.refused += 1;
                Some(failure)
            }
        }
    }

    /// Lets the load do something before the next fault.
    pub(super) fn wait_for_load(&self, time: Duration) -> Result<(), Failure> {
        let (before, begun) = (self.history.acknowledged(), self.history.now());
        self.sleep(time)?;
        while self.history.acknowledged() < before + 5 && self.history.now() < begun + time + LULL {
            self.sleep(Duration::from_millis(10))?;
        }
        Ok(())
    }

    /// Logs what is about to come, and notes whether all is well before it.
    fn begin(&mut self, deal: &Deal, primary: usize) {
        self.history.log(&format!("{deal}; {} is the primary", self.name(primary)));
        self.whole = self.cluster.is_whole().is_ok() && !self.cluster.kills_witness_too(deal.dice[1]);
        self.levels = self.cluster.levels(primary);
    }

    /// Does it; returns when it is over, with everybody who was stopped or killed on the way back.
    pub(super) fn deal(&mut self, deal: &Deal) -> Result<(), Failure> {
        self.wait_for_load(deal.before)?;
        let Some(primary) = self.cluster.primary() else {
            self.history.log(&format!("{deal} is left out: there is no primary"));
            return Ok(());
        };
        // Which node comes first is chosen by seed, and so is who comes back first of several.
        let all = 0..self.cluster.names().len();
        let others = rotated(all.filter(|node| *node != primary), deal.dice[0]);
        if others.iter().any(|node| !self.cluster.is_at_work(*node)) {
            self.history.log(&format!("{deal} is left out: a node is away"));
            return Ok(());
        }
        let counted = 0..self.cluster.shape().counted;
        let standbys = rotated(counted.filter(|node| *node != primary), deal.dice[0]);
        let (standby, third) = (standbys[0], *standbys.last().unwrap_or(&standbys[0]));
        self.begin(deal, primary);
        match deal.fault {
            Fault::KillPrimary => self.kill_for(primary, deal.first)?,
            Fault::KillStandby => self.kill_for(others[0], deal.first)?,
            Fault::StopPrimary | Fault::StopStandby => {
                let node = if deal.fault == Fault::StopPrimary { primary } else { others[0] };
                self.stop(node);
                self.sleep(deal.first)?;
                self.go_on(node);
            }
            Fault::Failover => {
                self.kill(primary);
                self.sleep(deal.first)?;
                self.replace(primary, standby)?;
                self.sleep(deal.second)?;
                self.want(primary);
            }
            Fault::FailoverAtOnce => {
                // The dead one is back while another takes over.
                self.kill(primary);
                self.want(primary);
                self.sleep(deal.first / 4)?;
                self.promote(standby);
            }
            Fault::Depose => {
                self.stop(primary);
                self.sleep(deal.first / 4)?;
                self.replace(primary, standby)?;
                self.wait_for_load(deal.second)?;
                self.go_on(primary);
            }
            Fault::DeposeAndKill => {
                self.stop(primary);
                self.replace(primary, standby)?;
                self.wait_for_load(deal.first)?;
                self.go_on(primary);
                self.sleep(deal.second / 8)?;
                self.kill(primary);
                self.want(primary);
            }
            Fault::Promote => {
                match self.cluster.is_whole() {
                    Ok(_) => self.promote_of_whole(standby),
                    Err(_) => drop(self.promote(standby)),
                }
                self.sleep(deal.first)?;
            }
            Fault::KillTwo => {
                let mut both = [primary, standby];
                both.rotate_left((deal.dice[1] % 2) as usize);
                for (node, time) in self.kill_at_once(&both).iter().zip([deal.first, deal.second]) {
                    self.sleep(time)?;
                    self.want(*node);
                }
            }
            Fault::KillAll => {
                let all: Vec<usize> = others.iter().copied().chain([primary]).collect();
                let mut all = self.kill_at_once(&all);
                let turn = (deal.dice[1] % all.len().max(1) as u64) as usize;
                all.rotate_left(turn);
                for node in all {
                    self.sleep(deal.first / 4)?;
                    self.want(node);
                }
            }
            Fault::StopAndKill => {
                self.stop(third);
                self.sleep(deal.first)?;
                self.kill(primary);
                self.sleep(deal.second)?;
                self.want(primary);
                self.go_on(third);
            }
            Fault::KillCandidate => {
                let killed = self.doomed(&[standby]);
                self.kill(primary);
                self.promote_and_kill(standby, &killed, deal.first / 8)?;
                self.sleep(deal.second)?;
                [&killed[..], &[primary]].concat().iter().for_each(|node| self.want(*node));
            }
            Fault::PromoteAndKill => {
                let both = [standby, primary];
                let killed = self.doomed([&both[..1], &both[1..], &both][(deal.dice[1] % 3) as usize]);
                self.promote_and_kill(standby, &killed, deal.first / 8)?;
                self.sleep(deal.second)?;
                killed.iter().for_each(|node| self.want(*node));
            }
            Fault::SwitchOver => self.switch_over(deal, primary, &standbys)?,
            Fault::BeginAgain => self.empty_one(deal, primary, &standbys)?,
            Fault::LosePrimary => self.lose_primary(deal, primary, &others)?,
            Fault::Define => {
                self.kill(others[0]);
                self.define(deal, primary);
                self.sleep(deal.first / 4)?;
                self.want(others[0]);
            }
            Fault::Level => self.change_level(deal, primary, &standbys)?,
            Fault::KillWitness | Fault::StopWitness => self.without_witness(deal)?,
            _ => self.cut(deal, [primary, standby, others[0]])?,
        }
        self.cluster.witness.iter().for_each(Witness::want);
        self.mend()
    }

    fn without_witness(&self, deal: &Deal) -> Result<(), Failure> {
        let deed = if deal.fault == Fault::KillWitness { Witness::kill } else { Witness::stop };
        self.cluster.witness.iter().for_each(deed);
        self.sleep(deal.first)
    }

    /// Nothing is left of the primary, and its standbys restart, with much or little that they have
    /// acknowledged and not executed.
    fn lose_primary(&mut self, deal: &Deal, primary: usize, others: &[usize]) -> Result<(), Failure> {
        let keeps_memory = self.cluster.shape().keeps_memory();
        if keeps_memory && deal.dice[1].is_multiple_of(2) {
            let labour = |mut session: Session| load::labour(&mut session, LABOUR);
            let ran = Session::open(&self.cluster.sql()[primary], load::USER, DEFINING).and_then(labour);
            let how = ran.map_or_else(|failure| format!("not quite: {failure}"), |()| "for a while".to_owned());
            self.history.log(&format!("standbys that execute are busy, {how}"));
        }
        if !keeps_memory || self.cluster.is_whole().is_err() {
            self.history.log(&format!("{deal} is left out: a mirror's memory would go, or not all are in sync"));
            return Ok(());
        }
        let all = others.iter().copied().chain([primary]);
        all.for_each(|node| self.kill(node));
        for node in others {
            self.sleep(deal.first / 8)?;
            self.want(*node);
        }
        let (deadline, may_lead) = (Instant::now() + FAILOVER, 0..self.cluster.shape().counted);
        let automatic = self.cluster.shape().automatic;
        let takes_over = loop {
            let leads = match automatic {
                true => self.cluster.primary().is_some(),
                false => others.iter().any(|node| may_lead.contains(node) && self.promote(*node).is_none()),
            };
            if leads {
                break true;
            }
            if Instant::now() > deadline {
                break false;
            }
            self.sleep(Duration::from_millis(100))?;
        };
        let new = self.cluster.primary();
        let Some(new) = new.filter(|_| takes_over) else {
            let name = self.name(primary);
            self.history.violated(format!("all nodes were in sync, and without {name} none of them takes over"));
            return Ok(());
        };
        self.history.log(&format!("{} begins again with nothing", self.name(primary)));
        self.cluster.begin_again(primary, new, false, None)
    }

    /// Inserts rows, and changes which indexes and tables there are. Nothing depends on how far
    /// that comes.
    fn define(&self, deal: &Deal, primary: usize) {
        let number = deal.dice[1] % 1_000_000;
        let mut statements: Vec<String> =
            (0..60).map(|row| format!("INSERT INTO shelf VALUES ({}, 1)", number * 100 + row)).collect();
        let litter: Vec<String> = (1..=50).map(|id| format!("({id})")).collect();
        statements.push(format!("INSERT INTO litter VALUES {}", litter.join(", ")));
        let passing = [
            "DROP TABLE IF EXISTS passing",
            "CREATE TABLE passing (id bigint PRIMARY KEY, tag bigint NOT NULL)",
            "INSERT INTO passing SELECT id, 1 FROM litter",
            "CREATE INDEX passing_tag ON passing (tag)",
        ];
        statements.extend(passing.map(str::to_owned));
        // They move, and get in place what they had, which is in the next index, too.
        statements.extend((0..40).map(|row| format!("UPDATE shelf SET tag = 2 WHERE id = {}", number * 100 + row)));
        let mut then = ["DROP INDEX IF EXISTS shelf_tag", "UPDATE passing SET tag = 2"].map(str::to_owned).to_vec();
        // The table is dropped and another one made beside standbys that are behind both.
        then.extend(passing.map(str::to_owned));
        then.push("TRUNCATE litter".to_owned());
        then.push("UPDATE shelf SET tag = 1 WHERE tag = 2".to_owned());
        then.extend((60..70).map(|row| format!("INSERT INTO shelf VALUES ({}, 1)", number * 100 + row)));
        // Not before the first one is forgotten.
        let last = "CREATE INDEX IF NOT EXISTS shelf_tag ON shelf (tag)";
        let ran = Session::open(&self.cluster.sql()[primary], load::USER, DEFINING).and_then(|mut session| {
            statements.iter().try_for_each(|statement| session.run(statement).map(drop))?;
            // Who comes back and executes shows these rows for a while, and has the index still.
            load::labour(&mut session, LABOUR)?;
            then.iter().try_for_each(|statement| session.run(statement).map(drop))?;
            thread::sleep(FORGETTING);
            session.run(last).map(drop)
        });
        let how = ran.map_or_else(|failure| format!("as far as that: {failure}"), |()| "and all is done".to_owned());
        self.history.log(&format!("rows and definitions on {}, {how}", self.name(primary)));
    }

    /// The first standby begins again with what a mirror has, or, as a mirror, from a checkpoint of
    /// the primary, and one of them is killed.
    fn empty_one(&mut self, deal: &Deal, primary: usize, standbys: &[usize]) -> Result<(), Failure> {
        let (standby, others) = (standbys[0], &standbys[1..]);
        let source = match self.cluster.is_mirror(standby) {
            true => Some(primary),
            false => others.iter().copied().find(|node| self.cluster.is_mirror(*node)),
        };
        // What it had acknowledged counts until it is sure that the others have it.
        let (Some(source), Ok(_)) = (source, self.cluster.is_whole()) else {
            self.history.log(&format!("{deal} is left out: no mirror could give what it has, or not all are in sync"));
            return Ok(());
        };
        self.history.log(&format!("{} begins again with what {} has", self.name(standby), self.name(source)));
        self.cluster.begin_again(standby, primary, false, Some(source).filter(|source| *source != primary))?;
        self.sleep(deal.first / 4)?;
        let victim = [None, Some(source), Some(primary), Some(standby)][(deal.dice[1] % 4) as usize];
        if let Some(victim) = victim {
            self.kill(victim);
            self.sleep(deal.second / 4)?;
            self.want(victim);
        }
        Ok(())
    }
}
