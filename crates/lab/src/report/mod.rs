//! Output of a run: tables on the terminal, a page, Markdown, JSON.
//!
//! All outputs read one model ([`crate::result`]). They share the format of figures ([`figures`]), and the grouping and
//! warnings of rows ([`grid`]).
//!
//! The JSON is the serialized model, which `compare` reads back.

pub(crate) mod compare;
pub(crate) mod figures;
mod grid;
mod html;
mod markdown;
pub(crate) mod terminal;
#[cfg(test)]
pub(crate) mod tests;

use crate::options::Common;
use crate::result::{DurabilityGuarantee, FORMAT, Report};
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use terminal::Page;

/// Warning about targets that cannot be compared by speed alone.
const DIFFERENT: &str =
    "The targets have different durability (see Targets): a faster one may be less durable.";

/// Prints the report and writes the requested files.
///
/// # Errors
/// A file cannot be written. Other files are written nevertheless.
pub(crate) fn finish(report: &Report, common: &Common) -> Result<()> {
    let report = &complete(report);
    let mut out = io::stdout();
    print(&mut out, &terminal::render(report, Page::of_stdout()))?;
    let mut results = Vec::new();
    if let Some(path) = &common.json {
        results.push(to_json(report).and_then(|text| save(&mut out, path, &text)));
    }
    if let Some(path) = &common.markdown {
        results.push(save(&mut out, path, &markdown::render(report)));
    }
    if let Some(path) = &common.report {
        results.push(save(&mut out, path, &html::render(report)));
    }
    results.into_iter().collect()
}

/// Returns the report with warnings derived from the measurements.
fn complete(report: &Report) -> Report {
    let mut report = report.clone();
    let promises = report.targets.iter().map(|target| target.fingerprint.promise);
    let promises: BTreeSet<_> = promises.filter(|promise| *promise != DurabilityGuarantee::Nothing).collect();
    let different = (promises.len() > 1).then(|| DIFFERENT.to_string());
    for warning in [different, report.smoke_test()].into_iter().flatten() {
        if !report.warnings.contains(&warning) {
            report.warnings.insert(0, warning);
        }
    }
    report
}

/// Prints text.
///
/// # Errors
/// The output cannot be written. A closed pipe is no error: its reader has seen enough.
pub(crate) fn print(out: &mut dyn Write, text: &str) -> Result<()> {
    match out.write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::File(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a file and prints its name.
///
/// # Errors
/// The file cannot be written; the error contains its name.
pub(crate) fn save(out: &mut dyn Write, path: &Path, text: &str) -> Result<()> {
    let write_error = |error: io::Error| Error::File(format!("{} can't be written: {error}", path.display()));
    std::fs::write(path, text).map_err(write_error)?;
    print(out, &format!("written: {}\n", path.display()))
}

/// Serializes the report.
///
/// # Errors
/// Figures that JSON cannot hold, such as infinity.
fn to_json(report: &Report) -> Result<String> {
    let text = serde_json::to_string_pretty(report);
    let failed = |error| Error::File(format!("cannot write the report as JSON: {error}"));
    text.map(|text| text + "\n").map_err(failed)
}

/// Reads a report written by `--json`.
///
/// # Errors
/// The file is missing, no report, or from a newer lab.
fn read_json(path: &Path) -> Result<Report> {
    let read_error = |message: String| Error::File(format!("{}: {message}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| read_error(error.to_string()))?;
    parse_json(&text).map_err(read_error)
}

fn parse_json(text: &str) -> std::result::Result<Report, String> {
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    // All versions of the file have this field.
    let format =
        value["format"].as_u64().ok_or("JSON, but not a lab report: the format number is missing")?;
    if format != u64::from(FORMAT) {
        return Err(format!("a report of format {format}, but this version reads format {FORMAT}"));
    }
    serde_json::from_value(value).map_err(|error| format!("an incomplete lab report: {error}"))
}

#[cfg(test)]
mod json_tests {
    use super::*;
    use crate::report::tests as testing;

    #[test]
    fn reports_round_trip() {
        let before = testing::report();
        let after = parse_json(&to_json(&before).unwrap()).unwrap();
        assert_eq!(after.warnings, before.warnings);
        for (after, before) in after.sections.iter().zip(&before.sections) {
            assert!(after.rows.len() == before.rows.len() && after.kind == before.kind);
            for (after, before) in after.rows.iter().zip(&before.rows) {
                assert!(after.latency == before.latency && after.operations == before.operations);
                assert!((after.rate() - before.rate()).abs() <= before.rate() * 1e-9);
            }
        }
    }

    #[test]
    fn other_files_are_refused() {
        for (text, message) in [
            ("%", "not JSON"),
            ("{}", "not a lab report"),
            ("[1]", "not a lab report"),
            (r#"{"format":99}"#, "format 99"),
            (r#"{"format":1}"#, "an incomplete lab report"),
        ] {
            let error = parse_json(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
        let missing = read_json(Path::new("/nowhere/a.json")).unwrap_err().to_string();
        assert!(missing.starts_with("/nowhere/a.json: "), "{missing}");
    }
}
