//! A primary that a node cannot follow leaves its term (`cluster/src/contest.rs`).

use std::{sync::Arc, thread};

use freshet_engine::{Node, node::LeavesTerm as Next};

/// Begins a switch-over if that is due; does not block for it. Says whether the node is to start
/// again.
pub(crate) fn look(node: &Arc<Node>) -> bool {
    let next = node.leaves_contested_term();
    if next == Next::HandOver {
        hand_over(node);
    }
    next == Next::StartAgain
}

fn hand_over(node: &Arc<Node>) {
    let weak = Arc::downgrade(node);
    let run = move || {
        let Some(node) = weak.upgrade() else { return };
        if let Err(cause) = node.switch_over(None) {
            tracing::warn!(%cause, "this primary, whose term is contested, cannot hand its role over");
            node.role_not_taken();
        }
    };
    if let Err(cause) = thread::Builder::new().name("contest".into()).spawn(run) {
        tracing::warn!(%cause, "this primary, whose term is contested, cannot start a thread");
        node.role_not_taken();
    }
}
