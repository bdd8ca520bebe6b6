//! What the status shows of those who are fed.

use std::collections::BTreeMap;

use freshet_base::{Lsn, NodeId};
use freshet_cluster::commit_rule::{Member, Place};

use super::Feeds;
use crate::status::{ObserverStatus, RoundTrips, StandbyStatus};

impl Feeds {
    /// The nodes that are fed but that no commit counts on.
    pub fn observers(&self) -> Vec<ObserverStatus> {
        let (state, now) = (self.state(), self.clock.now());
        let filled = state.host.filled_to();
        let observers = state.host.feeds().filter(|(_, feed)| !feed.member).map(|(id, feed)| {
            let (node, shipped, acked) = (feed.node, feed.shipped(), feed.acked());
            let introduced = state.introduced.get(&node);
            ObserverStatus {
                node,
                shipped,
                acked,
                ack_lag_bytes: filled.since(acked.min(filled)),
                sent_bytes: state.shippers.get(&id).map_or(0, |shipper| shipper.sent_bytes()),
                address: state.addresses.get(&node).cloned().unwrap_or_default(),
                version: introduced.map(|it| it.version.clone()),
                protocol: introduced.and_then(|it| it.protocol),
                ack_lag: state.host.behind(acked, now),
                connected_for: introduced.map(|it| now.since(it.at)),
            }
        });
        observers.collect()
    }

    /// The members, as the rule and their connections see them; `global` is what they may show.
    pub fn standbys(&self, members: BTreeMap<NodeId, Member>, global: Lsn) -> Vec<StandbyStatus> {
        let (state, now) = (self.state(), self.clock.now());
        let filled = state.host.filled_to();
        let standbys = members.into_iter().map(|(node, member)| {
            let feed = state.host.feed_of(node);
            let shipper = feed.and_then(|(id, _)| state.shippers.get(&id));
            let feed = feed.map(|(_, feed)| feed);
            let shipped = feed.map_or(member.acked, |feed| feed.shipped());
            let visible = state.visible(node);
            let (introduced, loss) = (state.introduced.get(&node), state.losses.get(&node));
            let came_or_went = match member.connected {
                true => introduced.map(|it| it.at),
                false => Some(loss.map_or(self.began, |loss| loss.1)),
            };
            StandbyStatus {
                node,
                address: state.addresses.get(&node).cloned().unwrap_or_default(),
                connected: member.connected,
                synchronous: member.synchronous,
                place: member.place,
                in_sync: member.place == Place::InSync && member.connected,
                mode: feed.map(|feed| state.host.mode(feed)),
                fabric: shipper.map(|shipper| shipper.fabric),
                one_sided: shipper.is_some_and(|shipper| shipper.fabric.is_one_sided()),
                encoding: shipper.map(|shipper| shipper.encoding()),
                in_doubt: shipper.is_some_and(|shipper| shipper.in_doubt()),
                equal_at: shipper.and_then(|shipper| shipper.equal_at()),
                load: shipper.and_then(|shipper| shipper.load()),
                round_trips: shipper.map_or_else(RoundTrips::default, |shipper| shipper.round_trips.so_far()),
                mirror: visible.is_none(),
                lacks: shipper.and_then(|shipper| shipper.mirror.as_ref()?.lacks()),
                shipped,
                acked: member.acked,
                replayed: feed.map_or(Lsn::ZERO, |feed| feed.replayed),
                visible: visible.unwrap_or_default(),
                ship_lag_bytes: feed.map(|_| filled.since(shipped)),
                ack_lag_bytes: filled.since(member.acked),
                visible_lag_bytes: feed.map(|_| visible.map_or(0, |visible| global.since(visible))),
                sent_bytes: shipper.map_or(0, |shipper| shipper.sent_bytes()),
                last_loss: loss.map(|loss| loss.0.clone()),
                relay: introduced.is_some_and(|it| it.relay),
                version: introduced.map(|it| it.version.clone()),
                protocol: introduced.and_then(|it| it.protocol),
                log: member.holder(node),
                answered: member.has_answered(),
                ack_lag: member.has_answered().then(|| state.host.behind(member.acked, now)).flatten(),
                since: Some(now.since(member.since)),
                connected_or_away_for: came_or_went.map(|at| now.since(at)),
            }
        });
        standbys.collect()
    }
}
