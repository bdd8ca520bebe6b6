//! How a node's certificate is followed by another, for the same key, while the node runs: before
//! it ends, and when the cluster has another authority.

use rustls::pki_types::{CertificateDer, UnixTime};

use freshet_base::NodeId;

use crate::{
    Credentials, CredentialsError, Enrolled, EnrolmentError, Identity, LIFETIME, OnRecord,
    admission::{Counts, key_in},
    authority::{Authority, NewKey},
    credentials::{Pem, Shown, received},
    token::{Fingerprint, fingerprint_of},
    validity,
};

/// The length of an uncompressed point of the curve P-256, with which a public key ends.
const POINT: usize = 65;

impl Credentials {
    /// The cluster has this on record, from now on.
    pub fn know(&self, record: OnRecord) {
        self.0.admission.know(record);
    }

    /// Whether the record says that an operator has removed this node.
    pub fn has_removed(&self, node: NodeId) -> bool {
        self.0.admission.has_removed(node)
    }

    /// The key with which `node` was accepted last, or this node's own.
    pub fn key_of(&self, node: NodeId) -> Option<Fingerprint> {
        if self.identity() != Identity::Node(node) {
            return self.0.admission.key_of(node);
        }
        self.shown().chain.first().and_then(key_in).map(|key| fingerprint_of(&key))
    }

    /// Whether the record, as far as it is known here, has the key of these.
    pub fn are_on_record(&self) -> bool {
        let own = self.node().ok().and_then(|node| Some((node, self.key_of(node)?)));
        own.is_some_and(|(node, key)| self.0.admission.knows(node, &key))
    }

    /// Whether the authority of these is the one that counts, so that it signs for others.
    pub fn is_current(&self) -> bool {
        self.shown().counts.by(&self.0.admission)
    }

    /// Generation and fingerprint of the authority of these; none where this node signs nothing.
    pub fn authority(&self) -> Option<(u64, Fingerprint)> {
        match self.shown().counts {
            Counts::OnRecord { generation, fingerprint } => Some((generation, fingerprint)),
            Counts::Always => None,
        }
    }

    /// Whether the certificate has used up half of its time, by this machine's clock, or is not
    /// valid yet; only of those that Freshet signs.
    pub fn are_due(&self) -> bool {
        let shown = self.shown();
        let Some(valid) = shown.chain.first().and_then(validity::of).filter(|_| shown.authority.is_some()) else {
            return false;
        };
        let now = UnixTime::now().as_secs();
        valid.from > now || valid.until < now.saturating_add(LIFETIME.as_secs() / 2)
    }

    /// Has the own authority sign once more for the own key. Blocks on the disk.
    ///
    /// # Errors
    /// [`CredentialsError`]: then nothing has changed.
    pub fn renew(&self) -> Result<(), CredentialsError> {
        let _alone = self.0.replacing.lock().expect("no code panics under this mutex");
        let shown = self.shown();
        let Some(authority) = &shown.authority else { return Ok(()) };
        self.certify_by(authority, shown.pem.clone())
    }

    /// Makes an authority of this generation, in the place of the own one, and a certificate by it.
    /// Durable when this returns. Blocks on the disk.
    ///
    /// # Errors
    /// [`CredentialsError`]: then nothing has changed.
    pub fn make_authority(&self, generation: u64) -> Result<(), CredentialsError> {
        let _alone = self.0.replacing.lock().expect("no code panics under this mutex");
        let authority = Authority::new(self.cluster(), generation)?;
        let pem = Pem {
            authority: authority.certificate().to_owned(),
            authority_key: Some(authority.key()),
            ..self.shown().pem.clone()
        };
        self.certify_by(&authority, pem)
    }

    fn certify_by(&self, authority: &Authority, pem: Pem) -> Result<(), CredentialsError> {
        let public = NewKey::from_pem(&pem.key)?.public();
        let certificate = authority.issue(self.identity(), &public)?;
        self.replace(Pem { certificate, ..pem })
    }

