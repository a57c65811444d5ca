//! An index with the bounds of a scan, which a plan chooses and an index scan reads: intervals of values in MongoDB's
//! sort order for each part of the index.
//!
//! An endpoint has both the value, for explain, and its ascending key string. Comparison, union and
//! intersection use the key strings. All sets of intervals are sorted and disjoint.

use crate::index::{Index, KeyKind, KeyRange};
use base::bson::{ObjectId, Path, RegexText, Type, Value, ValueBuf};
use base::key_string;
use query::Collation;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Bounds on every part of an index.
#[derive(Clone)]
pub(crate) struct Access {
    /// The index.
    pub(crate) index: Arc<Index>,
    /// Bounds of each part; all values if unbounded.
    pub(crate) parts: Vec<Intervals>,
    /// Multikey paths of each part when planning began, as bits.
    pub(crate) multikey: Vec<u32>,
    /// Members of the filter's outermost `$and` that a key within the bounds proves.
    pub(crate) proven: Vec<bool>,
    /// Parts with bounds from conditions, including conditions that all values satisfy.
    pub(crate) bounded: Vec<bool>,
}

impl Access {
    /// Returns an index without bounds.
    pub(crate) fn unbounded(index: &Arc<Index>) -> Access {
        let parts = index.spec.parts.len();
        Access {
            multikey: index.multikey_bits(),
            parts: vec![Intervals::all(); parts],
            proven: Vec::new(),
            bounded: vec![false; parts],
            index: index.clone(),
        }
    }

    /// Returns the access with keys that do not prove the filter.
    pub(crate) fn proving_nothing(self) -> Access {
        Access { proven: vec![false], ..self }
    }

    /// Returns true if some document has an array on a part's path.
    pub(crate) fn is_multikey(&self, part: usize) -> bool {
        self.multikey.get(part).is_some_and(|bits| *bits != 0)
    }

    /// Returns true if some document has an array on any path of the index.
    pub(crate) fn any_multikey(&self) -> bool {
        self.multikey.iter().any(|bits| *bits != 0)
    }

    /// Returns a part's path.
    pub(crate) fn path(&self, part: usize) -> Option<&Path> {
        self.index.spec.parts.get(part).map(|part| &part.path)
    }

    /// Returns true if no key can be within the bounds.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.iter().any(Intervals::is_empty)
    }

    /// Returns true if a single key is within the bounds.
    pub(crate) fn is_single_key(&self) -> bool {
        self.parts.iter().all(|part| part.single_point().is_some())
    }

    /// Returns the single key within the bounds, in the index's format.
    pub(crate) fn single_key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        for (intervals, part) in self.parts.iter().zip(&self.index.spec.parts) {
            let start = key.len();
            key.extend_from_slice(intervals.single_point().map_or(&[][..], |point| &point.key));
            if part.kind == KeyKind::Descending {
                key.iter_mut().skip(start).for_each(|byte| *byte = !*byte);
            }
        }
        key
    }

    /// Returns true if keys within the bounds prove the whole filter.
    pub(crate) fn proves_all(&self) -> bool {
        self.proven.iter().all(|proven| *proven)
    }

    /// Returns the deepest path component at which both paths pass through the same array, if any
    /// document has an array there. The last bit stands for all deeper components.
    pub(crate) fn shared_array(&self, a: usize, b: usize) -> Option<usize> {
        let (first, second) = (self.path(a)?.components(), self.path(b)?.components());
        let common = first.iter().zip(second).take_while(|(a, b)| a == b).count();
        let bits = self.multikey.get(a)? | self.multikey.get(b)?;
        let deepest = (0..common.min(32)).rev().find(|component| bits & (1 << component) != 0)?;
        Some(if deepest == 31 { usize::MAX } else { deepest })
    }
}

/// An end of an interval.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// The value as an ascending key string.
    pub(crate) key: Vec<u8>,
    /// The value.
    pub(crate) value: ValueBuf,
    /// True if the interval contains the value.
    pub(crate) inclusive: bool,
}

/// All values between two endpoints.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    /// Lower end.
    pub(crate) low: Endpoint,
    /// Upper end.
    pub(crate) high: Endpoint,
}

/// A sorted set of disjoint intervals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Intervals(Vec<Interval>);

impl Endpoint {
    pub(crate) fn new(value: Value<'_>, inclusive: bool) -> Endpoint {
        let mut key = Vec::new();
        key_string::encode(value, true, &mut key);
        Endpoint { key, value: value.to_owned(), inclusive }
    }

