//! `vellum lab compare`: what changed between two runs, how sure that is, and whether it is past
//! a limit.

mod columns;
mod difference;
mod limit;
mod page;
mod statistics;
mod words;

use super::terminal::{self, Page};
use super::{json, print, save};
use crate::error::{Error, Result};
use crate::options::Compare;
use crate::result::Report;
use console::Style;
use difference::Comparison;
use limit::{Limit, Metric};
use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

/// The runs.
struct Two {
    before: Report,
    after: Report,
}

/// What is said of a comparison.
struct Findings {
    findings: Vec<String>,
    warnings: Vec<String>,
    /// Rows past a limit.
    passed: Vec<String>,
}

/// The exit code for limits or files that can't be read: nothing was compared.
const WRONG_INPUT: u8 = 2;

/// Prints and draws the differences; the exit code is 1 if a limit was passed, 2 if nothing could
/// be compared.
pub(crate) fn run(options: &Compare) -> ExitCode {
    match compare(options, &mut std::io::stdout()) {
        Ok(passed) if passed.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            // Nobody is left to be told when standard error is gone.
            let _ = writeln!(std::io::stderr(), "vellum lab: {error}");
            ExitCode::from(WRONG_INPUT)
        }
    }
}

/// The rows past a limit.
fn compare(options: &Compare, out: &mut dyn Write) -> Result<Vec<String>> {
    if !options.more.is_empty() {
        return columns::run(options, out).map(|()| Vec::new());
    }
    let limits = options.fail_if.iter().map(|text| Limit::parse(text).map_err(Error::Input));
    let limits = limits.collect::<Result<Vec<Limit>>>()?;
    let two = Two { before: json::read(&options.before)?, after: json::read(&options.after)? };
    let comparison = Comparison::new(&two.before, &two.after);
    if comparison.sections.is_empty() {
        let (before, after) = (&two.before.experiment, &two.after.experiment);
        return Err(Error::Input(format!(
            "no row stands in both reports ({before} and {after}): nothing can be compared"
        )));
    }
    if let Some(limit) = words::undecidable(&comparison, &limits) {
        return Err(Error::Input(format!(
            "--fail-if {}: a difference is sure from three rounds of each run on, and these have fewer: measure with \
             --rounds 3",
            limit.text
        )));
    }
    let metrics = words::shown(&limits);
    let findings = Findings {
        findings: words::findings(&comparison, &metrics),
        warnings: words::warnings(&two.before, &two.after, &comparison),
        passed: words::passed(&comparison, &limits),
    };
    print(out, &text(&two, &comparison, &findings, &metrics, Page::of_stdout()))?;
    if let Some(path) = &options.report {
        save(out, path, &page::render(&two, &comparison, &findings, &metrics))?;
    }
    Ok(findings.passed)
}

