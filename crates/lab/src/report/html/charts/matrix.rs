//! All cases of a target in one picture: rows and columns of cells, each with its median and its tail on one scale that all
//! pictures of the section share.

use super::{Figure, Panel, in_words};
use crate::report::figures;
use crate::report::html::colours::Colours;
use crate::report::html::svg::{self, Scale, WIDTH};
use crate::result::{Row, Section};
use std::fmt::Write as _;

/// Where the first column begins, and the sizes of a cell.
const FROM: f64 = 74.0;
const HEAD: f64 = 22.0;
const CELL: f64 = 50.0;
const GAP: f64 = 4.0;

/// A panel for each number of connections, a picture for each target.
pub(super) fn panels(section: &Section, colours: &Colours) -> Vec<Panel> {
    let measured = section.rows.iter().filter(|row| row.operations > 0);
    let all: Vec<f64> =
        measured.flat_map(|row| [0.5, 0.99].map(|share| row.latency.quantile(share))).collect();
    let scale = Scale::log(&all, "latency", figures::latency);
    let (rows, columns) = (heads(section, |(row, _)| row), heads(section, |(_, column)| column));
    let frame = Frame { scale, rows, columns };
    let (connections, targets) =
        (distinct(section, |row| row.connections), distinct(section, |row| row.target.as_str()));
    let panel = |connections: u32| {
        let picture = |target: &&str| {
            let cells: Vec<&Row> = section
                .rows
                .iter()
                .filter(|row| row.connections == connections && row.target == *target)
                .collect();
            let title =
                format!("{}: {target}, {}", section.title, figures::plural(connections.into(), "connection"));
            Figure {
                caption: (*target).to_string(),
                legend: Vec::new(),
                svg: frame.picture(&title, &cells, colours.class(target)),
            }
        };
        Panel {
            label: format!("{}: median, and p99 beneath", figures::plural(connections.into(), "connection")),
            figures: targets.iter().map(picture).collect(),
        }
    };
    connections.into_iter().map(panel).collect()
}

fn distinct<'a, T: PartialEq>(section: &'a Section, of: impl Fn(&'a Row) -> T) -> Vec<T> {
    let mut found = Vec::new();
    for value in section.rows.iter().map(of) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// A case's row and column.
fn place(case: &str) -> (&str, &str) {
    case.split_once(", ").unwrap_or((case, ""))
}

fn heads<'a>(section: &'a Section, of: impl Fn((&'a str, &'a str)) -> &'a str) -> Vec<&'a str> {
    distinct(section, |row| of(place(&row.case)))
}

/// What all pictures of a section share.
struct Frame<'a> {
    scale: Scale,
    rows: Vec<&'a str>,
    columns: Vec<&'a str>,
}

impl Frame<'_> {
    fn picture(&self, title: &str, cells: &[&Row], class: &str) -> String {
        let width = (WIDTH - FROM) / self.columns.len().max(1) as f64 - GAP;
        let left = |column: usize| FROM + column as f64 * (width + GAP);
        let mut parts = String::new();
        for (at, column) in self.columns.iter().enumerate() {
            let head = if column.is_empty() { "not said" } else { column };
            parts += &svg::text(left(at) + width / 2.0, 14.0, "tick head middle", head);
        }
        for (at, row) in self.rows.iter().enumerate() {
            let top = HEAD + at as f64 * (CELL + GAP);
            parts += &svg::text(FROM - 8.0, top + CELL / 2.0 + 4.0, "name end", row);
            for (across, column) in self.columns.iter().enumerate() {
                let cell = cells.iter().find(|cell| place(&cell.case) == (*row, *column));
                parts += &self.cell(cell.copied(), (left(across), top, width), class);
            }
        }
        let bottom = HEAD + self.rows.len() as f64 * (CELL + GAP);
        let ends = self.scale.ends().map(figures::latency);
        parts += &svg::text(
            0.0,
            bottom + 12.0,
            "label start",
            &format!("lines: median to p99, {} to {}", ends[0], ends[1]),
        );
        svg::picture("matrix", bottom + 18.0, title, &parts)
    }

    fn cell(&self, row: Option<&Row>, (x, y, width): (f64, f64, f64), class: &str) -> String {
        let middle = x + width / 2.0;
        let measured = row.filter(|row| row.operations > 0);
        let Some(row) = measured else {
            let note = row.and_then(|row| row.note.as_deref()).unwrap_or("not measured");
            let brief = note.split_once(':').map_or(note, |(brief, _)| brief);
            let text = svg::text(middle, y + CELL / 2.0 + 4.0, "tick middle", &svg::shorten(brief, 15));
            let note = svg::escape(note);
            return format!(
                "<g><title>{note}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{CELL}\" rx=\"4\" \
                 class=\"cell none\"/>{text}</g>"
            );
        };
        let [median, tail] = [0.5, 0.99].map(|share| row.latency.quantile(share));
        let share = |value: f64| self.scale.share(value).unwrap_or(0.0);
        // From hardly any colour for the fastest cell of the section to much of it for the slowest.
        let shade = 0.06 + 0.38 * share(median);
        let inner = width - 16.0;
        let [from, to] = [median, tail].map(|value| x + 8.0 + share(value) * inner);
        let line = y + CELL - 8.0;
        let mut text = format!("<g><title>{}</title>", svg::escape(&in_words(row)));
        let _ = write!(
            text,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{CELL}\" rx=\"4\" class=\"cell {class}\" \
             style=\"fill-opacity:{shade:.2}\"/>"
        );
        let mark = if row.is_shortened() { format!(" {}", crate::report::SHORTENED) } else { String::new() };
        text += &svg::text(middle, y + 17.0, "value middle", &format!("{}{mark}", figures::latency(median)));
        text += &svg::text(middle, y + 32.0, "tick middle", &format!("p99 {}", figures::latency(tail)));
        text += &svg::segment(from, line, to.max(from + 1.0), line, &format!("span {class}"));
        let _ =
            write!(text, "<circle cx=\"{from:.1}\" cy=\"{line:.1}\" r=\"3.5\" class=\"dot {class}\"/></g>");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;
    use crate::result::Kind;

    #[test]
    fn each_target_has_one_picture_with_every_cell() {
        let mut report = testing::report();
        let mut rows = Vec::new();
        for (w, slower) in [("w 1", 1.0), ("w majority", 3.0)] {
            for (j, cost) in [("", 1.0), (", j true", 20.0)] {
                rows.push(testing::row("memory", &format!("{w}{j}"), 1, 100.0 * slower * cost, 1));
                let mut refused = Row::new("floor", &format!("{w}{j}"), 1);
                refused.note = Some("claimed: it can't <b>".to_string());
                rows.push(refused);
            }
        }
        (report.sections[0].rows, report.sections[0].kind) = (rows, Kind::Matrix);
        let panels = panels(&report.sections[0], &Colours::new(&report));
        assert_eq!((panels.len(), panels[0].figures.len()), (1, 2));
        let [memory, floor] = panels[0].figures.as_slice() else { panic!() };
        assert_eq!(
            (memory.svg.matches("class=\"cell c0").count(), memory.svg.matches("<circle").count()),
            (4, 4)
        );
        for part in [">w majority<", ">j true<", ">not said<", ">p99 "] {
            assert!(memory.svg.contains(part), "{part}");
        }
        assert_eq!(floor.svg.matches(">claimed<").count(), 4);
        assert!(!floor.svg.contains("<b>"));
    }
}
