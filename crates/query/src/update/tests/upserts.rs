//! Documents inserted by upserts.

use super::super::*;
use super::document;

fn upsert(filter: &str, update: &str) -> Result<String> {
    let context = Context::for_tests();
    let wrapped = document(&format!("{{u: {update}}}"));
    let update = Update::parse(wrapped.view().get("u").unwrap(), &[], &context)?;
    let filter = Matcher::parse(document(filter).view(), &context)?;
    let inserted = update.upsert(&filter, &context)?;
    base::bson::validate(inserted.bytes()).unwrap();
    Ok(inserted.to_string())
}

fn gives(filter: &str, update: &str, expected: &str) {
    assert_eq!(upsert(filter, update).unwrap(), expected);
}

#[test]
fn equalities_of_the_filter_are_first() {
    gives("{a: 1, b: {$gt: 2}}", "{$set: {c: 3}}", "{ a: 1, c: 3 }");
    gives("{a: 1, _id: 7}", "{$set: {c: 3}}", "{ _id: 7, a: 1, c: 3 }");
    gives("{$and: [{'a.b': 1}, {'a.c': {$eq: 2}}]}", "{$inc: {n: 1}}", "{ a: { b: 1, c: 2 }, n: 1 }");
    gives("{a: 1}", "{$setOnInsert: {_id: 5}}", "{ _id: 5, a: 1 }");
    gives("{a: 1}", "{$set: {a: 2}}", "{ a: 2 }");
    gives("{a: 1}", "{$setOnInsert: {}}", "{ a: 1 }");
    gives("{a: {b: 1}}", "{$set: {'a.c': 2}}", "{ a: { b: 1, c: 2 } }");
}

#[test]
fn replacements_take_only_the_id() {
    gives("{a: 1, _id: 7}", "{c: 3}", "{ _id: 7, c: 3 }");
    gives("{a: 1}", "{c: 3}", "{ c: 3 }");
    gives("{a: 1}", "{}", "{}");
    gives("{a: 1}", "{c: 3, $d: 4}", "{ c: 3, $d: 4 }");
    let error = upsert("{_id: 1}", "{_id: 2.0}").unwrap_err();
    assert_eq!(error.code(), base::ErrorCode::ImmutableField);
}

#[test]
fn pipelines_start_from_the_equalities() {
    gives("{a: 1, _id: 7}", "[{$set: {b: '$a'}}]", "{ _id: 7, a: 1, b: 1 }");
}

#[test]
fn filters_that_contradict_themselves_are_refused() {
    let error = upsert("{c: 2, $and: [{c: 1}, {d: 1}]}", "{$setOnInsert: {_id: 1}}").unwrap_err();
    assert_eq!(error.message(), "cannot infer query fields to set, path 'c' is matched twice");
    assert_eq!(error.code().number(), 54);
    let error = upsert("{_id: 4}", "{$set: {_id: 5}}").unwrap_err();
    assert_eq!(error.code().number(), 66);
    let error = upsert("{}", "{$set: {'a.$.b': 1}}").unwrap_err();
    assert_eq!(error.message(), "The positional operator did not find the match needed from the query.");
}

#[test]
fn an_id_that_cannot_be_stored_is_refused() {
    let code = |filter: &str, update: &str| upsert(filter, update).unwrap_err().code().number();
    assert_eq!(code("{}", "{$setOnInsert: {_id: [1]}}"), 53);
    assert_eq!(code("{'_id.a.$b': 1}", "{$set: {x: 1}}"), 52);
    assert_eq!(code("{'_id.a.$b': 1}", "{$setOnInsert: {}}"), 52);
    assert_eq!(code("{x: 1}", "{$set: {_id: {a: {$b: 1}}}}"), 52);
    assert_eq!(code("{_id: {a: {$b: 1}}}", "{_id: {a: {$b: 1}}}"), 52);
    assert_eq!(code("{'_id.a.$b': 1}", "[{$replaceWith: {$literal: {a: {$a: 1}}}}]"), 52);
    assert_eq!(code("{'_id.a.$b': 1}", "{_id: {a: {$b: 1}}}"), 111);
    gives("{}", "{_id: {$ref: 'x', $id: 1, $db: 'd'}}", "{ _id: { $ref: \"x\", $id: 1, $db: \"d\" } }");
}
