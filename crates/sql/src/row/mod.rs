//! How a row lies in memory.
