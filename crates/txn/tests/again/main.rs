//! Transactions are executed once, and then again from what was recorded of them, by threads that
//! wait for one another's versions: their blocks are the same, byte for byte.

mod histories;
mod mismatches;
mod primary;
mod program;
mod random;
mod standby;
