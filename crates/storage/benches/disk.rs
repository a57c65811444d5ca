//! Costs of the disk engine's guarantees, compared with the costs without an engine.
//!
//! `cargo bench -p storage --bench disk [-- DIRECTORY]` measures on the disk of a directory:
//! - a loop of writes and syncs, and commits that wait for the journal, with one thread and with
//!   32;
//! - a model of group commit with one write at a time, with two, and with groups that are gathered;
//! - the CPU time of relaxed commits, and of the memory engine's commits;
//! - opening after a clean stop;
//! - random reads with a cache of a quarter of the data.
//!
//! The argument `smoke` makes everything small.

#![expect(clippy::print_stdout, reason = "printing a table is its purpose")]

use std::collections::VecDeque;
use std::fs;
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use storage::disk::{BLOCK, Files, SystemFiles};
use storage::{Batch, DiskEngine, DiskOptions, Durability, Engine, Ident, MemoryEngine, Result, Value};

const TREE: Ident = Ident(1);
const VALUE: usize = 500;

/// Returns the CPU time of all threads of this process.
fn cpu() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// A small generator with a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

fn options(directory: &Path, durability: Durability) -> DiskOptions {
    DiskOptions { durability, ..DiskOptions::new(directory) }
}

/// Returns an engine with an empty tree in a new directory.
fn fresh(directory: &Path, durability: Durability) -> Result<DiskEngine> {
    let _ = fs::remove_dir_all(directory);
    let engine = DiskEngine::open(&options(directory, durability))?;
    create(&engine)?;
    Ok(engine)
}

fn create(engine: &dyn Engine) -> Result<()> {
    let mut batch = Batch::new();
    batch.create(TREE);
    engine.commit(batch).map(drop)
}

fn one(key: u64) -> Batch {
    let mut batch = Batch::new();
    batch.put(TREE, key.to_be_bytes(), vec![key as u8; VALUE]);
    batch
}

/// Commits `count` entries on one of several threads.
fn commit_some(engine: &dyn Engine, thread: u64, count: u64, wait: bool) -> Result<()> {
    for at in 0..count {
        engine.wait_for_space(&mut || true)?;
        let position = engine.commit(one(thread << 32 | at))?;
        if wait {
            engine.wait_journaled(position)?;
        }
    }
    Ok(())
}

/// Commits `count` entries on each thread. Returns the total time.
fn commit(engine: &dyn Engine, threads: u64, count: u64, wait: bool) -> Result<Duration> {
    let started = Instant::now();
    thread::scope(|scope| {
        let spawn = |thread| scope.spawn(move || commit_some(engine, thread, count, wait));
        let threads: Vec<_> = (0..threads).map(spawn).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(storage::Error::Closed)))
    })?;
    Ok(started.elapsed())
}

fn bare_loop(directory: &Path, count: u64) -> Result<Duration> {
    let path = directory.join("bare");
    let mut file = fs::File::create(&path)?;
    let started = Instant::now();
    for at in 0..count {
        file.write_all(&[at as u8; VALUE + 44])?;
        file.sync_data()?;
    }
    let took = started.elapsed();
    fs::remove_file(path)?;
    Ok(took)
}

fn synced(root: &Path, count: u64) -> Result<()> {
    // If every commit is journaled, syncs write the frames.
    let all = [("written at once", Durability::None), ("written by syncs", Durability::Journaled)];
    for round in 1..=3 {
        let before = cpu();
        let bare = bare_loop(root, count)? / count as u32;
        println!("synced, round {round}: a bare loop {bare:?}, {:?} CPU", (cpu() - before) / count as u32);
        for (how, durability) in all {
            let engine = fresh(&root.join("data"), durability)?;
            let before = cpu();
            let alone = commit(&engine, 1, count, true)? / count as u32;
            println!(
                "synced, 1 thread, {how}, round {round}: {alone:?}, {:?} CPU",
                (cpu() - before) / count as u32
            );
        }
    }
    for (how, durability) in all {
        let engine = fresh(&root.join("data"), durability)?;
        let (before, start_cpu) = (engine.statistics(), cpu());
        let took = commit(&engine, 32, count, true)?;
        let after = engine.statistics();
        let (commits, syncs) = (after.commits - before.commits, after.syncs - before.syncs);
        let rate = commits as f64 / took.as_secs_f64();
        let shared = commits as f64 / syncs as f64;
        let each = (cpu() - start_cpu) / commits as u32;
        println!("synced, 32 threads, {how}: {rate:.0} commits/s, {shared:.1} a sync, {each:?} CPU");
    }
    Ok(())
}

