//! The report on a terminal: targets and warnings first, then a table for each section.
//!
//! A table that is too wide continues in a second table below; figures are never cut. Colour marks the most important
//! parts, and only on a terminal.

use super::figures;
use super::grid::{Detail, Grid};
use crate::result::{Report, TargetInfo};
use console::{Alignment, Style, Term, measure_text_width, pad_str};
use std::fmt::Write as _;

/// Properties of the output.
#[derive(Clone, Copy)]
pub(crate) struct Page {
    /// Characters in a line.
    pub(crate) width: usize,
    pub(crate) colour: bool,
}

impl Page {
    /// Returns the properties of standard output: the terminal's width, or wide and plain without a terminal.
    pub(crate) fn of_stdout() -> Page {
        let term = Term::stdout();
        let width = term.size_checked().filter(|_| term.is_term()).map_or(160, |(_, columns)| columns.into());
        Page { width: width.max(40), colour: term.is_term() && console::colors_enabled() }
    }

    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        style.force_styling(self.colour).apply_to(text).to_string()
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint(Style::new().dim(), text)
    }

    /// Returns a list under a heading, with wrapped lines; an empty text for an empty list.
    pub(crate) fn list(self, heading: &str, mark: &str, style: Style, items: &[String]) -> String {
        if items.is_empty() {
            return String::new();
        }
        let mut text = format!("\n{}\n", self.bold(heading));
        for item in items {
            let indent = measure_text_width(mark) + 3;
            let lines = wrap(item, self.width.saturating_sub(indent));
            let marked = self.paint(style.clone(), mark);
            let _ = writeln!(text, "  {marked} {}", lines.join(&format!("\n{}", " ".repeat(indent))));
        }
        text
    }
}

/// Returns the whole report as text.
pub(crate) fn render(report: &Report, page: Page) -> String {
    let mut text = header(report, page);
    for section in &report.sections {
        let _ = write!(text, "\n{}", page.bold(&section.title));
        let _ = writeln!(text, "  {}", page.dim(&format!("[{}]", section.id)));
        for line in wrap(&section.about, page.width) {
            let _ = writeln!(text, "{}", page.dim(&line));
        }
        text += &table(&Grid::of_section(report, section, Detail::Brief), page);
    }
    text += &page.list("Errors", "✗", Style::new().red(), &report.errors);
    text
}

/// Returns the text before the figures: the run, its targets, the warnings.
pub(crate) fn header(report: &Report, page: Page) -> String {
    let mut text = format!("\n{}\n", page.bold(&report.title));
    for line in wrap(&report.about, page.width) {
        let _ = writeln!(text, "{line}");
    }
    let took = figures::seconds(report.seconds);
    let run = format!("run {}, seed {}, {took}", report.id, report.seed);
    let _ = writeln!(text, "{}", page.dim(&run));
    let names = report.targets.iter().map(|target| measure_text_width(&target.name)).max().unwrap_or(0);
    if !report.targets.is_empty() {
        let _ = writeln!(text, "\n{}", page.bold("Targets"));
    }
    for target in &report.targets {
        let name = pad_str(&target.name, names, Alignment::Left, None);
        let lines = wrap(&describe(target), page.width.saturating_sub(names + 4));
        let _ = writeln!(text, "  {name}  {}", lines.join(&format!("\n{}", " ".repeat(names + 4))));
    }
    text + &page.list("Warnings", "!", Style::new().yellow(), &report.warnings)
}

/// Returns "Vellum 0.1.0, disk: survives a machine crash; fdatasync 812 µs".
pub(crate) fn describe(target: &TargetInfo) -> String {
    let print = &target.fingerprint;
    let engine = if print.engine.is_empty() { String::new() } else { format!(", {}", print.engine) };
    let mut text = format!("{}{engine}: {}", print.server, print.promise.label());
    if let Some(sync) = print.sync_microseconds {
        let _ = write!(text, "; fdatasync {}", figures::latency(sync));
    }
    text
}

