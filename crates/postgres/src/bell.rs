//! How other threads get an idle session's attention.

use std::{
    fmt,
    os::fd::{BorrowedFd, OwnedFd},
    sync::{Arc, OnceLock},
};

use rustix::{
    event::{EventfdFlags, eventfd},
    io::{Errno, read, write},
};

/// Rung by any thread, it makes the connection call [`Session::rung`](crate::Session::rung) as soon
/// as the session is idle: for news that a client gets without asking, such as notifications.
#[derive(Clone, Default)]
pub struct Bell(Arc<OnceLock<OwnedFd>>);

impl Bell {
    /// From now on the bell is heard. A session that never listens is spared the cost.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn listen(&self) -> std::io::Result<()> {
        if self.0.get().is_none() {
            let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            // Whichever thread was first, there is one now.
            let _ = self.0.set(descriptor);
        }
        Ok(())
    }

    /// Rings. Nothing happens when nobody listens.
    pub fn ring(&self) {
        if let Some(descriptor) = self.0.get() {
            // It can only fail when it was rung 2^64 times without being heard.
            let _ = write(descriptor, &1_u64.to_ne_bytes());
        }
    }

    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.get().map(std::os::fd::AsFd::as_fd)
    }

    /// Whether it was rung since this was last asked.
    pub(crate) fn was_rung(&self) -> bool {
        let Some(descriptor) = self.0.get() else { return false };
        loop {
            match read(descriptor, &mut [0; 8]) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell").field("listening", &self.0.get().is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_reaches_each_listener_once() {
        let bell = Bell::default();
        bell.ring();
        assert!(!bell.was_rung());
        bell.listen().unwrap();
        assert!(!bell.was_rung());
        bell.clone().ring();
        bell.ring();
        assert!(bell.was_rung());
        assert!(!bell.was_rung());
    }
}
