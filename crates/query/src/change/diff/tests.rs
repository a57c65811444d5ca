//! Tests of diffs as MongoDB computes and applies them, and a property test that they reproduce the new state.

use super::{apply, between};
use base::bson::{Builder, DocumentBuf, Value, ValueBuf, extended_json};
use proptest::prelude::*;

fn parse(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Checks the diff between two states, and that applying it, once or twice, leads to the second.
fn diff(before: &str, after: &str, expected: &str) {
    let (before, after) = (parse(before), parse(after));
    let found = between(before.view(), after.view()).expect("a diff");
    assert_eq!(found, parse(expected), "{before:?} → {after:?}");
    assert_eq!(apply(before.view(), found.view()).unwrap(), after);
    assert_eq!(apply(after.view(), found.view()).unwrap(), after);
}

fn no_diff(before: &str, after: &str) {
    assert_eq!(between(parse(before).view(), parse(after).view()), None, "{before} → {after}");
}

#[test]
fn a_repeated_name_has_no_idempotent_diff() {
    let twice = |first: &str, second: &str| {
        let mut out = Builder::new();
        out.append(c"a", 0);
        out.append_element(&parse(first).view().first().unwrap());
        out.append_element(&parse(second).view().first().unwrap());
        out.finish()
    };
    let before = twice("{f: 0}", "{f: [{$numberLong: '0'}]}");
    let after = twice("{f: [{$numberLong: '0'}]}", "{f: 0}");
    assert_eq!(between(before.view(), after.view()), None);
}

fn applied(before: &str, diff: &str, expected: &str) {
    let after = apply(parse(before).view(), parse(diff).view()).unwrap();
    assert_eq!(after, parse(expected), "{before} and {diff}");
}

fn refused(diff: &str, code: i32) {
    let error = apply(parse("{a: 1, b: [1]}").view(), parse(diff).view());
    assert_eq!(error.unwrap_err().code().number(), code, "{diff}");
}

#[test]
fn fields_are_set_added_and_removed() {
    let pad = "pad: 'so that a diff is shorter than the document'";
    diff(&format!("{{_id: 1, a: 1, {pad}}}"), &format!("{{_id: 1, a: 2, {pad}}}"), "{u: {a: 2}}");
    diff(&format!("{{_id: 1, {pad}}}"), &format!("{{_id: 1, {pad}, a: 2}}"), "{i: {a: 2}}");
    diff(&format!("{{_id: 1, a: 1, {pad}}}"), &format!("{{_id: 1, {pad}}}"), "{d: {a: false}}");
    diff(&format!("{{a: 1, {pad}}}"), &format!("{{a: NumberLong(1), {pad}}}"), "{u: {a: NumberLong(1)}}");
    diff(&format!("{{a: 1, {pad}}}"), &format!("{{a: [], {pad}}}"), "{u: {a: []}}");
}

#[test]
fn a_moved_field_is_appended() {
    let long = "c: 'long enough', d: 'since a diff must be shorter than the document'";
    diff(&format!("{{a: 1, b: 2, {long}}}"), &format!("{{b: 2, {long}, a: 1}}"), "{i: {a: 1}}");
    diff(
        &format!("{{b: 1, a: 2, {long}, y: 1, x: 1}}"),
        &format!("{{{long}}}"),
        "{d: {y: false, x: false, a: false, b: false}}",
    );
}

#[test]
fn a_diff_larger_than_the_document_is_none() {
    no_diff("{a: 1}", "{b: 1}");
    no_diff("{a: 1}", "{}");
    no_diff("{a: 1, b: 2}", "{a: 1, b: 3}");
    no_diff("{a: 1}", "{a: 1}");
    // Within a document, the whole value is written instead.
    diff(
        "{pad: 'so that a diff is shorter', a: {x: 1, y: 2}}",
        "{pad: 'so that a diff is shorter', a: {z: 1, w: 2}}",
        "{u: {a: {z: 1, w: 2}}}",
    );
}

#[test]
fn arrays_are_changed_by_position() {
    let pad = "'an element of some length'";
    diff(&format!("{{a: [{pad}, 2]}}"), &format!("{{a: [{pad}, 3]}}"), "{sa: {a: true, u1: 3}}");
    diff(&format!("{{a: [{pad}, 2]}}"), &format!("{{a: [{pad}, 2, 5]}}"), "{sa: {a: true, u2: 5}}");
    diff(&format!("{{a: [{pad}, 2, 3, 4]}}"), &format!("{{a: [{pad}, 2]}}"), "{sa: {a: true, l: 2}}");
    diff(
        &format!("{{a: [1, {{b: {pad}, c: 1}}, 3]}}"),
        &format!("{{a: [1, {{b: {pad}, c: 2}}]}}"),
        "{sa: {a: true, l: 2, s1: {u: {c: 2}}}}",
    );
}

#[test]
fn repeated_names_have_no_diff() {
    let long = "b: 'long enough for a diff to be shorter'";
    no_diff(&format!("{{a: 1, a: 1, {long}}}"), &format!("{{a: 1, a: 2, {long}}}"));
}

#[test]
fn a_diff_meets_other_documents() {
    applied("{b: 1}", "{u: {a: 2}}", "{b: 1, a: 2}");
    applied("{a: 1, b: 1}", "{i: {a: 2}}", "{b: 1, a: 2}");
    applied("{b: 1}", "{sa: {u: {x: 1}}}", "{b: 1}");
    applied("{a: 5, b: 1}", "{sa: {u: {x: 1}}}", "{a: null, b: 1}");
    applied("{a: {x: 1}}", "{sa: {a: true, u0: 1}}", "{a: null}");
    applied("{a: [1]}", "{sa: {a: true, u3: 4}}", "{a: [1, null, null, 4]}");
    applied("{a: [1]}", "{sa: {a: true, s1: {u: {x: 1}}}}", "{a: [1, null]}");
    applied("{a: [1, 2, 3]}", "{sa: {a: true, l: 1, u0: 5}}", "{a: [5]}");
}

#[test]
fn invalid_diffs_are_refused() {
    refused("{}", 4770500);
    refused("{a: true, u1: 1}", 4770503);
    refused("{u: {a: 1}, d: {b: false}}", 4770503);
    refused("{'': {}}", 4770505);
    refused("{u: 1}", 4770507);
    refused("{sa: {}}", 4770500);
    refused("{sa: 1}", 470510);
    refused("{sa: {u: {x: 1}}, u: {b: 1}}", 4770514);
    refused("{sb: {a: 1}}", 4770519);
    refused("{sb: {a: false}}", 4770520);
    refused("{sb: {a: true, l: 1.5}}", 4770507);
    refused("{sb: {a: true, u: 1}}", 4770521);
    refused("{sb: {a: true, ux: 1}}", 4770512);
    refused("{sb: {a: true, 'u+1': 1}}", 4770512);
    refused("{sb: {a: true, d1: 1}}", 4770502);
    refused("{sb: {a: true, s1: 1}}", 4770501);
    refused("{d: {a: false}, u: {a: 1}}", 4728000);
    refused("{sb: {a: true, u1: 1, u01: 2}}", 4728000);
    refused("{sb: {a: true, u18446744073709551615: 1}}", base::ErrorCode::CannotBackfillArray.number());
}

fn value() -> impl Strategy<Value = ValueBuf> {
    let leaf = prop_oneof![
        (0i32..4).prop_map(|n| Value::Int32(n).to_owned()),
        (0i64..4).prop_map(|n| Value::Int64(n).to_owned()),
        "[a-c]{0,30}".prop_map(|text| Value::String(&text).to_owned()),
        Just(Value::Null.to_owned()),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            fields(inner.clone()).prop_map(|document| Value::Document(document.view()).to_owned()),
            prop::collection::vec(inner, 0..5).prop_map(|values| {
                let mut out = Builder::new();
                out.begin_array(c"a");
                values.iter().for_each(|value| {
                    out.push(value);
                });
                out.finish().view().get("a").unwrap().to_owned()
            }),
        ]
    })
}

