//! A standby that gets the log in another form, and regenerates it.

use std::sync::Arc;

use freshet_base::{Consent, Fid, Lsn, NodeId, RecordKind, Rid, Safety, Term, sync::Ordering};
use freshet_cluster::term::{TermHistory, TermState};
use freshet_fabric::FabricKind;
use freshet_log::{BlockBuilder, BlockHeader, BlockKind};

use super::{
    fixture::*,
    mirroring::MirrorNode,
    toy::{Toy, ToyForms},
};
use crate::{
    endpoint::Endpoint,
    feed::FeedConfig,
    follow::FollowConfig,
    forms::{Encoding, Wanted},
    primary::PrimaryConfig,
    promotion::PromoteOptions,
    standby::{StandbyConfig, originals},
    status::LinkStatus,
    terms::{Terms, VolatileTerms},
    wire::{Peer, Peers},
};

fn asking() -> StandbyConfig {
    StandbyConfig { encoding: Encoding::Inputs, ..StandbyConfig::default() }
}

fn encoding(safety: Safety, leaves: usize) -> (PrimaryConfig, Arc<ToyForms>) {
    let forms = Arc::new(ToyForms { leaves, ..ToyForms::default() });
    let mut config = config(rule(safety, 1));
    config.feed.forms = Some(Arc::clone(&forms) as _);
    (config, forms)
}

/// A standby that asks for forms, of `primary`.
fn below(primary: &PrimaryNode) -> (StandbyNode, Arc<Toy>) {
    let standby = NewStandby::new(2).following(primary.address()).config(asking()).start();
    standby.joined();
    let toy = Arc::clone(&standby.tape.toy);
    (standby, toy)
}

/// A primary whose commits count on a standby that regenerates nothing, and how far it has written.
fn held(config: PrimaryConfig) -> (PrimaryNode, StandbyNode, Arc<Toy>, Lsn) {
    let primary = PrimaryNode::first(config);
    let (standby, toy) = below(&primary);
    toy.gate(Some(0));
    let end = primary.write(&[64; 20]);
    primary.commits(end);
    (primary, standby, toy, end)
}

#[test]
fn what_has_arrived_counts_before_it_is_regenerated() {
    let (config, forms) = encoding(Safety::VerySafe, 0);
    let (primary, standby, toy, end) = held(config);
    assert_eq!((standby.log.end(), standby.standby.visible().get()), (Lsn(0), Lsn(0)));
    assert!(forms.encoded.load(Ordering::SeqCst) > 0);
    toy.gate(None);
    standby.shows(end);
    assert_eq!(standby.log.bytes(), primary.log.bytes());
}

#[test]
fn forms_and_bytes_come_in_turn() {
    let (config, forms) = encoding(Safety::VerySafe, 3);
    let primary = PrimaryNode::first(config);
    let (standby, toy) = below(&primary);
    let mut end = Lsn(0);
    for round in 0..60 {
        toy.gate((round % 2 == 0).then_some(end.0));
        for _ in 0..3 {
            end = primary.write(&[64, 72, 200]);
        }
        toy.gate(None);
    }
    primary.commits(end);
    standby.shows(end);
    assert_eq!(standby.log.bytes(), primary.log.bytes());
    assert!(forms.encoded.load(Ordering::SeqCst) > 0);
}

#[test]
fn the_form_changes_while_the_log_flows() {
    let (config, forms) = encoding(Safety::VerySafe, 0);
    let primary = PrimaryNode::first(config);
    let (standby, toy) = below(&primary);
    let mut end = Lsn(0);
    for round in 0..6 {
        let asked = if round % 2 == 0 { Encoding::Bytes } else { Encoding::Inputs };
        // What came before is not regenerated yet.
        toy.gate(Some(end.0));
        let first = primary.write(&[64, 200, 72]);
        until("it has arrived in the form of before", || standby.standby.status().arrived >= first);
        assert!(standby.standby.ask_for(asked));
        assert_eq!(standby.standby.status().encoding, asked);
        let encoders = usize::from(asked == Encoding::Inputs);
        until("the primary has heard it", || forms.encoders.load(Ordering::SeqCst) == encoders);
        let before = forms.encoded.load(Ordering::SeqCst);
        end = primary.write(&[64, 72, 200]);
        toy.gate(None);
        primary.commits(end);
        let encoded = forms.encoded.load(Ordering::SeqCst) - before;
        assert_eq!(encoded > 0, asked == Encoding::Inputs, "{encoded} batches were encoded for {asked}");
    }
    standby.shows(end);
    assert_eq!(standby.log.bytes(), primary.log.bytes());
    assert_eq!(primary.primary.status().standbys[0].last_loss, None, "it has joined once");
}

