//! Addresses at which a node listens, as people write them: `10.0.0.1:7401`, `[::1]:7401`,
//! `localhost`, `db1:7401`, `*`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

/// Whether a socket of this machine can have this address.
fn is_here(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// The host and the port of what was written; `port` if no port was.
fn parts(text: &str, port: Option<u16>) -> Result<(&str, u16), String> {
    let allowed = || {
        let example = port.unwrap_or(7480);
        format!("{text:?} is no address: write host:port, as 127.0.0.1:{example}, localhost:{example} or *:{example}")
    };
    let bare = |host| port.map(|port| (host, port)).ok_or_else(allowed);
    let unbracketed = |host: &'_ str| host.starts_with('[') == host.ends_with(']');
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(allowed());
    }
    match text.rsplit_once(':') {
        None => bare(text),
        // An address of IPv6 without a port.
        Some(_) if text.ends_with(']') => bare(text),
        Some((host, number))
            if !host.is_empty() && unbracketed(host) && (host.starts_with('[') || !host.contains(':')) =>
        {
            Ok((host, number.parse().map_err(|_| allowed())?))
        }
        Some(_) => Err(allowed()),
    }
}

/// All addresses that `text` stands for, the first choice first: `*` is every address of this
/// machine. What was written without a port has `port`, if that is given. Asks the system for
/// names.
///
/// # Errors
/// What is wrong with it, and what is allowed.
pub fn addresses(text: &str, port: Option<u16>) -> Result<Vec<SocketAddr>, String> {
    if let Ok(address) = text.parse() {
        return Ok(vec![address]);
    }
    let (host, port) = parts(text, port)?;
    if host == "*" {
        let any: IpAddr = Ipv6Addr::UNSPECIFIED.into();
        // A socket of IPv6 takes callers of IPv4 as well, where there is IPv6.
        let any = if is_here(any) { any } else { Ipv4Addr::UNSPECIFIED.into() };
        return Ok(vec![SocketAddr::new(any, port)]);
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let unknown = |cause: String| format!("{host:?} is neither an address nor a name that is known here: {cause}");
    let mut found: Vec<_> = (host, port).to_socket_addrs().map_err(|cause| unknown(cause.to_string()))?.collect();
    found.retain(|address| is_here(address.ip()));
    // Most clients try IPv4 first.
    found.sort_by_key(SocketAddr::is_ipv6);
    found.dedup();
    // A free port is free at one of them.
    found.truncate(if port == 0 { 1 } else { found.len() });
    if found.is_empty() {
        return Err(format!("{host:?} is the name of another machine: write an address or a name of this one"));
    }
    Ok(found)
}

/// The first of these [`addresses`].
///
/// # Errors
/// As there.
pub fn address(text: &str, port: Option<u16>) -> Result<SocketAddr, String> {
    addresses(text, port)?.first().copied().ok_or_else(|| format!("{text:?} stands for no address"))
}

/// The same of a list with commas between.
///
/// # Errors
/// As there, for the first that is wrong.
pub fn list(text: &str, port: Option<u16>) -> Result<Vec<SocketAddr>, String> {
    let mut all = Vec::new();
    for one in text.split(',') {
        for address in addresses(one.trim(), port)? {
            // Twice the same free port are two.
            if address.port() == 0 || !all.contains(&address) {
                all.push(address);
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_can_be_written_in_many_ways() {
        for (text, expected) in [
            ("127.0.0.1:7401", "127.0.0.1:7401"),
            ("127.0.0.1", "127.0.0.1:5432"),
            ("[::1]:7401", "[::1]:7401"),
            ("[::1]", "[::1]:5432"),
            ("localhost:0", "127.0.0.1:0"),
            ("localhost", "127.0.0.1:5432"),
        ] {
            assert_eq!(address(text, Some(5432)), Ok(expected.parse().unwrap()), "{text}");
        }
        let any = address("*", Some(5432)).unwrap();
        assert!(any.ip().is_unspecified() && any.port() == 5432);
        assert_eq!(address("*:7", None).unwrap().port(), 7);
        let listed = list("127.0.0.1:1, 127.0.0.1:2,127.0.0.1:1", None).unwrap();
        assert_eq!(listed.iter().map(SocketAddr::port).collect::<Vec<_>>(), [1, 2]);
        for wrong in [
            "",
            ":",
            ":5",
            "::1:5",
            "127.0.0.1",
            "localhost",
            "a b:5",
            "localhost:much",
            "127.0.0.1:70000",
            "[::1",
            "*",
        ] {
            assert!(addresses(wrong, None).is_err(), "{wrong}");
        }
        assert!(list("127.0.0.1:1,,127.0.0.1:2", None).is_err());
        assert!(address("no-such-host.invalid:1", None).unwrap_err().contains("no-such-host.invalid"));
    }
}
