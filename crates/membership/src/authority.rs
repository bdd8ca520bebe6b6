//! The key that signs for a cluster.

use std::time::{Duration, SystemTime};

use freshet_base::ClusterId;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm,
};
use rustls::pki_types::CertificateDer;

use crate::{Identity, credentials::CredentialsError};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// So long a certificate is valid from when it is signed. The authority's own has no end: it is
/// replaced.
pub const LIFETIME: Duration = DAY.saturating_mul(365);
/// And so long before, since another node's clock may be behind.
pub const TOLERANCE: Duration = DAY.saturating_mul(7);

/// A cluster's authority: certificate and key.
pub struct Authority {
    certificate: String,
    key: KeyPair,
}

/// A new key that is to be certified. The private half stays here.
pub struct NewKey(KeyPair);

/// The public half of another node's key: a point of the curve P-256, not compressed.
struct PublicKey(Vec<u8>);

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl NewKey {
    /// Makes one.
    ///
    /// # Errors
    /// When the system's random source failed.
    pub fn generate() -> Result<Self, CredentialsError> {
        Ok(Self(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?))
    }

    /// The key in PEM form.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn from_pem(key: &str) -> Result<Self, CredentialsError> {
        Ok(Self(KeyPair::from_pem(key)?))
    }

    /// The public half, which the authority certifies.
    pub fn public(&self) -> Vec<u8> {
        self.0.public_key_raw().to_vec()
    }

    /// The private key in PEM form. Secret.
    pub fn to_pem(&self) -> String {
        self.0.serialize_pem()
    }
}

/// Behind the generation in the names of an authority's certificate.
const GENERATION: &str = ".generation.freshet";

/// The subject of every authority's certificate. Only the chain depends on it.
fn subject() -> CertificateParams {
    let mut subject = CertificateParams::default();
    subject.distinguished_name = rcgen::DistinguishedName::new();
    subject.distinguished_name.push(DnType::OrganizationName, "Freshet cluster authority");
    subject.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    subject.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    subject
}

impl Authority {
    /// Makes one for a cluster. `generation` counts the cluster's authorities.
    ///
    /// # Errors
    /// When the system's random source failed.
    pub fn new(cluster: ClusterId, generation: u64) -> Result<Self, CredentialsError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut own = subject();
        // For people who look at it; certificates that it issues name the organization alone.
        let names = [format!("{cluster}.cluster.freshet"), format!("{generation}{GENERATION}")];
        own.subject_alt_names = names.map(|name| rcgen::SanType::DnsName(name.try_into().expect("it is ASCII"))).into();
        let certificate = own.self_signed(&key)?.pem();
        Ok(Self { certificate, key })
    }

    /// An authority from its certificate and key, both in PEM form.
    ///
    /// # Errors
    /// When `key` is not a key.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, CredentialsError> {
        Ok(Self { certificate: certificate.to_owned(), key: KeyPair::from_pem(key)? })
    }

    /// The generation in the certificate of an authority that Freshet has made.
    pub(crate) fn generation_in(certificate: &CertificateDer<'_>) -> Option<u64> {
        let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
        certificate.valid_dns_names().find_map(|name| name.strip_suffix(GENERATION)?.parse().ok())
    }

    /// Its certificate in PEM form.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Its key in PEM form. Secret.
    pub fn key(&self) -> String {
        self.key.serialize_pem()
    }

    /// Signs that the holder of the key whose public half is `public` is `identity`. Returns the
    /// certificate in PEM form. It is valid for [`LIFETIME`], and from [`TOLERANCE`] before.
    ///
    /// # Errors
    /// [`CredentialsError::PublicKey`] when `public` is not a public key.
    pub fn issue(&self, identity: Identity, public: &[u8]) -> Result<String, CredentialsError> {
        if public.len() != 65 || public[0] != 4 {
            return Err(CredentialsError::PublicKey);
        }
        let mut certificate = CertificateParams::new(identity.names())?;
        certificate.distinguished_name = rcgen::DistinguishedName::new();
        certificate.distinguished_name.push(DnType::CommonName, identity.to_string());
        let now = SystemTime::now();
        certificate.not_before = now.checked_sub(TOLERANCE).unwrap_or(SystemTime::UNIX_EPOCH).into();
        certificate.not_after = (now + LIFETIME).into();
        certificate.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        certificate.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let issuer = Issuer::new(subject(), &self.key);
        Ok(certificate.signed_by(&PublicKey(public.to_vec()), &issuer)?.pem())
    }
}

/// Without the key.
impl std::fmt::Debug for NewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewKey").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}
