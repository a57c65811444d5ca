//! A cursor whose every step is checked: order, bounds, seeks, and what it has found at its end.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use super::{Seen, is_an_answer};
use crate::{Cursor, Direction, Ident, Key, Lent, Range, Result, Snapshot};

/// Every so many entries of a scan looked at closely are compared with what `get` says.
const COMPARE_EVERY: u64 = 16;

/// A cursor, and what is known of its walk.
pub(super) struct CheckedCursor {
    pub(super) inner: Box<dyn Cursor>,
    pub(super) walk: Walk,
}

impl Cursor for CheckedCursor {
    fn next(&mut self) -> Result<Option<(&[u8], Lent<'_>)>> {
        let next = self.inner.next();
        match &next {
            Ok(next) => self.walk.step(*next),
            // Whoever goes on behind an entry that cannot be read misses it.
            Err(_) => self.walk.counted = None,
        }
        next
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.walk.seek(key);
        self.inner.seek(key)
    }
}

/// What a cursor was asked for, and what it has handed out.
pub(super) struct Walk {
    ident: Ident,
    range: Range,
    direction: Direction,
    /// The key handed out last, once there is one.
    latest: Vec<u8>,
    entries: u64,
    /// The farthest key sought.
    sought: Option<Key>,
    /// Whether that was sought since the latest entry.
    landing: bool,
    /// How many entries the tree has, if none was left out so far: the range is everything, and there was no
    /// seek.
    counted: Option<u64>,
    finished: bool,
    close: Option<Close>,
}

/// What a closer look needs.
struct Close {
    snapshot: Arc<dyn Snapshot>,
    seen: Seen,
    checksum: u64,
}

impl Walk {
    /// A walk that begins. It is looked at closely if the snapshot that it belongs to is given.
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

    fn step(&mut self, next: Option<(&[u8], Lent<'_>)>) {
        if std::mem::take(&mut self.landing) {
            self.check_landing(next.map(|(key, _)| key));
        }
        match next {
            Some((key, value)) => self.check(key, value),
            None => self.finish(),
        }
    }

    fn check(&mut self, key: &[u8], value: Lent<'_>) {
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

    /// After the last entry of a complete scan: it must have found what is counted, and the same as before.
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

    /// After a seek to a key in the range that is there: the cursor must not jump over it.
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
    /// Looks at the entry with so many before it.
    fn look(&mut self, ident: Ident, before: u64, key: &[u8], value: Lent<'_>) {
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
