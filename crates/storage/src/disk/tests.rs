//! The disk engine compared with the memory engine through checkpoints and reopenings; and refused directories.

mod backup;
mod crash;
mod damage;
mod embedded;
mod faults;
mod salvage;
mod sharing;
mod space;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{Bounds, Compression, DiskEngine, DiskOptions};
use crate::testing::Checked;
use crate::testing::{FaultyFiles, Loss};
use crate::{
    Batch, Direction, Durability, Engine, Error, Ident, Journaling, Key, MemoryEngine, Op, Range, Result,
    Snapshot, Value,
};

const IDENTS: u64 = 5;

/// Options without background work, except as a test requests.
fn options() -> DiskOptions {
    DiskOptions {
        durability: Durability::None,
        journal_commit_interval: Duration::from_millis(1),
        cache_bytes: 8 << 20,
        // Without compression, so that a value is found in the files by its bytes.
        compression: Compression::None,
        ..DiskOptions::new("/data")
    }
}

/// Limits that start no checkpoint.
const WIDE: Bounds = Bounds { changed_bytes: 1 << 30, journal_bytes: 1 << 30, refused_bytes: 1 << 30 };

fn open(files: &FaultyFiles) -> Result<DiskEngine> {
    open_as(files, Durability::None)
}

fn open_as(files: &FaultyFiles, durability: Durability) -> Result<DiskEngine> {
    DiskEngine::open_with(Arc::new(files.clone()), &DiskOptions { durability, ..options() }, WIDE)
}

/// Returns the length of a segment without the zeros written in advance.
fn written(files: &FaultyFiles, segment: &Path) -> usize {
    let bytes = files.read(segment).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

fn batch(ops: impl IntoIterator<Item = Op>) -> Batch {
    let mut batch = Batch::new();
    for op in ops {
        match op {
            Op::Put { ident, key, value } => batch.put(ident, key, value),
            Op::Delete { ident, key } => batch.delete(ident, key),
            Op::Create(ident) => batch.create(ident),
            Op::Drop(ident) => batch.drop_ident(ident),
            Op::Clear(ident) => batch.clear(ident),
            Op::Fork { from, to } => batch.fork(from, to),
        }
    }
    batch
}

fn put(ident: u64, key: &[u8], value: &[u8]) -> Op {
    Op::Put { ident: Ident(ident), key: Key::from(key), value: Value::from(value) }
}

type Entries = Vec<(Key, Value)>;

fn entries(snapshot: &dyn Snapshot, ident: Ident, range: Range, direction: Direction) -> Result<Entries> {
    let mut cursor = snapshot.scan(ident, range, direction)?;
    let mut entries = Vec::new();
    while let Some((key, value)) = cursor.next()? {
        entries.push((Key::from(key), value.to_value()));
    }
    Ok(entries)
}

/// The contents of all trees with their counts.
type AllTrees = Vec<(u64, u64, u64, Entries)>;

fn everything(snapshot: &dyn Snapshot) -> AllTrees {
    let tree = |number: u64| {
        let ident = Ident(number);
        let found = entries(snapshot, ident, Range::all(), Direction::Forward).ok()?;
        Some((number, snapshot.entries(ident).unwrap(), snapshot.bytes(ident).unwrap(), found))
    };
    (0..IDENTS).filter_map(tree).collect()
}

#[derive(Debug, Clone)]
enum Step {
    Commit(Vec<Op>),
    Checkpoint,
    Reopen,
    /// Ends the process without closing, and starts again.
    Kill,
    /// Keeps a snapshot of both engines for a later comparison.
    Hold,
    Scan(Ident, Range, Direction, Vec<Key>),
}

fn ident() -> impl Strategy<Value = Ident> {
    (0..IDENTS).prop_map(Ident)
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        6 => prop::collection::vec(0u8..4, 0..4).prop_map(Key::from),
        1 => (0u8..4, 30usize..200).prop_map(|(byte, len)| Key::from(vec![byte; len])),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..20).prop_map(Value::from),
        1 => (any::<u8>(), 1000usize..9000).prop_map(|(byte, len)| Value::from(vec![byte; len])),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        16 => (ident(), key(), value()).prop_map(|(ident, key, value)| Op::Put { ident, key, value }),
        8 => (ident(), key()).prop_map(|(ident, key)| Op::Delete { ident, key }),
        2 => ident().prop_map(Op::Create),
        1 => ident().prop_map(Op::Drop),
        1 => ident().prop_map(Op::Clear),
        2 => (ident(), ident()).prop_map(|(from, to)| Op::Fork { from, to }),
    ]
}

