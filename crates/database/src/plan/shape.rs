//! Query shapes: queries without their constants, as bytes. Queries of one shape share an index
//! filter and a hash.
//!
//! As in MongoDB, a shape ignores the order of conditions, and the number and types of an
//! operator's values. It includes the paths, the operators, the sort and the projection.

use super::Read;
use crate::catalog::collection::Collection;
use base::bson::{Array, Document, DocumentBuf, Value};
use query::{Context, SortPattern};

/// Ends a list, so that later bytes cannot belong to it.
const END: u8 = 0;

/// Returns the bytes of a read's shape.
pub(crate) fn of_read(read: &Read, context: &Context) -> Vec<u8> {
    let described = read.matcher.describe();
    let collation = explicit_collation(context);
    let collation = collation.as_ref().map_or(Document::EMPTY, DocumentBuf::view);
    encode(described.view(), read.sort.as_deref(), read.projection.as_ref(), collation)
}

/// Returns the collation of the command itself. The collection's default collation is no part of
/// the shape.
pub(crate) fn explicit_collation(context: &Context) -> Option<DocumentBuf> {
    context.explicit_collation.then(|| context.collation.document().unwrap_or(Document::EMPTY).to_owned())
}

/// Encodes a shape. `filter` is a matcher's description; an empty collation means none.
pub(crate) fn encode(
    filter: Document<'_>,
    sort: Option<&SortPattern>,
    projection: Option<&DocumentBuf>,
    collation: Document<'_>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    append_filter(filter, &mut out);
    for (path, ascending) in sort.iter().flat_map(|sort| sort.fields()) {
        out.push(if *ascending { b'a' } else { b'd' });
        append_name(path.as_str(), &mut out);
    }
    for (name, kind) in sort.iter().flat_map(|sort| sort.by_metadata()) {
        out.push(b'm');
        append_name(name, &mut out);
        append_name(kind.name(), &mut out);
    }
    out.push(END);
    append_projection(projection.map_or(Document::EMPTY, DocumentBuf::view), &mut out);
    out.extend_from_slice(collation.bytes());
    out
}

fn append_name(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.push(END);
}

/// Appends a filter, or the operators on one path. Nesting of documents limits the recursion.
fn append_filter(filter: Document<'_>, out: &mut Vec<u8>) {
    append_sorted(filter.iter().map(|element| condition(element.name(), element.value())), out);
}

fn condition(name: &str, value: Value<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    append_name(name, &mut out);
    match (name, value) {
        ("$and" | "$or" | "$nor", Value::Array(branches)) => append_branches(branches, &mut out),
        ("$elemMatch" | "$not", Value::Document(inner)) => append_filter(inner, &mut out),
        (path, Value::Document(operators)) if !path.starts_with('$') => append_filter(operators, &mut out),
        _ => {}
    }
    out
}

fn append_branches(branches: Array<'_>, out: &mut Vec<u8>) {
    let encoded = branches.iter().filter_map(|branch| branch.as_document()).map(|branch| {
        let mut one = Vec::new();
        append_filter(branch, &mut one);
        one
    });
    append_sorted(encoded, out);
}

fn append_sorted(parts: impl Iterator<Item = Vec<u8>>, out: &mut Vec<u8>) {
    let mut parts: Vec<_> = parts.collect();
    parts.sort();
    out.push(b'[');
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.push(END);
}

/// Appends the fields of a projection in sorted order: included, excluded or computed.
fn append_projection(projection: Document<'_>, out: &mut Vec<u8>) {
    let field = |name: &str, value: Value<'_>| {
        let mut one = Vec::new();
        append_name(name, &mut one);
        match value {
            Value::Boolean(_) => one.push(u8::from(value.is_truthy())),
            _ if value.as_number().is_some() => one.push(u8::from(value.is_truthy())),
            _ => one.extend_from_slice(value.to_string().as_bytes()),
        }
        one
    };
    append_sorted(projection.iter().map(|element| field(element.name(), element.value())), out);
}

// Hashes for grouping queries: of the query shape, and of the shape with the indexes.

/// Returns two hashes of eight hexadecimal digits each. The first covers the query's shape (filter
/// without constants, sort). The second also covers the collection's indexes.
pub(crate) fn hashes(filter: Document<'_>, read: &Read, collection: &Collection) -> (String, String) {
    let shape = encode(filter, read.sort.as_deref(), read.projection.as_ref(), Document::EMPTY);
    let mut hash = Hash(0x811C_9DC5);
    hash.bytes(&shape);
    let shape = format!("{:08X}", hash.0);
    for index in collection.data.iter().flat_map(|data| &data.indexes) {
        hash.bytes(index.spec.name.as_bytes());
        hash.bytes(&[0]);
        hash.bytes(index.spec.key.bytes());
    }
    (shape, format!("{:08X}", hash.0))
}

/// FNV-1a in 32 bits.
struct Hash(u32);

impl Hash {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;
    use query::matcher::Matcher;

    fn shape(filter: &str, projection: &str) -> Vec<u8> {
        let filter = parse(filter).unwrap();
        let described = Matcher::parse(filter.view(), &Context::for_tests()).unwrap().describe();
        encode(described.view(), None, Some(&parse(projection).unwrap()), Document::EMPTY)
    }

    #[test]
    fn constants_and_order_are_no_part_of_a_shape() {
        let same = |a: &str, b: &str| shape(a, "{}") == shape(b, "{}");
        assert!(same("{a: 1}", "{a: 'x'}"));
        assert!(same("{a: 1, b: {$gt: 2}}", "{b: {$gt: 5}, a: null}"));
        assert!(same("{a: {$in: [1, 2]}}", "{a: {$in: [1, 2, 3]}}"));
        assert!(same("{$or: [{a: 1}, {b: 1}]}", "{$or: [{b: 2}, {a: 2}]}"));
        assert!(!same("{a: 1}", "{b: 1}"));
        assert!(!same("{a: 1}", "{a: {$gt: 1}}"));
        assert!(!same("{$or: [{a: 1}, {b: 1}]}", "{$and: [{a: 1}, {b: 1}]}"));
        assert!(!same("{a: {$elemMatch: {b: 1}}}", "{a: {$elemMatch: {c: 1}}}"));
        assert_eq!(shape("{}", "{a: 1, _id: 0}"), shape("{}", "{_id: false, a: true}"));
        assert_ne!(shape("{}", "{a: 1}"), shape("{}", "{a: 0}"));
    }
}
