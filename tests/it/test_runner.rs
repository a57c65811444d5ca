//! `./test` runs all parts, also after a failed one, and ends with a table, the failures and the totals.

use crate::root;
use crate::server::Scratch;
use std::path::Path;
use std::process::{Command, Output};

/// Returns the output and exit code of `./test` with these parts instead of `tests/parts`.
fn run(folder: &Path, parts: &[(&str, &str)], words: &[&str]) -> (String, Option<i32>) {
    for (name, body) in parts {
        let part = format!("# What: a part\n# Needs:\n# Minutes: 1\n{body}\n");
        std::fs::write(folder.join(name), part).unwrap();
    }
    let mut command = test_of(folder);
    command.args(words);
    let Output { stdout, status, .. } = command.output().unwrap();
    (String::from_utf8_lossy(&stdout).to_string(), status.code())
}

/// Returns the command `./test` with the parts of a folder, outside of any enclosing part.
fn test_of(folder: &Path) -> Command {
    let mut command = Command::new(root().join("test"));
    command.env("VELLUM_TEST_PARTS", folder);
    for inherited in ["STEP", "RESULTS", "PART", "INSTALL", "LONG"] {
        command.env_remove(format!("VELLUM_TEST_{inherited}"));
    }
    command
}

#[test]
fn a_failed_part_stops_no_later_part() {
    let folder = Scratch::new("parts");
    std::fs::create_dir_all(&*folder).unwrap();
    let log = "echo 'test a::b ... FAILED'; echo; echo \\\"thread 'a::b' (1) panicked at c.rs:1:1:\\\"; echo one; echo two; \
               echo 'note: run with'; echo 'test result: FAILED. 2 passed; 1 failed; 3 ignored'; exit 101";
    let parts = [
        ("1-rust", format!("run() {{ step cargo bash -c \"{log}\"; step after true; }}")),
        ("2-breaks", "run() { false; step never true; }".to_string()),
        (
            "3-python",
            "run() { step unit bash -c \"echo 'Ran 5 tests in 1s'; echo 'OK (skipped=1)'\"; }".to_string(),
        ),
        ("4-installs", "missing() { echo a thing; }; run() { step never true; }".to_string()),
    ];
    let parts: Vec<_> = parts.iter().map(|(name, body)| (*name, body.as_str())).collect();
    let (printed, code) = run(&folder, &parts, &["--no-install"]);
    assert_eq!(code, Some(1), "{printed}");
    let table = &printed[printed.find("part        passed").unwrap_or_else(|| panic!("{printed}"))..];
    let words = |line: &str| line.split_whitespace().take(4).collect::<Vec<_>>().join(" ");
    let rows: Vec<_> = table.lines().take(5).map(words).collect();
    // The skipped part is known first.
    assert_eq!(
        rows[1..],
        ["4-installs - - 1", "1-rust 3 1 3", "2-breaks 0 1 0", "3-python 4 0 1"],
        "{printed}"
    );
    assert!(
        table.contains("a::b\n  thread 'a::b' (1) panicked at c.rs:1:1:\n  one\n  two\n  log: target/test-logs/1-rust.log\n  again: ./test one 'a::b'\n"),
        "{printed}"
    );
    assert!(table.contains("again: ./test 2-breaks"), "{printed}");
    assert_eq!(printed.lines().last(), Some("7 passed, 2 failed, 5 skipped"));
}

#[test]
fn a_part_that_hangs_is_ended() {
    let folder = Scratch::new("parts");
    std::fs::create_dir_all(&*folder).unwrap();
    let mut command = test_of(&folder);
    std::fs::write(folder.join("hangs"), "# Minutes: 1\nrun() { step sleep sleep 600; }\n").unwrap();
    command.env("VELLUM_TEST_SLOWNESS", "0");
    let Output { stdout, status, .. } = command.output().unwrap();
    let printed = String::from_utf8_lossy(&stdout);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("0 times its budget") && printed.ends_with("0 passed, 1 failed, 0 skipped\n"),
        "{printed}"
    );
}

#[test]
fn one_step_runs_alone() {
    let folder = Scratch::new("parts");
    std::fs::create_dir_all(&*folder).unwrap();
    let parts = [("part", "run() { step one echo first; step two echo second; }")];
    let (printed, code) = run(&folder, &parts, &["one", "part/two"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("second") && !printed.contains("first"), "{printed}");
    assert_eq!(run(&folder, &parts, &["one", "part/three"]).1, Some(2));
}

#[test]
fn each_part_has_a_header_and_all_fit_into_45_minutes() {
    let script = std::fs::read_to_string(root().join("test")).unwrap();
    let listed = |variable: &str| {
        let line = script.lines().find_map(|line| line.strip_prefix(variable)).unwrap();
        line.trim_matches('"').split(' ').map(str::to_string).collect::<Vec<_>>()
    };
    let (parts, long) = (listed("PARTS="), listed("LONG="));
    let mut minutes = 0;
    for entry in std::fs::read_dir(root().join("tests/parts")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().to_string();
        let text = std::fs::read_to_string(&path).unwrap();
        let header = |field: &str| text.lines().find_map(|line| line.strip_prefix(&format!("# {field}:")));
        assert!(header("What").is_some_and(|what| !what.is_empty()), "{name}");
        assert!(header("Needs").is_some(), "{name}");
        assert!(parts.contains(&name) || long.contains(&name), "{name} is in no list of ./test");
        if parts.contains(&name) {
            minutes += header("Minutes").and_then(|m| m.trim().parse::<u32>().ok()).unwrap();
        } else {
            assert!(header("Long").is_some(), "{name}");
        }
    }
    assert!(minutes <= 45, "{minutes} minutes");
}

/// Progress is requested after ten seconds, and no line exists yet.
#[test]
fn a_silent_part_does_not_end_the_run() {
    let folder = Scratch::new("silent");
    std::fs::create_dir_all(&*folder).unwrap();
    let parts = [
        ("silent", "missing() { :; }; run() { sleep 11; step a true; }"),
        ("then", "run() { step b true; }"),
    ];
    let (printed, code) = run(&folder, &parts, &["silent", "then"]);
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(printed.lines().last(), Some("2 passed, 0 failed, 0 skipped"));
}