/// Bytes of a frame in the model of group commit.
const FRAME: usize = 260;

/// Time that a client takes until its next commit.
const CLIENT: Duration = Duration::from_micros(10);

/// A model of group commit: its clients commit again after their last frame is durable.
#[derive(Default)]
struct Groups {
    /// Frames in no group yet.
    waiting: usize,
    /// Number of frames that the next write waits for.
    gathered: usize,
    /// Durable frames whose client has not yet committed again.
    durable: usize,
    /// Number of the next group, and offset of its first block.
    next: (u64, u64),
    /// Frames of the groups that are not durable, in order; their writes have ended if true.
    open: VecDeque<(u64, usize, bool)>,
    groups: u64,
    frames: u64,
}

impl Groups {
    /// Counts the groups whose writes and those of all earlier groups have ended.
    fn end(&mut self, number: u64) {
        self.open.iter_mut().filter(|group| group.0 == number).for_each(|group| group.2 = true);
        while let Some((_, frames, _)) = self.open.pop_front_if(|group| group.2) {
            (self.durable, self.groups) = (self.durable + frames, self.groups + 1);
            self.frames += frames as u64;
        }
    }
}

/// When a group is written.
#[derive(Clone, Copy, Debug)]
enum Writes {
    /// After the last group.
    One,
    /// Beside one other group.
    Two,
    /// After the last group, and after its clients have committed again or the time of a write has passed.
    Gathered,
}

