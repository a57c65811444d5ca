//! Salvage of directories with every kind of damage.

use super::*;
use crate::disk::Salvage;
use crate::disk::base::Base;
use crate::disk::files::Control;

/// Returns a directory and its contents: a base of three trees, two of which share a table, and ten commits in the
/// journal after it.
fn directory() -> (FaultyFiles, AllTrees) {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    engine.commit(batch((0..3).map(|number| Op::Create(Ident(number))))).unwrap();
    for number in 0..300u64 {
        let value = vec![number as u8; 100 + number as usize % 50];
        engine.commit(batch((1..3).map(|ident| put(ident, &number.to_be_bytes(), &value)))).unwrap();
    }
    engine.checkpoint().unwrap();
    engine.commit(batch([Op::Fork { from: Ident(1), to: Ident(3) }])).unwrap();
    engine.checkpoint().unwrap();
    for number in 300..310u64 {
        let last = engine.commit(batch([put(1, &number.to_be_bytes(), &[7; 200])])).unwrap();
        engine.wait_journaled(last).unwrap();
    }
    let found = everything(&*engine.snapshot());
    (files.restart(Loss::Nothing), found)
}

fn salvage(files: &FaultyFiles) -> Result<Salvage> {
    DiskEngine::salvage_on(Arc::new(files.clone()), &options())
}

/// Salvages, exchanges and opens. Returns the contents and the reported losses.
fn repaired(files: &FaultyFiles) -> (AllTrees, Vec<super::super::DataLoss>) {
    let salvage = salvage(files).unwrap();
    let lost = salvage.lost().to_vec();
    let saved = everything(&*salvage.engine().snapshot());
    let old = salvage.finish().unwrap();
    assert_eq!(old, Path::new("/data/before-repair.1"));
    let engine = open(files).unwrap();
    let found = everything(&*engine.snapshot());
    assert_eq!(found, saved);
    engine.commit(batch([put(1, b"after", b"1")])).unwrap();
    engine.close().unwrap();
    assert!(!files.paths().iter().any(|path| path.starts_with("/data/repair.tmp")), "{:?}", files.paths());
    (found, lost)
}

fn segment(files: &FaultyFiles) -> std::path::PathBuf {
    let journal = Path::new("/data/journal");
    files
        .paths()
        .into_iter()
        .rfind(|path| path.parent() == Some(journal) && !path.ends_with("synced.mark"))
        .unwrap()
}

#[test]
fn of_a_sound_directory_nothing_is_lost_and_the_old_files_stay() {
    let (files, expected) = directory();
    let before = files.read(Path::new("/data/base.vellum"));
    let (found, lost) = repaired(&files);
    assert_eq!((found, lost), (expected, Vec::new()));
    assert_eq!(files.read(Path::new("/data/before-repair.1/base.vellum")), before);
    assert!(files.read(Path::new("/data/before-repair.1/vellum.format")).is_some());
}

#[test]
fn of_a_damaged_journal_everything_before_the_damage_is_saved() {
    let (files, expected) = directory();
    let path = segment(&files);
    let len = written(&files, &path);
    let frame = (len - 32) / 10;
    files.tamper(&path, |bytes| bytes[32 + 4 * frame + 100] ^= 1);
    assert!(open(&files).is_err());
    let (found, lost) = repaired(&files);
    assert_eq!(found[1].1, expected[1].1 - 6);
    let offset = format!("offset {}", 32 + 4 * frame);
    assert!(lost[0].message.contains(&offset) && lost[0].message.contains("5 valid commits"), "{lost:?}");
    assert_eq!((lost[1].ident, lost[1].entries), (Some(Ident(1)), Some(5)));
}

#[test]
fn a_segment_without_its_header_is_read_all_the_same() {
    let (files, expected) = directory();
    let path = segment(&files);
    files.tamper(&path, |bytes| bytes[9] ^= 1);
    assert_eq!(repaired(&files).0, expected);
}

#[test]
fn a_page_with_a_wrong_checksum_is_left_out() {
    let (files, expected) = directory();
    files.tamper(Path::new("/data/base.vellum"), |bytes| {
        let at = bytes.windows(100).position(|window| window.iter().all(|byte| *byte == 77)).unwrap();
        bytes[at + 50] ^= 1;
    });
    let (found, lost) = repaired(&files);
    // The forks share a table, so both may lose the page. The third tree does not.
    let of = lost.iter().map(|lost| lost.ident.unwrap().0).collect::<Vec<_>>();
    assert!(of == [1, 3] || of == [2], "{lost:?}");
    let of_page = lost[0].entries.unwrap();
    assert!((4..15).contains(&of_page), "{lost:?}");
    assert!(
        lost[0].message.contains("base.vellum, table t") && lost[0].message.contains("checksum"),
        "{lost:?}"
    );
    let entries = |all: &AllTrees| all.iter().map(|(_, entries, ..)| *entries).sum::<u64>();
    assert_eq!(entries(&expected) - entries(&found), of_page * lost.len() as u64);
}

