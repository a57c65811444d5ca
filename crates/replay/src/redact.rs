//! Redaction: values of a recording are replaced by others of the same type and length.
//!
//! Equal values get equal replacements, derived from a key that is never stored. A lookup by a value therefore finds
//! the same documents again. A field is identified by its dotted name, in any form: `contact.email` is in `{contact:
//! {email: …}}`, in `{"contact.email": …}`, in `$set`, behind positions and operators. An expression may use a field by
//! its name, and then its values cannot be separated. The recorder withholds the message.
//!
//! Authentication, passwords and handshakes (hello) are never recorded.
//!
//! An operator that hides field names is a row of [`UNTRACEABLE_OPERATORS`]. The module also copies documents with some
//! values replaced ([`rewrite`]).

use super::message::Sections;
use base::bson::{
    Array, Builder, Document, DocumentBuf, FieldName, Number, ObjectId, RegexText, Value, ValueBuf,
};
use base::random::Random;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// The fields to redact.
pub(crate) struct Redactor {
    paths: Vec<Vec<String>>,
    key: RandomState,
}

/// Operators that move values to other names, or search without a field name. Redaction by name cannot follow them.
const UNTRACEABLE_OPERATORS: &[&str] =
    &["$accumulator", "$function", "$getField", "$objectToArray", "$rename", "$setField", "$text", "$where"];

/// Operators whose values are options, not data.
// tidy: sorted
const OPTION_OPERATORS: &[&str] = &[
    "$bitsAllClear",
    "$bitsAllSet",
    "$bitsAnyClear",
    "$bitsAnySet",
    "$caseSensitive",
    "$diacriticSensitive",
    "$exists",
    "$meta",
    "$mod",
    "$options",
    "$position",
    "$size",
    "$slice",
    "$type",
];

/// Operators below which numbers and booleans are options, not data.
const OPTION_PARENTS: &[&str] = &["$currentDate", "$pop", "$sort", "$unset"];

/// Places where numbers and booleans are options, not data.
const OPTION_FIELDS: &[&str] =
    &["$project", "fields", "hint", "key", "projection", "sort", "sortBy", "weights", "wildcardProjection"];

impl Redactor {
    /// Creates a redactor for dotted field names.
    pub(crate) fn new(paths: &[String]) -> Redactor {
        let split = |path: &String| path.split('.').map(str::to_string).collect();
        Redactor { paths: paths.iter().map(split).collect(), key: RandomState::new() }
    }

    /// Returns true if no field is redacted.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns true if this path leads to a redacted field.
    pub(crate) fn covers(&self, path: &[&str]) -> bool {
        if self.is_empty() {
            return false;
        }
        let names: Vec<&str> =
            path.iter().flat_map(|name| name.split('.')).filter(|name| is_name(name)).collect();
        // Array filters choose their own names for elements.
        let of_elements = names.first() == Some(&"arrayFilters") || names.contains(&"arrayFilters");
        self.paths.iter().any(|field| {
            let field = if of_elements { field.get(field.len() - 1..).unwrap_or(field) } else { field };
            names.windows(field.len()).any(|window| window.iter().zip(field).all(|(a, b)| a == b))
        })
    }

    /// Returns true if a request uses a redacted field in an expression, where its values or results cannot be
    /// separated.
    pub(crate) fn withholds(&self, parts: &Sections<'_>) -> bool {
        if self.is_empty() {
            return false;
        }
        let names = |name: &str| self.paths.iter().flatten().any(|part| part == name);
        let mut is_used = false;
        let distinct = matches!(parts.command(), "distinct" | "mapReduce" | "mapreduce");
        let inserted = |path: &[&str]| path.first() == Some(&"documents");
        let documents =
            parts.sequences.iter().filter(|(name, _)| *name != "documents").flat_map(|(_, list)| list);
        for document in documents.chain([&parts.body]) {
            walk(*document, &mut Vec::new(), &mut |path, value| {
                is_used |= path.last().is_some_and(|name| UNTRACEABLE_OPERATORS.contains(name));
                if let Value::String(text) = value {
                    let refers = text.starts_with('$') && text.split(['.', '$']).any(names);
                    is_used |= refers || (distinct && path == ["key"] && text.split('.').any(names));
                }
                !inserted(path)
            });
        }
        is_used || matches!(parts.command(), "mapReduce" | "mapreduce")
    }

