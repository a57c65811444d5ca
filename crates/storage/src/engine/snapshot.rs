//! The traits for reading: a snapshot of all trees, and cursors over it.

use super::{Differences, RemoteHints, merged};
use crate::{Direction, Error, Ident, Key, Range, Result, Value, ValueRef};

/// One state of all trees, which does not change. Every call with the number of a tree fails with `NoSuchIdent` if
/// this state has no such tree.
pub trait Snapshot: Send + Sync {
    /// Returns the value of a key.
    fn get(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>>;

    /// Looks up an entry of a unique index, and the record that the first eight bytes of its value name. Returns the
    /// values of both. One round trip to a remote store.
    ///
    /// Fails with `Corrupted` if the record is missing.
    fn lookup(&self, index: Ident, key: &[u8], records: Ident) -> Result<Option<(Value, Value)>> {
        let Some(entry) = self.get(index, key)? else { return Ok(None) };
        let record = match entry.get(..8) {
            Some(id) => self.get(records, id)?,
            None => None,
        };
        match record {
            Some(record) => Ok(Some((entry, record))),
            None => Err(Error::Corrupted("an index entry refers to a missing record".to_string())),
        }
    }

    /// [`lookup`](Self::lookup) as the only read of this state. A remote store need not keep the state then, and a
    /// later read may be of a later state.
    fn lookup_alone(&self, index: Ident, key: &[u8], records: Ident) -> Result<Option<(Value, Value)>> {
        self.lookup(index, key, records)
    }

    /// A cursor over the entries of a range. It outlives the snapshot.
    fn scan(&self, ident: Ident, range: Range, direction: Direction) -> Result<Box<dyn Cursor>>;

    /// The differences of two trees; `None` stands for an empty tree. They outlive the snapshot. The time is that of a
    /// scan of both trees, except that forks of one tree may share parts that are skipped.
    fn differences(&self, before: Option<Ident>, after: Option<Ident>) -> Result<Box<dyn Differences>> {
        merged(self, before, after)
    }

    /// Returns the number of entries of a tree.
    fn entries(&self, ident: Ident) -> Result<u64>;

    /// Returns the total length of all keys and values in a tree.
    fn bytes(&self, ident: Ident) -> Result<u64>;

    /// Returns true if a tree exists.
    fn contains(&self, ident: Ident) -> Result<bool>;

    /// Reads everything that files hold of a tree, also what later changes hide, and returns the damage. Without files
    /// there is none. The call ends early once `should_continue` returns false.
    fn verify(&self, ident: Ident, should_continue: &mut dyn FnMut() -> bool) -> Result<Vec<Damage>> {
        let _ = should_continue;
        match self.contains(ident)? {
            true => Ok(Vec::new()),
            false => Err(Error::NoSuchIdent(ident)),
        }
    }

    /// The hints that a store with round trips takes. `None` for a store in this process.
    fn remote(&self) -> Option<&dyn RemoteHints> {
        None
    }
}

/// A place where the stored bytes are not the bytes that were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Key of the damaged entry, if the damage is limited to one.
    pub key: Option<Key>,
    /// Description and location of the damage.
    pub message: String,
}

/// A walk over the entries of a range: each once, in the order of their keys or the reverse.
pub trait Cursor: Send {
    /// Returns the next entry, borrowed until the next call; `None` at the end and in all later
    /// calls.
    fn next(&mut self) -> Result<Option<(&[u8], ValueRef<'_>)>>;

    /// Moves in the direction of the walk to the entry at `key`, or to the first entry behind it. Does nothing if the
    /// cursor has passed the key. Cheap if the key is near.
    fn seek(&mut self, key: &[u8]) -> Result<()>;

    /// Returns the number of entries left out since the last call, see [`Hints::contains`](crate::Hints::contains).
    fn take_omitted(&mut self) -> u64 {
        0
    }

    /// The record that the last entry names, once, if the cursor was opened with
    /// [`Hints::prefetch_records`](crate::Hints::prefetch_records) and its page carried the record.
    ///
    /// Fails as [`next`](Self::next) does.
    fn prefetched_record(&mut self) -> Result<Option<Value>> {
        Ok(None)
    }
}
