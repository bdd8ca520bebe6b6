//! Links that are slower than they are: a token bucket before any fabric.

use std::{
    thread,
    time::{Duration, Instant},
};

use freshet_base::sync::Mutex;

use crate::{OpenError, Place, QueuePair, RegionKey, SendError, Token, Write};

/// Bytes flow at a rate, and up to a burst at once. Shared by all links that go through one network
/// card.
#[derive(Debug)]
pub struct TokenBucket {
    bytes_per_second: f64,
    burst: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How many bytes may go now; below zero while what went is still on its way.
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    /// A bucket for this many gigabits (10^9 bits) per second; it holds what flows in 200 µs, at
    /// least 16 KiB.
    ///
    /// # Panics
    /// When the rate is not above zero.
    pub fn gigabits(rate: f64) -> Self {
        assert!(rate > 0.0, "the configuration was checked before");
        let bytes_per_second = rate * 1e9 / 8.0;
        let burst = (bytes_per_second * 200e-6).max(16384.0);
        Self { bytes_per_second, burst, state: Mutex::new(State { tokens: burst, at: Instant::now() }) }
    }

    /// Takes `bytes`, at `now`, and says how long they take to be through. Never blocks.
    pub fn take(&self, bytes: u64, now: Instant) -> Duration {
        let mut state = self.state.lock().expect("no code panics under this mutex");
        state.tokens = self.tokens(&state, now) - bytes as f64;
        state.at = state.at.max(now);
        Duration::from_secs_f64((-state.tokens / self.bytes_per_second).max(0.0))
    }

    /// Whether these bytes could go at `now` without a wait. Another link may take them first.
    pub fn holds(&self, bytes: u64, now: Instant) -> bool {
        let state = self.state.lock().expect("no code panics under this mutex");
        self.tokens(&state, now) >= bytes as f64
    }

    /// How many bytes flow in this time.
    pub fn bytes_in(&self, time: Duration) -> u64 {
        (self.bytes_per_second * time.as_secs_f64()) as u64
    }

    /// How many bytes may go at `now`.
    fn tokens(&self, state: &State, now: Instant) -> f64 {
        let flowed = now.saturating_duration_since(state.at).as_secs_f64() * self.bytes_per_second;
        (state.tokens + flowed).min(self.burst)
    }
}

/// A queue pair whose writes and reads keep to a bucket.
pub(crate) struct Limited {
    inner: Box<dyn QueuePair>,
    bucket: std::sync::Arc<TokenBucket>,
}

/// What a packet carries beside its data, in bytes: RoCE's headers.
const OVERHEAD: u64 = 58;

impl Limited {
    pub(crate) fn new(inner: Box<dyn QueuePair>, bucket: std::sync::Arc<TokenBucket>) -> Self {
        Self { inner, bucket }
    }

    /// Waits until `bytes` in `packets` may go.
    fn pass(&self, bytes: u64, packets: usize) {
        let wait = self.bucket.take(bytes + packets as u64 * OVERHEAD, Instant::now());
        // Sleeping takes longer than the shortest waits; the bucket makes up for it.
        if wait > Duration::from_micros(50) {
            thread::sleep(wait);
        }
    }
}

impl QueuePair for Limited {
    fn post(&mut self, list: &[Write<'_>], signaled: bool) -> Result<Token, SendError> {
        if !list.is_empty() {
            self.pass(list.iter().map(Write::length).sum(), list.len());
        }
        self.inner.post(list, signaled)
    }

    fn completed(&mut self) -> Result<Token, SendError> {
        self.inner.completed()
    }

    fn wait(&mut self, token: Token) -> Result<(), SendError> {
        self.inner.wait(token)
    }

    fn read(&mut self, from: Place, into: &mut [u8]) -> Result<(), SendError> {
        self.pass(into.len() as u64, 1);
        self.inner.read(from, into)
    }

    fn read_all(&mut self, list: &mut [(Place, &mut [u8])]) -> Result<(), SendError> {
        self.pass(list.iter().map(|(_, into)| into.len() as u64).sum(), list.len());
        self.inner.read_all(list)
    }

    fn fetch_add(&mut self, at: Place, add: u64) -> Result<u64, SendError> {
        self.pass(8, 1);
        self.inner.fetch_add(at, add)
    }

    fn attach(&mut self, key: &RegionKey) -> Result<usize, OpenError> {
        self.inner.attach(key)
    }

    fn farewell(&mut self, patience: Duration) {
        self.inner.farewell(patience);
    }

    fn region_length(&self, region: usize) -> u64 {
        self.inner.region_length(region)
    }

    fn is_prompt(&self) -> bool {
        self.inner.is_prompt()
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.inner.has_room(bytes) && self.bucket.holds(bytes, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_flow_at_the_rate() {
        let bucket = TokenBucket::gigabits(1.0);
        let start = Instant::now();
        assert!(bucket.holds(16_384, start) && !bucket.holds(bucket.burst as u64 + 1, start));
        assert_eq!(bucket.take(16_384, start), Duration::ZERO, "the burst goes at once");
        let after = |micros: u64| bucket.holds(16_384, start + Duration::from_micros(micros));
        assert!(!after(50) && after(200), "it holds what has flowed since");
        let mut now = start;
        for _ in 0..100 {
            now += bucket.take(64 << 10, now);
        }
        let rate = 100.0 * f64::from(64 << 10) / (now - start).as_secs_f64();
        assert!((rate / 125e6 - 1.0).abs() < 0.02, "{rate} bytes per second");
        // What was not used is not kept beyond the burst.
        now += Duration::from_secs(5);
        assert!(bucket.take(1 << 20, now) > Duration::from_millis(7));
    }
}
