//! `$indexStats`: the indexes of the collection and how often each was used.

use super::external::External;
use base::bson::Element;
use base::{Result, err};

/// Errors: 28803 for anything but an empty document.
pub(crate) fn parse(spec: &Element<'_>) -> Result<External> {
    match spec.value().as_document() {
        Some(options) if options.is_empty() => Ok(External::IndexStats),
        _ => Err(err!(28803, "The $indexStats stage specification must be an empty object")),
    }
}
