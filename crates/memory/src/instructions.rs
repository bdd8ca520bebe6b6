//! The instructions, and nothing else. On processors other than x86-64 none are known.

use std::{
    sync::atomic::AtomicU64,
    time::{Duration, Instant},
};

#[cfg(target_arch = "x86_64")]
mod processor {
    use std::arch::{
        asm,
        x86_64::{__cpuid, __cpuid_count, _mm_clflush, _mm_sfence, _mm_stream_si64, _rdtsc},
    };

    use crate::Method;

    pub fn has(method: Method) -> bool {
        // CLFLUSH: leaf 1, EDX bit 19. CLFLUSHOPT and CLWB: leaf 7, EBX bits 23 and 24 (Intel SDM,
        // volume 2A, CPUID).
        let extended = || if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        match method {
            Method::NonTemporal | Method::Eadr => true,
            Method::Clflush => __cpuid(1).edx >> 19 & 1 == 1,
            Method::ClflushOpt => extended() >> 23 & 1 == 1,
            Method::Clwb => extended() >> 24 & 1 == 1,
        }
    }

    /// # Safety
    /// `line` is in mapped memory, and the processor has the method.
    pub unsafe fn flush(method: Method, line: *const u8) {
        match method {
            Method::NonTemporal | Method::Eadr => {}
            // SAFETY: by this function's contract; these change no value that Rust can see.
            Method::Clflush => unsafe { _mm_clflush(line) },
            // SAFETY: as above.
            Method::ClflushOpt => unsafe { asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)) },
            // SAFETY: as above.
            Method::Clwb => unsafe { asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)) },
        }
    }

    /// Asks for a line, ahead of its use.
    #[cfg(not(loom))]
    #[inline]
    pub fn prefetch(line: *const u8) {
        // SAFETY: every x86-64 processor has it, and a hint never faults, whatever the address.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast()) };
    }

    /// # Safety
    /// `place` may be written, is aligned to 8 bytes, and every reader that may race uses atomic
    /// loads: the store is one of 8 bytes, which this processor does as a whole.
    pub unsafe fn store_around(place: *mut u64, word: u64) {
        // SAFETY: by this function's contract.
        unsafe { _mm_stream_si64(place.cast(), word as i64) };
    }

    pub fn fence() {
        // SAFETY: every x86-64 processor has it.
        unsafe { _mm_sfence() };
    }

    pub fn cycles() -> u64 {
        // SAFETY: every x86-64 processor has it.
        unsafe { _rdtsc() }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod processor {
    use crate::Method;

    pub fn has(_method: Method) -> bool {
        false
    }

    pub unsafe fn flush(_method: Method, _line: *const u8) {}

    #[cfg(not(loom))]
    pub fn prefetch(_line: *const u8) {}

    pub unsafe fn store_around(place: *mut u64, word: u64) {
        // SAFETY: by the contract of the other.
        unsafe { place.write_volatile(word) };
    }

    pub fn fence() {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    pub fn cycles() -> u64 {
        0
    }
}

#[cfg(not(loom))]
pub(crate) use processor::prefetch;
pub(crate) use processor::{flush, has, store_around};

/// Waits until the stores and flushes of this thread are durable.
#[inline]
pub fn fence() {
    processor::fence();
}

/// How long one processor takes to write a KiB around its caches, in memory that is large enough
/// not to stay there: what Query Fresh (section 4.2) takes for the time that memory needs to become
/// durable, where there is no such memory. Takes some milliseconds.
pub fn time_around_cache() -> Duration {
    const WORDS: usize = 1 << 20;
    let memory: Vec<AtomicU64> = (0..WORDS as u64).map(AtomicU64::new).collect();
    let round = |number: u64| {
        let begun = Instant::now();
        for word in &memory {
            // SAFETY: inside the vector, aligned, and an atomic.
            unsafe { store_around(word.as_ptr(), number) };
        }
        fence();
        begun.elapsed()
    };
    // The quickest: others may have had the processor in the meantime.
    let best = (0..8).map(round).min().expect("there were some");
    best / (WORDS * 8 / 1024) as u32
}

/// A wait, to stand for slower memory in experiments: a fixed time at each insertion (distributed
/// logging, section 5.1: 1.2 us), and a time for what was written, by its length (Query Fresh,
/// section 4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// Cycles for each insertion, in 1024ths.
    each: u64,
    /// Cycles for each byte, in 1024ths.
    byte: u64,
}

impl Delay {
    /// Waits of `each` time for an insertion and `per_kib` for each KiB of it; none for zero.
    /// Measures how fast the processor's cycle counter runs, which takes 10 ms.
    pub fn of(each: Duration, per_kib: Duration) -> Self {
        if each.is_zero() && per_kib.is_zero() {
            return Self::default();
        }
        let (begun, first) = (Instant::now(), processor::cycles());
        while begun.elapsed() < Duration::from_millis(10) {
            std::hint::spin_loop();
        }
        let per_second = processor::cycles().wrapping_sub(first) as f64 / begun.elapsed().as_secs_f64();
        Self {
            each: (per_second * each.as_secs_f64() * 1024.0) as u64,
            byte: (per_second * per_kib.as_secs_f64()) as u64,
        }
    }

    /// Waits as long as `bytes` that were written take. Bounded by that time; costs a comparison
    /// when none exists.
    #[inline]
    pub fn wait(self, bytes: usize) {
        if self.each | self.byte != 0 {
            let cycles = (self.each + self.byte * bytes as u64) / 1024;
            let first = processor::cycles();
            while processor::cycles().wrapping_sub(first) < cycles {
                std::hint::spin_loop();
            }
        }
    }
}
