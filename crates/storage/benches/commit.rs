//! Time that a small insert holds the commit lock.
//!
//! `cargo bench -p storage --bench commit [-- DIRECTORY [ENTRIES]]` fills a store with documents of
//! 500 bytes and an index on `_id`. It then inserts single documents. The call of [`Store::commit`]
//! holds the commit lock except in its first nanoseconds. Each row is an engine with or without a
//! log of changes (like the oplog), and with or without an open view. The view is opened before
//! each commit and kept until the next view is open, so that every commit copies the nodes that it
//! changes. The times are CPU time of the thread. The argument `smoke` makes everything small.

#![expect(clippy::print_stdout, reason = "printing a table is its purpose")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use storage::store::{Change, Commits, Counts, Expect, Local, LogOptions, ReadViews, SideEffect};
use storage::{Batch, DiskEngine, DiskOptions, Engine, Ident, Key, MemoryEngine, Result, Value};

const RECORDS: Ident = Ident(1);
const IDS: Ident = Ident(2);
const FILLED_AT_ONCE: u64 = 1000;

/// Returns the CPU time of this thread.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn id(number: u64) -> Key {
    let mut id = [7; 13];
    id[5..].copy_from_slice(&number.to_be_bytes());
    Key::from(id.as_slice())
}

fn put(batch: &mut Batch, number: u64, document: &Value) {
    batch.put_new(RECORDS, number.to_be_bytes(), document.clone());
    batch.put(IDS, id(number), number.to_be_bytes());
}

fn fill(engine: &dyn Engine, entries: u64, document: &Value) -> Result<()> {
    let mut batch = Batch::new();
    batch.create(RECORDS);
    batch.create(IDS);
    engine.commit(batch)?;
    for from in (0..entries).step_by(FILLED_AT_ONCE as usize) {
        engine.wait_for_space(&mut || true)?;
        let mut batch = Batch::new();
        (from..from + FILLED_AT_ONCE).for_each(|number| put(&mut batch, number, document));
        engine.commit(batch)?;
    }
    engine.checkpoint()
}

/// Returns the change that a server commits for an insert of one document.
fn insert(number: u64, document: &Value, counts: &Arc<Counts>, logged: bool) -> Change {
    let mut change = Change::default();
    change.expect.push(Expect::Value { ident: IDS, key: id(number), value: None });
    put(&mut change.batch, number, document);
    change.side_effects.push(SideEffect::Count { counts: counts.clone(), records: 1, bytes: 500 });
    if logged {
        change.log.push((0, document.clone()));
    }
    change
}

fn measure(
    engine: Arc<dyn Engine>,
    label: &str,
    from: u64,
    commits: u64,
    logged: bool,
    views: bool,
) -> Result<()> {
    let log = logged.then_some(LogOptions { bytes: 1 << 30 });
    let store = Local::new(engine, log)?;
    let (document, counts) = (Value::from([0x61; 500].as_slice()), Arc::new(Counts::default()));
    let mut taken = Vec::with_capacity(commits as usize);
    let mut view = None;
    for number in from..from + commits {
        store.wait_for_space(&mut || true)?;
        let mut change = insert(number, &document, &counts, logged);
        if views {
            view = Some(store.read_view());
        }
        let before = cpu();
        let outcome = store.commit(&mut change)?;
        taken.push(cpu() - before);
        assert!(outcome.is_ok(), "a new document stands in nobody's way");
    }
    drop(view);
    taken.sort_unstable();
    let at = |share: f64| taken[(share * (taken.len() - 1) as f64) as usize].as_nanos() as f64 / 1000.0;
    let mean = taken.iter().sum::<Duration>().as_nanos() as f64 / commits as f64 / 1000.0;
    println!(
        "{label:32} mean {mean:6.2}  p50 {:6.2}  p99 {:6.2}  p99.9 {:7.2} µs",
        at(0.5),
        at(0.99),
        at(0.999)
    );
    Ok(())
}

fn rows(engine: Arc<dyn Engine>, name: &str, entries: u64, commits: u64) -> Result<()> {
    let mut from = entries;
    for (logged, views) in [(false, false), (false, true), (true, false), (true, true)] {
        let log = if logged { ", log" } else { "" };
        let seen = if views { ", views" } else { "" };
        measure(engine.clone(), &format!("{name}{log}{seen}"), from, commits, logged, views)?;
        from += commits;
    }
    Ok(())
}

fn on_disk(directory: &Path, entries: u64, commits: u64) -> Result<()> {
    let options = DiskOptions { cache_bytes: 256 << 20, ..DiskOptions::new(directory) };
    let engine = DiskEngine::open(&options)?;
    fill(&engine, entries, &Value::from([0x61; 500].as_slice()))?;
    rows(Arc::new(engine), "disk", entries, commits)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let smoke = arguments.iter().any(|argument| argument == "smoke");
    let directory = arguments.first().filter(|_| !smoke).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = directory.join(format!("vellum-commit-{}", std::process::id()));
    let requested = arguments.get(1).and_then(|argument| argument.parse().ok());
    let entries = if smoke { 2_000 } else { requested.unwrap_or(1_000_000) };
    let commits = if smoke { 100 } else { 100_000 };
    let engine = MemoryEngine::new();
    fill(&engine, entries, &Value::from([0x61; 500].as_slice()))?;
    rows(Arc::new(engine), "memory", entries, commits)?;
    on_disk(&directory, entries, commits)?;
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
