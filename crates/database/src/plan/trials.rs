//! Trials between candidates with equal rank: the candidate with the fewest keys within its bounds
//! wins.

use super::choose::{Candidate, Planning};
use super::{Access, shape};
use crate::catalog::cached_plans::{PlanCache, Trial, fingerprint};
use crate::exec::KeyBounds;
use crate::storage_error;
use base::Result;
use std::cell::RefCell;
use storage::{Direction, Snapshot};

/// Most keys counted for each candidate.
const KEYS_MAX: u64 = 100;

/// The plan cache and planning's use of it.
pub(crate) struct Trials<'a> {
    cache: &'a PlanCache,
    outcome: RefCell<TrialOutcome>,
}

#[derive(Default)]
enum TrialOutcome {
    /// Nothing to decide.
    #[default]
    None,
    /// The cached plan was used.
    Cached,
    /// A trial ran.
    Tried(Trial),
}

impl<'a> Trials<'a> {
    pub(crate) fn new(cache: &'a PlanCache) -> Trials<'a> {
        Trials { cache, outcome: RefCell::default() }
    }

    /// Discards the decision: the plan uses a source that is not a candidate.
    pub(crate) fn discard(&self) {
        self.outcome.take();
    }

    /// Returns whether the plan comes from the cache, and the trial that chose it.
    pub(crate) fn finish(self) -> (bool, Option<Trial>) {
        match self.outcome.into_inner() {
            TrialOutcome::None => (false, None),
            TrialOutcome::Cached => (true, None),
            TrialOutcome::Tried(trial) => (false, Some(trial)),
        }
    }
}

impl Planning<'_> {
    /// Moves the best of several equal candidates to the front: the cached plan of the query shape,
    /// if it is as good as before, or the winner of a trial.
    pub(super) fn run_trial(&self, candidates: &mut Vec<Candidate>) -> Result<()> {
        let shape = shape::of_read(self.read, self.context);
        let indexes = fingerprint(self.indexes);
        let mut again = false;
        if let Some(cached) = self.trials.cache.active(&shape, indexes)
            && let Some(position) = candidates.iter().position(|one| name(&one.access) == cached.trial.winner)
            && let Some(candidate) = candidates.get(position)
        {
            let works_max = cached.works_max();
            again = keys_within(&candidate.access, self.snapshot, works_max)? >= works_max;
            if !again {
                let candidate = candidates.remove(position);
                candidates.insert(0, candidate);
                self.trials.outcome.replace(TrialOutcome::Cached);
                return Ok(());
            }
        }
        let keys = self.by_keys(candidates)?;
        let (Some(winner), Some(fewest)) = (candidates.first(), keys.first()) else { return Ok(()) };
        // Nothing is decided if all candidates have too many keys.
        if *fewest < KEYS_MAX {
            // One step for each key, and one step that finds the end.
            let (winner, works) = (name(&winner.access), fewest + 1);
            self.trials.outcome.replace(TrialOutcome::Tried(Trial {
                shape,
                indexes,
                winner,
                keys,
                works,
                again,
            }));
        }
        Ok(())
    }

    /// Sorts candidates by number of keys, then by number of parts. Returns the numbers of keys.
    pub(super) fn by_keys(&self, candidates: &mut Vec<Candidate>) -> Result<Vec<u64>> {
        let count = |candidate: Candidate| {
            let keys = keys_within(&candidate.access, self.snapshot, KEYS_MAX)?;
            Ok((keys, candidate.access.parts.len(), candidate))
        };
        let mut counted: Vec<(u64, usize, Candidate)> =
            candidates.drain(..).map(count).collect::<Result<_>>()?;
        counted.sort_by_key(|(keys, parts, _)| (*keys, *parts));
        let keys = counted.iter().map(|(keys, ..)| *keys).collect();
        candidates.extend(counted.into_iter().map(|(_, _, candidate)| candidate));
        Ok(keys)
    }
}

/// Returns a name that is unique among candidates: a wildcard index is a candidate for each path.
fn name(access: &Access) -> String {
    let spec = &access.index.spec;
    format!("{} {}", spec.name, spec.key)
}

/// Counts the keys within the bounds, up to `most`.
fn keys_within(access: &Access, snapshot: &dyn Snapshot, most: u64) -> Result<u64> {
    let range = KeyBounds::new(access).range();
    let scan = snapshot.scan(access.index.ident, range, Direction::Forward);
    let mut cursor = scan.map_err(storage_error)?;
    let mut count = 0;
    while count < most && cursor.next().map_err(storage_error)?.is_some() {
        count += 1;
    }
    Ok(count)
}
