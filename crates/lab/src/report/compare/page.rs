//! A comparison as a page: each difference as a mark on a line, with how far it may lie.

use super::difference::{Comparison, Difference, Pair, Verdict};
use super::limit::Metric;
use super::words;
use super::{Findings, Two};
use crate::report::figures;
use crate::report::html::page::{self, escape};
use crate::report::html::svg::{self, WIDTH};
use std::fmt::Write as _;

/// The whole page.
pub(crate) fn render(two: &Two, comparison: &Comparison, findings: &Findings, metrics: &[Metric]) -> String {
    let title = format!("{}: before and after", two.after.title);
    let side = |name: &str, report: &crate::result::Report| {
        format!("{name}: run {}, {}", escape(&report.id), escape(&report.started.replace('T', " ")))
    };
    let mut body = format!(
        "<header>\n<p class=\"over\">Vellum lab · compare</p>\n<h1>{}</h1>\n<p class=\"meta\">{}<br>{}</p>\n</header>\n",
        escape(&title),
        side("Before", &two.before),
        side("After", &two.after)
    );
    body += &page::notice("wrong", "Past the limits", &findings.passed);
    body += &page::notice("means", "What it means", &findings.findings);
    body += &page::notice("warn", "Before you believe a difference", &findings.warnings);
    body += &page::notice("warn", "Not measured any more", &comparison.gone);
    body += &page::notice("means", "New", &comparison.new);
    for section in &comparison.sections {
        let _ = writeln!(body, "<section>\n<h2>{}</h2>", escape(&section.title));
        for group in section.pairs.chunk_by(|a, b| a.label == b.label) {
            body += &panel(group, metrics);
        }
        body += &numbers(&section.pairs);
        body += "</section>\n";
    }
    body += "<p class=\"note\">Lines span where the ratio of after to before lies with at least 90 % confidence \
             (Hodges and Lehmann's interval over rounds); grey marks are differences that the rounds can't tell from none.</p>\n";
    page::page(&format!("{title} · Vellum lab"), &body)
}

fn panel(group: &[Pair], metrics: &[Metric]) -> String {
    let label = group.first().map_or("", |pair| &pair.label);
    let mut text = format!("<h3>{}</h3>\n<div class=\"figures\">\n", escape(label));
    for metric in metrics {
        let rows: Vec<_> =
            group.iter().filter_map(|pair| Some((pair.target.as_str(), pair.difference(*metric)?))).collect();
        if !rows.is_empty() {
            let better = if metric.more_is_worse() { "less is better" } else { "more is better" };
            let caption = format!("{} ({better})", metric.title());
            let svg = marks(&format!("Change of {}: {label}", metric.title()), &rows);
            let _ = write!(text, "<figure>\n<figcaption>{caption}</figcaption>\n{svg}\n</figure>\n");
        }
    }
    text + "</div>\n"
}

const FROM: f64 = 118.0;
const TO: f64 = 318.0;
const LINE: f64 = 26.0;

/// Half of the axis: the furthest that any interval reaches, from 5 % to 100 %.
fn reach(rows: &[(&str, &Difference)]) -> f64 {
    let ends = |difference: &Difference| {
        let interval = difference.interval;
        [Some(difference.ratio()), interval.map(|each| each.low), interval.map(|each| each.high)]
    };
    let all = rows.iter().flat_map(|(_, difference)| ends(difference)).flatten();
    all.map(|ratio| (ratio - 1.0).abs()).fold(0.05, f64::max).min(1.0)
}

fn marks(title: &str, rows: &[(&str, &Difference)]) -> String {
    let reach = reach(rows);
    let middle = (FROM + TO) / 2.0;
    let at = |ratio: f64| middle + ((ratio - 1.0) / reach).clamp(-1.0, 1.0) * (TO - FROM) / 2.0;
    let height = rows.len() as f64 * LINE + 30.0;
    let mut parts = String::new();
    for (share, anchor) in [(-reach, "start"), (0.0, "middle"), (reach, "end")] {
        let x = at(1.0 + share);
        parts += &svg::segment(x, 2.0, x, height - 22.0, if share == 0.0 { "axis" } else { "grid" });
        let label = if share == 0.0 { "0".to_string() } else { figures::change(1.0 + share) };
        parts += &svg::text(x, height - 6.0, &format!("tick {anchor}"), &label);
    }
    for (line, (target, difference)) in rows.iter().enumerate() {
        let y = line as f64 * LINE + 16.0;
        let class = match difference.verdict() {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Unsure => "same",
        };
        parts += &svg::text(FROM - 8.0, y + 4.0, "name end", &svg::shorten(target, 16));
        if let Some(interval) = difference.interval {
            parts += &svg::segment(at(interval.low), y, at(interval.high), y, &format!("line {class}"));
        }
        let told = escape(&difference.told());
        let x = at(difference.ratio());
        let _ = write!(
            parts,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" class=\"dot {class}\"><title>{told}</title></circle>"
        );
        parts += &svg::text(WIDTH - 2.0, y + 4.0, "value end", &figures::change(difference.ratio()));
    }
    svg::picture("changes", height, title, &parts)
}

fn numbers(pairs: &[Pair]) -> String {
    let grid = words::grid(pairs, &Metric::ALL);
    let heads: Vec<String> = ["case", "target"].map(str::to_string).into_iter().chain(grid.heads).collect();
    let rows = grid.lines.into_iter().map(|line| [vec![line.case, line.target], line.cells].concat());
    let table = page::table(&heads, &rows.collect::<Vec<_>>(), 2);
    format!("<details class=\"numbers\">\n<summary>All numbers</summary>\n{table}</details>\n")
}
