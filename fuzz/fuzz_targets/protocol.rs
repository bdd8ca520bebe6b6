//! `cargo +nightly fuzz run protocol`; see docs/testing.md.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| freshet_fuzzing::protocol(data));
