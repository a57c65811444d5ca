//! Runs a scenario under many thread schedules, each determined by a seed.
//!
//! The threads of a scenario are `shuttle::thread`'s, and shared state uses [`crate::sync`]. A
//! failed schedule prints its seed. `SCHEDULE_SEED=7` runs a single one.

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Stack size of a scenario's thread.
const STACK_BYTES: usize = 4 << 20;
/// Number of schedules per seed for the scheduler that learns from the first.
const AT_ONCE: usize = 10;

/// Runs a scenario under the schedules of this number of seeds, several for each. Panics if the
/// scenario panics.
pub fn explore(seeds: u64, scenario: impl Fn() + Send + Sync + 'static) {
    let requested = std::env::var("SCHEDULE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = requested.map_or(0..seeds, |seed| seed..seed + 1);
    let scenario = Arc::new(scenario);
    for seed in seeds {
        if let Err(panic) = run(seed, &scenario) {
            eprintln!("SCHEDULE_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// Returns true if a scenario fails under one of the schedules of this number of seeds.
pub fn fails(seeds: u64, scenario: impl Fn() + Send + Sync + 'static) -> bool {
    let scenario = Arc::new(scenario);
    (0..seeds).any(|seed| run(seed, &scenario).is_err())
}

/// Half of the seeds allow a switch of threads at any place. The other half switch threads seldom.
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
