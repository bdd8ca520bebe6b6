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
    sync::{Arc, Mutex},
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
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
    admission::{Admission, Counts, Verifier},
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
    /// A member of another cluster has signed.
    #[error("cluster {theirs} has signed a certificate, and this node belongs to cluster {ours}")]
    OtherCluster {
        /// Which.
        theirs: ClusterId,
        /// That of this node.
        ours: ClusterId,
    },
    /// What another node has signed does not count.
    #[error("the other node's authority is not the one that the cluster has on record")]
    Old,
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
    /// The directory in which Freshet keeps them, if it does.
    pub directory: Option<PathBuf>,
}

/// The folder in a node's directory.
const FOLDER: &str = "membership";

impl Files {
    /// Those that Freshet keeps in a node's directory.
    pub fn in_directory(directory: &Path) -> Self {
        let folder = directory.join(FOLDER);
        let authority_key = Some(folder.join("authority.key"));
        Self { authority_key, directory: Some(directory.to_owned()), ..Self::of_operator(&folder) }
    }

    /// Those that an operator provides in `folder`.
    pub fn of_operator(folder: &Path) -> Self {
        let [certificate, key, authority] = ["node.crt", "node.key", "authority.crt"].map(|name| folder.join(name));
        Self { certificate, key, authority, authority_key: None, directory: None }
    }

    /// Whether there is a certificate at its place: the node was enrolled.
    pub fn exist(&self) -> bool {
        self.certificate.exists() || self.directory.as_ref().is_some_and(|directory| aside(directory).exists())
    }
}

/// Where those that are being replaced lie for a moment.
fn aside(directory: &Path) -> PathBuf {
    directory.join("membership.old")
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CredentialsError {
    let path = path.to_owned();
    move |source| CredentialsError::Io { doing, path, source }
}

fn remove_folder(folder: &Path) -> Result<(), CredentialsError> {
    match fs::remove_dir_all(folder) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(io_error("remove", folder)(source)),
        _ => Ok(()),
    }
}

fn sync(path: &Path) -> Result<(), CredentialsError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(io_error("sync", path))
}

/// A crash while they were replaced leaves the earlier ones aside: they are used again.
fn settle(directory: &Path) -> Result<(), CredentialsError> {
    let (folder, aside) = (directory.join(FOLDER), aside(directory));
    if folder.exists() || !aside.exists() {
        return Ok(());
    }
    fs::rename(&aside, &folder).map_err(io_error("name", &folder))?;
    sync(directory)
}

impl Pem {
    /// Writes all of it, durably, into the folder in a node's directory: it is as before, or as it
    /// is to be. Blocks on the disk.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), CredentialsError> {
        let (folder, unfinished, aside) = (directory.join(FOLDER), directory.join("membership.new"), aside(directory));
        settle(directory)?;
        remove_folder(&unfinished)?;
        private::create_directory(&unfinished).map_err(io_error("make", &unfinished))?;
        let contents = [
            ("node.crt", Some(&self.certificate)),
            ("node.key", Some(&self.key)),
            ("authority.crt", Some(&self.authority)),
            ("authority.key", self.authority_key.as_ref()),
        ];
        for (name, content) in contents {
            let Some(content) = content else { continue };
            let path = unfinished.join(name);
            let written = private::create(&path).and_then(|mut file| {
                file.write_all(content.as_bytes())?;
                file.sync_all()
            });
            written.map_err(io_error("write", &path))?;
        }
        sync(&unfinished)?;
        remove_folder(&aside)?;
        match fs::rename(&folder, &aside) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(io_error("replace", &folder)(source));
            }
            _ => {}
        }
        fs::rename(&unfinished, &folder).map_err(io_error("name", &folder))?;
        sync(directory)?;
        remove_folder(&aside)
    }
}

