//! Keys as stored in the table. Keys too long for an index of PostgreSQL are truncated.
//!
//! A B-tree of PostgreSQL takes keys of about 2,700 bytes. The index holds a longer key as its first 2,000 bytes and
//! its SHA-256, and another column holds the whole key. The index alone therefore finds and distinguishes keys. Keys
//! that share 2,000 bytes are adjacent in the index, and a scan sorts them.

use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::ops::Bound;
use storage::{Ident, Range};

/// Maximum length of a key in the index, and the length of the kept prefix of longer keys.
pub(crate) const WHOLE: usize = 2000;

/// Returns a tree number as stored in the table.
pub(crate) fn ident(ident: Ident) -> i64 {
    ident.0 as i64
}

/// Returns the form of a key in the index.
pub(crate) fn stored(key: &[u8]) -> Cow<'_, [u8]> {
    match key.get(..WHOLE) {
        Some(head) if key.len() > WHOLE => Cow::Owned([head, &Sha256::digest(key)[..]].concat()),
        _ => Cow::Borrowed(key),
    }
}

/// Returns the whole key for its own column, if the index truncates it.
pub(crate) fn beside(key: &[u8]) -> Option<&[u8]> {
    (key.len() > WHOLE).then_some(key)
}

/// Returns the bounds of a range in the table, lower inclusive and upper exclusive. They may cover more than the range
/// if a bound is truncated.
pub(crate) fn bounds(range: &Range) -> (Vec<u8>, Vec<u8>) {
    let lower = match &range.lower {
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) => key[..key.len().min(WHOLE)].to_vec(),
        Bound::Excluded(key) if key.len() >= WHOLE => key[..WHOLE].to_vec(),
        Bound::Excluded(key) => [key, &[0][..]].concat(),
    };
    let upper = match &range.upper {
        // Greater than any possible key.
        Bound::Unbounded => vec![u8::MAX; WHOLE + 33],
        Bound::Excluded(key) if key.len() <= WHOLE => key.to_vec(),
        Bound::Included(key) if key.len() < WHOLE => [key, &[0][..]].concat(),
        Bound::Included(key) | Bound::Excluded(key) => run_end(&key[..WHOLE]),
    };
    (lower, upper)
}

/// Returns a bound behind all keys that share these first 2,000 bytes.
pub(crate) fn run_end(head: &[u8]) -> Vec<u8> {
    [head, &[u8::MAX; 33][..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::Key;

    #[test]
    fn what_is_in_a_range_is_within_its_bounds() {
        let long = |byte: u8, last: &[u8]| [&[byte; WHOLE][..], last].concat();
        let keys = [
            vec![],
            vec![0],
            vec![1, 2],
            vec![7; WHOLE - 1],
            vec![7; WHOLE],
            long(7, &[0]),
            long(7, &[9]),
            long(7, &[255; 50]),
            long(8, &[]),
            long(255, &[255; 99]),
            vec![255; 3],
        ];
        for lower in &keys {
            for upper in &keys {
                for range in [
                    Range { lower: Bound::Included(Key::from(lower.clone())), upper: Bound::Unbounded },
                    Range::half_open(lower.clone(), upper.clone()),
                    Range {
                        lower: Bound::Excluded(Key::from(lower.clone())),
                        upper: Bound::Included(Key::from(upper.clone())),
                    },
                ] {
                    let (low, high) = bounds(&range);
                    for key in keys.iter().filter(|key| range.contains(key)) {
                        let at = stored(key).to_vec();
                        assert!(low <= at && at < high, "{key:?} in {range:?}");
                    }
                }
            }
        }
        let (low, high) = bounds(&Range::all());
        assert!(low.is_empty() && stored(&[u8::MAX; WHOLE + 9]).as_ref() < &high[..]);
    }

    #[test]
    fn the_index_keeps_keys_apart_and_runs_together() {
        let (a, b) = ([1; WHOLE + 1], [1; WHOLE + 2]);
        assert_ne!(stored(&a), stored(&b));
        assert!(stored(&a).len() == WHOLE + 32 && stored(&a).as_ref() < run_end(&a[..WHOLE]).as_slice());
        assert_eq!((stored(&a[..WHOLE]).len(), beside(&a[..WHOLE]), beside(&a)), (WHOLE, None, Some(&a[..])));
    }
}
