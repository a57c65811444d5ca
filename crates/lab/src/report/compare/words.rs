//! A comparison in sentences and as a table.

use super::difference::{Comparison, Difference, Pair, Verdict};
use super::limit::{Limit, Metric};
use crate::report::grid::{Grid, Line, NOTHING};
use crate::report::{figures, groups};
use crate::result::Report;

/// The figures that are always shown.
const SHOWN: [Metric; 3] = [Metric::Rate, Metric::P50, Metric::P99];

/// What stands before a difference that the rounds can't tell from none.
const UNSURE: &str = "≈";

/// The most differences told in sentences.
const TOLD_MOST: usize = 12;

/// The figures that a comparison shows: those always shown, and those with a limit.
pub(crate) fn shown(limits: &[Limit]) -> Vec<Metric> {
    let wanted =
        |metric: &Metric| SHOWN.contains(metric) || limits.iter().any(|limit| limit.metric == *metric);
    Metric::ALL.into_iter().filter(wanted).collect()
}

/// A section's rows as a table.
pub(crate) fn grid(pairs: &[Pair], metrics: &[Metric]) -> Grid {
    let cell = |difference: &Difference| {
        let unsure = if difference.verdict() == Verdict::Unsure { UNSURE } else { "" };
        let [before, after] =
            [difference.before, difference.after].map(|value| difference.metric.text(value));
        format!("{before} → {after} {unsure}{}", figures::change(difference.ratio()))
    };
    let mut last = "";
    let mut lines = Vec::new();
    for pair in pairs {
        let cells = metrics.iter().map(|metric| pair.difference(*metric).map_or(NOTHING.to_string(), cell));
        lines.push(Line {
            case: pair.label.clone(),
            opens: last != pair.label,
            target: pair.target.clone(),
            cells: cells.collect(),
            share: 0.0,
            note: None,
        });
        last = &pair.label;
    }
    let heads = metrics.iter().map(|metric| metric.title().to_string()).collect();
    Grid { heads, lines, notes: Vec::new() }
}

/// What changed for sure, the most changed first; or that nothing did.
pub(crate) fn findings(comparison: &Comparison, metrics: &[Metric]) -> Vec<String> {
    let told = comparison
        .all()
        .filter(|(_, _, each)| metrics.contains(&each.metric) && each.verdict() != Verdict::Unsure);
    let mut told: Vec<_> = told.collect();
    let size = |difference: &Difference| difference.ratio().ln().abs();
    told.sort_by(|a, b| size(b.2).total_cmp(&size(a.2)));
    let compared = comparison.all().filter(|(_, _, each)| metrics.contains(&each.metric)).count();
    let mut found = vec![match told.len() {
        0 => format!("Of {} compared, none differs for sure.", figures::plural(compared as u64, "figure")),
        n => format!("Of {} compared, {} for sure.", figures::plural(compared as u64, "figure"), differ(n)),
    }];
    found.extend(told.iter().take(TOLD_MOST).map(|(section, pair, difference)| {
        let verdict = if difference.verdict() == Verdict::Better { "better" } else { "worse" };
        format!("{verdict}: {}", sentence(&section.title, pair, difference))
    }));
    if told.len() > TOLD_MOST {
        found.push(format!("… and {} more.", figures::count((told.len() - TOLD_MOST) as u64)));
    }
    found
}

fn differ(number: usize) -> String {
    if number == 1 { "1 differs".to_string() } else { format!("{} differ", figures::count(number as u64)) }
}

/// "Single inserts, 8 connections, memory: p99 from 1.20 ms to 1.50 ms, +25 % (…)".
fn sentence(title: &str, pair: &Pair, difference: &Difference) -> String {
    let [before, after] = [difference.before, difference.after].map(|value| difference.metric.text(value));
    let (name, told) = (difference.metric.title(), difference.told());
    format!("{title}, {}, {}: {name} from {before} to {after}, {told}", pair.label, pair.target)
}

