//! Memory and interruption.
