//! Runs of several machines, or of several versions, side by side: a column for each.

use super::limit::Metric;
use crate::error::{Error, Result};
use crate::options::Compare;
use crate::report::grid::{Grid, Line, NOTHING};
use crate::report::html::charts::ranges;
use crate::report::html::colours::Colours;
use crate::report::html::page::{self, escape};
use crate::report::terminal::{self, Page};
use crate::report::{figures, groups, json, print, save};
use crate::result::{Report, Row, Section};
use console::Style;
use std::fmt::Write as _;
use std::io::Write;

/// The figures of a column.
const SHOWN: [Metric; 3] = [Metric::Rate, Metric::P50, Metric::P99];

/// A run, under the name of its file.
struct Column {
    name: String,
    report: Report,
}

/// A line of a section that some runs have.
struct Across<'a> {
    label: String,
    target: String,
    /// As many as there are columns.
    rows: Vec<Option<&'a Row>>,
}

/// Prints the runs side by side, and draws them if that is asked.
pub(super) fn run(options: &Compare, out: &mut dyn Write) -> Result<()> {
    if !options.fail_if.is_empty() {
        return Err(Error::Input("--fail-if judges a run of before and one of after: give two".to_string()));
    }
    let mut columns: Vec<Column> = Vec::new();
    for path in [&options.before, &options.after].into_iter().chain(&options.more) {
        let stem = path.file_stem().map_or("run".to_string(), |stem| stem.to_string_lossy().to_string());
        let taken = columns.iter().filter(|column| column.name.starts_with(&stem)).count();
        let name = if taken == 0 { stem } else { format!("{stem}-{}", taken + 1) };
        columns.push(Column { name, report: json::read(path)? });
    }
    let sections = sections(&columns);
    if sections.is_empty() {
        return Err(Error::Input(
            "no row stands in two of the reports: nothing stands side by side".to_string(),
        ));
    }
    let warnings = warnings(&columns);
    let page = Page::of_stdout();
    let mut text = format!("\n{}\n", page.bold(&title(&columns)));
    for column in &columns {
        let _ = writeln!(text, "  {}: {}", column.name, machine(&column.report));
    }
    text += &page.list("Warnings", "!", Style::new().yellow(), &warnings);
    for (section, lines) in &sections {
        let _ = writeln!(text, "\n{}", page.bold(&section.title));
        text += &terminal::table(&grid(lines, &columns), page);
    }
    print(out, &text)?;
    options.report.as_ref().map_or(Ok(()), |path| save(out, path, &html(&columns, &sections, &warnings)))
}

fn title(columns: &[Column]) -> String {
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let what = columns.first().map_or("", |column| column.report.title.as_str());
    format!("{what}: {}", figures::list(&names))
}

/// What a reader must know of the machine.
fn machine(report: &Report) -> String {
    let wanted = ["processors", "memory", "system", "temporary files on", "load at the start"];
    let known = report.environment.iter().filter(|(name, _)| wanted.contains(&name.as_str()));
    let known: Vec<String> = known.map(|(name, value)| format!("{name} {value}")).collect();
    known.join("; ")
}

fn warnings(columns: &[Column]) -> Vec<String> {
    let mut found = Vec::new();
    let experiments: Vec<&str> = columns.iter().map(|column| column.report.experiment.as_str()).collect();
    if experiments.windows(2).any(|pair| pair[0] != pair[1]) {
        found.push(format!("These are different experiments: {}.", experiments.join(", ")));
    }
    for Column { name, report } in columns {
        found.extend(report.smoke_test().map(|text| format!("{name}: {text}")));
        found.extend(report.warnings.iter().map(|text| format!("{name}: {text}")));
        found.extend(report.errors.iter().map(|text| format!("{name}: {text}")));
    }
    found
}

/// The sections of the first run that knows them, with lines that two runs at least have.
fn sections(columns: &[Column]) -> Vec<(&Section, Vec<Across<'_>>)> {
    let mut known: Vec<&Section> = Vec::new();
    for section in columns.iter().flat_map(|column| &column.report.sections) {
        if !known.iter().any(|other| other.id == section.id) {
            known.push(section);
        }
    }
    let lines = |id: &str| {
        let of = |column: &'_ Column| column.report.sections.iter().position(|section| section.id == id);
        let mut lines: Vec<Across> = Vec::new();
        for (at, column) in columns.iter().enumerate() {
            let Some(section) = of(column).and_then(|place| column.report.sections.get(place)) else {
                continue;
            };
            for row in section.rows.iter().filter(|row| row.operations > 0) {
                let label = super::difference::label_at(groups::label(section, row), row);
                let line = lines.iter_mut().find(|line| line.label == label && line.target == row.target);
                match line {
                    Some(line) => line.rows[at] = Some(row),
                    None => {
                        let mut rows = vec![None; columns.len()];
                        rows[at] = Some(row);
                        lines.push(Across { label, target: row.target.clone(), rows });
                    }
                }
            }
        }
        lines.retain(|line| line.rows.iter().flatten().count() > 1);
        lines.sort_by_key(|line| lines_order(columns, id, line));
        lines
    };
    let all = known.into_iter().map(|section| (section, lines(&section.id)));
    all.filter(|(_, lines)| !lines.is_empty()).collect()
}

