//! One-sided memory between nodes, as far as the wire allows.
//!
//! Protocols speak the words of RDMA verbs: a [`tcp::Sender`] *writes with immediate* into a region of
//! the other side, which learns the address, the length and a small immediate value, and finds the bytes in place. Over TCP the
//! other side's receiving thread does by hand what a network card would do: it reads the payload
//! from the socket straight into the region. Delivery is in order per connection.
//!
//! What the other side sends has no meaning before its bounds and its CRC-32C are checked ([`frame`]).
#![forbid(unsafe_code)]

pub mod frame;
pub mod tcp;

pub use freshet_base::cpu;
