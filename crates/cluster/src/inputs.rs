//! Inputs: what a standby decides that is fed in another form than the log's, from which it
//! regenerates blocks by executing transactions again; and what its sender says in that form.
//!
//! ```text
//!   sender    Sayable ─▶ inputs or bytes
//!   standby   Demand ─▶ Kept ─▶ acknowledged        Raising ─▶ a checkpoint counts
//!                  └──▶ Reach ─▶ executed, or asked for: Asked
//! ```
//!
//! What has arrived is acknowledged when it is durable in a journal, before it is part of the log.
//! So whatever the journal holds beyond the log, a restart must be able to execute by itself. It
//! has versions only as far back as its checkpoint ends (the *floor*), and tables and indexes as
//! they are where its log ends. What reads below either is not written into the journal: it counts
//! when the log has it.

use freshet_base::Lsn;

/// How far back transactions may read that are executed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Below this old versions, tables or indexes may be missing: where the checkpoint ends that
    /// the node began with.
    pub floor: Lsn,
    /// For how many bytes of log below what readers see old versions are kept.
    pub slack: u64,
}

impl Reach {
    /// The oldest snapshot whose versions are kept when readers see everything below `begin`.
    pub fn oldest(&self, begin: Lsn) -> Lsn {
        Lsn(begin.0.saturating_sub(self.slack)).max(self.floor)
    }

    /// Whether the versions that a snapshot sees are there until a block at `lsn` is visible.
    pub fn reaches(&self, snapshot: Lsn, lsn: Lsn) -> bool {
        snapshot >= self.floor && lsn.since(snapshot) <= self.slack
    }
}

/// What executing the blocks of a batch takes of a node that has restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    oldest: Lsn,
    defined: Lsn,
}

impl Demand {
    /// Of no blocks yet. Tables were changed last below `defined`.
    pub fn behind(defined: Lsn) -> Self {
        Self { oldest: Lsn::MAX, defined }
    }

    /// A block that changes tables, and ends here, comes next.
    pub fn defines(&mut self, end: Lsn) {
        self.defined = end;
    }

    /// A block at `at` comes next whose transaction is executed. It reads at `oldest` and above;
    /// none if that is not known. Versions are kept as `reach` says.
    pub fn executes(&mut self, at: Lsn, oldest: Option<Lsn>, reach: &Reach) {
        let oldest = oldest.filter(|oldest| *oldest >= self.defined && reach.reaches(*oldest, at));
        self.oldest = self.oldest.min(oldest.unwrap_or_default());
    }

    /// The oldest snapshot that the batch reads at: a restart executes it if its checkpoint ends at
    /// or below that. The largest LSN if nothing is executed; zero if a restart cannot do it.
    pub fn oldest(&self) -> Lsn {
        self.oldest
    }

    /// Tables were changed last below this.
    pub fn defined(&self) -> Lsn {
        self.defined
    }
}

/// What the journal has of what has arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// What is durable there, without gaps: where each piece begins and ends. Between two of them
    /// lies what counts only as part of the log; what the log has leaves them.
    runs: Vec<(Lsn, Lsn)>,
    /// What was given to the journal last ends here.
    given: Lsn,
    /// A restart regenerates nothing that reads below this.
    floor: Lsn,
}

impl Kept {
    /// The journal of a node that starts: its log ends at `end`, the journal holds what follows up
    /// to `held`, and its checkpoint ends at `floor`.
    pub fn new(end: Lsn, held: Lsn, floor: Lsn) -> Self {
        Self { runs: vec![(end, held)], given: held, floor }
    }

    /// A batch has arrived that ends at `to`, and reads at `oldest` and above ([`Demand::oldest`]).
    /// Says whether it is to be written into the journal. Else it counts when the log has it, and
    /// so does what follows, up to there.
    #[must_use]
    pub fn keeps(&mut self, to: Lsn, oldest: Lsn) -> bool {
        let keeps = oldest >= self.floor;
        if keeps {
            self.given = to;
        }
        keeps
    }

    /// A batch that was to be written is durable in the journal.
    pub fn wrote(&mut self, from: Lsn, to: Lsn) {
        match self.runs.last_mut().filter(|(_, end)| *end == from) {
            Some((_, end)) => *end = to,
            None => self.runs.push((from, to)),
        }
    }

    /// The log is durable up to `to`: what it has leaves the journal.
    pub fn in_log(&mut self, to: Lsn) {
        self.runs.retain(|(_, end)| *end > to);
    }

    /// How far everything is durable here, if the log is up to `durable`.
    pub fn held(&self, durable: Lsn) -> Lsn {
        let continues = |held: Lsn, (from, to): &(Lsn, Lsn)| if *from <= held { held.max(*to) } else { held };
        self.runs.iter().fold(durable, continues)
    }

