//! Which clients get in, and by which proof: the access file, with the fields and the meaning of
//! PostgreSQL's `pg_hba.conf`.
//!
//! The first rule that matches how a client comes, the database and the role that it names,
//! decides. A client that no rule matches is refused.

use std::{
    fmt, fs,
    io::{self, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::{
    backend::{Origin, Peer},
    local,
    report::{Report, SqlState},
};

/// The longest access file that is read.
const LONGEST: u64 = 4 << 20;
/// At most this number of faults is reported at once.
const SHOWN: usize = 10;

/// Rules for clients that want to come in. They never change; a server exchanges them for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRules {
    rules: Vec<Rule>,
}

/// Why a file gives no rules.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The file cannot be read.
    #[error("cannot read the access file {path}: {cause}")]
    Unreadable {
        /// The path of the access file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// Lines of it are not understood.
    #[error("the access file cannot be used: {}", listed(path, faults))]
    Lines {
        /// The path of the access file.
        path: PathBuf,
        /// All that is wrong.
        faults: Vec<Fault>,
    },
}

/// What is wrong in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong, for people.
    pub what: String,
}

fn listed(path: &Path, faults: &[Fault]) -> String {
    let mut text = String::new();
    for (number, Fault { line, what }) in faults.iter().take(SHOWN).enumerate() {
        let between = if number == 0 { "" } else { "; " };
        text += &format!("{between}{}:{line}: {what}", path.display());
    }
    if faults.len() > SHOWN {
        text += &format!("; and {} more", faults.len() - SHOWN);
    }
    text
}

/// What a client says of itself, and what is known of it.
#[derive(Clone, Copy)]
pub struct Claim<'c> {
    /// Where the client connects from, and through which TLS.
    pub peer: &'c Peer,
    /// The role that it names.
    pub user: &'c str,
    /// The database that it names.
    pub database: &'c str,
    /// Whether the client's role is the given one or a member of it, directly or not. Superusers
    /// are not members by that alone; a role that does not exist is no member of any.
    pub is_member: &'c dyn Fn(&str) -> bool,
}

/// What a client that the rules let in still has to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Required {
    /// No proof: the rule says `trust`, or the certificate is enough.
    Nothing,
    /// That it knows the role's password, by SCRAM-SHA-256.
    Password,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    kind: Kind,
    databases: Vec<Database>,
    users: Vec<User>,
    address: Address,
    method: Method,
    certificate: Certificate,
}

