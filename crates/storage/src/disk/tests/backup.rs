//! Backups, archives and restores of a scripted workload: to each point in time, interrupted at each step, with missing
//! or damaged data reported.

use super::super::{ArchiveOptions, BackupDirectory, Files, ReadOnlyEngine, Restore, Restored, restore};
use super::crash::{batches, states, time_of};
use super::*;
use crate::Kind;

const BACKUP: &str = "/backup";
const ARCHIVE: &str = "/archive";

fn with_archive() -> DiskOptions {
    let archive = ArchiveOptions { directory: ARCHIVE.into(), keep: None };
    DiskOptions { archive: Some(archive), ..options() }
}

fn open_archived(files: &FaultyFiles) -> Result<DiskEngine> {
    DiskEngine::open_with(Arc::new(files.clone()), &with_archive(), WIDE)
}

fn shared(files: &FaultyFiles) -> Arc<dyn Files> {
    Arc::new(files.clone())
}

/// Makes a part of a backup and returns its kind.
fn back_up(files: &FaultyFiles, engine: &dyn Engine) -> Result<Kind> {
    let mut directory = BackupDirectory::open(shared(files), Path::new(BACKUP))?;
    let mut backup = engine.backup(directory.since(), 0)?;
    let kind = backup.kind();
    let mut part = directory.begin()?;
    while let Some(piece) = backup.piece()? {
        part.write(&piece)?;
    }
    assert_eq!(part.finish()?, kind.name());
    Ok(kind)
}

fn restore_to(files: &FaultyFiles, to: &str, until: Option<u64>, archives: &[&str]) -> Result<Restored> {
    let options = Restore {
        from: BACKUP.into(),
        archives: archives.iter().map(|path| path.into()).collect(),
        until,
        to: to.into(),
        cache_bytes: 8 << 20,
    };
    restore(&shared(files), &options)
}

fn opened(files: &FaultyFiles, to: &str) -> Result<DiskEngine> {
    let options = DiskOptions { directory: to.into(), ..options() };
    DiskEngine::open_with(Arc::new(files.clone()), &options, WIDE)
}

/// Returns the last commit of a point in time. Commits without a time belong to the previous one.
fn last_until(until: u64, begin: u64, end: u64) -> u64 {
    (begin..end).take_while(|position| time_of(position + 1) <= until).last().map_or(begin, |last| last + 1)
}

#[test]
fn any_moment_behind_a_full_backup_is_restored_from_changes_and_archive() {
    let (files, states) = (FaultyFiles::new(), states());
    let engine = open_archived(&files).unwrap();
    let all = batches();
    for (at, batch) in (1u64..).zip(all.iter().cloned()) {
        engine.commit(batch).unwrap();
        match at {
            10 => assert_eq!(back_up(&files, &engine).unwrap(), Kind::Full),
            20 => assert_eq!(back_up(&files, &engine).unwrap(), Kind::Changes),
            _ => {}
        }
        if at % 6 == 0 {
            engine.checkpoint().unwrap();
        }
    }
    let end = all.len() as u64;
    engine.checkpoint().unwrap();
    for until in 10..=end {
        let to = format!("/to-{until}");
        let time = until << 32 | 7;
        // The archive alone, then the archive with the part of changes.
        let restored = restore_to(&files, &to, Some(time), &[ARCHIVE]);
        let expected = last_until(time, 10, end);
        if until == end {
            assert!(restored.unwrap_err().to_string().contains("the backup ends at"));
            continue;
        }
        let restored = restored.unwrap();
        assert_eq!((restored.position, restored.commits), (expected, expected - 10), "{until}");
        let engine = opened(&files, &to).unwrap();
        assert_eq!(everything(&*engine.snapshot()), states[expected as usize], "{until}");
        assert!(engine.latest_time() <= time && engine.latest_time() == restored.time, "{until}");
    }
    let everything_there = restore_to(&files, "/all", None, &[ARCHIVE]).unwrap();
    assert_eq!(everything_there.position, end);
    let without = restore_to(&files, "/less", None, &[]).unwrap();
    assert_eq!(without.position, 20);
    let early = restore_to(&files, "/early", Some(3 << 32), &[ARCHIVE]).unwrap_err().to_string();
    assert!(early.contains("after the requested time"), "{early}");
    // The live journal provides the commits that the archive lacks.
    let last = engine.commit(batch([put(0, b"last", b"1")])).unwrap();
    engine.wait_journaled(last).unwrap();
    let live = restore_to(&files, "/live", None, &[ARCHIVE, "/data/journal"]).unwrap();
    assert_eq!(live.position, end + 1);
    let foreign = restore_to(&files, "/foreign", None, &["/all/journal"]).unwrap_err().to_string();
    assert!(foreign.contains("no journal of this backup's data directory"), "{foreign}");
}

