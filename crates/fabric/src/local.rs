//! Sockets between processes of one user on one machine. They have no place in the file system, and
//! each end knows the user of the other.
//!
//! A socket's name consists of its purpose and the address of the TCP port beside it. Like that
//! port it belongs to the network namespace, ends with its process, and cannot be held by two
//! processes at the same time. Every process may connect. The system tells each end which user the
//! other end belongs to; processes of other users are refused.
//!
//! Any process may also take a name first. No other process has the port. So a server that has the
//! port and finds its name taken takes another one, and its clients try those, too. Where all
//! of them are taken, the server does without: it is reached by its port alone.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::{
        fd::{BorrowedFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{self, UnixListener, UnixStream},
    },
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use freshet_base::wait::{Patience, poll};
use rustix::{
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect as connect_to, listen, recvmsg, sendmsg,
        socket_with,
        sockopt::{Timeout, set_socket_timeout, socket_peercred},
    },
    process::{Uid, geteuid},
};

/// The most descriptors that are passed at once.
pub(crate) const MAX_PASSED: usize = 8;

/// How many names a server has to choose from.
const NAMES: u32 = 8;
/// How long another user's process that has a name may leave a client waiting.
const STRANGERS_PATIENCE: Duration = Duration::from_secs(1);

/// How long a server may take from the one of its two sockets to the other.
const BESIDE: Duration = Duration::from_millis(500);

/// The listeners of this process that have none of their names, and the one that the system gave
/// them.
static HIDDEN: Mutex<Vec<(String, Vec<u8>)>> = Mutex::new(Vec::new());

/// The names of a server, the best first.
fn names(what: &str, address: SocketAddr) -> impl Iterator<Item = String> {
    let first = format!("freshet-{what}-{address}");
    let own = first.clone();
    let others = (1..NAMES).map(move |number| format!("{own}-{}-{number}", geteuid().as_raw()));
    std::iter::once(first).chain(others)
}

/// The user of the process at the other end.
fn user(stream: &UnixStream) -> io::Result<Uid> {
    Ok(socket_peercred(stream)?.uid)
}

/// Listens for processes of this user.
#[derive(Debug)]
pub struct LocalListener {
    listener: UnixListener,
    hidden: bool,
}

impl LocalListener {
    /// Listens for the purpose `what`, beside the TCP port `address`.
    ///
    /// # Errors
    /// What the system says: another process of this user has the name.
    pub fn bind(what: &str, address: SocketAddr) -> io::Result<Self> {
        for name in names(what, address) {
            match UnixListener::bind_addr(&net::SocketAddr::from_abstract_name(&name)?) {
                Ok(listener) => return Ok(Self { listener, hidden: false }),
                Err(cause) if cause.kind() == io::ErrorKind::AddrInUse => {
                    // The port beside it is ours: only in tests is there another one of this user.
                    if reach(&name).is_ok_and(|stream| user(&stream).is_ok_and(|user| user == geteuid())) {
                        let why = format!("another process of this user has the local socket @{name}");
                        return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
                    }
                }
                Err(cause) => return Err(cause),
            }
        }
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // The system chooses a name.
        bind(&socket, &SocketAddrUnix::new_unnamed())?;
        listen(&socket, 16)?;
        let listener = UnixListener::from(socket);
        let name = listener.local_addr()?.as_abstract_name().unwrap_or_default().to_vec();
        let base = names(what, address).next().unwrap_or_default();
        let mut hidden = HIDDEN.lock().unwrap_or_else(PoisonError::into_inner);
        hidden.retain(|(other, _)| *other != base);
        hidden.push((base, name));
        Ok(Self { listener, hidden: true })
    }

    /// Whether processes of other users have all its names: no other process finds it.
    pub fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// Makes the present call of [`LocalListener::accept`] and all later ones fail.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }

