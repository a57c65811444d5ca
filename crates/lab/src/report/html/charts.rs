//! The pictures of a report: which figures of a section are drawn, and how.

use super::colours::Colours;
use super::svg::{self, Plot, Scale, WIDTH};
use crate::report::{figures, findings, groups};
use crate::result::{Kind, Row, Section};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A picture with what stands above it.
pub(crate) struct Figure {
    pub(crate) caption: String,
    /// Targets whose lines the picture has; empty where it names them itself.
    pub(crate) legend: Vec<String>,
    pub(crate) svg: String,
}

/// The pictures of one group of a section, under its label.
pub(crate) struct Panel {
    pub(crate) label: String,
    pub(crate) figures: Vec<Figure>,
}

const HEIGHT: f64 = 250.0;

/// All pictures of a section.
pub(crate) fn panels(section: &Section, colours: &Colours) -> Vec<Panel> {
    match section.kind {
        Kind::Bars => groups::groups(section).iter().map(|group| cases(section, group, colours)).collect(),
        Kind::Growth => along(section, colours, growth),
        Kind::Rates => along(section, colours, rates),
    }
}

fn along(
    section: &Section,
    colours: &Colours,
    figures: fn(&Section, &[groups::Series], &Colours) -> Vec<Figure>,
) -> Vec<Panel> {
    let charts = groups::along_x(section).into_iter();
    charts.map(|(label, lines)| Panel { label, figures: figures(section, &lines, colours) }).collect()
}

fn cases(section: &Section, group: &groups::Group, colours: &Colours) -> Panel {
    let mut figures = vec![bars(section, group, colours)];
    let measured: Vec<&Row> = group.rows.iter().copied().filter(|row| row.latency.count() > 0).collect();
    if !measured.is_empty() {
        figures.push(curves(&group.label, &measured, colours));
    }
    let timed: Vec<&Row> = measured.into_iter().filter(|row| row.timeline.len() > 2).collect();
    if !timed.is_empty() {
        figures.push(over_time(&group.label, &timed, colours));
    }
    Panel { label: group.label.clone(), figures }
}

/// Where bars end, and the height of a line of them.
const BARS_TO: f64 = 272.0;
const BAR_LINE: f64 = 28.0;
/// The most letters of a target's name beside its bar.
const NAME_MOST: usize = 20;

/// Where the bars of one picture lie.
struct Ground {
    /// Behind the longest name.
    from: f64,
    /// Units of the picture for an operation per second.
    scale: f64,
}

impl Ground {
    fn new(rows: &[&Row]) -> Ground {
        let fastest =
            |row: &&Row| groups::spread(row, |round| round.rate()).map_or(row.rate(), |(_, high)| high);
        let most = rows.iter().map(fastest).fold(f64::MIN_POSITIVE, f64::max);
        let longest = rows.iter().map(|row| row.target.chars().count()).max().unwrap_or(0);
        let from = 16.0 + svg::LETTER * longest.min(NAME_MOST) as f64;
        Ground { from, scale: (BARS_TO - from) / most }
    }
}

/// Rates as bars, with whiskers from the slowest to the fastest round.
fn bars(section: &Section, group: &groups::Group, colours: &Colours) -> Figure {
    let ground = Ground::new(&group.rows);
    let mut parts = String::new();
    for (at, row) in group.rows.iter().enumerate() {
        parts += &bar(section, row, at as f64 * BAR_LINE + 6.0, &ground, colours.class(&row.target));
    }
    let height = group.rows.len() as f64 * BAR_LINE + 10.0;
    parts += &svg::segment(ground.from, 2.0, ground.from, height - 4.0, "axis");
    let title = format!("Operations per second by target: {}", group.label);
    let ratios = section.base.as_ref().map(|base| format!(", × {base}")).unwrap_or_default();
    Figure {
        caption: format!("Operations per second{ratios}"),
        legend: Vec::new(),
        svg: svg::picture(height, &title, &parts),
    }
}

