use freshet_base::ClusterId;

use super::*;
use crate::{
    commit_rule,
    entering::{Effect, Entering, NotEntered},
    handshake::Refusal,
    in_sync::{Holder, tests::first_set},
    term::{TermEntry, TermHistory},
};

const ME: NodeId = NodeId(2);
const NOW: Moment = Moment(0);

fn config(replay: ReplayMode) -> FollowerConfig {
    FollowerConfig { replay, capacity: 1000, relay: None }
}

fn relay() -> FollowerConfig {
    let rules = RelayRules { ack: RelayAck::Downstream, standbys: 1, standby_timeout: Duration::from_secs(1) };
    FollowerConfig { relay: Some(rules), ..config(ReplayMode::Pipelined) }
}

fn welcome(term: u32, cut_at: u64, end: u64) -> Welcome {
    let mut history = TermHistory::first(Term(1), NodeId(1), 1);
    if term > 1 {
        history.begin(TermEntry { term: Term(term), start: Lsn(cut_at), node: NodeId(1), nonce: 1 }).unwrap();
    }
    Welcome {
        cluster: ClusterId(7),
        node: NodeId(1),
        above: Vec::new(),
        term: Term(term),
        history,
        cut_at: Lsn(cut_at),
        end: Lsn(end),
        keep_alive_ms: 10,
        lease_ms: 0,
    }
}

fn welcomed(it: &Follower, welcome: &Welcome, state: &TermState, sought: bool) -> Result<Entering, NotEntered> {
    Entering::to_follow(&it.held(state, sought), welcome, state)
}

/// A standby that follows, and whose transactions end at every hundred.
struct Bench(Follower);

impl Bench {
    fn new(config: FollowerConfig) -> Self {
        let mut follower = Follower::new(ME, config, Begun::default());
        follower.pass_on(&welcome(1, 0, 0), NOW);
        follower.linked(&welcome(1, 0, 0));
        Self(follower)
    }

    fn apply(&mut self, event: Event) -> Decision {
        let decision = self.0.apply(event, NOW);
        if let Some(show) = decision.show {
            self.0.shown(show.end(|at| Lsn(at.0 / 100 * 100)));
        }
        decision
    }

    /// What readers see from then on, if that is more.
    fn shows(&mut self, event: Event) -> Option<u64> {
        let before = self.0.visible();
        let _ = self.apply(event);
        Some(self.0.visible().0).filter(|now| *now > before.0)
    }

    fn accept(&mut self, ends: &[u64]) -> Decision {
        let ends: Vec<_> = ends.iter().copied().map(Lsn).collect();
        self.0.accepted(&ends)
    }

    fn replay(&mut self, limit: u64) -> Option<(u64, u64)> {
        let Piece { from, ends } = self.0.next_piece(limit)?;
        let to = *ends.last().unwrap();
        let _ = self.apply(Event::Replayed(to));
        Some((from.0, to.0))
    }

    fn acked(&mut self) -> Option<u64> {
        let owes = self.0.owes_ack(self.0.room(), false, &Fence::new(Term(1), None));
        self.0.ack(self.0.room(), NOW).filter(|_| owes).map(|ack| ack.persisted.0)
    }
}

#[test]
fn readers_see_the_least_of_three_and_whole_transactions() {
    let mut it = Bench::new(config(ReplayMode::Pipelined));
    assert!(it.accept(&[50, 100, 150]).replay);
    assert_eq!(it.shows(Event::Persisted(Lsn(150))), None);
    assert_eq!(it.replay(1000), Some((0, 150)));
    assert_eq!(it.0.visible(), Lsn(0), "nothing was announced");
    assert_eq!(it.shows(Event::Global(Lsn(300))), Some(100));
    assert_eq!(it.acked(), Some(150));
    assert_eq!(it.acked(), None, "nothing is new");
    let _ = it.accept(&[200]);
    assert_eq!(it.replay(1000), Some((150, 200)));
    assert_eq!(it.0.visible(), Lsn(100), "not persistent here");
    assert_eq!(it.shows(Event::Persisted(Lsn(200))), Some(200));
}

