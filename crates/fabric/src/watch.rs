//! The TCP connection beside a fabric: nothing is sent on it, and when it ends, so does everything.

use std::{io, thread};

use crate::stream::Stream;

/// Starts a thread that does nothing but wait for the end of `stream`, and then calls `ended`. What
/// the other side sends before that is given to `received`, a byte at a time; where it returns
/// false, the byte is none that may be sent, and ends the connection too.
///
/// # Errors
/// What the system says: too many open files or threads.
pub(crate) fn watch(
    stream: &Stream,
    mut received: impl FnMut(u8) -> bool + Send + 'static,
    ended: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    stream.set_read_timeout(None)?;
    let watched = stream.clone();
    thread::Builder::new().name("fabric-watch".into()).spawn(move || {
        let mut byte = [0];
        loop {
            match watched.read(&mut byte) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(1) if received(byte[0]) => {}
                Ok(_) | Err(_) => break,
            }
        }
        ended();
    })?;
    Ok(())
}
