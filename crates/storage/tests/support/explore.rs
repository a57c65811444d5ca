//! Runs a scenario under many schedules of its threads, each decided by a seed.
//!
//! The threads of a scenario are `shuttle::thread`'s, and what they share goes through [`crate::sync`]. A
//! schedule that fails prints its seed; `SCHEDULE_SEED=7` runs that one alone.

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// How much of a thread's stack a scenario may use.
const STACK_BYTES: usize = 4 << 20;
/// How many schedules a seed stands for, where the scheduler learns from the first.
const AT_ONCE: usize = 10;

/// Runs a scenario under the schedules of so many seeds, each of which stands for several, and panics as it
/// does.
pub fn explore(seeds: u64, scenario: impl Fn() + Send + Sync + 'static) {
    let asked = std::env::var("SCHEDULE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = asked.map_or(0..seeds, |seed| seed..seed + 1);
    let scenario = Arc::new(scenario);
    for seed in seeds {
        if let Err(panic) = run(seed, &scenario) {
            eprintln!("SCHEDULE_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// Whether a scenario fails under one of the schedules of so many seeds.
pub fn fails(seeds: u64, scenario: impl Fn() + Send + Sync + 'static) -> bool {
    let scenario = Arc::new(scenario);
    (0..seeds).any(|seed| run(seed, &scenario).is_err())
}

/// Half of the seeds let any thread go on at any place, the other half change threads seldom.
fn run(seed: u64, scenario: &Arc<impl Fn() + Send + Sync + 'static>) -> std::thread::Result<()> {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    let scenario = scenario.clone();
    catch_unwind(AssertUnwindSafe(|| match seed.is_multiple_of(2) {
        true => {
            _ = Runner::new(RandomScheduler::new_from_seed(seed, AT_ONCE), config).run(move || scenario())
        }
        false => {
            let scheduler = PctScheduler::new_from_seed(seed, 3, AT_ONCE);
            _ = Runner::new(scheduler, config).run(move || scenario());
        }
    }))
}
