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
fn a_schema_lists_each_failed_rule() {
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
fn a_filter_lists_each_failed_clause() {
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

/// The details of one failing rule of a schema for the field `a`.
fn rule(schema: &str, value: &str) -> String {
    let text =
        details(&format!("{{$jsonSchema: {{properties: {{a: {schema}}}}}}}"), &format!("{{a: {value}}}"));
    let prefix = "{\"operatorName\":\"$jsonSchema\",\"schemaRulesNotSatisfied\":[{\"operatorName\":\"properties\",\
                  \"propertiesNotSatisfied\":[{\"propertyName\":\"a\",\"details\":[";
    text.strip_prefix(prefix).and_then(|text| text.strip_suffix("]}]}]}")).unwrap_or(&text).to_string()
}

#[test]
fn nested_schemas_tell_what_failed_in_them() {
    let kind = "{operatorName: 'bsonType', specifiedAs: {bsonType: 'int'}, reason: 'type did not match',
                 consideredValue: 'x', consideredType: 'string'}";
    let int = "{bsonType: 'int'}";
    same(
        &rule("{properties: {b: {}}, additionalProperties: false}", "{b: 1, c: 2}"),
        "{operatorName: 'additionalProperties', specifiedAs: {additionalProperties: false},
          additionalProperties: ['c']}",
    );
    same(
        &rule(&format!("{{additionalProperties: {int}}}"), "{b: 1, c: 'x'}"),
        &format!(
            "{{operatorName: 'additionalProperties',
               reason: 'at least one additional property did not match the subschema', failingProperty: 'c',
               details: [{kind}]}}"
        ),
    );
    same(
        &rule(&format!("{{items: {int}}}"), "[1, 'x']"),
        &format!(
            "{{operatorName: 'items', reason: 'At least one item did not match the sub-schema', itemIndex: 1,
               details: [{kind}]}}"
        ),
    );
    same(
        &rule(&format!("{{items: [{{}}, {int}]}}"), "[1, 'x']"),
        &format!("{{operatorName: 'items', details: [{{itemIndex: 1, details: [{kind}]}}]}}"),
    );
    same(
        &rule("{items: [{}], additionalItems: false}", "[1, 'x']"),
        "{operatorName: 'additionalItems', specifiedAs: {additionalItems: false}, additionalItems: ['x']}",
    );
    same(
        &rule(&format!("{{items: [{{}}], additionalItems: {int}}}"), "['y', 'x']"),
        &format!(
            "{{operatorName: 'additionalItems',
               reason: 'At least one additional item did not match the sub-schema', itemIndex: 1,
               details: [{kind}]}}"
        ),
    );
    same(
        &rule(&format!("{{patternProperties: {{'^S': {int}}}}}"), "{Super: 1, Slow: 'x'}"),
        &format!(
            "{{operatorName: 'patternProperties', details: [{{propertyName: 'Slow', regexMatched: '^S',
               details: [{kind}]}}]}}"
        ),
    );
    same(
        &rule(
            &format!("{{dependencies: {{b: ['c', 'd'], e: {{properties: {{b: {int}}}}}}}}}"),
            "{b: 'x', d: 1, e: 1}",
        ),
        &format!(
            "{{operatorName: 'dependencies', failingDependencies: [
               {{conditionalProperty: 'b', missingProperties: ['c']}},
               {{conditionalProperty: 'e', details: [{{operatorName: 'properties', propertiesNotSatisfied: [
                 {{propertyName: 'b', details: [{kind}]}}]}}]}}]}}"
        ),
    );
    same(&rule("{not: {bsonType: 'int'}}", "1"), "{operatorName: 'not', reason: 'child expression matched'}");
    same(
        &rule("{oneOf: [{bsonType: 'int'}, {minimum: 0}, {maximum: 0}]}", "1"),
        "{operatorName: 'oneOf', reason: 'more than one subschema matched', matchingSchemaIndexes: [0, 1]}",
    );
    same(
        &rule("{uniqueItems: true}", "[1, 2, 3, 3, 2]"),
        "{operatorName: 'uniqueItems', specifiedAs: {uniqueItems: true}, reason: 'found a duplicate item',
          consideredValue: [1, 2, 3, 3, 2], duplicatedValue: 3}",
    );
    same(
        &rule("{minItems: 2}", "[1]"),
        "{operatorName: 'minItems', specifiedAs: {minItems: 2}, reason: 'array did not match specified length',
          consideredValue: [1], numberOfItems: 1}",
    );
    same(
        &rule("{maxProperties: 1}", "{b: 1, c: 2}"),
        "{operatorName: 'maxProperties', specifiedAs: {maxProperties: 1},
          reason: 'specified number of properties was not satisfied', numberOfProperties: 2}",
    );
}

#[test]
fn negated_clauses_tell_what_matched() {
    same(
        &details("{a: {$not: {$gt: 1}}}", "{a: 3}"),
        "{operatorName: '$not', details: {operatorName: '$gt', specifiedAs: {a: {$gt: 1}},
          reason: 'comparison succeeded', consideredValue: 3}}",
    );
    same(
        &details("{$nor: [{a: 3}, {b: 1}, {$jsonSchema: {}}]}", "{a: 3}"),
        "{operatorName: '$nor', clausesSatisfied: [
           {index: 0, details: {operatorName: '$eq', specifiedAs: {a: 3}, reason: 'comparison succeeded',
            consideredValue: 3}},
           {index: 2, details: {operatorName: '$jsonSchema', reason: 'schema matched'}}]}",
    );
    same(
        &details("{a: {$bitsAllSet: [1, 5]}}", "{a: 3}"),
        "{operatorName: '$bitsAllSet', specifiedAs: {a: {$bitsAllSet: [1, 5]}},
          reason: 'bitwise operator failed to match', consideredValue: 3}",
    );
}
