//! Conditions of a filter on single paths. All conditions must hold. Each has its bounds for an
//! index on its path.
//!
//! An index can combine the bounds of two conditions only if one key must satisfy both. Arrays
//! prevent this: `[0, 9]` satisfies `{a: {$gt: 1, $lt: 5}}`. An `$elemMatch` requires that one
//! element satisfies both conditions. Each condition therefore records its enclosing `$elemMatch`
//! operators, see [`Conjunct::same_element`].
//!
//! Implication between filters: a partial index can serve a filter only if it has every document
//! that the filter matches.
//!
//! The check is conservative, as in MongoDB. It understands comparisons, `$in`, `$exists`, `$type`,
//! `$and` and `$or`. Geospatial conditions must be identical.

use super::bounds::{self, Bounds, Strings};
use crate::access::Intervals;
use base::bson::{FieldName, Path, Type, Value};
use query::Context;
use query::collation::{Collation, depends_on_collation};
use query::matcher::{Comparison, ComparisonOp, Node, Predicate};
use std::cmp::Ordering;

/// Arrays that a condition's bounds allow on its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrays {
    /// Arrays anywhere.
    Anywhere,
    /// Arrays at the path's end only. An empty array within the path would have a null key but no
    /// null value.
    AtEnd,
    /// No arrays: expressions see an array as a whole.
    Nowhere,
}

/// A condition on one path and its keys.
#[derive(Clone, Debug)]
pub(crate) struct Conjunct {
    /// The path.
    pub(crate) path: Path,
    /// The bounds of the keys.
    pub(crate) bounds: Bounds,
    /// Index of the condition's member of the filter's outermost `$and`.
    pub(crate) member: usize,
    /// True if only an existing value satisfies the condition.
    pub(crate) needs_value: bool,
    /// Arrays that the condition's bounds allow.
    pub(crate) arrays: Arrays,
    /// True for a negation. One of several keys does not prove it.
    pub(crate) negated: bool,
    /// True if the condition is satisfied by any existing value.
    pub(crate) exists: bool,
    /// Enclosing `$elemMatch` operators, outermost first: an id, and the number of components of
    /// the path to the array.
    elements: Vec<(usize, usize)>,
}

impl Conjunct {
    /// Returns true if an `$elemMatch` requires both conditions for one element of the array at
    /// path component `depth` or below.
    pub(crate) fn same_element(&self, other: &Conjunct, depth: usize) -> bool {
        self.elements.iter().any(|&(id, length)| length > depth && other.elements.contains(&(id, length)))
    }
}

/// Conditions of a filter on the paths selected by `selects`.
pub(crate) struct Conjuncts<'a> {
    /// The conditions.
    pub(crate) list: Vec<Conjunct>,
    /// Members of the outermost `$and`. Another filter is its only member.
    pub(crate) members: &'a [Node],
    /// Collation of the filter.
    pub(crate) collation: &'a Collation,
}

/// Collects the conditions of a filter.
pub(crate) fn collect<'a>(
    root: &'a Node,
    collation: &'a Collation,
    context: &Context,
    selects: &dyn Fn(&Path) -> bool,
) -> Conjuncts<'a> {
    let members = match root {
        Node::And(children) => children.as_slice(),
        single => std::slice::from_ref(single),
    };
    let mut collector =
        Collector { list: Vec::new(), member: 0, next_element: 0, collation, context, selects };
    for (member, node) in members.iter().enumerate() {
        collector.member = member;
        collector.node(node, &ElemMatches::default());
    }
    Conjuncts { list: collector.list, members, collation }
}

/// The `$elemMatch` operators around a node.
#[derive(Clone, Default)]
struct ElemMatches {
    /// Path of the innermost `$elemMatch` with a filter. Inner paths are relative to it.
    base: Option<Path>,
    elements: Vec<(usize, usize)>,
}

impl ElemMatches {
    fn absolute(&self, path: &Path) -> Path {
        match &self.base {
            None => path.clone(),
            Some(base) => Path::new(FieldName::trusted(&format!("{base}.{path}"))),
        }
    }
}

struct Collector<'c> {
    list: Vec<Conjunct>,
    member: usize,
    next_element: usize,
    collation: &'c Collation,
    context: &'c Context,
    selects: &'c dyn Fn(&Path) -> bool,
}

