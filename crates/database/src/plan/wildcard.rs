//! Use of wildcard indexes by a filter: as an index on one of the filter's paths.
//!
//! On one path, a wildcard index has the keys of a regular index with two exceptions. It has no
//! null for documents without the path. It has no non-empty documents, whose leaves have their own
//! keys. A condition can therefore use it if its bounds include neither. `$exists: true` reads the
//! leaves at the path and below. Within bounds on one path, it behaves like an index on that path:
//! it provides order, covers, counts and proves. Field names with dots are an exception, because
//! they produce the same path, see [`Index::is_ambiguous`].

use super::bounds::is_positional;
use super::choose::Candidate;
use super::conjuncts::{Conjunct, Conjuncts};
use super::{Access, Read, access};
use crate::access::{Endpoint, Interval, Intervals};
use crate::index::{Index, Wildcard};
use base::bson::{Document, FieldName, Path, Type, Value};
use std::sync::Arc;

/// Returns the possible uses of a wildcard index by a filter.
pub(crate) fn candidates(index: &Arc<Index>, conjuncts: &Conjuncts<'_>, read: &Read) -> Vec<Candidate> {
    let Some(wildcard) = &index.spec.wildcard else { return Vec::new() };
    let mut paths: Vec<&Path> = Vec::new();
    for conjunct in &conjuncts.list {
        let path = &conjunct.path;
        if wildcard.covers(path) && is_plain(index, wildcard, path) && !paths.contains(&path) {
            paths.push(path);
        }
    }
    let accesses = paths.into_iter().filter_map(|path| {
        by_value(index, wildcard, path, conjuncts).or_else(|| by_existence(index, wildcard, path, conjuncts))
    });
    let positional = positional(index, wildcard, conjuncts);
    accesses.chain(positional).map(|access| Candidate::new(access, read)).collect()
}

/// Returns the possible uses of a wildcard index by a filter with array positions in its paths. The
/// index's keys have no positions, so they may have any of several paths.
fn positional(index: &Arc<Index>, wildcard: &Wildcard, conjuncts: &Conjuncts<'_>) -> Vec<Access> {
    let usable = |conjunct: &&Conjunct| {
        conjunct.needs_value
            && !conjunct.negated
            && !is_plain(index, wildcard, &conjunct.path)
            && is_of_leaves(conjunct)
    };
    let accesses = conjuncts.list.iter().filter(usable).filter_map(|conjunct| {
        let path = &conjunct.path;
        let paths = without_positions(path, wildcard)?;
        let points = paths.iter().map(|path| Interval::point(Value::String(path))).collect();
        let admits = |other: &Conjunct| other.path == *path && usable(&other);
        let mut access = bounded(index.on_path(wildcard, path, true), wildcard, conjuncts, admits, points)?;
        access.proven.fill(false);
        // Arrays within arrays are keys as a whole.
        let values = access.parts.get_mut(wildcard.part + 1)?;
        let intervals = values.as_slice().iter().cloned();
        *values = Intervals::union(intervals.chain([Interval::bracket(Type::Array)]).collect());
        Some(access)
    });
    accesses.collect()
}

/// Returns true if the numbers in a path can only be field names: no document has an array above them. The index has
/// recorded the array only if it covers the paths without the positions.
fn is_plain(index: &Index, wildcard: &Wildcard, path: &Path) -> bool {
    let last = path.components().len().saturating_sub(1);
    !is_positional(path)
        || last < 31
            && !index.is_ambiguous(wildcard)
            && index.arrays_along(path) & !(1 << last) == 0
            && without_positions(path, wildcard).is_some()
}

/// Returns the possible paths of keys for a path with positions. Each position is a field name or
/// is omitted. Arrays can be nested. Returns `None` if the index lacks some of the paths, or if
/// they are too many.
fn without_positions(path: &Path, wildcard: &Wildcard) -> Option<Vec<String>> {
    const PATHS_MAX: usize = 64;
    let mut open: Vec<String> = Vec::new();
    let mut paths: Vec<String> = Vec::new();
    for component in path.components() {
        let with_name = |before: &String| format!("{before}.{}", component.name());
        if open.is_empty() {
            open.push(component.name().to_string());
            continue;
        }
        let named = open.iter().map(with_name).collect();
        match component.index() {
            None => open = named,
            Some(_) => {
                paths.extend(open.iter().cloned());
                open.extend(named);
            }
        }
        if open.len() + paths.len() > PATHS_MAX {
            return None;
        }
    }
    paths.extend(open);
    paths.sort();
    paths.dedup();
    paths.iter().all(|path| wildcard.covers(&Path::new(FieldName::trusted(path)))).then_some(paths)
}

