//! An index with the bounds of a scan. A plan chooses it and an index scan reads it.

pub(crate) mod interval;

pub(crate) use interval::Interval;

use crate::index::{Index, KeyKind};
use base::bson::Path;
use interval::Intervals;
use std::sync::Arc;

/// Bounds on every part of an index.
#[derive(Clone)]
pub(crate) struct Access {
    /// The index.
    pub(crate) index: Arc<Index>,
    /// Bounds of each part; all values if unbounded.
    pub(crate) parts: Vec<Intervals>,
    /// Multikey paths of each part when planning began, as bits.
    pub(crate) multikey: Vec<u32>,
    /// Members of the filter's outermost `$and` that a key within the bounds proves.
    pub(crate) proven: Vec<bool>,
    /// Parts with bounds from conditions, including conditions that all values satisfy.
    pub(crate) bounded: Vec<bool>,
}

impl Access {
    /// Returns an index without bounds.
    pub(crate) fn unbounded(index: &Arc<Index>) -> Access {
        let parts = index.spec.parts.len();
        Access {
            multikey: index.multikey_bits(),
            parts: vec![Intervals::all(); parts],
            proven: Vec::new(),
            bounded: vec![false; parts],
            index: index.clone(),
        }
    }

    /// Returns the access with keys that do not prove the filter.
    pub(crate) fn proving_nothing(self) -> Access {
        Access { proven: vec![false], ..self }
    }

    /// Returns true if some document has an array on a part's path.
    pub(crate) fn is_multikey(&self, part: usize) -> bool {
        self.multikey.get(part).is_some_and(|bits| *bits != 0)
    }

    /// Returns true if some document has an array on any path of the index.
    pub(crate) fn any_multikey(&self) -> bool {
        self.multikey.iter().any(|bits| *bits != 0)
    }

    /// Returns a part's path.
    pub(crate) fn path(&self, part: usize) -> Option<&Path> {
        self.index.spec.parts.get(part).map(|part| &part.path)
    }

    /// Returns true if no key can be within the bounds.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.iter().any(Intervals::is_empty)
    }

    /// Returns true if a single key is within the bounds.
    pub(crate) fn is_single_key(&self) -> bool {
        self.parts.iter().all(|part| part.single_point().is_some())
    }

    /// Returns the single key within the bounds, in the index's format.
    pub(crate) fn single_key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        for (intervals, part) in self.parts.iter().zip(&self.index.spec.parts) {
            let start = key.len();
            key.extend_from_slice(intervals.single_point().map_or(&[][..], |point| &point.key));
            if part.kind == KeyKind::Descending {
                key.iter_mut().skip(start).for_each(|byte| *byte = !*byte);
            }
        }
        key
    }

    /// Returns true if keys within the bounds prove the whole filter.
    pub(crate) fn proves_all(&self) -> bool {
        self.proven.iter().all(|proven| *proven)
    }

    /// Returns the deepest path component at which both paths pass through the same array, if any
    /// document has an array there. The last bit stands for all deeper components.
    pub(crate) fn shared_array(&self, a: usize, b: usize) -> Option<usize> {
        let (first, second) = (self.path(a)?.components(), self.path(b)?.components());
        let common = first.iter().zip(second).take_while(|(a, b)| a == b).count();
        let bits = self.multikey.get(a)? | self.multikey.get(b)?;
        let deepest = (0..common.min(32)).rev().find(|component| bits & (1 << component) != 0)?;
        Some(if deepest == 31 { usize::MAX } else { deepest })
    }
}