/// The place of a line's case in the first run that has it, so that a case's targets stand together.
fn lines_order(columns: &[Column], id: &str, line: &Across) -> usize {
    let sections =
        columns.iter().flat_map(|column| &column.report.sections).filter(|section| section.id == id);
    let mut rows = sections.flat_map(|section| section.rows.iter().map(move |row| (section, row)));
    let place = rows.position(|(section, row)| {
        super::difference::label_at(groups::label(section, row), row) == line.label
    });
    place.unwrap_or(usize::MAX)
}

/// "712 a second, 1.3 ms, 4 ms", each beside how it compares with the first column.
fn grid(lines: &[Across], columns: &[Column]) -> Grid {
    let cell = |line: &Across, at: usize| {
        let Some(row) = line.rows.get(at).copied().flatten() else { return NOTHING.to_string() };
        let values = SHOWN.iter().filter_map(|metric| Some(metric.text(metric.of(row)?))).collect::<Vec<_>>();
        let first = line.rows.first().copied().flatten().filter(|_| at > 0);
        let ratio = first.filter(|first| first.rate() > 0.0).map(|first| row.rate() / first.rate());
        let ratio = ratio.map(|ratio| format!(" ({})", figures::times(ratio))).unwrap_or_default();
        let mark = if row.is_shortened() { " †" } else { "" };
        format!("{}{ratio}{mark}", values.join(" · "))
    };
    let mut last = "";
    let mut found = Vec::new();
    for line in lines {
        found.push(Line {
            case: line.label.clone(),
            opens: last != line.label,
            target: line.target.clone(),
            cells: (0..columns.len()).map(|at| cell(line, at)).collect(),
            share: 0.0,
            note: None,
        });
        last = &line.label;
    }
    let heads = columns.iter().enumerate().map(|(at, column)| match at {
        0 => format!("{}: per second · p50 · p99", column.name),
        _ => format!("{} (rate × {})", column.name, columns.first().map_or("", |first| first.name.as_str())),
    });
    Grid { heads: heads.collect(), lines: found, notes: Vec::new() }
}

fn html(columns: &[Column], sections: &[(&Section, Vec<Across>)], warnings: &[String]) -> String {
    let title = title(columns);
    let mut body = format!(
        "<header>\n<p class=\"over\">Vellum lab · side by side</p>\n<h1>{}</h1>\n<dl>\n",
        escape(&title)
    );
    for column in columns {
        let _ =
            writeln!(body, "<dt>{}</dt><dd>{}</dd>", escape(&column.name), escape(&machine(&column.report)));
    }
    body += "</dl>\n</header>\n";
    body += &page::notice("warn", "Before you believe a difference", warnings);
    let colours = Colours::of(columns.iter().map(|column| column.name.as_str()));
    for (section, lines) in sections {
        let _ =
            writeln!(body, "<section id=\"{}\">\n<h2>{}</h2>", escape(&section.id), escape(&section.title));
        for group in lines.chunk_by(|a, b| a.label == b.label) {
            let figures: Vec<_> = group.iter().map(|line| picture(line, columns, &colours)).collect();
            let label = group.first().map_or("", |line| line.label.as_str());
            let _ = writeln!(body, "<h3>{}</h3>", escape(label));
            body += &crate::report::html::beside(&figures);
        }
        let grid = grid(lines, columns);
        let heads: Vec<String> =
            ["case", "target"].map(str::to_string).into_iter().chain(grid.heads).collect();
        let rows = grid.lines.into_iter().map(|line| [vec![line.case, line.target], line.cells].concat());
        let table = page::table(&heads, &rows.collect::<Vec<_>>(), 2);
        let _ = write!(
            body,
            "<details class=\"numbers\">\n<summary>All numbers</summary>\n{table}</details>\n</section>\n"
        );
    }
    page::page(&format!("{title} · Vellum lab"), &body)
}

/// One target in one case: a line for each run.
fn picture(line: &Across, columns: &[Column], colours: &Colours) -> crate::report::html::charts::Figure {
    let rows: Vec<Row> = line
        .rows
        .iter()
        .zip(columns)
        .filter_map(|(row, column)| Some(Row { target: column.name.clone(), ..(*row)?.clone() }))
        .collect();
    ranges::figure(&line.target, &rows.iter().collect::<Vec<_>>(), colours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn each_run_has_its_column_beside_the_others() {
        let folder = std::env::temp_dir().join(format!("vellum-columns-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let paths = ["laptop", "server", "cloud"].map(|name| folder.join(format!("{name}.json")));
        for path in &paths {
            std::fs::write(path, json::render(&testing::report()).unwrap()).unwrap();
        }
        let [before, after, more] = paths;
        let page = folder.join("page.html");
        let mut options =
            Compare { before, after, more: vec![more], fail_if: Vec::new(), report: Some(page.clone()) };
        let mut said = Vec::new();
        run(&options, &mut said).unwrap();
        let said = String::from_utf8(said).unwrap();
        for part in
            ["laptop, server and cloud", "(1.00×)", "processors 2 × Some CPU", "server (rate × laptop)"]
        {
            assert!(said.contains(part), "{part} in {said}");
        }
        let html = std::fs::read_to_string(&page).unwrap();
        assert!(html.contains("data-kind=\"ranges\"") && !html.contains("<script"));
        options.fail_if = vec!["p99>+10%".to_string()];
        assert!(run(&options, &mut Vec::new()).unwrap_err().to_string().contains("give two"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