#[test]
fn missing_and_damaged_parts_are_reported() {
    let files = FaultyFiles::new();
    let engine = open_archived(&files).unwrap();
    for (at, batch) in (1u64..).zip(batches()) {
        engine.commit(batch).unwrap();
        if at == 8 {
            back_up(&files, &engine).unwrap();
        }
        if at % 8 == 0 {
            engine.checkpoint().unwrap();
        }
    }
    engine.checkpoint().unwrap();
    let archived: Vec<_> = files
        .paths()
        .into_iter()
        .filter(|path| {
            path.starts_with(ARCHIVE) && path.extension().is_some_and(|suffix| suffix == "journal")
        })
        .collect();
    assert_eq!(archived.len(), 6);
    for (at, path) in archived.iter().enumerate().skip(1) {
        let damaged = files.restart(Loss::Nothing);
        damaged.remove(path).unwrap();
        let gap = restore_to(&damaged, "/to", None, &[ARCHIVE]);
        if at == 5 {
            // A missing end is detected only because the point in time is not reached.
            assert_eq!(gap.unwrap().position, 40);
            let late = restore_to(&damaged, "/late", Some(44 << 32), &[ARCHIVE]).unwrap_err().to_string();
            assert!(late.contains("the backup ends at 1970-01-01T00:00:39Z (39,"), "{late}");
        } else {
            let gap = gap.unwrap_err().to_string();
            let (from, to) = (at * 8 + 1, at * 8 + 8);
            assert!(gap.contains(&format!("commits {from} to {to} are missing")), "{gap}");
            // An earlier point in time works, unless it precedes the backup, and into the same target.
            let before = restore_to(&damaged, "/to", Some((at as u64 * 8 - 1) << 32), &[ARCHIVE]);
            assert_eq!(before.is_ok(), at > 1);
        }
        let bytes = files.read(path).unwrap().len();
        for offset in [40, bytes / 2, bytes - 1] {
            let damaged = files.restart(Loss::Nothing);
            damaged.tamper(path, |bytes| bytes[offset] ^= 1);
            let error = restore_to(&damaged, "/to", None, &[ARCHIVE]).unwrap_err().to_string();
            assert!(
                error.contains(&path.display().to_string()) && error.contains("is damaged at offset"),
                "{error}"
            );
            assert!(opened(&damaged, "/to").is_ok(), "the target is as it was");
        }
    }
    // Parts of the backup itself.
    let full = Path::new(BACKUP).join("000001.full");
    let bytes = files.read(&full).unwrap().len();
    for offset in [0, 20, 40, bytes / 2, bytes - 50, bytes - 44, bytes - 1] {
        let damaged = files.restart(Loss::Nothing);
        damaged.tamper(&full, |bytes| bytes[offset] ^= 1);
        let error = restore_to(&damaged, "/to", None, &[ARCHIVE]).unwrap_err().to_string();
        assert!(error.contains("000001.full"), "{offset}: {error}");
        let directory = BackupDirectory::read(shared(&damaged), Path::new(BACKUP));
        assert!(directory.is_err() || !directory.unwrap().check().is_empty(), "{offset}");
    }
}