    /// Redacts a document of a request or a reply. `sequence` is the name of its document sequence.
    pub(crate) fn redacted<'a>(&self, sequence: &'a str, document: Document<'a>) -> DocumentBuf {
        if self.is_empty() {
            return document.to_owned();
        }
        let mut path = if sequence.is_empty() { Vec::new() } else { vec![sequence] };
        rewrite(document, &mut path, &mut |path, value| {
            let is_message =
                matches!(path.last(), Some(&("errmsg" | "consideredValue" | "consideredValues")));
            if !is_message && !self.covers(path) {
                return Change::Descend;
            }
            match value {
                Value::Document(_) | Value::Array(_) => Change::Descend,
                Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Boolean(_)
                    if is_option(path) =>
                {
                    Change::Keep
                }
                _ if is_option_value(path) => Change::Keep,
                value => Change::Replace(self.replacement(value)),
            }
        })
    }

    /// Returns a replacement of the same type and length.
    fn replacement(&self, value: &Value<'_>) -> ValueBuf {
        if let Some(number) = value.as_number() {
            return self.number(value, number);
        }
        let draw = |bytes: &[u8]| Random::new(self.key.hash_one((value.kind() as u8, bytes)));
        let letters = |text: &str| {
            let random = draw(text.as_bytes());
            (0..text.len()).map(|_| char::from(b'a' + (random.draw() % 26) as u8)).collect::<String>()
        };
        match value {
            Value::String(text) => Value::String(&letters(text)).to_owned(),
            Value::Symbol(text) => Value::Symbol(&letters(text)).to_owned(),
            Value::JavaScript(text) => Value::JavaScript(&letters(text)).to_owned(),
            Value::JavaScriptWithScope { code, .. } => {
                Value::JavaScriptWithScope { code: &letters(code), scope: Document::EMPTY }.to_owned()
            }
            Value::Regex { pattern, options } => Value::Regex {
                pattern: RegexText::new(&letters(pattern.as_str())).unwrap_or_default(),
                options: *options,
            }
            .to_owned(),
            Value::Binary { subtype, bytes } => {
                let random = draw(bytes);
                let other: Vec<u8> = bytes.iter().map(|_| random.draw() as u8).collect();
                // Subtype 2 repeats the length inside.
                let inner = bytes.first_chunk::<4>().filter(|_| *subtype == 2).map(|length| length.to_vec());
                let other =
                    [inner.clone().unwrap_or_default(), other[inner.map_or(0, |_| 4)..].to_vec()].concat();
                Value::Binary { subtype: *subtype, bytes: &other }.to_owned()
            }
            Value::ObjectId(id) => Value::ObjectId(object_id(&draw(&id.0))).to_owned(),
            Value::DbPointer { namespace, id } => {
                Value::DbPointer { namespace: &letters(namespace), id: object_id(&draw(&id.0)) }.to_owned()
            }
            Value::DateTime(time) => {
                // A time of this century.
                Value::DateTime((draw(&time.to_le_bytes()).draw() % 3_000_000_000_000) as i64).to_owned()
            }
            Value::Timestamp(time) => Value::Timestamp(draw(&time.to_le_bytes()).draw() >> 1).to_owned(),
            Value::Boolean(_) => Value::Boolean(false).to_owned(),
            // These types have one value, or contain values that are visited separately.
            other => other.to_owned(),
        }
    }

    /// Returns a replacement number. Numbers equal across types get equal replacements.
    fn number(&self, value: &Value<'_>, number: Number) -> ValueBuf {
        let same = number.to_i64_exact().map_or_else(|| number.to_f64().to_bits(), |integer| integer as u64);
        let drawn = (Random::new(self.key.hash_one(("number", same))).draw() % 1_000_000_000) as i32;
        match value {
            Value::Int32(_) => Value::Int32(drawn),
            Value::Int64(_) => Value::Int64(drawn.into()),
            Value::Double(_) => Value::Double(drawn.into()),
            _ => Value::Decimal128(Number::Int32(drawn).to_decimal()),
        }
        .to_owned()
    }
}

