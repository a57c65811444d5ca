//! Runs one target under libFuzzer: `FUZZ_TARGET=NAME guided FOLDER`, started by `fuzz/guided`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::chosen()(data));