#[test]
fn no_more_arrives_than_is_wanted_ahead_of_what_is_complete_but_a_long_block_does() {
    let (config, _) = encoding(Safety::OneSafe, 0);
    let primary = PrimaryNode::first(config);
    let standby = NewStandby::new(2).config(asking()).start();
    let toy = Arc::clone(&standby.tape.toy);
    toy.bound(64 * 4);
    standby.standby.follow(&primary.address());
    standby.joined();
    toy.gate(Some(0));
    let end = primary.write(&[64; 20]);
    until("what is wanted has arrived", || standby.standby.status().arrived == Lsn(64 * 4));
    toy.gate(Some(64 * 3));
    until("as much more as is complete has arrived", || standby.standby.status().arrived == Lsn(64 * 7));
    assert_eq!(standby.log.end(), Lsn(64 * 3));
    toy.gate(None);
    standby.shows(end);
    let end = primary.write(&[64, 64 * 9, 64]);
    standby.shows(end);
    assert_eq!(standby.log.bytes(), primary.log.bytes());
}

#[test]
fn what_comes_as_bytes_counts_when_the_log_has_it() {
    let (config, forms) = encoding(Safety::OneSafe, 0);
    let primary = PrimaryNode::first(config);
    let (standby, toy) = below(&primary);
    toy.gate(Some(0));
    let kept = primary.write(&[64; 5]);
    until("what has come as forms is persistent", || standby.standby.status().persisted == kept);
    standby.standby.ask_for(Encoding::Bytes);
    until("the primary has heard it", || forms.encoders.load(Ordering::SeqCst) == 0);
    let end = primary.write(&[64; 5]);
    until("it has arrived", || standby.standby.status().arrived == end);
    let (log, terms) = (Arc::clone(&standby.log), standby.terms.clone());
    toy.freeze();
    drop(standby);
    drop(primary);
    // It was not written twice.
    let standby = NewStandby::new(2).config(asking()).log(log).terms(terms).start();
    assert_eq!(standby.standby.status().arrived, kept);
    until("what was kept is regenerated", || standby.log.end() == kept);
}

#[test]
fn what_cannot_be_regenerated_is_read_from_the_primary() {
    let (config, _) = encoding(Safety::VerySafe, 0);
    let primary = PrimaryNode::first(config);
    let (standby, toy) = below(&primary);
    toy.lose(64 * 10);
    let end = primary.write(&[64; 20]);
    standby.shows(end);
    assert_eq!((standby.log.bytes(), toy.originals()), (primary.log.bytes(), 10));
}

#[test]
fn a_restart_has_what_was_acknowledged_and_regenerates_it() {
    let (config, _) = encoding(Safety::VerySafe, 0);
    let primary = PrimaryNode::first(config);
    let (standby, toy) = below(&primary);
    let first = primary.write(&[64; 5]);
    standby.shows(first);
    toy.gate(Some(first.0));
    let end = primary.write(&[64; 20]);
    primary.commits(end);
    let (log, terms) = (Arc::clone(&standby.log), standby.terms.clone());
    toy.freeze();
    drop(standby);
    assert_eq!(log.end(), first);
    let bytes = primary.log.bytes();
    drop(primary);
    // Without anybody to ask, and whatever it asks for from now on.
    let config = StandbyConfig { encoding: Encoding::Bytes, ..asking() };
    let standby = NewStandby::new(2).config(config).log(log).terms(terms).start();
    until("all of it is regenerated", || standby.log.end() == end);
    assert_eq!(standby.log.bytes(), bytes);
}

#[test]
fn a_standby_whose_journal_is_gone_does_not_start() {
    // Whatever it asks for from now on.
    for asks in [Encoding::Bytes, Encoding::Inputs] {
        let (config, _) = encoding(Safety::VerySafe, 0);
        let (_primary, standby, toy, _) = held(config);
        let (log, terms) = (Arc::clone(&standby.log), standby.terms.clone());
        toy.freeze();
        drop(standby);
        std::fs::remove_dir_all(log.journal()).unwrap();
        let config = StandbyConfig { encoding: asks, ..StandbyConfig::default() };
        let started = NewStandby::new(2).config(config).log(Arc::clone(&log)).terms(terms).try_start();
        let why = started.err().expect("it lacks what it has acknowledged").to_string();
        assert!(why.contains("this file is missing") && !log.journal().exists(), "{why}");
    }
}

