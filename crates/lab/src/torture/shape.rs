//! What clusters there are: fabric, safety level, policies and forms of the log, drawn by seed
//! where the user leaves them open.

use freshet_base::{Certifier, Safety};
use freshet_engine::{Encoding, Failover, ReplayMode};
use freshet_workloads::random::Random;

use super::TortureOptions;
use freshet::Failure;

/// How standbys get the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Fabric {
    /// Over TCP.
    Tcp,
    /// Through shared memory.
    Shm,
    /// Through shared memory, in domain pmem, where what the primary has read back needs no
    /// acknowledgement.
    ShmAppliance,
    /// By RDMA, in a program built for it.
    Verbs,
}

/// A cluster as it is to be.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) seed: u64,
    /// All nodes.
    pub(super) nodes: usize,
    /// For the first of them commits may wait, and these may lead.
    pub(super) counted: usize,
    /// The node whose asynchronous standby the next one behind the counted ones is.
    relay: Option<usize>,
    pub(super) fabric: Fabric,
    /// What a commit promises at first.
    pub(super) safety: Safety,
    pub(super) replay: ReplayMode,
    pub(super) streams: u8,
    pub(super) certifier: Certifier,
    /// The form in which each node asks for the log.
    pub(super) encodings: Vec<Encoding>,
    /// Which nodes begin as mirrors, and how long the undo ring of those is.
    pub(super) mirrors: Vec<bool>,
    undo: u64,
    /// Their memory is in files, and outlives their processes.
    pub(super) in_files: bool,
    /// For how many bytes of log nodes are waited for; others begin from a checkpoint.
    kept: u64,
    /// How fast a link is, in Gbit/s; 0 for as fast as it can.
    bandwidth: f64,
    /// How much of a processor a checkpoint takes, in percent: the less, the more changes beside
    /// it.
    checkpoint_cpu: u32,
    /// Nodes that restart are given the primary by --join.
    pub(super) rejoin: bool,
    /// What a doubt about a node's state has for consequences.
    on_doubt: &'static str,
    /// Nodes take a lost primary's place by themselves.
    pub(super) automatic: bool,
    /// A witness votes beside them.
    pub(super) witness: bool,
    /// Each node has a cable to cut.
    pub(super) cut: bool,
}

/// The levels that are drawn. Of two, a majority needs a person once one is lost, unless they have
/// a witness, which has no vote at most other levels.
fn levels(options: &TortureOptions) -> [Safety; 3] {
    let voters = options.nodes + u8::from(options.witness);
    let counting = if voters > 2 { Safety::Majority } else { Safety::Quorum(2) };
    [counting, Safety::TwoSafe, if options.witness { counting } else { Safety::VerySafe }]
}

impl Shape {
    /// The shape that belongs to a seed. Nine seeds in a row have all fabrics with all safety
    /// levels.
    pub(super) fn draw(seed: u64, options: &TortureOptions) -> Result<Self, Failure> {
        let counted = usize::from(options.nodes);
        let fabric = fabric(seed, options)?;
        let mut random = Random::stream(seed, 0);
        let replay = if random.below(4) == 0 { ReplayMode::Synchronous } else { ReplayMode::Pipelined };
        let streams = if random.below(4) == 0 { 2 } else { 1 };
        let mut random = Random::stream(seed, 3);
        let certifier = if random.below(3) == 0 { Certifier::Ssn } else { Certifier::Validation };
        let mixed = Mixed::draw(seed, options);
        let nodes = counted + mixed.asynchronous;
        let mut encodings = encodings(nodes, fabric, options, &mut random);
        let mut random = Random::stream(seed, 4);
        let mirrors = mirrors([counted, nodes], options, &mixed, &mut random)?;
        // The last one that has the log; the first one leads at first.
        let relay = (0..counted).rfind(|node| !mirrors[*node]).filter(|_| mixed.has_relay);
        if mixed.executes && options.encoding.is_none() && fabric != Fabric::ShmAppliance {
            encodings[relay.unwrap_or(counted - 1)] = Encoding::Inputs;
        }
        let undo = [1 << 20, 4 << 20][random.below(2) as usize];
        // Memory that is to be persistent is in files.
        let in_files = fabric == Fabric::ShmAppliance || Random::stream(seed, 5).below(2) == 0;
        // Who lacks log where no mirror is would need an operator, too.
        let kept = if mirrors.contains(&true) { [1 << 19, 8 << 20][random.below(2) as usize] } else { 8 << 20 };
        // What needs no acknowledgement cannot wait for its replay.
        let replay = if fabric == Fabric::ShmAppliance { ReplayMode::Pipelined } else { replay };
        let safety = options.safety.unwrap_or(levels(options)[(seed / 3 % 3) as usize]);
        if safety == Safety::OneSafe {
            return Err(Failure::new(
                "a failover under 1-safe may lose what was acknowledged: there is nothing to check",
            ));
        }
        if matches!(safety, Safety::Quorum(kept) if kept < 2 || kept > u32::from(options.nodes)) {
            return Err(Failure::new(format!("{safety} is not for {counted} nodes")));
        }
        let mut random = Random::stream(seed, 6);
        let bandwidth = [0.0, 0.0, 0.05][random.below(3) as usize];
        let checkpoint_cpu = [20, 2][random.below(2) as usize];
        Ok(Self {
            seed,
            nodes,
            counted,
            relay,
            fabric,
            safety,
            replay: options.replay.unwrap_or(replay),
            streams,
            certifier: options.certifier.unwrap_or(certifier),
            encodings,
            mirrors,
            undo,
            in_files,
            kept,
            bandwidth,
            checkpoint_cpu,
            rejoin: options.rejoin,
            on_doubt: ["report", "withdraw"][Random::stream(seed, 7).below(2) as usize],
            automatic: is_automatic(seed, options),
            witness: options.witness,
            cut: options.cut,
        })
    }

