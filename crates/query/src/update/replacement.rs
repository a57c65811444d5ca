//! Replacement documents, and rules shared with the results of pipelines.

use super::finish::{check_new_id, dollar_prefixed};
use crate::Context;
use crate::change::diff::same_value;
use base::bson::{Builder, Document, DocumentBuf, Element, Value, equal};
use base::{Result, bail};

/// A document that replaces another except for its `_id`.
#[derive(Debug)]
pub(super) struct Replacement {
    document: DocumentBuf,
    /// True for an oplog entry. The checks of names were made before it was logged.
    is_logged: bool,
}

impl Replacement {
    pub(super) fn new(document: Document<'_>) -> Replacement {
        Replacement { document: document.to_owned(), is_logged: false }
    }

    /// Returns the replacement of an oplog entry.
    pub(super) fn logged(document: Document<'_>) -> Replacement {
        Replacement { document: document.to_owned(), is_logged: true }
    }

    /// Whether the replacement equals the document, including its `_id`.
    pub(super) fn is(&self, document: Document<'_>) -> bool {
        self.document.bytes() == document.bytes()
    }

    /// Returns the replacement of `before`.
    ///
    /// Errors: those of [`replace`]; DollarPrefixedFieldName for a top-level name with a dollar sign, except in an
    /// insert and in an oplog entry.
    pub(super) fn apply(
        &self,
        before: Document<'_>,
        is_insert: bool,
        context: &Context,
    ) -> Result<DocumentBuf> {
        let dollar = self.document.view().iter().find(|element| element.name_bytes().starts_with(b"$"));
        if let (Some(element), false) = (dollar, is_insert || self.is_logged) {
            return Err(dollar_prefixed(element.name(), element.name()));
        }
        let fills_in = !context.keep_empty_timestamps;
        replace(before, self.document.view(), fills_in.then_some(context))
    }
}

/// Replaces `before` by `after` and keeps the `_id` unless `after` repeats it. With a context, each empty top-level
/// timestamp becomes a distinct time. An equal `_id` is not checked, since it is stored.
///
/// Errors: ImmutableField; before it, the errors of an invalid `_id`.
pub(super) fn replace(
    before: Document<'_>,
    after: Document<'_>,
    context: Option<&Context>,
) -> Result<DocumentBuf> {
    let mut out = Builder::with_buffer(Vec::with_capacity(after.bytes().len() + 32));
    match (before.find("_id"), after.find("_id")) {
        (Some(old), None) => {
            out.append_element(&old);
        }
        (Some(old), Some(new)) if !same_value(&old, &new) => {
            check_new_id(&new)?;
            if !equal(old.value(), new.value()) {
                bail!(
                    ImmutableField,
                    "After applying the update, the (immutable) field '_id' was found to have been altered to {new}"
                );
            }
        }
        _ => {}
    }
    for element in after {
        match context {
            Some(context) if is_empty_timestamp(&element) => {
                out.append(
                    element.field_name(),
                    Value::Timestamp(context.timestamps.next(super::timestamp(context))),
                );
            }
            _ => {
                out.append_element(&element);
            }
        }
    }
    Ok(out.finish())
}

fn is_empty_timestamp(element: &Element<'_>) -> bool {
    matches!(element.value(), Value::Timestamp(0)) && element.name() != "_id"
}