/// Which connections a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Local,
    Host,
    HostSsl,
    HostNoSsl,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Database {
    All,
    SameUser,
    SameRole,
    /// Connections of PostgreSQL's replication protocol, which is not spoken here.
    Replication,
    Named(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum User {
    All,
    MemberOf(String),
    Named(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Address {
    All,
    SameHost,
    SameNet,
    /// An address, and the mask of its bits that count.
    V4(u32, u32),
    V6(u128, u128),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Trust,
    Reject,
    ScramSha256,
    Cert,
    Peer,
    /// The user who runs the server, and root, need no proof on the Unix socket; others show a
    /// password.
    Owner,
}

/// What a rule asks of a client's certificate, besides its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certificate {
    Any,
    VerifyCa,
    VerifyFull,
}

impl Default for AccessRules {
    /// The rules without a file: a password everywhere, except at the Unix socket for the user who
    /// runs the server.
    fn default() -> Self {
        let rule = |kind, method| Rule {
            kind,
            databases: vec![Database::All],
            users: vec![User::All],
            address: Address::All,
            method,
            certificate: Certificate::Any,
        };
        Self { rules: vec![rule(Kind::Local, Method::Owner), rule(Kind::Host, Method::ScramSha256)] }
    }
}

impl AccessRules {
    /// Reads an access file.
    ///
    /// # Errors
    /// See [`AccessError`]; every line that is wrong is named.
    pub fn read(path: &Path) -> Result<Self, AccessError> {
        let unreadable = |cause| AccessError::Unreadable { path: path.to_owned(), cause };
        let mut text = String::new();
        let file = fs::File::open(path).map_err(unreadable)?;
        file.take(LONGEST + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > LONGEST {
            return Err(unreadable(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 4 MiB")));
        }
        Self::parse(&text).map_err(|faults| AccessError::Lines { path: path.to_owned(), faults })
    }

    /// Parses the text of an access file.
    ///
    /// # Errors
    /// What is wrong in which lines.
    pub fn parse(text: &str) -> Result<Self, Vec<Fault>> {
        let (mut rules, mut faults) = (Vec::new(), Vec::new());
        for (line, text) in logical_lines(text) {
            match fields(&text).and_then(|fields| rule(&fields)) {
                Ok(rule) => rules.extend(rule),
                Err(what) => faults.push(Fault { line, what }),
            }
        }
        if faults.is_empty() { Ok(Self { rules }) } else { Err(faults) }
    }

    /// Whether a rule asks for a client's certificate.
    #[must_use]
    pub fn asks_for_certificates(&self) -> bool {
        self.rules.iter().any(|rule| rule.method == Method::Cert || rule.certificate != Certificate::Any)
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are no rules: then every client is refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What a client has to show.
    ///
    /// # Errors
    /// What the client is told when it is refused whatever it shows: 28000, in PostgreSQL's words.
    pub fn decide(&self, claim: &Claim<'_>) -> Result<Required, Report> {
        let user = claim.user;
        let failed = |message: String| Err(Report::fatal(SqlState::INVALID_AUTHORIZATION, message));
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(claim)) else {
            return failed(format!("no pg_hba.conf entry for {}", shown(claim)));
        };
        if rule.method == Method::Reject {
            return failed(format!("pg_hba.conf rejects connection for {}", shown(claim)));
        }
        let named = claim.peer.certificate.as_deref();
        if rule.certificate != Certificate::Any && named.is_none() {
            return failed("connection requires a valid client certificate".to_owned());
        }
        let own_name = named == Some(user);
        if rule.certificate == Certificate::VerifyFull && !own_name {
            return failed(format!("certificate authentication failed for user \"{user}\""));
        }
        match (rule.method, claim.peer.origin) {
            // A rule with `cert` asks for `VerifyFull`, which is checked above.
            (Method::Trust | Method::Cert, _) => Ok(Required::Nothing),
            (Method::Owner, Origin::Local { uid }) if uid == 0 || uid == local::own_uid() => Ok(Required::Nothing),
            (Method::Peer, Origin::Local { uid }) => match local::user_name(uid) {
                Some(name) if name == user => Ok(Required::Nothing),
                _ => failed(format!("Peer authentication failed for user \"{user}\"")),
            },
            (Method::Peer | Method::Reject, _) => failed(format!("authentication failed for user \"{user}\"")),
            (Method::ScramSha256 | Method::Owner, _) => Ok(Required::Password),
        }
    }
}

/// A client, as PostgreSQL's messages show it.
fn shown(claim: &Claim<'_>) -> String {
    let host = claim.peer.origin.address().map_or("[local]".to_owned(), |address| address.ip().to_string());
    let encryption = if claim.peer.encryption.is_some() { "SSL encryption" } else { "no encryption" };
    format!("host \"{host}\", user \"{}\", database \"{}\", {encryption}", claim.user, claim.database)
}

impl Rule {
    fn matches(&self, claim: &Claim<'_>) -> bool {
        let of_kind = match (claim.peer.origin, self.kind) {
            (Origin::Local { .. }, kind) => kind == Kind::Local,
            (Origin::Host(_), Kind::Local) => false,
            (Origin::Host(_), Kind::Host) => true,
            (Origin::Host(_), Kind::HostSsl) => claim.peer.encryption.is_some(),
            (Origin::Host(_), Kind::HostNoSsl) => claim.peer.encryption.is_none(),
        };
        let from = |address: std::net::SocketAddr| self.address.matches(address.ip().to_canonical());
        of_kind
            && claim.peer.origin.address().is_none_or(from)
            && self.databases.iter().any(|database| database.matches(claim))
            && self.users.iter().any(|user| user.matches(claim))
    }
}

impl Database {
    fn matches(&self, claim: &Claim<'_>) -> bool {
        match self {
            Self::All => true,
            Self::SameUser => claim.database == claim.user,
            Self::SameRole => (claim.is_member)(claim.database),
            Self::Replication => false,
            Self::Named(name) => name == claim.database,
        }
    }
}

impl User {
    fn matches(&self, claim: &Claim<'_>) -> bool {
        match self {
            Self::All => true,
            Self::MemberOf(role) => (claim.is_member)(role),
            Self::Named(name) => name == claim.user,
        }
    }
}

impl Address {
    /// Clients are compared in canonical form: what is within `::ffff:0:0/96` is an IPv4 network.
    fn canonical(self) -> Self {
        const MAPPED: u128 = 0xFFFF << 32;
        const UPPER: u128 = u128::MAX << 32;
        match self {
            Self::V6(address, mask) if address & UPPER == MAPPED && mask & UPPER == UPPER => {
                Self::V4(address as u32, mask as u32)
            }
            other => other,
        }
    }

    fn matches(self, client: IpAddr) -> bool {
        match (self, client) {
            (Self::All, _) => true,
            (Self::V4(address, mask), IpAddr::V4(client)) => (address ^ client.to_bits()) & mask == 0,
            (Self::V6(address, mask), IpAddr::V6(client)) => (address ^ client.to_bits()) & mask == 0,
            (Self::V4(..) | Self::V6(..), _) => false,
            // Where the system does not say, no client matches.
            (Self::SameHost, _) => {
                own_networks().is_ok_and(|own| own.iter().any(|network| network.own == Some(client)))
            }
            (Self::SameNet, _) => {
                own_networks().is_ok_and(|own| own.iter().any(|network| network.range.matches(client)))
            }
        }
    }
}

/// A network that this machine is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    range: Address,
    /// This machine's address in it, where that is known.
    own: Option<IpAddr>,
}

/// The networks and addresses of this machine, as the system has them now.
fn own_networks() -> io::Result<Vec<Network>> {
    let mut networks = networks_v4(&fs::read_to_string("/proc/net/fib_trie")?, &fs::read_to_string("/proc/net/route")?);
    // Where there is no IPv6, there is no such file.
    networks.extend(networks_v6(&fs::read_to_string("/proc/net/if_inet6").unwrap_or_default()));
    Ok(networks)
}

/// Own addresses are the leaves `/32 host LOCAL`, own networks the routes without a gateway.
fn networks_v4(trie: &str, routes: &str) -> Vec<Network> {
    let mut networks = Vec::new();
    let mut leaf: Option<Ipv4Addr> = None;
    for line in trie.lines().map(str::trim_start) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.trim().parse().ok();
        } else if let (Some(address), Some(mask)) = (leaf, line.strip_suffix(" host LOCAL")) {
            let mask = mask.trim().strip_prefix('/').and_then(|bits| bits.parse().ok());
            let Some(mask) = mask.and_then(|bits| mask_of(bits, 32)) else { continue };
            let (bits, mask) = (address.to_bits(), (mask >> 96) as u32);
            let own = (mask == u32::MAX).then_some(IpAddr::V4(address));
            networks.push(Network { range: Address::V4(bits, mask), own });
        }
    }
    for line in routes.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // As they lie in memory.
        let number = |at: usize| fields.get(at).and_then(|hex| u32::from_str_radix(hex, 16).ok()).map(u32::from_be);
        if let (Some(to), Some(0), Some(mask)) = (number(1), number(2), number(7))
            && mask != 0
        {
            networks.push(Network { range: Address::V4(to, mask), own: None });
        }
    }
    networks
}

/// An address of this machine in each line, with the length of its prefix.
fn networks_v6(addresses: &str) -> Vec<Network> {
    let network = |line: &str| {
        let mut fields = line.split_whitespace();
        let address = u128::from_str_radix(fields.next()?, 16).ok()?;
        let bits = u8::from_str_radix(fields.nth(1)?, 16).ok()?;
        let own = Some(IpAddr::V6(Ipv6Addr::from_bits(address)));
        Some(Network { range: Address::V6(address, mask_of(bits, 128)?), own })
    };
    addresses.lines().filter_map(network).collect()
}

/// A mask of this length, in the upper bits of the result; none when an address of `width` bits has
/// fewer.
fn mask_of(bits: u8, width: u8) -> Option<u128> {
    (bits <= width).then(|| u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0))
}

/// Lines with their numbers; one that ends with a backslash continues in the next.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (number, line) in text.lines().enumerate() {
        let (line, more) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match lines.last_mut() {
            Some((_, last)) if continues => last.push_str(line),
            _ => lines.push((number + 1, line.to_owned())),
        }
        continues = more;
    }
    lines
}

