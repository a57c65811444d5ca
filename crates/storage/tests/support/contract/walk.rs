//! A cursor that checks every step: order, bounds, seeks, and the count at the end.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use super::{Seen, is_an_answer};
use crate::{Cursor, Direction, Ident, Key, Range, Result, Snapshot, ValueRef};

/// Interval of entries that a close check compares with `get`.
const COMPARE_EVERY: u64 = 16;

/// A cursor with the state of its checks.
pub(super) struct CheckedCursor {
    pub(super) inner: Box<dyn Cursor>,
    pub(super) walk: Walk,
}

impl Cursor for CheckedCursor {
    fn next(&mut self) -> Result<Option<(&[u8], ValueRef<'_>)>> {
        let next = self.inner.next();
        match &next {
            Ok(next) => self.walk.step(*next),
            // A scan that continues after an unreadable entry misses it.
            Err(_) => self.walk.counted = None,
        }
        next
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.walk.seek(key);
        self.inner.seek(key)
    }
}

/// The arguments and results of a cursor.
pub(super) struct Walk {
    ident: Ident,
    range: Range,
    direction: Direction,
    /// The latest key, if any.
    latest: Vec<u8>,
    entries: u64,
    /// The farthest sought key.
    sought: Option<Key>,
    /// True if it was sought after the latest entry.
    landing: bool,
    /// Number of entries of the tree, if none was omitted so far: the range is unbounded, and no
    /// seek happened.
    counted: Option<u64>,
    finished: bool,
    close: Option<Close>,
}

/// State of a close check.
struct Close {
    snapshot: Arc<dyn Snapshot>,
    seen: Seen,
    checksum: u64,
}

impl Walk {
    /// Returns the state of a new scan. The check is close if its snapshot is given.
    pub(super) fn new(
        ident: Ident,
        range: Range,
        direction: Direction,
        counted: Option<u64>,
        snapshot: Option<(Arc<dyn Snapshot>, Seen)>,
    ) -> Self {
        Walk {
            ident,
            range,
            direction,
            latest: Vec::new(),
            entries: 0,
            sought: None,
            landing: false,
            counted,
            finished: false,
            close: snapshot.map(|(snapshot, seen)| Close { snapshot, seen, checksum: 0 }),
        }
    }

    fn seek(&mut self, key: &[u8]) {
        self.counted = None;
        if self.sought.as_ref().is_none_or(|sought| self.direction.is_before(sought, key)) {
            self.sought = Some(Key::from(key));
            self.landing = true;
        }
    }

    fn step(&mut self, next: Option<(&[u8], ValueRef<'_>)>) {
        if std::mem::take(&mut self.landing) {
            self.check_landing(next.map(|(key, _)| key));
        }
        match next {
            Some((key, value)) => self.check(key, value),
            None => self.finish(),
        }
    }

    fn check(&mut self, key: &[u8], value: ValueRef<'_>) {
        let shown = || Key::from(key);
        assert!(!self.finished, "a cursor that has ended must not go on");
        assert!(self.range.contains(key), "{:?} is outside of {:?}", shown(), self.range);
        let latest = self.latest.as_slice();
        let ordered = self.entries == 0 || self.direction.is_before(latest, key);
        assert!(ordered, "{:?} must not come after {:?}", shown(), Key::from(latest));
        if let Some(sought) = &self.sought {
            assert!(
                !self.direction.is_before(key, sought),
                "{:?} must not come after a seek to {sought:?}",
                shown()
            );
        }
        if let Some(close) = &mut self.close {
            close.look(self.ident, self.entries, key, value);
        }
        self.entries += 1;
        self.latest.clear();
        self.latest.extend_from_slice(key);
    }

    /// At the end of a complete scan: the count must match the tree's count and an earlier scan.
    fn finish(&mut self) {
        if let Some(counted) = self.counted
            && !self.finished
        {
            assert_eq!(counted, self.entries, "entries and a whole scan must agree");
            if let Some(close) = &self.close {
                close.compare(self.ident, self.entries);
            }
        }
        self.finished = true;
    }

    /// After a seek to an existing key in the range: the cursor must not skip it.
    fn check_landing(&self, next: Option<&[u8]>) {
        let (Some(sought), Some(close)) = (&self.sought, &self.close) else { return };
        let passed = self.entries > 0 && !self.direction.is_before(&self.latest, sought);
        if passed || !self.range.contains(sought) {
            return;
        }
        if let Ok(Some(_)) = close.snapshot.get(self.ident, sought) {
            let next = next.map(Key::from);
            assert_eq!(next.as_ref(), Some(sought), "a seek must not jump over the key sought");
        }
    }
}

impl Close {
    /// Checks the entry at this position.
    fn look(&mut self, ident: Ident, before: u64, key: &[u8], value: ValueRef<'_>) {
        if before.is_multiple_of(COMPARE_EVERY) {
            let read = self.snapshot.get(ident, key);
            let same = !is_an_answer(&read) || matches!(&read, Ok(Some(read)) if **read == *value);
            assert!(same, "get and scan must agree on {:?}: {read:?}, {value:?}", Key::from(key));
        }
        let mut hasher = DefaultHasher::new();
        hasher.write(key);
        hasher.write_u8(0);
        hasher.write(&value);
        self.checksum ^= hasher.finish();
    }

    /// Compares a complete scan with an earlier one.
    fn compare(&self, ident: Ident, entries: u64) {
        let found = (entries, self.checksum);
        let first = *self.seen.lock().entry(ident).or_insert(found);
        assert_eq!(first, found, "a snapshot must not change between two scans");
    }
}