    /// How many nodes are mirrors when a round begins.
    pub(super) fn mirror_count(&self) -> usize {
        self.mirrors.iter().filter(|mirror| **mirror).count()
    }

    /// Whether no mirror's memory goes with its process.
    pub(super) fn keeps_memory(&self) -> bool {
        self.in_files || self.mirror_count() == 0
    }

    /// Whether a node may execute transactions again.
    #[cfg(debug_assertions)]
    pub(super) fn executes(&self, node: usize) -> bool {
        self.encodings[node] != Encoding::Bytes
    }

    /// Whom a node joins as long as nobody says otherwise.
    pub(super) fn joins(&self, node: usize) -> usize {
        self.relay.filter(|_| node == self.counted).unwrap_or(0)
    }

    /// The flags of a node that the shape decides, as a mirror or not.
    pub(super) fn flags(&self, node: usize, mirror: bool) -> Vec<String> {
        let kind = match self.fabric {
            Fabric::Tcp => "tcp",
            Fabric::Shm | Fabric::ShmAppliance => "shm",
            Fabric::Verbs => "verbs",
        };
        // Small enough for rings, segments and checkpoints to come to their ends often.
        let mut flags = vec![
            ("--fabric-kind", kind.to_owned()),
            ("--safety", self.safety.to_string()),
            ("--replay", self.replay.to_string()),
            ("--encoding", if mirror { Encoding::Bytes } else { self.encodings[node] }.to_string()),
            ("--certifier", self.certifier.to_string()),
            ("--log-streams", self.streams.to_string()),
            ("--log-buffer-bytes", (1 << 20).to_string()),
            ("--log-segment-bytes", (1 << 18).to_string()),
            ("--checkpoint-interval-s", "2".to_owned()),
            ("--checkpoint-log-bytes", (1 << 20).to_string()),
            ("--checkpoint-keep-log-bytes", self.kept.to_string()),
            ("--checkpoint-cpu-percent", self.checkpoint_cpu.to_string()),
            ("--fabric-bandwidth-gbit", self.bandwidth.to_string()),
            // All the time, and fast enough for several passes in a round.
            ("--sweep-interval-s", "1".to_owned()),
            ("--sweep-cpu-percent", "5".to_owned()),
            ("--on-doubt", self.on_doubt.to_owned()),
            ("--standby-timeout-ms", "1000".to_owned()),
            ("--sql-connections", "60".to_owned()),
        ];
        if !self.witness {
            // For 2-safe, which may be or become the level: without it a standby cannot know
            // whether the primary continued alone, and no node may take over.
            flags.push(("--least-in-sync", "1".to_owned()));
        }
        if node >= self.counted {
            flags.push(("--asynchronous", "true".to_owned()));
        }
        flags.push(("--failover", self.failover().to_owned()));
        if self.relay == Some(node) && !mirror {
            flags.push(("--relay-standbys", "1".to_owned()));
        }
        if mirror {
            flags.extend([
                ("--mirror-bytes", (1 << 28).to_string()),
                ("--mirror-undo-bytes", self.undo.to_string()),
                ("--mirror-directory-bytes", (1 << 16).to_string()),
            ]);
        }
        if self.fabric == Fabric::ShmAppliance {
            flags.extend([("--domain", "pmem".to_owned()), ("--fabric-appliance", "true".to_owned())]);
        }
        flags.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    fn failover(&self) -> &'static str {
        if self.automatic { "automatic" } else { "manual" }
    }