/// One of the words of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    text: String,
    /// It begins with a quote, and so has no special meaning.
    quoted: bool,
}

impl Word {
    fn is(&self, keyword: &str) -> bool {
        !self.quoted && self.text == keyword
    }
}

/// The fields of a line: words with commas between them.
fn fields(line: &str) -> Result<Vec<Vec<Word>>, String> {
    let mut fields: Vec<Vec<Word>> = Vec::new();
    let mut characters = line.chars().peekable();
    // After a comma a field continues, even after blanks.
    let mut continues = false;
    loop {
        while characters.next_if(|it| is_blank(*it)).is_some() {}
        match characters.peek() {
            None | Some('#') => return Ok(fields),
            Some(_) => {}
        }
        let mut word = Word { text: String::new(), quoted: characters.peek() == Some(&'"') };
        let mut quoting = false;
        let mut comma = false;
        while let Some(character) = characters.peek().copied() {
            if !quoting && (is_blank(character) || character == '#') {
                break;
            }
            characters.next();
            match character {
                '"' if quoting && characters.next_if_eq(&'"').is_some() => word.text.push('"'),
                '"' => quoting = !quoting,
                ',' if !quoting => {
                    comma = true;
                    break;
                }
                other => word.text.push(other),
            }
        }
        if quoting {
            return Err("a quote is not closed".to_owned());
        }
        match fields.last_mut() {
            Some(field) if continues => field.push(word),
            _ => fields.push(vec![word]),
        }
        continues = comma;
    }
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r')
}

