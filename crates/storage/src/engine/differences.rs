//! Differences of two trees of one state.

use super::{Cursor, Snapshot};
use crate::{Direction, Ident, Key, Range, Result, Value};
use std::cmp::Ordering;

/// Number of equal entries between two interrupt checks.
const ASK: u32 = 256;

/// An entry that differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The key.
    pub key: Key,
    /// The value in the first tree.
    pub before: Option<Value>,
    /// The value in the second tree.
    pub after: Option<Value>,
}

/// A scan over the differences of two trees, in key order.
pub trait Differences: Send {
    /// Returns the next difference; `None` at the end and in all later calls. Calls `should_continue` from
    /// time to time while entries are equal. If it returns false, the result is also `None`, and
    /// the next call continues.
    fn next(&mut self, should_continue: &mut dyn FnMut() -> bool) -> Result<Option<Difference>>;
}

/// Reads both trees completely, for engines whose trees share nothing.
pub(crate) fn merged<S: Snapshot + ?Sized>(
    snapshot: &S,
    before: Option<Ident>,
    after: Option<Ident>,
) -> Result<Box<dyn Differences>> {
    Ok(Box::new(Merged { before: Side::new(snapshot, before)?, after: Side::new(snapshot, after)? }))
}

/// Two parallel scans.
struct Merged {
    before: Side,
    after: Side,
}

/// One scan and its current entry.
struct Side {
    cursor: Option<Box<dyn Cursor>>,
    entry: Option<(Key, Value)>,
}

impl Side {
    fn new<S: Snapshot + ?Sized>(snapshot: &S, ident: Option<Ident>) -> Result<Side> {
        let cursor = ident.map(|ident| snapshot.scan(ident, Range::all(), Direction::Forward)).transpose()?;
        Ok(Side { cursor, entry: None })
    }

    /// Reads the next entry if none is present.
    fn fill(&mut self) -> Result<()> {
        if let (None, Some(cursor)) = (&self.entry, &mut self.cursor) {
            match cursor.next()? {
                Some((key, value)) => self.entry = Some((Key::from(key), value.to_value())),
                None => self.cursor = None,
            }
        }
        Ok(())
    }
}

impl Differences for Merged {
    fn next(&mut self, should_continue: &mut dyn FnMut() -> bool) -> Result<Option<Difference>> {
        let mut passed = 0u32;
        loop {
            self.before.fill()?;
            self.after.fill()?;
            let order = match (&self.before.entry, &self.after.entry) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((before, _)), Some((after, _))) => (**before).cmp(&**after),
            };
            let before = if order.is_le() { self.before.entry.take() } else { None };
            let after = if order.is_ge() { self.after.entry.take() } else { None };
            let key = before.as_ref().or(after.as_ref()).map(|(key, _)| key.clone());
            let (before, after) = (before.map(|(_, value)| value), after.map(|(_, value)| value));
            if let Some(key) = key
                && !alike(before.as_ref(), after.as_ref())
            {
                return Ok(Some(Difference { key, before, after }));
            }
            passed += 1;
            if passed.is_multiple_of(ASK) && !should_continue() {
                return Ok(None);
            }
        }
    }
}

/// Returns true if two values are equal. Values that share their bytes need no comparison.
pub(crate) fn alike(before: Option<&Value>, after: Option<&Value>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            (before.len() == after.len() && before.as_ptr() == after.as_ptr()) || before == after
        }
        (before, after) => before.is_none() && after.is_none(),
    }
}
