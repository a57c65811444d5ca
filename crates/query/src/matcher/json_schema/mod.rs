//! `$jsonSchema`: matches documents against a JSON schema, draft 4 as MongoDB implements it.
//!
//! A schema is a set of keywords. Each keyword constrains values of one type and accepts all other values:
//! `{maximum: 3}` does not constrain strings. `bsonType` is an extension of draft 4. `$ref`, `$schema`, `default`,
//! `definitions`, `format`, `id` and the type `integer` are refused by name, as in MongoDB.

mod evaluate;
mod keywords;
mod parse;
mod subschemas;
#[cfg(test)]
mod tests;
mod unordered;

use super::node::Node;
use super::parse::Parser;
use base::bson::{Builder, Document, DocumentBuf, Element, Value};
use base::{Result, err};
use keywords::Keywords;
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