    /// Returns an endpoint whose strings are ordered by a collation.
    pub(crate) fn collated(value: Value<'_>, inclusive: bool, collation: &Collation) -> Endpoint {
        let mut key = Vec::new();
        collation.append_key(value, true, &mut key);
        Endpoint { key, value: value.to_owned(), inclusive }
    }
}

impl Interval {
    /// Returns the interval between two values.
    pub(crate) fn new(
        low: Value<'_>,
        low_inclusive: bool,
        high: Value<'_>,
        high_inclusive: bool,
    ) -> Interval {
        Interval { low: Endpoint::new(low, low_inclusive), high: Endpoint::new(high, high_inclusive) }
    }

    /// Returns the interval of one value.
    pub(crate) fn point(value: Value<'_>) -> Interval {
        let end = Endpoint::new(value, true);
        Interval { low: end.clone(), high: end }
    }

    /// Returns the interval of all values equal to `value` under a collation.
    pub(crate) fn equal_to(value: Value<'_>, collation: &Collation) -> Interval {
        let end = Endpoint::collated(value, true, collation);
        Interval { low: end.clone(), high: end }
    }

    /// Returns true if the interval may have strings, or values with strings (arrays, documents, scopes), whose order
    /// depends on the collation.
    pub(crate) fn reaches_strings(&self) -> bool {
        let reaches = |first, last| {
            let (first, last) = (Interval::bracket(first), Interval::bracket(last));
            self.low.key < last.high.key && self.high.key >= first.low.key
        };
        reaches(Type::String, Type::Array) || reaches(Type::JavaScriptWithScope, Type::JavaScriptWithScope)
    }

    /// Returns the interval of all values.
    pub(crate) fn all() -> Interval {
        Interval::new(Value::MinKey, true, Value::MaxKey, true)
    }

    /// Returns the interval of all values of a type bracket.
    pub(crate) fn bracket(kind: Type) -> Interval {
        let first_id = Value::ObjectId(ObjectId([0; 12]));
        let empty_binary = Value::Binary { subtype: 0, bytes: &[] };
        let pointer = Value::DbPointer { namespace: "", id: ObjectId([0; 12]) };
        let scoped = Value::JavaScriptWithScope { code: "", scope: base::bson::Document::EMPTY };
        let (array, document) =
            (Value::Array(base::bson::Array::EMPTY), Value::Document(base::bson::Document::EMPTY));
        let (low, high, high_inclusive) = match kind {
            Type::MinKey => (Value::MinKey, Value::MinKey, true),
            Type::Undefined => (Value::Undefined, Value::Undefined, true),
            Type::Null => (Value::Null, Value::Null, true),
            Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128 => {
                (Value::Double(f64::NAN), Value::Double(f64::INFINITY), true)
            }
            Type::String | Type::Symbol => (Value::String(""), document, false),
            Type::Document => (document, array, false),
            Type::Array => (array, empty_binary, false),
            Type::Binary => (empty_binary, first_id, false),
            Type::ObjectId => (first_id, Value::ObjectId(ObjectId([0xFF; 12])), true),
            Type::Boolean => (Value::Boolean(false), Value::Boolean(true), true),
            Type::DateTime => (Value::DateTime(i64::MIN), Value::DateTime(i64::MAX), true),
            Type::Timestamp => (Value::Timestamp(0), Value::Timestamp(u64::MAX), true),
            Type::Regex => (
                Value::Regex { pattern: RegexText::default(), options: RegexText::default() },
                pointer,
                false,
            ),
            Type::DbPointer => (pointer, Value::JavaScript(""), false),
            Type::JavaScript => (Value::JavaScript(""), scoped, false),
            Type::JavaScriptWithScope => (scoped, Value::MaxKey, false),
            Type::MaxKey => (Value::MaxKey, Value::MaxKey, true),
        };
        Interval::new(low, true, high, high_inclusive)
    }

    /// Returns true if the interval contains a single value.
    pub(crate) fn is_point(&self) -> bool {
        self.low.inclusive && self.high.inclusive && self.low.key == self.high.key
    }

    /// Returns true if the interval extends to MinKey or MaxKey and may therefore exclude little.
    pub(crate) fn reaches_an_end(&self) -> bool {
        self.low.value.kind() == Type::MinKey || self.high.value.kind() == Type::MaxKey
    }

