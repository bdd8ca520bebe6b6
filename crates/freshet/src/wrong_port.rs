//! Commands that were pointed at another port than they need: which port it is, by what answers
//! there.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    time::Duration,
};

use freshet_engine::node::NODE_SOCKET;
use freshet_fabric::local;

use crate::{Failure, server::LOCAL};

/// A port has this long to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// PostgreSQL's request for TLS, which all of its servers answer with a byte.
const ASKS_FOR_TLS: [u8; 8] = *b"\0\0\0\x08\x04\xd2\x16\x2f";

/// What listens at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// Operators and monitors.
    Control,
    /// Other nodes.
    Nodes,
    /// PostgreSQL's clients.
    Sql,
    /// Health checks and metrics.
    Http,
}

impl Port {
    /// What answers at the address, if that is known: never the one that `wanted` is.
    fn at(address: SocketAddr, wanted: Self) -> Option<Self> {
        for (socket, port) in [(LOCAL, Self::Control), (NODE_SOCKET, Self::Nodes)] {
            if port != wanted && matches!(local::connect(socket, address), Ok(Some(_))) {
                return Some(port);
            }
        }
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.set_write_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(&ASKS_FOR_TLS).ok()?;
        let mut answer = [0];
        stream.read_exact(&mut answer).ok()?;
        // The ports of nodes say the same as PostgreSQL's servers without TLS, and then refuse.
        match answer[0] {
            b'S' => Some(Self::Sql),
            b'H' => Some(Self::Http),
            b'N' => Self::greeted(&mut stream).filter(|port| *port != wanted),
            _ => None,
        }
    }

    /// What says this to a greeting.
    fn greeted(stream: &mut TcpStream) -> Option<Self> {
        stream.write_all(b"\0\0\0\x16\0\x03\0\0user\0freshet\0\0").ok()?;
        let mut answer = Vec::new();
        // It ends with the connection, or when a server waits for a password.
        let _ = stream.take(512).read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        match () {
            () if answer.is_empty() => None,
            () if text.contains("the control port of a Freshet node") => Some(Self::Control),
            () if text.contains("a Freshet node for other nodes") => Some(Self::Nodes),
            () => Some(Self::Sql),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Control => "the control port of a node",
            Self::Nodes => "the port for other nodes (listen)",
            Self::Sql => "the SQL port of a node, or of PostgreSQL",
            Self::Http => "an HTTP port",
        }
    }

    /// Where this one is, unless it is configured otherwise.
    fn usual(self) -> &'static str {
        match self {
            Self::Control => "this command needs the control port (address), which is 7400",
            Self::Nodes => "this needs the port for nodes (listen), which is 7401",
            Self::Sql => "this needs the SQL port (sql-listen), which is 5432",
            Self::Http => "this needs the HTTP port (http-listen)",
        }
    }
}

/// What is wrong with the address, if another port than the one that is `wanted` answers there.
pub(crate) fn mistake(address: &str, wanted: Port) -> Option<String> {
    let found = address.to_socket_addrs().ok()?.find_map(|resolved| Port::at(resolved, wanted))?;
    Some(format!("{address} is {}; {} if nothing else is configured", found.name(), wanted.usual()))
}

/// The failure of what was to reach the nodes' port at one of the addresses, with what is wrong
/// with them, if that is known.
pub(crate) fn explain<'a>(cause: impl Into<Failure>, addresses: impl IntoIterator<Item = &'a str>) -> Failure {
    let cause = cause.into();
    match addresses.into_iter().find_map(|address| mistake(address, Port::Nodes)) {
        Some(mistake) => Failure::new(format!("{mistake} ({cause})")),
        None => cause,
    }
}
