//! Search for the highest rate within a latency limit, and latency by throughput around it.
//!
//! A closed loop gives the starting point. The search then brackets the highest rate whose p99, from the intended
//! start, is within the limit, and halves the bracket. Each target is then measured at shares of its highest rate.

use super::measure::{Bench, Case, Prepared, RatedCase, RoundSpec, add_round};
use super::run_load::{EndReason, LoadResult, run_load};
use super::{Load, LoadEnd, Worker};
use crate::Result;
use crate::load::Lab;
use crate::progress::Progress;
use crate::report::figures::plural;
use crate::result::{Kind, Row};
use crate::target::{Target, Usage};

/// Shares of the highest rate at which latency is measured.
const RATE_SHARES: &[f64] = &[0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25];
/// Maximum number of doublings or halvings, starting at half of the closed-loop rate.
const BRACKETS: u32 = 12;
/// Width of a bracket, as a share of its lower end, that ends the search.
const PRECISION: f64 = 0.05;

/// State of a search: the next rate to try from the results so far. It reads no clock, so it can be tested.
#[derive(Debug)]
struct Search {
    next: f64,
    holds: Option<f64>,
    fails: Option<f64>,
    tries: u32,
}

impl Search {
    /// Starts a search at half of the closed-loop rate.
    fn from(capacity: f64) -> Search {
        Search { next: (capacity / 2.0).max(1.0), holds: None, fails: None, tries: 0 }
    }

    /// Returns the next rate; `None` at the end of the search.
    fn rate(&self) -> Option<f64> {
        let narrow = self.holds.zip(self.fails).is_some_and(|(low, high)| high - low <= low * PRECISION);
        let open_ended = self.holds.is_none() || self.fails.is_none();
        let exhausted = (open_ended && self.tries >= BRACKETS) || self.next < 0.5;
        (!narrow && !exhausted).then_some(self.next)
    }

    /// Narrows the bracket by the result of a trial.
    fn narrow(&mut self, held: bool) {
        self.tries += 1;
        let bound = if held { &mut self.holds } else { &mut self.fails };
        *bound = Some(self.next);
        self.next = match (self.holds, self.fails) {
            (Some(low), Some(high)) => (low + high) / 2.0,
            (Some(low), None) => low * 2.0,
            (None, Some(high)) => high / 2.0,
            (None, None) => self.next,
        };
    }
}

/// Returns true if the target kept up: all operations were sent and answered in time without errors.
fn holds(outcome: &LoadResult, limit_milliseconds: f64) -> bool {
    outcome.ended == EndReason::Done
        && outcome.failures == 0
        && outcome.latency.quantile(0.99) <= limit_milliseconds * 1000.0
}

/// Trials of rates with the workers of one target. Operation numbers continue between trials, so that inserts do not
/// repeat keys.
struct Trials<'a, W> {
    progress: Progress,
    target: &'a Target,
    workers: Vec<W>,
    seconds: f64,
    number: u64,
}

impl<W: Worker> Trials<'_, W> {
    /// Runs one trial, and sets the number of the next operation.
    async fn try_rate(&mut self, rate: Option<f64>) -> Result<LoadResult> {
        self.number += 1;
        let load = Load { rate, until: LoadEnd::Seconds(self.seconds), first: self.number << 32 };
        let outcome = run_load(&mut self.workers, load, &self.progress).await;
        match (outcome.ended, &outcome.first_error) {
            (EndReason::Broken, Some(error)) => Err(error.clone()),
            (EndReason::Broken | EndReason::Hung, _) => Err(self.target.error("does not respond any more")),
            _ => Ok(outcome),
        }
    }

    /// Returns the highest rate within the limit, if any.
    async fn search(&mut self, limit: f64) -> Result<Option<f64>> {
        let closed = self.try_rate(None).await?;
        let mut search = Search::from(closed.operations() as f64 / closed.seconds.max(1e-9));
        while let Some(rate) = search.rate().filter(|_| !self.progress.stopped()) {
            // A second try, since one hiccup of a busy machine must not halve the result.
            let first = self.try_rate(Some(rate)).await?;
            let held = holds(&first, limit) || holds(&self.try_rate(Some(rate)).await?, limit);
            search.narrow(held);
        }
        Ok(search.holds)
    }
}

