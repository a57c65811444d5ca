//! How a filter may use one index: which of its conditions bound which parts of the keys.

use super::conjuncts::{Arrays, Conjunct, Conjuncts};
use super::interval::{Interval, Intervals};
use crate::index::{Index, IndexSpec, KeyKind};
use base::bson::{Path, Value};
use query::Collation;
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

/// The bounds that a filter gives to an index.
pub(crate) fn bounds(index: &Arc<Index>, conjuncts: &Conjuncts<'_>) -> Access {
    let mut access = Access {
        multikey: index.multikey_bits(),
        parts: Vec::with_capacity(index.spec.parts.len()),
        proven: vec![false; conjuncts.members.len()],
        bounded: Vec::with_capacity(index.spec.parts.len()),
        index: index.clone(),
    };
    let mut used: Vec<(usize, &Conjunct)> = Vec::new();
    for part in 0..index.spec.parts.len() {
        access.bound_part(part, conjuncts, &mut used);
    }
    for (part, conjunct) in used {
        let proves = conjunct.bounds.exact && !(conjunct.negated && access.is_multikey(part));
        let hashed = index.spec.parts.get(part).is_some_and(|part| part.kind == KeyKind::Hashed);
        if let Some(proven) = access.proven.get_mut(conjunct.member) {
            *proven |= proves && !hashed;
        }
    }
    access
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

    fn bound_part<'c>(
        &mut self,
        part: usize,
        conjuncts: &'c Conjuncts<'_>,
        used: &mut Vec<(usize, &'c Conjunct)>,
    ) {
        let mut candidates: Vec<&Conjunct> = conjuncts
            .list
            .iter()
            .filter(|conjunct| self.admits(part, conjunct, conjuncts.collation))
            .collect();
        candidates.sort_by_key(|conjunct| rank(&conjunct.bounds.intervals));
        let mut chosen: Option<Intervals> = None;
        for conjunct in candidates {
            if !used.iter().all(|(other, earlier)| self.together((part, conjunct), (*other, earlier))) {
                continue;
            }
            let intervals = match self.index.spec.parts.get(part).map(|part| part.kind) {
                Some(KeyKind::Hashed) => match hashed(&self.index.spec, &conjunct.bounds.intervals) {
                    Some(intervals) => intervals,
                    None => continue,
                },
                _ => conjunct.bounds.intervals.clone(),
            };
            used.push((part, conjunct));
            chosen = Some(match chosen {
                Some(already) => already.intersection(&intervals),
                None => intervals,
            });
        }
        self.bounded.push(chosen.is_some());
        self.parts.push(chosen.unwrap_or_else(Intervals::all));
    }

    /// Whether a condition's bounds are right for a part, given where documents have arrays and
    /// what the index and the query order strings by.
    fn admits(&self, part: usize, conjunct: &Conjunct, query: &Collation) -> bool {
        let (Some(path), Some(bits)) = (self.path(part), self.multikey.get(part)) else { return false };
        *path == conjunct.path
            && arrays_fit(conjunct, *bits)
            && conjunct.bounds.strings.fit(&self.index.spec.collation, query)
    }

    /// Whether one key must satisfy both conditions.
    fn together(&self, (a, first): (usize, &Conjunct), (b, second): (usize, &Conjunct)) -> bool {
        match self.shared_array(a, b) {
            None => true,
            Some(depth) => first.same_element(second, depth),
        }
    }
}

/// Whether a condition's bounds are right for an index's part on its path, and what the condition
/// says of the document's values is so of the keys.
pub(crate) fn allows(index: &Index, conjunct: &Conjunct) -> bool {
    let bits = index.multikey_bits();
    let mut parts = index.spec.parts.iter().zip(&bits);
    parts.any(|(part, bits)| part.path == conjunct.path && arrays_fit(conjunct, *bits))
}

fn arrays_fit(conjunct: &Conjunct, bits: u32) -> bool {
    let last = conjunct.path.components().len().saturating_sub(1).min(31);
    match conjunct.arrays {
        Arrays::Anywhere => true,
        Arrays::AtEnd => bits & !(1 << last) == 0,
        Arrays::Nowhere => bits == 0,
    }
}

/// Narrow bounds before wide ones: where only one of several can be used, it is the first.
fn rank(intervals: &Intervals) -> (u8, usize) {
    let count = intervals.as_slice().len();
    match intervals {
        _ if intervals.is_points() => (0, count),
        _ if intervals.is_all() => (3, count),
        _ if intervals.as_slice().iter().any(Interval::reaches_an_end) => (2, count),
        _ => (1, count),
    }
}

/// The hashes of single values; ranges have none.
fn hashed(spec: &IndexSpec, intervals: &Intervals) -> Option<Intervals> {
    if !intervals.is_points() {
        return intervals.is_empty().then(Intervals::default);
    }
    let hash = |point: &Interval| Interval::point(Value::Int64(spec.hash(point.low.value.view())));
    Some(Intervals::union(intervals.as_slice().iter().map(hash).collect()))
}