    fn is_empty(&self) -> bool {
        match self.low.key.cmp(&self.high.key) {
            Ordering::Less => false,
            Ordering::Equal => !(self.low.inclusive && self.high.inclusive),
            Ordering::Greater => true,
        }
    }

    fn intersection(&self, other: &Interval) -> Option<Interval> {
        let low = if low_order(&self.low, &other.low).is_ge() { &self.low } else { &other.low };
        let high = if high_order(&self.high, &other.high).is_le() { &self.high } else { &other.high };
        let both = Interval { low: low.clone(), high: high.clone() };
        (!both.is_empty()).then_some(both)
    }

    /// Returns true if this interval and a later interval have no gap and form one interval.
    fn touches(&self, later: &Interval) -> bool {
        match self.high.key.cmp(&later.low.key) {
            Ordering::Less => false,
            Ordering::Equal => self.high.inclusive || later.low.inclusive,
            Ordering::Greater => true,
        }
    }
}

/// Compares two lower ends. The inclusive end is first.
fn low_order(a: &Endpoint, b: &Endpoint) -> Ordering {
    a.key.cmp(&b.key).then_with(|| b.inclusive.cmp(&a.inclusive))
}

/// Compares two upper ends. The exclusive end is first.
fn high_order(a: &Endpoint, b: &Endpoint) -> Ordering {
    a.key.cmp(&b.key).then_with(|| a.inclusive.cmp(&b.inclusive))
}

impl Intervals {
    /// Returns the set of all values.
    pub(crate) fn all() -> Intervals {
        Intervals(vec![Interval::all()])
    }

    /// Returns intervals as a set, and asserts that they are sorted, disjoint and not empty.
    fn checked(intervals: Vec<Interval>) -> Intervals {
        debug_assert!(!intervals.iter().any(Interval::is_empty), "an empty interval: {intervals:?}");
        debug_assert!(
            intervals.is_sorted_by(|a, b| a.low.key <= b.low.key && !a.touches(b)),
            "intervals are out of order, or two are one: {intervals:?}"
        );
        Intervals(intervals)
    }

    /// Returns the union of intervals in any order.
    pub(crate) fn union(mut intervals: Vec<Interval>) -> Intervals {
        intervals.retain(|interval| !interval.is_empty());
        intervals.sort_by(|a, b| low_order(&a.low, &b.low));
        let mut joined: Vec<Interval> = Vec::with_capacity(intervals.len());
        for next in intervals {
            match joined.last_mut() {
                Some(last) if last.touches(&next) => {
                    if high_order(&last.high, &next.high).is_lt() {
                        last.high = next.high;
                    }
                }
                _ => joined.push(next),
            }
        }
        Intervals::checked(joined)
    }

    /// Returns the intersection of two sets.
    pub(crate) fn intersection(&self, other: &Intervals) -> Intervals {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(left), Some(right)) = (a.peek(), b.peek()) {
            both.extend(left.intersection(right));
            if high_order(&left.high, &right.high).is_lt() {
                a.next();
            } else {
                b.next();
            }
        }
        Intervals::checked(both)
    }

    /// Returns the union of a geospatial index's key ranges.
    pub(crate) fn of(ranges: &[KeyRange]) -> Intervals {
        let interval =
            |range: &KeyRange| Interval::new(range.low.view(), true, range.high.view(), range.closed);
        Intervals::union(ranges.iter().map(interval).collect())
    }

    /// Returns the union of two sets.
    pub(crate) fn with(&self, other: &Intervals) -> Intervals {
        Intervals::union(self.0.iter().chain(&other.0).cloned().collect())
    }

    /// Returns the complement of the set.
    pub(crate) fn complement(&self) -> Intervals {
        let Interval { low: mut from, high: end } = Interval::all();
        let mut gaps = Vec::new();
        for interval in &self.0 {
            let until = Endpoint { inclusive: !interval.low.inclusive, ..interval.low.clone() };
            gaps.push(Interval { low: from, high: until });
            from = Endpoint { inclusive: !interval.high.inclusive, ..interval.high.clone() };
        }
        gaps.push(Interval { low: from, high: end });
        Intervals::union(gaps)
    }

    /// Returns the intervals in ascending order.
    pub(crate) fn as_slice(&self) -> &[Interval] {
        &self.0
    }

    /// Returns true if the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the set contains every value.
    pub(crate) fn is_all(&self) -> bool {
        let all = |interval: &Interval| {
            interval.low.inclusive
                && interval.high.inclusive
                && interval.low.value.kind() == Type::MinKey
                && interval.high.value.kind() == Type::MaxKey
        };
        matches!(self.0.as_slice(), [only] if all(only))
    }

    /// Returns the value of a set with a single value.
    pub(crate) fn single_point(&self) -> Option<&Endpoint> {
        match self.0.as_slice() {
            [only] if only.is_point() => Some(&only.low),
            _ => None,
        }
    }

    /// Returns true if all intervals are single values.
    pub(crate) fn is_points(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(Interval::is_point)
    }
}

