//! Whether a filter implies another: a partial index may serve a filter only if every document
//! that the filter matches is in it.
//!
//! A cautious check, as MongoDB's: it knows comparisons, `$in`, `$exists`, `$type`, `$and` and
//! `$or`, and of shapes takes only the very same condition.

use base::bson::{Type, Value};
use query::collation::{Collation, depends_on_collation};
use query::matcher::{Comparison, ComparisonOp, Node, Predicate};
use std::cmp::Ordering;

/// Whether every document that satisfies `filter` satisfies `other`. Recursion is bounded by the
/// nesting of both.
pub(crate) fn implies(filter: &Node, other: &Node, collation: &Collation) -> bool {
    let implies = |filter: &Node, other: &Node| implies(filter, other, collation);
    match (filter, other) {
        (_, Node::And(parts)) => parts.iter().all(|part| implies(filter, part)),
        (Node::Or(branches), _) => branches.iter().all(|branch| implies(branch, other)),
        (_, Node::Or(branches)) if branches.iter().any(|branch| implies(filter, branch)) => true,
        (Node::And(parts), _) => parts.iter().any(|part| implies(part, other)),
        (Node::AlwaysFalse, _) | (_, Node::AlwaysTrue) => true,
        (Node::Field { path, predicate }, Node::Field { path: wanted_path, predicate: wanted }) => {
            path == wanted_path && predicate_implies(predicate, wanted, collation)
        }
        _ => false,
    }
}

fn predicate_implies(predicate: &Predicate, wanted: &Predicate, collation: &Collation) -> bool {
    match (predicate, wanted) {
        (_, Predicate::Exists) => super::bounds::needs_value(predicate),
        (Predicate::In(within), _) => {
            within.regexes.is_empty()
                && within
                    .values
                    .iter()
                    .all(|value| comparison_implies(ComparisonOp::Eq, value.view(), wanted, collation))
        }
        (Predicate::Compare(comparison), _) => {
            comparison_implies(comparison.op, comparison.operand.view(), wanted, collation)
        }
        (Predicate::Type(types), Predicate::Type(wanted)) => types == wanted,
        (Predicate::Geo(geo), Predicate::Geo(wanted)) => geo.is_as_given(wanted),
        _ => false,
    }
}

fn comparison_implies(
    op: ComparisonOp,
    operand: Value<'_>,
    wanted: &Predicate,
    collation: &Collation,
) -> bool {
    match wanted {
        Predicate::Compare(wanted) => within(op, operand, wanted, collation),
        Predicate::In(wanted) => {
            op == ComparisonOp::Eq && wanted.values.iter().any(|value| collation.equal(value.view(), operand))
        }
        // Of numbers, equality leaves open which type.
        Predicate::Type(types) => {
            types.contains(operand.kind())
                && match operand.kind() {
                    kind if kind.is_numeric() => types.all_numbers,
                    Type::String | Type::Symbol => {
                        types.contains(Type::String) && types.contains(Type::Symbol)
                    }
                    Type::Array | Type::Null => false,
                    _ => true,
                }
        }
        _ => false,
    }
}

/// Whether all values that compare so with `operand` compare so with the other constant.
fn within(op: ComparisonOp, operand: Value<'_>, wanted: &Comparison, collation: &Collation) -> bool {
    use ComparisonOp::{Eq, Gt, Gte, Lt, Lte};
    let limit = wanted.operand.view();
    if op == Eq && wanted.op == Eq {
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
    match (op, wanted.op) {
        (Eq, Lt) | (Lte, Lt) => order == Ordering::Less,
        (Eq, Gt) | (Gte, Gt) => order == Ordering::Greater,
        (Eq | Lt | Lte, Lte) | (Lt, Lt) => order != Ordering::Greater,
        (Eq | Gt | Gte, Gte) | (Gt, Gt) => order != Ordering::Less,
        _ => false,
    }
}

/// Whether any constant of a filter is, or holds, a string.
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