#[test]
fn a_backup_stopped_anywhere_is_complete_or_known_not_to_be() {
    let plain = FaultyFiles::new();
    let engine = open(&plain).unwrap();
    for batch in batches() {
        engine.commit(batch).unwrap();
    }
    engine.close().unwrap();
    let (states, end) = (states(), batches().len());
    let run = |files: &FaultyFiles| -> Result<()> {
        let engine = open(files)?;
        back_up(files, &engine)?;
        engine.commit(batch([put(0, b"more", b"1")]))?;
        back_up(files, &engine).map(drop)
    };
    let counted = plain.restart(Loss::Nothing);
    run(&counted).unwrap();
    let (writes, syncs) = counted.counts();
    let stops = (1..=writes).map(|at| (at, true)).chain((1..=syncs).map(|at| (at, false)));
    let mut outcomes = [0; 3];
    for (at, is_write) in stops {
        let files = plain.restart(Loss::Nothing);
        match is_write {
            true => files.stop_at_write(at),
            false => files.stop_at_sync(at),
        }
        let _ = run(&files);
        for loss in [Loss::Nothing, Loss::Everything, Loss::Some(at * 7)] {
            let files = files.restart(loss);
            match restore_to(&files, "/to", None, &[]) {
                Err(_) => outcomes[0] += 1,
                Ok(restored) => {
                    let more = restored.position as usize - end;
                    assert!(more <= 1, "{at} {loss:?}");
                    outcomes[1 + more] += 1;
                    let engine = opened(&files, "/to").unwrap();
                    let snapshot = engine.snapshot();
                    assert_eq!(snapshot.get(Ident(0), b"more").unwrap().is_some(), more == 1);
                    if more == 0 {
                        assert_eq!(everything(&*snapshot), states[end]);
                    }
                }
            }
            // The next backup cleans up and continues.
            let engine = open(&files).unwrap();
            back_up(&files, &engine).unwrap();
            restore_to(&files, "/again", None, &[]).unwrap();
        }
    }
    assert!(outcomes.iter().all(|count| *count > 10), "{outcomes:?}");
}

#[test]
fn a_restore_stopped_anywhere_leaves_no_directory_that_opens() {
    let plain = FaultyFiles::new();
    let engine = open(&plain).unwrap();
    for batch in batches() {
        engine.commit(batch).unwrap();
    }
    back_up(&plain, &engine).unwrap();
    engine.close().unwrap();
    let (states, end) = (states(), batches().len());
    let counted = plain.restart(Loss::Nothing);
    restore_to(&counted, "/to", None, &[]).unwrap();
    let (writes, _) = counted.counts();
    let mut refused = 0;
    for at in 1..=writes {
        let files = plain.restart(Loss::Nothing);
        files.stop_at_write(at);
        let result = restore_to(&files, "/to", None, &[]);
        for loss in [Loss::Nothing, Loss::Everything, Loss::Some(at * 3)] {
            let files = files.restart(loss);
            let started =
                files.paths().iter().any(|path| path.starts_with("/to") && !path.ends_with("vellum.lock"));
            match opened(&files, "/to") {
                // The restore had not begun, or it is complete.
                Ok(engine) if everything(&*engine.snapshot()).is_empty() => {
                    assert!(!started, "{at} {loss:?}: an empty database in its offset");
                }
                Ok(engine) => assert_eq!(everything(&*engine.snapshot()), states[end], "{at} {loss:?}"),
                Err(_) => refused += 1,
            }
        }
        let _ = result;
    }
    assert!(refused > 50, "{refused}");
}

#[test]
fn nothing_of_others_is_overwritten() {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    engine.commit(batch([Op::Create(Ident(0))])).unwrap();
    files.open(Path::new("/backup/notes.txt"), true).unwrap();
    let error = back_up(&files, &engine).unwrap_err().to_string();
    assert!(error.contains("notes.txt"), "{error}");
    files.remove(Path::new("/backup/notes.txt")).unwrap();
    back_up(&files, &engine).unwrap();
    for to in ["/data", BACKUP] {
        let error = restore_to(&files, to, None, &[]).unwrap_err().to_string();
        assert!(error.contains("isn't empty") || error.contains("another Vellum"), "{error}");
    }
    engine.close().unwrap();
    let error = restore_to(&files, "/data", None, &[]).unwrap_err().to_string();
    assert!(error.contains("isn't empty"), "{error}");
    assert!(open(&files).is_ok());
}

