//! Specifications of text indexes, and the keys of documents.

use super::super::IndexSpec;
use base::Namespace;
use base::bson::extended_json;
use query::Context;

fn parse(spec: &str) -> base::Result<IndexSpec> {
    let namespace = Namespace::new("test", "c").unwrap();
    IndexSpec::parse(extended_json::parse(spec).unwrap().view(), &namespace, &Context::for_tests())
}

#[track_caller]
fn shows(spec: &str, expected: &str) {
    let stored = parse(spec).unwrap().to_document();
    assert_eq!(stored, extended_json::parse(expected).unwrap(), "{}", stored.view());
    // The stored form is accepted and stays unchanged.
    let namespace = Namespace::new("test", "c").unwrap();
    let again = IndexSpec::parse(stored.view(), &namespace, &Context::for_tests()).unwrap();
    assert_eq!(again.to_document(), stored);
}

#[test]
fn stored_options_of_other_indexes_may_have_any_type() {
    let stored = extended_json::parse("{key: {a: 1}, name: 'a', default_language: 5, weights: 1}").unwrap();
    let spec = parse("{key: {a: 1}, name: 'a', default_language: 5, weights: 1}").unwrap();
    assert_eq!(spec.check_new(stored.view()).unwrap_err().code().number(), 14);
}

#[test]
fn specifications_are_stored_as_mongodb_stores_them() {
    shows(
        "{key: {a: 'text'}, name: 'a_text'}",
        "{v: 2, key: {_fts: 'text', _ftsx: 1}, name: 'a_text', weights: {a: 1}, default_language: 'english',
          language_override: 'language', textIndexVersion: 3}",
    );
    shows(
        "{key: {z: -1.0, b: 'text', 'a.x': 'text', y: 1.0}, name: 'n', language_override: 'l',
          weights: {b: 5.9, c: 2}, textIndexVersion: 2, partialFilterExpression: {q: 1}}",
        "{v: 2, key: {z: -1.0, _fts: 'text', _ftsx: 1, y: 1.0}, name: 'n', language_override: 'l',
          weights: {'a.x': 1, b: 5, c: 2}, partialFilterExpression: {q: 1}, default_language: 'english',
          textIndexVersion: 2}",
    );
    shows(
        "{key: {'$**': 'text'}, name: 'all', default_language: 'none'}",
        "{v: 2, key: {_fts: 'text', _ftsx: 1}, name: 'all', default_language: 'none', weights: {'$**': 1},
          language_override: 'language', textIndexVersion: 3}",
    );
}

#[test]
fn bad_specifications_are_refused() {
    let refused = |rest: &str, message: &str| {
        let error = parse(&format!("{{name: 'n', {rest}}}")).map(|_| ()).unwrap_err();
        assert!(
            matches!(error.code().number(), 14 | 67) && error.message().contains(message),
            "{rest}: {error}"
        );
    };
    let text = |option: &str| format!("key: {{a: 'text'}}, {option}");
    refused("key: {a: 'text', b: 2}", "expected value 1 or -1 for non-text key in compound index");
    refused("key: {a: 'text', b: 1, c: 'text'}", "'text' fields in index must all be adjacent");
    refused("key: {_fts: 'text', _ftsx: 2}, weights: {a: 1}", "expecting _ftsx:1");
    refused("key: {_fts: 'text'}, weights: {a: 1}", "expected _ftsx after _fts");
    refused("key: {_fts: 'text', _ftsx: 1}", "'weights' must specify fields or the wildcard");
    refused("key: {a: 'text', _ftsx: 1}", "text index with reserved fields _fts/_ftsx not allowed");
    refused("key: {a: 'text', b: 'hashed'}", "Can't use more than one index plugin for a single index.");
    refused(&text("weights: {a: 0}"), "must be in the exclusive interval (0,100000) but found: 0");
    refused(&text("weights: {a: 'x'}"), "weight for text index needs numeric type");
    refused(&text("weights: 1"), "The field 'weights' must be an object, but got int");
    refused(&text("weights: {'a..b': 1}"), "weight cannot have empty path component");
    refused(&text("weights: {'a.$b': 1}"), "weight cannot have path component with $ prefix");
    refused(&text("default_language: 'klingon'"), "default_language is not valid");
    refused(&text("default_language: 1"), "The field 'default_language' must be a string, but got int");
    refused(&text("language_override: 'a.b'"), "language_override is not valid");
    refused(&text("language_override: 1"), "The field 'language_override' must be a string, but got int");
    refused(&text("textIndexVersion: 4"), "bad textIndexVersion: 4");
    refused(&text("textIndexVersion: '3'"), "The field 'textIndexVersion' must be a number, but got string");
    refused(
        &text("collation: {locale: 'fr'}"),
        "Index type 'text' does not support collation: { locale: \"fr\"",
    );
}

#[test]
fn a_document_has_a_key_for_each_term() {
    let spec = parse("{key: {p: 1, t: 'text', s: -1}, name: 'n', default_language: 'none'}").unwrap();
    let keys = |document: &str| {
        let document = extended_json::parse(document).unwrap();
        let found = spec.keys_of(document.view(), &Context::for_tests())?;
        let decoded = found.keys.iter().map(|key| {
            let values = spec.decode(&key.key_string, &key.type_bits).unwrap();
            values.iter().map(|value| value.view().to_string()).collect::<Vec<_>>().join(" ")
        });
        base::Result::Ok((decoded.collect::<Vec<_>>(), found.multikey))
    };
    let (found, multikey) = keys("{p: 7, t: 'b a', s: 'x'}").unwrap();
    assert_eq!(found, ["7 \"a\" 0.75 \"x\"", "7 \"b\" 0.75 \"x\""]);
    assert_eq!(multikey, [0, 1, 0, 0]);
    assert_eq!(keys("{p: 7}").unwrap().0, [""; 0]);
    let long = extended_json::parse(&format!("{{t: '{}'}}", "x".repeat(300))).unwrap();
    let found = spec.keys_of(long.view(), &Context::for_tests()).unwrap();
    let values = spec.decode(&found.keys[0].key_string, &found.keys[0].type_bits).unwrap();
    assert_eq!(values[1].view().as_str().unwrap().len(), 224 + 32);
    let error = keys("{p: [{q: 1}], t: 'a'}").unwrap_err();
    assert_eq!(error.code().number(), 201);
}
