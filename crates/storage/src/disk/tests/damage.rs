//! Changed bytes, missing files, newer formats.

use std::path::PathBuf;

use super::*;
use crate::disk::ReadOnlyEngine;

/// A directory whose engine was killed after some commits, the first of them journaled.
fn killed() -> FaultyFiles {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    start(&engine);
    for number in 0..20u64 {
        let position = engine.commit(batch([put(1, &number.to_be_bytes(), &[9; 100])])).unwrap();
        if number < 10 {
            engine.wait_journaled(position).unwrap();
        }
    }
    files.restart(Loss::Nothing)
}

fn segment(files: &FaultyFiles) -> PathBuf {
    files.paths().into_iter().rfind(|path| path.extension().is_some_and(|e| e == "journal")).unwrap()
}

#[test]
fn a_changed_byte_in_the_journal_is_refused_with_its_place() {
    let files = killed();
    let path = segment(&files);
    let len = written(&files, &path);
    let last = len - 150;
    for at in (super::super::journal::SEGMENT_HEADER_BYTES..last).step_by(13) {
        let damaged = files.restart(Loss::Nothing);
        damaged.tamper(&path, |bytes| bytes[at] ^= 0x10);
        let error = open(&damaged).err();
        let names_it = |message: &str| message.contains(".journal") && message.contains("offset");
        assert!(matches!(&error, Some(Error::Corrupted(message)) if names_it(message)), "{at}: {error:?}");
    }
}

#[test]
fn a_torn_end_is_cut_off() {
    let files = killed();
    let path = segment(&files);
    let len = written(&files, &path);
    let mut least = 20;
    for cut in 1..400 {
        let torn = files.restart(Loss::Nothing);
        torn.tamper(&path, |bytes| bytes.truncate(len - cut));
        let engine = open(&torn).unwrap();
        let entries = engine.snapshot().entries(Ident(1)).unwrap();
        assert!(entries <= least && entries + 1 >= least);
        least = entries;
    }
    assert!((15..20).contains(&least));
}

#[test]
fn zeros_written_ahead_are_no_damage_and_go_at_the_next_opening() {
    let files = killed();
    let path = segment(&files);
    let used = written(&files, &path);
    let file = files.read(&path).unwrap();
    assert!(file.len() > used && file.len() - used < 2048, "{} {used}", file.len());
    let engine = open(&files).unwrap();
    assert_eq!(engine.snapshot().entries(Ident(1)), Ok(20));
    assert_eq!(files.read(&path).unwrap().len(), used);
    let position = engine.commit(batch([put(1, b"more", b"1")])).unwrap();
    engine.wait_journaled(position).unwrap();
    let engine = open(&files.restart(Loss::Everything)).unwrap();
    assert_eq!(engine.snapshot().entries(Ident(1)), Ok(21));
}

#[test]
fn a_hole_in_unsynced_frames_is_a_torn_end() {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    start(&engine);
    let position = engine.commit(batch([put(1, b"a", b"1")])).unwrap();
    engine.wait_journaled(position).unwrap();
    let path = segment(&files);
    let from = written(&files, &path);
    for number in 0..3u64 {
        engine.commit(batch([put(1, &number.to_be_bytes(), &[9; 3000])])).unwrap();
    }
    let files = files.restart(Loss::Nothing);
    files.tamper(&path, |bytes| bytes[from..from + 2048].fill(0));
    let engine = open(&files).unwrap();
    assert_eq!(engine.snapshot().entries(Ident(1)), Ok(1));
}

#[test]
fn a_missing_journal_is_refused() {
    let files = killed();
    crate::disk::Files::remove(&files, &segment(&files)).unwrap();
    let error = open(&files).err();
    assert!(matches!(&error, Some(Error::Corrupted(message)) if message.contains("no journal")), "{error:?}");
}

#[test]
fn a_missing_segment_is_refused() {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    start(&engine);
    engine.close().unwrap();
    let (older, files) = (files.restart(Loss::Nothing), files.restart(Loss::Nothing));
    let engine = open(&files).unwrap();
    engine.commit(batch([put(1, b"a", b"1")])).unwrap();
    engine.checkpoint().unwrap();
    let position = engine.commit(batch([put(1, b"b", b"2")])).unwrap();
    engine.wait_journaled(position).unwrap();
    let journal = segment(&files);
    let bytes = files.read(&journal).unwrap();
    // The present journal with an earlier base.
    let mixed = older.restart(Loss::Nothing);
    let stale = segment(&mixed);
    crate::disk::Files::remove(&mixed, &stale).unwrap();
    crate::disk::Files::open(&mixed, &journal, true).unwrap().write_at(&bytes, 0).unwrap();
    let error = open(&mixed).err();
    assert!(matches!(&error, Some(Error::Corrupted(_))), "{error:?}");
}

