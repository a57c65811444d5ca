//! MongoDB's errors, word for word.

use super::case;

#[test]
fn paths_that_cannot_be() {
    case("{$set: {'a.f': 1}}").fails("{a: []}", 28, "Cannot create field 'f' in element {a: []}");
    case("{$set: {'a.b.c': 1}}").fails("{a: {b: 1}}", 28, "Cannot create field 'c' in element {b: 1}");
    case("{$pop: {'a.b.c': 1}}").fails(
        "{a: {b: [1.0, 2.0]}}",
        28,
        "Cannot use the part (c) of (a.b.c) to traverse the element ({b: [ 1.0, 2.0 ]})",
    );
    case("{$set: {'a.1500001': 1}}").fails("{a: []}", 34, "can't backfill more than 1500000 elements");
    let text = "The update path '..0' contains an empty field name, which is not allowed.";
    case("{$set: {'..0': 1}}").fails("{}", 56, text);
}

#[test]
fn conflicts() {
    let text = "Updating the path 'a.b' would create a conflict at 'a'";
    case("{$set: {a: 1, 'a.b': 1}}").fails("{}", 40, text);
    case("{$set: {'a.b': 1}, $inc: {a: 1}}").fails(
        "{}",
        40,
        "Updating the path 'a' would create a conflict at 'a'",
    );
    case("{$set: {a: 1}, $unset: {a: 1}}").fails(
        "{}",
        40,
        "Updating the path 'a' would create a conflict at 'a'",
    );
    case("{$set: {'a.0': 1, 'a.$[]': 1}}").fails(
        "{}",
        40,
        "Updating the path 'a.$[]' would create a conflict at 'a'",
    );
    case("{$rename: {a: 'b'}, $set: {b: 1}}").fails(
        "{}",
        40,
        "Updating the path 'b' would create a conflict at 'b'",
    );
}

#[test]
fn the_id_does_not_change() {
    let text = "Performing an update on the path '_id' would modify the immutable field '_id'";
    case("{$set: {_id: 2}}").fails("{_id: 1}", 66, text);
    case("{$unset: {_id: 1}}").fails("{_id: 1}", 66, text);
    case("{$rename: {_id: 'a'}}").fails("{_id: 1}", 66, text);
    case("{$setOnInsert: {'_id.b': 1.0}}").inserting().fails(
        "{_id: {a: 4.0}}",
        66,
        "Updating the path '_id' to _id: { a: 4.0, b: 1.0 } would modify the immutable field '_id'",
    );
    let text =
        "After applying the update, the (immutable) field '_id' was found to have been altered to _id: 2.0";
    case("{_id: 2.0, a: 3}").fails("{_id: 1}", 66, text);
    case("[{$set: {_id: 2.0}}]").fails("{_id: 1}", 66, text);
}

#[test]
fn a_replaced_id_is_checked_before_it_is_compared() {
    let refusal = |name: &str, path: &str| {
        format!(
            "The dollar ($) prefixed field '{name}' in '{path}' is not allowed in the context of an update's \
             replacement document. Consider using an aggregation pipeline with $replaceWith."
        )
    };
    for (id, path) in [("{$b: 1}", "_id.$b"), ("{a: {$b: 1}}", "_id.a.$b"), ("{a: [{$b: 1}]}", "_id.a.0.$b")]
    {
        case(&format!("{{_id: {id}}}")).fails("{_id: 1}", 52, &refusal("$b", path));
        let pipeline = format!("[{{$replaceWith: {{$literal: {{_id: {id}}}}}}}]");
        case(&pipeline).fails("{_id: 1}", 52, &refusal("$b", path));
    }
    case("{_id: [1]}").fails("{_id: 1}", 53, "The '_id' value cannot be of type array");
    let text = "Found $id field without a $ref before it, which is invalid.";
    case("{_id: {a: {$id: 1}}}").fails("{_id: 1}", 55, text);
    let text = "The DBRef $ref field must be followed by a $id field";
    case("{_id: {$ref: 'x'}}").fails("{_id: 1}", 55, text);
    let text = "After applying the update, the (immutable) field '_id' was found to have been altered to \
                _id: { $ref: \"x\", $id: 1 }";
    case("{_id: {$ref: 'x', $id: 1}}").fails("{_id: 1}", 66, text);
    // A stored document keeps its `_id`.
    let stored = "{_id: {a: {$b: 1}}, x: 1}";
    case("{$set: {x: 2}}").gives(stored, "{_id: {a: {$b: 1}}, x: 2}");
    case("[{$set: {x: 2}}]").gives(stored, "{_id: {a: {$b: 1}}, x: 2}");
    case("{x: 2}").gives(stored, "{_id: {a: {$b: 1}}, x: 2}");
}

#[test]
fn names_with_dollars() {
    let refusal = |name: &str| {
        format!(
            "The dollar ($) prefixed field '{name}' in '{name}' is not allowed in the context of an update's \
             replacement document. Consider using an aggregation pipeline with $replaceWith."
        )
    };
    case("{$set: {$x: 1}}").fails("{_id: 1}", 52, &refusal("$x"));
    case("{a: 1, $x: 1}").fails("{_id: 1}", 52, &refusal("$x"));
    case("{$set: {'a.$x': 1}}").gives("{_id: 1}", "{_id: 1, a: {$x: 1}}");
    case("{$set: {$x: 1}}").inserting().gives("{_id: 1}", "{_id: 1, $x: 1}");
}

