//! How a node's certificate is followed by another, for the same key, while the node runs: before
//! it ends, and when the cluster has another authority.

use rustls::pki_types::{CertificateDer, UnixTime};

use freshet_base::{NodeId, Term};

use crate::{
    Credentials, CredentialsError, Enrolled, EnrolmentError, Identity, LIFETIME, OnRecord, Part,
    admission::{Counts, key_in},
    authority::{Authority, NewKey},
    credentials::{Pem, Shown, received},
    token::Fingerprint,
    validity,
};

/// The length of an uncompressed point of the curve P-256, with which a public key ends.
const POINT: usize = 65;

impl Credentials {
    /// The cluster has this on record, from now on.
    pub fn know(&self, record: OnRecord) {
        self.0.admission.know(record);
    }

    /// Which set on record says that an operator has removed this node, if one does: the term that
    /// wrote it, whose that was, and the set's number.
    pub fn removal_of(&self, node: NodeId) -> Option<(Term, NodeId, u64)> {
        self.0.admission.removal_of(node)
    }

    /// The key with which `node` was accepted last, or this node's own.
    pub fn key_of(&self, node: NodeId) -> Option<Fingerprint> {
        let identity = self.identity();
        if identity.id() != Some(node) {
            return self.0.admission.key_of(node);
        }
        self.shown().chain.first().and_then(key_in).map(|key| identity.fingerprint_of_key(&key))
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
        let Some(valid) = shown.chain.first().and_then(validity::of).filter(|_| shown.counts != Counts::Always) else {
            return false;
        };
        let now = UnixTime::now().as_secs();
        valid.from > now || valid.until < now.saturating_add(LIFETIME.as_secs() / 2)
    }

    /// What their holder is.
    pub fn part(&self) -> Part {
        match self.identity() {
            Identity::Archive(_) => Part::Archive,
            _ => Part::Node,
        }
    }

    /// Whether these can sign, for themselves too.
    pub fn can_sign(&self) -> bool {
        self.shown().authority.is_some()
    }

    /// Those of the same holder as an archive, which can sign nothing, signed by the own authority
    /// for the same key. Writes nothing.
    ///
    /// # Errors
    /// [`CredentialsError`].
    pub fn as_archive(&self) -> Result<Self, CredentialsError> {
        let shown = self.shown();
        let Some(authority) = &shown.authority else { return Err(CredentialsError::Nameless) };
        let public = NewKey::from_pem(&shown.pem.key)?.public();
        let certificate = authority.issue(Identity::Archive(self.node()?), &public)?;
        Self::assemble(self.cluster(), received(), Pem { certificate, authority_key: None, ..shown.pem.clone() })
    }

