//! The base compared with a map: random changes in many rounds, every view in use, and the space used.

mod delta;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::free_space::FreeSpace;
use super::superblock::SLOTS_UNITS;
use super::write::Numbers;
use super::*;
use crate::Key;
use crate::testing::FaultyFiles;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Round = Vec<(Vec<u8>, Option<Vec<u8>>)>;

struct Sorted(std::iter::Peekable<std::collections::btree_map::IntoIter<Vec<u8>, Option<Vec<u8>>>>);

impl Source for Sorted {
    fn peek(&mut self) -> Result<Option<&[u8]>> {
        Ok(self.0.peek().map(|(key, _)| key.as_slice()))
    }

    fn take(&mut self) -> Result<Option<(Key, Option<Value>)>> {
        Ok(self.0.next().map(|(key, value)| (Key::from(key), value.map(Value::from))))
    }
}

fn open(files: &FaultyFiles) -> Base {
    let control = Arc::new(Control::default());
    Base::open(Arc::new(files.clone()), "/base".into(), 1 << 16, Compression::Lz4, control).unwrap()
}

fn apply(base: &mut Base, table: u64, round: &Round, live: &BTreeSet<u64>) {
    let changes: BTreeMap<_, _> = round.iter().cloned().collect();
    let numbers = Numbers { position: 1, time: 2, next_table: 9 };
    let written = base.checkpoint(numbers, &|| true, |to| {
        if !changes.is_empty() {
            to.merge(table, &mut Sorted(changes.into_iter().peekable()))?;
        }
        to.retain_tables(live)
    });
    written.unwrap();
}

/// Applies changes that may stay pending. `model` is the expected table.
fn apply_in_parts(base: &mut Base, table: u64, round: &Round, model: &Model) {
    let changes: BTreeMap<_, _> = round.iter().cloned().collect();
    let bytes = model.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
    let share = Share { changes: changes.len() as u64, entries: model.len() as u64, bytes };
    let numbers = Numbers { position: 1, time: 2, next_table: 9 };
    let sorted = || Sorted(changes.clone().into_iter().peekable());
    base.checkpoint(numbers, &|| true, |to| to.change(table, share, sorted)).unwrap();
}

fn change(model: &mut Model, round: &Round) {
    for (key, value) in round.iter().cloned() {
        match value {
            Some(value) => _ = model.insert(key, value),
            None => _ = model.remove(&key),
        }
    }
}

fn contents(view: &Arc<View>, table: u64, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    if let Some(mut cursor) = view.scan(table, Range::all(), direction).unwrap() {
        while let Some((key, value)) = cursor.next().unwrap() {
            entries.push((key.to_vec(), value.to_vec()));
        }
    }
    entries
}

fn compare(view: &Arc<View>, table: u64, model: &Model) {
    let expected: Vec<_> = model.clone().into_iter().collect();
    assert_eq!(contents(view, table, Direction::Forward), expected);
    let mut backward = contents(view, table, Direction::Backward);
    backward.reverse();
    assert_eq!(backward, expected);
    assert_eq!(view.verify(table, &mut || true), Vec::new());
    for (key, value) in model.iter().step_by(7) {
        assert_eq!(view.get(table, key).unwrap().as_deref(), Some(value.as_slice()));
    }
}

/// Space that is neither free nor waiting is exactly the reachable space.
fn check_free_space(base: &mut Base) {
    let used = base.current.extents().unwrap();
    let end = base.free_space().end();
    let reached = FreeSpace::around(SLOTS_UNITS, used, end).unwrap();
    assert_eq!(base.live_bytes(), reached.live() * 512);
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0u32..4000).prop_map(|number| number.to_be_bytes().to_vec()),
        3 => (0u32..300).prop_map(|number| format!("a common beginning of many keys {number}").into_bytes()),
        1 => (0u8..20, 1usize..2000).prop_map(|(byte, len)| vec![byte; len]),
        1 => Just(Vec::new()),
    ]
}

fn value() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        2 => Just(None),
        4 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Some),
        1 => (any::<u8>(), 500usize..5000).prop_map(|(byte, len)| Some(vec![byte; len])),
    ]
}

