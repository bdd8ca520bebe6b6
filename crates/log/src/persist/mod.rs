//! Persistence of memory: the one place through which bytes in mapped memory become durable.
//!
//! A store to persistent memory lies in a cache at first. It is durable when its line was flushed,
//! or when it went around the cache, *and* a fence has waited for that (distributed logging,
//! section 4; Query Fresh, section 3.3). Everything that must survive goes through [`Lines`]:
//! [`Lines::store`], [`Lines::flush`], [`Lines::fence`], and [`Lines::persist`], which is the last
//! two; what somebody else has stored, by [`Lines::flush_received`] and a fence. There are two
//! implementations: [`map::Mapping`], and a model that loses any subset of the lines that were not
//! fenced (module `model`, for tests).
//!
//! The instructions, and how memory is mapped, are `freshet_memory`'s, which mirrors use too.

pub(crate) mod buffer;
pub(crate) mod map;
#[cfg(test)]
mod model;
#[cfg(test)]
mod model_standby;
mod ring;

pub use buffer::{BufferError, PersistenceConfig, recover_buffer};
pub(crate) use freshet_memory::{Delay, LINE, fence};
pub use freshet_memory::{Medium, Method, time_around_cache};

/// Memory whose bytes can be made durable. Stores begin at multiples of eight bytes and are
/// multiples of eight long, and each eight bytes become durable as a whole.
pub(crate) trait Lines {
    /// Stores `bytes` from `at` on. Not durable yet.
    fn store(&self, at: usize, bytes: &[u8]);

    /// Starts to make `[at, at + length)` durable.
    fn flush(&self, at: usize, length: usize);

    /// The same for what did not come by [`Lines::store`] but was stored by somebody else, who is
    /// done.
    fn flush_received(&self, at: usize, length: usize);

    /// Waits for everything that this thread has flushed.
    fn fence(&self);

    /// Makes `[at, at + length)` durable.
    fn persist(&self, at: usize, length: usize) {
        self.flush(at, length);
        self.fence();
    }
}

/// A value of a few words that is replaced as a whole in persistent memory: two slots, each with a
/// sequence number and a checksum, written alternately.
pub(crate) mod slots {
    use super::{LINE, Lines};

    /// Bytes of both slots; they lie in lines of their own.
    pub(crate) const BYTES: usize = 2 * LINE;

    fn encode(sequence: u64, value: u64) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&value.to_le_bytes());
        let checksum = u64::from(crc32c::crc32c(&bytes[..16])) | 1 << 32;
        bytes[16..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Replaces the value at `at`; durable when this returns. `sequence` is one more than the last
    /// time.
    pub(crate) fn write(lines: &impl Lines, at: usize, sequence: u64, value: u64) {
        let at = at + (sequence % 2) as usize * LINE;
        lines.store(at, &encode(sequence, value));
        lines.persist(at, 24);
    }

    /// The newest whole value and its sequence number, from the bytes of both slots.
    pub(crate) fn read(bytes: &[u8; BYTES]) -> Option<(u64, u64)> {
        let slot = |number: usize| {
            let found = &bytes[number * LINE..number * LINE + 24];
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| found[at + i]));
            (encode(word(0), word(8)) == *found).then_some((word(0), word(8)))
        };
        [slot(0), slot(1)].into_iter().flatten().max()
    }
}
