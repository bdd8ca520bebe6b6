//! A node's certificate, its key and its cluster's authority: on disk, and as TLS configurations.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
    time::{Duration, Instant},
};

use freshet_base::{
    ClusterId, NodeId,
    private::{self, OpenKey},
    sync::Arc,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider,
        ring::{
            cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256},
            default_provider,
        },
    },
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    version::TLS13,
};
use thiserror::Error;

use crate::{
    authority::{Authority, NewKey},
    identity::{Identity, NODE},
    token::{Enrolled, Enrolment, EnrolmentError, Grant, Token, Tokens, fingerprint},
    validity,
};

/// Why there are no credentials.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// A file cannot be read or written.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// What the process tried to do, as a verb.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{} holds no {what} in PEM form: {why}", .path.display())]
    Pem {
        /// The file that was read.
        path: PathBuf,
        /// What the file should hold: a certificate, or a private key.
        what: &'static str,
        /// What the decoder says.
        why: String,
    },
    /// Others can read the private key.
    #[error(transparent)]
    OpenKey(#[from] OpenKey),
    /// A certificate that was read or received names no node.
    #[error(
        "the certificate names no node: among its alternative names must be one of kind DNS of the form \
         <16 hexadecimal digits>.{NODE}, and {NODE}"
    )]
    Nameless,
    /// The certificate is that of another node.
    #[error("the certificate is that of node {found}, but this is node {expected}")]
    OtherNode {
        /// The node that the certificate names.
        found: NodeId,
        /// This node.
        expected: NodeId,
    },
    /// What is to be certified is not a public key.
    #[error("the key to certify is not a public key of curve P-256")]
    PublicKey,
    /// Certificate, key and authority do not belong together.
    #[error("certificate, key and authority cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// The authority's certificate can verify nothing.
    #[error("the authority's certificate cannot be used: {0}")]
    Authority(#[from] rustls::server::VerifierBuilderError),
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Generate(#[from] rcgen::Error),
    /// The system has no randomness.
    #[error("the system's random source failed")]
    NoRandomness,
    /// Too many tokens are unused.
    #[error("{0} unused tokens are outstanding: wait until they expire")]
    TooManyTokens(usize),
}

/// The files in which a node's credentials lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The node's certificate, and the intermediate ones up to the authority's.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority's certificate.
    pub authority: PathBuf,
    /// The authority's private key, if this node may sign.
    pub authority_key: Option<PathBuf>,
}

/// The folder in a node's directory.
const FOLDER: &str = "membership";

impl Files {
    /// Those that Freshet keeps in a node's directory.
    pub fn in_directory(directory: &Path) -> Self {
        let folder = directory.join(FOLDER);
        Self {
            certificate: folder.join("node.crt"),
            key: folder.join("node.key"),
            authority: folder.join("authority.crt"),
            authority_key: Some(folder.join("authority.key")),
        }
    }

    /// Whether there is a certificate at its place: the node was enrolled.
    pub fn exist(&self) -> bool {
        self.certificate.exists()
    }
}

/// The certificate that a node shows, and the authority by which it checks others. Cheap to clone.
#[derive(Clone)]
pub struct Credentials(Arc<Inner>);

struct Inner {
    cluster: ClusterId,
    identity: Identity,
    shown: RwLock<Arc<Shown>>,
    tokens: Tokens,
}

/// What can be replaced by something newer.
struct Shown {
    /// The certificate, and those between it and the authority's.
    chain: Vec<CertificateDer<'static>>,
    /// Whether the chain ends in the authority, now, as one who is connected to sees it.
    verifier: Arc<WebPkiServerVerifier>,
    authority_certificate: CertificateDer<'static>,
    authority: Option<Authority>,
    certificate: String,
    key: String,
    authority_pem: String,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials(of {})", self.0.identity)
    }
}

/// TLS 1.3 with the cheapest cipher first: 128 bits are enough for what goes over a wire.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256],
        ..default_provider()
    })
}

fn certificates(pem: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let failed = |why: String| CredentialsError::Pem { path: path.to_owned(), what: "certificate", why };
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| failed(error.to_string()))?;
    if found.is_empty() { Err(failed("there is none".into())) } else { Ok(found) }
}

fn private_key(pem: &str, path: &Path) -> Result<PrivateKeyDer<'static>, CredentialsError> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| CredentialsError::Pem {
        path: path.to_owned(),
        what: "private key",
        why: error.to_string(),
    })
}

/// Stands in errors for the path of what did not come from a file.
fn received() -> &'static Path {
    Path::new("what was received")
}

impl Credentials {
    /// Credentials for the first node of a cluster, with a new authority.
    ///
    /// # Errors
    /// When the system's random source failed.
    pub fn found(cluster: ClusterId, node: NodeId) -> Result<Self, CredentialsError> {
        let authority = Authority::new(cluster)?;
        let key = NewKey::generate()?;
        let identity = Identity::Node(node);
        let certificate = authority.issue(identity, &key.public())?;
        let (authority, authority_key) = (authority.certificate().to_owned(), Some(authority.key()));
        Self::enrolled(Enrolled { cluster, identity, certificate, authority, authority_key }, &key)
    }

