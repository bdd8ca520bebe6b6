//! How a node reaches another.

use std::{
    io,
    net::ToSocketAddrs,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use freshet_fabric::{
    local,
    stream::{Stream, tls_error},
    tcp::{Closer, Connection},
};
use freshet_membership::Credentials;

use super::{CallError, LOCAL};

/// Connects to the node at `address`. Both ends have proved by TLS that they are members of the
/// same cluster. Each step takes at most `patience`.
///
/// # Errors
/// [`CallError`].
pub fn connect(credentials: &Credentials, address: &str, patience: Duration) -> Result<Connection, CallError> {
    connect_until(credentials, address, patience, drop)
}

/// The same; `trying` gets what ends the attempt from the beginning: the other machine may not be
/// reached, or its process stand still.
pub(crate) fn connect_until(
    credentials: &Credentials,
    address: &str,
    patience: Duration,
    trying: impl FnMut(Closer),
) -> Result<Connection, CallError> {
    let secure =
        |stream: Stream| stream.secure_client(credentials.client(), Credentials::expected(), Instant::now() + patience);
    secured(address, patience, trying, secure)
}

/// A machine has this long to answer at all; who connects tries again.
const REACHES: Duration = Duration::from_secs(1);

pub(super) fn secured(
    address: &str,
    patience: Duration,
    trying: impl FnMut(Closer),
    secure: impl FnOnce(Stream) -> io::Result<Stream>,
) -> Result<Connection, CallError> {
    let connection = freshet_fabric::tcp::connect_until(address, patience.min(REACHES), trying)?;
    let system = |source| CallError::System { address: address.to_owned(), source };
    let mut connection = connection.secured(secure).map_err(|error| match tls_error(&error) {
        Some(why) => CallError::Foreign { address: address.to_owned(), why: why.to_string() },
        None if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            system(io::Error::new(io::ErrorKind::TimedOut, format!("it does not answer within {patience:?}")))
        }
        None => system(error),
    })?;
    connection.set_patience(Some(patience)).map_err(system)?;
    Ok(connection)
}

/// Connects to the process of this user that listens at `address`, if that is on this machine.
pub(super) fn near(address: &str, patience: Duration) -> Result<Option<(UnixStream, Connection)>, CallError> {
    let system = |source| CallError::System { address: address.to_owned(), source };
    for resolved in address.to_socket_addrs().map_err(system)? {
        if let Some(socket) = local::connect(LOCAL, resolved).map_err(system)? {
            let same = socket.try_clone().map_err(system)?;
            let mut connection = Connection::new(same.into(), resolved);
            connection.set_patience(Some(patience)).map_err(system)?;
            return Ok(Some((socket, connection)));
        }
    }
    Ok(None)
}

/// The same, where there has to be such a process.
pub(super) fn at_hand(address: &str, patience: Duration) -> Result<Connection, CallError> {
    let far = || freshet_fabric::tcp::connect(address, patience).map_err(CallError::from);
    let found = local::connect_beside(|| near(address, patience), far)?;
    found.map(|(_, connection)| connection).ok_or_else(|| CallError::NoToken { address: address.to_owned() })
}
