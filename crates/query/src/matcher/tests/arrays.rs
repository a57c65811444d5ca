//! Arrays: implicit traversal, positions, `$elemMatch $size $all`, and the position of `$`.

use super::*;

#[test]
fn an_array_matches_as_elements_and_as_a_whole() {
    check("{a: 1}", &["{a: [1, 2]}", "{a: [2, 1]}"], &["{a: []}", "{a: [[1]]}"]);
    check("{a: [1, 2]}", &["{a: [1, 2]}", "{a: [[1, 2]]}"], &["{a: [2, 1]}", "{a: [1, 2, 3]}", "{a: 1}"]);
    check("{a: []}", &["{a: []}", "{a: [[]]}"], &["{a: [1]}", "{}"]);
    check("{a: {$gt: [1]}}", &["{a: [2]}", "{a: [1, 0]}", "{a: [[2]]}"], &["{a: [1]}", "{a: 2}"]);
    check("{a: {$gt: 1, $lt: 3}}", &["{a: [0, 5]}", "{a: [2]}"], &["{a: [1]}"]);
    check("{a: {$ne: 1}}", &["{a: [2]}", "{a: []}"], &["{a: [1, 2]}"]);
    check("{a: null}", &["{a: [null]}"], &["{a: []}", "{a: [1]}"]);
}

#[test]
fn paths_go_through_arrays_of_documents() {
    check(
        "{'a.b': 1}",
        &["{a: {b: 1}}", "{a: [{b: 2}, {b: 1}]}", "{a: [{b: [1]}]}"],
        &["{a: [[{b: 1}]]}", "{a: [1]}"],
    );
    check("{'a.b': null}", &["{a: [{c: 1}]}", "{a: [{b: 1}, {}]}"], &["{a: [{b: 1}]}", "{a: [1, 2]}"]);
    check("{'a.b': {$ne: 1}}", &["{a: [{b: 2}]}", "{a: []}"], &["{a: [{b: 2}, {b: 1}]}"]);
    check("{'a.b.c': 1}", &["{a: [{b: [{c: 1}]}]}"], &["{a: [{b: [[{c: 1}]]}]}"]);
}

#[test]
fn numbers_in_paths_are_positions_and_names() {
    check("{'a.0': 1}", &["{a: [1]}", "{a: {'0': 1}}", "{a: [{'0': 1}]}"], &["{a: [0, 1]}", "{a: [[1]]}"]);
    check(
        "{'a.1.b': 2}",
        &["{a: [{}, {b: 2}]}", "{a: {'1': {b: 2}}}", "{a: [{'1': {b: 2}}]}"],
        &["{a: [{b: 2}, {}]}"],
    );
    check("{'a.0.0': 1}", &["{a: [[1]]}"], &["{a: [1]}"]);
    check("{'a.0.b': 1}", &["{a: [[{b: 1}]]}"], &[]);
    check("{'a.00': 1}", &["{a: {'00': 1}}"], &["{a: [1]}"]);
    check("{'a.0': [1]}", &["{a: [[1]]}"], &["{a: [1]}"]);
    check("{'a.5': {$exists: false}}", &["{a: [1]}"], &[]);
}

#[test]
fn elem_match_requires_one_element_for_all_conditions() {
    check(
        "{a: {$elemMatch: {b: 1, c: 2}}}",
        &["{a: [{b: 1, c: 2}]}", "{a: [1, {b: 1, c: 2}]}"],
        &["{a: [{b: 1}, {c: 2}]}", "{a: {b: 1, c: 2}}"],
    );
    check(
        "{a: {$elemMatch: {$gt: 1, $lt: 3}}}",
        &["{a: [0, 2]}"],
        &["{a: [0, 5]}", "{a: 2}", "{a: [[2]]}", "{}"],
    );
    check("{a: {$elemMatch: {$in: [1]}}}", &["{a: [1]}"], &["{a: 1}"]);
    check("{a: {$elemMatch: {$elemMatch: {$eq: 1}}}}", &["{a: [[1]]}"], &["{a: [1]}"]);
    check("{a: {$elemMatch: {$not: {$eq: 1}}}}", &["{a: [1, 2]}"], &["{a: [1]}", "{a: []}"]);
    check("{a: {$elemMatch: {$or: [{b: 1}, {c: 1}]}}}", &["{a: [{c: 1}]}"], &["{a: [{d: 1}]}"]);
    check("{a: {$elemMatch: {}}}", &["{a: [{}]}", "{a: [[]]}"], &["{a: [1]}", "{a: []}"]);
    check("{a: {$elemMatch: {'0': 1}}}", &["{a: [[1]]}"], &["{a: [1]}"]);
    check(
        "{'a.b': {$elemMatch: {c: 1}}}",
        &["{a: {b: [{c: 1}]}}", "{a: [{b: [{c: 1}]}]}"],
        &["{a: {b: {c: 1}}}"],
    );
    check("{a: {$not: {$elemMatch: {b: 1}}}}", &["{a: [{b: 2}]}", "{}"], &["{a: [{b: 1}]}"]);
    check("{a: {$elemMatch: {$ref: 'c'}}}", &["{a: [{$ref: 'c', $id: 1}]}"], &["{a: ['c']}"]);
    check("{a: {$elemMatch: {$exists: true, $ne: 5}}}", &["{a: [5, 6]}"], &["{a: [5]}"]);
}

