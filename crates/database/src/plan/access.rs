//! Index access of a read: the conditions that bound an index, and the sort order that the index
//! provides.

use super::bounds::is_positional;
use super::conjuncts::{Arrays, Conjunct, Conjuncts};
use crate::access::{Access, Interval, Intervals};
use crate::index::{Index, IndexSpec, KeyKind};
use base::bson::{Path, Value};
use query::Collation;
use std::sync::Arc;

// Index bounds from a filter: the conditions that bound each part of the keys.

/// Returns the bounds that a filter gives to an index.
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
    // A sparse index has keys for existing values only.
    let has_values = index.spec.sparse && index.spec.parts.len() == 1 && index.spec.serves_plain_queries();
    for (part, conjunct) in used {
        let exists = conjunct.exists && has_values && !is_positional(&conjunct.path);
        let by_one_key = !(conjunct.negated || conjunct.bounds.whole_arrays) || !access.is_multikey(part);
        let proves = (conjunct.bounds.exact || exists) && by_one_key;
        let hashed = index.spec.parts.get(part).is_some_and(|part| part.kind == KeyKind::Hashed);
        if let Some(proven) = access.proven.get_mut(conjunct.member) {
            *proven |= proves && !hashed;
        }
    }
    access
}

impl Access {
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
            .filter(|conjunct| self.has_keys(part, conjunct, conjuncts))
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
                _ if conjunct.bounds.whole_arrays && self.is_multikey(part) => Intervals::all(),
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

    /// Returns true if a condition's bounds are valid for a part. Depends on multikey paths and on
    /// the collations of index and query.
    fn admits(&self, part: usize, conjunct: &Conjunct, query: &Collation) -> bool {
        let (Some(path), Some(bits)) = (self.path(part), self.multikey.get(part)) else { return false };
        *path == conjunct.path
            && arrays_fit(conjunct, *bits)
            && conjunct.bounds.strings.fit(&self.index.spec.collation, query)
    }

    /// Returns true if every document that satisfies a condition has a key for the satisfying
    /// value. A missing field is null in a key. But a sparse index has no key for an array element
    /// without any of the index's fields, unless another condition requires one of the fields
    /// there.
    fn has_keys(&self, part: usize, conjunct: &Conjunct, conjuncts: &Conjuncts<'_>) -> bool {
        if !self.index.spec.sparse || conjunct.needs_value || conjunct.negated || !self.is_multikey(part) {
            return true;
        }
        conjuncts.list.iter().filter(|other| other.needs_value && !other.negated).any(|other| {
            (0..self.index.spec.parts.len()).any(|position| {
                self.admits(position, other, conjuncts.collation)
                    && self.together((part, conjunct), (position, other))
            })
        })
    }

    /// Returns true if one key must satisfy both conditions.
    fn together(&self, (a, first): (usize, &Conjunct), (b, second): (usize, &Conjunct)) -> bool {
        match self.shared_array(a, b) {
            None => true,
            Some(depth) => first.same_element(second, depth),
        }
    }
}

/// Returns true if the index has a part on the condition's path, and if its multikey paths allow the
/// condition's bounds.
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

/// Ranks narrow bounds before wide bounds: if the index can use only one of several conditions, it
/// uses the first.
fn rank(intervals: &Intervals) -> (u8, usize) {
    let count = intervals.as_slice().len();
    match intervals {
        _ if intervals.is_points() => (0, count),
        _ if intervals.is_all() => (3, count),
        _ if intervals.as_slice().iter().any(Interval::reaches_an_end) => (2, count),
        _ => (1, count),
    }
}

/// Returns the hashes of single values; `None` for ranges.
fn hashed(spec: &IndexSpec, intervals: &Intervals) -> Option<Intervals> {
    if !intervals.is_points() {
        return intervals.is_empty().then(Intervals::default);
    }
    let hash = |point: &Interval| Interval::point(Value::Int64(spec.hash(point.low.value.view())));
    Some(Intervals::union(intervals.as_slice().iter().map(hash).collect()))
}

// Sort order from an index: whether an index provides an order, its direction, and the number of
// scans.

/// Most scans in a merge of scans that provides an order, as in MongoDB.
const SCANS_MAX: usize = 200;

/// Scan direction and splitting with which an index provides an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ordered {
    /// Scans from the first key to the last instead of backward.
    pub(crate) forward: bool,
    /// Number of leading parts to split into one scan for each of their values. The scans are
    /// merged. Zero is a single scan.
    pub(crate) split: usize,
}

/// Returns the scan with which an index within its bounds provides the order.
///
/// Leading parts with a single value do not matter. Leading parts with several values need one scan
/// for each value.
pub(crate) fn provides(access: &Access, sort: &[(Path, bool)], collation: &Collation) -> Option<Ordered> {
    let same_strings = access.index.spec.collation == *collation;
    let mut forward = None;
    let mut split = 0;
    let mut started = false;
    let mut part = 0;
    for (path, ascending) in sort {
        if is_constant(access, path, same_strings) {
            continue;
        }
        while access.path(part).is_some_and(|own| own != path) {
            let intervals = access.parts.get(part)?;
            match intervals.single_point() {
                Some(_) => {}
                None if intervals.is_points() && !started => split = part + 1,
                None => return None,
            }
            part += 1;
        }
        let kind = access.index.spec.parts.get(part)?.kind;
        if !matches!(kind, KeyKind::Ascending | KeyKind::Descending)
            || !has_document_order(access, part)
            || !(same_strings || has_no_strings(access, part))
        {
            return None;
        }
        let direction = (kind == KeyKind::Ascending) == *ascending;
        if *forward.get_or_insert(direction) != direction {
            return None;
        }
        started = true;
        part += 1;
    }
    let splits: usize = access.parts.iter().take(split).map(|part| part.as_slice().len()).product();
    (splits <= SCANS_MAX).then_some(Ordered { forward: forward.unwrap_or(true), split })
}

/// Returns true if all documents within the bounds have the same value at a path.
fn is_constant(access: &Access, path: &Path, same_strings: bool) -> bool {
    (0..access.parts.len()).any(|part| {
        access.path(part) == Some(path)
            && (same_strings || has_no_strings(access, part))
            && !access.is_multikey(part)
            && access.parts.get(part).is_some_and(|intervals| intervals.single_point().is_some())
            && access.index.spec.parts.get(part).is_some_and(|part| part.kind != KeyKind::Hashed)
    })
}

/// Returns true if a part's keys within the bounds have the values. A collation's sort keys do not contain the original
/// strings.
pub(super) fn decodes(access: &Access, part: usize) -> bool {
    access.index.spec.collation.is_simple() || has_no_strings(access, part)
}

/// Returns true if no key within a part's bounds has a string, so that the collation does not
/// matter.
fn has_no_strings(access: &Access, part: usize) -> bool {
    let intervals = access.parts.get(part);
    intervals.is_some_and(|intervals| !intervals.as_slice().iter().any(Interval::reaches_strings))
}

/// Returns true if a part's keys have the sort order of the documents. An array sorts by its least
/// or greatest key. All keys of the document must therefore be within the bounds, including bounds
/// of other parts over the same array.
fn has_document_order(access: &Access, part: usize) -> bool {
    if !access.is_multikey(part) {
        return true;
    }
    (0..access.parts.len()).all(|other| {
        let unbounded = access.parts.get(other).is_some_and(|intervals| intervals.is_all());
        unbounded || (other != part && access.shared_array(part, other).is_none())
    })
}