#[test]
fn commits_of_another_log_are_not_shown_of_this_one() {
    let mut it = Bench::new(config(ReplayMode::Pipelined));
    let _ = (it.accept(&[100, 250]), it.apply(Event::Persisted(Lsn(250))), it.replay(1000));
    // The old primary has committed more than ever came here.
    let _ = it.apply(Event::Global(Lsn(470)));
    assert_eq!((it.0.visible(), it.0.global()), (Lsn(200), Lsn(470)));
    it.0.closed();
    let state = TermState::of(ClusterId(7), TermHistory::first(Term(1), NodeId(1), 1));
    let next = welcome(2, 250, 250);
    let mut entering = welcomed(&it.0, &next, &state, false).unwrap();
    while let Some(effect) = entering.next_effect() {
        assert!(!matches!(effect, Effect::Cut(_)));
        entering.done(effect);
    }
    it.0.entered(entering.finish());
    it.0.linked(&next);
    let _ = (it.accept(&[300, 470]), it.apply(Event::Persisted(Lsn(470))), it.replay(1000));
    assert_eq!(it.0.visible(), Lsn(200), "the new primary has told nothing yet");
    assert_eq!(it.shows(Event::Global(Lsn(400))), Some(400));
}

#[test]
fn a_cut_waits_for_replay_and_forgets_what_lies_beyond() {
    let mut it = Bench::new(config(ReplayMode::Pipelined));
    let _ = (it.accept(&[100, 200, 300]), it.apply(Event::Persisted(Lsn(300))));
    assert_eq!(it.0.next_piece(150).map(|piece| piece.from), Some(Lsn(0)));
    it.0.hold(Lsn(50)).unwrap();
    assert!(it.0.is_replaying());
    let _ = it.apply(Event::Replayed(Lsn(100)));
    assert_eq!(it.0.next_piece(150), None, "held");
    it.0.cut(Lsn(50));
    assert_eq!((it.0.received(), it.0.persisted(), it.0.replayed()), (Lsn(50), Lsn(50), Lsn(50)));
    let _ = it.accept(&[120]);
    assert_eq!(it.replay(1000), Some((50, 120)));
    // Readers have seen the first hundred: that cannot be taken back.
    let _ = (it.apply(Event::Persisted(Lsn(120))), it.apply(Event::Global(Lsn(120))));
    assert_eq!(it.0.hold(Lsn(90)), Err(Seen { visible: Lsn(120) }));
}

#[test]
fn modes_differ_in_what_they_acknowledge_and_replay() {
    let mut it = Bench::new(config(ReplayMode::Synchronous));
    let _ = (it.accept(&[100]), it.apply(Event::Persisted(Lsn(100))));
    assert_eq!(it.acked(), Some(0), "only the room is news");
    it.replay(1000);
    assert_eq!(it.acked(), Some(100));
    let mut it = Bench::new(config(ReplayMode::None));
    let _ = (it.accept(&[100]), it.apply(Event::Persisted(Lsn(100))));
    assert_eq!((it.acked(), it.replay(1000)), (Some(100), None));
    assert_eq!(it.0.free_until(), Lsn(1100));
    assert!(it.0.replay_until(Lsn(100)));
    assert_eq!(it.replay(1000), Some((0, 100)));
}

#[test]
fn without_memory_the_log_is_received_and_neither_replayed_nor_acknowledged() {
    let mut it = Bench::new(config(ReplayMode::Pipelined));
    let _ = (it.accept(&[100, 200]), it.apply(Event::Persisted(Lsn(150))), it.replay(100));
    it.0.set_lacks_memory(true, true);
    let _ = (it.accept(&[900]), it.apply(Event::Persisted(Lsn(900))));
    // What was acknowledged stays so, and the buffer is given back.
    assert_eq!((it.0.to_acknowledge(), it.replay(1000), it.0.free_until()), (Lsn(150), None, Lsn(1900)));
    it.0.set_lacks_memory(false, true);
    assert_eq!((it.replay(100), it.0.to_acknowledge()), (Some((100, 200)), Lsn(200)));
    // A failover is not asked for memory.
    it.0.set_lacks_memory(true, true);
    assert_eq!(it.replay(1000), None);
    assert!(it.0.replay_until(Lsn(900)));
    assert_eq!((it.replay(1000), it.0.to_acknowledge()), (Some((200, 900)), Lsn(900)));
    // Replay has caught up: what is persistent counts by itself again.
    it.0.set_lacks_memory(false, true);
    let _ = (it.accept(&[1000]), it.apply(Event::Persisted(Lsn(1000))));
    assert_eq!(it.0.to_acknowledge(), Lsn(1000));
}

