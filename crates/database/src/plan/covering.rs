//! Reads by the keys of an index: covered reads, and the conditions that keys answer before a document is fetched.

use super::bounds::{is_positional, needs_value};
use super::{Access, Read};
use crate::exec::Covering;
use crate::index::{IndexSpec, KeyKind};
use base::bson::Path;
use query::expression::Dependencies;
use query::matcher::{Matcher, Node, Part, Predicate};
use std::sync::Arc;

// Whether an index's keys hold all that a read needs, so that no document is fetched.

/// Whether an index covers a read. Where there are arrays it never does: their elements are keys apart. But of
/// an index over several paths those without arrays do.
pub(crate) fn is_covered(access: &Access, read: &Read) -> bool {
    let Some(needed) = &read.covering else { return false };
    let spec = &access.index.spec;
    // Strings can't be had from what a collation orders them by.
    if read.return_key || !read.metadata.is_empty() || !spec.collation.is_simple() {
        return false;
    }
    let has = |path: &Path| part_of(spec, path).is_some_and(|part| !access.is_multikey(part));
    needed.iter().all(has)
        && (access.proves_all() || filter_paths(read).is_some_and(|paths| paths.iter().all(has)))
        && read.sort.iter().flat_map(|sort| sort.fields()).all(|(path, _)| has(path))
}

/// How to make documents for a read out of the keys.
pub(crate) fn covering(access: &Access, read: &Read) -> Covering {
    let spec = &access.index.spec;
    let mut paths: Vec<&Path> = read.covering.iter().flatten().collect();
    let filtered = if access.proves_all() { None } else { filter_paths(read) };
    paths.extend(filtered.iter().flatten());
    paths.extend(read.sort.iter().flat_map(|sort| sort.fields()).map(|(path, _)| path));
    let parts: Vec<usize> = paths.iter().filter_map(|path| part_of(spec, path)).collect();
    Covering::new(spec, &|part| parts.contains(&part))
}

/// The part that holds what is at a path; the name of a wildcard index's path is no field.
fn part_of(spec: &IndexSpec, path: &Path) -> Option<usize> {
    let holds = |part: &crate::index::KeyPart| {
        matches!(part.kind, KeyKind::Ascending | KeyKind::Descending)
            && path.starts_with(&part.path)
            && !is_positional(path)
    };
    let mut parts = spec.parts.iter().enumerate().filter(|(at, _)| spec.path_part != Some(*at));
    parts.find(|(_, part)| holds(part)).map(|(at, _)| at)
}

/// The paths that a filter reads; `None` where it may read anything.
fn filter_paths(read: &Read) -> Option<Vec<Path>> {
    let mut paths = Vec::new();
    collect(read.matcher.root(), &mut paths).then_some(paths)
}

fn collect(node: &Node, paths: &mut Vec<Path>) -> bool {
    match node {
        Node::Field { path, predicate } => {
            paths.push(path.clone());
            // Only arrays satisfy these, and covered documents have none.
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

// Which conditions of a filter are held against keys before a document is fetched: patterns and remainders,
// whose bounds hold more than they ask for, but whose answer a key knows.

/// A filter of keys, and what it leaves for the documents.
pub(crate) struct KeyFilter {
    /// Held against documents made of keys.
    pub(crate) keys: Part,
    /// How to make those.
    pub(crate) covering: Covering,
    /// Held against the collection's documents; `None` where there is nothing left to ask.
    pub(crate) rest: Option<Part>,
}

/// The filter of an index's keys, if any condition is for them. With arrays a key doesn't hold the whole value,
/// and of strings a collation keeps only their order.
pub(super) fn key_filter(access: &Access, matcher: &Arc<Matcher>) -> Option<KeyFilter> {
    let spec = &access.index.spec;
    let plain = spec.collation.is_simple() && spec.serves_plain_queries();
    if access.any_multikey() || !plain {
        return None;
    }
    let part_of = |node: &Node| match node {
        Node::Field { path, predicate } if is_told_by_keys(predicate) && !is_positional(path) => {
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

/// What the keys of a text index tell of the fields behind the text, which have no arrays.
pub(super) struct BehindText {
    /// Which members of the filter.
    pub(super) members: Vec<bool>,
    /// How to make documents of keys.
    pub(super) covering: Covering,
}

/// The members of a filter that the keys behind a text index's text tell; `text` is where that stands.
pub(super) fn behind_text(access: &Access, matcher: &Matcher, text: usize) -> Option<BehindText> {
    let spec = &access.index.spec;
    // The text takes two parts.
    let is_behind = |part: usize| part > text + 1;
    let told = |node: &Node| match node {
        Node::Field { path, predicate } if !is_positional(path) => {
            let compares =
                matches!(predicate, Predicate::Compare(_) | Predicate::In(_)) && needs_value(predicate);
            (compares || is_told_by_keys(predicate))
                && spec.parts.iter().enumerate().any(|(at, part)| is_behind(at) && part.path == *path)
        }
        _ => false,
    };
    let members: Vec<bool> = matcher.members().iter().map(told).collect();
    members.contains(&true).then(|| BehindText { members, covering: Covering::new(spec, &is_behind) })
}

/// Whether null and missing, which are one in a key, are one for a predicate too, and its bounds inexact.
fn is_told_by_keys(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Regex(_) | Predicate::Mod(_) => true,
        Predicate::In(within) => !within.regexes.is_empty() && !within.has_null(),
        _ => false,
    }
}
