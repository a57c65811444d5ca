//! `vellum lab compare`: differences between two runs with their confidence, and checks of limits (`p99>+10%`,
//! `rate<-5%`); or several runs side by side. A new figure is a row of [`FIGURES`].

mod difference;

pub(super) use difference::Comparison;

use super::grid::{self, Grid, NOTHING};
use super::terminal::{self, Page};
use super::{figures, html, print, read_json, save};
use crate::options::Compare;
use crate::result::{Report, Round, Row, TargetInfo};
use crate::{Error, Result};
use console::Style;
use difference::{Difference, Pair, Verdict};
use serde_json::json;
use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

/// Mark before a difference that the rounds do not prove.
const UNSURE: &str = "≈";

/// Prints and draws the differences. The exit code is 1 if a limit was exceeded.
///
/// # Errors
/// Invalid limits or files: nothing was compared.
pub(crate) fn run(options: &Compare) -> Result<ExitCode> {
    let passed = compare(options, &mut std::io::stdout())?;
    Ok(if passed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the rows beyond a limit.
fn compare(options: &Compare, out: &mut dyn Write) -> Result<Vec<String>> {
    let limits = options.fail_if.iter().map(|text| Limit::parse(text).map_err(Error::Input));
    let limits = limits.collect::<Result<Vec<Limit>>>()?;
    if !options.more.is_empty() {
        return side_by_side(options, out).map(|()| Vec::new());
    }
    let (before, after) = (read_json(&options.before)?, read_json(&options.after)?);
    let comparison = Comparison::new(&before, &after);
    if comparison.sections.is_empty() {
        return Err(Error::Input(format!(
            "the reports {} and {} have no row in common",
            before.experiment, after.experiment
        )));
    }
    let unproven = |limit: &&Limit| comparison.of(limit.metric).all(|(_, _, each)| each.interval.is_none());
    if let Some(Limit { text, .. }) = limits.iter().find(unproven) {
        let message = "a significant difference needs three rounds of each run: measure with --rounds 3";
        return Err(Error::Input(format!("--fail-if {text}: {message}")));
    }
    let shown = |metric: &Metric| {
        Metric::SHOWN.contains(metric) || limits.iter().any(|limit| limit.metric == *metric)
    };
    let metrics: Vec<Metric> = Metric::all().filter(shown).collect();
    let lists = [
        ("Exceeded limits", exceeded(&comparison, &limits)),
        ("Warnings", warnings(&before, &after, &comparison)),
        ("Not measured any more", comparison.missing.clone()),
        ("New", comparison.new.clone()),
    ];
    let page = Page::of_stdout();
    let mut text = format!("\n{}\n", page.bold(&format!("{}: {} → {}", after.title, before.id, after.id)));
    let _ = writeln!(
        text,
        "{}",
        page.dim("before → after, and the change; ≈ if the change is within the noise of the rounds")
    );
    for section in &comparison.sections {
        let _ = writeln!(text, "\n{}", page.bold(&section.title));
        text += &terminal::table(&grid(&section.pairs, &metrics), page);
    }
    for (heading, items) in lists.iter().rev() {
        text += &page.list(heading, "!", Style::new().yellow(), items);
    }
    print(out, &text)?;
    if let Some(path) = &options.report {
        save(out, path, &html::compared(&before, &after, &comparison, json!(lists)))?;
    }
    let [(_, passed), ..] = lists;
    Ok(passed)
}

/// Returns the rows of a section as a table.
pub(super) fn grid(pairs: &[Pair], metrics: &[Metric]) -> Grid {
    let cell = |difference: &Difference| {
        let unsure = if difference.verdict() == Verdict::Unsure { UNSURE } else { "" };
        let [before, after] =
            [difference.before, difference.after].map(|value| difference.metric.text(value));
        format!("{before} → {after} {unsure}{}", figures::change(difference.ratio()))
    };
    let mut grid = Grid::new(metrics.iter().map(|metric| metric.figure().title.to_string()));
    for pair in pairs {
        let cells = metrics.iter().map(|metric| pair.difference(*metric).map_or(NOTHING.to_string(), cell));
        grid.push(pair.label.clone(), pair.target.clone(), cells.collect(), None);
    }
    grid
}

/// Compares several runs, one column each.
fn side_by_side(options: &Compare, out: &mut dyn Write) -> Result<()> {
    if !options.fail_if.is_empty() {
        return Err(Error::Input("--fail-if compares two runs, not more".to_string()));
    }
    if options.report.is_some() {
        return Err(Error::Input("--report shows two runs, not more".to_string()));
    }
    let paths = [&options.before, &options.after].into_iter().chain(&options.more);
    let reports: Vec<Report> = paths.map(|path| read_json(path)).collect::<Result<_>>()?;
    let page = Page::of_stdout();
    let mut text = String::new();
    for (number, report) in (1..).zip(&reports) {
        let _ = writeln!(text, "run {number}: {}, {}", report.id, machine(report));
    }
    for section in reports.first().map_or(&[][..], |first| &first.sections) {
        let others: Vec<_> =
            reports.iter().map(|report| report.sections.iter().find(|s| s.id == section.id)).collect();
        let heads = Metric::SHOWN.into_iter().flat_map(|metric| {
            (1..=reports.len()).map(move |number| format!("{} ({number})", metric.figure().title))
        });
        let mut grid = Grid::new(heads);
        for row in &section.rows {
            let found = others.iter().map(|other| other.and_then(|other| difference::measured(other, row)));
            let found: Vec<_> = found.collect();
            let cell = |metric: Metric| {
                let text =
                    |row: &Option<_>| row.and_then(|row| metric.of(row)).map(|value| metric.text(value));
                found.iter().map(move |row| text(row).unwrap_or(NOTHING.to_string())).collect::<Vec<_>>()
            };
            let cells = Metric::SHOWN.into_iter().flat_map(cell).collect();
            grid.push(difference::label_at(grid::label(section, row), row), row.target.clone(), cells, None);
        }
        let _ = writeln!(text, "\n{}", page.bold(&section.title));
        text += &terminal::table(&grid, page);
    }
    print(out, &text)
}

/// Returns processors and system of a report, to detect a comparison across machines.
fn machine(report: &Report) -> String {
    let known = report.environment.iter().filter(|(name, _)| name == "processors" || name == "system");
    known.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(", ")
}

/// Returns the rows that surely exceed a limit. Excludes the null server, which is no server. Includes missing rows,
/// since they cannot be shown to keep a limit.
fn exceeded(comparison: &Comparison, limits: &[Limit]) -> Vec<String> {
    let mut violations = Vec::new();
    for limit in limits {
        let past = comparison
            .of(limit.metric)
            .filter(|(_, _, each)| limit.passed(each.ratio()) && each.verdict() != Verdict::Unsure);
        violations.extend(past.map(|(section, pair, each)| {
            let [before, after] = [each.before, each.after].map(|value| each.metric.text(value));
            let row = format!("{}, {}, {}", section.title, pair.label, pair.target);
            format!("{}: {row}: {before} → {after}, {}", limit.text, each.describe())
        }));
    }
    if !limits.is_empty() {
        violations.extend(comparison.missing.iter().map(|row| format!("not measured any more: {row}")));
    }
    violations
}

/// Returns reasons to doubt the differences.
fn warnings(before: &Report, after: &Report, comparison: &Comparison) -> Vec<String> {
    let mut warnings = Vec::new();
    if before.experiment != after.experiment {
        warnings.push(format!("different experiments: {} → {}", before.experiment, after.experiment));
    }
    warnings.extend(baseline_moved(after, comparison));
    for (when, report) in [("before", before), ("after", after)] {
        warnings.extend(report.smoke_test().map(|text| format!("{when}: {text}")));
        warnings.extend(report.errors.iter().map(|error| format!("{when}: {error}")));
    }
    for target in &after.targets {
        let old = before.targets.iter().find(|old| old.name == target.name);
        let promises = |of: &TargetInfo| {
            let print = &of.fingerprint;
            (print.server.clone(), print.engine.clone(), print.promise)
        };
        if let Some(old) = old.filter(|old| promises(old) != promises(target)) {
            let [old, new] = [old, target].map(terminal::describe);
            warnings.push(format!("{}: {old} → {new}", target.name));
        }
    }
    for (name, value) in &after.environment {
        let old = before.environment.iter().find(|(other, old)| other == name && old != value);
        warnings.extend(old.map(|(_, old)| format!("{name}: {old} → {value}")));
    }
    warnings
}

/// Returns a warning if the null server changed. The null server does equal work in every version, so a change comes
/// from the machine.
fn baseline_moved(after: &Report, comparison: &Comparison) -> Option<String> {
    let baseline = grid::baseline(after)?;
    let medians =
        comparison.all().filter(|(_, pair, each)| pair.target == baseline && each.metric == Metric::P50);
    let mut ratios: Vec<f64> = medians.map(|(_, _, each)| each.ratio()).collect();
    ratios.sort_by(f64::total_cmp);
    let typical = *ratios.get(ratios.len() / 2)?;
    let moved = !(0.95..=1.05).contains(&typical);
    moved.then(|| format!("{baseline}: p50 {}: the machine itself differs as much", figures::change(typical)))
}

/// A figure of a row.
pub(crate) struct Figure {
    /// Name in a limit.
    pub(crate) name: &'static str,
    /// Title in a table.
    pub(crate) title: &'static str,
    of: fn(&Round) -> Option<f64>,
}

/// A figure, by its index in the list of all figures.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Metric(usize);

const FIGURES: [Figure; 8] = [
    Figure { name: "rate", title: "ops/s", of: |round| Some(round.rate()) },
    Figure { name: "p50", title: "p50", of: |round| Some(round.latency.p50) },
    Figure { name: "p90", title: "p90", of: |round| Some(round.latency.p90) },
    Figure { name: "p95", title: "p95", of: |round| Some(round.latency.p95) },
    Figure { name: "p99", title: "p99", of: |round| Some(round.latency.p99) },
    Figure { name: "p999", title: "p99.9", of: |round| Some(round.latency.p999) },
    Figure { name: "max", title: "max", of: |round| Some(round.latency.max) },
    Figure { name: "cpu", title: "CPU/op", of: |round| round.cpu_microseconds },
];

impl Metric {
    pub(crate) const RATE: Metric = Metric(0);
    pub(crate) const P50: Metric = Metric(1);

    /// The figures shown by default.
    pub(crate) const SHOWN: [Metric; 3] = [Metric::RATE, Metric::P50, Metric(4)];

    pub(crate) fn all() -> impl Iterator<Item = Metric> {
        (0..FIGURES.len()).map(Metric)
    }

    pub(crate) fn figure(self) -> &'static Figure {
        &FIGURES[self.0]
    }

    /// Returns the figure over all rounds, if available.
    pub(crate) fn of(self, row: &Row) -> Option<f64> {
        self.of_round(&row.totals()).filter(|_| row.operations > 0)
    }

    /// Returns the figure of one round.
    pub(crate) fn of_round(self, round: &Round) -> Option<f64> {
        (self.figure().of)(round).filter(|value| *value > 0.0)
    }

    /// Formats the figure.
    pub(crate) fn text(self, value: f64) -> String {
        if self == Metric::RATE { figures::number(value) } else { figures::latency(value) }
    }
}

/// A limit of a change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limit {
    pub(crate) metric: Metric,
    /// True if larger ratios exceed it.
    above: bool,
    /// Limit of the ratio of after to before.
    ratio: f64,
    /// Original text.
    pub(crate) text: String,
}