#[test]
fn a_closed_directory_is_backed_up_unchanged() {
    let files = FaultyFiles::new();
    let engine = open_archived(&files).unwrap();
    for batch in batches() {
        engine.commit(batch).unwrap();
    }
    engine.checkpoint().unwrap();
    engine.commit(batch([put(0, b"last", b"1")])).unwrap();
    let error = ReadOnlyEngine::open_on(shared(&files), &options()).err().map(|error| error.to_string());
    assert!(error.is_some_and(|error| error.contains("another Vellum uses /data")));
    drop(engine.core.journal.sync());
    let files = files.restart(Loss::Nothing);
    let contents = |files: &FaultyFiles| -> Vec<_> {
        let paths = files.paths().into_iter().filter(|path| path.starts_with("/data"));
        paths.map(|path| (files.read(&path), path)).collect()
    };
    let before = contents(&files);
    let still = ReadOnlyEngine::open_on(shared(&files), &options()).unwrap();
    assert_eq!(still.snapshot().get(Ident(0), b"last").unwrap().as_deref(), Some(&b"1"[..]));
    back_up(&files, &still).unwrap();
    still.commit(batch([put(0, b"never", b"1")])).unwrap();
    assert!(still.snapshot().get(Ident(0), b"never").unwrap().is_some());
    drop(still);
    assert!(before == contents(&files), "something was changed");
    let engine = open_archived(&files).unwrap();
    assert!(engine.snapshot().get(Ident(0), b"never").unwrap().is_none());
    engine.commit(batch([put(0, b"next", b"1")])).unwrap();
    assert_eq!(back_up(&files, &engine).unwrap(), Kind::Changes);
}

#[test]
fn without_an_archive_a_backup_after_a_checkpoint_is_full() {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    engine.commit(batch([Op::Create(Ident(0))])).unwrap();
    back_up(&files, &engine).unwrap();
    engine.commit(batch([put(0, b"a", b"1")])).unwrap();
    assert_eq!(back_up(&files, &engine).unwrap(), Kind::Changes);
    assert_eq!(back_up(&files, &engine).unwrap(), Kind::Changes);
    engine.commit(batch([put(0, b"b", b"1")])).unwrap();
    engine.checkpoint().unwrap();
    let since = BackupDirectory::read(shared(&files), Path::new(BACKUP)).unwrap().since();
    let backup = engine.backup(since, 0).unwrap();
    assert!(
        backup.why_full().is_some_and(|why| why.contains("is no longer available")),
        "{:?}",
        backup.why_full()
    );
    assert_eq!(back_up(&files, &engine).unwrap(), Kind::Full);
    assert_eq!(restore_to(&files, "/to", None, &[]).unwrap().position, 3);
}