    /// Blocks until a process of this user, or of root, connects; others are refused.
    ///
    /// # Errors
    /// What the system says; a later call may succeed, unless it is closed.
    pub fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.listener.accept()?;
            let user = user(&stream)?;
            if user == geteuid() || user.is_root() {
                return Ok(stream);
            }
        }
    }
}

/// Connects to the process of this user that listens for `what` at `address`, if that is an address
/// of this machine. None when no process listens there.
///
/// # Errors
/// What the system says; a socket of another user is an error.
pub fn connect(what: &str, address: SocketAddr) -> io::Result<Option<UnixStream>> {
    if !is_here(address.ip()) {
        return Ok(None);
    }
    let any: IpAddr = match address.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut others = false;
    for ip in [address.ip(), any, Ipv6Addr::UNSPECIFIED.into()] {
        for name in names(what, SocketAddr::new(ip, address.port())) {
            match reach(&name) {
                // Not even root trusts another user's process, which may have taken the name first.
                Ok(stream) if user(&stream)? == geteuid() => return Ok(Some(stream)),
                Ok(_) => others = true,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => others = true,
                Err(error) => return Err(error),
            }
        }
        let base = names(what, SocketAddr::new(ip, address.port())).next();
        let hidden = HIDDEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, name)) = hidden.iter().find(|(of, _)| Some(of) == base.as_ref()) {
            return Ok(UnixStream::connect_addr(&net::SocketAddr::from_abstract_name(name)?).ok());
        }
    }
    if others {
        let why = format!("the process that listens at {address} is another user's: act as that user");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(None)
}

/// What `near` connects to ([`connect`]), of a server whose port `far` reaches. One that has just
/// taken that port is about to have the socket beside it as well: blocks for [`BESIDE`] at most.
///
/// # Errors
/// What `near` or `far` says.
pub fn connect_beside<N, F, E>(
    mut near: impl FnMut() -> Result<Option<N>, E>,
    mut far: impl FnMut() -> Result<F, E>,
) -> Result<Option<N>, E> {
    // Nothing wakes a client when another process binds a socket.
    let look = || match near() {
        Ok(None) => far().err().map(Err),
        found => Some(found),
    };
    poll(BESIDE / 16, Patience::from(Instant::now() + BESIDE), look).unwrap_or(Ok(None))
}

/// Connects to the process that has a name. A process that accepts no connection is given up.
fn reach(name: &str) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(STRANGERS_PATIENCE))?;
    connect_to(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(UnixStream::from(socket))
}

/// Whether an address is one of this machine.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

/// Passes descriptors to the other end. Does not block.
///
/// # Errors
/// What the system says; the other end has not taken those of before.
pub(crate) fn pass(stream: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PASSED))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors at once"));
    }
    sendmsg(
        stream,
        &[IoSlice::new(&[descriptors.len() as u8])],
        &mut ancillary,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )?;
    Ok(())
}

/// Takes the descriptors that the other end passes. Blocks at most for `patience`.
///
/// # Errors
/// What the system says; the other end has ended, or passed something else.
pub(crate) fn take(stream: &UnixStream, patience: Duration) -> io::Result<Vec<OwnedFd>> {
    stream.set_read_timeout(Some(patience))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PASSED))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut count = [0];
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut count)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut passed = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            passed.extend(descriptors);
        }
    }
    if received.bytes != 1 || passed.len() != usize::from(count[0]) {
        return Err(io::Error::other("the other process has not passed its memory"));
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_server_that_takes_its_port_first_is_reached_all_the_same() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap();
        let mut server = None;
        let near = || connect("late", address);
        assert!(connect_beside(near, || Ok(())).unwrap().is_none(), "it has no such socket");
        let far = || {
            server = Some(LocalListener::bind("late", address)?);
            Ok(())
        };
        assert!(connect_beside(near, far).unwrap().is_some());
        let refused = || Err::<(), _>(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert!(connect_beside(|| Ok::<Option<()>, _>(None), refused).is_err());
    }
}