impl Limit {
    /// Parses a limit.
    ///
    /// # Errors
    /// A message with the error and the correct syntax.
    pub(crate) fn parse(text: &str) -> std::result::Result<Limit, String> {
        let invalid = |message: &str| {
            format!(
                "'{text}' is not a limit: {message}. Write a metric, > or <, and a change in percent, such as \
                 'p99>+10%' or 'rate<-5%'"
            )
        };
        let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let at = compact.find(['>', '<']).ok_or_else(|| invalid("it has neither > nor <"))?;
        let (name, rest) = compact.split_at(at);
        let metric =
            Metric::all().find(|metric| [metric.figure().name, metric.figure().title].contains(&name));
        let names = FIGURES.map(|figure| figure.name.to_string());
        let metric =
            metric.ok_or_else(|| invalid(&format!("'{name}' is not one of {}", figures::list(&names))))?;
        let percent = rest[1..].strip_suffix('%').ok_or_else(|| invalid("it doesn't end with %"))?;
        let number: f64 = percent.parse().map_err(|_| invalid(&format!("'{percent}' is not a number")))?;
        if !number.is_finite() || number <= -100.0 {
            return Err(invalid("a change must be above -100%"));
        }
        let above = rest.starts_with('>');
        Ok(Limit { metric, above, ratio: 1.0 + number / 100.0, text: compact })
    }

    /// Returns true if a ratio of after to before exceeds the limit.
    pub(crate) fn passed(&self, ratio: f64) -> bool {
        if self.above { ratio > self.ratio } else { ratio < self.ratio }
    }
}

#[cfg(test)]
mod tests;
