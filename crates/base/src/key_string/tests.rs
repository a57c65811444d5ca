//! Property tests: the order of keys is the order of values, and keys decode to the original values.

use super::*;
use crate::bson::{Value, ValueBuf, compare};
use crate::testing::{any_value, number};
use proptest::prelude::*;
use std::cmp::Ordering;

fn key(value: &ValueBuf, ascending: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(value.view(), ascending, &mut bytes);
    bytes
}

fn compound<'v>(values: impl IntoIterator<Item = &'v ValueBuf>, directions: &[bool]) -> KeyBuilder {
    let mut builder = KeyBuilder::new();
    for (value, &ascending) in values.into_iter().zip(directions) {
        builder.push(value, ascending);
    }
    builder
}

fn directed(order: Ordering, ascending: bool) -> Ordering {
    if ascending { order } else { order.reverse() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn keys_order_as_values(a in any_value(), b in any_value(), ascending: bool) {
        let order = compare(a.view(), b.view());
        prop_assert_eq!(key(&a, ascending).cmp(&key(&b, ascending)), directed(order, ascending));
    }

    #[test]
    fn numbers_of_all_types_order_as_values(a in number(), b in number(), ascending: bool) {
        let order = compare(a.view(), b.view());
        prop_assert_eq!(key(&a, ascending).cmp(&key(&b, ascending)), directed(order, ascending));
    }

    #[test]
    fn compound_keys_order_by_component(
        a in prop::collection::vec(any_value(), 3),
        b in prop::collection::vec(any_value(), 3),
        directions in prop::collection::vec(any::<bool>(), 3),
        same in 0usize..3,
    ) {
        let mut b = b;
        b[..same].clone_from_slice(&a[..same]);
        let order = a.iter().zip(&b).zip(&directions)
            .map(|((a, b), &ascending)| directed(compare(a.view(), b.view()), ascending))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal);
        prop_assert_eq!(compound(&a, &directions).key().cmp(compound(&b, &directions).key()), order);
    }

    #[test]
    fn keys_decode_bit_by_bit(values in prop::collection::vec(any_value(), 0..4), directions: [bool; 4]) {
        let directions = &directions[..values.len()];
        let built = compound(&values, directions);
        prop_assert_eq!(decode(built.key(), built.type_bits(), directions).unwrap(), values);
    }

    #[test]
    fn broken_keys_give_errors_or_values_never_panics(
        value in any_value(), flip in any::<prop::sample::Index>(), by in 1u8.., ascending: bool,
        types in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut bytes = key(&value, ascending);
        let at = flip.index(bytes.len());
        bytes[at] ^= by;
        let _ = decode(&bytes, &types, &[ascending]);
        let _ = decode(&bytes[..at], &types, &[ascending]);
    }

    #[test]
    fn the_successor_follows_all_with_the_prefix(value in any_value(), more in any_value()) {
        let prefix = key(&value, true);
        let mut longer = prefix.clone();
        longer.extend(key(&more, false));
        let after = successor(&prefix).unwrap();
        prop_assert!(longer < after && prefix < after);
        prop_assert!(after < successor(&after).unwrap());
    }
}

#[test]
fn common_keys_are_short_and_need_no_type_bits() {
    let sizes = [
        (Value::Int32(0), 1),
        (Value::Int32(100), 2),
        (Value::Int32(-30_000), 3),
        (Value::Int64(1 << 40), 7),
        (Value::Double(0.25), 9),
        (Value::Double(12.99), 9),
        (Value::String("abc"), 5),
        (Value::Null, 1),
    ];
    for (value, size) in sizes {
        let mut builder = KeyBuilder::new();
        builder.push(value, true);
        assert_eq!((builder.key().len(), builder.type_bits().len()), (size, 0), "{value:?}");
    }
}

#[test]
fn collated_keys_order_by_the_collation() {
    let lower = |text: &str, out: &mut Vec<u8>| out.extend(text.to_lowercase().bytes());
    let key = |text| {
        let mut builder = KeyBuilder::new();
        builder.push_collated(Value::String(text), true, &lower);
        builder.key().to_vec()
    };
    assert_eq!(key("ABC"), key("abc"));
    assert!(key("B") > key("a"));
}

#[test]
fn successors_at_the_edge() {
    assert_eq!(successor(&[1, 0xFF, 0xFF]), Some(vec![2]));
    assert_eq!(successor(&[0xFF]), None);
    assert_eq!(successor(&[]), None);
}

#[test]
fn encoding_of_long_keys_can_be_interrupted() {
    let mut out = crate::bson::Builder::new();
    out.begin_array(c"a");
    for number in 0..20_000 {
        out.push_document().append(c"n", number).append(c"text", "some text").end();
    }
    out.end();
    let document = out.finish();
    let value = document.view().get("a").unwrap();
    for ascending in [true, false] {
        let (mut all, mut checked, mut calls) = (Vec::new(), Vec::new(), 0);
        encode(value, ascending, &mut all);
        let ended = encode_while(
            value,
            ascending,
            None,
            &mut || {
                calls += 1;
                true
            },
            &mut checked,
        );
        assert!(ended && all == checked);
        assert!((10..60).contains(&calls), "{calls} for {}", all.len());
        let mut part = Vec::new();
        let mut remaining = 3;
        let ended = encode_while(
            value,
            ascending,
            None,
            &mut || {
                remaining -= 1;
                remaining > 0
            },
            &mut part,
        );
        assert!(!ended && part.len() < all.len() / 4, "{}", part.len());
    }
}
