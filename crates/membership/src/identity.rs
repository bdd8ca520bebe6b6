//! Who a certificate says that its holder is.

use std::fmt;

use freshet_base::NodeId;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use webpki::EndEntityCert;

use crate::token::{Fingerprint, fingerprint_of};

/// A name in the certificates of all nodes, and in no others: a server that shows it is a node.
pub(crate) const NODE: &str = "node.freshet";
/// A name in the certificates of all archives, and in no others.
const ARCHIVE: &str = "archive.freshet";
const OPERATOR: &str = "operator.freshet";
const MONITOR: &str = "monitor.freshet";

/// The holder of a certificate, as the cluster's authority has signed it. It is one of the
/// subject's alternative names, of kind DNS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identity {
    /// A node: `<id as 16 hexadecimal digits>.node.freshet`, and beside it `node.freshet`.
    Node(NodeId),
    /// An archive or a backup, which reads what nodes have and signs nothing:
    /// `<id>.archive.freshet`, and beside it `archive.freshet`.
    Archive(NodeId),
    /// May do all that the control port offers: `operator.freshet`.
    Operator,
    /// May ask for the status: `monitor.freshet`.
    Monitor,
}

impl Identity {
    /// The names that its certificate carries.
    pub fn names(self) -> Vec<String> {
        match self {
            Self::Node(node) => vec![format!("{node}.{NODE}"), NODE.to_owned()],
            Self::Archive(node) => vec![format!("{node}.{ARCHIVE}"), ARCHIVE.to_owned()],
            Self::Operator => vec![OPERATOR.to_owned()],
            Self::Monitor => vec![MONITOR.to_owned()],
        }
    }

    /// The identity in a certificate; none if it has none, or several. Does not check the
    /// signature.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let mut found = certificate.valid_dns_names().filter_map(Self::from_name);
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    /// Under which id a node or an archive speaks.
    pub fn id(self) -> Option<NodeId> {
        match self {
            Self::Node(node) | Self::Archive(node) => Some(node),
            Self::Operator | Self::Monitor => None,
        }
    }

    /// Whether it gets the authority's key with its certificate.
    pub(crate) fn gets_key(self) -> bool {
        matches!(self, Self::Node(_))
    }

    /// The name that others can expect in its certificate.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Node(_) => NODE,
            Self::Archive(_) => ARCHIVE,
            Self::Operator => OPERATOR,
            Self::Monitor => MONITOR,
        }
    }

    /// By what the holder of this key is known. An archive's key is no node's, even if the archive
    /// shows a certificate that it has signed itself.
    pub(crate) fn fingerprint_of_key(self, key: &[u8]) -> Fingerprint {
        match self {
            Self::Archive(_) => fingerprint_of(&[ARCHIVE.as_bytes(), key].concat()),
            _ => fingerprint_of(key),
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        match name {
            OPERATOR => Some(Self::Operator),
            MONITOR => Some(Self::Monitor),
            _ => {
                let (digits, kind) = name.split_once('.')?;
                let id = digits.parse().ok()?;
                match kind {
                    NODE => Some(Self::Node(id)),
                    ARCHIVE => Some(Self::Archive(id)),
                    _ => None,
                }
            }
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Archive(node) => write!(f, "archive {node}"),
            Self::Operator => f.write_str("operator"),
            Self::Monitor => f.write_str("monitor"),
        }
    }
}
