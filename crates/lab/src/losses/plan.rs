//! What a round is: a cluster, what its nodes lose, and how they are started again. All of it
//! follows from the seed.

use std::fmt;

use clap::ValueEnum;
use freshet_workloads::random::Random;

/// The safety levels that rounds have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    OneSafe,
    /// With this `least-in-sync`.
    TwoSafe(u32),
    VerySafe,
    Quorum(u32),
}

/// All of them.
pub(super) const LEVELS: [Level; 6] =
    [Level::OneSafe, Level::TwoSafe(0), Level::TwoSafe(1), Level::VerySafe, Level::Quorum(2), Level::Quorum(3)];

impl Level {
    /// The flags of a node that say so.
    pub(super) fn flags(self) -> Vec<(&'static str, String)> {
        match self {
            Self::OneSafe => vec![("--safety", "1-safe".to_owned())],
            Self::TwoSafe(least) => {
                vec![("--safety", "2-safe".to_owned()), ("--least-in-sync", least.to_string())]
            }
            Self::VerySafe => vec![("--safety", "very-safe".to_owned())],
            Self::Quorum(count) => vec![("--safety", format!("quorum:{count}"))],
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneSafe => f.write_str("1-safe"),
            Self::TwoSafe(least) => write!(f, "2-safe with least-in-sync {least}"),
            Self::VerySafe => f.write_str("very-safe"),
            Self::Quorum(count) => write!(f, "quorum:{count}"),
        }
    }
}

/// What becomes of a node's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It stays as it was.
    Kept,
    /// A copy from before the last load is put back.
    SetBack,
    /// It is emptied, and the node started as ever.
    Emptied,
    /// It is gone with its machine: a new node at another address joins.
    New,
    /// The log's segments are gone, nothing else.
    NoSegments,
    /// The log and its watermark are put back from a copy, nothing else: the control file is newer.
    OlderLog,
}

/// The fates that every node can have in combination with those of all others.
const FATES: [Fate; 4] = [Fate::Kept, Fate::SetBack, Fate::Emptied, Fate::New];

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Bytes,
    Inputs,
    /// With its memory in files.
    Mirror,
    Asynchronous,
    Relay,
    /// Asynchronous, below the relay.
    BelowRelay,
}

impl Form {
    /// Whether commits may wait for it.
    pub(super) fn is_synchronous(self) -> bool {
        !matches!(self, Self::Asynchronous | Self::BelowRelay)
    }
}

/// A node of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) form: Form,
    pub(super) fate: Fate,
    /// It does not end when the others do.
    pub(super) lives: bool,
    /// It comes only when nodes are started again, with nothing.
    pub(super) comes_late: bool,
}

impl Member {
    const fn new(form: Form, fate: Fate) -> Self {
        Self { form, fate, lives: false, comes_late: false }
    }
}

/// What happens between the two loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Middle {
    Nothing,
    /// The primary is killed, and comes back.
    Restart,
    /// This node takes over from the primary, which is killed, and comes back.
    Promote(usize),
}

/// Which `--join` nodes get that are started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// The one of their first start.
    AsEver,
    /// None; what is new has to have one all the same.
    None,
    /// This node.
    To(usize),
}

/// Families of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// All combinations of what three nodes lose, levels, orders, with and without --join, one
    /// after another; what else can differ is drawn.
    Walk,
    /// A node that lags and nodes that lost their log vote, while those with the log are down.
    Lagging,
    /// Empty nodes join what is left, and are promoted.
    Newcomers,
    /// The primary is set back, and a mirror has more.
    Mirrored,
    /// The primary is set back to before its last start or its successor: a term begins twice.
    Twice,
    /// The primary stands still; a standby is promoted.
    Silent,
    /// A node that was not let in is started without --join.
    Refused,
}

