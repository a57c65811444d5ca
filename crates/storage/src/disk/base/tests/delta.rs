//! Pending changes (`base/delta.rs`).

use std::ops::Bound;

use super::*;

/// Returns the number of entries in a table's entry pages, and of its pending changes.
fn tiers(base: &Base, table: u64) -> (u64, u64) {
    let stored = base.current.roots(table).unwrap();
    stored.map_or((0, 0), |stored| (stored.entries.entries, stored.delta.map_or(0, |tree| tree.entries)))
}

/// A few changes all over a table stay pending, and leaves with many changes are written. Each change is written a few
/// times instead of one page per change.
#[test]
fn few_changes_wait_for_more() {
    let files = FaultyFiles::new();
    make(&files, Path::new("/base")).unwrap();
    let mut base = open(&files);
    let number = |number: u64| (number % 50_021 * 7).to_be_bytes().to_vec();
    let all: Round = (0..50_021u64).step_by(3).map(|at| (number(at), Some(vec![1; 12]))).collect();
    let mut model = Model::new();
    change(&mut model, &all);
    apply_in_parts(&mut base, 1, &all, &model);
    assert_eq!(tiers(&base, 1).1, 0, "a table that is made");
    let offsets = |base: &Base| {
        let mut offsets = BTreeSet::new();
        let mut note = |handle: page::PageHandle, page: Result<Arc<page::Page>>| {
            let is_leaf = page.unwrap().height() == 0;
            is_leaf.then(|| offsets.insert(handle.offset));
            true
        };
        base.current.table(1).unwrap().unwrap().entries.walk(&mut note);
        offsets
    };
    let (mut most, mut written, mut total) = (0, 0, 0);
    for round in 0..40u64 {
        // Changes of new, existing and deleted keys. The last may never have existed.
        let at = |at: u64| number((round * 150 + at).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20);
        let changes: Round =
            (0..150).map(|key| (at(key), (key % 3 > 0).then(|| vec![round as u8; 12]))).collect();
        change(&mut model, &changes);
        let before = offsets(&base);
        apply_in_parts(&mut base, 1, &changes, &model);
        let after = offsets(&base);
        (written, total) = (written + after.difference(&before).count(), total + after.len());
        most = most.max(tiers(&base, 1).1);
        compare(&base.view(), 1, &model);
        check_free_space(&mut base);
    }
    assert!(most > 300 && most < 5000, "{most} changes waited");
    assert!(written * 3 < total, "{written} of {total} pages were written");
    // Many changes at once, and later a small table, leave no changes pending.
    let removed: Round = model.keys().skip(300).map(|key| (key.clone(), None)).collect();
    change(&mut model, &removed);
    apply_in_parts(&mut base, 1, &removed, &model);
    assert_eq!(tiers(&base, 1), (300, 0));
    compare(&base.view(), 1, &model);
    check_free_space(&mut base);
}

/// Seeks and ranges in both directions with pending changes.
#[test]
fn cursors_see_changes_that_wait() {
    let files = FaultyFiles::new();
    make(&files, Path::new("/base")).unwrap();
    let mut base = open(&files);
    let key = |number: u32| number.to_be_bytes().to_vec();
    let all: Round = (0..6000u32).map(|number| (key(number * 2), Some(vec![1; 12]))).collect();
    let mut model = Model::new();
    change(&mut model, &all);
    apply_in_parts(&mut base, 1, &all, &model);
    // A put after each kept key, a replaced key, a deleted key; keys before and after all.
    let few: Round = (0..12_000u32)
        .step_by(97)
        .flat_map(|at| {
            [(key(at), Some(vec![2; 9])), (key(at + 1), Some(Vec::new())), (key((at + 8) & !1), None)]
        })
        .collect();
    change(&mut model, &few);
    apply_in_parts(&mut base, 1, &few, &model);
    assert!(tiers(&base, 1).1 > 200, "{:?}", tiers(&base, 1));
    let view = base.view();
    for (at, (low, high)) in (0..12_000u32).step_by(53).map(|low| (low, low + low % 301)).enumerate() {
        let (low, high) = (key(low), key(high));
        let range = match at % 3 {
            0 => Range::half_open(low.clone(), high.clone()),
            1 => {
                Range { lower: Bound::Excluded(Key::from(&*low)), upper: Bound::Included(Key::from(&*high)) }
            }
            _ => {
                Range { lower: Bound::Included(Key::from(&*low)), upper: Bound::Included(Key::from(&*high)) }
            }
        };
        let expected: Vec<_> = model
            .iter()
            .filter(|(key, _)| if at % 3 == 1 { **key > low } else { **key >= low })
            .filter(|(key, _)| if at % 3 == 0 { **key < high } else { **key <= high })
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let mut found = Vec::new();
            if let Some(mut cursor) = view.scan(1, range.clone(), direction).unwrap() {
                while let Some((key, value)) = cursor.next().unwrap() {
                    found.push((key.to_vec(), value.to_vec()));
                }
            }
            if direction == Direction::Backward {
                found.reverse();
            }
            assert_eq!(found, expected, "{range:?}");
            // Between any two keys, with or without a lookahead.
            let mut cursor = view.scan(1, Range::all(), direction).unwrap().unwrap();
            let (from, to) = if direction == Direction::Forward { (&low, &high) } else { (&high, &low) };
            cursor.seek(from).unwrap();
            if at % 2 == 0 {
                cursor.peek().unwrap();
            }
            cursor.seek(to).unwrap();
            let next = match direction {
                Direction::Forward => model.range(to.clone()..).next(),
                Direction::Backward => model.range(..=to.clone()).next_back(),
            };
            assert_eq!(cursor.peek().unwrap(), next.map(|(key, _)| key.as_slice()));
            let found = cursor.next().unwrap();
            assert_eq!(found, next.map(|(key, value)| (key.as_slice(), value.as_slice())));
        }
    }
    for number in 0..12_100 {
        let found = view.get(1, &key(number)).unwrap();
        assert_eq!(found.as_deref(), model.get(&key(number)).map(Vec::as_slice));
        assert_eq!(view.value_len(1, &key(number)).unwrap(), found.map(|value| value.len()));
    }
}