fn bound() -> impl Strategy<Value = std::ops::Bound<Key>> {
    use std::ops::Bound;
    prop_oneof![Just(Bound::Unbounded), key().prop_map(Bound::Included), key().prop_map(Bound::Excluded),]
}

fn step() -> impl Strategy<Value = Step> {
    let direction = prop_oneof![Just(Direction::Forward), Just(Direction::Backward)];
    prop_oneof![
        12 => prop::collection::vec(op(), 1..5).prop_map(Step::Commit),
        3 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
        1 => Just(Step::Kill),
        2 => Just(Step::Hold),
        4 => (ident(), bound(), bound(), direction, prop::collection::vec(key(), 0..4)).prop_map(
            |(ident, lower, upper, direction, seeks)| Step::Scan(ident, Range { lower, upper }, direction, seeks)
        ),
    ]
}

/// Compares two cursors, with a seek after every third entry.
fn compare_scans(a: &dyn Snapshot, b: &dyn Snapshot, step: (Ident, &Range, Direction), seeks: &[Key]) {
    let (ident, range, direction) = step;
    let (a, b) = (a.scan(ident, range.clone(), direction), b.scan(ident, range.clone(), direction));
    assert_eq!(a.as_ref().err(), b.as_ref().err());
    let (Ok(mut a), Ok(mut b)) = (a, b) else { return };
    let mut seeks = seeks.iter();
    for at in 0.. {
        let (next, other) = (a.next().unwrap(), b.next().unwrap());
        assert_eq!(next, other);
        if at % 3 == 2
            && let Some(key) = seeks.next()
        {
            a.seek(key).unwrap();
            b.seek(key).unwrap();
        } else if next.is_none() && seeks.len() == 0 {
            break;
        }
    }
}

/// Creates trees 0 to 2, so that not all operations fail.
fn start(engine: &dyn Engine) {
    engine.commit(batch((0..3).map(|number| Op::Create(Ident(number))))).unwrap();
}

