//! Stored formats stay readable: `fixtures` has a directory, a backup and an archive. A copy of
//! each is opened, read completely, written to, and repaired.
//!
//! `fixtures/format-4` is the directory of a killed process: a base from a checkpoint, and later
//! commits in the journal. Its segments have version 2, without seeds. `fixtures/format-4-seeds` is
//! the same with segments of version 3. Formats may change until the first release and are then
//! frozen. A change after it keeps [`fill`] and the old fixtures, and adds a directory of the new
//! format, created by
//!
//! ```text
//! cargo test -p storage --test formats -- --ignored make_the_fixture_of_the_newest_format
//! ```
//!
//! `fixtures/waiting-4` has a table with pending changes (`base/delta.rs`), for which [`fill`] is
//! too small. `fixtures/backup-N` is a backup of the commits of [`fill`], and `fixtures/archive-N`
//! is the archive from the same time.

#![expect(clippy::unwrap_used, reason = "a test, its helpers too")]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use storage::disk::SystemFiles;
use storage::{
    ArchiveOptions, BackupDirectory, Batch, Direction, DiskEngine, DiskOptions, Durability, Engine, Ident,
    Journaling, Key, Kind, MemoryEngine, Range, ReadOnlyEngine, Restore, Result, Snapshot, Value, restore,
};

/// The format that this version reads and writes.
const NEWEST: u32 = 4;
/// The directories with the contents of [`fill`].
const DIRECTORIES: [&str; 2] = ["format-4", "format-4-seeds"];
/// Greatest time of the commits of [`fill`].
const TIME: u64 = 1_700_000_000 << 32 | 9;

fn options(directory: &Path) -> DiskOptions {
    DiskOptions { durability: Durability::None, ..DiskOptions::new(directory) }
}

fn fixture_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Commits the contents of every fixture. Calls `between` in the middle for a checkpoint.
fn fill(engine: &dyn Engine, between: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut batch = Batch::new();
    (1..=4).for_each(|number| batch.create(Ident(number)));
    for number in 0..40u8 {
        batch.put(Ident(1), [0, number], vec![number; usize::from(number) * 3]);
        batch.put(Ident(2), [number; 30], u64::from(number).to_be_bytes());
        batch.put(Ident(3), [number], []);
        batch.put(Ident(4), [number], [number; 50]);
    }
    batch.put(Ident(1), [1, 0], vec![0xEE; 6000]);
    batch.set_time(TIME - 200);
    engine.commit(batch)?;
    let mut batch = Batch::new();
    batch.fork(Ident(4), Ident(5));
    batch.delete(Ident(1), [0, 7]);
    engine.commit(batch)?;
    between()?;
    let mut batch = Batch::new();
    batch.fork(Ident(1), Ident(6));
    batch.drop_ident(Ident(3));
    batch.clear(Ident(4));
    batch.create(Ident(7));
    batch.set_time(TIME - 100);
    engine.commit(batch)?;
    for number in 30..50u8 {
        // Like a document that the oplog repeats.
        let value = Value::from(vec![number + 100; 90]);
        let mut batch = Batch::new();
        batch.put(Ident(1), [0, number], value.clone());
        batch.delete(Ident(2), [number - 20; 30]);
        batch.put(Ident(7), [number], value);
        batch.set_time(TIME - u64::from(49 - number));
        engine.commit(batch)?;
    }
    Ok(())
}

/// Commits a tree large enough for pending changes, and such changes in another commit.
fn fill_to_wait(engine: &dyn Engine, between: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut batch = Batch::new();
    batch.create(Ident(1));
    for number in 0..20_000u32 {
        batch.put(Ident(1), number.to_be_bytes(), vec![number as u8; 450]);
    }
    engine.commit(batch)?;
    between()?;
    let mut batch = Batch::new();
    for number in (0..20_000u32).step_by(30) {
        batch.put(Ident(1), number.to_be_bytes(), vec![(number as u8).wrapping_add(1); 9]);
        batch.delete(Ident(1), (number + 7).to_be_bytes());
        batch.put(Ident(1), [&number.to_be_bytes()[..], b"behind"].concat(), []);
    }
    engine.commit(batch).map(drop)
}