/// A round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) kind: Kind,
    pub(super) level: Level,
    /// The first is the primary of the beginning.
    pub(super) members: Vec<Member>,
    /// Nodes know the others' addresses by `--peers`.
    pub(super) peers: bool,
    /// Nodes write checkpoints every second or so, and keep little log.
    pub(super) checkpoints: bool,
    /// Copies are taken of nodes that are down.
    pub(super) cold: bool,
    /// Nodes end while clients write.
    pub(super) under_load: bool,
    /// A node that ends before the last load.
    pub(super) lags: Option<usize>,
    pub(super) middle: Middle,
    /// Who is started again, in which order.
    pub(super) order: Vec<usize>,
    /// How many of these, from the end, come only when all else is done.
    pub(super) late: usize,
    pub(super) join: Join,
    /// Before a node is started the one before it is up.
    pub(super) waits: bool,
    /// After a number of starts this node is promoted.
    pub(super) promote: Option<(usize, usize)>,
    /// A node that ends before that, and comes back at the end.
    pub(super) dies: Option<usize>,
}

/// How many rounds walk through all combinations.
const COMBINATIONS: u64 = 4 * 4 * 4 * 6 * 6 * 2;
/// Prime to [`COMBINATIONS`]: the steps of the walk.
const STEP: u64 = 2_531;

impl Plan {
    /// The plan of a seed; of a certain family, or the one that the seed decides on: five of eight
    /// seeds continue the walk.
    pub(super) fn draw(seed: u64, kind: Option<Kind>) -> Self {
        let mut random = Random::stream(seed, 0);
        let own = match seed % 8 {
            0..5 => Kind::Walk,
            5 => Kind::Lagging,
            6 => [Kind::Newcomers, Kind::Mirrored][random.below(2) as usize],
            _ => [Kind::Twice, Kind::Silent, Kind::Refused][random.below(3) as usize],
        };
        let kind = kind.unwrap_or(own);
        match kind {
            Kind::Walk => Self::walk(seed, &mut random),
            Kind::Lagging => Self::lagging(seed, &mut random),
            Kind::Newcomers => Self::newcomers(seed, &mut random),
            Kind::Mirrored => Self::mirrored(seed, &mut random),
            Kind::Twice => Self::twice(seed, &mut random),
            Kind::Silent => Self::silent(seed, &mut random),
            Kind::Refused => Self::refused(seed, &mut random),
        }
    }

    fn plain(seed: u64, kind: Kind, level: Level, members: Vec<Member>, random: &mut Random) -> Self {
        Self {
            seed,
            kind,
            level,
            order: (0..members.len()).filter(|member| !members[*member].lives).collect(),
            members,
            peers: random.below(2) == 0,
            checkpoints: random.below(3) == 0,
            cold: random.below(3) == 0,
            under_load: random.below(3) == 0,
            lags: None,
            middle: Middle::Nothing,
            late: 0,
            join: Join::AsEver,
            waits: random.below(2) == 0,
            promote: None,
            dies: None,
        }
    }

    fn walk(seed: u64, random: &mut Random) -> Self {
        let place = seed / 8 * 5 + seed % 8 % 5;
        let mut rest = (place % COMBINATIONS) * STEP % COMBINATIONS;
        let mut digit = |base: u64| {
            let digit = rest % base;
            rest /= base;
            digit as usize
        };
        let fates = [FATES[digit(4)], FATES[digit(4)], FATES[digit(4)]];
        let (order, level, joins) = (digit(6), LEVELS[digit(6)], digit(2) == 1);
        let mut members: Vec<Member> = fates.iter().map(|fate| Member::new(Form::Bytes, *fate)).collect();
        Self::vary(level, &mut members, random);
        let living = random.below(4);
        for (number, member) in members.iter_mut().enumerate() {
            let stays = match living {
                0 | 1 => number > 0,
                2 => random.below(2) == 0,
                _ => false,
            };
            member.lives = stays && member.fate == Fate::Kept;
        }
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let mut plan = Self::plain(seed, Kind::Walk, level, members, random);
        let mut order = orders[order].to_vec();
        order.push(3);
        order.retain(|member| plan.members.get(*member).is_some_and(|member| !member.lives));
        plan.order = order;
        let first = plan.leads();
        plan.join = match (joins, random.below(2), first) {
            (false, _, _) => Join::None,
            (true, 0, Some(first)) => Join::To(first),
            (true, _, _) => Join::AsEver,
        };
        let standbys = plan.members.len() - 1;
        if random.below(4) == 0 && plan.may_lag() {
            let lags = random.within(1, standbys as u64) as usize;
            plan.lags = Some(lags);
            if std::mem::take(&mut plan.members[lags].lives) {
                // It was killed before the last load.
                plan.order.push(lags);
            }
        }
        plan.middle = match random.below(6) {
            0 => Middle::Restart,
            1 if plan.may_be_succeeded() => Middle::Promote(1),
            _ => Middle::Nothing,
        };
        if random.below(3) == 0 && !plan.order.is_empty() {
            let starts = random.within(1, plan.order.len() as u64) as usize;
            let there = plan.there_after(starts);
            if !there.is_empty() {
                plan.promote = Some((starts, there[random.below(there.len() as u64) as usize]));
                plan.late = plan.order.len() - starts;
            }
        }
        plan
    }