#[test]
fn nothing_is_acknowledged_behind_a_set_that_was_not_noted_or_to_a_term_that_is_over() {
    let mut it = Bench::new(config(ReplayMode::Pipelined));
    let _ = (it.accept(&[100]), it.apply(Event::Persisted(Lsn(100))));
    let owes = |it: &Bench, term| it.0.owes_ack(it.0.room(), true, &Fence::new(Term(term), None));
    assert!(owes(&it, 1) && !owes(&it, 2));
    it.0.not_noted();
    assert!(!owes(&it, 1) && it.0.ack(it.0.room(), NOW).is_none());
    let mut fence = Fence::new(Term(1), None);
    assert!(it.0.takes(Term(1), &fence) && !it.0.takes(Term(2), &fence));
    let _ = fence.observe(Term(2), NodeId(3));
    assert!(!it.0.takes(Term(1), &fence));
}

#[test]
fn a_relay_acknowledges_for_those_below_and_passes_commits_down() {
    let mut it = Bench::new(relay());
    let standby = NodeId(4);
    let joined = commit_rule::Event::Joined { standby, incarnation: 1, persisted: Lsn(0), synchronous: true };
    assert!(it.apply(Event::Below(joined)).places);
    let _ = (it.accept(&[100]), it.apply(Event::Persisted(Lsn(100))));
    assert_eq!(it.0.to_acknowledge(), Lsn(0));
    let _ = it.apply(Event::Below(commit_rule::Event::Acked { standby, persisted: Lsn(100), observed: None }));
    assert_eq!(it.0.to_acknowledge(), Lsn(100));
    let decision = it.apply(Event::Global(Lsn(100)));
    assert_eq!((decision.down, decision.release), (Some(Lsn(100)), Some(Lsn(100))));
    assert!(it.0.continues(&welcome(1, 100, 100)) && !it.0.continues(&welcome(2, 100, 100)));
    // After a cut that may stand within a transaction it passes nothing down.
    let _ = (it.accept(&[150]), it.apply(Event::Persisted(Lsn(150))), it.apply(Event::Global(Lsn(200))));
    it.0.hold(Lsn(120)).unwrap();
    it.0.cut(Lsn(120));
    it.0.pass_on(&welcome(2, 120, 120), NOW);
    assert_eq!((it.0.global(), it.0.downward()), (Lsn(120), Some(Lsn(0))));
}

/// The relay may observe that the primary has far more than there is room for here, and then
/// nothing between.
#[test]
fn a_relay_needs_no_room_for_what_is_globally_persistent() {
    let mut it = Bench::new(relay());
    let _ = it.accept(&[100]);
    let decision = it.apply(Event::Global(Lsn(1000)));
    assert_eq!((decision.down, decision.release), (None, None), "it is not persistent here");
    let persisted = it.apply(Event::Persisted(Lsn(100)));
    assert_eq!((persisted.down, persisted.release), (None, Some(Lsn(100))));
    let _ = it.accept(&[1000]);
    let persisted = it.apply(Event::Persisted(Lsn(1000)));
    assert_eq!((persisted.down, persisted.release), (Some(Lsn(1000)), Some(Lsn(1000))));
}

#[test]
fn one_that_is_counted_on_leaves_a_relay_and_follows_none() {
    let mut it = Follower::new(ME, config(ReplayMode::Pipelined), Begun::default());
    let through = |above: &[u64]| Welcome { above: above.iter().copied().map(NodeId).collect(), ..welcome(1, 0, 0) };
    let mut state = TermState::empty();
    assert!(welcomed(&it, &through(&[9]), &state, false).is_ok());
    assert_eq!(welcomed(&it, &through(&[9]), &state, true), Err(NotEntered::Counted(NodeId(9))));
    assert!(matches!(
        welcomed(&it, &through(&[9, 2]), &state, false),
        Err(NotEntered::Refused(Refusal::Circle { .. }))
    ));
    it.linked(&through(&[9]));
    let set = set_of(ME);
    assert!(it.noted(&set));
    state.note_set(set);
    assert_eq!(welcomed(&it, &through(&[9]), &state, false), Err(NotEntered::Counted(NodeId(9))));
}

#[test]
#[should_panic(expected = "durable 200 is above received 100")]
fn the_law_is_asserted() {
    let mut it = Bench::new(config(ReplayMode::Pipelined));
    let _ = (it.accept(&[100]), it.apply(Event::Persisted(Lsn(200))));
}

