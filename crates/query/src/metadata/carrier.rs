//! Documents with their metadata in blocking stages.

use super::DocumentMetadata;
use crate::Context;
use base::bson::{Builder, Document, DocumentCow, FieldName};
use std::sync::Arc;

/// The field with the document; no kind of metadata has this name.
const DOCUMENT: &str = "document";

/// Joins documents with their metadata while a stage holds them. A stage builds it at its start, so all its documents
/// are held in one form. It does nothing if no metadata is wanted.
#[derive(Clone, Default)]
pub(crate) struct Carrier(Option<Arc<Context>>);

impl Carrier {
    /// Builds the carrier of a stage in this context.
    pub(crate) fn new(context: &Arc<Context>) -> Carrier {
        Carrier(context.metadata.wants_any().then(|| context.clone()))
    }

    /// Joins the current document with its metadata.
    #[inline]
    pub(crate) fn hold(&self, document: DocumentCow) -> DocumentCow {
        let Some(context) = &self.0 else { return document };
        context.metadata.noted().joined(document.view())
    }

    /// Returns the document of a held one, and notes its metadata.
    #[inline]
    pub(crate) fn release(&self, held: DocumentCow) -> DocumentCow {
        match &self.0 {
            None => held,
            Some(_) => self.look(held.view()).to_owned().into(),
        }
    }

    /// As [`release`](Self::release), but borrows.
    #[inline]
    pub(crate) fn look<'h>(&self, held: Document<'h>) -> Document<'h> {
        let Some(context) = &self.0 else { return held };
        context.metadata.note(DocumentMetadata::read(held));
        within(held)
    }

    /// Notes that the next document is new and has no metadata.
    pub(crate) fn made(&self) {
        if let Some(context) = &self.0 {
            context.metadata.note(DocumentMetadata::default());
        }
    }
}

impl DocumentMetadata {
    /// Joins a document with its metadata into one document, which can be spilled.
    pub fn joined(&self, document: Document<'_>) -> DocumentCow {
        let mut out = Builder::new();
        out.append(FieldName::literal(DOCUMENT), document);
        self.append_to(&mut out);
        DocumentCow::Owned(out.finish())
    }

    /// Splits a document that [`joined`](Self::joined) has built.
    pub fn parted(joined: Document<'_>) -> (Document<'_>, DocumentMetadata) {
        (within(joined), DocumentMetadata::read(joined))
    }
}

fn within(joined: Document<'_>) -> Document<'_> {
    joined.get(DOCUMENT).and_then(|document| document.as_document()).unwrap_or(Document::EMPTY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::MetaKind;
    use base::bson::extended_json;

    /// Holds and releases a document. Returns whether its bytes stayed in place: nothing was copied or joined.
    fn held(context: &Arc<Context>) -> bool {
        let document = extended_json::parse("{a: 1, b: 'x'}").unwrap();
        let place = document.view().bytes().as_ptr();
        let carrier = Carrier::new(context);
        let held = carrier.hold(document.into());
        let stays =
            held.view().bytes().as_ptr() == place && carrier.look(held.view()).bytes().as_ptr() == place;
        let released = carrier.release(held);
        assert_eq!(released.view(), extended_json::parse("{a: 1, b: 'x'}").unwrap().view());
        stays && released.view().bytes().as_ptr() == place
    }

    #[test]
    fn a_document_without_metadata_is_held_back_as_it_is() {
        let context = Arc::new(Context::for_tests());
        assert!(held(&context));
        context.metadata.want(MetaKind::TextScore);
        assert!(!held(&context));
    }
}