#[test]
fn unknown_and_misused_operators() {
    case("{$foo: {a: 1}}").fails(
        "{}",
        9,
        "Unknown modifier: $foo. Expected a valid update modifier or pipeline-style update specified as an array",
    );
    case("{$inc: 1}").fails(
        "{}",
        9,
        "Modifiers operate on fields but we found type int instead. For example: {$mod: {<field>: ...}} not \
         {$inc: 1}",
    );
    case("5").fails("{}", 9, "Update argument must be either an object or an array");
    case("[{$limit: 1}]").fails("{}", 72, "$limit is not allowed to be used within an update");
    case("[{$nope: {}}]").fails("{}", 40324, "Unrecognized pipeline stage name: '$nope'");
}

#[test]
fn numbers() {
    case("{$inc: {a: 'x'}}").fails("{}", 14, r#"Cannot increment with non-numeric argument: {a: "x"}"#);
    case("{$mul: {a: null}}").fails("{}", 14, "Cannot multiply with non-numeric argument: {a: null}");
    case("{$inc: {a: 1}}").fails(
        "{_id: 1.0, a: 'x'}",
        14,
        "Cannot apply $inc to a value of non-numeric type. {_id: 1.0} has the field 'a' of non-numeric type string",
    );
    case("{$inc: {a: 1}}").fails(
        "{_id: 1, a: NumberLong('9223372036854775807')}",
        2,
        "Failed to apply $inc operations to current value ((NumberLong)9223372036854775807) for document {_id: 1}",
    );
    case("{$bit: {a: {}}}").fails(
        "{}",
        2,
        "You must pass in at least one bitwise operation. The format is: {$bit: {field: {and/or/xor: #}}",
    );
}

#[test]
fn arrays() {
    case("{$push: {a: 1}}").fails(
        "{_id: 1, a: 2}",
        2,
        "The field 'a' must be an array but is of type int in document {_id: 1}",
    );
    case("{$push: {a: {$each: 1}}}").fails(
        "{}",
        2,
        "The argument to $each in $push must be an array but it was of type: int",
    );
    case("{$push: {a: {$each: [], $xxx: 1}}}").fails("{}", 2, "Unrecognized clause in $push: $xxx");
    case("{$push: {a: {$each: [], $slice: -2.1}}}").fails(
        "{}",
        2,
        "The value for $slice must be an integer value but was given type: double",
    );
    for (sort, message) in [
        ("{}", "The $sort pattern is empty when it should be a set of fields."),
        ("{'': 1}", "The $sort field cannot be empty"),
        ("{'a.': 1}", "The $sort field is a dotted field but has an empty part: a."),
        ("{a: -2}", "The $sort element value must be either 1 or -1"),
        ("2", "The $sort element value must be either 1 or -1"),
    ] {
        case(&format!("{{$push: {{x: {{$each: [], $sort: {sort}}}}}}}")).fails("{}", 2, message);
    }
    case("{$pop: {a: 0}}").fails("{}", 9, "$pop expects 1 or -1, found: 0");
    case("{$pop: {a: {b: 1.0}}}").fails("{}", 9, "Expected a number in: a: { b: 1.0 }");
    case("{$pop: {a: 1.1}}").fails("{}", 9, "Expected an integer: a: 1.1");
    case("{$pop: {'a.b': 1}}").fails(
        "{a: {b: {}}}",
        14,
        "Path 'a.b' contains an element of non-array type 'object'",
    );
    case("{$pull: {a: 1}}").fails("{a: 1}", 2, "Cannot apply $pull to a non-array value");
    case("{$pullAll: {a: 1}}").fails("{}", 2, "$pullAll requires an array argument but was given a int");
    case("{$addToSet: {a: {$each: 1}}}").fails(
        "{}",
        14,
        "The argument to $each in $addToSet must be an array but it was of type int",
    );
}

#[test]
fn renames() {
    case("{$rename: {a: 1.0}}").fails("{}", 2, "The 'to' field for $rename must be a string: a: 1.0");
    case("{$rename: {a: 'a'}}").fails(
        "{}",
        2,
        r#"The source and target field for $rename must differ: a: "a""#,
    );
    case("{$rename: {a: 'a.b'}}").fails(
        "{}",
        2,
        r#"The source and target field for $rename must not be on the same path: a: "a.b""#,
    );
    case("{$rename: {'a.$': 'b'}}").fails("{}", 2, "The source field for $rename may not be dynamic: a.$");
    case("{$rename: {'a.0': 'b'}}").fails(
        "{_id: 1, a: [1]}",
        2,
        "The source field cannot be an array element, 'a.0' in doc with _id: 1 has an array field called 'a'",
    );
    case("{$rename: {b: 'a.0'}}").fails(
        "{_id: 1, a: [1], b: 1}",
        2,
        "The destination field cannot be an array element, 'a.0' in doc with _id: 1 has an array field called 'a'",
    );
}

#[test]
fn documents_keep_to_their_limits() {
    let half = "x".repeat(9 * 1024 * 1024);
    let before = format!("{{_id: 1, a: '{half}'}}");
    case(&format!("{{$set: {{b: '{half}'}}}}")).fails(
        &before,
        17419,
        "Resulting document after update is larger than 16777216",
    );
    let deep = ["a"; 200].join(".");
    let error = case(&format!("{{$set: {{'{deep}': 1}}}}")).run("{}").unwrap_err();
    assert_eq!(error.code(), base::ErrorCode::Overflow);
}
