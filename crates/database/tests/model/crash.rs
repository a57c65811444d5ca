//! Histories on disk that end with a crash of the machine. After the restart, the data must be
//! exactly the commits up to some point, without partial commits, and with every commit
//! acknowledged as durable. Another history then follows.

use super::client::Mix;
use super::interleaved::World;
use super::random::Random;
use super::recorder::Entry;
use super::replay::{Trees, apply};
use std::sync::Arc;
use std::time::Duration;
use storage::testing::{FaultyFiles, Loss};
use storage::{Direction, DiskEngine, DiskOptions, Durability, Engine, Ident, Range};

/// Runs a history, stops the machine, checks the remaining data, and runs another history on it.
/// Returns violations as errors.
pub(crate) fn history(seed: u64) -> Result<(), String> {
    let random = Random::new(!seed);
    let files = FaultyFiles::new();
    let mix = Mix { checkpoints: 3, ..Mix::draw(&random) };
    // If syncs write the journal, the end of the process also loses commits without a waiter.
    let durability = if seed.is_multiple_of(2) { Durability::None } else { Durability::Journaled };
    let world = World::new(Arc::new(open(&files, durability)?), Vec::new(), false, seed, mix);
    world.prepare();
    let (writes, syncs) = files.counts();
    match random.below(3) {
        0 => files.stop_at_write(writes + 1 + random.below(60)),
        1 => files.stop_at_sync(syncs + 1 + random.below(20)),
        _ => {}
    }
    let journaled = random.below(60);
    world.sessions().iter().for_each(|session| session.journaled.set(journaled));
    world.run(20 + random.below(30));
    let loss = match random.below(4) {
        0 => Loss::Nothing,
        1 => Loss::Everything,
        2 => Loss::Some(random.draw()),
        _ => Loss::Blocks(random.draw()),
    };
    let found = files.restart(loss);
    world.check()?;
    let committed = world.shared.history.recorder.committed();
    let mut least = 0;
    for session in world.sessions() {
        for (position, durable) in session.acknowledged.borrow().iter() {
            if *durable || loss == Loss::Nothing && durability == Durability::None {
                least = least.max(*position);
            }
        }
    }
    drop(world);
    let engine = open(&found, durability)?;
    let left = recovered(&engine, &committed).map_err(|message| format!("{loss:?}: {message}"))?;
    let position = |entry: &Entry| entry.position.map_or(0, |position| position.0);
    if let Some(lost) = committed[left..].iter().find(|entry| position(entry) <= least) {
        return Err(format!("{loss:?}: commit {} is lost, which was durable", position(lost)));
    }
    let world = World::new(Arc::new(engine), committed[..left].to_vec(), false, !seed, mix);
    world.validate()?;
    world.run(15);
    world.finish();
    world.verdict()
}

fn open(files: &FaultyFiles, durability: Durability) -> Result<DiskEngine, String> {
    let options = DiskOptions {
        // Only waiters cause syncs, so that the seed determines the history.
        durability,
        journal_commit_interval: Duration::from_secs(3600),
        cache_bytes: 16 << 20,
        ..DiskOptions::new("/data")
    };
    DiskEngine::open_on(Arc::new(files.clone()), &options).map_err(|error| format!("opening: {error}"))
}

/// Returns the number of these commits in an engine. Errors: the state does not match any number of
/// commits.
fn recovered(engine: &DiskEngine, entries: &[Entry]) -> Result<usize, String> {
    let (found, time) = (trees(engine, entries), engine.latest_time());
    let mut trees = Trees::new();
    let mut left = (trees == found).then_some(0);
    // The first batches create the trees of the catalog and have no times.
    for (number, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.time <= time) {
        entry.ops.iter().for_each(|op| apply(&mut trees, op));
        left = (trees == found).then_some(number + 1).or(left.filter(|_| time == 0));
    }
    left.ok_or_else(|| format!("what is there is not the state of time {time}"))
}

fn trees(engine: &DiskEngine, entries: &[Entry]) -> Trees {
    let snapshot = engine.snapshot();
    let mut made = Trees::new();
    let all = entries.iter().flat_map(|entry| &entry.ops);
    let mut idents: Vec<u64> = all.map(super::replay::ident_of).collect();
    idents.sort_unstable();
    idents.dedup();
    for ident in idents.into_iter().filter(|ident| snapshot.contains(Ident(*ident)).unwrap()) {
        let mut entries = snapshot.scan(Ident(ident), Range::all(), Direction::Forward).unwrap();
        let tree = made.entry(ident).or_default();
        while let Some((key, value)) = entries.next().unwrap() {
            tree.insert(key.to_vec(), value.to_vec());
        }
    }
    made
}
