//! What TLS needs: certificate and key, and how a proof of identity is bound to them.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use freshet_base::private::{self, OpenKey};
use ring::digest::{Algorithm, SHA256, SHA384, SHA512, digest};
use rustls::{
    CipherSuite, Connection, ProtocolVersion, RootCertStore, ServerConfig, ServerConnection,
    crypto::ring::default_provider,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier},
};
use thiserror::Error;

use crate::Encryption;

/// The name of the protocol inside TLS, for clients that begin with TLS at once.
const ALPN: &[u8] = b"postgresql";

/// A certificate with its key.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    /// The hash that channel binding `tls-server-end-point` is about.
    end_point: Option<Arc<[u8]>>,
}

/// Why TLS cannot be offered.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The file of certificates cannot be read.
    #[error("cannot read certificates from {path}: {cause}")]
    Certificates {
        /// The file of the certificates.
        path: PathBuf,
        /// What the decoder says.
        cause: pem::Error,
    },
    /// The file has none.
    #[error("{path} has no certificate; it must be in PEM form, the server's own first")]
    NoCertificate {
        /// The file of the certificates.
        path: PathBuf,
    },
    /// The file of the key cannot be read.
    #[error("cannot read a private key from {path}: {cause}")]
    Key {
        /// The file of the private key.
        path: PathBuf,
        /// What the decoder says.
        cause: pem::Error,
    },
    /// Others can read the key.
    #[error(transparent)]
    OpenKey(#[from] OpenKey),
    /// The authorities for clients' certificates cannot be used.
    #[error("cannot check clients' certificates against {path}: {cause}")]
    Authorities {
        /// The file of the authorities.
        path: PathBuf,
        /// What the verifier says.
        cause: VerifierBuilderError,
    },
    /// One of these authorities is no certificate that can be used.
    #[error("{path} has a certificate that cannot be used as an authority: {cause}")]
    Authority {
        /// The file of the authorities.
        path: PathBuf,
        /// Why the certificate is no authority's.
        cause: rustls::Error,
    },
    /// They were read, but cannot be used.
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

impl Tls {
    /// Reads a chain of certificates, the server's own first, and its private key, both in PEM
    /// form. With `authorities`, clients may also show certificates, which these must have signed.
    ///
    /// # Errors
    /// When they cannot be read, or do not belong together.
    pub fn from_files(certificates: &Path, key: &Path, authorities: Option<&Path>) -> Result<Self, TlsError> {
        let chain = read_certificates(certificates)?;
        let end_point = chain.first().ok_or_else(|| TlsError::NoCertificate { path: certificates.to_owned() })?;
        let end_point = end_point_hash(end_point).map(Arc::from);
        private::check_key(key)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|cause| TlsError::Key { path: key.to_owned(), cause })?;
        let provider = Arc::new(default_provider());
        let builder =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let builder = match authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let unusable = |cause| TlsError::Authorities { path: path.to_owned(), cause };
                let mut roots = RootCertStore::empty();
                for certificate in read_certificates(path)? {
                    let refused = |cause| TlsError::Authority { path: path.to_owned(), cause };
                    roots.add(certificate).map_err(refused)?;
                }
                // A client without a certificate may have a password.
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.allow_unauthenticated().build().map_err(unusable)?)
            }
        };
        let mut config = builder.with_single_cert(chain, key)?;
        // Sessions last long and are never resumed.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![ALPN.to_owned()];
        Ok(Self { config: Arc::new(config), end_point })
    }

    pub(crate) fn accept(&self) -> Result<ServerConnection, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.config))
    }

    /// Whether the client has said inside TLS that it speaks this protocol.
    pub(crate) fn is_agreed(connection: &Connection) -> bool {
        connection.alpn_protocol() == Some(ALPN)
    }

    /// The common name of the certificate that the client has shown; empty where it has none. It
    /// was signed by one of the authorities, or the connection would have failed.
    pub(crate) fn client_name(connection: &Connection) -> Option<String> {
        let certificate = connection.peer_certificates()?.first()?;
        Some(common_name(certificate).unwrap_or_default())
    }

    /// What has been agreed on.
    pub(crate) fn encryption(connection: &Connection) -> Encryption {
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "unknown",
        };
        let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
        let (cipher, bits) = match suite.unwrap_or(CipherSuite::Unknown(0)) {
            CipherSuite::TLS13_AES_256_GCM_SHA384 => ("TLS_AES_256_GCM_SHA384", 256),
            CipherSuite::TLS13_AES_128_GCM_SHA256 => ("TLS_AES_128_GCM_SHA256", 128),
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => ("TLS_CHACHA20_POLY1305_SHA256", 256),
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => ("ECDHE-ECDSA-AES256-GCM-SHA384", 256),
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => ("ECDHE-ECDSA-AES128-GCM-SHA256", 128),
            CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => ("ECDHE-ECDSA-CHACHA20-POLY1305", 256),
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => ("ECDHE-RSA-AES256-GCM-SHA384", 256),
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => ("ECDHE-RSA-AES128-GCM-SHA256", 128),
            CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => ("ECDHE-RSA-CHACHA20-POLY1305", 256),
            other => (other.as_str().unwrap_or("unknown"), 0),
        };
        Encryption { version, cipher, bits }
    }

    pub(crate) fn end_point(&self) -> Option<&[u8]> {
        self.end_point.as_deref()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |cause| TlsError::Certificates { path: path.to_owned(), cause };
    let chain = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(chain)
}

