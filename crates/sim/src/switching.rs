//! Switch-overs: drives [`freshet_cluster::switch_over`]. A transaction of a client is written at
//! once, so one is open or about to commit only as dice say.

use std::time::Duration;

use freshet_base::{Consent, Lsn, NodeId, Term};
use freshet_cluster::{
    Moment,
    commit_rule::{Place, Standing},
    contest::{self, ContestConfig},
    promotion,
    switch_over::{HandOver, Next, NotHandedOver, Seen, Successor, SwitchOver, SwitchOverConfig},
    term::Living,
};

use crate::{
    checks::{Property, Violation},
    dice::{Dice, mix},
    net::{ConnectionId, Message},
    node::Lead,
    scenario::Broken,
    world::{Own, World},
};

/// As much shorter as the other times of a simulated cluster.
const CONFIG: SwitchOverConfig = SwitchOverConfig {
    catch_up: Duration::from_millis(20),
    near: 1000,
    finish: Duration::from_millis(2),
    hand_over: Duration::from_millis(8),
};
/// The same.
pub(crate) const CONTEST: ContestConfig = ContestConfig {
    lasts: Duration::from_millis(5),
    ends: Duration::from_millis(60),
    every: Duration::from_millis(30),
    offers: 3,
};
/// Who stands by itself gives way to the successor for so long.
const ON_ITS_WAY: Duration = Duration::from_millis(15);
/// How often a primary looks, in microseconds.
const LOOK: u64 = 300;

/// Names the dice of switch-overs.
const SWITCH_OVERS: u64 = 9;

/// The dice of the operator who switches over; none in two of three runs.
pub(crate) fn dice(seed: u64) -> Option<Dice> {
    let mut dice = Dice(mix(seed ^ mix(SWITCH_OVERS)));
    dice.one_in(3).then_some(dice)
}

/// What a primary holds back.
#[derive(Default)]
pub(crate) struct Switching {
    /// The switch-over that is under way.
    under_way: Option<SwitchOver>,
    /// No transaction is written.
    pub closed: bool,
    /// The number of one that was given up.
    given_up: Option<u64>,
    /// Who has the role, and until when that node may be on its way.
    handed: Option<(Living, Moment)>,
}

impl Switching {
    /// Who has the role, and is about to lead.
    pub fn successor(&self, now: Moment) -> Option<Living> {
        self.handed.filter(|(_, until)| now < *until).map(|(living, _)| living)
    }
}

impl World {
    /// In some runs the operator wants the only primary to hand its role to another node now and
    /// then.
    pub(crate) fn may_order_switch_over(&mut self, leading: &[usize]) {
        let count = self.nodes.len() as u64;
        let ([primary], false, Some(dice)) = (leading, self.calm, &mut self.operators[0]) else { return };
        if dice.one_in(6) {
            let to = dice.below(count) as usize;
            if to != *primary {
                let _ = self.order_switch_over(*primary, to);
            }
        }
    }

    /// A node cannot follow the primary `node` before a later term, and has said so.
    pub(crate) fn leaves_contested_term(&mut self, node: usize) {
        let (now, keeps) = (self.clock(node), self.scenario.broken == Broken::ContestKept);
        let leads = |lead: &&mut Lead| !keeps && lead.rule.fenced().is_none();
        let Some(lead) = self.nodes[node].lead_mut().filter(leads) else { return };
        let _ = lead.contest.refused(now);
        let blocked = matches!(lead.rule.standing(), Standing::Blocked { .. });
        match lead.contest.next(blocked, now) {
            contest::Next::Rest => {}
            contest::Next::StartAgain => self.crash(node),
            contest::Next::HandOver => {
                let to = self.may_take_the_role(node);
                if !to.is_some_and(|to| self.order_switch_over(node, to))
                    && let Some(lead) = self.nodes[node].lead_mut()
                {
                    lead.contest.not_taken();
                }
            }
        }
    }

    /// A standby in sync.
    fn may_take_the_role(&self, node: usize) -> Option<usize> {
        let fits = |name: NodeId| !self.nodes[name.0 as usize].is_witness && !self.scenario.is_mirror(name.0 as usize);
        let mut in_sync = self.nodes[node].lead()?.rule.members().filter(|(name, member)| {
            member.connected && member.synchronous && member.place == Place::InSync && fits(*name)
        });
        in_sync.next().map(|(name, _)| name.0 as usize)
    }