/// Writes groups of frames. Each group begins at a block.
fn groups(root: &Path, clients: usize, writes: Writes, frames: u64) -> Result<()> {
    const LENGTH: u64 = 32 << 20;
    let path = root.join("groups");
    let file = SystemFiles.open(&path, true)?;
    file.write_at(&vec![0; LENGTH as usize], 0)?;
    file.sync()?;
    let shared = Mutex::new(Groups { durable: clients, ..Groups::default() });
    let changed = Condvar::new();
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let wait = |guard| changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
    let write = || -> std::io::Result<()> {
        let buffer = vec![7; clients * FRAME + 2 * BLOCK];
        let from = buffer.as_ptr().align_offset(BLOCK);
        let mut state = lock();
        while state.frames < frames {
            let count = std::mem::take(&mut state.waiting);
            if count == 0 {
                state = wait(state);
                continue;
            }
            let length = (count * FRAME).next_multiple_of(BLOCK);
            let (number, offset) = state.next;
            let offset = if offset + length as u64 > LENGTH { 0 } else { offset };
            state.next = (number + 1, offset + length as u64);
            state.open.push_back((number, count, false));
            drop(state);
            let began = Instant::now();
            file.write_durably(buffer.get(from..from + length).unwrap_or_default(), offset)?;
            let until = Instant::now() + began.elapsed();
            state = lock();
            state.end(number);
            changed.notify_all();
            state.gathered = count + state.waiting;
            while matches!(writes, Writes::Gathered) && count > 1 && state.waiting < state.gathered {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                state = changed
                    .wait_timeout(state, left)
                    .map_or_else(|error| error.into_inner().0, |woken| woken.0);
            }
            state.gathered = 0;
        }
        changed.notify_all();
        Ok(())
    };
    let (started, before) = (Instant::now(), cpu());
    thread::scope(|scope| {
        let writers = if matches!(writes, Writes::Two) { 2 } else { 1 };
        let threads: Vec<_> = (0..writers).map(|_| scope.spawn(write)).collect();
        let mut state = lock();
        while state.frames < frames {
            if state.durable == 0 {
                state = wait(state);
                continue;
            }
            state.durable -= 1;
            drop(state);
            let began = Instant::now();
            while began.elapsed() < CLIENT {}
            state = lock();
            state.waiting += 1;
            if state.waiting >= state.gathered {
                changed.notify_all();
            }
        }
        drop(state);
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    let (took, used, state) = (started.elapsed(), cpu() - before, lock());
    let per_frame = |time: Duration| time / u32::try_from(state.frames).unwrap_or(u32::MAX).max(1);
    println!(
        "groups, {clients} clients, {writes:?}: {:?} and {:?} CPU a frame, {:.1} frames a group",
        per_frame(took),
        per_frame(used).saturating_sub(CLIENT),
        state.frames as f64 / state.groups as f64
    );
    fs::remove_file(path)?;
    Ok(())
}

fn relaxed(root: &Path, count: u64) -> Result<()> {
    for round in 1..=3 {
        let memory = MemoryEngine::new();
        create(&memory)?;
        let before = cpu();
        commit(&memory, 1, count, false)?;
        let in_memory = (cpu() - before) / count as u32;
        let engine = fresh(&root.join("data"), Durability::Relaxed)?;
        let before = cpu();
        commit(&engine, 1, count, false)?;
        let on_disk = (cpu() - before) / count as u32;
        println!("relaxed, CPU per commit, round {round}: memory {in_memory:?}, disk {on_disk:?}");
    }
    Ok(())
}

/// Measures a commit that puts its value twice, as a document and in the oplog: once the same value
/// and once a copy. Compares it with a loop of writes.
fn repeated(root: &Path, count: u64) -> Result<()> {
    for round in 1..=3 {
        let path = root.join("bare");
        let mut file = fs::File::create(&path)?;
        let before = cpu();
        (0..count).try_for_each(|at| file.write_all(&[at as u8; VALUE + 60]))?;
        println!("bare write, CPU, round {round}: {:?}", (cpu() - before) / count as u32);
        fs::remove_file(path)?;
        for (name, share) in [("the same value", true), ("a copy", false)] {
            let engine = fresh(&root.join("data"), Durability::None)?;
            let (before, mut journal) = (cpu(), 0);
            for at in 0..count {
                let value = Value::from(vec![at as u8; VALUE]);
                let again = if share { value.clone() } else { Value::from(&*value) };
                let mut batch = Batch::new();
                batch.put(TREE, at.to_be_bytes(), value);
                batch.put(TREE, (at | 1 << 63).to_be_bytes(), again);
                engine.wait_for_space(&mut || true)?;
                engine.commit(batch)?;
                if at == 1000.min(count) - 1 {
                    journal = engine.statistics().journal_bytes / (at + 1);
                }
            }
            let each = (cpu() - before) / count as u32;
            println!("put twice, {name}, round {round}: {each:?} CPU, {journal} bytes of journal");
        }
    }
    Ok(())
}

fn reads(root: &Path, entries: u64) -> Result<()> {
    let directory = root.join("data");
    let engine = fresh(&directory, Durability::Relaxed)?;
    let before = (cpu(), Instant::now());
    for first in (0..entries).step_by(1000) {
        let mut batch = Batch::new();
        for at in first..(first + 1000).min(entries) {
            batch.put(TREE, at.to_be_bytes(), vec![at as u8; VALUE]);
        }
        engine.wait_for_space(&mut || true)?;
        engine.commit(batch)?;
    }
    engine.close()?;
    println!("load of {entries}: {:?} CPU, {:?}", cpu() - before.0, before.1.elapsed());
    drop(engine);
    let data = entries * (VALUE as u64 + 8);
    let quarter = DiskOptions { cache_bytes: data / 4, ..options(&directory, Durability::Relaxed) };
    let started = Instant::now();
    let engine = DiskEngine::open(&quarter)?;
    println!("opening after a clean stop: {:?}", started.elapsed());
    let snapshot = engine.snapshot();
    let mut random = Random(7);
    for (name, share) in [("1 %", 100), ("10 %", 10), ("all", 1)] {
        let reads = 100_000.min(entries);
        let mut get = || {
            let key = random.next() % (entries / share);
            snapshot.get(TREE, &key.to_be_bytes()).map(|value| drop(black_box(value)))
        };
        (0..reads).try_for_each(|_| get())?;
        let before = (cpu(), Instant::now());
        (0..reads).try_for_each(|_| get())?;
        let (cpu, took) = (cpu() - before.0, before.1.elapsed());
        println!(
            "{reads} random gets of {name}: {:?} CPU each, {:?}",
            cpu / reads as u32,
            took / reads as u32
        );
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let smoke = arguments.iter().any(|argument| argument == "smoke");
    let directory = arguments.iter().find(|argument| *argument != "smoke");
    let root = directory.map_or_else(std::env::temp_dir, PathBuf::from).join("vellum-bench-disk");
    fs::create_dir_all(&root)?;
    let scale = if smoke { 100 } else { 1 };
    synced(&root, 2000 / scale)?;
    for (clients, frames) in [(16, 40_000), (1, 4_000)] {
        for _ in 1..=3 {
            for writes in [Writes::One, Writes::Two, Writes::Gathered] {
                groups(&root, clients, writes, frames / scale)?;
            }
        }
    }
    relaxed(&root, 200_000 / scale)?;
    repeated(&root, 50_000 / scale)?;
    reads(&root, 1_000_000 / scale)?;
    fs::remove_dir_all(&root)?;
    Ok(())
}