    fn replace(&self, pem: Pem) -> Result<(), CredentialsError> {
        // It can be used before it is kept.
        let shown = Shown::new(received(), pem, &self.0.admission)?;
        let home = self.0.home.lock().expect("no code panics under this mutex").clone();
        home.map_or(Ok(()), |directory| shown.pem.write(&directory))?;
        self.show(shown);
        Ok(())
    }

    /// Whether there may be a certificate for this one.
    pub(crate) fn check_belongs(&self, identity: Identity) -> Result<(), EnrolmentError> {
        match identity {
            Identity::Node(node) if !self.0.admission.may_be_signed_for(node) => Err(EnrolmentError::Removed(node)),
            _ => Ok(()),
        }
    }

    /// Has the node that has shown this certificate certified by the authority that counts, for the
    /// same key.
    ///
    /// # Errors
    /// [`EnrolmentError`].
    pub fn certify_again(&self, certificate: &CertificateDer<'_>) -> Result<Enrolled, EnrolmentError> {
        let shown = self.shown();
        let Some(authority) = &shown.authority else { return Err(EnrolmentError::NotAuthorised) };
        if !self.is_current() {
            return Err(EnrolmentError::Replaced);
        }
        let (Some(identity @ Identity::Node(_)), Some(key)) = (Identity::of(certificate), key_in(certificate)) else {
            return Err(CredentialsError::Nameless.into());
        };
        self.check_belongs(identity)?;
        let public = &key[key.len().saturating_sub(POINT)..];
        let certificate = authority.issue(identity, public)?;
        let (authority, authority_key) = (shown.pem.authority.clone(), Some(authority.key()));
        Ok(Enrolled { cluster: self.cluster(), identity, certificate, authority, authority_key })
    }

    /// Takes what another node has answered by [`Credentials::certify_again`], if the authority
    /// counts and these are not by it already. Durable when this returns. Blocks on the disk.
    ///
    /// # Errors
    /// [`CredentialsError`]: then nothing has changed.
    pub fn take_certificate(&self, certified: Enrolled) -> Result<(), CredentialsError> {
        let _alone = self.0.replacing.lock().expect("no code panics under this mutex");
        if self.is_current() {
            return Ok(());
        }
        let Enrolled { identity, certificate, authority, authority_key, .. } = certified;
        let pem = Pem { certificate, authority, authority_key, key: self.shown().pem.key.clone() };
        let newer = Self::assemble(self.cluster(), received(), pem.clone())?;
        self.check_own(identity)?;
        self.fits(&newer)?;
        if matches!(newer.shown().counts, Counts::Always) || !newer.shown().counts.by(&self.0.admission) {
            return Err(CredentialsError::Old);
        }
        self.replace(pem)
    }
    /// Takes what a member has signed for a new key of this node, which was a stranger there.
    /// Durable when this returns. Blocks on the disk.
    ///
    /// # Errors
    /// [`CredentialsError`]: then nothing has changed.
    pub fn take_enrolled(&self, enrolled: Enrolled, key: &NewKey) -> Result<(), CredentialsError> {
        let _alone = self.0.replacing.lock().expect("no code panics under this mutex");
        let Enrolled { cluster, identity, certificate, authority, authority_key } = enrolled;
        self.check_own(identity)?;
        if cluster != self.cluster() {
            return Err(CredentialsError::OtherCluster { theirs: cluster, ours: self.cluster() });
        }
        let pem = Pem { certificate, authority, authority_key, key: key.to_pem() };
        self.fits(&Self::assemble(cluster, received(), pem.clone())?)?;
        self.replace(pem)
    }

    fn check_own(&self, identity: Identity) -> Result<(), CredentialsError> {
        if identity == self.identity() { Ok(()) } else { Err(CredentialsError::Nameless) }
    }
}