    /// Credentials that a member has signed, with the key for which it did so.
    ///
    /// # Errors
    /// [`CredentialsError`] when they do not fit.
    pub fn enrolled(enrolled: Enrolled, key: &NewKey) -> Result<Self, CredentialsError> {
        let Enrolled { cluster, identity, certificate, authority, authority_key } = enrolled;
        Self::assemble(cluster, received(), certificate, key.to_pem(), authority, authority_key)
            .and_then(|it| if it.identity() == identity { Ok(it) } else { Err(CredentialsError::Nameless) })
    }

    /// Reads them. Blocks on the disk.
    ///
    /// # Errors
    /// [`CredentialsError`].
    pub fn read(files: &Files, cluster: ClusterId) -> Result<Self, CredentialsError> {
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|source| CredentialsError::Io {
                doing: "read",
                path: path.to_owned(),
                source,
            })
        };
        private::check_key(&files.key)?;
        let (certificate, key, authority) = (read(&files.certificate)?, read(&files.key)?, read(&files.authority)?);
        let authority_key = files.authority_key.as_deref().filter(|path| path.exists()).map(read).transpose()?;
        Self::assemble(cluster, &files.certificate, certificate, key, authority, authority_key)
    }

    fn assemble(
        cluster: ClusterId,
        path: &Path,
        certificate: String,
        key: String,
        authority_pem: String,
        authority_key: Option<String>,
    ) -> Result<Self, CredentialsError> {
        let own = certificates(&certificate, path)?;
        let mut chain = own.clone();
        let identity = Identity::of(&chain[0]).ok_or(CredentialsError::Nameless)?;
        let authority_certificate = certificates(&authority_pem, path)?.swap_remove(0);
        let authority = authority_key.map(|key| Authority::from_pem(&authority_pem, &key)).transpose()?;
        let mut roots = RootCertStore::empty();
        roots.add(authority_certificate.clone())?;
        let roots = Arc::new(roots);
        let checks = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider()).build()?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider());
        // A caller without a certificate can ask for one, and for nothing else.
        let verifier = verifier.allow_unauthenticated().build()?;
        let client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain.clone(), private_key(&key, path)?)?;
        // A newcomer knows the authority by its fingerprint only.
        chain.push(authority_certificate.clone());
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, private_key(&key, path)?)?;
        // Connections last long and are never resumed.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let shown = Shown {
            chain: own,
            verifier: checks,
            authority_certificate,
            authority,
            certificate,
            key,
            authority_pem,
            server: Arc::new(server),
            client: Arc::new(client),
        };
        let (shown, tokens) = (RwLock::new(Arc::new(shown)), Tokens::default());
        Ok(Self(Arc::new(Inner { cluster, identity, shown, tokens })))
    }

    fn shown(&self) -> Arc<Shown> {
        Arc::clone(&self.0.shown.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether `newer` can come in place of these.
    ///
    /// # Errors
    /// [`CredentialsError`] when they are another holder's, or others would not accept them now.
    pub fn fits(&self, newer: &Self) -> Result<(), CredentialsError> {
        if newer.identity() != self.identity() {
            let (Ok(found), Ok(expected)) = (newer.node(), self.node()) else { return Err(CredentialsError::Nameless) };
            return Err(CredentialsError::OtherNode { found, expected });
        }
        let shown = newer.shown();
        let Some((own, between)) = shown.chain.split_first() else { return Err(CredentialsError::Nameless) };
        shown.verifier.verify_server_cert(own, between, &Self::expected(), &[], UnixTime::now())?;
        Ok(())
    }

    /// Shows what `newer` shows from now on, and trusts whom it trusts, on every connection that
    /// is made, with all clones of these. Connections that there are go on. To be
    /// [checked](Self::fits) before.
    pub fn take(&self, newer: &Self) {
        *self.0.shown.write().unwrap_or_else(PoisonError::into_inner) = newer.shown();
    }

    /// Whether the certificate is no longer valid, by this machine's clock.
    pub fn have_ended(&self) -> bool {
        self.expire().is_some_and(|expire| expire <= UnixTime::now().as_secs())
    }

    /// When the certificate, or one between it and the authority's, is no longer valid, in seconds
    /// since 1970; none when none says so.
    pub fn expire(&self) -> Option<u64> {
        self.shown().chain.iter().filter_map(validity::expires).min()
    }

    /// Writes them to a node's directory, durably, and all or none. Blocks on the disk.
    ///
    /// # Errors
    /// [`CredentialsError::Io`].
    pub fn write(&self, directory: &Path) -> Result<(), CredentialsError> {
        let (folder, unfinished) = (directory.join(FOLDER), directory.join("membership.new"));
        let io = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| CredentialsError::Io { doing, path, source }
        };
        match fs::remove_dir_all(&unfinished) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(io("remove", &unfinished)(source));
            }
            _ => {}
        }
        private::create_directory(&unfinished).map_err(io("make", &unfinished))?;
        let shown = self.shown();
        let key = shown.authority.as_ref().map(Authority::key);
        let contents = [
            ("node.crt", Some(&shown.certificate)),
            ("node.key", Some(&shown.key)),
            ("authority.crt", Some(&shown.authority_pem)),
            ("authority.key", key.as_ref()),
        ];
        for (name, content) in contents {
            let Some(content) = content else { continue };
            let path = unfinished.join(name);
            let written = private::create(&path).and_then(|mut file| {
                file.write_all(content.as_bytes())?;
                file.sync_all()
            });
            written.map_err(io("write", &path))?;
        }
        let sync = |path: &Path| File::open(path).and_then(|folder| folder.sync_all()).map_err(io("sync", path));
        sync(&unfinished)?;
        match fs::remove_dir_all(&folder) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(io("replace", &folder)(source)),
            _ => {}
        }
        fs::rename(&unfinished, &folder).map_err(io("name", &folder))?;
        sync(directory)
    }

    /// Who the certificate says that its holder is.
    pub fn identity(&self) -> Identity {
        self.0.identity
    }

    /// The node that holds them.
    ///
    /// # Errors
    /// [`CredentialsError::Nameless`] when the holder is not a node.
    pub fn node(&self) -> Result<NodeId, CredentialsError> {
        match self.0.identity {
            Identity::Node(node) => Ok(node),
            _ => Err(CredentialsError::Nameless),
        }
    }

    /// The cluster to which they belong.
    pub fn cluster(&self) -> ClusterId {
        self.0.cluster
    }

    /// For the side that is connected to.
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.shown().server)
    }

    /// For the side that connects.
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.shown().client)
    }

    /// The name that a client expects in a server's certificate.
    pub fn expected() -> ServerName<'static> {
        ServerName::try_from(NODE).expect("it is a name")
    }

    /// For a newcomer without a certificate, which knows the authority only from its token.
    ///
    /// # Errors
    /// [`CredentialsError::Unusable`].
    pub fn of_newcomer(token: &Token) -> Result<Arc<ClientConfig>, CredentialsError> {
        let verifier = ByFingerprint { authority: token.authority, provider: provider() };
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Arc::new(config))
    }

    /// Gives out a token that may be used once, on this node, until `valid` has passed or the node
    /// restarts.
    ///
    /// # Errors
    /// [`EnrolmentError`] when this node signs nothing.
    pub fn give_token(&self, grant: Grant, valid: Duration) -> Result<Token, EnrolmentError> {
        let shown = self.shown();
        if shown.authority.is_none() {
            return Err(EnrolmentError::NotAuthorised);
        }
        Ok(self.0.tokens.give(&shown.authority_certificate, grant, Instant::now(), valid)?)
    }

    /// Lets a newcomer in. `same_user`: it is on this machine, and of this user.
    ///
    /// # Errors
    /// [`EnrolmentError`].
    pub fn enrol(&self, newcomer: &Enrolment, same_user: bool) -> Result<Enrolled, EnrolmentError> {
        let shown = self.shown();
        let Some(authority) = &shown.authority else { return Err(EnrolmentError::NotAuthorised) };
        let grant = match newcomer.secret {
            Some(secret) => self.0.tokens.take(&secret, Instant::now())?,
            // A process of this user could read the authority's key and sign for itself.
            None if same_user => Grant::Node(newcomer.node),
            None => return Err(EnrolmentError::NoToken),
        };
        let identity = match grant {
            Grant::Client(identity) => identity,
            Grant::Node(Some(node)) => match newcomer.node {
                Some(own) if own != node => return Err(EnrolmentError::Taken(own)),
                _ => Identity::Node(node),
            },
            Grant::Node(None) => match newcomer.node {
                // A newcomer cannot choose an id that another node may have.
                Some(own) => return Err(EnrolmentError::Taken(own)),
                None => Identity::Node(NodeId(random()?)),
            },
        };
        let certificate = authority.issue(identity, &newcomer.public_key)?;
        let authority_key = matches!(identity, Identity::Node(_)).then(|| authority.key());
        let authority = shown.authority_pem.clone();
        Ok(Enrolled { cluster: self.0.cluster, identity, certificate, authority, authority_key })
    }
}

/// A random number. Blocks for the system's randomness.
///
/// # Errors
/// [`CredentialsError::NoRandomness`].
pub fn random() -> Result<u64, CredentialsError> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).map_err(|_| CredentialsError::NoRandomness)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Accepts a server whose chain ends in the authority with this fingerprint.
#[derive(Debug)]
struct ByFingerprint {
    authority: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByFingerprint {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let authority = intermediates.iter().find(|it| fingerprint(it) == self.authority).ok_or(unknown)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider));
        let verifier = verifier.build().map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
