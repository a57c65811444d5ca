//! Results of each operator.

use super::case;

#[test]
fn fields_are_created_in_the_order_of_their_names() {
    let update = case("{$set: {'z.y': 1, b: 7, 'd.x': 2}, $unset: {a: ''}, $push: {p: 3}}");
    update.gives("{_id: 1, a: 1, d: {x: 1}}", "{_id: 1, d: {x: 2}, b: 7, p: [3], z: {y: 1}}");
    case("{$set: {'a.10': 1, 'a.9': 1, 'a.b': 1}}").gives("{_id: 1}", "{_id: 1, a: {'9': 1, '10': 1, b: 1}}");
    case("{$set: {c: 1, b: 1}, $inc: {a: 1}}").gives("{_id: 1}", "{_id: 1, a: 1, b: 1, c: 1}");
}

#[test]
fn set_is_no_change_only_for_the_same_bytes() {
    case("{$set: {a: 1}}").keeps("{_id: 1, a: 1}");
    case("{$set: {a: 1.0}}").gives("{_id: 1, a: 1}", "{_id: 1, a: 1.0}");
    case("{$set: {}}").keeps("{_id: 1}");
    case("{$set: {_id: 1}}").keeps("{_id: 1}");
    case("{$set: {'a.0': 5, 'a.3': 6}}").gives("{_id: 1, a: [1, 2]}", "{_id: 1, a: [5, 2, null, 6]}");
    case("{$setOnInsert: {a: 1}}").keeps("{_id: 1}");
    case("{$setOnInsert: {'a.b': 1}}").inserting().gives("{_id: 1}", "{_id: 1, a: {b: 1}}");
}

#[test]
fn unset_leaves_a_null_in_arrays() {
    case("{$unset: {'a.1': 1, 'b.c': 1}}").gives("{_id: 1, a: [1, 2], b: 3}", "{_id: 1, a: [1, null], b: 3}");
    case("{$unset: {x: 1, 'a.7': 1, 'a.b.c': 1}}").keeps("{_id: 1, a: [1, 2]}");
}

#[test]
fn numbers_widen_where_they_must() {
    case("{$inc: {a: 1}}").gives("{a: 2147483647}", "{a: NumberLong(2147483648)}");
    case("{$inc: {a: 0}}").keeps("{a: 1}");
    case("{$inc: {a: NumberLong(1)}}").gives("{a: 1}", "{a: NumberLong(2)}");
    case("{$inc: {a: 0.5}}").gives("{a: 1}", "{a: 1.5}");
    case("{$inc: {a: NumberDecimal('0.1')}}").gives("{a: 1}", "{a: NumberDecimal('1.1')}");
    case("{$inc: {a: 5}, $mul: {b: NumberLong(7)}}").gives("{}", "{a: 5, b: NumberLong(0)}");
    case("{$mul: {a: 3}}").gives("{a: 4}", "{a: 12}");
    case("{$mul: {a: 2}}").gives("{a: 2000000000}", "{a: NumberLong(4000000000)}");
    case("{$bit: {a: {and: 12, or: 1}}}").gives("{a: 10}", "{a: 9}");
    case("{$bit: {a: {xor: NumberLong(5)}}}").gives("{}", "{a: NumberLong(5)}");
}

#[test]
fn extremes_compare_across_types() {
    case("{$min: {a: 2}}").gives("{a: 3}", "{a: 2}");
    case("{$min: {a: 3.0}}").keeps("{a: 3}");
    case("{$max: {a: 'x'}}").gives("{a: 3}", "{a: 'x'}");
    case("{$max: {a: 1}, $min: {b: 1}}").gives("{}", "{a: 1, b: 1}");
}

#[test]
fn current_date_is_the_operations_time() {
    case("{$currentDate: {a: true, b: {$type: 'timestamp'}, c: {$type: 'date'}}}").gives(
        "{}",
        "{a: ISODate('1970-01-01T00:00:00Z'), b: Timestamp(0, 1), c: ISODate('1970-01-01T00:00:00Z')}",
    );
}

