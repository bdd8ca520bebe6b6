use std::time::Duration;

use freshet_base::{ClusterId, Safety};

use super::*;
use crate::{
    commit_rule::{CommitRule, Place, RuleConfig},
    in_sync::{Holder, InSyncSet, tests::first_set},
    term::TermHistory,
};

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);

fn ms(ms: u64) -> Moment {
    Moment(ms * 1000)
}

fn sender(above: &[NodeId]) -> Sender {
    Sender {
        cluster: ClusterId(7),
        node: A,
        above: above.to_vec(),
        term: Term(3),
        history: TermHistory::first(Term(3), above.first().copied().unwrap_or(A), 1),
        end: Lsn(100),
        needed_capacity: 10,
        keep_alive_ms: 50,
        lease_ms: 0,
    }
}

fn host_of(above: &[NodeId]) -> Host {
    let flow =
        FlowConfig { frame: 100, watermark_delay: Duration::from_millis(1), keep_alive: Duration::from_millis(50) };
    Host::new(sender(above), flow, 16)
}

fn replica(node: NodeId) -> ReplicaState {
    let (from, persisted, replayed) = (Lsn(100), Lsn(90), Lsn(500));
    ReplicaState { node, incarnation: 1, member: true, synchronous: true, appliance: false, from, persisted, replayed }
}

fn ack(persisted: u64, may_send_until: u64) -> Ack {
    let (persisted, may_send_until) = (Lsn(persisted), Lsn(may_send_until));
    Ack { persisted, may_send_until, replayed: Lsn(80), visible: Lsn(70), observed: None }
}

fn left(standby: NodeId) -> Option<Event> {
    Some(Event::Left { standby })
}

/// A host with one feed, number 1, which has room and was shipped everything up to 130.
fn shipped(appliance: bool) -> Host {
    let mut host = host_of(&[]);
    let _ = host.join(1, ReplicaState { appliance, ..replica(B) }, ms(0)).unwrap();
    let _ = host.acked(1, &ack(90, 1000)).unwrap();
    host.filled(Lsn(100), Lsn(130), &[], ms(3));
    assert_eq!(host.next(1, ms(4)), Some(Next::SendLive { from: Lsn(100), to: Lsn(130) }));
    let note = host.shipped(1, Some(Lsn(130)), ms(4)).unwrap();
    let expected =
        Note { global: Lsn(0), end: Lsn(130), time: ms(4), sure: ms(4), filled_at: Some(ms(3)), in_sync: false };
    assert_eq!(note, expected);
    host
}

#[test]
fn a_feed_has_no_room_before_the_first_acknowledgement() {
    let mut host = host_of(&[]);
    let joined = host.join(1, replica(B), ms(0)).unwrap();
    let event = Event::Joined { standby: B, incarnation: 1, persisted: Lsn(90), synchronous: true };
    assert_eq!(joined, Joined { replaced: None, events: [None, Some(event)] });
    assert_eq!(host.feeds().next().unwrap().1.replayed, Lsn(100), "not beyond where the logs part");
    host.filled(Lsn(100), Lsn(130), &[], ms(0));
    assert!(matches!(host.next(1, ms(0)), Some(Next::Wait { .. })));
    let acked = host.acked(1, &ack(90, 200)).unwrap();
    assert!(acked.wake);
    assert!(matches!(host.next(1, ms(0)), Some(Next::SendLive { .. })));
    assert!(!host.acked(1, &ack(90, 210)).unwrap().wake, "it did not wait for room");
}

#[test]
fn a_newer_connection_takes_the_place_of_an_older_one() {
    let mut host = shipped(false);
    let again = host.join(2, replica(B), ms(5)).unwrap();
    assert_eq!((again.replaced, again.events[0]), (Some(1), left(B)));
    assert_eq!(host.acked(1, &ack(130, 2000)), Ok(Acked::default()), "nothing of the older one counts");
    assert_eq!((host.next(1, ms(5)), host.leave(1)), (None, None), "its end is no end of the newer one");
    assert_eq!(host.join(3, replica(C), ms(5)).unwrap().replaced, None);
    assert_eq!((host.leave(2), host.leave(2)), (left(B), None));
}

#[test]
fn the_rule_receives_events_of_members_only() {
    let mut host = host_of(&[]);
    let observer = ReplicaState { member: false, ..replica(B) };
    assert_eq!(host.join(1, observer, ms(0)).unwrap(), Joined::default());
    assert_eq!(host.acked(1, &ack(100, 200)).unwrap().event, None);
    assert_eq!(host.leave(1), None);
}

#[test]
fn more_than_was_shipped_cannot_be_acknowledged() {
    let mut host = shipped(false);
    assert!(host.acked(1, &ack(131, 1000)).is_err());
    let acked = host.acked(1, &ack(130, 1000)).unwrap();
    assert_eq!(acked.event, Some(Event::Acked { standby: B, persisted: Lsn(130), observed: None }));
}