/// The first common name of a certificate's subject, if it is text.
fn common_name(certificate: &[u8]) -> Option<String> {
    const SEQUENCE: u8 = 0x30;
    const SET: u8 = 0x31;
    const OBJECT_ID: u8 = 0x06;
    const VERSION: u8 = 0xa0;
    /// The object identifier 2.5.4.3.
    const COMMON_NAME: &[u8] = &[0x55, 4, 3];
    const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
    let (certificate, _) = element(SEQUENCE, certificate)?;
    let (body, _) = element(SEQUENCE, certificate)?;
    let rest = element(VERSION, body).map_or(body, |(_, rest)| rest);
    // Number, algorithm, issuer, validity.
    let (_, rest) = element(0x02, rest)?;
    let (_, rest) = element(SEQUENCE, rest)?;
    let (_, rest) = element(SEQUENCE, rest)?;
    let (_, rest) = element(SEQUENCE, rest)?;
    let (mut subject, _) = element(SEQUENCE, rest)?;
    while let Some((mut set, after)) = element(SET, subject) {
        while let Some((attribute, others)) = element(SEQUENCE, set) {
            let (kind, value) = element(OBJECT_ID, attribute)?;
            if kind == COMMON_NAME {
                let (text, _) = element(*value.first().filter(|tag| TEXTS.contains(tag))?, value)?;
                let text = std::str::from_utf8(text).ok()?;
                // Other programs ignore what follows a zero byte.
                return (!text.contains('\0')).then(|| text.to_owned());
            }
            set = others;
        }
        subject = after;
    }
    None
}

/// The hash of a certificate by the function of its own signature, SHA-256 in place of weaker ones
/// (RFC 5929). A signature that names no function has none.
fn end_point_hash(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = signature_hash(certificate)?;
    Some(digest(algorithm, certificate).as_ref().to_vec())
}

fn signature_hash(certificate: &[u8]) -> Option<&'static Algorithm> {
    const SEQUENCE: u8 = 0x30;
    const OBJECT_ID: u8 = 0x06;
    let (certificate, _) = element(SEQUENCE, certificate)?;
    let (_, after_body) = element(SEQUENCE, certificate)?;
    let (algorithm, _) = element(SEQUENCE, after_body)?;
    let (object_id, _) = element(OBJECT_ID, algorithm)?;
    // 1.2.840.113549.1.1.x: RSA; 1.2.840.10045.4.x: ECDSA.
    match object_id {
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4 | 5 | 11] | [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1] => Some(&SHA256),
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12] => Some(&SHA384),
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13] => Some(&SHA512),
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2] => Some(&SHA256),
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3] => Some(&SHA384),
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4] => Some(&SHA512),
        _ => None,
    }
}

