//! Updates: operators, replacements and pipelines, parsed once and applied to raw documents.

use base::bson::{Document, DocumentBuf, Value};
use base::{Result, err};

use crate::Context;

/// A parsed update.
#[derive(Debug)]
pub struct Update {}

impl Update {
    /// Parses an update: a document of operators, a replacement, or a pipeline.
    pub fn parse(update: Value<'_>, _array_filters: &[Document<'_>], _context: &Context) -> Result<Update> {
        Err(err!(NotImplemented, "update {update}"))
    }

    /// Whether the whole document is replaced.
    pub fn is_replacement(&self) -> bool {
        false
    }

    /// Whether the positional `$` is used.
    pub fn needs_position(&self) -> bool {
        false
    }

    /// The updated document, or `None` where nothing changes.
    pub fn apply(
        &self,
        _document: Document<'_>,
        _position: Option<usize>,
        _is_insert: bool,
        _context: &Context,
    ) -> Result<Option<DocumentBuf>> {
        Ok(None)
    }
}
