//! Rules about the sources as tests: allowed imports, module documentation, file lengths, leftovers, panics, sorted
//! tables, links.

use crate::root;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates of the workspace, and the crates that each may import.
const EDGES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("database", &["base", "query", "storage"]),
    ("lab", &["base", "replay", "wire"]),
    ("postgres", &["base", "storage", "wire"]),
    ("query", &["base"]),
    ("replay", &["base", "wire"]),
    ("server", &["base", "database", "wire"]),
    ("simulate", &["base", "database", "server", "storage", "wire"]),
    ("storage", &[]),
    ("vellum", &["base", "database", "postgres", "server", "storage", "wire"]),
    ("wire", &["base"]),
];

const FILE_LINES_MAX: usize = 900;

/// Maximum number of characters in the line of a comment. rustfmt does not wrap comments.
const COMMENT_WIDTH_MAX: usize = 120;

/// Marks the table on the following lines as sorted by the first string in each.
const SORTED_MARK: &str = "// tidy: sorted";

/// Returns all files under version control, and new files that are not ignored.
fn files(extension: &str) -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    let names = String::from_utf8(output.stdout).unwrap();
    let paths = names.lines().map(|name| root().join(name));
    paths.filter(|path| path.extension().is_some_and(|e| e == extension) && path.exists()).collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Fails with all findings at once, so that one run shows them all.
fn report(findings: Vec<String>) {
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

/// Applies a rule to each Rust file. The rule returns findings with line numbers (zero for the whole file).
fn check_sources(rule: impl Fn(&Path, &str) -> Vec<(usize, String)>) {
    let mut findings = Vec::new();
    for path in files("rs") {
        let name = path.strip_prefix(root()).unwrap_or(&path).to_path_buf();
        for (line, finding) in rule(&name, &read(&path)) {
            findings.push(format!("{}:{line}: {finding}", name.display()));
        }
    }
    report(findings);
}

/// Returns the names under `[dependencies]` in a manifest.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line.trim();
            if let Some(name) = section.strip_prefix("[dependencies.") {
                names.push(name.trim_end_matches(']').to_string());
            }
        } else if section == "[dependencies]"
            && let Some((name, _)) = line.split_once(['.', '='])
        {
            names.push(name.trim().to_string());
        }
    }
    names
}

#[test]
fn crates_import_only_what_the_design_allows() {
    let mut findings = Vec::new();
    for (name, allowed) in EDGES {
        let folder = if *name == "vellum" { root() } else { root().join("crates").join(name) };
        for dependency in dependencies(&read(&folder.join("Cargo.toml"))) {
            let ours = EDGES.iter().any(|(other, _)| *other == dependency);
            if ours && !allowed.contains(&dependency.as_str()) {
                findings.push(format!("{name} may not import {dependency}"));
            }
        }
    }
    let crates = std::fs::read_dir(root().join("crates")).unwrap().flatten();
    for name in crates.map(|entry| entry.file_name().to_string_lossy().to_string()) {
        if !EDGES.iter().any(|(known, _)| *known == name) {
            findings.push(format!("crate {name} isn't in the design"));
        }
    }
    report(findings);
}

#[test]
fn every_file_begins_with_a_module_comment() {
    check_sources(|_, text| {
        let documented = text.starts_with("//!") || text.starts_with("#!");
        if documented { Vec::new() } else { vec![(1, "no //! module documentation".to_string())] }
    });
}

#[test]
fn files_are_not_too_long() {
    check_sources(|_, text| match text.lines().count() {
        0..=FILE_LINES_MAX => Vec::new(),
        lines => vec![(0, format!("{lines} lines, at most {FILE_LINES_MAX}"))],
    });
}

#[test]
fn comments_are_not_too_wide() {
    check_sources(|_, text| {
        let lines = text.lines().enumerate();
        // Rows of tables cannot be wrapped.
        let comments = lines.filter(|(_, line)| line.trim_start().starts_with("//") && !line.ends_with('|'));
        let wide = comments.filter(|(_, line)| line.chars().count() > COMMENT_WIDTH_MAX);
        wide.map(|(at, _)| (at + 1, format!("the comment has more than {COMMENT_WIDTH_MAX} characters")))
            .collect()
    });
}