#[test]
fn without_the_list_of_trees_their_entries_are_saved() {
    let (files, expected) = directory();
    let base = Path::new("/data/base.vellum");
    let (all, control) = (Arc::new(files.clone()), Arc::new(Control::impatient()));
    let opened = Base::open(all, base.to_path_buf(), 1 << 20, Compression::default(), control).unwrap();
    let list = opened.view().list_place() as usize;
    drop(opened);
    files.tamper(base, |bytes| bytes[list + 40] ^= 1);
    assert!(open(&files).is_err());
    let salvage = salvage(&files).unwrap();
    let lost = salvage.lost();
    assert!(lost[0].ident.is_none() && lost[0].message.contains("no numbers"), "{lost:?}");
    let snapshot = salvage.engine().snapshot();
    let entries = |ident: &Ident| snapshot.entries(*ident).unwrap();
    let mut found: Vec<_> = salvage.idents().iter().map(entries).collect();
    found.sort_unstable();
    // Two of the old trees share a table. The changes in the journal are in a tree of their own.
    assert_eq!(expected.iter().map(|(_, entries, ..)| *entries).collect::<Vec<_>>(), [0, 310, 300, 300]);
    assert_eq!(found, [10, 300, 300]);
}

#[test]
fn without_a_base_the_journal_is_saved() {
    for damage in [0, 1] {
        let (files, _) = directory();
        let base = Path::new("/data/base.vellum");
        match damage {
            0 => files.tamper(base, |bytes| bytes[..16384].fill(0)),
            _ => crate::disk::Files::remove(&files, base).unwrap(),
        }
        assert!(open(&files).is_err());
        let (found, lost) = repaired(&files);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].0, found[0].1), (1, 10));
        assert!(lost[0].message.contains("base.vellum"), "{lost:?}");
    }
}

#[test]
fn a_damaged_format_is_written_anew_and_a_newer_one_refused() {
    let (files, expected) = directory();
    let format = Path::new("/data/vellum.format");
    files.tamper(format, |bytes| bytes[25] = b'x');
    let (found, lost) = repaired(&files);
    assert_eq!(found, expected);
    assert!(lost[0].message.contains("vellum.format"));
    files.tamper(format, |bytes| {
        let text = String::from_utf8_lossy(bytes).replace("format 4", "format 5");
        *bytes = text.into_bytes();
    });
    assert!(matches!(salvage(&files).err(), Some(Error::Unavailable(_))));
}

#[test]
fn missing_and_foreign_directories_are_refused() {
    assert!(matches!(salvage(&FaultyFiles::new()).err(), Some(Error::Unavailable(_))));
    let (files, _) = directory();
    let engine = open(&files).unwrap();
    assert!(matches!(salvage(&files).err(), Some(Error::Io { kind: ErrorKind::ResourceBusy, .. })));
    drop(engine);
    assert!(salvage(&files).is_ok());
}

/// Whichever byte has changed, salvage ends, and saves only written data.
#[test]
fn any_changed_byte_in_the_base_is_survived() {
    let (files, expected) = directory();
    let path = Path::new("/data/base.vellum");
    let len = files.read(path).unwrap().len();
    let (mut complete, mut count) = (0, 0);
    for at in (0..len).step_by(len / 120) {
        let damaged = files.restart(Loss::Nothing);
        for within in 0..48 {
            damaged.tamper(path, |bytes| {
                if let Some(byte) = bytes.get_mut(at + within) {
                    *byte ^= 0x55;
                }
            });
        }
        let Ok(salvage) = salvage(&damaged) else { continue };
        let found = everything(&*salvage.engine().snapshot());
        for (ident, _, _, entries) in &found {
            let before = expected.iter().find(|(other, ..)| other == ident);
            let before = before.map(|(.., entries)| entries.as_slice()).unwrap_or_default();
            assert!(entries.iter().all(|entry| before.contains(entry)), "offset {at}, tree {ident}");
        }
        count += 1;
        complete += u64::from(found == expected);
        assert_eq!(found == expected, salvage.lost().is_empty(), "offset {at}: {:?}", salvage.lost());
    }
    eprintln!("{count} damaged bases salvaged, {complete} of them whole");
    assert!(count > 100 && complete > 20 && complete < count);
}

/// An interrupted exchange leaves a refused or a complete directory, and the next repair finishes it.
#[test]
fn an_exchange_can_be_interrupted() {
    let count = |files: &FaultyFiles| files.counts().0;
    let (files, expected) = directory();
    let salvaged = salvage(&files).unwrap();
    salvaged.engine().close().unwrap();
    let before = count(&files);
    salvaged.finish().unwrap();
    let writes = count(&files) - before;
    assert!(writes > 8);
    let mut survived = 0;
    for at in 1..=writes {
        for loss in [Loss::Nothing, Loss::Everything, Loss::Some(at)] {
            let (files, _) = directory();
            let salvaged = salvage(&files).unwrap();
            salvaged.engine().close().unwrap();
            files.stop_at_write(count(&files) + at);
            assert!(salvaged.finish().is_err());
            let files = files.restart(loss);
            if let Ok(engine) = open(&files) {
                assert_eq!(everything(&*engine.snapshot()), expected, "write {at}, {loss:?}");
                drop(engine);
            }
            let salvaged = salvage(&files).unwrap_or_else(|error| panic!("write {at}, {loss:?}: {error}"));
            salvaged.finish().unwrap();
            let found = everything(&*open(&files).unwrap().snapshot());
            assert_eq!(found, expected, "write {at}, {loss:?}");
            survived += 1;
        }
    }
    eprintln!("{survived} interrupted exchanges survived");
}
