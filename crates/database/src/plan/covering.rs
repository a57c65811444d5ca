//! Reads from the keys of an index: covered reads, and conditions tested on keys before the fetch
//! of a document.

use super::bounds::{is_positional, needs_value};
use super::{Access, Read};
use crate::exec::{Covering, Fields};
use crate::index::{IndexSpec, KeyKind};
use base::bson::Path;
use query::expression::Dependencies;
use query::matcher::{Matcher, Node, Part, Predicate};
use std::sync::Arc;

// Covered reads: an index's keys have all values that a read needs, so no document is fetched.

/// Returns true if an index covers a read. A path with arrays is never covered, because each
/// element has its own key. Other paths of a multikey index can be covered.
pub(crate) fn is_covered(access: &Access, read: &Read) -> bool {
    let Some(needed) = &read.covering else { return false };
    let spec = &access.index.spec;
    // A collation's sort keys do not contain the original strings.
    if read.return_key || !read.metadata.is_empty() || !spec.collation.is_simple() {
        return false;
    }
    let has = |path: &Path| part_of(spec, path).is_some_and(|part| !access.is_multikey(part));
    needed.iter().all(has)
        && (access.proves_all() || filter_paths(read).is_some_and(|paths| paths.iter().all(has)))
        && read.sort.iter().flat_map(|sort| sort.fields()).all(|(path, _)| has(path))
}

/// Returns the builder of a read's documents from keys.
pub(crate) fn covering(access: &Access, read: &Read) -> Covering {
    let spec = &access.index.spec;
    let mut paths: Vec<&Path> = read.covering.iter().flatten().collect();
    let filtered = if access.proves_all() { None } else { filter_paths(read) };
    paths.extend(filtered.iter().flatten());
    paths.extend(read.sort.iter().flat_map(|sort| sort.fields()).map(|(path, _)| path));
    let parts: Vec<usize> = paths.iter().filter_map(|path| part_of(spec, path)).collect();
    Covering::new(spec, &|part| parts.contains(&part))
}

/// Returns the part with the value of a path. The path part of a wildcard index is not a field.
fn part_of(spec: &IndexSpec, path: &Path) -> Option<usize> {
    let holds = |part: &crate::index::KeyPart| {
        matches!(part.kind, KeyKind::Ascending | KeyKind::Descending)
            && path.starts_with(&part.path)
            && !is_positional(path)
    };
    let mut parts = spec.parts.iter().enumerate().filter(|(at, _)| spec.path_part != Some(*at));
    parts.find(|(_, part)| holds(part)).map(|(at, _)| at)
}

/// Returns the paths that a filter reads; `None` if it may read any path.
fn filter_paths(read: &Read) -> Option<Vec<Path>> {
    let mut paths = Vec::new();
    collect(read.matcher.root(), &mut paths).then_some(paths)
}

fn collect(node: &Node, paths: &mut Vec<Path>) -> bool {
    match node {
        Node::Field { path, predicate } => {
            paths.push(path.clone());
            // Only arrays satisfy these predicates, and covered documents have no arrays.
            !matches!(predicate, Predicate::ElemMatchObject(_) | Predicate::ElemMatchValue(_))
        }
        Node::Expr(expr) => match expr.expression.dependencies() {
            Dependencies::Paths(own) => {
                paths.extend(own);
                true
            }
            Dependencies::Whole => false,
        },
        Node::Schema(_) => false,
        _ => node.children().iter().all(|child| collect(child, paths)),
    }
}

/// Returns the fields that a scan of documents reads for its filter, its sort and its result; `None` if it may read any
/// field.
pub(super) fn fields(read: &Read) -> Option<Fields> {
    let result = read.covering.as_ref()?;
    if read.return_key || !read.metadata.is_empty() {
        return None;
    }
    let filtered = filter_paths(read)?;
    let sorted = read.sort.iter().flat_map(|sort| sort.fields()).map(|(path, _)| path);
    Fields::new(result.iter().chain(&filtered).chain(sorted).map(Path::first))
}

// Conditions of a filter that are tested on keys before the fetch of a document: regular
// expressions and `$mod`. Their bounds are inexact, but a key has the value.

/// A filter on keys and the remaining filter on documents.
pub(crate) struct KeyFilter {
    /// Filter on documents built from keys.
    pub(crate) keys: Part,
    /// Builder of these documents.
    pub(crate) covering: Covering,
    /// Filter on the collection's documents; `None` if nothing remains.
    pub(crate) rest: Option<Part>,
}

/// Returns the filter on an index's keys, if any condition applies to keys. A key does not have a
/// whole array, and a collation's sort key does not have the string.
pub(super) fn key_filter(access: &Access, matcher: &Arc<Matcher>) -> Option<KeyFilter> {
    let spec = &access.index.spec;
    let plain = spec.collation.is_simple() && spec.serves_plain_queries();
    if access.any_multikey() || !plain {
        return None;
    }
    let part_of = |node: &Node| match node {
        Node::Field { path, predicate } if is_decided_by_keys(predicate) && !is_positional(path) => {
            spec.parts.iter().position(|part| part.path == *path && part.kind != KeyKind::Hashed)
        }
        _ => None,
    };
    let members = matcher.members();
    let proven = |position: usize| access.proven.get(position).copied().unwrap_or(false);
    let parts: Vec<Option<usize>> = members
        .iter()
        .enumerate()
        .map(|(position, member)| if proven(position) { None } else { part_of(member) })
        .collect();
    if parts.iter().all(Option::is_none) {
        return None;
    }
    let of_keys: Vec<bool> = parts.iter().map(Option::is_some).collect();
    let left: Vec<bool> = (0..members.len()).map(|at| parts.get(at) == Some(&None) && !proven(at)).collect();
    let rest = left.contains(&true).then(|| Part::of(matcher, left));
    let covering = Covering::new(spec, &|part| parts.contains(&Some(part)));
    Some(KeyFilter { keys: Part::of(matcher, of_keys), covering, rest })
}

/// Conditions answered by the parts behind the text in a text index. These fields have no arrays.
pub(super) struct TrailingParts {
    /// Flags for the members of the filter.
    pub(super) members: Vec<bool>,
    /// Builder of documents from keys.
    pub(super) covering: Covering,
}

/// Returns the members of a filter that the parts behind the text can answer. `text` is the
/// position of the text part.
pub(super) fn behind_text(access: &Access, matcher: &Matcher, text: usize) -> Option<TrailingParts> {
    let spec = &access.index.spec;
    // The text takes two parts.
    let is_behind = |part: usize| part > text + 1;
    let covers = |node: &Node| match node {
        Node::Field { path, predicate } if !is_positional(path) => {
            let compares =
                matches!(predicate, Predicate::Compare(_) | Predicate::In(_)) && needs_value(predicate);
            (compares || is_decided_by_keys(predicate))
                && spec.parts.iter().enumerate().any(|(at, part)| is_behind(at) && part.path == *path)
        }
        _ => false,
    };
    let members: Vec<bool> = matcher.members().iter().map(covers).collect();
    members.contains(&true).then(|| TrailingParts { members, covering: Covering::new(spec, &is_behind) })
}

/// Returns true if the predicate does not distinguish null from missing, which are equal in a key,
/// and if its bounds are inexact.
fn is_decided_by_keys(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Regex(_) | Predicate::Mod(_) => true,
        Predicate::In(within) => !within.regexes.is_empty() && !within.has_null(),
        _ => false,
    }
}
