//! `cargo +nightly fuzz run forms`; see docs/testing.md.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| freshet_fuzzing::forms(data));