#[test]
fn while_the_archive_cant_be_written_the_journal_stays() {
    let root = std::env::temp_dir().join(format!("vellum-archive-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&root);
    let archive = ArchiveOptions { directory: root.join("archive"), keep: None };
    let options = DiskOptions { directory: root.join("data"), archive: Some(archive), ..options() };
    let engine = DiskEngine::open(&options).unwrap();
    let in_journal = || std::fs::read_dir(root.join("data/journal")).unwrap().count();
    engine.commit(batch([Op::Create(Ident(0))])).unwrap();
    engine.checkpoint().unwrap();
    let before = in_journal();
    let away = root.join("away");
    std::fs::rename(root.join("archive"), &away).unwrap();
    for round in 1..4 {
        engine.commit(batch([put(0, b"a", &[round])])).unwrap();
        engine.checkpoint().unwrap();
        assert_eq!(in_journal(), before + usize::from(round), "commits and checkpoints go on");
        let counts = engine.statistics().archive.unwrap();
        assert!(counts.failing && counts.failures >= u64::from(round));
    }
    std::fs::rename(&away, root.join("archive")).unwrap();
    engine.commit(batch([put(0, b"b", b"1")])).unwrap();
    engine.checkpoint().unwrap();
    assert_eq!(in_journal(), before);
    let counts = engine.statistics().archive.unwrap();
    assert_eq!((counts.position, counts.failing), (5, false));
    let directory = super::super::archive::folder(&root.join("archive"), engine.core.journal.segments.id);
    let found = super::super::archive::sources(&super::super::SystemFiles, &directory);
    let mut frame_stream = super::super::FrameStream::new(Arc::new(super::super::SystemFiles), found, 0);
    while let super::super::backup::Next::Frame(_) = frame_stream.next().unwrap() {}
    assert_eq!(frame_stream.last(), 5);
    drop(engine);
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn old_segments_leave_the_archive_and_a_copied_directory_is_refused() {
    let files = FaultyFiles::new();
    let keep = Some(Duration::from_secs(3600));
    let archive = ArchiveOptions { directory: ARCHIVE.into(), keep };
    let options = DiskOptions { archive: Some(archive), ..options() };
    let engine = DiskEngine::open_with(shared(&files), &options, WIDE).unwrap();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let mut create = batch([Op::Create(Ident(0))]);
    create.set_time((now - 9000) << 32);
    engine.commit(create).unwrap();
    let copy = FaultyFiles::new();
    for path in files.paths() {
        copy.open(&path, true).unwrap().write_at(&files.read(&path).unwrap(), 0).unwrap();
    }
    engine.checkpoint().unwrap();
    for ago in [8000, 5000, 3000, 10] {
        let mut change = batch([put(0, b"a", b"1")]);
        change.set_time((now - ago) << 32);
        engine.commit(change).unwrap();
        engine.checkpoint().unwrap();
    }
    let names = |files: &FaultyFiles| -> Vec<String> {
        let paths = files.paths().into_iter().filter(|path| path.starts_with(ARCHIVE));
        let names = paths.map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
        names.filter(|name| name.ends_with(".journal")).collect()
    };
    assert_eq!(names(&files).len(), 2, "{:?}", names(&files));
    drop(engine);
    // An older copy of the data continues from an earlier commit: its history is different.
    let archived = files.paths().into_iter().filter(|path| path.starts_with(ARCHIVE));
    for path in archived {
        let bytes = files.read(&path).unwrap();
        copy.open(&path, true).unwrap().write_at(&bytes, 0).unwrap();
    }
    let error = DiskEngine::open_with(shared(&copy), &options, WIDE).err().map(|error| error.to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains("another copy")), "{error:?}");
}

#[test]
fn a_full_disk_is_an_error_and_leaves_no_partial_backup() {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    for batch in batches() {
        engine.commit(batch).unwrap();
    }
    let (states, end) = (states(), batches().len());
    for free_bytes in [0, 10, 60, 3000] {
        files.set_free_bytes(Some(free_bytes));
        let error = back_up(&files, &engine).unwrap_err();
        assert!(matches!(error, Error::Full(_)), "{free_bytes}: {error}");
        assert!(restore_to(&files, "/to", None, &[]).is_err());
    }
    files.set_free_bytes(None);
    assert_eq!(back_up(&files, &engine).unwrap(), Kind::Full);
    for free_bytes in [0, 10, 3000, 10_000] {
        files.set_free_bytes(Some(free_bytes));
        let error = restore_to(&files, "/to", None, &[]).unwrap_err();
        assert!(matches!(error, Error::Full(_)), "{free_bytes}: {error}");
    }
    files.set_free_bytes(None);
    restore_to(&files, "/to", None, &[]).unwrap();
    assert_eq!(everything(&*opened(&files, "/to").unwrap().snapshot()), states[end]);
}

/// The server's machine stops at each step and restarts. The archive then continues from its contents.
#[test]
fn after_a_stop_backup_and_archive_restore_the_state() {
    let run = |files: &FaultyFiles| -> Result<()> {
        let engine = open_archived(files)?;
        for (at, batch) in batches().into_iter().enumerate() {
            engine.commit(batch)?;
            match at {
                3 | 25 => _ = back_up(files, &engine)?,
                _ if at % 6 == 5 => engine.checkpoint()?,
                _ => {}
            }
        }
        Ok(())
    };
    let counted = FaultyFiles::new();
    run(&counted).unwrap();
    let (writes, syncs) = counted.counts();
    let stops =
        (1..=writes).step_by(4).map(|at| (at, true)).chain((1..=syncs).step_by(2).map(|at| (at, false)));
    let (mut restored, mut none) = (0, 0);
    for (at, is_write) in stops {
        let files = FaultyFiles::new();
        match is_write {
            true => files.stop_at_write(at),
            false => files.stop_at_sync(at),
        }
        let _ = run(&files);
        for loss in [Loss::Nothing, Loss::Everything, Loss::Some(at * 13)] {
            let files = files.restart(loss);
            let engine =
                open_archived(&files).unwrap_or_else(|error| panic!("{at} {is_write} {loss:?}: {error}"));
            let path = Path::new(BACKUP);
            let backups = BackupDirectory::read(shared(&files), path);
            if backups.is_ok_and(|backups| !backups.parts().is_empty()) {
                for round in 0..3u8 {
                    engine.commit(batch([put(0, b"after", &[round])])).unwrap();
                    engine.checkpoint().unwrap();
                }
                restore_to(&files, "/to", None, &[ARCHIVE])
                    .unwrap_or_else(|error| panic!("{at} {is_write} {loss:?}: {error}"));
                let found = everything(&*opened(&files, "/to").unwrap().snapshot());
                assert_eq!(found, everything(&*engine.snapshot()), "{at} {is_write} {loss:?}");
                assert_eq!(back_up(&files, &engine).unwrap(), Kind::Changes, "{at} {is_write} {loss:?}");
                restored += 1;
            } else {
                none += 1;
            }
        }
    }
    assert!(restored > 200 && none > 10, "{restored} {none}");
}

/// A checkpoint makes commits durable without a sync of the journal. A crash before the old segment is removed may lose
/// their frames.
#[test]
fn commits_that_only_the_base_has_make_a_backup_full() {
    for later in [false, true] {
        let files = FaultyFiles::new();
        let engine = open(&files).unwrap();
        engine.commit(batch([Op::Create(Ident(0))])).unwrap();
        assert_eq!(back_up(&files, &engine).unwrap(), Kind::Full);
        for value in [&b"second"[..], b"third"] {
            engine.commit(batch([put(0, b"key", value)])).unwrap();
        }
        let is_segment =
            |path: &std::path::PathBuf| path.extension().is_some_and(|suffix| suffix == "journal");
        let segment = files.paths().into_iter().find(is_segment).unwrap();
        let bytes = files.read(&segment).unwrap();
        engine.checkpoint().unwrap();
        if later {
            let last = engine.commit(batch([put(0, b"key", b"fourth")])).unwrap();
            engine.wait_journaled(last).unwrap();
        }
        let files = files.restart(Loss::Nothing);
        let file = files.open(&segment, true).unwrap();
        file.write_at(&bytes, 0).unwrap();
        file.sync().unwrap();
        let at = bytes.windows(6).position(|window| window == b"second").unwrap();
        files.tamper(&segment, |bytes| bytes[at] ^= 1);
        let engine = open(&files).unwrap();
        assert_eq!(back_up(&files, &engine).unwrap(), Kind::Full);
        assert_eq!(restore_to(&files, "/to", None, &[]).unwrap().position, 3 + u64::from(later));
        engine.commit(batch([put(0, b"key", b"last")])).unwrap();
        assert_eq!(back_up(&files, &engine).unwrap(), Kind::Changes);
    }
}

#[test]
fn segments_with_and_without_seeds_are_backed_up_and_archived_together() {
    let files = FaultyFiles::new();
    let engine = open_archived(&files).unwrap();
    engine.commit(batch([Op::Create(Ident(0))])).unwrap();
    assert_eq!(back_up(&files, &engine).unwrap(), Kind::Full);
    engine.commit(batch([put(0, b"old", b"1")])).unwrap();
    let files = files.restart(Loss::Nothing);
    let is_segment =
        |path: &std::path::PathBuf| path.extension().is_some_and(|extension| extension == "journal");
    let segment = files.paths().into_iter().find(is_segment).unwrap();
    files.tamper(&segment, |bytes| super::embedded::remove_seeds(bytes));
    let engine = open_archived(&files).unwrap();
    engine.commit(batch([put(0, b"new", b"1")])).unwrap();
    let live = restore_to(&files, "/live", None, &["/data/journal"]).unwrap();
    assert_eq!((live.position, live.commits), (3, 2));
    let copy = files.restart(Loss::Nothing);
    let engine = open_archived(&copy).unwrap();
    assert_eq!(back_up(&copy, &engine).unwrap(), Kind::Changes);
    let expected = everything(&*engine.snapshot());
    engine.checkpoint().unwrap();
    for (to, archives) in [("/changes", &[][..]), ("/archive", &[ARCHIVE][..])] {
        if to == "/archive" {
            let changes = Path::new(BACKUP).join("000002.changes");
            Files::remove(&copy, &changes).unwrap();
        }
        assert_eq!(restore_to(&copy, to, None, archives).unwrap().position, 3);
        assert_eq!(everything(&*opened(&copy, to).unwrap().snapshot()), expected, "{to}");
    }
}