#[test]
fn no_todo_comments() {
    // Concatenated here, so that the rule does not find itself.
    let marks = [["TO", "DO"].concat(), ["FIX", "ME"].concat()];
    check_sources(|_, text| {
        let lines = text.lines().enumerate();
        let found = lines.filter(|(_, line)| marks.iter().any(|mark| line.contains(mark.as_str())));
        found.map(|(at, _)| (at + 1, "left for later".to_string())).collect()
    });
}

#[test]
fn no_conflict_markers() {
    let marks = ["<".repeat(7) + " ", ">".repeat(7) + " "];
    let marked = |line: &&str| marks.iter().any(|mark| line.starts_with(mark.as_str()));
    let paths = ["md", "rs", "toml", "py", "txt"].into_iter().flat_map(files);
    let found = paths.flat_map(|path| {
        let text = read(&path);
        let lines: Vec<String> = text.lines().filter(marked).map(str::to_string).collect();
        lines.into_iter().map(move |line| format!("{}: {line}", path.display()))
    });
    report(found.collect());
}

/// Returns true if the whole file is test code.
pub(crate) fn is_test_file(path: &Path) -> bool {
    let part = |name: &str| path.components().any(|c| c.as_os_str() == name);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    part("tests")
        || part("testing")
        || part("benches")
        || part("fuzz")
        || stem.ends_with("_tests")
        || matches!(stem.as_ref(), "model" | "tests" | "testing")
}

/// Returns the lines of a file outside of its test modules, which end files or items.
pub(crate) fn product_lines(text: &str) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    let mut skip_to: Option<&str> = None;
    let mut pending = false;
    for (at, line) in text.lines().enumerate() {
        if let Some(end) = skip_to {
            if line == end {
                skip_to = None;
            }
        } else if line.trim() == "#[cfg(test)]" || line.trim().starts_with("#[cfg(all(test,") {
            pending = true;
        } else if std::mem::take(&mut pending) {
            if line.ends_with('{') {
                skip_to = Some(if line.starts_with(' ') { "    }" } else { "}" });
            }
        } else if !line.trim_start().starts_with("//") {
            lines.push((at + 1, line));
        }
    }
    lines
}

#[test]
fn product_code_does_not_unwrap() {
    check_sources(|path, text| {
        if is_test_file(path) {
            return Vec::new();
        }
        let lines = product_lines(text).into_iter();
        let found = lines.filter(|(_, line)| line.contains(".unwrap()"));
        found.map(|(at, _)| (at, "panics outside of tests".to_string())).collect()
    });
}

#[test]
fn marked_tables_are_sorted() {
    check_sources(|_, text| {
        let lines: Vec<_> = text.lines().collect();
        let mut findings = Vec::new();
        for start in (0..lines.len()).filter(|&at| lines[at].trim() == SORTED_MARK) {
            let table = lines[start..].iter().take_while(|line| !line.trim_start().starts_with(']'));
            let keys: Vec<_> = table.filter_map(|line| line.split('"').nth(1)).collect();
            if let Some(pair) = keys.windows(2).find(|pair| pair[0] > pair[1]) {
                findings.push((start + 1, format!("{:?} stands before {:?}", pair[0], pair[1])));
            }
        }
        findings
    });
}

/// The anchors of a page, as GitHub and mdBook derive them from its headings.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    // Code stands between the fences, at odd places.
    let headings = text.split("```").step_by(2).flat_map(str::lines).filter(|line| line.starts_with('#'));
    for heading in headings {
        let title = heading.trim_start_matches('#').trim().to_lowercase();
        let characters = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name: String = characters.map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = (1..).map(|n| format!("{name}-{n}"));
        let mut names = std::iter::once(name.clone()).chain(again);
        anchors.extend(names.find(|name| !anchors.contains(name)));
    }
    anchors
}