impl Interval {
    /// Prints the interval in the order of a backward scan.
    pub(crate) fn reversed(&self) -> String {
        Interval { low: self.high.clone(), high: self.low.clone() }.to_string()
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = if self.low.inclusive { '[' } else { '(' };
        let close = if self.high.inclusive { ']' } else { ')' };
        write!(f, "{open}{}, {}{close}", BoundDisplay(&self.low.value), BoundDisplay(&self.high.value))
    }
}

/// A value in explain's notation of bounds: quoted strings, whole doubles with a decimal point.
struct BoundDisplay<'a>(&'a ValueBuf);

impl fmt::Display for BoundDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.view() {
            Value::Double(number) if number.is_infinite() => {
                f.write_str(if number < 0.0 { "-inf" } else { "inf" })?;
                f.write_str(".0")
            }
            Value::Double(number) if number.is_nan() => f.write_str("nan.0"),
            value => write!(f, "{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(intervals: &[(f64, bool, f64, bool)]) -> Intervals {
        let interval = |&(a, ai, b, bi): &(f64, bool, f64, bool)| {
            Interval::new(Value::Double(a), ai, Value::Double(b), bi)
        };
        Intervals::union(intervals.iter().map(interval).collect())
    }

    fn text(intervals: &Intervals) -> String {
        intervals.as_slice().iter().map(Interval::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn scopes_and_containers_have_strings() {
        use Type::{Array, Boolean, DateTime, Document, JavaScriptWithScope, ObjectId, String};
        let reaches = |kind: &Type| Interval::bracket(*kind).reaches_strings();
        assert!([String, Document, Array, JavaScriptWithScope].iter().all(reaches));
        assert!(![ObjectId, Boolean, DateTime].iter().any(reaches));
    }

    #[test]
    fn unions_join_touching_intervals() {
        let joined = set(&[
            (5.0, true, 6.0, true),
            (1.0, true, 2.0, false),
            (2.0, true, 3.0, true),
            (9.0, false, 9.0, true),
        ]);
        assert_eq!(text(&joined), "[1.0, 3.0] [5.0, 6.0]");
        assert_eq!(text(&set(&[(1.0, true, 2.0, false), (2.0, false, 3.0, true)])), "[1.0, 2.0) (2.0, 3.0]");
    }

    #[test]
    fn intersections_cut() {
        let a = set(&[(1.0, true, 5.0, true), (7.0, true, 9.0, false)]);
        let b = set(&[(2.0, false, 3.0, true), (5.0, true, 7.0, true), (9.0, true, 9.0, true)]);
        assert_eq!(text(&a.intersection(&b)), "(2.0, 3.0] [5.0, 5.0] [7.0, 7.0]");
        assert!(a.intersection(&Intervals::default()).is_empty());
    }

    #[test]
    fn a_complement_is_the_rest() {
        let a = set(&[(1.0, true, 1.0, true), (3.0, false, 4.0, true)]);
        assert_eq!(text(&a.complement()), "[MinKey, 1.0) (1.0, 3.0] (4.0, MaxKey]");
        assert!(Intervals::all().complement().is_empty());
        assert!(Intervals::default().complement().is_all());
    }

    #[test]
    fn brackets_follow_each_other() {
        use Type::*;
        let order = [
            MinKey,
            Undefined,
            Null,
            Int32,
            String,
            Document,
            Array,
            Binary,
            ObjectId,
            Boolean,
            DateTime,
            Timestamp,
            Regex,
            DbPointer,
            JavaScript,
            JavaScriptWithScope,
            MaxKey,
        ];
        for pair in order.windows(2) {
            let (a, b) = (Interval::bracket(pair[0]), Interval::bracket(pair[1]));
            assert!(a.high.key <= b.low.key && !(a.high.inclusive && a.high.key == b.low.key));
        }
    }
}
