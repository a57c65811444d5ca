//! Random histories of transactions and single statements, checked against a model of snapshot
//! isolation.
//!
//! Sessions insert, update, delete and read a few documents, in transactions or without, while
//! collections and indexes are created and dropped (`client.rs`, `statements.rs`). An engine
//! records each committed batch (`recorder.rs`), so the order of all commits is known afterwards
//! (`replay.rs`). Each session's results are compared with the results that the order requires
//! (`check.rs`).
//!
//! `MODEL_SEED=7 cargo test -p database --test model` runs the history of a single seed. A failure
//! prints its seed. `MODEL_SHOW=1` shows the commits and the events of each failed history.

#![allow(clippy::unwrap_used, clippy::type_complexity)]

mod check;
mod client;
mod crash;
mod documents;
mod history;
mod interleaved;
#[cfg(feature = "mutants")]
mod mutants;
mod random;
mod recorder;
mod replay;
mod statements;
mod threads;
mod waiting;

use parking_lot::RwLock;
use std::sync::Arc;
use storage::MemoryEngine;

/// Locked for writing by tests that switch faults on.
static ALONE: RwLock<()> = RwLock::new(());

/// Runs the histories of this number of seeds, or of the requested seed.
fn histories(count: u64, history: impl Fn(u64) -> Result<(), String>) {
    let _together = ALONE.read();
    let seeds = requested().map_or(0..count, |seed| seed..seed + 1);
    let failures: Vec<String> = seeds
        .filter_map(|seed| history(seed).err().map(|message| format!("MODEL_SEED={seed}: {message}")))
        .collect();
    let first: String = failures.iter().take(5).map(|message| format!("{message}\n\n")).collect();
    assert!(failures.is_empty(), "{} of {count} histories are wrong:\n{first}", failures.len());
}

/// Returns true if a failed history must be shown.
fn shown() -> bool {
    requested().is_some() || std::env::var_os("MODEL_SHOW").is_some()
}

/// Returns the requested seed.
fn requested() -> Option<u64> {
    std::env::var("MODEL_SEED").ok()?.parse().ok()
}

#[test]
fn interleaved_sessions_see_snapshots() {
    histories(2000, |seed| interleaved::history(Arc::new(MemoryEngine::new()), false, seed));
}

#[test]
fn two_databases_on_one_store_see_snapshots() {
    let count = std::env::var("MODEL_COUNT").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    histories(count, |seed| interleaved::history(Arc::new(MemoryEngine::new()), true, seed));
}

#[test]
fn sessions_on_threads_see_snapshots() {
    histories(300, |seed| threads::history(Arc::new(MemoryEngine::new()), seed));
}

#[test]
fn transactions_continue_before_their_waiters() {
    histories(20, waiting::history);
}

#[test]
fn durable_commits_survive_a_crash_completely() {
    histories(200, crash::history);
}
