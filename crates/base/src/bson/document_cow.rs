//! A document on its way through a plan or a pipeline: shared with the engine, or its own.

use super::{Document, DocumentBuf};
use std::sync::Arc;

/// A document that either shares the engine's bytes or owns newly made ones. Cloning a shared one
/// counts a reference; passing either on copies nothing.
#[derive(Clone, Debug)]
pub enum DocumentCow {
    /// The stored bytes themselves.
    Shared(Arc<[u8]>),
    /// A document made on the way.
    Owned(DocumentBuf),
}

impl DocumentCow {
    /// The document, borrowed.
    pub fn view(&self) -> Document<'_> {
        match self {
            DocumentCow::Shared(bytes) => Document::from_valid(bytes),
            DocumentCow::Owned(document) => document.view(),
        }
    }

    /// The bytes as a shared run, as the engine takes them; copies only what was owned.
    pub fn into_shared(self) -> Arc<[u8]> {
        match self {
            DocumentCow::Shared(bytes) => bytes,
            DocumentCow::Owned(document) => document.into_bytes().into(),
        }
    }
}

impl From<DocumentBuf> for DocumentCow {
    fn from(document: DocumentBuf) -> Self {
        DocumentCow::Owned(document)
    }
}
