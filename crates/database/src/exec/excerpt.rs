//! Hints of a collection scan to a store with round trips: the fields that it reads, so that the store can return the
//! start of a document in place of the document, and bytes that each matching document has.

use base::bson::{Document, DocumentBuf, Elements, Value as BsonValue};
use query::matcher::Matcher;
use std::sync::Arc;
use storage::{Excerpt, Value};

/// Names of fields.
#[derive(Clone)]
pub(crate) struct Fields(Arc<[Box<str>]>);

/// Maximum number of names: the bits of a set.
const FIELDS_MAX: usize = 64;

impl Fields {
    /// Returns the set of these names; `None` if it is too large.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Option<Fields> {
        let mut names: Vec<Box<str>> = names.map(Box::from).collect();
        names.sort();
        names.dedup();
        (names.len() <= FIELDS_MAX).then(|| Fields(names.into()))
    }

    /// Returns the elements up to the last of the fields; `None` if a field is missing.
    fn elements<'a>(&self, mut elements: Elements<'a>) -> Option<&'a [u8]> {
        let whole = elements.rest();
        let mut missing = u64::MAX.checked_shr((FIELDS_MAX - self.0.len()) as u32).unwrap_or(0);
        while missing != 0 {
            let element = elements.next()?;
            let name = element.name_bytes();
            if let Some(position) = self.0.iter().position(|field| field.as_bytes() == name) {
                missing &= !(1 << position);
            }
        }
        whole.get(..whole.len() - elements.rest().len())
    }
}

/// Returns bytes that are in each document with a match, if the filter requires that a path has a string or an object
/// id.
pub(super) fn required_bytes(filter: &Matcher) -> Option<Box<[u8]>> {
    if !filter.collation().is_simple() {
        return None;
    }
    let encoded = |value: BsonValue<'_>| {
        let mut bytes = Vec::new();
        value.write_to(&mut bytes);
        bytes
    };
    let is_distinctive = |value: &BsonValue<'_>| match value {
        BsonValue::String(text) => !text.is_empty(),
        value => matches!(value, BsonValue::ObjectId(_)),
    };
    let equalities = filter.equalities().ok()?.into_iter().map(|(_, value)| value);
    let longest = equalities.filter(is_distinctive).map(encoded).max_by_key(Vec::len);
    longest.map(Vec::into_boxed_slice)
}

impl Excerpt for Fields {
    fn bytes_needed(&self, value: &[u8]) -> usize {
        let elements = self.elements(Document::from_valid(value).iter());
        elements.map_or(value.len(), |elements| Document::EMPTY.bytes().len() + elements.len())
    }

    fn of_start(&self, start: &[u8]) -> Option<Value> {
        let elements = self.elements(Elements::of_start(start))?;
        Some(Value::from(DocumentBuf::of_elements(elements).into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::Builder;
    use base::bson::extended_json::parse;
    use query::Context;
    use query::context::Uninterrupted;

    fn fields(names: &str) -> Fields {
        Fields::new(names.split_whitespace()).unwrap()
    }

    #[test]
    fn an_excerpt_ends_behind_the_last_field() {
        let mut builder = Builder::new();
        builder.append(c"a", 1i32).append(c"b", "text").append(c"a", 2i32).append(c"c", 3i32);
        let document = builder.finish();
        let whole = document.bytes();
        for (names, last) in [("", 0), ("a", 1), ("b", 2), ("b a b", 2), ("c a", 4)] {
            let fields = fields(names);
            let needed = fields.bytes_needed(whole);
            assert!(fields.of_start(&whole[..needed - 2]).is_none() || names.is_empty(), "{names:?}");
            for end in needed..=whole.len() {
                let excerpt = fields.of_start(&whole[..end]).unwrap();
                assert_eq!(excerpt.len(), needed, "{names:?} of {end}");
                let excerpt = Document::from_valid(&excerpt);
                base::bson::validate(excerpt.bytes()).unwrap();
                assert_eq!(excerpt.iter().count(), last, "{names:?}");
            }
        }
    }

    #[test]
    fn a_missing_field_needs_the_whole_document() {
        let mut builder = Builder::new();
        builder.append(c"a", 1i32);
        let document = builder.finish();
        let fields = fields("a b");
        assert_eq!(fields.bytes_needed(document.bytes()), document.bytes().len());
        assert!(fields.of_start(document.bytes()).is_none());
    }

    #[test]
    fn required_bytes_are_in_each_match() {
        let context = Context::new(0, 1, Arc::new(Uninterrupted));
        let required = |filter: &str| {
            let filter = Matcher::parse(parse(filter).unwrap().view(), &context).unwrap();
            (required_bytes(&filter), filter)
        };
        for (filter, document) in [
            ("{a: 'text'}", "{a: 'text'}"),
            ("{a: 'text', b: 'longer text'}", "{b: ['longer text'], a: ['text', 1]}"),
            ("{'a.b': 'text', n: {$gt: 1}}", "{a: [{b: 'text'}], n: 2}"),
            ("{a: {$in: ['text']}}", "{a: [null, 'text']}"),
            ("{a: {$all: ['text']}}", "{a: ['text']}"),
            ("{a: {$oid: '64b64c0f0f0f0f0f0f0f0f0f'}}", "{a: {$oid: '64b64c0f0f0f0f0f0f0f0f0f'}}"),
        ] {
            let (bytes, matcher) = required(filter);
            let document = parse(document).unwrap();
            assert!(matcher.matches(document.view(), &context).unwrap(), "{filter}");
            let bytes = bytes.unwrap_or_else(|| panic!("none for {filter}"));
            assert!(document.bytes().windows(bytes.len()).any(|part| *part == *bytes), "{filter}");
        }
        for filter in [
            "{}",
            "{a: ''}",
            "{a: 1}",
            "{a: null}",
            "{a: {$ne: 'text'}}",
            "{a: {$gt: 'text'}}",
            "{a: ['text']}",
            "{$or: [{a: 'text'}, {b: 'text'}]}",
            "{a: {$not: {$eq: 'text'}}}",
        ] {
            assert_eq!(required(filter).0, None, "{filter}");
        }
    }

    #[test]
    fn a_set_has_a_limit() {
        let names: Vec<String> = (0..=FIELDS_MAX).map(|number| format!("f{number:02}")).collect();
        assert!(Fields::new(names.iter().map(String::as_str)).is_none());
        let most = Fields::new(names.iter().skip(1).map(String::as_str)).unwrap();
        let mut builder = Builder::new();
        for name in &names {
            builder.append(base::bson::FieldName::trusted(name), true);
        }
        let document = builder.finish();
        assert_eq!(most.bytes_needed(document.bytes()), document.bytes().len());
    }
}
