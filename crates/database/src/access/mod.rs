//! An index with the bounds of a scan over it: what a plan chooses and what an index scan runs over.

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
    /// The bounds of each part; all values where there are none.
    pub(crate) parts: Vec<Intervals>,
    /// Where documents have arrays, as far as known when planning began.
    pub(crate) multikey: Vec<u32>,
    /// Which members of the filter's outermost `$and` a key within the bounds proves.
    pub(crate) proven: Vec<bool>,
    /// Parts whose bounds come from conditions, among them such that all values satisfy.
    pub(crate) bounded: Vec<bool>,
}

impl Access {
    /// An index without bounds.
    pub(crate) fn whole(index: &Arc<Index>) -> Access {
        let parts = index.spec.parts.len();
        Access {
            multikey: index.multikey_bits(),
            parts: vec![Intervals::all(); parts],
            proven: Vec::new(),
            bounded: vec![false; parts],
            index: index.clone(),
        }
    }

    /// The same, no key of which proves that its document matches.
    pub(crate) fn proving_nothing(self) -> Access {
        Access { proven: vec![false], ..self }
    }

    /// Whether some document has an array on a part's path.
    pub(crate) fn is_multikey(&self, part: usize) -> bool {
        self.multikey.get(part).is_some_and(|bits| *bits != 0)
    }

    /// Whether some document has an array on any path of the index.
    pub(crate) fn any_multikey(&self) -> bool {
        self.multikey.iter().any(|bits| *bits != 0)
    }

    /// A part's path.
    pub(crate) fn path(&self, part: usize) -> Option<&Path> {
        self.index.spec.parts.get(part).map(|part| &part.path)
    }

    /// Whether no key can lie within the bounds.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.iter().any(Intervals::is_empty)
    }

    /// Whether there is a single key within the bounds.
    pub(crate) fn is_single_key(&self) -> bool {
        self.parts.iter().all(|part| part.single_point().is_some())
    }

    /// The one key within the bounds, as the index stores it.
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

    /// Whether keys within the bounds prove the whole filter.
    pub(crate) fn proves_all(&self) -> bool {
        self.proven.iter().all(|proven| *proven)
    }

    /// The deepest component at which the paths of both parts lead through the same array, as
    /// far as any document has one there. The last bit stands for all components from it on.
    pub(crate) fn shared_array(&self, a: usize, b: usize) -> Option<usize> {
        let (first, second) = (self.path(a)?.components(), self.path(b)?.components());
        let common = first.iter().zip(second).take_while(|(a, b)| a == b).count();
        let bits = self.multikey.get(a)? | self.multikey.get(b)?;
        let deepest = (0..common.min(32)).rev().find(|component| bits & (1 << component) != 0)?;
        Some(if deepest == 31 { usize::MAX } else { deepest })
    }
}