/// Random changes, runs of adjacent puts, and runs of adjacent deletions.
fn round() -> impl Strategy<Value = Round> {
    let runs = (0u32..4000, 0u32..1500, any::<bool>()).prop_map(|(from, len, put)| {
        (from..from + len).map(|number| (number.to_be_bytes().to_vec(), put.then(|| vec![7; 12]))).collect()
    });
    prop_oneof![3 => prop::collection::vec((key(), value()), 1..60), 2 => runs]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_base_is_a_map(
        rounds in prop::collection::vec((1u64..3, round(), any::<bool>(), 0..8), 1..25),
    ) {
        let files = FaultyFiles::new();
        make(&files, Path::new("/base")).unwrap();
        let mut base = open(&files);
        let mut models = BTreeMap::from([(1, Model::new()), (2, Model::new())]);
        let mut views = Vec::new();
        for (table, round, hold, way) in rounds {
            let model = models.get_mut(&table).unwrap();
            change(model, &round);
            match way {
                0 => apply(&mut base, table, &round, &BTreeSet::from([1, 2])),
                _ => apply_in_parts(&mut base, table, &round, model),
            }
            check_free_space(&mut base);
            if hold {
                views.push((base.view(), models.clone()));
            }
            if views.len() > 3 {
                views.remove(0);
            }
        }
        views.push((base.view(), models.clone()));
        for (view, models) in &views {
            models.iter().for_each(|(table, model)| compare(view, *table, model));
        }
        drop((views, base));
        let mut base = open(&files);
        models.iter().for_each(|(table, model)| compare(&base.view(), *table, model));
        check_free_space(&mut base);
        apply(&mut base, 1, &Vec::new(), &BTreeSet::from([2]));
        assert_eq!(contents(&base.view(), 1, Direction::Forward), Vec::new());
        compare(&base.view(), 2, &models[&2]);
        check_free_space(&mut base);
    }
}

/// Entries in order fill their pages, and deletions leave no small pages.
#[test]
fn pages_are_neither_small_nor_many() {
    let files = FaultyFiles::new();
    make(&files, Path::new("/base")).unwrap();
    let mut base = open(&files);
    let all = BTreeSet::from([1]);
    let pages = |base: &Base| base.current.extents().unwrap().len();
    for from in (0..20_000u32).step_by(2000) {
        let round = (from..from + 2000).map(|number| (number.to_be_bytes().to_vec(), Some(vec![1; 44])));
        apply(&mut base, 1, &round.collect(), &all);
    }
    // About fifty bytes each, a kilobyte per page.
    assert!((900..1250).contains(&pages(&base)), "{}", pages(&base));
    for rest in 1..20u32 {
        let gone = (0..20_000u32).filter(|number| number % 20 == rest);
        apply(&mut base, 1, &gone.map(|number| (number.to_be_bytes().to_vec(), None)).collect(), &all);
    }
    assert_eq!(contents(&base.view(), 1, Direction::Forward).len(), 1000);
    assert!(pages(&base) < 200, "{}", pages(&base));
    check_free_space(&mut base);
}

/// An unreadable page loses only its contents. Other pages are found, and walks continue after it.
#[test]
fn a_damaged_page_hides_no_other() {
    let files = FaultyFiles::new();
    make(&files, Path::new("/base")).unwrap();
    let mut base = open(&files);
    let round: Round = (0..900u32).map(|number| (number.to_be_bytes().to_vec(), Some(vec![1; 44]))).collect();
    apply(&mut base, 1, &round, &BTreeSet::from([1]));
    let mut leaves = Vec::new();
    base.current.table(1).unwrap().unwrap().entries.walk(&mut |handle, page| {
        leaves.extend(page.ok().filter(|page| page.height() == 0).map(|page| (handle, page)));
        true
    });
    drop(base);
    assert!(leaves.len() > 40);
    for (handle, page) in [&leaves[0], &leaves[leaves.len() / 2], &leaves[leaves.len() - 1]] {
        let at = handle.offset as usize * 512 + 20;
        files.tamper(Path::new("/base"), |bytes| bytes[at] ^= 1);
        let base = open(&files);
        let view = base.view();
        assert!(matches!(view.get(1, &page.key(0)), Err(Error::Corrupted(_))));
        for direction in [Direction::Forward, Direction::Backward] {
            let mut cursor = view.scan(1, Range::all(), direction).unwrap().unwrap();
            let (mut found, mut errors) = (0, 0);
            loop {
                match cursor.next() {
                    Ok(Some(_)) => found += 1,
                    Ok(None) => break,
                    Err(_) => errors += 1,
                }
            }
            assert_eq!((found, errors), (900 - page.len() as u64, 1), "{handle:?}");
        }
        let damages = view.verify(1, &mut || true);
        assert!(
            damages.len() == 1 && damages[0].message.contains(&format!("offset {}", at - 20)),
            "{damages:?}"
        );
        files.tamper(Path::new("/base"), |bytes| bytes[at] ^= 1);
    }
}

