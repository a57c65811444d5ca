//! Rows: the nodes of plans and the stages of pipelines pass rows on.
//!
//! A row is a document and its metadata. `$meta` and sorts by metadata read the row:
//! - A plan fills in only the kinds of metadata that the operation wants
//!   ([`Metadata::wanted`](crate::Metadata::wanted)).
//! - A stage that changes a document passes the row on with the new document ([`Row::with`]). A stage that creates
//!   documents creates rows without metadata.
//! - A blocking stage uses a [`Carrier`]. It holds the document and its metadata as one document, which can be sorted,
//!   spilled and read back. A carrier does nothing if no metadata is wanted.

use crate::{Context, DocumentMetadata, MetaKind};
use base::bson::{Builder, Document, DocumentBuf, DocumentCow, FieldName, Value};

/// A document and its metadata.
#[derive(Clone, Debug)]
pub struct Row {
    /// The document, or the fields of it that an index has.
    pub document: DocumentCow,
    /// The number of the record that holds the document. Zero if a stage created the document.
    pub record_id: u64,
    /// Other metadata, if the operation wants any.
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

    /// Returns a further row with this row's metadata and another document.
    pub fn another(&self, document: impl Into<DocumentCow>) -> Row {
        Row { document: document.into(), record_id: self.record_id, metadata: self.metadata.clone() }
    }

    /// Borrows the row.
    #[inline]
    pub fn view(&self) -> RowView<'_> {
        RowView { document: self.document.view(), row: Some(self), whole: None }
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
    pub fn joined(&self) -> DocumentCow {
        let mut out = Builder::new();
        out.append(FieldName::literal(DOCUMENT), self.document.view());
        for kind in MetaKind::ALL {
            out.append_optional(FieldName::literal(kind.name()), self.get(kind));
        }
        DocumentCow::Owned(out.finish())
    }

    /// Returns the row of a [`joined`](Self::joined) document.
    pub fn parted(joined: Document<'_>) -> Row {
        Row::beside(joined).with(within(joined).to_owned())
    }

    /// Returns the row of a joined document without the document.
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

/// A borrowed row, or a document without metadata.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    /// The document.
    pub document: Document<'a>,
    row: Option<&'a Row>,
    /// The whole document, if `document` is a part of it.
    whole: Option<Document<'a>>,
}

impl<'a> From<Document<'a>> for RowView<'a> {
    #[inline]
    fn from(document: Document<'a>) -> RowView<'a> {
        RowView { document, row: None, whole: None }
    }
}

impl<'a> RowView<'a> {
    /// Replaces the document.
    fn with(self, document: Document<'a>) -> RowView<'a> {
        RowView { document, ..self }
    }

    /// Returns a view of a part of the document.
    pub(crate) fn part(self, part: Document<'a>) -> RowView<'a> {
        RowView { document: part, row: self.row, whole: Some(self.root()) }
    }

    /// Returns the whole document, `$$ROOT`.
    pub(crate) fn root(self) -> Document<'a> {
        self.whole.unwrap_or(self.document)
    }

    /// Returns metadata of one kind.
    pub(crate) fn get(self, kind: MetaKind) -> Option<Value<'a>> {
        self.row?.get(kind)
    }
}

/// The field of a joined document that has the row's document. No kind of metadata has this name.
const DOCUMENT: &str = "document";

fn within(joined: Document<'_>) -> Document<'_> {
    joined.get(DOCUMENT).and_then(|document| document.as_document()).unwrap_or(Document::EMPTY)
}

/// Converts rows to documents and back for a stage that holds rows. The stage creates it at its start, so all its rows
/// have the same form.
#[derive(Clone, Copy, Default)]
pub(crate) struct Carrier(bool);

impl Carrier {
    /// Returns the carrier of a stage that runs in this context.
    pub(crate) fn new(context: &Context) -> Carrier {
        Carrier(context.metadata.requires_any())
    }

    /// Converts a row for holding.
    #[inline]
    pub(crate) fn hold(self, row: Row) -> DocumentCow {
        if self.0 { row.joined() } else { row.document }
    }

    /// Converts a held document back to its row.
    #[inline]
    pub(crate) fn release(self, held: DocumentCow) -> Row {
        if self.0 { Row::parted(held.view()) } else { held.into() }
    }

    /// Calls `look` with the row of a held document.
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

    /// Whether a carrier holds and releases a document without copying it.
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
