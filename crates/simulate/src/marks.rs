//! The code marks of the server, see `storage::coverage`, and its faults, see `storage::mutants`.

use std::collections::BTreeSet;
use std::path::Path;

/// Marks that seeds may miss, with the reason.
// tidy: sorted
pub const UNREACHED: &[(&str, &str)] = &[
    ("a commit meets locked writes", "another thread locks writes between the check and the commit"),
    ("a large batch is applied to a copy", "a statement of the simulation changes one document"),
    ("a search passes over an incomplete frame without a seed", "the simulation has no old segments"),
    ("a transaction's commit is refused", "write intents exclude it on a store of one process"),
    ("a tree is forked during its checkpoint", "seldom: one seed of 800"),
    ("a writer meets the checkpoint limit", "the simulation has little data"),
    ("changed keys of open transactions are forgotten", "the simulation has few keys"),
    ("recovery begins a segment with a seed", "the simulation has no old segments"),
    ("recovery cuts a segment that begins with a gap", "seldom: no seed of 1,600"),
    ("the base is compacted", "the simulation has little data"),
    ("the log is trimmed", "the change stream would lose its position"),
];

/// Returns the names of all marks in the sources.
pub fn all_marks() -> BTreeSet<String> {
    all_names("mark!(\"")
}

/// Returns the names of all faults in the sources: see `storage::mutants`.
pub fn all_mutants() -> BTreeSet<String> {
    all_names("mutant!(\"")
}

/// Returns the strings that follow a macro in the server's sources and tests.
fn all_names(call: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for name in ["storage", "database", "server"] {
        gather(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name), call, &mut names);
    }
    names
}

fn gather(path: &Path, call: &str, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            gather(&path, call, names);
            continue;
        }
        let code = std::fs::read_to_string(&path).unwrap_or_default();
        let found = code.split(call).skip(1).filter_map(|rest| rest.split('"').next());
        names.extend(found.map(str::to_string));
    }
}