#[test]
fn size_counts_the_array_itself() {
    check(
        "{a: {$size: 2}}",
        &["{a: [1, 2]}", "{a: [[], []]}"],
        &["{a: [1]}", "{a: [1, 2, 3]}", "{a: [[1, 2]]}", "{a: 2}", "{}"],
    );
    check("{a: {$size: 0}}", &["{a: []}"], &["{a: [1]}", "{}"]);
    check("{a: {$size: 1.0}}", &["{a: [1]}"], &[]);
    check("{'a.0': {$size: 1}}", &["{a: [[1]]}"], &["{a: [1]}"]);
}

#[test]
fn all_requires_every_part() {
    check("{a: {$all: [1, 2]}}", &["{a: [2, 3, 1]}"], &["{a: [1]}", "{a: 1}"]);
    check("{a: {$all: [1]}}", &["{a: 1}", "{a: [1]}"], &["{a: 2}"]);
    check("{a: {$all: [[1, 2]]}}", &["{a: [1, 2]}", "{a: [[1, 2]]}"], &["{a: [1]}"]);
    check("{a: {$all: [/x/, 'y']}}", &["{a: ['ax', 'y']}"], &["{a: ['ax']}"]);
    check("{a: {$all: []}}", &[], &["{a: []}", "{}"]);
    check("{a: {$all: [null]}}", &["{}", "{a: null}", "{a: [null]}"], &["{a: []}"]);
    check(
        "{a: {$all: [{$elemMatch: {b: 1}}, {$elemMatch: {c: 2}}]}}",
        &["{a: [{b: 1}, {c: 2}]}"],
        &["{a: [{b: 1}]}"],
    );
}

#[test]
fn the_position_is_of_the_outermost_array_looked_through() {
    check_position("{a: 2}", "{a: [1, 2]}", Some(1));
    check_position("{a: [1, 2]}", "{a: [1, 2]}", None);
    check_position("{a: 2}", "{a: 2}", None);
    check_position("{'a.b': 2}", "{a: [{b: 1}, {b: [0, 2]}]}", Some(1));
    check_position("{'a.b': 2}", "{a: {b: [0, 0, 2]}}", Some(2));
    check_position("{a: {$elemMatch: {b: 2}}}", "{a: [{b: 1}, {b: 2}]}", Some(1));
    check_position("{a: {$elemMatch: {b: {$gt: 1}}}, c: 1}", "{a: [{b: 1}, {b: 2}], c: 1}", Some(1));
    check_position("{a: {$ne: 2}}", "{a: [1]}", None);
    check_position("{$or: [{b: 7}, {a: 2}]}", "{a: [1, 2], b: [9]}", None);
    check_position("{'a.1': 2}", "{a: [1, 2]}", None);
}

#[test]
fn a_single_value_can_be_held_against_a_filter() {
    use base::bson::Value;
    let context = Context::for_tests();
    let holds = |filter: &str, text: &str| {
        let document = document(text);
        parse(filter).matches_value(document.view().get("v").unwrap(), &context).unwrap()
    };
    assert!(holds("{x: {$gt: 3}}", "{v: 4}"));
    assert!(!holds("{x: {$gt: 3}}", "{v: 3}"));
    assert!(holds("{'x.y': 1}", "{v: {y: 1}}"));
    assert!(holds("{x: 5}", "{v: [4, 5]}"));
    assert!(holds("{$or: [{x: 1}, {'x.y': {$exists: false}}]}", "{v: 2}"));
    assert!(
        parse("{x: {$expr: 1}}".replace("{$expr: 1}", "1").as_str())
            .matches_value(Value::Int64(1), &context)
            .unwrap()
    );
}

