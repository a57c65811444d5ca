//! Fuzz targets: every parser of external bytes, as a function of bytes.
//!
//! A target must not panic or hang for any input. It asserts properties of accepted inputs. [`run`]
//! calls a target with mutations of its seeds from a numbered random sequence, so that the number
//! reproduces a failure. `./test` runs each target briefly (`tests/brief.rs`). `cargo run --release
//! -p fuzz -- TARGET SECONDS [NUMBER]` runs one for a given time.
//!
//! These mutations are blind. `fuzz/guided [SECONDS [TARGET…]]`, which `./test long fuzz` runs, is
//! guided by coverage (libFuzzer, with the stable compiler's instrumentation). It stores inputs
//! with new coverage in `corpus`. Every run of the tests begins with the corpus.

pub mod corpus;
mod draw;
mod random;
mod targets;

use random::Random;
pub use targets::TARGETS;

use std::time::{Duration, Instant};

/// A fuzz target.
pub struct Target {
    /// Name on the command line.
    pub name: &'static str,
    /// Initial inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// The fuzzed function.
    pub run: fn(&[u8]),
}

/// Returns the target named by the variable `FUZZ_TARGET`.
///
/// Panics if the name is unknown.
pub fn chosen() -> fn(&[u8]) {
    static CHOSEN: std::sync::OnceLock<fn(&[u8])> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let found = TARGETS.iter().find(|target| target.name == name);
        found.map_or_else(|| panic!("FUZZ_TARGET: there is no target {name:?}"), |target| target.run)
    })
}

/// Runs a target for this time. Returns the number of inputs. Before a panic of the target is
/// passed on, the number that reproduces it is printed.
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
        // Far beyond the time for any input of this size, even on a busy machine.
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
