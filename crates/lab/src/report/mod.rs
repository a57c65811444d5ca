//! What becomes of a run's figures: tables on the terminal, a page, Markdown, JSON.
//!
//! All of them read the one model ([`crate::result`]) and share how figures look
//! ([`figures`]), what belongs together ([`groups`]) and what may be said of it ([`findings`]).

pub(crate) mod compare;
pub(crate) mod figures;
mod findings;
mod grid;
mod groups;
pub(crate) mod headlines;
pub(crate) mod html;
pub(crate) mod json;
mod markdown;
mod promise;
pub(crate) mod terminal;
#[cfg(test)]
pub(crate) mod testing;

use crate::error::{Error, Result};
use crate::options::Common;
use crate::result::{Report, Row, Section};
use std::io::{self, Write};
use std::path::Path;
use terminal::Page;

/// Prints the report and writes the files that were asked for.
///
/// Sentences about the figures are added behind the experiment's own, and a warning if the
/// targets promise different things.
///
/// # Errors
/// A file that can't be written; the others are written all the same.
pub(crate) fn finish(report: &Report, common: &Common) -> Result<()> {
    let report = &complete(report);
    let mut out = io::stdout();
    print(&mut out, &terminal::render(report, Page::of_stdout()))?;
    let mut results = Vec::new();
    if let Some(path) = &common.json {
        results.push(json::render(report).and_then(|text| save(&mut out, path, &text)));
    }
    if let Some(path) = &common.markdown {
        results.push(save(&mut out, path, &markdown::render(report)));
    }
    if let Some(path) = &common.report {
        results.push(save(&mut out, path, &html::render(report)));
    }
    results.into_iter().collect()
}

/// The report with the sentences that follow from its figures.
fn complete(report: &Report) -> Report {
    let mut report = report.clone();
    let findings = findings::of(&report).into_iter().filter(|text| !report.findings.contains(text));
    let findings: Vec<String> = findings.collect();
    report.findings.extend(findings);
    if let Some(warning) = shortened(&report).filter(|text| !report.warnings.contains(text)) {
        report.warnings.push(warning);
    }
    if let Some(warning) = promise::warning(&report.targets).filter(|text| !report.warnings.contains(text)) {
        report.warnings.insert(0, warning);
    }
    if let Some(warning) = report.smoke_test().filter(|text| !report.warnings.contains(text)) {
        report.warnings.insert(0, warning);
    }
    report
}

/// What stands behind the name of a target whose figures are of less than was asked.
pub(crate) const SHORTENED: &str = "†";

/// One sentence that names the measurements that were cut short.
fn shortened(report: &Report) -> Option<String> {
    const NAMED: usize = 6;
    let place = |section: &Section, row: &Row| format!("{}, {}", row.target, groups::label(section, row));
    let sections = report.sections.iter();
    let rows = sections.flat_map(|section| section.rows.iter().map(move |row| (section, row)));
    let all: Vec<String> =
        rows.filter(|(_, row)| row.is_shortened()).map(|(section, row)| place(section, row)).collect();
    let more = all.len().saturating_sub(NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let named: Vec<String> = all.iter().take(NAMED).cloned().collect();
    (!all.is_empty()).then(|| {
        format!("Marked {SHORTENED} is what was cut short, so that its figures are of less than was asked: {}{more}.", named.join("; "))
    })
}

/// Prints.
///
/// # Errors
/// An output that can't be written, unless its reader has closed it: who does has seen enough.
pub(crate) fn print(out: &mut dyn Write, text: &str) -> Result<()> {
    match out.write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::File(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a file, and says so.
///
/// # Errors
/// A file that can't be written, by its name.
pub(crate) fn save(out: &mut dyn Write, path: &Path, text: &str) -> Result<()> {
    let wrong = |error: io::Error| Error::File(format!("{} can't be written: {error}", path.display()));
    std::fs::write(path, text).map_err(wrong)?;
    print(out, &format!("written: {}\n", path.display()))
}
