//! One-time tokens: how a node from another machine is let in.
//!
//! A token names the authority by its fingerprint, so that the newcomer can check the member before
//! it holds any certificate. It also carries a secret, which the member that gave it out remembers.
//! (kubeadm's discovery tokens do the same.)

use std::{
    collections::HashMap,
    fmt,
    str::FromStr,
    time::{Duration, Instant},
};

use freshet_base::{ClusterId, NodeId, sync::Mutex};
use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom, SystemRandom},
};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use crate::{Credentials, CredentialsError, Identity};

/// What a token begins with.
const PREFIX: &str = "freshet-token-";
/// The most unused tokens that a member remembers.
const OUTSTANDING: usize = 1024;

/// A one-time token. Its holder can become a member, so it is secret until it is used.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The fingerprint of the authority's certificate.
    pub(crate) authority: [u8; 32],
    /// The random half, which the member that gave out the token remembers.
    pub(crate) secret: [u8; 16],
}

impl Token {
    /// Whether the authority of these has given it out, or one that had the same.
    pub fn is_of(&self, credentials: &Credentials) -> bool {
        credentials.authority().is_some_and(|(_, fingerprint)| fingerprint == self.authority)
    }

    /// The random half, which the member that gave out the token remembers.
    pub fn secret(&self) -> [u8; 16] {
        self.secret
    }
}

/// A text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid token: make one with `freshet token` on a member of the cluster")]
pub struct BadToken;

/// SHA-256 of a certificate, or of a public key.
pub type Fingerprint = [u8; 32];

/// The fingerprint of a certificate.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> Fingerprint {
    fingerprint_of(certificate)
}

pub(crate) fn fingerprint_of(bytes: &[u8]) -> Fingerprint {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A fingerprint as text: hexadecimal digits.
pub fn fingerprint_text(fingerprint: &Fingerprint) -> String {
    hex(fingerprint)
}

/// What [`fingerprint_text`] has written.
pub fn fingerprint_of_text(text: &str) -> Option<Fingerprint> {
    unhex(text)
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}{}", hex(&self.authority), hex(&self.secret))
    }
}

/// Without the secret: it must not get into a log.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(of authority {})", hex(&self.authority))
    }
}

impl FromStr for Token {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        let digits = text.trim().strip_prefix(PREFIX).ok_or(BadToken)?;
        let (authority, secret) = digits.split_at_checked(64).ok_or(BadToken)?;
        Ok(Self { authority: unhex(authority).ok_or(BadToken)?, secret: unhex(secret).ok_or(BadToken)? })
    }
}

/// What the holder of a token may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grant {
    /// A node or an archive: the one with this id, otherwise a new one.
    Node(Option<NodeId>),
    /// A client of the control port.
    Client(Identity),
}

/// What a newcomer is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// A node, which gets the authority's key.
    Node,
    /// An archive or a backup, which gets a certificate alone.
    Archive,
}

impl Part {
    /// Who has this part, under this id.
    pub fn identity(self, id: NodeId) -> Identity {
        match self {
            Self::Node => Identity::Node(id),
            Self::Archive => Identity::Archive(id),
        }
    }
}

/// What a newcomer asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolment {
    /// The public half of its key.
    pub public_key: Vec<u8>,
    /// The newcomer's id, if it has one already.
    pub node: Option<NodeId>,
    /// What it is to be, unless its token is for a client.
    pub part: Part,
    /// The secret of its token; none for a process of the same user on the same machine.
    pub secret: Option<[u8; 16]>,
}

/// What a newcomer gets that was let in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolled {
    /// The cluster that it belongs to from now on.
    pub cluster: ClusterId,
    /// Who it is from now on.
    pub identity: Identity,
    /// Its certificate in PEM form.
    pub certificate: String,
    /// The authority's certificate in PEM form.
    pub authority: String,
    /// The authority's key in PEM form, for a node. Secret.
    pub authority_key: Option<String>,
}

/// Without the key.
impl fmt::Debug for Enrolled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enrolled")
            .field("cluster", &self.cluster)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Why a newcomer is not let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum EnrolmentError {
    /// It has no token, or one that this node did not give out.
    #[error(
        "a certificate takes an unused token that this node has made: make one with \
         `freshet token` on that node"
    )]
    NoToken,
    /// Its token was given out too long ago.
    #[error("the token has expired: make another with `freshet token`")]
    Expired,
    /// The token is not for this id.
    #[error("the token is not one for node {0}: make one with `freshet token --node {0}`")]
    Taken(NodeId),
    /// An operator has taken the node out of the cluster.
    #[error("node {0} was removed from the cluster: let it join with a new directory, and so with another id")]
    Removed(NodeId),
    /// The authority of this node counts no more.
    #[error(
        "this node has yet to get its cluster's new authority, and signs nothing until then: try again in a moment; \
         `freshet status` of the node says what keeps it"
    )]
    Replaced,
    /// This cluster's certificates are made elsewhere.
    #[error("this cluster's operator provides its certificates: this node signs none")]
    NotAuthorised,
    /// The certificate cannot be made.
    #[error("cannot make the certificate: {0}")]
    Failed(String),
}

impl From<CredentialsError> for EnrolmentError {
    fn from(error: CredentialsError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The tokens that a node has given out. They do not outlive its process.
#[derive(Debug, Default)]
pub struct Tokens {
    /// By the hash of the secret, so that the time of a look-up tells nothing about it.
    given: Mutex<HashMap<[u8; 32], (Grant, Instant)>>,
}

fn hash(secret: &[u8; 16]) -> [u8; 32] {
    digest(&SHA256, secret).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl Tokens {
    /// Gives out a token of this authority that may be used once until `now + valid`. Blocks for
    /// the system's randomness.
    ///
    /// # Errors
    /// When the system's random source failed, or too many tokens are unused.
    pub fn give(
        &self,
        authority: &CertificateDer<'_>,
        grant: Grant,
        now: Instant,
        valid: Duration,
    ) -> Result<Token, CredentialsError> {
        let mut secret = [0; 16];
        SystemRandom::new().fill(&mut secret).map_err(|_| CredentialsError::NoRandomness)?;
        let mut given = self.given.lock().expect("no code panics under this mutex");
        given.retain(|_, (_, until)| *until > now);
        if given.len() >= OUTSTANDING {
            return Err(CredentialsError::TooManyTokens(OUTSTANDING));
        }
        given.insert(hash(&secret), (grant, now + valid));
        Ok(Token { authority: fingerprint(authority), secret })
    }

    /// None that was given out counts any more.
    pub(crate) fn forget(&self) {
        self.given.lock().expect("no code panics under this mutex").clear();
    }

    /// Uses a token up.
    ///
    /// # Errors
    /// [`EnrolmentError`] when it is unknown, was used, or has expired.
    pub fn take(&self, secret: &[u8; 16], now: Instant) -> Result<Grant, EnrolmentError> {
        let taken = self.given.lock().expect("no code panics under this mutex").remove(&hash(secret));
        match taken {
            None => Err(EnrolmentError::NoToken),
            Some((_, until)) if until <= now => Err(EnrolmentError::Expired),
            Some((grant, _)) => Ok(grant),
        }
    }
}