    /// The log is cut at `at`.
    pub fn cut(&mut self, at: Lsn) {
        self.runs.retain(|(from, _)| *from < at);
        self.runs.iter_mut().for_each(|(_, to)| *to = at.min(*to));
        self.given = self.given.min(at);
    }

    /// How many pieces with gaps between them there are.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }
}

/// A checkpoint that is about to count. A restart from it has no versions that only snapshots below
/// its end see, so all must be part of the log that was given to the journal before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raising {
    floor: Lsn,
    to: Lsn,
}

impl Raising {
    /// One that ends at `floor`.
    pub fn new(floor: Lsn) -> Self {
        Self { floor, to: Lsn::MAX }
    }

    /// From now on nothing that reads below the checkpoint's end is written into the journal, if
    /// the node has one. Returns up to where the log has to be durable before the checkpoint
    /// counts. To be asked again while that is waited for: what was cut off does not come any more.
    pub fn begin(&mut self, kept: Option<&mut Kept>) -> Lsn {
        let given = kept.map_or(Lsn::ZERO, |kept| {
            kept.floor = kept.floor.max(self.floor);
            kept.given
        });
        // What is shown may be durable in the journal alone, and a restart needs the log up to
        // there.
        self.to = self.to.min(given).max(self.floor);
        self.to
    }
}

/// What a sender may say as inputs to one standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sayable {
    /// All changes of tables in what was sent lie below this. Those before the first batch may be
    /// anywhere below where that begins, and so may the end of the standby's checkpoint.
    defined: Lsn,
}

impl Sayable {
    /// To a standby whose first batch begins at `from`.
    pub fn new(from: Lsn) -> Self {
        Self { defined: from }
    }

    /// A block that changes tables, and ends here, is sent.
    pub fn defines(&mut self, end: Lsn) {
        self.defined = end;
    }

    /// What reads below goes as bytes: a node that began there may not have what it sees.
    pub fn reads_from(&self) -> Lsn {
        self.defined
    }

    /// Whether the keys of what is inserted next can be told: the sender's catalog has all that the
    /// log before it changes, as far as the sender has replayed the log. A primary has, always.
    pub fn knows_keys(&self, replayed: Lsn) -> bool {
        self.defined <= replayed
    }
}

/// What a node answers that is asked for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Original {
    /// Its log has it.
    Given,
    /// It does not, and may later.
    Later,
    /// It does not, and will not by itself.
    Lacking,
}

impl Original {
    /// Of a node with a log up to `end`, for a block that ends at `wanted`. `stuck`: it lacks a
    /// block itself, so its log does not continue.
    pub fn of_log(wanted: Lsn, end: Lsn, stuck: impl FnOnce() -> bool) -> Self {
        match wanted <= end {
            true => Self::Given,
            false if stuck() => Self::Lacking,
            false => Self::Later,
        }
    }

    /// Of a mirror whose memory is a state of the database up to `end`, if it is one. It has no log
    /// to give; but what it has was not lost, and who lacks it does not give up.
    pub fn of_mirror(wanted: Lsn, end: Option<Lsn>) -> Self {
        if end.is_some_and(|end| wanted <= end) { Self::Later } else { Self::Lacking }
    }
}

/// All known nodes are asked for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    known: bool,
    comes: bool,
}

impl Asked {
    /// Nobody has answered yet; `known`: there are other nodes.
    pub fn new(known: bool) -> Self {
        Self { known, comes: false }
    }

    /// One has no such block; `later`: it could not be reached, or may get it.
    pub fn lacks(&mut self, later: bool) {
        self.comes |= later;
    }

