//! Who belongs to a cluster, and how a node proves it.
//!
//! A cluster has an *authority* of its own, which its first node makes: a key whose certificate all
//! nodes hold. It signs a certificate for each node, in which the node's id stands, so that no node
//! can speak under the id of another. Over TCP, the node port and the control port speak TLS 1.3
//! only, and trust only sessions whose certificate the authority has signed.
//!
//! | how a node gets its certificate | what it has to show |
//! |---|---|
//! | on the machine of a member, as the same user | nothing: the member's socket shows the user |
//! | from another machine | a [`Token`], which a member gave out: once, and not for long |
//! | brought by the operator | the files: then the cluster's nodes sign nothing |
//!
//! A node that joins gets the authority's key too, so that after a failover every node can let
//! others in, and each renews its own certificate before that ends. So members trust one another
//! about membership. An *archive*, and so a backup, gets no such key: its certificate says what it
//! is ([`Identity::Archive`]), with that it may read and nothing else, and nodes renew it. The id
//! in a certificate keeps a node from speaking for another by mistake or because of a defect.
//!
//! A node that is removed knows the authority's key. So the cluster gets another authority then,
//! and has on record which one that is, and by which keys its nodes are known ([`OnRecord`]). A
//! node keeps its own key for as long as it has its directory; what the new authority signs for it
//! is for that key.
//!
//! The certificates that Freshet makes for nodes and clients are valid for [`LIFETIME`]. Nodes
//! renew theirs while they run; those that the operator brings can be replaced while a node runs.
#![forbid(unsafe_code)]

mod admission;
mod authority;
mod credentials;
mod identity;
mod newcomer;
mod renewal;
mod token;
mod validity;

pub use self::{
    admission::OnRecord,
    authority::{Authority, LIFETIME, NewKey, TOLERANCE},
    credentials::{Credentials, CredentialsError, Files, random},
    identity::Identity,
    token::{
        BadToken, Enrolled, Enrolment, EnrolmentError, Fingerprint, Grant, Part, Token, Tokens, fingerprint_of_text,
        fingerprint_text,
    },
};
