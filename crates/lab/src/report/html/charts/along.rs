//! Pictures along a number: sizes that grow, rates that were asked.

use super::{Figure, HEIGHT, Mark, Panel, in_words, ranges};
use crate::report::html::colours::Colours;
use crate::report::html::svg::{Plot, Scale};
use crate::report::{figures, groups};
use crate::result::{Row, Section};
use std::collections::BTreeSet;

/// A line for each target through what its rows have along x.
fn lines(
    title: &str,
    [x, y]: [Scale; 2],
    series: &[groups::Series],
    colours: &Colours,
    point: impl Fn(&Row) -> Option<(f64, f64)>,
) -> Figure {
    let mut plot = Plot::new(title, HEIGHT, x, y);
    for line in series {
        let points: Vec<_> = line.rows.iter().filter_map(|row| point(row)).collect();
        let class = colours.class(line.target);
        plot.line(class, line.target, &points);
        for (row, at) in line.rows.iter().filter_map(|row| Some((row, point(row)?))) {
            let shape = if row.is_shortened() { "dot short" } else { "dot" };
            plot.dot(&format!("{shape} {class}"), at, &in_words(row));
        }
    }
    let legend = series.iter().map(|line| Mark {
        class: colours.class(line.target),
        // A hollow dot is where; here is that there is one.
        label: line
            .rows
            .iter()
            .find(|row| row.is_shortened())
            .map_or_else(|| line.target.to_string(), |row| groups::marked(row)),
    });
    Figure { caption: title.to_string(), legend: legend.collect(), svg: plot.finish() }
}

/// What all rows of some lines have.
fn values(series: &[groups::Series], of: impl Fn(&Row) -> Option<f64>) -> Vec<f64> {
    series.iter().flat_map(|line| line.rows.iter()).filter_map(|row| of(row)).collect()
}

/// An x axis along [`Row::x`]: in powers of ten where sizes span more than one.
fn sizes(series: &[groups::Series]) -> Scale {
    let all = values(series, |row| row.x);
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(0.0, f64::max);
    match low > 0.0 && high / low > 20.0 {
        true => Scale::log(&all, "size", figures::number),
        false => Scale::linear(&all, "size", figures::number),
    }
}

/// A panel for each case, one for what several cases have in common, and before them, where there are several, one that
/// shows the tails of all together.
pub(super) fn growth(section: &Section, colours: &Colours) -> Vec<Panel> {
    let charts = groups::along_x(section);
    let common = in_common(section, &charts);
    let mut panels: Vec<Panel> = together(section).into_iter().collect();
    for (label, series) in &charts {
        panels.push(Panel { label: label.clone(), figures: of_case(section, series, &common, colours) });
    }
    if let Some((_, series)) = charts.first().filter(|_| !common.is_empty()) {
        let figures = common.iter().map(|name| extra(name, series, colours)).collect();
        panels.push(Panel { label: "The same in every case".to_string(), figures });
    }
    panels
}

fn of_case(
    section: &Section,
    series: &[groups::Series],
    common: &BTreeSet<String>,
    colours: &Colours,
) -> Vec<Figure> {
    let latency = |title: &str, share: f64| {
        let of = |row: &Row| Some(row.latency.quantile(share));
        let y = Scale::log(&values(series, of), "latency", figures::latency);
        lines(title, [sizes(series), y], series, colours, |row| Some((row.x?, of(row)?)))
    };
    let rate = |row: &Row| Some(row.rate());
    let y = Scale::linear(&values(series, rate), "per second", figures::number);
    let mut figures = vec![
        latency("Median latency", 0.5),
        latency("95th percentile", 0.95),
        lines("Operations per second", [sizes(series), y], series, colours, |row| Some((row.x?, row.rate()))),
    ];
    let extras = extras(section).into_iter().filter(|name| !common.contains(name));
    let present = extras.filter(|name| !values(series, |row| row.extra.get(name).copied()).is_empty());
    figures.extend(present.map(|name| extra(&name, series, colours)));
    figures
}

fn extras(section: &Section) -> BTreeSet<String> {
    section.rows.iter().flat_map(|row| row.extra.keys().cloned()).collect()
}

fn extra(name: &str, series: &[groups::Series], colours: &Colours) -> Figure {
    let of = |row: &Row| row.extra.get(name).copied();
    let all = values(series, of);
    let y = match name.contains('%') {
        true => Scale::percent(name),
        false => Scale::linear(&all, name, figures::number),
    };
    lines(name, [sizes(series), y], series, colours, |row| Some((row.x?, of(row)?)))
}