    /// Has the own authority sign once more for the own key; an archive's has no key, and other
    /// nodes do it ([`Credentials::certify_again`]). Blocks on the disk.
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
        if shown.counts != self.shown().counts {
            // Who has a token of the authority before need not be welcome any more.
            self.forget_tokens();
        }
        self.show(shown);
        Ok(())
    }

    /// Whether there may be a certificate for this one.
    pub(crate) fn check_belongs(&self, identity: Identity) -> Result<(), EnrolmentError> {
        match identity.id() {
            Some(node) if !self.0.admission.may_be_signed_for(node) => Err(EnrolmentError::Removed(node)),
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
        let identity = Identity::of(certificate).filter(|identity| identity.id().is_some());
        let (Some(identity), Some(key)) = (identity, key_in(certificate)) else {
            return Err(CredentialsError::Nameless.into());
        };
        self.check_belongs(identity)?;
        let public = &key[key.len().saturating_sub(POINT)..];
        let certificate = authority.issue(identity, public)?;
        let authority_key = identity.gets_key().then(|| authority.key());
        let authority = shown.pem.authority.clone();
        Ok(Enrolled { cluster: self.cluster(), identity, certificate, authority, authority_key })
    }

    /// Takes what another node has answered by [`Credentials::certify_again`], if the authority
    /// counts, and these are not by it already or are due. Durable when this returns. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// [`CredentialsError`]: then nothing has changed.
    pub fn take_certificate(&self, certified: Enrolled) -> Result<(), CredentialsError> {
        let _alone = self.0.replacing.lock().expect("no code panics under this mutex");
        if self.is_current() && !self.are_due() {
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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, time::Duration};

    use freshet_base::ClusterId;

    use super::*;
    use crate::{Enrolment, Files, Grant, Part, TOLERANCE};

    const CLUSTER: ClusterId = ClusterId(7);

    fn member(of: &Credentials, node: u64) -> Credentials {
        let key = NewKey::generate().unwrap();
        enrolled(of, node, Part::Node, &key)
    }

    fn enrolled(of: &Credentials, node: u64, part: Part, key: &NewKey) -> Credentials {
        let newcomer = Enrolment { public_key: key.public(), node: Some(NodeId(node)), part, secret: None };
        Credentials::enrolled(of.enrol(&newcomer, true).unwrap(), key).unwrap()
    }

    fn own_certificate(of: &Credentials) -> CertificateDer<'static> {
        of.shown().chain[0].clone()
    }

    /// These keys are on record, and no node was removed.
    fn record(generation: u64, authority: Option<Fingerprint>, known: &[&Credentials]) -> OnRecord {
        let key = |of: &&Credentials| (of.node().unwrap(), of.key_of(of.node().unwrap()).unwrap());
        OnRecord { generation, authority, keys: known.iter().map(key).collect(), ..OnRecord::default() }
    }

    /// Whether `server` lets `client` in, by its certificate.
    fn lets_in(server: &Credentials, client: &Credentials) -> bool {
        let (server, client) = (server.server(), client.client());
        let mut server = rustls::ServerConnection::new(server).unwrap();
        let mut client = rustls::ClientConnection::new(client, Credentials::expected()).unwrap();
        let mut wire = Vec::new();
        for _ in 0..4 {
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut std::mem::take(&mut wire).as_slice()).unwrap();
            if server.process_new_packets().is_err() {
                return false;
            }
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut std::mem::take(&mut wire).as_slice()).unwrap();
            if client.process_new_packets().is_err() {
                return false;
            }
        }
        !server.is_handshaking() && !client.is_handshaking()
    }

    #[test]
    fn a_certificate_bears_clocks_that_are_wrong_and_is_renewed_in_time() {
        let own = Credentials::found(CLUSTER, NodeId(1)).unwrap();
        let valid = validity::of(&own_certificate(&own)).unwrap();
        let now = UnixTime::now().as_secs();
        assert!(valid.from <= now - TOLERANCE.as_secs() && valid.until + 60 >= now + LIFETIME.as_secs());
        assert!(!own.are_due() && !own.have_ended());
        own.renew().unwrap();
        assert_eq!(own.key_of(NodeId(1)), record(0, None, &[&own]).keys.get(&NodeId(1)).copied());
    }

    #[test]
    fn an_authority_counts_as_the_record_has_it() {
        let [first, second] = [1, 2].map(|node| Credentials::found_again(CLUSTER, NodeId(node), 3).unwrap());
        let (_, fingerprint) = first.authority().unwrap();
        for (generation, authority, counts) in [
            (0, None, [true; 2]),
            (2, Some([0; 32]), [true; 2]),
            (3, None, [true; 2]),
            (3, Some(fingerprint), [true, false]),
            (4, None, [false; 2]),
        ] {
            let is_current = |credentials: &Credentials| {
                credentials.know(record(generation, authority, &[]));
                credentials.is_current()
            };
            assert_eq!([&first, &second].map(is_current), counts, "{generation} {authority:?}");
        }
    }

    #[test]
    fn a_new_authority_lets_in_those_whose_keys_are_known() {
        let primary = Credentials::found(CLUSTER, NodeId(1)).unwrap();
        let [known, removed, stranger] = [2, 3, 4].map(|node| member(&primary, node));
        let impostor = member(&primary, 2);
        assert!(lets_in(&primary, &stranger));
        let all = record(1, None, &[&primary, &known, &removed]);
        known.know(record(0, None, &[&primary, &known, &removed]));
        primary.know(OnRecord { leaving: BTreeSet::from([NodeId(3)]), ..all.clone() });
        assert!(!primary.is_current());
        assert!(matches!(primary.certify_again(&own_certificate(&known)), Err(EnrolmentError::Replaced)));
        primary.know(OnRecord::default());
        let token = primary.give_token(Grant::Node(None), Duration::from_secs(60)).unwrap();
        primary.know(OnRecord { leaving: BTreeSet::from([NodeId(3)]), ..all.clone() });
        primary.make_authority(1).unwrap();
        // One that has heard nothing of it, in both directions.
        assert!(lets_in(&primary, &known) && lets_in(&known, &primary));
        assert!(!lets_in(&primary, &stranger) && !lets_in(&primary, &impostor));
        assert!(matches!(primary.certify_again(&own_certificate(&removed)), Err(EnrolmentError::Removed(NodeId(3)))));
        let newcomer =
            |node| Enrolment { public_key: NewKey::generate().unwrap().public(), node, part: Part::Node, secret: None };
        assert!(primary.enrol(&newcomer(Some(NodeId(3))), true).is_err());
        let late = Enrolment { secret: Some(token.secret()), ..newcomer(None) };
        assert!(matches!(primary.enrol(&late, false), Err(EnrolmentError::NoToken)));
        let certified = primary.certify_again(&own_certificate(&known)).unwrap();
        known.know(all);
        known.take_certificate(certified).unwrap();
        assert!(known.is_current() && known.authority() == primary.authority());
        assert!(lets_in(&known, &member(&known, 5)));
        // Another's answer, and that of an authority that does not count.
        let other = primary.certify_again(&own_certificate(&stranger)).unwrap();
        assert!(removed.take_enrolled(other, &NewKey::generate().unwrap()).is_err());
    }

    /// What lies in its directory: its key, and certificates. It is known by that key, as what it
    /// is and as nothing else, whatever its holder signs with it.
    #[test]
    fn who_has_what_an_archive_has_is_an_archive_and_signs_nothing() {
        let primary = Credentials::found(CLUSTER, NodeId(1)).unwrap();
        let key = NewKey::generate().unwrap();
        let archive = enrolled(&primary, 2, Part::Archive, &key);
        assert!(!archive.can_sign() && archive.shown().pem.authority_key.is_none());
        let newcomer = Enrolment { public_key: key.public(), node: None, part: Part::Archive, secret: None };
        assert!(matches!(archive.enrol(&newcomer, true), Err(EnrolmentError::NotAuthorised)));
        assert!(matches!(archive.give_token(Grant::Node(None), LIFETIME), Err(EnrolmentError::NotAuthorised)));
        let own = own_certificate(&archive);
        assert!(matches!(archive.certify_again(&own), Err(EnrolmentError::NotAuthorised)));
        assert!(lets_in(&primary, &archive) && !lets_in(&archive, &primary));
        let record = record(1, None, &[&primary, &archive]);
        [&primary, &archive].into_iter().for_each(|who| who.know(record.clone()));
        primary.make_authority(1).unwrap();
        assert!(lets_in(&primary, &archive));
        // By an authority of its own, as a node, for the key that is on record.
        let forger = Authority::new(CLUSTER, 0).unwrap();
        let node = Identity::Node(NodeId(2));
        let forged = Enrolled {
            cluster: CLUSTER,
            identity: node,
            certificate: forger.issue(node, &key.public()).unwrap(),
            authority: forger.certificate().to_owned(),
            authority_key: Some(forger.key()),
        };
        assert!(!lets_in(&primary, &Credentials::enrolled(forged, &key).unwrap()));
        let certified = primary.certify_again(&own).unwrap();
        assert_eq!((certified.identity, &certified.authority_key), (Identity::Archive(NodeId(2)), &None));
        archive.take_certificate(certified).unwrap();
        assert!(archive.is_current() && !archive.can_sign() && archive.authority() == primary.authority());
        // One that had the key, and is an archive from now on.
        let before = member(&primary, 3);
        let after = before.as_archive().unwrap();
        assert!(!after.can_sign() && after.identity() == Identity::Archive(NodeId(3)) && lets_in(&primary, &after));
    }

    /// Between any two steps of it there are credentials in the directory: the earlier, or these.
    #[test]
    fn a_crash_leaves_the_credentials_of_before_or_those_of_now() {
        for (half, moved) in [(true, false), (false, false), (false, true)] {
            let place = tempfile::tempdir().unwrap();
            let path = |name: &str| place.path().join(name);
            let own = Credentials::found(CLUSTER, NodeId(1)).unwrap();
            own.write(place.path()).unwrap();
            let read = || Credentials::read(&Files::in_directory(place.path()), CLUSTER).unwrap().authority();
            let before = read();
            // What is to come is being written, is written, or about to come in their place.
            fs::create_dir(path("other")).unwrap();
            Credentials::found(CLUSTER, NodeId(1)).unwrap().write(&path("other")).unwrap();
            fs::rename(path("other/membership"), path("membership.new")).unwrap();
            if half {
                fs::remove_file(path("membership.new/node.key")).unwrap();
            }
            if moved {
                fs::rename(path("membership"), path("membership.old")).unwrap();
            }
            assert!(Files::in_directory(place.path()).exist());
            assert_eq!(read(), before);
            own.make_authority(1).unwrap();
            assert_eq!(read(), own.authority());
            assert_ne!(read(), before);
            assert!(!path("membership.old").exists() && !path("membership.new").exists());
        }
    }
}