fn bar(section: &Section, row: &Row, top: f64, ground: &Ground, class: &str) -> String {
    let (from, middle) = (ground.from, top + 9.0);
    let mut parts = svg::text(from - 8.0, middle + 4.0, "name end", &svg::shorten(&row.target, NAME_MOST));
    if row.operations == 0 {
        let why = row.note.as_deref().unwrap_or("not measured");
        let room = ((WIDTH - from) / svg::LETTER) as usize - 2;
        let text = svg::text(from + 8.0, middle + 4.0, "tick start", &svg::shorten(why, room));
        let _ = write!(parts, "<g><title>{}</title>{text}</g>", svg::escape(why));
        return parts;
    }
    let width = (row.rate() * ground.scale).max(1.0);
    let faded = if row.partial { " partial" } else { "" };
    let _ = write!(
        parts,
        "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"18\" rx=\"2\" class=\"bar {class}{faded}\">\
         <title>{}</title></rect>",
        svg::escape(&in_words(row))
    );
    if let Some((low, high)) = groups::spread(row, |round| round.rate()).filter(|(low, high)| low < high) {
        let (low, high) = (from + low * ground.scale, from + high * ground.scale);
        parts += &svg::segment(low, middle, high, middle, "whisker");
        parts += &svg::segment(low, middle - 3.5, low, middle + 3.5, "whisker");
        parts += &svg::segment(high, middle - 3.5, high, middle + 3.5, "whisker");
    }
    parts += &svg::text(WIDTH - 62.0, middle + 4.0, "value end", &figures::number(row.rate()));
    let ratio = section.rate_ratio(row).map(|ratio| figures::times(ratio.value)).unwrap_or_default();
    parts + &svg::text(WIDTH - 2.0, middle + 4.0, "ratio end", &ratio)
}

/// What a pointer that rests on a row's mark is told.
fn in_words(row: &Row) -> String {
    let [p50, p99] = [0.5, 0.99].map(|share| figures::latency(row.latency.quantile(share)));
    let rate = figures::number(row.rate());
    let mut text = format!("{}, {}: {rate} per second, p50 {p50}, p99 {p99}", row.target, row.case);
    if let Some(cpu) = row.cpu_microseconds {
        let _ = write!(text, ", {} of the server's processor time each", figures::latency(cpu));
    }
    if let Some(bytes) = row.resident_bytes {
        let _ = write!(text, ", {} of memory", figures::bytes(bytes));
    }
    text
}

fn names(rows: &[&Row]) -> Vec<String> {
    rows.iter().map(|row| row.target.clone()).collect()
}

/// Latency over the share of operations that kept it, the slowest ones drawn wide.
fn curves(label: &str, rows: &[&Row], colours: &Colours) -> Figure {
    let points = |row: &Row| -> Vec<(f64, f64)> {
        let most = row.latency.count() as f64;
        let rarity = |share: f64| if share < 1.0 { (1.0 / (1.0 - share)).min(most) } else { most };
        row.latency.curve().into_iter().map(|(share, latency)| (rarity(share), latency)).collect()
    };
    let lines: Vec<_> = rows.iter().map(|row| (row, points(row))).collect();
    let all = || lines.iter().flat_map(|(_, points)| points);
    let across: Vec<f64> = all().map(|(x, _)| *x).chain([1.0]).collect();
    let up: Vec<f64> = all().map(|(_, y)| *y).collect();
    let ticks = [
        (1.0, "min"),
        (2.0, "50 %"),
        (10.0, "90 %"),
        (100.0, "99 %"),
        (1e3, "99.9 %"),
        (1e4, "99.99 %"),
        (1e5, "99.999 %"),
    ];
    let ticks = ticks.map(|(at, text)| (at, text.to_string())).to_vec();
    let x = Scale::log(&across, "of operations were at least as fast", figures::number).with_ticks(ticks);
    let y = Scale::log(&up, "latency", figures::latency);
    let mut plot = Plot::new(&format!("Latency by percentile: {label}"), HEIGHT, x, y);
    for (row, points) in &lines {
        plot.line(colours.class(&row.target), &row.target, points);
    }
    Figure { caption: "Latency by percentile".to_string(), legend: names(rows), svg: plot.finish() }
}