#[test]
fn a_failover_finds_what_was_acknowledged() {
    let (config, _) = encoding(Safety::VerySafe, 0);
    let (primary, standby, toy, end) = held(config);
    let bytes = primary.log.bytes();
    are_named(&[(1, &primary.terms), (2, &standby.terms)], 2);
    drop(primary);
    let promoted = std::thread::scope(|scope| {
        let promoted = scope.spawn(|| standby.standby.promote(&PromoteOptions::default()));
        // It waits for that.
        toy.gate(Some(64 * 7));
        until("some of it is regenerated", || standby.log.end() == Lsn(64 * 7));
        toy.gate(None);
        promoted.join().unwrap().unwrap()
    });
    assert_eq!((promoted.start, standby.tape.replayed(), standby.log.bytes()), (end, end, bytes));
}

#[test]
fn what_another_term_lacks_is_taken_back_before_it_is_regenerated() {
    let (mut first, _) = encoding(Safety::VerySafe, 0);
    // Without the other standby nothing is acknowledged.
    first.rule.standbys = 2;
    let primary = PrimaryNode::first(first);
    let (standby, toy) = below(&primary);
    let other = StandbyNode::empty(3, &primary.address());
    other.joined();
    let common = primary.write(&[64; 5]);
    standby.shows(common);
    other.shows(common);
    // The other one gets no more of it.
    let (log, terms) = (Arc::clone(&other.log), other.terms.clone());
    drop(other);
    toy.gate(Some(common.0));
    let lost = primary.write(&[64; 6]);
    until("it has arrived", || standby.standby.status().arrived == lost);
    drop(primary);
    let other = NewStandby::new(3).log(log).terms(terms).start();
    let options = PromoteOptions { consent: Consent::Loss, ..PromoteOptions::default() };
    let promoted = other.standby.promote(&options).unwrap();
    assert_eq!(promoted.start, common);
    let (log, terms) = (Arc::clone(&other.log), other.terms.clone());
    drop(other);
    log.promote(promoted.term);
    let (config, _) = encoding(Safety::VerySafe, 0);
    let primary = PrimaryNode::lead(open(3), NodeId(3), config, log, terms);
    standby.standby.follow(&primary.address());
    let end = primary.write(&[72; 20]);
    primary.commits(end);
    toy.gate(None);
    standby.shows(end);
    assert_eq!(standby.log.bytes(), primary.log.bytes());
    // Nor is it there after a restart.
    let (log, terms) = (Arc::clone(&standby.log), standby.terms.clone());
    drop(standby);
    let standby = NewStandby::new(2).config(asking()).log(log).terms(terms).start();
    assert_eq!((standby.log.end(), standby.standby.status().arrived), (end, end));
}

/// A standby that was sent nothing, and has its log from somewhere else.
fn with_log(node: u64, bytes: &[u8]) -> StandbyNode {
    let log = TestLog::received(CAPACITY);
    log.append(bytes);
    let state = TermState::of(CLUSTER, TermHistory::first(Term(1), NodeId(1), 1));
    let terms = Terms::new(state, Arc::new(VolatileTerms));
    NewStandby::new(node).log(log).terms(terms).start()
}

/// Of a node that is gone.
fn no_terms() -> Terms {
    Terms::new(TermState::empty(), Arc::new(VolatileTerms))
}

/// Transactions of one block each, from the beginning on.
fn transactions(lengths: &[usize]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for length in lengths {
        let block = blocks(Lsn(bytes.len() as u64), &[*length]).0;
        bytes.extend(block);
    }
    bytes
}

/// A standby of a primary that is gone, which holds the forms of 20 blocks and cannot regenerate
/// those from number 10 on; what it is to have, and where that ends.
fn bereft(peers: Vec<String>) -> (StandbyNode, Vec<u8>, Lsn) {
    let (config, _) = encoding(Safety::VerySafe, 0);
    let primary = PrimaryNode::first(config);
    let asking = StandbyConfig { follow: FollowConfig { peers, ..FollowConfig::default() }, ..asking() };
    let standby = NewStandby::new(2).following(primary.address()).config(asking).start();
    standby.joined();
    standby.tape.toy.gate(Some(64 * 10));
    standby.tape.toy.lose(64 * 10);
    let end = (0..20).map(|_| primary.write(&[64])).last().unwrap();
    primary.commits(end);
    let bytes = primary.log.bytes();
    drop(primary);
    until("what can be regenerated is", || standby.log.end() == Lsn(64 * 10));
    (standby, bytes, end)
}

