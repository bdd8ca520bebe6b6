//! Persist: waits for the log's flusher, and has the primary told at once.

use std::time::Duration;

use freshet_base::{Stamp, sync::Arc};

use super::Shared;

/// How long the end of this thread may take when nothing is persisted.
const PATIENCE: Duration = Duration::from_millis(100);

/// The ack thread.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut stint = shared.ack_cpu.begin();
    let mut seen = shared.store.persisted();
    while !shared.stopping() {
        match shared.store.wait_persisted(seen, PATIENCE) {
            Ok(persisted) if persisted == seen => {}
            // Less, too: the log was cut.
            Ok(persisted) => {
                seen = persisted;
                shared.acknowledge(false);
                stint.note();
            }
            Err(error) => {
                shared.follow.fail(error.to_string());
                return;
            }
        }
        // A cut moves it back while nobody looks.
        seen = seen.min(shared.store.persisted()).max(Stamp::ZERO);
    }
}
