//! Measurement of cases on targets, in rounds with alternating targets. Each measurement has a warm-up, and includes
//! the processor time of the server.
//!
//! A failure of one target affects only that target. A refusal becomes the note of a row. A dead target keeps its
//! earlier figures and is skipped from then on.

use super::run_load::{EndReason, LoadResult, run_load};
use super::{Load, LoadEnd, Worker};
use crate::load::Lab;
use crate::report::figures::plural;
use crate::result::{Kind, Row, Section};
use crate::target::{Counters, Target, Usage};
use crate::{Error, Result};
use std::time::Duration;

/// Timeout of the preparation of a case.
const PREPARE_MAX: Duration = Duration::from_secs(1800);

/// Timeout of the answer that shows that a target runs.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Timeout for finishing a case after a stop request.
const FINISH_MAX: Duration = Duration::from_secs(5);

/// The work of a case: preparation of a target, and the workers.
pub(crate) trait Bench {
    /// The worker of one connection.
    type Worker: Worker;

    /// Prepares one round, and returns one worker for each connection. Operations are numbered from 0 in each round,
    /// and from [`WARM_UP`] in a warm-up.
    async fn prepare(&self, target: &Target, spec: &RoundSpec) -> Result<Prepared<Self::Worker>>;

    /// Runs after a round: adds further figures and notes, and cleans up.
    async fn finish(&self, _target: &Target, _row: &mut Row) -> Result<()> {
        Ok(())
    }
}

/// The measurement to prepare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundSpec {
    /// Number of workers.
    pub(crate) connections: u32,
    /// Number of the round, from 0.
    pub(crate) round: u32,
}

/// Result of a preparation.
pub(crate) enum Prepared<W> {
    Ready(Vec<W>),
    /// The target cannot run the case, or its figures would be misleading. The text becomes the row's note.
    Unsupported(String),
}

/// Number of the first operation of a warm-up, far from all measured ones.
pub(crate) const WARM_UP: u64 = 1 << 40;

/// A case of a section, for every target.
#[derive(Clone, Debug)]
pub(crate) struct Case<B> {
    pub(crate) name: String,
    pub(crate) connections: u32,
    /// Position in a section with an axis.
    pub(crate) x: Option<f64>,
    /// Default length of a round. Options may replace it.
    pub(crate) until: LoadEnd,
    /// The case is no stream of operations: it allows no duration, no search for a rate, and a rate only if `paced`.
    pub(crate) exact: bool,
    /// A fixed number of operations at the rate of the options, if given.
    pub(crate) paced: bool,
    pub(crate) warm_up: LoadEnd,
    pub(crate) bench: B,
}

impl<B> Case<B> {
    /// Creates a stream of operations on one connection. Its warm-up is a tenth of it, at most 2,000 operations or two
    /// seconds.
    pub(crate) fn new(name: impl Into<String>, until: LoadEnd, bench: B) -> Case<B> {
        let warm_up = match until {
            LoadEnd::Operations(operations) => LoadEnd::Operations((operations / 10).clamp(1, 2000)),
            LoadEnd::Seconds(seconds) => LoadEnd::Seconds((seconds / 10.0).clamp(0.02, 2.0)),
        };
        Case { name: name.into(), connections: 1, x: None, until, exact: false, paced: false, warm_up, bench }
    }

    /// Fixes the numbers of operations and of warm-up operations, whatever the options are.
    pub(crate) fn with_fixed_operations(self, operations: u64, warm_up: u64) -> Case<B> {
        let (until, warm_up) = (LoadEnd::Operations(operations), LoadEnd::Operations(warm_up));
        Case { until, warm_up, exact: true, ..self }
    }
}

/// A case at one rate, or at the pace of the answers.
pub(super) type RatedCase<'a, B> = (&'a Case<B>, Option<f64>);

/// Position of a measurement's row in the report.
#[derive(Clone, Copy)]
struct Place {
    section: usize,
    row: usize,
}

impl Lab {
    /// Adds a section to the report.
    pub(crate) fn section(&mut self, id: &str, title: &str, about: &str, kind: Kind) -> usize {
        let base = self.targets.iter().find(|target| target.is_null_server).or(self.targets.first());
        self.report.sections.push(Section {
            id: id.to_string(),
            experiment: self.experiment.clone(),
            title: title.to_string(),
            about: about.to_string(),
            kind,
            base: base.map(|target| target.name.clone()),
            rows: Vec::new(),
        });
        self.report.sections.len() - 1
    }

