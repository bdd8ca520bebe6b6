//! Who may follow whom, and from where: decided from what both sides say, without any I/O.

use freshet_base::{ClusterId, NodeId, Stamp, Term};
use freshet_cluster::term::{Agreement, Living, TermHistory};

use crate::wire::{Continue, Hello, Purpose, Refusal, Wait, Welcome};

/// The side that has the log.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Itself.
    pub node: NodeId,
    /// Whose log its own is, from the primary on; nobody's if it is the primary.
    pub above: Vec<NodeId>,
    /// The term in which it sends.
    pub term: Term,
    /// Its terms.
    pub history: TermHistory,
    /// How far its log reaches: everything that may have been sent to anybody lies below.
    pub end: Stamp,
    /// The smallest ring to which every block can be sent.
    pub needed_capacity: u64,
    /// It sends something at least this often, in milliseconds.
    pub keep_alive_ms: u32,
}

/// What was agreed, from the sender's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// To be sent to the receiver.
    pub welcome: Welcome,
    /// Persistent at the receiver, once it has cut its log.
    pub persisted: Stamp,
    /// Where the receiver's ring has room up to, once it has cut its log.
    pub may_send_until: Stamp,
}

/// Decides whether the node that introduces itself may continue its log from this host's.
///
/// # Errors
/// [`Refusal`], to be sent to it. [`Refusal::Fenced`] with a term above the host's means that the
/// host itself is of the past.
pub fn consider(
    host: &Host,
    cluster: Option<ClusterId>,
    node: NodeId,
    fence: Term,
    log: &Continue,
) -> Result<Agreed, Refusal> {
    check_cluster(host.node, Some(host.cluster), cluster)?;
    if node == host.node {
        return Err(Refusal::Myself { node });
    }
    if host.above.contains(&node) {
        return Err(Refusal::Circle { node: host.node, above: node });
    }
    if fence > host.term {
        return Err(Refusal::Fenced { asked: host.term, highest: fence, holder: None, leader: None });
    }
    if log.capacity < host.needed_capacity {
        return Err(Refusal::BufferTooSmall { capacity: log.capacity, needed: host.needed_capacity });
    }
    if log.persisted > log.received {
        return Err(Refusal::Violation("more of a log is persistent than there is".into()));
    }
    let cut_at = agree(&host.history, host.end, &log.history, log.received)?;
    if !host.above.is_empty() && cut_at == host.end && log.received > cut_at {
        // That a relay is merely behind is no reason to forget anything: it may be committed, and
        // readers may have seen it.
        return Err(Refusal::Later { node: host.node, why: Wait::Behind { end: host.end, received: log.received } });
    }
    let room = cut_at.0.saturating_add(log.capacity);
    Ok(Agreed {
        persisted: log.persisted.min(cut_at),
        may_send_until: Stamp(log.may_send_until.0.min(room)),
        welcome: Welcome {
            cluster: host.cluster,
            node: host.node,
            above: host.above.clone(),
            term: host.term,
            history: host.history.clone(),
            cut_at,
            end: host.end,
            keep_alive_ms: host.keep_alive_ms,
            offer: None,
            bare: false,
        },
    })
}

/// Whether `node`, which belongs to `cluster`, may answer a node that introduces itself with
/// `hello`. A message that can fence, redirect or cut has to name this cluster. A node without a
/// cluster may ask which this is, and join.
///
/// # Errors
/// [`Refusal`], to be sent to it.
pub(crate) fn check_hello(node: NodeId, cluster: Option<ClusterId>, hello: &Hello) -> Result<(), Refusal> {
    check_cluster(node, cluster, hello.cluster)?;
    match (hello.cluster, &hello.purpose) {
        (None, Purpose::Announce { .. } | Purpose::Consult { .. } | Purpose::Fetch { .. }) => {
            Err(Refusal::NotMember("it does not say to which cluster it belongs".into()))
        }
        _ => Ok(()),
    }
}

/// Whether a caller of cluster `ours` may talk to `node`, which belongs to `theirs`. One without a
/// cluster may.
fn check_cluster(node: NodeId, theirs: Option<ClusterId>, ours: Option<ClusterId>) -> Result<(), Refusal> {
    match (theirs, ours) {
        (Some(theirs), Some(ours)) if ours != theirs => Err(Refusal::OtherCluster { node, theirs, ours }),
        _ => Ok(()),
    }
}

/// A primary that comes back by itself, having heard of terms up to `comes_back`, gives way to a
/// living reign that outranks it ([`Living::outranks`]). For a node that was told to take over,
/// `comes_back` is empty, and it never gives way.
///
/// # Errors
/// [`Refusal::Reigned`], with the address of the one that reigns if it is known.
pub(crate) fn check_comes_back(
    node: NodeId,
    comes_back: Option<Term>,
    living: impl FnOnce() -> Option<(Living, Option<String>)>,
) -> Result<(), Refusal> {
    let Some(heard) = comes_back else { return Ok(()) };
    match living().filter(|(reign, _)| reign.outranks(node, heard)) {
        Some((Living { term, node }, leader)) => Err(Refusal::Reigned { node, term, leader }),
        None => Ok(()),
    }
}

