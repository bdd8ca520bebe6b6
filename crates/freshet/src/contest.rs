//! A primary that a node cannot follow leaves its term (`cluster/src/contest.rs`).

use std::{sync::Arc, thread};

use freshet_engine::{Node, node::LeavesTerm as Next};

/// Begins a switch-over if that is due; does not block for it. Says whether the node is to start
/// again.
pub(crate) fn look(node: &Arc<Node>) -> bool {
    match node.leaves_contested_term() {
        Next::Rest => {}
        Next::HandOver => hand_over(Arc::clone(node)),
        Next::StartAgain => return true,
    }
    false
}

fn hand_over(node: Arc<Node>) {
    let run = {
        let node = Arc::downgrade(&node);
        move || {
            let Some(node) = node.upgrade() else { return };
            if let Err(cause) = node.switch_over(None) {
                tracing::warn!(%cause, "this primary, whose term is contested, cannot hand its role over");
                node.role_not_taken();
            }
        }
    };
    if let Err(cause) = thread::Builder::new().name("contest".into()).spawn(run) {
        tracing::warn!(%cause, "this primary, whose term is contested, cannot start a thread");
        node.role_not_taken();
    }
}