/// The p99 of each step of the last round; flags where a step's slowest operation was a stall.
fn over_time(label: &str, rows: &[&Row], colours: &Colours) -> Figure {
    let moments = || rows.iter().flat_map(|row| &row.timeline).filter(|moment| moment.operations > 0);
    let across: Vec<f64> = moments().map(|moment| moment.at).chain([0.0]).collect();
    let stalls: Vec<_> = rows
        .iter()
        .flat_map(|row| findings::stalls_of(row).into_iter().map(move |stall| (row, stall)))
        .collect();
    let flagged = stalls.iter().map(|(_, (_, longest))| *longest);
    let up: Vec<f64> = moments().map(|moment| moment.p99).chain(flagged).collect();
    let x = Scale::linear(&across, "time into the last round", figures::seconds);
    let y = Scale::log(&up, "p99 latency of each step", figures::latency);
    let mut plot = Plot::new(&format!("Latency over time: {label}"), HEIGHT, x, y);
    for row in rows {
        let steps = row.timeline.iter().filter(|moment| moment.operations > 0);
        let points: Vec<_> = steps.map(|moment| (moment.at, moment.p99)).collect();
        plot.line(colours.class(&row.target), &row.target, &points);
    }
    for (row, (at, longest)) in stalls.iter().take(12) {
        plot.flag(colours.class(&row.target), (*at, *longest), &figures::latency(*longest));
    }
    let caption = if stalls.is_empty() { "Latency over time" } else { "Latency over time, stalls flagged" };
    Figure { caption: caption.to_string(), legend: names(rows), svg: plot.finish() }
}

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
            plot.dot(class, at, &in_words(row));
        }
    }
    let legend = series.iter().map(|line| line.target.to_string()).collect();
    Figure { caption: title.to_string(), legend, svg: plot.finish() }
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

fn growth(section: &Section, series: &[groups::Series], colours: &Colours) -> Vec<Figure> {
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
    let extras: BTreeSet<&String> = section.rows.iter().flat_map(|row| row.extra.keys()).collect();
    for name in extras {
        let of = |row: &Row| row.extra.get(name).copied();
        let y = Scale::linear(&values(series, of), name, figures::number);
        figures.push(lines(name, [sizes(series), y], series, colours, |row| Some((row.x?, of(row)?))));
    }
    figures
}

fn rates(_: &Section, series: &[groups::Series], colours: &Colours) -> Vec<Figure> {
    let chart = |title: &str, share: f64| {
        let of = |row: &Row| Some(row.latency.quantile(share));
        let x = Scale::linear(
            &values(series, |row| Some(row.rate())),
            "operations per second, as reached",
            figures::number,
        );
        let y = Scale::log(&values(series, of), "latency", figures::latency);
        lines(title, [x, y], series, colours, |row| Some((row.rate(), of(row)?)))
    };
    vec![chart("Median latency against throughput", 0.5), chart("99th percentile against throughput", 0.99)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    fn drawn(section: usize) -> Vec<Panel> {
        let report = testing::report();
        panels(&report.sections[section], &Colours::new(&report))
    }

    #[test]
    fn cases_have_bars_curves_and_time() {
        let panels = drawn(0);
        let captions: Vec<_> = panels[0].figures.iter().map(|figure| figure.caption.as_str()).collect();
        assert_eq!(
            captions,
            ["Operations per second, × memory", "Latency by percentile", "Latency over time, stalls flagged"]
        );
        let [bars, curves, time] = panels[0].figures.as_slice() else { panic!() };
        assert_eq!(bars.svg.matches("<rect").count(), 5, "one was not measured");
        assert!(bars.svg.contains(">refused: &#39;insert&#39; with") && bars.svg.contains("partial"));
        assert_eq!(curves.svg.matches("class=\"line").count(), 5);
        assert!(curves.svg.contains("99.9 %"));
        assert_eq!(time.svg.matches("class=\"flag").count(), 1);
        assert!(time.svg.contains("1.20 s"));
    }

    #[test]
    fn growth_and_rates_have_a_line_for_each_target() {
        let growth = drawn(1);
        assert_eq!(growth.len(), 1);
        let captions: Vec<_> = growth[0].figures.iter().map(|figure| figure.caption.as_str()).collect();
        assert_eq!(captions, ["Median latency", "95th percentile", "Operations per second", "storage MB"]);
        assert!(growth[0].figures.iter().all(|figure| figure.svg.matches("class=\"line").count() == 5));
        let rates = drawn(2);
        assert_eq!(rates[0].figures.len(), 2);
        assert_eq!(rates[0].figures[0].svg.matches("<circle").count(), 3 * 7);
    }

    #[test]
    fn words_of_users_are_escaped() {
        for panel in (0..3).flat_map(drawn) {
            for figure in panel.figures {
                assert!(!figure.svg.contains("<script") && !figure.svg.contains("<b>"));
            }
        }
    }
}
