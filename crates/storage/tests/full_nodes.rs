//! Compares the tree with full-size nodes with the standard library's map.
//!
//! Unit tests use small nodes, in which splits and merges happen early. This test uses the crate
//! with its real node sizes, and builds a tree that is large enough for several levels.

use std::collections::BTreeMap;
use std::ops::Bound;

use storage::memory::Tree;
use storage::{Direction, Key, Range};

type Model = BTreeMap<Vec<u8>, u64>;

/// Pseudo-random numbers, equal in every run.
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7
}

/// Keys of three kinds: record ids, short strings with long common prefixes, long strings.
fn key(number: u64) -> Vec<u8> {
    match number % 4 {
        0 | 1 => (number % 50_000).to_be_bytes().to_vec(),
        2 => format!("a common beginning of more than 24 bytes {}", number % 9_000).into_bytes(),
        _ => [vec![b'x'; 300], (number % 3_000).to_le_bytes().to_vec()].concat(),
    }
}

fn assert_same(tree: &Tree<u64>, model: &Model) {
    assert_eq!(tree.len(), model.len());
    let mut cursor = tree.cursor(Range::all(), Direction::Forward);
    for (key, value) in model {
        assert_eq!(cursor.next(), Some((key.as_slice(), value)));
    }
    assert_eq!(cursor.next(), None);
    let mut cursor = tree.cursor(Range::all(), Direction::Backward);
    for (key, value) in model.iter().rev() {
        assert_eq!(cursor.next(), Some((key.as_slice(), value)));
    }
    assert_eq!(cursor.next(), None);
}

fn assert_same_ranges(tree: &Tree<u64>, model: &Model) {
    for number in 0..500 {
        let from = key(scattered(number));
        let range = Range { lower: Bound::Excluded(Key::from(from.as_slice())), upper: Bound::Unbounded };
        let mut cursor = tree.cursor(range, Direction::Forward);
        let mut expected = model.range((Bound::Excluded(from), Bound::Unbounded)).take(100);
        assert!(expected.all(|(key, value)| cursor.next() == Some((key.as_slice(), value))));
        let target = key(scattered(number + 1000));
        cursor.seek(&target);
        if let Some((found, _)) = cursor.next() {
            let next = model.range(target..).next();
            assert!(next.is_some_and(|(key, _)| key.as_slice() <= found));
        }
    }
}

#[test]
fn a_deep_tree_behaves_as_the_standard_map() {
    let (mut tree, mut model, mut clones) = (Tree::new(), Model::new(), Vec::new());
    for number in 0..120_000 {
        let key = key(scattered(number));
        assert_eq!(tree.insert(&key, number), model.insert(key, number));
        if number % 40_000 == 0 {
            clones.push((tree.clone(), model.clone()));
        }
    }
    assert_same(&tree, &model);
    assert_same_ranges(&tree, &model);
    clones.push((tree.clone(), model.clone()));
    // Removes entries everywhere, then the beginning, as in the trimming of an oplog.
    for number in (0..120_000).filter(|number| number % 3 != 0) {
        let key = key(scattered(number));
        assert_eq!(tree.remove(&key), model.remove(&key));
    }
    assert_same(&tree, &model);
    assert_same_ranges(&tree, &model);
    while model.len() > 100 {
        let first = model.pop_first();
        assert!(first.is_some_and(|(key, value)| tree.remove(&key) == Some(value)));
    }
    assert_same(&tree, &model);
    clones.iter().for_each(|(tree, model)| assert_same(tree, model));
}
