//! The report as a page: what it means first, then what to know before believing it, then a
//! picture for every comparison with its numbers beneath.

pub(crate) mod charts;
pub(crate) mod colours;
mod front;
pub(crate) mod page;
mod seen;
pub(crate) mod svg;

use super::grid::{Detail, Grid};
use super::{figures, groups, promise};
use crate::result::{Kind, Report, Section, TargetInfo};
use charts::{Figure, Panel};
use colours::Colours;
use page::escape;
use seen::Seen;
use std::fmt::Write as _;

/// With more groups than this, only the bars are shown at once; the rest unfolds.
const GROUPS_OPEN: usize = 3;

/// The whole page.
pub(crate) fn render(report: &Report) -> String {
    if !report.parts.is_empty() {
        return front::render(report);
    }
    let colours = Colours::new(report);
    let mut body = header(report);
    body += &page::notice("means", "What it means", &report.findings);
    body += &page::notice("wrong", "What went wrong", &report.errors);
    body += &page::notice("warn", "Before you believe a figure", &report.warnings);
    body += &targets(report, &colours);
    let floor = groups::floor(report);
    let mut seen = Seen::default();
    for each in &report.sections {
        body += &section(each, floor, &colours, &mut seen);
    }
    body += &environment(report);
    page::page(&format!("{} · Vellum lab", report.title), &body)
}

fn header(report: &Report) -> String {
    let started = report.started.replace('T', " ");
    format!(
        "<header>\n<p class=\"over\">Vellum lab · {}</p>\n<h1>{}{}</h1>\n<p class=\"lead\">{}</p>\n\
         <p class=\"meta\">{} · took {} · seed {} · run {}</p>\n</header>\n",
        escape(&report.experiment),
        escape(&report.title),
        report.smoke_test().map_or("", |_| " <span class=\"tag\">smoke test</span>"),
        escape(&report.about),
        escape(&started),
        figures::seconds(report.seconds),
        report.seed,
        escape(&report.id)
    )
}

/// A coloured square and a name.
fn chip(class: &str, name: &str) -> String {
    format!("<span class=\"chip {class}\">{}</span>", escape(name))
}

fn targets(report: &Report, colours: &Colours) -> String {
    if report.targets.is_empty() {
        return String::new();
    }
    let cards: String = report.targets.iter().map(|target| card(target, colours)).collect();
    format!(
        "<section>\n<h2>Targets and what they promise</h2>\n<div class=\"cards\">\n{cards}</div>\n</section>\n"
    )
}

fn card(target: &TargetInfo, colours: &Colours) -> String {
    let print = &target.fingerprint;
    let mut lines = Vec::new();
    if !print.engine.is_empty() {
        lines.push(("engine".to_string(), print.engine.clone()));
    }
    if let Some(sync) = print.sync_microseconds {
        lines.push(("fdatasync there".to_string(), figures::latency(sync)));
    }
    let mut details = vec![("address".to_string(), target.uri.clone())];
    details.extend(print.details.iter().cloned());
    format!(
        "<article class=\"card\">\n<h3>{}</h3>\n<p>{}: {}.</p>\n{}\
         <details>\n<summary>Settings</summary>\n{}</details>\n</article>\n",
        chip(colours.class(&target.name), &target.name),
        escape(&print.server),
        promise::words(print.promise),
        definitions(&lines),
        definitions(&details)
    )
}

fn definitions(lines: &[(String, String)]) -> String {
    let line =
        |(name, value): &(String, String)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value));
    format!("<dl>\n{}</dl>\n", lines.iter().map(line).collect::<String>())
}

fn section(section: &Section, floor: Option<&str>, colours: &Colours, seen: &mut Seen) -> String {
    let (panels, known) = seen.new_ones(charts::panels(section, colours));
    let known = match known.is_empty() {
        true => String::new(),
        false => format!("<p class=\"note\">Drawn above already: {}.</p>\n", escape(&known.join("; "))),
    };
    let fold = panels.len() > GROUPS_OPEN && section.kind == Kind::Bars;
    let pictures = if fold { folded(panels) } else { unfolded(&panels) };
    format!(
        "<section id=\"{}\">\n<h2>{}</h2>\n<p class=\"lead\">{}</p>\n{pictures}{known}{}</section>\n",
        escape(&section.id),
        escape(&section.title),
        escape(&section.about),
        numbers(section, floor)
    )
}

/// Group beneath group, the pictures of each beside one another.
fn unfolded(panels: &[Panel]) -> String {
    let mut text = String::new();
    for panel in panels {
        if !panel.label.is_empty() {
            let _ = writeln!(text, "<h3>{}</h3>", escape(&panel.label));
        }
        text += &beside(&panel.figures);
    }
    text
}

pub(crate) fn beside(figures: &[Figure]) -> String {
    let figures: String = figures.iter().map(figure).collect();
    format!("<div class=\"figures\">\n{figures}</div>\n")
}