/// Wraps text at spaces to a maximum width in characters.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && measure_text_width(&line) + 1 + measure_text_width(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Returns the table in as many parts as the width requires, and its notes. Each case has its own line.
pub(crate) fn table(grid: &Grid, page: Page) -> String {
    let names: Vec<String> = grid.lines.iter().map(|line| format!("  {}", line.name())).collect();
    let left = names.iter().map(|name| measure_text_width(name)).max().unwrap_or(0);
    let width_of = |at: usize| {
        let cells = grid.lines.iter().filter_map(|line| line.cells.get(at));
        cells.chain(grid.heads.get(at)).map(|cell| measure_text_width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..grid.heads.len()).map(width_of).collect();
    let mut text = String::new();
    let mut from = 0;
    while from < widths.len() {
        let to = fitting(&widths, from, page.width.saturating_sub(left));
        let cells = |cells: &[String]| -> String {
            let shown = cells.iter().zip(&widths).take(to).skip(from);
            shown
                .map(|(cell, width)| format!("  {}", pad_str(cell, *width, Alignment::Right, None)))
                .collect()
        };
        let head = format!("{}{}", " ".repeat(left), cells(&grid.heads));
        let _ = writeln!(text, "{}", page.dim(&head));
        for (line, name) in grid.lines.iter().zip(&names) {
            let case = if line.starts_case { wrap(&line.case, page.width) } else { Vec::new() };
            case.iter().for_each(|part| text += &format!("{}\n", page.bold(part)));
            let _ = writeln!(text, "{}{}", pad_str(name, left, Alignment::Left, None), cells(&line.cells));
        }
        from = to;
    }
    for (at, note) in grid.notes.iter().enumerate() {
        let lines = wrap(note, page.width.saturating_sub(5));
        let _ = writeln!(text, "{}", page.dim(&format!("[{}] {}", at + 1, lines.join("\n    "))));
    }
    text
}

/// Returns the end of the columns from `from` on that fit into the width. At least one column fits.
fn fitting(widths: &[usize], from: usize, page_width: usize) -> usize {
    let mut used = 0;
    let mut to = from;
    for width in widths.iter().skip(from) {
        used += width + 2;
        if used > page_width && to > from {
            break;
        }
        to += 1;
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests as testing;

    fn text(width: usize) -> String {
        render(&testing::report(), Page { width, colour: false })
    }

    #[test]
    fn warnings_stand_before_figures_and_errors_after() {
        let text = text(160);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
        assert!(at("the lab itself was busy") < at("ops/s"));
        assert!(at("Vellum 0.1.0, memory: ") < at("the lab itself was busy"));
        assert!(at("Errors") > at("[rates]"));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [60, 80, 100, 160] {
            let text = text(width);
            for line in text.lines() {
                assert!(measure_text_width(line) <= width, "{width}: {line}");
            }
            assert_eq!(text.matches("CPU/op").count(), 3, "{text}");
        }
    }

    #[test]
    fn columns_stand_under_one_another() {
        let text = text(160);
        let lines: Vec<&str> = text
            .lines()
            .skip_while(|line| !line.contains("ops/s"))
            .filter(|line| line.starts_with("  "))
            .take(6)
            .collect();
        let column = |line: &str, part: &str| {
            line.find(part).map(|at| line[..at].chars().count() + part.chars().count())
        };
        let end = column(lines[0], "ops/s").unwrap();
        for line in &lines[1..] {
            let before: String = line.chars().take(end).collect();
            assert!(before.ends_with(|c: char| c.is_ascii_digit()), "{before:?}");
        }
    }

    #[test]
    fn plain_text_has_no_escapes_and_coloured_text_has() {
        assert!(!text(80).contains('\u{1b}'));
        assert!(render(&testing::report(), Page { width: 80, colour: true }).contains('\u{1b}'));
    }
}