/// Further figures that are the same whatever the case, such as a collection's size: one picture shows them.
fn in_common(section: &Section, charts: &[(String, Vec<groups::Series>)]) -> BTreeSet<String> {
    const SAME: f64 = 0.02;
    let Some(((_, first), others)) = charts.split_first().filter(|(_, others)| !others.is_empty()) else {
        return BTreeSet::new();
    };
    let all = |series: &[groups::Series], name: &str| values(series, |row| row.extra.get(name).copied());
    let same = |name: &String| {
        let known = all(first, name);
        others.iter().all(|(_, series)| {
            let theirs = all(series, name);
            let close = |(a, b): (&f64, &f64)| (a - b).abs() <= SAME * a.abs().max(b.abs());
            theirs.len() == known.len() && known.iter().zip(&theirs).all(close)
        })
    };
    extras(section).into_iter().filter(same).collect()
}

/// What colours mean where lines are cases of one target.
const CASES: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];

/// For each target one picture of all cases' tails: a band from p90 to p99 and p95 as a line in it, all in one scale.
fn together(section: &Section) -> Option<Panel> {
    let charts = groups::along_x(section);
    if charts.len() < 2 || charts.len() > CASES.len() {
        return None;
    }
    let tails = |row: &Row| [0.9, 0.95, 0.99].map(|share| row.latency.quantile(share));
    let all: Vec<&groups::Series> = charts.iter().flat_map(|(_, lines)| lines).collect();
    let up: Vec<f64> = all.iter().flat_map(|line| line.rows.iter()).flat_map(|row| tails(row)).collect();
    let mut targets: Vec<&str> = Vec::new();
    for line in &all {
        if !targets.contains(&line.target) {
            targets.push(line.target);
        }
    }
    let picture = |target: &&str| {
        let x = charts
            .first()
            .map_or_else(|| Scale::linear(&[], "size", figures::number), |(_, lines)| sizes(lines));
        let y = Scale::log(&up, "p90 to p99, p95 as a line", figures::latency);
        let mut plot = Plot::new(&format!("p90, p95 and p99 of all cases: {target}"), HEIGHT, x, y);
        let mut legend = Vec::new();
        for ((label, lines), class) in charts.iter().zip(CASES) {
            let Some(line) = lines.iter().find(|line| line.target == *target) else { continue };
            let points = |at: usize| -> Vec<(f64, f64)> {
                line.rows.iter().filter_map(|row| Some((row.x?, *tails(row).get(at)?))).collect()
            };
            plot.band(class, &points(0), &points(2));
            plot.line(class, label, &points(1));
            legend.push(Mark { class, label: label.clone() });
        }
        Figure { caption: target.to_string(), legend, svg: plot.finish() }
    };
    let label = "p90, p95 and p99 together".to_string();
    Some(Panel { label, figures: targets.iter().map(picture).collect() })
}

/// Latency against the rate asked; where there was one rate only, the targets beside one another.
pub(super) fn rates(section: &Section, colours: &Colours) -> Vec<Panel> {
    let panel = |(label, series): (String, Vec<groups::Series>)| {
        let asked: BTreeSet<u64> = values(&series, |row| row.x).into_iter().map(f64::to_bits).collect();
        let figures = if asked.len() > 1 {
            vec![
                against(&series, colours, "Median latency at the rate asked", 0.5),
                against(&series, colours, "99th percentile at the rate asked", 0.99),
            ]
        } else {
            let rows: Vec<&Row> = series.iter().flat_map(|line| line.rows.iter().copied()).collect();
            let rate = rows.first().and_then(|row| row.x).unwrap_or(0.0);
            let caption = format!("Latency at {} operations a second: median to p99", figures::number(rate));
            vec![ranges::figure(&caption, &rows, colours)]
        };
        Panel { label, figures }
    };
    groups::along_x(section).into_iter().map(panel).collect()
}

fn against(series: &[groups::Series], colours: &Colours, title: &str, share: f64) -> Figure {
    let of = |row: &Row| Some(row.latency.quantile(share));
    let x = Scale::linear(&values(series, |row| row.x), "operations per second, as asked", figures::number);
    let y = Scale::log(&values(series, of), "latency", figures::latency);
    lines(title, [x, y], series, colours, |row| Some((row.x?, of(row)?)))
}