    /// Measures cases on all targets, in rounds, into a section, once for each rate of the options. Then searches the
    /// highest rates if requested.
    pub(crate) async fn measure<B: Bench>(&mut self, section: usize, cases: &[Case<B>]) {
        let targets = self.targets.clone();
        let cases: Vec<RatedCase<B>> = cases.iter().flat_map(|case| self.paced(case)).collect();
        let kind = &mut self.report.sections[section].kind;
        if *kind != Kind::Growth && cases.iter().any(|(_, rate)| rate.is_some()) {
            *kind = Kind::Rates;
        }
        let first = self.add_rows(section, &cases);
        for round in 0..self.common.rounds {
            for (at, case) in cases.iter().enumerate() {
                for turn in 0..targets.len() {
                    let which = (turn + at + round as usize) % targets.len();
                    let position = Place { section, row: first + at * targets.len() + which };
                    self.spec(position, *case, &targets[which], round).await;
                    let row = self.row(position);
                    let last = row.rounds.last().map(|last| (last.rate(), last.latency.p99));
                    self.progress.end(last);
                }
            }
        }
        self.report_failures(section, first);
        self.report_load_warnings();
        self.find_rates(section, first, &cases).await;
    }

    /// Returns the number of measurements of these cases.
    pub(crate) fn measurements<B>(&self, cases: &[Case<B>]) -> usize {
        let paced: usize = cases.iter().map(|case| self.paced(case).len()).sum();
        paced * self.targets.len() * self.common.rounds as usize
    }

