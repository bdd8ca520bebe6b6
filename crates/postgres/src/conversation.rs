//! A conversation in memory, for tests and fuzzing.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use crate::{
    backend::{Backend, Origin, Peer},
    connection,
    limits::Limits,
    registry::{LONG_KEY, Registry},
    server::Shared,
    transport::{Memory, Transport},
};

/// Answers what a client says from connecting to hanging up, all of it known beforehand and read at
/// most `piece` bytes at a time; returns what it would have been told. Whatever the bytes, this
/// returns.
#[must_use]
pub fn conversation(backend: Arc<dyn Backend>, limits: Limits, bytes: &[u8], piece: usize) -> Vec<u8> {
    // There is no client to wait for.
    let limits = Limits { refusal: Duration::ZERO, ..limits };
    let shared = Shared::new(backend, limits, None, [0; 32]);
    let Some(seat) = Registry::new().enter(2, [0; LONG_KEY], None) else { return Vec::new() };
    let origin = Origin::Host(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let peer = Peer::new(origin);
    let ended = connection::run(&shared, &seat, peer, Transport::Memory(Memory::new(bytes, piece)));
    match ended {
        Some(Transport::Memory(memory)) => memory.output,
        _ => Vec::new(),
    }
}