/// The first element of DER, which must have this tag: its contents, and what follows it.
fn element(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[found, length], mut rest) = der.split_first_chunk()?;
    if found != tag {
        return None;
    }
    let length = match length {
        short @ 0..0x80 => usize::from(short),
        long => {
            let (bytes, after) =
                rest.split_at_checked(usize::from(long & 0x7f)).filter(|(bytes, _)| bytes.len() <= 4)?;
            rest = after;
            bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
        }
    };
    rest.split_at_checked(length)
}

/// What rustls found wrong, as an error of input and output.
pub(crate) fn broken(cause: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate as far as its signature's function: a body, and this object id.
    fn certificate(object_id: &[u8]) -> Vec<u8> {
        let wrap = |tag, contents: &[u8]| [&[tag, u8::try_from(contents.len()).unwrap()], contents].concat();
        let body = [&[0x30, 0x81, 0x80][..], &[0; 0x80]].concat();
        let algorithm = wrap(0x30, &wrap(0x06, object_id));
        let contents = [body, algorithm, vec![3, 1, 0]].concat();
        [&[0x30, 0x82, 0, u8::try_from(contents.len()).unwrap()], &contents[..]].concat()
    }

    #[test]
    fn the_hash_is_that_of_the_signature_unless_it_is_weak() {
        const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
        const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4];
        let bytes = |prefix, rest: &[u8]| end_point_hash(&certificate(&[prefix, rest].concat())).map(|hash| hash.len());
        let cases = [
            (RSA, &[4][..], Some(32)),
            (RSA, &[5], Some(32)),
            (RSA, &[11], Some(32)),
            (RSA, &[12], Some(48)),
            (RSA, &[13], Some(64)),
            (ECDSA, &[1], Some(32)),
            (ECDSA, &[3, 2], Some(32)),
            (ECDSA, &[3, 3], Some(48)),
            (ECDSA, &[3, 4], Some(64)),
            // PSS and Ed25519 do not name a function.
            (RSA, &[10], None),
            (&[0x2b, 0x65], &[0x70], None),
        ];
        for (prefix, rest, expected) in cases {
            assert_eq!(bytes(prefix, rest), expected, "{prefix:?} {rest:?}");
        }
    }

    #[test]
    fn the_common_name_of_a_certificate() {
        let named = |name: &str| {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(rcgen::DnType::OrganizationName, "an organization");
            if !name.is_empty() {
                params.distinguished_name.push(rcgen::DnType::CommonName, name);
            }
            let made = params.self_signed(&key).unwrap();
            common_name(made.der())
        };
        assert_eq!(named("ann").as_deref(), Some("ann"));
        assert_eq!(named("\u{c4}nne").as_deref(), Some("\u{c4}nne"));
        assert_eq!(named("ann\0.example").as_deref(), None);
        assert_eq!(named(""), None);
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let der = made.cert.der().to_vec();
        for end in 0..der.len() {
            let _ = common_name(&der[..end]);
        }
        for at in 0..der.len().min(300) {
            for byte in [0, 0x30, 0x31, 0x7f, 0x80, 0x84, 0xff] {
                let mut broken = der.clone();
                broken[at] = byte;
                let _ = common_name(&broken);
            }
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_hash() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let der = made.cert.der();
        assert_eq!(end_point_hash(der).map(|hash| hash.len()), Some(32));
        for end in 0..der.len() {
            assert_eq!(end_point_hash(&der[..end]), None, "{end}");
        }
        let mut broken = der.to_vec();
        for at in 0..100 {
            for byte in [0, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                broken[at] = byte;
                // Whatever it is, it does not fall.
                let _ = end_point_hash(&broken);
            }
            broken[at] = der[at];
        }
    }
}