    /// Returns the case at each rate of the options, or without a rate.
    fn paced<'a, B>(&self, case: &'a Case<B>) -> Vec<RatedCase<'a, B>> {
        if self.common.rate.is_empty() || (case.exact && !case.paced) {
            return vec![(case, None)];
        }
        self.common.rate.iter().map(|rate| (case, Some(*rate))).collect()
    }

    /// Adds a row for each case and target. Returns the index of the first.
    fn add_rows<B>(&mut self, section: usize, cases: &[RatedCase<B>]) -> usize {
        let Lab { targets, report, .. } = self;
        let rows = &mut report.sections[section].rows;
        let first = rows.len();
        for (case, rate) in cases {
            rows.extend(targets.iter().map(|target| {
                let mut row = Row::new(&target.name, &case.name, case.connections);
                row.x = case.x.or(*rate);
                row
            }));
        }
        first
    }

    fn row(&mut self, position: Place) -> &mut Row {
        &mut self.report.sections[position.section].rows[position.row]
    }

    /// Measures one case on one target in one round. Records every error in the report.
    async fn spec<B: Bench>(
        &mut self,
        position: Place,
        paced: RatedCase<'_, B>,
        target: &Target,
        round: u32,
    ) {
        let (case, _) = paced;
        if self.row(position).note.is_some() {
            return;
        }
        if self.progress.stopped() {
            return self.mark_partial(position, "the run was stopped early");
        }
        if let Some(why) = self.reason_of_death(target) {
            return self.mark_partial(position, &why);
        }
        let connections = plural(case.connections.into(), "connection");
        let message = format!("{}, {connections}, round {} of {}", case.name, round + 1, self.common.rounds);
        self.progress.begin(&target.name, message);
        let progress = self.progress.clone();
        let spec = RoundSpec { connections: case.connections, round };
        let prepared = tokio::select! {
            prepared = case.bench.prepare(target, &spec) => prepared,
            () = progress.until_stopped() => return self.mark_partial(position, "the run was stopped early"),
            () = tokio::time::sleep(PREPARE_MAX) => {
                return self.mark_partial(position, "preparing it took more than half an hour");
            }
        };
        let result = match prepared {
            Ok(Prepared::Ready(workers)) => self.round(position, paced, target, workers).await,
            Ok(Prepared::Unsupported(why)) => return self.row(position).note = Some(why),
            Err(error) => Err(error),
        };
        let finished = async {
            result?;
            // A stop request does not wait for a server with a long backlog.
            let too_long = async {
                progress.until_stopped().await;
                tokio::time::sleep(FINISH_MAX).await;
            };
            tokio::select! {
                finished = case.bench.finish(target, self.row(position)) => return finished,
                () = too_long => {}
            }
            self.mark_partial(position, "the run was stopped early");
            Ok(())
        };
        let finished = finished.await;
        if let Err(error) = finished {
            self.record_error(position, target, error).await;
        }
    }

    /// Runs the warm-up, then the measurement.
    async fn round<B: Bench>(
        &mut self,
        position: Place,
        paced: RatedCase<'_, B>,
        target: &Target,
        mut workers: Vec<B::Worker>,
    ) -> Result<()> {
        let (case, rate) = paced;
        let warm_up = Load { rate: None, until: case.warm_up, first: WARM_UP };
        let warm = run_load(&mut workers, warm_up, &self.progress).await;
        if warm.ended != EndReason::Done {
            return self.ended_early(position, target, warm);
        }
        let seconds = self.common.duration.filter(|_| !case.exact);
        let seconds = seconds.map(|all| LoadEnd::Seconds(all / f64::from(self.common.rounds)));
        let load = Load { rate, until: seconds.unwrap_or(case.until), first: 0 };
        // Work on the file system matters if several file systems are compared.
        let counts = !self.common.data_on.is_empty();
        let storage = if counts { Some(Counters::of(target, None).await) } else { None };
        let before = target.usage();
        let outcome = run_load(&mut workers, load, &self.progress).await;
        let after = target.usage();
        let stored = if counts { Some(Counters::of(target, None).await) } else { None };
        let cpu = Usage::cpu_between(before, after);
        self.check_outcome(target, &case.name, load, &outcome, cpu);
        let row = self.row(position);
        add_round(row, &outcome, cpu);
        if let Some((before, after)) = storage.zip(stored) {
            after.add_storage(before, row);
        }
        row.resident_bytes = after.map(|usage| usage.resident_bytes).or(row.resident_bytes);
        self.ended_early(position, target, outcome)
    }

    /// Records the reason of an early end in the report.
    fn ended_early(&mut self, position: Place, target: &Target, outcome: LoadResult) -> Result<()> {
        let case = self.row(position).case.clone();
        match outcome.ended {
            EndReason::Done => {}
            EndReason::Behind => {
                let (name, unserved) = (&target.name, outcome.unserved);
                let what = "the run fell behind its schedule, and";
                self.warn(format!("{name}, {case}: {what} {unserved} operations were never sent"));
            }
            EndReason::Stopped => self.mark_partial(position, "the run was stopped early"),
            EndReason::Hung => return Err(target.error("does not respond any more")),
            EndReason::Broken => {
                return Err(outcome.first_error.clone().unwrap_or_else(|| target.error("fails")));
            }
        }
        Ok(())
    }

    /// Marks the row as partial, and keeps its figures.
    fn mark_partial(&mut self, position: Place, why: &str) {
        let row = self.row(position);
        row.partial = row.operations > 0;
        let message = if row.partial { "cut short" } else { "not measured" };
        row.note.get_or_insert_with(|| format!("{message}: {why}"));
    }

    /// Records an error. If the target is gone, its other rows are skipped.
    async fn record_error(&mut self, position: Place, target: &Target, error: Error) {
        let message = match error {
            Error::Target { message, .. } => message,
            other => other.to_string(),
        };
        let case = self.row(position).case.clone();
        self.mark_partial(position, &message);
        let answer = tokio::time::timeout(ANSWER_MAX, target.handshake()).await;
        if matches!(answer, Ok(Ok(()))) {
            self.fail(target.error(format!("{case}: {message}")));
        } else {
            self.mark_dead(target, &format!("it was not running after {case}"));
            self.fail(target.error(format!("crashed or became unreachable, in {case}: {message}")));
        }
    }

    /// Reports occasional failures once for each row.
    fn report_failures(&mut self, section: usize, first: usize) {
        let rows = self.report.sections[section].rows[first..].iter();
        let failed: Vec<Row> = rows.filter(|row| row.failures > 0 && row.note.is_none()).cloned().collect();
        for Row { target: name, case, operations, failures, first_error, .. } in failed {
            let (all, why) = (operations + failures, first_error.unwrap_or_default());
            let message = format!("{case}: {failures} of {all} operations failed, the first: {why}");
            self.fail(Error::Target { name, message });
        }
    }
}

/// Adds the result of a load to its row.
pub(super) fn add_round(row: &mut Row, outcome: &LoadResult, cpu: Option<Duration>) {
    row.failures += outcome.failures;
    row.late += outcome.late;
    if outcome.service.count() > 0 {
        row.service.get_or_insert_default().merge(&outcome.service);
    }
    if row.first_error.is_none() {
        row.first_error = outcome.first_error.as_ref().map(ToString::to_string);
    }
    row.timeline = outcome.timeline.clone();
    let cpu = cpu.filter(|_| outcome.operations() > 0);
    row.add(&outcome.latency, outcome.seconds, cpu, outcome.ended != EndReason::Done);
}
