//! Bytes for the targets: made from a corpus, reproducible from a seed.

mod corpus;
mod hostile;
mod mutate;
mod protocol;
mod random;
mod statement;

pub use corpus::statements;
pub use protocol::{conversation, everything};
pub use random::Random;
pub use statement::{Statements, function_call, nested};
