//! Measures cases on targets: rounds in which the targets take turns, each time with a warm-up,
//! and with the server's processor time beside.
//!
//! What one target does to a measurement stays with that target: a refusal becomes the note of a
//! row, a server that dies keeps what was measured until then and is left out from there on, and
//! the others go on.

use super::drive::{Ended, Outcome, drive};
use super::{Load, Pace, Until, Worker};
use crate::load::Lab;
use crate::report::figures::plural;
use crate::result::{Kind, Row, Section};
use crate::target::{Counters, Protocol, Target, Usage};
use crate::{Error, Result};
use mongodb::bson::doc;
use std::time::Duration;

/// For how long a case may be prepared.
const PREPARE_MAX: Duration = Duration::from_secs(1800);

/// For how long a case may take to finish once somebody wants the run to end.
const FINISH_MAX: Duration = Duration::from_secs(5);

/// What is done in a case: how a target is prepared for it, and who does the work.
pub(crate) trait Bench {
    /// One connection's side of it.
    type Worker: Worker;

    /// Makes everything ready for one round, and one worker for each connection. Operations are
    /// numbered from 0 in each round; those of the warm-up from [`WARM_UP`].
    async fn prepare(&self, target: &Target, visit: &Visit) -> Result<Prepared<Self::Worker>>;

    /// After a round: figures beside the latencies, notes, cleaning up.
    async fn finish(&self, _target: &Target, _row: &mut Row) -> Result<()> {
        Ok(())
    }
}

/// Which measurement is prepared for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    /// So many workers are wanted.
    pub(crate) connections: u32,
    /// From 0.
    pub(crate) round: u32,
}

/// What preparing came to.
pub(crate) enum Prepared<W> {
    Ready(Vec<W>),
    /// This target can't do it, or its figures would say something else: the row's note.
    Cannot(String),
}

/// The number of the first operation of a warm-up: far from all that are measured.
pub(crate) const WARM_UP: u64 = 1 << 40;

/// A line of a section, for every target.
#[derive(Clone, Debug)]
pub(crate) struct Case<B> {
    pub(crate) name: String,
    pub(crate) connections: u32,
    /// The number it stands for in a section that grows along one.
    pub(crate) x: Option<f64>,
    /// How much a round is, unless the options say for how long.
    pub(crate) until: Until,
    /// These operations are not a stream: no duration, no search for a rate, and, unless `paced`, no rate.
    pub(crate) exact: bool,
    /// So many operations at the rate of the options, if there is one.
    pub(crate) paced: bool,
    pub(crate) warm_up: Until,
    pub(crate) bench: B,
}

impl<B> Case<B> {
    /// A stream of operations on one connection, warmed up by a tenth as many, 2,000 at most (or a
    /// tenth of the time, two seconds at most).
    pub(crate) fn new(name: impl Into<String>, until: Until, bench: B) -> Case<B> {
        let warm_up = match until {
            Until::Operations(operations) => Until::Operations((operations / 10).clamp(1, 2000)),
            Until::Seconds(seconds) => Until::Seconds((seconds / 10.0).clamp(0.02, 2.0)),
        };
        Case { name: name.into(), connections: 1, x: None, until, exact: false, paced: false, warm_up, bench }
    }

    /// On so many connections.
    pub(crate) fn on(self, connections: u32) -> Case<B> {
        Case { connections, ..self }
    }

    /// So many operations whatever the options say, and so many before.
    pub(crate) fn exactly(self, operations: u64, warm_up: u64) -> Case<B> {
        let (until, warm_up) = (Until::Operations(operations), Until::Operations(warm_up));
        Case { until, warm_up, exact: true, ..self }
    }

    /// Exactly so many operations, but at the rate of the options.
    pub(crate) fn paced(self) -> Case<B> {
        Case { paced: true, ..self }
    }

    fn takes_a_rate(&self) -> bool {
        !self.exact || self.paced
    }

    /// At this number of the section's axis.
    pub(crate) fn at(self, x: f64) -> Case<B> {
        Case { x: Some(x), ..self }
    }
}

/// A case at one rate, or at the pace of the answers.
type Paced<'a, B> = (&'a Case<B>, Option<f64>);

/// Where a measurement's row is in the report.
#[derive(Clone, Copy)]
struct Place {
    section: usize,
    row: usize,
}