#[test]
fn a_checkpoint_of_another_log_is_not_continued() {
    // The log of term 1 up to 100, and what a checkpoint has seen of it up to 300.
    let begun = Begun { received: Lsn(100), persisted: Lsn(100), floor: Lsn(300), ..Begun::default() };
    let it = Follower::new(ME, config(ReplayMode::Pipelined), begun);
    let state = TermState::of(ClusterId(7), TermHistory::first(Term(1), NodeId(1), 1));
    assert!(welcomed(&it, &welcome(1, 100, 500), &state, false).is_ok());
    assert!(welcomed(&it, &welcome(1, 100, 200), &state, false).is_ok(), "the checkpoint is ahead of a relay");
    let entered = |start: u64, end: u64| {
        let mut history = TermHistory::first(Term(1), NodeId(1), 1);
        history.begin(TermEntry { term: Term(2), start: Lsn(start), node: NodeId(1), nonce: 1 }).unwrap();
        welcomed(&it, &Welcome { history, ..welcome(2, 100, end) }, &state, false)
    };
    let checkpoint = |at| Err(NotEntered::Checkpoint { at: Lsn(at), floor: Lsn(300) });
    assert_eq!((entered(200, 500), entered(299, 500)), (checkpoint(200), checkpoint(299)));
    assert_eq!(entered(200, 200), checkpoint(200), "the new primary has written nothing yet");
    assert!(entered(300, 500).is_ok());
}

#[test]
fn the_global_position_does_not_move_back() {
    let mut it = Bench::new(config(ReplayMode::Pipelined));
    let _ = (it.apply(Event::Global(Lsn(200))), it.apply(Event::Global(Lsn(100))));
    assert_eq!(it.0.global(), Lsn(200));
}

#[test]
fn nothing_is_shown_below_the_floor() {
    let begun = Begun { floor: Lsn(300), ..Begun::default() };
    let mut it = Bench(Follower::new(ME, config(ReplayMode::Pipelined), begun));
    let _ = (it.accept(&[200, 300]), it.apply(Event::Persisted(Lsn(300))), it.apply(Event::Global(Lsn(300))));
    assert_eq!(it.replay(200), Some((0, 200)));
    assert_eq!(it.0.visible(), Lsn(0));
    assert_eq!(it.replay(200), Some((200, 300)));
    assert_eq!(it.0.visible(), Lsn(300));
}

#[test]
fn only_a_set_with_this_node_ends_its_relay() {
    let mut it = Follower::new(ME, config(ReplayMode::Pipelined), Begun::default());
    it.linked(&Welcome { above: vec![NodeId(9)], ..welcome(1, 0, 0) });
    let of = set_of;
    assert!(!it.noted(&of(NodeId(7))) && it.noted(&of(ME)));
}

#[test]
fn a_cut_ends_what_is_passed_on_and_forgets_what_waits() {
    let mut it = Bench::new(relay());
    let _ = it.accept(&[100, 200, 300]);
    it.0.hold(Lsn(150)).unwrap();
    it.0.cut(Lsn(150));
    assert_eq!(it.0.downward(), None);
    assert_eq!((it.replay(1000), it.replay(1000)), (Some((0, 150)), None));
}

#[test]
fn one_piece_is_replayed_at_a_time_and_none_after_a_failure() {
    let mut it = Bench::new(config(ReplayMode::Pipelined));
    let _ = it.accept(&[100, 200]);
    assert_eq!(it.0.next_piece(100).map(|piece| piece.from), Some(Lsn(0)));
    assert_eq!(it.0.next_piece(100), None);
    it.0.replay_failed();
    assert_eq!(it.0.next_piece(100), None);
}

#[test]
fn what_has_arrived_counts_and_is_replayed_when_it_is_part_of_the_log() {
    let mut bench = Bench::new(config(ReplayMode::Pipelined));
    let _ = bench.accept(&[100]);
    assert_eq!(bench.apply(Event::Arrived(Lsn(500))), Decision::default());
    let _ = bench.apply(Event::Persisted(Lsn(500)));
    let _ = bench.apply(Event::Global(Lsn(500)));
    assert_eq!((bench.0.received(), bench.0.to_acknowledge()), (Lsn(500), Lsn(500)));
    assert_eq!((bench.replay(1000), bench.replay(1000)), (Some((0, 100)), None));
    assert_eq!(bench.0.visible(), Lsn(100));
    let _ = bench.accept(&[200, 300]);
    assert_eq!((bench.replay(1000), bench.0.visible(), bench.0.received()), (Some((100, 300)), Lsn(300), Lsn(500)));
    // A cut above what is part of the log leaves nothing to replay there.
    bench.0.hold(Lsn(400)).unwrap();
    bench.0.cut(Lsn(400));
    assert_eq!((bench.0.received(), bench.0.persisted(), bench.replay(1000)), (Lsn(400), Lsn(400), None));
    let _ = bench.accept(&[400]);
    assert_eq!(bench.replay(1000), Some((300, 400)));
}

fn set_of(node: NodeId) -> InSyncSet {
    first_set(NodeId(1), [Holder::new(node, 1)].into())
}