    /// What else was drawn, for people.
    pub(super) fn drawn(&self) -> String {
        let form = |(encoding, mirror): (&Encoding, &bool)| match mirror {
            true => {
                let files = if self.in_files { ", in files" } else { "" };
                format!("nothing (a mirror, {} KiB of undo{files})", self.undo >> 10)
            }
            false => encoding.to_string(),
        };
        let forms: Vec<String> = self.encodings.iter().zip(&self.mirrors).map(form).collect();
        let (forms, kept) = (forms.join(", "), self.kept >> 10);
        let (bandwidth, cpu) = (self.bandwidth, self.checkpoint_cpu);
        let name = |node: usize| char::from(b'a' + node as u8);
        let below = self.relay.map(|relay| format!(", {} below {}", name(self.counted), name(relay)));
        let asynchronous = match self.nodes - self.counted {
            0 => String::new(),
            count => format!("; the last {count} asynchronous{}", below.unwrap_or_default()),
        };
        let failover = self.failover();
        format!(
            "nodes ask for {forms}{asynchronous}; {} stream(s), {kept} KiB of log are kept; {bandwidth} Gbit/s, \
             {cpu} % for checkpoints; failover {failover}",
            self.streams
        )
    }

    /// The options of this command that make the same cluster again.
    pub(super) fn rerun(&self, options: &TortureOptions) -> String {
        let fabric = clap::ValueEnum::to_possible_value(&self.fabric);
        let mut command = format!(
            "freshet-lab torture --seed {} --clusters 1 --rounds {} --nodes {} --clients {} --fabric {} --safety {} \
             --replay {} --certifier {} --failover {} --recover-within {}",
            self.seed,
            options.rounds,
            self.counted,
            options.clients,
            fabric.map(|value| value.get_name().to_owned()).unwrap_or_default(),
            self.safety,
            self.replay,
            self.certifier,
            self.failover(),
            options.recover_within,
        );
        for (name, kinds) in [("--without", &options.without), ("--only", &options.only)] {
            for kind in kinds.iter().filter_map(clap::ValueEnum::to_possible_value) {
                command += &format!(" {name} {}", kind.get_name());
            }
        }
        if let Some(encoding) = options.encoding {
            command += &format!(" --encoding {encoding}");
        }
        if let Some(mirrors) = options.mirrors {
            command += &format!(" --mirrors {mirrors}");
        }
        if let Some(asynchronous) = options.asynchronous {
            command += &format!(" --asynchronous {asynchronous}");
        }
        if options.no_moves {
            command += " --no-moves";
        }
        if self.rejoin {
            command += " --rejoin";
        }
        for (name, is_set) in [(" --witness", self.witness), (" --cut", self.cut)] {
            command += if is_set { name } else { "" };
        }
        command
    }
}

/// Whether nodes take a lost primary's place by themselves. Of two nodes neither can tell a dead
/// primary from a lost cable.
fn is_automatic(seed: u64, options: &TortureOptions) -> bool {
    let drawn = options.nodes + u8::from(options.witness) > 2 && Random::stream(seed, 9).below(2) == 0;
    options.failover.map_or(drawn, |failover| failover != Failover::Manual)
}

/// How standbys get the log.
fn fabric(seed: u64, options: &TortureOptions) -> Result<Fabric, Failure> {
    let drawn = [Fabric::Tcp, Fabric::Shm, Fabric::ShmAppliance][(seed % 3) as usize];
    // What executes transactions again acknowledges by itself.
    let asks = options.encoding.is_some_and(|encoding| encoding != Encoding::Bytes);
    let drawn = if asks && drawn == Fabric::ShmAppliance { Fabric::Shm } else { drawn };
    let fabric = options.fabric.unwrap_or(if options.cut { Fabric::Tcp } else { drawn });
    if options.cut && fabric != Fabric::Tcp {
        return Err(Failure::new("only TCP has cables to cut: --cut is not for another --fabric"));
    }
    Ok(fabric)
}

/// The form in which each node asks for the log.
fn encodings(nodes: usize, fabric: Fabric, options: &TortureOptions, random: &mut Random) -> Vec<Encoding> {
    let drawn = (0..nodes).map(|_| match random.below(6) {
        _ if fabric == Fabric::ShmAppliance => Encoding::Bytes,
        0 => Encoding::Auto,
        1 | 2 => Encoding::Inputs,
        _ => Encoding::Bytes,
    });
    drawn.map(|drawn| options.encoding.unwrap_or(drawn)).collect()
}