#[test]
fn the_journal_of_another_directory_is_refused() {
    let (files, other) = (killed(), killed());
    let path = segment(&files);
    let bytes = other.read(&path).unwrap();
    files.tamper(&path, |own| *own = bytes);
    let error = open(&files).err();
    assert!(matches!(&error, Some(Error::Corrupted(message)) if message.contains("another")), "{error:?}");
}

#[test]
fn another_format_is_refused_with_both_numbers() {
    let files = killed();
    let format = Path::new("/data/vellum.format");
    let names = |files: &FaultyFiles, number: u32| {
        let error = open(files).err();
        let names_both = |message: &str| {
            message.contains(&format!("format {number},")) && message.contains("only format 4")
        };
        assert!(matches!(&error, Some(Error::Unavailable(message)) if names_both(message)), "{error:?}");
    };
    let mut present = 4;
    for other in [3, 5, 1] {
        files.tamper(format, |bytes| {
            let (from, to) = (format!("format {present}"), format!("format {other}"));
            *bytes = String::from_utf8_lossy(bytes).replace(&from, &to).into_bytes();
        });
        present = other;
        names(&files, other);
    }
    files.tamper(format, |bytes| bytes[25] = b'x');
    assert!(matches!(open(&files).err(), Some(Error::Corrupted(_))));
}

#[test]
fn a_changed_byte_in_the_base_is_found_when_it_is_read() {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    start(&engine);
    engine
        .commit(batch((0..50u64).map(|number| put(1, &number.to_be_bytes(), &[number as u8; 300]))))
        .unwrap();
    engine.close().unwrap();
    let path = Path::new("/data/base.vellum");
    let bytes = files.read(path).unwrap();
    let at = bytes.windows(300).position(|window| window.iter().all(|byte| *byte == 7)).unwrap();
    files.tamper(path, |bytes| bytes[at + 100] ^= 1);
    let engine = open(&files).unwrap();
    let snapshot = engine.snapshot();
    assert_eq!(snapshot.get(Ident(1), &40u64.to_be_bytes()).unwrap().as_deref(), Some(&[40; 300][..]));
    for error in [
        snapshot.get(Ident(1), &7u64.to_be_bytes()).err(),
        snapshot.get(Ident(1), &6u64.to_be_bytes()).err(),
        entries(&*snapshot, Ident(1), Range::all(), Direction::Backward).err(),
    ] {
        assert!(matches!(&error, Some(Error::Corrupted(message)) if message.contains("offset")), "{error:?}");
    }
}

/// Names that do not fit a segment, and files with only the name of a segment.
#[test]
fn strays_in_the_journals_folder_are_left_alone() {
    let unknown_files: [(&str, &[u8]); 6] = [
        ("7.journal", b"an unpadded number"),
        ("copy of 0000000000000001.journal", b"VellumJ\n"),
        ("0000000000000001.journal.bak", b"VellumJ\n"),
        ("0000000000000000.journal", b"a text before the journal"),
        ("0000000000000002.journal", b"a text where the next checkpoint would have its segment"),
        ("0000000000000099.journal", &[0xEE; 5000]),
    ];
    let path = |name: &str| Path::new("/data/journal").join(name);
    let files = killed();
    for (name, bytes) in unknown_files {
        let stray = crate::disk::Files::open(&files, &path(name), true).unwrap();
        stray.write_at(bytes, 0).unwrap();
    }
    let left_alone = |files: &FaultyFiles| {
        unknown_files.into_iter().all(|(name, bytes)| files.read(&path(name)).as_deref() == Some(bytes))
    };
    let (repaired, files) = (files.restart(Loss::Nothing), files.restart(Loss::Nothing));
    let salvage = DiskEngine::salvage_on(Arc::new(repaired), &options()).unwrap();
    assert_eq!((salvage.lost(), salvage.engine().snapshot().entries(Ident(1))), (&[][..], Ok(20)));
    for round in 0..3u64 {
        let engine = open(&files).unwrap();
        assert_eq!(engine.snapshot().entries(Ident(1)), Ok(20 + 2 * round));
        for key in [round * 2, round * 2 + 1] {
            engine.commit(batch([put(1, &(u64::MAX - key).to_be_bytes(), b"1")])).unwrap();
            engine.checkpoint().unwrap();
        }
        drop(engine);
        assert!(left_alone(&files), "{round}: {:?}", files.paths());
    }
    // One segment and the mark remain: obsolete segments were removed.
    let all = files.paths().iter().filter(|path| path.starts_with("/data/journal")).count();
    assert_eq!(all, unknown_files.len() + 2, "{:?}", files.paths());
}

