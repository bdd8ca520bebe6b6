//! Whom a node lets in, and whom it believes: what TLS asks of certificates.
//!
//! The cluster has on record ([`OnRecord`]) which authority counts. A certificate is accepted if
//! that authority has signed it, or if it is for a key that is on record for the node that it
//! names, whichever authority signed it. So when a cluster gets another authority, because a node
//! was removed that has the key of the one before, each node is still known by its own key: one
//! that is away then comes back later. What the removed node signs counts nowhere: it has the
//! private key of no other node.
//!
//! A node takes the record over from its log as soon as it notes that. A node that has not noted it
//! yet accepts what it has accepted before.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{PoisonError, RwLock},
};

use freshet_base::{
    NodeId, Term,
    sync::{Arc, Mutex},
};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

use crate::{Identity, token::Fingerprint, validity};

/// No more keys of nodes that were met are remembered.
const MET: usize = 256;

/// What a cluster has on record of authorities and keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnRecord {
    /// Counts the cluster's authorities.
    pub generation: u64,
    /// The fingerprint of the authority of this generation, if it has been made.
    pub authority: Option<Fingerprint>,
    /// The keys by which nodes and archives are known.
    pub keys: BTreeMap<NodeId, Fingerprint>,
    /// The set that is on record: the term that wrote it, whose that was, and the set's number.
    pub set: Option<(Term, NodeId, u64)>,
    /// The nodes that an operator has removed: none answers them.
    pub removed: BTreeSet<NodeId>,
    /// The nodes that an operator removes, and whose answers may count until that is in effect:
    /// nothing is signed for them any more.
    pub leaving: BTreeSet<NodeId>,
}

/// What a node knows of others, for all its connections.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    record: RwLock<OnRecord>,
    /// The keys of nodes that were accepted, the last of them last.
    met: Mutex<Vec<(NodeId, Fingerprint)>>,
}

impl Admission {
    pub fn know(&self, record: OnRecord) {
        *self.record.write().unwrap_or_else(PoisonError::into_inner) = record;
    }

    fn read<T>(&self, read: impl FnOnce(&OnRecord) -> T) -> T {
        read(&self.record.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn removal_of(&self, node: NodeId) -> Option<(Term, NodeId, u64)> {
        self.read(|record| record.set.filter(|_| record.removed.contains(&node)))
    }

    pub fn knows(&self, node: NodeId, key: &Fingerprint) -> bool {
        self.read(|record| record.keys.get(&node) == Some(key))
    }

    pub fn may_be_signed_for(&self, node: NodeId) -> bool {
        self.read(|record| !record.removed.contains(&node) && !record.leaving.contains(&node))
    }

    /// The key with which `node` was accepted last.
    pub fn key_of(&self, node: NodeId) -> Option<Fingerprint> {
        let met = self.met.lock().expect("no code panics under this mutex");
        met.iter().find(|(known, _)| *known == node).map(|(_, key)| *key)
    }

    fn met(&self, node: NodeId, key: Fingerprint) {
        let mut met = self.met.lock().expect("no code panics under this mutex");
        if met.last() == Some(&(node, key)) {
            return;
        }
        met.retain(|(known, _)| *known != node);
        if met.len() >= MET {
            met.remove(0);
        }
        met.push((node, key));
    }
}

/// An authority, by which a certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// It always counts: the operator answers for it, or its holder has no part in the record.
    Always,
    /// This one counts as the record says.
    OnRecord { generation: u64, fingerprint: Fingerprint },
}

impl Counts {
    /// Whether what this authority has signed counts.
    pub fn by(self, admission: &Admission) -> bool {
        let Self::OnRecord { generation, fingerprint } = self else { return true };
        admission.read(|record| {
            let is_it = record.authority.is_none_or(|authority| authority == fingerprint);
            generation > record.generation || generation == record.generation && is_it
        })
    }
}

/// Checks certificates by an authority, and by the keys on record.
#[derive(Debug)]
pub(crate) struct Verifier<V: ?Sized> {
    admission: Arc<Admission>,
    counts: Counts,
    /// Whether the authority has signed a certificate.
    signed: Arc<V>,
}

/// The key that a certificate is for.
pub(crate) fn key_in(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    Some(certificate.subject_public_key_info().to_vec())
}

impl<V: ?Sized> Verifier<V> {
    /// Where `signed` says what an authority has signed that `counts`.
    pub fn new(admission: &Arc<Admission>, counts: Counts, signed: Arc<V>) -> Arc<Self> {
        Arc::new(Self { admission: Arc::clone(admission), counts, signed })
    }

    fn check<T>(
        &self,
        certificate: &CertificateDer<'_>,
        now: UnixTime,
        by_key: T,
        by_authority: impl FnOnce(&V) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let known = match Identity::of(certificate) {
            Some(identity) => {
                identity.id().and_then(|node| key_in(certificate).map(|key| (node, identity.fingerprint_of_key(&key))))
            }
            None => None,
        };
        let on_record = || known.is_some_and(|(node, key)| self.admission.knows(node, &key));
        let checked = match self.counts.by(&self.admission) {
            true => by_authority(&self.signed),
            // An authority of before.
            false => Err(Error::InvalidCertificate(CertificateError::Revoked)),
        };
        let checked = match checked {
            Err(_) if on_record() => match validity::of(certificate) {
                Some(valid) if valid.until <= now.as_secs() => Err(CertificateError::Expired.into()),
                _ => Ok(by_key),
            },
            checked => checked,
        };
        if let (Ok(_), Some((node, key))) = (&checked, known) {
            self.admission.met(node, key);
        }
        checked
    }
}

impl ClientCertVerifier for Verifier<dyn ClientCertVerifier> {
    /// A caller without a certificate can ask for one, and for nothing else.
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let by_key = ClientCertVerified::assertion();
        self.check(end_entity, now, by_key, |signed| signed.verify_client_cert(end_entity, intermediates, now))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

impl ServerCertVerifier for Verifier<WebPkiServerVerifier> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let by_key = ServerCertVerified::assertion();
        self.check(end_entity, now, by_key, |signed| {
            signed.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
