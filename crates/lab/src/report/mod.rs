//! What becomes of a run's figures: tables on the terminal, a page, Markdown, JSON.
//!
//! All of them read the one model ([`crate::result`]) and share how figures look
//! ([`figures`]), what belongs together ([`groups`]) and what may be said of it ([`findings`]).

pub(crate) mod figures;
mod findings;
mod grid;
mod groups;
pub(crate) mod html;
pub(crate) mod json;
mod markdown;
mod promise;
pub(crate) mod terminal;
#[cfg(test)]
pub(crate) mod testing;

use crate::error::{Error, Result};
use crate::options::Common;
use crate::result::Report;
use std::io::{self, Write as _};
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
    print(&terminal::render(report, Page::of_stdout()))?;
    let json = match &common.json {
        Some(path) => json::render(report).and_then(|text| save(path, &text)),
        None => Ok(()),
    };
    let markdown = common.markdown.as_deref().map_or(Ok(()), |path| save(path, &markdown::render(report)));
    let html = common.report.as_deref().map_or(Ok(()), |path| save(path, &html::render(report)));
    json.and(markdown).and(html)
}

/// The report with the sentences that follow from its figures.
fn complete(report: &Report) -> Report {
    let mut report = report.clone();
    let findings = findings::of(&report).into_iter().filter(|text| !report.findings.contains(text));
    let findings: Vec<String> = findings.collect();
    report.findings.extend(findings);
    if let Some(warning) = promise::warning(&report.targets).filter(|text| !report.warnings.contains(text)) {
        report.warnings.insert(0, warning);
    }
    report
}

/// Writes to standard output.
///
/// # Errors
/// Standard output that can't be written, unless its reader has closed it: who does has seen enough.
pub(crate) fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
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
pub(crate) fn save(path: &Path, text: &str) -> Result<()> {
    let wrong = |error: io::Error| Error::File(format!("{} can't be written: {error}", path.display()));
    std::fs::write(path, text).map_err(wrong)?;
    print(&format!("written: {}\n", path.display()))
}
