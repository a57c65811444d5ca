//! `$jsonSchema`: a document held against a JSON schema.

use super::node::Node;
use super::parse::Parser;
use base::bson::{Document, DocumentBuf, Element};
use base::{Result, err};

/// A parsed schema.
#[derive(Debug)]
pub struct Schema {
    source: DocumentBuf,
}

impl Schema {
    /// The schema as given.
    pub fn source(&self) -> &DocumentBuf {
        &self.source
    }

    pub(super) fn matches(&self, _: Document<'_>) -> Result<bool> {
        Err(err!(NotImplemented, "$jsonSchema is not supported"))
    }
}

pub(super) fn parse_json_schema(parser: &Parser<'_>, element: &Element<'_>) -> Result<Option<Node>> {
    parser.require_top_level("$jsonSchema")?;
    match element.value().as_document() {
        Some(_) => Err(err!(NotImplemented, "$jsonSchema is not supported")),
        None => Err(err!(TypeMismatch, "$jsonSchema must be an object")),
    }
}
