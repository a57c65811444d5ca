//! Tests of documents that validators refuse, and of the error details.

use super::*;
use base::bson::extended_json;
use query::context::Uninterrupted;
use std::sync::Arc;

fn details(validator: &str, document: &str) -> String {
    let context = Context::new(0, 1, Arc::new(Uninterrupted));
    let json = |text| extended_json::parse(text).unwrap();
    let filter = json(validator);
    let validator = Validator::parse(filter.view(), Some("strict"), Some("error"), &context).unwrap();
    let error = validator.check(json(document).view(), None, false, &context).unwrap_err();
    assert_eq!(error.code().number(), 121);
    let info = error.info().and_then(|info| info.get("errInfo")).and_then(|info| info.as_document());
    let details = info.and_then(|info| info.get("details")).and_then(|details| details.as_document());
    extended_json::to_relaxed(details.unwrap())
}

fn same(found: &str, expected: &str) {
    let expected = extended_json::parse(expected).unwrap();
    assert_eq!(found, extended_json::to_relaxed(expected.view()));
}

#[test]
fn a_schema_tells_each_rule_that_failed() {
    let schema = "{$jsonSchema: {required: ['n', 'z'], properties: {n: {bsonType: 'int', minimum: 0}}}}";
    same(
        &details(schema, "{_id: 1, n: -1}"),
        "{operatorName: '$jsonSchema', schemaRulesNotSatisfied: [
           {operatorName: 'required', specifiedAs: {required: ['n', 'z']}, missingProperties: ['z']},
           {operatorName: 'properties', propertiesNotSatisfied: [{propertyName: 'n', details: [
             {operatorName: 'minimum', specifiedAs: {minimum: 0}, reason: 'comparison failed',
              consideredValue: -1}]}]}]}",
    );
}

#[test]
fn a_filter_tells_each_clause_that_failed() {
    same(
        &details("{a: {$gt: 1, $lt: 9}, b: {$type: 'string'}}", "{a: 5, b: 2}"),
        "{operatorName: '$and', clausesNotSatisfied: [{index: 2, details: {operatorName: '$type',
           specifiedAs: {b: {$type: 'string'}}, reason: 'type did not match', consideredValue: 2,
           consideredType: 'int'}}]}",
    );
    same(
        &details("{$or: [{a: 1}, {b: {$exists: true}}]}", "{c: 1}"),
        "{operatorName: '$or', clausesNotSatisfied: [
           {index: 0, details: {operatorName: '$eq', specifiedAs: {a: 1}, reason: 'field was missing'}},
           {index: 1, details: {operatorName: '$exists', specifiedAs: {b: {$exists: true}},
            reason: 'path does not exist'}}]}",
    );
}
