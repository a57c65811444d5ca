//! A scripted workload, stopped at every sync and every write in turn, and reopened.
//!
//! After every loss, the recovered state must be the state after some commit: no partial batch, and no commit without
//! all earlier ones. Journaled commits must be present. After the end of the process alone, acknowledged commits must
//! be present, except if every commit waits for the journal. The workload then continues, to test the recovered state.

use super::*;
use crate::testing::faulty::Random;

/// Acknowledgements and states of a run.
struct AcknowledgedWrites {
    /// State after each commit, by position.
    states: Vec<AllTrees>,
    /// Position of the last returned commit.
    committed: u64,
    /// Last position reported as journaled or checkpointed.
    journaled: u64,
    /// Maximum number of pending changes in the base after a checkpoint.
    waited: u64,
    durability: Durability,
}

impl AcknowledgedWrites {
    fn nothing(states: Vec<AllTrees>, durability: Durability) -> AcknowledgedWrites {
        AcknowledgedWrites { states, committed: 0, journaled: 0, waited: 0, durability }
    }
}

fn many_key(at: u16) -> Vec<u8> {
    [&[200][..], &at.to_be_bytes()].concat()
}

/// Returns the script's batches. Each changes two trees alike, to reveal a partial batch; some change whole trees.
pub(super) fn batches() -> Vec<Batch> {
    let mut random = Random(0x5EED);
    // Enough for pending changes in the base.
    let many = (0..400u16).flat_map(|at| [1, 2].map(|tree| put(tree, &many_key(at), &[3; 30])));
    let mut batches = vec![batch((0..3).map(|number| Op::Create(Ident(number))).chain(many))];
    let mut forked = false;
    for at in 0..45u64 {
        let mut ops = Vec::new();
        for _ in 0..1 + random.below(4) {
            let key = match random.below(2) {
                0 => vec![random.below(40) as u8; 1 + random.below(30)],
                _ => many_key(random.below(400) as u16),
            };
            let gone = random.below(3) == 0;
            // One value twice, as a document that the oplog repeats.
            let value = Value::from(vec![at as u8; random.below(300)]);
            for number in [1, 2] {
                ops.push(match gone {
                    true => Op::Delete { ident: Ident(number), key: Key::from(key.clone()) },
                    false => {
                        Op::Put { ident: Ident(number), key: Key::from(key.clone()), value: value.clone() }
                    }
                });
            }
        }
        match at {
            8 | 30 => ops.push(Op::Clear(Ident(1))),
            _ if at % 7 == 5 && forked => ops.push(Op::Drop(Ident(3))),
            _ if at % 7 == 5 => ops.push(Op::Fork { from: Ident(2), to: Ident(3) }),
            _ => {}
        }
        forked ^= at % 7 == 5;
        let mut batch = batch(ops);
        batch.set_time(time_of(batches.len() as u64 + 1));
        batches.push(batch);
    }
    batches
}

/// Returns the time of the commit at a position: most have a time, and times increase.
pub(super) fn time_of(position: u64) -> u64 {
    if position.is_multiple_of(5) { 0 } else { position << 32 }
}

/// Runs the script until its end or a failure.
fn script(files: &FaultyFiles, acknowledged: &mut AcknowledgedWrites) -> Result<()> {
    let engine = open_as(files, acknowledged.durability)?;
    let result = commit_all(&engine, acknowledged);
    // A failing close is expected here.
    let _ = engine.close();
    result
}

fn commit_all(engine: &DiskEngine, acknowledged: &mut AcknowledgedWrites) -> Result<()> {
    for (at, batch) in batches().into_iter().enumerate() {
        let position = engine.commit(batch)?;
        acknowledged.committed = position.0;
        if at % 4 == 3 {
            engine.wait_journaled(position)?;
            acknowledged.journaled = position.0;
        }
        if at % 11 == 7 {
            engine.checkpoint()?;
            acknowledged.journaled = position.0;
            acknowledged.waited = acknowledged.waited.max(engine.core.latest().view.waiting());
        }
    }
    Ok(())
}

/// Returns the script's states from a run on the memory engine.
pub(super) fn states() -> Vec<AllTrees> {
    let memory = MemoryEngine::new();
    let mut states = vec![everything(&*memory.snapshot())];
    for batch in batches() {
        memory.commit(batch).unwrap();
        states.push(everything(&*memory.snapshot()));
    }
    states
}