impl Lab {
    /// Begins a section of the report, to measure cases in.
    pub(crate) fn section(&mut self, id: &str, title: &str, about: &str, kind: Kind) -> usize {
        let base = self.targets.iter().find(|target| target.is_floor).or(self.targets.first());
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

    /// Measures cases on all targets, in rounds, into a section; at each of the rates, if there are
    /// several; then, if that is asked, searches for the highest rates.
    pub(crate) async fn measure<B: Bench>(&mut self, section: usize, cases: &[Case<B>]) {
        let targets = self.targets.clone();
        let cases: Vec<Paced<B>> = cases.iter().flat_map(|case| self.paced(case)).collect();
        let kind = &mut self.report.sections[section].kind;
        if *kind != Kind::Growth && cases.iter().any(|(_, rate)| rate.is_some()) {
            *kind = Kind::Rates;
        }
        let first = self.add_rows(section, &cases);
        for round in 0..self.common.rounds {
            for (at, case) in cases.iter().enumerate() {
                for turn in 0..targets.len() {
                    let which = (turn + at + round as usize) % targets.len();
                    let place = Place { section, row: first + at * targets.len() + which };
                    self.visit(place, *case, &targets[which], round).await;
                    let row = self.row(place);
                    let last = row.rounds.last().map(|last| (last.rate(), last.latency.p99));
                    self.progress.end(last);
                }
            }
        }
        self.tell_failures(section, first);
        self.tell_suspicions();
        if let Some(limit) = self.common.find_rate {
            let cases: Vec<&Case<B>> = cases.iter().map(|(case, _)| *case).collect();
            self.find_rates(section, first, &cases, limit).await;
        }
    }

    /// How many measurements these cases are.
    pub(crate) fn measurements<B>(&self, cases: &[Case<B>]) -> usize {
        let paced: usize = cases.iter().map(|case| self.paced(case).len()).sum();
        paced * self.targets.len() * self.common.rounds as usize
    }

    /// A case at each rate of the options, or at none.
    fn paced<'a, B>(&self, case: &'a Case<B>) -> Vec<Paced<'a, B>> {
        if self.common.rate.is_empty() || !case.takes_a_rate() {
            return vec![(case, None)];
        }
        self.common.rate.iter().map(|rate| (case, Some(*rate))).collect()
    }

    fn add_rows<B>(&mut self, section: usize, cases: &[Paced<B>]) -> usize {
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

    fn row(&mut self, place: Place) -> &mut Row {
        &mut self.report.sections[place.section].rows[place.row]
    }

    /// One case on one target in one round; whatever goes wrong is in the report afterwards.
    async fn visit<B: Bench>(&mut self, place: Place, paced: Paced<'_, B>, target: &Target, round: u32) {
        let (case, _) = paced;
        if self.row(place).note.is_some() {
            return;
        }
        if self.progress.stopped() {
            return self.cut(place, "the run was ended early");
        }
        if let Some(why) = self.lost(target) {
            return self.cut(place, &why);
        }
        let rounds = self.common.rounds;
        let what = format!(
            "{}, {}, round {} of {rounds}",
            case.name,
            plural(case.connections.into(), "connection"),
            round + 1
        );
        self.progress.begin(&target.name, what);
        let progress = self.progress.clone();
        let visit = Visit { connections: case.connections, round };
        let prepared = tokio::select! {
            prepared = case.bench.prepare(target, &visit) => prepared,
            () = progress.until_stopped() => return self.cut(place, "the run was ended early"),
            () = tokio::time::sleep(PREPARE_MAX) => {
                return self.cut(place, "preparing it took more than half an hour");
            }
        };
        let result = match prepared {
            Ok(Prepared::Ready(workers)) => self.round(place, paced, target, workers).await,
            Ok(Prepared::Cannot(why)) => {
                self.row(place).note = Some(why);
                return;
            }
            Err(error) => Err(error),
        };
        let finished = match result {
            Ok(()) => {
                // Whoever wants the run to end doesn't wait for a server that has much to catch up with.
                let too_long = async {
                    progress.until_stopped().await;
                    tokio::time::sleep(FINISH_MAX).await;
                };
                let finished = tokio::select! {
                    finished = case.bench.finish(target, self.row(place)) => Some(finished),
                    () = too_long => None,
                };
                finished.unwrap_or_else(|| {
                    self.cut(place, "the run was ended early");
                    Ok(())
                })
            }
            failed => failed,
        };
        if let Err(error) = finished {
            self.trouble(place, target, error).await;
        }
    }

    /// Warm-up, then the measurement.
    async fn round<B: Bench>(
        &mut self,
        place: Place,
        paced: Paced<'_, B>,
        target: &Target,
        mut workers: Vec<B::Worker>,
    ) -> Result<()> {
        let (case, _) = paced;
        let warm_up = Load { pace: Pace::Closed, until: case.warm_up, first: WARM_UP };
        let warm = drive(&mut workers, warm_up, &self.progress).await;
        if warm.ended != Ended::Done {
            return self.ended_early(place, target, warm);
        }
        let load = self.load_of(paced);
        // Where file systems stand side by side, what is done to them is what they differ by.
        let counts = !self.common.data_on.is_empty();
        let storage = if counts { Some(Counters::of(target, None).await) } else { None };
        let before = target.usage();
        let outcome = drive(&mut workers, load, &self.progress).await;
        let after = target.usage();
        let stored = if counts { Some(Counters::of(target, None).await) } else { None };
        let cpu = Usage::cpu_between(before, after);
        self.suspect(target, &case.name, load, &outcome, cpu);
        let row = self.row(place);
        add_round(row, &outcome, cpu);
        if let Some((before, after)) = storage.zip(stored) {
            after.add_storage(before, row);
        }
        row.resident_bytes = after.map(|usage| usage.resident_bytes).or(row.resident_bytes);
        self.ended_early(place, target, outcome)
    }

    /// What the options make of a case.
    fn load_of<B>(&self, (case, rate): Paced<B>) -> Load {
        let seconds = self.common.duration.map(|all| Until::Seconds(all / f64::from(self.common.rounds)));
        let seconds = seconds.filter(|_| !case.exact);
        let pace = rate.map_or(Pace::Closed, |rate| Pace::Open { rate });
        Load { pace, until: seconds.unwrap_or(case.until), first: 0 }
    }

    /// Turns a drive that didn't come to its end into what the report says of it.
    fn ended_early(&mut self, place: Place, target: &Target, outcome: Outcome) -> Result<()> {
        match outcome.ended {
            Ended::Done => Ok(()),
            Ended::Behind => {
                let (unserved, case) = (outcome.unserved, self.row(place).case.clone());
                let name = &target.name;
                self.warn(format!("{name}, {case}: it fell so far behind the schedule that {unserved} operations were never sent"));
                Ok(())
            }
            Ended::Stopped => {
                self.cut(place, "the run was ended early");
                Ok(())
            }
            Ended::Hung => Err(target.error("doesn't answer any more")),
            Ended::Broken => Err(outcome.first_error.clone().unwrap_or_else(|| target.error("fails"))),
        }
    }

    /// The row ends here: what it has stays, marked.
    fn cut(&mut self, place: Place, why: &str) {
        let row = self.row(place);
        row.partial = row.operations > 0;
        let what = if row.partial { "cut short" } else { "not measured" };
        row.note.get_or_insert_with(|| format!("{what}: {why}"));
    }

    /// Something failed: whether the whole target is gone decides what becomes of its other rows.
    async fn trouble(&mut self, place: Place, target: &Target, error: Error) {
        let message = match &error {
            Error::Target { message, .. } => message.clone(),
            other => other.to_string(),
        };
        let case = self.row(place).case.clone();
        self.cut(place, &message);
        if is_alive(target).await {
            self.fail(target.error(format!("{case}: {message}")));
        } else {
            self.lose(target, &format!("it was gone after {case}"));
            self.fail(target.error(format!("died or can't be reached any more, in {case}: {message}")));
        }
    }

    /// Operations that failed here and there are told once for each row.
    fn tell_failures(&mut self, section: usize, first: usize) {
        let rows = self.report.sections[section].rows.iter().skip(first);
        let failed = rows.filter(|row| row.failures > 0 && row.note.is_none());
        let errors: Vec<Error> = failed
            .map(|row| {
                let all = row.operations + row.failures;
                let why = row.first_error.as_deref().unwrap_or("no reason is known");
                let message =
                    format!("{}: {} of {all} operations failed, the first: {why}", row.case, row.failures);
                Error::Target { name: row.target.clone(), message }
            })
            .collect();
        errors.into_iter().for_each(|error| self.fail(error));
    }
}

/// Whether a target answers at all.
async fn is_alive(target: &Target) -> bool {
    let asked = async {
        match target.protocol {
            Protocol::Mongo => target.ask(doc! { "ping": 1 }).await.map(drop),
            Protocol::Postgres => target.postgres().await.map(drop),
        }
    };
    matches!(tokio::time::timeout(Duration::from_secs(10), asked).await, Ok(Ok(())))
}

/// Adds what a drive found to its row.
pub(super) fn add_round(row: &mut Row, outcome: &Outcome, cpu: Option<Duration>) {
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
    row.add(&outcome.latency, outcome.seconds, cpu, outcome.ended != Ended::Done);
}
