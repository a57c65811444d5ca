//! Frames within values: a torn write must not turn them into commits or into evidence of damage. Also segments of the
//! earlier version, whose frames have no seed.

use std::path::PathBuf;

use super::super::backup::{FrameStream, Next, Source};
use super::super::journal::{self, SEEDLESS_VERSION, SEGMENT_HEADER_BYTES, Segments};
use super::super::reader::Reader;
use super::*;
use crate::record::{Encoded, Header, NO_SEED, remove_seed};

/// Versions of a segment in a test.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Version {
    Seedless,
    Newest,
}

/// Returns the last segment.
fn segment(files: &FaultyFiles) -> PathBuf {
    files.paths().into_iter().rfind(|path| path.extension().is_some_and(|e| e == "journal")).unwrap()
}

/// Returns the places of a segment's frames, the last one complete or not.
fn places(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut places = Vec::new();
    let mut at = SEGMENT_HEADER_BYTES;
    while let Some(header) = bytes.get(at..).and_then(Header::read) {
        places.push(at..at + header.frame_len());
        at += header.frame_len();
    }
    places
}

/// Turns a segment into one of the earlier version, as an earlier program has written it.
pub(super) fn remove_seeds(bytes: &mut [u8]) {
    let seed = journal::seed(bytes.first_chunk().unwrap());
    for place in places(bytes) {
        remove_seed(&mut bytes[place], seed);
    }
    bytes[8..12].copy_from_slice(&SEEDLESS_VERSION.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&checksum.to_le_bytes());
}

/// A directory whose last frame has frames in its value.
struct Carrier {
    files: FaultyFiles,
    segment: PathBuf,
    /// Place of the frame.
    place: std::ops::Range<usize>,
    position: u64,
    /// The contents before it and with it.
    states: [AllTrees; 2],
}

/// Commits a value with frames at the next positions. With `fresh`, its frame is the first after a checkpoint.
fn carrier(version: Version, fresh: bool) -> Carrier {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    start(&engine);
    for key in [b"a", b"b"] {
        let position = engine.commit(batch([put(1, key, &[9; 100])])).unwrap();
        engine.wait_journaled(position).unwrap();
    }
    if fresh {
        engine.checkpoint().unwrap();
    }
    let (segment, segments) = (segment(&files), &engine.core.journal.segments);
    let present = files.read(&segment).unwrap();
    let begin = places(&present).last().map_or(SEGMENT_HEADER_BYTES, |last| last.end);
    let position = engine.core.latest().position + 1;
    // Frames of this segment, without a seed, and of other segments.
    let mut value = present[SEGMENT_HEADER_BYTES..begin].to_vec();
    for seed in [NO_SEED, segments.seed(77), journal::seed(present.first_chunk().unwrap()) ^ 1] {
        for (position, durable) in [(position, 0), (position + 1, position), (position + 100, position + 99)]
        {
            let forged = batch([put(1, b"forged", b"1"), Op::Clear(Ident(2))]);
            value.extend(Encoded::new(&forged).unwrap().frame(position, durable, seed));
        }
    }
    value.extend([b'x'; 700]);
    let before = everything(&*engine.snapshot());
    engine.commit(batch([put(1, b"carrier", &value)])).unwrap();
    let states = [before, everything(&*engine.snapshot())];
    let files = files.restart(Loss::Nothing);
    let place = places(&files.read(&segment).unwrap()).pop().unwrap();
    assert_eq!(place.start, begin);
    if version == Version::Seedless {
        files.tamper(&segment, |bytes| remove_seeds(bytes));
    }
    Carrier { files, segment, place, position, states }
}

#[test]
fn frames_in_the_value_of_a_torn_frame_are_no_commits_and_no_damage() {
    for version in [Version::Seedless, Version::Newest] {
        for fresh in [false, true] {
            let Carrier { files, segment, place, position, states } = carrier(version, fresh);
            for cut in place.clone().chain([place.end]) {
                for zeros in [0, 1500] {
                    // Half the cuts have zeros written in advance behind them.
                    if zeros > 0 && cut % 8 != 0 && cut != place.end {
                        continue;
                    }
                    let torn = files.restart(Loss::Nothing);
                    torn.tamper(&segment, |bytes| {
                        bytes.truncate(cut);
                        bytes.resize(cut + zeros, 0);
                    });
                    let label =
                        format!("{version:?}, fresh {fresh}, cut at {cut} of {place:?}, {zeros} zeros");
                    let is_whole = usize::from(cut == place.end);
                    check_stream(&torn, &segment, position - 1 + is_whole as u64, &label);
                    let engine = open(&torn).unwrap_or_else(|error| panic!("{label}: {error}"));
                    assert_eq!(everything(&*engine.snapshot()), states[is_whole], "{label}");
                }
            }
        }
    }
}

