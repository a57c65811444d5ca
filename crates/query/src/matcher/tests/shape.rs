//! The normalised tree as explain prints it, and the equalities that an upsert takes from it.

use super::*;

#[test]
fn children_stand_in_canonical_order() {
    check_shape("{}", "{}");
    check_shape("{a: 1}", "{a: {$eq: 1}}");
    check_shape("{x: 0, $or: [{a: 1}]}", "{$and: [{a: {$eq: 1}}, {x: {$eq: 0}}]}");
    check_shape(
        "{a: {$gt: -1, $lt: 1, $ne: 0}}",
        "{$and: [{a: {$lt: 1}}, {a: {$gt: -1}}, {a: {$not: {$eq: 0}}}]}",
    );
    check_shape(
        "{b: {$type: 'double'}, a: {$type: 'string'}}",
        "{$and: [{a: {$type: [2]}}, {b: {$type: [1]}}]}",
    );
    check_shape(
        "{name: {$regex: '^e', $gte: 'em'}}",
        "{$and: [{name: {$gte: 'em'}}, {name: {$regex: '^e'}}]}",
    );
    check_shape(
        "{$or: [{a: 1}, {a: {$gt: 5, $lt: 0}}]}",
        "{$or: [{$and: [{a: {$lt: 0}}, {a: {$gt: 5}}]}, {a: {$eq: 1}}]}",
    );
}

#[test]
fn equal_filters_get_one_shape() {
    check_shape("{$and: [{a: 1}, {$and: [{b: 2}]}]}", "{$and: [{a: {$eq: 1}}, {b: {$eq: 2}}]}");
    check_shape("{a: {$in: [1]}}", "{a: {$eq: 1}}");
    check_shape("{a: {$in: [2, 1, 2.0, /x/]}}", "{a: {$in: [1, 2, /x/]}}");
    check_shape("{a: {$in: [/x/i]}}", "{a: {$regex: 'x', $options: 'i'}}");
    check_shape("{$or: [{a: 2}, {a: {$in: [1, 3]}}]}", "{a: {$in: [1, 2, 3]}}");
    check_shape("{$or: [{a: 2}, {b: 2}]}", "{$or: [{a: {$eq: 2}}, {b: {$eq: 2}}]}");
    check_shape("{a: {$nin: [1, 2]}}", "{a: {$not: {$in: [1, 2]}}}");
    check_shape("{a: {$exists: false}}", "{a: {$not: {$exists: true}}}");
    check_shape("{a: {$not: {$gt: 1, $lt: 5}}}", "{a: {$not: {$lt: 5, $gt: 1}}}");
    check_shape("{a: {$all: [1, 2]}}", "{$and: [{a: {$eq: 1}}, {a: {$eq: 2}}]}");
    check_shape("{a: {$elemMatch: {$ne: null}}}", "{a: {$elemMatch: {$not: {$eq: null}}}}");
    check_shape(
        "{a: {$elemMatch: {c: 1, b: 2}}}",
        "{a: {$elemMatch: {$and: [{b: {$eq: 2}}, {c: {$eq: 1}}]}}}",
    );
    check_shape("{a: {$in: []}, b: 1}", "{$alwaysFalse: 1.0}");
    check_shape("{a: {$elemMatch: {$nin: []}}}", "{a: {$elemMatch: {$exists: true}}}");
    check_shape("{$nor: [{a: 1}]}", "{$nor: [{a: {$eq: 1}}]}");
    check_shape(
        "{a: {$mod: [4.5, 1]}, b: {$size: 2}}",
        "{$and: [{b: {$size: 2}}, {a: {$mod: [NumberLong('4'), NumberLong('1')]}}]}",
    );
    check_shape("{a: {$bitsAllSet: 5}}", "{a: {$bitsAllSet: [0, 2]}}");
    check_shape("{a: {$type: 'number'}}", "{a: {$type: ['number']}}");
}

#[test]
fn an_upsert_uses_equalities() {
    let names = |filter: &str| {
        let matcher = parse(filter);
        matcher
            .equalities()
            .map(|found| found.iter().map(|(path, value)| format!("{path}={value}")).collect::<Vec<_>>())
    };
    assert_eq!(names("{a: 1, $and: [{b: 'x'}], c: {$gt: 1}}").unwrap(), ["a=1", "b=\"x\""]);
    assert_eq!(names("{a: {$in: [1]}, $or: [{b: 2}]}").unwrap(), ["a=1", "b=2"]);
    assert_eq!(names("{$or: [{a: 1}, {b: 2}], c: {$ne: 1}, d: /x/}").unwrap(), [""; 0]);
    let error = names("{a: 1, $and: [{a: 2}]}").unwrap_err();
    assert_eq!(error.message(), "cannot infer query fields to set, path 'a' is matched twice");
    let error = names("{'a.b': 1, a: 2}").unwrap_err();
    assert_eq!(error.message(), "cannot infer query fields to set, both paths 'a.b' and 'a' are matched");
    assert_eq!(error.code().number(), 54);
    for (last, message) in [
        ("x: 1, y: 1", None),
        ("'g.x': 1, g: 1", Some("both paths 'g.x' and 'g' are matched")),
        ("'g.x': 1, 'f4.y.z': 1, g: 1", Some("both paths 'f4.y.z' and 'f4.y' are matched")),
        ("'f4': 1, x: 1, x: 1", Some("both paths 'f4.y' and 'f4' are matched")),
        ("x: 1, f3: 1, f4: 1", Some("path 'f3' is matched twice")),
    ] {
        let many: Vec<_> =
            (0..40).map(|at| if at == 4 { "'f4.y': 1".into() } else { format!("f{at}: 1") }).collect();
        let found = parse(&format!("{{{}, {last}}}", many.join(", "))).equalities().map(|found| found.len());
        let error = found.err().map(|error| error.message().to_string());
        assert_eq!(error, message.map(|why| format!("cannot infer query fields to set, {why}")), "{last}");
    }
}