/// A page of zeros, as left by disks, in every role: leaf, inner page, or catalog tree. Readers get its place. A
/// checkpoint fails or works without it, and its data is found.
#[test]
fn a_page_of_zeros_is_reported() {
    let (files, path) = (FaultyFiles::new(), Path::new("/base"));
    make(&files, path).unwrap();
    let mut base = open(&files);
    let numbers = || Numbers { position: 1, time: 2, next_table: 200 };
    let entries = |numbers: std::ops::Range<u32>| {
        let changes: BTreeMap<_, _> =
            numbers.map(|number| (number.to_be_bytes().to_vec(), Some(vec![1; 44]))).collect();
        Sorted(changes.into_iter().peekable())
    };
    base.checkpoint(numbers(), &|| true, |to| {
        (0..200).for_each(|ident| to.note(Ident(ident), Some([ident, 1, 1])));
        (1..200)
            .try_for_each(|table| to.merge(table, &mut entries(if table == 1 { 0..3000 } else { 0..1 })))?;
        to.retain_tables(&(1..200).collect())
    })
    .unwrap();
    let heights = [IDENTS_TABLE, TABLES_TABLE, 1].map(|table| match table {
        1 => base.current.table(1).unwrap().unwrap().entries.tree.height,
        IDENTS_TABLE => base.current.root.idents.unwrap().height,
        _ => base.current.root.tables.unwrap().height,
    });
    assert!(heights.iter().all(|height| *height > 0), "{heights:?}");
    let extents = base.current.extents().unwrap();
    drop(base);
    let original = files.read(path).unwrap();
    // All inner pages, and some leaves.
    let (mut named, step) = (0, extents.len() / 150);
    for (number, extent) in
        extents.iter().enumerate().filter(|(number, _)| *number < 60 || number % step == 0)
    {
        let (at, len) = (extent.offset as usize * 512, extent.units as usize * 512);
        files.tamper(path, |bytes| bytes[at..at + len].fill(0));
        let mut base = open(&files);
        let view = base.view();
        let mut reported: Vec<String> = base.load().err().iter().map(ToString::to_string).collect();
        (1..200).for_each(|table| {
            reported.extend(view.verify(table, &mut || true).into_iter().map(|damage| damage.message))
        });
        let message = format!("/base: the page at offset {at}, of table ");
        assert!(reported.iter().any(|reported| reported.contains(&message)), "{number}: {reported:?}");
        let written = base.checkpoint(numbers(), &|| true, |to| to.merge(1, &mut entries(1500..4500)));
        match written {
            Err(error) => {
                assert!(error.to_string().contains(&format!("offset {at}")), "{error}");
                named += 1;
            }
            Ok(_) => {
                drop((view, base));
                let found = open(&files).view().get(1, &4000u32.to_be_bytes());
                assert!(found.as_ref().is_ok_and(Option::is_some), "{number}: {found:?}");
            }
        }
        files.tamper(path, |bytes| bytes.clone_from(&original));
    }
    assert!(named > 5, "{named}");
    // A slot of the superblock has a copy. Without any slot the base is lost.
    for slot in 0..4 {
        files.tamper(path, |bytes| bytes[slot * 4096..][..4096].fill(0));
        assert_eq!(open(&files).load().unwrap().trees.len(), 200);
        files.tamper(path, |bytes| bytes.clone_from(&original));
    }
    files.tamper(path, |bytes| bytes[..4 * 4096].fill(0));
    let control = Arc::new(Control::default());
    let opened = Base::open(Arc::new(files.clone()), "/base".into(), 1 << 16, Compression::Lz4, control);
    let reported = opened.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(reported.contains("/base has no valid superblock"), "{reported}");
}

/// Long keys with a common prefix have long separators. The tree stays flat, though two of them exceed a page.
#[test]
fn long_separators_make_no_chain_of_pages() {
    let files = FaultyFiles::new();
    make(&files, Path::new("/base")).unwrap();
    let mut base = open(&files);
    let key = |number: u32| [vec![b'x'; 3000], number.to_be_bytes().to_vec()].concat();
    let all: Model = (0..60).map(|number| (key(number), vec![1])).collect();
    let round = all.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
    apply(&mut base, 1, &round, &BTreeSet::from([1]));
    compare(&base.view(), 1, &all);
    let height = base.current.roots(1).unwrap().unwrap().entries.height;
    assert!(height <= 4, "height {height}");
    check_free_space(&mut base);
}
