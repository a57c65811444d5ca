//! Warnings about doubtful figures, collected over a section and reported once.
//!
//! One reason is a generator that was the bottleneck. On Linux, the processor times of this process and of the machine
//! show it. Other systems report nothing.
//!
//! A new warning is a row of the table in `check_outcome`.

use super::Load;
use super::run_load::LoadResult;
use crate::load::Lab;
use crate::target::Target;
use crate::target::machine::{Clocks, clocks};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Warnings, each with the cases that have it.
#[derive(Debug, Default)]
pub(crate) struct LoadWarnings(BTreeMap<&'static str, BTreeSet<String>>);

/// Shares of processor time from which on figures are doubtful.
const OWN_SHARE: f64 = 0.85;
const MACHINE_SHARE: f64 = 0.97;
const OTHERS_SHARE: f64 = 0.2;
/// The share of operations that the generator may send late.
const LAGGING_SHARE: f64 = 0.01;

const LAGGING: &str = "The load generator sent operations late (latencies are upper limits)";
const OWN_LIMIT: &str = "The load generator used nearly all processors (rates are lower limits)";
const MACHINE_FULL: &str = "No processor time was left on this machine";
const OTHERS: &str = "Other processes used much of this machine's processor time";

impl Lab {
    /// Checks an outcome for reasons to doubt it.
    pub(super) fn check_outcome(
        &mut self,
        target: &Target,
        case: &str,
        load: Load,
        outcome: &LoadResult,
        cpu: Option<Duration>,
    ) {
        let open = load.rate.is_some();
        let attempts = (outcome.operations() + outcome.failures) as f64;
        let doubts = [
            (LAGGING, outcome.lagging as f64 > attempts * LAGGING_SHARE),
            // The null server exists to show the limit of the generator.
            (OWN_LIMIT, outcome.shares.own > OWN_SHARE && !target.is_null_server),
            (OTHERS, others(target, outcome, cpu).is_some_and(|share| share > OTHERS_SHARE)),
            (MACHINE_FULL, open && outcome.shares.machine > MACHINE_SHARE),
        ];
        for (doubt, _) in doubts.into_iter().filter(|(_, found)| *found) {
            self.load_warnings.0.entry(doubt).or_default().insert(format!("{}: {case}", target.name));
        }
    }

    /// Moves the doubts into the report.
    pub(super) fn report_load_warnings(&mut self) {
        for (doubt, cases) in std::mem::take(&mut self.load_warnings).0 {
            self.warn(format!("{doubt}: {}", list(&cases)));
        }
    }
}

/// Returns the share of this machine's processors that neither the generator nor the server used; `None` if the server
/// is local but its usage is unknown.
fn others(target: &Target, outcome: &LoadResult, cpu: Option<Duration>) -> Option<f64> {
    let server = match cpu {
        Some(cpu) => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
            cpu.as_secs_f64() / outcome.seconds.max(1e-9) / cores
        }
        None if target.is_remote() => 0.0,
        None => return None,
    };
    Some(outcome.shares.machine - outcome.shares.own - server)
}

/// Returns some of the cases by name.
fn list(cases: &BTreeSet<String>) -> String {
    const NAMED: usize = 4;
    let named = cases.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    match cases.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Shares, 0 to 1, of all processors' time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shares {
    /// Used by this process.
    pub(crate) own: f64,
    /// Used by all processes.
    pub(crate) machine: f64,
}

impl Shares {
    /// Returns the usage since a moment; zero if it is unknown, or if the time was too short.
    pub(super) fn since(before: Option<Clocks>) -> Shares {
        let Some((before, after)) = before.zip(clocks()) else { return Shares::default() };
        let all = after.all - before.all;
        let share = |used: f64| if all > 0.3 { (used / all).clamp(0.0, 1.0) } else { 0.0 };
        Shares { own: share(after.own - before.own), machine: share(after.busy - before.busy) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named_until_they_are_many() {
        let cases: BTreeSet<String> = (1..=6).map(|n| format!("a: case {n}")).collect();
        let two = cases.iter().take(2).cloned().collect();
        assert_eq!(list(&two), "a: case 1; a: case 2");
        assert!(list(&cases).ends_with("a: case 4 and 2 more"));
    }
}

#[cfg(test)]
mod effort_tests {
    use super::*;

    #[test]
    fn short_times_give_no_warning() {
        assert_eq!(Shares::since(clocks()), Shares::default());
    }
}