/// Reopens after a stop, checks the state, and continues the workload.
fn check(files: &FaultyFiles, loss: Loss, acknowledged: &AcknowledgedWrites, label: &str) {
    let files = files.restart(loss);
    let engine =
        open_as(&files, acknowledged.durability).unwrap_or_else(|error| panic!("{label}, {loss:?}: {error}"));
    let state = engine.core.latest();
    let position = state.position;
    let at_once = loss == Loss::Nothing && acknowledged.durability != Durability::Journaled;
    let least = if at_once { acknowledged.committed } else { acknowledged.journaled };
    assert!(position >= least, "{label}, {loss:?}: {position} recovered, {least} promised");
    let found = everything(&*state);
    let time = (2..=position).map(time_of).max().unwrap_or_default();
    assert_eq!(state.time, time, "{label}, {loss:?}: the time after commit {position}");
    let expected = acknowledged.states.get(position as usize);
    assert_eq!(Some(&found), expected, "{label}, {loss:?}: not the state after commit {position}");
    drop(state);
    if position > 0 {
        let last = engine.commit(batch([put(0, b"after", label.as_bytes())])).unwrap();
        engine.wait_journaled(last).unwrap();
        let files = files.restart(Loss::Everything);
        let engine = open(&files).unwrap_or_else(|error| panic!("{label}, {loss:?}, then again: {error}"));
        let value = engine.snapshot().get(Ident(0), b"after").unwrap();
        assert_eq!(value.as_deref(), Some(label.as_bytes()), "{label}, {loss:?}");
    }
}

/// Stops at each of `count` places and returns the number of survived stops.
fn stop_everywhere(durability: Durability, count: u64, stop: fn(&FaultyFiles, u64), label: &str) -> u64 {
    let mut acknowledged = AcknowledgedWrites::nothing(states(), durability);
    let mut survived = 0;
    for at in 1..=count {
        let files = FaultyFiles::new();
        stop(&files, at);
        (acknowledged.committed, acknowledged.journaled) = (0, 0);
        let _ = script(&files, &mut acknowledged);
        let label = format!("stopped at {label} {at}");
        for loss in [
            Loss::Nothing,
            Loss::Everything,
            Loss::Some(at),
            Loss::Some(at * 31),
            Loss::Blocks(at),
            Loss::Blocks(at * 31),
        ] {
            check(&files, loss, &acknowledged, &label);
            survived += 1;
        }
    }
    eprintln!("{survived} stops at a {label} survived");
    survived
}

fn counts(durability: Durability) -> (u64, u64) {
    let files = FaultyFiles::new();
    let mut acknowledged = AcknowledgedWrites::nothing(Vec::new(), durability);
    script(&files, &mut acknowledged).unwrap();
    assert_eq!(acknowledged.committed, batches().len() as u64);
    assert!(acknowledged.waited > 5, "{} changes waited", acknowledged.waited);
    files.counts()
}

#[test]
fn a_stop_at_any_sync_keeps_every_promise() {
    for durability in [Durability::None, Durability::Journaled] {
        let (_, syncs) = counts(durability);
        let survived = stop_everywhere(durability, syncs, FaultyFiles::stop_at_sync, "sync");
        assert!(survived >= 6 * 40, "the script has become too short: {survived}");
    }
}

#[test]
fn a_stop_at_any_write_keeps_every_promise() {
    for durability in [Durability::None, Durability::Journaled] {
        let (writes, _) = counts(durability);
        let survived = stop_everywhere(durability, writes, FaultyFiles::stop_at_write, "write");
        // Commits write nothing if syncs write the frames.
        let least = if durability == Durability::None { 100 } else { 40 };
        assert!(survived >= 6 * least, "the script has become too short: {survived}");
    }
}

/// An ended process may leave a superblock in the system's cache only. The next checkpoint overwrites the pages of the
/// superblock on disk.
#[test]
fn a_start_makes_the_base_durable_before_its_pages_are_used_again() {
    for (first, second) in (1..=4).flat_map(|first| (1..=6).map(move |second| (first, second))) {
        let files = FaultyFiles::new();
        let engine = open(&files).unwrap();
        start(&engine);
        let fill = |engine: &DiskEngine, value: u8| {
            let many = (0..300u64).map(|key| put(1, &key.to_be_bytes(), &[value; 100]));
            let position = engine.commit(batch(many)).unwrap();
            engine.wait_journaled(position).unwrap();
            everything(&*engine.snapshot())
        };
        for value in 1..=3 {
            fill(&engine, value);
            engine.checkpoint().unwrap();
        }
        fill(&engine, 4);
        files.stop_at_sync(files.counts().1 + first);
        let _ = engine.checkpoint();
        let files = files.end_process();
        let base = Path::new("/data/base.vellum");
        let engine = open(&files).unwrap();
        assert!(files.read(base) == files.read_durable(base), "stopped at sync {first}");
        let expected = fill(&engine, 5);
        files.stop_at_sync(files.counts().1 + second);
        let _ = engine.checkpoint();
        for loss in [Loss::Everything, Loss::Some(second), Loss::Blocks(second), Loss::Blocks(second * 31)] {
            let engine = open(&files.restart(loss));
            let engine = engine.unwrap_or_else(|error| panic!("{first}, {second}, {loss:?}: {error}"));
            assert_eq!(everything(&*engine.snapshot()), expected, "{first}, {second}, {loss:?}");
        }
    }
}
