//! Rows: the nodes of plans and the stages of pipelines pass these on.
//!
//! A row is a document and what is known of it beside its fields. `$meta` and sorts by metadata read the row:
//! - An operation asks [`Metadata::wanted`](crate::Metadata::wanted) which kinds of metadata it needs, and plans fill
//!   in only these.
//! - A stage that changes a document passes its row on with the new document ([`Row::with`]). A stage that makes new
//!   documents makes new rows of them.
//! - A stage that holds rows back takes a [`Carrier`]. It holds a document and its metadata as one document, which may be
//!   sorted, spilled and read back like any other. Where nobody asks for metadata a carrier does nothing.

use crate::{Context, DocumentMetadata, MetaKind};
use base::bson::{Builder, Document, DocumentBuf, DocumentCow, FieldName, Value};

/// A document and what is known of it beside its fields.
#[derive(Clone, Debug)]
pub struct Row {
    /// The document, or what an index alone knows of it.
    pub document: DocumentCow,
    /// The number of the record that holds the document. Zero is none: a stage has made the document.
    pub record_id: u64,
    /// What else is known of the document, where the operation asks.
    pub metadata: Option<Box<DocumentMetadata>>,
}

impl From<DocumentCow> for Row {
    #[inline]
    fn from(document: DocumentCow) -> Row {
        Row::stored(0, document)
    }
}

impl From<DocumentBuf> for Row {
    fn from(document: DocumentBuf) -> Row {
        Row::stored(0, document)
    }
}

impl Row {
    /// The document of a record.
    #[inline]
    pub fn stored(record_id: u64, document: impl Into<DocumentCow>) -> Row {
        Row { document: document.into(), record_id, metadata: None }
    }

    /// The same row with another document.
    #[inline]
    pub fn with(self, document: impl Into<DocumentCow>) -> Row {
        Row { document: document.into(), ..self }
    }

    /// One more row like this with another document.
    pub fn another(&self, document: impl Into<DocumentCow>) -> Row {
        Row { document: document.into(), record_id: self.record_id, metadata: self.metadata.clone() }
    }

    /// The row, borrowed.
    #[inline]
    pub fn view(&self) -> RowView<'_> {
        RowView { document: self.document.view(), row: Some(self) }
    }

    /// One kind of metadata, `None` where the row has none.
    pub fn get(&self, kind: MetaKind) -> Option<Value<'_>> {
        match kind {
            MetaKind::RecordId if self.record_id == 0 => None,
            MetaKind::RecordId => i64::try_from(self.record_id).ok().map(Value::Int64),
            kind => self.metadata.as_ref()?.get(kind),
        }
    }

    /// The document and its metadata as one document, which may be spilled.
    pub fn joined(&self) -> DocumentCow {
        let mut out = Builder::new();
        out.append(FieldName::literal(DOCUMENT), self.document.view());
        for kind in MetaKind::ALL {
            out.append_optional(FieldName::literal(kind.name()), self.get(kind));
        }
        DocumentCow::Owned(out.finish())
    }

    /// What [`joined`](Self::joined) has joined.
    pub fn parted(joined: Document<'_>) -> Row {
        Row::beside(joined).with(within(joined).to_owned())
    }

    /// The same, with an empty document.
    fn beside(joined: Document<'_>) -> Row {
        let record_id = match joined.get(MetaKind::RecordId.name()) {
            Some(Value::Int64(id)) => u64::try_from(id).unwrap_or(0),
            _ => 0,
        };
        let metadata =
            Some(DocumentMetadata::read(joined)).filter(|found| *found != DocumentMetadata::default());
        Row { document: DocumentBuf::empty().into(), record_id, metadata: metadata.map(Box::new) }
    }
}

/// A borrowed row, or a document of which nothing is known beside its fields.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    /// The document.
    pub document: Document<'a>,
    row: Option<&'a Row>,
}

impl<'a> From<Document<'a>> for RowView<'a> {
    #[inline]
    fn from(document: Document<'a>) -> RowView<'a> {
        RowView { document, row: None }
    }
}

impl<'a> RowView<'a> {
    /// The same row with another document.
    pub(crate) fn with(self, document: Document<'a>) -> RowView<'a> {
        RowView { document, ..self }
    }

    /// One kind of metadata, `None` where the row has none.
    pub(crate) fn get(self, kind: MetaKind) -> Option<Value<'a>> {
        self.row?.get(kind)
    }
}

/// The field of what is held that has the document. No kind of metadata has this name.
const DOCUMENT: &str = "document";

fn within(joined: Document<'_>) -> Document<'_> {
    joined.get(DOCUMENT).and_then(|document| document.as_document()).unwrap_or(Document::EMPTY)
}

/// Holds rows back as documents, with their metadata if the operation asks for any. A stage makes it at its start, so
/// that it holds all rows alike.
#[derive(Clone, Copy, Default)]
pub(crate) struct Carrier(bool);

impl Carrier {
    /// The carrier of a stage that runs in this context.
    pub(crate) fn new(context: &Context) -> Carrier {
        Carrier(context.metadata.wants_any())
    }

    /// The row as the stage holds it back.
    #[inline]
    pub(crate) fn hold(self, row: Row) -> DocumentCow {
        if self.0 { row.joined() } else { row.document }
    }

    /// The row that was held.
    #[inline]
    pub(crate) fn release(self, held: DocumentCow) -> Row {
        if self.0 { Row::parted(held.view()) } else { held.into() }
    }

    /// Shows the row that is held.
    #[inline]
    pub(crate) fn look<T>(self, held: Document<'_>, look: impl FnOnce(RowView<'_>) -> T) -> T {
        match self.0 {
            true => look(Row::beside(held).view().with(within(held))),
            false => look(held.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json;

    /// A document that a carrier holds back and gives on, and whether it was the same bytes in the same place
    /// all the time: nothing was copied or put together.
    fn held(context: &Context) -> bool {
        let document = extended_json::parse("{a: 1, b: 'x'}").unwrap();
        let place = document.view().bytes().as_ptr();
        let carrier = Carrier::new(context);
        let held = carrier.hold(document.into());
        let stays = held.view().bytes().as_ptr() == place
            && carrier.look(held.view(), |row| row.document.bytes().as_ptr() == place);
        let released = carrier.release(held);
        assert_eq!(released.document.view(), extended_json::parse("{a: 1, b: 'x'}").unwrap().view());
        stays && released.document.view().bytes().as_ptr() == place
    }

    #[test]
    fn a_document_without_metadata_is_held_back_as_it_is() {
        let context = Context::for_tests();
        assert!(held(&context));
        context.metadata.want(MetaKind::TextScore);
        assert!(!held(&context));
    }
}
