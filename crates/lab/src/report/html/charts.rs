//! The pictures of a report: which figures of a section are drawn, and how.

use super::colours::Colours;
use super::svg::{self, Plot, Scale, WIDTH};
use crate::report::{figures, findings, groups};
use crate::result::{Kind, Row, Section};
use std::fmt::Write as _;

mod along;
mod matrix;
pub(crate) mod ranges;

/// A picture with what stands above it.
pub(crate) struct Figure {
    pub(crate) caption: String,
    /// What its colours mean; empty where it names that itself.
    pub(crate) legend: Vec<Mark>,
    pub(crate) svg: String,
}

/// A colour and what it stands for.
#[derive(PartialEq)]
pub(crate) struct Mark {
    /// A class of the style sheet.
    pub(crate) class: &'static str,
    pub(crate) label: String,
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
        Kind::Bars => {
            let groups = groups::groups(section);
            // Where a schedule decides how many operations there are, they differ in their latency alone.
            let paced = groups.iter().all(|group| same_rate(&group.rows));
            groups.iter().map(|group| cases(section, group, paced, colours)).collect()
        }
        Kind::Times => groups::groups(section)
            .iter()
            .map(|group| Panel { label: group.label.clone(), figures: vec![times(group, colours)] })
            .collect(),
        Kind::Matrix => matrix::panels(section, colours),
        Kind::Growth => along::growth(section, colours),
        Kind::Rates => along::rates(section, colours),
    }
}

/// The legend of lines that stand for these rows' targets.
fn legend(rows: &[&Row], colours: &Colours) -> Vec<Mark> {
    let mark = |row: &&Row| Mark { class: colours.class(&row.target), label: groups::marked(row) };
    rows.iter().map(mark).collect()
}

/// Whether there are several that did as many operations a second, within a tenth.
fn same_rate(rows: &[&Row]) -> bool {
    let rates = rows.iter().filter(|row| row.operations > 0).map(|row| row.rate());
    let (low, high) =
        rates.clone().fold((f64::INFINITY, 0.0), |(low, high), rate| (rate.min(low), rate.max(high)));
    rates.count() > 1 && high <= low * 1.1
}

fn cases(section: &Section, group: &groups::Group, paced: bool, colours: &Colours) -> Panel {
    let mut figures = match paced {
        true => vec![ranges::figure("Latency: median to p99", &group.rows, colours)],
        false => vec![bars(section, group, colours)],
    };
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
        let longest = rows.iter().map(|row| groups::marked(row).chars().count()).max().unwrap_or(0);
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
        svg: svg::picture("bars", height, &title, &parts),
    }
}

