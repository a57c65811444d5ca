//! Random histories of transactions and single statements, checked against a model of snapshot isolation.
//!
//! Sessions insert, update, delete and read a handful of documents, alone and in transactions, while
//! collections and indexes come and go (`client.rs`, `statements.rs`). An engine keeps each batch that was
//! committed (`recorder.rs`), so the order of everything is known afterwards (`replay.rs`), and what each
//! session was told can be compared with what it must have been (`check.rs`).
//!
//! `MODEL_SEED=7 cargo test -p database --test model` runs the history of one seed alone; a failure prints it.
//! `MODEL_SHOW=1` shows the commits and the events of each history that fails.

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

/// Taken for writing by whoever switches faults on.
static ALONE: RwLock<()> = RwLock::new(());

/// Runs the histories of so many seeds, or the one that is asked for.
fn histories(count: u64, history: impl Fn(u64) -> Result<(), String>) {
    let _together = ALONE.read();
    let seeds = asked().map_or(0..count, |seed| seed..seed + 1);
    let failures: Vec<String> = seeds
        .filter_map(|seed| history(seed).err().map(|what| format!("MODEL_SEED={seed}: {what}")))
        .collect();
    let first: String = failures.iter().take(5).map(|what| format!("{what}\n\n")).collect();
    assert!(failures.is_empty(), "{} of {count} histories are wrong:\n{first}", failures.len());
}

/// Whether a history that fails is to be shown.
fn shown() -> bool {
    asked().is_some() || std::env::var_os("MODEL_SHOW").is_some()
}

/// The seed whose history is to be run alone.
fn asked() -> Option<u64> {
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
fn transactions_go_on_before_those_who_wait_for_them() {
    histories(20, waiting::history);
}

#[test]
fn what_was_durable_is_there_after_a_crash_and_nothing_in_part() {
    histories(200, crash::history);
}
