//! Use of geospatial indexes by a filter.
//!
//! A geospatial condition bounds the index's part by the cells of its shape. Conditions on other
//! fields bound the other parts of a `2dsphere` index, as in other indexes. An exception are
//! conditions that a missing field may satisfy: an array element without the field has no key.
//! `$near` and `$nearSphere` require such an index.

use super::access;
use super::bounds::is_positional;
use super::choose::{Candidate, Planning, Source};
use super::conjuncts::Conjuncts;
use crate::access::{Access, Intervals};
use crate::exec::NearAccess;
use crate::index::{GeoIndex, Index, IndexSpec};
use base::bson::Path;
use base::{Result, bail};
use query::matcher::{Geo, Near, Node, Predicate};
use std::sync::Arc;

/// Returns the geospatial indexes that a filter bounds and that have every matching document.
pub(super) fn candidates(
    planning: &Planning<'_>,
    conjuncts: &Conjuncts<'_>,
    filter: &Node,
) -> Vec<Candidate> {
    let usable = planning.indexes.iter().filter(|index| !index.spec.hidden);
    let usable = usable.filter(|index| planning.partial_has_all(index, filter));
    usable.filter_map(|index| candidate(planning, index, conjuncts)).collect()
}

/// Returns a geospatial index with the bounds of the filter's geospatial conditions.
pub(super) fn candidate(
    planning: &Planning<'_>,
    index: &Arc<Index>,
    conjuncts: &Conjuncts<'_>,
) -> Option<Candidate> {
    let geo = index.spec.geo.as_ref()?;
    let mut access: Option<Access> = None;
    for (position, part) in
        index.spec.parts.iter().enumerate().filter(|(_, part)| GeoIndex::is_geo_part(part))
    {
        let mut conditions = conjuncts.members.iter().filter_map(|member| condition(member, &part.path));
        let Some(ranges) = conditions.find_map(|condition| geo.bounds(condition)) else { continue };
        let access = access.get_or_insert_with(|| others(index, geo, conjuncts));
        if let Some(intervals) = access.parts.get_mut(position) {
            *intervals = Intervals::of(&ranges);
        }
        if let Some(bounded) = access.bounded.get_mut(position) {
            *bounded = true;
        }
    }
    let access = access?;
    let sorts = planning.read.sort.as_ref().is_some_and(|sort| sort.orders());
    let ordered = access::provides(&access, &[], planning.read.matcher.collation()).filter(|_| !sorts);
    Some(Candidate { access, ordered, covered: false, distinct: None, grouped: None })
}

/// Returns a geospatial index with the bounds of its other parts.
fn others(index: &Arc<Index>, geo: &GeoIndex, conjuncts: &Conjuncts<'_>) -> Access {
    let usable = |path: &Path| {
        geo.has_plain_parts()
            && !is_positional(path)
            && !index.spec.parts.iter().any(|part| GeoIndex::is_geo_part(part) && part.path == *path)
    };
    let list = conjuncts.list.iter().filter(|conjunct| conjunct.needs_value && usable(&conjunct.path));
    let others = Conjuncts { list: list.cloned().collect(), ..*conjuncts };
    let mut access = access::bounds(index, &others);
    access.proven = vec![false; conjuncts.members.len().max(1)];
    access
}

/// Returns the geospatial condition of a filter member.
fn condition<'n>(member: &'n Node, at: &Path) -> Option<&'n Geo> {
    match member {
        Node::Field { path, predicate: Predicate::Geo(geo) } if path == at => Some(geo),
        _ => None,
    }
}

/// Plans a `$near` or `$nearSphere` query.
///
/// Errors: NoQueryExecutionPlans without a suitable index, 16433 for a location outside of a `2d`
/// index's bounds.
pub(super) fn near(
    planning: &Planning<'_>,
    (path, near): (&Path, &Near),
    hinted: Option<&Arc<Index>>,
    describe: impl FnOnce() -> String,
) -> Result<Source> {
    let root = planning.read.matcher.root();
    let conjuncts = planning.conjuncts(root);
    let part_of = |spec: &IndexSpec| {
        spec.parts.iter().position(|part| GeoIndex::is_geo_part(part) && part.path == *path)
    };
    let mut indexes = planning.indexes.iter().filter(|index| match hinted {
        Some(hinted) => Arc::ptr_eq(index, hinted),
        None => !index.spec.hidden && planning.partial_has_all(index, root),
    });
    // An index with other leading fields needs a condition on the first of them.
    let asks = |path: &Path| {
        let is_of = |node: &&Node| node.path().is_some_and(|own| own == path);
        conjuncts.list.iter().any(|conjunct| conjunct.path == *path)
            || conjuncts.members.iter().any(|node| is_of(&node))
    };
    let usable = indexes.find_map(|index| {
        let geo = index.spec.geo.as_ref().filter(|geo| geo.finds_near(near))?;
        let part = part_of(&index.spec)?;
        let leads = part == 0 || index.spec.parts.first().is_some_and(|first| asks(&first.path));
        leads.then_some((index, geo, part))
    });
    let Some((index, geo, part)) = usable else {
        bail!(
            NoQueryExecutionPlans,
            "error processing query: {}\n planner returned error :: caused by :: unable to find index for \
             $geoNear query",
            describe()
        );
    };
    let access = others(index, geo, &conjuncts);
    if access.is_empty() {
        return Ok(Source::Eof);
    }
    Ok(Source::Near(Box::new(NearAccess::new(access, part, near.clone())?)))
}
