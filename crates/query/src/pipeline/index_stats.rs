//! `$indexStats`: the indexes of the collection and their usage counts.

use super::external::External;
use base::bson::Element;
use base::{Result, err};

/// Parses `$indexStats`. Errors: 28803 for anything but an empty document.
pub(crate) fn parse(spec: &Element<'_>) -> Result<External> {
    match spec.value().as_document() {
        Some(options) if options.is_empty() => Ok(External::IndexStats),
        _ => Err(err!(28803, "The $indexStats stage specification must be an empty object")),
    }
}
