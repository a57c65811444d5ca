//! Process-wide state is limited to state of the process itself: two databases in one process are independent.

use crate::root;
use std::collections::BTreeSet;
use std::path::Path;

/// The statics of these crates that are not constants, with the reason for each.
// tidy: sorted
const STATICS: &[(&str, &str)] = &[
    ("crates/base/src/memory.rs: ALLOCATED", "net heap bytes of each thread"),
    ("crates/database/src/index/spec.rs: SIMPLE", "the specification of most indexes on _id, a constant"),
    ("crates/database/src/operation.rs: EPOCH", "the instant that deadlines count from"),
    ("crates/database/src/operation.rs: LAST_CHECK", "in debug builds, the operation checked last"),
    ("crates/database/src/operation.rs: NEXT", "in debug builds, a number for each operation"),
    ("crates/query/src/collation/parse.rs: CACHE", "collators, a cache of values equal in all databases"),
    ("crates/query/src/expression/date/zone.rs: DATABASE", "time zones, read once"),
    ("crates/query/src/regex.rs: CACHE", "compiled patterns, a cache of values equal in all databases"),
    ("crates/query/src/regex/literal.rs: LOWERED", "a thread's buffer"),
    ("crates/query/src/text/tokens.rs: KNOWN", "a thread's words and their terms, a cache"),
    ("crates/query/src/text/tokens.rs: WORDS", "stop words of text indexes, read once"),
    ("crates/server/src/auth/authorize.rs: LOCALHOST_EXCEPTION", "privileges that create the first user"),
    ("crates/server/src/auth/authorize.rs: NO_PRIVILEGES", "no rights at all"),
    ("crates/server/src/commands/table.rs: POSITIONS", "the table's names"),
    ("crates/server/src/process/blocking.rs: THREADS", "the number of network threads"),
    ("crates/server/src/process/logging/components.rs: LEVELS", "the levels of the log, by component"),
    ("crates/server/src/process/logging/components.rs: QUIET", "true if connections are not logged"),
    ("crates/server/src/process/logging/mod.rs: JSON", "the log is the process's standard error"),
    ("crates/server/src/process/logging/mod.rs: LONGEST", "the same: the size limit of a message"),
    ("crates/server/src/process/logging/mod.rs: RING", "the same: the latest lines"),
    ("crates/server/src/process/logging/mod.rs: SINK", "the same: the destination"),
    ("crates/server/src/process/logging/mod.rs: WARNINGS", "the same: warnings of the start"),
    ("crates/server/src/process/memory.rs: CACHE", "a thread's buffers"),
    ("crates/storage/src/cancellation.rs: CURRENT", "the deadline of the caller that a thread works for"),
    ("crates/storage/src/coverage.rs: REACHED", "in debug builds, the code marks that a thread passed"),
    ("crates/storage/src/cpu_slice.rs: BEATS", "in debug builds, a counter of elapsed processor time"),
    ("crates/storage/src/cpu_slice.rs: FACTOR", "in debug builds, the factor of time limits"),
    ("crates/storage/src/mutants.rs: ANY", "faults that tests switch on"),
    ("crates/storage/src/mutants.rs: CURRENT", "the same"),
    ("crates/storage/src/threads.rs: LIMIT", "the limit of the process's address space, read once"),
    ("crates/storage/src/time.rs: MEANWHILE", "in tests, the callback of a sleeping thread"),
    ("crates/storage/src/time.rs: SIMULATED", "in tests, the clock of a thread"),
];

/// Types that make a static mutable.
const CHANGING: [&str; 6] = ["Atomic", "Cell", "Lazy", "Lock", "Mutex", "mut "];

fn gather(folder: &Path, statics: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            gather(&path, statics);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
        for line in code.lines() {
            let Some((before, rest)) = line.split_once("static ") else { continue };
            let is_lifetime = before.ends_with('\'');
            let declares = !is_lifetime && (before.trim().is_empty() || before.trim().starts_with("pub"));
            let Some((name, of)) = rest.split_once(':').filter(|_| declares) else { continue };
            if CHANGING.iter().any(|kind| of.contains(kind) || name.starts_with(kind)) {
                let file = path.strip_prefix(root()).unwrap_or(&path).display();
                statics.insert(format!("{file}: {}", name.trim_start_matches("mut ")));
            }
        }
    }
}

#[test]
fn statics_are_listed_with_reasons() {
    let mut statics = BTreeSet::new();
    for name in ["base", "database", "query", "server", "storage"] {
        gather(&root().join("crates").join(name).join("src"), &mut statics);
    }
    let known: BTreeSet<String> = STATICS.iter().map(|(place, _)| place.to_string()).collect();
    let new: Vec<_> = statics.difference(&known).collect();
    let unused: Vec<_> = known.difference(&statics).collect();
    assert!(new.is_empty() && unused.is_empty(), "\nnew: {new:#?}\nunused entries: {unused:#?}\n");
}
