//! A merging cursor over the layers of a tree.
//!
//! Each layer is a sorted run. The topmost layer with a key provides its entry, and a deletion there hides the key. A
//! tree has at most two layers of changes and the base.

use super::base::BaseCursor;
use super::state::Change;
use crate::memory::{LookaheadCursor, TreeCursor};
use crate::{Cursor, Direction, Key, Result, Value, ValueRef};

/// A cursor over up to two layers of changes, the topmost first, and the base below.
pub(super) struct MergeCursor {
    /// Layers with remaining entries.
    layers: Vec<LookaheadCursor<Change>>,
    base: Option<BaseCursor>,
    direction: Direction,
    /// The entry lent to the caller, if it is from a layer of changes.
    current: (Key, Value),
}

/// Source of the next entry.
#[derive(Clone, Copy)]
enum Source {
    Layer(usize),
    Base,
}

impl MergeCursor {
    pub(super) fn new(
        layers: Vec<TreeCursor<Change>>,
        base: Option<BaseCursor>,
        direction: Direction,
    ) -> Self {
        debug_assert!(layers.len() <= 2, "{} layers of changes", layers.len());
        let layers = layers.into_iter().map(LookaheadCursor::new).collect();
        MergeCursor { layers, base, direction, current: (Key::from(b""), Value::empty()) }
    }

    /// Returns the source with the smallest key, the topmost among equal keys.
    fn first(&mut self) -> Result<Option<Source>> {
        self.layers.retain_mut(LookaheadCursor::look_ahead);
        let direction = self.direction;
        let comes_first =
            |key: &[u8], least: Option<&[u8]>| least.is_none_or(|least| direction.is_before(key, least));
        let mut first = None;
        let mut least = None;
        for (at, layer) in self.layers.iter().enumerate() {
            if let Some(key) = layer.key()
                && comes_first(key, least)
            {
                (first, least) = (Some(Source::Layer(at)), Some(key));
            }
        }
        if let Some(base) = &mut self.base
            && let Some(key) = base.peek()?
            && comes_first(key, least)
        {
            first = Some(Source::Base);
        }
        Ok(first)
    }

    /// Takes a layer's next entry, and skips the entries that it hides. Returns false for a deletion.
    fn take(&mut self, at: usize) -> Result<bool> {
        let Some((key, change)) = self.layers.get_mut(at).and_then(LookaheadCursor::take) else {
            return Ok(false);
        };
        let (last, direction) = (&self.current.0, self.direction);
        debug_assert!(last.is_empty() || direction.is_before(last, &key), "the cursor goes back to {key:?}");
        let is_passed = |other: Option<&[u8]>| other.is_some_and(|other| direction.is_before(other, &key));
        debug_assert!(
            !self.layers.iter().any(|layer| is_passed(layer.key())),
            "a layer has a key before {key:?}"
        );
        for below in self.layers.iter_mut().skip(at + 1) {
            if below.key() == Some(&key) {
                below.take();
            }
        }
        if let Some(base) = &mut self.base
            && base.peek()? == Some(&key)
        {
            base.pass();
        }
        let Some(value) = change.into_value() else { return Ok(false) };
        self.current = (key, value);
        Ok(true)
    }
}

impl Cursor for MergeCursor {
    #[inline]
    fn next(&mut self) -> Result<Option<(&[u8], ValueRef<'_>)>> {
        while !self.layers.is_empty() {
            match self.first()? {
                None => return Ok(None),
                Some(Source::Base) => break,
                Some(Source::Layer(at)) => {
                    if self.take(at)? {
                        return Ok(Some((&self.current.0, ValueRef::Value(&self.current.1))));
                    }
                }
            }
        }
        // The next entry is from the base, and is lent directly from the page.
        let Some(base) = &mut self.base else { return Ok(None) };
        Ok(base.next()?.map(|(key, value)| (key, ValueRef::Bytes(value))))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.layers.iter_mut().for_each(|layer| layer.seek(key));
        match &mut self.base {
            Some(base) => base.seek(key),
            None => Ok(()),
        }
    }
}
