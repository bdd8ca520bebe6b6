//! Bytes for the targets: made from a corpus, reproducible from a seed.

mod copying;
mod corpus;
mod grammar;
mod hostile;
mod mutate;
mod protocol;
mod random;
mod statement;

pub use copying::copies;
pub use corpus::statements;
pub use grammar::from_grammar;
pub use protocol::{conversation, everything};
pub use random::Random;
pub use statement::{Statements, function_call, nested};
