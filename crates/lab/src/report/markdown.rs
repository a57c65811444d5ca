//! The report as Markdown, with the tables of the terminal.

use super::grid::{Detail, Grid};
use super::terminal;
use crate::result::Report;
use std::fmt::Write as _;

/// Returns the whole report.
pub(crate) fn render(report: &Report) -> String {
    let mut text = format!("# {}\n\n{}\n", escape(&report.title), escape(&report.about));
    let _ = writeln!(text, "\nRun {}, started {}, seed {}:\n", report.id, report.started, report.seed);
    let _ = writeln!(text, "    {}", report.command.replace('\n', " "));
    list(&mut text, "Warnings", &report.warnings);
    list(&mut text, "Errors", &report.errors);
    for section in &report.sections {
        let _ = writeln!(text, "\n## {}\n\n{}\n", escape(&section.title), escape(&section.about));
        text += &table(&Grid::of_section(report, section, Detail::Brief));
    }
    let targets = report.targets.iter().map(|target| {
        let print = &target.fingerprint;
        let settings: String =
            print.details.iter().map(|(name, value)| format!("; {name}: {value}")).collect();
        let loss = print.promise.possible_loss();
        format!("{}: {}; possible loss: {loss}{settings}", target.name, terminal::describe(target))
    });
    list(&mut text, "Targets", &targets.collect::<Vec<_>>());
    let environment = report.environment.iter().map(|(name, value)| format!("{name}: {value}"));
    list(&mut text, "Environment", &environment.collect::<Vec<_>>());
    text
}

fn list(text: &mut String, heading: &str, items: &[String]) {
    if !items.is_empty() {
        let _ = writeln!(text, "\n## {heading}\n");
    }
    for item in items {
        let _ = writeln!(text, "- {}", escape(item));
    }
}

fn table(grid: &Grid) -> String {
    let heads: Vec<_> = grid.heads.iter().map(|head| escape(head)).collect();
    let mut text =
        format!("| case | target | {} |\n|---|---|{}\n", heads.join(" | "), "--:|".repeat(heads.len()));
    for line in &grid.lines {
        let case = if line.starts_case { escape(&line.case) } else { String::new() };
        let note = line.note.map(|note| format!(" [{note}]")).unwrap_or_default();
        let _ = writeln!(text, "| {case} | {}{note} | {} |", escape(&line.target), line.cells.join(" | "));
    }
    for (at, note) in grid.notes.iter().enumerate() {
        let _ = writeln!(text, "\n[{}] {}", at + 1, escape(note));
    }
    text
}

/// Escapes text for Markdown, on one line.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\r' => escaped.push(' '),
            '<' => escaped += "&lt;",
            '&' => escaped += "&amp;",
            '\\' | '|' | '*' | '_' | '`' | '[' | ']' => escaped.extend(['\\', character]),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests as testing;

    #[test]
    fn tables_have_as_many_cells_in_each_line() {
        let text = render(&testing::report());
        let mut lines = text.lines().skip_while(|line| !line.starts_with("| case")).peekable();
        let bars = |line: &str| line.replace("\\|", "").matches('|').count();
        let head = bars(lines.peek().unwrap());
        let table: Vec<_> = lines.take_while(|line| line.starts_with('|')).collect();
        assert_eq!(table.len(), 2 + 12);
        assert!(table.iter().all(|line| bars(line) == head), "{text}");
    }

    #[test]
    fn text_of_users_is_no_markup() {
        assert_eq!(escape("a|b <i> [x](y)\n`"), "a\\|b &lt;i> \\[x\\](y) \\`");
        assert!(!render(&testing::report()).contains("<script>"));
    }
}