#[test]
fn what_is_read_back_counts_when_the_standby_has_noted_the_newest_set() {
    let mut host = shipped(true);
    assert!(!host.counts_read_back(1), "it did not receive what the restart has found");
    assert_eq!(host.read_back(1, Lsn(130)), Ok(Acked::default()));
    let _ = host.acked(1, &ack(100, 1000)).unwrap();
    let event = Some(Event::Acked { standby: B, persisted: Lsn(130), observed: None });
    assert_eq!(host.read_back(1, Lsn(130)).unwrap().event, event);
    host.set_recorded(Lsn::MAX);
    assert!(!host.counts_read_back(1));
    host.set_recorded(Lsn(131));
    assert!(!host.counts_read_back(1));
    host.set_recorded(Lsn(130));
    assert!(host.counts_read_back(1));
    let mut other = shipped(false);
    let _ = other.acked(1, &ack(130, 1000)).unwrap();
    assert!(!other.counts_read_back(1), "only with the appliance method");
}

#[test]
fn commits_are_sent_at_once_where_nothing_else_was_for_a_while() {
    let mut host = shipped(false);
    assert_eq!(host.committed(Lsn(130), ms(4)), [], "it rides on the next batch");
    assert_eq!(host.committed(Lsn(130), ms(9)), [], "it has not moved");
    assert!(matches!(host.next(1, ms(4)), Some(Next::Wait { until }) if until == ms(5)));
    assert_eq!(host.next(1, ms(5)), Some(Next::SendWatermark));
    assert_eq!(host.shipped(1, None, ms(5)).unwrap().global, Lsn(130));
    assert_eq!(host.committed(Lsn(140), ms(6)), [1]);
    let mut host = shipped(false);
    host.is_prompt(1);
    assert_eq!(host.committed(Lsn(130), ms(4)), [1], "it takes no time");
}

#[test]
fn peers_are_sent_before_all_else() {
    let mut host = shipped(false);
    host.peers_changed();
    host.filled(Lsn(130), Lsn(140), &[], ms(5));
    assert_eq!(host.next(1, ms(5)), Some(Next::SendPeers));
    host.peers_sent(1);
    assert!(matches!(host.next(1, ms(5)), Some(Next::SendLive { .. })));
}

#[test]
fn nothing_is_sent_to_a_feed_that_is_given_up_or_by_a_host_that_is_closed() {
    let mut host = shipped(false);
    host.filled(Lsn(130), Lsn(140), &[], ms(5));
    assert_eq!(host.give_up(1), Lsn(130));
    assert_eq!(host.next(1, ms(5)), None);
    assert_eq!(host.leave(1), left(B), "until then the node is there");
    let mut host = shipped(false);
    host.filled(Lsn(130), Lsn(140), &[], ms(5));
    host.close();
    assert_eq!((host.next(1, ms(5)), host.join(2, replica(C), ms(5))), (None, None));
}

#[test]
fn notes_state_whether_a_standby_is_in_sync() {
    let mut rule = CommitRule::new(RuleConfig::new(Safety::VerySafe, 1), Lsn(100), ms(0));
    let mut host = shipped(false);
    let _ = rule.apply(Event::Joined { standby: B, incarnation: 1, persisted: Lsn(100), synchronous: true }, ms(0));
    let in_sync = |rule: &CommitRule| {
        let members = rule.members().filter(|(_, member)| member.place == Place::InSync);
        members.map(|(node, _)| node).collect::<Vec<_>>()
    };
    host.placed(&in_sync(&rule));
    assert!(host.shipped(1, None, ms(6)).unwrap().in_sync);
    let _ = rule.apply(Event::Joined { standby: B, incarnation: 1, persisted: Lsn(0), synchronous: false }, ms(0));
    host.placed(&in_sync(&rule));
    assert!(!host.shipped(1, None, ms(6)).unwrap().in_sync);
}

#[test]
fn a_relay_passes_the_primarys_clock_on() {
    let mut host = host_of(&[C]);
    let _ = host.join(1, replica(B), ms(0)).unwrap();
    host.filled(Lsn(100), Lsn(130), &[], ms(1));
    let _ = host.acked(1, &ack(100, 1000)).unwrap();
    let note = host.shipped(1, Some(Lsn(130)), ms(1)).unwrap();
    assert_eq!((note.end, note.time, note.filled_at), (Lsn(0), Moment(0), None));
    host.observe(Word { end: Lsn(900), time: ms(5000), sure: ms(4990) }, ms(2));
    let note = host.shipped(1, None, ms(5)).unwrap();
    assert_eq!((note.end, note.time, note.sure, note.filled_at), (Lsn(900), ms(5003), ms(4990), None));
}

