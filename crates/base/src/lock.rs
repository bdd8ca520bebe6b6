//! Locks that a panic of another thread does not spoil.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what stays whole when a thread panics that has it locked: each change is made in one step.
/// Blocks until it is free.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
