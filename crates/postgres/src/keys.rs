//! Keys as stored in the table. Keys too long for an index of PostgreSQL are truncated.
//!
//! A B-tree of PostgreSQL takes keys of about 2,700 bytes. The index holds a longer key as its first 2,000 bytes and
//! its SHA-256, and another column holds the whole key. The index alone therefore finds and distinguishes keys. Keys
//! that share 2,000 bytes are adjacent in the index, and a scan sorts them.

use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::ops::Bound;
use storage::{Ident, Range};

/// Maximum length of a key in the index in bytes, and the length of the prefix of longer keys.
pub(crate) const PREFIX: usize = 2000;

/// Returns a tree number as stored in the table.
pub(crate) fn stored_ident(ident: Ident) -> i64 {
    ident.0 as i64
}

/// Returns the form of a key in the index.
pub(crate) fn index_key(key: &[u8]) -> Cow<'_, [u8]> {
    match key.get(..PREFIX) {
        Some(head) if key.len() > PREFIX => Cow::Owned([head, &Sha256::digest(key)[..]].concat()),
        _ => Cow::Borrowed(key),
    }
}

/// Returns the whole key for its own column, if the index truncates it.
pub(crate) fn long_key(key: &[u8]) -> Option<&[u8]> {
    (key.len() > PREFIX).then_some(key)
}

/// Returns the bounds of a range in the table, lower inclusive and upper exclusive. They may cover more than the range
/// if a bound is truncated.
pub(crate) fn bounds(range: &Range) -> (Vec<u8>, Vec<u8>) {
    let lower = match &range.lower {
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) => key[..key.len().min(PREFIX)].to_vec(),
        Bound::Excluded(key) if key.len() >= PREFIX => key[..PREFIX].to_vec(),
        Bound::Excluded(key) => [key, &[0][..]].concat(),
    };
    let upper = match &range.upper {
        // Greater than any possible key.
        Bound::Unbounded => vec![u8::MAX; PREFIX + 33],
        Bound::Excluded(key) if key.len() <= PREFIX => key.to_vec(),
        Bound::Included(key) if key.len() < PREFIX => [key, &[0][..]].concat(),
        Bound::Included(key) | Bound::Excluded(key) => prefix_end(&key[..PREFIX]),
    };
    (lower, upper)
}

/// Returns a bound behind all keys that share these first 2,000 bytes.
pub(crate) fn prefix_end(head: &[u8]) -> Vec<u8> {
    [head, &[u8::MAX; 33][..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::Key;

    #[test]
    fn keys_of_a_range_are_within_its_bounds() {
        let long = |byte: u8, last: &[u8]| [&[byte; PREFIX][..], last].concat();
        let keys = [
            vec![],
            vec![0],
            vec![1, 2],
            vec![7; PREFIX - 1],
            vec![7; PREFIX],
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
                        let at = index_key(key).to_vec();
                        assert!(low <= at && at < high, "{key:?} in {range:?}");
                    }
                }
            }
        }
        let (low, high) = bounds(&Range::all());
        assert!(low.is_empty() && index_key(&[u8::MAX; PREFIX + 9]).as_ref() < &high[..]);
    }

    #[test]
    fn the_index_keeps_keys_apart_and_runs_together() {
        let (a, b) = ([1; PREFIX + 1], [1; PREFIX + 2]);
        assert_ne!(index_key(&a), index_key(&b));
        assert!(
            index_key(&a).len() == PREFIX + 32
                && index_key(&a).as_ref() < prefix_end(&a[..PREFIX]).as_slice()
        );
        assert_eq!(
            (index_key(&a[..PREFIX]).len(), long_key(&a[..PREFIX]), long_key(&a)),
            (PREFIX, None, Some(&a[..]))
        );
    }
}