/// Returns bounds on the values at a path.
fn by_value(
    index: &Arc<Index>,
    wildcard: &Wildcard,
    path: &Path,
    conjuncts: &Conjuncts<'_>,
) -> Option<Access> {
    let admits = |conjunct: &Conjunct| conjunct.path == *path && !conjunct.negated && is_of_leaves(conjunct);
    let at = Interval::point(Value::String(path.as_str()));
    let mut access = bounded(index.on_path(wildcard, path, false), wildcard, conjuncts, admits, vec![at])?;
    if index.is_ambiguous(wildcard) {
        access.proven.fill(false);
    }
    access.bounded.get(wildcard.part + 1)?.then_some(access)
}

/// Returns bounds on all values at a path and below it, for conditions such as `$exists`, `$type: "object"` and
/// `$ne: null`.
fn by_existence(
    index: &Arc<Index>,
    wildcard: &Wildcard,
    path: &Path,
    conjuncts: &Conjuncts<'_>,
) -> Option<Access> {
    let exists = |conjunct: &&Conjunct| {
        conjunct.path == *path
            && conjunct.needs_value
            && match conjunct.negated {
                // Documents without the value match below an empty array.
                true => path.components().len() == 1,
                false => admits_documents(&conjunct.bounds.intervals),
            }
    };
    let requested = conjuncts.list.iter().find(exists)?;
    if !wildcard.covers_below(path) {
        return None;
    }
    let at = Interval::point(Value::String(path.as_str()));
    let (first, behind) = (format!("{path}."), format!("{path}/"));
    let below = Interval::new(Value::String(&first), true, Value::String(&behind), false);
    let on_path = index.on_path(wildcard, path, true);
    let mut access = bounded(on_path, wildcard, conjuncts, |_| false, vec![at, below])?;
    match index.is_ambiguous(wildcard) {
        true => access.proven.fill(false),
        // An existing leaf is an existing value.
        false => access
            .proven
            .iter_mut()
            .skip(requested.member)
            .take(1)
            .for_each(|proven| *proven |= requested.exists),
    }
    Some(access)
}

/// Returns an index on one path with the bounds of the admitted conditions, including conditions on
/// the index's other parts.
fn bounded(
    index: Index,
    wildcard: &Wildcard,
    conjuncts: &Conjuncts<'_>,
    admits: impl Fn(&Conjunct) -> bool,
    paths: Vec<Interval>,
) -> Option<Access> {
    let list = conjuncts.list.iter().filter(|conjunct| !wildcard.covers(&conjunct.path) || admits(conjunct));
    let usable = Conjuncts { list: list.cloned().collect(), ..*conjuncts };
    let mut access = access::bounds(&Arc::new(index), &usable);
    *access.parts.get_mut(wildcard.part)? = Intervals::union(paths);
    Some(access)
}

/// Returns true if the intervals contain all documents, as those of `$exists` and `$type: "object"`.
fn admits_documents(intervals: &Intervals) -> bool {
    intervals.complement().intersection(&Intervals::union(vec![Interval::bracket(Type::Document)])).is_empty()
}

/// Returns true if only leaf values can satisfy a condition. A document is a leaf if it is empty, and null if a missing
/// value does not satisfy the condition.
fn is_of_leaves(conjunct: &Conjunct) -> bool {
    let empty = Endpoint::new(Value::Document(Document::EMPTY), false);
    let mut others = vec![Interval { low: empty, ..Interval::bracket(Type::Document) }];
    if !conjunct.needs_value {
        others.push(Interval::point(Value::Null));
    }
    conjunct.bounds.intervals.intersection(&Intervals::union(others)).is_empty()
}
