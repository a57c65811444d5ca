//! Tests of typical schemas against typical documents.

use crate::matcher::tests::{check, check_error};

#[track_caller]
fn check_schema(schema: &str, matching: &[&str], others: &[&str]) {
    check(&format!("{{$jsonSchema: {schema}}}"), matching, others);
}

#[track_caller]
fn refuse(schema: &str, code: i32, message: &str) {
    check_error(&format!("{{$jsonSchema: {schema}}}"), code, message);
}

#[test]
fn a_keyword_constrains_its_own_type_alone() {
    check_schema("{}", &["{}", "{a: 1}"], &[]);
    let schema = "{properties: {a: {maximum: 3}}}";
    check_schema(schema, &["{a: 3}", "{a: 'x'}", "{}", "{a: [9]}"], &["{a: 4}", "{a: 3.5}"]);
    check_schema("{properties: {a: {type: 'number', maximum: 3}}}", &["{a: 3}", "{}"], &["{a: 'x'}"]);
    check_schema("{properties: {a: {bsonType: ['int', 'null']}}}", &["{a: 3}", "{a: null}"], &["{a: 3.5}"]);
    check_schema("{properties: {a: {bsonType: 'number'}}}", &["{a: 3}", "{a: 3.5}"], &["{a: 'x'}"]);
    check_schema("{type: 'object'}", &["{}"], &[]);
    check_schema("{type: 'string'}", &[], &["{}"]);
}

#[test]
fn numbers() {
    let exclusive = "{properties: {a: {minimum: 1, exclusiveMinimum: true}}}";
    check_schema(exclusive, &["{a: 1.5}"], &["{a: 1}", "{a: NaN}"]);
    check_schema(
        "{properties: {a: {multipleOf: 3}}}",
        &["{a: 9}", "{a: 6.0}", "{a: 0}"],
        &["{a: 10}", "{a: 1.5}"],
    );
    check_schema("{properties: {a: {multipleOf: 0.1}}}", &["{a: 0.3}"], &["{a: 0.25}"]);
}

#[test]
fn strings() {
    check_schema(
        "{properties: {a: {minLength: 2, maxLength: 3}}}",
        &["{a: 'éé'}"],
        &["{a: 'é'}", "{a: 'abcd'}"],
    );
    check_schema("{properties: {a: {pattern: '^x'}}}", &["{a: 'xy'}", "{a: 1}"], &["{a: 'yx'}"]);
    check_schema(
        "{properties: {a: {enum: ['p', 1, {b: 1, c: 2}]}}}",
        &["{a: 'p'}", "{a: 1.0}", "{a: {c: 2, b: 1}}"],
        &["{a: 'q'}", "{a: {b: 1}}"],
    );
}

#[test]
fn arrays() {
    check_schema(
        "{properties: {a: {minItems: 1, maxItems: 2}}}",
        &["{a: [1]}"],
        &["{a: []}", "{a: [1, 2, 3]}"],
    );
    check_schema(
        "{properties: {a: {uniqueItems: true}}}",
        &["{a: [1, 2]}", "{a: []}"],
        &["{a: [1, 1.0]}", "{a: [{b: 1, c: 2}, {c: 2, b: 1}]}"],
    );
    check_schema(
        "{properties: {a: {items: {type: 'string'}}}}",
        &["{a: ['x']}", "{a: []}", "{a: 1}"],
        &["{a: ['x', 1]}"],
    );
    let list = "{properties: {a: {items: [{type: 'string'}, {type: 'number'}], additionalItems: false}}}";
    check_schema(list, &["{a: ['x', 1]}", "{a: ['x']}"], &["{a: [1]}", "{a: ['x', 1, 2]}"]);
    let more = "{properties: {a: {items: [{}], additionalItems: {type: 'number'}}}}";
    check_schema(more, &["{a: ['x', 1, 2]}"], &["{a: [1, 'x']}"]);
}

#[test]
fn documents() {
    check_schema("{required: ['a', 'b']}", &["{b: 1, a: null}"], &["{a: 1}"]);
    check_schema("{minProperties: 1, maxProperties: 2}", &["{a: 1}"], &["{}", "{a: 1, b: 1, c: 1}"]);
    let closed =
        "{properties: {a: {}}, patternProperties: {'^x': {type: 'number'}}, additionalProperties: false}";
    check_schema(closed, &["{a: 1, xy: 2}", "{}"], &["{b: 1}", "{xy: 'z'}"]);
    check_schema("{additionalProperties: {type: 'number'}}", &["{a: 1}"], &["{a: 'x'}"]);
    check_schema("{dependencies: {a: ['b']}}", &["{}", "{a: 1, b: 1}"], &["{a: 1}"]);
    check_schema("{dependencies: {a: {required: ['c']}}}", &["{b: 1}", "{a: 1, c: 1}"], &["{a: 1}"]);
    check_schema("{properties: {a: {required: ['b']}}}", &["{a: 1}", "{a: {b: 1}}"], &["{a: {}}"]);
}