    /// A cluster of three as it is, or of two or four, or with other nodes than standbys by bytes.
    fn vary(level: Level, members: &mut Vec<Member>, random: &mut Random) {
        match random.below(12) {
            0 if level != Level::Quorum(3) => drop(members.pop()),
            1 => members.push(Member::new(Form::Asynchronous, FATES[random.below(4) as usize])),
            2 => {
                members[1].form = Form::Relay;
                members.push(Member::new(Form::BelowRelay, FATES[random.below(4) as usize]));
            }
            3 => members.push(Member::new(Form::Bytes, FATES[random.below(4) as usize])),
            4 | 5 => members[random.within(1, 2) as usize].form = Form::Inputs,
            6 | 7 => members[random.within(1, 2) as usize].form = Form::Mirror,
            8 => {
                let which = random.below(3) as usize;
                members[which].fate = [Fate::NoSegments, Fate::OlderLog][random.below(2) as usize];
            }
            _ => {}
        }
    }

    /// Whom an operator would name to those that are to join: a living node with its data, or the
    /// first that is started.
    fn leads(&self) -> Option<usize> {
        let lives = self.members.iter().position(|member| member.lives);
        lives.or(self.order.first().copied())
    }

    /// Whether node 1 can take over while the primary is down.
    fn may_be_succeeded(&self) -> bool {
        self.members[1].form == Form::Bytes && self.lags.is_none() && self.level != Level::TwoSafe(0)
    }

    /// Whether something is acknowledged without one of the standbys.
    fn may_lag(&self) -> bool {
        let synchronous = self.members.iter().filter(|member| member.form.is_synchronous()).count() as u32;
        match self.level {
            Level::OneSafe => true,
            Level::TwoSafe(least) => synchronous >= 2 + least,
            Level::VerySafe => false,
            Level::Quorum(count) => synchronous > count,
        }
    }

    /// Who is there after this number of starts.
    fn there_after(&self, starts: usize) -> Vec<usize> {
        let lives = (0..self.members.len()).filter(|member| self.members[*member].lives);
        lives.chain(self.order[..starts].iter().copied()).collect()
    }

    fn lagging(seed: u64, random: &mut Random) -> Self {
        let level = [Level::Quorum(2), Level::Quorum(2), Level::TwoSafe(1)][random.below(3) as usize];
        let mut fate = match random.below(8) {
            0..3 => Fate::Kept,
            other => [Fate::Emptied, Fate::New, Fate::NoSegments, Fate::SetBack, Fate::OlderLog][other as usize - 3],
        };
        if level != Level::Quorum(2) && fate == Fate::Kept {
            fate = Fate::NoSegments;
        }
        let mut members = vec![
            Member::new(Form::Bytes, Fate::Kept),
            Member::new(Form::Bytes, fate),
            Member::new([Form::Bytes, Form::Bytes, Form::Inputs][random.below(3) as usize], Fate::Kept),
        ];
        if fate == Fate::Kept {
            members.push(Member { comes_late: true, ..Member::new(Form::Bytes, Fate::Kept) });
        }
        let mut plan = Self::plain(seed, Kind::Lagging, level, members, random);
        (plan.order, plan.late) = if fate == Fate::Kept { (vec![2, 3, 0, 1], 2) } else { (vec![2, 1, 0], 1) };
        plan.join = Join::To(2);
        plan.lags = Some(2);
        plan.promote = Some((2, 2));
        plan.waits = true;
        plan
    }