fn missing_on(standby: &StandbyNode) -> Option<String> {
    standby.standby.status().missing
}

#[test]
fn what_the_primary_that_is_gone_has_is_read_from_any_other_node() {
    let bytes = transactions(&[64; 20]);
    let (other, empty) = (with_log(3, &bytes), with_log(4, &[]));
    let (standby, bytes, end) = bereft(vec![empty.address(), other.address()]);
    standby.tape.toy.gate(None);
    until("it has all of it", || standby.log.end() == end);
    assert_eq!((standby.log.bytes(), missing_on(&standby)), (bytes, None));
}

#[test]
fn another_block_than_the_one_that_is_missing_is_not_taken() {
    // Blocks in the same places, with other rows.
    let mut bytes = transactions(&[64; 10]);
    let wrong: Vec<u8> = {
        let mut builder = BlockBuilder::new();
        builder.begin();
        builder.push(None, Fid(1), Rid(1), RecordKind::Insert, &[]).unwrap();
        assert_eq!(builder.seal_records(), 64);
        builder.finish(Lsn(640), Term(1), BlockKind::Redo).to_vec()
    };
    bytes.extend_from_slice(&wrong);
    let liar = with_log(3, &bytes);
    let (standby, right, end) = bereft(vec![liar.address()]);
    standby.tape.toy.gate(None);
    until("it says what is missing", || missing_on(&standby).is_some());
    let why = missing_on(&standby).unwrap();
    assert!(why.contains("at 640") && why.contains(&format!("{}: its log has another block", liar.address())), "{why}");
    // It asks again, as long as the primary may come back.
    assert!(!matches!(standby.standby.status().link, LinkStatus::Failed { .. }));
    let other = with_log(4, &right);
    let peers = vec![Peer { node: Some(NodeId(4)), address: other.address(), serves: true }];
    standby.standby.shared.observe_peers(Peers {
        peers,
        safety: Safety::VerySafe,
        ahead: Vec::new(),
        two_primaries: Vec::new(),
    });
    until("it has all of it", || standby.log.end() == end);
    assert_eq!((standby.log.bytes(), missing_on(&standby)), (right, None));
}

/// Has it forget the primary that is gone.
fn forget_the_primary(standby: &StandbyNode, upstream: &StandbyNode) {
    standby.standby.follow(&upstream.address());
    let none = Peers { peers: Vec::new(), safety: Safety::VerySafe, ahead: Vec::new(), two_primaries: Vec::new() };
    standby.standby.shared.observe_peers(none);
}

#[test]
fn a_standby_stops_when_a_block_is_nowhere_and_names_the_nodes_it_asked() {
    let wrong = transactions(&[128; 10]);
    let liar = with_log(3, &wrong);
    let (standby, ..) = bereft(vec![liar.address()]);
    forget_the_primary(&standby, &liar);
    standby.tape.toy.gate(None);
    until("it stops", || matches!(standby.standby.status().link, LinkStatus::Failed { .. }));
    let LinkStatus::Failed { why } = standby.standby.status().link else { panic!("it has stopped") };
    assert!(why.contains("at 640") && why.contains(&liar.address()), "{why}");
    // An order to give it up is still obeyed.
    drop(liar);
    assert!(standby.standby.promote(&PromoteOptions::default()).is_err());
    let options = PromoteOptions { consent: Consent::Loss, ..PromoteOptions::default() };
    assert_eq!(standby.standby.promote(&options).unwrap().start, Lsn(640));
}