fn run(steps: Vec<Step>, compression: Compression) {
    let open = |files: &FaultyFiles| {
        let options = DiskOptions { compression, ..options() };
        DiskEngine::open_with(Arc::new(files.clone()), &options, WIDE)
    };
    let mut files = FaultyFiles::new();
    let memory = MemoryEngine::new();
    let mut disk = Checked::new(open(&files).unwrap());
    start(&memory);
    start(&disk);
    let mut snapshots = Vec::new();
    for step in steps {
        match step {
            Step::Commit(ops) => {
                let batch = batch(ops);
                assert_eq!(memory.commit(batch.clone()).err(), disk.commit(batch).err());
            }
            Step::Checkpoint => disk.inner().checkpoint().unwrap(),
            Step::Reopen => {
                snapshots.clear();
                disk.inner().close().unwrap();
                disk = Checked::new(open(&files).unwrap());
            }
            Step::Kill => {
                snapshots.clear();
                files = files.restart(Loss::Nothing);
                disk = Checked::new(open(&files).unwrap());
            }
            Step::Hold => snapshots.push((memory.snapshot(), disk.snapshot())),
            Step::Scan(ident, range, direction, seeks) => {
                let (a, b) = (memory.snapshot(), disk.snapshot());
                compare_scans(&*a, &*b, (ident, &range, direction), &seeks);
            }
        }
        assert_eq!(memory.statistics().bytes, disk.statistics().bytes);
    }
    snapshots.push((memory.snapshot(), disk.snapshot()));
    for (a, b) in &snapshots {
        assert_eq!(everything(&**a), everything(&**b));
        for number in 0..IDENTS {
            compare_scans(&**a, &**b, (Ident(number), &Range::all(), Direction::Backward), &[]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn memory_and_disk_agree(steps in prop::collection::vec(step(), 1..60), compressed in any::<bool>()) {
        run(steps, if compressed { Compression::Lz4 } else { Compression::None });
    }
}

#[test]
fn a_large_batch_is_committed_and_read() {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    start(&engine);
    let many = (0..3000u64).map(|number| put(1, &number.to_be_bytes(), &[7; 100]));
    engine.commit(batch(many)).unwrap();
    engine.checkpoint().unwrap();
    let some = (0..3000u64).step_by(3).map(|number| put(1, &number.to_be_bytes(), &[8; 50]));
    engine.commit(batch(some)).unwrap();
    let before = everything(&*engine.snapshot());
    drop(engine);
    let engine = open(&files).unwrap();
    assert_eq!(everything(&*engine.snapshot()), before);
    assert_eq!(engine.snapshot().bytes(Ident(1)), Ok(2000 * 108 + 1000 * 58));
}

#[test]
fn forks_share_a_table_until_they_differ() {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    start(&engine);
    engine.commit(batch((0..2000u64).map(|number| put(1, &number.to_be_bytes(), &[7; 500])))).unwrap();
    engine.checkpoint().unwrap();
    engine.commit(batch([Op::Fork { from: Ident(1), to: Ident(3) }])).unwrap();
    engine.checkpoint().unwrap();
    let state = engine.core.latest();
    let table = |number| state.table(Ident(number)).unwrap().base;
    assert_eq!(table(1), table(3));
    engine.commit(batch([put(3, b"more", b"")])).unwrap();
    engine.checkpoint().unwrap();
    let state = engine.core.latest();
    let tables = [1, 3].map(|number| state.table(Ident(number)).unwrap().base);
    assert_ne!(tables[0], tables[1]);
    assert_eq!(engine.snapshot().entries(Ident(1)), Ok(2000));
    assert_eq!(engine.snapshot().entries(Ident(3)), Ok(2001));
}

#[test]
fn creating_and_dropping_touches_no_table_and_no_sync() {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    start(&engine);
    let (_, syncs) = files.counts();
    for _ in 0..100 {
        engine.commit(batch([Op::Create(Ident(4)), put(4, b"key", b"value")])).unwrap();
        engine.commit(batch([Op::Drop(Ident(4))])).unwrap();
    }
    assert_eq!(files.counts().1, syncs);
    engine.checkpoint().unwrap();
    assert_eq!(engine.core.latest().table(Ident(4)).err(), Some(Error::NoSuchIdent(Ident(4))));
}

#[test]
fn the_space_of_dropped_trees_is_used_again() {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    start(&engine);
    let fill = |engine: &DiskEngine| {
        let many = (0..4000u64).map(|number| put(1, &number.to_be_bytes(), &[7; 500]));
        engine.commit(batch(many)).unwrap();
        engine.checkpoint().unwrap();
    };
    fill(&engine);
    for _ in 0..2 {
        engine.commit(batch([Op::Clear(Ident(1))])).unwrap();
        engine.checkpoint().unwrap();
    }
    let before = engine.statistics().file_bytes;
    for _ in 0..5 {
        fill(&engine);
        engine.commit(batch([Op::Clear(Ident(1))])).unwrap();
        engine.checkpoint().unwrap();
    }
    let after = engine.statistics().file_bytes;
    assert!(after <= before * 2, "{before} {after}");
}

#[test]
fn a_second_opening_is_refused_until_the_first_is_closed() {
    let files = FaultyFiles::new();
    let first = open(&files).unwrap();
    let refused = open(&files).err();
    assert!(
        matches!(&refused, Some(Error::Io { kind: ErrorKind::ResourceBusy, message }) if message.contains("/data")),
        "{refused:?}"
    );
    drop(first);
    assert!(open(&files).is_ok());
}

#[test]
fn a_closed_engine_takes_no_commits() {
    let engine = open(&FaultyFiles::new()).unwrap();
    start(&engine);
    engine.close().unwrap();
    engine.close().unwrap();
    assert_eq!(engine.commit(Batch::new()), Err(Error::Closed));
    assert_eq!(engine.checkpoint(), Err(Error::Closed));
}

fn timed(time: u64, key: &[u8]) -> Batch {
    let mut batch = batch([put(1, key, b"value")]);
    batch.set_time(time);
    batch
}

#[test]
fn the_latest_time_survives_in_the_journal_and_in_the_base() {
    let files = FaultyFiles::new();
    let engine = Checked::new(open(&files).unwrap());
    start(&engine);
    assert_eq!(engine.latest_time(), 0);
    for (time, latest) in [(7, 7), (3, 7), (0, 7), (u64::MAX, u64::MAX)] {
        engine.commit(timed(time, b"key")).unwrap();
        assert_eq!(engine.latest_time(), latest);
    }
    let files = files.restart(Loss::Nothing);
    let engine = open(&files).unwrap();
    assert_eq!(engine.latest_time(), u64::MAX);
    engine.checkpoint().unwrap();
    engine.commit(batch([put(1, b"after", b"")])).unwrap();
    let engine = open(&files.restart(Loss::Nothing)).unwrap();
    assert_eq!(engine.latest_time(), u64::MAX);
}

/// A child process holds copies of the locks between its fork and its exec.
#[test]
fn a_lock_that_is_released_soon_does_not_refuse_a_start() {
    let root = std::env::temp_dir().join(format!("vellum-lock-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    let lock = std::fs::File::create(root.join("vellum.lock")).unwrap();
    lock.lock().unwrap();
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(60));
        drop(lock);
    });
    DiskEngine::open(&DiskOptions::new(root.join(""))).unwrap();
    release.join().unwrap();
    std::fs::remove_dir_all(root).unwrap();
}

/// The real file system: locks, directories, a separate journal.
#[test]
fn it_works_on_real_files() {
    let root = std::env::temp_dir().join(format!("vellum-disk-{}", std::process::id()));
    let options = DiskOptions {
        journal_directory: Some(root.join("log")),
        durability: Durability::Relaxed,
        ..DiskOptions::new(root.join("data"))
    };
    let engine = DiskEngine::open(&options).unwrap();
    let is_refused =
        || matches!(DiskEngine::open(&options), Err(Error::Io { kind: ErrorKind::ResourceBusy, .. }));
    assert!(is_refused());
    std::fs::remove_file(root.join("data/vellum.lock")).unwrap();
    assert!(is_refused() || cfg!(not(unix)), "the lock file is removed, as users do after a crash of mongod");
    start(&engine);
    let position = engine.commit(batch([put(1, b"key", b"value")])).unwrap();
    engine.wait_journaled(position).unwrap();
    engine.checkpoint().unwrap();
    engine.commit(batch([put(2, b"key", b"value")])).unwrap();
    let before = everything(&*engine.snapshot());
    assert!(engine.statistics().syncs > 0);
    drop(engine);
    assert!(Path::new(&root.join("log")).exists() && !root.join("data/journal").exists());
    let engine = DiskEngine::open(&options).unwrap();
    assert_eq!(everything(&*engine.snapshot()), before);
    drop(engine);
    std::fs::remove_dir_all(&root).unwrap();
}