    /// Whether all were reached, none has it, and to none of them it comes: the node that asks
    /// cannot continue.
    pub fn is_nowhere(&self) -> bool {
        self.known && !self.comes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REACH: Reach = Reach { floor: Lsn(100), slack: 50 };

    #[test]
    fn versions_are_kept_for_what_may_read_them() {
        assert_eq!((REACH.oldest(Lsn(120)), REACH.oldest(Lsn(400))), (Lsn(100), Lsn(350)));
        assert!(REACH.reaches(Lsn(100), Lsn(150)) && REACH.reaches(Lsn(350), Lsn(400)));
        assert!(!REACH.reaches(Lsn(99), Lsn(120)), "below the floor");
        assert!(!REACH.reaches(Lsn(349), Lsn(400)), "too far back");
    }

    #[test]
    fn what_a_restart_cannot_execute_is_not_kept() {
        let demand = |snapshots: &[Option<u64>]| {
            let mut demand = Demand::behind(Lsn(110));
            snapshots.iter().for_each(|oldest| demand.executes(Lsn(140), oldest.map(Lsn), &REACH));
            demand.oldest()
        };
        assert_eq!(demand(&[]), Lsn::MAX);
        assert_eq!(demand(&[Some(130), Some(110), Some(120)]), Lsn(110));
        assert_eq!(demand(&[Some(130), Some(109)]), Lsn::ZERO, "tables were changed since");
        assert_eq!(demand(&[None, Some(130)]), Lsn::ZERO, "it is not known");
        let mut defines = Demand::behind(Lsn::ZERO);
        defines.executes(Lsn(110), Some(Lsn(105)), &REACH);
        defines.defines(Lsn(130));
        assert_eq!((defines.oldest(), defines.defined()), (Lsn(105), Lsn(130)), "what comes before it has read before");
        defines.executes(Lsn(140), Some(Lsn(129)), &REACH);
        assert_eq!(defines.oldest(), Lsn::ZERO);
    }

    #[test]
    fn what_is_not_kept_counts_with_the_log() {
        let mut kept = Kept::new(Lsn(200), Lsn(200), Lsn(100));
        assert!(kept.keeps(Lsn(210), Lsn(100)) && !kept.keeps(Lsn(220), Lsn(99)) && kept.keeps(Lsn(230), Lsn::MAX));
        kept.wrote(Lsn(200), Lsn(210));
        kept.wrote(Lsn(220), Lsn(230));
        assert_eq!((kept.held(Lsn(200)), kept.held(Lsn(219)), kept.held(Lsn(220))), (Lsn(210), Lsn(219), Lsn(230)));
        kept.in_log(Lsn(225));
        assert_eq!((kept.runs(), kept.held(Lsn(225))), (1, Lsn(230)));
        kept.cut(Lsn(228));
        assert_eq!((kept.runs(), kept.held(Lsn(225))), (1, Lsn(228)));
        kept.cut(Lsn(220));
        assert_eq!((kept.runs(), kept.held(Lsn(215))), (0, Lsn(215)));
    }

    #[test]
    fn a_checkpoint_counts_when_nothing_is_left_that_reads_below() {
        let mut kept = Kept::new(Lsn(200), Lsn(200), Lsn(100));
        assert!(kept.keeps(Lsn(260), Lsn(150)));
        let mut raising = Raising::new(Lsn(180));
        assert_eq!(raising.begin(Some(&mut kept)), Lsn(260), "that reads below it");
        assert!(!kept.keeps(Lsn(270), Lsn(150)) && kept.keeps(Lsn(280), Lsn(180)));
        assert_eq!(raising.begin(Some(&mut kept)), Lsn(260), "what came since does not");
        kept.cut(Lsn(240));
        assert_eq!(raising.begin(Some(&mut kept)), Lsn(240), "what was cut off does not come");
        kept.cut(Lsn(170));
        assert_eq!(raising.begin(Some(&mut kept)), Lsn(180), "it needs the log up to its end");
        assert!(!kept.keeps(Lsn(190), Lsn(179)));
        assert_eq!(Raising::new(Lsn(180)).begin(None), Lsn(180));
    }

    #[test]
    fn what_a_sender_encodes_the_standby_can_execute() {
        let mut sayable = Sayable::new(Lsn(40));
        assert_eq!(sayable.reads_from(), Lsn(40), "the standby may have begun there");
        assert!(!sayable.knows_keys(Lsn(39)) && sayable.knows_keys(Lsn(40)));
        sayable.defines(Lsn(70));
        assert_eq!(sayable.reads_from(), Lsn(70));
        assert!(!sayable.knows_keys(Lsn(69)) && sayable.knows_keys(Lsn::MAX));
    }

    #[test]
    fn a_block_is_nowhere_when_all_lack_it() {
        use Original::{Given, Lacking, Later};
        let of_log = |end, stuck| Original::of_log(Lsn(50), Lsn(end), || stuck);
        assert_eq!((of_log(50, true), of_log(49, false), of_log(49, true)), (Given, Later, Lacking));
        let of_mirror = |end: Option<u64>| Original::of_mirror(Lsn(50), end.map(Lsn));
        assert_eq!((of_mirror(Some(50)), of_mirror(Some(49)), of_mirror(None)), (Later, Lacking, Lacking));
        let nowhere = |known, answers: &[bool]| {
            let mut asked = Asked::new(known);
            answers.iter().for_each(|later| asked.lacks(*later));
            asked.is_nowhere()
        };
        assert!(nowhere(true, &[false, false]) && !nowhere(true, &[false, true, false]) && !nowhere(false, &[]));
    }
}
