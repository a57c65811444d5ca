//! Documents and their metadata through stages that hold documents back.

use super::DocumentMetadata;
use crate::Context;
use base::bson::{Builder, Document, DocumentCow, FieldName};
use std::sync::Arc;

/// The field of what is held that has the document; no kind of metadata has this name.
const DOCUMENT: &str = "document";

/// Joins documents with their metadata while a stage holds them back. It is made when the stage
/// starts, so that all its documents are held alike; where nobody asks for metadata it does nothing.
#[derive(Clone, Default)]
pub(crate) struct Carrier(Option<Arc<Context>>);

impl Carrier {
    /// The carrier of a stage that runs in this context.
    pub(crate) fn new(context: &Arc<Context>) -> Carrier {
        Carrier(context.metadata.wants_any().then(|| context.clone()))
    }

    /// The document that is looked at as the stage holds it back.
    #[inline]
    pub(crate) fn hold(&self, document: DocumentCow) -> DocumentCow {
        let Some(context) = &self.0 else { return document };
        context.metadata.noted().joined(document.view())
    }

    /// The document within what was held; its metadata is noted.
    #[inline]
    pub(crate) fn release(&self, held: DocumentCow) -> DocumentCow {
        match &self.0 {
            None => held,
            Some(_) => self.look(held.view()).to_owned().into(),
        }
    }

    /// As [`release`](Self::release), without taking it.
    #[inline]
    pub(crate) fn look<'h>(&self, held: Document<'h>) -> Document<'h> {
        let Some(context) = &self.0 else { return held };
        context.metadata.note(DocumentMetadata::read(held));
        within(held)
    }

    /// Notes that the next document to be looked at was made here and has no metadata.
    pub(crate) fn made(&self) {
        if let Some(context) = &self.0 {
            context.metadata.note(DocumentMetadata::default());
        }
    }
}

impl DocumentMetadata {
    /// A document and its metadata as one document, which may be spilled.
    pub fn joined(&self, document: Document<'_>) -> DocumentCow {
        let mut out = Builder::new();
        out.append(FieldName::literal(DOCUMENT), document);
        self.append_to(&mut out);
        DocumentCow::Owned(out.finish())
    }

    /// What [`joined`](Self::joined) has joined.
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

    /// A document that a carrier holds back and gives on, and whether it was the same bytes in the same place
    /// all the time: nothing was copied or put together.
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
