//! Why a call to another node had no answer.

use std::io;

use crate::wire::{DecodeError, Refusal};

/// Why a call to another node had no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// It cannot be reached.
    #[error(transparent)]
    Connect(#[from] freshet_fabric::tcp::ConnectError),
    /// It has no certificate of this cluster's authority.
    #[error(
        "{address} has not shown a certificate of this node's cluster: {why}; check the address: another cluster, or \
         another process, may be there. {OLD}"
    )]
    Foreign {
        /// Who.
        address: String,
        /// What is wrong with its certificate.
        why: String,
    },
    /// It does not accept this node's certificate.
    #[error("{address} does not accept the certificate of this node: {why}. {OLD}")]
    NotLetIn {
        /// Who.
        address: String,
        /// What it says.
        why: String,
    },
    /// A token is needed, and none was given.
    #[error(
        "{address} is not a process of this user on this machine, so joining takes a token: put what `freshet token` \
         prints on a member into a file, and name it with --member-token-file"
    )]
    NoToken {
        /// Where the member is.
        address: String,
    },
    /// Credentials cannot be made or used.
    #[error(transparent)]
    Credentials(#[from] freshet_membership::CredentialsError),
    /// It went away.
    #[error(transparent)]
    Send(#[from] freshet_fabric::tcp::SendError),
    /// It went away, or is silent.
    #[error(transparent)]
    Receive(#[from] freshet_fabric::tcp::ReceiveError),
    /// It speaks another language.
    #[error("{address}: {source}")]
    Decode {
        /// Who.
        address: String,
        /// What is wrong.
        source: DecodeError,
    },
    /// It refuses.
    #[error("{address} refuses: {refusal}")]
    Refused {
        /// Who.
        address: String,
        /// Why.
        refusal: Refusal,
    },
    /// The register in the place of a witness does not answer, or has no vote.
    #[error("{address}: {why}")]
    Register {
        /// Which.
        address: String,
        /// What is wrong.
        why: String,
    },
    /// It answers something else.
    #[error("{address} gave an unexpected answer")]
    Unexpected {
        /// Who.
        address: String,
    },
    /// The system.
    #[error("cannot set up a connection to {address}: {source}")]
    System {
        /// To whom.
        address: String,
        /// What the system says.
        source: io::Error,
    },
}

/// What is to be done where certificates do not fit.
const OLD: &str = "Where a certificate has expired, or is not valid yet, see the clocks of both machines. If it is of \
                   the same cluster, that has another authority since this node was there: start this node with \
                   --join and --member-token-file, and a token that `freshet token --node ID` makes there";

impl CallError {
    /// Whether one of the two takes the other for a stranger, by its certificate.
    pub fn is_of_strangers(&self) -> bool {
        matches!(self, Self::Foreign { .. } | Self::NotLetIn { .. })
    }
}