impl Shown {
    /// What comes of it, for a node that knows `admission`.
    pub(crate) fn new(path: &Path, pem: Pem, admission: &Arc<Admission>) -> Result<Self, CredentialsError> {
        let own = certificates(&pem.certificate, path)?;
        let mut chain = own.clone();
        // While an operator exchanges theirs, there may be several.
        let mut authorities = certificates(&pem.authority, path)?;
        let authority = pem.authority_key.as_ref().map(|key| Authority::from_pem(&pem.authority, key)).transpose()?;
        let is_archive = matches!(Identity::of(&own[0]), Some(Identity::Archive(_)));
        let counts = match authority {
            None if !is_archive => Counts::Always,
            _ => Counts::OnRecord {
                generation: Authority::generation_in(&authorities[0]).unwrap_or(0),
                fingerprint: fingerprint(&authorities[0]),
            },
        };
        let mut roots = RootCertStore::empty();
        authorities.iter().try_for_each(|authority| roots.add(authority.clone()))?;
        let roots = Arc::new(roots);
        let authority_certificate = authorities.swap_remove(0);
        let checks = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider()).build()?;
        let callers = WebPkiClientVerifier::builder_with_provider(roots, provider()).build()?;
        let client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Verifier::new(admission, counts, Arc::clone(&checks)))
            .with_client_auth_cert(chain.clone(), private_key(&pem.key, path)?)?;
        // A newcomer knows the authority by its fingerprint only.
        chain.push(authority_certificate.clone());
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Verifier::new(admission, counts, callers))
            .with_single_cert(chain, private_key(&pem.key, path)?)?;
        // Connections last long and are never resumed.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let (server, client) = (Arc::new(server), Arc::new(client));
        Ok(Self { chain: own, verifier: checks, authority_certificate, counts, authority, pem, server, client })
    }
}

/// The certificate that a node shows, and the authority by which it checks others. Cheap to clone.
#[derive(Clone)]
pub struct Credentials(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) cluster: ClusterId,
    pub(crate) identity: Identity,
    shown: RwLock<Arc<Shown>>,
    tokens: Tokens,
    pub(crate) admission: Arc<Admission>,
    /// The directory in which they lie, if they are Freshet's own.
    pub(crate) home: Mutex<Option<PathBuf>>,
    /// Held while they are being replaced.
    pub(crate) replacing: Mutex<()>,
}

/// All of it in PEM form.
#[derive(Clone)]
pub(crate) struct Pem {
    pub certificate: String,
    pub key: String,
    pub authority: String,
    pub authority_key: Option<String>,
}

/// What can be replaced by something newer.
pub(crate) struct Shown {
    /// The certificate, and those between it and the authority's.
    pub chain: Vec<CertificateDer<'static>>,
    /// Whether the chain ends in the authority, now, as one who is connected to sees it.
    verifier: Arc<WebPkiServerVerifier>,
    authority_certificate: CertificateDer<'static>,
    /// Whether that counts.
    pub counts: Counts,
    pub authority: Option<Authority>,
    pub pem: Pem,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials(of {})", self.0.identity)
    }
}

/// TLS 1.3 with the cheapest cipher first: 128 bits are enough for what goes over a wire.
pub(crate) fn provider() -> Arc<CryptoProvider> {
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
pub(crate) fn received() -> &'static Path {
    Path::new("what was received")
}