/// The rows that passed a limit for sure, the floor's aside, which is no server; and, since a row that is gone can't be shown to
/// keep one, those.
pub(crate) fn passed(comparison: &Comparison, limits: &[Limit]) -> Vec<String> {
    let mut found = Vec::new();
    for limit in limits {
        let past = judged(comparison, limit)
            .filter(|(_, _, each)| limit.passed(each.ratio()) && each.verdict() != Verdict::Unsure);
        found.extend(past.map(|(section, pair, difference)| {
            format!("{}: {}", limit.text, sentence(&section.title, pair, difference))
        }));
    }
    if !limits.is_empty() {
        found.extend(comparison.gone.iter().map(|row| format!("not measured any more: {row}")));
    }
    found
}

/// The differences that a limit is about.
fn judged<'a>(
    comparison: &'a Comparison,
    limit: &Limit,
) -> impl Iterator<Item = (&'a super::difference::Compared, &'a Pair, &'a Difference)> {
    let (floor, metric) = (comparison.floor.clone(), limit.metric);
    comparison.all().filter(move |(_, pair, each)| {
        each.metric == metric && Some(pair.target.as_str()) != floor.as_deref()
    })
}

/// The first limit that nothing could ever pass, since no row has rounds enough for a sure difference.
pub(crate) fn undecidable<'a>(comparison: &Comparison, limits: &'a [Limit]) -> Option<&'a Limit> {
    limits.iter().find(|limit| judged(comparison, limit).all(|(_, _, each)| each.interval.is_none()))
}

/// What a reader must know before believing a difference.
pub(crate) fn warnings(before: &Report, after: &Report, comparison: &Comparison) -> Vec<String> {
    let mut found = Vec::new();
    if before.experiment != after.experiment {
        found.push(format!(
            "These are different experiments: {} and {}.",
            before.experiment, after.experiment
        ));
    }
    found.extend(floor_moved(after, comparison));
    for (when, report) in [("before", before), ("after", after)] {
        found.extend(report.smoke_test().map(|text| format!("The run of {when}: {text}")));
        found.extend(crate::report::shortened(report).map(|text| format!("The run of {when}: {text}")));
    }
    for target in &after.targets {
        let old = before.targets.iter().find(|old| old.name == target.name);
        let differs = |old: &&crate::result::TargetInfo| {
            let (old, new) = (&old.fingerprint, &target.fingerprint);
            (&old.server, &old.engine, old.promise) != (&new.server, &new.engine, new.promise)
        };
        if let Some(old) = old.filter(differs) {
            let [old, new] = [old, target].map(crate::report::terminal::describe);
            found.push(format!("{} isn't the same server: {old}; then {new}.", target.name));
        }
    }
    for (name, value) in &after.environment {
        let old = before.environment.iter().find(|(other, old)| other == name && old != value);
        if let Some((_, old)) = old {
            found.push(format!("The environment differs: {name} was {old}, then {value}."));
        }
    }
    found.extend(before.errors.iter().map(|error| format!("The run of before had an error: {error}")));
    found.extend(after.errors.iter().map(|error| format!("The run of after had an error: {error}")));
    found
}

/// The floor does the same in every version: where it moved, the machine did.
fn floor_moved(after: &Report, comparison: &Comparison) -> Option<String> {
    let floor = groups::floor(after)?;
    let medians =
        comparison.all().filter(|(_, pair, each)| pair.target == floor && each.metric == Metric::P50);
    let mut ratios: Vec<f64> = medians.map(|(_, _, each)| each.ratio()).collect();
    ratios.sort_by(f64::total_cmp);
    let typical = *ratios.get(ratios.len() / 2)?;
    (!(0.95..=1.05).contains(&typical)).then(|| {
        format!(
            "The {floor}, which does the same in every version, changed by {} (p50, typically): that much of every difference is the machine's.",
            figures::change(typical)
        )
    })
}
