//! Sockets between processes of one user on one machine. They have no place in the file system, and
//! each end knows the user of the other.
//!
//! A socket's name consists of its purpose and the address of the TCP port beside it. Like that
//! port it belongs to the network namespace, ends with its process, and cannot be held by two
//! processes at the same time. Every process may connect. The system tells each end which user the
//! other end belongs to; processes of other users are refused.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::{
        fd::{BorrowedFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{self, UnixListener, UnixStream},
    },
    time::Duration,
};

use rustix::{
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg, sockopt::socket_peercred,
    },
    process::{Uid, geteuid},
};

/// The most descriptors that are passed at once.
pub(crate) const MAX_PASSED: usize = 8;

fn name(what: &str, address: SocketAddr) -> io::Result<net::SocketAddr> {
    net::SocketAddr::from_abstract_name(format!("freshet-{what}-{address}"))
}

/// The user of the process at the other end.
fn user(stream: &UnixStream) -> io::Result<Uid> {
    Ok(socket_peercred(stream)?.uid)
}

/// Listens for processes of this user.
#[derive(Debug)]
pub struct LocalListener(UnixListener);

impl LocalListener {
    /// Listens for the purpose `what`, beside the TCP port `address`.
    ///
    /// # Errors
    /// What the system says: another process has the name.
    pub fn bind(what: &str, address: SocketAddr) -> io::Result<Self> {
        UnixListener::bind_addr(&name(what, address)?).map(Self).map_err(|cause| match cause.kind() {
            io::ErrorKind::AddrInUse => {
                let why = format!("another process has the local socket @freshet-{what}-{address}");
                io::Error::new(io::ErrorKind::AddrInUse, why)
            }
            _ => cause,
        })
    }

    /// Blocks until a process of this user, or of root, connects; others are refused.
    ///
    /// # Errors
    /// What the system says; a later call may succeed.
    pub fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.0.accept()?;
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
    for ip in [address.ip(), any, Ipv6Addr::UNSPECIFIED.into()] {
        match UnixStream::connect_addr(&name(what, SocketAddr::new(ip, address.port()))?) {
            // Not even root trusts another user's process, which may have taken the name first.
            Ok(stream) if user(&stream)? == geteuid() => return Ok(Some(stream)),
            Ok(_) => {
                let why = format!("the process that listens at {address} is another user's: act as that user");
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
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