#[test]
fn combinations() {
    check_schema("{allOf: [{required: ['a']}, {required: ['b']}]}", &["{a: 1, b: 1}"], &["{a: 1}"]);
    check_schema("{anyOf: [{required: ['a']}, {required: ['b']}]}", &["{a: 1}", "{a: 1, b: 1}"], &["{}"]);
    check_schema("{oneOf: [{required: ['a']}, {required: ['b']}]}", &["{a: 1}"], &["{a: 1, b: 1}", "{}"]);
    check_schema("{not: {required: ['a']}}", &["{}"], &["{a: 1}"]);
    check("{$_internalSchemaMinProperties: 2, b: 1}", &["{a: 1, b: 1}"], &["{b: 1}"]);
    check("{$_internalSchemaMaxProperties: 1}", &["{b: 1}"], &["{a: 1, b: 1}"]);
    check("{b: 1, $jsonSchema: {required: ['a']}}", &["{a: 1, b: 1}"], &["{a: 1}", "{b: 1}"]);
}

#[test]
fn errors() {
    check_error("{$jsonSchema: 'foo'}", 14, "$jsonSchema must be an object");
    check_error(
        "{a: {$elemMatch: {$jsonSchema: {}}}}",
        2,
        "$jsonSchema can only be applied to the top-level document",
    );
    refuse("{invalid: 1}", 9, "Unknown $jsonSchema keyword: invalid");
    refuse("{format: 'email'}", 9, "$jsonSchema keyword 'format' is not currently supported");
    refuse("{type: 3}", 14, "$jsonSchema keyword 'type' must be either a string or an array of strings");
    refuse("{type: 'integer'}", 9, "$jsonSchema type 'integer' is not currently supported.");
    refuse(
        "{type: 'string', bsonType: 'int'}",
        9,
        "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'",
    );
    refuse("{properties: 3}", 14, "$jsonSchema keyword 'properties' must be an object");
    refuse(
        "{properties: {num: 'number'}}",
        14,
        "Nested schema for $jsonSchema property 'num' must be an object",
    );
    refuse("{maximum: '0'}", 14, "$jsonSchema keyword 'maximum' must be a number");
    refuse(
        "{exclusiveMaximum: true}",
        9,
        "$jsonSchema keyword 'maximum' must be a present if exclusiveMaximum is present",
    );
    refuse("{maxLength: '0'}", 9, "Expected a number in: maxLength: \"0\"");
    refuse("{pattern: 1}", 14, "$jsonSchema keyword 'pattern' must be a string");
    refuse(
        "{additionalItems: 1.5}",
        14,
        "$jsonSchema keyword 'additionalItems' must be either an object or a boolean, but got a double",
    );
    refuse("{items: 'true'}", 14, "$jsonSchema keyword 'items' must be an array or an object, not string");
    refuse("{allOf: {}}", 14, "$jsonSchema keyword 'allOf' must be an array");
    refuse(
        "{oneOf: [1.5]}",
        14,
        "$jsonSchema keyword 'oneOf' must be an array of objects, but found an element of type double",
    );
    refuse(
        "{not: [1]}",
        14,
        "$jsonSchema keyword 'not' must be an object, but found an element of type array",
    );
    refuse("{required: []}", 9, "$jsonSchema keyword 'required' cannot be an empty array");
    refuse("{enum: [1, 1.0]}", 9, "$jsonSchema keyword 'enum' array cannot contain duplicate values");
    refuse("{title: 'a', title: 'b'}", 9, "Duplicate $jsonSchema keyword: title");
}

#[test]
fn many_properties_use_an_index_of_the_fields() {
    let names: Vec<_> = (0..40).rev().map(|at| format!("f{at}")).collect();
    let each =
        |value: &str| names.iter().map(|name| format!("{name}: {value}")).collect::<Vec<_>>().join(", ");
    let schema = format!(
        "{{required: ['{}'], properties: {{{}}}, additionalProperties: false}}",
        names.join("', '"),
        each("{minimum: 5}")
    );
    let valid = format!("{{{}}}", each("5"));
    check_schema(
        &schema,
        &[&valid],
        &[
            &valid.replace("f9: 5", "f9: 4"),
            &valid.replace("f9", "g9"),
            &valid.replace("f9:", "x: 5, f9:"),
            "{}",
        ],
    );
}
