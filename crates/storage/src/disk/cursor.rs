//! A walk over the layers of a tree as if they were one.
//!
//! Each layer is a sorted run; the entry with the next key comes from the topmost layer that has the key, and
//! a deletion there hides the key altogether. Two layers of changes and the base are the most there are.

use std::cmp::Ordering;

use super::base::BaseCursor;
use super::state::Change;
use crate::memory::TreeCursor;
use crate::{Cursor, Direction, Key, Result, Value};

/// A cursor over up to two layers of changes, the topmost first, and the base below them.
pub(super) struct MergeCursor {
    layers: Vec<Layer>,
    base: Option<BaseCursor>,
    direction: Direction,
    /// What is lent to the caller.
    key: Key,
    value: Value,
}

/// A layer of changes, one entry ahead.
struct Layer {
    cursor: TreeCursor<Change>,
    head: Option<(Key, Change)>,
}

impl Layer {
    /// The next entry without taking it.
    fn peek(&mut self) -> Option<&Key> {
        if self.head.is_none() {
            self.head = self.cursor.next().map(|(key, change)| (Key::from(key), change.clone()));
        }
        self.head.as_ref().map(|(key, _)| key)
    }
}

/// Where the next entry comes from.
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
        let layers = layers.into_iter().map(|cursor| Layer { cursor, head: None }).collect();
        MergeCursor { layers, base, direction, key: Key::from(b""), value: Value::empty() }
    }

    /// How two keys lie in the direction of the walk.
    fn order(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self.direction {
            Direction::Forward => a.cmp(b),
            Direction::Backward => b.cmp(a),
        }
    }

    /// The source whose key comes first, the topmost among equal ones, and that key.
    fn first(&mut self) -> Result<Option<(Source, Key)>> {
        let mut first: Option<(Source, Key)> = None;
        for at in 0..self.layers.len() {
            let head = self.layers.get_mut(at).and_then(Layer::peek).cloned();
            if let Some(key) = head
                && first.as_ref().is_none_or(|(_, least)| self.order(&key, least) == Ordering::Less)
            {
                first = Some((Source::Layer(at), key));
            }
        }
        let direction = self.direction;
        if let Some(base) = &mut self.base
            && let Some(key) = base.peek()?
            && first.as_ref().is_none_or(|(_, least)| match direction {
                Direction::Forward => key < &**least,
                Direction::Backward => key > &**least,
            })
        {
            first = Some((Source::Base, Key::from(key)));
        }
        Ok(first)
    }

    /// Takes the entry from its source, and drops those that it hides; `None` if it is a deletion.
    fn take(&mut self, source: Source, key: &[u8]) -> Result<Option<Value>> {
        let mut value = None;
        let from = match source {
            Source::Layer(at) => at,
            Source::Base => self.layers.len(),
        };
        for (at, layer) in self.layers.iter_mut().enumerate() {
            if layer.head.as_ref().is_some_and(|(head, _)| **head == *key)
                && let Some((_, change)) = layer.head.take()
                && at == from
            {
                value = change.into_value();
            }
        }
        if let Some(base) = &mut self.base
            && base.peek()? == Some(key)
        {
            let below = base.take();
            if matches!(source, Source::Base) {
                value = below;
            }
        }
        Ok(value)
    }

    /// The next entry if nothing lies above the base, which needs no comparisons.
    #[inline]
    fn next_of_base(&mut self) -> Result<Option<(&[u8], &Value)>> {
        let Some(base) = &mut self.base else { return Ok(None) };
        if base.peek()?.is_none() {
            return Ok(None);
        }
        self.value = base.take().unwrap_or_default();
        Ok(Some((base.taken(), &self.value)))
    }

    fn advance(&mut self) -> Result<bool> {
        while let Some((source, key)) = self.first()? {
            if let Some(value) = self.take(source, &key)? {
                self.key = key;
                self.value = value;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Cursor for MergeCursor {
    fn next(&mut self) -> Result<Option<(&[u8], &Value)>> {
        if self.layers.is_empty() {
            return self.next_of_base();
        }
        Ok(self.advance()?.then_some((&*self.key, &self.value)))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let direction = self.direction;
        let before = |head: &[u8]| match direction {
            Direction::Forward => head < key,
            Direction::Backward => head > key,
        };
        for layer in &mut self.layers {
            if layer.head.as_ref().is_none_or(|(head, _)| before(head)) {
                layer.head = None;
                layer.cursor.seek(key);
            }
        }
        match &mut self.base {
            Some(base) => base.seek(key),
            None => Ok(()),
        }
    }
}
