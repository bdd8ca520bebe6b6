//! Ports that a node keeps when it is started again, so that they cannot be chosen by the system
//! each time.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddr, UnixListener},
    },
    sync::{Mutex, PoisonError},
};

/// Below those that Linux gives to connections, and to who asks for any port (32768 and above,
/// net.ipv4.ip_local_port_range).
const RANGE: std::ops::Range<u16> = 10_000..32_000;

/// What this process has reserved. It ends with the process.
static HELD: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// An address of this machine whose port is free, and that no other process gets that asks here,
/// as long as this one runs. Nothing listens there yet.
///
/// # Errors
/// When all of them are taken.
pub fn reserve() -> io::Result<SocketAddr> {
    let len = RANGE.end - RANGE.start;
    let first = (RandomState::new().build_hasher().finish() % u64::from(len)) as u16;
    for step in 0..len {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, RANGE.start + (first + step) % len));
        // The name is free again when its process has ended, however it does.
        let name = UnixAddr::from_abstract_name(format!("freshet-test-port-{}", address.port()))?;
        let Ok(held) = UnixListener::bind_addr(&name) else { continue };
        if TcpListener::bind(address).is_ok() {
            HELD.lock().unwrap_or_else(PoisonError::into_inner).push(held);
            return Ok(address);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, format!("all ports from {RANGE:?} are taken")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice_nor_one_that_is_taken() {
        let ports: std::collections::BTreeSet<_> = (0..200).map(|_| reserve().unwrap().port()).collect();
        assert_eq!(ports.len(), 200);
        let taken = TcpListener::bind(reserve().unwrap()).unwrap();
        assert!(reserve().unwrap() != taken.local_addr().unwrap());
    }
}
