//! SCRAM-SHA-256 (RFC 5802, RFC 7677): what is kept of a password, and how a client shows that it
//! knows it.

use std::{fmt, io, num::NonZeroU32, str::FromStr};

use base64::{Engine, prelude::BASE64_STANDARD};
use ring::{
    digest::{SHA256, digest},
    hmac::{self, HMAC_SHA256},
    pbkdf2::{self, PBKDF2_HMAC_SHA256},
    rand::{SecureRandom, SystemRandom},
};
use subtle::ConstantTimeEq;
use thiserror::Error;

/// How often a password is hashed, unless said otherwise; as in PostgreSQL.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).unwrap();
const SALT: usize = 16;
/// The mechanism, and the one that is bound to the TLS that it goes through.
pub(crate) const PLAIN: &str = "SCRAM-SHA-256";
pub(crate) const BOUND: &str = "SCRAM-SHA-256-PLUS";
/// The kind of channel binding: a hash of the server's certificate.
const END_POINT: &str = "tls-server-end-point";

type Key = [u8; 32];

/// What a server keeps to recognise a password. Its text form is PostgreSQL's:
/// `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    stored_key: Key,
    server_key: Key,
}

/// A text is no verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a verifier of the form SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>")]
pub struct VerifierError;

impl Verifier {
    /// A verifier for a password, with a salt of its own.
    ///
    /// # Errors
    /// When the system's random source failed.
    pub fn generate(password: &str) -> io::Result<Self> {
        Ok(Self::from_password(password, ITERATIONS, &random::<SALT>()?))
    }

    /// The verifier for a password with this salt, hashed so often.
    #[must_use]
    pub fn from_password(password: &str, iterations: NonZeroU32, salt: &[u8]) -> Self {
        let salted = salted_password(password, iterations, salt);
        let client_key = sign(&salted, &[b"Client Key"]);
        Self {
            iterations,
            salt: salt.to_vec(),
            stored_key: hash(&client_key),
            server_key: sign(&salted, &[b"Server Key"]),
        }
    }

    /// Whether this is the password. Takes as long for any.
    #[must_use]
    pub fn matches(&self, password: &str) -> bool {
        let salted = salted_password(password, self.iterations, &self.salt);
        hash(&sign(&salted, &[b"Client Key"])).ct_eq(&self.stored_key).into()
    }

    /// One for a user who has none, always the same for the same user and secret, that no password
    /// matches.
    #[must_use]
    pub fn decoy(user: &str, secret: &Key) -> Self {
        let salt = sign(secret, &[user.as_bytes()]);
        // Nobody knows what is hashed to nothing but zeros.
        Self { iterations: ITERATIONS, salt: salt[..SALT].to_vec(), stored_key: [0; 32], server_key: [0; 32] }
    }
}

impl FromStr for Verifier {
    type Err = VerifierError;

    fn from_str(text: &str) -> Result<Self, VerifierError> {
        let parse = || {
            let (salt, keys) = text.strip_prefix(PLAIN)?.strip_prefix('$')?.split_once('$')?;
            let (iterations, salt) = salt.split_once(':')?;
            let (stored_key, server_key) = keys.split_once(':')?;
            let key = |text| BASE64_STANDARD.decode(text).ok()?.try_into().ok();
            Some(Self {
                iterations: iterations.parse().ok()?,
                salt: BASE64_STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty())?,
                stored_key: key(stored_key)?,
                server_key: key(server_key)?,
            })
        };
        parse().ok_or(VerifierError)
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
        let (salt, stored_key, server_key) = (text(&self.salt), text(&self.stored_key), text(&self.server_key));
        write!(f, "{PLAIN}${}:{salt}${stored_key}:{server_key}", self.iterations)
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

/// Bytes that nobody can foresee.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system's random source failed"))?;
    Ok(bytes)
}

