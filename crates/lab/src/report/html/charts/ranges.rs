//! Latencies of several rows beside one another: a line from the median to p99 for each, on one scale.

use super::{Figure, NAME_MOST, in_words};
use crate::report::html::colours::Colours;
use crate::report::html::svg::{self, Scale, WIDTH};
use crate::report::{figures, groups};
use crate::result::Row;
use std::fmt::Write as _;

const LINE: f64 = 28.0;
/// Room on the right for the two figures.
const TEXT: f64 = 128.0;

/// The picture of these rows, each under its target's name.
pub(crate) fn figure(caption: &str, rows: &[&Row], colours: &Colours) -> Figure {
    let rows: Vec<&Row> = rows.iter().copied().filter(|row| row.operations > 0).collect();
    let names: Vec<String> = rows.iter().map(|row| groups::marked(row)).collect();
    Figure { caption: caption.to_string(), legend: Vec::new(), svg: picture(caption, &rows, &names, colours) }
}

fn picture(title: &str, rows: &[&Row], names: &[String], colours: &Colours) -> String {
    let ends = |row: &Row| [0.5, 0.99].map(|share| row.latency.quantile(share));
    let all: Vec<f64> = rows.iter().flat_map(|row| ends(row)).collect();
    let scale = Scale::log(&all, "latency", figures::latency);
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let from = 16.0 + svg::LETTER * longest.min(NAME_MOST) as f64;
    let to = WIDTH - TEXT;
    let at = |value: f64| scale.share(value).map(|share| from + share * (to - from));
    let bottom = rows.len() as f64 * LINE + 6.0;
    let mut parts = String::new();
    let mut free_from = f64::NEG_INFINITY;
    for (value, label) in scale.ticks() {
        let Some(x) = at(*value) else { continue };
        parts += &svg::segment(x, 4.0, x, bottom, "grid");
        let half = label.chars().count() as f64 * svg::LETTER / 2.0;
        if x - half > free_from {
            parts += &svg::text(x, bottom + 15.0, "tick x middle", label);
            free_from = x + half + svg::LETTER;
        }
    }
    for (line, (row, name)) in rows.iter().zip(names).enumerate() {
        let y = line as f64 * LINE + 18.0;
        let class = colours.class(&row.target);
        parts += &svg::text(from - 8.0, y + 4.0, "name end", &svg::shorten(name, NAME_MOST));
        let [median, tail] = ends(row);
        if let Some((left, right)) = at(median).zip(at(tail)) {
            let words = svg::escape(&in_words(row));
            let _ = write!(
                parts,
                "<g><title>{words}</title><line x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\" \
                 class=\"span {class}\"/><circle cx=\"{left:.1}\" cy=\"{y:.1}\" r=\"5\" class=\"dot {class}\"/></g>"
            );
            parts += &svg::segment(right, y - 6.0, right, y + 6.0, &format!("span {class}"));
        }
        let told = format!("{} – {}", figures::latency(median), figures::latency(tail));
        parts += &svg::text(WIDTH - 2.0, y + 4.0, "value end", &told);
    }
    parts += &svg::text(to, bottom + 30.0, "label x end", "latency, from the median (dot) to p99");
    svg::picture("ranges", bottom + 36.0, title, &parts)
}
