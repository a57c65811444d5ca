//! The report as JSON: the model as it stands, which `compare` reads back.

use crate::error::{Error, Result};
use crate::result::{FORMAT, Report};
use serde::Deserialize;
use std::path::Path;

/// The report's text.
///
/// # Errors
/// Figures that JSON can't hold, such as an infinite one.
pub(crate) fn render(report: &Report) -> Result<String> {
    let text = serde_json::to_string_pretty(report);
    text.map(|text| text + "\n").map_err(|error| Error::File(format!("the report can't be JSON: {error}")))
}

/// What every version of the file has.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// Reads a report that `--json` has written.
///
/// # Errors
/// A file that isn't there, isn't a report, or is one of a newer lab's.
pub(crate) fn read(path: &Path) -> Result<Report> {
    let wrong = |what: String| Error::File(format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    parse(&text).map_err(wrong)
}

fn parse(text: &str) -> std::result::Result<Report, String> {
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let head = if value.is_object() { Head::deserialize(&value).ok() } else { None };
    let head =
        head.ok_or_else(|| "JSON, but not a report of the lab: it has no format number".to_string())?;
    if head.format != FORMAT {
        return Err(format!("a report of format {}, but this version reads format {FORMAT}", head.format));
    }
    serde_json::from_value(value).map_err(|error| format!("not a whole report of the lab: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests as testing;

    #[test]
    fn what_is_written_is_read_again() {
        let before = testing::report();
        let after = parse(&render(&before).unwrap()).unwrap();
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
    fn other_files_are_told_apart() {
        for (text, message) in [
            ("%", "not JSON"),
            ("{}", "not a report"),
            ("[1]", "not a report"),
            (r#"{"format":99}"#, "format 99"),
            (r#"{"format":1}"#, "not a whole report"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
        let missing = read(Path::new("/nowhere/a.json")).unwrap_err().to_string();
        assert!(missing.starts_with("/nowhere/a.json: "), "{missing}");
    }
}
