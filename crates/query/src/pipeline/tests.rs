//! Tests that random pipelines over random documents have equal results with and without optimisation; [`Run::result`]
//! compares both.

use super::testing::Run;
use proptest::prelude::*;
use proptest::sample::select;

const VALUES: &[&str] =
    &["0", "1", "2", "1.5", "null", "'x'", "[]", "[1, 2]", "[{b: 1}, {b: 2}]", "{b: 1}", "{b: [1, {c: 2}]}"];

fn documents() -> impl Strategy<Value = String> {
    let field = || prop::option::of(select(VALUES));
    prop::collection::vec((field(), field(), field()), 0..6).prop_map(|rows| {
        let document = |(at, (a, b, c)): (usize, &(Option<_>, Option<_>, Option<_>))| {
            let fields = [("a", a), ("b", b), ("c", c)].into_iter();
            let given = fields.filter_map(|(name, value)| value.map(|value| format!(", {name}: {value}")));
            format!("{{_id: {at}{}}}", given.collect::<String>())
        };
        format!("[{}]", rows.iter().enumerate().map(document).collect::<Vec<_>>().join(", "))
    })
}

fn path() -> impl Strategy<Value = &'static str> {
    select(&["a", "b", "c", "a.b", "b.b", "b.c", "_id", "x", "x.b", "j.b", "i"][..])
}

fn condition() -> impl Strategy<Value = String> {
    let operator = select(&["$eq", "$ne", "$gt", "$lte", "$in", "$not", "$exists", "$elemMatch"][..]);
    let one = (path(), operator, select(&["0", "1", "2", "null", "'x'"][..])).prop_map(
        |(path, operator, value)| {
            let argument = match operator {
                "$in" => format!("[{value}, 1]"),
                "$not" => format!("{{$gt: {value}}}"),
                "$exists" => (value != "null").to_string(),
                "$elemMatch" => format!("{{$gte: {value}}}"),
                _ => value.to_string(),
            };
            format!("{{'{path}': {{{operator}: {argument}}}}}")
        },
    );
    let compared = (path(), path()).prop_map(|(a, b)| format!("{{$expr: {{$gte: ['${a}', '${b}']}}}}"));
    prop_oneof![6 => one, 1 => compared, 1 => Just("{}".to_string())].prop_recursive(2, 6, 2, |inner| {
        (select(&["$and", "$or", "$nor"][..]), inner.clone(), inner)
            .prop_map(|(logic, a, b)| format!("{{{logic}: [{a}, {b}]}}"))
    })
}

fn reshaping() -> impl Strategy<Value = &'static str> {
    select(
        &[
            "{$project: {a: 1}}",
            "{$project: {a: 1, 'b.c': 1, x: '$c'}}",
            "{$project: {_id: 0, b: 1, x: 1}}",
            "{$project: {b: 0}}",
            "{$project: {'a.b': 0}}",
            "{$project: {x: '$a', a: '$b'}}",
            "{$project: {a: {b: 1}, b: {$type: '$c'}}}",
            "{$set: {x: '$a'}}",
            "{$set: {a: '$b', c: 1}}",
            "{$set: {'a.b': 1}}",
            "{$set: {x: {b: '$b'}}}",
            "{$unset: 'a'}",
            "{$unset: ['b.c', 'x']}",
            "{$replaceRoot: {newRoot: {_id: '$_id', a: '$b', x: '$$ROOT'}}}",
            "{$group: {_id: '$a', b: {$sum: 1}, x: {$first: '$b'}}}",
            "{$redact: {$cond: [{$eq: ['$b', 1]}, '$$PRUNE', '$$DESCEND']}}",
        ][..],
    )
}

fn multiplying() -> impl Strategy<Value = &'static str> {
    select(
        &[
            "{$unwind: '$a'}",
            "{$unwind: '$b'}",
            "{$unwind: '$j'}",
            "{$unwind: {path: '$a', preserveNullAndEmptyArrays: true, includeArrayIndex: 'i'}}",
            "{$unwind: {path: '$j', preserveNullAndEmptyArrays: true}}",
            "{$lookup: {from: 'other', localField: 'a', foreignField: 'b', as: 'j'}}",
            "{$lookup: {from: 'other', let: {v: '$b'}, pipeline: [{$match: {$expr: {$eq: ['$a', '$$v']}}}], \
              as: 'j'}}",
            "{$unionWith: 'other'}",
        ][..],
    )
}

fn stage() -> impl Strategy<Value = String> {
    let sort = (path(), select(&["1", "-1"][..]))
        .prop_map(|(path, order)| format!("{{$sort: {{'{path}': {order}, _id: 1}}}}"));
    prop_oneof![
        4 => condition().prop_map(|condition| format!("{{$match: {condition}}}")),
        3 => reshaping().prop_map(str::to_string),
        2 => multiplying().prop_map(str::to_string),
        2 => sort.prop_filter("_id twice", |sort| !sort.contains("'_id'")),
        1 => (1..4).prop_map(|count| format!("{{$limit: {count}}}")),
        1 => (0..3).prop_map(|count| format!("{{$skip: {count}}}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn optimising_changes_no_result(
        input in documents(),
        other in documents(),
        stages in prop::collection::vec(stage(), 1..7),
    ) {
        // Some pipelines fail, such as a sort by two arrays; then both may fail.
        let _ = Run::new(&input, &format!("[{}]", stages.join(", "))).with("other", &other).result();
    }
}
