//! Every fuzz target, briefly: what is kept of earlier fuzzing, and the same inputs each time, as many as fit into a second
//! or so.

use std::time::Duration;

#[test]
fn every_target_stands_a_moment_of_fuzzing() {
    for target in fuzz::TARGETS {
        let count = fuzz::run(target, Duration::from_millis(1500), 1);
        assert!(count > 50, "{} took only {count} inputs", target.name);
    }
}

#[test]
fn every_target_stands_what_was_found_before() {
    for target in fuzz::TARGETS {
        fuzz::corpus::inputs(target.name).iter().for_each(|input| (target.run)(input));
    }
}
