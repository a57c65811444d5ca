//! Tests of typical projections.

use super::*;
use base::bson::extended_json;

fn document(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn run(projection: &Projection, before: &str, position: Option<usize>) -> Result<String> {
    let (context, arena) = (Context::for_tests(), Arena::new());
    let after = projection.apply(document(before).view(), position, &context, &arena)?;
    base::bson::validate(after.bytes()).unwrap();
    Ok(after.to_string())
}

#[track_caller]
fn find(spec: &str, before: &str, after: &str) {
    let projection = Projection::parse_find(document(spec).view(), &Context::for_tests());
    let projection = projection.unwrap_or_else(|error| panic!("{spec}: {error}"));
    assert_eq!(run(&projection, before, None).unwrap(), document(after).to_string(), "{spec}");
}

#[track_caller]
fn find_fails(spec: &str, code: i32, message: &str) {
    match Projection::parse_find(document(spec).view(), &Context::for_tests()) {
        Ok(_) => panic!("{spec}: no error"),
        Err(error) => assert_eq!((error.code().number(), error.message()), (code, message), "{spec}"),
    }
}

#[track_caller]
fn add(spec: &str, before: &str, after: &str) {
    let projection = Projection::add_fields("$addFields", document(spec).view(), &Context::for_tests());
    let projection = projection.unwrap_or_else(|error| panic!("{spec}: {error}"));
    assert_eq!(run(&projection, before, None).unwrap(), document(after).to_string(), "{spec}");
}

const PLAIN: &str = "{_id: 1, a: 2, b: {c: 3, d: 4}, e: [{c: 1, d: 2}, 5, [{c: 6, x: 7}, 8]]}";

#[test]
fn inclusion_keeps_the_order_of_the_document() {
    find("{b: 1, a: 1}", PLAIN, "{_id: 1, a: 2, b: {c: 3, d: 4}}");
    find("{_id: 0, 'b.c': 1}", PLAIN, "{b: {c: 3}}");
    find("{b: {d: 1}, _id: 0}", PLAIN, "{b: {d: 4}}");
    find("{'e.c': true}", PLAIN, "{_id: 1, e: [{c: 1}, [{c: 6}]]}");
    find("{'a.x': 1, 'b.x': 1}", PLAIN, "{_id: 1, b: {}}");
    find("{_id: 1}", PLAIN, "{_id: 1}");
    find("{z: 1}", "{a: 1}", "{}");
}

#[test]
fn exclusion_keeps_the_rest() {
    find("{e: 0, 'b.c': 0}", PLAIN, "{_id: 1, a: 2, b: {d: 4}}");
    find("{'e.c': 0, b: 0}", PLAIN, "{_id: 1, a: 2, e: [{d: 2}, 5, [{x: 7}, 8]]}");
    find("{_id: 0, e: 0, b: 0}", PLAIN, "{a: 2}");
    find("{_id: 0}", "{_id: 1, a: 2}", "{a: 2}");
    find("{}", PLAIN, PLAIN);
    find("{a: 0, _id: 1}", "{_id: 1, a: 2, b: 3}", "{_id: 1, b: 3}");
}

#[test]
fn computed_fields_are_last_in_order_of_the_specification() {
    find("{z: '$a', y: 'text', a: 1}", "{_id: 1, a: 2}", "{_id: 1, a: 2, z: 2, y: 'text'}");
    find("{'b.x': '$a', 'b.c': 1}", "{_id: 1, a: 2, b: {c: 3, d: 4}}", "{_id: 1, b: {c: 3, x: 2}}");
    find("{'b.x': '$a'}", "{_id: 1, a: 2, b: 7, c: 1}", "{_id: 1, b: {x: 2}}");
    find("{'e.x': '$a'}", "{a: 2, e: [1, {c: 3}]}", "{e: [{x: 2}, {x: 2}]}");
    find("{x: '$missing', y: {$add: ['$a', 1]}}", "{a: 2}", "{y: 3}");
}

#[test]
fn slices() {
    find("{a: {$slice: 2}}", "{a: [1, 2, 3], b: 1}", "{a: [1, 2], b: 1}");
    find("{a: {$slice: -2}}", "{a: [1, 2, 3], b: 1}", "{a: [2, 3], b: 1}");
    find("{a: {$slice: [1, 1]}, c: 1}", "{a: [1, 2, 3], b: 1, c: 1}", "{a: [2], c: 1}");
    find("{a: {$slice: [-2, 1]}}", "{a: [1, 2, 3]}", "{a: [2]}");
    find("{a: {$slice: [-9, 2]}}", "{a: [1, 2, 3]}", "{a: [1, 2]}");
    find("{'a.b': {$slice: 1}}", "{a: [{b: [1, 2], c: 1}, {b: 5}]}", "{a: [{b: [1], c: 1}, {b: 5}]}");
    find("{a: {$slice: 1}, b: 0}", "{a: [1, 2], b: 1, c: 1}", "{a: [1], c: 1}");
    let nested = "{a: [[{b: [1, 2], c: 1}], {b: [3, 4]}]}";
    find("{'a.b': {$slice: 1}}", nested, "{a: [[{b: [1, 2], c: 1}], {b: [3]}]}");
    find("{'a.b': {$slice: 1}, 'a.c': 1}", nested, "{a: [[{b: [1, 2], c: 1}], {b: [3]}]}");
    find("{'a.b': {$slice: 1}, 'a.c': 0}", nested, "{a: [[{b: [1, 2]}], {b: [3]}]}");
}

#[test]
fn the_first_match_of_an_array() {
    find(
        "{a: {$elemMatch: {x: 2}}}",
        "{_id: 1, a: [{x: 1}, {x: 2, y: 1}, {x: 2}], b: 1}",
        "{_id: 1, a: [{x: 2, y: 1}]}",
    );
    find("{a: {$elemMatch: {$gt: 2}}, b: 1}", "{a: [1, 3, 4], b: 1}", "{b: 1, a: [3]}");
    find("{a: {$elemMatch: {$gt: 2}}}", "{_id: 1, a: 3}", "{_id: 1}");
    find("{a: {$elemMatch: {$gt: 9}}}", "{_id: 1, a: [3]}", "{_id: 1}");
    find("{a: {$elemMatch: {$gt: 1}}, b: 0}", "{_id: 1, a: [1, 2, 3], b: 1, c: 1}", "{_id: 1, a: [2], c: 1}");
}

#[test]
fn the_positional_operator_keeps_the_matched_element() {
    let projection = Projection::parse_find(document("{'a.$': 1}").view(), &Context::for_tests()).unwrap();
    assert!(projection.needs_position());
    assert_eq!(run(&projection, "{_id: 1, a: [5, 6], b: 1}", Some(1)).unwrap(), "{ _id: 1, a: [ 6 ] }");
    assert_eq!(run(&projection, "{_id: 1, a: [5]}", None).unwrap_err().code().number(), 51246);
    assert_eq!(run(&projection, "{_id: 1, a: [5]}", Some(1)).unwrap_err().code().number(), 51247);
    assert_eq!(run(&projection, "{_id: 1, a: 7}", None).unwrap(), "{ _id: 1, a: 7 }");
    let projection = Projection::parse_find(document("{'a.b.$': 1}").view(), &Context::for_tests()).unwrap();
    assert_eq!(run(&projection, "{a: {b: [5, 6], c: 1}}", Some(0)).unwrap(), "{ a: { b: [ 5 ] } }");
}

#[test]
fn mistakes_have_mongodb_codes() {
    find_fails("{a: 1, 'a.b': 1}", 31249, "Path collision at a.b remaining portion b");
    find_fails("{'a.b': 1, a: 1}", 31250, "Path collision at a");
    find_fails("{a: 1, b: 0}", 31254, "Cannot do exclusion on field b in inclusion projection");
    find_fails("{b: 0, a: 1}", 31253, "Cannot do inclusion on field a in exclusion projection");
    find_fails("{b: 0, a: '$x'}", 31252, "Cannot use expression other than $meta in exclusion projection");
    find_fails("{foo: {$pop: ['bar']}}", 31325, "Unknown expression $pop");
    find_fails("{'a.': 1}", 40353, "FieldPath must not end with a '.'.");
    find_fails(
        "{'a.$.b': 1}",
        31394,
        "As of 4.4, it's illegal to specify positional operator in the middle of \
        a path.Positional projection may only be used at the end, for example: a.b.$. If the query previously \
        used a form like a.b.$.d, remove the parts following the '$' and the results will be equivalent.",
    );
    find_fails(
        "{'a.$': 1, 'b.$': 1}",
        31276,
        "Cannot specify more than one positional projection per query.",
    );
    find_fails("{'a.b': {$elemMatch: {x: 1}}}", 31275, "Cannot use $elemMatch projection on a nested field");
    find_fails(
        "{s: {$meta: 'searchScore'}}",
        40218,
        "query requires $search score metadata, but it is not available",
    );
    find_fails("{s: {$meta: 'nope'}}", 17308, "Unsupported argument to $meta: nope");
    let error = Projection::parse_aggregate(Document::EMPTY, &Context::for_tests()).unwrap_err();
    let text = "Invalid $project :: caused by :: projection specification must have at least one field";
    assert_eq!((error.code().number(), error.message()), (51272, text));
}

#[test]
fn added_fields_take_the_place_of_old_ones() {
    add("{b: 5, z: '$a'}", "{a: 1, b: 2, c: 3}", "{a: 1, b: 5, c: 3, z: 1}");
    add("{b: '$$REMOVE'}", "{a: 1, b: 2, c: 3}", "{a: 1, c: 3}");
    add("{'a.b': '$x'}", "{x: 9, a: [1, {c: 2}, [{b: 0}]]}", "{x: 9, a: [{b: 9}, {c: 2, b: 9}, [{b: 9}]]}");
    add("{a: {b: {c: 1}}}", "{a: {z: 1}}", "{a: {z: 1, b: {c: 1}}}");
    add("{'a.b': 1}", "{a: 5, c: 1}", "{a: {b: 1}, c: 1}");
    add("{a: 0, b: null}", "{}", "{a: 0, b: null}");
    add("{}", "{a: 1}", "{a: 1}");
    add("{a: {}, b: {}}", "{a: {x: 1}}", "{a: {}, b: {}}");
    let fails = |spec: &str| {
        Projection::add_fields("$addFields", document(spec).view(), &Context::for_tests())
            .unwrap_err()
            .code()
            .number()
    };
    assert_eq!(fails("{a: {$add: [1, 2], $sum: 1}}"), 40181);
    assert_eq!(fails("{a: 1, 'a.b': 1}"), 40176);
    assert_eq!(fails("{a: {'b.c': 1}}"), 40183);
}

#[test]
fn unset_excludes() {
    let projection = Projection::unset(&["a", "b.c"]).unwrap();
    assert_eq!(
        run(&projection, "{_id: 1, a: 1, b: [{c: 1, d: 2}]}", None).unwrap(),
        "{ _id: 1, b: [ { d: 2 } ] }"
    );
    assert_eq!(Projection::unset(&["a", "a.b"]).unwrap_err().code().number(), 31249);
}

#[test]
fn covering_needs_pure_inclusion() {
    let fields = |spec: &str| {
        let projection = Projection::parse_find(document(spec).view(), &Context::for_tests()).unwrap();
        projection.fields().map(|paths| paths.iter().map(|path| path.as_str().to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(fields("{a: 1, _id: 0}"), Some(vec!["a".to_owned()]));
    assert_eq!(fields("{'a.b': 1}"), Some(vec!["_id".to_owned(), "a.b".to_owned()]));
    assert_eq!(fields("{a: 0}"), None);
    assert_eq!(fields("{a: 1, b: '$c'}"), None);
    assert_eq!(fields("{'a.$': 1}"), None);
}

#[test]
fn many_fields_are_found_as_few_are() {
    let numbers = 0..40;
    let fields: Vec<String> = numbers.clone().map(|number| format!("f{number}: {number}")).collect();
    let document = extended_json::parse(&format!("{{{}, _id: 7}}", fields.join(", "))).unwrap();
    let included: Vec<String> = numbers.map(|number| format!("f{}: 1", 39 - number)).collect();
    for (spec, expected) in [
        (included.join(", "), format!("{{{}, _id: 7}}", fields.join(", "))),
        (included.join(", ").replace(": 1", ": 0"), "{_id: 7}".to_string()),
        (
            format!("{}, x: '$f3'", included[..20].join(", ")),
            format!("{{{}, _id: 7, x: 3}}", fields[20..].join(", ")),
        ),
    ] {
        let context = Context::for_tests();
        let projection =
            Projection::parse_find(extended_json::parse(&format!("{{{spec}}}")).unwrap().view(), &context)
                .unwrap();
        let projected = projection.apply(document.view(), None, &context, &Arena::new()).unwrap();
        assert_eq!(projected, extended_json::parse(&expected).unwrap(), "{spec}");
    }
}