/// A mirror has no log, and what the lost block has written: so the block is not given up.
#[test]
fn a_block_whose_rows_a_mirror_has_is_not_nowhere() {
    let forms = encoding(Safety::VerySafe, 0).0.feed.forms;
    let feed = FeedConfig { forms, ..small_feed_over(FabricKind::Tcp) };
    let primary = PrimaryNode::first(PrimaryConfig { feed, ..config(rule(Safety::VerySafe, 2)) });
    let mirror = MirrorNode::new(3, primary.address(), small(FabricKind::Tcp));
    mirror.joined();
    let standby = NewStandby::new(2).following(primary.address()).config(asking()).start();
    standby.joined();
    standby.tape.toy.gate(Some(64 * 10));
    standby.tape.toy.lose(64 * 10);
    let end = (0..20).map(|_| primary.write(&[64])).last().unwrap();
    primary.commits(end);
    let bytes = primary.log.bytes();
    until("the mirror has all of it", || mirror.mirror.status().end == end);
    drop(primary);
    let mirror_address = mirror.endpoint.address().to_string();
    // It may be told by the mirror to try the primary that is gone, and does not come back by
    // itself.
    standby.standby.shared.observe_peers(Peers {
        peers: vec![Peer { node: Some(NodeId(3)), address: mirror_address.clone(), serves: true }],
        safety: Safety::VerySafe,
        ahead: Vec::new(),
        two_primaries: Vec::new(),
    });
    standby.standby.follow(&mirror_address);
    standby.tape.toy.gate(None);
    until("it asks the mirror", || missing_on(&standby).is_some_and(|why| why.contains("a mirror keeps rows")));
    let asked = standby.standby.shared.state().originals.asked();
    until("it asks again", || standby.standby.shared.state().originals.asked() > asked + 1);
    assert!(!matches!(standby.standby.status().link, LinkStatus::Failed { .. }), "{:?}", standby.standby.status().link);
    // A node that has the log comes back.
    let other = with_log(4, &bytes);
    let peers = vec![Peer { node: Some(NodeId(4)), address: other.address(), serves: true }];
    standby.standby.shared.observe_peers(Peers {
        peers,
        safety: Safety::VerySafe,
        ahead: Vec::new(),
        two_primaries: Vec::new(),
    });
    until("it has all of it", || standby.log.end() == end);
}

#[test]
fn many_blocks_come_on_one_connection_and_at_once() {
    let (config, _) = encoding(Safety::OneSafe, 0);
    let primary = PrimaryNode::first(config);
    let (standby, toy) = below(&primary);
    toy.lose(0);
    let end = (0..30).map(|_| primary.write(&[64])).last().unwrap();
    standby.shows(end);
    assert_eq!((standby.log.bytes(), toy.originals()), (primary.log.bytes(), 30));
    let shared = &standby.standby.shared;
    // It may have been idle for longer than the other side waits.
    assert!(shared.state().originals.connections() <= 3, "{} connections", shared.state().originals.connections());
    // Several at once, and one of them is another than the one that is there.
    let (bytes, mut wanted) = (primary.log.bytes(), Vec::new());
    for place in [0, 5, 6, 29] {
        let header = BlockHeader::peek(&bytes[64 * place..]).unwrap();
        wanted.push(Wanted { header, lacking: false });
    }
    wanted[2].header.crc ^= 1;
    let outcomes = originals(&Arc::downgrade(shared), &wanted);
    let given = |place: usize| Ok(bytes[64 * place..64 * place + 64].to_vec());
    assert_eq!((&outcomes[0], &outcomes[1], &outcomes[3]), (&given(0), &given(5), &given(29)));
    assert!(outcomes[2].as_ref().unwrap_err().to_string().contains("another block"), "{:?}", outcomes[2]);
    // What need not come is not missing.
    assert_eq!(missing_on(&standby), None);
}

#[test]
fn a_block_is_waited_for_as_long_as_it_may_come_to_another_node() {
    let half = transactions(&[64; 10]);
    let behind = with_log(3, &half);
    let (standby, bytes, end) = bereft(vec![behind.address()]);
    forget_the_primary(&standby, &behind);
    standby.tape.toy.gate(None);
    until("it says what is missing", || missing_on(&standby).is_some());
    let why = missing_on(&standby).unwrap();
    assert!(why.contains(&format!("{}: the log there ends at 640", behind.address())), "{why}");
    let (log, terms, address) = (Arc::clone(&behind.log), behind.terms.clone(), behind.address());
    drop(behind);
    log.append(&bytes[640..]);
    let (node, none) = (NodeId(3), StandbyConfig::default());
    let endpoint = Endpoint::open(node, credentials(node), &address).unwrap();
    let _ahead = NewStandby::new(node.0).config(none).log(log).terms(terms).endpoint(endpoint).start();
    until("it has all of it", || standby.log.end() == end);
    assert_eq!(standby.log.bytes(), bytes);
}

