//! How a node gets its certificate.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Args;
use freshet_base::{ClusterId, NodeId, Term, private};
use freshet_membership::{BadToken, Credentials, Files, Part, Token};
use freshet_replication::{
    endpoint::{CallError, call, enrol},
    terms::Terms,
    wire::{Hello, Purpose, Reply},
};
use serde::{Deserialize, Serialize};

use super::{
    Node,
    config::{NodeConfig, headings::COMMON},
    ground::random,
    start::{ASK_EVERY, PATIENCE, StartError},
};

/// A node that was started at the same moment as the one that joins it listens within this time.
const UP_WITHIN: Duration = Duration::from_secs(10);

/// How a node is a member. If all is empty, Freshet makes the certificates itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Args)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Membership")]
pub struct MembershipSettings {
    /// A file with the token that `freshet token` has printed on the member that this node is to
    /// `join`.
    ///
    /// Set it for a new node on another machine, and for one that its cluster does not know any
    /// more.
    #[arg(id = "member-token-file", long, value_name = "FILE", help_heading = COMMON)]
    pub token_file: Option<PathBuf>,
    /// A directory with this node's certificate, `node.crt`, with the intermediate ones up to the
    /// authority's; its key, `node.key`; and the certificate of the authority that has signed all
    /// members' certificates, `authority.crt`, of several, each counts: all in PEM. None: Freshet
    /// makes them.
    ///
    /// Set it where the operator provides certificates.
    #[arg(id = "member-certificates", long, value_name = "DIR")]
    pub certificates: Option<PathBuf>,
}

impl MembershipSettings {
    /// The operator's files, if there are any.
    pub(super) fn files(&self) -> Option<Files> {
        self.certificates.as_deref().map(Files::of_operator)
    }

    fn token(&self) -> Result<Option<Token>, StartError> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let failed = |why: String| StartError::Config(format!("{}: {why}", path.display()));
        private::check_file(path).map_err(|open| StartError::Config(open.to_string()))?;
        let text = fs::read_to_string(path).map_err(|cause| failed(cause.to_string()))?;
        text.parse().map(Some).map_err(|bad: BadToken| failed(bad.to_string()))
    }

    /// Whether the certificates are the operator's.
    pub(super) fn is_brought(&self) -> bool {
        self.certificates.is_some()
    }
}

impl Node {
    /// What reads the operator's certificates again, if this node was started with some: it is
    /// called with the settings that name their directory. None where Freshet makes them.
    pub fn reads_certificates(
        &self,
    ) -> Option<impl Fn(&MembershipSettings) -> Result<Credentials, StartError> + use<>> {
        let cluster = self.cluster;
        let read = move |settings: &MembershipSettings| match settings.files() {
            Some(files) => Ok(Credentials::read(&files, cluster)?),
            None => Err(StartError::Config("a node that was started with certificates needs some".into())),
        };
        self.config.member.is_brought().then_some(read)
    }
}

/// A new node's id, that of its cluster, and its certificate: for a new cluster, or for its
/// primary's. An archive's is of that kind. Writes nothing.
pub(super) fn of_new_node(config: &NodeConfig, part: Part) -> Result<(NodeId, ClusterId, Credentials), StartError> {
    if let Some(files) = config.member.files() {
        let credentials = Credentials::read(&files, ClusterId(0))?;
        let node = credentials.node()?;
        if credentials.part() != part {
            return Err(freshet_membership::CredentialsError::Nameless.into());
        }
        let cluster = match &config.join {
            None => ClusterId(random()?),
            Some(primary) => ask_cluster(&credentials, node, primary)?,
        };
        return Ok((node, cluster, credentials));
    }
    let credentials = match &config.join {
        Some(primary) => enrolled(config, primary, None, part)?,
        None => Credentials::found(ClusterId(random()?), NodeId(random()? as u64))?,
    };
    Ok((credentials.node()?, credentials.cluster(), credentials))
}

