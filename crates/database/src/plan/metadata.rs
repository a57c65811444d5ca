//! What is known of the documents that a plan finds, for `$meta`: what it is to tell, and telling it.

use crate::exec::Record;
use base::{Error, Result, err};
use query::matcher::Matcher;
use query::{Context, DocumentMetadata, MetaKind, MetaKinds, SortPattern};

/// What a plan has to tell of the records it finds, of what will be asked for.
///
/// Errors: 40218 for what only searches give and the filter is none such; BadValue for the sort key of what isn't
/// sorted.
pub(crate) fn wanted(matcher: &Matcher, sort: Option<&SortPattern>, context: &Context) -> Result<MetaKinds> {
    let kinds = context.metadata.wanted().without(MetaKind::RecordId);
    let gives = |kind: MetaKind| match kind {
        MetaKind::TextScore => matches!(matcher.text(), Ok(Some(_))),
        _ => kind.is_of_places() && matcher.near().is_some(),
    };
    let missing = MetaKind::SEARCHED.into_iter().find(|kind| kinds.has(*kind) && !gives(*kind));
    if let Some(kind) = missing {
        return Err(kind.unavailable());
    }
    if kinds.has(MetaKind::SortKey) && sort.is_none_or(|sort| !sort.orders()) {
        return Err(no_sort());
    }
    Ok(kinds)
}

/// Notes in the context what `$meta` may ask of a record.
pub(crate) fn note(record: &Record, sort: Option<&SortPattern>, context: &Context) -> Result<()> {
    let mut noted = record.meta.as_deref().cloned().unwrap_or_default();
    noted.record_id = i64::try_from(record.id.0).ok();
    if let (None, Some(sort), true) = (&noted.sort_key, sort, context.metadata.wants(MetaKind::SortKey)) {
        noted.sort_key = Some(sort.values(record.document.view(), &noted)?);
    }
    context.metadata.note(noted);
    Ok(())
}

/// Notes that what comes next is a document that nothing has found.
pub(crate) fn note_none(context: &Context) {
    if context.metadata.wants_any() {
        context.metadata.note(DocumentMetadata::default());
    }
}

/// The error of asking for a sort key where there is no sort.
pub(crate) fn no_sort() -> Error {
    err!(BadValue, "cannot use sortKey $meta projection without a sort")
}
