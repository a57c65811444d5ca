//! A directory of an older format, opened by a machine that stops in the middle of it.

use std::io::Read;

use super::*;
use crate::disk::Files;

/// The directory of format 1 that the tests in `tests/formats.rs` open.
fn older() -> FaultyFiles {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1");
    let mut base = Vec::new();
    let packed = std::fs::File::open(fixture.join("base.redb.gz")).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut base).unwrap();
    let read = |name: &str| std::fs::read(fixture.join(name)).unwrap();
    let segment = "journal/0000000000000002.journal";
    let all = [("base.redb", base), ("vellum.format", read("vellum.format")), (segment, read(segment))];
    let files = FaultyFiles::new();
    for (name, bytes) in all {
        let file = Files::open(&files, &Path::new("/data").join(name), true).unwrap();
        file.write_at(&bytes, 0).unwrap();
    }
    // All of it on the disk, as after a start.
    files.restart(Loss::Nothing)
}

fn format(files: &FaultyFiles) -> String {
    String::from_utf8(files.read(Path::new("/data/vellum.format")).unwrap()).unwrap()
}

/// Stops at each place until opening comes to its end before, and returns how many there were.
fn stop_everywhere(stop: fn(&FaultyFiles, u64)) -> u64 {
    let expected = everything(&*open(&older()).unwrap().snapshot());
    for at in 1.. {
        let files = older();
        stop(&files, at);
        let stopped = open(&files).and_then(|engine| {
            let mut batch = batch([put(7, b"after", b"1")]);
            batch.set_time(5);
            engine.commit(batch).map(drop)
        });
        for loss in [Loss::Nothing, Loss::Everything, Loss::Some(at), Loss::Some(at * 31)] {
            let again = files.restart(loss);
            let in_new_frames = again
                .paths()
                .iter()
                .filter(|path| path.extension().is_some_and(|extension| extension == "journal"))
                .any(|path| again.read(path).unwrap().windows(4).any(|window| window == b"VJR2"));
            assert!(!in_new_frames || format(&again).contains("format 4"), "{at}, {loss:?}");
            let engine = open(&again).unwrap_or_else(|error| panic!("{at}, {loss:?}: {error}"));
            if stopped.is_err() {
                assert_eq!(everything(&*engine.snapshot()), expected, "{at}, {loss:?}");
            }
            assert!(format(&again).contains("format 4"));
            engine.commit(batch([put(7, b"later", b"1")])).unwrap();
        }
        if stopped.is_ok() {
            return at - 1;
        }
    }
    0
}

#[test]
fn it_is_stopped_at_every_sync() {
    let stops = stop_everywhere(FaultyFiles::stop_at_sync);
    assert!(stops > 3, "{stops}");
}

#[test]
fn it_is_stopped_at_every_write() {
    let stops = stop_everywhere(FaultyFiles::stop_at_write);
    assert!(stops > 5, "{stops}");
}