    fn newcomers(seed: u64, random: &mut Random) -> Self {
        let level = [Level::Quorum(2), Level::Quorum(2), Level::TwoSafe(1)][random.below(3) as usize];
        let comer = Member { comes_late: true, ..Member::new(Form::Bytes, Fate::Kept) };
        let away = [Fate::Kept, Fate::Kept, Fate::Emptied][random.below(3) as usize];
        let members = vec![
            Member::new(Form::Bytes, away),
            Member::new(Form::Bytes, Fate::Kept),
            Member { lives: true, ..Member::new(Form::Asynchronous, Fate::Kept) },
            comer,
            comer,
        ];
        let mut plan = Self::plain(seed, Kind::Newcomers, level, members, random);
        plan.order = vec![3, 4, 0, 1];
        plan.late = 2;
        plan.join = Join::To(2);
        plan.waits = true;
        plan.promote = Some((2, 3));
        plan.dies = (random.below(4) > 0).then_some(2);
        plan.peers = random.below(4) > 0;
        plan
    }

    fn mirrored(seed: u64, random: &mut Random) -> Self {
        let level = [Level::Quorum(2), Level::TwoSafe(0), Level::TwoSafe(1), Level::VerySafe][random.below(4) as usize];
        let fate = [Fate::SetBack, Fate::SetBack, Fate::Emptied, Fate::OlderLog][random.below(4) as usize];
        let mirror = Member { lives: random.below(3) > 0, ..Member::new(Form::Mirror, Fate::Kept) };
        let members = vec![Member::new(Form::Bytes, fate), mirror];
        let mut plan = Self::plain(seed, Kind::Mirrored, level, members, random);
        plan.join = [Join::None, Join::AsEver][random.below(2) as usize];
        plan
    }

    fn twice(seed: u64, random: &mut Random) -> Self {
        let levels = [Level::OneSafe, Level::TwoSafe(0), Level::TwoSafe(1), Level::Quorum(2), Level::Quorum(3)];
        let level = levels[random.below(5) as usize];
        let nodes = if level == Level::Quorum(3) || random.below(2) == 0 { 3 } else { 2 };
        let mut members = vec![Member::new(Form::Bytes, Fate::Kept); nodes];
        members[0].fate = Fate::SetBack;
        let lives = random.below(2) == 0;
        members[1..].iter_mut().for_each(|member| member.lives = lives);
        let mut plan = Self::plain(seed, Kind::Twice, level, members, random);
        match random.below(4) {
            0 => plan.middle = Middle::Restart,
            1 if level != Level::TwoSafe(0) => plan.middle = Middle::Promote(1),
            // The start after the copy begins a term where the copy ends, and so does the next one.
            _ => plan.cold = true,
        }
        // What it writes before others come may lie where others have something else of that term.
        plan.late = plan.order.len() - 1;
        plan.join = [Join::None, Join::AsEver][random.below(2) as usize];
        plan
    }

    fn silent(seed: u64, random: &mut Random) -> Self {
        let levels = [Level::TwoSafe(1), Level::TwoSafe(1), Level::Quorum(2), Level::OneSafe];
        let level = levels[random.below(4) as usize];
        let lives = Member { lives: true, ..Member::new(Form::Bytes, Fate::Kept) };
        let mut members = vec![lives; 3];
        let mut promoted = random.within(1, 2) as usize;
        if random.below(3) == 0 {
            members[2] = Member::new(Form::Bytes, FATES[random.within(1, 3) as usize]);
            promoted = 1;
        }
        let mut plan = Self::plain(seed, Kind::Silent, level, members, random);
        plan.join = Join::To(1);
        plan.promote = Some((plan.order.len(), promoted));
        plan
    }

    fn refused(seed: u64, random: &mut Random) -> Self {
        let level = [Level::TwoSafe(0), Level::OneSafe, Level::Quorum(2)][random.below(3) as usize];
        let lives = Member { lives: true, ..Member::new(Form::Bytes, Fate::Kept) };
        let comer = Member { comes_late: true, lives: false, ..lives };
        let mut plan = Self::plain(seed, Kind::Refused, level, vec![lives, lives, comer], random);
        plan.peers = false;
        plan.join = Join::None;
        plan
    }

    /// Whether the first node is told to ask another, and all that it knows are gone, or do not
    /// start: then it waits for an operator.
    fn is_left_waiting(&self) -> bool {
        let answers = |member: &Member| matches!(member.fate, Fate::Kept | Fate::SetBack | Fate::Emptied);
        matches!(self.join, Join::To(other) if other != 0) && !self.members[1..].iter().any(answers)
    }