/// If a page of pending changes is unreadable, no reader gets the older entries. Only salvage does.
#[test]
fn a_damaged_delta_page_is_reported() {
    let files = FaultyFiles::new();
    make(&files, Path::new("/base")).unwrap();
    let mut base = open(&files);
    let key = |number: u32| number.to_be_bytes().to_vec();
    let all: Round = (0..6000u32).map(|number| (key(number), Some(vec![1; 12]))).collect();
    let mut model = Model::new();
    change(&mut model, &all);
    apply_in_parts(&mut base, 1, &all, &model);
    let few: Round = (0..6000u32).step_by(20).map(|at| (key(at), Some(vec![2; 12]))).collect();
    change(&mut model, &few);
    apply_in_parts(&mut base, 1, &few, &model);
    let mut pages = Vec::new();
    let table = base.current.table(1).unwrap().unwrap();
    table.delta.as_ref().unwrap().walk(&mut |handle, page| {
        pages.push((handle, page.unwrap()));
        true
    });
    drop((table, base));
    assert!(pages.len() > 3 && pages[0].1.height() == 1, "{}", pages.len());
    for (handle, page) in &pages {
        let at = handle.offset as usize * 512 + 20;
        files.tamper(Path::new("/base"), |bytes| bytes[at] ^= 1);
        let mut base = open(&files);
        let view = base.view();
        let mut lost = 0;
        for changed in (0..6000u32).step_by(20) {
            match view.get(1, &key(changed)) {
                Ok(value) => assert_eq!(value.as_deref(), Some(&[2; 12][..])),
                Err(error) => {
                    lost += 1;
                    assert!(error.to_string().contains(&format!("offset {}", at - 20)), "{error}");
                }
            }
        }
        assert_eq!(lost, if page.height() > 0 { 300 } else { page.len() });
        let damages = view.verify(1, &mut || true);
        assert!(damages.len() == 1 && damages[0].message.contains(&format!("offset {}", at - 20)));
        let (mut entries, mut before, mut reported) = (0, 0, 0);
        let saved = view.read_all(1, &mut |found| {
            match found {
                TableItem::Damage(_) => reported += 1,
                TableItem::Entry(key, value) => {
                    entries += 1;
                    let number = u32::from_be_bytes(key.try_into().unwrap());
                    before += usize::from(number % 20 == 0 && value[0] == 1);
                }
            }
            Ok(true)
        });
        assert_eq!((saved, entries, before, reported), (Ok(()), 6000, lost, 1));
        // Checkpoints that need the page fail and change nothing.
        let numbers = Numbers { position: 1, time: 2, next_table: 9 };
        let sorted = || Sorted(few.iter().cloned().collect::<BTreeMap<_, _>>().into_iter().peekable());
        let share = Share { changes: 300, entries: 6000, bytes: 96_000 };
        let refused = base.checkpoint(numbers, &|| true, |to| to.change(1, share, sorted));
        assert!(matches!(refused, Err(Error::Corrupted(_))), "{refused:?}");
        files.tamper(Path::new("/base"), |bytes| bytes[at] ^= 1);
        compare(&open(&files).view(), 1, &model);
    }
}