fn agree(ours: &TermHistory, end: Stamp, theirs: &TermHistory, their_end: Stamp) -> Result<Stamp, Refusal> {
    match ours.agreement(end, theirs, their_end) {
        Agreement::Upto(stamp) => Ok(stamp),
        Agreement::SameTermTwice { term, here, there } => Err(Refusal::SameTermTwice { term, here, there }),
    }
}

/// The receiver checks what it was answered, with its own eyes.
///
/// # Errors
/// [`Refusal`], to be sent back.
pub fn check_welcome(
    welcome: &Welcome,
    cluster: Option<ClusterId>,
    history: &TermHistory,
    received: Stamp,
) -> Result<(), Refusal> {
    if let Some(ours) = cluster.filter(|ours| *ours != welcome.cluster) {
        return Err(Refusal::OtherCluster { node: welcome.node, theirs: welcome.cluster, ours });
    }
    let cut_at = agree(&welcome.history, welcome.end, history, received)?;
    if cut_at != welcome.cut_at {
        return Err(Refusal::Violation(format!(
            "the sender wants the log cut at {}, the terms of both say {cut_at}",
            welcome.cut_at
        )));
    }
    if !welcome.above.is_empty() && cut_at == welcome.end && received > cut_at {
        return Err(Refusal::Violation("a relay that is behind must not have the log cut".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshet_cluster::term::Reign;

    fn history(reigns: &[(u32, u64)]) -> TermHistory {
        let reigns: Vec<_> =
            reigns.iter().map(|(t, s)| Reign { term: Term(*t), start: Stamp(*s), node: NodeId(1) }).collect();
        reigns.try_into().unwrap()
    }

    fn host() -> Host {
        Host {
            cluster: ClusterId(7),
            node: NodeId(1),
            above: Vec::new(),
            term: Term(3),
            history: history(&[(1, 0), (3, 500)]),
            end: Stamp(900),
            needed_capacity: 100,
            keep_alive_ms: 200,
        }
    }

    fn log(reigns: &[(u32, u64)], received: u64) -> Continue {
        Continue {
            history: history(reigns),
            received: Stamp(received),
            persisted: Stamp(received),
            capacity: 1000,
            may_send_until: Stamp(received + 1000),
        }
    }

    #[test]
    fn an_empty_standby_adopts_the_cluster_and_starts_at_zero() {
        let agreed = consider(&host(), None, NodeId(2), Term(0), &log(&[], 0)).unwrap();
        assert_eq!((agreed.welcome.cut_at, agreed.welcome.cluster), (Stamp(0), ClusterId(7)));
        check_welcome(&agreed.welcome, None, &TermHistory::default(), Stamp(0)).unwrap();
    }

    #[test]
    fn an_old_primary_cuts_what_was_never_acknowledged() {
        let old = log(&[(1, 0)], 640);
        let agreed = consider(&host(), Some(ClusterId(7)), NodeId(2), Term(1), &old).unwrap();
        assert_eq!((agreed.welcome.cut_at, agreed.persisted), (Stamp(500), Stamp(500)));
        assert_eq!(agreed.may_send_until, Stamp(1500), "the ring has less room once the log is shorter");
        check_welcome(&agreed.welcome, Some(ClusterId(7)), &old.history, Stamp(640)).unwrap();
        let lie = Welcome { cut_at: Stamp(400), ..agreed.welcome };
        assert!(matches!(
            check_welcome(&lie, Some(ClusterId(7)), &old.history, Stamp(640)),
            Err(Refusal::Violation(_))
        ));
    }

    #[test]
    fn strangers_are_refused_with_a_reason() {
        let refusal = |cluster, node, fence, log: &Continue| {
            consider(&host(), cluster, NodeId(node), Term(fence), log).unwrap_err().to_string()
        };
        let good = log(&[(1, 0)], 100);
        let text = refusal(Some(ClusterId(8)), 2, 1, &good);
        assert!(text.contains("belongs to cluster") && text.contains("empty directory"), "{text}");
        assert!(refusal(None, 1, 1, &good).contains("itself"));
        assert!(refusal(None, 2, 4, &good).contains("term 3 is over: term 4"));
        assert!(refusal(None, 2, 1, &Continue { capacity: 99, ..good.clone() }).contains("at least 100"));
        assert!(refusal(None, 2, 3, &log(&[(1, 0), (3, 400)], 600)).contains("cannot be reconciled"));
        assert!(refusal(None, 2, 3, &Continue { persisted: Stamp(101), ..good }).contains("violation"));
    }
}
