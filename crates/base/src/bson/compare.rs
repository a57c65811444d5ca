//! MongoDB's order of values, across and within types.

use super::{Array, Document, Value};
use std::cmp::Ordering;

/// Compares two values: first by the rank of their types, then within the type.
///
/// Numbers of all types compare by value, strings bytewise. Documents compare element by element: type rank, name,
/// value. Arrays compare value by value, shorter first. Binaries compare by length, subtype and bytes.
pub fn compare(a: Value<'_>, b: Value<'_>) -> Ordering {
    compare_with(a, b, &|a, b| a.as_bytes().cmp(b.as_bytes()))
}

/// Whether two values compare equal (so `1` equals `1.0`).
pub fn equal(a: Value<'_>, b: Value<'_>) -> bool {
    compare(a, b) == Ordering::Equal
}

/// Compares optional values. A missing value sorts before everything except MinKey, and equals undefined.
pub fn compare_optional(a: Option<Value<'_>>, b: Option<Value<'_>>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => compare(a, b),
        (Some(Value::MinKey), None) => Ordering::Less,
        (None, Some(Value::MinKey)) => Ordering::Greater,
        (Some(Value::Undefined), None) | (None, Some(Value::Undefined)) => Ordering::Equal,
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Compares two documents element by element, names included.
pub fn compare_documents(a: Document<'_>, b: Document<'_>) -> Ordering {
    compare(Value::Document(a), Value::Document(b))
}

/// Compares as [`compare`], but orders strings, also nested strings, by the given function. Collations use this.
pub fn compare_with(a: Value<'_>, b: Value<'_>, strings: &dyn Fn(&str, &str) -> Ordering) -> Ordering {
    use Value as V;
    match (a, b) {
        (V::Document(a), V::Document(b)) => documents(a, b, strings),
        (V::Array(a), V::Array(b)) => arrays(a, b, strings),
        (V::String(a) | V::Symbol(a), V::String(b) | V::Symbol(b)) => strings(a, b),
        (V::ObjectId(a), V::ObjectId(b)) => a.cmp(&b),
        (V::Boolean(a), V::Boolean(b)) => a.cmp(&b),
        (V::DateTime(a), V::DateTime(b)) => a.cmp(&b),
        (V::Timestamp(a), V::Timestamp(b)) => a.cmp(&b),
        (V::Binary { subtype: s, bytes: a }, V::Binary { subtype: t, bytes: b }) => {
            (a.len(), s, a).cmp(&(b.len(), t, b))
        }
        (V::Regex { pattern: p, options: o }, V::Regex { pattern: q, options: r }) => (p, o).cmp(&(q, r)),
        (V::DbPointer { namespace: m, id: a }, V::DbPointer { namespace: n, id: b }) => {
            (m.len(), m, a).cmp(&(n.len(), n, b))
        }
        (V::JavaScript(a), V::JavaScript(b)) => a.cmp(b),
        (V::JavaScriptWithScope { code: a, scope: s }, V::JavaScriptWithScope { code: b, scope: t }) => {
            a.cmp(b).then_with(|| documents(s, t, strings))
        }
        (a, b) => match (a.as_number(), b.as_number()) {
            (Some(a), Some(b)) => a.compare(b),
            // Different ranks decide. Types of equal rank that arrive here have a single value.
            _ => a.kind().canonical_rank().cmp(&b.kind().canonical_rank()),
        },
    }
}

/// Compares documents element by element: type rank, name, value.
fn documents(a: Document<'_>, b: Document<'_>, strings: &dyn Fn(&str, &str) -> Ordering) -> Ordering {
    in_turn(a.iter(), b.iter(), |a, b| {
        let ranks = a.kind().canonical_rank().cmp(&b.kind().canonical_rank());
        let names = || a.name_bytes().cmp(b.name_bytes());
        ranks.then_with(names).then_with(|| compare_with(a.value(), b.value(), strings))
    })
}

/// Compares arrays value by value.
fn arrays(a: Array<'_>, b: Array<'_>, strings: &dyn Fn(&str, &str) -> Ordering) -> Ordering {
    in_turn(a.iter(), b.iter(), |a, b| compare_with(a, b, strings))
}

/// Compares two sequences by their first different items. A prefix sorts first.
#[inline]
fn in_turn<T>(
    mut left: impl Iterator<Item = T>,
    mut right: impl Iterator<Item = T>,
    compare: impl Fn(T, T) -> Ordering,
) -> Ordering {
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => match compare(a, b) {
                Ordering::Equal => {}
                order => return order,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Builder, RegexText};
    use super::*;

    #[test]
    fn types_order_as_mongodb_documents() {
        let array = {
            let mut b = Builder::new();
            b.begin_array(c"a").push(1i32).end();
            b.finish()
        };
        let array = array.view().get("a").unwrap();
        let ascending = [
            Value::MinKey,
            Value::Null,
            Value::Int32(5),
            Value::String(""),
            Value::Document(Document::EMPTY),
            array,
            Value::Binary { subtype: 0, bytes: &[] },
            Value::ObjectId(super::super::ObjectId([0; 12])),
            Value::Boolean(false),
            Value::DateTime(0),
            Value::Timestamp(0),
            Value::Regex { pattern: RegexText::default(), options: RegexText::default() },
            Value::JavaScript(""),
            Value::MaxKey,
        ];
        for pair in ascending.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(compare_optional(None, Some(Value::MinKey)), Ordering::Greater);
        assert!(equal(Value::Int32(1), Value::Double(1.0)));
        assert!(equal(Value::Symbol("a"), Value::String("a")));
    }

    #[test]
    fn binaries_order_by_length_first() {
        let short = Value::Binary { subtype: 5, bytes: &[9] };
        let long = Value::Binary { subtype: 0, bytes: &[1, 1] };
        assert_eq!(compare(short, long), Ordering::Less);
    }
}