fn fields(value: impl Strategy<Value = ValueBuf>) -> impl Strategy<Value = DocumentBuf> {
    prop::collection::vec(("[a-f]|s[ab]|[0-2]|", value), 0..6).prop_map(|fields| {
        let mut out = Builder::new();
        fields.iter().for_each(|(name, value)| {
            out.append(base::bson::FieldName::new(name).unwrap(), value);
        });
        out.finish()
    })
}

/// Two states that share most of their fields, some in other positions.
fn states() -> impl Strategy<Value = (DocumentBuf, DocumentBuf)> {
    let field = ("[a-f]", value(), prop::option::weighted(0.3, value()), any::<bool>());
    (prop::collection::vec(field, 0..8), any::<prop::sample::Index>()).prop_map(|(fields, turn)| {
        let (mut before, mut after) = (Builder::new(), Builder::new());
        for (name, old, _, is_in_before) in &fields {
            if *is_in_before {
                before.append(base::bson::FieldName::new(name).unwrap(), old);
            }
        }
        let turn = if fields.len() % 3 == 0 && !fields.is_empty() { turn.index(fields.len()) } else { 0 };
        for (name, old, new, _) in fields.iter().cycle().skip(turn).take(fields.len()) {
            after.append(base::bson::FieldName::new(name).unwrap(), new.as_ref().unwrap_or(old));
        }
        (before.finish(), after.finish())
    })
}

proptest! {
    #[test]
    fn a_diff_leads_from_one_state_to_the_other(
        (before, after) in prop_oneof![states(), (fields(value()), fields(value()))],
    ) {
        if let Some(diff) = between(before.view(), after.view()) {
            prop_assert!(base::bson::validate(diff.bytes()).is_ok());
            prop_assert_eq!(&apply(before.view(), diff.view()).unwrap(), &after);
            prop_assert_eq!(&apply(after.view(), diff.view()).unwrap(), &after, "once more");
            prop_assert!(diff.bytes().len() <= after.bytes().len());
        }
    }
}