fn named(name: &'static str) -> ServerName<'static> {
    ServerName::try_from(name).expect("it is a name")
}

impl Credentials {
    /// Credentials for the first node of a cluster, with a new authority.
    ///
    /// # Errors
    /// When the system's random source failed.
    pub fn found(cluster: ClusterId, node: NodeId) -> Result<Self, CredentialsError> {
        Self::found_again(cluster, node, 0)
    }

    /// The same, where the cluster has had authorities of earlier generations.
    ///
    /// # Errors
    /// When the system's random source failed.
    pub fn found_again(cluster: ClusterId, node: NodeId, generation: u64) -> Result<Self, CredentialsError> {
        let authority = Authority::new(cluster, generation)?;
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
        Self::assemble(cluster, received(), Pem { certificate, key: key.to_pem(), authority, authority_key })
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
        if let Some(directory) = &files.directory {
            settle(directory)?;
        }
        private::check_key(&files.key)?;
        let (certificate, key, authority) = (read(&files.certificate)?, read(&files.key)?, read(&files.authority)?);
        // What is wrong is said of the file in which that is.
        certificates(&authority, &files.authority)?;
        private_key(&key, &files.key)?;
        let authority_key = files.authority_key.as_deref().filter(|path| path.exists()).map(read).transpose()?;
        let read = Self::assemble(cluster, &files.certificate, Pem { certificate, key, authority, authority_key })?;
        *read.0.home.lock().expect("no code panics under this mutex") = files.directory.clone();
        Ok(read)
    }

    pub(crate) fn assemble(cluster: ClusterId, path: &Path, pem: Pem) -> Result<Self, CredentialsError> {
        let admission = Arc::default();
        let shown = Shown::new(path, pem, &admission)?;
        let identity = Identity::of(&shown.chain[0]).ok_or(CredentialsError::Nameless)?;
        let (shown, tokens) = (RwLock::new(Arc::new(shown)), Tokens::default());
        let (home, replacing) = Default::default();
        Ok(Self(Arc::new(Inner { cluster, identity, shown, tokens, admission, home, replacing })))
    }

    pub(crate) fn shown(&self) -> Arc<Shown> {
        Arc::clone(&self.0.shown.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn show(&self, shown: Shown) {
        *self.0.shown.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(shown);
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
        shown.verifier.verify_server_cert(own, between, &named(newer.identity().kind()), &[], UnixTime::now())?;
        Ok(())
    }

    /// Shows what `newer` shows from now on, and trusts whom it trusts, on every connection that
    /// is made, with all clones of these. Connections that there are go on. To be
    /// [checked](Self::fits) before.
    pub fn take(&self, newer: &Self) {
        let shown = Shown::new(received(), newer.shown().pem.clone(), &self.0.admission);
        self.show(shown.expect("it was put together before"));
    }

    /// Whether the certificate is no longer valid, by this machine's clock.
    pub fn have_ended(&self) -> bool {
        self.expire().is_some_and(|expire| expire <= UnixTime::now().as_secs())
    }

    /// When the certificate, or one between it and the authority's, is no longer valid, in seconds
    /// since 1970; none when none says so.
    pub fn expire(&self) -> Option<u64> {
        self.shown().chain.iter().filter_map(validity::of).map(|valid| valid.until).min()
    }

    /// Writes them to a node's directory, durably, and all or none. Blocks on the disk.
    ///
    /// # Errors
    /// [`CredentialsError::Io`].
    pub fn write(&self, directory: &Path) -> Result<(), CredentialsError> {
        self.shown().pem.write(directory)?;
        *self.0.home.lock().expect("no code panics under this mutex") = Some(directory.to_owned());
        Ok(())
    }

    /// Who the certificate says that its holder is.
    pub fn identity(&self) -> Identity {
        self.0.identity
    }

    /// The id of the node or archive that holds them.
    ///
    /// # Errors
    /// [`CredentialsError::Nameless`] when the holder is neither.
    pub fn node(&self) -> Result<NodeId, CredentialsError> {
        self.0.identity.id().ok_or(CredentialsError::Nameless)
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
        named(NODE)
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
        if !self.is_current() {
            return Err(EnrolmentError::Replaced);
        }
        if let Grant::Node(Some(node)) = grant {
            self.check_belongs(Identity::Node(node))?;
        }
        Ok(self.0.tokens.give(&shown.authority_certificate, grant, Instant::now(), valid)?)
    }

    pub(crate) fn forget_tokens(&self) {
        self.0.tokens.forget();
    }

    /// Lets a newcomer in. `same_user`: it is on this machine, and of this user.
    ///
    /// # Errors
    /// [`EnrolmentError`].
    pub fn enrol(&self, newcomer: &Enrolment, same_user: bool) -> Result<Enrolled, EnrolmentError> {
        let shown = self.shown();
        let Some(authority) = &shown.authority else { return Err(EnrolmentError::NotAuthorised) };
        if !self.is_current() {
            return Err(EnrolmentError::Replaced);
        }
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
                _ => newcomer.part.identity(node),
            },
            Grant::Node(None) => match newcomer.node {
                // A newcomer cannot choose an id that another node may have.
                Some(own) => return Err(EnrolmentError::Taken(own)),
                None => newcomer.part.identity(NodeId(random()?)),
            },
        };
        self.check_belongs(identity)?;
        let certificate = authority.issue(identity, &newcomer.public_key)?;
        let authority_key = identity.gets_key().then(|| authority.key());
        let authority = shown.pem.authority.clone();
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