/// The certificate of a node that already has an id, from its `directory` if it has one. A node
/// that has lost it is certified again by the node that it is to join. `terms` know what is on
/// record. `is_first`: it was restored from a backup, and knows of no other node. `part`: as what
/// the directory is used now.
pub(super) fn of_node(
    config: &NodeConfig,
    directory: &Path,
    (node, cluster): (NodeId, ClusterId),
    terms: &Terms,
    (part, is_first): (Part, bool),
) -> Result<Credentials, StartError> {
    let own = Files::in_directory(directory);
    let credentials = match (config.member.files(), &config.join) {
        (Some(files), _) => Credentials::read(&files, cluster)?,
        (None, _) if own.exist() => {
            let credentials = in_part(part, Credentials::read(&own, cluster)?, config, directory)?;
            terms.admit(credentials.clone());
            if config.member.token_file.is_some() {
                certify_stranger(config, &credentials)?;
            }
            credentials
        }
        (None, Some(primary)) => {
            let credentials = enrolled(config, primary, Some(node), part)?;
            credentials.write(directory)?;
            credentials
        }
        // A new cluster begins with it.
        (None, None) if is_first || config.force_primary => {
            tracing::warn!(%cluster, "a new authority is made: nodes of the one before are no longer members");
            let generation = terms.get().set.map_or(0, |set| set.roster.known.generation + 1);
            let credentials = Credentials::found_again(cluster, node, generation)?;
            credentials.write(directory)?;
            credentials
        }
        (None, None) => return Err(StartError::NoCertificate(directory.to_owned())),
    };
    if credentials.are_due() {
        // It was down for long. By its key it is known, whatever authority signs for that.
        credentials.renew()?;
    }
    terms.admit(credentials.clone());
    match credentials.node()? {
        _ if credentials.part() != part => Err(freshet_membership::CredentialsError::Nameless.into()),
        found if found == node => Ok(credentials),
        found => Err(freshet_membership::CredentialsError::OtherNode { found, expected: node }.into()),
    }
}

/// A directory may be used as an archive's and as a node's, one after the other. What is found
/// there gives way to what it has to be now.
fn in_part(part: Part, found: Credentials, config: &NodeConfig, directory: &Path) -> Result<Credentials, StartError> {
    if found.part() == part {
        return Ok(found);
    }
    let credentials = match (part, &config.join) {
        (Part::Archive, _) if found.can_sign() => found.as_archive()?,
        (_, Some(primary)) => enrolled(config, primary, Some(found.node()?), part)?,
        (_, None) => {
            let why = format!(
                "{} is the directory of an archive or a backup, which is no member of its cluster: make a node's \
                 directory of it with `freshet restore`, or start it with --join, and a token for its id where that \
                 is on another machine: `freshet token --node {}`",
                directory.display(),
                found.node()?
            );
            return Err(StartError::Config(why));
        }
    };
    credentials.write(directory)?;
    Ok(credentials)
}

/// Where the node to join takes one with these for a stranger, since its cluster has another
/// authority and does not know its key, a token by that authority certifies it again.
fn certify_stranger(config: &NodeConfig, credentials: &Credentials) -> Result<(), StartError> {
    let (Some(primary), node) = (&config.join, credentials.node()?) else { return Ok(()) };
    let hello =
        Hello { cluster: Some(credentials.cluster()), node, address: String::new(), purpose: Purpose::Identify };
    let answer = call(credentials, primary, &hello, Term(0), PATIENCE);
    // An archive cannot sign for itself.
    let is_over = credentials.have_ended() && !credentials.can_sign();
    if answer.is_err_and(|error| error.is_of_strangers())
        && let Some(token) = config.member.token()?.filter(|token| !token.is_of(credentials) || is_over)
    {
        let (enrolled, key) = enrol(primary, Some(&token), Some(node), credentials.part(), PATIENCE)?;
        credentials.take_enrolled(enrolled, &key)?;
    }
    Ok(())
}

/// Has a client of the control port certified by the member at `address`, where it listens for
/// other nodes, with a token that is made for clients.
///
/// # Errors
/// [`StartError`]: the member cannot be reached, or refuses.
pub fn enrol_client(address: &str, token: &Token) -> Result<Credentials, StartError> {
    let (enrolled, key) = enrol(address, Some(token), None, Part::Node, PATIENCE)?;
    Ok(Credentials::enrolled(enrolled, &key)?)
}

fn enrolled(config: &NodeConfig, member: &str, node: Option<NodeId>, part: Part) -> Result<Credentials, StartError> {
    let token = config.member.token()?;
    let (enrolled, key) = reached(member, || enrol(member, token.as_ref(), node, part, PATIENCE))?;
    Ok(Credentials::enrolled(enrolled, &key)?)
}

/// What the node to join answers: one that was started at the same moment may not listen yet.
/// Blocks for [`UP_WITHIN`] at most.
fn reached<T>(member: &str, mut ask: impl FnMut() -> Result<T, CallError>) -> Result<T, CallError> {
    let deadline = Instant::now() + UP_WITHIN;
    let mut warned = false;
    loop {
        match ask() {
            Err(CallError::Connect(cause)) if Instant::now() < deadline => {
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!(address = member, %cause, "cannot reach the node to join yet, and tries again");
                }
                std::thread::sleep(ASK_EVERY);
            }
            answer => return answer,
        }
    }
}

fn ask_cluster(credentials: &Credentials, node: NodeId, primary: &str) -> Result<ClusterId, StartError> {
    let hello = Hello { cluster: None, node, address: String::new(), purpose: Purpose::Identify };
    match reached(primary, || call(credentials, primary, &hello, Term(0), PATIENCE))? {
        (Reply::Cluster(cluster), _) => Ok(cluster),
        _ => Err(CallError::Unexpected { address: primary.to_owned() }.into()),
    }
}
