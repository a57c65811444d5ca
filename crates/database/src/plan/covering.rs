//! Whether an index's keys hold all that a read needs, so that no document is fetched.

use super::Access;
use super::Read;
use super::bounds::is_positional;
use crate::exec::Covering;
use crate::index::{IndexSpec, KeyKind};
use base::bson::Path;
use query::expression::Dependencies;
use query::matcher::{Node, Predicate};

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