type Everything = BTreeMap<u64, (u64, u64, Vec<(Key, Value)>)>;

fn everything(snapshot: &dyn Snapshot) -> Everything {
    let mut all = Everything::new();
    for number in (0..20).filter(|number| snapshot.contains(Ident(*number)).unwrap()) {
        let ident = Ident(number);
        let mut cursor = snapshot.scan(ident, Range::all(), Direction::Forward).unwrap();
        let mut entries = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            entries.push((Key::from(key), value.to_value()));
        }
        assert_eq!(snapshot.verify(ident, &mut || true), Ok(Vec::new()));
        let counts = (snapshot.entries(ident).unwrap(), snapshot.bytes(ident).unwrap());
        all.insert(number, (counts.0, counts.1, entries));
    }
    all
}

/// Returns the expected contents of a fixture.
fn expected() -> Everything {
    let memory = MemoryEngine::new();
    fill(&memory, || Ok(())).unwrap();
    everything(&*memory.snapshot())
}

/// Copies a directory except its lock. The base is mostly zeros, so it is compressed in a fixture
/// and expanded in a copy.
fn copy(from: &Path, to: &Path, compress: bool) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        match name.to_str() {
            _ if entry.file_type()?.is_dir() => copy(&path, &to.join(name), compress)?,
            Some("vellum.lock") => {}
            Some(base @ "base.vellum") if compress => {
                let packed = fs::File::create(to.join(format!("{base}.gz")))?;
                let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::best());
                io::copy(&mut fs::File::open(path)?, &mut packed)?;
                packed.finish()?;
            }
            Some(packed @ "base.vellum.gz") => {
                let base = to.join(packed.trim_end_matches(".gz"));
                let mut packed = flate2::read::GzDecoder::new(fs::File::open(path)?);
                io::copy(&mut packed, &mut fs::File::create(base)?)?;
            }
            _ => _ = fs::copy(path, to.join(name))?,
        }
    }
    Ok(())
}

/// A copy of a fixture in a separate directory.
struct Copied(PathBuf);