#[test]
fn gaps_in_arrays_are_null_in_mongodb_9_0() {
    let matches = |filter: &str, text: &str| is_match(&parse(filter).with_gaps(), text);
    for gap in ["{a: []}", "{a: [1]}", "{a: [[{b: 3}]]}", "{a: [[{b: 2}], {b: 3}]}", "{a: [{b: 2}, null]}"] {
        for filter in
            ["{'a.b': null}", "{'a.b': {$in: [null, 7]}}", "{'a.b': {$gte: null}}", "{'a.b': {$lte: null}}"]
        {
            assert!(matches(filter, gap), "{filter} should match {gap}");
            assert!(!is_match(&parse(filter), gap), "{filter} should not match {gap} in 8.2");
        }
        assert!(!matches("{'a.b': {$ne: null}}", gap) && !matches("{'a.b': {$nin: [null]}}", gap), "{gap}");
        assert!(!matches("{'a.b': 7}", gap) && matches("{'a.b': {$ne: 7}}", gap), "{gap}");
    }
    assert!(!matches("{'a.b': null}", "{a: [{b: 1}, {b: [[2]]}]}"));
    assert!(!matches("{a: null}", "{a: []}"));
    assert!(
        matches("{'a.b': {$gt: MinKey()}}", "{a: [1]}") && matches("{'a.b': {$lt: MaxKey()}}", "{a: []}")
    );
    assert!(matches("{$nor: [{'a.b': {$ne: null}}]}", "{a: [1]}"));
}

#[test]
fn arrays_whose_elements_lead_nowhere_are_null_in_mongodb_9_0() {
    let matches = |filter: &str, text: &str| is_match(&parse(filter).with_gaps(), text);
    for (path, gaps, others) in [
        ("a.0", &["{a: []}"][..], &["{a: [5]}", "{a: [[]]}"][..]),
        ("a.1", &["{a: []}", "{a: [5]}", "{a: [[]]}"], &["{a: [5, 6]}"]),
        ("a.0.b", &["{a: []}", "{a: [5]}", "{a: [5, [6]]}", "{a: [[5]]}"], &["{a: [[]]}", "{a: [[{b: 1}]]}"]),
        ("a.1.b", &["{a: [5]}", "{a: [[{b: 1}]]}"], &["{a: [5, []]}", "{a: [5, [{b: 1}]]}"]),
    ] {
        let (equal, not_equal) = (format!("{{'{path}': null}}"), format!("{{'{path}': {{$ne: null}}}}"));
        for gap in gaps {
            assert!(matches(&equal, gap) && !matches(&not_equal, gap), "{path} in {gap}");
        }
        for other in others {
            assert!(!matches(&equal, other) && matches(&not_equal, other), "{path} in {other}");
        }
    }
}

#[test]
fn many_values_of_all_are_searched_in_a_sorted_array() {
    let all = |more: &str| {
        let values: Vec<_> = (0..40).map(|value| value.to_string()).collect();
        format!("{{a: {{$all: [{}, {more}]}}}}", values.join(", "))
    };
    let numbers: Vec<_> = (0..40).rev().map(|value| format!("NumberLong({value})")).collect();
    let array = |more: &str| format!("{{b: 1, a: [{}, {more}], a: 1}}", numbers.join(", "));
    check(&all("'x'"), &[&array("1, 'x'")], &[&array("1, 'y'"), &array("['x']"), "{a: 'x'}", "{}"]);
    check(&all("null"), &[&array("null")], &[&array("1"), &array("undefined")]);
    check(&all("NaN"), &[&array("NaN")], &[&array("Infinity")]);
    check(&all("[1, 2]"), &[&array("[1, 2]")], &[&array("[2, 1]"), &array("1, 2")]);
    check_position(&all("'x'"), &array("'x', 'x'"), Some(40));
    let twice = format!("{{a: {{$all: [{}]}}}}", vec!["[1, 1]"; 40].join(", "));
    check(&twice, &["{a: [1, 1]}", "{a: [[1, 1]]}"], &["{a: [1]}", "{a: [1, 1, 1]}"]);
    check_position(&twice, "{a: [1, 1]}", None);
}

#[test]
fn many_conditions_use_an_index_of_the_fields() {
    let fields = |last: &str| {
        let fields: Vec<_> = (0..40).map(|at| format!("f{at}: {{x: {at}}}")).collect();
        format!("{{{}, a: [{{b: 5}}, {last}]}}", fields.join(", "))
    };
    let conditions: Vec<_> = (0..40).map(|at| format!("{{'f{at}.x': {at}}}")).collect();
    let all = format!("{{$and: [{}, {{'a.b': 1}}, {{z: null}}]}}", conditions.join(", "));
    check(&all, &[&fields("{b: 1}")], &[&fields("{b: 2}"), &(fields("{b: 1}").replace("x: 17}", "x: 18}"))]);
    check_position(&all, &fields("{b: 1}"), Some(1));
    let wrong: Vec<_> = (0..40).map(|at| format!("{{'f{at}.x': -1}}")).collect();
    let any = format!("{{$or: [{}, {{'a.b': 1}}]}}", wrong.join(", "));
    check(&any, &[&fields("{b: 1}")], &[&fields("{b: 2}"), "{}"]);
}