impl Collector<'_> {
    /// Nesting of filters limits the recursion.
    fn node(&mut self, node: &Node, inside: &ElemMatches) {
        match node {
            Node::And(children) => children.iter().for_each(|child| self.node(child, inside)),
            Node::Nor(children) => {
                let before = self.list.len();
                children.iter().for_each(|child| self.negated(child, inside));
                // One condition does not prove the whole branch.
                self.list.iter_mut().skip(before).for_each(|conjunct| conjunct.bounds.exact = false);
            }
            Node::Not(child) => self.negated(child, inside),
            Node::Or(children) => self.alternatives(children, inside),
            Node::Field { path, predicate: Predicate::ElemMatchObject(inner) } => {
                self.elements(path, inner, inside);
            }
            Node::Field { path, predicate: Predicate::ElemMatchValue(inner) } => {
                self.values(path, inner, inside);
            }
            Node::Field { path, predicate } => {
                let path = inside.absolute(path);
                if self.admits(&path, inside)
                    && let Some(bounds) = bounds::of(predicate, &path, self.collation)
                {
                    let needs_value = bounds::needs_value(predicate);
                    self.add(path, bounds, needs_value, Arrays::Anywhere, inside);
                    let exists = matches!(predicate, Predicate::Exists) && inside.elements.is_empty();
                    self.list.iter_mut().last().into_iter().for_each(|added| added.exists = exists);
                }
            }
            Node::Expr(expr) if inside.base.is_none() => {
                for (path, bounds) in bounds::bounds(&expr.expression, self.context, self.collation) {
                    if (self.selects)(&path) && !bounds::is_positional(&path) {
                        self.add(path, bounds, false, Arrays::Nowhere, inside);
                    }
                }
            }
            Node::Schema(schema) if inside.base.is_none() => {
                // The required names are fields of the document. A dot in such a name separates no fields.
                for name in schema.required().iter().filter(|name| !name.contains('.')) {
                    // No document has a field whose name has a zero byte.
                    let Ok(name) = FieldName::new(name) else { continue };
                    let path = Path::new(name);
                    if (self.selects)(&path)
                        && let Some(bounds) = bounds::of(&Predicate::Exists, &path, self.collation)
                    {
                        self.add(path, bounds, true, Arrays::Anywhere, inside);
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns true if bounds at a path would be used and are valid. Within an `$elemMatch`, an
    /// array element has its positions as field names, which keys do not have.
    fn admits(&self, path: &Path, inside: &ElemMatches) -> bool {
        (self.selects)(path) && (inside.elements.is_empty() || !bounds::is_positional(path))
    }

    fn add(
        &mut self,
        path: Path,
        mut bounds: Bounds,
        needs_value: bool,
        arrays: Arrays,
        inside: &ElemMatches,
    ) {
        // Keys do not show whether the field is an array.
        bounds.exact &= inside.elements.is_empty();
        let elements = inside.elements.clone();
        let (member, negated, exists) = (self.member, false, false);
        self.list.push(Conjunct { path, bounds, member, needs_value, arrays, negated, exists, elements });
    }

    fn negated(&mut self, child: &Node, inside: &ElemMatches) {
        let Node::Field { path, predicate } = child else { return };
        let path = inside.absolute(path);
        if !self.admits(&path, inside) {
            return;
        }
        if let Some(bounds) = bounds::of_not(predicate, &path, self.collation) {
            let not_null = matches!(predicate, Predicate::Compare(c) if !bounds::needs_value(predicate)
                && c.operand.kind() == base::bson::Type::Null);
            let arrays = if not_null { Arrays::AtEnd } else { Arrays::Anywhere };
            self.add(path, bounds, not_null, arrays, inside);
            if let Some(added) = self.list.last_mut() {
                added.negated = true;
            }
        }
    }

    fn elements(&mut self, path: &Path, inner: &Node, inside: &ElemMatches) {
        let base = inside.absolute(path);
        let deeper = self.enter(&base, Some(base.clone()), inside);
        self.node(inner, &deeper);
    }

    /// `$elemMatch` with operators: each operator tests the element itself.
    fn values(&mut self, path: &Path, inner: &Node, inside: &ElemMatches) {
        let path = inside.absolute(path);
        let deeper = self.enter(&path, None, inside);
        if !self.admits(&path, &deeper) {
            return;
        }
        let operators = match inner {
            Node::And(children) => children.as_slice(),
            single => std::slice::from_ref(single),
        };
        for operator in operators {
            let bounds = match operator {
                Node::Field { predicate, .. } => bounds::of(predicate, &path, self.collation),
                // The element that does not match is a key itself.
                Node::Not(child) => match &**child {
                    Node::Field { predicate, .. } => bounds::of_not(predicate, &path, self.collation),
                    _ => None,
                },
                _ => None,
            };
            if let Some(bounds) = bounds {
                self.add(path.clone(), bounds, true, Arrays::Anywhere, &deeper);
            }
        }
    }

    fn enter(&mut self, array: &Path, base: Option<Path>, inside: &ElemMatches) -> ElemMatches {
        let mut elements = inside.elements.clone();
        elements.push((self.next_element, array.components().len()));
        self.next_element += 1;
        ElemMatches { base, elements }
    }

    /// `$or`: returns bounds for a path that every branch bounds.
    fn alternatives(&mut self, branches: &[Node], inside: &ElemMatches) {
        let per_branch: Vec<Vec<Conjunct>> =
            branches.iter().map(|branch| self.branch_conditions(branch, inside)).collect();
        let Some((first, others)) = per_branch.split_first() else { return };
        let mut seen: Vec<&Path> = Vec::new();
        for candidate in first {
            if seen.contains(&&candidate.path) || candidate.arrays != Arrays::Anywhere {
                continue;
            }
            seen.push(&candidate.path);
            let fits =
                |conjunct: &&Conjunct| conjunct.path == candidate.path && conjunct.arrays == Arrays::Anywhere;
            let rest: Option<Vec<&Conjunct>> = others.iter().map(|branch| branch.iter().find(fits)).collect();
            let Some(rest) = rest else { continue };
            let all = std::iter::once(candidate).chain(rest);
            // Keys prove a branch only if it has a single condition.
            let alone = branches.iter().all(|branch| matches!(branch, Node::Field { .. }));
            let exact = alone && all.clone().all(|conjunct| conjunct.bounds.exact);
            let needs_value = all.clone().all(|conjunct| conjunct.needs_value);
            let strings =
                all.clone().fold(Strings::default(), |strings, one| strings.and(one.bounds.strings));
            let whole_arrays = all.clone().any(|conjunct| conjunct.bounds.whole_arrays);
            let intervals = all.flat_map(|conjunct| conjunct.bounds.intervals.as_slice().iter().cloned());
            let bounds = Bounds::new(Intervals::union(intervals.collect()), exact, strings);
            let bounds = Bounds { whole_arrays, ..bounds };
            self.add(candidate.path.clone(), bounds, needs_value, Arrays::Anywhere, inside);
        }
    }

    /// Returns the conditions of one branch.
    fn branch_conditions(&mut self, branch: &Node, inside: &ElemMatches) -> Vec<Conjunct> {
        let outer = std::mem::take(&mut self.list);
        self.node(branch, inside);
        std::mem::replace(&mut self.list, outer)
    }
}

/// Returns true if every document that satisfies `filter` satisfies `other`. Nesting of the filters
/// limits the recursion.
pub(crate) fn implies(filter: &Node, other: &Node, collation: &Collation) -> bool {
    let implies = |filter: &Node, other: &Node| implies(filter, other, collation);
    match (filter, other) {
        (_, Node::And(parts)) => parts.iter().all(|part| implies(filter, part)),
        (Node::Or(branches), _) => branches.iter().all(|branch| implies(branch, other)),
        (_, Node::Or(branches)) if branches.iter().any(|branch| implies(filter, branch)) => true,
        (Node::And(parts), _) => parts.iter().any(|part| implies(part, other)),
        (Node::AlwaysFalse, _) | (_, Node::AlwaysTrue) => true,
        (Node::Field { path, predicate }, Node::Field { path: implied_path, predicate: implied }) => {
            path == implied_path && predicate_implies(predicate, implied, collation)
        }
        _ => false,
    }
}

fn predicate_implies(predicate: &Predicate, implied: &Predicate, collation: &Collation) -> bool {
    // An index has the documents that its own rule for null finds.
    if finds_gaps(predicate) && !finds_gaps(implied) {
        return false;
    }
    match (predicate, implied) {
        (_, Predicate::Exists) => super::bounds::needs_value(predicate),
        (Predicate::In(within), _) => {
            within.regexes.is_empty()
                && within
                    .values
                    .iter()
                    .all(|value| comparison_implies(ComparisonOp::Eq, value.view(), implied, collation))
        }
        (Predicate::Compare(comparison), _) => {
            comparison_implies(comparison.op, comparison.operand.view(), implied, collation)
        }
        (Predicate::Type(types), Predicate::Type(implied)) => types == implied,
        (Predicate::Geo(geo), Predicate::Geo(implied)) => geo.is_as_given(implied),
        _ => false,
    }
}

fn finds_gaps(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Compare(comparison) => comparison.finds_gaps(),
        Predicate::In(within) => within.finds_gaps(),
        _ => false,
    }
}

fn comparison_implies(
    op: ComparisonOp,
    operand: Value<'_>,
    implied: &Predicate,
    collation: &Collation,
) -> bool {
    match implied {
        Predicate::Compare(implied) => within(op, operand, implied, collation),
        Predicate::In(implied) => {
            op == ComparisonOp::Eq
                && implied.values.iter().any(|value| collation.equal(value.view(), operand))
        }
        // Numbers of different types can be equal.
        Predicate::Type(types) => {
            types.contains(operand.kind())
                && match operand.kind() {
                    kind if kind.is_numeric() => types.all_numbers,
                    Type::String | Type::Symbol => {
                        types.contains(Type::String) && types.contains(Type::Symbol)
                    }
                    Type::Array | Type::Null => false,
                    // Other comparisons with these match values of all types.
                    Type::MinKey | Type::MaxKey => op == ComparisonOp::Eq,
                    _ => true,
                }
        }
        _ => false,
    }
}

/// Returns true if all values that satisfy the comparison with `operand` also satisfy the other
/// comparison.
fn within(op: ComparisonOp, operand: Value<'_>, implied: &Comparison, collation: &Collation) -> bool {
    use ComparisonOp::{Eq, Gt, Gte, Lt, Lte};
    let limit = implied.operand.view();
    if op == Eq && implied.op == Eq {
        return collation.equal(operand, limit);
    }
    let special = |value: Value<'_>| {
        matches!(value.kind(), Type::Null | Type::Undefined | Type::MinKey | Type::MaxKey)
            || value.as_number().is_some_and(|number| number.is_nan())
    };
    if special(operand) || special(limit) || operand.kind().canonical_rank() != limit.kind().canonical_rank()
    {
        return false;
    }
    let order = collation.compare(operand, limit);
    match (op, implied.op) {
        (Eq, Lt) | (Lte, Lt) => order == Ordering::Less,
        (Eq, Gt) | (Gte, Gt) => order == Ordering::Greater,
        (Eq | Lt | Lte, Lte) | (Lt, Lt) => order != Ordering::Greater,
        (Eq | Gt | Gte, Gte) | (Gt, Gt) => order != Ordering::Less,
        _ => false,
    }
}

/// Returns true if any constant of a filter is or contains a string.
pub(crate) fn mentions_strings(filter: &Node) -> bool {
    filter.any(&|node| match node {
        Node::Field { predicate: Predicate::Compare(comparison), .. } => {
            depends_on_collation(comparison.operand.view())
        }
        Node::Field { predicate: Predicate::In(within), .. } => {
            within.values.iter().any(|value| depends_on_collation(value.view()))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json;
    use query::{Context, Matcher};

    fn check(filter: &str, other: &str) -> bool {
        let parse = |text: &str| {
            Matcher::parse(extended_json::parse(text).unwrap().view(), &Context::for_tests()).unwrap()
        };
        implies(parse(filter).root(), parse(other).root(), &Collation::SIMPLE)
    }

    #[test]
    fn narrower_conditions_imply_wider_ones() {
        assert!(check("{a: 5}", "{a: {$gt: 4}}"));
        assert!(check("{a: {$gt: 5}, b: 1}", "{a: {$gte: 5}}"));
        assert!(check("{a: {$in: [1, 2]}}", "{a: {$lt: 3}}"));
        assert!(check("{a: {$in: [1, 2]}}", "{a: {$in: [2, 1, 0]}}"));
        assert!(check("{a: 'x'}", "{a: {$exists: true}}"));
        assert!(check("{$or: [{a: 1}, {a: 2, b: 3}]}", "{a: {$lte: 2}}"));
        assert!(check("{a: 1, b: 2}", "{$or: [{c: 1}, {b: 2}]}"));
        assert!(check("{a: true}", "{a: {$type: 'bool'}}"));
        assert!(check("{a: {$minKey: 1}}", "{a: {$type: 'minKey'}}"));
        assert!(!check("{a: {$gte: {$minKey: 1}}}", "{a: {$type: 'minKey'}}"));
        assert!(!check("{a: {$lte: {$maxKey: 1}}}", "{a: {$type: 'maxKey'}}"));
        let shape = |of: &str| format!("{{a: {{$geoWithin: {{$box: [[0, 0], [1, {of}]]}}}}, b: 1}}");
        assert!(check(&shape("1"), "{a: {$geoWithin: {$box: [[0, 0], [1, 1.0]]}}}"));
        assert!(check(&shape("1"), "{a: {$exists: true}}"));
        assert!(!check(&shape("1"), "{a: {$geoWithin: {$box: [[0, 0], [1, 2]]}}}"));
        assert!(!check(&shape("1"), "{a: {$within: {$box: [[0, 0], [1, 1]]}}}"));
        assert!(!check("{a: null}", "{a: {$exists: true}}"));
        assert!(!check("{a: {$gte: 5}}", "{a: {$gt: 5}}"));
        assert!(!check("{a: {$gt: 'x'}}", "{a: {$gt: 5}}"));
        assert!(!check("{b: 1}", "{a: 1}"));
        assert!(!check("{a: {$ne: 1}}", "{a: {$exists: true}}"));
        assert!(!check("{a: 1}", "{a: {$type: 'int'}}"));
    }
}
