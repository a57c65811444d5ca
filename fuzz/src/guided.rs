//! One target, driven by libFuzzer: `FUZZ_TARGET=NAME guided FOLDER`, as `fuzz/guided` runs it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::chosen()(data));