/// The comparison on a terminal.
fn text(two: &Two, comparison: &Comparison, findings: &Findings, metrics: &[Metric], page: Page) -> String {
    let title = format!("{}: {} → {}", two.after.title, two.before.id, two.after.id);
    let mut text = format!("\n{}\n", page.bold(&title));
    let key = "before → after, and the change; ≈ where the rounds can't tell it from none";
    let _ = writeln!(text, "{}", page.dim(key));
    text += &page.list("Warnings", "!", Style::new().yellow(), &findings.warnings);
    for section in &comparison.sections {
        let _ = writeln!(text, "\n{}", page.bold(&section.title));
        text += &terminal::table(&words::grid(&section.pairs, metrics), page);
    }
    text += &page.list("Not measured any more", "!", Style::new().yellow(), &comparison.gone);
    text += &page.list("New", "•", Style::new().cyan(), &comparison.new);
    text += &page.list("What it means", "•", Style::new().cyan(), &findings.findings);
    text + &page.list("Past the limits", "✗", Style::new().red(), &findings.passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;
    use std::path::PathBuf;

    /// Two runs in files of their own: the fixture, and one in which `memory` is so much slower.
    struct Files(PathBuf);

    impl Files {
        fn new(name: &str, factor: f64) -> Files {
            let folder = std::env::temp_dir().join(format!("vellum-compare-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let before = testing::report();
            let mut after = before.clone();
            for row in &mut after.sections[0].rows {
                if row.target == "memory" {
                    let median = row.latency.quantile(0.5) * factor;
                    *row = testing::row("memory", &row.case, row.connections, median, 5);
                }
            }
            for (name, report) in [("a", before), ("b", after)] {
                std::fs::write(folder.join(name), json::render(&report).unwrap()).unwrap();
            }
            Files(folder)
        }

        fn compare(&self, limits: &[&str]) -> Result<Vec<String>> {
            let options = Compare {
                before: self.0.join("a"),
                after: self.0.join("b"),
                more: Vec::new(),
                fail_if: limits.iter().map(ToString::to_string).collect(),
                report: Some(self.0.join("page.html")),
            };
            let mut said = Vec::new();
            let result = compare(&options, &mut said);
            if let Ok(passed) = &result {
                let said = String::from_utf8(said).unwrap();
                assert!(passed.iter().all(|text| said.contains(&text[..20])), "{said}");
                assert!(said.contains("What it means") && said.ends_with("page.html\n"), "{said}");
            }
            result
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn limits_are_passed_by_what_got_worse_alone() {
        let files = Files::new("limits", 1.5);
        assert!(files.compare(&[]).unwrap().is_empty());
        assert!(files.compare(&["p50>+90%", "rate<-60%"]).unwrap().is_empty());
        let passed = files.compare(&["p50>+20%"]).unwrap();
        assert_eq!(passed.len(), 2, "{passed:?}");
        assert!(passed[0].starts_with("p50>+20%: Single inserts, insert, 1 connection, memory: p50 from"));
        let text = std::fs::read_to_string(files.0.join("page.html")).unwrap();
        assert!(text.contains("Past the limits") && text.contains("class=\"dot worse\""));
        assert!(!text.contains("NaN") && !text.contains("<script"));
    }

    #[test]
    fn what_is_not_sure_and_the_floor_pass_no_limit() {
        let files = Files::new("sure", 1.0);
        let mut after = testing::report();
        for row in &mut after.sections[0].rows {
            let x = row.x;
            match row.target.as_str() {
                // Slower for sure, but no server.
                "floor" => *row = testing::row("floor", &row.case, row.connections, 900.0, 3),
                // One slow round of three.
                "journaled" => row.rounds[0].latency.p50 *= 9.0,
                _ => {}
            }
            row.x = x;
        }
        std::fs::write(files.0.join("b"), json::render(&after).unwrap()).unwrap();
        assert_eq!(files.compare(&["p50>+5%"]).unwrap(), Vec::<String>::new());
        for row in after.sections.iter_mut().flat_map(|section| &mut section.rows) {
            row.rounds.truncate(2);
        }
        std::fs::write(files.0.join("b"), json::render(&after).unwrap()).unwrap();
        let error = files.compare(&["p50>+5%"]).unwrap_err().to_string();
        assert!(error.contains("from three rounds"), "{error}");
    }

    #[test]
    fn a_row_that_is_gone_keeps_no_limit() {
        let files = Files::new("gone", 1.0);
        let mut after = testing::report();
        after.sections[0].rows.retain(|row| row.target != "none");
        std::fs::write(files.0.join("b"), json::render(&after).unwrap()).unwrap();
        assert!(files.compare(&[]).unwrap().is_empty());
        let passed = files.compare(&["p99>+1000%"]).unwrap();
        assert!(passed.iter().all(|text| text.starts_with("not measured any more: ")), "{passed:?}");
        assert_eq!(passed.len(), 2);
    }

    #[test]
    fn wrong_limits_are_told_before_any_file_is_read() {
        let options = Compare {
            before: "/nowhere".into(),
            after: "/nowhere".into(),
            more: Vec::new(),
            fail_if: vec!["slow".to_string()],
            report: None,
        };
        let error = compare(&options, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("'slow' is no limit"), "{error}");
        let error =
            compare(&Compare { fail_if: vec![], ..options }, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere: "), "{error}");
    }

    #[test]
    fn reports_without_a_row_in_common_are_refused() {
        let files = Files::new("common", 1.0);
        let mut after = testing::report();
        after.sections.clear();
        std::fs::write(files.0.join("b"), json::render(&after).unwrap()).unwrap();
        assert!(files.compare(&[]).unwrap_err().to_string().contains("no row stands in both"));
    }

    #[test]
    fn what_the_machine_did_is_no_difference_of_the_servers() {
        let before = testing::report();
        let mut after = before.clone();
        for row in after.sections.iter_mut().flat_map(|section| &mut section.rows) {
            let x = row.x;
            if row.target == "floor" {
                *row = testing::row("floor", &row.case, row.connections, 90.0, 3);
                row.x = x;
            }
        }
        after.environment[0].1 = "another".to_string();
        let comparison = Comparison::new(&before, &after);
        let warnings = words::warnings(&before, &after, &comparison);
        assert!(warnings.iter().any(|text| text.contains("The floor, which does the same")), "{warnings:?}");
        assert!(warnings.iter().any(|text| text.contains("processors was 2 ×")), "{warnings:?}");
    }
}
