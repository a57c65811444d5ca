//! Rows: the nodes of plans and the stages of pipelines pass rows on.
//!
//! A row is a document and its metadata. `$meta` and sorts by metadata read the row:
//! - A plan fills in only the kinds of metadata that the operation requires
//!   ([`Metadata::required`](crate::Metadata::required)).
//! - A stage that changes a document passes the row on with the new document ([`Row::with`]). A stage that creates
//!   documents creates rows without metadata.
//! - A blocking stage uses a [`RowCodec`]. It encodes the document and its metadata as one document, which can be
//!   sorted, spilled and read back. A codec copies nothing if the operation requires no metadata.
//!
//! A new kind of metadata is a case of [`MetaKind`]; this file needs no change.

use crate::{Context, DocumentMetadata, MetaKind};
use base::bson::{Builder, Document, DocumentBuf, DocumentCow, FieldName, Value};

/// A document and its metadata.
#[derive(Clone, Debug)]
pub struct Row {
    /// The document, or the fields of it that an index has.
    pub document: DocumentCow,
    /// The number of the record that holds the document. Zero if a stage created the document.
    pub record_id: u64,
    /// Other metadata, if the operation requires any.
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
    /// Returns the row of a record.
    #[inline]
    pub fn stored(record_id: u64, document: impl Into<DocumentCow>) -> Row {
        Row { document: document.into(), record_id, metadata: None }
    }

    /// Replaces the document.
    #[inline]
    pub fn with(self, document: impl Into<DocumentCow>) -> Row {
        Row { document: document.into(), ..self }
    }

    /// Returns a copy of the row with another document, for stages that return several rows for one.
    pub fn copy(&self, document: impl Into<DocumentCow>) -> Row {
        Row { document: document.into(), record_id: self.record_id, metadata: self.metadata.clone() }
    }

    /// Borrows the row.
    #[inline]
    pub fn view(&self) -> RowView<'_> {
        RowView { document: self.document.view(), row: Some(self), root: None }
    }

    /// Returns metadata of one kind.
    pub fn get(&self, kind: MetaKind) -> Option<Value<'_>> {
        match kind {
            MetaKind::RecordId if self.record_id == 0 => None,
            MetaKind::RecordId => i64::try_from(self.record_id).ok().map(Value::Int64),
            kind => self.metadata.as_ref()?.get(kind),
        }
    }

    /// Returns the document and its metadata as one document, which can be spilled.
    pub fn to_document(&self) -> DocumentCow {
        let mut out = Builder::new();
        out.append(FieldName::literal(DOCUMENT), self.document.view());
        for kind in MetaKind::ALL {
            out.append_optional(FieldName::literal(kind.name()), self.get(kind));
        }
        DocumentCow::Owned(out.finish())
    }

    /// Returns the row of a document that [`to_document`](Self::to_document) returned.
    pub fn from_document(encoded: Document<'_>) -> Row {
        Row::metadata_of(encoded).with(document_of(encoded).to_owned())
    }

    /// Returns a row with the metadata of an encoded row and an empty document.
    fn metadata_of(encoded: Document<'_>) -> Row {
        let record_id = match encoded.get(MetaKind::RecordId.name()) {
            Some(Value::Int64(id)) => u64::try_from(id).unwrap_or(0),
            _ => 0,
        };
        let metadata =
            Some(DocumentMetadata::read(encoded)).filter(|found| *found != DocumentMetadata::default());
        Row { document: DocumentBuf::empty().into(), record_id, metadata: metadata.map(Box::new) }
    }
}

/// A borrowed row, or a document without metadata.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    /// The document.
    pub document: Document<'a>,
    row: Option<&'a Row>,
    /// The whole document, if `document` is a part of it.
    root: Option<Document<'a>>,
}

impl<'a> From<Document<'a>> for RowView<'a> {
    #[inline]
    fn from(document: Document<'a>) -> RowView<'a> {
        RowView { document, row: None, root: None }
    }
}

impl<'a> RowView<'a> {
    /// Replaces the document.
    fn with(self, document: Document<'a>) -> RowView<'a> {
        RowView { document, ..self }
    }

    /// Returns a view of a part of the document.
    pub(crate) fn part(self, part: Document<'a>) -> RowView<'a> {
        RowView { document: part, row: self.row, root: Some(self.root()) }
    }

    /// Returns the whole document, `$$ROOT`.
    pub(crate) fn root(self) -> Document<'a> {
        self.root.unwrap_or(self.document)
    }

    /// Returns metadata of one kind.
    pub(crate) fn get(self, kind: MetaKind) -> Option<Value<'a>> {
        self.row?.get(kind)
    }
}

/// The field of an encoded row that has the row's document. No kind of metadata has this name.
const DOCUMENT: &str = "document";

fn document_of(encoded: Document<'_>) -> Document<'_> {
    encoded.get(DOCUMENT).and_then(|document| document.as_document()).unwrap_or(Document::EMPTY)
}

/// Encodes rows as documents for a stage that stores rows. The stage creates the codec at its start, so all its rows
/// have the same form. The field is true if rows have metadata.
#[derive(Clone, Copy, Default)]
pub(crate) struct RowCodec(pub(crate) bool);

impl RowCodec {
    /// Returns the codec of a stage that runs in this context.
    pub(crate) fn new(context: &Context) -> RowCodec {
        RowCodec(context.metadata.requires_any())
    }

    /// Encodes a row.
    #[inline]
    pub(crate) fn encode(self, row: Row) -> DocumentCow {
        if self.0 { row.to_document() } else { row.document }
    }

    /// Decodes a row.
    #[inline]
    pub(crate) fn decode(self, encoded: DocumentCow) -> Row {
        if self.0 { Row::from_document(encoded.view()) } else { encoded.into() }
    }

    /// Calls `visit` with a view of an encoded row, without a copy of its document.
    #[inline]
    pub(crate) fn with_row<T>(self, encoded: Document<'_>, visit: impl FnOnce(RowView<'_>) -> T) -> T {
        match self.0 {
            true => visit(Row::metadata_of(encoded).view().with(document_of(encoded))),
            false => visit(encoded.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json;

    /// Whether a codec encodes and decodes a document without copying it.
    fn keeps_bytes(context: &Context) -> bool {
        let document = extended_json::parse("{a: 1, b: 'x'}").unwrap();
        let address = document.view().bytes().as_ptr();
        let codec = RowCodec::new(context);
        let encoded = codec.encode(document.into());
        let stays = encoded.view().bytes().as_ptr() == address
            && codec.with_row(encoded.view(), |row| row.document.bytes().as_ptr() == address);
        let released = codec.decode(encoded);
        assert_eq!(released.document.view(), extended_json::parse("{a: 1, b: 'x'}").unwrap().view());
        stays && released.document.view().bytes().as_ptr() == address
    }

    #[test]
    fn a_document_without_metadata_is_held_back_as_it_is() {
        let context = Context::for_tests();
        assert!(keeps_bytes(&context));
        context.metadata.require(MetaKind::TextScore);
        assert!(!keeps_bytes(&context));
    }
}
