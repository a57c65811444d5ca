//! The initial document of an upsert: the values that its filter names.

use super::apply::Walk;
use super::operators::set;
use super::tree::{Fields, check_components};
use crate::{Context, Matcher};
use base::Result;
use base::bson::{Document, DocumentBuf};

/// Returns the document of the filter's equalities, `_id` first. For a replacement only the `_id` counts.
///
/// Errors: NotSingleValueField for two values of one path, or of a path and a path below it.
pub(super) fn seed(matcher: &Matcher, only_id: bool, context: &Context) -> Result<DocumentBuf> {
    let mut tree = Fields::default();
    for (path, value) in matcher.equalities()? {
        if only_id && path.first() != "_id" {
            continue;
        }
        check_components(path.as_str())?;
        tree.add(path.as_str(), set::to(value))?;
    }
    let walk = Walk::new(context, Document::EMPTY, None, true, &[]);
    Ok(super::finish::id_first(walk.apply(&tree)?))
}