/// A field that has one word.
fn single<'f>(field: Option<&'f Vec<Word>>, missing: &str, what: &str) -> Result<&'f Word, String> {
    match field.map(Vec::as_slice) {
        None | Some([]) => Err(format!("end-of-line before {missing}")),
        Some([word]) => Ok(word),
        Some(_) => Err(format!("multiple values specified for {what}")),
    }
}

/// The rule that a line states; none in an empty line.
fn rule(fields: &[Vec<Word>]) -> Result<Option<Rule>, String> {
    let mut fields = fields.iter();
    let Some(first) = fields.next() else { return Ok(None) };
    let kind = single(Some(first), "connection type", "connection type")?;
    let kind = match kind.text.as_str() {
        "local" => Kind::Local,
        "host" | "hostnogssenc" => Kind::Host,
        "hostssl" => Kind::HostSsl,
        "hostnossl" => Kind::HostNoSsl,
        "hostgssenc" => return Err("hostgssenc: encryption by GSSAPI is not offered here; use hostssl".to_owned()),
        "include" | "include_if_exists" | "include_dir" => {
            return Err(format!("{}: other files are not included; write the rules in this one", kind.text));
        }
        other => return Err(format!("invalid connection type \"{other}\"; use local, host, hostssl or hostnossl")),
    };
    let databases = fields.next().ok_or("end-of-line before database specification")?;
    let databases = databases.iter().map(database).collect::<Result<Vec<_>, _>>()?;
    let users = fields.next().ok_or("end-of-line before role specification")?;
    let users = users.iter().map(user).collect::<Result<Vec<_>, _>>()?;
    let address = if kind == Kind::Local { Address::All } else { address(&mut fields)?.canonical() };
    let method = single(fields.next(), "authentication method", "authentication type")?;
    let method = self::method(&method.text, kind)?;
    let mut rule = Rule { kind, databases, users, address, method, certificate: Certificate::Any };
    if method == Method::Cert {
        rule.certificate = Certificate::VerifyFull;
    }
    for option in fields.flatten() {
        rule.option(&option.text)?;
    }
    Ok(Some(rule))
}

/// A plain name: `@file` and `/regular expression` are refused.
fn name(word: &Word) -> Result<String, String> {
    let text = &word.text;
    if !word.quoted && text.starts_with('@') {
        return Err(format!("{text}: names are not read from other files; write them here"));
    }
    if text.starts_with('/') {
        return Err(format!("{text}: regular expressions are not understood here; write the names"));
    }
    if text.is_empty() {
        return Err("a name is empty".to_owned());
    }
    Ok(text.clone())
}

fn database(word: &Word) -> Result<Database, String> {
    Ok(match word {
        it if it.is("all") => Database::All,
        it if it.is("sameuser") => Database::SameUser,
        it if it.is("samerole") || it.is("samegroup") => Database::SameRole,
        it if it.is("replication") => Database::Replication,
        it => Database::Named(name(it)?),
    })
}

fn user(word: &Word) -> Result<User, String> {
    let role = word.text.strip_prefix('+').filter(|_| !word.quoted);
    Ok(match role {
        _ if word.is("all") => User::All,
        Some(role) => User::MemberOf(name(&Word { text: role.to_owned(), quoted: true })?),
        None => User::Named(name(word)?),
    })
}