/// Text in place of a needed segment is detected.
#[test]
fn a_segment_that_was_written_over_is_missed() {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    start(&engine);
    engine.checkpoint().unwrap();
    let position = engine.commit(batch([put(1, b"a", b"1")])).unwrap();
    engine.wait_journaled(position).unwrap();
    // The checkpoint that would make this segment obsolete never completes.
    let first = segment(&files);
    files.stop_at_sync(files.counts().1 + 2);
    assert!(engine.checkpoint().is_err());
    let files = files.restart(Loss::Nothing);
    let engine = open(&files).unwrap();
    let position = engine.commit(batch([put(1, b"b", b"1")])).unwrap();
    engine.wait_journaled(position).unwrap();
    let files = files.restart(Loss::Nothing);
    assert!(files.paths().iter().any(|path| *path > first && path.extension().is_some()));
    files.tamper(&first, |bytes| bytes.fill(b'x'));
    let error = open(&files).err();
    assert!(matches!(&error, Some(Error::Corrupted(_))), "{error:?}");
}

/// A journal without its synced end looks like one whose end was never synced.
#[test]
fn a_journal_that_lost_synced_frames_is_damaged() {
    for durability in [Durability::None, Durability::Journaled] {
        let files = FaultyFiles::new();
        let engine = open_as(&files, durability).unwrap();
        engine.commit(batch([Op::Create(Ident(1)), put(1, b"a", b"first")])).unwrap();
        engine.core.journal.sync().unwrap();
        let segment = engine.core.journal.segments.path(1);
        let early = written(&files, &segment);
        for number in 0..200u8 {
            engine.commit(batch([put(1, &[number], b"synced")])).unwrap();
        }
        engine.core.journal.sync().unwrap();
        let late = written(&files, &segment);
        let found = files.restart(Loss::Nothing);
        drop(engine);
        let still =
            |files: &FaultyFiles| ReadOnlyEngine::open_on(Arc::new(files.clone()), &options()).map(drop);
        // Without the zeros after the last frame it is valid.
        let sound = found.restart(Loss::Nothing);
        sound.tamper(&segment, |bytes| bytes.truncate(late));
        still(&sound).unwrap();
        // Truncated, or overwritten with zeros: starts and read-only opens detect both.
        let cut = |bytes: &mut Vec<u8>| bytes.truncate(early);
        let zeroed = |bytes: &mut Vec<u8>| bytes.iter_mut().skip(early).for_each(|byte| *byte = 0);
        for damage in [&cut as &dyn Fn(&mut Vec<u8>), &zeroed] {
            let files = found.restart(Loss::Nothing);
            files.tamper(&segment, |bytes| damage(bytes));
            for opened in [still(&files), open(&files).map(drop)] {
                let Err(Error::Corrupted(message)) = opened else { panic!("{opened:?}") };
                assert!(message.contains("commits up to 201 were synced"), "{message}");
            }
            let salvage = DiskEngine::salvage_on(Arc::new(files.clone()), &options()).unwrap();
            assert!(salvage.lost().iter().any(|lost| lost.message.contains("were synced")));
            salvage.finish().unwrap();
            let repaired = open(&files).unwrap();
            assert_eq!(repaired.snapshot().entries(Ident(1)).unwrap(), 1);
        }
        // An older journal has no mark.
        let old = found.restart(Loss::Nothing);
        old.tamper(&segment, |bytes| bytes.truncate(early));
        old.tamper(&segment.with_file_name("synced.mark"), Vec::clear);
        assert_eq!(open(&old).unwrap().snapshot().entries(Ident(1)).unwrap(), 1);
    }
}

/// After a checkpoint, the journal may have no frame and no sync that shows the age of the base.
#[test]
fn an_older_base_is_refused_after_a_checkpoint_without_a_sync() {
    for durability in [Durability::None, Durability::Relaxed] {
        let files = FaultyFiles::new();
        let options = DiskOptions { durability, ..options() };
        let engine = DiskEngine::open_stepped(Arc::new(files.clone()), &options).unwrap();
        engine.commit(batch([Op::Create(Ident(1)), put(1, b"a", b"first")])).unwrap();
        engine.checkpoint().unwrap();
        let base = Path::new("/data/base.vellum");
        let older = files.read(base).unwrap();
        engine.commit(batch([put(1, b"b", b"second")])).unwrap();
        engine.checkpoint().unwrap();
        let found = files.restart(Loss::Nothing);
        found.tamper(base, |bytes| *bytes = older);
        let opened = DiskEngine::open_stepped(Arc::new(found), &options).map(drop);
        assert!(matches!(opened, Err(Error::Corrupted(_))), "{opened:?}");
    }
}

#[test]
fn a_checkpoint_does_not_lower_the_mark_of_later_syncs() {
    let files = FaultyFiles::new();
    let engine = DiskEngine::open_stepped(Arc::new(files.clone()), &options()).unwrap();
    engine.commit(batch([Op::Create(Ident(1)), put(1, b"a", b"first")])).unwrap();
    let early = engine.core.journal.durable();
    engine.core.journal.sync().unwrap();
    let journal = &engine.core.journal;
    // The end of a checkpoint that began before the sync.
    journal.checkpointed(early);
    assert_eq!(crate::disk::mark::read(&journal.segments), Some(journal.durable()));
    assert!(journal.durable() > early);
}
