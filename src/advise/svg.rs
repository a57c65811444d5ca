//! A curve as a picture, for reports and tickets: light and dark, nothing from elsewhere.

use super::plot::range;
use super::{Report, Span, percent, shown};
use std::fmt::Write as _;

const LEFT: f64 = 60.0;
const TOP: f64 = 90.0;
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
/// Collections and indexes that have lines of their own.
const PARTS: usize = 4;
/// How the lines are drawn: what they are is told by more than their colours.
const DASHES: [&str; PARTS + 2] = ["", "9 4", "3 3", "12 3 3 3", "6 2", "1 4"];
const COLOURS: [&str; PARTS + 2] = ["one", "two", "three", "four", "five", "six"];

const STYLE: &str = "svg{background:#fff;font:14px system-ui,sans-serif}text{fill:#333}.grid{stroke:#ddd}\
.now{stroke:#777;stroke-dasharray:2 3}path{fill:none;stroke-width:2}.one{stroke:#1f5fa8}.two{stroke:#a8490f}\
.three{stroke:#2b7a3d}.four{stroke:#7a3d8f}.five{stroke:#8a6d00}.six{stroke:#a81c5c}\
@media(prefers-color-scheme:dark){svg{background:#14171b}text{fill:#ddd}.grid{stroke:#343a43}.one{stroke:#7db3f2}\
.two{stroke:#f0a35e}.three{stroke:#7fd08f}.four{stroke:#c99ae0}.five{stroke:#e0c04d}.six{stroke:#f28cb8}}";

/// The picture of a report.
pub(super) fn picture(host: &str, report: &Report) -> String {
    let mut lines = vec![("the last hour", &report.hour)];
    if report.seconds > report.hour_seconds {
        lines.push(("since the start", &report.start));
    }
    lines.extend(report.parts.iter().take(PARTS).map(|(name, hour, _)| (name.as_str(), hour)));
    lines.retain(|(_, span)| !span.curve.is_empty());
    let ranges = lines.iter().filter_map(|(_, span)| range(&span.curve, report.cache));
    let whole = ranges.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
    let (from, to) = whole.unwrap_or((report.cache / 2.0, report.cache * 2.0));
    let height = TOP + HEIGHT + 60.0 + 22.0 * lines.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 {height}\" role=\"img\"><style>{STYLE}</style>\n\
         <title>Hit rate by cache size, {}</title>\n",
        escape(host)
    );
    text(
        &mut out,
        LEFT,
        30.0,
        "start",
        &format!("Share of reads that hit, by the size of the cache: {host}"),
    );
    text(&mut out, LEFT, 56.0, "start", &report.hour.sentence());
    let x = |size: f64| LEFT + (size / from).ln() / (to / from).ln() * WIDTH;
    let y = |rate: f64| TOP + HEIGHT * (1.0 - rate);
    for quarter in 0..=4 {
        let rate = f64::from(quarter) / 4.0;
        line(&mut out, "grid", (LEFT, y(rate)), (LEFT + WIDTH, y(rate)));
        text(&mut out, LEFT - 8.0, y(rate) + 5.0, "end", &percent(rate));
    }
    let mut size = 4096.0;
    let step = if (to / from).log2() > 12.0 { 16.0 } else { 4.0 };
    while size < to {
        if size >= from {
            line(&mut out, "grid", (x(size), TOP), (x(size), TOP + HEIGHT));
            text(&mut out, x(size), TOP + HEIGHT + 20.0, "middle", &shown(size));
        }
        size *= step;
    }
    let now = x(report.cache);
    line(&mut out, "now", (now, TOP), (now, TOP + HEIGHT));
    text(&mut out, now, TOP - 8.0, "middle", &format!("now {}", shown(report.cache)));
    for (at, (name, span)) in lines.iter().enumerate() {
        let (colour, dashes) = (COLOURS.get(at).unwrap_or(&""), DASHES.get(at).unwrap_or(&""));
        let drawn = format!("class=\"{colour}\" stroke-dasharray=\"{dashes}\"");
        let _ = writeln!(out, "<path {drawn} d=\"{}\"/>", path(span, (from, to), &x, &y));
        let base = TOP + HEIGHT + 50.0 + 22.0 * at as f64;
        let _ = writeln!(out, "<path {drawn} d=\"M{LEFT} {}h40\"/>", base - 5.0);
        text(&mut out, LEFT + 50.0, base, "start", name);
    }
    out.push_str("</svg>\n");
    out
}

fn path(span: &Span, (from, to): (f64, f64), x: &impl Fn(f64) -> f64, y: &impl Fn(f64) -> f64) -> String {
    let mut sizes: Vec<f64> = (0..=380).map(|at| from * (to / from).powf(f64::from(at) / 380.0)).collect();
    sizes.extend(span.curve.iter().map(|(size, _)| *size).filter(|size| (from..=to).contains(size)));
    sizes.sort_by(f64::total_cmp);
    let mut path = String::new();
    for size in sizes {
        let letter = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{:.1} {:.1}", x(size), y(span.at(size)));
    }
    path
}

fn line(out: &mut String, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(out, "<path class=\"{class}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>");
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ =
        writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(words));
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_line_for_each_and_names_that_mean_nothing_to_it() {
        let span = || Span { curve: vec![(1e6, 0.2), (1e8, 0.9)], reads: 9, ..Span::default() };
        let report = Report {
            cache: 1e7,
            sampled: 1,
            hour_seconds: 60,
            seconds: 60,
            hour: span(),
            start: span(),
            parts: vec![("d.<c>".to_string(), span(), span())],
        };
        let picture = picture("h:1", &report);
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert!(
            picture.contains("d.&lt;c&gt;") && picture.matches("class=\"two\"").count() == 2,
            "{picture}"
        );
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    }
}
