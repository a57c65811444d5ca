//! Every fuzz target, briefly: the same inputs each time, as many as fit into a second or so.

use std::time::Duration;

#[test]
fn every_target_stands_a_moment_of_fuzzing() {
    for target in fuzz::TARGETS {
        let count = fuzz::run(target, Duration::from_millis(1500), 1);
        assert!(count > 50, "{} took only {count} inputs", target.name);
    }
}