impl Copied {
    fn of(fixture: &str, label: &str) -> Self {
        let name = format!("vellum-{fixture}-{label}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        copy(&fixture_of(fixture), &directory, false).unwrap();
        Copied(directory)
    }

    fn format(&self) -> String {
        fs::read_to_string(self.0.join("vellum.format")).unwrap().lines().nth(1).unwrap().to_owned()
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_format_opens_and_accepts_writes() {
    let expected = expected();
    for fixture in DIRECTORIES {
        let copied = Copied::of(fixture, "opens");
        assert_eq!(copied.format(), format!("format {NEWEST}"));
        let engine = DiskEngine::open(&options(&copied.0)).unwrap();
        assert_eq!(everything(&*engine.snapshot()), expected, "{fixture}");
        assert_eq!(engine.latest_time(), TIME, "{fixture}");
        assert_eq!(copied.format(), format!("format {NEWEST}"));
        let mut batch = Batch::new();
        batch.put(Ident(7), b"after", b"1");
        batch.set_time(TIME + 1);
        engine.commit(batch).unwrap();
        let after = everything(&*engine.snapshot());
        // Old and new frames in the journal, as after a crash of the machine.
        let killed = copied.0.with_extension("killed");
        copy(&copied.0, &killed, false).unwrap();
        drop(engine);
        for directory in [&killed, &copied.0] {
            let engine = DiskEngine::open(&options(directory)).unwrap();
            assert_eq!(everything(&*engine.snapshot()), after, "{fixture}, opened again");
            assert_eq!(engine.latest_time(), TIME + 1);
        }
        fs::remove_dir_all(killed).unwrap();
    }
}

#[test]
fn every_format_is_repaired() {
    for fixture in DIRECTORIES {
        let copied = Copied::of(fixture, "repaired");
        let salvage = DiskEngine::salvage(&options(&copied.0)).unwrap();
        assert_eq!(salvage.lost(), []);
        salvage.finish().unwrap();
        let engine = DiskEngine::open(&options(&copied.0)).unwrap();
        assert_eq!(everything(&*engine.snapshot()), expected(), "{fixture}");
        assert_eq!(engine.latest_time(), TIME, "{fixture}");
        assert_eq!(copied.format(), format!("format {NEWEST}"));
    }
}

#[test]
fn changes_that_wait_are_found_and_repaired() {
    let memory = MemoryEngine::new();
    fill_to_wait(&memory, || Ok(())).unwrap();
    let expected = everything(&*memory.snapshot());
    let copied = Copied::of("waiting-4", "opens");
    let engine = DiskEngine::open(&options(&copied.0)).unwrap();
    assert_eq!(everything(&*engine.snapshot()), expected);
    // More changes, until the pending changes are merged and new ones are pending.
    for round in 0..12u32 {
        for engine in [&engine as &dyn Engine, &memory] {
            let mut batch = Batch::new();
            for number in (round..20_000).step_by(25) {
                batch.put(Ident(1), number.to_be_bytes(), vec![round as u8; 20]);
            }
            engine.commit(batch).unwrap();
            engine.checkpoint().unwrap();
        }
    }
    assert_eq!(everything(&*engine.snapshot()), everything(&*memory.snapshot()));
    drop(engine);
    let copied = Copied::of("waiting-4", "repaired");
    let salvage = DiskEngine::salvage(&options(&copied.0)).unwrap();
    assert_eq!(salvage.lost(), []);
    salvage.finish().unwrap();
    let engine = DiskEngine::open(&options(&copied.0)).unwrap();
    assert_eq!(everything(&*engine.snapshot()), expected);
}

/// A damaged last commit is lost, because it looks like a torn write. Earlier damage is reported.
#[test]
fn damage_is_found_in_every_format() {
    for fixture in DIRECTORIES {
        let journal = |copied: &Copied| {
            let paths = fs::read_dir(copied.0.join("journal")).unwrap().map(|entry| entry.unwrap().path());
            paths.filter(|path| path.extension().is_some_and(|name| name == "journal")).max().unwrap()
        };
        let copied = Copied::of(fixture, "torn");
        let bytes = fs::read(journal(&copied)).unwrap();
        fs::write(journal(&copied), &bytes[..bytes.len() - 1]).unwrap();
        let engine = DiskEngine::open(&options(&copied.0)).unwrap();
        assert_eq!(engine.snapshot().entries(Ident(7)), Ok(19), "{fixture}");
        drop(engine);
        let copied = Copied::of(fixture, "damaged");
        let mut bytes = fs::read(journal(&copied)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(journal(&copied), bytes).unwrap();
        let refused = DiskEngine::open(&options(&copied.0)).err();
        assert!(matches!(&refused, Some(storage::Error::Corrupted(_))), "{fixture}: {refused:?}");
        let salvage = DiskEngine::salvage(&options(&copied.0)).unwrap();
        assert!(salvage.lost().iter().any(|lost| lost.message.contains("valid commits")));
        // Assigned times are never assigned again, even if their commits were lost.
        assert_eq!(salvage.engine().latest_time(), TIME);
        salvage.discard().unwrap();
    }
}

/// Writes a part of a backup.
fn back_up(engine: &dyn Engine, to: &Path) -> Kind {
    let mut directory = BackupDirectory::open(Arc::new(SystemFiles), to).unwrap();
    let mut backup = engine.backup(directory.since(), 0).unwrap();
    let kind = backup.kind();
    let mut part = directory.begin().unwrap();
    while let Some(piece) = backup.piece().unwrap() {
        part.write(&piece).unwrap();
    }
    part.finish().unwrap();
    kind
}

fn restored(from: &Path, archives: &[&Path], until: Option<u64>, to: &Path) -> Everything {
    let request = Restore {
        from: from.to_path_buf(),
        archives: archives.iter().map(|archive| archive.to_path_buf()).collect(),
        until,
        to: to.to_path_buf(),
        cache_bytes: 64 << 20,
    };
    let files: Arc<dyn storage::disk::Files> = Arc::new(SystemFiles);
    restore(&files, &request).unwrap();
    let found = everything(&*DiskEngine::open(&options(to)).unwrap().snapshot());
    fs::remove_dir_all(to).unwrap();
    found
}

#[test]
fn a_directory_is_backed_up_as_it_is() {
    for fixture in DIRECTORIES {
        let copied = Copied::of(fixture, "backed-up");
        let (to, target) = (copied.0.with_extension("backup"), copied.0.with_extension("target"));
        let still = ReadOnlyEngine::open(&options(&copied.0)).unwrap();
        assert_eq!(back_up(&still, &to), Kind::Full);
        drop(still);
        assert_eq!(restored(&to, &[], None, &target), expected(), "{fixture}");
        assert_eq!(copied.format(), format!("format {NEWEST}"), "nothing was changed");
        fs::remove_dir_all(to).unwrap();
    }
}

#[test]
fn backups_and_archives_of_earlier_releases_are_restored() {
    let fixtures = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    for version in 1..=1 {
        let (backup, archive) =
            (fixtures(&format!("backup-{version}")), fixtures(&format!("archive-{version}")));
        let directory = BackupDirectory::read(Arc::new(SystemFiles), &backup).unwrap();
        assert_eq!(directory.check(), []);
        let kinds: Vec<Kind> = directory.parts().iter().map(|part| part.kind).collect();
        assert_eq!(kinds, [Kind::Full, Kind::Changes]);
        let target = std::env::temp_dir().join(format!("vellum-old-backup-{version}-{}", std::process::id()));
        assert_eq!(restored(&backup, &[&archive], None, &target), expected());
        // The commit with the value 135, and no later one.
        let until = TIME - u64::from(49 - 35u8);
        let then = restored(&backup, &[&archive], Some(until), &target);
        assert_eq!(then[&7].0, 6);
    }
}

#[test]
#[ignore = "writes into the source tree; run it once when the format of backups has changed"]
fn make_the_fixtures_of_backup_and_archive() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let directory = std::env::temp_dir().join(format!("vellum-fixture-{}", std::process::id()));
    let archive = ArchiveOptions { directory: directory.join("archive"), keep: None };
    let data = DiskOptions { archive: Some(archive), ..options(&directory.join("data")) };
    let engine = DiskEngine::open(&data).unwrap();
    let backup = directory.join("backup");
    fill(&engine, || {
        assert_eq!(back_up(&engine, &backup), Kind::Full);
        let mut batch = Batch::new();
        batch.set_time(TIME - 150);
        engine.commit(batch)?;
        assert_eq!(back_up(&engine, &backup), Kind::Changes);
        Ok(())
    })
    .unwrap();
    engine.checkpoint().unwrap();
    copy(&backup, &fixtures.join("backup-1"), false).unwrap();
    copy(&directory.join("archive"), &fixtures.join("archive-1"), false).unwrap();
    drop(engine);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
#[ignore = "writes into the source tree; run it once, with the format that the fixture is of"]
fn make_the_fixture_with_changes_that_wait() {
    let directory = std::env::temp_dir().join(format!("vellum-fixture-waiting-{}", std::process::id()));
    let engine = DiskEngine::open(&options(&directory)).unwrap();
    fill_to_wait(&engine, || engine.checkpoint()).unwrap();
    engine.checkpoint().unwrap();
    let to = fixture_of("waiting-4");
    let _ = fs::remove_dir_all(&to);
    copy(&directory, &to, true).unwrap();
    drop(engine);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
#[ignore = "writes into the source tree; run it once when the format has changed"]
fn make_the_fixture_of_the_newest_format() {
    let directory = std::env::temp_dir().join(format!("vellum-fixture-{}", std::process::id()));
    let engine = DiskEngine::open(&options(&directory)).unwrap();
    fill(&engine, || engine.checkpoint()).unwrap();
    let to = fixture_of("format-4-seeds");
    let _ = fs::remove_dir_all(&to);
    // Without commits, nothing is written at this time.
    copy(&directory, &to, true).unwrap();
    drop(engine);
    fs::remove_dir_all(directory).unwrap();
}