    /// Whether something must be acknowledged in the end, by any node: when all are there, those
    /// with all that they had are enough to take over, and to commit.
    pub(super) fn must_serve(&self) -> bool {
        let counts = |member: &&Member| member.form.is_synchronous() && !member.comes_late;
        let all = self.members.iter().filter(counts).count() as u32;
        let kept = |lagging: bool| {
            let members = (0..).zip(&self.members).filter(|(number, _)| lagging || self.lags != Some(*number));
            members.filter(|(_, member)| counts(member) && member.fate == Fate::Kept).count() as u32
        };
        match self.level {
            Level::OneSafe => kept(true) == all || self.members[0].fate == Fate::Kept && !self.is_left_waiting(),
            Level::TwoSafe(0) | Level::VerySafe => kept(true) == all,
            Level::TwoSafe(least) => {
                let set = all - u32::from(self.lags.is_some());
                kept(false) >= (set - least).max(1 + least)
            }
            Level::Quorum(count) => kept(true) >= count.max(all + 1 - count),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {}:", self.kind, self.level)?;
        for (number, member) in self.members.iter().enumerate() {
            let name = name(number);
            let form = if member.form == Form::Bytes { String::new() } else { format!(" ({:?})", member.form) };
            let state = match member {
                Member { comes_late: true, .. } => "comes late".to_owned(),
                Member { lives: true, .. } => "lives".to_owned(),
                Member { fate, .. } => format!("{fate:?}"),
            };
            write!(f, " {name}{form} {state},")?;
        }
        let order: String = self.order.iter().map(|member| name(*member)).collect();
        write!(f, " order {order}, the last {} late", self.late)?;
        match self.join {
            Join::AsEver => write!(f, ", --join as ever")?,
            Join::None => write!(f, ", no --join")?,
            Join::To(member) => write!(f, ", --join {}", name(member))?,
        }
        for (is, what) in [
            (self.peers, "--peers"),
            (self.checkpoints, "checkpoints"),
            (self.cold, "cold copies"),
            (self.under_load, "ends under load"),
            (self.waits, "one after another"),
        ] {
            if is {
                write!(f, ", {what}")?;
            }
        }
        if let Some(lags) = self.lags {
            write!(f, ", {} lags", name(lags))?;
        }
        match self.middle {
            Middle::Nothing => {}
            Middle::Restart => write!(f, ", a restarts between the loads")?,
            Middle::Promote(member) => write!(f, ", {} takes over between the loads", name(member))?,
        }
        if let Some(dies) = self.dies {
            write!(f, ", {} dies", name(dies))?;
        }
        if let Some((starts, member)) = self.promote {
            write!(f, ", promote {} after {starts} starts", name(member))?;
        }
        Ok(())
    }
}

/// What a node is called.
pub(super) fn name(member: usize) -> char {
    char::from(b'a' + member as u8)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What the walk enumerates, as far as draws have not changed it.
    fn combination(place: u64) -> u64 {
        place % COMBINATIONS * STEP % COMBINATIONS
    }

    #[test]
    fn the_walk_comes_to_every_combination() {
        let all: BTreeSet<u64> = (0..COMBINATIONS).map(combination).collect();
        assert_eq!(all.len() as u64, COMBINATIONS);
    }

    #[test]
    fn plans_are_sound() {
        for seed in 0..20_000 {
            let plan = Plan::draw(seed, None);
            let synchronous = plan.members.iter().filter(|member| !member.comes_late && member.form.is_synchronous());
            let synchronous = synchronous.count() as u32;
            assert!(!matches!(plan.level, Level::Quorum(count) if count > synchronous), "{plan:?}");
            assert!(plan.late <= plan.order.len(), "{plan:?}");
            for (number, member) in plan.members.iter().enumerate() {
                let starts = plan.order.iter().filter(|started| **started == number).count();
                assert_eq!(starts, usize::from(!member.lives), "{plan:?}");
                assert!(!member.lives || member.fate == Fate::Kept, "{plan:?}");
            }
            if let Some((starts, who)) = plan.promote {
                assert!(plan.there_after(starts).contains(&who), "{plan:?}");
            }
        }
    }
}
