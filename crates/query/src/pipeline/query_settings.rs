//! `$querySettings`: the settings of query shapes.

use super::external::{External, check_flags};
use base::bson::{Element, Value};
use base::{Result, bail};

/// Errors: 7746800 unless the options are a document; those of flags.
pub(crate) fn parse(spec: &Element<'_>) -> Result<External> {
    let Value::Document(options) = spec.value() else {
        bail!(
            7746800,
            "The {} stage specification must be an object. Found: {}",
            spec.name(),
            spec.kind().alias()
        );
    };
    check_flags(spec.name(), options, &["showDebugQueryShape"])?;
    let shows_shape = options.get("showDebugQueryShape").and_then(|flag| flag.as_bool()) == Some(true);
    Ok(External::QuerySettings { shows_shape })
}
