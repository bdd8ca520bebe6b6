//! The ordered index.