#[test]
fn rename_moves_a_value() {
    case("{$rename: {a: 'c.d', x: 'y'}}").gives("{a: 1, b: 2}", "{b: 2, c: {d: 1}}");
    case("{$rename: {a: 'b'}}").gives("{a: 1, b: 2}", "{b: 1}");
    case("{$rename: {'a.b': 'a.c'}}").gives("{a: {b: 1, z: 2}}", "{a: {z: 2, c: 1}}");
    case("{$rename: {x: 'b.0.c'}}").keeps("{b: [1]}");
}

#[test]
fn many_renames_find_what_a_few_find() {
    let list = |each: &dyn Fn(usize) -> String| (10..60).map(each).collect::<Vec<_>>().join(", ");
    let fields = list(&|n| format!("f{n}: {n}"));
    let renames = list(&|n| format!("f{n}: 'x{n}', 'd.f{n}': 'e.x{n}', 'missing.f{n}': 'y{n}'"));
    let moved = list(&|n| format!("x{n}: {n}"));
    let before = format!("{{_id: 1, a: 1, {fields}, d: {{{fields}, b: 2}}, l: [{{b: 1}}]}}");
    let after = format!("{{_id: 1, d: {{b: 2}}, l: [{{b: 1}}], e: {{{moved}}}, {moved}, z: 1}}");
    case(&format!("{{$rename: {{{renames}, a: 'z'}}}}")).gives(&before, &after);
    case(&format!("{{$rename: {{{renames}, a: 'z', 'l.5': 'f'}}}}")).gives(&before, &after);
    case(&format!("{{$rename: {{{renames}, 'l.0': 'z'}}}}")).fails(
        &before,
        2,
        "The source field cannot be an array element, 'l.0' in doc with _id: 1 has an array field called 'l'",
    );
    case(&format!("{{$rename: {{{renames}, a: 'l.0.c'}}}}")).fails(
        &before,
        2,
        "The destination field cannot be an array element, 'l.0.c' in doc with _id: 1 has an array field called 'l'",
    );
    case(&format!("{{$rename: {{{renames}, 'a.b': 'z'}}}}")).fails(
        &before,
        28,
        "cannot use the part (a of a.b) to traverse the element ({a: 1})",
    );
}

#[test]
fn push_appends_and_its_clauses_work_in_order() {
    case("{$push: {a: [1]}}").gives("{a: [0]}", "{a: [0, [1]]}");
    case("{$push: {a: {$each: [5, 1], $sort: 1, $slice: -2}}}").gives("{a: [3, 2]}", "{a: [3, 5]}");
    case("{$push: {a: {$each: [1, 2], $position: 1}}}").gives("{a: [8, 9]}", "{a: [8, 1, 2, 9]}");
    case("{$push: {a: {$each: [1, 2], $position: -1}}}").gives("{a: [8, 9]}", "{a: [8, 1, 2, 9]}");
    case("{$push: {a: {$each: [], $slice: 0}}}").gives("{a: [8, 9]}", "{a: []}");
    case("{$push: {a: {$each: []}}}").keeps("{a: [8, 9]}");
    case("{$push: {a: {$each: []}}}").gives("{}", "{a: []}");
    case("{$push: {a: {$each: [{x: 2, y: 1}], $sort: {x: -1, y: 1}}}}")
        .gives("{a: [{x: 2, y: 3}, {x: 5}]}", "{a: [{x: 5}, {x: 2, y: 1}, {x: 2, y: 3}]}");
    case("{$push: {a: {$each: [9], $slice: 1}}}").gives("{a: [8]}", "{a: [8]}");
    case("{$push: {a: {$each: [], $slice: 5}}}").keeps("{a: [8]}");
    case("{$push: {a: {$each: [], $sort: 1}}}").gives("{a: [8]}", "{a: [8]}");
    case("{$push: {a: {x: 1}}}").gives("{a: []}", "{a: [{x: 1}]}");
}