/// Returns true for a field name, false for an operator or a position.
fn is_name(name: &str) -> bool {
    !name.starts_with('$') && !name.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true for a value of an operator that is an option, not data.
fn is_option_value(path: &[&str]) -> bool {
    let is_data = matches!(path.first(), Some(&("documents" | "cursor")));
    let last = path.iter().rfind(|name| !name.bytes().all(|byte| byte.is_ascii_digit()));
    !is_data && last.is_some_and(|name| OPTION_OPERATORS.contains(name))
}

/// Returns true for a place where numbers and booleans are options, not data.
fn is_option(path: &[&str]) -> bool {
    match path.first() {
        Some(&("documents" | "cursor")) => false,
        _ if path.iter().any(|name| OPTION_PARENTS.contains(name)) => true,
        Some(&("pipeline" | "indexes")) => path.iter().skip(1).any(|name| OPTION_FIELDS.contains(name)),
        Some(first) => OPTION_FIELDS.contains(first),
        None => false,
    }
}

/// Returns a random ObjectId.
fn object_id(random: &Random) -> ObjectId {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&random.draw().to_le_bytes());
    bytes[8..].copy_from_slice(&(random.draw() as u32).to_le_bytes());
    ObjectId(bytes)
}

/// Commands whose requests and replies are never recorded.
// tidy: sorted
const WITHHELD: &[&str] = &[
    "authenticate",
    "copydbgetnonce",
    "copydbsaslstart",
    "createUser",
    "getnonce",
    "hello",
    "isMaster",
    "ismaster",
    "logout",
    "saslContinue",
    "saslStart",
    "updateUser",
];

/// Returns true if this command is never recorded.
pub(super) fn is_secret(command: &str) -> bool {
    WITHHELD.contains(&command)
}

/// Returns true for hello, whose reply names the members of a set.
pub(super) fn is_hello(command: &str) -> bool {
    matches!(command, "hello" | "isMaster" | "ismaster")
}

/// Action on a visited value.
pub(crate) enum Change {
    /// Keeps the value with all its contents.
    Keep,
    /// Visits the contents of the value, if any.
    Descend,
    /// Replaces the value.
    Replace(ValueBuf),
    /// Removes the value; in an array it becomes null.
    Remove,
}

/// A visitor. Its arguments are the path of the value, array positions included, and the value.
pub(crate) type Visit<'v> = dyn FnMut(&[&str], &Value<'_>) -> Change + 'v;

/// Returns a copy of the document with the actions of `visit` applied. `path` is the path of the document.
pub(crate) fn rewrite<'a>(
    document: Document<'a>,
    path: &mut Vec<&'a str>,
    visit: &mut Visit<'_>,
) -> DocumentBuf {
    let mut out = Builder::new();
    rewrite_document(document, path, visit, &mut out);
    out.finish()
}

/// Copies the fields of a document with the visitor's actions.
fn rewrite_document<'a>(
    document: Document<'a>,
    path: &mut Vec<&'a str>,
    visit: &mut Visit<'_>,
    out: &mut Builder,
) {
    for element in document {
        let (name, value) = (element.name(), element.value());
        path.push(name);
        match (visit(path, &value), value) {
            (Change::Remove, _) => {}
            (Change::Replace(other), _) => {
                out.append(FieldName::trusted(name), other.view());
            }
            (Change::Descend, Value::Document(inner)) => {
                out.begin_document(FieldName::trusted(name));
                rewrite_document(inner, path, visit, out);
                out.end();
            }
            (Change::Descend, Value::Array(inner)) => {
                out.begin_array(FieldName::trusted(name));
                rewrite_array(inner, path, visit, out);
                out.end();
            }
            (Change::Keep | Change::Descend, _) => {
                out.append_element(&element);
            }
        }
        path.pop();
    }
}

/// Copies the elements of an array with the visitor's actions. Removed elements become null, which keeps positions.
fn rewrite_array<'a>(array: Array<'a>, path: &mut Vec<&'a str>, visit: &mut Visit<'_>, out: &mut Builder) {
    for element in array.elements() {
        let value = element.value();
        path.push(element.name());
        match (visit(path, &value), value) {
            (Change::Remove, _) => {
                out.push(Value::Null);
            }
            (Change::Replace(other), _) => {
                out.push(other.view());
            }
            (Change::Descend, Value::Document(inner)) => {
                out.push_document();
                rewrite_document(inner, path, visit, out);
                out.end();
            }
            (Change::Descend, Value::Array(inner)) => {
                out.push_array();
                rewrite_array(inner, path, visit, out);
                out.end();
            }
            (Change::Keep | Change::Descend, value) => {
                out.push(value);
            }
        }
        path.pop();
    }
}