impl Lab {
    /// Searches each streaming case on each target, and adds a section of rates for each case.
    pub(super) async fn find_rates<B: Bench>(
        &mut self,
        section: usize,
        first: usize,
        cases: &[RatedCase<'_, B>],
    ) {
        let Some(limit) = self.common.find_rate else { return };
        let targets = self.targets.clone();
        for (at, (case, _)) in cases.iter().enumerate().filter(|(_, (case, _))| !case.exact) {
            let connections = plural(case.connections.into(), "connection");
            let title = format!("Latency against throughput: {}, {connections}", case.name);
            let about = format!(
                "Each target at shares of its highest rate with a p99 within {limit} ms, counted from the \
                 scheduled time of an operation."
            );
            let id = format!("{}-rates-{}", self.report.sections[section].id, at + 1);
            let rates = self.section(&id, &title, &about, Kind::Rates);
            self.progress.expect(targets.len());
            for (which, target) in targets.iter().enumerate() {
                let row = first + at * targets.len() + which;
                let usable = self.report.sections[section].rows[row].note.is_none();
                if usable && !self.progress.stopped() && self.reason_of_death(target).is_none() {
                    self.progress.begin(&target.name, format!("{}, highest rate", case.name));
                    let found = self.search_one(rates, case, target, limit).await;
                    let name = format!("highest rate with p99 within {limit} ms, 1/s");
                    match found {
                        Ok(rate) => drop(self.report.sections[section].rows[row].extra.insert(name, rate)),
                        Err(error) => self.fail(error),
                    }
                }
                self.progress.end(None);
            }
        }
        self.report_load_warnings();
    }

    /// Searches the highest rate, 0 if none holds, and adds its ladder as rows.
    async fn search_one<B: Bench>(
        &mut self,
        section: usize,
        case: &Case<B>,
        target: &Target,
        limit: f64,
    ) -> Result<f64> {
        let visit = RoundSpec { connections: case.connections, round: self.common.rounds };
        let workers = match case.bench.prepare(target, &visit).await? {
            Prepared::Ready(workers) => workers,
            Prepared::Unsupported(_) => return Ok(0.0),
        };
        let seconds = self.common.duration.unwrap_or(3.0 * self.common.scale.min(1.0)).max(0.3);
        let mut trials = Trials { progress: self.progress.clone(), target, workers, seconds, number: 0 };
        let Some(highest) = trials.search(limit).await? else {
            let (name, case) = (&target.name, &case.name);
            self.warn(format!("{name}, {case}: no rate was found at which p99 stays within {limit} ms"));
            return Ok(0.0);
        };
        for share in RATE_SHARES {
            if self.progress.stopped() {
                break;
            }
            let rate = highest * share;
            let before = target.usage();
            let outcome = trials.try_rate(Some(rate)).await?;
            let cpu = Usage::cpu_between(before, target.usage());
            let name = format!("{:.0} % of the highest rate", share * 100.0);
            let mut row = Row::new(&target.name, &name, case.connections);
            row.x = Some(rate);
            add_round(&mut row, &outcome, cpu);
            let load = Load { rate: Some(rate), until: LoadEnd::Seconds(seconds), first: 0 };
            self.check_outcome(target, &row.case, load, &outcome, cpu);
            self.report.sections[section].rows.push(row);
        }
        Ok(highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(capacity: f64, truth: f64) -> (Option<f64>, u32) {
        let mut search = Search::from(capacity);
        while let Some(rate) = search.rate() {
            search.narrow(rate <= truth);
        }
        (search.holds, search.tries)
    }

    #[test]
    fn the_search_closes_in_on_the_truth_from_either_side() {
        for (capacity, truth) in [(1000.0, 870.0), (1000.0, 12.0), (1000.0, 1990.0), (50.0, 20_000.0)] {
            let (rate, tries) = found(capacity, truth);
            let rate = rate.unwrap();
            assert!(rate <= truth && rate > truth * 0.94, "{rate} of {truth}");
            assert!(tries < 20, "{tries}");
        }
    }

    #[test]
    fn a_search_without_an_answer_ends() {
        assert_eq!(found(1000.0, 0.0).0, None);
        let (rate, tries) = found(1000.0, f64::INFINITY);
        assert!(rate.is_some() && tries <= BRACKETS);
    }
}
