//! A document in a plan or pipeline: shared with the engine, or owned.

use super::{Document, DocumentBuf};
use std::sync::Arc;

/// A document that shares the engine's bytes or owns new bytes. A clone of a shared document increments a reference
/// count. A move copies nothing.
#[derive(Clone, Debug)]
pub enum DocumentCow {
    /// The stored bytes themselves.
    Shared(Arc<[u8]>),
    /// A document made by the plan or pipeline.
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
}

impl From<DocumentBuf> for DocumentCow {
    fn from(document: DocumentBuf) -> Self {
        DocumentCow::Owned(document)
    }
}