    /// The primary `node` is to hand its role to `to`. False when that is under way already.
    fn order_switch_over(&mut self, node: usize, to: usize) -> bool {
        let (number, now, to) = (self.unique(), self.clock(node), self.nodes[to].id);
        let by = self.nodes[node].id;
        let Some(lead) = self.nodes[node].lead_mut().filter(|lead| lead.switching.under_way.is_none()) else {
            return false;
        };
        let hand_over = HandOver { by, term: lead.term, number };
        lead.switching.under_way = Some(SwitchOver::new(to, hand_over, CONFIG, now));
        self.report.switch_overs += 1;
        self.later(node, 1, Own::Switch);
        true
    }

    /// A primary looks how far a switch-over is.
    pub(crate) fn switch(&mut self, node: usize) {
        let now = self.clock(node);
        let (open, committing) = (self.dice.one_in(3), self.dice.one_in(4));
        let ignores = self.scenario.broken == Broken::GateNotClosed;
        let state = &self.nodes[node];
        let (end, host) = (Lsn(state.disk.log.end()), state.host.as_ref());
        let Some(lead) = state.lead() else { return };
        let Some(to) = lead.switching.under_way.as_ref().map(SwitchOver::to) else { return };
        let in_sync = lead.rule.members().any(|(node, member)| {
            node == to && member.connected && member.synchronous && member.place == Place::InSync
        });
        let successor = host.and_then(|host| host.feed_of(to)).map(|(_, feed)| Successor {
            in_sync: in_sync || lead.rule.level().counts_on_nobody(),
            persisted: feed.acked(),
            replayed: feed.replayed,
        });
        let leads = lead.rule.fenced().is_none();
        let seen = Seen { leads, open, committing, end, committed: lead.rule.committed(), successor };
        let Some(lead) = self.nodes[node].lead_mut() else { return };
        let switching = &mut lead.switching;
        let Some(under_way) = &mut switching.under_way else { return };
        match under_way.next(now, &seen) {
            Next::Look | Next::Hold => {}
            Next::Close => switching.closed = !ignores,
            Next::Offer(hand_over) => {
                let _ = self.connect(node, to.0 as usize, Message::HandOver { hand_over });
            }
            Next::HandedOver => return,
            Next::Stop(why) => return self.gives_up_switching(node, why),
        }
        self.later(node, LOOK, Own::Switch);
    }

    fn gives_up_switching(&mut self, node: usize, why: NotHandedOver) {
        self.note(|| format!("node {node} does not hand its role over: {why}"));
        let Some(lead) = self.nodes[node].lead_mut() else { return };
        let given_up = lead.switching.under_way.take().map(|it| it.number());
        lead.switching = Switching { given_up, ..Switching::default() };
        lead.contest.not_taken();
    }

    /// A primary hands `node` its role.
    pub(crate) fn is_handed(&mut self, node: usize, id: ConnectionId, hand_over: HandOver) -> Result<(), Violation> {
        self.hang_up(id, node);
        let by = Living { term: hand_over.term, node: hand_over.by };
        let state = &self.nodes[node];
        let is_free = state.candidate.is_none() && state.lead().is_none() && !state.returns;
        if state.living(self.clock(node)) != Some(by) || !is_free {
            return Ok(());
        }
        self.stands(node, Consent::Nothing, promotion::Standing::Handed(hand_over))
    }

    /// Whether the primary `node` gives the candidate that shows this number its promise of `term`.
    pub(crate) fn hands_over(
        &mut self,
        node: usize,
        to: usize,
        (term, number): (Term, u64),
    ) -> Result<bool, Violation> {
        let until = self.clock(node).after(ON_ITS_WAY);
        let to = self.nodes[to].id;
        let any = self.scenario.broken == Broken::OfferNotTakenBack;
        let Some(lead) = self.nodes[node].lead_mut().filter(|lead| lead.rule.fenced().is_none()) else {
            return Ok(true);
        };
        let switching = &mut lead.switching;
        let gets_it = any || switching.under_way.as_mut().is_some_and(|it| it.hand_over(to, number));
        if !gets_it {
            return Ok(false);
        }
        if switching.given_up == Some(number) {
            return Property::SwitchOver.violated(format!("node {node} has taken back the offer that it keeps"));
        }
        switching.handed = Some((Living { term, node: to }, until));
        let (acknowledged, written) = (lead.acknowledged, lead.written);
        if acknowledged < written {
            return Property::SwitchOver.violated(format!(
                "node {node} hands its role over, and has acknowledged {acknowledged}; clients have written up to \
                 {written}, and do not hear what becomes of that"
            ));
        }
        self.report.handed_over += 1;
        Ok(true)
    }
}
