//! Plans for `$text`, which the collection's text index must answer.
//!
//! If the index has fields before the text, the filter must have an equality on each of them.
//! Within `$or`, every other branch needs an index.

use super::choose::{Planning, Source};
use super::{Access, Read, access, covering};
use crate::exec::{Covering, TextSearch};
use crate::index::KeyKind;
use crate::operation::{Operation, PlanUse};
use base::bson::{Builder, DocumentBuf, Path, Type};
use base::{Namespace, Result, bail, err};
use query::matcher::{Comparison, ComparisonOp, Matcher, Node, Part, Predicate};
use query::text::TextQuery;
use std::sync::Arc;

/// A search in a text index.
#[derive(Clone)]
pub(crate) struct TextAccess {
    /// The search.
    pub(super) search: Arc<TextSearch>,
    /// Filter on the keys' fields behind the text.
    pub(super) of_keys: Option<(Part, Covering)>,
    /// Remaining filter on found documents.
    pub(super) rest: Option<Part>,
    /// Scans for the other branches of the `$or` around the search.
    pub(super) others: Vec<Access>,
}

/// Returns the filter's text search, if any.
///
/// Errors: BadValue for options that text searches do not allow.
pub(super) fn query(read: &Read) -> Result<Option<&TextQuery>> {
    let Some(query) = read.matcher.text()? else { return Ok(None) };
    if read.sort.as_ref().is_some_and(|sort| sort.natural().is_some()) {
        bail!(BadValue, "text expression not allowed with $natural sort order");
    }
    if read.hint.is_some() {
        bail!(BadValue, "text and hint not allowed in same query");
    }
    Ok(Some(query))
}

/// Plans a read of a missing collection, which has no records and no text index.
///
/// Errors: IndexNotFound for a text search.
pub(crate) fn read_missing(operation: &Operation, matcher: &Matcher, namespace: &Namespace) -> Result<()> {
    operation.record_plan([PlanUse::EOF]);
    matcher.refuse_text(&format_args!(" (no such collection '{namespace}')"))
}

/// Plans the search.
///
/// Errors: IndexNotFound without a text index, BadValue for an unknown language,
/// NoQueryExecutionPlans if the index is hidden or if the filter prevents its use.
pub(super) fn choose(
    planning: &Planning<'_>,
    query: &TextQuery,
    describe: impl Fn() -> String,
) -> Result<Source> {
    let index = planning.indexes.iter().find(|index| index.spec.text.is_some());
    let Some((index, text)) = index.and_then(|index| Some((index, index.spec.text.as_ref()?))) else {
        bail!(IndexNotFound, "text index required for $text query");
    };
    let search = Arc::new(query.by(&text.spec)?);
    let refused = |why: &str| {
        err!(
            NoQueryExecutionPlans,
            "error processing query: {}\n planner returned error :: caused by :: {why}",
            describe()
        )
    };
    if index.spec.hidden {
        return Err(refused("need exactly one text index for $text query"));
    }
    let root = planning.read.matcher.root();
    let conjuncts = planning.conjuncts(root);
    let (mut filter, mut others) = (root, Vec::new());
    let around = conjuncts.members.iter().find(|member| searches(member));
    if let Some(Node::Or(branches)) = around {
        let under_or = "Failed to produce a solution for TEXT under OR - other non-TEXT clauses under OR have to be \
                        indexed as well.";
        for branch in branches {
            if searches(branch) {
                filter = branch;
                continue;
            }
            // Bounds that exclude nothing, as of `$exists`, also allow the search.
            others.push(planning.scan_of(branch, 0)?.ok_or_else(|| refused(under_or))?);
        }
    }
    let conjuncts = planning.conjuncts(filter);
    let unusable = "failed to use text index to satisfy $text query (if text index is compound, are equality \
                    predicates given for all prefix fields?)";
    if !conjuncts.members.iter().any(|member| matches!(member, Node::Text(_)))
        || !planning.has_all(index, &conjuncts, filter)
    {
        return Err(refused(unusable));
    }
    // No document has an array before the text.
    let in_front = |path: &Path| index.spec.parts.iter().take(text.prefix).any(|part| part.path == *path);
    let is_array = |node: &Node| {
        matches!(node, Node::Field { path, predicate: Predicate::Compare(Comparison { op: ComparisonOp::Eq, operand, .. }) }
            if operand.kind() == Type::Array && in_front(path))
    };
    if others.is_empty() && conjuncts.members.iter().any(is_array) {
        return Ok(Source::Eof);
    }
    let access = access::bounds(index, &conjuncts);
    let prefix = prefix(&access, text.prefix).ok_or_else(|| refused(unusable))?;
    let (of_keys, rest) = match others.is_empty() && std::ptr::eq(filter, root) {
        true => rest(&planning.read.matcher, &access, text.prefix),
        false => (None, Some(Part::all(planning.read.matcher.clone()))),
    };
    // Every term is a bound.
    let unbounded = Access::unbounded(index);
    let access = Arc::new(Access { bounded: vec![true; unbounded.bounded.len()], ..unbounded });
    let search = Arc::new(TextSearch { access, text: text.clone(), search, prefix });
    Ok(Source::Text(Box::new(TextAccess { search, of_keys, rest, others })))
}

/// Returns the filter that the search and the fields before the text do not prove: for keys, and
/// for documents.
fn rest(matcher: &Arc<Matcher>, access: &Access, parts: usize) -> (Option<(Part, Covering)>, Option<Part>) {
    let covered = covering::behind_text(access, matcher, parts);
    let in_front = |node: &Node| {
        let mut paths = access.index.spec.parts.iter().take(parts);
        node.path().is_some_and(|path| paths.any(|part| part.path == *path))
    };
    let proven = |at: usize| access.proven.get(at).is_some_and(|proven| *proven);
    let is_covered =
        |at: usize| covered.as_ref().is_some_and(|covered| covered.members.get(at) == Some(&true));
    let left = |(at, node): (usize, &Node)| {
        !(matches!(node, Node::Text(_)) || proven(at) && in_front(node) || is_covered(at))
    };
    let remaining: Vec<bool> = matcher.members().iter().enumerate().map(left).collect();
    let rest = remaining.contains(&true).then(|| Part::of(matcher, remaining));
    (covered.map(|covered| (Part::of(matcher, covered.members), covered.covering)), rest)
}

fn searches(node: &Node) -> bool {
    node.any(&|node| matches!(node, Node::Text(_)))
}

/// Returns the equality values of the fields before the text: as a key prefix, and as explain
/// prints them.
fn prefix(access: &Access, parts: usize) -> Option<(Vec<u8>, DocumentBuf)> {
    let (mut key, mut shown) = (Vec::new(), Builder::new());
    for (intervals, part) in access.parts.iter().zip(&access.index.spec.parts).take(parts) {
        let point = intervals.single_point()?;
        let start = key.len();
        key.extend_from_slice(&point.key);
        if part.kind == KeyKind::Descending {
            key.iter_mut().skip(start).for_each(|byte| *byte = !*byte);
        }
        let value = base::key_string::decode(&point.key, &[], &[true]).ok()?;
        shown.append(&part.path, value.first()?);
    }
    Some((key, shown.finish()))
}
