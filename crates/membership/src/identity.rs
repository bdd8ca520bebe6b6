//! Who a certificate says that its holder is.

use std::fmt;

use freshet_base::NodeId;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use webpki::EndEntityCert;

/// A name in the certificates of all nodes, and in no others: a server that shows it is a node.
pub(crate) const NODE: &str = "node.freshet";
const OPERATOR: &str = "operator.freshet";
const MONITOR: &str = "monitor.freshet";

/// The holder of a certificate, as the cluster's authority has signed it. It is one of the
/// subject's alternative names, of kind DNS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identity {
    /// A node: `<id as 16 hexadecimal digits>.node.freshet`, and beside it `node.freshet`.
    Node(NodeId),
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

    fn from_name(name: &str) -> Option<Self> {
        match name {
            OPERATOR => Some(Self::Operator),
            MONITOR => Some(Self::Monitor),
            _ => {
                let digits = name.strip_suffix(NODE)?.strip_suffix('.')?;
                let whole = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                whole.then(|| u64::from_str_radix(digits, 16).ok()).flatten().map(|node| Self::Node(NodeId(node)))
            }
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Operator => f.write_str("operator"),
            Self::Monitor => f.write_str("monitor"),
        }
    }
}
