//! Comparison of two runs in files.

use super::*;
use crate::report::tests as testing;
use crate::report::to_json;
use std::path::PathBuf;

/// Two runs in files: the fixture, and a run in which `memory` is slower by a factor.
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
            std::fs::write(folder.join(name), to_json(&report).unwrap()).unwrap();
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
        let mut printed = Vec::new();
        let result = compare(&options, &mut printed);
        if let Ok(passed) = &result {
            let printed = String::from_utf8(printed).unwrap();
            assert!(passed.iter().all(|text| printed.contains(&text[..20])), "{printed}");
            assert!(printed.contains("p50") && printed.ends_with("page.html\n"), "{printed}");
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
fn only_worse_results_exceed_limits() {
    let files = Files::new("limits", 1.5);
    assert!(files.compare(&[]).unwrap().is_empty());
    assert!(files.compare(&["p50>+90%", "rate<-60%"]).unwrap().is_empty());
    let passed = files.compare(&["p50>+20%"]).unwrap();
    assert_eq!(passed.len(), 2, "{passed:?}");
    assert!(passed[0].starts_with("p50>+20%: Single inserts, insert, 1 connection, memory: "), "{passed:?}");
    let text = std::fs::read_to_string(files.0.join("page.html")).unwrap();
    assert!(text.contains("Exceeded limits") && text.contains("\"verdict\":\"worse\""));
}

#[test]
fn uncertain_changes_and_the_null_server_exceed_no_limit() {
    let files = Files::new("sure", 1.0);
    let mut after = testing::report();
    for row in &mut after.sections[0].rows {
        let x = row.x;
        match row.target.as_str() {
            // Surely slower, but no server.
            "null-server" => *row = testing::row("null-server", &row.case, row.connections, 900.0, 3),
            // One slow round of three.
            "journaled" => row.rounds[0].latency.p50 *= 9.0,
            _ => {}
        }
        row.x = x;
    }
    std::fs::write(files.0.join("b"), to_json(&after).unwrap()).unwrap();
    assert_eq!(files.compare(&["p50>+5%"]).unwrap(), Vec::<String>::new());
    for row in after.sections.iter_mut().flat_map(|section| &mut section.rows) {
        row.rounds.truncate(2);
    }
    std::fs::write(files.0.join("b"), to_json(&after).unwrap()).unwrap();
    let error = files.compare(&["p50>+5%"]).unwrap_err().to_string();
    assert!(error.contains("needs three rounds"), "{error}");
}

#[test]
fn a_missing_row_exceeds_its_limit() {
    let files = Files::new("gone", 1.0);
    let mut after = testing::report();
    after.sections[0].rows.retain(|row| row.target != "none");
    std::fs::write(files.0.join("b"), to_json(&after).unwrap()).unwrap();
    assert!(files.compare(&[]).unwrap().is_empty());
    let passed = files.compare(&["p99>+1000%"]).unwrap();
    assert!(passed.iter().all(|text| text.starts_with("not measured any more: ")), "{passed:?}");
    assert_eq!(passed.len(), 2);
}

#[test]
fn invalid_limits_are_refused_before_files_are_read() {
    let options = Compare {
        before: "/nowhere".into(),
        after: "/nowhere".into(),
        more: Vec::new(),
        fail_if: vec!["slow".to_string()],
        report: None,
    };
    let error = compare(&options, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("'slow' is not a limit"), "{error}");
    let error = compare(&Compare { fail_if: vec![], ..options }, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere: "), "{error}");
}

#[test]
fn reports_without_a_row_in_common_are_refused() {
    let files = Files::new("common", 1.0);
    let mut after = testing::report();
    after.sections.clear();
    std::fs::write(files.0.join("b"), to_json(&after).unwrap()).unwrap();
    assert!(files.compare(&[]).unwrap_err().to_string().contains("have no row in common"));
}

#[test]
fn changes_of_the_machine_are_not_changes_of_servers() {
    let before = testing::report();
    let mut after = before.clone();
    for row in after.sections.iter_mut().flat_map(|section| &mut section.rows) {
        let x = row.x;
        if row.target == "null-server" {
            *row = testing::row("null-server", &row.case, row.connections, 90.0, 3);
            row.x = x;
        }
    }
    after.environment[0].1 = "another".to_string();
    let comparison = Comparison::new(&before, &after);
    let warnings = warnings(&before, &after, &comparison);
    assert!(warnings.iter().any(|text| text.contains("the machine itself differs")), "{warnings:?}");
    assert!(warnings.iter().any(|text| text.contains("processors: 2 ×")), "{warnings:?}");
}

#[test]
fn each_run_has_its_column_beside_the_others() {
    let files = Files::new("several", 2.0);
    let paths = ["a", "b", "a"].map(|name| files.0.join(name));
    let [before, after, third] = paths;
    let options = Compare { before, after, more: vec![third], fail_if: Vec::new(), report: None };
    let mut printed = Vec::new();
    assert!(compare(&options, &mut printed).unwrap().is_empty());
    let printed = String::from_utf8(printed).unwrap();
    for part in ["run 3: ", "p50 (1)", "p50 (2)", "p50 (3)", "memory"] {
        assert!(printed.contains(part), "{part} in {printed}");
    }
    let error =
        compare(&Compare { report: Some(files.0.join("page")), ..options }, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("two runs"), "{error}");
}

#[test]
fn limits_are_read_with_and_without_spaces() {
    let limit = Limit::parse("p99 > +10 %").unwrap();
    assert_eq!((limit.metric, limit.text.as_str()), (Metric(4), "p99>+10%"));
    assert!(limit.passed(1.11) && !limit.passed(1.1) && !limit.passed(0.5));
    let limit = Limit::parse("rate<-5%").unwrap();
    assert!(limit.passed(0.94) && !limit.passed(0.96) && !limit.passed(2.0));
    assert_eq!(Limit::parse("p99.9>0%").unwrap().metric, Metric(5));
    for metric in Metric::all() {
        assert_eq!(Limit::parse(&format!("{}>1%", metric.figure().name)).unwrap().metric, metric);
    }
}

#[test]
fn errors_of_limits_name_the_reason() {
    for (text, message) in [
        ("p99", "neither > nor <"),
        ("p98>+1%", "'p98' is not one of rate, p50, p90, p95, p99, p999, max and cpu"),
        ("p99>10", "doesn't end with %"),
        ("p99>ten%", "'ten' is not a number"),
        ("p99>=10%", "'=10' is not a number"),
        ("rate<-100%", "above -100%"),
        ("rate<nan%", "above -100%"),
        ("p99>é%", "'é' is not a number"),
    ] {
        let error = Limit::parse(text).unwrap_err();
        assert!(error.contains(message) && error.contains("such as 'p99>+10%'"), "{text}: {error}");
    }
}