#[test]
fn add_to_set_adds_only_new_values() {
    case("{$addToSet: {a: {$each: [1.0, 2, 2, {x: 1}]}}}").gives("{a: [1, {x: 1}]}", "{a: [1, {x: 1}, 2]}");
    case("{$addToSet: {a: 1}}").keeps("{a: [1.0]}");
    case("{$addToSet: {a: [1]}}").gives("{}", "{a: [[1]]}");
    case("{$addToSet: {a: {$each: [1, 1]}}}").gives("{}", "{a: [1]}");
}

#[test]
fn pop_and_pull_take_elements_away() {
    case("{$pop: {a: 1, b: -1, c: 1, d: 1}}")
        .gives("{a: [1, 2], b: [1, 2], c: []}", "{a: [1], b: [2], c: []}");
    case("{$pull: {a: 1}}").gives("{a: [1, 2, 1.0, [1]]}", "{a: [2, [1]]}");
    case("{$pull: {a: {$gte: 3}}}").gives("{a: [1, 3, 5]}", "{a: [1]}");
    case("{$pull: {a: {x: 1}}}").gives("{a: [{x: 1, y: 2}, {x: 2}, 5]}", "{a: [{x: 2}, 5]}");
    case("{$pull: {a: {x: {$gt: 1}, y: 2}}}").gives("{a: [{x: 2, y: 2}, {x: 2}]}", "{a: [{x: 2}]}");
    case("{$pull: {a: {$or: [{x: 1}, {x: 2}]}}}").gives("{a: [{x: 1}, {x: 3}]}", "{a: [{x: 3}]}");
    case("{$pull: {a: /^b/}}").gives("{a: ['ab', 'bc']}", "{a: ['ab']}");
    case("{$pull: {a: {$in: ['x', 1]}}}").gives("{a: ['x', 1, 2]}", "{a: [2]}");
    case("{$pullAll: {a: [1, {x: 1}]}}").gives("{a: [1, {x: 1}, 2]}", "{a: [2]}");
    case("{$pull: {a: 9, b: 1, 'c.d': 1}}").keeps("{a: [1], c: 1}");
}

#[test]
fn replacements_keep_the_id() {
    case("{a: 1}").gives("{_id: 5, b: 1}", "{_id: 5, a: 1}");
    case("{a: 1, _id: 5}").gives("{_id: 5, b: 1}", "{_id: 5, a: 1}");
    case("{}").gives("{_id: 5, b: 1}", "{_id: 5}");
    case("{_id: 5, b: 1}").keeps("{_id: 5, b: 1}");
    // A replacement without _id always counts as a modification.
    case("{b: 1}").gives("{_id: 5, b: 1}", "{_id: 5, b: 1}");
    case("{t: Timestamp(0, 0)}").gives("{_id: 5}", "{_id: 5, t: Timestamp(0, 1)}");
}

#[test]
fn pipelines_make_one_document_of_another() {
    case("[{$set: {a: '$b', c: {d: 1}}}, {$unset: 'b'}]")
        .gives("{_id: 1, b: 7}", "{_id: 1, a: 7, c: {d: 1}}");
    case("[{$replaceWith: '$x'}]").gives("{_id: 1, x: {y: 2}}", "{_id: 1, y: 2}");
    case("[{$replaceRoot: {newRoot: {z: '$x'}}}]").gives("{_id: 1, x: 3}", "{_id: 1, z: 3}");
    case("[{$project: {x: 1}}]").gives("{_id: 1, x: 3, y: 4}", "{_id: 1, x: 3}");
    case("[{$addFields: {x: 3}}]").keeps("{_id: 1, x: 3}");
    case("[]").keeps("{_id: 1, x: 3}");
}
