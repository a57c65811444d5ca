//! Whether an index yields documents in a wanted order, in which direction, and by how many scans.

use super::Access;
use super::interval::Interval;
use crate::index::KeyKind;
use base::bson::Path;
use query::Collation;

/// How many scans may be merged to get an order out of an index, as in MongoDB.
const SCANS_MAX: usize = 200;

/// How an index yields an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ordered {
    /// From its first key on, or from its last back.
    pub(crate) forward: bool,
    /// How many leading parts must be split into a scan for each of their values, the scans being
    /// merged; zero is a single scan.
    pub(crate) split: usize,
}

/// Whether an index within its bounds yields the order.
///
/// Equal values before the ordered parts don't matter; several values there ask for as many scans.
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
            || !whole_order(access, part)
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

/// Whether all documents within the bounds have the same value at a path.
fn is_constant(access: &Access, path: &Path, same_strings: bool) -> bool {
    (0..access.parts.len()).any(|part| {
        access.path(part) == Some(path)
            && (same_strings || has_no_strings(access, part))
            && !access.is_multikey(part)
            && access.parts.get(part).is_some_and(|intervals| intervals.single_point().is_some())
            && access.index.spec.parts.get(part).is_some_and(|part| part.kind != KeyKind::Hashed)
    })
}

/// Whether no key within a part's bounds has a string, so that it doesn't matter what orders them.
fn has_no_strings(access: &Access, part: usize) -> bool {
    let intervals = access.parts.get(part);
    intervals.is_some_and(|intervals| !intervals.as_slice().iter().any(Interval::reaches_strings))
}

/// Whether a part's keys come in the order of documents. Of a document with an array the least or
/// greatest key counts, so all its keys must be within the bounds, those also that depend on
/// bounds of other parts over the same array.
fn whole_order(access: &Access, part: usize) -> bool {
    if !access.is_multikey(part) {
        return true;
    }
    (0..access.parts.len()).all(|other| {
        let unbounded = access.parts.get(other).is_some_and(|intervals| intervals.is_all());
        unbounded || (other != part && access.shared_array(part, other).is_none())
    })
}
