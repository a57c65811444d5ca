//! What becomes of a run's figures: tables on the terminal, a page, Markdown, JSON.
//!
//! All of them read the one model ([`crate::result`]) and share how figures look
//! ([`figures`]), what belongs together ([`groups`]) and what is doubtful ([`groups::noise`]).

pub(crate) mod compare;
pub(crate) mod figures;
mod grid;
mod groups;
mod html;
pub(crate) mod json;
mod markdown;
pub(crate) mod terminal;
#[cfg(test)]
pub(crate) mod tests;

use crate::error::{Error, Result};
use crate::options::Common;
use crate::result::{Promise, Report};
use std::io::{self, Write};
use std::path::Path;
use terminal::Page;

/// The warning of targets that can't be compared by speed alone.
const DIFFERENT: &str = "The targets have different durability (see Targets): a faster one may keep less.";

/// Prints the report and writes the files that were asked for.
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

/// The report with the warnings that follow from what was measured.
fn complete(report: &Report) -> Report {
    let mut report = report.clone();
    let promises = report.targets.iter().map(|target| target.fingerprint.promise);
    let mut promises: Vec<Promise> = promises.filter(|promise| *promise != Promise::Nothing).collect();
    promises.sort_unstable();
    promises.dedup();
    let different = (promises.len() > 1).then(|| DIFFERENT.to_string());
    for warning in [different, report.smoke_test()].into_iter().flatten() {
        if !report.warnings.contains(&warning) {
            report.warnings.insert(0, warning);
        }
    }
    report
}

/// Prints.
///
/// # Errors
/// An output that can't be written, unless its reader has closed it and has seen enough.
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