#[test]
fn the_log_is_needed_from_the_slowest_feed_on() {
    let mut host = shipped(false);
    assert_eq!(host.needed(), Lsn(90));
    let _ = host.acked(1, &ack(120, 1000)).unwrap();
    assert_eq!(host.needed(), Lsn(120));
    let _ = host.leave(1);
    assert_eq!(host.needed(), Lsn::MAX);
}

/// Node B, which no commit waits for, with this log.
fn asking(log: &Continue) -> Asking<'_> {
    let (cluster, fence, holds) = (None, Term(3), Lsn::ZERO);
    Asking { cluster, node: B, fence, log, counted: false, holds, in_effect: false, mirror: None }
}

#[test]
fn a_relay_feeds_no_node_that_has_to_follow_the_primary() {
    let log = Continue {
        history: TermHistory::default(),
        received: Lsn(0),
        persisted: Lsn(0),
        capacity: 100,
        may_send_until: Lsn(100),
    };
    let asking = asking(&log);
    let counted = Asking { counted: true, ..asking };
    let state = TermState::of(ClusterId(7), TermHistory::first(Term(3), C, 1));
    let members = [C, B].map(|node| Holder::new(node, 1)).into();
    let set = InSyncSet { term: Term(3), ..first_set(NodeId(1), members) };
    let on_record = TermState { set: Some(set), ..state.clone() };
    let relay = host_of(&[C]);
    let not_primary = Err(Refusal::NotPrimary { node: A, primary: None });
    assert!(relay.agree(&asking, &state).is_ok());
    assert_eq!(relay.agree(&counted, &state), not_primary);
    assert_eq!(relay.agree(&asking, &on_record), not_primary);
    assert!(host_of(&[]).agree(&counted, &on_record).is_ok(), "the primary does");

    let later = Err(Refusal::Later { node: A, why: Wait::Lost });
    let mut risen = state.clone();
    let _ = risen.fence.observe(Term(4), B);
    assert_eq!(relay.agree(&asking, &risen), later, "its primary is of the past");
    let mut closed = relay.clone();
    closed.close();
    assert_eq!(closed.agree(&asking, &state), later);

    let leap = Asking { fence: Term(u32::MAX), ..asking };
    assert_eq!(relay.agree(&leap, &state), Err(Refusal::Leap { asked: Term(u32::MAX), highest: Term(3) }));
}

/// It led a term of its own, which took effect, or followed one, beside the sender's.
#[test]
fn a_node_whose_last_term_took_effect_holds_more_than_a_log_beside_it() {
    let host = host_of(&[]);
    let history = TermHistory::first(Term(2), B, 7);
    let state = TermState::of(ClusterId(7), history.clone());
    let log = Continue { history, received: Lsn(40), persisted: Lsn(40), capacity: 1000, may_send_until: Lsn(1000) };
    let asking = Asking { fence: Term(2), counted: true, in_effect: true, ..asking(&log) };
    let holds_more = Refusal::HoldsMore { node: B, at: Lsn::ZERO, committed: Lsn(40) };
    assert_eq!(host.agree(&asking, &state).map(drop), Err(holds_more));
    assert!(host.agree(&Asking { in_effect: false, ..asking }, &state).is_ok());
    // Of the sender's own term the end may be cut.
    let history = host.sender.history.clone();
    let log = Continue { history, received: Lsn(1 << 40), ..log.clone() };
    assert!(host.agree(&Asking { log: &log, fence: Term(3), ..asking }, &state).is_ok());
}

/// It may have the rows of the block that records the set, for which what it holds counts too.
#[test]
fn a_mirror_notes_the_newest_set_before_it_is_fed() {
    let host = host_of(&[]);
    let members = [A, B].map(|node| Holder::new(node, 1)).into();
    let set = InSyncSet { term: Term(3), number: 2, ..first_set(NodeId(1), members) };
    let history = TermHistory::first(Term(3), A, 1);
    let state = TermState { set: Some(set.clone()), ..TermState::of(ClusterId(7), history.clone()) };
    let log = Continue { history, received: Lsn(40), persisted: Lsn(40), capacity: 1000, may_send_until: Lsn(1000) };
    let asking = Asking { counted: true, ..asking(&log) };
    let noted = |noted: Noted| host.agree(&Asking { mirror: Some(noted), ..asking }, &state).map(drop);
    let first = Err(Refusal::NoteSet { set: Box::new(set.clone()) });
    assert_eq!([noted(None), noted(Some((Term(3), NodeId(1), 1)))], [first.clone(), first]);
    assert_eq!(noted(Some(set.name())), Ok(()));
    assert!(host.agree(&asking, &state).is_ok(), "a log says by itself which sets it has");
    let nothing = Continue { received: Lsn(0), persisted: Lsn(0), history: TermHistory::default(), ..log.clone() };
    let empty = Asking { mirror: Some(None), log: &nothing, ..asking };
    assert!(host.agree(&empty, &state).is_ok(), "it will get the block itself");
}