/// Visits every value inside with its path. `visit` returns whether to descend.
pub(crate) fn walk<'a>(
    document: Document<'a>,
    path: &mut Vec<&'a str>,
    visit: &mut dyn FnMut(&[&str], &Value<'a>) -> bool,
) {
    for element in document {
        let value = element.value();
        path.push(element.name());
        if visit(path, &value) {
            match value {
                Value::Document(inner) => walk(inner, path, visit),
                Value::Array(inner) => walk(inner.as_document(), path, visit),
                _ => {}
            }
        }
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::{parse, to_canonical};

    fn redactor(paths: &[&str]) -> Redactor {
        Redactor::new(&paths.iter().map(|path| path.to_string()).collect::<Vec<_>>())
    }

    fn redacted(redactor: &Redactor, text: &str) -> String {
        let document = parse(text).unwrap();
        to_canonical(redactor.redacted("", document.view()).view())
    }

    #[test]
    fn redacted_fields_are_replaced_in_every_form() {
        let redactor = redactor(&["contact.email", "pin"]);
        for text in [
            "{insert: 'c', documents: [{contact: {email: 'secret@x', n: 1}}]}",
            "{find: 'c', filter: {'contact.email': 'secret@x'}}",
            "{find: 'c', filter: {$or: [{'contact.email': {$in: ['a', 'secret@x']}}]}}",
            "{find: 'c', filter: {contact: {$elemMatch: {email: 'secret@x'}}}}",
            "{update: 'c', updates: [{q: {}, u: {$set: {'contact.0.email': 'secret@x'}}}]}",
            "{update: 'c', updates: [{q: {}, u: {$set: {'contact.$[e].email': 'secret@x'}}, arrayFilters: [{'e.email': 'secret@x'}]}]}",
            "{cursor: {firstBatch: [{contact: [{email: ['secret@x']}]}]}}",
            "{ok: 0, errmsg: 'dup key: secret@x', keyValue: {'contact.email': 'secret@x'}}",
            "{writeErrors: [{index: 0, errmsg: 'secret@x', errInfo: {details: {consideredValue: 'secret@x'}}}]}",
            "{find: 'c', filter: {'contact.email': /secret/}}",
        ] {
            let after = redacted(&redactor, text);
            assert!(!after.contains("secret"), "{after}");
            assert_eq!(after.len(), to_canonical(parse(text).unwrap().view()).len(), "{after}");
        }
    }

    #[test]
    fn equal_values_stay_equal_and_others_stay() {
        let redactor = redactor(&["pin"]);
        let after =
            parse(&redacted(&redactor, "{a: {pin: 5}, b: {pin: 5.0}, c: {pin: 6}, d: 5, e: {pin: 'x'}}"))
                .unwrap();
        let at = |name: &str| after.view().get(name).unwrap().as_document().unwrap().get("pin").unwrap();
        assert_eq!(at("a").as_i64(), at("b").as_i64());
        assert_ne!(at("a").as_i64(), at("c").as_i64());
        assert!(matches!((at("a"), at("b")), (Value::Int32(_), Value::Double(_))));
        assert_eq!(after.view().get("d").unwrap().as_i64(), Some(5));
    }

    #[test]
    fn replacements_have_the_same_type() {
        let redactor = redactor(&["a"]);
        let text = "{a: [1, NumberLong(5), 1.5, NumberDecimal('1.5'), true, null, ISODate('2020-01-01T00:00:00Z'), \
                    ObjectId('0123456789abcdef01234567'), /x/i, {b: 's'}, BinData(0, 'AAEC'), MinKey, Timestamp(1, 2)]}";
        let before = parse(text).unwrap();
        let after = redactor.redacted("", before.view());
        base::bson::validate(after.bytes()).unwrap();
        let kinds = |document: Document<'_>| -> Vec<_> {
            document.get("a").unwrap().as_array().unwrap().iter().map(|value| value.kind()).collect()
        };
        assert_eq!(kinds(before.view()), kinds(after.view()));
        assert_eq!(before.bytes().len(), after.bytes().len());
    }

    #[test]
    fn options_stay() {
        let redactor = redactor(&["email"]);
        for text in [
            "{find: 'c', sort: {email: -1}, projection: {email: 1}}",
            "{createIndexes: 'c', indexes: [{key: {email: 1}, name: 'n'}]}",
            "{aggregate: 'c', pipeline: [{$sort: {email: 1}}]}",
            "{find: 'c', filter: {email: {$exists: true}}}",
            "{find: 'c', filter: {$or: [{email: {$type: 'string'}}, {email: {$not: {$type: ['string', 2]}}}]}}",
            "{find: 'c', filter: {email: {$options: 'i', $size: 2, $mod: [4, 1], $bitsAllSet: [1, 5]}}}",
            "{find: 'c', projection: {email: {$slice: [1, 2]}}, sort: {email: {$meta: 'textScore'}}}",
            "{update: 'c', updates: [{q: {}, u: {$push: {l: {$each: [], $sort: {email: -1}}}}}]}",
            "{update: 'c', updates: [{q: {}, u: {$push: {email: {$each: [], $slice: -2, $position: 1}}}}]}",
            "{update: 'c', updates: [{q: {}, u: {$pop: {email: -1}, $currentDate: {email: true}}}]}",
            "{findAndModify: 'c', update: {$unset: {email: true}, $currentDate: {email: {$type: 'date'}}}}",
            "{aggregate: 'c', pipeline: [{$lookup: {pipeline: [{$setWindowFields: {sortBy: {email: 1}}}]}}]}",
            "{createIndexes: 'c', indexes: [{weights: {email: 5}, wildcardProjection: {email: 1}}]}",
        ] {
            assert_eq!(redacted(&redactor, text), to_canonical(parse(text).unwrap().view()));
        }
    }

    #[test]
    fn values_beside_options_and_in_documents_are_replaced() {
        let redactor = redactor(&["email"]);
        for text in [
            "{find: 'c', filter: {email: {$not: {$eq: 'secret'}, $type: 'string'}}}",
            "{insert: 'c', documents: [{email: {$size: 'secret'}}]}",
            "{cursor: {firstBatch: [{email: {$type: 'secret'}}]}}",
            "{update: 'c', updates: [{q: {}, u: {$push: {email: {$each: ['secret'], $slice: 1}}}}]}",
        ] {
            let after = redacted(&redactor, text);
            assert!(!after.contains("secret"), "{after}");
        }
    }

    #[test]
    fn messages_with_untraceable_values_are_withheld() {
        let redactor = redactor(&["contact.email"]);
        let withholds = |text: &str| {
            let body = parse(text).unwrap();
            redactor.withholds(&Sections { body: body.view(), sequences: Vec::new() })
        };
        for text in [
            "{aggregate: 'c', pipeline: [{$group: {_id: '$contact.email'}}]}",
            "{aggregate: 'c', pipeline: [{$project: {c: '$contact'}}]}",
            "{aggregate: 'c', pipeline: [{$match: {$expr: {$eq: ['$$x.email', 'secret']}}}]}",
            "{aggregate: 'c', pipeline: [{$project: {c: {$objectToArray: '$$ROOT'}}}]}",
            "{distinct: 'c', key: 'contact.email'}",
            "{find: 'c', filter: {$where: 'this.x'}}",
            "{update: 'c', updates: [{q: {}, u: {$rename: {'contact.email': 'mail'}}}]}",
        ] {
            assert!(withholds(text), "{text}");
        }
        for text in [
            "{aggregate: 'c', pipeline: [{$match: {'contact.email': 'x'}}, {$group: {_id: '$country'}}]}",
            "{insert: 'c', documents: [{note: '$contact'}]}",
            "{distinct: 'c', key: 'country'}",
        ] {
            assert!(!withholds(text), "{text}");
        }
    }
}

#[cfg(test)]
mod walk_tests {
    use super::*;
    use base::bson::extended_json::parse;

    #[test]
    fn values_are_kept_replaced_and_dropped_by_their_paths() {
        let before = parse("{a: 1, b: [1, {c: 2, d: {e: 3}}], f: {c: 5}}").unwrap();
        let after = rewrite(before.view(), &mut Vec::new(), &mut |path, _| match path {
            ["a"] => Change::Remove,
            [.., "c"] => Change::Replace(Value::String("x").to_owned()),
            [.., "d"] => Change::Keep,
            _ => Change::Descend,
        });
        assert_eq!(after.bytes(), parse("{b: [1, {c: 'x', d: {e: 3}}], f: {c: 'x'}}").unwrap().bytes());
    }

    #[test]
    fn every_value_is_shown() {
        let document = parse("{a: [1, {b: 2}], c: {d: 3}}").unwrap();
        let mut seen = Vec::new();
        walk(document.view(), &mut Vec::new(), &mut |path, _| {
            seen.push(path.join("."));
            path != ["c"]
        });
        assert_eq!(seen, ["a", "a.0", "a.1", "a.1.b", "c"]);
    }
}
