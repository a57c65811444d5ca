//! Reasons to doubt a figure that the lab sees itself, gathered over a section and told once.

use super::drive::Outcome;
use super::{Load, Pace};
use crate::load::Lab;
use crate::target::Target;
use std::collections::BTreeMap;
use std::time::Duration;

/// Kinds of doubt, each with the places where it came up.
#[derive(Debug, Default)]
pub(crate) struct Suspicions(BTreeMap<Doubt, Vec<String>>);

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Doubt {
    /// The generator sent operations late though a connection was free.
    Lagging,
    /// The generator used nearly all processors.
    OwnLimit,
    /// In an open loop, no processor time was left on this machine.
    MachineFull,
    /// Others than generator and server used this machine's processors.
    Others,
}

/// Shares of processor time from which on figures are doubtful.
const OWN_SHARE: f64 = 0.85;
const MACHINE_SHARE: f64 = 0.97;
const OTHERS_SHARE: f64 = 0.2;
/// The share of operations that the generator may send late.
const LAGGING_SHARE: f64 = 0.01;

impl Doubt {
    /// What it says of figures.
    fn says(self) -> &'static str {
        match self {
            Doubt::Lagging => "The load generator sent operations late (latencies are upper limits)",
            Doubt::OwnLimit => "The load generator used nearly all processors (rates are lower limits)",
            Doubt::MachineFull => "No processor time was left on this machine",
            Doubt::Others => "Other processes used much of this machine's processor time",
        }
    }
}

impl Lab {
    /// Looks at an outcome for reasons to doubt it.
    pub(super) fn suspect(
        &mut self,
        target: &Target,
        case: &str,
        load: Load,
        outcome: &Outcome,
        cpu: Option<Duration>,
    ) {
        let open = matches!(load.pace, Pace::Open { .. });
        let attempts = (outcome.operations() + outcome.failures) as f64;
        let doubts = [
            (Doubt::Lagging, outcome.lagging as f64 > attempts * LAGGING_SHARE),
            // The floor is there to show what the generator alone can do.
            (Doubt::OwnLimit, outcome.shares.own > OWN_SHARE && !target.is_floor),
            (Doubt::Others, others(target, outcome, cpu).is_some_and(|share| share > OTHERS_SHARE)),
            (Doubt::MachineFull, open && outcome.shares.machine > MACHINE_SHARE),
        ];
        for (doubt, _) in doubts.into_iter().filter(|(_, found)| *found) {
            let places = self.suspicions.0.entry(doubt).or_default();
            let place = format!("{}: {case}", target.name);
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }

    /// Writes the doubts into the report, and forgets them.
    pub(super) fn tell_suspicions(&mut self) {
        for (doubt, places) in std::mem::take(&mut self.suspicions).0 {
            self.warn(format!("{}: {}", doubt.says(), list(&places)));
        }
    }
}

/// The share of this machine's processors that neither the generator nor the server used; `None`
/// where the server is here, but what it uses can't be told.
fn others(target: &Target, outcome: &Outcome, cpu: Option<Duration>) -> Option<f64> {
    let server = match cpu {
        Some(cpu) => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
            cpu.as_secs_f64() / outcome.seconds.max(1e-9) / cores
        }
        None if target.is_elsewhere() => 0.0,
        None => return None,
    };
    Some(outcome.shares.machine - outcome.shares.own - server)
}

/// Some of the places by name.
fn list(places: &[String]) -> String {
    const NAMED: usize = 4;
    let named = places.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    match places.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named_until_they_are_many() {
        let places: Vec<String> = (1..=6).map(|n| format!("a: case {n}")).collect();
        assert_eq!(list(&places[..2]), "a: case 1; a: case 2");
        assert!(list(&places).ends_with("a: case 4 and 2 more"));
    }
}
