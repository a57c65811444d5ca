//! Runs every fuzz target briefly: the corpus first, then the same random inputs each time for
//! about a second.

use std::time::Duration;

#[test]
fn every_target_survives_brief_fuzzing() {
    for target in fuzz::TARGETS {
        let count = fuzz::run(target, Duration::from_millis(1500), 1);
        assert!(count > 50, "{} took only {count} inputs", target.name);
    }
}

#[test]
fn every_target_survives_its_corpus() {
    for target in fuzz::TARGETS {
        fuzz::corpus::inputs(target.name).iter().for_each(|input| (target.run)(input));
    }
}
