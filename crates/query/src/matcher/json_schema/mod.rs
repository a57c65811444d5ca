//! `$jsonSchema`: matches documents against a JSON schema, draft 4 as MongoDB implements it.
//!
//! A schema is a set of keywords. Each keyword constrains values of one type and accepts all other values:
//! `{maximum: 3}` does not constrain strings. `bsonType` is an extension of draft 4. `$ref`, `$schema`, `default`,
//! `definitions`, `format`, `id` and the type `integer` are refused by name, as in MongoDB.

mod evaluate;
mod parse;
#[cfg(test)]
mod tests;

use super::array::TypeSet;
use super::node::Node;
use super::parse::Parser;
use crate::regex::Regex;
use base::bson::{Builder, Document, DocumentBuf, Element, Number, Value, ValueBuf};
use base::{Result, err};
use std::ffi::CStr;
use std::sync::Arc;

/// A parsed schema for whole documents.
#[derive(Debug)]
pub struct Schema {
    source: DocumentBuf,
    keywords: Keywords,
}

impl Schema {
    /// Parses a schema.
    ///
    /// Errors: FailedToParse for unknown and unsupported keywords and bad values, TypeMismatch for
    /// values of the wrong type.
    pub fn parse(schema: Document<'_>) -> Result<Schema> {
        Ok(Schema { source: schema.to_owned(), keywords: parse::parse(schema, 0)? })
    }

    /// The schema as given.
    pub fn source(&self) -> &DocumentBuf {
        &self.source
    }

    /// The fields that every matching document has.
    pub fn required(&self) -> &[String] {
        &self.keywords.objects.required
    }

    /// Whether the document satisfies the schema.
    ///
    /// Errors: 51156 for a pattern that takes too long.
    pub fn matches(&self, document: Document<'_>) -> Result<bool> {
        self.keywords.allows(Value::Document(document))
    }
}

pub(super) fn parse_json_schema(parser: &Parser<'_>, element: &Element<'_>) -> Result<Option<Node>> {
    parser.require_top_level("$jsonSchema")?;
    match element.value().as_document() {
        Some(schema) => Ok(Some(Node::Schema(Arc::new(Schema::parse(schema)?)))),
        None => Err(err!(TypeMismatch, "$jsonSchema must be an object")),
    }
}

/// MongoDB's internal operators for schemas of one keyword, such as `{$jsonSchema: {maxProperties: …}}`. Filters accept
/// them too.
pub(super) fn single_keyword(keyword: &'static CStr, element: &Element<'_>) -> Result<Option<Node>> {
    let mut schema = Builder::new();
    schema.append(keyword, element.value());
    Ok(Some(Node::Schema(Arc::new(Schema::parse(schema.finish().view())?))))
}

/// The keywords of one schema. Absent keywords impose no constraint.
#[derive(Debug, Default)]
struct Keywords {
    /// `type` or `bsonType`.
    types: Option<TypeSet>,
    /// `enum`: the allowed values, normalised and sorted.
    allowed: Option<Vec<ValueBuf>>,
    numbers: Numbers,
    strings: Strings,
    arrays: Arrays,
    objects: Objects,
    all_of: Vec<Keywords>,
    /// `anyOf`; empty if absent.
    any_of: Vec<Keywords>,
    /// `oneOf`; empty if absent.
    one_of: Vec<Keywords>,
    not: Option<Box<Keywords>>,
}

/// Constraints on numbers.
#[derive(Debug, Default)]
struct Numbers {
    minimum: Option<Number>,
    exclusive_minimum: bool,
    maximum: Option<Number>,
    exclusive_maximum: bool,
    multiple_of: Option<Number>,
}

/// Constraints on strings; lengths are in code points.
#[derive(Debug, Default)]
struct Strings {
    length_min: Option<u64>,
    length_max: Option<u64>,
    pattern: Option<Regex>,
}

/// Constraints on arrays.
#[derive(Debug, Default)]
struct Arrays {
    count_min: Option<u64>,
    count_max: Option<u64>,
    unique: bool,
    items: Option<Items>,
    /// `additionalItems`: constraint on elements beyond a list of `items`.
    additional: Additional,
}

/// `items`.
#[derive(Debug)]
enum Items {
    /// One schema for every element.
    Each(Box<Keywords>),
    /// A schema for each position.
    List(Vec<Keywords>),
}

/// `additionalItems` and `additionalProperties`.
#[derive(Debug, Default)]
enum Additional {
    #[default]
    Allowed,
    Refused,
    Schema(Box<Keywords>),
}

/// Constraints on documents.
#[derive(Debug, Default)]
struct Objects {
    required: Vec<String>,
    /// Sorted by name.
    properties: Vec<(String, Keywords)>,
    pattern_properties: Vec<(Regex, Keywords)>,
    /// `additionalProperties`: constraint on fields that neither of the two keywords above names.
    additional: Additional,
    count_min: Option<u64>,
    count_max: Option<u64>,
    dependencies: Vec<(String, Dependency)>,
}

/// Constraint that depends on the presence of a field.
#[derive(Debug)]
enum Dependency {
    /// These fields must be present too.
    Fields(Vec<String>),
    /// The whole document must satisfy a schema.
    Schema(Box<Keywords>),
}