fn bar(section: &Section, row: &Row, top: f64, ground: &Ground, class: &str) -> String {
    let (from, middle) = (ground.from, top + 9.0);
    let mut parts =
        svg::text(from - 8.0, middle + 4.0, "name end", &svg::shorten(&groups::marked(row), NAME_MOST));
    if row.operations == 0 {
        let why = row.note.as_deref().unwrap_or("not measured");
        let room = ((WIDTH - from) / svg::LETTER) as usize - 2;
        let text = svg::text(from + 8.0, middle + 4.0, "tick start", &svg::shorten(why, room));
        let _ = write!(parts, "<g><title>{}</title>{text}</g>", svg::escape(why));
        return parts;
    }
    let width = (row.rate() * ground.scale).max(1.0);
    let faded = if row.is_shortened() { " partial" } else { "" };
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

/// How long an operation took, as bars, with whiskers from the shortest round to the longest.
fn times(group: &groups::Group, colours: &Colours) -> Figure {
    let each = |round: &crate::result::Round| round.seconds / round.operations.max(1) as f64;
    let mean = |row: &Row| row.seconds / row.operations.max(1) as f64;
    let most = group.rows.iter().map(|row| groups::spread(row, each).map_or(0.0, |(_, high)| high));
    let most = most.fold(f64::MIN_POSITIVE, f64::max);
    let longest = group.rows.iter().map(|row| groups::marked(row).chars().count()).max().unwrap_or(0);
    let from = 16.0 + svg::LETTER * longest.min(NAME_MOST) as f64;
    let scale = (WIDTH - 90.0 - from) / most;
    let mut parts = String::new();
    for (at, row) in group.rows.iter().enumerate() {
        let top = at as f64 * BAR_LINE + 6.0;
        let middle = top + 9.0;
        parts +=
            &svg::text(from - 8.0, middle + 4.0, "name end", &svg::shorten(&groups::marked(row), NAME_MOST));
        if row.operations == 0 {
            let why = row.note.as_deref().unwrap_or("not measured");
            let room = ((WIDTH - from) / svg::LETTER) as usize - 2;
            let text = svg::text(from + 8.0, middle + 4.0, "tick start", &svg::shorten(why, room));
            let _ = write!(parts, "<g><title>{}</title>{text}</g>", svg::escape(why));
            continue;
        }
        let (class, width) = (colours.class(&row.target), (mean(row) * scale).max(1.0));
        let faded = if row.is_shortened() { " partial" } else { "" };
        let _ = write!(
            parts,
            "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"18\" rx=\"2\" class=\"bar {class}{faded}\"/>"
        );
        if let Some((low, high)) = groups::spread(row, each).filter(|(low, high)| low < high) {
            let (low, high) = (from + low * scale, from + high * scale);
            parts += &svg::segment(low, middle, high, middle, "whisker");
        }
        parts += &svg::text(WIDTH - 2.0, middle + 4.0, "value end", &figures::seconds(mean(row)));
    }
    let height = group.rows.len() as f64 * BAR_LINE + 10.0;
    parts += &svg::segment(from, 2.0, from, height - 4.0, "axis");
    let title = format!("Time by target: {}", group.label);
    Figure {
        caption: "Time, mean of the rounds".to_string(),
        legend: Vec::new(),
        svg: svg::picture("bars", height, &title, &parts),
    }
}

/// What a pointer that rests on a row's mark is told.
fn in_words(row: &Row) -> String {
    let [p50, p99] = [0.5, 0.99].map(|share| figures::latency(row.latency.quantile(share)));
    let rate = figures::number(row.rate());
    let mut text = format!("{}, {}: {rate} per second, p50 {p50}, p99 {p99}", row.target, row.case);
    if row.is_shortened() {
        text += ", cut short";
    }
    if let Some(cpu) = row.cpu_microseconds {
        let _ = write!(text, ", {} of the server's processor time each", figures::latency(cpu));
    }
    if let Some(bytes) = row.resident_bytes {
        let _ = write!(text, ", {} of memory", figures::bytes(bytes));
    }
    text
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
    Figure { caption: "Latency by percentile".to_string(), legend: legend(rows, colours), svg: plot.finish() }
}

/// Where a time axis ends that several rounds share: one that took far longer than most must not press the others together.
fn time_end(rows: &[&Row]) -> f64 {
    const ROOM: f64 = 1.5;
    let end = |row: &&Row| row.timeline.last().map_or(0.0, |moment| moment.at + moment.seconds);
    let mut ends: Vec<f64> = rows.iter().map(end).collect();
    ends.sort_by(f64::total_cmp);
    let typical = ends.get(ends.len() / 2).copied().unwrap_or(0.0);
    ends.last().copied().unwrap_or(0.0).min(typical * ROOM)
}

/// The p99 of each step of the last round; flags where a step's slowest operation was a stall.
fn over_time(label: &str, rows: &[&Row], colours: &Colours) -> Figure {
    let end = time_end(rows);
    let moments = || rows.iter().flat_map(|row| &row.timeline).filter(|moment| moment.operations > 0);
    let across: Vec<f64> = moments().map(|moment| moment.at).filter(|at| *at <= end).chain([0.0]).collect();
    let stalls: Vec<_> = rows
        .iter()
        .flat_map(|row| findings::stalls_of(row).into_iter().map(move |stall| (row, stall)))
        .filter(|(_, (at, _))| *at <= end)
        .collect();
    let flagged = stalls.iter().map(|(_, (_, longest))| *longest);
    let up: Vec<f64> = moments().map(|moment| moment.p99).chain(flagged).collect();
    let x = Scale::linear(&across, "time into the last round", figures::seconds);
    let y = Scale::log(&up, "p99 latency of each step", figures::latency);
    let mut plot = Plot::new(&format!("Latency over time: {label}"), HEIGHT, x, y);
    for row in rows {
        let steps = row.timeline.iter().filter(|moment| moment.operations > 0 && moment.at <= end);
        let points: Vec<_> = steps.map(|moment| (moment.at, moment.p99)).collect();
        plot.line(colours.class(&row.target), &row.target, &points);
    }
    for (row, (at, longest)) in stalls.iter().take(12) {
        plot.flag(colours.class(&row.target), (*at, *longest), &figures::latency(*longest));
    }
    let mut caption =
        if stalls.is_empty() { "Latency over time" } else { "Latency over time, stalls flagged" }.to_string();
    let longest = rows.iter().filter_map(|row| Some((row, row.timeline.last()?.at)));
    if let Some((row, last)) = longest.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, last)| *last > end) {
        let _ = write!(caption, "; cut here: {} goes on until {}", row.target, figures::seconds(last));
    }
    Figure { caption, legend: legend(rows, colours), svg: plot.finish() }
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
        assert!(rates[0].figures[0].svg.contains(">operations per second, as asked<"));
        assert_eq!(rates[0].figures[0].caption, "Median latency at the rate asked");
    }

    #[test]
    fn one_slow_round_does_not_stretch_the_axis_of_the_others() {
        let mut report = testing::report();
        let slow = &mut report.sections[0].rows[3].timeline;
        slow.iter_mut().for_each(|moment| moment.at *= 20.0);
        let rows: Vec<&Row> = report.sections[0].rows[..5].iter().collect();
        assert_eq!(time_end(&rows), 15.0);
        let figure = over_time("x", &rows, &Colours::new(&report));
        assert!(figure.caption.ends_with("cut here: journaled goes on until 3.25 min"), "{}", figure.caption);
    }

    #[test]
    fn what_was_cut_short_is_marked_in_every_picture() {
        let panels = drawn(0);
        for figure in &panels[0].figures[1..] {
            let marked = figure.legend.iter().filter(|mark| mark.label.ends_with('†')).count();
            assert_eq!(marked, 1, "{}", figure.caption);
        }
        assert!(panels[0].figures[0].svg.contains(">relaxed †<"));
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