fn address<'f>(fields: &mut impl Iterator<Item = &'f Vec<Word>>) -> Result<Address, String> {
    let word = single(fields.next(), "IP address specification", "host address")?;
    let text = word.text.as_str();
    match text {
        _ if word.is("all") => return Ok(Address::All),
        _ if word.is("samehost") => return Ok(Address::SameHost),
        _ if word.is("samenet") => return Ok(Address::SameNet),
        _ => {}
    }
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let parsed = address.parse::<IpAddr>().map_err(|_| {
        let shape = "addresses are numbers here, as in 192.0.2.0/24 or 2001:db8::/32; host names are not looked up";
        format!("invalid IP address \"{address}\": {shape}")
    })?;
    let Some(length) = length else {
        let mask = single(fields.next(), "netmask specification", "netmask")?;
        let invalid = || format!("invalid IP mask \"{}\"", mask.text);
        return match (parsed, mask.text.parse::<IpAddr>().map_err(|_| invalid())?) {
            (IpAddr::V4(address), IpAddr::V4(mask)) => Ok(Address::V4(address.to_bits(), mask.to_bits())),
            (IpAddr::V6(address), IpAddr::V6(mask)) => Ok(Address::V6(address.to_bits(), mask.to_bits())),
            _ => Err(format!("IP address and mask do not match: {address} and {}", mask.text)),
        };
    };
    let invalid = || format!("invalid CIDR mask in address \"{text}\"");
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let length = length.parse::<u8>().ok().filter(|_| digits).ok_or_else(invalid)?;
    match parsed {
        IpAddr::V4(address) => {
            let mask = mask_of(length, 32).ok_or_else(invalid)?;
            Ok(Address::V4(address.to_bits(), (mask >> 96) as u32))
        }
        IpAddr::V6(address) => Ok(Address::V6(address.to_bits(), mask_of(length, 128).ok_or_else(invalid)?)),
    }
}

fn method(name: &str, kind: Kind) -> Result<Method, String> {
    let offered = "use trust, reject, scram-sha-256, cert, peer or owner";
    let method = match name {
        "trust" => Method::Trust,
        "reject" => Method::Reject,
        "scram-sha-256" => Method::ScramSha256,
        "cert" => Method::Cert,
        "peer" => Method::Peer,
        "owner" => Method::Owner,
        "md5" | "password" => {
            return Err(format!("authentication method \"{name}\" is not offered here; use scram-sha-256"));
        }
        "gss" | "sspi" | "ident" | "pam" | "bsd" | "ldap" | "radius" | "oauth" => {
            return Err(format!("authentication method \"{name}\" is not offered here; {offered}"));
        }
        _ => return Err(format!("invalid authentication method \"{name}\"; {offered}")),
    };
    match method {
        Method::Peer | Method::Owner if kind != Kind::Local => {
            Err(format!("{name} authentication is only supported on local sockets"))
        }
        Method::Cert if kind != Kind::HostSsl => {
            Err("cert authentication is only supported on hostssl connections".to_owned())
        }
        method => Ok(method),
    }
}

impl Rule {
    fn option(&mut self, text: &str) -> Result<(), String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!("authentication option not in name=value format: {text}"));
        };
        match (name, value) {
            ("clientcert", _) if self.kind != Kind::HostSsl => {
                Err("clientcert can only be configured for \"hostssl\" rows".to_owned())
            }
            ("clientcert", "verify-full") => {
                self.certificate = Certificate::VerifyFull;
                Ok(())
            }
            ("clientcert", "verify-ca") if self.method == Method::Cert => {
                Err("clientcert only accepts \"verify-full\" when using \"cert\" authentication".to_owned())
            }
            ("clientcert", "verify-ca") => {
                self.certificate = Certificate::VerifyCa;
                Ok(())
            }
            ("clientcert", _) => {
                Err(format!("invalid value for clientcert: \"{value}\"; use verify-ca or verify-full"))
            }
            ("clientname", "CN") if self.kind == Kind::HostSsl => Ok(()),
            ("clientname", _) => Err("clientname: a certificate's common name (CN) is what counts here".to_owned()),
            ("map", _) => {
                let why = "names of users are not mapped here; the name has to be the role's";
                Err(format!("map: {why}"))
            }
            _ => Err(format!("unrecognized authentication option name: \"{name}\"")),
        }
    }
}

impl fmt::Debug for Claim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("peer", &self.peer).field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
