//! The report as one self-contained page: charts first, then tables.
//!
//! The page contains the figures as JSON. Its script makes a Vega-Lite specification for each chart; the library is
//! part of the page.

use super::compare::{Comparison, Metric};
use super::grid::{Detail, Grid};
use super::{grid, terminal};
use crate::result::{Report, Row, Section};
use serde_json::{Value, json};

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/page.js");
const VEGA: &str = include_str!("../../vendor/vega.min.js");
const VEGA_LITE: &str = include_str!("../../vendor/vega-lite.min.js");

/// Returns the page of a run.
pub(crate) fn render(report: &Report) -> String {
    let targets =
        report.targets.iter().map(|target| json!([target.name, terminal::describe(target), target.uri]));
    let details = report.targets.iter().flat_map(|target| {
        let own = target.fingerprint.details.iter();
        own.map(|(name, value)| json!([target.name, name, value]))
    });
    let data = json!({
        "title": report.title,
        "about": report.about,
        "command": report.command,
        "run": format!("run {}, started {}", report.id, report.started),
        "lists": [["Warnings", report.warnings], ["Errors", report.errors]],
        "targets": targets.collect::<Vec<_>>(),
        "details": details.collect::<Vec<_>>(),
        "environment": report.environment,
        "names": report.targets.iter().map(|target| target.name.as_str()).collect::<Vec<_>>(),
        "parts": report.parts,
        "sections": report.sections.iter().map(|each| section(report, each)).collect::<Vec<_>>(),
    });
    page(&report.title, &data)
}

/// Returns the page of two runs.
pub(super) fn compared(before: &Report, after: &Report, comparison: &Comparison, lists: Value) -> String {
    let title = format!("{}: before and after", after.title);
    let sections = comparison.sections.iter().map(|section| {
        let rows = section.pairs.iter().flat_map(|pair| {
            let shown = pair.differences.iter().filter(|each| Metric::SHOWN.contains(&each.metric));
            shown.map(move |each| {
                let [low, high] = each.interval.map_or([each.ratio(); 2], |interval| [interval.low, interval.high]);
                json!({
                    "target": pair.target, "label": pair.label, "metric": each.metric.figure().title, "verdict": each.verdict(),
                    "change": each.ratio() - 1.0, "low": low - 1.0, "high": high - 1.0,
                })
            })
        });
        json!({
            "id": section.id, "title": section.title, "about": "", "kind": "changes",
            "rows": rows.collect::<Vec<_>>(), "table": table(&super::compare::grid(&section.pairs, &Metric::all().collect::<Vec<_>>())),
        })
    });
    let data = json!({
        "title": title,
        "about": format!("Before: run {}, {}. After: run {}, {}.", before.id, before.started, after.id, after.started),
        "lists": lists,
        "sections": sections.collect::<Vec<_>>(),
    });
    page(&title, &data)
}

/// Returns the data of a section for the page's script.
fn section(report: &Report, section: &Section) -> Value {
    let rows = section.rows.iter().filter(|row| row.operations > 0);
    json!({
        "id": section.id,
        "title": section.title,
        "about": section.about,
        "kind": section.kind,
        "experiment": section.experiment,
        "rows": rows.map(|each| row(report, section, each)).collect::<Vec<_>>(),
        "table": table(&Grid::of_section(report, section, Detail::Full)),
    })
}

/// Returns the data of a row for the charts.
fn row(report: &Report, section: &Section, row: &Row) -> Value {
    let rates = || row.rounds.iter().map(crate::result::Round::rate);
    let timeline = row.timeline.iter().map(|each| json!([each.at, each.p50, each.p99, each.max]));
    json!({
        "target": grid::marked(report, section, row),
        "name": row.target,
        "case": row.case,
        "label": grid::label(section, row),
        "connections": row.connections,
        "x": row.x,
        "rate": row.rate(),
        "low": rates().fold(f64::INFINITY, f64::min),
        "high": rates().fold(0.0, f64::max),
        "p50": row.latency.quantile(0.5),
        "p99": row.latency.quantile(0.99),
        "curve": row.latency.curve(),
        "timeline": timeline.collect::<Vec<_>>(),
    })
}

/// Returns headings, lines with a mark at the start of each case, and notes.
fn table(grid: &Grid) -> Value {
    let lines = grid.lines.iter().map(|line| {
        let case = if line.starts_case { line.case.as_str() } else { "" };
        [vec![case.to_string(), line.name()], line.cells.clone()].concat()
    });
    json!({ "heads": grid.heads, "lines": lines.collect::<Vec<_>>(), "notes": grid.notes })
}

/// Inserts title, styles, scripts and data into the template.
fn page(title: &str, data: &Value) -> String {
    // Text of users must not end the script element.
    let data = data.to_string().replace('<', "\\u003c");
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let parts = [
        ("{{title}}", title.as_str()),
        ("{{style}}", STYLE),
        ("{{vega}}", VEGA),
        ("{{vega-lite}}", VEGA_LITE),
        ("{{data}}", &data),
        ("{{script}}", SCRIPT),
    ];
    let mut page = String::with_capacity(VEGA.len() + VEGA_LITE.len() + data.len() + (64 << 10));
    let mut rest = TEMPLATE;
    for (placeholder, text) in parts {
        let (before, after) = rest.split_once(placeholder).unwrap_or((rest, ""));
        page += before;
        page += text;
        rest = after;
    }
    page + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests as testing;

    #[test]
    fn the_page_holds_the_figures_and_no_markup_of_users() {
        let report = testing::report();
        let text = render(&report);
        assert!(text.starts_with("<!doctype html>") && text.trim_end().ends_with("</html>"));
        assert!(!text.contains("<b>peer") && !text.contains("<script>alert"));
        assert!(!text.contains("{{"), "all places are filled in");
        let data = text.split("id=\"data\" type=\"application/json\">").nth(1).unwrap();
        let data: Value = serde_json::from_str(data.split("</script>").next().unwrap()).unwrap();
        assert_eq!(data["sections"].as_array().unwrap().len(), 3);
        assert_eq!(data["sections"][0]["rows"].as_array().unwrap().len(), 10);
        assert_eq!(data["sections"][0]["table"]["lines"].as_array().unwrap().len(), 12);
        assert_eq!(data["lists"][1][1][0], report.errors[0].as_str());
    }
}