/// A password is prepared first; one that cannot be is taken as it is, as PostgreSQL does.
fn salted_password(password: &str, iterations: NonZeroU32, salt: &[u8]) -> Key {
    let prepared = stringprep::saslprep(password);
    let password = prepared.as_deref().unwrap_or(password);
    let mut salted = [0; 32];
    pbkdf2::derive(PBKDF2_HMAC_SHA256, iterations, salt, password.as_bytes(), &mut salted);
    salted
}

fn hash(bytes: &[u8]) -> Key {
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, bytes).as_ref());
    key
}

fn sign(key: &[u8], parts: &[&[u8]]) -> Key {
    let mut context = hmac::Context::with_key(&hmac::Key::new(HMAC_SHA256, key));
    for part in parts {
        context.update(part);
    }
    let mut signature = [0; 32];
    signature.copy_from_slice(context.sign().as_ref());
    signature
}

/// Why a client has not shown that it knows the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// What it said is not SCRAM, or not what was agreed.
    Malformed(&'static str),
    /// What it said would need something that is not offered.
    Unsupported(&'static str),
    /// It does not know the password.
    Wrong,
}

/// An exchange after the client's first message.
#[derive(Debug)]
pub(crate) struct Exchange {
    verifier: Verifier,
    /// What the client has to repeat of its first message's head and of the TLS that it goes
    /// through.
    bound_to: String,
    nonce: String,
    client_first: String,
    server_first: String,
}

impl Exchange {
    /// Answers the client's first message. `end_point` is the hash to be bound to, when that was
    /// offered; `bound`, whether the client chose it; `nonce` is new for each exchange.
    pub(crate) fn begin(
        verifier: Verifier,
        end_point: Option<&[u8]>,
        bound: bool,
        message: &[u8],
        nonce: &str,
    ) -> Result<(Self, String), Refused> {
        let message = text(message)?;
        let (flag, rest) = message.split_once(',').ok_or(Refused::Malformed("it has no head"))?;
        let end_point = match (flag, bound, end_point) {
            ("n", false, _) | ("y", false, None) => None,
            ("y", false, Some(_)) => return Err(Refused::Malformed("channel binding was offered, but not heard of")),
            (flag, true, Some(hash)) if flag.strip_prefix("p=") == Some(END_POINT) => Some(hash),
            (flag, true, _) if flag.starts_with("p=") => {
                return Err(Refused::Unsupported("a channel binding other than tls-server-end-point"));
            }
            _ => return Err(Refused::Malformed("its channel binding is not that of the mechanism")),
        };
        let (identity, first) = rest.split_once(',').ok_or(Refused::Malformed("it has no head"))?;
        if !identity.is_empty() {
            return Err(Refused::Unsupported("an authorization identity"));
        }
        if first.starts_with("m=") {
            return Err(Refused::Unsupported("an extension"));
        }
        let mut attributes = first.split(',');
        // The name is that of the start-up packet, whatever stands here.
        attributes.next().filter(|name| name.starts_with("n=")).ok_or(Refused::Malformed("it names no user"))?;
        let client_nonce = attributes.next().and_then(|nonce| nonce.strip_prefix("r="));
        let client_nonce =
            client_nonce.filter(|nonce| !nonce.is_empty() && nonce.bytes().all(|b| b.is_ascii_graphic()));
        let client_nonce = client_nonce.ok_or(Refused::Malformed("it has no nonce"))?;

        let head = &message[..message.len() - first.len()];
        let bound_to = [head.as_bytes(), end_point.unwrap_or_default()].concat();
        let nonce = format!("{client_nonce}{nonce}");
        let salt = BASE64_STANDARD.encode(&verifier.salt);
        let server_first = format!("r={nonce},s={salt},i={}", verifier.iterations);
        let exchange = Self {
            bound_to: BASE64_STANDARD.encode(bound_to),
            nonce,
            client_first: first.to_owned(),
            server_first: server_first.clone(),
            verifier,
        };
        Ok((exchange, server_first))
    }

    /// Answers the client's last message, by which it shows that it knows the password.
    pub(crate) fn finish(self, message: &[u8]) -> Result<String, Refused> {
        let message = text(message)?;
        let (unproven, proof) = message.rsplit_once(",p=").ok_or(Refused::Malformed("it proves nothing"))?;
        let mut attributes = unproven.split(',');
        let bound_to = attributes.next().and_then(|binding| binding.strip_prefix("c="));
        if bound_to.ok_or(Refused::Malformed("it is not bound"))? != self.bound_to {
            return Err(Refused::Malformed("it is bound to something else"));
        }
        let nonce = attributes.next().and_then(|nonce| nonce.strip_prefix("r="));
        if nonce.ok_or(Refused::Malformed("it has no nonce"))? != self.nonce {
            return Err(Refused::Malformed("its nonce is another one"));
        }
        let proof = BASE64_STANDARD.decode(proof).ok().and_then(|proof| Key::try_from(proof).ok());
        let mut client_key = proof.ok_or(Refused::Malformed("its proof is none"))?;

        let signed: [&[u8]; 5] =
            [self.client_first.as_bytes(), b",", self.server_first.as_bytes(), b",", unproven.as_bytes()];
        let signature = sign(&self.verifier.stored_key, &signed);
        for (byte, mask) in client_key.iter_mut().zip(signature) {
            *byte ^= mask;
        }
        if !bool::from(hash(&client_key).ct_eq(&self.verifier.stored_key)) {
            return Err(Refused::Wrong);
        }
        Ok(format!("v={}", BASE64_STANDARD.encode(sign(&self.verifier.server_key, &signed))))
    }
}

fn text(message: &[u8]) -> Result<&str, Refused> {
    std::str::from_utf8(message).map_err(|_| Refused::Malformed("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677, section 3.
    const CLIENT_FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const SERVER_FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const CLIENT_LAST: &str =
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SERVER_LAST: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn verifier() -> Verifier {
        let salt = BASE64_STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        Verifier::from_password("pencil", ITERATIONS, &salt)
    }

    fn begin(message: &[u8]) -> Result<(Exchange, String), Refused> {
        Exchange::begin(verifier(), None, false, message, SERVER_NONCE)
    }

    fn finish(message: &str) -> Result<String, Refused> {
        begin(CLIENT_FIRST).unwrap().0.finish(message.as_bytes())
    }

    #[test]
    fn the_example_of_rfc_7677() {
        let (exchange, server_first) = begin(CLIENT_FIRST).unwrap();
        assert_eq!(server_first, SERVER_FIRST);
        assert_eq!(exchange.finish(CLIENT_LAST.as_bytes()).unwrap(), SERVER_LAST);
    }

    /// The messages of RFC 5802, section 5, are for SHA-1: their form is the same.
    #[test]
    fn the_messages_of_rfc_5802_are_understood() {
        let salt = BASE64_STANDARD.decode("QSXCR+Q6sek8bf92").unwrap();
        let verifier = Verifier::from_password("pencil", ITERATIONS, &salt);
        let first = b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL";
        let (exchange, server_first) = Exchange::begin(verifier, None, false, first, "3rfcNHYJY1ZVvWVs7j").unwrap();
        assert_eq!(server_first, "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096");
        // A proof of SHA-1 is too short to be one.
        let last = b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=";
        assert_eq!(exchange.finish(last), Err(Refused::Malformed("its proof is none")));
    }

    #[test]
    fn verifiers_are_read_as_they_are_written() {
        let text = verifier().to_string();
        assert!(text.starts_with("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"), "{text}");
        assert_eq!(text.parse(), Ok(verifier()));
        for end in 0..text.len() {
            assert_eq!(text[..end].parse::<Verifier>(), Err(VerifierError));
        }
        assert_eq!(text.replace("$4096", "$0").parse::<Verifier>(), Err(VerifierError));
        assert_eq!("md5c1a2".parse::<Verifier>(), Err(VerifierError));
        assert_eq!(format!("{:?}", verifier()), "Verifier");
    }

    #[test]
    fn only_the_password_matches() {
        assert!(verifier().matches("pencil"));
        assert!(!verifier().matches("pencils"));
        let one = Verifier::generate("secret").unwrap();
        assert_ne!(one, Verifier::generate("secret").unwrap());
        assert!(one.matches("secret"));
        assert!(!Verifier::decoy("ann", &[7; 32]).matches("secret"));
    }

    /// The examples of RFC 4013, section 3.
    #[test]
    fn passwords_are_prepared() {
        for (given, same) in [("I\u{AD}X", "IX"), ("\u{AA}", "a"), ("\u{2168}", "IX")] {
            assert!(Verifier::generate(given).unwrap().matches(same), "{given:?}");
        }
        assert!(!Verifier::generate("user").unwrap().matches("USER"));
        // What cannot be prepared counts as it is.
        for given in ["\u{7}", "\u{627}1"] {
            assert!(Verifier::generate(given).unwrap().matches(given));
        }
    }

    #[test]
    fn a_decoy_is_the_same_each_time_and_never_satisfied() {
        let decoy = |user| Verifier::decoy(user, &[7; 32]);
        assert_eq!(decoy("ann"), decoy("ann"));
        assert_ne!(decoy("ann").salt, decoy("bob").salt);
        let (exchange, _) = Exchange::begin(decoy("ann"), None, false, CLIENT_FIRST, SERVER_NONCE).unwrap();
        assert_eq!(exchange.finish(CLIENT_LAST.as_bytes()), Err(Refused::Wrong));
    }

    #[test]
    fn a_wrong_proof_is_distinguished_from_a_broken_message() {
        assert_eq!(finish(&CLIENT_LAST.replace("p=d", "p=e")), Err(Refused::Wrong));
        assert_eq!(
            finish(&CLIENT_LAST.replace("biws", "eSws")),
            Err(Refused::Malformed("it is bound to something else"))
        );
        assert_eq!(finish(&CLIENT_LAST.replace("$k0", "$k1")), Err(Refused::Malformed("its nonce is another one")));
        for end in 0..CLIENT_LAST.len() {
            assert!(matches!(finish(&CLIENT_LAST[..end]), Err(Refused::Malformed(_))), "{end}");
        }
        for end in 0..CLIENT_FIRST.len() - 19 {
            assert!(matches!(begin(&CLIENT_FIRST[..end]), Err(Refused::Malformed(_))), "{end}");
        }
    }

    #[test]
    fn heads_of_the_first_message() {
        assert!(begin(b"y,,n=user,r=abc").is_ok());
        assert!(begin(b"n,,n=,r=abc").is_ok());
        assert!(matches!(begin(b"n,a=ann,n=user,r=abc"), Err(Refused::Unsupported(_))));
        assert!(matches!(begin(b"n,,m=x,n=user,r=abc"), Err(Refused::Unsupported(_))));
        assert!(matches!(begin(b"p=tls-server-end-point,,n=user,r=abc"), Err(Refused::Malformed(_))));
        assert!(matches!(begin(b"n,,n=user,r=a\xc3\xa4"), Err(Refused::Malformed(_))));
        assert!(matches!(begin(b"n,,n=user,r=\xff"), Err(Refused::Malformed(_))));
    }

    #[test]
    fn channel_binding_cannot_be_talked_away() {
        let begin = |bound, message: &[u8]| Exchange::begin(verifier(), Some(b"hash"), bound, message, SERVER_NONCE);
        assert!(begin(false, b"n,,n=,r=abc").is_ok());
        assert!(matches!(begin(false, b"y,,n=,r=abc"), Err(Refused::Malformed(_))));
        assert!(matches!(begin(true, b"n,,n=,r=abc"), Err(Refused::Malformed(_))));
        assert!(matches!(begin(true, b"p=tls-unique,,n=,r=abc"), Err(Refused::Unsupported(_))));
        let (exchange, _) = begin(true, b"p=tls-server-end-point,,n=,r=abc").unwrap();
        assert_eq!(exchange.bound_to, BASE64_STANDARD.encode("p=tls-server-end-point,,hash"));
    }
}