/// The first picture of every group beside one another, under the group's name; the rest folded away.
fn folded(mut panels: Vec<Panel>) -> String {
    let mut first = Vec::new();
    let mut caption = String::new();
    for panel in panels.iter_mut().filter(|panel| !panel.figures.is_empty()) {
        let figure = panel.figures.remove(0);
        caption = figure.caption;
        first.push(Figure { caption: panel.label.clone(), ..figure });
    }
    panels.retain(|panel| !panel.figures.is_empty());
    let shown = format!("<h3>{}</h3>\n{}", escape(&caption), beside(&first));
    if panels.is_empty() {
        return shown;
    }
    let rest = unfolded(&panels);
    format!("{shown}<details>\n<summary>Percentiles, and latency over time</summary>\n{rest}</details>\n")
}

fn figure(figure: &Figure) -> String {
    let legend: String = figure.legend.iter().map(|mark| chip(mark.class, &mark.label)).collect();
    let legend = if legend.is_empty() { legend } else { format!("<div class=\"legend\">{legend}</div>\n") };
    format!(
        "<figure>\n<figcaption>{}</figcaption>\n{}\n{legend}</figure>\n",
        escape(&figure.caption),
        figure.svg
    )
}

/// The raw numbers, folded away, and the notes, which are not.
fn numbers(section: &Section, floor: Option<&str>) -> String {
    let grid = Grid::new(section, floor, Detail::Full);
    let heads: Vec<String> = ["case", "target"].map(str::to_string).into_iter().chain(grid.heads).collect();
    let mut rows = Vec::new();
    for line in grid.lines {
        let note = line.note.map(|note| format!(" [{note}]")).unwrap_or_default();
        rows.push([vec![line.case, format!("{}{note}", line.target)], line.cells].concat());
    }
    let mut text = String::new();
    for (at, note) in grid.notes.iter().enumerate() {
        let _ = writeln!(text, "<p class=\"note\">[{}] {}</p>", at + 1, escape(note));
    }
    let table = page::table(&heads, &rows, 2);
    format!("{text}<details class=\"numbers\">\n<summary>All numbers</summary>\n{table}</details>\n")
}

fn environment(report: &Report) -> String {
    format!(
        "<section>\n<h2>Where it was measured, and how to repeat it</h2>\n{}<pre>{}</pre>\n\
         <p class=\"note\">Latencies are HdrHistograms of three significant digits, merged over rounds; \
         whiskers and brackets span the rounds, in which targets took turns.</p>\n</section>\n",
        definitions(&report.environment),
        escape(&report.command)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    /// Fails where elements aren't closed in the order they were opened.
    fn check_markup(text: &str) {
        let body = text.split_once("<main>").unwrap().1;
        let mut open = vec!["main".to_string()];
        for tag in body.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').unwrap_or_else(|| panic!("no end: {tag}"));
            let name: String =
                tag.trim_start_matches('/').chars().take_while(|c| c.is_alphanumeric()).collect();
            if tag.starts_with('/') {
                assert_eq!(open.pop().as_deref(), Some(name.as_str()));
                if open.is_empty() {
                    return;
                }
            } else if !tag.ends_with('/') {
                open.push(name);
            }
        }
        panic!("still open: {open:?}");
    }

    #[test]
    fn the_page_is_well_formed_and_whole() {
        let text = render(&testing::report());
        check_markup(&text);
        if let Ok(path) = std::env::var("VELLUM_LAB_FIXTURE") {
            std::fs::write(path, &text).unwrap();
        }
        for part in
            ["What it means", "Before you believe", "Targets and what they promise", "All numbers", "seed 42"]
        {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn nothing_is_loaded_or_run() {
        let text = render(&testing::report());
        for wrong in ["<script", "http://", "https://", "src=", "url(", "@import", "onload"] {
            let own = text.replace("mongodb://", "");
            assert!(!own.contains(wrong), "{wrong}");
        }
        assert!(text.contains("&lt;b&gt;peer &amp; co&lt;/b&gt;"));
    }

    #[test]
    fn many_groups_fold_their_curves_away() {
        let mut report = testing::report();
        let rows = (0..5).map(|case| testing::row("memory", &format!("case {case}"), 1, 90.0, case));
        report.sections[0].rows = rows.collect();
        report.sections.truncate(1);
        let text = render(&report);
        check_markup(&text);
        assert_eq!(text.matches("<summary>Percentiles").count(), 1);
        let (shown, folded) = text.split_once("<summary>Percentiles").unwrap();
        assert_eq!(shown.matches("<figure>").count(), 5);
        assert_eq!(folded.matches("<figure>").count(), 5 * 2);
        assert!(shown.contains("<figcaption>case 4</figcaption>") && folded.contains("<h3>case 4</h3>"));
    }
}