/// Walks the last segment as a backup does during a write.
fn check_stream(files: &FaultyFiles, segment: &Path, last: u64, label: &str) {
    let id = u64::from_le_bytes(files.read(segment).unwrap()[12..20].try_into().unwrap());
    let directory = segment.parent().unwrap().to_path_buf();
    let segments = Segments { files: Arc::new(files.clone()), directory, id };
    let number = *segments.list().unwrap().last().unwrap();
    let reader = Reader::open_segment(&segments, number).unwrap().unwrap();
    let Some(source) = Source::segment(segment.to_path_buf(), reader).unwrap() else { return };
    let from = source.first() - 1;
    let mut frame_stream = FrameStream::new(Arc::new(files.clone()), vec![source], from);
    while let Next::Frame(_) = frame_stream.next().unwrap_or_else(|error| panic!("{label}: {error}")) {}
    assert_eq!(frame_stream.last(), last, "{label}");
}

/// The seed is secret. Even with a known seed, no frame in a value becomes a commit.
#[test]
fn a_damaged_next_commit_is_never_passed_over() {
    for version in [Version::Seedless, Version::Newest] {
        let Carrier { files, segment, place, position, .. } = carrier(version, true);
        for batch_too in [false, true] {
            let damaged = files.restart(Loss::Nothing);
            damaged.tamper(&segment, |bytes| {
                let seed = journal::seed(bytes.first_chunk().unwrap());
                let forged = batch([put(1, b"forged", b"1")]);
                let mut forged = Encoded::new(&forged).unwrap();
                let forged = forged.frame(position, 0, seed);
                bytes[place.start + 600..place.start + 600 + forged.len()].copy_from_slice(forged);
                match batch_too {
                    // The block with the header is lost.
                    true => bytes[place.start..place.start + 512].fill(0),
                    false => bytes.truncate(place.end - 1),
                }
            });
            if let Ok(engine) = open(&damaged) {
                assert_eq!(engine.snapshot().get(Ident(1), b"forged"), Ok(None), "{version:?}");
            }
        }
    }
}

/// A directory whose engine was killed after 20 commits, 10 of them journaled, with the place after these.
fn killed(version: Version) -> (FaultyFiles, PathBuf, usize) {
    let files = FaultyFiles::new();
    let engine = open(&files).unwrap();
    start(&engine);
    for number in 0..20u64 {
        let position = engine.commit(batch([put(1, &number.to_be_bytes(), &[9; 100])])).unwrap();
        if number == 9 {
            engine.wait_journaled(position).unwrap();
        }
    }
    let files = files.restart(Loss::Nothing);
    let segment = segment(&files);
    if version == Version::Seedless {
        files.tamper(&segment, |bytes| remove_seeds(bytes));
    }
    let synced = places(&files.read(&segment).unwrap())[10].end;
    (files, segment, synced)
}

#[test]
fn a_changed_bit_in_a_header_or_a_synced_frame_is_refused() {
    for version in [Version::Seedless, Version::Newest] {
        let (files, path, synced) = killed(version);
        for at in 0..synced {
            let damaged = files.restart(Loss::Nothing);
            damaged.tamper(&path, |bytes| bytes[at] ^= 1 << (at % 8));
            let error = open(&damaged).err();
            assert!(matches!(&error, Some(Error::Corrupted(_))), "{version:?}, {at}: {error:?}");
            if at < SEGMENT_HEADER_BYTES {
                let salvage = DiskEngine::salvage_on(Arc::new(damaged), &options()).unwrap();
                let saved = salvage.engine().snapshot().entries(Ident(1));
                assert_eq!((saved, salvage.lost()), (Ok(20), &[][..]), "{version:?}, {at}");
            }
        }
        // The lowest bit separates the two versions.
        let damaged = files.restart(Loss::Nothing);
        damaged.tamper(&path, |bytes| bytes[8] ^= 1);
        assert!(matches!(open(&damaged).err(), Some(Error::Corrupted(_))), "{version:?}");
    }
}

#[test]
fn a_segment_without_a_seed_is_followed_by_one_with_a_seed() {
    for cut in [0, 1] {
        let (files, old, _) = killed(Version::Seedless);
        let len = written(&files, &old);
        files.tamper(&old, |bytes| bytes.truncate(len - cut));
        let least = 20 - cut as u64;
        let engine = open(&files).unwrap();
        assert_eq!(engine.snapshot().entries(Ident(1)), Ok(least));
        let position = engine.commit(batch([put(1, b"new", b"1")])).unwrap();
        engine.wait_journaled(position).unwrap();
        assert!(files.read(&old).unwrap().len() <= len && segment(&files) > old);
        let files = files.restart(Loss::Everything);
        let header = files.read(&segment(&files)).unwrap();
        assert_ne!(journal::seed(header.first_chunk().unwrap()), NO_SEED);
        let engine = open(&files).unwrap();
        assert_eq!(engine.snapshot().entries(Ident(1)), Ok(least + 1));
        assert_eq!(files.paths().iter().filter(|path| path.starts_with("/data/journal")).count(), 3);
        engine.checkpoint().unwrap();
        assert!(files.read(&old).is_none());
    }
}