#[test]
fn links_in_documents_exist() {
    let mut findings = Vec::new();
    for path in files("md") {
        let text = read(&path);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let there = match target {
                "" => path.clone(),
                _ => path.parent().unwrap().join(target.split(' ').next().unwrap_or("")),
            };
            let is_page = there.extension().is_some_and(|e| e == "md") && there.exists();
            let has_anchor =
                anchor.is_empty() || !is_page || anchors(&read(&there)).contains(&anchor.to_string());
            if !there.exists() || !has_anchor {
                findings.push(format!("{}: {link}", path.display()));
            }
        }
    }
    report(findings);
}

#[test]
fn documents_name_sources_that_exist() {
    let sources: Vec<_> = files("rs").iter().map(|path| (path.display().to_string(), read(path))).collect();
    let mut findings = Vec::new();
    for path in files("md") {
        // Code is at odd places, as is the text of a block between fences.
        for name in
            read(&path).split('`').skip(1).step_by(2).filter(|name| !name.contains(char::is_whitespace))
        {
            let in_crate = name.split_once('/').map(|(name, rest)| format!("crates/{name}/src/{rest}"));
            let is_file = |(file, _): &(String, String)| {
                file.ends_with(&format!("/{name}"))
                    || in_crate.as_ref().is_some_and(|name| file.ends_with(name))
            };
            let item = name.rsplit_once("::").map_or("", |(_, item)| item);
            let exists =
                (!name.ends_with(".rs") || name.starts_with("local.") || sources.iter().any(is_file))
                    && sources.iter().any(|(_, text)| text.contains(item));
            if !exists {
                findings.push(format!("{}: {name}", path.display()));
            }
        }
    }
    report(findings);
}

#[test]
fn anchors_match_headings() {
    let text = "# A `--flag`, twice\n```\n# code\n```\n## Twice\n## Twice\n";
    assert_eq!(anchors(text), ["a---flag-twice", "twice", "twice-1"]);
}

#[test]
fn the_table_of_sizes_is_within_its_limits() {
    // packaging/build checks the programs against this limit in millions of bytes, and tests/packages checks the table
    // against the programs.
    let build = std::fs::read_to_string(root().join("packaging/lib/compile.py")).unwrap();
    let bound = build.lines().find_map(|line| line.strip_prefix("SERVER_MEGABYTES_MAX = "));
    let bound: f64 = bound.unwrap().parse().unwrap();
    let text = std::fs::read_to_string(root().join("docs/packages.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `vellum`, ")?.strip_suffix(" MB |"));
    let sizes: Vec<f64> = rows.map(|row| row.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(sizes.len(), 2, "a row for each processor");
    assert!(sizes.iter().all(|size| *size <= bound), "{sizes:?} of at most {bound}");
    assert!(text.contains(&format!("most {bound} MB")), "docs/packages.md names another bound");
}

#[test]
fn the_glossary_has_few_terms_of_the_sources() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let (_, glossary) = text.split_once("## Glossary").unwrap();
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let terms: Vec<_> = rows.map(|(term, _)| term).filter(|term| *term != "term").collect();
    assert!((10..=30).contains(&terms.len()), "{} terms", terms.len());
    // `write intent` is also `WriteIntent` and `write_intent`.
    let joined = |text: &str| text.to_lowercase().replace([' ', '_'], "");
    let sources: String = files("rs").iter().map(|path| joined(&read(path))).collect();
    let unknown = terms.iter().filter(|term| !sources.contains(&joined(term)));
    report(unknown.map(|term| format!("the glossary has {term}, which no source has")).collect());
}

#[test]
fn the_rules_find_violations() {
    assert_eq!(
        dependencies("[dependencies]\nbase.workspace = true\nx = \"1\"\n[dev-dependencies]\ny = 1\n"),
        ["base", "x"]
    );
    let text = "a.unwrap()\n#[cfg(test)]\nmod tests {\n    b.unwrap()\n}\nc\n// d\n    #[cfg(test)]\n    mod tests;\ne\n";
    let lines: Vec<_> = product_lines(text).into_iter().map(|(_, line)| line).collect();
    assert_eq!(lines, ["a.unwrap()", "c", "e"]);
}