/// What else than counted standbys with a log there is. Of three clusters two have it.
struct Mixed {
    /// How many nodes are asynchronous, and whether the first of them is below a relay.
    asynchronous: usize,
    has_relay: bool,
    /// The relay, or the last counted node, executes inputs.
    executes: bool,
    /// One of the counted nodes is a mirror.
    mirror: bool,
}

impl Mixed {
    fn draw(seed: u64, options: &TortureOptions) -> Self {
        let mut random = Random::stream(seed, 8);
        let is_mixed = random.below(3) > 0;
        let (count, has_relay) = [(1, true), (2, true), (1, false)][random.below(3) as usize];
        let [executes, mirror] = [(); 2].map(|()| is_mixed && random.below(2) == 0);
        let asynchronous = options.asynchronous.map_or(if is_mixed { count } else { 0 }, usize::from);
        Self { asynchronous, has_relay: asynchronous > 1 || asynchronous > 0 && has_relay, executes, mirror }
    }
}

/// Which of all nodes begin as mirrors: of a third of the clusters one or two, and one of some that
/// are mixed. The first node and those behind the counted ones have the log.
fn mirrors(
    [counted, nodes]: [usize; 2],
    options: &TortureOptions,
    mixed: &Mixed,
    random: &mut Random,
) -> Result<Vec<bool>, Failure> {
    let drawn = if random.below(3) == 0 { random.within(1, 2) as usize } else { usize::from(mixed.mirror) };
    let count = options.mirrors.map_or(drawn.min(counted - 1), usize::from);
    if count >= counted {
        return Err(Failure::new(format!("of {counted} nodes, {count} cannot be mirrors: one has the log")));
    }
    let mut others: Vec<usize> = (1..counted).collect();
    random.shuffle(&mut others);
    Ok((0..nodes).map(|node| others[..count].contains(&node)).collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::torture::{Fault, nemesis::draw};

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: TortureOptions,
    }

    /// The seed of a torture that `./test` runs with these options before it.
    fn seed_of_ci(options: &str) -> u64 {
        let script = include_str!("../../../../test");
        let seed = script.split(&format!("torture {options}--seed ")).nth(1).and_then(|rest| rest.split(' ').next());
        seed.unwrap().parse().unwrap()
    }

    /// The faults of this name that come to the clusters.
    fn dealt(shapes: &[&Shape], options: &TortureOptions, name: &str) -> usize {
        let deals = shapes.iter().flat_map(|shape| {
            let mut random = Random::stream(shape.seed, 1);
            let kinds = Fault::drawn(options);
            (0..options.rounds).flat_map(move |_| draw(&mut random, &kinds))
        });
        deals.filter(|deal| deal.to_string().starts_with(name)).count()
    }

    /// Whether the clusters from this seed on, as many as `./test` comes to, have both kinds of
    /// failover, primaries that can hand their role to a standby, and are to, and levels that
    /// change.
    fn have_all(first: u64, count: u64, options: &TortureOptions, [switch_overs, levels]: [usize; 2]) -> bool {
        let shapes: Vec<_> = (first..first + count).map(|seed| Shape::draw(seed, options).unwrap()).collect();
        let automatic = shapes.iter().filter(|shape| shape.automatic).count();
        let can: Vec<_> = shapes.iter().filter(|shape| shape.mirror_count() + 1 < shape.counted).collect();
        (1..shapes.len()).contains(&automatic)
            && dealt(&can, options, "switch-over") >= switch_overs
            && dealt(&shapes.iter().collect::<Vec<_>>(), options, "level") >= levels
    }

    #[track_caller]
    fn assert_have_all(of_ci: &str, arguments: &[&str], count: u64, wanted: [usize; 2]) {
        let options = Command::parse_from(arguments).options;
        let have = |first: u64| have_all(first, count, &options, wanted);
        let others = || (1..200).filter(|first| have(*first)).collect::<Vec<_>>();
        assert!(have(seed_of_ci(of_ci)), "the seeds of ./test do not have all; these do: {:?}", others());
    }

    /// In its two minutes it comes to three clusters at least.
    #[test]
    fn ci_has_failovers_of_both_kinds_and_switch_overs_and_other_levels() {
        assert_have_all("", &["torture"], 3, [2, 3]);
    }

    /// With cables that are cut, to two.
    #[test]
    fn ci_changes_levels_beside_cuts() {
        assert_have_all("--cut ", &["torture", "--cut"], 2, [0, 1]);
    }
}
