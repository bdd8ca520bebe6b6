//! Tells the service manager, if there is one, about this process: systemd's protocol of
//! NOTIFY_SOCKET (sd_notify(3)).

use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

/// How long a message waits for room in the manager's queue: a manager that is busy loses none, one
/// that does not listen delays the node by no more than this.
const PATIENCE: Duration = Duration::from_secs(1);

/// The node can serve.
pub(crate) fn ready(status: &str) {
    notify(&format!("READY=1\nSTATUS={status}\n"));
}

/// The configuration is read again; to be followed by [`ready`].
pub(crate) fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n"));
}

/// What the node is doing, in a sentence.
pub(crate) fn status(status: &str) {
    notify(&format!("STATUS={status}\n"));
}

/// Tells systemd that the node is ending.
pub(crate) fn stopping() {
    notify("STOPPING=1\n");
}

fn notify(what: &str) {
    if let Some(socket) = env::var_os("NOTIFY_SOCKET")
        && let Err(cause) = send(&socket, what)
    {
        tracing::warn!(%cause, "the service manager cannot be told the node's state (NOTIFY_SOCKET)");
    }
}

fn send(socket: &OsStr, what: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.set_write_timeout(Some(PATIENCE))?;
    sender.send_to_addr(what.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_addresses_are_reached() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("freshet-notify-{}", std::process::id());
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let by_path = UnixDatagram::bind(&path).unwrap();
        for (receiver, socket) in [(by_name, format!("@{name}").into()), (by_path, path.into_os_string())] {
            send(&socket, "READY=1\n").unwrap();
            let mut bytes = [0; 100];
            let length = receiver.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], b"READY=1\n");
        }
        assert!(send(OsStr::new("/nowhere/notify"), "READY=1\n").is_err());
    }

    /// The system keeps some ten messages (net.unix.max_dgram_qlen).
    #[test]
    fn a_manager_that_is_slow_misses_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let sender = std::thread::spawn(move || (0..2000).all(|_| send(path.as_os_str(), "READY=1\n").is_ok()));
        let mut bytes = [0; 100];
        (0..2000).for_each(|_| assert_eq!(manager.recv(&mut bytes).unwrap(), 8));
        assert!(sender.join().unwrap());
    }
}