#[test]
fn a_candidate_that_lacks_blocks_does_not_win_unless_it_is_forced() {
    let half = transactions(&[64; 10]);
    let behind = with_log(3, &half);
    let (standby, bytes, _) = bereft(vec![behind.address()]);
    standby.tape.toy.gate(None);
    let asked = behind.standby.status().term;
    let refused = standby.standby.promote(&PromoteOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("at 640") && refused.contains(&behind.address()), "{refused}");
    assert_eq!(behind.standby.status().term, asked, "no node was asked for its promise");
    // Nor does another, as long as this one cannot say what it holds.
    let known = vec![Peer::at(standby.address())];
    let options = PromoteOptions { configured: Some(Safety::Quorum(2)), known, ..Default::default() };
    are_named(&[(1, &no_terms()), (2, &standby.terms), (3, &behind.terms)], 2);
    let refused = behind.standby.promote(&options).unwrap_err().to_string();
    assert!(refused.contains("only 1 of 2"), "{refused}");
    let options = PromoteOptions { consent: Consent::Loss, ..PromoteOptions::default() };
    let promoted = standby.standby.promote(&options).unwrap();
    assert_eq!((promoted.start, standby.log.bytes()), (Lsn(640), bytes[..640].to_vec()));
}

#[test]
fn a_node_that_is_consulted_gets_what_it_lacks_from_the_candidate() {
    let bytes = transactions(&[64; 20]);
    let candidate = with_log(3, &bytes);
    let (standby, bytes, end) = bereft(vec![candidate.address()]);
    standby.tape.toy.gate(None);
    let known = vec![Peer::at(standby.address())];
    let options = PromoteOptions { configured: Some(Safety::Quorum(2)), known, ..Default::default() };
    are_named(&[(1, &no_terms()), (2, &standby.terms), (3, &candidate.terms)], 2);
    let promoted = candidate.standby.promote(&options).unwrap();
    assert_eq!((promoted.start, standby.log.bytes()), (end, bytes));
}

/// After a checkpoint a restart has no versions that only older snapshots see.
#[test]
fn what_reads_below_the_floor_counts_when_the_log_has_it_and_so_does_what_follows() {
    let (config, _) = encoding(Safety::OneSafe, 0);
    let primary = PrimaryNode::first(config);
    let (standby, toy) = below(&primary);
    let first = primary.write(&[64; 5]);
    standby.shows(first);
    standby.standby.arrived().raise_floor(first, &|| false).unwrap();
    toy.gate(Some(first.0));
    // It reads at the floor.
    toy.reads(first.0);
    let kept = primary.write(&[64; 2]);
    until("it counts", || standby.standby.status().persisted == kept);
    toy.reads(first.0 - 64);
    let old = primary.write(&[64; 2]);
    until("it has arrived", || standby.standby.status().arrived == old);
    toy.reads(kept.0);
    let end = primary.write(&[64; 3]);
    until("it has arrived", || standby.standby.status().arrived == end);
    // What follows the gap is in the journal, too, and what lies before it still counts.
    until("it is in the journal", || standby.standby.shared.journal_runs() == Some(2));
    assert_eq!(standby.standby.status().persisted, kept);
    // A restart has what has counted.
    let (log, terms) = (Arc::clone(&standby.log), standby.terms.clone());
    toy.freeze();
    drop(standby);
    let standby = NewStandby::new(2).following(primary.address()).config(asking()).log(log).terms(terms).start();
    until("all of it comes", || standby.log.end() == end && standby.standby.status().persisted == end);
    assert_eq!(standby.log.bytes(), primary.log.bytes());
}

#[test]
fn the_floor_is_raised_when_what_has_arrived_before_is_part_of_the_log() {
    let (config, _) = encoding(Safety::VerySafe, 0);
    let (primary, standby, toy, end) = held(config);
    let arrived = standby.standby.arrived();
    assert!(arrived.raise_floor(Lsn(64), &|| true).is_err(), "it is not part of it yet");
    std::thread::scope(|scope| {
        let raised = scope.spawn(|| arrived.raise_floor(Lsn(64), &|| false));
        toy.gate(Some(64 * 7));
        until("some of it is regenerated", || standby.log.end() == Lsn(64 * 7));
        assert!(!raised.is_finished());
        toy.gate(None);
        raised.join().unwrap().unwrap();
    });
    assert_eq!(standby.log.end(), end);
    // What is cut is not waited for, nor anything once the standby has gone.
    toy.gate(Some(end.0));
    let lost = primary.write(&[64; 3]);
    until("it has arrived", || standby.standby.status().arrived == lost);
    std::thread::scope(|scope| {
        let raised = scope.spawn(|| arrived.raise_floor(end, &|| false));
        standby.standby.shared.cut(end, false).unwrap();
        raised.join().unwrap().unwrap();
    });
    drop(standby);
    arrived.raise_floor(lost, &|| false).unwrap();
}
