//! Fuzz targets: every parser of bytes from outside, as a function of bytes.
//!
//! A target must neither panic nor hang, whatever it is given, and asserts what must hold of what
//! it accepts. [`run`] feeds one with mutations of its seeds, drawn from a numbered random
//! sequence, so that a failure is replayed by its number. `./test` runs each briefly
//! (`tests/brief.rs`); `cargo run --release -p fuzz -- TARGET SECONDS [NUMBER]` runs one for long.
//! These mutations are blind. `fuzz/guided [SECONDS [TARGET…]]`, which `./test long fuzz` runs, has coverage guide them
//! (libFuzzer, with the stable compiler's instrumentation), and keeps in `corpus` what reaches something new, which
//! every run of the tests begins with.

pub mod corpus;
mod draw;
mod random;
mod targets;

use random::Random;
pub use targets::TARGETS;

use std::time::{Duration, Instant};

/// A fuzz target.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Inputs to begin from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// What is fuzzed.
    pub run: fn(&[u8]),
}

/// The target that the variable `FUZZ_TARGET` names.
///
/// Panics where there is none of the name.
pub fn chosen() -> fn(&[u8]) {
    static CHOSEN: std::sync::OnceLock<fn(&[u8])> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let found = TARGETS.iter().find(|target| target.name == name);
        found.map_or_else(|| panic!("FUZZ_TARGET: there is no target {name:?}"), |target| target.run)
    })
}

/// Runs a target until the time is over; returns how many inputs it took. A panic in the target
/// is passed on after the number that replays it has been printed.
pub fn run(target: &Target, time: Duration, first: u64) -> u64 {
    let began = Instant::now();
    let mut seeds = (target.seeds)();
    seeds.extend(corpus::inputs(target.name));
    let mut count = 0;
    while began.elapsed() < time {
        let number = first + count;
        let input = random::mutate(&seeds, &mut Random::new(number));
        let begin = Instant::now();
        if let Err(panic) = std::panic::catch_unwind(|| (target.run)(&input)) {
            report(target, number, "panicked", &input);
            std::panic::resume_unwind(panic);
        }
        // Far beyond what any input of this size may take, also on a busy machine.
        if begin.elapsed() > Duration::from_secs(10) {
            report(target, number, "took too long", &input);
            assert!(begin.elapsed() < Duration::from_secs(10), "{} hangs", target.name);
        }
        count += 1;
    }
    count
}

#[allow(clippy::print_stderr)]
fn report(target: &Target, number: u64, what: &str, input: &[u8]) {
    eprintln!("{} {what}: replay with number {number}; input {input:02x?}", target.name);
}
