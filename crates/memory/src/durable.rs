//! How bytes in mapped memory become durable.
//!
//! A store to persistent memory lies in a cache at first. It is durable when its line was flushed,
//! or when it went around the cache, *and* a fence has waited for that (distributed logging,
//! section 4; Query Fresh, section 3.3).
//!
//! | method | stores | flush | fence |
//! |---|---|---|---|
//! | `non-temporal` | around the cache | nothing | sfence |
//! | `clwb` | through the cache | clwb for each line, which stays cached | sfence |
//! | `clflushopt` | through the cache | clflushopt for each line, which is evicted | sfence |
//! | `clflush` | through the cache | clflush for each line, one after another | nothing more is needed; sfence |
//! | `eadr` | through the cache | nothing: caches survive a loss of power | sfence |

use std::sync::LazyLock;

use freshet_base::sync::AtomicU64;
use serde::{Deserialize, Serialize};

use crate::instructions;

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// How stores become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Stores that go around the cache.
    NonTemporal,
    /// Lines are written back and stay in the cache.
    Clwb,
    /// Lines are written back and evicted.
    ClflushOpt,
    /// The same, one after another.
    Clflush,
    /// Caches survive a loss of power: a fence is enough. Only the operator can know that.
    Eadr,
}

impl Method {
    /// All of them, in the order in which [`Method::best`] tries them.
    pub const ALL: [Self; 5] = [Self::NonTemporal, Self::Clwb, Self::ClflushOpt, Self::Clflush, Self::Eadr];

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        instructions::has(self)
    }

    /// How lines are flushed that were stored through the cache, by another thread perhaps: stores
    /// that go around the cache are those of the one who stores, so another method does it.
    pub fn flushing(self) -> Self {
        // Asked for each write; to ask the processor takes microseconds in a virtual machine.
        static FLUSHING: LazyLock<Option<Method>> = LazyLock::new(|| {
            [Method::Clwb, Method::ClflushOpt, Method::Clflush].into_iter().find(|method| method.is_available())
        });
        if self == Self::NonTemporal { FLUSHING.unwrap_or(self) } else { self }
    }

    /// What a log should use here: blocks are written once, whole, and not read soon, which is what
    /// stores around the cache are for; flushing cached lines costs several times as much
    /// (docs/benchmarks.md). None on a processor that this version knows no instructions for.
    pub fn best() -> Option<Self> {
        [Self::NonTemporal, Self::Clwb, Self::ClflushOpt, Self::Clflush].into_iter().find(|it| it.is_available())
    }
}

freshet_base::named!(Method, "method", {
    NonTemporal: "non-temporal",
    Clwb: "clwb",
    ClflushOpt: "clflushopt",
    Clflush: "clflush",
    Eadr: "eadr",
});

/// What lies under a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Persistent memory: what was flushed and fenced survives a loss of power.
    Dax,
    /// Something else that stands for it: what was flushed survives the end of the process, not a
    /// loss of power.
    Emulated {
        /// Why it is not the real thing.
        why: String,
    },
}

/// Starts to make `[at, at + length)` of `words` durable, as far as these reach. The processor has
/// the method.
#[inline]
pub fn flush_lines(words: &[AtomicU64], method: Method, at: usize, length: usize) {
    if matches!(method, Method::NonTemporal | Method::Eadr) {
        return;
    }
    let memory: *const u8 = words.as_ptr().cast();
    let end = memory.wrapping_add((at + length).min(words.len() * 8));
    let mut line = memory.wrapping_add(at);
    // By addresses: the words may begin within a line.
    line = line.wrapping_sub(line.addr() % LINE);
    while line < end {
        // SAFETY: in a line that has one of the words; the caller has found the method available.
        unsafe { instructions::flush(method, line) };
        line = line.wrapping_add(LINE);
    }
}
